/* SPDX-License-Identifier: BSD-3-Clause */
/* Transfers: their tables, their end, and the memory that waits for the last segment. */
#include "read/control_priv.h"

static void tell_owner(struct control *c, struct xfer *x, uint32_t status, uint16_t rail, const char *cause);
static void drop_orphans(struct control *c, struct xfer *x);
static void cancel_out(struct control *c, struct xfer *x);
static void free_stripes(struct control *c, struct xfer *x);

struct xfer *xfer_alloc(struct control *c)
{
	struct xfer *x = TAILQ_FIRST(&c->free_xfers);

	if (!x)
		return NULL;
	TAILQ_REMOVE(&c->free_xfers, x, link);
	memset(x, 0, sizeof(*x));
	x->bad_rail = RY_RAIL_NONE;
	x->reread_stripe = PLAN_STRIPE_NONE;
	TAILQ_INSERT_TAIL(&c->used_xfers, x, link);
	return x;
}

bool xfer_prepare(struct control *c, struct xfer *x, uint64_t size_bytes, uint32_t stripe_bytes, uint32_t first_stripe,
	uint32_t n_stripes, uint32_t rail_mask)
{
	x->stripes = meta_alloc(c, n_stripes * sizeof(*x->stripes), &x->stripes_off);
	if (!x->stripes)
		return false;
	memset(x->stripes, 0, n_stripes * sizeof(*x->stripes));
	x->n_stripes = n_stripes;
	x->n_planned = (uint32_t)__builtin_popcount(rail_mask);
	plan_init(&x->plan, size_bytes, stripe_bytes, first_stripe, n_stripes, c->config->segment_bytes, rail_mask);
	if (c->config->policy != POLICY_ROUND_ROBIN)
		return true;
	x->rr_rail = meta_alloc(c, n_stripes, &x->rr_off);
	if (!x->rr_rail) {
		free_stripes(c, x);
		return false;
	}
	plan_deal_round_robin(&x->plan, NULL, x->rr_rail);
	return true;
}

static void free_stripes(struct control *c, struct xfer *x)
{
	for (uint32_t i = 0; x->stripes && i < x->n_stripes; i++) {
		if (x->stripes[i].job)
			job_put(c, &x->stripes[i]);
	}
	if (x->stripes)
		meta_free(c, x->stripes_off, x->n_stripes * sizeof(*x->stripes));
	if (x->rr_rail)
		meta_free(c, x->rr_off, x->n_stripes);
	x->stripes = NULL;
	x->rr_rail = NULL;
}

void xfer_activate(struct control *c, struct xfer *x)
{
	if (x->is_active)
		return;
	TAILQ_INSERT_TAIL(&c->active, x, work);
	x->is_active = true;
	if (!c->peers[x->peer_idx].n_active++)
		TAILQ_INSERT_TAIL(&c->active_peers, &c->peers[x->peer_idx], active);
}

void xfer_deactivate(struct control *c, struct xfer *x)
{
	if (!x->is_active)
		return;
	TAILQ_REMOVE(&c->active, x, work);
	x->is_active = false;
	if (!--c->peers[x->peer_idx].n_active)
		TAILQ_REMOVE(&c->active_peers, &c->peers[x->peer_idx], active);
}

uint64_t xfer_stripe_len(const struct xfer *x, uint32_t stripe)
{
	return plan_stripe_len(x->plan.size_bytes, x->plan.stripe_bytes, stripe);
}

uint8_t *xfer_stripe_addr(const struct xfer *x, uint32_t stripe)
{
	uint64_t off = (uint64_t)(stripe - x->plan.first_stripe) * x->plan.stripe_bytes;

	if (x->kind == XFER_PULL)
		return x->object->stripe_addr[stripe];
	for (uint32_t i = 0; i < x->n_extents; i++) {
		if (off < x->extents[i].bytes)
			return x->cs->client->read_arena.base + x->extents[i].offset + off;
		off -= x->extents[i].bytes;
	}
	return NULL; /* not reached: the extents cover the plan */
}

uint64_t xfer_checksum(const struct xfer *x, uint32_t stripe)
{
	return x->kind == XFER_PULL ? x->object->checksums[stripe] : x->desc->checksums[stripe];
}

void xfer_fail(struct control *c, struct xfer *x, uint32_t status, uint16_t rail, const char *cause)
{
	if (x->is_failed)
		return;
	x->is_failed = true;
	x->status = status;
	x->bad_rail = rail;
	xfer_deactivate(c, x);
	drop_orphans(c, x);
	cancel_out(c, x);
	if (x->kind == XFER_READ)
		stat_add(&c->counters->quarantined_bytes, x->total_bytes);
	tell_owner(c, x, status, rail, cause);
	xfer_settle(c, x);
}

static void tell_owner(struct control *c, struct xfer *x, uint32_t status, uint16_t rail, const char *cause)
{
	struct op *op = x->owner;

	if (x->kind == XFER_PULL) {
		put_serve_failed(c, x, status, cause);
		x->owner = NULL;
		return;
	}
	if (!op)
		return;
	x->owner = NULL;
	op_fail(c, op, status, rail, cause); /* op->xfer stays: how far it came is reported */
}

static void drop_orphans(struct control *c, struct xfer *x)
{
	struct segment *s;

	while ((s = x->orphans) != NULL) {
		x->orphans = s->owner_next;
		seg_free(c, s);
	}
}

/* Their rails send CANCEL, or fence them after fence_timeout; either way each comes back. */
static void cancel_out(struct control *c, struct xfer *x)
{
	for (struct segment *s = x->segs; s; s = s->owner_next) {
		if (s->kind == SEG_VERIFY)
			continue;
		/* Relaxed: ordered by the release in rail_cancel_scan, whose epoch makes the rail look. */
		__atomic_store_n(&s->cancel_want, 1, __ATOMIC_RELAXED);
		c->rails[s->rail_idx].want_cancel_scan = true;
	}
}

void xfer_settle(struct control *c, struct xfer *x)
{
	if (!x->is_failed || x->n_out)
		return;
	if (x->kind == XFER_READ)
		stat_sub(&c->counters->quarantined_bytes, x->total_bytes);
	if (x->kind == XFER_PULL)
		put_serve_settled(c, x);
	xfer_free(c, x);
}

void xfer_free(struct control *c, struct xfer *x)
{
	RTE_ASSERT(!x->n_out && !x->owner);
	xfer_deactivate(c, x);
	drop_orphans(c, x);
	free_stripes(c, x);
	admit_release(c, x);
	if (x->kind == XFER_READ) {
		lease_free_extents(x->cs, x->extents, x->n_extents);
		x->cs->n_xfers--;
	}
	if (x->desc)
		desc_put(c, x->desc);
	TAILQ_REMOVE(&c->used_xfers, x, link);
	TAILQ_INSERT_HEAD(&c->free_xfers, x, link);
}
