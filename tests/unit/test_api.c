/* SPDX-License-Identifier: BSD-3-Clause */
/* Methods of the control socket: who may ask what, and what is answered. */
#include "api_fixture.h"

#include <poll.h>
#include <pthread.h>

TestSuite(api, .init = start, .fini = stop);

Test(api, hello_names_node_and_version)
{
	int fd = dial_only();
	json_t *reply = ask(fd, HELLO);
	json_t *r = json_object_get(reply, "result");

	cr_expect_str_eq(text_at(reply, "jsonrpc"), "2.0");
	cr_expect_eq(int_at(reply, "id"), 1);
	cr_expect_str_eq(text_at(r, "node"), "node0");
	cr_expect_str_eq(text_at(r, "daemon_version"), RY_VERSION);
}

Test(api, hello_must_come_first_and_fit)
{
	int fd = dial_only();

	expect_error(ask(fd, "{\"id\":1,\"method\":\"status\"}\n"), -32600, "PROTOCOL", "hello must be the first");
	expect_error(
		ask(fd, "{\"id\":1,\"method\":\"hello\",\"params\":{\"version\":2}}\n"), -32018, "VERSION", "upgrade");
	expect_error(ask(fd, "{\"id\":1,\"method\":\"status\"}\n"), -32600, "PROTOCOL", "hello must be the first");
	cr_expect_eq(int_at(result_of(fd, HELLO), "version"), 1);
}

Test(api, every_method_is_listed_and_answers)
{
	int fd = dial();
	json_t *methods = json_object_get(result_of(fd, "{\"id\":1,\"method\":\"help\"}\n"), "methods");
	size_t n = 0;

#define COUNT(id, name, permission, help) n++;
	RY_METHODS(COUNT)
#undef COUNT
	cr_expect_eq(json_array_size(methods), n);
	for (size_t i = 0; i < n; i++) {
		json_t *m = json_array_get(methods, i);
		char line[128];

		cr_expect_neq(text_at(m, "help")[0], 0);
		if (!strcmp(text_at(m, "name"), "shutdown"))
			continue;
		snprintf(line, sizeof(line), "{\"id\":%zu,\"method\":\"%s\"}\n", i, text_at(m, "name"));
		cr_expect_eq(int_at(ask(fd, line), "id"), (json_int_t)i);
	}
}

Test(api, requests_that_are_none)
{
	int fd = dial();

	expect_error(ask(fd, "{\"id\":\n"), -32700, "PROTOCOL", "not JSON");
	expect_error(ask(fd, "\n"), -32700, "PROTOCOL", "not JSON");
	expect_error(ask(fd, "{\"id\":1,\"id\":2,\"method\":\"help\"}\n"), -32700, "PROTOCOL", "duplicate");
	expect_error(ask(fd, "[]\n"), -32600, "PROTOCOL", "not a JSON-RPC 2.0 request");
	expect_error(ask(fd, "{\"id\":1}\n"), -32600, "PROTOCOL", "not a JSON-RPC 2.0 request");
	expect_error(
		ask(fd, "{\"jsonrpc\":\"1.0\",\"id\":1,\"method\":\"help\"}\n"), -32600, "PROTOCOL", "JSON-RPC 2.0");
	expect_error(ask(fd, "{\"id\":{},\"method\":\"help\"}\n"), -32600, "PROTOCOL", "id must be");
	expect_error(ask(fd, "{\"id\":1,\"method\":\"reboot\"}\n"), -32601, "INVALID", "unknown method 'reboot'");
	/* The connection is as good as before. */
	cr_expect_not_null(result_of(fd, "{\"id\":9,\"method\":\"version\"}\n"));
}

/* What comes next is the answer to the next request that has an id. */
static void is_not_answered(int fd, const char *line)
{
	json_t *reply;

	say(fd, line);
	reply = ask(fd, "{\"id\":77,\"method\":\"version\"}\n");
	cr_expect_eq(int_at(reply, "id"), 77, "an answer to %s", line);
	cr_expect_not_null(json_object_get(reply, "result"));
}

Test(api, notifications_are_done_and_not_answered)
{
	int fd = dial_only();

	say(fd, "{\"jsonrpc\":\"2.0\",\"method\":\"status\"}\n");
	say(fd, "{\"jsonrpc\":\"2.0\",\"method\":\"hello\",\"params\":{\"version\":1}}\n");
	is_not_answered(fd, "{\"method\":\"status\"}\n");
	is_not_answered(fd, "{\"method\":\"rails\"}\n");
	cr_expect_eq(control.n_calls[API_RAIL_INFO], 1, "control was asked");
	is_not_answered(fd, "{\"method\":\"no such method\"}\n");
	is_not_answered(fd, "{\"method\":\"plan\",\"params\":{\"size_bytes\":-1}}\n");
	is_not_answered(fd, "{\"method\":\"attach\",\"params\":{\"abi_major\":1,\"abi_minor\":0}}\n");
	cr_expect_eq(api_n_sessions(api), 0, "nobody would get the descriptors");
	is_not_answered(fd, "{\"method\":\"shutdown\"}\n");
	cr_expect_eq(control.n_calls[API_SHUTDOWN], 1, "it was done");
	/* An id of null is one, and what is no request is answered as such. */
	cr_expect(json_is_null(json_object_get(ask(fd, "{\"id\":null,\"method\":\"version\"}\n"), "id")));
	expect_error(ask(fd, "{\"params\":{}}\n"), -32600, "PROTOCOL", "not a JSON-RPC 2.0 request");
}

/* 101 lines, of which 16 are taken in a turn: the others are served in between, and no line is forgotten. */
static void say_101_lines(int fd)
{
	for (int i = 0; i < 100; i++)
		say(fd, "{\"method\":\"version\"}\n");
	say(fd, "{\"id\":101,\"method\":\"version\"}\n");
}

static bool has_answer(int fd)
{
	char byte;

	return recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 1;
}

Test(api, notifications_take_turns)
{
	int fd = dial(), other = dial();
	unsigned n = 1;

	say_101_lines(fd);
	shutdown(fd, SHUT_WR);
	say(other, "{\"id\":5,\"method\":\"version\"}\n");
	cr_expect(api_poll(api, now_ns));
	cr_expect(has_answer(other), "others do not wait for them");
	while (!has_answer(fd) && n < 100) {
		cr_assert(api_poll(api, now_ns), "asleep with lines left after %u turns", n);
		n++;
	}
	cr_expect_eq(n, 7, "%u turns", n);
	cr_expect_eq(int_at(hear(fd), "id"), 101);
	cr_expect_null(hear(fd), "and the end");
	cr_expect_eq(int_at(hear(other), "id"), 5);
	close(fd);
}

static uint32_t want_stop;

static void *run_api(void *arg)
{
	api_run(api, &want_stop);
	return arg;
}

/* The thread that sleeps for input does not sleep on them. */
Test(api, notifications_are_all_done_without_more_input)
{
	int fd = dial();
	struct pollfd p = {.fd = fd, .events = POLLIN};
	pthread_t thread;
	int n;

	say_101_lines(fd);
	cr_assert_eq(pthread_create(&thread, NULL, run_api, NULL), 0);
	n = poll(&p, 1, 10000);
	__atomic_store_n(&want_stop, 1, __ATOMIC_RELAXED);
	waker_signal(deps.waker);
	pthread_join(thread, NULL);
	cr_assert_eq(n, 1, "it sleeps with lines left");
	cr_expect_eq(int_at(hear(fd), "id"), 101);
}

Test(api, parameters_are_checked_against_the_table)
{
	int fd = dial();

	expect_error(
		ask(fd, "{\"id\":1,\"method\":\"plan\",\"params\":[1]}\n"), -32602, "INVALID", "must be an object");
	expect_error(ask(fd, "{\"id\":1,\"method\":\"plan\"}\n"), -32602, "INVALID", "parameter size_bytes is missing");
	expect_error(ask(fd, "{\"id\":1,\"method\":\"plan\",\"params\":{\"size_bytes\":\"1\"}}\n"), -32602, "INVALID",
		"size_bytes must be an integer");
	expect_error(ask(fd, "{\"id\":1,\"method\":\"plan\",\"params\":{\"size_bytes\":-1}}\n"), -32602, "INVALID",
		"size_bytes is -1; 0 to");
	expect_error(ask(fd, "{\"id\":1,\"method\":\"plan\",\"params\":{\"size_bytes\":1,\"stripe_bytes\":1}}\n"),
		-32602, "INVALID", "65536 to 1073741824");
	expect_error(ask(fd, "{\"id\":1,\"method\":\"plan\",\"params\":{\"size_bytes\":1,\"store\":7}}\n"), -32602,
		"INVALID", "store must be a string");
	expect_error(ask(fd, "{\"id\":1,\"method\":\"status\",\"params\":{\"verbose\":true}}\n"), -32602, "INVALID",
		"unknown parameter 'verbose'");
	expect_error(ask(fd, "{\"id\":1,\"method\":\"metrics\",\"params\":{\"describe\":1}}\n"), -32602, "INVALID",
		"true or false");
	for (int i = 0; i < 16; i++)
		cr_expect_eq(control.n_calls[i], 0, "control was asked");
}

Test(api, status_shows_stores_rails_and_budgets)
{
	int fd = attach();
	json_t *s, *store;

	stat_set(&control_counters_all.inflight_bytes, 4242);
	stat_set(&control_counters_all.objects, 17);
	now_ns += 5;
	s = result_of(fd, "{\"id\":1,\"method\":\"status\"}\n");
	cr_expect_str_eq(text_at(s, "node"), "node0");
	cr_expect(json_is_false(json_object_get(s, "is_draining")));
	cr_expect(json_is_false(json_object_get(s, "has_hugepages")));
	cr_expect_eq(int_at(json_object_get(s, "rails"), "requested"), 2);
	cr_expect_eq(int_at(json_object_get(s, "rails"), "effective"), 1);
	cr_expect_eq(int_at(json_object_get(s, "clients"), "attached"), 1);
	cr_expect_eq(int_at(json_object_get(s, "clients"), "registered_bytes"), (1 << 20) + 262144);
	cr_expect_eq(int_at(json_object_get(s, "inflight"), "bytes"), 4242);
	cr_expect_eq(int_at(json_object_get(s, "inflight"), "max_bytes"), 1 << 30);
	cr_expect_eq(int_at(json_object_get(s, "store"), "objects"), 17);
	store = json_array_get(json_object_get(s, "stores"), 0);
	cr_expect_str_eq(text_at(store, "state"), "partial");
	cr_expect_str_eq(text_at(store, "last_error"), "connection refused");
}

Test(api, rails_ask_control_and_show_counters)
{
	int fd = dial();
	json_t *rails, *rail;

	stat_set(&rail_counters_of[1].rx_bytes, 99);
	rails = json_object_get(result_of(fd, "{\"id\":1,\"method\":\"rails\"}\n"), "rails");
	cr_assert_eq(json_array_size(rails), 2);
	cr_expect_eq(control.n_calls[API_RAIL_INFO], 1);
	rail = json_array_get(rails, 1);
	cr_expect_str_eq(text_at(rail, "name"), "rail1");
	cr_expect_eq(int_at(rail, "lcore"), 2);
	cr_expect_eq(int_at(rail, "depth_bytes"), 4096);
	cr_expect(json_is_true(json_object_get(rail, "quarantine")));
	cr_expect(json_is_null(json_object_get(rail, "device")) && json_is_null(json_object_get(rail, "numa")),
		"not known");
	cr_expect_eq(json_array_size(json_object_get(rail, "shares_device_with")), 0);
	cr_expect_eq(int_at(json_object_get(rail, "counters"), "rx_bytes"), 99);
	cr_expect_str_eq(text_at(json_array_get(json_object_get(rail, "pairs"), 0), "state"), "DIALLING");
	cr_expect_str_eq(text_at(json_array_get(json_object_get(rail, "pairs"), 0), "store"), "store0");
}

Test(api, metrics_have_every_row)
{
	int fd = dial();
	json_t *m = result_of(fd, "{\"id\":1,\"method\":\"metrics\",\"params\":{\"describe\":true}}\n");
	json_t *meaning = json_object_get(m, "meaning");

	cr_expect_eq(json_object_size(json_object_get(m, "control")), stats_n_control_rows);
	cr_expect_eq(json_object_size(json_array_get(json_object_get(m, "rails"), 0)), stats_n_rail_rows + 1);
	cr_expect_eq(json_object_size(json_object_get(m, "conn")), stats_n_conn_rows);
	cr_expect_eq(json_array_size(json_object_get(meaning, "rails")), stats_n_rail_rows);
	cr_expect_eq(json_array_size(json_object_get(meaning, "conn")), stats_n_conn_rows);
}

Test(api, plan_is_controls_answer)
{
	int fd = dial();
	json_t *r = result_of(fd, "{\"id\":1,\"method\":\"plan\",\"params\":{\"size_bytes\":12582912}}\n");

	cr_expect_eq(control.length, UINT64_MAX, "to the end");
	cr_expect_eq(int_at(json_array_get(json_object_get(r, "rails"), 1), "stripes"), 3);
	expect_error(ask(fd, "{\"id\":1,\"method\":\"plan\",\"params\":{\"size_bytes\":1,\"store\":\"nope\"}}\n"),
		-32023, "INVALID", "no store");
	control.status = RY_ERR_NO_RAIL;
	expect_error(ask(fd, "{\"id\":1,\"method\":\"plan\",\"params\":{\"size_bytes\":1}}\n"), -32001, "NO_RAIL",
		"as the test wants");
}

Test(api, config_has_units)
{
	int fd = dial();
	json_t *c = result_of(fd, "{\"id\":1,\"method\":\"config\"}\n");

	cr_expect_str_eq(text_at(json_object_get(c, "reader"), "read_arena"), "1MiB");
	cr_expect_str_eq(text_at(json_object_get(c, "timeouts"), "fence"), "100ms");
	cr_expect_str_eq(text_at(json_array_get(json_object_get(c, "rails"), 1), "inflight"), "64MiB");
	cr_expect_str_eq(json_string_value(json_array_get(json_object_get(c, "roles"), 1)), "store");
}

/* Of a configuration made in memory every value is a default. */
Test(api, config_has_sources)
{
	int fd = dial();
	json_t *row, *rows;
	uint32_t n = 0;
	size_t i;

	strcpy(config.eal_args, "--lcores 0-2");
	rows = json_object_get(
		result_of(fd, "{\"id\":1,\"method\":\"config\",\"params\":{\"sources\":true}}\n"), "settings");
	json_array_foreach (rows, i, row) {
		if (strcmp(text_at(row, "key"), "timeouts.fence") != 0)
			continue;
		cr_expect_str_eq(text_at(row, "value"), "100ms");
		cr_expect_str_eq(text_at(row, "source"), "default");
		n++;
	}
	cr_expect_eq(n, 1);
	cr_expect_str_eq(text_at(json_array_get(rows, 1), "value"), "--lcores 0-2");
	cr_expect_str_eq(text_at(json_array_get(rows, 1), "source"), "command line");
}

Test(api, faults_are_for_mock_rails)
{
	int fd = dial();
	const char *inject = "{\"id\":1,\"method\":\"fault_inject\",\"params\":{\"rail\":\"rail1\",\"plan\":"
			     "\"disconnect:at=1\"}}\n";

	expect_error(ask(fd, inject), -32019, "DENIED", "fault_injection: true");
	config.want_fault_injection = true;
	expect_error(ask(fd, inject), -32023, "INVALID", "rail rail1 has the transport tcp");
	cr_expect_eq(json_array_size(json_object_get(result_of(fd, "{\"id\":1,\"method\":\"faults\"}\n"), "rails")), 0);
}

Test(api, steering_is_for_administrators)
{
	static const char *const steering[] = {
		"shutdown", "rail_drain", "rail_resume", "limits_set", "fault_inject", "fault_clear"};
	json_t *methods = json_object_get(result_of(dial(), "{\"id\":1,\"method\":\"help\"}\n"), "methods");
	size_t n_admin = 0;

	for (size_t i = 0; i < json_array_size(methods); i++) {
		json_t *m = json_array_get(methods, i);
		bool is_steering = false;

		for (size_t k = 0; k < sizeof(steering) / sizeof(steering[0]); k++)
			is_steering |= !strcmp(text_at(m, "name"), steering[k]);
		cr_expect_eq(!strcmp(text_at(m, "permission"), "admin"), is_steering, "%s", text_at(m, "name"));
		n_admin += is_steering;
	}
	cr_expect_eq(n_admin, 6);
}
