/* SPDX-License-Identifier: BSD-3-Clause */
#include "daemon/config_problem.h"
#include "daemon/config_rows.h"

#include <arpa/inet.h>

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "health/layout.h"

static int check_node(const struct config *c, struct problem *p);
static int check_ranges(enum config_section section, const void *base, const char *prefix, struct problem *p);
static int check_rail(const struct config *c, uint16_t i, struct problem *p);
static int check_rail_pair(const struct config *c, uint16_t i, uint16_t j, struct problem *p);
static int check_store(const struct config *c, uint16_t i, struct problem *p);
static int check_endpoint(const struct config *c, uint16_t i, uint16_t j, struct problem *p);
static int check_users(const struct config *c, const struct config_endpoint *e, const char *prefix, struct problem *p);
static int check_layout(const struct config *c, struct problem *p);
static int check_reader(const struct config *c, struct problem *p);
static int check_times(const struct config *c, struct problem *p);
static bool is_mock(const struct rail_conf *r);
static bool is_address(const char *text);
static int rail_by_name(const struct config *c, const char *name);

int config_find_problem(const struct config *c, struct problem *p)
{
	char prefix[32];
	int rc = check_node(c, p);

	for (uint16_t i = 0; i < c->n_rails && rc == 0; i++) {
		snprintf(prefix, sizeof(prefix), "rails[%u].", i);
		rc = check_ranges(SECTION_RAILS, &c->rails[i], prefix, p);
		if (rc == 0)
			rc = check_rail(c, i, p);
		for (uint16_t j = 0; j < i && rc == 0; j++)
			rc = check_rail_pair(c, i, j, p);
	}
	for (uint16_t i = 0; i < c->n_stores && rc == 0; i++)
		rc = check_store(c, i, p);
	if (rc == 0 && c->n_stores)
		rc = check_layout(c, p);
	if (rc == 0)
		rc = check_reader(c, p);
	if (rc == 0)
		rc = check_ranges(SECTION_STORE, c, "store.", p);
	if (rc == 0)
		rc = check_times(c, p);
	return rc;
}

static int check_node(const struct config *c, struct problem *p)
{
	int rc = check_ranges(SECTION_NODE, c, "", p);

	if (rc < 0)
		return rc;
	if (!c->node_name[0])
		return problem_at(p, "node", "is missing: name of this node, unique among its peers");
	if (!c->is_reader && !c->is_store)
		return problem_at(p, "roles", "is missing or empty: [reader], [store] or [reader, store]");
	if (!c->n_rails || c->n_rails > RY_RAILS_MAX)
		return problem_at(p, "rails", "%u rails; 1 to %u are possible", c->n_rails, RY_RAILS_MAX);
	if (c->is_reader && !c->n_stores)
		return problem_at(p, "stores", "is missing or empty: a reader needs the stores that it reads from");
	return 0;
}

static int check_ranges(enum config_section section, const void *base, const char *prefix, struct problem *p)
{
	const struct config_row *row;
	char place[96], why[256];

	for (row = config_rows; row < config_rows + config_n_rows; row++) {
		if (row->section != section || config_row_check(row, base, why, sizeof(why)) == 0)
			continue;
		snprintf(place, sizeof(place), "%s%s", prefix, row->key);
		return problem_at(p, place, "%s", why);
	}
	return 0;
}

static int check_rail(const struct config *c, uint16_t i, struct problem *p)
{
	const struct rail_conf *r = &c->rails[i];
	char place[48];

	snprintf(place, sizeof(place), "rails[%u].transport", i);
	if (!transport_find(r->transport))
		return problem_at(
			p, place, "'%s' is not in this build; railyardd --version lists what is", r->transport);
	snprintf(place, sizeof(place), "rails[%u].address", i);
	if (r->address[0] && !is_address(r->address))
		return problem_at(p, place, "'%s' is no IPv4 or IPv6 address; host names are not resolved", r->address);
	if (!r->address[0] && !is_mock(r))
		return problem_at(p, place, "is missing: transport %s binds to an address", r->transport);
	snprintf(place, sizeof(place), "rails[%u].port", i);
	if (c->is_store && !is_mock(r) && !r->port)
		return problem_at(p, place, "is missing: a store needs a port on every rail that peers can reach");
	snprintf(place, sizeof(place), "rails[%u].bandwidth", i);
	if (r->mock.bandwidth_bytes_per_s && !is_mock(r))
		return problem_at(p, place, "is for transport mock only; rate caps a %s rail", r->transport);
	snprintf(place, sizeof(place), "rails[%u].latency", i);
	if (r->mock.latency_ns && !is_mock(r))
		return problem_at(p, place, "is for transport mock only");
	return 0;
}

static int check_rail_pair(const struct config *c, uint16_t i, uint16_t j, struct problem *p)
{
	const struct rail_conf *a = &c->rails[i], *b = &c->rails[j];
	char place[48];

	snprintf(place, sizeof(place), "rails[%u].name", i);
	if (!strcmp(a->name, b->name))
		return problem_at(p, place, "'%s' is also the name of rails[%u]", a->name, j);
	snprintf(place, sizeof(place), "rails[%u].lcore", i);
	if (a->lcore == b->lcore)
		return problem_at(
			p, place, "%u is also the lcore of rails[%u]; every rail needs one of its own", a->lcore, j);
	snprintf(place, sizeof(place), "rails[%u].port", i);
	if (a->port && a->port == b->port && !strcmp(a->address, b->address))
		return problem_at(p, place, "%s port %u is also that of rails[%u]", a->address, a->port, j);
	return 0;
}

static int check_store(const struct config *c, uint16_t i, struct problem *p)
{
	const struct config_store *s = &c->stores[i];
	char place[48];
	bool has_mock = false;
	int rc;

	snprintf(place, sizeof(place), "stores[%u].", i);
	rc = check_ranges(SECTION_STORES, s, place, p);
	if (rc < 0)
		return rc;
	for (uint16_t j = 0; j < c->n_rails; j++)
		has_mock |= is_mock(&c->rails[j]);
	for (uint16_t j = 0; j < i; j++) {
		snprintf(place, sizeof(place), "stores[%u].name", i);
		if (!strcmp(s->name, c->stores[j].name))
			return problem_at(p, place, "'%s' is also the name of stores[%u]", s->name, j);
	}
	snprintf(place, sizeof(place), "stores[%u].self", i);
	if (s->is_self && !(c->is_store && has_mock))
		return problem_at(p, place, "needs the role store and at least one rail of transport mock");
	snprintf(place, sizeof(place), "stores[%u].endpoints", i);
	if (s->is_self && s->n_endpoints)
		return problem_at(p, place, "must not be given together with self: true");
	if (!s->is_self && (!s->n_endpoints || s->n_endpoints > RY_RAILS_MAX))
		return problem_at(p, place, "%u endpoints; a store has 1 to %u", s->n_endpoints, RY_RAILS_MAX);
	for (uint16_t j = 0; j < s->n_endpoints && rc == 0; j++)
		rc = check_endpoint(c, i, j, p);
	return rc;
}

static int check_endpoint(const struct config *c, uint16_t i, uint16_t j, struct problem *p)
{
	const struct config_endpoint *e = &c->stores[i].endpoints[j];
	char prefix[48], place[64];
	int rc;

	snprintf(prefix, sizeof(prefix), "stores[%u].endpoints[%u].", i, j);
	rc = check_ranges(SECTION_ENDPOINTS, e, prefix, p);
	if (rc < 0)
		return rc;
	snprintf(place, sizeof(place), "%saddress", prefix);
	if (!is_address(e->address))
		return problem_at(p, place, "'%s' is no IPv4 or IPv6 address; host names are not resolved", e->address);
	rc = check_users(c, e, prefix, p);
	if (rc < 0)
		return rc;
	for (uint16_t r = 0; r < c->n_rails; r++) {
		if (layout_may_reach(c, i, j, r))
			return 0;
	}
	return problem_at(p, place,
		"no rail of this node may use it: each is a mock rail, of another address family, "
		"or not in rails");
}

/* The local rails that an endpoint names. */
static int check_users(const struct config *c, const struct config_endpoint *e, const char *prefix, struct problem *p)
{
	char place[64], list[sizeof(e->rails)], *rest = NULL;
	int rail = e->rail[0] ? rail_by_name(c, e->rail) : -1;

	snprintf(place, sizeof(place), "%srail", prefix);
	if (e->rail[0] && rail < 0)
		return problem_at(p, place, "'%s' is no rail of this node", e->rail);
	if (rail >= 0 && is_mock(&c->rails[rail]))
		return problem_at(
			p, place, "%s is a mock rail and reaches this node's own store only", c->rails[rail].name);
	snprintf(place, sizeof(place), "%srails", prefix);
	snprintf(list, sizeof(list), "%s", e->rails);
	for (char *name = strtok_r(list, ",", &rest); name; name = strtok_r(NULL, ",", &rest)) {
		if (strcmp(name, "all") != 0 && rail_by_name(c, name) < 0)
			return problem_at(p, place, "'%s' is no rail of this node, and not all", name);
	}
	return 0;
}

/* What only all stores together can get wrong. */
static int check_layout(const struct config *c, struct problem *p)
{
	struct rail_map_error err;
	struct layout *l = layout_create(c, &err);
	struct rail_map *map = l ? malloc(sizeof(*map)) : NULL;
	int rc;

	if (l && !map)
		snprintf(err.text, sizeof(err.text), "no memory for the table of pairs");
	rc = map ? rail_map_build(map, &l->layout, NULL, &err) : -ENOMEM;
	free(map);
	free(l);
	return rc < 0 ? problem_at(p, "stores", "%s", err.text) : 0;
}

static int check_reader(const struct config *c, struct problem *p)
{
	int rc = check_ranges(SECTION_READER, c, "reader.", p);

	if (rc < 0)
		return rc;
	if (c->ring_entries & (c->ring_entries - 1))
		return problem_at(p, "reader.ring_entries", "%u is no power of two", c->ring_entries);
	if (c->segment_bytes % RY_STRIPE_ALIGN_BYTES)
		return problem_at(p, "reader.segment", "%u is no multiple of 4KiB", c->segment_bytes);
	if (c->client_inflight_max_bytes > c->inflight_max_bytes)
		return problem_at(
			p, "reader.client_inflight", "is larger than reader.inflight, the budget of all clients");
	if (c->client_max_reads > c->max_reads)
		return problem_at(
			p, "reader.client_max_reads", "is larger than reader.max_reads, the budget of all clients");
	if (c->registered_max_bytes < c->read_arena_bytes + c->put_arena_bytes)
		return problem_at(p, "reader.registered", "is too small for the two arenas of a single client");
	return 0;
}

static int check_times(const struct config *c, struct problem *p)
{
	int rc = check_ranges(SECTION_HEALTH, c, "health.", p);

	if (rc == 0)
		rc = check_ranges(SECTION_TIMEOUTS, c, "timeouts.", p);
	if (rc < 0)
		return rc;
	if (c->keepalive_dead_ns <= c->keepalive_ns)
		return problem_at(p, "timeouts.keepalive_dead", "must be longer than timeouts.keepalive");
	return 0;
}

static bool is_mock(const struct rail_conf *r)
{
	return !strcmp(r->transport, "mock");
}

static bool is_address(const char *text)
{
	unsigned char buf[16];

	return inet_pton(AF_INET, text, buf) == 1 || inet_pton(AF_INET6, text, buf) == 1;
}

static int rail_by_name(const struct config *c, const char *name)
{
	for (int i = 0; i < c->n_rails; i++)
		if (!strcmp(c->rails[i].name, name))
			return i;
	return -1;
}
