/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The serving half of a rail, first part: READ, PULL and CANCEL of peers come in, are accepted, refused or ended.
 *
 * A request holds a pin on its source from acceptance until its last write completed; a lost QP gives all of its pins
 * back.
 */
#include <string.h>

#include "hot/rail.h"

#define BUSY_RETRY_US 200u

static void accept(struct rail *r, struct qp *qp, const struct wire_read *m);
static void refuse_busy(struct rail *r, struct qp *qp, uint64_t request_id);
static void cancel(struct rail *r, struct qp *qp, uint64_t request_id);
static void drop_grant(struct rail *r, struct serve_req *req);
static uint64_t parts_bytes(const struct wire_part *parts, uint16_t n);

void serve_init(struct rail *r)
{
	for (unsigned i = 0; i < RAIL_SERVE_MAX; i++) {
		r->serve_reqs[i].next = r->serve_free;
		r->serve_free = &r->serve_reqs[i];
	}
}

void serve_recv(struct rail *r, struct qp *qp, const struct wire_msg *msg)
{
	if (msg->type == WIRE_CANCEL)
		cancel(r, qp, msg->request_id);
	else if (msg->type == WIRE_PULLED)
		serve_pulled(r, qp, (const struct wire_pulled *)msg);
	else
		accept(r, qp, (const struct wire_read *)msg);
}

static void accept(struct rail *r, struct qp *qp, const struct wire_read *m)
{
	const struct wire_part *parts = (const struct wire_part *)(m + 1);
	uint64_t bytes = parts_bytes(parts, m->n_parts);
	struct serve_req *req = r->serve_free;

	if (!req || qp->n_serve >= r->snap->serve_max_requests ||
		(r->n_serve && r->serve_bytes + bytes > r->snap->serve_max_bytes)) {
		refuse_busy(r, qp, m->h.request_id);
		return;
	}
	r->serve_free = req->next;
	req->next = NULL;
	req->qp = qp;
	req->request_id = m->h.request_id;
	req->recv_ns = r->now_ns;
	req->start_ns = 0;
	req->expire_ns = r->now_ns + (uint64_t)m->ttl_us * 1000;
	req->bytes = bytes;
	req->bytes_posted = 0;
	req->key = m->key;
	req->status = RY_OK;
	req->n_parts = m->n_parts;
	req->part = 0;
	req->part_off = 0;
	req->n_writes = 0;
	req->is_cancelled = req->is_answered = false;
	req->is_pull = m->h.type == WIRE_PULL;
	req->grant = GRANT_NONE;
	memcpy(req->parts, parts, m->n_parts * sizeof(*parts));
	req->source = source_pin(
		r->sources, m->handle, m->generation, r->idx, r->now_ns, &req->status, m->h.flags & WIRE_F_START);
	if (qp->serve_tail)
		qp->serve_tail->next = req;
	else
		qp->serve_head = req;
	qp->serve_tail = req;
	qp->n_serve++;
	r->n_serve++;
	r->serve_bytes += bytes;
}

static uint64_t parts_bytes(const struct wire_part *parts, uint16_t n)
{
	uint64_t bytes = 0;

	for (uint16_t i = 0; i < n; i++)
		bytes += parts[i].len_bytes;
	return bytes;
}

static __rte_noinline __rte_cold void refuse_busy(struct rail *r, struct qp *qp, uint64_t request_id)
{
	struct wire_busy m = {
		.h = {.type = WIRE_BUSY, .len_bytes = sizeof(m), .request_id = request_id},
		.retry_us = BUSY_RETRY_US,
		.credits = 1,
	};
	struct wr wr = {.op = WR_SEND, .qp = qp, .addr = &m, .len_bytes = sizeof(m), .region = REGION_NONE};

	stat_add(&r->counters.busy_sent, 1);
	/* serve_qp leaves room for every message that credits allow, so a full queue means a peer that overspent them.
	 */
	if (!r->post(r, &wr, 1)) {
		stat_add(&r->counters.protocol_errors, 1);
		rail_qp_down(r, qp, WC_ERR_PROTOCOL, false);
	}
}

/* Posts nothing more for it; DONE(CANCELLED) follows behind what is already posted. Unknown = already answered. */
static __rte_noinline __rte_cold void cancel(struct rail *r, struct qp *qp, uint64_t request_id)
{
	for (struct serve_req *req = qp->serve_head; req; req = req->next) {
		if (req->request_id == request_id) {
			req->is_cancelled = true;
			return;
		}
	}
	if (!grant_cancel(r, qp, request_id))
		stat_add(&r->counters.late_messages, 1);
}

void serve_written(struct rail *r, struct serve_req *req)
{
	req->n_writes--;
	req->qp->n_writes--;
	if (req->is_answered && !req->n_writes)
		serve_release(r, req);
}

void serve_release(struct rail *r, struct serve_req *req)
{
	if (req->source)
		source_unpin(req->source, r->idx);
	req->qp = NULL;
	req->next = r->serve_free;
	r->serve_free = req;
	r->n_serve--;
}

/* The QP's fence has closed its window. */
static void drop_grant(struct rail *r, struct serve_req *req)
{
	struct serve_req **at = &r->serve_closing;

	while (*at && *at != req)
		at = &(*at)->next;
	if (*at)
		*at = req->next;
	stat_add(&r->counters.windows_fenced, req->grant != GRANT_CLOSED);
	r->windows[SERVE_SLOT + (req - r->serve_reqs)].state = WINDOW_DEAD;
	req->grant = GRANT_NONE;
	r->n_grants--;
}

void serve_drop_qp(struct rail *r, struct qp *qp)
{
	for (unsigned i = 0; i < RAIL_SERVE_MAX; i++) {
		struct serve_req *req = &r->serve_reqs[i];

		if (req->qp != qp)
			continue;
		if (req->grant != GRANT_NONE)
			drop_grant(r, req);
		else if (!req->is_answered)
			r->serve_bytes -= req->bytes;
		serve_release(r, req);
	}
	qp->serve_head = qp->serve_tail = NULL;
	qp->n_serve = qp->n_writes = 0;
}
