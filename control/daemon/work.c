/* SPDX-License-Identifier: BSD-3-Clause */
#include "daemon/work.h"

#include <poll.h>

static void do_job(struct work_job *job);

bool work_poll(struct work *w)
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

void work_run(struct work *w, const uint32_t *stop)
{
	struct pollfd p = {.fd = w->waker->event_fd, .events = POLLIN};

	while (!__atomic_load_n(stop, __ATOMIC_RELAXED)) {
		if (work_poll(w))
			continue;
		waker_prepare(w->waker);
		/* Relaxed: whoever stops us kicks the waker afterwards, and the fence of that pair orders the two. */
		if (spsc_is_empty(w->from_api) && !__atomic_load_n(stop, __ATOMIC_RELAXED))
			poll(&p, 1, -1);
		waker_cancel(w->waker);
	}
	work_poll(w);
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
