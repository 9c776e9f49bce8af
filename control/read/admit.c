/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Budgets of node and client: counts of reads at submit, bytes as soon as they are known (before any moves). The rail's
 * budget is charged at hand-out, in hand_out.c. Each charge has one release.
 *
 * Under `admission: queue` a read that finds no room waits, first come first served within its client; clients take
 * turns. A read that no client of its own budget holds back is never overtaken for the node's, so large reads do not
 * starve. What can never fit is refused at once.
 */
#include "read/control_priv.h"

static bool has_place(const struct control *c, const struct client_state *cs);
static uint64_t most_bytes(const struct control *c);
static void refuse_size(struct control *c, struct op *op, uint64_t bytes);
static bool has_room(const struct control *c, const struct client_state *cs, uint64_t bytes);
static bool wait_or_fail(struct control *c, struct op *op);
static void explain(struct control *c, struct op *op);
static bool let_in(struct control *c, struct client_state *cs);

bool admit_enter(struct control *c, struct op *op)
{
	op->need_bytes = 0;
	if (!TAILQ_EMPTY(&op->cs->admit_queue) || !has_place(c, op->cs))
		return wait_or_fail(c, op);
	op->is_charged = true;
	c->inflight_reads++;
	op->cs->n_reads++;
	return true;
}

void admit_leave(struct control *c, struct op *op)
{
	if (!op->is_charged)
		return;
	op->is_charged = false;
	c->inflight_reads--;
	op->cs->n_reads--;
	c->want_admit = true;
}

static bool has_place(const struct control *c, const struct client_state *cs)
{
	return c->inflight_reads < c->limits.max_reads && cs->n_reads < c->limits.client_max_reads;
}

bool admit_bytes(struct control *c, struct op *op, uint64_t bytes)
{
	if (bytes > most_bytes(c)) {
		refuse_size(c, op, bytes);
		return false;
	}
	op->need_bytes = bytes;
	if ((!op->was_queued && !TAILQ_EMPTY(&op->cs->admit_queue)) || !has_room(c, op->cs, bytes))
		return wait_or_fail(c, op);
	op->was_queued = false;
	c->inflight_bytes += bytes;
	op->cs->inflight_bytes += bytes;
	return true;
}

static uint64_t most_bytes(const struct control *c)
{
	return RTE_MIN(c->limits.inflight_max_bytes, c->limits.client_inflight_max_bytes);
}

static void refuse_size(struct control *c, struct op *op, uint64_t bytes)
{
	op_cause(op,
		"%" PRIu64 " bytes in one read, the in-flight budget is %" PRIu64
		": read by range, or raise reader.inflight",
		bytes, most_bytes(c));
	op_fail(c, op, RY_ERR_BUDGET, RY_RAIL_NONE, NULL);
}

static bool has_room(const struct control *c, const struct client_state *cs, uint64_t bytes)
{
	return c->inflight_bytes + bytes <= c->limits.inflight_max_bytes &&
	       cs->inflight_bytes + bytes <= c->limits.client_inflight_max_bytes;
}

void admit_release(struct control *c, struct xfer *x)
{
	if (!x->is_charged)
		return;
	c->inflight_bytes -= x->total_bytes;
	x->cs->inflight_bytes -= x->total_bytes;
	x->is_charged = false;
	c->want_admit = true;
}

static bool wait_or_fail(struct control *c, struct op *op)
{
	explain(c, op);
	if (c->config->admission == ADMISSION_REJECT || c->n_admit_waiting >= c->config->admission_queue_max) {
		op_fail(c, op, RY_ERR_BUDGET, RY_RAIL_NONE, NULL);
		return false;
	}
	op->state = OP_ADMIT;
	op->admit_until_ns = RTE_MIN(op->deadline_ns, c->now_ns + c->limits.admission_wait_ns);
	c->next_deadline_ns = RTE_MIN(c->next_deadline_ns, op->admit_until_ns);
	op->is_in_wait = true;
	TAILQ_INSERT_TAIL(&op->cs->admit_queue, op, wait);
	c->n_admit_waiting++;
	return false;
}

static void explain(struct control *c, struct op *op)
{
	const struct limits *k = &c->limits;

	if (!op->need_bytes)
		op_cause(op,
			"%u of %u reads in flight on the node, %u of %u of this client: retry, or raise "
			"reader.max_reads",
			c->inflight_reads, k->max_reads, op->cs->n_reads, k->client_max_reads);
	else
		op_cause(op,
			"%" PRIu64 " bytes do not fit the in-flight budget now (node %" PRIu64 " of %" PRIu64
			", client %" PRIu64 " of %" PRIu64 "): retry",
			op->need_bytes, c->inflight_bytes, k->inflight_max_bytes, op->cs->inflight_bytes,
			k->client_inflight_max_bytes);
}

unsigned admit_pump(struct control *c)
{
	unsigned n = 0;
	uint32_t n_quiet = 0;

	if (!c->want_admit || !c->n_admit_waiting)
		return 0;
	c->want_admit = false;
	while (n_quiet < c->n_live && c->n_admit_waiting) {
		struct client_state *cs = c->live[c->next_admit++ % c->n_live];

		if (let_in(c, cs)) {
			n++;
			n_quiet = 0;
		} else {
			n_quiet++;
		}
	}
	return n;
}

/* The client's oldest waiting read, if there is room for it. */
static bool let_in(struct control *c, struct client_state *cs)
{
	struct op *op = TAILQ_FIRST(&cs->admit_queue);

	if (!op || !(op->need_bytes ? has_room(c, cs, op->need_bytes) : has_place(c, cs)))
		return false;
	op_unlink_wait(c, op);
	op->cause[0] = 0;
	op->was_queued = true; /* its turn has come: it does not queue behind those that came later */
	if (op->need_bytes) {
		read_described(c, op);
	} else {
		op->is_charged = true;
		c->inflight_reads++;
		cs->n_reads++;
		lookup_start(c, op);
	}
	return true;
}

void admit_set_limits(struct control *c, const struct limits *limits)
{
	c->limits = *limits;
	c->want_admit = true;
	for (uint32_t i = 0; i < c->n_live; i++) {
		struct op *op, *next;

		for (op = TAILQ_FIRST(&c->live[i]->admit_queue); op; op = next) {
			next = TAILQ_NEXT(op, wait);
			if (op->need_bytes > most_bytes(c))
				refuse_size(c, op, op->need_bytes);
		}
	}
}
