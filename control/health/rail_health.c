/* SPDX-License-Identifier: BSD-3-Clause */
/* The machine: verdicts in, probes out. What operators see of it is in rail_report.c. */
#include "health/rail_health.h"

#include <string.h>

#include <railyard/status.h>

#include "health/rail_health_priv.h"

#define PROBE_LEASE_NS RAIL_NS_PER_S
#define RTT_LONG_NS (100u * 1000u * 1000u)
#define RTT_PER_LEASE 10u

static int take_layout(struct rail_health *h, const struct rail_map_layout *layout, bool is_strict, uint64_t now_ns,
	struct rail_map_error *err);
static void forget(struct rail_health *h, uint16_t pair_idx, uint64_t now_ns);
static enum rail_grant arm(struct rail_health *h, struct rail_breaker *p, uint64_t now_ns, uint64_t lease_ns);
static bool settle_expired(struct rail_health *h, struct rail_breaker *p, uint64_t now_ns);
static bool is_settled_by(const struct rail_breaker *p, struct rail_token token);
static bool is_other_pairs(const struct rail_breaker *p, struct rail_token token);
static void count(const struct rail_health *h, struct rail_breaker *p, uint64_t now_ns);
static void open_if_due(struct rail_health *h, struct rail_breaker *p, uint64_t now_ns);
static bool is_flapping(const struct rail_health *h, const struct rail_breaker *p, uint64_t now_ns);
static void open_pair(struct rail_health *h, struct rail_breaker *p, bool is_damped, uint64_t now_ns);
static void fail_probe(struct rail_health *h, struct rail_breaker *p, uint64_t now_ns);
static void close_proven(struct rail_health *h, struct rail_breaker *p, uint64_t now_ns);
static void close_pair(struct rail_health *h, struct rail_breaker *p, uint64_t now_ns);
static void release(struct rail_health *h, struct rail_breaker *p, uint64_t now_ns);

static uint64_t secs(uint32_t s)
{
	return s * RAIL_NS_PER_S;
}

static struct rail_breaker *known(struct rail_health *h, uint16_t pair_idx)
{
	return rail_map_has_pair(rail_health_map(h), pair_idx) ? &h->pairs[pair_idx] : NULL;
}

static void set_paused(struct rail_health *h, const struct rail_breaker *p, bool is_paused)
{
	rail_map_set_paused(&h->maps[h->current], (uint16_t)(p - h->pairs), is_paused);
}

/* What was out is not out any more. */
static void land(struct rail_health *h, struct rail_breaker *p)
{
	if (p->lease_end_ns)
		h->n_leased--;
	p->lease_end_ns = 0;
	p->is_probe_out = false;
	p->is_half_open = false;
}

/* A pause begins: the first probe waits one whole interval. */
static void pause_for(struct rail_breaker *p, uint64_t cooldown_ns, uint64_t now_ns)
{
	p->cooldown_ns = cooldown_ns;
	p->resume_ns = rail_later(now_ns, cooldown_ns);
	p->last_probe_ns = now_ns;
	p->epoch++;
}

int rail_health_init(struct rail_health *h, const struct rail_health_params *p, struct rail_map_error *err)
{
	int rc = rail_health_check_params(p, err);

	if (rc)
		return rc;
	memset(h, 0, sizeof(*h));
	h->params = *p;
	return 0;
}

int rail_health_set_params(struct rail_health *h, const struct rail_health_params *p, struct rail_map_error *err)
{
	int rc = rail_health_check_params(p, err);

	if (!rc)
		h->params = *p;
	return rc;
}

int rail_health_load(
	struct rail_health *h, const struct rail_map_layout *layout, uint64_t now_ns, struct rail_map_error *err)
{
	return take_layout(h, layout, true, now_ns, err);
}

int rail_health_relayout(
	struct rail_health *h, const struct rail_map_layout *layout, uint64_t now_ns, struct rail_map_error *err)
{
	return take_layout(h, layout, false, now_ns, err);
}

static int take_layout(struct rail_health *h, const struct rail_map_layout *layout, bool is_strict, uint64_t now_ns,
	struct rail_map_error *err)
{
	const struct rail_map *old = &h->maps[h->current];
	struct rail_map *map = &h->maps[!h->current];
	bool is_clean;
	int rc = rail_map_build(map, layout, old, err);

	if (rc)
		return rc;
	is_clean = is_strict && !rail_map_is_equal(map, old);
	/* Numbers are kept, so a clean start differs from a kept one in the pairs' state alone. */
	for (uint16_t i = 0; i < PAIRS_MAX; i++) {
		if (!rail_map_has_pair(old, i) && !rail_map_has_pair(map, i))
			continue;
		if (is_clean || !rail_map_is_same_pair(old, map, i))
			forget(h, i, now_ns);
	}
	h->current = !h->current;
	for (uint16_t i = 0; i < PAIRS_MAX; i++) {
		if (map->is_paused[i] && !h->pairs[i].resume_ns)
			rail_map_set_paused(map, i, false);
	}
	return 0;
}

/* The epoch goes on, so that no token of the pair that had this number fits the next one. */
static void forget(struct rail_health *h, uint16_t pair_idx, uint64_t now_ns)
{
	struct rail_breaker *p = &h->pairs[pair_idx];
	uint32_t epoch = p->epoch + 1;

	land(h, p);
	memset(p, 0, sizeof(*p));
	p->epoch = p->born_epoch = epoch;
	p->since_ns = now_ns;
}

bool rail_health_admit(struct rail_health *h, uint16_t pair_idx, uint64_t now_ns)
{
	struct rail_breaker *p = known(h, pair_idx);

	if (!p)
		return false;
	return !p->resume_ns || arm(h, p, now_ns, 0) != RAIL_REFUSED;
}

struct rail_token rail_health_ask(struct rail_health *h, uint16_t pair_idx, uint64_t now_ns)
{
	struct rail_token token = {.kind = RAIL_REFUSED, .pair_idx = pair_idx};
	struct rail_breaker *p = known(h, pair_idx);

	if (!p)
		return token;
	token.kind = RAIL_NORMAL;
	if (p->resume_ns) {
		settle_expired(h, p, now_ns);
		token.kind = arm(h, p, now_ns, rail_health_lease_ns(h, pair_idx));
	}
	token.epoch = p->epoch;
	return token;
}

/* A paused pair: whether one more attempt is due, and as what. */
static enum rail_grant arm(struct rail_health *h, struct rail_breaker *p, uint64_t now_ns, uint64_t lease_ns)
{
	enum rail_state from = rail_state_at(p, now_ns);

	if (!rail_is_due(&h->params, p, now_ns))
		return RAIL_REFUSED;
	p->is_probe_out = true;
	p->is_half_open = from == RAIL_EXPIRED;
	p->last_probe_ns = now_ns;
	p->epoch++;
	p->n_sent++;
	if (lease_ns) {
		p->lease_end_ns = rail_later(now_ns, lease_ns);
		h->n_leased++;
	}
	if (!p->is_half_open)
		return RAIL_PROBE;
	rail_note_transition(h, p, from, RAIL_HALF_OPEN, now_ns);
	return RAIL_TRIAL;
}

void rail_health_cancel_probe(struct rail_health *h, uint16_t pair_idx, uint64_t now_ns)
{
	struct rail_breaker *p = known(h, pair_idx);

	if (p && p->is_probe_out)
		release(h, p, now_ns);
}

void rail_health_release(struct rail_health *h, struct rail_token token, uint64_t now_ns)
{
	struct rail_breaker *p = known(h, token.pair_idx);

	if (!p || settle_expired(h, p, now_ns))
		return;
	if (is_settled_by(p, token))
		release(h, p, now_ns);
}

/* As if it had never been armed, but last_probe_ns stays: a cancelled probe does not buy another one. */
static void release(struct rail_health *h, struct rail_breaker *p, uint64_t now_ns)
{
	bool was_trial = p->is_half_open;

	p->n_cancelled++;
	land(h, p);
	if (was_trial)
		rail_note_transition(h, p, RAIL_HALF_OPEN, RAIL_EXPIRED, now_ns);
}

void rail_health_mark_failed(struct rail_health *h, uint16_t pair_idx, uint64_t now_ns)
{
	struct rail_breaker *p = known(h, pair_idx);
	static const struct rail_fault fault = {.evidence = RAIL_EV_PATH, .status = RY_ERR_RAIL};

	if (!p)
		return;
	rail_note_fault(p, &fault, now_ns);
	count(h, p, now_ns);
	if (p->is_probe_out) {
		p->n_failed++;
		fail_probe(h, p, now_ns);
		return;
	}
	open_if_due(h, p, now_ns);
}

void rail_health_mark_recovered(struct rail_health *h, uint16_t pair_idx, uint64_t now_ns)
{
	struct rail_breaker *p = known(h, pair_idx);

	if (!p)
		return;
	/* Nearly every completion ends here and must not dirty a line. */
	if (!p->resume_ns && !p->error_count)
		return;
	p->error_count = 0;
	if (!p->resume_ns)
		return;
	p->n_ok += p->is_probe_out;
	close_pair(h, p, now_ns);
	p->has_closed = false;
}

void rail_health_succeeded(struct rail_health *h, struct rail_token token, uint64_t now_ns)
{
	struct rail_breaker *p = known(h, token.pair_idx);

	if (!p)
		return;
	if (!p->resume_ns) {
		if (p->error_count && token.kind == RAIL_NORMAL && token.epoch == p->epoch)
			p->error_count = 0;
		return;
	}
	if (settle_expired(h, p, now_ns) || !is_settled_by(p, token))
		return;
	p->n_ok++;
	close_proven(h, p, now_ns);
}

void rail_health_failed(struct rail_health *h, struct rail_token token, const struct rail_fault *fault, uint64_t now_ns)
{
	struct rail_breaker *p = known(h, token.pair_idx);
	bool is_path = fault->evidence == RAIL_EV_PATH, is_told;

	if (!p || token.kind == RAIL_REFUSED || is_other_pairs(p, token))
		return;
	settle_expired(h, p, now_ns);
	rail_note_fault(p, fault, now_ns);
	is_told = fault->connection && fault->connection == p->connection;
	if (is_path && fault->connection)
		p->connection = fault->connection;
	if (is_settled_by(p, token)) {
		if (!is_path) {
			release(h, p, now_ns);
			return;
		}
		p->n_failed++;
		count(h, p, now_ns);
		fail_probe(h, p, now_ns);
		return;
	}
	if (!is_path || is_told)
		return;
	count(h, p, now_ns);
	/* An operation from before the last pause says nothing about the path as it is now. */
	if (token.kind == RAIL_NORMAL && token.epoch == p->epoch)
		open_if_due(h, p, now_ns);
}

bool rail_health_trip(struct rail_health *h, uint16_t pair_idx, uint64_t now_ns)
{
	static const struct rail_fault slow = {.evidence = RAIL_EV_RATE};
	struct rail_breaker *p = known(h, pair_idx);

	if (!p || p->resume_ns)
		return false;
	rail_note_fault(p, &slow, now_ns);
	p->is_slow = true;
	open_pair(h, p, true, now_ns);
	return true;
}

void rail_health_untrip(struct rail_health *h, uint16_t pair_idx, uint64_t now_ns)
{
	struct rail_breaker *p = known(h, pair_idx);

	if (p && p->is_slow && !p->is_probe_out && p->last_evidence == RAIL_EV_RATE)
		close_proven(h, p, now_ns);
}

/* Silence past the lease is the failure of what is out. Every tokened call looks first, so that no verdict depends on
 * when control turned. */
static bool settle_expired(struct rail_health *h, struct rail_breaker *p, uint64_t now_ns)
{
	static const struct rail_fault silence = {.evidence = RAIL_EV_PATH, .status = RY_ERR_TIMEOUT};

	if (!p->lease_end_ns || now_ns < p->lease_end_ns)
		return false;
	p->n_expired++;
	rail_note_fault(p, &silence, now_ns);
	count(h, p, now_ns);
	fail_probe(h, p, now_ns);
	return true;
}

static bool is_settled_by(const struct rail_breaker *p, struct rail_token token)
{
	enum rail_grant out = p->is_half_open ? RAIL_TRIAL : RAIL_PROBE;

	return p->is_probe_out && token.kind == out && token.epoch == p->epoch;
}

/* Epochs of a pair move at most about once a second: half their range is decades. */
static bool is_other_pairs(const struct rail_breaker *p, struct rail_token token)
{
	return (int32_t)(token.epoch - p->born_epoch) < 0;
}

/* The gap rule. */
static void count(const struct rail_health *h, struct rail_breaker *p, uint64_t now_ns)
{
	if (rail_elapsed(now_ns, p->last_error_ns) > secs(h->params.error_window_secs))
		p->error_count = 0;
	if (p->error_count < UINT32_MAX)
		p->error_count++;
	p->last_error_ns = now_ns;
}

static void open_if_due(struct rail_health *h, struct rail_breaker *p, uint64_t now_ns)
{
	if (p->resume_ns || p->error_count < h->params.error_threshold)
		return;
	/* It passed its probe and failed its data: probing would close it again at once, for ever. */
	open_pair(h, p, is_flapping(h, p, now_ns), now_ns);
}

static bool is_flapping(const struct rail_health *h, const struct rail_breaker *p, uint64_t now_ns)
{
	uint64_t flap = secs(h->params.flap_secs);

	return flap && p->has_closed && rail_elapsed(now_ns, p->closed_ns) <= flap;
}

static void open_pair(struct rail_health *h, struct rail_breaker *p, bool is_damped, uint64_t now_ns)
{
	uint64_t cooldown = is_flapping(h, p, now_ns) ? p->kept_cooldown_ns : secs(h->params.cooldown_secs);

	p->is_damped = is_damped;
	p->n_trips++;
	pause_for(p, cooldown, now_ns);
	set_paused(h, p, true);
	rail_note_transition(h, p, RAIL_CLOSED, RAIL_OPEN, now_ns);
}

/* A probe proves nothing new; a trial is the one thing that lengthens the pause. */
static void fail_probe(struct rail_health *h, struct rail_breaker *p, uint64_t now_ns)
{
	uint64_t most = secs(RAIL_COOLDOWN_MAX_SECS), doubled = 2 * p->cooldown_ns;
	bool was_trial = p->is_half_open;

	land(h, p);
	if (!was_trial)
		return;
	p->error_count = 0;
	p->is_damped = p->is_slow;
	pause_for(p, doubled < most ? doubled : most, now_ns);
	rail_note_transition(h, p, RAIL_HALF_OPEN, RAIL_OPEN, now_ns);
}

/* Remembers the pause, for the case that it opens again soon. */
static void close_proven(struct rail_health *h, struct rail_breaker *p, uint64_t now_ns)
{
	p->kept_cooldown_ns = p->cooldown_ns;
	close_pair(h, p, now_ns);
	p->has_closed = true;
	p->closed_ns = now_ns;
}

static void close_pair(struct rail_health *h, struct rail_breaker *p, uint64_t now_ns)
{
	rail_note_transition(h, p, rail_state_at(p, now_ns), RAIL_CLOSED, now_ns);
	land(h, p);
	p->error_count = 0;
	p->cooldown_ns = 0;
	p->resume_ns = 0;
	p->last_probe_ns = 0;
	p->is_damped = false;
	p->is_slow = false;
	p->epoch++;
	set_paused(h, p, false);
}

uint32_t rail_health_expire(struct rail_health *h, uint64_t now_ns)
{
	uint32_t n = 0, n_left = h->n_leased;

	for (uint16_t i = 0; i < PAIRS_MAX && n_left; i++) {
		if (!h->pairs[i].lease_end_ns)
			continue;
		n_left--;
		n += settle_expired(h, &h->pairs[i], now_ns);
	}
	return n;
}

void rail_health_set_rtt(struct rail_health *h, uint16_t pair_idx, uint64_t rtt_ns)
{
	struct rail_breaker *p = known(h, pair_idx);

	if (!p)
		return;
	p->lease_ns = rtt_ns > RTT_LONG_NS && rtt_ns < UINT64_MAX / RTT_PER_LEASE ? RTT_PER_LEASE * rtt_ns : 0;
}

uint64_t rail_health_lease_ns(const struct rail_health *h, uint16_t pair_idx)
{
	return h->pairs[pair_idx].lease_ns ? h->pairs[pair_idx].lease_ns : PROBE_LEASE_NS;
}
