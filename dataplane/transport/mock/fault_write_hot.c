/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The running fault plan: what happens to WRITEs. Entered only while a plan is in force.
 */
#include <string.h>

#include "transport/mock/device.h"
#include "transport/mock/mock_model.h"

static void begin(struct rail *rail, struct mock_qp *q, struct mock_wr *e);
static bool hits_stripe(const struct mock_fault *f, unsigned i, const struct mock_wr *e);
static bool make_late(struct rail *rail, struct mock_qp *q, struct mock_wr *e, const struct fault_entry *entry);
static bool is_waiting(const struct mock_fault *f, uint32_t key, uint64_t offset);
static uint32_t pass_gate(
	struct mock *m, struct mock_qp *q, const struct mock_wr *e, uint32_t n_bytes, uint64_t now_ns);
static uint32_t clip(const struct mock_fault *f, uint32_t n_bytes);
static void deliver_slice(struct rail *rail, struct mock_qp *q, struct mock_wr *e, uint32_t n_bytes);
static void spoiled_copy(struct mock_fault *f, const struct mock_wr *e, uint8_t *dst, uint32_t n_bytes);
static void flip_bit(struct mock_fault *f, unsigned i, const struct mock_wr *e, uint8_t *dst, uint32_t n_bytes);
static void land(struct rail *rail, struct mock *m, struct fault_late *l);

unsigned fault_write(struct rail *rail, struct mock_qp *q, struct mock_wr *e, uint32_t n_bytes, struct wc *wc)
{
	struct mock *m = rail->tr;

	if (!(e->fault_state & MOCK_BEGUN))
		begin(rail, q, e);
	if (e->fault_state & MOCK_LATE) {
		if (is_waiting(&m->fault, e->key, e->offset))
			return 0;
		e->pos_bytes = e->len_bytes; /* it will land by itself: here it only claims success */
	} else if (e->len_bytes) {
		n_bytes = pass_gate(m, q, e, clip(&m->fault, n_bytes), rail->now_ns);
		if (!n_bytes)
			return 0;
		deliver_slice(rail, q, e, n_bytes);
	}
	if (e->pos_bytes < e->len_bytes)
		return 0;
	*wc = (struct wc){.op = WC_WRITE, .qp = &q->base, .ctx = e->ctx, .len_bytes = e->len_bytes};
	return MOCK_FILLED | MOCK_FINISHED;
}

/* Its first byte is about to arrive: which entries have something to do with it. */
static void begin(struct rail *rail, struct mock_qp *q, struct mock_wr *e)
{
	struct mock_fault *f = &((struct mock *)rail->tr)->fault;

	e->fault_state = MOCK_BEGUN;
	e->faults = 0;
	f->n_writes++;
	for (unsigned i = 0; i < f->plan->n_entries; i++) {
		const struct fault_entry *entry = &f->plan->entries[i];
		bool is_struck;

		if (entry->kind != FAULT_SHORT && entry->kind != FAULT_CORRUPT && entry->kind != FAULT_LATE)
			continue;
		if (entry->trigger == FAULT_AT_STRIPE)
			is_struck = hits_stripe(f, i, e) && fault_draw(f, i);
		else
			is_struck = fault_strikes(f, i, rail->now_ns, f->n_writes);
		if (!is_struck)
			continue;
		if (entry->kind != FAULT_LATE)
			e->faults |= (uint16_t)(1u << i);
		else if (!(e->fault_state & MOCK_LATE) && make_late(rail, q, e, entry))
			e->fault_state |= MOCK_LATE;
	}
}

static bool hits_stripe(const struct mock_fault *f, unsigned i, const struct mock_wr *e)
{
	const struct fault_run *run = &f->run[i];

	return !fault_is_over(f, i) && run->key_offset != UINT64_MAX && run->key == e->key &&
	       run->key_offset >= e->offset && run->key_offset - e->offset < e->len_bytes;
}

/* Only what would have landed can be late: false where its window is closed already, and where too many are late. */
static bool make_late(struct rail *rail, struct mock_qp *q, struct mock_wr *e, const struct fault_entry *entry)
{
	struct mock_fault *f = &((struct mock *)rail->tr)->fault;
	uint8_t *addr = mock_resolve(rail, &q->peer->base, e->key, e->offset, e->len_bytes);

	for (unsigned i = 0; addr && i < FAULT_LATES_MAX; i++) {
		if (f->lates[i].state != LATE_FREE)
			continue;
		f->lates[i] = (struct fault_late){
			.state = LATE_WAITS,
			.is_unguarded = entry->is_unguarded,
			.key = e->key,
			.len_bytes = e->len_bytes,
			.offset = e->offset,
			.delay_ns = entry->for_ns,
			.addr = addr,
			.to_qp = &q->peer->base,
		};
		f->n_lates++;
		return true;
	}
	return false;
}

static bool is_waiting(const struct mock_fault *f, uint32_t key, uint64_t offset)
{
	for (unsigned i = 0; f->n_lates && i < FAULT_LATES_MAX; i++) {
		const struct fault_late *l = &f->lates[i];

		if (l->state == LATE_WAITS && l->key == key && l->offset == offset)
			return true;
	}
	return false;
}

/* How many of these bytes a slowed wire has let through by now, in slices; books them. */
static uint32_t pass_gate(struct mock *m, struct mock_qp *q, const struct mock_wr *e, uint32_t n_bytes, uint64_t now_ns)
{
	struct mock_fault *f = &m->fault;
	struct fault_gate *g = &f->gates[q->base.is_dialler];
	uint64_t past_ns, need, passed;

	if (!f->rate || !n_bytes)
		return n_bytes;
	if (!e->pos_bytes && g->free_ns < e->start_ns + m->latency_ns)
		*g = (struct fault_gate){.free_ns = e->start_ns + m->latency_ns};
	if (now_ns < g->free_ns)
		return 0;
	past_ns = now_ns - g->free_ns;
	need = g->frac +
	       n_bytes * MOCK_NS_PER_S; /* below 2^32 x 10^9 + rate: fits, and so does past_ns x rate below it */
	if (past_ns < (need + f->rate - 1) / f->rate) {
		passed = past_ns * f->rate < g->frac ? 0 : (past_ns * f->rate - g->frac) / MOCK_NS_PER_S;
		n_bytes = (uint32_t)passed & ~(FAULT_SLICE_BYTES - 1);
		need = g->frac + n_bytes * MOCK_NS_PER_S;
	}
	g->free_ns += need / f->rate;
	g->frac = need % f->rate;
	return n_bytes;
}

/* Up to the byte at which something happens to the rail; that happens before the next one. */
static uint32_t clip(const struct mock_fault *f, uint32_t n_bytes)
{
	for (unsigned i = 0; i < f->plan->n_entries; i++) {
		uint64_t at = f->run[i].at;

		if (f->plan->entries[i].trigger == FAULT_AT_BYTES && !fault_is_over(f, i) && at > f->n_bytes)
			n_bytes = (uint32_t)RTE_MIN(n_bytes, at - f->n_bytes);
	}
	return n_bytes;
}

static void deliver_slice(struct rail *rail, struct mock_qp *q, struct mock_wr *e, uint32_t n_bytes)
{
	struct mock *m = rail->tr;
	uint8_t *dst = mock_resolve(rail, &q->peer->base, e->key, e->offset + e->pos_bytes, n_bytes);

	stat_add(&rail->counters.wire_tx_bytes, n_bytes);
	stat_add(&rail->counters.wire_rx_bytes, n_bytes);
	if (!dst)
		window_sunk(rail, e->key, n_bytes);
	else if (m->want_copy)
		spoiled_copy(&m->fault, e, dst, n_bytes);
	e->pos_bytes += n_bytes;
	m->fault.n_bytes += n_bytes;
}

static void spoiled_copy(struct mock_fault *f, const struct mock_wr *e, uint8_t *dst, uint32_t n_bytes)
{
	uint32_t end = e->len_bytes; /* bytes from here on are left out */

	for (unsigned i = 0; e->faults >> i; i++) {
		const struct fault_entry *entry = &f->plan->entries[i];

		if (e->faults >> i & 1 && entry->kind == FAULT_SHORT) {
			end = entry->arg && entry->arg < end ? end - (uint32_t)entry->arg : 0;
			if (e->pos_bytes + n_bytes == e->len_bytes)
				fault_done(f, FAULT_SHORT);
		}
	}
	if (e->pos_bytes < end)
		memcpy(dst, e->src + e->pos_bytes, RTE_MIN(n_bytes, end - e->pos_bytes));
	for (unsigned i = 0; e->faults >> i; i++) {
		if (e->faults >> i & 1 && f->plan->entries[i].kind == FAULT_CORRUPT)
			flip_bit(f, i, e, dst, n_bytes);
	}
}

/* Without a byte in the plan one is chosen by seed and place, so that every slice of the write agrees. */
static void flip_bit(struct mock_fault *f, unsigned i, const struct mock_wr *e, uint8_t *dst, uint32_t n_bytes)
{
	const struct fault_entry *entry = &f->plan->entries[i];
	uint64_t x = f->plan->seed + i + e->offset + ((uint64_t)e->key << 32);
	uint64_t at = entry->arg == FAULT_BYTE_ANY ? fault_random(&x) : entry->arg;

	at %= e->len_bytes;
	if (entry->trigger == FAULT_AT_STRIPE && entry->arg != FAULT_BYTE_ANY)
		at = f->run[i].key_offset - e->offset;
	if (at < e->pos_bytes || at - e->pos_bytes >= n_bytes)
		return;
	dst[at - e->pos_bytes] ^= 0x10;
	fault_done(f, FAULT_CORRUPT);
}

void fault_land(struct rail *rail, struct mock *m)
{
	struct mock_fault *f = &m->fault;

	for (unsigned i = 0; i < FAULT_LATES_MAX; i++) {
		struct fault_late *l = &f->lates[i];

		if (l->state == LATE_WAITS && !mock_resolve(rail, l->to_qp, l->key, l->offset, l->len_bytes)) {
			l->state = LATE_FLIES;
			l->at_ns = rail->now_ns + l->delay_ns;
		}
		if (l->state == LATE_FLIES && rail->now_ns >= l->at_ns)
			land(rail, m, l);
	}
}

/* The guard is the same look at the window that every byte needs; without it the address of then is all there is. */
static void land(struct rail *rail, struct mock *m, struct fault_late *l)
{
	uint8_t *dst = l->is_unguarded ? l->addr : mock_resolve(rail, l->to_qp, l->key, l->offset, l->len_bytes);

	if (!dst)
		window_sunk(rail, l->key, l->len_bytes);
	else if (m->want_copy)
		memset(dst, FAULT_LATE_BYTE, l->len_bytes);
	l->state = LATE_FREE;
	m->fault.n_lates--;
	fault_done(&m->fault, FAULT_LATE);
}
