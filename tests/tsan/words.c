/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The words that a rail lcore shares with others, on a real lcore: control publishes snapshots and frees the one
 * before, asks for cancel scans and reads counters; conn hands QPs over, waits for their state word, takes them back
 * and frees them. The rail sleeps in between, so that every word is also a wake-up.
 */
#include <poll.h>
#include <string.h>

#include <rte_eal.h>

#include "rail/rail_ctl.h"
#include "tap.h"

#define N_SNAPSHOTS 1000u
#define N_PAIRS 400u

static struct rail *rail;
static struct waker control_waker, conn_waker;
static struct source_table *sources;
static struct rail_snapshot first = {.generation = 1,
	.serve_max_requests = 16,
	.serve_max_bytes = 1u << 20,
	.fence_timeout_ns = 100000000,
	.verify_turn_bytes = 1u << 20,
	.serve_turn_bytes = 1u << 20};

static void *control_body(void *arg)
{
	const struct rail_snapshot *last = &first;
	uint64_t turns = 0;
	uint32_t n_seen = 0;

	for (uint32_t g = 2; g <= N_SNAPSHOTS; g++) {
		struct rail_snapshot *next = malloc(sizeof(*next));
		uint64_t until_ns = clock_ns() + WAIT_NS;

		*next = first;
		next->generation = g;
		rail_publish(rail, next);
		while (rail_seen_generation(rail) != g) {
			tap_need(clock_ns() < until_ns, "a snapshot is seen");
			sched_yield();
		}
		if (last != &first) {
			memset((void *)last, 0xff, sizeof(*last));
			free((void *)last);
		}
		last = next;
		if (g % 16 == 0)
			rail_cancel_scan(rail);
		n_seen += rail_had_turn(rail, &turns);
	}
	*(uint32_t *)arg = n_seen;
	rail_publish(rail, &first);
	while (rail_seen_generation(rail) != 1)
		sched_yield();
	free((void *)last);
	return NULL;
}

/* As conn does: the state word, else its own wake-up. */
static void await(const struct qp *qp, enum qp_state want)
{
	struct pollfd fd = {.fd = conn_waker.event_fd, .events = POLLIN};

	while (qp_state(qp) != want) {
		waker_prepare(&conn_waker);
		if (qp_state(qp) != want)
			tap_need(poll(&fd, 1, WAIT_NS / 1000000) == 1, "the state of a QP changes");
		waker_cancel(&conn_waker);
	}
}

static void pair_once(uint32_t i)
{
	const struct transport_ops *ops = rail_ops(rail);
	struct qp_request req = {.pair_idx = (uint16_t)i, .is_dialler = true, .peer_credits = RAIL_CREDITS};
	struct qp *a, *b;

	tap_need(ops->pair_connect(rail, &req, &a) == 0, "one end is made");
	req.loop_peer = a;
	req.is_dialler = false;
	tap_need(ops->pair_connect(rail, &req, &b) == 0, "and the other");
	tap_need(rail_adopt(rail, a) == 0 && rail_adopt(rail, b) == 0, "the rail takes them");
	await(a, QP_ADOPTED);
	await(b, QP_ADOPTED);
	/* Every other time the loss of its peer ends the first one, by the transport and not by us. */
	tap_need(rail_release(rail, b) == 0, "the rail gives one back");
	await(b, QP_RELEASED);
	if (i % 2) {
		ops->pair_close(rail, b);
		await(a, QP_FAILED);
		tap_need(qp_fail_status(a) == WC_ERR_PEER_CLOSED, "why it failed comes with the state");
	}
	tap_need(rail_release(rail, a) == 0, "and the other");
	await(a, QP_RELEASED);
	ops->pair_close(rail, a);
	if (i % 2 == 0)
		ops->pair_close(rail, b);
}

static void make_rail(void)
{
	static struct rail_conf conf = {.name = "rail0", .transport = "mock", .lcore = 1, .mock = {.want_copy = true}};
	struct rail_deps deps = {.control_waker = &control_waker, .conn_waker = &conn_waker, .snapshot = &first};
	char *argv[] = {"words", "--no-huge", "--no-pci", "--no-shconf", "--no-telemetry", "-m", "32", "--lcores",
		"(0-1)@(0-1)", "--log-level=4"};

	tap_need(rte_eal_init(sizeof(argv) / sizeof(argv[0]), argv) >= 0, "EAL starts");
	tap_need(!waker_init(&control_waker) && !waker_init(&conn_waker), "wakers are made");
	tap_need(source_table_create(16, 1, &sources) == 0, "the table of sources is made");
	deps.sources = sources;
	tap_need(rail_create(&conf, 0, &deps, &rail) == 0, "the rail is made");
	tap_need(rail_launch(rail) == 0, "its lcore starts");
}

int main(void)
{
	uint32_t n_seen = 0;
	pthread_t control;

	make_rail();
	tap_start(&control, control_body, &n_seen);
	for (uint32_t i = 0; i < N_PAIRS; i++)
		pair_once(i);
	pthread_join(control, NULL);
	tap_ok(n_seen > 0, "snapshots are seen, and freed when a later one was");
	tap_ok(stat_get(&rail_counters(rail)->qp_failures) >= N_PAIRS / 2, "QPs fail, and are given back");
	tap_ok(stat_get(&rail_counters(rail)->sleeps) > 50, "the lcore slept and was woken");
	rail_stop(rail);
	/* EAL's own hand-over is not seen by the sanitizer; the rail's last act, to go offline, is. */
	tap_ok(rte_rcu_qsbr_check(sources->qsbr, rte_rcu_qsbr_start(sources->qsbr), false) == 1, "it left the table");
	rail_destroy(rail);
	source_table_destroy(sources);
	waker_fini(&control_waker);
	waker_fini(&conn_waker);
	return tap_end();
}
