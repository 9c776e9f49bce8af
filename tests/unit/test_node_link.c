/* SPDX-License-Identifier: BSD-3-Clause */
/* What rails are given before they have carried anything: shares by the speed of their links. In virtual time. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "hot/rail.h"
#include "read/control_priv.h"
#include "rig.h"

#define MIB (1u << 20)
#define RATE 125000000ull

static void begin(struct rig *r, uint64_t link0, uint64_t link1)
{
	rig_init(r, 2, RATE);
	r->config.rails[0].mock.link_bytes_per_s = link0;
	r->config.rails[1].mock.link_bytes_per_s = link1;
	rig_start(r);
}

static struct rail_ctx *ctx(const struct rig *r, uint16_t rail)
{
	return &r->node->control->rails[rail];
}

/* The first thing that moves: a put. Both rails carry the same, so only the guess can tell them apart. */
static double share_of_first_put(struct rig *r)
{
	double got[2];

	cr_assert(!ctx(r, 0)->goodput && !ctx(r, 1)->goodput, "a sample was there before");
	free(rig_object(r, "k", 4 * MIB, 1));
	for (int i = 0; i < 2; i++)
		got[i] = (double)stat_get(&rail_counters(r->node->rails[i])->rx_bytes);
	cr_assert_eq(got[0] + got[1], 4.0 * MIB);
	return got[0] / got[1];
}

Test(node_link, unknown_links_start_alike)
{
	struct rig r;
	double share;

	begin(&r, 0, 0);
	share = share_of_first_put(&r);
	cr_assert(share > 0.7 && share < 1.4, "%f", share);
	rig_stop(&r);
}

Test(node_link, a_link_of_four_times_the_speed_starts_with_the_larger_share)
{
	struct rig r;
	double share;

	begin(&r, 4 * RATE, RATE);
	cr_assert_eq(ctx(&r, 0)->rate, 4 * RATE);
	cr_assert_eq(ctx(&r, 1)->rate, RATE);
	share = share_of_first_put(&r);
	cr_assert(share > 1.8, "%f", share);
	rig_stop(&r);
}

/* Both carry the same, whatever their links say: that is what counts from the first samples on. */
Test(node_link, goodput_takes_over)
{
	uint64_t before[2], got[2];
	struct ry_cqe cqe;
	uint8_t *data;
	struct rig r;

	begin(&r, 4 * RATE, RATE);
	data = rig_object(&r, "k", 8 * MIB, 1);
	for (int i = 0; i < 8; i++) {
		for (int k = 0; k < 2; k++)
			before[k] = stat_get(&rail_counters(r.node->rails[k])->rx_bytes);
		cqe = rig_read(&r, r.client, "k", 0, UINT64_MAX, 0);
		cr_assert_eq(cqe.status, RY_OK);
		rig_release(&r, r.client, cqe.lease_id);
	}
	for (int k = 0; k < 2; k++)
		got[k] = stat_get(&rail_counters(r.node->rails[k])->rx_bytes) - before[k];
	cr_assert(ctx(&r, 0)->goodput && ctx(&r, 1)->goodput, "samples");
	cr_assert(got[0] < got[1] * 13 / 10 && got[1] < got[0] * 13 / 10, "%lu, %lu", got[0], got[1]);
	free(data);
	rig_stop(&r);
}

Test(node_link, a_rail_without_a_sample_is_guessed_by_what_others_bring_of_theirs)
{
	struct rig r;

	begin(&r, 8 * RATE, 2 * RATE);
	ctx(&r, 0)->goodput = 4 * RATE;
	r.node->rails[1]->conf.mock.link_bytes_per_s = 3 * RATE;
	rail_read_link(r.node->rails[1]);
	estimate_link(r.node->control, ctx(&r, 1));
	cr_assert_eq(ctx(&r, 1)->rate, 3 * RATE / 2, "%lu: half of its link, as the other", ctx(&r, 1)->rate);
	cr_assert(ctx(&r, 1)->is_weak && !ctx(&r, 0)->is_weak);
	r.node->rails[1]->conf.mock.link_bytes_per_s = 0;
	rail_read_link(r.node->rails[1]);
	estimate_link(r.node->control, ctx(&r, 1));
	cr_assert_eq(ctx(&r, 1)->rate, 4 * RATE, "%lu: unknown, as good as any", ctx(&r, 1)->rate);
	cr_assert_not(ctx(&r, 1)->is_weak);
	rig_stop(&r);
}

/* What it carried at another speed says nothing. */
Test(node_link, a_link_that_comes_back_at_another_speed_starts_anew)
{
	struct rig r;

	begin(&r, 4 * RATE, 4 * RATE);
	ctx(&r, 0)->goodput = ctx(&r, 1)->goodput = 4 * RATE;
	rail_read_link(r.node->rails[1]);
	estimate_link(r.node->control, ctx(&r, 1));
	cr_assert_eq(ctx(&r, 1)->goodput, 4 * RATE, "the same speed");
	r.node->rails[1]->conf.mock.link_bytes_per_s = RATE;
	rail_read_link(r.node->rails[1]);
	estimate_link(r.node->control, ctx(&r, 1));
	cr_assert_eq(ctx(&r, 1)->goodput, 0);
	cr_assert_eq(ctx(&r, 1)->rate, RATE);
	rig_stop(&r);
}

/* The sender's cap is a link's speed, too. */
Test(node_link, a_cap_below_the_link_counts)
{
	struct rig r;

	rig_init(&r, 1, RATE);
	r.config.rails[0].mock.link_bytes_per_s = 4 * RATE;
	r.config.rails[0].rate_bytes_per_s = RATE;
	rig_start(&r);
	cr_assert_eq(rail_link(r.node->rails[0]), RATE);
	r.node->rails[0]->conf.rate_bytes_per_s = 0;
	rail_read_link(r.node->rails[0]);
	cr_assert_eq(rail_link(r.node->rails[0]), 4 * RATE);
	rig_stop(&r);
}
