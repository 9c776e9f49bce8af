/* SPDX-License-Identifier: BSD-3-Clause */
/* Poll: one CQ for everything; receives are posted again a poll later, when nobody looks at the message any more. */
#include "transport/verbs/verbs_priv.h"

#include <rte_branch_prediction.h>
#include <rte_common.h>

static void post_receives(struct ib_rail *ib);
static void post_receives_of(struct ib_rail *ib, struct ib_qp *q);
static uint16_t reap_cq(struct rail *r, struct wc *wc, uint16_t max);
static bool take(struct rail *r, const struct ibv_wc *c, struct wc *wc);
static bool take_message(struct ib_rail *ib, struct ib_qp *q, const struct ibv_wc *c, struct wc *wc);
static uint16_t report_sends(struct ib_rail *ib, struct wc *wc, uint16_t max);
static uint16_t report_sends_of(struct ib_rail *ib, struct ib_qp *q, struct wc *wc, uint16_t max);
static uint16_t report_ends(struct ib_rail *ib, struct wc *wc, uint16_t max);

uint16_t verbs_poll(struct rail *r, struct wc *wc, uint16_t max)
{
	struct ib_rail *ib = ib_of(r);
	uint16_t n;

	if (unlikely(ib->seen_epoch != r->qp_epoch))
		verbs_sync(r);
	if (unlikely(!max))
		return 0;
	if (unlikely(ib->want_look))
		verbs_woken(ib);
	post_receives(ib);
	n = report_ends(ib, wc, max);
	/* A quarter is kept for messages, or a stream of completions could keep them out. */
	n += report_sends(ib, wc + n, max - n - (max - n) / 4);
	n += reap_cq(r, wc + n, max - n);
	n += report_sends(ib, wc + n, max - n);
	return n;
}

static void post_receives(struct ib_rail *ib)
{
	for (unsigned i; (i = place_next(ib->drained, 0)) < RAIL_QPS_MAX;) {
		place_del(ib->drained, i);
		post_receives_of(ib, ib->adopted[i]);
	}
}

static void post_receives_of(struct ib_rail *ib, struct ib_qp *q)
{
	struct ibv_recv_wr wr[IB_RECVS], *bad;
	struct ibv_sge sge[IB_RECVS];
	uint8_t n = q->n_recvd;

	q->n_recvd = 0;
	if (unlikely(q->is_broken || q->fence_want || !n))
		return;
	for (uint8_t i = 0; i < n; i++) {
		sge[i] = (struct ibv_sge){
			(uintptr_t)q->msgs + q->recvd[i] * WIRE_MSG_BYTES, WIRE_MSG_BYTES, q->mr->lkey};
		wr[i] = (struct ibv_recv_wr){.wr_id = ib_wr_id(q, IB_RECV_BIT | q->recvd[i]),
			.next = i + 1 < n ? &wr[i + 1] : NULL,
			.sg_list = &sge[i],
			.num_sge = 1};
	}
	if (unlikely(ibv_post_recv(q->ibqp, wr, &bad)))
		verbs_broke(ib, q, WC_ERR_LOCAL);
}

static uint16_t reap_cq(struct rail *r, struct wc *wc, uint16_t max)
{
	struct ib_rail *ib = ib_of(r);
	struct ibv_wc c[RY_BURST_MAX];
	uint16_t n = 0;
	int got;

	max = RTE_MIN(max, RY_BURST_MAX);
	if (unlikely(ib->n_stash)) {
		/* At most RY_BURST_MAX of them: they wait until a poll has room for all. */
		if (ib->n_stash > max)
			return 0;
		for (uint16_t i = 0; i < ib->n_stash; i++)
			n += take(r, &ib->stash[i], &wc[n]);
		ib->n_stash = 0;
		return n;
	}
	got = max ? ibv_poll_cq(ib->cq, max, c) : 0;
	for (int i = 0; i < got; i++)
		n += take(r, &c[i], &wc[n]);
	if (unlikely(got < 0))
		stat_add(&r->counters.protocol_errors, 1);
	return n;
}

/* Whether it became an entry of wc at once. */
static bool take(struct rail *r, const struct ibv_wc *c, struct wc *wc)
{
	struct ib_rail *ib = ib_of(r);
	struct ib_qp *q = ib->adopted[(c->wr_id >> 32) % RAIL_QPS_MAX];
	uint32_t idx = (uint32_t)c->wr_id;

	if (unlikely(!q || q->epoch != c->wr_id >> 48))
		return false; /* of a QP that was here before */
	if (unlikely(c->status != IBV_WC_SUCCESS)) {
		verbs_broke(ib, q, verbs_status(c->status));
		return false;
	}
	if (idx & IB_RECV_BIT)
		return take_message(ib, q, c, wc);
	q->sq_done = idx + 1;
	place_add(ib->pending, q->place);
	return false;
}

static bool take_message(struct ib_rail *ib, struct ib_qp *q, const struct ibv_wc *c, struct wc *wc)
{
	uint8_t i = (uint8_t)c->wr_id; /* IB_RECVS is less than 256 */
	void *msg = q->msgs + i * WIRE_MSG_BYTES;

	q->recvd[q->n_recvd++] = i;
	place_add(ib->drained, q->place);
	if (unlikely(wire_msg_check(msg, c->byte_len) != RY_OK)) {
		verbs_broke(ib, q, WC_ERR_PROTOCOL);
		return false;
	}
	*wc = (struct wc){.op = WC_RECV, .len_bytes = c->byte_len, .qp = &q->qp, .msg = msg};
	return true;
}

static uint16_t report_sends(struct ib_rail *ib, struct wc *wc, uint16_t max)
{
	uint16_t n = 0;

	for (unsigned i = 0; n < max && (i = place_next(ib->pending, i)) < RAIL_QPS_MAX; i++)
		n += report_sends_of(ib, ib->adopted[i], wc + n, max - n);
	return n;
}

static uint16_t report_sends_of(struct ib_rail *ib, struct ib_qp *q, struct wc *wc, uint16_t max)
{
	static const uint8_t ops[] = {[WR_WRITE] = WC_WRITE, [WR_READ] = WC_READ, [WR_INV] = WC_INV, [WR_BIND] = 0};
	uint16_t n = 0;

	for (; q->sq_reaped != q->sq_done; q->sq_reaped++) {
		const struct ib_sqe *e = &q->sq[q->sq_reaped & (IB_SQ_DEPTH - 1)];

		if (!ops[e->op])
			continue;
		if (n == max)
			return n;
		wc[n++] = (struct wc){.op = ops[e->op], .qp = &q->qp, .ctx = e->ctx};
	}
	place_del(ib->pending, q->place);
	return n;
}

static uint16_t report_ends(struct ib_rail *ib, struct wc *wc, uint16_t max)
{
	uint16_t n = 0;

	for (unsigned i; n < max && (i = place_next(ib->broken, 0)) < RAIL_QPS_MAX;) {
		struct ib_qp *q = ib->adopted[i];

		place_del(ib->broken, i);
		wc[n++] = (struct wc){.op = WC_QP_DOWN, .status = q->down_status, .qp = &q->qp};
	}
	for (unsigned i = 0; n < max && (i = place_next(ib->fencing, i)) < RAIL_QPS_MAX; i++) {
		struct ib_qp *q = ib->adopted[i];

		/* Acquire: partner of the release in ib_qp_fence; its windows are fresh and closed. */
		if (!__atomic_load_n(&q->fence_done, __ATOMIC_ACQUIRE))
			continue;
		place_del(ib->fencing, i);
		/* The last word of it, after which conn may free it at any time: what its CQEs of this poll say is not
		 * told. */
		place_del(ib->pending, i);
		place_del(ib->drained, i);
		ib->adopted[i] = NULL;
		wc[n++] = (struct wc){.op = WC_QP_DOWN, .status = q->down_status, .is_fenced = true, .qp = &q->qp};
	}
	return n;
}
