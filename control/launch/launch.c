/* SPDX-License-Identifier: BSD-3-Clause */
#include "launch/launch.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "launch/launch_priv.h"
#include "rpc/rpc.h"

/* How often a starting daemon is asked whether it answers; its end wakes us at once. */
#define ASK_EVERY_MS 10
#define ASK_TIMEOUT_NS 2000000000ull

static struct launch *create(const struct launch_node *nodes, uint16_t n_nodes);
static void destroy(struct launch *l);
static int make_directory(struct launch *l, struct launch_error *err);
static bool name_file(
	const struct launch *l, const struct daemon_process *d, const char *suffix, char *path, uint32_t path_bytes);
static int start_all(struct launch *l, struct launch_error *err);
static int start_one(struct launch *l, uint16_t idx, uint32_t first, uint32_t total, struct launch_error *err);
static int await_ready(struct launch *l, uint16_t idx, uint64_t end_ns, struct launch_error *err);
static int await_turn(struct launch *l, uint16_t idx, uint64_t end_ns, const char *missing, struct launch_error *err);
static bool is_ready(const struct daemon_process *d, char *missing, uint32_t missing_bytes);
static bool has_pairs(struct rpc *r, uint16_t n_rails);
static uint32_t own_cpus(int *cpus, uint32_t max);
static uint64_t now(void);

int launch_start(const struct launch_node *nodes, uint16_t n_nodes, uint64_t timeout_ns, struct launch **out,
	struct launch_error *err)
{
	uint64_t end_ns = now() + timeout_ns;
	struct launch *l;
	uint16_t i;
	int rc;

	l = create(nodes, n_nodes);
	if (l == NULL)
		return -ENOMEM;
	rc = launch_find_daemon(l->program, sizeof(l->program), err);
	/* From here on a signal undoes what there is. */
	if (rc == 0)
		rc = guard_start(l);
	if (rc == 0)
		rc = make_directory(l, err);
	if (rc == 0)
		rc = start_all(l, err);
	for (i = 0; rc == 0 && i < n_nodes; i++)
		rc = await_ready(l, i, end_ns, err);
	if (rc < 0) {
		launch_stop(l);
		return rc;
	}
	*out = l;
	return 0;
}

void launch_stop(struct launch *l)
{
	if (l == NULL)
		return;
	/* Where a signal is being served, this waits in the lock until the guard has ended the process. */
	launch_undo(l);
	destroy(l);
}

static struct launch *create(const struct launch_node *nodes, uint16_t n_nodes)
{
	struct launch *l = n_nodes > LAUNCH_NODES_MAX ? NULL : calloc(1, sizeof(*l));
	uint16_t i, k;

	if (l == NULL)
		return NULL;
	pthread_mutex_init(&l->lock, NULL);
	l->signal_fd = -1;
	l->end_fd = -1;
	l->n_daemons = n_nodes;
	for (i = 0; i < n_nodes; i++) {
		l->daemons[i].node = nodes[i];
		l->daemons[i].pid_fd = -1;
		for (k = 0; k < RY_RAILS_MAX; k++)
			l->daemons[i].port_fds[k] = -1;
	}
	return l;
}

static void destroy(struct launch *l)
{
	guard_end(l);
	pthread_mutex_destroy(&l->lock);
	free(l);
}

static int make_directory(struct launch *l, struct launch_error *err)
{
	const char *tmp = getenv("TMPDIR");
	uint16_t i;
	int rc = 0;

	/* A socket's path has room for 107 bytes. */
	if (tmp == NULL || tmp[0] != '/' || strlen(tmp) > LAUNCH_SOCKET_BYTES - RY_NAME_MAX_BYTES - 24)
		tmp = "/tmp";
	pthread_mutex_lock(&l->lock);
	snprintf(l->directory, sizeof(l->directory), "%s/railyard-XXXXXX", tmp);
	if (l->is_stopped)
		rc = -EINTR;
	else if (mkdtemp(l->directory) == NULL)
		rc = -errno;
	if (rc < 0)
		l->directory[0] = '\0';
	pthread_mutex_unlock(&l->lock);
	if (rc < 0) {
		snprintf(err->text, sizeof(err->text), "cannot make a directory in %s: %s", tmp, strerror(-rc));
		return rc;
	}
	for (i = 0; i < l->n_daemons; i++) {
		struct daemon_process *d = &l->daemons[i];

		if (!name_file(l, d, "sock", d->socket_path, sizeof(d->socket_path)) ||
			!name_file(l, d, "yaml", d->config_path, sizeof(d->config_path)) ||
			!name_file(l, d, "log", d->log_path, sizeof(d->log_path)))
			return -ENAMETOOLONG;
	}
	return 0;
}

static bool name_file(
	const struct launch *l, const struct daemon_process *d, const char *suffix, char *path, uint32_t path_bytes)
{
	char name[LAUNCH_PATH_BYTES + RY_NAME_MAX_BYTES + 8];
	int n = snprintf(name, sizeof(name), "%s/%s.%s", l->directory, d->node.name, suffix);

	if (n < 0 || (uint32_t)n >= path_bytes)
		return false;
	memcpy(path, name, (size_t)n + 1);
	return true;
}

static int start_all(struct launch *l, struct launch_error *err)
{
	uint32_t first = 0, total = 0;
	uint16_t i;
	int rc = 0;

	for (i = 0; rc == 0 && i < l->n_daemons; i++) {
		total += l->daemons[i].node.n_rails + 1u;
		rc = launch_reserve_ports(&l->daemons[i]);
	}
	if (rc < 0) {
		snprintf(err->text, sizeof(err->text), "cannot reserve ports on the rails' addresses: %s",
			strerror(-rc));
		return rc;
	}
	for (i = 0; rc == 0 && i < l->n_daemons; i++) {
		rc = start_one(l, i, first, total, err);
		first += l->daemons[i].node.n_rails + 1u;
	}
	return rc;
}

static int start_one(struct launch *l, uint16_t idx, uint32_t first, uint32_t total, struct launch_error *err)
{
	struct daemon_process *d = &l->daemons[idx];
	char lcores[LAUNCH_LCORES_BYTES];
	int cpus[CPU_SETSIZE], rc;

	rc = launch_lcores(d->node.n_rails, first, total, cpus, own_cpus(cpus, CPU_SETSIZE), lcores, sizeof(lcores));
	/* A signal's guard must find every file and every process that exists. */
	pthread_mutex_lock(&l->lock);
	if (rc == 0)
		rc = l->is_stopped ? -EINTR : launch_write_config(l, idx);
	if (rc == 0)
		rc = process_spawn(l->program, lcores, &l->old_mask, d);
	pthread_mutex_unlock(&l->lock);
	if (rc < 0)
		snprintf(err->text, sizeof(err->text), "cannot start railyardd %s: %s", d->node.name, strerror(-rc));
	return rc;
}

static int await_ready(struct launch *l, uint16_t idx, uint64_t end_ns, struct launch_error *err)
{
	char missing[sizeof(((struct rpc_error *)0)->text)] = "";
	int rc;

	while (!is_ready(&l->daemons[idx], missing, sizeof(missing))) {
		rc = await_turn(l, idx, end_ns, missing, err);
		if (rc < 0)
			return rc;
	}
	pthread_mutex_lock(&l->lock);
	launch_free_ports(&l->daemons[idx]);
	pthread_mutex_unlock(&l->lock);
	return 0;
}

/* Sleeps until it is time to ask again; its end, or the time-out, is an error. */
static int await_turn(struct launch *l, uint16_t idx, uint64_t end_ns, const char *missing, struct launch_error *err)
{
	struct daemon_process *d = &l->daemons[idx];
	struct pollfd p = {.fd = d->pid_fd, .events = POLLIN};
	char what[640];

	poll(&p, 1, ASK_EVERY_MS);
	if (launch_check(l, err) < 0)
		return -ECHILD;
	if (now() < end_ns)
		return 0;
	snprintf(what, sizeof(what), "is not ready in time (%s)", missing);
	process_obituary(d, what, err);
	return -ETIMEDOUT;
}

static bool is_ready(const struct daemon_process *d, char *missing, uint32_t missing_bytes)
{
	struct rpc_error err;
	struct rpc *r = NULL;
	bool ready;

	if (rpc_open(d->socket_path, ASK_TIMEOUT_NS, &r, &err) < 0) {
		snprintf(missing, missing_bytes, "%s", err.text);
		return false;
	}
	ready = d->node.store_idx == LAUNCH_NO_STORE || has_pairs(r, d->node.n_rails);
	if (!ready)
		snprintf(missing, missing_bytes, "not every rail has a connection to the store");
	rpc_close(r);
	return ready;
}

/* Control counts the pairs that it may hand work to; conn's view would be a little early. */
static bool has_pairs(struct rpc *r, uint16_t n_rails)
{
	json_t *answer, *rail;
	struct rpc_error err;
	uint32_t n_up = 0;
	size_t i;

	if (rpc_call(r, "rails", NULL, &answer, &err) < 0)
		return false;
	json_array_foreach (json_object_get(answer, "rails"), i, rail)
		n_up += json_integer_value(json_object_get(rail, "pairs_up")) > 0;
	json_decref(answer);
	return n_up == n_rails;
}

int launch_check(struct launch *l, struct launch_error *err)
{
	uint16_t i;
	int rc = 0;

	pthread_mutex_lock(&l->lock);
	for (i = 0; rc == 0 && i < l->n_daemons; i++) {
		if (!process_has_ended(&l->daemons[i]))
			continue;
		process_obituary(&l->daemons[i], "ended", err);
		rc = -ECHILD;
	}
	pthread_mutex_unlock(&l->lock);
	return rc;
}

const char *launch_socket(const struct launch *l, uint16_t node_idx)
{
	return l->daemons[node_idx].socket_path;
}

pid_t launch_pid(const struct launch *l, uint16_t node_idx)
{
	return l->daemons[node_idx].pid;
}

const char *launch_directory(const struct launch *l)
{
	return l->directory;
}

static uint32_t own_cpus(int *cpus, uint32_t max)
{
	cpu_set_t set;
	uint32_t n = 0;
	int i;

	CPU_ZERO(&set);
	if (sched_getaffinity(0, sizeof(set), &set) < 0)
		CPU_SET(0, &set);
	for (i = 0; i < CPU_SETSIZE && n < max; i++) {
		if (CPU_ISSET(i, &set))
			cpus[n++] = i;
	}
	return n;
}

static uint64_t now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}
