/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The daemon's configuration: YAML by schema (libcyaml), every value with its unit, unknown keys refused.
 *
 * Loaded by main before any thread exists and by `railyard config-check`; immutable afterwards. docs/config.md
 * describes every key.
 */
#ifndef RY_CONFIG_H
#define RY_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include <railyard/types.h>

#include "transport/transport.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CONFIG_STORES_MAX 64u
#define CONFIG_PATH_MAX 108u
#define CONFIG_FILE_MAX 512u
/* Room for a line number of every key: of all keys, and of those of one list entry. */
#define CONFIG_KEYS_MAX 128u
#define CONFIG_RAIL_KEYS_MAX 40u
#define CONFIG_STORE_KEYS_MAX 8u
#define CONFIG_ENDPOINT_KEYS_MAX 8u

struct config_endpoint {
	char address[64];
	uint16_t port;
	char rail[RY_NAME_MAX_BYTES]; /* local rail that prefers it; empty = by the automatic rules */
	char rails[CONFIG_PATH_MAX];  /* local rails that may use it; empty = `rail` alone if given, else all */
	char name[RY_NAME_MAX_BYTES]; /* of the store's rail; empty = none */
	uint32_t numa_node;           /* of the store's rail */
	uint32_t lines[CONFIG_ENDPOINT_KEYS_MAX];
};

struct config_store {
	char name[RY_NAME_MAX_BYTES];
	bool is_self;         /* this node's own store over mock rails */
	uint32_t memory_numa; /* all ones = of no matter */
	uint16_t n_endpoints;
	struct config_endpoint endpoints[RY_RAILS_MAX];
	uint32_t lines[CONFIG_STORE_KEYS_MAX];
};

/* The breaker's parameters; health/rail_health.h explains them. */
struct rail_health_params {
	uint32_t error_threshold;     /* failures that open a pair */
	uint32_t error_window_secs;   /* a failure later than this after the last one starts the count anew */
	uint32_t cooldown_secs;       /* first pause; doubled only by a failed trial */
	uint32_t probe_interval_secs; /* between probes while Open; 0 = none, only the trial */
	uint32_t flap_secs;           /* a trip this soon after a close is answered by a longer silence; 0 = never */
};

enum config_policy {
	POLICY_ADAPTIVE = 0,
	POLICY_ROUND_ROBIN = 1,
};

enum config_tier {
	TIER_CACHE = 0,
	TIER_PINNED = 1,
};

enum config_admission {
	ADMISSION_REJECT = 0,
	ADMISSION_QUEUE = 1,
};

/* What a read does when a rail fails that had work of it. */
enum config_rail_failure {
	ON_RAIL_FAILURE_FAIL = 0,
	ON_RAIL_FAILURE_FAILOVER = 1,
};

enum config_idle {
	IDLE_ADAPTIVE = 0,
	IDLE_SPIN = 1,
};

struct config {
	char node_name[RY_NAME_MAX_BYTES];
	char socket_path[CONFIG_PATH_MAX]; /* control socket */
	bool is_reader;
	bool is_store;
	bool want_hugepages;
	enum config_idle idle;
	uint64_t idle_spin_ns; /* UINT64_MAX = choose: 0 on shared CPUs, 50 us on dedicated ones */
	bool want_fault_injection;

	uint16_t n_rails;
	struct rail_conf rails[RY_RAILS_MAX];
	uint16_t n_stores;
	struct config_store stores[CONFIG_STORES_MAX];

	/* reader */
	enum config_policy policy;
	uint64_t read_arena_bytes; /* per client, default and largest */
	uint64_t put_arena_bytes;
	uint32_t ring_entries;
	uint32_t max_clients;
	uint32_t max_reads; /* node */
	uint32_t client_max_reads;
	uint64_t inflight_max_bytes; /* node */
	uint64_t client_inflight_max_bytes;
	enum config_rail_failure on_rail_failure;
	enum config_admission admission;
	uint64_t admission_wait_ns;
	uint32_t admission_queue_max;
	uint64_t registered_max_bytes; /* all arenas */
	uint32_t segment_bytes;
	uint64_t one_rail_max_bytes;
	uint64_t read_deadline_ns;
	uint64_t depth_min_bytes;
	uint32_t descriptor_cache_entries;

	/* store */
	uint64_t store_bytes;
	enum config_tier tier;
	uint32_t max_objects;
	uint64_t store_linger_ns;
	uint32_t store_max_requests_per_qp;
	uint64_t store_max_inflight_bytes; /* requests accepted and unfinished, per node; split over its rails */

	/* health */
	struct rail_health_params health;
	uint32_t slow_trip_secs; /* a rail that is slow this long is tripped; 0 = never */

	/* times */
	uint64_t fence_timeout_ns;
	uint64_t connect_timeout_ns;
	uint64_t hello_timeout_ns;
	uint64_t reconnect_ns;
	uint64_t keepalive_ns;
	uint64_t keepalive_dead_ns;
	uint64_t drain_ns;

	/* where the values are from: the line of each key in `file`, 0 = its default (config_lines, config_source) */
	char file[CONFIG_FILE_MAX];
	char eal_args[256]; /* of the command line */
	uint32_t roles_line;
	uint32_t lines[CONFIG_KEYS_MAX];
	uint32_t rail_lines[RY_RAILS_MAX][CONFIG_RAIL_KEYS_MAX];
};

struct config_error {
	char text[8192]; /* one line for each problem: what, where (file, line), why, what to do */
};

/* Defaults of every key; a node with no rails and no roles. */
void config_defaults(struct config *c);
/* Defaults of one rail at position idx of the list; name, transport and address are left empty. */
void config_rail_defaults(struct rail_conf *rail, uint16_t idx);
/* Reads, checks and completes a file. 0, or -EINVAL, -ENOENT ... with all problems in err; *out is written only on
 * success. */
int config_load(const char *path, struct config *out, struct config_error *err);
/* The checks alone, for a configuration made in memory; err has the first problem. */
int config_check(const struct config *c, struct config_error *err);

/* "4MiB", "125MB/s", "50us", "2s" -> bytes, bytes per second, nanoseconds. A number without its unit is refused (0
 * needs none). 0 or -EINVAL. */
int parse_bytes(const char *text, uint64_t *out);
int parse_rate(const char *text, uint64_t *out);
int parse_duration(const char *text, uint64_t *out);

#ifdef __cplusplus
}
#endif
#endif
