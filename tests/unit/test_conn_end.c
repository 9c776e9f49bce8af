/* SPDX-License-Identifier: BSD-3-Clause */
/* Ends that are this node's verdict: what it thinks of the path, and what the peer is told (conn_pair.c). */
#include "conn_raw.h"
#include "health/rail_health.h"

static struct node a, b;

static void is_told(const struct node *n)
{
	cr_assert_eq(n->down_reason, WIRE_BYE_REBUILD, "reason %u: %s", n->down_reason, n->down_cause);
	cr_assert_eq(n->down_evidence, RAIL_EV_NONE);
	cr_assert_eq(info_of(n, 0).n_failures, 0u, "an announced end is no failure");
	cr_assert_eq(n->n_faults, 0u);
}

static void blames_the_path(const struct node *n, const char *why)
{
	cr_assert(strstr(n->down_cause, why), "%s", n->down_cause);
	cr_assert_eq(n->down_reason, 0, "a loss, whose successor must be proven");
	cr_assert_eq(n->down_evidence, RAIL_EV_PATH);
}

/* Nothing of the other comes through to `from`, what `from` says does. */
static void goes_deaf(struct node *from)
{
	now_ns += 5 * SEC;
	turns(from, NULL, 20);
	now_ns += 5 * SEC;
	until(from, NULL, from->n_down == 1);
	blames_the_path(from, "silent for 10000 ms");
}

Test(conn_end, a_peer_that_is_not_heard_is_told_by_the_dialler)
{
	bring_up(&a, &b);
	goes_deaf(&a);
	until(&a, &b, b.n_down == 1);
	is_told(&b);
	node_stop(&a);
	node_stop(&b);
}

Test(conn_end, a_peer_that_is_not_heard_is_told_by_the_acceptor)
{
	bring_up(&a, &b);
	goes_deaf(&b);
	until(&a, &b, a.n_down == 1);
	is_told(&a);
	until(&a, &b, a.n_up == 2 && b.n_up == 2); /* at once: the clock stands still */
	node_stop(&a);
	node_stop(&b);
}

Test(conn_end, a_peer_that_takes_no_bytes_is_told_behind_the_message_it_has_begun)
{
	static struct meta_buf m[180];
	static uint8_t body[WIRE_META_MAX_BYTES];
	int data_fd, fd;
	struct wire_meta h;
	struct wire_bye bye = {.reason = 0};

	node_init(&a, "alpha", "tcp", free_port());
	node_start(&a);
	fd = raw_pair(&a, 1, &data_fd);
	for (int i = 0; i < 180; i++)
		control_send_large(&a, &m[i]);
	turns(&a, NULL, 100);
	cr_assert(a.n_sent < 180, "the socket took all");
	a.is_slow_to_quiesce = true;
	now_ns += 10 * SEC;
	until(&a, NULL, a.n_down == 1);
	blames_the_path(&a, "takes no bytes any more");
	do {
		cr_assert(raw_read(&a, fd, &h, sizeof(h)), "closed without a BYE");
		cr_assert(raw_read(&a, fd, body, h.len_bytes + sizeof(h.len_bytes) - sizeof(h)));
	} while (h.type == WIRE_META_PUT);
	cr_assert_eq(h.type, WIRE_META_BYE);
	memcpy((uint8_t *)&bye + sizeof(h), body, sizeof(bye) - sizeof(h));
	cr_assert_eq(bye.reason, WIRE_BYE_REBUILD);
	close(fd);
	close(data_fd);
	node_stop(&a);
}

/* The answer to HELLO came, the one on the data socket does not. Returns the bootstrap socket. */
static int joining(int *listen_fd, int *data_fd)
{
	struct wire_hello answer = raw_hello(WIRE_CONN_BOOTSTRAP), hello;
	int fd = raw_dialled(&a, listen_fd);

	answer.token = 99;
	raw_send(fd, &answer, sizeof(answer));
	*data_fd = raw_accept(&a, *listen_fd);
	cr_assert(raw_read(&a, *data_fd, &hello, sizeof(hello)));
	return fd;
}

static void stop_joining(int fd, int listen_fd, int data_fd)
{
	close(fd);
	close(data_fd);
	close(listen_fd);
	node_stop(&a);
}

Test(conn_end, an_attempt_that_takes_too_long_is_called_off)
{
	int listen_fd, data_fd, fd = joining(&listen_fd, &data_fd);
	struct wire_bye bye;

	now_ns += 4 * SEC;
	until(&a, NULL, a.n_faults == 1);
	cr_assert(a.fault.evidence == RAIL_EV_PATH && a.fault.status == RY_ERR_TIMEOUT);
	cr_assert(raw_read(&a, fd, &bye, sizeof(bye)));
	cr_assert(bye.h.type == WIRE_META_BYE && bye.reason == WIRE_BYE_REBUILD);
	cr_assert(raw_is_closed(&a, fd));
	stop_joining(fd, listen_fd, data_fd);
}

Test(conn_end, an_attempt_that_is_called_off_is_no_evidence_and_not_repeated_at_once)
{
	int listen_fd, data_fd, fd = joining(&listen_fd, &data_fd);
	struct wire_bye bye;

	wire_enc_fixed(&bye, WIRE_META_BYE, sizeof(bye), 0, RY_OK);
	bye.reason = WIRE_BYE_REBUILD;
	raw_send(fd, &bye, sizeof(bye));
	until(&a, NULL, a.n_faults == 1);
	cr_assert_eq(a.fault.evidence, RAIL_EV_NONE);
	cr_assert_eq(info_of(&a, 0).n_failures, 1u, "an attempt without a pair is one for the operator");
	turns(&a, NULL, 50);
	cr_assert(info_of(&a, 0).state == CONN_DOWN && accept4(listen_fd, NULL, NULL, SOCK_NONBLOCK) < 0);
	now_ns += SEC;
	close(raw_accept(&a, listen_fd));
	stop_joining(fd, listen_fd, data_fd);
}

/* ---- local faults ---- */

static void break_qp(const struct pair *pair, uint8_t wc_status)
{
	pair->qps[1]->fail_status = wc_status;
	pair->qps[1]->state = QP_FAILED;
}

Test(conn_end, a_local_fault_takes_out_every_pair_of_its_rail_and_no_other)
{
	bring_up_three(&a, &b);
	now_ns += SEC;
	break_qp(a.by_store[0], WC_ERR_LOCAL);
	until(&a, &b, a.n_down == 2);
	cr_assert(!a.by_store[0] && !a.by_store[1] && a.by_store[2], "which of them are up");
	cr_assert(a.down_reason == 0 && a.down_evidence == RAIL_EV_LOCAL);
	cr_assert_str_eq(a.down_cause, "rail r0: QP 1 to node beta failed: local fault");
	until(&a, &b, b.n_down == 2);
	is_told(&b);
	until(&a, &b, a.n_up == 5 && b.n_up == 5); /* at once: the clock stands still */
	/* A fault that does not go away is met once a pause, not without end. */
	break_qp(a.by_store[1], WC_ERR_LOCAL);
	until(&a, &b, a.n_down == 4 && b.n_down == 4);
	turns(&a, &b, 100);
	cr_assert(a.n_up == 5 && conn_next_timer(a.conn) > now_ns && conn_next_timer(a.conn) <= now_ns + SEC);
	now_ns += SEC;
	until(&a, &b, a.n_up == 7 && b.n_up == 7 && a.by_store[2]);
	node_stop(&a);
	node_stop(&b);
}

Test(conn_end, a_local_fault_of_the_acceptors_rail_is_told_to_every_dialler)
{
	bring_up_three(&a, &b);
	break_qp(b.accepted, WC_ERR_LOCAL);
	until(&a, &b, a.n_down == 3 && b.n_down == 3);
	cr_assert(b.down_reason == 0 && b.down_evidence == RAIL_EV_LOCAL);
	is_told(&a);
	until(&a, &b, a.n_up == 6 && b.n_up == 6);
	node_stop(&a);
	node_stop(&b);
}

Test(conn_end, a_fault_of_the_path_is_one_of_its_pair_only)
{
	bring_up_three(&a, &b);
	break_qp(a.by_store[0], WC_ERR_RETRY);
	until(&a, &b, a.n_down == 1 && b.n_down == 1);
	turns(&a, &b, 50);
	cr_assert(a.n_down == 1 && b.n_down == 1 && a.by_store[1] && a.by_store[2]);
	node_stop(&a);
	node_stop(&b);
}

/* As when it has all the QPs that it can have. */
Test(conn_end, a_qp_that_a_rail_cannot_take_harms_no_other)
{
	static struct dial_wants wants;
	uint16_t port = free_port();
	struct rail *rail = &b.rails[0];

	node_init(&a, "alpha", "tcp", 0);
	node_init(&b, "beta", "tcp", port);
	node_dials(&a, port);
	node_dials(&a, port);
	wants.rails[0][0] = 1;
	a.wants = &wants;
	node_start(&b);
	node_start(&a);
	until(&a, &b, a.n_up == 1 && b.n_up == 1);
	rail->is_held = true;
	wants.rails[1][0] = 1;
	until(&a, &b, rail->n_cmds == 2);
	for (int i = 0; i < 2; i++) {
		rail->cmds[i]->fail_status = WC_ERR_LOCAL;
		rail->cmds[i]->state = QP_FAILED;
	}
	until(&a, &b, rail->n_cmds == 4 && a.n_faults == 1);
	cr_assert_eq(a.fault.evidence, RAIL_EV_NONE);
	rail->is_held = false;
	until(&a, &b, rail->n_qps == 2);
	cr_assert(a.n_down == 0 && b.n_down == 0 && a.by_store[0]);
	node_stop(&a);
	node_stop(&b);
}
