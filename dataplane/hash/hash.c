/* SPDX-License-Identifier: BSD-3-Clause */
#include "hash/hash.h"

#include <pthread.h>
#include <string.h>

#if defined(__x86_64__)
#include <xxh_x86dispatch.h>
#endif

#include "sync/sync.h"

#define SAMPLE_BYTES (64u << 10)
#define ROUNDS 6

static void choose(void);
static double rate_of(const struct hash_code *code);
static XXH64_hash_t simd_whole(const void *data, size_t bytes);
static XXH_errorcode simd_update(XXH3_state_t *state, const void *data, size_t bytes);

const struct hash_code hash_simd = {.name = "SIMD", .whole = simd_whole, .update = simd_update};

static const uint8_t sample[SAMPLE_BYTES];
static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct hash_choice choice; /* written under once, which orders it for every later reader */

const struct hash_choice *hash_choose(void)
{
	pthread_once(&once, choose);
	return &choice;
}

static void choose(void)
{
	choice.simd_bytes_per_s = rate_of(&hash_simd);
	choice.scalar_bytes_per_s = rate_of(&hash_scalar);
	choice.code = choice.scalar_bytes_per_s > choice.simd_bytes_per_s ? &hash_scalar : &hash_simd;
}

/* The best of a few rounds. */
static double rate_of(const struct hash_code *code)
{
	uint64_t best_ns = UINT64_MAX;
	XXH3_state_t state;

	for (unsigned i = 0; i < ROUNDS; i++) {
		uint64_t begin_ns = clock_ns();
		uint64_t took_ns;

		XXH3_64bits_reset(&state);
		code->update(&state, sample, sizeof(sample));
		took_ns = clock_ns() - begin_ns;
		best_ns = took_ns && took_ns < best_ns ? took_ns : best_ns;
	}
	return (double)SAMPLE_BYTES * 1e9 / (double)best_ns;
}

static XXH64_hash_t simd_whole(const void *data, size_t bytes)
{
	return XXH3_64bits(data, bytes);
}

static XXH_errorcode simd_update(XXH3_state_t *state, const void *data, size_t bytes)
{
	return XXH3_64bits_update(state, data, bytes);
}
