/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The parts of `railyard demo`: prepare the object, start two daemons, put, read over one rail and over all, compare,
 * report.
 *
 * Everything goes through librailyard and the reader's control socket, as it would for any application; the store is a
 * process of its own, so the bytes that are compared have been there and back. One thread.
 */
#ifndef RY_CLI_DEMO_H
#define RY_CLI_DEMO_H

#include "cli/cli.h"
#include "launch/launch.h"

#ifdef __cplusplus
extern "C" {
#endif

#define DEMO_KEY "demo"
#define DEMO_REPEAT_MAX 101u

/* One pass over the whole object. */
struct demo_pass {
	uint64_t ns;                /* time in read calls; comparing is not counted */
	struct ry_read_stats stats; /* summed over its reads; the class is that of the slowest read */
	uint64_t slowest_ns;
};

struct demo {
	struct cli *c;
	struct launch *launch;
	struct ry_client *client;
	int fd;
	const char *path; /* of the file, for people */
	uint64_t size_bytes;
	uint32_t stripe_bytes;
	uint16_t n_rails;
	uint32_t repeat;
	uint64_t arena_bytes; /* what one read takes */
	uint64_t deadline_ns; /* of one read */
	uint64_t generation;
	uint64_t put_ns;
	struct demo_pass single;
	struct demo_pass multi;
	enum ry_status status; /* of a failure */
	char cause[2304];
};

/* All: false with status and cause set. */
bool demo_fail(struct demo *d, enum ry_status status, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* demo_file.c: opens --file, or makes one in the launch's directory. */
bool demo_open_file(struct demo *d);
bool demo_make_file(struct demo *d);
/* demo_read.c */
bool demo_put(struct demo *d);
bool demo_read_all(struct demo *d);
/* Adds one read to a pass. */
void demo_add_stats(struct demo_pass *pass, const struct ry_read_stats *one, uint64_t ns);
/* demo_report.c */
int demo_report(const struct demo *d);

#ifdef __cplusplus
}
#endif
#endif
