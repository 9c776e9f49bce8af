/* SPDX-License-Identifier: BSD-3-Clause */
/* When diallers dial: pauses and their spread, refusals, and which endpoints are wanted (conn_dial.c). */
#include "conn_raw.h"

#include "daemon/conn_priv.h"

static struct node a, b;
static struct dial_wants wants;

static uint64_t delay_ns(void)
{
	cr_assert_gt(conn_next_timer(a.conn), now_ns);
	return conn_next_timer(a.conn) - now_ns;
}

/* ---- pauses ---- */

Test(conn_dial, pauses_are_spread_between_half_and_all_of_it)
{
	uint64_t least = UINT64_MAX, most = 0;

	node_init(&a, "alpha", "tcp", 0);
	node_dials(&a, free_port());
	node_start(&a);
	for (uint32_t i = 1; i <= 20; i++) {
		uint64_t ns;

		until(&a, NULL, info_of(&a, 0).n_failures == i && info_of(&a, 0).state == CONN_DOWN);
		ns = delay_ns();
		cr_assert(ns >= SEC / 2 && ns <= SEC, "attempt %u: %lu", i, ns);
		least = ns < least ? ns : least;
		most = ns > most ? ns : most;
		now_ns += ns;
	}
	cr_assert_gt(most - least, SEC / 10, "from %lu to %lu", least, most);
	node_stop(&a);
}

/* ---- refusals ---- */

#define PAUSE_NS (SEC / 10 * 9) /* whose doubles leap over the longest one, and do not just miss it */

static int listen_fd;
static uint32_t n_refusals;

/* Refuses the attempt that is under way; how long until the next. */
static uint64_t refuse(int fd, uint32_t status)
{
	struct wire_hello answer = raw_hello(WIRE_CONN_BOOTSTRAP);

	answer.status = status;
	raw_send(fd, &answer, sizeof(answer));
	n_refusals++;
	until(&a, NULL, info_of(&a, 0).n_failures == n_refusals && info_of(&a, 0).state == CONN_DOWN);
	close(fd);
	return delay_ns();
}

static void refuse_next(uint32_t status, uint64_t most)
{
	uint64_t ns = refuse(raw_accept(&a, listen_fd), status);

	cr_assert(ns >= most / 2 && ns <= most, "refusal %u: %lu of %lu", n_refusals, ns, most);
}

/* Refused eight times in a row. */
static void refused_for_long(void)
{
	static const uint32_t statuses[] = {RY_ERR_VERSION, RY_ERR_DENIED, RY_ERR_LIMIT};
	int fd = raw_dialled(&a, &listen_fd);
	uint64_t most = PAUSE_NS, ns;

	a.conf.reconnect_ns = PAUSE_NS;
	ns = refuse(fd, RY_ERR_VERSION);
	cr_assert(ns >= PAUSE_NS / 2 && ns <= PAUSE_NS, "%lu", ns);
	for (unsigned i = 0; i < 7; i++) {
		now_ns = conn_next_timer(a.conn) - 1;
		turns(&a, NULL, 20);
		cr_assert(accept4(listen_fd, NULL, NULL, SOCK_NONBLOCK) < 0, "dialled before its time");
		now_ns++;
		most = most * 2 < 30 * SEC ? most * 2 : 30 * SEC;
		refuse_next(statuses[i % 3], most);
	}
	cr_assert_eq(most, 30 * SEC);
}

static void stop_refused(void)
{
	close(listen_fd);
	node_stop(&a);
}

Test(conn_dial, who_refuses_is_asked_less_and_less_often)
{
	refused_for_long();
	stop_refused();
}

Test(conn_dial, who_speaks_another_protocol_is_asked_less_and_less_often)
{
	int fd = raw_dialled(&a, &listen_fd);

	for (uint32_t i = 1; i <= 4; i++) {
		raw_send(fd, "220 mail\r\n", 10);
		until(&a, NULL, info_of(&a, 0).n_failures == i && info_of(&a, 0).state == CONN_DOWN);
		close(fd);
		now_ns = conn_next_timer(a.conn);
		fd = raw_accept(&a, listen_fd);
		turns(&a, NULL, 5);
	}
	raw_send(fd, "220 mail\r\n", 10);
	until(&a, NULL, info_of(&a, 0).n_failures == 5 && info_of(&a, 0).state == CONN_DOWN);
	cr_assert(delay_ns() >= 8 * SEC && delay_ns() <= 16 * SEC, "%lu", delay_ns());
	close(fd);
	stop_refused();
}

/* It asks once; who still refuses is asked as rarely as before. */
Test(conn_dial, a_request_to_dial_asks_who_refused_once)
{
	struct dial_event dial = {.store_idx = 0};

	refused_for_long();
	now_ns += PAUSE_NS;
	control_send(&a, &dial.m, MSG_DIAL);
	refuse_next(RY_ERR_VERSION, 30 * SEC);
	until(&a, NULL, a.n_dial_failed == 1);
	stop_refused();
}

/* Of a client that tries again and again, once a pause. */
Test(conn_dial, requests_to_dial_do_not_remove_the_pause)
{
	struct dial_event dials[20] = {0};
	uint64_t begun_ns;
	int fd;

	refused_for_long();
	now_ns += PAUSE_NS;
	control_send(&a, &dials[0].m, MSG_DIAL);
	fd = raw_accept(&a, listen_fd);
	begun_ns = now_ns;
	refuse(fd, RY_ERR_VERSION);
	for (int i = 1; i < 20; i++) {
		control_send(&a, &dials[i].m, MSG_DIAL);
		until(&a, NULL, a.n_dial_failed == i + 1);
		cr_assert(accept4(listen_fd, NULL, NULL, SOCK_NONBLOCK) < 0, "request %d", i);
		cr_assert_eq(conn_next_timer(a.conn), begun_ns + PAUSE_NS);
		now_ns += PAUSE_NS / 20;
	}
	now_ns = begun_ns + PAUSE_NS;
	refuse_next(RY_ERR_VERSION, 30 * SEC);
	stop_refused();
}

Test(conn_dial, a_device_that_comes_up_forgets_refusals)
{
	refused_for_long();
	diallers_wake(a.conn, 0);
	refuse_next(RY_ERR_VERSION, PAUSE_NS);
	stop_refused();
}

Test(conn_dial, a_store_that_restarts_is_forgiven)
{
	uint16_t port;

	refused_for_long();
	port = a.conf.stores[0].endpoints[0].port;
	close(listen_fd);
	now_ns = conn_next_timer(a.conn);
	n_refusals++;
	until(&a, NULL, info_of(&a, 0).n_failures == n_refusals && info_of(&a, 0).state == CONN_DOWN);
	cr_assert(strstr(info_of(&a, 0).last_error, "connection refused"));
	cr_assert_leq(delay_ns(), SEC, "nobody is there: no refusal");
	node_init(&b, "beta", "tcp", port);
	node_start(&b);
	now_ns += SEC;
	until(&a, &b, a.n_up == 1 && b.n_up == 1);
	node_stop(&a);
	node_stop(&b);
}

/* The store is upgraded and back before the next attempt. */
Test(conn_dial, a_pair_that_comes_up_forgets_refusals)
{
	uint16_t port;

	refused_for_long();
	port = a.conf.stores[0].endpoints[0].port;
	close(listen_fd);
	node_init(&b, "beta", "tcp", port);
	node_start(&b);
	now_ns = conn_next_timer(a.conn);
	until(&a, &b, a.n_up == 1 && b.n_up == 1);
	node_stop(&b);
	until(&a, NULL, info_of(&a, 0).state == CONN_DOWN);
	cr_assert_leq(delay_ns(), SEC);
	node_stop(&a);
}

/* ---- which endpoints are wanted ---- */

/* Two stores, b is both of them; bits of rail 0 as given. */
static void with_wants(uint32_t first, uint32_t second)
{
	uint16_t port = free_port();

	node_init(&a, "alpha", "tcp", 0);
	node_init(&b, "beta", "tcp", port);
	node_dials(&a, port);
	node_dials(&a, port);
	wants.rails[0][0] = first;
	wants.rails[1][0] = second;
	a.wants = &wants;
	node_start(&b);
	node_start(&a);
}

static void stop_both(void)
{
	node_stop(&a);
	node_stop(&b);
}

Test(conn_dial, an_unwanted_endpoint_stands_by)
{
	with_wants(2, 0); /* the bit of a rail that does not exist */
	turns(&a, &b, 50);
	cr_assert_eq(info_of(&a, 0).state, CONN_STANDBY);
	cr_assert_eq(info_of(&a, 1).state, CONN_STANDBY);
	cr_assert_eq(conn_next_timer(a.conn), UINT64_MAX, "nothing to wake up for");
	cr_assert(!conn_poll(a.conn, now_ns), "nothing to do");
	now_ns += 100 * SEC;
	turns(&a, &b, 50);
	cr_assert(a.n_up == 0 && b.n_up == 0 && a.n_faults == 0 && a.rails[0].n_qps == 0);
	cr_assert_eq(conn_next_timer(a.conn), UINT64_MAX, "nothing to wake up for");
	stop_both();
}

Test(conn_dial, a_wanted_endpoint_is_dialled_in_the_turn_that_sees_it)
{
	with_wants(1, 0);
	until(&a, &b, a.n_up == 1 && b.n_up == 1);
	cr_assert_eq(info_of(&a, 1).state, CONN_STANDBY);
	wants.rails[1][0] = 1;
	waker_kick(&a.conn_waker);
	cr_assert(conn_poll(a.conn, now_ns));
	cr_assert_eq(info_of(&a, 1).state, CONN_DIALLING);
	until(&a, &b, a.n_up == 2 && b.n_up == 2 && a.by_store[1]);
	stop_both();
}

Test(conn_dial, an_endpoint_that_is_no_longer_wanted_stays_up_and_is_not_dialled_again)
{
	struct pair_kill kill;

	with_wants(1, 0);
	until(&a, &b, a.n_up == 1 && b.n_up == 1);
	wants.rails[0][0] = 0;
	for (int i = 0; i < 20; i++) {
		now_ns += SEC;
		turns(&a, &b, 20);
	}
	cr_assert(a.n_down == 0 && info_of(&a, 0).state == CONN_UP);
	control_kill(&b, &kill, b.accepted, WIRE_BYE_REBUILD);
	until(&a, &b, a.n_down == 1 && b.n_down == 1 && a.rails[0].n_qps == 0);
	turns(&a, &b, 20);
	cr_assert_eq(info_of(&a, 0).state, CONN_STANDBY, "state %u", info_of(&a, 0).state);
	cr_assert_eq(conn_next_timer(a.conn), UINT64_MAX, "nothing to wake up for");
	now_ns += 100 * SEC;
	turns(&a, &b, 50);
	cr_assert(a.n_up == 1 && info_of(&a, 0).state == CONN_STANDBY);
	wants.rails[0][0] = 1;
	until(&a, &b, a.n_up == 2 && b.n_up == 2);
	stop_both();
}

/* Between two attempts: its row says at once what it is, and the pause is kept. */
Test(conn_dial, an_endpoint_between_two_attempts_can_be_unwanted)
{
	node_init(&a, "alpha", "tcp", 0);
	node_dials(&a, free_port());
	wants.rails[0][0] = 1;
	a.wants = &wants;
	node_start(&a);
	until(&a, NULL, info_of(&a, 0).n_failures == 1 && info_of(&a, 0).state == CONN_DOWN);
	wants.rails[0][0] = 0;
	turns(&a, NULL, 1);
	cr_assert_eq(info_of(&a, 0).state, CONN_STANDBY);
	wants.rails[0][0] = 1;
	turns(&a, NULL, 20);
	cr_assert(info_of(&a, 0).state == CONN_DOWN && info_of(&a, 0).n_failures == 1);
	cr_assert_leq(delay_ns(), SEC);
	node_stop(&a);
}

/* A request to dial a store concerns the endpoints that are wanted, and fails where there is none. */
Test(conn_dial, a_request_to_dial_leaves_an_unwanted_endpoint_alone)
{
	struct dial_event dial = {.store_idx = 0};

	with_wants(0, 0);
	turns(&a, &b, 20);
	control_send(&a, &dial.m, MSG_DIAL);
	until(&a, &b, a.n_dial_failed == 1);
	turns(&a, &b, 20);
	cr_assert(a.n_up == 0 && info_of(&a, 0).state == CONN_STANDBY);
	stop_both();
}

/* Who waits for a store hears of every rail that was tried, not of the last one. */
Test(conn_dial, a_failed_request_names_each_rail)
{
	struct dial_event dial = {.store_idx = 0};
	uint16_t port = free_port();

	node_init(&a, "alpha", "tcp", 0);
	node_dials(&a, port);
	a.conf.n_rails = 2;
	a.conf.rails[1] = a.conf.rails[0];
	snprintf(a.conf.rails[1].name, RY_NAME_MAX_BYTES, "r1");
	a.conf.stores[0].n_endpoints = 2;
	a.conf.stores[0].endpoints[1] = a.conf.stores[0].endpoints[0];
	a.conf.stores[0].endpoints[1].port = free_port();
	snprintf(a.conf.stores[0].endpoints[0].rail, RY_NAME_MAX_BYTES, "r0");
	snprintf(a.conf.stores[0].endpoints[1].rail, RY_NAME_MAX_BYTES, "r1");
	node_start(&a);
	until(&a, NULL, info_of(&a, 0).n_failures >= 1 && info_of(&a, 1).n_failures >= 1);
	control_send(&a, &dial.m, MSG_DIAL);
	until(&a, NULL, a.n_dial_failed == 1);
	cr_expect(
		strstr(dial.cause, "rail r0: connect ") && strstr(dial.cause, "; rail r1: connect "), "%s", dial.cause);
	cr_expect_eq(dial.status, RY_ERR_RAIL);
	node_stop(&a);
}

/* A store that was up and is silent now: each attempt waits in vain for so long that the next one is due at once. */
Test(conn_dial, a_store_that_went_silent_fails_a_request_with_the_next_attempt)
{
	struct dial_event dial = {.store_idx = 0};
	uint16_t port = free_port();
	uint64_t asked_ns;

	node_init(&a, "alpha", "tcp", 0);
	node_init(&b, "beta", "tcp", port);
	node_dials(&a, port);
	node_start(&b);
	node_start(&a);
	until(&a, &b, a.n_up == 1 && b.n_up == 1);
	/* From here on b does nothing; its kernel takes connections. */
	for (unsigned i = 0; i < 200 && info_of(&a, 0).n_failures < 3; i++) {
		now_ns += SEC / 4;
		turns(&a, NULL, 5);
	}
	cr_assert_geq(info_of(&a, 0).n_failures, 3);
	asked_ns = now_ns;
	control_send(&a, &dial.m, MSG_DIAL);
	for (unsigned i = 0; i < 80 && !a.n_dial_failed; i++) {
		now_ns += SEC / 4;
		turns(&a, NULL, 5);
	}
	cr_assert_eq(a.n_dial_failed, 1, "no answer in %lu s", (now_ns - asked_ns) / SEC);
	cr_expect_leq(now_ns - asked_ns, 6 * SEC);
	cr_expect(strstr(dial.cause, "no answer within the time-out"), "%s", dial.cause);
	node_stop(&a);
	node_stop(&b);
}
