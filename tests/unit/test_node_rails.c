/* SPDX-License-Identifier: BSD-3-Clause */
/* Many rails: shares, splits, round robin, stores that are busy, limits of what is out. */
#include "node_rails_fixture.h"

/* ---- Shares ---- */

Test(node_rails, shares_follow_capacity)
{
	const uint64_t capacity[4] = {50000000, 100000000, 150000000, 200000000};
	struct ry_cqe cqe;
	uint8_t *data;
	struct rig r;

	rig_init(&r, 4, 0);
	for (int i = 0; i < 4; i++)
		r.config.rails[i].mock.bandwidth_bytes_per_s = capacity[i];
	r.config.read_arena_bytes = r.config.put_arena_bytes = 48u << 20;
	rig_start(&r);
	data = put(&r, "k", 40 * MIB, MIB);
	cqe = reads(&r, "k", data, 40 * MIB, 0);
	for (uint16_t i = 0; i < 4; i++) {
		double share = (double)rail_bytes(&r, &cqe, i) / (40 * MIB), ideal = (double)capacity[i] / 500e6;

		cr_assert_float_eq(
			share / ideal, 1, 0.08, "rail %u carries %.3f, its capacity is %.3f", i, share, ideal);
	}
	cr_assert_leq(stats(&r, &cqe)->object_ns, 40.0 * MIB / 500e6 * 1e9 * 1.06, "%.3f of the ideal time",
		stats(&r, &cqe)->object_ns / (40.0 * MIB / 500e6 * 1e9));
	free(data);
	rig_stop(&r);
}

/* A rail that has one segment at a time, and nothing between two, is measured all the same. */
Test(node_rails, goodput_of_a_rail_with_little_to_do)
{
	uint8_t *data;
	struct rig r;

	rig_init(&r, 1, 100000000);
	rig_start(&r);
	data = put(&r, "k", 200000, STRIPE);
	for (int i = 0; i < 12; i++) {
		reads(&r, "k", data, 200000, 0);
		rig_run(&r, 7 * MS);
	}
	cr_assert_float_eq(
		r.node->control->rails[0].goodput, 100e6, 5e6, "%lu", (unsigned long)r.node->control->rails[0].goodput);
	free(data);
	rig_stop(&r);
}

static void scales(uint16_t n_rails, double want)
{
	struct ry_cqe cqe;
	uint8_t *data;
	double x;
	struct rig r;

	rig_init(&r, n_rails, 125000000);
	rig_start(&r);
	data = put(&r, "k", 14 * MIB, MIB);
	cqe = reads(&r, "k", data, 14 * MIB, 0);
	cr_assert_eq(stats(&r, &cqe)->n_rails, n_rails);
	x = 14.0 * MIB / 125e6 * 1e9 / (double)stats(&r, &cqe)->object_ns;
	cr_assert_geq(x, want, "%u rails: %.2fx", n_rails, x);
	free(data);
	rig_stop(&r);
}

Test(node_rails, one_rail_is_the_measure)
{
	scales(1, 0.98);
}

Test(node_rails, three_rails_scale)
{
	scales(3, 2.85);
}

Test(node_rails, eight_rails_scale)
{
	scales(8, 7.0);
}

Test(node_rails, one_rail_on_request)
{
	struct ry_cqe cqe;
	uint8_t *data;
	struct rig r;

	rig_init(&r, 4, 400000000);
	rig_start(&r);
	data = put(&r, "k", 5 * MIB, STRIPE);
	cqe = reads(&r, "k", data, 5 * MIB, RY_F_ONE_RAIL);
	cr_assert_eq(stats(&r, &cqe)->n_rails, 1);
	cr_assert_eq(stats(&r, &cqe)->rails[0].bytes, 5 * MIB);
	cqe = reads(&r, "k", data, 5 * MIB, 0);
	cr_assert_eq(stats(&r, &cqe)->n_rails, 4);
	free(data);
	rig_stop(&r);
}

Test(node_rails, small_objects_use_one_rail)
{
	struct ry_cqe cqe;
	uint8_t *small, *large;
	struct rig r;

	rig_init(&r, 4, 400000000);
	r.config.one_rail_max_bytes = 256 * KIB;
	rig_start(&r);
	small = put(&r, "small", 256 * KIB, 64 * KIB);
	large = put(&r, "large", 512 * KIB, 64 * KIB);
	cqe = reads(&r, "small", small, 256 * KIB, 0);
	cr_assert_eq(stats(&r, &cqe)->n_rails, 1);
	cqe = reads(&r, "large", large, 512 * KIB, 0);
	cr_assert_gt(stats(&r, &cqe)->n_rails, 1);
	free(small);
	free(large);
	rig_stop(&r);
}

Test(node_rails, more_rails_than_stripes)
{
	struct ry_cqe cqe;
	uint8_t *data;
	struct rig r;

	rig_init(&r, 8, 100000000);
	rig_start(&r);
	data = put(&r, "k", 8 * MIB, 4 * MIB);
	cqe = reads(&r, "k", data, 8 * MIB, 0);
	cr_assert_eq(stats(&r, &cqe)->n_rails, 8);
	cr_assert_gt(stat_get(&r.node->counters.stripes_split), 0u);
	free(data);
	rig_stop(&r);
}

/* ---- Split stripes: hashed once, by whoever finished last ---- */

Test(node_rails, split_stripes_are_hashed_once)
{
	uint64_t before, bytes = 0;
	struct rig r;

	srandom(4);
	rig_init(&r, 3, 0);
	r.config.rails[0].mock.bandwidth_bytes_per_s = 300000000;
	r.config.rails[1].mock.bandwidth_bytes_per_s = 40000000;
	r.config.rails[2].mock.bandwidth_bytes_per_s = 700000000;
	rig_start(&r);
	before = SUM(&r, hashed_bytes);
	for (int i = 0; i < 6; i++) {
		uint64_t size = 4 * MIB + (uint64_t)random() % (9 * MIB);
		uint8_t *data = put(&r, "k", size, 4 * MIB);

		reads(&r, "k", data, size, 0);
		bytes += size;
		free(data);
	}
	cr_assert_gt(stat_get(&r.node->counters.stripes_split), 6u);
	cr_assert_eq(SUM(&r, hashed_bytes) - before, 2 * bytes, "each byte once for the put, once for the read");
	cr_assert(rig_settle(&r));
	rig_stop(&r);
}

/* ---- Round robin ---- */

static void round_robin(uint16_t n_rails, uint32_t n_stripes, bool is_busy)
{
	uint64_t size = (uint64_t)n_stripes * STRIPE - 77;
	struct api_call plan = {.size_bytes = size, .stripe_bytes = STRIPE, .length = UINT64_MAX};
	struct ry_cqe cqe;
	uint8_t *data;
	struct rig r;

	rig_init(&r, n_rails, 200000000);
	r.config.rails[0].mock.bandwidth_bytes_per_s = 20000000;
	r.config.policy = POLICY_ROUND_ROBIN;
	if (is_busy)
		r.config.store_max_requests_per_qp = 1;
	rig_start(&r);
	data = put(&r, "k", size, STRIPE);
	for (int round = 0; round < 3; round++) {
		cqe = reads(&r, "k", data, size, 0);
		for (uint16_t i = 0; i < n_rails; i++) {
			uint64_t want = 0;

			for (uint32_t s = i; s < n_stripes; s += n_rails)
				want += s + 1 < n_stripes ? STRIPE : STRIPE - 77;
			cr_assert_eq(rail_bytes(&r, &cqe, i), want, "rail %u carried %lu bytes, was dealt %lu", i,
				(unsigned long)rail_bytes(&r, &cqe, i), (unsigned long)want);
			plan_explain(r.node->control, &plan);
			cr_assert_eq(plan.plan[i].bytes, want, "the plan of rail %u says %lu bytes, it was dealt %lu",
				i, (unsigned long)plan.plan[i].bytes, (unsigned long)want);
			plan.length = UINT64_MAX;
		}
	}
	cr_assert_eq(SUM(&r, busy_received) > 0, is_busy);
	cr_assert_eq(stat_get(&r.node->counters.stripes_split), 0u);
	cr_assert(rig_settle(&r));
	free(data);
	rig_stop(&r);
}

Test(node_rails, round_robin_as_dealt)
{
	round_robin(3, 11, false);
}

Test(node_rails, round_robin_of_fewer_stripes_than_rails)
{
	round_robin(4, 3, false);
}

Test(node_rails, round_robin_at_a_busy_store)
{
	round_robin(2, 12, true);
}

Test(node_rails, round_robin_on_one_rail)
{
	struct ry_cqe cqe;
	uint8_t *data;
	struct rig r;

	rig_init(&r, 3, 200000000);
	r.config.policy = POLICY_ROUND_ROBIN;
	rig_start(&r);
	data = put(&r, "k", 9 * STRIPE, STRIPE);
	cqe = reads(&r, "k", data, 9 * STRIPE, RY_F_ONE_RAIL);
	cr_assert_eq(stats(&r, &cqe)->n_rails, 1);
	free(data);
	rig_stop(&r);
}

/* ---- Rails that are drained in turn while a read goes on: no fault, with failover or without ---- */

static void drain_in_turn(enum config_policy policy)
{
	uint64_t before, ticket;
	struct ry_cqe cqe;
	uint8_t *data;
	struct rig r;

	rig_init(&r, 2, 100000000);
	r.config.policy = policy;
	rig_start(&r);
	data = put(&r, "k", 4 * MIB, STRIPE);
	before = stat_get(&rail_counters(r.node->rails[0])->rx_bytes);
	r.node->control->rails[0].is_draining = true;
	ticket = rig_submit_read(&r, r.client, "k", 0, UINT64_MAX, RY_F_FAIL, 0);
	for (uint64_t end = r.now_ns + 5 * MS; r.now_ns < end;)
		rig_step(&r);
	cr_assert_gt(r.node->control->rails[1].inflight_bytes, 0u, "it is under way");
	r.node->control->rails[0].is_draining = false;
	r.node->control->rails[1].is_draining = true;
	cqe = rig_wait(&r, r.client, ticket);
	cr_assert_eq(cqe.status, RY_OK, "%s", rig_slot(r.client, &cqe)->cause);
	cr_assert(rig_same(r.client, &cqe, data, 4 * MIB));
	cr_assert_gt(stat_get(&rail_counters(r.node->rails[0])->rx_bytes), before + MIB, "rail 0 brought the rest");
	rig_release(&r, r.client, cqe.lease_id);
	cr_assert(rig_settle(&r));
	free(data);
	rig_stop(&r);
}

Test(node_rails, drained_in_turn_under_a_read)
{
	drain_in_turn(POLICY_ADAPTIVE);
}

Test(node_rails, drained_in_turn_under_a_read_by_turns)
{
	drain_in_turn(POLICY_ROUND_ROBIN);
}

/* ---- Two clients, a busy store ---- */

Test(node_rails, two_clients_at_once)
{
	uint8_t *a, *b;
	uint64_t ta, tb, done_a = 0, done_b = 0;
	struct ry_cqe cqe;
	struct client *c;
	struct rig r;

	rig_init(&r, 2, 200000000);
	rig_start(&r);
	a = put(&r, "a", 8 * MIB, MIB);
	b = put(&r, "b", 8 * MIB - 3, MIB);
	c = rig_attach(&r, 16 * MIB);
	ta = rig_submit_read(&r, r.client, "a", 0, UINT64_MAX, 0, 0);
	tb = rig_submit_read(&r, c, "b", 0, UINT64_MAX, 0, 0);
	while (!done_a || !done_b) {
		rig_step(&r);
		if (rig_reap(&r, r.client, &cqe)) {
			cr_assert(cqe.ticket == ta && rig_same(r.client, &cqe, a, 8 * MIB));
			done_a = cqe.done_ns;
			rig_release(&r, r.client, cqe.lease_id);
		}
		if (rig_reap(&r, c, &cqe)) {
			cr_assert(cqe.ticket == tb && rig_same(c, &cqe, b, 8 * MIB - 3));
			done_b = cqe.done_ns;
			rig_release(&r, c, cqe.lease_id);
		}
	}
	cr_assert_lt(done_a > done_b ? done_a - done_b : done_b - done_a, 10 * MS, "they take turns");
	cr_assert(rig_detach(&r, c));
	cr_assert(rig_settle(&r));
	free(a);
	free(b);
	rig_stop(&r);
}

/* Small pieces at an object's end are for the end of the work: before other objects they would be so many messages
 * more. */
Test(node_rails, whole_segments_while_others_wait)
{
	uint64_t before, alone, n_segments;
	struct ry_cqe cqe;
	uint8_t *data;
	struct rig r;

	rig_init(&r, 2, 200000000);
	rig_start(&r);
	data = put(&r, "k", 8 * MIB, 4 * MIB);
	before = stat_get(&r.node->counters.segments_handed);
	reads(&r, "k", data, 8 * MIB, 0);
	alone = stat_get(&r.node->counters.segments_handed) - before;
	before += alone;
	for (int n_sent = 0, n_done = 0; n_done < 16; rig_step(&r)) {
		for (; n_sent < 16 && n_sent - n_done < 4; n_sent++)
			rig_submit_read(&r, r.client, "k", 0, UINT64_MAX, 0, 0);
		for (; rig_reap(&r, r.client, &cqe); n_done++) {
			cr_assert(rig_same(r.client, &cqe, data, 8 * MIB));
			rig_release(&r, r.client, cqe.lease_id);
		}
	}
	n_segments = stat_get(&r.node->counters.segments_handed) - before;
	cr_assert_gt(alone, 12u);
	cr_assert_lt(n_segments, 16 * alone * 3 / 4, "%lu segments, %lu of a read alone", (unsigned long)n_segments,
		(unsigned long)alone);
	cr_assert(rig_settle(&r));
	free(data);
	rig_stop(&r);
}

Test(node_rails, busy_is_no_failure)
{
	uint64_t t[10];
	struct ry_cqe cqe;
	unsigned n = 0;
	uint8_t *data;
	struct rig r;

	rig_init(&r, 2, 400000000);
	r.config.store_max_requests_per_qp = 1;
	r.config.store_max_inflight_bytes = MIB;
	rig_start(&r);
	data = put(&r, "k", 3 * MIB, STRIPE);
	for (int i = 0; i < 10; i++)
		t[i] = rig_submit_read(&r, r.client, "k", 0, UINT64_MAX, 0, 0);
	(void)t;
	for (uint64_t end = r.now_ns + 1000 * MS; n < 10 && r.now_ns < end;) {
		rig_step(&r);
		while (rig_reap(&r, r.client, &cqe)) {
			cr_assert(rig_same(r.client, &cqe, data, 3 * MIB), "%u: %s", cqe.status,
				rig_slot(r.client, &cqe)->cause);
			rig_release(&r, r.client, cqe.lease_id);
			n++;
		}
	}
	cr_assert_eq(n, 10u, "%u of 10", n);
	cr_assert_gt(SUM(&r, busy_received), 0u);
	cr_assert_eq(SUM(&r, busy_received), SUM(&r, busy_sent));
	cr_assert_eq(stat_get(&r.node->counters.reads_failed), 0u);
	cr_assert(rig_settle(&r));
	free(data);
	rig_stop(&r);
}

/* Cancelled while its segments wait for a busy store. */
Test(node_rails, cancel_at_a_busy_store)
{
	struct ry_cqe cqe;
	uint8_t *data;
	struct rig r;

	rig_init(&r, 1, 20000000);
	r.config.store_max_requests_per_qp = 1;
	rig_start(&r);
	data = put(&r, "k", 6 * MIB, STRIPE);
	for (int i = 0; i < 20; i++) {
		uint64_t t = rig_submit_read(&r, r.client, "k", 0, UINT64_MAX, 0, 0);

		rig_run(&r, 30000 + (uint64_t)i * 400000);
		rig_cancel(&r, r.client, t);
		cr_assert_eq(rig_wait(&r, r.client, t).status, RY_ERR_CANCELLED);
		cr_assert(rig_settle(&r), "round %d", i);
	}
	cqe = reads(&r, "k", data, 6 * MIB, 0);
	cr_assert_eq(cqe.status, RY_OK);
	free(data);
	rig_stop(&r);
}

/* ---- Limits of what is out ---- */

Test(node_rails, rail_budget_is_never_exceeded)
{
	uint64_t ticket, most = 0;
	struct ry_cqe cqe;
	uint8_t *data;
	struct rig r;

	rig_init(&r, 2, 300000000);
	r.config.rails[0].inflight_max_bytes = r.config.rails[1].inflight_max_bytes = 2 * MIB + 500 * KIB;
	r.config.depth_min_bytes = 64 * MIB;
	rig_start(&r);
	data = put(&r, "k", 15 * MIB, 4 * MIB);
	ticket = rig_submit_read(&r, r.client, "k", 0, UINT64_MAX, 0, 0);
	do {
		rig_step(&r);
		for (int i = 0; i < 2; i++)
			most = RTE_MAX(most, r.node->control->rails[i].inflight_bytes);
	} while (!rig_reap(&r, r.client, &cqe));
	cr_assert_eq(cqe.ticket, ticket);
	cr_assert(rig_same(r.client, &cqe, data, 15 * MIB));
	cr_assert_leq(most, 2 * MIB + 500 * KIB, "%lu bytes out on a rail", (unsigned long)most);
	cr_assert_geq(most, 2 * MIB);
	rig_release(&r, r.client, cqe.lease_id);
	cr_assert(rig_settle(&r));
	free(data);
	rig_stop(&r);
}

/* As many stripes are started as there may be: those must go on. */
Test(node_rails, no_record_left_for_another_stripe)
{
	uint8_t *data;
	struct rig r;

	rig_init(&r, 4, 200000000);
	rig_start(&r);
	data = put(&r, "k", 15 * MIB, 4 * MIB);
	r.node->control->n_jobs_free = 3;
	reads(&r, "k", data, 15 * MIB, 0);
	cr_assert_eq(r.node->control->n_jobs_free, 3u);
	r.node->control->n_jobs_free = JOBS_MAX;
	r.node->control->n_segs_free = 2;
	reads(&r, "k", data, 15 * MIB, 0);
	cr_assert_eq(r.node->control->n_segs_free, 2u);
	r.node->control->n_segs_free = SEGMENTS_MAX;
	cr_assert(rig_settle(&r));
	free(data);
	rig_stop(&r);
}

/* More segments at a time than a work ring has places. */
Test(node_rails, thousands_of_tiny_reads)
{
	unsigned n = 0, most = 0;
	struct client *c[8];
	uint8_t *data;
	struct rig r;

	rig_init(&r, 1, 0);
	r.config.max_reads = r.config.client_max_reads = 8192;
	r.config.ring_entries = 1024;
	rig_start(&r);
	data = put(&r, "k", 1, 64 * KIB);
	reads(&r, "k", data, 1, 0);
	for (int i = 0; i < 8; i++) {
		c[i] = i ? rig_attach(&r, 65 * MIB) : r.client;
		for (int k = 0; i && k < 1000; k++)
			rig_submit_read(&r, c[i], "k", 0, UINT64_MAX, 0, 0);
	}
	for (uint64_t end = r.now_ns + 1000 * MS; n < 7000 && r.now_ns < end;) {
		struct ry_cqe cqe;

		rig_step(&r);
		most = RTE_MAX(most, rte_ring_count(r.node->rails[0]->work));
		for (int i = 1; i < 8; i++) {
			for (; rig_reap(&r, c[i], &cqe); n++) {
				cr_assert_eq(cqe.status, RY_OK, "%s", rig_slot(c[i], &cqe)->cause);
				cr_assert_eq(c[i]->read_arena.base[rig_slot(c[i], &cqe)->extents[0].offset], data[0]);
			}
		}
	}
	cr_assert_eq(n, 7000u, "%u; %u", n, most);

	for (int i = 1; i < 8; i++)
		cr_assert(rig_detach(&r, c[i]));
	cr_assert(rig_settle(&r));
	free(data);
	rig_stop(&r);
}
