/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdio.h>
#include <string.h>

#include "cli/demo.h"
#include "cli/units.h"

static json_t *side(const struct demo *d, const struct demo_pass *pass);
static double rate(const struct demo *d, const struct demo_pass *pass);
static int print_text(const struct demo *d);
static void print_row(const struct demo *d, uint32_t n_rails, const struct demo_pass *pass);
static int print_json(const struct demo *d);

int demo_report(const struct demo *d)
{
	return d->c->want_json ? print_json(d) : print_text(d);
}

static double rate(const struct demo *d, const struct demo_pass *pass)
{
	return (double)d->size_bytes / ((double)pass->ns / 1e9);
}

static json_t *side(const struct demo *d, const struct demo_pass *pass)
{
	return json_pack("{s:f, s:f}", "seconds", (double)pass->ns / 1e9, "bytes_per_s", rate(d, pass));
}

/* Reached only when every read of every pass was verified by checksum and compared with the file. */
static int print_json(const struct demo *d)
{
	json_t *multi = side(d, &d->multi), *put;

	json_object_set_new(multi, "rails", output_rails(&d->multi.stats));
	put = json_pack("{s:f, s:f}", "seconds", (double)d->put_ns / 1e9, "bytes_per_s",
		(double)d->size_bytes / ((double)d->put_ns / 1e9));
	return output_print(
		d->c, json_pack("{s:I, s:I, s:I, s:I, s:o, s:o, s:f, s:b, s:s, s:s, s:I, s:o}", "object_bytes",
			      (json_int_t)d->size_bytes, "stripe_bytes", (json_int_t)d->stripe_bytes, "rails",
			      (json_int_t)d->n_rails, "rail_rate_bytes_per_s", (json_int_t)d->c->rail_rate_bytes_per_s,
			      "single", side(d, &d->single), "multi", multi, "speedup",
			      (double)d->single.ns / (double)d->multi.ns, "verified", true, "bottleneck",
			      output_class(d->multi.stats.class_ref), "transport", d->c->transport, "repeat",
			      (json_int_t)d->repeat, "put", put));
}

static int print_text(const struct demo *d)
{
	char size[UNITS_TEXT_BYTES], stripe[UNITS_TEXT_BYTES], cap[UNITS_TEXT_BYTES], busy[UNITS_TEXT_BYTES];
	const struct ry_read_stats *s = &d->multi.stats;
	uint8_t i;

	printf("one object of %s in stripes of %s, over %s rails on this host%s%s\n\n",
		units_print_bytes(d->size_bytes, size), units_print_bytes(d->stripe_bytes, stripe), d->c->transport,
		d->c->rail_rate_bytes_per_s != 0 ? ", each capped at " : "",
		d->c->rail_rate_bytes_per_s != 0 ? units_print_rate(d->c->rail_rate_bytes_per_s, cap) : "");
	printf("rails    seconds          rate   speedup\n");
	print_row(d, 1, &d->single);
	print_row(d, d->n_rails, &d->multi);
	printf("\nrail           bytes  segments       busy\n");
	for (i = 0; i < s->n_rails; i++)
		printf("%-8s %11s %9u %10s\n", s->rails[i].name, units_print_bytes(s->rails[i].bytes, size),
			s->rails[i].segments, units_print_duration(s->rails[i].busy_ns, busy));
	printf("\nverified: every stripe by its checksum, every byte against %s\nbottleneck: %s\n", d->path,
		output_class(s->class_ref));
	if (d->c->rail_rate_bytes_per_s == 0 && strcmp(d->c->transport, "tcp") == 0)
		printf("\nwithout a cap all rails share this host's CPUs and memory; --rail-rate 125MB/s gives each a "
		       "line of its own\n");
	return output_end(d->c);
}

static void print_row(const struct demo *d, uint32_t n_rails, const struct demo_pass *pass)
{
	char text[UNITS_TEXT_BYTES];

	printf("%5u %10.4f  %12s %8.2fx\n", n_rails, (double)pass->ns / 1e9,
		units_print_rate((uint64_t)rate(d, pass), text), (double)d->single.ns / (double)pass->ns);
}
