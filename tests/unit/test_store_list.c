/* SPDX-License-Identifier: BSD-3-Clause */
#include "store_fixture.h"

#include <railyard/ring.h>

#include <stdalign.h>

static alignas(8) uint8_t buf[64 * 1024];
static int seen[1000];

static void setup(void)
{
	fixture_eal();
	fixture_store(32 * MIB, 1000, true);
}

TestSuite(store_list, .init = setup);

static void put_n(int n)
{
	char key[16];

	snprintf(key, sizeof(key), "k%d", n);
	cr_assert_eq(put(key, (uint64_t)n), RY_OK);
}

/* Counts the entries of one page into `seen` by the number in their key. */
static void tally(uint32_t used, uint32_t n)
{
	uint32_t at = 0;

	for (uint32_t i = 0; i < n; i++) {
		struct ry_list_entry e;
		char key[16] = {0};
		int k;

		cr_assert_leq(at + sizeof(e), used);
		memcpy(&e, buf + at, sizeof(e));
		cr_assert_lt(e.key_bytes, sizeof(key));
		memcpy(key, buf + at + sizeof(e), e.key_bytes);
		cr_assert_eq(sscanf(key, "k%d", &k), 1);
		cr_assert_eq(e.size_bytes, (uint64_t)k);
		cr_assert_geq(e.generation, 1);
		for (unsigned z = 0; z < sizeof(e.reserved); z++)
			cr_assert_eq(e.reserved[z], 0);
		for (uint32_t z = e.key_bytes; z % 8; z++)
			cr_assert_eq(buf[at + sizeof(e) + z], 0, "padding is zero");
		seen[k]++;
		at += (uint32_t)sizeof(e) + ((e.key_bytes + 7u) & ~7u);
	}
	cr_assert_eq(at, used);
}

static uint32_t page(const char *prefix, uint64_t *cursor, uint32_t max_entries, uint32_t buf_bytes)
{
	uint32_t n, used;

	memset(buf, 0xee, sizeof(buf));
	used = store_list(st, prefix, (uint16_t)strlen(prefix), cursor, max_entries, buf, buf_bytes, now, &n);
	tally(used, n);
	return n;
}

Test(store_list, an_empty_store_ends_at_once)
{
	uint64_t cursor = 0;

	cr_assert_eq(page("", &cursor, 10, sizeof(buf)), 0);
	cr_assert_eq(cursor, 0);
}

Test(store_list, one_page_holds_all)
{
	uint64_t cursor = 0;

	for (int i = 0; i < 100; i++)
		put_n(i);
	cr_assert_eq(page("", &cursor, 1000, sizeof(buf)), 100);
	cr_assert_eq(cursor, 0);
	for (int i = 0; i < 100; i++)
		cr_assert_eq(seen[i], 1);
}

Test(store_list, pages_by_count_and_by_bytes)
{
	uint32_t sizes[][2] = {{1, sizeof(buf)}, {7, sizeof(buf)}, {1000, STORE_LIST_MIN_BYTES}};

	for (int i = 0; i < 300; i++)
		put_n(i);
	for (int s = 0; s < 3; s++) {
		uint64_t cursor = 0;
		int n_pages = 0;

		memset(seen, 0, sizeof(seen));
		do {
			cr_assert_leq(page("", &cursor, sizes[s][0], sizes[s][1]), sizes[s][0]);
			cr_assert_lt(n_pages++, 400);
		} while (cursor);
		cr_assert_gt(n_pages, 1);
		for (int i = 0; i < 300; i++)
			cr_assert_eq(seen[i], 1, "key %d by %u", i, sizes[s][0]);
	}
}

Test(store_list, prefix_selects)
{
	uint64_t cursor = 0;

	for (int i = 0; i < 120; i++)
		put_n(i);
	cr_assert_eq(page("k11", &cursor, 1000, sizeof(buf)), 11, "k11, k110 to k119");
	cr_assert_eq(seen[11] + seen[110] + seen[119], 3);
	cr_assert_eq(cursor, 0);
	cr_assert_eq(page("kk", &cursor, 1000, sizeof(buf)), 0);
}

Test(store_list, what_lives_throughout_is_seen_once_whatever_else_happens)
{
	uint64_t cursor = 0;
	int extra = 400;

	for (int i = 0; i < 300; i++)
		put_n(i);
	do {
		char key[16];

		page("", &cursor, 10, sizeof(buf));
		/* Meanwhile: overwrites at both ends (their objects move, their keys do not), inserts, and deletes of
		 * what is not counted. */
		put_n(extra % 150);
		put_n(299 - extra % 150);
		put_n(extra);
		snprintf(key, sizeof(key), "k%d", extra - 1);
		if (extra % 2 == 0)
			del(key, 0);
		store_housekeep(st, now);
		extra++;
	} while (cursor);
	for (int i = 0; i < 300; i++)
		cr_assert_eq(seen[i], 1, "key %d", i);
}

Test(store_list, what_is_being_put_deleted_or_expired_is_not_listed)
{
	uint64_t cursor = 0;
	struct object *o;

	put_n(1);
	put_n(2);
	del("k1", 0);
	cr_assert_eq(put_ttl("k3", 3, 10), RY_OK);
	cr_assert_eq(begin("k4", false, 0, &o), RY_OK);
	now += 10;
	cr_assert_eq(page("", &cursor, 100, sizeof(buf)), 1);
	cr_assert_eq(seen[2], 1);
}

Test(store_list, a_cursor_from_nowhere_ends)
{
	uint64_t cursor = UINT64_MAX;

	put_n(1);
	cr_assert_eq(page("", &cursor, 100, sizeof(buf)), 0);
	cr_assert_eq(cursor, 0);
}

Test(store_list, the_longest_key_fits_the_smallest_buffer)
{
	uint8_t key[RY_KEY_MAX_BYTES];
	uint64_t cursor = 0;
	struct object *o;
	uint32_t n;

	memset(key, 'x', sizeof(key));
	cr_assert_eq(store_put_begin(st, key, sizeof(key), STRIPE, false, 0, now, &o), RY_OK);
	cr_assert_eq(store_put_commit(st, o, 0, now), RY_OK);
	put_n(1);
	put_n(2);
	for (uint32_t total = 0; total < 3; total += n) {
		store_list(st, "", 0, &cursor, 100, buf, STORE_LIST_MIN_BYTES, now, &n);
		cr_assert_gt(n, 0);
	}
	cr_assert_eq(cursor, 0);
}
