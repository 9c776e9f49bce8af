/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * All pairs of faults on one rail of three, a fault with itself included: both strike, reads come to the exact bytes or
 * to a typed error by their deadline, everything is given back, and afterwards all is well.
 *
 * One test per first fault, one node for all of its pairs, so that a pair also starts from what the former one left.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "fault_rig.h"

#define N_RAILS 3
#define BAD 1
#define ROUNDS_MAX 25

/*
 * Each with triggers of its own, so that two of them meet in different orders; p varies with the seed. What befalls one
 * write may be lost with it when the other fault ends the connection first, so these come more than once. None comes
 * for ever: more strikes of one kind than one of two entries may do tell that both did.
 */
static const struct {
	enum fault_kind kind;
	const char *first;
	const char *second;
} faults[] = {
	{FAULT_DISCONNECT, "disconnect:at=300KiB,every=3MiB,repeat=2", "disconnect:n=1"},
	{FAULT_STALL, "stall:at=200KiB,every=2MiB,for=7ms,repeat=2", "stall:n=1,for=80ms"},
	{FAULT_SHORT, "short:n=2,every=7,by=1000,repeat=4", "short:n=1,every=2,repeat=2"},
	{FAULT_CORRUPT, "corrupt:n=1,every=7,repeat=4", "corrupt:n=1,every=2,p=0.7,repeat=3"},
	{FAULT_LATE, "late:n=3,every=5,for=10ms,repeat=3", "late:n=4,every=20,for=1ms,repeat=4"},
	{FAULT_SLOW, "slow:factor=0.05,for=30ms", "slow:at=1,factor=0.3"},
	{FAULT_LOSE, "lose:n=2", "lose:of=all,n=1,every=3,p=0.6,repeat=5"},
	{FAULT_DUPLICATE, "duplicate:repeat=15", "duplicate:of=all,n=1,every=2,repeat=20"},
	{FAULT_REORDER, "reorder:n=1,every=3,repeat=8", "reorder:of=all,n=1,every=2,repeat=9,for=3ms"},
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

/* How often this entry can strike. */
static uint64_t strikes_most(const char *entry)
{
	const char *repeat = strstr(entry, "repeat=");

	return repeat ? strtoull(repeat + strlen("repeat="), NULL, 10) : 1;
}

/* Rounds of reads until both faults struck: the first may have taken the rail out, which is back within two seconds. */
static void pair(struct fault_rig *f, unsigned a, unsigned b)
{
	uint64_t more_a = a == b ? strikes_most(faults[b].second) : 0;
	uint64_t more_b = a == b ? strikes_most(faults[a].first) : 0;
	uint64_t until_a = fault_count(f, BAD, faults[a].kind) + more_a;
	uint64_t until_b = fault_count(f, BAD, faults[b].kind) + more_b;
	bool is_a = false, is_b = false;
	char plan[256];

	snprintf(plan, sizeof(plan), "%s; %s; seed=%u", faults[a].first, faults[b].second, 100 * a + b);
	fault_plan(f, BAD, plan);
	for (unsigned round = 0; round < ROUNDS_MAX && !(is_a && is_b); round++) {
		if (round)
			rig_run(&f->r, 100 * MS);
		reads(f);
		is_a = fault_count(f, BAD, faults[a].kind) > until_a;
		is_b = fault_count(f, BAD, faults[b].kind) > until_b;
	}
	cr_assert(is_a, "%s: %s never struck", plan, faults[a].first);
	cr_assert(is_b, "%s: %s never struck", plan, faults[b].second);
	fault_over(f);
}

static void pairs_of(enum fault_kind kind)
{
	struct fault_rig f;

	fault_init(&f, N_RAILS);
	fault_start(&f);
	for (unsigned a = 0; a < N_FAULTS; a++) {
		for (unsigned b = 0; faults[a].kind == kind && b < N_FAULTS; b++)
			pair(&f, a, b);
	}
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
