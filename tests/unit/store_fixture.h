/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A small store for unit tests: EAL without hugepages, a slab, a source table of two rails, counters. Included by the
 * test_store*.c programs; each Criterion test is a process of its own, so the variables start afresh.
 */
#ifndef STORE_FIXTURE_H
#define STORE_FIXTURE_H

#include "store/store.h"

#include <criterion/criterion.h>
#include <rte_eal.h>

#include <stdio.h>
#include <string.h>

#define KIB 1024ull
#define MIB (1024ull * 1024)
#define STRIPE (64 * KIB)

static struct store *st;
static struct source_table *sources;
static struct control_counters counters;
static struct mapping slab;
static uint64_t now = 1000;

static inline void fixture_eal(void)
{
	char *argv[] = {"t", "--no-huge", "--no-pci", "--no-shconf", "--no-telemetry", "--log-level=lib.eal:4", "-m",
		"64", "-l", "0"};

	cr_assert_geq(rte_eal_init(10, argv), 0);
}

static inline void fixture_store(uint64_t data_bytes, uint32_t max_objects, bool is_pinned)
{
	struct store_conf conf = {
		.data_bytes = data_bytes, .max_objects = max_objects, .is_pinned = is_pinned, .counters = &counters};

	cr_assert_eq(slab_map(data_bytes, false, &slab), 0);
	cr_assert_eq(source_table_create(store_sources_needed(max_objects), 2, &sources), 0);
	conf.slab = slab;
	conf.sources = sources;
	cr_assert_eq(store_create(&conf, &st), 0);
}

static inline struct object *lookup(const char *key)
{
	return store_lookup(st, key, (uint16_t)strlen(key), now);
}

static inline enum ry_status begin(const char *key, bool is_if_absent, uint64_t ttl_ns, struct object **o)
{
	return store_put_begin(st, key, (uint16_t)strlen(key), STRIPE, is_if_absent, ttl_ns, now, o);
}

/* Checksums that tell stripes apart; `base` tells objects apart. */
static inline enum ry_status reserve(struct object *o, uint64_t bytes, uint64_t base)
{
	static uint64_t sums[RY_STRIPES_MAX];
	uint64_t n = (bytes + o->stripe_bytes - 1) / o->stripe_bytes;

	for (uint64_t i = 0; i < n && i < RY_STRIPES_MAX; i++)
		sums[i] = base + o->n_stripes + i;
	return store_put_reserve(st, o, bytes, sums, now);
}

static inline enum ry_status put_ttl(const char *key, uint64_t bytes, uint64_t ttl_ns)
{
	enum ry_status rc;
	struct object *o;

	rc = begin(key, false, ttl_ns, &o);
	if (rc)
		return rc;
	rc = reserve(o, bytes, 0);
	if (rc) {
		store_put_abort(st, o);
		return rc;
	}
	return store_put_commit(st, o, bytes, now);
}

static inline enum ry_status put(const char *key, uint64_t bytes)
{
	return put_ttl(key, bytes, 0);
}

static inline enum ry_status del(const char *key, uint64_t generation)
{
	uint64_t deleted;

	return store_delete(st, key, (uint16_t)strlen(key), generation, now, &deleted);
}

/* A rail's pin on the live object of this key. */
static inline struct source *pin(const char *key, uint16_t rail)
{
	struct object *o = lookup(key);
	uint32_t status = RY_OK;
	struct source *s;

	cr_assert(o);
	s = source_pin(sources, o->source->handle, o->generation, rail, now, &status, false);
	cr_assert(s);
	return s;
}

#endif
