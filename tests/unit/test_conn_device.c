/* SPDX-License-Identifier: BSD-3-Clause */
/* A device that leaves: in which order its rail lets go of it. */
#include "conn_fixture.h"

#include "daemon/conn_priv.h"

static struct node a, b;
static struct rail_event pending;
static int n_closed;

static bool next_event(struct rail *rail, struct rail_event *out)
{
	(void)rail;
	*out = pending;
	pending.kind = RAIL_EVENT_NONE;
	return out->kind != RAIL_EVENT_NONE;
}

static void close_device(struct rail *rail)
{
	cr_assert(rail->is_detached, "its lcore still polls it");
	cr_assert_eq(rail->n_qps, 0);
	n_closed++;
}

static void say(enum rail_event_kind kind)
{
	const struct device_io d = {.rail_idx = 0};

	a.rails[0].ops.event_next = next_event;
	a.rails[0].ops.detach = close_device;
	pending = (struct rail_event){.kind = (uint8_t)kind, .text = "dev0: it leaves"};
	device_ready(a.conn, &d);
}

static void pass_time(void)
{
	for (int i = 0; i < 20; i++) {
		now_ns += SEC;
		turns(&a, &b, 20);
	}
}

Test(conn_device, removed_is_closed_when_nothing_of_it_is_used_any_more)
{
	log_set_level(LOG_LEVEL_ERROR);
	bring_up(&a, &b);
	a.is_slow_to_quiesce = true;
	say(RAIL_EVENT_REMOVED);
	until(&a, &b, a.n_down == 1 && b.n_down == 1);
	cr_assert_str_eq(a.down_cause, "dev0: it leaves");
	pass_time();
	cr_assert(!a.rails[0].is_detach_asked, "its QPs are not released yet");
	a.rails[0].is_full = true;
	control_quiesce(&a);
	a.is_slow_to_quiesce = false;
	turns(&a, &b, 50);
	a.rails[0].is_full = false;
	until(&a, &b, a.rails[0].is_detach_asked && !a.rails[0].n_qps);
	pass_time();
	cr_assert_eq(n_closed, 0, "the lcore has not answered");
	a.rails[0].is_detached = true;
	until(&a, &b, n_closed == 1);
	pass_time();
	cr_assert(a.n_up == 1 && n_closed == 1, "it is dialled again, or closed again");
	node_stop(&a);
	node_stop(&b);
}

Test(conn_device, fatal_takes_it_out_but_stays_open)
{
	bring_up(&a, &b);
	say(RAIL_EVENT_DEVICE_FATAL);
	until(&a, &b, a.n_down == 1 && b.n_down == 1);
	pass_time();
	cr_assert(a.n_up == 1 && !a.rails[0].is_detach_asked && !n_closed);
	node_stop(&a);
	node_stop(&b);
}

/* Dialled by others, it makes no QP any more. */
Test(conn_device, a_rail_without_device_accepts_nobody)
{
	bring_up(&a, &b);
	a.rails[0].attr.has_addresses = true;
	a.conn->netdevs[0].is_gone = true;
	links_drop(a.conn, 0, "gone");
	until(&a, &b, a.n_down == 1 && !a.rails[0].n_qps);
	pass_time();
	cr_assert_eq(a.rails[0].n_qps, 0);
	a.rails[0].attr.has_addresses = false;
	node_stop(&a);
	node_stop(&b);
}
