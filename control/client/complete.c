/* SPDX-License-Identifier: BSD-3-Clause */
/* Results: from completion and slot to the caller's structs, leases, waiting and reaping. */
#include "client_priv.h"

#include <stdio.h>
#include <string.h>

#define IDLE_REAPS_PER_CHECK                                                                                           \
	256u /* a caller that only ever polls learns of the daemon's death after so many empty polls */

static void read_slot(struct ry_client *c, const struct ryc_op *op, struct ry_completion *out);
static bool read_lease(struct ry_client *c, const struct ryc_op *op, struct ry_completion *out);
static void read_stats(const struct ry_slot *slot, struct ry_read_stats *out);
static void refuse(struct ry_client *c, struct ry_completion *out, enum ry_status status, const char *cause);
static uint32_t pop_done(struct ry_client *c, struct ry_completion *completions, uint32_t n);

uint32_t ry_reap(struct ry_client *c, struct ry_completion *completions, uint32_t n)
{
	uint32_t got;

	if (ryc_enter(c) || !completions)
		return 0;
	if (c->is_armed) {
		ryc_disarm(c);
		ryc_check_socket(c);
	}
	ryc_drain(c);
	got = pop_done(c, completions, n);
	if (got > 0 || c->n_flight == 0 || ++c->n_idle_reaps % IDLE_REAPS_PER_CHECK)
		return got;
	ryc_check_socket(c);
	return pop_done(c, completions, n);
}

static uint32_t pop_done(struct ry_client *c, struct ry_completion *completions, uint32_t n)
{
	struct ryc_op *op;
	uint32_t got = 0;

	while (got < n && (op = STAILQ_FIRST(&c->done_ops)) != NULL) {
		STAILQ_REMOVE_HEAD(&c->done_ops, link);
		ryc_op_finish(c, op, &completions[got++]);
	}
	return got;
}

enum ry_status ry_wait(struct ry_client *c, uint64_t timeout_ns)
{
	enum ry_status status = ryc_enter(c);
	uint64_t until_ns;

	if (status)
		return status;
	until_ns = timeout_ns ? ryc_deadline(timeout_ns) : 1;
	ryc_drain(c);
	while (STAILQ_EMPTY(&c->done_ops)) {
		if (c->dead)
			return ryc_fail(c, c->dead, "%s", c->dead_text);
		if (c->n_flight == 0)
			return ryc_fail(c, RY_ERR_INVALID, "wait: nothing is in flight");
		if (ryc_sleep(c, until_ns) == RY_ERR_TIMEOUT && STAILQ_EMPTY(&c->done_ops))
			return ryc_fail(c, RY_ERR_TIMEOUT, "wait: nothing completed in time");
	}
	return RY_OK;
}

int ry_event_fd(const struct ry_client *c)
{
	return c ? c->epoll_fd : -1;
}

bool ry_event_arm(struct ry_client *c)
{
	if (ryc_enter(c))
		return false;
	ryc_drain(c);
	if (!STAILQ_EMPTY(&c->done_ops) || !ryc_arm(c))
		return false;
	c->is_armed = true;
	return true;
}

void ryc_op_finish(struct ry_client *c, struct ryc_op *op, struct ry_completion *out)
{
	memset(out, 0, offsetof(struct ry_completion, stats));
	memset(&out->stats, 0, offsetof(struct ry_read_stats, rails));
	out->cause[0] = '\0';
	out->ticket = op->ticket;
	out->user = op->user;
	out->op = op->op;
	out->status = (enum ry_status)op->cqe.status;
	out->rail_idx = op->cqe.rail_idx;
	out->bytes = op->cqe.bytes;
	out->generation = op->cqe.generation;
	out->cursor = op->cqe.cursor;
	out->done_ns = op->cqe.done_ns;
	if (op->is_lost)
		snprintf(out->cause, sizeof(out->cause), "%s", c->dead_text);
	else
		read_slot(c, op, out);
	ryc_op_free(c, op);
}

static void read_slot(struct ry_client *c, const struct ryc_op *op, struct ry_completion *out)
{
	const struct ry_slot *slot = ryc_slot(c, op);

	if (op->op == RY_OP_READ)
		read_stats(slot, &out->stats);
	if (out->status) {
		memcpy(out->cause, slot->cause, sizeof(out->cause));
		out->cause[sizeof(out->cause) - 1] = '\0';
		if (out->cause[0] == '\0')
			refuse(c, out, out->status, ry_status_text(out->status));
		return;
	}
	out->is_verified = op->cqe.is_verified == 1;
	if (op->op == RY_OP_LOOKUP)
		out->object = slot->object;
	if (op->op != RY_OP_READ && op->op != RY_OP_LIST)
		return;
	c->n_leases += op->cqe.lease_id != 0;
	out->lease.id = op->cqe.lease_id;
	if (!read_lease(c, op, out))
		refuse(c, out, RY_ERR_PROTOCOL, "the daemon published a lease that contradicts itself");
	else if (op->op == RY_OP_READ && op->generation && op->generation != out->generation)
		refuse(c, out, RY_ERR_STALE_GENERATION,
			"the object was replaced: it has another generation than asked for");
}

/* The daemon is trusted with the data, but a slip of its must not become a wild pointer here. */
static bool read_lease(struct ry_client *c, const struct ryc_op *op, struct ry_completion *out)
{
	const struct ry_slot *slot = ryc_slot(c, op);
	struct ry_lease *lease = &out->lease;
	uint32_t n = slot->n_extents;

	if (n > RY_EXTENTS_MAX || (n > 0 && lease->id == 0))
		return false;
	for (uint32_t i = 0; i < n; i++) {
		struct ry_extent e = slot->extents[i];

		if (e.offset > c->read_map.bytes || e.bytes > c->read_map.bytes - e.offset)
			return false;
		lease->spans[i] = (struct ry_span){c->read_base + e.offset, e.bytes};
		lease->bytes += e.bytes;
	}
	lease->n_spans = n;
	return op->op != RY_OP_READ || lease->bytes == out->bytes;
}

static void read_stats(const struct ry_slot *slot, struct ry_read_stats *out)
{
	memcpy(out, &slot->stats, offsetof(struct ry_read_stats, rails));
	if (out->n_rails > RY_RAILS_MAX)
		out->n_rails = RY_RAILS_MAX;
	memcpy(out->rails, slot->stats.rails, out->n_rails * sizeof(out->rails[0]));
	for (unsigned i = 0; i < out->n_rails; i++)
		out->rails[i].name[RY_NAME_MAX_BYTES - 1] = '\0';
}

/* Makes it a failure: nothing of a lease is shown. */
static void refuse(struct ry_client *c, struct ry_completion *out, enum ry_status status, const char *cause)
{
	ry_lease_release(c, &out->lease);
	memset(&out->lease, 0, sizeof(out->lease));
	out->status = status;
	out->is_verified = false;
	snprintf(out->cause, sizeof(out->cause), "%s", cause);
}

void ry_lease_release(struct ry_client *c, struct ry_lease *lease)
{
	uint32_t id = lease ? lease->id : 0;

	if (lease)
		lease->id = 0;
	if (id == 0 || ryc_enter(c))
		return;
	c->n_leases--;
	ryc_push_late(c, RY_OP_RELEASE, id);
}

enum ry_status ry_lease_copy(const struct ry_lease *lease, void *buffer)
{
	uint8_t *to = buffer;

	if (!lease || (!buffer && lease->bytes > 0))
		return RY_ERR_INVALID;
	for (uint32_t i = 0; i < lease->n_spans; i++) {
		memcpy(to, lease->spans[i].data, lease->spans[i].bytes);
		to += lease->spans[i].bytes;
	}
	return RY_OK;
}

enum ry_status ryc_op_wait(struct ry_client *c, struct ryc_op *op)
{
	uint64_t until_ns = UINT64_MAX;

	if (op->deadline_ns && op->deadline_ns < UINT64_MAX - RYC_GRACE_NS)
		until_ns = op->deadline_ns + RYC_GRACE_NS;
	while (op->state != RYC_DONE) {
		if (ryc_sleep(c, until_ns) != RY_ERR_TIMEOUT || op->state == RYC_DONE)
			continue;
		ryc_op_abandon(c, op);
		return ryc_fail(
			c, RY_ERR_TIMEOUT, "the daemon did not answer by the deadline: is its control lcore stuck?");
	}
	return RY_OK;
}

void ryc_op_abandon(struct ry_client *c, struct ryc_op *op)
{
	struct ry_completion unwanted;

	if (op->state == RYC_SUBMITTED) {
		op->is_abandoned = true;
		ry_cancel(c, op->ticket);
		return;
	}
	ryc_op_finish(c, op, &unwanted);
	ry_lease_release(c, &unwanted.lease);
}

enum ry_status ryc_op_result(struct ry_client *c, struct ryc_op *op, struct ry_completion *out)
{
	enum ry_status status = ryc_op_wait(c, op);

	if (status) {
		memset(out, 0, sizeof(*out));
		out->status = status;
		return status;
	}
	ryc_op_finish(c, op, out);
	return out->status ? ryc_fail(c, out->status, "%s", out->cause) : RY_OK;
}
