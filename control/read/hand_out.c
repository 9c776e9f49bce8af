/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Hand-out: a rail with room takes the next piece of some transfer. The rail's budget is charged here and released in
 * aggregate.c, once per segment. Transfers take turns, a segment each.
 */
#include "read/control_priv.h"

#define QUEUED_LOOKS 4u
#define DEALT_TEXT "; without failover a transfer keeps to the rails that it was dealt"

static bool is_tail(struct control *c);
static unsigned feed_tail(struct control *c);
static unsigned feed_round(struct control *c);
static inline bool has_room(const struct control *c, const struct peer *p, uint16_t r);
static bool feed_rail(struct control *c, uint16_t r);
static struct segment *next_segment(struct control *c, struct xfer *x, uint16_t r, uint32_t eligible);
static struct segment *from_orphans(struct xfer *x, uint16_t r);
static struct segment *from_plan(struct control *c, struct xfer *x, uint16_t r, uint32_t eligible);
static uint64_t queued_bytes(struct control *c, const struct xfer *x, uint32_t eligible);
static struct segment *make_segment(struct control *c, struct xfer *x, uint16_t r, const struct plan_piece *p);
static void cut_at_gap(struct xfer *x, struct plan_piece *p);
static void fill_parts(struct xfer *x, struct segment *s, const struct plan_piece *p);
static bool attach_job(struct control *c, struct xfer *x, struct segment *s, uint16_t r);
static void give(struct control *c, struct xfer *x, struct segment *s, uint16_t r);
static void check_stuck(struct control *c);
static uint32_t in_time(struct control *c, const struct xfer *x);
static uint32_t eligible_now(struct control *c, uint16_t peer_idx);

unsigned hand_out(struct control *c)
{
	unsigned n = 0, fed;
	uint64_t start_ns;
	struct xfer *first;

	if (TAILQ_EMPTY(&c->active))
		return 0;
	c->turn++;
	check_stuck(c);
	first = TAILQ_FIRST(&c->active);
	if (!first)
		return 0;
	start_ns = clock_ns();
	while (n < SEGMENTS_MAX && (fed = is_tail(c) ? feed_tail(c) : feed_round(c)) > 0)
		n += fed;
	c->first_rail = (uint16_t)((c->first_rail + 1) % c->n_rails);
	if (n)
		first->plan_ns += clock_ns() - start_ns; /* one sample a turn, charged to the oldest transfer */
	stat_add(&c->counters->segments_handed, n);
	return n;
}

/*
 * The end of the only transfer: as soon as a rail that is filled up now would still be busy when the others have shared
 * out the rest. A slow rail's full depth lasts longest, so the more the rails differ, the earlier.
 */
static bool is_tail(struct control *c)
{
	const struct xfer *x = TAILQ_FIRST(&c->active);
	double all = 0, longest_s = 0;

	if (!x || TAILQ_NEXT(x, work) || x->orphans || x->n_rereads || x->plan.rr_rail)
		return false;
	for (uint16_t r = 0; r < c->n_rails; r++) {
		double rate = (double)c->rails[r].rate;

		if (!(x->plan.rail_mask >> r & 1))
			continue;
		all += rate;
		longest_s = RTE_MAX(
			longest_s, (double)(c->rails[r].depth_bytes + slow_piece_bytes(c, &c->rails[r])) / rate);
	}
	return (double)x->plan.unissued_bytes < longest_s * all;
}

/*
 * Depths differ from rail to rail; a rail that may hold more would finish later by the difference. So here only the one
 * that would be finished first takes; the others where it cannot, because what is left is theirs.
 */
static unsigned feed_tail(struct control *c)
{
	const struct xfer *x = TAILQ_FIRST(&c->active);
	const struct peer *peer = &c->peers[x->peer_idx];
	uint32_t eligible = in_time(c, x);
	uint64_t least_ns = UINT64_MAX;
	uint16_t least = 0;

	for (uint16_t r = 0; r < c->n_rails; r++) {
		uint64_t ns = hand_out_drain_ns(c, r);

		/* Of two that seem to be drained, which is an estimate, the one that truly has room. */
		if (!(eligible >> r & 1) || ns > least_ns || (ns == least_ns && !has_room(c, peer, r)))
			continue;
		least = r;
		least_ns = ns;
	}
	if (least_ns == UINT64_MAX || !has_room(c, peer, least))
		return 0;
	return feed_rail(c, least) ? 1 : feed_round(c);
}

/*
 * What is in flight counts until its segment is back, but a part of the oldest one has arrived meanwhile.
 */
uint64_t hand_out_drain_ns(const struct control *c, uint16_t r)
{
	const struct rail_ctx *rs = &c->rails[r];
	uint64_t gone_ns = c->now_ns - RTE_MIN(rs->landed_ns, c->now_ns), all_ns;

	all_ns = (uint64_t)((double)rs->inflight_bytes / (double)rs->rate * 1e9);
	return all_ns - RTE_MIN(all_ns, gone_ns);
}

/* One segment for each rail with room: a small object, too, is spread over the rails instead of filling the first. */
static unsigned feed_round(struct control *c)
{
	unsigned n = 0;

	for (uint16_t i = 0; i < c->n_rails; i++) {
		uint16_t r = (uint16_t)((c->first_rail + i) % c->n_rails);

		n += (room_is_free(&c->rails[r]) || room_anyone(c, r)) && feed_rail(c, r);
	}
	return n;
}

static inline bool has_room(const struct control *c, const struct peer *p, uint16_t r)
{
	return likely(room_is_free(&c->rails[r])) || room_by_share(c, p, r);
}

static bool feed_rail(struct control *c, uint16_t r)
{
	struct xfer *x;

	if (!c->n_segs_free)
		return false;
	TAILQ_FOREACH (x, &c->active, work) {
		uint32_t eligible = in_time(c, x);
		struct segment *s = NULL;

		if ((eligible >> r & 1) && has_room(c, &c->peers[x->peer_idx], r))
			s = next_segment(c, x, r, eligible);
		if (!s)
			continue;
		give(c, x, s, r);
		if (x->plan.unissued_bytes || x->orphans || x->n_rereads) {
			TAILQ_REMOVE(&c->active, x, work);
			TAILQ_INSERT_TAIL(&c->active, x, work);
		} else {
			xfer_deactivate(c, x);
		}
		return true;
	}
	return false;
}

static struct segment *next_segment(struct control *c, struct xfer *x, uint16_t r, uint32_t eligible)
{
	struct segment *s = NULL;
	struct plan_piece p;

	if (unlikely(x->orphans) && c->now_ns >= x->orphans_at_ns && (x->plan.rail_mask >> r & 1))
		s = from_orphans(x, r);
	if (s)
		return s;
	if (unlikely(x->n_rereads) && (c->n_jobs_free || x->reread_off) && failover_next(x, r, eligible, &p))
		return make_segment(c, x, r, &p);
	/* Without a record for one more stripe, those that are started go on and give theirs back. */
	if (unlikely(!c->n_jobs_free) && !plan_has_started(&x->plan, r))
		return NULL;
	return from_plan(c, x, r, eligible);
}

/* A segment that came back without harm (BUSY), or whose rail was lost and whose window is closed (failover). Round
 * robin keeps it on its rail. */
static struct segment *from_orphans(struct xfer *x, uint16_t r)
{
	struct segment **at = &x->orphans, *s;

	while (x->plan.rr_rail && *at && (*at)->rail_idx != r)
		at = &(*at)->owner_next;
	s = *at;
	if (s)
		*at = s->owner_next;
	return s;
}

static struct segment *from_plan(struct control *c, struct xfer *x, uint16_t r, uint32_t eligible)
{
	struct plan_piece p;

	x->plan.queued_bytes = queued_bytes(c, x, eligible);
	if (!(unlikely(c->rails[r].is_weak)
			    ? plan_next_small(&x->plan, r, eligible, slow_piece_bytes(c, &c->rails[r]), &p)
			    : plan_next(&x->plan, r, eligible, &p)))
		return NULL;
	if (p.n_stripes > 1)
		cut_at_gap(x, &p);
	return make_segment(c, x, r, &p);
}

/* What others that can use the same rails now still have to hand out; a few of them say enough. */
static uint64_t queued_bytes(struct control *c, const struct xfer *x, uint32_t eligible)
{
	const struct xfer *y = TAILQ_FIRST(&c->active);
	uint64_t sum = 0;

	eligible &= x->plan.rail_mask;
	for (uint32_t i = 0; y && i < QUEUED_LOOKS; i++, y = TAILQ_NEXT(y, work))
		sum += y != x && !(eligible & ~in_time(c, y)) ? y->plan.unissued_bytes : 0;
	return sum;
}

static struct segment *make_segment(struct control *c, struct xfer *x, uint16_t r, const struct plan_piece *p)
{
	struct segment *s = c->free_segs;

	c->free_segs = s->owner_next;
	c->n_segs_free--;
	/* All but the parts, which are a third of it and filled as far as they are counted. */
	memset(s, 0, offsetof(struct segment, parts));
	memset(&s->owner_next, 0, sizeof(*s) - offsetof(struct segment, owner_next));
	s->kind = x->kind == XFER_PULL ? SEG_PULL : SEG_READ;
	s->len_bytes = p->len_bytes;
	s->dst = xfer_stripe_addr(x, p->stripe) + p->off;
	s->region = x->region;
	s->want_hash = x->want_hash;
	s->is_start = x->kind == XFER_READ && !x->n_segments;
	s->handle = x->handle;
	s->generation = x->generation;
	s->deadline_ns = x->deadline_ns;
	s->owner = x;
	fill_parts(x, s, p);
	if (p->is_split)
		stat_add(&c->counters->stripes_split, 1);
	if (s->want_hash && !s->parts[0].is_whole)
		attach_job(c, x, s, r);
	return s;
}

/* One window covers a message's stripes, so they must follow each other in memory: not so where a lease has several
 * extents, or a store's object lies scattered. */
static void cut_at_gap(struct xfer *x, struct plan_piece *p)
{
	uint8_t *end = xfer_stripe_addr(x, p->stripe);

	for (uint32_t i = 1; i < p->n_stripes; i++) {
		end += x->plan.stripe_bytes;
		if (xfer_stripe_addr(x, p->stripe + i) != end) {
			plan_cut(&x->plan, p, i);
			return;
		}
	}
}

static void fill_parts(struct xfer *x, struct segment *s, const struct plan_piece *p)
{
	uint32_t left = p->len_bytes;

	s->n_parts = (uint8_t)p->n_stripes;
	for (uint32_t i = 0; i < p->n_stripes; i++) {
		uint32_t stripe = p->stripe + i;
		uint64_t whole = xfer_stripe_len(x, stripe);
		uint32_t len = p->n_stripes > 1 ? (uint32_t)whole : left;

		s->parts[i] = (struct seg_part){
			.stripe_idx = stripe,
			.offset = p->off,
			.len_bytes = len,
			.is_whole = len == whole,
			.checksum = x->want_hash ? xfer_checksum(x, stripe) : 0,
		};
		left -= len;
	}
}

/* The first segment of a stripe makes its job; the rail that takes it owns the hash. */
static bool attach_job(struct control *c, struct xfer *x, struct segment *s, uint16_t r)
{
	struct stripe_state *st = xfer_stripe(x, s->parts[0].stripe_idx);
	struct stripe_job *j = st->job;

	if (!j) {
		j = c->free_jobs;
		c->free_jobs = j->next;
		c->n_jobs_free--;
		j->base = xfer_stripe_addr(x, s->parts[0].stripe_idx);
		j->len_bytes = xfer_stripe_len(x, s->parts[0].stripe_idx);
		j->checksum = s->parts[0].checksum;
		j->owner_rail = r;
		j->hashed_bytes = 0;
		st->job = j;
	}
	s->job = j;
	return true;
}

static void give(struct control *c, struct xfer *x, struct segment *s, uint16_t r)
{
	const struct pair *pair = c->peers[x->peer_idx].by_rail[r].pair;
	struct rail_ctx *rs = &c->rails[r];
	struct xfer_rail *xr = &x->rails[r];

	s->rail_idx = r;
	s->pair_idx = pair->idx;
	/* Rails take turns in the stripes: neighbours of one rail, which are n_planned apart, go to its next QP. */
	s->qp = pair->qps[s->parts[0].stripe_idx / x->n_planned % pair->n_qps];
	s->owner_aux = pair->epoch;
	s->cancel_want = 0;
	s->is_busy = 0;
	s->status = RY_OK;
	s->owner_prev = NULL;
	s->owner_next = x->segs;
	if (x->segs)
		x->segs->owner_prev = s;
	x->segs = s;
	x->n_out++;
	x->n_segments++;
	if (!x->first_out_ns)
		x->first_out_ns = c->now_ns;
	if (!xr->n_out++)
		xr->busy_since_ns = c->now_ns;
	if (!rs->inflight_bytes)
		estimate_restart(c, rs);
	rs->inflight_bytes += s->len_bytes;
	room_take(rs, &c->paths[s->pair_idx], s->len_bytes);
	s->owner_ahead_kib = (uint32_t)RTE_MIN(rs->inflight_bytes >> 10, UINT32_MAX);
	if (unlikely(rs->is_weak))
		slow_given(c, rs);
	rs->want_kick = true;
	/* Room for every segment there is: depth limits what a rail holds (checked at create). */
	RTE_VERIFY(rail_hand_out(rs->rail, s));
}

void hand_out_verify(struct control *c, struct xfer *x, uint32_t stripe, uint16_t rail, struct segment *s)
{
	s->kind = SEG_VERIFY;
	s->rail_idx = rail;
	s->job = xfer_stripe(x, stripe)->job;
	s->hash_off = 0;
	s->hashed_bytes = 0;
	s->status = RY_OK;
	s->owner_prev = NULL;
	s->owner_next = x->segs;
	if (x->segs)
		x->segs->owner_prev = s;
	x->segs = s;
	x->n_out++;
	c->rails[rail].want_kick = true;
	RTE_VERIFY(rail_hand_out(c->rails[rail].rail, s));
}

void seg_free(struct control *c, struct segment *s)
{
	s->owner_next = c->free_segs;
	c->free_segs = s;
	c->n_segs_free++;
}

void job_put(struct control *c, struct stripe_state *st)
{
	st->job->next = c->free_jobs;
	c->free_jobs = st->job;
	st->job = NULL;
	c->n_jobs_free++;
}

/* A transfer that no rail may serve would wait for ever. */
static void check_stuck(struct control *c)
{
	char cause[RY_CAUSE_MAX_BYTES];
	struct xfer *x, *next;

	for (x = TAILQ_FIRST(&c->active); x; x = next) {
		next = TAILQ_NEXT(x, work);
		if (likely(failover_can_go_on(c, x, eligible_now(c, x->peer_idx))))
			continue;
		path_explain(c, x->peer_idx, x->reach_mask, cause, sizeof(cause));
		if (!x->is_failover && strlen(cause) + sizeof(DEALT_TEXT) <= sizeof(cause))
			strcat(cause, DEALT_TEXT); /* the others may well be up */
		xfer_fail(c, x, RY_ERR_NO_RAIL, RY_RAIL_NONE, cause);
		next = TAILQ_FIRST(&c->active); /* the list may have changed in any way */
	}
}

/* The rails that may carry this transfer and will not keep it waiting. */
static uint32_t in_time(struct control *c, const struct xfer *x)
{
	uint32_t eligible = eligible_now(c, x->peer_idx) & x->plan.rail_mask;

	return likely(!(eligible & c->weak_mask)) ? eligible : eligible & ~slow_late(c, x, eligible);
}

/* Health does not change while control hands out: one answer a turn and peer. */
static uint32_t eligible_now(struct control *c, uint16_t peer_idx)
{
	struct peer *p = &c->peers[peer_idx];

	if (p->eligible_turn != c->turn) {
		p->eligible_turn = c->turn;
		p->eligible = eligible_rails(c, peer_idx);
	}
	return p->eligible;
}

uint32_t eligible_rails(const struct control *c, uint16_t peer_idx)
{
	const struct peer *p = &c->peers[peer_idx];
	uint32_t mask = p->rail_mask, eligible = 0;

	while (mask) {
		int r = __builtin_ctz(mask);

		mask &= mask - 1;
		if (path_is_eligible(c, &p->by_rail[r]))
			eligible |= 1u << r;
	}
	return eligible;
}

void hand_out_kick(struct control *c)
{
	for (uint16_t r = 0; r < c->n_rails; r++) {
		struct rail_ctx *rs = &c->rails[r];

		if (rs->want_cancel_scan)
			rail_cancel_scan(rs->rail);
		else if (rs->want_kick)
			rail_kick(rs->rail);
		rs->want_cancel_scan = rs->want_kick = false;
	}
}
