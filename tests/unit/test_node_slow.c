/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rails that are up and slow, in virtual time: no object waits for one, it carries what it can, operators see it, and
 * it is found out when it is well again. And which rail a small object takes.
 */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "health/layout.h"
#include "read/control_priv.h"
#include "rig.h"
#include "transport/mock/fault.h"

#define MIB (1u << 20)
#define KIB (1u << 10)
#define MS 1000000ull
#define RATE 125000000ull
#define SLOW_RAIL 3

static void begin(struct rig *r, uint16_t n_rails)
{
	rig_init(r, n_rails, RATE);
	r->config.read_arena_bytes = r->config.put_arena_bytes = 32u << 20;
	rig_start(r);
}

/* A good read; returns its time. */
static uint64_t reads(struct rig *r, const char *key, const uint8_t *data, uint64_t bytes)
{
	struct ry_cqe cqe = rig_read(r, r->client, key, 0, UINT64_MAX, 0);

	cr_assert_eq(cqe.status, RY_OK, "%s", rig_slot(r->client, &cqe)->cause);
	cr_assert(cqe.is_verified && rig_same(r->client, &cqe, data, bytes));
	rig_release(r, r->client, cqe.lease_id);
	return rig_slot(r->client, &cqe)->stats.object_ns;
}

static uint64_t share(struct rig *r, uint16_t rail)
{
	struct recorder *rec = &r->node->recorder;
	struct record last;
	unsigned i = 0;

	cr_assert(recorder_read(rec, recorder_written(rec) - 1, &last));
	for (uint16_t k = 0; k < rail; k++)
		i += last.rail_mask >> k & 1;
	return last.rail_mask >> rail & 1 ? last.rail_bytes[i] : 0;
}

/* To a tenth, or back. */
static void slow_down(struct rig *r, uint16_t rail, double factor)
{
	struct fault_plan plan = {.seed = 1,
		.n_entries = 1,
		.entries = {{.kind = FAULT_SLOW,
			.trigger = FAULT_AT_TIME,
			.chance_ppm = FAULT_ALWAYS_PPM,
			.repeat = 1,
			.arg = (uint64_t)(factor * FAULT_ALWAYS_PPM)}}};

	cr_assert_eq(mock_fault_inject(r->node->rails[rail], factor < 1 ? &plan : NULL), 0);
}

static const struct rail_ctx *ctx(const struct rig *r, uint16_t rail)
{
	return &r->node->control->rails[rail];
}

/* The next verdict on a rail that is on its way to the log; false: none. */
static bool next_verdict(struct rig *r, struct journal_entry *e)
{
	while (journal_pop(&r->node->journal, e)) {
		if (e->kind != JOURNAL_BREAKER)
			return true;
	}
	return false;
}

/* One verdict on the slow rail, and no other. */
static struct slow_change verdict(struct rig *r, enum journal_kind kind, uint16_t rail)
{
	struct journal_entry e, more;

	cr_assert(next_verdict(r, &e), "there is none");
	cr_assert(e.kind == kind && e.name.rail_idx == rail, "kind %u of rail %u", e.kind, e.name.rail_idx);
	cr_assert_eq(e.slow.stores, 1u);
	cr_assert_not(next_verdict(r, &more), "two of them");
	return e.slow;
}

/* ---- One of four at a tenth ---- */

static void one_of_four(uint64_t bytes)
{
	const uint64_t ideal_ns = bytes * 1000000000ull / (3 * RATE);
	struct slow_change why;
	struct journal_entry e;
	uint64_t ns = 0;
	uint8_t *data;
	struct rig r;

	begin(&r, 4);
	data = rig_object(&r, "k", bytes, 1);
	for (int i = 0; i < 8; i++)
		reads(&r, "k", data, bytes);
	cr_assert_not(next_verdict(&r, &e));
	cr_assert_not(ctx(&r, SLOW_RAIL)->is_slow);
	slow_down(&r, SLOW_RAIL, 0.1);
	for (int i = 0; i < 8; i++)
		reads(&r, "k", data, bytes);
	for (int i = 0; i < 4; i++) {
		ns = reads(&r, "k", data, bytes);
		cr_assert_leq(ns, ideal_ns * 1.05, "%.3f of the three alone", (double)ns / (double)ideal_ns);
		cr_assert_gt(share(&r, SLOW_RAIL), 0u, "it still carries what it can");
		cr_assert_lt(share(&r, SLOW_RAIL), bytes / 20);
	}
	cr_assert(ctx(&r, SLOW_RAIL)->is_slow);
	cr_assert_leq(ctx(&r, SLOW_RAIL)->depth_bytes, 512 * KIB);
	for (uint16_t i = 0; i < 3; i++)
		cr_assert_not(ctx(&r, i)->is_slow, "rail %u", i);
	cr_assert_eq(stat_get(&r.node->counters.rails_slow), 1u);
	why = verdict(&r, JOURNAL_SLOW, SLOW_RAIL);
	cr_assert_lt(why.goodput, RATE / 3);
	cr_assert(!why.usual || why.usual > 3 * why.goodput, "usual %lu", (unsigned long)why.usual);
	cr_assert_float_eq((double)why.siblings, (double)RATE, 0.1 * RATE);
	free(data);
	rig_stop(&r);
}

Test(node_slow, one_of_four_large_objects)
{
	one_of_four(24 * MIB);
}

Test(node_slow, one_of_four_small_objects)
{
	one_of_four(6 * MIB);
}

/* Slow since the start: no history tells, its siblings do. */
Test(node_slow, slow_from_the_start)
{
	const uint64_t bytes = 16 * MIB;
	uint64_t ns = 0;
	uint8_t *data;
	struct rig r;

	rig_init(&r, 4, RATE);
	r.config.rails[SLOW_RAIL].mock.bandwidth_bytes_per_s = RATE / 10;
	r.config.put_arena_bytes = 32u << 20;
	rig_start(&r);
	data = rig_object(&r, "k", bytes, 1);
	for (int i = 0; i < 9; i++)
		ns = reads(&r, "k", data, bytes);
	cr_assert_leq(ns, bytes * 1e9 / (3 * RATE) * 1.05);
	cr_assert(ctx(&r, SLOW_RAIL)->is_slow);
	cr_assert_eq(verdict(&r, JOURNAL_SLOW, SLOW_RAIL).usual, 0u, "it has no history");
	free(data);
	rig_stop(&r);
}

/* So slow that the smallest piece takes longer than an object: it gets nothing but a trial now and then. */
Test(node_slow, slower_than_any_use)
{
	const uint64_t bytes = 8 * MIB, ideal_ns = bytes * 1000000000ull / (3 * RATE);
	unsigned n_waited = 0;
	uint8_t *data;
	struct rig r;

	begin(&r, 4);
	data = rig_object(&r, "k", bytes, 1);
	for (int i = 0; i < 4; i++)
		reads(&r, "k", data, bytes);
	slow_down(&r, SLOW_RAIL, 0.01);
	for (int i = 0; i < 8; i++)
		reads(&r, "k", data, bytes);
	for (uint64_t end = r.now_ns + 3000 * MS; r.now_ns < end;)
		n_waited += reads(&r, "k", data, bytes) > ideal_ns * 1.05;
	cr_assert_leq(n_waited, 1u);
	cr_assert(ctx(&r, SLOW_RAIL)->is_slow);
	free(data);
	rig_stop(&r);
}

/* ---- Not slow ---- */

Test(node_slow, all_of_them_slow_down_together)
{
	uint8_t *data;
	struct rig r;

	begin(&r, 3);
	data = rig_object(&r, "k", 8 * MIB, 1);
	for (int i = 0; i < 12; i++)
		reads(&r, "k", data, 8 * MIB);
	for (uint16_t i = 0; i < 3; i++)
		slow_down(&r, i, 0.1);
	for (int i = 0; i < 12; i++)
		reads(&r, "k", data, 8 * MIB);
	for (uint16_t i = 0; i < 3; i++)
		cr_assert_not(ctx(&r, i)->is_slow, "a slow store is no slow rail");
	free(data);
	rig_stop(&r);
}

/* Half of the others' rate, and a rail that has nothing but small reads to carry. */
Test(node_slow, less_is_not_slow)
{
	uint8_t *large, *small;
	struct rig r;

	rig_init(&r, 4, RATE);
	r.config.rails[1].mock.bandwidth_bytes_per_s = RATE / 2;
	r.config.read_arena_bytes = r.config.put_arena_bytes = 32u << 20;
	rig_start(&r);
	large = rig_object(&r, "large", 16 * MIB, 1);
	small = rig_object(&r, "small", 4 * KIB, 2);
	for (int i = 0; i < 4; i++)
		reads(&r, "large", large, 16 * MIB);
	for (int i = 0; i < 2000; i++)
		reads(&r, "small", small, 4 * KIB);
	for (uint16_t i = 0; i < 4; i++)
		cr_assert_not(ctx(&r, i)->is_slow, "rail %u", i);
	cr_assert_float_eq((double)ctx(&r, 0)->goodput, (double)RATE, 0.1 * RATE, "small reads prove nothing: %lu",
		(unsigned long)ctx(&r, 0)->goodput);
	reads(&r, "large", large, 16 * MIB);
	cr_assert_float_eq((double)share(&r, 1) / (16 * MIB) * 7, 1, 0.1);
	free(large);
	free(small);
	rig_stop(&r);
}

Test(node_slow, equal_rails_carry_equal_shares)
{
	uint8_t *data;
	struct rig r;

	begin(&r, 4);
	data = rig_object(&r, "k", 24 * MIB, 1);
	for (int i = 0; i < 5; i++) {
		reads(&r, "k", data, 24 * MIB);
		for (uint16_t k = 0; k < 4; k++)
			cr_assert_float_eq((double)share(&r, k) / (6 * MIB), 1, 0.1, "object %d rail %u", i, k);
	}
	free(data);
	rig_stop(&r);
}

/* ---- And back ---- */

static void heals(uint64_t bytes)
{
	uint64_t before, ns = UINT64_MAX;
	struct slow_change why;
	bool was_slow;
	uint8_t *data;
	struct rig r;

	begin(&r, 4);
	data = rig_object(&r, "k", bytes, 1);
	for (int i = 0; i < 8; i++)
		before = reads(&r, "k", data, bytes);
	slow_down(&r, SLOW_RAIL, 0.1);
	for (int i = 0; i < 12; i++)
		reads(&r, "k", data, bytes);
	was_slow = ctx(&r, SLOW_RAIL)->is_slow;
	cr_assert(was_slow || bytes <= MIB, "small objects may have shown too little of it");
	if (was_slow)
		verdict(&r, JOURNAL_SLOW, SLOW_RAIL);
	slow_down(&r, SLOW_RAIL, 1);
	for (uint64_t end = r.now_ns + 2500 * MS;
		r.now_ns < end && (ns > before * 1.05 || ctx(&r, SLOW_RAIL)->is_slow);)
		ns = reads(&r, "k", data, bytes);
	cr_assert_leq(ns, before * 1.05, "%.3f of before", (double)ns / (double)before);
	cr_assert_not(ctx(&r, SLOW_RAIL)->is_slow);
	if (was_slow) {
		why = verdict(&r, JOURNAL_NOT_SLOW, SLOW_RAIL);
		cr_assert_gt(2 * why.goodput, RTE_MIN(why.usual ? why.usual : UINT64_MAX, why.siblings));
	}
	cr_assert_eq(ctx(&r, SLOW_RAIL)->depth_bytes, ctx(&r, 0)->depth_bytes);
	cr_assert_eq(stat_get(&r.node->counters.rails_slow), 0u);
	free(data);
	rig_stop(&r);
}

Test(node_slow, heals_under_large_objects)
{
	heals(16 * MIB);
}

/* None of them is large enough for a slow rail's piece to come in time: only trials can tell. */
Test(node_slow, heals_under_small_objects)
{
	heals(1 * MIB);
}

/* ---- The trip ---- */

static bool is_open(const struct rig *r, uint16_t rail)
{
	const struct control *c = r->node->control;

	return rail_health_state(&c->health.breakers, health_breaker(&c->health, 0, rail, rail), r->now_ns) !=
	       RAIL_CLOSED;
}

Test(node_slow, is_tripped_when_asked)
{
	uint64_t flagged_ns = 0, opened_ns = 0;
	uint8_t *data;
	struct rig r;

	rig_init(&r, 3, RATE);
	r.config.slow_trip_secs = 1;
	rig_start(&r);
	data = rig_object(&r, "k", 4 * MIB, 1);
	for (int i = 0; i < 20; i++)
		reads(&r, "k", data, 4 * MIB);
	slow_down(&r, 2, 0.1);
	for (uint64_t end = r.now_ns + 3000 * MS; r.now_ns < end && !opened_ns;) {
		reads(&r, "k", data, 4 * MIB);
		if (!flagged_ns && ctx(&r, 2)->is_slow) {
			flagged_ns = r.now_ns;
			verdict(&r, JOURNAL_SLOW, 2);
		}
		if (is_open(&r, 2))
			opened_ns = r.now_ns;
	}
	cr_assert(flagged_ns && opened_ns);
	cr_assert_float_eq((double)(opened_ns - flagged_ns) / 1e9, 1, 0.1);
	reads(&r, "k", data, 4 * MIB);
	cr_assert_eq(share(&r, 2), 0u);
	cr_assert_eq(stat_get(&r.node->counters.slow_trips), 1u);
	cr_assert_lt(verdict(&r, JOURNAL_SLOW_TRIP, 2).goodput, RATE / 3);
	free(data);
	rig_stop(&r);
}

/* Still slow, it passes every PING: it has its second after each pause, and is out for the rest. When it is well again,
 * it stays. */
Test(node_slow, stays_out_for_its_pause)
{
	const struct rail_breaker *b;
	uint64_t in_use_ns = 0, end;
	uint8_t *data;
	struct rig r;

	rig_init(&r, 3, RATE);
	r.config.slow_trip_secs = 1;
	rig_start(&r);
	data = rig_object(&r, "k", 4 * MIB, 1);
	for (int i = 0; i < 20; i++)
		reads(&r, "k", data, 4 * MIB);
	slow_down(&r, 2, 0.1);
	while (!is_open(&r, 2))
		reads(&r, "k", data, 4 * MIB);
	b = &r.node->control->health.breakers.pairs[health_breaker(&r.node->control->health, 0, 2, 2)];
	r.step_ns = 100000;
	for (end = r.now_ns + 60000 * MS; r.now_ns < end;) {
		uint64_t from_ns = r.now_ns;
		bool was_open = is_open(&r, 2);

		reads(&r, "k", data, 4 * MIB);
		if (was_open && is_open(&r, 2))
			cr_assert_eq(share(&r, 2), 0u);
		rig_run(&r, 50 * MS);
		in_use_ns += was_open ? 0 : r.now_ns - from_ns;
	}
	cr_assert_eq(stat_get(&r.node->counters.slow_trips), b->n_trips);
	cr_assert_eq(b->n_trips, 2u, "%u trips", b->n_trips);
	cr_assert(b->n_sent == 1 && b->n_ok == 1, "one trial at the end of the pause, no probes in it: %u", b->n_sent);
	cr_assert_leq(in_use_ns, 1200 * MS);
	slow_down(&r, 2, 1);
	rig_run(&r, b->resume_ns + 100 * MS - r.now_ns);
	for (end = r.now_ns + 3000 * MS; r.now_ns < end;)
		reads(&r, "k", data, 4 * MIB);
	cr_assert(!is_open(&r, 2) && !ctx(&r, 2)->is_slow && b->n_trips == 2);
	free(data);
	rig_stop(&r);
}

/* Every rail may use every endpoint, as over TCP without a word on rails, and rail 2 had better use the first. Those
 * that are connected stay so. */
static void many_endpoints(struct rig *r)
{
	struct control *c = r->node->control;
	struct rail_map_error err;
	struct layout *l = layout_create(&r->config, &err);
	const struct rail_map_row row = {r->config.rails[2].name, r->config.stores[0].name, l->names[0][0]};

	l->table.n_all = 0;
	for (uint16_t i = 0; i < 9; i++)
		l->all[l->table.n_all++] = (struct rail_map_row){
			r->config.rails[i / 3].name, r->config.stores[0].name, l->names[0][i % 3]};
	l->direct[l->table.n_direct++] = row;
	cr_assert_eq(rail_health_relayout(&c->health.breakers, &l->layout, r->now_ns, &err), 0, "%s", err.text);
	free(l);
}

/* How many of the rail's pairs with the store are closed. */
static unsigned n_closed(const struct rig *r, uint16_t rail)
{
	const struct health *h = &r->node->control->health;
	unsigned n = 0;

	for (uint16_t e = 0; e < 3; e++)
		n += rail_health_is_available(&h->breakers, health_breaker(h, 0, e, rail));
	return n;
}

/* Not the one endpoint that it has, or ought to have: the next would take its place at once. */
Test(node_slow, is_tripped_towards_all_endpoints)
{
	uint8_t *data;
	struct rig r;

	rig_init(&r, 3, RATE);
	r.config.slow_trip_secs = 1;
	r.config.health.cooldown_secs = 3;
	rig_start(&r);
	many_endpoints(&r);
	cr_assert_neq(health_best(&r.node->control->health, 0, 2), health_breaker(&r.node->control->health, 0, 2, 2));
	data = rig_object(&r, "k", 4 * MIB, 1);
	for (int i = 0; i < 20; i++)
		reads(&r, "k", data, 4 * MIB);
	slow_down(&r, 2, 0.1);
	for (uint64_t end = r.now_ns + 3000 * MS; r.now_ns < end && !is_open(&r, 2);)
		reads(&r, "k", data, 4 * MIB);
	cr_assert(n_closed(&r, 0) == 3 && n_closed(&r, 1) == 3 && n_closed(&r, 2) == 0);
	cr_assert_eq(stat_get(&r.node->counters.slow_trips), 1u, "for the rail and the store, not for each pair");
	reads(&r, "k", data, 4 * MIB);
	cr_assert_eq(share(&r, 2), 0u);
	/* One is connected and has its trial, which speaks for the others. */
	rig_run(&r, 2900 * MS);
	cr_assert_eq(n_closed(&r, 2), 0u);
	rig_run(&r, 200 * MS);
	cr_assert_eq(n_closed(&r, 2), 3u);
	free(data);
	rig_stop(&r);
}

Test(node_slow, is_not_tripped_unasked)
{
	uint8_t *data;
	struct rig r;

	begin(&r, 3);
	data = rig_object(&r, "k", 4 * MIB, 1);
	for (int i = 0; i < 20; i++)
		reads(&r, "k", data, 4 * MIB);
	slow_down(&r, 2, 0.1);
	for (uint64_t end = r.now_ns + 2000 * MS; r.now_ns < end;)
		reads(&r, "k", data, 4 * MIB);
	cr_assert(ctx(&r, 2)->is_slow);
	cr_assert_not(is_open(&r, 2));
	free(data);
	rig_stop(&r);
}

/* A slow way to a store is better than none. */
Test(node_slow, the_last_rail_is_not_tripped)
{
	uint8_t *data;
	struct rig r;

	rig_init(&r, 2, RATE);
	r.config.slow_trip_secs = 1;
	rig_start(&r);
	data = rig_object(&r, "k", 4 * MIB, 1);
	for (int i = 0; i < 20; i++)
		reads(&r, "k", data, 4 * MIB);
	slow_down(&r, 1, 0.1);
	for (int i = 0; i < 8; i++)
		reads(&r, "k", data, 4 * MIB);
	cr_assert(ctx(&r, 1)->is_slow);
	r.node->control->rails[0].is_draining = true;
	for (uint64_t end = r.now_ns + 2000 * MS; r.now_ns < end;)
		reads(&r, "k", data, 4 * MIB);
	cr_assert_not(is_open(&r, 1));
	cr_assert_eq(stat_get(&r.node->counters.slow_trips), 0u);
	verdict(&r, JOURNAL_SLOW, 1); /* and nothing of a trip */
	free(data);
	rig_stop(&r);
}

/* ---- Small objects ---- */

Test(node_slow, small_objects_take_one_near_rail)
{
	uint32_t used = 0;
	uint8_t *data;
	struct rig r;

	rig_init(&r, 4, RATE);
	for (uint16_t i = 0; i < 4; i++)
		r.config.rails[i].numa_node = i / 2;
	rig_start(&r);
	data = rig_object(&r, "k", 64 * KIB, 1);
	r.client->numa_node = 1;
	for (int i = 0; i < 5; i++) {
		reads(&r, "k", data, 64 * KIB);
		cr_assert_eq(RTE_MAX(share(&r, 2), share(&r, 3)), 64 * KIB);
	}
	r.client->numa_node = 0;
	for (int i = 0; i < 5; i++) {
		reads(&r, "k", data, 64 * KIB);
		cr_assert_eq(RTE_MAX(share(&r, 0), share(&r, 1)), 64 * KIB);
	}
	r.client->numa_node = 7; /* no rail is near */
	for (int i = 0; i < 4; i++) {
		reads(&r, "k", data, 64 * KIB);
		used |= 1u << (share(&r, 0) ? 0 : share(&r, 1) ? 1 : share(&r, 2) ? 2 : 3);
	}
	cr_assert_eq(used, 15u, "%x", used);
	free(data);
	rig_stop(&r);
}

Test(node_slow, small_objects_share_the_near_rails)
{
	uint64_t tickets[8];
	unsigned n[4] = {0};
	struct ry_cqe cqe;
	struct rig r;

	rig_init(&r, 4, RATE);
	for (uint16_t i = 0; i < 4; i++)
		r.config.rails[i].numa_node = i / 2;
	rig_start(&r);
	free(rig_object(&r, "k", 64 * KIB, 1));
	r.client->numa_node = 1;
	for (int i = 0; i < 8; i++)
		tickets[i] = rig_submit_read(&r, r.client, "k", 0, UINT64_MAX, 0, 0);
	for (unsigned done = 0; done < 8; rig_step(&r)) {
		while (rig_reap(&r, r.client, &cqe)) {
			cr_assert_eq(cqe.status, RY_OK);
			cr_assert(cqe.ticket >= tickets[0] && cqe.ticket <= tickets[7]);
			n[atoi(rig_slot(r.client, &cqe)->stats.rails[0].name + 4)]++;
			done++;
		}
	}
	cr_assert(n[0] == 0 && n[1] == 0 && n[2] == 4 && n[3] == 4, "%u %u %u %u", n[0], n[1], n[2], n[3]);
	rig_stop(&r);
}

/* A near rail that is slow is none. */
Test(node_slow, small_objects_avoid_a_slow_rail)
{
	uint8_t *large, *small;
	struct rig r;

	rig_init(&r, 4, RATE);
	for (uint16_t i = 0; i < 4; i++)
		r.config.rails[i].numa_node = i / 3;
	rig_start(&r);
	large = rig_object(&r, "large", 8 * MIB, 1);
	small = rig_object(&r, "small", 64 * KIB, 2);
	r.client->numa_node = 1;
	slow_down(&r, SLOW_RAIL, 0.1);
	for (int i = 0; i < 8; i++)
		reads(&r, "large", large, 8 * MIB);
	reads(&r, "small", small, 64 * KIB);
	cr_assert_eq(share(&r, SLOW_RAIL), 0u);
	free(large);
	free(small);
	rig_stop(&r);
}
