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

struct hash_choice {
	const struct hash_code *code;                /* the faster here, never NULL */
	double simd_bytes_per_s, scalar_bytes_per_s; /* what decided: over a buffer in the second-level cache */
};

/* Timed by the first caller, about a millisecond, and the same from then on. Any thread. */
const struct hash_choice *hash_choose(void);

#ifdef __cplusplus
}
#endif
#endif
