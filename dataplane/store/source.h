/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The table of things a rail lcore can serve: committed objects (READ) and put parts of local clients (PULL).
 *
 * One writer (control), lock-free readers (rail lcores). A handle is a slot with a salt that changes at every reuse. A
 * rail that finds a LIVE source of the right generation pins it in its own counter before its next quiescent report;
 * control retires a source by marking it DEAD, waiting for one QSBR grace period (after which no new pin can appear),
 * then for all pins to reach zero. Only then may the memory behind it be reused: that is the fence for memory served to
 * peers.
 */
#ifndef RY_SOURCE_H
#define RY_SOURCE_H

#include <stdalign.h>
#include <stdbool.h>
#include <stdint.h>

#include <rte_rcu_qsbr.h>

#include <railyard/types.h>

#ifdef __cplusplus
extern "C" {
#endif

enum source_state {
	SOURCE_FREE = 0,
	SOURCE_LIVE = 1,
	SOURCE_DEAD = 2,
	SOURCE_LINGERING = 3, /* replaced or deleted: reads that began before go on, none begins */
};

struct source {
	/* written by control before LIVE is published (release), read by rails after they saw LIVE (acquire) */
	uint64_t handle;
	uint64_t generation;
	uint64_t size_bytes;
	uint32_t stripe_bytes;
	uint32_t stripe_count;
	uint16_t region;       /* that all of it lies in */
	uint32_t first_stripe; /* index of the first stripe this source holds (put parts); 0 for objects */
	uint8_t *const
		*stripe_addr; /* address of each stripe, stripe_count - first_stripe entries; NULL: flat at `base` */
	uint8_t *base;
	uint64_t expires_ns; /* 0 = never; rails refuse READs after it */
	uint32_t state;      /* enum source_state; written by control (release), read by rails (acquire) */
	/* each written by its rail, read by control after the grace period */
	alignas(64) uint32_t pins[RY_RAILS_MAX];
};

struct source_table {
	struct source *slots;
	uint32_t mask;             /* n - 1 */
	struct rte_rcu_qsbr *qsbr; /* thread id = rail index */
};

/* Control, set-up: room for at least n sources. */
int source_table_create(uint32_t n, uint16_t n_rails, struct source_table **out);
void source_table_destroy(struct source_table *t);

/* Control: a free slot with a fresh handle, or NULL. Fill it, then source_publish. */
struct source *source_alloc(struct source_table *t);
void source_publish(struct source *s);
/* Control: LINGERING from now on. A read's first request that a rail has not accepted yet is refused. */
void source_linger(struct source *s);
/* Control: DEAD now; returns the QSBR token to pass to source_is_quiet. */
uint64_t source_retire(struct source_table *t, struct source *s);
/* Control: whether no rail can touch it any more. */
bool source_is_quiet(struct source_table *t, const struct source *s, uint64_t token);
/* Control, after it is quiet (or was never published): the slot may be allocated again. */
void source_release(struct source_table *t, struct source *s);

/* Rail: the live source of this handle and generation (is_start: not a lingering one), pinned; else NULL with *status =
 * NOT_FOUND or STALE_GENERATION.
 */
static inline struct source *source_pin(struct source_table *t, uint64_t handle, uint64_t generation, uint16_t rail_idx,
	uint64_t now_ns, uint32_t *status, bool is_start);
/* Rail: address of bytes [offset, offset + len) of a stripe, NULL when outside. */
static inline uint8_t *source_addr(const struct source *s, uint32_t stripe_idx, uint64_t offset, uint64_t len_bytes);
static inline void source_unpin(struct source *s, uint16_t rail_idx);

#include "source_inline.h"

#ifdef __cplusplus
}
#endif
#endif
