/* SPDX-License-Identifier: BSD-3-Clause */
/* Who is to blame for most of a read's time: the reference rule, and ours. Pure; docs/classes.md explains both. */
#include "read/control_priv.h"

static uint64_t most(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* What a share is a share of: never nothing. */
static uint64_t span_ns(const struct classify_in *in)
{
	return most(most(in->object_ns, in->max_rail_ns), 1);
}

/* The rule of the reference: it can hardly ever say storage, because a slow disk hides inside rail time. */
enum ry_class classify_ref(const struct classify_in *in)
{
	uint64_t span = span_ns(in);

	if (in->verify_ns * 2 > span || in->plan_ns * 2 > span)
		return RY_CLASS_SOFTWARE;
	return in->object_ns * 4 <= in->max_rail_ns * 5 ? RY_CLASS_NETWORK : RY_CLASS_STORAGE;
}

/*
 * Rail time is split by what the store says of each segment: the share of segment time that it waited for storage or in
 * its queue is storage, the rest of transfer is wire. Verification counts where it was not overlapped with transfer;
 * queue and plan are scheduling.
 */
enum ry_class classify_own(const struct classify_in *in, uint16_t *share_permille)
{
	uint64_t store = in->n_segments ? (in->storage_ns + in->store_queue_ns) / in->n_segments : 0;
	uint64_t storage = store < in->transfer_ns ? store : in->transfer_ns;
	uint64_t wire = in->transfer_ns - storage;
	uint64_t software = most(in->verify_ns, in->plan_ns + in->queue_ns);
	uint64_t largest = most(software, most(storage, wire)), span = span_ns(in);

	*share_permille = (uint16_t)(largest < span ? (largest * 1000 + span / 2) / span : 1000);
	if (!largest)
		return RY_CLASS_UNKNOWN;
	if (software > wire && software > storage)
		return RY_CLASS_SOFTWARE;
	return storage > wire ? RY_CLASS_STORAGE : RY_CLASS_NETWORK;
}
