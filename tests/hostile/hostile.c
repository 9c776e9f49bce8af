/* SPDX-License-Identifier: BSD-3-Clause */
/* usage: hostile SOCKET MODE [ARGUMENT...]; the modes are in hostile.h. Exit codes: 0 done, 1 something that must be
 * refused was not, or the daemon is gone, 2 usage. RY_SEED repeats an attack. */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "hostile.h"

struct mode {
	const char *name;
	int n_args;
	int (*run)(const struct attack *a);
};

static const struct mode modes[] = {
	{"honest", 1, mode_honest},
	{"noise", 1, mode_noise},
	{"entries", 1, mode_entries},
	{"idle", 1, mode_idle},
	{"wakes", 1, mode_wakes},
	{"self", 0, mode_self},
	{"fds", 0, mode_fds},
	{"vanish", 1, mode_vanish},
	{"crowd", 1, mode_crowd},
};

static uint64_t state = 1;

int main(int argc, char **argv)
{
	struct attack a = {.socket = argv[1], .args = argv + 3, .n_args = argc - 3};
	const char *seed = getenv("RY_SEED");

	/* A case that is cut off leaves no attacker behind. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	draw_seed(seed ? strtoull(seed, NULL, 0) : (uint64_t)getpid() ^ now_ns());
	fprintf(stderr, "RY_SEED=%llu\n", (unsigned long long)state);
	for (size_t i = 0; argc >= 3 && i < sizeof(modes) / sizeof(modes[0]); i++) {
		if (strcmp(modes[i].name, argv[2]) == 0 && modes[i].n_args == a.n_args)
			return modes[i].run(&a);
	}
	fprintf(stderr, "usage: hostile SOCKET MODE [ARGUMENT...]\n");
	return 2;
}

enum ry_status raw_attach(struct raw *r, const char *socket, uint64_t read_bytes, uint64_t put_bytes, uint32_t entries)
{
	const struct ry_ring_header *header;
	enum ry_status status;

	*r = (struct raw){.h = {.read_arena_bytes = read_bytes,
				  .put_arena_bytes = put_bytes,
				  .ring_entries = entries,
				  .deadline_ns = now_ns() + 20000000000ull}};
	status = ryc_handshake(&r->h, socket);
	if (status)
		return status;
	r->ring = mmap(NULL, r->h.ring_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, r->h.fds[0], 0);
	r->read = mmap(NULL, r->h.read_arena_bytes, PROT_READ, MAP_SHARED, r->h.fds[1], 0);
	r->put = mmap(NULL, r->h.put_arena_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, r->h.fds[2], 0);
	if (r->ring == MAP_FAILED || r->read == MAP_FAILED || r->put == MAP_FAILED)
		return RY_ERR_INTERNAL;
	header = (const void *)r->ring;
	r->sq_index = (void *)(r->ring + header->sq_index_offset);
	r->cq_index = (void *)(r->ring + header->cq_index_offset);
	r->sq = (void *)(r->ring + header->sq_offset);
	r->slots = (void *)(r->ring + header->slot_offset);
	r->n_entries = header->n_entries;
	return RY_OK;
}

void raw_close(struct raw *r)
{
	munmap(r->ring, r->h.ring_bytes);
	munmap((void *)(uintptr_t)r->read, r->h.read_arena_bytes);
	munmap(r->put, r->h.put_arena_bytes);
	ryc_handshake_close(&r->h);
}

bool raw_submit(struct raw *r, const struct ry_sqe *e, const void *key, uint16_t key_bytes)
{
	struct pollfd p = {.fd = r->h.fds[3], .events = POLLOUT};
	uint32_t tail = r->sq_index->tail;
	uint64_t one = 1;

	/* Acquire: partner of the daemon's release of head. */
	if (tail - __atomic_load_n(&r->sq_index->head, __ATOMIC_ACQUIRE) >= r->n_entries)
		return false;
	if (key && e->slot < r->n_entries)
		memcpy(r->slots[e->slot].key, key, key_bytes);
	r->sq[tail & (r->n_entries - 1)] = *e;
	/* Release: partner of the daemon's acquire of tail. */
	__atomic_store_n(&r->sq_index->tail, tail + 1, __ATOMIC_RELEASE);
	/* Partner: the daemon's fence between need_wakeup and its second look. */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	/* A counter that we filled, and made blocking, holds us up and nobody else. */
	if (r->sq_index->need_wakeup && poll(&p, 1, 0) == 1)
		return write(p.fd, &one, sizeof(one)) == sizeof(one);
	return true;
}

uint32_t raw_taken(const struct raw *r)
{
	return __atomic_load_n(&r->sq_index->head, __ATOMIC_RELAXED);
}

void draw_seed(uint64_t seed)
{
	state = seed ? seed : 1;
}

uint64_t draw(void)
{
	state ^= state >> 12;
	state ^= state << 25;
	state ^= state >> 27;
	return state * 2685821657736338717ull;
}

uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void pause_us(unsigned us)
{
	struct timespec t = {.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000l};

	nanosleep(&t, NULL);
}

static uint64_t pattern_word(uint64_t i, uint64_t seed)
{
	uint64_t x = (i + 1) * 0x9e3779b97f4a7c15ull ^ seed * 0xd6e8feb86659fd93ull;

	return x ^ x >> 32;
}

void pattern_fill(uint8_t *to, uint64_t bytes, uint64_t offset, uint64_t seed)
{
	for (uint64_t i = 0; i < bytes; i++) {
		uint64_t at = offset + i;

		to[i] = (uint8_t)(pattern_word(at / 8, seed) >> at % 8 * 8);
	}
}

bool pattern_is(const uint8_t *p, uint64_t bytes, uint64_t offset, uint64_t seed)
{
	for (uint64_t i = 0; i < bytes;) {
		uint64_t at = offset + i, word = pattern_word(at / 8, seed), n = 8 - at % 8;

		n = n < bytes - i ? n : bytes - i;
		if (memcmp(p + i, (const uint8_t *)&word + at % 8, n))
			return false;
		i += n;
	}
	return true;
}
