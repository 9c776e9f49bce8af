/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How much a rail may have in flight: 1.5 times the bandwidth-delay product, between depth_min and the rail's budget.
 *
 * The delay is the windowed minimum of DONE latency, not its mean: a mean contains our own queue (latency = in flight /
 * goodput), so a depth made from it would grow until the budget stops it. To it comes our own turn-round, from
 * hand-back to the next hand-out: nothing on a dedicated core, milliseconds where lcores share CPUs, and the rail must
 * have enough to do meanwhile.
 */
#include "read/control_priv.h"

#define GOODPUT_WINDOW_NS 10000000ull
#define LATENCY_WINDOW_NS 10000000000ull

static void update_depth(struct control *c, struct rail_ctx *rs);

void estimate_init(struct control *c)
{
	for (uint16_t i = 0; i < c->n_rails; i++) {
		c->rails[i].inflight_max_bytes = c->config->rails[i].inflight_max_bytes;
		update_depth(c, &c->rails[i]);
	}
}

/* The rail goes from idle to busy: a window is made of busy time only, or one segment at a time would never fill it. */
void estimate_restart(struct control *c, struct rail_ctx *rs)
{
	if (rs->window_bytes)
		rs->window_start_ns += c->now_ns - RTE_MIN(rs->landed_ns, c->now_ns);
	else
		rs->window_start_ns = c->now_ns;
	rs->landed_ns = c->now_ns;
}

void estimate_done(struct control *c, struct rail_ctx *rs, const struct segment *s)
{
	uint64_t latency_ns = s->landed_ns - s->posted_ns;
	uint64_t elapsed_ns = c->now_ns - rs->window_start_ns;

	if (!rs->min_latency_ns || latency_ns <= rs->min_latency_ns ||
		c->now_ns - rs->min_latency_at_ns > LATENCY_WINDOW_NS) {
		rs->min_latency_ns = RTE_MAX(latency_ns, 1ull);
		rs->min_latency_at_ns = c->now_ns;
	}
	rs->turnround_ns = RTE_MAX(rs->turnround_ns, c->now_ns - s->done_ns);
	rs->landed_ns = RTE_MAX(rs->landed_ns, s->landed_ns);
	rs->window_bytes += s->len_bytes;
	if (elapsed_ns < GOODPUT_WINDOW_NS)
		return;
	elapsed_ns = rs->window_bytes * 1000000000ull / elapsed_ns; /* bytes per second of this window */
	rs->goodput = rs->goodput ? (3 * rs->goodput + elapsed_ns) / 4 : elapsed_ns;
	rs->window_start_ns = c->now_ns;
	rs->window_bytes = 0;
	update_depth(c, rs);
	rs->turnround_ns -= rs->turnround_ns / 8; /* a windowed maximum that forgets */
}

static void update_depth(struct control *c, struct rail_ctx *rs)
{
	uint64_t bdp = (uint64_t)((double)rs->goodput * (double)(rs->min_latency_ns + rs->turnround_ns) / 1e9 * 1.5);

	bdp = RTE_MAX(bdp, c->config->depth_min_bytes);
	rs->depth_bytes = RTE_MIN(bdp, rs->inflight_max_bytes);
}
