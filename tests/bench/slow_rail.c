/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One rail of four slowed to a tenth, in virtual time: what objects take on it and the three others, object by object,
 * against the three alone; and the shares of equal rails. Prints JSON. No data moves and nothing is hashed: time is the
 * model's. perf/slow-rail.sh judges.
 */
#include <stdio.h>
#include <stdlib.h>

#include "read/control_priv.h"
#include "rig.h"
#include "transport/mock/fault.h"

#define RATE 125000000ull
#define N_OBJECTS 24u
#define SLOWED_AT 8u /* objects before the fault */
#define MIB (1u << 20)

struct run {
	uint64_t object_ns[N_OBJECTS];
	uint64_t rail_bytes[4]; /* of the last 8 objects */
	bool is_slow;           /* rail 3 at the end */
};

static int run(uint64_t bytes, uint16_t n_rails, bool want_fault, struct run *out);
static bool read_one(struct rig *r, uint64_t bytes, uint64_t *ns, uint64_t *rail_bytes);

int main(int argc, char **argv)
{
	uint64_t bytes = (argc > 1 ? strtoull(argv[1], NULL, 10) : 64) * MIB;
	uint16_t n_rails = argc > 2 ? (uint16_t)atoi(argv[2]) : 4;
	bool want_fault = argc > 3 && atoi(argv[3]);
	struct run result = {0};

	if (run(bytes, n_rails, want_fault, &result))
		return 1;
	printf("{\"object_bytes\": %lu, \"rails\": %u, \"fault\": %s, \"slowed_at\": %u, \"slow\": %s, "
	       "\"rail_bytes\": [%lu, %lu, %lu, %lu], \"object_ns\": [",
		(unsigned long)bytes, n_rails, want_fault ? "true" : "false", SLOWED_AT,
		result.is_slow ? "true" : "false", (unsigned long)result.rail_bytes[0],
		(unsigned long)result.rail_bytes[1], (unsigned long)result.rail_bytes[2],
		(unsigned long)result.rail_bytes[3]);
	for (unsigned i = 0; i < N_OBJECTS; i++)
		printf("%s%lu", i ? ", " : "", (unsigned long)result.object_ns[i]);
	printf("]}\n");
	return 0;
}

/* One process, one EAL, one rig. */
static int run(uint64_t bytes, uint16_t n_rails, bool want_fault, struct run *out)
{
	struct fault_plan plan = {.seed = 1,
		.n_entries = 1,
		.entries = {{.kind = FAULT_SLOW,
			.trigger = FAULT_AT_TIME,
			.chance_ppm = FAULT_ALWAYS_PPM,
			.repeat = 1,
			.arg = FAULT_ALWAYS_PPM / 10}}};
	uint8_t *data = calloc(1, bytes);
	struct rig r;

	rig_init(&r, n_rails, RATE);
	for (uint16_t i = 0; i < n_rails; i++)
		r.config.rails[i].mock.want_copy = false;
	r.config.put_arena_bytes = bytes + MIB;
	r.config.read_arena_bytes = 2 * bytes;
	r.config.store_bytes = 2 * bytes;
	rig_start(&r);
	if (rig_put(&r, r.client, "k", data, bytes, 4u << 20, 0).status != RY_OK)
		return -1;
	if (rig_read(&r, r.client, "k", 0, 4096, 0).status != RY_OK)
		return -1;
	for (uint32_t i = 0; i < r.node->control->n_descs; i++)
		r.node->control->descs[i].has_checksums = false;
	for (unsigned i = 0; i < N_OBJECTS; i++) {
		uint64_t ignored[4] = {0};

		if (i == SLOWED_AT && want_fault && mock_fault_inject(r.node->rails[n_rails - 1], &plan))
			return -1;
		if (!read_one(&r, bytes, &out->object_ns[i], i < N_OBJECTS - 8 ? ignored : out->rail_bytes))
			return -1;
	}
	out->is_slow = r.node->control->rails[n_rails - 1].is_slow;
	free(data);
	return 0;
}

static bool read_one(struct rig *r, uint64_t bytes, uint64_t *ns, uint64_t *rail_bytes)
{
	struct ry_cqe cqe = rig_read(r, r->client, "k", 0, UINT64_MAX, RY_F_ALLOW_UNVERIFIED);
	const struct ry_read_stats *st = &rig_slot(r->client, &cqe)->stats;

	if (cqe.status != RY_OK || cqe.bytes != bytes)
		return false;
	*ns = st->object_ns;
	for (uint8_t i = 0; i < st->n_rails; i++)
		rail_bytes[atoi(st->rails[i].name + 4)] += st->rails[i].bytes;
	rig_release(r, r->client, cqe.lease_id);
	return true;
}
