/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the log is told of connections: that trouble begins, once a minute that it goes on, and that it is over.
 *
 * Told per dialler, and for accepted connections per peer and rail, not per connection: a path that connects and then
 * carries nothing comes up and goes down every other second for as long as the trouble lasts.
 */
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "daemon/conn_priv.h"
#include "daemon/log.h"

#define AGAIN_NS 60000000000ull
#define BURST 2u      /* losses told at once; then one for each AGAIN_NS */
#define RAIL_BURST 8u /* the same for the link of a rail, of which device and netdev tell both: twice down and up */
/*
 * However many make trouble: of each share at most 50 lines in the first minute, 30 in each that follows. That is the
 * limit of these lines: the log's own, per call site, would drop the loss of a store behind those of strangers.
 */
#define SHARE_BURST 20u
#define REMINDERS_BURST 10u /* "still down" leaves room for what is new */
#define SHARE_AGAIN_NS 2000000000ull

static struct news *news_of(struct conn *c, const struct link *l);
static struct news *guest(struct conn *c, uint64_t key);
static enum news_share share_of(const struct link *l);
static bool is_worth_a_line(
	struct conn *c, enum news_share share, const char *peer, uint32_t kind, char more[NEWS_MORE_BYTES]);
static uint32_t n_odd_of(const struct link *l);
static bool pay_both(struct conn *c, struct news *n, unsigned burst, enum news_share share);
static bool pay(struct conn *c, enum news_share share, unsigned burst);
static bool has_room(uint64_t paid_ns, uint64_t now_ns, unsigned burst, uint64_t again_ns);
static uint64_t paid_after(uint64_t paid_ns, uint64_t now_ns, uint64_t again_ns);
static void say_rail(struct conn *c, uint16_t rail_idx, uint32_t n_untold);
static const char *count_text(uint32_t n, const char *what, char *text, size_t bytes);

void news_up(struct conn *c, const struct link *l)
{
	static struct log_site guests; /* those of a dialler are as few as its losses that were told */
	struct news *n = news_of(c, l);
	char more[64];

	if (n->told == NEWS_UP || (l->pair.is_self && !l->dialler))
		return; /* its end was not told, either; a pair within this node is told of once */
	log_write(LOG_LEVEL_INFO, l->dialler ? NULL : &guests,
		"conn: rail %s: pair with node %s rail %s is up, %u QPs%s", conn_rail_conf(c, l->pair.rail_idx)->name,
		l->pair.node_name, l->pair.rail_name, l->pair.n_qps,
		count_text(n->n_untold, "more failures before", more, sizeof(more)));
	n->told = NEWS_UP;
	n->n_untold = 0;
}

void news_down(struct conn *c, const struct link *l, bool was_up)
{
	struct news *n = news_of(c, l);
	const char *rail = conn_rail_conf(c, l->pair.rail_idx)->name;
	const char *node = l->pair.node_name[0] ? l->pair.node_name : "?";
	char more[64];

	if (l->pair.is_self && !l->dialler)
		return;
	if (n->told == NEWS_DOWN ? c->now_ns < n->again_ns || !pay(c, share_of(l), REMINDERS_BURST)
				 : !pay_both(c, n, BURST, share_of(l))) {
		n->n_untold++;
		return;
	}
	count_text(n->n_untold, "more failures since the last line", more, sizeof(more));
	if (n->told == NEWS_DOWN)
		log_write(LOG_LEVEL_WARN, NULL, "conn: rail %s: still down: %s%s", rail, l->down.cause, more);
	else if (was_up)
		log_write(LOG_LEVEL_WARN, NULL, "conn: rail %s: pair with node %s is down: %s%s", rail, node,
			l->down.cause, more);
	else
		log_write(LOG_LEVEL_WARN, NULL, "conn: rail %s: %s%s", rail, l->down.cause, more);
	n->told = NEWS_DOWN;
	n->again_ns = c->now_ns + AGAIN_NS;
	n->n_untold = 0;
}

bool news_stranger(struct conn *c, const char *peer, uint32_t kind, char more[NEWS_MORE_BYTES])
{
	return is_worth_a_line(c, NEWS_STRANGERS, peer, kind, more);
}

/* By kind as well: what one process of a host does wrong hides nothing that another one must be told. */
static bool is_worth_a_line(
	struct conn *c, enum news_share share, const char *peer, uint32_t kind, char more[NEWS_MORE_BYTES])
{
	const char *port = strrchr(peer, ':');
	size_t n_host = port ? (size_t)(port - peer) : strlen(peer);
	struct news *n = guest(c, XXH3_64bits_withSeed(peer, n_host, kind));

	if (c->now_ns < n->again_ns || !pay(c, share, SHARE_BURST)) {
		n->n_untold++;
		return false;
	}
	count_text(n->n_untold, "more from there since the last line", more, NEWS_MORE_BYTES);
	n->again_ns = c->now_ns + AGAIN_NS;
	n->n_untold = 0;
	return true;
}

void news_twin(struct conn *c, const char *peer)
{
	char more[NEWS_MORE_BYTES];

	if (is_worth_a_line(c, NEWS_STORES, peer, RY_ERR_DENIED, more))
		log_write(LOG_LEVEL_WARN, NULL, "conn: hello %s: %s%s", peer, refusal_text(RY_ERR_DENIED), more);
}

/* Told with all that came since the last line, on earlier links too: what cannot be told now is told with what follows.
 */
void news_odd(struct conn *c, struct link *l)
{
	uint32_t n = n_odd_of(l) - l->n_odd;
	struct news *about;

	if (!n)
		return;
	about = guest(c, ~(l->pair.node_id * PAIRS_MAX + l->pair.rail_idx));
	if (c->now_ns < about->again_ns || !pay(c, share_of(l), SHARE_BURST)) {
		if (l->state == LINK_UP)
			return;
		/* Its own count ends with it. */
		about->n_untold += n;
		l->n_odd += n;
		return;
	}
	about->again_ns = c->now_ns + AGAIN_NS;
	l->n_odd += n;
	log_write(LOG_LEVEL_WARN, NULL,
		"conn: rail %s: node %s sent %u messages that nothing waits for or that are not allowed",
		conn_rail_conf(c, l->pair.rail_idx)->name, l->pair.node_name, n + about->n_untold);
	about->n_untold = 0;
}

static uint32_t n_odd_of(const struct link *l)
{
	uint32_t n = l->n_refused;

	for (uint16_t i = 0; i < l->pair.n_qps; i++)
		n += qp_n_odd(l->pair.qps[i]);
	return n;
}

/* What cannot be told now waits for its turn, and the latest wins: the last line is what is true. */
void news_rail(struct conn *c, uint16_t rail_idx, const char *format, ...)
{
	struct netdev *d = &c->netdevs[rail_idx];
	bool was_held = d->held[0];
	va_list args;

	va_start(args, format);
	vsnprintf(d->held, sizeof(d->held), format, args);
	va_end(args);
	if (was_held)
		d->news.n_untold++;
	news_rails(c);
}

bool news_rails(struct conn *c)
{
	bool did = false;

	for (uint16_t i = 0; i < c->deps.config->n_rails; i++) {
		struct netdev *d = &c->netdevs[i];

		if (!d->held[0] || c->now_ns < d->news.again_ns)
			continue;
		if (!pay_both(c, &d->news, RAIL_BURST, NEWS_RAILS)) {
			d->news.again_ns = c->now_ns + SHARE_AGAIN_NS;
			continue;
		}
		say_rail(c, i, d->news.n_untold);
		did = true;
	}
	return did;
}

static void say_rail(struct conn *c, uint16_t rail_idx, uint32_t n_untold)
{
	struct netdev *d = &c->netdevs[rail_idx];
	char more[64];

	log_write(LOG_LEVEL_WARN, NULL, "rail %s: %s%s", conn_rail_conf(c, rail_idx)->name, d->held,
		count_text(n_untold, "more since the last line", more, sizeof(more)));
	d->held[0] = 0;
	d->news.n_untold = 0;
	d->news.again_ns = 0;
}

uint64_t news_next_timer(const struct conn *c)
{
	uint64_t next = UINT64_MAX;

	for (uint16_t i = 0; i < c->deps.config->n_rails; i++) {
		if (c->netdevs[i].held[0] && c->netdevs[i].news.again_ns < next)
			next = c->netdevs[i].news.again_ns;
	}
	return next;
}

static struct news *news_of(struct conn *c, const struct link *l)
{
	return l->dialler ? &l->dialler->news : guest(c, l->pair.node_id * PAIRS_MAX + l->pair.rail_idx + 1);
}

/* Two that share a place forget each other's past, and are told of more often than they should be. */
static struct news *guest(struct conn *c, uint64_t key)
{
	struct news *n = &c->guests[key % NEWS_GUESTS];

	if (n->key != key)
		*n = (struct news){.key = key};
	return n;
}

static enum news_share share_of(const struct link *l)
{
	return l->dialler ? NEWS_STORES : NEWS_STRANGERS;
}

/* Neither pays for a line that the other one refuses. */
static bool pay_both(struct conn *c, struct news *n, unsigned burst, enum news_share share)
{
	if (!has_room(n->paid_ns, c->now_ns, burst, AGAIN_NS) || !pay(c, share, SHARE_BURST))
		return false;
	n->paid_ns = paid_after(n->paid_ns, c->now_ns, AGAIN_NS);
	return true;
}

static bool pay(struct conn *c, enum news_share share, unsigned burst)
{
	uint64_t *paid_ns = &c->news_paid_ns[share];

	if (!has_room(*paid_ns, c->now_ns, burst, SHARE_AGAIN_NS))
		return false;
	*paid_ns = paid_after(*paid_ns, c->now_ns, SHARE_AGAIN_NS);
	return true;
}

/* For one line more, of `burst` at once and one for each again_ns. */
static bool has_room(uint64_t paid_ns, uint64_t now_ns, unsigned burst, uint64_t again_ns)
{
	return paid_ns <= now_ns + (burst - 1) * again_ns;
}

static uint64_t paid_after(uint64_t paid_ns, uint64_t now_ns, uint64_t again_ns)
{
	return (paid_ns > now_ns ? paid_ns : now_ns) + again_ns;
}

static const char *count_text(uint32_t n, const char *what, char *text, size_t bytes)
{
	text[0] = 0;
	if (n)
		snprintf(text, bytes, " (%u %s)", n, what);
	return text;
}
