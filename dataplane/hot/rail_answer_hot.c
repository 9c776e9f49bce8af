/* SPDX-License-Identifier: BSD-3-Clause */
/* The requester's half of a rail, second part: DONE closes the window, the segment lands, is hashed, and goes back to
 * control. */
#include "rail.h"

static void free_slot(struct rail *r, struct segment *s);

void request_answer(struct rail *r, struct qp *qp, const struct wire_msg *msg)
{
	const struct wire_done *done = (const struct wire_done *)msg;
	const struct wire_busy *busy = (const struct wire_busy *)msg;
	uint32_t credits = msg->type == WIRE_DONE ? done->credits : busy->credits;
	struct segment *s = rail_segment(r, msg->request_id);

	/* A peer that gives back more than it granted gains nothing. */
	qp->credits = credits > qp->peer_credits - qp->credits ? qp->peer_credits : qp->credits + credits;
	if (unlikely(!s || s->qp != qp || s->state > SEG_CANCELLING)) {
		stat_add(&r->counters.late_messages, 1);
		qp_late(qp);
		return;
	}
	if (unlikely(s->grant != SEG_GRANT_NONE)) { /* the bytes are being read: an answer now is none */
		stat_add(&r->counters.protocol_errors, 1);
		qp_odd(qp);
		return;
	}
	if (unlikely(s->state == SEG_CANCELLING))
		r->n_cancelling--;
	s->state = SEG_CLOSING;
	s->landed_ns = r->now_ns;
	if (msg->type == WIRE_DONE) {
		s->status = done->status;
		s->bytes = done->bytes;
		s->got_generation = done->generation;
		s->storage_ns = done->storage_ns;
		s->queue_ns = done->queue_ns;
		if (s->status == RY_OK && s->bytes != s->len_bytes)
			s->status = RY_ERR_INCOMPLETE;
	} else {
		s->status = RY_ERR_BUSY;
		s->is_busy = 1;
		s->retry_us = busy->retry_us;
		stat_add(&r->counters.busy_received, 1);
	}
	request_close(r, s);
}

/* Whatever the answer: only an open window is to be closed. */
void request_close(struct rail *r, struct segment *s)
{
	struct window *w = &r->windows[s->slot];

	if (unlikely(w->state != WINDOW_BOUND)) {
		request_closed(r, s);
		return;
	}
	w->state = WINDOW_INVALIDATING;
	seg_push(&r->closing, s);
}

/* Only the requester invalidates, once, after DONE. */
unsigned request_post_closing(struct rail *r)
{
	struct wr wr[RY_BURST_MAX];
	unsigned n = 0, sent;

	for (struct segment *s = r->closing.head; s && n < RY_BURST_MAX; s = s->next)
		wr[n++] = (struct wr){
			.op = WR_INV, .qp = s->qp, .window = &r->windows[s->slot], .ctx = &r->windows[s->slot]};
	if (!n)
		return 0;
	sent = r->post(r, wr, (uint16_t)n);
	for (unsigned i = 0; i < sent; i++)
		seg_pop(&r->closing);
	stat_add(&r->counters.windows_invalidated, sent);
	return sent;
}

void request_closed(struct rail *r, struct segment *s)
{
	r->windows[s->slot].state = WINDOW_FREE;
	free_slot(r, s);
	if (unlikely(s->kind == SEG_PROBE)) {
		if (s->status == RY_OK && !probe_is_good(r, s))
			s->status = RY_ERR_CHECKSUM;
		stat_add(&r->counters.probes_answered, s->status == RY_OK);
		request_finish(r, s, s->status);
	} else if (likely(s->status == RY_OK)) {
		stat_add(&r->counters.rx_bytes, s->bytes);
		stat_add(&s->qp->rx_bytes, s->bytes);
		s->state = SEG_LANDED;
		seg_push(&r->landed, s);
	} else {
		request_finish(r, s, s->status);
	}
}

static void free_slot(struct rail *r, struct segment *s)
{
	r->active[s->slot] = NULL;
	r->free_slots[r->free_top++] = (uint16_t)s->slot;
	r->n_active--;
	s->qp->n_posted--;
	stat_sub(&r->counters.inflight_bytes, s->len_bytes);
}

unsigned request_hand_back(struct rail *r)
{
	unsigned n = 0;
	struct segment *s;

	while ((s = r->finished.head) != NULL) {
		struct segment *next = s->next;
		uint64_t *c = s->status == RY_OK ? &r->counters.segments_done : &r->counters.segments_failed;

		s->state = SEG_DONE;
		s->done_ns = r->now_ns;
		if (!spsc_push(r->events, s)) /* cannot happen: the ring holds every segment there is */
			break;
		/* s is control's from here on. */
		r->finished.head = next;
		r->finished.n--;
		stat_add(c, 1);
		n++;
	}
	if (!r->finished.head)
		r->finished.tail = NULL;
	if (n)
		waker_kick(r->control_waker);
	return n;
}
