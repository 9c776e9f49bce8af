/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "perf.h"

#define READ_DEADLINE_NS 60000000000ull

/* One read as it is tracked from submit to completion. */
struct sample {
	uint64_t ns;
	uint8_t class_ref;
};

struct run {
	struct bench *bench;
	struct reads *out;
	struct sample *samples;
	uint64_t *submitted_ns; /* by index of the read */
	uint32_t n_wanted;
	uint32_t n_submitted;
	uint32_t n_done;
	struct perf_error *err;
};

static uint64_t now(void);
static int submit(struct run *r);
static int reap(struct run *r);
static int take(struct run *r, struct ry_completion *c, uint64_t now_ns);
static void add_rails(struct reads *out, const struct ry_read_stats *stats);
static void sort_samples(struct run *r);
static int by_time(const void *a, const void *b);

static uint64_t now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

int reads_run(struct bench *b, uint32_t n, uint32_t depth, struct reads *out, struct perf_error *err)
{
	struct run r = {.bench = b, .out = out, .n_wanted = n, .err = err};
	uint64_t started_ns;
	int rc = 0;

	*out = (struct reads){.is_verified = true};
	r.samples = calloc(n, sizeof(*r.samples));
	r.submitted_ns = calloc(n, sizeof(*r.submitted_ns));
	out->latency_ns = calloc(n, sizeof(*out->latency_ns));
	if (r.samples == NULL || r.submitted_ns == NULL || out->latency_ns == NULL) {
		snprintf(err->text, sizeof(err->text), "out of memory");
		rc = -1;
	}
	started_ns = now();
	while (rc == 0 && r.n_done < n) {
		while (rc == 0 && r.n_submitted < n && r.n_submitted - r.n_done < depth)
			rc = submit(&r);
		if (rc == 0)
			rc = reap(&r);
	}
	out->wall_ns = now() - started_ns;
	if (rc == 0)
		sort_samples(&r);
	else
		reads_free(out);
	free(r.samples);
	free(r.submitted_ns);
	return rc;
}

static int submit(struct run *r)
{
	struct ry_request q = {
		.op = RY_OP_READ,
		.key = BENCH_KEY,
		.key_bytes = sizeof(BENCH_KEY) - 1,
		.length = RY_TO_END,
		.deadline_ns = READ_DEADLINE_NS,
		.user = &r->submitted_ns[r->n_submitted],
	};

	r->submitted_ns[r->n_submitted] = now();
	if (ry_submit(r->bench->client, &q, 1) == 1) {
		r->n_submitted++;
		return 0;
	}
	snprintf(r->err->text, sizeof(r->err->text), "submit: %s: %s", ry_status_name(q.status),
		ry_last_cause(r->bench->client));
	return -1;
}

static int reap(struct run *r)
{
	struct ry_completion done[8];
	enum ry_status status = ry_wait(r->bench->client, READ_DEADLINE_NS);
	uint64_t now_ns = now();
	uint32_t n, i;

	if (status != RY_OK) {
		snprintf(r->err->text, sizeof(r->err->text), "wait: %s: %s", ry_status_name(status),
			ry_last_cause(r->bench->client));
		return -1;
	}
	n = ry_reap(r->bench->client, done, 8);
	for (i = 0; i < n; i++) {
		if (take(r, &done[i], now_ns) < 0)
			return -1;
	}
	return 0;
}

static int take(struct run *r, struct ry_completion *c, uint64_t now_ns)
{
	if (c->status != RY_OK) {
		snprintf(r->err->text, sizeof(r->err->text), "read: %s: %s", ry_status_name(c->status), c->cause);
		return -1;
	}
	r->samples[r->n_done].ns = now_ns - *(uint64_t *)c->user;
	r->samples[r->n_done].class_ref = c->stats.class_ref;
	r->n_done++;
	r->out->bytes += c->bytes;
	r->out->is_verified = r->out->is_verified && c->is_verified && c->bytes == r->bench->conf.size_bytes;
	add_rails(r->out, &c->stats);
	ry_lease_release(r->bench->client, &c->lease);
	return 0;
}

static void add_rails(struct reads *out, const struct ry_read_stats *stats)
{
	uint8_t i, k;

	for (i = 0; i < stats->n_rails; i++) {
		for (k = 0; k < out->n_rails && strcmp(out->rails[k].name, stats->rails[i].name) != 0; k++)
			;
		if (k == RY_RAILS_MAX)
			return;
		if (k == out->n_rails)
			memcpy(out->rails[out->n_rails++].name, stats->rails[i].name, RY_NAME_MAX_BYTES);
		out->rails[k].bytes += stats->rails[i].bytes;
		out->rails[k].busy_ns += stats->rails[i].busy_ns;
		out->rails[k].segments += stats->rails[i].segments;
	}
}

static int by_time(const void *a, const void *b)
{
	const struct sample *x = a, *y = b;

	return x->ns < y->ns ? -1 : x->ns > y->ns;
}

static void sort_samples(struct run *r)
{
	uint32_t i;

	qsort(r->samples, r->n_done, sizeof(*r->samples), by_time);
	for (i = 0; i < r->n_done; i++)
		r->out->latency_ns[i] = r->samples[i].ns;
	r->out->n = r->n_done;
	r->out->class_ref = r->samples[(r->n_done - 1) / 2].class_ref;
}

void reads_free(struct reads *r)
{
	free(r->latency_ns);
	r->latency_ns = NULL;
	r->n = 0;
}

uint64_t reads_percentile_ns(const struct reads *r, uint32_t percent)
{
	uint64_t rank = ((uint64_t)r->n * percent + 99) / 100;

	return r->latency_ns[rank == 0 ? 0 : rank - 1];
}
