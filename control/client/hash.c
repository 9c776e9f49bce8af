/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * XXH3-64 of stripes. The dispatching variant picks AVX2 or AVX-512 at run time: about twice the speed of the plain
 * calls. A libxxhash.a need not have it (Debian's has not), so it is a weak symbol: who links statically hashes
 * plainly.
 */
#include "client_priv.h"

#include <xxhash.h>

#include <stdlib.h>
#include <string.h>

#define SLICE_BYTES (128u << 10) /* copied bytes are hashed while they are still in the second-level cache */

XXH_errorcode XXH3_64bits_update_dispatch(XXH3_state_t *state, const void *data, size_t bytes) __attribute__((weak));

struct ryc_hash {
	XXH3_state_t *state;
};

struct ryc_hash *ryc_hash_new(void)
{
	struct ryc_hash *h = malloc(sizeof(*h));

	if (!h)
		return NULL;
	h->state = XXH3_createState();
	if (!h->state) {
		free(h);
		return NULL;
	}
	XXH3_64bits_reset(h->state);
	return h;
}

void ryc_hash_free(struct ryc_hash *h)
{
	if (!h)
		return;
	XXH3_freeState(h->state);
	free(h);
}

void ryc_hash_update(struct ryc_hash *h, const void *data, uint64_t bytes)
{
	if (XXH3_64bits_update_dispatch)
		XXH3_64bits_update_dispatch(h->state, data, bytes);
	else
		XXH3_64bits_update(h->state, data, bytes);
}

void ryc_hash_copy(struct ryc_hash *h, void *to, const void *from, uint64_t bytes)
{
	for (uint64_t at = 0; at < bytes; at += SLICE_BYTES) {
		uint64_t n = bytes - at < SLICE_BYTES ? bytes - at : SLICE_BYTES;

		memcpy((uint8_t *)to + at, (const uint8_t *)from + at, n);
		ryc_hash_update(h, (uint8_t *)to + at, n);
	}
}

uint64_t ryc_hash_take(struct ryc_hash *h)
{
	uint64_t value = XXH3_64bits_digest(h->state);

	XXH3_64bits_reset(h->state);
	return value;
}
