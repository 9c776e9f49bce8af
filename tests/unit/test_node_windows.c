/* SPDX-License-Identifier: BSD-3-Clause */
/* Reads over windows that a device checks: every way in which they end, and what the book of windows says of it. */
#include "node_windows_fixture.h"

#define BIG (3u * MIB)

static bool swallow_cancel(void *ctx, struct rail *rail, struct wr *wr)
{
	unsigned *n = ctx;

	if (!rig_message(wr, WIRE_CANCEL))
		return true;
	(*n)++;
	return false;
}

static bool swallow_done(void *ctx, struct rail *rail, struct wr *wr)
{
	unsigned *n = ctx;

	if (!rig_message(wr, WIRE_DONE) && !rig_message(wr, WIRE_CANCEL))
		return true;
	(*n)++;
	return false;
}

/* ---- the good case ---- */

Test(node_windows, reads_and_puts_by_the_device_alone)
{
	const struct rig_windows *w;
	uint8_t *data;
	struct rig r;

	begin(&r, 2, 0);
	data = put(&r, "k", 15 * MIB + 77, MIB);
	w = rig_windows();
	cr_assert_eq(w->read_bytes, 15 * MIB + 77, "a put's bytes are read by the store, once");
	cr_assert(w->n_writes == 0 && w->n_reads == w->n_grants && w->n_grants == w->n_pulled);
	for (int i = 0; i < 3; i++)
		reads(&r, "k", data, 15 * MIB + 77, 0);
	rests(&r);
	cr_assert(w->n_binds == w->n_invs && w->n_binds > 3 * 15, "%u binds, %u invalidations", w->n_binds, w->n_invs);
	cr_assert(w->n_losses == 0 && w->n_fences == 0);
	cr_assert_eq(w->read_bytes, 15 * MIB + 77);
	cr_assert_eq(SUM(&r, late_dropped_bytes), 0u);
	deletes(&r, "k");
	free(data);
	rig_stop(&r);
}

/* 256 binds wear out a key's tag; a window's key is never the one it had just before. */
Test(node_windows, keys_rotate)
{
	uint32_t last[WINDOWS_MAX] = {0};
	uint8_t *data;
	struct rig r;

	begin(&r, 1, 0);
	data = put(&r, "k", 100000, STRIPE);
	for (int i = 0; i < 300; i++) {
		reads(&r, "k", data, 100000, 0);
		for (unsigned k = 0; k < WINDOWS_MAX; k++) {
			cr_assert_eq(device_index(r.node->rails[0]->next_keys[k]), k);
			cr_assert_neq(r.node->rails[0]->next_keys[k], r.node->rails[0]->windows[k].key);
			last[k] = r.node->rails[0]->next_keys[k];
		}
	}
	cr_assert_neq(last[0], 0u);
	rests(&r);
	free(data);
	rig_stop(&r);
}

/* ---- cancel ---- */

Test(node_windows, cancel_at_every_turn)
{
	unsigned n_cancelled = 0, n_whole = 0;
	uint8_t *data;
	struct rig r;

	fence_timeout_ns = 100 * MS; /* what is posted already is still written */
	begin(&r, 2, 500000000);
	data = put(&r, "k", BIG, STRIPE);
	for (unsigned turn = 0; turn < 250; turn += 3) {
		uint64_t t = rig_submit_read(&r, r.client, "k", 0, UINT64_MAX, 0, 0);
		struct ry_cqe cqe;

		rig_run(&r, turn * RIG_STEP_NS);
		rig_cancel(&r, r.client, t);
		cqe = ends(&r, t, data, BIG);
		cr_assert(cqe.status == RY_OK || cqe.status == RY_ERR_CANCELLED, "turn %u: %u", turn, cqe.status);
		n_cancelled += cqe.status == RY_ERR_CANCELLED;
		n_whole += cqe.status == RY_OK;
		rests(&r);
	}
	cr_assert(n_cancelled > 30 && n_whole > 5 && rig_windows()->n_cancels > 100, "%u, %u", n_cancelled, n_whole);
	cr_assert(rig_windows()->n_fences == 0, "an answered CANCEL costs no QP");
	reads(&r, "k", data, BIG, 0);
	deletes(&r, "k");
	free(data);
	rig_stop(&r);
}

/* ---- fence by silence ---- */

/* The store never hears the CANCEL: it goes on writing until conn's fence, and no byte of the memory is anyone's until
 * then. */
Test(node_windows, memory_waits_for_the_fence)
{
	uint64_t moved, t;
	unsigned n_lost = 0;
	struct ry_cqe cqe;
	uint8_t *data;
	struct rig r;

	begin(&r, 1, 50000000);
	data = put(&r, "k", BIG, STRIPE);
	t = rig_submit_read(&r, r.client, "k", 0, UINT64_MAX, 0, 0);
	rig_run(&r, 10 * MS);
	is_fence_held = true;
	rig_tap(&r, swallow_cancel, &n_lost);
	rig_cancel(&r, r.client, t);
	rig_run(&r, 4 * MS);
	cr_assert(n_lost > 0 && SUM(&r, fences) > 0);
	moved = SUM(&r, wire_rx_bytes);
	rig_run(&r, 200 * MS);
	cr_assert_gt(SUM(&r, wire_rx_bytes), moved + 4 * STRIPE, "the fault bites: the store writes on");
	cr_assert_neq(r.node->control->inflight_bytes, 0u);
	cr_assert_neq(stat_get(&r.node->control->counters->quarantined_bytes), 0u, "the memory is nobody's");
	cr_assert_eq(rig_windows()->n_fences, 0u);
	is_fence_held = false;
	rig_tap(&r, NULL, NULL);
	cqe = ends(&r, t, data, BIG);
	cr_assert_eq(cqe.status, RY_ERR_CANCELLED);
	rests(&r);
	cr_assert_geq(rig_windows()->n_fenced_open, 1u);
	reads(&r, "k", data, BIG, 0);
	deletes(&r, "k");
	free(data);
	rig_stop(&r);
}

/* Memory that came back through a fence is written by the next read alone. */
Test(node_windows, a_fenced_read_disturbs_no_other)
{
	uint8_t *data, *other;
	struct rig r;

	srandom(5);
	begin(&r, 2, 200000000);
	data = put(&r, "k", BIG, STRIPE);
	other = put(&r, "other", BIG - 5, STRIPE);
	for (int i = 0; i < 20; i++) {
		uint64_t bad = rig_submit_read(&r, r.client, "k", 0, UINT64_MAX, 0, 0);
		uint64_t good = rig_submit_read(&r, r.client, "other", 0, UINT64_MAX, RY_F_FAILOVER, 0);
		unsigned n_lost = 0;
		struct ry_cqe cqe;

		rig_run(&r, (uint64_t)random() % (10 * MS));
		rig_tap(&r, swallow_cancel, &n_lost);
		rig_cancel(&r, r.client, bad);
		cqe = ends(&r, good, other, BIG - 5);
		cr_assert(cqe.status == RY_OK || cqe.status == RY_ERR_NO_RAIL, "%d: %u", i, cqe.status);
		rig_run(&r, 5 * MS);
		rig_tap(&r, NULL, NULL);
		while (rig_reap(&r, r.client, &cqe)) {
			if (cqe.status == RY_OK)
				rig_release(&r, r.client, cqe.lease_id);
		}
		rests(&r);
	}
	cr_assert_gt(rig_windows()->n_fenced_open, 10u);
	reads(&r, "k", data, BIG, 0);
	free(data);
	free(other);
	rig_stop(&r);
}

/* DONE never comes and neither does the answer to CANCEL: the deadline, then the fence. */
Test(node_windows, silence_ends_in_a_fence)
{
	unsigned n_lost = 0;
	struct ry_cqe cqe;
	uint8_t *data;
	struct rig r;

	begin(&r, 1, 0);
	data = put(&r, "k", BIG, STRIPE);
	rig_tap(&r, swallow_done, &n_lost);
	cqe = ends(&r, rig_submit_read(&r, r.client, "k", 0, UINT64_MAX, 0, r.now_ns + 20 * MS), data, BIG);
	cr_assert(cqe.status == RY_ERR_TIMEOUT && n_lost > 2, "%u, %u lost", cqe.status, n_lost);
	rig_run(&r, 10 * MS);
	cr_assert_geq(rig_windows()->n_fenced_open, 2u, "%u", rig_windows()->n_fenced_open);
	rig_tap(&r, NULL, NULL);
	rests(&r);
	reads(&r, "k", data, BIG, 0);
	deletes(&r, "k");
	free(data);
	rig_stop(&r);
}

/* ---- loss of a QP ---- */

static void lost_at_every_turn(enum loss how, bool is_store, uint32_t flags)
{
	unsigned n_bitten = 0;
	uint8_t *data;
	struct rig r;

	begin(&r, 2, 500000000);
	data = put(&r, "k", BIG, STRIPE);
	for (unsigned turn = 0; turn < 240; turn += 7) {
		uint64_t t = rig_submit_read(&r, r.client, "k", 0, UINT64_MAX, flags, 0);
		unsigned n_losses = rig_windows()->n_fences;
		struct ry_cqe cqe;

		rig_run(&r, turn * RIG_STEP_NS);
		n_bitten += r.node->rails[0]->n_active != 0;
		lose(&r, 0, is_store ? accepted(&r, 0) : dialled(&r, 0), how);
		cqe = ends(&r, t, data, BIG);
		cr_assert(cqe.status == RY_OK || cqe.status == RY_ERR_RAIL || cqe.status == RY_ERR_NO_RAIL,
			"turn %u: %u: %s", turn, cqe.status, rig_slot(r.client, &cqe)->cause);
		cr_assert(!(flags & RY_F_FAILOVER) || cqe.status == RY_OK, "%s", rig_slot(r.client, &cqe)->cause);
		rig_run(&r, 30 * MS);
		cr_assert_gt(rig_windows()->n_fences, n_losses, "a lost QP is fenced");
		rests(&r);
	}
	cr_assert_gt(n_bitten, 15u, "%u losses struck a read", n_bitten);
	cr_assert_gt(SUM(&r, probes_answered), 15u, "successors are proven");
	cr_assert_geq(rig_windows()->n_probe_reads, SUM(&r, probes_answered), "in both directions");
	reads(&r, "k", data, BIG, 0);
	deletes(&r, "k");
	free(data);
	rig_stop(&r);
}

Test(node_windows, reader_gives_its_qp_up)
{
	lost_at_every_turn(LOSS_GIVEN_UP, false, RY_F_FAILOVER);
}

Test(node_windows, reader_loses_its_qp)
{
	lost_at_every_turn(LOSS_BROKEN, false, 0);
}

Test(node_windows, store_gives_its_qp_up)
{
	lost_at_every_turn(LOSS_GIVEN_UP, true, 0);
}

Test(node_windows, store_loses_its_qp)
{
	lost_at_every_turn(LOSS_BROKEN, true, RY_F_FAILOVER);
}

/* Nothing of a QP that was given up goes back to control before its fence, whatever else happens to it meanwhile. */
Test(node_windows, segments_wait_for_the_fence_of_their_qp)
{
	uint8_t *data;
	uint32_t n;
	uint64_t t;
	struct rig r;

	begin(&r, 2, 100000000);
	data = put(&r, "k", BIG, STRIPE);
	for (int how = 0; how < LOSS_KINDS_; how++) {
		t = rig_submit_read(&r, r.client, "k", 0, UINT64_MAX, RY_F_FAILOVER, 0);
		rig_run(&r, 5 * MS);
		is_fence_held = true;
		n = r.node->rails[0]->n_active;
		cr_assert_gt(n, 0u);
		lose(&r, 0, dialled(&r, 0), how);
		rig_run(&r, 100 * MS);
		cr_assert_eq(r.node->rails[0]->n_active, n, "%u of %u left", r.node->rails[0]->n_active, n);
		lose(&r, 0, accepted(&r, 0), LOSS_BROKEN);
		rig_run(&r, 50 * MS);
		cr_assert_eq(r.node->rails[0]->n_active, n);
		cr_assert(!rig_reap(&r, r.client, &(struct ry_cqe){0}), "a part of it is still out");
		is_fence_held = false;
		cr_assert_eq(ends(&r, t, data, BIG).status, RY_OK);
		rests(&r);
	}
	deletes(&r, "k");
	free(data);
	rig_stop(&r);
}

/* An orderly end takes the same way: asked back with windows open. */
Test(node_windows, release_with_open_windows)
{
	static struct pair_kill kill;
	uint8_t *data;
	struct rig r;

	begin(&r, 1, 100000000);
	data = put(&r, "k", BIG, STRIPE);
	for (unsigned turn = 0; turn < 240; turn += 13) {
		uint64_t t = rig_submit_read(&r, r.client, "k", 0, UINT64_MAX, 0, 0);
		struct qp *qp = dialled(&r, 0);

		rig_run(&r, turn * 5 * RIG_STEP_NS);
		kill = (struct pair_kill){.m = {MSG_PAIR_KILL},
			.pair_idx = qp->pair_idx,
			.pair_epoch = r.node->control->paths[qp->pair_idx].epoch,
			.reason = WIRE_BYE_REBUILD};
		cr_assert(spsc_push(r.node->control_to_conn, &kill));
		ends(&r, t, data, BIG);
		rests(&r);
	}
	cr_assert_gt(rig_windows()->n_fenced_open, 10u);
	cr_assert_eq(rig_windows()->n_losses, 0u, "nothing was lost");
	reads(&r, "k", data, BIG, 0);
	deletes(&r, "k");
	free(data);
	rig_stop(&r);
}

/* ---- a peer that is wrong ---- */

struct liar {
	unsigned n; /* READs spoilt, or kept */
	bool want_key;
	bool want_keep;
	struct rig_kept kept;
};

static bool lie(void *ctx, struct rail *rail, struct wr *wr)
{
	struct wire_read *m = rig_message(wr, WIRE_READ);
	struct liar *l = ctx;

	if (!m)
		return true;
	if (l->want_keep)
		rig_keep(&l->kept, rail, wr);
	if (l->want_key)
		m->key ^= 1;
	l->n++;
	return true;
}

/* A write through a key that nobody gave it: both QPs are gone, no byte has landed, and the rail is not to blame. */
Test(node_windows, write_through_no_window_ends_both_qps)
{
	struct liar l = {.want_key = true};
	struct ry_cqe cqe;
	uint8_t *data;
	struct rig r;

	begin(&r, 1, 0);
	data = put(&r, "k", 100000, STRIPE);
	rig_tap(&r, lie, &l);
	cqe = ends(&r, rig_submit_read(&r, r.client, "k", 0, UINT64_MAX, 0, 0), data, 100000);
	cr_assert(l.n == 1 && cqe.status == RY_ERR_RAIL, "%u", cqe.status);
	rig_tap(&r, NULL, NULL);
	cr_assert_eq(rig_windows()->n_access, 1u);
	cr_assert_eq(SUM(&r, qp_failures), 2u);
	rests(&r);
	reads(&r, "k", data, 100000, 0);
	deletes(&r, "k");
	free(data);
	rig_stop(&r);
}

/* The same request is served again when its window is closed and its memory another's: the pattern there stays. */
Test(node_windows, late_write_never_lands)
{
	struct liar l = {.want_keep = true};
	struct ry_cqe cqe;
	const struct ry_extent *e;
	uint8_t *data, *was;
	struct rig r;

	begin(&r, 1, 0);
	data = put(&r, "k", 100000, STRIPE);
	rig_tap(&r, lie, &l);
	cqe = rig_read(&r, r.client, "k", 0, UINT64_MAX, 0);
	cr_assert_eq(cqe.status, RY_OK);
	rig_tap(&r, NULL, NULL);
	e = rig_slot(r.client, &cqe)->extents;
	memset(r.client->read_arena.base + e->offset, 0x5a, e->bytes);
	was = malloc(r.config.read_arena_bytes);
	memcpy(was, r.client->read_arena.base, r.config.read_arena_bytes);
	rig_post_kept(&l.kept);
	rig_run(&r, 50 * MS);
	cr_assert_eq(rig_windows()->n_access, 1u, "the fault bites");
	cr_assert_arr_eq(was, r.client->read_arena.base, r.config.read_arena_bytes, "a late write landed");
	rig_release(&r, r.client, cqe.lease_id);
	rests(&r);
	reads(&r, "k", data, 100000, 0);
	free(was);
	free(data);
	rig_stop(&r);
}

/* The store is deaf to CANCEL and slow; the reader's memory is in other hands when it writes. */
Test(node_windows, late_write_after_a_fence_never_lands)
{
	uint8_t *data, *was;
	unsigned n_lost = 0;
	struct rig r;

	begin(&r, 1, 20000000);
	data = put(&r, "k", BIG, STRIPE);
	for (int i = 0; i < 5; i++) {
		uint64_t t = rig_submit_read(&r, r.client, "k", 0, UINT64_MAX, 0, 0);
		unsigned n_fenced = rig_windows()->n_fenced_open;

		rig_run(&r, (20 + (uint64_t)i * 7) * MS);
		rig_tap(&r, swallow_cancel, &n_lost);
		rig_cancel(&r, r.client, t);
		cr_assert_eq(ends(&r, t, data, BIG).status, RY_ERR_CANCELLED);
		while (!rig_is_idle(&r))
			rig_step(&r);
		cr_assert_gt(rig_windows()->n_fenced_open, n_fenced);
		memset(r.client->read_arena.base, 0x5a, r.config.read_arena_bytes);
		was = malloc(r.config.read_arena_bytes);
		memset(was, 0x5a, r.config.read_arena_bytes);
		rig_run(&r, 300 * MS);
		cr_assert_arr_eq(was, r.client->read_arena.base, r.config.read_arena_bytes, "a late write landed");
		free(was);
		rig_tap(&r, NULL, NULL);
		rests(&r);
	}
	cr_assert_gt(n_lost, 5u);
	reads(&r, "k", data, BIG, 0);
	deletes(&r, "k");
	free(data);
	rig_stop(&r);
}
