/* SPDX-License-Identifier: BSD-3-Clause */
/* health, rail_drain, rail_resume: which pairs may carry data, and the operator's say in it. */
#include "api/api_priv.h"
#include "api/on.h"
#include "api/pairs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WARNING_BYTES 256u

static void ask(struct request *r, enum api_op op, void (*answered)(struct request *r));
static void health_answered(struct request *r);
static json_t *pair_health(const struct api *api, const struct api_pair_health *p);
static json_t *breaker_health(const struct api *api, const struct rail_health_report *h);
static const char *blocked_by(const struct api_pair_health *p, char *text, size_t bytes);
static void add_word(char *text, size_t bytes, const char *word);
static const char *peer_of(const struct config *c, const struct api_pair_health *p);
static void drain(struct request *r, bool want_drain);
static void drain_answered(struct request *r);
static void warn_drained(const struct request *r, char *text, size_t bytes);
static bool is_named(const struct request *r, uint32_t at);
static bool is_left(const struct request *r, uint16_t store_idx);
static void warn_dead(const struct request *r, char *text, size_t bytes);

void on_health(struct request *r)
{
	ask(r, API_HEALTH, health_answered);
}

void on_rail_drain(struct request *r)
{
	drain(r, true);
}

void on_rail_resume(struct request *r)
{
	drain(r, false);
}

static void ask(struct request *r, enum api_op op, void (*answered)(struct request *r))
{
	r->room = calloc(API_PAIRS_MAX, sizeof(struct api_pair_health));
	if (!r->room) {
		request_fail(r, RY_ERR_LIMIT, "out of memory");
		return;
	}
	r->call.pairs = r->room;
	request_ask_control(r, op, answered);
}

static void health_answered(struct request *r)
{
	json_t *rows = json_array();
	json_int_t n_eligible = 0;

	for (uint32_t i = 0; i < r->call.n_pairs; i++) {
		n_eligible += r->call.pairs[i].is_eligible;
		json_array_append_new(rows, pair_health(r->api, &r->call.pairs[i]));
	}
	request_reply(r, json_pack("{s:I, s:I, s:o}", "n_pairs", (json_int_t)r->call.n_pairs, "n_eligible", n_eligible,
				 "pairs", rows));
}

static json_t *pair_health(const struct api *api, const struct api_pair_health *p)
{
	char why[96], endpoint[ENDPOINT_TEXT_BYTES];
	json_t *o = json_pack("{s:s, s:s, s:s, s:b, s:s, s:s, s:b, s:b, s:b, s:b, s:b, s:b}", "rail",
		api->deps.config->rails[p->rail_idx].name, "peer", peer_of(api->deps.config, p), "endpoint",
		endpoint_text(api->deps.config, p->store_idx, p->endpoint_idx, endpoint), "is_dialler",
		(int)p->has_breaker, "state", p->has_breaker ? rail_state_name(p->report.state) : "none", "blocked_by",
		blocked_by(p, why, sizeof(why)), "eligible", (int)p->is_eligible, "connected", (int)p->is_connected,
		"proven", (int)p->is_proven, "suspect", (int)p->is_suspect, "draining", (int)p->is_draining, "slow",
		(int)p->is_slow);

	json_object_set_new(o, "preferred", json_boolean(p->is_preferred));
	json_object_set_new(o, "in_use", json_boolean(p->is_in_use));
	json_object_set_new(o, "segment_deadline_ns", json_integer((json_int_t)p->segment_deadline_ns));
	if (p->has_breaker)
		json_object_update_new(o, breaker_health(api, &p->report));
	return o;
}

static json_t *breaker_health(const struct api *api, const struct rail_health_report *h)
{
	static const char *const names[RAIL_STATES] = {"closed", "open", "expired", "half_open"};
	bool has_error = h->last_fault_ns != 0;
	json_t *probes = json_pack("{s:I, s:I, s:I, s:I, s:I, s:b}", "sent", (json_int_t)h->n_sent, "ok",
		(json_int_t)h->n_ok, "failed", (json_int_t)h->n_failed, "expired", (json_int_t)h->n_expired,
		"cancelled", (json_int_t)h->n_cancelled, "under_way", (int)h->is_probe_out);
	json_t *times = json_object();

	for (uint32_t i = 0; i < RAIL_STATES; i++)
		json_object_set_new(times, names[i], json_integer((json_int_t)h->in_state_ns[i]));
	return json_pack("{s:I, s:I, s:I, s:I, s:I, s:b, s:s, s:s, s:I, s:o, s:o}", "trips", (json_int_t)h->n_trips,
		"errors", (json_int_t)h->error_count, "in_state_ns", (json_int_t)h->present_ns, "cooldown_ns",
		(json_int_t)h->cooldown_ns, "cooldown_left_ns", (json_int_t)h->cooldown_left_ns, "damped",
		(int)h->is_damped, "last_error",
		has_error ? rail_error_name((enum rail_evidence)h->last_evidence, h->last_status) : "", "last_class",
		has_error ? rail_evidence_name((enum rail_evidence)h->last_evidence) : "", "last_error_age_ns",
		(json_int_t)(has_error && api->now_ns > h->last_fault_ns ? api->now_ns - h->last_fault_ns : 0),
		"probes", probes, "times_ns", times);
}

/* Every reason, in the order in which one would look for them. Empty: it carries data. */
static const char *blocked_by(const struct api_pair_health *p, char *text, size_t bytes)
{
	text[0] = 0;
	if (p->is_draining)
		add_word(text, bytes, "draining");
	if (!p->is_connected)
		add_word(text, bytes, "not connected");
	else if (!p->is_proven)
		add_word(text, bytes, "not proven");
	if (p->is_suspect)
		add_word(text, bytes, "suspect");
	if (p->has_breaker && p->report.state != RAIL_CLOSED)
		add_word(text, bytes, rail_state_name(p->report.state));
	return text;
}

static void add_word(char *text, size_t bytes, const char *word)
{
	size_t n = strlen(text);

	snprintf(text + n, bytes - n, "%s%s", n ? ", " : "", word);
}

static const char *peer_of(const struct config *c, const struct api_pair_health *p)
{
	return p->store_idx < c->n_stores ? c->stores[p->store_idx].name : p->node_name;
}

static void drain(struct request *r, bool want_drain)
{
	int rail = request_rail(r, "rail");

	if (rail < 0)
		return;
	r->call.rail_idx = (uint16_t)rail;
	r->call.want_drain = want_drain;
	log_info("rail %s: %s by uid %u", r->api->deps.config->rails[rail].name, want_drain ? "drained" : "resumed",
		r->conn->uid);
	ask(r, API_DRAIN, drain_answered);
}

static void drain_answered(struct request *r)
{
	const struct api *api = r->api;
	char warning[WARNING_BYTES] = "";

	if (r->call.want_drain)
		warn_drained(r, warning, sizeof(warning));
	else
		warn_dead(r, warning, sizeof(warning));
	request_reply(r, json_pack("{s:s, s:b, s:s}", "rail", api->deps.config->rails[r->call.rail_idx].name,
				 "draining", (int)r->call.want_drain, "warning", warning));
}

/* Drained rails that would carry data otherwise, to a store that no other rail reaches now. */
static void warn_drained(const struct request *r, char *text, size_t bytes)
{
	const struct config *c = r->api->deps.config;

	for (uint32_t i = 0; i < r->call.n_pairs; i++) {
		const struct api_pair_health *p = &r->call.pairs[i];

		if (p->rail_idx != r->call.rail_idx || p->store_idx >= c->n_stores || is_left(r, p->store_idx) ||
			is_named(r, i))
			continue;
		if (!text[0])
			snprintf(text, bytes, "no rail is left for reads from");
		snprintf(text + strlen(text), bytes - strlen(text), " %s", c->stores[p->store_idx].name);
	}
	if (text[0])
		snprintf(text + strlen(text), bytes - strlen(text),
			": they fail with NO_RAIL until a rail comes back or is resumed");
}

/* A rail may have several pairs with one store. */
static bool is_named(const struct request *r, uint32_t at)
{
	const struct api_pair_health *p = &r->call.pairs[at];

	for (uint32_t i = 0; i < at; i++) {
		if (r->call.pairs[i].rail_idx == p->rail_idx && r->call.pairs[i].store_idx == p->store_idx)
			return true;
	}
	return false;
}

static bool is_left(const struct request *r, uint16_t store_idx)
{
	for (uint32_t i = 0; i < r->call.n_pairs; i++) {
		if (r->call.pairs[i].store_idx == store_idx && r->call.pairs[i].is_eligible)
			return true;
	}
	return false;
}

/* Why a rail that was resumed carries nothing all the same. */
static void warn_dead(const struct request *r, char *text, size_t bytes)
{
	const struct config *c = r->api->deps.config;
	const struct api_pair_health *dead = NULL;
	char why[96];

	for (uint32_t i = 0; i < r->call.n_pairs; i++) {
		const struct api_pair_health *p = &r->call.pairs[i];

		if (p->rail_idx != r->call.rail_idx)
			continue;
		if (p->is_eligible)
			return;
		dead = dead ? dead : p;
	}
	if (!dead)
		snprintf(text, bytes, "the rail is dead: it has no pair with any peer");
	else
		snprintf(text, bytes,
			"the rail is dead: its pair with %s is %s; it carries data when a probe comes back",
			peer_of(c, dead), blocked_by(dead, why, sizeof(why)));
}
