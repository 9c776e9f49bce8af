/* SPDX-License-Identifier: BSD-3-Clause */
/* Pairs: bring-up, tear-down, reconnect, keepalive, self links (conn.c, conn_dial.c, conn_pair.c, conn_self.c). */
#include "conn_raw.h"
#include "health/rail_health.h"

#include <pthread.h>

static struct node a, b;

Test(conn, brings_a_pair_up_on_both_sides)
{
	bring_up(&a, &b);
	cr_assert(a.pair && a.pair->is_dialler && a.pair->store_idx == 0 && a.pair->n_qps == 2);
	cr_assert(b.accepted && !b.accepted->is_dialler && b.accepted->store_idx == 0xffff && b.accepted->n_qps == 2);
	cr_assert_str_eq(a.pair->node_name, "beta");
	cr_assert_str_eq(b.accepted->node_name, "alpha");
	cr_assert_str_eq(a.pair->rail_name, "r0");
	cr_assert(a.pair->node_id == 'b' && b.accepted->node_id == 'a');
	for (int i = 0; i < 2; i++) {
		cr_assert(a.pair->qps[i]->state == QP_ADOPTED && b.accepted->qps[i]->state == QP_ADOPTED);
		cr_assert(a.pair->qps[i]->req.qp_idx == i && a.pair->qps[i]->req.is_dialler);
		cr_assert(a.pair->qps[i]->req.peer_credits == RAIL_CREDITS);
		/* Socket i of one side is socket i of the other, and nothing but frames may be on it. */
		raw_send(a.pair->qps[i]->fd, i ? "one" : "nil", 3);
		char text[4] = "";
		cr_assert(raw_read(&b, b.accepted->qps[i]->fd, text, 3));
		cr_assert_str_eq(text, i ? "one" : "nil");
	}
	struct conn_pair_info info = info_of(&a, 0);
	cr_assert(info.state == CONN_UP && info.is_dialler && info.n_connects == 1 && info.n_failures == 0);
	cr_assert_str_eq(info.peer, "beta");
	info = info_of(&b, 0);
	cr_assert(info.state == CONN_UP && !info.is_dialler);
	node_stop(&a);
	node_stop(&b);
}

Test(conn, is_not_up_before_every_qp_is_adopted_on_both_sides)
{
	uint16_t port = free_port();

	node_init(&a, "alpha", "tcp", 0);
	node_init(&b, "beta", "tcp", port);
	node_dials(&a, port);
	b.rails[0].is_held = true;
	node_start(&b);
	node_start(&a);
	until(&a, &b, b.rails[0].n_cmds == 2);
	turns(&a, &b, 200);
	cr_assert(a.pair == NULL && a.n_up == 0 && b.n_up == 0);
	b.rails[0].is_held = false;
	until(&a, &b, a.n_up == 1 && b.n_up == 1);
	node_stop(&a);
	node_stop(&b);
}

Test(conn, asks_again_when_the_adopt_ring_is_full)
{
	uint16_t port = free_port();

	node_init(&a, "alpha", "tcp", 0);
	node_init(&b, "beta", "tcp", port);
	node_dials(&a, port);
	a.rails[0].is_full = true;
	node_start(&b);
	node_start(&a);
	until(&a, &b, a.rails[0].n_qps == 2);
	turns(&a, &b, 50);
	cr_assert(a.n_up == 0);
	cr_assert(conn_next_timer(a.conn) <= now_ns + 1000000, "nobody kicks conn when there is room");
	a.rails[0].is_full = false;
	until(&a, &b, a.n_up == 1 && b.n_up == 1);
	node_stop(&a);
	node_stop(&b);
}

Test(conn, reports_a_refused_connection_and_dials_again_within_the_delay)
{
	uint16_t port = free_port();
	char expected[64];
	uint32_t n_failures;

	node_init(&a, "alpha", "tcp", 0);
	node_dials(&a, port);
	node_start(&a);
	until(&a, NULL, info_of(&a, 0).n_failures == 1 && info_of(&a, 0).state == CONN_DOWN);
	snprintf(expected, sizeof(expected), "connect 127.0.0.1:%u: connection refused", port);
	cr_assert_str_eq(info_of(&a, 0).last_error, expected);
	cr_assert(conn_next_timer(a.conn) > now_ns && conn_next_timer(a.conn) <= now_ns + SEC);
	turns(&a, NULL, 50);
	n_failures = info_of(&a, 0).n_failures;
	cr_assert(n_failures == 1, "dialled before its time");
	cr_assert(a.n_faults == 1 && a.fault.evidence == RAIL_EV_PEER && a.fault.status == RY_ERR_RAIL);
	node_init(&b, "beta", "tcp", port);
	node_start(&b);
	now_ns += SEC;
	until(&a, &b, a.n_up == 1 && b.n_up == 1);
	cr_assert_str_eq(info_of(&a, 0).last_error, "");
	node_stop(&a);
	node_stop(&b);
}

/* While control looks at one failure the dialler tells no other. */
Test(conn, tells_one_failed_attempt_at_a_time)
{
	node_init(&a, "alpha", "tcp", 0);
	node_dials(&a, free_port());
	node_start(&a);
	a.is_keeping_fault = true;
	for (uint32_t i = 1; i <= 4; i++) {
		until(&a, NULL, info_of(&a, 0).n_failures == i);
		turns(&a, NULL, 20);
		cr_assert_eq(a.n_faults, 1u);
		now_ns += SEC;
	}
	a.is_keeping_fault = false;
	control_send(&a, &a.kept_fault->m, MSG_DIAL_FAULT_SEEN);
	until(&a, NULL, info_of(&a, 0).n_failures == 6 || (now_ns += SEC / 4) == 0);
	cr_assert_geq(a.n_faults, 2u);
	cr_assert(a.fault.store_idx == 0 && a.fault.rail_idx == 0);
	node_stop(&a);
}

Test(conn, goes_down_step_by_step_when_the_peer_is_killed_and_comes_up_anew)
{
	uint32_t epoch;

	bring_up(&a, &b);
	epoch = a.last_epoch;
	a.is_slow_to_quiesce = true;
	node_stop(&b);
	until(&a, NULL, a.n_down == 1);
	cr_assert(a.down_status == RY_ERR_RAIL && a.down_reason == 0);
	cr_assert(strstr(a.down_cause, "closed by the peer"), "%s", a.down_cause);
	cr_assert_eq(a.down_evidence, RAIL_EV_PEER, "who closes is there");
	now_ns += 5 * SEC;
	turns(&a, NULL, 50);
	cr_assert(a.rails[0].n_released == 0 && a.rails[0].n_qps == 2, "released before QUIESCED");
	cr_assert(info_of(&a, 0).state == CONN_CLOSING);
	a.rails[0].is_held = true;
	control_quiesce(&a);
	turns(&a, NULL, 50);
	cr_assert(a.rails[0].n_cmds == 2 && a.rails[0].n_qps == 2, "closed before RELEASED");
	a.rails[0].is_held = false;
	until(&a, NULL, a.rails[0].n_qps == 0 && a.rails[0].n_released == 2);
	node_start(&b);
	now_ns += SEC;
	until(&a, &b, a.n_up == 2 && b.n_up == 2);
	cr_assert(a.last_epoch != epoch);
	cr_assert(info_of(&a, 0).n_connects == 2);
	node_stop(&a);
	node_stop(&b);
}

Test(conn, takes_the_pair_down_when_one_qp_fails)
{
	bring_up(&a, &b);
	a.pair->qps[1]->fail_status = WC_ERR_RETRY;
	a.pair->qps[1]->state = QP_FAILED;
	until(&a, &b, a.n_down == 1 && b.n_down == 1);
	cr_assert_str_eq(a.down_cause, "rail r0: QP 1 to node beta failed: retries exceeded");
	cr_assert(a.down_status == RY_ERR_RAIL && b.down_status == RY_ERR_RAIL);
	/* Our own decision is announced: one verdict for all QPs, here, and none there. */
	cr_assert(a.down_reason == 0 && a.down_evidence == RAIL_EV_PATH);
	cr_assert(b.down_reason == WIRE_BYE_REBUILD && b.down_evidence == RAIL_EV_NONE);
	until(&a, &b, a.rails[0].n_qps == 0 && b.rails[0].n_qps == 0);
	now_ns += SEC;
	until(&a, &b, a.n_up == 2 && b.n_up == 2);
	node_stop(&a);
	node_stop(&b);
}

Test(conn, fails_bring_up_when_the_transport_cannot_make_a_qp)
{
	uint16_t port = free_port();

	node_init(&a, "alpha", "tcp", 0);
	node_init(&b, "beta", "tcp", port);
	node_dials(&a, port);
	b.rails[0].is_connect_bad = true;
	node_start(&b);
	node_start(&a);
	until(&a, &b, info_of(&a, 0).n_failures == 1 && info_of(&a, 0).state == CONN_DOWN);
	cr_assert(a.n_up == 0 && b.n_up == 0 && a.n_down == 0, "a pair that was never up does not go down");
	until(&a, &b, a.rails[0].n_qps == 0);
	b.rails[0].is_connect_bad = false;
	now_ns += SEC;
	until(&a, &b, a.n_up == 1 && b.n_up == 1);
	node_stop(&a);
	node_stop(&b);
}

/* ---- BYE ---- */

static void kill_with(uint8_t reason)
{
	struct pair_kill kill;

	bring_up(&a, &b);
	control_kill(&a, &kill, a.pair, reason);
	until(&a, &b, a.n_down == 1 && b.n_down == 1);
	cr_assert(a.down_reason == reason && b.down_reason == reason);
	cr_assert(b.down_status == RY_ERR_RAIL);
	until(&a, &b, a.rails[0].n_released == 2 && b.rails[0].n_released == 2);
}

Test(conn, rebuild_comes_up_again_at_once)
{
	uint32_t epoch_a, epoch_b;

	kill_with(WIRE_BYE_REBUILD);
	epoch_a = a.last_epoch;
	epoch_b = b.last_epoch;
	until(&a, &b, a.n_up == 2 && b.n_up == 2); /* the clock stands still */
	cr_assert(a.last_epoch != epoch_a && b.last_epoch != epoch_b);
	cr_assert(info_of(&a, 0).n_failures == 0, "an announced rebuild counts nothing");
	node_stop(&a);
	node_stop(&b);
}

Test(conn, the_acceptor_may_ask_for_the_rebuild)
{
	struct pair_kill kill;

	bring_up(&a, &b);
	control_kill(&b, &kill, b.accepted, WIRE_BYE_REBUILD);
	until(&a, &b, a.n_down == 1 && b.n_down == 1 && a.n_up == 2 && b.n_up == 2);
	cr_assert(a.down_reason == WIRE_BYE_REBUILD);
	node_stop(&a);
	node_stop(&b);
}

Test(conn, shutdown_is_announced_and_waits_before_the_next_dial)
{
	kill_with(WIRE_BYE_SHUTDOWN);
	turns(&a, &b, 200);
	cr_assert(a.n_up == 1);
	now_ns += SEC;
	until(&a, &b, a.n_up == 2);
	node_stop(&a);
	node_stop(&b);
}

Test(conn, kill_of_another_epoch_does_nothing)
{
	struct pair_kill kill;

	bring_up(&a, &b);
	control_kill(&a, &kill, a.pair, WIRE_BYE_IDLE);
	kill.pair_epoch++;
	turns(&a, &b, 200);
	cr_assert(a.n_down == 0 && b.n_down == 0);
	node_stop(&a);
	node_stop(&b);
}

Test(conn, leaves_no_descriptor_behind)
{
	struct pair_kill kill;
	int n_fds;

	bring_up(&a, &b);
	n_fds = count_fds();
	for (int i = 2; i <= 101; i++) {
		control_kill(i & 1 ? &a : &b, &kill, i & 1 ? a.pair : b.accepted, WIRE_BYE_REBUILD);
		until(&a, &b, a.n_up == i && b.n_up == i);
	}
	until(&a, &b, count_fds() == n_fds);
	node_stop(&a);
	node_stop(&b);
}

/* ---- keepalive ---- */

Test(conn, keeps_an_idle_pair_alive)
{
	bring_up(&a, &b);
	for (int i = 0; i < 60; i++) {
		now_ns += SEC;
		turns(&a, &b, 20);
	}
	cr_assert(a.n_down == 0 && b.n_down == 0);
	node_stop(&a);
	node_stop(&b);
}

Test(conn, declares_a_silent_peer_dead_after_its_time)
{
	bring_up(&a, &b);
	cr_assert(conn_next_timer(a.conn) <= now_ns + 5 * SEC);
	now_ns += 5 * SEC;
	turns(&a, NULL, 20); /* asks; b does not run */
	now_ns += 5 * SEC - 1;
	turns(&a, NULL, 20);
	cr_assert(a.n_down == 0);
	cr_assert(conn_next_timer(a.conn) == now_ns + 1);
	now_ns += 1;
	turns(&a, NULL, 20);
	cr_assert(a.n_down == 1 && a.down_status == RY_ERR_RAIL && a.down_reason == 0);
	cr_assert(strstr(a.down_cause, "silent for 10000 ms"), "%s", a.down_cause);
	node_stop(&a);
	node_stop(&b);
}

Test(conn, asks_before_it_judges_after_a_jump_of_the_clock)
{
	bring_up(&a, &b);
	now_ns += 3600 * SEC;
	turns(&a, &b, 50);
	cr_assert(a.n_down == 0 && b.n_down == 0);
	node_stop(&a);
	node_stop(&b);
}

/* ---- MSG_DIAL ---- */

Test(conn, dials_when_control_asks)
{
	struct dial_event dial = {.store_idx = 0, .rail_idx = 9}, unknown = {.store_idx = 7};
	uint16_t port = free_port();

	node_init(&a, "alpha", "tcp", 0);
	node_dials(&a, port);
	node_start(&a);
	until(&a, NULL, info_of(&a, 0).n_failures == 1);
	control_send(&a, &unknown.m, MSG_DIAL);
	control_send(&a, &dial.m, MSG_DIAL);
	until(&a, NULL, a.n_dial_failed == 2);
	cr_assert(info_of(&a, 0).n_failures == 2, "MSG_DIAL did not dial");
	cr_assert(dial.status == RY_ERR_RAIL && strstr(dial.cause, "refused"));
	cr_assert(unknown.status == RY_ERR_INVALID);
	node_init(&b, "beta", "tcp", port);
	node_start(&b);
	control_send(&a, &dial.m, MSG_DIAL);
	until(&a, &b, a.n_dial_done == 1 && a.n_up == 1);
	cr_assert(dial.rail_idx == 0);
	control_send(&a, &dial.m, MSG_DIAL); /* already connected */
	until(&a, &b, a.n_dial_done == 2);
	cr_assert(dial.status == RY_OK && a.n_up == 1);
	node_stop(&a);
	node_stop(&b);
}

/* ---- configuration ---- */

Test(conn, says_which_rail_cannot_listen_and_why)
{
	uint16_t port = free_port();
	char message[256] = "";

	node_init(&a, "alpha", "tcp", port);
	node_init(&b, "beta", "tcp", port);
	node_start(&a);
	cr_assert(node_create(&b, 64, false, message) == -EADDRINUSE);
	cr_assert(strstr(message, "rail r0: listen on 127.0.0.1") && strstr(message, "in use"), "%s", message);
	node_stop(&a);
}

Test(conn, refuses_an_endpoint_without_its_rail)
{
	char message[256] = "";

	node_init(&a, "alpha", "tcp", 0);
	node_dials(&a, 7471);
	snprintf(a.conf.stores[0].endpoints[0].rail, RY_NAME_MAX_BYTES, "r9");
	cr_assert(node_create(&a, 64, false, message) == -EINVAL);
	cr_assert(strstr(message, "store0") && strstr(message, "r9"), "%s", message);
}

Test(conn, connects_over_ipv6)
{
	uint16_t port = free_port();
	char message[256] = "";

	node_init(&a, "alpha", "tcp", 0);
	node_init(&b, "beta", "tcp", port);
	snprintf(a.conf.rails[0].address, sizeof(a.conf.rails[0].address), "::1");
	snprintf(b.conf.rails[0].address, sizeof(b.conf.rails[0].address), "::1");
	node_dials(&a, port);
	if (node_create(&b, 4096, false, message) < 0)
		cr_skip_test("no IPv6 loopback here: %s", message);
	node_start(&a);
	until(&a, &b, a.n_up == 1 && b.n_up == 1);
	node_stop(&a);
	node_stop(&b);
}

/* ---- self links ---- */

static void self_up(void)
{
	char message[256];

	node_init(&a, "alpha", "mock", 7471);
	a.conf.n_stores = 1;
	a.conf.stores[0].is_self = true;
	cr_assert(node_create(&a, 4096, true, message) == 0, "%s", message);
	until(&a, NULL, a.n_up == 2);
}

Test(conn, links_this_node_with_itself_without_sockets_or_clock)
{
	self_up();
	cr_assert(a.pair->is_self && a.accepted->is_self && a.pair->store_idx == 0 && a.accepted->store_idx == 0xffff);
	cr_assert(a.pair->n_qps == 2 && a.accepted->n_qps == 2 && a.rails[0].n_qps == 4);
	for (int i = 0; i < 2; i++)
		cr_assert(a.pair->qps[i]->loop_peer == a.accepted->qps[i] &&
			  a.accepted->qps[i]->loop_peer == a.pair->qps[i]);
	cr_assert(a.pair->node_id == 'a');
	node_stop(&a);
}

Test(conn, carries_metadata_between_both_ends_of_a_self_link)
{
	static struct meta_buf tx;

	self_up();
	a.is_keeping_bufs = true;
	tx.len_bytes = wire_enc_lookup(tx.data, 41, "key", 3, 0);
	tx.pair_idx = a.pair->idx;
	tx.pair_epoch = a.pair->epoch;
	control_send(&a, &tx.m, MSG_META_TX);
	until(&a, NULL, a.n_rx == 1 && a.n_sent == 1);
	cr_assert(a.rx_pairs[0] == a.accepted->idx && a.rx_types[0] == WIRE_META_LOOKUP && a.rx_ids[0] == 41);
	cr_assert(a.rx[0]->pair_epoch == a.accepted->epoch && !memcmp(a.rx[0]->data, tx.data, tx.len_bytes));
	/* The reply travels in the buffer of the request. */
	a.rx[0]->len_bytes =
		wire_enc_fixed(a.rx[0]->data, WIRE_META_ERROR, sizeof(struct wire_meta), 41, RY_ERR_NOT_FOUND);
	control_send(&a, &a.rx[0]->m, MSG_META_REPLY);
	until(&a, NULL, a.n_rx == 2);
	cr_assert(a.rx_pairs[1] == a.pair->idx && a.rx_types[1] == WIRE_META_ERROR && a.rx_ids[1] == 41);
	control_send(&a, &a.rx[1]->m, MSG_META_DROP);
	turns(&a, NULL, 5);
	node_stop(&a);
}

Test(conn, self_link_replies_need_no_buffer)
{
	static struct meta_buf request, tx[16];

	self_up();
	a.is_keeping_bufs = true;
	request.len_bytes = wire_enc_lookup(request.data, 77, "key", 3, 0);
	request.pair_idx = a.pair->idx;
	request.pair_epoch = a.pair->epoch;
	control_send(&a, &request.m, MSG_META_TX);
	until(&a, NULL, a.n_rx == 1);
	/* The requester's end has all the buffers it may have. */
	for (int i = 0; i < 16; i++) {
		tx[i].len_bytes = wire_enc_lookup(tx[i].data, (uint64_t)i, "key", 3, 0);
		tx[i].pair_idx = a.accepted->idx;
		tx[i].pair_epoch = a.accepted->epoch;
		control_send(&a, &tx[i].m, MSG_META_TX);
	}
	until(&a, NULL, a.n_rx == 17);
	wire_enc_fixed(a.rx[0]->data, WIRE_META_ERROR, sizeof(struct wire_meta), 77, RY_ERR_NOT_FOUND);
	a.rx[0]->len_bytes = sizeof(struct wire_meta);
	control_send(&a, &a.rx[0]->m, MSG_META_REPLY);
	until(&a, NULL, a.n_rx == 18);
	cr_assert(a.rx_ids[17] == 77 && a.rx_pairs[17] == a.pair->idx);
	node_stop(&a);
}

Test(conn, self_link_waits_for_buffers_and_loses_nothing)
{
	static struct meta_buf tx[100];

	self_up();
	a.is_keeping_bufs = true;
	/* More than may wait in a link's output: nothing stays on its account. */
	for (int round = 0; round < 3; round++) {
		a.n_rx = a.n_sent = 0;
		for (int i = 0; i < 100; i++) {
			tx[i].len_bytes = wire_enc_lookup(tx[i].data, (uint64_t)i, "key", 3, 0);
			tx[i].pair_idx = a.accepted->idx;
			tx[i].pair_epoch = a.accepted->epoch;
			control_send(&a, &tx[i].m, MSG_META_TX);
		}
		turns(&a, NULL, 50);
		cr_assert(a.n_rx > 0 && a.n_rx < 100 && a.n_sent == a.n_rx);
		for (int i = 0; i < 100; i++) {
			until(&a, NULL, a.n_rx > i);
			cr_assert(a.rx_ids[i] == (uint64_t)i && a.rx_pairs[i] == a.pair->idx);
			control_send(&a, &a.rx[i]->m, MSG_META_DROP);
		}
		cr_assert(a.n_rx == 100 && a.n_sent == 100 && a.n_unsent == 0);
	}
	node_stop(&a);
}

Test(conn, self_link_goes_down_as_one_and_comes_back)
{
	struct pair_kill kill;

	self_up();
	control_kill(&a, &kill, a.accepted, WIRE_BYE_REBUILD);
	until(&a, NULL, a.n_down == 2);
	cr_assert(a.down_reason == WIRE_BYE_REBUILD);
	until(&a, NULL, a.n_up == 4);
	cr_assert(a.rails[0].n_qps == 4 && a.rails[0].n_released == 4);
	node_stop(&a);
}

Test(conn, self_link_closes_no_end_while_a_rail_has_the_other)
{
	struct pair_kill kill;

	self_up();
	a.is_slow_to_quiesce = true;
	control_kill(&a, &kill, a.pair, WIRE_BYE_REBUILD);
	until(&a, NULL, a.n_down == 2);
	control_quiesce(&a);
	until(&a, NULL, a.rails[0].n_released == 2);
	turns(&a, NULL, 20);
	cr_assert(a.rails[0].n_qps == 4);
	control_quiesce(&a);
	until(&a, NULL, a.n_up == 4 && a.rails[0].n_released == 4);
	node_stop(&a);
}

/* ---- the thread ---- */

struct runner {
	struct node *node;
	uint32_t stop;
};

static void *run(void *arg)
{
	struct runner *r = arg;

	conn_run(r->node->conn, &r->stop);
	return NULL;
}

/* a's thread runs by itself; this plays its rail, its control and all of b, for at most 5 s of real time. */
static void run_beside(struct node *thread_node, struct node *other, const int *count, int wanted)
{
	uint64_t end_ns = clock_ns() + 5 * SEC;

	while (*count < wanted) {
		void *m;

		now_ns = clock_ns();
		cr_assert(now_ns < end_ns, "the thread is stuck");
		node_turn(other);
		rail_turn(&thread_node->rails[0]);
		waker_kick(&thread_node->conn_waker);
		while ((m = spsc_pop(thread_node->to_control)))
			control_take(thread_node, m);
	}
}

Test(conn, runs_as_a_thread_and_sleeps_until_something_happens)
{
	struct runner r = {.node = &a};
	struct pair_kill kill;
	pthread_t thread;

	now_ns = clock_ns();
	bring_up(&a, &b);
	cr_assert(pthread_create(&thread, NULL, run, &r) == 0);
	/* A kill reaches the thread by ring; the rebuilt pair needs its sockets and state words too. */
	control_kill(&a, &kill, a.pair, WIRE_BYE_REBUILD);
	run_beside(&a, &b, &a.n_up, 2);
	run_beside(&a, &b, &b.n_up, 2);
	/* Data of the peer wakes it without a kick. */
	control_kill(&b, &kill, b.accepted, WIRE_BYE_REBUILD);
	run_beside(&a, &b, &a.n_up, 3);
	__atomic_store_n(&r.stop, 1, __ATOMIC_RELEASE);
	waker_kick(&a.conn_waker);
	pthread_join(thread, NULL);
	until(NULL, &b, b.n_down == 3 && b.down_reason == WIRE_BYE_SHUTDOWN);
	node_stop(&a);
	node_stop(&b);
}
