/* SPDX-License-Identifier: BSD-3-Clause */
#include "fault_rig.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "read/control_priv.h"

#define LARGE_BYTES (6 * MIB + 77)
#define SLACK_NS (2 * MS) /* control looks at deadlines once a millisecond */

static void check_bytes(struct fault_rig *f, const char *key);
static bool carries(struct fault_rig *f, uint16_t rail);

void fault_init(struct fault_rig *f, uint16_t n_rails)
{
	memset(f, 0, sizeof(*f));
	rig_init(&f->r, n_rails, 1000000000);
	f->r.config.fence_timeout_ns = 5 * MS;
	f->r.config.reconnect_ns = 2 * MS;
	f->r.config.health.cooldown_secs = 1;
	f->r.config.health.flap_secs = 0; /* a rail that failed in one plan is not kept out of the next */
}

void fault_start(struct fault_rig *f)
{
	struct ry_cqe put;

	rig_start(&f->r);
	f->small = rig_object(&f->r, "small", 4 * MIB, 1);
	f->large = malloc(LARGE_BYTES);
	rig_fill(f->large, LARGE_BYTES, 2);
	put = rig_put(&f->r, f->r.client, "large", f->large, LARGE_BYTES, 2 * MIB, 0);
	cr_assert_eq(put.status, RY_OK);
}

void fault_stop(struct fault_rig *f)
{
	rig_stop(&f->r);
	free(f->small);
	free(f->large);
}

void fault_plan(struct fault_rig *f, uint16_t rail, const char *text)
{
	struct fault_plan plan;
	char message[256] = "";

	cr_assert_eq(fault_parse(text, &plan, message, sizeof(message)), 0, "%s: %s", text, message);
	cr_assert_eq(mock_fault_inject(f->r.node->rails[rail], &plan), 0, "%s", text);
	rig_step(&f->r);
	cr_assert(mock_fault_is_taken(f->r.node->rails[rail]));
}

uint64_t fault_count(const struct fault_rig *f, uint16_t rail, enum fault_kind kind)
{
	return mock_fault_count(f->r.node->rails[rail], kind);
}

uint32_t fault_read(struct fault_rig *f, const char *key, uint32_t flags, uint64_t deadline_ms)
{
	struct rig *r = &f->r;
	uint64_t deadline_ns = r->now_ns + deadline_ms * MS;

	f->last = rig_wait(r, r->client, rig_submit_read(r, r->client, key, 0, UINT64_MAX, flags, deadline_ns));
	cr_assert_lt(f->last.status, RY_STATUS_MAX_, "%s: no answer", key);
	cr_assert_leq(r->now_ns, deadline_ns + SLACK_NS, "%s: answered too late", key);
	if (f->last.status == RY_OK) {
		check_bytes(f, key);
		return RY_OK;
	}
	cr_assert_neq(f->last.status, RY_ERR_INTERNAL, "%s: %s", key, fault_cause(f));
	cr_assert(f->last.lease_id == 0 && f->last.bytes == 0, "%s: a failed read shows something", key);
	cr_assert_eq(rig_slot(r->client, &f->last)->n_extents, 0u);
	cr_assert_neq(fault_cause(f)[0], 0, "%s: status %u without a cause", key, f->last.status);
	return f->last.status;
}

static void check_bytes(struct fault_rig *f, const char *key)
{
	struct rig *r = &f->r;
	const struct ry_slot *slot = rig_slot(r->client, &f->last);
	bool is_small = !strcmp(key, "small");

	cr_assert(f->last.is_verified);
	cr_assert(rig_same(r->client, &f->last, is_small ? f->small : f->large, is_small ? 4 * MIB : LARGE_BYTES),
		"%s: wrong bytes delivered", key);
	for (uint32_t i = 0; i < slot->n_extents; i++)
		memset(r->client->read_arena.base + slot->extents[i].offset, ANY_BYTE, slot->extents[i].bytes);
	rig_release(r, r->client, f->last.lease_id);
}

void fault_over(struct fault_rig *f)
{
	struct rig *r = &f->r;

	for (uint16_t i = 0; i < r->config.n_rails; i++)
		fault_plan(f, i, "");
	cr_assert(rig_settle(r), "something is still accounted for");
	memset(r->client->read_arena.base, ANY_BYTE, r->client->read_arena.bytes);
	for (uint16_t i = 0; i < r->config.n_rails; i++)
		cr_assert(carries(f, i), "rail%u carries nothing any more", i);
	cr_assert_eq(fault_read(f, "small", 0, 1000), RY_OK, "%s", fault_cause(f));
	cr_assert_eq(fault_read(f, "large", 0, 1000), RY_OK, "%s", fault_cause(f));
	rig_step(r);
	cr_assert(rig_is_idle(r));
}

/* Within five seconds: a rail that was lost is dialled again, one whose breaker opened is probed, one that was slow
 * wins its share back. */
static bool carries(struct fault_rig *f, uint16_t rail)
{
	const uint64_t *carried = &rail_counters(f->r.node->rails[rail])->rx_bytes;
	uint64_t before = stat_get(carried), end_ns = f->r.now_ns + 5000 * MS;

	while (f->r.now_ns < end_ns && stat_get(carried) == before) {
		fault_read(f, "small", 0, 1000);
		rig_run(&f->r, 10 * MS);
	}
	return stat_get(carried) > before;
}

const char *fault_cause(const struct fault_rig *f)
{
	return rig_slot(f->r.client, &f->last)->cause;
}
