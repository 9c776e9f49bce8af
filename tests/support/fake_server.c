/* SPDX-License-Identifier: BSD-3-Clause */
/* The fake daemon's server: a handful of objects in memory, every operation of the ring, and the faults that tests ask
 * for. */
#include "fake_daemon.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <xxhash.h>

static void *serve(void *arg);
static void sleep_until_kicked(struct fake *f);
static void handle(struct fake *f, const struct ry_sqe *e);
static void move(struct fake *f, const struct ry_sqe *e);
static bool is_last(struct fake *f, const struct ry_sqe *e);
static void finish_move(struct fake *f, const struct ry_sqe *e);
static void do_read(struct fake *f, const struct ry_sqe *e);
static void do_put(struct fake *f, const struct ry_sqe *e);
static uint32_t take_part(struct fake *f, const struct ry_sqe *e, struct fake_object *o);
static void do_lookup(struct fake *f, const struct ry_sqe *e);
static void do_list(struct fake *f, const struct ry_sqe *e);
static void do_delete(struct fake *f, const struct ry_sqe *e);
static void do_query(struct fake *f, const struct ry_sqe *e);
static void do_cancel(struct fake *f, const struct ry_sqe *e);
static uint32_t lease(struct fake *f, struct ry_slot *slot, uint64_t bytes, uint8_t **to);

void fake_serve(struct fake *f)
{
	f->is_serving = true;
	if (pthread_create(&f->server_thread, NULL, serve, f))
		abort();
}

static void *serve(void *arg)
{
	struct fake *f = arg;
	struct ry_sqe e;

	while (!__atomic_load_n(&f->stop, __ATOMIC_RELAXED)) {
		if (fake_take(f, &e))
			handle(f, &e);
		else
			sleep_until_kicked(f);
	}
	return NULL;
}

static void sleep_until_kicked(struct fake *f)
{
	struct pollfd p = {.fd = f->fds[3], .events = POLLIN};
	uint64_t count;

	__atomic_store_n(&f->sq_index->need_wakeup, 1, __ATOMIC_RELAXED);
	/* Partner: the client's fence between its store of tail and its look at need_wakeup. */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (__atomic_load_n(&f->sq_index->tail, __ATOMIC_RELAXED) == f->sq_head) {
		/* No time-out: a lost wake-up hangs the test. */
		(void)poll(&p, 1, -1);
		if (read(f->fds[3], &count, sizeof(count)) == sizeof(count))
			f->n_wakeups++;
	}
	__atomic_store_n(&f->sq_index->need_wakeup, 0, __ATOMIC_RELAXED);
}

static void handle(struct fake *f, const struct ry_sqe *e)
{
	if (f->n_log < FAKE_LOG_MAX)
		f->log[f->n_log++] = (struct fake_log){*e, f->slots[e->slot]};
	switch (e->op) {
	case RY_OP_READ:
	case RY_OP_PUT:
		move(f, e);
		break;
	case RY_OP_LOOKUP:
		do_lookup(f, e);
		break;
	case RY_OP_LIST:
		do_list(f, e);
		break;
	case RY_OP_DELETE:
		do_delete(f, e);
		break;
	case RY_OP_PUT_QUERY:
		do_query(f, e);
		break;
	case RY_OP_CANCEL:
		do_cancel(f, e);
		break;
	case RY_OP_RELEASE:
		if (f->leases[e->arg % 16].bytes == 0)
			abort(); /* released twice, or never handed out */
		f->leases[e->arg % 16].bytes = 0;
		__atomic_fetch_sub(&f->n_leases, 1, __ATOMIC_RELAXED);
		break;
	default:
		abort();
	}
}

/* READ or PUT: at once, or when enough of them are in flight. */
static void move(struct fake *f, const struct ry_sqe *e)
{
	bool want_all = is_last(f, e);

	f->n_moves++;
	if (f->n_moves == f->die_at) {
		fake_hang_up(f);
		return;
	}
	if (f->n_moves == f->fail_at) {
		fake_answer(f, e, f->fail_status, 0);
		return;
	}
	if (f->budget_bytes && e->op == RY_OP_READ && e->length > f->budget_bytes) {
		fake_answer(f, e, RY_ERR_BUDGET, 0);
		return;
	}
	f->held[f->n_held++] = *e;
	if (f->n_held > f->n_held_max)
		f->n_held_max = f->n_held;
	while (f->n_held > 0 && (want_all || f->n_held >= f->n_hold)) {
		struct ry_sqe first = f->held[0];

		memmove(f->held, f->held + 1, --f->n_held * sizeof(f->held[0]));
		finish_move(f, &first);
	}
}

static bool is_last(struct fake *f, const struct ry_sqe *e)
{
	const struct fake_object *o = fake_find(f, f->slots[e->slot].key, e->key_bytes);

	if (e->op == RY_OP_PUT)
		return e->flags & RY_F_PUT_COMMIT || e->length == 0;
	return !o || e->length > o->bytes - e->offset || e->offset + e->length == o->bytes;
}

static void finish_move(struct fake *f, const struct ry_sqe *e)
{
	struct fake_object *o = fake_find(f, f->slots[e->slot].key, e->key_bytes);

	if (e->op == RY_OP_PUT) {
		do_put(f, e);
		return;
	}
	if (o && f->grow_bytes) {
		o->data = realloc(o->data, f->grow_bytes);
		o->bytes = f->grow_bytes;
	}
	do_read(f, e);
	if (o && f->replace_after && --f->replace_after == 0)
		o->generation++;
}

static void do_read(struct fake *f, const struct ry_sqe *e)
{
	struct ry_slot *slot = &f->slots[e->slot];
	const struct fake_object *o = fake_find(f, slot->key, e->key_bytes);
	struct ry_cqe c = {
		.ticket = e->ticket, .op = e->op, .slot = e->slot, .is_verified = 1, .rail_idx = RY_RAIL_NONE};
	uint8_t *to;

	if (!o) {
		fake_answer(f, e, RY_ERR_NOT_FOUND, 0);
		return;
	}
	if (e->offset > o->bytes || (e->length != RY_TO_END && e->length > o->bytes - e->offset)) {
		fake_answer(f, e, RY_ERR_INVALID, 0);
		return;
	}
	c.bytes = e->length == RY_TO_END ? o->bytes - e->offset : e->length;
	c.generation = o->generation;
	c.lease_id = lease(f, slot, c.bytes, &to);
	if (c.bytes > 0 && c.lease_id == 0) {
		fake_answer(f, e, c.bytes > f->opts.read_arena_bytes ? RY_ERR_BUFFER_TOO_SMALL : RY_ERR_BUDGET, 0);
		return;
	}
	if (c.bytes > 0)
		memcpy(to, o->data + e->offset, c.bytes);
	memset(&slot->stats, 0, sizeof(slot->stats));
	slot->stats.object_ns = 1000;
	slot->stats.wire_bytes = c.bytes;
	slot->stats.class_ref = RY_CLASS_NETWORK;
	slot->stats.n_rails = 2;
	for (unsigned i = 0; i < 2; i++) {
		snprintf(slot->stats.rails[i].name, RY_NAME_MAX_BYTES, "rail%u", i);
		slot->stats.rails[i].bytes = c.bytes / 2 + (i == 0 ? c.bytes % 2 : 0);
		slot->stats.rails[i].segments = 1;
	}
	fake_complete(f, &c);
}

static uint32_t lease(struct fake *f, struct ry_slot *slot, uint64_t bytes, uint8_t **to)
{
	uint32_t id = 1 + f->next_lease++ % 15;
	uint64_t at = f->read_next + bytes > f->opts.read_arena_bytes ? 0 : f->read_next;

	slot->n_extents = 0;
	if (bytes == 0)
		return 0;
	for (unsigned i = 0; i < 16; i++) {
		const struct ry_extent *l = &f->leases[i];

		if (l->bytes > 0 && l->offset < at + bytes && at < l->offset + l->bytes)
			return 0;
	}
	if (bytes > f->opts.read_arena_bytes || f->leases[id].bytes > 0)
		return 0;
	f->leases[id] = (struct ry_extent){at, bytes};
	f->read_next = at + bytes;
	__atomic_fetch_add(&f->n_leases, 1, __ATOMIC_RELAXED);
	/* In two pieces where that is possible, so that users of leases must look at both. */
	slot->n_extents = bytes > 1 ? 2 : 1;
	slot->extents[0] = (struct ry_extent){at, bytes > 1 ? bytes / 2 : 1};
	slot->extents[1] = (struct ry_extent){at + bytes / 2, bytes - bytes / 2};
	*to = f->read_arena + at;
	return id;
}

static void do_put(struct fake *f, const struct ry_sqe *e)
{
	struct ry_slot *slot = &f->slots[e->slot];
	struct ry_cqe c = {.ticket = e->ticket, .op = e->op, .slot = e->slot, .rail_idx = RY_RAIL_NONE};
	struct fake_object *o = fake_find(f, slot->key, e->key_bytes);

	if (o && o->is_committed && memcmp(o->put_id, slot->put_id, sizeof(o->put_id)) == 0) {
		/* This very put is done already. */
		c.bytes = o->bytes;
		c.generation = o->generation;
		fake_complete(f, &c);
		return;
	}
	if (o && o->is_committed && e->flags & RY_F_IF_ABSENT) {
		fake_answer(f, e, RY_ERR_EXISTS, 0);
		return;
	}
	if (!o) {
		for (o = f->objects; o->key[0]; o++)
			;
		memset(o->key, 0, sizeof(o->key));
		memcpy(o->key, slot->key, e->key_bytes);
	}
	c.status = take_part(f, e, o);
	if (c.status)
		snprintf(slot->cause, sizeof(slot->cause), "fake: put refused");
	c.bytes = o->bytes;
	c.generation = o->is_committed ? o->generation : 0;
	fake_complete(f, &c);
}

static uint32_t take_part(struct fake *f, const struct ry_sqe *e, struct fake_object *o)
{
	const struct ry_slot *slot = &f->slots[e->slot];
	const uint64_t *table = (const void *)(f->put_arena + slot->checksum_offset);
	const uint8_t *data = f->put_arena + e->arg;
	uint64_t at = 0;

	if (e->length == 0 && e->flags == 0) {
		o->key[0] = '\0'; /* abort */
		return RY_OK;
	}
	if (e->flags & RY_F_PUT_BEGIN) {
		o->bytes = 0;
		o->is_committed = o->is_bad = false;
		o->stripe_bytes = slot->stripe_bytes;
		memcpy(o->put_id, slot->put_id, sizeof(o->put_id));
	}
	if (memcmp(o->put_id, slot->put_id, sizeof(o->put_id)) || o->bytes != e->offset)
		return RY_ERR_PROTOCOL;
	for (uint32_t i = 0; i < slot->n_checksums; i++) {
		uint64_t n = e->length - at < slot->stripe_bytes ? e->length - at : slot->stripe_bytes;

		if (n == 0 || XXH3_64bits(data + at, n) != table[i])
			return RY_ERR_CHECKSUM;
		at += n;
	}
	if (at != e->length)
		return RY_ERR_INVALID;
	o->data = realloc(o->data, o->bytes + e->length + 1);
	memcpy(o->data + o->bytes, data, e->length);
	o->bytes += e->length;
	if (!(e->flags & RY_F_PUT_COMMIT))
		return RY_OK;
	if (slot->size_bytes != o->bytes)
		return RY_ERR_INVALID;
	o->is_committed = true;
	o->generation++;
	if (!f->want_lost_answer)
		return RY_OK;
	f->want_lost_answer = false;
	return RY_ERR_UNKNOWN_OUTCOME;
}

static void do_lookup(struct fake *f, const struct ry_sqe *e)
{
	struct ry_slot *slot = &f->slots[e->slot];
	const struct fake_object *o = fake_find(f, slot->key, e->key_bytes);

	if (!o) {
		fake_answer(f, e, RY_ERR_NOT_FOUND, 0);
		return;
	}
	slot->object = (struct ry_object){.size_bytes = o->bytes,
		.generation = o->generation,
		.stripe_bytes = o->stripe_bytes,
		.stripe_count = (uint32_t)((o->bytes + o->stripe_bytes - 1) / o->stripe_bytes),
		.has_checksums = 1};
	fake_answer(f, e, RY_OK, 0);
}

static void do_list(struct fake *f, const struct ry_sqe *e)
{
	struct ry_slot *slot = &f->slots[e->slot];
	struct ry_cqe c = {.ticket = e->ticket, .op = e->op, .slot = e->slot, .rail_idx = RY_RAIL_NONE};
	uint32_t first = (uint32_t)e->offset,
		 n = f->n_listed - first < e->length ? f->n_listed - first : (uint32_t)e->length;
	uint64_t entry = sizeof(struct ry_list_entry) + 16;
	uint8_t *to = NULL;

	c.lease_id = lease(f, slot, n * entry, &to);
	if (n > 0)
		slot->n_extents = 1;
	slot->extents[0].bytes = n * entry;
	for (uint32_t i = 0; i < n; i++) {
		struct ry_list_entry l = {
			.size_bytes = first + i, .generation = 1, .key_bytes = (uint16_t)(9 + (first + i) % 8)};

		memset(to, 0, entry);
		memcpy(to, &l, sizeof(l));
		snprintf((char *)to + sizeof(l), 17, "key%05uxxxxxxxx", first + i);
		to += entry;
	}
	c.bytes = n;
	c.cursor = first + n < f->n_listed ? first + n : 0;
	fake_complete(f, &c);
}

static void do_delete(struct fake *f, const struct ry_sqe *e)
{
	struct fake_object *o = fake_find(f, f->slots[e->slot].key, e->key_bytes);
	struct ry_cqe c = {.ticket = e->ticket, .op = e->op, .slot = e->slot, .rail_idx = RY_RAIL_NONE};

	if (!o || (e->arg && e->arg != o->generation)) {
		fake_answer(f, e, o ? RY_ERR_STALE_GENERATION : RY_ERR_NOT_FOUND, 0);
		return;
	}
	c.generation = o->generation;
	o->key[0] = '\0';
	fake_complete(f, &c);
}

static void do_query(struct fake *f, const struct ry_sqe *e)
{
	const struct ry_slot *slot = &f->slots[e->slot];
	const struct fake_object *o = fake_find(f, slot->key, e->key_bytes);
	struct ry_cqe c = {.ticket = e->ticket, .op = e->op, .slot = e->slot, .rail_idx = RY_RAIL_NONE};

	if (!o || memcmp(o->put_id, slot->put_id, sizeof(o->put_id))) {
		fake_answer(f, e, RY_ERR_NOT_FOUND, 0);
		return;
	}
	c.bytes = o->bytes;
	c.generation = o->is_committed ? o->generation : 0;
	fake_complete(f, &c);
}

static void do_cancel(struct fake *f, const struct ry_sqe *e)
{
	for (uint32_t i = 0; i < f->n_held; i++) {
		if (f->held[i].ticket != e->arg)
			continue;
		fake_answer(f, &f->held[i], RY_ERR_CANCELLED, 0);
		memmove(f->held + i, f->held + i + 1, (--f->n_held - i) * sizeof(f->held[0]));
		return;
	}
}

struct fake_object *fake_add(struct fake *f, const char *key, uint64_t bytes, uint32_t stripe_bytes)
{
	struct fake_object *o = f->objects;

	while (o->key[0])
		o++;
	snprintf(o->key, sizeof(o->key), "%s", key);
	o->data = malloc(bytes + 1);
	o->bytes = bytes;
	o->generation = 1;
	o->stripe_bytes = stripe_bytes;
	o->is_committed = true;
	for (uint64_t i = 0; i < bytes; i++)
		o->data[i] = fake_byte(i);
	return o;
}

struct fake_object *fake_find(struct fake *f, const void *key, uint16_t key_bytes)
{
	for (unsigned i = 0; i < FAKE_OBJECTS_MAX; i++) {
		struct fake_object *o = &f->objects[i];

		if (o->key[0] && strlen(o->key) == key_bytes && memcmp(o->key, key, key_bytes) == 0)
			return o;
	}
	return NULL;
}

uint8_t fake_byte(uint64_t i)
{
	return (uint8_t)((i * 2654435761u >> 13) ^ i);
}

uint32_t fake_count(const struct fake *f, enum ry_op op)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < f->n_log; i++)
		n += f->log[i].e.op == op;
	return n;
}

const struct fake_log *fake_nth(const struct fake *f, enum ry_op op, uint32_t n)
{
	for (uint32_t i = 0; i < f->n_log; i++) {
		if (f->log[i].e.op == op && n-- == 0)
			return &f->log[i];
	}
	abort();
}
