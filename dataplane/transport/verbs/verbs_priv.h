/* SPDX-License-Identifier: BSD-3-Clause */
/* What runs per burst over libibverbs; this folder only. Rail lcore. */
#ifndef RY_VERBS_PRIV_H
#define RY_VERBS_PRIV_H

#include "transport/ib/ib.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- sets of QPs by place ---- */
static inline void place_add(uint64_t *set, unsigned i)
{
	set[i / 64] |= 1ull << (i % 64);
}

static inline void place_del(uint64_t *set, unsigned i)
{
	set[i / 64] &= ~(1ull << (i % 64));
}

/* The first member from `from` on, RAIL_QPS_MAX = none. */
static inline unsigned place_next(const uint64_t *set, unsigned from)
{
	for (unsigned w = from / 64; w < RAIL_QPS_MAX / 64; w++) {
		uint64_t bits = w == from / 64 ? set[w] & ~0ull << (from % 64) : set[w];

		if (bits)
			return w * 64 + (unsigned)__builtin_ctzll(bits);
	}
	return RAIL_QPS_MAX;
}

/* The QP is of no use; the next poll says so. */
static inline void verbs_broke(struct ib_rail *ib, struct ib_qp *q, uint8_t status)
{
	if (q->is_broken)
		return;
	q->is_broken = true;
	q->down_status = status;
	place_add(ib->broken, q->place);
}

uint16_t verbs_post(struct rail *r, const struct wr *wr, uint16_t n);
uint16_t verbs_poll(struct rail *r, struct wc *wc, uint16_t max);
/* verbs.c, cold */
void verbs_sync(struct rail *r);
void verbs_woken(struct ib_rail *ib);
uint8_t verbs_status(enum ibv_wc_status status);

#ifdef __cplusplus
}
#endif
#endif
