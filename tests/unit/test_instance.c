/* SPDX-License-Identifier: BSD-3-Clause */
/* One daemon of a name in one run directory. */
#include "daemon/instance.h"

#include <criterion/criterion.h>

#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char directory[] = "/tmp/ry-instance-XXXXXX";
static struct config c;
static struct instance first = {.fd = -1}, second = {.fd = -1};
static char message[512];
static int n_races; /* so many times the file goes between the open and the lock */

int __real_flock(int fd, int operation);
int __wrap_flock(int fd, int operation);

/* The daemon that had the lock ends just now, and another one may start. */
int __wrap_flock(int fd, int operation)
{
	char path[64];

	if (n_races) {
		n_races--;
		snprintf(path, sizeof(path), "%s/run/n1.lock", directory);
		cr_assert_eq(unlink(path), 0);
		if (n_races)
			fclose(fopen(path, "w"));
	}
	return __real_flock(fd, operation);
}

static void setup(void)
{
	cr_assert_not_null(mkdtemp(directory));
	snprintf(c.socket_path, sizeof(c.socket_path), "%s/run/a.sock", directory);
	strcpy(c.node_name, "n1");
}

static void teardown(void)
{
	char path[64];

	instance_release(&second);
	instance_release(&first);
	snprintf(path, sizeof(path), "%s/run", directory);
	rmdir(path);
	cr_expect_eq(rmdir(directory), 0, "something is left");
}

TestSuite(instance, .init = setup, .fini = teardown);

Test(instance, a_second_one_of_the_name_is_refused)
{
	char pid[32];

	cr_assert_eq(instance_claim(&c, &first, message, sizeof(message)), 0, "%s", message);
	snprintf(c.socket_path, sizeof(c.socket_path), "%s/run/b.sock", directory);
	cr_assert_eq(instance_claim(&c, &second, message, sizeof(message)), -EEXIST);
	snprintf(pid, sizeof(pid), "pid %d,", (int)getpid());
	cr_expect(strstr(message, "node n1: another daemon of this name") && strstr(message, pid), "%s", message);
	strcpy(c.node_name, "n2");
	cr_expect_eq(instance_claim(&c, &second, message, sizeof(message)), 0, "%s", message);
}

Test(instance, the_name_is_free_again)
{
	cr_assert_eq(instance_claim(&c, &first, message, sizeof(message)), 0, "%s", message);
	instance_release(&first);
	cr_expect_neq(access(second.path, F_OK), 0);
	cr_assert_eq(instance_claim(&c, &second, message, sizeof(message)), 0, "%s", message);
}

/* A daemon that was killed leaves its file, and the kernel has dropped the lock. */
Test(instance, a_killed_one_hinders_nobody)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		if (instance_claim(&c, &first, message, sizeof(message)) == 0)
			raise(SIGKILL);
		_exit(1);
	}
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	cr_assert(WIFSIGNALED(status), "the child could not claim");
	snprintf(second.path, sizeof(second.path), "%s/run/n1.lock", directory);
	cr_assert_eq(access(second.path, F_OK), 0, "the file is left");
	cr_expect_eq(instance_claim(&c, &second, message, sizeof(message)), 0, "%s", message);
}

/* Root writes there: it must not follow what somebody else laid out. */
Test(instance, a_link_is_not_followed)
{
	char path[64], target[64];
	struct stat st;

	snprintf(path, sizeof(path), "%s/run", directory);
	cr_assert_eq(mkdir(path, 0755), 0);
	snprintf(path, sizeof(path), "%s/run/n1.lock", directory);
	snprintf(target, sizeof(target), "%s/target", directory);
	cr_assert_eq(symlink(target, path), 0);
	cr_expect_eq(instance_claim(&c, &first, message, sizeof(message)), -ELOOP);
	cr_expect(strstr(message, "is no lock file") && strstr(message, "remove it"), "%s", message);
	cr_expect_neq(stat(target, &st), 0);
	unlink(path);
	fclose(fopen(target, "w"));
	cr_assert_eq(link(target, path), 0);
	cr_expect_eq(instance_claim(&c, &first, message, sizeof(message)), -EMLINK);
	unlink(path);
	unlink(target);
}

/* Else two daemons hold two locks of one name: one of a file that nobody finds any more. */
Test(instance, a_lock_on_a_file_that_went_is_none)
{
	struct stat named, ours;

	n_races = 2;
	cr_assert_eq(instance_claim(&c, &first, message, sizeof(message)), 0, "%s", message);
	cr_expect_eq(n_races, 0);
	cr_assert_eq(stat(first.path, &named), 0, "what is locked has no name");
	cr_assert_eq(fstat(first.fd, &ours), 0);
	cr_expect_eq(named.st_ino, ours.st_ino);
	cr_expect_eq(instance_claim(&c, &second, message, sizeof(message)), -EEXIST);
}
