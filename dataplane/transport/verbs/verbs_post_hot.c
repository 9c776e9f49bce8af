/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Post: the WRs of a burst for one QP are one chain and one doorbell. Only what somebody waits for is signalled; the
 * completion of a WR ends those before it too, because a send queue completes in order (IBTA 9.5).
 */
#include "transport/verbs/verbs_priv.h"

#include <rte_branch_prediction.h>
#include <rte_debug.h>

#include <string.h>

#define CHAIN_MAX RY_BURST_MAX

struct chain {
	struct ibv_send_wr wr[CHAIN_MAX];
	struct ibv_sge sge[CHAIN_MAX];
};

static uint16_t post_qp(struct rail *r, struct ib_qp *q, const struct wr *wr, uint16_t n);
static uint16_t arrange(
	const struct ib_rail *ib, const struct ib_qp *q, const struct wr *wr, uint16_t n, const struct wr **order);
static void posted(struct rail *r, const struct wr *wr, uint16_t n);
static bool build(struct rail *r, struct ib_qp *q, const struct wr *wr, struct ibv_send_wr *out, struct ibv_sge *sge);
static bool build_bind(struct ib_rail *ib, struct rail *r, const struct wr *wr, struct ibv_send_wr *out);
static void build_send(struct ib_qp *q, const struct wr *wr, struct ibv_send_wr *out, struct ibv_sge *sge);
static bool build_rdma(struct ib_rail *ib, const struct wr *wr, struct ibv_send_wr *out, struct ibv_sge *sge);
static bool signal_last(struct ib_qp *q, struct ibv_send_wr *wr, uint16_t n);

uint16_t verbs_post(struct rail *r, const struct wr *wr, uint16_t n)
{
	uint16_t i = 0;

	while (i < n) {
		uint16_t m = 1, took;

		while (i + m < n && wr[i + m].qp == wr[i].qp && m < CHAIN_MAX)
			m++;
		took = post_qp(r, ib_qp_of(wr[i].qp), wr + i, m);
		i += took;
		if (took < m)
			break;
	}
	return i;
}

static uint16_t post_qp(struct rail *r, struct ib_qp *q, const struct wr *wr, uint16_t n)
{
	const struct wr *order[CHAIN_MAX];
	struct ib_rail *ib = ib_of(r);
	struct ibv_send_wr *bad;
	struct chain c;
	uint16_t k;

	if (unlikely(q->is_broken || q->fence_want))
		return n; /* taken and dropped */
	k = arrange(ib, q, wr, n, order);
	if (!k)
		return 0;
	for (uint16_t i = 0; i < k; i++) {
		if (unlikely(!build(r, q, order[i], &c.wr[i], &c.sge[i]))) {
			verbs_broke(ib, q, WC_ERR_LOCAL);
			return n;
		}
		if (i && order[i - 1]->op == WR_READ)
			c.wr[i].send_flags |= IBV_SEND_FENCE;
		c.wr[i].wr_id = ib_wr_id(q, q->sq_tail + i);
		c.wr[i].next = &c.wr[i + 1];
		q->sq[(q->sq_tail + i) & (IB_SQ_DEPTH - 1)] = (struct ib_sqe){order[i]->ctx, order[i]->op};
	}
	c.wr[k - 1].next = NULL;
	if (signal_last(q, c.wr, k) || ib->retries_binds)
		c.wr[k - 1].send_flags |= IBV_SEND_SIGNALED;
	if (unlikely(ibv_post_send(q->ibqp, c.wr, &bad))) {
		verbs_broke(ib, q, WC_ERR_LOCAL);
		return n;
	}
	q->sq_tail += k;
	posted(r, wr, k);
	return k;
}

/*
 * How many of them now, and in which order: BINDs first. A BIND is taken only with the SEND that names its key, or the
 * key would be open and nobody's; and where the device would try it again with a SEND before it, only into an empty
 * queue.
 */
static uint16_t arrange(
	const struct ib_rail *ib, const struct ib_qp *q, const struct wr *wr, uint16_t n, const struct wr **order)
{
	uint32_t room = IB_SQ_DEPTH - (q->sq_tail - q->sq_reaped);
	bool may_bind = !ib->retries_binds || q->sq_done == q->sq_tail;
	uint16_t k = 0, at = 0;

	for (; k < n && room >= 1u + (wr[k].op == WR_BIND) && (may_bind || wr[k].op != WR_BIND); k++, room--) {
		if (wr[k].op == WR_BIND)
			order[at++] = &wr[k];
	}
	for (uint16_t i = 0; i < k; i++) {
		if (wr[i].op != WR_BIND)
			order[at++] = &wr[i];
	}
	return k;
}

static void posted(struct rail *r, const struct wr *wr, uint16_t n)
{
	struct ib_rail *ib = ib_of(r);

	for (uint16_t i = 0; i < n; i++) {
		if (wr[i].op == WR_BIND) {
			unsigned w = (unsigned)(wr[i].window - r->windows);

			ib->mws[w]->rkey = wr[i].window->key;
			ib->next_keys[w] = ibv_inc_rkey(wr[i].window->key);
		}
		if (wr[i].op == WR_WRITE)
			stat_add(&r->counters.wire_tx_bytes, wr[i].len_bytes);
	}
}

/* Whoever waits for a completion gets one at the end of the chain; and so that the queue is reaped, every quarter of
 * it. */
static bool signal_last(struct ib_qp *q, struct ibv_send_wr *wr, uint16_t n)
{
	bool is_wanted = false;

	for (uint16_t i = 0; i < n; i++)
		is_wanted |= wr[i].opcode == IBV_WR_RDMA_WRITE;
	q->n_unsignalled += n;
	if (!is_wanted && q->n_unsignalled < IB_SQ_DEPTH / 4 && !(wr[n - 1].send_flags & IBV_SEND_SIGNALED))
		return false;
	q->n_unsignalled = 0;
	return true;
}

static bool build(struct rail *r, struct ib_qp *q, const struct wr *wr, struct ibv_send_wr *out, struct ibv_sge *sge)
{
	struct ib_rail *ib = ib_of(r);

	memset(out, 0, sizeof(*out));
	switch (wr->op) {
	case WR_SEND:
		build_send(q, wr, out, sge);
		return true;
	case WR_BIND:
		return build_bind(ib, r, wr, out);
	case WR_INV:
		out->opcode = IBV_WR_LOCAL_INV;
		out->invalidate_rkey = wr->window->key;
		out->send_flags = IBV_SEND_SIGNALED;
		return true;
	default:
		return build_rdma(ib, wr, out, sge);
	}
}

/* Zero-based: a peer names bytes by their offset in the window and learns no address. */
static bool build_bind(struct ib_rail *ib, struct rail *r, const struct wr *wr, struct ibv_send_wr *out)
{
	const struct window *w = wr->window;
	unsigned access = IBV_ACCESS_ZERO_BASED;

	access |= w->access & WINDOW_WRITES ? IBV_ACCESS_REMOTE_WRITE : 0;
	access |= w->access & WINDOW_READS ? IBV_ACCESS_REMOTE_READ : 0;
	out->opcode = IBV_WR_BIND_MW;
	out->bind_mw.mw = ib->mws[w - r->windows];
	out->bind_mw.rkey = w->key;
	out->bind_mw.bind_info = (struct ibv_mw_bind_info){
		.mr = w->region < REGIONS_MAX ? ib->mrs[w->region].mr : NULL,
		.addr = (uintptr_t)w->addr,
		.length = w->len_bytes,
		.mw_access_flags = access,
	};
	return out->bind_mw.mw && out->bind_mw.bind_info.mr;
}

static void build_send(struct ib_qp *q, const struct wr *wr, struct ibv_send_wr *out, struct ibv_sge *sge)
{
	RTE_ASSERT(wr->len_bytes <= IB_MSG_MAX_BYTES);
	*sge = (struct ibv_sge){(uintptr_t)wr->addr, wr->len_bytes, 0};
	if (likely(wr->len_bytes <= q->max_inline_bytes)) {
		out->send_flags = IBV_SEND_INLINE;
	} else {
		/* The slot of the last message that completed at least a queue's length ago. */
		uint8_t *slot = q->msgs + IB_RECVS * WIRE_MSG_BYTES +
				((uint64_t)(q->n_sends++ & (IB_SQ_DEPTH - 1)) * IB_MSG_MAX_BYTES);

		memcpy(slot, wr->addr, wr->len_bytes);
		sge->addr = (uintptr_t)slot;
		sge->lkey = q->mr->lkey;
	}
	out->opcode = IBV_WR_SEND;
	out->sg_list = sge;
	out->num_sge = 1;
}

static bool build_rdma(struct ib_rail *ib, const struct wr *wr, struct ibv_send_wr *out, struct ibv_sge *sge)
{
	const struct ibv_mr *mr = wr->region == REGION_PROBE  ? ib->probe.mr
				  : wr->region == REGION_SINK ? ib->sink.mr
				  : wr->region < REGIONS_MAX  ? ib->mrs[wr->region].mr
							      : NULL;

	if (unlikely(!mr))
		return false;
	*sge = (struct ibv_sge){(uintptr_t)wr->addr, wr->len_bytes, mr->lkey};
	out->opcode = wr->op == WR_WRITE ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ;
	out->send_flags = wr->op == WR_READ ? IBV_SEND_SIGNALED : 0;
	out->wr.rdma.remote_addr = wr->offset;
	out->wr.rdma.rkey = wr->key;
	out->sg_list = sge;
	out->num_sge = 1;
	return true;
}
