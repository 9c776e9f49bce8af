/* SPDX-License-Identifier: BSD-3-Clause */
/* The mock rail's model in virtual time; what it shares with other transports is in tests/conform. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include "hot/rail.h"

#define MIB (1u << 20)
#define SLICE (256u << 10)
#define T0 1000000000000ull
#define QPS_MAX 40

/* One rail with n pairs; `a` ends dial and read, `b` ends serve. */
struct fixture {
	const struct transport_ops *ops;
	struct rail *rail;
	struct qp *a[QPS_MAX];
	struct qp *b[QPS_MAX];
	struct wc wc[256];
};

static struct fixture f;
static uint8_t src[4 * MIB], dst[4 * MIB];

static void adopt(struct qp *qp)
{
	qp->slot = f.rail->n_qps;
	f.rail->qps[f.rail->n_qps++] = qp;
	f.rail->qp_epoch++;
}

static void forget(struct qp *qp)
{
	f.rail->qps[qp->slot] = f.rail->qps[--f.rail->n_qps];
	f.rail->qps[qp->slot]->slot = qp->slot;
	f.rail->qp_epoch++;
	cr_assert_eq(f.rail->poll(f.rail, NULL, 0), 0);
}

static void connect_pair(int i)
{
	struct qp_request req = {.pair_idx = 1, .is_dialler = true, .peer_credits = 24, .fd = -1};

	cr_assert_eq(f.ops->pair_connect(f.rail, &req, &f.a[i]), 0);
	req.is_dialler = false;
	req.loop_peer = f.a[i];
	cr_assert_eq(f.ops->pair_connect(f.rail, &req, &f.b[i]), 0);
}

static void setup(uint64_t bandwidth, uint64_t latency_ns, int n_pairs)
{
	struct rail_conf conf = {.mock = {bandwidth, latency_ns, true}};

	f.ops = transport_find("mock");
	cr_assert_eq(posix_memalign((void **)&f.rail, alignof(struct rail), sizeof(struct rail)), 0);
	memset(f.rail, 0, sizeof(*f.rail));
	f.rail->post = f.ops->post;
	f.rail->poll = f.ops->poll;
	f.rail->now_ns = T0;
	cr_assert_eq(f.ops->open(f.rail, &conf), 0);
	for (int i = 0; i < n_pairs; i++) {
		connect_pair(i);
		adopt(f.a[i]);
		adopt(f.b[i]);
	}
	for (size_t i = 0; i < sizeof(src); i++)
		src[i] = (uint8_t)(i * 7 + i / 4093);
}

static uint16_t poll_at(uint64_t now_ns)
{
	f.rail->now_ns = now_ns;
	return f.rail->poll(f.rail, f.wc, 256);
}

/* Polls at one time until nothing comes and nothing moves; the last completion is in wc[0]. */
static uint32_t poll_all_at(uint64_t now_ns)
{
	uint32_t n = 0;
	uint64_t moved;

	f.rail->now_ns = now_ns;
	do {
		moved = stat_get(&f.rail->counters.wire_rx_bytes);
		n += f.rail->poll(f.rail, f.wc, 1);
	} while (stat_get(&f.rail->counters.wire_rx_bytes) != moved);
	return n;
}

/* Never 0, which is no window's. */
static uint32_t key_of(uint32_t slot)
{
	return slot | 1u << WINDOW_SLOT_BITS;
}

static struct window *bind(struct qp *qp, uint32_t slot)
{
	struct window *w = &f.rail->windows[slot];

	*w = (struct window){
		.addr = dst, .len_bytes = sizeof(dst), .qp = qp, .key = key_of(slot), .state = WINDOW_BOUND};
	return w;
}

static uint16_t write_to(struct qp *qp, uint32_t slot, uint64_t offset, uint32_t len)
{
	struct wr wr = {.op = WR_WRITE,
		.qp = qp,
		.addr = src + offset,
		.len_bytes = len,
		.key = key_of(slot),
		.offset = offset};

	return f.rail->post(f.rail, &wr, 1);
}

static uint16_t send_id(struct qp *qp, uint64_t id)
{
	struct wire_cancel m = {.h = {.type = WIRE_CANCEL, .len_bytes = sizeof(m), .request_id = id}};
	struct wr wr = {.op = WR_SEND, .qp = qp, .addr = &m, .len_bytes = sizeof(m)};

	return f.rail->post(f.rail, &wr, 1);
}

static uint64_t id_of(const struct wc *wc)
{
	return ((const struct wire_msg *)wc->msg)->request_id;
}

static uint64_t dropped(void)
{
	return stat_get(&f.rail->counters.late_dropped_bytes);
}

Test(mock, sixty_four_mib_take_as_long_as_they_should)
{
	const uint64_t bandwidth = 125000000, want_ns = 64ull * MIB * 1000000000 / bandwidth; /* 0.5369 s */

	setup(bandwidth, 0, 1);
	bind(f.a[0], 0);
	for (int i = 0; i < 64; i++)
		cr_assert_eq(write_to(f.b[0], 0, 0, MIB), 1);
	cr_assert_eq(poll_all_at(T0 + want_ns - 1), 63);
	cr_assert_eq(poll_all_at(T0 + want_ns), 1);
}

/* A bandwidth that divides nothing, and writes that never fill a nanosecond's share: what is left over is carried. */
Test(mock, remainders_are_carried)
{
	const uint64_t bandwidth = 7000000003, n = 20000, len = 13;
	const uint64_t want_ns = n * len * 1000000000 / bandwidth;
	uint64_t sent = 0, done = 0;

	setup(bandwidth, 0, 1);
	bind(f.a[0], 0);
	f.rail->now_ns = T0;
	while (done < n) {
		while (sent < n && write_to(f.b[0], 0, 0, len))
			sent++;
		done += f.rail->poll(f.rail, f.wc, 256);
		/* Always before the wire runs dry: 256 writes last 475 ns. */
		f.rail->now_ns += done < n ? 1 : 0;
	}
	cr_assert_eq(f.rail->now_ns, T0 + want_ns);
}

Test(mock, a_late_poll_costs_the_wire_nothing)
{
	const uint64_t mib_ns = MIB * 1000ull; /* at 1 GB/s: 1 ns a byte */

	setup(1000000000, 0, 1);
	bind(f.a[0], 0);
	for (int i = 0; i < 4; i++)
		write_to(f.b[0], 0, 0, MIB);
	cr_assert_eq(poll_all_at(T0 + 3 * MIB + MIB / 2), 3); /* nobody looked for 3.5 of them */
	write_to(f.b[0], 0, 0, MIB);
	cr_assert_eq(poll_all_at(T0 + 5ull * MIB - 1), 1);
	cr_assert_eq(poll_all_at(T0 + 5ull * MIB), 1);
	/* An idle wire starts from now. */
	f.rail->now_ns = T0 + mib_ns;
	write_to(f.b[0], 0, 0, MIB);
	cr_assert_eq(poll_all_at(T0 + mib_ns + MIB - 1), 0);
	cr_assert_eq(poll_all_at(T0 + mib_ns + MIB), 1);
}

Test(mock, a_write_arrives_piece_by_piece)
{
	setup(1000000000, 500, 1);
	bind(f.a[0], 0);
	write_to(f.b[0], 0, 0, MIB);
	send_id(f.b[0], 1);
	for (uint32_t k = 1; k <= 4; k++) {
		cr_assert_eq(poll_at(T0 + 500 + k * SLICE - 1), 0);
		cr_assert_eq(stat_get(&f.rail->counters.wire_rx_bytes), (k - 1) * SLICE);
		poll_at(T0 + 500 + k * SLICE);
		cr_assert(memcmp(dst, src, k * SLICE) == 0, "piece %u", k);
		cr_assert(k == 4 || dst[k * SLICE + 1] == 0);
	}
	cr_assert_eq(f.wc[0].op, WC_WRITE); /* only now, and the message behind it */
	cr_assert_eq(f.wc[1].op, WC_RECV);
}

Test(mock, latency_delays_messages_and_bytes)
{
	setup(0, 7000, 1);
	bind(f.a[0], 0);
	send_id(f.b[0], 1);
	write_to(f.b[0], 0, 0, 100);
	cr_assert_eq(poll_at(T0 + 6999), 0);
	cr_assert_eq(dst[1], 0);
	cr_assert_eq(poll_at(T0 + 7000), 2);
	cr_assert_eq(f.wc[0].op, WC_RECV);
	cr_assert_eq(f.wc[1].op, WC_WRITE);
	cr_assert(memcmp(dst, src, 100) == 0);
}

Test(mock, readers_share_one_wire_and_the_other_direction_has_its_own)
{
	setup(1000000000, 0, 2);
	bind(f.a[0], 0);
	bind(f.a[1], 1);
	bind(f.b[0], 2);
	write_to(f.b[0], 0, 0, MIB);
	write_to(f.b[1], 1, 0, MIB);
	write_to(f.a[0], 2, 0, MIB);
	cr_assert_eq(poll_all_at(T0 + MIB - 1), 0);
	cr_assert_eq(poll_all_at(T0 + MIB), 2);
	cr_assert_eq(poll_all_at(T0 + 2 * MIB - 1), 0);
	cr_assert_eq(poll_all_at(T0 + 2 * MIB), 1);
	cr_assert_eq(f.wc[0].qp, f.b[1]);
}

Test(mock, one_poll_moves_a_slice_without_a_model)
{
	setup(0, 0, 2);
	bind(f.a[0], 0);
	bind(f.a[1], 1);
	write_to(f.b[0], 0, 0, MIB);
	write_to(f.b[1], 1, 0, MIB);
	for (uint32_t k = 1; k <= 8; k++) {
		uint16_t n = poll_at(T0);

		cr_assert_eq(stat_get(&f.rail->counters.wire_rx_bytes), k * SLICE);
		cr_assert_eq(n, k >= 7, "both progress in turn, so both end with the last two");
	}
	cr_assert(memcmp(dst, src, MIB) == 0);
}

Test(mock, one_poll_moves_a_mib_under_a_model)
{
	setup(1000000000, 0, 1);
	bind(f.a[0], 0);
	for (int i = 0; i < 8; i++)
		write_to(f.b[0], 0, 0, 512u << 10);
	cr_assert_eq(poll_at(T0 + 100 * MIB), 2);
	cr_assert_eq(stat_get(&f.rail->counters.wire_rx_bytes), MIB);
}

Test(mock, a_window_that_closes_midway_takes_no_more)
{
	struct window *w;

	setup(0, 0, 1);
	w = bind(f.a[0], 0);
	write_to(f.b[0], 0, 0, MIB);
	poll_at(T0);
	w->state = WINDOW_DEAD;
	cr_assert_eq(poll_all_at(T0), 1); /* the sender still gets its memory back */
	cr_assert(memcmp(dst, src, SLICE) == 0);
	cr_assert_eq(dst[SLICE + 1], 0);
	cr_assert_eq(dropped(), MIB - SLICE);
}

Test(mock, fence_is_immediate)
{
	setup(0, 0, 1);
	cr_assert_eq(f.ops->fence(f.rail, bind(f.a[0], 0)), 0);
}

Test(mock, without_copy_bytes_are_counted_and_windows_still_hold)
{
	struct rail_conf conf = {.mock = {0, 0, false}};
	struct window *w;

	setup(0, 0, 0);
	f.ops->close(f.rail);
	cr_assert_eq(f.ops->open(f.rail, &conf), 0);
	connect_pair(0);
	adopt(f.a[0]);
	adopt(f.b[0]);
	w = bind(f.a[0], 0);
	write_to(f.b[0], 0, 0, 1000);
	cr_assert_eq(poll_at(T0), 1);
	cr_assert_eq(dst[1], 0);
	cr_assert_eq(stat_get(&f.rail->counters.wire_rx_bytes), 1000);
	w->state = WINDOW_FREE;
	write_to(f.b[0], 0, 0, 1000);
	cr_assert_eq(poll_at(T0), 1);
	cr_assert_eq(dropped(), 1000);
}

Test(mock, a_message_stays_valid_until_the_next_poll)
{
	uint64_t id = 0;
	uint16_t n;

	setup(0, 0, 1);
	while (send_id(f.b[0], id))
		id++;
	cr_assert_eq(id, 128);
	n = poll_at(T0);
	cr_assert_eq(n, 128);
	cr_assert_eq(send_id(f.b[0], 1000), 0, "its slot is still being read");
	for (uint16_t i = 0; i < n; i++)
		cr_assert_eq(id_of(&f.wc[i]), i);
}

/* The receive slots are free again after one more poll, though nothing else happened on the QP. */
Test(mock, message_slots_come_back_by_themselves)
{
	setup(0, 0, 1);
	for (uint64_t round = 0; round < 3; round++) {
		for (uint64_t id = 0; id < 128; id++)
			cr_assert_eq(send_id(f.b[0], id), 1);
		cr_assert_eq(poll_at(T0), 128);
		cr_assert_eq(id_of(&f.wc[127]), 127);
		cr_assert_eq(poll_at(T0), 0);
	}
}

Test(mock, indices_wrap)
{
	setup(0, 0, 1);
	bind(f.a[0], 0);
	for (uint64_t i = 0; i < 3000; i++) {
		cr_assert_eq(send_id(f.b[0], i), 1);
		cr_assert_eq(write_to(f.b[0], 0, i, 8), 1);
		cr_assert_eq(poll_at(T0 + i), 2);
		cr_assert_eq(id_of(&f.wc[0]), i);
		cr_assert(memcmp(dst + i, src + i, 8) == 0);
	}
}

Test(mock, what_is_sent_to_an_end_not_yet_adopted_waits)
{
	setup(0, 0, 0);
	connect_pair(0);
	adopt(f.b[0]);
	send_id(f.b[0], 5);
	cr_assert_eq(poll_at(T0), 0);
	cr_assert_eq(f.ops->arm(f.rail), -1, "nothing that poll could do");
	adopt(f.a[0]);
	cr_assert_eq(poll_at(T0), 1);
	cr_assert_eq(f.wc[0].qp, f.a[0]);
	cr_assert_eq(id_of(&f.wc[0]), 5);
}

Test(mock, nothing_reaches_an_end_that_left)
{
	setup(0, 0, 1);
	bind(f.a[0], 0);
	cr_assert_eq(poll_at(T0), 0); /* it was here */
	send_id(f.b[0], 5);
	write_to(f.b[0], 0, 0, 8);
	forget(f.a[0]);
	cr_assert_eq(poll_at(T0), 0);
	f.ops->pair_close(f.rail, f.a[0]);
	cr_assert_eq(poll_at(T0), 1);
	cr_assert_eq(f.wc[0].op, WC_QP_DOWN);
	cr_assert_eq(f.wc[0].qp, f.b[0]);
	cr_assert_eq(dst[1], 0);
}

/* With work queued on both, which must not be looked at again. */
Test(mock, both_ends_may_go_in_one_turn)
{
	setup(0, 1000, 2);
	send_id(f.a[0], 1);
	send_id(f.b[0], 1);
	send_id(f.b[1], 2);
	cr_assert_eq(poll_at(T0), 0);
	forget(f.a[0]);
	forget(f.b[0]);
	f.ops->pair_close(f.rail, f.a[0]);
	f.ops->pair_close(f.rail, f.b[0]);
	cr_assert_eq(poll_at(T0 + 1000), 1);
	cr_assert_eq(f.wc[0].qp, f.a[1]);
}

Test(mock, an_end_that_was_never_adopted_can_be_closed)
{
	setup(0, 0, 0);
	connect_pair(0);
	f.ops->pair_close(f.rail, f.b[0]);
	adopt(f.a[0]);
	cr_assert_eq(poll_at(T0), 1);
	cr_assert_eq(f.wc[0].op, WC_QP_DOWN);
	forget(f.a[0]);
	f.ops->pair_close(f.rail, f.a[0]);
	f.ops->close(f.rail);
}

Test(mock, a_second_connect_of_an_end_is_refused)
{
	struct qp_request req = {.is_dialler = false};
	struct qp *qp;

	setup(0, 0, 1);
	req.loop_peer = f.a[0];
	cr_assert_eq(f.ops->pair_connect(f.rail, &req, &qp), -EISCONN);
}

Test(mock, many_losses_are_reported_in_portions)
{
	uint32_t n = 0;

	setup(0, 0, QPS_MAX);
	for (int i = 0; i < QPS_MAX; i++) {
		forget(f.b[i]);
		f.ops->pair_close(f.rail, f.b[i]);
	}
	for (uint16_t got; (got = f.rail->poll(f.rail, f.wc, 7)) > 0; n += got)
		for (uint16_t i = 0; i < got; i++)
			cr_assert(f.wc[i].op == WC_QP_DOWN && f.wc[i].is_fenced);
	cr_assert_eq(n, QPS_MAX);
}

Test(mock, closing_an_end_wakes_the_rail)
{
	struct pollfd p = {.events = POLLIN};

	setup(0, 0, 1);
	poll_at(T0);
	cr_assert_eq(waker_init(&f.rail->waker), 0);
	p.fd = f.rail->waker.event_fd;
	forget(f.b[0]);
	waker_prepare(&f.rail->waker);
	cr_assert_eq(f.ops->arm(f.rail), -1);
	f.ops->pair_close(f.rail, f.b[0]);
	cr_assert_eq(poll(&p, 1, 0), 1);
	cr_assert_eq(f.ops->arm(f.rail), -EAGAIN);
}

Test(mock, arm_knows_when)
{
	struct pollfd p = {.events = POLLIN};

	setup(0, 50000000, 1);
	poll_at(T0);
	cr_assert_eq(f.ops->arm(f.rail), -1);
	f.rail->now_ns = clock_ns();
	send_id(f.b[0], 1);
	p.fd = f.ops->arm(f.rail);
	cr_assert(p.fd >= 0);
	cr_assert_eq(poll(&p, 1, 0), 0, "not before its time");
	cr_assert_eq(poll(&p, 1, 5000), 1);
	cr_assert_eq(poll_at(clock_ns()), 1);
	f.rail->now_ns += 50000000;
	send_id(f.b[0], 1);
	f.rail->now_ns += 50000000;
	cr_assert_eq(f.ops->arm(f.rail), -EAGAIN);
}

/* The time that arm would sleep to is one at which poll moves a slice: no turn in vain, none missed. */
Test(mock, the_next_time_is_exact)
{
	uint64_t bandwidth = 123456789;

	setup(bandwidth, 1000, 1);
	bind(f.a[0], 0);
	write_to(f.b[0], 0, 0, MIB);
	for (uint64_t k = 1; k < 4; k++) {
		uint64_t at = T0 + 1000 + (k * SLICE * 1000000000ull + bandwidth - 1) / bandwidth;

		poll_at(at - 1);
		cr_assert_eq(stat_get(&f.rail->counters.wire_rx_bytes), (k - 1) * SLICE);
		cr_assert(f.ops->arm(f.rail) >= 0);
		f.rail->now_ns = at;
		cr_assert_eq(f.ops->arm(f.rail), -EAGAIN);
		poll_at(at);
		cr_assert_eq(stat_get(&f.rail->counters.wire_rx_bytes), k * SLICE);
	}
}

Test(mock, attributes_and_limits)
{
	struct rail_conf conf = {.mock = {.bandwidth_bytes_per_s = UINT64_MAX}};

	setup(0, 0, 0);
	cr_assert_eq(f.rail->attr.write_max_bytes, MIB);
	cr_assert_eq(f.rail->attr.sq_depth, 256);
	cr_assert(f.rail->attr.has_windows);
	cr_assert(f.rail->attr.is_loopback);
	f.ops->close(f.rail);
	cr_assert_null(f.rail->tr);
	f.ops->close(f.rail); /* once more is harmless */
	cr_assert_eq(f.ops->open(f.rail, &conf), -EINVAL);
}
