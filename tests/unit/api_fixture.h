/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The control socket from outside: real sockets in a directory of their own, the work thread's body run in turn, and a
 * control that answers what the test tells it to.
 */
#ifndef RY_API_FIXTURE_H
#define RY_API_FIXTURE_H

#include "../support/api_node.h"

#include <railyard/methods.def>

#include <criterion/criterion.h>
#include <jansson.h>

#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

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

static char message[256];
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
	struct api_call *broken; /* of the last attach */
} control;

static inline void on_force(void *arg)
{
	n_forced++;
}

static inline void answer(struct api_call *call)
{
	call->status = control.status;
	if (call->status)
		snprintf(call->cause, sizeof(call->cause), "as the test wants");
	call->rails[1].depth_bytes = 4096;
	call->n_rails = 2;
	call->plan[1].stripes = 3;
	spsc_push(deps.from_control, call);
}

static inline void poll_control(void)
{
	struct api_call *call;

	while ((call = spsc_pop(deps.to_control))) {
		control.n_calls[call->op]++;
		control.length = call->length;
		control.broken = call->op == API_ATTACH ? call->broken : control.broken;
		if (control.is_silent)
			control.kept[control.n_kept++] = call;
		else
			answer(call);
	}
}

static inline void start(void)
{
	heard = json_array();
	api_node_init(1u << 20);
	deps.force = on_force;
	control_turn = poll_control;
	cr_assert_eq(api_create(&deps, message, sizeof(message), &api), 0, "%s", message);
}

static inline void stop(void)
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

static inline int dial_only(void)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);

	strcpy(a.sun_path, config.socket_path);
	cr_assert_eq(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0, "%s", strerror(errno));
	return fd;
}

static inline void say(int fd, const char *text)
{
	cr_assert_eq(send(fd, text, strlen(text), MSG_NOSIGNAL), (ssize_t)strlen(text));
}

/* The next line as JSON, with the descriptors that came; NULL at the end of the stream. */
static inline json_t *hear_fds(int fd, int *fds, int *n_fds)
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

static inline json_t *hear(int fd)
{
	return hear_fds(fd, NULL, NULL);
}

static inline json_t *ask(int fd, const char *text)
{
	json_t *reply;

	say(fd, text);
	reply = hear(fd);
	cr_assert_not_null(reply, "no answer to %s", text);
	return reply;
}

static inline json_t *result_of(int fd, const char *text)
{
	json_t *result = json_object_get(ask(fd, text), "result");

	cr_assert_not_null(result, "%s", text);
	return result;
}

static inline void expect_error(json_t *reply, int code, const char *status, const char *text)
{
	json_t *e = json_object_get(reply, "error");
	const char *said = json_string_value(json_object_get(e, "message"));
	json_int_t got = json_integer_value(json_object_get(e, "code"));

	cr_assert_not_null(said, "no error");
	cr_expect_eq(got, code, "code %lld: %s", (long long)got, said);
	cr_expect_str_eq(json_string_value(json_object_get(json_object_get(e, "data"), "status")), status);
	cr_expect_not_null(strstr(said, text), "%s", said);
}

static inline const char *text_at(json_t *o, const char *key)
{
	return json_string_value(json_object_get(o, key)) ?: "";
}

static inline json_int_t int_at(json_t *o, const char *key)
{
	cr_assert(json_is_integer(json_object_get(o, key)), "%s", key);
	return json_integer_value(json_object_get(o, key));
}

/* A connection that has said hello. */
static inline int dial(void)
{
	int fd = dial_only();

	cr_assert_eq(int_at(result_of(fd, HELLO), "version"), 1);
	return fd;
}

static inline int attach(void)
{
	int fd = dial();

	cr_assert_geq(int_at(result_of(fd, ATTACH), "client_id"), 1);
	return fd;
}

#endif
