/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the tests of the breaker share: a small layout and a clock that only the test moves.
 *
 * Two local rails and one peer with two rails of the same names, all on NUMA node 0, unless a test brings a layout of
 * its own. Included by test programs only; Criterion runs every test in a process of its own, so each starts with the
 * zeroed state below.
 */
#ifndef RAIL_HEALTH_FIXTURE_H
#define RAIL_HEALTH_FIXTURE_H

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <railyard/status.h>

#include "health/rail_health.h"

#define SEC UINT64_C(1000000000)
#define MSEC UINT64_C(1000000)
#define START (1000 * SEC)

static struct rail_health h;
static struct rail_health_params params;
static struct rail_map_error error;
static uint64_t now = START;

static const struct rail_map_end two[] = {{.name = "mlx5_0"}, {.name = "mlx5_1"}};
static const struct rail_map_peer one_peer[] = {{.name = "store", .n_rails = 2, .rails = two}};
static const struct rail_map_layout plain = {.n_locals = 2, .locals = two, .n_peers = 1, .peers = one_peer};

static inline void start_with(uint32_t threshold, uint32_t cooldown, uint32_t interval)
{
	rail_health_default_params(&params);
	params.error_threshold = threshold;
	params.cooldown_secs = cooldown;
	params.probe_interval_secs = interval;
	cr_assert_eq(rail_health_init(&h, &params, &error), 0, "%s", error.text);
	cr_assert_eq(rail_health_load(&h, &plain, now, &error), 0, "%s", error.text);
}

static inline void start(void)
{
	start_with(3, 30, 1);
}

static inline uint16_t pair(uint16_t local, uint16_t remote)
{
	return rail_map_pair(rail_health_map(&h), local, 0, remote);
}

static inline bool available(uint16_t p)
{
	return rail_health_is_available(&h, p);
}

static inline bool admit(uint16_t p)
{
	return rail_health_admit(&h, p, now);
}

static inline void fail_times(uint16_t p, unsigned n)
{
	while (n--)
		rail_health_mark_failed(&h, p, now);
}

static inline void recover(uint16_t p)
{
	rail_health_mark_recovered(&h, p, now);
}

static inline uint16_t best(uint16_t local, int numa)
{
	return rail_map_best(rail_health_map(&h), local, 0, numa);
}

static inline enum rail_state state(uint16_t p)
{
	return rail_health_state(&h, p, now);
}

static inline struct rail_health_report report(uint16_t p)
{
	struct rail_health_report r;

	cr_assert(rail_health_get_report(&h, p, now, &r));
	return r;
}

/* The tokened form. */
static inline struct rail_token ask(uint16_t p)
{
	return rail_health_ask(&h, p, now);
}

static inline struct rail_token ask_as(uint16_t p, enum rail_grant kind)
{
	struct rail_token t = ask(p);

	cr_assert_eq(t.kind, kind, "got %u, not %u", t.kind, kind);
	return t;
}

static inline void fault_on(struct rail_token t, enum rail_evidence evidence, uint32_t connection)
{
	struct rail_fault f = {.evidence = evidence, .status = RY_ERR_RAIL, .connection = connection};

	rail_health_failed(&h, t, &f, now);
}

static inline void fails(struct rail_token t)
{
	fault_on(t, RAIL_EV_PATH, 0);
}

static inline void succeeds(struct rail_token t)
{
	rail_health_succeeded(&h, t, now);
}

static inline void trip(uint16_t p)
{
	for (uint32_t i = 0; i < params.error_threshold; i++)
		fails(ask_as(p, RAIL_NORMAL));
	cr_assert_not(available(p));
}

#endif
