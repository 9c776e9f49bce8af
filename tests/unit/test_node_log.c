/* SPDX-License-Identifier: BSD-3-Clause */
/* What the log says of breakers, slow rails and peers' breaches, and how often. */
#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "capture.h"
#include "read/control_priv.h"
#include "rig.h"

#define SECOND 1000000000ull

static struct rig rig;
static struct api *api;
static char dir[32];

static void start(void)
{
	struct api_deps deps;
	char message[256];

	rig_init(&rig, 2, 100000000);
	strcpy(dir, "/tmp/ry-log-XXXXXX");
	cr_assert_not_null(mkdtemp(dir));
	snprintf(rig.config.socket_path, sizeof(rig.config.socket_path), "%s/ctl.sock", dir);
	rig_start(&rig);
	node_api_deps(rig.node, &deps);
	cr_assert_eq(api_create(&deps, message, sizeof(message), &api), 0, "%s", message);
}

static void stop(void)
{
	api_destroy(api);
	rig_stop(&rig);
	rmdir(dir);
}

TestSuite(node_log, .init = start, .fini = stop);

/* ---- breakers ---- */

static void flap_once(bool is_open)
{
	struct journal_entry e = {.name = {.rail_idx = 1},
		.what = {.pair_idx = 1,
			.from = is_open ? RAIL_CLOSED : RAIL_OPEN,
			.to = is_open ? RAIL_OPEN : RAIL_CLOSED,
			.status = RY_ERR_RAIL,
			.evidence = RAIL_EV_PATH,
			.cooldown_ns = 30 * SECOND,
			.n_trips = 9}};

	journal_push(&rig.node->journal, &e);
	api_poll(api, rig.now_ns);
	rig.now_ns += SECOND;
}

static void flap_for_five_minutes(void)
{
	for (int i = 0; i < 300; i++)
		flap_once(i % 2 == 0);
}

static unsigned n_lines(const char *text)
{
	unsigned n = 0;

	while ((text = strchr(text, '\n')) != NULL) {
		text++;
		n++;
	}
	return n;
}

static void poll_later(void)
{
	rig.now_ns += 40 * SECOND;
	api_poll(api, rig.now_ns);
}

static void poll_again(void)
{
	api_poll(api, rig.now_ns);
}

Test(node_log, a_flapping_pair_neither_floods_the_log_nor_leaves_it_wrong)
{
	static char said[1 << 16];

	capture(flap_for_five_minutes, said, sizeof(said));
	cr_expect_leq(n_lines(said), 16, "%u lines: %s", n_lines(said), said);
	cr_expect_geq(n_lines(said), 10, "%u lines", n_lines(said));
	cr_expect_not_null(strstr(said, "changes of this pair before it are not shown"), "%s", said);
	/* The last change was a close; it is told when there is budget, and then no more. */
	capture(poll_later, said, sizeof(said));
	cr_expect_eq(n_lines(said), 1, "%s", said);
	cr_expect_not_null(strstr(said, "rail rail1: store self: open -> closed: a probe came back"), "%s", said);
	capture(poll_again, said, sizeof(said));
	cr_expect_str_eq(said, "");
}

/* A slow trip, a trial that fails, one that passes, and a pair that comes back with it; then one that flaps. */
static void all_reasons(void)
{
	static const struct rail_transition changes[] = {
		{.from = RAIL_CLOSED, .to = RAIL_OPEN, .evidence = RAIL_EV_RATE, .is_slow = true},
		{.from = RAIL_HALF_OPEN, .to = RAIL_OPEN, .evidence = RAIL_EV_PATH, .is_slow = true},
		{.from = RAIL_HALF_OPEN, .to = RAIL_CLOSED, .evidence = RAIL_EV_RATE, .is_slow = true},
		{.from = RAIL_OPEN, .to = RAIL_CLOSED, .evidence = RAIL_EV_RATE, .is_slow = true},
		{.from = RAIL_CLOSED, .to = RAIL_OPEN, .evidence = RAIL_EV_PATH},
	};

	for (unsigned i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
		struct journal_entry e = {.name = {.rail_idx = 1}, .what = changes[i]};

		e.what.is_damped = true;
		e.what.status = RY_ERR_TIMEOUT;
		e.what.cooldown_ns = 30 * SECOND;
		journal_push(&rig.node->journal, &e);
	}
	api_poll(api, rig.now_ns);
}

Test(node_log, a_pair_says_why_it_opened)
{
	static const char *const reasons[] = {
		"closed -> open: SLOW (rate), cooldown 30s, no probes before the trial, trips",
		"half-open -> open: TIMEOUT (path), cooldown 30s, no probes before the trial, trips",
		"half-open -> closed: a probe came back, the last error was SLOW (rate), trips",
		"open -> closed: its rail passed a trial over another pair, trips",
		"closed -> open: TIMEOUT (path), cooldown 30s without probes, it opens too often, trips",
	};
	static char said[1 << 16];
	const char *at = said;

	capture(all_reasons, said, sizeof(said));
	cr_assert_eq(n_lines(said), 5, "%s", said);
	for (unsigned i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++) {
		cr_expect(strstr(at, reasons[i]) && strstr(at, reasons[i]) < strchr(at, '\n'), "not %s: %s", reasons[i],
			at);
		at = strchr(at, '\n') + 1;
	}
}

/* ---- slow rails ---- */

/* At 12.5 MB/s. */
static void say_slow(enum journal_kind kind, uint64_t usual, uint64_t siblings, uint64_t stores)
{
	struct journal_entry e = {.kind = (uint8_t)kind,
		.name.rail_idx = 1,
		.slow = {.goodput = 12500000, .usual = usual, .siblings = siblings, .stores = stores}};

	journal_push(&rig.node->journal, &e);
	api_poll(api, rig.now_ns);
}

static void slow_tripped_and_over(void)
{
	say_slow(JOURNAL_SLOW, 0, 125000000, 1);
	say_slow(JOURNAL_SLOW_TRIP, 999900, 0, 1);
	say_slow(JOURNAL_NOT_SLOW, 125000000, 125000000, 1);
}

Test(node_log, a_slow_rail_has_a_line_of_its_own)
{
	static char said[1 << 16];
	char *line[3];

	rig.config.slow_trip_secs = 30;
	capture(slow_tripped_and_over, said, sizeof(said));
	cr_assert_eq(n_lines(said), 3, "%s", said);
	line[0] = strtok(said, "\n");
	line[1] = strtok(NULL, "\n");
	line[2] = strtok(NULL, "\n");
	cr_expect_not_null(
		strstr(line[0],
			" warn health: rail rail1: slow: 12.5MB/s to store self, its usual rate is not known yet, the "
			"median of its siblings 125.0MB/s: it keeps the share it can carry; "),
		"%s", line[0]);
	cr_expect_not_null(strstr(line[0], "take it out: railyard rails drain rail1"), "%s", line[0]);
	cr_expect_not_null(
		strstr(line[1], " warn health: rail rail1: tripped, slow for 30s (health.slow_trip_secs): "
				"12.5MB/s to store self, its usual rate is 999.9kB/s, the median of its siblings "
				"not known: "),
		"%s", line[1]);
	cr_expect_not_null(
		strstr(line[2], " info health: rail rail1: no longer slow: 12.5MB/s to store self, "), "%s", line[2]);
}

static void slow_to_many_stores(void)
{
	rig.config.n_stores = 5;
	for (int i = 0; i < 5; i++)
		snprintf(rig.config.stores[i].name, sizeof(rig.config.stores[i].name), "s%d-%024d", i, 0);
	say_slow(JOURNAL_SLOW, 1, 1, 0x16);
	say_slow(JOURNAL_SLOW, 1, 1, 0x1f);
	say_slow(JOURNAL_SLOW, 1, 1, 0);
	rig.config.n_stores = 1;
	strcpy(rig.config.stores[0].name, "self");
}

Test(node_log, a_slow_rail_names_its_stores)
{
	static char said[1 << 16];

	capture(slow_to_many_stores, said, sizeof(said));
	cr_expect_not_null(
		strstr(said,
			" to stores s1-000000000000000000000, s2-000000000000000000000, s4-000000000000000000000, its"),
		"%s", said);
	cr_expect_not_null(strstr(said, ", s2-000000000000000000000 and 2 more, its"), "%s", said);
	cr_expect_not_null(strstr(said, " to its writers, its"), "%s", said);
}

static void slow_for_five_minutes(void)
{
	for (int i = 0; i < 300; i++) {
		say_slow(i % 2 ? JOURNAL_NOT_SLOW : JOURNAL_SLOW, 1, 1, 1);
		rig.now_ns += SECOND;
	}
}

Test(node_log, a_rail_that_is_slow_now_and_then_does_not_flood_the_log)
{
	static char said[1 << 16];

	capture(slow_for_five_minutes, said, sizeof(said));
	cr_expect(n_lines(said) >= 10 && n_lines(said) <= 16, "%u lines: %s", n_lines(said), said);
	cr_expect_not_null(strstr(said, "changes of this rail before it are not shown"), "%s", said);
	capture(poll_later, said, sizeof(said));
	cr_expect_eq(n_lines(said), 1, "%s", said);
	cr_expect_not_null(strstr(said, "rail rail1: no longer slow: "), "%s", said);
	/* The breakers of the rail have a budget of their own. */
	capture(flap_for_five_minutes, said, sizeof(said));
	cr_expect_geq(n_lines(said), 14, "%u lines: %s", n_lines(said), said);
}

/* ---- what peers may not do ---- */

static void say_breach(unsigned what, uint16_t rail_idx, uint32_t n)
{
	struct journal_entry e = {.kind = JOURNAL_BREACH,
		.breach = {.what = (uint8_t)what, .rail_idx = rail_idx, .n = n, .node_name = "liar"}};

	journal_push(&rig.node->journal, &e);
	api_poll(api, rig.now_ns);
}

static void each_breach(void)
{
	for (unsigned i = 0; i < BREACHES; i++)
		say_breach(i, i == BREACH_LATE ? RY_RAIL_NONE : 1, i ? 1 : 9);
}

static void breaches_for_five_minutes(void)
{
	for (unsigned i = 0; i < 300 * 10; i++) {
		say_breach(i % BREACHES, 0, 1);
		rig.now_ns += SECOND / 10;
	}
}

Test(node_log, a_peers_breaches_are_told_and_do_not_flood_the_log)
{
	static char said[1 << 16];

	capture(each_breach, said, sizeof(said));
	cr_expect_eq(n_lines(said), BREACHES, "%s", said);
	cr_expect_not_null(strstr(said, "warn peer liar: rail rail1: DONE says another number of bytes than was asked "
					"for (9 since the last line)\n"),
		"%s", said);
	cr_expect_not_null(strstr(said, "peer liar: an answer that nobody waits for, or no longer\n"), "%s", said);
	capture(breaches_for_five_minutes, said, sizeof(said));
	cr_expect(n_lines(said) >= 50 && n_lines(said) <= 10 + 51, "%u lines", n_lines(said));
}

static void overflow(void)
{
	struct journal_entry e = {.what = {.from = RAIL_CLOSED, .to = RAIL_OPEN}};

	for (uint32_t i = 0; i < JOURNAL_ENTRIES + 7; i++)
		journal_push(&rig.node->journal, &e);
	api_poll(api, rig.now_ns);
}

Test(node_log, lost_transitions_are_counted)
{
	static char said[1 << 16];

	capture(overflow, said, sizeof(said));
	cr_expect_not_null(strstr(said, "health: 7 changes came too fast"), "%s", said);
}
