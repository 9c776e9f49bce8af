/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The control socket from outside: real sockets in a directory of their own, the work thread's body run in turn, and a
 * control that answers what the test tells it to.
 */
#include "api/api.h"
#include "daemon/control.h"
#include "daemon/work.h"
#include "health/journal.h"
#include "read/recorder.h"

#include <railyard/methods.def>

#include <criterion/criterion.h>
#include <jansson.h>

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HELLO "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"hello\",\"params\":{\"version\":1}}\n"
#define ATTACH                                                                                                         \
	"{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"attach\",\"params\":{\"abi_major\":1,\"abi_minor\":7,"             \
	"\"read_arena_bytes\":200000,\"put_arena_bytes\":0,\"ring_entries\":5}}\n"

static char dir[32];
static struct config config;
static struct rail_counters rail_counters_of[2];
static struct control_counters control_counters_all;
static struct api_rail api_rails[2];
static struct region_rail region_rails[2];
static struct waker api_waker, control_waker, work_waker;
static struct journal journal;
static struct recorder recorder;
static struct api_deps deps;
static struct work work;
static struct api *api;
static uint64_t now_ns;
static char message[256];
static int n_registered;
static int n_forced;
static json_t *heard; /* every reply, freed at the end */

/* What the fake control saw and shall answer. */
static struct {
	uint32_t n_calls[16];
	uint32_t status;
	bool is_silent; /* keeps the calls */
	struct api_call *kept[256];
	uint32_t n_kept;
	uint64_t length;
} control;

static int fake_reg(void *rail, void *base, uint64_t bytes, enum mem_kind kind, uint32_t *lkey)
{
	n_registered++;
	*lkey = 0;
	return 0;
}

static void fake_dereg(void *rail, uint32_t lkey)
{
	n_registered--;
}

static uint32_t fake_pairs(const struct conn *conn, struct conn_pair_info *rows, uint32_t n)
{
	for (uint16_t i = 0; i < n && i < 2; i++) {
		rows[i] = (struct conn_pair_info){
			.rail_idx = i, .is_dialler = true, .state = i ? CONN_DIALLING : CONN_UP};
		snprintf(rows[i].peer, sizeof(rows[i].peer), "store0");
		if (i)
			snprintf(rows[i].last_error, sizeof(rows[i].last_error), "connection refused");
	}
	return 2;
}

static void on_force(void *arg)
{
	n_forced++;
}

static void answer(struct api_call *call)
{
	call->status = control.status;
	if (call->status)
		snprintf(call->cause, sizeof(call->cause), "as the test wants");
	call->rails[1].depth_bytes = 4096;
	call->n_rails = 2;
	call->plan[1].stripes = 3;
	spsc_push(deps.from_control, call);
}

static void poll_control(void)
{
	struct api_call *call;

	while ((call = spsc_pop(deps.to_control))) {
		control.n_calls[call->op]++;
		control.length = call->length;
		if (control.is_silent)
			control.kept[control.n_kept++] = call;
		else
			answer(call);
	}
}

/* Everyone in turn until nobody has anything to do. */
static void settle(void)
{
	bool did = true;

	while (did) {
		did = api_poll(api, now_ns);
		did |= work_poll(&work);
		poll_control();
		did |= !rte_ring_empty(deps.from_control);
	}
}

static void start(void)
{
	now_ns = 1000000000;
	heard = json_array();
	strcpy(dir, "/tmp/ry-api-XXXXXX");
	cr_assert_not_null(mkdtemp(dir));
	config_defaults(&config);
	strcpy(config.node_name, "node0");
	snprintf(config.socket_path, sizeof(config.socket_path), "%s/ctl.sock", dir);
	config.is_reader = config.is_store = true;
	config.read_arena_bytes = config.put_arena_bytes = 1u << 20;
	config.max_clients = 4;
	config.n_rails = 2;
	config.n_stores = 1;
	strcpy(config.stores[0].name, "store0");
	for (uint16_t i = 0; i < 2; i++) {
		config_rail_defaults(&config.rails[i], i);
		snprintf(config.rails[i].name, sizeof(config.rails[i].name), "rail%u", i);
		strcpy(config.rails[i].transport, "tcp");
		api_rails[i] = (struct api_rail){&rail_counters_of[i], true};
		region_rails[i] = (struct region_rail){NULL, fake_reg, fake_dereg};
	}
	cr_assert(!waker_init(&api_waker) && !waker_init(&control_waker) && !waker_init(&work_waker));
	deps = (struct api_deps){
		.config = &config,
		.rails = api_rails,
		.region_rails = region_rails,
		.counters = &control_counters_all,
		.journal = &journal,
		.recorder = &recorder,
		.pair_info = fake_pairs,
		.to_control = spsc_create("a", API_RING_ENTRIES),
		.from_control = spsc_create("b", API_RING_ENTRIES),
		.to_work = spsc_create("c", API_RING_ENTRIES),
		.from_work = spsc_create("d", API_RING_ENTRIES),
		.waker = &api_waker,
		.control_waker = &control_waker,
		.work_waker = &work_waker,
		.force = on_force,
	};
	work = (struct work){deps.to_work, deps.from_work, &work_waker, &api_waker};
	cr_assert_eq(api_create(&deps, message, sizeof(message), &api), 0, "%s", message);
}

static void stop(void)
{
	api_destroy(api);
	cr_expect_neq(access(config.socket_path, F_OK), 0, "the socket file must be gone");
	json_decref(heard);
	spsc_free(deps.to_control);
	spsc_free(deps.from_control);
	spsc_free(deps.to_work);
	spsc_free(deps.from_work);
	rmdir(dir);
}

TestSuite(api, .init = start, .fini = stop);

static int dial_only(void)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);

	strcpy(a.sun_path, config.socket_path);
	cr_assert_eq(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0, "%s", strerror(errno));
	return fd;
}

static void say(int fd, const char *text)
{
	cr_assert_eq(send(fd, text, strlen(text), MSG_NOSIGNAL), (ssize_t)strlen(text));
}

/* The next line as JSON, with the descriptors that came; NULL at the end of the stream. */
static json_t *hear_fds(int fd, int *fds, int *n_fds)
{
	static char line[1 << 20];
	json_t *reply;
	size_t n = 0;

	settle();
	for (;;) {
		char room[CMSG_SPACE(16 * sizeof(int))];
		struct iovec piece = {line + n, 1};
		struct msghdr m = {
			.msg_iov = &piece, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof(room)};
		ssize_t got = recvmsg(fd, &m, 0);
		struct cmsghdr *c = got > 0 ? CMSG_FIRSTHDR(&m) : NULL;

		if (got < 0 && errno == EAGAIN) {
			/* More of a long reply may follow once there is room. */
			settle();
			got = recvmsg(fd, &m, 0);
		}
		if (got <= 0)
			return NULL;
		if (c && fds) {
			cr_expect_eq(n, 0, "descriptors come with the first byte");
			*n_fds = (int)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
			memcpy(fds, CMSG_DATA(c), (size_t)*n_fds * sizeof(int));
		}
		if (line[n] == '\n')
			break;
		n++;
	}
	reply = json_loadb(line, n, 0, NULL);
	json_array_append_new(heard, reply);
	return reply;
}

static json_t *hear(int fd)
{
	return hear_fds(fd, NULL, NULL);
}

static json_t *ask(int fd, const char *text)
{
	json_t *reply;

	say(fd, text);
	reply = hear(fd);
	cr_assert_not_null(reply, "no answer to %s", text);
	return reply;
}

static json_t *result_of(int fd, const char *text)
{
	json_t *result = json_object_get(ask(fd, text), "result");

	cr_assert_not_null(result, "%s", text);
	return result;
}

static void expect_error(json_t *reply, int code, const char *status, const char *text)
{
	json_t *e = json_object_get(reply, "error");
	const char *said = json_string_value(json_object_get(e, "message"));
	json_int_t got = json_integer_value(json_object_get(e, "code"));

	cr_assert_not_null(said, "no error");
	cr_expect_eq(got, code, "code %lld: %s", (long long)got, said);
	cr_expect_str_eq(json_string_value(json_object_get(json_object_get(e, "data"), "status")), status);
	cr_expect_not_null(strstr(said, text), "%s", said);
}

static const char *text_at(json_t *o, const char *key)
{
	return json_string_value(json_object_get(o, key)) ?: "";
}

static json_int_t int_at(json_t *o, const char *key)
{
	cr_assert(json_is_integer(json_object_get(o, key)), "%s", key);
	return json_integer_value(json_object_get(o, key));
}

/* A connection that has said hello. */
static int dial(void)
{
	int fd = dial_only();

	cr_assert_eq(int_at(result_of(fd, HELLO), "version"), 1);
	return fd;
}

static int attach(void)
{
	int fd = dial();

	cr_assert_geq(int_at(result_of(fd, ATTACH), "client_id"), 1);
	return fd;
}

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
	cr_expect_eq(json_array_size(json_object_get(meaning, "rails")), stats_n_rail_rows);
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

Test(api, attach_passes_five_descriptors)
{
	int fd = dial(), fds[16], n_fds = 0;
	const struct ry_ring_header *h;
	uint64_t one = 1;
	struct stat st;
	json_t *r;

	say(fd, ATTACH);
	r = json_object_get(hear_fds(fd, fds, &n_fds), "result");
	cr_assert_not_null(r);
	cr_assert_eq(n_fds, 5);
	cr_expect_eq(int_at(r, "abi_minor"), RY_RING_ABI_MINOR, "the smaller of both");
	cr_expect_eq(int_at(r, "read_arena_bytes"), 262144, "rounded up to a granule");
	cr_expect_eq(int_at(r, "put_arena_bytes"), 1 << 20, "0 = default");
	h = mmap(NULL, (size_t)int_at(r, "ring_bytes"), PROT_READ | PROT_WRITE, MAP_SHARED, fds[0], 0);
	cr_assert_neq((const void *)h, MAP_FAILED);
	cr_expect_eq(h->magic, RY_RING_MAGIC);
	cr_expect_eq(h->n_entries, 8, "rounded up to a power of two");
	cr_expect_eq((json_int_t)h->client_id, int_at(r, "client_id"));
	cr_expect(!fstat(fds[1], &st) && st.st_size == 262144);
	cr_expect(!fstat(fds[2], &st) && st.st_size == 1 << 20);
	cr_expect_eq(write(fds[3], &one, sizeof(one)), 8);
	cr_expect_eq(read(control_waker.event_fd, &one, sizeof(one)), 8, "the fourth wakes control");
	cr_expect_eq(write(fds[4], &one, sizeof(one)), 8);
	cr_expect_eq(control.n_calls[API_ATTACH], 1);
	n_fds = 0;
	say(fd, "{\"id\":3,\"method\":\"version\"}\n");
	cr_expect_not_null(hear_fds(fd, fds, &n_fds));
	cr_expect_eq(n_fds, 0, "they come once");
}

Test(api, more_than_configured_is_capped)
{
	int fd = dial();
	json_t *r = result_of(fd, "{\"id\":2,\"method\":\"attach\",\"params\":{\"abi_major\":1,\"abi_minor\":0,"
				  "\"read_arena_bytes\":99999999999,\"ring_entries\":65536}}\n");

	cr_expect_eq(int_at(r, "read_arena_bytes"), 1 << 20);
	cr_expect_eq(int_at(r, "ring_entries"), config.ring_entries);
}

Test(api, attach_refusals)
{
	int fd = attach();

	expect_error(ask(fd, ATTACH), -32023, "INVALID", "attached already");
	fd = dial();
	expect_error(ask(fd, "{\"id\":2,\"method\":\"attach\",\"params\":{\"abi_major\":2,\"abi_minor\":0}}\n"), -32018,
		"VERSION", "major");
	config.is_reader = false;
	expect_error(ask(fd, ATTACH), -32023, "INVALID", "role reader");
	config.is_reader = true;
	control.status = RY_ERR_LIMIT;
	expect_error(ask(fd, ATTACH), -32015, "LIMIT", "as the test wants");
	settle();
	cr_expect_eq(api_n_sessions(api), 1);
	cr_expect_eq(n_registered, 2 * 2, "the refused client's memory is released");
	control.status = 0;
	cr_expect_geq(int_at(result_of(fd, ATTACH), "client_id"), 2, "the same connection may try again");
}

Test(api, clients_and_registered_bytes_are_bounded)
{
	int fds[4], fd = dial();

	for (int i = 0; i < 4; i++)
		fds[i] = attach();
	expect_error(ask(fd, ATTACH), -32015, "LIMIT", "4 clients are attached");
	close(fds[0]);
	settle();
	config.registered_max_bytes = 3 * ((1 << 20) + 262144) + 4096;
	expect_error(ask(fd, ATTACH), -32002, "BUDGET", "ask for smaller arenas");
	close(fds[1]);
	settle();
	cr_expect_not_null(result_of(fd, ATTACH));
}

Test(api, end_of_connection_detaches)
{
	int fd = attach();

	cr_expect_eq(n_registered, 4);
	close(fd);
	control.is_silent = true;
	settle();
	cr_expect_eq(control.n_calls[API_DETACH], 1);
	cr_expect_eq(api_n_conns(api), 0);
	cr_expect_eq(api_n_sessions(api), 1, "its memory is control's until it answers");
	cr_expect_eq(n_registered, 4);
	answer(control.kept[0]);
	settle();
	cr_expect_eq(api_n_sessions(api), 0);
	cr_expect_eq(n_registered, 0);
}

Test(api, half_closed_client_is_detached)
{
	int fd = attach();

	shutdown(fd, SHUT_WR);
	settle();
	cr_expect_eq(control.n_calls[API_DETACH], 1);
	cr_expect_eq(api_n_sessions(api), 0);
}

Test(api, leaving_during_attach)
{
	int fd = dial();

	/* While work creates the client: control never hears of it. */
	say(fd, ATTACH);
	api_poll(api, now_ns);
	close(fd);
	api_poll(api, now_ns);
	settle();
	cr_expect_eq(control.n_calls[API_ATTACH], 0);
	cr_expect_eq(api_n_sessions(api), 0);
	/* While control adopts it: it is detached again. */
	fd = dial();
	control.is_silent = true;
	say(fd, ATTACH);
	settle();
	cr_assert_eq(control.n_kept, 1);
	close(fd);
	settle();
	control.is_silent = false;
	answer(control.kept[0]);
	settle();
	cr_expect_eq(control.n_calls[API_DETACH], 1);
	cr_expect_eq(api_n_sessions(api), 0);
	cr_expect_eq(n_registered, 0);
}

Test(api, leaving_before_control_answers)
{
	int fd = dial();

	control.is_silent = true;
	say(fd, "{\"id\":1,\"method\":\"rails\"}\n");
	settle();
	cr_assert_eq(control.n_kept, 1);
	close(fd);
	settle();
	answer(control.kept[0]);
	settle();
	cr_expect_eq(api_n_conns(api), 0);
}

Test(api, one_request_at_a_time_in_order)
{
	int fd = dial();

	control.is_silent = true;
	say(fd, "{\"id\":10,\"method\":\"rails\"}\n{\"id\":11,\"method\":\"version\"}\n{\"id\":12,\"method\":\"pairs\"}"
		"\n");
	cr_expect_null(hear(fd), "nothing overtakes");
	cr_assert_eq(control.n_kept, 1);
	answer(control.kept[0]);
	for (int id = 10; id <= 12; id++)
		cr_expect_eq(int_at(hear(fd), "id"), id);
}

Test(api, half_a_line_waits_for_its_rest)
{
	int fd = dial_only();
	const char *hello = HELLO;

	for (size_t i = 0; i + 1 < strlen(hello); i++) {
		cr_assert_eq(send(fd, hello + i, 1, 0), 1);
		api_poll(api, now_ns);
	}
	cr_expect_null(hear(fd));
	cr_expect_eq(int_at(json_object_get(ask(fd, "\n"), "result"), "version"), 1);
	/* Half a request, then the end: nothing to answer. */
	say(fd, "{\"id\":1,\"meth");
	shutdown(fd, SHUT_WR);
	cr_expect_null(hear(fd));
	cr_expect_eq(api_n_conns(api), 0);
}

Test(api, answers_still_reach_who_closed_its_half)
{
	int fd = dial_only();

	say(fd, HELLO "{\"id\":2,\"method\":\"rails\"}\n");
	shutdown(fd, SHUT_WR);
	cr_expect_eq(int_at(hear(fd), "id"), 1);
	cr_expect_eq(int_at(hear(fd), "id"), 2);
	cr_expect_null(hear(fd));
	cr_expect_eq(api_n_conns(api), 0);
}

Test(api, oversized_line_ends_the_connection)
{
	static char big[API_LINE_MAX_BYTES + 1];
	int fd = dial();

	memset(big, 'x', sizeof(big) - 1);
	for (size_t sent = 0; sent < API_LINE_MAX_BYTES;) {
		ssize_t n = send(fd, big + sent, API_LINE_MAX_BYTES - sent, MSG_NOSIGNAL);

		cr_assert_gt(n, 0);
		sent += (size_t)n;
		settle();
	}
	expect_error(hear(fd), -32600, "LIMIT", "longer than 65536");
	cr_expect_null(hear(fd));
	cr_expect_eq(api_n_conns(api), 0);
}

Test(api, client_that_takes_nothing_is_dropped)
{
	static char many[60000];
	int fd = dial(), other = dial();
	size_t n = 0;

	while (n + 64 < sizeof(many))
		n += (size_t)sprintf(many + n, "{\"id\":1,\"method\":\"help\"}\n");
	for (int i = 0; i < 8; i++) {
		send(fd, many, n, MSG_NOSIGNAL);
		settle();
	}
	cr_expect_eq(api_n_conns(api), 2, "slow is not yet stalled");
	now_ns += 4999000000;
	settle();
	cr_expect_eq(api_n_conns(api), 2);
	now_ns += 2000000;
	settle();
	cr_expect_eq(api_n_conns(api), 1);
	cr_expect_not_null(result_of(other, "{\"id\":1,\"method\":\"version\"}\n"), "others are not disturbed");
}

Test(api, a_hundred_clients_at_once)
{
	enum { N = 100 };
	int fds[N];

	for (int i = 0; i < 60; i++) {
		fds[i] = dial_only();
		say(fds[i], HELLO "{\"id\":5,\"method\":\"rails\"}\n");
	}
	for (int i = 0; i < 60; i++) {
		cr_expect_eq(int_at(hear(fds[i]), "id"), 1);
		cr_expect_eq(int_at(hear(fds[i]), "id"), 5);
	}
	cr_expect_eq(api_n_conns(api), 60);
	for (int i = 60; i < N; i++)
		fds[i] = dial_only();
	settle();
	cr_expect_eq(api_n_conns(api), 4 + API_EXTRA_CONNS);
	expect_error(hear(fds[99]), -32015, "LIMIT", "too many connections");
	for (int i = 0; i < N; i++)
		close(fds[i]);
	settle();
	cr_expect_eq(api_n_conns(api), 0);
	close(dial());
}

Test(api, out_of_descriptors_turns_away_without_spinning)
{
	struct rlimit few = {64, 64};
	int fd = dial_only(), full[64], n = 0;

	/* The connection waits in the backlog while this process, which is also the daemon, uses every descriptor up.
	 */
	cr_assert_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
	while (n < 64 && (full[n] = open("/dev/null", O_RDONLY)) >= 0)
		n++;
	cr_assert_lt(n, 64);
	expect_error(hear(fd), -32015, "LIMIT", "descriptor");
	while (n)
		close(full[--n]);
	close(dial());
}

Test(api, shutdown_drains_once)
{
	int fd = dial();

	cr_expect_str_eq(text_at(result_of(fd, "{\"id\":1,\"method\":\"shutdown\"}\n"), "drain"), "10s");
	cr_expect_not_null(result_of(fd, "{\"id\":1,\"method\":\"shutdown\"}\n"));
	cr_expect_eq(control.n_calls[API_SHUTDOWN], 1);
	cr_expect(json_is_true(json_object_get(result_of(fd, "{\"id\":1,\"method\":\"status\"}\n"), "is_draining")));
	expect_error(ask(fd, ATTACH), -32021, "DETACHED", "stopping");
}

Test(api, signals_drain_then_force)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGHUP);
	cr_assert_eq(sigprocmask(SIG_BLOCK, &set, NULL), 0);
	api_destroy(api);
	deps.want_signals = true;
	cr_assert_eq(api_create(&deps, message, sizeof(message), &api), 0, "%s", message);
	raise(SIGHUP);
	settle();
	cr_expect_eq(control.n_calls[API_SHUTDOWN], 0);
	raise(SIGTERM);
	settle();
	cr_expect_eq(control.n_calls[API_SHUTDOWN], 1);
	cr_expect_eq(n_forced, 0);
	raise(SIGTERM);
	settle();
	cr_expect_eq(n_forced, 1);
	cr_expect_eq(control.n_calls[API_SHUTDOWN], 1);
}

Test(api, socket_file_is_replaced_only_when_nobody_answers)
{
	struct api *second = NULL;
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	struct stat st;
	int fd;

	cr_assert_eq(stat(config.socket_path, &st), 0);
	cr_expect_eq(st.st_mode & 0777, 0660);
	cr_expect_eq(api_create(&deps, message, sizeof(message), &second), -EADDRINUSE);
	cr_expect_not_null(strstr(message, "another daemon"), "%s", message);
	cr_expect_eq(access(config.socket_path, F_OK), 0, "the first one's socket is still there");
	close(dial());
	api_destroy(api);
	/* A daemon that was killed leaves its file behind. */
	strcpy(a.sun_path, config.socket_path);
	fd = socket(AF_UNIX, SOCK_STREAM, 0);
	cr_assert_eq(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	close(fd);
	cr_assert_eq(api_create(&deps, message, sizeof(message), &api), 0, "%s", message);
	close(dial());
	api_destroy(api);
	fd = open(config.socket_path, O_CREAT | O_WRONLY, 0600);
	close(fd);
	cr_expect_eq(api_create(&deps, message, sizeof(message), &second), -EEXIST);
	cr_expect_eq(access(config.socket_path, F_OK), 0, "a file that is not ours stays");
	unlink(config.socket_path);
	cr_assert_eq(api_create(&deps, message, sizeof(message), &api), 0, "%s", message);
}

Test(api, destroyed_with_clients_and_calls_under_way)
{
	int fd = attach(), other = dial();

	control.is_silent = true;
	say(other, "{\"id\":1,\"method\":\"rails\"}\n");
	api_poll(api, now_ns);
	api_destroy(api);
	cr_expect_eq(n_registered, 0);
	cr_expect_eq(recv(fd, message, 1, 0), 0, "the connection is closed");
	cr_assert_eq(api_create(&deps, message, sizeof(message), &api), 0, "%s", message);
}
