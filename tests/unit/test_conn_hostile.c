/* SPDX-License-Identifier: BSD-3-Clause */
/* Peers that mean harm: absurd limits, names for logs, floods of connections, two nodes of one name, and every message
 * in every state of a connection. */
#include "conn_raw.h"

#include "../support/capture.h"
#include "daemon/conn_priv.h"

static struct node a;

static void listening(void)
{
	node_init(&a, "alpha", "tcp", free_port());
	node_start(&a);
}

/* Says hello; the answer. The socket stays open in *fd. */
static struct wire_hello answer_to(const struct wire_hello *hello, int *fd)
{
	struct wire_hello answer;

	*fd = raw_connect(a.conf.rails[0].port);
	raw_send(*fd, hello, sizeof(*hello));
	cr_assert(raw_read(&a, *fd, &answer, sizeof(answer)));
	return answer;
}

static void refused(const struct wire_hello *hello, uint32_t status)
{
	int fd;
	struct wire_hello answer = answer_to(hello, &fd);

	cr_assert_eq(answer.status, status, "status %u", answer.status);
	cr_assert(raw_is_closed(&a, fd));
	close(fd);
}

/* ---- HELLO ---- */

Test(conn_hostile, absurd_limits_are_cut_to_ours)
{
	struct wire_hello hello = raw_hello(WIRE_CONN_BOOTSTRAP), answer;
	int fd, data_fd;

	listening();
	hello.n_qps = hello.read_credits = hello.max_parts = UINT16_MAX;
	hello.max_msg_bytes = hello.max_data_bytes = hello.features = UINT32_MAX;
	answer = answer_to(&hello, &fd);
	cr_assert_eq(answer.status, RY_OK);
	cr_assert_eq(answer.n_qps, 2, "as we would have it");
	cr_assert(answer.read_credits == RAIL_CREDITS && answer.max_parts == WIRE_PARTS_MAX);
	hello.kind = WIRE_CONN_DATA;
	hello.token = answer.token;
	hello.n_qps = 2;
	data_fd = raw_connect(a.conf.rails[0].port);
	raw_send(data_fd, &hello, sizeof(hello));
	cr_assert(raw_read(&a, data_fd, &answer, sizeof(answer)) && answer.status == RY_OK);
	cr_assert_eq(a.conn->links[a.conn->live[0]].pair.qps[0]->req.peer_credits, RAIL_CREDITS, "room for no more");
	close(data_fd);
	close(fd);
	node_stop(&a);
}

Test(conn_hostile, limits_that_are_too_small_are_refused)
{
	struct wire_hello hello;

	listening();
	for (int i = 0; i < 5; i++) {
		hello = raw_hello(WIRE_CONN_BOOTSTRAP);
		if (i == 0)
			hello.n_qps = 0;
		else if (i == 1)
			hello.read_credits = 0;
		else if (i == 2)
			hello.max_parts = WIRE_PARTS_MAX - 1;
		else if (i == 3)
			hello.max_msg_bytes = WIRE_MSG_BYTES - 1;
		else
			hello.max_data_bytes = WIRE_DATA_MAX_BYTES - 1;
		refused(&hello, RY_ERR_PROTOCOL);
	}
	cr_assert_eq(conn_info(a.conn, NULL, 0), 0, "a row is left");
	node_stop(&a);
}

/* A line of the log, a terminal and JSON show them. */
Test(conn_hostile, names_that_could_forge_a_line_are_refused)
{
	static const char *const names[] = {
		"x\n2026-01-01T00:00:00Z error all is lost", "\x1b[2J", "a b", "\xff\xfe", "\x7f"};
	struct wire_hello hello;

	listening();
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		hello = raw_hello(WIRE_CONN_BOOTSTRAP);
		snprintf(hello.node_name, sizeof(hello.node_name), "%s", names[i]);
		refused(&hello, RY_ERR_PROTOCOL);
		hello = raw_hello(WIRE_CONN_BOOTSTRAP);
		snprintf(hello.rail_name, sizeof(hello.rail_name), "%s", names[i]);
		refused(&hello, RY_ERR_PROTOCOL);
	}
	node_stop(&a);
}

Test(conn_hostile, a_hello_with_one_byte_changed_is_answered_or_closed)
{
	struct wire_hello hello;
	int n_fds;

	listening();
	n_fds = count_fds();
	for (size_t i = 0; i < sizeof(hello); i++) {
		int fd = raw_connect(a.conf.rails[0].port);

		hello = raw_hello(WIRE_CONN_BOOTSTRAP);
		((uint8_t *)&hello)[i] ^= 0xff;
		raw_send(fd, &hello, sizeof(hello));
		turns(&a, NULL, 10);
		close(fd);
		turns(&a, NULL, 10);
		now_ns += 10 * SEC;
		turns(&a, NULL, 10);
	}
	until(&a, NULL, conn_info(a.conn, NULL, 0) == 0);
	cr_assert_eq(count_fds(), n_fds);
	cr_assert(a.n_up == 0 && a.rails[0].n_qps == 0);
	node_stop(&a);
}

/* ---- floods ---- */

/* A thousand connections, most of them silent: each is closed, the places come back, and a pair that is up stays up. */
Test(conn_hostile, a_thousand_connections_leave_nothing_and_harm_nobody)
{
	struct wire_hello hello = raw_hello(WIRE_CONN_BOOTSTRAP);
	struct wire_meta answer;
	int data_fd, fd, n_fds, fds[50], late;

	listening();
	fd = raw_pair(&a, 1, &data_fd);
	n_fds = count_fds();
	for (int round = 0; round < 20; round++) {
		for (int i = 0; i < 50; i++) {
			fds[i] = raw_connect(a.conf.rails[0].port);
			if (i % 5 == 1)
				raw_send(fds[i], "GET / HTTP/1.1\r\n", 16);
			else if (i % 5 == 2)
				raw_send(fds[i], &hello, 100);
		}
		turns(&a, NULL, 10);
		raw_meta(fd, WIRE_META_KEEPALIVE, sizeof(answer), (uint64_t)round, RY_OK);
		cr_assert(raw_read(&a, fd, &answer, sizeof(answer)) && answer.request_id == (uint64_t)round);
		for (int i = 0; i < 50; i++)
			close(fds[i]);
		now_ns += SEC;
	}
	now_ns += 2 * SEC;
	until(&a, NULL, a.conn->n_greets == 0);
	cr_assert_eq(count_fds(), n_fds);
	cr_assert(a.n_up == 1 && a.n_down == 0, "the pair that was up");
	hello.node_id++;
	cr_assert_eq(answer_to(&hello, &late).status, RY_OK);
	close(late);
	close(fd);
	close(data_fd);
	node_stop(&a);
}

static int n_connects;

static void connects_and_closes(void)
{
	for (int i = 0; i < n_connects; i++) {
		close(raw_connect(a.conf.rails[0].port));
		if (i % 32 == 31)
			turns(&a, NULL, 4);
	}
	until(&a, NULL, a.conn->n_greets == 0);
	turns(&a, NULL, 4);
}

/* Who only looks whether the port is open is no trouble; a flood of them is told of once, and all are counted. */
Test(conn_hostile, a_flood_of_connections_that_say_nothing_is_told_of_once)
{
	static char text[1 << 14];

	listening();
	log_set_level(LOG_LEVEL_WARN);
	n_connects = 99;
	capture(connects_and_closes, text, sizeof(text));
	cr_assert_str_eq(text, "");
	n_connects = 500;
	capture(connects_and_closes, text, sizeof(text));
	cr_assert_not_null(
		strstr(text, "conn: hello: 100 connections within a minute ended before they said it"), "%s", text);
	cr_assert_null(strchr(strchr(text, '\n') + 1, '\n'), "once: %s", text);
	cr_assert_eq(stat_get(&a.counters.accepted), 599);
	now_ns += 59 * SEC;
	capture(connects_and_closes, text, sizeof(text));
	cr_assert_str_eq(text, "");
	now_ns += 2 * SEC;
	capture(connects_and_closes, text, sizeof(text));
	cr_assert_not_null(strstr(text, "connections within a minute ended"), "it goes on: %s", text);
	node_stop(&a);
}

/* ---- two nodes of one name ---- */

Test(conn_hostile, the_later_of_two_nodes_of_one_name_stays)
{
	struct wire_hello hello = raw_hello(WIRE_CONN_BOOTSTRAP);
	int first, first_data, second, second_data;

	listening();
	first = raw_pair(&a, 1, &first_data);
	second = raw_pair(&a, 2, &second_data);
	until(&a, NULL, a.n_down == 1);
	close(first);
	close(first_data);
	for (int i = 0; i < 10; i++) {
		refused(&hello, RY_ERR_DENIED);
		now_ns += SEC;
	}
	cr_assert(a.n_up == 2 && a.n_down == 1, "%d went down: they take turns", a.n_down);
	/* When the later one has gone, the name is free. */
	close(second);
	close(second_data);
	until(&a, NULL, a.n_down == 2 && conn_info(a.conn, NULL, 0) == 0);
	first = raw_pair(&a, 1, &first_data);
	close(first);
	close(first_data);
	node_stop(&a);
}

/* A node that is restarted again and again is none of these. */
Test(conn_hostile, restarts_are_not_refused)
{
	int fd, data_fd, old = -1, old_data = -1;

	listening();
	for (uint64_t i = 1; i <= 12; i++) {
		fd = raw_pair(&a, i, &data_fd);
		until(&a, NULL, a.n_down == (int)i - 1);
		close(old);
		close(old_data);
		old = fd;
		old_data = data_fd;
	}
	close(old);
	close(old_data);
	node_stop(&a);
}

/* ---- every message in every state ---- */

static void send_any(int fd, uint16_t type, uint32_t bytes)
{
	alignas(8) uint8_t m[512] = {0};
	struct wire_meta *h = (void *)m;

	h->len_bytes = bytes - (uint32_t)sizeof(h->len_bytes);
	h->type = type;
	h->request_id = 5;
	(void)!send(fd, m, bytes, MSG_NOSIGNAL);
}

/* Of every type and several lengths, while the pair comes up: all but KEEPALIVE end it, and nothing reaches control. */
Test(conn_hostile, nothing_but_keepalive_while_a_pair_comes_up)
{
	static const uint32_t lengths[] = {24, 32, 40, 96, 120, 500};
	struct wire_hello hello = raw_hello(WIRE_CONN_BOOTSTRAP);
	int fd;

	listening();
	for (uint16_t type = 0; type <= 17; type++) {
		for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
			bool is_fine = lengths[i] == 24 && (type == WIRE_META_READY || type == WIRE_META_KEEPALIVE ||
								   type == WIRE_META_KEEPALIVE_REPLY);

			cr_assert_eq(answer_to(&hello, &fd).status, RY_OK);
			send_any(fd, type, lengths[i]);
			turns(&a, NULL, 20);
			if (is_fine)
				cr_assert_eq(conn_info(a.conn, NULL, 0), 1, "type %u", type);
			else
				until(&a, NULL, conn_info(a.conn, NULL, 0) == 0);
			close(fd);
			until(&a, NULL, conn_info(a.conn, NULL, 0) == 0);
			cr_assert(a.n_rx == 0 && a.n_up == 0, "type %u of %u bytes reached control", type, lengths[i]);
		}
	}
	node_stop(&a);
}

/* The same on a pair that is up: an ERROR, a BYE, or dropped; control gets checked messages only (control_rx). */
Test(conn_hostile, every_message_on_a_pair_that_is_up)
{
	static const uint32_t lengths[] = {24, 31, 32, 40, 96, 120, 224, 500};
	int fd, data_fd, n_fds;

	listening();
	n_fds = count_fds();
	for (uint16_t type = 0; type <= 17; type++) {
		for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
			fd = raw_pair(&a, 1, &data_fd);
			for (int k = 0; k < 3; k++)
				send_any(fd, type, lengths[i]);
			turns(&a, NULL, 20);
			close(fd);
			close(data_fd);
			until(&a, NULL, a.n_down == a.n_up && conn_info(a.conn, NULL, 0) == 0);
		}
	}
	cr_assert_eq(a.conn->n_free_bufs, RX_BUFS, "buffers are lost");
	cr_assert_eq(count_fds(), n_fds);
	node_stop(&a);
}

/* A message that is cut off anywhere, then silence: the keepalive ends the pair, and its buffer comes back. */
Test(conn_hostile, half_a_message_and_silence)
{
	alignas(8) uint8_t m[256];
	uint32_t len = wire_enc_lookup(m, 1, "a key of some bytes", 19, 0);

	listening();
	for (uint32_t cut = 1; cut < len; cut++) {
		int data_fd, fd = raw_pair(&a, 1, &data_fd);

		raw_send(fd, m, cut);
		turns(&a, NULL, 10);
		now_ns += 5 * SEC;
		turns(&a, NULL, 10);
		now_ns += 6 * SEC;
		until(&a, NULL, a.n_down == (int)cut && conn_info(a.conn, NULL, 0) == 0);
		close(fd);
		close(data_fd);
	}
	cr_assert(a.n_rx == 0 && a.conn->n_free_bufs == RX_BUFS);
	node_stop(&a);
}

/* Requests without end, none of whose answers are taken, from one peer: another one is served all the same. */
Test(conn_hostile, a_peer_that_asks_without_end_starves_nobody)
{
	struct wire_meta h;
	int greedy_data, greedy, fd, data_fd, n_before;
	struct wire_hello hello = raw_hello(WIRE_CONN_BOOTSTRAP), answer, data;

	listening();
	greedy = raw_pair(&a, 1, &greedy_data);
	a.is_keeping_bufs = true; /* control is slow, too */
	for (int i = 0; i < 500; i++) {
		if (send(greedy, &h, 0, 0) == 0)
			send_any(greedy, WIRE_META_PUT_QUERY, sizeof(struct wire_put_query));
		node_turn(&a);
	}
	cr_assert_leq(a.n_rx, (int)LINK_BUFS_MAX, "%d buffers of one link", a.n_rx);
	a.is_keeping_bufs = false;
	n_before = a.n_rx;
	hello.node_id = 78;
	answer = answer_to(&hello, &fd);
	data_fd = raw_connect(a.conf.rails[0].port);
	data = hello;
	data.kind = WIRE_CONN_DATA;
	data.token = answer.token;
	raw_send(data_fd, &data, sizeof(data));
	cr_assert(raw_read(&a, data_fd, &data, sizeof(data)));
	raw_meta(fd, WIRE_META_READY, sizeof(h), 0, RY_OK);
	until(&a, NULL, a.n_up == 2);
	raw_meta(fd, WIRE_META_PUT_QUERY, sizeof(struct wire_put_query), 99, RY_OK);
	until(&a, NULL, a.n_rx > n_before && a.rx_ids[(a.n_rx - 1) % RX_KEEP] == 99);
	close(greedy);
	close(greedy_data);
	close(fd);
	close(data_fd);
	node_stop(&a);
}

/* ---- what the log is told of data messages ---- */

static char said[1 << 14];

/* Half a minute in which the peer answers KEEPALIVE; `peer` is its bootstrap socket. */
static int peer;

static void half_a_minute(void)
{
	struct wire_meta m;

	for (int i = 0; i < 6; i++) {
		now_ns += 5 * SEC;
		turns(&a, NULL, 3);
		while (recv(peer, &m, sizeof(m), 0) == (ssize_t)sizeof(m))
			raw_meta(peer, WIRE_META_KEEPALIVE_REPLY, sizeof(m), m.request_id, RY_OK);
		turns(&a, NULL, 3);
	}
}

static void a_turn(void)
{
	turns(&a, NULL, 2);
}

static int peer_data;

/* Of the only link that is up. */
static struct qp *the_qp(void)
{
	for (uint32_t i = 0; i < a.conn->n_live; i++) {
		struct link *l = &a.conn->links[a.conn->live[i]];

		if (l->state == LINK_UP)
			return l->pair.qps[0];
	}
	cr_assert_fail("no link is up");
	return NULL;
}

/* Each is answered with ERROR. */
static void nonsense(void)
{
	struct wire_meta m;

	for (int i = 0; i < 50; i++) {
		send_any(peer, 99, 40);
		cr_assert(raw_read(&a, peer, &m, sizeof(m)));
		cr_assert(m.type == WIRE_META_ERROR && m.status == RY_ERR_PROTOCOL);
	}
}

static void comes_back(void)
{
	int data_fd;

	close(peer_data);
	peer = raw_pair(&a, 1, &data_fd);
	peer_data = data_fd;
}

static void lost(void)
{
	close(peer);
	until(&a, NULL, a.n_down == 1);
}

Test(conn_hostile, odd_messages_are_told_of_once_a_minute_with_their_number)
{
	struct qp *qp;
	int data_fd;

	listening();
	peer = raw_pair(&a, 1, &data_fd);
	log_set_level(LOG_LEVEL_WARN);
	qp = a.conn->links[a.conn->live[0]].pair.qps[0];
	qp->n_odd = 3;
	capture(a_turn, said, sizeof(said));
	cr_assert_not_null(
		strstr(said, "warn conn: rail r0: node raw sent 3 messages that nothing waits for"), "%s", said);
	qp->n_odd = 1000;
	capture(half_a_minute, said, sizeof(said));
	cr_assert_str_eq(said, "", "told anew too soon");
	capture(half_a_minute, said, sizeof(said));
	cr_assert_not_null(strstr(said, "node raw sent 997 messages"), "%s", said);
	cr_assert_null(strchr(strchr(said, '\n') + 1, '\n'), "once: %s", said);
	/* A request that nobody understands, again and again. */
	capture(nonsense, said, sizeof(said));
	cr_assert_str_eq(said, "");
	cr_assert_eq(stat_get(&a.counters.messages_refused), 50);
	capture(half_a_minute, said, sizeof(said));
	capture(half_a_minute, said, sizeof(said));
	cr_assert_not_null(strstr(said, "node raw sent 50 messages"), "%s", said);
	/* A minute without: no line. Then a few more, just before it leaves. */
	capture(half_a_minute, said, sizeof(said));
	capture(half_a_minute, said, sizeof(said));
	cr_assert_str_eq(said, "");
	qp->n_odd += 7;
	capture(lost, said, sizeof(said));
	cr_assert_not_null(strstr(said, "node raw sent 7 messages"), "%s", said);
	close(data_fd);
	node_stop(&a);
}

/* A peer that leaves before the minute is over takes nothing of it along. */
Test(conn_hostile, odd_messages_of_a_pair_that_ended_are_told_of_with_the_next)
{
	listening();
	peer_data = -1;
	log_set_level(LOG_LEVEL_WARN);
	for (int i = 0; i < 3; i++) {
		comes_back();
		the_qp()->n_odd = 5;
		capture(a_turn, said, sizeof(said));
		cr_assert_eq(strstr(said, "node raw sent 5 messages") != NULL, i == 0, "%s", said);
		the_qp()->n_odd += 100;
		capture(lost, said, sizeof(said));
		cr_assert_null(strstr(said, "messages that nothing waits for"), "too soon: %s", said);
		a.n_down = 0;
	}
	comes_back();
	capture(half_a_minute, said, sizeof(said));
	capture(half_a_minute, said, sizeof(said));
	the_qp()->n_odd = 1;
	capture(a_turn, said, sizeof(said));
	cr_assert_not_null(strstr(said, "node raw sent 311 messages"), "%s", said);
	close(peer_data);
	node_stop(&a);
}
