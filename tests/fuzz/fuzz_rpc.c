/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The control socket: any bytes, with and without a hello first. Every line has at most one answer, which is one line
 * of JSON-RPC; when the connection has gone nothing of it is left.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "api/api_priv.h"
#include "fuzz.h"
#include "read/recorder.h"

#define HELLO "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"hello\",\"params\":{\"version\":1}}\n"
#define HEARD_MAX (8u << 20)

static void set_up(void);
static void make(void);
static void settle(void);
static void poll_control(void);
static void hear(int fd);
static unsigned check_answers(void);
static void check_answer(const char *line, size_t bytes);
static void clean_up(void);

static struct config config;
static struct rail_counters rail_counters_of[2];
static struct control_counters counters;
static struct conn_counters conn_counters_all;
static struct api_rail rails[2];
static struct region_set regions;
static struct waker api_waker, control_waker, work_waker;
static struct journal journal;
static struct recorder recorder;
static struct api_deps deps;
static struct work work;
static struct api *api;
static uint64_t now_ns = 1000000000;
static int n_registered;
static char *heard;
static size_t n_heard;
static char dir[] = "/tmp/ry-fuzz-XXXXXX";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	struct fuzz_in in = {data, bytes};
	bool want_hello = fuzz_number(&in, 1) & 1;
	unsigned n_lines = 0, n_answers;
	int fd;

	if (!heard)
		set_up();
	if (!api)
		make();
	for (size_t i = 0; i < in.left; i++)
		n_lines += in.at[i] == '\n';
	memcpy(at.sun_path, config.socket_path, sizeof(at.sun_path));
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	FUZZ_CHECK(fd >= 0 && connect(fd, (struct sockaddr *)&at, sizeof(at)) == 0, "connect: %m");
	n_heard = 0;
	settle();
	if (want_hello)
		(void)!send(fd, HELLO, strlen(HELLO), MSG_NOSIGNAL);
	/* In pieces: a line may end anywhere. */
	while (in.left) {
		size_t n = in.left < 4096 ? in.left : 4096;
		ssize_t sent = send(fd, in.at, n, MSG_NOSIGNAL);

		if (sent < 0 && errno != EAGAIN)
			break;
		in.at += sent > 0 ? sent : 0;
		in.left -= sent > 0 ? (size_t)sent : 0;
		settle();
		hear(fd);
	}
	shutdown(fd, SHUT_WR);
	settle();
	hear(fd);
	close(fd);
	settle();
	n_answers = check_answers();
	FUZZ_CHECK(n_answers <= n_lines + want_hello + 1, "%u answers to %u lines", n_answers, n_lines);
	FUZZ_CHECK(api_n_conns(api) == 0 && api_n_sessions(api) == 0, "connections or sessions are left");
	FUZZ_CHECK(api->registered_bytes == 0 && n_registered == 0, "memory is left");
	if (api->is_draining || api->registered_max_bytes != config.registered_max_bytes) {
		api_destroy(api);
		api = NULL;
	}
	return 0;
}

static int fake_reg(void *r, void *base, uint64_t bytes, enum mem_kind kind, uint16_t idx)
{
	n_registered++;
	return 0;
}

static void fake_dereg(void *r, uint16_t idx)
{
	n_registered--;
}

static uint32_t fake_pairs(const struct conn *conn, struct conn_pair_info *rows, uint32_t n)
{
	if (n)
		rows[0] = (struct conn_pair_info){.is_dialler = true, .state = CONN_UP, .peer = "store0"};
	return 1;
}

static void set_up(void)
{
	heard = malloc(HEARD_MAX);
	FUZZ_CHECK(mkdtemp(dir) != NULL, "%m");
	atexit(clean_up);
	log_set_level(LOG_LEVEL_ERROR);
	config_defaults(&config);
	strcpy(config.node_name, "node0");
	snprintf(config.socket_path, sizeof(config.socket_path), "%s/ctl.sock", dir);
	config.is_reader = config.is_store = config.want_fault_injection = true;
	config.read_arena_bytes = config.put_arena_bytes = 64u << 10;
	config.max_clients = 4;
	config.n_rails = 2;
	config.n_stores = 1;
	strcpy(config.stores[0].name, "store0");
	for (uint16_t i = 0; i < 2; i++) {
		config_rail_defaults(&config.rails[i], i);
		snprintf(config.rails[i].name, sizeof(config.rails[i].name), "rail%u", i);
		strcpy(config.rails[i].transport, "tcp");
		rails[i].counters = &rail_counters_of[i];
		regions.rails[i] = (struct region_rail){NULL, fake_reg, fake_dereg, false};
	}
	regions.n_rails = 2;
	waker_init(&api_waker);
	waker_init(&control_waker);
	waker_init(&work_waker);
	deps = (struct api_deps){
		.config = &config,
		.rails = rails,
		.regions = &regions,
		.counters = &counters,
		.conn_counters = &conn_counters_all,
		.journal = &journal,
		.recorder = &recorder,
		.pair_info = fake_pairs,
		.to_control = spsc_create("a", API_RING_ENTRIES),
		.from_control = spsc_create("b", API_RING_ENTRIES),
		.to_work = spsc_create("c", API_RING_ENTRIES),
		.from_work = spsc_create("d", API_RING_ENTRIES),
		.waker = &api_waker,
		.control_waker = &control_waker,
		.control_set_fd = epoll_create1(EPOLL_CLOEXEC),
		.work_waker = &work_waker,
	};
	work = (struct work){deps.to_work, deps.from_work, &work_waker, &api_waker};
}

static void make(void)
{
	char message[256] = "";

	FUZZ_CHECK(api_create(&deps, message, sizeof(message), &api) == 0, "%s", message);
}

static void clean_up(void)
{
	api_destroy(api);
	rmdir(dir);
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

/* Says yes to everything. */
static void poll_control(void)
{
	struct api_call *call;

	while ((call = spsc_pop(deps.to_control))) {
		call->status = RY_OK;
		spsc_push(deps.from_control, call);
	}
}

static void hear(int fd)
{
	ssize_t n;

	while ((n = recv(fd, heard + n_heard, HEARD_MAX - n_heard, 0)) > 0) {
		n_heard += (size_t)n;
		FUZZ_CHECK(n_heard < HEARD_MAX, "answers without end");
		settle();
	}
}

static unsigned check_answers(void)
{
	const char *line = heard, *end;
	unsigned n = 0;

	while (line < heard + n_heard) {
		end = memchr(line, '\n', (size_t)(heard + n_heard - line));
		FUZZ_CHECK(end, "half a line");
		check_answer(line, (size_t)(end - line));
		line = end + 1;
		n++;
	}
	return n;
}

static void check_answer(const char *line, size_t bytes)
{
	json_t *a = json_loadb(line, bytes, JSON_REJECT_DUPLICATES, NULL);
	json_t *e = json_object_get(a, "error");

	FUZZ_CHECK(a, "not JSON: %.*s", (int)(bytes < 200 ? bytes : 200), line);
	FUZZ_CHECK(json_object_get(a, "id") && json_string_value(json_object_get(a, "jsonrpc")), "not JSON-RPC");
	FUZZ_CHECK(!e != !json_object_get(a, "result"), "neither a result nor an error, or both");
	FUZZ_CHECK(!e || (json_integer_value(json_object_get(e, "code")) < 0 &&
				 json_string_length(json_object_get(e, "message"))),
		"an error without code or text");
	json_decref(a);
}
