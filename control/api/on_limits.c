/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * limits, limits_set: budgets that change while the daemon runs.
 *
 * Only this thread changes them, so its copy is what control was told last; control's answer says how much is taken.
 * The budget of arenas stays here: attach is checked by this thread.
 */
#include "api/api_priv.h"
#include "api/on.h"

#include <stdlib.h>
#include <string.h>

/* What a request wants in force. */
struct wanted {
	struct limits limits;
	uint64_t registered_max_bytes;
	int rail; /* the one whose budget changes; -1 = none */
};

static bool take(struct request *r, struct wanted *w);
static bool take_rail(struct request *r, struct wanted *w);
static int check(const struct request *r, const struct wanted *w, struct config_error *err);
static void say(const struct request *r, const struct wanted *w);
static void tell(struct request *r);
static void answered(struct request *r);
static json_t *rails_of(const struct request *r);

void on_limits(struct request *r)
{
	tell(r);
}

void on_limits_set(struct request *r)
{
	struct wanted w = {.limits = r->api->limits, .registered_max_bytes = r->api->registered_max_bytes, .rail = -1};
	struct config_error err;

	if (!json_object_size(r->params)) {
		request_fail(r, RY_ERR_INVALID, "name a budget and its new value; help lists them");
		return;
	}
	if (!take(r, &w))
		return;
	if (check(r, &w, &err) < 0) {
		request_fail(r, RY_ERR_INVALID, "%s", err.text);
		return;
	}
	r->api->limits = w.limits;
	r->api->registered_max_bytes = w.registered_max_bytes;
	say(r, &w);
	tell(r);
}

/* false: the request was answered. */
static bool take(struct request *r, struct wanted *w)
{
	struct limits *l = &w->limits;

	l->inflight_max_bytes = request_uint(r, "inflight_max_bytes", l->inflight_max_bytes);
	l->client_inflight_max_bytes = request_uint(r, "client_inflight_max_bytes", l->client_inflight_max_bytes);
	l->admission_wait_ns = request_uint(r, "admission_wait_ns", l->admission_wait_ns);
	/* What does not fit 32 bits is out of range in any case. */
	l->max_reads = (uint32_t)RTE_MIN(request_uint(r, "max_reads", l->max_reads), UINT32_MAX);
	l->client_max_reads = (uint32_t)RTE_MIN(request_uint(r, "client_max_reads", l->client_max_reads), UINT32_MAX);
	w->registered_max_bytes = request_uint(r, "registered_max_bytes", w->registered_max_bytes);
	return take_rail(r, w);
}

static bool take_rail(struct request *r, struct wanted *w)
{
	bool has_bytes = json_object_get(r->params, "rail_inflight_max_bytes") != NULL;

	if (has_bytes != (request_text(r, "rail") != NULL)) {
		request_fail(r, RY_ERR_INVALID, "rail and rail_inflight_max_bytes belong together: give both");
		return false;
	}
	if (!has_bytes)
		return true;
	w->rail = request_rail(r, "rail");
	if (w->rail < 0)
		return false;
	w->limits.rail_inflight_max_bytes[w->rail] = request_uint(r, "rail_inflight_max_bytes", 0);
	return true;
}

/* The ranges and relations that hold for a file hold here. */
static int check(const struct request *r, const struct wanted *w, struct config_error *err)
{
	const struct config *now = r->api->deps.config;
	const struct limits *l = &w->limits;
	struct config *c;
	int rc;

	if (l->max_reads > now->max_reads) {
		snprintf(err->text, sizeof(err->text),
			"max_reads %u is more than the tables hold, which were made for %u at start; raise "
			"reader.max_reads and restart",
			l->max_reads, now->max_reads);
		return -EINVAL;
	}
	c = malloc(sizeof(*c));
	if (!c) {
		snprintf(err->text, sizeof(err->text), "out of memory");
		return -ENOMEM;
	}
	*c = *now;
	limits_into(l, w->registered_max_bytes, c);
	rc = config_check(c, err);
	free(c);
	return rc;
}

void limits_into(const struct limits *l, uint64_t registered_max_bytes, struct config *c)
{
	c->max_reads = l->max_reads;
	c->client_max_reads = l->client_max_reads;
	c->inflight_max_bytes = l->inflight_max_bytes;
	c->client_inflight_max_bytes = l->client_inflight_max_bytes;
	c->admission_wait_ns = l->admission_wait_ns;
	c->registered_max_bytes = registered_max_bytes;
	for (uint16_t i = 0; i < c->n_rails; i++)
		c->rails[i].inflight_max_bytes = l->rail_inflight_max_bytes[i];
}

static void say(const struct request *r, const struct wanted *w)
{
	const struct limits *l = &w->limits;

	if (w->rail >= 0)
		log_info("rail %s: inflight %llu B, set by uid %u", r->api->deps.config->rails[w->rail].name,
			(unsigned long long)l->rail_inflight_max_bytes[w->rail], r->conn->uid);
	if (w->rail >= 0 && json_object_size(r->params) == 2)
		return;
	log_info("limits: set by uid %u: max_reads %u, client_max_reads %u, inflight %llu B, client_inflight %llu B, "
		 "admission_wait %llu ms, registered %llu B",
		r->conn->uid, l->max_reads, l->client_max_reads, (unsigned long long)l->inflight_max_bytes,
		(unsigned long long)l->client_inflight_max_bytes, (unsigned long long)(l->admission_wait_ns / 1000000),
		(unsigned long long)w->registered_max_bytes);
}

static void tell(struct request *r)
{
	r->call.limits = r->api->limits;
	request_ask_control(r, API_LIMITS, answered);
}

static void answered(struct request *r)
{
	const struct limits *l = &r->call.limits;
	const struct limits_usage *u = &r->call.usage;

	json_t *o = json_pack("{s:I, s:I, s:I, s:I, s:I, s:s}", "max_reads", (json_int_t)l->max_reads,
		"client_max_reads", (json_int_t)l->client_max_reads, "inflight_max_bytes",
		(json_int_t)l->inflight_max_bytes, "client_inflight_max_bytes",
		(json_int_t)l->client_inflight_max_bytes, "admission_wait_ns", (json_int_t)l->admission_wait_ns,
		"admission", r->api->deps.config->admission == ADMISSION_QUEUE ? "queue" : "reject");

	json_object_update_new(
		o, json_pack("{s:I, s:I, s:I, s:I, s:I, s:o}", "registered_max_bytes",
			   (json_int_t)r->api->registered_max_bytes, "registered_bytes",
			   (json_int_t)r->api->registered_bytes, "reads", (json_int_t)u->n_reads, "inflight_bytes",
			   (json_int_t)u->inflight_bytes, "waiting", (json_int_t)u->n_waiting, "rails", rails_of(r)));
	request_reply(r, o);
}

static json_t *rails_of(const struct request *r)
{
	const struct config *c = r->api->deps.config;
	json_t *rows = json_array();

	for (uint16_t i = 0; i < c->n_rails; i++)
		json_array_append_new(
			rows, json_pack("{s:s, s:I, s:I}", "name", c->rails[i].name, "inflight_max_bytes",
				      (json_int_t)r->call.limits.rail_inflight_max_bytes[i], "inflight_bytes",
				      (json_int_t)r->call.usage.rail_inflight_bytes[i]));
	return rows;
}
