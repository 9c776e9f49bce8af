/* SPDX-License-Identifier: BSD-3-Clause */
#include "daemon/config_problem.h"
#include "daemon/config_rows.h"

#include <arpa/inet.h>

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "health/layout.h"

static void check_node(const struct config *c, struct problems *p);
static void check_roles(const struct config *c, struct problems *p);
static void check_ranges(enum config_section section, const void *base, const char *prefix, struct problems *p);
static void check_rail(const struct config *c, uint16_t i, struct problems *p);
static void check_rail_keys(const struct config *c, uint16_t i, struct problems *p);
static void check_rail_pair(const struct config *c, uint16_t i, uint16_t j, struct problems *p);
static bool is_loopback(const char *address);
static void check_store(const struct config *c, uint16_t i, struct problems *p);
static void check_endpoint(const struct config *c, uint16_t i, uint16_t j, struct problems *p);
static void check_endpoint_once(const struct config *c, uint16_t i, uint16_t j, struct problems *p);
static void check_users(
	const struct config *c, const struct config_endpoint *e, const char *prefix, struct problems *p);
static bool is_reached(const struct config *c, uint16_t i, uint16_t j);
static void check_layout(const struct config *c, struct problems *p);
static void check_reader(const struct config *c, struct problems *p);
static void check_times(const struct config *c, struct problems *p);
static bool are_clean(const struct problems *p, const char *a, const char *b);
static bool is_mock(const struct rail_conf *r);
static bool is_address(const char *text);
static bool is_same_address(const char *a, const char *b);
static bool is_section_given(const struct config *c, enum config_section section);
static int rail_by_name(const struct config *c, const char *name);

void config_find_problems(const struct config *c, struct problems *p)
{
	char prefix[32];

	check_node(c, p);
	check_roles(c, p);
	for (uint16_t i = 0; i < c->n_rails; i++) {
		snprintf(prefix, sizeof(prefix), "rails[%u].", i);
		check_ranges(SECTION_RAILS, &c->rails[i], prefix, p);
		check_rail(c, i, p);
		check_rail_keys(c, i, p);
		for (uint16_t j = 0; j < i; j++)
			check_rail_pair(c, i, j, p);
	}
	for (uint16_t i = 0; i < c->n_stores; i++)
		check_store(c, i, p);
	check_reader(c, p);
	check_ranges(SECTION_STORE, c, "store.", p);
	check_times(c, p);
	/* What rails and stores make of each other means nothing while one of them is wrong. */
	if (!p->n && c->n_stores)
		check_layout(c, p);
}

static void check_node(const struct config *c, struct problems *p)
{
	check_ranges(SECTION_NODE, c, "", p);
	if (!c->node_name[0])
		problem_at(p, "node", "is missing: name of this node, unique among its peers");
	if (!c->is_reader && !c->is_store)
		problem_at(p, "roles", "is missing or empty: [reader], [store] or [reader, store]");
	if (!c->n_rails || c->n_rails > RY_RAILS_MAX)
		problem_at(p, "rails", "%u rails; 1 to %u are possible", c->n_rails, RY_RAILS_MAX);
	if (c->is_reader && !c->n_stores)
		problem_at(p, "stores", "is missing or empty: a reader needs the stores that it reads from");
}

/* What is given for a role that the node does not have would be ignored. */
static void check_roles(const struct config *c, struct problems *p)
{
	if (problem_is_at(p, "roles"))
		return;
	if (!c->is_reader && c->n_stores)
		problem_at(p, "stores",
			"is for the role reader, which this node does not have: add it to roles, or "
			"take stores out");
	if (!c->is_reader && is_section_given(c, SECTION_READER))
		problem_at(p, "reader",
			"is for the role reader, which this node does not have: add it to roles, or "
			"take reader out");
	if (!c->is_store && is_section_given(c, SECTION_STORE))
		problem_at(p, "store",
			"is for the role store, which this node does not have: add it to roles, or "
			"take store out");
}

static void check_ranges(enum config_section section, const void *base, const char *prefix, struct problems *p)
{
	const struct config_row *row;
	char place[96], why[256];

	for (row = config_rows; row < config_rows + config_n_rows; row++) {
		if (row->section != section || config_row_check(row, base, why, sizeof(why)) == 0)
			continue;
		snprintf(place, sizeof(place), "%s%s", prefix, row->key);
		problem_at(p, place, "%s", why);
	}
}

static void check_rail(const struct config *c, uint16_t i, struct problems *p)
{
	const struct rail_conf *r = &c->rails[i];
	char place[48];

	snprintf(place, sizeof(place), "rails[%u].transport", i);
	if (!transport_find(r->transport)) {
		problem_at(p, place, "'%s' is not in this build; railyardd --version lists what is", r->transport);
		return;
	}
	snprintf(place, sizeof(place), "rails[%u].address", i);
	if (r->address[0] && !is_address(r->address))
		problem_at(p, place, "'%s' is no IPv4 or IPv6 address; host names are not resolved", r->address);
	if (is_same_address(r->address, "0.0.0.0") || is_same_address(r->address, "::"))
		problem_at(p, place, "%s is every address of this host: name the one of this rail's port", r->address);
	if (!r->address[0] && !is_mock(r))
		problem_at(p, place, "is missing: transport %s binds to an address", r->transport);
	snprintf(place, sizeof(place), "rails[%u].port", i);
	if (c->is_store && !is_mock(r) && !r->port)
		problem_at(p, place, "is missing: a store needs a port on every rail that peers can reach");
}

/* Keys of another transport would be ignored. */
static void check_rail_keys(const struct config *c, uint16_t i, struct problems *p)
{
	const struct rail_conf *r = &c->rails[i];
	const struct config_row *row = config_first_row(SECTION_RAILS);
	const uint32_t *line = c->rail_lines[i];
	char place[96];

	for (; row->section == SECTION_RAILS; row++, line++) {
		const char *only = config_row_transport(row);

		if (!*line || !only || !transport_find(r->transport) || !strcmp(only, r->transport))
			continue;
		snprintf(place, sizeof(place), "rails[%u].%s", i, row->key);
		problem_at(p, place, "is for transport %s only, and this rail is %s: take it out", only, r->transport);
	}
}

static void check_rail_pair(const struct config *c, uint16_t i, uint16_t j, struct problems *p)
{
	const struct rail_conf *a = &c->rails[i], *b = &c->rails[j];
	char place[48];

	snprintf(place, sizeof(place), "rails[%u].name", i);
	if (a->name[0] && !strcmp(a->name, b->name))
		problem_at(p, place, "'%s' is also the name of rails[%u]", a->name, j);
	snprintf(place, sizeof(place), "rails[%u].lcore", i);
	if (a->lcore == b->lcore)
		problem_at(p, place, "%u is also the lcore of rails[%u]; every rail needs one of its own", a->lcore, j);
	snprintf(place, sizeof(place), "rails[%u].port", i);
	if (a->port && a->port == b->port && is_same_address(a->address, b->address))
		problem_at(p, place, "%s port %u is also that of rails[%u]", a->address, a->port, j);
	snprintf(place, sizeof(place), "rails[%u].address", i);
	if (a->address[0] && !is_loopback(a->address) && is_same_address(a->address, b->address))
		problem_at(p, place,
			"%s is also the address of rails[%u]: both would share one port of one NIC; give it the "
			"address of another, or take it out",
			a->address, j);
}

/* Several rails of a trial on one host. */
static bool is_loopback(const char *address)
{
	struct in6_addr six;

	return !strncmp(address, "127.", 4) || (inet_pton(AF_INET6, address, &six) == 1 && IN6_IS_ADDR_LOOPBACK(&six));
}

static void check_store(const struct config *c, uint16_t i, struct problems *p)
{
	const struct config_store *s = &c->stores[i];
	bool has_mock = false;
	char place[48];

	snprintf(place, sizeof(place), "stores[%u].", i);
	check_ranges(SECTION_STORES, s, place, p);
	for (uint16_t j = 0; j < c->n_rails; j++)
		has_mock |= is_mock(&c->rails[j]);
	snprintf(place, sizeof(place), "stores[%u].name", i);
	for (uint16_t j = 0; j < i; j++) {
		if (s->name[0] && !strcmp(s->name, c->stores[j].name))
			problem_at(p, place, "'%s' is also the name of stores[%u]", s->name, j);
	}
	snprintf(place, sizeof(place), "stores[%u].self", i);
	if (s->is_self && !(c->is_store && has_mock))
		problem_at(p, place, "needs the role store and at least one rail of transport mock");
	for (uint16_t j = 0; j < s->n_endpoints; j++)
		check_endpoint(c, i, j, p);
	snprintf(place, sizeof(place), "stores[%u].endpoints", i);
	if (s->is_self && s->n_endpoints)
		problem_at(p, place, "must not be given together with self: true");
	if (!s->is_self && (!s->n_endpoints || s->n_endpoints > RY_RAILS_MAX))
		problem_at(p, place, "%u endpoints; a store has 1 to %u", s->n_endpoints, RY_RAILS_MAX);
}

static void check_endpoint(const struct config *c, uint16_t i, uint16_t j, struct problems *p)
{
	const struct config_endpoint *e = &c->stores[i].endpoints[j];
	char prefix[48], place[64];

	snprintf(prefix, sizeof(prefix), "stores[%u].endpoints[%u].", i, j);
	check_ranges(SECTION_ENDPOINTS, e, prefix, p);
	snprintf(place, sizeof(place), "%saddress", prefix);
	if (!is_address(e->address))
		problem_at(p, place, "'%s' is no IPv4 or IPv6 address; host names are not resolved", e->address);
	check_users(c, e, prefix, p);
	check_endpoint_once(c, i, j, p);
	/* Of rails that are wrong themselves nobody knows whom they reach. */
	prefix[strlen(prefix) - 1] = '\0';
	if (!problem_is_at(p, prefix) && !problem_is_at(p, "rails") && !is_reached(c, i, j))
		problem_at(p, place,
			"no rail of this node may use it: each is a mock rail, of another address family, "
			"or not in rails");
}

/* A second entry of an endpoint would only be dialled twice, or split its store in two. */
static void check_endpoint_once(const struct config *c, uint16_t i, uint16_t j, struct problems *p)
{
	const struct config_endpoint *e = &c->stores[i].endpoints[j];
	char place[64];

	snprintf(place, sizeof(place), "stores[%u].endpoints[%u].port", i, j);
	for (uint16_t s = 0; s <= i; s++) {
		for (uint16_t k = 0; k < (s < i ? c->stores[s].n_endpoints : j); k++) {
			const struct config_endpoint *o = &c->stores[s].endpoints[k];

			if (e->port && e->port == o->port && is_same_address(e->address, o->address))
				problem_at(p, place, "%s port %u is also that of stores[%u].endpoints[%u]", e->address,
					e->port, s, k);
		}
	}
}

/* The local rails that an endpoint names. */
static void check_users(const struct config *c, const struct config_endpoint *e, const char *prefix, struct problems *p)
{
	char place[64], list[sizeof(e->rails)], *rest = NULL;
	int rail = e->rail[0] ? rail_by_name(c, e->rail) : -1;

	snprintf(place, sizeof(place), "%srail", prefix);
	if (e->rail[0] && rail < 0)
		problem_at(p, place, "'%s' is no rail of this node", e->rail);
	if (rail >= 0 && is_mock(&c->rails[rail]))
		problem_at(p, place, "%s is a mock rail and reaches this node's own store only", c->rails[rail].name);
	snprintf(place, sizeof(place), "%srails", prefix);
	snprintf(list, sizeof(list), "%s", e->rails);
	for (char *name = strtok_r(list, ",", &rest); name; name = strtok_r(NULL, ",", &rest)) {
		if (strcmp(name, "all") != 0 && rail_by_name(c, name) < 0)
			problem_at(p, place, "'%s' is no rail of this node, and not all", name);
	}
}

static bool is_reached(const struct config *c, uint16_t i, uint16_t j)
{
	for (uint16_t r = 0; r < c->n_rails; r++) {
		if (layout_may_reach(c, i, j, r))
			return true;
	}
	return false;
}

/* What only all stores together can get wrong. */
static void check_layout(const struct config *c, struct problems *p)
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
	if (rc < 0)
		problem_at(p, "stores", "%s", err.text);
}

static void check_reader(const struct config *c, struct problems *p)
{
	check_ranges(SECTION_READER, c, "reader.", p);
	if (c->ring_entries & (c->ring_entries - 1))
		problem_at(p, "reader.ring_entries", "%u is no power of two", c->ring_entries);
	if (c->segment_bytes % RY_STRIPE_ALIGN_BYTES)
		problem_at(p, "reader.segment", "%u is no multiple of 4KiB", c->segment_bytes);
	if (are_clean(p, "reader.inflight", "reader.client_inflight") &&
		c->client_inflight_max_bytes > c->inflight_max_bytes)
		problem_at(p, "reader.client_inflight", "is larger than reader.inflight, the budget of all clients");
	if (are_clean(p, "reader.max_reads", "reader.client_max_reads") && c->client_max_reads > c->max_reads)
		problem_at(p, "reader.client_max_reads", "is larger than reader.max_reads, the budget of all clients");
	if (are_clean(p, "reader.read_arena", "reader.put_arena") &&
		c->registered_max_bytes < c->read_arena_bytes + c->put_arena_bytes)
		problem_at(p, "reader.registered", "is too small for the two arenas of a single client");
}

static void check_times(const struct config *c, struct problems *p)
{
	check_ranges(SECTION_HEALTH, c, "health.", p);
	check_ranges(SECTION_TIMEOUTS, c, "timeouts.", p);
	if (are_clean(p, "timeouts.keepalive", "timeouts.keepalive_dead") && c->keepalive_dead_ns <= c->keepalive_ns)
		problem_at(p, "timeouts.keepalive_dead", "must be longer than timeouts.keepalive");
}

static bool are_clean(const struct problems *p, const char *a, const char *b)
{
	return !problem_is_at(p, a) && !problem_is_at(p, b);
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

/* "::1" and "0:0:0:0:0:0:0:1" are one. */
static bool is_same_address(const char *a, const char *b)
{
	unsigned char x[16] = {0}, y[16] = {0};

	if (inet_pton(AF_INET, a, x) == 1)
		return inet_pton(AF_INET, b, y) == 1 && !memcmp(x, y, sizeof(x));
	return inet_pton(AF_INET6, a, x) == 1 && inet_pton(AF_INET6, b, y) == 1 && !memcmp(x, y, sizeof(x));
}

static bool is_section_given(const struct config *c, enum config_section section)
{
	const struct config_row *row = config_first_row(section);

	for (; row < config_rows + config_n_rows && row->section == section; row++) {
		if (c->lines[row - config_rows])
			return true;
	}
	return false;
}

static int rail_by_name(const struct config *c, const char *name)
{
	for (int i = 0; i < c->n_rails; i++)
		if (!strcmp(c->rails[i].name, name))
			return i;
	return -1;
}
