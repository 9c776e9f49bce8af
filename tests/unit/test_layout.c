/* SPDX-License-Identifier: BSD-3-Clause */
/* The configuration's rails and endpoints as pairs: which exist, which each rail prefers, what is left when it pauses.
 */
#include "health/health.h"
#include "health/layout.h"

#include <criterion/criterion.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct config conf;
static struct health health;
static struct rail_map_error err;

static void rail(const char *name, const char *address, int numa)
{
	struct rail_conf *r = &conf.rails[conf.n_rails++];

	snprintf(r->name, sizeof(r->name), "%s", name);
	snprintf(r->transport, sizeof(r->transport), "tcp");
	snprintf(r->address, sizeof(r->address), "%s", address);
	r->numa_node = numa;
}

static struct config_endpoint *endpoint(const char *address)
{
	struct config_store *s = &conf.stores[0];
	struct config_endpoint *e = &s->endpoints[s->n_endpoints++];

	snprintf(e->address, sizeof(e->address), "%s", address);
	e->port = 7471;
	return e;
}

/* Two rails of one subnet, two endpoints outside of every subnet of this machine (RFC 5737). */
static void two_by_two(void)
{
	conf.n_stores = 1;
	snprintf(conf.stores[0].name, sizeof(conf.stores[0].name), "st");
	conf.stores[0].memory_numa = UINT32_MAX;
	rail_health_default_params(&conf.health);
	rail("mlx5_0", "127.0.0.1", 0);
	rail("mlx5_1", "127.0.0.2", 1);
	endpoint("192.0.2.1");
	endpoint("192.0.2.2");
}

static void load(void)
{
	cr_assert_eq(health_init(&health, &conf, &err), 0, "%s", err.text);
}

/* The endpoint that a rail prefers. */
static int preferred(uint16_t r)
{
	uint16_t breaker = health_preferred(&health, 0, r);
	struct health_name name;

	if (breaker == RAIL_MAP_NONE)
		return -1;
	health_names(&health, breaker, &name);
	cr_assert(name.store_idx == 0 && name.rail_idx == r);
	cr_assert_eq(health_breaker(&health, 0, name.endpoint_idx, r), breaker);
	return name.endpoint_idx;
}

static int best(uint16_t r)
{
	struct health_name name;

	health_names(&health, health_best(&health, 0, r), &name);
	return name.endpoint_idx;
}

Test(layout, without_a_word_of_the_operator_rails_spread, .init = two_by_two)
{
	load();
	cr_assert(preferred(0) == 0 && preferred(1) == 1);
}

Test(layout, same_name_wins, .init = two_by_two)
{
	snprintf(conf.stores[0].endpoints[0].name, RY_NAME_MAX_BYTES, "mlx5_1");
	snprintf(conf.stores[0].endpoints[1].name, RY_NAME_MAX_BYTES, "mlx5_0");
	load();
	cr_assert(preferred(0) == 1 && preferred(1) == 0);
}

Test(layout, then_the_same_subnet, .init = two_by_two)
{
	/* Rail 0 is this machine's 127.0.0.1/8. */
	snprintf(conf.stores[0].endpoints[1].address, sizeof(conf.stores[0].endpoints[1].address), "127.9.9.9");
	load();
	cr_assert(preferred(0) == 1 && preferred(1) == 0);
}

Test(layout, then_the_same_numa_node, .init = two_by_two)
{
	conf.stores[0].endpoints[0].numa_node = 1;
	load();
	cr_assert(preferred(0) == 1 && preferred(1) == 0);
}

Test(layout, memory_on_a_node_draws_rails_to_its_endpoints, .init = two_by_two)
{
	conf.stores[0].endpoints[1].numa_node = 1;
	conf.stores[0].memory_numa = 1;
	load();
	cr_assert(preferred(0) == 1 && preferred(1) == 1);
}

Test(layout, the_operator_crosses_and_only_his_pairs_exist, .init = two_by_two)
{
	snprintf(conf.stores[0].endpoints[0].rail, RY_NAME_MAX_BYTES, "mlx5_1");
	snprintf(conf.stores[0].endpoints[1].rail, RY_NAME_MAX_BYTES, "mlx5_0");
	load();
	cr_assert(preferred(0) == 1 && preferred(1) == 0);
	cr_assert(
		health_breaker(&health, 0, 0, 0) == RAIL_MAP_NONE && health_breaker(&health, 0, 1, 1) == RAIL_MAP_NONE);
}

Test(layout, rails_widens_what_rail_says, .init = two_by_two)
{
	snprintf(conf.stores[0].endpoints[0].rail, RY_NAME_MAX_BYTES, "mlx5_1");
	snprintf(conf.stores[0].endpoints[0].rails, CONFIG_PATH_MAX, "mlx5_0,mlx5_1");
	snprintf(conf.stores[0].endpoints[1].rails, CONFIG_PATH_MAX, "mlx5_0");
	load();
	cr_assert(preferred(0) == 1 && preferred(1) == 0);
	cr_assert(
		health_breaker(&health, 0, 0, 0) != RAIL_MAP_NONE && health_breaker(&health, 0, 1, 1) == RAIL_MAP_NONE);
	snprintf(conf.stores[0].endpoints[1].rails, CONFIG_PATH_MAX, "all");
	load();
	cr_assert(health_breaker(&health, 0, 1, 1) != RAIL_MAP_NONE);
}

Test(layout, a_paused_pair_leaves_its_rail_to_another_endpoint, .init = two_by_two)
{
	uint16_t breaker;

	load();
	breaker = health_preferred(&health, 0, 0);
	for (int i = 0; i < 3; i++)
		rail_health_mark_failed(&health.breakers, breaker, 1);
	cr_assert(preferred(0) == 0 && best(0) == 1 && best(1) == 1);
	rail_health_mark_recovered(&health.breakers, breaker, 2);
	cr_assert(best(0) == 0);
}

Test(layout, families_do_not_mix, .init = two_by_two)
{
	rail("v6", "::1", 0);
	endpoint("2001:db8::1");
	load();
	cr_assert(preferred(2) == 2 && preferred(0) == 0);
	cr_assert(
		health_breaker(&health, 0, 0, 2) == RAIL_MAP_NONE && health_breaker(&health, 0, 2, 0) == RAIL_MAP_NONE);
}

Test(layout, mock_rails_reach_this_node_only, .init = two_by_two)
{
	snprintf(conf.rails[1].transport, sizeof(conf.rails[1].transport), "mock");
	load();
	cr_assert(preferred(0) == 0 && preferred(1) == -1);
	conf.stores[0].is_self = true;
	load();
	cr_assert(preferred(0) == -1 && preferred(1) == 1);
}

Test(layout, what_contradicts_itself_is_refused, .init = two_by_two)
{
	struct layout *l;

	snprintf(conf.stores[0].endpoints[0].rail, RY_NAME_MAX_BYTES, "mlx5_1");
	snprintf(conf.stores[0].endpoints[1].rail, RY_NAME_MAX_BYTES, "mlx5_1");
	cr_assert_lt(health_init(&health, &conf, &err), 0);
	cr_assert(strstr(err.text, "mlx5_1 has two direct rails to st"), "%s", err.text);
	memset(&conf, 0, sizeof(conf));
	two_by_two();
	conf.stores[0].n_endpoints = 0;
	for (uint16_t i = 2; i < RY_RAILS_MAX; i++)
		rail("more", "127.0.0.1", 0);
	for (uint16_t s = 0; s < 2; s++) {
		conf.stores[s] = conf.stores[0];
		conf.stores[s].n_endpoints = RY_RAILS_MAX;
		for (uint16_t i = 0; i < RY_RAILS_MAX; i++)
			snprintf(conf.stores[s].endpoints[i].address, sizeof(conf.stores[s].endpoints[i].address),
				"192.0.2.1");
	}
	l = layout_create(&conf, &err);
	cr_assert(l && l->table.n_all == PAIRS_MAX);
	free(l);
	conf.n_stores = 2;
	cr_assert_null(layout_create(&conf, &err));
	cr_assert(strstr(err.text, "more than 1024 pairs"), "%s", err.text);
}
