/* SPDX-License-Identifier: BSD-3-Clause */
/* From a descriptor to a transfer: range, budget, arena memory, plan. */
#include "read/control_priv.h"

static bool check_range(struct control *c, struct op *op);
static bool wants_failover(const struct control *c, const struct op *op);
static void finish_empty(struct control *c, struct op *op);
static uint32_t choose_rails(struct control *c, const struct op *op, uint64_t bytes, uint32_t eligible);
static uint32_t near_rails(const struct control *c, int numa_node, uint32_t eligible);
static uint16_t least_loaded(struct control *c, uint32_t rails);
static uint64_t stripes_bytes(const struct desc *d, uint32_t first, uint32_t n);
static bool get_memory(struct control *c, struct op *op, struct xfer *x);

void read_described(struct control *c, struct op *op)
{
	struct desc *d = op->desc;
	uint32_t reach, first, n, rails, status;
	struct xfer *x;

	if (!check_range(c, op))
		return;
	if (!op->length) {
		finish_empty(c, op);
		return;
	}
	/* Before anything is planned: a rail that cannot reach the memory is none of this read's. */
	reach = region_reach(op->cs->client->read_region);
	rails = eligible_rails(c, op->peer_idx) & reach;
	if (!rails && wants_failover(c, op))
		rails = failover_in_doubt(c, op->peer_idx, reach);
	if (!rails) {
		path_explain(c, op->peer_idx, reach, op->cause, sizeof(op->cause));
		op_fail(c, op, RY_ERR_NO_RAIL, RY_RAIL_NONE, NULL);
		return;
	}
	first = (uint32_t)(op->offset / d->stripe_bytes);
	n = (uint32_t)((op->offset + op->length - 1) / d->stripe_bytes) - first + 1;
	x = xfer_alloc(c);
	if (!x) {
		op_fail(c, op, RY_ERR_LIMIT, RY_RAIL_NONE, "too many transfers are in flight: retry");
		return;
	}
	x->kind = XFER_READ;
	x->cs = op->cs;
	x->cs->n_xfers++;
	x->peer_idx = op->peer_idx;
	x->handle = d->handle;
	x->generation = d->generation;
	x->deadline_ns = op->deadline_ns;
	x->want_hash = d->has_checksums;
	x->reach_mask = reach;
	x->region = region_idx(op->cs->client->read_region);
	x->is_failover = wants_failover(c, op);
	x->is_one_rail = op->flags & RY_F_ONE_RAIL;
	x->total_bytes = stripes_bytes(d, first, n);
	if (!admit_bytes(c, op, x->total_bytes)) {
		xfer_free(c, x);
		return;
	}
	x->is_charged = true;
	op->admitted_ns = c->now_ns;
	if (!get_memory(c, op, x) || !xfer_prepare(c, x, d->size_bytes, d->stripe_bytes, first, n,
					     choose_rails(c, op, x->total_bytes, rails))) {
		status = op->status ? op->status : RY_ERR_LIMIT;
		xfer_free(c, x);
		op_fail(c, op, status, RY_RAIL_NONE, NULL);
		return;
	}
	x->desc = d;
	desc_hold(d);
	x->owner = op;
	op->xfer = x;
	op->state = OP_XFER;
	xfer_activate(c, x);
}

static bool check_range(struct control *c, struct op *op)
{
	const struct desc *d = op->desc;

	if (!d->has_checksums && d->stripe_count && !(op->flags & RY_F_ALLOW_UNVERIFIED)) {
		op_fail(c, op, RY_ERR_INVALID_DESCRIPTOR, RY_RAIL_NONE,
			"the object has no checksums: read it with allow_unverified");
		return false;
	}
	if (op->length == UINT64_MAX && op->offset <= d->size_bytes)
		op->length = d->size_bytes - op->offset;
	if (op->offset > d->size_bytes || op->length > d->size_bytes - op->offset) {
		op_cause(op, "range %" PRIu64 "+%" PRIu64 " ends behind the object's %" PRIu64 " bytes", op->offset,
			op->length, d->size_bytes);
		op_fail(c, op, RY_ERR_INVALID, RY_RAIL_NONE, NULL);
		return false;
	}
	return true;
}

/* The careful policy wins where a read asks for both. */
static bool wants_failover(const struct control *c, const struct op *op)
{
	if (op->flags & (RY_F_FAIL | RY_F_FAILOVER))
		return !(op->flags & RY_F_FAIL);
	return c->config->on_rail_failure == ON_RAIL_FAILURE_FAILOVER;
}

static void finish_empty(struct control *c, struct op *op)
{
	struct ry_cqe cqe = {.is_verified = 1, .generation = op->desc->generation, .rail_idx = RY_RAIL_NONE};

	op->status = RY_OK;
	op_end(c, op, NULL, &cqe);
}

/*
 * Small objects use one near rail; RY_F_ONE_RAIL always the first, so that several reads of one stream stay on it; all
 * others use every eligible one.
 */
static uint32_t choose_rails(struct control *c, const struct op *op, uint64_t bytes, uint32_t eligible)
{
	if (op->flags & RY_F_ONE_RAIL)
		return eligible & -eligible;
	if (bytes > c->config->one_rail_max_bytes)
		return eligible;
	if (eligible & ~c->weak_mask)
		eligible &= ~c->weak_mask;
	return 1u << least_loaded(c, near_rails(c, op->cs->client->numa_node, eligible));
}

/* Those on the NUMA node of the memory; all of them where none is, or nobody knows. */
static uint32_t near_rails(const struct control *c, int numa_node, uint32_t eligible)
{
	uint32_t near = 0;

	for (uint16_t r = 0; numa_node >= 0 && r < c->n_rails; r++)
		near |= (uint32_t)(c->rails[r].numa_node == numa_node) << r;
	return near & eligible ? near & eligible : eligible;
}

/* Of equal ones another each time: what several reads of one turn will load is not known yet. */
static uint16_t least_loaded(struct control *c, uint32_t rails)
{
	uint16_t best = RY_RAIL_NONE;

	for (uint16_t i = 0; i < c->n_rails; i++) {
		uint16_t r = (uint16_t)((c->last_small + 1u + i) % c->n_rails);

		if ((rails >> r & 1) &&
			(best == RY_RAIL_NONE || c->rails[r].inflight_bytes < c->rails[best].inflight_bytes))
			best = r;
	}
	c->last_small = best;
	return best;
}

static uint64_t stripes_bytes(const struct desc *d, uint32_t first, uint32_t n)
{
	uint64_t start = (uint64_t)first * d->stripe_bytes, end = start + (uint64_t)n * d->stripe_bytes;

	return (end < d->size_bytes ? end : d->size_bytes) - start;
}

static bool get_memory(struct control *c, struct op *op, struct xfer *x)
{
	uint64_t arena = extent_total_bytes(op->cs->client->read_map);

	if (x->total_bytes > arena) {
		op->status = RY_ERR_BUFFER_TOO_SMALL;
		op_cause(op,
			"%" PRIu64 " bytes of whole stripes, the read arena has %" PRIu64
			": read by range or attach with a larger arena",
			x->total_bytes, arena);
		return false;
	}
	if (!lease_alloc(op->cs, x->total_bytes, op->desc->stripe_bytes, x->extents, &x->n_extents)) {
		op->status = RY_ERR_BUDGET;
		op_cause(op,
			"the read arena has no room for %" PRIu64 " bytes now (%" PRIu64 " of %" PRIu64
			" in use): release leases",
			x->total_bytes, extent_used_bytes(op->cs->client->read_map), arena);
		return false;
	}
	return true;
}
