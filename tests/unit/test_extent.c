/* SPDX-License-Identifier: BSD-3-Clause */
#include "mem/mem.h"

#include <criterion/criterion.h>

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define G EXTENT_GRANULE_BYTES

static struct extent_map *map_of(uint64_t bytes, uint32_t granule)
{
	struct extent_map *m;

	cr_assert_eq(extent_map_create(bytes, granule, &m), 0);
	return m;
}

Test(extent, create_refuses_senseless_geometry)
{
	struct extent_map *m = NULL;

	cr_assert_eq(extent_map_create(G, 0, &m), -EINVAL);
	cr_assert_eq(extent_map_create(G, 3000, &m), -EINVAL);
	cr_assert_eq(extent_map_create(G - 1, G, &m), -EINVAL);
	cr_assert_null(m);
}

Test(extent, remainder_below_a_granule_is_not_used)
{
	struct extent_map *m = map_of(3 * G + G / 2, G);

	cr_assert_eq(extent_total_bytes(m), 3 * G);
	cr_assert_eq(extent_alloc(m, 3 * G + 1), EXTENT_NONE);
	cr_assert_eq(extent_alloc(m, 3 * G), 0);
	cr_assert_eq(extent_alloc(m, 1), EXTENT_NONE);
	extent_map_destroy(m);
}

Test(extent, bytes_round_up_to_granules)
{
	struct extent_map *m = map_of(16 * G, G);

	cr_assert_eq(extent_round(m, 0), 0);
	cr_assert_eq(extent_round(m, 1), G);
	cr_assert_eq(extent_round(m, G), G);
	cr_assert_eq(extent_round(m, G + 1), 2 * G);
	cr_assert_eq(extent_round(m, UINT64_MAX), UINT64_MAX, "never wraps to a small size");
	cr_assert_eq(extent_alloc(m, 1), 0);
	cr_assert_eq(extent_alloc(m, G + 1), G);
	cr_assert_eq(extent_used_bytes(m), 3 * G);
	cr_assert_eq(extent_alloc(m, UINT64_MAX), EXTENT_NONE);
	extent_map_destroy(m);
}

Test(extent, nothing_costs_nothing)
{
	struct extent_map *m = map_of(G, G);

	cr_assert_eq(extent_alloc(m, G), 0);
	cr_assert_neq(extent_alloc(m, 0), EXTENT_NONE, "even when full");
	extent_free(m, 0, 0);
	cr_assert_eq(extent_used_bytes(m), G);
	extent_map_destroy(m);
}

Test(extent, next_fit_goes_on_and_wraps)
{
	struct extent_map *m = map_of(4 * G, G);

	cr_assert_eq(extent_alloc(m, G), 0);
	cr_assert_eq(extent_alloc(m, G), G);
	extent_free(m, 0, G);
	cr_assert_eq(extent_alloc(m, G), 2 * G, "goes on behind the last one, not at the gap");
	cr_assert_eq(extent_alloc(m, G), 3 * G);
	cr_assert_eq(extent_alloc(m, G), 0, "wraps");
	extent_map_destroy(m);
}

Test(extent, run_may_begin_before_the_cursor_and_end_behind_it)
{
	struct extent_map *m = map_of(130 * G, G);
	uint64_t a = extent_alloc(m, 65 * G);

	extent_free(m, a, 65 * G);
	cr_assert_eq(extent_alloc(m, 130 * G), 0);
	extent_map_destroy(m);
}

Test(extent, largest_free_sees_fragments)
{
	struct extent_map *m = map_of(200 * G, G);
	uint64_t off[200];

	cr_assert_eq(extent_largest_free(m), 200 * G);
	for (int i = 0; i < 200; i++)
		off[i] = extent_alloc(m, G);
	cr_assert_eq(extent_largest_free(m), 0);
	for (int i = 0; i < 200; i += 2)
		extent_free(m, off[i], G);
	cr_assert_eq(extent_largest_free(m), G);
	cr_assert_eq(extent_alloc(m, 2 * G), EXTENT_NONE, "half is free, but in single granules");
	extent_free(m, off[63], G);
	cr_assert_eq(extent_largest_free(m), 3 * G, "over a word's edge");
	cr_assert_eq(extent_alloc(m, 3 * G), 62 * G);
	extent_map_destroy(m);
}

Test(extent, every_run_length_over_every_word_position)
{
	struct extent_map *m = map_of(256 * 64, 64);

	for (uint64_t start = 0; start < 130; start += 7) {
		for (uint64_t n = 1; n <= 126; n++) {
			/* Everything used except [start, start + n). */
			uint64_t head = start ? extent_alloc(m, start * 64) : 0;
			uint64_t gap = extent_alloc(m, n * 64);
			uint64_t tail = extent_alloc(m, (256 - start - n) * 64);

			cr_assert_eq(gap, start * 64);
			extent_free(m, gap, n * 64);
			cr_assert_eq(extent_alloc(m, (n + 1) * 64), EXTENT_NONE);
			cr_assert_eq(extent_alloc(m, n * 64), gap, "start %lu n %lu", (unsigned long)start,
				(unsigned long)n);
			extent_free(m, head, start * 64);
			extent_free(m, gap, n * 64);
			extent_free(m, tail, (256 - start - n) * 64);
			/* Puts the cursor back to 0. */
			extent_free(m, extent_alloc(m, 256 * 64), 256 * 64);
		}
	}
	cr_assert_eq(extent_used_bytes(m), 0);
	extent_map_destroy(m);
}

struct piece {
	uint64_t off;
	uint64_t n;
};

/* The naive allocator answers one question: is there any gap of n granules? */
static bool naive_has_gap(const uint8_t *used, uint64_t total, uint64_t n)
{
	uint64_t run = 0;

	for (uint64_t i = 0; i < total; i++) {
		run = used[i] ? 0 : run + 1;
		if (run >= n)
			return true;
	}
	return false;
}

static void random_ops(uint64_t total, uint32_t granule, unsigned seed, uint64_t most)
{
	struct extent_map *m = map_of(total * granule, granule);
	uint8_t used[1024] = {0};
	struct piece live[1024];
	uint64_t n_live = 0, n_used = 0;

	for (int step = 0; step < 4000; step++) {
		if (rand_r(&seed) % 100 < 55) {
			uint64_t n = 1 + (uint64_t)rand_r(&seed) % most;
			uint64_t bytes = n * granule - (uint64_t)rand_r(&seed) % granule;
			uint64_t off = extent_alloc(m, bytes);

			cr_assert_eq(off != EXTENT_NONE, naive_has_gap(used, total, n), "step %d n %lu", step,
				(unsigned long)n);
			if (off == EXTENT_NONE)
				continue;
			cr_assert_eq(off % granule, 0);
			for (uint64_t i = off / granule; i < off / granule + n; i++) {
				cr_assert_lt(i, total);
				cr_assert_eq(used[i], 0, "step %d handed out twice", step);
				used[i] = 1;
			}
			live[n_live++] = (struct piece){off, bytes};
			n_used += n;
		} else if (n_live) {
			uint64_t k = (uint64_t)rand_r(&seed) % n_live;
			uint64_t n = extent_round(m, live[k].n) / granule;

			extent_free(m, live[k].off, live[k].n);
			memset(used + live[k].off / granule, 0, n);
			n_used -= n;
			live[k] = live[--n_live];
		}
		cr_assert_eq(extent_used_bytes(m), n_used * granule);
	}
	while (n_live--)
		extent_free(m, live[n_live].off, live[n_live].n);
	cr_assert_eq(extent_used_bytes(m), 0);
	cr_assert_eq(extent_largest_free(m), total * granule);
	extent_map_destroy(m);
}

static unsigned seed_of_run(void)
{
	unsigned seed = getenv("RY_SEED") ? (unsigned)strtoul(getenv("RY_SEED"), NULL, 0) : (unsigned)time(NULL);

	fprintf(stderr, "RY_SEED=%u\n", seed);
	return seed;
}

Test(extent, agrees_with_a_naive_allocator)
{
	unsigned seed = seed_of_run();

	random_ops(1, G, seed, 2);
	random_ops(64, G, seed + 1, 20);
	random_ops(65, G, seed + 2, 64);
	random_ops(200, G, seed + 3, 8);
	random_ops(1000, 64, seed + 4, 150);
	random_ops(1000, 64, seed + 5, 3);
}

Test(extent, double_free_aborts, .signal = SIGABRT)
{
	struct extent_map *m = map_of(8 * G, G);
	uint64_t a = extent_alloc(m, 2 * G);

	extent_free(m, a, 2 * G);
	extent_free(m, a, 2 * G);
}

Test(extent, freeing_half_an_extent_aborts, .signal = SIGABRT)
{
	struct extent_map *m = map_of(8 * G, G);

	extent_free(m, extent_alloc(m, 2 * G), G);
}

Test(extent, freeing_two_neighbours_at_once_aborts, .signal = SIGABRT)
{
	struct extent_map *m = map_of(8 * G, G);
	uint64_t a = extent_alloc(m, G);

	extent_alloc(m, G);
	extent_free(m, a, 2 * G);
}

Test(extent, freeing_from_the_middle_aborts, .signal = SIGABRT)
{
	struct extent_map *m = map_of(8 * G, G);

	extent_free(m, extent_alloc(m, 2 * G) + G, G);
}

Test(extent, freeing_outside_aborts, .signal = SIGABRT)
{
	struct extent_map *m = map_of(8 * G, G);

	extent_free(m, 8 * G, G);
}
