/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Moves n segments of 1 MiB over one mock rail without data and without hashing, so that an instruction counter sees
 * the machinery alone. perf/segment-cost.sh runs it under callgrind with two counts and prints the slope.
 */
#include <stdio.h>
#include <stdlib.h>

#include "read/control_priv.h"
#include "rig.h"

#define OBJECT_BYTES (16u << 20)

static bool read_pair(struct rig *r);

int main(int argc, char **argv)
{
	unsigned n_reads = argc > 1 ? (unsigned)atoi(argv[1]) : 1;
	uint8_t *data = calloc(1, OBJECT_BYTES);
	uint64_t handed;
	struct rig r;

	rig_init(&r, 1, 0);
	r.config.rails[0].mock.want_copy = false;
	r.config.put_arena_bytes = OBJECT_BYTES + (1u << 20);
	r.config.read_arena_bytes = 4 * OBJECT_BYTES;
	r.config.depth_min_bytes = OBJECT_BYTES; /* the machinery is to be busy, not the model's wire */
	rig_start(&r);
	if (rig_put(&r, r.client, "k", data, OBJECT_BYTES, 4u << 20, 0).status != RY_OK)
		return 1;
	if (rig_read(&r, r.client, "k", 0, 4096, 0).status != RY_OK)
		return 1;
	for (uint32_t i = 0; i < r.node->control->n_descs; i++)
		r.node->control->descs[i].has_checksums = false;
	r.node->snapshot.serve_turn_bytes = OBJECT_BYTES;
	handed = r.node->counters.segments_handed;
	for (unsigned i = 0; i < n_reads; i++) {
		if (!read_pair(&r))
			return 1;
	}
	printf("segments %lu\n", (unsigned long)(r.node->counters.segments_handed - handed));
	return 0;
}

/* Two reads at once keep the rail busy, as a loaded node is. */
static bool read_pair(struct rig *r)
{
	struct ry_sqe sqe = {.op = RY_OP_READ, .length = UINT64_MAX, .flags = RY_F_ALLOW_UNVERIFIED};
	struct ry_cqe cqe;

	rig_submit(r, r->client, sqe, "k", 1);
	rig_submit(r, r->client, sqe, "k", 1);
	for (unsigned n = 0; n < 2;) {
		if (!rig_reap(r, r->client, &cqe)) {
			rig_step(r);
			continue;
		}
		if (cqe.status != RY_OK || cqe.bytes != OBJECT_BYTES)
			return false;
		rig_release(r, r->client, cqe.lease_id);
		n++;
	}
	return true;
}
