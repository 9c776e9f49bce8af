/* SPDX-License-Identifier: BSD-3-Clause */
/* Puts over windows that a device checks: lost QPs, full send queues, and everything at once. */
#include "node_windows_fixture.h"

#define BIG (3u * MIB)

/* ---- loss of a QP ---- */

static void lost_at_every_turn(enum loss how, bool is_writer)
{
	unsigned n_granted = 0, n_ok = 0;
	uint8_t *data = filled(BIG);
	struct rig r;

	begin(&r, 2, 500000000);
	for (unsigned turn = 0; turn < 300; turn += 7) {
		unsigned n_fences = rig_windows()->n_fences;
		uint64_t t = submit_put(&r, "k", data, BIG);
		struct ry_cqe cqe;

		rig_run(&r, turn * RIG_STEP_NS);
		n_granted += r.node->rails[0]->n_grants != 0;
		lose(&r, 0, is_writer ? dialled(&r, 0) : accepted(&r, 0), how);
		cqe = ends(&r, t, NULL, 0);
		cr_assert(cqe.status == RY_OK || cqe.status == RY_ERR_RAIL || cqe.status == RY_ERR_NO_RAIL,
			"turn %u: %u: %s", turn, cqe.status, rig_slot(r.client, &cqe)->cause);
		n_ok += cqe.status == RY_OK;
		rig_run(&r, 30 * MS);
		cr_assert_gt(rig_windows()->n_fences, n_fences);
		rests(&r);
	}
	cr_assert(n_granted > 10 && n_ok > 10, "%u, %u", n_granted, n_ok);
	puts_well(&r, data, BIG);
	free(data);
	rig_stop(&r);
}

Test(node_grants, writer_gives_its_qp_up)
{
	lost_at_every_turn(LOSS_GIVEN_UP, true);
}

Test(node_grants, writer_loses_its_qp)
{
	lost_at_every_turn(LOSS_BROKEN, true);
}

Test(node_grants, store_gives_its_qp_up)
{
	lost_at_every_turn(LOSS_GIVEN_UP, false);
}

Test(node_grants, store_loses_its_qp)
{
	lost_at_every_turn(LOSS_BROKEN, false);
}

/* The writer's QP is gone and not fenced yet: its memory stays with the put. */
Test(node_grants, source_waits_for_the_fence)
{
	uint8_t *data = filled(BIG);
	struct ry_cqe cqe;
	struct rig r;
	uint64_t t;

	begin(&r, 1, 100000000);
	t = submit_put(&r, "k", data, BIG);
	while (!r.node->rails[0]->n_grants)
		rig_step(&r);
	rig_run(&r, 2 * MS);
	is_fence_held = true;
	lose(&r, 0, dialled(&r, 0), LOSS_GIVEN_UP);
	rig_run(&r, 100 * MS);
	cr_assert(!rig_reap(&r, r.client, &cqe), "complete before its fence");
	cr_assert_gt(r.node->rails[0]->n_grants, 0u);
	is_fence_held = false;
	ends(&r, t, NULL, 0);
	rests(&r);
	puts_well(&r, data, BIG);
	free(data);
	rig_stop(&r);
}

/* ---- no room ---- */

/* The send queue takes one work request in three: every retry of READ, PULLED, GRANT and INV is walked. */
static unsigned n_posts;
static transport_post_fn real_post;

static uint16_t scarce_post(struct rail *rail, const struct wr *wr, uint16_t n)
{
	if (n_posts++ % 3)
		return 0;
	/* A BIND goes with the SEND behind it, or not at all. */
	return real_post(rail, wr, wr->op == WR_BIND && n > 1 ? 2 : 1);
}

Test(node_grants, full_send_queue)
{
	uint8_t *data = filled(BIG);
	struct rig r;

	begin(&r, 2, 0);
	real_post = r.node->rails[0]->post;
	for (int i = 0; i < 2; i++)
		r.node->rails[i]->post = scarce_post;
	for (int i = 0; i < 5; i++)
		puts_well(&r, data, BIG);
	cr_assert_gt(SUM(&r, sq_full), 50u, "it was full");
	cr_assert(rig_windows()->n_fences == 0 && rig_windows()->n_losses == 0);
	free(data);
	rig_stop(&r);
}

/* ---- everything at once ---- */

static bool noise(void *ctx, struct rail *rail, struct wr *wr)
{
	const struct wire_msg *m = wr->addr;
	unsigned *n = ctx;

	if (wr->op != WR_SEND || m->type == WIRE_PING || m->type == WIRE_PONG || random() % 40)
		return true;
	(*n)++;
	return false;
}

static void one_round(struct rig *r, const uint8_t *data, unsigned *n_lost)
{
	uint64_t read = rig_submit_read(r, r->client, "k", 0, UINT64_MAX, random() % 2 ? RY_F_FAILOVER : 0, 0);
	uint64_t put_ticket = submit_put(r, "other", data, BIG);
	struct ry_cqe cqe;
	unsigned n_ended = 0;

	rig_tap(r, noise, n_lost);
	rig_run(r, (uint64_t)random() % (12 * MS));
	if (random() % 4 == 0)
		rig_cancel(r, r->client, read);
	if (random() % 4 == 0)
		cancel_pulls(r);
	if (random() % 2)
		lose(r, (uint16_t)(random() % 3), random() % 2 ? dialled(r, 0) : accepted(r, 0), LOSS_BROKEN);
	for (uint64_t end = r->now_ns + 90000 * MS; n_ended < 2 && r->now_ns < end; rig_step(r)) {
		while (rig_reap(r, r->client, &cqe)) {
			n_ended += cqe.ticket == read || cqe.ticket == put_ticket;
			cr_assert(cqe.ticket != read || cqe.status != RY_OK || rig_same(r->client, &cqe, data, BIG));
			if (cqe.ticket == read && cqe.status == RY_OK)
				rig_release(r, r->client, cqe.lease_id);
		}
	}
	cr_assert_eq(n_ended, 2u, "never ends");
	rig_tap(r, NULL, NULL);
	rests(r);
}

Test(node_grants, noise)
{
	unsigned n_lost = 0, seed = 4711;
	uint8_t *data = filled(BIG);
	struct rig r;

	fprintf(stderr, "seed %u\n", seed);
	srandom(seed);
	read_deadline_ns = 1000 * MS;
	begin(&r, 3, 300000000);
	cr_assert_eq(ends(&r, submit_put(&r, "k", data, BIG), NULL, 0).status, RY_OK);
	for (int i = 0; i < 25; i++)
		one_round(&r, data, &n_lost);
	cr_assert(n_lost > 10 && rig_windows()->n_fenced_open > 10, "%u lost, %u fenced", n_lost,
		rig_windows()->n_fenced_open);
	reads(&r, "k", data, BIG, 0);
	free(data);
	rig_stop(&r);
}
