/* SPDX-License-Identifier: BSD-3-Clause */
/* The TCP transport's cold half: open and close, QPs and their adoption, going to sleep, and the end of a QP. */
#include "transport/tcp/tcp.h"

#include "transport/ib/ib_sysfs.h"
#include "transport/tcp/tcp_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

static int tcp_open(struct rail *r, const struct rail_conf *conf);
static int open_timer(struct tcp *t);
static void tcp_close(struct rail *r);
static int tcp_pair_connect(struct rail *r, const struct qp_request *req, struct qp **out);
static int prepare_socket(int fd);
static void tcp_pair_close(struct rail *r, struct qp *qp);
static void forget(struct tcp *t, unsigned place);
static void watch(struct rail *r, struct tcp *t, struct tcp_qp *q);
static void drop_queue(struct tcp *t, struct tcp_qp *q);
static int tcp_arm(struct rail *r);
static uint64_t tokens_wait_ns(const struct tcp *t);
static int tcp_fence(struct rail *r, struct window *window);
static void tcp_describe(const struct rail *r, struct rail_device_info *out);

const struct transport_ops tcp_ops = {
	.name = "tcp",
	.open = tcp_open,
	.close = tcp_close,
	.mem_reg = transport_no_reg,
	.mem_dereg = transport_no_dereg,
	.pair_connect = tcp_pair_connect,
	.pair_close = tcp_pair_close,
	.post = tcp_post,
	.poll = tcp_poll,
	.arm = tcp_arm,
	.fence = tcp_fence,
	.stop = transport_stop_at_once,
	.qp_wants_fence = transport_wants_no_fence,
	.qp_fence = transport_no_fence,
	.qp_local = transport_no_address,
	.qp_remote = transport_no_remote,
	.event_fds = transport_no_event_fds,
	.event_next = transport_no_events,
	.describe = tcp_describe,
	.detach = transport_no_detach,
	.attach = transport_no_attach,
};

static void *zalloc_lines(size_t bytes)
{
	void *p = NULL;

	if (posix_memalign(&p, 64, bytes))
		return NULL;
	return memset(p, 0, bytes);
}

static int tcp_open(struct rail *r, const struct rail_conf *conf)
{
	struct tcp *t = zalloc_lines(sizeof(*t));
	int err;

	if (!t)
		return -ENOMEM;
	t->timer_fd = -1;
	pace_init(&t->pace, conf->rate_bytes_per_s);
	t->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (t->epoll_fd < 0) {
		err = -errno;
		goto err_free;
	}
	err = t->pace.rate ? open_timer(t) : 0;
	if (err)
		goto err_close_epoll;
	r->tr = t;
	r->attr = (struct transport_attr){
		.write_max_bytes = WIRE_DATA_MAX_BYTES,
		.sq_depth = TCP_SQ_DEPTH,
		.has_windows = true,
	};
	return 0;

err_close_epoll:
	close(t->epoll_fd);
err_free:
	free(t);
	return err;
}

/* Edge-triggered like the sockets: an expiry is one event, and nobody has to read the fd. */
static int open_timer(struct tcp *t)
{
	struct epoll_event ev = {.events = EPOLLIN | EPOLLET, .data.u64 = TCP_TIMER_TAG};
	int err;

	t->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	if (t->timer_fd < 0)
		return -errno;
	if (!epoll_ctl(t->epoll_fd, EPOLL_CTL_ADD, t->timer_fd, &ev))
		return 0;
	err = -errno;
	close(t->timer_fd);
	return err;
}

static void tcp_close(struct rail *r)
{
	struct tcp *t = r->tr;

	if (!t)
		return;
	if (t->timer_fd >= 0)
		close(t->timer_fd);
	close(t->epoll_fd);
	free(t);
	r->tr = NULL;
}

static int tcp_pair_connect(struct rail *r, const struct qp_request *req, struct qp **out)
{
	struct tcp_qp *q = zalloc_lines(sizeof(*q));
	int err;

	if (!q)
		return -ENOMEM;
	err = prepare_socket(req->fd);
	if (err) {
		free(q);
		return err;
	}
	q->qp.rail_idx = r->idx;
	q->qp.pair_idx = req->pair_idx;
	q->qp.peer_idx = req->peer_idx;
	q->qp.qp_idx = req->qp_idx;
	q->qp.is_dialler = req->is_dialler;
	q->qp.peer_credits = req->peer_credits;
	q->fd = req->fd;
	q->place = TCP_NONE;
	q->is_dead = true;
	*out = &q->qp;
	return 0;
}

static int prepare_socket(int fd)
{
	int flags = fcntl(fd, F_GETFL);
	int one = 1;
	int bytes = TCP_SOCKET_BYTES;
	unsigned dead_ms = TCP_DEAD_MS;

	if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
		return -errno;
	if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) < 0 ||
		setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &dead_ms, sizeof(dead_ms)) < 0)
		return -errno;
	/* Wishes: the kernel cuts them to its limits (net.core.rmem_max, wmem_max). */
	if (setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes)) < 0 ||
		setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes)) < 0)
		return -errno;
	return 0;
}

static void tcp_pair_close(struct rail *r, struct qp *qp)
{
	struct tcp_qp *q = (struct tcp_qp *)qp;

	if (!q)
		return;
	close(q->fd);
	free(q);
}

void tcp_sync(struct rail *r)
{
	struct tcp *t = r->tr;
	struct tcp_set stay = {0};

	for (unsigned i = 0; i < r->n_qps; i++) {
		const struct tcp_qp *q = (const struct tcp_qp *)r->qps[i];

		if (q->place != TCP_NONE)
			set_add(&stay, q->place);
	}
	for (unsigned i = 0; i < RAIL_QPS_MAX; i++) {
		if (t->table[i] && !set_has(&stay, i))
			forget(t, i);
	}
	for (unsigned i = 0; i < r->n_qps; i++) {
		struct tcp_qp *q = (struct tcp_qp *)r->qps[i];

		if (q->place == TCP_NONE)
			watch(r, t, q);
	}
	t->seen_epoch = r->qp_epoch;
}

/* The QP still exists: its rail polls once before it lets conn free it. */
static void forget(struct tcp *t, unsigned place)
{
	struct tcp_qp *q = t->table[place];

	if (!q->is_dead)
		epoll_ctl(t->epoll_fd, EPOLL_CTL_DEL, q->fd, NULL);
	drop_queue(t, q);
	set_del(&t->down, place);
	for (uint32_t i = t->inv_head; i != t->inv_tail; i++) {
		if (t->inv[i & (TCP_INV_MAX - 1)].q == q)
			t->inv[i & (TCP_INV_MAX - 1)].q = NULL;
	}
	q->is_dead = true;
	t->table[place] = NULL;
}

static void watch(struct rail *r, struct tcp *t, struct tcp_qp *q)
{
	struct epoll_event ev = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET};
	uint16_t place = 0;

	while (t->table[place])
		place++;
	t->table[place] = q;
	q->place = place;
	q->is_dead = false;
	ev.data.u64 = place;
	if (epoll_ctl(t->epoll_fd, EPOLL_CTL_ADD, q->fd, &ev) < 0)
		tcp_qp_down(r, q, WC_ERR_LOCAL);
}

static void drop_queue(struct tcp *t, struct tcp_qp *q)
{
	t->tx_pending_bytes -= q->tx_pending_bytes;
	q->tx_pending_bytes = 0;
	q->tx_sent = q->tx_tail;
	q->tx_reaped = q->tx_tail;
	q->tx_sent_bytes = 0;
	set_del(&t->rx_ready, q->place);
	set_del(&t->tx_ready, q->place);
	set_del(&t->tx_done, q->place);
}

void tcp_qp_down(struct rail *r, struct tcp_qp *q, uint8_t status)
{
	struct tcp *t = r->tr;

	if (q->is_dead)
		return;
	if (status == WC_ERR_PROTOCOL)
		stat_add(&r->counters.protocol_errors, 1);
	epoll_ctl(t->epoll_fd, EPOLL_CTL_DEL, q->fd, NULL);
	shutdown(q->fd, SHUT_RDWR);
	drop_queue(t, q);
	q->is_dead = true;
	q->down_status = status;
	set_add(&t->down, q->place);
}

void tcp_touch(const struct msghdr *mh)
{
	for (size_t i = 0; i < mh->msg_iovlen; i++) {
		const volatile uint8_t *base = mh->msg_iov[i].iov_base;
		size_t len = mh->msg_iov[i].iov_len;

		for (size_t off = 0; off < len; off += TCP_PAGE_BYTES)
			(void)base[off];
		(void)base[len - 1];
	}
}

uint8_t tcp_status(int err)
{
	switch (err) {
	case ECONNRESET:
	case EPIPE:
	case ECONNREFUSED:
		return WC_ERR_PEER_CLOSED;
	case ETIMEDOUT:
	case EHOSTUNREACH:
	case ENETUNREACH:
	case ENETDOWN:
		return WC_ERR_RETRY;
	default:
		return WC_ERR_LOCAL;
	}
}

static int tcp_arm(struct rail *r)
{
	struct tcp *t = r->tr;
	uint64_t wait_ns = tokens_wait_ns(t);
	struct itimerspec at = {.it_value = {(time_t)(wait_ns / PACE_NS_PER_S), (long)(wait_ns % PACE_NS_PER_S)}};

	if (tcp_is_stale(r, t) || !wait_ns || t->inv_head != t->inv_tail || set_count(&t->rx_ready) ||
		set_count(&t->tx_done) || set_count(&t->down))
		return -EAGAIN;
	/* Relative: it may come late by the length of this turn, which the bucket makes good. */
	if (wait_ns != UINT64_MAX && timerfd_settime(t->timer_fd, 0, &at, NULL) < 0)
		return -EAGAIN;
	return t->epoll_fd;
}

/* Until the next QP in the round may send: 0 = now, UINT64_MAX = none wants to. */
static uint64_t tokens_wait_ns(const struct tcp *t)
{
	unsigned i = set_next(&t->tx_ready, t->tx_next);

	if (i == TCP_NONE)
		return UINT64_MAX;
	return pace_wait_ns(&t->pace, t->table[i]->tx_pending_bytes);
}

/* This lcore alone places bytes, so a window that its requester has closed is closed at once; the QP goes on. */
static int tcp_fence(struct rail *r, struct window *window)
{
	return 0;
}

static void tcp_describe(const struct rail *r, struct rail_device_info *out)
{
	char name[16];

	if (r->conf.netdev[0])
		snprintf(name, sizeof(name), "%s", r->conf.netdev);
	else
		ib_sysfs_find_netdev(r->conf.address, name);
	ib_sysfs_netdev(SYSFS_ROOT, name, out);
}
