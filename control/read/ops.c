/* SPDX-License-Identifier: BSD-3-Clause */
/* One submit entry becomes an op; every op ends here or in commit.c. */
#include <stdarg.h>

#include "read/control_priv.h"

static struct op *op_alloc(struct control *c, struct client_state *cs, const struct ry_sqe *sqe);
static void refuse(
	struct control *c, struct client_state *cs, const struct ry_sqe *sqe, uint32_t status, const char *cause);
static bool take_key(struct op *op, const struct ry_slot *slot, const struct ry_sqe *sqe);
static void cancel(struct control *c, struct client_state *cs, uint64_t ticket);
static void dispatch(struct control *c, struct op *op);
static void abort_ask(struct control *c, struct op *op, uint32_t status);
static void abort_xfer(struct control *c, struct xfer *x, uint32_t status);

void op_start(struct control *c, struct client_state *cs, const struct ry_sqe *sqe)
{
	struct op *op;

	if (sqe->op == RY_OP_RELEASE) {
		lease_release(c, cs, (uint32_t)sqe->arg);
		return;
	}
	if (sqe->op == RY_OP_CANCEL) {
		cancel(c, cs, sqe->arg);
		return;
	}
	if (sqe->slot >= cs->client->n_entries || cs->slot_busy[sqe->slot]) {
		rings_break(c, cs); /* a completion would have nowhere to go */
		return;
	}
	op = op_alloc(c, cs, sqe);
	if (!op) {
		refuse(c, cs, sqe, RY_ERR_LIMIT, "the node has no room for one more operation: retry");
		return;
	}
	if (sqe->op < RY_OP_LOOKUP || sqe->op > RY_OP_PUT_QUERY) {
		op_fail(c, op, RY_ERR_INVALID, RY_RAIL_NONE, "unknown operation");
		return;
	}
	if (!take_key(op, &cs->client->slots[sqe->slot], sqe)) {
		op->key_bytes = 0;
		op_fail(c, op, RY_ERR_INVALID, RY_RAIL_NONE, "a key has 1 to 4096 bytes");
		return;
	}
	dispatch(c, op);
}

static struct op *op_alloc(struct control *c, struct client_state *cs, const struct ry_sqe *sqe)
{
	struct op *op = TAILQ_FIRST(&c->free_ops);
	uint32_t seq;

	if (!op)
		return NULL;
	TAILQ_REMOVE(&c->free_ops, op, link);
	seq = op->seq;
	memset(op, 0, offsetof(struct op, key));
	op->seq = seq;
	op->kind = sqe->op;
	op->cs = cs;
	op->ticket = sqe->ticket;
	op->slot = sqe->slot;
	op->flags = sqe->flags;
	op->offset = sqe->offset;
	op->length = op->asked_length = sqe->length;
	op->arg = sqe->arg;
	op->key_bytes = sqe->key_bytes;
	op->submit_ns = c->now_ns;
	op->deadline_ns = sqe->deadline_ns ? sqe->deadline_ns : c->now_ns + c->config->read_deadline_ns;
	c->next_deadline_ns = RTE_MIN(c->next_deadline_ns, op->deadline_ns);
	TAILQ_INSERT_TAIL(&cs->ops, op, link);
	cs->n_ops++;
	cs->slot_busy[sqe->slot] = 1;
	return op;
}

/* No op could be had: a completion without one. */
static void refuse(
	struct control *c, struct client_state *cs, const struct ry_sqe *sqe, uint32_t status, const char *cause)
{
	struct client *cl = cs->client;
	struct ry_cqe cqe = {
		.ticket = sqe->ticket,
		.status = status,
		.op = sqe->op,
		.slot = sqe->slot,
		.rail_idx = RY_RAIL_NONE,
		.done_ns = c->now_ns,
	};

	snprintf(cl->slots[sqe->slot].cause, RY_CAUSE_MAX_BYTES, "%s", cause);
	memcpy(&cl->cq[cs->cq_tail & (cl->n_entries - 1)], &cqe, sizeof(cqe));
	cs->cq_tail++;
	__atomic_store_n(&cl->cq_index->tail, cs->cq_tail, __ATOMIC_RELEASE); /* as in rings_complete */
	cs->want_wake = true;
}

static bool take_key(struct op *op, const struct ry_slot *slot, const struct ry_sqe *sqe)
{
	if (sqe->key_bytes > RY_KEY_MAX_BYTES || (!sqe->key_bytes && sqe->op != RY_OP_LIST))
		return false;
	memcpy(op->key, slot->key, sqe->key_bytes);
	key_hash(op->key, op->key_bytes, op->hash);
	return true;
}

static void dispatch(struct control *c, struct op *op)
{
	if (!c->config->is_reader || !c->config->n_stores) {
		op_fail(c, op, RY_ERR_NO_RAIL, RY_RAIL_NONE,
			"this node is no reader or knows no store: see `stores` and `roles` in its configuration");
		return;
	}
	switch (op->kind) {
	case RY_OP_READ:
		stat_add(&c->counters->reads_submitted, 1);
		if (admit_enter(c, op))
			lookup_start(c, op);
		break;
	case RY_OP_LOOKUP:
		lookup_start(c, op);
		break;
	case RY_OP_PUT:
		put_start(c, op, &op->cs->client->slots[op->slot]);
		break;
	case RY_OP_PUT_QUERY:
		memcpy(op->put_id, op->cs->client->slots[op->slot].put_id, sizeof(op->put_id));
		op->peer_idx = lookup_home(c, op->key, op->key_bytes);
		meta_send(c, op);
		break;
	case RY_OP_LIST:
		list_start(c, op);
		break;
	default:
		op->peer_idx = lookup_home(c, op->key, op->key_bytes);
		meta_send(c, op);
	}
}

void op_cause(struct op *op, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(op->cause, sizeof(op->cause), fmt, ap);
	va_end(ap);
}

void op_fail(struct control *c, struct op *op, uint32_t status, uint16_t rail, const char *cause)
{
	struct ry_cqe cqe = {.rail_idx = rail, .bytes = op->result_bytes, .generation = op->result_generation};

	op_unlink_wait(c, op);
	op->status = status;
	if (cause)
		snprintf(op->cause, sizeof(op->cause), "%s", cause);
	else if (!op->cause[0] && status != RY_OK)
		snprintf(op->cause, sizeof(op->cause), "%s", ry_status_text((enum ry_status)status));
	op_end(c, op, op->xfer, &cqe);
}

void op_end(struct control *c, struct op *op, const struct xfer *x, const struct ry_cqe *cqe)
{
	struct desc *d = op->desc;

	if (op->kind == RY_OP_READ)
		stat_add(op->status == RY_OK ? &c->counters->reads_ok : &c->counters->reads_failed, 1);
	else if (op->kind == RY_OP_PUT)
		stat_add(op->status == RY_OK ? &c->counters->puts_ok : &c->counters->puts_failed, 1);
	if (op->status == RY_ERR_BUDGET)
		stat_add(&c->counters->budget_refusals, 1);
	admit_leave(c, op);
	rings_complete(c, op, x, cqe);
	op->desc = NULL;
	if (d && d->carrier == op)
		lookup_carrier_gone(c, d);
	if (d)
		desc_put(c, d);
}

void op_unlink_wait(struct control *c, struct op *op)
{
	if (!op->is_in_wait)
		return;
	if (op->state == OP_DESC) {
		TAILQ_REMOVE(&op->desc->waiters, op, wait);
	} else if (op->state == OP_ADMIT) {
		admit_unlink(c, op);
	} else {
		TAILQ_REMOVE(&c->send_queue, op, wait);
	}
	op->is_in_wait = false;
}

void op_abort(struct control *c, struct op *op, uint32_t status)
{
	switch (op->state) {
	case OP_XFER:
		abort_xfer(c, op->xfer, status);
		break;
	case OP_QUIET:
		break; /* ends when its source is quiet; the status is known already */
	default:
		if (op->state == OP_WAIT)
			meta_forgo(c, op);
		if (op->kind == RY_OP_PUT)
			put_finish(c, op,
				op->is_sent && (op->flags & RY_F_PUT_COMMIT) ? RY_ERR_UNKNOWN_OUTCOME : status, NULL);
		else
			abort_ask(c, op, status);
	}
}

/* It waits for room, or for what a store answers: a look-up, a delete, a list. */
static void abort_ask(struct control *c, struct op *op, uint32_t status)
{
	bool is_lookup = op->kind == RY_OP_READ || op->kind == RY_OP_LOOKUP;

	if (op->is_sent && op->kind == RY_OP_DELETE)
		status = RY_ERR_UNKNOWN_OUTCOME;
	else if (status == RY_ERR_TIMEOUT && op->state != OP_ADMIT && op->peer_idx < c->config->n_stores)
		op_cause(op, "%s%s %s before the deadline", is_lookup ? "look-up: " : "",
			c->config->stores[op->peer_idx].name,
			op->state == OP_SEND ? "was not connected" : "did not answer");
	op_fail(c, op, status, RY_RAIL_NONE, NULL);
}

static void abort_xfer(struct control *c, struct xfer *x, uint32_t status)
{
	unsigned n_used = 0, n_finished = 0;
	char cause[RY_CAUSE_MAX_BYTES];

	for (uint16_t r = 0; r < c->n_rails; r++) {
		n_used += x->rails[r].n_segments || x->rails[r].n_out;
		n_finished += x->rails[r].n_segments && !x->rails[r].n_out;
	}
	snprintf(cause, sizeof(cause), "%s: %u of %u rails had finished, %" PRIu64 " of %" PRIu64 " bytes had landed",
		status == RY_ERR_TIMEOUT ? "the deadline passed" : "cancelled", n_finished, n_used, x->landed_bytes,
		x->total_bytes);
	xfer_fail(c, x, status, RY_RAIL_NONE, cause);
}

static void cancel(struct control *c, struct client_state *cs, uint64_t ticket)
{
	struct op *op;

	TAILQ_FOREACH (op, &cs->ops, link) {
		if (op->ticket == ticket) {
			op_abort(c, op, RY_ERR_CANCELLED);
			return;
		}
	}
}

uint64_t op_request_id(const struct control *c, const struct op *op)
{
	return (uint64_t)op->seq << 32 | (uint64_t)(op - c->ops);
}

struct op *op_by_request(struct control *c, uint64_t request_id)
{
	uint32_t i = (uint32_t)request_id;
	struct op *op = i < c->n_ops ? &c->ops[i] : NULL;

	return op && op->state == OP_WAIT && op->seq == request_id >> 32 ? op : NULL;
}

uint64_t ops_expire(struct control *c)
{
	uint64_t next_ns = UINT64_MAX;

	for (uint32_t i = 0; i < c->n_ops; i++) {
		struct op *op = &c->ops[i];

		if (op->state == OP_FREE || op->state == OP_QUIET)
			continue;
		if (op->state == OP_ADMIT && op->admit_until_ns <= c->now_ns && op->admit_until_ns < op->deadline_ns)
			op_abort(c, op, RY_ERR_BUDGET);
		else if (op->deadline_ns <= c->now_ns)
			op_abort(c, op, RY_ERR_TIMEOUT);
		else
			next_ns = RTE_MIN(next_ns, op->state == OP_ADMIT ? op->admit_until_ns : op->deadline_ns);
	}
	return next_ns;
}
