/* SPDX-License-Identifier: BSD-3-Clause */
/* First-fit allocator of the put arena: a handful of blocks at a time, all metadata in private memory. */
#include "client_priv.h"

#include <stdlib.h>

struct ryc_block *ryc_arena_alloc(struct ryc_arena *a, uint64_t bytes)
{
	struct ryc_block *next, *b;
	uint64_t at = 0;

	if (bytes == 0 || bytes > a->bytes)
		return NULL;
	bytes = (bytes + RYC_ALIGN_BYTES - 1) / RYC_ALIGN_BYTES * RYC_ALIGN_BYTES;
	TAILQ_FOREACH (next, &a->blocks, link) {
		if (next->offset - at >= bytes)
			break;
		at = next->offset + next->bytes;
	}
	if (!next && a->bytes - at < bytes)
		return NULL;
	b = malloc(sizeof(*b));
	if (!b)
		return NULL;
	b->offset = at;
	b->bytes = bytes;
	if (next)
		TAILQ_INSERT_BEFORE(next, b, link);
	else
		TAILQ_INSERT_TAIL(&a->blocks, b, link);
	return b;
}

void ryc_arena_free(struct ryc_arena *a, struct ryc_block *b)
{
	if (!b)
		return;
	TAILQ_REMOVE(&a->blocks, b, link);
	free(b);
}
