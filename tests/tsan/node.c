/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A whole node on its real threads: two mock rails on lcores and a verbs rail over a device that is not there, control,
 * conn, work. The main thread plays a client and the api's rings; another one reads what api may read at any time.
 * Puts, reads, cancels, drains, new limits, rails that lose their QPs in mid-read, and a device that goes and comes
 * back.
 */
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include <rte_eal.h>

#include "api/pairs.h"
#include "read/control_priv.h"
#include "rig.h"
#include "tap.h"
#include "transport/mock/fault.h"
#include "transport/mock/mock.h"

#define cr_assert(condition, ...) tap_need(condition, #condition)
#define cr_assert_eq(a, b, ...) tap_need((a) == (b), #a " is " #b)
#include "../unit/ib_fixture.h"

#define OBJECT (1u << 20)
#define N_OBJECTS 4u
#define N_READS 150u
#define VERBS 2u    /* the rail */
#define REMOVALS 6u /* a second each */

static struct rig rig; /* its configuration, client and numbers; nothing here steps it */
static uint32_t stop;
static uint32_t n_rows; /* the watcher's */

static void *conn_body(void *arg)
{
	(void)arg;
	conn_run(rig.node->conn, &stop);
	return NULL;
}

static void *work_body(void *arg)
{
	(void)arg;
	work_run(&rig.node->work, &stop);
	return NULL;
}

static void *control_body(void *arg)
{
	(void)arg;
	control_run(rig.node->control);
	return NULL;
}

/* What the api thread reads without asking. */
static void *watcher_body(void *arg)
{
	struct node *n = rig.node;
	static struct conn_pair_info rows[16];
	struct rail_device_info info;
	struct journal_entry e;
	static struct record r;

	(void)arg;
	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		uint64_t number = recorder_written(&n->recorder);

		n_rows += conn_info(n->conn, rows, 16);
		while (journal_pop(&n->journal, &e))
			;
		if (number && recorder_read(&n->recorder, number - 1, &r))
			n_rows++;
		for (uint16_t i = 0; i < n->n_rails; i++)
			n_rows += stat_get(&rail_counters(n->rails[i])->rx_bytes) == 1 || rail_is_detached(n->rails[i]);
		rail_describe(n->rails[VERBS], &info);
		sched_yield();
	}
	return NULL;
}

static void ask(struct api_call *c)
{
	c->m.kind = MSG_API;
	tap_need(spsc_push(rig.node->api_to_control, c), "there is room for a call");
	waker_kick(&rig.node->control_waker);
}

/* One call, as api makes it. */
static uint32_t call(struct api_call *c)
{
	struct node *n = rig.node;
	struct pollfd fd = {.fd = n->api_waker.event_fd, .events = POLLIN};
	void *answer;

	ask(c);
	while (!(answer = spsc_pop(n->control_to_api))) {
		waker_prepare(&n->api_waker);
		if (spsc_is_empty(n->control_to_api))
			tap_need(poll(&fd, 1, WAIT_NS / 1000000) == 1, "a call is answered");
		waker_cancel(&n->api_waker);
	}
	tap_need(answer == c, "by itself");
	return c->status;
}

/* The same without sleeping: whoever is woken is also ordered behind all that control did before its kick, which the
 * ring alone does not promise. */
static uint32_t call_awake(struct api_call *c)
{
	uint64_t until_ns = clock_ns() + WAIT_NS;
	void *answer;

	ask(c);
	while (!(answer = spsc_pop(rig.node->control_to_api))) {
		tap_need(clock_ns() < until_ns, "a call is answered");
		sched_yield();
	}
	tap_need(answer == c, "by itself");
	return c->status;
}

/* ---- The client ---- */

static void kick(void)
{
	/* Partner: the fence in rings_want_wakeup. */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (__atomic_load_n(&rig.client->sq_index->need_wakeup, __ATOMIC_RELAXED))
		waker_signal(&(struct waker){.event_fd = rig.client->sq_event_fd});
}

static struct ry_cqe await(uint64_t ticket)
{
	struct client *c = rig.client;
	struct pollfd fd = {.fd = c->cq_wake_fd[1], .events = POLLIN};
	struct ry_cqe cqe;
	uint64_t count;

	kick();
	for (;;) {
		while (rig_reap(&rig, c, &cqe)) {
			if (cqe.ticket == ticket)
				return cqe;
		}
		__atomic_store_n(&c->cq_index->need_wakeup, 1, __ATOMIC_RELAXED);
		/* Partner: the fence in rings_wake. */
		__atomic_thread_fence(__ATOMIC_SEQ_CST);
		if (__atomic_load_n(&c->cq_index->tail, __ATOMIC_RELAXED) == c->cq_index->head)
			tap_need(poll(&fd, 1, WAIT_NS / 1000000) == 1, "an operation completes");
		__atomic_store_n(&c->cq_index->need_wakeup, 0, __ATOMIC_RELAXED);
		if (read(fd.fd, &count, sizeof(count)) < 0)
			continue;
	}
}

static void put(const char *key, const uint8_t *data)
{
	struct client *c = rig.client;
	uint32_t n = OBJECT / RIG_STRIPE_BYTES;
	uint64_t *sums = (uint64_t *)(void *)(c->put_arena.base + OBJECT);
	struct ry_slot *slot = &c->slots[rig.next_slot % c->n_entries];
	struct ry_sqe sqe = {.op = RY_OP_PUT, .flags = RY_F_PUT_BEGIN | RY_F_PUT_COMMIT, .length = OBJECT};

	memcpy(c->put_arena.base, data, OBJECT);
	for (uint32_t i = 0; i < n; i++)
		sums[i] = XXH3_64bits(data + (uint64_t)i * RIG_STRIPE_BYTES, RIG_STRIPE_BYTES);
	slot->put_id[0] = rig.next_ticket;
	slot->put_id[1] = 42;
	slot->size_bytes = OBJECT;
	slot->stripe_bytes = RIG_STRIPE_BYTES;
	slot->n_checksums = n;
	slot->checksum_offset = OBJECT;
	tap_need(await(rig_submit(&rig, c, sqe, key, (uint16_t)strlen(key))).status == RY_OK, "a put is committed");
}

static void release(uint32_t lease_id)
{
	struct ry_sqe sqe = {.op = RY_OP_RELEASE, .arg = lease_id};

	rig_submit(&rig, rig.client, sqe, NULL, 0);
	kick();
}

/* Reads of all objects by turns; returns how many were good. */
static uint32_t reads(uint8_t *const *data, uint32_t n, bool want_cancel)
{
	uint32_t n_good = 0;

	for (uint32_t i = 0; i < n; i++) {
		char key[8];
		struct ry_cqe cqe;
		uint64_t ticket;

		snprintf(key, sizeof(key), "k%u", i % N_OBJECTS);
		ticket = rig_submit_read(&rig, rig.client, key, 0, UINT64_MAX, RY_F_FAILOVER, 0);
		if (want_cancel && i % 2) {
			kick();
			for (uint32_t k = 0; k < i % 16; k++)
				sched_yield();
			rig_cancel(&rig, rig.client, ticket);
		}
		cqe = await(ticket);
		tap_need(cqe.status == RY_OK || want_cancel, rig_slot(rig.client, &cqe)->cause);
		if (cqe.status != RY_OK)
			continue;
		tap_need(rig_same(rig.client, &cqe, data[i % N_OBJECTS], OBJECT), "a read is exact");
		n_good++;
		release(cqe.lease_id);
	}
	return n_good;
}

/* ---- The node ---- */

static void start(pthread_t threads[4])
{
	struct node_conf conf = {.config = &rig.config, .is_shared_cpu = true};
	struct client_conf client = {
		.id = 1, .n_entries = 64, .read_arena_bytes = 32u << 20, .put_arena_bytes = 4u << 20};
	static struct api_call attach = {.op = API_ATTACH};
	char *argv[] = {"node", "--no-huge", "--no-pci", "--no-shconf", "--no-telemetry", "-m", "128", "--lcores",
		"(0-3)@(0-1)", "--log-level=4"};
	char message[512] = "";

	tap_need(rte_eal_init(sizeof(argv) / sizeof(argv[0]), argv) >= 0, "EAL starts");
	fixture_init();
	add_gid(add_device("rxe0"), 1, IBV_GID_TYPE_ROCE_V2, "192.0.2.1", 11);
	removals = 0;
	rig_init(&rig, 3, 0);
	snprintf(rig.config.rails[VERBS].transport, sizeof(rig.config.rails[VERBS].transport), "verbs");
	snprintf(rig.config.rails[VERBS].address, sizeof(rig.config.rails[VERBS].address), "192.0.2.1");
	rig.config.reconnect_ns = 20000000;
	tap_need(node_create(&conf, message, sizeof(message), &rig.node) == 0, message);
	client.regions = &rig.node->regions;
	client.sleep_set_fd = rig.node->control_set_fd;
	tap_need(client_create(&client, message, sizeof(message), &rig.client) == 0, message);
	for (uint16_t i = 0; i < rig.config.n_rails; i++)
		tap_need(rail_launch(rig.node->rails[i]) == 0, "a rail's lcore starts");
	tap_start(&threads[0], conn_body, NULL);
	tap_start(&threads[1], control_body, NULL);
	tap_start(&threads[2], watcher_body, NULL);
	attach.client = rig.client;
	tap_need(call(&attach) == RY_OK, "a client attaches");
}

/* Whoever has the answer to a detach owns the client, and destroys it at once. */
static void come_and_go(void)
{
	struct client_conf conf = {.id = 2, .n_entries = 4, .read_arena_bytes = 1u << 20, .put_arena_bytes = 1u << 20};
	static struct api_call c;
	char message[512] = "";

	conf.regions = &rig.node->regions;
	conf.sleep_set_fd = rig.node->control_set_fd;
	for (int i = 0; i < 200; i++) {
		struct client *other;

		tap_need(client_create(&conf, message, sizeof(message), &other) == 0, message);
		c = (struct api_call){.op = API_ATTACH, .client = other};
		tap_need(call(&c) == RY_OK, "another client attaches");
		c = (struct api_call){.op = API_DETACH, .client = other};
		tap_need(call_awake(&c) == RY_OK, "and detaches");
		client_destroy(other);
	}
	tap_ok(stat_get(&rig.node->counters.clients) == 1, "clients come and go");
}

static bool both_up(void)
{
	static struct api_call info;

	memset(&info, 0, sizeof(info));
	info.op = API_RAIL_INFO;
	tap_need(call(&info) == RY_OK, "rails are told of");
	return info.rails[0].pairs_up == 2 && info.rails[1].pairs_up == 2; /* both ends are ours */
}

static void await_rails(void)
{
	uint64_t until_ns = clock_ns() + WAIT_NS;

	while (!both_up()) {
		tap_need(clock_ns() < until_ns, "both rails are connected");
		sched_yield();
	}
}

static void order(void)
{
	static struct api_call limits = {.op = API_LIMITS}, drain = {.op = API_DRAIN, .rail_idx = 1};

	limits.limits = limits_of(&rig.config);
	limits.limits.max_reads = 8;
	drain.pairs = calloc(API_PAIRS_MAX, sizeof(*drain.pairs));
	drain.want_drain = !drain.want_drain;
	tap_need(call(&limits) == RY_OK && call(&drain) == RY_OK, "limits and drains are taken");
	free(drain.pairs);
}

/* QPs of one rail are lost in mid-read, again and again: the state word, and conn's part, while work is out. */
static void lose_rails(uint8_t *const *data)
{
	struct rail *faulty = rig.node->rails[1];
	uint32_t n_good = 0;
	struct fault_plan plan;
	char message[128];

	tap_need(fault_parse("disconnect:at=3", &plan, message, sizeof(message)) == 0, message);
	for (uint32_t i = 0; i < 12; i++) {
		uint64_t lost = stat_get(&rail_counters(faulty)->qp_failures), until_ns = clock_ns() + WAIT_NS;

		tap_need(mock_fault_inject(faulty, &plan) == 0, "a fault is injected");
		do {
			n_good += reads(data, N_OBJECTS, false);
			tap_need(clock_ns() < until_ns, "a QP is lost");
		} while (stat_get(&rail_counters(faulty)->qp_failures) == lost);
		await_rails();
	}
	tap_ok(n_good >= 12 * N_OBJECTS, "reads fail over while rails lose their QPs, and these come back");
}

/* ---- A device ---- */

/* A job of the work thread, as api has it done. */
static void work(struct work_job *job)
{
	uint64_t until_ns = clock_ns() + WAIT_NS;

	tap_need(spsc_push(rig.node->api_to_work, job), "there is room for a job");
	waker_kick(&rig.node->work_waker);
	while (spsc_pop(rig.node->work_to_api) != job) {
		tap_need(clock_ns() < until_ns, "a job is done");
		sched_yield();
	}
	tap_need(job->status == 0, job->message);
}

static void await_device(bool want_detached)
{
	uint64_t until_ns = clock_ns() + WAIT_NS;

	while (rail_is_detached(rig.node->rails[VERBS]) != want_detached) {
		tap_need(clock_ns() < until_ns, "the device goes, and comes back");
		sched_yield();
	}
}

/* Now and then it leaves as soon as it is taken up. Clients come while it is away, and go when it is there. */
static void lose_device(uint8_t *const *data)
{
	static struct api_call c;
	uint32_t n_reached = 0;

	for (uint32_t i = 0; i < REMOVALS; i++) {
		struct work_job job = {.op = WORK_CREATE_CLIENT,
			.conf = {.id = 3, .n_entries = 4, .read_arena_bytes = 1u << 20, .put_arena_bytes = 1u << 20}};

		job.conf.regions = &rig.node->regions;
		job.conf.sleep_set_fd = rig.node->control_set_fd;
		remove_soon();
		await_device(true);
		work(&job);
		n_reached += region_reach(job.client->read_region) == 3;
		c = (struct api_call){.op = API_ATTACH, .client = job.client};
		tap_need(call(&c) == RY_OK, "a client attaches to what is left");
		reads(data, N_OBJECTS, false);
		await_device(false);
		tap_need(region_reach(job.client->read_region) == 7,
			"its arena is registered on the device that is back");
		if (i % 3)
			reads(data, N_OBJECTS, false);
		c = (struct api_call){.op = API_DETACH, .client = job.client};
		tap_need(call_awake(&c) == RY_OK, "and detaches");
		job.op = WORK_DESTROY_CLIENT;
		work(&job);
	}
	tap_ok(n_reached > 0, "a device goes and comes back while clients come and go");
}

static void end(pthread_t threads[4])
{
	static struct api_call detach = {.op = API_DETACH}, shutdown = {.op = API_SHUTDOWN};
	struct node *n = rig.node;

	detach.client = rig.client;
	tap_need(call(&detach) == RY_OK, "the client detaches");
	client_destroy(rig.client);
	tap_need(call(&shutdown) == RY_OK, "control ends");
	pthread_join(threads[1], NULL);
	__atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
	waker_signal(&n->conn_waker);
	pthread_join(threads[0], NULL);
	pthread_join(threads[2], NULL);
	waker_signal(&n->work_waker);
	pthread_join(threads[3], NULL);
	for (uint16_t i = 0; i < n->n_rails; i++)
		rail_stop(n->rails[i]);
	/* EAL's own hand-over is not seen by the sanitizer; a rail's last act, to go offline, is. */
	tap_ok(rte_rcu_qsbr_check(n->sources->qsbr, rte_rcu_qsbr_start(n->sources->qsbr), false) == 1,
		"the rails left the table of sources");
	tap_ok(n_rows > 0, "rows of pairs and records were read meanwhile");
	node_destroy(n);
	fixture_end();
}

int main(void)
{
	uint8_t *data[N_OBJECTS];
	pthread_t threads[4];

	start(threads);
	await_rails();
	for (uint32_t i = 0; i < N_OBJECTS; i++) {
		char key[8];

		data[i] = malloc(OBJECT);
		rig_fill(data[i], OBJECT, i);
		snprintf(key, sizeof(key), "k%u", i);
		put(key, data[i]);
	}
	tap_ok(reads(data, N_READS, false) == N_READS, "puts and reads over two rails");
	order();
	tap_ok(reads(data, N_READS, true) >= N_READS / 2, "reads beside cancelled ones, on a drained rail's node");
	order();
	come_and_go();
	lose_rails(data);
	tap_start(&threads[3], work_body, NULL);
	lose_device(data);
	end(threads);
	for (uint32_t i = 0; i < N_OBJECTS; i++)
		free(data[i]);
	return tap_end();
}
