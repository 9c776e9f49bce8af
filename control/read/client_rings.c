/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The daemon's side of the shared rings. A client can write anything there at any time: indices are checked on every
 * access, entries and slots are copied before they are looked at, and our own positions live in private memory.
 */
#include "read/control_priv.h"

static unsigned take_client(struct control *c, struct client_state *cs);
static bool has_completion_room(const struct client_state *cs);
static bool is_failed_lookup(const struct op *op);
static void fill_slot(struct control *c, const struct op *op, const struct ry_read_stats *st, struct ry_slot *slot);
static void finish_detach(struct control *c, struct client_state *cs);

unsigned rings_take(struct control *c)
{
	unsigned n = 0;

	if (c->shutdown)
		return 0;
	for (uint32_t i = 0; i < c->n_live; i++) {
		if (!c->live[i]->is_broken && !c->live[i]->detach)
			n += take_client(c, c->live[i]);
	}
	return n;
}

static unsigned take_client(struct control *c, struct client_state *cs)
{
	struct client *cl = cs->client;
	/* Acquire: partner of the client's release of its tail; the entries are complete. */
	uint32_t n = __atomic_load_n(&cl->sq_index->tail, __ATOMIC_ACQUIRE) - cs->sq_head;
	uint32_t unreaped = cs->cq_tail - __atomic_load_n(&cl->cq_index->head, __ATOMIC_RELAXED);

	if (!n)
		return 0;
	if (unlikely(n > cl->n_entries || unreaped > cl->n_entries)) {
		rings_break(c, cs);
		return 1;
	}
	n = RTE_MIN(n, CONTROL_BURST);
	for (uint32_t i = 0; i < n; i++) {
		struct ry_sqe sqe;

		if (!has_completion_room(cs)) {
			n = i;
			break;
		}
		memcpy(&sqe, &cl->sq[cs->sq_head & (cl->n_entries - 1)], sizeof(sqe));
		cs->sq_head++;
		op_start(c, cs, &sqe);
		if (unlikely(cs->is_broken))
			break;
	}
	/* Release: the entries were copied before the client may overwrite them. */
	__atomic_store_n(&cl->sq_index->head, cs->sq_head, __ATOMIC_RELEASE);
	return n;
}

void rings_break(struct control *c, struct client_state *cs)
{
	cs->is_broken = true;
	stat_add(&c->counters->rings_broken, 1);
	if (!cs->broken)
		return;
	spsc_push(c->d.to_api, cs->broken);
	cs->broken = NULL;
	c->want_api_kick = true;
}

/* A completion must always find room: no more operations than the complete ring holds. */
static bool has_completion_room(const struct client_state *cs)
{
	/* Acquire: partner of the client's release of its head; it has read what is written over next. */
	uint32_t unreaped = cs->cq_tail - __atomic_load_n(&cs->client->cq_index->head, __ATOMIC_ACQUIRE);

	return cs->n_ops + unreaped < cs->client->n_entries;
}

void rings_complete(struct control *c, struct op *op, const struct xfer *x, const struct ry_cqe *fill)
{
	struct client_state *cs = op->cs;
	struct client *cl = cs->client;
	struct ry_cqe cqe = *fill;
	struct ry_read_stats st;

	cqe.ticket = op->ticket;
	cqe.status = op->status;
	cqe.op = op->kind;
	cqe.slot = op->slot;
	cqe.done_ns = c->now_ns;
	if (op->kind == RY_OP_READ || is_failed_lookup(op)) {
		commit_stats(c, op, x, &st);
		commit_record(c, op, &cqe, x, &st);
	}
	if (!cs->detach) {
		fill_slot(c, op, &st, &cl->slots[op->slot]);
		memcpy(&cl->cq[cs->cq_tail & (cl->n_entries - 1)], &cqe, sizeof(cqe));
		cs->cq_tail++;
		/* Release: partner of the client's acquire of the tail; entry and slot are complete. */
		__atomic_store_n(&cl->cq_index->tail, cs->cq_tail, __ATOMIC_RELEASE);
		cs->want_wake = true;
	}
	cs->slot_busy[op->slot] = 0;
	TAILQ_REMOVE(&cs->ops, op, link);
	cs->n_ops--;
	op->seq++;
	op->state = OP_FREE;
	TAILQ_INSERT_HEAD(&c->free_ops, op, link);
}

/* Who looks a key up before it reads never comes to the read. A key that is not there is an answer: caches ask for
 * many such, and would fill the recorder with them. */
static bool is_failed_lookup(const struct op *op)
{
	return op->kind == RY_OP_LOOKUP && op->status != RY_OK && op->status != RY_ERR_NOT_FOUND;
}

static void fill_slot(struct control *c, const struct op *op, const struct ry_read_stats *st, struct ry_slot *slot)
{
	memcpy(slot->cause, op->cause, sizeof(slot->cause));
	slot->n_extents = 0;
	if (op->desc && op->status == RY_OK) {
		const struct desc *d = op->desc;

		slot->object = (struct ry_object){
			.size_bytes = d->size_bytes,
			.generation = d->generation,
			.etag = d->etag,
			.ttl_ns = d->expires_ns > c->now_ns ? d->expires_ns - c->now_ns : 0,
			.stripe_bytes = d->stripe_bytes,
			.stripe_count = d->stripe_count,
			.has_checksums = d->has_checksums,
		};
	}
	if (op->n_extents) {
		slot->n_extents = op->n_extents;
		memcpy(slot->extents, op->extents, sizeof(slot->extents));
	}
	if (op->kind == RY_OP_READ)
		memcpy(&slot->stats, st, offsetof(struct ry_read_stats, rails) + st->n_rails * sizeof(st->rails[0]));
}

void rings_wake(struct control *c)
{
	for (uint32_t i = 0; i < c->n_live; i++) {
		struct client_state *cs = c->live[i];

		if (!cs->want_wake)
			continue;
		cs->want_wake = false;
		/* Partner: the client's fence between its need_wakeup and its second look. */
		__atomic_thread_fence(__ATOMIC_SEQ_CST);
		if (__atomic_load_n(&cs->client->cq_index->need_wakeup, __ATOMIC_RELAXED))
			client_wake(cs->client);
	}
}

bool rings_pending(struct control *c)
{
	for (uint32_t i = 0; i < c->n_live; i++) {
		const struct client_state *cs = c->live[i];

		if (cs->is_broken || cs->detach || c->shutdown)
			continue;
		/* One that reaps nothing gets nothing more taken, and keeps nobody awake. */
		if (__atomic_load_n(&cs->client->sq_index->tail, __ATOMIC_ACQUIRE) != cs->sq_head &&
			has_completion_room(cs))
			return true;
	}
	return false;
}

void rings_want_wakeup(struct control *c, bool want)
{
	for (uint32_t i = 0; i < c->n_live; i++)
		__atomic_store_n(&c->live[i]->client->sq_index->need_wakeup, want, __ATOMIC_RELAXED);
	/* Partner: the client's fence between its tail and its look at need_wakeup. */
	if (want)
		__atomic_thread_fence(__ATOMIC_SEQ_CST);
}

bool rings_attach(struct control *c, struct api_call *call)
{
	for (uint32_t i = 0; i < c->config->max_clients; i++) {
		struct client_state *cs = &c->clients[i];

		if (cs->is_used)
			continue;
		cs->is_used = true;
		cs->is_broken = false;
		cs->broken = call->broken;
		cs->client = call->client;
		cs->detach = NULL;
		cs->sq_head = cs->cq_tail = 0;
		cs->lease_next = 1;
		memset(cs->slot_busy, 0, RY_RING_ENTRIES_MAX);
		call->client->state = cs;
		c->live[c->n_live++] = cs;
		stat_add(&c->counters->clients, 1);
		return true;
	}
	call->status = RY_ERR_LIMIT;
	snprintf(call->cause, sizeof(call->cause),
		"%u clients are attached, the most allowed: raise reader.max_clients", c->config->max_clients);
	return true;
}

/* The client is gone: its operations end, its leases with them; the answer waits for the last segment that may write
 * into its arena. */
void rings_detach(struct control *c, struct api_call *call)
{
	struct client_state *cs = call->client->state;
	struct op *op, *next;

	cs->detach = call;
	for (op = TAILQ_FIRST(&cs->ops); op; op = next) {
		next = TAILQ_NEXT(op, link);
		op_abort(c, op, RY_ERR_DETACHED);
	}
	for (uint32_t i = 1; i < LEASES_PER_CLIENT; i++) {
		if (cs->leases[i].n_extents)
			lease_release(c, cs, i | cs->leases[i].salt << 16);
	}
}

void rings_reap_detached(struct control *c)
{
	for (uint32_t i = c->n_live; i-- > 0;) {
		struct client_state *cs = c->live[i];

		if (!cs->detach || cs->n_ops || cs->n_xfers)
			continue;
		c->live[i] = c->live[--c->n_live];
		finish_detach(c, cs);
	}
}

static void finish_detach(struct control *c, struct client_state *cs)
{
	struct api_call *call = cs->detach;

	cs->client->state = NULL;
	cs->client = NULL;
	cs->detach = NULL;
	cs->want_wake = false;
	cs->is_used = false;
	stat_sub(&c->counters->clients, 1);
	/* Last: whoever takes the answer destroys the client at once. */
	spsc_push(c->d.to_api, call);
	c->want_api_kick = true;
}
