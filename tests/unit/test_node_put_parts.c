/* SPDX-License-Identifier: BSD-3-Clause */
/* Puts in parts, repeated, aborted and left alone; and a store that is full. */
#include "node_put_fixture.h"

/* ---- Parts ---- */

Test(node_put_parts, parts_in_flight_together)
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

Test(node_put_parts, commit_alone_and_unseen_until_then)
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

Test(node_put_parts, size_that_is_not_what_came)
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

Test(node_put_parts, part_that_does_not_follow)
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

Test(node_put_parts, repeats_get_the_same_answer)
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

/* What is answered OK is stored: an id names one object. */
Test(node_put_parts, an_id_of_another_object_is_refused)
{
	uint8_t *a = filled(MIB, 1), *b = filled(MIB, 2);
	struct part first = {.key = "a",
		.put_id = 1,
		.data = a,
		.bytes = MIB,
		.size_bytes = MIB,
		.flags = RY_F_PUT_BEGIN | RY_F_PUT_COMMIT};
	struct part other = first;
	struct ry_cqe cqe;
	struct rig r;

	begin(&r, 2, 0);
	cr_assert_eq(put_part(&r, &first).status, RY_OK);
	other.key = "b";
	other.data = b;
	cqe = put_part(&r, &other);
	cr_assert_eq(cqe.status, RY_ERR_INVALID, "another key: %u", cqe.status);
	cr_assert(strstr(rig_slot(r.client, &cqe)->cause, "another object"), "%s", rig_slot(r.client, &cqe)->cause);
	cr_assert_eq(cqe.generation, 0u);
	missing(&r, "b");
	other = first;
	other.bytes = other.size_bytes = 300000;
	cr_assert_eq(put_part(&r, &other).status, RY_ERR_INVALID, "another size");
	cr_assert_eq(query(&r, "b", 1).status, RY_ERR_INVALID, "a query with another key");
	cqe = query(&r, "a", 1);
	cr_assert(cqe.status == RY_OK && cqe.generation == 1);
	cqe = put_part(&r, &first);
	cr_assert(cqe.status == RY_OK && cqe.generation == 1, "the same put again");
	reads(&r, "a", a, MIB, 1);
	cr_assert(rig_settle(&r));
	free(a);
	free(b);
	rig_stop(&r);
}

/* Neither a part nor an abort of it reaches the put that has the id. */
Test(node_put_parts, an_open_put_is_safe_from_another_key)
{
	uint8_t *data = filled(BIG, 1);
	struct part other = {.key = "other", .put_id = 1, .data = data, .flags = 0};
	struct rig r;
	struct part p;

	begin(&r, 2, 0);
	for (unsigned i = 0; i < 3; i++) {
		p = big_part(data, 1, i);
		cr_assert_eq(put_part(&r, &p).status, RY_OK);
		cr_assert_eq(put_part(&r, &other).status, RY_ERR_INVALID, "an abort");
		p.key = "other";
		cr_assert_eq(put_part(&r, &p).status, RY_ERR_INVALID, "a part");
	}
	p = big_part(data, 1, 3);
	cr_assert_eq(put_part(&r, &p).status, RY_OK);
	reads(&r, "big", data, BIG, 1);
	missing(&r, "other");
	cr_assert(rig_settle(&r));
	free(data);
	rig_stop(&r);
}

Test(node_put_parts, a_part_that_is_being_pulled_is_repeated)
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

Test(node_put_parts, abort_in_the_middle)
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
Test(node_put_parts, writer_leaves_in_mid_pull)
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

Test(node_put_parts, writer_leaves_between_parts)
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

/* The first part says how large it will be: nothing is evicted for what can never fit. */
Test(node_put_parts, an_object_larger_than_the_store_evicts_nothing)
{
	uint8_t *a = filled(MIB, 1), *b = filled(MIB, 2);
	struct rig r;

	rig_init(&r, 2, 0);
	r.config.store_bytes = 4 * MIB;
	rig_start(&r);
	cr_assert_eq(put_whole(&r, "a", a, MIB, 1, 0).status, RY_OK);
	cr_assert_eq(put_part(&r, &(struct part){.key = "b",
					  .put_id = 2,
					  .data = b,
					  .bytes = MIB,
					  .size_bytes = 5 * MIB,
					  .flags = RY_F_PUT_BEGIN})
			     .status,
		RY_ERR_NO_SPACE);
	reads(&r, "a", a, MIB, 1);
	cr_assert_eq(stat_get(&r.node->counters.store_evictions), 0);
	free(a);
	free(b);
	rig_stop(&r);
}

Test(node_put_parts, pinned_store_is_full)
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

Test(node_put_parts, cache_makes_room_beside_a_read)
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

Test(node_put_parts, read_of_an_evicted_object_stays_exact)
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
Test(node_put_parts, parts_wait_behind_their_begin)
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
Test(node_put_parts, cache_turns_over)
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
Test(node_put_parts, object_in_scattered_memory)
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
