/* SPDX-License-Identifier: BSD-3-Clause */
/* What the breaker tells: parameters and their ranges, states, times, counters, transitions. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <railyard/status.h>

#include "health/rail_health_priv.h"

static int check(const char *key, uint32_t value, uint32_t least, uint32_t most, struct rail_map_error *err);
static void book(
	const struct rail_breaker *p, enum rail_state state, uint64_t now_ns, uint64_t in_state_ns[RAIL_STATES]);

void rail_health_default_params(struct rail_health_params *p)
{
	*p = (struct rail_health_params){
		.error_threshold = 3,
		.error_window_secs = 10,
		.cooldown_secs = 30,
		.probe_interval_secs = 1,
		.flap_secs = 10,
	};
}

int rail_health_check_params(const struct rail_health_params *p, struct rail_map_error *err)
{
	int rc = check("rail_error_threshold", p->error_threshold, 1, UINT32_MAX, err);

	if (!rc)
		rc = check("rail_error_window_secs", p->error_window_secs, 1, UINT32_MAX, err);
	if (!rc)
		rc = check("rail_cooldown_secs", p->cooldown_secs, 1, RAIL_COOLDOWN_MAX_SECS, err);
	return rc;
}

static int check(const char *key, uint32_t value, uint32_t least, uint32_t most, struct rail_map_error *err)
{
	if (value >= least && value <= most)
		return 0;
	snprintf(err->text, sizeof(err->text), "%s: %" PRIu32 " is out of range: give %" PRIu32 " to %" PRIu32, key,
		value, least, most);
	return -EINVAL;
}

void rail_note_fault(struct rail_breaker *p, const struct rail_fault *fault, uint64_t now_ns)
{
	if (fault->evidence == RAIL_EV_NONE || fault->evidence == RAIL_EV_FLUSH)
		return;
	p->last_status = fault->status;
	p->last_evidence = fault->evidence;
	p->last_fault_ns = now_ns;
}

void rail_note_transition(
	struct rail_health *h, struct rail_breaker *p, enum rail_state from, enum rail_state to, uint64_t now_ns)
{
	struct rail_transition *t = &h->transitions[h->transitions_head++ % RAIL_TRANSITIONS_KEPT];

	book(p, from, now_ns, p->in_state_ns);
	p->since_ns = now_ns;
	*t = (struct rail_transition){
		.at_ns = now_ns,
		.cooldown_ns = to == RAIL_CLOSED ? 0 : p->cooldown_ns,
		.status = p->last_status,
		.n_trips = p->n_trips,
		.pair_idx = (uint16_t)(p - h->pairs),
		.from = (uint8_t)from,
		.to = (uint8_t)to,
		.evidence = p->last_evidence,
		.is_damped = p->is_damped,
		.is_slow = p->is_slow,
	};
}

/* Time since the last transition. The clock alone moved Open to expired: what came after the end of the pause is booked
 * there. */
static void book(
	const struct rail_breaker *p, enum rail_state state, uint64_t now_ns, uint64_t in_state_ns[RAIL_STATES])
{
	uint64_t all = rail_elapsed(now_ns, p->since_ns), after = 0;

	if (state == RAIL_OPEN || state == RAIL_EXPIRED) {
		after = rail_elapsed(now_ns, p->resume_ns);
		after = after < all ? after : all;
		state = RAIL_OPEN;
	}
	in_state_ns[state] += all - after;
	in_state_ns[RAIL_EXPIRED] += after;
}

bool rail_health_next_transition(struct rail_health *h, struct rail_transition *out, uint32_t *n_lost)
{
	uint32_t n = h->transitions_head - h->transitions_tail;

	if (!n)
		return false;
	*n_lost = n > RAIL_TRANSITIONS_KEPT ? n - RAIL_TRANSITIONS_KEPT : 0;
	h->transitions_tail += *n_lost;
	*out = h->transitions[h->transitions_tail++ % RAIL_TRANSITIONS_KEPT];
	return true;
}

enum rail_state rail_health_state(const struct rail_health *h, uint16_t pair_idx, uint64_t now_ns)
{
	return rail_map_has_pair(rail_health_map(h), pair_idx) ? rail_state_at(&h->pairs[pair_idx], now_ns)
							       : RAIL_STATES;
}

uint64_t rail_health_due_ns(const struct rail_health *h, uint16_t pair_idx)
{
	const struct rail_breaker *p;
	uint64_t next;

	if (!rail_map_has_pair(rail_health_map(h), pair_idx))
		return UINT64_MAX;
	p = &h->pairs[pair_idx];
	if (!p->resume_ns)
		return UINT64_MAX;
	if (p->is_probe_out)
		return p->lease_end_ns ? p->lease_end_ns : UINT64_MAX;
	if (!rail_is_probed(&h->params, p))
		return p->resume_ns;
	next = rail_later(p->last_probe_ns, h->params.probe_interval_secs * RAIL_NS_PER_S);
	return next < p->resume_ns ? next : p->resume_ns;
}

bool rail_health_wants_probe(const struct rail_health *h, uint16_t pair_idx, uint64_t now_ns)
{
	const struct rail_breaker *p;

	if (!rail_map_has_pair(rail_health_map(h), pair_idx))
		return false;
	p = &h->pairs[pair_idx];
	return rail_is_due(&h->params, p, now_ns);
}

bool rail_health_get_report(
	const struct rail_health *h, uint16_t pair_idx, uint64_t now_ns, struct rail_health_report *out)
{
	const struct rail_breaker *p;

	if (!rail_map_has_pair(rail_health_map(h), pair_idx))
		return false;
	p = &h->pairs[pair_idx];
	*out = (struct rail_health_report){
		.state = rail_state_at(p, now_ns),
		.is_probe_out = p->is_probe_out,
		.is_damped = p->is_damped,
		.error_count = p->error_count,
		.n_trips = p->n_trips,
		.n_sent = p->n_sent,
		.n_ok = p->n_ok,
		.n_failed = p->n_failed,
		.n_expired = p->n_expired,
		.n_cancelled = p->n_cancelled,
		.cooldown_ns = p->cooldown_ns,
		.cooldown_left_ns = p->resume_ns ? rail_elapsed(p->resume_ns, now_ns) : 0,
		.last_status = p->last_status,
		.last_evidence = p->last_evidence,
		.last_fault_ns = p->last_fault_ns,
		.last_transition_ns = p->since_ns,
	};
	out->present_ns = rail_elapsed(now_ns, p->since_ns);
	if (out->state == RAIL_EXPIRED && rail_elapsed(now_ns, p->resume_ns) < out->present_ns)
		out->present_ns = rail_elapsed(now_ns, p->resume_ns);
	memcpy(out->in_state_ns, p->in_state_ns, sizeof(out->in_state_ns));
	book(p, out->state, now_ns, out->in_state_ns);
	return true;
}

const char *rail_state_name(enum rail_state state)
{
	static const char *const names[RAIL_STATES] = {"closed", "open", "expired", "half-open"};

	return state < RAIL_STATES ? names[state] : "unknown";
}

const char *rail_evidence_name(enum rail_evidence evidence)
{
	static const char *const names[] = {"request", "path", "local", "peer", "flush", "rate"};

	return evidence < sizeof(names) / sizeof(names[0]) ? names[evidence] : "unknown";
}

const char *rail_error_name(enum rail_evidence evidence, uint32_t status)
{
	return evidence == RAIL_EV_RATE ? "SLOW" : ry_status_name((enum ry_status)status);
}
