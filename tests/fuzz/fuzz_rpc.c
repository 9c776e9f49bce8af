/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The control socket: any bytes, with and without a hello first. Every line has at most one answer, which is one line
 * of JSON-RPC; when the connection has gone nothing of it is left.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "../support/api_node.h"
#include "api/api_priv.h"
#include "fuzz.h"

#define HELLO "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"hello\",\"params\":{\"version\":1}}\n"
#define HEARD_MAX (8u << 20)

static void set_up(void);
static void make(void);
static void poll_control(void);
static void hear(int fd);
static unsigned check_answers(void);
static void check_answer(const char *line, size_t bytes);
static void clean_up(void);

static char *heard;
static size_t n_heard;

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

static void set_up(void)
{
	heard = malloc(HEARD_MAX);
	log_set_level(LOG_LEVEL_ERROR);
	api_node_init(64u << 10);
	config.want_fault_injection = true;
	control_turn = poll_control;
	atexit(clean_up);
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
