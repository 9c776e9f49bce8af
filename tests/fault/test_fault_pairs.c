/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * All pairs of faults on one rail of two, a fault with itself included: reads come to the exact bytes or to a typed
 * error by their deadline, everything is given back, and afterwards all is well.
 *
 * One test per first fault, one node for all of its pairs, so that a pair also starts from what the former one left.
 */
#include <criterion/criterion.h>

#include "fault_rig.h"

#define BAD 1

/* Each with triggers of its own, so that two of them meet in different orders; p varies with the seed. */
static const struct {
	enum fault_kind kind;
	const char *first;
	const char *second;
} faults[] = {
	{FAULT_DISCONNECT, "disconnect:at=300KiB,every=3MiB,repeat=2", "disconnect:n=1"},
	{FAULT_STALL, "stall:at=200KiB,every=2MiB,for=7ms,repeat=2", "stall:n=1,for=80ms"},
	{FAULT_SHORT, "short:n=2,by=1000", "short:n=1,every=2,repeat=2"},
	{FAULT_CORRUPT, "corrupt:n=1", "corrupt:n=1,every=2,p=0.7,repeat=3"},
	{FAULT_LATE, "late:n=2,for=10ms", "late:n=1,every=2,for=1ms,repeat=3"},
	{FAULT_SLOW, "slow:factor=0.05,for=30ms", "slow:at=1,factor=0.3"},
	{FAULT_LOSE, "lose:n=2", "lose:of=all,n=1,every=3,p=0.6,repeat=5"},
	{FAULT_DUPLICATE, "duplicate:repeat=forever", "duplicate:of=all,n=1,every=2,repeat=20"},
	{FAULT_REORDER, "reorder:n=1,every=3,repeat=forever", "reorder:of=all,n=1,every=2,repeat=9,for=3ms"},
	{FAULT_ERROR, "error:n=2,class=retry", "error:at=700KiB,every=2MiB,repeat=2,class=access"},
	{FAULT_RESTART, "restart:n=2", "restart:at=1MiB"},
};
#define N_FAULTS (sizeof(faults) / sizeof(faults[0]))

static void reads(struct fault_rig *f)
{
	static const struct {
		const char *key;
		uint32_t flags;
	} reads[] = {{"large", 0}, {"small", RY_F_FAILOVER}, {"large", RY_F_FAILOVER}, {"small", 0}};

	for (unsigned i = 0; i < sizeof(reads) / sizeof(reads[0]); i++)
		fault_read(f, reads[i].key, reads[i].flags, 40);
}

/* Whether any fault of the pair struck. Both cannot always: the first may leave the other nothing to strike at. */
static bool pair(struct fault_rig *f, unsigned a, unsigned b)
{
	uint64_t before = fault_count(f, BAD, faults[a].kind) + fault_count(f, BAD, faults[b].kind);
	char plan[256];

	snprintf(plan, sizeof(plan), "%s; %s; seed=%u", faults[a].first, faults[b].second, 100 * a + b);
	fault_plan(f, BAD, plan);
	reads(f);
	fault_over(f);
	return fault_count(f, BAD, faults[a].kind) + fault_count(f, BAD, faults[b].kind) > before;
}

static void pairs_of(enum fault_kind kind)
{
	struct fault_rig f;

	fault_init(&f, 2);
	fault_start(&f);
	for (unsigned a = 0; a < N_FAULTS; a++) {
		for (unsigned b = 0; faults[a].kind == kind && b < N_FAULTS; b++)
			cr_assert(pair(&f, a, b), "%s; %s: nothing happened", faults[a].first, faults[b].second);
	}
	for (unsigned b = 0; b < N_FAULTS; b++)
		cr_assert_gt(fault_count(&f, BAD, faults[b].kind), 0, "%s never struck", faults[b].second);
	fault_stop(&f);
}

Test(fault_pairs, disconnect_and)
{
	pairs_of(FAULT_DISCONNECT);
}

Test(fault_pairs, stall_and)
{
	pairs_of(FAULT_STALL);
}

Test(fault_pairs, short_and)
{
	pairs_of(FAULT_SHORT);
}

Test(fault_pairs, corrupt_and)
{
	pairs_of(FAULT_CORRUPT);
}

Test(fault_pairs, late_and)
{
	pairs_of(FAULT_LATE);
}

Test(fault_pairs, slow_and)
{
	pairs_of(FAULT_SLOW);
}

Test(fault_pairs, lose_and)
{
	pairs_of(FAULT_LOSE);
}

Test(fault_pairs, duplicate_and)
{
	pairs_of(FAULT_DUPLICATE);
}

Test(fault_pairs, reorder_and)
{
	pairs_of(FAULT_REORDER);
}

Test(fault_pairs, error_and)
{
	pairs_of(FAULT_ERROR);
}

Test(fault_pairs, restart_and)
{
	pairs_of(FAULT_RESTART);
}
