/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Late writes: bytes that arrive when the read they were for is over and its memory has a new owner.
 *
 * The same fault twice: with the guard off it disturbs the new owner's bytes, which proves that it strikes where it
 * hurts and that the test would see it; with the guard on nothing moves.
 */
#include <criterion/criterion.h>

#include "fault_rig.h"
#include "read/control_priv.h"

#define BAD 1
#define ROUNDS 30

enum end { BY_DEADLINE, BY_CANCEL };

/* A read that ends while a write of it waits; its memory is given back. */
static void abandon(struct fault_rig *f, enum end how)
{
	struct rig *r = &f->r;
	uint64_t ticket;

	if (how == BY_DEADLINE) {
		cr_assert_eq(fault_read(f, "large", 0, 10), RY_ERR_TIMEOUT, "%s", fault_cause(f));
	} else {
		ticket = rig_submit_read(r, r->client, "large", 0, UINT64_MAX, 0, 0);
		rig_run(r, 3 * MS);
		rig_cancel(r, r->client, ticket);
		cr_assert_eq(rig_wait(r, r->client, ticket).status, RY_ERR_CANCELLED);
	}
	cr_assert(rig_settle(r));
}

/* Reads the same object into the same memory, holds the lease, and says whether it is still right when the late write
 * has come. */
static bool is_undisturbed(struct fault_rig *f)
{
	struct rig *r = &f->r;
	uint64_t n_before = fault_count(f, BAD, FAULT_LATE);
	struct ry_cqe cqe = rig_read(r, r->client, "large", 0, UINT64_MAX, 0);
	bool is_same;

	cr_assert(rig_same(r->client, &cqe, f->large, 6 * MIB + 77), "%s", rig_slot(r->client, &cqe)->cause);
	cr_assert_eq(fault_count(f, BAD, FAULT_LATE), n_before, "the lease is there first");
	rig_run(r, 40 * MS);
	cr_assert_eq(fault_count(f, BAD, FAULT_LATE), n_before + 1, "it came");
	is_same = rig_same(r->client, &cqe, f->large, 6 * MIB + 77);
	rig_release(r, r->client, cqe.lease_id);
	return is_same;
}

static unsigned disturbed_rounds(const char *plan, enum end how, uint64_t *dropped)
{
	unsigned n_disturbed = 0;
	struct fault_rig f;

	fault_init(&f, 2);
	f.r.config.read_arena_bytes = 8 * MIB; /* for one read: the next one gets the same memory */
	fault_start(&f);
	for (int i = 0; i < ROUNDS; i++) {
		char seeded[96];
		uint64_t n_before = fault_count(&f, BAD, FAULT_LATE);

		snprintf(seeded, sizeof(seeded), "%s; seed=%d", plan, i);
		fault_plan(&f, BAD, seeded);
		abandon(&f, how);
		cr_assert_eq(fault_count(&f, BAD, FAULT_LATE), n_before);
		n_disturbed += !is_undisturbed(&f);
	}
	*dropped = stat_get(&rail_counters(f.r.node->rails[BAD])->late_dropped_bytes);
	fault_over(&f);
	fault_stop(&f);
	return n_disturbed;
}

/* Guard off. */
static void is_seen(const char *plan, enum end how)
{
	uint64_t dropped;

	cr_assert_eq(disturbed_rounds(plan, how, &dropped), ROUNDS, "the fault does not strike, or is not seen");
}

/* Guard on. */
static void is_stopped(const char *plan, enum end how)
{
	uint64_t dropped;

	cr_assert_eq(disturbed_rounds(plan, how, &dropped), 0, "late bytes in memory that has a new owner");
	cr_assert_geq(dropped, (uint64_t)ROUNDS * MIB / 2, "nothing was stopped, so nothing was shown");
}

Test(fault_late, after_the_deadline_without_guard)
{
	is_seen("late:for=30ms,guard=off", BY_DEADLINE);
}

Test(fault_late, after_the_deadline_with_guard)
{
	is_stopped("late:for=30ms", BY_DEADLINE);
}

Test(fault_late, after_cancel_without_guard)
{
	is_seen("late:for=30ms,guard=off", BY_CANCEL);
}

Test(fault_late, after_cancel_with_guard)
{
	is_stopped("late:for=30ms", BY_CANCEL);
}

/* The client is gone, and with it the memory: an unguarded write would crash the node. */
Test(fault_late, after_detach)
{
	struct client *c;
	struct fault_rig f;

	fault_init(&f, 2);
	fault_start(&f);
	c = rig_attach(&f.r, 8 * MIB);
	fault_plan(&f, BAD, "late:for=30ms");
	rig_submit_read(&f.r, c, "large", 0, UINT64_MAX, 0, 0);
	rig_run(&f.r, 3 * MS);
	cr_assert(rig_detach(&f.r, c));
	cr_assert_eq(fault_count(&f, BAD, FAULT_LATE), 0);
	rig_run(&f.r, 40 * MS);
	cr_assert_eq(fault_count(&f, BAD, FAULT_LATE), 1);
	fault_over(&f);
	fault_stop(&f);
}
