/* SPDX-License-Identifier: BSD-3-Clause */
#include "store_fixture.h"

#include <xxhash.h>

#include <errno.h>
#include <malloc.h>
#include <rte_malloc.h>
#include <signal.h>

static void setup(void)
{
	fixture_eal();
	fixture_store(8 * MIB, 64, true);
}

TestSuite(store, .init = setup);

Test(store, create_refuses_what_cannot_work)
{
	struct store_conf good = {
		.data_bytes = MIB, .max_objects = 8, .slab = slab, .sources = sources, .counters = &counters};
	struct store_conf c;
	struct store *s = NULL;

	c = good;
	c.max_objects = 0;
	cr_assert_eq(store_create(&c, &s), -EINVAL);
	c = good;
	c.data_bytes = slab.bytes + 1;
	cr_assert_eq(store_create(&c, &s), -EINVAL);
	c = good;
	c.sources = NULL;
	cr_assert_eq(store_create(&c, &s), -EINVAL);
	cr_assert_null(s);
	cr_assert_eq(store_create(&good, &s), 0, "a second store in one process");
	store_destroy(s);
	store_destroy(NULL);
}

Test(store, an_empty_store_finds_nothing)
{
	cr_assert_null(lookup("a"));
	cr_assert_null(store_lookup(st, "", 0, now));
	cr_assert_eq(store_n_objects(st), 0);
	cr_assert_eq(store_used_bytes(st), 0);
	cr_assert_eq(del("a", 0), RY_ERR_NOT_FOUND);
	cr_assert_not(store_housekeep(st, now));
}

Test(store, put_is_invisible_until_commit)
{
	struct object *o;

	cr_assert_eq(begin("key", false, 0, &o), RY_OK);
	cr_assert_eq(o->state, OBJECT_WRITING);
	cr_assert_null(o->source);
	cr_assert_eq(o->size_bytes, RY_SIZE_UNKNOWN);
	cr_assert_eq(reserve(o, 3 * STRIPE + 5, 100), RY_OK);
	cr_assert_null(lookup("key"));
	cr_assert_eq(store_n_objects(st), 0);
	cr_assert_eq(store_used_bytes(st), 4 * STRIPE);

	cr_assert_eq(store_put_commit(st, o, 3 * STRIPE + 5, now), RY_OK);
	cr_assert_eq(lookup("key"), o);
	cr_assert_eq(o->state, OBJECT_LIVE);
	cr_assert_eq(o->generation, 1);
	cr_assert_eq(o->size_bytes, 3 * STRIPE + 5);
	cr_assert_eq(o->n_stripes, 4);
	cr_assert_eq(store_n_objects(st), 1);
	cr_assert_eq(counters.store_puts, 1);
	cr_assert_eq(counters.objects, 1);
	cr_assert_eq(counters.store_bytes, 4 * STRIPE);
}

Test(store, commit_fills_the_source)
{
	const struct source *s;
	struct object *o;

	begin("key", false, 500, &o);
	reserve(o, STRIPE + 10, 7);
	for (int i = 0; i < 2; i++)
		memset(o->stripe_addr[i], 'a' + i, i ? 10 : STRIPE);
	store_put_commit(st, o, STRIPE + 10, now);
	s = pin("key", 1);
	cr_assert_eq(s->generation, 1);
	cr_assert_eq(s->size_bytes, STRIPE + 10);
	cr_assert_eq(s->stripe_bytes, STRIPE);
	cr_assert_eq(s->stripe_count, 2);
	cr_assert_eq(s->first_stripe, 0);
	cr_assert_eq(s->expires_ns, now + 500);
	cr_assert_eq(source_addr(s, 0, STRIPE - 1, 1)[0], 'a');
	cr_assert_eq(source_addr(s, 1, 9, 1)[0], 'b');
	cr_assert_null(source_addr(s, 1, 10, 1));
}

Test(store, etag_is_the_hash_of_checksums_and_size)
{
	uint64_t words[] = {41, 42, 43, 2 * STRIPE + 1};
	struct object *o;

	begin("key", false, 0, &o);
	reserve(o, 2 * STRIPE + 1, 41);
	store_put_commit(st, o, 2 * STRIPE + 1, now);
	cr_assert_eq(o->etag, XXH3_64bits(words, sizeof(words)));
	cr_assert_eq(o->checksums[2], 43);
}

Test(store, an_empty_object_is_an_object)
{
	uint64_t zero = 0;

	cr_assert_eq(put("empty", 0), RY_OK);
	cr_assert(lookup("empty"));
	cr_assert_eq(lookup("empty")->n_stripes, 0);
	cr_assert_eq(lookup("empty")->etag, XXH3_64bits(&zero, 8));
	cr_assert_eq(store_used_bytes(st), 0);
	cr_assert_eq(del("empty", 0), RY_OK);
	cr_assert(store_housekeep(st, now));
}

Test(store, keys_are_bytes_and_compared_whole)
{
	uint8_t a[RY_KEY_MAX_BYTES] = {0}, b[RY_KEY_MAX_BYTES] = {0};
	struct object *oa, *ob;

	b[RY_KEY_MAX_BYTES - 1] = 1;
	cr_assert_eq(store_put_begin(st, a, sizeof(a), STRIPE, false, 0, now, &oa), RY_OK);
	cr_assert_eq(store_put_begin(st, b, sizeof(b), STRIPE, false, 0, now, &ob), RY_OK);
	store_put_commit(st, oa, 0, now);
	store_put_commit(st, ob, 0, now);
	cr_assert_eq(store_lookup(st, a, sizeof(a), now), oa);
	cr_assert_eq(store_lookup(st, b, sizeof(b), now), ob);
	cr_assert_null(store_lookup(st, a, sizeof(a) - 1, now));
}

Test(store, begin_refuses_senseless_arguments)
{
	struct object *o = NULL;

	cr_assert_eq(store_put_begin(st, "k", 0, STRIPE, false, 0, now, &o), RY_ERR_INVALID);
	cr_assert_eq(store_put_begin(st, "k", RY_KEY_MAX_BYTES + 1, STRIPE, false, 0, now, &o), RY_ERR_INVALID);
	cr_assert_eq(store_put_begin(st, "k", 1, STRIPE - 4096, false, 0, now, &o), RY_ERR_INVALID);
	cr_assert_eq(store_put_begin(st, "k", 1, STRIPE + 1, false, 0, now, &o), RY_ERR_INVALID);
	cr_assert_eq(store_put_begin(st, "k", 1, RY_STRIPE_MAX_BYTES + 4096, false, 0, now, &o), RY_ERR_INVALID);
	cr_assert_null(o);
}

Test(store, many_parts_make_one_object)
{
	struct object *o;

	begin("key", false, 0, &o);
	for (int i = 0; i < 20; i++)
		cr_assert_eq(reserve(o, (1 + i % 3) * STRIPE, 1000), RY_OK);
	cr_assert_eq(reserve(o, 17, 1000), RY_OK);
	cr_assert_eq(store_put_commit(st, o, o->reserved_bytes, now), RY_OK);
	cr_assert_eq(o->n_stripes, 40);
	for (uint32_t i = 0; i < o->n_stripes; i++) {
		cr_assert_eq(o->checksums[i], 1000 + i, "tables keep their content when they grow");
		for (uint32_t k = 0; k < i; k++)
			cr_assert_neq(o->stripe_addr[k], o->stripe_addr[i]);
	}
}

Test(store, a_part_after_a_short_stripe_is_refused)
{
	struct object *o;

	begin("key", false, 0, &o);
	cr_assert_eq(reserve(o, STRIPE + 1, 0), RY_OK);
	cr_assert_eq(reserve(o, STRIPE, 0), RY_ERR_INVALID);
	cr_assert_eq(o->n_stripes, 2);
	cr_assert_eq(reserve(o, 0, 0), RY_OK, "an empty last part is none");
	cr_assert_eq(store_put_commit(st, o, STRIPE + 1, now), RY_OK);
}

Test(store, commit_with_another_size_aborts)
{
	struct object *o;

	begin("key", false, 0, &o);
	reserve(o, 2 * STRIPE, 0);
	cr_assert_eq(store_put_commit(st, o, 2 * STRIPE - 1, now), RY_ERR_INVALID);
	cr_assert_null(lookup("key"));
	cr_assert_eq(store_used_bytes(st), 0);
	cr_assert_eq(counters.store_puts, 0);
}

Test(store, overwrite_makes_the_next_generation_and_old_readers_finish)
{
	const struct source *old;
	struct source *held;

	put("key", STRIPE);
	held = pin("key", 0);
	old = held;
	cr_assert_eq(put("key", 2 * STRIPE), RY_OK);
	cr_assert_eq(lookup("key")->generation, 2);
	cr_assert_eq(store_n_objects(st), 1);
	cr_assert_eq(store_n_retired(st), 1);
	cr_assert_not(store_housekeep(st, now), "still read");
	cr_assert_eq(old->generation, 1);
	cr_assert(source_addr(old, 0, 0, STRIPE));
	cr_assert_eq(store_used_bytes(st), 3 * STRIPE);
	source_unpin(held, 0);
	cr_assert(store_housekeep(st, now));
	cr_assert_eq(store_used_bytes(st), 2 * STRIPE);
	cr_assert_eq(store_n_retired(st), 0);
}

Test(store, a_rail_that_has_not_reported_holds_memory_back)
{
	rte_rcu_qsbr_thread_online(sources->qsbr, 0);
	put("key", STRIPE);
	del("key", 0);
	cr_assert_not(store_housekeep(st, now));
	cr_assert_eq(store_used_bytes(st), STRIPE);
	rte_rcu_qsbr_quiescent(sources->qsbr, 0);
	cr_assert(store_housekeep(st, now));
	cr_assert_eq(store_used_bytes(st), 0);
}

Test(store, one_slow_reader_does_not_hold_the_others_back)
{
	struct source *held;

	put("slow", STRIPE);
	held = pin("slow", 0);
	del("slow", 0);
	for (int i = 0; i < 10; i++) {
		put("fast", STRIPE);
		del("fast", 0);
		cr_assert(store_housekeep(st, now));
		cr_assert_eq(store_used_bytes(st), STRIPE);
	}
	source_unpin(held, 0);
	cr_assert(store_housekeep(st, now));
	cr_assert_eq(store_n_retired(st), 0);
}

Test(store, generations_are_never_reused)
{
	uint64_t last = 0;

	for (int round = 0; round < 5; round++) {
		for (int i = 0; i <= round; i++) {
			put("key", STRIPE);
			cr_assert_gt(lookup("key")->generation, last);
			last = lookup("key")->generation;
		}
		cr_assert_eq(del("key", 0), RY_OK);
		store_housekeep(st, now);
	}
	put("other", 1);
	cr_assert_gt(lookup("other")->generation, 0);
}

Test(store, delete_compares_the_generation)
{
	uint64_t deleted = 99;

	put("key", STRIPE);
	put("key", STRIPE);
	cr_assert_eq(store_delete(st, "key", 3, 1, now, &deleted), RY_ERR_STALE_GENERATION);
	cr_assert_eq(deleted, 99, "written only on success");
	cr_assert(lookup("key"));
	cr_assert_eq(store_delete(st, "key", 3, 2, now, &deleted), RY_OK);
	cr_assert_eq(deleted, 2);
	cr_assert_null(lookup("key"));
	cr_assert_eq(store_delete(st, "key", 3, 2, now, &deleted), RY_ERR_NOT_FOUND);
}

Test(store, a_deleted_object_can_no_longer_be_pinned)
{
	struct object *o;
	uint64_t handle;
	uint32_t status;

	put("key", STRIPE);
	o = lookup("key");
	handle = o->source->handle;
	del("key", 0);
	cr_assert_null(source_pin(sources, handle, 1, 0, now, &status, false));
	cr_assert_eq(status, RY_ERR_STALE_GENERATION);
}

Test(store, if_absent_is_checked_at_begin_and_at_commit)
{
	struct object *a, *b;

	cr_assert_eq(begin("key", true, 0, &a), RY_OK);
	cr_assert_eq(begin("key", true, 0, &b), RY_OK);
	reserve(a, STRIPE, 0);
	reserve(b, STRIPE, 0);
	cr_assert_eq(store_put_commit(st, a, STRIPE, now), RY_OK);
	cr_assert_eq(store_put_commit(st, b, STRIPE, now), RY_ERR_EXISTS, "lost the race");
	cr_assert_eq(lookup("key"), a);
	cr_assert_eq(store_used_bytes(st), STRIPE, "the loser gave everything back");
	cr_assert_eq(begin("key", true, 0, &b), RY_ERR_EXISTS);
	del("key", 0);
	cr_assert_eq(begin("key", true, 0, &b), RY_OK);
	store_put_abort(st, b);
}

Test(store, two_plain_puts_race_and_the_last_commit_wins)
{
	struct object *a, *b;

	begin("key", false, 0, &a);
	begin("key", false, 0, &b);
	cr_assert_eq(store_put_commit(st, b, 0, now), RY_OK);
	cr_assert_eq(store_put_commit(st, a, 0, now), RY_OK);
	cr_assert_eq(lookup("key"), a);
	cr_assert_eq(a->generation, 2);
	cr_assert_eq(store_n_objects(st), 1);
}

Test(store, abort_gives_everything_back)
{
	char key[RY_KEY_MAX_BYTES];
	struct object *o;

	memset(key, 'k', sizeof(key));
	/* More rounds than sources, entries or metadata would last if one of them leaked. */
	for (int i = 0; i < 2000; i++) {
		cr_assert_eq(store_put_begin(st, key, sizeof(key), STRIPE, false, 0, now, &o), RY_OK, "round %d", i);
		cr_assert_eq(reserve(o, 100 * STRIPE, 0), RY_OK);
		cr_assert_eq(reserve(o, 20 * STRIPE, 0), RY_OK);
		store_put_abort(st, o);
		cr_assert_eq(store_used_bytes(st), 0);
	}
}

Test(store, a_whole_life_gives_everything_back)
{
	char key[RY_KEY_MAX_BYTES];
	uint64_t deleted;
	struct object *o;

	memset(key, 'k', sizeof(key));
	for (int i = 0; i < 2000; i++) {
		cr_assert_eq(store_put_begin(st, key, sizeof(key), STRIPE, false, 0, now, &o), RY_OK, "round %d", i);
		cr_assert_eq(reserve(o, 100 * STRIPE, 0), RY_OK);
		cr_assert_eq(store_put_commit(st, o, 100 * STRIPE, now), RY_OK);
		cr_assert_eq(store_delete(st, key, sizeof(key), 0, now, &deleted), RY_OK);
		cr_assert_eq(deleted, (uint64_t)i + 1);
		cr_assert(store_housekeep(st, now));
	}
	cr_assert_eq(store_used_bytes(st), 0);
}

Test(store, nothing_allocates_after_create)
{
	struct rte_malloc_socket_stats eal_before, eal_after;
	struct mallinfo2 before, after;
	char key[16];

	put("warm", STRIPE);
	rte_malloc_get_socket_stats(0, &eal_before);
	before = mallinfo2();
	for (int round = 0; round < 20; round++) {
		for (int i = 0; i < 60; i++) {
			snprintf(key, sizeof(key), "k%d", i);
			cr_assert_eq(put(key, 2 * STRIPE), RY_OK);
			lookup(key);
		}
		for (int i = 0; i < 60; i++) {
			snprintf(key, sizeof(key), "k%d", i);
			cr_assert_eq(del(key, 0), RY_OK);
		}
		while (store_housekeep(st, now))
			;
	}
	after = mallinfo2();
	rte_malloc_get_socket_stats(0, &eal_after);
	cr_assert_eq(after.uordblks, before.uordblks);
	cr_assert_eq(after.hblkhd, before.hblkhd);
	cr_assert_eq(eal_after.alloc_count, eal_before.alloc_count);
}

Test(store, aborting_a_live_object_aborts_the_program, .signal = SIGABRT)
{
	put("key", 1);
	store_put_abort(st, lookup("key"));
}
