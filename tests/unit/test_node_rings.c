/* SPDX-License-Identifier: BSD-3-Clause */
/* What a client can do to the tables of the control lcore with its ring. */
#include <criterion/criterion.h>
#include <poll.h>
#include <stdlib.h>

#include "read/control_priv.h"
#include "rig.h"

/* The daemon takes what it has room to answer, and sleeps. */
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

/* Descriptors are remembered in a memory of their own: its end is no end of reading, for nobody. */
Test(node_rings, long_keys_do_not_use_up_the_memory_of_descriptors)
{
	const unsigned n = META_SLAB_BYTES / RY_KEY_MAX_BYTES + 100;
	static char key[RY_KEY_MAX_BYTES + 1];
	struct ry_cqe cqe;
	struct rig r;

	rig_init(&r, 1, 0);
	r.config.descriptor_cache_entries = 2 * n;
	rig_start(&r);
	memset(key, 'k', RY_KEY_MAX_BYTES);
	for (unsigned i = 0; i < n; i++) {
		key[snprintf(key, 9, "%08u", i)] = 'k';
		cqe = rig_put(&r, r.client, key, (const uint8_t *)key, 8, 65536, 0);
		cr_assert_eq(cqe.status, RY_OK, "put %u: %s", i, rig_slot(r.client, &cqe)->cause);
		cqe = rig_read(&r, r.client, key, 0, 8, 0);
		cr_assert_eq(cqe.status, RY_OK, "read %u: %s", i, rig_slot(r.client, &cqe)->cause);
		rig_release(&r, r.client, cqe.lease_id);
	}
	cr_assert(rig_settle(&r));
	rig_stop(&r);
}

/* A ring that makes no sense is left alone, and counted; the others go on. */
Test(node_rings, a_ring_that_makes_no_sense)
{
	static const uint32_t jumps[] = {65, 1000, UINT32_MAX / 2, UINT32_MAX};
	struct ry_sqe sqe = {.op = RY_OP_LOOKUP, .slot = 64};
	struct client *bad;
	struct ry_cqe cqe;
	uint32_t taken;
	struct rig r;

	rig_init(&r, 1, 0);
	rig_start(&r);
	free(rig_object(&r, "k", 1000, 1));
	for (unsigned i = 0; i < 2 * sizeof(jumps) / sizeof(jumps[0]) + 1; i++) {
		bad = rig_attach(&r, 1u << 20);
		if (i < 4) {
			bad->sq_index->tail += jumps[i];
		} else if (i < 8) {
			rig_submit(&r, bad, (struct ry_sqe){.op = RY_OP_LOOKUP}, "k", 1);
			bad->cq_index->head -= jumps[i - 4] / 2 + 65;
		} else {
			bad->sq[0] = sqe;
			bad->sq_index->tail = 1;
		}
		rig_run(&r, 10 * RIG_STEP_NS);
		cr_expect_eq(stat_get(&r.node->counters.rings_broken), i + 1, "%u", i);
		taken = bad->sq_index->head;
		rig_submit(&r, bad, (struct ry_sqe){.op = RY_OP_LOOKUP}, "k", 1);
		rig_run(&r, 10 * RIG_STEP_NS);
		cr_expect_eq(bad->sq_index->head, taken, "%u: nothing more is taken", i);
		cr_assert(rig_detach(&r, bad));
		cqe = rig_read(&r, r.client, "k", 0, 1000, 0);
		cr_assert_eq(cqe.status, RY_OK);
		rig_release(&r, r.client, cqe.lease_id);
	}
	rig_stop(&r);
}

/* Counted as the one client that it is, however much of what it wrote at once makes no sense. */
Test(node_rings, a_bad_burst_ends_at_its_first_entry)
{
	const struct ry_sqe wrong = {.op = RY_OP_LOOKUP, .slot = 64};
	struct client *bad;
	struct rig r;

	rig_init(&r, 1, 0);
	rig_start(&r);
	bad = rig_attach(&r, 1u << 20);
	for (unsigned i = 0; i < 8; i++)
		bad->sq[i] =
			i % 2 ? (struct ry_sqe){.op = RY_OP_LOOKUP, .slot = i, .key_bytes = 1, .ticket = i} : wrong;
	bad->sq_index->tail = 8;
	rig_run(&r, 10 * RIG_STEP_NS);
	cr_expect_eq(stat_get(&r.node->counters.rings_broken), 1);
	cr_expect_eq(bad->sq_index->head, 1, "%u entries were taken", bad->sq_index->head);
	cr_expect_eq(bad->cq_index->tail, 0, "none after it was begun");
	cr_assert(rig_detach(&r, bad));
	rig_stop(&r);
}

/* api hears of it once, before the answer to its detach. */
Test(node_rings, a_broken_ring_is_told_once)
{
	static struct api_call attach = {.m.kind = MSG_API, .op = API_ATTACH};
	static struct api_call detach = {.m.kind = MSG_API, .op = API_DETACH};
	static struct api_call broken = {.m.kind = MSG_API, .op = API_BROKEN};
	struct client_conf conf = {.n_entries = 64, .read_arena_bytes = 1u << 20, .put_arena_bytes = 1u << 20};
	char message[256] = "";
	struct pollfd wakeup = {.events = POLLIN};
	struct rig r;

	rig_init(&r, 1, 0);
	rig_start(&r);
	wakeup.fd = r.node->api_waker.event_fd;
	conf.regions = &r.node->regions;
	conf.sleep_set_fd = r.node->control_set_fd;
	cr_assert_eq(client_create(&conf, message, sizeof(message), &attach.client), 0, "%s", message);
	detach.client = attach.client;
	attach.broken = &broken;
	spsc_push(r.node->api_to_control, &attach);
	rig_run(&r, 10 * RIG_STEP_NS);
	cr_assert_eq(spsc_pop(r.node->control_to_api), &attach);
	attach.client->sq_index->tail = 1000;
	waker_prepare(&r.node->api_waker);
	rig_run(&r, 10 * RIG_STEP_NS);
	cr_assert_eq(poll(&wakeup, 1, 0), 1, "api sleeps on");
	waker_cancel(&r.node->api_waker);
	attach.client->sq_index->tail = 2000;
	spsc_push(r.node->api_to_control, &detach);
	rig_run(&r, 1000 * RIG_STEP_NS);
	cr_assert_eq(spsc_pop(r.node->control_to_api), &broken);
	cr_assert_eq(spsc_pop(r.node->control_to_api), &detach);
	cr_assert_null(spsc_pop(r.node->control_to_api));
	client_destroy(attach.client);
	rig_stop(&r);
}

/* The daemon's own indices are in the client's memory too; what it writes there is for others to read, never for
 * itself. */
Test(node_rings, indices_of_the_daemon_are_its_own)
{
	unsigned n_submitted = 0, n_done = 0;
	struct ry_cqe cqe;
	struct rig r;

	rig_init(&r, 1, 0);
	rig_start(&r);
	for (uint32_t i = 0; i < 40; i++) {
		r.client->sq_index->head -= i % 3;
		r.client->sq_index->need_wakeup = i;
		rig_submit(&r, r.client, (struct ry_sqe){.op = RY_OP_LOOKUP}, "k", 1);
		n_submitted++;
		rig_run(&r, 50 * RIG_STEP_NS);
		while (rig_reap(&r, r.client, &cqe)) {
			cr_expect_eq(cqe.ticket, n_submitted);
			n_done++;
		}
	}
	cr_assert_eq(n_done, n_submitted, "each once");
	rig_stop(&r);
}

/* Numbers of leases come round again; an id that was given back before is none of the new lease's. */
Test(node_rings, an_old_id_releases_no_new_lease)
{
	struct ry_cqe cqe, old;
	uint8_t *data;
	struct rig r;
	unsigned n;

	rig_init(&r, 1, 0);
	rig_start(&r);
	data = rig_object(&r, "k", 1000, 1);
	old = rig_read(&r, r.client, "k", 0, 1000, 0);
	cr_assert_eq(old.status, RY_OK);
	rig_release(&r, r.client, old.lease_id);
	for (n = 1; n < LEASES_PER_CLIENT; n++) {
		cqe = rig_read(&r, r.client, "k", 0, 1000, 0);
		cr_assert_eq(cqe.status, RY_OK);
		if ((cqe.lease_id & 0xffff) == (old.lease_id & 0xffff))
			break;
		rig_release(&r, r.client, cqe.lease_id);
	}
	cr_assert(n < LEASES_PER_CLIENT && cqe.lease_id != old.lease_id, "lease %#x, before %#x", cqe.lease_id,
		old.lease_id);
	rig_release(&r, r.client, old.lease_id);
	rig_run(&r, 10 * RIG_STEP_NS);
	cr_assert_eq(stat_get(&r.node->control->counters->leases), 1, "the new lease is still held");
	rig_release(&r, r.client, cqe.lease_id);
	rig_run(&r, 10 * RIG_STEP_NS);
	cr_assert_eq(stat_get(&r.node->control->counters->leases), 0);
	cr_assert(rig_settle(&r));
	free(data);
	rig_stop(&r);
}
