/* SPDX-License-Identifier: BSD-3-Clause */
/* How segments end when things go wrong: cancel, fence, loss of a QP. Out of line; the same lcore. */
#include "rail.h"

#define CLOSING_LATE_NS 2000000000ull /* the longest that a pair may be silent */
#define STARVED_LATE_NS 2000000000ull /* for late answers of requests that were fenced: they bring theirs */

static bool send_cancel(struct rail *r, struct segment *s);
static void cancel_held(struct rail *r, struct qp *qp);
static void drop_probes(struct rail *r, const struct qp *qp, uint32_t status);
static void end_unanswered(struct rail *r, struct segment *s);
static void end_active(struct rail *r, struct segment *s, uint32_t status);
static bool unlink_closing(struct rail *r, struct segment *s);

bool request_cancel_scan(struct rail *r)
{
	bool is_complete = true;

	for (unsigned i = 0; i < r->n_qps; i++)
		cancel_held(r, r->qps[i]);
	for (unsigned i = 0; i < RAIL_ACTIVE_MAX; i++) {
		struct segment *s = r->active[i];

		if (!s || s->state > SEG_CANCELLING || !__atomic_load_n(&s->cancel_want, __ATOMIC_RELAXED))
			continue;
		/* The fence's clock starts here, with or without room for the CANCEL: a peer that reads nothing leaves
		 * none. */
		if (s->state == SEG_POSTED) {
			s->state = SEG_CANCELLING;
			s->cancelled_ns = r->now_ns;
			r->n_cancelling++;
		}
		/* What is being read cannot be called back: its end, or the fence, is the end of it. */
		if (!s->is_cancel_sent && s->grant == SEG_GRANT_NONE && !send_cancel(r, s))
			is_complete = false;
	}
	return is_complete;
}

static void cancel_held(struct rail *r, struct qp *qp)
{
	struct seg_fifo keep = {0};
	struct segment *s;

	while ((s = seg_pop(&qp->held)) != NULL) {
		if (__atomic_load_n(&s->cancel_want, __ATOMIC_RELAXED)) {
			r->n_held--;
			request_finish(r, s, RY_ERR_CANCELLED);
		} else {
			seg_push(&keep, s);
		}
	}
	qp->held = keep;
}

static bool send_cancel(struct rail *r, struct segment *s)
{
	struct wire_cancel m = {.h = {.type = WIRE_CANCEL, .len_bytes = sizeof(m), .request_id = s->request_id}};
	struct wr wr = {.op = WR_SEND, .qp = s->qp, .addr = &m, .len_bytes = sizeof(m), .region = REGION_NONE};

	if (!r->post(r, &wr, 1)) {
		stat_add(&r->counters.sq_full, 1);
		return false;
	}
	s->is_cancel_sent = 1;
	stat_add(&r->counters.cancels_sent, 1);
	return true;
}

/*
 * The peer did not answer CANCEL in time. ops.fence is the proof that no late write can land; only then does the
 * segment go back and its memory become control's to reuse.
 */
void request_fence_expired(struct rail *r)
{
	for (unsigned i = 0; i < RAIL_ACTIVE_MAX; i++) {
		struct segment *s = r->active[i];
		int rc;

		if (!s || s->state != SEG_CANCELLING || r->now_ns - s->cancelled_ns < r->snap->fence_timeout_ns)
			continue;
		s->state = SEG_FENCING;
		r->n_cancelling--;
		rc = r->ops.fence(r, &r->windows[i]);
		RTE_VERIFY(rc >= 0); /* without its proof the memory must not go back */
		s->is_silent = 1;
		stat_add(&r->counters.fences, 1);
		if (rc)
			rail_qp_down(
				r, s->qp, WC_ERR_FLUSH, false); /* control saw the silence; ends s when it is proven */
		else
			end_unanswered(r, s);
	}
}

/* The QP lives on, and so does the request at the peer. No honest one owes more answers than it granted credits. */
static void end_unanswered(struct rail *r, struct segment *s)
{
	if (s->kind != SEG_PROBE && s->grant == SEG_GRANT_NONE && s->qp->n_owed < s->qp->peer_credits)
		s->qp->n_owed++;
	end_active(r, s, RY_ERR_CANCELLED);
}

static void end_active(struct rail *r, struct segment *s, uint32_t status)
{
	stat_add(&r->counters.windows_fenced, r->windows[s->slot].state == WINDOW_BOUND);
	r->windows[s->slot].state = WINDOW_DEAD;
	r->active[s->slot] = NULL;
	r->free_slots[r->free_top++] = (uint16_t)s->slot;
	r->n_active--;
	s->qp->n_posted--;
	stat_sub(&r->counters.inflight_bytes, s->len_bytes);
	request_finish(r, s, status);
}

void request_drop_qp(struct rail *r, struct qp *qp, uint32_t status)
{
	struct segment *s;

	while ((s = seg_pop(&qp->held)) != NULL) {
		r->n_held--;
		request_finish(r, s, status);
	}
	drop_probes(r, qp, status);
	for (unsigned i = 0; i < RAIL_ACTIVE_MAX; i++) {
		s = r->active[i];
		if (!s || s->qp != qp)
			continue;
		if (s->state == SEG_CANCELLING)
			r->n_cancelling--;
		if (s->grant == SEG_GRANT_GIVEN || s->grant == SEG_GRANT_READ)
			r->n_granted -= r->n_granted != 0;
		if (s->state == SEG_CLOSING) {
			/* DONE came first: its data is complete, and the lost QP has closed the window for us. */
			stat_add(&r->counters.windows_fenced, unlink_closing(r, s));
			request_closed(r, s);
		} else {
			end_active(
				r, s, __atomic_load_n(&s->cancel_want, __ATOMIC_RELAXED) ? RY_ERR_CANCELLED : status);
		}
	}
}

/* Those that wait for a window. */
static void drop_probes(struct rail *r, const struct qp *qp, uint32_t status)
{
	struct seg_fifo keep = {0};
	struct segment *s;

	while ((s = seg_pop(&r->probes)) != NULL) {
		if (s->qp == qp)
			request_finish(r, s, status);
		else
			seg_push(&keep, s);
	}
	r->probes = keep;
}

/* Whether it was there: its WR_INV is not out yet. */
static bool unlink_closing(struct rail *r, struct segment *s)
{
	struct seg_fifo keep = {0};
	bool is_found = false;
	struct segment *c;

	while ((c = seg_pop(&r->closing)) != NULL) {
		is_found |= c == s;
		if (c != s)
			seg_push(&keep, c);
	}
	r->closing = keep;
	return is_found;
}

/*
 * An invalidation waits for the SENDs before it to be acknowledged. One that does not end is no different from an
 * answer that does not come: the QP is given up, and its fence closes the windows.
 */
void request_closing_expired(struct rail *r)
{
	for (unsigned i = 0; i < RAIL_ACTIVE_MAX; i++) {
		struct segment *s = r->active[i];

		if (s && s->state == SEG_CLOSING && !s->qp->is_down && r->now_ns >= s->landed_ns + CLOSING_LATE_NS)
			rail_qp_down(r, s->qp, WC_ERR_RETRY, false);
	}
}

/*
 * Segments wait for a credit, none is left, and nothing is unanswered that could bring one: the peer kept them. Such a
 * QP would take work for ever and carry nothing.
 */
__rte_noinline __rte_cold void request_starve(struct rail *r, struct qp *qp)
{
	if (!qp->starved_ns)
		qp->starved_ns = r->now_ns;
	if (qp->is_down || r->now_ns - qp->starved_ns < STARVED_LATE_NS)
		return;
	stat_add(&r->counters.protocol_errors, 1);
	rail_qp_down(r, qp, WC_ERR_PROTOCOL, false);
}

uint64_t rail_next_timer(const struct rail *r)
{
	uint64_t next = grant_next_timer(r);

	for (unsigned i = 0; i < r->n_qps && r->n_held; i++) {
		const struct qp *qp = r->qps[i];

		if (qp->held.n && qp->starved_ns && !qp->is_down)
			next = RTE_MIN(next, qp->starved_ns + STARVED_LATE_NS);
	}
	for (unsigned i = 0; i < RAIL_ACTIVE_MAX && r->n_active; i++) {
		const struct segment *s = r->active[i];

		if (s && s->state == SEG_CANCELLING)
			next = RTE_MIN(next, s->cancelled_ns + r->snap->fence_timeout_ns);
		if (s && s->state == SEG_CLOSING && !s->qp->is_down)
			next = RTE_MIN(next, s->landed_ns + CLOSING_LATE_NS);
	}
	return next;
}
