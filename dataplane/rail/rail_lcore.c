/* SPDX-License-Identifier: BSD-3-Clause */
/* The thread body of a rail lcore: poll, spin for a while, sleep. The only system calls a rail makes outside its
 * transport are here. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/epoll.h>

#include <rte_launch.h>
#include <rte_pause.h>

#include "hot/rail.h"

static int lcore_main(void *arg);
static void idle(struct rail *r, uint64_t *idle_since_ns, uint64_t now_ns);
static void rail_sleep(struct rail *r, uint64_t now_ns);
static bool watch(struct rail *r, int fd);
static int timeout_ms(const struct rail *r, uint64_t now_ns);

int rail_launch(struct rail *r)
{
	int rc = rte_eal_remote_launch(lcore_main, r, r->conf.lcore);

	r->is_launched = rc == 0;
	return rc;
}

void rail_stop(struct rail *r)
{
	if (!r->is_launched)
		return;
	__atomic_store_n(&r->want_stop, 1, __ATOMIC_RELAXED);
	waker_signal(&r->waker);
	rte_eal_wait_lcore(r->conf.lcore);
	r->is_launched = false;
}

static int lcore_main(void *arg)
{
	struct rail *r = arg;
	uint64_t idle_since_ns = 0;
	char name[16];

	snprintf(name, sizeof(name), "ry-rail%u", r->idx);
	pthread_setname_np(pthread_self(), name);
	rte_rcu_qsbr_thread_online(r->sources->qsbr, r->idx);
	while (!__atomic_load_n(&r->want_stop, __ATOMIC_RELAXED)) {
		uint64_t now_ns = clock_ns();

		if (rail_poll(r, now_ns))
			idle_since_ns = 0;
		else
			idle(r, &idle_since_ns, now_ns);
	}
	rte_rcu_qsbr_thread_offline(r->sources->qsbr, r->idx);
	return 0;
}

static void idle(struct rail *r, uint64_t *idle_since_ns, uint64_t now_ns)
{
	if (!*idle_since_ns)
		*idle_since_ns = now_ns;
	if (now_ns - *idle_since_ns < r->snap->spin_ns || r->snap->spin_ns == UINT64_MAX) {
		rte_pause();
		return;
	}
	rail_sleep(r, now_ns);
	*idle_since_ns = 0;
}

static void rail_sleep(struct rail *r, uint64_t now_ns)
{
	struct epoll_event ev[2];
	int fd;

	waker_prepare(&r->waker);
	/* Relaxed: waker_prepare's fence stands between our announcement and these looks. */
	if (!spsc_is_empty(r->work) || !spsc_is_empty(r->adopt) ||
		__atomic_load_n(&r->cancel_epoch, __ATOMIC_RELAXED) != r->cancel_seen ||
		__atomic_load_n(&r->want_snap, __ATOMIC_RELAXED) != r->snap)
		goto awake;
	fd = r->arm(r);
	if (fd == -EAGAIN || !watch(r, fd))
		goto awake;
	stat_add(&r->counters.sleeps, 1);
	rte_rcu_qsbr_thread_offline(r->sources->qsbr, r->idx);
	epoll_wait(r->epoll_fd, ev, 2, timeout_ms(r, now_ns));
	rte_rcu_qsbr_thread_online(r->sources->qsbr, r->idx);
awake:
	waker_cancel(&r->waker);
	rail_housekeeping(r);
}

static bool watch(struct rail *r, int fd)
{
	struct epoll_event ev = {.events = EPOLLIN};

	if (fd == r->armed_fd)
		return true;
	if (r->armed_fd >= 0)
		epoll_ctl(r->epoll_fd, EPOLL_CTL_DEL, r->armed_fd, NULL);
	r->armed_fd = -1;
	if (fd >= 0) {
		if (epoll_ctl(r->epoll_fd, EPOLL_CTL_ADD, fd, &ev))
			return false;
		r->armed_fd = fd;
	}
	return true;
}

/* Before conn closes the device: its descriptor leaves our epoll set, and post and poll lead nowhere. */
void rail_let_go(struct rail *r)
{
	watch(r, -1);
	r->post = transport_post_nothing;
	r->poll = transport_poll_nothing;
	r->arm = transport_arm_nothing;
	/* Release: partner of the acquire in rail_is_detached. */
	__atomic_store_n(&r->is_detached, true, __ATOMIC_RELEASE);
	waker_kick(r->conn_waker);
}

/* Everything of the device is new, and was made before conn asked. */
void rail_take_up(struct rail *r)
{
	r->post = r->ops.post;
	r->poll = r->ops.poll;
	r->arm = r->ops.arm;
	/* Release: partner of the acquire in rail_is_detached. */
	__atomic_store_n(&r->is_detached, false, __ATOMIC_RELEASE);
	waker_kick(r->conn_waker);
}

static int timeout_ms(const struct rail *r, uint64_t now_ns)
{
	uint64_t at = rail_next_timer(r);

	if (at == UINT64_MAX)
		return -1;
	return at <= now_ns ? 0 : (int)((at - now_ns + 999999) / 1000000);
}
