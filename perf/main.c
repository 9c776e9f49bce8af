/* SPDX-License-Identifier: BSD-3-Clause */
/* railyard-perf: modes, options, output. */
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "perf.h"

struct mode {
	const char *name;
	uint32_t options;
	int (*run)(const struct perf *p);
	const char *help;
};

static const struct mode *find(const char *name);
static int usage(const char *why);
static void print_help(void);
static int check(const struct perf *p);

#define FIELD(f) offsetof(struct perf, f)

static const struct option_row rows[] = {
	{"json", OPTION_FLAG, PERF_COMMON, FIELD(want_json), "", "print one JSON value"},
	{"help", OPTION_FLAG, PERF_COMMON, FIELD(want_help), "", "print this"},
	{"rails", OPTION_TEXT, PERF_COMMON, FIELD(rails), "LIST", "model: 1,2,3,4,8; read: one number (default 2)"},
	{"size", OPTION_BYTES, PERF_COMMON, FIELD(size_bytes), "SIZE", "of the object (default 64MiB)"},
	{"stripe", OPTION_BYTES, PERF_COMMON, FIELD(stripe_bytes), "SIZE", "of its stripes (default 4MiB)"},
	{"segment", OPTION_BYTES, PERF_COMMON, FIELD(segment_bytes), "SIZE",
		"unit of transfer (default the daemon's, 1MiB)"},
	{"count", OPTION_COUNT, PERF_COMMON, FIELD(count), "N", "reads (default: model 5, read 20)"},
	{"bandwidth", OPTION_RATE, PERF_COMMON, FIELD(bandwidth_bytes_per_s), "RATE",
		"of a mock rail (default: model 125MB/s, read not modelled)"},
	{"latency", OPTION_DURATION, PERF_COMMON, FIELD(latency_ns), "TIME",
		"of a mock rail, one way (default: model 5us, read none)"},
	{"transport", OPTION_TEXT, PERF_READ, FIELD(transport), "NAME", "tcp (two daemons, default) or mock (one)"},
	{"socket", OPTION_TEXT, PERF_READ, FIELD(socket), "PATH",
		"of a reader that runs, on whatever rails it has; instead of daemons of its own"},
	{"device", OPTION_TEXT, PERF_EXCHANGE, FIELD(device), "NAME", "RDMA device (default the first)"},
	{"address", OPTION_TEXT, PERF_EXCHANGE, FIELD(address), "ADDRESS", "the RoCEv2 GID of the device to use"},
	{"warm-ups", OPTION_COUNT, PERF_READ, FIELD(warm_ups), "N", "reads before those that count (default 2)"},
	{"require-rails", OPTION_COUNT, PERF_READ, FIELD(require_rails), "N",
		"fail unless N rails carried bytes (default 0)"},
	{"depth", OPTION_COUNT, PERF_READ, FIELD(depth), "N", "reads in flight (default 2)"},
	{"rail-rate", OPTION_RATE, PERF_READ, FIELD(rail_rate_bytes_per_s), "RATE", "cap of a tcp rail (default none)"},
	{"baseline", OPTION_FLAG, PERF_READ, FIELD(want_baseline), "",
		"tcp: also run iperf3 and ucx_perftest, where installed"},
};
#define N_ROWS (sizeof(rows) / sizeof(rows[0]))

static const struct mode modes[] = {
	{"model", PERF_MODEL, mode_model, "mock rails of a modelled bandwidth: how well 1, 2, ... rails add up"},
	{"read", PERF_READ, mode_read, "reads of one object: rate, latency, CPU time"},
	{"exchange", PERF_EXCHANGE, mode_exchange,
		"bare verbs: SEND, WRITE of --size, SEND, between two processes here"},
	{0},
};

int main(int argc, char **argv)
{
	struct perf p = {.size_bytes = 64u << 20,
		.stripe_bytes = RY_STRIPE_DEFAULT_BYTES,
		.transport = "tcp",
		.depth = 2,
		.warm_ups = 2};
	char error[OPTIONS_ERROR_BYTES];
	struct arguments args = {0};
	const struct mode *mode;
	uint64_t given;
	int rc;

	signal(SIGPIPE, SIG_IGN);
	if (options_parse(rows, N_ROWS, argc - 1, argv + 1, &p, &args, &given, error) < 0)
		return usage(error);
	if (p.want_help) {
		print_help();
		return PERF_OK;
	}
	mode = args.n == 1 ? find(args.values[0]) : NULL;
	if (mode == NULL)
		return usage("one mode, please");
	if (options_check(rows, N_ROWS, given, PERF_COMMON | mode->options, error) < 0)
		return usage(error);
	p.mode = mode->name;
	rc = check(&p);
	return rc == PERF_OK ? mode->run(&p) : rc;
}

static const struct mode *find(const char *name)
{
	const struct mode *m;

	for (m = modes; m->name != NULL; m++) {
		if (strcmp(m->name, name) == 0)
			return m;
	}
	return NULL;
}

static int usage(const char *why)
{
	fprintf(stderr, "railyard-perf: %s; see railyard-perf --help\n", why);
	return PERF_USAGE;
}

static int check(const struct perf *p)
{
	if (p->size_bytes == 0 || p->size_bytes > 1ull << 40)
		return usage("--size is at least 1 and at most 1TiB");
	if (p->stripe_bytes < RY_STRIPE_MIN_BYTES || p->stripe_bytes > RY_STRIPE_MAX_BYTES ||
		p->stripe_bytes % RY_STRIPE_ALIGN_BYTES != 0)
		return usage("--stripe is a multiple of 4KiB from 64KiB to 1GiB");
	if (p->count > 1000000 || p->warm_ups > 1000 || p->depth < 1 || p->depth > 64)
		return usage("--count is at most 1000000, --warm-ups 1000, --depth 1 to 64");
	return PERF_OK;
}

static void print_help(void)
{
	const struct mode *m;

	printf("usage: railyard-perf MODE [OPTION...]\n\nmodes:\n");
	for (m = modes; m->name != NULL; m++)
		printf("  %-8s %s\n", m->name, m->help);
	printf("\noptions:\n");
	options_help(rows, N_ROWS, PERF_COMMON | PERF_MODEL | PERF_READ | PERF_EXCHANGE, stdout);
	printf("\nIt starts its own daemons unless told of one (--socket), and leaves nothing behind: the object that "
	       "it "
	       "puts into that one's store is deleted at the end. Exit codes: 0 measured, 1 failed, 2 the command line "
	       "is wrong.\n");
}

int perf_print(const struct perf *p, json_t *value)
{
	json_dumpf(value, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
	putchar('\n');
	json_decref(value);
	return fflush(stdout) == 0 ? PERF_OK : PERF_FAILED;
}

int perf_fail(const struct perf *p, const struct perf_error *err)
{
	fprintf(stderr, "railyard-perf: %s: %s\n", p->mode, err->text);
	return PERF_FAILED;
}
