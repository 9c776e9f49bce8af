/* SPDX-License-Identifier: BSD-3-Clause */
#include "store_priv.h"

#include <assert.h>
#include <string.h>

/* For the body of XXH3_state_t, which lives on the stack here. */
#define XXH_STATIC_LINKING_ONLY
#include <xxhash.h>

static bool is_valid_put(uint16_t key_bytes, uint32_t stripe_bytes);
static enum ry_status room_for_key(struct store *s, uint64_t now_ns);
static enum ry_status grow_tables(struct store *s, struct object *o, uint32_t n_stripes, uint64_t now_ns);
static enum ry_status take_stripes(struct store *s, struct object *o, uint64_t bytes, uint64_t now_ns);
static void drop_stripes(struct store *s, struct object *o, uint32_t n, uint64_t first_bytes);
static uint64_t stripe_len(const struct object *o, uint64_t bytes, uint32_t i);
static void end_writing(struct store *s, struct object *o);
static void publish(const struct store *s, struct object *o);
static uint64_t etag_of(const struct object *o);

enum ry_status store_put_begin(struct store *s, const void *key, uint16_t key_bytes, uint32_t stripe_bytes,
	bool is_if_absent, uint64_t ttl_ns, uint64_t now_ns, struct object **out)
{
	struct object *old, *o;
	enum ry_status rc;
	uint8_t hash[16];

	if (!is_valid_put(key_bytes, stripe_bytes))
		return RY_ERR_INVALID;
	index_hash(key, key_bytes, hash);
	old = index_find(s, key, key_bytes, hash, now_ns);
	if (old && is_if_absent)
		return RY_ERR_EXISTS;
	rc = old ? RY_OK : room_for_key(s, now_ns);
	if (rc)
		return rc;
	while ((rc = entry_new(s, key_bytes, &o))) {
		enum ry_status room = tier_make_room(s, 1, now_ns);

		if (room)
			return room == RY_ERR_BUSY ? room : rc;
	}
	memcpy(o->key, key, key_bytes);
	memcpy(o->hash, hash, sizeof(hash));
	o->stripe_bytes = stripe_bytes;
	o->is_if_absent = is_if_absent;
	to_entry(o)->ttl_ns = ttl_ns;
	to_entry(o)->is_new_key = !old;
	s->n_new_keys += !old;
	*out = o;
	return RY_OK;
}

enum ry_status store_put_reserve(
	struct store *s, struct object *o, uint64_t bytes, const uint64_t *checksums, uint64_t now_ns)
{
	uint64_t n = bytes / o->stripe_bytes + (bytes % o->stripe_bytes != 0);
	enum ry_status rc;

	assert(o->state == OBJECT_WRITING);
	if (bytes == 0)
		return RY_OK;
	if (o->reserved_bytes % o->stripe_bytes)
		return RY_ERR_INVALID;
	if (n > RY_STRIPES_MAX - o->n_stripes)
		return RY_ERR_LIMIT;
	/* What could not fit beside the other puts must not empty the cache first. */
	if (tier_cost(s, bytes, o->stripe_bytes) > extent_total_bytes(s->data) - s->writing_bytes)
		return RY_ERR_NO_SPACE;
	rc = grow_tables(s, o, o->n_stripes + (uint32_t)n, now_ns);
	if (!rc)
		rc = take_stripes(s, o, bytes, now_ns);
	if (!rc) {
		memcpy(o->checksums + o->n_stripes, checksums, n * sizeof(*checksums));
		o->n_stripes += (uint32_t)n;
		o->reserved_bytes += bytes;
		s->writing_bytes += tier_cost(s, bytes, o->stripe_bytes);
	}
	tier_note(s);
	return rc;
}

enum ry_status store_put_commit(struct store *s, struct object *o, uint64_t size_bytes, uint64_t now_ns)
{
	struct object *old = index_find(s, o->key, o->key_bytes, o->hash, now_ns);
	struct entry *e = to_entry(o);

	assert(o->state == OBJECT_WRITING);
	if (old && o->is_if_absent) {
		store_put_abort(s, o);
		return RY_ERR_EXISTS;
	}
	if (size_bytes != o->reserved_bytes || !index_insert(s, o)) {
		store_put_abort(s, o);
		return RY_ERR_INVALID;
	}
	end_writing(s, o);
	o->size_bytes = size_bytes;
	o->generation = old ? old->generation + 1 : s->floor + 1;
	o->etag = etag_of(o);
	if (e->ttl_ns) /* one that reaches past the end of time never expires in practice */
		o->expires_ns = e->ttl_ns < UINT64_MAX - now_ns ? now_ns + e->ttl_ns : UINT64_MAX;
	o->state = OBJECT_LIVE;
	s->n_live++;
	s->n_expiring += o->expires_ns != 0;
	TAILQ_INSERT_TAIL(&s->lru, o, link);
	publish(s, o);
	if (old)
		tier_linger(s, old, true, now_ns);
	stat_add(&s->conf.counters->store_puts, 1);
	tier_note(s);
	return RY_OK;
}

void store_put_abort(struct store *s, struct object *o)
{
	assert(o->state == OBJECT_WRITING);
	end_writing(s, o);
	entry_free(s, o);
	tier_note(s);
}

enum ry_status store_delete(
	struct store *s, const void *key, uint16_t key_bytes, uint64_t generation, uint64_t now_ns, uint64_t *deleted)
{
	struct object *o;
	uint8_t hash[16];

	index_hash(key, key_bytes, hash);
	o = index_find(s, key, key_bytes, hash, now_ns);
	if (!o)
		return RY_ERR_NOT_FOUND;
	if (generation && generation != o->generation)
		return RY_ERR_STALE_GENERATION;
	*deleted = o->generation;
	tier_linger(s, o, false, now_ns);
	tier_note(s);
	return RY_OK;
}

static bool is_valid_put(uint16_t key_bytes, uint32_t stripe_bytes)
{
	if (key_bytes == 0 || key_bytes > RY_KEY_MAX_BYTES)
		return false;
	if (stripe_bytes < RY_STRIPE_MIN_BYTES || stripe_bytes > RY_STRIPE_MAX_BYTES)
		return false;
	return stripe_bytes % RY_STRIPE_ALIGN_BYTES == 0;
}

/* A key that is not live counts from begin on, so that puts under way cannot exceed the limit together. */
static enum ry_status room_for_key(struct store *s, uint64_t now_ns)
{
	while (s->n_live + s->n_new_keys >= s->conf.max_objects) {
		if (tier_expire(s, MAKE_ROOM_MAX, now_ns))
			continue;
		if (s->conf.is_pinned || !tier_evict(s))
			return RY_ERR_LIMIT;
	}
	return RY_OK;
}

/* Both tables are one extent, addresses first. They at least double, so that a streamed put copies them a few times
 * only. */
static enum ry_status grow_tables(struct store *s, struct object *o, uint32_t n_stripes, uint64_t now_ns)
{
	const uint64_t per_stripe = sizeof(*o->stripe_addr) + sizeof(*o->checksums);
	struct entry *e = to_entry(o);
	uint64_t bytes, at;
	uint8_t **addr;

	if (n_stripes <= o->cap_stripes)
		return RY_OK;
	bytes = extent_round(s->meta, per_stripe * (n_stripes > 2 * o->cap_stripes ? n_stripes : 2 * o->cap_stripes));
	while ((at = extent_alloc(s->meta, bytes)) == EXTENT_NONE) {
		enum ry_status rc = tier_make_room(s, 1, now_ns);

		if (rc)
			return rc;
	}
	addr = (uint8_t **)(void *)(s->meta_base + at);
	o->cap_stripes = (uint32_t)(bytes / per_stripe);
	if (e->table_bytes) {
		memcpy(addr, o->stripe_addr, o->n_stripes * sizeof(*addr));
		memcpy(addr + o->cap_stripes, o->checksums, o->n_stripes * sizeof(*o->checksums));
		extent_free(s->meta, (uint64_t)((uint8_t *)o->stripe_addr - s->meta_base), e->table_bytes);
	}
	e->table_bytes = bytes;
	o->stripe_addr = addr;
	o->checksums = (uint64_t *)(void *)(addr + o->cap_stripes);
	return RY_OK;
}

/* An extent for each stripe: contiguous inside, anywhere outside, so that a large object needs no large gap. */
static enum ry_status take_stripes(struct store *s, struct object *o, uint64_t bytes, uint64_t now_ns)
{
	uint64_t rest = bytes;

	for (uint32_t i = 0; rest; i++) {
		uint64_t len = stripe_len(o, bytes, i);
		uint64_t at = extent_alloc(s->data, len);

		while (at == EXTENT_NONE) {
			enum ry_status rc = tier_make_room(s, tier_cost(s, rest, o->stripe_bytes), now_ns);

			if (rc) {
				drop_stripes(s, o, i, bytes);
				return rc;
			}
			at = extent_alloc(s->data, len);
		}
		o->stripe_addr[o->n_stripes + i] = s->conf.slab.base + at;
		rest -= len;
	}
	return RY_OK;
}

static void drop_stripes(struct store *s, struct object *o, uint32_t n, uint64_t bytes)
{
	while (n--)
		extent_free(s->data, (uint64_t)(o->stripe_addr[o->n_stripes + n] - s->conf.slab.base),
			stripe_len(o, bytes, n));
}

/* Of stripe i in a part of `bytes`. */
static uint64_t stripe_len(const struct object *o, uint64_t bytes, uint32_t i)
{
	uint64_t rest = bytes - (uint64_t)i * o->stripe_bytes;

	return rest < o->stripe_bytes ? rest : o->stripe_bytes;
}

static void end_writing(struct store *s, struct object *o)
{
	s->writing_bytes -= tier_cost(s, o->reserved_bytes, o->stripe_bytes);
	s->n_new_keys -= to_entry(o)->is_new_key;
}

static void publish(const struct store *s, struct object *o)
{
	struct source *src = to_entry(o)->source;

	src->generation = o->generation;
	src->size_bytes = o->size_bytes;
	src->stripe_bytes = o->stripe_bytes;
	src->stripe_count = o->n_stripes;
	src->stripe_addr = o->stripe_addr;
	src->region = s->conf.region;
	src->expires_ns = o->expires_ns;
	o->source = src;
	source_publish(src);
}

/* XXH3-64 over the stripe checksums, then the size, as little-endian 64-bit words. */
static uint64_t etag_of(const struct object *o)
{
	XXH3_state_t state;

	XXH3_64bits_reset(&state);
	if (o->n_stripes)
		XXH3_64bits_update(&state, o->checksums, o->n_stripes * sizeof(*o->checksums));
	XXH3_64bits_update(&state, &o->size_bytes, sizeof(o->size_bytes));
	return XXH3_64bits_digest(&state);
}
