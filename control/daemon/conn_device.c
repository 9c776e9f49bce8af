/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * RDMA devices of rails: what they have to say, and their removal and return.
 *
 * A device that is removed is closed, in this order: its pairs end, its lcore lets go of it, we close it (the kernel
 * waits for that). From then on it is looked for, less and less often, by the work thread, which opens it and registers
 * on it what is registered then; then its lcore takes it up, and its pairs are dialled. One that leaves again in the
 * middle of that goes back to the start.
 */
#include "daemon/conn_priv.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <xxhash.h>

#include "daemon/log.h"
#include "read/plan.h"

#define LOOK_NS 1000000000ull     /* after its end, unless dials are further apart */
#define LOOK_NS_MAX 8000000000ull /* in the end, with the same exception */

static void watch(struct conn *c, uint16_t rail_idx);
static void take_event(struct conn *c, uint16_t rail_idx, const struct rail_event *e);
static void lose(struct conn *c, uint16_t rail_idx, const struct rail_event *e);
static void leave(struct conn *c, uint16_t rail_idx);
static void lose_qp(struct conn *c, const struct rail_event *e);
static void wake(struct conn *c, uint16_t rail_idx, const struct rail_event *e);
static bool step(struct conn *c, uint16_t rail_idx);
static bool has_qps(const struct conn *c, uint16_t rail_idx);
static bool ask_lcore(struct conn *c, uint16_t rail_idx, int (*ask)(struct rail *rail), enum device_step next);
static void close_device(struct conn *c, uint16_t rail_idx);
static uint64_t first_pause_ns(const struct conn *c);
static void look(struct conn *c, uint16_t rail_idx);
static void found(struct conn *c, const struct device_job *job);
static void not_found(struct conn *c, const struct device_job *job);
static void taken_up(struct conn *c, uint16_t rail_idx);

/* ---- what they say ---- */

void devices_watch(struct conn *c)
{
	for (uint16_t i = 0; i < c->deps.config->n_rails; i++)
		watch(c, i);
}

static void watch(struct conn *c, uint16_t rail_idx)
{
	struct rail *rail = c->deps.rails[rail_idx];
	int fds[2], n = rail_ops(rail)->event_fds(rail, fds);

	for (int k = 0; k < 2; k++) {
		struct device_io *d = &c->devices[rail_idx].io[k];

		*d = (struct device_io){.io = {.kind = IO_DEVICE, .fd = k < n ? fds[k] : -1}, .rail_idx = rail_idx};
		if (k < n)
			io_watch(c, &d->io, EPOLLIN);
	}
}

/* Until nothing is left: several ports share a descriptor. */
void device_ready(struct conn *c, const struct device_io *d)
{
	struct rail *rail = c->deps.rails[d->rail_idx];
	struct rail_event e;

	while (rail_ops(rail)->event_next(rail, &e))
		take_event(c, d->rail_idx, &e);
}

static void take_event(struct conn *c, uint16_t rail_idx, const struct rail_event *e)
{
	char cause[RY_CAUSE_MAX_BYTES];

	snprintf(cause, sizeof(cause), "%s", e->text);
	switch (e->kind) {
	case RAIL_EVENT_PORT_UP:
		wake(c, rail_idx, e);
		break;
	case RAIL_EVENT_QP_FATAL:
		lose_qp(c, e);
		break;
	case RAIL_EVENT_PORT_DOWN:
	case RAIL_EVENT_GID_CHANGE:
		news_rail(c, rail_idx, "%s", e->text);
		links_drop(c, rail_idx, cause);
		break;
	default: /* CQ_ERROR, DEVICE_FATAL, REMOVED: nothing can go over this rail any more */
		lose(c, rail_idx, e);
		links_drop(c, rail_idx, cause);
		break;
	}
}

static void lose(struct conn *c, uint16_t rail_idx, const struct rail_event *e)
{
	bool is_removed = e->kind == RAIL_EVENT_REMOVED;

	if (!c->netdevs[rail_idx].is_gone)
		log_error("rail %s: %s: it is out of use until %s", conn_rail_conf(c, rail_idx)->name, e->text,
			is_removed ? "its device is back" : "the daemon is restarted");
	c->netdevs[rail_idx].is_gone = true;
	/* Nothing more that counts comes from there, but an error without end may; its removal has another. */
	if (e->kind == RAIL_EVENT_DEVICE_FATAL)
		io_watch(c, &c->devices[rail_idx].io[0].io, 0);
	if (is_removed)
		leave(c, rail_idx);
}

static void leave(struct conn *c, uint16_t rail_idx)
{
	struct rdma_device *d = &c->devices[rail_idx];

	c->away |= 1u << rail_idx;
	if (d->step == DEVICE_OPEN)
		d->step = DEVICE_LEAVING;
	else if (d->step == DEVICE_MADE) /* its lcore does not know of it */
		d->step = DEVICE_LET_GO;
	else if (d->step == DEVICE_GIVEN) /* it may begin with it at any time: that comes first */
		d->is_leaving = true;
}

/* A port that is back means new QPs, a PING, then data; never just the old ones again. */
static void wake(struct conn *c, uint16_t rail_idx, const struct rail_event *e)
{
	news_rail(c, rail_idx, "%s", e->text);
	rail_read_link(c->deps.rails[rail_idx]);
	links_drop(c, rail_idx, e->text);
	diallers_wake(c, rail_idx);
}

static void lose_qp(struct conn *c, const struct rail_event *e)
{
	for (uint32_t i = 0; i < c->n_live; i++) {
		struct link *l = &c->links[c->live[i]];

		for (uint16_t k = 0; k < l->pair.n_qps; k++) {
			if (l->pair.qps[k] != e->qp || l->state > LINK_UP)
				continue;
			link_condemn(c, l, RAIL_EV_PEER, RY_ERR_RAIL, "%s", e->text);
			return;
		}
	}
}

/* ---- removal ---- */

bool devices_step(struct conn *c)
{
	struct device_job *job;
	bool did = false;

	while (c->away && (job = spsc_pop(c->deps.from_work))) {
		found(c, job);
		did = true;
	}
	for (uint32_t left = c->away; left; left &= left - 1)
		did |= step(c, (uint16_t)__builtin_ctz(left));
	return did;
}

static bool step(struct conn *c, uint16_t rail_idx)
{
	const struct rdma_device *d = &c->devices[rail_idx];
	bool is_detached = rail_is_detached(c->deps.rails[rail_idx]);

	switch (d->step) {
	case DEVICE_LEAVING:
		return !has_qps(c, rail_idx) && ask_lcore(c, rail_idx, rail_detach, DEVICE_LET_GO);
	case DEVICE_LET_GO:
		if (is_detached)
			close_device(c, rail_idx);
		return is_detached;
	case DEVICE_CLOSED:
		if (c->now_ns < d->look_ns)
			return false;
		look(c, rail_idx);
		return true;
	case DEVICE_MADE:
		return ask_lcore(c, rail_idx, rail_attach, DEVICE_GIVEN);
	case DEVICE_GIVEN:
		if (!is_detached)
			taken_up(c, rail_idx);
		return !is_detached;
	default:
		return false;
	}
}

static bool has_qps(const struct conn *c, uint16_t rail_idx)
{
	for (uint32_t i = 0; i < c->n_live; i++) {
		const struct link *l = &c->links[c->live[i]];

		for (unsigned k = 0; l->pair.rail_idx == rail_idx && k < PAIR_QPS_MAX; k++)
			if (l->pair.qps[k])
				return true;
	}
	return false;
}

static bool ask_lcore(struct conn *c, uint16_t rail_idx, int (*ask)(struct rail *rail), enum device_step next)
{
	if (ask(c->deps.rails[rail_idx]) < 0) {
		c->want_retry = true;
		return false;
	}
	c->devices[rail_idx].step = (uint8_t)next;
	return true;
}

/* The removal waits until this process has closed the device. Its lcore went first: it polls the completion queue. */
static void close_device(struct conn *c, uint16_t rail_idx)
{
	struct rail *rail = c->deps.rails[rail_idx];
	struct rdma_device *d = &c->devices[rail_idx];

	for (int k = 0; k < 2; k++) {
		if (d->io[k].io.fd >= 0)
			io_watch(c, &d->io[k].io, 0);
		d->io[k].io.fd = -1;
	}
	rail_ops(rail)->detach(rail);
	log_warn("rail %s: its RDMA device is closed", conn_rail_conf(c, rail_idx)->name);
	d->step = DEVICE_CLOSED;
	d->pause_ns = first_pause_ns(c);
	d->look_ns = c->now_ns + d->pause_ns;
}

/* ---- return ---- */

static uint64_t first_pause_ns(const struct conn *c)
{
	uint64_t reconnect_ns = c->deps.config->reconnect_ns;

	return reconnect_ns > LOOK_NS ? reconnect_ns : LOOK_NS;
}

uint64_t devices_next_timer(const struct conn *c)
{
	uint64_t next = UINT64_MAX;

	for (uint32_t left = c->away; left; left &= left - 1) {
		const struct rdma_device *d = &c->devices[__builtin_ctz(left)];

		if (d->step == DEVICE_CLOSED && d->look_ns < next)
			next = d->look_ns;
	}
	return next;
}

void device_look(struct conn *c, uint16_t rail_idx)
{
	struct rdma_device *d = &c->devices[rail_idx];

	d->look_ns = c->now_ns;
	d->pause_ns = first_pause_ns(c);
}

static void look(struct conn *c, uint16_t rail_idx)
{
	struct rdma_device *d = &c->devices[rail_idx];
	bool is_taken;

	d->job = (struct device_job){
		.rail = c->deps.rails[rail_idx],
		.rail_idx = rail_idx,
		.read_min_bytes = c->deps.config->segment_bytes + PLAN_PIECE_SLACK,
	};
	d->step = DEVICE_SOUGHT;
	is_taken = spsc_push(c->deps.to_work, &d->job);
	assert(is_taken);
	(void)is_taken;
	waker_kick(c->deps.work_waker);
}

/* Watched from here on: it may have been asked to leave already. */
static void found(struct conn *c, const struct device_job *job)
{
	if (job->status) {
		not_found(c, job);
		return;
	}
	c->devices[job->rail_idx].step = DEVICE_MADE;
	c->netdevs[job->rail_idx].is_gone = false;
	watch(c, job->rail_idx);
}

/* Told once for each reason. */
static void not_found(struct conn *c, const struct device_job *job)
{
	const char *name = conn_rail_conf(c, job->rail_idx)->name;
	uint64_t hash = XXH3_64bits(job->why, strlen(job->why)), most_ns = first_pause_ns(c);
	struct rdma_device *d = &c->devices[job->rail_idx];

	if (hash != d->told && job->status == -ENODEV)
		log_info("rail %s: its RDMA device is looked for: %s", name, job->why);
	else if (hash != d->told)
		log_warn("rail %s: its RDMA device is there, but is not used: %s", name, job->why);
	d->told = hash;
	most_ns = most_ns > LOOK_NS_MAX ? most_ns : LOOK_NS_MAX;
	d->pause_ns = d->pause_ns * 2 < most_ns ? d->pause_ns * 2 : most_ns;
	d->look_ns = c->now_ns + d->pause_ns;
	d->step = DEVICE_CLOSED;
}

static void taken_up(struct conn *c, uint16_t rail_idx)
{
	struct rdma_device *d = &c->devices[rail_idx];

	d->step = d->is_leaving ? DEVICE_LEAVING : DEVICE_OPEN;
	d->is_leaving = false;
	d->told = 0;
	if (d->step != DEVICE_OPEN)
		return;
	c->away &= ~(1u << rail_idx);
	/* It may have died meanwhile. */
	if (c->netdevs[rail_idx].is_gone)
		return;
	log_info("rail %s: its RDMA device is back: %s", conn_rail_conf(c, rail_idx)->name, d->job.why);
	rail_read_link(c->deps.rails[rail_idx]);
	diallers_wake(c, rail_idx);
}
