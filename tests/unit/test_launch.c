/* SPDX-License-Identifier: BSD-3-Clause */
/* The launcher with a scripted daemon, which does what FAKE says. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "launch/launch.h"
#include "launch/launch_priv.h"

#define SECOND_NS 1000000000ull

static const char script[] =
	"#!/usr/bin/env python3\n"
	"import json, os, signal, socket, sys\n"
	"path = sys.argv[sys.argv.index('--config') + 1]\n"
	"fake = os.environ.get('FAKE', '')\n"
	"if fake == 'dies' and path.endswith('store.yaml'):\n"
	"    print('rail0: bind: port is taken', flush=True)\n"
	"    sys.exit(3)\n"
	"if fake == 'stubborn':\n"
	"    signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
	"print('args', ' '.join(sys.argv[1:]), flush=True)\n"
	"lines = open(path).read().splitlines()\n"
	"rails = sum(l.startswith('  - name: rail') for l in lines)\n"
	"name = next(l for l in lines if l.startswith('socket:')).split()[1]\n"
	"s = socket.socket(socket.AF_UNIX)\n"
	"if fake == 'mute':\n"
	"    signal.pause()\n"
	"s.bind(name)\n"
	"s.listen()\n"
	"while True:\n"
	"    c = s.accept()[0].makefile('rw')\n"
	"    for line in c:\n"
	"        q = json.loads(line)\n"
	"        up = 0 if fake == 'lonely' else 1\n"
	"        r = {'version': 1} if q['method'] == 'hello' else {'rails': [{'pairs_up': up}] * rails}\n"
	"        c.write(json.dumps({'jsonrpc': '2.0', 'id': q['id'], 'result': r}) + '\\n')\n"
	"        c.flush()\n";

static char home[64];
static struct launch_error err;

static void make_daemon(const char *fake)
{
	char path[96];
	FILE *f;

	strcpy(home, "/tmp/ry-test-launch-XXXXXX");
	cr_assert_not_null(mkdtemp(home));
	snprintf(path, sizeof(path), "%s/railyardd", home);
	f = fopen(path, "we");
	cr_assert_not_null(f);
	fputs(script, f);
	fclose(f);
	chmod(path, 0700);
	setenv("RAILYARD_DAEMON", path, 1);
	setenv("TMPDIR", home, 1);
	setenv("FAKE", fake, 1);
}

static void remove_daemon(void)
{
	char path[96];

	snprintf(path, sizeof(path), "%s/railyardd", home);
	unlink(path);
	cr_expect_eq(rmdir(home), 0, "something was left in %s", home);
}

static void describe(struct launch_node *nodes)
{
	memset(nodes, 0, 2 * sizeof(*nodes));
	strcpy(nodes[0].name, "store");
	nodes[0].is_store = true;
	nodes[0].store_idx = LAUNCH_NO_STORE;
	nodes[0].n_rails = 2;
	strcpy(nodes[1].name, "reader");
	nodes[1].is_reader = true;
	nodes[1].n_rails = 2;
	for (int i = 0; i < 4; i++)
		strcpy(nodes[i / 2].rails[i % 2].transport, "tcp");
}

static struct launch *start(const char *fake, uint64_t timeout_ns, int *rc)
{
	struct launch_node nodes[2];
	struct launch *l = NULL;

	make_daemon(fake);
	describe(nodes);
	*rc = launch_start(nodes, 2, timeout_ns, &l, &err);
	return l;
}

static bool is_gone(pid_t pid)
{
	for (int i = 0; i < 500; i++) {
		if (kill(pid, 0) < 0 && errno == ESRCH)
			return true;
		usleep(2000);
	}
	return false;
}

static bool contains(const char *path, const char *needle)
{
	static char text[8192];
	FILE *f = fopen(path, "re");
	size_t n = f == NULL ? 0 : fread(text, 1, sizeof(text) - 1, f);

	if (f != NULL)
		fclose(f);
	text[n] = '\0';
	return strstr(text, needle) != NULL;
}

Test(launch, daemons_answer_and_nothing_is_left)
{
	char directory[128];
	pid_t pids[2];
	int rc;
	struct launch *l = start("", 10 * SECOND_NS, &rc);

	cr_assert_eq(rc, 0, "%s", err.text);
	strcpy(directory, launch_directory(l));
	for (uint16_t i = 0; i < 2; i++) {
		pids[i] = launch_pid(l, i);
		cr_expect_eq(kill(pids[i], 0), 0);
		cr_expect_eq(access(launch_socket(l, i), F_OK), 0);
	}
	cr_expect_eq(launch_check(l, &err), 0);
	launch_stop(l);
	cr_expect(is_gone(pids[0]) && is_gone(pids[1]));
	cr_expect_eq(access(directory, F_OK), -1);
	remove_daemon();
}

Test(launch, configurations_fit_together)
{
	char path[128], port[64];
	int rc;
	struct launch *l = start("", 10 * SECOND_NS, &rc);

	cr_assert_eq(rc, 0, "%s", err.text);
	snprintf(path, sizeof(path), "%s/store.yaml", launch_directory(l));
	cr_expect(contains(path, "roles: [store]"));
	snprintf(port, sizeof(port), "port: %u\n", l->daemons[0].ports[1]);
	cr_expect(contains(path, port));
	snprintf(path, sizeof(path), "%s/reader.yaml", launch_directory(l));
	cr_expect(contains(path, "roles: [reader]"));
	cr_expect_not(contains(path, "    port:"));
	snprintf(port, sizeof(port), "port: %u, rail: rail1}", l->daemons[0].ports[1]);
	cr_expect(contains(path, port));
	launch_stop(l);
	remove_daemon();
}

Test(launch, a_daemon_that_dies_is_quoted)
{
	int rc;

	start("dies", 10 * SECOND_NS, &rc);
	cr_expect_eq(rc, -ECHILD);
	cr_expect(strstr(err.text, "railyardd store ended with exit code 3") != NULL, "%s", err.text);
	cr_expect(strstr(err.text, "rail0: bind: port is taken") != NULL, "%s", err.text);
	remove_daemon();
}

Test(launch, a_daemon_that_never_answers_is_ended)
{
	int rc;

	start("mute", SECOND_NS / 4, &rc);
	cr_expect_eq(rc, -ETIMEDOUT);
	cr_expect(strstr(err.text, "railyardd store is not ready in time") != NULL, "%s", err.text);
	remove_daemon();
}

Test(launch, a_reader_without_pairs_is_not_ready)
{
	int rc;

	start("lonely", 2 * SECOND_NS, &rc);
	cr_expect_eq(rc, -ETIMEDOUT);
	cr_expect(strstr(err.text, "railyardd reader is not ready") != NULL, "%s", err.text);
	cr_expect(strstr(err.text, "not every rail") != NULL, "%s", err.text);
	remove_daemon();
}

Test(launch, one_that_ignores_sigterm_is_killed)
{
	int rc;
	struct launch *l = start("stubborn", 10 * SECOND_NS, &rc);

	cr_assert_eq(rc, 0, "%s", err.text);
	process_stop_all(l->daemons, 2, 30);
	cr_expect_eq(launch_pid(l, 0), 0);
	cr_expect(WIFSIGNALED(l->daemons[0].exit_code) && WTERMSIG(l->daemons[0].exit_code) == SIGKILL);
	cr_expect_eq(launch_check(l, &err), -ECHILD);
	launch_stop(l);
	remove_daemon();
}

/* Runs a launching process, ends it by a signal, and says how it ended. */
static int end_parent_by(int signal_number, pid_t *daemons)
{
	int fds[2], status;
	pid_t parent;

	make_daemon("");
	cr_assert_eq(pipe(fds), 0);
	parent = fork();
	if (parent == 0) {
		struct launch_node nodes[2];
		struct launch *l;
		pid_t pids[2];

		describe(nodes);
		if (launch_start(nodes, 2, 10 * SECOND_NS, &l, &err) < 0)
			_exit(9);
		pids[0] = launch_pid(l, 0);
		pids[1] = launch_pid(l, 1);
		if (write(fds[1], pids, sizeof(pids)) != sizeof(pids))
			_exit(9);
		for (;;)
			pause();
	}
	cr_assert_eq(read(fds[0], daemons, 2 * sizeof(*daemons)), 2 * sizeof(*daemons));
	kill(parent, signal_number);
	cr_assert_eq(waitpid(parent, &status, 0), parent);
	return status;
}

Test(launch, a_signal_ends_all_and_is_seen_by_the_shell)
{
	static const int signals[] = {SIGINT, SIGTERM, SIGHUP};

	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
		pid_t daemons[2];
		int status = end_parent_by(signals[i], daemons);

		cr_expect(WIFSIGNALED(status) && WTERMSIG(status) == signals[i], "signal %d", signals[i]);
		cr_expect(is_gone(daemons[0]) && is_gone(daemons[1]), "signal %d", signals[i]);
		remove_daemon();
	}
}

Test(launch, the_parents_death_is_the_daemons)
{
	char command[128];
	pid_t daemons[2];

	/* Orphans are reaped here, so that they can be seen to be gone. */
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	end_parent_by(SIGKILL, daemons);
	waitpid(daemons[0], NULL, 0);
	waitpid(daemons[1], NULL, 0);
	cr_expect(is_gone(daemons[0]) && is_gone(daemons[1]));
	snprintf(command, sizeof(command), "rm -r '%s'", home);
	cr_expect_eq(system(command), 0);
}

Test(launch, signals_are_given_back)
{
	sigset_t before, after;
	int rc;
	struct launch *l;

	sigprocmask(SIG_SETMASK, NULL, &before);
	l = start("", 10 * SECOND_NS, &rc);
	cr_assert_eq(rc, 0, "%s", err.text);
	launch_stop(l);
	sigprocmask(SIG_SETMASK, NULL, &after);
	cr_expect_eq(sigismember(&before, SIGTERM), sigismember(&after, SIGTERM));
	remove_daemon();
}

Test(launch, usage_is_measured)
{
	struct launch_usage usage = {0};
	int rc;
	struct launch *l = start("", 10 * SECOND_NS, &rc);

	cr_assert_eq(rc, 0, "%s", err.text);
	cr_assert_eq(launch_usage(l, 0, &usage), 0);
	cr_expect_gt(usage.rss_bytes, 1u << 20);
	cr_expect_lt(usage.cpu_ns, 10 * SECOND_NS);
	launch_stop(l);
	remove_daemon();
}

Test(launch, a_missing_program_is_named)
{
	char path[256];

	setenv("RAILYARD_DAEMON", "/nonexistent/railyardd", 1);
	cr_expect_eq(launch_find_daemon(path, sizeof(path), &err), -ENOENT);
	cr_expect(strstr(err.text, "/nonexistent/railyardd") != NULL);
}

Test(launch, lcores_get_cpus_of_their_own_or_share_all)
{
	static const int cpus[] = {0, 1, 4, 5, 6, 7};
	char text[64];

	cr_assert_eq(launch_lcores(2, 0, 6, cpus, 6, text, sizeof(text)), 0);
	cr_expect_str_eq(text, "0@0,1@1,2@4");
	cr_assert_eq(launch_lcores(2, 3, 6, cpus, 6, text, sizeof(text)), 0);
	cr_expect_str_eq(text, "0@5,1@6,2@7");
	cr_assert_eq(launch_lcores(2, 0, 6, cpus, 2, text, sizeof(text)), 0);
	cr_expect_str_eq(text, "(0-2)@(0,1)");
	cr_assert_eq(launch_lcores(8, 0, 9, cpus, 1, text, sizeof(text)), 0);
	cr_expect_str_eq(text, "(0-8)@(0)");
	cr_expect_eq(launch_lcores(2, 0, 6, cpus, 6, text, 8), -ENOSPC);
}
