/* SPDX-License-Identifier: BSD-3-Clause */
/* A client that submits for ever and reaps nothing: the daemon takes what it has room to answer, and sleeps. */
#include <criterion/criterion.h>

#include "read/control_priv.h"
#include "rig.h"

Test(node_rings, client_that_never_reaps)
{
	struct ry_sqe sqe = {.op = RY_OP_LOOKUP};
	struct ry_cqe cqe;
	unsigned n = 0;
	struct rig r;

	rig_init(&r, 1, 0);
	rig_start(&r);
	for (uint32_t i = 0; i < 2 * r.client->n_entries; i++) {
		rig_submit(&r, r.client, sqe, "k", 1);
		rig_step(&r);
		rig_step(&r);
	}
	rig_run(&r, 100 * RIG_STEP_NS);
	cr_assert(!rings_pending(r.node->control), "what cannot be taken must not keep control awake");
	while (rig_reap(&r, r.client, &cqe))
		n++;
	cr_assert_eq(n, r.client->n_entries);
	rig_run(&r, 100 * RIG_STEP_NS);
	while (rig_reap(&r, r.client, &cqe))
		n++;
	cr_assert_eq(n, 2 * r.client->n_entries, "the rest is served once there is room");
	rig_stop(&r);
}
