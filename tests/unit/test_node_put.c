/* SPDX-License-Identifier: BSD-3-Clause */
/* Puts through a whole node: generations, and failures that leave nothing behind; and reads beside them. */
#include "node_put_fixture.h"

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
