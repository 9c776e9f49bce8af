/* SPDX-License-Identifier: BSD-3-Clause */
#include "health/layout.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/numa.h"

static void add_locals(struct layout *l, const struct config *c);
static int add_store(struct layout *l, const struct config *c, uint16_t s, struct rail_map_error *err);
static void add_remote(struct layout *l, const struct config *c, uint16_t s, uint16_t e);
static int add_pairs(struct layout *l, const struct config *c, uint16_t s, uint16_t e, struct rail_map_error *err);
static bool is_listed(const char *list, const char *name);
static uint8_t parse(const char *literal, uint8_t address[16]);
static uint8_t prefix_of(const uint8_t address[16]);
static uint8_t mapped(const struct sockaddr *sa, uint8_t address[16]);

struct layout *layout_create(const struct config *c, struct rail_map_error *err)
{
	struct layout *l = calloc(1, sizeof(*l));
	int rc = 0;

	if (!l) {
		snprintf(err->text, sizeof(err->text), "no memory for the table of pairs");
		return NULL;
	}
	add_locals(l, c);
	for (uint16_t s = 0; s < c->n_stores && !rc; s++)
		rc = add_store(l, c, s, err);
	l->table.all = l->all;
	l->table.direct = l->direct;
	l->layout = (struct rail_map_layout){
		.n_locals = c->n_rails,
		.locals = l->locals,
		.n_peers = c->n_stores,
		.peers = l->peers,
		.table = &l->table,
	};
	if (!rc)
		return l;
	free(l);
	return NULL;
}

static void add_locals(struct layout *l, const struct config *c)
{
	for (uint16_t i = 0; i < c->n_rails; i++) {
		const struct rail_conf *r = &c->rails[i];
		struct rail_map_end *end = &l->locals[i];

		end->name = r->name;
		end->numa = r->numa_node >= 0 ? r->numa_node : numa_of_netdev(r->netdev, r->address);
		end->prefix_bits = parse(r->address, end->address) ? prefix_of(end->address) : 0;
	}
}

static int add_store(struct layout *l, const struct config *c, uint16_t s, struct rail_map_error *err)
{
	uint16_t n = layout_n_endpoints(c, s);
	int rc = 0;

	l->peers[s] = (struct rail_map_peer){.name = c->stores[s].name, .n_rails = n, .rails = l->remotes[s]};
	for (uint16_t e = 0; e < n && !rc; e++) {
		add_remote(l, c, s, e);
		rc = add_pairs(l, c, s, e, err);
	}
	return rc;
}

/* Without a name of its own its place in the list is its name; no rail is called that by chance. */
static void add_remote(struct layout *l, const struct config *c, uint16_t s, uint16_t e)
{
	const struct config_endpoint *from = &c->stores[s].endpoints[e];
	struct rail_map_end *end = &l->remotes[s][e];

	end->name = l->names[s][e];
	if (c->stores[s].is_self || !from->name[0])
		snprintf(l->names[s][e], RY_NAME_MAX_BYTES, "endpoint %u", e);
	else
		snprintf(l->names[s][e], RY_NAME_MAX_BYTES, "%s", from->name);
	if (c->stores[s].is_self)
		return;
	end->numa = (int)from->numa_node;
	end->prefix_bits = parse(from->address, end->address) ? 128 : 0;
}

static int add_pairs(struct layout *l, const struct config *c, uint16_t s, uint16_t e, struct rail_map_error *err)
{
	const char *store = c->stores[s].name, *direct = c->stores[s].endpoints[e].rail;

	for (uint16_t r = 0; r < c->n_rails; r++) {
		struct rail_map_row row = {c->rails[r].name, store, l->names[s][e]};

		if (!layout_may_reach(c, s, e, r))
			continue;
		if (l->table.n_all == PAIRS_MAX) {
			snprintf(err->text, sizeof(err->text),
				"more than %u pairs of a local rail and an endpoint: say in each endpoint which "
				"rails use it (rail, rails)",
				PAIRS_MAX);
			return -ENOSPC;
		}
		l->all[l->table.n_all++] = row;
		if (!c->stores[s].is_self && !strcmp(direct, c->rails[r].name))
			l->direct[l->table.n_direct++] = row;
	}
	return 0;
}

bool layout_may_reach(const struct config *c, uint16_t store_idx, uint16_t endpoint_idx, uint16_t rail_idx)
{
	const struct config_endpoint *e = &c->stores[store_idx].endpoints[endpoint_idx];
	const struct rail_conf *r = &c->rails[rail_idx];
	bool is_mock = !strcmp(r->transport, "mock");
	uint8_t a[16], b[16];

	if (c->stores[store_idx].is_self)
		return is_mock && endpoint_idx == rail_idx;
	if (is_mock)
		return false;
	if (!strcmp(e->rail, r->name))
		return true;
	if (e->rails[0] ? !is_listed(e->rails, r->name) : e->rail[0] != 0)
		return false;
	return parse(r->address, a) == parse(e->address, b);
}

uint16_t layout_n_endpoints(const struct config *c, uint16_t store_idx)
{
	return c->stores[store_idx].is_self ? c->n_rails : c->stores[store_idx].n_endpoints;
}

/* Names separated by commas; "all" stands for every one. */
static bool is_listed(const char *list, const char *name)
{
	size_t n = strlen(name);

	while (*list) {
		size_t len = strcspn(list, ",");

		if ((len == n && !memcmp(list, name, n)) || (len == 3 && !memcmp(list, "all", 3)))
			return true;
		list += len;
		list += strspn(list, ",");
	}
	return false;
}

/* An IPv4 literal is mapped into IPv6. Bits of its own: 32, 128, or 0 when it is none. */
static uint8_t parse(const char *literal, uint8_t address[16])
{
	memset(address, 0, 16);
	if (inet_pton(AF_INET6, literal, address) == 1)
		return 128;
	if (inet_pton(AF_INET, literal, address + 12) != 1)
		return 0;
	address[10] = address[11] = 0xff;
	return 32;
}

/* Of the subnet that this node has the address in; 0 = it has not. */
static uint8_t prefix_of(const uint8_t address[16])
{
	uint8_t own[16], mask[16], bits = 0;
	struct ifaddrs *all, *a;

	if (getifaddrs(&all))
		return 0;
	for (a = all; a && !bits; a = a->ifa_next) {
		if (!a->ifa_addr || !a->ifa_netmask || !mapped(a->ifa_addr, own) || memcmp(own, address, 16) != 0)
			continue;
		bits = (uint8_t)(128 - mapped(a->ifa_netmask, mask));
		for (uint32_t i = bits / 8u; i < 16 && mask[i]; i++)
			bits = (uint8_t)(bits + __builtin_popcount(mask[i]));
	}
	freeifaddrs(all);
	return bits;
}

/* Bits of its own, 0 = of another family. */
static uint8_t mapped(const struct sockaddr *sa, uint8_t address[16])
{
	memset(address, 0, 16);
	if (sa->sa_family == AF_INET6) {
		memcpy(address, &((const struct sockaddr_in6 *)(const void *)sa)->sin6_addr, 16);
		return 128;
	}
	if (sa->sa_family != AF_INET)
		return 0;
	memcpy(address + 12, &((const struct sockaddr_in *)(const void *)sa)->sin_addr, 4);
	address[10] = address[11] = 0xff;
	return 32;
}
