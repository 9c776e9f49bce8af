/* SPDX-License-Identifier: BSD-3-Clause */
/* libxxhash without SIMD, for guests whose CPU is emulated (verbs.py --scalar-hash): loaded in its place. */
#define XXH_VECTOR 0
#define XXH_STATIC_LINKING_ONLY
#define XXH_IMPLEMENTATION
#include <xxhash.h>

/* What callers of xxh_x86dispatch.h are linked to. */
XXH64_hash_t XXH3_64bits_dispatch(const void *data, size_t bytes);
XXH_errorcode XXH3_64bits_update_dispatch(XXH3_state_t *state, const void *data, size_t bytes);

XXH64_hash_t XXH3_64bits_dispatch(const void *data, size_t bytes)
{
	return XXH3_64bits(data, bytes);
}

XXH_errorcode XXH3_64bits_update_dispatch(XXH3_state_t *state, const void *data, size_t bytes)
{
	return XXH3_64bits_update(state, data, bytes);
}
