/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The store role's memory tier and index. Control lcore only (rails see it through source.h alone).
 *
 * Index: 128-bit XXH3 of the key in an rte_hash, the full key compared in the entry. Objects are immutable generations:
 * an overwrite makes generation + 1 and retires the old one, whose readers finish; a key that comes back after a delete
 * never reuses a generation. No call here allocates from the heap, blocks or makes a system call: objects, keys,
 * checksums and address tables come from pools and a metadata slab made at create.
 */
#ifndef RY_STORE_H
#define RY_STORE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include <railyard/status.h>
#include <railyard/types.h>

#include "mem/mem.h"
#include "stats/stats.h"
#include "store/source.h"

#ifdef __cplusplus
extern "C" {
#endif

struct store; /* opaque */

struct store_conf {
	uint64_t data_bytes; /* slab */
	uint32_t max_objects;
	uint64_t first_generation; /* above every one that an earlier run of this store may have given; 0 = 1 */
	uint64_t linger_ns;  /* how long a replaced or deleted generation serves reads that began before; 0 = not at all
			      */
	bool is_pinned;      /* full = NO_SPACE; false: evict the least recently used */
	struct mapping slab; /* already mapped (and registered), at least data_bytes */
	uint16_t region;     /* its number */
	struct source_table *sources;
	struct control_counters *counters;
};

enum object_state {
	OBJECT_WRITING = 1,   /* being put; not indexed */
	OBJECT_LIVE = 2,      /* indexed */
	OBJECT_LINGERING = 4, /* not indexed any more; still served to reads that began before */
	OBJECT_RETIRED = 3,   /* waits until no rail touches it */
};

struct object {
	TAILQ_ENTRY(object) link; /* LRU when LIVE, retire list when RETIRED */
	struct source *source;    /* NULL while WRITING */
	uint8_t *key;
	uint64_t generation;
	uint64_t size_bytes;     /* RY_SIZE_UNKNOWN while a streamed put has not said it */
	uint64_t reserved_bytes; /* object bytes that have memory: stripes 0 .. n_stripes - 1 */
	uint64_t etag;
	uint64_t expires_ns;   /* 0 = never */
	uint8_t **stripe_addr; /* n_stripes entries */
	uint64_t *checksums;   /* n_stripes entries */
	uint64_t retire_token;
	uint64_t linger_until_ns;
	uint32_t stripe_bytes;
	uint32_t n_stripes;
	uint32_t cap_stripes; /* room in the two tables */
	uint16_t key_bytes;
	uint8_t state; /* enum object_state */
	uint8_t is_if_absent;
	uint8_t hash[16];
};

/* Sources that a store of max_objects may hold at a time (live, being put, retired): what conf.sources must have room
 * for, beside the put parts of local clients. */
uint32_t store_sources_needed(uint32_t max_objects);

/* 0, -EINVAL, -ENOMEM. The slab stays the caller's. Needs EAL (the index lives in its memory). */
int store_create(const struct store_conf *conf, struct store **out);
void store_destroy(struct store *s);
/* Number of the region that all objects lie in. */
uint16_t store_region(const struct store *s);

/* The live object, or NULL (missing or expired). Marks it recently used. */
struct object *store_lookup(struct store *s, const void *key, uint16_t key_bytes, uint64_t now_ns);

/* A new object in state WRITING; its ttl counts from the commit. RY_OK, EXISTS (if_absent and live), LIMIT, NO_SPACE,
 * INVALID, BUSY (see below).
 *
 * BUSY from begin or reserve: room was made (by eviction, delete or expiry), but a rail may still be reading there.
 * Nothing was changed; call again with the same arguments after a later store_housekeep. It turns into RY_OK or
 * NO_SPACE as soon as the rails have reported. */
enum ry_status store_put_begin(struct store *s, const void *key, uint16_t key_bytes, uint32_t stripe_bytes,
	bool is_if_absent, uint64_t ttl_ns, uint64_t now_ns, struct object **out);
/* Memory for the next `bytes` of it (whole stripes, except the object's last part), with their checksums. Evicts under
 * tier cache. RY_OK, NO_SPACE (nothing was reserved), LIMIT (too many stripes), INVALID (a part after a short stripe),
 * BUSY (as for begin). */
enum ry_status store_put_reserve(
	struct store *s, struct object *o, uint64_t bytes, const uint64_t *checksums, uint64_t now_ns);
/* Publishes it as generation old + 1 and retires the old one. RY_OK, EXISTS (if_absent lost the race; the object is
 * aborted), INVALID (size differs from what was reserved; aborted). */
enum ry_status store_put_commit(struct store *s, struct object *o, uint64_t size_bytes, uint64_t now_ns);
/* Gives an object in state WRITING back. No pull may be under way into it. */
void store_put_abort(struct store *s, struct object *o);

/* RY_OK, NOT_FOUND, STALE_GENERATION (generation != 0 and another is live). *deleted = its generation. */
enum ry_status store_delete(
	struct store *s, const void *key, uint16_t key_bytes, uint64_t generation, uint64_t now_ns, uint64_t *deleted);

/* Packs struct ry_list_entry of live keys with this prefix into buf (8-byte aligned, STORE_LIST_MIN_BYTES or more),
 * from *cursor on, at most max_entries; advances *cursor (0 = the end). Every key that lives throughout the paging is
 * returned exactly once, overwritten or not. One call looks at a bounded number of keys, so no entry and a cursor other
 * than 0 is an ordinary answer. Returns bytes used; *n = entries. */
#define STORE_LIST_MIN_BYTES (24u + RY_KEY_MAX_BYTES)
uint32_t store_list(struct store *s, const void *prefix, uint16_t prefix_bytes, uint64_t *cursor, uint32_t max_entries,
	uint8_t *buf, uint32_t buf_bytes, uint64_t now_ns, uint32_t *n);

/* Frees retired objects that are quiet and expired ones, a bounded number. Call once per housekeeping. Returns whether
 * anything was freed. */
bool store_housekeep(struct store *s, uint64_t now_ns);

uint32_t store_n_objects(const struct store *s); /* live */
uint32_t store_n_retired(const struct store *s);
/* When store_housekeep has something to do: 0 = now, UINT64_MAX = nothing waits. */
uint64_t store_due_ns(const struct store *s);
uint64_t store_used_bytes(const struct store *s); /* slab bytes of all states */
uint64_t store_capacity_bytes(const struct store *s);

#ifdef __cplusplus
}
#endif
#endif
