/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * read: K reads of one object, D in flight, and what they cost.
 *
 * Nothing is printed unless every completion was verified and the rails' own counters saw exactly the bytes that the
 * client got: a measurement that cannot account for its bytes is no measurement. For comparison, on request or where it
 * is free: one core's copy and hash (mock), iperf3 and ucx_perftest (tcp), in the same run.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "cli/units.h"
#include "perf.h"

#define DEFAULT_READS 20u

struct result {
	struct reads reads;
	double bytes_per_s;
	double cpu_s;        /* of the daemons that were started for it; of others nothing is known */
	double client_cpu_s; /* of this process */
	char transport[16];
	double core_bytes_per_s;
	double iperf3_bytes_per_s;
	double ucx_bytes_per_s;
};

static int check(const struct perf *p, uint16_t *n_rails);
static int measure(const struct perf *p, uint16_t *n_rails, struct result *out, struct perf_error *err);
static int run(struct bench *b, uint32_t n, uint32_t depth, struct result *out, struct perf_error *err);
static int account(struct bench *b, const uint64_t *before, const struct reads *reads, struct perf_error *err);
static void compare(const struct perf *p, uint16_t n_rails, struct result *r);
static uint16_t name_idle(const struct perf *p, uint16_t n_rails, const struct result *r);
static double own_cpu_s(void);
static json_t *rails_json(const struct reads *r);
static void add_ratio(json_t *o, const char *name, double measured, double peer);
static int print(const struct perf *p, uint16_t n_rails, const struct result *r);
static int print_text(const struct perf *p, const struct result *r);
static void print_ratio(const char *name, double measured, double peer);

int mode_read(const struct perf *arguments)
{
	struct perf p = *arguments;
	struct perf_error err = {0};
	struct result r = {0};
	uint16_t n_rails;
	int rc = check(&p, &n_rails);

	if (rc != PERF_OK)
		return rc;
	p.count = p.count != 0 ? p.count : DEFAULT_READS;
	if (measure(&p, &n_rails, &r, &err) < 0)
		return perf_fail(&p, &err);
	compare(&p, n_rails, &r);
	rc = print(&p, n_rails, &r);
	if (name_idle(&p, n_rails, &r) < p.require_rails)
		rc = PERF_FAILED;
	reads_free(&r.reads);
	return rc;
}

static int check(const struct perf *p, uint16_t *n_rails)
{
	uint64_t n = 2;

	if ((p->rails != NULL && units_parse_count(p->rails, &n) < 0) || n < 1 || n > RY_RAILS_MAX) {
		fprintf(stderr, "railyard-perf: read: --rails is a number from 1 to %u\n", RY_RAILS_MAX);
		return PERF_USAGE;
	}
	if (strcmp(p->transport, "tcp") != 0 && strcmp(p->transport, "mock") != 0) {
		fprintf(stderr, "railyard-perf: read: --transport is tcp or mock\n");
		return PERF_USAGE;
	}
	*n_rails = (uint16_t)n;
	return PERF_OK;
}

static int measure(const struct perf *p, uint16_t *n_rails, struct result *out, struct perf_error *err)
{
	struct bench_conf conf = {
		.socket = p->socket,
		.is_tcp = strcmp(p->transport, "tcp") == 0,
		.n_rails = *n_rails,
		.rate_bytes_per_s = p->rail_rate_bytes_per_s,
		.bandwidth_bytes_per_s = p->bandwidth_bytes_per_s,
		.latency_ns = p->latency_ns,
		.size_bytes = p->size_bytes,
		.stripe_bytes = (uint32_t)p->stripe_bytes,
		.segment_bytes = p->segment_bytes,
		.depth = (uint32_t)p->depth,
	};
	struct reads warm_up;
	struct bench b;
	int rc;

	if (bench_start(&conf, &b, err) < 0)
		return -1;
	*n_rails = b.conf.n_rails;
	memcpy(out->transport, b.transport, sizeof(out->transport));
	rc = p->warm_ups != 0 ? reads_run(&b, (uint32_t)p->warm_ups, (uint32_t)p->depth, &warm_up, err) : 0;
	if (rc == 0) {
		if (p->warm_ups != 0)
			reads_free(&warm_up);
		rc = run(&b, (uint32_t)p->count, (uint32_t)p->depth, out, err);
	}
	if (rc < 0)
		bench_explain(&b, err);
	bench_stop(&b);
	return rc;
}

static int run(struct bench *b, uint32_t n, uint32_t depth, struct result *out, struct perf_error *err)
{
	uint64_t before[RY_RAILS_MAX], cpu_ns = bench_cpu_ns(b);
	double own_s = own_cpu_s();

	if (bench_rail_bytes(b, before, err) < 0 || reads_run(b, n, depth, &out->reads, err) < 0)
		return -1;
	out->cpu_s = (double)(bench_cpu_ns(b) - cpu_ns) / 1e9;
	out->client_cpu_s = own_cpu_s() - own_s;
	out->bytes_per_s = (double)out->reads.bytes / ((double)out->reads.wall_ns / 1e9);
	if (account(b, before, &out->reads, err) == 0)
		return 0;
	reads_free(&out->reads);
	return -1;
}

/* The daemon's counters against what this client received. */
static int account(struct bench *b, const uint64_t *before, const struct reads *reads, struct perf_error *err)
{
	uint64_t after[RY_RAILS_MAX], counted = 0;
	uint16_t i;

	if (!reads->is_verified) {
		snprintf(err->text, sizeof(err->text), "a read came back unverified or short");
		return -1;
	}
	if (bench_rail_bytes(b, after, err) < 0)
		return -1;
	for (i = 0; i < b->conf.n_rails; i++)
		counted += after[i] - before[i];
	if (counted == reads->bytes)
		return 0;
	snprintf(err->text, sizeof(err->text), "the rails counted %" PRIu64 " bytes, the client received %" PRIu64,
		counted, reads->bytes);
	return -1;
}

/* A rail that carried nothing in a whole run is worth a word. Returns how many carried something. */
static uint16_t name_idle(const struct perf *p, uint16_t n_rails, const struct result *r)
{
	uint16_t n = 0;
	uint8_t i;

	for (i = 0; i < r->reads.n_rails; i++)
		n += r->reads.rails[i].bytes != 0;
	if (n < n_rails)
		fprintf(stderr, "railyard-perf: read: only %u of %u rails carried bytes; see railyard health\n", n,
			n_rails);
	if (n < p->require_rails)
		fprintf(stderr, "railyard-perf: read: --require-rails %u is not met\n", (unsigned)p->require_rails);
	return n;
}

static double own_cpu_s(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
	       (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

static void compare(const struct perf *p, uint16_t n_rails, struct result *r)
{
	bool is_tcp = strcmp(r->transport, "tcp") == 0, is_mock = strcmp(r->transport, "mock") == 0;

	if (is_mock && n_rails == 1 && p->bandwidth_bytes_per_s == 0)
		r->core_bytes_per_s = core_copy_hash_rate(p->size_bytes, (uint32_t)p->count);
	if (is_tcp && p->want_baseline) {
		r->iperf3_bytes_per_s = peer_rate("iperf3");
		r->ucx_bytes_per_s = peer_rate("ucx");
	}
}

static json_t *rails_json(const struct reads *r)
{
	json_t *rails = json_array();
	uint8_t i;

	for (i = 0; i < r->n_rails; i++)
		json_array_append_new(
			rails, json_pack("{s:s, s:I, s:I, s:f}", "name", r->rails[i].name, "bytes",
				       (json_int_t)r->rails[i].bytes, "segments", (json_int_t)r->rails[i].segments,
				       "busy_s", (double)r->rails[i].busy_ns / 1e9));
	return rails;
}

static void add_ratio(json_t *o, const char *name, double measured, double peer)
{
	if (peer > 0)
		json_object_set_new(o, name, json_pack("{s:f, s:f}", "bytes_per_s", peer, "ratio", measured / peer));
}

static int print(const struct perf *p, uint16_t n_rails, const struct result *r)
{
	json_t *o;

	if (!p->want_json)
		return print_text(p, r);
	o = json_pack("{s:f, s:f, s:f, s:f, s:o, s:o, s:b, s:f, s:s, s:i, s:I, s:I, s:I, s:I}", "bytes_per_s",
		r->bytes_per_s, "p50_us", (double)reads_percentile_ns(&r->reads, 50) / 1e3, "p95_us",
		(double)reads_percentile_ns(&r->reads, 95) / 1e3, "p99_us",
		(double)reads_percentile_ns(&r->reads, 99) / 1e3, "rails", rails_json(&r->reads), "cpu_s",
		p->socket == NULL ? json_real(r->cpu_s) : json_null(), "verified", r->reads.is_verified, "client_cpu_s",
		r->client_cpu_s, "transport", r->transport, "n_rails", n_rails, "object_bytes",
		(json_int_t)p->size_bytes, "stripe_bytes", (json_int_t)p->stripe_bytes, "count", (json_int_t)p->count,
		"depth", (json_int_t)p->depth);
	add_ratio(o, "core_copy_hash", r->bytes_per_s, r->core_bytes_per_s);
	add_ratio(o, "iperf3", r->bytes_per_s, r->iperf3_bytes_per_s);
	add_ratio(o, "ucx_get", r->bytes_per_s, r->ucx_bytes_per_s);
	return perf_print(p, o);
}

static int print_text(const struct perf *p, const struct result *r)
{
	char a[UNITS_TEXT_BYTES], b[UNITS_TEXT_BYTES], c[UNITS_TEXT_BYTES];
	uint8_t i;

	printf("%u reads of %s over %s, %u in flight: %s, every byte verified\n", r->reads.n,
		units_print_bytes(p->size_bytes, a), r->transport, (unsigned)p->depth,
		units_print_rate((uint64_t)r->bytes_per_s, b));
	printf("latency p50 %s, p95 %s, p99 %s\n", units_print_duration(reads_percentile_ns(&r->reads, 50), a),
		units_print_duration(reads_percentile_ns(&r->reads, 95), b),
		units_print_duration(reads_percentile_ns(&r->reads, 99), c));
	printf("CPU time: ");
	if (p->socket == NULL)
		printf("daemons %.2f s, ", r->cpu_s);
	printf("client %.2f s, in %.2f s\n\n", r->client_cpu_s, (double)r->reads.wall_ns / 1e9);
	printf("rail           bytes  segments       busy\n");
	for (i = 0; i < r->reads.n_rails; i++)
		printf("%-8s %11s %9u %10s\n", r->reads.rails[i].name, units_print_bytes(r->reads.rails[i].bytes, a),
			r->reads.rails[i].segments, units_print_duration(r->reads.rails[i].busy_ns, b));
	print_ratio("one core's copy and hash", r->bytes_per_s, r->core_bytes_per_s);
	print_ratio("iperf3, one stream", r->bytes_per_s, r->iperf3_bytes_per_s);
	print_ratio("ucx_perftest ucp_get over tcp", r->bytes_per_s, r->ucx_bytes_per_s);
	return fflush(stdout) == 0 ? PERF_OK : PERF_FAILED;
}

static void print_ratio(const char *name, double measured, double peer)
{
	char text[UNITS_TEXT_BYTES];

	if (peer > 0)
		printf("%s: %s, ratio %.2f\n", name, units_print_rate((uint64_t)peer, text), measured / peer);
}
