/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The attach handshake on the control socket: newline-delimited JSON-RPC 2.0, `hello` then `attach`. The reply to
 * `attach` carries five descriptors with its first byte: ring, read arena, put arena, what wakes the daemon, what wakes
 * us. Afterwards the socket is only watched: its end is the daemon's.
 */
#include "client_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define REPLY_MAX_BYTES 16384u
#define FDS_ROOM 16u /* more than any daemon sends, so that a surplus is seen and closed */

static enum ry_status dial(struct ryc_handshake *h, const char *path);
static enum ry_status hello(struct ryc_handshake *h);
static enum ry_status attach(struct ryc_handshake *h);
static enum ry_status call(struct ryc_handshake *h, int id, const char *method, json_t *params, json_t **result);
static enum ry_status send_line(struct ryc_handshake *h, const char *line);
static enum ry_status receive_line(struct ryc_handshake *h, char *line);
static void keep_fds(struct ryc_handshake *h, struct msghdr *msg, bool *is_surplus);
static enum ry_status parse(struct ryc_handshake *h, const char *line, int id, const char *method, json_t **result);
static const char *reason(const json_t *error, const char *method);
static enum ry_status error_status(const json_t *error);
static enum ry_status wait_for(struct ryc_handshake *h, short events);
static enum ry_status fail(struct ryc_handshake *h, enum ry_status status, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

enum ry_status ryc_handshake(struct ryc_handshake *h, const char *path)
{
	enum ry_status status;

	h->socket_fd = -1;
	for (unsigned i = 0; i < RYC_FDS; i++)
		h->fds[i] = -1;
	status = dial(h, path);
	if (!status)
		status = hello(h);
	if (h->memory_timeout_ns)
		h->deadline_ns = ryc_deadline(h->memory_timeout_ns);
	if (!status)
		status = attach(h);
	if (status)
		ryc_handshake_close(h);
	return status;
}

void ryc_handshake_close(struct ryc_handshake *h)
{
	for (unsigned i = 0; i < RYC_FDS; i++) {
		if (h->fds[i] >= 0)
			close(h->fds[i]);
		h->fds[i] = -1;
	}
	if (h->socket_fd >= 0)
		close(h->socket_fd);
	h->socket_fd = -1;
}

static enum ry_status dial(struct ryc_handshake *h, const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	size_t len = strlen(path);

	if (len == 0 || len >= sizeof(address.sun_path))
		return fail(h, RY_ERR_INVALID, "attach: socket path of %zu bytes: must have 1 to %zu", len,
			sizeof(address.sun_path) - 1);
	memcpy(address.sun_path, path, len);
	h->socket_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (h->socket_fd < 0)
		return fail(h, RY_ERR_LIMIT, "attach: no socket: %s", strerror(errno));
	if (connect(h->socket_fd, (const struct sockaddr *)&address, sizeof(address)) == 0)
		return RY_OK;
	if (errno == EACCES || errno == EPERM)
		return fail(h, RY_ERR_DENIED, "attach: %s: no permission: join the socket's group", path);
	/* A Unix socket refuses at once with EAGAIN when the daemon's backlog is full. */
	if (errno == EAGAIN)
		return fail(h, RY_ERR_LIMIT, "attach: %s: the daemon accepts no more for now: try again", path);
	return fail(
		h, RY_ERR_DETACHED, "attach: %s: %s: is railyardd running, with this socket?", path, strerror(errno));
}

static enum ry_status hello(struct ryc_handshake *h)
{
	const char *node = "", *version = "";
	json_t *result;
	int protocol = 0;
	enum ry_status status = call(h, 1, "hello", json_pack("{s:i}", "version", 1), &result);

	if (status)
		return status;
	if (json_unpack(result, "{s:i, s?s, s?s}", "version", &protocol, "node", &node, "daemon_version", &version))
		status = fail(h, RY_ERR_PROTOCOL, "attach: hello: the reply lacks a version");
	else if (protocol != 1)
		status = fail(h, RY_ERR_VERSION,
			"attach: the daemon speaks version %d, this library 1: upgrade the older", protocol);
	if (!status && h->fds[0] >= 0)
		status = fail(h, RY_ERR_PROTOCOL, "attach: hello: the reply carries descriptors");
	snprintf(h->info.node, sizeof(h->info.node), "%s", node);
	snprintf(h->info.daemon_version, sizeof(h->info.daemon_version), "%s", version);
	json_decref(result);
	return status;
}

static enum ry_status attach(struct ryc_handshake *h)
{
	json_int_t client_id = 0, minor = 0, ring_bytes = 0, read_bytes = 0, put_bytes = 0;
	json_t *result, *params;
	enum ry_status status;

	params = json_pack("{s:i, s:i, s:I, s:I, s:I}", "abi_major", (int)RY_RING_ABI_MAJOR, "abi_minor",
		(int)RY_RING_ABI_MINOR, "read_arena_bytes", (json_int_t)h->read_arena_bytes, "put_arena_bytes",
		(json_int_t)h->put_arena_bytes, "ring_entries", (json_int_t)h->ring_entries);
	status = call(h, 2, "attach", params, &result);
	if (status)
		return status;
	if (json_unpack(result, "{s:I, s:I, s:I, s:I, s:I}", "client_id", &client_id, "abi_minor", &minor, "ring_bytes",
		    &ring_bytes, "read_arena_bytes", &read_bytes, "put_arena_bytes", &put_bytes) ||
		ring_bytes <= 0 || read_bytes < 0 || put_bytes < 0)
		status = fail(h, RY_ERR_PROTOCOL, "attach: the reply lacks a size");
	else if (minor < 0 || minor > (json_int_t)RY_RING_ABI_MINOR)
		status = fail(h, RY_ERR_VERSION, "attach: the daemon chose ABI minor %lld, this library knows up to %u",
			(long long)minor, RY_RING_ABI_MINOR);
	else if (h->fds[RYC_FDS - 1] < 0)
		status = fail(h, RY_ERR_PROTOCOL, "attach: the reply carries fewer than %u descriptors", RYC_FDS);
	json_decref(result);
	h->info.client_id = (uint64_t)client_id;
	h->info.abi_minor = (uint16_t)minor;
	h->ring_bytes = (uint64_t)ring_bytes;
	h->read_arena_bytes = (uint64_t)read_bytes;
	h->put_arena_bytes = (uint64_t)put_bytes;
	return status;
}

/* Takes over `params`. *result is the caller's. */
static enum ry_status call(struct ryc_handshake *h, int id, const char *method, json_t *params, json_t **result)
{
	json_t *request =
		json_pack("{s:s, s:i, s:s, s:o}", "jsonrpc", "2.0", "id", id, "method", method, "params", params);
	char *text = request ? json_dumps(request, JSON_COMPACT) : NULL;
	char *reply = malloc(REPLY_MAX_BYTES);
	enum ry_status status;

	if (!text || !reply)
		status = fail(h, RY_ERR_LIMIT, "attach: no memory");
	else
		status = send_line(h, text);
	if (!status)
		status = send_line(h, "\n");
	if (!status)
		status = receive_line(h, reply);
	if (!status)
		status = parse(h, reply, id, method, result);
	free(reply);
	free(text);
	json_decref(request);
	return status;
}

static enum ry_status send_line(struct ryc_handshake *h, const char *line)
{
	size_t len = strlen(line);
	enum ry_status status;
	ssize_t n;

	while (len > 0) {
		n = send(h->socket_fd, line, len, MSG_NOSIGNAL);
		if (n > 0) {
			line += n;
			len -= (size_t)n;
			continue;
		}
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno != EAGAIN)
			return fail(
				h, RY_ERR_DETACHED, "attach: the daemon closed the connection: %s", strerror(errno));
		status = wait_for(h, POLLOUT);
		if (status)
			return status;
	}
	return RY_OK;
}

/* Up to the newline, which becomes the NUL. Nothing may follow it: the daemon speaks only when it is asked. */
static enum ry_status receive_line(struct ryc_handshake *h, char *line)
{
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(FDS_ROOM * sizeof(int))];
	} control;
	bool is_surplus = false;
	enum ry_status status;
	size_t len = 0;
	ssize_t n;

	while (len < REPLY_MAX_BYTES) {
		struct iovec piece = {line + len, REPLY_MAX_BYTES - len};
		struct msghdr msg = {
			.msg_iov = &piece, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};

		n = recvmsg(h->socket_fd, &msg, MSG_CMSG_CLOEXEC);
		if (n < 0 && errno == EAGAIN) {
			status = wait_for(h, POLLIN);
			if (status)
				return status;
			continue;
		}
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return fail(h, RY_ERR_DETACHED, "attach: the daemon closed the connection: see its log");
		keep_fds(h, &msg, &is_surplus);
		if (is_surplus)
			return fail(h, RY_ERR_PROTOCOL, "attach: the daemon sent other than %u descriptors", RYC_FDS);
		len += (size_t)n;
		if (line[len - 1] == '\n') {
			line[len - 1] = '\0';
			return RY_OK;
		}
	}
	return fail(h, RY_ERR_PROTOCOL, "attach: the daemon's reply is longer than %u bytes", REPLY_MAX_BYTES);
}

static void keep_fds(struct ryc_handshake *h, struct msghdr *msg, bool *is_surplus)
{
	if (msg->msg_flags & MSG_CTRUNC)
		*is_surplus = true;
	for (struct cmsghdr *m = CMSG_FIRSTHDR(msg); m; m = CMSG_NXTHDR(msg, m)) {
		unsigned n = (unsigned)((m->cmsg_len - CMSG_LEN(0)) / sizeof(int));
		int fds[FDS_ROOM];

		if (m->cmsg_level != SOL_SOCKET || m->cmsg_type != SCM_RIGHTS)
			continue;
		if (n > FDS_ROOM)
			n = FDS_ROOM;
		memcpy(fds, CMSG_DATA(m), n * sizeof(int));
		if (n == RYC_FDS && h->fds[0] < 0) {
			memcpy(h->fds, fds, sizeof(h->fds));
			continue;
		}
		for (unsigned i = 0; i < n; i++)
			close(fds[i]);
		*is_surplus = true;
	}
}

static enum ry_status parse(struct ryc_handshake *h, const char *line, int id, const char *method, json_t **result)
{
	json_error_t where;
	json_t *reply = json_loads(line, 0, &where);
	json_t *error = json_object_get(reply, "error");
	enum ry_status status = RY_OK;

	if (!json_is_object(reply))
		status = fail(h, RY_ERR_PROTOCOL, "attach: %s: the reply is no JSON object: %.80s", method, where.text);
	else if (error && !json_is_null(error))
		status = fail(h, error_status(error), "attach: %s", reason(error, method));
	else if (json_integer_value(json_object_get(reply, "id")) != id ||
		 !json_is_object(json_object_get(reply, "result")))
		status = fail(h, RY_ERR_PROTOCOL, "attach: %s: the reply has no result", method);
	if (!status)
		*result = json_incref(json_object_get(reply, "result"));
	json_decref(reply);
	return status;
}

enum ry_status ryc_last_word(const char *line, size_t bytes, char cause[RY_CAUSE_MAX_BYTES])
{
	json_t *said = json_loadb(line, bytes, 0, NULL), *error = json_object_get(said, "error");
	const char *text = json_string_value(json_object_get(error, "message"));
	enum ry_status status = RY_OK;

	if (text) {
		status = error_status(error);
		snprintf(cause, RY_CAUSE_MAX_BYTES, "detached: %s", text);
	}
	json_decref(said);
	return status;
}

/* Without the method in front: it is what the call was doing. */
static const char *reason(const json_t *error, const char *method)
{
	const char *text = json_string_value(json_object_get(error, "message")) ?: "refused without a reason";
	size_t n = strlen(method);

	return strncmp(text, method, n) == 0 && strncmp(text + n, ": ", 2) == 0 ? text + n + 2 : text;
}

/* By name in error.data.status, else by number in error.code, else (standard JSON-RPC errors) PROTOCOL. */
static enum ry_status error_status(const json_t *error)
{
	const char *name = json_string_value(json_object_get(json_object_get(error, "data"), "status"));
	json_int_t number = -32000 - json_integer_value(json_object_get(error, "code"));

	for (unsigned s = 1; name && s < RY_STATUS_MAX_; s++) {
		if (strcmp(name, ry_status_name((enum ry_status)s)) == 0)
			return (enum ry_status)s;
	}
	return number > 0 && number < RY_STATUS_MAX_ ? (enum ry_status)number : RY_ERR_PROTOCOL;
}

static enum ry_status wait_for(struct ryc_handshake *h, short events)
{
	struct pollfd p = {.fd = h->socket_fd, .events = events};
	uint64_t now = ryc_now_ns();
	struct timespec left;
	int n;

	if (now >= h->deadline_ns)
		return fail(h, RY_ERR_TIMEOUT, "attach: no answer in time: is the daemon overloaded?");
	left.tv_sec = (time_t)((h->deadline_ns - now) / 1000000000u);
	left.tv_nsec = (long)((h->deadline_ns - now) % 1000000000u);
	n = ppoll(&p, 1, &left, NULL);
	if (n < 0 && errno != EINTR)
		return fail(h, RY_ERR_INTERNAL, "attach: poll: %s", strerror(errno));
	return RY_OK;
}

static enum ry_status fail(struct ryc_handshake *h, enum ry_status status, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(h->cause, sizeof(h->cause), format, args);
	va_end(args);
	return status;
}
