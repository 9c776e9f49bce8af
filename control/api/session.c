/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The life of an attached client: work creates it, control adopts it, its connection ends, control lets go of it, work
 * destroys it. Whatever happens in between (a failure, a connection that left too early), each step is undone by the
 * one that matches it.
 */
#include "api/api_priv.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct session *find_free(struct api *api);
static void create_next(struct api *api);
static void ask_control(struct session *s, enum api_op op, enum session_state state);
static void ask_work(struct session *s, enum work_op op, enum session_state state);
static void created(struct session *s);
static void destroyed(struct session *s);
static void attached(struct session *s);
static void say_stopping(struct session *s);
static enum ry_status status_of(int rc);
static void set_failure(struct session *s, enum ry_status status, const char *text);
static json_t *describe(const struct client *c, uint64_t abi_minor);
static void release(struct session *s);

void session_attach(struct request *r, const struct client_conf *conf)
{
	struct api *api = r->api;
	const struct config *config = api->deps.config;
	uint64_t bytes = conf->read_arena_bytes + conf->put_arena_bytes;
	struct session *s = find_free(api);

	if (!s) {
		request_fail(r, RY_ERR_LIMIT,
			"attach: %u clients are attached, the most that reader.max_clients allows; try again when one "
			"has left",
			config->max_clients);
		return;
	}
	if (api->registered_bytes + bytes > api->registered_max_bytes) {
		request_fail(r, RY_ERR_BUDGET,
			"attach: arenas of %llu bytes do not fit: %llu of %llu (reader.registered) are in use; ask for "
			"smaller arenas",
			(unsigned long long)bytes, (unsigned long long)api->registered_bytes,
			(unsigned long long)api->registered_max_bytes);
		return;
	}
	memset(s, 0, sizeof(*s));
	s->api = api;
	s->conn = r->conn;
	s->request = r;
	s->charged_bytes = bytes;
	api->registered_bytes += bytes;
	r->conn->session = s;
	s->job.conf = *conf;
	s->job.conf.id = ++api->next_client_id;
	s->state = SESSION_QUEUED;
	STAILQ_INSERT_TAIL(&api->queued, s, link);
	create_next(api);
}

/* One at a time, because large arenas take seconds: who leaves meanwhile has cost nothing, and work comes to what is to
 * be destroyed before it makes the next. */
static void create_next(struct api *api)
{
	struct session *s = STAILQ_FIRST(&api->queued);

	if (!s || api->creating)
		return;
	STAILQ_REMOVE_HEAD(&api->queued, link);
	api->creating = s;
	ask_work(s, WORK_CREATE_CLIENT, SESSION_CREATING);
}

void session_leave(struct session *s)
{
	s->conn = NULL;
	/* On its way to or from somewhere: whoever has it comes back to us, and sees that the connection left. */
	if (s->state == SESSION_ATTACHED) {
		ask_control(s, API_DETACH, SESSION_DETACHING);
	} else if (s->state == SESSION_CREATING) {
		/* Relaxed: a hint. Work looks at it now and then, and what it makes all the same is destroyed. */
		__atomic_store_n(&s->job.want_stop, 1, __ATOMIC_RELAXED);
	} else if (s->state == SESSION_QUEUED) {
		STAILQ_REMOVE(&s->api->queued, s, session, link);
		release(s);
	}
}

void session_work_done(struct session *s)
{
	if (s->state == SESSION_CREATING)
		created(s);
	else
		destroyed(s);
}

void session_control_done(struct session *s)
{
	if (s->state == SESSION_ATTACHING)
		attached(s);
	else
		ask_work(s, WORK_DESTROY_CLIENT, SESSION_DESTROYING);
}

/* Control sends it after the answer to ATTACH and before that to DETACH, in one ring, so the session is still this
 * client's. */
void session_broken(struct session *s)
{
	if (s->conn)
		api_conn_end(s->conn, RY_ERR_PROTOCOL,
			"the ring makes no sense (an index out of bounds, or a slot used twice): does this program "
			"write where it should not? Attach again");
}

void sessions_begin_shutdown(struct api *api)
{
	struct session *s;

	if (api->creating) /* relaxed: a hint, as in session_leave */
		__atomic_store_n(&api->creating->job.want_stop, 1, __ATOMIC_RELAXED);
	while ((s = STAILQ_FIRST(&api->queued))) {
		STAILQ_REMOVE_HEAD(&api->queued, link);
		say_stopping(s);
		release(s);
	}
}

bool session_owns(const struct api *api, const void *p)
{
	const struct session *s = p;

	return s >= api->sessions && s < api->sessions + api->deps.config->max_clients;
}

void sessions_destroy(struct api *api)
{
	for (uint32_t i = 0; api->sessions && i < api->deps.config->max_clients; i++) {
		struct session *s = &api->sessions[i];

		if (s->state == SESSION_FREE)
			continue;
		if (s->request)
			request_free(s->request);
		client_destroy(s->client ? s->client : s->job.client);
	}
	free(api->sessions);
	api->sessions = NULL;
}

uint32_t api_n_sessions(const struct api *api)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < api->deps.config->max_clients; i++)
		n += api->sessions[i].state != SESSION_FREE;
	return n;
}

static struct session *find_free(struct api *api)
{
	for (uint32_t i = 0; i < api->deps.config->max_clients; i++)
		if (api->sessions[i].state == SESSION_FREE)
			return &api->sessions[i];
	return NULL;
}

static void ask_control(struct session *s, enum api_op op, enum session_state state)
{
	s->state = state;
	memset(&s->call, 0, sizeof(s->call));
	s->call.m.kind = MSG_API;
	s->call.op = (uint8_t)op;
	s->call.client = s->client;
	s->call.api_ctx = s;
	if (op == API_ATTACH) {
		memset(&s->broken, 0, sizeof(s->broken));
		s->broken.m.kind = MSG_API;
		s->broken.op = API_BROKEN;
		s->broken.api_ctx = s;
		s->call.broken = &s->broken;
	}
	api_to_control(s->api, &s->call);
}

static void ask_work(struct session *s, enum work_op op, enum session_state state)
{
	s->state = state;
	s->job.op = (uint8_t)op;
	s->job.client = s->client;
	s->job.api_ctx = s;
	s->client = NULL;
	api_to_work(s->api, &s->job);
}

static void created(struct session *s)
{
	s->client = s->job.client;
	s->job.client = NULL;
	s->api->creating = NULL;
	if (s->job.status < 0)
		set_failure(s, status_of(s->job.status), s->job.message);
	if (s->api->is_draining)
		say_stopping(s);
	if (s->job.status < 0) {
		release(s);
	} else if (!s->conn || s->api->is_draining) {
		ask_work(s, WORK_DESTROY_CLIENT, SESSION_DESTROYING);
	} else {
		ask_control(s, API_ATTACH, SESSION_ATTACHING);
	}
	create_next(s->api);
}

static void attached(struct session *s)
{
	struct client *c = s->client;
	struct request *r = s->request;
	struct api_conn *conn = s->conn;

	if (s->call.status != RY_OK) {
		set_failure(s, (enum ry_status)s->call.status, s->call.cause);
		ask_work(s, WORK_DESTROY_CLIENT, SESSION_DESTROYING);
		return;
	}
	if (!conn) {
		ask_control(s, API_DETACH, SESSION_DETACHING);
		return;
	}
	s->state = SESSION_ATTACHED;
	s->request = NULL;
	conn->fds[0] = c->ring.fd;
	conn->fds[1] = c->read_arena.fd;
	conn->fds[2] = c->put_arena.fd;
	conn->fds[3] = c->sq_event_fd;
	conn->fds[4] = c->cq_wake_fd[1];
	conn->n_fds = 5;
	request_reply(r, describe(c, request_uint(r, "abi_minor", 0)));
}

static void destroyed(struct session *s)
{
	s->client = NULL;
	s->job.client = NULL;
	release(s);
}

static void say_stopping(struct session *s)
{
	set_failure(s, RY_ERR_DETACHED, "the daemon is stopping; attach again when it is back");
}

static enum ry_status status_of(int rc)
{
	switch (rc) {
	case -EINVAL:
		return RY_ERR_INVALID;
	case -ENODEV:
		return RY_ERR_NO_RAIL;
	default:
		return RY_ERR_LIMIT;
	}
}

static void set_failure(struct session *s, enum ry_status status, const char *text)
{
	s->fail_status = status;
	snprintf(s->fail_text, sizeof(s->fail_text), "%s", text);
}

static json_t *describe(const struct client *c, uint64_t abi_minor)
{
	if (abi_minor > RY_RING_ABI_MINOR)
		abi_minor = RY_RING_ABI_MINOR;
	return json_pack("{s:I, s:i, s:I, s:I, s:I, s:I}", "client_id", (json_int_t)c->id, "abi_minor", (int)abi_minor,
		"ring_bytes", (json_int_t)c->ring.bytes, "ring_entries", (json_int_t)c->n_entries, "read_arena_bytes",
		(json_int_t)c->read_arena.bytes, "put_arena_bytes", (json_int_t)c->put_arena.bytes);
}

/* The session is free before the request is answered, because the answer may let the connection ask again. */
static void release(struct session *s)
{
	struct request *r = s->request;
	enum ry_status status = s->fail_status ? s->fail_status : RY_ERR_CANCELLED;
	char text[256];

	snprintf(text, sizeof(text), "%s", s->fail_text);
	if (s->conn)
		s->conn->session = NULL;
	s->api->registered_bytes -= s->charged_bytes;
	s->state = SESSION_FREE;
	s->request = NULL;
	if (r)
		request_fail(r, status, "attach: %s", text);
}
