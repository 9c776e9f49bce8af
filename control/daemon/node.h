/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One node put together: rails, memory, store, control, conn, and the rings between them, in the order in which each
 * needs the other.
 *
 * node_create needs a running EAL and starts no thread. main then launches lcores and threads on it; a test runs
 * rail_poll, control_poll and conn_poll in turn, and plays api on the two api rings. Several nodes may live in one
 * process. Main thread, before threads start and after they ended.
 */
#ifndef RY_NODE_H
#define RY_NODE_H

#include <stdalign.h>
#include <stdbool.h>
#include <stdint.h>

#include "api/api.h"
#include "daemon/config.h"
#include "daemon/conn.h"
#include "daemon/control.h"
#include "daemon/work.h"
#include "health/journal.h"
#include "mem/mem.h"
#include "rail/rail_ctl.h"
#include "read/recorder.h"
#include "store/store.h"
#include "sync/sync.h"

#ifdef __cplusplus
extern "C" {
#endif

struct node_conf {
	const struct config *config; /* outlives the node */
	bool want_virtual_time;      /* tests: no sockets, no clock */
	bool is_shared_cpu;          /* of eal_info: what "idle_spin: auto" means */
	bool want_hugepages;         /* config.want_hugepages, and EAL found some */
};

struct node {
	/* made by node_create, read-only afterwards */
	const struct config *config;
	uint64_t node_id;     /* hash of the name: the same after a restart */
	uint64_t incarnation; /* new at every start */
	uint64_t spin_ns;
	bool has_hugepages; /* the slab and new arenas want them */
	uint16_t n_rails;
	struct rail *rails[RY_RAILS_MAX];
	struct region_set regions;
	struct api_rail api_rails[RY_RAILS_MAX];
	struct rail_snapshot snapshot; /* the first; control publishes later ones */
	struct source_table *sources;
	struct mapping slab;
	struct region *slab_region;
	struct mapping probe_slab; /* where PONGs of our own PINGs land */
	struct region *probe_region;
	struct store *store; /* NULL without the role */
	struct control *control;
	struct conn *conn;
	struct rte_ring *control_to_conn;
	struct rte_ring *conn_to_control;
	struct rte_ring *api_to_control;
	struct rte_ring *control_to_api;
	struct rte_ring *api_to_work;
	struct rte_ring *work_to_api;
	struct rte_ring *conn_to_work;
	struct rte_ring *work_to_conn;
	struct work work;
	int control_set_fd; /* the epoll set that control sleeps on */
	/* each slept on by its thread */
	alignas(64) struct waker control_waker;
	alignas(64) struct waker conn_waker;
	alignas(64) struct waker api_waker;
	alignas(64) struct waker work_waker;
	/* written by the control lcore, read by anyone */
	alignas(64) struct control_counters counters;
	alignas(64) struct conn_counters conn_counters;
	struct journal journal;
	struct recorder recorder;
};

/* After the rails are open (node_rails.c): 0, or -errno with `message` filled; warns of what works but is worth
 * knowing. */
int node_check_rails(const struct node *n, char *message, uint32_t message_bytes);
/* -ENOMEM: RLIMIT_MEMLOCK is too small for what this configuration registers at the least; needs no open rail. */
int node_check_memlock(const struct node *n, char *message, uint32_t message_bytes);
/* 0, or -errno with `message` filled: what, where, why, what to do. */
int node_create(const struct node_conf *conf, char *message, uint32_t message_bytes, struct node **out);
/* All threads and lcores have ended, and all clients are destroyed. Accepts NULL and what node_create could not finish.
 */
void node_destroy(struct node *n);
/* What an api thread of this node is made with. */
void node_api_deps(struct node *n, struct api_deps *deps);
/* Memory for rings and pools that EAL must provide for this configuration. */
uint32_t node_pool_mib(const struct config *c);

#ifdef __cplusplus
}
#endif
#endif
