/* SPDX-License-Identifier: BSD-3-Clause */
/* Which rail of a peer each local rail is mapped to. */
#include <stdio.h>

#include "rail_health_fixture.h"

#define N(a) (sizeof(a) / sizeof((a)[0]))

static struct rail_map map, map_next;

/* One peer. */
static void build(const struct rail_map_end *locals, size_t n_locals, const struct rail_map_end *remotes,
	size_t n_remotes, const struct rail_map_table *table)
{
	struct rail_map_peer peer = {.name = "store", .n_rails = (uint32_t)n_remotes, .rails = remotes};
	struct rail_map_layout layout = {
		.n_locals = (uint32_t)n_locals, .locals = locals, .n_peers = 1, .peers = &peer, .table = table};

	cr_assert_eq(rail_map_build(&map, &layout, NULL, &error), 0, "%s", error.text);
}

static void check_best(uint16_t local, int numa, uint16_t remote)
{
	cr_assert_eq(rail_map_best(&map, local, 0, numa), rail_map_pair(&map, local, 0, remote), "local %u numa %d",
		local, numa);
}

static void refused(const struct rail_map_layout *layout, int rc, const char *says)
{
	error.text[0] = 0;
	cr_assert_eq(rail_map_build(&map, layout, NULL, &error), rc, "%s", error.text);
	cr_assert(strstr(error.text, says), "%s lacks %s", error.text, says);
}

static struct rail_map_end at(const char *name, int numa, uint8_t subnet)
{
	return (struct rail_map_end){
		.name = name, .numa = numa, .prefix_bits = 120, .address = {[14] = subnet, [15] = 1}};
}

Test(rail_health, map_same_name_comes_first)
{
	struct rail_map_end locals[] = {at("x", 0, 1), at("a", 0, 2), at("b", 0, 3)};
	struct rail_map_end remotes[] = {at("b", 3, 7), at("a", 2, 1), at("y", 0, 2)};

	build(locals, N(locals), remotes, N(remotes), NULL);
	check_best(1, 0, 1);
	check_best(2, 0, 0);
	check_best(0, 0, 1);
}

Test(rail_health, map_same_subnet_comes_second)
{
	struct rail_map_end locals[] = {at("a", 0, 1), at("b", 0, 2)};
	struct rail_map_end remotes[] = {at("x", 0, 2), at("y", 5, 1), at("z", 0, 9)};

	build(locals, N(locals), remotes, N(remotes), NULL);
	check_best(0, 0, 1);
	check_best(1, 0, 0);
}

Test(rail_health, map_subnets_are_compared_bit_by_bit)
{
	struct rail_map_end locals[] = {{.name = "a", .prefix_bits = 122, .address = {[15] = 0x41}}};
	struct rail_map_end remotes[] = {{.name = "x", .prefix_bits = 1, .address = {[15] = 0x81}},
		{.name = "y", .address = {[15] = 0x42}}, {.name = "z", .prefix_bits = 1, .address = {[15] = 0x7f}}};

	build(locals, N(locals), remotes, N(remotes), NULL);
	check_best(0, 0, 2);
}

Test(rail_health, map_same_numa_least_loaded_comes_third)
{
	struct rail_map_end locals[] = {{"a", 1}, {"b", 1}, {"c", 1}, {"d", 0}};
	struct rail_map_end remotes[] = {{"w", 0}, {"x", 1}, {"y", 1}};

	build(locals, N(locals), remotes, N(remotes), NULL);
	check_best(0, 1, 1);
	check_best(1, 1, 2);
	check_best(2, 1, 1);
	check_best(3, 0, 0);
}

Test(rail_health, map_least_loaded_comes_last)
{
	struct rail_map_end locals[] = {{"a", 0}, {"b", 0}, {"c", 0}};
	struct rail_map_end remotes[] = {{"x", 1}, {"y", 1}};

	build(locals, N(locals), remotes, N(remotes), NULL);
	check_best(0, 0, 0);
	check_best(1, 0, 1);
	check_best(2, 0, 0);
}

Test(rail_health, map_other_numa_goes_by_position)
{
	struct rail_map_end locals[] = {{"a", 0}, {"b", 1}, {"c", 0}, {"d", 0}};
	struct rail_map_end remotes[] = {{"w", 0}, {"x", 2}, {"y", 2}};

	build(locals, N(locals), remotes, N(remotes), NULL);
	check_best(0, 2, 1);
	check_best(2, 2, 2);
	check_best(3, 2, 1);
	check_best(1, 2, 1);
}

Test(rail_health, map_numa_without_rails_gives_the_preferred)
{
	struct rail_map_end locals[] = {{"a", 1}};
	struct rail_map_end remotes[] = {{"x", 1}, {"y", 1}};

	build(locals, N(locals), remotes, N(remotes), NULL);
	check_best(0, 9, 0);
	check_best(0, -1, 0);
}

Test(rail_health, map_numa_ids_fold_to_zero)
{
	struct rail_map_end locals[] = {{"a", -1}, {"b", 16}, {"c", 15}};
	struct rail_map_end remotes[] = {{"c", 15}, {"b", 99}, {"a", -7}};

	build(locals, N(locals), remotes, N(remotes), NULL);
	for (int numa = -3; numa < 40; numa++) {
		if (numa == 15)
			continue;
		check_best(0, numa, 2);
		check_best(1, numa, 1);
	}
	check_best(2, 15, 0);
	check_best(0, 15, 0);
}

Test(rail_health, map_tiers_when_the_choice_is_paused)
{
	struct rail_map_end locals[] = {{"a", 0}};
	struct rail_map_end remotes[] = {{"far", 1}, {"a", 0}, {"near", 0}};

	build(locals, N(locals), remotes, N(remotes), NULL);
	check_best(0, 0, 1);
	rail_map_set_paused(&map, rail_map_pair(&map, 0, 0, 1), true);
	check_best(0, 0, 2);
	rail_map_set_paused(&map, rail_map_pair(&map, 0, 0, 2), true);
	check_best(0, 0, 0);
	check_best(0, 1, 0);
	rail_map_set_paused(&map, rail_map_pair(&map, 0, 0, 0), true);
	check_best(0, 0, 1);
	check_best(0, 1, 0);
	rail_map_set_paused(&map, rail_map_pair(&map, 0, 0, 2), false);
	check_best(0, 1, 2);
	rail_map_set_paused(&map, rail_map_pair(&map, 0, 0, 1), false);
	check_best(0, 0, 1);
}

Test(rail_health, map_table_direct_alone_leaves_all_pairs)
{
	struct rail_map_row direct[] = {{"mlx5_0", NULL, "mlx5_1"}};
	struct rail_map_table table = {.n_direct = 1, .direct = direct};

	build(two, 2, two, 2, &table);
	check_best(0, 0, 1);
	check_best(1, 0, 1);
	cr_assert_neq(rail_map_pair(&map, 0, 0, 0), RAIL_MAP_NONE);
}

Test(rail_health, map_table_direct_holds_across_numa)
{
	struct rail_map_end locals[] = {{"a", 0}};
	struct rail_map_end remotes[] = {{"a", 1}, {"b", 1}};
	struct rail_map_row direct[] = {{"a", "store", "b"}};
	struct rail_map_table table = {.n_direct = 1, .direct = direct};

	build(locals, 1, remotes, 2, &table);
	check_best(0, 1, 1);
}

Test(rail_health, map_table_rows_hold_for_every_peer_or_for_one)
{
	struct rail_map_peer peers[] = {{"s1", 2, two}, {"s2", 1, &two[1]}, {"s3", 2, two}};
	struct rail_map_row all[] = {{"mlx5_0", NULL, "mlx5_1"}, {"mlx5_1", "s3", "mlx5_0"}};
	struct rail_map_table table = {.n_all = 2, .all = all};
	struct rail_map_layout layout = {2, two, 3, peers, &table};

	cr_assert_eq(rail_map_build(&map, &layout, NULL, &error), 0, "%s", error.text);
	cr_assert_eq(map.plan.n_pairs, 4);
	cr_assert_neq(rail_map_find(&map, "mlx5_0", "s1", "mlx5_1"), RAIL_MAP_NONE);
	cr_assert_eq(rail_map_find(&map, "mlx5_0", "s2", "mlx5_1"), rail_map_pair(&map, 0, 1, 0));
	cr_assert_neq(rail_map_find(&map, "mlx5_1", "s3", "mlx5_0"), RAIL_MAP_NONE);
	cr_assert_eq(rail_map_find(&map, "mlx5_1", "s1", "mlx5_0"), RAIL_MAP_NONE);
	cr_assert_eq(rail_map_best(&map, 1, 0, 0), RAIL_MAP_NONE, "they share no pair");
	cr_assert_eq(rail_map_best(&map, 1, 2, 0), rail_map_pair(&map, 1, 2, 0));
	cr_assert_eq(rail_map_best(&map, 2, 0, 0), RAIL_MAP_NONE);
	cr_assert_eq(rail_map_best(&map, 0, 3, 0), RAIL_MAP_NONE);
	cr_assert_eq(rail_map_pair(&map, 0, 1, 1), RAIL_MAP_NONE);
}

Test(rail_health, map_table_unknown_names_are_errors)
{
	static const struct {
		struct rail_map_row row;
		const char *says;
	} rows[] = {
		{{"nowhere", "store", "mlx5_0"}, "nowhere"},
		{{"mlx5_0", "elsewhere", "mlx5_0"}, "elsewhere"},
		{{"mlx5_0", "store", "nothing"}, "store has no rail nothing"},
		{{"mlx5_0", NULL, "nothing"}, "nothing"},
	};

	for (size_t i = 0; i < N(rows); i++) {
		struct rail_map_table all = {.n_all = 1, .all = &rows[i].row},
				      direct = {.n_direct = 1, .direct = &rows[i].row};
		struct rail_map_layout layout = plain;

		layout.table = &all;
		refused(&layout, -EINVAL, rows[i].says);
		layout.table = &direct;
		refused(&layout, -EINVAL, rows[i].says);
	}
}

Test(rail_health, map_table_contradictions_are_errors)
{
	struct rail_map_row all[] = {{"mlx5_0", NULL, "mlx5_0"}};
	struct rail_map_row other[] = {{"mlx5_0", NULL, "mlx5_1"}};
	struct rail_map_row both[] = {{"mlx5_0", NULL, "mlx5_0"}, {"mlx5_0", NULL, "mlx5_1"}};
	struct rail_map_table missing = {.n_all = 1, .all = all, .n_direct = 1, .direct = other};
	struct rail_map_table twice = {.n_direct = 2, .direct = both};
	struct rail_map_layout layout = plain;

	layout.table = &missing;
	refused(&layout, -EINVAL, "not in the list of all pairs");
	layout.table = &twice;
	refused(&layout, -EINVAL, "two direct rails");
}

Test(rail_health, map_bad_layouts_are_errors)
{
	static const char name_of_32[] = "0123456789abcdef0123456789abcdef";
	struct rail_map_end long_name = {.name = name_of_32}, wide = {.name = "a", .prefix_bits = 129},
			    same[] = {{"a"}, {"a"}};
	struct rail_map_peer peers[] = {{"s", 1, two}, {"s", 1, two}}, twin = {"s", 2, same},
			     named = {name_of_32, 1, two};
	struct rail_map_layout layout = plain;

	layout.n_locals = 1;
	layout.locals = &long_name;
	refused(&layout, -EINVAL, "longer than 31");
	layout.locals = &wide;
	refused(&layout, -EINVAL, "129 bits");
	layout = plain;
	layout.peers = &twin;
	refused(&layout, -EINVAL, "two rails have this name");
	layout.peers = &named;
	refused(&layout, -EINVAL, "longer than 31");
	layout.n_peers = 2;
	layout.peers = peers;
	refused(&layout, -EINVAL, "two peers have this name");
}

Test(rail_health, map_limits)
{
	static char names[PAIRS_MAX + 1][8];
	static struct rail_map_end ends[PAIRS_MAX + 1];
	static struct rail_map_peer peers[RAIL_MAP_PEERS_MAX + 1];
	struct rail_map_peer big = {"big", PAIRS_MAX, ends};
	struct rail_map_layout layout = {1, ends, 1, &big, NULL};

	for (unsigned i = 0; i <= PAIRS_MAX; i++) {
		snprintf(names[i], sizeof(names[i]), "n%u", i);
		ends[i].name = names[i];
		if (i <= RAIL_MAP_PEERS_MAX)
			peers[i] = (struct rail_map_peer){names[i], 1, ends};
	}
	cr_assert_eq(rail_map_build(&map, &layout, NULL, &error), 0, "%s", error.text);
	cr_assert_eq(map.plan.n_pairs, PAIRS_MAX);
	big.n_rails = PAIRS_MAX + 1;
	refused(&layout, -ENOSPC, "more than 1024");
	big.n_rails = PAIRS_MAX / 2 + 1;
	layout.n_locals = 2;
	refused(&layout, -ENOSPC, "more than 1024 pairs");
	layout = (struct rail_map_layout){1, ends, RAIL_MAP_PEERS_MAX, peers, NULL};
	cr_assert_eq(rail_map_build(&map, &layout, NULL, &error), 0, "%s", error.text);
	layout.n_peers++;
	refused(&layout, -ENOSPC, "more than the most of 320");
	layout = (struct rail_map_layout){RY_RAILS_MAX, ends, 1, peers, NULL};
	cr_assert_eq(rail_map_build(&map, &layout, NULL, &error), 0, "%s", error.text);
	layout.n_locals++;
	refused(&layout, -ENOSPC, "more than the 32");
}

Test(rail_health, map_numbers_stay_over_changes)
{
	struct rail_map_peer before[] = {{"s1", 2, two}, {"s2", 2, two}}, after[] = {{"s0", 2, two}, {"s2", 2, two}};
	struct rail_map_layout a = {2, two, 2, before, NULL}, b = {2, two, 2, after, NULL};
	uint16_t kept, gone;
	bool seen[8] = {false};

	cr_assert_eq(rail_map_build(&map, &a, NULL, &error), 0);
	kept = rail_map_find(&map, "mlx5_1", "s2", "mlx5_0");
	gone = rail_map_find(&map, "mlx5_1", "s1", "mlx5_0");
	rail_map_set_paused(&map, kept, true);
	rail_map_set_paused(&map, gone, true);
	cr_assert_eq(rail_map_build(&map_next, &b, &map, &error), 0);
	cr_assert_eq(rail_map_find(&map_next, "mlx5_1", "s2", "mlx5_0"), kept);
	cr_assert(map_next.is_paused[kept]);
	cr_assert(rail_map_is_same_pair(&map, &map_next, kept));
	cr_assert_not(rail_map_is_same_pair(&map, &map_next, gone));
	cr_assert_not(map_next.is_paused[gone], "the number's next pair starts clean");
	cr_assert_not(rail_map_is_equal(&map, &map_next));
	for (uint16_t l = 0; l < 2; l++) {
		for (uint16_t p = 0; p < 2; p++) {
			for (uint16_t r = 0; r < 2; r++) {
				uint16_t n = rail_map_pair(&map_next, l, p, r);

				cr_assert_lt(n, 8);
				cr_assert_not(seen[n], "numbers are given once");
				seen[n] = true;
			}
		}
	}
	cr_assert_eq(rail_map_build(&map, &b, &map_next, &error), 0);
	cr_assert(rail_map_is_equal(&map, &map_next));
	cr_assert_eq(memcmp(&map, &map_next, sizeof(map)), 0);
}
