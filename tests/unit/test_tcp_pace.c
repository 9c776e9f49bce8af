/* SPDX-License-Identifier: BSD-3-Clause */
/* The sender's rate cap: the bucket alone, then through a rail whose time the test gives. */
#include "../support/tcp_rig.h"

#include "transport/tcp/pace.h"

#include <errno.h>
#include <poll.h>

#define MS 1000000ull

/* Bytes sent in `total_ns` by one that always has more to send and polls every step_ns. */
static uint64_t run(struct pace *p, uint64_t *now_ns, uint64_t total_ns, uint64_t step_ns)
{
	uint64_t end_ns = *now_ns + total_ns, sent = 0;

	while (*now_ns < end_ns) {
		uint64_t n;

		*now_ns += step_ns;
		pace_refill(p, *now_ns, true);
		n = pace_allow(p, UINT64_MAX);
		pace_spend(p, n);
		sent += n;
	}
	return sent;
}

Test(tcp_pace, exact_over_time_at_any_rate_and_step)
{
	uint64_t rates[] = {70001, 1000003, 125000000, 999999937, 12500000000};
	uint64_t steps[] = {777, 50021, 999983, 4000037};

	for (unsigned i = 0; i < RTE_DIM(rates); i++) {
		for (unsigned k = 0; k < RTE_DIM(steps); k++) {
			uint64_t now_ns = 5, start_ns = 5, sent, want;
			struct pace p;

			pace_init(&p, rates[i]);
			pace_refill(&p, now_ns, false);
			pace_spend(&p, p.tokens);
			sent = run(
				&p, &now_ns, steps[k] * 200000 < 20000 * MS ? steps[k] * 200000 : 20000 * MS, steps[k]);
			want = (uint64_t)((unsigned __int128)(now_ns - start_ns) * rates[i] / PACE_NS_PER_S);
			cr_assert_eq(sent + p.tokens, want, "rate %lu step %lu: not a byte is lost or won", rates[i],
				steps[k]);
		}
	}
}

Test(tcp_pace, a_pause_earns_no_burst)
{
	struct pace p;

	pace_init(&p, 125000000);
	pace_refill(&p, 1000 * MS, false);
	cr_assert_eq(pace_allow(&p, UINT64_MAX), PACE_QUANTUM_BYTES);
}

Test(tcp_pace, a_late_wake_up_is_made_good_up_to_the_burst)
{
	struct pace p;

	pace_init(&p, 100000000);
	pace_refill(&p, 1, false);
	pace_spend(&p, p.tokens);
	pace_refill(&p, 1 + 4 * MS, true);
	cr_assert_eq(p.tokens, 400000);
	pace_spend(&p, p.tokens);
	pace_refill(&p, 1 + 104 * MS, true);
	cr_assert_eq(p.tokens, 500000 + PACE_QUANTUM_BYTES, "5 ms and no more");
}

Test(tcp_pace, it_says_how_long_to_wait)
{
	struct pace p;

	pace_init(&p, 70000);
	pace_refill(&p, 1, false);
	cr_assert_eq(pace_wait_ns(&p, 1), 0);
	pace_spend(&p, p.tokens);
	for (uint64_t pending = 1; pending < 200000; pending += 7777) {
		struct pace q = p;
		uint64_t wait_ns = pace_wait_ns(&p, pending);

		pace_refill(&q, 1 + wait_ns - 1, true);
		cr_assert_eq(pace_allow(&q, pending), 0, "a nanosecond too early");
		q = p;
		pace_refill(&q, 1 + wait_ns, true);
		cr_assert_neq(pace_allow(&q, pending), 0);
	}
}

Test(tcp_pace, no_cap_and_a_clock_that_stands)
{
	struct pace p;

	pace_init(&p, 0);
	pace_refill(&p, 1, true);
	cr_assert_eq(pace_allow(&p, 1ull << 40), 1ull << 40);
	pace_spend(&p, 1ull << 40);
	cr_assert_eq(pace_wait_ns(&p, 1), 0);
	pace_init(&p, 1000);
	pace_refill(&p, 100, true);
	pace_spend(&p, p.tokens);
	pace_refill(&p, 100, true);
	pace_refill(&p, 50, true);
	cr_assert_eq(p.tokens, 0);
}

static uint8_t payload[128 << 10];

static uint64_t drain_peer(struct rig *g, uint16_t i)
{
	static uint8_t sink[1 << 20];
	uint64_t got = 0;
	ssize_t n;

	while ((n = recv(g->peer[i], sink, sizeof(sink), MSG_DONTWAIT)) > 0)
		got += (uint64_t)n;
	return got;
}

/* Keeps every QP's queue full for `ms` of given time, a turn each 100 us; adds up what each peer got. */
static void saturate(struct rig *g, unsigned ms, uint64_t *got)
{
	struct wc wc[RY_BURST_MAX];

	for (unsigned turn = 0; turn < ms * 10; turn++) {
		g->rail->now_ns += MS / 10;
		rig_poll(g, wc);
		for (uint16_t i = 0; i < g->n_qps; i++) {
			struct wr wr = {.op = WR_WRITE,
				.qp = g->qp[i],
				.addr = payload,
				.len_bytes = sizeof(payload),
				.key = 1};

			g->rail->ops.post(g->rail, &wr, 1);
			got[i] += drain_peer(g, i);
		}
	}
}

Test(tcp_pace, a_rail_sends_at_its_cap_within_one_percent)
{
	uint64_t got[4] = {0};
	struct rig g;

	rig_open(&g, 1, 125000000);
	saturate(&g, 200, got);
	cr_assert_geq(got[0], 25000000ull * 99 / 100);
	cr_assert_leq(got[0], 25000000ull * 101 / 100);
	cr_assert_eq(got[0], stat_get(&g.rail->counters.wire_tx_bytes));
	rig_close(&g);
}

Test(tcp_pace, the_cap_is_the_rails_and_its_qps_share_it)
{
	uint64_t got[4] = {0}, all;
	struct rig g;

	rig_open(&g, 3, 125000000);
	saturate(&g, 200, got);
	all = got[0] + got[1] + got[2];
	cr_assert_geq(all, 25000000ull * 99 / 100);
	cr_assert_leq(all, 25000000ull * 101 / 100);
	for (int i = 0; i < 3; i++)
		cr_assert_geq(got[i], all / 3 * 95 / 100, "qp %d got %lu of %lu", i, got[i], all);
	rig_close(&g);
}

Test(tcp_pace, the_flow_is_smooth)
{
	uint64_t got[4] = {0}, before = 0;
	struct rig g;

	rig_open(&g, 1, 125000000);
	saturate(&g, 10, got);
	for (int i = 0; i < 50; i++) {
		before = got[0];
		saturate(&g, 2, got);
		cr_assert_leq(got[0] - before, 250000 + PACE_QUANTUM_BYTES);
		cr_assert_geq(got[0] - before + PACE_QUANTUM_BYTES, 250000);
	}
	rig_close(&g);
}

Test(tcp_pace, a_rail_with_an_empty_bucket_sleeps_and_is_woken_by_its_timer)
{
	struct pollfd p = {.events = POLLIN};
	struct wc wc[RY_BURST_MAX];
	uint64_t before;
	struct rig g;

	rig_open(&g, 1, 125000000);
	struct wr wr = {.op = WR_WRITE, .qp = g.qp[0], .addr = payload, .len_bytes = sizeof(payload), .key = 1};

	rig_poll(&g, wc);
	cr_assert_eq(g.rail->ops.post(g.rail, &wr, 1), 1);
	before = stat_get(&g.rail->counters.wire_tx_bytes);
	cr_assert_eq(before, PACE_QUANTUM_BYTES);
	cr_assert_eq(rig_poll(&g, wc), 0);
	p.fd = g.rail->ops.arm(g.rail);
	cr_assert_geq(p.fd, 0, "nothing to do until there are tokens");
	cr_assert_eq(poll(&p, 1, 5000), 1, "the timer must wake the rail");
	g.rail->now_ns += 500000;
	cr_assert_eq(rig_poll(&g, wc), 0, "62500 tokens are less than a quantum");
	cr_assert_eq(stat_get(&g.rail->counters.wire_tx_bytes), before);
	g.rail->now_ns += 100000;
	rig_wait(&g, wc, 1);
	cr_assert_eq(wc[0].op, WC_WRITE);
	rig_close(&g);
}

Test(tcp_pace, arm_says_so_when_tokens_are_there)
{
	struct wc wc[RY_BURST_MAX];
	struct rig g;

	rig_open(&g, 1, 125000000);
	struct wr wr = {.op = WR_WRITE, .qp = g.qp[0], .addr = payload, .len_bytes = sizeof(payload), .key = 1};

	g.rail->ops.post(g.rail, &wr, 1);
	rig_poll(&g, wc);
	cr_assert_geq(g.rail->ops.arm(g.rail), 0);
	rig_close(&g);
	rig_open(&g, 1, 0);
	wr.qp = g.qp[0];
	g.rail->ops.post(g.rail, &wr, 1);
	cr_assert_eq(g.rail->ops.arm(g.rail), -EAGAIN, "the completion waits");
	rig_close(&g);
}
