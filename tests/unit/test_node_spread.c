/* SPDX-License-Identifier: BSD-3-Clause */
/* Which of the pairs that a writer dialled carry its puts: the test plays conn and tells of pairs of a writer with
 * several rails, spare ones among them. */
#include <criterion/criterion.h>

#include "read/control_priv.h"
#include "rig.h"

#define WRITER 77u
#define FIRST_IDX 900u /* the rig's own pairs are far below */
#define MS 1000000ull

struct writer {
	struct rig r;
	struct pair pairs[8];
	struct pair_event events[8];
	uint32_t n;
	uint32_t n_ever;
};

static void begin(struct writer *w, uint16_t n_rails)
{
	memset(w, 0, sizeof(*w));
	rig_init(&w->r, n_rails, 0);
	rig_start(&w->r);
}

static void come(struct writer *w, uint16_t ours, uint16_t theirs)
{
	uint32_t i = w->n++;

	w->pairs[i] = (struct pair){.idx = (uint16_t)(FIRST_IDX + i),
		.rail_idx = ours,
		.store_idx = 0xffff,
		.peer_rail_idx = theirs,
		.epoch = 100000 + w->n_ever++,
		.node_id = WRITER,
		.incarnation = 1};
	w->events[i] = (struct pair_event){.m = {MSG_PAIR_UP}, .pair = &w->pairs[i]};
	spsc_push(w->r.node->conn_to_control, &w->events[i]);
	rig_step(&w->r);
}

/* The answer is taken here: conn knows nothing of this pair. */
static void go(struct writer *w, uint32_t i)
{
	struct node *n = w->r.node;

	w->events[i].m.kind = MSG_PAIR_DOWN;
	w->events[i].reason = WIRE_BYE_SHUTDOWN;
	spsc_push(n->conn_to_control, &w->events[i]);
	control_poll(n->control, w->r.now_ns);
	cr_assert_eq(spsc_pop(n->control_to_conn), &w->events[i]);
	cr_assert_eq(w->events[i].m.kind, MSG_PAIR_QUIESCED);
}

static void all_go(struct writer *w)
{
	for (uint32_t i = 0; i < w->n; i++) {
		if (w->events[i].m.kind == MSG_PAIR_UP)
			go(w, i);
	}
	w->n = 0;
}

static void end(struct writer *w)
{
	all_go(w);
	rig_stop(&w->r);
}

static const struct peer *writer_peer(const struct writer *w)
{
	const struct control *c = w->r.node->control;

	for (uint16_t i = c->config->n_stores; i < c->n_peers; i++) {
		if (c->peers[i].is_used && c->peers[i].node_id == WRITER)
			return &c->peers[i];
	}
	cr_assert_fail("control does not know the writer");
	return NULL;
}

/* The writer's rail that our rail pulls from. */
static uint16_t pulls_from(const struct writer *w, uint16_t ours)
{
	const struct peer *p = writer_peer(w);

	cr_assert(p->rail_mask >> ours & 1, "rail %u has no pair", ours);
	cr_assert_eq(p->by_rail[ours].pair->rail_idx, ours);
	return p->by_rail[ours].pair->peer_rail_idx;
}

/* What is left after the store was away: the writer's second rail dialled our first one, while that alone was back. */
Test(node_spread, a_spare_pair_takes_no_rail_twice)
{
	static const uint16_t ends[3][2] = {{0, 1}, {1, 1}, {0, 0}};
	static const uint8_t orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};

	struct writer w;

	begin(&w, 2);
	for (unsigned k = 0; k < 6; k++) {
		for (unsigned i = 0; i < 3; i++)
			come(&w, ends[orders[k][i]][0], ends[orders[k][i]][1]);
		cr_assert_eq(pulls_from(&w, 0), 0u, "order %u", k);
		cr_assert_eq(pulls_from(&w, 1), 1u, "order %u", k);
		all_go(&w);
	}
	rig_stop(&w.r);
}

/* The first takes what the second needs, and the second what the third needs: both move on. */
Test(node_spread, holders_move_on)
{
	struct writer w;

	begin(&w, 3);
	come(&w, 0, 1);
	come(&w, 0, 0);
	come(&w, 1, 1);
	come(&w, 1, 2);
	come(&w, 2, 2);
	come(&w, 2, 1);
	cr_assert_eq(1u << pulls_from(&w, 0) | 1u << pulls_from(&w, 1) | 1u << pulls_from(&w, 2), 7u);
	end(&w);
}

Test(node_spread, rails_of_ours_share_where_the_writer_has_fewer)
{
	struct writer w;

	begin(&w, 2);
	come(&w, 0, 3);
	come(&w, 1, 3);
	cr_assert_eq(pulls_from(&w, 0), 3u);
	cr_assert_eq(pulls_from(&w, 1), 3u);
	end(&w);
}

Test(node_spread, a_pair_that_does_not_answer_is_left_for_another)
{
	struct writer w;

	begin(&w, 2);
	come(&w, 0, 0);
	come(&w, 1, 1);
	come(&w, 0, 2);
	cr_assert_eq(pulls_from(&w, 0), 0u);
	w.r.node->control->paths[FIRST_IDX].is_suspect = true;
	rig_run(&w.r, 300 * MS);
	cr_assert_eq(pulls_from(&w, 0), 2u);
	w.r.node->control->paths[FIRST_IDX].is_suspect = false;
	rig_run(&w.r, 300 * MS);
	cr_assert_eq(pulls_from(&w, 0), 0u, "and taken again");
	end(&w);
}

Test(node_spread, a_lost_pair_gives_way_to_the_spare_one)
{
	struct writer w;

	begin(&w, 2);
	come(&w, 0, 0);
	come(&w, 1, 1);
	come(&w, 0, 1);
	cr_assert_eq(pulls_from(&w, 0), 0u);
	go(&w, 0);
	cr_assert_eq(pulls_from(&w, 0), 1u, "the only one that is left");
	cr_assert_eq(pulls_from(&w, 1), 1u);
	end(&w);
}

/* Two rails of the writer, neither of them proven; it wants some of them left alone. */
static uint32_t answer_to_put(struct writer *w, uint32_t avoid)
{
	struct control *c = w->r.node->control;
	uint16_t peer_idx = (uint16_t)(writer_peer(w) - c->peers);
	static const uint64_t sum = 1;
	struct wire_put m = {
		.h = {.flags = RY_F_PUT_BEGIN, .request_id = 1, .avoid = avoid},
		.put_id = {1, 1},
		.size_bytes = RY_STRIPE_MIN_BYTES,
		.source_handle = 1,
		.source_generation = 1,
		.part_bytes = RY_STRIPE_MIN_BYTES,
		.stripe_bytes = RY_STRIPE_MIN_BYTES,
		.n_checksums = 1,
		.key_bytes = 1,
	};
	static struct meta_buf b;
	struct meta_buf *answer;

	b.pair_idx = FIRST_IDX;
	b.pair_epoch = w->pairs[0].epoch;
	b.len_bytes = wire_enc_put(b.data, &m, "k", &sum);
	c->health.conns[FIRST_IDX].is_proven = false;
	c->health.conns[FIRST_IDX + 1].is_proven = false;
	cr_assert_eq(eligible_rails(c, peer_idx), 0u);
	cr_assert_eq(failover_in_doubt(c, peer_idx, UINT32_MAX), 3u, "both are in doubt");
	put_serve(c, peer_idx, &b);
	answer = spsc_pop(w->r.node->control_to_conn);
	cr_assert_eq(answer, &b, "it is pulled over a rail that the writer has drained");
	cr_assert_eq(meta_head(&b)->type, WIRE_META_PUT_DONE);
	return meta_head(&b)->status;
}

Test(node_spread, a_pair_in_doubt_is_no_reason_to_use_a_rail_that_is_drained)
{
	struct writer w;

	begin(&w, 2);
	come(&w, 0, 0);
	come(&w, 1, 1);
	cr_assert_eq(answer_to_put(&w, 3), RY_ERR_NO_RAIL);
	end(&w);
}
