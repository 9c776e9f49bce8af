/* SPDX-License-Identifier: BSD-3-Clause */
/* XXH3-64 compiled into this file without SIMD. */
#define XXH_VECTOR 0 /* XXH_SCALAR */
#define XXH_INLINE_ALL
#include <xxhash.h>

/* After the inlined library, whose names it would otherwise take. */
#include "hash/hash.h"

static XXH64_hash_t scalar_whole(const void *data, size_t bytes);
static XXH_errorcode scalar_update(XXH3_state_t *state, const void *data, size_t bytes);

const struct hash_code hash_scalar = {.name = "scalar", .whole = scalar_whole, .update = scalar_update};

static XXH64_hash_t scalar_whole(const void *data, size_t bytes)
{
	return XXH3_64bits(data, bytes);
}

static XXH_errorcode scalar_update(XXH3_state_t *state, const void *data, size_t bytes)
{
	return XXH3_64bits_update(state, data, bytes);
}
