/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The store's inside, shared by index.c, tier.c, put.c and list.c; nobody else includes it. Control lcore only.
 *
 * Three things hold an object: the pool (an entry each), the index (where its key stands, and so its place in a
 * listing) and the tier (its bytes, its tables, and whether a rail may still read them).
 */
#ifndef RY_STORE_PRIV_H
#define RY_STORE_PRIV_H

#include "store.h"

#include <rte_hash.h>

#ifdef __cplusplus
extern "C" {
#endif

#define META_GRANULE_BYTES 64u
#define RECLAIM_TURN 64u    /* retired objects looked at per housekeeping */
#define EXPIRE_TURN 256u    /* index places looked at per housekeeping */
#define MAKE_ROOM_MAX 1024u /* objects evicted, reclaimed or looked at for expiry by one call that wants room */

TAILQ_HEAD(object_list, object);

/* A pool element: what others see, and what only the store needs. */
struct entry {
	struct object o;
	struct source *source; /* taken at begin, so that a commit cannot fail for want of one */
	uint64_t ttl_ns;
	uint64_t table_bytes; /* of the extent that holds stripe_addr and, behind it, checksums */
	uint32_t place;       /* LIVE: in the index; a key keeps it when it is overwritten */
	bool is_new_key;      /* WRITING: counted against max_objects */
};

struct store {
	struct store_conf conf;
	struct extent_map *data;
	struct extent_map *meta;
	uint8_t *meta_base;
	uint64_t meta_bytes;
	struct rte_hash *index;
	struct object **places; /* by position in the index; NULL = no key stands there */
	uint32_t n_places;
	struct entry *entries;
	uint32_t n_entries;
	uint32_t n_fresh;             /* entries below were used before */
	struct object_list spare;     /* entries used before and free again */
	struct object_list lru;       /* LIVE, least recently used first */
	struct object_list lingering; /* by linger_until_ns */
	struct object_list retired;
	uint64_t floor; /* highest generation ever retired without a successor: a key that comes back starts above it */
	uint64_t writing_bytes;
	uint64_t retired_bytes;
	uint32_t n_live;
	uint32_t n_new_keys; /* WRITING objects whose key was not live when they began */
	uint32_t n_retired;
	uint32_t n_expiring; /* LIVE objects that have an expiry */
	uint32_t expire_place;
};

static inline struct entry *to_entry(struct object *o)
{
	return (struct entry *)o;
}

/* ---- index.c ---- */
void index_hash(const void *key, uint16_t key_bytes, uint8_t hash[16]);
/* The live object of this key; one that has expired is retired here and now. */
struct object *index_find(
	struct store *s, const void *key, uint16_t key_bytes, const uint8_t hash[16], uint64_t now_ns);
/* Puts o where its key stands. False when another key owns this hash. */
bool index_insert(struct store *s, struct object *o);
void index_remove(struct store *s, struct object *o);

/* ---- tier.c ---- */
/* A pool entry in state WRITING with room for the key. NO_SPACE, LIMIT; nothing is evicted. */
enum ry_status entry_new(struct store *s, uint16_t key_bytes, struct object **out);
/* Gives back everything that o holds, its source included, and the entry itself. */
void entry_free(struct store *s, struct object *o);
/* After something could not be had: RY_OK = some was freed, try again; BUSY; NO_SPACE = there is nothing more to free.
 */
enum ry_status tier_make_room(struct store *s, uint64_t data_bytes, uint64_t now_ns);
/* Retires the least recently used object; false when none is live. */
bool tier_evict(struct store *s);
/* LIVE -> RETIRED. has_successor: its key goes on under the next generation, and keeps its place. */
void tier_retire(struct store *s, struct object *o, bool has_successor);
/* LIVE -> LINGERING for conf.linger_ns, then RETIRED: reads under way may finish. */
void tier_linger(struct store *s, struct object *o, bool has_successor, uint64_t now_ns);
/* Retires expired objects among the next max_places of the index. Returns how many. */
uint32_t tier_expire(struct store *s, uint32_t max_places, uint64_t now_ns);
/* What o's stripes cost in the slab. */
uint64_t tier_cost(const struct store *s, uint64_t bytes, uint32_t stripe_bytes);
/* Brings the gauges up to date. */
void tier_note(struct store *s);

#ifdef __cplusplus
}
#endif
#endif
