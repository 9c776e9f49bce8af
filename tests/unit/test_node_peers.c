/* SPDX-License-Identifier: BSD-3-Clause */
/* Two stores behind the same rails, one of them dead: the other's reads do not wait for it. In virtual time. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "read/control_priv.h"
#include "rig_tap.h"

#define MIB (1u << 20)
#define MS 1000000ull
#define RATE 125000000ull
#define OBJECT (2 * MIB)
#define DEAD 1 /* peer */
#define MANY 8u

struct crowd {
	struct rig r;
	bool is_dead;
	char keys[2][8]; /* one on each peer */
	struct client *other;
	uint32_t n_other_out, n_other_failed, n_other_good;
	uint64_t longest_ns;
};

/* Of what the dead store is asked nothing arrives. */
static bool tap(void *ctx, struct rail *rail, struct wr *wr)
{
	const struct crowd *w = ctx;
	const struct peer *p = &w->r.node->control->peers[DEAD];

	(void)rail;
	if (!w->is_dead || wr->op != WR_SEND)
		return true;
	for (uint32_t i = 0; i < p->n_pairs; i++) {
		for (uint16_t q = 0; q < p->pairs[i].pair->n_qps; q++) {
			if (p->pairs[i].pair->qps[q] == wr->qp)
				return false;
		}
	}
	return true;
}

static void begin(struct crowd *w, uint16_t n_rails)
{
	struct config *k = &w->r.config;
	unsigned n_found = 0;

	memset(w, 0, sizeof(*w));
	rig_init(&w->r, n_rails, RATE);
	k->n_stores = 2;
	k->stores[1] = k->stores[0];
	snprintf(k->stores[1].name, sizeof(k->stores[1].name), "dead");
	rig_start(&w->r);
	for (int i = 0; n_found != 3; i++) {
		char key[8];
		uint16_t home;

		cr_assert_lt(i, 100);
		snprintf(key, sizeof(key), "k%d", i);
		home = lookup_home(w->r.node->control, key, (uint16_t)strlen(key));
		if (n_found >> home & 1)
			continue;
		n_found |= 1u << home;
		memcpy(w->keys[home], key, sizeof(key));
		free(rig_object(&w->r, key, OBJECT, 1));
	}
	w->other = rig_attach(&w->r, 32 * MIB);
	rig_tap(&w->r, tap, w);
}

static void end(struct crowd *w)
{
	rig_tap(&w->r, NULL, NULL);
	cr_assert(rig_detach(&w->r, w->other));
	rig_stop(&w->r);
}

/* MANY reads of the dead store's object are out, always. */
static void press(struct crowd *w)
{
	struct ry_cqe cqe;

	for (; w->n_other_out < MANY; w->n_other_out++)
		rig_submit_read(&w->r, w->other, w->keys[DEAD], 0, UINT64_MAX, 0, w->r.now_ns + 1000 * MS);
	while (rig_reap(&w->r, w->other, &cqe)) {
		w->n_other_out--;
		w->n_other_failed += cqe.status != RY_OK;
		w->n_other_good += cqe.status == RY_OK;
		if (cqe.lease_id)
			rig_release(&w->r, w->other, cqe.lease_id);
	}
}

/* Reads of the healthy store's object, one after the other, for ns; returns how many. */
static uint32_t count_reads(struct crowd *w, uint64_t ns, bool want_press)
{
	struct rig *r = &w->r;
	uint64_t end = r->now_ns + ns, started = 0;
	struct ry_cqe cqe;
	uint32_t n = 0;

	w->longest_ns = 0;
	while (r->now_ns < end || started) {
		if (!started) {
			started = r->now_ns;
			rig_submit_read(r, r->client, w->keys[0], 0, UINT64_MAX, 0, 0);
		}
		if (want_press)
			press(w);
		rig_step(r);
		if (!rig_reap(r, r->client, &cqe))
			continue;
		cr_assert_eq(cqe.status, RY_OK, "%s", rig_slot(r->client, &cqe)->cause);
		rig_release(r, r->client, cqe.lease_id);
		w->longest_ns = RTE_MAX(w->longest_ns, r->now_ns - started);
		started = 0;
		n++;
	}
	return n;
}

static void dead_peer(uint16_t n_rails)
{
	uint32_t alone, beside;
	uint64_t longest;
	struct crowd w;

	begin(&w, n_rails);
	count_reads(&w, 100 * MS, false);
	cr_assert_eq(rig_read(&w.r, w.other, w.keys[DEAD], 0, UINT64_MAX, 0).status, RY_OK, "its descriptor is known");
	alone = count_reads(&w, 1500 * MS, false);
	longest = w.longest_ns;
	w.is_dead = true;
	beside = count_reads(&w, 1500 * MS, true);
	cr_assert_geq(beside, 0.95 * alone, "%u reads beside a dead peer, %u alone", beside, alone);
	cr_assert_leq(w.longest_ns, 1.25 * longest, "%lu ns, alone at most %lu", (unsigned long)w.longest_ns,
		(unsigned long)longest);
	cr_assert(w.n_other_failed >= MANY && !w.n_other_good, "%u failed, %u good", w.n_other_failed, w.n_other_good);
	end(&w);
}

Test(node_peers, a_dead_peer_costs_others_nothing_on_one_rail)
{
	dead_peer(1);
}

Test(node_peers, a_dead_peer_costs_others_nothing_on_two_rails)
{
	dead_peer(2);
}

/* Both are well: they share, and what is in flight stays within two depths. */
Test(node_peers, live_peers_share_a_rail)
{
	uint64_t most = 0;
	uint32_t alone, n;
	struct crowd w;

	begin(&w, 1);
	alone = count_reads(&w, 500 * MS, false);
	n = count_reads(&w, 500 * MS, true);
	for (int i = 0; i < 2000; i++) {
		press(&w);
		rig_step(&w.r);
		most = RTE_MAX(most, w.r.node->control->rails[0].inflight_bytes);
	}
	cr_assert(n >= alone / (MANY + 2) && n <= alone / 2, "%u of %u", n, alone);
	cr_assert_gt(w.n_other_good, MANY);
	cr_assert_leq(most, 2 * w.r.node->control->rails[0].depth_bytes + MIB);
	end(&w);
}

/* Nothing of a lost connection is counted for ever. */
Test(node_peers, shares_are_given_back)
{
	struct control *c;
	struct crowd w;

	begin(&w, 2);
	c = w.r.node->control;
	count_reads(&w, 20 * MS, true);
	w.is_dead = true;
	count_reads(&w, 3000 * MS, true);
	w.is_dead = false;
	for (uint64_t until = w.r.now_ns + 5000 * MS; w.r.now_ns < until && w.n_other_out;) {
		struct ry_cqe cqe;

		rig_step(&w.r);
		while (rig_reap(&w.r, w.other, &cqe)) {
			w.n_other_out--;
			if (cqe.lease_id)
				rig_release(&w.r, w.other, cqe.lease_id);
		}
	}
	rig_wait(&w.r, w.r.client, rig_submit_read(&w.r, w.r.client, w.keys[0], 0, UINT64_MAX, 0, 0));
	rig_run(&w.r, 100 * MS);
	for (uint16_t i = 0; i < 2; i++) {
		cr_assert_eq(c->rails[i].inflight_bytes, 0u);
		cr_assert_eq(c->rails[i].n_busy_paths, 0u);
	}
	for (uint32_t i = 0; i < PAIRS_MAX; i++)
		cr_assert_eq(c->paths[i].inflight_bytes, 0u);
	cr_assert(TAILQ_EMPTY(&c->active_peers));
	end(&w);
}
