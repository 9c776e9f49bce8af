/* SPDX-License-Identifier: BSD-3-Clause */
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "launch/launch_priv.h"

/* A daemon with nothing to drain ends in milliseconds; one that hangs is not waited for. */
#define STOP_WAIT_MS 5000

static void *guard_run(void *arg);
static void die_by(int signal);
static void remove_directory(const char *path);
static void empty_directory(const char *path);

static const int guarded[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};

int guard_start(struct launch *l)
{
	sigset_t set;
	size_t i;
	int rc;

	sigemptyset(&set);
	for (i = 0; i < sizeof(guarded) / sizeof(guarded[0]); i++)
		sigaddset(&set, guarded[i]);
	l->signal_fd = signalfd(-1, &set, SFD_CLOEXEC);
	l->end_fd = eventfd(0, EFD_CLOEXEC);
	if (l->signal_fd < 0 || l->end_fd < 0)
		return -errno;
	pthread_sigmask(SIG_BLOCK, &set, &l->old_mask);
	rc = pthread_create(&l->guard, NULL, guard_run, l);
	l->has_guard = rc == 0;
	if (rc != 0)
		pthread_sigmask(SIG_SETMASK, &l->old_mask, NULL);
	return -rc;
}

void guard_end(struct launch *l)
{
	if (l->has_guard) {
		eventfd_write(l->end_fd, 1);
		pthread_join(l->guard, NULL);
		pthread_sigmask(SIG_SETMASK, &l->old_mask, NULL);
	}
	if (l->signal_fd >= 0)
		close(l->signal_fd);
	if (l->end_fd >= 0)
		close(l->end_fd);
}

/* Nothing here must be async-signal-safe: the signal is read as data by a thread. */
static void *guard_run(void *arg)
{
	struct launch *l = arg;
	struct pollfd p[2] = {{.fd = l->signal_fd, .events = POLLIN}, {.fd = l->end_fd, .events = POLLIN}};
	struct signalfd_siginfo info;

	while (poll(p, 2, -1) < 0 && errno == EINTR)
		;
	if ((p[0].revents & POLLIN) == 0 || read(l->signal_fd, &info, sizeof(info)) != sizeof(info))
		return NULL;
	launch_undo(l);
	die_by((int)info.ssi_signo);
	return NULL;
}

/* The shell, or whoever waits, must see that a signal ended us. */
static void die_by(int signal_number)
{
	sigset_t set;

	signal(signal_number, SIG_DFL);
	sigemptyset(&set);
	sigaddset(&set, signal_number);
	pthread_sigmask(SIG_UNBLOCK, &set, NULL);
	raise(signal_number);
	_exit(128 + signal_number);
}

void launch_undo(struct launch *l)
{
	uint16_t i;

	pthread_mutex_lock(&l->lock);
	if (!l->is_stopped) {
		process_stop_all(l->daemons, l->n_daemons, STOP_WAIT_MS);
		for (i = 0; i < l->n_daemons; i++)
			launch_free_ports(&l->daemons[i]);
		remove_directory(l->directory);
		l->is_stopped = true;
	}
	pthread_mutex_unlock(&l->lock);
}

/* Flat: configurations, logs, sockets, and what the caller put there, who may still be at it where a signal came in
 * between. */
static void remove_directory(const char *path)
{
	int i;

	for (i = 0; i < 3 && path[0] != '\0'; i++) {
		empty_directory(path);
		if (rmdir(path) == 0 || errno != ENOTEMPTY)
			return;
	}
}

static void empty_directory(const char *path)
{
	DIR *dir = opendir(path);
	struct dirent *e;

	if (dir == NULL)
		return;
	while ((e = readdir(dir)) != NULL)
		unlinkat(dirfd(dir), e->d_name, 0); /* "." and ".." refuse, harmlessly */
	closedir(dir);
}
