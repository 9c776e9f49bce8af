/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Post and poll of the mock transport. Post stamps each WR with the time at which it arrives; poll delivers what is
 * due, in order per QP, at most a bounded number of bytes.
 */
#include <string.h>

#include "transport/mock/device.h"
#include "transport/mock/mock_model.h"

static bool take(struct rail *rail, struct mock *m, struct mock_qp *q, const struct wr *wr);
static bool take_send(struct rail *rail, struct mock *m, struct mock_qp *q, const struct wr *wr);
static bool take_write(struct rail *rail, struct mock *m, struct mock_qp *q, const struct wr *wr);
static bool take_inv(struct mock_qp *q, const struct wr *wr);
static void activate(struct mock *m, struct mock_qp *q);
static uint16_t drain(struct rail *rail, struct mock_qp *q, struct wc *wc, uint16_t max, uint32_t *budget);
static uint16_t drain_invs(struct mock_qp *q, struct wc *wc, uint16_t max);
static bool is_due(const struct mock *m, const struct mock_wr *e, uint64_t now_ns, uint32_t *budget, uint32_t *n_bytes);
static unsigned mock_deliver(struct rail *rail, struct mock_qp *q, struct mock_wr *e, uint32_t n_bytes, struct wc *wc);
static void deliver_slice(struct rail *rail, struct mock_qp *q, struct mock_wr *e, uint32_t n_bytes);
static void compact(struct mock *m);

uint16_t mock_post(struct rail *rail, const struct wr *wr, uint16_t n)
{
	struct mock *m = rail->tr;

	for (uint16_t i = 0; i < n; i++) {
		struct mock_qp *q = (struct mock_qp *)wr[i].qp;

		if (unlikely(q->is_down || q->fence_want))
			continue;
		if (!take(rail, m, q, &wr[i]))
			return i;
	}
	return n;
}

static bool take(struct rail *rail, struct mock *m, struct mock_qp *q, const struct wr *wr)
{
	bool is_taken = true; /* BIND: the requester's window state is all there is */

	if (wr->op == WR_SEND)
		is_taken = take_send(rail, m, q, wr);
	else if (wr->op == WR_WRITE)
		is_taken = take_write(rail, m, q, wr);
	else if (unlikely(m->device))
		is_taken = device_take(rail, m, q, wr);
	else if (wr->op == WR_INV)
		is_taken = take_inv(q, wr);
	else
		RTE_ASSERT(wr->op == WR_BIND);
	activate(m, q);
	return is_taken;
}

static bool take_send(struct rail *rail, struct mock *m, struct mock_qp *q, const struct wr *wr)
{
	struct mock_wr *e = &q->sq[q->sq_tail & (MOCK_SQ_DEPTH - 1)];
	uint8_t *slot = q->msgs[q->msg_tail & (MOCK_MSGS - 1)];

	RTE_ASSERT(wr->len_bytes <= WIRE_MSG_BYTES);
	if (q->sq_tail - q->sq_head == MOCK_SQ_DEPTH || q->msg_tail - q->msg_released == MOCK_MSGS)
		return false;
	memcpy(slot, wr->addr, wr->len_bytes);
	q->msg_tail++;
	*e = (struct mock_wr){
		.op = WR_SEND, .due_ns = rail->now_ns + m->latency_ns, .src = slot, .len_bytes = wr->len_bytes};
	q->sq_tail++;
	return true;
}

static bool take_write(struct rail *rail, struct mock *m, struct mock_qp *q, const struct wr *wr)
{
	struct mock_wr *e = &q->sq[q->sq_tail & (MOCK_SQ_DEPTH - 1)];

	RTE_ASSERT(wr->len_bytes <= MOCK_WRITE_MAX_BYTES);
	if (q->sq_tail - q->sq_head == MOCK_SQ_DEPTH)
		return false;
	*e = (struct mock_wr){
		.op = WR_WRITE,
		.src = wr->addr,
		.ctx = wr->ctx,
		.offset = wr->offset,
		.key = wr->key,
		.len_bytes = wr->len_bytes,
	};
	mock_enter_wire(m, &m->wires[q->base.is_dialler], e, rail->now_ns);
	q->sq_tail++;
	return true;
}

static bool take_inv(struct mock_qp *q, const struct wr *wr)
{
	if (q->inv_tail - q->inv_head == MOCK_INVS)
		return false;
	q->invs[q->inv_tail++ & (MOCK_INVS - 1)] = wr->ctx;
	return true;
}

static void activate(struct mock *m, struct mock_qp *q)
{
	if (q->is_listed)
		return;
	RTE_ASSERT(m->n_active < RAIL_QPS_MAX);
	q->is_listed = true;
	m->active[m->n_active++] = q;
}

uint16_t mock_poll(struct rail *rail, struct wc *wc, uint16_t max)
{
	struct mock *m = rail->tr;
	uint32_t budget = m->turn_bytes;
	uint16_t n = 0;
	uint32_t first;

	/* Acquire: partner of the release in mock_pair_close; is_closed of the end was written before. */
	if (unlikely(m->epoch_seen != rail->qp_epoch ||
		     __atomic_load_n(&m->close_epoch, __ATOMIC_ACQUIRE) != m->close_seen))
		n = mock_rescan(rail, wc, max);
	/* Relaxed: fault_turn looks again. Not NULL only while there is a fault plan. */
	if (unlikely(__atomic_load_n(&m->fault.want, __ATOMIC_RELAXED) && n < max))
		n += fault_turn(rail, wc + n, max - n);
	if (unlikely(m->device && n < max))
		n += device_turn(rail, wc + n, max - n);
	if (!m->n_active || n == max)
		return n;
	first = m->turn++ % m->n_active;
	for (uint32_t i = 0; i < m->n_active && n < max; i++)
		n += drain(rail, m->active[(first + i) % m->n_active], wc + n, max - n, &budget);
	compact(m);
	return n;
}

static uint16_t drain(struct rail *rail, struct mock_qp *q, struct wc *wc, uint16_t max, uint32_t *budget)
{
	struct mock *m = rail->tr;
	uint16_t n = drain_invs(q, wc, max);

	q->msg_released = q->msg_head;
	if (!mock_is_live(m, q->peer) && !m->device)
		return n; /* not adopted yet, or about to be closed */
	while (n < max && q->sq_head != q->sq_tail) {
		struct mock_wr *e = &q->sq[q->sq_head & (MOCK_SQ_DEPTH - 1)];
		uint32_t n_bytes;
		unsigned what;

		if (unlikely(m->device) && !device_moves(rail, q, e))
			break;
		if (!is_due(m, e, rail->now_ns, budget, &n_bytes))
			break;
		what = mock_deliver(rail, q, e, n_bytes, &wc[n]);
		n += what & MOCK_FILLED;
		if (!(what & MOCK_FINISHED))
			break;
		q->msg_head += e->op == WR_SEND;
		q->sq_head++;
	}
	return n;
}

/* Closed by state before it was posted, on this very lcore: nothing to wait for. */
static uint16_t drain_invs(struct mock_qp *q, struct wc *wc, uint16_t max)
{
	uint16_t n = 0;

	while (n < max && q->inv_head != q->inv_tail)
		wc[n++] = (struct wc){.op = WC_INV, .qp = &q->base, .ctx = q->invs[q->inv_head++ & (MOCK_INVS - 1)]};
	return n;
}

/* Whether anything of it can be delivered now, and how much; charges the turn's budget. */
static bool is_due(const struct mock *m, const struct mock_wr *e, uint64_t now_ns, uint32_t *budget, uint32_t *n_bytes)
{
	if (e->op == WR_SEND || !e->len_bytes) {
		*n_bytes = e->len_bytes;
		return now_ns >= e->due_ns;
	}
	*n_bytes = RTE_MIN(mock_arrived_bytes(m, e, now_ns) - e->pos_bytes, *budget);
	*budget -= *n_bytes;
	return *n_bytes != 0;
}

/* Every delivery passes here: this is where a fault plan drops, delays, corrupts or repeats. Returns enum
 * mock_delivered.
 */
static unsigned mock_deliver(struct rail *rail, struct mock_qp *q, struct mock_wr *e, uint32_t n_bytes, struct wc *wc)
{
	struct mock *m = rail->tr;

	if (unlikely(m->device)) {
		if (e->op == WR_BIND || e->op == WR_INV)
			return device_local(rail, q, e, wc);
		if (e->op == WR_WRITE && !device_admits(rail, q, e, n_bytes))
			return 0;
	}
	if (unlikely(m->fault.plan))
		return fault_deliver(rail, q, e, n_bytes, wc);
	if (unlikely(e->op == WR_READ))
		return device_read(rail, q, e, n_bytes, wc);
	stat_add(&rail->counters.wire_tx_bytes, n_bytes);
	stat_add(&rail->counters.wire_rx_bytes, n_bytes);
	if (e->op == WR_SEND)
		return mock_message(rail, q, e, wc);
	deliver_slice(rail, q, e, n_bytes);
	if (e->pos_bytes < e->len_bytes)
		return 0;
	*wc = (struct wc){.op = WC_WRITE, .qp = &q->base, .ctx = e->ctx, .len_bytes = e->len_bytes};
	return MOCK_FILLED | MOCK_FINISHED;
}

unsigned mock_message(struct rail *rail, struct mock_qp *q, struct mock_wr *e, struct wc *wc)
{
	if (unlikely(q->peer->is_down))
		return MOCK_FINISHED;
	if (unlikely(wire_msg_check(e->src, e->len_bytes) != RY_OK)) {
		stat_add(&rail->counters.protocol_errors, 1);
		mock_down(q->peer, WC_ERR_PROTOCOL, wc);
		return MOCK_FILLED | MOCK_FINISHED;
	}
	*wc = (struct wc){.op = WC_RECV, .qp = &q->peer->base, .msg = e->src, .len_bytes = e->len_bytes};
	return MOCK_FILLED | MOCK_FINISHED;
}

static void deliver_slice(struct rail *rail, struct mock_qp *q, struct mock_wr *e, uint32_t n_bytes)
{
	struct mock *m = rail->tr;
	uint8_t *dst = mock_resolve(rail, &q->peer->base, e->key, e->offset + e->pos_bytes, n_bytes);

	if (unlikely(!dst))
		window_sunk(rail, e->key, n_bytes);
	else if (m->want_copy)
		memcpy(dst, e->src + e->pos_bytes, n_bytes);
	e->pos_bytes += n_bytes;
}

static void compact(struct mock *m)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < m->n_active; i++) {
		struct mock_qp *q = m->active[i];

		q->is_listed = mock_has_work(q);
		if (q->is_listed)
			m->active[kept++] = q;
	}
	m->n_active = kept;
}
