/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "launch/launch_priv.h"

#define KILL_WAIT_MS 5000
#define LOG_TAIL_BYTES 1200u
#define LOG_TAIL_LINES 10u

static void become_daemon(const char *program, const char *lcores, const sigset_t *mask, const struct daemon_process *d,
	pid_t parent, int log_fd);
static int64_t now_ms(void);
static void await_all(struct daemon_process *daemons, uint16_t n, int timeout_ms);
static void signal_all(struct daemon_process *daemons, uint16_t n, int signal);
static void read_log_tail(const char *path, char *text, uint32_t text_bytes);

/* In the child, between fork and exec: only calls that are safe there. */
static void become_daemon(const char *program, const char *lcores, const sigset_t *mask, const struct daemon_process *d,
	pid_t parent, int log_fd)
{
	char *const argv[] = {(char *)"railyardd", (char *)"--lcores", (char *)lcores, (char *)"--", (char *)"--config",
		(char *)d->config_path, NULL};
	int null_fd = open("/dev/null", O_RDONLY);

	/* A Ctrl-C on the terminal goes to the foreground group: the parent alone decides how its daemons end. */
	setpgid(0, 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(127);
	signal(SIGPIPE, SIG_DFL);
	sigprocmask(SIG_SETMASK, mask, NULL);
	if (null_fd < 0 || dup2(null_fd, 0) < 0 || dup2(log_fd, 1) < 0 || dup2(log_fd, 2) < 0)
		_exit(127);
	execv(program, argv);
	dprintf(2, "cannot execute %s: %s\n", program, strerror(errno));
	_exit(127);
}

int process_spawn(const char *program, const char *lcores, const sigset_t *mask, struct daemon_process *d)
{
	int log_fd = open(d->log_path, O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0600);
	pid_t parent = getpid(), pid;

	if (log_fd < 0)
		return -errno;
	pid = fork();
	if (pid == 0)
		become_daemon(program, lcores, mask, d, parent, log_fd);
	close(log_fd);
	if (pid < 0)
		return -errno;
	setpgid(pid, pid);
	d->pid = pid;
	d->pid_fd = pidfd_open(pid, 0);
	return d->pid_fd < 0 ? -errno : 0;
}

bool process_has_ended(struct daemon_process *d)
{
	if (d->pid == 0)
		return true;
	if (waitpid(d->pid, &d->exit_code, WNOHANG) == 0)
		return false;
	d->pid = 0;
	if (d->pid_fd >= 0)
		close(d->pid_fd);
	d->pid_fd = -1;
	return true;
}

static int64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

static void await_all(struct daemon_process *daemons, uint16_t n, int timeout_ms)
{
	int64_t end = now_ms() + timeout_ms;
	uint16_t i;

	for (i = 0; i < n; i++) {
		struct pollfd p = {.fd = daemons[i].pid_fd, .events = POLLIN};
		int64_t left;

		while (!process_has_ended(&daemons[i])) {
			left = end - now_ms();
			if (left <= 0 || (poll(&p, 1, (int)left) < 0 && errno != EINTR))
				break;
		}
	}
}

static void signal_all(struct daemon_process *daemons, uint16_t n, int signal)
{
	uint16_t i;

	for (i = 0; i < n; i++) {
		/* Not yet reaped, so the number is still its own. */
		if (daemons[i].pid > 0)
			kill(daemons[i].pid, signal);
	}
}

void process_stop_all(struct daemon_process *daemons, uint16_t n, int wait_ms)
{
	signal_all(daemons, n, SIGTERM);
	await_all(daemons, n, wait_ms);
	signal_all(daemons, n, SIGKILL);
	await_all(daemons, n, KILL_WAIT_MS);
}

static void read_log_tail(const char *path, char *text, uint32_t text_bytes)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	off_t size = fd < 0 ? 0 : lseek(fd, 0, SEEK_END);
	off_t from = size > (off_t)text_bytes - 1 ? size - (off_t)text_bytes + 1 : 0;
	ssize_t n = fd < 0 ? 0 : pread(fd, text, text_bytes - 1, from);
	uint32_t lines = 0;
	char *p;

	if (fd >= 0)
		close(fd);
	n = n < 0 ? 0 : n;
	while (n > 0 && text[n - 1] == '\n')
		n--;
	text[n] = '\0';
	for (p = text + n; p > text && lines < LOG_TAIL_LINES; p--)
		lines += p[-1] == '\n';
	if (p > text)
		memmove(text, p + 1, strlen(p + 1) + 1);
}

void process_obituary(const struct daemon_process *d, const char *what, struct launch_error *err)
{
	char tail[LOG_TAIL_BYTES], how[64] = "";

	if (d->pid == 0 && WIFEXITED(d->exit_code))
		snprintf(how, sizeof(how), " with exit code %d", WEXITSTATUS(d->exit_code));
	else if (d->pid == 0 && WIFSIGNALED(d->exit_code))
		snprintf(how, sizeof(how), " by signal %d (%s)", WTERMSIG(d->exit_code),
			strsignal(WTERMSIG(d->exit_code)));
	read_log_tail(d->log_path, tail, sizeof(tail));
	snprintf(err->text, sizeof(err->text), "railyardd %s %s%s%s%s", d->node.name, what, how,
		tail[0] != '\0' ? "; the last lines of its log:\n" : "; its log is empty", tail);
}
