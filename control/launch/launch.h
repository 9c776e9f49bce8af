/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Starts railyardd processes for a demonstration or a measurement, and leaves nothing behind.
 *
 * One private directory holds their configurations, logs and control sockets. Each daemon is a process group of its own
 * that the kernel kills when this process dies; SIGINT, SIGTERM, SIGHUP and SIGQUIT are taken by a thread that stops
 * the daemons, removes the directory, and lets the signal end this process as it would have. Called by the CLI's demo
 * and by railyard-perf, from one thread, before they make other threads: the signals stay blocked from launch_start to
 * launch_stop. It never talks to a data ring; it asks a daemon only "hello" and "rails".
 */
#ifndef RY_LAUNCH_H
#define RY_LAUNCH_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <railyard/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LAUNCH_NODES_MAX 4u
#define LAUNCH_NO_STORE UINT16_MAX

struct launch_error {
	char text[2048]; /* what failed, where, why; the daemon's own last log lines where it has some */
};

struct launch_rail {
	char transport[16];             /* "tcp", "verbs" or "mock" */
	char address[64];               /* tcp, verbs; empty = 127.0.0.1 */
	char device[64];                /* verbs: RDMA device; empty = by address */
	uint32_t device_port;           /* verbs: its port, 0 = the default */
	uint64_t rate_bytes_per_s;      /* tcp: sender's cap, 0 = none */
	uint64_t bandwidth_bytes_per_s; /* mock: model, 0 = none */
	uint64_t latency_ns;            /* mock: model */
};

/* One daemon. Its rails are named rail0, rail1, ...; a store on tcp or verbs listens on a free port per rail. */
struct launch_node {
	char name[RY_NAME_MAX_BYTES];
	bool is_reader;
	bool is_store;
	uint16_t store_idx; /* reader: the node it reads from (its own index = itself, over mock rails), or
			       LAUNCH_NO_STORE */
	uint16_t n_rails;
	struct launch_rail rails[RY_RAILS_MAX];
	uint64_t store_bytes;      /* 0 = the daemon's default */
	uint64_t segment_bytes;    /* 0 = default */
	uint64_t read_arena_bytes; /* largest of one client, 0 = default */
	uint64_t put_arena_bytes;
};

struct launch_usage {
	uint64_t cpu_ns; /* user and system time so far; the kernel counts in ticks, usually 10 ms */
	uint64_t rss_bytes;
};

struct launch; /* opaque */

/*
 * Starts all nodes in order and waits, at most timeout_ns, until every control socket answers and every reader's pairs
 * are up. 0, or -errno with err filled and everything undone: -ENOENT no daemon program, -ETIMEDOUT, -ECHILD one of
 * them ended.
 */
int launch_start(const struct launch_node *nodes, uint16_t n_nodes, uint64_t timeout_ns, struct launch **out,
	struct launch_error *err);
/* Ends the daemons (SIGTERM, after a bounded wait SIGKILL), removes the directory, gives the signals back. NULL is
 * allowed. */
void launch_stop(struct launch *l);

/* Valid until launch_stop. */
const char *launch_socket(const struct launch *l, uint16_t node_idx);
pid_t launch_pid(const struct launch *l, uint16_t node_idx);
const char *launch_directory(const struct launch *l);
/* 0, or -errno where the process is gone. */
int launch_usage(const struct launch *l, uint16_t node_idx, struct launch_usage *out);
/* 0 while all run; -ECHILD with the dead one's name and last log lines. */
int launch_check(struct launch *l, struct launch_error *err);

/*
 * RDMA ports of this host that a rail can use, at most `max`, by name: the first of each device that is active and has
 * a RoCEv2 GID that goes beyond its link, IPv4 before IPv6; transport, device and address are filled. Returns how many.
 * `root` is /sys, or a tree like it; `seen` says what there is, for people, and why ports were passed over.
 */
int launch_find_rdma(const char *root, struct launch_rail *rails, int max, char *seen, uint32_t seen_bytes);
/* The daemon's program: $RAILYARD_DAEMON, else beside this executable in a build or an installed tree, else in PATH. 0
 * or -ENOENT. */
int launch_find_daemon(char *path, uint32_t path_bytes, struct launch_error *err);
/*
 * EAL's --lcores for one of several daemons: lcores 0..n_rails. `first` is the number of lcores of the daemons before
 * it, `total` that of all. With a CPU each, lcore i of this daemon sits on its own; otherwise all float over all of
 * this process' CPUs. 0 or -ENOSPC.
 */
int launch_lcores(uint32_t n_rails, uint32_t first, uint32_t total, const int *cpus, uint32_t n_cpus, char *text,
	uint32_t text_bytes);

#ifdef __cplusplus
}
#endif
#endif
