/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Puts by hand through a rig: one part at a time, with any id, flags and checksums; and what the store holds after it.
 * Included by the test_node_put programs.
 */
#ifndef RY_TEST_NODE_PUT_FIXTURE_H
#define RY_TEST_NODE_PUT_FIXTURE_H

#include <criterion/criterion.h>
#include <stdlib.h>

#include "read/control_priv.h"
#include "rig_tap.h"

#define MIB (1u << 20)
#define KIB (1u << 10)
#define MS 1000000ull
#define STRIPE RIG_STRIPE_BYTES

/* One part of a streamed put; the checksums follow the bytes in the put arena. */
struct part {
	const char *key;
	uint64_t put_id;
	const uint8_t *data; /* of the whole object */
	uint64_t offset;
	uint64_t bytes;
	uint64_t arena_off;
	uint64_t size_bytes;
	uint64_t ttl_ns;
	uint32_t flags;
	uint32_t stripe_bytes; /* 0 = STRIPE */
	bool want_bad_sum;
};

static inline uint64_t submit_part(struct rig *r, struct client *c, const struct part *p)
{
	uint32_t stripe = p->stripe_bytes ? p->stripe_bytes : STRIPE;
	uint32_t n = (uint32_t)((p->bytes + stripe - 1) / stripe);
	uint64_t sums_off = p->arena_off + (p->bytes + 63) / 64 * 64;
	uint64_t *sums = (uint64_t *)(void *)(c->put_arena.base + sums_off);
	struct ry_slot *slot = &c->slots[r->next_slot % c->n_entries];
	struct ry_sqe sqe = {
		.op = RY_OP_PUT, .flags = p->flags, .offset = p->offset, .length = p->bytes, .arg = p->arena_off};

	if (p->bytes)
		memcpy(c->put_arena.base + p->arena_off, p->data + p->offset, p->bytes);
	for (uint32_t i = 0; i < n; i++) {
		uint64_t off = (uint64_t)i * stripe, left = p->bytes - off;

		sums[i] = XXH3_64bits(p->data + p->offset + off, left < stripe ? left : stripe);
	}
	if (p->want_bad_sum)
		sums[n - 1] ^= 1;
	slot->put_id[0] = p->put_id;
	slot->put_id[1] = 7;
	slot->size_bytes = p->size_bytes;
	slot->ttl_ns = p->ttl_ns;
	slot->stripe_bytes = stripe;
	slot->n_checksums = n;
	slot->checksum_offset = sums_off;
	return rig_submit(r, c, sqe, p->key, (uint16_t)strlen(p->key));
}

static inline struct ry_cqe put_part(struct rig *r, const struct part *p)
{
	return rig_wait(r, r->client, submit_part(r, r->client, p));
}

static inline struct ry_cqe query(struct rig *r, const char *key, uint64_t put_id)
{
	struct ry_slot *slot = &r->client->slots[r->next_slot % r->client->n_entries];
	struct ry_sqe sqe = {.op = RY_OP_PUT_QUERY};

	slot->put_id[0] = put_id;
	slot->put_id[1] = 7;
	return rig_wait(r, r->client, rig_submit(r, r->client, sqe, key, (uint16_t)strlen(key)));
}

static inline struct ry_cqe delete_key(struct rig *r, const char *key, uint64_t generation)
{
	struct ry_sqe sqe = {.op = RY_OP_DELETE, .arg = generation};

	return rig_wait(r, r->client, rig_submit(r, r->client, sqe, key, (uint16_t)strlen(key)));
}

/* generation 0: any; one that is new after an eviction or a delete goes on counting from what went. */
static inline void reads(struct rig *r, const char *key, const uint8_t *data, uint64_t bytes, uint64_t generation)
{
	struct ry_cqe cqe = rig_read(r, r->client, key, 0, UINT64_MAX, 0);

	cr_assert_eq(cqe.status, RY_OK, "%s: %s", key, rig_slot(r->client, &cqe)->cause);
	cr_assert(
		!generation || cqe.generation == generation, "%s: generation %lu", key, (unsigned long)cqe.generation);
	cr_assert(rig_same(r->client, &cqe, data, bytes), "%s differs", key);
	rig_release(r, r->client, cqe.lease_id);
}

static inline void missing(struct rig *r, const char *key)
{
	struct ry_cqe cqe = rig_read(r, r->client, key, 0, UINT64_MAX, 0);

	cr_assert_eq(cqe.status, RY_ERR_NOT_FOUND, "%s: %u", key, cqe.status);
}

/* The store holds this many slab bytes, now or within 100 ms (what was retired waits for the rails). */
static inline void store_holds(struct rig *r, uint64_t bytes)
{
	rig_run(r, 5 * MS);
	for (uint64_t end = r->now_ns + 100 * MS; r->now_ns < end && store_used_bytes(r->node->store) != bytes;)
		rig_step(r);
	cr_assert_eq(store_used_bytes(r->node->store), bytes, "the store holds %lu bytes, not %lu",
		(unsigned long)store_used_bytes(r->node->store), (unsigned long)bytes);
}

static inline uint8_t *filled(uint64_t bytes, uint64_t seed)
{
	uint8_t *p = malloc(bytes + 1);

	rig_fill(p, bytes, seed);
	return p;
}

static inline struct desc *cached(struct rig *r, const char *key)
{
	struct desc *d;

	TAILQ_FOREACH (d, &r->node->control->lru_descs, link) {
		if (d->key_bytes == strlen(key) && !memcmp(d->key, key, d->key_bytes))
			return d;
	}
	return NULL;
}

static inline void begin(struct rig *r, uint16_t n_rails, uint64_t bandwidth)
{
	rig_init(r, n_rails, bandwidth);
	rig_start(r);
}

/* Published at once, as if another writer's bytes had just arrived. */
static inline void overwrite_at_once(struct rig *r, const char *key, const uint8_t *data, uint64_t bytes)
{
	uint64_t sums[8] = {0};
	struct object *o;

	cr_assert(bytes <= STRIPE);
	sums[0] = XXH3_64bits(data, bytes);
	cr_assert_eq(
		store_put_begin(r->node->store, key, (uint16_t)strlen(key), STRIPE, false, 0, r->now_ns, &o), RY_OK);
	cr_assert_eq(store_put_reserve(r->node->store, o, bytes, sums, r->now_ns), RY_OK);
	memcpy(o->stripe_addr[0], data, bytes);
	cr_assert_eq(store_put_commit(r->node->store, o, bytes, r->now_ns), RY_OK);
}

#define BIG (3ull * MIB + 1000)

static inline struct part big_part(const uint8_t *data, uint64_t id, unsigned i)
{
	return (struct part){
		.key = "big",
		.put_id = id,
		.data = data,
		.offset = (uint64_t)i * MIB,
		.bytes = i < 3 ? MIB : BIG % MIB,
		.arena_off = (uint64_t)i * 2 * MIB,
		.size_bytes = i < 3 ? RY_SIZE_UNKNOWN : BIG,
		.flags = (i == 0 ? RY_F_PUT_BEGIN : 0u) | (i == 3 ? RY_F_PUT_COMMIT : 0u),
	};
}

#endif
