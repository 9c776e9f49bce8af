/* SPDX-License-Identifier: BSD-3-Clause */
#include "api/api_priv.h"
#include "daemon/config_rows.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void send_error(struct api_conn *c, json_t *id, int code, enum ry_status status, const char *text);
static void send_object(struct api_conn *c, json_t *object);
static void finish(struct request *r);

void request_reply(struct request *r, json_t *result)
{
	if (r->conn && r->id)
		send_object(r->conn, json_pack("{s:s, s:O, s:O}", "jsonrpc", "2.0", "id", r->id, "result", result));
	json_decref(result);
	finish(r);
}

void request_fail(struct request *r, enum ry_status status, const char *fmt, ...)
{
	char text[512];
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	if (r->conn && r->id)
		send_error(r->conn, r->id, API_CODE_STATUS - (int)status, status, text);
	finish(r);
}

void api_refuse(struct api_conn *c, json_t *id, int code, enum ry_status status, const char *fmt, ...)
{
	char text[512];
	va_list args;

	if (c->is_notified)
		return;
	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	send_error(c, id, code, status, text);
}

void request_free(struct request *r)
{
	json_decref(r->id);
	json_decref(r->params);
	free(r->room);
	free(r);
}

void request_ask_control(struct request *r, enum api_op op, void (*answered)(struct request *r))
{
	r->answered = answered;
	r->call.m.kind = MSG_API;
	r->call.op = (uint8_t)op;
	r->call.api_ctx = r;
	api_to_control(r->api, &r->call);
}

uint64_t request_uint(const struct request *r, const char *name, uint64_t def)
{
	const json_t *v = json_object_get(r->params, name);

	return v ? (uint64_t)json_integer_value(v) : def;
}

const char *request_text(const struct request *r, const char *name)
{
	return json_string_value(json_object_get(r->params, name));
}

int request_rail(struct request *r, const char *name)
{
	const struct config *c = r->api->deps.config;
	const char *word = request_text(r, name), *nearest = c->rails[0].name;

	for (int i = 0; i < c->n_rails; i++) {
		if (!strcmp(c->rails[i].name, word))
			return i;
		if (config_distance(c->rails[i].name, word) < config_distance(nearest, word))
			nearest = c->rails[i].name;
	}
	request_fail(r, RY_ERR_INVALID, "'%s' is no rail of this node; did you mean '%s'?", word, nearest);
	return -1;
}

static void send_error(struct api_conn *c, json_t *id, int code, enum ry_status status, const char *text)
{
	json_t *data = json_pack("{s:s}", "status", ry_status_name(status));
	json_t *error = json_pack("{s:i, s:s, s:o}", "code", code, "message", text, "data", data);

	/* A text that quotes broken UTF-8 of a request cannot be packed. */
	if (!error)
		error = json_pack("{s:i, s:s, s:{s:s}}", "code", code, "message", ry_status_text(status), "data",
			"status", ry_status_name(status));
	send_object(c, json_pack("{s:s, s:o, s:o}", "jsonrpc", "2.0", "id", id ? json_incref(id) : json_null(), "error",
			       error));
}

/* Takes over `object`. Without memory for a reply the connection is of no use any more. */
static void send_object(struct api_conn *c, json_t *object)
{
	char *text = object ? json_dumps(object, JSON_COMPACT) : NULL;

	json_decref(object);
	if (text)
		api_conn_send(c, text);
	else
		api_conn_close(c);
}

static void finish(struct request *r)
{
	struct api_conn *c = r->conn;

	request_free(r);
	if (!c)
		return;
	c->request = NULL;
	api_conn_work(c);
}
