/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which code computes XXH3-64 here. libxxhash's dispatching calls pick the widest SIMD that the CPU names, which is the
 * fastest on a real CPU (1.7 to 2.4 times the plain calls) and the slowest where the CPU is emulated. So both are timed
 * once at start, as the kernel does for its RAID checksums. All compute the same function over the same XXH3_state_t.
 */
#ifndef RY_HASH_H
#define RY_HASH_H

#include <stddef.h>
#include <stdint.h>

#define XXH_STATIC_LINKING_ONLY /* for the body of XXH3_state_t */
#include <xxhash.h>

#ifdef __cplusplus
extern "C" {
#endif

struct hash_code {
	const char *name;
	XXH64_hash_t (*whole)(const void *data, size_t bytes);
	XXH_errorcode (*update)(XXH3_state_t *state, const void *data, size_t bytes);
};

extern const struct hash_code hash_scalar; /* no SIMD */
extern const struct hash_code hash_simd;   /* what libxxhash picks for this CPU */

/* The fastest here; timed by the first caller, about a millisecond. Any thread; never NULL. */
const struct hash_code *hash_fastest(void);

/* Bytes per second of code over a buffer that stays in the second-level cache, best of a few rounds. */
double hash_rate(const struct hash_code *code);

#ifdef __cplusplus
}
#endif
#endif
