/* SPDX-License-Identifier: BSD-3-Clause */
#include "health/health.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "health/layout.h"

static int numa_of(const struct health *h, uint16_t store_idx, uint16_t rail_idx);

int health_init(struct health *h, const struct config *config, struct rail_map_error *err)
{
	struct layout *l = layout_create(config, err);
	int rc;

	if (!l)
		return -ENOMEM;
	memset(h, 0, sizeof(*h));
	for (uint32_t i = 0; i < PAIRS_MAX; i++)
		h->conns[i].breaker = RAIL_MAP_NONE;
	for (uint16_t s = 0; s < config->n_stores; s++)
		h->memory_numa[s] = config->stores[s].memory_numa;
	rc = rail_health_init(&h->breakers, &config->health, err);
	if (rc == 0 && l->table.n_all)
		rc = rail_health_load(&h->breakers, &l->layout, 0, err);
	free(l);
	return rc;
}

void health_begin(struct health *h, uint64_t now_ns)
{
	for (uint16_t i = 0; i < PAIRS_MAX; i++)
		h->breakers.pairs[i].since_ns = now_ns;
}

enum rail_evidence health_wc_evidence(uint8_t wc_status)
{
	switch (wc_status) {
	case WC_ERR_RETRY:
	case WC_ERR_RNR:
		return RAIL_EV_PATH;
	case WC_ERR_LOCAL:
		return RAIL_EV_LOCAL;
	case WC_ERR_PEER_CLOSED:
		return RAIL_EV_PEER;
	case WC_ERR_FLUSH:
		return RAIL_EV_FLUSH;
	default:
		return RAIL_EV_NONE;
	}
}

bool health_connected(struct health *h, const struct pair *pair)
{
	struct health_conn *c = &h->conns[pair->idx];

	c->epoch = pair->epoch;
	c->breaker = pair->is_dialler ? health_breaker(h, pair->store_idx, pair->endpoint_idx, pair->rail_idx)
				      : RAIL_MAP_NONE;
	c->is_proven = c->breaker == RAIL_MAP_NONE ||
		       (!h->wants_proof[c->breaker] && rail_health_is_available(&h->breakers, c->breaker));
	return c->is_proven;
}

void health_lost(
	struct health *h, uint16_t pair_idx, bool is_announced, const struct rail_fault *fault, uint64_t now_ns)
{
	struct health_conn *c = &h->conns[pair_idx];
	struct rail_token normal = {.kind = RAIL_NORMAL, .pair_idx = c->breaker};

	if (!c->epoch)
		return;
	c->epoch = 0;
	if (c->breaker == RAIL_MAP_NONE)
		return;
	h->wants_proof[c->breaker] |= !is_announced;
	normal.epoch = h->breakers.pairs[c->breaker].epoch;
	if (fault)
		rail_health_failed(&h->breakers, normal, fault, now_ns);
}

/* While the cooldown runs a failed attempt adds nothing, and must not take the place of the PING that follows the first
 * good one. */
void health_dial_failed(struct health *h, uint16_t breaker, const struct rail_fault *fault, uint64_t now_ns)
{
	struct rail_token token = {.kind = RAIL_NORMAL, .pair_idx = breaker};

	if (breaker == RAIL_MAP_NONE)
		return;
	token.epoch = h->breakers.pairs[breaker].epoch;
	if (fault->evidence == RAIL_EV_PATH && rail_health_state(&h->breakers, breaker, now_ns) == RAIL_EXPIRED &&
		rail_health_wants_probe(&h->breakers, breaker, now_ns))
		token = rail_health_ask(&h->breakers, breaker, now_ns);
	rail_health_failed(&h->breakers, token, fault, now_ns);
}

bool health_wants_ping(const struct health *h, uint16_t pair_idx, uint64_t now_ns)
{
	const struct health_conn *c = &h->conns[pair_idx];

	if (!c->epoch || c->breaker == RAIL_MAP_NONE)
		return false;
	if (!rail_health_is_available(&h->breakers, c->breaker))
		return rail_health_wants_probe(&h->breakers, c->breaker, now_ns);
	return !c->is_proven;
}

struct rail_token health_ask(struct health *h, uint16_t pair_idx, uint64_t now_ns)
{
	return rail_health_ask(&h->breakers, h->conns[pair_idx].breaker, now_ns);
}

void health_pinged(struct health *h, uint16_t pair_idx, struct rail_token token, bool is_good,
	const struct rail_fault *fault, uint64_t now_ns)
{
	struct health_conn *c = &h->conns[pair_idx];

	if (is_good) {
		/* It says nothing about failures of data: where every connection is proven and then loses its data,
		 * they must add up. */
		if (token.kind != RAIL_NORMAL)
			rail_health_succeeded(&h->breakers, token, now_ns);
		/* The full-size PING is the proof of this connection, whatever it was sent for. */
		if (c->epoch && c->breaker == token.pair_idx) {
			c->is_proven = true;
			h->wants_proof[c->breaker] = false;
		}
	} else if (fault) {
		rail_health_failed(&h->breakers, token, fault, now_ns);
	} else {
		rail_health_release(&h->breakers, token, now_ns);
	}
}

void health_carried(struct health *h, uint16_t pair_idx, uint64_t rtt_ns, uint64_t now_ns)
{
	uint16_t breaker = h->conns[pair_idx].epoch ? h->conns[pair_idx].breaker : RAIL_MAP_NONE;
	struct rail_token normal = {.kind = RAIL_NORMAL, .pair_idx = breaker};

	if (breaker == RAIL_MAP_NONE)
		return;
	normal.epoch = h->breakers.pairs[breaker].epoch;
	rail_health_succeeded(&h->breakers, normal, now_ns);
	rail_health_set_rtt(&h->breakers, breaker, rtt_ns);
}

uint64_t health_due_ns(const struct health *h, uint16_t pair_idx, uint64_t now_ns)
{
	const struct health_conn *c = &h->conns[pair_idx];

	if (!c->epoch || c->breaker == RAIL_MAP_NONE)
		return UINT64_MAX;
	if (!rail_health_is_available(&h->breakers, c->breaker))
		return rail_health_due_ns(&h->breakers, c->breaker);
	return c->is_proven ? UINT64_MAX : now_ns;
}

void health_names(const struct health *h, uint16_t breaker, struct health_name *out)
{
	const struct rail_map_plan *p = &rail_health_map(&h->breakers)->plan;
	uint16_t remote = p->pairs[breaker].remote_idx;

	out->rail_idx = p->pairs[breaker].local_idx;
	out->store_idx = p->remotes[remote].peer_idx;
	out->endpoint_idx = (uint16_t)(remote - p->peers[out->store_idx].first_remote);
}

uint16_t health_preferred(const struct health *h, uint16_t store_idx, uint16_t rail_idx)
{
	return rail_map_preferred(rail_health_map(&h->breakers), rail_idx, store_idx, numa_of(h, store_idx, rail_idx));
}

uint16_t health_best(const struct health *h, uint16_t store_idx, uint16_t rail_idx)
{
	return rail_map_best(rail_health_map(&h->breakers), rail_idx, store_idx, numa_of(h, store_idx, rail_idx));
}

static int numa_of(const struct health *h, uint16_t store_idx, uint16_t rail_idx)
{
	return h->memory_numa[store_idx] != UINT32_MAX ? (int)h->memory_numa[store_idx]
						       : rail_health_map(&h->breakers)->plan.locals[rail_idx].numa;
}
