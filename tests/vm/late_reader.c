/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reuses the memory of a read that failed at once, and watches that nothing of that read lands in it.
 *
 * usage: late_reader SOCKET LATE_KEY PATTERN_KEY DEADLINE_MS DIR
 *
 * Reads LATE_KEY once, so that its descriptor is known, says "warm", and waits for the file DIR/go. Reads it again with
 * that deadline, which must fail; then PATTERN_KEY, an object of the byte 0xa5 as large as the whole arena, until the
 * daemon has the memory for it; says "held" and watches every byte until DIR/stop is there. Last it prints counts as
 * JSON. Exit codes: 0 the pattern was never touched, 1 it was, or a step failed, 2 usage.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <railyard/railyard.h>

#define ARENA_BYTES (1u << 20)
#define PATTERN 0xa5
#define LIMIT_MS 120000
#define LOOKS_MAX 100000u

static enum ry_status read_key(struct ry_client *c, const char *key, uint64_t deadline_ns, struct ry_lease *lease);
static bool has_file(const char *dir, const char *name);
static bool await_file(const char *dir, const char *name);
static void pause_ms(unsigned ms);
static bool hold_pattern(struct ry_client *c, const char *key, struct ry_lease *lease, uint32_t *n_tries);
static uint64_t count_wrong(const struct ry_lease *lease);

int main(int argc, char **argv)
{
	char cause[RY_CAUSE_MAX_BYTES];
	struct ry_attach_opts opts = {.cause = cause,
		.cause_bytes = sizeof(cause),
		.read_arena_bytes = ARENA_BYTES,
		.put_arena_bytes = ARENA_BYTES};
	uint64_t n_wrong = 0, n_looks = 0;
	struct ry_client *c;
	struct ry_lease lease;
	enum ry_status late;
	uint32_t n_tries = 0;
	bool is_last;

	if (argc != 6)
		return 2;
	opts.socket_path = argv[1];
	if (ry_attach(&opts, &c) != RY_OK) {
		fprintf(stderr, "late_reader: attach: %s\n", cause);
		return 1;
	}
	if (read_key(c, argv[2], 20000000000ull, &lease) != RY_OK) {
		fprintf(stderr, "late_reader: %s: %s\n", argv[2], ry_last_cause(c));
		return 1;
	}
	ry_lease_release(c, &lease);
	puts("warm");
	fflush(stdout);
	if (!await_file(argv[5], "go"))
		return 1;
	late = read_key(c, argv[2], strtoull(argv[4], NULL, 0) * 1000000ull, &lease);
	printf("late: %s: %s\n", ry_status_name(late), ry_last_cause(c));
	fflush(stdout);
	if (late == RY_OK || !hold_pattern(c, argv[3], &lease, &n_tries))
		return 1;
	puts("held");
	fflush(stdout);
	do {
		is_last = has_file(argv[5], "stop");
		n_wrong += count_wrong(&lease);
		n_looks++;
	} while (!is_last && !n_wrong && n_looks < LOOKS_MAX);
	printf("{\"late\": \"%s\", \"tries\": %u, \"looks\": %llu, \"wrong\": %llu}\n", ry_status_name(late), n_tries,
		(unsigned long long)n_looks, (unsigned long long)n_wrong);
	ry_lease_release(c, &lease);
	ry_detach(c);
	return n_wrong != 0;
}

static enum ry_status read_key(struct ry_client *c, const char *key, uint64_t deadline_ns, struct ry_lease *lease)
{
	struct ry_read_opts opts = {.length = RY_TO_END, .deadline_ns = deadline_ns, .flags = RY_F_FAIL};

	return ry_read(c, key, (uint16_t)strlen(key), &opts, lease, NULL);
}

static bool has_file(const char *dir, const char *name)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	return access(path, F_OK) == 0;
}

static bool await_file(const char *dir, const char *name)
{
	for (unsigned ms = 0; ms < LIMIT_MS; ms += 5) {
		if (has_file(dir, name))
			return true;
		pause_ms(5);
	}
	fprintf(stderr, "late_reader: no file %s\n", name);
	return false;
}

static void pause_ms(unsigned ms)
{
	struct timespec t = {.tv_nsec = (long)ms * 1000000};

	nanosleep(&t, NULL);
}

/* The whole arena is still charged to the read that failed, until its memory is safe. */
static bool hold_pattern(struct ry_client *c, const char *key, struct ry_lease *lease, uint32_t *n_tries)
{
	enum ry_status status = RY_ERR_BUDGET;

	for (unsigned ms = 0; ms < LIMIT_MS && status != RY_OK; ms += 2) {
		status = read_key(c, key, 20000000000ull, lease);
		++*n_tries;
		pause_ms(2);
	}
	if (status != RY_OK)
		fprintf(stderr, "late_reader: %s: %s\n", key, ry_last_cause(c));
	return status == RY_OK && lease->bytes == ARENA_BYTES && !count_wrong(lease);
}

static uint64_t count_wrong(const struct ry_lease *lease)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < lease->n_spans; i++) {
		for (uint64_t k = 0; k < lease->spans[i].bytes; k++)
			n += lease->spans[i].data[k] != PATTERN;
	}
	return n;
}
