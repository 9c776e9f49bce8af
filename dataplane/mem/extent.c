/* SPDX-License-Identifier: BSD-3-Clause */
#include "mem.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#define WORD_BITS 64u

/*
 * Two bitmaps: `free_map` has a bit per free granule, `start_map` one per granule that begins an extent. The second
 * makes free exact: half an extent, two neighbours at once or a stranger's offset cannot pass. Bits past the end are
 * never free.
 */
struct extent_map {
	uint64_t n_granules;
	uint64_t n_free;
	uint64_t cursor; /* granule after the last allocation: where the next search starts */
	uint64_t n_words;
	uint64_t *start_map;
	uint8_t shift; /* log2 of the granule */
	uint64_t free_map[];
};

static uint64_t to_granules(const struct extent_map *m, uint64_t bytes);
static uint64_t find_run(const struct extent_map *m, uint64_t from, uint64_t n);
static unsigned run_in_word(uint64_t word, uint64_t n);
static bool is_whole_extent(const struct extent_map *m, uint64_t first, uint64_t n);
static bool range_all(const uint64_t *map, uint64_t first, uint64_t n, bool want);
static void range_set(uint64_t *map, uint64_t first, uint64_t n, bool value);
static uint64_t range_mask(uint64_t first, uint64_t n);
static bool bit_get(const uint64_t *map, uint64_t i);

int extent_map_create(uint64_t bytes, uint32_t granule_bytes, struct extent_map **out)
{
	uint64_t n_granules, n_words;
	struct extent_map *m;

	if (granule_bytes == 0 || (granule_bytes & (granule_bytes - 1)) || bytes < granule_bytes)
		return -EINVAL;
	n_granules = bytes / granule_bytes;
	n_words = (n_granules + WORD_BITS - 1) / WORD_BITS;
	m = calloc(1, sizeof(*m) + 2 * n_words * sizeof(uint64_t));
	if (!m)
		return -ENOMEM;
	m->n_granules = n_granules;
	m->n_free = n_granules;
	m->n_words = n_words;
	m->start_map = m->free_map + n_words;
	m->shift = (uint8_t)__builtin_ctz(granule_bytes);
	range_set(m->free_map, 0, n_granules, true);
	*out = m;
	return 0;
}

void extent_map_destroy(struct extent_map *m)
{
	free(m);
}

uint64_t extent_alloc(struct extent_map *m, uint64_t bytes)
{
	uint64_t n = to_granules(m, bytes);
	uint64_t first;

	if (n == 0)
		return 0; /* nothing is always free, and extent_free takes it back */
	if (n > m->n_free)
		return EXTENT_NONE;
	first = find_run(m, m->cursor, n);
	if (first == EXTENT_NONE && m->cursor)
		first = find_run(m, 0, n);
	if (first == EXTENT_NONE)
		return EXTENT_NONE;
	range_set(m->free_map, first, n, false);
	range_set(m->start_map, first, 1, true);
	m->n_free -= n;
	m->cursor = first + n < m->n_granules ? first + n : 0;
	return first << m->shift;
}

void extent_free(struct extent_map *m, uint64_t offset, uint64_t bytes)
{
	uint64_t first = offset >> m->shift;
	uint64_t n = to_granules(m, bytes);

	if (n == 0)
		return;
	assert(offset == first << m->shift && first < m->n_granules && n <= m->n_granules - first);
	assert(is_whole_extent(m, first, n));
	range_set(m->free_map, first, n, true);
	range_set(m->start_map, first, 1, false);
	m->n_free += n;
}

uint64_t extent_used_bytes(const struct extent_map *m)
{
	return (m->n_granules - m->n_free) << m->shift;
}

uint64_t extent_total_bytes(const struct extent_map *m)
{
	return m->n_granules << m->shift;
}

uint64_t extent_largest_free(const struct extent_map *m)
{
	uint64_t best = 0, run = 0;

	for (uint64_t i = 0; i < m->n_granules; i++) {
		/* A whole word at a time where it is all free or all used. */
		uint64_t word = m->free_map[i / WORD_BITS];

		if (i % WORD_BITS == 0 && (word == 0 || word == UINT64_MAX)) {
			run = word ? run + WORD_BITS : 0;
			i += WORD_BITS - 1;
		} else {
			run = bit_get(m->free_map, i) ? run + 1 : 0;
		}
		if (run > best)
			best = run;
	}
	return best << m->shift;
}

uint64_t extent_round(const struct extent_map *m, uint64_t bytes)
{
	uint64_t n = to_granules(m, bytes);

	/* A size that cannot be rounded must not come out small. */
	return n > UINT64_MAX >> m->shift ? UINT64_MAX : n << m->shift;
}

static uint64_t to_granules(const struct extent_map *m, uint64_t bytes)
{
	uint64_t rest = bytes & ((1ull << m->shift) - 1);

	return (bytes >> m->shift) + (rest != 0);
}

/*
 * First run of n free granules that starts at or after `from`. Each word is looked at once: a run either ends the chain
 * of free granules that came in from the words before (`open`), or lies inside the word.
 */
static uint64_t find_run(const struct extent_map *m, uint64_t from, uint64_t n)
{
	uint64_t mask = UINT64_MAX << (from % WORD_BITS); /* of the first word, granules from `from` on */
	uint64_t open = 0;

	for (uint64_t i = from / WORD_BITS; i < m->n_words; i++, mask = UINT64_MAX) {
		uint64_t word = m->free_map[i] & mask;
		unsigned low, bit;

		if (word == UINT64_MAX) {
			open += WORD_BITS;
			if (open >= n)
				return (i + 1) * WORD_BITS - open;
			continue;
		}
		low = (unsigned)__builtin_ctzll(~word);
		if (open + low >= n)
			return i * WORD_BITS - open;
		bit = run_in_word(word, n);
		if (bit < WORD_BITS)
			return i * WORD_BITS + bit;
		open = (unsigned)__builtin_clzll(~word);
	}
	return EXTENT_NONE;
}

/* Lowest bit that starts n set bits of `word`, WORD_BITS when there is none. Each step doubles the run that a set bit
 * stands for. */
static unsigned run_in_word(uint64_t word, uint64_t n)
{
	uint64_t have = 1;

	if (n >= WORD_BITS)
		return WORD_BITS;
	while (have < n && word) {
		uint64_t step = n - have < have ? n - have : have;

		word &= word >> step;
		have += step;
	}
	return word ? (unsigned)__builtin_ctzll(word) : WORD_BITS;
}

/* Used throughout, begins where it says, contains no other beginning, and what follows is not its continuation. */
static bool is_whole_extent(const struct extent_map *m, uint64_t first, uint64_t n)
{
	uint64_t next = first + n;

	if (!range_all(m->free_map, first, n, false) || !bit_get(m->start_map, first))
		return false;
	if (n > 1 && !range_all(m->start_map, first + 1, n - 1, false))
		return false;
	return next == m->n_granules || bit_get(m->free_map, next) || bit_get(m->start_map, next);
}

static bool range_all(const uint64_t *map, uint64_t first, uint64_t n, bool want)
{
	while (n) {
		uint64_t mask = range_mask(first, n);
		uint64_t got = map[first / WORD_BITS] & mask;
		uint64_t step = WORD_BITS - first % WORD_BITS;

		if (got != (want ? mask : 0))
			return false;
		if (step >= n)
			return true;
		first += step;
		n -= step;
	}
	return true;
}

static void range_set(uint64_t *map, uint64_t first, uint64_t n, bool value)
{
	while (n) {
		uint64_t mask = range_mask(first, n);
		uint64_t step = WORD_BITS - first % WORD_BITS;

		if (value)
			map[first / WORD_BITS] |= mask;
		else
			map[first / WORD_BITS] &= ~mask;
		if (step >= n)
			return;
		first += step;
		n -= step;
	}
}

/* The bits of [first, first + n) that lie in first's word. */
static uint64_t range_mask(uint64_t first, uint64_t n)
{
	uint64_t ones = n < WORD_BITS ? (1ull << n) - 1 : UINT64_MAX;

	return ones << (first % WORD_BITS);
}

static bool bit_get(const uint64_t *map, uint64_t i)
{
	return map[i / WORD_BITS] >> (i % WORD_BITS) & 1;
}
