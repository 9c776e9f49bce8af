/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <xxh_x86dispatch.h>

#include "perf.h"

/* Fits the second-level cache beside its copy: what is hashed was just written. */
#define BLOCK_BYTES (128u << 10)

static uint64_t copy_and_hash(uint8_t *to, const uint8_t *from, uint64_t bytes, XXH3_state_t *state);

static uint64_t copy_and_hash(uint8_t *to, const uint8_t *from, uint64_t bytes, XXH3_state_t *state)
{
	uint64_t done;

	XXH3_64bits_reset(state);
	for (done = 0; done < bytes; done += BLOCK_BYTES) {
		uint64_t n = bytes - done < BLOCK_BYTES ? bytes - done : BLOCK_BYTES;

		memcpy(to + done, from + done, n);
		XXH3_64bits_update(state, to + done, n);
	}
	return XXH3_64bits_digest(state);
}

double core_copy_hash_rate(uint64_t bytes, uint32_t n)
{
	uint8_t *from = malloc(bytes), *to = malloc(bytes);
	XXH3_state_t *state = XXH3_createState();
	struct timespec a, b;
	uint64_t sum = 0;
	double rate = 0;
	uint32_t i;

	if (from != NULL && to != NULL && state != NULL) {
		memset(from, 0x5a, bytes);
		sum = copy_and_hash(to, from, bytes, state); /* faults the pages in */
		clock_gettime(CLOCK_MONOTONIC, &a);
		for (i = 0; i < n; i++)
			sum ^= copy_and_hash(to, from, bytes, state);
		clock_gettime(CLOCK_MONOTONIC, &b);
		rate = (double)bytes * n / ((double)(b.tv_sec - a.tv_sec) + (double)(b.tv_nsec - a.tv_nsec) / 1e9);
		/* Keeps the loop: a sum nobody looks at is no work. */
		__asm__ volatile("" : : "r"(sum));
	}
	XXH3_freeState(state);
	free(from);
	free(to);
	return rate;
}
