/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * PULL over device windows: the writer opens a window that may be read, says so by GRANT, the store reads it, says
 * PULLED, and the writer closes it. So a store that takes in an object exposes no memory at all.
 *
 * Here the store's half, requests of this rail; the writer's is dataplane/store/serve_grant_hot.c.
 */
#include "rail.h"

static bool post_read(struct rail *r, struct segment *s);
static bool post_pulled(struct rail *r, struct segment *s);

void request_granted(struct rail *r, struct qp *qp, const struct wire_grant *m)
{
	struct segment *s = rail_segment(r, m->h.request_id);

	if (!s || s->qp != qp || !qp->peer_grants || s->kind != SEG_PULL || s->grant != SEG_GRANT_NONE ||
		s->state > SEG_CANCELLING) {
		stat_add(&r->counters.late_messages, 1);
		qp_odd(qp);
		return;
	}
	/* Its CANCEL is out, and the writer closes the window on that. */
	if (s->state == SEG_CANCELLING)
		return;
	if (m->bytes != s->len_bytes) {
		stat_add(&r->counters.protocol_errors, 1);
		qp_odd(qp);
		return; /* its deadline ends it */
	}
	s->grant_key = m->key;
	s->grant_cookie = m->cookie;
	s->got_generation = m->generation;
	s->grant = SEG_GRANT_GIVEN;
	if (!post_read(r, s))
		r->n_granted++;
}

static bool post_read(struct rail *r, struct segment *s)
{
	struct wr wr = {
		.op = WR_READ,
		.qp = s->qp,
		.addr = s->dst,
		.len_bytes = s->len_bytes,
		.ctx = s,
		.key = s->grant_key,
		.region = s->region,
	};

	if (!r->post(r, &wr, 1)) {
		stat_add(&r->counters.sq_full, 1);
		return false;
	}
	s->grant = SEG_GRANT_READING;
	return true;
}

unsigned grant_post(struct rail *r)
{
	unsigned n = 0;

	for (unsigned i = 0; i < RAIL_ACTIVE_MAX && r->n_granted; i++) {
		struct segment *s = r->active[i];

		if (!s || s->qp->is_down)
			continue;
		if ((s->grant == SEG_GRANT_GIVEN && post_read(r, s)) ||
			(s->grant == SEG_GRANT_READ && post_pulled(r, s))) {
			r->n_granted--;
			n++;
		}
	}
	return n;
}

void request_read(struct rail *r, struct segment *s)
{
	s->landed_ns = r->now_ns;
	s->bytes = s->len_bytes;
	s->status = RY_OK;
	s->grant = SEG_GRANT_READ;
	if (!post_pulled(r, s))
		r->n_granted++;
}

/* The last this rail has to do with the writer's window; the credit is ours again. */
static bool post_pulled(struct rail *r, struct segment *s)
{
	struct wire_pulled m = {.h = {.type = WIRE_PULLED, .len_bytes = sizeof(m), .request_id = s->request_id},
		.cookie = s->grant_cookie};
	struct wr wr = {.op = WR_SEND, .qp = s->qp, .addr = &m, .len_bytes = sizeof(m), .region = REGION_NONE};

	if (!r->post(r, &wr, 1)) {
		stat_add(&r->counters.sq_full, 1);
		return false;
	}
	s->qp->credits++;
	if (s->state == SEG_CANCELLING) {
		r->n_cancelling--;
		s->status = RY_ERR_CANCELLED;
	}
	s->state = SEG_CLOSING;
	request_closed(r, s);
	return true;
}
