/* SPDX-License-Identifier: BSD-3-Clause */
/* What the log is told while a peer's rail is in trouble for minutes. */
#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/conn_priv.h"

#define SECOND 1000000000ull

static struct config config;
static struct conn *c;
static struct dialler dialler;
static struct link l;
static char said[1 << 16];

static void start(void)
{
	config.n_rails = 1;
	snprintf(config.rails[0].name, sizeof(config.rails[0].name), "rail0");
	c = calloc(1, sizeof(*c));
	c->deps.config = &config;
	c->now_ns = SECOND;
	l.dialler = &dialler;
	l.pair.n_qps = 1;
	snprintf(l.pair.node_name, sizeof(l.pair.node_name), "st");
	snprintf(l.pair.rail_name, sizeof(l.pair.rail_name), "rail7");
	snprintf(l.down.cause, sizeof(l.down.cause), "connect 10.0.0.2:7471: connection refused");
}

static void stop(void)
{
	free(c);
}

TestSuite(conn_news, .init = start, .fini = stop);

/* What f writes to stderr goes to `said`; how many lines. */
static unsigned lines_of(void (*f)(void))
{
	int saved = dup(STDERR_FILENO), ends[2];
	unsigned n = 0;
	ssize_t got;

	cr_assert(pipe(ends) == 0);
	dup2(ends[1], STDERR_FILENO);
	f();
	dup2(saved, STDERR_FILENO);
	close(ends[1]);
	got = read(ends[0], said, sizeof(said) - 1);
	said[got > 0 ? got : 0] = 0;
	close(ends[0]);
	close(saved);
	for (const char *p = said; (p = strchr(p, '\n')) != NULL; p++)
		n++;
	return n;
}

static void up(void)
{
	news_up(c, &l);
}

static void down(void)
{
	news_down(c, &l, true);
}

/* Five minutes of one refused attempt a second. */
static void outage(void)
{
	news_down(c, &l, true);
	for (int i = 0; i < 300; i++) {
		c->now_ns += SECOND;
		news_down(c, &l, false);
	}
}

Test(conn_news, trouble_is_told_when_it_begins_once_a_minute_and_when_it_ends)
{
	cr_expect_eq(lines_of(up), 1);
	cr_expect_not_null(strstr(said, "rail rail0: pair with node st rail rail7 is up, 1 QPs\n"), "%s", said);
	cr_expect_eq(lines_of(outage), 6, "%s", said);
	cr_expect_not_null(strstr(said, "pair with node st is down: connect"), "%s", said);
	cr_expect_not_null(strstr(said, "still down: connect 10.0.0.2:7471: connection refused "
					"(59 more failures since the last line)"),
		"%s", said);
	c->now_ns += SECOND;
	cr_expect_eq(lines_of(up), 1);
	cr_expect_eq(lines_of(up), 0, "it is over once");
}

/* Five minutes of a path that connects and carries nothing. */
static void flap(void)
{
	for (int i = 0; i < 150; i++) {
		news_up(c, &l);
		c->now_ns += SECOND;
		news_down(c, &l, true);
		c->now_ns += SECOND;
	}
}

Test(conn_news, a_path_that_connects_in_vain_is_not_told_of_each_time)
{
	cr_expect_leq(lines_of(flap), 16, "%s", said);
	cr_expect_not_null(strstr(said, "more failures since the last line"), "%s", said);
	/* However it was left, the next minute's failure is told, and so is the end. */
	c->now_ns += 121 * SECOND;
	cr_expect_eq(lines_of(down), 1, "%s", said);
	cr_expect_eq(lines_of(up), 1, "%s", said);
}

Test(conn_news, a_loss_soon_after_another_is_told)
{
	lines_of(up);
	cr_expect_eq(lines_of(down), 1);
	cr_expect_eq(lines_of(up), 1);
	c->now_ns += SECOND;
	cr_expect_eq(lines_of(down), 1, "two at once");
	cr_expect_eq(lines_of(up), 1);
	cr_expect_eq(lines_of(down), 0, "the third is one too many");
	cr_expect_eq(lines_of(up), 0, "whose end is not told, either");
}

Test(conn_news, accepted_connections_share_their_peers_news)
{
	l.dialler = NULL;
	l.pair.node_id = 42;
	cr_expect_leq(lines_of(flap), 16, "%s", said);
	cr_expect_eq(lines_of(down), 0, "%s", said);
	/* Another node is another story. */
	l.pair.node_id = 43;
	cr_expect_eq(lines_of(down), 1, "%s", said);
}

Test(conn_news, a_pair_within_the_node_is_told_of_at_one_end)
{
	l.pair.is_self = true;
	cr_expect_eq(lines_of(up), 1);
	l.dialler = NULL;
	cr_expect_eq(lines_of(up), 0);
	cr_expect_eq(lines_of(down), 0);
}

static unsigned n_told;

static void strangers(void)
{
	char more[NEWS_MORE_BYTES], peer[64];

	for (unsigned i = 0; i < 300; i++) {
		snprintf(peer, sizeof(peer), "10.0.0.9:%u", 40000 + i);
		n_told += news_stranger(c, peer, RY_ERR_PROTOCOL, more);
		c->now_ns += SECOND;
	}
	cr_expect_str_eq(more, " (59 more from there since the last line)");
}

Test(conn_news, a_stranger_that_knocks_every_second_is_told_of_once_a_minute)
{
	strangers();
	cr_expect_eq(n_told, 5);
}

static void flip(bool is_up)
{
	news_rail(c, 0, "network device eth0 is %s", is_up ? "up again" : "down");
	n_told += !c->netdevs[0].held[0];
}

/* Five minutes of a cable that is in and out. What is told is counted, not read: the log has a bound of its own. */
static void loose_cable(void)
{
	for (int i = 0; i < 1500; i++) {
		flip(i % 2);
		c->now_ns += SECOND / 5;
		n_told += news_rails(c);
	}
}

static void last_word(void)
{
	cr_expect_str_eq(c->netdevs[0].held, "network device eth0 is up again");
	while (news_next_timer(c) != UINT64_MAX) {
		c->now_ns = news_next_timer(c);
		news_rails(c);
	}
}

Test(conn_news, a_loose_cable_is_told_of_now_and_then_and_the_last_line_is_true)
{
	lines_of(loose_cable);
	cr_expect(n_told >= 12 && n_told <= 14, "%u", n_told);
	c->now_ns += 5 * SECOND;
	cr_expect_eq(lines_of(last_word), 1, "%s", said);
	cr_expect_not_null(strstr(said, "eth0 is up again ("), "%s", said);
	cr_expect_not_null(strstr(said, "more since the last line"), "%s", said);
}

/* Of two hundred peers, each with a host of its own and in trouble all the time. */
static void crowd(void)
{
	char more[NEWS_MORE_BYTES], peer[64];

	l.dialler = NULL;
	for (unsigned i = 0; i < 6000; i++) {
		const struct news *n = &c->guests[(i % 200 * (uint64_t)PAIRS_MAX + 1) % NEWS_GUESTS];

		snprintf(peer, sizeof(peer), "10.0.%u.%u:%u", i % 200, i % 7, 40000 + i);
		n_told += news_stranger(c, peer, RY_ERR_PROTOCOL, more);
		l.pair.node_id = i % 200;
		news_up(c, &l);
		news_down(c, &l, true);
		n_told += n->told == NEWS_DOWN && n->again_ns == c->now_ns + 60 * SECOND;
		c->now_ns += SECOND / 100;
	}
}

Test(conn_news, a_crowd_in_trouble_does_not_flood_the_log)
{
	lines_of(crowd);
	cr_expect(n_told >= 40 && n_told <= 52, "%u lines of trouble in a minute", n_told);
}

Test(conn_news, two_kinds_of_trouble_from_one_host_are_two_stories)
{
	char more[NEWS_MORE_BYTES];

	cr_expect(news_stranger(c, "10.0.0.9:1", RY_ERR_PROTOCOL, more));
	cr_expect_not(news_stranger(c, "10.0.0.9:2", RY_ERR_PROTOCOL, more));
	cr_expect(news_stranger(c, "10.0.0.9:3", RY_ERR_DENIED, more));
	cr_expect_not(news_stranger(c, "10.0.0.9:4", RY_ERR_DENIED, more));
}

/* ---- Shares ---- */

/* From a thousand addresses, and nodes that come and go, until nothing more is told of them. */
static void horde(void)
{
	struct link guest = l;
	char more[NEWS_MORE_BYTES], peer[64];

	guest.dialler = NULL;
	for (unsigned i = 0; i < 1000; i++) {
		snprintf(peer, sizeof(peer), "10.1.%u.%u:%u", i / 250, i % 250, 40000 + i);
		n_told += news_stranger(c, peer, RY_ERR_PROTOCOL, more);
		guest.pair.node_id = i;
		news_up(c, &guest);
		news_down(c, &guest, true);
		c->now_ns += SECOND / 1000;
	}
}

static void use_up(void)
{
	char more[NEWS_MORE_BYTES], peer[64];

	for (unsigned i = 0; i < 250; i++) {
		snprintf(peer, sizeof(peer), "10.2.1.%u:1", i);
		if (!news_stranger(c, peer, RY_ERR_PROTOCOL, more))
			return;
	}
	cr_assert_fail("strangers are told of without end");
}

static void ours_are_lost(void)
{
	news_rail(c, 0, "network device eth0 is down");
	news_down(c, &l, true);
}

Test(conn_news, strangers_leave_room_for_our_rails_and_stores)
{
	lines_of(up);
	for (unsigned i = 0; i < 60; i++)
		cr_assert_leq(lines_of(horde), 40, "%s", said);
	cr_expect_leq(n_told, 70, "%u", n_told);
	lines_of(use_up);
	cr_expect_eq(lines_of(ours_are_lost), 2, "%s", said);
	cr_expect_not_null(strstr(said, "rail rail0: network device eth0 is down\n"), "%s", said);
	cr_expect_not_null(strstr(said, "pair with node st is down: connect"), "%s", said);
}

static struct dialler many[100];

/* A hundred stores, all lost at once, and each of them dialled in vain every 200 ms. */
static void all_stores_are_lost(void)
{
	for (unsigned t = 0; t < 180 * 5; t++) {
		for (unsigned i = 0; i < 100; i++) {
			l.dialler = &many[i];
			news_down(c, &l, !t);
		}
		c->now_ns += SECOND / 5;
	}
}

static void one_more_store(void)
{
	l.dialler = &dialler;
	news_down(c, &l, true);
}

Test(conn_news, every_store_that_is_lost_is_told_of)
{
	cr_expect_leq(lines_of(all_stores_are_lost), 20 + 91, "%s", said);
	for (unsigned i = 0; i < 100; i++)
		cr_expect(many[i].news.told == NEWS_DOWN, "store %u", i);
	/* What goes on leaves room for what is new. */
	lines_of(all_stores_are_lost);
	cr_expect_eq(lines_of(one_more_store), 1, "%s", said);
}

static void all_rails_are_lost(void)
{
	uint64_t start_ns = c->now_ns;

	for (uint16_t i = 0; i < config.n_rails; i++)
		news_rail(c, i, "network device eth%u is down", i);
	while (news_next_timer(c) != UINT64_MAX && c->now_ns - start_ns < 100 * SECOND) {
		c->now_ns = news_next_timer(c);
		news_rails(c);
	}
	cr_expect_leq(c->now_ns - start_ns, 30 * SECOND);
}

Test(conn_news, every_rail_that_is_lost_is_told_of)
{
	config.n_rails = RY_RAILS_MAX;
	for (unsigned i = 0; i < RY_RAILS_MAX; i++)
		snprintf(config.rails[i].name, sizeof(config.rails[i].name), "rail%u", i);
	cr_expect_eq(lines_of(all_rails_are_lost), RY_RAILS_MAX, "%s", said);
	for (unsigned i = 0; i < RY_RAILS_MAX; i++) {
		char line[64];

		snprintf(line, sizeof(line), "rail rail%u: network device eth%u is down\n", i, i);
		cr_expect_not_null(strstr(said, line), "%s is missing", line);
	}
}
