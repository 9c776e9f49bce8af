/* SPDX-License-Identifier: BSD-3-Clause */
/* The breaker of a rail that is slow: opened on request, and closed by a trial, its own or that of another pair. */
#include "rail_health_fixture.h"

/* For what a probe cannot see: whatever the count, no probes, one trial, and the pause of the last time. */
Test(rail_health, slow_a_trip_asked_for_is_damped)
{
	uint16_t p;

	start_with(3, 30, 1);
	p = pair(0, 0);
	cr_assert(rail_health_trip(&h, p, now));
	cr_assert(report(p).is_damped && report(p).n_trips == 1 && report(p).last_evidence == RAIL_EV_RATE);
	cr_assert_eq(report(p).error_count, 0u, "nothing failed");
	cr_assert_str_eq(rail_error_name(report(p).last_evidence, report(p).last_status), "SLOW");
	cr_assert_not(available(p));
	now += 29 * SEC;
	cr_assert_not(rail_health_trip(&h, p, now), "it is out already");
	cr_assert_eq(rail_health_due_ns(&h, p), now + SEC, "nor did that lengthen it");
	ask_as(p, RAIL_REFUSED);
	now += SEC;
	fails(ask_as(p, RAIL_TRIAL));
	now += 59 * SEC;
	ask_as(p, RAIL_REFUSED); /* a probe would bring back what is slow */
	now += SEC;
	succeeds(ask_as(p, RAIL_TRIAL));
	cr_assert(rail_health_trip(&h, p, now + SEC));
	cr_assert_eq(rail_health_due_ns(&h, p), now + 61 * SEC, "kept");
	cr_assert_not(rail_health_trip(&h, RAIL_MAP_NONE, now));
}

/* Once it is closed, it is a pair like any other. */
Test(rail_health, slow_a_pair_that_was_slow_is_probed_after_its_next_failures)
{
	uint16_t p;

	start_with(1, 30, 1);
	p = pair(0, 0);
	cr_assert(rail_health_trip(&h, p, now));
	now += 30 * SEC;
	succeeds(ask_as(p, RAIL_TRIAL));
	now += 20 * SEC;
	trip(p);
	cr_assert_not(report(p).is_damped);
	now += SEC;
	ask_as(p, RAIL_PROBE);
}

/* Another pair of its rail has passed the trial. */
Test(rail_health, slow_untrip_closes_what_was_slow_and_nothing_else)
{
	uint16_t p, q;

	start_with(1, 30, 1);
	p = pair(0, 0);
	q = pair(0, 1);
	cr_assert(rail_health_trip(&h, p, now));
	trip(q);
	rail_health_untrip(&h, q, now);
	cr_assert(!available(q) && !available(p), "it failed");
	rail_health_untrip(&h, RAIL_MAP_NONE, now);
	rail_health_untrip(&h, p, now);
	cr_assert(available(p) && !report(p).is_damped);
	cr_assert(rail_health_trip(&h, p, now));
	now += 30 * SEC;
	fails(ask_as(p, RAIL_TRIAL));
	rail_health_untrip(&h, p, now);
	cr_assert_not(available(p), "its own trial failed");
}
