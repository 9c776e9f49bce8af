/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The control lcore: client rings -> admit -> lookup -> plan -> hand out -> aggregate -> commit, and the store's index.
 *
 * One thread runs control_poll; it neither allocates, nor logs per operation, nor blocks. Other threads reach it by
 * ring only. Reads of its counters and gauges are relaxed and allowed from any thread.
 */
#ifndef RY_CONTROL_H
#define RY_CONTROL_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/client.h"
#include "daemon/config.h"
#include "daemon/msg.h"
#include "rail/rail_ctl.h"
#include "store/store.h"

#ifdef __cplusplus
extern "C" {
#endif

struct journal;
struct recorder;
struct control; /* opaque; control/read/control_priv.h */

struct control_deps {
	const struct config *config;
	uint64_t node_id;
	uint64_t incarnation;
	struct rail **rails;
	struct source_table *sources;
	struct store *store;      /* NULL without the store role */
	struct rte_ring *to_conn; /* control produces */
	struct rte_ring *from_conn;
	struct rte_ring *to_api;
	struct rte_ring *from_api;
	struct waker *waker; /* control's own */
	struct waker *conn_waker;
	struct waker *api_waker;
	struct control_counters *counters;
	struct journal *journal; /* control writes, api reads */
	struct recorder *recorder; /* control writes, api reads */
	uint64_t spin_ns;
	int socket_id;
};

int control_create(const struct control_deps *deps, struct control **out);
void control_destroy(struct control *c);
/* One turn; returns whether anything was done. */
bool control_poll(struct control *c, uint64_t now_ns);
/* The loop, on the main lcore, until MSG_API shutdown has been served. */
void control_run(struct control *c);
/* Earliest timer; UINT64_MAX = none. */
uint64_t control_next_timer(const struct control *c);

/* ---- api <-> control ---- */
enum api_op {
	API_ATTACH = 1,   /* client = a new one; answered at once, status tells */
	API_DETACH = 2,   /* client's connection closed; answered when control has let go of it (after DONE or fence of
			     all its segments) */
	API_SHUTDOWN = 3, /* refuse new work, finish or cancel within drain_ns, then answer and end control_run */
	API_PLAN = 4,     /* explain: size_bytes, stripe_bytes, offset, length -> plan */
	API_RAIL_INFO = 5 /* per rail: eligible pairs, depth, goodput -> rails */
};

struct api_rail_info {
	uint64_t depth_bytes; /* current limit */
	uint64_t inflight_bytes;
	uint64_t goodput_bytes_per_s; /* EWMA, 0 = no sample */
	uint64_t latency_ns;          /* EWMA of DONE latency */
	uint32_t pairs_up;
};

struct api_plan_rail {
	uint64_t bytes;
	uint32_t segments;
	uint32_t stripes;
};

struct api_call {
	struct msg m; /* MSG_API */
	uint8_t op;   /* enum api_op */
	uint32_t status;
	struct client *client;
	uint64_t size_bytes;
	uint64_t offset;
	uint64_t length;
	uint32_t stripe_bytes;
	uint16_t store_idx;
	uint16_t n_rails;
	struct api_rail_info rails[RY_RAILS_MAX];
	struct api_plan_rail plan[RY_RAILS_MAX];
	char cause[RY_CAUSE_MAX_BYTES];
	void *api_ctx; /* api's own */
};

#ifdef __cplusplus
}
#endif
#endif
