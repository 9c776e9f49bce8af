/* SPDX-License-Identifier: BSD-3-Clause */
/* Segments come back: bytes are counted, stripes become verified, the last one commits; a bad one fails the transfer.
 */
#include "read/control_priv.h"

static void take_back(struct control *c, struct segment *s);
static void unlink_out(struct xfer *x, struct segment *s);
static void release_rail(struct control *c, struct xfer *x, struct segment *s);
static void came_verified(struct control *c, struct xfer *x, struct segment *s);
static void came_landed(struct control *c, struct xfer *x, struct segment *s);
static bool land_part(struct control *c, struct xfer *x, struct segment *s, const struct seg_part *part);
static void stripe_verified(struct control *c, struct xfer *x, struct stripe_state *st);
static void came_bad(struct control *c, struct xfer *x, struct segment *s);
static bool came_corrupt(struct control *c, struct xfer *x, struct segment *s);
static void put_back(struct control *c, struct xfer *x, struct segment *s, uint64_t delay_ns);
static bool refresh(struct control *c, struct xfer *x);
static void fail_by_segment(struct control *c, struct xfer *x, struct segment *s);
static void check_done(struct control *c, struct xfer *x);

unsigned aggregate(struct control *c)
{
	struct segment *segs[CONTROL_BURST];
	unsigned total = 0;

	for (uint16_t r = 0; r < c->n_rails; r++) {
		unsigned n = rail_take_events(c->rails[r].rail, segs, CONTROL_BURST);

		for (unsigned i = 0; i < n; i++)
			take_back(c, segs[i]);
		total += n;
	}
	return total;
}

static void take_back(struct control *c, struct segment *s)
{
	struct xfer *x = s->owner;

	if (unlikely(s->kind == SEG_PROBE)) {
		prober_done(c, s);
		return;
	}
	unlink_out(x, s);
	if (s->kind != SEG_VERIFY) {
		release_rail(c, x, s);
		path_done(c, s);
	}
	x->hashed_bytes += s->hashed_bytes;
	if (x->is_failed) {
		seg_free(c, s);
		xfer_settle(c, x);
		return;
	}
	if (s->kind == SEG_VERIFY)
		came_verified(c, x, s);
	else if (likely(s->status == RY_OK && s->got_generation == x->generation))
		came_landed(c, x, s);
	else
		came_bad(c, x, s);
}

static void unlink_out(struct xfer *x, struct segment *s)
{
	if (s->owner_prev)
		s->owner_prev->owner_next = s->owner_next;
	else
		x->segs = s->owner_next;
	if (s->owner_next)
		s->owner_next->owner_prev = s->owner_prev;
	x->n_out--;
}

/* The one release of what give() charged. */
static void release_rail(struct control *c, struct xfer *x, struct segment *s)
{
	struct rail_ctx *rs = &c->rails[s->rail_idx];
	struct path *path = &c->paths[s->pair_idx];
	struct xfer_rail *xr = &x->rails[s->rail_idx];

	rs->inflight_bytes -= s->len_bytes;
	if (likely(path->epoch == s->owner_aux)) /* else path_down did it */
		room_give_back(rs, path, s->len_bytes);
	if (!--xr->n_out)
		xr->busy_ns += c->now_ns - xr->busy_since_ns;
	if (s->status == RY_OK && s->posted_ns)
		estimate_done(c, rs, s);
}

static void came_landed(struct control *c, struct xfer *x, struct segment *s)
{
	struct xfer_rail *xr = &x->rails[s->rail_idx];
	bool is_kept = false;

	xr->bytes += s->len_bytes;
	xr->n_segments++;
	x->landed_bytes += s->len_bytes;
	x->last_landed_ns = RTE_MAX(x->last_landed_ns, s->landed_ns);
	x->storage_ns += s->storage_ns;
	x->store_queue_ns += s->queue_ns;
	for (unsigned i = 0; i < s->n_parts; i++)
		is_kept |= land_part(c, x, s, &s->parts[i]);
	if (!is_kept)
		seg_free(c, s);
	check_done(c, x);
}

/* true: the segment went out again, as the order to hash what is left of its stripe. */
static bool land_part(struct control *c, struct xfer *x, struct segment *s, const struct seg_part *part)
{
	struct stripe_state *st = xfer_stripe(x, part->stripe_idx);

	st->landed_bytes += part->len_bytes;
	st->carriers |= 1u << s->rail_idx;
	if (st->landed_bytes < xfer_stripe_len(x, part->stripe_idx))
		return false;
	if (!x->want_hash || !st->job || st->job->hashed_bytes == st->job->len_bytes) {
		stripe_verified(c, x, st);
		return false;
	}
	hand_out_verify(c, x, part->stripe_idx, s->rail_idx, s);
	return true;
}

static void stripe_verified(struct control *c, struct xfer *x, struct stripe_state *st)
{
	st->is_verified = 1;
	x->n_verified++;
	x->last_verified_ns = c->now_ns;
	if (st->job)
		job_put(c, st);
	if (unlikely(st->n_wrong))
		failover_verified(c, st);
}

static void came_verified(struct control *c, struct xfer *x, struct segment *s)
{
	if (unlikely(s->status != RY_OK)) {
		came_bad(c, x, s);
		return;
	}
	stripe_verified(c, x, xfer_stripe(x, s->parts[0].stripe_idx));
	seg_free(c, s);
	check_done(c, x);
}

/* Phase two: every message DONE, bytes and count as planned, every checksum and generation right. Only now is anything
 * published. */
static void check_done(struct control *c, struct xfer *x)
{
	if (x->n_verified != x->n_stripes || x->n_out || x->landed_bytes != x->total_bytes)
		return;
	if (x->kind == XFER_READ)
		commit_read(c, x);
	else
		put_serve_landed(c, x);
}

static void came_bad(struct control *c, struct xfer *x, struct segment *s)
{
	if (s->status == RY_OK) {
		s->status = RY_ERR_STALE_GENERATION;
		breach_note(c, x->peer_idx, s->rail_idx, BREACH_GENERATION);
	} else if (s->status == RY_ERR_INCOMPLETE) {
		breach_note(c, x->peer_idx, s->rail_idx, BREACH_BYTES);
	} else if (s->status == RY_ERR_CHECKSUM) {
		breach_note(c, x->peer_idx, s->rail_idx, BREACH_CHECKSUM);
	}
	if (s->status == RY_ERR_RAIL)
		path_broken(c, s); /* out of plans at once; conn's PAIR_DOWN follows */
	if (s->is_busy) {
		put_back(c, x, s, (uint64_t)s->retry_us * 1000);
		return;
	}
	/* Lost with its rail, or cancelled by its own deadline: its window is closed, it may go out again elsewhere. */
	if (x->is_failover && (s->status == RY_ERR_RAIL || (s->is_expired && s->status == RY_ERR_CANCELLED))) {
		put_back(c, x, s, 0);
		return;
	}
	if (s->status == RY_ERR_CHECKSUM && came_corrupt(c, x, s))
		return;
	if (s->status == RY_ERR_STALE_GENERATION && x->kind == XFER_READ && (s->is_start || !x->landed_bytes) &&
		refresh(c, x)) {
		seg_free(c, s); /* x was settled by its failure, or will be by those that are still out */
		return;
	}
	fail_by_segment(c, x, s);
}

/* Every stripe in front of the bad one was hashed and is right; those behind it were not looked at. */
static bool came_corrupt(struct control *c, struct xfer *x, struct segment *s)
{
	unsigned bad = s->job ? 0 : s->bad_part;

	if (!failover_reread(c, x, s->parts[bad].stripe_idx, s->rail_idx))
		return false;
	for (unsigned i = 0; i < bad; i++) {
		x->landed_bytes += s->parts[i].len_bytes;
		land_part(c, x, s, &s->parts[i]);
	}
	for (unsigned i = bad + 1; i < s->n_parts; i++)
		failover_read_again(c, x, s->parts[i].stripe_idx);
	seg_free(c, s);
	return true;
}

/* As fresh as from the plan: what the last rail wrote into it must not be taken for the next one's. */
static void put_back(struct control *c, struct xfer *x, struct segment *s, uint64_t delay_ns)
{
	s->owner_next = x->orphans;
	s->owner_prev = NULL;
	x->orphans = s;
	x->orphans_at_ns = RTE_MAX(x->orphans_at_ns, c->now_ns + delay_ns);
	x->n_segments--;
	s->is_expired = s->is_silent = s->is_cancel_sent = 0;
	s->posted_ns = s->landed_ns = s->cancelled_ns = 0; /* it was never hashed */
	xfer_activate(c, x);
}

/* A cached descriptor was out of date and no data has moved: look it up once more. The transfer becomes a zombie
 * without an owner. */
static bool refresh(struct control *c, struct xfer *x)
{
	struct op *op = x->owner;

	if (!op || !op->was_cached || op->is_refreshed)
		return false;
	op->is_refreshed = true;
	op->was_cached = false;
	op->length = op->asked_length; /* the end may be elsewhere now */
	op->xfer = NULL;
	x->owner = NULL;
	xfer_fail(c, x, RY_ERR_STALE_GENERATION, RY_RAIL_NONE, NULL);
	lookup_drop(c, op->hash);
	desc_put(c, op->desc);
	op->desc = NULL;
	lookup_start(c, op);
	return true;
}

static void fail_by_segment(struct control *c, struct xfer *x, struct segment *s)
{
	const struct seg_part *part = &s->parts[s->bad_part < s->n_parts ? s->bad_part : 0];
	char cause[RY_CAUSE_MAX_BYTES];
	uint32_t status = s->status;
	uint16_t rail = s->rail_idx;

	snprintf(cause, sizeof(cause), "rail %s: stripe %u offset %u: %s", c->config->rails[rail].name,
		part->stripe_idx, part->offset, ry_status_text((enum ry_status)status));
	if (status == RY_ERR_CHECKSUM && __builtin_popcount(xfer_stripe(x, part->stripe_idx)->refused) > 1) {
		failover_explain_wrong(c, x, part->stripe_idx, cause, sizeof(cause));
		rail = RY_RAIL_NONE;
	}
	seg_free(c, s);
	xfer_fail(c, x, status, rail, cause);
}
