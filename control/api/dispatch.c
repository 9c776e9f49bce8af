/* SPDX-License-Identifier: BSD-3-Clause */
#include "api/api_priv.h"
#include "api/on.h"

#include <railyard/methods.def>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool is_request(struct api_conn *c, const json_t *root);
static void run(struct api_conn *c, const json_t *root);
static const struct method *find(const char *name);
static bool is_allowed(const struct api_conn *c, const struct method *m);
static bool check_params(struct api_conn *c, json_t *id, const struct method *m, json_t *params);
static bool check_value(struct api_conn *c, json_t *id, const struct param *p, const json_t *v);
static const struct param *find_param(const char *method, const char *name);

#define IS_any false
#define IS_admin true
#define METHOD_ROW(id, name, permission, help) {id, #name, IS_##permission, help, on_##name},
const struct method api_methods[] = {RY_METHODS(METHOD_ROW)};
const uint32_t api_n_methods = sizeof(api_methods) / sizeof(api_methods[0]);

#define IS_optional false
#define IS_required true
#define PARAM_ROW(method, name, kind, need, least, most, help) {#method, #name, #kind, IS_##need, least, most, help},
const struct param api_params[] = {RY_METHOD_PARAMS(PARAM_ROW)};
const uint32_t api_n_params = sizeof(api_params) / sizeof(api_params[0]);

void api_dispatch(struct api_conn *c, const char *line, size_t bytes)
{
	json_error_t where;
	json_t *root = json_loadb(line, bytes, JSON_REJECT_DUPLICATES, &where);

	if (!root) {
		api_refuse(c, NULL, API_CODE_PARSE, RY_ERR_PROTOCOL, "not JSON: %s, at byte %d of the line", where.text,
			where.position);
		return;
	}
	if (is_request(c, root)) {
		/* Without an id it is a notification, which JSON-RPC 2.0 forbids to answer, with an error neither. */
		c->is_notified = !json_object_get(root, "id");
		run(c, root);
		c->is_notified = false;
	}
	json_decref(root);
}

static bool is_request(struct api_conn *c, const json_t *root)
{
	json_t *id = json_object_get(root, "id"), *version = json_object_get(root, "jsonrpc");

	if (id && !json_is_integer(id) && !json_is_string(id) && !json_is_null(id)) {
		api_refuse(c, NULL, API_CODE_REQUEST, RY_ERR_PROTOCOL, "id must be an integer, a string or null");
		return false;
	}
	if (json_is_string(json_object_get(root, "method")) &&
		(!version || (json_is_string(version) && !strcmp(json_string_value(version), "2.0"))))
		return true;
	api_refuse(c, id, API_CODE_REQUEST, RY_ERR_PROTOCOL,
		"not a JSON-RPC 2.0 request: one object with jsonrpc, id, method and params on one line");
	return false;
}

static void run(struct api_conn *c, const json_t *root)
{
	json_t *id = json_object_get(root, "id"), *params = json_object_get(root, "params");
	const char *name = json_string_value(json_object_get(root, "method"));
	const struct method *m = find(name);
	struct request *r;

	if (!m) {
		api_refuse(
			c, id, API_CODE_METHOD, RY_ERR_INVALID, "unknown method '%.64s'; help lists all of them", name);
	} else if (!c->is_greeted && m->handler != on_hello) {
		api_refuse(c, id, API_CODE_REQUEST, RY_ERR_PROTOCOL, "hello must be the first request of a connection");
	} else if (!is_allowed(c, m)) {
		api_refuse(c, id, API_CODE_STATUS - RY_ERR_DENIED, RY_ERR_DENIED,
			"%s is for root and for the user that runs the daemon, not for uid %u", name, c->uid);
	} else if (check_params(c, id, m, params)) {
		r = calloc(1, sizeof(*r));
		if (!r) {
			api_conn_close(c);
			return;
		}
		r->api = c->api;
		r->conn = c;
		r->method = m;
		r->id = json_incref(id);
		r->params = json_incref(params);
		c->request = r;
		m->handler(r);
	}
}

static const struct method *find(const char *name)
{
	for (uint32_t i = 0; i < api_n_methods; i++)
		if (!strcmp(api_methods[i].name, name))
			return &api_methods[i];
	return NULL;
}

static bool is_allowed(const struct api_conn *c, const struct method *m)
{
	return !m->is_admin || c->uid == 0 || c->uid == geteuid();
}

static bool check_params(struct api_conn *c, json_t *id, const struct method *m, json_t *params)
{
	const struct param *p;
	const char *key;
	json_t *value;

	if (params && !json_is_object(params)) {
		api_refuse(c, id, API_CODE_PARAMS, RY_ERR_INVALID, "%s: params must be an object", m->name);
		return false;
	}
	json_object_foreach (params, key, value) {
		p = find_param(m->name, key);
		if (!p) {
			api_refuse(c, id, API_CODE_PARAMS, RY_ERR_INVALID,
				"%s: unknown parameter '%.64s'; help lists them", m->name, key);
			return false;
		}
		if (!check_value(c, id, p, value))
			return false;
	}
	for (p = api_params; p < api_params + api_n_params; p++) {
		if (strcmp(p->method, m->name) || !p->is_required || json_object_get(params, p->name))
			continue;
		api_refuse(c, id, API_CODE_PARAMS, RY_ERR_INVALID, "%s: parameter %s is missing: %s", m->name, p->name,
			p->help);
		return false;
	}
	return true;
}

static bool check_value(struct api_conn *c, json_t *id, const struct param *p, const json_t *v)
{
	json_int_t n = 0;

	if (!strcmp(p->kind, "boolean")) {
		if (json_is_boolean(v))
			return true;
		api_refuse(c, id, API_CODE_PARAMS, RY_ERR_INVALID, "%s: %s must be true or false", p->method, p->name);
		return false;
	}
	if (!strcmp(p->kind, "uint") && json_is_integer(v))
		n = json_integer_value(v);
	else if (!strcmp(p->kind, "text") && json_is_string(v))
		n = (json_int_t)json_string_length(v);
	else {
		api_refuse(c, id, API_CODE_PARAMS, RY_ERR_INVALID, "%s: %s must be %s", p->method, p->name,
			strcmp(p->kind, "uint") ? "a string" : "an integer");
		return false;
	}
	if (n >= p->least && n <= p->most)
		return true;
	api_refuse(c, id, API_CODE_PARAMS, RY_ERR_INVALID,
		"%s: %s%s is %" PRId64 "; %" PRId64 " to %" PRId64 " is possible", p->method, p->name,
		strcmp(p->kind, "uint") ? "'s length" : "", (int64_t)n, p->least, p->most);
	return false;
}

static const struct param *find_param(const char *method, const char *name)
{
	for (uint32_t i = 0; i < api_n_params; i++)
		if (!strcmp(api_params[i].method, method) && !strcmp(api_params[i].name, name))
			return &api_params[i];
	return NULL;
}
