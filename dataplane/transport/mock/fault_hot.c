/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The running fault plan: what happens to the whole rail or to one end. Entered only while a plan is in force.
 */
#include "transport/mock/device.h"

/* Kinds that strike the rail as a whole, whether anything moves or not. */
#define RAIL_WIDE (1u << FAULT_DISCONNECT | 1u << FAULT_RESTART | 1u << FAULT_STALL | 1u << FAULT_SLOW)

static void strike_rail(struct rail *rail, struct mock *m);
static bool can_strike(const struct rail *rail, const struct mock_fault *f, const struct fault_entry *e);
static void happen(struct rail *rail, struct mock *m, const struct fault_entry *e);
static void slow_down(struct rail *rail, struct mock *m, const struct fault_entry *e);
static uint16_t go_down(struct rail *rail, struct mock_fault *f, struct wc *wc, uint16_t max);
static void strike_end(struct rail *rail, struct mock_fault *f, struct mock_qp *q);

uint16_t fault_turn(struct rail *rail, struct wc *wc, uint16_t max)
{
	struct mock *m = rail->tr;
	struct mock_fault *f = &m->fault;
	uint16_t n;

	/* Acquire: partner of the release in mock_fault_inject; the plan's content comes with its pointer. */
	if (unlikely(__atomic_load_n(&f->want, __ATOMIC_ACQUIRE) != f->plan || !f->plan->n_entries))
		fault_take(rail, m);
	if (!f->plan)
		return 0;
	strike_rail(rail, m);
	n = go_down(rail, f, wc, max);
	n += fault_hand_over(rail, m, wc + n, max - n);
	if (f->n_lates)
		fault_land(rail, m);
	return n;
}

unsigned fault_deliver(struct rail *rail, struct mock_qp *q, struct mock_wr *e, uint32_t n_bytes, struct wc *wc)
{
	struct mock *m = rail->tr;
	struct mock_fault *f = &m->fault;

	strike_rail(rail, m);
	strike_end(rail, f, q);
	if (f->down_status || rail->now_ns < f->stall_until_ns)
		return 0;
	if (e->op == WR_WRITE)
		return fault_write(rail, q, e, n_bytes, wc);
	if (e->op == WR_READ)
		return device_read(rail, q, e, n_bytes, wc);
	return fault_message(rail, q, e, wc);
}

static void strike_rail(struct rail *rail, struct mock *m)
{
	struct mock_fault *f = &m->fault;

	if (f->rate && rail->now_ns >= f->slow_until_ns)
		f->rate = 0;
	for (unsigned i = 0; i < f->plan->n_entries; i++) {
		const struct fault_entry *e = &f->plan->entries[i];

		if (RAIL_WIDE >> e->kind & 1 && can_strike(rail, f, e) &&
			fault_strikes(f, i, rail->now_ns, f->n_msgs[FAULT_OF_ANSWERS]))
			happen(rail, m, e);
	}
}

/* Whether it would change anything: an entry that repeats does not use itself up on what is down or stalled already. */
static bool can_strike(const struct rail *rail, const struct mock_fault *f, const struct fault_entry *e)
{
	if (e->kind == FAULT_STALL)
		return rail->now_ns >= f->stall_until_ns;
	if (e->kind == FAULT_SLOW)
		return e->repeat == 1 || e->every || !f->rate;
	if (f->down_status)
		return false;
	for (uint16_t i = 0; i < rail->n_qps; i++) {
		if (!((const struct mock_qp *)rail->qps[i])->is_down)
			return true;
	}
	return false;
}

static void happen(struct rail *rail, struct mock *m, const struct fault_entry *e)
{
	struct mock_fault *f = &m->fault;

	fault_done(f, e->kind);
	if (e->kind == FAULT_STALL) {
		f->stall_until_ns = rail->now_ns + e->for_ns;
		return;
	}
	if (e->kind == FAULT_SLOW) {
		slow_down(rail, m, e);
		return;
	}
	f->down_status = WC_ERR_PEER_CLOSED;
	f->down_qp = NULL;
	/* Relaxed: conn looks after it saw a QP of this rail FAILED, which is released after this. */
	if (e->kind == FAULT_RESTART)
		__atomic_store_n(&rail->attr.peer_restarts, rail->attr.peer_restarts + 1, __ATOMIC_RELAXED);
}

static void slow_down(struct rail *rail, struct mock *m, const struct fault_entry *e)
{
	struct mock_fault *f = &m->fault;
	/* In this order it can neither overflow (bandwidth is below 2^50) nor become 0. */
	uint64_t rate =
		m->bandwidth / FAULT_ALWAYS_PPM * e->arg + m->bandwidth % FAULT_ALWAYS_PPM * e->arg / FAULT_ALWAYS_PPM;

	f->rate = rate ? rate : 1;
	f->slow_until_ns = e->for_ns ? rail->now_ns + e->for_ns : UINT64_MAX;
	for (int i = 0; i < 2; i++)
		f->gates[i] = (struct fault_gate){.free_ns = rail->now_ns};
}

static uint16_t go_down(struct rail *rail, struct mock_fault *f, struct wc *wc, uint16_t max)
{
	uint16_t n = 0;

	if (!f->down_status)
		return 0;
	for (uint16_t i = 0; i < rail->n_qps && n < max; i++) {
		struct mock_qp *q = (struct mock_qp *)rail->qps[i];

		if (!q->is_down && (!f->down_qp || q == f->down_qp))
			mock_down(q, f->down_status, &wc[n++]);
	}
	if (n < max) {
		f->down_status = 0;
		f->down_qp = NULL;
	}
	return n;
}

static void strike_end(struct rail *rail, struct mock_fault *f, struct mock_qp *q)
{
	for (unsigned i = 0; i < f->plan->n_entries && !f->down_status; i++) {
		const struct fault_entry *e = &f->plan->entries[i];

		if (e->kind != FAULT_ERROR || !fault_strikes(f, i, rail->now_ns, f->n_msgs[FAULT_OF_ANSWERS]))
			continue;
		fault_done(f, FAULT_ERROR);
		f->down_status = (uint8_t)e->arg;
		f->down_qp = q;
	}
}
