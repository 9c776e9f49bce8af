/* SPDX-License-Identifier: BSD-3-Clause */
/* Every fault alone, on one rail of three that all have work: that it bites, what it comes to, and that nothing is left
 * of it. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "fault_rig.h"
#include "hot/rail.h"
#include "read/control_priv.h"

#define BAD 1 /* the rail with the fault */

static void begin(struct fault_rig *f)
{
	fault_init(f, 3);
	fault_start(f);
	cr_assert_eq(fault_read(f, "small", 0, 1000), RY_OK);
}

/* The read fails with this status, and the rail with the fault is the one that is named. */
static void fails(struct fault_rig *f, const char *key, uint32_t flags, uint64_t deadline_ms, uint32_t status)
{
	uint32_t got = fault_read(f, key, flags, deadline_ms);

	cr_assert_eq(got, status, "status %u: %s", got, fault_cause(f));
	cr_assert_eq(f->last.rail_idx, BAD, "%s", fault_cause(f));
	cr_assert(strstr(fault_cause(f), "rail1"), "%s", fault_cause(f));
}

static void reads(struct fault_rig *f, const char *key, uint32_t flags)
{
	cr_assert_eq(fault_read(f, key, flags, 1000), RY_OK, "%s", fault_cause(f));
}

static const struct rail_counters *counters(const struct fault_rig *f)
{
	return rail_counters(f->r.node->rails[BAD]);
}

/* ---- disconnect ---- */

static void disconnect(const char *plan, const char *key)
{
	struct fault_rig f;

	begin(&f);
	fault_plan(&f, BAD, plan);
	fails(&f, key, 0, 1000, RY_ERR_RAIL);
	cr_assert_eq(fault_count(&f, BAD, FAULT_DISCONNECT), 1);
	reads(&f, key, 0); /* at once, over the others */
	fault_over(&f);
	fault_stop(&f);
}

Test(fault_one, disconnect_after_bytes)
{
	disconnect("disconnect:at=300KiB", "small");
}

Test(fault_one, disconnect_inside_a_stripe)
{
	disconnect("disconnect:at=1048577", "large");
}

Test(fault_one, disconnect_after_an_answer)
{
	disconnect("disconnect:n=1", "large");
}

Test(fault_one, disconnect_under_failover)
{
	struct fault_rig f;

	begin(&f);
	fault_plan(&f, BAD, "disconnect:at=300KiB");
	reads(&f, "large", RY_F_FAILOVER);
	cr_assert_eq(fault_count(&f, BAD, FAULT_DISCONNECT), 1);
	fault_over(&f);
	fault_stop(&f);
}

Test(fault_one, disconnect_while_idle)
{
	struct fault_rig f;

	begin(&f);
	fault_plan(&f, BAD, "disconnect:after=1ms");
	rig_run(&f.r, 2 * MS);
	cr_assert_eq(fault_count(&f, BAD, FAULT_DISCONNECT), 1);
	reads(&f, "small", 0);
	fault_over(&f);
	fault_stop(&f);
}

/* A peer that accepts and breaks at once, again and again: the others carry on. */
Test(fault_one, disconnect_for_ever)
{
	unsigned n_failed = 0;
	struct fault_rig f;

	begin(&f);
	fault_plan(&f, BAD, "disconnect:repeat=forever");
	for (int i = 0; i < 20; i++)
		n_failed += fault_read(&f, "small", 0, 1000) != RY_OK;
	cr_assert_gt(fault_count(&f, BAD, FAULT_DISCONNECT), 5);
	cr_assert_leq(n_failed, fault_count(&f, BAD, FAULT_DISCONNECT));
	fault_over(&f);
	fault_stop(&f);
}

/* ---- stall ---- */

Test(fault_one, stall_shorter_than_the_deadline)
{
	struct fault_rig f;
	uint64_t start_ns;

	begin(&f);
	fault_plan(&f, BAD, "stall:at=64KiB,for=20ms");
	start_ns = f.r.now_ns;
	reads(&f, "small", 0);
	cr_assert_geq(f.r.now_ns - start_ns, 20 * MS);
	cr_assert_eq(fault_count(&f, BAD, FAULT_STALL), 1);
	fault_over(&f);
	fault_stop(&f);
}

Test(fault_one, stall_longer_than_the_deadline)
{
	struct fault_rig f;
	uint32_t status;

	begin(&f);
	fault_plan(&f, BAD, "stall:at=64KiB,for=1s");
	status = fault_read(&f, "small", 0, 30);
	cr_assert_eq(status, RY_ERR_TIMEOUT, "%s", fault_cause(&f));
	cr_assert_eq(fault_count(&f, BAD, FAULT_STALL), 1);
	fault_over(&f);
	fault_stop(&f);
}

/* ---- bytes that are not what was put ---- */

Test(fault_one, short_write)
{
	struct fault_rig f;

	begin(&f);
	memset(f.r.client->read_arena.base, ANY_BYTE, f.r.client->read_arena.bytes);
	fault_plan(&f, BAD, "short:n=1,by=1");
	fails(&f, "small", 0, 1000, RY_ERR_CHECKSUM);
	cr_assert_eq(fault_count(&f, BAD, FAULT_SHORT), 1);
	reads(&f, "small", 0);
	fault_plan(&f, BAD, "short:n=1");
	fails(&f, "large", 0, 1000, RY_ERR_CHECKSUM);
	reads(&f, "large", 0);
	fault_over(&f);
	fault_stop(&f);
}

Test(fault_one, corrupt_write)
{
	struct fault_rig f;

	begin(&f);
	for (int seed = 1; seed <= 5; seed++) {
		char plan[32];

		snprintf(plan, sizeof(plan), "corrupt; seed=%d", seed);
		fault_plan(&f, BAD, plan);
		fails(&f, seed & 1 ? "small" : "large", 0, 1000, RY_ERR_CHECKSUM);
		cr_assert_eq(fault_count(&f, BAD, FAULT_CORRUPT), (uint64_t)seed);
		reads(&f, "small", 0);
	}
	fault_over(&f);
	fault_stop(&f);
}

/* Any rail may be the one that gets it. */
Test(fault_one, corrupt_stripe)
{
	struct fault_rig f;

	begin(&f);
	for (uint32_t stripe = 0; stripe < 16; stripe += 5) {
		char plan[64], want[32];
		uint64_t n = 0;

		snprintf(plan, sizeof(plan), "corrupt:stripe=%u,byte=%u", stripe, stripe * 1000);
		for (uint16_t i = 0; i < 3; i++)
			fault_plan(&f, i, plan);
		cr_assert_eq(fault_read(&f, "small", 0, 1000), RY_ERR_CHECKSUM);
		snprintf(want, sizeof(want), "stripe %u ", stripe);
		cr_assert(strstr(fault_cause(&f), want), "%s", fault_cause(&f));
		for (uint16_t i = 0; i < 3; i++)
			n += fault_count(&f, i, FAULT_CORRUPT);
		cr_assert_eq(n, stripe / 5 + 1);
		for (uint16_t i = 0; i < 3; i++)
			fault_plan(&f, i, "");
		cr_assert(rig_settle(&f.r));
	}
	fault_over(&f);
	fault_stop(&f);
}

/* ---- slow ---- */

Test(fault_one, slow_rail)
{
	struct fault_rig f;

	begin(&f);
	fault_plan(&f, BAD, "slow:factor=0.1");
	for (int i = 0; i < 5; i++)
		reads(&f, i & 1 ? "small" : "large", 0);
	cr_assert_eq(fault_count(&f, BAD, FAULT_SLOW), 1);
	fault_over(&f);
	fault_stop(&f);
}

/* Up and down and up again, while reads go on. */
Test(fault_one, slow_changes_over_time)
{
	struct fault_rig f;

	begin(&f);
	fault_plan(&f, BAD,
		"slow:factor=0.2; slow:after=5ms,every=10ms,factor=0.02,repeat=forever;"
		"slow:after=10ms,every=10ms,factor=1,repeat=forever");
	for (int i = 0; i < 20; i++)
		reads(&f, "small", 0);
	cr_assert_gt(fault_count(&f, BAD, FAULT_SLOW), 3);
	fault_over(&f);
	fault_stop(&f);
}

/* ---- completions ---- */

Test(fault_one, lost_answer)
{
	struct fault_rig f;
	uint32_t status;

	begin(&f);
	fault_plan(&f, BAD, "lose:n=1");
	status = fault_read(&f, "small", 0, 30);
	cr_assert_eq(status, RY_ERR_TIMEOUT, "%s", fault_cause(&f));
	cr_assert_eq(fault_count(&f, BAD, FAULT_LOSE), 1);
	reads(&f, "small", 0);
	fault_over(&f);
	fault_stop(&f);
}

Test(fault_one, lost_request)
{
	struct fault_rig f;

	begin(&f);
	fault_plan(&f, BAD, "lose:n=1,of=requests");
	cr_assert_eq(fault_read(&f, "large", 0, 30), RY_ERR_TIMEOUT, "%s", fault_cause(&f));
	cr_assert_eq(fault_count(&f, BAD, FAULT_LOSE), 1);
	reads(&f, "large", 0);
	fault_over(&f);
	fault_stop(&f);
}

/* What the store writes for a request whose CANCEL it never saw must not land either. */
Test(fault_one, lost_cancels)
{
	struct fault_rig f;

	begin(&f);
	fault_plan(&f, BAD, "lose:of=cancels,repeat=forever; slow:factor=0.01");
	cr_assert_eq(fault_read(&f, "large", 0, 10), RY_ERR_TIMEOUT, "%s", fault_cause(&f));
	for (int i = 0; i < 5; i++)
		fault_read(&f, "large", 0, 10); /* fails, or does without the rail by now */
	cr_assert_gt(fault_count(&f, BAD, FAULT_LOSE), 0);
	fault_over(&f);
	fault_stop(&f);
}

/* Each lost answer is a lost credit: a rail must not starve of them. */
Test(fault_one, lost_answers_without_end)
{
	struct fault_rig f;

	begin(&f);
	fault_plan(&f, BAD, "lose:repeat=forever");
	for (int i = 0; i < 40; i++)
		fault_read(&f, "small", 0, 30);
	cr_assert_gt(fault_count(&f, BAD, FAULT_LOSE), 20);
	fault_over(&f);
	fault_stop(&f);
}

Test(fault_one, duplicated_answers)
{
	struct fault_rig f;
	uint64_t late;

	begin(&f);
	late = stat_get(&counters(&f)->late_messages);
	fault_plan(&f, BAD, "duplicate:repeat=forever");
	for (int i = 0; i < 10; i++)
		reads(&f, i & 1 ? "small" : "large", 0);
	cr_assert_gt(fault_count(&f, BAD, FAULT_DUPLICATE), 10);
	cr_assert_eq(stat_get(&counters(&f)->late_messages) - late, fault_count(&f, BAD, FAULT_DUPLICATE));
	for (uint16_t i = 0; i < f.r.node->rails[BAD]->n_qps; i++) {
		const struct qp *qp = f.r.node->rails[BAD]->qps[i];

		cr_assert_leq(qp->credits, qp->peer_credits, "a credit that was given back twice counts once");
	}
	fault_over(&f);
	fault_stop(&f);
}

Test(fault_one, duplicated_requests)
{
	struct fault_rig f;

	begin(&f);
	fault_plan(&f, BAD, "duplicate:of=requests,repeat=forever");
	for (int i = 0; i < 10; i++)
		reads(&f, i & 1 ? "small" : "large", 0);
	cr_assert_gt(fault_count(&f, BAD, FAULT_DUPLICATE), 10);
	fault_over(&f);
	fault_stop(&f);
}

Test(fault_one, reordered_answers)
{
	struct fault_rig f;

	begin(&f);
	fault_plan(&f, BAD, "reorder:n=1,every=2,repeat=forever,for=2ms");
	for (int i = 0; i < 10; i++)
		reads(&f, i & 1 ? "small" : "large", 0);
	cr_assert_gt(fault_count(&f, BAD, FAULT_REORDER), 5);
	fault_over(&f);
	fault_stop(&f);
}

/* ---- error completions ---- */

static void error(const char *class)
{
	struct fault_rig f;
	char plan[64];

	begin(&f);
	snprintf(plan, sizeof(plan), "error:at=100KiB,class=%s", class);
	fault_plan(&f, BAD, plan);
	fails(&f, "small", 0, 1000, RY_ERR_RAIL);
	cr_assert_eq(fault_count(&f, BAD, FAULT_ERROR), 1);
	reads(&f, "small", 0);
	fault_plan(&f, BAD, plan);
	reads(&f, "large", RY_F_FAILOVER);
	fault_over(&f);
	fault_stop(&f);
}

Test(fault_one, error_peer_closed)
{
	error("peer_closed");
}

Test(fault_one, error_retry)
{
	error("retry");
}

Test(fault_one, error_rnr)
{
	error("rnr");
}

Test(fault_one, error_access)
{
	error("access");
}

Test(fault_one, error_local)
{
	error("local");
}

Test(fault_one, error_flush)
{
	error("flush");
}

Test(fault_one, error_protocol)
{
	error("protocol");
}

/* ---- restart ---- */

/* Whoever notices first: the rail that lost its QP, or the word of the new incarnation, which ends the other rails'
 * pairs. */
Test(fault_one, peer_restart)
{
	struct fault_rig f;
	uint64_t incarnation;
	uint32_t status;

	begin(&f);
	incarnation = f.r.node->control->peers[0].incarnation;
	fault_plan(&f, BAD, "restart:at=300KiB");
	status = fault_read(&f, "large", 0, 1000);
	cr_assert(status == RY_ERR_RAIL || status == RY_ERR_PEER_RESTARTED, "%u", status);
	cr_assert_eq(fault_count(&f, BAD, FAULT_RESTART), 1);
	rig_run(&f.r, 20 * MS);
	cr_assert_eq(f.r.node->control->peers[0].incarnation, incarnation + 1);
	reads(&f, "large", 0);
	for (uint32_t i = 0; i < f.r.node->control->peers[0].n_pairs; i++)
		cr_assert_eq(f.r.node->control->peers[0].pairs[i].pair->incarnation, incarnation + 1);
	fault_over(&f);
	fault_stop(&f);
}

/* ---- at the start, and other directions ---- */

Test(fault_one, plan_from_the_configuration)
{
	struct fault_plan plan;
	struct fault_rig f;

	cr_assert_eq(fault_parse("disconnect:after=100ms", &plan, NULL, 0), 0);
	fault_init(&f, 3);
	f.r.config.rails[BAD].mock.faults = &plan;
	fault_start(&f);
	memset(&plan, 0, sizeof(plan)); /* the rail has a copy */
	rig_run(&f.r, 100 * MS);
	cr_assert_eq(fault_count(&f, BAD, FAULT_DISCONNECT), 1);
	fault_over(&f);
	fault_stop(&f);
}

/* A put is pulled by the store: the same rails, the other way round. It fails or it is there, never half. */
static void put_under(const char *plan)
{
	uint8_t *data = malloc(3 * MIB);
	struct ry_cqe put, get;
	struct fault_rig f;

	begin(&f);
	rig_fill(data, 3 * MIB, 9);
	fault_plan(&f, BAD, plan);
	put = rig_put(&f.r, f.r.client, "new", data, 3 * MIB, 256 * KIB, 0);
	cr_assert_lt(put.status, RY_STATUS_MAX_, "%s: no answer", plan);
	fault_over(&f);
	get = rig_read(&f.r, f.r.client, "new", 0, UINT64_MAX, 0);
	if (put.status == RY_OK)
		cr_assert(rig_same(f.r.client, &get, data, 3 * MIB));
	else
		cr_assert_eq(get.status, RY_ERR_NOT_FOUND, "put %u, get %u", put.status, get.status);
	if (get.lease_id)
		rig_release(&f.r, f.r.client, get.lease_id);
	cr_assert(rig_settle(&f.r));
	put = rig_put(&f.r, f.r.client, "again", data, 3 * MIB, 256 * KIB, 0);
	cr_assert_eq(put.status, RY_OK);
	free(data);
	fault_stop(&f);
}

Test(fault_one, put_over_a_rail_that_disconnects)
{
	put_under("disconnect:at=300KiB");
}

Test(fault_one, put_over_a_rail_that_corrupts)
{
	put_under("corrupt:n=2");
}

Test(fault_one, put_over_a_rail_that_loses_answers)
{
	put_under("lose:n=1");
}

Test(fault_one, put_over_a_rail_that_reorders)
{
	put_under("reorder:repeat=forever,n=1");
}
