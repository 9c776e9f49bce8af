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
#define BURST 2u /* losses told at once; then one for each AGAIN_NS */

static struct news *news_of(struct conn *c, const struct link *l);
static struct news *guest(struct conn *c, uint64_t key);
static bool has_budget(struct news *n, uint64_t now_ns);
static const char *count_text(uint32_t n, const char *what, char *text, size_t bytes);

void news_up(struct conn *c, const struct link *l)
{
	struct news *n = news_of(c, l);
	char more[64];

	if (n->told == NEWS_UP || (l->pair.is_self && !l->dialler))
		return; /* its end was not told, either; a pair within this node is told of once */
	log_info("conn: rail %s: pair with node %s rail %s is up, %u QPs%s", conn_rail_conf(c, l->pair.rail_idx)->name,
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
	if (n->told == NEWS_DOWN ? c->now_ns < n->again_ns : !has_budget(n, c->now_ns)) {
		n->n_untold++;
		return;
	}
	count_text(n->n_untold, "more failures since the last line", more, sizeof(more));
	if (n->told == NEWS_DOWN)
		log_warn("conn: rail %s: still down: %s%s", rail, l->down.cause, more);
	else if (was_up)
		log_warn("conn: rail %s: pair with node %s is down: %s%s", rail, node, l->down.cause, more);
	else
		log_warn("conn: rail %s: %s%s", rail, l->down.cause, more);
	n->told = NEWS_DOWN;
	n->again_ns = c->now_ns + AGAIN_NS;
	n->n_untold = 0;
}

bool news_stranger(struct conn *c, const char *peer, char more[NEWS_MORE_BYTES])
{
	const char *port = strrchr(peer, ':');
	size_t n_host = port ? (size_t)(port - peer) : strlen(peer);
	struct news *n = guest(c, XXH3_64bits(peer, n_host));

	if (c->now_ns < n->again_ns) {
		n->n_untold++;
		return false;
	}
	count_text(n->n_untold, "more from there since the last line", more, NEWS_MORE_BYTES);
	n->again_ns = c->now_ns + AGAIN_NS;
	n->n_untold = 0;
	return true;
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

static bool has_budget(struct news *n, uint64_t now_ns)
{
	if (n->paid_ns > now_ns + (BURST - 1) * AGAIN_NS)
		return false;
	n->paid_ns = (n->paid_ns > now_ns ? n->paid_ns : now_ns) + AGAIN_NS;
	return true;
}

static const char *count_text(uint32_t n, const char *what, char *text, size_t bytes)
{
	text[0] = 0;
	if (n)
		snprintf(text, bytes, " (%u %s)", n, what);
	return text;
}
