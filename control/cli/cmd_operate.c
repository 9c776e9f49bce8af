/* SPDX-License-Identifier: BSD-3-Clause */
/* Commands that watch and steer a running daemon: rails, health, limits, faults, reads. */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"

static int show_rails(struct cli *c);
static void pick_rows(json_t *object, const char *name, const char *const *shown);
static int steer_rail(struct cli *c);
static void probes_row(json_t *to, const char *rail, const char *peer, const json_t *probes);
static void error_cell(json_t *row);
static json_t *pick(const json_t *row, const char *const *names);
static void set_if_given(json_t *params, const char *name, uint64_t value);
static json_t *class_and_share(const json_t *row);
static json_t *names_of(const json_t *rails);

int cmd_rails(struct cli *c)
{
	return c->args.n == 0 ? show_rails(c) : steer_rail(c);
}

/* Rails and the pairs that each has with peers, in one answer. As text, what changes; settings are in JSON. */
static int show_rails(struct cli *c)
{
	static const char *const shown[] = {"name", "transport", "address", "device", "link_speed", "windows",
		"draining", "slow", "pairs_up", "inflight_bytes", "depth_bytes", "goodput_bytes_per_s", "latency_ns",
		NULL};
	json_t *rails, *pairs;
	int rc = cli_call(c, "rails", NULL, &rails);

	if (rc != CLI_OK)
		return rc;
	rc = cli_call(c, "pairs", NULL, &pairs);
	if (rc == CLI_OK) {
		if (!c->want_json)
			pick_rows(rails, "rails", shown);
		json_object_update_new(rails, pairs);
		return output_print(c, rails);
	}
	json_decref(rails);
	return rc;
}

/* Cuts the rows of a table down to some members. */
static void pick_rows(json_t *object, const char *name, const char *const *shown)
{
	json_t *rows = json_array(), *row;
	size_t i;

	json_array_foreach (json_object_get(object, name), i, row)
		json_array_append_new(rows, pick(row, shown));
	json_object_set_new(object, name, rows);
}

static int steer_rail(struct cli *c)
{
	bool want_drain = strcmp(c->args.values[0], "drain") == 0;
	const char *warning;
	json_t *result;
	int rc;

	if (c->args.n != 2 || (!want_drain && strcmp(c->args.values[0], "resume") != 0))
		return cli_usage(c, "railyard rails, or railyard rails drain NAME, or railyard rails resume NAME");
	rc = cli_call(
		c, want_drain ? "rail_drain" : "rail_resume", json_pack("{s:s}", "rail", c->args.values[1]), &result);
	if (rc != CLI_OK)
		return rc;
	warning = json_string_value(json_object_get(result, "warning"));
	if (!c->want_json && warning != NULL && warning[0] == '\0')
		json_object_del(result, "warning");
	return output_print(c, result);
}

/* As text, what an operator looks at first, and the counts of probes in a table of their own; everything in JSON. */
int cmd_health(struct cli *c)
{
	static const char *const shown[] = {"rail", "peer", "endpoint", "in_use", "state", "blocked_by", "slow",
		"trips", "in_state_ns", "cooldown_left_ns", "last_error", NULL};
	json_t *result, *row, *probes = json_array();
	int rc = cli_call(c, "health", NULL, &result);
	size_t i;

	if (rc != CLI_OK || c->want_json) {
		json_decref(probes);
		return rc == CLI_OK ? output_print(c, result) : rc;
	}
	json_array_foreach (json_object_get(result, "pairs"), i, row) {
		error_cell(row);
		probes_row(probes, json_string_value(json_object_get(row, "rail")),
			json_string_value(json_object_get(row, "peer")), json_object_get(row, "probes"));
	}
	pick_rows(result, "pairs", shown);
	json_object_set_new(result, "probes", probes);
	return output_print(c, result);
}

static void probes_row(json_t *to, const char *rail, const char *peer, const json_t *probes)
{
	static const char *const counts[] = {"sent", "ok", "failed", "expired", "cancelled", NULL};
	json_t *row = json_pack("{s:s*, s:s*}", "rail", rail, "peer", peer);

	if (json_integer_value(json_object_get(probes, "sent")) == 0) {
		json_decref(row);
		return;
	}
	json_object_update_new(row, pick(probes, counts));
	json_array_append_new(to, row);
}

/* Error, what it is evidence of, and how long ago, in one cell. */
static void error_cell(json_t *row)
{
	const char *error = json_string_value(json_object_get(row, "last_error"));
	json_int_t age_ns = json_integer_value(json_object_get(row, "last_error_age_ns"));
	char text[96];

	if (error == NULL || error[0] == '\0')
		return;
	snprintf(text, sizeof(text), "%s (%s) %lld s ago", error,
		json_string_value(json_object_get(row, "last_class")) ?: "", (long long)(age_ns / 1000000000));
	json_object_set_new(row, "last_error", json_string(text));
}

/* Some members of a row, in this order. */
static json_t *pick(const json_t *row, const char *const *names)
{
	json_t *to = json_object(), *value;

	for (; *names != NULL; names++) {
		value = json_object_get(row, *names);
		json_object_set_new(to, *names, value != NULL ? json_incref(value) : json_null());
	}
	return to;
}

int cmd_limits(struct cli *c)
{
	json_t *params = json_object();

	set_if_given(params, "max_reads", c->max_reads);
	set_if_given(params, "client_max_reads", c->client_max_reads);
	set_if_given(params, "inflight_max_bytes", c->inflight_bytes);
	set_if_given(params, "client_inflight_max_bytes", c->client_inflight_bytes);
	set_if_given(params, "admission_wait_ns", c->admission_wait_ns);
	set_if_given(params, "registered_max_bytes", c->registered_bytes);
	set_if_given(params, "rail_inflight_max_bytes", c->rail_inflight_bytes);
	if (c->rail != NULL)
		json_object_set_new(params, "rail", json_string(c->rail));
	if (json_object_size(params) != 0)
		return cli_show(c, "limits_set", params);
	json_decref(params);
	return cli_show(c, "limits", NULL);
}

static void set_if_given(json_t *params, const char *name, uint64_t value)
{
	if (value != CLI_NOT_GIVEN)
		json_object_set_new(params, name, json_integer((json_int_t)value));
}

int cmd_faults(struct cli *c)
{
	const char *verb = c->args.n != 0 ? c->args.values[0] : "";

	if (c->args.n == 0)
		return cli_show(c, "faults", NULL);
	if (strcmp(verb, "inject") == 0 && c->args.n == 3)
		return cli_show(c, "fault_inject",
			json_pack("{s:s, s:s}", "rail", c->args.values[1], "plan", c->args.values[2]));
	if (strcmp(verb, "clear") == 0 && c->args.n <= 2)
		return cli_show(
			c, "fault_clear", c->args.n == 2 ? json_pack("{s:s}", "rail", c->args.values[1]) : NULL);
	return cli_usage(c, "railyard faults, or railyard faults inject NAME PLAN, or railyard faults clear [NAME]");
}

int cmd_reads(struct cli *c)
{
	static const char *const shown[] = {
		"number", "age_ns", "key", "store", "bytes", "took_ns", "class", "rails", "status", "cause", NULL};
	json_t *params = json_object(), *result, *row;
	size_t i;
	int rc;

	if (c->want_failed)
		json_object_set_new(params, "is_failed", json_true());
	set_if_given(params, "max", c->n_last);
	rc = cli_call(c, "reads", params, &result);
	if (rc != CLI_OK || c->want_json)
		return rc == CLI_OK ? output_print(c, result) : rc;
	json_array_foreach (json_object_get(result, "reads"), i, row) {
		json_object_set_new(row, "rails", names_of(json_object_get(row, "rails")));
		json_object_set_new(row, "class", class_and_share(row));
	}
	pick_rows(result, "reads", shown);
	json_object_del(result, "next_before");
	return output_print(c, result);
}

/* "network 83 %". */
static json_t *class_and_share(const json_t *row)
{
	const char *name = json_string_value(json_object_get(row, "class")) ?: "";
	json_int_t permille = json_integer_value(json_object_get(row, "class_share_permille"));

	return permille ? json_sprintf("%s %d %%", name, (int)(permille + 5) / 10) : json_string(name);
}

static json_t *names_of(const json_t *rails)
{
	char text[256] = "";
	size_t i, used = 0;
	const json_t *rail;

	json_array_foreach (rails, i, rail) {
		const char *name = json_string_value(json_object_get(rail, "name"));
		int n = snprintf(text + used, sizeof(text) - used, "%s%s", i == 0 ? "" : " ", name ?: "");

		used += n > 0 && (size_t)n < sizeof(text) - used ? (size_t)n : 0;
	}
	return json_string(text);
}
