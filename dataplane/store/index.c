/* SPDX-License-Identifier: BSD-3-Clause */
#include "store_priv.h"

#include <rte_errno.h>

#include <xxhash.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static int check_conf(const struct store_conf *conf);
static int create_memory(struct store *s);
static int create_index(struct store *s);
static void *map_lazily(uint64_t bytes);
static uint32_t first_word(const void *hash, uint32_t bytes, uint32_t seed);
static bool is_key(const struct object *o, const void *key, uint16_t key_bytes);

uint32_t store_sources_needed(uint32_t max_objects)
{
	/* Live objects, and a reserve for those being put and those that wait for their readers. */
	return max_objects + max_objects / 8 + 64;
}

int store_create(const struct store_conf *conf, struct store **out)
{
	struct store *s;
	int rc = check_conf(conf);

	if (rc)
		return rc;
	s = calloc(1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	s->conf = *conf;
	s->n_entries = store_sources_needed(conf->max_objects);
	s->floor = conf->first_generation ? conf->first_generation - 1 : 0;
	TAILQ_INIT(&s->spare);
	TAILQ_INIT(&s->lru);
	TAILQ_INIT(&s->lingering);
	TAILQ_INIT(&s->retired);
	rc = create_memory(s);
	if (!rc)
		rc = create_index(s);
	if (rc) {
		store_destroy(s);
		return rc;
	}
	*out = s;
	return 0;
}

void store_destroy(struct store *s)
{
	if (!s)
		return;
	rte_hash_free(s->index);
	free(s->places);
	if (s->entries)
		munmap(s->entries, s->n_entries * sizeof(*s->entries));
	if (s->meta_base)
		munmap(s->meta_base, s->meta_bytes);
	extent_map_destroy(s->meta);
	extent_map_destroy(s->data);
	free(s);
}

struct object *store_lookup(struct store *s, const void *key, uint16_t key_bytes, uint64_t now_ns)
{
	struct object *o;
	uint8_t hash[16];

	index_hash(key, key_bytes, hash);
	o = index_find(s, key, key_bytes, hash, now_ns);
	if (!o)
		return NULL;
	TAILQ_REMOVE(&s->lru, o, link);
	TAILQ_INSERT_TAIL(&s->lru, o, link);
	return o;
}

uint16_t store_region(const struct store *s)
{
	return s->conf.region;
}

uint32_t store_n_objects(const struct store *s)
{
	return s->n_live;
}

void index_hash(const void *key, uint16_t key_bytes, uint8_t hash[16])
{
	XXH128_hash_t h = XXH3_128bits(key, key_bytes);

	memcpy(hash, &h, 16);
}

struct object *index_find(struct store *s, const void *key, uint16_t key_bytes, const uint8_t hash[16], uint64_t now_ns)
{
	int32_t place = rte_hash_lookup(s->index, hash);
	struct object *o;

	if (place < 0)
		return NULL;
	o = s->places[place];
	if (!is_key(o, key, key_bytes))
		return NULL;
	if (o->expires_ns && now_ns >= o->expires_ns) {
		tier_retire(s, o, false);
		tier_note(s);
		return NULL;
	}
	return o;
}

bool index_insert(struct store *s, struct object *o)
{
	int32_t place = rte_hash_add_key(s->index, o->hash);
	struct object *old;

	if (place < 0)
		return false;
	old = s->places[place];
	if (old && !is_key(old, o->key, o->key_bytes))
		return false;
	s->places[place] = o;
	to_entry(o)->place = (uint32_t)place;
	return true;
}

void index_remove(struct store *s, struct object *o)
{
	rte_hash_del_key(s->index, o->hash);
	s->places[to_entry(o)->place] = NULL;
}

static int check_conf(const struct store_conf *conf)
{
	if (conf->max_objects == 0 || conf->max_objects > 1u << 28)
		return -EINVAL;
	if (conf->data_bytes < EXTENT_GRANULE_BYTES || !conf->slab.base || conf->slab.bytes < conf->data_bytes)
		return -EINVAL;
	return conf->sources && conf->counters ? 0 : -EINVAL;
}

/*
 * The metadata slab. A stripe costs at least one granule of data, which bounds all tables together: 16 bytes a stripe,
 * twice that while a table grows. Keys and small tables get 256 bytes an object, and 1 MiB on top lets a small store
 * hold some long keys.
 */
static int create_memory(struct store *s)
{
	uint64_t n_stripes = s->conf.data_bytes / EXTENT_GRANULE_BYTES;
	int rc = extent_map_create(s->conf.data_bytes, EXTENT_GRANULE_BYTES, &s->data);

	if (rc)
		return rc;
	s->meta_bytes = (1u << 20) + n_stripes * 32 + s->n_entries * 256ull;
	rc = extent_map_create(s->meta_bytes, META_GRANULE_BYTES, &s->meta);
	if (rc)
		return rc;
	s->meta_base = map_lazily(s->meta_bytes);
	s->entries = map_lazily(s->n_entries * sizeof(*s->entries));
	return s->meta_base && s->entries ? 0 : -ENOMEM;
}

static int create_index(struct store *s)
{
	struct rte_hash_parameters p = {
		.entries = s->n_entries,
		.key_len = 16,
		.hash_func = first_word,
		.socket_id = SOCKET_ID_ANY,
		/* With an extension table every entry fits, whatever the buckets look like. One thread uses it: no
		   concurrency flags. */
		.extra_flag = RTE_HASH_EXTRA_FLAGS_EXT_TABLE,
	};
	char name[RTE_HASH_NAMESIZE];

	snprintf(name, sizeof(name), "store_%lx", (unsigned long)(uintptr_t)s);
	p.name = name;
	s->index = rte_hash_create(&p);
	if (!s->index)
		return rte_errno ? -rte_errno : -ENOMEM;
	s->n_places = (uint32_t)rte_hash_max_key_id(s->index) + 1;
	s->places = calloc(s->n_places, sizeof(*s->places));
	return s->places ? 0 : -ENOMEM;
}

/* Zero pages that come as they are touched: a store for many objects costs nothing before it holds them. */
static void *map_lazily(uint64_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

/* The index key is a hash already. */
static uint32_t first_word(const void *hash, uint32_t bytes, uint32_t seed)
{
	uint32_t word;

	memcpy(&word, hash, sizeof(word));
	return word;
}

static bool is_key(const struct object *o, const void *key, uint16_t key_bytes)
{
	return o->key_bytes == key_bytes && memcmp(o->key, key, key_bytes) == 0;
}
