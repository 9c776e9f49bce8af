/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * railyard-load: reads one object again and again from a running daemon, and says every interval what came.
 *
 *   railyard-load SOCKET KEY SECONDS DEPTH INTERVAL_MS [failover|fail]
 *
 * One JSON object a line on standard output: t_ns (CLOCK_MONOTONIC), ok, failed, bytes, the bytes of each rail, the
 * longest read. A failed read is a line of its own with status and cause. Ends by itself, or by SIGTERM. Used by
 * outage.py.
 */
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <railyard/railyard.h>

#define DEPTH_MAX 64
#define DEADLINE_NS 10000000000ull

struct interval {
	uint64_t ok, failed, bytes, longest_ns;
	uint32_t n_rails;
	struct ry_rail_stats rails[RY_RAILS_MAX];
};

static int run(struct ry_client *client, char **argv);
static bool submit(struct ry_client *client, const char *key, uint32_t flags, uint64_t *ticket);
static void count(struct interval *v, struct ry_client *client, struct ry_completion *done);
static void add_rail(struct interval *v, const struct ry_rail_stats *r);
static void print(struct interval *v);

/* Set by the signal handler. */
static volatile sig_atomic_t want_stop;

static void on_signal(int signal_number)
{
	(void)signal_number;
	want_stop = 1;
}

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

int main(int argc, char **argv)
{
	char cause[RY_CAUSE_MAX_BYTES] = "";
	struct ry_attach_opts opts = {.cause = cause, .cause_bytes = sizeof(cause)};
	struct ry_client *client;
	int rc;

	if (argc < 6) {
		fprintf(stderr, "usage: railyard-load SOCKET KEY SECONDS DEPTH INTERVAL_MS [failover|fail]\n");
		return 2;
	}
	signal(SIGTERM, on_signal);
	signal(SIGINT, on_signal);
	opts.socket_path = argv[1];
	if (ry_attach(&opts, &client) != RY_OK) {
		fprintf(stderr, "railyard-load: %s\n", cause);
		return 1;
	}
	rc = run(client, argv);
	ry_detach(client);
	return rc;
}

static int run(struct ry_client *client, char **argv)
{
	uint64_t end_ns = now_ns() + strtoull(argv[3], NULL, 10) * 1000000000u;
	uint64_t interval_ns = strtoull(argv[5], NULL, 10) * 1000000u, next_ns = now_ns() + interval_ns;
	unsigned depth = (unsigned)strtoul(argv[4], NULL, 10), n_out = 0;
	uint32_t flags = !argv[6] ? 0 : strcmp(argv[6], "failover") ? RY_F_FAIL : RY_F_FAILOVER;
	struct interval v = {0};
	uint64_t n_failed = 0;

	while (n_out || (!want_stop && now_ns() < end_ns)) {
		struct ry_completion done[DEPTH_MAX];
		uint64_t ticket;
		uint32_t n;

		while (n_out < depth && !want_stop && now_ns() < end_ns && submit(client, argv[2], flags, &ticket))
			n_out++;
		ry_wait(client, next_ns > now_ns() ? next_ns - now_ns() : 0);
		n = ry_reap(client, done, DEPTH_MAX);
		for (uint32_t i = 0; i < n; i++)
			count(&v, client, &done[i]);
		n_out -= n;
		if (now_ns() < next_ns)
			continue;
		n_failed += v.failed;
		print(&v);
		next_ns += interval_ns;
	}
	n_failed += v.failed;
	print(&v);
	return n_failed ? 1 : 0;
}

static bool submit(struct ry_client *client, const char *key, uint32_t flags, uint64_t *ticket)
{
	struct ry_request r = {
		.op = RY_OP_READ,
		.flags = flags,
		.key = key,
		.key_bytes = (uint16_t)strlen(key),
		.length = RY_TO_END,
		.deadline_ns = DEADLINE_NS,
		.user = (void *)(uintptr_t)now_ns(),
	};

	if (ry_submit(client, &r, 1) != 1)
		return false;
	*ticket = r.ticket;
	return true;
}

static void count(struct interval *v, struct ry_client *client, struct ry_completion *done)
{
	uint64_t took_ns = now_ns() - (uint64_t)(uintptr_t)done->user;

	v->longest_ns = took_ns > v->longest_ns ? took_ns : v->longest_ns;
	if (done->status != RY_OK) {
		v->failed++;
		printf("{\"t_ns\": %" PRIu64 ", \"error\": \"%s\", \"cause\": \"%s\"}\n", now_ns(),
			ry_status_name(done->status), done->cause);
		return;
	}
	v->ok++;
	v->bytes += done->bytes;
	for (uint32_t i = 0; i < done->stats.n_rails; i++)
		add_rail(v, &done->stats.rails[i]);
	ry_lease_release(client, &done->lease);
}

static void add_rail(struct interval *v, const struct ry_rail_stats *r)
{
	uint32_t i = 0;

	while (i < v->n_rails && strcmp(v->rails[i].name, r->name))
		i++;
	if (i == v->n_rails)
		memcpy(v->rails[v->n_rails++].name, r->name, sizeof(r->name));
	v->rails[i].bytes += r->bytes;
}

static void print(struct interval *v)
{
	printf("{\"t_ns\": %" PRIu64 ", \"ok\": %" PRIu64 ", \"failed\": %" PRIu64 ", \"bytes\": %" PRIu64
	       ", \"longest_ns\": %" PRIu64 ", \"rails\": {",
		now_ns(), v->ok, v->failed, v->bytes, v->longest_ns);
	for (uint32_t i = 0; i < v->n_rails; i++) {
		printf("%s\"%s\": %" PRIu64, i ? ", " : "", v->rails[i].name, v->rails[i].bytes);
		v->rails[i].bytes = 0;
	}
	printf("}}\n");
	fflush(stdout);
	v->ok = v->failed = v->bytes = v->longest_ns = 0;
}
