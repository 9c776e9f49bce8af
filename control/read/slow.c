/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rails that are up and slow. Three things, apart from each other:
 *
 * Weak is what the planner goes by (estimate.c): less than half the goodput of the best rail, by nature or by fault.
 * Such a rail gets pieces and a depth in proportion, and none that would arrive after the siblings have brought the
 * rest; so an object never waits for it, and it carries what it can.
 *
 * Slow is what operators see: goodput, which is the inverse of DONE time per byte at the depth there was, below a third
 * of the rail's own usual one and below a third of its siblings' median, for SLOW_ENTER windows in a row; ends when
 * either ratio has been above a half for SLOW_LEAVE windows. The usual one is a mean over some 64 windows in which the
 * rail was not slow; a rail without a history is compared with its siblings alone, one without siblings with its
 * history.
 *
 * A rail that stays slow for health.slow_trip_secs (0 = never) is tripped: its breakers open, towards every endpoint of
 * a store, or the next one would take its place at once; except where it is the last rail of a store. A PING would come
 * back all the same, so none is sent before the pause is over; then the rail has the same time again. The trial that
 * brings one pair back speaks for the rail: what was opened with it, and may never be connected, closes as well. Each
 * verdict is written into the journal, from where it reaches the log.
 */
#include "read/control_priv.h"

#include "health/layout.h"

#define SLOW_ENTER 3u
#define SLOW_LEAVE 8u
#define ENTER_RATIO 3u
#define LEAVE_RATIO 2u
#define USUAL_LEAST 16u /* windows that make a history */
#define USUAL_WEIGHT 64u
#define MARGIN 1.125 /* all of these are estimates */
#define TRIAL_LEAST_NS 1000000000ull
#define TRIAL_SHARE 100u

static bool is_below(const struct control *c, const struct rail_ctx *rs, uint64_t most);
static uint64_t median_of_siblings(const struct control *c, const struct rail_ctx *rs);
static void keep_usual(struct rail_ctx *rs);
static void tell(
	struct control *c, const struct rail_ctx *rs, enum journal_kind kind, uint64_t goodput, uint64_t stores);
static uint64_t stores_of(const struct control *c, uint16_t r);
static uint64_t trip_at_ns(const struct control *c, uint16_t r, uint16_t store);
static bool trip(struct control *c, uint16_t r, uint16_t store);
static bool has_another(const struct control *c, uint16_t store, uint16_t r);

void slow_window(struct control *c, struct rail_ctx *rs, uint64_t goodput)
{
	bool is_low = is_below(c, rs, goodput * (rs->is_slow ? LEAVE_RATIO : ENTER_RATIO));

	if (!is_low && !rs->is_slow)
		keep_usual(rs);
	if (is_low == rs->is_slow) {
		rs->n_in_row = 0;
		return;
	}
	if (++rs->n_in_row < (rs->is_slow ? SLOW_LEAVE : SLOW_ENTER))
		return;
	rs->is_slow = !rs->is_slow;
	rs->n_in_row = 0;
	rs->slow_since_ns = c->now_ns;
	if (rs->is_slow)
		stat_add(&c->counters->rails_slow, 1);
	else
		stat_sub(&c->counters->rails_slow, 1);
	tell(c, rs, rs->is_slow ? JOURNAL_SLOW : JOURNAL_NOT_SLOW, goodput, stores_of(c, (uint16_t)(rs - c->rails)));
}

static bool is_below(const struct control *c, const struct rail_ctx *rs, uint64_t most)
{
	uint64_t siblings = median_of_siblings(c, rs);
	bool has_history = rs->n_usual >= USUAL_LEAST;

	if (!siblings && !has_history)
		return false;
	return (!has_history || most < rs->usual_goodput) && (!siblings || most < siblings);
}

/* The lower of the two in the middle; 0 = none was measured. */
static uint64_t median_of_siblings(const struct control *c, const struct rail_ctx *rs)
{
	uint64_t sorted[RY_RAILS_MAX];
	uint32_t n = 0;

	for (uint16_t r = 0; r < c->n_rails; r++) {
		uint64_t goodput = c->rails[r].goodput;
		uint32_t i;

		if (&c->rails[r] == rs || !goodput)
			continue;
		for (i = n++; i > 0 && sorted[i - 1] > goodput; i--)
			sorted[i] = sorted[i - 1];
		sorted[i] = goodput;
	}
	return n ? sorted[(n - 1) / 2] : 0;
}

static void keep_usual(struct rail_ctx *rs)
{
	uint64_t n;

	if (rs->n_usual < USUAL_WEIGHT)
		rs->n_usual++;
	n = rs->n_usual;
	rs->usual_goodput = (rs->usual_goodput * (n - 1) + rs->goodput) / n;
}

/* A line of the log. */
static void tell(
	struct control *c, const struct rail_ctx *rs, enum journal_kind kind, uint64_t goodput, uint64_t stores)
{
	struct journal_entry e = {
		.kind = (uint8_t)kind,
		.name.rail_idx = (uint16_t)(rs - c->rails),
		.slow = {.goodput = goodput,
			.usual = rs->n_usual >= USUAL_LEAST ? rs->usual_goodput : 0,
			.siblings = median_of_siblings(c, rs),
			.stores = stores},
	};

	journal_push(c->d.journal, &e);
	c->want_api_kick = true;
}

static uint64_t stores_of(const struct control *c, uint16_t r)
{
	uint64_t stores = 0;

	for (uint16_t s = 0; s < c->config->n_stores; s++)
		stores |= (uint64_t)(c->peers[s].rail_mask >> r & 1) << s;
	return stores;
}

/*
 * The others bring what is left of the transfer and what they have in flight in a time that their goodput tells. Now
 * and then a weak rail may take a piece all the same, or a rail that is well again would never be found out where all
 * objects are small.
 */
uint32_t slow_late(const struct control *c, const struct xfer *x, uint32_t eligible)
{
	uint32_t weak = eligible & c->weak_mask, strong = eligible & ~c->weak_mask, late = 0;
	double rate = 0, bytes = (double)x->plan.unissued_bytes, rest_ns;

	if (!weak || !strong || x->plan.rr_rail || x->n_rereads)
		return 0;
	if (x->orphans)
		return weak; /* they are as large as they are */
	for (uint32_t m = strong; m; m &= m - 1) {
		uint16_t r = (uint16_t)__builtin_ctz(m);
		double goodput = (double)c->rails[r].rate;

		rate += goodput;
		bytes += (double)hand_out_drain_ns(c, r) * goodput / 1e9;
	}
	rest_ns = bytes / rate * 1e9;
	for (uint32_t m = weak; m; m &= m - 1) {
		uint16_t r = (uint16_t)__builtin_ctz(m);
		const struct rail_ctx *rs = &c->rails[r];
		double piece_ns = (double)slow_piece_bytes(c, rs) / (double)rs->rate * 1e9;

		if (((double)hand_out_drain_ns(c, r) + piece_ns) * MARGIN <= rest_ns)
			continue;
		if (rs->inflight_bytes || c->now_ns < rs->trial_at_ns)
			late |= 1u << r;
	}
	return late;
}

/* Its trials cost at most a hundredth of the time. */
void slow_given(const struct control *c, struct rail_ctx *rs)
{
	uint64_t piece_ns = (uint64_t)slow_piece_bytes(c, rs) * 1000000000ull / rs->rate;

	rs->trial_at_ns = c->now_ns + RTE_MAX(TRIAL_LEAST_NS, TRIAL_SHARE * piece_ns);
}

/* A weak rail's piece takes as long as a segment of the best one: others can have the rest of its stripe. */
uint32_t slow_piece_bytes(const struct control *c, const struct rail_ctx *rs)
{
	uint64_t bytes = estimate_scale(c, rs, c->config->segment_bytes) / RY_STRIPE_ALIGN_BYTES;

	return RTE_MAX((uint32_t)bytes * RY_STRIPE_ALIGN_BYTES, RY_SEGMENT_MIN_BYTES);
}

void slow_run(struct control *c)
{
	for (uint16_t r = 0; c->config->slow_trip_secs && r < c->n_rails; r++) {
		uint64_t stores = 0;
		bool is_due = false;

		for (uint16_t s = 0; s < c->config->n_stores; s++) {
			if (c->now_ns < trip_at_ns(c, r, s))
				continue;
			is_due = true;
			stores |= (uint64_t)trip(c, r, s) << s;
		}
		if (is_due)
			c->rails[r].slow_since_ns = c->now_ns; /* the same time for what takes its place */
		if (stores)
			tell(c, &c->rails[r], JOURNAL_SLOW_TRIP, c->rails[r].goodput, stores);
	}
}

/* By the pair that carries the rail's data to the store. UINT64_MAX: it is not slow, not connected, or out already. */
static uint64_t trip_at_ns(const struct control *c, uint16_t r, uint16_t store)
{
	const struct rail_health *h = &c->health.breakers;
	const struct peer *p = &c->peers[store];
	uint16_t b;

	if (!c->rails[r].is_slow || !(p->rail_mask >> r & 1))
		return UINT64_MAX;
	b = c->health.conns[p->by_rail[r].pair->idx].breaker;
	if (b == RAIL_MAP_NONE || !rail_health_is_available(h, b))
		return UINT64_MAX;
	return RTE_MAX(c->rails[r].slow_since_ns, h->pairs[b].since_ns) + c->config->slow_trip_secs * 1000000000ull;
}

static bool trip(struct control *c, uint16_t r, uint16_t store)
{
	bool did = false;

	if (!has_another(c, store, r))
		return false;
	for (uint16_t e = 0; e < layout_n_endpoints(c->config, store); e++)
		did |= rail_health_trip(&c->health.breakers, health_breaker(&c->health, store, e, r), c->now_ns);
	stat_add(&c->counters->slow_trips, did);
	return did;
}

void slow_passed(struct control *c, uint16_t breaker)
{
	struct health_name name;

	health_names(&c->health, breaker, &name);
	for (uint16_t e = 0; e < layout_n_endpoints(c->config, name.store_idx); e++)
		rail_health_untrip(
			&c->health.breakers, health_breaker(&c->health, name.store_idx, e, name.rail_idx), c->now_ns);
}

static bool has_another(const struct control *c, uint16_t store, uint16_t r)
{
	return (eligible_rails(c, store) & ~(1u << r)) != 0;
}

uint64_t slow_due_ns(const struct control *c)
{
	uint64_t due = UINT64_MAX;

	for (uint16_t r = 0; c->config->slow_trip_secs && r < c->n_rails; r++) {
		for (uint16_t s = 0; s < c->config->n_stores; s++)
			due = RTE_MIN(due, trip_at_ns(c, r, s));
	}
	return due;
}
