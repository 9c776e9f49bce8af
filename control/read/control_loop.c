/* SPDX-License-Identifier: BSD-3-Clause */
/* control_poll: what the control lcore does, in order; and its thread body. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include <rte_pause.h>

#include "daemon/numa.h"
#include "read/control_priv.h"

#define EVENTS_MAX 64 /* of one sleep: all say the same, and each is told once */

static unsigned housekeeping(struct control *c);
static void shutdown_step(struct control *c);
static void kick(struct control *c);
static void control_sleep(struct control *c);
static bool has_input(struct control *c);

int control_create(const struct control_deps *deps, struct control **out)
{
	struct control *c = calloc(1, sizeof(*c));
	struct rail_map_error err;
	int rc;

	if (!c)
		return -ENOMEM;
	c->d = *deps;
	c->config = deps->config;
	c->counters = deps->counters;
	c->n_rails = deps->config->n_rails;
	c->limits = limits_of(deps->config);
	c->next_deadline_ns = UINT64_MAX;
	rc = health_init(&c->health, deps->config, &err);
	rc = rc ? rc : tables_create(c);
	if (rc) {
		control_destroy(c);
		return rc;
	}
	for (uint16_t i = 0; i < c->n_rails; i++) {
		const struct rail_conf *conf = &c->config->rails[i];

		c->rails[i].rail = deps->rails[i];
		c->rails[i].numa_node =
			conf->numa_node >= 0 ? conf->numa_node : numa_of_netdev(conf->netdev, conf->address);
	}
	estimate_init(c);
	peers_init(c);
	*out = c;
	return 0;
}

void control_destroy(struct control *c)
{
	if (!c)
		return;
	tables_destroy(c);
	free(c);
}

bool control_poll(struct control *c, uint64_t now_ns)
{
	unsigned n;

	if (unlikely(!c->now_ns))
		health_begin(&c->health, now_ns);
	c->now_ns = now_ns;
	n = aggregate(c);
	n += meta_take(c);
	n += api_take(c);
	n += rings_take(c);
	n += meta_pump(c);
	if (unlikely(c->n_admit_waiting))
		n += admit_pump(c);
	n += hand_out(c);
	if (now_ns >= c->housekeeping_at_ns)
		n += housekeeping(c);
	kick(c);
	stat_add(n ? &c->counters->turns_busy : &c->counters->turns_idle, 1);
	return n != 0;
}

static unsigned housekeeping(struct control *c)
{
	unsigned n = put_poll_quiet(c);

	c->housekeeping_at_ns = c->now_ns + HOUSEKEEPING_NS;
	if (c->now_ns >= c->next_deadline_ns)
		c->next_deadline_ns = ops_expire(c);
	if (c->d.store && store_housekeep(c->d.store, c->now_ns))
		n++;
	n += path_scan(c); /* what came in now may let more out: another turn */
	slow_run(c);
	prober_run(c);
	endpoints_run(c);
	put_serve_housekeep(c);
	rings_reap_detached(c);
	if (c->shutdown) {
		shutdown_step(c);
		n += c->want_stop; /* or control_run would sleep on it */
	}
	stat_set(&c->counters->inflight_bytes, c->inflight_bytes);
	stat_set(&c->counters->inflight_reads, c->inflight_reads);
	if (c->d.store) {
		stat_set(&c->counters->objects, store_n_objects(c->d.store));
		stat_set(&c->counters->store_bytes, store_used_bytes(c->d.store));
	}
	stat_add(&c->counters->heartbeat, 1);
	return n;
}

/* Drain: nothing new is taken (rings_take looks at c->shutdown); what runs may finish until the deadline, then it is
 * cancelled. */
static void shutdown_step(struct control *c)
{
	bool is_over = c->now_ns >= c->shutdown_deadline_ns;
	bool is_idle = true;

	for (uint32_t i = 0; i < c->n_live; i++) {
		struct client_state *cs = c->live[i];
		struct op *op, *next;

		for (op = TAILQ_FIRST(&cs->ops); is_over && op; op = next) {
			next = TAILQ_NEXT(op, link);
			op_abort(c, op, RY_ERR_CANCELLED);
		}
		is_idle &= !cs->n_ops && !cs->n_xfers;
	}
	/* Ten fence time-outs more than the deadline is enough for every cancelled segment to come back; then we go all
	 * the same. */
	if (!is_idle && c->now_ns < c->shutdown_deadline_ns + 10 * c->config->fence_timeout_ns)
		return;
	spsc_push(c->d.to_api, c->shutdown);
	waker_kick(c->d.api_waker);
	c->shutdown = NULL;
	c->want_stop = true;
}

static void kick(struct control *c)
{
	hand_out_kick(c);
	rings_wake(c);
	if (c->want_conn_kick)
		waker_kick(c->d.conn_waker);
	if (c->want_api_kick)
		waker_kick(c->d.api_waker);
	c->want_conn_kick = c->want_api_kick = false;
}

uint64_t control_next_timer(const struct control *c)
{
	uint64_t at = c->next_deadline_ns;
	bool want_tick = c->shutdown || !TAILQ_EMPTY(&c->send_queue) || c->n_quieting || c->n_put_waits ||
			 (c->want_admit && c->n_admit_waiting);
	const struct xfer *x;
	bool is_moving = false;

	for (uint32_t i = 0; !want_tick && i < c->n_live; i++)
		want_tick = c->live[i]->detach != NULL;
	if (c->d.store && store_due_ns(c->d.store) < c->housekeeping_at_ns)
		want_tick = true;
	else if (c->d.store)
		at = RTE_MIN(at, store_due_ns(c->d.store));
	TAILQ_FOREACH (x, &c->active, work)
		want_tick |= x->orphans || !x->n_out;
	if (want_tick && c->housekeeping_at_ns < at)
		at = c->housekeeping_at_ns;
	TAILQ_FOREACH (x, &c->used_xfers, link)
		is_moving |= x->n_out != 0;
	if (is_moving && c->deadline_scan_ns < at)
		at = c->deadline_scan_ns;
	at = RTE_MIN(at, prober_due_ns(c));
	at = RTE_MIN(at, slow_due_ns(c));
	at = RTE_MIN(at, endpoints_due_ns(c));
	if (c->n_putins && c->now_ns + 1000000000 < at)
		at = c->now_ns + 1000000000; /* idle puts expire */
	return at;
}

void control_run(struct control *c)
{
	uint64_t idle_since_ns = 0;

	while (!c->want_stop) {
		uint64_t now_ns = clock_ns();

		if (control_poll(c, now_ns)) {
			idle_since_ns = 0;
			continue;
		}
		if (!idle_since_ns)
			idle_since_ns = now_ns;
		if (c->d.spin_ns == UINT64_MAX || now_ns - idle_since_ns < c->d.spin_ns) {
			rte_pause();
			continue;
		}
		control_sleep(c);
		idle_since_ns = 0;
	}
}

static void control_sleep(struct control *c)
{
	struct epoll_event events[EVENTS_MAX];
	uint64_t at = control_next_timer(c);
	int timeout_ms = -1;

	waker_prepare(c->d.waker);
	rings_want_wakeup(c, true);
	if (!has_input(c)) {
		if (at != UINT64_MAX)
			timeout_ms = at <= c->now_ns ? 0 : (int)((at - c->now_ns + 999999) / 1000000);
		stat_add(&c->counters->sleeps, 1);
		epoll_wait(c->d.set_fd, events, EVENTS_MAX, timeout_ms);
	}
	rings_want_wakeup(c, false);
	waker_cancel(c->d.waker);
}

/* The second look after announcing sleep; waker_prepare's fence stands before it. */
static bool has_input(struct control *c)
{
	if (!spsc_is_empty(c->d.from_conn) || !spsc_is_empty(c->d.from_api) || rings_pending(c))
		return true;
	for (uint16_t i = 0; i < c->n_rails; i++) {
		if (rail_has_events(c->rails[i].rail))
			return true;
	}
	return false;
}
