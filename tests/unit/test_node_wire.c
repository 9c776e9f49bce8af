/* SPDX-License-Identifier: BSD-3-Clause */
/* What a rail puts on the wire for a read, byte for byte; and answers that come late, twice or from nowhere. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "read/control_priv.h"
#include "rig_tap.h"

#define MIB (1u << 20)
#define MS 1000000ull
#define LINES_MAX 64

/* ---- Transcripts: one line per work request, in order of posting ---- */

struct transcript {
	unsigned n;
	uint16_t rail_idx[LINES_MAX];
	char line[LINES_MAX][160];
	uint8_t read[LINES_MAX][WIRE_MSG_BYTES]; /* of SENDs */
	uint32_t len[LINES_MAX];
};

static void say_parts(char *p, size_t left, struct wire_read *m)
{
	for (uint16_t i = 0; i < m->n_parts; i++) {
		const struct wire_part *part = &wire_read_parts(m)[i];
		int n = snprintf(p, left, " [%u +%lu %u @%lu]", part->stripe_idx, (unsigned long)part->offset,
			part->len_bytes, (unsigned long)part->window_offset);

		p += n;
		left -= (size_t)n;
	}
}

static bool record(void *ctx, struct rail *rail, struct wr *wr)
{
	struct transcript *t = ctx;
	char *p = t->line[t->n];
	void *m;

	cr_assert_lt(t->n, LINES_MAX);
	t->rail_idx[t->n] = rail->idx;
	if (wr->op == WR_SEND) {
		memcpy(t->read[t->n], wr->addr, wr->len_bytes);
		t->len[t->n] = wr->len_bytes;
	}
	if (wr->op == WR_BIND)
		snprintf(p, 160, "BIND %lu", (unsigned long)wr->window->len_bytes);
	else if (wr->op == WR_INV)
		snprintf(p, 160, "INV");
	else if (wr->op == WR_WRITE)
		snprintf(p, 160, "WRITE %u @%lu", wr->len_bytes, (unsigned long)wr->offset);
	else if ((m = rig_message(wr, WIRE_READ)) != NULL)
		say_parts(p + snprintf(p, 160, "READ"), 100, m);
	else if ((m = rig_message(wr, WIRE_DONE)) != NULL)
		snprintf(p, 160, "DONE %u %lu credits %u", ((struct wire_done *)m)->status,
			(unsigned long)((struct wire_done *)m)->bytes, ((struct wire_done *)m)->credits);
	else
		snprintf(p, 160, "message %u", ((struct wire_msg *)wr->addr)->type);
	t->n++;
	return true;
}

static void check_lines(const struct transcript *t, const char *const *want, unsigned n)
{
	for (unsigned i = 0; i < t->n || i < n; i++) {
		cr_assert_lt(i, n, "one too many: %s", t->line[i]);
		cr_assert_lt(i, t->n, "missing: %s", want[i]);
		cr_assert_str_eq(t->line[i], want[i], "line %u: %s", i, t->line[i]);
	}
}

static void transcript_of(
	struct rig *r, struct transcript *t, uint64_t offset, uint64_t length, uint32_t flags, const uint8_t *want)
{
	struct ry_cqe cqe;

	rig_tap(r, record, t);
	cqe = rig_read(r, r->client, "k", offset, length, flags);
	rig_tap(r, NULL, NULL);
	cr_assert_eq(cqe.status, RY_OK);
	cr_assert(rig_same(r->client, &cqe, want + offset, length));
	rig_release(r, r->client, cqe.lease_id);
	cr_assert(rig_settle(r));
}

/* 256 KiB stripes: four of them in a READ of 1 MiB, the rest of the object in another; the answers follow in order. */
static const char *const one_rail_lines[] = {
	"BIND 1048576",
	"READ [0 +0 262144 @0] [1 +0 262144 @262144] [2 +0 262144 @524288] [3 +0 262144 @786432]",
	"BIND 262145",
	"READ [4 +0 262144 @0] [5 +0 1 @262144]",
	"WRITE 262144 @0",
	"WRITE 262144 @262144",
	"WRITE 262144 @524288",
	"WRITE 262144 @786432",
	"DONE 0 1048576 credits 1",
	"WRITE 262144 @0",
	"WRITE 1 @262144",
	"DONE 0 262145 credits 1",
	"INV",
	"INV",
};
#define N_ONE_RAIL (sizeof(one_rail_lines) / sizeof(one_rail_lines[0]))

static void sort_answers(struct transcript *t);

/* The order between the two messages' INVs and WRITEs depends on turns; within a message it may not. Moves INVs last.
 */
static void sort_answers(struct transcript *t)
{
	unsigned n = 0, n_inv = 0;

	for (unsigned i = 0; i < t->n; i++) {
		if (!strcmp(t->line[i], "INV")) {
			n_inv++;
			continue;
		}
		memmove(t->line[n], t->line[i], sizeof(t->line[i]));
		n++;
	}
	while (n_inv--)
		snprintf(t->line[n++], sizeof(t->line[0]), "INV");
}

Test(node_wire, transcript_of_one_rail)
{
	struct transcript t = {0};
	uint8_t *data;
	struct rig r;

	rig_init(&r, 1, 0);
	rig_start(&r);
	data = rig_object(&r, "k", 5 * RIG_STRIPE_BYTES + 1, 1);
	transcript_of(&r, &t, 0, 5 * RIG_STRIPE_BYTES + 1, 0, data);
	sort_answers(&t);
	check_lines(&t, one_rail_lines, N_ONE_RAIL);
	free(data);
	rig_stop(&r);
}

/* One of two rails writes what a node with one rail writes. */
Test(node_wire, transcript_of_one_rail_of_two)
{
	struct transcript t = {0};
	uint8_t *data;
	struct rig r;

	rig_init(&r, 2, 0);
	rig_start(&r);
	data = rig_object(&r, "k", 5 * RIG_STRIPE_BYTES + 1, 1);
	transcript_of(&r, &t, 0, 5 * RIG_STRIPE_BYTES + 1, RY_F_ONE_RAIL, data);
	for (unsigned i = 1; i < t.n; i++)
		cr_assert_eq(t.rail_idx[i], t.rail_idx[0]);
	sort_answers(&t);
	check_lines(&t, one_rail_lines, N_ONE_RAIL);
	free(data);
	rig_stop(&r);
}

/* One byte costs its whole stripe, in one message; and this message byte for byte. */
Test(node_wire, bytes_of_a_small_read)
{
	static const char *const want[] = {
		"BIND 262144", "READ [2 +0 262144 @0]", "WRITE 262144 @0", "DONE 0 262144 credits 1", "INV"};
	struct transcript t = {0};
	const struct object *o;
	struct wire_read m;
	struct wire_part p;
	struct wire_done d;
	uint8_t *data;
	struct rig r;

	rig_init(&r, 1, 0);
	rig_start(&r);
	data = rig_object(&r, "k", MIB, 1);
	transcript_of(&r, &t, 2 * RIG_STRIPE_BYTES + 5, 1, 0, data);
	check_lines(&t, want, 5);
	cr_assert_eq(t.len[1], 72u);
	memcpy(&m, t.read[1], sizeof(m));
	memcpy(&p, t.read[1] + sizeof(m), sizeof(p));
	o = store_lookup(r.node->store, "k", 1, r.now_ns);
	cr_assert(m.h.type == 1 && m.h.flags == WIRE_F_START && m.h.len_bytes == 72 && m.h.reserved == 0);
	cr_assert(m.handle == o->source->handle && m.generation == 1 && m.n_parts == 1);
	cr_assert(m.ttl_us > 29900000 && m.ttl_us <= 30000000, "what is left of 30 s");
	cr_assert_neq(m.key, 0u);
	cr_assert(!m.reserved[0] && !m.reserved[1] && !m.reserved[2]);
	cr_assert(p.stripe_idx == 2 && p.len_bytes == RIG_STRIPE_BYTES && p.offset == 0 && p.window_offset == 0);
	memcpy(&d, t.read[3], sizeof(d));
	cr_assert(t.len[3] == 56 && d.h.type == 3 && d.h.len_bytes == 56 && d.h.request_id == m.h.request_id);
	cr_assert(d.generation == 1 && d.storage_ns == 0);
	free(data);
	rig_stop(&r);
}

/* ---- Answers that nobody waits for ---- */

struct echo {
	bool want_twice; /* every DONE goes out twice */
	bool want_keep;  /* DONE and CANCEL are swallowed, the last DONE kept */
	uint32_t credits;
	unsigned n;
	struct rig_kept kept;
};

static bool echo(void *ctx, struct rail *rail, struct wr *wr)
{
	struct echo *e = ctx;
	struct wire_done *m = rig_message(wr, WIRE_DONE);

	if (e->want_keep && rig_message(wr, WIRE_CANCEL))
		return false;
	if (!m)
		return true;
	if (e->credits)
		m->credits = e->credits;
	e->n++;
	rig_keep(&e->kept, rail, wr);
	if (e->want_twice)
		rig_post_kept(&e->kept);
	return !e->want_keep;
}

static void reads(struct rig *r, const char *key, const uint8_t *data, uint64_t bytes)
{
	struct ry_cqe cqe = rig_read(r, r->client, key, 0, UINT64_MAX, 0);

	cr_assert_eq(cqe.status, RY_OK, "%s: %s", key, rig_slot(r->client, &cqe)->cause);
	cr_assert(rig_same(r->client, &cqe, data, bytes));
	rig_release(r, r->client, cqe.lease_id);
	cr_assert(rig_settle(r));
}

/* Credits that the requesters of all QPs have are what their peers granted, when nothing is out. */
static void check_credits(struct rig *r)
{
	for (uint16_t i = 0; i < r->node->n_rails; i++) {
		struct rail *rail = r->node->rails[i];

		for (uint16_t q = 0; q < rail->n_qps; q++)
			cr_assert_eq(rail->qps[q]->credits, RAIL_CREDITS);
		cr_assert_eq(rail->n_active, 0u);
		cr_assert_eq(rail->free_top, RAIL_ACTIVE_MAX);
		cr_assert_eq(stat_get(&rail->counters.inflight_bytes), 0u);
	}
}

static uint64_t late_messages(struct rig *r)
{
	uint64_t n = 0;

	for (uint16_t i = 0; i < r->node->n_rails; i++)
		n += stat_get(&r->node->rails[i]->counters.late_messages);
	return n;
}

static uint32_t odd_messages(struct rig *r)
{
	uint32_t n = 0;

	for (uint16_t i = 0; i < r->node->n_rails; i++) {
		for (uint16_t q = 0; q < r->node->rails[i]->n_qps; q++)
			n += qp_n_odd(r->node->rails[i]->qps[q]);
	}
	return n;
}

Test(node_wire, done_twice)
{
	struct echo e = {.want_twice = true};
	uint8_t *data;
	struct rig r;

	rig_init(&r, 2, 0);
	rig_start(&r);
	data = rig_object(&r, "k", 5 * MIB, 1);
	rig_tap(&r, echo, &e);
	for (int i = 0; i < 20; i++)
		reads(&r, "k", data, 5 * MIB);
	rig_run(&r, MS);
	cr_assert_geq(e.n, 100u);
	cr_assert_eq(late_messages(&r), e.n, "%lu late of %u", (unsigned long)late_messages(&r), e.n);
	check_credits(&r);
	free(data);
	rig_stop(&r);
}

Test(node_wire, done_gives_too_many_credits)
{
	struct echo e = {.credits = UINT32_MAX};
	uint8_t *data;
	struct rig r;

	rig_init(&r, 1, 0);
	rig_start(&r);
	data = rig_object(&r, "k", 5 * MIB, 1);
	rig_tap(&r, echo, &e);
	for (int i = 0; i < 10; i++) {
		uint64_t t = rig_submit_read(&r, r.client, "k", 0, UINT64_MAX, 0, 0);

		for (int k = 0; k < 200; k++) {
			rig_step(&r);
			for (uint16_t q = 0; q < r.node->rails[0]->n_qps; q++)
				cr_assert_leq(r.node->rails[0]->qps[q]->credits, RAIL_CREDITS);
		}
		rig_release(&r, r.client, rig_wait(&r, r.client, t).lease_id);
	}
	cr_assert(rig_settle(&r));
	check_credits(&r);
	reads(&r, "k", data, 5 * MIB);
	free(data);
	rig_stop(&r);
}

Test(node_wire, done_after_the_fence)
{
	struct echo e = {.want_keep = true};
	struct ry_cqe cqe;
	uint8_t *data;
	struct rig r;

	rig_init(&r, 1, 0);
	r.config.fence_timeout_ns = 5 * MS;
	rig_start(&r);
	data = rig_object(&r, "k", 100000, 1);
	rig_tap(&r, echo, &e);
	cqe = rig_wait(&r, r.client, rig_submit_read(&r, r.client, "k", 0, UINT64_MAX, 0, r.now_ns + 3 * MS));
	cr_assert_eq(cqe.status, RY_ERR_TIMEOUT);
	cr_assert(rig_settle(&r));
	cr_assert_eq(stat_get(&r.node->rails[0]->counters.fences), 1u);
	cr_assert_eq(e.n, 1u);
	rig_tap(&r, NULL, NULL);
	rig_post_kept(&e.kept);
	rig_run(&r, MS);
	cr_assert_eq(late_messages(&r), 1u);
	cr_assert_eq(odd_messages(&r), 0u, "honest, if slow");
	check_credits(&r); /* its credit is good all the same */
	reads(&r, "k", data, 100000);
	/* Once more, while the slot is used by another segment. */
	rig_submit_read(&r, r.client, "k", 0, UINT64_MAX, 0, 0);
	while (!r.node->rails[0]->n_active)
		rig_step(&r);
	rig_post_kept(&e.kept);
	rig_run(&r, MS);
	cr_assert_eq(late_messages(&r), 2u);
	cr_assert_eq(odd_messages(&r), 1u, "one more than was owed");
	cr_assert(rig_reap(&r, r.client, &cqe) && rig_same(r.client, &cqe, data, 100000));
	rig_release(&r, r.client, cqe.lease_id);
	cr_assert(rig_settle(&r));
	free(data);
	rig_stop(&r);
}

Test(node_wire, unknown_request_ids)
{
	struct echo e = {0};
	struct wire_done *m;
	uint8_t *data;
	struct rig r;

	rig_init(&r, 1, 0);
	rig_start(&r);
	data = rig_object(&r, "k", 100000, 1);
	rig_tap(&r, echo, &e);
	reads(&r, "k", data, 100000);
	m = (void *)e.kept.msg;
	for (uint64_t id = 0; id < 20; id++) {
		m->h.request_id = id * 0x9e3779b97f4a7c15ull;
		rig_post_kept(&e.kept);
		rig_step(&r);
	}
	rig_run(&r, MS);
	cr_assert_eq(late_messages(&r), 20u);
	check_credits(&r);
	reads(&r, "k", data, 100000);
	free(data);
	rig_stop(&r);
}

/* A CANCEL of a request that was answered, or never was. */
Test(node_wire, cancel_of_an_unknown_request)
{
	struct echo e = {0};
	struct wire_cancel m = {.h = {.type = WIRE_CANCEL, .len_bytes = sizeof(m), .request_id = 77}};
	uint8_t *data;
	struct rig r;

	rig_init(&r, 1, 0);
	rig_start(&r);
	data = rig_object(&r, "k", 100000, 1);
	rig_tap(&r, echo, &e);
	reads(&r, "k", data, 100000);
	memcpy(e.kept.msg, &m, sizeof(m));
	e.kept.wr.len_bytes = sizeof(m);
	rig_post_kept(&e.kept);
	rig_run(&r, MS);
	cr_assert_eq(late_messages(&r), 1u);
	reads(&r, "k", data, 100000);
	check_credits(&r);
	free(data);
	rig_stop(&r);
}
