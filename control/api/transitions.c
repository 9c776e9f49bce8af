/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One line of the log for each change of a breaker, with a budget per pair: a pair that flaps for an hour must not bury
 * what the others say. What was held back is counted; the last of it is printed as soon as there is budget again, so
 * that the log's last word on a pair is always its present state.
 */
#include "api/api_priv.h"
#include "api/pairs.h"
#include "daemon/config_rows.h"

#include <stdio.h>

#define BURST 6u
#define LINE_NS 30000000000ull /* one more line */

static void take(struct api *api, const struct journal_entry *e);
static bool has_budget(const struct api *api, const struct pair_log *log);
static void print_held(struct api *api);
static void print(struct api *api, struct pair_log *log, const struct journal_entry *e);
static const char *reason(const struct rail_transition *t, char *text, size_t bytes);
static void print_dropped(struct api *api);

bool transitions_print(struct api *api)
{
	struct journal_entry e;
	bool did = false;

	while (journal_pop(api->deps.journal, &e)) {
		take(api, &e);
		did = true;
	}
	if (api->n_held_pairs)
		print_held(api);
	print_dropped(api);
	return did;
}

uint64_t transitions_due_ns(const struct api *api)
{
	uint64_t due_ns = UINT64_MAX;

	for (uint32_t i = 0; api->n_held_pairs && i < PAIRS_MAX; i++) {
		const struct pair_log *log = &api->pair_logs[i];

		if (log->n_held && log->budget_ns - (BURST - 1) * LINE_NS < due_ns)
			due_ns = log->budget_ns - (BURST - 1) * LINE_NS;
	}
	return due_ns;
}

static void take(struct api *api, const struct journal_entry *e)
{
	struct pair_log *log = &api->pair_logs[e->what.pair_idx % PAIRS_MAX];

	if (!log->n_held && has_budget(api, log)) {
		print(api, log, e);
		return;
	}
	api->n_held_pairs += !log->n_held;
	log->n_held++;
	log->held = *e;
}

static bool has_budget(const struct api *api, const struct pair_log *log)
{
	return log->budget_ns <= api->now_ns + (BURST - 1) * LINE_NS;
}

static void print_held(struct api *api)
{
	for (uint32_t i = 0; i < PAIRS_MAX; i++) {
		struct pair_log *log = &api->pair_logs[i];

		if (log->n_held && has_budget(api, log))
			print(api, log, &log->held);
	}
}

static void print(struct api *api, struct pair_log *log, const struct journal_entry *e)
{
	const struct config *c = api->deps.config;
	const struct rail_transition *t = &e->what;
	struct log_site site = {0}; /* the budget is ours */
	char why[128], more[64] = "", endpoint[ENDPOINT_TEXT_BYTES], at[ENDPOINT_TEXT_BYTES + 4] = "";

	endpoint_text(c, e->name.store_idx, e->name.endpoint_idx, endpoint);
	if (endpoint[0])
		snprintf(at, sizeof(at), " at %s", endpoint);
	if (log->n_held > 1)
		snprintf(more, sizeof(more), "; %u changes of this pair before it are not shown", log->n_held - 1);
	api->n_held_pairs -= log->n_held != 0;
	log->n_held = 0;
	log->budget_ns = (log->budget_ns > api->now_ns ? log->budget_ns : api->now_ns) + LINE_NS;
	log_write(t->to == RAIL_OPEN ? LOG_LEVEL_WARN : LOG_LEVEL_INFO, &site,
		"health: rail %s: store %s%s: %s -> %s: %s, trips %u%s", c->rails[e->name.rail_idx].name,
		c->stores[e->name.store_idx].name, at, rail_state_name(t->from), rail_state_name(t->to),
		reason(t, why, sizeof(why)), t->n_trips, more);
}

static const char *reason(const struct rail_transition *t, char *text, size_t bytes)
{
	const char *status = ry_status_name((enum ry_status)t->status);
	const char *evidence = rail_evidence_name((enum rail_evidence)t->evidence);
	char cooldown[32];

	format_duration(t->cooldown_ns, cooldown, sizeof(cooldown));
	if (t->to == RAIL_CLOSED)
		snprintf(text, bytes, "a probe came back, the last error was %s (%s)", status, evidence);
	else if (t->to == RAIL_HALF_OPEN)
		snprintf(text, bytes, "trial after %s, the last error was %s (%s)", cooldown, status, evidence);
	else if (t->to == RAIL_EXPIRED)
		snprintf(text, bytes, "the trial never left, the next one is due, cooldown %s", cooldown);
	else
		snprintf(text, bytes, "%s (%s), cooldown %s%s", status, evidence, cooldown,
			t->is_damped ? " without probes, it opens too often" : "");
	return text;
}

static void print_dropped(struct api *api)
{
	uint32_t n = __atomic_load_n(&api->deps.journal->n_dropped, __ATOMIC_RELAXED); /* a number for people */

	if (n == api->n_dropped_told)
		return;
	log_warn("health: %u changes came too fast to be written down; railyard health shows the present states",
		n - api->n_dropped_told);
	api->n_dropped_told = n;
}
