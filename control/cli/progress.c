/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/units.h"

#define PRINT_EVERY_NS 100000000ull
#define BAR_CELLS 30u

static void print(const struct progress *p, uint64_t now_ns);

uint64_t progress_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

void progress_start(struct progress *p, const struct cli *c, const char *what, uint64_t total_bytes)
{
	*p = (struct progress){
		.is_shown = !c->is_quiet && !c->want_json && isatty(STDERR_FILENO),
		.what = what,
		.total_bytes = total_bytes,
		.started_ns = progress_now(),
	};
	p->printed_ns = p->started_ns;
}

void progress_add(struct progress *p, uint64_t bytes)
{
	uint64_t now_ns;

	p->done_bytes += bytes;
	if (!p->is_shown)
		return;
	now_ns = progress_now();
	if (now_ns - p->printed_ns < PRINT_EVERY_NS)
		return;
	p->printed_ns = now_ns;
	print(p, now_ns);
}

static void print(const struct progress *p, uint64_t now_ns)
{
	char done[UNITS_TEXT_BYTES], rate[UNITS_TEXT_BYTES], bar[BAR_CELLS + 1] = "";
	double seconds = (double)(now_ns - p->started_ns) / 1e9;
	uint32_t i, full;

	units_print_bytes(p->done_bytes, done);
	units_print_rate((uint64_t)((double)p->done_bytes / seconds), rate);
	if (p->total_bytes == RY_SIZE_UNKNOWN || p->total_bytes == 0) {
		fprintf(stderr, "\r\033[K%s: %s, %s", p->what, done, rate);
		return;
	}
	full = (uint32_t)((double)p->done_bytes / (double)p->total_bytes * BAR_CELLS);
	for (i = 0; i < BAR_CELLS; i++)
		bar[i] = i < full ? '#' : '.';
	fprintf(stderr, "\r\033[K%s: [%s] %3" PRIu64 "%% %s, %s", p->what, bar,
		(uint64_t)((double)p->done_bytes / (double)p->total_bytes * 100), done, rate);
}

double progress_end(struct progress *p)
{
	if (p->is_shown)
		fprintf(stderr, "\r\033[K");
	p->is_shown = false;
	return (double)(progress_now() - p->started_ns) / 1e9;
}
