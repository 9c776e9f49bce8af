/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * railyard-perf: what its modes share.
 *
 * A mode starts daemons (bench_start), puts an object through librailyard, measures reads of it (reads_run), and prints
 * one JSON value or a table. Every read goes through the daemons' own control loop, rails, leases, verification and
 * commit; nothing here calls a planner or a hash in their stead. One thread.
 */
#ifndef RY_PERF_H
#define RY_PERF_H

#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>

#include <railyard/railyard.h>

#include "cli/options.h"
#include "launch/launch.h"

#ifdef __cplusplus
extern "C" {
#endif

enum perf_exit {
	PERF_OK = 0,
	PERF_FAILED = 1,
	PERF_USAGE = 2,
};

enum perf_option {
	PERF_COMMON = 1u << 0,
	PERF_MODEL = 1u << 1,
	PERF_READ = 1u << 2,
	PERF_EXCHANGE = 1u << 3,
};

struct perf {
	const char *mode;
	bool want_json;
	bool want_help;
	const char *rails; /* "1,2,4" */
	const char *transport;
	const char *socket;  /* of a daemon that runs; NULL = start our own */
	const char *device;  /* exchange */
	const char *address; /* exchange */
	uint64_t size_bytes;
	uint64_t stripe_bytes;
	uint64_t segment_bytes; /* 0 = the daemon's default */
	uint64_t count;
	uint64_t depth;
	uint64_t warm_ups;
	uint64_t require_rails; /* fail unless as many carried bytes */
	uint64_t bandwidth_bytes_per_s;
	uint64_t latency_ns;
	uint64_t rail_rate_bytes_per_s;
	bool want_baseline;
};

/* Why something failed, for people. */
struct perf_error {
	char text[2304];
};

/* ---- modes, a file each ---- */
int mode_model(const struct perf *p);
int mode_read(const struct perf *p);
int mode_exchange(const struct perf *p);

/* ---- bench.c: daemons, a client, one object ---- */
#define BENCH_KEY "bench"

struct bench_conf {
	const char *socket; /* a reader that runs already, with its stores; NULL = start them, as follows */
	bool is_tcp;        /* a store and a reader over tcp; else one daemon over mock rails */
	uint16_t n_rails;
	uint64_t rate_bytes_per_s;      /* tcp */
	uint64_t bandwidth_bytes_per_s; /* mock, 0 = not modelled */
	uint64_t latency_ns;            /* mock */
	uint64_t size_bytes;
	uint32_t stripe_bytes;
	uint64_t segment_bytes; /* 0 = the daemon's default */
	uint32_t depth;         /* reads in flight; sizes the read arena */
};

struct bench {
	struct bench_conf conf;
	struct launch *launch;
	uint16_t n_daemons;
	uint16_t reader_idx;
	struct ry_client *client;
	bool has_put;
	uint64_t generation; /* of the object, where it was put */
	char transport[16];  /* of the reader's rails; "mixed" where they differ */
};

/* 0 or -1 with err filled and everything undone. With a running reader, n_rails of the bench is that reader's. */
int bench_start(const struct bench_conf *conf, struct bench *b, struct perf_error *err);
void bench_stop(struct bench *b);
/* Sum over all daemons that were started. */
uint64_t bench_cpu_ns(const struct bench *b);
/* rx_bytes of each of the reader's rails, by its own counters. 0 or -1. */
int bench_rail_bytes(const struct bench *b, uint64_t *bytes, struct perf_error *err);
/* Adds the daemon's last words where one has died. */
void bench_explain(struct bench *b, struct perf_error *err);

/* ---- reads.c ---- */
struct reads {
	uint64_t *latency_ns; /* submit to completion, sorted; n of them */
	uint32_t n;
	uint64_t wall_ns;
	uint64_t bytes;
	bool is_verified;  /* every one of them */
	uint8_t class_ref; /* of the median read */
	struct ry_rail_stats rails[RY_RAILS_MAX];
	uint8_t n_rails;
};
/* Reads the object n times, `depth` outstanding. 0 or -1 with err filled. */
int reads_run(struct bench *b, uint32_t n, uint32_t depth, struct reads *out, struct perf_error *err);
void reads_free(struct reads *r);
/* Nearest rank; r->n is at least 1. */
uint64_t reads_percentile_ns(const struct reads *r, uint32_t percent);

/* ---- core_ref.c ---- */
/* Bytes per second at which this CPU copies `bytes` in cache-sized blocks and hashes each block with XXH3-64, one core,
 * n times. 0 = no memory. */
double core_copy_hash_rate(uint64_t bytes, uint32_t n);

/* ---- peers.c ---- */
/* Runs peers.sh NAME ("iperf3" or "ucx") and reads its bytes per second. 0 = not installed or failed. */
double peer_rate(const char *name);

/* ---- main.c ---- */
/* Prints a value and gives it up. */
int perf_print(const struct perf *p, json_t *value);
int perf_fail(const struct perf *p, const struct perf_error *err);

#ifdef __cplusplus
}
#endif
#endif
