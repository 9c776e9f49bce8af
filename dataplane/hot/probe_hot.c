/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * PING: PROBE_BYTES to the peer and PROBE_BYTES back over the QP that carries data, then PONG. A full-size probe,
 * because a small one passes where data fails. Its own window and completion, outside READ credits, DRR and budgets, so
 * that a loaded pair can be probed too.
 */
#include <string.h>

#include "rail.h"

static bool post_one(struct rail *r, struct segment *s);

unsigned probe_post(struct rail *r)
{
	unsigned n = 0;

	while (r->probes.head) {
		struct segment *s = r->probes.head;

		if (__atomic_load_n(&s->cancel_want, __ATOMIC_RELAXED))
			request_finish(r, seg_pop(&r->probes), RY_ERR_CANCELLED);
		else if (!r->free_top)
			break; /* one that waits for a window waits until it is cancelled */
		else if (post_one(r, s))
			seg_pop(&r->probes);
		else
			request_finish(r, seg_pop(&r->probes), RY_ERR_LIMIT);
		n++;
	}
	return n;
}

static bool post_one(struct rail *r, struct segment *s)
{
	struct window *w;
	struct wire_ping m = {.h = {.type = WIRE_PING, .len_bytes = sizeof(m)}, .len_bytes = PROBE_BYTES};
	struct wr wr[3];
	uint16_t n = 0;

	s->slot = r->free_slots[r->free_top - 1];
	w = &r->windows[s->slot];
	request_bind_window(r, s, WINDOW_WRITES | WINDOW_READS);
	s->request_id = m.h.request_id = r->next_request++ << WINDOW_SLOT_BITS | s->slot;
	m.key = w->key;
	m.offset = w->offset;
	m.read_key = r->probe_key ? r->probe_key : r->next_keys ? w->key : 0;
	m.read_offset = r->probe_key ? (uintptr_t)r->probe_bytes : 0;
	if (w->state == WINDOW_BOUND)
		wr[n++] = (struct wr){.op = WR_BIND, .qp = s->qp, .window = w, .region = s->region};
	if (!m.read_key) /* over a device the peer reads them */
		wr[n++] = (struct wr){.op = WR_WRITE,
			.qp = s->qp,
			.addr = r->probe_bytes,
			.len_bytes = PROBE_BYTES,
			.key = WIRE_PROBE_KEY,
			.region = REGION_PROBE};
	wr[n++] = (struct wr){.op = WR_SEND, .qp = s->qp, .addr = &m, .len_bytes = sizeof(m), .region = REGION_NONE};
	if (r->post(r, wr, n) < n) {
		/* No room for all of it: without its SEND nobody learns of the key. Back to the prober, which comes
		 * again later. */
		w->state = WINDOW_FREE;
		stat_add(&r->counters.sq_full, 1);
		return false;
	}
	s->state = SEG_POSTED;
	s->qp->n_posted++;
	r->free_top--;
	r->active[s->slot] = s;
	r->n_active++;
	__atomic_store_n(&s->posted_ns, r->now_ns, __ATOMIC_RELAXED);
	stat_add(&r->counters.inflight_bytes, s->len_bytes);
	stat_add(&r->counters.probes_sent, 1);
	stat_add(&r->counters.windows_bound, w->state == WINDOW_BOUND);
	return true;
}

/* No room for an answer now is no answer: the prober's lease notices. */
void probe_serve(struct rail *r, struct qp *qp, const struct wire_ping *ping)
{
	struct wire_msg pong = {.type = WIRE_PONG, .len_bytes = sizeof(pong), .request_id = ping->h.request_id};
	struct wr wr[3];
	uint16_t n = 0;

	if (ping->len_bytes != PROBE_BYTES) {
		stat_add(&r->counters.protocol_errors, 1);
		qp_odd(qp);
		return;
	}
	/* The transport sends the WRITE after the READ is complete, so PONG speaks for both ways. */
	if (ping->read_key && (r->next_keys || r->region_keys))
		wr[n++] = (struct wr){.op = WR_READ,
			.qp = qp,
			.addr = r->probe_sink,
			.len_bytes = PROBE_BYTES,
			.key = ping->read_key,
			.offset = ping->read_offset,
			.region = REGION_SINK};
	wr[n++] = (struct wr){.op = WR_WRITE,
		.qp = qp,
		.addr = r->probe_bytes,
		.len_bytes = PROBE_BYTES,
		.key = ping->key,
		.offset = ping->offset,
		.region = REGION_PROBE};
	wr[n++] = (struct wr){.op = WR_SEND, .qp = qp, .addr = &pong, .len_bytes = sizeof(pong), .region = REGION_NONE};
	if (r->post(r, wr, n) < n)
		stat_add(&r->counters.sq_full, 1);
}

void probe_pong(struct rail *r, struct qp *qp, const struct wire_msg *msg)
{
	struct segment *s = rail_segment(r, msg->request_id);

	if (!s || s->qp != qp || s->kind != SEG_PROBE || s->state > SEG_CANCELLING) {
		stat_add(&r->counters.late_messages, 1);
		return;
	}
	if (s->state == SEG_CANCELLING)
		r->n_cancelling--;
	s->state = SEG_CLOSING;
	s->status = RY_OK;
	s->landed_ns = r->now_ns;
	request_close(r, s);
}

bool probe_is_good(const struct rail *r, const struct segment *s)
{
	return memcmp(s->dst, r->probe_bytes, PROBE_BYTES) == 0;
}
