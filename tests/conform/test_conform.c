/* SPDX-License-Identifier: BSD-3-Clause */
#include "conform.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include "sync/sync.h"

#define KIB 1024u
#define MIB (1024u * KIB)

static void expect_message(const struct conform_event *e, uint16_t n_parts, uint64_t seed)
{
	alignas(8) uint8_t want[WIRE_MSG_BYTES];
	uint32_t len = conform_message(want, n_parts, seed);

	cr_assert_eq(e->wc.len_bytes, len);
	cr_assert(memcmp(e->msg, want, len) == 0, "message %lu differs", seed);
}

Test(conform, qp_carries_what_conn_asked_for)
{
	struct conform *c = conform_open(2);

	cr_assert_eq(c->qa[1]->qp_idx, 1);
	cr_assert_eq(c->qa[0]->rail_idx, c->a->idx);
	cr_assert_eq(c->qa[0]->peer_credits, 24);
	cr_assert(c->qa[0]->is_dialler);
	cr_assert_not(c->qb[0]->is_dialler);
	cr_assert_neq(c->qa[0], c->qa[1]);
	conform_close(c);
}

Test(conform, idle_poll_finds_nothing)
{
	struct conform *c = conform_open(1);

	conform_settle(c);
	cr_assert_eq(c->n_events, 0);
	conform_close(c);
}

Test(conform, message_arrives_whole)
{
	struct conform *c = conform_open(1);

	conform_send(c, c->b, c->qb[0], 3, 42);
	conform_wait(c, 1);
	cr_assert_eq(c->events[0].wc.op, WC_RECV);
	cr_assert_eq(c->events[0].wc.qp, c->qa[0]);
	expect_message(&c->events[0], 3, 42);
	conform_settle(c);
	cr_assert_eq(c->n_events, 1);
	conform_close(c);
}

Test(conform, messages_go_both_ways)
{
	struct conform *c = conform_open(1);

	conform_send(c, c->b, c->qb[0], 1, 1);
	conform_send(c, c->a, c->qa[0], 2, 2);
	conform_wait(c, 2);
	expect_message(conform_event(c, WC_RECV, c->qa[0], 0), 1, 1);
	expect_message(conform_event(c, WC_RECV, c->qb[0], 0), 2, 2);
	conform_close(c);
}

Test(conform, largest_and_smallest_message)
{
	struct conform *c = conform_open(1);
	struct wire_cancel cancel = {.h = {.type = WIRE_CANCEL, .len_bytes = sizeof(cancel), .request_id = 77}};
	struct wr wr = {.op = WR_SEND, .qp = c->qb[0], .addr = &cancel, .len_bytes = sizeof(cancel)};

	conform_send(c, c->b, c->qb[0], WIRE_PARTS_MAX, 5);
	conform_post(c, c->b, &wr);
	conform_wait(c, 2);
	expect_message(&c->events[0], WIRE_PARTS_MAX, 5);
	cr_assert_eq(c->events[1].wc.len_bytes, sizeof(cancel));
	cr_assert(memcmp(c->events[1].msg, &cancel, sizeof(cancel)) == 0);
	conform_close(c);
}

Test(conform, messages_of_a_qp_keep_order)
{
	enum { N = 2000 };
	struct conform *c = conform_open(2);

	for (uint64_t i = 0; i < N; i++)
		conform_send(c, c->b, c->qb[i & 1], 1 + i % WIRE_PARTS_MAX, i);
	conform_wait_for(c, WC_RECV, c->qa[0], N / 2);
	conform_wait_for(c, WC_RECV, c->qa[1], N / 2);
	for (uint64_t i = 0, next[2] = {0}; i < c->n_events; i++) {
		int q = c->events[i].wc.qp == c->qa[1];

		expect_message(&c->events[i], 1 + (2 * next[q] + q) % WIRE_PARTS_MAX, 2 * next[q] + q);
		next[q]++;
	}
	conform_settle(c);
	cr_assert_eq(c->n_events, N);
	conform_close(c);
}

Test(conform, write_lands_at_its_offset)
{
	struct conform *c = conform_open(1);
	uint8_t src[300], dst[1000] = {0}, want[1000] = {0};
	struct window *w = conform_bind(c, 0, 5, dst, sizeof(dst));

	conform_fill(src, sizeof(src), 1);
	conform_write(c, 0, w, 0, src, 1);
	conform_write(c, 0, w, 17, src, 300);
	conform_write(c, 0, w, 999, src + 7, 1); /* its last byte */
	conform_barrier(c, 0);
	conform_wait_for(c, WC_WRITE, c->qb[0], 3);
	want[0] = src[0];
	memcpy(want + 17, src, 300);
	want[999] = src[7];
	cr_assert(memcmp(dst, want, sizeof(dst)) == 0);
	cr_assert_eq(conform_event(c, WC_WRITE, c->qb[0], 0)->wc.ctx, src);
	cr_assert_eq(conform_event(c, WC_WRITE, c->qb[0], 2)->wc.ctx, src + 7);
	cr_assert_eq(stat_get(&c->a->counters.late_dropped_bytes), 0);
	conform_close(c);
}

Test(conform, write_of_the_largest_size)
{
	struct conform *c = conform_open(1);
	uint32_t len = c->b->attr.write_max_bytes;
	uint8_t *src = malloc(len), *dst = calloc(1, len);
	struct window *w = conform_bind(c, 0, 0, dst, len);

	conform_fill(src, len, 3);
	conform_write(c, 0, w, 0, src, len);
	conform_barrier(c, 0);
	cr_assert(memcmp(src, dst, len) == 0);
	cr_assert_eq(conform_count(c, WC_WRITE, c->qb[0]), 1);
	conform_close(c);
	free(src);
	free(dst);
}

Test(conform, write_outside_its_window_is_dropped_and_counted)
{
	struct conform *c = conform_open(1);
	uint8_t src[256], dst[512] = {0}, zero[512] = {0};
	struct window *w = conform_bind(c, 0, 1, dst + 128, 256);
	uint64_t bad[] = {1, 255, 256, 257, 1u << 20, RY_STRIPE_MAX_BYTES - 256};

	conform_fill(src, sizeof(src), 9);
	for (unsigned i = 0; i < RTE_DIM(bad); i++)
		conform_write(c, 0, w, bad[i], src, 256);
	conform_barrier(c, 0);
	conform_wait_for(c, WC_WRITE, c->qb[0], RTE_DIM(bad));
	cr_assert(memcmp(dst, zero, sizeof(dst)) == 0);
	cr_assert_eq(stat_get(&c->a->counters.late_dropped_bytes), RTE_DIM(bad) * 256);
	conform_write(c, 0, w, 0, src, 256); /* the QP lives on */
	conform_barrier(c, 0);
	cr_assert(memcmp(dst + 128, src, 256) == 0);
	conform_close(c);
}

Test(conform, write_to_a_closed_window_is_dropped_and_counted)
{
	uint8_t states[] = {WINDOW_FREE, WINDOW_INVALIDATING, WINDOW_DEAD};
	struct conform *c = conform_open(1);
	uint8_t src[100], dst[100] = {0}, zero[100] = {0};
	struct window *w = conform_bind(c, 0, 2, dst, sizeof(dst));

	conform_fill(src, sizeof(src), 2);
	for (unsigned i = 0; i < RTE_DIM(states); i++) {
		w->state = states[i];
		conform_write(c, 0, w, 0, src, 100);
		conform_barrier(c, 0);
	}
	cr_assert(memcmp(dst, zero, 100) == 0);
	cr_assert_eq(stat_get(&c->a->counters.late_dropped_bytes), 300);
	conform_close(c);
}

Test(conform, write_with_an_old_key_is_dropped)
{
	struct conform *c = conform_open(1);
	uint8_t src[100], dst[100] = {0}, zero[100] = {0};
	struct window old = *conform_bind(c, 0, 3, dst, sizeof(dst));

	conform_bind(c, 0, 3, dst, sizeof(dst));
	conform_fill(src, sizeof(src), 2);
	conform_write(c, 0, &old, 0, src, 100);
	conform_barrier(c, 0);
	cr_assert(memcmp(dst, zero, 100) == 0);
	cr_assert_eq(stat_get(&c->a->counters.late_dropped_bytes), 100);
	conform_close(c);
}

Test(conform, write_over_another_qp_is_dropped)
{
	struct conform *c = conform_open(2);
	uint8_t src[100], dst[100] = {0}, zero[100] = {0};
	struct window *w = conform_bind(c, 0, 4, dst, sizeof(dst));

	conform_fill(src, sizeof(src), 2);
	conform_write(c, 1, w, 0, src, 100);
	conform_barrier(c, 1);
	cr_assert(memcmp(dst, zero, 100) == 0);
	cr_assert_eq(stat_get(&c->a->counters.late_dropped_bytes), 100);
	conform_close(c);
}

/* A message says how much was written before it; when it arrives, that much must be there. */
Test(conform, writes_and_sends_keep_order)
{
	enum { N = 300, LEN = 5000 };
	struct conform *c = conform_open(1);
	uint8_t *src = malloc(N * LEN), *dst = calloc(N, LEN);
	struct window *w = conform_bind(c, 0, 0, dst, N * LEN);

	conform_fill(src, N * LEN, 11);
	for (uint32_t i = 0, seen = 0; i < N; i++) {
		conform_write(c, 0, w, (uint64_t)i * LEN, src + i * LEN, LEN);
		conform_send(c, c->b, c->qb[0], 1, i);
		conform_turn(c);
		for (uint32_t got = conform_count(c, WC_RECV, c->qa[0]); seen < got; seen++)
			cr_assert(memcmp(dst + seen * LEN, src + seen * LEN, LEN) == 0, "message %u overtook its bytes",
				seen);
	}
	conform_wait_for(c, WC_RECV, c->qa[0], N);
	cr_assert(memcmp(dst, src, N * LEN) == 0);
	for (uint32_t i = 0; i < N; i++)
		expect_message(conform_event(c, WC_RECV, c->qa[0], i), 1, i);
	conform_wait_for(c, WC_WRITE, c->qb[0], N);
	for (uint32_t i = 0; i < N; i++)
		cr_assert_eq(conform_event(c, WC_WRITE, c->qb[0], i)->wc.ctx, src + i * LEN);
	conform_close(c);
	free(src);
	free(dst);
}

Test(conform, full_send_queue_is_short_and_recovers)
{
	struct conform *c = conform_open(1);
	alignas(8) uint8_t msg[WIRE_MSG_BYTES];
	struct wr wr[RY_BURST_MAX];
	uint32_t n = 0, sent;

	for (unsigned i = 0; i < RY_BURST_MAX; i++)
		wr[i] = (struct wr){
			.op = WR_SEND, .qp = c->qb[0], .addr = msg, .len_bytes = conform_message(msg, 8, 1)};
	do { /* nobody receives, so it ends */
		sent = c->b->post(c->b, wr, RY_BURST_MAX);
		n += sent;
		cr_assert(n < 1000000);
	} while (sent == RY_BURST_MAX);
	cr_assert(n < CONFORM_EVENTS_MAX, "no back-pressure after %u messages", n);
	cr_assert_eq(c->b->post(c->b, wr, 1), 0);
	conform_wait_for(c, WC_RECV, c->qa[0], n);
	conform_send(c, c->b, c->qb[0], 2, 2);
	conform_wait_for(c, WC_RECV, c->qa[0], n + 1);
	expect_message(conform_event(c, WC_RECV, c->qa[0], n), 2, 2);
	conform_close(c);
}

Test(conform, full_write_queue_is_short_and_recovers)
{
	struct conform *c = conform_open(1);
	uint8_t *src = malloc(64 * KIB), *dst = calloc(1, 64 * KIB);
	struct window *w = conform_bind(c, 0, 0, dst, 64 * KIB);
	struct wr wr = {.op = WR_WRITE, .qp = c->qb[0], .addr = src, .len_bytes = 64 * KIB, .key = w->key};
	uint32_t n = 0;

	conform_fill(src, 64 * KIB, 4);
	while (c->b->post(c->b, &wr, 1))
		cr_assert(++n < 10000, "no back-pressure");
	conform_wait_for(c, WC_WRITE, c->qb[0], n);
	conform_barrier(c, 0);
	cr_assert(memcmp(src, dst, 64 * KIB) == 0);
	cr_assert_eq(conform_count(c, WC_WRITE, c->qb[0]), n);
	conform_close(c);
	free(src);
	free(dst);
}

Test(conform, every_invalidation_completes_once)
{
	struct conform *c = conform_open(2);
	struct window *w[100];
	uint8_t dst[100];

	for (uint32_t i = 0; i < 100; i++) {
		struct wr wr = {.op = WR_INV, .qp = c->qa[i & 1], .ctx = &w[i]};

		w[i] = wr.window = conform_bind(c, i & 1, i, dst, sizeof(dst));
		w[i]->state = WINDOW_INVALIDATING;
		conform_post(c, c->a, &wr);
	}
	conform_wait(c, 100);
	conform_settle(c);
	cr_assert_eq(c->n_events, 100);
	for (uint32_t i = 0; i < 100; i++)
		cr_assert_eq(conform_event(c, WC_INV, c->qa[i & 1], i / 2)->wc.ctx, &w[i]);
	conform_close(c);
}

/* The poll that finds less room than there is work must lose nothing. */
Test(conform, completions_come_in_any_portion)
{
	struct conform *c = conform_open(2);
	uint8_t src[8] = {1}, dst[8];
	struct window *w[2] = {conform_bind(c, 0, 0, dst, 8), conform_bind(c, 1, 1, dst, 8)};
	uint32_t n_writes = 0, n_recvs = 0;
	uint64_t end_ns = clock_ns() + 10000000000ull;

	for (int i = 0; i < 40; i++) {
		conform_write(c, i & 1, w[i & 1], 0, src, 8);
		conform_send(c, c->b, c->qb[i & 1], 1, 1);
	}
	n_writes = c->n_events;
	cr_assert_eq(n_writes, 0, "the queue holds 40 of each");
	while (n_writes < 40 || n_recvs < 40) {
		for (int k = 0; k < 2; k++) {
			struct rail *r = k ? c->a : c->b;
			struct wc wc[1];

			r->now_ns = clock_ns();
			if (!r->poll(r, wc, 1))
				continue;
			n_writes += wc[0].op == WC_WRITE;
			n_recvs += wc[0].op == WC_RECV;
		}
		cr_assert(clock_ns() < end_ns);
	}
	conform_settle(c);
	cr_assert_eq(n_writes + n_recvs + c->n_events, 80);
	conform_close(c);
}

Test(conform, peer_close_is_reported_once)
{
	struct conform *c = conform_open(2);
	struct qp *other = c->qa[1];

	conform_close_b(c, 0);
	conform_wait_for(c, WC_QP_DOWN, c->qa[0], 1);
	conform_settle(c);
	cr_assert_eq(c->n_events, 1);
	cr_assert_eq(c->events[0].wc.status, WC_ERR_PEER_CLOSED);
	cr_assert(c->events[0].wc.is_fenced);
	conform_send(c, c->b, c->qb[1], 1, 8); /* the other QP of the pair does not care */
	conform_wait_for(c, WC_RECV, other, 1);
	conform_close(c);
}

Test(conform, the_dialled_end_learns_it_too)
{
	struct conform *c = conform_open(1);

	conform_close_a(c, 0);
	conform_wait_for(c, WC_QP_DOWN, c->qb[0], 1);
	conform_settle(c);
	cr_assert_eq(c->n_events, 1);
	conform_close(c);
}

Test(conform, posting_on_a_lost_qp_is_taken_and_dropped)
{
	struct conform *c = conform_open(1);
	uint8_t src[10] = {0};
	struct window w = {.key = 0};

	conform_close_b(c, 0);
	conform_wait_for(c, WC_QP_DOWN, c->qa[0], 1);
	for (int i = 0; i < 1000; i++) {
		struct wr wr[3] = {
			{.op = WR_WRITE, .qp = c->qa[0], .addr = src, .len_bytes = sizeof(src)},
			{.op = WR_INV, .qp = c->qa[0], .window = &w},
			{.op = WR_BIND, .qp = c->qa[0], .window = &w},
		};

		cr_assert_eq(c->a->post(c->a, wr, 3), 3);
	}
	conform_send(c, c->a, c->qa[0], 8, 1);
	conform_settle(c);
	cr_assert_eq(c->n_events, 1);
	conform_close(c);
}

/* What was under way when the QP died may or may not land, but never after QP_DOWN. */
Test(conform, window_of_a_lost_qp_is_not_written)
{
	struct conform *c = conform_open(1);
	uint8_t *src = malloc(4 * MIB), *dst = calloc(1, 4 * MIB), *then = malloc(4 * MIB);
	struct window *w = conform_bind(c, 0, 0, dst, 4 * MIB);

	conform_fill(src, 4 * MIB, 4);
	for (uint32_t i = 0; i < 64; i++)
		conform_write(c, 0, w, (uint64_t)i * 64 * KIB, src + i * 64 * KIB, 64 * KIB);
	conform_close_b(c, 0);
	conform_wait_for(c, WC_QP_DOWN, c->qa[0], 1);
	memcpy(then, dst, 4 * MIB);
	cr_assert_eq(w->state, WINDOW_BOUND);
	memset(src, 0xaa, 4 * MIB);
	conform_settle(c);
	cr_assert(memcmp(then, dst, 4 * MIB) == 0);
	conform_close(c);
	free(src);
	free(dst);
	free(then);
}

Test(conform, a_message_that_is_not_ours_ends_the_qp)
{
	struct conform *c = conform_open(2);
	struct wire_msg bad = {.type = WIRE_CANCEL, .len_bytes = sizeof(bad), .reserved = 1};
	struct wr wr = {.op = WR_SEND, .qp = c->qb[0], .addr = &bad, .len_bytes = sizeof(bad)};

	conform_post(c, c->b, &wr);
	conform_send(c, c->b, c->qb[0], 1, 8);
	conform_wait_for(c, WC_QP_DOWN, c->qa[0], 1);
	conform_settle(c);
	cr_assert_eq(conform_event(c, WC_QP_DOWN, c->qa[0], 0)->wc.status, WC_ERR_PROTOCOL);
	cr_assert_eq(conform_count(c, WC_RECV, c->qa[0]), 0);
	conform_send(c, c->b, c->qb[1], 1, 8);
	conform_wait_for(c, WC_RECV, c->qa[1], 1);
	conform_settle(c);
	cr_assert_eq(conform_count(c, WC_QP_DOWN, c->qa[0]), 1);
	conform_close(c);
}

/* The sender's rail runs; the receiver's does not. */
static void push_out(struct conform *c)
{
	struct wc wc[1];

	if (c->b != c->a)
		cr_assert_eq(c->b->poll(c->b, wc, 1), 0);
}

/* A sleeper must find the message: by the fd, or because arm says that there is something already. */
Test(conform, arm_sees_a_message_come)
{
	struct conform *c = conform_open(1);

	for (int i = 0; i < 20; i++) {
		struct pollfd p = {.events = POLLIN};

		conform_settle(c);
		c->a->now_ns = clock_ns();
		cr_assert_neq(p.fd = c->ops->arm(c->a), -EAGAIN, "idle, and yet something to do");
		if (p.fd >= 0)
			cr_assert_eq(poll(&p, 1, 0), 0, "idle, and yet readable");
		conform_send(c, c->b, c->qb[0], 1, i);
		push_out(c);
		p.fd = c->ops->arm(c->a);
		cr_assert(p.fd == -EAGAIN || p.fd >= 0, "nothing would wake the rail: %d", p.fd);
		if (p.fd >= 0)
			cr_assert_eq(poll(&p, 1, 5000), 1, "the message came and woke nobody");
		conform_wait_for(c, WC_RECV, c->qa[0], i + 1);
	}
	conform_close(c);
}

Test(conform, arm_does_not_sleep_over_a_completion)
{
	struct conform *c = conform_open(1);
	uint8_t dst[8];
	struct window *w = conform_bind(c, 0, 0, dst, sizeof(dst));
	struct wr wr = {.op = WR_INV, .qp = c->qa[0], .window = w, .ctx = w};

	conform_settle(c);
	w->state = WINDOW_INVALIDATING;
	conform_post(c, c->a, &wr);
	cr_assert_eq(c->ops->arm(c->a), -EAGAIN);
	conform_wait_for(c, WC_INV, c->qa[0], 1);
	conform_close(c);
}

Test(conform, sixty_four_mib_arrive_byte_exact)
{
	enum { N_WINDOWS = 64 };
	struct conform *c = conform_open(2);
	uint8_t *src = malloc(64 * MIB), *dst = calloc(64, MIB);
	uint32_t step = RTE_MIN(c->b->attr.write_max_bytes, 300 * KIB);

	conform_fill(src, 64 * MIB, 64);
	for (uint32_t i = 0; i < N_WINDOWS; i++) {
		struct window *w = conform_bind(c, i & 1, i, dst + i * MIB, MIB);

		for (uint32_t off = 0; off < MIB; off += step)
			conform_write(c, i & 1, w, off, src + i * MIB + off, RTE_MIN(step, MIB - off));
	}
	conform_barrier(c, 0);
	conform_barrier(c, 1);
	cr_assert(memcmp(src, dst, 64 * MIB) == 0);
	cr_assert_eq(stat_get(&c->a->counters.late_dropped_bytes), 0);
	conform_close(c);
	free(src);
	free(dst);
}
