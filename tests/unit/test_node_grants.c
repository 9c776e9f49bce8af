/* SPDX-License-Identifier: BSD-3-Clause */
/* Puts over windows that a device checks: PULL, GRANT, RDMA READ, PULLED, and everything that comes between them. */
#include "node_windows_fixture.h"

#define BIG (3u * MIB)

/* What one put's messages are turned into. */
struct spy {
	uint8_t swallow; /* this type */
	uint8_t keep;    /* the last one of this type, and */
	uint8_t twice;   /* each of this type is sent again at once */
	uint32_t grant_key_xor, grant_bytes_add, pulled_cookie_add;
	uint64_t pulled_id_add;
	bool want_cancel_too; /* behind each PULLED */
	unsigned n_changed;   /* swallowed, kept or changed */
	struct rig_kept kept;
	unsigned n_lines;
	char lines[64][32];
};

static void note(struct spy *s, const struct wr *wr)
{
	static const char *const ops[] = {
		[WR_WRITE] = "WRITE", [WR_READ] = "READ", [WR_BIND] = "BIND", [WR_INV] = "INV"};
	static const char *const types[] = {[WIRE_READ] = "read",
		[WIRE_PULL] = "PULL",
		[WIRE_DONE] = "DONE",
		[WIRE_CANCEL] = "CANCEL",
		[WIRE_BUSY] = "BUSY",
		[WIRE_PING] = "PING",
		[WIRE_PONG] = "PONG",
		[WIRE_GRANT] = "GRANT",
		[WIRE_PULLED] = "PULLED"};
	const struct wire_msg *m = wr->addr;

	if (s->n_lines == 64)
		return;
	if (wr->op == WR_BIND)
		snprintf(s->lines[s->n_lines++], 32, "BIND %s %lu", wr->window->access == WINDOW_READS ? "r" : "w",
			(unsigned long)wr->window->len_bytes);
	else if (wr->op == WR_READ)
		snprintf(s->lines[s->n_lines++], 32, "READ %u @%lu", wr->len_bytes, (unsigned long)wr->offset);
	else
		snprintf(s->lines[s->n_lines++], 32, "%s", wr->op == WR_SEND ? types[m->type] : ops[wr->op]);
}

static bool change(struct spy *s, struct wr *wr)
{
	struct wire_grant *g = rig_message(wr, WIRE_GRANT);
	struct wire_pulled *p = rig_message(wr, WIRE_PULLED);

	if (g) {
		g->key ^= s->grant_key_xor;
		g->bytes += s->grant_bytes_add;
	}
	if (p) {
		p->cookie += s->pulled_cookie_add;
		p->h.request_id += s->pulled_id_add;
	}
	return (g && (s->grant_key_xor || s->grant_bytes_add)) || (p && (s->pulled_cookie_add || s->pulled_id_add));
}

/* A CANCEL of the same request, right behind it. */
static void cancel_too(struct spy *s, struct rail *rail, const struct wr *wr)
{
	struct wire_cancel m = {.h = ((const struct wire_pulled *)wr->addr)->h};

	rig_keep(&s->kept, rail, wr);
	rig_post_kept(&s->kept);
	m.h.type = WIRE_CANCEL;
	m.h.len_bytes = sizeof(m);
	memcpy(s->kept.msg, &m, sizeof(m));
	s->kept.wr.len_bytes = sizeof(m);
	rig_post_kept(&s->kept);
	s->n_changed++;
}

static bool spy(void *ctx, struct rail *rail, struct wr *wr)
{
	struct spy *s = ctx;
	const struct wire_msg *m = wr->addr;

	note(s, wr);
	if (wr->op != WR_SEND)
		return true;
	s->n_changed += change(s, wr);
	if (m->type == WIRE_PULLED && s->want_cancel_too) {
		cancel_too(s, rail, wr);
		return false;
	}
	if (m->type == s->keep || m->type == s->twice) {
		rig_keep(&s->kept, rail, wr);
		s->n_changed++;
	}
	if (m->type == s->twice)
		rig_post_kept(&s->kept);
	if (m->type != s->swallow)
		return true;
	s->n_changed++;
	return false;
}

static struct segment *a_pull(struct rig *r)
{
	for (uint16_t i = 0; i < r->node->n_rails; i++) {
		for (unsigned k = 0; k < RAIL_ACTIVE_MAX; k++) {
			struct segment *s = r->node->rails[i]->active[k];

			if (s && s->kind == SEG_PULL)
				return s;
		}
	}
	return NULL;
}

static uint64_t late(struct rig *r)
{
	return SUM(r, late_messages);
}

/* Of either end of all that are up. */
static uint32_t odd(struct rig *r)
{
	uint32_t n = 0;

	for (uint16_t i = 0; i < r->node->n_rails; i++) {
		for (uint16_t q = 0; q < r->node->rails[i]->n_qps; q++)
			n += qp_n_odd(r->node->rails[i]->qps[q]);
	}
	return n;
}

/* ---- the good case ---- */

Test(node_grants, transcript_of_a_put)
{
	static const char *const want[] = {"PULL", "BIND r 100000", "GRANT", "READ 100000 @0", "PULLED", "INV"};
	struct spy s = {0};
	uint8_t *data = filled(100000);
	struct rig r;

	begin(&r, 1, 0);
	rig_tap(&r, spy, &s);
	cr_assert_eq(ends(&r, submit_put(&r, "k", data, 100000), NULL, 0).status, RY_OK);
	rig_run(&r, MS);
	cr_assert_eq(s.n_lines, 6u);
	for (unsigned i = 0; i < 6; i++)
		cr_assert_str_eq(s.lines[i], want[i], "line %u: %s", i, s.lines[i]);
	rig_tap(&r, NULL, NULL);
	rests(&r);
	reads(&r, "k", data, 100000, 0);
	free(data);
	rig_stop(&r);
}

Test(node_grants, puts_over_all_rails)
{
	uint8_t *data = filled(15 * MIB + 5);
	struct rig r;

	begin(&r, 4, 300000000);
	for (int i = 0; i < 5; i++)
		puts_well(&r, data, 15 * MIB + 5);
	cr_assert_eq(rig_windows()->read_bytes, 5 * (15ull * MIB + 5));
	cr_assert(rig_windows()->n_grants == rig_windows()->n_pulled && rig_windows()->n_losses == 0);
	for (int i = 0; i < 4; i++)
		cr_assert_gt(stat_get(&r.node->rails[i]->counters.rx_bytes), 5u * MIB, "rail %d", i);
	free(data);
	rig_stop(&r);
}

/* ---- cancel ---- */

/* Before GRANT, with GRANT on its way, in mid-READ, with PULLED out. */
Test(node_grants, cancel_at_every_turn)
{
	unsigned n_none = 0, n_reading = 0, n_failed = 0;
	uint8_t *data = filled(BIG);
	struct rig r;

	latency_ns = 100000;
	fence_timeout_ns = 100 * MS;
	begin(&r, 2, 500000000);
	for (unsigned turn = 0; turn < 300; turn += 2) {
		uint64_t t = submit_put(&r, "k", data, BIG);
		struct segment *s;
		struct ry_cqe cqe;
		bool is_given_up;

		rig_run(&r, turn * RIG_STEP_NS);
		s = a_pull(&r);
		n_none += s && s->grant == SEG_GRANT_NONE;
		n_reading += s && s->grant == SEG_GRANT_READING;
		is_given_up = cancel_pulls(&r) != 0;
		cqe = ends(&r, t, NULL, 0);
		n_failed += cqe.status != RY_OK;
		cr_assert(is_given_up == (cqe.status == RY_ERR_CANCELLED), "turn %u: %u", turn, cqe.status);
		rests(&r);
	}
	cr_assert(n_none > 1 && n_reading > 10 && n_failed > 30, "%u, %u, %u", n_none, n_reading, n_failed);
	cr_assert(rig_windows()->n_cancels > 3 && rig_windows()->n_fences == 0, "%u CANCELs", rig_windows()->n_cancels);
	puts_well(&r, data, BIG);
	free(data);
	rig_stop(&r);
}

/* CANCEL and GRANT pass each other: the writer closes on CANCEL, the GRANT is dropped and nothing is read. */
Test(node_grants, cancel_crosses_grant)
{
	struct spy s = {.swallow = WIRE_GRANT, .keep = WIRE_GRANT};
	uint8_t *data = filled(100000);
	struct rig r;
	uint64_t t;

	fence_timeout_ns = 100 * MS;
	begin(&r, 1, 0);
	rig_tap(&r, spy, &s);
	t = submit_put(&r, "k", data, 100000);
	while (!s.n_changed)
		rig_step(&r);
	cr_assert_eq(r.node->rails[0]->n_grants, 1u);
	cancel_pulls(&r);
	rig_step(&r);
	cr_assert_eq(a_pull(&r)->state, SEG_CANCELLING);
	rig_post_kept(&s.kept); /* behind the CANCEL's posting, before its answer */
	cr_assert_eq(ends(&r, t, NULL, 0).status, RY_ERR_CANCELLED);
	rig_tap(&r, NULL, NULL);
	rests(&r);
	cr_assert(rig_windows()->n_reads == 0 && rig_windows()->n_cancels == 1 && rig_windows()->n_invs == 1);
	rig_post_kept(&s.kept); /* and later still */
	rig_run(&r, MS);
	cr_assert_eq(late(&r), 1u);
	cr_assert_eq(rig_windows()->n_reads, 0u);
	puts_well(&r, data, 100000);
	free(data);
	rig_stop(&r);
}

/* A GRANT that comes when its slot is another PULL's. */
Test(node_grants, late_grant_reads_nothing)
{
	struct spy s = {.keep = WIRE_GRANT};
	uint8_t *data = filled(100000);
	struct rig r;
	uint64_t t;

	begin(&r, 1, 20000000);
	rig_tap(&r, spy, &s);
	cr_assert_eq(ends(&r, submit_put(&r, "k", data, 100000), NULL, 0).status, RY_OK);
	rig_tap(&r, NULL, NULL);
	rests(&r);
	t = submit_put(&r, "k", data, 100000);
	while (!a_pull(&r))
		rig_step(&r);
	rig_post_kept(&s.kept);
	cr_assert_eq(ends(&r, t, NULL, 0).status, RY_OK);
	cr_assert_eq(late(&r), 1u);
	cr_assert_eq(rig_windows()->n_reads, 2u);
	rests(&r);
	cr_assert_eq(rig_windows()->n_fences, 0u);
	free(data);
	rig_stop(&r);
}

/* A second GRANT for a PULL that is being read changes nothing. */
Test(node_grants, grant_twice)
{
	struct spy s = {.twice = WIRE_GRANT};
	uint8_t *data = filled(BIG);
	struct rig r;

	begin(&r, 1, 100000000);
	rig_tap(&r, spy, &s);
	cr_assert_eq(ends(&r, submit_put(&r, "k", data, BIG), NULL, 0).status, RY_OK);
	rig_tap(&r, NULL, NULL);
	rests(&r);
	cr_assert(s.n_changed > 1 && late(&r) == s.n_changed, "%lu late of %u", (unsigned long)late(&r), s.n_changed);
	cr_assert_eq(rig_windows()->read_bytes, BIG);
	cr_assert_eq(rig_windows()->n_fences, 0u);
	reads(&r, "k", data, BIG, 0);
	free(data);
	rig_stop(&r);
}

/* ---- a writer that is wrong ---- */

/* Its GRANT names a window that is not: the READ is refused, both QPs end, no byte arrives. */
Test(node_grants, read_through_no_window_ends_both_qps)
{
	struct spy s = {.grant_key_xor = 1};
	uint8_t *data = filled(100000);
	struct rig r;

	begin(&r, 1, 0);
	rig_tap(&r, spy, &s);
	cr_assert_eq(ends(&r, submit_put(&r, "k", data, 100000), NULL, 0).status, RY_ERR_RAIL);
	rig_tap(&r, NULL, NULL);
	cr_assert(s.n_changed == 1 && rig_windows()->n_access == 1, "%u", rig_windows()->n_access);
	cr_assert_eq(SUM(&r, qp_failures), 2u);
	rests(&r);
	cr_assert_eq(rig_windows()->n_fenced_open, 1u);
	puts_well(&r, data, 100000);
	free(data);
	rig_stop(&r);
}

/* Another length than was asked for: not read, and cancelled when its time is over. */
Test(node_grants, grant_of_another_length)
{
	struct spy s = {.grant_bytes_add = 1};
	uint8_t *data = filled(100000);
	struct rig r;
	uint64_t t;

	fence_timeout_ns = 100 * MS;
	begin(&r, 1, 0);
	rig_tap(&r, spy, &s);
	t = submit_put(&r, "k", data, 100000);
	while (!s.n_changed)
		rig_step(&r);
	rig_run(&r, MS);
	cr_assert_eq(SUM(&r, protocol_errors), 1u);
	cr_assert_eq(rig_windows()->n_reads, 0u);
	rig_tap(&r, NULL, NULL);
	cancel_pulls(&r);
	cr_assert_eq(ends(&r, t, NULL, 0).status, RY_ERR_CANCELLED);
	rests(&r);
	cr_assert(rig_windows()->n_reads == 0 && rig_windows()->n_invs == 1 && rig_windows()->n_fences == 0);
	puts_well(&r, data, 100000);
	free(data);
	rig_stop(&r);
}

/* ---- PULLED ---- */

Test(node_grants, pulled_twice)
{
	struct spy s = {.twice = WIRE_PULLED};
	uint8_t *data = filled(BIG);
	struct rig r;

	read_deadline_ns = 1000 * MS;
	begin(&r, 1, 0);
	rig_tap(&r, spy, &s);
	cr_assert_eq(ends(&r, submit_put(&r, "k", data, BIG), NULL, 0).status, RY_OK);
	rig_run(&r, MS);
	cr_assert(s.n_changed > 1 && late(&r) == s.n_changed, "%lu of %u", (unsigned long)late(&r), s.n_changed);
	cr_assert_eq(odd(&r), 0, "late, no more");
	rig_tap(&r, NULL, NULL);
	rests(&r);
	/* Once more, while the request's place is another's. */
	s.n_changed = 0;
	s.twice = 0;
	s.swallow = WIRE_PULLED;
	rig_tap(&r, spy, &s);
	submit_put(&r, "other", data, 100000);
	while (!s.n_changed)
		rig_step(&r);
	rig_post_kept(&s.kept);
	rig_run(&r, MS);
	cr_assert_eq(r.node->rails[0]->n_grants, 1u, "the window of another was closed");
	rig_tap(&r, NULL, NULL);
	rests(&r);
	free(data);
	rig_stop(&r);
}

/* A peer that ends its request twice: the window is closed once. */
Test(node_grants, cancel_twice)
{
	struct spy s = {.swallow = WIRE_GRANT, .twice = WIRE_CANCEL};
	uint8_t *data = filled(100000);
	struct rig r;
	uint64_t t;

	fence_timeout_ns = 100 * MS;
	begin(&r, 1, 0);
	rig_tap(&r, spy, &s);
	t = submit_put(&r, "k", data, 100000);
	while (!s.n_changed)
		rig_step(&r);
	cancel_pulls(&r);
	cr_assert_eq(ends(&r, t, NULL, 0).status, RY_ERR_CANCELLED);
	rig_run(&r, MS);
	cr_assert(rig_windows()->n_cancels == 2 && rig_windows()->n_invs == 1, "%u", rig_windows()->n_cancels);
	rig_tap(&r, NULL, NULL);
	rests(&r);
	puts_well(&r, data, 100000);
	free(data);
	rig_stop(&r);
}

Test(node_grants, cancel_behind_pulled)
{
	struct spy s = {.want_cancel_too = true};
	uint8_t *data = filled(BIG);
	struct rig r;

	begin(&r, 1, 0);
	rig_tap(&r, spy, &s);
	for (int i = 0; i < 3; i++)
		puts_well(&r, data, BIG);
	cr_assert_eq(late(&r), s.n_changed, "%lu of %u", (unsigned long)late(&r), s.n_changed);
	cr_assert_eq(rig_windows()->n_fences, 0u);
	rig_tap(&r, NULL, NULL);
	free(data);
	rig_stop(&r);
}

/* A window that nobody gives back: its put is not complete, because its source could still be read, until grant_expire
 * and the fence. */
static void kept_past_its_time(struct spy s, uint32_t n_odd)
{
	uint8_t *data = filled(100000);
	struct ry_cqe cqe;
	struct rig r;
	uint64_t t;

	read_deadline_ns = 1000 * MS;
	begin(&r, 1, 0);
	rig_tap(&r, spy, &s);
	t = submit_put(&r, "k", data, 100000);
	while (!s.n_changed)
		rig_step(&r);
	rig_tap(&r, NULL, NULL);
	rig_run(&r, 1900 * MS);
	cr_assert_eq(r.node->rails[0]->n_grants, 1u, "it is kept");
	cr_assert(odd(&r) == n_odd && late(&r) == n_odd, "%u", odd(&r));
	cr_assert(!rig_reap(&r, r.client, &cqe), "complete, and the peer may still read its memory");
	cr_assert_eq(rig_windows()->n_losses + rig_windows()->n_fences, 0u);
	is_fence_held = true;
	rig_run(&r, 300 * MS);
	cr_assert_eq(SUM(&r, qp_failures), 1u, "given up");
	cr_assert(!rig_reap(&r, r.client, &cqe), "complete before its fence");
	is_fence_held = false;
	cqe = ends(&r, t, NULL, 0);
	cr_assert_eq(cqe.status, RY_OK, "%s", rig_slot(r.client, &cqe)->cause);
	cr_assert(rig_windows()->n_fenced_open == 1 && rig_windows()->n_invs == 0);
	rests(&r);
	reads(&r, "k", data, 100000, 0);
	deletes(&r, "k");
	free(data);
	rig_stop(&r);
}

Test(node_grants, pulled_never_comes)
{
	kept_past_its_time((struct spy){.swallow = WIRE_PULLED}, 0);
}

Test(node_grants, pulled_with_another_cookie)
{
	kept_past_its_time((struct spy){.pulled_cookie_add = 1}, 1);
}

Test(node_grants, pulled_with_a_cookie_out_of_bounds)
{
	kept_past_its_time((struct spy){.pulled_cookie_add = RAIL_SERVE_MAX}, 1);
}

Test(node_grants, pulled_of_another_request)
{
	kept_past_its_time((struct spy){.pulled_id_add = 256}, 1);
}

/* The rail sleeps until then, and no longer. */
Test(node_grants, the_rail_wakes_up_for_a_kept_window)
{
	struct spy s = {.swallow = WIRE_PULLED};
	uint8_t *data = filled(100000);
	uint64_t next;
	struct rig r;

	read_deadline_ns = 1000 * MS;
	begin(&r, 1, 0);
	cr_assert_eq(rail_next_timer(r.node->rails[0]), UINT64_MAX);
	rig_tap(&r, spy, &s);
	submit_put(&r, "k", data, 100000);
	while (!s.n_changed)
		rig_step(&r);
	rig_tap(&r, NULL, NULL);
	next = rail_next_timer(r.node->rails[0]);
	cr_assert(next > r.now_ns + 1900 * MS && next <= r.now_ns + 2000 * MS, "in %lu ms",
		(unsigned long)((next - r.now_ns) / MS));
	rests(&r);
	free(data);
	rig_stop(&r);
}
