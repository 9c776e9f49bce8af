/* SPDX-License-Identifier: BSD-3-Clause */
/* hello, help, version, config, shutdown: what the daemon says about itself. */
#include "api/api_priv.h"
#include "api/on.h"
#include "daemon/config_rows.h"

#include <railyard/ring.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static json_t *describe_method(const struct method *m);
static json_t *sections(const struct config *c);
static json_t *section(enum config_section which, const void *base);
static void add_section(json_t *to, enum config_section which, const void *base);
static json_t *store_section(const struct config_store *s);
static void reply_settings(struct request *r, const struct config *now);
static void add_setting(void *arg, const struct config_value *v);

void on_hello(struct request *r)
{
	const struct config *c = r->api->deps.config;
	uint64_t version = request_uint(r, "version", 0);

	if (version != API_PROTOCOL) {
		request_fail(r, RY_ERR_VERSION,
			"hello: protocol version %u is spoken here, not %llu; upgrade the older side", API_PROTOCOL,
			(unsigned long long)version);
		return;
	}
	r->conn->is_greeted = true;
	request_reply(r, json_pack("{s:i, s:s, s:s}", "version", (int)API_PROTOCOL, "node", c->node_name,
				 "daemon_version", RY_VERSION));
}

void on_help(struct request *r)
{
	json_t *methods = json_array();

	for (uint32_t i = 0; i < api_n_methods; i++)
		json_array_append_new(methods, describe_method(&api_methods[i]));
	request_reply(r, json_pack("{s:o}", "methods", methods));
}

void on_version(struct request *r)
{
	json_t *names = json_array();
	char ring[16], wire[16];

	snprintf(ring, sizeof(ring), "%u.%u", RY_RING_ABI_MAJOR, RY_RING_ABI_MINOR);
	snprintf(wire, sizeof(wire), "%u.%u", WIRE_MAJOR, WIRE_MINOR);
	for (const char *const *name = transport_names(); *name; name++)
		json_array_append_new(names, json_string(*name));
	request_reply(r, json_pack("{s:s, s:i, s:s, s:s, s:o}", "daemon_version", RY_VERSION, "protocol",
				 (int)API_PROTOCOL, "ring_abi", ring, "wire", wire, "transports", names));
}

/* With the budgets that `limits_set` put in force. */
void on_config(struct request *r)
{
	struct config *now = malloc(sizeof(*now));

	if (!now) {
		request_fail(r, RY_ERR_LIMIT, "config: out of memory");
		return;
	}
	*now = *r->api->deps.config;
	limits_into(&r->api->limits, r->api->registered_max_bytes, now);
	if (json_is_true(json_object_get(r->params, "sources")))
		reply_settings(r, now);
	else
		request_reply(r, sections(now));
	free(now);
}

static json_t *sections(const struct config *c)
{
	json_t *rails = json_array(), *stores = json_array(), *roles = json_array();
	json_t *result = section(SECTION_NODE, c);

	if (c->is_reader)
		json_array_append_new(roles, json_string("reader"));
	if (c->is_store)
		json_array_append_new(roles, json_string("store"));
	for (uint16_t i = 0; i < c->n_rails; i++)
		json_array_append_new(rails, section(SECTION_RAILS, &c->rails[i]));
	for (uint16_t i = 0; i < c->n_stores; i++)
		json_array_append_new(stores, store_section(&c->stores[i]));
	json_object_set_new(result, "roles", roles);
	json_object_set_new(result, "rails", rails);
	json_object_set_new(result, "stores", stores);
	add_section(result, SECTION_READER, c);
	add_section(result, SECTION_STORE, c);
	add_section(result, SECTION_HEALTH, c);
	add_section(result, SECTION_TIMEOUTS, c);
	return result;
}

/* What add_setting works on. */
struct settings {
	json_t *rows;
	const struct config *start; /* as the daemon was started with */
};

static void reply_settings(struct request *r, const struct config *now)
{
	struct settings s = {.rows = json_array(), .start = r->api->deps.config};

	json_array_append_new(
		s.rows, json_pack("{s:s, s:s, s:s}", "key", "--config", "value", now->file, "source", "command line"));
	json_array_append_new(s.rows,
		json_pack("{s:s, s:s, s:s}", "key", "EAL arguments", "value", now->eal_args, "source", "command line"));
	config_each(now, add_setting, &s);
	request_reply(r, json_pack("{s:o}", "settings", s.rows));
}

static void add_setting(void *arg, const struct config_value *v)
{
	struct settings *s = arg;
	bool is_rail = v->row && v->row->section == SECTION_RAILS;
	const void *base = is_rail ? (const void *)&s->start->rails[v->i] : s->start;
	char before[CONFIG_PATH_MAX] = "";
	bool is_changed = false;

	if (v->row && !strcmp(v->row->change, "limits")) {
		config_row_format(v->row, base, before, sizeof(before));
		is_changed = strcmp(before, v->text) != 0;
	}
	json_array_append_new(s->rows, json_pack("{s:s, s:s, s:s}", "key", v->place, "value", v->text, "source",
					       is_changed ? "railyard limits" : v->source));
}

void on_shutdown(struct request *r)
{
	struct api *api = r->api;
	char drain[32];

	api_begin_shutdown(api);
	format_duration(api->deps.config->drain_ns, drain, sizeof(drain));
	request_reply(r, json_pack("{s:b, s:s}", "is_draining", 1, "drain", drain));
}

static json_t *describe_method(const struct method *m)
{
	json_t *params = json_array();

	for (const struct param *p = api_params; p < api_params + api_n_params; p++) {
		if (strcmp(p->method, m->name))
			continue;
		json_array_append_new(
			params, json_pack("{s:s, s:s, s:b, s:I, s:I, s:s}", "name", p->name, "kind", p->kind,
					"required", (int)p->is_required, "least", (json_int_t)p->least, "most",
					(json_int_t)p->most, "help", p->help));
	}
	return json_pack("{s:i, s:s, s:s, s:s, s:o}", "id", (int)m->id, "name", m->name, "permission",
		m->is_admin ? "admin" : "any", "help", m->help, "params", params);
}

/* Values are text with their unit, as one would write them in the file. */
static json_t *section(enum config_section which, const void *base)
{
	json_t *o = json_object();
	char text[CONFIG_PATH_MAX];

	for (const struct config_row *row = config_rows; row < config_rows + config_n_rows; row++) {
		if (row->section != which)
			continue;
		config_row_format(row, base, text, sizeof(text));
		json_object_set_new(o, row->key, json_string(text));
	}
	return o;
}

static void add_section(json_t *to, enum config_section which, const void *base)
{
	json_object_set_new(to, config_section_name(which), section(which, base));
}

static json_t *store_section(const struct config_store *s)
{
	json_t *o = section(SECTION_STORES, s);
	json_t *endpoints = json_array();

	for (uint16_t i = 0; i < s->n_endpoints; i++)
		json_array_append_new(endpoints, section(SECTION_ENDPOINTS, &s->endpoints[i]));
	json_object_set_new(o, "endpoints", endpoints);
	return o;
}
