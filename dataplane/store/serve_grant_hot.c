/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The writer's half of a PULL over device windows (hot/grant_hot.c has the store's): a window that the peer may read,
 * from GRANT until PULLED, CANCEL, or the fence of its QP.
 */
#include "hot/rail.h"

#define GRANT_LATE_NS 1000000000ull /* beyond the request's own time, for the CANCEL that its end brings */

static uint64_t parts_bytes(const struct serve_req *req);
static bool was_granted(const struct serve_req *req, const struct qp *qp, uint64_t request_id);

static struct window *window_of(struct rail *r, const struct serve_req *req)
{
	return &r->windows[SERVE_SLOT + (req - r->serve_reqs)];
}

bool grant_build(struct rail *r, struct serve_req *req, struct wire_grant *m, struct wr *wr)
{
	struct window *w = window_of(r, req);
	const struct wire_part *p = &req->parts[0];
	uint8_t *end = NULL;

	for (uint16_t i = 0; i < req->n_parts; i++) {
		uint8_t *at = source_addr(req->source, p[i].stripe_idx, p[i].offset, p[i].len_bytes);

		/* A put's source is flat: adjacent parts are adjacent in memory. */
		if (!at || (end && at != end)) {
			req->status = RY_ERR_PROTOCOL;
			return false;
		}
		if (!end)
			w->addr = at;
		end = at + p[i].len_bytes;
	}
	w->len_bytes = parts_bytes(req);
	w->qp = req->qp;
	w->region = req->source->region;
	w->access = WINDOW_READS;
	w->key = r->next_keys[SERVE_SLOT + (req - r->serve_reqs)];
	w->state = WINDOW_BOUND;
	*m = (struct wire_grant){
		.h = {.type = WIRE_GRANT, .len_bytes = sizeof(*m), .request_id = req->request_id},
		.key = w->key,
		.cookie = (uint32_t)(req - r->serve_reqs),
		.generation = req->source->generation,
		.bytes = w->len_bytes,
	};
	wr[0] = (struct wr){.op = WR_BIND, .qp = req->qp, .window = w, .region = w->region};
	wr[1] = (struct wr){.op = WR_SEND, .qp = req->qp, .addr = m, .len_bytes = sizeof(*m), .region = REGION_NONE};
	return true;
}

static uint64_t parts_bytes(const struct serve_req *req)
{
	uint64_t bytes = 0;

	for (uint16_t i = 0; i < req->n_parts; i++)
		bytes += req->parts[i].len_bytes;
	return bytes;
}

void grant_unbuild(struct rail *r, struct serve_req *req)
{
	window_of(r, req)->state = WINDOW_FREE;
}

void granted(struct rail *r, struct serve_req *req)
{
	req->grant = GRANT_GIVEN;
	r->n_grants++;
	stat_add(&r->counters.windows_bound, 1);
	stat_add(&r->counters.tx_bytes, req->bytes);
	stat_add(&r->counters.requests_served, 1);
}

void serve_pulled(struct rail *r, struct qp *qp, const struct wire_pulled *m)
{
	struct serve_req *req = &r->serve_reqs[m->cookie % RAIL_SERVE_MAX];

	if (m->cookie >= RAIL_SERVE_MAX || req->qp != qp || req->request_id != m->h.request_id ||
		req->grant != GRANT_GIVEN) {
		stat_add(&r->counters.late_messages, 1);
		if (m->cookie >= RAIL_SERVE_MAX || !was_granted(req, qp, m->h.request_id))
			qp_odd(qp);
		return;
	}
	req->grant = GRANT_CLOSING;
	req->next = r->serve_closing;
	r->serve_closing = req;
}

/* As long as its place is not taken by another: the window is closed, or about to be. */
static bool was_granted(const struct serve_req *req, const struct qp *qp, uint64_t request_id)
{
	return req->is_pull && req->request_id == request_id &&
	       (!req->qp || (req->qp == qp && req->grant >= GRANT_CLOSING));
}

bool grant_cancel(struct rail *r, struct qp *qp, uint64_t request_id)
{
	for (unsigned i = 0; i < RAIL_SERVE_MAX && r->n_grants; i++) {
		struct serve_req *req = &r->serve_reqs[i];

		if (req->qp != qp || req->request_id != request_id || req->grant != GRANT_GIVEN)
			continue;
		req->is_cancelled = true;
		req->grant = GRANT_CLOSING;
		req->next = r->serve_closing;
		r->serve_closing = req;
		return true;
	}
	return false;
}

unsigned serve_post_closing(struct rail *r)
{
	unsigned n = 0;

	while (r->serve_closing) {
		struct serve_req *req = r->serve_closing;
		struct wr wr = {.op = WR_INV, .qp = req->qp, .window = window_of(r, req), .ctx = window_of(r, req)};

		if (!r->post(r, &wr, 1))
			break;
		window_of(r, req)->state = WINDOW_INVALIDATING;
		req->grant = GRANT_CLOSED;
		r->serve_closing = req->next;
		stat_add(&r->counters.windows_invalidated, 1);
		n++;
	}
	return n;
}

void serve_closed(struct rail *r, struct serve_req *req)
{
	struct qp *qp = req->qp;

	window_of(r, req)->state = WINDOW_FREE;
	req->grant = GRANT_NONE;
	r->n_grants--;
	if (!req->is_cancelled) {
		serve_release(r, req);
		return;
	}
	/* CANCEL is answered now that nothing of it can be read any more. */
	req->next = NULL;
	if (qp->serve_tail)
		qp->serve_tail->next = req;
	else
		qp->serve_head = req;
	qp->serve_tail = req;
	qp->n_serve++;
	r->serve_bytes += req->bytes;
	req->is_answered = false;
}

void grant_expire(struct rail *r)
{
	for (unsigned i = 0; i < RAIL_SERVE_MAX && r->n_grants; i++) {
		struct serve_req *req = &r->serve_reqs[i];

		if (req->qp && req->grant != GRANT_NONE && r->now_ns >= req->expire_ns + GRANT_LATE_NS)
			rail_qp_down(r, req->qp, WC_ERR_RETRY, false);
	}
}

uint64_t grant_next_timer(const struct rail *r)
{
	uint64_t next = UINT64_MAX;

	for (unsigned i = 0; i < RAIL_SERVE_MAX && r->n_grants; i++) {
		const struct serve_req *req = &r->serve_reqs[i];

		if (req->qp && req->grant != GRANT_NONE && !req->qp->is_down)
			next = RTE_MIN(next, req->expire_ns + GRANT_LATE_NS);
	}
	return next;
}
