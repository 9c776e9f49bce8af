/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * get: an object, or a range of it, to a file or to standard output, in batches of stripes.
 *
 * A file appears under its name only when every byte was read and verified; until then it is FILE.part, which any
 * failure, SIGINT or SIGTERM removes.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"

struct target {
	const char *path; /* what the user named */
	char part_path[4096 + 8];
	bool is_renamed; /* a regular file: written as .part first */
	int fd;
	int write_errno;
	struct progress progress;
};

static int open_target(struct target *t, const char *path);
static void close_target(struct target *t, enum ry_status status);
static void remove_on_signal(const char *path);
static void on_signal(int signal_number);
static bool write_bytes(void *arg, const void *data, uint64_t bytes, uint64_t offset);
static int transfer(struct cli *c, struct ry_client *client, struct target *t);
static int report(const struct cli *c, const struct target *t, const struct ry_read_result *result, double seconds);

/* The process' one part file, for the signal handler. */
static const char *volatile doomed_path;

int cmd_get(struct cli *c)
{
	const char *path = c->args.n == 2 ? c->args.values[1] : "-", *key;
	struct target t = {.fd = -1};
	struct ry_client *client;
	uint16_t key_bytes;
	int rc;

	if (!cli_key(c, &key, &key_bytes))
		return CLI_USAGE;
	if (c->want_json && strcmp(path, "-") == 0)
		return cli_usage(c, "--json and the object cannot both go to standard output: name a file");
	rc = cli_attach(c, CLI_ARENA_MOST_BYTES, &client);
	if (rc != CLI_OK)
		return rc;
	rc = open_target(&t, path);
	if (rc < 0)
		rc = cli_fail(
			c, RY_ERR_INVALID, "cannot create %s: %s", t.is_renamed ? t.part_path : path, strerror(-rc));
	else
		rc = transfer(c, client, &t);
	ry_detach(client);
	return rc;
}

static int open_target(struct target *t, const char *path)
{
	struct stat st;

	t->path = path;
	if (strcmp(path, "-") == 0) {
		t->fd = STDOUT_FILENO;
		return 0;
	}
	/* A pipe or a device cannot be replaced. */
	t->is_renamed = stat(path, &st) < 0 || S_ISREG(st.st_mode);
	if ((size_t)snprintf(t->part_path, sizeof(t->part_path), "%s.part", path) >= sizeof(t->part_path))
		return -ENAMETOOLONG;
	if (t->is_renamed)
		t->fd = open(t->part_path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0666);
	else
		t->fd = open(path, O_WRONLY | O_CLOEXEC);
	if (t->fd < 0)
		return -errno;
	if (t->is_renamed)
		remove_on_signal(t->part_path);
	return 0;
}

/* A signal that was ignored when we were started (nohup) stays so. */
static void remove_on_signal(const char *path)
{
	static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
	struct sigaction sa = {.sa_handler = path != NULL ? on_signal : SIG_DFL, .sa_flags = (int)SA_RESETHAND}, old;
	size_t i;

	doomed_path = path;
	for (i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
		if (sigaction(signals[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
			sigaction(signals[i], &sa, NULL);
	}
}

static void on_signal(int signal_number)
{
	if (doomed_path != NULL)
		unlink(doomed_path);
	/* SA_RESETHAND restored the default action, which ends us as soon as this handler returns. */
	raise(signal_number);
}

static int transfer(struct cli *c, struct ry_client *client, struct target *t)
{
	struct ry_read_opts opts = {.offset = c->offset,
		.length = c->length,
		.deadline_ns = c->deadline_ns,
		.flags = (c->want_one_rail ? RY_F_ONE_RAIL : 0u) | (c->want_failover ? RY_F_FAILOVER : 0u) |
			 (c->want_fail ? RY_F_FAIL : 0u)};
	uint16_t key_bytes = (uint16_t)strlen(c->args.values[0]);
	struct ry_read_result result;
	struct ry_object object;
	enum ry_status status;
	double seconds = 0;

	status = ry_lookup(client, c->args.values[0], key_bytes, c->deadline_ns, &object);
	if (status == RY_OK) {
		uint64_t rest = object.size_bytes > c->offset ? object.size_bytes - c->offset : 0;

		/* What was looked up is what is read, or it fails as stale. */
		opts.generation = object.generation;
		progress_start(&t->progress, c, c->args.values[0], c->length < rest ? c->length : rest);
		status = ry_stream_read(client, c->args.values[0], key_bytes, &opts, 0, write_bytes, t, &result);
		seconds = progress_end(&t->progress);
	}
	close_target(t, status);
	if (t->write_errno != 0)
		return cli_fail(c, RY_ERR_NO_SPACE, "cannot write %s: %s", t->path, strerror(t->write_errno));
	if (status != RY_OK)
		return cli_fail(c, status, "%s", ry_last_cause(client));
	return report(c, t, &result, seconds);
}

static bool write_bytes(void *arg, const void *data, uint64_t bytes, uint64_t offset)
{
	struct target *t = arg;
	const uint8_t *p = data;

	while (bytes > 0) {
		ssize_t n = write(t->fd, p, bytes);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			t->write_errno = errno;
			return false;
		}
		p += n;
		bytes -= (uint64_t)n;
		progress_add(&t->progress, (uint64_t)n);
	}
	return true;
}

static void close_target(struct target *t, enum ry_status status)
{
	if (t->fd != STDOUT_FILENO && close(t->fd) < 0 && status == RY_OK)
		t->write_errno = errno;
	if (!t->is_renamed)
		return;
	if (status == RY_OK && t->write_errno == 0 && rename(t->part_path, t->path) < 0)
		t->write_errno = errno;
	if (status != RY_OK || t->write_errno != 0)
		unlink(t->part_path);
	remove_on_signal(NULL);
}

static int report(const struct cli *c, const struct target *t, const struct ry_read_result *result, double seconds)
{
	double rate = seconds > 0 ? (double)result->bytes / seconds : 0;

	if (t->fd == STDOUT_FILENO)
		return CLI_OK;
	return output_print(
		c, json_pack("{s:o, s:s, s:I, s:I, s:b, s:f, s:f, s:s, s:s, s:I, s:o}", "key",
			   output_key(c->args.values[0], (uint16_t)strlen(c->args.values[0])), "file", t->path, "bytes",
			   (json_int_t)result->bytes, "generation", (json_int_t)result->generation, "verified",
			   result->is_verified, "seconds", seconds, "bytes_per_s", rate, "bottleneck",
			   output_class(result->stats.class_ref), "class", output_class(result->stats.class_own),
			   "class_share_permille", (json_int_t)result->stats.class_share_permille, "rails",
			   output_rails(&result->stats)));
}
