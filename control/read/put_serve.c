/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Puts that peers make into our store: parts are pulled in order of arrival, several at a time; the object is published
 * when a part said COMMIT and all of them are verified. An outcome is remembered, so that a repeated PUT and a
 * PUT_QUERY get the same answer.
 * An id that comes back for another object is refused: the outcome of the first would be a lie about it.
 */
#include "read/control_priv.h"

#define OTHER_OBJECT "this put id was used for another object: a new put needs a new id"

static struct putin *find(struct control *c, const uint64_t put_id[2]);
static bool has_key(const struct putin *p, const uint8_t *key, uint32_t key_bytes);
static bool is_same_object(const struct putin *p, const struct wire_put *m);
static struct putin *slot_for(struct control *c);
static struct putin *begin(struct control *c, const struct wire_put *m, uint32_t *status);
static void add_part(struct control *c, struct putin *p, uint16_t peer_idx, struct meta_buf *b);
static bool repeat_part(struct control *c, struct putin *p, struct meta_buf *b);
static uint32_t start_pull(
	struct control *c, struct putin *p, struct put_part *part, uint16_t peer_idx, const struct wire_put *m);
static uint32_t rails_for(const struct control *c, uint16_t peer_idx, uint32_t avoid);
static uint32_t not_avoided(const struct peer *p, uint32_t rails, uint32_t avoid);
static struct put_part *free_part(struct putin *p);
static void try_commit(struct control *c, struct putin *p);
static void fail(struct control *c, struct putin *p, uint32_t status, const char *cause);
static void try_abort(struct control *c, struct putin *p);
static void close_putin(struct control *c, struct putin *p);
static void wait_for_room(struct control *c, struct meta_buf *b);
static bool has_waiter(const struct control *c, const uint64_t put_id[2]);
static void retry_waiters(struct control *c);
static void reply(struct control *c, struct meta_buf *b, const struct putin *p);
static void reply_status(struct control *c, struct meta_buf *b, uint32_t status, const char *cause);

static bool is_abort(const struct wire_put *m)
{
	return !m->part_bytes && !(m->h.flags & (RY_F_PUT_BEGIN | RY_F_PUT_COMMIT));
}

void put_serve(struct control *c, uint16_t peer_idx, struct meta_buf *b)
{
	const struct wire_put *m = (const void *)b->data;
	struct putin *p = find(c, m->put_id);
	uint32_t status = RY_OK;

	if (!p && is_abort(m)) {
		reply_status(c, b, RY_OK, "");
		return;
	}
	if (!p && has_waiter(c, m->put_id)) { /* behind its BEGIN, which waits for room */
		wait_for_room(c, b);
		return;
	}
	if (!p && !(m->h.flags & RY_F_PUT_BEGIN)) {
		reply_status(c, b, RY_ERR_NOT_FOUND, "no such put is open: it expired, or the store was restarted");
		return;
	}
	if (!p)
		p = begin(c, m, &status);
	if (status == RY_ERR_BUSY) {
		wait_for_room(c, b);
		return;
	}
	if (!p) {
		reply_status(c, b, status, ry_status_text((enum ry_status)status));
		return;
	}
	if (!is_same_object(p, m)) {
		reply_status(c, b, RY_ERR_INVALID, OTHER_OBJECT);
		return;
	}
	p->touched_ns = c->now_ns;
	if (p->state == PUTIN_DONE || p->status) {
		reply(c, b, p);
	} else if (is_abort(m)) {
		fail(c, p, RY_ERR_CANCELLED, "the writer gave up");
		reply_status(c, b, RY_OK, "");
	} else {
		add_part(c, p, peer_idx, b);
	}
}

static struct putin *find(struct control *c, const uint64_t put_id[2])
{
	for (uint32_t i = 0; i < PUTINS_MAX; i++) {
		struct putin *p = &c->putins[i];

		if (p->state != PUTIN_FREE && p->put_id[0] == put_id[0] && p->put_id[1] == put_id[1])
			return p;
	}
	return NULL;
}

static bool has_key(const struct putin *p, const uint8_t *key, uint32_t key_bytes)
{
	return p->key_bytes == key_bytes && !memcmp(p->key, key, key_bytes);
}

/* The size tells where both know it. An abort has none. */
static bool is_same_object(const struct putin *p, const struct wire_put *m)
{
	bool is_sized = m->size_bytes != RY_SIZE_UNKNOWN && p->size_bytes != RY_SIZE_UNKNOWN && !is_abort(m);

	return has_key(p, wire_put_key(m), m->key_bytes) && (!is_sized || m->size_bytes == p->size_bytes);
}

/* A free record, else the one whose outcome is oldest. */
static struct putin *slot_for(struct control *c)
{
	struct putin *oldest = NULL;

	for (uint32_t i = 0; i < PUTINS_MAX; i++) {
		struct putin *p = &c->putins[i];

		if (p->state == PUTIN_FREE)
			return p;
		if (p->state == PUTIN_DONE && (!oldest || p->touched_ns < oldest->touched_ns))
			oldest = p;
	}
	return oldest;
}

static struct putin *begin(struct control *c, const struct wire_put *m, uint32_t *status)
{
	struct putin *p = slot_for(c);
	struct object *o;

	if (!p) {
		*status = RY_ERR_LIMIT;
		return NULL;
	}
	/* Before anything is evicted for it. */
	if (m->size_bytes != RY_SIZE_UNKNOWN && m->size_bytes > store_capacity_bytes(c->d.store)) {
		*status = RY_ERR_NO_SPACE;
		return NULL;
	}
	*status = store_put_begin(c->d.store, wire_put_key(m), m->key_bytes, m->stripe_bytes,
		m->h.flags & RY_F_IF_ABSENT, m->ttl_ns, c->now_ns, &o);
	if (*status)
		return NULL;
	memset(p, 0, offsetof(struct putin, key));
	p->state = PUTIN_OPEN;
	p->put_id[0] = m->put_id[0];
	p->put_id[1] = m->put_id[1];
	p->size_bytes = m->size_bytes;
	p->key_bytes = m->key_bytes;
	memcpy(p->key, wire_put_key(m), m->key_bytes);
	p->object = o;
	c->n_putins++;
	return p;
}

static void add_part(struct control *c, struct putin *p, uint16_t peer_idx, struct meta_buf *b)
{
	const struct wire_put *m = (const void *)b->data;
	struct put_part *part;
	uint32_t status;

	if (m->h.flags & RY_F_PUT_COMMIT) {
		p->want_commit = true;
		p->size_bytes = m->size_bytes;
	}
	if (repeat_part(c, p, b))
		return;
	part = free_part(p);
	if (!part) {
		reply_status(c, b, RY_ERR_LIMIT, "too many parts of one put are in flight");
		return;
	}
	status = has_waiter(c, p->put_id) ? RY_ERR_BUSY : start_pull(c, p, part, peer_idx, m);
	if (status == RY_ERR_BUSY) {
		wait_for_room(c, b);
		return;
	}
	if (status) {
		fail(c, p, status, NULL);
		reply(c, b, p);
		return;
	}
	part->reply = b;
}

/* Nothing to pull: an empty part, or one that came before (its answer was lost). true = dealt with. */
static bool repeat_part(struct control *c, struct putin *p, struct meta_buf *b)
{
	const struct wire_put *m = (const void *)b->data;
	uint64_t off = (uint64_t)m->first_stripe * m->stripe_bytes;

	for (uint32_t i = 0; i < PUTIN_PARTS_MAX; i++) {
		struct put_part *part = &p->parts[i];

		if (part->xfer && m->part_bytes && part->first_stripe == m->first_stripe) {
			if (part->reply)
				meta_drop(c, part->reply);
			part->reply = b; /* still being pulled: the newest asker gets the answer */
			return true;
		}
	}
	if (m->part_bytes && off >= p->object->reserved_bytes)
		return false;
	if (m->h.flags & RY_F_PUT_COMMIT) {
		if (p->commit_reply)
			meta_drop(c, p->commit_reply);
		p->commit_reply = b;
		try_commit(c, p);
	} else {
		reply(c, b, p);
	}
	return true;
}

static struct put_part *free_part(struct putin *p)
{
	for (uint32_t i = 0; i < PUTIN_PARTS_MAX; i++) {
		if (!p->parts[i].xfer)
			return &p->parts[i];
	}
	return NULL;
}

static uint32_t start_pull(
	struct control *c, struct putin *p, struct put_part *part, uint16_t peer_idx, const struct wire_put *m)
{
	uint64_t off = (uint64_t)m->first_stripe * m->stripe_bytes;
	uint32_t rails = rails_for(c, peer_idx, m->h.avoid), status;
	struct object *o = p->object;
	struct xfer *x;

	if (off != o->reserved_bytes || m->stripe_bytes != o->stripe_bytes)
		return RY_ERR_PROTOCOL;
	if (!rails)
		return RY_ERR_NO_RAIL;
	x = xfer_alloc(c);
	if (!x)
		return RY_ERR_LIMIT;
	x->kind = XFER_PULL;
	x->object = o;
	status = store_put_reserve(c->d.store, o, m->part_bytes, wire_put_checksums(m), c->now_ns);
	if (!status &&
		!xfer_prepare(c, x, off + m->part_bytes, m->stripe_bytes, m->first_stripe, m->n_checksums, rails))
		status = RY_ERR_LIMIT;
	if (status) {
		xfer_free(c, x);
		return status;
	}
	x->peer_idx = peer_idx;
	x->handle = m->source_handle;
	x->generation = m->source_generation;
	x->deadline_ns = c->now_ns + c->config->read_deadline_ns;
	x->want_hash = true;
	x->reach_mask = UINT32_MAX; /* the store's slab is host memory */
	x->region = store_region(c->d.store);
	x->is_failover = true; /* windows are closed before a segment goes out again */
	x->total_bytes = m->part_bytes;
	x->owner = part;
	x->part = part;
	part->putin = p;
	part->xfer = x;
	part->bytes = m->part_bytes;
	part->first_stripe = m->first_stripe;
	p->n_parts++;
	xfer_activate(c, x);
	return RY_OK;
}

/* Not over a rail that the writer has drained; where it has drained all of them, there is none. */
static uint32_t rails_for(const struct control *c, uint16_t peer_idx, uint32_t avoid)
{
	const struct peer *p = &c->peers[peer_idx];
	uint32_t rails = not_avoided(p, eligible_rails(c, peer_idx), avoid);

	return rails ? rails : not_avoided(p, failover_in_doubt(c, peer_idx, UINT32_MAX), avoid);
}

static uint32_t not_avoided(const struct peer *p, uint32_t rails, uint32_t avoid)
{
	for (uint32_t left = rails; left; left &= left - 1) {
		unsigned r = (unsigned)__builtin_ctz(left);

		if (avoid >> p->by_rail[r].pair->peer_rail_idx & 1)
			rails &= ~(1u << r);
	}
	return rails;
}

void put_serve_landed(struct control *c, struct xfer *x)
{
	struct put_part *part = x->part;
	struct putin *p = part->putin;
	const struct wire_put *m = (const void *)part->reply->data;

	x->owner = NULL;
	xfer_free(c, x);
	part->xfer = NULL;
	p->n_parts--;
	p->bytes_done += part->bytes;
	p->touched_ns = c->now_ns;
	if (m->h.flags & RY_F_PUT_COMMIT) {
		if (p->commit_reply)
			meta_drop(c, p->commit_reply);
		p->commit_reply = part->reply;
	} else {
		reply(c, part->reply, p);
	}
	part->reply = NULL;
	try_commit(c, p);
}

static void try_commit(struct control *c, struct putin *p)
{
	uint32_t status;

	if (!p->want_commit || p->n_parts || p->status || !p->commit_reply)
		return;
	status = store_put_commit(c->d.store, p->object, p->size_bytes, c->now_ns);
	if (status == RY_OK) {
		p->generation = p->object->generation;
		stat_add(&c->counters->store_puts, 1);
	} else {
		p->status = status; /* the store aborted the object */
		snprintf(p->cause, sizeof(p->cause), "%s", ry_status_text((enum ry_status)status));
	}
	p->object = NULL;
	close_putin(c, p);
}

/* The outcome is settled: remember it, tell who waits for it. */
static void close_putin(struct control *c, struct putin *p)
{
	p->state = PUTIN_DONE;
	p->touched_ns = c->now_ns;
	c->n_putins--;
	if (p->commit_reply)
		reply(c, p->commit_reply, p);
	p->commit_reply = NULL;
}

/* The whole put fails: all its pulls end; the object goes when the last segment came back. */
static void fail(struct control *c, struct putin *p, uint32_t status, const char *cause)
{
	if (p->status)
		return;
	p->status = status;
	snprintf(p->cause, sizeof(p->cause), "%s", cause ? cause : ry_status_text((enum ry_status)status));
	for (uint32_t i = 0; i < PUTIN_PARTS_MAX; i++) {
		struct put_part *part = &p->parts[i];

		if (part->reply)
			reply(c, part->reply, p);
		part->reply = NULL;
		if (part->xfer)
			xfer_fail(c, part->xfer, status, RY_RAIL_NONE, cause);
	}
	try_abort(c, p);
}

void put_serve_failed(struct control *c, struct xfer *x, uint32_t status, const char *cause)
{
	fail(c, x->part->putin, status, cause);
}

void put_serve_settled(struct control *c, struct xfer *x)
{
	struct putin *p = x->part->putin;

	x->part->xfer = NULL;
	p->n_parts--;
	try_abort(c, p);
}

static void try_abort(struct control *c, struct putin *p)
{
	if (p->n_parts || !p->object)
		return;
	store_put_abort(c->d.store, p->object);
	p->object = NULL;
	close_putin(c, p);
}

void put_serve_housekeep(struct control *c)
{
	if (c->n_put_waits)
		retry_waiters(c);
	for (uint32_t i = 0; c->n_putins && i < PUTINS_MAX; i++) {
		struct putin *p = &c->putins[i];

		if (p->state == PUTIN_OPEN && !p->n_parts && !p->status &&
			c->now_ns - p->touched_ns > c->config->read_deadline_ns)
			fail(c, p, RY_ERR_TIMEOUT, "the writer sent nothing more");
		for (uint32_t k = 0; k < PUTIN_PARTS_MAX && p->state == PUTIN_OPEN; k++) {
			struct xfer *x = p->parts[k].xfer;

			if (x && !x->is_failed && c->now_ns >= x->deadline_ns)
				xfer_fail(c, x, RY_ERR_TIMEOUT, RY_RAIL_NONE,
					"the part was not pulled within its deadline");
		}
	}
}

/*
 * The store evicts for this put, and the evicted memory may be reused only after the rails have reported: the message
 * waits for a later housekeeping. Parts of one put stay in order behind the first that waits. Conn has as many buffers
 * as there are places.
 */
static void wait_for_room(struct control *c, struct meta_buf *b)
{
	RTE_VERIFY(c->n_put_waits < PUT_WAITS_MAX);
	c->put_waits[c->n_put_waits++] = b;
}

static bool has_waiter(const struct control *c, const uint64_t put_id[2])
{
	for (uint32_t i = 0; i < c->n_put_waits; i++) {
		const struct wire_put *m = (const void *)c->put_waits[i]->data;

		if (m->put_id[0] == put_id[0] && m->put_id[1] == put_id[1])
			return true;
	}
	return false;
}

/* Those that still find no room wait on; the store says NO_SPACE by itself when eviction cannot help. */
static void retry_waiters(struct control *c)
{
	struct meta_buf *again[PUT_WAITS_MAX];
	uint32_t n = c->n_put_waits;

	memcpy(again, c->put_waits, n * sizeof(again[0]));
	c->n_put_waits = 0;
	for (uint32_t i = 0; i < n; i++) {
		uint16_t peer_idx = peer_of_pair(c, again[i]->pair_idx, again[i]->pair_epoch);

		if (peer_idx == UINT16_MAX)
			meta_drop(c, again[i]); /* the writer is gone: it asks again on another connection */
		else
			put_serve(c, peer_idx, again[i]);
	}
}

void put_serve_query(struct control *c, struct meta_buf *b)
{
	const struct wire_put_query *m = (const void *)b->data;
	uint32_t key_bytes = m->h.len_bytes + (uint32_t)(sizeof(m->h.len_bytes) - sizeof(*m));
	struct putin *p = find(c, m->put_id);

	if (p && key_bytes && !has_key(p, wire_put_query_key(m), key_bytes))
		reply_status(c, b, RY_ERR_INVALID, OTHER_OBJECT);
	else if (p)
		reply(c, b, p);
	else
		reply_status(
			c, b, RY_ERR_NOT_FOUND, "no such put is known: it never came, or its outcome was forgotten");
}

static void reply(struct control *c, struct meta_buf *b, const struct putin *p)
{
	struct wire_put_done *r = (void *)b->data;
	uint64_t id = r->h.request_id;
	uint32_t len = wire_enc_fixed(r, WIRE_META_PUT_DONE, sizeof(*r), id, p->status);

	r->put_id[0] = p->put_id[0];
	r->put_id[1] = p->put_id[1];
	r->generation = p->generation;
	r->bytes_so_far = p->bytes_done;
	r->is_committed = p->generation != 0;
	memcpy(r->cause, p->cause, sizeof(r->cause));
	meta_reply(c, b, len);
}

static void reply_status(struct control *c, struct meta_buf *b, uint32_t status, const char *cause)
{
	struct wire_put_done *r = (void *)b->data;
	uint64_t id = r->h.request_id;
	uint32_t len = wire_enc_fixed(r, WIRE_META_PUT_DONE, sizeof(*r), id, status);

	snprintf(r->cause, sizeof(r->cause), "%s", cause);
	meta_reply(c, b, len);
}
