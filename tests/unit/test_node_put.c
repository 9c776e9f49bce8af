/* SPDX-License-Identifier: BSD-3-Clause */
/* Puts through a whole node: generations, parts, repeats, failures, a full store; and reads beside them. */
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

static uint64_t submit_part(struct rig *r, struct client *c, const struct part *p)
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

static struct ry_cqe put_part(struct rig *r, const struct part *p)
{
	return rig_wait(r, r->client, submit_part(r, r->client, p));
}

static struct ry_cqe query(struct rig *r, const char *key, uint64_t put_id)
{
	struct ry_slot *slot = &r->client->slots[r->next_slot % r->client->n_entries];
	struct ry_sqe sqe = {.op = RY_OP_PUT_QUERY};

	slot->put_id[0] = put_id;
	slot->put_id[1] = 7;
	return rig_wait(r, r->client, rig_submit(r, r->client, sqe, key, (uint16_t)strlen(key)));
}

static struct ry_cqe delete_key(struct rig *r, const char *key, uint64_t generation)
{
	struct ry_sqe sqe = {.op = RY_OP_DELETE, .arg = generation};

	return rig_wait(r, r->client, rig_submit(r, r->client, sqe, key, (uint16_t)strlen(key)));
}

/* generation 0: any; one that is new after an eviction or a delete goes on counting from what went. */
static void reads(struct rig *r, const char *key, const uint8_t *data, uint64_t bytes, uint64_t generation)
{
	struct ry_cqe cqe = rig_read(r, r->client, key, 0, UINT64_MAX, 0);

	cr_assert_eq(cqe.status, RY_OK, "%s: %s", key, rig_slot(r->client, &cqe)->cause);
	cr_assert(
		!generation || cqe.generation == generation, "%s: generation %lu", key, (unsigned long)cqe.generation);
	cr_assert(rig_same(r->client, &cqe, data, bytes), "%s differs", key);
	rig_release(r, r->client, cqe.lease_id);
}

static void missing(struct rig *r, const char *key)
{
	struct ry_cqe cqe = rig_read(r, r->client, key, 0, UINT64_MAX, 0);

	cr_assert_eq(cqe.status, RY_ERR_NOT_FOUND, "%s: %u", key, cqe.status);
}

/* The store holds this many slab bytes, now or within 100 ms (what was retired waits for the rails). */
static void store_holds(struct rig *r, uint64_t bytes)
{
	rig_run(r, 5 * MS);
	for (uint64_t end = r->now_ns + 100 * MS; r->now_ns < end && store_used_bytes(r->node->store) != bytes;)
		rig_step(r);
	cr_assert_eq(store_used_bytes(r->node->store), bytes, "the store holds %lu bytes, not %lu",
		(unsigned long)store_used_bytes(r->node->store), (unsigned long)bytes);
}

static uint8_t *filled(uint64_t bytes, uint64_t seed)
{
	uint8_t *p = malloc(bytes + 1);

	rig_fill(p, bytes, seed);
	return p;
}

static struct desc *cached(struct rig *r, const char *key)
{
	struct desc *d;

	TAILQ_FOREACH (d, &r->node->control->lru_descs, link) {
		if (d->key_bytes == strlen(key) && !memcmp(d->key, key, d->key_bytes))
			return d;
	}
	return NULL;
}

static void begin(struct rig *r, uint16_t n_rails, uint64_t bandwidth)
{
	rig_init(r, n_rails, bandwidth);
	rig_start(r);
}

/* ---- Generations ---- */

Test(node_put, overwrite_is_the_next_generation)
{
	struct rig r;

	begin(&r, 2, 0);
	for (uint64_t g = 1; g <= 5; g++) {
		uint8_t *data = rig_object(&r, "k", g * 300000, g);

		reads(&r, "k", data, g * 300000, g);
		free(data);
	}
	store_holds(&r, 23 * 64 * KIB); /* 1,500,000 bytes in granules */
	cr_assert(rig_settle(&r));
	rig_stop(&r);
}

/* Published at once, as if another writer's bytes had just arrived. */
static void overwrite_at_once(struct rig *r, const char *key, const uint8_t *data, uint64_t bytes)
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

/* All of the old read is under way when the new object comes: it finishes with the old bytes. */
Test(node_put, slow_read_of_the_old_generation)
{
	uint8_t *old, *new = filled(200000, 2);
	struct ry_cqe cqe;
	uint64_t ticket;
	struct rig r;

	begin(&r, 1, 50000000);
	old = rig_object(&r, "k", 2 * MIB, 1);
	ticket = rig_submit_read(&r, r.client, "k", 0, UINT64_MAX, 0, 0);
	rig_run(&r, 2 * MS);
	overwrite_at_once(&r, "k", new, 200000);
	cr_assert_eq(store_used_bytes(r.node->store), 2 * MIB + 4 * 64 * KIB, "the old bytes stay while they are read");
	cqe = rig_wait(&r, r.client, ticket);
	cr_assert_eq(cqe.status, RY_OK, "%s", rig_slot(r.client, &cqe)->cause);
	cr_assert_eq(cqe.generation, 1u);
	cr_assert(rig_same(r.client, &cqe, old, 2 * MIB));
	rig_release(&r, r.client, cqe.lease_id);
	reads(&r, "k", new, 200000, 2); /* over the stale descriptor */
	store_holds(&r, 4 * 64 * KIB);
	cr_assert(rig_settle(&r));
	free(old);
	free(new);
	rig_stop(&r);
}

/* Part of the old read was not yet asked for: a typed error, never bytes of both. */
Test(node_put, long_read_of_an_old_generation_fails_typed)
{
	uint8_t *old, *new;
	struct ry_cqe cqe;
	uint64_t ticket;
	struct rig r;

	begin(&r, 1, 100000000);
	old = rig_object(&r, "k", 12 * MIB, 1);
	ticket = rig_submit_read(&r, r.client, "k", 0, UINT64_MAX, 0, 0);
	rig_run(&r, 30 * MS);
	new = filled(300000, 2);
	cqe = put_part(&r, &(struct part){.key = "k",
				   .put_id = 1,
				   .data = new,
				   .bytes = 300000,
				   .size_bytes = 300000,
				   .flags = RY_F_PUT_BEGIN | RY_F_PUT_COMMIT});
	cr_assert(cqe.status == RY_OK && cqe.generation == 2);
	cqe = rig_wait(&r, r.client, ticket);
	cr_assert_eq(cqe.status, RY_ERR_STALE_GENERATION);
	cr_assert(cqe.lease_id == 0);
	cr_assert(rig_settle(&r));
	reads(&r, "k", new, 300000, 2);
	free(old);
	free(new);
	rig_stop(&r);
}

Test(node_put, stale_descriptor_is_refreshed_once)
{
	uint64_t lookups;
	uint8_t *data;
	struct rig r;

	begin(&r, 2, 0);
	data = rig_object(&r, "k", 3 * MIB, 1);
	reads(&r, "k", data, 3 * MIB, 1);
	lookups = stat_get(&r.node->counters.lookups);
	cached(&r, "k")->generation = 77;
	reads(&r, "k", data, 3 * MIB, 1);
	cr_assert_eq(stat_get(&r.node->counters.lookups), lookups + 1);
	cached(&r, "k")->handle ^= 1ull << 40;
	reads(&r, "k", data, 3 * MIB, 1);
	cr_assert_eq(stat_get(&r.node->counters.lookups), lookups + 2);
	reads(&r, "k", data, 3 * MIB, 1);
	cr_assert_eq(stat_get(&r.node->counters.lookups), lookups + 2, "the fresh one is cached");
	cr_assert(rig_settle(&r));
	free(data);
	rig_stop(&r);
}

/* A refresh must not need the budget twice. */
Test(node_put, refresh_within_the_budget)
{
	uint8_t *data;
	struct rig r;

	rig_init(&r, 2, 200000000);
	r.config.inflight_max_bytes = 3 * MIB;
	rig_start(&r);
	data = rig_object(&r, "k", 2 * MIB, 1);
	reads(&r, "k", data, 2 * MIB, 1);
	cached(&r, "k")->generation = 77;
	reads(&r, "k", data, 2 * MIB, 1);
	cr_assert(rig_settle(&r));
	free(data);
	rig_stop(&r);
}

Test(node_put, delete_then_missing)
{
	struct ry_cqe cqe;
	uint8_t *data;
	struct rig r;

	begin(&r, 2, 0);
	data = rig_object(&r, "k", MIB, 1);
	reads(&r, "k", data, MIB, 1);
	cqe = delete_key(&r, "k", 9);
	cr_assert_eq(cqe.status, RY_ERR_STALE_GENERATION);
	reads(&r, "k", data, MIB, 1);
	cqe = delete_key(&r, "k", 1);
	cr_assert(cqe.status == RY_OK && cqe.generation == 1);
	missing(&r, "k");
	store_holds(&r, 0);
	cqe = delete_key(&r, "k", 0);
	cr_assert_eq(cqe.status, RY_ERR_NOT_FOUND);
	free(data);
	data = rig_object(&r, "k", MIB, 2);
	reads(&r, "k", data, MIB, 2); /* goes on counting */
	cr_assert(rig_settle(&r));
	free(data);
	rig_stop(&r);
}

/* Deleted by somebody else, while our descriptor still names it. */
Test(node_put, deleted_behind_our_back)
{
	uint64_t generation;
	uint8_t *data;
	struct rig r;

	begin(&r, 2, 0);
	data = rig_object(&r, "k", MIB, 1);
	reads(&r, "k", data, MIB, 1);
	cr_assert_eq(store_delete(r.node->store, "k", 1, 0, r.now_ns, &generation), RY_OK);
	missing(&r, "k");
	cr_assert(rig_settle(&r));
	free(data);
	rig_stop(&r);
}

Test(node_put, if_absent)
{
	uint8_t *data = filled(MIB, 1);
	struct part p = {.key = "k",
		.put_id = 1,
		.data = data,
		.bytes = MIB,
		.size_bytes = MIB,
		.flags = RY_F_PUT_BEGIN | RY_F_PUT_COMMIT | RY_F_IF_ABSENT};
	uint64_t a, b;
	struct ry_cqe cqe;
	struct rig r;

	begin(&r, 2, 0);
	cr_assert_eq(put_part(&r, &p).status, RY_OK);
	p.put_id = 2;
	cr_assert_eq(put_part(&r, &p).status, RY_ERR_EXISTS);
	reads(&r, "k", data, MIB, 1);
	/* Two at once for a new key: one wins, whichever. */
	p.key = "new";
	p.put_id = 3;
	a = submit_part(&r, r.client, &p);
	p.put_id = 4;
	p.arena_off = 2 * MIB;
	b = submit_part(&r, r.client, &p);
	for (unsigned n = 0, ok = 0; n < 2;) {
		rig_step(&r);
		while (rig_reap(&r, r.client, &cqe)) {
			cr_assert(cqe.ticket == a || cqe.ticket == b);
			cr_assert(cqe.status == RY_OK || cqe.status == RY_ERR_EXISTS, "%u", cqe.status);
			ok += cqe.status == RY_OK;
			n++;
			cr_assert(n < 2 || ok == 1, "%u of 2 won", ok);
		}
	}
	reads(&r, "new", data, MIB, 1);
	store_holds(&r, 2 * MIB);
	cr_assert(rig_settle(&r));
	free(data);
	rig_stop(&r);
}

Test(node_put, ttl)
{
	uint8_t *data = filled(MIB, 1);
	struct rig r;

	begin(&r, 2, 0);
	cr_assert_eq(put_part(&r, &(struct part){.key = "k",
					  .put_id = 1,
					  .data = data,
					  .bytes = MIB,
					  .size_bytes = MIB,
					  .ttl_ns = 20 * MS,
					  .flags = RY_F_PUT_BEGIN | RY_F_PUT_COMMIT})
			     .status,
		RY_OK);
	reads(&r, "k", data, MIB, 1);
	rig_run(&r, 25 * MS);
	missing(&r, "k");
	store_holds(&r, 0);
	free(data);
	rig_stop(&r);
}

/* ---- Failures leave nothing behind ---- */

Test(node_put, wrong_checksum)
{
	uint8_t *old, *data = filled(3 * MIB, 2);
	struct part p = {.key = "k",
		.put_id = 1,
		.data = data,
		.bytes = 3 * MIB,
		.size_bytes = 3 * MIB,
		.flags = RY_F_PUT_BEGIN | RY_F_PUT_COMMIT,
		.want_bad_sum = true};
	struct ry_cqe cqe;
	struct rig r;

	begin(&r, 2, 200000000);
	cqe = put_part(&r, &p);
	cr_assert_eq(cqe.status, RY_ERR_CHECKSUM, "%u", cqe.status);
	cr_assert(strstr(rig_slot(r.client, &cqe)->cause, "stripe 11"), "%s", rig_slot(r.client, &cqe)->cause);
	missing(&r, "k");
	store_holds(&r, 0);
	cr_assert_eq(r.node->control->n_putins, 0u);
	old = rig_object(&r, "k", MIB, 1);
	p.put_id = 2;
	cr_assert_eq(put_part(&r, &p).status, RY_ERR_CHECKSUM);
	reads(&r, "k", old, MIB, 1); /* what was there stays */
	store_holds(&r, MIB);
	cr_assert_eq(query(&r, "k", 2).status, RY_ERR_CHECKSUM);
	cr_assert(rig_settle(&r));
	free(data);
	free(old);
	rig_stop(&r);
}

Test(node_put, part_outside_the_arena)
{
	struct ry_slot *slot;
	struct rig r;

	begin(&r, 1, 0);
	for (int i = 0; i < 9; i++) {
		struct ry_sqe sqe = {
			.op = RY_OP_PUT, .flags = RY_F_PUT_BEGIN | RY_F_PUT_COMMIT, .length = MIB, .arg = 0};
		uint64_t arena = r.client->put_arena.bytes;
		struct ry_cqe cqe;

		slot = &r.client->slots[r.next_slot % r.client->n_entries];
		*slot = (struct ry_slot){.put_id = {(uint64_t)i, 1},
			.size_bytes = MIB,
			.stripe_bytes = STRIPE,
			.n_checksums = 4,
			.checksum_offset = 2 * MIB};
		if (i == 0)
			sqe.arg = arena - MIB + 1;
		if (i == 1)
			sqe.arg = UINT64_MAX - MIB + 1;
		if (i == 2)
			slot->checksum_offset = arena - 24;
		if (i == 3)
			slot->checksum_offset = UINT64_MAX - 31;
		if (i == 4)
			slot->checksum_offset = 2 * MIB + 4;
		if (i == 5)
			slot->n_checksums = 3;
		if (i == 6)
			slot->stripe_bytes = 4096;
		if (i == 7)
			sqe.offset = 1;
		if (i == 8)
			sqe.length = UINT64_MAX;
		cqe = rig_wait(&r, r.client, rig_submit(&r, r.client, sqe, "k", 1));
		cr_assert_eq(cqe.status, RY_ERR_INVALID, "case %d: %u", i, cqe.status);
	}
	missing(&r, "k");
	store_holds(&r, 0);
	cr_assert(rig_settle(&r));
	rig_stop(&r);
}

/* ---- Parts ---- */

#define BIG (3ull * MIB + 1000)

static struct part big_part(const uint8_t *data, uint64_t id, unsigned i)
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

Test(node_put, parts_in_flight_together)
{
	uint8_t *data = filled(BIG, 1);
	uint64_t t[4];
	struct rig r;

	begin(&r, 2, 100000000);
	for (unsigned i = 0; i < 4; i++) {
		struct part p = big_part(data, 1, i);

		t[i] = submit_part(&r, r.client, &p);
	}
	for (unsigned n = 0; n < 4;) {
		struct ry_cqe cqe;

		rig_step(&r);
		while (rig_reap(&r, r.client, &cqe)) {
			cr_assert_eq(cqe.status, RY_OK, "%s", rig_slot(r.client, &cqe)->cause);
			cr_assert_eq(cqe.generation, cqe.ticket == t[3] ? 1u : 0u);
			n++;
		}
	}
	reads(&r, "big", data, BIG, 1);
	cr_assert(rig_settle(&r));
	free(data);
	rig_stop(&r);
}

Test(node_put, commit_alone_and_unseen_until_then)
{
	uint8_t *data = filled(BIG, 1);
	struct rig r;

	begin(&r, 2, 0);
	for (unsigned i = 0; i < 4; i++) {
		struct part p = big_part(data, 1, i);

		p.flags &= ~(uint32_t)RY_F_PUT_COMMIT;
		cr_assert_eq(put_part(&r, &p).status, RY_OK);
		missing(&r, "big");
		cr_assert_eq(query(&r, "big", 1).status, RY_OK);
		cr_assert_eq(query(&r, "big", 1).generation, 0u, "open");
	}
	cr_assert_eq(put_part(&r, &(struct part){.key = "big",
					  .put_id = 1,
					  .size_bytes = BIG,
					  .offset = 4 * MIB,
					  .flags = RY_F_PUT_COMMIT})
			     .generation,
		1u);
	reads(&r, "big", data, BIG, 1);
	cr_assert(rig_settle(&r));
	free(data);
	rig_stop(&r);
}

Test(node_put, size_that_is_not_what_came)
{
	uint8_t *data = filled(BIG, 1);
	struct rig r;

	begin(&r, 2, 0);
	for (unsigned i = 0; i < 4; i++) {
		struct part p = big_part(data, 1, i);

		if (i == 3)
			p.size_bytes++;
		cr_assert_eq(put_part(&r, &p).status, i < 3 ? RY_OK : RY_ERR_INVALID);
	}
	missing(&r, "big");
	store_holds(&r, 0);
	free(data);
	rig_stop(&r);
}

Test(node_put, part_that_does_not_follow)
{
	uint8_t *data = filled(BIG, 1);
	struct part p = big_part(data, 1, 0);
	struct rig r;

	begin(&r, 2, 0);
	cr_assert_eq(put_part(&r, &p).status, RY_OK);
	p = big_part(data, 1, 2);
	cr_assert_eq(put_part(&r, &p).status, RY_ERR_PROTOCOL);
	store_holds(&r, 0);
	p = big_part(data, 9, 1);
	cr_assert_eq(put_part(&r, &p).status, RY_ERR_NOT_FOUND, "without BEGIN");
	store_holds(&r, 0);
	free(data);
	rig_stop(&r);
}

Test(node_put, repeats_get_the_same_answer)
{
	uint8_t *data = filled(BIG, 1);
	struct ry_cqe cqe;
	uint64_t pulled;
	struct part p;
	struct rig r;

	begin(&r, 1, 0);
	for (unsigned i = 0; i < 4; i++) {
		p = big_part(data, 1, i);
		cr_assert_eq(put_part(&r, &p).status, RY_OK);
		pulled = stat_get(&r.node->rails[0]->counters.rx_bytes);
		cqe = put_part(&r, &p); /* its answer was lost */
		cr_assert(cqe.status == RY_OK && cqe.generation == (i == 3 ? 1u : 0u), "part %u: %s", i,
			rig_slot(r.client, &cqe)->cause);
		cr_assert_eq(stat_get(&r.node->rails[0]->counters.rx_bytes), pulled, "pulled once");
	}
	p = big_part(data, 1, 0);
	cr_assert_eq(put_part(&r, &p).generation, 1u, "any part of a settled put");
	cqe = query(&r, "big", 1);
	cr_assert(cqe.status == RY_OK && cqe.generation == 1);
	cr_assert_eq(query(&r, "big", 99).status, RY_ERR_NOT_FOUND);
	reads(&r, "big", data, BIG, 1);
	store_holds(&r, 3 * MIB + 64 * KIB);
	free(data);
	rig_stop(&r);
}

Test(node_put, a_part_that_is_being_pulled_is_repeated)
{
	uint8_t *data = filled(BIG, 1);
	uint64_t a, b;
	struct ry_cqe cqe;
	struct part p = big_part(data, 1, 0);
	struct rig r;

	begin(&r, 1, 50000000);
	p.flags |= RY_F_PUT_COMMIT;
	p.size_bytes = MIB;
	a = submit_part(&r, r.client, &p);
	rig_run(&r, 5 * MS);
	rig_cancel(&r, r.client, a);
	cqe = rig_wait(&r, r.client, a);
	cr_assert_eq(cqe.status, RY_ERR_UNKNOWN_OUTCOME);
	b = submit_part(&r, r.client, &p);
	cqe = rig_wait(&r, r.client, b);
	/* The first source went with its operation, so the pull may have failed; but the answer is one, and it is true.
	 */
	cr_assert_eq(query(&r, "big", 1).status, cqe.status);
	if (cqe.status == RY_OK)
		reads(&r, "big", data, MIB, 1);
	else
		missing(&r, "big");
	cr_assert(rig_settle(&r));
	store_holds(&r, cqe.status == RY_OK ? MIB : 0);
	free(data);
	rig_stop(&r);
}

Test(node_put, abort_in_the_middle)
{
	uint8_t *data = filled(BIG, 1);
	struct part p = big_part(data, 1, 0);
	struct rig r;

	begin(&r, 2, 0);
	cr_assert_eq(put_part(&r, &p).status, RY_OK);
	p = big_part(data, 1, 1);
	submit_part(&r, r.client, &p);
	p = (struct part){.key = "big", .put_id = 1, .size_bytes = RY_SIZE_UNKNOWN};
	cr_assert_eq(put_part(&r, &p).status, RY_OK);
	store_holds(&r, 0);
	cr_assert_eq(r.node->control->n_putins, 0u);
	cr_assert_eq(query(&r, "big", 1).status, RY_ERR_CANCELLED);
	p.put_id = 55;
	cr_assert_eq(put_part(&r, &p).status, RY_OK, "of a put that nobody knows");
	missing(&r, "big");
	cr_assert(rig_settle(&r));
	free(data);
	rig_stop(&r);
}

/* The put arena is gone with its client; what the store was pulling from it must end without touching it. */
Test(node_put, writer_leaves_in_mid_pull)
{
	uint8_t *data = filled(BIG, 1);
	struct part p = big_part(data, 1, 0);
	struct client *c;
	struct rig r;

	rig_init(&r, 2, 20000000);
	r.config.read_deadline_ns = 200 * MS;
	rig_start(&r);
	c = rig_attach(&r, 2 * MIB);
	submit_part(&r, c, &p);
	rig_run(&r, 5 * MS);
	cr_assert_eq(store_used_bytes(r.node->store), MIB);
	cr_assert(rig_detach(&r, c));
	rig_run(&r, 450 * MS);
	store_holds(&r, 0);
	cr_assert_eq(r.node->control->n_putins, 0u);
	cr_assert(rig_settle(&r));
	free(data);
	rig_stop(&r);
}

Test(node_put, writer_leaves_between_parts)
{
	uint8_t *data = filled(BIG, 1);
	struct part p = big_part(data, 1, 0);
	struct client *c;
	struct rig r;

	rig_init(&r, 2, 0);
	r.config.read_deadline_ns = 50 * MS;
	rig_start(&r);
	c = rig_attach(&r, 2 * MIB);
	cr_assert_eq(rig_wait(&r, c, submit_part(&r, c, &p)).status, RY_OK);
	cr_assert(rig_detach(&r, c));
	cr_assert_eq(store_used_bytes(r.node->store), MIB, "somebody may go on with it");
	rig_run(&r, 60 * MS);
	store_holds(&r, 0);
	cr_assert_eq(r.node->control->n_putins, 0u);
	cr_assert_eq(query(&r, "big", 1).status, RY_ERR_TIMEOUT);
	free(data);
	rig_stop(&r);
}

/* ---- A full store ---- */

static struct ry_cqe put_whole(
	struct rig *r, const char *key, const uint8_t *data, uint64_t bytes, uint64_t id, uint32_t stripe)
{
	return put_part(r, &(struct part){.key = key,
				   .put_id = id,
				   .data = data,
				   .bytes = bytes,
				   .size_bytes = bytes,
				   .stripe_bytes = stripe,
				   .flags = RY_F_PUT_BEGIN | RY_F_PUT_COMMIT});
}

Test(node_put, pinned_store_is_full)
{
	uint8_t *a = filled(3 * MIB, 1), *b = filled(2 * MIB, 2);
	struct rig r;

	rig_init(&r, 2, 0);
	r.config.store_bytes = 4 * MIB;
	r.config.tier = TIER_PINNED;
	rig_start(&r);
	cr_assert_eq(put_whole(&r, "a", a, 3 * MIB, 1, 0).status, RY_OK);
	cr_assert_eq(put_whole(&r, "b", b, 2 * MIB, 2, 0).status, RY_ERR_NO_SPACE);
	missing(&r, "b");
	reads(&r, "a", a, 3 * MIB, 1);
	store_holds(&r, 3 * MIB);
	cr_assert_eq(put_whole(&r, "b", b, MIB, 3, 0).status, RY_OK);
	reads(&r, "b", b, MIB, 1);
	cr_assert(rig_settle(&r));
	free(a);
	free(b);
	rig_stop(&r);
}

Test(node_put, cache_makes_room_beside_a_read)
{
	uint8_t *a = filled(2 * MIB, 1), *b = filled(3 * MIB, 2);
	struct ry_cqe cqe;
	uint64_t ticket;
	struct rig r;

	rig_init(&r, 1, 100000000);
	r.config.store_bytes = 4 * MIB;
	rig_start(&r);
	cr_assert_eq(put_whole(&r, "a", a, 2 * MIB, 1, 0).status, RY_OK);
	ticket = rig_submit_read(&r, r.client, "a", 0, UINT64_MAX, 0, 0);
	rig_run(&r, 2 * MS);
	/* "a" is evicted for it, but its memory is still being read: the put waits, the read stays exact. */
	cqe = put_whole(&r, "b", b, 3 * MIB, 2, 0);
	cr_assert_eq(cqe.status, RY_OK, "%s", rig_slot(r.client, &cqe)->cause);
	reads(&r, "b", b, 3 * MIB, 0);
	missing(&r, "a");
	cr_assert_eq(stat_get(&r.node->counters.store_evictions), 1u);
	free(b);
	(void)ticket;
	free(a);
	rig_stop(&r);
}

Test(node_put, read_of_an_evicted_object_stays_exact)
{
	uint8_t *a = filled(2 * MIB, 1), *b = filled(3 * MIB, 2);
	struct ry_cqe get, put = {0};
	uint64_t t_get, t_put;
	bool has_get = false, has_put = false;
	struct rig r;

	rig_init(&r, 1, 100000000);
	r.config.store_bytes = 4 * MIB;
	rig_start(&r);
	cr_assert_eq(put_whole(&r, "a", a, 2 * MIB, 1, 0).status, RY_OK);
	t_get = rig_submit_read(&r, r.client, "a", 0, UINT64_MAX, 0, 0);
	rig_run(&r, 2 * MS);
	t_put = submit_part(&r, r.client,
		&(struct part){.key = "b",
			.put_id = 2,
			.data = b,
			.bytes = 3 * MIB,
			.size_bytes = 3 * MIB,
			.flags = RY_F_PUT_BEGIN | RY_F_PUT_COMMIT});
	for (struct ry_cqe cqe; !has_get || !has_put;) {
		rig_step(&r);
		while (rig_reap(&r, r.client, &cqe)) {
			has_get |= cqe.ticket == t_get;
			has_put |= cqe.ticket == t_put;
			*(cqe.ticket == t_get ? &get : &put) = cqe;
		}
	}
	cr_assert(rig_same(r.client, &get, a, 2 * MIB), "%u", get.status);
	cr_assert_eq(put.status, RY_OK);
	cr_assert_gt(put.done_ns, get.done_ns, "the memory was free only then");
	rig_release(&r, r.client, get.lease_id);
	reads(&r, "b", b, 3 * MIB, 0);
	cr_assert(rig_settle(&r));
	free(a);
	free(b);
	rig_stop(&r);
}

/* No record is free for another object as long as readers hold the old ones: BEGIN waits, and its next part behind it.
 */
Test(node_put, parts_wait_behind_their_begin)
{
	uint8_t *small = filled(200000, 1), *data = filled(BIG, 2);
	unsigned n_reads = 0, n_parts = 0;
	uint64_t t[4];
	struct rig r;

	rig_init(&r, 4, 10000000);
	r.config.max_objects = 1;
	r.config.descriptor_cache_entries = 256;
	r.config.depth_min_bytes = 64 * MIB;
	r.config.ring_entries = 256;
	rig_start(&r);
	while (n_reads < 65) {
		overwrite_at_once(&r, "old", small, 200000);
		if (n_reads) {
			struct ry_sqe sqe = {.op = RY_OP_LOOKUP}; /* drops the old descriptor */

			rig_submit(&r, r.client, sqe, "old", 3);
		}
		rig_submit_read(&r, r.client, "old", 0, UINT64_MAX, 0, 0);
		rig_run(&r, 200000);
		n_reads++;
		if (store_n_retired(r.node->store) >= 64)
			break;
	}
	cr_assert_eq(store_n_retired(r.node->store), 64u, "%u", store_n_retired(r.node->store));
	for (unsigned i = 0; i < 4; i++) {
		struct part p = big_part(data, 1, i);

		t[i] = submit_part(&r, r.client, &p);
	}
	for (uint64_t end = r.now_ns + 2000 * MS; (n_parts < 4 || n_reads) && r.now_ns < end;) {
		struct ry_cqe cqe;

		rig_step(&r);
		while (rig_reap(&r, r.client, &cqe)) {
			cr_assert_eq(cqe.status, RY_OK, "%s", rig_slot(r.client, &cqe)->cause);
			n_parts += cqe.ticket >= t[0] && cqe.ticket <= t[3];
			n_reads -= cqe.op == RY_OP_READ;
			if (cqe.op == RY_OP_READ) {
				cr_assert(rig_same(r.client, &cqe, small, 200000));
				rig_release(&r, r.client, cqe.lease_id);
			}
		}
	}
	cr_assert_eq(n_parts, 4u);
	reads(&r, "big", data, BIG, 0);
	cr_assert(rig_settle(&r));
	free(small);
	free(data);
	rig_stop(&r);
}

/* Puts that evict each other, one after the other, small and large. */
Test(node_put, cache_turns_over)
{
	uint8_t *data = filled(3 * MIB, 1);
	struct rig r;

	rig_init(&r, 2, 0);
	r.config.store_bytes = 4 * MIB;
	rig_start(&r);
	for (uint64_t i = 1; i <= 40; i++) {
		uint64_t bytes = 1 + i * 7919 * 1013 % (3 * MIB);
		char key[16];
		struct ry_cqe cqe;

		snprintf(key, sizeof(key), "k%lu", (unsigned long)i);
		cqe = put_whole(&r, key, data, bytes, i, 64 * KIB);
		cr_assert_eq(cqe.status, RY_OK, "%s: %s", key, rig_slot(r.client, &cqe)->cause);
		reads(&r, key, data, bytes, cqe.generation);
	}
	cr_assert(rig_settle(&r));
	free(data);
	rig_stop(&r);
}

/* Stripes of an object lie where there were gaps: neighbours in the object are none in memory. */
Test(node_put, object_in_scattered_memory)
{
	uint8_t *small[48], *data = filled(24 * 64 * KIB - 5, 99);
	char key[16];
	struct rig r;

	rig_init(&r, 2, 0);
	r.config.store_bytes = 48 * 64 * KIB;
	r.config.tier = TIER_PINNED;
	rig_start(&r);
	for (unsigned i = 0; i < 48; i++) {
		snprintf(key, sizeof(key), "s%u", i);
		small[i] = filled(64 * KIB, i + 1);
		cr_assert_eq(put_whole(&r, key, small[i], 64 * KIB, i + 1, 64 * KIB).status, RY_OK);
	}
	for (unsigned i = 0; i < 48; i += 2) {
		snprintf(key, sizeof(key), "s%u", i);
		cr_assert_eq(delete_key(&r, key, 0).status, RY_OK);
	}
	store_holds(&r, 24 * 64 * KIB);
	cr_assert_eq(put_whole(&r, "scattered", data, 24 * 64 * KIB - 5, 1000, 64 * KIB).status, RY_OK);
	reads(&r, "scattered", data, 24 * 64 * KIB - 5, 0);
	for (unsigned i = 0; i < 48; i++) {
		snprintf(key, sizeof(key), "s%u", i);
		if (i % 2)
			reads(&r, key, small[i], 64 * KIB, 1);
		free(small[i]);
	}
	cr_assert(rig_settle(&r));
	free(data);
	rig_stop(&r);
}
