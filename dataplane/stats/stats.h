/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Counters and a latency histogram.
 *
 * A counter has one writer (its lcore or thread) and is stored relaxed; anyone reads it relaxed. There is no shared
 * fetch_add. The structs are generated from metrics.def. Nothing here allocates.
 */
#ifndef RY_STATS_H
#define RY_STATS_H

#include <stddef.h>
#include <stdint.h>

#include "metrics.def"

#ifdef __cplusplus
extern "C" {
#endif

#define STATS_FIELD(field, kind, unit, help) uint64_t field;
struct rail_counters {
	RAIL_METRICS(STATS_FIELD)
};
struct control_counters {
	CONTROL_METRICS(STATS_FIELD)
};
struct conn_counters {
	CONN_METRICS(STATS_FIELD)
};
#undef STATS_FIELD

/* Owner only: load and store are relaxed because there is no other writer and readers want only the value. */
static inline void stat_add(uint64_t *c, uint64_t n)
{
	__atomic_store_n(c, __atomic_load_n(c, __ATOMIC_RELAXED) + n, __ATOMIC_RELAXED);
}

static inline void stat_sub(uint64_t *c, uint64_t n)
{
	__atomic_store_n(c, __atomic_load_n(c, __ATOMIC_RELAXED) - n, __ATOMIC_RELAXED);
}

static inline void stat_set(uint64_t *c, uint64_t v)
{
	__atomic_store_n(c, v, __ATOMIC_RELAXED);
}

static inline uint64_t stat_get(const uint64_t *c)
{
	return __atomic_load_n(c, __ATOMIC_RELAXED);
}

enum stats_kind { STATS_counter, STATS_gauge };

/* One row of a metrics table, for printers. */
struct stats_row {
	const char *name;
	const char *unit;
	const char *help;
	enum stats_kind kind;
	uint32_t offset; /* of the uint64_t in its struct */
};

extern const struct stats_row stats_rail_rows[];
extern const uint32_t stats_n_rail_rows;
extern const struct stats_row stats_control_rows[];
extern const uint32_t stats_n_control_rows;
extern const struct stats_row stats_conn_rows[];
extern const uint32_t stats_n_conn_rows;

/*
 * Log-linear histogram of nanoseconds: 32 sub-buckets per power of two, values from 0 to 2^40 ns (18 min), relative
 * error below 1/32. One writer.
 */
#define HIST_SUB_BITS 5
#define HIST_BUCKETS ((40 - HIST_SUB_BITS + 1) << HIST_SUB_BITS)

struct histogram {
	uint64_t count;
	uint64_t sum;
	uint64_t max;
	uint32_t bucket[HIST_BUCKETS];
};

void hist_add(struct histogram *h, uint64_t value_ns);
/* Upper edge of the bucket that holds quantile q (0..1); 0 when empty. */
uint64_t hist_quantile(const struct histogram *h, double q);
void hist_reset(struct histogram *h);

#ifdef __cplusplus
}
#endif
#endif
