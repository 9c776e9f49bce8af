/* SPDX-License-Identifier: BSD-3-Clause */
/* The breaker's tokened form, first part: every situation that its reference scenarios leave out. */
#include "rail_health_fixture.h"

/* Trips a pair and lets its cooldown pass. */
static struct rail_token trial(uint16_t p)
{
	trip(p);
	now += params.cooldown_secs * SEC;
	return ask_as(p, RAIL_TRIAL);
}

static struct rail_token probe(uint16_t p)
{
	trip(p);
	now += params.probe_interval_secs * SEC;
	return ask_as(p, RAIL_PROBE);
}

Test(rail_health, add_interval_zero_has_no_probes_and_one_trial)
{
	uint16_t p;

	start_with(3, 30, 0);
	p = pair(0, 0);
	trip(p);
	cr_assert_eq(rail_health_due_ns(&h, p), START + 30 * SEC);
	for (unsigned i = 0; i < 30; i++) {
		ask_as(p, RAIL_REFUSED);
		cr_assert_not(rail_health_wants_probe(&h, p, now));
		now += SEC;
	}
	ask_as(p, RAIL_TRIAL);
	ask_as(p, RAIL_REFUSED);
}

Test(rail_health, add_interval_longer_than_the_cooldown)
{
	uint16_t p;

	start_with(1, 2, 60);
	p = pair(0, 0);
	trip(p);
	cr_assert_eq(rail_health_due_ns(&h, p), now + 2 * SEC);
	now += 2 * SEC;
	ask_as(p, RAIL_TRIAL);
}

Test(rail_health, add_probe_spanning_expiry_succeeds)
{
	struct rail_token t;
	uint16_t p;

	start_with(1, 2, 1);
	p = pair(0, 0);
	rail_health_set_rtt(&h, p, 200 * MSEC);
	t = probe(p);
	now += 1500 * MSEC;
	cr_assert_eq(state(p), RAIL_EXPIRED);
	ask_as(p, RAIL_REFUSED);
	succeeds(t);
	cr_assert(available(p));
	cr_assert_eq(report(p).cooldown_ns, 0);
}

Test(rail_health, add_interval_ending_with_the_cooldown_gives_a_trial)
{
	uint16_t p;

	start_with(1, 1, 1);
	p = pair(0, 0);
	trip(p);
	cr_assert_eq(rail_health_due_ns(&h, p), now + SEC);
	now += SEC;
	ask_as(p, RAIL_TRIAL);
}

Test(rail_health, add_probe_spanning_expiry_fails)
{
	struct rail_token t;
	uint16_t p;

	start_with(1, 2, 1);
	p = pair(0, 0);
	rail_health_set_rtt(&h, p, 200 * MSEC);
	t = probe(p);
	now += 1500 * MSEC;
	ask_as(p, RAIL_REFUSED);
	fails(t);
	cr_assert_eq(state(p), RAIL_EXPIRED);
	cr_assert_eq(report(p).cooldown_ns, 2 * SEC, "no trial failed yet");
	ask_as(p, RAIL_TRIAL);
}

Test(rail_health, add_stale_failure_while_open)
{
	struct rail_token old, t;
	struct rail_breaker before;
	uint16_t p;

	start();
	p = pair(0, 0);
	old = ask_as(p, RAIL_NORMAL);
	t = probe(p);
	before = h.pairs[p];
	fails(old);
	cr_assert_eq(h.pairs[p].error_count, before.error_count + 1);
	cr_assert(h.pairs[p].is_probe_out, "the probe is still out");
	cr_assert_eq(h.pairs[p].resume_ns, before.resume_ns);
	cr_assert_eq(h.pairs[p].cooldown_ns, before.cooldown_ns);
	cr_assert_eq(report(p).n_failed, 0);
	succeeds(t);
	cr_assert(available(p));
}

Test(rail_health, add_stale_failure_while_half_open)
{
	struct rail_token old, t;
	uint16_t p;

	start();
	p = pair(0, 0);
	old = ask_as(p, RAIL_NORMAL);
	t = trial(p);
	fails(old);
	cr_assert_eq(h.pairs[p].error_count, 1, "the gap rule began anew");
	fails(old);
	cr_assert_eq(h.pairs[p].error_count, 2);
	cr_assert_eq(state(p), RAIL_HALF_OPEN);
	cr_assert_eq(report(p).cooldown_ns, 30 * SEC, "only the trial escalates");
	fails(t);
	cr_assert_eq(report(p).cooldown_ns, 60 * SEC);
	cr_assert_eq(state(p), RAIL_OPEN);
}

Test(rail_health, add_stale_success_while_open)
{
	struct rail_token old, t;
	uint16_t p;

	start();
	p = pair(0, 0);
	old = ask_as(p, RAIL_NORMAL);
	trip(p);
	succeeds(old);
	cr_assert_eq(state(p), RAIL_OPEN);
	now += SEC;
	t = ask_as(p, RAIL_PROBE);
	succeeds(old);
	cr_assert_eq(state(p), RAIL_OPEN);
	cr_assert(h.pairs[p].is_probe_out);
	succeeds(t);
	cr_assert(available(p));
}

Test(rail_health, add_stale_success_while_half_open)
{
	struct rail_token old;
	uint16_t p;

	start();
	p = pair(0, 0);
	old = ask_as(p, RAIL_NORMAL);
	trial(p);
	succeeds(old);
	cr_assert_eq(state(p), RAIL_HALF_OPEN);
	cr_assert_not(available(p));
}

Test(rail_health, add_stale_verdicts_after_the_close)
{
	struct rail_token old;
	uint16_t p;

	start_with(1, 30, 1);
	p = pair(0, 0);
	old = ask_as(p, RAIL_NORMAL);
	succeeds(probe(p));
	fails(old);
	cr_assert(available(p), "an operation of before the pause opens nothing");
	cr_assert_eq(h.pairs[p].error_count, 1);
	succeeds(old);
	cr_assert_eq(h.pairs[p].error_count, 1, "nor does it clear anything");
	succeeds(ask_as(p, RAIL_NORMAL));
	cr_assert_eq(h.pairs[p].error_count, 0);
}

/* Every way in which an armed attempt can end without having reached the wire. */
static void check_orphan(enum rail_grant kind)
{
	struct rail_token t;
	uint16_t p;

	start_with(1, 30, 1);
	p = pair(0, 0);
	t = kind == RAIL_TRIAL ? trial(p) : probe(p);
	ask_as(p, RAIL_REFUSED);
	rail_health_release(&h, t, now);
	cr_assert_not(h.pairs[p].is_probe_out);
	cr_assert_eq(h.n_leased, 0);
	cr_assert_eq(report(p).n_cancelled, 1);
	cr_assert_eq(report(p).cooldown_ns, 30 * SEC);
	rail_health_release(&h, t, now);
	cr_assert_eq(report(p).n_cancelled, 1, "once");
	now += SEC;
	t = ask_as(p, kind);
	succeeds(t);
	cr_assert(available(p), "not stranded");
}

Test(rail_health, add_orphan_unreachable_memory_arms_nothing)
{
	static struct rail_health before;
	uint16_t p;

	start();
	p = pair(0, 0);
	trip(p);
	now += SEC;
	before = h;
	cr_assert(rail_health_wants_probe(&h, p, now), "reachability is tested between this and ask");
	cr_assert_eq(memcmp(&before, &h, sizeof(h)), 0);
	ask_as(p, RAIL_PROBE);
	cr_assert_not(rail_health_wants_probe(&h, p, now));
}

Test(rail_health, add_orphan_probe_without_connection)
{
	check_orphan(RAIL_PROBE);
}

Test(rail_health, add_orphan_trial_whose_post_was_refused)
{
	check_orphan(RAIL_TRIAL);
}

Test(rail_health, add_orphan_trial_of_a_cancelled_read)
{
	struct rail_token first, second;
	uint16_t p;

	start_with(1, 30, 1);
	p = pair(0, 0);
	first = trial(p);
	rail_health_release(&h, first, now);
	second = ask_as(p, RAIL_TRIAL);
	rail_health_release(&h, first, now);
	succeeds(first);
	fails(first);
	cr_assert_eq(state(p), RAIL_HALF_OPEN, "the first one has no say in the second");
	succeeds(second);
	cr_assert(available(p));
}

Test(rail_health, add_orphan_tear_down)
{
	struct rail_token t;
	uint16_t p;

	start_with(1, 30, 1);
	p = pair(0, 0);
	t = trial(p);
	fault_on(t, RAIL_EV_FLUSH, 7);
	cr_assert_eq(state(p), RAIL_EXPIRED);
	t = ask_as(p, RAIL_TRIAL);
	fault_on(t, RAIL_EV_LOCAL, 7);
	cr_assert_eq(state(p), RAIL_EXPIRED);
	t = ask_as(p, RAIL_TRIAL);
	fault_on(t, RAIL_EV_PEER, 7);
	cr_assert_eq(state(p), RAIL_EXPIRED);
	cr_assert_eq(report(p).cooldown_ns, 30 * SEC, "none of them was the path's fault");
	cr_assert_eq(h.n_leased, 0);
}

Test(rail_health, add_lease_of_a_probe_expires)
{
	struct rail_token t;
	uint16_t p;

	start();
	p = pair(0, 0);
	t = probe(p);
	cr_assert_eq(rail_health_due_ns(&h, p), now + SEC);
	now += SEC - 1;
	cr_assert_eq(rail_health_expire(&h, now), 0);
	ask_as(p, RAIL_REFUSED);
	now += 1;
	cr_assert_eq(rail_health_expire(&h, now), 1);
	cr_assert_eq(rail_health_expire(&h, now), 0);
	cr_assert_eq(report(p).n_expired, 1);
	cr_assert_eq(report(p).n_failed, 0);
	cr_assert_eq(report(p).last_status, RY_ERR_TIMEOUT);
	cr_assert_eq(report(p).cooldown_ns, 30 * SEC);
	succeeds(t);
	cr_assert_eq(state(p), RAIL_OPEN, "too late");
	succeeds(ask_as(p, RAIL_PROBE));
	cr_assert(available(p));
}

Test(rail_health, add_lease_of_a_trial_expires)
{
	struct rail_token t;
	uint16_t p;

	start();
	p = pair(0, 0);
	t = trial(p);
	now += SEC;
	succeeds(t);
	cr_assert_eq(state(p), RAIL_OPEN, "late, although nobody had looked at the lease yet");
	cr_assert_eq(report(p).cooldown_ns, 60 * SEC);
	cr_assert_eq(report(p).n_expired, 1);
	now += SEC;
	ask_as(p, RAIL_PROBE);
}

Test(rail_health, add_lease_that_expired_cannot_be_cancelled)
{
	struct rail_token t;
	uint16_t p;

	start();
	p = pair(0, 0);
	t = trial(p);
	now += SEC;
	rail_health_release(&h, t, now);
	cr_assert_eq(report(p).n_expired, 1);
	cr_assert_eq(report(p).n_cancelled, 0);
	cr_assert_eq(report(p).cooldown_ns, 60 * SEC);
}

Test(rail_health, add_lease_is_settled_by_the_next_question)
{
	uint16_t p;

	start_with(1, 30, 0);
	p = pair(0, 0);
	trial(p);
	now += 2 * SEC;
	ask_as(p, RAIL_REFUSED);
	cr_assert_eq(state(p), RAIL_OPEN);
	now += 60 * SEC;
	ask_as(p, RAIL_TRIAL);
}

Test(rail_health, add_lease_follows_a_long_round_trip)
{
	uint16_t p;

	start();
	p = pair(0, 0);
	rail_health_set_rtt(&h, p, 100 * MSEC);
	probe(p);
	cr_assert_eq(rail_health_due_ns(&h, p), now + SEC);
	now += SEC;
	rail_health_expire(&h, now);
	rail_health_set_rtt(&h, p, 101 * MSEC);
	ask_as(p, RAIL_PROBE);
	cr_assert_eq(rail_health_due_ns(&h, p), now + 1010 * MSEC);
}

Test(rail_health, add_clock_stands_still)
{
	uint16_t p;

	start();
	p = pair(0, 0);
	trip(p);
	for (unsigned i = 0; i < 1000; i++) {
		ask_as(p, RAIL_REFUSED);
		cr_assert_not(admit(p));
	}
	now += SEC;
	ask_as(p, RAIL_PROBE);
	for (unsigned i = 0; i < 1000; i++) {
		ask_as(p, RAIL_REFUSED);
		cr_assert_eq(rail_health_expire(&h, now), 0);
	}
	cr_assert_eq(report(p).n_sent, 1);
}

Test(rail_health, add_clock_jumps_back)
{
	uint16_t p;

	start();
	p = pair(0, 0);
	fails(ask_as(p, RAIL_NORMAL));
	now -= 500 * SEC;
	fails(ask_as(p, RAIL_NORMAL));
	fails(ask_as(p, RAIL_NORMAL));
	cr_assert_not(available(p), "no time has passed: inside the window");
	now -= 400 * SEC;
	ask_as(p, RAIL_REFUSED);
	cr_assert_eq(state(p), RAIL_OPEN);
	cr_assert_eq(report(p).in_state_ns[RAIL_OPEN], 0);
	now += 401 * SEC;
	succeeds(ask_as(p, RAIL_PROBE));
	cr_assert(available(p));
}

Test(rail_health, add_clock_jumps_ahead)
{
	struct rail_token t;
	uint16_t p;

	start();
	p = pair(0, 0);
	t = probe(p);
	now += 100000 * SEC;
	cr_assert_eq(rail_health_expire(&h, now), 1);
	cr_assert_eq(report(p).cooldown_ns, 30 * SEC, "a jump escalates nothing");
	t = ask_as(p, RAIL_TRIAL);
	succeeds(t);
	now = UINT64_MAX - SEC;
	trip(p);
	cr_assert_eq(state(p), RAIL_OPEN, "a pause does not wrap round the end of time");
	ask_as(p, RAIL_REFUSED);
	now = UINT64_MAX;
	ask_as(p, RAIL_TRIAL);
}

Test(rail_health, add_full_sequence_of_pauses)
{
	static const uint32_t pauses[] = {30, 60, 120, 240, 300, 300, 300};
	uint16_t p;

	start();
	p = pair(0, 0);
	trip(p);
	for (size_t i = 0; i < sizeof(pauses) / sizeof(pauses[0]); i++) {
		cr_assert_eq(report(p).cooldown_left_ns, pauses[i] * SEC);
		for (uint32_t s = 1; s < pauses[i]; s++) {
			now += SEC;
			fails(ask_as(p, RAIL_PROBE));
		}
		now += SEC - 1;
		cr_assert_eq(state(p), RAIL_OPEN);
		now += 1;
		fails(ask_as(p, RAIL_TRIAL));
	}
	cr_assert_eq(report(p).n_trips, 1);
	now += 300 * SEC;
	succeeds(ask_as(p, RAIL_TRIAL));
	now += 11 * SEC;
	trip(p);
	cr_assert_eq(report(p).cooldown_left_ns, 30 * SEC);
}

Test(rail_health, add_config_limits)
{
	static const struct {
		size_t field;
		const char *key;
		uint32_t value;
		int rc;
	} rows[] = {
#define ROW(key, value, rc) {offsetof(struct rail_health_params, key), #key, value, rc}
		ROW(error_threshold, 0, -EINVAL),
		ROW(error_threshold, 1, 0),
		ROW(error_threshold, UINT32_MAX, 0),
		ROW(error_window_secs, 0, -EINVAL),
		ROW(error_window_secs, 1, 0),
		ROW(error_window_secs, UINT32_MAX, 0),
		ROW(cooldown_secs, 0, -EINVAL),
		ROW(cooldown_secs, 1, 0),
		ROW(cooldown_secs, 300, 0),
		ROW(cooldown_secs, 301, -EINVAL),
		ROW(probe_interval_secs, 0, 0),
		ROW(probe_interval_secs, UINT32_MAX, 0),
		ROW(flap_secs, 0, 0),
		ROW(flap_secs, UINT32_MAX, 0),
#undef ROW
	};

	start();
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct rail_health_params p;

		rail_health_default_params(&p);
		memcpy((char *)&p + rows[i].field, &rows[i].value, sizeof(rows[i].value));
		error.text[0] = 0;
		cr_assert_eq(rail_health_set_params(&h, &p, &error), rows[i].rc, "%s %u", rows[i].key, rows[i].value);
		cr_assert_eq(!!strstr(error.text, rows[i].key), rows[i].rc != 0, "%s", error.text);
		if (rows[i].rc)
			cr_assert_neq(memcmp(&h.params, &p, sizeof(p)), 0, "a refused value is not used");
	}
	rail_health_default_params(&params);
	cr_assert_eq(params.error_threshold, 3);
	cr_assert_eq(params.error_window_secs, 10);
	cr_assert_eq(params.cooldown_secs, 30);
	cr_assert_eq(params.probe_interval_secs, 1);
	cr_assert_eq(params.flap_secs, 10);
}

Test(rail_health, add_layout_change_with_a_probe_out)
{
	struct rail_map_layout less = plain;
	struct rail_token stays, goes;
	uint16_t p, q;

	start_with(1, 30, 1);
	p = pair(0, 1);
	q = pair(1, 1);
	trip(p);
	trip(q);
	now += SEC;
	stays = ask_as(p, RAIL_PROBE);
	goes = ask_as(q, RAIL_PROBE);
	less.n_locals = 1;
	cr_assert_eq(rail_health_relayout(&h, &less, now, &error), 0);
	cr_assert_eq(pair(0, 1), p, "a pair keeps its number");
	cr_assert_eq(h.n_leased, 1);
	ask_as(p, RAIL_REFUSED);
	ask_as(q, RAIL_REFUSED);
	succeeds(goes);
	cr_assert_not(available(q));
	succeeds(stays);
	cr_assert(available(p));
	cr_assert_eq(rail_health_relayout(&h, &plain, now, &error), 0);
	cr_assert(available(pair(1, 1)), "what comes back starts clean");
	fails(goes);
	cr_assert_eq(h.pairs[pair(1, 1)].error_count, 0, "and is not touched by an old token");
}

Test(rail_health, add_healed_pair_with_healthy_siblings)
{
	uint64_t healed;
	uint16_t p;

	start();
	p = pair(0, 0);
	trip(p);
	/* Dead for five minutes under probes, then healed between two of them; siblings carry all traffic. */
	while (now < START + 300 * SEC) {
		struct rail_token t = ask(p);

		if (t.kind == RAIL_PROBE || t.kind == RAIL_TRIAL)
			fails(t);
		succeeds(ask_as(pair(0, 1), RAIL_NORMAL));
		now += 100 * MSEC;
	}
	healed = now;
	while (!available(p)) {
		if (now >= rail_health_due_ns(&h, p))
			succeeds(ask(p));
		succeeds(ask_as(pair(0, 1), RAIL_NORMAL));
		now += 10 * MSEC;
		cr_assert_leq(now - healed, SEC + 20 * MSEC, "one interval, whatever traffic there is");
	}
	cr_assert_eq(best(0, 0), p);
}

Test(rail_health, add_all_pairs_paused)
{
	struct rail_token t;

	start_with(1, 30, 1);
	for (uint16_t l = 0; l < 2; l++) {
		trip(pair(l, 0));
		trip(pair(l, 1));
	}
	cr_assert_eq(best(0, 0), pair(0, 0), "the choice stands, so that it can be probed");
	cr_assert_eq(best(1, 0), pair(1, 1));
	now += SEC;
	t = ask_as(best(0, 0), RAIL_PROBE);
	succeeds(ask_as(pair(0, 1), RAIL_PROBE));
	cr_assert_eq(best(0, 0), pair(0, 1), "any usable one before a paused one");
	succeeds(t);
	cr_assert_eq(best(0, 0), pair(0, 0));
}

Test(rail_health, add_cancelled_open_probe_stays_throttled)
{
	uint16_t p;

	start();
	p = pair(0, 0);
	rail_health_release(&h, probe(p), now);
	ask_as(p, RAIL_REFUSED);
	now += SEC - 1;
	ask_as(p, RAIL_REFUSED);
	now += 1;
	cr_assert(admit(p));
	rail_health_cancel_probe(&h, p, now);
	cr_assert_not(admit(p));
}
