/* SPDX-License-Identifier: BSD-3-Clause */
/* Requests: from the caller's struct to submit entry and slot. */
#include "client_priv.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

static enum ry_status check(struct ry_client *c, const struct ry_request *r);
static enum ry_status check_id(struct ry_client *c, const struct ry_request *r);
static uint32_t flags_of(uint8_t op);
static enum ry_status check_put(struct ry_client *c, const struct ry_request *r);
static bool has_id(const struct ry_request *r);
static uint32_t stripe_of(const struct ry_request *r);
static uint32_t n_stripes(const struct ry_request *r);
static uint64_t table_at(const struct ry_request *r);
static struct ryc_block *stage(struct ry_client *c, const struct ry_request *r);
static void push_put(struct ry_client *c, struct ryc_op *op, const struct ry_request *r, const uint64_t put_id[2]);
static void push_plain(struct ry_client *c, struct ryc_op *op, const struct ry_request *r);

uint32_t ry_submit(struct ry_client *c, struct ry_request *requests, uint32_t n)
{
	enum ry_status status = ryc_enter(c);
	uint32_t taken = 0;

	if (!requests)
		return 0;
	if (status && n > 0)
		requests[0].status = status;
	while (!status && taken < n && ryc_submit_one(c, &requests[taken]))
		taken++;
	if (!status)
		ryc_publish(c);
	return taken;
}

struct ryc_op *ryc_submit_one(struct ry_client *c, struct ry_request *r)
{
	uint64_t put_id[2] = {r->put_id[0], r->put_id[1]};
	struct ryc_block *block = NULL;
	struct ryc_op *op;

	r->status = check(c, r);
	if (!r->status && r->op == RY_OP_PUT && !has_id(r) && ry_put_id_make(put_id))
		r->status = ryc_fail(c, RY_ERR_INTERNAL, "put: no random numbers");
	if (r->status)
		return NULL;
	op = ryc_op_new(c, (enum ry_op)r->op);
	if (!op) {
		r->status = c->dead ? c->dead : RY_ERR_LIMIT;
		return NULL;
	}
	if (r->op == RY_OP_PUT && r->length > 0) {
		block = stage(c, r);
		if (!block) {
			ryc_op_free(c, op);
			r->status = ryc_fail(
				c, RY_ERR_BUDGET, "put: the put arena is full at the moment: reap other puts first");
			return NULL;
		}
	}
	op->block = block;
	op->user = r->user;
	op->generation = r->generation;
	op->deadline_ns = ryc_deadline(r->deadline_ns);
	r->ticket = op->ticket;
	if (r->op == RY_OP_PUT)
		push_put(c, op, r, put_id);
	else
		push_plain(c, op, r);
	return op;
}

static enum ry_status check(struct ry_client *c, const struct ry_request *r)
{
	if (r->op < RY_OP_LOOKUP || r->op > RY_OP_PUT_QUERY || r->op == RY_OP_CANCEL || r->op == RY_OP_RELEASE)
		return ryc_fail(c, RY_ERR_INVALID, "submit: op %u: not one to submit", r->op);
	if (ryc_flags_check(c, r->flags, flags_of(r->op)))
		return RY_ERR_INVALID;
	if (r->op == RY_OP_LIST && r->key_bytes == 0)
		return RY_OK;
	if (ryc_key_check(c, r->key, r->key_bytes))
		return RY_ERR_INVALID;
	if (r->op == RY_OP_READ && r->length == 0)
		return ryc_fail(c, RY_ERR_INVALID, "read: length 0: ask for at least one byte, or RY_TO_END");
	if (check_id(c, r))
		return RY_ERR_INVALID;
	return r->op == RY_OP_PUT ? check_put(c, r) : RY_OK;
}

static uint32_t flags_of(uint8_t op)
{
	if (op == RY_OP_READ)
		return RYC_READ_FLAGS;
	return op == RY_OP_PUT ? RY_F_PUT_BEGIN | RY_F_PUT_COMMIT | RY_F_IF_ABSENT : 0;
}

/* The library can choose an id only for what needs it once. */
static enum ry_status check_id(struct ry_client *c, const struct ry_request *r)
{
	uint32_t whole = RY_F_PUT_BEGIN | RY_F_PUT_COMMIT;
	bool is_part = r->op == RY_OP_PUT && (r->flags & whole) != whole;

	if (!has_id(r) && (is_part || r->op == RY_OP_PUT_QUERY))
		return ryc_fail(c, RY_ERR_INVALID, "put: no id: the parts of a put and its query need the same one");
	return RY_OK;
}

static enum ry_status check_put(struct ry_client *c, const struct ry_request *r)
{
	uint64_t end = r->offset + r->length;

	if (ryc_stripe_check(c, stripe_of(r)))
		return RY_ERR_INVALID;
	if (r->length > 0 && !r->data)
		return ryc_fail(c, RY_ERR_INVALID, "put: no data");
	if (end < r->offset || r->offset % stripe_of(r))
		return ryc_fail(c, RY_ERR_INVALID, "put: offset %llu: a part starts at a multiple of its stripe",
			(unsigned long long)r->offset);
	if ((r->length + stripe_of(r) - 1) / stripe_of(r) > RYC_PUT_PART_CHECKSUMS)
		return ryc_fail(c, RY_ERR_INVALID,
			"put: a part has at most %u stripes: use larger stripes or more parts", RYC_PUT_PART_CHECKSUMS);
	if (table_at(r) + n_stripes(r) * sizeof(uint64_t) > c->put_arena.bytes)
		return ryc_fail(c, RY_ERR_BUFFER_TOO_SMALL,
			"put: %llu bytes do not fit the put arena of %llu: put in parts", (unsigned long long)r->length,
			(unsigned long long)c->put_arena.bytes);
	if (!(r->flags & RY_F_PUT_COMMIT) && r->length % stripe_of(r))
		return ryc_fail(c, RY_ERR_INVALID, "put: only the last part may end inside a stripe");
	if (r->size_bytes == RY_SIZE_UNKNOWN
			? (r->flags & RY_F_PUT_COMMIT) != 0
			: (r->flags & RY_F_PUT_COMMIT ? r->size_bytes != end : r->size_bytes < end))
		return ryc_fail(c, RY_ERR_INVALID, "put: size_bytes contradicts this part's end at %llu",
			(unsigned long long)end);
	return RY_OK;
}

/* What would be ignored today may mean something tomorrow, and a promise that is not kept is worse than a refusal. */
enum ry_status ryc_flags_check(struct ry_client *c, uint32_t flags, uint32_t allowed)
{
	if (flags & ~allowed)
		return ryc_fail(
			c, RY_ERR_INVALID, "flags 0x%x: this operation does not take 0x%x", flags, flags & ~allowed);
	if ((flags & RY_F_FAILOVER) && (flags & RY_F_FAIL))
		return ryc_fail(
			c, RY_ERR_INVALID, "flags 0x%x: RY_F_FAILOVER and RY_F_FAIL contradict each other", flags);
	return RY_OK;
}

enum ry_status ryc_key_check(struct ry_client *c, const void *key, uint16_t key_bytes)
{
	if (!key || key_bytes == 0 || key_bytes > RY_KEY_MAX_BYTES)
		return ryc_fail(c, RY_ERR_INVALID, "a key of %u bytes: must have 1 to %u", key ? key_bytes : 0,
			RY_KEY_MAX_BYTES);
	return RY_OK;
}

enum ry_status ryc_stripe_check(struct ry_client *c, uint32_t stripe_bytes)
{
	if (stripe_bytes < RY_STRIPE_MIN_BYTES || stripe_bytes > RY_STRIPE_MAX_BYTES ||
		stripe_bytes % RY_STRIPE_ALIGN_BYTES)
		return ryc_fail(c, RY_ERR_INVALID, "put: stripe_bytes %u: must be a multiple of %u from %u to %u",
			stripe_bytes, RY_STRIPE_ALIGN_BYTES, RY_STRIPE_MIN_BYTES, RY_STRIPE_MAX_BYTES);
	return RY_OK;
}

static bool has_id(const struct ry_request *r)
{
	return (r->put_id[0] | r->put_id[1]) != 0;
}

static uint32_t stripe_of(const struct ry_request *r)
{
	return r->stripe_bytes ? r->stripe_bytes : RY_STRIPE_DEFAULT_BYTES;
}

static uint32_t n_stripes(const struct ry_request *r)
{
	return (uint32_t)((r->length + stripe_of(r) - 1) / stripe_of(r));
}

/* The checksum table follows the data in the same block. */
static uint64_t table_at(const struct ry_request *r)
{
	return (r->length + RYC_ALIGN_BYTES - 1) / RYC_ALIGN_BYTES * RYC_ALIGN_BYTES;
}

static struct ryc_block *stage(struct ry_client *c, const struct ry_request *r)
{
	uint32_t stripe = stripe_of(r), n = n_stripes(r);
	struct ryc_block *b = ryc_arena_alloc(&c->put_arena, table_at(r) + n * sizeof(uint64_t));
	const uint8_t *from = r->data;
	uint64_t *table;
	uint8_t *to;

	if (!b)
		return NULL;
	to = c->put_arena.base + b->offset;
	table = (uint64_t *)(void *)(to + table_at(r));
	for (uint32_t i = 0; i < n; i++) {
		uint64_t at = (uint64_t)i * stripe;

		ryc_hash_copy(c->hash, to + at, from + at, r->length - at < stripe ? r->length - at : stripe);
		table[i] = ryc_hash_take(c->hash);
	}
	return b;
}

static void push_put(struct ry_client *c, struct ryc_op *op, const struct ry_request *r, const uint64_t put_id[2])
{
	struct ryc_part part = {
		.put_id = put_id,
		.key = r->key,
		.key_bytes = r->key_bytes,
		.flags = r->flags,
		.stripe_bytes = stripe_of(r),
		.n_checksums = n_stripes(r),
		.size_bytes = r->size_bytes,
		.ttl_ns = r->ttl_ns,
		.offset = r->offset,
		.bytes = r->length,
	};

	if (op->block) {
		part.arena_offset = op->block->offset;
		part.table_offset = op->block->offset + table_at(r);
	}
	ryc_submit_part(c, op, &part);
}

void ryc_submit_part(struct ry_client *c, struct ryc_op *op, const struct ryc_part *p)
{
	struct ry_slot *slot = ryc_slot(c, op);
	struct ry_sqe *e = ryc_push(c, op);

	e->flags = p->flags;
	e->key_bytes = p->key_bytes;
	e->offset = p->offset;
	e->length = p->bytes;
	e->arg = p->arena_offset;
	memcpy(slot->put_id, p->put_id, sizeof(slot->put_id));
	slot->size_bytes = p->size_bytes;
	slot->ttl_ns = p->ttl_ns;
	slot->stripe_bytes = p->stripe_bytes;
	slot->n_checksums = p->n_checksums;
	slot->checksum_offset = p->table_offset;
	memcpy(slot->key, p->key, p->key_bytes);
}

static void push_plain(struct ry_client *c, struct ryc_op *op, const struct ry_request *r)
{
	struct ry_slot *slot = ryc_slot(c, op);
	struct ry_sqe *e = ryc_push(c, op);

	e->flags = r->flags;
	e->key_bytes = r->key_bytes;
	if (r->op == RY_OP_READ || r->op == RY_OP_LIST) {
		e->offset = r->offset;
		e->length = r->length;
	}
	if (r->op == RY_OP_DELETE)
		e->arg = r->generation;
	if (r->op == RY_OP_PUT_QUERY)
		memcpy(slot->put_id, r->put_id, sizeof(slot->put_id));
	if (r->key_bytes > 0)
		memcpy(slot->key, r->key, r->key_bytes);
}

enum ry_status ry_cancel(struct ry_client *c, uint64_t ticket)
{
	enum ry_status status = ryc_enter(c);
	uint32_t idx = (uint32_t)(ticket & 0xffff);
	struct ryc_op *op;

	if (status)
		return status;
	op = idx < c->max_ops ? &c->ops[idx] : NULL;
	if (!op || op->ticket != ticket || op->state != RYC_SUBMITTED)
		return ryc_fail(c, RY_ERR_NOT_FOUND, "cancel: no such operation is in flight");
	if (!op->has_cancel)
		ryc_push_late(c, RY_OP_CANCEL, ticket);
	op->has_cancel = true;
	return RY_OK;
}

struct ry_request ryc_request(enum ry_op op, const void *key, uint16_t key_bytes, uint64_t deadline_ns)
{
	return (struct ry_request){.op = (uint8_t)op, .key = key, .key_bytes = key_bytes, .deadline_ns = deadline_ns};
}

enum ry_status ryc_call(struct ry_client *c, struct ry_request *r, struct ry_completion *out)
{
	struct ryc_op *op = ryc_submit_one(c, r);

	if (!op)
		return r->status;
	op->is_internal = true;
	ryc_publish(c);
	return ryc_op_result(c, op, out);
}

enum ry_status ry_put_id_make(uint64_t put_id[2])
{
	uint64_t id[2];
	ssize_t n;

	if (!put_id)
		return RY_ERR_INVALID;
	do {
		n = getrandom(id, sizeof(id), 0);
	} while (n < 0 && errno == EINTR);
	if (n != (ssize_t)sizeof(id))
		return RY_ERR_INTERNAL;
	/* Both words 0 means "choose one". */
	put_id[0] = id[0] | 1;
	put_id[1] = id[1];
	return RY_OK;
}
