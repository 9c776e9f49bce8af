/* SPDX-License-Identifier: BSD-3-Clause */
/* The breaker's plain calls: its seventeen reference scenarios, in their order, and the table of its four states. */
#include "rail_health_fixture.h"

Test(rail_health, ref_01_custom_table_crosses_two_by_two)
{
	struct rail_map_row rows[] = {{"mlx5_0", "store", "mlx5_1"}, {"mlx5_1", "store", "mlx5_0"}};
	struct rail_map_table table = {.n_all = 2, .all = rows, .n_direct = 2, .direct = rows};
	struct rail_map_layout crossed = plain;

	crossed.table = &table;
	start();
	cr_assert_eq(best(0, 0), pair(0, 0));
	cr_assert_eq(rail_health_load(&h, &crossed, now, &error), 0, "%s", error.text);
	cr_assert_eq(best(0, 0), pair(0, 1));
	cr_assert_eq(best(1, 0), pair(1, 0));
	cr_assert(available(pair(0, 1)) && available(pair(1, 0)));
	cr_assert_eq(pair(0, 0), RAIL_MAP_NONE);
	cr_assert_not(available(pair(0, 0)));
	cr_assert_not(admit(pair(0, 0)));
}

Test(rail_health, ref_02_cross_numa_same_name_wins)
{
	struct rail_map_end locals[] = {{.name = "mlx5_0"}, {.name = "mlx5_5"}};
	struct rail_map_end remotes[] = {
		{.name = "mlx5_9", .numa = 1}, {.name = "mlx5_5", .numa = 1}, {.name = "mlx5_0", .numa = 1}};
	struct rail_map_peer peer = {.name = "store", .n_rails = 3, .rails = remotes};
	struct rail_map_layout far = {.n_locals = 2, .locals = locals, .n_peers = 1, .peers = &peer};

	start();
	cr_assert_eq(rail_health_load(&h, &far, now, &error), 0);
	cr_assert_eq(best(0, 1), pair(0, 2));
	cr_assert_eq(best(1, 1), pair(1, 1));
}

Test(rail_health, ref_03_fail_recover_fail_is_still_available)
{
	uint16_t p;

	start_with(2, 30, 1);
	p = pair(0, 0);
	fail_times(p, 1);
	recover(p);
	fail_times(p, 1);
	cr_assert(available(p));
	fail_times(p, 1);
	cr_assert_not(available(p), "two in a row open it");
}

Test(rail_health, ref_04_three_failures_then_recovery)
{
	uint16_t p;

	start();
	p = pair(0, 0);
	fail_times(p, 2);
	cr_assert(available(p));
	fail_times(p, 1);
	cr_assert_not(available(p));
	recover(p);
	cr_assert(available(p));
	cr_assert(admit(p));
}

Test(rail_health, ref_05_recovering_an_unknown_pair_does_nothing)
{
	static struct rail_health before;
	uint16_t unknown[] = {4, PAIRS_MAX - 1, PAIRS_MAX, RAIL_MAP_NONE};

	start();
	before = h;
	for (size_t i = 0; i < 4; i++) {
		recover(unknown[i]);
		fail_times(unknown[i], 5);
		rail_health_cancel_probe(&h, unknown[i], now);
		cr_assert_not(admit(unknown[i]));
		cr_assert_not(available(unknown[i]));
	}
	cr_assert_eq(memcmp(&before, &h, sizeof(h)), 0);
}

Test(rail_health, ref_06_caller_drops_its_topology_after_load)
{
	struct rail_map_end *ends = malloc(sizeof(two));
	struct rail_map_peer *peer = malloc(sizeof(*peer));
	struct rail_map_layout own = {.n_locals = 2, .locals = ends, .n_peers = 1, .peers = peer};
	char *names[2] = {strdup("mlx5_0"), strdup("mlx5_1")};
	uint16_t p;

	start();
	ends[0] = (struct rail_map_end){.name = names[0]};
	ends[1] = (struct rail_map_end){.name = names[1]};
	*peer = (struct rail_map_peer){.name = "other", .n_rails = 2, .rails = ends};
	cr_assert_eq(rail_health_load(&h, &own, now, &error), 0);
	memset(names[0], 'x', strlen(names[0]));
	free(names[0]);
	free(names[1]);
	memset(ends, 0xee, sizeof(two));
	free(ends);
	free(peer);
	p = pair(0, 0);
	fail_times(p, 3);
	cr_assert_not(available(p));
	cr_assert_eq(rail_map_find(rail_health_map(&h), "mlx5_0", "other", "mlx5_0"), p);
}

Test(rail_health, ref_07_recovery_restores_the_best_mapping)
{
	uint16_t p;

	start();
	p = best(0, 0);
	cr_assert_eq(p, pair(0, 0));
	fail_times(p, 3);
	cr_assert_eq(best(0, 0), pair(0, 1));
	cr_assert_eq(best(1, 0), pair(1, 1), "another local rail is not concerned");
	recover(p);
	cr_assert_eq(best(0, 0), p);
}

Test(rail_health, ref_08_equal_layout_keeps_the_count)
{
	struct rail_map_end copy[2] = {two[0], two[1]};
	struct rail_map_layout equal = plain;
	uint16_t p;

	start();
	p = pair(0, 0);
	fail_times(p, 2);
	equal.locals = copy;
	cr_assert_eq(rail_health_load(&h, &equal, now, &error), 0);
	cr_assert(available(p));
	fail_times(p, 1);
	cr_assert_not(available(p));
}

Test(rail_health, ref_09_different_layout_starts_clean)
{
	struct rail_map_layout less = plain;
	uint16_t p;

	start();
	p = pair(0, 0);
	fail_times(p, 3);
	cr_assert_eq(best(0, 0), pair(0, 1));
	less.n_locals = 1;
	cr_assert_eq(rail_health_load(&h, &less, now, &error), 0);
	p = pair(0, 0);
	cr_assert(available(p));
	cr_assert_eq(best(0, 0), p);
	fail_times(p, 2);
	cr_assert(available(p), "the count is new, too");
}

Test(rail_health, ref_10_cooldown_is_not_carried_over)
{
	uint16_t p;

	start_with(1, 1, 0);
	p = pair(0, 0);
	fail_times(p, 1);
	recover(p);
	fail_times(p, 1);
	cr_assert_not(admit(p));
	now += 1500 * MSEC;
	cr_assert(admit(p));
	cr_assert_eq(state(p), RAIL_HALF_OPEN);
}

Test(rail_health, ref_11_a_burst_is_one_trip)
{
	uint16_t p;

	start_with(1, 1, 0);
	p = pair(0, 0);
	fail_times(p, 8);
	cr_assert_not(admit(p));
	cr_assert_eq(report(p).n_trips, 1);
	cr_assert_eq(report(p).cooldown_ns, SEC);
	now += 1500 * MSEC;
	cr_assert(admit(p));
}

Test(rail_health, ref_12_expiry_admits_one_trial_only)
{
	uint16_t p;

	start_with(1, 1, 0);
	p = pair(0, 0);
	fail_times(p, 1);
	now += 1500 * MSEC;
	cr_assert_eq(state(p), RAIL_EXPIRED);
	cr_assert_not(available(p));
	cr_assert(admit(p));
	cr_assert_not(admit(p));
	cr_assert_not(available(p));
	now += 3600 * SEC;
	cr_assert_eq(rail_health_expire(&h, now), 0);
	cr_assert_not(admit(p), "time does not matter to the plain form");
}

Test(rail_health, ref_13_failed_trial_escalates)
{
	uint16_t p;

	start_with(1, 1, 0);
	p = pair(0, 0);
	fail_times(p, 1);
	now += 1500 * MSEC;
	cr_assert(admit(p));
	fail_times(p, 1);
	cr_assert_eq(report(p).error_count, 0);
	cr_assert_not(admit(p));
	now += 1100 * MSEC;
	cr_assert_not(admit(p));
	now += 1400 * MSEC;
	cr_assert(admit(p));
}

Test(rail_health, ref_14_successful_trial_resets_the_backoff)
{
	uint16_t p;

	start_with(1, 1, 0);
	p = pair(0, 0);
	fail_times(p, 1);
	now += 1500 * MSEC;
	cr_assert(admit(p));
	fail_times(p, 1);
	now += 2500 * MSEC;
	cr_assert(admit(p));
	recover(p);
	cr_assert(available(p));
	cr_assert_eq(report(p).cooldown_ns, 0);
	fail_times(p, 1);
	now += 900 * MSEC;
	cr_assert_not(admit(p));
	now += 200 * MSEC;
	cr_assert(admit(p));
}

Test(rail_health, ref_15_probe_in_flight_blocks_the_second)
{
	uint16_t p;

	start();
	p = pair(0, 0);
	fail_times(p, 3);
	now += SEC;
	cr_assert(admit(p));
	cr_assert_not(admit(p));
	now += 5 * SEC;
	cr_assert_not(admit(p));
	recover(p);
	cr_assert(available(p));
	fail_times(p, 3);
	now += SEC;
	cr_assert(admit(p));
	cr_assert_eq(state(p), RAIL_OPEN);
}

Test(rail_health, ref_16_cancel_reverts_an_armed_trial)
{
	static struct rail_health before;
	uint16_t p;

	start_with(1, 1, 0);
	p = pair(0, 0);
	before = h;
	rail_health_cancel_probe(&h, p, now);
	cr_assert_eq(memcmp(&before, &h, sizeof(h)), 0, "no-op while Closed");
	fail_times(p, 1);
	now += 1500 * MSEC;
	cr_assert(admit(p));
	rail_health_cancel_probe(&h, p, now);
	cr_assert_eq(state(p), RAIL_EXPIRED);
	cr_assert(admit(p));
	cr_assert_not(admit(p));
	cr_assert_eq(report(p).cooldown_ns, SEC);
}

Test(rail_health, ref_17_probe_during_the_cooldown)
{
	uint16_t p;

	start_with(1, 10, 1);
	p = pair(0, 0);
	fail_times(p, 1);
	cr_assert_not(admit(p));
	now += 1100 * MSEC;
	cr_assert(admit(p));
	cr_assert_eq(state(p), RAIL_OPEN);
	recover(p);
	cr_assert(available(p));
	cr_assert_eq(report(p).n_ok, 1);
}

Test(rail_health, table_gap_rule_counts_the_exact_window)
{
	uint16_t p, q;

	start_with(2, 30, 1);
	p = pair(0, 0);
	q = pair(0, 1);
	fail_times(p, 1);
	fail_times(q, 1);
	now += 10 * SEC;
	fail_times(p, 1);
	cr_assert_not(available(p), "exactly the window still counts");
	now += 1;
	fail_times(q, 1);
	cr_assert(available(q), "a nanosecond more does not");
}

Test(rail_health, table_open_failures_neither_extend_nor_double)
{
	uint16_t p;

	start_with(1, 10, 1);
	p = pair(0, 0);
	fail_times(p, 1);
	for (unsigned i = 1; i < 10; i++) {
		now += SEC;
		cr_assert(admit(p));
		fail_times(p, 3);
		cr_assert_eq(report(p).cooldown_ns, 10 * SEC);
		cr_assert_eq(report(p).cooldown_left_ns, (10 - i) * SEC);
	}
	now += SEC;
	cr_assert_eq(state(p), RAIL_EXPIRED);
	fail_times(p, 3);
	cr_assert_eq(state(p), RAIL_EXPIRED, "expired and nothing out: counted only");
	cr_assert_eq(report(p).n_trips, 1);
}

Test(rail_health, table_expiry_alone_writes_nothing)
{
	static struct rail_health before;
	uint16_t p;

	start_with(1, 1, 0);
	p = pair(0, 0);
	fail_times(p, 1);
	before = h;
	for (unsigned i = 0; i < 600; i++) {
		now += SEC;
		cr_assert_not(available(p));
		cr_assert_eq(state(p), RAIL_EXPIRED);
		cr_assert(rail_health_wants_probe(&h, p, now));
	}
	cr_assert_eq(memcmp(&before, &h, sizeof(h)), 0);
}

Test(rail_health, table_success_closes_from_every_paused_state)
{
	uint16_t p;

	start_with(1, 1, 0);
	p = pair(0, 0);
	fail_times(p, 1);
	recover(p);
	cr_assert(available(p), "Open");
	fail_times(p, 1);
	now += 2 * SEC;
	recover(p);
	cr_assert(available(p), "expired");
	fail_times(p, 1);
	now += 2 * SEC;
	cr_assert(admit(p));
	recover(p);
	cr_assert(available(p), "Half-Open");
	cr_assert_eq(report(p).error_count, 0);
}
