/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The rail's half of source.h; included by it only. Runs per request on rail lcores; never blocks, never writes
 * anything but the rail's own pin counter.
 */
#ifndef RY_SOURCE_INLINE_H
#define RY_SOURCE_INLINE_H

#include <stddef.h>

#include <railyard/status.h>

#include "source.h"

#ifdef __cplusplus
extern "C" {
#endif

static inline struct source *source_pin(struct source_table *t, uint64_t handle, uint64_t generation, uint16_t rail_idx,
	uint64_t now_ns, uint32_t *status, bool is_start)
{
	struct source *s = &t->slots[(uint32_t)handle & t->mask];

	/* Acquire: partner of the release in source_publish; the fields below were written before LIVE. */
	uint32_t state = __atomic_load_n(&s->state, __ATOMIC_ACQUIRE);

	if ((state != SOURCE_LIVE && (state != SOURCE_LINGERING || is_start)) || s->handle != handle) {
		*status = RY_ERR_STALE_GENERATION;
		return NULL;
	}
	if (s->generation != generation) {
		*status = RY_ERR_STALE_GENERATION;
		return NULL;
	}
	if (s->expires_ns && now_ns >= s->expires_ns) {
		*status = RY_ERR_NOT_FOUND;
		return NULL;
	}
	/* Relaxed: ordered for control by this rail's next quiescent report (source_is_quiet waits for it). */
	__atomic_store_n(&s->pins[rail_idx], s->pins[rail_idx] + 1, __ATOMIC_RELAXED);
	return s;
}

static inline uint64_t source_stripe_len(const struct source *s, uint32_t stripe_idx)
{
	uint64_t start = (uint64_t)stripe_idx * s->stripe_bytes;

	return s->size_bytes - start < s->stripe_bytes ? s->size_bytes - start : s->stripe_bytes;
}

static inline uint8_t *source_addr(const struct source *s, uint32_t stripe_idx, uint64_t offset, uint64_t len_bytes)
{
	uint32_t i = stripe_idx - s->first_stripe;

	if (stripe_idx < s->first_stripe || stripe_idx >= s->stripe_count)
		return NULL;
	if (len_bytes > source_stripe_len(s, stripe_idx) || offset > source_stripe_len(s, stripe_idx) - len_bytes)
		return NULL;
	return (s->stripe_addr ? s->stripe_addr[i] : s->base + (uint64_t)i * s->stripe_bytes) + offset;
}

static inline void source_unpin(struct source *s, uint16_t rail_idx)
{
	/* Release: partner of the acquire in source_is_quiet; our reads of the memory come before it may be reused. */
	__atomic_store_n(&s->pins[rail_idx], s->pins[rail_idx] - 1, __ATOMIC_RELEASE);
}

#ifdef __cplusplus
}
#endif
#endif
