/* SPDX-License-Identifier: BSD-3-Clause */
/* Clients that die: one after the other at random points of their work, or all at once. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "hostile.h"

#define LIFE_US 30000u
#define WORK_BYTES (200u << 10)

/* What all children together got to do; they die without a word. */
struct deeds {
	uint32_t n_attached;
	uint32_t n_busy; /* operations begun and not ended, of the child that lives */
	uint32_t n_killed_busy;
	uint32_t n_done;
};

static void work(const struct attack *a, struct deeds *d);
static void work_once(struct ry_client *c, struct deeds *d, const uint8_t *data);

int mode_vanish(const struct attack *a)
{
	unsigned n = (unsigned)strtoul(a->args[0], NULL, 0);
	struct deeds *d = mmap(NULL, sizeof(*d), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	for (unsigned i = 0; i < n; i++) {
		uint64_t seed = draw();
		pid_t child = fork();

		if (child < 0)
			return 1;
		if (child == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			draw_seed(seed);
			work(a, d);
			_exit(1);
		}
		pause_us((unsigned)(draw() % LIFE_US));
		kill(child, SIGKILL);
		waitpid(child, NULL, 0);
		d->n_killed_busy += d->n_busy != 0;
		d->n_busy = 0;
	}
	printf("{\"killed\": %u, \"attached\": %u, \"in_the_middle\": %u, \"done\": %u}\n", n, d->n_attached,
		d->n_killed_busy, d->n_done);
	return 0;
}

static void work(const struct attack *a, struct deeds *d)
{
	struct ry_attach_opts opts = {.socket_path = a->socket,
		.read_arena_bytes = 4 * SMALL_ARENA,
		.put_arena_bytes = 4 * SMALL_ARENA,
		.ring_entries = 64};
	static uint8_t data[WORK_BYTES];
	struct ry_client *c;

	if (ry_attach(&opts, &c) != RY_OK)
		return;
	d->n_attached++;
	for (;;)
		work_once(c, d, data);
}

/* Reads, a put and a listing at a time; some cancelled, some leases never given back. */
static void work_once(struct ry_client *c, struct deeds *d, const uint8_t *data)
{
	struct ry_request q[4] = {
		{.op = RY_OP_READ, .key = BAIT_KEY, .key_bytes = sizeof(BAIT_KEY) - 1, .length = WORK_BYTES},
		{.op = RY_OP_READ, .key = BAIT_KEY, .key_bytes = sizeof(BAIT_KEY) - 1, .length = 2 * SMALL_ARENA},
		{.op = RY_OP_PUT,
			.key = "gone",
			.key_bytes = 4,
			.length = WORK_BYTES,
			.data = data,
			.flags = RY_F_PUT_BEGIN | RY_F_PUT_COMMIT,
			.size_bytes = WORK_BYTES,
			.stripe_bytes = 65536},
		{.op = RY_OP_LIST, .length = 16},
	};
	struct ry_completion done[4];
	uint32_t left, n;

	q[0].offset = draw() % (BAIT_BYTES - WORK_BYTES);
	q[2].put_id[0] = draw();
	q[2].put_id[1] = draw();
	left = ry_submit(c, q, 4);
	d->n_busy = left;
	if (left && draw() % 4 == 0)
		ry_cancel(c, q[draw() % left].ticket);
	while (left && ry_wait(c, RY_FOREVER) == RY_OK) {
		n = ry_reap(c, done, 4);
		left -= n;
		d->n_busy = left;
		d->n_done += n;
		for (uint32_t i = 0; i < n; i++) {
			if (draw() % 8)
				ry_lease_release(c, &done[i].lease);
		}
	}
}

int mode_crowd(const struct attack *a)
{
	unsigned n = (unsigned)strtoul(a->args[0], NULL, 0), n_attached = 0, n_limit = 0;
	struct raw *all = calloc(n, sizeof(*all));
	struct rlimit files;

	getrlimit(RLIMIT_NOFILE, &files);
	files.rlim_cur = files.rlim_max;
	setrlimit(RLIMIT_NOFILE, &files);
	for (unsigned i = 0; i < n; i++) {
		enum ry_status status = raw_attach(&all[i], a->socket, 65536, 65536, 2);

		n_attached += status == RY_OK;
		n_limit += status == RY_ERR_LIMIT || status == RY_ERR_BUDGET;
		if (status == RY_OK || status == RY_ERR_LIMIT || status == RY_ERR_BUDGET)
			continue;
		fprintf(stderr, "hostile: %s: %s\n", ry_status_name(status), all[i].h.cause);
		return 1;
	}
	printf("{\"attached\": %u, \"refused\": %u}\n", n_attached, n_limit);
	fflush(stdout);
	_exit(0);
}
