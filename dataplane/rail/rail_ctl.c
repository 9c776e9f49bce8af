/* SPDX-License-Identifier: BSD-3-Clause */
/* Set-up, tear-down and the calls by which control and conn reach a rail. */
#include "rail/rail_ctl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "hot/rail.h"

#define PROBE_SEED 0x9e3779b97f4a7c15ull
#define ADOPT_ENTRIES 1024u

static uint8_t *probe_pattern(void);
static int make_rings(struct rail *r);
static int make_wakeup(struct rail *r);

int rail_create(const struct rail_conf *conf, uint16_t idx, const struct rail_deps *deps, struct rail **out)
{
	const struct transport_ops *ops = transport_find(conf->transport);
	struct rail *r;
	int rc;

	if (!ops)
		return -ENOTSUP;
	if (posix_memalign((void **)&r, 64, sizeof(*r)))
		return -ENOMEM;
	memset(r, 0, sizeof(*r));
	r->conf = *conf;
	r->ops = *ops;
	r->post = ops->post;
	r->poll = ops->poll;
	r->arm = ops->arm;
	r->idx = idx;
	r->sources = deps->sources;
	r->hash = hash_choose()->code;
	r->snap = r->want_snap = deps->snapshot;
	r->control_waker = deps->control_waker;
	r->conn_waker = deps->conn_waker;
	r->epoll_fd = r->armed_fd = r->waker.event_fd = -1;
	r->next_request = 1;
	for (unsigned i = 0; i < RAIL_ACTIVE_MAX; i++)
		r->free_slots[r->free_top++] = (uint16_t)(RAIL_ACTIVE_MAX - 1 - i);
	serve_init(r);
	r->probe_bytes = probe_pattern();
	r->probe_sink = malloc(PROBE_BYTES);
	rc = r->probe_bytes && r->probe_sink ? make_rings(r) : -ENOMEM;
	if (!rc)
		rc = make_wakeup(r);
	if (!rc)
		rc = ops->open(r, conf);
	if (rc) {
		if (deps->why_bytes)
			snprintf(deps->why, deps->why_bytes, "%s", r->why);
		r->ops.close = NULL;
		rail_destroy(r);
		return rc;
	}
	r->write_max_bytes = r->attr.write_max_bytes;
	rail_read_link(r);
	*out = r;
	return 0;
}

/* The same on every node, so that each side can tell what comes back. */
static uint8_t *probe_pattern(void)
{
	uint64_t x = PROBE_SEED;
	uint8_t *p = malloc(PROBE_BYTES);

	for (uint32_t i = 0; p && i < PROBE_BYTES; i++) {
		x = x * 6364136223846793005ull + 1442695040888963407ull;
		p[i] = (uint8_t)(x >> 56);
	}
	return p;
}

static int make_rings(struct rail *r)
{
	r->work = spsc_create("work", RAIL_WORK_ENTRIES);
	r->events = spsc_create("events", RAIL_EVENT_ENTRIES);
	r->adopt = spsc_create("adopt", ADOPT_ENTRIES);
	return r->work && r->events && r->adopt ? 0 : -ENOMEM;
}

static int make_wakeup(struct rail *r)
{
	struct epoll_event ev = {.events = EPOLLIN};
	int rc = waker_init(&r->waker);

	if (rc)
		return rc;
	r->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (r->epoll_fd < 0 || epoll_ctl(r->epoll_fd, EPOLL_CTL_ADD, r->waker.event_fd, &ev))
		return -errno;
	return 0;
}

void rail_destroy(struct rail *r)
{
	if (!r)
		return;
	if (r->ops.close)
		r->ops.close(r);
	if (r->epoll_fd >= 0)
		close(r->epoll_fd);
	if (r->waker.event_fd >= 0)
		waker_fini(&r->waker);
	spsc_free(r->work);
	spsc_free(r->events);
	spsc_free(r->adopt);
	free(r->probe_bytes);
	free(r->probe_sink);
	free(r);
}

void rail_describe(const struct rail *r, struct rail_device_info *out)
{
	*out = (struct rail_device_info){.numa_node = -1, .gid_index = -1};
	r->ops.describe(r, out);
}

void rail_read_link(struct rail *r)
{
	struct rail_device_info info;

	rail_describe(r, &info);
	/* Relaxed: a number by itself. 0 is no limit in both, so the least is found one below. */
	__atomic_store_n(&r->link_bytes_per_s, RTE_MIN(info.link_bytes_per_s - 1, r->conf.rate_bytes_per_s - 1) + 1,
		__ATOMIC_RELAXED);
}

const char *rail_why(const struct rail *r)
{
	return r->why;
}

const char *rail_why_no_qp(const struct rail *r)
{
	return r->why_no_qp;
}

uint64_t rail_link(const struct rail *r)
{
	return __atomic_load_n(&r->link_bytes_per_s, __ATOMIC_RELAXED);
}

bool rail_hand_out(struct rail *r, struct segment *seg)
{
	return spsc_push(r->work, seg);
}

void rail_kick(struct rail *r)
{
	waker_kick(&r->waker);
}

unsigned rail_take_events(struct rail *r, struct segment **segs, unsigned n)
{
	return spsc_pop_burst(r->events, (void **)segs, n);
}

bool rail_has_events(const struct rail *r)
{
	return !spsc_is_empty(r->events);
}

bool rail_had_turn(const struct rail *r, uint64_t *seen)
{
	uint64_t turns = stat_get(&r->counters.turns_busy) + stat_get(&r->counters.turns_idle);
	bool is_asleep = __atomic_load_n(&r->waker.need_wakeup, __ATOMIC_RELAXED);
	bool is_moving = turns != *seen || is_asleep;

	*seen = turns;
	return is_moving;
}

void rail_cancel_scan(struct rail *r)
{
	/* Release: partner of the acquire in commands(); cancel_want of the segments was written before. */
	__atomic_store_n(&r->cancel_epoch, r->cancel_epoch + 1, __ATOMIC_RELEASE);
	waker_kick(&r->waker);
}

void rail_publish(struct rail *r, const struct rail_snapshot *snapshot)
{
	__atomic_store_n(&r->want_snap, snapshot, __ATOMIC_RELEASE); /* partner: rail_housekeeping */
	waker_kick(&r->waker);
}

uint32_t rail_seen_generation(const struct rail *r)
{
	return __atomic_load_n(&r->seen_generation, __ATOMIC_ACQUIRE); /* partner: rail_housekeeping */
}

const struct transport_ops *rail_ops(const struct rail *r)
{
	return &r->ops;
}

const struct transport_attr *rail_attr(const struct rail *r)
{
	return &r->attr;
}

int rail_adopt(struct rail *r, struct qp *qp)
{
	if (!spsc_push(r->adopt, qp))
		return -EAGAIN;
	waker_kick(&r->waker);
	return 0;
}

int rail_release(struct rail *r, struct qp *qp)
{
	return rail_adopt(r, (struct qp *)((uintptr_t)qp | RAIL_RELEASE_BIT));
}

/* The release of no QP at all. */
int rail_detach(struct rail *r)
{
	return rail_release(r, NULL);
}

int rail_attach(struct rail *r)
{
	return rail_adopt(r, (struct qp *)RAIL_TAKE_UP);
}

bool rail_is_detached(const struct rail *r)
{
	/* Acquire: partner of the releases in rail_let_go and rail_take_up; the lcore's last look at the device is
	 * over, or its first may come at any time. */
	return __atomic_load_n(&r->is_detached, __ATOMIC_ACQUIRE);
}

enum qp_state qp_state(const struct qp *qp)
{
	/* Acquire: partner of the releases in rail_loop.c; what the lcore did to the QP is complete. */
	return (enum qp_state)__atomic_load_n(&qp->state, __ATOMIC_ACQUIRE);
}

uint8_t qp_fail_status(const struct qp *qp)
{
	return qp->fail_status;
}

uint32_t qp_n_odd(const struct qp *qp)
{
	return __atomic_load_n(&qp->n_odd, __ATOMIC_RELAXED);
}

uint64_t qp_rx_bytes(const struct qp *qp)
{
	return stat_get(&qp->rx_bytes);
}

const struct rail_counters *rail_counters(const struct rail *r)
{
	return &r->counters;
}

const struct rail_conf *rail_conf(const struct rail *r)
{
	return &r->conf;
}

uint16_t rail_idx(const struct rail *r)
{
	return r->idx;
}
