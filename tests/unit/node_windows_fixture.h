/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A node over mock rails whose windows a device checks, with the book of rig_windows.h open from the first byte on, and
 * a hand on conn's fences. Included by the programs about windows.
 */
#ifndef RY_TEST_NODE_WINDOWS_FIXTURE_H
#define RY_TEST_NODE_WINDOWS_FIXTURE_H

#include "node_rails_fixture.h"
#include "rig_windows.h"
#include "transport/mock/device.h"

/* conn does not get to its fences while this is set. */
static bool is_fence_held;

static inline bool held_wants_fence(const struct rail *rail, const struct qp *qp)
{
	return !is_fence_held && device_qp_wants_fence(rail, qp);
}

/* Of the next begin. */
static uint64_t fence_timeout_ns = 3 * MS;
static uint64_t read_deadline_ns = 30000 * MS;
static uint64_t latency_ns = 5000;

static inline void begin(struct rig *r, uint16_t n_rails, uint64_t bandwidth)
{
	rig_init(r, n_rails, bandwidth);
	r->config.fence_timeout_ns = fence_timeout_ns;
	r->config.read_deadline_ns = read_deadline_ns;
	r->config.health.flap_secs = 0; /* rails are lost on purpose, again and again */
	r->config.health.cooldown_secs = 1;
	for (uint16_t i = 0; i < n_rails; i++) {
		r->config.rails[i].mock.want_device_windows = true;
		r->config.rails[i].mock.latency_ns = latency_ns;
	}
	rig_start(r);
	for (uint16_t i = 0; i < n_rails; i++)
		r->node->rails[i]->ops.qp_wants_fence = held_wants_fence;
	rig_windows_watch(r);
	cr_assert(rail_attr(r->node->rails[0])->has_device_windows);
}

static inline bool is_up(struct rig *r, uint16_t rail)
{
	return dialled(r, rail) && eligible_rails(r->node->control, 0) >> rail & 1;
}

static inline void until_up(struct rig *r, uint16_t rail)
{
	for (uint64_t end = r->now_ns + 5000 * MS; r->now_ns < end; rig_step(r)) {
		if (is_up(r, rail))
			return;
	}
	cr_assert_fail("rail %u does not come back", rail);
}

/* Everything has ended: budgets, pins, slots, windows; and the pairs are up again. */
static inline void rests(struct rig *r)
{
	const char *why = "budgets";

	for (uint16_t i = 0; i < r->node->n_rails; i++)
		until_up(r, i);
	for (uint64_t end = r->now_ns + 5000 * MS; r->now_ns < end; rig_step(r)) {
		why = rig_is_idle(r) ? rig_windows_unrest(r) : "budgets";
		if (!why)
			return;
	}
	cr_assert_fail("no rest: %s", why);
}

/* The end that serves reads, and that PULLs. */
static inline struct qp *accepted(struct rig *r, uint16_t rail)
{
	struct rail *ra = r->node->rails[rail];

	for (uint16_t q = 0; q < ra->n_qps; q++) {
		if (!ra->qps[q]->is_dialler && !ra->qps[q]->is_down)
			return ra->qps[q];
	}
	return NULL;
}

enum loss {
	LOSS_GIVEN_UP, /* the rail's own decision: nothing is wrong with the QP */
	LOSS_BROKEN,   /* the device's word */
	LOSS_KINDS_,
};

static inline void lose(struct rig *r, uint16_t rail, struct qp *qp, enum loss how)
{
	if (!qp)
		return;
	if (how == LOSS_GIVEN_UP)
		rail_qp_down(r->node->rails[rail], qp, WC_ERR_RETRY, false);
	else
		((struct mock_qp *)qp)->break_status = WC_ERR_RETRY;
}

/* A completion in any state, within its time; a lease is given back. */
static inline struct ry_cqe ends(struct rig *r, uint64_t ticket, const uint8_t *want, uint64_t bytes)
{
	struct ry_cqe cqe = rig_wait(r, r->client, ticket);

	cr_assert_neq(cqe.status, RY_STATUS_MAX_, "never ends");
	if (cqe.status == RY_OK && want) {
		cr_assert(rig_same(r->client, &cqe, want, bytes), "differs");
		rig_release(r, r->client, cqe.lease_id);
	}
	return cqe;
}

/* A put of one part, not waited for. The bytes and their checksums are in the put arena. */
static inline uint64_t submit_put(struct rig *r, const char *key, const uint8_t *data, uint64_t bytes)
{
	uint32_t n = (uint32_t)((bytes + STRIPE - 1) / STRIPE);
	uint64_t sums_off = (bytes + 63) / 64 * 64;
	struct client *c = r->client;
	uint64_t *sums = (uint64_t *)(void *)(c->put_arena.base + sums_off);
	struct ry_sqe sqe = {.op = RY_OP_PUT, .flags = RY_F_PUT_BEGIN | RY_F_PUT_COMMIT, .length = bytes};

	memcpy(c->put_arena.base, data, bytes);
	for (uint32_t i = 0; i < n; i++) {
		uint64_t off = (uint64_t)i * STRIPE;

		sums[i] = XXH3_64bits(data + off, bytes - off < STRIPE ? bytes - off : STRIPE);
	}
	c->slots[r->next_slot % c->n_entries] = (struct ry_slot){.put_id = {r->next_ticket, 43},
		.size_bytes = bytes,
		.stripe_bytes = STRIPE,
		.n_checksums = n,
		.checksum_offset = sums_off};
	return rig_submit(r, c, sqe, key, (uint16_t)strlen(key));
}

/* The store gives a put up, as it does when its time is over. */
static inline unsigned cancel_pulls(struct rig *r)
{
	struct control *c = r->node->control;
	struct xfer *x, *next;
	unsigned n = 0;

	for (x = TAILQ_FIRST(&c->used_xfers); x; x = next) {
		next = TAILQ_NEXT(x, link);
		if (x->kind != XFER_PULL || x->is_failed)
			continue;
		xfer_fail(c, x, RY_ERR_CANCELLED, RY_RAIL_NONE, "given up");
		n++;
	}
	return n;
}

/* The store's memory goes back: nothing has a pin on it. */
static inline void deletes(struct rig *r, const char *key)
{
	uint64_t generation;

	cr_assert_eq(store_delete(r->node->store, key, (uint16_t)strlen(key), 0, r->now_ns, &generation), RY_OK);
	rig_run(r, 5 * MS);
	cr_assert_eq(store_used_bytes(r->node->store), 0u, "a pin is left");
}

static inline uint8_t *filled(uint64_t bytes)
{
	uint8_t *p = malloc(bytes + 1);

	rig_fill(p, bytes, 31);
	return p;
}

/* The same bytes again and again: whether a put failed or not, what can be read is them. */
static inline void puts_well(struct rig *r, const uint8_t *data, uint64_t bytes)
{
	cr_assert_eq(ends(r, submit_put(r, "k", data, bytes), NULL, 0).status, RY_OK);
	rests(r);
	reads(r, "k", data, bytes, 0);
	rests(r);
	deletes(r, "k");
}

#endif
