/* SPDX-License-Identifier: BSD-3-Clause */
#include "fake_daemon.h"

#include <criterion/criterion.h>

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static char cause[RY_CAUSE_MAX_BYTES];

static enum ry_status try(const struct fake_opts *opts)
{
	struct fake *f = fake_start(opts);
	struct ry_client *c = NULL;
	enum ry_status status = fake_attach(f, NULL, cause, &c);

	cr_assert_eq(c == NULL, status != RY_OK);
	ry_detach(c);
	fake_stop(f);
	return status;
}

static int n_open_files(void)
{
	DIR *d = opendir("/proc/self/fd");
	int n = 0;

	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

Test(client_attach, agrees_and_tells_what_was_agreed)
{
	struct fake *f = fake_start(NULL);
	struct ry_attach_opts opts = {.read_arena_bytes = 12345, .ring_entries = 32};
	struct ry_client_info info;
	struct ry_client *c;

	cr_assert_eq(fake_attach(f, &opts, cause, &c), RY_OK, "%s", cause);
	cr_assert_eq(f->asked_version, 1);
	cr_assert_eq(f->asked_read_bytes, 12345);
	cr_assert_eq(f->asked_entries, 32);
	ry_client_get_info(c, &info);
	cr_assert_eq(info.client_id, 7);
	cr_assert_eq(info.max_in_flight, 8);
	cr_assert_eq(info.read_arena_bytes, 1u << 20);
	cr_assert_str_eq(info.node, "n1");
	cr_assert_str_eq(info.daemon_version, "9.8.7");
	cr_assert_str_eq(ry_last_cause(c), "");
	ry_detach(c);
	fake_stop(f);
}

Test(client_attach, takes_the_descriptors_with_the_first_byte_of_a_reply_in_pieces)
{
	cr_assert_eq(try(&(struct fake_opts){.want_pieces = true}), RY_OK, "%s", cause);
}

Test(client_attach, refuses_another_protocol_version)
{
	cr_assert_eq(try(&(struct fake_opts){.version = 2}), RY_ERR_VERSION);
	cr_assert(strstr(cause, "version 2"), "%s", cause);
}

Test(client_attach, refuses_another_abi_major)
{
	cr_assert_eq(try(&(struct fake_opts){.abi_major = RY_RING_ABI_MAJOR + 1}), RY_ERR_VERSION);
	cr_assert(strstr(cause, "ABI 2."), "%s", cause);
}

Test(client_attach, refuses_a_newer_abi_minor)
{
	cr_assert_eq(try(&(struct fake_opts){.abi_minor = RY_RING_ABI_MINOR + 1}), RY_ERR_VERSION);
}

Test(client_attach, refuses_a_reply_that_is_no_json)
{
	cr_assert_eq(try(&(struct fake_opts){.want_garbage = true}), RY_ERR_PROTOCOL);
}

Test(client_attach, refuses_a_ring_whose_slots_lie_outside)
{
	cr_assert_eq(try(&(struct fake_opts){.want_bad_slots = true}), RY_ERR_PROTOCOL);
	cr_assert(strstr(cause, "outside"), "%s", cause);
}

Test(client_attach, refuses_four_and_six_descriptors)
{
	int before = n_open_files();

	cr_assert_eq(try(&(struct fake_opts){.n_fds = 4}), RY_ERR_PROTOCOL);
	cr_assert_eq(try(&(struct fake_opts){.n_fds = 6}), RY_ERR_PROTOCOL);
	cr_assert_eq(n_open_files(), before, "descriptors leaked");
}

Test(client_attach, passes_on_why_the_daemon_refuses)
{
	cr_assert_eq(try(&(struct fake_opts){.refusal = "BUDGET"}), RY_ERR_BUDGET);
	cr_assert_str_eq(cause, "attach: no room");
	cr_assert_eq(try(&(struct fake_opts){.refusal = "BUDGET", .why = "attach: no room"}), RY_ERR_BUDGET);
	cr_assert_str_eq(cause, "attach: no room", "once");
	cr_assert_eq(try(&(struct fake_opts){.refusal = "DENIED"}), RY_ERR_DENIED);
	cr_assert_eq(try(&(struct fake_opts){.refusal = "a word from the future"}), RY_ERR_PROTOCOL);
}

Test(client_attach, gives_up_on_a_silent_daemon)
{
	struct fake *f = fake_start(&(struct fake_opts){.is_silent = true});
	struct ry_attach_opts opts = {.timeout_ns = 1000000};
	struct ry_client *c;

	cr_assert_eq(fake_attach(f, &opts, cause, &c), RY_ERR_TIMEOUT);
	fake_stop(f);
}

/* A daemon that answered is alive; large arenas take their time. A time-out that was asked for holds. */
Test(client_attach, waits_longer_for_memory_than_for_an_answer)
{
	struct fake *f = fake_start(&(struct fake_opts){.attach_delay_s = 6});
	struct ry_attach_opts opts = {.socket_path = f->path, .cause = cause, .cause_bytes = sizeof(cause)};
	struct ry_client *c;

	cr_assert_eq(ry_attach(&opts, &c), RY_OK, "%s", cause);
	pthread_join(f->handshake_thread, NULL);
	ry_detach(c);
	fake_stop(f);
	f = fake_start(&(struct fake_opts){.attach_delay_s = 1});
	opts = (struct ry_attach_opts){.timeout_ns = 100000000};
	cr_assert_eq(fake_attach(f, &opts, cause, &c), RY_ERR_TIMEOUT);
	fake_stop(f);
}

Test(client_attach, says_what_is_wrong_with_the_socket)
{
	char long_path[200];
	struct ry_attach_opts opts = {
		.socket_path = "/nonexistent/socket", .cause = cause, .cause_bytes = sizeof(cause)};
	struct ry_client *c;

	cr_assert_eq(ry_attach(&opts, &c), RY_ERR_DETACHED);
	cr_assert(strstr(cause, "/nonexistent/socket") && strstr(cause, "railyardd"), "%s", cause);
	memset(long_path, 'a', sizeof(long_path));
	long_path[sizeof(long_path) - 1] = '\0';
	opts.socket_path = long_path;
	cr_assert_eq(ry_attach(&opts, &c), RY_ERR_INVALID);
	opts.ring_entries = RY_RING_ENTRIES_MAX + 1;
	cr_assert_eq(ry_attach(&opts, &c), RY_ERR_INVALID);
	cr_assert(strstr(cause, "ring_entries"), "%s", cause);
}

Test(client_attach, finds_the_socket_by_environment)
{
	struct fake *f = fake_start(NULL);
	struct ry_client *c;

	setenv("RAILYARD_SOCKET", f->path, 1);
	cr_assert_eq(ry_attach(NULL, &c), RY_OK);
	pthread_join(f->handshake_thread, NULL);
	ry_detach(c);
	fake_stop(f);
}

Test(client_attach, leaves_nothing_open)
{
	int before = n_open_files();

	cr_assert_eq(try(NULL), RY_OK);
	cr_assert_eq(try(&(struct fake_opts){.want_bad_slots = true}), RY_ERR_PROTOCOL);
	cr_assert_eq(n_open_files(), before);
}

/* Returns the number of the first check that failed. */
static int in_child(struct ry_client *c)
{
	struct ry_request r = {.op = RY_OP_LOOKUP, .key = "k", .key_bytes = 1};
	struct ry_completion done;
	struct ry_object object;

	if (ry_lookup(c, "k", 1, 0, &object) != RY_ERR_DETACHED)
		return 1;
	if (!strstr(ry_last_cause(c), "fork"))
		return 2;
	if (ry_submit(c, &r, 1) != 0 || r.status != RY_ERR_DETACHED)
		return 3;
	if (ry_reap(c, &done, 1) != 0 || ry_wait(c, 0) != RY_ERR_DETACHED || ry_event_arm(c))
		return 4;
	ry_detach(c);
	return 0;
}

Test(client_attach, a_forked_child_is_detached_and_the_parent_is_not)
{
	struct fake *f = fake_start(NULL);
	struct ry_client *c;
	struct ry_object object;
	pid_t child;
	int how;

	fake_add(f, "k", 5, 65536);
	cr_assert_eq(fake_attach(f, NULL, cause, &c), RY_OK);
	child = fork();
	if (child == 0)
		_exit(in_child(c));
	cr_assert_eq(waitpid(child, &how, 0), child);
	cr_assert(WIFEXITED(how) && WEXITSTATUS(how) == 0, "child: check %d", WEXITSTATUS(how));
	fake_serve(f);
	cr_assert_eq(ry_lookup(c, "k", 1, 0, &object), RY_OK);
	cr_assert_eq(object.size_bytes, 5);
	ry_detach(c);
	fake_stop(f);
}

Test(client_attach, the_example_runs)
{
	struct fake *f = fake_start(&(struct fake_opts){.read_arena_bytes = 16u << 20, .put_arena_bytes = 16u << 20});
	const char *example = getenv("READ_OBJECT");
	char line[512], out[256] = "";
	FILE *p;

	cr_assert(example, "READ_OBJECT names the example's program");
	fake_serve(f);
	snprintf(line, sizeof(line), "%s %s", example, f->path);
	p = popen(line, "r");
	cr_assert(fgets(out, sizeof(out), p));
	cr_assert_str_eq(out, "example: 8388608 of 8388608 bytes are the same, generation 1, verified\n");
	cr_assert(fgets(out, sizeof(out), p));
	cr_assert_str_eq(out, "  rail0: 4194304 bytes\n");
	while (fgets(out, sizeof(out), p))
		;
	cr_assert_eq(pclose(p), 0);
	pthread_join(f->handshake_thread, NULL);
	fake_stop(f);
}
