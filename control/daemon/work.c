/* SPDX-License-Identifier: BSD-3-Clause */
#include "daemon/work.h"

#include "rail/rail_ctl.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>

static bool work_for_api(struct work *w);
static bool work_for_conn(struct work *w);
static bool has_jobs(const struct work *w);
static void do_job(struct work_job *job);
static void do_device(struct work *w, struct device_job *job);
static int check_reads(struct device_job *job);

bool work_poll(struct work *w)
{
	bool did = work_for_api(w);

	return work_for_conn(w) || did;
}

static bool work_for_api(struct work *w)
{
	struct work_job *job;
	bool did = false;

	while ((job = spsc_pop(w->from_api))) {
		do_job(job);
		/* The rings hold as many jobs as api has sessions, so this push cannot fail. */
		spsc_push(w->to_api, job);
		waker_kick(w->api_waker);
		did = true;
	}
	return did;
}

static bool work_for_conn(struct work *w)
{
	struct device_job *job;
	bool did = false;

	while (w->from_conn && (job = spsc_pop(w->from_conn))) {
		do_device(w, job);
		spsc_push(w->to_conn, job); /* it has room for one of each rail */
		waker_kick(w->conn_waker);
		did = true;
	}
	return did;
}

void work_run(struct work *w, const uint32_t *stop)
{
	struct pollfd p = {.fd = w->waker->event_fd, .events = POLLIN};

	while (!__atomic_load_n(stop, __ATOMIC_RELAXED)) {
		if (work_poll(w))
			continue;
		waker_prepare(w->waker);
		/* Relaxed: whoever stops us kicks the waker afterwards, and the fence of that pair orders the two. */
		if (!has_jobs(w) && !__atomic_load_n(stop, __ATOMIC_RELAXED))
			poll(&p, 1, -1);
		waker_cancel(w->waker);
	}
	/* Clients are still destroyed; a device would be opened only to be closed. */
	work_for_api(w);
}

static bool has_jobs(const struct work *w)
{
	return !spsc_is_empty(w->from_api) || (w->from_conn && !spsc_is_empty(w->from_conn));
}

static void do_job(struct work_job *job)
{
	if (job->op == WORK_DESTROY_CLIENT) {
		client_destroy(job->client);
		job->client = NULL;
		job->status = 0;
		return;
	}
	job->message[0] = '\0';
	job->conf.want_stop = &job->want_stop;
	job->status = client_create(&job->conf, job->message, sizeof(job->message), &job->client);
}

/* Clients come and go by jobs of the same thread: none of their arenas is missed, and none goes meanwhile. */
static void do_device(struct work *w, struct device_job *job)
{
	const struct transport_ops *ops = rail_ops(job->rail);

	job->status = ops->attach(job->rail);
	snprintf(job->why, sizeof(job->why), "%s", rail_why(job->rail));
	if (job->status)
		return;
	job->status = check_reads(job);
	if (job->status == 0) {
		job->status = region_register_on(w->regions, job->rail_idx);
		if (job->status)
			snprintf(job->why, sizeof(job->why), "not all of our memory can be registered on it: %s",
				region_why(w->regions, job->status));
	}
	if (job->status)
		ops->detach(job->rail);
}

static int check_reads(struct device_job *job)
{
	uint64_t can = rail_attr(job->rail)->read_max_bytes;

	if (!can || job->read_min_bytes <= can)
		return 0;
	snprintf(job->why, sizeof(job->why),
		"its device moves at most %" PRIu64 " bytes at once (max_msg_sz), and segments have up to %" PRIu64,
		can, job->read_min_bytes);
	return -ENOTSUP;
}
