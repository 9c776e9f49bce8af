/* SPDX-License-Identifier: BSD-3-Clause */
/* The breaker's tokened form, second part: tokens, leases, flap damping, evidence, layouts, and what operators see. */
#include "rail_health_fixture.h"

static struct rail_token probe(uint16_t p)
{
	trip(p);
	now += params.probe_interval_secs * SEC;
	return ask_as(p, RAIL_PROBE);
}

Test(rail_health, ours_1_only_the_matching_token_settles)
{
	struct rail_token t, forged;
	uint16_t p;

	start();
	p = pair(0, 0);
	t = probe(p);
	for (int d = -4; d <= 4; d++) {
		forged = t;
		forged.epoch += (uint32_t)d;
		for (uint8_t kind = RAIL_REFUSED; kind <= RAIL_TRIAL; kind++) {
			forged.kind = kind;
			if (!d && kind == RAIL_PROBE)
				continue;
			succeeds(forged);
			fails(forged);
			rail_health_release(&h, forged, now);
			cr_assert(h.pairs[p].is_probe_out, "epoch %+d kind %u", d, kind);
			cr_assert_eq(state(p), RAIL_OPEN);
		}
	}
	forged = t;
	forged.pair_idx = pair(0, 1);
	succeeds(forged);
	cr_assert_eq(state(p), RAIL_OPEN, "another pair's");
	succeeds(t);
	cr_assert(available(p));
}

Test(rail_health, ours_1_a_trial_is_settled_once)
{
	struct rail_token t;
	uint16_t p;

	start_with(1, 30, 0);
	p = pair(0, 0);
	trip(p);
	now += 30 * SEC;
	t = ask_as(p, RAIL_TRIAL);
	fails(t);
	fails(t);
	succeeds(t);
	cr_assert_eq(state(p), RAIL_OPEN);
	cr_assert_eq(report(p).cooldown_ns, 60 * SEC);
	cr_assert_eq(report(p).n_failed, 1);
}

Test(rail_health, ours_1_a_probe_token_is_not_the_trials)
{
	struct rail_token old, t;
	uint16_t p;

	start_with(1, 2, 1);
	p = pair(0, 0);
	old = probe(p);
	fails(old);
	now += SEC;
	t = ask_as(p, RAIL_TRIAL);
	succeeds(old);
	fails(old);
	cr_assert_eq(state(p), RAIL_HALF_OPEN);
	succeeds(t);
	cr_assert(available(p));
}

Test(rail_health, ours_1_a_refused_token_says_nothing)
{
	struct rail_token t;
	uint16_t p;

	start();
	p = pair(0, 0);
	trip(p);
	t = ask_as(p, RAIL_REFUSED);
	fails(t);
	succeeds(t);
	cr_assert_eq(h.pairs[p].error_count, 3);
	cr_assert_eq(state(p), RAIL_OPEN);
}

Test(rail_health, ours_2_every_attempt_ends)
{
	uint16_t p;

	start_with(1, 30, 1);
	p = pair(0, 0);
	trip(p);
	/* Nothing ever answers and nothing is ever told: the machine still goes on by itself. */
	for (unsigned i = 0; i < 2000; i++) {
		uint64_t due = rail_health_due_ns(&h, p);

		cr_assert_leq(due, now + 2 * SEC, "something is always due soon");
		now = due > now ? due : now;
		rail_health_expire(&h, now);
		ask(p);
	}
	cr_assert_eq(report(p).n_sent, report(p).n_expired + 1);
	cr_assert_eq(report(p).cooldown_ns, 300 * SEC);
}

Test(rail_health, ours_3_flap_damping_silences_probes)
{
	uint16_t p;

	start_with(1, 30, 1);
	p = pair(0, 0);
	succeeds(probe(p));
	now += 10 * SEC;
	trip(p);
	cr_assert(report(p).is_damped);
	cr_assert_eq(rail_health_due_ns(&h, p), now + 30 * SEC);
	now += 29 * SEC;
	ask_as(p, RAIL_REFUSED);
	now += SEC;
	succeeds(ask_as(p, RAIL_TRIAL));
	cr_assert_not(report(p).is_damped);
}

Test(rail_health, ours_3_flap_damping_keeps_the_cooldown)
{
	uint16_t p;

	start_with(1, 30, 0);
	p = pair(0, 0);
	trip(p);
	now += 30 * SEC;
	fails(ask_as(p, RAIL_TRIAL));
	now += 60 * SEC;
	succeeds(ask_as(p, RAIL_TRIAL));
	now += SEC;
	trip(p);
	cr_assert_eq(report(p).cooldown_left_ns, 60 * SEC, "kept, not reset");
	now += 60 * SEC;
	succeeds(ask_as(p, RAIL_TRIAL));
	trip(p);
	cr_assert_eq(report(p).cooldown_left_ns, 60 * SEC, "nor doubled: only a failed trial does that");
}

Test(rail_health, ours_3_flap_damping_ends)
{
	uint16_t p;

	start_with(1, 30, 1);
	p = pair(0, 0);
	succeeds(probe(p));
	now += 10 * SEC + 1;
	trip(p);
	cr_assert_not(report(p).is_damped, "later than that is another outage");
	now += SEC;
	succeeds(ask_as(p, RAIL_PROBE));
	trip(p);
	cr_assert(report(p).is_damped);
	now += 30 * SEC;
	fails(ask_as(p, RAIL_TRIAL));
	now += SEC;
	ask_as(p, RAIL_PROBE);
}

Test(rail_health, ours_3_flap_damping_needs_a_close)
{
	uint16_t p;

	now = 5 * SEC;
	start_with(1, 30, 1);
	p = pair(0, 0);
	trip(p);
	cr_assert_not(report(p).is_damped, "a machine that has just booted has not closed anything");
	now += SEC;
	succeeds(ask_as(p, RAIL_PROBE));
	trip(p);
	cr_assert(report(p).is_damped);
	recover(p);
	trip(p);
	cr_assert_not(report(p).is_damped, "closed by hand");
}

Test(rail_health, ours_3_flap_damping_is_outside_the_plain_machine)
{
	uint16_t p;

	start_with(1, 30, 1);
	p = pair(0, 0);
	for (unsigned i = 0; i < 3; i++) {
		fail_times(p, 1);
		cr_assert_not(report(p).is_damped);
		now += SEC;
		cr_assert(admit(p));
		recover(p);
	}
	params.flap_secs = 0;
	cr_assert_eq(rail_health_set_params(&h, &params, &error), 0);
	succeeds(probe(p));
	trip(p);
	cr_assert_not(report(p).is_damped, "0 switches it off");
}

Test(rail_health, ours_4_evidence_once_per_connection)
{
	struct rail_token t[8];
	uint16_t p;

	start();
	p = pair(0, 0);
	for (uint32_t connection = 1; connection <= 3; connection++) {
		cr_assert(available(p));
		for (unsigned i = 0; i < 8; i++)
			t[i] = ask_as(p, RAIL_NORMAL);
		for (unsigned i = 0; i < 8; i++)
			fault_on(t[i], RAIL_EV_PATH, connection);
		cr_assert_eq(h.pairs[p].error_count, connection);
	}
	cr_assert_not(available(p));
	cr_assert_eq(report(p).n_trips, 1);
}

Test(rail_health, ours_4_a_probe_settles_on_a_connection_that_has_told)
{
	uint16_t p;

	start_with(1, 30, 0);
	p = pair(0, 0);
	fault_on(ask_as(p, RAIL_NORMAL), RAIL_EV_PATH, 9);
	cr_assert_not(available(p));
	now += 30 * SEC;
	fault_on(ask_as(p, RAIL_TRIAL), RAIL_EV_PATH, 9);
	cr_assert_eq(state(p), RAIL_OPEN);
	cr_assert_eq(report(p).cooldown_ns, 60 * SEC);
}

Test(rail_health, ours_4_failed_connects_count_each)
{
	uint16_t p;

	start();
	p = pair(0, 0);
	for (unsigned i = 0; i < 3; i++) {
		cr_assert(available(p));
		fault_on(ask_as(p, RAIL_NORMAL), RAIL_EV_PATH, 0);
	}
	cr_assert_not(available(p));
}

Test(rail_health, ours_4_other_classes_do_not_feed_the_pair)
{
	static const enum rail_evidence others[] = {RAIL_EV_NONE, RAIL_EV_LOCAL, RAIL_EV_PEER, RAIL_EV_FLUSH};
	struct rail_breaker before;
	uint16_t p;

	start_with(1, 30, 1);
	p = pair(0, 0);
	before = h.pairs[p];
	for (uint32_t i = 0; i < 4; i++) {
		fault_on(ask_as(p, RAIL_NORMAL), others[i], 5);
		cr_assert(available(p), "class %u", others[i]);
		cr_assert_eq(h.pairs[p].error_count, 0);
		cr_assert_eq(
			memcmp(&before, &h.pairs[p], offsetof(struct rail_breaker, n_trips)), 0, "class %u", others[i]);
	}
	fault_on(ask_as(p, RAIL_NORMAL), RAIL_EV_NONE, 5);
	cr_assert_eq(report(p).last_evidence, RAIL_EV_PEER, "a flush is not an error of its own");
	fault_on(ask_as(p, RAIL_NORMAL), RAIL_EV_PATH, 5);
	cr_assert_not(available(p), "and they do not use the connection's one vote up");
}

Test(rail_health, ours_6_layout_change_keeps_what_stays)
{
	struct rail_map_end three[] = {{.name = "new"}, {.name = "mlx5_1"}, {.name = "mlx5_0"}};
	struct rail_map_layout other = {.n_locals = 3, .locals = three, .n_peers = 1, .peers = one_peer};
	uint16_t p, q, from_0, from_1;

	start();
	p = pair(0, 1);
	q = pair(1, 0);
	trip(p);
	fails(ask_as(q, RAIL_NORMAL));
	cr_assert_eq(rail_health_relayout(&h, &other, now, &error), 0, "%s", error.text);
	from_0 = rail_map_find(rail_health_map(&h), "mlx5_0", "store", "mlx5_1");
	from_1 = rail_map_find(rail_health_map(&h), "mlx5_1", "store", "mlx5_0");
	cr_assert_eq(from_0, p);
	cr_assert_eq(from_1, q);
	cr_assert_not(available(p));
	cr_assert_eq(h.pairs[q].error_count, 1);
	cr_assert_eq(pair(2, 1), p, "found by its new place");
	cr_assert_eq(best(2, 0), pair(2, 0));
	cr_assert(available(pair(0, 0)) && available(pair(0, 1)));
}

Test(rail_health, ours_6_epochs_of_the_others_move)
{
	struct rail_map_end renamed[] = {{.name = "mlx5_0"}, {.name = "mlx5_7"}};
	struct rail_map_layout other = {.n_locals = 2, .locals = renamed, .n_peers = 1, .peers = one_peer};
	struct rail_token kept, gone;
	uint16_t p, q;

	start_with(1, 30, 1);
	p = pair(0, 0);
	q = pair(1, 0);
	kept = ask_as(p, RAIL_NORMAL);
	gone = ask_as(q, RAIL_NORMAL);
	cr_assert_eq(rail_health_relayout(&h, &other, now, &error), 0);
	cr_assert_eq(pair(1, 0), q, "the number goes to another pair");
	cr_assert_eq(ask(p).epoch, kept.epoch);
	cr_assert_neq(ask(q).epoch, gone.epoch);
	fails(gone);
	cr_assert(available(q));
	cr_assert_eq(h.pairs[q].error_count, 0);
	cr_assert_eq(report(q).last_fault_ns, 0);
	fails(kept);
	cr_assert_not(available(p));
}

Test(rail_health, ours_6_a_refused_layout_changes_nothing)
{
	struct rail_map_end same[] = {{.name = "mlx5_0"}, {.name = "mlx5_0"}};
	struct rail_map_layout bad = plain;
	uint16_t p;

	start();
	p = pair(0, 0);
	fail_times(p, 3);
	bad.locals = same;
	cr_assert_eq(rail_health_relayout(&h, &bad, now, &error), -EINVAL);
	cr_assert(strstr(error.text, "mlx5_0"), "%s", error.text);
	cr_assert_eq(pair(0, 0), p);
	cr_assert_eq(best(0, 0), pair(0, 1));
	recover(p);
	cr_assert_eq(best(0, 0), p);
}

Test(rail_health, healthy_completions_write_nothing)
{
	static struct rail_health before;
	uint16_t p;

	start();
	p = pair(0, 0);
	succeeds(probe(p));
	before = h;
	for (unsigned i = 0; i < 1000; i++) {
		struct rail_token t = ask_as(p, RAIL_NORMAL);

		now += MSEC;
		succeeds(t);
		cr_assert(admit(p));
		recover(p);
		rail_health_release(&h, t, now);
		rail_health_cancel_probe(&h, p, now);
		rail_health_expire(&h, now);
		cr_assert(available(p));
	}
	cr_assert_eq(memcmp(&before, &h, sizeof(h)), 0);
}

Test(rail_health, is_available_never_mutates)
{
	static struct rail_health before;
	uint16_t p;

	start();
	p = pair(0, 0);
	trip(p);
	now += 100 * SEC;
	before = h;
	for (unsigned i = 0; i < PAIRS_MAX; i++)
		available((uint16_t)i);
	best(0, 0);
	report(p);
	rail_health_due_ns(&h, p);
	cr_assert_eq(memcmp(&before, &h, sizeof(h)), 0);
}

Test(rail_health, operators_see_counters_and_times)
{
	struct rail_health_report r;
	struct rail_token t;
	uint16_t p;

	start_with(1, 30, 1);
	p = pair(0, 0);
	now += 5 * SEC;
	trip(p);
	now += SEC;
	fails(ask_as(p, RAIL_PROBE));
	now += SEC;
	rail_health_release(&h, ask_as(p, RAIL_PROBE), now);
	now += SEC;
	ask_as(p, RAIL_PROBE);
	now += SEC;
	rail_health_expire(&h, now);
	r = report(p);
	cr_assert_eq(r.cooldown_left_ns, 26 * SEC);
	cr_assert_eq(r.in_state_ns[RAIL_OPEN], 4 * SEC);
	now += 30 * SEC;
	t = ask_as(p, RAIL_TRIAL);
	now += 500 * MSEC;
	r = report(p);
	cr_assert_eq(r.state, RAIL_HALF_OPEN);
	cr_assert_eq(r.in_state_ns[RAIL_CLOSED], 5 * SEC);
	cr_assert_eq(r.in_state_ns[RAIL_OPEN], 30 * SEC);
	cr_assert_eq(r.in_state_ns[RAIL_EXPIRED], 4 * SEC);
	cr_assert_eq(r.in_state_ns[RAIL_HALF_OPEN], 500 * MSEC);
	cr_assert_eq(r.n_trips, 1);
	cr_assert_eq(r.n_sent, 4);
	cr_assert_eq(r.n_failed, 1);
	cr_assert_eq(r.n_cancelled, 1);
	cr_assert_eq(r.n_expired, 1);
	cr_assert_eq(r.n_ok, 0);
	cr_assert_eq(r.last_status, RY_ERR_TIMEOUT);
	cr_assert_eq(r.last_evidence, RAIL_EV_PATH);
	cr_assert_eq(r.last_transition_ns, now - 500 * MSEC);
	cr_assert(r.is_probe_out);
	rail_health_release(&h, t, now);
	now += 3 * SEC;
	r = report(p);
	cr_assert_eq(r.in_state_ns[RAIL_EXPIRED], 7 * SEC, "since it was cancelled, not since the pause ended");
	cr_assert_eq(r.in_state_ns[RAIL_OPEN], 30 * SEC);
}

static void expect(uint16_t p, enum rail_state from, enum rail_state to, uint64_t at)
{
	struct rail_transition t;
	uint32_t n_lost = 99;

	cr_assert(rail_health_next_transition(&h, &t, &n_lost));
	cr_assert_eq(n_lost, 0);
	cr_assert_eq(t.pair_idx, p);
	cr_assert_eq(t.from, from, "from %s", rail_state_name((enum rail_state)t.from));
	cr_assert_eq(t.to, to, "to %s", rail_state_name((enum rail_state)t.to));
	cr_assert_eq(t.at_ns, at);
}

Test(rail_health, operators_get_one_record_per_transition)
{
	struct rail_transition t;
	struct rail_token token;
	uint32_t n_lost;
	uint16_t p;

	start_with(1, 30, 0);
	p = pair(1, 0);
	cr_assert_not(rail_health_next_transition(&h, &t, &n_lost));
	trip(p);
	fails(ask_as(pair(1, 0), RAIL_REFUSED));
	expect(p, RAIL_CLOSED, RAIL_OPEN, now);
	now += 30 * SEC;
	token = ask_as(p, RAIL_TRIAL);
	expect(p, RAIL_EXPIRED, RAIL_HALF_OPEN, now);
	rail_health_release(&h, token, now);
	expect(p, RAIL_HALF_OPEN, RAIL_EXPIRED, now);
	token = ask_as(p, RAIL_TRIAL);
	expect(p, RAIL_EXPIRED, RAIL_HALF_OPEN, now);
	fails(token);
	expect(p, RAIL_HALF_OPEN, RAIL_OPEN, now);
	now += 60 * SEC;
	succeeds(ask_as(p, RAIL_TRIAL));
	expect(p, RAIL_EXPIRED, RAIL_HALF_OPEN, now);
	expect(p, RAIL_HALF_OPEN, RAIL_CLOSED, now);
	cr_assert_not(rail_health_next_transition(&h, &t, &n_lost));
}

Test(rail_health, operators_are_told_how_many_records_were_lost)
{
	struct rail_transition t;
	uint32_t n_lost = 0, n = 0;
	uint16_t p;

	start_with(1, 30, 0);
	p = pair(0, 0);
	for (unsigned i = 0; i < 50; i++) {
		fail_times(p, 1);
		now += SEC;
		recover(p);
	}
	cr_assert(rail_health_next_transition(&h, &t, &n_lost));
	cr_assert_eq(n_lost, 100 - RAIL_TRANSITIONS_KEPT);
	cr_assert_eq(t.n_trips, 19);
	for (n = 1; rail_health_next_transition(&h, &t, &n_lost); n++)
		cr_assert_eq(n_lost, 0);
	cr_assert_eq(n, RAIL_TRANSITIONS_KEPT);
}

struct walk {
	unsigned seed;
	unsigned n_kept;
	struct rail_token kept[64];
};

static void walk_ask(struct walk *w)
{
	uint16_t p = pair((uint16_t)(random() % 2), (uint16_t)(random() % 2));
	struct rail_breaker before = h.pairs[p];
	struct rail_token t = ask(p);

	cr_assert_eq(t.kind == RAIL_NORMAL, available(p), "seed %u", w->seed);
	if (t.kind == RAIL_PROBE || t.kind == RAIL_TRIAL)
		cr_assert(!before.is_probe_out || h.pairs[p].n_expired > before.n_expired, "two out, seed %u", w->seed);
	w->kept[w->n_kept < 64 ? w->n_kept++ : (unsigned)random() % 64] = t;
}

static void walk_settle(struct walk *w)
{
	struct rail_token t = w->kept[(unsigned)random() % w->n_kept];
	struct rail_breaker before = h.pairs[t.pair_idx], *p = &h.pairs[t.pair_idx];
	bool is_its = before.is_half_open && t.kind == RAIL_TRIAL && t.epoch == before.epoch;
	int what = (int)(random() % 3);

	if (what == 0)
		succeeds(t);
	else if (what == 1)
		fault_on(t, (enum rail_evidence)(random() % 5), (uint32_t)random() % 4);
	else
		rail_health_release(&h, t, now);
	if (before.is_half_open && !p->resume_ns)
		cr_assert(is_its, "closed by a stranger, seed %u", w->seed);
	if (before.cooldown_ns && p->cooldown_ns > before.cooldown_ns)
		cr_assert(before.is_half_open && (p->n_expired > before.n_expired || (is_its && what == 1)),
			"escalated without a failed trial, seed %u", w->seed);
	cr_assert(!p->is_half_open || p->is_probe_out, "stranded, seed %u", w->seed);
	cr_assert(!p->is_probe_out || p->lease_end_ns, "no lease, seed %u", w->seed);
}

/* A random walk over every call, against the promises of the machine. */
Test(rail_health, random_walk_keeps_the_promises)
{
	struct walk w = {.seed = (unsigned)time(NULL)};

	srandom(w.seed);
	start_with(2, 2, 1);
	for (unsigned i = 0; i < 200000; i++) {
		now += (uint64_t)(random() % 300) * MSEC;
		if (!w.n_kept || random() % 3 == 0)
			walk_ask(&w);
		else
			walk_settle(&w);
	}
	/* Whatever came before: a pair that answers is back within an interval and a lease, or at its expiry when it is
	 * damped. */
	for (uint16_t p = 0; p < 4; p++) {
		uint64_t limit = now + 2 * SEC;

		if (h.pairs[p].is_damped && h.pairs[p].resume_ns > now)
			limit += h.pairs[p].resume_ns - now;
		while (!available(p)) {
			now += 100 * MSEC;
			succeeds(ask(p));
			cr_assert_leq(now, limit + 200 * MSEC, "stranded, seed %u", w.seed);
		}
	}
}
