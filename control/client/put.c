/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Puts: bytes are collected in the put arena part by part, hashed stripe by stripe as they come, and sent as soon as a
 * part is full; while one part is pulled by the store, the next is filled. A put of a whole buffer is the same with a
 * known size.
 */
#include "client_priv.h"

#include <string.h>

#define PART_BYTES (32ull << 20) /* at most: large enough that every rail has several stripes of it */

struct part {
	struct ryc_block *block; /* NULL: not open */
	uint64_t offset;         /* in the object */
	uint64_t cap_bytes;
	uint64_t bytes;
	uint64_t table_offset; /* in the put arena */
	uint32_t n_checksums;
};

struct ry_put {
	struct ry_client *client;
	uint64_t put_id[2];
	uint64_t size_bytes;
	uint64_t ttl_ns;
	uint64_t deadline_ns; /* relative, of each part; 0 where until_ns counts */
	uint64_t until_ns;    /* absolute, of the whole put; 0 = none */
	uint64_t part_bytes;  /* a multiple of the stripe */
	uint64_t generation;  /* once committed */
	uint64_t verified_bytes;
	uint32_t stripe_bytes;
	uint32_t flags;
	struct part part;      /* being filled */
	struct ryc_op *ops[2]; /* parts in flight, the older first */
	unsigned n_ops;
	bool has_begun; /* a part was sent */
	bool has_sent_commit;
	enum ry_status status; /* first failure */
	char cause[RY_CAUSE_MAX_BYTES];
	struct ryc_hash *hash;
	uint16_t key_bytes;
	uint8_t key[];
};

static enum ry_status choose_stripe(struct ry_client *c, const struct ry_put_opts *opts, uint32_t *stripe_bytes);
static uint64_t part_bytes(const struct ry_client *c, uint32_t stripe_bytes);
static enum ry_status check_going(struct ry_put *p);
static enum ry_status refuse(struct ry_put *p, const char *cause);
static enum ry_status part_open(struct ry_put *p);
static struct ryc_block *part_alloc(struct ry_put *p, uint64_t stripes, uint64_t rest, uint64_t *cap_bytes);
static void end_stripe(struct ry_put *p);
static enum ry_status part_send(struct ry_put *p, uint32_t flags);
static void collect(struct ry_put *p);
static enum ry_status keep(struct ry_put *p, enum ry_status status);
static void commit(struct ry_put *p);
static void abandon(struct ry_put *p);
static enum ry_status put_free(struct ry_put *p, struct ry_put_result *result);

enum ry_status ry_put(struct ry_client *c, const void *key, uint16_t key_bytes, const void *data, uint64_t bytes,
	const struct ry_put_opts *opts, struct ry_put_result *result)
{
	struct ry_put_opts own = opts ? *opts : (struct ry_put_opts){0};
	enum ry_status status = ryc_enter(c);
	struct ry_put *p;

	if (!status && (bytes == RY_SIZE_UNKNOWN || (bytes > 0 && !data)))
		status = ryc_fail(c, RY_ERR_INVALID, "put: no data");
	own.size_bytes = bytes;
	if (!status)
		status = ry_put_open(c, key, key_bytes, &own, &p);
	if (status)
		return status;
	p->until_ns = ryc_deadline(own.deadline_ns);
	(void)ry_put_write(p, data, bytes); /* a failure is remembered; close reports it */
	return ry_put_close(p, true, result);
}

enum ry_status ry_put_open(
	struct ry_client *c, const void *key, uint16_t key_bytes, const struct ry_put_opts *opts, struct ry_put **put)
{
	static const struct ry_put_opts unknown_size = {.size_bytes = RY_SIZE_UNKNOWN};
	enum ry_status status = ryc_enter_with(c, put, "put: put");
	uint32_t stripe_bytes = 0;
	struct ry_put *p;

	opts = opts ? opts : &unknown_size;
	if (!status)
		status = ryc_key_check(c, key, key_bytes);
	if (!status)
		status = ryc_flags_check(c, opts->flags, RY_F_IF_ABSENT);
	if (!status)
		status = choose_stripe(c, opts, &stripe_bytes);
	if (status)
		return status;
	p = calloc(1, sizeof(*p) + key_bytes);
	if (!p)
		return ryc_fail(c, RY_ERR_LIMIT, "put: no memory");
	p->client = c;
	p->hash = ryc_hash_new();
	memcpy(p->put_id, opts->put_id, sizeof(p->put_id));
	if (p->hash && (p->put_id[0] | p->put_id[1]) == 0)
		status = ry_put_id_make(p->put_id);
	if (!p->hash || status) {
		ryc_hash_free(p->hash);
		free(p);
		return ryc_fail(c, status ? status : RY_ERR_LIMIT, "put: no memory or no random numbers");
	}
	p->size_bytes = opts->size_bytes ? opts->size_bytes : RY_SIZE_UNKNOWN;
	p->ttl_ns = opts->ttl_ns;
	p->deadline_ns = opts->deadline_ns;
	p->flags = opts->flags;
	p->stripe_bytes = stripe_bytes;
	p->part_bytes = part_bytes(c, stripe_bytes);
	memcpy(p->key, key, key_bytes);
	p->key_bytes = key_bytes;
	*put = p;
	return RY_OK;
}

/* The one asked for; else the default, larger for huge objects (their number of stripes is limited), smaller for small
 * arenas. */
static enum ry_status choose_stripe(struct ry_client *c, const struct ry_put_opts *opts, uint32_t *stripe_bytes)
{
	uint32_t stripe = opts->stripe_bytes ? opts->stripe_bytes : RY_STRIPE_DEFAULT_BYTES;

	if (ryc_stripe_check(c, stripe))
		return RY_ERR_INVALID;
	if (!opts->stripe_bytes) {
		while (stripe > RY_STRIPE_MIN_BYTES && part_bytes(c, stripe) == 0)
			stripe /= 2;
		while (opts->size_bytes != RY_SIZE_UNKNOWN && opts->size_bytes / RY_STRIPES_MAX >= stripe &&
			stripe < RY_STRIPE_MAX_BYTES)
			stripe *= 2;
	}
	if (opts->size_bytes != 0 && opts->size_bytes != RY_SIZE_UNKNOWN &&
		(opts->size_bytes - 1) / stripe >= RY_STRIPES_MAX)
		return ryc_fail(c, RY_ERR_INVALID,
			"put: %llu bytes have more than %u stripes of %u: use larger stripes",
			(unsigned long long)opts->size_bytes, RY_STRIPES_MAX, stripe);
	if (part_bytes(c, stripe) == 0)
		return ryc_fail(c, RY_ERR_BUFFER_TOO_SMALL,
			"put: a put arena of %llu bytes cannot hold two stripes of %u",
			(unsigned long long)c->put_arena.bytes, stripe);
	*stripe_bytes = stripe;
	return RY_OK;
}

/* The most whole stripes of which two parts, with their checksums, fit the put arena; 0 = not one stripe. */
static uint64_t part_bytes(const struct ry_client *c, uint32_t stripe_bytes)
{
	uint64_t half = c->put_arena.bytes / 2 / RYC_ALIGN_BYTES * RYC_ALIGN_BYTES;
	uint64_t n = half > RYC_ALIGN_BYTES ? (half - RYC_ALIGN_BYTES) / (stripe_bytes + sizeof(uint64_t)) : 0;
	uint64_t most = PART_BYTES / stripe_bytes ? PART_BYTES / stripe_bytes : 1;

	n = n < most ? n : most;
	return (n < RYC_PUT_PART_CHECKSUMS ? n : RYC_PUT_PART_CHECKSUMS) * stripe_bytes;
}

enum ry_status ry_put_write(struct ry_put *p, const void *data, uint64_t bytes)
{
	const uint8_t *from = data;

	if (bytes > 0 && !data)
		return refuse(p, "put: no data");
	while (bytes > 0) {
		uint64_t room, n, to_stripe_end;
		void *space;
		enum ry_status status = ry_put_space(p, &space, &room);

		if (status)
			return status;
		to_stripe_end = p->stripe_bytes - p->part.bytes % p->stripe_bytes;
		n = bytes < room ? bytes : room;
		n = n < to_stripe_end ? n : to_stripe_end;
		ryc_hash_copy(p->hash, space, from, n);
		p->part.bytes += n;
		end_stripe(p);
		if (p->part.bytes == p->part.cap_bytes)
			status = part_send(p, 0);
		if (status)
			return status;
		from += n;
		bytes -= n;
	}
	return p->status;
}

enum ry_status ry_put_space(struct ry_put *p, void **space, uint64_t *room_bytes)
{
	enum ry_status status = check_going(p);

	if (!status && (!space || !room_bytes))
		status = refuse(p, "put: space and room_bytes must not be NULL");
	if (!status && p->part.offset + p->part.bytes == p->size_bytes)
		status = keep(p, ryc_fail(p->client, RY_ERR_INVALID, "put: more bytes than the %llu announced",
					 (unsigned long long)p->size_bytes));
	if (!status && !p->part.block)
		status = part_open(p);
	if (status)
		return status;
	*space = p->client->put_arena.base + p->part.block->offset + p->part.bytes;
	*room_bytes = p->part.cap_bytes - p->part.bytes;
	return RY_OK;
}

enum ry_status ry_put_wrote(struct ry_put *p, uint64_t bytes)
{
	enum ry_status status = check_going(p);

	if (status || bytes == 0)
		return status;
	if (!p->part.block || bytes > p->part.cap_bytes - p->part.bytes)
		return keep(p, ryc_fail(p->client, RY_ERR_INVALID, "put: more bytes written than there was room for"));
	while (bytes > 0) {
		uint64_t n = p->stripe_bytes - p->part.bytes % p->stripe_bytes;

		n = bytes < n ? bytes : n;
		ryc_hash_update(p->hash, p->client->put_arena.base + p->part.block->offset + p->part.bytes, n);
		p->part.bytes += n;
		bytes -= n;
		end_stripe(p);
	}
	return p->part.bytes == p->part.cap_bytes ? part_send(p, 0) : RY_OK;
}

static enum ry_status check_going(struct ry_put *p)
{
	enum ry_status status = p ? ryc_enter(p->client) : RY_ERR_INVALID;

	if (!p)
		return status;
	if (status)
		return keep(p, status);
	return p->status ? ryc_fail(p->client, p->status, "%s", p->cause) : RY_OK;
}

static enum ry_status refuse(struct ry_put *p, const char *cause)
{
	return p ? keep(p, ryc_fail(p->client, RY_ERR_INVALID, "%s", cause)) : RY_ERR_INVALID;
}

/* Memory for the next part. With two parts in flight it waits for the older: its memory is what comes free. */
static enum ry_status part_open(struct ry_put *p)
{
	uint64_t at = p->part.offset;
	uint64_t rest = p->size_bytes == RY_SIZE_UNKNOWN ? RY_SIZE_UNKNOWN : p->size_bytes - at;
	struct part next = {.offset = at};

	while (p->n_ops == 2 && !p->status)
		collect(p);
	next.block = part_alloc(p, p->part_bytes / p->stripe_bytes, rest, &next.cap_bytes);
	while (!next.block && p->n_ops > 0 && !p->status) {
		collect(p);
		next.block = part_alloc(p, p->part_bytes / p->stripe_bytes, rest, &next.cap_bytes);
	}
	if (!next.block && !p->status)
		keep(p, ryc_fail(p->client, RY_ERR_BUDGET,
				"put: other puts of this client hold the put arena: end them first"));
	if (p->status) {
		ryc_arena_free(&p->client->put_arena, next.block);
		return ryc_fail(p->client, p->status, "%s", p->cause);
	}
	next.table_offset =
		next.block->offset + (next.cap_bytes + RYC_ALIGN_BYTES - 1) / RYC_ALIGN_BYTES * RYC_ALIGN_BYTES;
	p->part = next;
	return RY_OK;
}

/* As many stripes as there is room for: half as many at each attempt. */
static struct ryc_block *part_alloc(struct ry_put *p, uint64_t stripes, uint64_t rest, uint64_t *cap_bytes)
{
	struct ryc_block *b = NULL;

	for (; stripes > 0 && !b; stripes /= 2) {
		uint64_t cap = stripes * p->stripe_bytes < rest ? stripes * p->stripe_bytes : rest;
		uint64_t n = (cap + p->stripe_bytes - 1) / p->stripe_bytes;

		b = ryc_arena_alloc(&p->client->put_arena, cap + RYC_ALIGN_BYTES + n * sizeof(uint64_t));
		*cap_bytes = cap;
	}
	return b;
}

/* Writes the checksum of a stripe that just became whole, or ended with the object. */
static void end_stripe(struct ry_put *p)
{
	struct part *part = &p->part;
	uint64_t *table = (uint64_t *)(void *)(p->client->put_arena.base + part->table_offset);
	bool is_last = part->offset + part->bytes == p->size_bytes;

	if (part->bytes % p->stripe_bytes && !is_last)
		return;
	table[part->n_checksums++] = ryc_hash_take(p->hash);
}

/* Sends what the part holds. The object's last part waits for close, which commits with it. */
static enum ry_status part_send(struct ry_put *p, uint32_t flags)
{
	struct ry_client *c = p->client;
	struct part *part = &p->part;
	bool is_commit = flags & RY_F_PUT_COMMIT;
	struct ryc_op *op;

	if (part->offset + part->bytes == p->size_bytes && !is_commit)
		return RY_OK;
	while (p->n_ops == 2)
		collect(p);
	op = p->status ? NULL : ryc_op_new(c, RY_OP_PUT);
	if (!op)
		return p->status ? p->status : keep(p, c->dead ? c->dead : RY_ERR_LIMIT);
	op->is_internal = true;
	op->deadline_ns = p->until_ns ? p->until_ns : ryc_deadline(p->deadline_ns);
	op->block = part->block;
	ryc_submit_part(c, op,
		&(struct ryc_part){.put_id = p->put_id,
			.key = p->key,
			.key_bytes = p->key_bytes,
			.flags = p->flags | flags | (p->has_begun ? 0 : RY_F_PUT_BEGIN),
			.stripe_bytes = p->stripe_bytes,
			.n_checksums = part->n_checksums,
			.size_bytes = p->size_bytes,
			.ttl_ns = p->ttl_ns,
			.offset = part->offset,
			.bytes = part->bytes,
			.arena_offset = part->block ? part->block->offset : 0,
			.table_offset = part->block ? part->table_offset : 0});
	ryc_publish(c);
	p->ops[p->n_ops++] = op;
	p->has_begun = true;
	p->has_sent_commit |= is_commit;
	p->part = (struct part){.offset = part->offset + part->bytes};
	return RY_OK;
}

/* Waits for the older part in flight; its memory is free afterwards. */
static void collect(struct ry_put *p)
{
	struct ryc_op *op = p->ops[0];
	struct ry_completion done;
	enum ry_status status;

	p->ops[0] = p->ops[1];
	p->n_ops--;
	status = ryc_op_result(p->client, op, &done);
	if (status) {
		/* The daemon took the commit and never said how it went. */
		if (status == RY_ERR_TIMEOUT && done.cause[0] == '\0' && p->has_sent_commit && p->n_ops == 0)
			status = RY_ERR_UNKNOWN_OUTCOME;
		keep(p, status);
		return;
	}
	if (done.bytes > p->verified_bytes)
		p->verified_bytes = done.bytes;
	p->generation = done.generation;
}

/* Remembers the first failure with its cause. */
static enum ry_status keep(struct ry_put *p, enum ry_status status)
{
	if (!p->status) {
		p->status = status;
		memcpy(p->cause, p->client->cause, sizeof(p->cause));
	}
	return status;
}

enum ry_status ry_put_close(struct ry_put *p, bool want_commit, struct ry_put_result *result)
{
	enum ry_status status = check_going(p);
	uint64_t end;

	if (!p)
		return status;
	end = p->part.offset + p->part.bytes;
	if (!status && want_commit && p->size_bytes != RY_SIZE_UNKNOWN && p->size_bytes != end)
		keep(p, ryc_fail(p->client, RY_ERR_INVALID, "put: %llu bytes of the %llu announced: aborted",
				(unsigned long long)end, (unsigned long long)p->size_bytes));
	if (!p->status && want_commit)
		commit(p);
	if (*p->client->fork_guard == 1 && (p->status || !want_commit))
		abandon(p);
	return put_free(p, result);
}

static void commit(struct ry_put *p)
{
	p->size_bytes = p->part.offset + p->part.bytes;
	if (p->part.bytes % p->stripe_bytes &&
		p->part.n_checksums < (p->part.bytes + p->stripe_bytes - 1) / p->stripe_bytes)
		end_stripe(p);
	(void)part_send(p, RY_F_PUT_COMMIT);
	while (p->n_ops > 0)
		collect(p);
}

/* Tells the store to forget the put; the parts in flight are cancelled first. What the daemon answers is of no
 * interest. */
static void abandon(struct ry_put *p)
{
	struct ry_client *c = p->client;
	struct ry_completion unwanted;
	struct ryc_op *op;

	for (unsigned i = 0; i < p->n_ops; i++)
		(void)ry_cancel(c, p->ops[i]->ticket);
	while (p->n_ops > 0)
		(void)ryc_op_result(c, p->ops[--p->n_ops], &unwanted);
	if (!p->has_begun || p->has_sent_commit)
		return;
	op = ryc_op_new(c, RY_OP_PUT);
	if (!op)
		return;
	op->is_internal = true;
	op->deadline_ns = ryc_deadline(p->deadline_ns);
	ryc_submit_part(c, op,
		&(struct ryc_part){.put_id = p->put_id,
			.key = p->key,
			.key_bytes = p->key_bytes,
			.stripe_bytes = p->stripe_bytes,
			.size_bytes = RY_SIZE_UNKNOWN,
			.offset = p->part.offset});
	ryc_publish(c);
	(void)ryc_op_result(c, op, &unwanted);
}

static enum ry_status put_free(struct ry_put *p, struct ry_put_result *result)
{
	enum ry_status status = p->status;

	if (result) {
		*result = (struct ry_put_result){.bytes = p->verified_bytes};
		memcpy(result->put_id, p->put_id, sizeof(p->put_id));
		result->generation = status ? 0 : p->generation;
	}
	if (status)
		ryc_fail(p->client, status, "%s", p->cause);
	ryc_arena_free(&p->client->put_arena, p->part.block);
	ryc_hash_free(p->hash);
	free(p);
	return status;
}

enum ry_status ry_put_query(struct ry_client *c, const void *key, uint16_t key_bytes, const uint64_t put_id[2],
	uint64_t deadline_ns, struct ry_put_result *result)
{
	struct ry_request r = ryc_request(RY_OP_PUT_QUERY, key, key_bytes, deadline_ns);
	enum ry_status status = ryc_enter_with(c, put_id, "query: put_id");
	struct ry_completion done;

	if (status)
		return status;
	memcpy(r.put_id, put_id, sizeof(r.put_id));
	status = ryc_call(c, &r, &done);
	if (status)
		return status;
	if (result) {
		*result = (struct ry_put_result){.generation = done.generation, .bytes = done.bytes};
		memcpy(result->put_id, put_id, sizeof(result->put_id));
	}
	return RY_OK;
}
