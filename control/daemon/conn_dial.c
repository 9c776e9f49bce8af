/* SPDX-License-Identifier: BSD-3-Clause */
#include "daemon/conn_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "daemon/log.h"
#include "health/layout.h"

#define SECOND_NS 1000000000ull
#define REFUSED_NS_MAX (30 * SECOND_NS)

static uint32_t count_max(const struct config *conf);
static int add_self(struct conn *c, uint16_t store_idx, char *message, uint32_t message_bytes);
static int add_endpoint(struct conn *c, uint16_t store_idx, uint16_t at, char *message, uint32_t message_bytes);
static int add_pair(
	struct conn *c, struct health_name at, const struct address *to, char *message, uint32_t message_bytes);
static struct dialler *add(struct conn *c, struct health_name at);
static void show(struct conn *c, struct dialler *d, enum conn_pair_state state);
static void put_off(struct conn *c, struct dialler *d);
static void start(struct conn *c, struct dialler *d);
static void bootstrap(struct conn *c, struct dialler *d, struct link *l);
static const char *hello_fault(const struct conn *c, const struct link *l);
static void next_data(struct conn *c, struct link *l);
static bool data_connected(struct conn *c, struct link *l);
static void data_greeted(struct conn *c, struct link *l);
static uint64_t later(uint64_t a, uint64_t b);
static void tell_fault(struct conn *c, struct dialler *d, const struct link *l);
static uint64_t delay_ns(const struct conn *c, const struct dialler *d);
static uint64_t connect_ns(const struct conn *c, const struct dialler *d);
static uint64_t jittered(struct conn *c, uint64_t ns);

/* ---- set-up ---- */

int diallers_create(struct conn *c, char *message, uint32_t message_bytes)
{
	const struct config *conf = c->deps.config;
	uint32_t n = count_max(conf);
	int rc = 0;

	if (n > PAIRS_MAX) {
		snprintf(message, message_bytes,
			"stores: %u pairs of a rail and an endpoint are more than the %u of a node", n, PAIRS_MAX);
		return -E2BIG;
	}
	c->diallers = calloc(n ? n : 1, sizeof(*c->diallers));
	if (!c->diallers)
		return -ENOMEM;
	for (uint16_t s = 0; s < conf->n_stores && rc == 0; s++) {
		if (conf->stores[s].is_self)
			rc = add_self(c, s, message, message_bytes);
		else if (!c->deps.want_virtual_time)
			for (uint16_t e = 0; e < conf->stores[s].n_endpoints && rc == 0; e++)
				rc = add_endpoint(c, s, e, message, message_bytes);
	}
	return rc;
}

static uint32_t count_max(const struct config *conf)
{
	uint32_t n = 0;

	for (uint16_t s = 0; s < conf->n_stores; s++) {
		for (uint16_t e = 0; e < layout_n_endpoints(conf, s); e++) {
			for (uint16_t r = 0; r < conf->n_rails; r++)
				n += layout_may_reach(conf, s, e, r);
		}
	}
	return n;
}

static int add_self(struct conn *c, uint16_t store_idx, char *message, uint32_t message_bytes)
{
	const struct config *conf = c->deps.config;
	uint32_t n_before = c->n_diallers;

	for (uint16_t r = 0; r < conf->n_rails; r++) {
		if (rail_attr(c->deps.rails[r])->is_loopback)
			add(c, (struct health_name){store_idx, r, r})->is_self = true;
	}
	if (c->n_diallers > n_before)
		return 0;
	snprintf(message, message_bytes,
		"store %s: is this node, but no rail has the transport mock, which alone reaches it",
		conf->stores[store_idx].name);
	return -EINVAL;
}

static int add_endpoint(struct conn *c, uint16_t store_idx, uint16_t at, char *message, uint32_t message_bytes)
{
	const struct config *conf = c->deps.config;
	const struct config_endpoint *e = &conf->stores[store_idx].endpoints[at];
	uint32_t n_before = c->n_diallers;
	struct address to;
	int rc = 0;

	if (address_parse(e->address, e->port, &to) < 0) {
		snprintf(message, message_bytes, "store %s: endpoint %u: %s is no IPv4 or IPv6 address",
			conf->stores[store_idx].name, at, e->address);
		return -EINVAL;
	}
	for (uint16_t r = 0; r < conf->n_rails && rc == 0; r++) {
		if (layout_may_reach(conf, store_idx, at, r))
			rc = add_pair(c, (struct health_name){store_idx, at, r}, &to, message, message_bytes);
	}
	if (rc || c->n_diallers > n_before)
		return rc;
	snprintf(message, message_bytes, "store %s: endpoint %u: no local rail may use it: see rail %s and rails %s",
		conf->stores[store_idx].name, at, e->rail, e->rails);
	return -EINVAL;
}

static int add_pair(
	struct conn *c, struct health_name at, const struct address *to, char *message, uint32_t message_bytes)
{
	const struct config *conf = c->deps.config;
	const struct rail_conf *rail = &conf->rails[at.rail_idx];
	struct address from;

	if (rail_attr(c->deps.rails[at.rail_idx])->is_loopback) {
		snprintf(message, message_bytes, "store %s: endpoint %u: rail %s reaches this node only",
			conf->stores[at.store_idx].name, at.endpoint_idx, rail->name);
		return -EINVAL;
	}
	if (address_parse(rail->address, 0, &from) < 0 || to->sa.ss_family != from.sa.ss_family) {
		snprintf(message, message_bytes,
			"store %s: endpoint %u: %s and rail %s's %s must be two IPv4 or two IPv6 addresses",
			conf->stores[at.store_idx].name, at.endpoint_idx,
			conf->stores[at.store_idx].endpoints[at.endpoint_idx].address, rail->name, rail->address);
		return -EINVAL;
	}
	add(c, at)->to = *to;
	return 0;
}

static struct dialler *add(struct conn *c, struct health_name at)
{
	struct dialler *d = &c->diallers[c->n_diallers];

	d->store_idx = d->info.store_idx = d->fault.store_idx = at.store_idx;
	d->endpoint_idx = d->info.endpoint_idx = d->fault.endpoint_idx = at.endpoint_idx;
	d->rail_idx = d->info.rail_idx = d->fault.rail_idx = at.rail_idx;
	d->row = (uint16_t)c->n_diallers++;
	d->info.is_dialler = true;
	memcpy(d->info.peer, c->deps.config->stores[at.store_idx].name, sizeof(d->info.peer));
	return d;
}

/* ---- when ---- */

bool diallers_poll(struct conn *c)
{
	bool did = false;

	for (uint32_t i = 0; i < c->n_diallers; i++) {
		struct dialler *d = &c->diallers[i];

		if (d->link)
			continue;
		show(c, d, dialler_is_wanted(c, d) ? CONN_DOWN : CONN_STANDBY);
		if (d->info.state == CONN_STANDBY || c->now_ns < d->next_ns)
			continue;
		if (c->netdevs[d->rail_idx].is_down || !rail_has_device(c, d->rail_idx))
			put_off(c, d);
		else
			start(c, d);
		did = true;
	}
	if (c->n_waiting)
		dials_settle(c);
	return did;
}

uint64_t diallers_next_timer(const struct conn *c)
{
	uint64_t next = UINT64_MAX;

	for (uint32_t i = 0; i < c->n_diallers; i++) {
		if (!c->diallers[i].link && c->diallers[i].next_ns < next && dialler_is_wanted(c, &c->diallers[i]))
			next = c->diallers[i].next_ns;
	}
	return next;
}

bool dialler_is_wanted(const struct conn *c, const struct dialler *d)
{
	const uint32_t *rails = c->deps.wants ? &c->deps.wants->rails[d->store_idx][d->endpoint_idx] : NULL;

	/* Relaxed: a word of its own; control kicks conn after it wrote one. */
	return !rails || (__atomic_load_n(rails, __ATOMIC_RELAXED) >> d->rail_idx & 1);
}

static void show(struct conn *c, struct dialler *d, enum conn_pair_state state)
{
	if (d->info.state == state)
		return;
	d->info.state = (uint8_t)state;
	info_publish(c, d->row, &d->info);
}

void dialler_ended(struct conn *c, struct dialler *d, const struct link *l)
{
	bool is_now = d->want_now || (l->want_redial && l->was_up);
	bool is_return = d->info.n_connects && !l->was_up;
	uint64_t from_ns;

	d->link = NULL;
	d->want_now = false;
	d->n_refused = l->is_refused ? d->n_refused + 1 : 0;
	/* To get a pair back, counted from the start of the attempt: one that waited in vain for as long is followed by
	 * the next at once. So is a pair that was lost with its rail; but not one that is lost as soon as it is up. */
	from_ns = is_return || l->evidence == RAIL_EV_LOCAL ? d->started_ns : c->now_ns;
	d->next_ns = is_now ? c->now_ns : later(c->now_ns, from_ns + jittered(c, delay_ns(c, d)));
	if (!l->was_up) {
		d->failed_at = d->started_at;
		tell_fault(c, d, l);
	}
	d->info.state = CONN_DOWN;
	info_publish(c, d->row, &d->info);
}

static uint64_t later(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static void tell_fault(struct conn *c, struct dialler *d, const struct link *l)
{
	if (d->is_fault_out)
		return;
	d->is_fault_out = true;
	d->fault.evidence = l->evidence;
	d->fault.status = d->status;
	queue_emit(c, &d->fault.m, MSG_DIAL_FAULT);
}

void dial_fault_seen(struct conn *c, struct dial_fault *f)
{
	for (uint32_t i = 0; i < c->n_diallers; i++) {
		if (&c->diallers[i].fault == f)
			c->diallers[i].is_fault_out = false;
	}
}

/* A pair that is probed is dialled as often as it is probed. */
uint64_t dial_pause_ns(const struct conn *c)
{
	uint64_t reconnect_ns = c->deps.config->reconnect_ns;
	uint64_t probe_ns = c->deps.config->health.probe_interval_secs * SECOND_NS;

	return probe_ns && probe_ns < reconnect_ns ? probe_ns : reconnect_ns;
}

/* Who refuses us, or is none of ours, is asked less and less often: what changes that takes an operator. */
static uint64_t delay_ns(const struct conn *c, const struct dialler *d)
{
	uint64_t ns = dial_pause_ns(c);

	for (uint32_t i = 1; i < d->n_refused && ns < REFUSED_NS_MAX; i++)
		ns = ns * 2 < REFUSED_NS_MAX ? ns * 2 : REFUSED_NS_MAX;
	return ns;
}

/* The attempt to get a pair back is part of a probe and has its lease: on a path that lost the SYN, the next one comes
 * sooner than the kernel's. */
static uint64_t connect_ns(const struct conn *c, const struct dialler *d)
{
	uint64_t most_ns = c->deps.config->connect_timeout_ns;

	return d->info.n_connects && most_ns > SECOND_NS ? SECOND_NS : most_ns;
}

/* Between half and all of it, so that the readers of a store that came back do not arrive together (xorshift). */
static uint64_t jittered(struct conn *c, uint64_t ns)
{
	c->jitter ^= c->jitter << 13;
	c->jitter ^= c->jitter >> 7;
	c->jitter ^= c->jitter << 17;
	return ns - c->jitter % (ns / 2 + 1);
}

/* ---- bootstrap ---- */

/* Until its network device, or its RDMA device, is there again. */
static void put_off(struct conn *c, struct dialler *d)
{
	d->status = RY_ERR_RAIL;
	d->next_ns = UINT64_MAX;
	snprintf(d->info.last_error, sizeof(d->info.last_error), "%s %s is down",
		rail_has_device(c, d->rail_idx) ? "network device" : "RDMA device of", c->netdevs[d->rail_idx].name);
	info_publish(c, d->row, &d->info);
}

static void start(struct conn *c, struct dialler *d)
{
	struct link *l = link_alloc(c, d->rail_idx);

	d->started_ns = c->now_ns;
	d->started_at = ++c->n_started;
	if (!l) {
		d->status = RY_ERR_LIMIT;
		d->next_ns = c->now_ns + jittered(c, c->deps.config->reconnect_ns);
		snprintf(d->info.last_error, sizeof(d->info.last_error), "the pair table is full");
		info_publish(c, d->row, &d->info);
		return;
	}
	d->link = l;
	l->dialler = d;
	l->pair.is_dialler = true;
	l->pair.store_idx = d->store_idx;
	l->pair.endpoint_idx = d->endpoint_idx;
	l->state = LINK_CONNECTING;
	if (d->is_self)
		self_dial(c, d);
	else
		bootstrap(c, d, l);
	info_link(c, l);
}

static void bootstrap(struct conn *c, struct dialler *d, struct link *l)
{
	int fd = sock_dial(conn_rail_conf(c, d->rail_idx), &d->to);

	memcpy(l->peer_text, d->to.text, sizeof(l->peer_text));
	if (fd < 0) {
		l->evidence = error_evidence(fd);
		link_down(c, l, RY_ERR_RAIL, 0, "connect %s: %s", l->peer_text, error_text(fd));
		return;
	}
	l->io.fd = fd;
	l->deadline_ns = c->now_ns + connect_ns(c, d);
	sock_tune(fd, c->deps.config->keepalive_dead_ns);
	dial_connected(c, l);
}

void dial_connected(struct conn *c, struct link *l)
{
	int rc = sock_connected(l->io.fd);
	struct wire_hello hello;

	if (rc == -EINPROGRESS) {
		link_watch(c, l);
		return;
	}
	if (rc < 0) {
		l->evidence = error_evidence(rc);
		link_down(c, l, RY_ERR_RAIL, 0, "connect %s: %s", l->peer_text, error_text(rc));
		return;
	}
	l->state = LINK_HELLO;
	l->rx_phase = RX_HELLO;
	l->rx_need = sizeof(hello);
	l->deadline_ns = c->now_ns + c->deps.config->hello_timeout_ns;
	hello_fill(c, l->pair.rail_idx, WIRE_CONN_BOOTSTRAP, &hello);
	link_put_bytes(c, l, &hello, sizeof(hello));
	link_write(c, l);
}

void dial_greeted(struct conn *c, struct link *l)
{
	const struct wire_hello *h = &l->hello;
	const char *fault;

	/* The refusal first: a peer of another version can say no in words that our checks would not let through. */
	l->is_refused = true;
	if (h->status) {
		enum ry_status status = h->status < RY_STATUS_MAX_ ? (enum ry_status)h->status : RY_ERR_PROTOCOL;

		if (status == RY_ERR_DENIED)
			news_twin(c, l->peer_text);
		link_down(c, l, status, 0, "hello %s: refused: %s: %s", l->peer_text, ry_status_name(status),
			refusal_text(status));
		return;
	}
	fault = hello_fault(c, l);
	if (fault) {
		link_down(c, l, h->major == WIRE_MAJOR ? RY_ERR_PROTOCOL : RY_ERR_VERSION, 0, "hello %s: %s",
			l->peer_text, fault);
		return;
	}
	if (node_is_superseded(c, h)) {
		news_twin(c, l->peer_text);
		link_down(c, l, RY_ERR_DENIED, 0, "hello %s: %s", l->peer_text, refusal_text(RY_ERR_DENIED));
		return;
	}
	l->is_refused = false;
	l->token = h->token;
	l->state = LINK_JOINING;
	link_identify(c, l, h);
	info_link(c, l);
	if (rail_attr(c->deps.rails[l->pair.rail_idx])->has_addresses)
		link_open_qps(c, l);
	else
		next_data(c, l);
}

static const char *hello_fault(const struct conn *c, const struct link *l)
{
	const struct wire_hello *h = &l->hello;

	if (wire_hello_check(h))
		return "malformed answer";
	if (h->kind != WIRE_CONN_BOOTSTRAP || !h->token)
		return "not the answer to a bootstrap HELLO";
	if (h->transport != conn_rail_transport(c, l->pair.rail_idx))
		return "another transport";
	return NULL;
}

/* ---- data sockets, one after the other ---- */

static void next_data(struct conn *c, struct link *l)
{
	const struct config *conf = c->deps.config;
	int fd;

	l->deadline_ns = c->now_ns + conf->connect_timeout_ns + conf->hello_timeout_ns;
	l->data_idx = 0;
	while (l->data_idx < l->pair.n_qps && l->qp_step[l->data_idx] != QP_STEP_NONE)
		l->data_idx++;
	if (l->data_idx == l->pair.n_qps)
		return;
	fd = sock_dial(conn_rail_conf(c, l->pair.rail_idx), &l->dialler->to);
	if (fd < 0) {
		link_condemn(
			c, l, error_evidence(fd), RY_ERR_RAIL, "data socket to %s: %s", l->peer_text, error_text(fd));
		return;
	}
	l->data = (struct greet){.io = {.kind = IO_DATA, .fd = fd}, .is_connecting = true};
	io_watch(c, &l->data.io, EPOLLOUT);
}

void data_ready(struct conn *c, struct link *l)
{
	int rc;

	if (l->data.is_connecting) {
		data_connected(c, l);
		return;
	}
	rc = hello_read(l->data.io.fd, &l->data.hello, &l->data.got_bytes);
	if (rc > 0)
		data_greeted(c, l);
	if (rc >= 0)
		return;
	link_condemn(c, l, error_evidence(rc), RY_ERR_RAIL, "data socket to %s: %s", l->peer_text, error_text(rc));
}

static bool data_connected(struct conn *c, struct link *l)
{
	int rc = sock_connected(l->data.io.fd);
	struct wire_hello hello;

	if (rc == -EINPROGRESS)
		return false;
	hello_fill(c, l->pair.rail_idx, WIRE_CONN_DATA, &hello);
	hello.qp_idx = l->data_idx;
	hello.n_qps = l->pair.n_qps;
	hello.token = l->token;
	/* A fresh socket always has room for one HELLO. */
	if (rc == 0 && send(l->data.io.fd, &hello, sizeof(hello), MSG_NOSIGNAL) != sizeof(hello))
		rc = -EPIPE;
	if (rc < 0) {
		link_condemn(
			c, l, error_evidence(rc), RY_ERR_RAIL, "data socket to %s: %s", l->peer_text, error_text(rc));
		return false;
	}
	l->data.is_connecting = false;
	io_watch(c, &l->data.io, EPOLLIN);
	return true;
}

static void data_greeted(struct conn *c, struct link *l)
{
	const struct wire_hello *h = &l->data.hello;
	uint16_t qp_idx = l->data_idx;

	if (h->status) {
		link_condemn(c, l, l->evidence, RY_ERR_RAIL, "data socket to %s: refused: %s", l->peer_text,
			ry_status_name((enum ry_status)h->status));
		return;
	}
	if (wire_hello_check(h) || h->kind != WIRE_CONN_DATA || h->token != l->token || h->qp_idx != qp_idx) {
		link_condemn(c, l, l->evidence, RY_ERR_PROTOCOL,
			"data socket to %s: malformed, or the answer for another pair", l->peer_text);
		return;
	}
	link_add_qp(c, l, qp_idx, io_take(c, &l->data.io));
	if (l->state == LINK_JOINING)
		next_data(c, l);
}
