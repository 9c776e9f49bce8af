/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Poll and receive: a write's payload goes from the socket straight into its window; headers and messages go through
 * the QP's stage. One recvmsg takes the rest of a payload and what follows it.
 */
#include "transport/tcp/tcp_priv.h"

#include <rte_branch_prediction.h>
#include <rte_common.h>

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

static void look(struct rail *r, struct tcp *t);
static uint16_t rx_turn(struct rail *r, struct tcp *t, struct wc *wc, uint16_t max);
static uint16_t rx_qp(struct rail *r, struct tcp *t, struct tcp_qp *q, struct wc *wc, uint16_t max, int64_t *turn_left);
static ssize_t receive(struct rail *r, struct tcp *t, struct tcp_qp *q, bool *is_drained);
static void settle(struct rail *r, struct tcp_qp *q, uint32_t bytes, bool is_landed);
static uint16_t parse(struct rail *r, struct tcp *t, struct tcp_qp *q, struct wc *wc, uint16_t max);
static void place_staged(struct rail *r, struct tcp_qp *q, uint32_t bytes);
static bool parse_message(struct tcp *t, struct tcp_qp *q, uint32_t len, struct wc *wc);
static uint16_t report_down(struct tcp *t, struct wc *wc, uint16_t max);

uint16_t tcp_poll(struct rail *r, struct wc *wc, uint16_t max)
{
	struct tcp *t = r->tr;
	uint16_t n;

	if (unlikely(tcp_is_stale(r, t)))
		tcp_sync(r);
	if (unlikely(!max))
		return 0;
	max = RTE_MIN(max, RY_BURST_MAX);
	if (!set_count(&t->rx_ready) || t->turn % TCP_LOOK_TURNS == 0)
		look(r, t);
	t->turn++;
	t->n_msgs = 0;
	pace_refill(&t->pace, r->now_ns, t->tx_pending_bytes != 0);
	tcp_tx_turn(r);
	n = report_down(t, wc, max);
	/* A quarter is kept for messages, or a stream of completions could keep them out. */
	n += tcp_tx_reap(r, wc + n, max - n - (max - n) / 4);
	n += rx_turn(r, t, wc + n, max - n);
	n += report_down(t, wc + n, max - n);
	return n;
}

/* Asks which sockets became readable, writable or dead since the last time. */
static void look(struct rail *r, struct tcp *t)
{
	struct epoll_event ev[RY_BURST_MAX];
	int n = epoll_wait(t->epoll_fd, ev, RY_BURST_MAX, 0);

	for (int i = 0; i < n; i++) {
		struct tcp_qp *q;

		if (ev[i].data.u64 == TCP_TIMER_TAG)
			continue;
		q = t->table[ev[i].data.u64];
		if (ev[i].events & (EPOLLHUP | EPOLLERR | EPOLLRDHUP))
			q->has_hangup = true;
		if (ev[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR | EPOLLRDHUP))
			set_add(&t->rx_ready, q->place);
		if (ev[i].events & (EPOLLOUT | EPOLLHUP | EPOLLERR) && q->tx_sent != q->tx_tail)
			set_add(&t->tx_ready, q->place);
	}
}

static uint16_t rx_turn(struct rail *r, struct tcp *t, struct wc *wc, uint16_t max)
{
	int64_t left = TCP_RX_TURN_BYTES;
	uint16_t n = 0;

	for (unsigned k = set_count(&t->rx_ready); k && n < max && left > 0; k--) {
		unsigned i = set_next(&t->rx_ready, t->rx_next);

		t->rx_next = (uint16_t)((i + 1) % RAIL_QPS_MAX);
		n += rx_qp(r, t, t->table[i], wc + n, max - n, &left);
	}
	return n;
}

/* Leaves rx_ready only when the socket is empty and the stage holds nothing complete. */
static uint16_t rx_qp(struct rail *r, struct tcp *t, struct tcp_qp *q, struct wc *wc, uint16_t max, int64_t *turn_left)
{
	int64_t left = TCP_RX_QP_BYTES;
	bool is_drained = false;
	uint16_t n = parse(r, t, q, wc, max);

	while (n < max && left > 0 && !q->is_dead) {
		ssize_t got = 0;

		if (!is_drained)
			got = receive(r, t, q, &is_drained);
		if (got <= 0) {
			set_del(&t->rx_ready, q->place);
			break;
		}
		left -= got;
		*turn_left -= got;
		n += parse(r, t, q, wc + n, max - n);
	}
	return n;
}

/* One system call. Returns bytes, 0 for an empty socket, -1 when the QP went down. */
static ssize_t receive(struct rail *r, struct tcp *t, struct tcp_qp *q, bool *is_drained)
{
	struct iovec iov[2];
	struct msghdr mh = {.msg_iov = iov};
	uint32_t payload = q->rx_left;
	uint8_t *dst = NULL;
	size_t want;
	ssize_t got;

	if (payload) {
		/* Asked again for every read: the window may have been closed in the middle of the frame. */
		dst = window_resolve(r, &q->qp, q->rx_key, q->rx_offset, payload);
		payload = dst ? payload : RTE_MIN(payload, TCP_SINK_BYTES);
		iov[mh.msg_iovlen++] = (struct iovec){dst ? dst : t->sink, payload};
	}
	want = payload;
	if (payload == q->rx_left) {
		iov[mh.msg_iovlen++] = (struct iovec){q->stage + q->stage_tail, TCP_STAGE_BYTES - q->stage_tail};
		want += TCP_STAGE_BYTES - q->stage_tail;
	}
	got = recvmsg(q->fd, &mh, MSG_DONTWAIT);
	if (unlikely(got <= 0)) {
		if (got < 0 && errno == EAGAIN)
			return 0;
		tcp_qp_down(r, q, got ? tcp_status(errno) : WC_ERR_PEER_CLOSED);
		return -1;
	}
	stat_add(&r->counters.wire_rx_bytes, (uint64_t)got);
	payload = (uint32_t)RTE_MIN((size_t)got, (size_t)payload);
	settle(r, q, payload, dst);
	q->stage_tail += (uint32_t)got - payload;
	/* A short read emptied the socket; what comes later brings an edge. A hang-up does not come twice. */
	*is_drained = (size_t)got < want && !q->has_hangup;
	return got;
}

/* `bytes` of the current frame's payload arrived. */
static void settle(struct rail *r, struct tcp_qp *q, uint32_t bytes, bool is_landed)
{
	q->rx_left -= bytes;
	q->rx_offset += bytes;
	if (unlikely(!is_landed && bytes))
		window_sunk(r, q->rx_key, bytes);
}

/* Consumes the stage as far as it is complete; what is left moves to its front. */
static uint16_t parse(struct rail *r, struct tcp *t, struct tcp_qp *q, struct wc *wc, uint16_t max)
{
	uint16_t n = 0;

	while (n < max) {
		uint32_t have = q->stage_tail - q->stage_head;
		struct wire_frame f;

		if (q->rx_left && have) {
			place_staged(r, q, RTE_MIN(have, q->rx_left));
			continue;
		}
		if (have < sizeof(f))
			break;
		memcpy(&f, q->stage + q->stage_head, sizeof(f));
		if (unlikely(wire_frame_check(&f) != RY_OK)) {
			tcp_qp_down(r, q, WC_ERR_PROTOCOL);
			return n;
		}
		if (f.type == WIRE_FRAME_MSG && have < sizeof(f) + f.len_bytes)
			break;
		q->stage_head += (uint32_t)sizeof(f);
		if (f.type == WIRE_FRAME_DATA) {
			q->rx_left = f.len_bytes;
			q->rx_offset = f.offset;
			q->rx_key = f.key;
		} else if (likely(parse_message(t, q, f.len_bytes, &wc[n]))) {
			n++;
		} else {
			tcp_qp_down(r, q, WC_ERR_PROTOCOL);
			return n;
		}
	}
	if (q->stage_head) {
		q->stage_tail -= q->stage_head;
		memmove(q->stage, q->stage + q->stage_head, q->stage_tail);
		q->stage_head = 0;
	}
	return n;
}

static void place_staged(struct rail *r, struct tcp_qp *q, uint32_t bytes)
{
	/* Of a frame that would leave its window not even the beginning lands. */
	uint8_t *dst = window_resolve(r, &q->qp, q->rx_key, q->rx_offset, q->rx_left);

	if (likely(dst))
		memcpy(dst, q->stage + q->stage_head, bytes);
	q->stage_head += bytes;
	settle(r, q, bytes, dst);
}

/* The copy is aligned and outlives the stage: until the next poll. */
static bool parse_message(struct tcp *t, struct tcp_qp *q, uint32_t len, struct wc *wc)
{
	void *msg = t->msgs[t->n_msgs];

	memcpy(msg, q->stage + q->stage_head, len);
	q->stage_head += len;
	if (unlikely(wire_msg_check(msg, len) != RY_OK))
		return false;
	t->n_msgs++;
	*wc = (struct wc){.op = WC_RECV, .len_bytes = len, .qp = &q->qp, .msg = msg};
	return true;
}

static uint16_t report_down(struct tcp *t, struct wc *wc, uint16_t max)
{
	uint16_t n = 0;

	for (unsigned i; n < max && (i = set_next(&t->down, 0)) != TCP_NONE;) {
		struct tcp_qp *q = t->table[i];

		set_del(&t->down, i);
		wc[n++] = (struct wc){.op = WC_QP_DOWN, .status = q->down_status, .is_fenced = true, .qp = &q->qp};
	}
	return n;
}
