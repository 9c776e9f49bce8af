/* SPDX-License-Identifier: BSD-3-Clause */
/* Post: WRs become frames in their QP's queue; sending them is tcp_tx_hot.c. */
#include "transport/tcp/tcp_priv.h"

#include <rte_branch_prediction.h>
#include <rte_common.h>
#include <rte_debug.h>

#include <string.h>

static bool take(struct tcp *t, const struct wr *wr);
static bool take_send(struct tcp *t, struct tcp_qp *q, const struct wr *wr);
static bool take_write(struct tcp *t, struct tcp_qp *q, const struct wr *wr);
static bool take_inv(struct tcp *t, struct tcp_qp *q, const struct wr *wr);
static void queued(struct tcp *t, struct tcp_qp *q, uint64_t bytes);

uint16_t tcp_post(struct rail *r, const struct wr *wr, uint16_t n)
{
	struct tcp *t = r->tr;
	uint16_t i;

	if (unlikely(tcp_is_stale(r, t)))
		tcp_sync(r);
	pace_refill(&t->pace, r->now_ns, t->tx_pending_bytes != 0);
	for (i = 0; i < n; i++) {
		if (unlikely(!take(t, &wr[i])))
			break; /* the caller counts sq_full */
	}
	tcp_tx_turn(r);
	return i;
}

static bool take(struct tcp *t, const struct wr *wr)
{
	struct tcp_qp *q = (struct tcp_qp *)wr->qp;

	if (unlikely(q->is_dead))
		return true;
	switch (wr->op) {
	case WR_SEND:
		return take_send(t, q, wr);
	case WR_WRITE:
		return take_write(t, q, wr);
	case WR_INV:
		return take_inv(t, q, wr);
	default:
		/* WR_BIND: the requester has opened its window already, and that is all a receiver's CPU needs. */
		RTE_ASSERT(wr->op == WR_BIND);
		return true;
	}
}

static bool take_send(struct tcp *t, struct tcp_qp *q, const struct wr *wr)
{
	struct tcp_tx *e = &q->tx[q->tx_tail & (TCP_SQ_DEPTH - 1)];

	RTE_ASSERT(wr->len_bytes <= WIRE_MSG_BYTES);
	if (q->tx_tail - q->tx_reaped == TCP_SQ_DEPTH)
		return false;
	e->frame = (struct wire_frame){.len_bytes = wr->len_bytes, .type = WIRE_FRAME_MSG};
	memcpy(e->msg, wr->addr, wr->len_bytes);
	e->head_bytes = (uint32_t)sizeof(e->frame) + wr->len_bytes;
	e->body_bytes = 0;
	e->want_wc = false;
	q->tx_tail++;
	queued(t, q, e->head_bytes);
	return true;
}

/* All frames of a write or none; an empty write is an entry without bytes that completes in its turn. */
static bool take_write(struct tcp *t, struct tcp_qp *q, const struct wr *wr)
{
	uint32_t n = wr->len_bytes ? (wr->len_bytes + WIRE_DATA_MAX_BYTES - 1) / WIRE_DATA_MAX_BYTES : 1;
	uint32_t done = 0;

	if (q->tx_tail - q->tx_reaped + n > TCP_SQ_DEPTH)
		return false;
	for (uint32_t i = 0; i < n; i++) {
		struct tcp_tx *e = &q->tx[q->tx_tail++ & (TCP_SQ_DEPTH - 1)];
		uint32_t len = RTE_MIN(wr->len_bytes - done, WIRE_DATA_MAX_BYTES);

		e->frame = (struct wire_frame){
			.len_bytes = len, .type = WIRE_FRAME_DATA, .key = wr->key, .offset = wr->offset + done};
		e->head_bytes = len ? (uint32_t)sizeof(e->frame) : 0;
		e->addr = (const uint8_t *)wr->addr + done;
		e->body_bytes = len;
		e->want_wc = i + 1 == n;
		e->ctx = wr->ctx;
		done += len;
		queued(t, q, e->head_bytes + len);
	}
	return true;
}

/* The requester has closed the window before it posted this: nothing can land any more, and the next poll says so. */
static bool take_inv(struct tcp *t, struct tcp_qp *q, const struct wr *wr)
{
	if (t->inv_tail - t->inv_head == TCP_INV_MAX)
		return false;
	t->inv[t->inv_tail++ & (TCP_INV_MAX - 1)] = (struct tcp_inv){q, wr->ctx};
	return true;
}

/* A QP that has something queued already is ready, or waits for the kernel, whose edge makes it ready. */
static void queued(struct tcp *t, struct tcp_qp *q, uint64_t bytes)
{
	if (q->tx_sent + 1 == q->tx_tail && !q->tx_sent_bytes)
		set_add(&t->tx_ready, q->place);
	q->tx_pending_bytes += bytes;
	t->tx_pending_bytes += bytes;
}
