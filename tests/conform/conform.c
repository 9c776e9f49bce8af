/* SPDX-License-Identifier: BSD-3-Clause */
#include "conform.h"

#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include "sync/sync.h"

static void poll_rail(struct conform *c, struct rail *rail);
static bool is_adopted(const struct rail *rail, const struct qp *qp);

#define WAIT_NS 10000000000ull

struct conform *conform_open(uint16_t n_qps)
{
	struct conform *c = calloc(1, sizeof(*c));

	cr_assert(c);
	cr_assert(n_qps <= CONFORM_QPS_MAX);
	conform_setup(c, n_qps);
	return c;
}

void conform_close(struct conform *c)
{
	for (uint16_t i = 0; i < CONFORM_QPS_MAX; i++) {
		if (c->qa[i])
			conform_close_a(c, i);
		if (c->qb[i])
			conform_close_b(c, i);
	}
	c->ops->close(c->a);
	if (c->b != c->a) {
		c->ops->close(c->b);
		free(c->b);
	}
	free(c->a);
	free(c);
}

struct rail *conform_rail_new(const struct transport_ops *ops, const struct rail_conf *conf, uint16_t idx)
{
	struct rail *rail = NULL;

	cr_assert_eq(posix_memalign((void **)&rail, alignof(struct rail), sizeof(*rail)), 0);
	memset(rail, 0, sizeof(*rail));
	rail->idx = idx;
	rail->conf = *conf;
	rail->ops = *ops;
	rail->post = ops->post;
	rail->poll = ops->poll;
	rail->waker.event_fd = -1;
	rail->conn_waker = &rail->waker;
	rail->probe_bytes = calloc(1, PROBE_BYTES);
	rail->probe_sink = calloc(1, PROBE_BYTES);
	rail->now_ns = clock_ns();
	cr_assert_eq(ops->open(rail, conf), 0);
	rail->write_max_bytes = rail->attr.write_max_bytes;
	cr_assert(rail->attr.write_max_bytes >= RY_SEGMENT_MIN_BYTES);
	cr_assert(rail->attr.sq_depth >= RY_BURST_MAX);
	return rail;
}

void conform_adopt(struct rail *rail, struct qp *qp)
{
	qp->slot = rail->n_qps;
	rail->qps[rail->n_qps++] = qp;
	rail->qp_epoch++;
}

void conform_forget(struct rail *rail, struct qp *qp)
{
	cr_assert(is_adopted(rail, qp));
	rail->qps[qp->slot] = rail->qps[--rail->n_qps];
	rail->qps[qp->slot]->slot = qp->slot;
	rail->qp_epoch++;
	cr_assert_eq(rail->poll(rail, NULL, 0), 0);
}

static bool is_adopted(const struct rail *rail, const struct qp *qp)
{
	return qp->slot < rail->n_qps && rail->qps[qp->slot] == qp;
}

void conform_close_a(struct conform *c, uint16_t i)
{
	conform_forget(c->a, c->qa[i]);
	c->ops->pair_close(c->a, c->qa[i]);
	c->qa[i] = NULL;
}

void conform_close_b(struct conform *c, uint16_t i)
{
	conform_forget(c->b, c->qb[i]);
	c->ops->pair_close(c->b, c->qb[i]);
	c->qb[i] = NULL;
}

void conform_turn(struct conform *c)
{
	poll_rail(c, c->a);
	if (c->b != c->a)
		poll_rail(c, c->b);
}

static void poll_rail(struct conform *c, struct rail *rail)
{
	struct wc wc[RY_BURST_MAX];
	uint16_t n;

	rail->now_ns = clock_ns();
	n = rail->poll(rail, wc, RY_BURST_MAX);
	cr_assert(n <= RY_BURST_MAX);
	for (uint16_t i = 0; i < n; i++) {
		struct conform_event *e = &c->events[c->n_events++];

		cr_assert(c->n_events < CONFORM_EVENTS_MAX);
		e->wc = wc[i];
		if (wc[i].op == WC_RECV) {
			cr_assert(wc[i].len_bytes <= sizeof(e->msg));
			memcpy(e->msg, wc[i].msg, wc[i].len_bytes);
			e->wc.msg = e->msg;
		}
	}
}

void conform_wait(struct conform *c, uint32_t n)
{
	uint64_t end_ns = clock_ns() + WAIT_NS;

	while (c->n_events < n) {
		conform_turn(c);
		cr_assert(clock_ns() < end_ns, "%u events instead of %u", c->n_events, n);
	}
}

void conform_wait_for(struct conform *c, enum wc_op op, const struct qp *qp, uint32_t n)
{
	uint64_t end_ns = clock_ns() + WAIT_NS;
	uint32_t from = 0, seen = 0;

	for (;;) {
		for (; from < c->n_events; from++)
			seen += c->events[from].wc.op == op && c->events[from].wc.qp == qp;
		if (seen >= n)
			return;
		conform_turn(c);
		cr_assert(clock_ns() < end_ns, "%u events of kind %d instead of %u", seen, op, n);
	}
}

void conform_settle(struct conform *c)
{
	for (int i = 0; i < 300; i++)
		conform_turn(c);
}

uint32_t conform_count(const struct conform *c, enum wc_op op, const struct qp *qp)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < c->n_events; i++)
		n += c->events[i].wc.op == op && c->events[i].wc.qp == qp;
	return n;
}

const struct conform_event *conform_event(const struct conform *c, enum wc_op op, const struct qp *qp, uint32_t k)
{
	for (uint32_t i = 0; i < c->n_events; i++)
		if (c->events[i].wc.op == op && c->events[i].wc.qp == qp && k-- == 0)
			return &c->events[i];
	cr_assert_fail("no such event");
	return NULL;
}

void conform_post(struct conform *c, struct rail *rail, const struct wr *wr)
{
	uint64_t end_ns = clock_ns() + WAIT_NS;

	while (!rail->post(rail, wr, 1)) {
		conform_turn(c);
		cr_assert(clock_ns() < end_ns, "the send queue stays full");
	}
}

uint32_t conform_message(void *buf, uint16_t n_parts, uint64_t seed)
{
	struct wire_read *m = buf;
	struct wire_part *parts = (struct wire_part *)(m + 1);
	uint64_t window_offset = 0;

	memset(m, 0, sizeof(*m));
	m->h.type = WIRE_READ;
	m->h.len_bytes = (uint16_t)(sizeof(*m) + n_parts * sizeof(*parts));
	m->h.request_id = seed;
	m->handle = seed * 0x9e3779b97f4a7c15ull;
	m->generation = ~seed;
	m->n_parts = n_parts;
	for (uint16_t i = 0; i < n_parts; i++) {
		parts[i] = (struct wire_part){
			.stripe_idx = (uint32_t)(seed + i) % RY_STRIPES_MAX,
			.len_bytes = 1 + (uint32_t)(seed * 7 + i) % 65536,
			.offset = seed % 4096,
			.window_offset = window_offset,
		};
		window_offset += parts[i].len_bytes;
	}
	return m->h.len_bytes;
}

void conform_send(struct conform *c, struct rail *rail, struct qp *qp, uint16_t n_parts, uint64_t seed)
{
	alignas(8) uint8_t msg[WIRE_MSG_BYTES];
	struct wr wr = {.op = WR_SEND, .qp = qp, .addr = msg, .len_bytes = conform_message(msg, n_parts, seed)};

	conform_post(c, rail, &wr);
	memset(msg, 0xee, sizeof(msg)); /* post copied it */
}

void conform_write(
	struct conform *c, uint16_t i, const struct window *w, uint64_t offset, const void *addr, uint32_t len)
{
	struct wr wr = {
		.op = WR_WRITE,
		.qp = c->qb[i],
		.addr = (void *)(uintptr_t)addr,
		.len_bytes = len,
		.ctx = (void *)(uintptr_t)addr,
		.key = w->key,
		.offset = offset,
	};

	conform_post(c, c->b, &wr);
}

void conform_barrier(struct conform *c, uint16_t i)
{
	uint32_t n = conform_count(c, WC_RECV, c->qa[i]);

	conform_send(c, c->b, c->qb[i], 1, 0xba221e2);
	conform_wait_for(c, WC_RECV, c->qa[i], n + 1);
}

struct window *conform_bind(struct conform *c, uint16_t i, uint32_t slot, void *addr, uint64_t len)
{
	struct window *w = &c->a->windows[slot];
	struct wr wr = {.op = WR_BIND, .qp = c->qa[i], .window = w};

	*w = (struct window){
		.addr = addr,
		.len_bytes = len,
		.qp = c->qa[i],
		.key = slot | ++c->a->window_salt << WINDOW_SLOT_BITS,
		.state = WINDOW_BOUND,
	};
	conform_post(c, c->a, &wr);
	return w;
}

void conform_fill(void *buf, uint64_t len, uint64_t seed)
{
	uint8_t *b = buf;
	uint64_t x = seed | 1;

	for (uint64_t i = 0; i < len; i++) {
		if (i % 8 == 0)
			x = x * 6364136223846793005ull + 1442695040888963407ull;
		b[i] = (uint8_t)(x >> (8 * (i % 8)) ^ x >> 57);
	}
}

bool conform_is_filled(const void *buf, uint64_t len, uint64_t seed)
{
	uint8_t *want = malloc(len + 1);
	bool is_same;

	cr_assert(want);
	conform_fill(want, len, seed);
	is_same = memcmp(buf, want, len) == 0;
	free(want);
	return is_same;
}
