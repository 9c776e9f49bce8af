/* SPDX-License-Identifier: BSD-3-Clause */
/* Metadata requests of our clients' operations, on any pair to the store; and everything that comes from conn. */
#include "read/control_priv.h"

#define OWED_MAX 1024u /* late answers of one connection that are no breach */

static bool try_send(struct control *c, struct op *op);
static uint32_t encode(struct control *c, struct op *op, void *buf);
static bool takes_query_key(const struct control *c, const struct op *op);
static bool has_queued(const struct control *c, uint16_t peer_idx);
static void queue(struct control *c, struct op *op);
static void take(struct control *c, void *m);
static void received(struct control *c, struct meta_buf *b);
static void buf_back(struct control *c, struct meta_buf *b);
static void unsent(struct control *c, struct meta_buf *b);
static struct peer_pair *asked_pair(struct control *c, uint16_t peer_idx, uint16_t pair_idx, uint32_t epoch);
static void answered_late(struct control *c, const struct meta_buf *b);
static void answered(struct control *c, struct op *op, const struct wire_meta *h);
static void list_reply(struct control *c, struct op *op, const struct wire_list_reply *m);
static bool is_answer(uint16_t type);
static void resend(struct control *c, struct op *op);

void meta_send(struct control *c, struct op *op)
{
	/* Never past one that waits for the same store: the parts of a put must arrive in order. */
	if (has_queued(c, op->peer_idx) || !try_send(c, op))
		queue(c, op);
}

static bool try_send(struct control *c, struct op *op)
{
	const struct peer_pair *pp = peer_meta_pair(c, op->peer_idx);
	struct meta_buf *b;

	if (!pp) {
		peer_want_dial(c, op->peer_idx);
		return false;
	}
	if (!c->n_meta_free)
		return false;
	b = c->meta_free[--c->n_meta_free];
	b->m.kind = MSG_META_TX;
	b->pair_idx = pp->pair->idx;
	b->pair_epoch = pp->epoch;
	b->op = op;
	b->len_bytes = encode(c, op, b->data);
	op->state = OP_WAIT;
	op->is_sent = true;
	op->pair_idx = b->pair_idx;
	op->pair_epoch = b->pair_epoch;
	spsc_push(c->d.to_conn, b);
	c->want_conn_kick = true;
	return true;
}

static uint32_t encode(struct control *c, struct op *op, void *buf)
{
	uint64_t id = op_request_id(c, op);

	switch (op->kind) {
	case RY_OP_LOOKUP:
	case RY_OP_READ:
		return wire_enc_lookup(buf, id, op->key, op->key_bytes, op->desc->n_fetched);
	case RY_OP_DELETE:
		return wire_enc_delete(buf, id, op->arg, op->key, op->key_bytes);
	case RY_OP_LIST:
		return wire_enc_list(buf, id, op->cursor, (uint32_t)RTE_MIN(op->length, (uint64_t)UINT32_MAX), op->key,
			op->key_bytes);
	case RY_OP_PUT_QUERY:
		return wire_enc_put_query(buf, id, op->put_id, op->key, takes_query_key(c, op) ? op->key_bytes : 0);
	default:
		return put_encode(c, op, buf);
	}
}

/* A store that does not know the key would refuse the message. */
static bool takes_query_key(const struct control *c, const struct op *op)
{
	const struct peer_pair *pp = peer_meta_pair(c, op->peer_idx);

	return pp && (pp->pair->features & WIRE_FEATURE_QUERY_KEY);
}

static bool has_queued(const struct control *c, uint16_t peer_idx)
{
	const struct op *op;

	TAILQ_FOREACH (op, &c->send_queue, wait) {
		if (op->peer_idx == peer_idx)
			return true;
	}
	return false;
}

static void queue(struct control *c, struct op *op)
{
	op->state = OP_SEND;
	op->is_in_wait = true;
	TAILQ_INSERT_TAIL(&c->send_queue, op, wait);
}

unsigned meta_pump(struct control *c)
{
	struct op *op, *next;
	unsigned n = 0;

	for (op = TAILQ_FIRST(&c->send_queue); op; op = next) {
		next = TAILQ_NEXT(op, wait);
		if (!c->peers[op->peer_idx].n_pairs || !c->n_meta_free)
			continue;
		op_unlink_wait(c, op);
		if (!try_send(c, op))
			queue(c, op);
		n++;
	}
	return n;
}

unsigned meta_take(struct control *c)
{
	void *msgs[CONTROL_BURST];
	unsigned n = spsc_pop_burst(c->d.from_conn, msgs, CONTROL_BURST);

	for (unsigned i = 0; i < n; i++)
		take(c, msgs[i]);
	return n;
}

static void take(struct control *c, void *m)
{
	switch (((const struct msg *)m)->kind) {
	case MSG_META_RX:
		received(c, m);
		break;
	case MSG_META_SENT:
		buf_back(c, m);
		break;
	case MSG_META_UNSENT:
		unsent(c, m);
		break;
	case MSG_PAIR_UP:
		peer_pair_up(c, m);
		break;
	case MSG_PAIR_DOWN:
		peer_pair_down(c, m);
		break;
	case MSG_DIAL_FAULT:
		peer_dial_fault(c, m);
		break;
	case MSG_DIAL_FAILED:
	case MSG_DIAL_DONE:
		peer_dialled(c, m);
		break;
	default:
		RTE_ASSERT(false);
	}
}

static void buf_back(struct control *c, struct meta_buf *b)
{
	c->meta_free[c->n_meta_free++] = b;
}

/* The pair went away before a byte was sent: nothing has happened, so send it again. */
static void unsent(struct control *c, struct meta_buf *b)
{
	struct op *op = op_by_request(c, meta_head(b)->request_id);

	buf_back(c, b);
	if (op && op->pair_idx == b->pair_idx && op->pair_epoch == b->pair_epoch)
		meta_send(c, op);
}

static bool is_answer(uint16_t type)
{
	return type == WIRE_META_LOOKUP_REPLY || type == WIRE_META_PUT_DONE || type == WIRE_META_DELETE_REPLY ||
	       type == WIRE_META_LIST_REPLY || type == WIRE_META_ERROR;
}

static void received(struct control *c, struct meta_buf *b)
{
	const struct wire_meta *h = (const void *)b->data;
	struct op *op;
	uint16_t peer_idx;

	if (!is_answer(h->type)) {
		peer_idx = peer_of_pair(c, b->pair_idx, b->pair_epoch);
		if (peer_idx == UINT16_MAX)
			meta_drop(c, b);
		else
			meta_serve(c, peer_idx, b);
		return;
	}
	op = op_by_request(c, h->request_id);
	/* From the connection that was asked, and no other: request ids can be guessed. */
	if (op && op->pair_idx == b->pair_idx && op->pair_epoch == b->pair_epoch)
		answered(c, op, h);
	else
		answered_late(c, b);
	meta_drop(c, b);
}

void meta_forgo(struct control *c, const struct op *op)
{
	struct peer_pair *pp = asked_pair(c, op->peer_idx, op->pair_idx, op->pair_epoch);

	if (pp && pp->n_owed < OWED_MAX)
		pp->n_owed++;
}

static struct peer_pair *asked_pair(struct control *c, uint16_t peer_idx, uint16_t pair_idx, uint32_t epoch)
{
	struct peer *p = &c->peers[peer_idx];

	for (uint32_t i = 0; i < p->n_pairs; i++) {
		if (p->pairs[i].epoch == epoch && p->pairs[i].pair->idx == pair_idx)
			return &p->pairs[i];
	}
	return NULL;
}

/* No breach where its request ended before, by its deadline say: each such answer once. */
static void answered_late(struct control *c, const struct meta_buf *b)
{
	uint16_t peer_idx = peer_of_pair(c, b->pair_idx, b->pair_epoch);
	struct peer_pair *pp;

	stat_add(&c->counters->late_answers, 1);
	if (peer_idx == UINT16_MAX)
		return;
	pp = asked_pair(c, peer_idx, b->pair_idx, b->pair_epoch);
	if (pp && pp->n_owed)
		pp->n_owed--;
	else
		breach_note(c, peer_idx, RY_RAIL_NONE, BREACH_LATE);
}

static void answered(struct control *c, struct op *op, const struct wire_meta *h)
{
	static const uint16_t want[] = {
		[RY_OP_LOOKUP] = WIRE_META_LOOKUP_REPLY,
		[RY_OP_READ] = WIRE_META_LOOKUP_REPLY,
		[RY_OP_PUT] = WIRE_META_PUT_DONE,
		[RY_OP_PUT_QUERY] = WIRE_META_PUT_DONE,
		[RY_OP_DELETE] = WIRE_META_DELETE_REPLY,
		[RY_OP_LIST] = WIRE_META_LIST_REPLY,
	};
	uint32_t status = h->type == WIRE_META_ERROR && !h->status ? RY_ERR_PROTOCOL : h->status;
	const char *cause = NULL;
	char text[RY_CAUSE_MAX_BYTES];

	if (h->type != WIRE_META_ERROR && h->type != want[op->kind]) {
		status = RY_ERR_PROTOCOL;
		breach_note(c, op->peer_idx, RY_RAIL_NONE, BREACH_ANSWER);
		cause = meta_blame(c, op->peer_idx, "answered another request than was sent", text);
	} else if (status == RY_ERR_PROTOCOL) {
		cause = meta_blame(c, op->peer_idx, "did not understand the request", text);
	}
	/* The status's own words are about reads. */
	if (op->kind == RY_OP_DELETE && status == RY_ERR_STALE_GENERATION)
		cause = "the object has another generation than the one to delete: look it up, and name that one or "
			"none";
	if (h->type != want[op->kind]) {
		if (op->kind == RY_OP_PUT)
			put_finish(c, op, status, cause);
		else
			op_fail(c, op, status, RY_RAIL_NONE, cause);
		return;
	}
	if (op->kind == RY_OP_LOOKUP || op->kind == RY_OP_READ) {
		lookup_reply(c, op, (const struct wire_lookup_reply *)h);
	} else if (op->kind == RY_OP_LIST) {
		list_reply(c, op, (const struct wire_list_reply *)h);
	} else if (op->kind == RY_OP_DELETE) {
		lookup_drop(c, op->hash);
		op->result_generation = ((const struct wire_delete_reply *)h)->generation;
		op_fail(c, op, status, RY_RAIL_NONE, cause);
	} else {
		put_reply(c, op, (const struct wire_put_done *)h);
	}
}

const char *meta_blame(const struct control *c, uint16_t store, const char *what, char text[RY_CAUSE_MAX_BYTES])
{
	snprintf(text, RY_CAUSE_MAX_BYTES, "store %s %s: compare `railyard version` of both nodes",
		store < c->config->n_stores ? c->config->stores[store].name : "?", what);
	return text;
}

/* ---- LIST: the stores one after the other; the cursor's top 16 bits name the store ---- */

#define CURSOR_STORE_SHIFT 48

void list_start(struct control *c, struct op *op)
{
	uint16_t store = (uint16_t)(op->offset >> CURSOR_STORE_SHIFT);

	if (store >= c->config->n_stores) {
		op_fail(c, op, RY_ERR_INVALID, RY_RAIL_NONE, "no such list cursor");
		return;
	}
	op->peer_idx = store;
	op->cursor = op->offset & ((1ull << CURSOR_STORE_SHIFT) - 1);
	meta_send(c, op);
}

static void list_reply(struct control *c, struct op *op, const struct wire_list_reply *m)
{
	struct ry_cqe cqe = {.rail_idx = RY_RAIL_NONE, .bytes = m->n_entries};
	struct client_state *cs = op->cs;
	char text[RY_CAUSE_MAX_BYTES];

	if (m->h.status != RY_OK) {
		op_fail(c, op, m->h.status, RY_RAIL_NONE, NULL);
		return;
	}
	if (m->cursor >> CURSOR_STORE_SHIFT) { /* it would name another store */
		breach_note(c, op->peer_idx, RY_RAIL_NONE, BREACH_ANSWER);
		op_fail(c, op, RY_ERR_PROTOCOL, RY_RAIL_NONE,
			meta_blame(c, op->peer_idx, "sent a list cursor that is out of bounds", text));
		return;
	}
	if (m->cursor)
		cqe.cursor = (uint64_t)op->peer_idx << CURSOR_STORE_SHIFT | m->cursor;
	else if (op->peer_idx + 1u < c->config->n_stores)
		cqe.cursor = (uint64_t)(op->peer_idx + 1u) << CURSOR_STORE_SHIFT;
	op->status = RY_OK;
	if (m->n_entries) {
		if (!lease_alloc(cs, m->entries_bytes, RY_STRIPE_ALIGN_BYTES, op->extents, &op->n_extents) ||
			op->n_extents != 1) {
			lease_free_extents(cs, op->extents, op->n_extents);
			op->n_extents = 0;
			op_fail(c, op, RY_ERR_BUDGET, RY_RAIL_NONE,
				"the read arena has no room for the list: release leases");
			return;
		}
		memcpy(cs->client->read_arena.base + op->extents[0].offset, m + 1, m->entries_bytes);
		cqe.lease_id = lease_create(cs, op->extents, 1);
		if (!cqe.lease_id) {
			lease_free_extents(cs, op->extents, op->n_extents);
			op->n_extents = 0;
			op_fail(c, op, RY_ERR_LIMIT, RY_RAIL_NONE,
				"the client holds as many leases as it may: release some");
			return;
		}
		stat_add(&c->counters->leases, 1);
	}
	op_end(c, op, NULL, &cqe);
}

void meta_reply(struct control *c, struct meta_buf *b, uint32_t len_bytes)
{
	b->m.kind = MSG_META_REPLY;
	b->len_bytes = len_bytes;
	spsc_push(c->d.to_conn, b);
	c->want_conn_kick = true;
}

void meta_drop(struct control *c, struct meta_buf *b)
{
	b->m.kind = MSG_META_DROP;
	spsc_push(c->d.to_conn, b);
	c->want_conn_kick = true;
}

/* Requests that may have reached the store: those that can be repeated go again, in the order of their submission. */
void meta_pair_lost(struct control *c, uint16_t pair_idx, uint32_t epoch)
{
	for (uint32_t i = 0; i < c->n_live; i++) {
		struct op *op, *next;

		for (op = TAILQ_FIRST(&c->live[i]->ops); op; op = next) {
			next = TAILQ_NEXT(op, link);
			if (op->state == OP_WAIT && op->pair_idx == pair_idx && op->pair_epoch == epoch)
				resend(c, op);
		}
	}
}

static void resend(struct control *c, struct op *op)
{
	if (op->kind == RY_OP_DELETE)
		op_fail(c, op, RY_ERR_UNKNOWN_OUTCOME, RY_RAIL_NONE,
			"the connection was lost before the store answered the delete");
	else
		meta_send(c, op);
}

void meta_dial_failed(struct control *c, uint16_t peer_idx, uint32_t status)
{
	const char *cause = c->peers[peer_idx].cause;

	for (uint32_t i = 0; i < c->n_ops; i++) {
		struct op *op = &c->ops[i];

		if (op->state != OP_SEND || op->peer_idx != peer_idx)
			continue;
		if (op->kind == RY_OP_PUT)
			put_finish(c, op,
				op->is_sent && (op->flags & RY_F_PUT_COMMIT) ? RY_ERR_UNKNOWN_OUTCOME : status, cause);
		else
			op_fail(c, op, status, RY_RAIL_NONE, cause);
	}
}
