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

	return classify_own(&in);
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
