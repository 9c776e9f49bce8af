/* SPDX-License-Identifier: BSD-3-Clause */
/* The requester's half of a rail: segments become READ messages with a window each, and DONE, BUSY or a fence ends
 * them. */
#include "rail.h"

#define POST_SEGS (RY_BURST_MAX / 2)

/* One READ with all the parts it may have. */
struct read_msg {
	struct wire_read read;
	struct wire_part parts[WIRE_PARTS_MAX];
};

static unsigned build(struct rail *r, struct segment *s, struct read_msg *m, struct wr *wr);
static void posted(struct rail *r, struct segment *s);
static void unpost(struct rail *r, struct segment *s);
static unsigned post_qp(struct rail *r, struct qp *qp);

unsigned request_take(struct rail *r)
{
	void *segs[RY_BURST_MAX];
	unsigned n = spsc_pop_burst(r->work, segs, RY_BURST_MAX);

	for (unsigned i = 0; i < n; i++) {
		struct segment *s = segs[i];

		if (s->kind == SEG_VERIFY) {
			s->state = SEG_LANDED;
			seg_push(&r->landed, s);
		} else if (unlikely(s->kind == SEG_PROBE) && !s->qp->is_down) {
			s->state = SEG_HELD;
			seg_push(&r->probes, s);
		} else if (unlikely(s->qp->is_down)) {
			request_finish(r, s, RY_ERR_RAIL);
		} else if (unlikely(__atomic_load_n(&s->cancel_want, __ATOMIC_RELAXED))) {
			request_finish(r, s, RY_ERR_CANCELLED);
		} else {
			s->state = SEG_HELD;
			seg_push(&s->qp->held, s);
			r->n_held++;
		}
	}
	return n;
}

unsigned request_post(struct rail *r)
{
	unsigned n = request_post_closing(r);

	if (unlikely(r->n_granted))
		n += grant_post(r);
	if (unlikely(r->probes.n))
		n += probe_post(r);
	if (!r->n_held)
		return n;
	for (uint16_t i = 0; i < r->n_qps && r->n_held; i++) {
		struct qp *qp = r->qps[(r->turn + i) % r->n_qps];

		if (qp->held.n)
			n += post_qp(r, qp);
	}
	return n;
}

static unsigned post_qp(struct rail *r, struct qp *qp)
{
	struct read_msg msgs[POST_SEGS];
	struct segment *segs[POST_SEGS];
	struct wr wr[2 * POST_SEGS];
	unsigned n = 0, n_wr = 0, per_seg, sent;

	if (!qp->credits || !r->free_top) {
		stat_add(&r->counters.credit_stalls, 1);
		if (unlikely(!qp->credits && !qp->n_posted))
			request_starve(r, qp);
		return 0;
	}
	qp->starved_ns = 0;
	while (n < POST_SEGS && n < qp->credits && n < r->free_top && qp->held.head) {
		segs[n] = seg_pop(&qp->held);
		segs[n]->slot = r->free_slots[r->free_top - 1 - n];
		n_wr += build(r, segs[n], &msgs[n], &wr[n_wr]);
		n++;
	}
	if (!n)
		return 0;
	per_seg = n_wr / n; /* the segments of one QP are all READs, or all PULLs */
	sent = r->post(r, wr, (uint16_t)n_wr) / per_seg;
	for (unsigned i = 0; i < sent; i++)
		posted(r, segs[i]);
	if (unlikely(sent < n)) {
		stat_add(&r->counters.sq_full, 1);
		for (unsigned i = n; i-- > sent;)
			unpost(r, segs[i]);
	}
	return sent;
}

/* BIND_MW, then the READ that names its key: one chain, one QP. A PULL over device windows waits for the writer's key.
 */
static unsigned build(struct rail *r, struct segment *s, struct read_msg *m, struct wr *wr)
{
	uint64_t left_us = s->deadline_ns > r->now_ns ? (s->deadline_ns - r->now_ns) / 1000 : 0;
	uint16_t len = (uint16_t)(sizeof(m->read) + s->n_parts * sizeof(m->parts[0]));
	bool wants_grant = s->kind == SEG_PULL && s->qp->peer_grants, has_window;
	uint64_t window_offset;

	s->grant = SEG_GRANT_NONE;
	if (!wants_grant)
		request_bind_window(r, s, WINDOW_WRITES);
	window_offset = wants_grant ? 0 : r->windows[s->slot].offset;
	has_window = r->windows[s->slot].state == WINDOW_BOUND;
	s->request_id = r->next_request++ << WINDOW_SLOT_BITS | s->slot;
	m->read = (struct wire_read){
		.h = {.type = s->kind == SEG_PULL ? WIRE_PULL : WIRE_READ,
			.flags = s->is_start ? WIRE_F_START : 0,
			.len_bytes = len,
			.request_id = s->request_id},
		.handle = s->handle,
		.generation = s->generation,
		.ttl_us = left_us < UINT32_MAX ? (uint32_t)left_us : UINT32_MAX,
		.key = wants_grant ? 0 : r->windows[s->slot].key,
		.n_parts = s->n_parts,
	};
	for (unsigned i = 0; i < s->n_parts; i++) {
		m->parts[i] = (struct wire_part){
			.stripe_idx = s->parts[i].stripe_idx,
			.len_bytes = s->parts[i].len_bytes,
			.offset = s->parts[i].offset,
			.window_offset = window_offset,
		};
		window_offset += s->parts[i].len_bytes;
	}
	if (has_window)
		*wr++ = (struct wr){.op = WR_BIND, .qp = s->qp, .window = &r->windows[s->slot], .region = s->region};
	*wr = (struct wr){.op = WR_SEND, .qp = s->qp, .addr = m, .len_bytes = len, .region = REGION_NONE};
	return has_window ? 2 : 1;
}

void request_bind_window(struct rail *r, struct segment *s, uint8_t access)
{
	struct window *w = &r->windows[s->slot];

	w->addr = s->dst;
	w->len_bytes = s->len_bytes;
	w->qp = s->qp;
	w->region = s->region;
	w->access = access;
	w->offset = 0;
	w->state = WINDOW_BOUND;
	if (unlikely(r->region_keys != NULL)) {
		w->key = r->region_keys[s->region];
		w->offset = (uintptr_t)s->dst;
		w->state = WINDOW_FREE; /* nothing to open, and nothing to close */
		return;
	}
	if (r->next_keys) {
		w->key = r->next_keys[s->slot];
		return;
	}
	if (unlikely(!(++r->window_salt << WINDOW_SLOT_BITS)))
		r->window_salt++; /* key 0 is WIRE_PROBE_KEY */
	w->key = r->window_salt << WINDOW_SLOT_BITS | s->slot;
}

static void posted(struct rail *r, struct segment *s)
{
	s->state = SEG_POSTED;
	/* Relaxed: control looks at it for the segment deadline; nothing else is read with it. */
	__atomic_store_n(&s->posted_ns, r->now_ns, __ATOMIC_RELAXED);
	s->qp->credits--;
	s->qp->n_posted++;
	r->n_held--;
	r->free_top--;
	r->active[s->slot] = s;
	r->n_active++;
	stat_add(&r->counters.segments_posted, 1);
	stat_add(&r->counters.windows_bound, r->windows[s->slot].state == WINDOW_BOUND);
	stat_add(&r->counters.inflight_bytes, s->len_bytes);
}

/* The send queue had no room: back to the head of the QP's queue, in order; the key was never sent. */
static __rte_noinline __rte_cold void unpost(struct rail *r, struct segment *s)
{
	struct seg_fifo *f = &s->qp->held;

	r->windows[s->slot].state = WINDOW_FREE;
	s->next = f->head;
	f->head = s;
	if (!f->tail)
		f->tail = s;
	f->n++;
}
