/* SPDX-License-Identifier: BSD-3-Clause */
/* What an operator asks and orders over the control socket, on a whole node in one thread and virtual time. */
#include <criterion/criterion.h>
#include <jansson.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "capture.h"
#include "read/control_priv.h"
#include "rig.h"

#define SECOND 1000000000ull
#define BANDWIDTH 100000000u
#define OBJECT (2u << 20)

static struct rig rig;
static struct api *api;
static uint8_t *data;
static char dir[32];
static int fd;
static json_t *heard; /* every reply, freed at the end */
static void (*configure)(struct config *c);

static void step(void)
{
	rig_step(&rig);
	api_poll(api, rig.now_ns);
}

static void run(uint64_t ns)
{
	for (uint64_t end = rig.now_ns + ns; rig.now_ns < end;)
		step();
}

static void dial(void)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};

	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
	strcpy(a.sun_path, rig.config.socket_path);
	cr_assert_eq(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0, "%s", strerror(errno));
}

/* One request with its parameters as JSON ("" = none); the whole reply. */
static json_t *ask(const char *method, const char *params)
{
	static char line[1 << 18];
	size_t n = (size_t)snprintf(line, sizeof(line), "{\"id\":1,\"method\":\"%s\"%s%s}\n", method,
		params[0] ? ",\"params\":" : "", params);
	json_t *reply;

	cr_assert_eq(send(fd, line, n, MSG_NOSIGNAL), (ssize_t)n);
	for (n = 0; !n || line[n - 1] != '\n';) {
		ssize_t got = recv(fd, line + n, sizeof(line) - n, 0);

		cr_assert(got > 0 || errno == EAGAIN);
		n += got > 0 ? (size_t)got : 0;
		step();
	}
	reply = json_loadb(line, n, 0, NULL);
	json_array_append_new(heard, reply);
	return reply;
}

static json_t *result(const char *method, const char *params)
{
	json_t *reply = ask(method, params), *r = json_object_get(reply, "result");

	cr_assert_not_null(r, "%s: %s", method, json_dumps(reply, JSON_COMPACT));
	return r;
}

static void refused(const char *method, const char *params, const char *status, const char *text)
{
	json_t *e = json_object_get(ask(method, params), "error");
	const char *said = json_string_value(json_object_get(e, "message")) ?: "no error";

	cr_expect_str_eq(json_string_value(json_object_get(json_object_get(e, "data"), "status")) ?: "none", status);
	cr_expect_not_null(strstr(said, text), "%s", said);
}

static const char *text_at(json_t *o, const char *key)
{
	cr_assert(json_is_string(json_object_get(o, key)), "%s", key);
	return json_string_value(json_object_get(o, key));
}

static json_int_t int_at(json_t *o, const char *key)
{
	cr_assert(json_is_integer(json_object_get(o, key)), "%s", key);
	return json_integer_value(json_object_get(o, key));
}

static bool is_set(json_t *o, const char *key)
{
	cr_assert(json_is_boolean(json_object_get(o, key)), "%s", key);
	return json_is_true(json_object_get(o, key));
}

static json_t *pair(int rail)
{
	return json_array_get(json_object_get(result("health", ""), "pairs"), (size_t)rail);
}

static void start(void)
{
	struct api_deps deps;
	char message[256];

	heard = json_array();
	rig_init(&rig, 2, BANDWIDTH);
	strcpy(dir, "/tmp/ry-api-XXXXXX");
	cr_assert_not_null(mkdtemp(dir));
	snprintf(rig.config.socket_path, sizeof(rig.config.socket_path), "%s/ctl.sock", dir);
	rig.config.want_fault_injection = true;
	if (configure)
		configure(&rig.config);
	rig_start(&rig);
	data = rig_object(&rig, "k", OBJECT, 7);
	node_api_deps(rig.node, &deps);
	cr_assert_eq(api_create(&deps, message, sizeof(message), &api), 0, "%s", message);
	dial();
	cr_assert_eq(int_at(result("hello", "{\"version\":1}"), "version"), 1);
}

static void stop(void)
{
	close(fd);
	api_destroy(api);
	rig_stop(&rig);
	json_decref(heard);
	free(data);
	rmdir(dir);
}

TestSuite(node_api, .init = start, .fini = stop);

static uint64_t landed(int rail)
{
	return stat_get(&rail_counters(rig.node->rails[rail])->rx_bytes);
}

static struct ry_cqe wait_read(uint64_t ticket)
{
	struct ry_cqe cqe;

	for (uint64_t end = rig.now_ns + 60 * SECOND; rig.now_ns < end;) {
		if (rig_reap(&rig, rig.client, &cqe) && cqe.ticket == ticket)
			return cqe;
		step();
	}
	cr_assert_fail("a read waits for ever");
	return cqe;
}

static uint32_t read_once(void)
{
	struct ry_cqe cqe = wait_read(rig_submit_read(&rig, rig.client, "k", 0, UINT64_MAX, 0, 0));

	if (cqe.status == RY_OK) {
		cr_expect(rig_same(rig.client, &cqe, data, OBJECT));
		rig_release(&rig, rig.client, cqe.lease_id);
	}
	return cqe.status;
}

Test(node_api, health_shows_every_pair_and_why_it_carries_nothing)
{
	json_t *r = result("health", ""), *p;

	cr_expect_eq(int_at(r, "n_pairs"), 2);
	cr_expect_eq(int_at(r, "n_eligible"), 2);
	p = pair(1);
	cr_expect_str_eq(text_at(p, "rail"), "rail1");
	cr_expect_str_eq(text_at(p, "peer"), "self");
	cr_expect_str_eq(text_at(p, "state"), "closed");
	cr_expect_str_eq(text_at(p, "blocked_by"), "");
	cr_expect(is_set(p, "eligible") && is_set(p, "connected") && is_set(p, "proven"));
	cr_expect(!is_set(p, "suspect") && !is_set(p, "draining") && !is_set(p, "slow"));
	cr_expect_eq(int_at(p, "trips"), 0);
	cr_expect_lt(int_at(p, "in_state_ns"), (json_int_t)SECOND, "counted from the start, not from the clock's zero");
	cr_expect_eq(int_at(json_object_get(p, "probes"), "sent"), 0);
	/* Suspicion is not shown by the breaker: it is control's. */
	for (uint32_t i = 0; i < PAIRS_MAX; i++)
		rig.node->control->paths[i].is_suspect = rig.node->control->paths[i].rail_idx == 1;
	p = pair(1);
	cr_expect_str_eq(text_at(p, "blocked_by"), "suspect");
	cr_expect(!is_set(p, "eligible"));
}

Test(node_api, a_drained_rail_gets_nothing_until_it_is_resumed)
{
	uint64_t before;
	json_t *r;

	cr_expect_eq(read_once(), RY_OK);
	r = result("rail_drain", "{\"rail\":\"rail0\"}");
	cr_expect_str_eq(text_at(r, "warning"), "");
	cr_expect(is_set(r, "draining"));
	cr_expect_str_eq(text_at(pair(0), "blocked_by"), "draining");
	cr_expect(is_set(json_array_get(json_object_get(result("rails", ""), "rails"), 0), "draining"));
	before = landed(0);
	cr_expect_eq(read_once(), RY_OK);
	cr_expect_eq(landed(0), before);
	r = result("rail_resume", "{\"rail\":\"rail0\"}");
	cr_expect_str_eq(text_at(r, "warning"), "");
	cr_expect_eq(read_once(), RY_OK);
	cr_expect_gt(landed(0), before);
}

Test(node_api, the_last_rail_is_drained_with_a_warning)
{
	json_t *r;

	cr_expect_str_eq(text_at(result("rail_drain", "{\"rail\":\"rail0\"}"), "warning"), "");
	r = result("rail_drain", "{\"rail\":\"rail1\"}");
	cr_expect_not_null(
		strstr(text_at(r, "warning"), "no rail is left for reads from self"), "%s", text_at(r, "warning"));
	cr_expect_eq(read_once(), RY_ERR_NO_RAIL);
	refused("plan", "{\"size_bytes\":1048576}", "NO_RAIL", "no rail to self: rail0 is drained, rail1 is drained");
	result("rail_resume", "{\"rail\":\"rail1\"}");
	cr_expect_eq(read_once(), RY_OK);
}

Test(node_api, a_rail_is_drained_in_mid_read)
{
	uint64_t ticket = rig_submit_read(&rig, rig.client, "k", 0, UINT64_MAX, 0, 0);
	struct ry_cqe cqe;

	run(5000000);
	cr_assert_gt(rig.node->control->rails[0].inflight_bytes, 0, "it is under way");
	result("rail_drain", "{\"rail\":\"rail0\"}");
	cqe = wait_read(ticket);
	cr_expect_eq(cqe.status, RY_OK);
	cr_expect(rig_same(rig.client, &cqe, data, OBJECT));
	rig_release(&rig, rig.client, cqe.lease_id);
	cr_expect(rig_settle(&rig));
}

Test(node_api, an_unknown_rail_gets_the_nearest_name)
{
	refused("rail_drain", "{\"rail\":\"rial1\"}", "INVALID", "did you mean 'rail1'?");
	refused("rail_resume", "{\"rail\":\"x\"}", "INVALID", "'x' is no rail of this node");
	refused("fault_inject", "{\"rail\":\"railO\",\"plan\":\"\"}", "INVALID", "");
	refused("fault_inject", "{\"rail\":\"eth0\",\"plan\":\"disconnect:at=1\"}", "INVALID", "no rail of this node");
	refused("fault_clear", "{\"rail\":\"eth0\"}", "INVALID", "no rail of this node");
}

Test(node_api, limits_are_shown_and_change_at_once)
{
	json_t *l = result("limits", "");

	cr_expect_eq(int_at(l, "max_reads"), rig.config.max_reads);
	cr_expect_eq(int_at(l, "inflight_max_bytes"), (json_int_t)rig.config.inflight_max_bytes);
	cr_expect_eq(int_at(l, "reads"), 0);
	l = result("limits_set", "{\"inflight_max_bytes\":1048576,\"client_inflight_max_bytes\":1048576}");
	cr_expect_eq(int_at(l, "client_inflight_max_bytes"), 1048576);
	cr_expect_eq(read_once(), RY_ERR_BUDGET);
	cr_expect_eq(int_at(json_object_get(result("status", ""), "inflight"), "max_bytes"), 1048576);
	result("limits_set", "{\"inflight_max_bytes\":4194304,\"client_inflight_max_bytes\":4194304}");
	cr_expect_eq(read_once(), RY_OK);
}

Test(node_api, limits_obey_the_ranges_of_the_file)
{
	refused("limits_set", "", "INVALID", "name a budget");
	refused("limits_set", "{\"max_reads\":0}", "INVALID", "max_reads");
	refused("limits_set", "{\"max_reads\":100000}", "INVALID", "reader.max_reads and restart");
	refused("limits_set", "{\"max_reads\":4294967297}", "INVALID", "max_reads");
	refused("limits_set", "{\"client_max_reads\":65537}", "INVALID", "client_max_reads");
	refused("limits_set", "{\"max_reads\":8}", "INVALID", "reader.client_max_reads");
	refused("limits_set", "{\"inflight_max_bytes\":1000}", "INVALID", "range");
	refused("limits_set", "{\"client_inflight_max_bytes\":1}", "INVALID", "range");
	refused("limits_set", "{\"client_inflight_max_bytes\":1099511627776}", "INVALID",
		"larger than reader.inflight");
	refused("limits_set", "{\"admission_wait_ns\":1}", "INVALID", "range");
	cr_expect_eq(int_at(result("limits", ""), "max_reads"), rig.config.max_reads, "nothing changed");
	cr_expect_eq(int_at(result("limits_set", "{\"admission_wait_ns\":2000000}"), "admission_wait_ns"), 2000000);
}

static json_t *rail_limits(const char *answer_of, const char *params, size_t rail)
{
	return json_array_get(json_object_get(result(answer_of, params), "rails"), rail);
}

/* Below what is out: nothing is lost, and no more goes out until there is room. */
Test(node_api, a_rail_s_budget_is_lowered_in_mid_read)
{
	uint64_t ticket = rig_submit_read(&rig, rig.client, "k", 0, UINT64_MAX, 0, 0);
	const struct rail_ctx *rail = &rig.node->control->rails[0];
	uint64_t most = 0, idle = 0;
	struct ry_cqe cqe;
	json_t *l;

	run(5000000);
	cr_assert_gt(rail->inflight_bytes, 0, "it is under way");
	l = rail_limits("limits_set", "{\"rail\":\"rail0\",\"rail_inflight_max_bytes\":1048576}", 0);
	cr_expect_str_eq(text_at(l, "name"), "rail0");
	cr_expect_eq(int_at(l, "inflight_max_bytes"), 1048576);
	cr_expect_gt(int_at(l, "inflight_bytes"), 0);
	cqe = wait_read(ticket);
	cr_expect_eq(cqe.status, RY_OK, "what is out ends well");
	cr_expect(rig_same(rig.client, &cqe, data, OBJECT));
	rig_release(&rig, rig.client, cqe.lease_id);
	for (int i = 0; i < 4; i++)
		rig_submit_read(&rig, rig.client, "k", 0, UINT64_MAX, 0, 0);
	for (int n = 0; n < 4;) {
		step();
		most = RTE_MAX(most, rail->inflight_bytes);
		idle = RTE_MAX(idle, rig.node->control->rails[1].inflight_bytes);
		n += rig_reap(&rig, rig.client, &cqe);
	}
	cr_expect_gt(most, 0);
	cr_expect_leq(most, 1048576 + PLAN_PIECE_SLACK);
	cr_expect_gt(idle, 1048576 + PLAN_PIECE_SLACK, "the other rail's is as it was");
	l = rail_limits("limits", "", 1);
	cr_expect_eq(int_at(l, "inflight_max_bytes"), (json_int_t)rig.config.rails[1].inflight_max_bytes);
	cr_expect_eq(int_at(json_array_get(json_object_get(result("rails", ""), "rails"), 0), "inflight_max_bytes"),
		1048576);
	result("limits_set", "{\"rail\":\"rail0\",\"rail_inflight_max_bytes\":67108864}");
	cr_expect_gt(rail->depth_bytes, 1048576, "raised at once");
}

Test(node_api, a_rail_s_budget_obeys_its_range)
{
	refused("limits_set", "{\"rail\":\"rail1\",\"rail_inflight_max_bytes\":1000}", "INVALID",
		"range, 1MiB to 64GiB");
	refused("limits_set", "{\"rail\":\"rail1\",\"rail_inflight_max_bytes\":1000}", "INVALID", "rails[1].inflight");
	refused("limits_set", "{\"rail\":\"rail1\",\"rail_inflight_max_bytes\":1099511627776}", "INVALID", "range");
	refused("limits_set", "{\"rail\":\"rial1\",\"rail_inflight_max_bytes\":2097152}", "INVALID",
		"did you mean 'rail1'?");
	refused("limits_set", "{\"rail\":\"rail1\"}", "INVALID", "belong together");
	refused("limits_set", "{\"rail_inflight_max_bytes\":2097152}", "INVALID", "belong together");
	cr_expect_eq(int_at(rail_limits("limits", "", 1), "inflight_max_bytes"),
		(json_int_t)rig.config.rails[1].inflight_max_bytes, "nothing changed");
}

Test(node_api, the_budget_of_arenas_obeys_its_range)
{
	json_t *l;

	refused("limits_set", "{\"registered_max_bytes\":1000}", "INVALID", "range, 2MiB to 16TiB");
	refused("limits_set", "{\"registered_max_bytes\":2097152}", "INVALID", "two arenas of a single client");
	cr_expect_eq(int_at(result("limits", ""), "registered_max_bytes"), (json_int_t)rig.config.registered_max_bytes);
	l = result("limits_set", "{\"registered_max_bytes\":67108864}");
	cr_expect_eq(int_at(l, "registered_max_bytes"), 67108864);
	l = json_object_get(result("status", ""), "clients");
	cr_expect_eq(int_at(l, "registered_max_bytes"), 67108864);
}

static void with_qps(struct config *c)
{
	c->policy = POLICY_ROUND_ROBIN;
	for (uint16_t r = 0; r < c->n_rails; r++)
		c->rails[r].sockets_per_pair = 4;
}

static void start_with_qps(void)
{
	configure = with_qps;
	start();
}

TestSuite(node_api_qps, .init = start_with_qps, .fini = stop);

/* One read, of which each rail is dealt every other stripe. */
Test(node_api_qps, a_read_is_spread_over_all_of_them_and_its_bytes_are_told)
{
	json_int_t before[2] = {(json_int_t)landed(0), (json_int_t)landed(1)};

	cr_assert_eq(read_once(), RY_OK);
	for (int rail = 0; rail < 2; rail++) {
		json_t *row = json_array_get(json_object_get(result("rails", ""), "rails"), (size_t)rail);
		json_t *qps = json_object_get(row, "qp_rx_bytes");
		json_int_t sum = 0;

		cr_assert_eq(json_array_size(qps), 4);
		for (size_t q = 0; q < 4; q++) {
			json_int_t n = json_integer_value(json_array_get(qps, q));

			cr_expect_geq(n, RIG_STRIPE_BYTES, "rail%d: QP %zu carried %lld", rail, q, (long long)n);
			sum += n;
		}
		cr_expect_eq(sum, (json_int_t)landed(rail));
		cr_expect_gt(sum, before[rail]);
	}
}

static void queueing(struct config *c)
{
	c->admission = ADMISSION_QUEUE;
	c->inflight_max_bytes = c->client_inflight_max_bytes = OBJECT;
}

static void start_queueing(void)
{
	configure = queueing;
	start();
}

TestSuite(node_api_queue, .init = start_queueing, .fini = stop);

Test(node_api_queue, what_waits_and_fits_no_more_is_refused_at_once)
{
	uint64_t first = rig_submit_read(&rig, rig.client, "k", 0, UINT64_MAX, 0, 0);
	uint64_t second = rig_submit_read(&rig, rig.client, "k", 0, UINT64_MAX, 0, 0);
	struct ry_cqe cqe = {0};

	run(1000000);
	cr_expect_eq(int_at(result("limits", ""), "waiting"), 1);
	result("limits_set", "{\"inflight_max_bytes\":1048576,\"client_inflight_max_bytes\":1048576}");
	cr_assert(rig_reap(&rig, rig.client, &cqe), "the second is refused before the first is done");
	cr_expect_eq(cqe.ticket, second);
	cr_expect_eq(cqe.status, RY_ERR_BUDGET);
	cqe = wait_read(first);
	cr_expect_eq(cqe.status, RY_OK, "what was charged goes on");
	rig_release(&rig, rig.client, cqe.lease_id);
	cr_expect(rig_settle(&rig));
}

Test(node_api_queue, raised_limits_let_waiting_reads_in)
{
	uint64_t first = rig_submit_read(&rig, rig.client, "k", 0, UINT64_MAX, 0, 0);
	uint64_t second = rig_submit_read(&rig, rig.client, "k", 0, UINT64_MAX, 0, 0);
	struct ry_cqe cqe = {0};

	run(1000000);
	cr_expect_eq(int_at(result("limits", ""), "waiting"), 1);
	result("limits_set", "{\"inflight_max_bytes\":4194304,\"client_inflight_max_bytes\":4194304}");
	cr_expect_eq(int_at(result("limits", ""), "waiting"), 0);
	cr_expect_not(rig_reap(&rig, rig.client, &cqe), "while the first still runs");
	cqe = wait_read(first);
	cr_expect_eq(cqe.status, RY_OK);
	rig_release(&rig, rig.client, cqe.lease_id);
	cqe = wait_read(second);
	cr_expect_eq(cqe.status, RY_OK);
	rig_release(&rig, rig.client, cqe.lease_id);
}

static void failover(struct config *c)
{
	c->on_rail_failure = ON_RAIL_FAILURE_FAILOVER;
	c->health.error_threshold = 2;
}

static void start_failover(void)
{
	configure = failover;
	start();
}

static void rehearse(void)
{
	result("fault_inject", "{\"rail\":\"rail1\",\"plan\":\"stall:at=1MiB,for=600s\"}");
	for (int i = 0; i < 3; i++)
		cr_expect_eq(read_once(), RY_OK, "it fails over");
	run(5 * SECOND);
}

TestSuite(node_api_failover, .init = start_failover, .fini = stop);

Test(node_api_failover, a_rehearsal_trips_the_rail_and_it_comes_back)
{
	static char said[1 << 16];
	json_t *p, *f;

	rig.step_ns = 100000;
	capture(rehearse, said, sizeof(said));
	p = pair(1);
	cr_expect_str_eq(text_at(p, "state"), "open");
	cr_expect_eq(int_at(p, "trips"), 1);
	cr_expect_str_eq(text_at(p, "last_error"), "TIMEOUT");
	cr_expect_str_eq(text_at(p, "last_class"), "path");
	cr_expect_gt(int_at(p, "cooldown_left_ns"), (json_int_t)(10 * SECOND));
	cr_expect_gt(int_at(json_object_get(p, "probes"), "sent"), 0);
	cr_expect_eq(int_at(json_object_get(p, "probes"), "ok"), 0);
	cr_expect_not_null(
		strstr(said, "health: rail rail1: store self: closed -> open: TIMEOUT (path), cooldown 30s, trips 1\n"),
		"%s", said);
	cr_expect_null(strstr(said, "rail0: store"), "the other rail is well: %s", said);
	cr_expect_not_null(strstr(text_at(result("rail_resume", "{\"rail\":\"rail1\"}"), "warning"),
		"the rail is dead: its pair with self is"));
	f = json_array_get(json_object_get(result("faults", ""), "rails"), 1);
	cr_expect_str_eq(text_at(f, "plan"), "stall:at=1MiB,for=600s");
	cr_expect(is_set(f, "in_force"));
	cr_expect_eq(int_at(json_object_get(f, "done"), "stall"), 1);
	result("fault_clear", "");
	run(3 * SECOND);
	p = pair(1);
	cr_expect_str_eq(text_at(p, "state"), "closed");
	cr_expect(is_set(p, "eligible"));
	cr_expect_eq(int_at(json_object_get(p, "probes"), "ok"), 1);
	f = json_array_get(json_object_get(result("faults", ""), "rails"), 1);
	cr_expect_str_eq(text_at(f, "plan"), "");
	cr_expect_eq(int_at(f, "n_done"), 1, "what was done is not forgotten");
}

Test(node_api, bad_plans_are_explained)
{
	refused("fault_inject", "{\"rail\":\"rail0\",\"plan\":\"explode:at=1\"}", "INVALID", "explode");
	refused("fault_inject", "{\"rail\":\"rail0\"}", "INVALID", "parameter plan is missing");
	cr_expect_str_eq(
		text_at(json_array_get(json_object_get(result("faults", ""), "rails"), 0), "plan"), "", "none is in");
}

static void forbidding(struct config *c)
{
	c->want_fault_injection = false;
}

static void start_forbidding(void)
{
	configure = forbidding;
	start();
}

TestSuite(node_api_no_faults, .init = start_forbidding, .fini = stop);

Test(node_api_no_faults, they_need_the_configurations_word)
{
	refused("fault_inject", "{\"rail\":\"rail0\",\"plan\":\"disconnect:at=1\"}", "DENIED", "fault_injection: true");
	refused("fault_clear", "", "DENIED", "fault_injection: true");
	cr_expect(!is_set(result("faults", ""), "fault_injection"));
}

Test(node_api, reads_are_recorded_newest_first)
{
	json_t *r, *row;

	cr_expect_eq(read_once(), RY_OK);
	cr_expect_eq(read_once(), RY_OK);
	result("limits_set", "{\"client_inflight_max_bytes\":1048576}");
	cr_expect_eq(read_once(), RY_ERR_BUDGET);
	r = result("reads", "");
	cr_expect_eq(int_at(r, "recorded"), 3);
	cr_expect_eq(json_array_size(json_object_get(r, "reads")), 3);
	row = json_array_get(json_object_get(r, "reads"), 0);
	cr_expect_eq(int_at(row, "number"), 2);
	cr_expect_str_eq(text_at(row, "status"), "BUDGET");
	cr_expect_not_null(strstr(text_at(row, "cause"), "read by range"), "%s", text_at(row, "cause"));
	row = json_array_get(json_object_get(r, "reads"), 1);
	cr_expect_str_eq(text_at(row, "status"), "OK");
	cr_expect_str_eq(text_at(row, "key"), "k");
	cr_expect_str_eq(text_at(row, "store"), "self");
	cr_expect_str_eq(text_at(row, "cause"), "");
	cr_expect_eq(int_at(row, "bytes"), OBJECT);
	cr_expect_eq(json_array_size(json_object_get(row, "rails")), 2);
	cr_expect_gt(int_at(row, "took_ns"), 0);
	cr_expect_neq(strcmp(text_at(row, "class"), "unknown"), 0);
	cr_expect(int_at(row, "class_share_permille") > 0 && int_at(row, "class_share_permille") <= 1000);
	r = result("reads", "{\"is_failed\":true}");
	cr_expect_eq(json_array_size(json_object_get(r, "reads")), 1);
	/* Pages. */
	r = result("reads", "{\"max\":1}");
	cr_expect_eq(int_at(r, "next_before"), 2);
	r = result("reads", "{\"max\":1,\"before\":2}");
	cr_expect_eq(int_at(json_array_get(json_object_get(r, "reads"), 0), "number"), 1);
	r = result("reads", "{\"before\":1}");
	cr_expect_eq(json_array_size(json_object_get(r, "reads")), 1);
	cr_expect_eq(int_at(r, "next_before"), 0);
}
