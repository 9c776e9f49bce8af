/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Both ends of the bootstrap socket: a peer that says anything at any state of a connection, to a node that accepts or
 * dials it. Whatever it says, control gets checked messages only, and when the peer has gone nothing of it is left.
 *
 * conn is the daemon's; rails, control and the network are played here. The input is a state to begin in, then steps.
 */
#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../support/hello.h"
#include "daemon/conn_priv.h"
#include "daemon/log.h"
#include "fuzz.h"

#define SECOND 1000000000ull
#define PEERS_MAX 16

enum begin {
	BEGIN_ACCEPT = 0, /* nothing said yet */
	BEGIN_GREETED = 1,
	BEGIN_UP = 2,
	BEGIN_DIAL = 3, /* our HELLO waits for its answer */
	BEGIN_ANSWERED = 4,
	BEGINS = 5,
};

enum step {
	STEP_SAY = 0,    /* on the bootstrap socket */
	STEP_SAY_ON = 1, /* on any other */
	STEP_TIME = 2,
	STEP_NEW = 3,  /* one more connection */
	STEP_DEAF = 4, /* reads nothing any more */
	STEP_SHUT = 5,
	STEPS = 6,
};

struct qp {
	int fd;
	uint32_t state;
};

struct rail {
	struct transport_ops ops;
	struct transport_attr attr;
	int n_qps;
};

static void set_up(void);
static void begin(enum begin how);
static void step(struct fuzz_in *in);
static void turns(unsigned n);
static void control_take(void *m);
static int new_peer(void);
static void say(unsigned peer, const void *bytes, size_t n);
static void say_meta(unsigned peer, uint16_t type);
static void end(void);

int __wrap_sock_dial(const struct rail_conf *rail, const struct address *to);
void __wrap_netdev_open(struct conn *c);

static struct config config;
static struct rail rail;
static struct rail *rails[] = {&rail};
static struct waker control_waker, conn_waker;
static struct conn_counters counters;
static struct rte_ring *to_control, *from_control;
static struct conn *conns[2]; /* one that accepts, one that dials; empty between two inputs */
static struct conn *c;
static uint64_t now_ns = 1000 * SECOND;
static int peers[PEERS_MAX]; /* the other ends; the first is the bootstrap socket */
static unsigned n_peers;
static bool is_deaf;
static bool is_over; /* nobody is reachable any more */
static uint64_t token;
static unsigned n_received;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct fuzz_in in = {data, bytes};
	enum begin how = (enum begin)(fuzz_number(&in, 1) % BEGINS);

	if (!to_control)
		set_up();
	config.n_stores = how >= BEGIN_DIAL;
	n_peers = 0;
	n_received = 0;
	is_deaf = is_over = false;
	now_ns += 61 * SECOND;
	begin(how);
	while (in.left)
		step(&in);
	end();
	return 0;
}

/* ---- the rail: a QP is adopted and released at once ---- */

static int fake_connect(struct rail *r, const struct qp_request *req, struct qp **out)
{
	struct qp *qp = calloc(1, sizeof(*qp));

	FUZZ_CHECK(req->fd >= 0 && req->qp_idx < PAIR_QPS_MAX && req->peer_credits && req->peer_credits <= RAIL_CREDITS,
		"QP %u", req->qp_idx);
	qp->fd = req->fd;
	r->n_qps++;
	*out = qp;
	return 0;
}

static void fake_close(struct rail *r, struct qp *qp)
{
	FUZZ_CHECK(qp->state == QP_NEW || qp->state == QP_RELEASED || is_over, "closed in state %u", qp->state);
	close(qp->fd);
	free(qp);
	r->n_qps--;
}

const struct transport_ops *rail_ops(const struct rail *r)
{
	return &r->ops;
}

const struct transport_attr *rail_attr(const struct rail *r)
{
	return &r->attr;
}

const char *rail_why_no_qp(const struct rail *r)
{
	return "";
}

void rail_read_link(struct rail *r)
{
}

int rail_adopt(struct rail *r, struct qp *qp)
{
	qp->state = QP_ADOPTED;
	return 0;
}

int rail_release(struct rail *r, struct qp *qp)
{
	qp->state = QP_RELEASED;
	return 0;
}

int rail_detach(struct rail *r)
{
	return 0;
}

int rail_attach(struct rail *r)
{
	return 0;
}

bool rail_is_detached(const struct rail *r)
{
	return false;
}

enum qp_state qp_state(const struct qp *qp)
{
	return (enum qp_state)qp->state;
}

uint8_t qp_fail_status(const struct qp *qp)
{
	return 0;
}

uint32_t qp_n_odd(const struct qp *qp)
{
	return 0;
}

/* ---- the network ---- */

/* A socket pair in place of a connection; with none left a connection fails, as it may. */
static int new_peer(void)
{
	int fds[2];

	if (n_peers == PEERS_MAX || is_over ||
		socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) < 0)
		return -ECONNREFUSED;
	peers[n_peers++] = fds[1];
	return fds[0];
}

int __wrap_sock_dial(const struct rail_conf *r, const struct address *to)
{
	return new_peer();
}

/* As listener_ready does. */
static void accept_one(void)
{
	struct greet *g = c->greets;
	int fd;

	if (c->n_greets == GREETS_MAX || (fd = new_peer()) < 0)
		return;
	while (g->io.fd >= 0)
		g++;
	*g = (struct greet){.io = {.kind = IO_GREET, .fd = fd}, .deadline_ns = now_ns + config.hello_timeout_ns};
	c->n_greets++;
	io_watch(c, &g->io, EPOLLIN);
}

void __wrap_netdev_open(struct conn *conn)
{
}

static void say(unsigned peer, const void *bytes, size_t n)
{
	if (peer < n_peers && peers[peer] >= 0)
		(void)!send(peers[peer], bytes, n, MSG_NOSIGNAL);
}

static void say_meta(unsigned peer, uint16_t type)
{
	struct wire_meta m;

	wire_enc_fixed(&m, type, sizeof(m), 0, RY_OK);
	say(peer, &m, sizeof(m));
}

/* ---- the run ---- */

static void set_up(void)
{
	snprintf(config.node_name, sizeof(config.node_name), "alpha");
	config.n_rails = 1;
	config.connect_timeout_ns = config.hello_timeout_ns = 2 * SECOND;
	config.reconnect_ns = SECOND;
	config.keepalive_ns = 5 * SECOND;
	config.keepalive_dead_ns = 10 * SECOND;
	snprintf(config.rails[0].name, sizeof(config.rails[0].name), "r0");
	snprintf(config.rails[0].transport, sizeof(config.rails[0].transport), "tcp");
	snprintf(config.rails[0].address, sizeof(config.rails[0].address), "127.0.0.1");
	config.rails[0].sockets_per_pair = 1;
	snprintf(config.stores[0].name, sizeof(config.stores[0].name), "st");
	config.stores[0].n_endpoints = 1;
	snprintf(config.stores[0].endpoints[0].address, sizeof(config.stores[0].endpoints[0].address), "127.0.0.1");
	config.stores[0].endpoints[0].port = 1;
	rail.ops = (struct transport_ops){.pair_connect = fake_connect,
		.pair_close = fake_close,
		.qp_wants_fence = transport_wants_no_fence,
		.event_fds = transport_no_event_fds};
	to_control = spsc_create("to_control", 4096);
	from_control = spsc_create("from_control", 1024);
	waker_init(&control_waker);
	waker_init(&conn_waker);
	log_set_level(LOG_LEVEL_ERROR);
}

static void begin(enum begin how)
{
	struct conn_deps deps = {
		.config = &config,
		.node_id = 1,
		.incarnation = 5,
		.rails = rails,
		.to_control = to_control,
		.from_control = from_control,
		.control_waker = &control_waker,
		.counters = &counters,
		.waker = &conn_waker,
	};
	struct wire_hello hello = hello_of(WIRE_CONN_BOOTSTRAP, "fuzz");
	char message[256] = "";

	c = conns[config.n_stores];
	if (!c)
		FUZZ_CHECK(conn_create(&deps, message, sizeof(message), &conns[config.n_stores]) == 0, "%s", message);
	c = conns[config.n_stores];
	turns(2);
	if (how < BEGIN_DIAL)
		accept_one();
	hello.token = how == BEGIN_ANSWERED ? 99 : 0;
	if (how == BEGIN_GREETED || how == BEGIN_UP || how == BEGIN_ANSWERED)
		say(0, &hello, sizeof(hello));
	turns(2);
	if (how != BEGIN_UP)
		return;
	accept_one();
	for (uint32_t i = 0; i < c->n_live; i++)
		token = c->links[c->live[i]].token;
	hello = hello_of(WIRE_CONN_DATA, "fuzz");
	hello.token = token;
	say(1, &hello, sizeof(hello));
	turns(3);
	say_meta(0, WIRE_META_READY);
	turns(3);
	FUZZ_CHECK(c->n_live == 1 && c->links[c->live[0]].state == LINK_UP, "%u pairs", c->n_live);
}

static void step(struct fuzz_in *in)
{
	unsigned what = (unsigned)fuzz_number(in, 1);
	size_t n = fuzz_number(in, 2);
	uint8_t bytes[512];

	switch (what % STEPS) {
	case STEP_TIME:
		now_ns += n * 1000000ull;
		break;
	case STEP_NEW:
		accept_one();
		break;
	case STEP_DEAF:
		is_deaf = !is_deaf;
		break;
	case STEP_SHUT:
		if (n % PEERS_MAX < n_peers)
			shutdown(peers[n % PEERS_MAX], SHUT_WR);
		break;
	default:
		n %= sizeof(bytes) + 1;
		n = fuzz_bytes(in, bytes, n);
		/* A data socket's HELLO cannot know the token that was drawn for it. */
		if (what % STEPS == STEP_SAY_ON && n >= sizeof(struct wire_hello) && (what & 0x80)) {
			for (uint32_t i = 0; i < c->n_live; i++)
				memcpy(bytes + offsetof(struct wire_hello, token), &c->links[c->live[i]].token, 8);
		}
		say(what % STEPS == STEP_SAY ? 0 : what / STEPS % PEERS_MAX, bytes, n);
	}
	turns(2);
}

static void turns(unsigned n)
{
	static uint8_t scratch[65536];
	void *m;

	while (n--) {
		conn_poll(c, now_ns);
		while ((m = spsc_pop(to_control)))
			control_take(m);
		for (unsigned i = 0; i < n_peers && !is_deaf; i++)
			while (peers[i] >= 0 && recv(peers[i], scratch, sizeof(scratch), 0) > 0)
				;
	}
}

/* As control would; every other message is answered. */
static void control_take(void *m)
{
	struct meta_buf *b = m;
	struct pair_event *e = m;
	struct msg *msg = m;

	switch (msg->kind) {
	case MSG_META_RX:
		FUZZ_CHECK(
			wire_meta_check(b->data, b->len_bytes) == RY_OK, "type %u is not checked", meta_head(b)->type);
		FUZZ_CHECK(b->pair_idx < PAIRS_MAX, "pair %u", b->pair_idx);
		msg->kind = MSG_META_DROP;
		if (n_received++ % 2 && !meta_is_reply(meta_head(b)->type)) {
			b->len_bytes = wire_enc_fixed(b->data, WIRE_META_ERROR, sizeof(struct wire_meta),
				meta_head(b)->request_id, RY_ERR_DENIED);
			msg->kind = MSG_META_REPLY;
		}
		break;
	case MSG_PAIR_UP:
		FUZZ_CHECK(e->pair->n_qps == 1 && memchr(e->pair->node_name, 0, RY_NAME_MAX_BYTES), "a bad pair");
		return;
	case MSG_PAIR_DOWN:
		FUZZ_CHECK(e->status && memchr(e->cause, 0, sizeof(e->cause)), "no reason");
		msg->kind = MSG_PAIR_QUIESCED;
		break;
	case MSG_DIAL_FAULT:
		msg->kind = MSG_DIAL_FAULT_SEEN;
		break;
	default:
		FUZZ_CHECK(false, "kind %u", msg->kind);
	}
	FUZZ_CHECK(spsc_push(from_control, m), "the ring to conn is full");
}

/* The peer leaves; nothing of it may stay. */
static void end(void)
{
	is_over = true;
	is_deaf = false;
	turns(4);
	for (unsigned i = 0; i < n_peers; i++)
		close(peers[i]);
	n_peers = 0;
	for (int i = 0; i < 4; i++) {
		turns(3);
		now_ns += 11 * SECOND;
	}
	turns(3);
	FUZZ_CHECK(c->n_greets == 0 && c->n_joining == 0, "%u greet, %u join", c->n_greets, c->n_joining);
	FUZZ_CHECK(c->n_live == 0, "%u links are left", c->n_live);
	FUZZ_CHECK(rail.n_qps == 0, "%d QPs are left", rail.n_qps);
	FUZZ_CHECK(c->n_free_bufs == RX_BUFS && c->n_queue == 0, "%u of %u buffers", c->n_free_bufs, RX_BUFS);
}
