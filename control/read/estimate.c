/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How much a rail may have in flight: 1.5 times the bandwidth-delay product, between depth_min and the rail's budget.
 *
 * The delay is the windowed minimum of DONE latency, not its mean: a mean contains our own queue (latency = in flight /
 * goodput), so a depth made from it would grow until the budget stops it. To it comes our own turn-round, from
 * hand-back to the next hand-out: nothing on a dedicated core, milliseconds where lcores share CPUs, and the rail must
 * have enough to do meanwhile. No more than TURNROUND_MOST_NS of it: what bridges a longer pause would keep the
 * siblings waiting as long at the end of an object. A weak rail, which carries less than half of what the best one
 * does, gets less than depth_min: 2 MiB would keep one of 12 MB/s busy for 170 ms, and an object would wait for them.
 */
#include "read/control_priv.h"

#define GOODPUT_WINDOW_NS 10000000ull
#define LATENCY_WINDOW_NS 10000000000ull
#define WEAK_WINDOW_NS 200000ull
#define TURNROUND_MOST_NS 16000000ull
#define NEW_RAIL_RATE 1000000000ull /* where neither sample nor link is known: like every other one that is new */

static void end_window(struct control *c, struct rail_ctx *rs, uint64_t elapsed_ns);
static bool was_loaded(const struct rail_ctx *rs);
static void guess_rates(struct control *c);
static void find_weak(struct control *c);
static void update_depth(struct control *c, struct rail_ctx *rs);

void estimate_init(struct control *c)
{
	for (uint16_t i = 0; i < c->n_rails; i++) {
		c->rails[i].link = rail_link(c->rails[i].rail);
		c->rails[i].rate = NEW_RAIL_RATE;
	}
	for (uint16_t i = 0; i < c->n_rails; i++)
		estimate_budget(c, &c->rails[i], c->limits.rail_inflight_max_bytes[i]);
	find_weak(c);
}

/* A pair of this rail is up: the link may have come back at another speed, and what it carried before says nothing. */
void estimate_link(struct control *c, struct rail_ctx *rs)
{
	uint64_t link = rail_link(rs->rail);

	if (link == rs->link)
		return;
	rs->link = link;
	rs->goodput = rs->min_latency_ns = 0;
	find_weak(c);
}

void estimate_budget(struct control *c, struct rail_ctx *rs, uint64_t bytes)
{
	rs->inflight_max_bytes = bytes;
	update_depth(c, rs);
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
	hist_add(&rs->latency, latency_ns);
	rs->turnround_ns = RTE_MAX(rs->turnround_ns, c->now_ns - s->done_ns);
	rs->landed_ns = RTE_MAX(rs->landed_ns, s->landed_ns);
	rs->window_bytes += s->len_bytes;
	rs->window_wait_ns += latency_ns;
	rs->window_ahead_bytes += (uint64_t)s->owner_ahead_kib << 10;
	rs->window_segments++;
	/* A weak rail has few and small segments: each counts, so that it is seen to be well again. */
	if (elapsed_ns >= (rs->is_weak ? WEAK_WINDOW_NS : GOODPUT_WINDOW_NS))
		end_window(c, rs, elapsed_ns);
}

/* Long windows, which a rail that became slow has, count twice. */
static void end_window(struct control *c, struct rail_ctx *rs, uint64_t elapsed_ns)
{
	uint64_t sample = rs->window_bytes * 1000000000ull / elapsed_ns; /* bytes per second of this window */

	bool is_proof = sample > rs->goodput || was_loaded(rs);

	if (!rs->goodput)
		rs->goodput = sample;
	else if (is_proof)
		rs->goodput = elapsed_ns < 2 * GOODPUT_WINDOW_NS ? (3 * rs->goodput + sample) / 4
								 : (rs->goodput + sample) / 2;
	rs->goodput = RTE_MAX(rs->goodput, 1ull);
	rs->window_start_ns = c->now_ns;
	rs->window_bytes = rs->window_wait_ns = rs->window_ahead_bytes = rs->window_segments = 0;
	find_weak(c);
	if (is_proof)
		slow_window(c, rs, RTE_MAX(sample, rs->goodput));
	rs->turnround_ns -= rs->turnround_ns / 8; /* a windowed maximum that forgets */
}

/*
 * A window that carried less than the rail can proves nothing where the rail had little to do. It had enough when more
 * was in flight than the bandwidth-delay product, or when segments took longer than that delay and what was ahead of
 * them explain.
 */
static bool was_loaded(const struct rail_ctx *rs)
{
	double n_delays_ns = (double)rs->window_segments * (double)rs->min_latency_ns;
	double ahead_ns = (double)rs->window_ahead_bytes / (double)rs->goodput * 1e9;

	return ahead_ns > 1.25 * n_delays_ns || (double)rs->window_wait_ns > 1.25 * (n_delays_ns + ahead_ns);
}

/*
 * A rail without a sample is guessed by its link, at the share of its own that the best of the others brings: rails of
 * 100 and 25 Gbit/s start 4 to 1. One whose link is unknown is taken for as good as any.
 */
static void guess_rates(struct control *c)
{
	uint64_t best = 0, best_link = 0;
	double share = 0;

	for (uint16_t r = 0; r < c->n_rails; r++) {
		const struct rail_ctx *rs = &c->rails[r];

		best = RTE_MAX(best, rs->goodput);
		best_link = RTE_MAX(best_link, rs->link);
		if (rs->goodput && rs->link)
			share = RTE_MAX(share, (double)rs->goodput / (double)rs->link);
	}
	for (uint16_t r = 0; r < c->n_rails; r++) {
		struct rail_ctx *rs = &c->rails[r];
		bool is_known = rs->link && (share > 0 || !best);

		rs->rate = rs->goodput;
		if (!rs->rate && is_known)
			rs->rate = (uint64_t)((double)rs->link * (share > 0 ? share : 1.0));
		else if (!rs->rate)
			rs->rate = best ? best : best_link;
		rs->rate = rs->rate ? rs->rate : NEW_RAIL_RATE;
	}
}

/* Weak: carries less than half of what the best one does, whatever the reason. */
static void find_weak(struct control *c)
{
	uint64_t best = 0;

	guess_rates(c);
	for (uint16_t r = 0; r < c->n_rails; r++)
		best = RTE_MAX(best, c->rails[r].rate);
	c->best_goodput = best;
	c->weak_mask = 0;
	for (uint16_t r = 0; r < c->n_rails; r++) {
		struct rail_ctx *rs = &c->rails[r];

		rs->is_weak = rs->rate < best / 2;
		c->weak_mask |= (uint32_t)rs->is_weak << r;
		update_depth(c, rs);
	}
}

/* What the best one carries by its least depth, or by one segment, shall take a weak one no longer. */
uint64_t estimate_scale(const struct control *c, const struct rail_ctx *rs, uint64_t bytes)
{
	return rs->is_weak ? (uint64_t)((double)bytes * (double)rs->rate / (double)c->best_goodput) : bytes;
}

static void update_depth(struct control *c, struct rail_ctx *rs)
{
	uint64_t delay_ns = rs->min_latency_ns + RTE_MIN(rs->turnround_ns, TURNROUND_MOST_NS);
	uint64_t bdp = (uint64_t)((double)rs->goodput * (double)delay_ns / 1e9 * 1.5);
	uint64_t least = estimate_scale(c, rs, c->config->depth_min_bytes);

	least = RTE_MAX(least, 2ull * RY_SEGMENT_MIN_BYTES);
	bdp = RTE_MAX(bdp, least);
	rs->depth_bytes = RTE_MIN(bdp, rs->inflight_max_bytes);
	room_update(c, rs);
}
