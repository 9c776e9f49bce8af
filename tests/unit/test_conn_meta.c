/* SPDX-License-Identifier: BSD-3-Clause */
/* Metadata over a pair: sizes, partial writes, back-pressure, buffers that come back exactly once (conn_link.c,
 * conn_queue.c). */
#include "conn_raw.h"

#include <railyard/ring.h>

#define N_LARGE 100

static struct node a, b;

static struct meta_buf *lookup(const struct pair *pair, uint64_t request_id)
{
	struct meta_buf *m = calloc(1, sizeof(*m));

	m->len_bytes = wire_enc_lookup(m->data, request_id, "key", 3, 0);
	m->pair_idx = pair->idx;
	m->pair_epoch = pair->epoch;
	return m;
}

/* A LIST_REPLY of exactly WIRE_META_MAX_BYTES with content that depends on the id. */
static struct meta_buf *large(const struct pair *pair, uint64_t request_id)
{
	struct meta_buf *m = lookup(pair, request_id);
	struct wire_list_reply *r = (void *)m->data;
	uint32_t left = WIRE_META_MAX_BYTES - sizeof(*r);
	uint8_t *at = m->data + sizeof(*r);

	wire_enc_fixed(m->data, WIRE_META_LIST_REPLY, sizeof(*r), request_id, RY_OK);
	r->entries_bytes = left;
	while (left) {
		struct ry_list_entry e = {.generation = request_id * 1000 + r->n_entries};
		uint32_t key = left - sizeof(e) > RY_KEY_MAX_BYTES ? RY_KEY_MAX_BYTES - 512 : left - sizeof(e);

		e.key_bytes = (uint16_t)key;
		memcpy(at, &e, sizeof(e));
		memset(at + sizeof(e), 'a' + (int)(request_id % 26), key);
		at += sizeof(e) + key;
		left -= sizeof(e) + key;
		r->n_entries++;
	}
	r->h.len_bytes = WIRE_META_MAX_BYTES - sizeof(r->h.len_bytes);
	m->len_bytes = WIRE_META_MAX_BYTES;
	cr_assert(wire_meta_check(m->data, m->len_bytes) == RY_OK);
	return m;
}

static void stop_both(void)
{
	node_stop(&a);
	node_stop(&b);
}

Test(conn_meta, carries_requests_and_replies_both_ways)
{
	struct meta_buf *ask_b, *ask_a;

	bring_up(&a, &b);
	b.is_keeping_bufs = true;
	ask_b = lookup(a.pair, 5);
	ask_a = lookup(b.accepted, 6);
	control_send(&a, &ask_b->m, MSG_META_TX);
	control_send(&b, &ask_a->m, MSG_META_TX);
	until(&a, &b, a.n_rx == 1 && b.n_rx == 1 && a.n_sent == 1 && b.n_sent == 1);
	cr_assert(b.rx_ids[0] == 5 && b.rx_pairs[0] == b.accepted->idx && b.rx[0]->pair_epoch == b.accepted->epoch);
	cr_assert(b.rx[0]->len_bytes == ask_b->len_bytes && !memcmp(b.rx[0]->data, ask_b->data, ask_b->len_bytes));
	cr_assert(a.rx_ids[0] == 6 && a.rx_types[0] == WIRE_META_LOOKUP);
	b.rx[0]->len_bytes = wire_enc_fixed(b.rx[0]->data, WIRE_META_DELETE_REPLY, 32, 5, RY_ERR_NOT_FOUND);
	control_send(&b, &b.rx[0]->m, MSG_META_REPLY);
	until(&a, &b, a.n_rx == 2);
	cr_assert(a.rx_ids[1] == 5 && a.rx_types[1] == WIRE_META_DELETE_REPLY);
	cr_assert(b.n_sent == 1, "a reply's buffer is conn's and is not reported");
	free(ask_a);
	free(ask_b);
	stop_both();
}

/* More than the sockets hold: written in pieces, received in order, every byte the same. */
Test(conn_meta, writes_64_kib_messages_in_pieces_and_in_order)
{
	struct meta_buf *m[N_LARGE];

	bring_up(&a, &b);
	for (int i = 0; i < N_LARGE; i++) {
		m[i] = large(a.pair, (uint64_t)i);
		control_send(&a, &m[i]->m, MSG_META_TX);
	}
	turns(&a, NULL, 200);
	cr_assert(a.n_sent > 0 && a.n_sent < N_LARGE, "%d sent: the socket took all, nothing was in pieces", a.n_sent);
	b.is_keeping_bufs = true;
	for (int i = 0; i < N_LARGE; i++) {
		until(&a, &b, b.n_rx > i);
		cr_assert(b.rx[i]->len_bytes == WIRE_META_MAX_BYTES);
		cr_assert(!memcmp(b.rx[i]->data, m[i]->data, WIRE_META_MAX_BYTES), "message %d differs", i);
		control_send(&b, &b.rx[i]->m, MSG_META_DROP);
	}
	until(&a, &b, a.n_sent == N_LARGE);
	cr_assert(a.n_unsent == 0 && b.n_rx == N_LARGE);
	for (int i = 0; i < N_LARGE; i++)
		free(m[i]);
	stop_both();
}

Test(conn_meta, stops_reading_a_peer_without_buffers_and_goes_on_later)
{
	struct meta_buf *m[N_LARGE], *back;
	int n_held;

	bring_up(&a, &b);
	b.is_keeping_bufs = true;
	for (int i = 0; i < N_LARGE; i++) {
		m[i] = lookup(a.pair, (uint64_t)i);
		control_send(&a, &m[i]->m, MSG_META_TX);
	}
	until(&a, &b, a.n_sent == N_LARGE);
	turns(&a, &b, 500);
	n_held = b.n_rx;
	cr_assert(n_held > 0 && n_held < 64, "one peer holds %d buffers", n_held);
	/* The other direction is not stopped. */
	back = lookup(b.accepted, 9);
	control_send(&b, &back->m, MSG_META_TX);
	until(&a, &b, a.n_rx == 1);
	/* Not listening is no silence of the peer: nobody dies of it. */
	for (int i = 0; i < 30; i++) {
		now_ns += SEC;
		turns(&a, &b, 10);
	}
	cr_assert(b.n_down == 0 && b.n_rx == n_held);
	for (int i = 0; i < N_LARGE; i++) {
		until(&a, &b, b.n_rx > i);
		cr_assert(b.rx_ids[i] == (uint64_t)i);
		control_send(&b, &b.rx[i]->m, MSG_META_DROP);
	}
	for (int i = 0; i < N_LARGE; i++)
		free(m[i]);
	free(back);
	stop_both();
}

Test(conn_meta, hands_back_what_a_dead_pair_did_not_send)
{
	struct meta_buf *m[N_LARGE], *late;
	struct pair old;

	bring_up(&a, &b);
	a.is_slow_to_quiesce = true;
	for (int i = 0; i < N_LARGE; i++) {
		m[i] = large(a.pair, (uint64_t)i);
		control_send(&a, &m[i]->m, MSG_META_TX);
	}
	turns(&a, NULL, 200);
	old = *a.pair;
	late = lookup(&old, 1);
	node_stop(&b);
	until(&a, NULL, a.n_down == 1 && a.n_sent + a.n_unsent == N_LARGE);
	cr_assert(a.n_unsent > 0);
	control_send(&a, &late->m, MSG_META_TX);
	until(&a, NULL, a.n_sent + a.n_unsent == N_LARGE + 1);
	control_quiesce(&a);
	until(&a, NULL, info_of(&a, 0).state == CONN_DOWN);
	node_start(&b);
	now_ns += SEC;
	until(&a, &b, a.n_up == 2);
	/* The old connection's epoch: not sent on the new one. */
	late->pair_idx = a.pair->idx;
	control_send(&a, &late->m, MSG_META_TX);
	until(&a, &b, a.n_sent + a.n_unsent == N_LARGE + 2);
	turns(&a, &b, 100);
	cr_assert(b.n_rx == 0);
	for (int i = 0; i < N_LARGE; i++)
		free(m[i]);
	free(late);
	stop_both();
}

Test(conn_meta, finishes_a_begun_message_before_its_bye)
{
	struct meta_buf *m[N_LARGE];
	struct pair_kill kill;

	bring_up(&a, &b);
	for (int i = 0; i < N_LARGE; i++) {
		m[i] = large(a.pair, (uint64_t)i);
		control_send(&a, &m[i]->m, MSG_META_TX);
	}
	turns(&a, NULL, 200);
	a.is_slow_to_quiesce = true;
	control_kill(&a, &kill, a.pair, WIRE_BYE_DRAIN);
	until(&a, &b, b.n_down == 1);
	cr_assert(b.down_reason == WIRE_BYE_DRAIN, "%s", b.down_cause);
	until(&a, &b, a.n_sent + a.n_unsent == N_LARGE);
	cr_assert(b.n_rx == a.n_sent, "%d received of %d sent", b.n_rx, a.n_sent);
	control_quiesce(&a);
	until(&a, &b, a.rails[0].n_qps == 0);
	for (int i = 0; i < N_LARGE; i++)
		free(m[i]);
	stop_both();
}

Test(conn_meta, bounds_the_output_queue_of_a_link)
{
	struct meta_buf *m[400];

	bring_up(&a, &b);
	for (int i = 0; i < 400; i++) {
		m[i] = large(a.pair, (uint64_t)i);
		control_send(&a, &m[i]->m, MSG_META_TX);
	}
	until(&a, NULL, a.n_unsent > 0);
	turns(&a, NULL, 50);
	cr_assert(a.n_unsent < 300);
	until(&a, &b, a.n_sent + a.n_unsent == 400 && b.n_rx == a.n_sent);
	cr_assert(a.n_down == 0);
	for (int i = 0; i < 400; i++)
		free(m[i]);
	stop_both();
}

Test(conn_meta, loses_nothing_while_controls_ring_is_full)
{
	struct meta_buf *m[N_LARGE];
	uint16_t port = free_port();
	char message[256];

	node_init(&a, "alpha", "tcp", 0);
	node_init(&b, "beta", "tcp", port);
	node_dials(&a, port);
	node_start(&b);
	cr_assert(node_create(&a, 1, false, message) == 0); /* one entry */
	until(&a, &b, a.n_up == 1 && b.n_up == 1);
	a.is_deaf = true;
	for (int i = 0; i < N_LARGE; i++) {
		m[i] = lookup(a.pair, (uint64_t)i);
		control_send(&a, &m[i]->m, MSG_META_TX);
	}
	until(&a, &b, b.n_rx == N_LARGE);
	cr_assert(conn_next_timer(a.conn) <= now_ns + 1000000, "nobody kicks conn when control has taken");
	node_stop(&b);
	turns(&a, NULL, 50);
	a.is_deaf = false;
	until(&a, NULL, a.n_sent == N_LARGE && a.n_down == 1);
	until(&a, NULL, a.rails[0].n_qps == 0);
	for (int i = 0; i < N_LARGE; i++)
		free(m[i]);
	node_stop(&a);
}

Test(conn_meta, drops_a_reply_whose_pair_is_gone_and_keeps_its_buffer)
{
	struct pair_kill kill;

	bring_up(&a, &b);
	b.is_keeping_bufs = true;
	for (int round = 1; round <= 80; round++) { /* more rounds than buffers */
		struct meta_buf *m = lookup(a.pair, 3);

		control_send(&a, &m->m, MSG_META_TX);
		until(&a, &b, b.n_rx == round && a.n_sent == round);
		control_kill(&a, &kill, a.pair, WIRE_BYE_REBUILD);
		until(&a, &b, a.n_up == round + 1 && b.n_up == round + 1);
		control_send(&b, &b.rx[(round - 1) % RX_KEEP]->m, MSG_META_REPLY);
		turns(&a, &b, 3);
		free(m);
	}
	cr_assert(a.n_rx == 0, "a reply reached another connection");
	stop_both();
}

Test(conn_meta, a_peer_that_takes_no_bytes_is_given_up)
{
	struct meta_buf *m[N_LARGE];
	int data_fd, fd;

	node_init(&a, "alpha", "tcp", free_port());
	node_start(&a);
	fd = raw_pair(&a, 1, &data_fd);
	for (int i = 0; i < N_LARGE; i++) {
		m[i] = large(a.accepted, (uint64_t)i);
		control_send(&a, &m[i]->m, MSG_META_TX);
	}
	turns(&a, NULL, 200);
	/* It still talks, so that it is not silence that kills it; what its acknowledgements free may move the end by a
	 * step or two. */
	for (int i = 0; i < 30 && !a.n_down; i++) {
		cr_assert(i < 13, "not given up");
		now_ns += SEC;
		raw_meta(fd, WIRE_META_KEEPALIVE_REPLY, sizeof(struct wire_meta), 0, RY_OK);
		turns(&a, NULL, 20);
		cr_assert(i >= 9 || !a.n_down, "given up too early: %s", a.down_cause);
	}
	until(&a, NULL, a.n_sent + a.n_unsent == N_LARGE);
	cr_assert(strstr(a.down_cause, "takes no bytes"), "%s", a.down_cause);
	for (int i = 0; i < N_LARGE; i++)
		free(m[i]);
	close(fd);
	close(data_fd);
	node_stop(&a);
}
