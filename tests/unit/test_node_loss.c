/* SPDX-License-Identifier: BSD-3-Clause */
/* Loss of a rail in mid-read, with and without failover, by accident or by a fence. */
#include "node_rails_fixture.h"

/* ---- Loss of a rail in mid-read ---- */

static void lose(struct rig *r, uint16_t rail)
{
	struct qp *qp = dialled(r, rail);

	cr_assert_not_null(qp);
	rail_qp_down(r->node->rails[rail], qp, WC_ERR_RETRY, true);
}

static void until_reconnected(struct rig *r, uint16_t rail)
{
	for (uint64_t end = r->now_ns + 5000 * MS; r->now_ns < end; rig_step(r)) {
		if (dialled(r, rail) && eligible_rails(r->node->control, 0) >> rail & 1)
			return;
	}
	cr_assert_fail("rail %u does not come back", rail);
}

static void lost_in_mid_read(uint32_t flags, uint16_t rail)
{
	struct ry_cqe cqe;
	uint64_t ticket;
	uint8_t *data;
	struct rig r;

	rig_init(&r, 4, 100000000);
	rig_start(&r);
	data = put(&r, "k", 15 * MIB, MIB);
	ticket = rig_submit_read(&r, r.client, "k", 0, UINT64_MAX, flags, 0);
	rig_run(&r, 10 * MS);
	cr_assert_gt(r.node->control->rails[rail].inflight_bytes, 0u);
	lose(&r, rail);
	cqe = rig_wait(&r, r.client, ticket);
	if (flags & RY_F_FAILOVER) {
		cr_assert_eq(cqe.status, RY_OK, "%s", rig_slot(r.client, &cqe)->cause);
		cr_assert(rig_same(r.client, &cqe, data, 15 * MIB));
		cr_assert_eq(stats(&r, &cqe)->hashed_bytes, 15 * MIB);
		cr_assert_lt(rail_bytes(&r, &cqe, rail), 3 * MIB);
		rig_release(&r, r.client, cqe.lease_id);
	} else {
		cr_assert_eq(cqe.status, RY_ERR_RAIL);
		cr_assert_eq(cqe.rail_idx, rail);
		cr_assert(strstr(rig_slot(r.client, &cqe)->cause, r.config.rails[rail].name), "%s",
			rig_slot(r.client, &cqe)->cause);
		cr_assert(cqe.lease_id == 0 && cqe.bytes == 0);
	}
	cr_assert(rig_settle(&r));
	reads(&r, "k", data, 15 * MIB, 0); /* over whatever is up */
	until_reconnected(&r, rail);
	cqe = reads(&r, "k", data, 15 * MIB, 0);
	cr_assert_gt(rail_bytes(&r, &cqe, rail), 2 * MIB, "it carries bytes again");
	cr_assert(rig_settle(&r));
	free(data);
	rig_stop(&r);
}

Test(node_loss, lost_rail_fails_the_read)
{
	lost_in_mid_read(0, 2);
}

Test(node_loss, lost_first_rail_fails_the_read)
{
	lost_in_mid_read(0, 0);
}

Test(node_loss, lost_rail_and_failover)
{
	lost_in_mid_read(RY_F_FAILOVER, 1);
}

/* At any moment of the read, of split stripes too. */
Test(node_loss, failover_at_any_time)
{
	uint8_t *data;
	struct rig r;

	srandom(17);
	rig_init(&r, 3, 300000000);
	r.config.rails[1].mock.bandwidth_bytes_per_s = 100000000;
	rig_start(&r);
	data = put(&r, "k", 13 * MIB + 5, 4 * MIB);
	for (int i = 0; i < 12; i++) {
		uint16_t rail = (uint16_t)(random() % 3);
		struct ry_cqe cqe;
		uint64_t t = rig_submit_read(&r, r.client, "k", 0, UINT64_MAX, RY_F_FAILOVER, 0);

		rig_run(&r, (uint64_t)random() % (18 * MS));
		lose(&r, rail);
		cqe = rig_wait(&r, r.client, t);
		cr_assert_eq(cqe.status, RY_OK, "%d: %s", i, rig_slot(r.client, &cqe)->cause);
		cr_assert(rig_same(r.client, &cqe, data, 13 * MIB + 5));
		cr_assert_eq(stats(&r, &cqe)->hashed_bytes, 13 * MIB + 5);
		rig_release(&r, r.client, cqe.lease_id);
		cr_assert(rig_settle(&r));
		until_reconnected(&r, rail);
	}
	free(data);
	rig_stop(&r);
}

Test(node_loss, all_rails_lost)
{
	struct ry_cqe cqe;
	uint64_t ticket;
	uint8_t *data;
	struct rig r;

	rig_init(&r, 2, 100000000);
	rig_start(&r);
	data = put(&r, "k", 8 * MIB, MIB);
	ticket = rig_submit_read(&r, r.client, "k", 0, UINT64_MAX, RY_F_FAILOVER, 0);
	rig_run(&r, 5 * MS);
	lose(&r, 0);
	lose(&r, 1);
	cqe = rig_wait(&r, r.client, ticket);
	cr_assert(cqe.status == RY_ERR_NO_RAIL || cqe.status == RY_OK, "%u", cqe.status);
	if (cqe.status == RY_OK)
		rig_release(&r, r.client, cqe.lease_id);
	cr_assert(rig_settle(&r));
	until_reconnected(&r, 0);
	until_reconnected(&r, 1);
	reads(&r, "k", data, 8 * MIB, 0);
	cr_assert(rig_settle(&r));
	free(data);
	rig_stop(&r);
}

Test(node_loss, one_rail_read_loses_its_rail)
{
	struct ry_cqe cqe;
	uint64_t ticket;
	uint8_t *data;
	struct rig r;

	rig_init(&r, 2, 100000000);
	rig_start(&r);
	data = put(&r, "k", 8 * MIB, MIB);
	ticket = rig_submit_read(&r, r.client, "k", 0, UINT64_MAX, RY_F_ONE_RAIL, 0);
	rig_run(&r, 5 * MS);
	lose(&r, r.node->control->rails[0].inflight_bytes ? 0 : 1);
	cqe = rig_wait(&r, r.client, ticket);
	cr_assert_eq(cqe.status, RY_ERR_RAIL);
	cr_assert(rig_settle(&r));
	reads(&r, "k", data, 8 * MIB, RY_F_ONE_RAIL);
	free(data);
	rig_stop(&r);
}

/* A transport whose fence costs the QP: what else is on it ends once, also what is already closing. */
static int fence_kills(struct rail *rail, struct window *window)
{
	return 1;
}

static bool swallow_cancel(void *ctx, struct rail *rail, struct wr *wr)
{
	return !rig_message(wr, WIRE_CANCEL);
}

Test(node_loss, fence_that_costs_the_qp)
{
	uint8_t *data;
	struct rig r;

	srandom(23);
	rig_init(&r, 2, 200000000);
	r.config.fence_timeout_ns = 3 * MS;
	rig_start(&r);
	data = put(&r, "k", 6 * MIB, STRIPE);
	for (int i = 0; i < 2; i++)
		r.node->rails[i]->ops.fence = fence_kills;
	for (int i = 0; i < 10; i++) {
		uint64_t bad = rig_submit_read(&r, r.client, "k", 0, UINT64_MAX, 0, 0), good;
		struct ry_cqe cqe;

		good = rig_submit_read(&r, r.client, "k", 0, UINT64_MAX, RY_F_FAILOVER, 0);
		rig_run(&r, (uint64_t)random() % (10 * MS));
		rig_tap(&r, swallow_cancel, NULL);
		rig_cancel(&r, r.client, bad);
		cqe = rig_wait(&r, r.client, good);
		cr_assert(cqe.status == RY_OK || cqe.status == RY_ERR_NO_RAIL, "%d: %s", i,
			rig_slot(r.client, &cqe)->cause);
		if (cqe.status == RY_OK) {
			cr_assert(rig_same(r.client, &cqe, data, 6 * MIB));
			rig_release(&r, r.client, cqe.lease_id);
		}
		rig_run(&r, 5 * MS);
		rig_tap(&r, NULL, NULL);
		while (rig_reap(&r, r.client, &cqe)) {
			if (cqe.status == RY_OK)
				rig_release(&r, r.client, cqe.lease_id);
		}
		cr_assert(rig_settle(&r), "round %d", i);
		until_reconnected(&r, 0);
		until_reconnected(&r, 1);
	}
	cr_assert_gt(SUM(&r, qp_failures), 4u);
	reads(&r, "k", data, 6 * MIB, 0);
	free(data);
	rig_stop(&r);
}

/* The QP also served a put part: its writes complete when their request is long forgotten. */
Test(node_loss, fence_beside_a_put)
{
	uint8_t *data, *other = malloc(4 * MIB);
	struct ry_sqe sqe = {.op = RY_OP_PUT, .flags = RY_F_PUT_BEGIN | RY_F_PUT_COMMIT, .length = 4 * MIB};
	struct ry_slot *slot;
	uint64_t bad, t_put;
	struct ry_cqe cqe;
	struct rig r;

	rig_init(&r, 1, 50000000);
	r.config.fence_timeout_ns = 3 * MS;
	rig_start(&r);
	data = put(&r, "k", 6 * MIB, STRIPE);
	free(put(&r, "other", 4 * MIB, MIB)); /* leaves bytes and checksums in the put arena */
	rig_fill(other, 4 * MIB, 4 * MIB + MIB);
	r.node->rails[0]->ops.fence = fence_kills;
	slot = &r.client->slots[r.next_slot % r.client->n_entries];
	*slot = (struct ry_slot){.put_id = {77, 77},
		.size_bytes = 4 * MIB,
		.stripe_bytes = MIB,
		.n_checksums = 4,
		.checksum_offset = 4 * MIB};
	t_put = rig_submit(&r, r.client, sqe, "other", 5);
	rig_run(&r, 5 * MS);
	bad = rig_submit_read(&r, r.client, "k", 0, UINT64_MAX, 0, 0);
	rig_run(&r, 50 * MS);
	rig_tap(&r, swallow_cancel, NULL);
	rig_cancel(&r, r.client, bad);
	cqe = rig_wait(&r, r.client, bad);
	cr_assert_eq(cqe.status, RY_ERR_CANCELLED);
	rig_run(&r, 5 * MS);
	cr_assert_geq(SUM(&r, fences), 1u);
	cr_assert_geq(SUM(&r, qp_failures), 1u);
	rig_tap(&r, NULL, NULL);
	cqe = rig_wait(&r, r.client, t_put);
	cr_assert_eq(cqe.status, RY_ERR_RAIL, "its only rail is gone: %u", cqe.status);
	rig_run(&r, 100 * MS);
	cr_assert_eq(r.node->rails[0]->n_serve, 0u);
	until_reconnected(&r, 0);
	reads(&r, "k", data, 6 * MIB, 0);
	reads(&r, "other", other, 4 * MIB, 0); /* as it was, and as it would have become */
	cr_assert(rig_settle(&r));
	free(data);
	free(other);
	rig_stop(&r);
}

/* The rail gives a QP up by itself; the transport, which does not know, goes on completing what was posted on it. */
Test(node_loss, completions_of_a_qp_given_up)
{
	uint64_t generation;
	uint8_t *data;
	struct rig r;

	rig_init(&r, 1, 50000000);
	rig_start(&r);
	data = put(&r, "k", 2 * MIB, STRIPE);
	r.node->rails[0]->write_max_bytes = 1024; /* a completion in every turn */
	for (int i = 0; i < 8; i++) {
		struct rail *ra = r.node->rails[0];
		uint64_t t = rig_submit_read(&r, r.client, "k", 0, UINT64_MAX, 0, 0);
		struct ry_cqe cqe;

		rig_run(&r, 3 * MS);
		for (uint16_t q = 0; q < ra->n_qps; q++) {
			if (!ra->qps[q]->is_dialler) /* the store's end, busy writing */
				rail_qp_down(ra, ra->qps[q], WC_ERR_PROTOCOL, true);
		}
		cqe = rig_wait(&r, r.client, t);
		cr_assert_eq(cqe.status, RY_ERR_RAIL, "%u", cqe.status);
		cr_assert(rig_settle(&r));
		until_reconnected(&r, 0);
		cr_assert_eq(ra->n_serve, 0u);
	}
	reads(&r, "k", data, 2 * MIB, 0);
	cr_assert_eq(store_delete(r.node->store, "k", 1, 0, r.now_ns, &generation), RY_OK);
	rig_run(&r, 5 * MS);
	cr_assert_eq(store_used_bytes(r.node->store), 0u, "a pin is left");
	cr_assert(rig_settle(&r));
	free(data);
	rig_stop(&r);
}
