/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A QP from its making to its end, on conn. Order (IBTA 11.2.4): RESET -> INIT, receives posted, then addresses are
 * exchanged, then RTR -> RTS; so that no SEND of the peer ever finds no receive.
 */
#include "transport/ib/ib.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

static int make_messages(struct ib_rail *ib, struct ib_qp *q);
static void refresh_mtu(struct ib_rail *ib, const struct verbs_conf *v);
static int make_qp(struct ib_rail *ib, struct ib_qp *q, const struct rail_conf *conf);
static int to_init(struct ib_rail *ib, struct ib_qp *q);
static int post_receives(struct ib_qp *q);
static int to_rtr(struct ib_rail *ib, struct ib_qp *q, const struct verbs_conf *v, const struct qp_address *peer);
static int to_rts(struct ib_rail *ib, struct ib_qp *q, const struct verbs_conf *v, const struct qp_address *peer);
static enum ibv_mtu mtu_code(uint32_t bytes);
static void end(struct rail *r, struct ib_qp *q);

static uint32_t min_u32(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

int ib_pair_connect(struct rail *r, const struct qp_request *req, struct qp **out)
{
	struct ib_rail *ib = ib_of(r);
	uint16_t place = 0;
	struct ib_qp *q;
	int rc;

	r->why_no_qp[0] = '\0';
	if (ib->has_left) {
		snprintf(r->why_no_qp, sizeof(r->why_no_qp), "its RDMA device was removed");
		return -ENODEV;
	}
	while (place < RAIL_QPS_MAX && ib->qps[place])
		place++;
	if (place == RAIL_QPS_MAX || ib->n_qps >= ib->max_qps) {
		snprintf(r->why_no_qp, sizeof(r->why_no_qp),
			"%u QPs are open and device %s has room for %u (max_cqe %d, max_qp %d); fewer peers, or a "
			"smaller qps_per_pair",
			ib->n_qps, ib->ctx->device->name, ib->max_qps, ib->attr.max_cqe, ib->attr.max_qp);
		return -ENOSPC;
	}
	if (ib->gid_index < 0) {
		snprintf(r->why_no_qp, sizeof(r->why_no_qp), "device %s has no GID of %s any more",
			ib->ctx->device->name, r->conf.address);
		return -EADDRNOTAVAIL;
	}
	if (posix_memalign((void **)&q, 64, sizeof(*q)))
		return -ENOMEM;
	memset(q, 0, sizeof(*q));
	q->qp = (struct qp){
		.rail_idx = r->idx,
		.pair_idx = req->pair_idx,
		.peer_idx = req->peer_idx,
		.qp_idx = req->qp_idx,
		.is_dialler = req->is_dialler,
		.peer_credits = (uint16_t)min_u32(req->peer_credits, IB_OWN_MAX),
	};
	q->place = place;
	q->epoch = ++ib->next_epoch;
	if (getrandom(&q->psn, sizeof(q->psn), 0) != sizeof(q->psn))
		q->psn = (uint32_t)r->now_ns;
	q->psn &= 0xffffff;
	refresh_mtu(ib, &r->conf.verbs);
	q->mtu_bytes = ib->mtu_bytes;
	rc = make_qp(ib, q, &r->conf);
	rc = rc ? rc : make_messages(ib, q);
	rc = rc ? rc : to_init(ib, q);
	rc = rc ? rc : post_receives(q);
	if (rc) {
		end(r, q);
		free(q);
		return rc;
	}
	ib->qps[place] = q;
	ib->n_qps++;
	*out = &q->qp;
	return 0;
}

static void refresh_mtu(struct ib_rail *ib, const struct verbs_conf *v)
{
	struct ibv_port_attr port;

	if (ibv_query_port(ib->ctx, ib->port, &port))
		return;
	pthread_mutex_lock(&ib->address_lock);
	ib->mtu_bytes = ib_mtu(&port, v);
	pthread_mutex_unlock(&ib->address_lock);
}

static int make_qp(struct ib_rail *ib, struct ib_qp *q, const struct rail_conf *conf)
{
	struct ibv_qp_init_attr init = {
		.send_cq = ib->cq,
		.recv_cq = ib->cq,
		.cap = {.max_send_wr = IB_SQ_DEPTH,
			.max_recv_wr = IB_RECVS,
			.max_send_sge = 1,
			.max_recv_sge = 1,
			.max_inline_data = IB_INLINE_BYTES},
		.qp_type = IBV_QPT_RC,
	};

	(void)conf;
	q->ibqp = ibv_create_qp(ib->pd, &init);
	if (!q->ibqp) {
		init.cap.max_inline_data = 0; /* messages go out of registered memory instead */
		q->ibqp = ibv_create_qp(ib->pd, &init);
	}
	if (!q->ibqp)
		return -(errno ? errno : ENOMEM);
	q->max_inline_bytes = init.cap.max_inline_data;
	q->ibqp->qp_context = q;
	return 0;
}

static int make_messages(struct ib_rail *ib, struct ib_qp *q)
{
	size_t bytes = IB_RECVS * WIRE_MSG_BYTES +
		       (q->max_inline_bytes < IB_MSG_MAX_BYTES ? IB_SQ_DEPTH * IB_MSG_MAX_BYTES : 0);

	if (posix_memalign((void **)&q->msgs, 4096, bytes))
		return -ENOMEM;
	memset(q->msgs, 0, bytes);
	q->mr = ibv_reg_mr(ib->pd, q->msgs, bytes, IBV_ACCESS_LOCAL_WRITE);
	return q->mr ? 0 : -(errno ? errno : ENOMEM);
}

/* The QP lets remote accesses in; the memory behind them is closed but for windows. */
static int to_init(struct ib_rail *ib, struct ib_qp *q)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = ib->port,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
	};

	return -ibv_modify_qp(q->ibqp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

static int post_receives(struct ib_qp *q)
{
	for (uint32_t i = 0; i < IB_RECVS; i++) {
		struct ibv_sge sge = {(uintptr_t)q->msgs + i * WIRE_MSG_BYTES, WIRE_MSG_BYTES, q->mr->lkey};
		struct ibv_recv_wr wr = {.wr_id = ib_wr_id(q, IB_RECV_BIT | i), .sg_list = &sge, .num_sge = 1}, *bad;
		int rc = ibv_post_recv(q->ibqp, &wr, &bad);

		if (rc)
			return -rc;
	}
	return 0;
}

void ib_qp_local(const struct rail *r, const struct qp *qp, struct qp_address *out)
{
	const struct ib_rail *ib = ib_of(r);
	const struct ib_qp *q = ib_qp_of(qp);

	*out = (struct qp_address){
		.qp_num = q->ibqp->qp_num,
		.psn = q->psn,
		.mtu_bytes = q->mtu_bytes,
		.rd_atomic = ib->rd_atomic,
		.has_grants = ib->has_windows,
	};
	memcpy(out->gid, &ib->gid, sizeof(out->gid));
}

int ib_qp_remote(struct rail *r, struct qp *qp, const struct qp_address *peer)
{
	struct ib_rail *ib = ib_of(r);
	struct ib_qp *q = ib_qp_of(qp);
	int rc = to_rtr(ib, q, &r->conf.verbs, peer);

	qp->peer_grants = peer->has_grants;
	return rc ? rc : to_rts(ib, q, &r->conf.verbs, peer);
}

static int to_rtr(struct ib_rail *ib, struct ib_qp *q, const struct verbs_conf *v, const struct qp_address *peer)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = mtu_code(min_u32(q->mtu_bytes, peer->mtu_bytes)),
		.dest_qp_num = peer->qp_num,
		.rq_psn = peer->psn,
		.max_dest_rd_atomic = (uint8_t)ib->rd_atomic,
		.min_rnr_timer = (uint8_t)v->min_rnr_timer,
		.ah_attr = {.is_global = 1,
			.port_num = ib->port,
			.sl = (uint8_t)v->sl,
			.grh = {.sgid_index = (uint8_t)ib->gid_index,
				.hop_limit = (uint8_t)v->hop_limit,
				.traffic_class = (uint8_t)v->traffic_class}},
	};

	memcpy(&attr.ah_attr.grh.dgid, peer->gid, sizeof(peer->gid));
	return -ibv_modify_qp(q->ibqp, &attr,
		IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
}

/* Depth of READs: what we may ask is what the peer can answer; 0 would make every READ wait for ever. */
static int to_rts(struct ib_rail *ib, struct ib_qp *q, const struct verbs_conf *v, const struct qp_address *peer)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS,
		.timeout = (uint8_t)v->timeout,
		.retry_cnt = (uint8_t)v->retry_count,
		.rnr_retry = (uint8_t)v->rnr_retry_count,
		.sq_psn = q->psn,
		.max_rd_atomic = (uint8_t)min_u32(
			min_u32((uint32_t)ib->attr.max_qp_init_rd_atom, peer->rd_atomic), ib->rd_atomic),
	};

	return -ibv_modify_qp(q->ibqp, &attr,
		IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
			IBV_QP_MAX_QP_RD_ATOMIC);
}

static enum ibv_mtu mtu_code(uint32_t bytes)
{
	enum ibv_mtu code = IBV_MTU_256;

	while (code < IBV_MTU_4096 && (256u << code) <= bytes)
		code++;
	return code;
}

/* ---- the end ---- */

bool ib_qp_wants_fence(const struct rail *r, const struct qp *qp)
{
	const struct ib_qp *q = ib_qp_of(qp);

	/* Acquire: partner of the release in verbs_stop; the list of windows is complete. */
	return __atomic_load_n(&q->fence_want, __ATOMIC_ACQUIRE) && !q->fence_done && !q->has_no_proof;
}

/*
 * Windows first, then the QP: the other way round the kernel waits for the windows. After it nothing of this QP's can
 * be written or read any more, at either end of its WRs. A window that the device would not close is closed with its
 * QP, to which alone it was bound (type 2B); a QP that it would not end is no proof at all, because what it reads from
 * may not be reused either.
 */
int ib_qp_fence(struct rail *r, struct qp *qp)
{
	struct ib_rail *ib = ib_of(r);
	struct ib_qp *q = ib_qp_of(qp);
	uint16_t n_stuck = 0;
	int rc;

	for (uint16_t i = 0; i < q->n_bound; i++) {
		if (!ib_window_fence(ib, q->bound[i]))
			q->bound[n_stuck++] = q->bound[i];
	}
	rc = ibv_destroy_qp(q->ibqp);
	if (rc) {
		q->has_no_proof = true;
		return -rc;
	}
	q->ibqp = NULL;
	for (uint16_t i = 0; i < n_stuck; i++)
		ib_window_renew(ib, q->bound[i]);
	/* Release: partner of the acquire in report_fenced; fresh windows and keys are in place. */
	__atomic_store_n(&q->fence_done, 1, __ATOMIC_RELEASE);
	waker_kick(&r->waker);
	return 0;
}

void ib_pair_close(struct rail *r, struct qp *qp)
{
	struct ib_rail *ib = ib_of(r);
	struct ib_qp *q = ib_qp_of(qp);

	if (!q)
		return;
	ib->qps[q->place] = NULL;
	ib->n_qps--;
	end(r, q);
	free(q);
}

/*
 * Its lcore has let go of it, was never told (then no window was ever bound to it), or has stopped for good: only then
 * can windows still be open here. Where the device does not end it, it may still write into its messages: they stay.
 */
static void end(struct rail *r, struct ib_qp *q)
{
	for (uint16_t i = 0; q->ibqp && qp_state(&q->qp) != QP_NEW && i < WINDOWS_MAX; i++) {
		const struct window *w = &r->windows[i];

		if (w->qp == &q->qp && (w->state == WINDOW_BOUND || w->state == WINDOW_INVALIDATING))
			ib_window_fence(ib_of(r), i);
	}
	if (q->ibqp && ibv_destroy_qp(q->ibqp))
		return;
	if (q->mr)
		ibv_dereg_mr(q->mr);
	free(q->msgs);
}
