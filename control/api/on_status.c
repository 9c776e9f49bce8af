/* SPDX-License-Identifier: BSD-3-Clause */
/* status, pairs: read from gauges and from conn's records, relaxed, without asking anyone. */
#include "api/api_priv.h"
#include "api/on.h"
#include "api/pairs.h"

static json_t *roles_of(const struct config *c);
static json_t *clients_of(const struct api *api);
static json_t *inflight_of(const struct api *api);
static json_t *stores_of(const struct api *api, const struct pair_list *pairs);
static json_t *store_of(const struct api *api, const struct pair_list *pairs, uint16_t i);
static json_t *memory_of(const struct api *api);
static uint16_t n_effective(const struct config *c, const struct pair_list *pairs);

void on_status(struct request *r)
{
	const struct api *api = r->api;
	const struct config *c = api->deps.config;
	struct pair_list pairs;
	json_t *result;

	if (pair_list_get(api, &pairs) < 0) {
		request_fail(r, RY_ERR_LIMIT, "status: out of memory");
		return;
	}
	result = json_pack("{s:s, s:s, s:o, s:I, s:b, s:b, s:s}", "node", c->node_name, "daemon_version", RY_VERSION,
		"roles", roles_of(c), "uptime_ns", (json_int_t)(api->now_ns - api->start_ns), "is_draining",
		(int)api->is_draining, "has_hugepages", (int)api->deps.has_hugepages, "idle",
		c->idle == IDLE_SPIN ? "spin" : "adaptive");
	json_object_set_new(result, "rails",
		json_pack("{s:i, s:i}", "requested", (int)c->n_rails, "effective", (int)n_effective(c, &pairs)));
	json_object_set_new(result, "stores", stores_of(api, &pairs));
	if (c->is_reader) {
		json_object_set_new(result, "clients", clients_of(api));
		json_object_set_new(result, "inflight", inflight_of(api));
	}
	if (c->is_store)
		json_object_set_new(result, "store", memory_of(api));
	pair_list_free(&pairs);
	request_reply(r, result);
}

void on_pairs(struct request *r)
{
	const struct api *api = r->api;
	struct pair_list pairs;
	json_t *rows = json_array();

	if (pair_list_get(api, &pairs) < 0) {
		json_decref(rows);
		request_fail(r, RY_ERR_LIMIT, "pairs: out of memory");
		return;
	}
	for (uint32_t i = 0; i < pairs.n; i++)
		json_array_append_new(rows, pair_describe(api->deps.config, &pairs.rows[i]));
	pair_list_free(&pairs);
	request_reply(r, json_pack("{s:o}", "pairs", rows));
}

static json_t *roles_of(const struct config *c)
{
	json_t *roles = json_array();

	if (c->is_reader)
		json_array_append_new(roles, json_string("reader"));
	if (c->is_store)
		json_array_append_new(roles, json_string("store"));
	return roles;
}

static json_t *clients_of(const struct api *api)
{
	const struct config *c = api->deps.config;

	return json_pack("{s:I, s:I, s:I, s:I, s:I}", "attached", (json_int_t)api_n_sessions(api), "max",
		(json_int_t)c->max_clients, "registered_bytes", (json_int_t)api->registered_bytes,
		"registered_max_bytes", (json_int_t)api->registered_max_bytes, "leases",
		(json_int_t)stat_get(&api->deps.counters->leases));
}

static json_t *inflight_of(const struct api *api)
{
	const struct control_counters *n = api->deps.counters;
	const struct limits *l = &api->limits;

	return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "bytes", (json_int_t)stat_get(&n->inflight_bytes),
		"max_bytes", (json_int_t)l->inflight_max_bytes, "reads", (json_int_t)stat_get(&n->inflight_reads),
		"max_reads", (json_int_t)l->max_reads, "quarantined_bytes", (json_int_t)stat_get(&n->quarantined_bytes),
		"budget_refusals", (json_int_t)stat_get(&n->budget_refusals));
}

static json_t *stores_of(const struct api *api, const struct pair_list *pairs)
{
	json_t *rows = json_array();

	for (uint16_t i = 0; i < api->deps.config->n_stores; i++)
		json_array_append_new(rows, store_of(api, pairs, i));
	return rows;
}

/* up = every pair to it is, partial = some are, down = none is. */
static json_t *store_of(const struct api *api, const struct pair_list *pairs, uint16_t i)
{
	const struct config_store *s = &api->deps.config->stores[i];
	const char *last_error = "";
	uint32_t n = 0, n_up = 0;

	for (uint32_t j = 0; j < pairs->n; j++) {
		const struct conn_pair_info *p = &pairs->rows[j];

		if (!p->is_dialler || p->store_idx != i || p->state == CONN_STANDBY)
			continue;
		n++;
		if (p->state == CONN_UP)
			n_up++;
		else if (p->last_error[0])
			last_error = p->last_error;
	}
	return json_pack("{s:s, s:b, s:s, s:i, s:i, s:s}", "name", s->name, "is_self", (int)s->is_self, "state",
		!n_up      ? "down"
		: n_up < n ? "partial"
			   : "up",
		"pairs", (int)n, "pairs_up", (int)n_up, "last_error", last_error);
}

static json_t *memory_of(const struct api *api)
{
	const struct control_counters *n = api->deps.counters;
	const struct config *c = api->deps.config;

	return json_pack("{s:s, s:I, s:I, s:I, s:I, s:I}", "tier", c->tier == TIER_PINNED ? "pinned" : "cache",
		"objects", (json_int_t)stat_get(&n->objects), "max_objects", (json_int_t)c->max_objects, "used_bytes",
		(json_int_t)stat_get(&n->store_bytes), "memory_bytes", (json_int_t)c->store_bytes, "evictions",
		(json_int_t)stat_get(&n->store_evictions));
}

static uint16_t n_effective(const struct config *c, const struct pair_list *pairs)
{
	uint16_t n = 0;

	for (uint16_t i = 0; i < c->n_rails; i++) {
		bool is_up = false;

		for (uint32_t j = 0; j < pairs->n; j++)
			is_up |= pairs->rows[j].rail_idx == i && pairs->rows[j].state == CONN_UP;
		n += is_up;
	}
	return n;
}
