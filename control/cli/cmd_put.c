/* SPDX-License-Identifier: BSD-3-Clause */
/* put: a file, or standard input, becomes an object, in batches of stripes. Readers see it all at once, or not at all.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"

static int open_source(const char *path, int *fd, uint64_t *size_bytes);
static int transfer(struct cli *c, struct ry_client *client, int fd, uint64_t size_bytes);
static enum ry_status pump(struct ry_put *put, int fd, uint64_t left_bytes, struct progress *p, int *read_errno);
static int report(const struct cli *c, const struct ry_put_result *result, double seconds);

int cmd_put(struct cli *c)
{
	const char *path = c->args.n == 2 ? c->args.values[1] : "-", *key;
	struct ry_client *client;
	uint64_t size_bytes = 0;
	uint16_t key_bytes;
	int rc, fd = -1;

	if (!cli_key(c, &key, &key_bytes))
		return CLI_USAGE;
	if (c->stripe_bytes > RY_STRIPE_MAX_BYTES)
		return cli_usage(c, "--stripe is at most 1 GiB");
	rc = open_source(path, &fd, &size_bytes);
	if (rc < 0)
		return cli_fail(c, RY_ERR_INVALID, "cannot read %s: %s", path, strerror(-rc));
	rc = cli_attach(c, CLI_ARENA_MOST_BYTES, &client);
	if (rc == CLI_OK) {
		rc = transfer(c, client, fd, size_bytes);
		ry_detach(client);
	}
	if (fd != STDIN_FILENO)
		close(fd);
	return rc;
}

static int open_source(const char *path, int *fd, uint64_t *size_bytes)
{
	struct stat st;
	int f = strcmp(path, "-") == 0 ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);

	if (f < 0 || fstat(f, &st) < 0)
		return -errno;
	if (S_ISDIR(st.st_mode)) {
		close(f);
		return -EISDIR;
	}
	*fd = f;
	/* Standard input may be a file that somebody has read a part of. */
	*size_bytes = S_ISREG(st.st_mode) && f != STDIN_FILENO ? (uint64_t)st.st_size : RY_SIZE_UNKNOWN;
	return 0;
}

static int transfer(struct cli *c, struct ry_client *client, int fd, uint64_t size_bytes)
{
	struct ry_put_opts opts = {.ttl_ns = c->ttl_ns,
		.deadline_ns = c->deadline_ns,
		.size_bytes = size_bytes,
		.stripe_bytes = (uint32_t)c->stripe_bytes,
		.flags = c->want_if_absent ? RY_F_IF_ABSENT : 0};
	const char *key = c->args.values[0];
	struct ry_put_result result = {0};
	enum ry_status status, ended;
	struct progress progress;
	struct ry_put *put;
	int read_errno = 0;
	double seconds;

	status = ry_put_open(client, key, (uint16_t)strlen(key), &opts, &put);
	if (status != RY_OK)
		return cli_fail(c, status, "%s", ry_last_cause(client));
	progress_start(&progress, c, key, size_bytes);
	status = pump(put, fd, size_bytes, &progress, &read_errno);
	ended = ry_put_close(put, status == RY_OK && read_errno == 0, &result);
	seconds = progress_end(&progress);
	if (read_errno != 0)
		return cli_fail(c, RY_ERR_INVALID, "%s: nothing was put",
			read_errno == ENODATA ? "the file became shorter while it was read" : strerror(read_errno));
	if (status != RY_OK || ended != RY_OK)
		return cli_fail(c, status != RY_OK ? status : ended, "%s", ry_last_cause(client));
	return report(c, &result, seconds);
}

/* Reads straight into the put arena. A file that grows meanwhile is put as long as it was. */
static enum ry_status pump(struct ry_put *put, int fd, uint64_t left_bytes, struct progress *p, int *read_errno)
{
	while (left_bytes > 0) {
		enum ry_status status;
		uint64_t room_bytes;
		void *space;
		ssize_t n;

		status = ry_put_space(put, &space, &room_bytes);
		if (status != RY_OK)
			return status;
		n = read(fd, space, room_bytes < left_bytes ? room_bytes : left_bytes);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			*read_errno = errno;
		if (n == 0 && left_bytes != RY_SIZE_UNKNOWN)
			*read_errno = ENODATA;
		if (n <= 0)
			return RY_OK;
		status = ry_put_wrote(put, (uint64_t)n);
		if (status != RY_OK)
			return status;
		left_bytes -= left_bytes == RY_SIZE_UNKNOWN ? 0 : (uint64_t)n;
		progress_add(p, (uint64_t)n);
	}
	return RY_OK;
}

static int report(const struct cli *c, const struct ry_put_result *result, double seconds)
{
	const char *key = c->args.values[0];

	return output_print(
		c, json_pack("{s:o, s:I, s:I, s:f, s:f}", "key", output_key(key, (uint16_t)strlen(key)), "bytes",
			   (json_int_t)result->bytes, "generation", (json_int_t)result->generation, "seconds", seconds,
			   "bytes_per_s", seconds > 0 ? (double)result->bytes / seconds : 0.0));
}
