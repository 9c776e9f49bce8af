/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * model: the same object over 1, 2, ... mock rails of a modelled bandwidth, in real time, one daemon each.
 *
 * theoretical_bytes_per_s  every rail busy all the time.
 * balanced_bytes_per_s     whole stripes only: the rail with the most stripes decides.
 * speedup                  against the first count, which is 1 rail unless asked otherwise; both measured here.
 */
#include <stdio.h>
#include <stdlib.h>

#include "cli/units.h"
#include "perf.h"

#define COUNTS_MAX 16u
#define DEFAULT_BANDWIDTH 125000000u
#define DEFAULT_LATENCY_NS 5000u
#define DEFAULT_READS 5u

struct row {
	uint16_t n_rails;
	double bytes_per_s; /* of the median read */
	double theoretical;
	double balanced;
	uint8_t class_ref;
};

static uint32_t parse_counts(const char *text, uint16_t *counts);
static int measure(const struct perf *p, struct row *row, struct perf_error *err);
static void fill_model(const struct perf *p, struct row *row);
static int print(const struct perf *p, const struct row *rows, uint32_t n);
static const char *class_name(uint8_t class_ref);

int mode_model(const struct perf *arguments)
{
	struct perf p = *arguments;
	struct row rows[COUNTS_MAX] = {0};
	uint16_t counts[COUNTS_MAX];
	struct perf_error err;
	uint32_t n, i;

	p.bandwidth_bytes_per_s = p.bandwidth_bytes_per_s != 0 ? p.bandwidth_bytes_per_s : DEFAULT_BANDWIDTH;
	p.latency_ns = p.latency_ns != 0 ? p.latency_ns : DEFAULT_LATENCY_NS;
	p.count = p.count != 0 ? p.count : DEFAULT_READS;
	n = parse_counts(p.rails != NULL ? p.rails : "1,2,3,4,8", counts);
	if (n == 0) {
		fprintf(stderr,
			"railyard-perf: model: --rails is a list like 1,2,4 of at most %u counts from 1 to %u\n",
			COUNTS_MAX, RY_RAILS_MAX);
		return PERF_USAGE;
	}
	for (i = 0; i < n; i++) {
		rows[i].n_rails = counts[i];
		if (measure(&p, &rows[i], &err) < 0)
			return perf_fail(&p, &err);
	}
	return print(&p, rows, n);
}

static uint32_t parse_counts(const char *text, uint16_t *counts)
{
	uint32_t n = 0;
	char *end;

	for (;; text = end + 1) {
		unsigned long v = strtoul(text, &end, 10);

		if (end == text || v < 1 || v > RY_RAILS_MAX || n == COUNTS_MAX || (*end != ',' && *end != '\0'))
			return 0;
		counts[n++] = (uint16_t)v;
		if (*end == '\0')
			return n;
	}
}

static int measure(const struct perf *p, struct row *row, struct perf_error *err)
{
	struct bench_conf conf = {.n_rails = row->n_rails,
		.bandwidth_bytes_per_s = p->bandwidth_bytes_per_s,
		.latency_ns = p->latency_ns,
		.size_bytes = p->size_bytes,
		.stripe_bytes = (uint32_t)p->stripe_bytes,
		.segment_bytes = p->segment_bytes,
		.depth = 1};
	struct reads warm_up, reads;
	struct bench b;
	int rc;

	if (bench_start(&conf, &b, err) < 0)
		return -1;
	rc = reads_run(&b, 1, 1, &warm_up, err);
	if (rc == 0) {
		reads_free(&warm_up);
		rc = reads_run(&b, (uint32_t)p->count, 1, &reads, err);
	}
	if (rc == 0) {
		row->bytes_per_s = (double)p->size_bytes / ((double)reads_percentile_ns(&reads, 50) / 1e9);
		row->class_ref = reads.class_ref;
		if (!reads.is_verified) {
			snprintf(err->text, sizeof(err->text), "a read came back unverified or short");
			rc = -1;
		}
		reads_free(&reads);
	} else {
		bench_explain(&b, err);
	}
	bench_stop(&b);
	fill_model(p, row);
	return rc;
}

static void fill_model(const struct perf *p, struct row *row)
{
	uint64_t stripes = (p->size_bytes + p->stripe_bytes - 1) / p->stripe_bytes;
	uint64_t most = (stripes + row->n_rails - 1) / row->n_rails;
	uint64_t most_bytes = most * p->stripe_bytes < p->size_bytes ? most * p->stripe_bytes : p->size_bytes;

	row->theoretical = (double)p->bandwidth_bytes_per_s * row->n_rails;
	row->balanced = (double)p->size_bytes / (double)most_bytes * (double)p->bandwidth_bytes_per_s;
}

static int print(const struct perf *p, const struct row *rows, uint32_t n)
{
	char measured[UNITS_TEXT_BYTES], theoretical[UNITS_TEXT_BYTES];
	json_t *array = json_array();
	uint32_t i;

	if (!p->want_json)
		printf("rails       measured    theoretical  speedup  scaling  bottleneck\n");
	for (i = 0; i < n; i++) {
		double speedup = rows[i].bytes_per_s / rows[0].bytes_per_s;
		double scaling = rows[i].bytes_per_s / (double)p->bandwidth_bytes_per_s;

		json_array_append_new(
			array, json_pack("{s:i, s:f, s:f, s:f, s:f, s:f, s:s}", "rails", rows[i].n_rails, "bytes_per_s",
				       rows[i].bytes_per_s, "theoretical_bytes_per_s", rows[i].theoretical,
				       "balanced_bytes_per_s", rows[i].balanced, "speedup", speedup, "scaling", scaling,
				       "bottleneck", class_name(rows[i].class_ref)));
		if (!p->want_json)
			printf("%5u %14s %14s %7.2fx %7.2fx  %s\n", rows[i].n_rails,
				units_print_rate((uint64_t)rows[i].bytes_per_s, measured),
				units_print_rate((uint64_t)rows[i].theoretical, theoretical), speedup, scaling,
				class_name(rows[i].class_ref));
	}
	if (p->want_json)
		return perf_print(p, array);
	json_decref(array);
	return PERF_OK;
}

static const char *class_name(uint8_t class_ref)
{
	static const char *const names[] = {"unknown", "network", "storage", "software"};

	return class_ref < sizeof(names) / sizeof(names[0]) ? names[class_ref] : names[0];
}
