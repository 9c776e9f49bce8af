/* SPDX-License-Identifier: BSD-3-Clause */
#include "store_priv.h"

#include <railyard/ring.h>

#include <assert.h>
#include <string.h>

#define LIST_TURN 8192u /* index places looked at by one call */

static bool is_listed(const struct object *o, const void *prefix, uint16_t prefix_bytes, uint64_t now_ns);
static uint32_t entry_bytes(const struct object *o);
static void pack(const struct object *o, uint8_t *at);

/*
 * Walks the places of the index, where a key stands from its first commit to its end: a cursor is the next place + 1.
 * Keys that come and go meanwhile may or may not be seen; those that stay are seen once.
 */
uint32_t store_list(struct store *s, const void *prefix, uint16_t prefix_bytes, uint64_t *cursor, uint32_t max_entries,
	uint8_t *buf, uint32_t buf_bytes, uint64_t now_ns, uint32_t *n)
{
	uint64_t place = *cursor ? *cursor - 1 : 0;
	uint32_t used = 0, count = 0;

	assert(buf_bytes >= STORE_LIST_MIN_BYTES);
	for (uint32_t looks = 0; looks < LIST_TURN && place < s->n_places && count < max_entries; looks++, place++) {
		const struct object *o = s->places[place];

		if (!o || !is_listed(o, prefix, prefix_bytes, now_ns))
			continue;
		if (entry_bytes(o) > buf_bytes - used)
			break;
		pack(o, buf + used);
		used += entry_bytes(o);
		count++;
	}
	*cursor = place < s->n_places ? place + 1 : 0;
	*n = count;
	return used;
}

static bool is_listed(const struct object *o, const void *prefix, uint16_t prefix_bytes, uint64_t now_ns)
{
	if (o->expires_ns && now_ns >= o->expires_ns)
		return false;
	if (prefix_bytes > o->key_bytes)
		return false;
	return prefix_bytes == 0 || memcmp(o->key, prefix, prefix_bytes) == 0;
}

static uint32_t entry_bytes(const struct object *o)
{
	return (uint32_t)sizeof(struct ry_list_entry) + ((o->key_bytes + 7u) & ~7u);
}

static void pack(const struct object *o, uint8_t *at)
{
	struct ry_list_entry e = {.size_bytes = o->size_bytes, .generation = o->generation, .key_bytes = o->key_bytes};

	memset(at + entry_bytes(o) - 8, 0, 8); /* padding; the key covers the rest of it */
	memcpy(at, &e, sizeof(e));
	memcpy(at + sizeof(e), o->key, o->key_bytes);
}
