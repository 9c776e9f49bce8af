/* SPDX-License-Identifier: BSD-3-Clause */
#include "api/api_priv.h"
#include "transport/mock/fault.h"

#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STALL_NS 5000000000ull
#define EVENTS_MAX 64

static int open_fds(struct api *api, char *message, uint32_t message_bytes);
static int watch(struct api *api, int fd, void *tag);
static bool begin_turn(struct api *api, uint64_t now_ns);
static bool poll_rings(struct api *api);
static bool poll_fds(struct api *api, int timeout_ms);
static int timeout_of(const struct api *api);
static void drop_stalled(struct api *api);
static void free_dead(struct api *api);
static void take_signals(struct api *api);
static void free_calls(struct api *api, struct rte_ring *ring);

int api_create(const struct api_deps *deps, char *message, uint32_t message_bytes, struct api **out)
{
	struct api *api = calloc(1, sizeof(*api));
	int rc;

	if (!api) {
		snprintf(message, message_bytes, "api: out of memory");
		return -ENOMEM;
	}
	api->deps = *deps;
	if (!api->deps.stall_ns)
		api->deps.stall_ns = STALL_NS;
	TAILQ_INIT(&api->conns);
	STAILQ_INIT(&api->queued);
	api->n_conns_max = deps->config->max_clients + API_EXTRA_CONNS;
	api->start_ns = api->now_ns = clock_ns();
	api->epoll_fd = api->listen_fd = api->signal_fd = api->spare_fd = -1;
	api->limits = limits_of(deps->config);
	api->registered_max_bytes = deps->config->registered_max_bytes;
	api->sessions = calloc(deps->config->max_clients, sizeof(*api->sessions));
	api->pair_logs = calloc(LOGS_MAX, sizeof(*api->pair_logs));
	api->faults = calloc(deps->config->n_rails, sizeof(*api->faults));
	if (!api->sessions || !api->pair_logs || !api->faults) {
		snprintf(message, message_bytes, "api: out of memory for %u clients%s", deps->config->max_clients,
			deps->config->is_reader ? "; lower reader.max_clients" : "");
		rc = -ENOMEM;
		goto err_api;
	}
	snprintf(message, message_bytes,
		"api: no memory, or no file descriptor left: raise the limit of open files (ulimit -n)");
	rc = open_fds(api, message, message_bytes);
	if (rc < 0)
		goto err_api;
	*out = api;
	return 0;

err_api:
	api_destroy(api);
	return rc;
}

/* Accepts what api_create could not finish. */
void api_destroy(struct api *api)
{
	struct api_conn *c;

	if (!api)
		return;
	TAILQ_FOREACH (c, &api->conns, link)
		api_conn_close(c);
	free_dead(api);
	free_calls(api, api->deps.to_control);
	free_calls(api, api->deps.from_control);
	sessions_destroy(api);
	if (api->listen_fd >= 0) {
		unlink(api->deps.config->socket_path);
		close(api->listen_fd);
	}
	if (api->signal_fd >= 0)
		close(api->signal_fd);
	if (api->spare_fd >= 0)
		close(api->spare_fd);
	if (api->epoll_fd >= 0)
		close(api->epoll_fd);
	free(api->pair_logs);
	free(api->faults);
	free(api);
}

bool api_poll(struct api *api, uint64_t now_ns)
{
	bool did;

	did = begin_turn(api, now_ns);
	did |= poll_rings(api);
	did |= poll_fds(api, 0);
	drop_stalled(api);
	free_dead(api);
	return did || api->has_lines;
}

void api_run(struct api *api, const uint32_t *stop)
{
	while (!__atomic_load_n(stop, __ATOMIC_RELAXED)) {
		int timeout_ms = 0;

		begin_turn(api, clock_ns());
		if (!poll_rings(api))
			timeout_ms = timeout_of(api);
		waker_prepare(api->deps.waker);
		/* Relaxed: whoever stops us kicks the waker afterwards, and the fence of that pair orders the two. */
		if (!spsc_is_empty(api->deps.from_control) || !spsc_is_empty(api->deps.from_work) ||
			!journal_is_empty(api->deps.journal) || __atomic_load_n(stop, __ATOMIC_RELAXED))
			timeout_ms = 0;
		poll_fds(api, timeout_ms);
		waker_cancel(api->deps.waker);
		api->now_ns = clock_ns();
		drop_stalled(api);
		free_dead(api);
	}
}

void api_begin_shutdown(struct api *api)
{
	if (api->is_draining)
		return;
	api->is_draining = true;
	sessions_begin_shutdown(api);
	api->shutdown_call.m.kind = MSG_API;
	api->shutdown_call.op = API_SHUTDOWN;
	api->shutdown_call.api_ctx = api;
	api_to_control(api, &api->shutdown_call);
}

/* API_RING_ENTRIES covers two calls of every session and one of every connection, so these pushes cannot fail. */
void api_to_control(struct api *api, struct api_call *call)
{
	spsc_push(api->deps.to_control, call);
	waker_kick(api->deps.control_waker);
}

void api_to_work(struct api *api, struct work_job *job)
{
	spsc_push(api->deps.to_work, job);
	waker_kick(api->deps.work_waker);
}

uint32_t api_n_conns(const struct api *api)
{
	return api->n_conns;
}

static int open_fds(struct api *api, char *message, uint32_t message_bytes)
{
	sigset_t set;
	int rc;

	api->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	api->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	if (api->epoll_fd < 0 || api->spare_fd < 0)
		return -errno;
	rc = api_listen(api->deps.config->socket_path, message, message_bytes);
	if (rc < 0)
		return rc;
	api->listen_fd = rc;
	if (api->deps.want_signals) {
		sigemptyset(&set);
		sigaddset(&set, SIGTERM);
		sigaddset(&set, SIGINT);
		sigaddset(&set, SIGHUP);
		api->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
		if (api->signal_fd < 0)
			return -errno;
		rc = watch(api, api->signal_fd, &api->signal_fd);
		if (rc < 0)
			return rc;
	}
	rc = watch(api, api->listen_fd, &api->listen_fd);
	return rc < 0 ? rc : watch(api, api->deps.waker->event_fd, api->deps.waker);
}

/* The tag tells the descriptors apart: the address of where one is kept, or the connection. */
static int watch(struct api *api, int fd, void *tag)
{
	struct epoll_event e = {.events = EPOLLIN, .data.ptr = tag};

	return epoll_ctl(api->epoll_fd, EPOLL_CTL_ADD, fd, &e) < 0 ? -errno : 0;
}

/* Takes what the connections sent that was too much for the turn before. */
static bool begin_turn(struct api *api, uint64_t now_ns)
{
	struct api_conn *c;

	api->now_ns = now_ns;
	api->turn++;
	if (!api->has_lines)
		return false;
	api->has_lines = false;
	TAILQ_FOREACH (c, &api->conns, link)
		if (c->has_lines)
			api_conn_work(c);
	return true;
}

static bool poll_rings(struct api *api)
{
	struct work_job *job;
	struct api_call *call;
	bool did = false;

	while ((job = spsc_pop(api->deps.from_work))) {
		session_work_done(job->api_ctx);
		did = true;
	}
	while ((call = spsc_pop(api->deps.from_control))) {
		did = true;
		if (call == &api->shutdown_call)
			continue;
		if (call->op == API_BROKEN) {
			session_broken(call->api_ctx);
		} else if (session_owns(api, call->api_ctx)) {
			session_control_done(call->api_ctx);
		} else {
			struct request *r = call->api_ctx;

			r->answered(r);
		}
	}
	return transitions_print(api) || did;
}

static bool poll_fds(struct api *api, int timeout_ms)
{
	struct epoll_event e[EVENTS_MAX];
	int n = epoll_wait(api->epoll_fd, e, EVENTS_MAX, timeout_ms);

	for (int i = 0; i < n; i++) {
		if (e[i].data.ptr == &api->listen_fd)
			api_accept(api);
		else if (e[i].data.ptr == &api->signal_fd)
			take_signals(api);
		else if (e[i].data.ptr != api->deps.waker)
			api_conn_event(e[i].data.ptr, e[i].events);
	}
	return n > 0;
}

/* Only a client that takes nothing, and a line of the log that waits, need a timer; lines that wait, none at all. */
static int timeout_of(const struct api *api)
{
	const struct api_conn *c;
	uint64_t earliest = transitions_due_ns(api);

	if (api->has_lines)
		return 0;
	if (!api->n_waiting && earliest == UINT64_MAX)
		return -1;
	TAILQ_FOREACH (c, &api->conns, link)
		if (c->out && c->out_since_ns + api->deps.stall_ns < earliest)
			earliest = c->out_since_ns + api->deps.stall_ns;
	if (earliest <= api->now_ns)
		return 0;
	return (int)((earliest - api->now_ns) / 1000000u) + 1;
}

static void drop_stalled(struct api *api)
{
	struct api_conn *c;

	if (!api->n_waiting)
		return;
	TAILQ_FOREACH (c, &api->conns, link)
		if (c->out && api->now_ns >= c->out_since_ns + api->deps.stall_ns)
			api_conn_close(c);
}

static void free_dead(struct api *api)
{
	struct api_conn *c, *next;

	if (!api->has_dead)
		return;
	api->has_dead = false;
	for (c = TAILQ_FIRST(&api->conns); c; c = next) {
		next = TAILQ_NEXT(c, link);
		if (c->fd >= 0)
			continue;
		TAILQ_REMOVE(&api->conns, c, link);
		free(c->in);
		free(c);
	}
}

static void take_signals(struct api *api)
{
	struct signalfd_siginfo info;

	while (read(api->signal_fd, &info, sizeof(info)) == sizeof(info)) {
		if (info.ssi_signo == SIGHUP) {
			log_info(
				"signal: SIGHUP ignored: the configuration is read once: restart the daemon, or change "
				"budgets with railyard limits");
			continue;
		}
		log_info("signal: %s from pid %u: %s", info.ssi_signo == SIGINT ? "SIGINT" : "SIGTERM", info.ssi_pid,
			api->n_stop_signals ? "leaving at once" : "draining");
		if (api->n_stop_signals++ && api->deps.force)
			api->deps.force(api->deps.force_arg);
		api_begin_shutdown(api);
	}
}

/* Requests that control did not answer, or whose answer we did not take, before everything stopped. */
static void free_calls(struct api *api, struct rte_ring *ring)
{
	struct api_call *call;

	while ((call = spsc_pop(ring)))
		if (call != &api->shutdown_call && !session_owns(api, call->api_ctx))
			request_free(call->api_ctx);
}
