/* SPDX-License-Identifier: BSD-3-Clause */
#include "stats.h"

#include <string.h>

static unsigned bucket_of(uint64_t value_ns);
static uint64_t bucket_edge(unsigned bucket);

#define RAIL_ROW(field, kind, unit, help) {#field, #unit, help, STATS_##kind, offsetof(struct rail_counters, field)},
const struct stats_row stats_rail_rows[] = {RAIL_METRICS(RAIL_ROW)};
#undef RAIL_ROW
const uint32_t stats_n_rail_rows = sizeof(stats_rail_rows) / sizeof(stats_rail_rows[0]);

#define CONTROL_ROW(field, kind, unit, help)                                                                           \
	{#field, #unit, help, STATS_##kind, offsetof(struct control_counters, field)},
const struct stats_row stats_control_rows[] = {CONTROL_METRICS(CONTROL_ROW)};
#undef CONTROL_ROW
const uint32_t stats_n_control_rows = sizeof(stats_control_rows) / sizeof(stats_control_rows[0]);

#define CONN_ROW(field, kind, unit, help) {#field, #unit, help, STATS_##kind, offsetof(struct conn_counters, field)},
const struct stats_row stats_conn_rows[] = {CONN_METRICS(CONN_ROW)};
#undef CONN_ROW
const uint32_t stats_n_conn_rows = sizeof(stats_conn_rows) / sizeof(stats_conn_rows[0]);

void hist_add(struct histogram *h, uint64_t value_ns)
{
	h->count++;
	h->sum += value_ns;
	if (value_ns > h->max)
		h->max = value_ns;
	h->bucket[bucket_of(value_ns)]++;
}

uint64_t hist_quantile(const struct histogram *h, double q)
{
	uint64_t rank, seen = 0;
	unsigned i;

	if (h->count == 0)
		return 0;
	/* The smallest value that at least q of all values do not exceed: rank 1 is the smallest of all. */
	rank = q <= 0 ? 1 : (uint64_t)(q * (double)h->count);
	if ((double)rank < q * (double)h->count)
		rank++;
	if (rank > h->count)
		rank = h->count;
	for (i = 0; i < HIST_BUCKETS - 1; i++) {
		seen += h->bucket[i];
		if (seen >= rank)
			break;
	}
	/* No value was above max, so neither is the answer; the last bucket has no edge of its own. */
	return i == HIST_BUCKETS - 1 || bucket_edge(i) > h->max ? h->max : bucket_edge(i);
}

void hist_reset(struct histogram *h)
{
	memset(h, 0, sizeof(*h));
}

/*
 * Values below 2^SUB_BITS have a bucket each; above, the power of two picks a row of 2^SUB_BITS buckets and the bits
 * below the leading one pick the bucket.
 */
static unsigned bucket_of(uint64_t value_ns)
{
	unsigned top, shift;

	if (value_ns < (1u << HIST_SUB_BITS))
		return (unsigned)value_ns;
	if (value_ns >> 40)
		return HIST_BUCKETS - 1;
	top = 63u - (unsigned)__builtin_clzll(value_ns);
	shift = top - HIST_SUB_BITS;
	return ((shift + 1) << HIST_SUB_BITS) + (unsigned)((value_ns >> shift) & ((1u << HIST_SUB_BITS) - 1));
}

static uint64_t bucket_edge(unsigned bucket)
{
	unsigned row = bucket >> HIST_SUB_BITS;
	uint64_t sub = bucket & ((1u << HIST_SUB_BITS) - 1);

	if (row == 0)
		return sub;
	return ((sub + (1u << HIST_SUB_BITS) + 1) << (row - 1)) - 1;
}
