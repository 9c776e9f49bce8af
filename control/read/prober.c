/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Timer-driven probes: a full-size PING over the pair's own QP, for a connection that must prove itself and for a
 * breaker that is due. No user data is spent on a pair in doubt, and none is needed to bring it back.
 */
#include "read/control_priv.h"

static void ping_due(struct control *c);
static bool wants_ping(const struct control *c, uint16_t pair_idx);
static void ping(struct control *c, struct peer_pair *pp, struct probe *pr);
static struct probe *free_probe(const struct control *c);
static uint64_t give_up_ns(const struct probe *pr);
static void map_again(struct control *c, uint16_t breaker);
static void log_transitions(struct control *c);
static uint64_t ping_due_ns(const struct control *c, uint16_t idx);

void prober_run(struct control *c)
{
	rail_health_expire(&c->health.breakers, c->now_ns);
	ping_due(c);
	for (uint32_t i = 0; i < PROBES_MAX; i++) {
		struct probe *pr = &c->probes[i];

		/* Past its lease the breaker has settled it; CANCEL, then the fence, bring the segment back. */
		if (pr->is_used && !pr->seg.cancel_want && c->now_ns >= give_up_ns(pr)) {
			__atomic_store_n(&pr->seg.cancel_want, 1, __ATOMIC_RELAXED); /* ordered by rail_cancel_scan */
			c->rails[pr->seg.rail_idx].want_cancel_scan = true;
		}
	}
	log_transitions(c);
}

/* When all probes are out, each of which has a lease, the rest waits; and goes first then. */
static void ping_due(struct control *c)
{
	uint16_t n = c->config->n_stores, first = c->ping_store;
	uint32_t begin = c->ping_pair;

	for (uint16_t i = 0; i <= n && n; i++) {
		uint16_t store = (uint16_t)((first + i) % n);
		struct peer *p = &c->peers[store];
		uint32_t end = i == n ? RTE_MIN(begin, p->n_pairs) : p->n_pairs;

		for (uint32_t k = i ? 0 : begin; k < end; k++) {
			struct probe *pr;

			if (!wants_ping(c, p->pairs[k].pair->idx))
				continue;
			pr = free_probe(c);
			if (!pr) {
				c->ping_store = store;
				c->ping_pair = k;
				return;
			}
			ping(c, &p->pairs[k], pr);
		}
	}
}

static bool wants_ping(const struct control *c, uint16_t pair_idx)
{
	const struct path *p = &c->paths[pair_idx];

	return !p->is_killed && !p->is_probed && c->now_ns >= p->ping_after_ns &&
	       health_wants_ping(&c->health, pair_idx, c->now_ns);
}

static void ping(struct control *c, struct peer_pair *pp, struct probe *pr)
{
	uint16_t pair_idx = pp->pair->idx;
	struct segment *s;
	uint64_t lease_ns;

	pr->token = health_ask(&c->health, pair_idx, c->now_ns);
	if (pr->token.kind == RAIL_REFUSED)
		return;
	pr->is_used = true;
	lease_ns = rail_health_lease_ns(&c->health.breakers, pr->token.pair_idx);
	pr->post_by_ns = c->now_ns + lease_ns / 2;
	pr->until_ns = c->now_ns + lease_ns;
	c->paths[pair_idx].is_probed = true;
	s = &pr->seg;
	memset(s, 0, sizeof(*s));
	s->kind = SEG_PROBE;
	s->rail_idx = pp->pair->rail_idx;
	s->pair_idx = pair_idx;
	s->owner_aux = pp->epoch;
	s->qp = pp->pair->qps[0];
	s->dst = c->d.probe_slab + (uint64_t)(pr - c->probes) * PROBE_BYTES;
	s->region = c->d.probe_region;
	memset(s->dst, 0, PROBE_BYTES); /* what came back last time is no answer */
	s->len_bytes = PROBE_BYTES;
	s->deadline_ns = pr->until_ns;
	s->owner = pr;
	c->rails[s->rail_idx].want_kick = true;
	RTE_VERIFY(rail_hand_out(c->rails[s->rail_idx].rail, s));
}

/* One that still waits for a window is taken back in good time: it must not become a failure of its pair. */
static uint64_t give_up_ns(const struct probe *pr)
{
	/* Relaxed: nothing else is read with it. */
	return __atomic_load_n(&pr->seg.posted_ns, __ATOMIC_RELAXED) ? pr->until_ns : pr->post_by_ns;
}

static struct probe *free_probe(const struct control *c)
{
	for (uint32_t i = 0; i < PROBES_MAX; i++) {
		if (!c->probes[i].is_used)
			return &c->probes[i];
	}
	return NULL;
}

void prober_done(struct control *c, struct segment *s)
{
	struct probe *pr = s->owner;
	struct path *p = &c->paths[s->pair_idx];
	struct rail_fault fault = {.evidence = RAIL_EV_PATH, .status = s->status, .connection = s->owner_aux};
	bool is_same = p->epoch == s->owner_aux, was_slow;

	/* We cancelled it because nothing came back in time. */
	if (s->status == RY_ERR_CANCELLED)
		fault.status = RY_ERR_TIMEOUT;
	/* Its lease was its deadline: a second silence is not awaited. */
	s->is_expired = s->is_silent;
	/* Lost with its QP: the end of the QP says why. The QP is there until control has quiesced the pair. */
	if (s->status == RY_ERR_RAIL)
		fault.evidence = is_same ? health_wc_evidence(qp_fail_status(s->qp)) : RAIL_EV_FLUSH;
	pr->is_used = false;
	if (is_same) {
		p->is_probed = false;
		p->ping_after_ns = s->posted_ns ? 0 : c->now_ns + PROBE_PAUSE_NS; /* its rail had no room for it */
	}
	/* Also one that came too late: the next one may take as long. */
	if (s->landed_ns)
		rail_health_set_rtt(&c->health.breakers, pr->token.pair_idx, s->landed_ns - s->posted_ns);
	was_slow = pr->token.kind == RAIL_TRIAL && c->health.breakers.pairs[pr->token.pair_idx].is_slow;
	health_pinged(&c->health, s->pair_idx, pr->token, is_same && s->status == RY_OK, s->posted_ns ? &fault : NULL,
		c->now_ns);
	if (was_slow && rail_health_is_available(&c->health.breakers, pr->token.pair_idx))
		slow_passed(c, pr->token.pair_idx);
	path_done(c, s);
	if (s->status == RY_OK)
		map_again(c, pr->token.pair_idx);
}

/* A proof makes a pair eligible without a transition. */
static void map_again(struct control *c, uint16_t breaker)
{
	struct health_name name;

	health_names(&c->health, breaker, &name);
	endpoints_map(c, name.store_idx);
}

static void log_transitions(struct control *c)
{
	struct rail_transition t;
	uint32_t n_lost;

	while (rail_health_next_transition(&c->health.breakers, &t, &n_lost)) {
		if (n_lost)
			journal_lost(c->d.journal, n_lost);
		struct journal_entry e = {.what = t};

		health_names(&c->health, t.pair_idx, &e.name);
		endpoints_map(c, e.name.store_idx);
		journal_push(c->d.journal, &e);
		c->want_api_kick = true;
	}
}

static uint64_t ping_due_ns(const struct control *c, uint16_t idx)
{
	uint64_t due_ns = health_due_ns(&c->health, idx, c->now_ns);

	return RTE_MAX(due_ns, c->paths[idx].ping_after_ns);
}

uint64_t prober_due_ns(const struct control *c)
{
	uint64_t due_ns = UINT64_MAX;

	/* While all are out the lease of one ends the wait. */
	for (uint16_t i = 0; i < c->config->n_stores && free_probe(c); i++) {
		const struct peer *p = &c->peers[i];

		for (uint32_t k = 0; k < p->n_pairs; k++) {
			uint16_t idx = p->pairs[k].pair->idx;

			if (!c->paths[idx].is_probed && !c->paths[idx].is_killed)
				due_ns = RTE_MIN(due_ns, ping_due_ns(c, idx));
		}
	}
	for (uint32_t i = 0; i < PROBES_MAX; i++) {
		if (c->probes[i].is_used && !c->probes[i].seg.cancel_want)
			due_ns = RTE_MIN(due_ns, give_up_ns(&c->probes[i]));
	}
	return due_ns;
}
