/* SPDX-License-Identifier: BSD-3-Clause */
/* Both classifiers with injected timings: every class, and the edges between them. */
#include <criterion/criterion.h>

#include "read/control_priv.h"

/* ---- The reference's rule ---- */

static enum ry_class ref(uint64_t object, uint64_t max_rail, uint64_t verify, uint64_t plan)
{
	const struct classify_in in = {
		.object_ns = object, .max_rail_ns = max_rail, .verify_ns = verify, .plan_ns = plan};

	return classify_ref(&in);
}

Test(classify, ref_network)
{
	cr_assert_eq(ref(1000, 1000, 0, 0), RY_CLASS_NETWORK);
	cr_assert_eq(ref(1250, 1000, 0, 0), RY_CLASS_NETWORK, "1.25 times the slowest rail is network still");
	cr_assert_eq(ref(900, 1000, 0, 0), RY_CLASS_NETWORK);
}

Test(classify, ref_storage)
{
	cr_assert_eq(ref(1251, 1000, 0, 0), RY_CLASS_STORAGE);
	cr_assert_eq(ref(1000, 0, 0, 0), RY_CLASS_STORAGE);
}

Test(classify, ref_software)
{
	cr_assert_eq(ref(1000, 1000, 501, 0), RY_CLASS_SOFTWARE, "verification above half");
	cr_assert_eq(ref(1000, 1000, 500, 0), RY_CLASS_NETWORK, "half is not above half");
	cr_assert_eq(ref(1000, 1000, 0, 501), RY_CLASS_SOFTWARE, "scheduling above half");
	cr_assert_eq(ref(1000, 1000, 0, 500), RY_CLASS_NETWORK);
	cr_assert_eq(ref(1000, 1000, 300, 300), RY_CLASS_NETWORK, "each on its own");
	cr_assert_eq(ref(2000, 1000, 900, 900), RY_CLASS_STORAGE);
}

Test(classify, ref_spans_the_larger_of_object_and_rail)
{
	cr_assert_eq(ref(100, 1000, 60, 0), RY_CLASS_NETWORK, "60 is little of a span of 1000");
	cr_assert_eq(ref(0, 0, 0, 0), RY_CLASS_NETWORK);
	cr_assert_eq(ref(0, 0, 1, 0), RY_CLASS_SOFTWARE, "a span of nothing counts as tiny");
}

/* ---- Ours ---- */

static enum ry_class own(uint64_t transfer, uint64_t storage, uint64_t queue, uint32_t n_segments, uint64_t verify,
	uint64_t plan, uint64_t our_queue)
{
	const struct classify_in in = {
		.transfer_ns = transfer,
		.storage_ns = storage,
		.store_queue_ns = queue,
		.n_segments = n_segments,
		.verify_ns = verify,
		.plan_ns = plan,
		.queue_ns = our_queue,
	};

	uint16_t permille;

	return classify_own(&in, &permille);
}

Test(classify, own_unknown)
{
	cr_assert_eq(own(0, 0, 0, 0, 0, 0, 0), RY_CLASS_UNKNOWN);
	cr_assert_eq(own(0, 50, 50, 1, 0, 0, 0), RY_CLASS_UNKNOWN, "no transfer, so none of it was storage");
}

Test(classify, own_network)
{
	cr_assert_eq(own(1000, 0, 0, 1, 0, 0, 0), RY_CLASS_NETWORK);
	cr_assert_eq(own(1000, 499, 0, 1, 0, 0, 0), RY_CLASS_NETWORK);
	cr_assert_eq(own(1000, 500, 0, 1, 0, 0, 0), RY_CLASS_NETWORK, "a tie is the network's");
	cr_assert_eq(own(1000, 0, 0, 1, 1000, 0, 0), RY_CLASS_NETWORK, "a tie is not the software's");
}

Test(classify, own_storage)
{
	cr_assert_eq(own(1000, 501, 0, 1, 0, 0, 0), RY_CLASS_STORAGE);
	cr_assert_eq(own(1000, 0, 501, 1, 0, 0, 0), RY_CLASS_STORAGE, "waiting in the store's queue is storage");
	cr_assert_eq(own(1000, 300, 300, 1, 0, 0, 0), RY_CLASS_STORAGE);
	cr_assert_eq(
		own(1000, 10000, 0, 10, 0, 0, 0), RY_CLASS_STORAGE, "a mean over the segments, at most the transfer");
	cr_assert_eq(own(1000, 4000, 0, 10, 0, 0, 0), RY_CLASS_NETWORK);
	cr_assert_eq(own(1000, 1000000, 0, 1, 999, 0, 0), RY_CLASS_STORAGE);
}

Test(classify, own_software)
{
	cr_assert_eq(own(1000, 0, 0, 1, 1001, 0, 0), RY_CLASS_SOFTWARE, "verification");
	cr_assert_eq(own(1000, 0, 0, 1, 0, 1001, 0), RY_CLASS_SOFTWARE, "scheduling");
	cr_assert_eq(own(1000, 0, 0, 1, 0, 0, 1001), RY_CLASS_SOFTWARE, "waiting in our own queue");
	cr_assert_eq(own(1000, 0, 0, 1, 0, 501, 500), RY_CLASS_SOFTWARE, "planning and queueing are one share");
	cr_assert_eq(own(1000, 0, 0, 1, 600, 600, 0), RY_CLASS_NETWORK, "verification and scheduling are two");
	cr_assert_eq(own(1000, 600, 0, 1, 601, 0, 0), RY_CLASS_SOFTWARE, "larger than either part of transfer");
}

/* ---- The share that comes with ours ---- */

static uint16_t share(struct classify_in in, enum ry_class want)
{
	uint16_t permille = 0xffff;

	cr_assert_eq(classify_own(&in, &permille), want);
	return permille;
}

Test(classify, share_of_each_class)
{
	struct classify_in in = {.object_ns = 10000, .transfer_ns = 6000, .n_segments = 2};

	cr_assert_eq(share(in, RY_CLASS_NETWORK), 600);
	in.storage_ns = 5000, in.store_queue_ns = 3400;
	cr_assert_eq(share(in, RY_CLASS_STORAGE), 420, "a mean of 4200 of the 6000");
	in.storage_ns = 0, in.store_queue_ns = 2000;
	cr_assert_eq(share(in, RY_CLASS_NETWORK), 500, "the wire without what was the store's");
	in.verify_ns = 5500;
	cr_assert_eq(share(in, RY_CLASS_SOFTWARE), 550);
	in.plan_ns = 5600, in.queue_ns = 1200;
	cr_assert_eq(share(in, RY_CLASS_SOFTWARE), 680, "the larger of the software's two, not both");
}

Test(classify, share_is_of_the_longer_of_object_and_rail)
{
	struct classify_in in = {.object_ns = 1000, .max_rail_ns = 800, .transfer_ns = 500, .n_segments = 1};

	cr_assert_eq(share(in, RY_CLASS_NETWORK), 500);
	in.max_rail_ns = 2000;
	cr_assert_eq(share(in, RY_CLASS_NETWORK), 250);
}

Test(classify, share_at_its_ends)
{
	struct classify_in in = {.object_ns = 3000};

	cr_assert_eq(share(in, RY_CLASS_UNKNOWN), 0, "of nothing, nothing");
	in.transfer_ns = 2, in.n_segments = 1;
	cr_assert_eq(share(in, RY_CLASS_NETWORK), 1, "rounded to the nearest");
	in.transfer_ns = 1;
	cr_assert_eq(share(in, RY_CLASS_NETWORK), 0);
	in.transfer_ns = 3000;
	cr_assert_eq(share(in, RY_CLASS_NETWORK), 1000);
	in.transfer_ns = 70000;
	cr_assert_eq(share(in, RY_CLASS_NETWORK), 1000, "never more than all of it");
	in.object_ns = 0;
	cr_assert_eq(share(in, RY_CLASS_NETWORK), 1000, "a span of nothing counts as tiny");
	in.object_ns = in.transfer_ns = 20ull * 86400 * 1000000000;
	in.object_ns *= 4;
	cr_assert_eq(share(in, RY_CLASS_NETWORK), 250, "eighty days");
}
