/* SPDX-License-Identifier: BSD-3-Clause */
/* Peers that are late, foreign, of another version or wrong (conn_accept.c, conn_dial.c, conn_link.c). */
#include "conn_raw.h"
#include "health/rail_health.h"

#include <linux/sockios.h>
#include <sys/ioctl.h>

static struct node a;

static void listening(void)
{
	node_init(&a, "alpha", "tcp", free_port());
	node_start(&a);
}

static void refused(const struct wire_hello *hello, uint32_t status)
{
	struct wire_hello answer;
	int fd = raw_connect(a.conf.rails[0].port);

	raw_send(fd, hello, sizeof(*hello));
	cr_assert(raw_read(&a, fd, &answer, sizeof(answer)));
	cr_assert(answer.status == status, "status %u", answer.status);
	cr_assert(answer.magic == WIRE_MAGIC && answer.major == WIRE_MAJOR);
	cr_assert(raw_is_closed(&a, fd));
	close(fd);
}

/* ---- HELLO ---- */

Test(conn_peer, another_version_is_refused_with_ours_in_the_answer)
{
	struct wire_hello hello = raw_hello(WIRE_CONN_BOOTSTRAP);

	listening();
	hello.major = WIRE_MAJOR + 1;
	refused(&hello, RY_ERR_VERSION);
	node_stop(&a);
}

Test(conn_peer, malformed_hellos_are_refused)
{
	struct wire_hello hello = raw_hello(WIRE_CONN_BOOTSTRAP);

	listening();
	hello.n_qps = 0;
	refused(&hello, RY_ERR_PROTOCOL);
	hello = raw_hello(WIRE_CONN_BOOTSTRAP);
	hello.kind = 9;
	refused(&hello, RY_ERR_PROTOCOL);
	hello = raw_hello(WIRE_CONN_BOOTSTRAP);
	memset(hello.node_name, 'x', sizeof(hello.node_name));
	refused(&hello, RY_ERR_PROTOCOL);
	hello = raw_hello(WIRE_CONN_BOOTSTRAP);
	hello.transport = WIRE_TRANSPORT_VERBS;
	refused(&hello, RY_ERR_INVALID);
	node_stop(&a);
}

Test(conn_peer, a_data_socket_needs_the_token_of_its_own_pair)
{
	struct wire_hello hello = raw_hello(WIRE_CONN_BOOTSTRAP), answer;
	int fd;

	listening();
	fd = raw_connect(a.conf.rails[0].port);
	raw_send(fd, &hello, sizeof(hello));
	cr_assert(raw_read(&a, fd, &answer, sizeof(answer)) && answer.token);
	hello = raw_hello(WIRE_CONN_DATA);
	hello.token = answer.token ^ 1;
	refused(&hello, RY_ERR_NOT_FOUND);
	hello.token = answer.token;
	hello.node_id++;
	refused(&hello, RY_ERR_NOT_FOUND);
	hello.node_id--;
	hello.n_qps = 2;
	hello.qp_idx = 1; /* the pair has one */
	refused(&hello, RY_ERR_NOT_FOUND);
	cr_assert(a.rails[0].n_qps == 0);
	close(fd);
	node_stop(&a);
}

Test(conn_peer, other_protocols_are_closed_at_their_first_bytes)
{
	int fd;

	listening();
	fd = raw_connect(a.conf.rails[0].port);
	raw_send(fd, "GET / HTTP/1.1\r\n", 16);
	cr_assert(raw_is_closed(&a, fd), "no answer, no waiting for 192 bytes");
	close(fd);
	node_stop(&a);
}

Test(conn_peer, a_hello_in_single_bytes_is_put_together)
{
	struct wire_hello hello = raw_hello(WIRE_CONN_BOOTSTRAP), answer;
	int fd;

	listening();
	fd = raw_connect(a.conf.rails[0].port);
	for (size_t i = 0; i < sizeof(hello); i++) {
		raw_send(fd, (const uint8_t *)&hello + i, 1);
		node_turn(&a);
	}
	cr_assert(raw_read(&a, fd, &answer, sizeof(answer)) && answer.status == RY_OK);
	close(fd);
	node_stop(&a);
}

Test(conn_peer, a_slow_hello_times_out)
{
	struct wire_hello hello = raw_hello(WIRE_CONN_BOOTSTRAP);
	int fd;

	listening();
	fd = raw_connect(a.conf.rails[0].port);
	turns(&a, NULL, 20);
	cr_assert(conn_next_timer(a.conn) == now_ns + 2 * SEC);
	now_ns += SEC;
	raw_send(fd, &hello, 100); /* more bytes do not buy more time */
	turns(&a, NULL, 20);
	now_ns += SEC;
	cr_assert(raw_is_closed(&a, fd));
	cr_assert(conn_next_timer(a.conn) == UINT64_MAX);
	close(fd);
	node_stop(&a);
}

Test(conn_peer, unfinished_connections_are_bounded_and_make_room)
{
	struct wire_hello hello = raw_hello(WIRE_CONN_BOOTSTRAP), answer;
	int fds[100], n_before, late;

	listening();
	n_before = count_fds();
	for (int i = 0; i < 100; i++)
		fds[i] = raw_connect(a.conf.rails[0].port);
	turns(&a, NULL, 200);
	cr_assert(count_fds() - n_before == 100 + 64, "%d accepted", count_fds() - n_before - 100);
	cr_assert(!conn_poll(a.conn, now_ns), "busy while it can accept nothing");
	late = raw_connect(a.conf.rails[0].port);
	raw_send(late, &hello, sizeof(hello));
	for (int i = 0; i < 2; i++) {
		now_ns += 2 * SEC;
		turns(&a, NULL, 50);
	}
	cr_assert(raw_read(&a, late, &answer, sizeof(answer)) && answer.status == RY_OK);
	for (int i = 0; i < 100; i++)
		close(fds[i]);
	close(late);
	node_stop(&a);
}

Test(conn_peer, a_pair_that_never_joins_is_forgotten)
{
	struct wire_hello hello = raw_hello(WIRE_CONN_BOOTSTRAP), answer;
	struct wire_bye bye;
	int fd;

	listening();
	fd = raw_connect(a.conf.rails[0].port);
	raw_send(fd, &hello, sizeof(hello));
	cr_assert(raw_read(&a, fd, &answer, sizeof(answer)));
	cr_assert(conn_info(a.conn, NULL, 0) == 1);
	now_ns += 5 * SEC;
	cr_assert(raw_read(&a, fd, &bye, sizeof(bye)));
	cr_assert(bye.h.type == WIRE_META_BYE && bye.reason == WIRE_BYE_REBUILD, "told, not just left");
	cr_assert(raw_is_closed(&a, fd));
	until(&a, NULL, conn_info(a.conn, NULL, 0) == 0);
	cr_assert(a.n_up == 0 && a.n_down == 0);
	close(fd);
	node_stop(&a);
}

Test(conn_peer, a_new_incarnation_ends_the_old_ones_pairs)
{
	int old_data, new_data, old, new;

	listening();
	old = raw_pair(&a, 1, &old_data);
	new = raw_pair(&a, 2, &new_data);
	until(&a, NULL, a.n_down == 1);
	cr_assert(a.down_status == RY_ERR_PEER_RESTARTED, "status %u", a.down_status);
	cr_assert(a.accepted && a.accepted->incarnation == 2);
	cr_assert(raw_is_closed(&a, old) && !recv(old_data, &(char){0}, 1, 0));
	close(old);
	close(old_data);
	close(new);
	close(new_data);
	node_stop(&a);
}

/* ---- the dialler's side ---- */

static void fails_with(const char *text)
{
	until(&a, NULL, info_of(&a, 0).n_failures == 1 && info_of(&a, 0).state == CONN_DOWN);
	cr_assert(strstr(info_of(&a, 0).last_error, text), "%s", info_of(&a, 0).last_error);
	cr_assert(a.n_up == 0 && a.n_down == 0);
}

Test(conn_peer, a_store_that_does_not_answer_times_out_and_is_dialled_again)
{
	int listen_fd, fd = raw_dialled(&a, &listen_fd), again;

	turns(&a, NULL, 20);
	cr_assert(info_of(&a, 0).n_failures == 0 && info_of(&a, 0).state == CONN_DIALLING);
	now_ns += 2 * SEC;
	fails_with("hello 127.0.0.1:");
	cr_assert(a.n_faults == 1 && a.fault.evidence == RAIL_EV_PATH, "silence");
	cr_assert(raw_is_closed(&a, fd));
	now_ns += SEC;
	again = raw_accept(&a, listen_fd);
	close(fd);
	close(again);
	close(listen_fd);
	node_stop(&a);
}

Test(conn_peer, a_refusal_is_told_by_name)
{
	struct wire_hello answer = raw_hello(WIRE_CONN_BOOTSTRAP);
	int listen_fd, fd = raw_dialled(&a, &listen_fd);

	answer.major = 9;
	answer.status = RY_ERR_VERSION;
	raw_send(fd, &answer, sizeof(answer));
	fails_with("refused: VERSION");
	close(fd);
	close(listen_fd);
	node_stop(&a);
}

Test(conn_peer, an_answer_of_another_protocol_ends_the_attempt)
{
	int listen_fd, fd = raw_dialled(&a, &listen_fd);

	raw_send(fd, "220 mail\r\n", 10);
	fails_with("not this protocol");
	close(fd);
	close(listen_fd);
	node_stop(&a);
}

Test(conn_peer, an_answer_without_token_ends_the_attempt)
{
	struct wire_hello answer = raw_hello(WIRE_CONN_BOOTSTRAP);
	int listen_fd, fd = raw_dialled(&a, &listen_fd);

	raw_send(fd, &answer, sizeof(answer));
	fails_with("not the answer to a bootstrap HELLO");
	close(fd);
	close(listen_fd);
	node_stop(&a);
}

/* The peer, which has the pair half made, is told BYE(REBUILD): our reasons are no fault of its path. */
static void is_given_up(int fd)
{
	struct wire_bye bye;

	cr_assert(raw_read(&a, fd, &bye, sizeof(bye)));
	cr_assert(bye.h.type == WIRE_META_BYE && bye.reason == WIRE_BYE_REBUILD);
	cr_assert(raw_is_closed(&a, fd));
}

Test(conn_peer, a_data_socket_that_is_refused_ends_the_attempt)
{
	struct wire_hello answer = raw_hello(WIRE_CONN_BOOTSTRAP), hello;
	int listen_fd, fd = raw_dialled(&a, &listen_fd), data_fd;

	answer.token = 99;
	answer.n_qps = 8; /* more than we asked for: the smaller number holds */
	raw_send(fd, &answer, sizeof(answer));
	data_fd = raw_accept(&a, listen_fd);
	cr_assert(raw_read(&a, data_fd, &hello, sizeof(hello)));
	cr_assert(hello.kind == WIRE_CONN_DATA && hello.token == 99 && hello.qp_idx == 0 && hello.n_qps == 2);
	answer.kind = WIRE_CONN_DATA;
	answer.status = RY_ERR_NOT_FOUND;
	raw_send(data_fd, &answer, sizeof(answer));
	fails_with("refused: NOT_FOUND");
	is_given_up(fd);
	close(data_fd);
	close(fd);
	close(listen_fd);
	node_stop(&a);
}

Test(conn_peer, a_data_socket_that_answers_for_another_pair_ends_the_attempt)
{
	struct wire_hello answer = raw_hello(WIRE_CONN_BOOTSTRAP), hello;
	int listen_fd, fd = raw_dialled(&a, &listen_fd), data_fd;

	answer.token = 99;
	raw_send(fd, &answer, sizeof(answer));
	data_fd = raw_accept(&a, listen_fd);
	cr_assert(raw_read(&a, data_fd, &hello, sizeof(hello)));
	answer.kind = WIRE_CONN_DATA;
	answer.token = 98;
	raw_send(data_fd, &answer, sizeof(answer));
	fails_with("answer for another pair");
	cr_assert(a.rails[0].n_qps == 0);
	is_given_up(fd);
	close(data_fd);
	close(fd);
	close(listen_fd);
	node_stop(&a);
}

/* As a store does that ends in the middle. */
Test(conn_peer, a_data_socket_that_is_closed_ends_the_attempt)
{
	struct wire_hello answer = raw_hello(WIRE_CONN_BOOTSTRAP), hello;
	int listen_fd, fd = raw_dialled(&a, &listen_fd), data_fd;

	answer.token = 99;
	raw_send(fd, &answer, sizeof(answer));
	data_fd = raw_accept(&a, listen_fd);
	cr_assert(raw_read(&a, data_fd, &hello, sizeof(hello)));
	close(data_fd);
	fails_with("data socket to");
	is_given_up(fd);
	close(fd);
	close(listen_fd);
	node_stop(&a);
}

/* ---- metadata ---- */

static int joined(int *data_fd)
{
	listening();
	return raw_pair(&a, 1, data_fd);
}

static void stop_joined(int fd, int data_fd)
{
	close(fd);
	close(data_fd);
	node_stop(&a);
}

/* The node says BYE(PROTOCOL), closes, and tells control so. */
static void is_broken_off(int fd)
{
	struct wire_bye bye;

	cr_assert(raw_read(&a, fd, &bye, sizeof(bye)));
	cr_assert(bye.h.type == WIRE_META_BYE && bye.reason == WIRE_BYE_PROTOCOL);
	cr_assert(raw_is_closed(&a, fd));
	cr_assert(a.n_down == 1 && a.down_reason == WIRE_BYE_PROTOCOL && a.down_status == RY_ERR_PROTOCOL);
}

Test(conn_peer, an_unknown_message_is_answered_with_error_and_the_pair_stays)
{
	alignas(8) uint8_t odd[64] = {0};
	struct wire_meta *h = (void *)odd, answer;
	int data_fd, fd = joined(&data_fd);

	h->len_bytes = sizeof(odd) - sizeof(h->len_bytes);
	h->type = 4711;
	h->request_id = 12;
	raw_send(fd, odd, sizeof(odd));
	cr_assert(raw_read(&a, fd, &answer, sizeof(answer)));
	cr_assert(answer.type == WIRE_META_ERROR && answer.request_id == 12 && answer.status == RY_ERR_PROTOCOL);
	cr_assert(a.n_rx == 0 && a.n_down == 0);
	raw_meta(fd, WIRE_META_PUT_QUERY, sizeof(struct wire_put_query), 13, RY_OK);
	until(&a, NULL, a.n_rx == 1);
	cr_assert(a.rx_ids[0] == 13);
	stop_joined(fd, data_fd);
}

Test(conn_peer, a_malformed_reply_becomes_an_error_of_our_own_request)
{
	alignas(8) uint8_t odd[64] = {0};
	struct wire_meta *h = (void *)odd;
	int data_fd, fd = joined(&data_fd);

	h->len_bytes = sizeof(odd) - sizeof(h->len_bytes);
	h->type = WIRE_META_LOOKUP_REPLY;
	h->request_id = 12;
	raw_send(fd, odd, sizeof(odd));
	until(&a, NULL, a.n_rx == 1);
	cr_assert(a.rx_types[0] == WIRE_META_ERROR && a.rx_ids[0] == 12);
	cr_assert(recv(fd, odd, 1, 0) < 0 && errno == EAGAIN, "an answer was answered");
	stop_joined(fd, data_fd);
}

Test(conn_peer, a_message_larger_than_ours_is_skipped_and_answered)
{
	static uint8_t big[200000];
	struct wire_meta *h = (void *)big, answer;
	int data_fd, fd = joined(&data_fd);
	size_t sent = 0;

	h->len_bytes = sizeof(big) - sizeof(h->len_bytes);
	h->type = WIRE_META_PUT;
	h->request_id = 12;
	while (sent < sizeof(big)) {
		ssize_t n = send(fd, big + sent, sizeof(big) - sent, MSG_NOSIGNAL);

		cr_assert(n > 0 || errno == EAGAIN);
		sent += n > 0 ? (size_t)n : 0;
		node_turn(&a);
	}
	cr_assert(raw_read(&a, fd, &answer, sizeof(answer)));
	cr_assert(answer.type == WIRE_META_ERROR && answer.request_id == 12 && answer.status == RY_ERR_LIMIT);
	raw_meta(fd, WIRE_META_PUT_QUERY, sizeof(struct wire_put_query), 13, RY_OK);
	until(&a, NULL, a.n_rx == 1 && a.rx_ids[0] == 13);
	stop_joined(fd, data_fd);
}

Test(conn_peer, a_length_below_the_header_breaks_the_pair_off)
{
	struct wire_meta h = {.len_bytes = 3, .type = WIRE_META_LOOKUP};
	int data_fd, fd = joined(&data_fd);

	raw_send(fd, &h, sizeof(h));
	is_broken_off(fd);
	stop_joined(fd, data_fd);
}

Test(conn_peer, a_length_above_the_protocols_limit_breaks_the_pair_off)
{
	struct wire_meta h = {.len_bytes = WIRE_META_LIMIT_BYTES, .type = WIRE_META_LOOKUP};
	int data_fd, fd = joined(&data_fd);

	raw_send(fd, &h, sizeof(h));
	is_broken_off(fd);
	stop_joined(fd, data_fd);
}

Test(conn_peer, a_second_ready_breaks_the_pair_off)
{
	int data_fd, fd = joined(&data_fd);

	raw_meta(fd, WIRE_META_READY, sizeof(struct wire_meta), 0, RY_OK);
	is_broken_off(fd);
	stop_joined(fd, data_fd);
}

Test(conn_peer, metadata_before_ready_breaks_the_attempt_off)
{
	struct wire_hello hello = raw_hello(WIRE_CONN_BOOTSTRAP), answer;
	struct wire_bye bye;
	int fd;

	listening();
	fd = raw_connect(a.conf.rails[0].port);
	raw_send(fd, &hello, sizeof(hello));
	cr_assert(raw_read(&a, fd, &answer, sizeof(answer)));
	raw_meta(fd, WIRE_META_PUT_QUERY, sizeof(struct wire_put_query), 1, RY_OK);
	cr_assert(raw_read(&a, fd, &bye, sizeof(bye)) && bye.reason == WIRE_BYE_PROTOCOL);
	cr_assert(a.n_rx == 0 && a.n_down == 0);
	close(fd);
	node_stop(&a);
}

static void says(uint8_t reason)
{
	int data_fd, fd = joined(&data_fd);
	struct wire_bye bye;

	wire_enc_fixed(&bye, WIRE_META_BYE, sizeof(bye), 0, RY_OK);
	bye.reason = reason;
	raw_send(fd, &bye, sizeof(bye));
	until(&a, NULL, a.n_down == 1);
	cr_assert(a.down_reason == reason && a.down_status == RY_ERR_RAIL);
	until(&a, NULL, a.rails[0].n_qps == 0);
	stop_joined(fd, data_fd);
}

Test(conn_peer, every_bye_reason_reaches_control)
{
	for (uint8_t reason = WIRE_BYE_SHUTDOWN; reason <= WIRE_BYE_DRAIN; reason++)
		says(reason);
}

static int bye_fd;

/* The peer's BYE arrives, then a rail sees its data socket die, after conn has looked at its sockets in this turn. */
static void bye_then_death(const struct qp *qp)
{
	struct wire_bye bye;
	int n_unacked = 1;

	wire_enc_fixed(&bye, WIRE_META_BYE, sizeof(bye), 0, RY_OK);
	bye.reason = WIRE_BYE_DRAIN;
	raw_send(bye_fd, &bye, sizeof(bye));
	for (uint64_t end = clock_ns() + PATIENCE_NS; n_unacked && clock_ns() < end;)
		ioctl(bye_fd, SIOCOUTQ, &n_unacked);
	((struct qp *)qp)->fail_status = WC_ERR_PEER_CLOSED;
	((struct qp *)qp)->state = QP_FAILED;
}

Test(conn_peer, a_qp_that_dies_with_the_bye_is_announced_not_lost)
{
	int data_fd;

	bye_fd = joined(&data_fd);
	before_qp_state = bye_then_death;
	until(&a, NULL, a.n_down == 1);
	cr_assert(a.down_reason == WIRE_BYE_DRAIN, "reason %u: %s", a.down_reason, a.down_cause);
	stop_joined(bye_fd, data_fd);
}

Test(conn_peer, keepalives_are_answered_even_in_a_flood)
{
	int data_fd, fd = joined(&data_fd);
	struct wire_meta answer;

	for (int i = 0; i < 2000; i++) {
		raw_meta(fd, WIRE_META_KEEPALIVE, sizeof(struct wire_meta), (uint64_t)i, RY_OK);
		if (i % 50 == 0)
			node_turn(&a);
	}
	for (int i = 0; i < 2000; i++) {
		cr_assert(raw_read(&a, fd, &answer, sizeof(answer)));
		cr_assert(answer.type == WIRE_META_KEEPALIVE_REPLY && answer.request_id == (uint64_t)i);
	}
	cr_assert(a.n_down == 0);
	stop_joined(fd, data_fd);
}

Test(conn_peer, a_peer_that_does_not_take_answers_is_not_read)
{
	static struct meta_buf m[180];
	static uint8_t body[WIRE_META_MAX_BYTES];
	int data_fd, fd = joined(&data_fd), n_puts = 0, n_replies = 0;

	for (int i = 0; i < 180; i++)
		control_send_large(&a, &m[i]);
	turns(&a, NULL, 100);
	cr_assert(a.n_sent < 180, "the socket took all");
	/* More answers than conn stores. */
	for (int i = 0; i < 200; i++)
		raw_meta(fd, WIRE_META_KEEPALIVE, sizeof(struct wire_meta), (uint64_t)i, RY_OK);
	turns(&a, NULL, 100);
	while (n_puts < 180 || n_replies < 200) {
		struct wire_meta h;

		cr_assert(raw_read(&a, fd, &h, sizeof(h)));
		cr_assert(raw_read(&a, fd, body, h.len_bytes + sizeof(h.len_bytes) - sizeof(h)));
		if (h.type == WIRE_META_KEEPALIVE_REPLY)
			cr_assert(h.request_id == (uint64_t)n_replies++);
		else
			n_puts++;
	}
	cr_assert(a.n_sent == 180 && a.n_down == 0);
	stop_joined(fd, data_fd);
}

Test(conn_peer, a_reset_in_the_middle_of_a_message_returns_its_buffer)
{
	struct linger hard = {.l_onoff = 1};
	alignas(8) uint8_t m[64];
	int n_fds;

	listening();
	n_fds = count_fds();
	for (int i = 1; i <= 80; i++) { /* more often than there are buffers */
		int data_fd, fd = raw_pair(&a, 1, &data_fd);

		wire_enc_fixed(m, WIRE_META_PUT_QUERY, sizeof(struct wire_put_query), 1, RY_OK);
		raw_send(fd, m, 30);
		turns(&a, NULL, 5);
		setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
		close(fd);
		close(data_fd);
		until(&a, NULL, a.n_down == i && a.rails[0].n_qps == 0);
		cr_assert(a.down_reason == 0 && a.down_status == RY_ERR_RAIL);
	}
	cr_assert(count_fds() == n_fds);
	node_stop(&a);
}
