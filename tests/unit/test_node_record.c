/* SPDX-License-Identifier: BSD-3-Clause */
/* What the flight recorder says of reads that a whole node ended, well or not. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "read/control_priv.h"
#include "rig_tap.h"

#define MIB (1u << 20)
#define MS 1000000ull

static struct record last(struct rig *r)
{
	const struct recorder *rec = &r->node->recorder;
	struct record out;

	cr_assert_gt(recorder_written(rec), 0u);
	cr_assert(recorder_read(rec, recorder_written(rec) - 1, &out));
	return out;
}

static uint64_t rail_sum(const struct record *rec)
{
	uint64_t sum = 0;

	for (int i = 0; i < __builtin_popcount(rec->rail_mask); i++)
		sum += rec->rail_bytes[i];
	return sum;
}

/* Per mille of the read's time, which is longer than any rail's part in it. */
static uint64_t share_of(const struct record *rec, uint64_t ns)
{
	uint64_t span_ns = rec->finished_ns - rec->started_ns;

	return (ns * 1000 + span_ns / 2) / span_ns;
}

static uint64_t store_ns(const struct record *rec)
{
	return (rec->storage_ns + rec->store_queue_ns) / rec->n_segments;
}

Test(node_record, a_good_read)
{
	struct record rec;
	struct ry_cqe cqe;
	uint64_t start;
	struct rig r;

	rig_init(&r, 3, 400000000);
	rig_start(&r);
	free(rig_object(&r, "some key", 8 * MIB, 1));
	cr_assert_eq(recorder_written(&r.node->recorder), 0u, "a put is no read");
	start = r.now_ns;
	cqe = rig_read(&r, r.client, "some key", MIB, 2 * MIB, 0);
	cr_assert_eq(cqe.status, RY_OK);
	rec = last(&r);
	cr_assert_eq(recorder_written(&r.node->recorder), 1u);
	cr_assert_eq(rec.status, RY_OK);
	cr_assert_eq(rec.key_bytes, 8);
	cr_assert_arr_eq(rec.key, "some key", 8);
	cr_assert_eq(rec.key[8], 0);
	cr_assert(rec.started_ns >= start && rec.finished_ns == cqe.done_ns && rec.finished_ns > rec.started_ns);
	cr_assert_eq(rec.offset, MIB);
	cr_assert_eq(rec.bytes, 2 * MIB);
	cr_assert_eq(rec.object_bytes, 8 * MIB);
	cr_assert_eq(rec.wire_bytes, 2 * MIB);
	cr_assert_eq(rec.rail_mask, 7u);
	cr_assert_eq(rail_sum(&rec), 2 * MIB);
	cr_assert_eq(rec.bad_rail, RY_RAIL_NONE);
	cr_assert_eq(rec.store_idx, 0);
	cr_assert_eq(rec.client_id, r.client->id);
	cr_assert_eq(rec.class_own, RY_CLASS_NETWORK);
	cr_assert_eq(rec.class_ref, RY_CLASS_NETWORK);
	cr_assert_eq(rec.class_share_permille, share_of(&rec, rec.transfer_ns - store_ns(&rec)));
	cr_assert_gt(rec.class_share_permille, 500, "three rails at their limit: %u", rec.class_share_permille);
	cr_assert_eq(rig_slot(r.client, &cqe)->stats.class_share_permille, rec.class_share_permille);
	cr_assert(rec.is_verified && !rec.is_failover && !rec.is_one_rail);
	cr_assert_geq(rec.transfer_ns, MS, "2 MiB over three rails of 400 MB/s");
	cr_assert_leq(rec.transfer_ns, rec.finished_ns - rec.started_ns);
	rig_stop(&r);
}

Test(node_record, a_long_key_and_flags)
{
	struct record rec;
	char key[201];
	struct rig r;

	rig_init(&r, 2, 0);
	rig_start(&r);
	memset(key, 'x', 200);
	key[200] = 0;
	free(rig_object(&r, key, MIB, 1));
	cr_assert_eq(rig_read(&r, r.client, key, 0, UINT64_MAX, RY_F_ONE_RAIL | RY_F_FAILOVER).status, RY_OK);
	rec = last(&r);
	cr_assert_eq(rec.key_bytes, 200);
	cr_assert_arr_eq(rec.key, key, RECORDER_KEY_BYTES);
	cr_assert(rec.is_failover && rec.is_one_rail);
	cr_assert_eq(rec.bytes, MIB);
	cr_assert_eq(rec.rail_mask, 1u);
	rig_stop(&r);
}

Test(node_record, a_read_that_finds_nothing)
{
	struct record rec;
	struct rig r;

	rig_init(&r, 1, 0);
	rig_start(&r);
	cr_assert_eq(rig_read(&r, r.client, "absent", 0, UINT64_MAX, 0).status, RY_ERR_NOT_FOUND);
	rec = last(&r);
	cr_assert_eq(rec.status, RY_ERR_NOT_FOUND);
	cr_assert_str_eq(rec.cause, ry_status_text(RY_ERR_NOT_FOUND));
	cr_assert_arr_eq(rec.key, "absent", 6);
	cr_assert_eq(rec.rail_mask, 0u);
	cr_assert_eq(rec.object_bytes, 0u);
	cr_assert_eq(rec.bytes, UINT64_MAX);
	cr_assert(rec.class_own == RY_CLASS_UNKNOWN && rec.class_share_permille == 0);
	rig_stop(&r);
}

/* `railyard get` looks the key up before it reads it. A key that is not there is an answer, and no failure. */
Test(node_record, a_look_up_that_fails)
{
	struct ry_sqe sqe = {.op = RY_OP_LOOKUP};
	struct record rec;
	uint64_t ticket;
	struct rig r;

	rig_init(&r, 1, 0);
	rig_start(&r);
	free(rig_object(&r, "some key", MIB, 1));
	cr_assert_eq(rig_wait(&r, r.client, rig_submit(&r, r.client, sqe, "some key", 8)).status, RY_OK);
	cr_assert_eq(rig_wait(&r, r.client, rig_submit(&r, r.client, sqe, "absent", 6)).status, RY_ERR_NOT_FOUND);
	cr_assert_eq(recorder_written(&r.node->recorder), 0u, "both are answers");
	/* Nobody answers before the deadline: conn does not run. */
	sqe.deadline_ns = r.now_ns + MS;
	ticket = rig_submit(&r, r.client, sqe, "some key", 8);
	control_poll(r.node->control, r.now_ns);
	r.now_ns += 2 * MS;
	control_poll(r.node->control, r.now_ns);
	cr_assert_eq(rig_wait(&r, r.client, ticket).status, RY_ERR_TIMEOUT);
	cr_assert_eq(recorder_written(&r.node->recorder), 1u);
	rec = last(&r);
	cr_assert(rec.status == RY_ERR_TIMEOUT && rec.is_lookup && rec.bytes == 0 && rec.rail_mask == 0);
	cr_assert_arr_eq(rec.key, "some key", 8);
	cr_assert(strstr(rec.cause, "before the deadline"), "%s", rec.cause);
	rig_read(&r, r.client, "some key", 0, MIB, 0);
	rec = last(&r);
	cr_assert(!rec.is_lookup);
	rig_stop(&r);
}

/* No byte of somebody else's key, and none from behind the table. */
Test(node_record, a_key_that_is_none)
{
	struct ry_sqe sqe = {.op = RY_OP_READ, .length = UINT64_MAX};
	struct record rec;
	struct rig r;

	rig_init(&r, 1, 0);
	rig_start(&r);
	free(rig_object(&r, "secret", MIB, 1));
	rig_read(&r, r.client, "secret", 0, UINT64_MAX, 0);
	cr_assert_eq(rig_wait(&r, r.client, rig_submit(&r, r.client, sqe, NULL, 5000)).status, RY_ERR_INVALID);
	rec = last(&r);
	cr_assert_eq(rec.status, RY_ERR_INVALID);
	cr_assert_eq(rec.key_bytes, 0);
	cr_assert_eq(rec.key[0], 0);
	rig_stop(&r);
}

/* How far it came, and on which rails. */
Test(node_record, a_read_that_ran_out_of_time)
{
	struct record rec;
	struct ry_cqe cqe;
	struct rig r;

	rig_init(&r, 3, 400000000);
	r.config.rails[2].mock.bandwidth_bytes_per_s = 1000000;
	r.config.fence_timeout_ns = 5 * MS;
	rig_start(&r);
	free(rig_object(&r, "k", 8 * MIB, 1));
	cqe = rig_wait(&r, r.client, rig_submit_read(&r, r.client, "k", 0, UINT64_MAX, 0, r.now_ns + 100 * MS));
	cr_assert_eq(cqe.status, RY_ERR_TIMEOUT);
	rec = last(&r);
	cr_assert_eq(rec.status, RY_ERR_TIMEOUT);
	cr_assert(strstr(rec.cause, "of 8388608 bytes had landed"), "%s", rec.cause);
	cr_assert(rec.wire_bytes > 0 && rec.wire_bytes < 8 * MIB);
	cr_assert_eq(rail_sum(&rec), rec.wire_bytes);
	cr_assert_eq(rec.rail_mask & 4, 0u, "nothing came over the slow one");
	cr_assert_leq(rec.transfer_ns, 100 * MS);
	cr_assert_eq(rec.object_bytes, 8 * MIB);
	cr_assert(rig_settle(&r));
	rig_stop(&r);
}

Test(node_record, a_read_whose_client_left)
{
	struct client *c;
	struct record rec;
	struct rig r;

	rig_init(&r, 1, 50000000);
	rig_start(&r);
	free(rig_object(&r, "k", 4 * MIB, 1));
	c = rig_attach(&r, 8 * MIB);
	rig_submit_read(&r, c, "k", 0, UINT64_MAX, 0, 0);
	rig_run(&r, 5 * MS);
	cr_assert(rig_detach(&r, c));
	rec = last(&r);
	cr_assert_eq(rec.status, RY_ERR_DETACHED);
	rig_stop(&r);
}
