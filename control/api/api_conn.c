/* SPDX-License-Identifier: BSD-3-Clause */
#include "api/api_priv.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool make_room(struct api *api);
static bool is_unused(const struct api_conn *c);
static void add(struct api *api, int fd);
static void insert(struct api *api, struct api_conn *c);
static void tell(int fd, enum ry_status status, const char *why);
static void turn_away(int fd, const char *why);
static void take(struct api_conn *c);
static bool is_free(const struct api_conn *c);
static void take_lines(struct api_conn *c);
static bool next_line(struct api_conn *c, uint32_t pos, uint32_t *bytes);
static void drop_lines(struct api_conn *c, uint32_t bytes);
static void write_out(struct api_conn *c);
static ssize_t send_some(struct api_conn *c);
static void end_out(struct api_conn *c);
static void update_events(struct api_conn *c);

#define ACCEPTS_MAX 16u          /* a turn */
#define LINES_MAX 16u            /* of one connection, a turn */
#define STANDING_NS 100000000ull /* an answer of which nothing was taken for so long does not keep a place */

/* So many a turn, and the rest in the next: whoever connects without end does not keep us from the others. */
void api_accept(struct api *api)
{
	for (uint32_t i = 0; i < ACCEPTS_MAX; i++) {
		int fd = accept4(api->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (fd >= 0 && (api->n_conns < api->n_conns_max || make_room(api))) {
			add(api, fd);
			continue;
		}
		if (fd >= 0) {
			turn_away(fd, "too many connections to the control socket, and all of them in use; close some, "
				      "or raise reader.max_clients");
			continue;
		}
		if (errno != EMFILE && errno != ENFILE)
			return;
		/* The connection would stay readable for ever: use the spare descriptor to take it and turn it away. */
		close(api->spare_fd);
		fd = accept4(api->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (fd >= 0)
			turn_away(fd, "the daemon has no descriptor left; raise its limit of open files");
		api->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
		if (fd < 0)
			return;
	}
}

void api_conn_event(struct api_conn *c, uint32_t events)
{
	if (c->fd < 0)
		return;
	if (events & EPOLLOUT)
		write_out(c);
	if (c->fd >= 0 && (events & EPOLLIN))
		take(c);
	/* Both directions are closed: nobody will read a reply. */
	if (c->fd >= 0 && (events & (EPOLLHUP | EPOLLERR)))
		api_conn_close(c);
	if (c->fd >= 0)
		api_conn_work(c);
}

void api_conn_work(struct api_conn *c)
{
	/* A handler that answers at once comes back here; the loop goes on instead of nesting. */
	if (c->is_busy)
		return;
	c->is_busy = true;
	take_lines(c);
	c->is_busy = false;
	if (is_free(c) && !c->has_lines && c->in_bytes == API_LINE_MAX_BYTES) {
		c->want_close = true;
		api_refuse(c, NULL, API_CODE_REQUEST, RY_ERR_LIMIT, "a request is longer than %u bytes",
			API_LINE_MAX_BYTES);
	}
	if (c->fd >= 0 && !c->request && !c->out && ((c->is_ended && !c->has_lines) || c->want_close))
		api_conn_close(c);
	if (c->fd >= 0)
		update_events(c);
}

void api_conn_send(struct api_conn *c, char *text)
{
	size_t bytes = strlen(text);

	if (c->fd < 0) {
		free(text);
		return;
	}
	/* json_dumps leaves no newline inside; ours replaces the NUL. */
	text[bytes] = '\n';
	c->out = text;
	c->out_bytes = bytes + 1;
	c->out_pos = 0;
	c->out_since_ns = c->api->now_ns;
	c->api->n_waiting++;
	write_out(c);
}

void api_conn_close(struct api_conn *c)
{
	if (c->fd < 0)
		return;
	close(c->fd);
	c->fd = -1;
	c->api->has_dead = true;
	c->api->n_conns--;
	if (c->out)
		end_out(c);
	if (c->request)
		c->request->conn = NULL;
	c->request = NULL;
	if (c->session)
		session_leave(c->session);
	c->session = NULL;
}

void api_conn_end(struct api_conn *c, enum ry_status status, const char *why)
{
	if (c->fd >= 0 && !c->out)
		tell(c->fd, status, why);
	api_conn_close(c);
}

/*
 * Whoever holds connections without using them does not lock others out: of the process that holds most of such, the
 * one that was silent longest goes. A process's connections stand together, so one walk counts all of them.
 */
static bool make_room(struct api *api)
{
	struct api_conn *c, *oldest = NULL, *victim = NULL;
	uint32_t n = 0, most = 0;
	pid_t pid = 0;

	TAILQ_FOREACH (c, &api->conns, link) {
		if (!is_unused(c))
			continue;
		if (!oldest || c->pid != pid) {
			pid = c->pid;
			oldest = c;
			n = 0;
		}
		n++;
		if (c->heard_ns < oldest->heard_ns)
			oldest = c;
		if (n > most || (n == most && oldest->heard_ns < victim->heard_ns)) {
			most = n;
			victim = oldest;
		}
	}
	if (!victim)
		return false;
	api_conn_end(victim, RY_ERR_LIMIT,
		"closed to make room, because nothing was asked for the longest here; connect again");
	return true;
}

/* Neither an attached client nor one that is still to get an answer, unless it takes nothing of it. Half a line is
 * silence. */
static bool is_unused(const struct api_conn *c)
{
	bool is_standing = c->out && c->api->now_ns > c->out_since_ns + STANDING_NS;

	return c->fd >= 0 && !c->session && !c->request && (!c->out || is_standing);
}

static void add(struct api *api, int fd)
{
	struct api_conn *c = calloc(1, sizeof(*c));
	struct epoll_event e = {.events = EPOLLIN, .data.ptr = c};
	struct ucred peer;
	socklen_t peer_bytes = sizeof(peer);

	if (c)
		c->in = malloc(API_LINE_MAX_BYTES);
	if (!c || !c->in || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &peer_bytes) < 0 ||
		epoll_ctl(api->epoll_fd, EPOLL_CTL_ADD, fd, &e) < 0) {
		turn_away(fd, "the daemon has no memory for this connection");
		if (c)
			free(c->in);
		free(c);
		return;
	}
	c->api = api;
	c->fd = fd;
	c->events = EPOLLIN;
	c->heard_ns = api->now_ns;
	c->pid = peer.pid;
	c->uid = peer.uid;
	insert(api, c);
	api->n_conns++;
}

/* Beside the others of its process. */
static void insert(struct api *api, struct api_conn *c)
{
	struct api_conn *other;

	TAILQ_FOREACH_REVERSE(other, &api->conns, api_conn_list, link)
	{
		if (other->pid == c->pid) {
			TAILQ_INSERT_AFTER(&api->conns, other, c, link);
			return;
		}
	}
	TAILQ_INSERT_TAIL(&api->conns, c, link);
}

static void turn_away(int fd, const char *why)
{
	tell(fd, RY_ERR_LIMIT, why);
	close(fd);
}

/* A socket that nothing waits in has room for one line. */
static void tell(int fd, enum ry_status status, const char *why)
{
	char line[320];
	int n = snprintf(line, sizeof(line),
		"{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":%d,\"message\":\"%s\",\"data\":{\"status\":"
		"\"%s\"}}}\n",
		API_CODE_STATUS - (int)status, why, ry_status_name(status));

	send(fd, line, (size_t)n, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* One read a turn, so that no connection starves the others. */
static void take(struct api_conn *c)
{
	ssize_t n;

	if (c->in_bytes == API_LINE_MAX_BYTES)
		return;
	n = recv(c->fd, c->in + c->in_bytes, API_LINE_MAX_BYTES - c->in_bytes, MSG_DONTWAIT);
	if (n > 0) {
		c->in_bytes += (uint32_t)n;
		return;
	}
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	c->is_ended = true;
	/* A client's memory goes with its connection; anyone else may still want the answers to what it asked. */
	if (n < 0 || c->session)
		api_conn_close(c);
}

/* Nothing is under way that the next line would have to wait for. */
static bool is_free(const struct api_conn *c)
{
	return c->fd >= 0 && !c->request && !c->out && !c->want_close;
}

/* What gets no answer fills no socket, so that only their number keeps many such lines from taking up the thread. */
static void take_lines(struct api_conn *c)
{
	uint32_t pos = 0, bytes;

	if (c->turn != c->api->turn) {
		c->turn = c->api->turn;
		c->n_lines = 0;
	}
	while (is_free(c) && c->n_lines < LINES_MAX && next_line(c, pos, &bytes)) {
		c->n_lines++;
		api_dispatch(c, c->in + pos, bytes - 1);
		pos += bytes;
	}
	drop_lines(c, pos);
	c->has_lines = is_free(c) && c->n_lines == LINES_MAX && c->in_bytes;
	c->api->has_lines |= c->has_lines;
}

static bool next_line(struct api_conn *c, uint32_t pos, uint32_t *bytes)
{
	uint32_t from = c->in_scanned > pos ? c->in_scanned : pos;
	char *end = memchr(c->in + from, '\n', c->in_bytes - from);

	if (!end) {
		c->in_scanned = c->in_bytes;
		return false;
	}
	c->heard_ns = c->api->now_ns;
	*bytes = (uint32_t)(end - c->in) + 1 - pos;
	return true;
}

static void drop_lines(struct api_conn *c, uint32_t bytes)
{
	if (!bytes)
		return;
	c->in_bytes -= bytes;
	c->in_scanned = c->in_scanned > bytes ? c->in_scanned - bytes : 0;
	memmove(c->in, c->in + bytes, c->in_bytes);
}

static void write_out(struct api_conn *c)
{
	ssize_t n;

	while (c->out) {
		n = send_some(c);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			break;
		if (n < 0) {
			api_conn_close(c);
			return;
		}
		c->n_fds = 0;
		c->out_pos += (size_t)n;
		c->out_since_ns = c->api->now_ns;
		if (c->out_pos == c->out_bytes)
			end_out(c);
	}
	update_events(c);
}

static ssize_t send_some(struct api_conn *c)
{
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(API_FDS_MAX * sizeof(int))];
	} control;
	struct iovec piece = {c->out + c->out_pos, c->out_bytes - c->out_pos};
	struct msghdr msg = {.msg_iov = &piece, .msg_iovlen = 1};
	struct cmsghdr *m;

	if (c->n_fds) {
		memset(&control, 0, sizeof(control));
		msg.msg_control = &control;
		msg.msg_controllen = CMSG_SPACE(c->n_fds * sizeof(int));
		m = CMSG_FIRSTHDR(&msg);
		m->cmsg_level = SOL_SOCKET;
		m->cmsg_type = SCM_RIGHTS;
		m->cmsg_len = CMSG_LEN(c->n_fds * sizeof(int));
		memcpy(CMSG_DATA(m), c->fds, c->n_fds * sizeof(int));
	}
	return sendmsg(c->fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void end_out(struct api_conn *c)
{
	free(c->out);
	c->out = NULL;
	c->heard_ns = c->api->now_ns;
	c->api->n_waiting--;
}

static void update_events(struct api_conn *c)
{
	uint32_t want = 0;
	struct epoll_event e = {.data.ptr = c};

	if (c->out)
		want |= EPOLLOUT;
	/* While a request is under way, only as much is read as the buffer holds; the rest waits in the socket. */
	if (!c->is_ended && c->in_bytes < API_LINE_MAX_BYTES)
		want |= EPOLLIN;
	if (want == c->events)
		return;
	e.events = want;
	if (epoll_ctl(c->api->epoll_fd, EPOLL_CTL_MOD, c->fd, &e) == 0)
		c->events = want;
}
