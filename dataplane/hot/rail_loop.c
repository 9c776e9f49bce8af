/* SPDX-License-Identifier: BSD-3-Clause */
/* rail_poll: what a rail lcore does, in order. The stages live in rail_request_hot.c, store/serve_hot.c and
 * verify_hot.c. */
#include "rail.h"

static unsigned reap(struct rail *r);
static void closed(struct rail *r, const struct window *w);
static void dispatch(struct rail *r, struct qp *qp, const struct wire_msg *msg);
static unsigned commands(struct rail *r);
static void adopt(struct rail *r, struct qp *qp);
static void release(struct rail *r, struct qp *qp);
static void end(struct rail *r, struct qp *qp);
static void forget(struct rail *r, struct qp *qp);

bool rail_poll(struct rail *r, uint64_t now_ns)
{
	unsigned n;

	r->now_ns = now_ns;
	n = reap(r);
	n += commands(r);
	n += request_take(r);
	n += request_post(r);
	n += serve_post(r);
	if (unlikely(r->serve_closing))
		n += serve_post_closing(r);
	n += verify_burst(r);
	n += request_hand_back(r);
	/* Every pin of this turn is visible to control from here on (partner: source_is_quiet). */
	rte_rcu_qsbr_quiescent(r->sources->qsbr, r->idx);
	if ((++r->turn & 255) == 0)
		rail_housekeeping(r);
	stat_add(n ? &r->counters.turns_busy : &r->counters.turns_idle, 1);
	return n != 0;
}

static unsigned reap(struct rail *r)
{
	struct wc wc[RY_BURST_MAX];
	uint16_t n = r->poll(r, wc, RY_BURST_MAX);

	for (uint16_t i = 0; i < n; i++) {
		/* One that this rail gave up, which its transport may not know: what was on it has ended already. */
		if (unlikely(wc[i].qp->is_down) && wc[i].op != WC_QP_DOWN)
			continue;
		switch (wc[i].op) {
		case WC_RECV:
			dispatch(r, wc[i].qp, wc[i].msg);
			break;
		case WC_WRITE:
			if (likely(wc[i].ctx != NULL)) /* a probe's bytes wait for nobody */
				serve_written(r, wc[i].ctx);
			break;
		case WC_READ:
			if (likely(wc[i].ctx != NULL))
				request_read(r, wc[i].ctx);
			break;
		case WC_INV:
			closed(r, wc[i].ctx);
			break;
		case WC_QP_DOWN:
			rail_qp_down(r, wc[i].qp, wc[i].status, wc[i].is_fenced);
			break;
		default:
			stat_add(&r->counters.protocol_errors, 1);
		}
	}
	return n;
}

static void closed(struct rail *r, const struct window *w)
{
	unsigned i = (unsigned)(w - r->windows);

	if (likely(i < SERVE_SLOT))
		request_closed(r, r->active[i]);
	else
		serve_closed(r, &r->serve_reqs[i - SERVE_SLOT]);
}

static void dispatch(struct rail *r, struct qp *qp, const struct wire_msg *msg)
{
	switch (msg->type) {
	case WIRE_READ:
	case WIRE_PULL:
	case WIRE_CANCEL:
	case WIRE_PULLED:
		serve_recv(r, qp, msg);
		break;
	case WIRE_DONE:
	case WIRE_BUSY:
		request_answer(r, qp, msg);
		break;
	case WIRE_GRANT:
		request_granted(r, qp, (const struct wire_grant *)msg);
		break;
	case WIRE_PING:
		probe_serve(r, qp, (const struct wire_ping *)msg);
		break;
	case WIRE_PONG:
		probe_pong(r, qp, msg);
		break;
	default:
		stat_add(&r->counters.protocol_errors, 1);
		qp_odd(qp);
	}
}

/* What control and conn want: looked at every turn, by one load each. */
static unsigned commands(struct rail *r)
{
	/* Relaxed: a missed turn is seen in the next; what is acted on is loaded once more. */
	uint32_t epoch = __atomic_load_n(&r->cancel_epoch, __ATOMIC_RELAXED);
	unsigned n = 0;
	void *p;

	if (unlikely(epoch != r->cancel_seen)) {
		/* Acquire: partner of the release in rail_cancel_scan; cancel_want was set before the epoch grew. */
		epoch = __atomic_load_n(&r->cancel_epoch, __ATOMIC_ACQUIRE);
		if (request_cancel_scan(r))
			r->cancel_seen = epoch;
		n++;
	}
	if (unlikely(r->n_cancelling))
		request_fence_expired(r);
	if (unlikely(r->n_grants) && (r->turn & 63) == 0)
		grant_expire(r);
	while (unlikely((p = spsc_pop(r->adopt)) != NULL)) {
		struct qp *qp = (struct qp *)((uintptr_t)p & ~RAIL_RELEASE_BIT);

		if (unlikely(!qp))
			rail_let_go(r);
		else if (unlikely((uintptr_t)p == RAIL_TAKE_UP))
			rail_take_up(r);
		else if ((uintptr_t)p & RAIL_RELEASE_BIT)
			release(r, qp);
		else
			adopt(r, qp);
		n++;
	}
	return n;
}

static __rte_noinline __rte_cold void adopt(struct rail *r, struct qp *qp)
{
	if (r->n_qps == RAIL_QPS_MAX) {
		qp->is_down = true;
		qp->fail_status = WC_ERR_LOCAL;
	} else {
		qp->slot = r->n_qps;
		qp->credits = qp->peer_credits;
		if (!r->attr.has_addresses) /* both ends are rails of the same kind */
			qp->peer_grants = r->next_keys != NULL;
		r->qps[r->n_qps++] = qp;
		r->qp_epoch++;
		stat_set(&r->counters.qps, r->n_qps);
	}
	/* Release: partner of the acquire in qp_state; conn sees an adopted QP completely. */
	__atomic_store_n(&qp->state, qp->is_down ? QP_FAILED : QP_ADOPTED, __ATOMIC_RELEASE);
	waker_kick(r->conn_waker);
}

/* Control has promised that no further segment names this QP; those before the promise are in the work ring. */
static __rte_noinline __rte_cold void release(struct rail *r, struct qp *qp)
{
	qp->is_down = true; /* what is still in the work ring for it ends at once */
	qp->want_release = true;
	while (request_take(r))
		;
	if (qp->is_ended || r->ops.stop(r, qp))
		end(r, qp);
}

/* Nothing can land through its windows any more, and nothing of its sources is being read. */
static __rte_noinline __rte_cold void end(struct rail *r, struct qp *qp)
{
	qp->is_ended = true;
	request_drop_qp(r, qp, RY_ERR_RAIL);
	serve_drop_qp(r, qp);
	if (qp->want_release)
		forget(r, qp);
	/* Release: partner of the acquire in qp_state. */
	__atomic_store_n(&qp->state, qp->want_release ? QP_RELEASED : QP_FAILED, __ATOMIC_RELEASE);
	waker_kick(r->conn_waker);
}

static void forget(struct rail *r, struct qp *qp)
{
	if (qp->slot >= r->n_qps || r->qps[qp->slot] != qp)
		return;
	r->qps[qp->slot] = r->qps[--r->n_qps];
	r->qps[qp->slot]->slot = qp->slot;
	r->qp_epoch++;
	stat_set(&r->counters.qps, r->n_qps);
	r->poll(r, NULL, 0); /* the transport lets go of it before conn may free it */
}

void rail_qp_down(struct rail *r, struct qp *qp, uint8_t wc_status, bool is_fenced)
{
	if (!qp->is_down) {
		qp->is_down = true;
		qp->fail_status = wc_status;
		stat_add(&r->counters.qp_failures, 1);
	}
	if (!qp->is_ended && (is_fenced || r->ops.stop(r, qp)))
		end(r, qp);
}

void rail_housekeeping(struct rail *r)
{
	/* Acquire: partner of the release in rail_publish; the snapshot's content comes with its pointer. */
	r->snap = __atomic_load_n(&r->want_snap, __ATOMIC_ACQUIRE);
	__atomic_store_n(
		&r->seen_generation, r->snap->generation, __ATOMIC_RELEASE); /* partner: rail_seen_generation */
	stat_add(&r->counters.heartbeat, 1);
	if (r->n_active)
		request_closing_expired(r);
}
