/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which of a store's endpoints each local rail uses, and which conn should keep connected.
 *
 * Every rail has one that it prefers (health/mapping.h) and is connected to while the daemon runs. Another one is
 * dialled when the preferred pair is paused, or has been out of use for any other reason for a while; one after the
 * other, so that a dead store costs two attempts at a time and rail. What was connected once stays so.
 *
 * Pairs that peers dialled carry the PULLs of their puts. Which of them belongs where only the peer knows, and spare
 * ones may be among them: they are spread over as many of its rails as can be.
 */
#include "read/control_priv.h"

#include "health/layout.h"

#define TURN_NS 2000000000ull /* an endpoint's time to come up, before the next one is tried too */
#define TICK_NS 100000000ull

static void spread(struct control *c, struct peer *p);
static bool take_one(const struct control *c, struct peer *p, uint16_t rail_idx, uint16_t *holders, uint32_t *seen);
static unsigned rank(const struct control *c, const struct peer *p, const struct peer_pair *pp);
static bool is_served(const struct control *c, uint16_t store_idx, uint16_t rail_idx);
static void want(struct control *c, uint16_t store_idx);
static uint32_t wanted_rails(const struct control *c, uint16_t store_idx, uint16_t endpoint_idx);
static bool is_turn(const struct control *c, const struct health_name *name);

void endpoints_init(struct control *c)
{
	for (uint16_t s = 0; s < c->config->n_stores; s++) {
		c->endpoints.has_choice[s] = layout_n_endpoints(c->config, s) > 1 && !c->config->stores[s].is_self;
		want(c, s);
	}
}

const struct dial_wants *control_dial_wants(const struct control *c)
{
	return &c->endpoints.wants;
}

void endpoints_map(struct control *c, uint16_t store_idx)
{
	endpoints_choose(c, &c->peers[store_idx]);
	want(c, store_idx);
}

/* Of the pairs that are there: one that may carry data, before the one that belongs there. */
void endpoints_choose(struct control *c, struct peer *p)
{
	unsigned best[RY_RAILS_MAX];
	uint32_t is_spread;

	p->rail_mask = 0;
	if (!p->is_dialled)
		spread(c, p);
	is_spread = p->rail_mask;
	for (uint32_t i = 0; i < p->n_pairs; i++) {
		uint16_t r = p->pairs[i].pair->rail_idx;
		unsigned now = rank(c, p, &p->pairs[i]);

		if (is_spread >> r & 1)
			continue;
		if ((p->rail_mask >> r & 1) && now <= best[r])
			continue;
		best[r] = now;
		p->by_rail[r] = p->pairs[i];
		p->rail_mask |= 1u << r;
	}
}

/* Rails that find no eligible pair with a rail of the peer that is still free are left. */
static void spread(struct control *c, struct peer *p)
{
	uint16_t holders[RY_RAILS_MAX]; /* of the peer's rails: which of ours */

	memset(holders, 0xff, sizeof(holders));
	for (uint16_t r = 0; r < c->n_rails; r++) {
		uint32_t seen = 0;

		take_one(c, p, r, holders, &seen);
	}
}

/* Where all are taken, one whose holder can move on to another; as deep as there are rails, and only when connections
 * come, go or break. */
static bool take_one(const struct control *c, struct peer *p, uint16_t rail_idx, uint16_t *holders, uint32_t *seen)
{
	for (uint32_t i = 0; i < p->n_pairs; i++) {
		const struct peer_pair *pp = &p->pairs[i];
		uint16_t theirs = pp->pair->peer_rail_idx;

		if (pp->pair->rail_idx != rail_idx || (*seen >> theirs & 1) || !path_is_eligible(c, pp))
			continue;
		*seen |= 1u << theirs;
		if (holders[theirs] < RY_RAILS_MAX && !take_one(c, p, holders[theirs], holders, seen))
			continue;
		holders[theirs] = rail_idx;
		p->by_rail[rail_idx] = *pp;
		p->rail_mask |= 1u << rail_idx;
		return true;
	}
	return false;
}

static unsigned rank(const struct control *c, const struct peer *p, const struct peer_pair *pp)
{
	const struct pair *pair = pp->pair;

	if (!p->is_dialled)
		return path_is_eligible(c, pp);
	return 2u * path_is_eligible(c, pp) +
	       (c->health.conns[pair->idx].breaker == health_best(&c->health, p->store_idx, pair->rail_idx));
}

void endpoints_run(struct control *c)
{
	if (c->now_ns < c->endpoints.at_ns)
		return;
	c->endpoints.at_ns = c->now_ns + TICK_NS;
	for (uint16_t s = 0; s < c->config->n_stores; s++) {
		if (!c->endpoints.has_choice[s])
			continue;
		for (uint16_t r = 0; r < c->n_rails; r++) {
			uint64_t *since_ns = &c->endpoints.unserved_since_ns[s][r];

			if (c->rails[r].is_draining || is_served(c, s, r))
				*since_ns = 0;
			else if (!*since_ns)
				*since_ns = c->now_ns;
		}
		endpoints_map(c, s);
	}
	for (uint16_t i = c->config->n_stores; i < c->n_peers; i++) {
		if (c->peers[i].is_used && c->peers[i].n_pairs > 1)
			endpoints_choose(c, &c->peers[i]);
	}
}

static bool is_served(const struct control *c, uint16_t store_idx, uint16_t rail_idx)
{
	const struct peer *p = &c->peers[store_idx];

	return (p->rail_mask >> rail_idx & 1) && path_is_eligible(c, &p->by_rail[rail_idx]);
}

uint64_t endpoints_due_ns(const struct control *c)
{
	for (uint16_t s = 0; s < c->config->n_stores; s++) {
		for (uint16_t r = 0; c->endpoints.has_choice[s] && r < c->n_rails; r++) {
			if (!c->rails[r].is_draining && !is_served(c, s, r))
				return RTE_MAX(c->endpoints.at_ns, c->now_ns);
		}
	}
	return UINT64_MAX;
}

static void want(struct control *c, uint16_t store_idx)
{
	for (uint16_t e = 0; e < layout_n_endpoints(c->config, store_idx); e++) {
		uint32_t *word = &c->endpoints.wants.rails[store_idx][e];
		uint32_t rails = wanted_rails(c, store_idx, e);

		if (rails == *word)
			continue;
		/* Relaxed: partner of the load in conn's is_wanted, a word of its own. */
		__atomic_store_n(word, rails, __ATOMIC_RELAXED);
		c->want_conn_kick = true;
	}
}

static uint32_t wanted_rails(const struct control *c, uint16_t store_idx, uint16_t endpoint_idx)
{
	uint32_t rails = 0;

	for (uint16_t r = 0; r < c->n_rails; r++) {
		struct health_name name = {store_idx, endpoint_idx, r};
		uint16_t breaker = health_breaker(&c->health, store_idx, endpoint_idx, r);

		if (breaker == RAIL_MAP_NONE)
			continue;
		if (breaker == health_preferred(&c->health, store_idx, r) ||
			breaker == health_best(&c->health, store_idx, r) || is_turn(c, &name))
			rails |= 1u << r;
	}
	return rails;
}

static bool is_turn(const struct control *c, const struct health_name *name)
{
	uint64_t since_ns = c->endpoints.unserved_since_ns[name->store_idx][name->rail_idx];
	uint64_t turn;

	if (!since_ns || c->now_ns - since_ns < TURN_NS)
		return false;
	turn = (c->now_ns - since_ns) / TURN_NS - 1;
	return turn % layout_n_endpoints(c->config, name->store_idx) == name->endpoint_idx;
}
