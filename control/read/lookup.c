/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Descriptors: found in the cache, or fetched from the key's home store page by page.
 *
 * One op carries a fetch (desc.carrier); others that want the same key wait behind it. A cached descriptor may be out
 * of date: the store refuses its generation before data moves, and the read looks it up once more.
 */
#include "read/control_priv.h"

#define EVICT_LOOKS 64u
#define RESTARTS_MAX 8u /* a store whose pages never fit together would keep us asking until the deadline */

static struct desc *find(struct control *c, const struct op *op);
static struct desc *make(struct control *c, struct op *op);
static void desc_free(struct control *c, struct desc *d);
static void unindex(struct control *c, struct desc *d);
static void fetch(struct control *c, struct desc *d, struct op *op);
static bool take_first_page(struct control *c, struct desc *d, const struct wire_lookup_reply *m);
static void ready(struct control *c, struct desc *d);
static void described(struct control *c, struct op *op);

void key_hash(const void *key, uint16_t key_bytes, uint8_t out[16])
{
	XXH128_canonical_t canon;

	XXH128_canonicalFromHash(&canon, XXH3_128bits(key, key_bytes));
	memcpy(out, canon.digest, 16);
}

/* Rendezvous: the store whose name hashes highest with the key. */
uint16_t lookup_home(const struct control *c, const void *key, uint16_t key_bytes)
{
	uint64_t best = 0;
	uint16_t home = 0;

	for (uint16_t i = 0; i < c->config->n_stores; i++) {
		uint64_t h = XXH3_64bits_withSeed(key, key_bytes, c->peers[i].name_hash);

		if (i == 0 || h > best) {
			best = h;
			home = i;
		}
	}
	return home;
}

void lookup_start(struct control *c, struct op *op)
{
	struct desc *d = find(c, op);

	op->peer_idx = lookup_home(c, op->key, op->key_bytes);
	if (d && d->state == DESC_READY &&
		(op->kind == RY_OP_LOOKUP || (d->expires_ns && d->expires_ns <= c->now_ns))) {
		lookup_drop(c, op->hash); /* a lookup asks the store; an expired object is gone */
		d = NULL;
	}
	if (d && d->state == DESC_READY) {
		stat_add(&c->counters->lookup_hits, 1);
		op->was_cached = true;
		op->desc = d;
		desc_hold(d);
		TAILQ_REMOVE(&c->lru_descs, d, link);
		TAILQ_INSERT_TAIL(&c->lru_descs, d, link);
		described(c, op);
		return;
	}
	if (d) {
		op->desc = d;
		op->state = OP_DESC;
		op->is_in_wait = true;
		desc_hold(d);
		TAILQ_INSERT_TAIL(&d->waiters, op, wait);
		return;
	}
	d = make(c, op);
	if (!d) {
		op_fail(c, op, RY_ERR_LIMIT, RY_RAIL_NONE,
			"no room for one more descriptor: raise reader.descriptor_cache");
		return;
	}
	desc_hold(d);
	op->desc = d;
	fetch(c, d, op);
}

static struct desc *find(struct control *c, const struct op *op)
{
	void *p;
	struct desc *d;

	if (rte_hash_lookup_data(c->desc_hash, op->hash, &p) < 0)
		return NULL;
	d = p;
	return d->key_bytes == op->key_bytes && !memcmp(d->key, op->key, op->key_bytes) ? d : NULL;
}

static struct desc *make(struct control *c, struct op *op)
{
	struct desc *d;

	if (TAILQ_EMPTY(&c->free_descs) && !lookup_evict(c))
		return NULL;
	d = TAILQ_FIRST(&c->free_descs);
	d->key = meta_alloc(c, op->key_bytes, &d->key_off);
	if (!d->key || rte_hash_add_key_data(c->desc_hash, op->hash, d)) {
		if (d->key)
			meta_free(c, d->key_off, op->key_bytes);
		return NULL;
	}
	TAILQ_REMOVE(&c->free_descs, d, link);
	memcpy(d->key, op->key, op->key_bytes);
	memcpy(d->hash, op->hash, sizeof(d->hash));
	d->key_bytes = op->key_bytes;
	d->peer_idx = op->peer_idx;
	d->state = DESC_FETCHING;
	d->is_indexed = true;
	d->n_users = d->n_fetched = d->n_restarts = d->stripe_count = 0;
	d->checksums = NULL;
	return d;
}

bool lookup_evict(struct control *c)
{
	struct desc *d;
	unsigned looks = 0;

	TAILQ_FOREACH (d, &c->lru_descs, link) {
		if (!d->n_users) {
			unindex(c, d);
			desc_free(c, d);
			return true;
		}
		if (++looks == EVICT_LOOKS)
			break;
	}
	return false;
}

/* Takes it out of the index and the LRU; its users keep it. */
static void unindex(struct control *c, struct desc *d)
{
	if (!d->is_indexed)
		return;
	d->is_indexed = false;
	rte_hash_del_key(c->desc_hash, d->hash);
	if (d->state == DESC_READY)
		TAILQ_REMOVE(&c->lru_descs, d, link);
}

static void desc_free(struct control *c, struct desc *d)
{
	if (d->checksums)
		meta_free(c, d->sums_off, (uint64_t)d->stripe_count * sizeof(uint64_t));
	meta_free(c, d->key_off, d->key_bytes);
	d->checksums = NULL;
	d->state = DESC_FREE;
	TAILQ_INSERT_TAIL(&c->free_descs, d, link);
}

void desc_hold(struct desc *d)
{
	d->n_users++;
}

void desc_put(struct control *c, struct desc *d)
{
	if (--d->n_users || d->is_indexed)
		return;
	desc_free(c, d);
}

void lookup_drop(struct control *c, const uint8_t hash[16])
{
	void *p;
	struct desc *d;

	if (rte_hash_lookup_data(c->desc_hash, hash, &p) < 0)
		return;
	d = p;
	if (d->state != DESC_READY)
		return; /* being fetched: fresh enough */
	unindex(c, d);
	if (!d->n_users)
		desc_free(c, d);
}

void lookup_drop_peer(struct control *c, uint16_t peer_idx)
{
	struct desc *d, *next;

	for (d = TAILQ_FIRST(&c->lru_descs); d; d = next) {
		next = TAILQ_NEXT(d, link);
		if (d->peer_idx == peer_idx)
			lookup_drop(c, d->hash);
	}
}

static void fetch(struct control *c, struct desc *d, struct op *op)
{
	d->carrier = op;
	stat_add(&c->counters->lookups, 1);
	meta_send(c, op);
}

/* The op that carried the fetch ended early: the next waiter takes over. */
void lookup_carrier_gone(struct control *c, struct desc *d)
{
	struct op *op = TAILQ_FIRST(&d->waiters);

	d->carrier = NULL;
	if (!op) {
		unindex(c, d);
		return;
	}
	op_unlink_wait(c, op);
	fetch(c, d, op);
}

void lookup_reply(struct control *c, struct op *op, const struct wire_lookup_reply *m)
{
	struct desc *d = op->desc;
	char text[RY_CAUSE_MAX_BYTES];

	if (m->h.status != RY_OK) {
		lookup_failed(c, d, m->h.status, NULL);
		return;
	}
	if (!m->first_stripe || m->generation != d->generation) {
		if ((m->first_stripe || d->n_fetched) && ++d->n_restarts > RESTARTS_MAX) {
			lookup_failed(c, d, RY_ERR_STALE_GENERATION,
				"the object was replaced again and again while its checksums were fetched");
			return;
		}
		if (m->first_stripe) { /* replaced between two pages: from the start */
			d->n_fetched = 0;
			meta_send(c, op);
			return;
		}
		if (!take_first_page(c, d, m))
			return;
	} else if (m->first_stripe != d->n_fetched || m->n_checksums > d->stripe_count - d->n_fetched ||
		   !m->n_checksums) {
		breach_note(c, d->peer_idx, RY_RAIL_NONE, BREACH_ANSWER);
		lookup_failed(c, d, RY_ERR_PROTOCOL,
			meta_blame(c, d->peer_idx, "sent pages of checksums that do not follow each other", text));
		return;
	}
	if (d->has_checksums && m->n_checksums) { /* an empty object has no table */
		memcpy(d->checksums + d->n_fetched, wire_lookup_checksums(m), m->n_checksums * sizeof(uint64_t));
		d->n_fetched += m->n_checksums;
	}
	if (d->has_checksums && d->n_fetched < d->stripe_count)
		meta_send(c, op);
	else
		ready(c, d);
}

static bool take_first_page(struct control *c, struct desc *d, const struct wire_lookup_reply *m)
{
	if (d->checksums) {
		meta_free(c, d->sums_off, (uint64_t)d->stripe_count * sizeof(uint64_t));
		d->checksums = NULL;
	}
	if (!plan_geometry_ok(m->size_bytes, m->stripe_bytes, m->stripe_count) ||
		(m->has_checksums && (m->n_checksums > m->stripe_count || (m->stripe_count && !m->n_checksums)))) {
		breach_note(c, d->peer_idx, RY_RAIL_NONE, BREACH_ANSWER);
		lookup_failed(c, d, RY_ERR_INVALID_DESCRIPTOR, NULL);
		return false;
	}
	d->handle = m->handle;
	d->generation = m->generation;
	d->etag = m->etag;
	d->size_bytes = m->size_bytes;
	d->stripe_bytes = m->stripe_bytes;
	d->stripe_count = m->stripe_count;
	d->has_checksums = m->has_checksums;
	d->expires_ns = m->ttl_ns ? c->now_ns + m->ttl_ns : 0;
	d->n_fetched = 0;
	if (!d->has_checksums || !d->stripe_count)
		return true;
	d->checksums = meta_alloc(c, (uint64_t)d->stripe_count * sizeof(uint64_t), &d->sums_off);
	if (d->checksums)
		return true;
	d->stripe_count = 0;
	lookup_failed(
		c, d, RY_ERR_LIMIT, "no memory for the object's checksums: too many large descriptors are in use");
	return false;
}

static void ready(struct control *c, struct desc *d)
{
	struct op_list ops = TAILQ_HEAD_INITIALIZER(ops);
	struct op *op = d->carrier;

	d->state = DESC_READY;
	d->carrier = NULL;
	TAILQ_INSERT_TAIL(&c->lru_descs, d, link);
	desc_hold(d); /* ops may end while we walk */
	described(c, op);
	while ((op = TAILQ_FIRST(&d->waiters)) != NULL) {
		op_unlink_wait(c, op);
		described(c, op);
	}
	desc_put(c, d);
}

static void described(struct control *c, struct op *op)
{
	op->described_ns = c->now_ns;
	if (op->kind == RY_OP_READ)
		read_described(c, op);
	else
		op_fail(c, op, RY_OK, RY_RAIL_NONE, "");
}

void lookup_failed(struct control *c, struct desc *d, uint32_t status, const char *cause)
{
	struct op *op = d->carrier;

	d->carrier = NULL;
	desc_hold(d);
	unindex(c, d);
	if (op)
		op_fail(c, op, status, RY_RAIL_NONE, cause);
	while ((op = TAILQ_FIRST(&d->waiters)) != NULL)
		op_fail(c, op, status, RY_RAIL_NONE, cause);
	desc_put(c, d);
}
