/* SPDX-License-Identifier: BSD-3-Clause */
/* Reads through a whole node in virtual time: every size, every number of rails, byte for byte. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "rig.h"

static void roundtrip(uint16_t n_rails, const uint64_t *sizes, unsigned n_sizes)
{
	struct rig r;
	uint8_t *data = malloc(9u << 20);

	rig_init(&r, n_rails, 0);
	rig_start(&r);
	for (unsigned i = 0; i < n_sizes; i++) {
		char key[32];
		struct ry_cqe put, get;

		snprintf(key, sizeof(key), "k%u", i);
		rig_fill(data, sizes[i], i + 1);
		put = rig_put(&r, r.client, key, data, sizes[i], RIG_STRIPE_BYTES, 0);
		cr_assert_eq(
			put.status, RY_OK, "put %lu: %s", (unsigned long)sizes[i], rig_slot(r.client, &put)->cause);
		get = rig_read(&r, r.client, key, 0, UINT64_MAX, 0);
		cr_assert_eq(
			get.status, RY_OK, "get %lu: %s", (unsigned long)sizes[i], rig_slot(r.client, &get)->cause);
		cr_assert(get.is_verified);
		cr_assert(rig_same(r.client, &get, data, sizes[i]), "%u rails, %lu bytes differ", n_rails,
			(unsigned long)sizes[i]);
		if (get.lease_id)
			rig_release(&r, r.client, get.lease_id);
	}
	cr_assert(rig_is_idle(&r));
	rig_stop(&r);
	free(data);
}

static const uint64_t sizes[] = {0, 1, 2, 3, 4095, 4096, 4097, RIG_STRIPE_BYTES - 1, RIG_STRIPE_BYTES,
	RIG_STRIPE_BYTES + 1, (1u << 20) - 1, (1u << 20) + 1, (8u << 20) + 1};
#define N_SIZES (sizeof(sizes) / sizeof(sizes[0]))

Test(node_read, exact_over_1_rail)
{
	roundtrip(1, sizes, N_SIZES);
}

Test(node_read, exact_over_2_rails)
{
	roundtrip(2, sizes, N_SIZES);
}

Test(node_read, exact_over_3_rails)
{
	roundtrip(3, sizes, N_SIZES);
}

Test(node_read, exact_over_4_rails)
{
	roundtrip(4, sizes, N_SIZES);
}

Test(node_read, exact_over_8_rails)
{
	roundtrip(8, sizes, N_SIZES);
}

static uint64_t n_listed(struct rig *r, uint64_t length, uint64_t *cursor)
{
	struct ry_sqe sqe = {.op = RY_OP_LIST, .length = length, .offset = *cursor};
	struct ry_cqe cqe = rig_wait(r, r->client, rig_submit(r, r->client, sqe, NULL, 0));

	cr_assert_eq(cqe.status, RY_OK, "%u: %s", cqe.status, rig_slot(r->client, &cqe)->cause);
	if (cqe.lease_id)
		rig_release(r, r->client, cqe.lease_id);
	*cursor = cqe.cursor;
	return cqe.bytes;
}

/* No limit: what a page holds. */
Test(node_read, a_list_of_length_0_is_a_page)
{
	uint64_t cursor = 0, n = 0;
	char key[600];
	struct rig r;

	rig_init(&r, 1, 0);
	rig_start(&r);
	memset(key, 'k', sizeof(key));
	for (unsigned i = 0; i < 200; i++) {
		key[snprintf(key, sizeof(key), "%04u", i)] = 'k';
		key[599] = '\0';
		cr_assert_eq(rig_put(&r, r.client, key, (const uint8_t *)key, 1, RIG_STRIPE_BYTES, 0).status, RY_OK);
	}
	cr_assert_eq(n_listed(&r, 3, &cursor), 3);
	cr_assert_neq(cursor, 0);
	cursor = 0;
	n = n_listed(&r, 0, &cursor);
	cr_assert(n > 3 && n < 200 && cursor != 0, "%u of 200", (unsigned)n);
	while (cursor)
		n += n_listed(&r, 0, &cursor);
	cr_assert_eq(n, 200, "%u", (unsigned)n);
	cr_assert(rig_settle(&r));
	rig_stop(&r);
}
