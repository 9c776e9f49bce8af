/* SPDX-License-Identifier: BSD-3-Clause */
#include "store_priv.h"

#include <assert.h>
#include <string.h>

static void end_linger(struct store *s, uint64_t now_ns);
static void unlink_live(struct store *s, struct object *o, bool has_successor);
static void retire(struct store *s, struct object *o);
static struct entry *take_entry(struct store *s);
static void free_stripes(struct store *s, struct object *o);
static uint32_t reclaim(struct store *s, uint32_t max);
static void evict_until(struct store *s, uint64_t data_bytes);

bool store_housekeep(struct store *s, uint64_t now_ns)
{
	uint32_t n = tier_expire(s, EXPIRE_TURN, now_ns);

	end_linger(s, now_ns);
	n += reclaim(s, RECLAIM_TURN);
	if (n)
		tier_note(s);
	return n != 0;
}

uint32_t store_n_retired(const struct store *s)
{
	return s->n_retired;
}

uint64_t store_due_ns(const struct store *s)
{
	const struct object *o = TAILQ_FIRST(&s->lingering);

	if (s->n_retired)
		return 0;
	return o ? o->linger_until_ns : UINT64_MAX;
}

uint64_t store_capacity_bytes(const struct store *s)
{
	return extent_total_bytes(s->data);
}

uint64_t store_used_bytes(const struct store *s)
{
	return extent_used_bytes(s->data);
}

enum ry_status entry_new(struct store *s, uint16_t key_bytes, struct object **out)
{
	uint64_t key_at = extent_alloc(s->meta, key_bytes);
	struct source *source;
	struct entry *e;

	if (key_at == EXTENT_NONE)
		return RY_ERR_NO_SPACE;
	source = source_alloc(s->conf.sources);
	e = source ? take_entry(s) : NULL;
	if (!e) {
		if (source)
			source_release(s->conf.sources, source);
		extent_free(s->meta, key_at, key_bytes);
		return RY_ERR_LIMIT;
	}
	memset(e, 0, sizeof(*e));
	e->source = source;
	e->o.key = s->meta_base + key_at;
	e->o.key_bytes = key_bytes;
	e->o.state = OBJECT_WRITING;
	e->o.size_bytes = RY_SIZE_UNKNOWN;
	*out = &e->o;
	return RY_OK;
}

void entry_free(struct store *s, struct object *o)
{
	struct entry *e = to_entry(o);

	free_stripes(s, o);
	if (e->table_bytes)
		extent_free(s->meta, (uint64_t)((uint8_t *)o->stripe_addr - s->meta_base), e->table_bytes);
	extent_free(s->meta, (uint64_t)(o->key - s->meta_base), o->key_bytes);
	source_release(s->conf.sources, e->source);
	o->state = 0;
	TAILQ_INSERT_HEAD(&s->spare, o, link);
}

enum ry_status tier_make_room(struct store *s, uint64_t data_bytes, uint64_t now_ns)
{
	end_linger(s, UINT64_MAX);
	if (reclaim(s, MAKE_ROOM_MAX))
		return RY_OK;
	tier_expire(s, MAKE_ROOM_MAX, now_ns);
	if (!s->conf.is_pinned)
		evict_until(s, data_bytes);
	if (reclaim(s, MAKE_ROOM_MAX))
		return RY_OK;
	return s->n_retired ? RY_ERR_BUSY : RY_ERR_NO_SPACE;
}

bool tier_evict(struct store *s)
{
	struct object *o = TAILQ_FIRST(&s->lru);

	if (!o)
		return false;
	tier_retire(s, o, false);
	stat_add(&s->conf.counters->store_evictions, 1);
	return true;
}

void tier_retire(struct store *s, struct object *o, bool has_successor)
{
	unlink_live(s, o, has_successor);
	retire(s, o);
}

void tier_linger(struct store *s, struct object *o, bool has_successor, uint64_t now_ns)
{
	if (!s->conf.linger_ns) {
		tier_retire(s, o, has_successor);
		return;
	}
	unlink_live(s, o, has_successor);
	source_linger(o->source);
	o->state = OBJECT_LINGERING;
	o->linger_until_ns = now_ns + s->conf.linger_ns;
	TAILQ_INSERT_TAIL(&s->lingering, o, link);
}

/* Those whose time is over; UINT64_MAX: all of them, because their memory is wanted. */
static void end_linger(struct store *s, uint64_t now_ns)
{
	struct object *o;

	while ((o = TAILQ_FIRST(&s->lingering)) != NULL && o->linger_until_ns <= now_ns) {
		TAILQ_REMOVE(&s->lingering, o, link);
		retire(s, o);
	}
}

static void unlink_live(struct store *s, struct object *o, bool has_successor)
{
	assert(o->state == OBJECT_LIVE);
	TAILQ_REMOVE(&s->lru, o, link);
	s->n_live--;
	if (o->expires_ns)
		s->n_expiring--;
	if (!has_successor) {
		index_remove(s, o);
		if (o->generation > s->floor)
			s->floor = o->generation;
	}
}

static void retire(struct store *s, struct object *o)
{
	o->state = OBJECT_RETIRED;
	o->retire_token = source_retire(s->conf.sources, o->source);
	TAILQ_INSERT_TAIL(&s->retired, o, link);
	s->n_retired++;
	s->retired_bytes += tier_cost(s, o->reserved_bytes, o->stripe_bytes);
}

uint32_t tier_expire(struct store *s, uint32_t max_places, uint64_t now_ns)
{
	uint32_t n = 0;

	if (max_places > s->n_places)
		max_places = s->n_places;
	for (uint32_t i = 0; i < max_places && s->n_expiring; i++) {
		struct object *o = s->places[s->expire_place];

		s->expire_place = s->expire_place + 1 < s->n_places ? s->expire_place + 1 : 0;
		if (o && o->expires_ns && now_ns >= o->expires_ns) {
			tier_retire(s, o, false);
			n++;
		}
	}
	return n;
}

uint64_t tier_cost(const struct store *s, uint64_t bytes, uint32_t stripe_bytes)
{
	return bytes / stripe_bytes * extent_round(s->data, stripe_bytes) + extent_round(s->data, bytes % stripe_bytes);
}

void tier_note(struct store *s)
{
	stat_set(&s->conf.counters->objects, s->n_live);
	stat_set(&s->conf.counters->store_bytes, extent_used_bytes(s->data));
}

static struct entry *take_entry(struct store *s)
{
	struct object *o = TAILQ_FIRST(&s->spare);

	if (o) {
		TAILQ_REMOVE(&s->spare, o, link);
		return to_entry(o);
	}
	return s->n_fresh < s->n_entries ? &s->entries[s->n_fresh++] : NULL;
}

static void free_stripes(struct store *s, struct object *o)
{
	uint64_t rest = o->reserved_bytes;

	for (uint32_t i = 0; i < o->n_stripes; i++) {
		uint64_t len = rest < o->stripe_bytes ? rest : o->stripe_bytes;

		extent_free(s->data, (uint64_t)(o->stripe_addr[i] - s->conf.slab.base), len);
		rest -= len;
	}
}

/* Frees retired objects that are quiet, oldest first. One that is still read goes to the back, so that it cannot hide
 * those behind it. */
static uint32_t reclaim(struct store *s, uint32_t max)
{
	uint32_t n_looks = s->n_retired < max ? s->n_retired : max;
	uint32_t n = 0;

	while (n_looks--) {
		struct object *o = TAILQ_FIRST(&s->retired);

		TAILQ_REMOVE(&s->retired, o, link);
		if (!source_is_quiet(s->conf.sources, o->source, o->retire_token)) {
			TAILQ_INSERT_TAIL(&s->retired, o, link);
			continue;
		}
		s->n_retired--;
		s->retired_bytes -= tier_cost(s, o->reserved_bytes, o->stripe_bytes);
		entry_free(s, o);
		n++;
	}
	return n;
}

/* Until what waits for its readers is enough, and at least one object waits: then BUSY is worth the caller's second
 * try. */
static void evict_until(struct store *s, uint64_t data_bytes)
{
	for (uint32_t i = 0; i < MAKE_ROOM_MAX; i++) {
		if (s->n_retired && s->retired_bytes >= data_bytes)
			return;
		if (!tier_evict(s))
			return;
	}
}
