/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One TCP rail by hand with a raw socket at the other end of each QP, for tests that feed and look at single bytes.
 *
 * No lcore and no rings; the test is the rail's thread and gives it the time. Included by tests/unit/test_tcp_*.c only.
 */
#ifndef RY_TESTS_TCP_RIG_H
#define RY_TESTS_TCP_RIG_H

#include "hot/rail.h"

#include <criterion/criterion.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct rig {
	struct rail *rail;
	uint16_t n_qps;
	struct qp *qp[4];
	int fd[4];   /* the rail's end, owned by the QP */
	int peer[4]; /* raw, blocking */
};

static inline void rig_connect(struct rig *g, uint16_t i)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct qp_request req = {.pair_idx = 1, .qp_idx = i, .peer_credits = 24};
	socklen_t len = sizeof(at);
	int one = 1;
	int listener = socket(AF_INET, SOCK_STREAM, 0);

	cr_assert_eq(bind(listener, (struct sockaddr *)&at, len), 0);
	cr_assert_eq(getsockname(listener, (struct sockaddr *)&at, &len), 0);
	cr_assert_eq(listen(listener, 1), 0);
	g->peer[i] = socket(AF_INET, SOCK_STREAM, 0);
	cr_assert_eq(connect(g->peer[i], (struct sockaddr *)&at, len), 0);
	setsockopt(g->peer[i], IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	g->fd[i] = req.fd = accept(listener, NULL, NULL);
	cr_assert(req.fd >= 0);
	close(listener);
	cr_assert_eq(g->rail->ops.pair_connect(g->rail, &req, &g->qp[i]), 0);
	g->qp[i]->slot = g->rail->n_qps;
	g->rail->qps[g->rail->n_qps++] = g->qp[i];
	g->rail->qp_epoch++;
}

static inline void rig_open(struct rig *g, uint16_t n_qps, uint64_t rate_bytes_per_s)
{
	struct rail_conf conf = {.name = "r0", .transport = "tcp", .rate_bytes_per_s = rate_bytes_per_s};

	memset(g, 0, sizeof(*g));
	cr_assert_eq(posix_memalign((void **)&g->rail, alignof(struct rail), sizeof(*g->rail)), 0);
	memset(g->rail, 0, sizeof(*g->rail));
	g->rail->conf = conf;
	g->rail->ops = *transport_find("tcp");
	g->rail->now_ns = 1000000000;
	cr_assert_eq(g->rail->ops.open(g->rail, &g->rail->conf), 0);
	for (g->n_qps = 0; g->n_qps < n_qps; g->n_qps++)
		rig_connect(g, g->n_qps);
	cr_assert_eq(g->rail->ops.poll(g->rail, NULL, 0), 0);
}

/* What a rail does before it gives a QP back to conn. */
static inline void rig_forget(struct rig *g, uint16_t i)
{
	struct rail *r = g->rail;
	struct qp *qp = g->qp[i];

	r->qps[qp->slot] = r->qps[--r->n_qps];
	r->qps[qp->slot]->slot = qp->slot;
	r->qp_epoch++;
	cr_assert_eq(r->ops.poll(r, NULL, 0), 0);
	r->ops.pair_close(r, qp);
	g->qp[i] = NULL;
}

static inline void rig_close(struct rig *g)
{
	for (uint16_t i = 0; i < g->n_qps; i++) {
		if (g->qp[i])
			rig_forget(g, i);
		close(g->peer[i]);
	}
	g->rail->ops.close(g->rail);
	free(g->rail);
}

static inline uint16_t rig_poll(struct rig *g, struct wc *wc)
{
	return g->rail->ops.poll(g->rail, wc, RY_BURST_MAX);
}

/* Polls until `n` completions came in all, into wc; fails the test when they do not. Messages are void after the next
 * poll. */
static inline void rig_wait(struct rig *g, struct wc *wc, uint16_t n)
{
	uint16_t got = 0;

	for (int i = 0; got < n; i++) {
		got += g->rail->ops.poll(g->rail, wc + got, n - got);
		cr_assert(i < 1000000, "%u completions instead of %u", got, n);
	}
}

/* Raw bytes to the rail. */
static inline void rig_feed(struct rig *g, uint16_t i, const void *bytes, size_t len)
{
	cr_assert_eq(send(g->peer[i], bytes, len, MSG_NOSIGNAL), (ssize_t)len);
}

/* Polls until the rail has received `total` bytes; what it reports meanwhile goes to wc. Returns how many. */
static inline uint16_t rig_drain(struct rig *g, uint64_t total, struct wc *wc)
{
	uint16_t n = 0;

	for (int i = 0; stat_get(&g->rail->counters.wire_rx_bytes) < total; i++) {
		n += rig_poll(g, wc + n);
		cr_assert(i < 1000000, "%lu bytes instead of %lu", stat_get(&g->rail->counters.wire_rx_bytes), total);
	}
	cr_assert_eq(stat_get(&g->rail->counters.wire_rx_bytes), total);
	return n;
}

static inline struct window *rig_bind(struct rig *g, uint16_t i, uint32_t slot, void *addr, uint64_t len)
{
	struct window *w = &g->rail->windows[slot];

	*w = (struct window){.addr = addr,
		.len_bytes = len,
		.qp = g->qp[i],
		.key = slot | ++g->rail->window_salt << WINDOW_SLOT_BITS,
		.state = WINDOW_BOUND};
	return w;
}

static inline void rig_pattern(void *buf, size_t len, uint32_t seed)
{
	for (size_t i = 0; i < len; i++)
		((uint8_t *)buf)[i] = (uint8_t)((i * 2654435761u + seed * 40503u) >> 11);
}

/* ---- Building a stream: each returns the new length ---- */
static inline size_t put_cancel(uint8_t *out, size_t at, uint64_t request_id)
{
	struct wire_frame f = {.type = WIRE_FRAME_MSG, .len_bytes = sizeof(struct wire_cancel)};
	struct wire_cancel m = {.h = {.type = WIRE_CANCEL, .len_bytes = sizeof(m), .request_id = request_id}};

	memcpy(out + at, &f, sizeof(f));
	memcpy(out + at + sizeof(f), &m, sizeof(m));
	return at + sizeof(f) + sizeof(m);
}

static inline size_t put_data(uint8_t *out, size_t at, uint32_t key, uint64_t offset, const void *bytes, uint32_t len)
{
	struct wire_frame f = {.type = WIRE_FRAME_DATA, .len_bytes = len, .key = key, .offset = offset};

	memcpy(out + at, &f, sizeof(f));
	memcpy(out + at + sizeof(f), bytes, len);
	return at + sizeof(f) + len;
}

#endif
