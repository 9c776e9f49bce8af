/* SPDX-License-Identifier: BSD-3-Clause */
/* RDMA devices of rails: what they have to say, and their removal. */
#include "daemon/conn_priv.h"

#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

#include "daemon/log.h"

static void take_event(struct conn *c, uint16_t rail_idx, const struct rail_event *e);
static void lose_qp(struct conn *c, const struct rail_event *e);
static void wake(struct conn *c, uint16_t rail_idx, const struct rail_event *e);
static bool leave(struct conn *c, uint16_t rail_idx);
static bool has_qps(const struct conn *c, uint16_t rail_idx);

void devices_watch(struct conn *c)
{
	for (uint16_t i = 0; i < c->deps.config->n_rails; i++) {
		struct rail *rail = c->deps.rails[i];
		int fds[2], n = rail_ops(rail)->event_fds(rail, fds);

		for (int k = 0; k < 2; k++) {
			struct device_io *d = &c->devices[i][k];

			*d = (struct device_io){.io = {.kind = IO_DEVICE, .fd = k < n ? fds[k] : -1}, .rail_idx = i};
			if (k < n)
				io_watch(c, &d->io, EPOLLIN);
		}
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
	const char *name = conn_rail_conf(c, rail_idx)->name;
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
		if (!c->netdevs[rail_idx].is_gone)
			log_error("rail %s: %s: it is out of use until the daemon is restarted", name, e->text);
		c->netdevs[rail_idx].is_gone = true;
		c->leaving |= e->kind == RAIL_EVENT_REMOVED ? 1u << rail_idx : 0;
		/* Nothing more that counts comes from there, but an error without end may; its removal has another. */
		if (e->kind == RAIL_EVENT_DEVICE_FATAL)
			io_watch(c, &c->devices[rail_idx][0].io, 0);
		links_drop(c, rail_idx, cause);
		break;
	}
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

bool devices_step(struct conn *c)
{
	bool did = false;

	for (uint32_t left = c->leaving; left; left &= left - 1)
		did |= leave(c, (uint16_t)__builtin_ctz(left));
	return did;
}

/* The removal waits until this process has closed the device. Its lcore goes first: it polls the completion queue. */
static bool leave(struct conn *c, uint16_t rail_idx)
{
	struct rail *rail = c->deps.rails[rail_idx];
	uint32_t bit = 1u << rail_idx;

	if (!(c->let_go & bit)) {
		if (has_qps(c, rail_idx))
			return false;
		if (rail_detach(rail) < 0) {
			c->want_retry = true;
			return false;
		}
		c->let_go |= bit;
		return true;
	}
	if (!rail_is_detached(rail))
		return false;
	for (int k = 0; k < 2; k++) {
		if (c->devices[rail_idx][k].io.fd >= 0)
			io_watch(c, &c->devices[rail_idx][k].io, 0);
		c->devices[rail_idx][k].io.fd = -1;
	}
	rail_ops(rail)->detach(rail);
	c->leaving &= ~bit;
	log_warn("rail %s: its RDMA device is closed", conn_rail_conf(c, rail_idx)->name);
	return true;
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
