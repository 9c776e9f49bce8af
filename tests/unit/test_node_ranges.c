/* SPDX-License-Identifier: BSD-3-Clause */
/* Reads by range at every alignment, into one piece of arena or many, again and again over the same memory. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "read/control_priv.h"
#include "rig.h"

#define MIB (1u << 20)
#define KIB (1u << 10)
#define STRIPE RIG_STRIPE_BYTES

/* Reads one range and compares it; gives the lease back unless `keep` takes it. */
static void range(struct rig *r, const char *key, const uint8_t *data, uint64_t offset, uint64_t length, uint32_t *keep)
{
	struct ry_cqe cqe = rig_read(r, r->client, key, offset, length, 0);
	uint64_t shown = 0;

	cr_assert_eq(cqe.status, RY_OK, "%lu+%lu: %s", (unsigned long)offset, (unsigned long)length,
		rig_slot(r->client, &cqe)->cause);
	cr_assert(cqe.is_verified);
	for (uint32_t i = 0; i < rig_slot(r->client, &cqe)->n_extents; i++)
		shown += rig_slot(r->client, &cqe)->extents[i].bytes;
	cr_assert_eq(shown, length, "%lu+%lu shows %lu bytes", (unsigned long)offset, (unsigned long)length,
		(unsigned long)shown);
	cr_assert(rig_same(r->client, &cqe, data + offset, length), "%lu+%lu differs", (unsigned long)offset,
		(unsigned long)length);
	if (keep)
		*keep = cqe.lease_id;
	else
		rig_release(r, r->client, cqe.lease_id);
}

static void begin(struct rig *r, uint16_t n_rails)
{
	rig_init(r, n_rails, 0);
	rig_start(r);
}

static void edges(uint16_t n_rails)
{
	const uint64_t size = 5 * STRIPE + 1000;
	uint64_t at[24];
	unsigned n = 0;
	uint8_t *data;
	struct rig r;

	begin(&r, n_rails);
	data = rig_object(&r, "k", size, 1);
	at[n++] = 0;
	at[n++] = 1;
	for (uint64_t s = 1; s <= 5; s++) {
		at[n++] = s * STRIPE - 1;
		at[n++] = s * STRIPE;
		at[n++] = s * STRIPE + 1;
	}
	at[n++] = size - 1;
	at[n++] = size;
	for (unsigned i = 0; i < n; i++) {
		for (unsigned k = i + 1; k < n; k++)
			range(&r, "k", data, at[i], at[k] - at[i], NULL);
	}
	cr_assert(rig_settle(&r));
	free(data);
	rig_stop(&r);
}

Test(node_ranges, every_edge_on_1_rail)
{
	edges(1);
}

Test(node_ranges, every_edge_on_3_rails)
{
	edges(3);
}

Test(node_ranges, one_byte_anywhere)
{
	uint8_t *data;
	struct rig r;

	begin(&r, 2);
	data = rig_object(&r, "k", MIB, 1);
	for (uint64_t at = 0; at < MIB; at += 4097)
		range(&r, "k", data, at, 1, NULL);
	cr_assert(rig_settle(&r));
	free(data);
	rig_stop(&r);
}

Test(node_ranges, random_ranges)
{
	uint8_t *data;
	struct rig r;

	srandom(5);
	begin(&r, 4);
	data = rig_object(&r, "k", 6 * MIB + 77, 1);
	for (int i = 0; i < 200; i++) {
		uint64_t offset = (uint64_t)random() % (6 * MIB + 77), left = 6 * MIB + 77 - offset;

		range(&r, "k", data, offset, 1 + (uint64_t)random() % left, NULL);
	}
	cr_assert(rig_settle(&r));
	free(data);
	rig_stop(&r);
}

/* Whole edge stripes are read and charged; the statistics say so. */
Test(node_ranges, edge_stripes_move_whole)
{
	struct ry_cqe cqe;
	uint8_t *data;
	struct rig r;

	begin(&r, 2);
	data = rig_object(&r, "k", 4 * STRIPE, 1);
	cqe = rig_read(&r, r.client, "k", STRIPE - 1, 2, 0);
	cr_assert_eq(cqe.status, RY_OK);
	cr_assert_eq(rig_slot(r.client, &cqe)->stats.wire_bytes, 2 * STRIPE);
	cr_assert_eq(rig_slot(r.client, &cqe)->stats.hashed_bytes, 2 * STRIPE);
	cr_assert_eq(extent_used_bytes(r.client->read_map), 2 * STRIPE);
	rig_release(&r, r.client, cqe.lease_id);
	cr_assert_eq(extent_used_bytes(r.client->read_map), 0u);
	free(data);
	rig_stop(&r);
}

/* ---- An arena in pieces ---- */

/* Leases of 64 KiB all over the arena, then every `nth` is given back. */
static void fragment(struct rig *r, const uint8_t *data, uint32_t *leases, unsigned n, unsigned nth)
{
	for (unsigned i = 0; i < n; i++)
		range(r, "small", data, 0, 64 * KIB, &leases[i]);
	for (unsigned i = 0; i < n; i += nth)
		rig_release(r, r->client, leases[i]);
}

static struct ry_cqe put_small_stripes(struct rig *r, const char *key, const uint8_t *data, uint64_t bytes)
{
	struct ry_cqe cqe = rig_put(r, r->client, key, data, bytes, 64 * KIB, 0);

	cr_assert_eq(cqe.status, RY_OK);
	return cqe;
}

Test(node_ranges, lease_of_many_extents)
{
	uint8_t *small = malloc(64 * KIB), *data = malloc(MIB);
	uint32_t leases[64];
	struct ry_cqe cqe;
	struct rig r;

	rig_init(&r, 2, 0);
	r.config.read_arena_bytes = 64 * 64 * KIB;
	rig_start(&r);
	rig_fill(small, 64 * KIB, 1);
	rig_fill(data, MIB, 2);
	put_small_stripes(&r, "small", small, 64 * KIB);
	put_small_stripes(&r, "k", data, 8 * 64 * KIB - 7);
	fragment(&r, small, leases, 64, 2);
	cqe = rig_read(&r, r.client, "k", 0, UINT64_MAX, 0);
	cr_assert_eq(cqe.status, RY_OK, "%s", rig_slot(r.client, &cqe)->cause);
	cr_assert_eq(rig_slot(r.client, &cqe)->n_extents, RY_EXTENTS_MAX);
	cr_assert(rig_same(r.client, &cqe, data, 8 * 64 * KIB - 7));
	/* What lies between them is other leases' memory, and as it was. */
	for (unsigned i = 1; i < 64; i += 2)
		cr_assert_arr_eq(r.client->read_arena.base + i * 64 * KIB, small, 64 * KIB, "lease %u", i);
	rig_release(&r, r.client, cqe.lease_id);
	/* From the middle of an extent to the middle of another. */
	range(&r, "k", data, 64 * KIB + 1000, 4 * 64 * KIB, NULL);
	range(&r, "k", data, 3 * 64 * KIB - 1, 2, NULL);
	for (unsigned i = 1; i < 64; i += 2)
		rig_release(&r, r.client, leases[i]);
	cr_assert(rig_settle(&r));
	cr_assert_eq(extent_used_bytes(r.client->read_map), 0u);
	free(small);
	free(data);
	rig_stop(&r);
}

Test(node_ranges, too_many_extents_is_no_room)
{
	uint8_t *small = malloc(64 * KIB), *data = malloc(MIB);
	uint32_t leases[64];
	struct ry_cqe cqe;
	uint64_t used;
	struct rig r;

	rig_init(&r, 2, 0);
	r.config.read_arena_bytes = 64 * 64 * KIB;
	rig_start(&r);
	rig_fill(small, 64 * KIB, 1);
	rig_fill(data, MIB, 2);
	put_small_stripes(&r, "small", small, 64 * KIB);
	put_small_stripes(&r, "k", data, 9 * 64 * KIB);
	fragment(&r, small, leases, 64, 2);
	used = extent_used_bytes(r.client->read_map);
	cqe = rig_read(&r, r.client, "k", 0, UINT64_MAX, 0);
	cr_assert_eq(cqe.status, RY_ERR_BUDGET);
	cr_assert_eq(extent_used_bytes(r.client->read_map), used, "nothing is kept");
	for (unsigned i = 1; i < 64; i += 2)
		rig_release(&r, r.client, leases[i]);
	range(&r, "k", data, 0, 9 * 64 * KIB, NULL);
	cr_assert(rig_settle(&r));
	free(small);
	free(data);
	rig_stop(&r);
}

/* Pieces of odd sizes, on rails of which each takes several stripes in a message. */
Test(node_ranges, random_fragmentation)
{
	uint8_t *small = malloc(64 * KIB), *data = malloc(3 * MIB);
	uint32_t leases[64] = {0};
	unsigned n_pieces = 0;
	struct rig r;

	srandom(11);
	rig_init(&r, 3, 0);
	r.config.read_arena_bytes = 64 * 64 * KIB;
	rig_start(&r);
	rig_fill(small, 64 * KIB, 1);
	rig_fill(data, 3 * MIB, 2);
	put_small_stripes(&r, "small", small, 64 * KIB);
	put_small_stripes(&r, "k", data, 3 * MIB);
	for (int round = 0; round < 30; round++) {
		for (int i = 0; i < 64; i++)
			range(&r, "small", small, 0, 64 * KIB, &leases[i]);
		for (int i = 0; i < 64; i++) {
			if (random() % 3)
				rig_release(&r, r.client, leases[i]), leases[i] = 0;
		}
		for (int k = 0; k < 3; k++) {
			uint64_t length = 1 + (uint64_t)random() % MIB, offset = (uint64_t)random() % (2 * MIB);
			struct ry_cqe cqe = rig_read(&r, r.client, "k", offset, length, 0);

			if (cqe.status == RY_ERR_BUDGET)
				continue;
			cr_assert(rig_same(r.client, &cqe, data + offset, length), "round %d", round);
			n_pieces += rig_slot(r.client, &cqe)->n_extents;
			rig_release(&r, r.client, cqe.lease_id);
		}
		for (int i = 0; i < 64; i++)
			rig_release(&r, r.client, leases[i]);
	}
	cr_assert_gt(n_pieces, 100u);
	cr_assert(rig_settle(&r));
	free(small);
	free(data);
	rig_stop(&r);
}

/* The same addresses see one object after the other. */
Test(node_ranges, two_objects_by_turns)
{
	uint8_t *a, *b;
	struct rig r;

	begin(&r, 2);
	a = rig_object(&r, "a", 700000, 1);
	b = rig_object(&r, "b", 500001, 2);
	for (int i = 0; i < 250; i++) {
		range(&r, "a", a, 0, 700000, NULL);
		range(&r, "b", b, 0, 500001, NULL);
	}
	cr_assert(rig_settle(&r));
	cr_assert_eq(stat_get(&r.node->counters.lookups), 2u, "the descriptors were cached");
	free(a);
	free(b);
	rig_stop(&r);
}

/* Many leases at a time, given back in another order. */
Test(node_ranges, leases_in_any_order)
{
	uint32_t leases[40];
	uint8_t *data;
	struct rig r;

	srandom(3);
	begin(&r, 2);
	data = rig_object(&r, "k", 2 * MIB, 1);
	for (int round = 0; round < 5; round++) {
		for (int i = 0; i < 40; i++)
			range(&r, "k", data, (uint64_t)i * 7919, 300000, &leases[i]);
		for (int i = 39; i > 0; i--) {
			int k = (int)(random() % (i + 1));
			uint32_t l = leases[i];

			leases[i] = leases[k];
			leases[k] = l;
		}
		for (int i = 0; i < 40; i++)
			rig_release(&r, r.client, leases[i]);
		cr_assert(rig_settle(&r));
	}
	free(data);
	rig_stop(&r);
}
