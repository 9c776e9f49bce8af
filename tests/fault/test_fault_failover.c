/* SPDX-License-Identifier: BSD-3-Clause */
/* Reads that go on over other rails, and stripes that are read again: which bytes, over which rail, who is blamed. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "fault_rig.h"
#include "read/control_priv.h"

static void begin(struct fault_rig *f, uint16_t n_rails)
{
	fault_init(f, n_rails);
	fault_start(f);
}

static void reads(struct fault_rig *f, const char *key, uint32_t flags)
{
	cr_assert_eq(fault_read(f, key, flags, 3000), RY_OK, "%s: status %u: %s", key, f->last.status, fault_cause(f));
}

static void end(struct fault_rig *f)
{
	fault_over(f);
	fault_stop(f);
}

static uint64_t undetermined(const struct fault_rig *f)
{
	return stat_get(&f->r.node->counters.corrupt_undetermined);
}

static uint64_t blamed(const struct fault_rig *f, uint16_t rail)
{
	return f->r.node->control->rails[rail].corrupt_blamed;
}

/* ---- Who decides ---- */

Test(fault_failover, policy_of_the_node_and_of_the_read)
{
	static const struct {
		enum config_rail_failure node;
		uint32_t flags, status;
	} rows[] = {
		{ON_RAIL_FAILURE_FAIL, 0, RY_ERR_RAIL},
		{ON_RAIL_FAILURE_FAIL, RY_F_FAILOVER, RY_OK},
		{ON_RAIL_FAILURE_FAILOVER, 0, RY_OK},
		{ON_RAIL_FAILURE_FAILOVER, RY_F_FAIL, RY_ERR_RAIL},
		{ON_RAIL_FAILURE_FAILOVER, RY_F_FAIL | RY_F_FAILOVER, RY_ERR_RAIL},
	};
	struct fault_rig f;

	begin(&f, 2);
	for (unsigned i = 0; i < RTE_DIM(rows); i++) {
		f.r.config.on_rail_failure = rows[i].node;
		fault_plan(&f, 1, "disconnect:at=300KiB");
		cr_assert_eq(fault_read(&f, "large", rows[i].flags, 1000), rows[i].status, "row %u: %u: %s", i,
			f.last.status, fault_cause(&f));
		fault_over(&f);
	}
	fault_stop(&f);
}

/* ---- Lost and silent rails ---- */

static void at_any_byte(const char *fault, enum fault_kind kind, uint16_t n_rails)
{
	static const char *const at[] = {"at=1", "at=64KiB", "at=300KiB", "at=1MiB", "at=1500KiB"};
	struct fault_rig f;

	begin(&f, n_rails);
	for (unsigned i = 0; i < RTE_DIM(at); i++) {
		char plan[64];

		snprintf(plan, sizeof(plan), "%s%s", fault, at[i]);
		fault_plan(&f, 0, plan);
		reads(&f, "large", RY_F_FAILOVER);
		cr_assert_eq(fault_count(&f, 0, kind), i + 1, "%s", plan);
		reads(&f, "small", RY_F_FAILOVER);
		fault_over(&f);
	}
	fault_stop(&f);
}

Test(fault_failover, disconnect)
{
	at_any_byte("disconnect:", FAULT_DISCONNECT, 2);
}

Test(fault_failover, stall_of_five_seconds)
{
	at_any_byte("stall:for=5s,", FAULT_STALL, 3);
}

/* The only rail falls under suspicion, and answers before it is judged: who fails over waits for the verdict, be it
 * under way or new; who does not is told at once. */
Test(fault_failover, last_rail_under_suspicion_is_waited_for)
{
	struct fault_rig f;
	struct rig *r = &f.r;
	const struct path *p;
	unsigned n_good = 0;
	struct ry_cqe cqe;
	uint64_t careful;

	begin(&f, 1);
	p = &r->node->control->paths[r->node->control->peers[0].by_rail[0].pair->idx];
	fault_plan(&f, 0, "stall:at=300KiB,for=60s");
	rig_submit_read(r, r->client, "large", 0, UINT64_MAX, RY_F_FAILOVER, 0);
	while (!p->is_suspect && r->now_ns < 10000 * MS)
		rig_step(r);
	cr_assert(p->is_suspect && !p->is_killed);
	rig_submit_read(r, r->client, "small", 0, UINT64_MAX, RY_F_FAILOVER, 0);
	careful = rig_submit_read(r, r->client, "small", 0, UINT64_MAX, RY_F_FAIL, 0);
	cr_assert_eq(rig_wait(r, r->client, careful).status, RY_ERR_NO_RAIL);
	cr_assert(p->is_suspect);
	fault_plan(&f, 0, "");
	for (; n_good < 2 && r->now_ns < 20000 * MS; rig_step(r)) {
		while (rig_reap(r, r->client, &cqe)) {
			cr_assert_eq(cqe.status, RY_OK, "status %u", cqe.status);
			rig_release(r, r->client, cqe.lease_id);
			n_good++;
		}
	}
	cr_assert_eq(n_good, 2u);
	cr_assert(!p->is_suspect && !p->is_killed);
	end(&f);
}

/* It stays silent: the wait ends, well before the deadline. */
Test(fault_failover, last_rail_is_not_waited_for_longer)
{
	struct fault_rig f;
	uint64_t from_ns;

	begin(&f, 1);
	fault_plan(&f, 0, "lose:repeat=forever,of=all");
	cr_assert_eq(fault_read(&f, "large", RY_F_FAILOVER, 20000), RY_ERR_NO_RAIL);
	from_ns = f.r.now_ns;
	cr_assert_eq(fault_read(&f, "small", RY_F_FAILOVER, 20000), RY_ERR_NO_RAIL);
	cr_assert_leq(f.r.now_ns - from_ns, 4 * f.r.config.fence_timeout_ns + 2 * MS);
	end(&f);
}

/* One rail carries it all; another one takes over, and only one. */
Test(fault_failover, read_on_one_rail_moves_to_one_other)
{
	const struct ry_slot *slot;
	struct fault_rig f;

	begin(&f, 3);
	fault_plan(&f, 0, "disconnect:at=2500KiB");
	reads(&f, "large", RY_F_FAILOVER | RY_F_ONE_RAIL);
	cr_assert_eq(fault_count(&f, 0, FAULT_DISCONNECT), 1);
	slot = rig_slot(f.r.client, &f.last);
	cr_assert_eq(slot->stats.n_rails, 2);
	cr_assert_geq(slot->stats.rails[1].bytes, 3 * MIB);
	end(&f);
}

/* Below one_rail_max a read uses one rail: lost, silent, or busy and then lost. */
Test(fault_failover, small_read_moves_over)
{
	static const char *const plans[] = {"disconnect:at=100KiB", "lose:repeat=forever", "stall:for=3s"};
	struct fault_rig f;

	begin(&f, 2);
	for (unsigned i = 0; i < RTE_DIM(plans); i++) {
		f.r.config.one_rail_max_bytes = 16 * MIB;
		fault_plan(&f, 0, plans[i]);
		reads(&f, "small", RY_F_FAILOVER);
		reads(&f, "small", RY_F_FAILOVER);
		f.r.config.one_rail_max_bytes = 256 * KIB;
		fault_over(&f);
	}
	fault_stop(&f);
}

Test(fault_failover, round_robin_is_dealt_anew)
{
	static const char *const plans[] = {"disconnect:at=100KiB", "disconnect:at=1300KiB", "stall:at=200KiB,for=5s"};
	struct fault_rig f;

	fault_init(&f, 3);
	f.r.config.policy = POLICY_ROUND_ROBIN;
	fault_start(&f);
	for (unsigned i = 0; i < RTE_DIM(plans); i++) {
		fault_plan(&f, 1, plans[i]);
		reads(&f, "large", RY_F_FAILOVER);
		cr_assert_eq(rig_slot(f.r.client, &f.last)->stats.wire_bytes, 6 * MIB + 77u);
		fault_plan(&f, 1, plans[i]);
		reads(&f, "small", RY_F_FAILOVER);
		fault_over(&f);
	}
	fault_stop(&f);
}

/* A segment that went out again is new to its rail: the silence of the old one is not held against the new one. */
Test(fault_failover, silence_is_not_inherited)
{
	struct fault_rig f;

	begin(&f, 2);
	fault_plan(&f, 0, "lose:repeat=forever");
	reads(&f, "large", RY_F_FAILOVER);
	cr_assert_eq(stat_get(&f.r.node->counters.paths_silent), 1);
	cr_assert_not(f.r.node->control->health.breakers.pairs[1].error_count);
	for (unsigned i = 0; i < PAIRS_MAX; i++) {
		const struct path *p = &f.r.node->control->paths[i];

		cr_assert(!p->epoch || p->rail_idx != 1 || !p->silent_since_ns, "pair %u", i);
	}
	end(&f);
}

Test(fault_failover, two_of_three_rails_lost)
{
	struct fault_rig f;

	begin(&f, 3);
	fault_plan(&f, 0, "disconnect:at=300KiB");
	fault_plan(&f, 2, "stall:at=100KiB,for=5s");
	reads(&f, "large", RY_F_FAILOVER);
	end(&f);
}

Test(fault_failover, no_rail_left)
{
	struct fault_rig f;

	fault_init(&f, 2);
	f.r.config.reconnect_ns = 500 * MS;
	fault_start(&f);
	fault_plan(&f, 0, "disconnect:at=300KiB");
	fault_plan(&f, 1, "disconnect:at=400KiB");
	cr_assert_eq(
		fault_read(&f, "large", RY_F_FAILOVER, 3000), RY_ERR_NO_RAIL, "%u: %s", f.last.status, fault_cause(&f));
	cr_assert(strstr(fault_cause(&f), "self: rail0 ") && strstr(fault_cause(&f), "rail1 "), "%s", fault_cause(&f));
	end(&f);
}

/* Both are silent for a while, then answer: the verdict is awaited instead of giving up. */
Test(fault_failover, all_rails_suspected)
{
	struct fault_rig f;

	fault_init(&f, 2);
	f.r.config.fence_timeout_ns = 50 * MS;
	fault_start(&f);
	for (int i = 0; i < 20; i++)
		reads(&f, "small", 0); /* enough samples for a short segment deadline */
	fault_plan(&f, 0, "stall:at=300KiB,for=130ms");
	fault_plan(&f, 1, "stall:at=300KiB,for=130ms");
	reads(&f, "large", RY_F_FAILOVER);
	cr_assert_geq(stat_get(&f.r.node->counters.segments_expired), 2);
	end(&f);
}

Test(fault_failover, deadline_still_counts)
{
	struct fault_rig f;

	begin(&f, 1);
	fault_plan(&f, 0, "stall:at=300KiB,for=1s");
	cr_assert_eq(fault_read(&f, "large", RY_F_FAILOVER, 50), RY_ERR_TIMEOUT);
	end(&f);
}

/* ---- Stripes that arrive wrong ---- */

/* Once: nobody can be told from a stray bit. */
Test(fault_failover, corrupt_once)
{
	static const char *const keys[] = {"small", "large"};
	struct fault_rig f;

	begin(&f, 3);
	for (uint16_t i = 0; i < RTE_DIM(keys); i++) {
		fault_plan(&f, i, "corrupt:n=1");
		reads(&f, keys[i], RY_F_FAILOVER);
		cr_assert_eq(fault_count(&f, i, FAULT_CORRUPT), 1);
		cr_assert_eq(undetermined(&f), i + 1u, "%s: %lu", keys[i], (unsigned long)undetermined(&f));
		cr_assert_geq(stat_get(&f.r.node->counters.stripes_reread), i + 1u);
		cr_assert(!blamed(&f, 0) && !blamed(&f, 1) && !blamed(&f, 2));
		fault_over(&f);
	}
	fault_stop(&f);
}

/* Every time: the first is put down to nobody, all others to the rail that did it. */
Test(fault_failover, corrupt_for_ever)
{
	struct fault_rig f;

	begin(&f, 3);
	fault_plan(&f, 2, "corrupt:repeat=forever");
	for (int i = 0; i < 5; i++)
		reads(&f, "small", RY_F_FAILOVER);
	cr_assert_gt(blamed(&f, 2), 3u);
	cr_assert(!blamed(&f, 0) && !blamed(&f, 1));
	cr_assert_eq(stat_get(&f.r.node->counters.corrupt_blamed), blamed(&f, 2));
	end(&f);
}

Test(fault_failover, short_writes)
{
	struct fault_rig f;

	begin(&f, 2);
	fault_plan(&f, 1, "short:n=1,repeat=forever");
	reads(&f, "large", RY_F_FAILOVER);
	reads(&f, "small", RY_F_FAILOVER);
	cr_assert_gt(fault_count(&f, 1, FAULT_SHORT), 1u);
	end(&f);
}

/* Small stripes, several in one message: those in front of the bad one are kept, those behind it come again. */
Test(fault_failover, corrupt_among_small_stripes)
{
	struct fault_rig f;
	struct ry_cqe cqe;
	uint8_t *data = malloc(MIB);

	begin(&f, 2);
	rig_fill(data, MIB, 9);
	cr_assert_eq(rig_put(&f.r, f.r.client, "tiny", data, MIB, 64 * KIB, 0).status, RY_OK);
	for (unsigned stripe = 0; stripe < 16; stripe += 3) {
		char plan[64];

		snprintf(plan, sizeof(plan), "corrupt:stripe=%u,byte=77", stripe);
		for (uint16_t n_bad = 2; n_bad-- > 0;) {
			fault_plan(&f, 0, plan);
			fault_plan(&f, 1, n_bad ? plan : "");
			cqe = rig_read(&f.r, f.r.client, "tiny", 0, UINT64_MAX, RY_F_FAILOVER);
			/* Wrong over one rail, and over the other one. */
			if (n_bad)
				cr_assert_eq(cqe.status, RY_ERR_CHECKSUM, "stripe %u: %u", stripe, cqe.status);
			else
				cr_assert(rig_same(f.r.client, &cqe, data, MIB), "stripe %u: %u", stripe, cqe.status);
			rig_release(&f.r, f.r.client, cqe.lease_id);
		}
	}
	free(data);
	end(&f);
}

static void damage(struct fault_rig *f, const char *key, uint32_t stripe)
{
	struct object *o = store_lookup(f->r.node->store, key, (uint16_t)strlen(key), f->r.now_ns);

	o->stripe_addr[stripe][33] ^= 1;
}

/* It is the store's copy that is wrong: over every rail, and no rail is to blame. */
Test(fault_failover, damaged_object)
{
	struct fault_rig f;

	begin(&f, 3);
	for (uint32_t stripe = 0; stripe < 3; stripe++) {
		damage(&f, "large", stripe);
		cr_assert_eq(fault_read(&f, "large", RY_F_FAILOVER, 1000), RY_ERR_CHECKSUM);
		cr_assert_eq(f.last.rail_idx, RY_RAIL_NONE);
		cr_assert(strstr(fault_cause(&f), "of the object is wrong over rail"), "%s", fault_cause(&f));
		damage(&f, "large", stripe);
		reads(&f, "large", RY_F_FAILOVER);
	}
	cr_assert(!blamed(&f, 0) && !blamed(&f, 1) && !blamed(&f, 2));
	cr_assert_eq(undetermined(&f), 3);
	end(&f);
}

Test(fault_failover, damaged_object_and_one_rail)
{
	struct fault_rig f;

	begin(&f, 1);
	damage(&f, "small", 7);
	cr_assert_eq(fault_read(&f, "small", RY_F_FAILOVER, 1000), RY_ERR_CHECKSUM);
	cr_assert_eq(f.last.rail_idx, 0);
	cr_assert_eq(stat_get(&f.r.node->counters.stripes_reread), 0, "not over the rail that brought it wrong");
	cr_assert(strstr(fault_cause(&f), "stripe 7 "), "%s", fault_cause(&f));
	damage(&f, "small", 7);
	end(&f);
}

/* The rail that reads it again is lost in the middle of it. */
Test(fault_failover, loss_during_the_second_reading)
{
	struct fault_rig f;

	begin(&f, 3);
	fault_plan(&f, 0, "corrupt:n=1");
	fault_plan(&f, 1, "disconnect:at=2500KiB");
	fault_plan(&f, 2, "disconnect:at=3MiB");
	reads(&f, "large", RY_F_FAILOVER);
	cr_assert_eq(fault_count(&f, 0, FAULT_CORRUPT), 1);
	end(&f);
}

/* Nothing is read again under the other policy. */
Test(fault_failover, corrupt_without_failover)
{
	struct fault_rig f;

	begin(&f, 2);
	fault_plan(&f, 1, "corrupt:n=1");
	cr_assert_eq(fault_read(&f, "large", 0, 1000), RY_ERR_CHECKSUM);
	cr_assert_eq(stat_get(&f.r.node->counters.stripes_reread), 0);
	cr_assert_eq(undetermined(&f), 0);
	end(&f);
}

/* ---- 99 reads survive 100 cancels, and a rail that fails all the while ---- */

#define N_GOOD 99u
#define N_BAD 100u
#define SLOTS 8u

struct storm {
	struct fault_rig f;
	struct client *other;
	uint64_t good[SLOTS], bad[SLOTS], cancel_at_ns[SLOTS];
	unsigned n_good, n_bad, n_good_done, n_bad_done, n_cancelled;
};

static void storm_submit(struct storm *s)
{
	struct rig *r = &s->f.r;

	for (uint16_t i = 0; i < SLOTS; i++) {
		r->next_slot = i;
		if (!s->good[i] && s->n_good < N_GOOD) {
			s->n_good++;
			s->good[i] = rig_submit_read(r, r->client, "small", 0, MIB, RY_F_FAILOVER, 0);
		}
		r->next_slot = i;
		if (!s->bad[i] && s->n_bad < N_BAD) {
			s->n_bad++;
			s->bad[i] = rig_submit_read(r, s->other, "small", MIB, 3 * MIB, RY_F_FAILOVER, 0);
			s->cancel_at_ns[i] = r->now_ns + (uint64_t)random() % (8 * MS);
		} else if (s->bad[i] && s->cancel_at_ns[i] && r->now_ns >= s->cancel_at_ns[i]) {
			rig_cancel(r, s->other, s->bad[i]);
			s->cancel_at_ns[i] = 0;
		}
	}
}

static void storm_reap(struct storm *s)
{
	struct rig *r = &s->f.r;
	struct ry_cqe cqe;

	while (rig_reap(r, r->client, &cqe)) {
		cr_assert(rig_same(r->client, &cqe, s->f.small, MIB), "%u: %s", cqe.status,
			rig_slot(r->client, &cqe)->cause);
		s->good[cqe.slot] = 0;
		s->n_good_done++;
		rig_release(r, r->client, cqe.lease_id);
	}
	while (rig_reap(r, s->other, &cqe)) {
		/* What was cancelled holds the arena until it is fenced. */
		cr_assert(cqe.status == RY_OK || cqe.status == RY_ERR_CANCELLED || cqe.status == RY_ERR_BUDGET, "%u",
			cqe.status);
		s->bad[cqe.slot] = 0;
		if (cqe.status == RY_ERR_BUDGET) {
			s->n_bad--;
			continue;
		}
		s->n_bad_done++;
		s->n_cancelled += cqe.status == RY_ERR_CANCELLED;
		rig_release(r, s->other, cqe.lease_id);
	}
}

static void storm(const char *plan)
{
	struct storm s = {0};

	begin(&s.f, 3);
	s.other = rig_attach(&s.f.r, 32 * MIB);
	fault_plan(&s.f, 0, plan);
	for (uint64_t end_ns = s.f.r.now_ns + 20000 * MS; s.n_good_done + s.n_bad_done < N_GOOD + N_BAD;) {
		storm_submit(&s);
		storm_reap(&s);
		rig_step(&s.f.r);
		cr_assert_lt(s.f.r.now_ns, end_ns, "%u good, %u others, then nothing", s.n_good_done, s.n_bad_done);
	}
	cr_assert_gt(s.n_cancelled, 30u);
	cr_assert(rig_settle(&s.f.r));
	cr_assert(rig_detach(&s.f.r, s.other));
	end(&s.f);
}

Test(fault_failover, reads_survive_cancels_and_disconnects)
{
	storm("disconnect:at=1MiB,every=1MiB,repeat=10");
}

Test(fault_failover, reads_survive_cancels_and_lost_answers)
{
	storm("lose:n=5,every=10,repeat=forever,of=all");
}

Test(fault_failover, reads_survive_cancels_and_wrong_bytes)
{
	storm("corrupt:n=10,every=30,repeat=forever");
}
