/* SPDX-License-Identifier: BSD-3-Clause */
/* config: what a daemon runs with. config-check: lets the daemon itself read the file, so that there is one opinion on
 * what is valid. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/cli.h"
#include "launch/launch.h"

static int run(const char *program, const char *path, char *said, size_t said_bytes, int *exit_status);
static void exec_check(const char *program, const char *path, int fd);

int cmd_config(struct cli *c)
{
	return cli_show(c, "config", json_pack("{s:b}", "sources", 1));
}

int cmd_config_check(struct cli *c)
{
	char program[PATH_MAX], said[12288] = "";
	struct launch_error err;
	int rc, wait_status = 0;
	bool is_valid;

	if (launch_find_daemon(program, sizeof(program), &err) < 0)
		return cli_fail(c, RY_ERR_INTERNAL, "%s", err.text);
	rc = run(program, c->args.values[0], said, sizeof(said), &wait_status);
	if (rc < 0)
		return cli_fail(c, RY_ERR_INTERNAL, "cannot run %s: %s", program, strerror(-rc));
	is_valid = WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0;
	if (!is_valid)
		return cli_fail(
			c, RY_ERR_INVALID, "%s", said[0] != '\0' ? said : "the daemon refused it without a word");
	return output_print(c, json_pack("{s:s, s:b}", "file", c->args.values[0], "valid", true));
}

static int run(const char *program, const char *path, char *said, size_t said_bytes, int *exit_status)
{
	size_t used = 0;
	int fds[2];
	pid_t pid;

	if (pipe(fds) < 0)
		return -errno;
	pid = fork();
	if (pid == 0)
		exec_check(program, path, fds[1]);
	close(fds[1]);
	for (;;) {
		char rest[256];
		bool is_full = used + 1 >= said_bytes;
		ssize_t n = read(fds[0], is_full ? rest : said + used, is_full ? sizeof(rest) : said_bytes - used - 1);

		if (n <= 0)
			break;
		used += is_full ? 0 : (size_t)n;
	}
	close(fds[0]);
	while (used > 0 && said[used - 1] == '\n')
		used--;
	said[used] = '\0';
	return pid < 0 || waitpid(pid, exit_status, 0) < 0 ? -errno : 0;
}

static void exec_check(const char *program, const char *path, int fd)
{
	dup2(fd, STDOUT_FILENO);
	dup2(fd, STDERR_FILENO);
	execl(program, "railyardd", "--", "--config", path, "--check", (char *)NULL);
	_exit(127);
}
