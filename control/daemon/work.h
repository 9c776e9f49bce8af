/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The work thread: jobs that take milliseconds (memfds, page zeroing, registration), one after the other, asked for by
 * the api thread (clients) and by conn (devices that were removed and may be back).
 *
 * A job belongs to the work thread from the push on its ring until it comes back on the other. work_poll does what is
 * queued and never waits, so that a test runs it in turn; work_run sleeps on the waker between jobs.
 */
#ifndef RY_WORK_H
#define RY_WORK_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

#include "daemon/client.h"
#include "sync/sync.h"

#ifdef __cplusplus
extern "C" {
#endif

enum work_op {
	WORK_CREATE_CLIENT = 1,  /* conf -> client, or status and message */
	WORK_DESTROY_CLIENT = 2, /* client; always succeeds */
};

struct work_job {
	uint8_t op; /* enum work_op */
	int status; /* 0 or -errno */
	struct client_conf conf;
	struct client *client;
	char message[256];
	uint32_t want_stop; /* CREATE: api says that nobody wants it any more; the one word it may write */
	void *api_ctx;      /* api's own */
};

#define DEVICE_JOBS 64u /* of each ring: more than there are rails, and each has one job */
static_assert(DEVICE_JOBS > RY_RAILS_MAX, "rings never fill");

/* The device of a rail is looked for and opened, and what is registered now is registered on it: all of it, or the
 * device is closed again. */
struct device_job {
	struct rail *rail;
	uint16_t rail_idx;
	uint64_t read_min_bytes; /* that it must move at once */
	/* the answer */
	int status;    /* 0, -ENODEV: it is not there, or another -errno: it is of no use */
	char why[512]; /* the same in words; 0: its name */
};

struct work {
	struct rte_ring *from_api;
	struct rte_ring *to_api;
	struct waker *waker;
	struct waker *api_waker;
	/* conn's, struct device_job; NULL: nobody asks */
	struct rte_ring *from_conn;
	struct rte_ring *to_conn;
	struct waker *conn_waker;
	struct region_set *regions;
};

/* Does every queued job; returns whether there was one. */
bool work_poll(struct work *w);
/* Thread body: until *stop is set and the waker kicked. Of what is queued then, api's jobs are still done, devices not.
 */
void work_run(struct work *w, const uint32_t *stop);

#ifdef __cplusplus
}
#endif
#endif
