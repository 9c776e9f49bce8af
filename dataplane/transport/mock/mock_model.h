/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The mock rail's model of a wire: when a WRITE's bytes arrive.
 *
 * One wire per direction; a WRITE of n bytes occupies it for n / bandwidth, behind all that was posted before, and
 * arrives latency later. Integer arithmetic that carries what each division leaves, so that it is exact over any run.
 * No clock of its own. Inlined into mock_hot.c and mock.c, by nobody else.
 */
#ifndef RY_MOCK_MODEL_H
#define RY_MOCK_MODEL_H

#include "transport/mock/mock_priv.h"

#ifdef __cplusplus
extern "C" {
#endif

#define MOCK_NS_PER_S 1000000000ull

/* The wire is booked when the WRITE is posted, behind all that was posted before, so that a late poll costs it nothing.
 */
static inline void mock_enter_wire(struct mock *m, struct mock_wire *wire, struct mock_wr *e, uint64_t now_ns)
{
	uint64_t t;

	if (!m->bandwidth) {
		e->due_ns = now_ns + m->latency_ns;
		return;
	}
	if (wire->busy_ns < now_ns) {
		wire->busy_ns = now_ns;
		wire->frac = 0;
	}
	e->start_ns = wire->busy_ns;
	e->start_frac = wire->frac;
	t = wire->frac + e->len_bytes * MOCK_NS_PER_S; /* below 2^32 x 10^9 + bandwidth: fits */
	wire->busy_ns += t / m->bandwidth;
	wire->frac = t % m->bandwidth;
	e->due_ns = wire->busy_ns + m->latency_ns;
}

/* How much of a WRITE has arrived: under a bandwidth model in whole slices, except its end. */
static inline uint32_t mock_arrived_bytes(const struct mock *m, const struct mock_wr *e, uint64_t now_ns)
{
	uint64_t t;

	if (now_ns >= e->due_ns)
		return e->len_bytes;
	if (!m->bandwidth || now_ns < e->start_ns + m->latency_ns)
		return e->pos_bytes;
	t = (now_ns - m->latency_ns - e->start_ns) * m->bandwidth; /* not due, so below len x 10^9 + bandwidth: fits */
	if (t < e->start_frac)
		return e->pos_bytes;
	t = (t - e->start_frac) / MOCK_NS_PER_S & ~(uint64_t)(MOCK_SLICE_BYTES - 1);
	return RTE_MAX(e->pos_bytes, (uint32_t)t);
}

/* When the next slice, or all, of a WRITE or SEND will have arrived. Rounded up, so that poll at that time sees it
 * whole. */
static inline uint64_t mock_next_ns(const struct mock *m, const struct mock_wr *e)
{
	uint64_t next = (e->pos_bytes & ~(MOCK_SLICE_BYTES - 1)) + MOCK_SLICE_BYTES;

	if (e->op == WR_SEND || !m->bandwidth || next >= e->len_bytes)
		return e->due_ns;
	return e->start_ns + m->latency_ns + (e->start_frac + next * MOCK_NS_PER_S + m->bandwidth - 1) / m->bandwidth;
}

#ifdef __cplusplus
}
#endif
#endif
