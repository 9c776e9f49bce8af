/* SPDX-License-Identifier: BSD-3-Clause */
#include "store_fixture.h"

#include <stdlib.h>
#include <time.h>

TestSuite(store_tier, .init = fixture_eal);

static void fill(const char *prefix, int n, uint64_t bytes)
{
	char key[32];

	for (int i = 0; i < n; i++) {
		snprintf(key, sizeof(key), "%s%d", prefix, i);
		cr_assert_eq(put(key, bytes), RY_OK, "%s", key);
	}
}

Test(store_tier, pinned_refuses_when_full)
{
	fixture_store(4 * STRIPE, 16, true);
	fill("k", 4, STRIPE);
	cr_assert_eq(put("more", 1), RY_ERR_NO_SPACE);
	cr_assert_eq(store_n_objects(st), 4, "nobody was evicted");
	cr_assert_eq(counters.store_evictions, 0);
	cr_assert_eq(put("empty", 0), RY_OK);
	del("k2", 0);
	cr_assert_eq(put("more", 1), RY_OK, "room by deletion, without waiting for housekeeping");
}

Test(store_tier, a_failed_reserve_takes_nothing)
{
	struct object *o;

	fixture_store(4 * STRIPE, 16, true);
	fill("k", 2, STRIPE);
	begin("big", false, 0, &o);
	cr_assert_eq(reserve(o, STRIPE, 10), RY_OK);
	cr_assert_eq(reserve(o, 2 * STRIPE, 10), RY_ERR_NO_SPACE);
	cr_assert_eq(o->n_stripes, 1);
	cr_assert_eq(o->reserved_bytes, STRIPE);
	cr_assert_eq(store_used_bytes(st), 3 * STRIPE);
	cr_assert_eq(reserve(o, STRIPE, 10), RY_OK);
	cr_assert_eq(store_put_commit(st, o, 2 * STRIPE, now), RY_OK);
	cr_assert_eq(o->checksums[1], 11);
}

Test(store_tier, cache_evicts_the_least_recently_used)
{
	fixture_store(4 * STRIPE, 16, false);
	fill("k", 4, STRIPE);
	cr_assert(lookup("k0"));
	cr_assert(lookup("k1"));
	cr_assert_eq(put("new", 2 * STRIPE), RY_OK);
	cr_assert(lookup("k0"));
	cr_assert(lookup("k1"));
	cr_assert_null(lookup("k2"));
	cr_assert_null(lookup("k3"));
	cr_assert_eq(counters.store_evictions, 2, "no more than needed");
	cr_assert_eq(put("new2", STRIPE), RY_OK);
	cr_assert_null(lookup("new"), "looked up less recently than the others");
	cr_assert(lookup("k0"));
	cr_assert(lookup("k1"));
}

Test(store_tier, overwriting_counts_as_use)
{
	fixture_store(4 * STRIPE, 16, false);
	fill("k", 3, STRIPE);
	cr_assert_eq(put("k0", STRIPE), RY_OK);
	cr_assert_eq(put("new", 2 * STRIPE), RY_OK);
	cr_assert(lookup("k0"));
	cr_assert_null(lookup("k1"));
}

Test(store_tier, objects_being_put_are_never_evicted)
{
	struct object *o;

	fixture_store(4 * STRIPE, 16, false);
	begin("writing", false, 0, &o);
	cr_assert_eq(reserve(o, 3 * STRIPE, 0), RY_OK);
	cr_assert_eq(put("a", STRIPE), RY_OK);
	cr_assert_eq(put("b", STRIPE), RY_OK, "a had to go");
	cr_assert_null(lookup("a"));
	cr_assert_eq(put("c", 2 * STRIPE), RY_ERR_NO_SPACE);
	cr_assert(lookup("b"), "what can never fit evicts nobody");
	cr_assert_eq(store_put_commit(st, o, 3 * STRIPE, now), RY_OK);
}

Test(store_tier, what_exceeds_the_slab_evicts_nobody)
{
	fixture_store(4 * STRIPE, 16, false);
	fill("k", 4, STRIPE);
	cr_assert_eq(put("huge", 5 * STRIPE), RY_ERR_NO_SPACE);
	cr_assert_eq(store_n_objects(st), 4);
}

Test(store_tier, evicted_memory_is_busy_until_its_readers_are_done)
{
	struct source *s;
	struct object *o;

	fixture_store(4 * STRIPE, 16, false);
	fill("k", 4, STRIPE);
	s = pin("k0", 0);
	for (int i = 1; i < 4; i++) {
		char key[8];

		snprintf(key, sizeof(key), "k%d", i);
		cr_assert(lookup(key));
	}
	begin("new", false, 0, &o);
	cr_assert_eq(reserve(o, STRIPE, 0), RY_ERR_BUSY);
	cr_assert_eq(store_n_objects(st), 3, "one eviction is enough");
	cr_assert_eq(reserve(o, STRIPE, 0), RY_ERR_BUSY);
	cr_assert_eq(store_n_objects(st), 3, "waiting evicts no more");
	cr_assert_eq(o->n_stripes, 0);
	source_unpin(s, 0);
	cr_assert_eq(reserve(o, STRIPE, 0), RY_OK);
	cr_assert_eq(store_put_commit(st, o, STRIPE, now), RY_OK);
	cr_assert_eq(counters.store_evictions, 1);
}

Test(store_tier, the_number_of_objects_is_limited)
{
	struct object *o;

	fixture_store(16 * STRIPE, 3, true);
	fill("k", 2, 10);
	cr_assert_eq(begin("writing", false, 0, &o), RY_OK);
	cr_assert_eq(put("k3", 10), RY_ERR_LIMIT, "a put under way counts");
	cr_assert_eq(put("k0", 10), RY_OK, "an overwrite adds none");
	store_put_abort(st, o);
	cr_assert_eq(put("k3", 10), RY_OK);
	cr_assert_eq(put("k4", 10), RY_ERR_LIMIT);
	cr_assert_eq(store_n_objects(st), 3);
}

Test(store_tier, cache_evicts_for_the_number_too)
{
	fixture_store(16 * STRIPE, 3, false);
	fill("k", 5, 10);
	cr_assert_eq(store_n_objects(st), 3);
	cr_assert_null(lookup("k0"));
	cr_assert_null(lookup("k1"));
	cr_assert(lookup("k2"));
}

Test(store_tier, too_many_stripes_is_a_limit)
{
	struct object *o;

	fixture_store(4 * STRIPE, 16, true);
	begin("k", false, 0, &o);
	cr_assert_eq(reserve(o, (RY_STRIPES_MAX + 1ull) * STRIPE, 0), RY_ERR_LIMIT);
	cr_assert_eq(store_put_reserve(st, o, UINT64_MAX, NULL, now), RY_ERR_LIMIT);
	cr_assert_eq(reserve(o, (uint64_t)RY_STRIPES_MAX * STRIPE, 0), RY_ERR_NO_SPACE);
}

Test(store_tier, long_keys_fill_the_metadata_with_a_typed_error)
{
	char key[RY_KEY_MAX_BYTES];
	enum ry_status rc = RY_OK;
	struct object *o;
	int n = 0;

	fixture_store(4 * STRIPE, 1000, true);
	memset(key, 'k', sizeof(key));
	while (n < 1000) {
		memcpy(key, &n, sizeof(n));
		rc = store_put_begin(st, key, sizeof(key), STRIPE, false, 0, now, &o);
		if (rc)
			break;
		cr_assert_eq(store_put_commit(st, o, 0, now), RY_OK);
		n++;
	}
	cr_assert_eq(rc, RY_ERR_NO_SPACE);
	cr_assert_gt(n, 200);
	del("nothing", 0);
	cr_assert_eq(store_n_objects(st), (uint32_t)n);
}

Test(store_tier, long_keys_evict_in_a_cache)
{
	char key[RY_KEY_MAX_BYTES];
	struct object *o;

	fixture_store(4 * STRIPE, 1000, false);
	memset(key, 'k', sizeof(key));
	for (int n = 0; n < 1000; n++) {
		memcpy(key, &n, sizeof(n));
		cr_assert_eq(store_put_begin(st, key, sizeof(key), STRIPE, false, 0, now, &o), RY_OK, "%d", n);
		cr_assert_eq(store_put_commit(st, o, 0, now), RY_OK);
	}
	cr_assert_gt(counters.store_evictions, 0);
	cr_assert_eq(store_lookup(st, key, sizeof(key), now), o);
}

Test(store_tier, ttl_counts_from_the_commit)
{
	struct object *o;

	fixture_store(4 * STRIPE, 16, true);
	begin("k", false, 100, &o);
	now += 90;
	store_put_commit(st, o, 0, now);
	cr_assert_eq(o->expires_ns, now + 100);
	now += 99;
	cr_assert(lookup("k"));
	now += 1;
	cr_assert_null(lookup("k"));
	cr_assert_eq(store_n_objects(st), 0);
	cr_assert_eq(del("k", 0), RY_ERR_NOT_FOUND);
}

Test(store_tier, housekeeping_finds_what_nobody_looks_up)
{
	fixture_store(16 * STRIPE, 100, true);
	for (int i = 0; i < 10; i++) {
		char key[8];

		snprintf(key, sizeof(key), "k%d", i);
		cr_assert_eq(put_ttl(key, STRIPE, i % 2 ? 50 : 0), RY_OK);
	}
	cr_assert_not(store_housekeep(st, now + 49));
	cr_assert_eq(store_n_objects(st), 10);
	now += 50;
	cr_assert(store_housekeep(st, now));
	while (store_housekeep(st, now))
		;
	cr_assert_eq(store_n_objects(st), 5);
	cr_assert_eq(store_used_bytes(st), 5 * STRIPE);
	cr_assert_eq(counters.objects, 5);
	cr_assert_eq(counters.store_bytes, 5 * STRIPE);
	cr_assert_eq(counters.store_evictions, 0);
}

Test(store_tier, expired_objects_make_room_in_a_pinned_store)
{
	fixture_store(4 * STRIPE, 4, true);
	for (int i = 0; i < 4; i++) {
		char key[8];

		snprintf(key, sizeof(key), "k%d", i);
		cr_assert_eq(put_ttl(key, STRIPE, 50), RY_OK);
	}
	cr_assert_eq(put("new", STRIPE), RY_ERR_LIMIT);
	now += 60;
	cr_assert_eq(put("new", 3 * STRIPE), RY_OK);
	cr_assert_eq(store_n_objects(st), 1);
}

Test(store_tier, an_expired_key_comes_back_with_a_higher_generation)
{
	struct object *o;

	fixture_store(4 * STRIPE, 16, true);
	put("k", 1);
	put_ttl("k", 1, 50);
	cr_assert_eq(lookup("k")->generation, 2);
	now += 50;
	cr_assert_eq(begin("k", true, 0, &o), RY_OK, "expired = absent");
	cr_assert_eq(store_put_commit(st, o, 0, now), RY_OK);
	cr_assert_eq(o->generation, 3);
}

Test(store_tier, a_ttl_without_end_does_not_wrap)
{
	fixture_store(4 * STRIPE, 16, true);
	put_ttl("k", 1, UINT64_MAX);
	cr_assert(lookup("k"));
	now += 1ull << 60;
	cr_assert(lookup("k"));
}

Test(store_tier, stripes_of_mixed_sizes_fragment_and_still_fit)
{
	struct object *o;

	fixture_store(64 * STRIPE, 64, false);
	fill("k", 64, STRIPE);
	/* Every second goes: single gaps only. */
	for (int i = 0; i < 64; i += 2) {
		char key[8];

		snprintf(key, sizeof(key), "k%d", i);
		cr_assert_eq(del(key, 0), RY_OK);
	}
	while (store_housekeep(st, now))
		;
	cr_assert_eq(put("many", 32 * STRIPE), RY_OK, "small stripes need no long gap");
	cr_assert_eq(counters.store_evictions, 0);
	cr_assert_eq(store_put_begin(st, "long", 4, 16 * STRIPE, false, 0, now, &o), RY_OK);
	cr_assert_eq(reserve(o, 16 * STRIPE, 0), RY_OK, "a long stripe evicts until a gap is long enough");
	cr_assert_gt(counters.store_evictions, 0);
}

/* ---- Against a model ---- */
#define KEYS 12

struct model {
	uint64_t generation[KEYS]; /* 0 = absent */
	uint64_t size[KEYS];
	uint64_t highest[KEYS];
	uint8_t tag[KEYS];
	struct source *held[8];
	uint8_t held_tag[8];
	int n_held;
};

static uint64_t cost(uint64_t bytes)
{
	return (bytes + STRIPE - 1) / STRIPE * STRIPE;
}

static void model_put(struct model *m, int k, unsigned r)
{
	uint64_t bytes = r % (5 * STRIPE);
	enum ry_status rc;
	struct object *o;
	char key[8];

	snprintf(key, sizeof(key), "k%d", k);
	cr_assert_eq(begin(key, false, 0, &o), RY_OK);
	rc = reserve(o, bytes, r);
	if (rc == RY_ERR_BUSY || rc == RY_ERR_NO_SPACE || r % 7 == 0) {
		store_put_abort(st, o);
		return;
	}
	cr_assert_eq(rc, RY_OK);
	for (uint32_t i = 0; i < o->n_stripes; i++)
		memset(o->stripe_addr[i], (int)(r & 0xff), i + 1 < o->n_stripes ? STRIPE : bytes - i * STRIPE);
	cr_assert_eq(store_put_commit(st, o, bytes, now), RY_OK);
	cr_assert_gt(o->generation, m->highest[k]);
	m->generation[k] = m->highest[k] = o->generation;
	m->size[k] = bytes;
	m->tag[k] = (uint8_t)r;
}

static void check_bytes(const struct source *s, uint8_t tag)
{
	for (uint32_t i = 0; i < s->stripe_count; i++) {
		uint64_t len = source_stripe_len(s, i);

		cr_assert_eq(source_addr(s, i, 0, 1)[0], tag);
		cr_assert_eq(source_addr(s, i, len - 1, 1)[0], tag);
	}
}

static void model_step(struct model *m, unsigned r)
{
	int k = (int)(r % KEYS);
	char key[8];

	snprintf(key, sizeof(key), "k%d", k);
	switch (r / KEYS % 5) {
	case 0:
	case 1:
		model_put(m, k, r / 97);
		break;
	case 2:
		cr_assert_eq(del(key, 0), m->generation[k] ? RY_OK : RY_ERR_NOT_FOUND);
		m->generation[k] = 0;
		break;
	case 3:
		if (m->generation[k] && m->n_held < 8) {
			m->held_tag[m->n_held] = m->tag[k];
			m->held[m->n_held++] = pin(key, 0);
		}
		break;
	case 4:
		if (m->n_held) {
			m->n_held--;
			check_bytes(m->held[m->n_held], m->held_tag[m->n_held]);
			source_unpin(m->held[m->n_held], 0);
		}
		store_housekeep(st, now);
		break;
	}
}

static void model_check(const struct model *m)
{
	uint64_t live_bytes = 0;
	uint32_t n = 0;

	for (int k = 0; k < KEYS; k++) {
		struct object *o;
		char key[8];

		snprintf(key, sizeof(key), "k%d", k);
		o = lookup(key);
		cr_assert_eq(o != NULL, m->generation[k] != 0);
		if (!o)
			continue;
		cr_assert_eq(o->generation, m->generation[k]);
		cr_assert_eq(o->size_bytes, m->size[k]);
		live_bytes += cost(o->size_bytes);
		n++;
	}
	cr_assert_eq(store_n_objects(st), n);
	cr_assert_geq(store_used_bytes(st), live_bytes);
	if (store_n_retired(st) == 0)
		cr_assert_eq(store_used_bytes(st), live_bytes);
}

Test(store_tier, a_thousand_random_steps_agree_with_a_model)
{
	unsigned seed = getenv("RY_SEED") ? (unsigned)strtoul(getenv("RY_SEED"), NULL, 0) : (unsigned)time(NULL);
	static struct model m;

	fprintf(stderr, "RY_SEED=%u\n", seed);
	fixture_store(40 * STRIPE, KEYS, true);
	for (int i = 0; i < 1000; i++) {
		model_step(&m, (unsigned)rand_r(&seed));
		model_check(&m);
	}
	while (m.n_held)
		source_unpin(m.held[--m.n_held], 0);
	for (int k = 0; k < KEYS; k++) {
		char key[8];

		snprintf(key, sizeof(key), "k%d", k);
		del(key, 0);
	}
	while (store_housekeep(st, now))
		;
	cr_assert_eq(store_used_bytes(st), 0);
	cr_assert_eq(store_n_objects(st) + store_n_retired(st), 0);
}
