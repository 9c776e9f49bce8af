/* SPDX-License-Identifier: BSD-3-Clause */
/* The device's own work: windows open and close, peers read and write through them. Rail lcore. */
#include "transport/mock/device.h"

#include <string.h>

#include <rte_debug.h>

#include "transport/mock/mock_model.h"

static bool take_bind(struct rail *rail, struct mock *m, struct mock_qp *q, const struct wr *wr);
static void take_read(struct rail *rail, struct mock *m, struct mock_qp *q, const struct wr *wr);
static void bind(struct rail *rail, struct mock_qp *q, const struct mock_wr *e);
static void invalidate(struct rail *rail, struct mock_qp *q, const struct mock_wr *e);
static void break_both(struct mock_qp *q);

static struct mock_wr *entry(struct mock_qp *q)
{
	return &q->sq[q->sq_tail++ & (MOCK_SQ_DEPTH - 1)];
}

bool device_take(struct rail *rail, struct mock *m, struct mock_qp *q, const struct wr *wr)
{
	if (q->sq_tail - q->sq_head == MOCK_SQ_DEPTH)
		return false;
	if (wr->op == WR_BIND)
		return take_bind(rail, m, q, wr);
	if (wr->op == WR_READ) {
		take_read(rail, m, q, wr);
		return true;
	}
	RTE_VERIFY(wr->op == WR_INV);
	*entry(q) = (struct mock_wr){.op = WR_INV,
		.due_ns = rail->now_ns,
		.src = (uint8_t *)wr->window,
		.ctx = wr->ctx,
		.key = wr->window->key};
	return true;
}

/* Taken only where the SEND that names its key has room too, or the key would be open and nobody's. */
static bool take_bind(struct rail *rail, struct mock *m, struct mock_qp *q, const struct wr *wr)
{
	const struct window *w = wr->window;
	unsigned i = (unsigned)(w - rail->windows);

	if (q->sq_tail - q->sq_head + 2 > MOCK_SQ_DEPTH || q->msg_tail - q->msg_released == MOCK_MSGS)
		return false;
	RTE_VERIFY(i < WINDOWS_MAX && w->key == m->device->next_keys[i] && w->len_bytes <= UINT32_MAX && w->len_bytes);
	*entry(q) = (struct mock_wr){
		.op = WR_BIND,
		.due_ns = rail->now_ns,
		.src = w->addr,
		.offset = w->len_bytes,
		.key = w->key,
		.faults = w->access,
	};
	m->device->next_keys[i] = (w->key & ~((1u << MOCK_KEY_TAG_BITS) - 1)) | (uint8_t)(w->key + 1);
	return true;
}

/* The request takes one way, the bytes the other; what follows waits for them, as a fenced WR does. */
static void take_read(struct rail *rail, struct mock *m, struct mock_qp *q, const struct wr *wr)
{
	struct mock_wr *e = entry(q);

	RTE_VERIFY(wr->len_bytes);
	*e = (struct mock_wr){
		.op = WR_READ,
		.src = wr->addr,
		.ctx = wr->ctx,
		.offset = wr->offset,
		.key = wr->key,
		.len_bytes = wr->len_bytes,
	};
	mock_enter_wire(m, &m->wires[!q->base.is_dialler], e, rail->now_ns + m->latency_ns);
}

bool device_moves(const struct rail *rail, struct mock_qp *q, const struct mock_wr *e)
{
	const struct mock_qp *p = q->peer;

	if (q->break_status)
		return false;
	if (e->op == WR_BIND || e->op == WR_INV)
		return true;
	if (mock_is_live(rail->tr, p) && !p->is_down && !p->break_status) {
		q->stuck_ns = 0;
		return true;
	}
	if (!p->scan)
		return false; /* not adopted yet */
	if (!q->stuck_ns)
		q->stuck_ns = rail->now_ns;
	else if (rail->now_ns - q->stuck_ns >= MOCK_RETRY_NS)
		q->break_status = WC_ERR_RETRY;
	return false;
}

unsigned device_local(struct rail *rail, struct mock_qp *q, struct mock_wr *e, struct wc *wc)
{
	if (e->op == WR_BIND) {
		bind(rail, q, e);
		return MOCK_FINISHED;
	}
	invalidate(rail, q, e);
	*wc = (struct wc){.op = WC_INV, .qp = &q->base, .ctx = e->ctx};
	return MOCK_FILLED | MOCK_FINISHED;
}

static void bind(struct rail *rail, struct mock_qp *q, const struct mock_wr *e)
{
	struct mock_window *w = &((struct mock *)rail->tr)->device->windows[device_index(e->key)];

	RTE_VERIFY(!w->is_bound);
	*w = (struct mock_window){
		.qp = &q->base,
		.addr = e->src,
		.len_bytes = e->offset,
		.key = e->key,
		.access = (uint8_t)e->faults,
		.is_bound = true,
	};
}

static void invalidate(struct rail *rail, struct mock_qp *q, const struct mock_wr *e)
{
	struct mock_window *w = &((struct mock *)rail->tr)->device->windows[device_index(e->key)];

	RTE_VERIFY(w->is_bound && w->key == e->key && w->qp == &q->base);
	w->is_bound = false;
}

unsigned device_read(struct rail *rail, struct mock_qp *q, struct mock_wr *e, uint32_t n_bytes, struct wc *wc)
{
	uint8_t *src = device_place(rail, &q->peer->base, e->key, e->offset + e->pos_bytes, n_bytes, WINDOW_READS);

	if (!src) {
		break_both(q);
		return 0;
	}
	stat_add(&rail->counters.wire_tx_bytes, n_bytes);
	stat_add(&rail->counters.wire_rx_bytes, n_bytes);
	if (((struct mock *)rail->tr)->want_copy)
		memcpy(e->src + e->pos_bytes, src, n_bytes);
	e->pos_bytes += n_bytes;
	if (e->pos_bytes < e->len_bytes)
		return 0;
	*wc = (struct wc){.op = WC_READ, .qp = &q->base, .ctx = e->ctx, .len_bytes = e->len_bytes};
	return MOCK_FILLED | MOCK_FINISHED;
}

bool device_admits(struct rail *rail, struct mock_qp *q, const struct mock_wr *e, uint32_t n_bytes)
{
	if (device_place(rail, &q->peer->base, e->key, e->offset + e->pos_bytes, n_bytes, WINDOW_WRITES))
		return true;
	break_both(q);
	return false;
}

/* IBTA 9.7.5.2.4: the responder's QP goes to the error state, and so does the requester's, by the NAK. */
static void break_both(struct mock_qp *q)
{
	q->break_status = WC_ERR_ACCESS;
	q->peer->break_status = WC_ERR_FLUSH;
}

uint8_t *device_place(
	struct rail *rail, const struct qp *qp, uint32_t key, uint64_t offset, uint64_t len_bytes, uint8_t access)
{
	unsigned i = device_index(key);
	const struct mock_window *w = &((struct mock *)rail->tr)->device->windows[i];
	const struct window *ours = &rail->windows[i];

	if (!w->is_bound || w->key != key || w->qp != qp || !(w->access & access))
		return NULL;
	if (len_bytes > w->len_bytes || offset > w->len_bytes - len_bytes)
		return NULL;
	/* The rail took its memory back while the device still lets the peer in. */
	RTE_VERIFY(ours->key == key && (ours->state == WINDOW_BOUND || ours->state == WINDOW_INVALIDATING));
	return w->addr + offset;
}
