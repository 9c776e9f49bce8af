/* SPDX-License-Identifier: BSD-3-Clause */
/* metrics: every row of metrics.def, read relaxed. */
#include "api/api_priv.h"
#include "api/on.h"

static json_t *meaning_of(const struct stats_row *rows, uint32_t n);

void on_metrics(struct request *r)
{
	const struct api_deps *d = &r->api->deps;
	json_t *rails = json_array();
	json_t *result;

	for (uint16_t i = 0; i < d->config->n_rails; i++) {
		json_t *row = json_pack("{s:s}", "name", d->config->rails[i].name);

		json_object_update_new(
			row, counters_describe(stats_rail_rows, stats_n_rail_rows, d->rails[i].counters));
		json_array_append_new(rails, row);
	}
	result = json_pack("{s:o, s:o, s:o}", "control",
		counters_describe(stats_control_rows, stats_n_control_rows, d->counters), "conn",
		counters_describe(stats_conn_rows, stats_n_conn_rows, d->conn_counters), "rails", rails);
	if (json_is_true(json_object_get(r->params, "describe")))
		json_object_set_new(result, "meaning",
			json_pack("{s:o, s:o, s:o}", "control", meaning_of(stats_control_rows, stats_n_control_rows),
				"conn", meaning_of(stats_conn_rows, stats_n_conn_rows), "rails",
				meaning_of(stats_rail_rows, stats_n_rail_rows)));
	request_reply(r, result);
}

json_t *counters_describe(const struct stats_row *rows, uint32_t n, const void *counters)
{
	json_t *o = json_object();

	for (uint32_t i = 0; i < n; i++) {
		const uint64_t *c = (const uint64_t *)(const void *)((const char *)counters + rows[i].offset);

		json_object_set_new(o, rows[i].name, json_integer((json_int_t)stat_get(c)));
	}
	return o;
}

static json_t *meaning_of(const struct stats_row *rows, uint32_t n)
{
	json_t *list = json_array();

	for (uint32_t i = 0; i < n; i++)
		json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:s}", "name", rows[i].name, "kind",
						    rows[i].kind == STATS_gauge ? "gauge" : "counter", "unit",
						    rows[i].unit, "help", rows[i].help));
	return list;
}
