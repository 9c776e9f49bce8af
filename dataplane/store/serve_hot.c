/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The serving half of a rail: READ and PULL of peers become writes into their windows, then DONE, on the same QP.
 *
 * Requests of one QP are served in order; QPs share the rail by deficit round robin over bytes. A request holds a pin
 * on its source from acceptance until its last write completed.
 */
#include "hot/rail.h"

#define QUANTUM_BYTES (256u << 10)
#define BURST 16u

/* An answer while it waits to be posted. */
union serve_msg {
	struct wire_done done;
	struct wire_grant grant;
};

/* Where a request stood before a WR was built, to step back when the send queue was full. */
struct cursor {
	struct serve_req *req;
	uint64_t bytes_posted;
	uint32_t part_off;
	uint16_t part;
};

static uint64_t serve_qp(struct rail *r, struct qp *qp);
static unsigned build(struct rail *r, struct qp *qp, struct wr *wr, struct cursor *cur, union serve_msg *msg);
static bool build_write(struct rail *r, struct serve_req *req, struct wr *wr);
static void build_done(struct serve_req *req, struct wire_done *m, struct wr *wr);
static void check_expiry(struct rail *r, struct serve_req *req);
static struct serve_req *unlink_head(struct rail *r, struct qp *qp);
static void answered(struct rail *r, struct qp *qp);

/* A PULL that the peer will read by itself; an end of it is told by DONE. */
static inline bool is_grant(const struct rail *r, const struct serve_req *req)
{
	return req->is_pull && r->next_keys && req->status == RY_OK;
}

bool serve_post(struct rail *r)
{
	uint64_t budget = r->snap->serve_turn_bytes;
	uint16_t n_quiet = 0; /* QPs in a row that had nothing to post */

	if (!r->n_serve)
		return false;
	while (budget && n_quiet < r->n_qps) {
		uint64_t n;

		if (r->serve_next >= r->n_qps)
			r->serve_next = 0;
		n = serve_qp(r, r->qps[r->serve_next++]);
		n_quiet = n ? 0 : n_quiet + 1;
		budget -= RTE_MIN(budget, n);
	}
	return budget < r->snap->serve_turn_bytes;
}

/* One QP's turn: at most its deficit in bytes. Returns bytes posted, at least 1 when anything was. */
static uint64_t serve_qp(struct rail *r, struct qp *qp)
{
	union serve_msg msg[BURST];
	struct cursor cur[BURST];
	struct wr wr[BURST];
	uint64_t bytes = 0;
	unsigned n, sent;

	if (!qp->serve_head || qp->is_down)
		return 0;
	qp->deficit_bytes = RTE_MIN(qp->deficit_bytes + QUANTUM_BYTES, 4 * QUANTUM_BYTES);
	n = build(r, qp, wr, cur, msg);
	if (!n)
		return 0;
	sent = r->post(r, wr, (uint16_t)n);
	for (unsigned i = n; i-- > sent;) { /* no room: step back, latest first */
		cur[i].req->part = cur[i].part;
		cur[i].req->part_off = cur[i].part_off;
		cur[i].req->bytes_posted = cur[i].bytes_posted;
		if (wr[i].op == WR_BIND)
			grant_unbuild(r, cur[i].req);
	}
	stat_add(&r->counters.sq_full, sent < n);
	for (unsigned i = 0; i < sent; i++) {
		bytes += 1;
		if (wr[i].op == WR_WRITE) {
			cur[i].req->n_writes++;
			qp->n_writes++;
			bytes += wr[i].len_bytes;
		} else if (wr[i].op == WR_SEND && is_grant(r, cur[i].req)) {
			granted(r, unlink_head(r, qp));
		} else if (wr[i].op == WR_SEND) {
			answered(r, qp);
		}
	}
	qp->deficit_bytes -= RTE_MIN(qp->deficit_bytes, (uint32_t)bytes);
	if (!qp->serve_head)
		qp->deficit_bytes = 0;
	stat_add(&r->counters.tx_bytes, bytes - sent);
	return bytes;
}

/* Walks the QP's requests from the head without unlinking; `req` state moves on as WRs are built. */
static unsigned build(struct rail *r, struct qp *qp, struct wr *wr, struct cursor *cur, union serve_msg *msg)
{
	uint32_t room = r->attr.sq_depth / 4 > qp->n_writes ? r->attr.sq_depth / 4 - qp->n_writes : 0;
	uint64_t left = qp->deficit_bytes;
	unsigned n = 0;

	for (struct serve_req *req = qp->serve_head; req && n < BURST; req = req->next) {
		check_expiry(r, req);
		if (unlikely(is_grant(r, req))) {
			if (n + 2 > BURST)
				break;
			if (grant_build(r, req, &msg[n].grant, &wr[n])) {
				cur[n] = cur[n + 1] = (struct cursor){req, 0, 0, 0};
				n += 2;
				continue;
			}
		}
		while (n < BURST && left && room && req->status == RY_OK && req->part < req->n_parts) {
			cur[n] = (struct cursor){req, req->bytes_posted, req->part_off, req->part};
			if (!build_write(r, req, &wr[n]))
				break;
			left -= RTE_MIN(left, (uint64_t)wr[n].len_bytes);
			room--;
			n++;
		}
		if (n == BURST || (req->status == RY_OK && req->part < req->n_parts))
			break;
		cur[n] = (struct cursor){req, req->bytes_posted, req->part_off, req->part};
		build_done(req, &msg[n].done, &wr[n]);
		n++;
	}
	return n;
}

static bool build_write(struct rail *r, struct serve_req *req, struct wr *wr)
{
	const struct wire_part *p = &req->parts[req->part];
	uint32_t len = RTE_MIN(p->len_bytes - req->part_off, r->write_max_bytes);
	uint8_t *addr = source_addr(req->source, p->stripe_idx, p->offset + req->part_off, len);

	if (unlikely(!addr)) {
		req->status = RY_ERR_PROTOCOL; /* a part outside the object */
		return false;
	}
	if (!req->start_ns)
		req->start_ns = r->now_ns;
	*wr = (struct wr){
		.op = WR_WRITE,
		.qp = req->qp,
		.addr = addr,
		.len_bytes = len,
		.ctx = req,
		.key = req->key,
		.region = req->source->region,
		.offset = p->window_offset + req->part_off,
	};
	req->bytes_posted += len;
	req->part_off += len;
	if (req->part_off == p->len_bytes) {
		req->part++;
		req->part_off = 0;
	}
	return true;
}

/* The memory tier has its bytes at hand: storage time is 0, all waiting is queue time. */
static void build_done(struct serve_req *req, struct wire_done *m, struct wr *wr)
{
	*m = (struct wire_done){
		.h = {.type = WIRE_DONE, .len_bytes = sizeof(*m), .request_id = req->request_id},
		.status = req->status,
		.credits = 1,
		.generation = req->source ? req->source->generation : 0,
		.bytes = req->bytes_posted,
		.queue_ns = req->start_ns ? req->start_ns - req->recv_ns : 0,
	};
	*wr = (struct wr){
		.op = WR_SEND, .qp = req->qp, .addr = m, .len_bytes = sizeof(*m), .ctx = req, .region = REGION_NONE};
}

/* Cancel and ttl: from now on nothing is posted for it but its DONE. */
static void check_expiry(struct rail *r, struct serve_req *req)
{
	if (req->status != RY_OK || (!req->is_cancelled && r->now_ns < req->expire_ns))
		return;
	req->status = req->is_cancelled ? RY_ERR_CANCELLED : RY_ERR_TIMEOUT;
	stat_add(&r->counters.cancels_served, 1);
}

static struct serve_req *unlink_head(struct rail *r, struct qp *qp)
{
	struct serve_req *req = qp->serve_head;

	qp->serve_head = req->next;
	if (!qp->serve_head)
		qp->serve_tail = NULL;
	qp->n_serve--;
	r->serve_bytes -= req->bytes;
	req->is_answered = true;
	return req;
}

/* DONE of the QP's first request was posted. */
static void answered(struct rail *r, struct qp *qp)
{
	struct serve_req *req = unlink_head(r, qp);

	stat_add(req->status == RY_OK ? &r->counters.requests_served : &r->counters.requests_refused, 1);
	if (!req->n_writes)
		serve_release(r, req);
}
