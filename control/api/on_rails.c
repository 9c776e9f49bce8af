/* SPDX-License-Identifier: BSD-3-Clause */
/* rails, plan: what only control knows. */
#include "api/api_priv.h"
#include "api/devices.h"
#include "api/on.h"
#include "api/pairs.h"

#include <string.h>

static void rails_answered(struct request *r);
static json_t *row_describe(
	const struct api *api, const struct api_rail_info *info, uint16_t i, const struct pair_list *pairs);
static void plan_answered(struct request *r);
static int store_by_name(const struct config *c, const char *name);

void on_rails(struct request *r)
{
	request_ask_control(r, API_RAIL_INFO, rails_answered);
}

void on_plan(struct request *r)
{
	const struct config *c = r->api->deps.config;
	const char *store = request_text(r, "store");
	int idx = store ? store_by_name(c, store) : 0;

	if (!c->is_reader) {
		request_fail(r, RY_ERR_INVALID, "plan: this node has not the role reader and plans no reads");
		return;
	}
	if (idx < 0) {
		request_fail(r, RY_ERR_INVALID, "plan: '%s' is no store of this node's configuration", store);
		return;
	}
	r->call.size_bytes = request_uint(r, "size_bytes", 0);
	r->call.stripe_bytes = (uint32_t)request_uint(r, "stripe_bytes", RY_STRIPE_DEFAULT_BYTES);
	r->call.offset = request_uint(r, "offset", 0);
	r->call.length = request_uint(r, "length", UINT64_MAX);
	r->call.store_idx = (uint16_t)idx;
	request_ask_control(r, API_PLAN, plan_answered);
}

static void rails_answered(struct request *r)
{
	const struct api *api = r->api;
	struct pair_list pairs;
	json_t *rows = json_array();

	if (r->call.status != RY_OK || pair_list_get(api, &pairs) < 0) {
		json_decref(rows);
		request_fail(r, r->call.status ? (enum ry_status)r->call.status : RY_ERR_LIMIT, "rails: %s",
			r->call.status ? r->call.cause : "out of memory");
		return;
	}
	for (uint16_t i = 0; i < api->deps.config->n_rails; i++)
		json_array_append_new(rows, row_describe(api, &r->call.rails[i], i, &pairs));
	pair_list_free(&pairs);
	devices_describe(api, rows);
	request_reply(r, json_pack("{s:o}", "rails", rows));
}

static json_t *row_describe(
	const struct api *api, const struct api_rail_info *info, uint16_t i, const struct pair_list *pairs)
{
	const struct rail_conf *conf = &api->deps.config->rails[i];
	json_t *own = json_array(), *qps = json_array();
	json_t *numbers = counters_describe(stats_rail_rows, stats_n_rail_rows, api->deps.rails[i].counters);
	json_t *o;

	for (uint32_t j = 0; j < pairs->n; j++)
		if (pairs->rows[j].rail_idx == i)
			json_array_append_new(own, pair_describe(api->deps.config, &pairs->rows[j]));
	o = json_pack("{s:s, s:s, s:s, s:i, s:I, s:b, s:b, s:b, s:I, s:I}", "name", conf->name, "transport",
		conf->transport, "address", conf->address, "port", (int)conf->port, "lcore", (json_int_t)conf->lcore,
		"draining", (int)info->is_draining, "slow", (int)info->is_slow, "quarantine",
		(int)api->deps.rails[i].is_quarantine, "rate_bytes_per_s", (json_int_t)conf->rate_bytes_per_s,
		"pairs_up", (json_int_t)info->pairs_up);
	json_object_update_new(
		o, json_pack("{s:I, s:I, s:I, s:I, s:I, s:o, s:o}", "depth_bytes", (json_int_t)info->depth_bytes,
			   "inflight_bytes", (json_int_t)info->inflight_bytes, "inflight_max_bytes",
			   (json_int_t)api->limits.rail_inflight_max_bytes[i], "goodput_bytes_per_s",
			   (json_int_t)info->goodput_bytes_per_s, "latency_ns", (json_int_t)info->latency_ns, "pairs",
			   own, "counters", numbers));
	json_object_set_new(o, "latency_p50_ns", json_integer((json_int_t)info->latency_p50_ns));
	json_object_set_new(o, "latency_p99_ns", json_integer((json_int_t)info->latency_p99_ns));
	for (uint16_t q = 0; q < info->n_qps; q++)
		json_array_append_new(qps, json_integer((json_int_t)info->qp_rx_bytes[q]));
	json_object_set_new(o, "qp_rx_bytes", qps);
	json_object_set_new(o, "corrupt_blamed", json_integer((json_int_t)info->corrupt_blamed));
	json_object_set_new(
		o, "removed", json_boolean(api->deps.rails[i].rail && rail_is_detached(api->deps.rails[i].rail)));
	return o;
}

static void plan_answered(struct request *r)
{
	const struct config *c = r->api->deps.config;
	json_t *rows;

	if (r->call.status != RY_OK) {
		request_fail(r, (enum ry_status)r->call.status, "plan: %s", r->call.cause);
		return;
	}
	rows = json_array();
	for (uint16_t i = 0; i < c->n_rails && i < r->call.n_rails; i++)
		json_array_append_new(rows,
			json_pack("{s:s, s:I, s:I, s:I}", "name", c->rails[i].name, "bytes",
				(json_int_t)r->call.plan[i].bytes, "segments", (json_int_t)r->call.plan[i].segments,
				"stripes", (json_int_t)r->call.plan[i].stripes));
	request_reply(r, json_pack("{s:s, s:s, s:I, s:I, s:o}", "policy",
				 c->policy == POLICY_ROUND_ROBIN ? "round_robin" : "adaptive", "store",
				 c->stores[r->call.store_idx].name, "size_bytes", (json_int_t)r->call.size_bytes,
				 "stripe_bytes", (json_int_t)r->call.stripe_bytes, "rails", rows));
}

static int store_by_name(const struct config *c, const char *name)
{
	for (int i = 0; i < c->n_stores; i++)
		if (!strcmp(c->stores[i].name, name))
			return i;
	return -1;
}
