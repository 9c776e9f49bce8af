/* SPDX-License-Identifier: BSD-3-Clause */
/* Reads of any size: batches of whole stripes, two in flight, one generation, handed out in order. */
#include "client_priv.h"

#include <string.h>

#define BATCH_BYTES (32ull << 20)   /* by default: large enough that every rail has several stripes of it */
#define GRANULE_BYTES (64ull << 10) /* what the daemon rounds a lease up to at most, besides stripes */

struct stream {
	struct ry_client *client;
	const void *key;
	uint16_t key_bytes;
	const struct ry_read_opts *opts;
	ry_stream_fn fn;
	void *arg;
	uint64_t generation;
	uint64_t stripe_bytes;
	uint64_t batch_bytes; /* a multiple of the stripe */
	uint64_t next;        /* first byte not yet asked for */
	uint64_t at;          /* first byte not yet handed out */
	uint64_t end;
	uint64_t slowest_ns;
	bool is_all_verified;
	unsigned depth;
	unsigned n; /* in flight: ops[0] is the older */
	struct ryc_op *ops[2];
	struct ry_read_stats *stats; /* may be NULL */
};

static enum ry_status start(struct stream *s, uint64_t batch_bytes);
static void choose_batch(struct stream *s, uint64_t wanted, uint64_t stripe_bytes);
static enum ry_status run(struct stream *s);
static enum ry_status ask(struct stream *s);
static enum ry_status deliver(struct stream *s);
static enum ry_status one_at_a_time(struct stream *s);
static enum ry_status smaller_batches(struct stream *s);
static enum ry_status hand_out(struct stream *s, const struct ry_lease *lease);
static void add_stats(struct stream *s, const struct ry_read_stats *batch);
static void add_rail(struct ry_read_stats *sum, const struct ry_rail_stats *rail);

enum ry_status ry_stream_read(struct ry_client *c, const void *key, uint16_t key_bytes, const struct ry_read_opts *opts,
	uint64_t batch_bytes, ry_stream_fn fn, void *arg, struct ry_read_result *result)
{
	static const struct ry_read_opts whole_object = {.length = RY_TO_END};
	struct ry_read_stats stats = {0};
	struct stream s = {.client = c,
		.key = key,
		.key_bytes = key_bytes,
		.opts = opts ? opts : &whole_object,
		.fn = fn,
		.arg = arg,
		.is_all_verified = true,
		.stats = result ? &stats : NULL};
	enum ry_status status = ryc_enter(c);

	if (!status && (!fn || s.opts->length == 0))
		status = ryc_fail(c, RY_ERR_INVALID,
			"stream: needs a function to call and a length of at least 1 (or RY_TO_END)");
	if (!status)
		status = ryc_flags_check(c, s.opts->flags, RYC_READ_FLAGS);
	if (!status)
		status = start(&s, batch_bytes);
	if (!status)
		status = run(&s);
	if (!status && result)
		*result = (struct ry_read_result){.bytes = s.end - s.opts->offset,
			.generation = s.generation,
			.is_verified = s.is_all_verified,
			.stats = stats};
	return status;
}

static enum ry_status start(struct stream *s, uint64_t batch_bytes)
{
	struct ry_object object;
	enum ry_status status = ry_lookup(s->client, s->key, s->key_bytes, s->opts->deadline_ns, &object);
	uint64_t offset = s->opts->offset;

	if (status)
		return status;
	if (s->opts->generation && s->opts->generation != object.generation)
		return ryc_fail(s->client, RY_ERR_STALE_GENERATION,
			"stream: generation %llu was asked for, %llu is there", (unsigned long long)s->opts->generation,
			(unsigned long long)object.generation);
	s->end = s->opts->length == RY_TO_END ? object.size_bytes : offset + s->opts->length;
	if (offset > s->end || s->end > object.size_bytes)
		return ryc_fail(s->client, RY_ERR_INVALID,
			"stream: the range from %llu ends beyond the object's %llu bytes", (unsigned long long)offset,
			(unsigned long long)object.size_bytes);
	if (object.stripe_bytes == 0)
		return ryc_fail(s->client, RY_ERR_INVALID_DESCRIPTOR, "stream: the object has stripes of 0 bytes");
	s->generation = object.generation;
	s->next = s->at = offset;
	choose_batch(s, batch_bytes ? batch_bytes : BATCH_BYTES, object.stripe_bytes);
	return RY_OK;
}

/* Whole stripes; two batches must fit the arena, else one at a time. */
static void choose_batch(struct stream *s, uint64_t wanted, uint64_t stripe_bytes)
{
	uint64_t arena = s->client->read_map.bytes;
	uint64_t most = arena / 2 > GRANULE_BYTES ? arena / 2 - GRANULE_BYTES : 0;
	uint64_t n = (wanted < most ? wanted : most) / stripe_bytes;

	s->stripe_bytes = stripe_bytes;
	s->batch_bytes = (n > 0 ? n : 1) * stripe_bytes;
	s->depth = n > 0 ? 2 : 1;
}

static enum ry_status run(struct stream *s)
{
	enum ry_status status = RY_OK;

	while (!status && s->at < s->end) {
		while (!status && s->n < s->depth && s->next < s->end)
			status = ask(s);
		/* No room for the second one (other operations are in flight): the first alone does. */
		if (status == RY_ERR_LIMIT && s->n > 0)
			status = RY_OK;
		if (!status)
			status = deliver(s);
	}
	while (s->n > 0)
		ryc_op_abandon(s->client, s->ops[--s->n]);
	return status;
}

static enum ry_status ask(struct stream *s)
{
	struct ry_request r = ryc_request(RY_OP_READ, s->key, s->key_bytes, s->opts->deadline_ns);
	uint64_t batch_end = (s->next / s->batch_bytes + 1) * s->batch_bytes;
	struct ryc_op *op;

	r.flags = s->opts->flags;
	r.offset = s->next;
	r.length = (batch_end < s->end ? batch_end : s->end) - s->next;
	r.generation = s->generation;
	op = ryc_submit_one(s->client, &r);
	if (!op)
		return r.status;
	op->is_internal = true;
	ryc_publish(s->client);
	s->ops[s->n++] = op;
	s->next += r.length;
	return RY_OK;
}

static enum ry_status deliver(struct stream *s)
{
	struct ryc_op *op = s->ops[0];
	struct ry_completion done;
	enum ry_status status;

	s->ops[0] = s->ops[1];
	s->n--;
	status = ryc_op_result(s->client, op, &done);
	if (status == RY_ERR_BUDGET && s->depth > 1)
		return one_at_a_time(s);
	if (status == RY_ERR_BUDGET && s->batch_bytes > s->stripe_bytes)
		return smaller_batches(s);
	if (status)
		return status;
	status = hand_out(s, &done.lease);
	ry_lease_release(s->client, &done.lease);
	s->is_all_verified &= done.is_verified;
	if (s->stats)
		add_stats(s, &done.stats);
	return status;
}

/* The budget admits no two batches: lets the one in flight end, drops it, and goes on from the refused one. */
static enum ry_status one_at_a_time(struct stream *s)
{
	enum ry_status status = RY_OK;

	s->depth = 1;
	while (s->n > 0 && !status) {
		status = ryc_op_wait(s->client, s->ops[s->n - 1]);
		s->n--;
		if (!status)
			ryc_op_abandon(s->client, s->ops[s->n]);
	}
	s->next = s->at;
	return status;
}

/* Nor does it admit one: half of it, down to a stripe. */
static enum ry_status smaller_batches(struct stream *s)
{
	uint64_t n = s->batch_bytes / s->stripe_bytes / 2;

	s->batch_bytes = n * s->stripe_bytes;
	s->next = s->at;
	return RY_OK;
}

static enum ry_status hand_out(struct stream *s, const struct ry_lease *lease)
{
	/* The batch in flight behind this one starts where this one was to end, at s->next or one batch before. */
	uint64_t batch_end = (s->at / s->batch_bytes + 1) * s->batch_bytes;
	uint64_t want = (batch_end < s->end ? batch_end : s->end) - s->at;

	if (lease->bytes != want)
		return ryc_fail(s->client, RY_ERR_INCOMPLETE, "stream: %llu bytes at %llu instead of %llu",
			(unsigned long long)lease->bytes, (unsigned long long)s->at, (unsigned long long)want);
	for (uint32_t i = 0; i < lease->n_spans; i++) {
		if (!s->fn(s->arg, lease->spans[i].data, lease->spans[i].bytes, s->at))
			return ryc_fail(s->client, RY_ERR_CANCELLED, "stream: stopped by the caller at %llu",
				(unsigned long long)s->at);
		s->at += lease->spans[i].bytes;
	}
	return RY_OK;
}

static void add_stats(struct stream *s, const struct ry_read_stats *batch)
{
	struct ry_read_stats *sum = s->stats;

	sum->object_ns += batch->object_ns;
	sum->queue_ns += batch->queue_ns;
	sum->lookup_ns += batch->lookup_ns;
	sum->plan_ns += batch->plan_ns;
	sum->transfer_ns += batch->transfer_ns;
	sum->verify_ns += batch->verify_ns;
	sum->commit_ns += batch->commit_ns;
	sum->storage_ns += batch->storage_ns;
	sum->store_queue_ns += batch->store_queue_ns;
	sum->wire_bytes += batch->wire_bytes;
	sum->hashed_bytes += batch->hashed_bytes;
	sum->n_segments += batch->n_segments;
	if (batch->object_ns >= s->slowest_ns) {
		s->slowest_ns = batch->object_ns;
		sum->class_ref = batch->class_ref;
		sum->class_own = batch->class_own;
		sum->class_share_permille = batch->class_share_permille;
	}
	for (unsigned i = 0; i < batch->n_rails; i++)
		add_rail(sum, &batch->rails[i]);
}

static void add_rail(struct ry_read_stats *sum, const struct ry_rail_stats *rail)
{
	struct ry_rail_stats *to = NULL;

	for (unsigned i = 0; i < sum->n_rails && !to; i++) {
		if (strcmp(sum->rails[i].name, rail->name) == 0)
			to = &sum->rails[i];
	}
	if (!to && sum->n_rails == RY_RAILS_MAX)
		return;
	if (!to) {
		to = &sum->rails[sum->n_rails++];
		memcpy(to->name, rail->name, sizeof(to->name));
	}
	to->bytes += rail->bytes;
	to->busy_ns += rail->busy_ns;
	to->segments += rail->segments;
}
