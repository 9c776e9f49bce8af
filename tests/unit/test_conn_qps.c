/* SPDX-License-Identifier: BSD-3-Clause */
/* Pairs whose QPs are joined by addresses: bring-up, fences, and devices that say something (conn_qps.c). */
#include "conn_qps_fixture.h"

static struct node a, b;

static void stop_both(void)
{
	node_stop(&a);
	node_stop(&b);
	for (unsigned i = 0; i < 4; i++)
		close(devices[i].fd);
}

static struct qp *qp_of(struct node *n, uint16_t rail, unsigned at)
{
	for (uint32_t i = 0; i < n_more; i++) {
		if (more[i].rail == &n->rails[rail] && more[i].qp && at-- == 0)
			return more[i].qp;
	}
	return NULL;
}

/* ---- bring-up ---- */

Test(conn_qps, two_ends_tell_each_other_and_come_up)
{
	join(&a, 4, &b, 3);
	until(&a, &b, a.n_up == 1 && b.n_up == 1);
	cr_assert(a.pair->n_qps == 3 && b.accepted->n_qps == 3 && n_more == 6, "the fewer of both");
	for (unsigned i = 0; i < 3; i++) {
		const struct more *ma = more_of(&a.rails[0], a.pair->qps[i]);
		const struct more *mb = more_of(&b.rails[0], b.accepted->qps[i]);

		cr_assert(ma->is_told && mb->is_told);
		cr_assert(ma->peer.qp_num == mb->qp_num && mb->peer.qp_num == ma->qp_num, "QP %u", i);
		cr_assert(ma->peer.psn == mb->qp_num * 7 && mb->peer.psn == ma->qp_num * 7);
		cr_assert(ma->peer.mtu_bytes == 1024 && ma->peer.rd_atomic == 3 && ma->peer.has_grants);
		cr_assert_eq(ma->peer.gid[15], mb->qp_num / 100);
		cr_assert(a.pair->qps[i]->state == QP_ADOPTED && b.accepted->qps[i]->state == QP_ADOPTED);
	}
	stop_both();
}

/* Nothing is adopted, and nothing is READY, until the peer's addresses are here. */
Test(conn_qps, nothing_before_the_addresses)
{
	struct wire_qps m = raw_qps(2);
	struct wire_meta ready;
	char byte;
	int fd;

	node_init(&b, "beta", "verbs", free_port());
	node_joins(&b, 2, 0);
	node_start(&b);
	fd = raw_greeted(&b, 2);
	turns(&b, NULL, 100);
	cr_assert(qp_of(&b, 0, 0)->state == QP_NEW && qp_of(&b, 0, 1)->state == QP_NEW);
	cr_assert(recv(fd, &byte, 1, MSG_PEEK) == -1 && errno == EAGAIN, "it says READY too soon");
	raw_send(fd, &m, sizeof(m));
	cr_assert(raw_read(&b, fd, &ready, sizeof(ready)) && ready.type == WIRE_META_READY);
	cr_assert(qp_of(&b, 0, 0)->state == QP_ADOPTED && qp_of(&b, 0, 1)->state == QP_ADOPTED);
	close(fd);
	node_stop(&b);
}

Test(conn_qps, a_peer_that_never_tells_is_called_off)
{
	int fd;

	node_init(&b, "beta", "verbs", free_port());
	node_joins(&b, 2, 0);
	node_start(&b);
	fd = raw_greeted(&b, 1);
	now_ns += 4 * SEC;
	raw_hears_bye(&b, fd, WIRE_BYE_REBUILD);
	until(&b, NULL, b.rails[0].n_qps == 0);
	close(fd);
	node_stop(&b);
}

static void is_a_violation(int fd)
{
	raw_hears_bye(&b, fd, WIRE_BYE_PROTOCOL);
	cr_assert(raw_is_closed(&b, fd));
	until(&b, NULL, b.rails[0].n_qps == 0);
	close(fd);
	node_stop(&b);
}

static int greeted(uint16_t n_qps)
{
	node_init(&b, "beta", "verbs", free_port());
	node_joins(&b, 4, 0);
	node_start(&b);
	return raw_greeted(&b, n_qps);
}

Test(conn_qps, addresses_twice)
{
	struct wire_qps m = raw_qps(2);
	int fd = greeted(2);

	b.rails[0].is_held = true; /* it would be READY else, and the second one too late */
	raw_send(fd, &m, sizeof(m));
	raw_send(fd, &m, sizeof(m));
	turns(&b, NULL, 50);
	b.rails[0].is_held = false;
	is_a_violation(fd);
}

Test(conn_qps, addresses_when_up)
{
	struct wire_qps m = raw_qps(2);
	int fd;

	node_init(&b, "beta", "verbs", free_port());
	node_joins(&b, 4, 0);
	node_start(&b);
	fd = raw_joined(&b, 2);
	raw_send(fd, &m, sizeof(m));
	is_a_violation(fd);
}

Test(conn_qps, addresses_of_fewer_qps)
{
	struct wire_qps m = raw_qps(1);
	int fd = greeted(2);

	raw_send(fd, &m, sizeof(m));
	is_a_violation(fd);
	for (uint32_t i = 0; i < n_more; i++)
		cr_assert(!more[i].is_told);
}

Test(conn_qps, addresses_of_more_qps)
{
	struct wire_qps m = raw_qps(3);
	int fd = greeted(2);

	raw_send(fd, &m, sizeof(m));
	is_a_violation(fd);
}

Test(conn_qps, addresses_that_fail_their_check)
{
	struct wire_qps m = raw_qps(2);
	int fd = greeted(2);

	m.qps[1].psn = 1u << 24;
	raw_send(fd, &m, sizeof(m));
	is_a_violation(fd);
}

Test(conn_qps, addresses_on_a_rail_of_sockets)
{
	struct wire_hello hello = raw_hello(WIRE_CONN_BOOTSTRAP), answer;
	struct wire_qps m = raw_qps(1);
	int fd;

	node_init(&b, "beta", "tcp", free_port());
	node_start(&b);
	fd = raw_connect(b.conf.rails[0].port);
	raw_send(fd, &hello, sizeof(hello));
	cr_assert(raw_read(&b, fd, &answer, sizeof(answer)) && answer.status == RY_OK);
	raw_send(fd, &m, sizeof(m));
	is_a_violation(fd);
}

/* Bytes that are no HELLO: closed without an answer, as any other stranger. */
Test(conn_qps, addresses_before_hello)
{
	struct wire_qps m = raw_qps(1);
	int fd;

	node_init(&b, "beta", "verbs", free_port());
	node_joins(&b, 2, 0);
	node_start(&b);
	fd = raw_connect(b.conf.rails[0].port);
	raw_send(fd, &m, sizeof(m));
	cr_assert(raw_is_closed(&b, fd));
	cr_assert_eq(b.rails[0].n_qps, 0);
	close(fd);
	node_stop(&b);
}

/* Our own device does not do what the peer's address needs: our fault, and the peer is told before it wonders. */
Test(conn_qps, qp_that_cannot_be_joined)
{
	remote_rc = -EINVAL;
	join(&a, 2, &b, 2);
	until(&a, &b, a.n_faults > 0);
	cr_assert(a.fault.evidence == RAIL_EV_LOCAL || a.fault.evidence == RAIL_EV_NONE);
	cr_assert(a.n_up == 0 && b.n_up == 0);
	until(&a, &b, a.rails[0].n_qps == 0 && b.rails[0].n_qps == 0);
	remote_rc = 0;
	now_ns += 40 * SEC;
	until(&a, &b, a.n_up == 1 && b.n_up == 1);
	stop_both();
}

Test(conn_qps, qp_that_cannot_be_joined_is_told)
{
	struct wire_qps m = raw_qps(2);
	int fd = greeted(2);

	remote_rc = -EINVAL;
	raw_send(fd, &m, sizeof(m));
	raw_hears_bye(&b, fd, WIRE_BYE_REBUILD);
	until(&b, NULL, b.rails[0].n_qps == 0);
	cr_assert_eq(b.n_down, 0u, "it never was up");
	close(fd);
	node_stop(&b);
}

static unsigned n_told(void)
{
	unsigned n = 0;

	for (uint32_t i = 0; i < n_more; i++)
		n += more[i].is_told;
	return n;
}

/* The kernel takes a second over an address that nobody has: keepalives of others come between two of them. */
Test(conn_qps, one_link_a_turn_is_joined)
{
	struct wire_qps m = raw_qps(2);
	int fd[3];

	node_init(&b, "beta", "verbs", free_port());
	node_joins(&b, 2, 0);
	node_start(&b);
	for (int i = 0; i < 3; i++)
		fd[i] = raw_greeted(&b, 2);
	for (int i = 0; i < 3; i++)
		raw_send(fd[i], &m, sizeof(m));
	for (unsigned told = n_told(), turn = 0; told < 3 * 2 && turn < 1000; turn++) {
		turns(&b, NULL, 1);
		cr_assert_leq(n_told() - told, 2, "two QPs of one link");
		told = n_told();
	}
	cr_assert_eq(n_told(), 3u * 2u);
	for (int i = 0; i < 3; i++)
		close(fd[i]);
	node_stop(&b);
}

/* ---- fences ---- */

static int bye_fd;
static unsigned n_looks;

/* The peer can read BYE(REBUILD) at the moment the fence begins. */
static void bye_is_out(const struct qp *qp)
{
	struct pollfd p = {.fd = bye_fd, .events = POLLIN};
	struct wire_bye bye;

	(void)qp;
	n_looks++;
	cr_assert_eq(poll(&p, 1, 1000), 1, "the fence begins, and the peer was told nothing");
	cr_assert_eq(recv(bye_fd, &bye, sizeof(bye), MSG_PEEK), (ssize_t)sizeof(bye));
	cr_assert(bye.h.type == WIRE_META_BYE && bye.reason == WIRE_BYE_REBUILD);
}

static void give_up(struct node *n, unsigned at, uint8_t wc_status)
{
	struct qp *qp = qp_of(n, 0, at);

	qp->fail_status = wc_status;
	more_of(&n->rails[0], qp)->want_fence = true;
}

Test(conn_qps, bye_comes_before_the_fence)
{
	node_init(&b, "beta", "verbs", free_port());
	node_joins(&b, 2, 0);
	node_start(&b);
	bye_fd = raw_joined(&b, 2);
	before_fence = bye_is_out;
	give_up(&b, 1, WC_ERR_RETRY);
	until(&b, NULL, b.n_down == 1);
	cr_assert_eq(n_looks, 1u);
	cr_assert(b.down_evidence == RAIL_EV_PATH && b.down_reason == 0, "%u", b.down_evidence);
	cr_assert(strstr(b.down_cause, "QP 1 to node raw failed"), "%s", b.down_cause);
	close(bye_fd);
	node_stop(&b);
}

/* The peer hears BYE and goes, while the fence is not over: that is not why this pair ends. */
Test(conn_qps, own_evidence_outlives_the_peers_close)
{
	int fd;

	node_init(&b, "beta", "verbs", free_port());
	node_joins(&b, 2, 0);
	node_start(&b);
	fd = raw_joined(&b, 2);
	is_fence_slow = true;
	give_up(&b, 0, WC_ERR_RETRY);
	raw_hears_bye(&b, fd, WIRE_BYE_REBUILD);
	close(fd);
	turns(&b, NULL, 200);
	cr_assert_eq(b.n_down, 0, "%s", b.down_cause);
	qp_of(&b, 0, 0)->state = QP_FAILED;
	until(&b, NULL, b.n_down == 1);
	cr_assert_eq(b.down_evidence, RAIL_EV_PATH, "%s", b.down_cause);
	cr_assert(strstr(b.down_cause, "retries exceeded"), "%s", b.down_cause);
	node_stop(&b);
}

Test(conn_qps, peer_of_a_fence_counts_nothing)
{
	join(&a, 2, &b, 2);
	until(&a, &b, a.n_up == 1 && b.n_up == 1);
	give_up(&b, 0, WC_ERR_RETRY);
	until(&a, &b, a.n_down == 1 && b.n_down == 1);
	cr_assert(a.down_reason == WIRE_BYE_REBUILD && a.down_evidence == RAIL_EV_NONE, "%s", a.down_cause);
	cr_assert(b.down_reason == 0 && b.down_evidence == RAIL_EV_PATH, "%s", b.down_cause);
	cr_assert_eq(info_of(&a, 0).n_failures, 0u);
	until(&a, &b, a.n_up == 2 && b.n_up == 2); /* at once: the clock stands still */
	stop_both();
}

/* No proof, so no end: the pair stays, what it may still write is nobody's, and the rail is out of use. */
Test(conn_qps, rail_whose_device_does_not_end_a_qp_is_out)
{
	join(&a, 2, &b, 2);
	until(&a, &b, a.n_up == 1 && b.n_up == 1);
	fence_errno = EIO;
	give_up(&b, 0, WC_ERR_FLUSH);
	until(&a, &b, a.n_down == 1 && b.n_down == 1);
	cr_assert(strstr(b.down_cause, "did not end a QP to node alpha: Input/output error"), "%s", b.down_cause);
	cr_assert_eq(b.down_evidence, RAIL_EV_LOCAL);
	turns(&a, &b, 200);
	cr_assert(a.n_up == 1 && b.n_up == 1, "it is dialled and answers no more");
	stop_both();
}

/* What the rail gives up when the pair is ending already, or is being asked back: a fence, and no more than that. */
Test(conn_qps, fence_while_draining_and_releasing)
{
	struct pair_kill kill;
	int fd;

	node_init(&b, "beta", "verbs", free_port());
	node_joins(&b, 2, 0);
	node_start(&b);
	fd = raw_joined(&b, 2);
	b.is_slow_to_quiesce = true;
	control_kill(&b, &kill, b.accepted, WIRE_BYE_DRAIN);
	until(&b, NULL, b.n_down == 1);
	give_up(&b, 0, WC_ERR_FLUSH);
	until(&b, NULL, more_of(&b.rails[0], qp_of(&b, 0, 0))->is_fenced);
	b.rails[0].is_held = true;
	control_quiesce(&b);
	until(&b, NULL, b.rails[0].n_cmds == 2); /* asked back */
	give_up(&b, 1, WC_ERR_FLUSH);
	until(&b, NULL, more_of(&b.rails[0], qp_of(&b, 0, 1))->is_fenced);
	turns(&b, NULL, 50);
	cr_assert_eq(b.rails[0].n_qps, 2, "the rail still has them");
	b.rails[0].is_held = false;
	until(&b, NULL, b.rails[0].n_qps == 0);
	raw_hears_bye(&b, fd, WIRE_BYE_DRAIN);
	cr_assert(raw_is_closed(&b, fd), "one BYE");
	close(fd);
	node_stop(&b);
}

/* ---- devices ---- */

/* Two pairs of rail r0 end; the one of r1 does not notice. */
static void r0_went(void)
{
	until(&a, &b, a.n_down >= 2 && b.n_down >= 2);
	turns(&a, &b, 50);
	cr_assert(a.n_down == 2 && b.n_down == 2, "%d, %d", a.n_down, b.n_down);
	cr_assert_eq(a.down_evidence, RAIL_EV_LOCAL, "it says nothing about the peers");
	cr_assert_str_eq(a.down_cause, "the device spoke");
	cr_assert(b.down_reason == WIRE_BYE_REBUILD && b.down_evidence == RAIL_EV_NONE);
	cr_assert_not_null(a.by_store[2]);
}

static void time_passes(void)
{
	for (int i = 0; i < 20; i++) {
		now_ns += SEC;
		turns(&a, &b, 20);
	}
}

static void goes_for_good(enum rail_event_kind kind)
{
	join_three(&a, &b);
	device_says(&a.rails[0], kind, NULL);
	r0_went();
	time_passes();
	cr_assert(!a.by_store[0] && !a.by_store[1] && a.by_store[2] && a.n_up == 3, "r0 is dialled again");
	device_says(&a.rails[0], RAIL_EVENT_PORT_UP, NULL);
	time_passes();
	cr_assert(a.n_up == 3 && a.n_down == 2, "a port that is up does not mend its device");
	stop_both();
}

Test(conn_qps, cq_error_ends_its_rail_for_good)
{
	goes_for_good(RAIL_EVENT_CQ_ERROR);
}

Test(conn_qps, device_fatal_ends_its_rail_for_good)
{
	goes_for_good(RAIL_EVENT_DEVICE_FATAL);
}

Test(conn_qps, removal_ends_its_rail_for_good)
{
	goes_for_good(RAIL_EVENT_REMOVED);
}

static void goes_and_comes_back(enum rail_event_kind kind)
{
	join_three(&a, &b);
	device_says(&a.rails[0], kind, NULL);
	r0_went();
	time_passes();
	cr_assert(a.by_store[0] && a.by_store[1] && a.n_up == 5, "it is tried again: %d", a.n_up);
	stop_both();
}

Test(conn_qps, port_down_drops_the_pairs_of_its_rail)
{
	goes_and_comes_back(RAIL_EVENT_PORT_DOWN);
}

Test(conn_qps, gid_change_makes_the_pairs_of_its_rail_anew)
{
	goes_and_comes_back(RAIL_EVENT_GID_CHANGE);
}

/* New QPs, and at once: the clock stands still. */
Test(conn_qps, port_up_makes_the_pairs_of_its_rail_anew)
{
	uint32_t n_made;

	join_three(&a, &b);
	n_made = n_more;
	device_says(&a.rails[0], RAIL_EVENT_PORT_UP, NULL);
	until(&a, &b, a.n_down == 2 && a.n_up == 5 && b.n_up == 5);
	cr_assert_eq(n_more, n_made + 2 * 2 * 2, "%u new QPs at both ends", n_more - n_made);
	cr_assert(a.by_store[0] && a.by_store[1] && a.by_store[2]);
	stop_both();
}

/* Down and up again before conn looks: both are told in order. */
Test(conn_qps, port_that_flaps)
{
	join_three(&a, &b);
	device_says(&a.rails[0], RAIL_EVENT_PORT_DOWN, NULL);
	device_says(&a.rails[0], RAIL_EVENT_PORT_UP, NULL);
	until(&a, &b, a.n_down == 2 && a.n_up == 5 && b.n_up == 5);
	stop_both();
}

Test(conn_qps, qp_fatal_ends_its_pair_alone)
{
	struct qp *qp;

	join_three(&a, &b);
	qp = a.by_store[1]->qps[1];
	device_says(&a.rails[0], RAIL_EVENT_QP_FATAL, qp);
	until(&a, &b, a.n_down == 1 && b.n_down == 1);
	turns(&a, &b, 50);
	cr_assert(a.n_down == 1 && b.n_down == 1 && a.by_store[0] && a.by_store[2]);
	cr_assert(!a.by_store[1] || a.n_up == 4, "which of them");
	cr_assert_eq(a.down_evidence, RAIL_EV_PEER);
	until(&a, &b, a.by_store[1] || (now_ns += SEC) == 0);
	stop_both();
}

/* Of a QP that conn has closed meanwhile: nothing to do. */
Test(conn_qps, qp_fatal_of_none_of_ours)
{
	struct qp other = {.fd = -1};

	join_three(&a, &b);
	device_says(&a.rails[0], RAIL_EVENT_QP_FATAL, &other);
	device_says(&a.rails[1], RAIL_EVENT_QP_FATAL, NULL);
	turns(&a, &b, 100);
	cr_assert(a.n_down == 0 && b.n_down == 0 && devices[0].n == 0 && devices[1].n == 0, "heard, and ignored");
	stop_both();
}
