/* SPDX-License-Identifier: BSD-3-Clause */
/* Reads that must fail, each with its one typed error, nothing delivered and nothing left behind. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "read/control_priv.h"
#include "rig_tap.h"

#define MIB (1u << 20)

static struct ry_cqe fails(struct rig *r, const char *key, uint32_t flags, uint32_t status);
static const char *cause(struct rig *r, const struct ry_cqe *cqe);
static void reads(struct rig *r, const char *key, const uint8_t *data, uint64_t bytes);
static struct desc *cached(struct rig *r, const char *key);

/* The whole read fails with this status: no lease, no extents, no byte charged. */
static struct ry_cqe fails(struct rig *r, const char *key, uint32_t flags, uint32_t status)
{
	struct ry_cqe cqe = rig_read(r, r->client, key, 0, UINT64_MAX, flags);

	cr_assert_eq(cqe.status, status, "%s: status %u: %s", key, cqe.status, cause(r, &cqe));
	cr_assert_eq(cqe.lease_id, 0u);
	cr_assert_eq(cqe.bytes, 0u);
	cr_assert_not(cqe.is_verified);
	cr_assert_eq(rig_slot(r->client, &cqe)->n_extents, 0u);
	cr_assert_neq(cause(r, &cqe)[0], 0);
	cr_assert(rig_settle(r));
	return cqe;
}

static const char *cause(struct rig *r, const struct ry_cqe *cqe)
{
	return rig_slot(r->client, cqe)->cause;
}

static void reads(struct rig *r, const char *key, const uint8_t *data, uint64_t bytes)
{
	struct ry_cqe cqe = rig_read(r, r->client, key, 0, UINT64_MAX, 0);

	cr_assert_eq(cqe.status, RY_OK, "%s: %s", key, cause(r, &cqe));
	cr_assert(cqe.is_verified);
	cr_assert(rig_same(r->client, &cqe, data, bytes));
	rig_release(r, r->client, cqe.lease_id);
	cr_assert(rig_settle(r));
}

static struct desc *cached(struct rig *r, const char *key)
{
	struct desc *d;

	TAILQ_FOREACH (d, &r->node->control->lru_descs, link) {
		if (d->key_bytes == strlen(key) && !memcmp(d->key, key, d->key_bytes))
			return d;
	}
	return NULL;
}

static void begin(struct rig *r, uint16_t n_rails, uint64_t bandwidth)
{
	rig_init(r, n_rails, bandwidth);
	rig_start(r);
}

Test(node_errors, missing_is_not_empty)
{
	struct ry_cqe cqe;
	uint8_t *data;
	struct rig r;

	begin(&r, 2, 0);
	fails(&r, "missing", 0, RY_ERR_NOT_FOUND);
	data = rig_object(&r, "empty", 0, 1);
	cqe = rig_read(&r, r.client, "empty", 0, UINT64_MAX, 0);
	cr_assert_eq(cqe.status, RY_OK);
	cr_assert(cqe.bytes == 0 && cqe.lease_id == 0 && cqe.is_verified && cqe.generation == 1);
	cr_assert_eq(rig_slot(r.client, &cqe)->object.size_bytes, 0u);
	fails(&r, "missing", 0, RY_ERR_NOT_FOUND);
	free(data);
	rig_stop(&r);
}

Test(node_errors, range_beyond_the_end)
{
	static const uint64_t ranges[][2] = {{0, 1000001}, {1000000, 1}, {1000001, 0}, {1000001, UINT64_MAX},
		{UINT64_MAX, 1}, {999999, UINT64_MAX - 1}, {1, 1000000}};
	struct ry_cqe cqe;
	uint8_t *data;
	struct rig r;

	begin(&r, 2, 0);
	data = rig_object(&r, "k", 1000000, 1);
	for (unsigned i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++) {
		cqe = rig_read(&r, r.client, "k", ranges[i][0], ranges[i][1], 0);
		cr_assert_eq(cqe.status, RY_ERR_INVALID, "range %u: %u", i, cqe.status);
		cr_assert(strstr(cause(&r, &cqe), "1000000"), "range %u: %s", i, cause(&r, &cqe));
	}
	cqe = rig_read(&r, r.client, "k", 1000000, UINT64_MAX, 0);
	cr_assert(cqe.status == RY_OK && cqe.bytes == 0, "to the end, from the end");
	cqe = rig_read(&r, r.client, "k", 7, 0, 0);
	cr_assert(cqe.status == RY_OK && cqe.bytes == 0, "nothing at all");
	cr_assert(rig_settle(&r));
	free(data);
	rig_stop(&r);
}

/* ---- Bytes that are not what was put ---- */

static void corrupt(struct rig *r, const char *key, uint32_t stripe, uint32_t offset)
{
	struct object *o = store_lookup(r->node->store, key, (uint16_t)strlen(key), r->now_ns);

	o->stripe_addr[stripe][offset] ^= 0x40;
}

/* Which rail hashed it can be anyone's guess, but one must be named, by index and by name. */
static void check_blame(struct rig *r, const struct ry_cqe *cqe, uint32_t stripe)
{
	char want[32];

	cr_assert_lt(cqe->rail_idx, r->config.n_rails);
	snprintf(want, sizeof(want), "rail %s", r->config.rails[cqe->rail_idx].name);
	cr_assert(strstr(cause(r, cqe), want), "%s", cause(r, cqe));
	snprintf(want, sizeof(want), "stripe %u ", stripe);
	cr_assert(strstr(cause(r, cqe), want), "%s", cause(r, cqe));
}

Test(node_errors, corrupt_byte_in_any_stripe)
{
	uint8_t *data, *other;
	struct ry_cqe cqe;
	struct rig r;

	begin(&r, 2, 0);
	data = rig_object(&r, "k", 4 * RIG_STRIPE_BYTES + 77, 1);
	other = rig_object(&r, "other", MIB, 2);
	for (uint32_t s = 0; s < 5; s++) {
		uint32_t at = s == 4 ? 76 : s * 1000;

		corrupt(&r, "k", s, at);
		cqe = fails(&r, "k", 0, RY_ERR_CHECKSUM);
		check_blame(&r, &cqe, s);
		reads(&r, "other", other, MIB);
		corrupt(&r, "k", s, at);
		reads(&r, "k", data, 4 * RIG_STRIPE_BYTES + 77);
	}
	cr_assert_geq(stat_get(&r.node->rails[0]->counters.checksum_errors) +
			      stat_get(&r.node->rails[1]->counters.checksum_errors),
		5u);
	free(data);
	free(other);
	rig_stop(&r);
}

Test(node_errors, corrupt_byte_of_a_stripe_in_many_segments)
{
	uint8_t *data = malloc(8 * MIB);
	struct ry_cqe cqe;
	struct rig r;

	begin(&r, 3, 100000000);
	rig_fill(data, 8 * MIB, 3);
	cqe = rig_put(&r, r.client, "k", data, 8 * MIB, 4 * MIB, 0);
	cr_assert_eq(cqe.status, RY_OK);
	for (uint32_t at = 0; at < 4 * MIB; at += MIB - 1) {
		corrupt(&r, "k", 1, at);
		cqe = fails(&r, "k", 0, RY_ERR_CHECKSUM);
		check_blame(&r, &cqe, 1);
		corrupt(&r, "k", 1, at);
	}
	reads(&r, "k", data, 8 * MIB);
	free(data);
	rig_stop(&r);
}

Test(node_errors, corrupt_small_stripe_is_named)
{
	uint8_t *data = malloc(MIB);
	struct ry_cqe cqe;
	struct rig r;

	begin(&r, 1, 0);
	rig_fill(data, MIB, 3);
	cqe = rig_put(&r, r.client, "k", data, MIB, 64 << 10, 0);
	cr_assert_eq(cqe.status, RY_OK);
	for (uint32_t s = 0; s < 16; s += 5) {
		corrupt(&r, "k", s, 65535);
		cqe = fails(&r, "k", 0, RY_ERR_CHECKSUM);
		check_blame(&r, &cqe, s);
		corrupt(&r, "k", s, 65535);
	}
	reads(&r, "k", data, MIB);
	free(data);
	rig_stop(&r);
}

/* What the store serves as stripe i of one object is stripe k of another, or of the same: whole, and of its size. */
static void change_places(struct rig *r, const char *key, uint32_t i, const char *other, uint32_t k)
{
	struct object *a = store_lookup(r->node->store, key, (uint16_t)strlen(key), r->now_ns);
	struct object *b = store_lookup(r->node->store, other, (uint16_t)strlen(other), r->now_ns);
	uint8_t *addr = a->stripe_addr[i];

	a->stripe_addr[i] = b->stripe_addr[k];
	b->stripe_addr[k] = addr;
}

Test(node_errors, stripes_that_changed_places)
{
	static const uint32_t pairs[][2] = {{0, 1}, {1, 2}, {0, 3}, {2, 3}};
	uint8_t *data, *other;
	struct rig r;

	begin(&r, 2, 0);
	data = rig_object(&r, "k", 4 * RIG_STRIPE_BYTES, 1);
	other = rig_object(&r, "other", 4 * RIG_STRIPE_BYTES, 2);
	reads(&r, "k", data, 4 * RIG_STRIPE_BYTES);
	for (unsigned i = 0; i < 4; i++) {
		change_places(&r, "k", pairs[i][0], "k", pairs[i][1]);
		fails(&r, "k", 0, RY_ERR_CHECKSUM);
		fails(&r, "k", RY_F_FAILOVER, RY_ERR_CHECKSUM);
		reads(&r, "other", other, 4 * RIG_STRIPE_BYTES);
		change_places(&r, "k", pairs[i][0], "k", pairs[i][1]);
		reads(&r, "k", data, 4 * RIG_STRIPE_BYTES);
	}
	free(data);
	free(other);
	rig_stop(&r);
}

Test(node_errors, a_stripe_of_another_object)
{
	uint8_t *data, *other;
	struct ry_cqe cqe;
	struct rig r;

	begin(&r, 2, 0);
	data = rig_object(&r, "k", 4 * RIG_STRIPE_BYTES, 1);
	other = rig_object(&r, "other", 4 * RIG_STRIPE_BYTES, 2);
	change_places(&r, "k", 2, "other", 2);
	cqe = fails(&r, "k", 0, RY_ERR_CHECKSUM);
	check_blame(&r, &cqe, 2);
	cqe = fails(&r, "other", 0, RY_ERR_CHECKSUM);
	check_blame(&r, &cqe, 2);
	change_places(&r, "k", 2, "other", 2);
	reads(&r, "k", data, 4 * RIG_STRIPE_BYTES);
	reads(&r, "other", other, 4 * RIG_STRIPE_BYTES);
	free(data);
	free(other);
	rig_stop(&r);
}

/* ---- DONE that does not say what it should ---- */

static bool shorten_done(void *ctx, struct rail *rail, struct wr *wr)
{
	struct wire_done *m = rig_message(wr, WIRE_DONE);

	if (m && m->status == RY_OK && *(int *)ctx > 0 && --*(int *)ctx == 0)
		m->bytes--;
	return true;
}

Test(node_errors, fewer_bytes_than_asked)
{
	uint8_t *data;
	struct rig r;

	begin(&r, 2, 0);
	data = rig_object(&r, "k", 4 * MIB, 1);
	for (int nth = 1; nth <= 4; nth++) {
		int left = nth;
		struct ry_cqe cqe;

		rig_tap(&r, shorten_done, &left);
		cqe = fails(&r, "k", 0, RY_ERR_INCOMPLETE);
		cr_assert_eq(left, 0);
		cr_assert_lt(cqe.rail_idx, 2);
		rig_tap(&r, NULL, NULL);
		reads(&r, "k", data, 4 * MIB);
	}
	free(data);
	rig_stop(&r);
}

static bool other_generation(void *ctx, struct rail *rail, struct wr *wr)
{
	struct wire_done *m = rig_message(wr, WIRE_DONE);

	if (m && m->status == RY_OK)
		m->generation++;
	return true;
}

Test(node_errors, done_of_another_generation)
{
	uint64_t lookups;
	uint8_t *data;
	struct rig r;

	begin(&r, 2, 0);
	data = rig_object(&r, "k", 2 * MIB, 1);
	reads(&r, "k", data, 2 * MIB);
	lookups = stat_get(&r.node->counters.lookups);
	rig_tap(&r, other_generation, NULL);
	fails(&r, "k", 0, RY_ERR_STALE_GENERATION);
	cr_assert_eq(stat_get(&r.node->counters.lookups), lookups + 1, "looked up once more, and once only");
	rig_tap(&r, NULL, NULL);
	reads(&r, "k", data, 2 * MIB);
	free(data);
	rig_stop(&r);
}

/* One segment, so that the refreshed transfer ends with the very segment that was stale. */
Test(node_errors, done_of_another_generation_small)
{
	uint8_t *data;
	struct rig r;

	begin(&r, 1, 0);
	data = rig_object(&r, "k", 1000, 1);
	reads(&r, "k", data, 1000);
	rig_tap(&r, other_generation, NULL);
	fails(&r, "k", 0, RY_ERR_STALE_GENERATION);
	rig_tap(&r, NULL, NULL);
	reads(&r, "k", data, 1000);
	cr_assert_eq(stat_get(&r.node->counters.quarantined_bytes), 0u);
	free(data);
	rig_stop(&r);
}

static bool failing_done(void *ctx, struct rail *rail, struct wr *wr)
{
	struct wire_done *m = rig_message(wr, WIRE_DONE);

	if (m)
		m->status = *(uint32_t *)ctx;
	return true;
}

Test(node_errors, status_of_the_store_passes_through)
{
	static const uint32_t status[] = {RY_ERR_NOT_FOUND, RY_ERR_TIMEOUT, RY_ERR_PROTOCOL, RY_ERR_CANCELLED};
	uint8_t *data;
	struct rig r;

	begin(&r, 2, 0);
	data = rig_object(&r, "k", 2 * MIB, 1);
	for (unsigned i = 0; i < sizeof(status) / sizeof(status[0]); i++) {
		uint32_t s = status[i];

		rig_tap(&r, failing_done, &s);
		fails(&r, "k", 0, s);
		rig_tap(&r, NULL, NULL);
	}
	reads(&r, "k", data, 2 * MIB);
	free(data);
	rig_stop(&r);
}

/* ---- Descriptors ---- */

Test(node_errors, no_checksums)
{
	struct ry_cqe cqe;
	uint8_t *data;
	struct rig r;

	begin(&r, 2, 0);
	data = rig_object(&r, "k", 2 * MIB, 1);
	reads(&r, "k", data, 2 * MIB);
	cached(&r, "k")->has_checksums = false;
	fails(&r, "k", 0, RY_ERR_INVALID_DESCRIPTOR);
	cqe = rig_read(&r, r.client, "k", 0, UINT64_MAX, RY_F_ALLOW_UNVERIFIED);
	cr_assert_eq(cqe.status, RY_OK, "%s", cause(&r, &cqe));
	cr_assert_not(cqe.is_verified);
	cr_assert_eq(rig_slot(r.client, &cqe)->stats.hashed_bytes, 0u);
	cr_assert(rig_same(r.client, &cqe, data, 2 * MIB));
	rig_release(&r, r.client, cqe.lease_id);
	cached(&r, "k")->has_checksums = true;
	cqe = rig_read(&r, r.client, "k", 0, UINT64_MAX, RY_F_ALLOW_UNVERIFIED);
	cr_assert(cqe.is_verified, "allowed is not asked for");
	rig_release(&r, r.client, cqe.lease_id);
	cr_assert(rig_settle(&r));
	free(data);
	rig_stop(&r);
}

/* A stripe's checksum in the descriptor decides, not what the store says. */
Test(node_errors, checksum_of_the_descriptor)
{
	uint8_t *data;
	struct ry_cqe cqe;
	struct rig r;

	begin(&r, 2, 0);
	data = rig_object(&r, "k", 2 * MIB, 1);
	reads(&r, "k", data, 2 * MIB);
	cached(&r, "k")->checksums[3] ^= 1;
	cqe = fails(&r, "k", 0, RY_ERR_CHECKSUM);
	check_blame(&r, &cqe, 3);
	free(data);
	rig_stop(&r);
}

/* ---- Limits ---- */

Test(node_errors, larger_than_the_arena)
{
	struct client *small;
	struct ry_cqe cqe;
	uint8_t *data;
	struct rig r;

	begin(&r, 2, 0);
	data = rig_object(&r, "k", 3 * MIB, 1);
	small = rig_attach(&r, 2 * MIB);
	cqe = rig_read(&r, small, "k", 0, UINT64_MAX, 0);
	cr_assert_eq(cqe.status, RY_ERR_BUFFER_TOO_SMALL);
	cr_assert(strstr(rig_slot(small, &cqe)->cause, "3145728") && strstr(rig_slot(small, &cqe)->cause, "2097152"),
		"%s", rig_slot(small, &cqe)->cause);
	cr_assert(rig_settle(&r));
	cqe = rig_read(&r, small, "k", MIB, 2 * MIB, 0);
	cr_assert(rig_same(small, &cqe, data + MIB, 2 * MIB), "by range it fits");
	rig_release(&r, small, cqe.lease_id);
	cr_assert(rig_detach(&r, small));
	cr_assert(rig_settle(&r));
	free(data);
	rig_stop(&r);
}

Test(node_errors, larger_than_the_budget)
{
	struct ry_cqe cqe;
	uint64_t start;
	uint8_t *data;
	struct rig r;

	rig_init(&r, 2, 0);
	r.config.client_inflight_max_bytes = 2 * MIB;
	rig_start(&r);
	data = rig_object(&r, "k", 3 * MIB, 1);
	start = r.now_ns;
	cqe = fails(&r, "k", 0, RY_ERR_BUDGET);
	cr_assert(strstr(cause(&r, &cqe), "3145728") && strstr(cause(&r, &cqe), "2097152"), "%s", cause(&r, &cqe));
	cr_assert_lt(cqe.done_ns - start, 10000000u, "at once");
	cqe = rig_read(&r, r.client, "k", 0, 2 * MIB, 0);
	cr_assert(rig_same(r.client, &cqe, data, 2 * MIB));
	rig_release(&r, r.client, cqe.lease_id);
	cr_assert(rig_settle(&r));
	free(data);
	rig_stop(&r);
}

static void budget_then_success(struct rig *r)
{
	uint64_t first, second;
	struct ry_cqe a, b;
	uint8_t *data;

	rig_start(r);
	data = rig_object(r, "k", 2 * MIB, 1);
	first = rig_submit_read(r, r->client, "k", 0, UINT64_MAX, 0, 0);
	rig_run(r, 3000000);
	second = rig_submit_read(r, r->client, "k", 0, UINT64_MAX, 0, 0);
	b = rig_wait(r, r->client, second);
	cr_assert_eq(b.status, RY_ERR_BUDGET, "%u", b.status);
	cr_assert_eq(r->node->control->inflight_bytes, 2 * MIB);
	a = rig_wait(r, r->client, first);
	cr_assert(rig_same(r->client, &a, data, 2 * MIB));
	cr_assert_eq(r->node->control->inflight_bytes, 0u);
	rig_release(r, r->client, a.lease_id);
	reads(r, "k", data, 2 * MIB);
	cr_assert_eq(stat_get(&r->node->counters.budget_refusals), 1u);
	free(data);
	rig_stop(r);
}

Test(node_errors, node_budget_refusal_then_success)
{
	struct rig r;

	rig_init(&r, 2, 50000000);
	r.config.inflight_max_bytes = 3 * MIB;
	budget_then_success(&r);
}

Test(node_errors, client_budget_refusal_then_success)
{
	struct rig r;

	rig_init(&r, 2, 50000000);
	r.config.client_inflight_max_bytes = 3 * MIB;
	budget_then_success(&r);
}

Test(node_errors, arena_full_of_leases)
{
	struct client *c;
	struct ry_cqe a, b;
	uint8_t *data;
	struct rig r;

	begin(&r, 2, 0);
	data = rig_object(&r, "k", 2 * MIB, 1);
	c = rig_attach(&r, 3 * MIB);
	a = rig_read(&r, c, "k", 0, UINT64_MAX, 0);
	cr_assert(rig_same(c, &a, data, 2 * MIB));
	b = rig_read(&r, c, "k", 0, UINT64_MAX, 0);
	cr_assert_eq(b.status, RY_ERR_BUDGET);
	cr_assert(strstr(rig_slot(c, &b)->cause, "lease"), "%s", rig_slot(c, &b)->cause);
	cr_assert(rig_same(c, &a, data, 2 * MIB), "the lease is as it was");
	rig_release(&r, c, a.lease_id);
	rig_release(&r, c, a.lease_id); /* given back twice: ignored */
	b = rig_read(&r, c, "k", 0, UINT64_MAX, 0);
	cr_assert(rig_same(c, &b, data, 2 * MIB));
	rig_release(&r, c, b.lease_id);
	cr_assert(rig_settle(&r));
	cr_assert(rig_detach(&r, c));
	free(data);
	rig_stop(&r);
}

static void too_many_reads(struct rig *r)
{
	unsigned n_ok = 0, n_refused = 0;
	struct ry_cqe cqe;
	uint8_t *data;

	rig_start(r);
	data = rig_object(r, "k", 100000, 1);
	for (int i = 0; i < 5; i++)
		rig_submit_read(r, r->client, "k", 0, UINT64_MAX, 0, 0);
	while (n_ok + n_refused < 5) {
		rig_step(r);
		while (rig_reap(r, r->client, &cqe)) {
			n_ok += cqe.status == RY_OK;
			n_refused += cqe.status == RY_ERR_BUDGET;
			cr_assert(cqe.status == RY_OK || cqe.status == RY_ERR_BUDGET);
			if (cqe.status == RY_OK)
				rig_release(r, r->client, cqe.lease_id);
		}
	}
	cr_assert(n_ok == 3 && n_refused == 2, "%u ok, %u refused", n_ok, n_refused);
	cr_assert(rig_settle(r));
	reads(r, "k", data, 100000);
	free(data);
	rig_stop(r);
}

Test(node_errors, most_reads_of_a_node)
{
	struct rig r;

	rig_init(&r, 1, 0);
	r.config.max_reads = 3;
	too_many_reads(&r);
}

Test(node_errors, most_reads_of_a_client)
{
	struct rig r;

	rig_init(&r, 1, 0);
	r.config.client_max_reads = 3;
	too_many_reads(&r);
}

Test(node_errors, keys_without_bounds)
{
	struct ry_sqe sqe = {.op = RY_OP_READ, .length = UINT64_MAX};
	struct ry_cqe cqe;
	struct rig r;

	begin(&r, 1, 0);
	cqe = rig_wait(&r, r.client, rig_submit(&r, r.client, sqe, NULL, 0));
	cr_assert_eq(cqe.status, RY_ERR_INVALID);
	cqe = rig_wait(&r, r.client, rig_submit(&r, r.client, sqe, NULL, RY_KEY_MAX_BYTES + 1));
	cr_assert_eq(cqe.status, RY_ERR_INVALID);
	sqe.op = 77;
	cqe = rig_wait(&r, r.client, rig_submit(&r, r.client, sqe, "k", 1));
	cr_assert_eq(cqe.status, RY_ERR_INVALID);
	cr_assert(rig_settle(&r));
	rig_stop(&r);
}
