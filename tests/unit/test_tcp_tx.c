/* SPDX-License-Identifier: BSD-3-Clause */
/* The TCP transport sends: the bytes on the wire, partial sends, completions, blocked and lost QPs, going to sleep. */
#include "../support/tcp_rig.h"

#include "mem/mem.h"

#include <errno.h>
#include <poll.h>
#include <sys/mman.h>

#define KIB 1024u

static struct wr write_wr(const struct rig *g, uint16_t i, void *addr, uint32_t len, uint64_t offset)
{
	return (struct wr){.op = WR_WRITE,
		.qp = g->qp[i],
		.addr = addr,
		.len_bytes = len,
		.offset = offset,
		.key = 0x321,
		.ctx = addr};
}

static struct wr cancel_wr(const struct rig *g, uint16_t i, struct wire_cancel *m, uint64_t request_id)
{
	m->h = (struct wire_msg){.type = WIRE_CANCEL, .len_bytes = sizeof(*m), .request_id = request_id};
	return (struct wr){.op = WR_SEND, .qp = g->qp[i], .addr = m, .len_bytes = sizeof(*m)};
}

static uint16_t post(struct rig *g, const struct wr *wr, uint16_t n)
{
	return g->rail->ops.post(g->rail, wr, n);
}

/* Everything that the peer can read right now. */
static size_t read_some(struct rig *g, uint16_t i, uint8_t *out, size_t max)
{
	ssize_t n = recv(g->peer[i], out, max, MSG_DONTWAIT);

	return n > 0 ? (size_t)n : 0;
}

static void read_all(struct rig *g, uint16_t i, uint8_t *out, size_t len)
{
	cr_assert_eq(recv(g->peer[i], out, len, MSG_WAITALL), (ssize_t)len);
}

/* Kernel buffers so small that every large send is partial. Both hold a few of loopback's 64 KiB segments, or TCP goes
 * by delayed ACKs and 200 ms probes. */
static void make_narrow(struct rig *g, uint16_t i)
{
	int tx_bytes = 64 << 10, rx_bytes = 192 << 10;

	cr_assert_eq(setsockopt(g->fd[i], SOL_SOCKET, SO_SNDBUF, &tx_bytes, sizeof(tx_bytes)), 0);
	cr_assert_eq(setsockopt(g->peer[i], SOL_SOCKET, SO_RCVBUF, &rx_bytes, sizeof(rx_bytes)), 0);
}

Test(tcp_tx, the_bytes_of_a_message_and_a_write)
{
	uint8_t got[256], want[256], payload[100];
	struct wire_cancel m;
	struct wc wc[RY_BURST_MAX];
	struct rig g;
	size_t len;

	rig_open(&g, 1, 0);
	rig_pattern(payload, sizeof(payload), 1);
	struct wr wr[2] = {write_wr(&g, 0, payload, sizeof(payload), 0x1122334455), cancel_wr(&g, 0, &m, 9)};

	cr_assert_eq(post(&g, wr, 2), 2);
	memset(&m, 0xee, sizeof(m));
	len = put_cancel(want, put_data(want, 0, 0x321, 0x1122334455, payload, sizeof(payload)), 9);
	read_all(&g, 0, got, len);
	cr_assert(memcmp(got, want, len) == 0);
	cr_assert_eq(read_some(&g, 0, got, 1), 0);
	cr_assert_eq(rig_poll(&g, wc), 1);
	cr_assert_eq(wc[0].op, WC_WRITE);
	cr_assert_eq(wc[0].ctx, payload);
	cr_assert_eq(wc[0].qp, g.qp[0]);
	cr_assert_eq(stat_get(&g.rail->counters.wire_tx_bytes), len);
	rig_close(&g);
}

Test(tcp_tx, a_write_beyond_one_frame_is_split_and_completes_once)
{
	static uint8_t payload[600 * KIB], got[600 * KIB + 3 * 24];
	struct wc wc[RY_BURST_MAX];
	struct wire_frame f;
	struct rig g;
	size_t done = 0, at = 0;

	rig_open(&g, 1, 0);
	rig_pattern(payload, sizeof(payload), 2);
	struct wr wr = write_wr(&g, 0, payload, sizeof(payload), 1000);

	cr_assert_eq(post(&g, &wr, 1), 1);
	read_all(&g, 0, got, sizeof(got));
	while (at < sizeof(got)) {
		memcpy(&f, got + at, sizeof(f));
		cr_assert_eq(wire_frame_check(&f), RY_OK);
		cr_assert_eq(f.offset, 1000 + done);
		cr_assert(memcmp(got + at + sizeof(f), payload + done, f.len_bytes) == 0);
		done += f.len_bytes;
		at += sizeof(f) + f.len_bytes;
	}
	cr_assert_eq(done, sizeof(payload));
	cr_assert_eq(rig_poll(&g, wc), 1);
	cr_assert_eq(rig_poll(&g, wc), 0);
	rig_close(&g);
}

Test(tcp_tx, an_empty_write_completes_in_its_turn_and_sends_nothing)
{
	uint8_t payload[10], got[64];
	struct wc wc[RY_BURST_MAX];
	struct rig g;

	rig_open(&g, 1, 0);
	struct wr wr[3] = {
		write_wr(&g, 0, payload, 0, 0), write_wr(&g, 0, payload + 1, 5, 0), write_wr(&g, 0, payload + 2, 0, 0)};

	cr_assert_eq(post(&g, wr, 3), 3);
	cr_assert_eq(rig_poll(&g, wc), 3);
	for (int i = 0; i < 3; i++)
		cr_assert_eq(wc[i].ctx, payload + i);
	cr_assert_eq(read_some(&g, 0, got, sizeof(got)), 24 + 5);
	cr_assert_eq(g.rail->ops.arm(g.rail) >= 0, true);
	rig_close(&g);
}

/* Writes and messages through a keyhole, in odd pieces: the stream is exact, completions never run ahead of the kernel.
 */
Test(tcp_tx, partial_sends_at_odd_places)
{
	enum { N = 12, LEN = 70001 };
	static uint8_t payload[N * LEN], want[N * (LEN + 64)], got[N * (LEN + 64)];
	struct wc wc[RY_BURST_MAX];
	struct wire_cancel m;
	size_t len = 0, have = 0, piece = 1;
	uint32_t n_done = 0;
	struct rig g;

	rig_open(&g, 1, 0);
	make_narrow(&g, 0);
	rig_pattern(payload, sizeof(payload), 3);
	for (uint32_t i = 0; i < N; i++) {
		struct wr wr[2] = {write_wr(&g, 0, payload + i * LEN, LEN, i), cancel_wr(&g, 0, &m, i)};

		cr_assert_eq(post(&g, wr, 2), 2);
		len = put_cancel(want, put_data(want, len, 0x321, i, payload + i * LEN, LEN), i);
	}
	for (int turn = 0; have < len || n_done < N; turn++) {
		have += read_some(&g, 0, got + have, RTE_MIN(piece, len - have));
		piece = piece * 7 % 9973;
		for (uint16_t k = 0, n = rig_poll(&g, wc); k < n; k++) {
			cr_assert_eq(wc[k].op, WC_WRITE);
			cr_assert_eq(wc[k].ctx, payload + n_done++ * LEN);
		}
		cr_assert_leq(n_done * (uint64_t)LEN, stat_get(&g.rail->counters.wire_tx_bytes));
		cr_assert(turn < 1000000, "%zu of %zu bytes", have, len);
	}
	cr_assert(memcmp(got, want, len) == 0);
	cr_assert_eq(stat_get(&g.rail->counters.wire_tx_bytes), len);
	rig_close(&g);
}

Test(tcp_tx, a_blocked_qp_holds_up_no_other)
{
	static uint8_t payload[256 * KIB];
	struct wire_cancel m;
	uint8_t got[64];
	struct wc wc[RY_BURST_MAX];
	uint32_t n_done = 0;
	struct rig g;

	rig_open(&g, 2, 0);
	make_narrow(&g, 0);
	struct wr big = write_wr(&g, 0, payload, sizeof(payload), 0);

	for (int i = 0; i < 20; i++)
		cr_assert_eq(post(&g, &big, 1), 1);
	for (int i = 0; i < 100; i++)
		n_done += rig_poll(&g, wc);
	cr_assert_lt(n_done, 10, "the kernel cannot hold so much");
	cr_assert_geq(g.rail->ops.arm(g.rail), 0, "a blocked QP lets the rail sleep");
	struct wr small = cancel_wr(&g, 1, &m, 1);

	cr_assert_eq(post(&g, &small, 1), 1);
	read_all(&g, 1, got, 40);
	rig_close(&g);
}

Test(tcp_tx, room_in_the_kernel_wakes_the_sleeper)
{
	static uint8_t payload[256 * KIB], sink[64 * KIB];
	struct wc wc[RY_BURST_MAX];
	struct pollfd p = {.events = POLLIN};
	size_t have = 0;
	struct rig g;

	rig_open(&g, 1, 0);
	make_narrow(&g, 0);
	struct wr wr = write_wr(&g, 0, payload, sizeof(payload), 0);

	cr_assert_eq(post(&g, &wr, 1), 1);
	while (have < 24 + sizeof(payload)) {
		cr_assert_leq(rig_poll(&g, wc), 1);
		p.fd = g.rail->ops.arm(g.rail);
		have += read_some(&g, 0, sink, sizeof(sink));
		if (p.fd >= 0 && have < 24 + sizeof(payload) && stat_get(&g.rail->counters.wire_tx_bytes) == have)
			cr_assert_eq(poll(&p, 1, 5000), 1, "%zu bytes were read and nobody was woken", have);
	}
	rig_close(&g);
}

Test(tcp_tx, a_full_queue_is_short_counted_and_takes_a_whole_write_or_none)
{
	static uint8_t payload[600 * KIB], sink[64 * KIB];
	struct wire_cancel m;
	struct wc wc[RY_BURST_MAX];
	uint32_t n = 0;
	struct rig g;

	rig_open(&g, 1, 0);
	make_narrow(&g, 0);
	struct wr wr[2] = {cancel_wr(&g, 0, &m, 1), write_wr(&g, 0, payload, sizeof(payload), 0)};

	while (post(&g, &wr[1], 1))
		n++;
	cr_assert_eq(n, g.rail->attr.sq_depth / 3);
	cr_assert_eq(post(&g, wr, 2), g.rail->attr.sq_depth % 3 ? 1 : 0, "a message may still fit, the write does not");
	for (uint32_t done = 0, turn = 0; done < n; turn++) {
		read_some(&g, 0, sink, sizeof(sink));
		done += rig_poll(&g, wc);
		cr_assert(turn < 10000000);
	}
	cr_assert_eq(post(&g, wr, 2), 2);
	rig_close(&g);
}

Test(tcp_tx, a_peer_that_left_is_reported_once_and_drops_what_is_queued)
{
	static uint8_t payload[256 * KIB];
	struct linger hard = {.l_onoff = 1};
	struct wc wc[RY_BURST_MAX];
	struct rig g;

	rig_open(&g, 1, 0);
	make_narrow(&g, 0);
	struct wr wr = write_wr(&g, 0, payload, sizeof(payload), 0);
	struct wr inv = {.op = WR_INV, .qp = g.qp[0], .ctx = &wr};

	cr_assert_eq(post(&g, &wr, 1), 1);
	setsockopt(g.peer[0], SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
	close(g.peer[0]);
	rig_wait(&g, wc, 1);
	cr_assert_eq(wc[0].op, WC_QP_DOWN);
	cr_assert_eq(wc[0].status, WC_ERR_PEER_CLOSED);
	for (int i = 0; i < 500; i++) {
		cr_assert_eq(post(&g, &wr, 1), 1);
		cr_assert_eq(post(&g, &inv, 1), 1);
		cr_assert_eq(rig_poll(&g, wc), 0);
	}
	g.peer[0] = dup(0);
	rig_close(&g);
}

/* A QP that conn took back: what was posted on it must not be reported, least of all for a new QP in its place. Some
 * rounds, because malloc gives the new one the old one's memory only after the first. */
Test(tcp_tx, nothing_of_a_forgotten_qp_is_reported)
{
	uint8_t payload[8], got[64];
	struct wc wc[RY_BURST_MAX];
	struct rig g;

	rig_open(&g, 2, 0);
	for (int round = 0; round < 4; round++) {
		struct wr wr[3] = {write_wr(&g, 0, payload, 8, 0), {.op = WR_INV, .qp = g.qp[0], .ctx = payload},
			{.op = WR_INV, .qp = g.qp[1], .ctx = got}};

		cr_assert_eq(post(&g, wr, 3), 3);
		rig_forget(&g, 0);
		close(g.peer[0]);
		rig_connect(&g, 0);
		cr_assert_eq(rig_poll(&g, wc), 1);
		cr_assert_eq(wc[0].op, WC_INV);
		cr_assert_eq(wc[0].ctx, got);
		wr[0].qp = g.qp[0];
		cr_assert_eq(post(&g, wr, 1), 1);
		read_all(&g, 0, got, 32);
		cr_assert_eq(rig_poll(&g, wc), 1);
		cr_assert_eq(wc[0].qp, g.qp[0]);
	}
	rig_close(&g);
}

/* A client takes pages away while they are being sent: zeroes go out in their place, and the QP, which carries others'
 * reads, lives on. */
Test(tcp_tx, a_source_whose_pages_vanish_does_not_cost_the_qp)
{
	static uint8_t want[256 * KIB], got[256 * KIB + 24];
	struct wc wc[RY_BURST_MAX];
	struct rig g;
	int fd = memfd_create("source", MFD_CLOEXEC);
	uint8_t *src;

	rig_open(&g, 1, 0);
	cr_assert_eq(ftruncate(fd, sizeof(want)), 0);
	src = mmap(NULL, sizeof(want), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	cr_assert_neq(src, MAP_FAILED);
	cr_assert_eq(guard_install(), 0);
	cr_assert_eq(guard_add(src, sizeof(want)), 0);
	rig_pattern(src, sizeof(want), 5);
	memcpy(want, src, 100 * KIB);
	cr_assert_eq(ftruncate(fd, 100 * KIB), 0);
	struct wr wr = write_wr(&g, 0, src, sizeof(want), 0);

	rig_poll(&g, wc); /* takes the edge of the new socket */
	cr_assert_eq(post(&g, &wr, 1), 1);
	rig_wait(&g, wc, 1);
	cr_assert_eq(wc[0].op, WC_WRITE);
	read_all(&g, 0, got, sizeof(got));
	cr_assert(memcmp(got + 24, want, sizeof(want)) == 0);
	cr_assert_gt(guard_hits(), 0);
	guard_remove(src);
	rig_close(&g);
}

Test(tcp_tx, attributes_and_fence)
{
	struct window *w;
	uint8_t dst[8];
	struct rig g;

	rig_open(&g, 1, 0);
	cr_assert_eq(g.rail->attr.write_max_bytes, WIRE_DATA_MAX_BYTES);
	cr_assert(g.rail->attr.has_windows);
	cr_assert_not(g.rail->attr.is_loopback);
	w = rig_bind(&g, 0, 3, dst, sizeof(dst));
	cr_assert_eq(g.rail->ops.fence(g.rail, w), 0);
	cr_assert_eq(g.rail->ops.mem_reg(g.rail, dst, sizeof(dst), 0), 0);
	rig_close(&g);
}

Test(tcp_tx, a_socket_that_is_none_is_refused_and_not_taken)
{
	struct qp_request req = {.fd = -1};
	struct qp *qp = NULL;
	struct rig g;
	int pipes[2];

	rig_open(&g, 0, 0);
	cr_assert_eq(g.rail->ops.pair_connect(g.rail, &req, &qp), -EBADF);
	cr_assert_eq(pipe(pipes), 0);
	req.fd = pipes[0];
	cr_assert_eq(g.rail->ops.pair_connect(g.rail, &req, &qp), -ENOTSOCK);
	cr_assert_null(qp);
	cr_assert_eq(close(pipes[0]), 0, "still the caller's");
	close(pipes[1]);
	g.rail->ops.pair_close(g.rail, NULL);
	rig_close(&g);
}
