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
static XXH64_hash_t simd_whole(const void *data, size_t bytes);
static XXH_errorcode simd_update(XXH3_state_t *state, const void *data, size_t bytes);

const struct hash_code hash_simd = {.name = "SIMD", .whole = simd_whole, .update = simd_update};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static const struct hash_code *fastest; /* written under once, which orders it for every later reader */

const struct hash_code *hash_fastest(void)
{
	pthread_once(&once, choose);
	return fastest;
}

static void choose(void)
{
	fastest = hash_rate(&hash_scalar) > hash_rate(&hash_simd) ? &hash_scalar : &hash_simd;
}

double hash_rate(const struct hash_code *code)
{
	static uint8_t sample[SAMPLE_BYTES]; /* read only */
	uint64_t best_ns = UINT64_MAX;
	XXH3_state_t state;

	for (unsigned i = 0; i < ROUNDS; i++) {
		uint64_t begin_ns = clock_ns();
		uint64_t took_ns;

		XXH3_64bits_reset(&state);
		code->update(&state, sample, sizeof(sample));
		took_ns = clock_ns() - begin_ns;
		if (took_ns && took_ns < best_ns)
			best_ns = took_ns;
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
