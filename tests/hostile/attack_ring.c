/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Attacks on what is shared: noise over everything, well-formed rings with senseless entries, rings that are never
 * emptied, and the descriptors for waking up.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "hostile.h"

#define STUCK_NS 50000000u /* nothing taken for so long: the daemon takes no more from this ring */

static bool says_why(struct ry_client *c);
static bool enter(struct raw *r, const struct attack *a);
static uint64_t until(const struct attack *a);
static uint64_t edge(uint64_t near);
static void scribble(struct raw *r, unsigned n);
static void punch(struct raw *r);
static struct ry_sqe senseless(struct raw *r);
static void fill_slot(struct ry_slot *s, bool want_bait);
static void reap(struct raw *r);
static void wake_misuse(struct raw *r, uint64_t *n_swallowed, uint64_t *n_filled);

/* Attaches anew again and again, because a ring that makes no sense is looked at no more. */
int mode_noise(const struct attack *a)
{
	uint64_t end = until(a), n_attached = 0, n_bytes = 0;
	struct raw r;

	while (now_ns() < end) {
		uint64_t leave = now_ns() + draw() % 20000000;

		if (!enter(&r, a))
			return 1;
		n_attached++;
		while (now_ns() < leave) {
			scribble(&r, 256);
			n_bytes += 256 * 8;
		}
		raw_close(&r);
	}
	printf("{\"attached\": %llu, \"bytes\": %llu}\n", (unsigned long long)n_attached, (unsigned long long)n_bytes);
	return n_attached == 0;
}

int mode_entries(const struct attack *a)
{
	uint64_t end = until(a), n_attached = 0, n_taken = 0, n_answered = 0, n_holes = 0;
	struct raw r;

	while (now_ns() < end) {
		uint64_t moved_ns = now_ns();
		uint32_t last = 0;

		if (!enter(&r, a))
			return 1;
		n_attached++;
		while (now_ns() < end && now_ns() < moved_ns + STUCK_NS) {
			struct ry_sqe e = senseless(&r);

			if (!raw_submit(&r, &e, NULL, 0))
				pause_us(100);
			if (draw() % 64 == 0) {
				punch(&r);
				n_holes++;
			}
			reap(&r);
			if (raw_taken(&r) == last)
				continue;
			last = raw_taken(&r);
			moved_ns = now_ns();
		}
		n_taken += last;
		n_answered += r.cq_index->tail;
		raw_close(&r);
	}
	printf("{\"attached\": %llu, \"taken\": %llu, \"answered\": %llu, \"holes\": %llu}\n",
		(unsigned long long)n_attached, (unsigned long long)n_taken, (unsigned long long)n_answered,
		(unsigned long long)n_holes);
	return n_taken == 0;
}

/* Reads that it keeps, and a ring whose completions nobody takes. */
int mode_idle(const struct attack *a)
{
	uint64_t end = until(a), n_submitted = 0;
	struct raw r;

	if (raw_attach(&r, a->socket, 0, SMALL_ARENA, 64) != RY_OK)
		return 1;
	while (now_ns() < end) {
		struct ry_sqe e = {.op = RY_OP_READ,
			.ticket = ++n_submitted,
			.slot = (uint16_t)(n_submitted % r.n_entries),
			.length = 65536,
			.key_bytes = sizeof(BAIT_KEY) - 1};

		if (!raw_submit(&r, &e, BAIT_KEY, sizeof(BAIT_KEY) - 1)) {
			n_submitted--;
			pause_us(1000);
		}
	}
	printf("{\"submitted\": %llu, \"taken\": %u, \"answered\": %u, \"entries\": %u}\n",
		(unsigned long long)n_submitted, raw_taken(&r), r.cq_index->tail, r.n_entries);
	return r.cq_index->tail != r.n_entries;
}

int mode_wakes(const struct attack *a)
{
	uint64_t end = until(a), n = 0, n_swallowed = 0, n_filled = 0;
	int unread = 0, waiting;
	struct raw r;

	if (!enter(&r, a))
		return 1;
	/* Of the open file descriptions: whoever shares one with us would wait from now on. */
	if (fcntl(r.h.fds[3], F_SETFL, 0) || fcntl(r.h.fds[4], F_SETFL, 0))
		return 1;
	while (now_ns() < end) {
		struct ry_sqe e = {.op = RY_OP_LOOKUP,
			.ticket = ++n,
			.slot = (uint16_t)(n % r.n_entries),
			.key_bytes = sizeof(BAIT_KEY) - 1};

		raw_submit(&r, &e, BAIT_KEY, sizeof(BAIT_KEY) - 1);
		wake_misuse(&r, &n_swallowed, &n_filled);
		r.cq_index->need_wakeup = 1; /* and it takes no wake-up ever */
		reap(&r);
		if (ioctl(r.h.fds[4], FIONREAD, &waiting) == 0 && waiting > unread)
			unread = waiting;
	}
	printf("{\"submitted\": %llu, \"swallowed\": %llu, \"filled\": %llu, \"unread\": %d}\n", (unsigned long long)n,
		(unsigned long long)n_swallowed, (unsigned long long)n_filled, unread);
	return 0;
}

/* A program that writes where it should not. Its next call has to say that this is why it is detached. */
int mode_self(const struct attack *a)
{
	struct ry_attach_opts opts = {
		.socket_path = a->socket, .read_arena_bytes = SMALL_ARENA, .put_arena_bytes = SMALL_ARENA};
	struct ry_client *c;
	unsigned n_told = 0;
	uint64_t one = 1;

	for (unsigned i = 0; i < 3; i++) {
		if (ry_attach(&opts, &c) != RY_OK)
			return 1;
		if (i == 0)
			c->cq_index->head -= 2 * c->n_entries;
		else if (i == 1)
			c->sq_index->tail += 2 * c->n_entries;
		if (i < 2) {
			(void)!write(c->sq_event_fd, &one, sizeof(one));
			(void)poll(&(struct pollfd){.fd = c->socket_fd, .events = POLLIN}, 1, 5000);
		}
		n_told += says_why(c) == (i < 2);
		ry_detach(c);
	}
	printf("{\"told\": %u}\n", n_told);
	return n_told != 3;
}

static bool says_why(struct ry_client *c)
{
	struct ry_object object;
	enum ry_status status = ry_lookup(c, BAIT_KEY, sizeof(BAIT_KEY) - 1, 5000000000u, &object);

	if (status != RY_OK && (status != RY_ERR_PROTOCOL || !strstr(ry_last_cause(c), "ring makes no sense")))
		fprintf(stderr, "hostile: %s: %s\n", ry_status_name(status), ry_last_cause(c));
	return status == RY_ERR_PROTOCOL;
}

static bool enter(struct raw *r, const struct attack *a)
{
	enum ry_status status = raw_attach(r, a->socket, SMALL_ARENA, SMALL_ARENA, 64);

	if (status != RY_OK)
		fprintf(stderr, "hostile: %s: %s\n", ry_status_name(status), r->h.cause);
	return status == RY_OK;
}

static uint64_t until(const struct attack *a)
{
	return now_ns() + strtoull(a->args[0], NULL, 0) * 1000000000u;
}

/* Values at which arithmetic goes wrong, those beside `near` among them. */
static uint64_t edge(uint64_t near)
{
	static const uint64_t edges[] = {0, 1, UINT32_MAX, 1ull << 32, INT64_MAX, 1ull << 63, UINT64_MAX};
	uint64_t word = draw();

	switch (word >> 60) {
	case 0:
		return draw();
	case 1:
	case 2:
	case 3:
		return edges[word % (sizeof(edges) / sizeof(edges[0]))] + (word >> 8) % 3 - 1;
	case 4:
	case 5:
		return near + (word >> 8) % 3 - 1;
	default:
		return near ? word % near : 0;
	}
}

/* Half of it where the indices and the first entries are. */
static void scribble(struct raw *r, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		uint64_t word = draw(), where = draw();
		uint8_t *at = r->ring;
		uint64_t bytes = where & 1 ? r->h.ring_bytes : 1024;

		if ((where & 6) == 0) {
			at = r->put;
			bytes = r->h.put_arena_bytes;
		}
		memcpy(at + (where >> 8) % (bytes / 8) * 8, &word, sizeof(word));
	}
}

static void punch(struct raw *r)
{
	int what = draw() & 1 ? 0 : 2;
	uint64_t bytes = what ? r->h.put_arena_bytes : r->h.ring_bytes;

	/* Not the page of the indices: the ring is to go on. */
	(void)fallocate(r->h.fds[what], FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
		(off_t)(4096 + draw() % (bytes / 4096 - 1) * 4096), 4096);
}

static struct ry_sqe senseless(struct raw *r)
{
	static uint32_t n; /* mostly a slot that is free again, because one in use ends all */
	struct ry_sqe e = {.ticket = draw() % 64,
		.op = (uint8_t)(draw() % 16 ? draw() % 10 : draw()),
		.slot = (uint16_t)(draw() % 512 ? (2 * n++ + draw() % 2) % r->n_entries : draw()),
		.flags = (uint32_t)draw() & (draw() % 4 ? 0xff : UINT32_MAX),
		.deadline_ns = draw() % 4 ? now_ns() + draw() % 100000000 : edge(now_ns()),
		.offset = edge(draw() & 1 ? BAIT_BYTES : 0) & (draw() % 4 ? UINT64_MAX : ~0xffffull),
		.length = edge(draw() & 1 ? BAIT_BYTES : SMALL_ARENA),
		.arg = edge(SMALL_ARENA),
		.key_bytes = (uint16_t)(draw() % 8 ? 1 + draw() % 8 : edge(RY_KEY_MAX_BYTES))};

	/* Everybody may delete and overwrite everything: that is no attack, and would spoil the other's reads. So the
	 * bait's key is in odd slots only, and what waits to be taken from there changes nothing. */
	if (e.op == RY_OP_PUT || e.op == RY_OP_DELETE)
		e.slot &= (uint16_t)~1u;
	if (e.slot < r->n_entries)
		fill_slot(&r->slots[e.slot], (e.op == RY_OP_READ || e.op == RY_OP_LOOKUP) && (e.slot & 1));
	if (draw() % 4 == 0)
		e.key_bytes = sizeof(BAIT_KEY) - 1;
	return e;
}

static void fill_slot(struct ry_slot *s, bool want_bait)
{
	memcpy(s->key, want_bait && draw() % 2 ? BAIT_KEY "----" : "hostile!", 8);
	s->put_id[0] = draw() % 4;
	s->put_id[1] = 0;
	s->size_bytes = edge(SMALL_ARENA);
	s->ttl_ns = draw() % 4 ? 0 : edge(1000000000);
	s->stripe_bytes = draw() % 4 ? 65536 : (uint32_t)edge(65536);
	s->n_checksums = (uint32_t)edge(4);
	s->checksum_offset = edge(SMALL_ARENA) & (draw() % 4 ? ~7ull : UINT64_MAX);
}

/* Says what suits it: mostly that all was taken, now and then nonsense that still makes sense for a ring. */
static void reap(struct raw *r)
{
	uint32_t tail = __atomic_load_n(&r->cq_index->tail, __ATOMIC_RELAXED);

	__atomic_store_n(&r->cq_index->head, draw() % 64 ? tail : tail - (uint32_t)(draw() % (r->n_entries + 1)),
		__ATOMIC_RELAXED);
}

static void wake_misuse(struct raw *r, uint64_t *n_swallowed, uint64_t *n_filled)
{
	uint64_t count, most = UINT64_MAX - 1;
	struct pollfd p = {.fd = r->h.fds[3], .events = POLLIN | POLLOUT};

	if (poll(&p, 1, 0) == 1 && (p.revents & POLLIN))
		*n_swallowed += read(p.fd, &count, sizeof(count)) == sizeof(count);
	/* Full: the next write of anybody waits, for ever. */
	if (poll(&p, 1, 0) == 1 && !(p.revents & POLLIN) && draw() % 2)
		*n_filled += write(p.fd, &most, sizeof(most)) == sizeof(most);
	if (send(r->h.fds[4], &most, sizeof(most), MSG_DONTWAIT | MSG_NOSIGNAL) > 0)
		fprintf(stderr, "hostile: the daemon's end takes bytes\n");
}
