/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Puts of our clients: one part at a time is offered to the store as a source, which PULLs it. The completion says that
 * the part's memory is the client's again, so it waits until the source is quiet: no rail can read from it any more.
 */
#include "read/control_priv.h"

static bool check_part(struct op *op);
static bool make_source(struct control *c, struct op *op);
static uint32_t drained_rails(const struct control *c, uint16_t peer_idx);
static void clean(char *text);
static void complete(struct control *c, struct op *op);

void put_start(struct control *c, struct op *op, const struct ry_slot *slot)
{
	memcpy(op->put_id, slot->put_id, sizeof(op->put_id));
	op->size_bytes = slot->size_bytes;
	op->ttl_ns = slot->ttl_ns;
	op->stripe_bytes = slot->stripe_bytes;
	op->n_checksums = slot->n_checksums;
	op->checksum_offset = slot->checksum_offset;
	op->peer_idx = lookup_home(c, op->key, op->key_bytes);
	lookup_drop(c, op->hash);
	if (!check_part(op)) {
		op_fail(c, op, RY_ERR_INVALID, RY_RAIL_NONE,
			"a put part is whole stripes (the object's last may be short) inside the put arena, with a "
			"checksum each");
		return;
	}
	if (op->length && !make_source(c, op)) {
		op_fail(c, op, RY_ERR_LIMIT, RY_RAIL_NONE, "too many puts are in flight: retry");
		return;
	}
	meta_send(c, op);
}

static bool check_part(struct op *op)
{
	uint64_t arena = op->cs->client->put_arena.bytes;
	uint64_t sums = (uint64_t)op->n_checksums * sizeof(uint64_t);

	if (!plan_geometry_ok(0, op->stripe_bytes, 0) || op->offset % op->stripe_bytes ||
		op->n_checksums > WIRE_CHECKSUMS_PER_PAGE)
		return false;
	if (op->n_checksums != (op->length + op->stripe_bytes - 1) / op->stripe_bytes || op->length > arena ||
		op->arg > arena - op->length)
		return false;
	if (op->checksum_offset % sizeof(uint64_t) || sums > arena || op->checksum_offset > arena - sums)
		return false;
	return op->offset / op->stripe_bytes + op->n_checksums <= RY_STRIPES_MAX;
}

static bool make_source(struct control *c, struct op *op)
{
	struct source *s = source_alloc(c->d.sources);

	if (!s)
		return false;
	s->generation = 1; /* the handle alone is unique */
	s->size_bytes = op->offset + op->length;
	s->stripe_bytes = op->stripe_bytes;
	s->first_stripe = (uint32_t)(op->offset / op->stripe_bytes);
	s->stripe_count = s->first_stripe + op->n_checksums;
	s->stripe_addr = NULL;
	s->region = region_idx(op->cs->client->put_region);
	s->base = op->cs->client->put_arena.base + op->arg;
	s->expires_ns = 0;
	source_publish(s);
	op->source = s;
	return true;
}

uint32_t put_encode(struct control *c, struct op *op, void *buf)
{
	struct wire_put m = {
		.h = {.avoid = drained_rails(c, op->peer_idx),
			.flags = op->flags & (RY_F_PUT_BEGIN | RY_F_PUT_COMMIT | RY_F_IF_ABSENT),
			.request_id = op_request_id(c, op)},
		.put_id = {op->put_id[0], op->put_id[1]},
		.size_bytes = op->size_bytes,
		.ttl_ns = op->ttl_ns,
		.source_handle = op->source ? op->source->handle : 0,
		.source_generation = op->source ? op->source->generation : 0,
		.part_bytes = op->length,
		.stripe_bytes = op->stripe_bytes,
		.first_stripe = (uint32_t)(op->offset / op->stripe_bytes),
		.n_checksums = op->n_checksums,
		.key_bytes = op->key_bytes,
	};

	return wire_enc_put(buf, &m, op->key, (const void *)(op->cs->client->put_arena.base + op->checksum_offset));
}

/* The store pulls, so it must be told. One that does not know the field would refuse it. */
static uint32_t drained_rails(const struct control *c, uint16_t peer_idx)
{
	const struct peer_pair *pp = peer_meta_pair(c, peer_idx);
	uint32_t drained = 0;

	for (uint16_t r = 0; pp && (pp->pair->features & WIRE_FEATURE_AVOID) && r < c->n_rails; r++)
		drained |= (uint32_t)c->rails[r].is_draining << r;
	return drained;
}

/* A peer's text is shown to people: what is not printable ASCII becomes '?'. */
static void clean(char *text)
{
	for (; *text; text++)
		*text = *text >= ' ' && *text < 0x7f ? *text : '?';
}

void put_reply(struct control *c, struct op *op, const struct wire_put_done *m)
{
	char cause[RY_CAUSE_MAX_BYTES];

	memcpy(cause, m->cause, sizeof(cause));
	clean(cause);
	op->result_bytes = m->bytes_so_far;
	op->result_generation = m->generation;
	lookup_drop(c, op->hash);
	if (m->h.status == RY_ERR_NO_RAIL && !eligible_rails(c, op->peer_idx))
		path_explain(c, op->peer_idx, UINT32_MAX, cause, sizeof(cause)); /* the store saw no more than that */
	put_finish(c, op, m->h.status, cause[0] ? cause : NULL);
}

void put_finish(struct control *c, struct op *op, uint32_t status, const char *cause)
{
	op_unlink_wait(c, op);
	op->status = status;
	if (cause)
		snprintf(op->cause, sizeof(op->cause), "%s", cause);
	if (op->source) {
		op->source_token = source_retire(c->d.sources, op->source);
		op->state = OP_QUIET;
		op->is_in_wait = true;
		TAILQ_INSERT_TAIL(&c->quiet_ops, op, wait);
		c->n_quieting++;
		put_poll_quiet(c);
		return;
	}
	complete(c, op);
}

static void complete(struct control *c, struct op *op)
{
	op_fail(c, op, op->status, RY_RAIL_NONE, NULL);
}

unsigned put_poll_quiet(struct control *c)
{
	struct op *op, *next;
	unsigned n = 0;

	for (op = TAILQ_FIRST(&c->quiet_ops); op; op = next) {
		next = TAILQ_NEXT(op, wait);
		if (!source_is_quiet(c->d.sources, op->source, op->source_token))
			continue;
		source_release(c->d.sources, op->source);
		op->source = NULL;
		TAILQ_REMOVE(&c->quiet_ops, op, wait);
		op->is_in_wait = false;
		c->n_quieting--;
		n++;
		complete(c, op);
	}
	return n;
}
