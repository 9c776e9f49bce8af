/* SPDX-License-Identifier: BSD-3-Clause */
#include "rig_windows.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hot/rail.h"

enum page_state {
	PAGE_CLOSED = 0,
	PAGE_OPEN = 1,
	PAGE_ANSWERED = 2,
	PAGE_CLOSING = 3,
};

/* One window. */
struct page {
	uint8_t state; /* enum page_state */
	bool is_grant;
	uint32_t key;
	uint64_t request_id; /* that names it, 0 = none yet */
	const struct qp *qp;
};

/* Rails have no place for a test's pointer: one context per process. */
static struct {
	transport_post_fn post;
	transport_poll_fn poll;
	struct rig_windows n;
	struct page pages[RY_RAILS_MAX][WINDOWS_MAX];
} book;

static uint16_t book_post(struct rail *rail, const struct wr *wr, uint16_t n);
static void write_down(struct rail *rail, const struct wr *wr);
static void opened(struct rail *rail, struct page *p, const struct wr *wr);
static void name_window(struct rail *rail, const struct qp *qp, uint32_t key, uint64_t request_id);
static uint16_t book_poll(struct rail *rail, struct wc *wc, uint16_t max);
static void heard(struct rail *rail, const struct qp *qp, const struct wire_msg *m);
static void answered(struct rail *rail, const struct qp *qp, uint64_t request_id, bool is_grant);
static void down(struct rail *rail, const struct wc *wc);

static void must(bool is_so, const char *what, const struct rail *rail, const struct window *w)
{
	if (is_so)
		return;
	fprintf(stderr, "rail %u window %ld: %s\n", rail->idx, (long)(w - rail->windows), what);
	abort();
}

void rig_windows_watch(struct rig *r)
{
	memset(&book, 0, sizeof(book));
	book.post = r->node->rails[0]->post;
	book.poll = r->node->rails[0]->poll;
	for (uint16_t i = 0; i < r->node->n_rails; i++) {
		struct rail *rail = r->node->rails[i];

		for (unsigned k = 0; k < WINDOWS_MAX; k++)
			must(rail->windows[k].state != WINDOW_BOUND, "is open before the book is", rail,
				&rail->windows[k]);
		rail->post = book_post;
		rail->poll = book_poll;
	}
}

const struct rig_windows *rig_windows(void)
{
	return &book.n;
}

/* ---- what rails post ---- */

static uint16_t book_post(struct rail *rail, const struct wr *wr, uint16_t n)
{
	uint16_t taken = book.post(rail, wr, n);

	for (uint16_t i = 0; i < taken; i++)
		write_down(rail, &wr[i]);
	return taken;
}

static void write_down(struct rail *rail, const struct wr *wr)
{
	struct page *p = wr->window ? &book.pages[rail->idx][wr->window - rail->windows] : NULL;
	const struct wire_msg *m = wr->addr;

	switch (wr->op) {
	case WR_BIND:
		must(p->state == PAGE_CLOSED, "bound twice", rail, wr->window);
		opened(rail, p, wr);
		break;
	case WR_INV:
		must(p->state != PAGE_CLOSING, "invalidated twice", rail, wr->window);
		must(p->state != PAGE_CLOSED, "invalidated while closed", rail, wr->window);
		must(p->state != PAGE_OPEN, "invalidated before its answer", rail, wr->window);
		must(p->qp == wr->qp && p->key == wr->window->key, "invalidated by another", rail, wr->window);
		p->state = PAGE_CLOSING;
		book.n.n_invs++;
		break;
	case WR_READ:
		book.n.n_reads += wr->ctx != NULL;
		book.n.n_probe_reads += wr->ctx == NULL;
		book.n.read_bytes += wr->ctx ? wr->len_bytes : 0;
		break;
	case WR_WRITE:
		book.n.n_writes++;
		break;
	default:
		if (m->type == WIRE_READ || m->type == WIRE_PULL)
			name_window(rail, wr->qp, ((const struct wire_read *)wr->addr)->key, m->request_id);
		else if (m->type == WIRE_PING)
			name_window(rail, wr->qp, ((const struct wire_ping *)wr->addr)->key, m->request_id);
		book.n.n_grants += m->type == WIRE_GRANT;
		book.n.n_pulled += m->type == WIRE_PULLED;
		book.n.n_cancels += m->type == WIRE_CANCEL;
	}
}

/* Of a granted one the PULL has been here; of others the message that names it comes next. */
static void opened(struct rail *rail, struct page *p, const struct wr *wr)
{
	unsigned i = (unsigned)(wr->window - rail->windows);

	*p = (struct page){.state = PAGE_OPEN, .key = wr->window->key, .qp = wr->qp, .is_grant = i >= SERVE_SLOT};
	if (p->is_grant)
		p->request_id = rail->serve_reqs[i - SERVE_SLOT].request_id;
	book.n.n_binds++;
}

static void name_window(struct rail *rail, const struct qp *qp, uint32_t key, uint64_t request_id)
{
	for (unsigned i = 0; key && i < WINDOWS_MAX; i++) {
		struct page *p = &book.pages[rail->idx][i];

		if (p->state != PAGE_OPEN || p->key != key || p->qp != qp || p->is_grant)
			continue;
		p->request_id = request_id;
		return;
	}
}

/* ---- what the transport answers ---- */

static uint16_t book_poll(struct rail *rail, struct wc *wc, uint16_t max)
{
	uint16_t n = book.poll(rail, wc, max);

	for (uint16_t i = 0; i < n; i++) {
		const struct window *w = wc[i].ctx;
		struct page *p;

		switch (wc[i].op) {
		case WC_RECV:
			heard(rail, wc[i].qp, wc[i].msg);
			break;
		case WC_INV:
			p = &book.pages[rail->idx][w - rail->windows];
			must(p->state == PAGE_CLOSING, "is closed now, and nobody asked", rail, w);
			p->state = PAGE_CLOSED;
			break;
		case WC_QP_DOWN:
			down(rail, &wc[i]);
			break;
		default:
			break;
		}
	}
	return n;
}

static void heard(struct rail *rail, const struct qp *qp, const struct wire_msg *m)
{
	if (qp->is_down)
		return; /* the rail does not listen to it any more */
	if (m->type == WIRE_DONE || m->type == WIRE_BUSY || m->type == WIRE_PONG)
		answered(rail, qp, m->request_id, false);
	if (m->type == WIRE_PULLED || m->type == WIRE_CANCEL)
		answered(rail, qp, m->request_id, true);
}

static void answered(struct rail *rail, const struct qp *qp, uint64_t request_id, bool is_grant)
{
	for (unsigned i = 0; i < WINDOWS_MAX; i++) {
		struct page *p = &book.pages[rail->idx][i];

		if (p->state == PAGE_OPEN && p->qp == qp && p->request_id == request_id && p->is_grant == is_grant)
			p->state = PAGE_ANSWERED;
	}
}

static void down(struct rail *rail, const struct wc *wc)
{
	book.n.n_losses += !wc->is_fenced;
	book.n.n_access += !wc->is_fenced && wc->status == WC_ERR_ACCESS;
	book.n.n_fences += wc->is_fenced;
	for (unsigned i = 0; wc->is_fenced && i < WINDOWS_MAX; i++) {
		struct page *p = &book.pages[rail->idx][i];

		if (p->state == PAGE_CLOSED || p->qp != wc->qp)
			continue;
		book.n.n_fenced_open++;
		p->state = PAGE_CLOSED;
	}
}

/* ---- rest ---- */

const char *rig_windows_unrest(struct rig *r)
{
	static char text[160];

	for (uint16_t i = 0; i < r->node->n_rails; i++) {
		const struct rail *ra = r->node->rails[i];

		for (unsigned k = 0; k < WINDOWS_MAX; k++) {
			const struct window *w = &ra->windows[k];

			snprintf(text, sizeof(text), "rail %u window %u is %u, in the book %u", i, k, w->state,
				book.pages[i][k].state);
			if (w->state == WINDOW_BOUND || w->state == WINDOW_INVALIDATING ||
				book.pages[i][k].state != PAGE_CLOSED)
				return text;
		}
		snprintf(text, sizeof(text),
			"rail %u: %u active, %u slots free, %u held, %u cancelling, %u granted, %u grants, %u serving "
			"%lu bytes, "
			"%lu in flight",
			i, ra->n_active, ra->free_top, ra->n_held, ra->n_cancelling, ra->n_granted, ra->n_grants,
			ra->n_serve, (unsigned long)ra->serve_bytes,
			(unsigned long)stat_get(&ra->counters.inflight_bytes));
		if (ra->n_active || ra->free_top != RAIL_ACTIVE_MAX || ra->n_held || ra->n_cancelling ||
			ra->n_granted || ra->n_grants || ra->n_serve || ra->serve_bytes || ra->serve_closing ||
			stat_get(&ra->counters.inflight_bytes))
			return text;
		for (uint16_t q = 0; q < ra->n_qps; q++) {
			snprintf(text, sizeof(text), "rail %u QP %u: %u credits of %u", i, q, ra->qps[q]->credits,
				ra->qps[q]->peer_credits);
			if (!ra->qps[q]->is_down && ra->qps[q]->credits != ra->qps[q]->peer_credits)
				return text;
		}
	}
	return NULL;
}
