/* SPDX-License-Identifier: BSD-3-Clause */
/* Metadata answers that are forged, replayed, or never fit together. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/conn_priv.h"
#include "read/control_priv.h"
#include "rig_tap.h"

static struct rig r;

/* The operation that waits for an answer of a store. */
static struct op *waiting(void)
{
	struct control *c = r.node->control;

	for (uint32_t i = 0; i < c->n_ops; i++) {
		if (c->ops[i].state == OP_WAIT)
			return &c->ops[i];
	}
	return NULL;
}

/* Hands control a message as if it had come from this pair. */
static void forge(uint16_t pair_idx, const void *message, uint32_t len_bytes)
{
	struct conn *c = r.node->conn;
	struct link *l = &c->links[pair_idx];
	struct meta_buf *b = buf_take(c, l);

	cr_assert_not_null(b);
	cr_assert_eq(wire_meta_check(message, len_bytes), RY_OK);
	memcpy(b->data, message, len_bytes);
	b->len_bytes = len_bytes;
	b->pair_idx = pair_idx;
	b->pair_epoch = l->pair.epoch;
	b->op = NULL;
	queue_emit(c, &b->m, MSG_META_RX);
	queue_flush(c);
	control_poll(r.node->control, r.now_ns);
}

/* How many lines of this kind of breach wait for the log, and how often the last of them says that it happened. */
static unsigned n_told(enum breach what, uint32_t *n_times)
{
	struct journal_entry e;
	unsigned n = 0;

	while (journal_pop(&r.node->journal, &e)) {
		if (e.kind != JOURNAL_BREACH || e.breach.what != what)
			continue;
		/* One node is both ends: as the store that it dials, and as the node that dialled it. */
		cr_assert(!strcmp(e.breach.node_name, r.config.stores[0].name) ||
				  !strcmp(e.breach.node_name, r.config.node_name),
			"%s", e.breach.node_name);
		*n_times = e.breach.n;
		n++;
	}
	return n;
}

static void expect_told(enum breach what, unsigned n)
{
	uint32_t n_times = 0;
	unsigned n_lines = n_told(what, &n_times);

	cr_assert_eq(n_lines, n, "%u lines", n_lines);
}

static uint64_t late_answers(void)
{
	return stat_get(&r.node->control->counters->late_answers);
}

static struct op *ask(uint8_t kind, const char *key, uint64_t *ticket)
{
	struct ry_sqe sqe = {.op = kind, .length = 10};

	*ticket = rig_submit(&r, r.client, sqe, key, (uint16_t)strlen(key));
	control_poll(r.node->control, r.now_ns);
	cr_assert_not_null(waiting());
	return waiting();
}

static struct wire_lookup_reply reply_to(const struct op *op)
{
	struct wire_lookup_reply m = {.h = {.request_id = op_request_id(r.node->control, op)},
		.handle = 7,
		.generation = 1,
		.layout_version = 1,
		.size_bytes = 3 * RY_STRIPE_MIN_BYTES,
		.stripe_bytes = RY_STRIPE_MIN_BYTES,
		.stripe_count = 3,
		.n_checksums = 1,
		.has_checksums = 1};

	return m;
}

static void forge_reply(uint16_t pair_idx, const struct wire_lookup_reply *m)
{
	static const uint64_t sums[3] = {1, 2, 3};
	alignas(8) static uint8_t buf[1024];

	forge(pair_idx, buf, wire_enc_lookup_reply(buf, m, sums));
}

/* Request ids count up: who knows one can guess the next. */
Test(node_hostile, an_answer_of_a_peer_that_was_not_asked)
{
	struct wire_lookup_reply m;
	uint64_t ticket;
	struct op *op;
	uint16_t asked;

	rig_init(&r, 2, 0);
	rig_start(&r);
	op = ask(RY_OP_LOOKUP, "missing", &ticket);
	asked = op->pair_idx;
	m = reply_to(op);
	m.n_checksums = 3;
	for (uint32_t i = 0; i < r.node->conn->n_live; i++) {
		if (r.node->conn->live[i] != asked)
			forge_reply(r.node->conn->live[i], &m);
	}
	cr_assert_eq(op->state, OP_WAIT, "another pair's answer was believed");
	expect_told(BREACH_LATE, 2); /* of either end, however many pairs */
	cr_assert_eq(late_answers(), r.node->conn->n_live - 1);
	cr_assert_eq(rig_wait(&r, r.client, ticket).status, RY_ERR_NOT_FOUND, "what the store says");
	/* Replayed: nobody waits for it any more. */
	forge_reply(asked, &m);
	forge_reply(asked, &m);
	cr_assert_eq(late_answers(), r.node->conn->n_live + 1);
	expect_told(BREACH_LATE, 0);
	cr_assert(rig_settle(&r));
	rig_stop(&r);
}

/* A store that was stopped for a while: its answers are late, each once, and no breach. */
Test(node_hostile, an_answer_after_the_deadline)
{
	struct ry_sqe sqe = {.op = RY_OP_LOOKUP};
	struct wire_lookup_reply m;
	struct ry_cqe cqe;
	uint16_t asked;
	uint64_t ticket;

	rig_init(&r, 1, 0);
	rig_start(&r);
	sqe.deadline_ns = r.now_ns + 1000000;
	ticket = rig_submit(&r, r.client, sqe, "k", 1);
	control_poll(r.node->control, r.now_ns);
	cr_assert_not_null(waiting());
	asked = waiting()->pair_idx;
	m = reply_to(waiting());
	r.now_ns += 2000000;
	control_poll(r.node->control, r.now_ns);
	cr_assert(rig_reap(&r, r.client, &cqe));
	cr_assert(cqe.ticket == ticket && cqe.status == RY_ERR_TIMEOUT, "%u", cqe.status);
	m.n_checksums = 3;
	forge_reply(asked, &m);
	cr_assert_eq(late_answers(), 1);
	expect_told(BREACH_LATE, 0);
	forge_reply(asked, &m);
	cr_assert_eq(late_answers(), 2);
	expect_told(BREACH_LATE, 1);
	rig_stop(&r);
}

/* Steps until the pair is down, or up again; the accepted peers are the places behind the store's. */
static void until_used(uint16_t place, bool is_used)
{
	for (uint64_t end = r.now_ns + 10000000000; r.now_ns < end; rig_step(&r)) {
		if (r.node->control->peers[place].is_used == is_used)
			return;
	}
	cr_assert_fail("peer %u is %s", place, is_used ? "not there" : "there still");
}

static void forge_of_accepted(void)
{
	struct control *c = r.node->control;
	struct wire_lookup_reply m = {.h = {.request_id = 1}, .generation = 1};
	uint16_t place = c->peers[1].is_used ? 1 : 2;

	cr_assert(c->peers[place].is_used && c->peers[place].n_pairs);
	forge_reply(c->peers[place].pairs[0].pair->idx, &m);
}

/* Whoever comes back to whichever place: what was told of it is told again a minute later, not at once. */
Test(node_hostile, a_peer_that_comes_back_is_not_told_of_anew)
{
	struct peer *peers, former;
	struct conn *conn;

	rig_init(&r, 1, 0);
	rig_start(&r);
	peers = r.node->control->peers;
	conn = r.node->conn;
	forge_of_accepted();
	expect_told(BREACH_LATE, 1);
	link_down(conn, &conn->links[peers[1].pairs[0].pair->idx], RY_ERR_RAIL, WIRE_BYE_REBUILD, "test");
	until_used(1, false);
	/* As if another had come first, and left too. */
	former = peers[2];
	peers[2] = peers[1];
	peers[1] = former;
	until_used(2, true);
	cr_assert_not(peers[1].is_used);
	forge_of_accepted();
	expect_told(BREACH_LATE, 0);
	cr_assert(rig_settle(&r));
	rig_stop(&r);
}

static void ends_after_a_while(bool is_other_generation, uint32_t first_stripe)
{
	struct ry_cqe cqe;
	uint64_t ticket;
	struct op *op;
	unsigned n;

	rig_init(&r, 1, 0);
	rig_start(&r);
	op = ask(RY_OP_LOOKUP, "k", &ticket);
	for (n = 0; n < 100 && op->state == OP_WAIT; n++) {
		struct wire_lookup_reply m = reply_to(op);

		m.first_stripe = n ? first_stripe : 0;
		m.generation = is_other_generation ? n + 1 : 1;
		forge_reply(op->pair_idx, &m);
	}
	cr_assert(n > 2 && n < 40, "%u answers", n);
	cqe = rig_wait(&r, r.client, ticket);
	cr_assert_eq(cqe.status, RY_ERR_STALE_GENERATION, "%u: %s", cqe.status, rig_slot(r.client, &cqe)->cause);
	cr_assert(rig_settle(&r));
	rig_stop(&r);
}

Test(node_hostile, pages_of_ever_other_generations)
{
	ends_after_a_while(true, 1);
}

Test(node_hostile, the_first_page_again_and_again)
{
	ends_after_a_while(false, 0);
}

/* The text names the store, and says nothing of a connection, which stays. */
static void expect_blame(const struct ry_cqe *cqe, const char *what)
{
	const char *cause = rig_slot(r.client, cqe)->cause;
	char start[128];

	snprintf(start, sizeof(start), "store %s %s", r.config.stores[0].name, what);
	cr_expect_eq(strncmp(cause, start, strlen(start)), 0, "'%s'", cause);
	cr_expect_null(strstr(cause, "connection"), "'%s'", cause);
}

/* Of a look-up, of a put and of a query alike. */
Test(node_hostile, a_store_that_understands_nothing)
{
	static const uint8_t kinds[] = {RY_OP_LOOKUP, RY_OP_DELETE, RY_OP_PUT_QUERY, RY_OP_LIST};
	alignas(8) uint8_t buf[sizeof(struct wire_meta)];
	struct ry_cqe cqe;
	uint64_t ticket;
	struct op *op;

	rig_init(&r, 1, 0);
	rig_start(&r);
	for (unsigned i = 0; i < sizeof(kinds); i++) {
		op = ask(kinds[i], "k", &ticket);
		forge(op->pair_idx, buf,
			wire_enc_fixed(buf, WIRE_META_ERROR, sizeof(buf), op_request_id(r.node->control, op),
				RY_ERR_PROTOCOL));
		cqe = rig_wait(&r, r.client, ticket);
		cr_assert_eq(cqe.status, RY_ERR_PROTOCOL, "%u: %u", kinds[i], cqe.status);
		expect_blame(&cqe, "did not understand the request");
	}
	cr_assert(rig_settle(&r));
	rig_stop(&r);
}

Test(node_hostile, answers_of_another_kind)
{
	alignas(8) uint8_t buf[256];
	struct ry_cqe cqe;
	uint64_t ticket;
	struct op *op;

	rig_init(&r, 1, 0);
	rig_start(&r);
	op = ask(RY_OP_LOOKUP, "k", &ticket);
	forge(op->pair_idx, buf,
		wire_enc_fixed(buf, WIRE_META_PUT_DONE, sizeof(struct wire_put_done),
			op_request_id(r.node->control, op), RY_OK));
	cqe = rig_wait(&r, r.client, ticket);
	cr_assert_eq(cqe.status, RY_ERR_PROTOCOL, "%u", cqe.status);
	expect_blame(&cqe, "answered another request than was sent");
	expect_told(BREACH_ANSWER, 1);
	cr_assert(rig_settle(&r));
	rig_stop(&r);
}

/* Its upper bits would name another store. */
Test(node_hostile, a_list_cursor_out_of_bounds)
{
	alignas(8) uint8_t buf[256];
	struct wire_list_reply *m = (void *)buf;
	struct ry_cqe cqe;
	uint64_t ticket;
	struct op *op;

	rig_init(&r, 1, 0);
	rig_start(&r);
	op = ask(RY_OP_LIST, "k", &ticket);
	wire_enc_fixed(buf, WIRE_META_LIST_REPLY, sizeof(*m), op_request_id(r.node->control, op), RY_OK);
	m->cursor = 1ull << 48;
	forge(op->pair_idx, buf, sizeof(*m));
	cqe = rig_wait(&r, r.client, ticket);
	cr_assert_eq(cqe.status, RY_ERR_PROTOCOL);
	expect_blame(&cqe, "sent a list cursor that is out of bounds");
	expect_told(BREACH_ANSWER, 1);
	cr_assert(rig_settle(&r));
	rig_stop(&r);
}

/* A put that the store says to have failed; the text is shown to people. */
Test(node_hostile, a_cause_cannot_steer_a_terminal)
{
	alignas(8) uint8_t buf[sizeof(struct wire_put_done)];
	struct wire_put_done *m = (void *)buf;
	struct ry_cqe cqe;
	uint64_t ticket;
	struct op *op;

	rig_init(&r, 1, 0);
	rig_start(&r);
	op = ask(RY_OP_PUT_QUERY, "k", &ticket);
	wire_enc_fixed(buf, WIRE_META_PUT_DONE, sizeof(*m), op_request_id(r.node->control, op), RY_ERR_CHECKSUM);
	snprintf(m->cause, sizeof(m->cause), "stripe\x1b[2J\n\xff 3");
	forge(op->pair_idx, buf, sizeof(*m));
	cqe = rig_wait(&r, r.client, ticket);
	cr_assert_eq(cqe.status, RY_ERR_CHECKSUM);
	cr_assert_str_eq(rig_slot(r.client, &cqe)->cause, "stripe?[2J?? 3");
	cr_assert(rig_settle(&r));
	rig_stop(&r);
}

/* ---- Credits ---- */

static bool stingy(void *ctx, struct rail *rail, struct wr *wr)
{
	struct wire_done *m = rig_message(wr, WIRE_DONE);
	unsigned *n = ctx;

	if (m) {
		m->credits = 0;
		++*n;
	}
	return true;
}

/* A store that answers well and gives no credit back: the QP is given up soon, and the next one has credits again. */
Test(node_hostile, a_store_that_keeps_the_credits)
{
	struct rail *rail;
	struct ry_cqe cqe;
	uint8_t *data;
	unsigned n = 0, n_good = 0;
	uint64_t start;

	rig_init(&r, 1, 0);
	rig_start(&r);
	rail = r.node->rails[0];
	data = rig_object(&r, "k", 100000, 1);
	rig_tap(&r, stingy, &n);
	for (cqe.status = RY_OK; cqe.status == RY_OK && n_good < 1000; n_good += cqe.status == RY_OK) {
		start = r.now_ns;
		cqe = rig_read(&r, r.client, "k", 0, UINT64_MAX, 0);
		rig_release(&r, r.client, cqe.lease_id);
	}
	cr_assert(n_good == RAIL_CREDITS && n == RAIL_CREDITS, "%u reads, %u answers without credit", n_good, n);
	cr_assert_eq(cqe.status, RY_ERR_RAIL, "%u: %s", cqe.status, rig_slot(r.client, &cqe)->cause);
	cr_assert(r.now_ns - start >= 2000000000 && r.now_ns - start < 2500000000, "long before the read's deadline");
	cr_assert_eq(stat_get(&rail->counters.protocol_errors), 1);
	rig_tap(&r, NULL, NULL);
	r.step_ns = 1000000;
	rig_run(&r, 3000000000);
	cqe = rig_read(&r, r.client, "k", 0, UINT64_MAX, 0);
	cr_assert_eq(cqe.status, RY_OK, "%u: %s", cqe.status, rig_slot(r.client, &cqe)->cause);
	cr_assert(rig_same(r.client, &cqe, data, 100000));
	rig_release(&r, r.client, cqe.lease_id);
	cr_assert(rig_settle(&r));
	free(data);
	rig_stop(&r);
}

struct keeper {
	unsigned n;
	struct rig_kept last;
};

static bool keep_credits(void *ctx, struct rail *rail, struct wr *wr)
{
	struct wire_done *m = rig_message(wr, WIRE_DONE);
	struct keeper *k = ctx;

	if (m) {
		m->credits = 0;
		k->n++;
		rig_keep(&k->last, rail, wr);
	}
	return true;
}

/* Reads until none has a credit any more, lets the next one wait for 1.5 s, and brings the credits after all. */
static void starve_and_recover(struct keeper *k)
{
	struct rail *rail = r.node->rails[0];
	struct ry_cqe cqe;
	uint64_t ticket, start;

	while (k->n < RAIL_CREDITS) {
		cqe = rig_read(&r, r.client, "k", 0, UINT64_MAX, 0);
		cr_assert_eq(cqe.status, RY_OK, "%u: %s", cqe.status, rig_slot(r.client, &cqe)->cause);
		rig_release(&r, r.client, cqe.lease_id);
	}
	start = r.now_ns;
	ticket = rig_submit_read(&r, r.client, "k", 0, UINT64_MAX, 0, 0);
	rig_run(&r, 1500000000);
	cr_assert_eq(rail->n_held, 1);
	/* A lcore that sleeps is to wake up for it. */
	cr_assert(rail_next_timer(rail) > start && rail_next_timer(rail) < start + 2100000000, "it wakes up after %f s",
		(double)(rail_next_timer(rail) - start) / 1e9);
	((struct wire_done *)(void *)k->last.msg)->credits = RAIL_CREDITS;
	k->n = 0;
	rig_post_kept(&k->last);
	cqe = rig_wait(&r, r.client, ticket);
	cr_assert_eq(cqe.status, RY_OK, "%u: %s", cqe.status, rig_slot(r.client, &cqe)->cause);
	rig_release(&r, r.client, cqe.lease_id);
	cr_assert_eq(stat_get(&rail->counters.qp_failures), 0);
}

/* A stall that ended is forgotten: the next one may last as long. */
Test(node_hostile, a_store_that_is_late_with_its_credits)
{
	struct keeper k = {0};
	uint8_t *data;

	rig_init(&r, 1, 0);
	rig_start(&r);
	data = rig_object(&r, "k", 100000, 1);
	rig_tap(&r, keep_credits, &k);
	for (int i = 0; i < 3; i++)
		starve_and_recover(&k);
	cr_assert_eq(stat_get(&r.node->rails[0]->counters.protocol_errors), 0);
	rig_tap(&r, NULL, NULL);
	cr_assert(rig_settle(&r));
	free(data);
	rig_stop(&r);
}

/* ---- DONE: wrong bytes, wrong generation, wrong content, twice ---- */

struct liar {
	enum breach what;
	bool want_twice;
	unsigned n;
};

static bool lie(void *ctx, struct rail *rail, struct wr *wr)
{
	struct wire_done *m = rig_message(wr, WIRE_DONE);
	struct liar *l = ctx;
	struct rig_kept k;

	if (wr->op == WR_WRITE)
		return l->want_twice || l->what != BREACH_CHECKSUM;
	if (!m)
		return true;
	l->n++;
	if (l->want_twice) {
		rig_keep(&k, rail, wr);
		rig_post_kept(&k);
	} else if (l->what == BREACH_BYTES) {
		m->bytes--;
	} else if (l->what == BREACH_GENERATION) {
		m->generation++;
	}
	return true;
}

static void read_lies(unsigned n, uint32_t status)
{
	for (unsigned i = 0; i < n; i++) {
		struct ry_cqe cqe = rig_read(&r, r.client, "k", 0, UINT64_MAX, 0);

		cr_assert_eq(cqe.status, status, "%u: %s", cqe.status, rig_slot(r.client, &cqe)->cause);
		rig_run(&r, 1000000);
	}
}

/* Each read has its status; the log has one line at once and one a minute. */
static void lies_are_told_once(enum breach what, uint32_t status)
{
	struct liar l = {.what = what};
	uint32_t n_times = 0;
	uint8_t *data;

	rig_init(&r, 1, 0);
	r.config.health.error_threshold = UINT32_MAX;
	rig_start(&r);
	data = rig_object(&r, "k", 100000, 1);
	rig_tap(&r, lie, &l);
	read_lies(20, status);
	cr_assert_geq(l.n, 20);
	cr_assert_eq(n_told(what, &n_times), 1);
	cr_assert_eq(n_times, 1);
	r.now_ns += 61000000000;
	read_lies(20, status);
	cr_assert_eq(n_told(what, &n_times), 1, "a minute later");
	cr_assert_geq(n_times, 20, "%u times since the last line", n_times);
	rig_tap(&r, NULL, NULL);
	cr_assert(rig_settle(&r));
	free(data);
	rig_stop(&r);
}

Test(node_hostile, done_of_another_number_of_bytes)
{
	lies_are_told_once(BREACH_BYTES, RY_ERR_INCOMPLETE);
}

Test(node_hostile, done_of_another_generation)
{
	lies_are_told_once(BREACH_GENERATION, RY_ERR_STALE_GENERATION);
}

Test(node_hostile, done_without_the_bytes)
{
	lies_are_told_once(BREACH_CHECKSUM, RY_ERR_CHECKSUM);
}

/* An answer again is dropped and counted: for everybody, and for the QP that it came on. */
Test(node_hostile, done_twice_is_counted_for_its_qp)
{
	struct liar l = {.want_twice = true};
	uint8_t *data;
	uint32_t n_odd = 0;

	rig_init(&r, 1, 0);
	rig_start(&r);
	data = rig_object(&r, "k", 100000, 1);
	rig_tap(&r, lie, &l);
	read_lies(20, RY_OK);
	for (uint16_t q = 0; q < r.node->rails[0]->n_qps; q++)
		n_odd += qp_n_odd(r.node->rails[0]->qps[q]);
	cr_assert_eq(stat_get(&r.node->rails[0]->counters.late_messages), l.n);
	cr_assert(n_odd == l.n && n_odd >= 20, "%u of %u", n_odd, l.n);
	rig_tap(&r, NULL, NULL);
	free(data);
	rig_stop(&r);
}
