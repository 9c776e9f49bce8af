/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the files of this folder share: the record of a launch, its files, its processes.
 *
 * `lock` is held by whoever stops or looks after processes: the caller's thread, or the guard thread that a signal
 * woke. Once `is_stopped` is set there is nothing left to undo.
 */
#ifndef RY_LAUNCH_PRIV_H
#define RY_LAUNCH_PRIV_H

#include <limits.h>
#include <pthread.h>
#include <signal.h>

#include "launch/launch.h"

#ifdef __cplusplus
extern "C" {
#endif

#define LAUNCH_PATH_BYTES 256u
#define LAUNCH_SOCKET_BYTES 108u /* sockaddr_un.sun_path */
#define LAUNCH_LCORES_BYTES 4096u

struct daemon_process {
	struct launch_node node;
	uint16_t ports[RY_RAILS_MAX];
	int port_fds[RY_RAILS_MAX]; /* bound, not listening: keeps the port ours until the daemon listens on it; -1 =
				       none */
	char config_path[LAUNCH_PATH_BYTES];
	char log_path[LAUNCH_PATH_BYTES];
	char socket_path[LAUNCH_SOCKET_BYTES];
	pid_t pid;     /* 0 = not running */
	int pid_fd;    /* readable once it has ended, -1 = none */
	int exit_code; /* wait status once it has ended */
};

struct launch {
	char directory[LAUNCH_PATH_BYTES];
	char program[PATH_MAX];
	uint16_t n_daemons;
	struct daemon_process daemons[LAUNCH_NODES_MAX];
	pthread_mutex_t lock;
	bool is_stopped;
	/* guard */
	pthread_t guard;
	bool has_guard;
	int signal_fd;
	int end_fd;
	sigset_t old_mask;
};

/* launch_config.c: free ports, then NAME.yaml in the directory. 0 or -errno. */
int launch_reserve_ports(struct daemon_process *d);
void launch_free_ports(struct daemon_process *d);
int launch_write_config(const struct launch *l, uint16_t idx);

/* launch_process.c */
int process_spawn(const char *program, const char *lcores, const sigset_t *mask, struct daemon_process *d);
/* Whether it has ended; reaps it. */
bool process_has_ended(struct daemon_process *d);
/* SIGTERM to all that run, waits for all of them at most wait_ms, then SIGKILL. */
void process_stop_all(struct daemon_process *daemons, uint16_t n, int wait_ms);
/* "NAME ended with ...", and its log's last lines. */
void process_obituary(const struct daemon_process *d, const char *what, struct launch_error *err);

/* launch_guard.c */
int guard_start(struct launch *l);
void guard_end(struct launch *l);
/* Stops the daemons and removes the directory, once. Takes the lock. */
void launch_undo(struct launch *l);

#ifdef __cplusplus
}
#endif
#endif
