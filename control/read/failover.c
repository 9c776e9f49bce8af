/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What goes out again over other rails: the plan of a transfer that lost rails, and stripes that arrived wrong.
 *
 * A wrong stripe is read again as a whole, all of its bytes over one rail that did not bring it wrong, with a new hash.
 * A rail is blamed when it alone reproduces the fault: what it alone brought is wrong for a second time (in this
 * stripe, or in another one not long ago) and right over another rail. The first time nobody can be told from a stray
 * bit. Wrong over two rails, each alone: it is the object, and the read fails.
 */
#include "read/control_priv.h"

#define WRONG_MOST 3u /* split over several rails, then each of two alone */
#define REPRODUCED_WITHIN_NS 600000000000ull
#define DOUBT_FENCES 4u /* how long a transfer waits for a verdict: suspicion, fence, PING, and as much again */

static bool may_wait(const struct control *c, struct xfer *x);
static bool has_drained(const struct control *c, const struct xfer *x, uint32_t eligible);
static void widen(struct xfer *x, uint32_t eligible);
static void redeal_orphans(struct xfer *x);
static void choose_stripe(struct xfer *x);
static uint32_t usable_for(const struct stripe_state *st, uint32_t eligible);
static bool may_reread(const struct control *c, const struct xfer *x, const struct stripe_state *st);

bool failover_can_go_on(struct control *c, struct xfer *x, uint32_t eligible)
{
	bool has_work = x->plan.unissued_bytes || x->orphans;

	eligible &= x->reach_mask;
	/* Without failover a round-robin deal is kept: a rail that was dealt stripes and is gone fails the read. One
	 * that the operator drains is not gone: what it has not begun goes over others. */
	if (!x->is_failover) {
		if (x->n_out)
			return true; /* they come back, with a better cause if it is one */
		if (unlikely(x->plan.rail_mask & ~eligible) && has_drained(c, x, eligible))
			widen(x, eligible);
		return (eligible & x->plan.rail_mask) && (!x->plan.rr_rail || !(x->plan.rail_mask & ~eligible));
	}
	widen(x, eligible);
	if (x->n_rereads) {
		if (x->reread_stripe == PLAN_STRIPE_NONE)
			choose_stripe(x);
		if (!usable_for(xfer_stripe(x, x->reread_stripe), eligible))
			return x->n_out || may_wait(c, x);
	}
	if (eligible & x->plan.rail_mask)
		x->doubt_since_ns = 0;
	/* Those that are out may be on a rail that is only suspected: their return, at the latest after the fence,
	 * tells. */
	return !has_work || (eligible & x->plan.rail_mask) || x->n_out || may_wait(c, x);
}

/* Nothing is out, no rail may take anything: a while, if one of them has not been judged yet. */
static bool may_wait(const struct control *c, struct xfer *x)
{
	if (!x->doubt_since_ns)
		x->doubt_since_ns = c->now_ns;
	return c->now_ns - x->doubt_since_ns < DOUBT_FENCES * c->config->fence_timeout_ns &&
	       failover_in_doubt(c, x->peer_idx, x->reach_mask);
}

uint32_t failover_in_doubt(const struct control *c, uint16_t peer_idx, uint32_t reach_mask)
{
	const struct peer *p = &c->peers[peer_idx];
	uint32_t doubt = 0;

	for (uint32_t left = p->rail_mask & reach_mask; left; left &= left - 1) {
		unsigned r = (unsigned)__builtin_ctz(left);

		if (!c->rails[r].is_draining && health_is_closed(&c->health, p->by_rail[r].pair->idx))
			doubt |= 1u << r;
	}
	return doubt;
}

/* Whether the rails that it may not use now are all drained ones. */
static bool has_drained(const struct control *c, const struct xfer *x, uint32_t eligible)
{
	uint32_t left = x->plan.rail_mask & ~eligible;

	while (left && c->rails[__builtin_ctz(left)].is_draining)
		left &= left - 1;
	return !left;
}

/* A read on one rail moves to one other. */
static void widen(struct xfer *x, uint32_t eligible)
{
	uint32_t left = eligible & x->plan.rail_mask;

	if (!eligible)
		return;
	if (!left)
		left = x->is_one_rail ? eligible & -eligible : eligible;
	if (!x->plan.rr_rail) {
		if (!(eligible & x->plan.rail_mask))
			x->plan.rail_mask = left;
		return;
	}
	if (left != x->plan.rail_mask)
		plan_redeal(&x->plan, left);
	redeal_orphans(x);
}

/* Round robin gives a segment that came back to the rail it was dealt to, while that is left; else the others take
 * turns. */
static void redeal_orphans(struct xfer *x)
{
	uint32_t turn = x->plan.rail_mask;

	for (struct segment *s = x->orphans; s; s = s->owner_next) {
		if (x->plan.rail_mask >> s->rail_idx & 1)
			continue;
		s->rail_idx = (uint16_t)__builtin_ctz(turn);
		turn &= turn - 1;
		turn = turn ? turn : x->plan.rail_mask;
	}
}

/* ---- Stripes that arrived wrong ---- */

bool failover_reread(struct control *c, struct xfer *x, uint32_t stripe, uint16_t rail)
{
	struct stripe_state *st = xfer_stripe(x, stripe);

	st->carriers |= 1u << rail;
	st->n_wrong++;
	if (!(st->carriers & (st->carriers - 1)))
		st->refused |= st->carriers;
	if (!may_reread(c, x, st)) {
		if (x->is_failover)
			stat_add(&c->counters->corrupt_undetermined, 1);
		return false;
	}
	failover_read_again(c, x, stripe);
	return true;
}

static bool may_reread(const struct control *c, const struct xfer *x, const struct stripe_state *st)
{
	return x->is_failover && st->n_wrong < WRONG_MOST && __builtin_popcount(st->refused) < 2 &&
	       usable_for(st, eligible_rails(c, x->peer_idx) & x->reach_mask);
}

void failover_read_again(struct control *c, struct xfer *x, uint32_t stripe)
{
	struct stripe_state *st = xfer_stripe(x, stripe);

	x->landed_bytes -= st->landed_bytes;
	st->landed_bytes = 0;
	st->shared = st->carriers;
	st->carriers = 0;
	st->want_reread = 1;
	if (st->job)
		job_put(c, st);
	if (!x->n_rereads++)
		x->reread_stripe = PLAN_STRIPE_NONE;
	stat_add(&c->counters->stripes_reread, 1);
	xfer_activate(c, x);
}

/* Rails that had no part in what was wrong come first. */
static uint32_t usable_for(const struct stripe_state *st, uint32_t eligible)
{
	uint32_t usable = eligible & ~st->refused;

	return usable & ~st->shared ? usable & ~st->shared : usable;
}

static void choose_stripe(struct xfer *x)
{
	uint32_t i = 0;

	while (!x->stripes[i].want_reread)
		i++;
	x->reread_stripe = x->plan.first_stripe + i;
	x->reread_off = 0;
	x->reread_rail = RY_RAIL_NONE;
}

bool failover_next(struct xfer *x, uint16_t r, uint32_t eligible, struct plan_piece *p)
{
	struct stripe_state *st;
	uint64_t left;

	eligible &= x->reach_mask;
	if (x->reread_stripe == PLAN_STRIPE_NONE)
		choose_stripe(x);
	st = xfer_stripe(x, x->reread_stripe);
	if (x->reread_rail == RY_RAIL_NONE || !(eligible >> x->reread_rail & 1)) {
		if (!(usable_for(st, eligible) >> r & 1))
			return false;
		x->reread_rail = r;
	}
	if (r != x->reread_rail)
		return false;
	left = xfer_stripe_len(x, x->reread_stripe) - x->reread_off;
	*p = (struct plan_piece){.stripe = x->reread_stripe,
		.off = x->reread_off,
		.len_bytes = (uint32_t)RTE_MIN(left, x->plan.segment_bytes),
		.n_stripes = 1};
	x->reread_off += p->len_bytes;
	if (p->len_bytes == left) {
		st->want_reread = 0;
		x->n_rereads--;
		x->reread_stripe = PLAN_STRIPE_NONE;
	}
	return true;
}

void failover_verified(struct control *c, const struct stripe_state *st)
{
	struct rail_ctx *rs;
	bool is_reproduced;

	if (!st->n_wrong)
		return;
	if (!st->refused) {
		stat_add(&c->counters->corrupt_undetermined, 1);
		return;
	}
	rs = &c->rails[__builtin_ctz(st->refused)];
	is_reproduced = st->n_wrong > 1 || (rs->corrupt_at_ns && c->now_ns - rs->corrupt_at_ns <= REPRODUCED_WITHIN_NS);
	rs->corrupt_at_ns = c->now_ns;
	rs->corrupt_blamed += is_reproduced;
	stat_add(is_reproduced ? &c->counters->corrupt_blamed : &c->counters->corrupt_undetermined, 1);
}

void failover_explain_wrong(
	const struct control *c, const struct xfer *x, uint32_t stripe, char *cause, uint32_t cause_bytes)
{
	uint32_t refused = xfer_stripe(x, stripe)->refused;
	int a = __builtin_ctz(refused), b = __builtin_ctz(refused & (refused - 1));

	snprintf(cause, cause_bytes,
		"stripe %u of the object is wrong over rail %s and over rail %s: its store holds it damaged, put it "
		"again",
		stripe, c->config->rails[a].name, c->config->rails[b].name);
}
