/* SPDX-License-Identifier: BSD-3-Clause */
/* More connections that want a PING at once than there are probes. In virtual time. */
#include <criterion/criterion.h>

#include "read/control_priv.h"
#include "rig_tap.h"

#define MS 1000000ull
#define N_RAILS 9
#define N_STORES 4
#define N_PAIRS (N_RAILS * N_STORES)

static struct rig r;
static bool is_pinged[PAIRS_MAX];

static struct peer_pair *pair_at(unsigned i)
{
	return &r.node->control->peers[i / N_RAILS].pairs[i % N_RAILS];
}

/* Nothing arrives. */
static bool tap(void *ctx, struct rail *rail, struct wr *wr)
{
	(void)ctx;
	(void)rail;
	for (unsigned i = 0; i < N_PAIRS && wr->op == WR_SEND; i++) {
		const struct peer *p = &r.node->control->peers[i / N_RAILS];

		if (i % N_RAILS < p->n_pairs && pair_at(i)->pair->qps[0] == wr->qp)
			is_pinged[i] = true;
	}
	return wr->op != WR_SEND;
}

static unsigned n_pinged(void)
{
	unsigned n = 0;

	for (unsigned i = 0; i < N_PAIRS; i++)
		n += is_pinged[i];
	return n;
}

Test(node_probes, what_finds_no_probe_waits_and_has_its_turn)
{
	struct control *c;

	static_assert(N_PAIRS > PROBES_MAX, "not all at once");
	rig_init(&r, N_RAILS, 0);
	r.config.n_stores = N_STORES;
	for (unsigned s = 1; s < N_STORES; s++) {
		r.config.stores[s] = r.config.stores[0];
		snprintf(r.config.stores[s].name, sizeof(r.config.stores[s].name), "s%u", s);
	}
	r.step_ns = MS;
	rig_start(&r);
	c = r.node->control;
	rig_tap(&r, tap, NULL);
	for (unsigned i = 0; i < N_PAIRS; i++)
		c->health.conns[pair_at(i)->pair->idx].is_proven = false;
	rig_run(&r, 100 * MS);
	cr_assert_eq(n_pinged(), PROBES_MAX);
	cr_assert_gt(control_next_timer(c), c->now_ns, "it would not sleep");
	rig_run(&r, 1500 * MS);
	cr_assert_eq(n_pinged(), N_PAIRS);
	rig_tap(&r, NULL, NULL);
	rig_stop(&r);
}
