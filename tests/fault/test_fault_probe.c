/* SPDX-License-Identifier: BSD-3-Clause */
/* Probes and the breaker in a whole node: rails that pass probes and fail data, PINGs that never reach the wire, leases
 * over long ways. */
#include <criterion/criterion.h>

#include "fault_rig.h"
#include "hot/rail.h"
#include "read/control_priv.h"

#define BAD 1

static const struct rail_breaker *breaker(struct fault_rig *f, uint16_t rail)
{
	const struct health *h = &f->r.node->control->health;

	return &h->breakers.pairs[health_breaker(h, 0, rail, rail)];
}

/* ---- Probes pass and data fails ---- */

/* Each connection is proven and then fails its data: that adds up, opens the pair, and the second time damps it. */
static void opens_and_is_damped(const char *plan)
{
	unsigned n_slow = 0, n_fast = 0;
	const struct rail_breaker *b;
	struct fault_rig f;
	uint64_t end_ns;

	fault_init(&f, 3);
	f.r.step_ns = MS / 10;
	f.r.config.health.cooldown_secs = 30;
	f.r.config.health.flap_secs = 10;
	fault_start(&f);
	b = breaker(&f, BAD);
	fault_plan(&f, BAD, plan);
	for (end_ns = f.r.now_ns + 25000 * MS; f.r.now_ns < end_ns;) {
		uint64_t from_ns = f.r.now_ns;

		cr_assert_eq(fault_read(&f, "large", RY_F_FAILOVER, 10000), RY_OK, "%s", fault_cause(&f));
		if (f.r.now_ns - from_ns > 100 * MS)
			n_slow++;
		else
			n_fast++;
		rig_run(&f.r, 100 * MS);
	}
	cr_assert(b->n_trips == 2 && b->is_damped, "%s: %u trips", plan, b->n_trips);
	cr_assert(b->n_sent == 1 && b->n_ok == 1, "%s: one probe closed it, damped it gets none", plan);
	cr_assert_leq(n_slow, 2 * f.r.config.health.error_threshold, "%s", plan);
	cr_assert_geq(n_fast, 80u, "%s: %u", plan, n_fast);
	fault_plan(&f, BAD, "");
	rig_run(&f.r, b->resume_ns + 1000 * MS - f.r.now_ns);
	cr_assert(!b->resume_ns && b->n_sent == 2, "%s: the trial brings it back", plan);
	fault_over(&f);
	fault_stop(&f);
}

Test(fault_probe, answers_to_data_are_lost)
{
	opens_and_is_damped("lose:repeat=forever,of=answers");
}

Test(fault_probe, requests_for_data_are_lost)
{
	opens_and_is_damped("lose:repeat=forever,of=requests");
}

/* Some data comes on every connection before it breaks. */
Test(fault_probe, every_connection_breaks_after_three_answers)
{
	opens_and_is_damped("error:n=3,every=3,repeat=forever,class=retry");
}

/* A connection that carried data for a while was a success, and the count starts anew; a PING alone was none. */
Test(fault_probe, data_that_comes_clears_the_count)
{
	const struct rail_breaker *b;
	struct fault_rig f;

	fault_init(&f, 3);
	fault_start(&f);
	b = breaker(&f, BAD);
	for (uint32_t i = 1; i <= 2; i++) {
		fault_plan(&f, BAD, "error:at=100KiB,class=retry");
		cr_assert_eq(fault_read(&f, "large", RY_F_FAILOVER, 3000), RY_OK, "%s", fault_cause(&f));
		rig_run(&f.r, 100 * MS);
		cr_assert(health_is_available(
			&f.r.node->control->health, f.r.node->control->peers[0].by_rail[BAD].pair->idx));
		cr_assert_eq(b->error_count, i, "it is proven, and nothing forgotten");
	}
	for (int i = 0; i < 40; i++)
		cr_assert_eq(fault_read(&f, "large", 0, 1000), RY_OK, "%s", fault_cause(&f));
	cr_assert_eq(b->error_count, 0u);
	fault_plan(&f, BAD, "error:at=100KiB,class=retry");
	cr_assert_eq(fault_read(&f, "large", RY_F_FAILOVER, 3000), RY_OK, "%s", fault_cause(&f));
	cr_assert(b->error_count == 1 && !b->n_trips);
	fault_over(&f);
	fault_stop(&f);
}

/* ---- Probes that never reach the wire ---- */

/* Opens the pair by a broken QP and waits until it is connected again, just before its first probe or its trial. */
static void open_and_connect(struct fault_rig *f, uint32_t interval_secs)
{
	fault_init(f, 3);
	f->r.config.health.error_threshold = 1;
	f->r.config.health.probe_interval_secs = interval_secs;
	fault_start(f);
	fault_plan(f, BAD, "error:at=100KiB,class=retry");
	cr_assert_eq(fault_read(f, "large", RY_F_FAILOVER, 3000), RY_OK, "%s", fault_cause(f));
	fault_plan(f, BAD, "");
	rig_run(&f->r, 500 * MS);
	cr_assert(breaker(f, BAD)->resume_ns && !breaker(f, BAD)->n_sent);
	cr_assert_neq(f->r.node->control->peers[0].rail_mask >> BAD & 1, 0, "it is connected");
}

static transport_post_fn post_of_transport;

static uint16_t post_no_ping(struct rail *rail, const struct wr *wr, uint16_t n)
{
	return n == 3 ? 0 : post_of_transport(rail, wr, n);
}

/* The send queue is full: nothing went out, so nothing failed, and the pause is not doubled. */
static void finds_no_room(uint32_t interval_secs)
{
	const struct rail_breaker *b;
	struct fault_rig f;
	struct rail *rail;

	open_and_connect(&f, interval_secs);
	b = breaker(&f, BAD);
	rail = f.r.node->rails[BAD];
	post_of_transport = rail->post;
	rail->post = post_no_ping;
	rig_run(&f.r, 1500 * MS);
	cr_assert(b->resume_ns && b->n_sent >= 2 && b->n_sent <= 15, "sent %u", b->n_sent);
	cr_assert(b->n_cancelled == b->n_sent && !b->n_failed && !b->n_expired && !b->is_probe_out);
	cr_assert(b->cooldown_ns == 1000 * MS && b->error_count == 1);
	rail->post = post_of_transport;
	rig_run(&f.r, 200 * MS);
	cr_assert(!b->resume_ns && b->n_ok == 1);
	fault_over(&f);
	fault_stop(&f);
}

Test(fault_probe, trial_finds_no_room)
{
	finds_no_room(0);
}

/* With a pause of one second the first probe comes when it ends, as the trial: here a longer one. */
Test(fault_probe, probe_finds_no_room)
{
	const struct rail_breaker *b;
	struct fault_rig f;
	struct rail *rail;

	fault_init(&f, 3);
	f.r.config.health.error_threshold = 1;
	f.r.config.health.cooldown_secs = 30;
	fault_start(&f);
	b = breaker(&f, BAD);
	rail = f.r.node->rails[BAD];
	post_of_transport = rail->post;
	rail->post = post_no_ping;
	fault_plan(&f, BAD, "disconnect:at=100KiB");
	cr_assert_eq(fault_read(&f, "large", RY_F_FAILOVER, 3000), RY_OK, "%s", fault_cause(&f));
	rig_run(&f.r, 500 * MS);
	cr_assert(!b->n_trips && !b->error_count, "a proof that finds no room is no failure either");
	rail->post = post_of_transport;
	rig_run(&f.r, 200 * MS);
	cr_assert_eq(eligible_rails(f.r.node->control, 0), 7u);
	fault_plan(&f, BAD, "error:at=100KiB,class=retry");
	cr_assert_eq(fault_read(&f, "large", RY_F_FAILOVER, 3000), RY_OK, "%s", fault_cause(&f));
	rail->post = post_no_ping;
	rig_run(&f.r, 3500 * MS);
	cr_assert(b->resume_ns && b->n_sent == 3 && b->n_cancelled == 3, "still one each interval: %u", b->n_sent);
	cr_assert(!b->n_failed && b->error_count == 1);
	rail->post = post_of_transport;
	fault_over(&f);
	fault_stop(&f);
}

/* No window is free for as long as a lease: the PING is taken back, and its pair is not blamed. */
Test(fault_probe, trial_waits_for_a_window)
{
	const struct rail_breaker *b;
	struct fault_rig f;
	struct rail *rail;
	uint32_t free_top;

	open_and_connect(&f, 0);
	b = breaker(&f, BAD);
	rail = f.r.node->rails[BAD];
	free_top = rail->free_top;
	rail->free_top = 0;
	rig_run(&f.r, 2500 * MS);
	cr_assert(b->resume_ns && b->n_sent >= 3 && b->n_cancelled >= b->n_sent - 1, "%u of %u", b->n_cancelled,
		b->n_sent);
	cr_assert(!b->n_failed && !b->n_expired && b->cooldown_ns == 1000 * MS && b->error_count == 1);
	rail->free_top = free_top;
	rig_run(&f.r, 200 * MS);
	cr_assert(!b->resume_ns && b->n_ok == 1);
	fault_over(&f);
	fault_stop(&f);
}

/* The connection goes while the trial waits: it ends with it, and the next connection has its own. */
Test(fault_probe, teardown_while_a_trial_waits)
{
	const struct rail_breaker *b;
	struct fault_rig f;
	struct rail *rail;
	uint32_t free_top;

	open_and_connect(&f, 0);
	b = breaker(&f, BAD);
	rail = f.r.node->rails[BAD];
	free_top = rail->free_top;
	rail->free_top = 0;
	while (!b->is_probe_out)
		rig_step(&f.r);
	rig_run(&f.r, MS);
	cr_assert_eq(rail->probes.n, 1u);
	rail_qp_down(rail, f.r.node->control->peers[0].by_rail[BAD].pair->qps[0], WC_ERR_PEER_CLOSED, true);
	cr_assert_eq(rail->probes.n, 0u, "nothing names the QP any more");
	rig_run(&f.r, MS);
	cr_assert(b->n_cancelled == 1 && !b->n_failed && !b->is_probe_out && b->cooldown_ns == 1000 * MS);
	rail->free_top = free_top;
	rig_run(&f.r, 200 * MS);
	cr_assert(!b->resume_ns && b->n_sent == 2 && b->n_ok == 1, "sent %u", b->n_sent);
	fault_over(&f);
	fault_stop(&f);
}

/* ---- Long ways ---- */

static void far_away(struct fault_rig *f, uint64_t latency_ms)
{
	fault_init(f, 2);
	f->r.step_ns = MS / 10;
	f->r.config.rails[BAD].mock.latency_ns = latency_ms * MS;
	f->r.config.health.error_threshold = 1;
	f->r.config.health.cooldown_secs = 30;
	fault_start(f);
}

/* The lease follows the round trip, in the breaker and at the prober: a PONG after two seconds is in time. */
Test(fault_probe, probes_over_a_long_way)
{
	const struct rail_breaker *b;
	struct fault_rig f;

	far_away(&f, 300);
	b = breaker(&f, BAD);
	rail_qp_down(f.r.node->rails[BAD], f.r.node->control->peers[0].by_rail[BAD].pair->qps[0], WC_ERR_RETRY, true);
	rig_run(&f.r, 2500 * MS);
	cr_assert(b->n_trips == 1 && b->n_ok == 1 && !b->resume_ns);
	cr_assert(b->lease_ns >= 6000 * MS && b->lease_ns < 6100 * MS, "ten round trips");
	rail_qp_down(f.r.node->rails[BAD], f.r.node->control->peers[0].by_rail[BAD].pair->qps[0], WC_ERR_RETRY, true);
	rig_run(&f.r, 900 * MS);
	fault_plan(&f, BAD, "stall:for=2s");
	rig_run(&f.r, 3500 * MS);
	cr_assert(b->n_trips == 2 && b->n_ok == 2 && !b->n_failed && !b->n_expired && !b->resume_ns);
	fault_stop(&f);
}

/* A round trip beyond the lease of a pair that is not known: data tells it before a probe is needed. */
Test(fault_probe, data_teaches_the_round_trip)
{
	const struct rail_breaker *b;
	struct fault_rig f;

	far_away(&f, 600);
	b = breaker(&f, BAD);
	f.r.node->control->rails[0].is_draining = true;
	for (int i = 0; i < 33 && !b->lease_ns; i++)
		cr_assert_eq(fault_read(&f, "small", 0, 5000), RY_OK, "%s", fault_cause(&f));
	cr_assert_geq(b->lease_ns, 12000 * MS);
	rail_qp_down(
		f.r.node->rails[BAD], f.r.node->control->peers[0].by_rail[BAD].pair->qps[0], WC_ERR_PEER_CLOSED, true);
	rig_run(&f.r, 1500 * MS);
	cr_assert(!b->n_trips && !b->error_count);
	cr_assert_eq(eligible_rails(f.r.node->control, 0), 1u << BAD, "proven after 1.2 s");
	fault_stop(&f);
}
