/* SPDX-License-Identifier: BSD-3-Clause */
#include "health/health.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct layout {
	struct rail_map_end locals[RY_RAILS_MAX];
	struct rail_map_end remotes[CONFIG_STORES_MAX][RY_RAILS_MAX];
	char names[CONFIG_STORES_MAX][RY_RAILS_MAX][RY_NAME_MAX_BYTES];
	struct rail_map_peer peers[CONFIG_STORES_MAX];
	struct rail_map_row rows[CONFIG_STORES_MAX * RY_RAILS_MAX];
	struct rail_map_table table;
};

static void lay_out(struct layout *l, const struct config *c);
static void lay_out_store(struct layout *l, const struct config *c, uint16_t s);
static uint16_t rail_of(const struct config *c, uint16_t store, uint16_t endpoint);
static void number(struct health *h, const struct config *c);

int health_init(struct health *h, const struct config *config, struct rail_map_error *err)
{
	struct layout *l = calloc(1, sizeof(*l));
	struct rail_map_layout layout;
	int rc;

	if (!l)
		return -ENOMEM;
	memset(h, 0, sizeof(*h));
	memset(h->breaker_of, 0xff, sizeof(h->breaker_of));
	for (uint32_t i = 0; i < PAIRS_MAX; i++)
		h->conns[i].breaker = RAIL_MAP_NONE;
	lay_out(l, config);
	layout = (struct rail_map_layout){
		.n_locals = config->n_rails,
		.locals = l->locals,
		.n_peers = config->n_stores,
		.peers = l->peers,
		.table = &l->table,
	};
	rc = rail_health_init(&h->breakers, &config->health, err);
	if (rc == 0 && l->table.n_all)
		rc = rail_health_load(&h->breakers, &layout, 0, err);
	if (rc == 0 && l->table.n_all)
		number(h, config);
	free(l);
	return rc;
}

static void lay_out(struct layout *l, const struct config *c)
{
	for (uint16_t i = 0; i < c->n_rails; i++)
		l->locals[i] = (struct rail_map_end){.name = c->rails[i].name, .numa = c->rails[i].numa_node};
	for (uint16_t s = 0; s < c->n_stores; s++)
		lay_out_store(l, c, s);
	l->table.all = l->rows;
}

/* An endpoint has no name of its own: its place in the list is its name. A self store has one for each mock rail. */
static void lay_out_store(struct layout *l, const struct config *c, uint16_t s)
{
	const struct config_store *st = &c->stores[s];
	uint16_t n = st->is_self ? c->n_rails : st->n_endpoints;

	l->peers[s] = (struct rail_map_peer){.name = st->name, .n_rails = n, .rails = l->remotes[s]};
	for (uint16_t e = 0; e < n; e++) {
		uint16_t r = rail_of(c, s, e);

		snprintf(l->names[s][e], sizeof(l->names[s][e]), "%u", e);
		l->remotes[s][e] = (struct rail_map_end){.name = l->names[s][e]};
		if (r < c->n_rails)
			l->rows[l->table.n_all++] = (struct rail_map_row){c->rails[r].name, st->name, l->names[s][e]};
	}
}

/* The local rail that reaches an endpoint, as conn dials it. */
static uint16_t rail_of(const struct config *c, uint16_t store, uint16_t endpoint)
{
	const char *name = c->stores[store].endpoints[endpoint].rail;

	if (c->stores[store].is_self || !name[0])
		return endpoint;
	for (uint16_t r = 0; r < c->n_rails; r++) {
		if (!strcmp(c->rails[r].name, name))
			return r;
	}
	return UINT16_MAX;
}

static void number(struct health *h, const struct config *c)
{
	for (uint16_t s = 0; s < c->n_stores; s++) {
		uint16_t n = c->stores[s].is_self ? c->n_rails : c->stores[s].n_endpoints;

		for (uint16_t e = 0; e < n; e++) {
			uint16_t r = rail_of(c, s, e);

			if (r < c->n_rails)
				h->breaker_of[s][r] = rail_map_pair(rail_health_map(&h->breakers), r, s, e);
		}
	}
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
	c->breaker = pair->is_dialler ? h->breaker_of[pair->store_idx][pair->rail_idx] : RAIL_MAP_NONE;
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
void health_dial_failed(
	struct health *h, uint16_t store_idx, uint16_t rail_idx, const struct rail_fault *fault, uint64_t now_ns)
{
	uint16_t breaker = h->breaker_of[store_idx][rail_idx];
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

uint64_t health_due_ns(const struct health *h, uint16_t pair_idx, uint64_t now_ns)
{
	const struct health_conn *c = &h->conns[pair_idx];

	if (!c->epoch || c->breaker == RAIL_MAP_NONE)
		return UINT64_MAX;
	if (!rail_health_is_available(&h->breakers, c->breaker))
		return rail_health_due_ns(&h->breakers, c->breaker);
	return c->is_proven ? UINT64_MAX : now_ns;
}

void health_names(const struct health *h, uint16_t breaker, uint16_t *store_idx, uint16_t *rail_idx)
{
	for (uint16_t s = 0; s < CONFIG_STORES_MAX; s++) {
		for (uint16_t r = 0; r < RY_RAILS_MAX; r++) {
			if (h->breaker_of[s][r] == breaker) {
				*store_idx = s;
				*rail_idx = r;
				return;
			}
		}
	}
}
