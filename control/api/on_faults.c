/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * faults, fault_inject, fault_clear: rehearsals on mock rails of a running daemon.
 *
 * Plans go to the rail from this thread alone, as mock_fault_inject asks for.
 */
#include "api/api_priv.h"
#include "api/on.h"
#include "transport/mock/fault.h"

#include <string.h>

static bool has_unguarded(const struct fault_plan *plan);
static bool is_allowed(struct request *r);
static bool is_mock(const struct api *api, int i);
static int mock_rail(struct request *r);
static int inject(struct request *r, int i, const struct fault_plan *plan);
static json_t *describe(const struct api *api, int i);
static void reply(struct request *r);

void on_faults(struct request *r)
{
	reply(r);
}

void on_fault_inject(struct request *r)
{
	struct fault_plan plan;
	char message[256];
	int i = is_allowed(r) ? mock_rail(r) : -1;

	if (i < 0)
		return;
	if (fault_parse(request_text(r, "plan"), &plan, message, sizeof(message)) < 0) {
		request_fail(r, RY_ERR_INVALID, "%s", message);
		return;
	}
	if (has_unguarded(&plan)) {
		request_fail(r, RY_ERR_DENIED,
			"a late write without its guard may hit memory of others: only tests inside one process do "
			"that; leave out guard=off");
		return;
	}
	if (inject(r, i, &plan) == 0)
		reply(r);
}

static bool has_unguarded(const struct fault_plan *plan)
{
	for (uint32_t i = 0; i < plan->n_entries; i++) {
		if (plan->entries[i].is_unguarded)
			return true;
	}
	return false;
}

void on_fault_clear(struct request *r)
{
	static const struct fault_plan none;
	const struct config *c = r->api->deps.config;
	int i = c->n_rails;

	if (!is_allowed(r))
		return;
	if (request_text(r, "rail"))
		i = mock_rail(r);
	if (i < 0)
		return;
	if (i < c->n_rails && inject(r, i, &none) < 0)
		return;
	for (int k = 0; i == c->n_rails && k < c->n_rails; k++) {
		if (is_mock(r->api, k) && inject(r, k, &none) < 0)
			return;
	}
	reply(r);
}

/* false after the request was refused. */
static bool is_allowed(struct request *r)
{
	if (r->api->deps.config->want_fault_injection)
		return true;
	request_fail(r, RY_ERR_DENIED,
		"this daemon takes no faults; set fault_injection: true in its configuration and restart it");
	return false;
}

static bool is_mock(const struct api *api, int i)
{
	return !strcmp(api->deps.config->rails[i].transport, "mock");
}

/* -1 after the request was refused. */
static int mock_rail(struct request *r)
{
	const struct config *c = r->api->deps.config;
	int i = request_rail(r, "rail");

	if (i < 0)
		return -1;
	if (is_mock(r->api, i))
		return i;
	request_fail(r, RY_ERR_INVALID, "rail %s has the transport %s; faults are for mock rails", c->rails[i].name,
		c->rails[i].transport);
	return -1;
}

/* -errno after the request was refused. */
static int inject(struct request *r, int i, const struct fault_plan *plan)
{
	const char *name = r->api->deps.config->rails[i].name;
	char text[FAULT_TEXT_BYTES];
	int rc = mock_fault_inject(r->api->deps.rails[i].rail, plan);

	if (rc == -ENOMEM)
		request_fail(r, RY_ERR_LIMIT, "rail %s: out of memory", name);
	else if (rc < 0)
		request_fail(r, RY_ERR_INVALID,
			"rail %s: refused; slow needs a rail whose bandwidth is modelled, other faults do not", name);
	if (rc < 0)
		return rc;
	r->api->faults[i] = *plan;
	fault_format(plan, text, sizeof(text));
	log_info("rail %s: fault plan by uid %u: %s", name, r->conn->uid, plan->n_entries ? text : "none");
	return 0;
}

static json_t *describe(const struct api *api, int i)
{
	const struct rail *rail = api->deps.rails[i].rail;
	json_t *done = json_object();
	char text[FAULT_TEXT_BYTES];
	json_int_t n_done = 0;

	for (int k = 1; k < FAULT_KINDS_; k++) {
		json_int_t n = (json_int_t)mock_fault_count(rail, (enum fault_kind)k);

		n_done += n;
		if (n)
			json_object_set_new(done, fault_kind_name((enum fault_kind)k), json_integer(n));
	}
	fault_format(&api->faults[i], text, sizeof(text));
	return json_pack("{s:s, s:b, s:I, s:s, s:o}", "rail", api->deps.config->rails[i].name, "in_force",
		(int)(api->faults[i].n_entries && mock_fault_is_taken(rail)), "n_done", n_done, "plan",
		api->faults[i].n_entries ? text : "", "done", done);
}

static void reply(struct request *r)
{
	const struct api *api = r->api;
	json_t *rows = json_array();

	for (int i = 0; i < api->deps.config->n_rails; i++) {
		if (is_mock(api, i))
			json_array_append_new(rows, describe(api, i));
	}
	request_reply(r,
		json_pack("{s:b, s:o}", "fault_injection", (int)api->deps.config->want_fault_injection, "rails", rows));
}
