/* SPDX-License-Identifier: BSD-3-Clause */
/* A verified transfer becomes a lease that the client learns of; and what leases are made of. */
#include "read/control_priv.h"

static void trim(struct op *op, const struct xfer *x);
static uint64_t max_rail_ns(const struct control *c, const struct xfer *x);

void commit_read(struct control *c, struct xfer *x)
{
	struct op *op = x->owner;
	struct ry_cqe cqe = {.is_verified = x->want_hash,
		.bytes = op->length,
		.generation = x->generation,
		.rail_idx = RY_RAIL_NONE};

	cqe.lease_id = lease_create(x->cs, x->extents, x->n_extents);
	if (!cqe.lease_id) {
		xfer_fail(c, x, RY_ERR_LIMIT, RY_RAIL_NONE, "the client holds as many leases as it may: release some");
		return;
	}
	stat_add(&c->counters->leases, 1);
	stat_add(&c->counters->read_bytes, op->length);
	trim(op, x);
	x->n_extents = 0; /* the lease's now */
	x->owner = NULL;
	op->xfer = NULL;
	op->status = RY_OK;
	op_end(c, op, x, &cqe);
	xfer_free(c, x);
}

/* The lease shows exactly the range that was asked for; whole edge stripes were read. */
static void trim(struct op *op, const struct xfer *x)
{
	uint64_t skip = op->offset - (uint64_t)x->plan.first_stripe * x->plan.stripe_bytes;
	uint64_t left = op->length;

	op->n_extents = 0;
	for (uint32_t i = 0; i < x->n_extents && left; i++) {
		struct ry_extent e = x->extents[i];

		if (skip >= e.bytes) {
			skip -= e.bytes;
			continue;
		}
		e.offset += skip;
		e.bytes = RTE_MIN(e.bytes - skip, left);
		skip = 0;
		left -= e.bytes;
		op->extents[op->n_extents++] = e;
	}
}

void commit_stats(const struct control *c, const struct op *op, const struct xfer *x, struct ry_read_stats *st)
{
	struct classify_in in;

	memset(st, 0, offsetof(struct ry_read_stats, rails));
	st->object_ns = c->now_ns - op->submit_ns;
	st->queue_ns = op->admitted_ns ? op->admitted_ns - op->submit_ns : st->object_ns;
	st->lookup_ns = op->described_ns ? op->described_ns - op->submit_ns : 0;
	if (!x)
		return;
	st->plan_ns = x->plan_ns;
	st->transfer_ns = x->last_landed_ns ? x->last_landed_ns - x->first_out_ns : 0;
	st->verify_ns = x->last_verified_ns > x->last_landed_ns ? x->last_verified_ns - x->last_landed_ns : 0;
	st->commit_ns = x->last_verified_ns ? c->now_ns - x->last_verified_ns : 0;
	st->storage_ns = x->storage_ns;
	st->store_queue_ns = x->store_queue_ns;
	st->wire_bytes = x->landed_bytes;
	st->hashed_bytes = x->hashed_bytes;
	st->n_segments = x->n_segments;
	for (uint16_t r = 0; r < c->n_rails; r++) {
		struct ry_rail_stats *rs = &st->rails[st->n_rails];

		if (!x->rails[r].n_segments)
			continue;
		memcpy(rs->name, c->config->rails[r].name, sizeof(rs->name));
		rs->bytes = x->rails[r].bytes;
		rs->busy_ns = x->rails[r].busy_ns;
		rs->segments = x->rails[r].n_segments;
		rs->reserved = 0;
		st->n_rails++;
	}
	in = (struct classify_in){
		.object_ns = st->object_ns,
		.max_rail_ns = max_rail_ns(c, x),
		.verify_ns = st->verify_ns,
		.plan_ns = st->plan_ns,
		.queue_ns = st->queue_ns - RTE_MIN(st->queue_ns, st->lookup_ns),
		.transfer_ns = st->transfer_ns,
		.storage_ns = st->storage_ns,
		.store_queue_ns = st->store_queue_ns,
		.n_segments = st->n_segments,
	};
	st->class_ref = (uint8_t)classify_ref(&in);
	st->class_own = (uint8_t)classify_own(&in, &st->class_share_permille);
}

void commit_record(const struct control *c, const struct op *op, const struct ry_cqe *cqe, const struct xfer *x,
	const struct ry_read_stats *st)
{
	struct record rec; /* rail_bytes and cause as far as they are defined: not cleared for each read */
	uint32_t n = 0;

	memset(&rec, 0, offsetof(struct record, rail_bytes));
	rec.started_ns = op->submit_ns;
	rec.finished_ns = c->now_ns;
	rec.offset = op->offset;
	rec.bytes = op->length;
	rec.object_bytes = op->desc && op->described_ns ? op->desc->size_bytes : 0;
	rec.wire_bytes = st->wire_bytes;
	rec.queue_ns = st->queue_ns;
	rec.lookup_ns = st->lookup_ns;
	rec.plan_ns = st->plan_ns;
	rec.transfer_ns = st->transfer_ns;
	rec.verify_ns = st->verify_ns;
	rec.commit_ns = st->commit_ns;
	rec.storage_ns = st->storage_ns;
	rec.store_queue_ns = st->store_queue_ns;
	rec.status = op->status;
	rec.n_segments = st->n_segments;
	rec.client_id = op->cs->client->id;
	rec.store_idx = c->config->n_stores ? lookup_home(c, op->key, op->key_bytes) : RECORD_STORE_NONE;
	rec.bad_rail = cqe->rail_idx;
	rec.key_bytes = op->key_bytes;
	rec.class_ref = st->class_ref;
	rec.class_own = st->class_own;
	rec.class_share_permille = st->class_share_permille;
	rec.is_verified = cqe->is_verified;
	rec.is_failover = x && x->is_failover;
	rec.is_one_rail = op->flags & RY_F_ONE_RAIL ? 1 : 0;
	rec.is_lookup = op->kind == RY_OP_LOOKUP;
	memcpy(rec.key, op->key, RTE_MIN(op->key_bytes, RECORDER_KEY_BYTES));
	for (uint16_t r = 0; x && r < c->n_rails; r++) {
		if (!x->rails[r].n_segments)
			continue;
		rec.rail_mask |= 1u << r;
		rec.rail_bytes[n++] = x->rails[r].bytes;
	}
	if (op->status)
		memcpy(rec.cause, op->cause, sizeof(rec.cause));
	recorder_write(c->d.recorder, &rec);
}

static uint64_t max_rail_ns(const struct control *c, const struct xfer *x)
{
	uint64_t most = 0;

	for (uint16_t r = 0; r < c->n_rails; r++)
		most = RTE_MAX(most, x->rails[r].busy_ns);
	return most;
}

/* ---- Leases ---- */

uint32_t lease_create(struct client_state *cs, const struct ry_extent *extents, uint32_t n)
{
	for (uint32_t looks = 1; looks < LEASES_PER_CLIENT; looks++) {
		uint32_t i = cs->lease_next;
		struct lease *l = &cs->leases[i];

		cs->lease_next = i + 1 < LEASES_PER_CLIENT ? i + 1 : 1;
		if (l->n_extents)
			continue;
		l->n_extents = n;
		l->salt = (l->salt + 1) & 0xffff;
		memcpy(l->extents, extents, n * sizeof(*extents));
		cs->n_leases++;
		return i | l->salt << 16;
	}
	return 0;
}

/* An id the client made up, or gave back before, is ignored: it can only harm its own arena. */
void lease_release(struct control *c, struct client_state *cs, uint32_t lease_id)
{
	uint32_t i = lease_id & 0xffff;
	struct lease *l = &cs->leases[i < LEASES_PER_CLIENT ? i : 0];

	if (!l->n_extents || l->salt != lease_id >> 16)
		return;
	lease_free_extents(cs, l->extents, l->n_extents);
	l->n_extents = 0;
	cs->n_leases--;
	stat_sub(&c->counters->leases, 1);
}

bool lease_alloc(struct client_state *cs, uint64_t bytes, uint64_t unit_bytes, struct ry_extent *out, uint32_t *n)
{
	struct extent_map *map = cs->client->read_map;
	uint64_t piece = bytes;

	*n = 0;
	while (bytes && *n < RY_EXTENTS_MAX) {
		uint64_t off = extent_alloc(map, piece);

		if (off == EXTENT_NONE) {
			/* Not in one piece: whole stripes into the longest gaps. */
			piece = extent_largest_free(map) / unit_bytes * unit_bytes;
			piece = RTE_MIN(piece, bytes);
			if (!piece)
				break;
			continue;
		}
		out[(*n)++] = (struct ry_extent){off, piece};
		bytes -= piece;
		piece = bytes;
	}
	if (!bytes)
		return true;
	lease_free_extents(cs, out, *n);
	*n = 0;
	return false;
}

void lease_free_extents(struct client_state *cs, const struct ry_extent *e, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		extent_free(cs->client->read_map, e[i].offset, e[i].bytes);
}
