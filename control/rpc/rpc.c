/* SPDX-License-Identifier: BSD-3-Clause */
#include "rpc/rpc.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#define PROTOCOL_VERSION 1
#define ANSWER_MAX_BYTES (16u << 20)

struct rpc {
	int fd;
	int64_t next_id;
	char *line; /* bytes received so far, NUL-terminated */
	size_t line_bytes;
	size_t line_size;
	json_t *hello;
};

static int fail(struct rpc_error *err, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));
static int open_socket(const char *path, uint64_t timeout_ns, struct rpc_error *err);
static int say_hello(struct rpc *r, struct rpc_error *err);
static int send_request(struct rpc *r, const char *method, json_t *params, struct rpc_error *err);
static int send_all(struct rpc *r, const char *text, size_t bytes, struct rpc_error *err);
static int receive_line(struct rpc *r, struct rpc_error *err);
static int grow(struct rpc *r, struct rpc_error *err);
static const char *reason(const json_t *error, const char *method);
static int take_answer(struct rpc *r, const char *method, json_t **result, struct rpc_error *err);

static int fail(struct rpc_error *err, int code, const char *format, ...)
{
	va_list args;

	err->code = 0;
	err->status[0] = '\0';
	va_start(args, format);
	vsnprintf(err->text, sizeof(err->text), format, args);
	va_end(args);
	return code;
}

int rpc_open(const char *socket_path, uint64_t timeout_ns, struct rpc **out, struct rpc_error *err)
{
	struct rpc *r;
	int rc;

	r = calloc(1, sizeof(*r));
	if (r == NULL)
		return fail(err, -ENOMEM, "out of memory");
	r->fd = open_socket(socket_path, timeout_ns, err);
	rc = r->fd < 0 ? r->fd : say_hello(r, err);
	if (rc < 0) {
		rpc_close(r);
		return rc;
	}
	*out = r;
	return 0;
}

void rpc_close(struct rpc *r)
{
	if (r == NULL)
		return;
	if (r->fd >= 0)
		close(r->fd);
	json_decref(r->hello);
	free(r->line);
	free(r);
}

static int open_socket(const char *path, uint64_t timeout_ns, struct rpc_error *err)
{
	struct timeval tv = {.tv_sec = (time_t)(timeout_ns / 1000000000u),
		.tv_usec = (suseconds_t)(timeout_ns % 1000000000u / 1000u)};
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	int fd, rc;

	if (strlen(path) >= sizeof(sa.sun_path))
		return fail(err, -ENAMETOOLONG, "control socket: %s: the path is longer than %zu bytes", path,
			sizeof(sa.sun_path) - 1);
	strcpy(sa.sun_path, path);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return fail(err, -errno, "control socket: %s", strerror(errno));
	/* A time-out of zero would mean "for ever". */
	tv.tv_usec += tv.tv_sec == 0 && tv.tv_usec == 0;
	if (setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)) < 0 ||
		setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv)) < 0 ||
		connect(fd, (void *)&sa, sizeof(sa)) < 0) {
		rc = fail(err, -errno,
			"control socket: cannot connect to %s: %s; is railyardd running, and is this its socket?", path,
			strerror(errno));
		close(fd);
		return rc;
	}
	return fd;
}

static int say_hello(struct rpc *r, struct rpc_error *err)
{
	json_t *params = json_pack("{s:i}", "version", PROTOCOL_VERSION);
	int rc = rpc_call(r, "hello", params, &r->hello, err);

	return rc == -EREMOTEIO ? -EPROTONOSUPPORT : rc;
}

const json_t *rpc_hello(const struct rpc *r)
{
	return r->hello;
}

int rpc_call(struct rpc *r, const char *method, json_t *params, json_t **result, struct rpc_error *err)
{
	int rc = send_request(r, method, params, err);

	if (rc == 0)
		rc = receive_line(r, err);
	if (rc == 0)
		rc = take_answer(r, method, result, err);
	return rc;
}

static int send_request(struct rpc *r, const char *method, json_t *params, struct rpc_error *err)
{
	json_t *request = json_pack("{s:s, s:I, s:s, s:o}", "jsonrpc", "2.0", "id", (json_int_t)++r->next_id, "method",
		method, "params", params != NULL ? params : json_object());
	char *text = request == NULL ? NULL : json_dumps(request, JSON_COMPACT);
	int rc;

	json_decref(request);
	if (text == NULL)
		return fail(err, -EINVAL, "%s: the request is not valid JSON (is a text not UTF-8?)", method);
	rc = send_all(r, text, strlen(text), err);
	free(text);
	return rc == 0 ? send_all(r, "\n", 1, err) : rc;
}

static int send_all(struct rpc *r, const char *text, size_t bytes, struct rpc_error *err)
{
	while (bytes > 0) {
		ssize_t n = send(r->fd, text, bytes, MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return fail(err, -errno, "control socket: send: %s", strerror(errno));
		text += n;
		bytes -= (size_t)n;
	}
	return 0;
}

static int grow(struct rpc *r, struct rpc_error *err)
{
	size_t size = r->line_size == 0 ? 4096 : r->line_size * 2;
	char *line;

	if (size > ANSWER_MAX_BYTES)
		return fail(err, -EMSGSIZE, "control socket: an answer is longer than %u bytes", ANSWER_MAX_BYTES);
	line = realloc(r->line, size);
	if (line == NULL)
		return fail(err, -ENOMEM, "out of memory");
	r->line = line;
	r->line_size = size;
	return 0;
}

/* One answer is outstanding at a time, so nothing follows its newline. */
static int receive_line(struct rpc *r, struct rpc_error *err)
{
	r->line_bytes = 0;
	for (;;) {
		ssize_t n;

		if (r->line_bytes + 1 >= r->line_size && grow(r, err) < 0)
			return -EMSGSIZE;
		n = recv(r->fd, r->line + r->line_bytes, r->line_size - r->line_bytes - 1, 0);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return fail(err, -ETIMEDOUT, "control socket: the daemon did not answer in time");
		if (n < 0)
			return fail(err, -errno, "control socket: receive: %s", strerror(errno));
		if (n == 0)
			return fail(err, -ECONNRESET, "control socket: the daemon closed the connection");
		r->line_bytes += (size_t)n;
		r->line[r->line_bytes] = '\0';
		if (r->line[r->line_bytes - 1] == '\n')
			return 0;
	}
}

/* Without the method in front: who asks says what it was doing. */
static const char *reason(const json_t *error, const char *method)
{
	const char *text = json_string_value(json_object_get(error, "message")) ?: "refused without a reason";
	size_t n = strlen(method);

	return strncmp(text, method, n) == 0 && strncmp(text + n, ": ", 2) == 0 ? text + n + 2 : text;
}

static int take_answer(struct rpc *r, const char *method, json_t **result, struct rpc_error *err)
{
	json_t *answer = json_loadb(r->line, r->line_bytes, 0, NULL);
	json_t *error = json_object_get(answer, "error"), *good = json_object_get(answer, "result");
	int rc = 0;

	if (json_is_object(error)) {
		rc = fail(err, -EREMOTEIO, "%s", reason(error, method));
		err->code = (int)json_integer_value(json_object_get(error, "code"));
		snprintf(err->status, sizeof(err->status), "%s",
			json_string_value(json_object_get(json_object_get(error, "data"), "status")) ?: "UNKNOWN");
	} else if (good == NULL || json_integer_value(json_object_get(answer, "id")) != r->next_id) {
		rc = fail(err, -EPROTO,
			"control socket: what answered %s is not JSON-RPC 2.0; is this a railyardd socket?", method);
	} else {
		*result = json_incref(good);
	}
	json_decref(answer);
	return rc;
}
