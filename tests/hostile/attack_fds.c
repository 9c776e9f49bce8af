/* SPDX-License-Identifier: BSD-3-Clause */
/* What seals and kinds of descriptors have to refuse, tried one after the other on each that was handed out. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "hostile.h"

#define FOREIGN 0x5aa5c33c0ff0a55aull

struct trial {
	unsigned n_refused;
	unsigned n_wrong;
};

static void must_fail(struct trial *t, bool is_done, const char *what, const char *name);
static void resize(struct trial *t, int fd, uint64_t bytes, const char *name);
static void write_read_arena(struct trial *t, struct raw *r);
static void reopen(struct trial *t, struct raw *r);
static void try_holes(struct trial *t, int fd, uint64_t bytes, const char *name);
static bool can_map(int fd, uint64_t bytes);
static void see_others(struct trial *t, struct raw *a, struct raw *b);

int mode_fds(const struct attack *a)
{
	struct trial t = {0};
	struct raw r, other;

	if (raw_attach(&r, a->socket, SMALL_ARENA, SMALL_ARENA, 16) != RY_OK ||
		raw_attach(&other, a->socket, SMALL_ARENA, SMALL_ARENA, 16) != RY_OK)
		return 1;
	resize(&t, r.h.fds[0], r.h.ring_bytes, "ring");
	resize(&t, r.h.fds[1], r.h.read_arena_bytes, "read arena");
	resize(&t, r.h.fds[2], r.h.put_arena_bytes, "put arena");
	write_read_arena(&t, &r);
	try_holes(&t, r.h.fds[1], r.h.read_arena_bytes, "read arena");
	reopen(&t, &r);
	see_others(&t, &r, &other);
	must_fail(&t, send(r.h.fds[4], "", 1, MSG_NOSIGNAL) >= 0, "sending to the daemon's end", "wake-ups");
	/* Its own memory it may make holes into, and close its own end; the daemon has to live with both. */
	for (int i = 0; i <= 2; i += 2)
		(void)fallocate(r.h.fds[i], FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
			(off_t)(i ? r.h.put_arena_bytes : r.h.ring_bytes));
	(void)shutdown(r.h.fds[4], SHUT_RDWR);
	printf("{\"refused\": %u, \"wrong\": %u}\n", t.n_refused, t.n_wrong);
	raw_close(&r);
	raw_close(&other);
	return t.n_wrong != 0;
}

static void must_fail(struct trial *t, bool is_done, const char *what, const char *name)
{
	if (is_done)
		fprintf(stderr, "hostile: %s: %s is allowed\n", name, what);
	t->n_wrong += is_done;
	t->n_refused += !is_done;
}

static void resize(struct trial *t, int fd, uint64_t bytes, const char *name)
{
	int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

	must_fail(t, (fcntl(fd, F_GET_SEALS) & seals) != seals, "lacking a seal", name);
	must_fail(t, ftruncate(fd, 0) == 0, "shrinking", name);
	must_fail(t, ftruncate(fd, (off_t)bytes - 4096) == 0, "shrinking by a page", name);
	must_fail(t, ftruncate(fd, (off_t)bytes + 4096) == 0, "growing", name);
	must_fail(t, fallocate(fd, 0, (off_t)bytes, 4096) == 0, "allocating behind the end", name);
	must_fail(t, fallocate(fd, FALLOC_FL_COLLAPSE_RANGE, 0, 4096) == 0, "collapsing", name);
	must_fail(t, fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE) == 0, "one more seal", name);
}

static void write_read_arena(struct trial *t, struct raw *r)
{
	void *own = (void *)(uintptr_t)r->read;
	int fd = r->h.fds[1];

	must_fail(t, can_map(fd, r->h.read_arena_bytes), "mapping for writing", "read arena");
	must_fail(t, mprotect(own, r->h.read_arena_bytes, PROT_READ | PROT_WRITE) == 0, "mprotect for writing",
		"read arena");
	must_fail(t, madvise(own, r->h.read_arena_bytes, MADV_REMOVE) == 0, "MADV_REMOVE", "read arena");
	must_fail(t, pwrite(fd, "x", 1, 0) == 1, "write", "read arena");
	fd = open("/proc/self/mem", O_RDWR);
	must_fail(t, fd >= 0 && pwrite(fd, "x", 1, (off_t)(uintptr_t)own) == 1, "write through /proc/self/mem",
		"read arena");
	if (fd >= 0)
		close(fd);
}

/* A descriptor of its own may have other rights than the one that came. */
static void reopen(struct trial *t, struct raw *r)
{
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", r->h.fds[1]);
	fd = open(path, O_RDWR | O_TRUNC);
	must_fail(t, fd >= 0, "opening anew with O_TRUNC", "read arena");
	fd = fd >= 0 ? fd : open(path, O_RDWR);
	if (fd < 0)
		return;
	must_fail(t, can_map(fd, r->h.read_arena_bytes), "mapping it for writing", "read arena, opened anew");
	must_fail(t, pwrite(fd, "x", 1, 0) == 1, "write", "read arena, opened anew");
	resize(t, fd, r->h.read_arena_bytes, "read arena, opened anew");
	try_holes(t, fd, r->h.read_arena_bytes, "read arena, opened anew");
	close(fd);
}

static void try_holes(struct trial *t, int fd, uint64_t bytes, const char *name)
{
	static const int modes[] = {FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, FALLOC_FL_ZERO_RANGE,
		FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE};

	for (unsigned i = 0; i < sizeof(modes) / sizeof(modes[0]); i++)
		must_fail(t, fallocate(fd, modes[i], 0, (off_t)bytes) == 0, "a hole", name);
}

static bool can_map(int fd, uint64_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (p != MAP_FAILED)
		munmap(p, bytes);
	return p != MAP_FAILED;
}

/* Whatever one writes, another never finds: neither in what it has, nor in what it gets later. */
static void see_others(struct trial *t, struct raw *a, struct raw *b)
{
	const uint64_t *put = (const void *)b->put, *read = (const void *)b->read, *ring = (const void *)b->ring;
	unsigned n = 0;

	for (uint64_t i = 0; i < a->h.put_arena_bytes / 8; i++)
		((uint64_t *)(void *)a->put)[i] = FOREIGN;
	for (uint64_t i = 4096 / 8; i < a->h.ring_bytes / 8; i++)
		((uint64_t *)(void *)a->ring)[i] = FOREIGN;
	for (uint64_t i = 0; i < b->h.put_arena_bytes / 8; i++)
		n += put[i] != 0;
	for (uint64_t i = 0; i < b->h.read_arena_bytes / 8; i++)
		n += read[i] != 0;
	for (uint64_t i = 0; i < b->h.ring_bytes / 8; i++)
		n += ring[i] == FOREIGN;
	must_fail(t, n != 0, "finding something of another client", "fresh memory");
}
