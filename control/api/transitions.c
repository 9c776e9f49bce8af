/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One line of the log for each change of a breaker, and for each verdict on a slow rail, with a budget per pair or
 * rail: one that flaps for an hour must not bury what the others say. What was held back is counted; the last of it is
 * printed as soon as there is budget again, so that the log's last word on each is always its present state.
 */
#include "api/api_priv.h"
#include "api/pairs.h"
#include "daemon/config_rows.h"

#include <stdio.h>

#define BURST 6u
#define LINE_NS 30000000000ull /* one more line */
#define STORES_NAMED 3u
/* Of peers' breaches, however many peers there are: 20 lines in the first minute, 10 in each that follows. */
#define BREACH_BURST 10u
#define BREACH_NS 6000000000ull

static void take(struct api *api, const struct journal_entry *e);
static bool has_budget(const struct api *api, const struct pair_log *log);
static void print_held(struct api *api);
static void print(struct api *api, struct pair_log *log, const struct journal_entry *e);
static void print_breaker(const struct api *api, const struct journal_entry *e, const char *more);
static const char *reason(const struct rail_transition *t, char *text, size_t bytes);
static const char *damping(const struct rail_transition *t);
static void print_slow(const struct api *api, const struct journal_entry *e, const char *more);
static void print_breach(struct api *api, const struct breach_change *b);
static const char *stores_text(const struct config *c, uint64_t stores, char *text, size_t bytes);
static const char *rate_text(uint64_t bytes_per_s, const char *unknown, char *text, size_t bytes);
static void print_dropped(struct api *api);

bool transitions_print(struct api *api)
{
	struct journal_entry e;
	bool did = false;

	while (journal_pop(api->deps.journal, &e)) {
		if (e.kind == JOURNAL_BREACH)
			print_breach(api, &e.breach);
		else
			take(api, &e);
		did = true;
	}
	if (api->n_held_pairs)
		print_held(api);
	print_dropped(api);
	return did;
}

uint64_t transitions_due_ns(const struct api *api)
{
	uint64_t due_ns = UINT64_MAX;

	for (uint32_t i = 0; api->n_held_pairs && i < LOGS_MAX; i++) {
		const struct pair_log *log = &api->pair_logs[i];

		if (log->n_held && log->budget_ns - (BURST - 1) * LINE_NS < due_ns)
			due_ns = log->budget_ns - (BURST - 1) * LINE_NS;
	}
	return due_ns;
}

static void take(struct api *api, const struct journal_entry *e)
{
	bool is_breaker = e->kind == JOURNAL_BREAKER;
	uint32_t i = is_breaker ? e->what.pair_idx % PAIRS_MAX : PAIRS_MAX + e->name.rail_idx % RY_RAILS_MAX;
	struct pair_log *log = &api->pair_logs[i];

	if (!log->n_held && has_budget(api, log)) {
		print(api, log, e);
		return;
	}
	api->n_held_pairs += !log->n_held;
	log->n_held++;
	log->held = *e;
}

static bool has_budget(const struct api *api, const struct pair_log *log)
{
	return log->budget_ns <= api->now_ns + (BURST - 1) * LINE_NS;
}

static void print_held(struct api *api)
{
	for (uint32_t i = 0; i < LOGS_MAX; i++) {
		struct pair_log *log = &api->pair_logs[i];

		if (log->n_held && has_budget(api, log))
			print(api, log, &log->held);
	}
}

static void print(struct api *api, struct pair_log *log, const struct journal_entry *e)
{
	char more[64] = "";

	if (log->n_held > 1)
		snprintf(more, sizeof(more), "; %u changes of this %s before it are not shown", log->n_held - 1,
			e->kind == JOURNAL_BREAKER ? "pair" : "rail");
	api->n_held_pairs -= log->n_held != 0;
	log->n_held = 0;
	log->budget_ns = (log->budget_ns > api->now_ns ? log->budget_ns : api->now_ns) + LINE_NS;
	if (e->kind == JOURNAL_BREAKER)
		print_breaker(api, e, more);
	else
		print_slow(api, e, more);
}

static void print_breaker(const struct api *api, const struct journal_entry *e, const char *more)
{
	const struct config *c = api->deps.config;
	const struct rail_transition *t = &e->what;
	struct log_site site = {0}; /* the budget is ours */
	char why[128], endpoint[ENDPOINT_TEXT_BYTES], at[ENDPOINT_TEXT_BYTES + 4] = "";

	endpoint_text(c, e->name.store_idx, e->name.endpoint_idx, endpoint);
	if (endpoint[0])
		snprintf(at, sizeof(at), " at %s", endpoint);
	log_write(t->to == RAIL_OPEN ? LOG_LEVEL_WARN : LOG_LEVEL_INFO, &site,
		"health: rail %s: store %s%s: %s -> %s: %s, trips %u%s", c->rails[e->name.rail_idx].name,
		c->stores[e->name.store_idx].name, at, rail_state_name(t->from), rail_state_name(t->to),
		reason(t, why, sizeof(why)), t->n_trips, more);
}

static const char *reason(const struct rail_transition *t, char *text, size_t bytes)
{
	const char *error = rail_error_name((enum rail_evidence)t->evidence, t->status);
	const char *evidence = rail_evidence_name((enum rail_evidence)t->evidence);
	char cooldown[32];

	format_duration(t->cooldown_ns, cooldown, sizeof(cooldown));
	if (t->to == RAIL_CLOSED && t->is_slow && t->from != RAIL_HALF_OPEN)
		snprintf(text, bytes, "its rail passed a trial over another pair");
	else if (t->to == RAIL_CLOSED)
		snprintf(text, bytes, "a probe came back, the last error was %s (%s)", error, evidence);
	else if (t->to == RAIL_HALF_OPEN)
		snprintf(text, bytes, "trial after %s, the last error was %s (%s)", cooldown, error, evidence);
	else if (t->to == RAIL_EXPIRED)
		snprintf(text, bytes, "the trial never left, the next one is due, cooldown %s", cooldown);
	else
		snprintf(text, bytes, "%s (%s), cooldown %s%s", error, evidence, cooldown, damping(t));
	return text;
}

static const char *damping(const struct rail_transition *t)
{
	if (t->is_slow)
		return ", no probes before the trial";
	return t->is_damped ? " without probes, it opens too often" : "";
}

static void print_slow(const struct api *api, const struct journal_entry *e, const char *more)
{
	const struct config *c = api->deps.config;
	const char *rail = c->rails[e->name.rail_idx].name;
	const struct slow_change *s = &e->slow;
	struct log_site site = {0};
	char stores[128], now[32], usual[32], siblings[32], figures[320];

	snprintf(figures, sizeof(figures), "%s to %s, its usual rate is %s, the median of its siblings %s",
		rate_text(s->goodput, "nothing", now, sizeof(now)), stores_text(c, s->stores, stores, sizeof(stores)),
		rate_text(s->usual, "not known yet", usual, sizeof(usual)),
		rate_text(s->siblings, "not known", siblings, sizeof(siblings)));
	if (e->kind == JOURNAL_NOT_SLOW)
		log_write(LOG_LEVEL_INFO, &site, "health: rail %s: no longer slow: %s%s", rail, figures, more);
	else if (e->kind == JOURNAL_SLOW)
		log_write(LOG_LEVEL_WARN, &site,
			"health: rail %s: slow: %s: it keeps the share it can carry; look at the speed and errors of "
			"its link, or take it out: railyard rails drain %s%s",
			rail, figures, rail, more);
	else
		log_write(LOG_LEVEL_WARN, &site,
			"health: rail %s: tripped, slow for %us (health.slow_trip_secs): %s: other rails carry its "
			"share until its pause is over; look at its link, or take it out: railyard rails drain %s%s",
			rail, c->slow_trip_secs, figures, rail, more);
}

/* What has no budget is left out: the operation's status and the counters tell it as well. */
static void print_breach(struct api *api, const struct breach_change *b)
{
	static const char *const texts[BREACHES] = {
		[BREACH_BYTES] = "DONE says another number of bytes than was asked for",
		[BREACH_GENERATION] = "DONE is of another generation than was asked for",
		[BREACH_CHECKSUM] = "bytes that do not match their checksum",
		[BREACH_ANSWER] = "an answer that makes no sense",
		[BREACH_LATE] = "an answer that nobody waits for, or no longer",
	};
	const char *rail = b->rail_idx < api->deps.config->n_rails ? api->deps.config->rails[b->rail_idx].name : NULL;
	char more[64] = "";

	if (api->breach_paid_ns > api->now_ns + (BREACH_BURST - 1) * BREACH_NS)
		return;
	api->breach_paid_ns = RTE_MAX(api->breach_paid_ns, api->now_ns) + BREACH_NS;
	if (b->n > 1)
		snprintf(more, sizeof(more), " (%u since the last line)", b->n);
	log_write(LOG_LEVEL_WARN, NULL, "peer %s:%s%s%s %s%s", b->node_name, rail ? " rail " : "", rail ? rail : "",
		rail ? ":" : "", texts[b->what % BREACHES], more);
}

/* "store a", "stores a, b, c and 4 more"; none: it carries PUTs of nodes that dialled it. */
static const char *stores_text(const struct config *c, uint64_t stores, char *text, size_t bytes)
{
	unsigned n_all = (unsigned)__builtin_popcountll(stores), n_named = 0;
	int n = snprintf(text, bytes, "%s", !n_all ? "its writers" : n_all > 1 ? "stores" : "store");

	for (uint16_t s = 0; s < c->n_stores && n_named < STORES_NAMED; s++) {
		if (stores >> s & 1)
			n += snprintf(
				text + n, bytes - (size_t)n, "%s%.24s", n_named++ ? ", " : " ", c->stores[s].name);
	}
	if (n_all > n_named)
		snprintf(text + n, bytes - (size_t)n, " and %u more", n_all - n_named);
	return text;
}

static const char *rate_text(uint64_t bytes_per_s, const char *unknown, char *text, size_t bytes)
{
	if (!bytes_per_s)
		snprintf(text, bytes, "%s", unknown);
	else if (bytes_per_s < 1000000)
		snprintf(text, bytes, "%.1fkB/s", (double)bytes_per_s / 1e3);
	else
		snprintf(text, bytes, "%.1fMB/s", (double)bytes_per_s / 1e6);
	return text;
}

static void print_dropped(struct api *api)
{
	uint32_t n = __atomic_load_n(&api->deps.journal->n_dropped, __ATOMIC_RELAXED); /* a number for people */

	if (n == api->n_dropped_told)
		return;
	log_warn("health: %u changes came too fast to be written down; railyard health shows the present states",
		n - api->n_dropped_told);
	api->n_dropped_told = n;
}
