/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The client beside the hostile ones: it reads ranges of its object and compares every byte, and now and then puts a
 * new one and reads that back, until it is told to stop. Its numbers are the proof: nothing wrong, nothing failed.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "hostile.h"

#define BAIT_SEED 1u
#define OWN_KEY "own"
#define OWN_BYTES ((300u << 10) + 17)
#define DEADLINE_NS 10000000000ull
#define SAMPLES_MAX 1000000u
#define PUT_EVERY 16u
#define TRIES 3

struct tally {
	uint64_t n_reads;
	uint64_t n_puts;
	uint64_t n_repeated;
	uint64_t n_failed;
	uint64_t n_wrong;
	uint64_t bytes;
	char first[RY_CAUSE_MAX_BYTES + 32]; /* failure */
	uint32_t *us;                        /* of each operation */
	uint32_t n_us;
};

static bool put(struct ry_client *c, const char *key, uint64_t bytes, uint64_t seed, struct tally *t);
static void read_range(struct ry_client *c, const char *key, uint64_t bytes, uint64_t seed, struct tally *t);
static void failed(struct ry_client *c, const char *what, enum ry_status status, struct tally *t);
static void took(struct tally *t, uint64_t since_ns);
static int by_value(const void *a, const void *b);
static int print(struct tally *t);

int mode_honest(const struct attack *a)
{
	char cause[RY_CAUSE_MAX_BYTES] = "", stop[256];
	struct ry_attach_opts opts = {.socket_path = a->socket,
		.read_arena_bytes = 2 * BAIT_BYTES,
		.put_arena_bytes = 2 * BAIT_BYTES,
		.cause = cause,
		.cause_bytes = sizeof(cause)};
	struct tally t = {.us = calloc(SAMPLES_MAX, sizeof(*t.us))};
	struct ry_client *c;
	int status;

	snprintf(stop, sizeof(stop), "%s/stop", a->args[0]);
	if (!t.us || ry_attach(&opts, &c) != RY_OK) {
		fprintf(stderr, "honest: attach: %s\n", cause);
		return 1;
	}
	if (!put(c, BAIT_KEY, BAIT_BYTES, BAIT_SEED, &t) || !put(c, OWN_KEY, OWN_BYTES, 2, &t)) {
		fprintf(stderr, "honest: %s\n", t.first);
		return 1;
	}
	puts("ready");
	fflush(stdout);
	for (uint64_t i = 3, own = 2; access(stop, F_OK); i++) {
		if (i % PUT_EVERY == 0 && put(c, OWN_KEY, OWN_BYTES, i, &t))
			own = i;
		read_range(c, BAIT_KEY, BAIT_BYTES, BAIT_SEED, &t);
		read_range(c, OWN_KEY, OWN_BYTES, own, &t);
		pause_us(1000);
	}
	ry_detach(c);
	status = print(&t);
	free(t.us);
	return status;
}

static bool put(struct ry_client *c, const char *key, uint64_t bytes, uint64_t seed, struct tally *t)
{
	struct ry_put_opts opts = {.deadline_ns = DEADLINE_NS, .stripe_bytes = 256u << 10};
	uint8_t *data = malloc(bytes);
	uint64_t since_ns = now_ns();
	enum ry_status status;

	pattern_fill(data, bytes, 0, seed);
	status = ry_put(c, key, (uint16_t)strlen(key), data, bytes, &opts, NULL);
	free(data);
	t->n_puts++;
	took(t, since_ns);
	if (status != RY_OK)
		failed(c, "put", status, t);
	return status == RY_OK;
}

static void read_range(struct ry_client *c, const char *key, uint64_t bytes, uint64_t seed, struct tally *t)
{
	struct ry_read_opts opts = {.offset = draw() % bytes, .deadline_ns = DEADLINE_NS, .flags = RY_F_FAILOVER};
	uint64_t since_ns = now_ns(), at = opts.offset;
	struct ry_lease lease;
	enum ry_status status = RY_OK;

	opts.length = 1 + draw() % (bytes - opts.offset);
	for (int tries = 0; tries < TRIES; tries++) {
		status = ry_read(c, key, (uint16_t)strlen(key), &opts, &lease, NULL);
		/* A host that gives a rail's lcore no time for as long as its segments may take is no attack. */
		if (status != RY_ERR_TIMEOUT && status != RY_ERR_RAIL && status != RY_ERR_NO_RAIL)
			break;
		t->n_repeated++;
	}
	t->n_reads++;
	took(t, since_ns);
	if (status != RY_OK) {
		failed(c, "read", status, t);
		return;
	}
	t->n_wrong += lease.bytes != opts.length;
	for (uint32_t i = 0; i < lease.n_spans; i++) {
		t->n_wrong += !pattern_is(lease.spans[i].data, lease.spans[i].bytes, at, seed);
		at += lease.spans[i].bytes;
	}
	t->bytes += lease.bytes;
	ry_lease_release(c, &lease);
}

static void failed(struct ry_client *c, const char *what, enum ry_status status, struct tally *t)
{
	if (!t->n_failed++)
		snprintf(t->first, sizeof(t->first), "%s: %s: %s", what, ry_status_name(status), ry_last_cause(c));
}

static void took(struct tally *t, uint64_t since_ns)
{
	if (t->n_us < SAMPLES_MAX)
		t->us[t->n_us++] = (uint32_t)((now_ns() - since_ns) / 1000);
}

static int by_value(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

static int print(struct tally *t)
{
	qsort(t->us, t->n_us, sizeof(*t->us), by_value);
	if (t->n_failed)
		fprintf(stderr, "honest: %s\n", t->first);
	printf("{\"reads\": %llu, \"puts\": %llu, \"bytes\": %llu, \"repeated\": %llu, \"failed\": %llu, \"wrong\": "
	       "%llu, \"p50_us\": %u, "
	       "\"p99_us\": %u, \"max_us\": %u}\n",
		(unsigned long long)t->n_reads, (unsigned long long)t->n_puts, (unsigned long long)t->bytes,
		(unsigned long long)t->n_repeated, (unsigned long long)t->n_failed, (unsigned long long)t->n_wrong,
		t->us[t->n_us / 2], t->us[t->n_us - 1 - t->n_us / 100], t->us[t->n_us - 1]);
	return t->n_failed || t->n_wrong;
}
