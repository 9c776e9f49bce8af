/* SPDX-License-Identifier: BSD-3-Clause */
/* Deadlines, cancels, fences, ttl: the client is answered at once, memory is reused only when no byte can land. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "read/control_priv.h"
#include "rig_tap.h"

#define MIB (1u << 20)
#define MS 1000000ull

/* What a tap swallows, and what it saw. */
struct silence {
	bool want_cancels; /* swallow CANCEL, and */
	bool want_dones;   /* DONE */
	unsigned n_cancels;
	unsigned n_dones;
	unsigned n_writes;
	uint64_t last_write_ns;
	uint32_t last_done;
	struct rig_kept done; /* the last one that was swallowed */
};

static bool silence(void *ctx, struct rail *rail, struct wr *wr)
{
	struct silence *s = ctx;
	struct wire_done *done = rig_message(wr, WIRE_DONE);

	if (wr->op == WR_WRITE) {
		s->n_writes++;
		s->last_write_ns = rail->now_ns;
	}
	if (rig_message(wr, WIRE_CANCEL)) {
		s->n_cancels++;
		return !s->want_cancels;
	}
	if (!done)
		return true;
	s->n_dones++;
	s->last_done = done->status;
	if (s->want_dones)
		rig_keep(&s->done, rail, wr);
	return !s->want_dones;
}

static void begin(struct rig *r, uint16_t n_rails, uint64_t bandwidth)
{
	rig_init(r, n_rails, bandwidth);
	r->config.fence_timeout_ns = 5 * MS;
	rig_start(r);
}

static void reads(struct rig *r, const char *key, const uint8_t *data, uint64_t bytes)
{
	struct ry_cqe cqe = rig_read(r, r->client, key, 0, UINT64_MAX, 0);

	cr_assert_eq(cqe.status, RY_OK, "%s: %s", key, rig_slot(r->client, &cqe)->cause);
	cr_assert(rig_same(r->client, &cqe, data, bytes));
	rig_release(r, r->client, cqe.lease_id);
	cr_assert(rig_settle(r));
}

static uint64_t fences(const struct rig *r)
{
	uint64_t n = 0;

	for (uint16_t i = 0; i < r->node->n_rails; i++)
		n += stat_get(&r->node->rails[i]->counters.fences);
	return n;
}

static uint64_t late_bytes(const struct rig *r)
{
	uint64_t n = 0;

	for (uint16_t i = 0; i < r->node->n_rails; i++)
		n += stat_get(&r->node->rails[i]->counters.late_dropped_bytes);
	return n;
}

static void warm_up(struct rig *r, const char *key)
{
	struct ry_sqe sqe = {.op = RY_OP_LOOKUP};

	cr_assert_eq(rig_wait(r, r->client, rig_submit(r, r->client, sqe, key, (uint16_t)strlen(key))).status, RY_OK);
}

Test(node_time, deadline)
{
	uint64_t deadline, used;
	struct ry_cqe cqe;
	uint8_t *data;
	struct rig r;

	begin(&r, 2, 200000000);
	r.config.fence_timeout_ns = 100 * MS;
	r.node->snapshot.fence_timeout_ns = 100 * MS;
	data = rig_object(&r, "k", 15 * MIB, 1);
	warm_up(&r, "k");
	deadline = r.now_ns + 20 * MS;
	cqe = rig_wait(&r, r.client, rig_submit_read(&r, r.client, "k", 0, UINT64_MAX, 0, deadline));
	cr_assert_eq(cqe.status, RY_ERR_TIMEOUT);
	cr_assert(cqe.done_ns >= deadline && cqe.done_ns < deadline + 2 * MS, "%ld ns after the deadline",
		(long)(cqe.done_ns - deadline));
	cr_assert(cqe.lease_id == 0 && cqe.bytes == 0);
	/* The memory is neither free nor uncharged while bytes may land, and the client may go on at once. */
	used = extent_used_bytes(r.client->read_map);
	cr_assert_eq(used, 15 * MIB);
	cr_assert_eq(r.node->control->inflight_bytes, 15 * MIB);
	cr_assert_eq(stat_get(&r.node->counters.quarantined_bytes), 15 * MIB);
	deadline = r.now_ns;
	warm_up(&r, "k");
	cr_assert_lt(r.now_ns - deadline, MS, "usable at once");
	cr_assert_eq(extent_used_bytes(r.client->read_map), 15 * MIB, "not one segment came back in this time");
	cr_assert(rig_settle(&r));
	cr_assert_eq(extent_used_bytes(r.client->read_map), 0u);
	cr_assert_eq(fences(&r), 0u, "the store answered");
	reads(&r, "k", data, 15 * MIB);
	free(data);
	rig_stop(&r);
}

Test(node_time, deadline_tells_how_far_it_came)
{
	struct ry_cqe cqe;
	uint8_t *data;
	struct rig r;

	rig_init(&r, 3, 400000000);
	r.config.rails[2].mock.bandwidth_bytes_per_s = 1000000;
	r.config.fence_timeout_ns = 5 * MS;
	rig_start(&r);
	data = rig_object(&r, "k", 8 * MIB, 1);
	warm_up(&r, "k");
	cqe = rig_wait(&r, r.client, rig_submit_read(&r, r.client, "k", 0, UINT64_MAX, 0, r.now_ns + 200 * MS));
	cr_assert_eq(cqe.status, RY_ERR_TIMEOUT);
	cr_assert(strstr(rig_slot(r.client, &cqe)->cause, "2 of 3 rails"), "%s", rig_slot(r.client, &cqe)->cause);
	cr_assert(strstr(rig_slot(r.client, &cqe)->cause, "of 8388608 bytes"), "%s", rig_slot(r.client, &cqe)->cause);
	cr_assert(rig_settle(&r));
	free(data);
	rig_stop(&r);
}

Test(node_time, deadline_before_the_descriptor)
{
	struct ry_cqe cqe;
	uint8_t *data;
	struct rig r;

	begin(&r, 2, 0);
	data = rig_object(&r, "k", MIB, 1);
	cqe = rig_wait(&r, r.client, rig_submit_read(&r, r.client, "k", 0, UINT64_MAX, 0, 1));
	cr_assert_eq(cqe.status, RY_ERR_TIMEOUT);
	cr_assert(rig_settle(&r));
	reads(&r, "k", data, MIB);
	free(data);
	rig_stop(&r);
}

/* The first asks for the descriptor, the others wait behind it; whoever is cancelled, the rest gets it. */
Test(node_time, cancel_while_others_wait_for_the_same_descriptor)
{
	uint8_t *data;
	struct rig r;

	begin(&r, 2, 0);
	data = rig_object(&r, "k", MIB, 1);
	for (int victim = 0; victim < 3; victim++) {
		struct ry_sqe sqe = {.op = RY_OP_LOOKUP};
		struct ry_cqe cqe;
		uint64_t t[3];

		rig_submit(&r, r.client, sqe, "k", 1); /* drops what is cached */
		for (int i = 0; i < 3; i++)
			t[i] = rig_submit_read(&r, r.client, "k", 0, UINT64_MAX, 0, 0);
		rig_cancel(&r, r.client, t[victim]);
		for (int seen = 0; seen < 4;) {
			rig_step(&r);
			for (; rig_reap(&r, r.client, &cqe); seen++) {
				if (cqe.ticket == t[victim])
					cr_assert_eq(cqe.status, RY_ERR_CANCELLED);
				else
					cr_assert_eq(cqe.status, RY_OK);
				if (cqe.op == RY_OP_READ && cqe.status == RY_OK) {
					cr_assert(rig_same(r.client, &cqe, data, MIB));
					rig_release(&r, r.client, cqe.lease_id);
				}
			}
		}
		cr_assert(rig_settle(&r));
	}
	free(data);
	rig_stop(&r);
}

Test(node_time, cancel_of_nothing)
{
	struct ry_cqe cqe;
	uint8_t *data;
	struct rig r;

	begin(&r, 1, 0);
	data = rig_object(&r, "k", MIB, 1);
	rig_cancel(&r, r.client, 12345);
	reads(&r, "k", data, MIB);
	rig_cancel(&r, r.client, r.next_ticket - 2);
	rig_run(&r, MS);
	cr_assert_not(rig_reap(&r, r.client, &cqe));
	cr_assert(rig_settle(&r));
	free(data);
	rig_stop(&r);
}

/* ---- 100 cancels at any time, 99 reads beside them on the same connections ---- */

#define N_OBJECTS 5
#define N_GOOD 99
#define N_BAD 100
#define AT_ONCE 6

struct storm {
	struct rig *r;
	struct client *other;
	char keys[N_OBJECTS][8];
	uint8_t *data[N_OBJECTS];
	uint64_t bytes[N_OBJECTS];
	unsigned n_good, n_bad, n_good_done, n_cancelled, n_uncancelled;
	struct {
		uint64_t ticket;
		unsigned object;
		uint64_t cancel_at_ns;
	} good[AT_ONCE], bad[AT_ONCE];
};

static void storm_submit(struct storm *s)
{
	struct rig *r = s->r;

	for (int i = 0; i < AT_ONCE; i++) {
		if (!s->good[i].ticket && s->n_good < N_GOOD) {
			s->good[i].object = s->n_good++ % N_OBJECTS;
			s->good[i].ticket =
				rig_submit_read(r, r->client, s->keys[s->good[i].object], 0, UINT64_MAX, 0, 0);
		}
		if (!s->bad[i].ticket && s->n_bad < N_BAD) {
			s->bad[i].object = s->n_bad++ % N_OBJECTS;
			s->bad[i].ticket = rig_submit_read(r, s->other, s->keys[s->bad[i].object], 0, UINT64_MAX, 0, 0);
			s->bad[i].cancel_at_ns = r->now_ns + (uint64_t)random() % (6 * MS);
		}
		if (s->bad[i].ticket && s->bad[i].cancel_at_ns && r->now_ns >= s->bad[i].cancel_at_ns) {
			rig_cancel(r, s->other, s->bad[i].ticket);
			s->bad[i].cancel_at_ns = 0;
		}
	}
}

static void storm_reap(struct storm *s)
{
	struct rig *r = s->r;
	struct ry_cqe cqe;

	while (rig_reap(r, r->client, &cqe)) {
		int i = 0;

		while (s->good[i].ticket != cqe.ticket)
			cr_assert_lt(++i, AT_ONCE);
		cr_assert_eq(cqe.status, RY_OK, "%s", rig_slot(r->client, &cqe)->cause);
		cr_assert(rig_same(r->client, &cqe, s->data[s->good[i].object], s->bytes[s->good[i].object]));
		rig_release(r, r->client, cqe.lease_id);
		s->good[i].ticket = 0;
		s->n_good_done++;
	}
	while (rig_reap(r, s->other, &cqe)) {
		int i = 0;

		while (s->bad[i].ticket != cqe.ticket)
			cr_assert_lt(++i, AT_ONCE);
		s->bad[i].ticket = 0;
		if (cqe.status == RY_OK) { /* faster than its cancel */
			rig_release(r, s->other, cqe.lease_id);
			s->n_uncancelled++;
			continue;
		}
		cr_assert_eq(cqe.status, RY_ERR_CANCELLED);
		s->n_cancelled++;
	}
}

static void storm(unsigned seed, uint16_t n_rails, struct silence *tap)
{
	struct storm s = {0};
	struct rig r;

	srandom(seed);
	begin(&r, n_rails, 400000000);
	s.r = &r;
	for (int i = 0; i < N_OBJECTS; i++) {
		s.bytes[i] = 1 + (uint64_t)random() % (800u << 10);
		snprintf(s.keys[i], sizeof(s.keys[i]), "k%d", i);
		s.data[i] = rig_object(&r, s.keys[i], s.bytes[i], i + 1u);
	}
	s.other = rig_attach(&r, 32 * MIB);
	if (tap)
		rig_tap(&r, silence, tap);
	for (uint64_t end = r.now_ns + 2000 * MS; s.n_good_done + s.n_cancelled + s.n_uncancelled < N_GOOD + N_BAD;) {
		storm_submit(&s);
		storm_reap(&s);
		rig_step(&r);
		cr_assert_lt(r.now_ns, end, "seed %u: %u good, %u cancelled, %u not, then nothing", seed, s.n_good_done,
			s.n_cancelled, s.n_uncancelled);
	}
	cr_assert_gt(s.n_cancelled, 30u, "seed %u", seed);
	cr_assert(rig_settle(&r), "seed %u", seed);
	rig_tap(&r, NULL, NULL);
	for (int i = 0; i < N_OBJECTS; i++) {
		reads(&r, s.keys[i], s.data[i], s.bytes[i]);
		free(s.data[i]);
	}
	cr_assert(rig_detach(&r, s.other));
	rig_stop(&r);
}

Test(node_time, reads_survive_a_hundred_cancels)
{
	storm(1, 2, NULL);
}

Test(node_time, reads_survive_a_hundred_cancels_on_one_rail)
{
	storm(2, 1, NULL);
}

/* No CANCEL reaches the store: every cancelled segment that is not through within the time-out is fenced. */
Test(node_time, reads_survive_a_hundred_fences)
{
	struct silence tap = {.want_cancels = true};

	storm(3, 2, &tap);
	cr_assert_gt(tap.n_cancels, 20u);
}

/* ---- A store that does not answer ---- */

/* When a silent store's segments are found out, in ms, on a host whose every turn comes so late. */
static uint64_t noticed_after_ms(uint64_t turn_ns)
{
	struct silence tap = {.want_cancels = true, .want_dones = true};
	uint64_t start, before, took;
	uint8_t *data;
	struct rig r;

	begin(&r, 1, 100000000);
	data = rig_object(&r, "k", MIB, 1);
	rig_tap(&r, silence, &tap);
	start = r.now_ns;
	before = stat_get(&r.node->counters.segments_expired);
	rig_submit_read(&r, r.client, "k", 0, UINT64_MAX, 0, start + 100000 * MS);
	while (stat_get(&r.node->counters.segments_expired) == before && r.now_ns < start + 60000 * MS) {
		rig_step(&r);
		r.now_ns += turn_ns;
	}
	took = (r.now_ns - start) / MS;
	rig_tap(&r, NULL, NULL);
	free(data);
	rig_stop(&r);
	return took;
}

Test(node_time, a_silent_store_is_noticed_at_its_deadline)
{
	uint64_t ms = noticed_after_ms(0);

	cr_assert(ms >= 2000 && ms < 2500, "%lu ms", ms);
}

Test(node_time, a_host_short_of_cpu_judges_later_but_judges)
{
	uint64_t ms = noticed_after_ms(25 * MS);

	cr_assert(ms > 4000 && ms < 4 * 2000 + 500, "%lu ms", ms);
}

Test(node_time, fence_after_the_timeout)
{
	struct silence tap = {.want_cancels = true, .want_dones = true};
	uint8_t *data, *arena;
	struct ry_cqe cqe;
	uint64_t start;
	struct rig r;

	begin(&r, 2, 20000000);
	data = rig_object(&r, "k", 4 * MIB, 1);
	warm_up(&r, "k");
	rig_tap(&r, silence, &tap);
	start = r.now_ns;
	cqe = rig_wait(&r, r.client, rig_submit_read(&r, r.client, "k", 0, UINT64_MAX, 0, start + 10 * MS));
	cr_assert_eq(cqe.status, RY_ERR_TIMEOUT);
	while (!rig_is_idle(&r) && r.now_ns < start + 40 * MS) {
		cr_assert_eq(extent_used_bytes(r.client->read_map), 4 * MIB, "memory is free before the fence");
		rig_step(&r);
	}
	cr_assert(rig_is_idle(&r));
	cr_assert(r.now_ns >= cqe.done_ns + 5 * MS && r.now_ns < cqe.done_ns + 8 * MS, "fenced %lu ns after the CANCEL",
		(unsigned long)(r.now_ns - cqe.done_ns));
	cr_assert_geq(fences(&r), 2u);
	/* The store goes on writing into what is now somebody else's memory: not one byte may arrive. */
	arena = r.client->read_arena.base;
	memset(arena, 0xa5, 8 * MIB);
	rig_run(&r, 200 * MS);
	for (uint32_t i = 0; i < 8 * MIB; i++)
		cr_assert_eq(arena[i], 0xa5, "late byte at %u", i);
	cr_assert_gt(late_bytes(&r), MIB);
	cr_assert_gt(tap.n_dones, 0u);
	rig_tap(&r, NULL, NULL);
	reads(&r, "k", data, 4 * MIB);
	free(data);
	rig_stop(&r);
}

/* The slots of fenced segments are used again while their late bytes and answers are still to come. */
Test(node_time, next_read_beside_late_bytes)
{
	struct silence tap = {.want_cancels = true};
	struct ry_cqe cqe;
	uint8_t *data, *other;
	struct rig r;

	begin(&r, 1, 50000000);
	data = rig_object(&r, "k", 2 * MIB, 1);
	other = rig_object(&r, "other", 2 * MIB, 2);
	warm_up(&r, "k");
	rig_tap(&r, silence, &tap);
	cqe = rig_wait(&r, r.client, rig_submit_read(&r, r.client, "k", 0, UINT64_MAX, 0, r.now_ns + 5 * MS));
	cr_assert_eq(cqe.status, RY_ERR_TIMEOUT);
	rig_run(&r, 7 * MS);
	cr_assert(rig_is_idle(&r));
	cr_assert_geq(fences(&r), 1u);
	reads(&r, "other", other, 2 * MIB);
	cr_assert_gt(late_bytes(&r), 0u);
	cr_assert_geq(stat_get(&r.node->rails[0]->counters.late_messages), 1u, "the fenced segment's DONE");
	reads(&r, "k", data, 2 * MIB);
	free(data);
	free(other);
	rig_stop(&r);
}

/* ---- The store's half ---- */

/* Writes of 1 KiB, one burst of them in 100 us: more than 10 ms for 2 MiB. */
static void slow_store(struct rig *r)
{
	r->node->snapshot.serve_turn_bytes = r->node->rails[0]->write_max_bytes = 1024;
	r->step_ns = 100000;
}

Test(node_time, nothing_is_posted_after_the_ttl)
{
	struct silence tap = {.want_cancels = true};
	uint64_t deadline;
	struct ry_cqe cqe;
	uint8_t *data;
	struct rig r;

	begin(&r, 1, 0);
	data = rig_object(&r, "k", 2 * MIB, 1);
	warm_up(&r, "k");
	slow_store(&r);
	r.node->snapshot.fence_timeout_ns = 100 * MS;
	rig_tap(&r, silence, &tap);
	deadline = r.now_ns + 3 * MS;
	cqe = rig_wait(&r, r.client, rig_submit_read(&r, r.client, "k", 0, UINT64_MAX, 0, deadline));
	cr_assert_eq(cqe.status, RY_ERR_TIMEOUT);
	cr_assert(rig_settle(&r));
	cr_assert_leq(tap.last_write_ns, deadline + 200000, "%ld ns after the deadline",
		(long)(tap.last_write_ns - deadline));
	cr_assert(tap.n_writes > 300 && tap.n_writes < 1000, "%u writes", tap.n_writes);
	cr_assert_eq(tap.last_done, RY_ERR_TIMEOUT);
	cr_assert_geq(stat_get(&r.node->rails[0]->counters.cancels_served), 1u);
	cr_assert_eq(fences(&r), 0u, "its DONE came in time");
	free(data);
	rig_stop(&r);
}

Test(node_time, nothing_is_posted_after_a_cancel)
{
	struct silence tap = {0};
	uint64_t ticket, at;
	struct ry_cqe cqe;
	uint8_t *data;
	struct rig r;

	begin(&r, 1, 0);
	data = rig_object(&r, "k", 2 * MIB, 1);
	warm_up(&r, "k");
	slow_store(&r);
	rig_tap(&r, silence, &tap);
	ticket = rig_submit_read(&r, r.client, "k", 0, UINT64_MAX, 0, 0);
	rig_run(&r, 3 * MS);
	rig_cancel(&r, r.client, ticket);
	at = r.now_ns;
	cqe = rig_wait(&r, r.client, ticket);
	cr_assert_eq(cqe.status, RY_ERR_CANCELLED);
	cr_assert_lt(cqe.done_ns - at, MS);
	cr_assert(rig_settle(&r));
	cr_assert_lt(tap.last_write_ns, at + MS);
	cr_assert_eq(tap.last_done, RY_ERR_CANCELLED);
	cr_assert_eq(fences(&r), 0u);
	reads(&r, "k", data, 2 * MIB);
	free(data);
	rig_stop(&r);
}

/* ---- A client that goes away in mid-read ---- */

static void leaves(bool is_silent, uint64_t bandwidth, uint64_t after_ns)
{
	struct silence tap = {.want_cancels = is_silent, .want_dones = is_silent};
	struct client *c;
	uint8_t *data;
	struct rig r;

	begin(&r, 2, bandwidth);
	data = rig_object(&r, "k", 4 * MIB, 1);
	c = rig_attach(&r, 16 * MIB);
	rig_tap(&r, silence, &tap);
	for (int i = 0; i < 3; i++)
		rig_submit_read(&r, c, "k", 0, UINT64_MAX, 0, 0);
	rig_run(&r, after_ns);
	cr_assert_gt(r.node->control->inflight_bytes, 0u);
	cr_assert(rig_detach(&r, c), "control let go of it");
	cr_assert(rig_is_idle(&r), "with every segment back");
	cr_assert_eq(fences(&r) > 0, is_silent);
	rig_run(&r, 300 * MS); /* late bytes would hit unmapped memory */
	rig_tap(&r, NULL, NULL);
	reads(&r, "k", data, 4 * MIB);
	free(data);
	rig_stop(&r);
}

Test(node_time, client_leaves)
{
	leaves(false, 1000000000, 2 * MS);
}

Test(node_time, client_leaves_and_the_store_is_silent)
{
	leaves(true, 50000000, 10 * MS);
}
