/* SPDX-License-Identifier: BSD-3-Clause */
#include "stats/stats.h"

#include <criterion/criterion.h>

#include <string.h>

static struct histogram h;

static uint64_t edge_of(uint64_t v)
{
	hist_reset(&h);
	hist_add(&h, v);
	h.max = UINT64_MAX; /* the bucket's own edge, not the clamp to the maximum */
	return hist_quantile(&h, 1.0);
}

static void check_rows(const struct stats_row *rows, uint32_t n, size_t struct_bytes)
{
	cr_assert_eq(n * sizeof(uint64_t), struct_bytes, "a row per field");
	for (uint32_t i = 0; i < n; i++) {
		cr_assert_eq(rows[i].offset, i * sizeof(uint64_t));
		cr_assert_gt(strlen(rows[i].help), 3, "%s", rows[i].name);
		cr_assert(!strcmp(rows[i].unit, "bytes") || !strcmp(rows[i].unit, "count"), "%s", rows[i].name);
		for (uint32_t k = 0; k < i; k++)
			cr_assert_str_neq(rows[i].name, rows[k].name);
	}
}

Test(stats, rail_table_covers_every_field)
{
	check_rows(stats_rail_rows, stats_n_rail_rows, sizeof(struct rail_counters));
	cr_assert_str_eq(stats_rail_rows[0].name, "rx_bytes");
	cr_assert_eq(stats_rail_rows[0].kind, STATS_counter);
}

Test(stats, control_table_covers_every_field)
{
	check_rows(stats_control_rows, stats_n_control_rows, sizeof(struct control_counters));
	for (uint32_t i = 0; i < stats_n_control_rows; i++)
		if (!strcmp(stats_control_rows[i].name, "leases"))
			cr_assert_eq(stats_control_rows[i].kind, STATS_gauge);
}

Test(stats, conn_table_covers_every_field)
{
	check_rows(stats_conn_rows, stats_n_conn_rows, sizeof(struct conn_counters));
}

Test(stats, counters_add_subtract_and_set)
{
	uint64_t c = 0;

	stat_add(&c, 5);
	stat_add(&c, 7);
	stat_sub(&c, 2);
	cr_assert_eq(stat_get(&c), 10);
	stat_set(&c, 3);
	cr_assert_eq(stat_get(&c), 3);
}

Test(stats, empty_histogram_says_zero)
{
	cr_assert_eq(hist_quantile(&h, 0.5), 0);
	cr_assert_eq(hist_quantile(&h, 1.0), 0);
}

Test(stats, small_values_are_exact)
{
	for (uint64_t v = 0; v < 64; v++)
		cr_assert_eq(edge_of(v), v);
}

Test(stats, edge_is_never_below_and_within_one_part_in_32)
{
	for (unsigned bit = 0; bit < 40; bit++) {
		for (uint64_t f = 0; f < 62; f++) { /* the very last bucket is open: see below */
			uint64_t v = (1ull << bit) + (f << bit) / 64;
			uint64_t e = edge_of(v);

			cr_assert_geq(e, v, "%lu", (unsigned long)v);
			cr_assert_leq(e - v, v / 32, "%lu: %lu", (unsigned long)v, (unsigned long)e);
			/* edges belong to their own bucket, the next value to another */
			cr_assert_eq(edge_of(e), e);
			if (e + 1 < (1ull << 40) - (1ull << 34))
				cr_assert_gt(edge_of(e + 1), e);
		}
	}
}

Test(stats, values_beyond_the_range_are_counted_and_clamped_to_the_maximum)
{
	hist_add(&h, 1ull << 40);
	hist_add(&h, UINT64_MAX / 4);
	cr_assert_eq(h.count, 2);
	cr_assert_eq(hist_quantile(&h, 0.5), UINT64_MAX / 4);
	cr_assert_eq(hist_quantile(&h, 1.0), UINT64_MAX / 4);
}

Test(stats, quantiles_follow_the_ranks)
{
	for (uint64_t v = 1; v <= 1000; v++)
		hist_add(&h, v * 1000);
	cr_assert_eq(h.count, 1000);
	cr_assert_eq(h.sum, 500500ull * 1000);
	cr_assert_float_eq((double)hist_quantile(&h, 0.5), 500e3, 500e3 / 32);
	cr_assert_float_eq((double)hist_quantile(&h, 0.99), 990e3, 990e3 / 32);
	cr_assert_geq(hist_quantile(&h, 0.5), 500000);
	cr_assert_eq(hist_quantile(&h, 1.0), 1000000, "the maximum itself");
	cr_assert_leq(hist_quantile(&h, 0.0), 1032);
}

Test(stats, one_outlier_shows_only_at_the_end)
{
	for (int i = 0; i < 99; i++)
		hist_add(&h, 10);
	hist_add(&h, 1000000);
	cr_assert_eq(hist_quantile(&h, 0.5), 10);
	cr_assert_eq(hist_quantile(&h, 0.99), 10);
	cr_assert_eq(hist_quantile(&h, 0.995), 1000000);
}

Test(stats, reset_forgets_everything)
{
	hist_add(&h, 77);
	hist_reset(&h);
	cr_assert_eq(h.count + h.sum + h.max, 0);
	cr_assert_eq(hist_quantile(&h, 1.0), 0);
}
