/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A client that stays attached while devices come and go, and then uses its arenas.
 *
 * usage: kept_client SOCKET KEY GO
 *
 * Attaches, says "attached" and waits for the file GO. Then puts an object of its own under KEY out of its put arena,
 * reads it into its read arena, compares, and prints as JSON which rails carried the read. Exit codes: 0 every byte was
 * right and verified, 1 not, or a step failed, 2 usage.
 */
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <railyard/railyard.h>

#define OBJECT_BYTES (16u << 20)
#define STRIPE_BYTES (1u << 20)
#define ARENA_BYTES (32u << 20)
#define DEADLINE_NS 60000000000ull
#define LIMIT_MS 240000

static uint8_t data[OBJECT_BYTES], back[OBJECT_BYTES];

static int fail(const char *what, enum ry_status status, const char *cause);
static bool await_file(const char *path);
static int use(struct ry_client *c, const char *key);

int main(int argc, char **argv)
{
	char cause[RY_CAUSE_MAX_BYTES];
	struct ry_attach_opts opts = {.cause = cause,
		.cause_bytes = sizeof(cause),
		.read_arena_bytes = ARENA_BYTES,
		.put_arena_bytes = ARENA_BYTES};
	struct ry_client *c;
	enum ry_status status;
	int rc;

	if (argc != 4)
		return 2;
	opts.socket_path = argv[1];
	status = ry_attach(&opts, &c);
	if (status != RY_OK)
		return fail("attach", status, cause);
	puts("attached");
	fflush(stdout);
	if (!await_file(argv[3]))
		return fail("no file", RY_ERR_TIMEOUT, argv[3]);
	rc = use(c, argv[2]);
	ry_detach(c);
	return rc;
}

static int fail(const char *what, enum ry_status status, const char *cause)
{
	fprintf(stderr, "kept_client: %s: %s: %s\n", what, ry_status_name(status), cause);
	return 1;
}

static bool await_file(const char *path)
{
	struct timespec pause = {.tv_nsec = 10000000};

	for (unsigned ms = 0; ms < LIMIT_MS; ms += 10) {
		if (access(path, F_OK) == 0)
			return true;
		nanosleep(&pause, NULL);
	}
	return false;
}

static int use(struct ry_client *c, const char *key)
{
	const struct ry_put_opts put = {.deadline_ns = DEADLINE_NS, .stripe_bytes = STRIPE_BYTES};
	const struct ry_read_opts read = {.length = RY_TO_END, .deadline_ns = DEADLINE_NS, .flags = RY_F_FAIL};
	uint16_t key_bytes = (uint16_t)strlen(key);
	struct ry_read_result result = {0};
	uint64_t n_bytes = 0;
	enum ry_status status;
	bool is_same;

	for (uint32_t i = 0; i < OBJECT_BYTES; i++)
		data[i] = (uint8_t)((i ^ key_bytes) * 2654435761u >> 24);
	status = ry_put(c, key, key_bytes, data, OBJECT_BYTES, &put, NULL);
	if (status != RY_OK)
		return fail("put", status, ry_last_cause(c));
	status = ry_read_copy(c, key, key_bytes, &read, back, OBJECT_BYTES, &n_bytes, &result);
	if (status != RY_OK)
		return fail("read", status, ry_last_cause(c));
	is_same = n_bytes == OBJECT_BYTES && memcmp(data, back, OBJECT_BYTES) == 0;
	printf("{\"same\": %s, \"verified\": %s, \"rails\": [", is_same ? "true" : "false",
		result.is_verified ? "true" : "false");
	for (unsigned i = 0, n = 0; i < result.stats.n_rails; i++) {
		if (result.stats.rails[i].bytes)
			printf("%s\"%s\"", n++ ? ", " : "", result.stats.rails[i].name);
	}
	puts("]}");
	return !is_same || !result.is_verified;
}
