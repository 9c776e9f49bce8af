/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * limits, limits_set: in-flight budgets that change while the daemon runs.
 *
 * Only this thread changes them, so its copy is what control was told last; control's answer says how much is taken.
 */
#include "api/api_priv.h"
#include "api/on.h"

#include <stdlib.h>
#include <string.h>

static int check(const struct request *r, const struct limits *l, struct config_error *err);
static void tell(struct request *r);
static void answered(struct request *r);

void on_limits(struct request *r)
{
	tell(r);
}

void on_limits_set(struct request *r)
{
	struct limits l = r->api->limits;
	struct config_error err;

	if (!json_object_size(r->params)) {
		request_fail(r, RY_ERR_INVALID, "name a budget and its new value; help lists them");
		return;
	}
	l.inflight_max_bytes = request_uint(r, "inflight_max_bytes", l.inflight_max_bytes);
	l.client_inflight_max_bytes = request_uint(r, "client_inflight_max_bytes", l.client_inflight_max_bytes);
	l.admission_wait_ns = request_uint(r, "admission_wait_ns", l.admission_wait_ns);
	/* What does not fit 32 bits is out of range in any case. */
	l.max_reads = (uint32_t)RTE_MIN(request_uint(r, "max_reads", l.max_reads), UINT32_MAX);
	l.client_max_reads = (uint32_t)RTE_MIN(request_uint(r, "client_max_reads", l.client_max_reads), UINT32_MAX);
	if (check(r, &l, &err) < 0) {
		request_fail(r, RY_ERR_INVALID, "%s", err.text);
		return;
	}
	r->api->limits = l;
	log_info("limits: set by uid %u: max_reads %u, client_max_reads %u, inflight %llu B, client_inflight %llu B, "
		 "admission_wait %llu ms",
		r->conn->uid, l.max_reads, l.client_max_reads, (unsigned long long)l.inflight_max_bytes,
		(unsigned long long)l.client_inflight_max_bytes, (unsigned long long)(l.admission_wait_ns / 1000000));
	tell(r);
}

/* The ranges and relations that hold for a file hold here. */
static int check(const struct request *r, const struct limits *l, struct config_error *err)
{
	const struct config *now = r->api->deps.config;
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
	c->max_reads = l->max_reads;
	c->client_max_reads = l->client_max_reads;
	c->inflight_max_bytes = l->inflight_max_bytes;
	c->client_inflight_max_bytes = l->client_inflight_max_bytes;
	c->admission_wait_ns = l->admission_wait_ns;
	rc = config_check(c, err);
	free(c);
	return rc;
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

	request_reply(r,
		json_pack("{s:I, s:I, s:I, s:I, s:I, s:s, s:I, s:I, s:I}", "max_reads", (json_int_t)l->max_reads,
			"client_max_reads", (json_int_t)l->client_max_reads, "inflight_max_bytes",
			(json_int_t)l->inflight_max_bytes, "client_inflight_max_bytes",
			(json_int_t)l->client_inflight_max_bytes, "admission_wait_ns", (json_int_t)l->admission_wait_ns,
			"admission", r->api->deps.config->admission == ADMISSION_QUEUE ? "queue" : "reject", "reads",
			(json_int_t)u->n_reads, "inflight_bytes", (json_int_t)u->inflight_bytes, "waiting",
			(json_int_t)u->n_waiting));
}
