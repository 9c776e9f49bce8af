/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two nodes' conn threads in one process, run in turn over loopback TCP with an injected clock.
 *
 * The rails are fakes defined here: a QP is a descriptor and a state word, adoption and release happen in node_turn and
 * can be held back. The control lcore is played by the test: node_turn takes what conn emits, counts it, and answers as
 * control would unless told not to. conn_raw.h plays a peer byte by byte.
 */
#ifndef RY_CONN_FIXTURE_H
#define RY_CONN_FIXTURE_H

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/conn.h"
#include "daemon/log.h"
#include "daemon/work.h"
#include "wire/wire.h"

#define SEC 1000000000ull
#define PATIENCE_NS (5 * SEC) /* of real time, until a test that waits for something fails */
#define RX_KEEP 512
#define CMDS_MAX 64

static uint64_t now_ns = 1000 * SEC;

/* ---- fake rail ---- */

struct qp {
	int fd;
	uint32_t state;
	uint8_t fail_status;
	uint32_t n_odd;
	struct qp_request req;
	struct qp *loop_peer;
};

struct rail {
	struct transport_ops ops;
	struct transport_attr attr;
	struct qp *cmds[CMDS_MAX];
	bool is_release[CMDS_MAX];
	unsigned n_cmds;
	bool is_held;        /* commands wait */
	bool is_full;        /* the adopt ring refuses */
	bool is_connect_bad; /* pair_connect fails */
	bool is_stopped;     /* the lcore has ended: conn may close whatever there is */
	int n_qps;
	int n_released;
	int n_link_reads;
	bool is_detach_asked; /* the lcore is to let go of the device, and */
	bool is_detached;     /* has */
	bool is_attach_asked; /* the lcore is to take up the new one */
};

static int fake_connect(struct rail *rail, const struct qp_request *req, struct qp **out)
{
	struct qp *qp;

	if (rail->is_connect_bad)
		return -ENOMEM;
	qp = calloc(1, sizeof(*qp));
	qp->fd = req->fd;
	qp->req = *req;
	qp->loop_peer = req->loop_peer;
	if (req->loop_peer)
		req->loop_peer->loop_peer = qp;
	rail->n_qps++;
	*out = qp;
	return 0;
}

static inline bool is_closable(const struct rail *rail, const struct qp *qp)
{
	return rail->is_stopped || qp->state == QP_NEW || qp->state == QP_RELEASED;
}

static void fake_close(struct rail *rail, struct qp *qp)
{
	cr_assert(is_closable(rail, qp), "closed a QP in state %u", qp->state);
	/* The rail may look at a loop-back QP's other end as long as it knows this one. */
	if (qp->loop_peer) {
		cr_assert(is_closable(rail, qp->loop_peer));
		qp->loop_peer->loop_peer = NULL;
	}
	if (qp->fd >= 0)
		close(qp->fd);
	rail->n_qps--;
	free(qp);
}

const struct transport_ops *rail_ops(const struct rail *rail)
{
	return &rail->ops;
}

const struct transport_attr *rail_attr(const struct rail *rail)
{
	return &rail->attr;
}

const char *rail_why_no_qp(const struct rail *rail)
{
	return rail->is_connect_bad ? "no room in its completion queue" : "";
}

void rail_read_link(struct rail *rail)
{
	rail->n_link_reads++;
}

/* One test runs conn as a thread beside the rail. */
static pthread_mutex_t fake_lock = PTHREAD_MUTEX_INITIALIZER;

static inline int fake_command(struct rail *rail, struct qp *qp, bool is_release)
{
	int rc = -EAGAIN;

	pthread_mutex_lock(&fake_lock);
	if (!rail->is_full && rail->n_cmds < CMDS_MAX) {
		rail->is_release[rail->n_cmds] = is_release;
		rail->cmds[rail->n_cmds++] = qp;
		rc = 0;
	}
	pthread_mutex_unlock(&fake_lock);
	return rc;
}

int rail_adopt(struct rail *rail, struct qp *qp)
{
	return fake_command(rail, qp, false);
}

int rail_release(struct rail *rail, struct qp *qp)
{
	return fake_command(rail, qp, true);
}

int rail_detach(struct rail *rail)
{
	rail->is_detach_asked = true;
	return rail->is_full ? -EAGAIN : 0;
}

int rail_attach(struct rail *rail)
{
	cr_assert(rail->is_detached, "it has not let go of the old one");
	rail->is_attach_asked |= !rail->is_full;
	return rail->is_full ? -EAGAIN : 0;
}

bool rail_is_detached(const struct rail *rail)
{
	return rail->is_detached;
}

/* What happens just before conn looks at a QP's state, once. */
static void (*before_qp_state)(const struct qp *qp);

enum qp_state qp_state(const struct qp *qp)
{
	void (*hook)(const struct qp *) = before_qp_state;

	before_qp_state = NULL;
	if (hook)
		hook(qp);
	return (enum qp_state)__atomic_load_n(&qp->state, __ATOMIC_ACQUIRE);
}

uint8_t qp_fail_status(const struct qp *qp)
{
	return qp->fail_status;
}

uint32_t qp_n_odd(const struct qp *qp)
{
	return qp->n_odd;
}

static inline void rail_turn(struct rail *rail)
{
	if (rail->is_held)
		return;
	pthread_mutex_lock(&fake_lock);
	for (unsigned i = 0; i < rail->n_cmds; i++) {
		__atomic_store_n(
			&rail->cmds[i]->state, rail->is_release[i] ? QP_RELEASED : QP_ADOPTED, __ATOMIC_RELEASE);
		rail->n_released += rail->is_release[i];
	}
	rail->n_cmds = 0;
	pthread_mutex_unlock(&fake_lock);
}

/* ---- a node ---- */

struct node {
	struct config conf;
	struct rail rails[2];
	struct rail *rail_ptrs[2];
	struct rte_ring *to_control;
	struct rte_ring *from_control;
	struct waker control_waker;
	struct waker conn_waker;
	struct rte_ring *to_work;
	struct rte_ring *from_work;
	struct waker work_waker;
	struct conn_counters counters;
	struct conn *conn;
	/* the test as control */
	bool is_deaf; /* takes nothing from conn */
	bool is_slow_to_quiesce;
	bool is_keeping_bufs;        /* does not give receive buffers back */
	struct pair_event *down;     /* the last one not quiesced yet, and */
	struct pair_event *down2;    /* the one before */
	const struct pair *pair;     /* of the last PAIR_UP */
	const struct pair *accepted; /* of the last PAIR_UP that was not dialled */
	const struct pair *by_store[4];
	const struct dial_wants *wants; /* NULL: everything */
	uint32_t last_epoch;
	int n_up, n_down, n_rx, n_sent, n_unsent, n_dial_done, n_dial_failed;
	uint8_t down_reason;
	uint8_t down_evidence;
	unsigned n_faults; /* MSG_DIAL_FAULT, and the last one */
	struct dial_fault fault;
	bool is_keeping_fault;
	struct dial_fault *kept_fault;
	uint32_t down_status;
	char down_cause[RY_CAUSE_MAX_BYTES];
	struct meta_buf *rx[RX_KEEP];
	uint64_t rx_ids[RX_KEEP];
	uint16_t rx_types[RX_KEEP];
	uint16_t rx_pairs[RX_KEEP];
};

static inline uint16_t free_port(void)
{
	struct sockaddr_in sa = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(sa);
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	cr_assert(bind(fd, (struct sockaddr *)&sa, sizeof(sa)) == 0);
	cr_assert(getsockname(fd, (struct sockaddr *)&sa, &len) == 0);
	close(fd);
	return ntohs(sa.sin_port);
}

static inline void node_init(struct node *n, const char *name, const char *transport, uint16_t port)
{
	memset(n, 0, sizeof(*n));
	snprintf(n->conf.node_name, sizeof(n->conf.node_name), "%s", name);
	n->conf.n_rails = 1;
	n->conf.connect_timeout_ns = 2 * SEC;
	n->conf.hello_timeout_ns = 2 * SEC;
	n->conf.reconnect_ns = SEC;
	n->conf.keepalive_ns = 5 * SEC;
	n->conf.keepalive_dead_ns = 10 * SEC;
	snprintf(n->conf.rails[0].name, RY_NAME_MAX_BYTES, "r0");
	snprintf(n->conf.rails[0].transport, sizeof(n->conf.rails[0].transport), "%s", transport);
	snprintf(n->conf.rails[0].address, sizeof(n->conf.rails[0].address), "127.0.0.1");
	n->conf.rails[0].port = port;
	n->conf.rails[0].sockets_per_pair = 2;
	for (int i = 0; i < 2; i++) {
		n->rails[i].ops = (struct transport_ops){.pair_connect = fake_connect,
			.pair_close = fake_close,
			.qp_wants_fence = transport_wants_no_fence,
			.event_fds = transport_no_event_fds};
		n->rails[i].attr.is_loopback = !strcmp(transport, "mock");
		n->rail_ptrs[i] = &n->rails[i];
	}
	log_set_level(LOG_LEVEL_ERROR);
}

static inline void node_dials(struct node *n, uint16_t port)
{
	struct config_store *s = &n->conf.stores[n->conf.n_stores++];

	snprintf(s->name, sizeof(s->name), "store%u", n->conf.n_stores - 1);
	s->n_endpoints = 1;
	snprintf(s->endpoints[0].address, sizeof(s->endpoints[0].address), "%s", n->conf.rails[0].address);
	s->endpoints[0].port = port;
}

static inline int node_create(struct node *n, unsigned ring_entries, bool want_virtual_time, char *message)
{
	struct conn_deps deps = {
		.config = &n->conf,
		.node_id = (uint64_t)n->conf.node_name[0],
		.incarnation = ++now_ns,
		.rails = n->rail_ptrs,
		.work_waker = &n->work_waker,
		.control_waker = &n->control_waker,
		.counters = &n->counters,
		.waker = &n->conn_waker,
		.wants = n->wants,
		.want_virtual_time = want_virtual_time,
	};

	for (int i = 0; i < 2; i++)
		n->rails[i].is_stopped = false;
	deps.to_control = n->to_control = spsc_create("to_control", ring_entries);
	deps.from_control = n->from_control = spsc_create("from_control", 1024);
	waker_init(&n->control_waker);
	deps.to_work = n->to_work = spsc_create("to_work", DEVICE_JOBS);
	deps.from_work = n->from_work = spsc_create("from_work", DEVICE_JOBS);
	waker_init(&n->work_waker);
	waker_init(&n->conn_waker);
	return conn_create(&deps, message, 256, &n->conn);
}

static inline void node_start(struct node *n)
{
	char message[256] = "";

	cr_assert(node_create(n, 4096, false, message) == 0, "%s", message);
}

/* As if the process ended. */
static inline void node_stop(struct node *n)
{
	for (int i = 0; i < 2; i++) {
		n->rails[i].is_stopped = true;
		n->rails[i].n_cmds = 0;
	}
	conn_destroy(n->conn);
	cr_assert(n->rails[0].n_qps + n->rails[1].n_qps == 0, "QPs leaked");
	spsc_free(n->to_control);
	spsc_free(n->from_control);
	spsc_free(n->to_work);
	spsc_free(n->from_work);
	waker_fini(&n->work_waker);
	waker_fini(&n->control_waker);
	waker_fini(&n->conn_waker);
	n->pair = n->accepted = NULL;
	n->conn = NULL;
}

/* ---- the test as control ---- */

static inline void control_send(struct node *n, struct msg *m, enum msg_kind kind)
{
	m->kind = (uint16_t)kind;
	cr_assert(spsc_push(n->from_control, m));
}

/* On the accepted pair; enough of them fill the socket. */
static inline void control_send_large(struct node *n, struct meta_buf *m)
{
	static const uint64_t sums[WIRE_CHECKSUMS_PER_PAGE];
	struct wire_put fixed = {.stripe_bytes = RY_STRIPE_MIN_BYTES, .source_handle = 1, .key_bytes = 1};

	fixed.n_checksums = WIRE_CHECKSUMS_PER_PAGE;
	fixed.part_bytes = (uint64_t)fixed.n_checksums * fixed.stripe_bytes;
	m->len_bytes = wire_enc_put((void *)m->data, &fixed, "k", sums);
	m->pair_idx = n->accepted->idx;
	m->pair_epoch = n->accepted->epoch;
	control_send(n, &m->m, MSG_META_TX);
}

static inline void control_quiesce(struct node *n)
{
	control_send(n, &n->down->m, MSG_PAIR_QUIESCED);
	n->down = n->down2;
	n->down2 = NULL;
}

static inline void control_down(struct node *n, struct pair_event *e)
{
	n->n_down++;
	n->down2 = n->down;
	n->down = e;
	n->down_reason = e->reason;
	n->down_evidence = e->evidence;
	n->down_status = e->status;
	snprintf(n->down_cause, sizeof(n->down_cause), "%s", e->cause);
	if (e->pair->is_dialler)
		n->by_store[e->pair->store_idx] = NULL;
	if (e->pair == n->pair)
		n->pair = NULL;
	if (e->pair == n->accepted)
		n->accepted = NULL;
	if (!n->is_slow_to_quiesce)
		control_quiesce(n);
}

static inline void control_rx(struct node *n, struct meta_buf *b)
{
	const struct wire_meta *h = (const void *)b->data;
	int at = n->n_rx++ % RX_KEEP;

	cr_assert(wire_meta_check(b->data, b->len_bytes) == RY_OK);
	n->rx_ids[at] = h->request_id;
	n->rx_types[at] = h->type;
	n->rx_pairs[at] = b->pair_idx;
	n->rx[at] = b;
	if (!n->is_keeping_bufs)
		control_send(n, &b->m, MSG_META_DROP);
}

static inline void control_take(struct node *n, void *m)
{
	const struct pair_event *e = m;

	switch (((struct msg *)m)->kind) {
	case MSG_PAIR_UP:
		n->n_up++;
		n->last_epoch = e->pair->epoch;
		if (e->pair->is_dialler)
			n->pair = n->by_store[e->pair->store_idx] = e->pair;
		else
			n->accepted = e->pair;
		break;
	case MSG_PAIR_DOWN:
		control_down(n, m);
		break;
	case MSG_DIAL_FAULT:
		n->n_faults++;
		n->fault = *(struct dial_fault *)m;
		n->kept_fault = m;
		if (!n->is_keeping_fault)
			control_send(n, m, MSG_DIAL_FAULT_SEEN);
		break;
	case MSG_META_RX:
		control_rx(n, m);
		break;
	case MSG_META_SENT:
		n->n_sent++;
		break;
	case MSG_META_UNSENT:
		n->n_unsent++;
		break;
	case MSG_DIAL_DONE:
		n->n_dial_done++;
		break;
	case MSG_DIAL_FAILED:
		n->n_dial_failed++;
		break;
	default:
		cr_assert_fail("kind %u", ((struct msg *)m)->kind);
	}
}

static inline void node_turn(struct node *n)
{
	void *m;

	if (!n || !n->conn)
		return;
	conn_poll(n->conn, now_ns);
	for (int i = 0; i < 2; i++)
		rail_turn(&n->rails[i]);
	while (!n->is_deaf && (m = spsc_pop(n->to_control)))
		control_take(n, m);
}

/* Even loopback delivers late when the CPUs are busy: each turn lets others run. */
static inline void turns(struct node *a, struct node *b, int count)
{
	for (int i = 0; i < count; i++) {
		node_turn(a);
		node_turn(b);
		sched_yield();
	}
}

/* Runs both until the condition holds; the injected clock stands still. */
#define until(a, b, condition)                                                                                         \
	do {                                                                                                           \
		uint64_t end_ = clock_ns() + PATIENCE_NS;                                                              \
		while (!(condition) && clock_ns() < end_)                                                              \
			turns(a, b, 1);                                                                                \
		cr_assert(condition, "never came true: " #condition);                                                  \
	} while (0)

/* a dials b; both are up. */
static inline void bring_up(struct node *a, struct node *b)
{
	uint16_t port = free_port();

	node_init(a, "alpha", "tcp", 0);
	node_init(b, "beta", "tcp", port);
	node_dials(a, port);
	node_start(b);
	node_start(a);
	until(a, b, a->n_up == 1 && b->n_up == 1);
}

/* b is three stores of a: the first two by rail r0, the last by r1, all up. */
static inline void bring_up_three(struct node *a, struct node *b)
{
	uint16_t port = free_port();

	node_init(a, "alpha", "tcp", 0);
	node_init(b, "beta", "tcp", port);
	a->conf.n_rails = 2;
	a->conf.rails[1] = a->conf.rails[0];
	snprintf(a->conf.rails[1].name, RY_NAME_MAX_BYTES, "r1");
	for (int i = 0; i < 3; i++) {
		node_dials(a, port);
		snprintf(a->conf.stores[i].endpoints[0].rail, RY_NAME_MAX_BYTES, i < 2 ? "r0" : "r1");
	}
	node_start(b);
	node_start(a);
	until(a, b, a->n_up == 3 && b->n_up == 3);
}

static inline void control_kill(struct node *n, struct pair_kill *k, const struct pair *pair, uint8_t reason)
{
	*k = (struct pair_kill){.pair_idx = pair->idx, .pair_epoch = pair->epoch, .reason = reason};
	control_send(n, &k->m, MSG_PAIR_KILL);
}

static inline struct conn_pair_info info_of(const struct node *n, uint32_t row)
{
	struct conn_pair_info rows[8];
	uint32_t count = conn_info(n->conn, rows, 8);

	cr_assert(row < count, "row %u of %u", row, count);
	return rows[row];
}

static inline int count_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	int n = 0;

	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

#endif
