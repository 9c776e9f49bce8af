/* SPDX-License-Identifier: BSD-3-Clause */
#include "daemon/conn_priv.h"

#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "daemon/log.h"

static int alloc_tables(struct conn *c);
static int open_sockets(struct conn *c, char *message, uint32_t message_bytes);
static bool take_messages(struct conn *c);
static void take(struct conn *c, void *m);
static void quiesced(struct conn *c, struct pair_event *e);
static void kill_pair(struct conn *c, const struct pair_kill *k);
static bool poll_sockets(struct conn *c);
static bool dispatch(struct conn *c, const struct epoll_event *ev);
static bool step_links(struct conn *c);
static void sleep_until(struct conn *c, uint64_t next_ns, uint64_t now_ns);
static void say_bye(struct conn *c);

#define MESSAGES_TURN_MAX 64
#define EVENTS_TURN_MAX 64

int conn_create(const struct conn_deps *deps, char *message, uint32_t message_bytes, struct conn **out)
{
	struct conn *c = calloc(1, sizeof(*c));
	int rc;

	if (!c) {
		snprintf(message, message_bytes, "conn: out of memory");
		return -ENOMEM;
	}
	c->deps = *deps;
	c->epoll_fd = -1;
	c->netlink.fd = -1;
	c->jitter = (deps->node_id ^ deps->incarnation * 0x9e3779b97f4a7c15ull) | 1;
	for (uint32_t i = 0; i < GREETS_MAX; i++)
		c->greets[i].io.fd = -1;
	for (uint16_t i = 0; i < RY_RAILS_MAX; i++)
		c->listeners[i] = (struct listener){.io = {.kind = IO_LISTENER, .fd = -1}, .rail_idx = i};
	snprintf(message, message_bytes, "conn: out of memory");
	rc = alloc_tables(c);
	if (rc == 0)
		rc = diallers_create(c, message, message_bytes);
	if (rc == 0)
		rc = info_create(c);
	if (rc == 0 && !deps->want_virtual_time)
		rc = open_sockets(c, message, message_bytes);
	if (rc < 0) {
		conn_destroy(c);
		return rc;
	}
	for (uint32_t i = 0; i < c->n_diallers; i++)
		info_publish(c, i, &c->diallers[i].info);
	message[0] = 0;
	*out = c;
	return 0;
}

/* Both tables are large and mostly untouched: calloc leaves their pages to first use. */
static int alloc_tables(struct conn *c)
{
	c->links = calloc(PAIRS_MAX, sizeof(*c->links));
	c->bufs = calloc(RX_BUFS, sizeof(*c->bufs));
	if (!c->links || !c->bufs)
		return -ENOMEM;
	for (uint32_t i = 0; i < RX_BUFS; i++)
		c->free_bufs[c->n_free_bufs++] = &c->bufs[i];
	return 0;
}

static int open_sockets(struct conn *c, char *message, uint32_t message_bytes)
{
	c->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (c->epoll_fd < 0) {
		int err = errno;

		snprintf(message, message_bytes, "conn: epoll: %s", error_text(err));
		return -err;
	}
	c->waker_io = (struct io){.kind = IO_WAKER, .fd = c->deps.waker->event_fd};
	io_watch(c, &c->waker_io, EPOLLIN);
	netdev_open(c);
	devices_watch(c);
	return listeners_open(c, message, message_bytes);
}

void conn_destroy(struct conn *c)
{
	if (!c)
		return;
	for (uint32_t i = 0; i < RY_RAILS_MAX; i++)
		io_close(c, &c->listeners[i].io);
	for (uint32_t i = 0; i < GREETS_MAX; i++)
		io_close(c, &c->greets[i].io);
	io_close(c, &c->netlink);
	for (int i = 0; i < (int)(RY_RAILS_MAX * 2); i++)
		c->devices[i / 2].io[i % 2].io.fd = -1; /* the rails' own */
	while (c->n_live)
		link_free(c, &c->links[c->live[c->n_live - 1]]);
	if (c->epoll_fd >= 0)
		close(c->epoll_fd);
	free(c->diallers);
	free(c->links);
	free(c->bufs);
	free(c->rows);
	free(c);
}

bool conn_poll(struct conn *c, uint64_t now_ns)
{
	bool did;

	c->now_ns = now_ns;
	c->want_retry = c->has_joined = false;
	did = take_messages(c);
	/* Sockets before timers: a late thread hears what was said in time. */
	did |= poll_sockets(c);
	did |= accept_timers(c);
	did |= news_rails(c);
	did |= step_links(c);
	did |= devices_step(c);
	did |= diallers_poll(c);
	did |= queue_flush(c);
	if (c->want_kick)
		waker_kick(c->deps.control_waker);
	c->want_kick = false;
	return did;
}

static bool take_messages(struct conn *c)
{
	int n = 0;

	while (n < MESSAGES_TURN_MAX && c->n_tx_held < TX_HELD_MAX) {
		void *m = spsc_pop(c->deps.from_control);

		if (!m)
			break;
		take(c, m);
		n++;
	}
	return n > 0;
}

static void take(struct conn *c, void *m)
{
	switch (((struct msg *)m)->kind) {
	case MSG_META_TX:
	case MSG_META_REPLY:
		link_submit(c, m);
		break;
	case MSG_META_DROP:
		buf_put(c, m);
		break;
	case MSG_PAIR_QUIESCED:
		quiesced(c, m);
		break;
	case MSG_PAIR_KILL:
		kill_pair(c, m);
		break;
	case MSG_DIAL:
		dial_request(c, m);
		break;
	case MSG_DIAL_FAULT_SEEN:
		dial_fault_seen(c, m);
		break;
	default:
		log_error("conn: message of kind %u from control is none of ours", ((struct msg *)m)->kind);
		break;
	}
}

/* Control gives back the event of the PAIR_DOWN, which is part of our record. */
static void quiesced(struct conn *c, struct pair_event *e)
{
	link_quiesced(c, &c->links[e->pair->idx]);
}

static void kill_pair(struct conn *c, const struct pair_kill *k)
{
	struct link *l = &c->links[k->pair_idx % PAIRS_MAX];

	if (l->state != LINK_UP || l->pair.epoch != k->pair_epoch)
		return;
	l->want_redial = k->reason == WIRE_BYE_REBUILD;
	link_bye(c, l, k->reason, RY_ERR_RAIL, "closed by this node: %s", bye_text(k->reason));
}

static bool poll_sockets(struct conn *c)
{
	struct epoll_event ev[EVENTS_TURN_MAX];
	bool did = false;
	int n;

	if (c->epoll_fd < 0)
		return false;
	n = epoll_wait(c->epoll_fd, ev, EVENTS_TURN_MAX, 0);
	for (int i = 0; i < n; i++)
		did |= dispatch(c, &ev[i]);
	return did;
}

/* An earlier event of the same turn may have closed what a later one is about. */
static bool dispatch(struct conn *c, const struct epoll_event *ev)
{
	void *owner = ev->data.ptr; /* starts with its io, or is in the middle of a link */
	struct io *io = owner;

	if (io->kind == IO_WAKER || io->fd < 0)
		return false;
	switch (io->kind) {
	case IO_LISTENER:
		listener_ready(c, owner);
		break;
	case IO_NETLINK:
		netdev_ready(c);
		break;
	case IO_DEVICE:
		device_ready(c, owner);
		break;
	case IO_GREET:
		greet_ready(c, owner);
		break;
	case IO_DATA:
		data_ready(c, (void *)((uint8_t *)owner - offsetof(struct link, data.io)));
		break;
	default:
		link_ready(c, owner, ev->events);
		break;
	}
	return true;
}

/* Backwards: a link that is freed is replaced by the last one, which was looked at already. */
static bool step_links(struct conn *c)
{
	bool did = false;

	for (uint32_t i = c->n_live; i-- > 0;) {
		if (i < c->n_live)
			did |= link_step(c, &c->links[c->live[i]]);
	}
	return did;
}

uint64_t conn_next_timer(const struct conn *c)
{
	uint64_t next = diallers_next_timer(c);
	uint64_t t = accept_next_timer(c);

	next = t < next ? t : next;
	t = news_next_timer(c);
	next = t < next ? t : next;
	t = devices_next_timer(c);
	next = t < next ? t : next;
	for (uint32_t i = 0; i < c->n_live; i++) {
		t = link_next_timer(c, &c->links[c->live[i]]);
		next = t < next ? t : next;
	}
	if (c->want_retry || c->n_queue)
		next = c->now_ns + RETRY_NS < next ? c->now_ns + RETRY_NS : next;
	return next;
}

void conn_run(struct conn *c, const uint32_t *stop)
{
	pthread_setname_np(pthread_self(), "ry-conn");
	/* Acquire: partner of the store of whoever asks us to stop. */
	while (!__atomic_load_n(stop, __ATOMIC_ACQUIRE)) {
		uint64_t now_ns = clock_ns();

		if (conn_poll(c, now_ns))
			continue;
		waker_prepare(c->deps.waker);
		/* The second look: rings, state words and the stop word, after the announcement. */
		if (!conn_poll(c, now_ns) && !__atomic_load_n(stop, __ATOMIC_ACQUIRE))
			sleep_until(c, conn_next_timer(c), now_ns);
		waker_cancel(c->deps.waker);
	}
	say_bye(c);
}

static void sleep_until(struct conn *c, uint64_t next_ns, uint64_t now_ns)
{
	struct epoll_event ev;
	uint64_t wait_ns = next_ns > now_ns ? next_ns - now_ns : 0;
	int timeout_ms = -1;

	/* Rounded up: waking early would only mean to wait again. */
	if (next_ns != UINT64_MAX)
		timeout_ms = wait_ns < 3600000000000ull ? (int)((wait_ns + 999999) / 1000000) : 3600000;
	if (epoll_wait(c->epoll_fd, &ev, 1, timeout_ms) < 0 && errno != EINTR)
		log_error("conn: epoll: %s", error_text(errno));
}

/* One attempt each: a peer that does not read learns it from the close. */
static void say_bye(struct conn *c)
{
	for (uint32_t i = 0; i < c->n_live; i++) {
		struct link *l = &c->links[c->live[i]];

		if (l->state < LINK_JOINING || l->state > LINK_UP || !link_put_bye(c, l, WIRE_BYE_SHUTDOWN))
			continue;
		/* What waits in front of it is control's, which has ended: only a message that was begun goes out. */
		link_drop_output(c, l, true);
		link_write(c, l);
	}
}
