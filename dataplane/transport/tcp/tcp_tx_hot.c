/* SPDX-License-Identifier: BSD-3-Clause */
/* Send: one sendmsg takes as many queued frames as the kernel and the rate cap allow; what it took is completed. */
#include "transport/tcp/tcp_priv.h"

#include <rte_branch_prediction.h>
#include <rte_common.h>

#include <errno.h>
#include <sys/socket.h>

static bool flush(struct rail *r, struct tcp *t, struct tcp_qp *q);
static void not_sent(struct rail *r, struct tcp *t, struct tcp_qp *q, const struct msghdr *mh, int err);
static uint64_t gather(const struct tcp_qp *q, struct msghdr *mh, uint64_t allow);
static uint64_t add(struct msghdr *mh, const uint8_t *base, uint64_t bytes, uint64_t left);
static void advance(struct tcp *t, struct tcp_qp *q, uint64_t n);
static uint16_t reap_inv(struct tcp *t, struct wc *wc, uint16_t max);
static uint16_t reap_qp(struct tcp *t, struct tcp_qp *q, struct wc *wc, uint16_t max);

void tcp_tx_turn(struct rail *r)
{
	struct tcp *t = r->tr;

	for (unsigned n = set_count(&t->tx_ready); n; n--) {
		unsigned i = set_next(&t->tx_ready, t->tx_next);

		if (i == TCP_NONE)
			return;
		/* What gets no tokens stays first in the round. */
		t->tx_next = (uint16_t)i;
		if (!flush(r, t, t->table[i]))
			return;
		t->tx_next = (uint16_t)((i + 1) % RAIL_QPS_MAX);
	}
}

/* false: the bucket had nothing for this QP. */
static bool flush(struct rail *r, struct tcp *t, struct tcp_qp *q)
{
	uint64_t room = TCP_TX_QP_BYTES;

	while (room && q->tx_sent != q->tx_tail) {
		struct iovec iov[TCP_IOV_MAX];
		struct msghdr mh = {.msg_iov = iov};
		uint64_t allow = pace_allow(&t->pace, q->tx_pending_bytes);
		uint64_t bytes;
		ssize_t sent = 0;

		if (!allow && q->tx_pending_bytes)
			return room != TCP_TX_QP_BYTES;
		bytes = gather(q, &mh, RTE_MIN(allow, room));
		if (bytes)
			sent = sendmsg(q->fd, &mh, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (sent < 0) {
			not_sent(r, t, q, &mh, errno);
			return true;
		}
		pace_spend(&t->pace, (uint64_t)sent);
		stat_add(&r->counters.wire_tx_bytes, (uint64_t)sent);
		advance(t, q, (uint64_t)sent);
		room -= (uint64_t)sent;
	}
	if (q->tx_sent == q->tx_tail)
		set_del(&t->tx_ready, q->place);
	return true;
}

/* Only EAGAIN promises an edge; a short send may also mean a source page that could not be read, so it is followed by
 * another. */
static void not_sent(struct rail *r, struct tcp *t, struct tcp_qp *q, const struct msghdr *mh, int err)
{
	if (likely(err == EAGAIN))
		set_del(&t->tx_ready, q->place);
	else if (err == EFAULT)
		tcp_touch(mh);
	else
		tcp_qp_down(r, q, tcp_status(err));
}

/* At most `allow` bytes of the queue, in order; returns how many. */
static uint64_t gather(const struct tcp_qp *q, struct msghdr *mh, uint64_t allow)
{
	uint32_t skip = q->tx_sent_bytes;
	uint64_t left = allow;

	for (uint32_t i = q->tx_sent; i != q->tx_tail && left && mh->msg_iovlen + 2 <= TCP_IOV_MAX; i++) {
		const struct tcp_tx *e = &q->tx[i & (TCP_SQ_DEPTH - 1)];

		if (skip < e->head_bytes)
			left -= add(mh, (const uint8_t *)&e->frame + skip, e->head_bytes - skip, left);
		skip -= RTE_MIN(skip, e->head_bytes);
		left -= add(mh, e->addr + skip, e->body_bytes - skip, left);
		skip = 0;
	}
	return allow - left;
}

static uint64_t add(struct msghdr *mh, const uint8_t *base, uint64_t bytes, uint64_t left)
{
	bytes = RTE_MIN(bytes, left);
	if (bytes)
		mh->msg_iov[mh->msg_iovlen++] = (struct iovec){(uint8_t *)(uintptr_t)base, bytes};
	return bytes;
}

static void advance(struct tcp *t, struct tcp_qp *q, uint64_t n)
{
	q->tx_pending_bytes -= n;
	t->tx_pending_bytes -= n;
	n += q->tx_sent_bytes;
	while (q->tx_sent != q->tx_tail) {
		const struct tcp_tx *e = &q->tx[q->tx_sent & (TCP_SQ_DEPTH - 1)];
		uint64_t len = (uint64_t)e->head_bytes + e->body_bytes;

		if (n < len)
			break;
		n -= len;
		q->tx_sent++;
		set_add(&t->tx_done, q->place);
	}
	q->tx_sent_bytes = (uint32_t)n;
}

uint16_t tcp_tx_reap(struct rail *r, struct wc *wc, uint16_t max)
{
	struct tcp *t = r->tr;
	uint16_t n = reap_inv(t, wc, max);

	/* From another place at every poll, so that no QP's completions wait behind a busy one's for ever. */
	for (unsigned i; n < max && (i = set_next(&t->tx_done, t->turn)) != TCP_NONE;)
		n += reap_qp(t, t->table[i], wc + n, max - n);
	return n;
}

static uint16_t reap_inv(struct tcp *t, struct wc *wc, uint16_t max)
{
	uint16_t n = 0;

	while (t->inv_head != t->inv_tail && n < max) {
		const struct tcp_inv *v = &t->inv[t->inv_head++ & (TCP_INV_MAX - 1)];

		if (likely(v->q && !v->q->is_dead))
			wc[n++] = (struct wc){.op = WC_INV, .qp = &v->q->qp, .ctx = v->ctx};
	}
	return n;
}

static uint16_t reap_qp(struct tcp *t, struct tcp_qp *q, struct wc *wc, uint16_t max)
{
	uint16_t n = 0;

	for (; q->tx_reaped != q->tx_sent; q->tx_reaped++) {
		const struct tcp_tx *e = &q->tx[q->tx_reaped & (TCP_SQ_DEPTH - 1)];

		if (!e->want_wc)
			continue;
		if (n == max)
			return n;
		wc[n++] = (struct wc){.op = WC_WRITE, .qp = &q->qp, .ctx = e->ctx};
	}
	set_del(&t->tx_done, q->place);
	return n;
}
