/* SPDX-License-Identifier: BSD-3-Clause */
/* A device that leaves and comes back: in which order its rail lets go of it and takes it up. The test is the work
 * thread. */
#include "conn_fixture.h"

#include "../support/capture.h"
#include "daemon/conn_priv.h"
#include "read/plan.h"

#define BACK "its RDMA device is back: dev0"

static struct node a, b;
static struct rail_event pending;
static int n_closed;
static struct device_job *job; /* the last one that conn asked for */
static int n_jobs;

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

static void take_jobs(void)
{
	struct device_job *got = spsc_pop(a.to_work);

	if (got)
		job = got;
	n_jobs += got != NULL;
}

static void pass_time(void)
{
	for (int i = 0; i < 20; i++) {
		now_ns += SEC;
		turns(&a, &b, 20);
		take_jobs();
	}
}

/* Its pairs are gone and it is closed. */
static void remove_device(void)
{
	int n = n_closed;

	say(RAIL_EVENT_REMOVED);
	until(&a, &b, a.rails[0].is_detach_asked && !a.rails[0].n_qps);
	a.rails[0].is_detached = true;
	until(&a, &b, n_closed == n + 1);
	a.rails[0].is_detach_asked = a.rails[0].is_attach_asked = false;
}

/* Until the work thread is asked; the seconds that it took. */
static unsigned secs_to_job(void)
{
	unsigned secs = 0;

	for (job = NULL; !job && secs < 100; secs++) {
		now_ns += SEC;
		turns(&a, &b, 5);
		take_jobs();
	}
	return secs;
}

static void answer(int status, const char *why)
{
	cr_assert(job && job->rail == &a.rails[0] && job->rail_idx == 0);
	job->status = status;
	snprintf(job->why, sizeof(job->why), "%s", why);
	cr_assert(spsc_push(a.from_work, job));
	job = NULL;
	turns(&a, &b, 1);
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
	cr_assert_eq(n_jobs, 0, "it is looked for while it is open");
	a.rails[0].is_detached = true;
	until(&a, &b, n_closed == 1);
	pass_time();
	cr_assert(a.n_up == 1 && n_closed == 1, "it is dialled again, or closed again");
	cr_assert(n_jobs == 1 && job, "the work thread has not answered: %d jobs", n_jobs);
	node_stop(&a);
	node_stop(&b);
}

/* Its port is up, its regions are there, its lcore has it: only then it is dialled, and accepts. */
Test(conn_device, comes_back_and_is_used)
{
	int n_link_reads;

	bring_up(&a, &b);
	remove_device();
	secs_to_job();
	cr_assert_eq(job->read_min_bytes, a.conf.segment_bytes + PLAN_PIECE_SLACK, "%lu",
		(unsigned long)job->read_min_bytes);
	pass_time();
	cr_assert(!a.rails[0].is_attach_asked && a.n_up == 1 && n_jobs == 1);
	n_link_reads = a.rails[0].n_link_reads;
	a.rails[0].is_full = true;
	answer(0, "dev0");
	turns(&a, &b, 20);
	cr_assert_not(a.rails[0].is_attach_asked);
	a.rails[0].is_full = false;
	until(&a, &b, a.rails[0].is_attach_asked);
	pass_time();
	cr_assert(a.n_up == 1 && a.rails[0].n_qps == 0, "its lcore has not answered");
	a.rails[0].is_detached = false;
	until(&a, &b, a.n_up == 2 && b.n_up == 2);
	cr_assert_eq(a.rails[0].n_link_reads, n_link_reads + 1, "its link may be another");
	cr_assert_eq(n_closed, 1);
	pass_time();
	cr_assert(a.n_up == 2 && n_jobs == 1 && !a.rails[0].is_detach_asked);
	remove_device();
	cr_assert(n_closed == 2 && secs_to_job() == 1, "and once more");
	node_stop(&a);
	node_stop(&b);
}

Test(conn_device, is_looked_for_less_and_less_often_and_at_once_when_its_netdev_is_up)
{
	static const unsigned pauses[] = {1, 2, 4, 8, 8, 8};

	bring_up(&a, &b);
	remove_device();
	for (size_t i = 0; i < sizeof(pauses) / sizeof(pauses[0]); i++) {
		cr_assert_eq(secs_to_job(), pauses[i], "pause %zu", i);
		answer(-ENODEV, "it is not there");
		cr_assert_eq(
			conn_next_timer(a.conn), now_ns + (i < 3 ? pauses[i + 1] : 8) * SEC, "it does not wake up");
	}
	device_look(a.conn, 0);
	turns(&a, &b, 1);
	take_jobs();
	answer(-ENODEV, "it is not there");
	cr_assert_eq(secs_to_job(), 2);
	device_look(a.conn, 0);
	turns(&a, &b, 5);
	cr_assert_null(spsc_pop(a.to_work), "one at a time");
	node_stop(&a);
	node_stop(&b);
}

/* At each step of its way back. */
Test(conn_device, leaves_again_while_it_is_taken_up)
{
	log_set_level(LOG_LEVEL_ERROR);
	bring_up(&a, &b);
	remove_device();
	/* Its lcore cannot be told yet. */
	secs_to_job();
	a.rails[0].is_full = true;
	answer(0, "dev0");
	say(RAIL_EVENT_REMOVED);
	a.rails[0].is_full = false;
	until(&a, &b, n_closed == 2);
	cr_assert(!a.rails[0].is_attach_asked && !a.rails[0].is_detach_asked, "its lcore was told of a closed device");
	/* It was told, and begins with it only now. */
	cr_assert_eq(secs_to_job(), 1);
	answer(0, "dev0");
	until(&a, &b, a.rails[0].is_attach_asked);
	say(RAIL_EVENT_REMOVED);
	pass_time();
	cr_assert(n_closed == 2 && !a.rails[0].is_detach_asked, "it is closed while its lcore begins to poll it");
	a.rails[0].is_detached = false;
	until(&a, &b, a.rails[0].is_detach_asked);
	pass_time();
	cr_assert_eq(n_closed, 2);
	a.rails[0].is_detached = true;
	until(&a, &b, n_closed == 3);
	cr_assert_eq(a.n_up, 1);
	/* And at last it stays. */
	secs_to_job();
	answer(0, "dev0");
	turns(&a, &b, 5);
	a.rails[0].is_detached = false;
	until(&a, &b, a.n_up == 2 && b.n_up == 2);
	node_stop(&a);
	node_stop(&b);
}

Test(conn_device, dies_while_it_is_taken_up_and_is_out_of_use)
{
	log_set_level(LOG_LEVEL_ERROR);
	bring_up(&a, &b);
	remove_device();
	secs_to_job();
	answer(0, "dev0");
	say(RAIL_EVENT_DEVICE_FATAL);
	a.rails[0].is_detached = false;
	pass_time();
	cr_assert(a.n_up == 1 && n_closed == 1 && a.rails[0].n_qps == 0);
	node_stop(&a);
	node_stop(&b);
}

static void refuse(void)
{
	log_set_level(LOG_LEVEL_INFO);
	remove_device();
	for (int i = 0; i < 4; i++) {
		secs_to_job();
		answer(-ENODEV, "no RDMA device has it");
	}
	for (int i = 0; i < 4; i++) {
		secs_to_job();
		answer(-ENOTSUP, "max_cqe is 319, needed are 336");
	}
	secs_to_job();
	answer(0, "dev0");
	turns(&a, &b, 5);
	a.rails[0].is_detached = false;
	turns(&a, &b, 5);
}

static int count(const char *text, const char *what)
{
	int n = 0;

	for (; (text = strstr(text, what)); text++)
		n++;
	return n;
}

Test(conn_device, comes_back_with_too_small_limits_is_refused_once)
{
	static char text[8192];

	bring_up(&a, &b);
	capture(refuse, text, sizeof(text));
	cr_assert_eq(count(text, "rail r0: its RDMA device is looked for: no RDMA device has it"), 1, "%s", text);
	cr_assert_eq(count(text, "rail r0: its RDMA device is there, but is not used: max_cqe is 319"), 1, "%s", text);
	cr_assert_eq(count(text, "it is out of use until its device is back"), 1, "%s", text);
	cr_assert_eq(count(text, BACK), 1, "%s", text);
	cr_assert(strstr(text, BACK) > strstr(text, "max_cqe"));
	node_stop(&a);
	node_stop(&b);
}

Test(conn_device, fatal_takes_it_out_but_stays_open)
{
	bring_up(&a, &b);
	say(RAIL_EVENT_DEVICE_FATAL);
	until(&a, &b, a.n_down == 1 && b.n_down == 1);
	pass_time();
	cr_assert(a.n_up == 1 && !a.rails[0].is_detach_asked && !n_closed && !n_jobs);
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
