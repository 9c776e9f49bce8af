/* SPDX-License-Identifier: BSD-3-Clause */
/* A replaced or deleted generation goes on serving the reads that began before, and no others. */
#include "node_put_fixture.h"

#define LINGER_NS 1000000000ull

static void start(struct rig *r, uint64_t bandwidth)
{
	rig_init(r, 1, bandwidth);
	r->config.store_linger_ns = LINGER_NS;
	rig_start(r);
}

/* Most of it is not yet asked for when the key gets its next generation. */
Test(node_linger, long_read_of_the_old_generation_finishes)
{
	uint8_t *old, *new;
	struct ry_cqe cqe;
	uint64_t ticket;
	struct rig r;

	start(&r, 100000000);
	old = rig_object(&r, "k", 12 * MIB, 1);
	new = filled(200000, 2);
	ticket = rig_submit_read(&r, r.client, "k", 0, UINT64_MAX, 0, 0);
	rig_run(&r, 30 * MS);
	overwrite_at_once(&r, "k", new, 200000);
	cqe = rig_wait(&r, r.client, ticket);
	cr_assert_eq(cqe.status, RY_OK, "%s", rig_slot(r.client, &cqe)->cause);
	cr_assert_eq(cqe.generation, 1u);
	cr_assert(rig_same(r.client, &cqe, old, 12 * MIB));
	rig_release(&r, r.client, cqe.lease_id);
	free(old);
	free(new);
	rig_stop(&r);
}

/* The descriptor of the old generation is still in the cache, and its memory still there: a new read must not get it.
 */
Test(node_linger, no_read_begins_on_it)
{
	uint8_t *old, *new;
	struct rig r;

	start(&r, 0);
	old = rig_object(&r, "k", 2 * MIB, 1);
	reads(&r, "k", old, 2 * MIB, 1);
	new = filled(200000, 2);
	overwrite_at_once(&r, "k", new, 200000);
	reads(&r, "k", new, 200000, 2);
	cr_assert_eq(delete_key(&r, "k", 2).status, RY_OK);
	missing(&r, "k");
	free(old);
	free(new);
	rig_stop(&r);
}

Test(node_linger, read_of_a_deleted_object_finishes)
{
	struct ry_cqe cqe;
	uint64_t ticket;
	uint8_t *old;
	struct rig r;

	start(&r, 100000000);
	old = rig_object(&r, "k", 12 * MIB, 1);
	ticket = rig_submit_read(&r, r.client, "k", 0, UINT64_MAX, 0, 0);
	rig_run(&r, 30 * MS);
	cr_assert_eq(delete_key(&r, "k", 0).status, RY_OK);
	cqe = rig_wait(&r, r.client, ticket);
	cr_assert_eq(cqe.status, RY_OK, "%s", rig_slot(r.client, &cqe)->cause);
	cr_assert(rig_same(r.client, &cqe, old, 12 * MIB));
	rig_release(&r, r.client, cqe.lease_id);
	missing(&r, "k");
	free(old);
	rig_stop(&r);
}

/* Its memory comes back after the linger, and before where a put needs it. */
Test(node_linger, memory_comes_back)
{
	uint8_t *data;
	struct rig r;

	start(&r, 0);
	data = rig_object(&r, "k", 2 * MIB, 1);
	cr_assert_eq(delete_key(&r, "k", 0).status, RY_OK);
	cr_assert_eq(store_used_bytes(r.node->store), 2 * MIB);
	r.step_ns = 10 * MS;
	rig_run(&r, LINGER_NS + 100 * MS);
	cr_assert_eq(store_used_bytes(r.node->store), 0u);
	r.step_ns = RIG_STEP_NS;
	for (int i = 0; i < 12; i++) { /* each replaces the one before: 96 MiB through 64 MiB of memory */
		struct ry_cqe cqe = rig_put(&r, r.client, "k", data, 2 * MIB, 256 << 10, 0);

		cr_assert_eq(cqe.status, RY_OK, "%s", rig_slot(r.client, &cqe)->cause);
		for (int n = 0; n < 3; n++) {
			char key[16];

			snprintf(key, sizeof(key), "k%d", n);
			cqe = rig_put(&r, r.client, key, data, 2 * MIB, 256 << 10, 0);
			cr_assert_eq(cqe.status, RY_OK, "%s", rig_slot(r.client, &cqe)->cause);
		}
	}
	free(data);
	rig_stop(&r);
}
