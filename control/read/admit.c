/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Budgets of node and client: counts of reads at submit, bytes as soon as they are known (before any moves). The rail's
 * budget is charged at hand-out, in hand_out.c. Each charge has one release.
 *
 * Under `admission: queue` a read that finds no room waits. It may wait twice, for its place among the reads and for
 * its bytes, with one end for both waits. Within a client it is first come, first served, those for bytes before those
 * for a place: they have their place, which others wait for. Clients take turns. A client whose own budget is full is
 * passed over; a read that only the node has no room for stops the line, and who comes later stands behind it, or small
 * reads would starve large ones. The two lines are apart: bytes come back when transfers end, places only when those
 * that wait for bytes went on. What can never fit is refused at once.
 */
#include "read/control_priv.h"

enum turn {
	TURN_NONE,  /* nobody there, or held back by the client's own budget */
	TURN_TAKEN, /* one was let in */
	TURN_STOPS  /* the node has no room for whose turn it is */
};

static bool fits_client(const struct control *c, const struct op *op);
static bool fits_node(const struct control *c, const struct op *op);
static uint64_t most_bytes(const struct control *c);
static void refuse_size(struct control *c, struct op *op, uint64_t bytes);
static bool is_behind(const struct control *c, const struct client_state *cs);
static bool wait_or_fail(struct control *c, struct op *op);
static void explain(struct control *c, struct op *op);
static void join(struct control *c, struct op *op);
static enum admit_line line_of(const struct op *op);
static unsigned pump_line(struct control *c, enum admit_line line);
static enum turn take_turn(struct control *c, struct client_state *cs, enum admit_line line);
static void let_in(struct control *c, struct op *op);

bool admit_enter(struct control *c, struct op *op)
{
	op->need_bytes = 0;
	if (!TAILQ_EMPTY(&op->cs->admit_queue) || c->admit_stop[ADMIT_PLACE] || !fits_client(c, op) ||
		!fits_node(c, op))
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

static bool fits_client(const struct control *c, const struct op *op)
{
	const struct client_state *cs = op->cs;

	return op->need_bytes ? cs->inflight_bytes + op->need_bytes <= c->limits.client_inflight_max_bytes
			      : cs->n_reads < c->limits.client_max_reads;
}

static bool fits_node(const struct control *c, const struct op *op)
{
	return op->need_bytes ? c->inflight_bytes + op->need_bytes <= c->limits.inflight_max_bytes
			      : c->inflight_reads < c->limits.max_reads;
}

bool admit_bytes(struct control *c, struct op *op, uint64_t bytes)
{
	if (bytes > most_bytes(c)) {
		refuse_size(c, op, bytes);
		return false;
	}
	op->need_bytes = bytes;
	if ((!op->is_let_in && is_behind(c, op->cs)) || !fits_client(c, op) || !fits_node(c, op))
		return wait_or_fail(c, op);
	op->is_let_in = false;
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
		"%" PRIu64 " bytes in one read, the in-flight budget is %" PRIu64 ": read by range, or raise reader.%s",
		bytes, most_bytes(c),
		c->limits.client_inflight_max_bytes < c->limits.inflight_max_bytes ? "client_inflight" : "inflight");
	op_fail(c, op, RY_ERR_BUDGET, RY_RAIL_NONE, NULL);
}

/* Others wait for bytes and came first. */
static bool is_behind(const struct control *c, const struct client_state *cs)
{
	return c->admit_stop[ADMIT_BYTES] || TAILQ_FIRST(&cs->admit_queue) != cs->first_place;
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
	bool is_full = c->n_admit_waiting >= c->config->admission_queue_max;

	explain(c, op);
	if (c->config->admission == ADMISSION_QUEUE && is_full)
		op_cause(op, "%u reads wait for a budget, the most that reader.admission_queue allows: retry",
			c->n_admit_waiting);
	if (c->config->admission == ADMISSION_REJECT || is_full) {
		op_fail(c, op, RY_ERR_BUDGET, RY_RAIL_NONE, NULL);
		return false;
	}
	op->state = OP_ADMIT;
	if (!op->admit_until_ns) /* the first of its waits: the end is the same for all */
		op->admit_until_ns = RTE_MIN(op->deadline_ns, c->now_ns + c->limits.admission_wait_ns);
	c->next_deadline_ns = RTE_MIN(c->next_deadline_ns, op->admit_until_ns);
	join(c, op);
	return false;
}

static void explain(struct control *c, struct op *op)
{
	const struct limits *k = &c->limits;

	if (fits_client(c, op) && fits_node(c, op))
		op_cause(op, "%u reads wait for a budget, some of them before this one: retry", c->n_admit_waiting);
	else if (!op->need_bytes)
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

static void join(struct control *c, struct op *op)
{
	struct client_state *cs = op->cs;
	enum admit_line line = line_of(op);

	if (line == ADMIT_BYTES && cs->first_place)
		TAILQ_INSERT_BEFORE(cs->first_place, op, wait);
	else
		TAILQ_INSERT_TAIL(&cs->admit_queue, op, wait);
	if (line == ADMIT_PLACE && !cs->first_place)
		cs->first_place = op;
	op->is_in_wait = true;
	c->n_admit_waiting++;
	if (!c->admit_stop[line] && TAILQ_FIRST(&cs->admit_queue) == op && fits_client(c, op) && !fits_node(c, op))
		c->admit_stop[line] = op;
}

void admit_unlink(struct control *c, struct op *op)
{
	struct client_state *cs = op->cs;
	enum admit_line line = line_of(op);

	if (cs->first_place == op)
		cs->first_place = TAILQ_NEXT(op, wait);
	if (c->admit_stop[line] == op)
		c->admit_stop[line] = NULL;
	TAILQ_REMOVE(&cs->admit_queue, op, wait);
	c->n_admit_waiting--;
	c->want_admit = true; /* who stood behind it may fit */
}

static enum admit_line line_of(const struct op *op)
{
	return op->need_bytes ? ADMIT_BYTES : ADMIT_PLACE;
}

unsigned admit_pump(struct control *c)
{
	unsigned n;

	if (!c->want_admit || !c->n_admit_waiting)
		return 0;
	c->want_admit = false;
	n = pump_line(c, ADMIT_BYTES);
	return n + pump_line(c, ADMIT_PLACE);
}

/* Begins where the line stopped: it is still that client's turn. */
static unsigned pump_line(struct control *c, enum admit_line line)
{
	const struct op *stop = c->admit_stop[line];
	enum turn turn = TURN_NONE;
	uint32_t n_quiet = 0;
	unsigned n;

	c->admit_stop[line] = NULL;
	if (stop)
		turn = take_turn(c, stop->cs, line);
	n = turn == TURN_TAKEN;
	while (turn != TURN_STOPS && n_quiet < c->n_live) {
		turn = take_turn(c, c->live[c->next_admit[line]++ % c->n_live], line);
		n += turn == TURN_TAKEN;
		n_quiet = turn == TURN_TAKEN ? 0 : n_quiet + 1;
	}
	return n;
}

/* The client's oldest waiting read, if it stands in this line. */
static enum turn take_turn(struct control *c, struct client_state *cs, enum admit_line line)
{
	struct op *op = TAILQ_FIRST(&cs->admit_queue);

	if (!op || line_of(op) != line || !fits_client(c, op))
		return TURN_NONE;
	if (!fits_node(c, op)) {
		c->admit_stop[line] = op;
		return TURN_STOPS;
	}
	let_in(c, op);
	return TURN_TAKEN;
}

static void let_in(struct control *c, struct op *op)
{
	op_unlink_wait(c, op);
	op->cause[0] = 0;
	if (op->need_bytes) {
		op->is_let_in = true;
		read_described(c, op);
		return;
	}
	op->is_charged = true;
	c->inflight_reads++;
	op->cs->n_reads++;
	lookup_start(c, op);
}

void admit_set_limits(struct control *c, const struct limits *limits)
{
	c->limits = *limits;
	c->want_admit = true;
	for (uint16_t i = 0; i < c->n_rails; i++)
		estimate_budget(c, &c->rails[i], limits->rail_inflight_max_bytes[i]);
	for (uint32_t i = 0; i < c->n_live; i++) {
		struct op *op, *next;

		for (op = TAILQ_FIRST(&c->live[i]->admit_queue); op; op = next) {
			next = TAILQ_NEXT(op, wait);
			if (op->need_bytes > most_bytes(c))
				refuse_size(c, op, op->need_bytes);
		}
	}
}
