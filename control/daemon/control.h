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
#include "health/rail_health.h"
#include "rail/rail_ctl.h"
#include "store/store.h"

#ifdef __cplusplus
extern "C" {
#endif

struct journal;
struct recorder;
struct control; /* opaque; control/read/control_priv.h */

#define PROBES_MAX 32u

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
	int set_fd;          /* the epoll set that control sleeps on; the waker is in it, and each client's eventfd */
	struct waker *conn_waker;
	struct waker *api_waker;
	struct control_counters *counters;
	struct journal *journal;   /* control writes, api reads */
	struct recorder *recorder; /* control writes, api reads */
	uint8_t *probe_slab;       /* PROBES_MAX times PROBE_BYTES */
	uint16_t probe_region;
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
/* For conn. */
const struct dial_wants *control_dial_wants(const struct control *c);

/* ---- api <-> control ---- */
enum api_op {
	API_ATTACH = 1,    /* client = a new one; answered at once, status tells */
	API_DETACH = 2,    /* client's connection closed; answered when control has let go of it (after DONE or fence of
			      all its segments) */
	API_SHUTDOWN = 3,  /* refuse new work, finish or cancel within drain_ns, then answer and end control_run */
	API_PLAN = 4,      /* explain: size_bytes, stripe_bytes, offset, length -> plan */
	API_RAIL_INFO = 5, /* per rail: pairs that are up, depth, goodput -> rails */
	API_HEALTH = 6,    /* every pair -> pairs, n_pairs */
	API_DRAIN = 7,     /* rail_idx gets nothing new from now on, or does again (want_drain); then as API_HEALTH */
	API_LIMITS = 8,    /* limits are in force from now on; what can never fit any more is refused -> usage */
	API_BROKEN = 9     /* from control, never asked for: the client's ring makes no sense, nothing more is taken */
};

/* The budgets that may change while the daemon runs; at start they are the configuration's. */
struct limits {
	uint32_t max_reads; /* never above the configured one: tables have that size */
	uint32_t client_max_reads;
	uint64_t inflight_max_bytes;
	uint64_t client_inflight_max_bytes;
	uint64_t rail_inflight_max_bytes[RY_RAILS_MAX];
	uint64_t admission_wait_ns;
};

static inline struct limits limits_of(const struct config *c)
{
	struct limits l = {
		.max_reads = c->max_reads,
		.client_max_reads = c->client_max_reads,
		.inflight_max_bytes = c->inflight_max_bytes,
		.client_inflight_max_bytes = c->client_inflight_max_bytes,
		.admission_wait_ns = c->admission_wait_ns,
	};

	for (uint16_t i = 0; i < c->n_rails; i++)
		l.rail_inflight_max_bytes[i] = c->rails[i].inflight_max_bytes;
	return l;
}

/* How much of them is taken. */
struct limits_usage {
	uint64_t inflight_bytes;
	uint32_t n_reads;
	uint32_t n_waiting; /* reads that a budget has no room for */
	uint64_t rail_inflight_bytes[RY_RAILS_MAX];
};

#define API_PAIRS_MAX (2u * PAIRS_MAX) /* configured ones, and those that peers dialled */

struct api_pair_health {
	uint16_t rail_idx;
	uint16_t store_idx;                /* 0xffff: the peer dialled us, and the pair has no breaker */
	uint16_t endpoint_idx;             /* of the store */
	char node_name[RY_NAME_MAX_BYTES]; /* of the peer; empty while it is not connected */
	bool is_eligible;                  /* new data may go there: all that follows is well */
	bool is_preferred;                 /* the rail's own choice of endpoint while all is well */
	bool is_in_use;                    /* the rail uses this one, of those that it is connected to, for new data */
	bool is_connected;
	bool is_proven; /* a full-size PING came back on this connection, or none was needed */
	bool is_suspect;
	bool is_draining;
	bool is_slow;
	bool has_breaker;
	uint64_t segment_deadline_ns; /* of a full segment, as the pair is now; 0 while it is not connected */
	struct rail_health_report report;
};

struct api_rail_info {
	uint64_t latency_p50_ns; /* of DONE, over all segments so far */
	uint64_t latency_p99_ns;
	bool is_draining;
	bool is_slow;         /* up, and carries far less than usual and than its siblings */
	uint64_t depth_bytes; /* current limit */
	uint64_t inflight_bytes;
	uint64_t goodput_bytes_per_s; /* EWMA, 0 = no sample */
	uint64_t latency_ns;          /* of DONE, windowed minimum */
	uint32_t pairs_up;
	uint64_t corrupt_blamed;            /* stripes that this rail alone brought wrong repeatedly */
	uint64_t qp_rx_bytes[PAIR_QPS_MAX]; /* by place in the pair, over all pairs that are up */
	uint16_t n_qps;
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
	struct api_call *broken; /* ATTACH: what to send as API_BROKEN, once at most and before DETACH is answered */
	uint64_t size_bytes;
	uint64_t offset;
	uint64_t length;
	uint32_t stripe_bytes;
	uint16_t store_idx;
	uint16_t n_rails;
	uint16_t rail_idx;
	bool want_drain;
	struct limits limits;
	struct limits_usage usage;
	uint32_t n_pairs;
	struct api_pair_health *pairs; /* api's own, with room for API_PAIRS_MAX */
	struct api_rail_info rails[RY_RAILS_MAX];
	struct api_plan_rail plan[RY_RAILS_MAX];
	char cause[RY_CAUSE_MAX_BYTES];
	void *api_ctx; /* api's own */
};

#ifdef __cplusplus
}
#endif
#endif
