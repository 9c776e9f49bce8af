/* SPDX-License-Identifier: BSD-3-Clause */
/* What the host takes from a rail is not held against its path; but it puts a judgement off, and never away. */
#include "hot/rail.h"
#include "read/control_priv.h"

#include <criterion/criterion.h>

#include <stdlib.h>

#define MS 1000000ull

static struct control c;
static struct rail *rail;

/* Control and one rail by hand: only what stall.c looks at. */
static void begin(void)
{
	cr_assert_eq(posix_memalign((void **)&rail, 64, sizeof(*rail)), 0);
	memset(rail, 0, sizeof(*rail));
	memset(&c, 0, sizeof(c));
	c.n_rails = 1;
	c.rails[0].rail = rail;
	c.now_ns = 1000000 * MS;
	c.rails[0].inflight_bytes = 1;
	stall_scan(&c);
}

TestSuite(stall, .init = begin);

static void scan_at(uint64_t ms, bool has_turn)
{
	c.now_ns = (1000000 + ms) * MS;
	rail->counters.turns_idle += has_turn;
	stall_scan(&c);
}

static uint64_t lost_ms(uint64_t from_ms)
{
	return stall_since_ns(&c.rails[0].stall, c.now_ns, (1000000 + from_ms) * MS) / MS;
}

Test(stall, a_host_with_time_takes_none)
{
	for (uint64_t t = 5; t <= 3000; t += 5)
		scan_at(t, true);
	cr_assert_eq(lost_ms(0), 0);
}

Test(stall, a_rail_between_two_turns_loses_nothing)
{
	for (uint64_t t = 5; t <= 3000; t += 5)
		scan_at(t, t % 20 == 0);
	cr_assert_eq(lost_ms(0), 0);
}

Test(stall, a_sleeping_rail_loses_nothing)
{
	rail->waker.need_wakeup = 1;
	for (uint64_t t = 5; t <= 1000; t += 5)
		scan_at(t, false);
	cr_assert_eq(lost_ms(0), 0);
}

Test(stall, a_rail_without_cpu_loses_its_time)
{
	for (uint64_t t = 5; t <= 1000; t += 5)
		scan_at(t, t <= 500);
	cr_assert(lost_ms(0) >= 475 && lost_ms(0) <= 500, "%lu", lost_ms(0));
	cr_assert(lost_ms(800) >= 200 && lost_ms(800) <= 264, "%lu", lost_ms(800));
	scan_at(1005, true);
	for (uint64_t t = 1010; t <= 2000; t += 5)
		scan_at(t, true);
	cr_assert_eq(lost_ms(1100), 0);
}

Test(stall, control_without_cpu_loses_time_for_all)
{
	scan_at(5, true);
	scan_at(705, true);
	cr_assert_eq(lost_ms(5), 700);
	for (uint64_t t = 710; t <= 900; t += 5)
		scan_at(t, true);
	cr_assert_eq(lost_ms(800), 0);
}

Test(stall, half_of_the_cpu_is_half_of_the_time)
{
	for (uint64_t t = 50; t <= 2000; t += 50) { /* 25 ms without, 25 ms with */
		scan_at(t - 25, true);
		for (uint64_t k = 20; k > 0; k -= 5)
			scan_at(t - k, true);
		scan_at(t, true);
	}
	cr_assert(lost_ms(0) >= 900 && lost_ms(0) <= 1100, "%lu", lost_ms(0));
}

/* Control sleeps while nothing is out: the first scan after it is late and means nothing. */
Test(stall, a_pause_without_work_is_none)
{
	scan_at(5, true);
	c.rails[0].inflight_bytes = 0;
	scan_at(10, true);
	c.rails[0].inflight_bytes = 1;
	scan_at(10010, true);
	cr_assert_eq(lost_ms(0), 0);
	scan_at(10015, true);
	cr_assert_eq(lost_ms(10010), 0);
}

/* What was posted after control had its CPU back did not wait for it. */
Test(stall, a_gap_is_not_charged_to_what_came_after_it)
{
	scan_at(5, true);
	scan_at(1005, true);
	scan_at(1010, true);
	cr_assert_eq(lost_ms(1006), 0);
	cr_assert_eq(lost_ms(5), 1000);
}

Test(stall, history_is_bounded)
{
	scan_at(5, true);
	scan_at(1005, true);
	for (uint64_t t = 1010; t <= 60000; t += 5)
		scan_at(t, true);
	cr_assert_eq(lost_ms(0), 0, "longer ago than any wait that is judged");
	c.now_ns += 3600000 * MS;
	stall_scan(&c);
	cr_assert_geq(lost_ms(59000), 3600000);
}
