/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "perf.h"
#include "rpc/rpc.h"

#define ATTACH_NS 60000000000ull /* a large arena is prefaulted and registered meanwhile */

#define START_TIMEOUT_NS 30000000000ull
#define RPC_TIMEOUT_NS 5000000000ull
#define PUT_DEADLINE_NS 120000000000ull
#define SPARE_BYTES (64ull << 20)

static int start(struct bench *b, struct perf_error *err);
static int look(struct bench *b, struct perf_error *err);
static json_t *ask(const struct bench *b, const char *method, struct perf_error *err);
static const char *socket_of(const struct bench *b);
static void describe_nodes(const struct bench_conf *conf, struct launch_node *nodes);
static void describe_rails(const struct bench_conf *conf, struct launch_node *node);
static uint64_t arena_bytes(const struct bench_conf *conf);
static int attach(struct bench *b, struct perf_error *err);
static int put(struct bench *b, struct perf_error *err);
static void fill(uint64_t *words, uint64_t n);

int bench_start(const struct bench_conf *conf, struct bench *b, struct perf_error *err)
{
	*b = (struct bench){.conf = *conf};
	if (conf->socket == NULL && start(b, err) < 0)
		return -1;
	if (look(b, err) == 0 && attach(b, err) == 0 && put(b, err) == 0)
		return 0;
	bench_explain(b, err);
	bench_stop(b);
	return -1;
}

static int start(struct bench *b, struct perf_error *err)
{
	struct launch_node nodes[2] = {0};
	struct launch_error why = {0};

	b->n_daemons = b->conf.is_tcp ? 2 : 1;
	b->reader_idx = b->conf.is_tcp ? 1 : 0;
	describe_nodes(&b->conf, nodes);
	if (launch_start(nodes, b->n_daemons, START_TIMEOUT_NS, &b->launch, &why) == 0)
		return 0;
	snprintf(err->text, sizeof(err->text), "%s", why.text);
	return -1;
}

/* What the reader has for rails. */
static int look(struct bench *b, struct perf_error *err)
{
	json_t *answer = ask(b, "rails", err), *rails = json_object_get(answer, "rails"), *rail;
	size_t i;

	if (answer == NULL)
		return -1;
	b->conf.n_rails = (uint16_t)json_array_size(rails);
	json_array_foreach (rails, i, rail) {
		const char *name = json_string_value(json_object_get(rail, "transport"));

		if (i == 0)
			snprintf(b->transport, sizeof(b->transport), "%s", name);
		else if (strcmp(b->transport, name) != 0)
			strcpy(b->transport, "mixed");
	}
	json_decref(answer);
	return 0;
}

static const char *socket_of(const struct bench *b)
{
	return b->conf.socket != NULL ? b->conf.socket : launch_socket(b->launch, b->reader_idx);
}

static void describe_nodes(const struct bench_conf *conf, struct launch_node *nodes)
{
	struct launch_node *reader = &nodes[conf->is_tcp ? 1 : 0], *store = &nodes[0];

	strcpy(store->name, "store");
	strcpy(reader->name, conf->is_tcp ? "reader" : "node");
	store->store_idx = LAUNCH_NO_STORE;
	store->is_store = true;
	reader->is_reader = true;
	reader->store_idx = 0;
	store->store_bytes = (conf->size_bytes + conf->stripe_bytes + SPARE_BYTES) >> 20 << 20;
	reader->segment_bytes = conf->segment_bytes;
	reader->read_arena_bytes = arena_bytes(conf);
	reader->put_arena_bytes = 4 * (uint64_t)conf->stripe_bytes + (8u << 20);
	describe_rails(conf, store);
	describe_rails(conf, reader);
}

static void describe_rails(const struct bench_conf *conf, struct launch_node *node)
{
	uint16_t i;

	node->n_rails = conf->n_rails;
	for (i = 0; i < conf->n_rails; i++) {
		struct launch_rail *r = &node->rails[i];

		strcpy(r->transport, conf->is_tcp ? "tcp" : "mock");
		r->rate_bytes_per_s = conf->is_tcp ? conf->rate_bytes_per_s : 0;
		r->bandwidth_bytes_per_s = conf->is_tcp ? 0 : conf->bandwidth_bytes_per_s;
		r->latency_ns = conf->is_tcp ? 0 : conf->latency_ns;
	}
}

/* Whole stripes for every read in flight, and one more read that has completed and not been released. */
static uint64_t arena_bytes(const struct bench_conf *conf)
{
	uint64_t one = (conf->size_bytes + conf->stripe_bytes - 1) / conf->stripe_bytes * conf->stripe_bytes;

	return ((conf->depth + 1) * one + (2u << 20)) >> 20 << 20;
}

static int attach(struct bench *b, struct perf_error *err)
{
	char cause[RY_CAUSE_MAX_BYTES] = "";
	struct ry_attach_opts opts = {
		.socket_path = socket_of(b), .timeout_ns = ATTACH_NS, .cause = cause, .cause_bytes = sizeof(cause)};
	enum ry_status status = ry_attach(&opts, &b->client);

	if (status == RY_OK)
		return 0;
	snprintf(err->text, sizeof(err->text), "%s: %s", ry_status_name(status), cause);
	return -1;
}

static int put(struct bench *b, struct perf_error *err)
{
	uint64_t n_words = (b->conf.size_bytes + 7) / 8;
	struct ry_put_opts opts = {.stripe_bytes = b->conf.stripe_bytes, .deadline_ns = PUT_DEADLINE_NS};
	uint64_t *words = malloc(n_words * 8);
	struct ry_put_result result;
	enum ry_status status;

	if (words == NULL) {
		snprintf(err->text, sizeof(err->text), "no memory for an object of %llu bytes",
			(unsigned long long)b->conf.size_bytes);
		return -1;
	}
	fill(words, n_words);
	status = ry_put(b->client, BENCH_KEY, sizeof(BENCH_KEY) - 1, words, b->conf.size_bytes, &opts, &result);
	free(words);
	b->has_put = status == RY_OK;
	b->generation = b->has_put ? result.generation : 0;
	if (status == RY_OK)
		return 0;
	snprintf(err->text, sizeof(err->text), "put: %s: %s", ry_status_name(status), ry_last_cause(b->client));
	return -1;
}

static void fill(uint64_t *words, uint64_t n)
{
	uint64_t state = 1, i;

	for (i = 0; i < n; i++) {
		state = state * 6364136223846793005ull + 1442695040888963407ull;
		words[i] = state ^ (state >> 29);
	}
}

void bench_stop(struct bench *b)
{
	/* A reader that runs already keeps what is stored. */
	if (b->has_put && b->conf.socket != NULL)
		(void)ry_delete(b->client, BENCH_KEY, sizeof(BENCH_KEY) - 1, b->generation, PUT_DEADLINE_NS, NULL);
	ry_detach(b->client);
	launch_stop(b->launch);
	b->client = NULL;
	b->launch = NULL;
}

uint64_t bench_cpu_ns(const struct bench *b)
{
	struct launch_usage usage;
	uint64_t sum = 0;
	uint16_t i;

	for (i = 0; i < b->n_daemons; i++)
		sum += launch_usage(b->launch, i, &usage) == 0 ? usage.cpu_ns : 0;
	return sum;
}

void bench_explain(struct bench *b, struct perf_error *err)
{
	struct launch_error why;

	if (b->launch != NULL && launch_check(b->launch, &why) < 0)
		snprintf(err->text, sizeof(err->text), "%s", why.text);
}

int bench_rail_bytes(const struct bench *b, uint64_t *bytes, struct perf_error *err)
{
	json_t *answer = ask(b, "metrics", err), *rails;
	uint16_t i;

	if (answer == NULL)
		return -1;
	rails = json_object_get(answer, "rails");
	for (i = 0; i < b->conf.n_rails; i++)
		bytes[i] = (uint64_t)json_integer_value(json_object_get(json_array_get(rails, i), "rx_bytes"));
	json_decref(answer);
	return 0;
}

/* NULL with err filled. */
static json_t *ask(const struct bench *b, const char *method, struct perf_error *err)
{
	struct rpc_error why = {0};
	json_t *answer = NULL;
	struct rpc *rpc = NULL;
	int rc = rpc_open(socket_of(b), RPC_TIMEOUT_NS, &rpc, &why);

	if (rc == 0)
		rc = rpc_call(rpc, method, NULL, &answer, &why);
	rpc_close(rpc);
	if (rc == 0)
		return answer;
	snprintf(err->text, sizeof(err->text), "%s of the reader: %s", method, why.text);
	return NULL;
}
