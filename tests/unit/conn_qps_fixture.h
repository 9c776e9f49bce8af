/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rails whose QPs are joined by addresses, for the nodes of conn_fixture.h: a fake that checks the order in which conn
 * calls it, QPs that want a fence, and a device that has something to say.
 */
#ifndef RY_CONN_QPS_FIXTURE_H
#define RY_CONN_QPS_FIXTURE_H

#include "conn_raw.h"

#include <poll.h>
#include <sys/eventfd.h>

#include "daemon/conn_priv.h"

#define MORE_MAX 64u

/* What the fake knows of a QP beyond conn_fixture.h. */
struct more {
	const struct rail *rail;
	struct qp *qp;
	uint32_t qp_num;
	bool is_told; /* qp_remote was called with */
	struct qp_address peer;
	bool want_fence;
	bool is_fenced;
};

struct device {
	const struct rail *rail;
	int fd;
	struct rail_event events[8];
	unsigned n;
};

static struct more more[MORE_MAX];
static uint32_t n_more;
static struct device devices[4];
static int remote_rc;                           /* of qp_remote */
static void (*before_fence)(const struct qp *); /* a test looks around at that moment */
static bool is_fence_slow;                      /* the lcore says nothing after it yet */
static int fence_errno;                         /* the device does not end the QP */

static inline struct more *more_of(const struct rail *rail, const struct qp *qp)
{
	for (uint32_t i = 0; i < n_more; i++) {
		if (more[i].qp == qp && more[i].rail == rail)
			return &more[i];
	}
	return NULL;
}

static inline int joined_connect(struct rail *rail, const struct qp_request *req, struct qp **out)
{
	int rc = fake_connect(rail, req, out);

	cr_assert(req->fd == -1, "it has no socket of its own");
	if (rc)
		return rc;
	cr_assert_lt(n_more, MORE_MAX);
	more[n_more] = (struct more){.rail = rail, .qp = *out, .qp_num = 100 + n_more};
	n_more++;
	return 0;
}

static inline void joined_close(struct rail *rail, struct qp *qp)
{
	more_of(rail, qp)->qp = NULL;
	fake_close(rail, qp);
}

static inline void joined_local(const struct rail *rail, const struct qp *qp, struct qp_address *out)
{
	uint32_t num = more_of(rail, qp)->qp_num;

	*out = (struct qp_address){
		.qp_num = num, .psn = num * 7, .mtu_bytes = 1024, .rd_atomic = 3, .has_grants = true};
	memset(out->gid, (int)num / 100, sizeof(out->gid));
}

static inline int joined_remote(struct rail *rail, struct qp *qp, const struct qp_address *peer)
{
	struct more *m = more_of(rail, qp);

	cr_assert(!m->is_told && qp->state == QP_NEW, "once, and before it is adopted");
	for (unsigned i = 0; i < rail->n_cmds; i++)
		cr_assert_neq(rail->cmds[i], qp, "the rail has it already");
	if (remote_rc)
		return remote_rc;
	m->is_told = true;
	m->peer = *peer;
	return 0;
}

static inline bool joined_wants_fence(const struct rail *rail, const struct qp *qp)
{
	const struct more *m = more_of(rail, qp);

	return m->want_fence && !m->is_fenced;
}

static inline int joined_fence(struct rail *rail, struct qp *qp)
{
	struct more *m = more_of(rail, qp);

	cr_assert(m->want_fence && !m->is_fenced, "once");
	if (before_fence)
		before_fence(qp);
	m->is_fenced = true;
	if (fence_errno)
		return -fence_errno;
	if (!is_fence_slow && qp->state == QP_ADOPTED)
		qp->state = QP_FAILED;
	return 0;
}

static inline struct device *device_of(const struct rail *rail)
{
	for (unsigned i = 0; i < 4; i++) {
		if (devices[i].rail == rail)
			return &devices[i];
	}
	return NULL;
}

static inline int joined_event_fds(const struct rail *rail, int fds[2])
{
	struct device *d = device_of(rail);

	if (!d)
		return 0;
	fds[0] = d->fd;
	return 1;
}

static inline bool joined_event_next(struct rail *rail, struct rail_event *out)
{
	struct device *d = device_of(rail);
	uint64_t count;

	if (!d->n)
		return read(d->fd, &count, sizeof(count)) == sizeof(count) && d->n;
	*out = d->events[0];
	memmove(d->events, d->events + 1, --d->n * sizeof(d->events[0]));
	return true;
}

static inline void device_says(const struct rail *rail, enum rail_event_kind kind, struct qp *qp)
{
	struct device *d = device_of(rail);
	uint64_t one = 1;

	d->events[d->n++] = (struct rail_event){.kind = (uint8_t)kind, .qp = qp, .text = "the device spoke"};
	cr_assert_eq(write(d->fd, &one, sizeof(one)), (ssize_t)sizeof(one));
}

/* After node_init, before node_start. */
static inline void node_joins(struct node *n, uint32_t qps_per_pair, unsigned first_device)
{
	for (unsigned i = 0; i < 2; i++) {
		snprintf(n->conf.rails[i].transport, sizeof(n->conf.rails[i].transport), "verbs");
		n->conf.rails[i].verbs.qps_per_pair = qps_per_pair;
		n->rails[i].attr.has_addresses = true;
		n->rails[i].ops = (struct transport_ops){.pair_connect = joined_connect,
			.pair_close = joined_close,
			.qp_local = joined_local,
			.qp_remote = joined_remote,
			.qp_wants_fence = joined_wants_fence,
			.qp_fence = joined_fence,
			.event_fds = joined_event_fds,
			.event_next = joined_event_next};
		devices[first_device + i] =
			(struct device){.rail = &n->rails[i], .fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
	}
}

/* a dials b. */
static inline void join(struct node *a, uint32_t n_a, struct node *b, uint32_t n_b)
{
	uint16_t port = free_port();

	node_init(a, "alpha", "verbs", 0);
	node_init(b, "beta", "verbs", port);
	node_joins(a, n_a, 0);
	node_joins(b, n_b, 2);
	node_dials(a, port);
	node_start(b);
	node_start(a);
}

/* b is three stores of a: the first two by rail r0, the last by r1, all up. */
static inline void join_three(struct node *a, struct node *b)
{
	uint16_t port = free_port();

	node_init(a, "alpha", "verbs", 0);
	node_init(b, "beta", "verbs", port);
	a->conf.n_rails = 2;
	a->conf.rails[1] = a->conf.rails[0];
	snprintf(a->conf.rails[1].name, RY_NAME_MAX_BYTES, "r1");
	node_joins(a, 2, 0);
	node_joins(b, 2, 2);
	for (int i = 0; i < 3; i++) {
		node_dials(a, port);
		snprintf(a->conf.stores[i].endpoints[0].rail, RY_NAME_MAX_BYTES, i < 2 ? "r0" : "r1");
	}
	node_start(b);
	node_start(a);
	until(a, b, a->n_up == 3 && b->n_up == 3);
}

/* ---- a peer, byte by byte ---- */

static inline struct wire_qps raw_qps(uint32_t n)
{
	struct wire_qps m;

	wire_enc_fixed(&m, WIRE_META_QPS, sizeof(m), 0, RY_OK);
	m.mtu_bytes = 4096;
	m.rd_atomic = 1;
	m.n_qps = n;
	for (uint32_t i = 0; i < n; i++) {
		m.qps[i].qp_num = 7 + i;
		m.qps[i].psn = 9;
	}
	return m;
}

/* Dials n, a verbs node; both HELLOs and its QPS are over. */
static inline int raw_greeted(struct node *n, uint16_t n_qps)
{
	struct wire_hello hello = raw_hello(WIRE_CONN_BOOTSTRAP), answer;
	struct wire_qps qps;
	int fd = raw_connect(n->conf.rails[0].port);

	hello.transport = WIRE_TRANSPORT_VERBS;
	hello.n_qps = n_qps;
	raw_send(fd, &hello, sizeof(hello));
	cr_assert(raw_read(n, fd, &answer, sizeof(answer)) && answer.status == RY_OK && answer.n_qps == n_qps);
	cr_assert(raw_read(n, fd, &qps, sizeof(qps)));
	cr_assert(qps.h.type == WIRE_META_QPS && qps.n_qps == n_qps && qps.flags == WIRE_QPS_GRANTS);
	cr_assert_eq(wire_meta_check(&qps, sizeof(qps)), RY_OK);
	return fd;
}

/* The same, and up. */
static inline int raw_joined(struct node *n, uint16_t n_qps)
{
	struct wire_qps m = raw_qps(n_qps);
	struct wire_meta ready;
	int fd = raw_greeted(n, n_qps), n_up = n->n_up;

	raw_send(fd, &m, sizeof(m));
	cr_assert(raw_read(n, fd, &ready, sizeof(ready)) && ready.type == WIRE_META_READY);
	raw_meta(fd, WIRE_META_READY, sizeof(ready), 0, RY_OK);
	until(n, NULL, n->n_up == n_up + 1);
	return fd;
}

static inline void raw_hears_bye(struct node *n, int fd, uint32_t reason)
{
	struct wire_bye bye;

	cr_assert(raw_read(n, fd, &bye, sizeof(bye)), "closed without a word");
	cr_assert(bye.h.type == WIRE_META_BYE && bye.reason == reason, "type %u, reason %u", bye.h.type, bye.reason);
}

#endif
