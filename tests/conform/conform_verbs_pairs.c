/* SPDX-License-Identifier: BSD-3-Clause */
/* Pairs that come and go: a QP has its receives before its peer can reach it, so nobody is ever told that it was not
 * ready. */
#include "conform_verbs.h"

#include <criterion/criterion.h>

#include <stdio.h>

#include "sync/sync.h"

#define N_PAIRS 1000u

static uint64_t not_ready(void);
static uint64_t counter(const char *name, bool *is_there);
static void exchange(uint32_t seed);

/* How often this device said or was told RNR, by whatever names it counts that (rxe; mlx5). */
static uint64_t not_ready(void)
{
	static const char *const names[] = {"rcvd_rnr_err", "send_rnr_err", "rnr_nak_retry_err", "out_of_buffer"};
	bool is_there = false;
	uint64_t sum = 0;

	for (uint32_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		sum += counter(names[i], &is_there);
	cr_assert(is_there, "this device counts no RNR");
	return sum;
}

static uint64_t counter(const char *name, bool *is_there)
{
	unsigned long long value = 0;
	char path[512];
	FILE *f;

	snprintf(path, sizeof(path), "/sys/class/infiniband/%s/ports/1/hw_counters/%s", ib_of(c->a)->ctx->device->name,
		name);
	f = fopen(path, "re");
	if (!f)
		return 0;
	cr_assert_eq(fscanf(f, "%llu", &value), 1, "%s", path);
	fclose(f);
	*is_there = true;
	return value;
}

/* All that credits allow, from both ends at once and before either has looked at its CQ. */
static void exchange(uint32_t seed)
{
	for (uint32_t i = 0; i < RAIL_CREDITS; i++) {
		conform_send(c, c->a, c->qa[0], 1, seed + i);
		conform_send(c, c->b, c->qb[0], 1, seed + i);
	}
	conform_wait_for(c, WC_RECV, c->qa[0], RAIL_CREDITS);
	conform_wait_for(c, WC_RECV, c->qb[0], RAIL_CREDITS);
	cr_assert_eq(conform_count(c, WC_QP_DOWN, c->qa[0]) + conform_count(c, WC_QP_DOWN, c->qb[0]), 0);
}

/* More messages than receives, to an end that does not look. */
Test(conform_verbs, who_is_not_ready_is_counted)
{
	uint64_t before, until_ns = clock_ns() + 10000000000u;

	verbs_begin(1);
	before = not_ready();
	for (uint32_t i = 0; i < IB_RECVS + 4; i++)
		conform_send(c, c->a, c->qa[0], 1, i);
	while (not_ready() == before)
		cr_assert(clock_ns() < until_ns, "%u messages for %u receives, and nobody was told", IB_RECVS + 4,
			IB_RECVS);
	conform_wait_for(c, WC_RECV, c->qb[0], IB_RECVS + 4);
	verbs_over();
}

Test(conform_verbs, every_one_of_a_thousand_pairs_is_ready)
{
	uint64_t before;

	verbs_begin(0);
	before = not_ready();
	for (uint32_t i = 0; i < N_PAIRS; i++) {
		verbs_pair_up(c, 0);
		exchange(i);
		verbs_pair_down(0);
		c->n_events = 0;
	}
	cr_assert_eq(not_ready(), before, "%lu times", (unsigned long)(not_ready() - before));
	verbs_over();
}
