/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reads over many rails of a rig, and what each rail did. Included by test_node_rails and test_node_loss.
 */
#ifndef RY_TEST_NODE_RAILS_FIXTURE_H
#define RY_TEST_NODE_RAILS_FIXTURE_H

#include <criterion/criterion.h>
#include <stdlib.h>

#include "read/control_priv.h"
#include "rig_tap.h"

#define MIB (1u << 20)
#define KIB (1u << 10)
#define MS 1000000ull
#define STRIPE RIG_STRIPE_BYTES

static inline struct ry_read_stats *stats(struct rig *r, const struct ry_cqe *cqe)
{
	return &r->client->slots[cqe->slot].stats;
}

/* What one rail did for a read; 0 when it did nothing. */
static inline uint64_t rail_bytes(struct rig *r, const struct ry_cqe *cqe, uint16_t rail)
{
	const struct ry_read_stats *st = stats(r, cqe);

	for (unsigned i = 0; i < st->n_rails; i++) {
		if (!strcmp(st->rails[i].name, r->config.rails[rail].name))
			return st->rails[i].bytes;
	}
	return 0;
}

/* A good read; its lease is given back, its slot's statistics are still there. */
static inline struct ry_cqe reads(struct rig *r, const char *key, const uint8_t *data, uint64_t bytes, uint32_t flags)
{
	struct ry_cqe cqe = rig_read(r, r->client, key, 0, UINT64_MAX, flags);

	cr_assert_eq(cqe.status, RY_OK, "%s: %s", key, rig_slot(r->client, &cqe)->cause);
	cr_assert(cqe.is_verified);
	cr_assert(rig_same(r->client, &cqe, data, bytes), "%s differs", key);
	cr_assert_eq(stats(r, &cqe)->hashed_bytes, bytes, "hashed %lu of %lu bytes",
		(unsigned long)stats(r, &cqe)->hashed_bytes, (unsigned long)bytes);
	cr_assert_eq(stats(r, &cqe)->wire_bytes, bytes);
	rig_release(r, r->client, cqe.lease_id);
	return cqe;
}

static inline uint8_t *put(struct rig *r, const char *key, uint64_t bytes, uint32_t stripe)
{
	uint8_t *data = malloc(bytes + 1);
	struct ry_cqe cqe;

	rig_fill(data, bytes, bytes + stripe);
	cqe = rig_put(r, r->client, key, data, bytes, stripe, 0);
	cr_assert_eq(cqe.status, RY_OK, "%s", rig_slot(r->client, &cqe)->cause);
	cr_assert(rig_settle(r));
	return data;
}

/* The end of a rail's QP that carries our READs. */
static inline struct qp *dialled(struct rig *r, uint16_t rail)
{
	struct rail *ra = r->node->rails[rail];

	for (uint16_t q = 0; q < ra->n_qps; q++) {
		if (ra->qps[q]->is_dialler && !ra->qps[q]->is_down)
			return ra->qps[q];
	}
	return NULL;
}

static inline uint64_t sum(const struct rig *r, size_t offset)
{
	uint64_t n = 0;

	for (uint16_t i = 0; i < r->node->n_rails; i++)
		n += stat_get((const uint64_t *)(const void *)((const uint8_t *)&r->node->rails[i]->counters + offset));
	return n;
}
#define SUM(r, field) sum(r, offsetof(struct rail_counters, field))

#endif
