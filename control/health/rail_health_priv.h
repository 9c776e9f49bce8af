/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Between the files of the breaker: the machine (rail_health.c) and what it tells (rail_report.c).
 *
 * Nobody else includes it. Control lcore only, like everything here; nothing in it reads a clock or allocates.
 */
#ifndef RY_RAIL_HEALTH_PRIV_H
#define RY_RAIL_HEALTH_PRIV_H

#include "health/rail_health.h"

#ifdef __cplusplus
extern "C" {
#endif

#define RAIL_NS_PER_S UINT64_C(1000000000)

/* A clock that stands still or jumps back lets no time pass. */
static inline uint64_t rail_elapsed(uint64_t now_ns, uint64_t then_ns)
{
	return now_ns > then_ns ? now_ns - then_ns : 0;
}

static inline uint64_t rail_later(uint64_t now_ns, uint64_t by_ns)
{
	return now_ns > UINT64_MAX - by_ns ? UINT64_MAX : now_ns + by_ns;
}

static inline enum rail_state rail_state_at(const struct rail_breaker *p, uint64_t now_ns)
{
	if (!p->resume_ns)
		return RAIL_CLOSED;
	if (p->is_half_open)
		return RAIL_HALF_OPEN;
	return now_ns < p->resume_ns ? RAIL_OPEN : RAIL_EXPIRED;
}

static inline bool rail_is_probed(const struct rail_health_params *params, const struct rail_breaker *p)
{
	return params->probe_interval_secs && !p->is_damped;
}

/* Whether a paused pair may have a probe or its trial now. */
static inline bool rail_is_due(const struct rail_health_params *params, const struct rail_breaker *p, uint64_t now_ns)
{
	if (!p->resume_ns || p->is_probe_out)
		return false;
	if (now_ns >= p->resume_ns)
		return true;
	return rail_is_probed(params, p) &&
	       rail_elapsed(now_ns, p->last_probe_ns) >= params->probe_interval_secs * RAIL_NS_PER_S;
}

/* The time since the last one is booked to from; when that is a running or expired pause, its resume_ns must still be
 * there. */
void rail_note_transition(
	struct rail_health *h, struct rail_breaker *p, enum rail_state from, enum rail_state to, uint64_t now_ns);
/* Keeps it as the last error, unless it says nothing about the rail. */
void rail_note_fault(struct rail_breaker *p, const struct rail_fault *fault, uint64_t now_ns);

#ifdef __cplusplus
}
#endif
#endif
