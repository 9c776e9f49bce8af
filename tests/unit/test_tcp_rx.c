/* SPDX-License-Identifier: BSD-3-Clause */
/* The TCP transport receives: frames at every split, closed windows, hostile bytes, ends of a connection, bounds. */
#include "../support/tcp_rig.h"

#include <sys/ioctl.h>

#define MIB (1u << 20)

/* MSG 1, DATA, MSG 2, one byte of DATA, MSG 3: every kind of boundary in 400 bytes. */
static size_t mixed_stream(uint8_t *out, uint32_t key, const uint8_t *payload)
{
	size_t n = put_cancel(out, 0, 1);

	n = put_data(out, n, key, 3, payload, 150);
	n = put_cancel(out, n, 2);
	n = put_data(out, n, key, 0, payload + 150, 1);
	return put_cancel(out, n, 3);
}

static void expect_mixed(const uint8_t *dst, const uint8_t *payload)
{
	cr_assert_eq(dst[0], payload[150]);
	cr_assert(memcmp(dst + 3, payload, 150) == 0);
}

Test(tcp_rx, a_stream_byte_by_byte)
{
	uint8_t stream[512], payload[151], dst[200] = {0};
	struct wc wc[RY_BURST_MAX];
	struct rig g;
	size_t len;
	uint64_t seen = 0;

	rig_open(&g, 1, 0);
	rig_pattern(payload, sizeof(payload), 1);
	len = mixed_stream(stream, rig_bind(&g, 0, 7, dst, sizeof(dst))->key, payload);
	for (size_t i = 0; i < len; i++) {
		rig_feed(&g, 0, stream + i, 1);
		for (uint16_t k = 0, n = rig_drain(&g, i + 1, wc); k < n; k++) {
			cr_assert_eq(wc[k].op, WC_RECV);
			cr_assert_eq(((struct wire_msg *)wc[k].msg)->request_id, ++seen);
		}
		cr_assert_eq(seen, (i + 1 >= 40) + (i + 1 >= 40 + 174 + 40) + (i + 1 >= len), "after %zu bytes", i + 1);
	}
	expect_mixed(dst, payload);
	rig_close(&g);
}

Test(tcp_rx, a_stream_in_two_pieces_at_every_split)
{
	uint8_t stream[512], payload[151], dst[200];
	struct wc wc[RY_BURST_MAX];
	struct rig g;
	uint64_t total = 0;
	size_t len;

	rig_open(&g, 1, 0);
	rig_pattern(payload, sizeof(payload), 2);
	len = mixed_stream(stream, 0, payload);
	for (size_t cut = 0; cut <= len; cut++) {
		uint16_t n = 0;

		memset(dst, 0, sizeof(dst));
		mixed_stream(stream, rig_bind(&g, 0, 7, dst, sizeof(dst))->key, payload);
		rig_feed(&g, 0, stream, cut);
		n = rig_drain(&g, total + cut, wc);
		rig_feed(&g, 0, stream + cut, len - cut);
		n += rig_drain(&g, total + len, wc + n);
		cr_assert_eq(n, 3, "split at %zu: %u messages", cut, n);
		expect_mixed(dst, payload);
		total += len;
	}
	rig_close(&g);
}

/* Large frames around the stage's size, in pieces of random size, against a window that must be byte-exact. */
Test(tcp_rx, large_frames_in_random_pieces)
{
	static uint8_t stream[MIB], payload[256 << 10], dst[256 << 10];
	uint32_t sizes[] = {2023, 2024, 2025, 2047, 2048, 2049, 4096, 4097, 65536, 100000}, off = 0;
	struct wc wc[RY_BURST_MAX];
	unsigned seed = 20240611;
	size_t len = 0;
	uint16_t n_msgs = 0;
	struct rig g;

	rig_open(&g, 1, 0);
	rig_pattern(payload, sizeof(payload), 3);
	for (unsigned i = 0; i < RTE_DIM(sizes); i++) {
		uint32_t key = rig_bind(&g, 0, i, dst + off, sizes[i])->key;

		len = put_data(stream, len, key, 0, payload + off, sizes[i]);
		len = put_cancel(stream, len, i);
		off += sizes[i];
	}
	for (size_t at = 0; at < len;) {
		size_t piece = RTE_MIN((size_t)(1 + rand_r(&seed) % (rand_r(&seed) % 4 ? 300 : 30000)), len - at);

		rig_feed(&g, 0, stream + at, piece);
		at += piece;
		for (uint16_t k = 0, n = rig_drain(&g, at, wc); k < n; k++)
			cr_assert_eq(((struct wire_msg *)wc[k].msg)->request_id, n_msgs++);
	}
	cr_assert_eq(n_msgs, RTE_DIM(sizes));
	cr_assert(memcmp(dst, payload, off) == 0);
	cr_assert_eq(stat_get(&g.rail->counters.late_dropped_bytes), 0);
	rig_close(&g);
}

Test(tcp_rx, a_window_closed_in_mid_frame_takes_nothing_more)
{
	static uint8_t stream[MIB], payload[200000], dst[200000], want[200000];
	struct wc wc[RY_BURST_MAX];
	struct window *w;
	size_t len, half = 24 + 90000;
	struct rig g;

	rig_open(&g, 1, 0);
	rig_pattern(payload, sizeof(payload), 4);
	w = rig_bind(&g, 0, 1, dst, sizeof(dst));
	len = put_cancel(stream, put_data(stream, 0, w->key, 0, payload, sizeof(payload)), 5);
	rig_feed(&g, 0, stream, half);
	rig_drain(&g, half, wc);
	w->state = WINDOW_INVALIDATING;
	rig_feed(&g, 0, stream + half, len - half);
	cr_assert_eq(rig_drain(&g, len, wc), 1, "the message behind the frame");
	memcpy(want, payload, 90000);
	cr_assert(memcmp(dst, want, sizeof(dst)) == 0);
	cr_assert_eq(stat_get(&g.rail->counters.late_dropped_bytes), sizeof(payload) - 90000);
	rig_close(&g);
}

Test(tcp_rx, a_window_reopened_in_mid_frame_is_another_window)
{
	uint8_t stream[4096], payload[3000], dst[3000] = {0}, zero[3000] = {0};
	struct wc wc[RY_BURST_MAX];
	size_t len;
	struct rig g;

	rig_open(&g, 1, 0);
	rig_pattern(payload, sizeof(payload), 4);
	len = put_data(stream, 0, rig_bind(&g, 0, 1, dst, sizeof(dst))->key, 0, payload, sizeof(payload));
	rig_feed(&g, 0, stream, 24);
	rig_drain(&g, 24, wc);
	rig_bind(&g, 0, 1, dst, sizeof(dst));
	rig_feed(&g, 0, stream + 24, len - 24);
	rig_drain(&g, len, wc);
	cr_assert(memcmp(dst, zero, sizeof(dst)) == 0);
	cr_assert_eq(stat_get(&g.rail->counters.late_dropped_bytes), sizeof(payload));
	rig_close(&g);
}

/* What was received and waits behind a full burst is placed by the state of the window then, not at receipt. */
Test(tcp_rx, a_window_closed_while_its_bytes_wait_takes_nothing)
{
	uint8_t stream[512], payload[100], dst[100] = {0}, zero[100] = {0};
	struct wc wc[1];
	struct window *w;
	size_t len;
	struct rig g;

	rig_open(&g, 1, 0);
	rig_pattern(payload, sizeof(payload), 6);
	w = rig_bind(&g, 0, 9, dst, sizeof(dst));
	len = put_data(stream, put_cancel(stream, 0, 1), w->key, 0, payload, sizeof(payload));
	len = put_cancel(stream, len, 2);
	rig_feed(&g, 0, stream, len);
	while (!g.rail->ops.poll(g.rail, wc, 1))
		;
	cr_assert_eq(stat_get(&g.rail->counters.wire_rx_bytes), len, "all of it was read at once");
	w->state = WINDOW_DEAD;
	cr_assert_eq(g.rail->ops.poll(g.rail, wc, 1), 1);
	cr_assert_eq(((struct wire_msg *)wc[0].msg)->request_id, 2);
	cr_assert(memcmp(dst, zero, sizeof(dst)) == 0);
	cr_assert_eq(stat_get(&g.rail->counters.late_dropped_bytes), sizeof(payload));
	rig_close(&g);
}

Test(tcp_rx, a_large_frame_for_no_window_is_sunk_whole)
{
	static uint8_t stream[MIB], payload[WIRE_DATA_MAX_BYTES];
	struct wc wc[RY_BURST_MAX];
	size_t len;
	struct rig g;

	rig_open(&g, 1, 0);
	len = put_cancel(stream, put_data(stream, 0, 77, 0, payload, sizeof(payload)), 5);
	rig_feed(&g, 0, stream, len);
	cr_assert_eq(rig_drain(&g, len, wc), 1);
	cr_assert_eq(stat_get(&g.rail->counters.late_dropped_bytes), sizeof(payload));
	rig_close(&g);
}

/* Of no size and at no split does a byte of it land, neither in the window nor behind it. */
Test(tcp_rx, a_frame_that_leaves_its_window_does_not_land)
{
	static uint8_t stream[MIB], payload[WIRE_DATA_MAX_BYTES], memory[3 * WIRE_DATA_MAX_BYTES], zero[sizeof(memory)];
	uint32_t sizes[] = {101, 2048, 4097, 65536, WIRE_DATA_MAX_BYTES};

	memset(payload, 0xa5, sizeof(payload));
	for (unsigned i = 0; i < RTE_DIM(sizes); i++) {
		struct wc wc[RY_BURST_MAX];
		size_t cut, len;
		struct window *w;
		struct rig g;

		rig_open(&g, 1, 0);
		w = rig_bind(&g, 0, 1, memory + WIRE_DATA_MAX_BYTES, sizes[i] - 1);
		len = put_cancel(stream, put_data(stream, 0, w->key, 0, payload, sizes[i]), 5);
		cut = RTE_MIN(len, 24 + sizes[i] / 2);
		rig_feed(&g, 0, stream, cut);
		rig_drain(&g, cut, wc);
		rig_feed(&g, 0, stream + cut, len - cut);
		cr_assert_eq(rig_drain(&g, len, wc), 1, "the message behind %u bytes", sizes[i]);
		cr_assert(memcmp(memory, zero, sizeof(memory)) == 0, "%u bytes", sizes[i]);
		cr_assert_eq(stat_get(&g.rail->counters.late_dropped_bytes), sizes[i]);
		rig_close(&g);
	}
}

/* One violation: the QP goes down once, the peer's end is closed, nothing else is reported. */
static void expect_violation(const void *bytes, size_t len, const char *what)
{
	struct wc wc[RY_BURST_MAX];
	char c;
	struct rig g;

	rig_open(&g, 1, 0);
	rig_feed(&g, 0, bytes, len);
	rig_wait(&g, wc, 1);
	cr_assert_eq(wc[0].op, WC_QP_DOWN, "%s", what);
	cr_assert_eq(wc[0].status, WC_ERR_PROTOCOL, "%s", what);
	cr_assert_eq(wc[0].qp, g.qp[0]);
	cr_assert(wc[0].is_fenced);
	cr_assert_eq(stat_get(&g.rail->counters.protocol_errors), 1);
	cr_assert_leq(recv(g.peer[0], &c, 1, 0), 0, "%s: the peer must see the end", what);
	for (int i = 0; i < 20; i++)
		cr_assert_eq(rig_poll(&g, wc), 0, "%s: reported twice", what);
	cr_assert_eq(g.rail->ops.arm(g.rail) >= 0, true);
	rig_close(&g);
}

Test(tcp_rx, frames_that_the_protocol_forbids)
{
	static const struct {
		const char *what;
		struct wire_frame f;
	} bad[] = {
		{"type 0", {.type = 0, .len_bytes = 16}},
		{"unknown type", {.type = 9, .len_bytes = 16}},
		{"reserved", {.type = WIRE_FRAME_DATA, .len_bytes = 16, .reserved = {0, 1, 0}}},
		{"reserved2", {.type = WIRE_FRAME_DATA, .len_bytes = 16, .reserved2 = 1}},
		{"empty data", {.type = WIRE_FRAME_DATA, .len_bytes = 0}},
		{"data too long", {.type = WIRE_FRAME_DATA, .len_bytes = WIRE_DATA_MAX_BYTES + 1}},
		{"longest possible", {.type = WIRE_FRAME_DATA, .len_bytes = UINT32_MAX}},
		{"message too long", {.type = WIRE_FRAME_MSG, .len_bytes = WIRE_MSG_BYTES + 1}},
		{"message as long as can be", {.type = WIRE_FRAME_MSG, .len_bytes = UINT32_MAX}},
	};

	for (unsigned i = 0; i < RTE_DIM(bad); i++)
		expect_violation(&bad[i].f, sizeof(bad[i].f), bad[i].what);
}

Test(tcp_rx, messages_that_the_protocol_forbids)
{
	uint8_t stream[64];
	size_t len = put_cancel(stream, 0, 1);

	stream[24] = 200;
	expect_violation(stream, len, "unknown message");
	put_cancel(stream, 0, 1);
	stream[24 + 2] = 15;
	expect_violation(stream, len, "a message that says another length");
}

Test(tcp_rx, random_garbage_ends_the_qp)
{
	uint8_t bytes[5000];
	unsigned seed = 99;

	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)(rand_r(&seed) | 0x80);
	expect_violation(bytes, sizeof(bytes), "garbage");
}

Test(tcp_rx, the_end_in_mid_frame)
{
	uint8_t stream[64];
	struct wc wc[RY_BURST_MAX];
	struct rig g;

	rig_open(&g, 1, 0);
	rig_feed(&g, 0, stream, put_cancel(stream, 0, 1) - 1);
	shutdown(g.peer[0], SHUT_WR);
	rig_wait(&g, wc, 1);
	cr_assert_eq(wc[0].op, WC_QP_DOWN);
	cr_assert_eq(wc[0].status, WC_ERR_PEER_CLOSED);
	rig_close(&g);
}

/* Messages and the end lie in the socket together; the end brings no second edge and must not be missed. */
Test(tcp_rx, messages_before_the_end_come_first)
{
	static uint8_t stream[4096];
	struct wc wc[50];
	size_t len = 0;
	struct rig g;

	rig_open(&g, 1, 0);
	for (uint64_t i = 0; i < 45; i++)
		len = put_cancel(stream, len, i);
	rig_feed(&g, 0, stream, len);
	shutdown(g.peer[0], SHUT_WR);
	for (uint64_t i = 0; i < 45; i++) {
		rig_wait(&g, wc, 1);
		cr_assert_eq(wc[0].op, WC_RECV);
		cr_assert_eq(((struct wire_msg *)wc[0].msg)->request_id, i);
	}
	rig_wait(&g, wc, 1);
	cr_assert_eq(wc[0].op, WC_QP_DOWN);
	cr_assert_eq(wc[0].status, WC_ERR_PEER_CLOSED);
	rig_close(&g);
}

Test(tcp_rx, a_reset_is_a_peer_that_closed)
{
	struct linger hard = {.l_onoff = 1};
	struct wc wc[RY_BURST_MAX];
	struct rig g;

	rig_open(&g, 1, 0);
	setsockopt(g.peer[0], SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
	close(g.peer[0]);
	rig_wait(&g, wc, 1);
	cr_assert_eq(wc[0].op, WC_QP_DOWN);
	cr_assert_eq(wc[0].status, WC_ERR_PEER_CLOSED);
	g.peer[0] = dup(0);
	rig_close(&g);
}

Test(tcp_rx, a_burst_of_messages_stays_valid_until_the_next_poll)
{
	static uint8_t stream[8192];
	struct wc wc[RY_BURST_MAX];
	size_t len = 0;
	struct rig g;

	rig_open(&g, 1, 0);
	for (uint64_t i = 0; i < RY_BURST_MAX + 3; i++)
		len = put_cancel(stream, len, 1000 + i);
	rig_feed(&g, 0, stream, len);
	cr_assert_eq(rig_poll(&g, wc), RY_BURST_MAX);
	for (uint64_t i = 0; i < RY_BURST_MAX; i++) {
		cr_assert_eq(((struct wire_msg *)wc[i].msg)->request_id, 1000 + i);
		cr_assert_eq((uintptr_t)wc[i].msg % 8, 0);
	}
	cr_assert_eq(g.rail->ops.arm(g.rail), -EAGAIN, "three more lie in the stage");
	cr_assert_eq(rig_poll(&g, wc), 3);
	rig_close(&g);
}

/* Both QPs have more than a poll takes: one poll moves a bounded part of both. */
Test(tcp_rx, a_poll_is_bounded_and_fair)
{
	static uint8_t stream[5 * (WIRE_DATA_MAX_BYTES + 24)], payload[WIRE_DATA_MAX_BYTES],
		dst[2][WIRE_DATA_MAX_BYTES];
	struct wc wc[RY_BURST_MAX];
	struct rig g;

	rig_open(&g, 2, 0);
	memset(payload, 0xab, sizeof(payload));
	for (uint16_t q = 0; q < 2; q++) {
		uint32_t key = rig_bind(&g, q, q, dst[q], sizeof(dst[q]))->key;
		size_t len = 0;
		int queued = 0;

		for (int i = 0; i < 5; i++)
			len = put_data(stream, len, key, 0, payload, sizeof(payload));
		rig_feed(&g, q, stream, len);
		while (queued < (int)len)
			cr_assert_eq(ioctl(g.fd[q], FIONREAD, &queued), 0);
	}
	rig_poll(&g, wc);
	cr_assert_leq(stat_get(&g.rail->counters.wire_rx_bytes), 2 * (MIB + WIRE_DATA_MAX_BYTES + 4096));
	cr_assert_eq(dst[0][0], 0xab);
	cr_assert_eq(dst[1][0], 0xab);
	cr_assert_eq(g.rail->ops.arm(g.rail), -EAGAIN, "there is more");
	rig_drain(&g, 2 * sizeof(stream), wc);
	cr_assert_eq(stat_get(&g.rail->counters.late_dropped_bytes), 0);
	rig_close(&g);
}
