/* SPDX-License-Identifier: BSD-3-Clause */
/* A rail takes a new configuration snapshot at its housekeeping and says so; only then may the old one go. */
#include <criterion/criterion.h>

#include "rig.h"

Test(node_snapshot, is_taken_and_acknowledged)
{
	struct rail_snapshot next;
	struct rail *rail;
	struct rig r;

	rig_init(&r, 2, 0);
	rig_start(&r);
	rail = r.node->rails[1];
	rig_run(&r, 600 * RIG_STEP_NS);
	cr_assert_eq(rail_seen_generation(rail), 1u);
	next = r.node->snapshot;
	next.generation = 2;
	rail_publish(rail, &next);
	cr_assert_eq(rail_seen_generation(rail), 1u, "not before the rail has looked");
	rig_run(&r, 300 * RIG_STEP_NS);
	cr_assert_eq(rail_seen_generation(rail), 2u);
	cr_assert_eq(rail_seen_generation(r.node->rails[0]), 1u, "each rail by itself");
	rail_publish(rail, &r.node->snapshot);
	rig_run(&r, 300 * RIG_STEP_NS);
	rig_stop(&r);
}
