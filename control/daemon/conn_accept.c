/* SPDX-License-Identifier: BSD-3-Clause */
#include "daemon/conn_priv.h"

#include <errno.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <unistd.h>

#include "daemon/log.h"

static int cannot_listen(const struct rail_conf *rail, int rc, char *message, uint32_t message_bytes);
static int open_listener(struct conn *c, uint16_t rail_idx);
static struct greet *free_greet(struct conn *c);
static void watch_listeners(struct conn *c);
static void unused(struct conn *c, const struct greet *g);
static void greet_end(struct conn *c, struct greet *g);
static void welcome(struct conn *c, struct greet *g);
static uint32_t judge(struct conn *c, const struct greet *g);
static void accept_pair(struct conn *c, struct greet *g);
static void accept_data(struct conn *c, struct greet *g);
static struct link *find_token(struct conn *c, const struct greet *g);
static void refuse(struct conn *c, struct greet *g, uint32_t status);
static uint64_t fresh_token(void);

#define ACCEPT_TURN_MAX 16
#define UNUSED_MANY 100u
#define UNUSED_NS 60000000000ull
#define ACCEPT_RETRY_NS 100000000ull /* out of descriptors */

int conn_check_addresses(const struct config *config, char *message, uint32_t message_bytes)
{
	for (uint16_t i = 0; i < config->n_rails; i++) {
		const struct rail_conf *rail = &config->rails[i];
		int rc;

		if (!rail->address[0]) /* a mock rail */
			continue;
		if (rail->netdev[0] && !if_nametoindex(rail->netdev)) {
			snprintf(message, message_bytes,
				"rail %s: netdev: this host has no network device %s; ip link shows those it has",
				rail->name, rail->netdev);
			return -ENODEV;
		}
		if (!rail->port || !strcmp(rail->transport, "mock"))
			continue;
		rc = sock_check(rail);
		if (rc < 0)
			return cannot_listen(rail, rc, message, message_bytes);
	}
	return 0;
}

static int cannot_listen(const struct rail_conf *rail, int rc, char *message, uint32_t message_bytes)
{
	snprintf(message, message_bytes, "rail %s: listen on %s port %u: %s; %s", rail->name, rail->address, rail->port,
		error_text(rc),
		rc == -EMFILE || rc == -ENFILE ? "raise the limit of open files (ulimit -n)"
					       : "choose another address or port for this rail");
	return rc;
}

int listeners_open(struct conn *c, char *message, uint32_t message_bytes)
{
	for (uint16_t i = 0; i < c->deps.config->n_rails; i++) {
		const struct rail_conf *rail = conn_rail_conf(c, i);
		int rc;

		if (!rail->port || rail_attr(c->deps.rails[i])->is_loopback)
			continue;
		rc = open_listener(c, i);
		if (rc < 0)
			return cannot_listen(rail, rc, message, message_bytes);
	}
	return 0;
}

static int open_listener(struct conn *c, uint16_t rail_idx)
{
	const struct rail_conf *rail = conn_rail_conf(c, rail_idx);
	struct listener *ln = &c->listeners[rail_idx];
	struct address at;
	int fd;

	if (address_parse(rail->address, rail->port, &at) < 0)
		return -EADDRNOTAVAIL;
	fd = sock_listen(rail, &at);
	if (fd < 0)
		return fd;
	ln->io.fd = fd;
	io_watch(c, &ln->io, EPOLLIN);
	return 0;
}

void listener_ready(struct conn *c, struct listener *ln)
{
	for (int i = 0; i < ACCEPT_TURN_MAX && c->n_greets < GREETS_MAX; i++) {
		struct greet *g = free_greet(c);
		int fd = accept4(ln->io.fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (fd < 0 && (errno == EAGAIN || errno == EINTR))
			break;
		if (fd < 0 && errno == ECONNABORTED)
			continue;
		if (fd < 0) {
			log_warn("conn: accept: %s", error_text(errno));
			ln->retry_ns = c->now_ns + ACCEPT_RETRY_NS;
			break;
		}
		*g = (struct greet){.io = {.kind = IO_GREET, .fd = fd}, .rail_idx = ln->rail_idx};
		g->deadline_ns = c->now_ns + c->deps.config->hello_timeout_ns;
		c->n_greets++;
		stat_add(&c->deps.counters->accepted, 1);
		sock_tune(fd, c->deps.config->keepalive_dead_ns);
		io_watch(c, &g->io, EPOLLIN);
	}
	watch_listeners(c);
}

static struct greet *free_greet(struct conn *c)
{
	struct greet *g = c->greets;

	while (g->io.fd >= 0)
		g++;
	return g;
}

/* While every place is taken new peers wait in the kernel's queue; the HELLO time-out makes room. */
static void watch_listeners(struct conn *c)
{
	for (uint16_t i = 0; i < c->deps.config->n_rails; i++) {
		struct listener *ln = &c->listeners[i];

		io_watch(c, &ln->io, c->n_greets < GREETS_MAX && !ln->retry_ns ? EPOLLIN : 0);
	}
}

void greet_ready(struct conn *c, struct greet *g)
{
	int rc = hello_read(g->io.fd, &g->hello, &g->got_bytes);
	char peer[SOCK_TEXT_BYTES], more[NEWS_MORE_BYTES];

	if (!rc)
		return;
	if (rc > 0) {
		welcome(c, g);
	} else if (rc == -EPROTO) {
		stat_add(&c->deps.counters->hellos_refused, 1);
		sock_peer_text(g->io.fd, peer, sizeof(peer));
		if (news_stranger(c, peer, RY_ERR_PROTOCOL, more))
			log_warn("conn: hello from %s: %s%s", peer, error_text(rc), more);
	} else {
		unused(c, g);
	}
	greet_end(c, g);
}

/* Now and then somebody only looks whether the port is open; a flood of them keeps others waiting. */
static void unused(struct conn *c, const struct greet *g)
{
	char peer[SOCK_TEXT_BYTES], more[NEWS_MORE_BYTES];

	if (c->now_ns - c->unused_since_ns >= UNUSED_NS) {
		c->unused_since_ns = c->now_ns;
		c->n_unused = 0;
	}
	if (++c->n_unused < UNUSED_MANY || !news_stranger(c, "anybody", RY_ERR_DETACHED, more))
		return;
	sock_peer_text(g->io.fd, peer, sizeof(peer));
	log_warn("conn: hello: %u connections within a minute ended before they said it, the last from %s", c->n_unused,
		peer);
}

static void greet_end(struct conn *c, struct greet *g)
{
	io_close(c, &g->io);
	c->n_greets--;
	watch_listeners(c);
}

int hello_read(int fd, struct wire_hello *h, uint32_t *got_bytes)
{
	ssize_t n = recv(fd, (uint8_t *)h + *got_bytes, sizeof(*h) - *got_bytes, 0);

	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	if (n == 0)
		return -EPIPE;
	*got_bytes += (uint32_t)n;
	/* Whoever speaks another protocol is not kept until its time-out. */
	if (*got_bytes >= sizeof(h->magic) && h->magic != WIRE_MAGIC)
		return -EPROTO;
	return *got_bytes == sizeof(*h);
}

static void welcome(struct conn *c, struct greet *g)
{
	uint32_t status = judge(c, g);

	if (status)
		refuse(c, g, status);
	else if (g->hello.kind == WIRE_CONN_BOOTSTRAP)
		accept_pair(c, g);
	else
		accept_data(c, g);
}

/* enum ry_status: why this HELLO is refused. */
static uint32_t judge(struct conn *c, const struct greet *g)
{
	int status = wire_hello_check(&g->hello);

	if (status)
		return (uint32_t)status;
	if (g->hello.transport != conn_rail_transport(c, g->rail_idx))
		return RY_ERR_INVALID;
	if (g->hello.kind == WIRE_CONN_BOOTSTRAP && c->n_joining >= JOINING_MAX)
		return RY_ERR_LIMIT;
	if (g->hello.kind == WIRE_CONN_BOOTSTRAP && node_is_superseded(c, &g->hello))
		return RY_ERR_DENIED;
	return RY_OK;
}

/* The answer goes through the link's own output: it takes the socket here. */
static void accept_pair(struct conn *c, struct greet *g)
{
	struct link *l = link_alloc(c, g->rail_idx);
	struct wire_hello answer;

	if (!l) {
		refuse(c, g, RY_ERR_LIMIT);
		return;
	}
	l->io.fd = io_take(c, &g->io);
	sock_peer_text(l->io.fd, l->peer_text, sizeof(l->peer_text));
	l->state = LINK_JOINING;
	l->rx_phase = RX_HEAD;
	l->rx_need = sizeof(struct wire_meta);
	l->token = fresh_token();
	l->pair.store_idx = 0xffff;
	l->deadline_ns = c->now_ns + c->deps.config->connect_timeout_ns + c->deps.config->hello_timeout_ns;
	c->n_joining++;
	link_identify(c, l, &g->hello);
	hello_fill(c, g->rail_idx, WIRE_CONN_BOOTSTRAP, &answer);
	answer.n_qps = l->pair.n_qps;
	answer.token = l->token;
	link_put_bytes(c, l, &answer, sizeof(answer));
	info_link(c, l);
	link_write(c, l);
	link_open_qps(c, l);
}

static void accept_data(struct conn *c, struct greet *g)
{
	struct link *l = find_token(c, g);
	struct wire_hello answer;
	int fd;

	if (!l) {
		refuse(c, g, RY_ERR_NOT_FOUND);
		return;
	}
	hello_fill(c, g->rail_idx, WIRE_CONN_DATA, &answer);
	answer.qp_idx = g->hello.qp_idx;
	answer.token = l->token;
	answer.n_qps = l->pair.n_qps;
	fd = io_take(c, &g->io);
	/* A fresh socket always has room for one HELLO. */
	if (send(fd, &answer, sizeof(answer), MSG_NOSIGNAL) != sizeof(answer)) {
		close(fd);
		return;
	}
	link_add_qp(c, l, g->hello.qp_idx, fd);
}

static struct link *find_token(struct conn *c, const struct greet *g)
{
	for (uint32_t i = 0; i < c->n_live; i++) {
		struct link *l = &c->links[c->live[i]];

		if (l->state != LINK_JOINING || l->dialler || l->twin || l->token != g->hello.token)
			continue;
		if (l->pair.node_id != g->hello.node_id || l->pair.incarnation != g->hello.incarnation)
			continue;
		if (l->pair.rail_idx != g->rail_idx || g->hello.qp_idx >= l->pair.n_qps)
			continue;
		return l->qp_step[g->hello.qp_idx] == QP_STEP_NONE ? l : NULL;
	}
	return NULL;
}

static void refuse(struct conn *c, struct greet *g, uint32_t status)
{
	char peer[SOCK_TEXT_BYTES], more[NEWS_MORE_BYTES];
	struct wire_hello answer;

	hello_fill(c, g->rail_idx, g->hello.kind == WIRE_CONN_DATA ? WIRE_CONN_DATA : WIRE_CONN_BOOTSTRAP, &answer);
	answer.status = status;
	stat_add(&c->deps.counters->hellos_refused, 1);
	sock_peer_text(g->io.fd, peer, sizeof(peer));
	if (news_stranger(c, peer, status, more))
		log_warn("conn: hello from %s refused: %s: %s%s", peer, ry_status_name(status), refusal_text(status),
			more);
	/* Best effort: who does not get the answer sees the close. */
	(void)!send(g->io.fd, &answer, sizeof(answer), MSG_NOSIGNAL);
}

static uint64_t fresh_token(void)
{
	uint64_t token = 0;

	/* Never short for 8 bytes once the system is up; 0 means "no token" on the wire. */
	while (!token && getrandom(&token, sizeof(token), 0) < 0 && errno == EINTR)
		;
	return token ? token : 1;
}

bool accept_timers(struct conn *c)
{
	bool did = false;

	for (uint32_t i = 0; i < GREETS_MAX && c->n_greets; i++) {
		struct greet *g = &c->greets[i];
		char peer[SOCK_TEXT_BYTES], more[NEWS_MORE_BYTES];

		if (g->io.fd < 0 || c->now_ns < g->deadline_ns)
			continue;
		stat_add(&c->deps.counters->hellos_late, 1);
		sock_peer_text(g->io.fd, peer, sizeof(peer));
		if (news_stranger(c, peer, RY_ERR_TIMEOUT, more))
			log_warn("conn: hello from %s: none within the time-out%s", peer, more);
		greet_end(c, g);
		did = true;
	}
	for (uint16_t i = 0; i < c->deps.config->n_rails; i++) {
		struct listener *ln = &c->listeners[i];

		if (!ln->retry_ns || c->now_ns < ln->retry_ns)
			continue;
		ln->retry_ns = 0;
		watch_listeners(c);
		did = true;
	}
	return did;
}

uint64_t accept_next_timer(const struct conn *c)
{
	uint64_t next = UINT64_MAX;

	for (uint32_t i = 0; i < GREETS_MAX && c->n_greets; i++) {
		if (c->greets[i].io.fd >= 0 && c->greets[i].deadline_ns < next)
			next = c->greets[i].deadline_ns;
	}
	for (uint16_t i = 0; i < c->deps.config->n_rails; i++) {
		if (c->listeners[i].retry_ns && c->listeners[i].retry_ns < next)
			next = c->listeners[i].retry_ns;
	}
	return next;
}

void hello_fill(const struct conn *c, uint16_t rail_idx, enum wire_conn_kind kind, struct wire_hello *h)
{
	*h = (struct wire_hello){
		.magic = WIRE_MAGIC,
		.major = WIRE_MAJOR,
		.minor = WIRE_MINOR,
		.kind = (uint16_t)kind,
		.transport = conn_rail_transport(c, rail_idx),
		.rail_idx = rail_idx,
		.node_id = c->deps.node_id,
		.incarnation = c->deps.incarnation,
		.features = WIRE_FEATURE_AVOID | WIRE_FEATURE_QUERY_KEY,
		.n_qps = conn_rail_n_qps(c, rail_idx),
		.read_credits = RAIL_CREDITS,
		.max_msg_bytes = WIRE_MSG_BYTES,
		.max_parts = WIRE_PARTS_MAX,
		.max_data_bytes = WIRE_DATA_MAX_BYTES,
	};
	snprintf(h->node_name, sizeof(h->node_name), "%s", c->deps.config->node_name);
	snprintf(h->rail_name, sizeof(h->rail_name), "%s", conn_rail_conf(c, rail_idx)->name);
}

uint16_t conn_rail_transport(const struct conn *c, uint16_t rail_idx)
{
	static const struct {
		const char *name;
		uint16_t wire;
	} known[] = {
		{"tcp", WIRE_TRANSPORT_TCP},
		{"verbs", WIRE_TRANSPORT_VERBS},
		{"mlx5", WIRE_TRANSPORT_VERBS},
		{"mock", WIRE_TRANSPORT_MOCK},
	};

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		if (!strcmp(known[i].name, conn_rail_conf(c, rail_idx)->transport))
			return known[i].wire;
	}
	return 0;
}

uint16_t conn_rail_n_qps(const struct conn *c, uint16_t rail_idx)
{
	const struct rail_conf *rail = conn_rail_conf(c, rail_idx);
	uint32_t n =
		rail_attr(c->deps.rails[rail_idx])->has_addresses ? rail->verbs.qps_per_pair : rail->sockets_per_pair;

	if (n < 1)
		return 1;
	return (uint16_t)(n < PAIR_QPS_MAX ? n : PAIR_QPS_MAX);
}
