/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Cancels reads at random times beside 99 others, which must all come to their good end.
 *
 * usage: reads_cancelled SOCKET KEY FILE N_CANCELS SEED
 *
 * FILE is what KEY was put from. A long read is submitted, cancelled after a random part of the time that such a read
 * takes, and the next follows, N_CANCELS times; meanwhile 99 short reads of random ranges are always in flight, each
 * compared with the file. Prints counts as JSON. Exit codes: 0 every short read was good, 1 not, 2 usage.
 */
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <railyard/railyard.h>

#define N_SHORT 99u
#define SHORT_MAX_BYTES (48u << 10)
#define LONG_BYTES (6u << 20)
#define LIMIT_NS 240000000000ull /* of the whole run */

static int long_one; /* its address marks the long read's completion */

struct run {
	struct ry_client *client;
	const char *key;
	const uint8_t *file;
	uint64_t file_bytes;
	uint64_t random;
	uint64_t offset[N_SHORT], length[N_SHORT];
	uint64_t ticket, submitted_ns, usual_ns; /* of the long read */
	uint32_t n_left, n_cancelled, n_finished, n_long_bad;
	uint32_t n_short, n_short_bad, n_in_flight;
	bool is_long_out, is_cancel_sent;
	char cause[RY_CAUSE_MAX_BYTES + 32];
};

static bool open_file(struct run *r, const char *path);
static bool run(struct run *r);
static bool submit_short(struct run *r, uint32_t i);
static bool submit_long(struct run *r);
static void reap(struct run *r);
static void take_long(struct run *r, const struct ry_completion *c);
static void take_short(struct run *r, struct ry_completion *c, uint32_t i);
static bool is_same(const struct ry_lease *lease, const uint8_t *want, uint64_t bytes);
static uint64_t draw(struct run *r, uint64_t below);
static uint64_t now(void);

int main(int argc, char **argv)
{
	struct run r = {0};
	struct ry_attach_opts opts = {.cause = r.cause,
		.cause_bytes = sizeof(r.cause),
		.read_arena_bytes = 64u << 20,
		.put_arena_bytes = 1u << 20};
	bool good;

	if (argc != 6 || !open_file(&r, argv[3]))
		return 2;
	opts.socket_path = argv[1];
	r.key = argv[2];
	r.n_left = (uint32_t)atoi(argv[4]);
	r.random = strtoull(argv[5], NULL, 0) * 2 + 1;
	if (ry_attach(&opts, &r.client) != RY_OK) {
		fprintf(stderr, "reads_cancelled: attach: %s\n", r.cause);
		return 1;
	}
	good = run(&r);
	printf("{\"cancelled\": %u, \"finished\": %u, \"long_bad\": %u, \"short\": %u, \"short_bad\": %u, "
	       "\"in_flight\": %u, "
	       "\"usual_us\": %llu}\n",
		r.n_cancelled, r.n_finished, r.n_long_bad, r.n_short, r.n_short_bad, r.n_in_flight,
		(unsigned long long)r.usual_ns / 1000);
	if (!good)
		fprintf(stderr, "reads_cancelled: %s\n", r.cause);
	ry_detach(r.client);
	return good ? 0 : 1;
}

static bool open_file(struct run *r, const char *path)
{
	int fd = open(path, O_RDONLY);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0 || st.st_size < 2 * (off_t)LONG_BYTES)
		return false;
	r->file_bytes = (uint64_t)st.st_size;
	r->file = mmap(NULL, r->file_bytes, PROT_READ, MAP_SHARED, fd, 0);
	close(fd);
	return r->file != MAP_FAILED;
}

/* The first long read is left alone: it tells how long one takes. */
static bool run(struct run *r)
{
	uint64_t end_ns = now() + LIMIT_NS, cancel_ns = UINT64_MAX;

	for (uint32_t i = 0; i < N_SHORT; i++)
		if (!submit_short(r, i))
			return false;
	while ((r->n_left || r->n_in_flight) && now() < end_ns) {
		if (!r->is_long_out && r->n_left) {
			if (!submit_long(r))
				return false;
			cancel_ns = r->usual_ns ? r->submitted_ns + draw(r, r->usual_ns) : UINT64_MAX;
		}
		if (r->is_long_out && !r->is_cancel_sent && now() >= cancel_ns) {
			ry_cancel(r->client, r->ticket);
			r->is_cancel_sent = true;
		}
		ry_wait(r->client, 200000);
		reap(r);
	}
	if (r->n_in_flight)
		snprintf(r->cause, sizeof(r->cause), "%u reads still in flight at the end", r->n_in_flight);
	return !r->n_in_flight && !r->n_short_bad && !r->n_long_bad;
}

static bool submit_short(struct run *r, uint32_t i)
{
	struct ry_request q = {
		.op = RY_OP_READ, .key = r->key, .key_bytes = (uint16_t)strlen(r->key), .user = &r->offset[i]};

	q.length = r->length[i] = 1 + draw(r, SHORT_MAX_BYTES);
	q.offset = r->offset[i] = draw(r, r->file_bytes - q.length);
	if (ry_submit(r->client, &q, 1) == 1) {
		r->n_in_flight++;
		return true;
	}
	snprintf(r->cause, sizeof(r->cause), "a short read was not taken: %s", ry_last_cause(r->client));
	return false;
}

static bool submit_long(struct run *r)
{
	struct ry_request q = {.op = RY_OP_READ,
		.key = r->key,
		.key_bytes = (uint16_t)strlen(r->key),
		.user = &long_one,
		.offset = draw(r, r->file_bytes - LONG_BYTES),
		.length = LONG_BYTES};

	if (ry_submit(r->client, &q, 1) != 1) {
		snprintf(r->cause, sizeof(r->cause), "a long read was not taken: %s", ry_last_cause(r->client));
		return false;
	}
	r->ticket = q.ticket;
	r->submitted_ns = now();
	r->is_long_out = true;
	r->is_cancel_sent = false;
	r->n_in_flight++;
	return true;
}

static void reap(struct run *r)
{
	static struct ry_completion c[16];
	uint32_t n;

	while ((n = ry_reap(r->client, c, 16)) > 0) {
		for (uint32_t k = 0; k < n; k++) {
			r->n_in_flight--;
			if (c[k].user == &long_one)
				take_long(r, &c[k]);
			else
				take_short(r, &c[k], (uint32_t)((uint64_t *)c[k].user - r->offset));
			ry_lease_release(r->client, &c[k].lease);
		}
	}
}

static void take_long(struct run *r, const struct ry_completion *c)
{
	r->is_long_out = false;
	if (c->status == RY_OK && !r->usual_ns) {
		r->usual_ns = now() - r->submitted_ns;
		return;
	}
	r->n_left--;
	if (c->status == RY_ERR_CANCELLED) {
		r->n_cancelled++;
	} else if (c->status == RY_OK) {
		r->n_finished++;
	} else {
		r->n_long_bad++;
		snprintf(r->cause, sizeof(r->cause), "long read: %s: %s", ry_status_name(c->status), c->cause);
	}
}

static void take_short(struct run *r, struct ry_completion *c, uint32_t i)
{
	r->n_short++;
	if (c->status != RY_OK || c->bytes != r->length[i] || !c->is_verified) {
		r->n_short_bad++;
		snprintf(r->cause, sizeof(r->cause), "short read: %s: %s", ry_status_name(c->status), c->cause);
	} else if (!is_same(&c->lease, r->file + r->offset[i], r->length[i])) {
		r->n_short_bad++;
		snprintf(r->cause, sizeof(r->cause), "short read: other bytes than the file's");
	}
	if (r->n_left)
		submit_short(r, i);
}

static bool is_same(const struct ry_lease *lease, const uint8_t *want, uint64_t bytes)
{
	for (uint32_t s = 0; s < lease->n_spans; s++) {
		if (lease->spans[s].bytes > bytes || memcmp(lease->spans[s].data, want, lease->spans[s].bytes))
			return false;
		want += lease->spans[s].bytes;
		bytes -= lease->spans[s].bytes;
	}
	return bytes == 0;
}

static uint64_t draw(struct run *r, uint64_t below)
{
	r->random = r->random * 6364136223846793005ull + 1442695040888963407ull;
	return (r->random >> 20) % below;
}

static uint64_t now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}
