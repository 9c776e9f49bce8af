/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reads one object again and again through librailyard for some seconds and prints what that came to, as JSON: counts,
 * bytes per second, and percentiles of the good reads. perf/isolation.sh runs one beside another.
 * usage: read_load SOCKET KEY SECONDS DEPTH PAUSE_MS DEADLINE_MS
 * PAUSE_MS: between two submits of one of the DEPTH places; 0 = the next one follows at once.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <railyard/railyard.h>

#define DEPTH_MAX 64u
#define SAMPLES_MAX 1000000u
#define NS_PER_MS 1000000ull
#define LAST_WAIT_NS (10000 * NS_PER_MS)

struct place {
	bool is_out;
	uint64_t submitted_ns;
};

struct load {
	struct ry_client *client;
	const char *key;
	uint32_t depth;
	uint64_t pause_ns, deadline_ns, end_ns;
	struct place places[DEPTH_MAX];
	uint64_t *samples_ns;
	uint32_t n_good, n_failed, n_out;
	uint64_t bytes, longest_failed_ns;
};

static uint64_t now(void);
static int run(struct load *l);
static int submit_due(struct load *l, uint64_t now_ns, uint64_t *next_ns);
static int rest(struct load *l, uint64_t now_ns, uint64_t next_ns);
static void reap(struct load *l);
static int by_time(const void *a, const void *b);
static void print(struct load *l, uint64_t wall_ns);

int main(int argc, char **argv)
{
	char cause[RY_CAUSE_MAX_BYTES] = "";
	struct ry_attach_opts opts = {.cause = cause, .cause_bytes = sizeof(cause), .read_arena_bytes = 64u << 20};
	struct load l = {0};
	uint64_t started_ns;

	if (argc != 7)
		return 2;
	opts.socket_path = argv[1];
	l.key = argv[2];
	l.depth = (uint32_t)atoi(argv[4]);
	l.pause_ns = (uint64_t)atoi(argv[5]) * NS_PER_MS;
	l.deadline_ns = (uint64_t)atoi(argv[6]) * NS_PER_MS;
	l.samples_ns = calloc(SAMPLES_MAX, sizeof(*l.samples_ns));
	if (!l.samples_ns || l.depth < 1 || l.depth > DEPTH_MAX)
		return 2;
	if (ry_attach(&opts, &l.client) != RY_OK) {
		fprintf(stderr, "read_load: attach: %s\n", cause);
		return 1;
	}
	started_ns = now();
	l.end_ns = started_ns + (uint64_t)(atof(argv[3]) * 1e9);
	if (run(&l) < 0) {
		fprintf(stderr, "read_load: %s\n", ry_last_cause(l.client));
		return 1;
	}
	print(&l, now() - started_ns);
	ry_detach(l.client);
	free(l.samples_ns);
	return 0;
}

static uint64_t now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* Until the time is over and everything came back. */
static int run(struct load *l)
{
	for (;;) {
		uint64_t now_ns = now(), next_ns = l->end_ns;

		if (now_ns < l->end_ns && submit_due(l, now_ns, &next_ns) < 0)
			return -1;
		if (!l->n_out && now_ns >= l->end_ns)
			return 0;
		if (rest(l, now_ns, next_ns) < 0)
			return -1;
		reap(l);
	}
}

/* Until something came back or the next submit is due. */
static int rest(struct load *l, uint64_t now_ns, uint64_t next_ns)
{
	uint64_t ns = next_ns > now_ns ? next_ns - now_ns : 0;
	enum ry_status status;

	if (!l->n_out) { /* nothing to wait for: the last one failed at once */
		nanosleep(&(struct timespec){(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)}, NULL);
		return 0;
	}
	status = ry_wait(l->client, now_ns < l->end_ns ? ns : LAST_WAIT_NS);
	return status == RY_OK || status == RY_ERR_TIMEOUT ? 0 : -1;
}

static int submit_due(struct load *l, uint64_t now_ns, uint64_t *next_ns)
{
	for (uint32_t i = 0; i < l->depth; i++) {
		struct place *p = &l->places[i];
		struct ry_request q = {.op = RY_OP_READ,
			.key = l->key,
			.key_bytes = (uint16_t)strlen(l->key),
			.length = RY_TO_END,
			.deadline_ns = l->deadline_ns,
			.user = p};
		uint64_t due_ns = p->submitted_ns ? p->submitted_ns + l->pause_ns : 0;

		if (p->is_out)
			continue;
		if (due_ns > now_ns) {
			*next_ns = due_ns < *next_ns ? due_ns : *next_ns;
			continue;
		}
		if (ry_submit(l->client, &q, 1) != 1)
			return -1;
		p->is_out = true;
		p->submitted_ns = now_ns;
		l->n_out++;
	}
	return 0;
}

static void reap(struct load *l)
{
	struct ry_completion done[16];
	uint32_t n = ry_reap(l->client, done, 16);
	uint64_t now_ns = now();

	for (uint32_t i = 0; i < n; i++) {
		struct place *p = done[i].user;
		uint64_t ns = now_ns - p->submitted_ns;

		p->is_out = false;
		l->n_out--;
		if (done[i].status != RY_OK) {
			l->n_failed++;
			l->longest_failed_ns = ns > l->longest_failed_ns ? ns : l->longest_failed_ns;
			continue;
		}
		if (l->n_good < SAMPLES_MAX)
			l->samples_ns[l->n_good++] = ns;
		l->bytes += done[i].lease.bytes;
		ry_lease_release(l->client, &done[i].lease);
	}
}

static int by_time(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static void print(struct load *l, uint64_t wall_ns)
{
	uint64_t p50 = 0, p99 = 0;

	qsort(l->samples_ns, l->n_good, sizeof(*l->samples_ns), by_time);
	if (l->n_good) {
		p50 = l->samples_ns[(l->n_good - 1) / 2];
		p99 = l->samples_ns[(uint64_t)(l->n_good - 1) * 99 / 100];
	}
	printf("{\"reads\": %u, \"failed\": %u, \"bytes_per_s\": %.0f, \"p50_ns\": %lu, \"p99_ns\": %lu, "
	       "\"longest_failed_ns\": %lu}\n",
		l->n_good, l->n_failed, (double)l->bytes / ((double)wall_ns / 1e9), (unsigned long)p50,
		(unsigned long)p99, (unsigned long)l->longest_failed_ns);
}
