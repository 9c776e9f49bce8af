/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the commands of `railyard` share: the parsed command line, exit codes, how an error is shown.
 *
 * A command is one row of the table in main.c: it gets the parsed options, sends one request over the control socket or
 * through librailyard, prints, and returns its exit code. One thread.
 */
#ifndef RY_CLI_H
#define RY_CLI_H

#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>

#include <railyard/railyard.h>

#include "cli/options.h"
#include "rpc/rpc.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Part of the interface; --help and the manual list them. */
enum cli_exit {
	CLI_OK = 0,
	CLI_FAILED = 1,    /* the operation failed */
	CLI_USAGE = 2,     /* the command line is wrong */
	CLI_NO_DAEMON = 3, /* the daemon cannot be reached */
	CLI_NOT_FOUND = 4, /* no such object */
};

enum cli_option {
	OPT_COMMON = 1u << 0, /* --json, --help */
	OPT_SOCKET = 1u << 1,
	OPT_DEADLINE = 1u << 2,
	OPT_READ = 1u << 3, /* --one-rail, --failover, --no-failover, --offset, --length */
	OPT_PUT = 1u << 4,  /* --if-absent, --ttl */
	OPT_STRIPE = 1u << 5,
	OPT_GENERATION = 1u << 6,
	OPT_PLAN = 1u << 7, /* --size, --store */
	OPT_DEMO = 1u << 8,
	OPT_QUIET = 1u << 9,
	OPT_RANGE = 1u << 10,
	OPT_LIMITS = 1u << 11,
	OPT_RECORDS = 1u << 12, /* --last, --failed */
};

#define CLI_NOT_GIVEN UINT64_MAX

struct cli {
	const char *command;
	struct arguments args; /* without the command */
	bool want_json;
	bool want_help;
	bool is_quiet; /* no progress bar */
	const char *socket_path;
	uint64_t deadline_ns; /* 0 = the daemon's default */
	bool want_one_rail;
	bool want_failover;
	bool want_fail;
	uint64_t offset;
	uint64_t length;
	bool want_if_absent;
	uint64_t ttl_ns;
	uint64_t stripe_bytes; /* 0 = default */
	uint64_t generation;
	uint64_t size_bytes; /* plan; RY_SIZE_UNKNOWN = not given */
	const char *store;
	/* limits; CLI_NOT_GIVEN = as it is */
	uint64_t max_reads;
	uint64_t client_max_reads;
	uint64_t inflight_bytes;
	uint64_t client_inflight_bytes;
	uint64_t admission_wait_ns;
	uint64_t registered_bytes;
	const char *rail; /* NULL = none */
	uint64_t rail_inflight_bytes;
	/* reads */
	uint64_t n_last; /* CLI_NOT_GIVEN = the daemon's default */
	bool want_failed;
	/* demo */
	uint64_t n_rails;
	uint64_t rail_rate_bytes_per_s;
	uint64_t repeat;
	const char *file;
	const char *transport;
};

/* ---- the commands, one file per topic ---- */
int cmd_status(struct cli *c);
int cmd_rails(struct cli *c);
int cmd_health(struct cli *c);
int cmd_limits(struct cli *c);
int cmd_faults(struct cli *c);
int cmd_reads(struct cli *c);
int cmd_plan(struct cli *c);
int cmd_version(struct cli *c);
int cmd_config(struct cli *c);
int cmd_config_check(struct cli *c);
int cmd_put(struct cli *c);
int cmd_get(struct cli *c);
int cmd_ls(struct cli *c);
int cmd_stat(struct cli *c);
int cmd_rm(struct cli *c);
int cmd_demo(struct cli *c);

/* ---- context.c ---- */
/* CLI_OK, or the exit code after the error was shown. */
int cli_open_rpc(struct cli *c, struct rpc **out);
int cli_attach(struct cli *c, uint64_t arena_bytes, struct ry_client **out);
/* What ry_attach says, without what the sentence around it says already: the call and its socket. */
const char *cli_attach_cause(const char *cause, const char *socket_path);
/* Arenas for commands that move no data: nothing that takes time to prefault and register, or a place in the budget
 * that a reader needs. */
#define CLI_ARENA_SMALL_BYTES (2ull << 20) /* a page of a list and more; a hugepage */
#define CLI_ARENA_MOST_BYTES 0
/* One call on a connection of its own. The result is the caller's. */
int cli_call(struct cli *c, const char *method, json_t *params, json_t **result);
/* The same, and prints the result. Returns the exit code. */
int cli_show(struct cli *c, const char *method, json_t *params);
/* Shows a failed operation, as text on stderr or as {"error": {"status", "cause"}} on stdout; returns its exit code. */
int cli_fail(const struct cli *c, enum ry_status status, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Shows what is wrong with the command line, as text or as JSON like cli_fail; returns CLI_USAGE. */
int cli_usage(const struct cli *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The key of argument 0; false after a usage error was shown. */
bool cli_key(const struct cli *c, const char **key, uint16_t *key_bytes);
/* Asks the store for the object of the command's key. CLI_OK with *object filled, or the exit code; what went wrong was
 * printed. */
int cli_lookup(struct cli *c, struct ry_object *object);
/* Where the control socket is: --socket, else $RAILYARD_SOCKET, else the default. */
const char *cli_socket(const struct cli *c);

/* ---- output.c ---- */
/* Prints a result and gives it up: JSON, or tables with the same names. Returns CLI_OK, or CLI_FAILED where stdout
 * cannot be written. */
int output_print(const struct cli *c, json_t *result);
/* Flushes. CLI_OK, or CLI_FAILED after it was said that stdout cannot be written. */
int output_end(const struct cli *c);
/* A key as UTF-8 without control characters and backslashes; of a key with other bytes, these as \xNN. */
json_t *output_key(const void *key, uint16_t key_bytes);
/* {name, bytes, segments, busy_s} per rail of a read. */
json_t *output_rails(const struct ry_read_stats *stats);
const char *output_class(uint8_t read_class);

/* ---- progress.c: one line on stderr while it is a terminal ---- */
struct progress {
	bool is_shown;
	const char *what;
	uint64_t total_bytes; /* RY_SIZE_UNKNOWN = unknown */
	uint64_t done_bytes;
	uint64_t started_ns;
	uint64_t printed_ns;
};
void progress_start(struct progress *p, const struct cli *c, const char *what, uint64_t total_bytes);
void progress_add(struct progress *p, uint64_t bytes);
/* Clears the line. Returns the seconds since progress_start. */
double progress_end(struct progress *p);
uint64_t progress_now(void);

#ifdef __cplusplus
}
#endif
#endif
