/* SPDX-License-Identifier: BSD-3-Clause */
/* Attach and detach: maps what the handshake brought, checks the ring's geometry once, sets up the private bookkeeping.
 */
#include "client_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#define SECOND_NS 1000000000ull
#define HELLO_TIMEOUT_NS (5 * SECOND_NS)
#define MEMORY_TIMEOUT_NS (60 * SECOND_NS)     /* of arenas whose size the daemon chooses */
#define MEMORY_TIMEOUT_GIB_NS (10 * SECOND_NS) /* for each GiB begun */
#define MEMORY_GIB_MAX 1024u                   /* more is not given anyway */

static enum ry_status check_opts(const struct ry_attach_opts *opts, struct ryc_handshake *h);
static uint64_t memory_timeout(const struct ry_attach_opts *opts);
static enum ry_status build(struct ry_client *c, struct ryc_handshake *h);
static enum ry_status map_all(struct ry_client *c, struct ryc_handshake *h);
static enum ry_status map_one(
	struct ry_client *c, int fd, uint64_t bytes, int protection, const char *what, struct ryc_map *out);
static enum ry_status check_ring(struct ry_client *c, const struct ryc_handshake *h);
static bool is_inside(const struct ry_ring_header *r, uint32_t offset, uint64_t bytes);
static void adopt_ring(struct ry_client *c);
static enum ry_status make_private(struct ry_client *c);
static enum ry_status make_epoll(struct ry_client *c);
static void unmap(struct ryc_map *m);

enum ry_status ry_attach(const struct ry_attach_opts *opts, struct ry_client **client)
{
	static const struct ry_attach_opts defaults;
	const char *path = opts && opts->socket_path ? opts->socket_path : getenv("RAILYARD_SOCKET");
	struct ryc_handshake h = {.cause = ""};
	struct ry_client *c = calloc(1, sizeof(*c));
	enum ry_status status = c ? RY_OK : RY_ERR_LIMIT;

	opts = opts ? opts : &defaults;
	if (!status && !client) {
		snprintf(h.cause, sizeof(h.cause), "attach: client must not be NULL");
		status = RY_ERR_INVALID;
	}
	if (!status)
		status = check_opts(opts, &h);
	if (!status)
		status = ryc_handshake(&h, path ? path : RY_SOCKET_DEFAULT);
	if (!status) {
		c->spin_ns = opts->spin_ns;
		status = build(c, &h);
		if (status) {
			memcpy(h.cause, c->cause, sizeof(h.cause));
			ry_detach(c);
			c = NULL;
		}
	}
	if (status) {
		free(c);
		if (opts->cause && opts->cause_bytes > 0)
			snprintf(opts->cause, opts->cause_bytes, "%s", h.cause);
		return status;
	}
	*client = c;
	return RY_OK;
}

void ry_detach(struct ry_client *c)
{
	if (!c)
		return;
	while (!TAILQ_EMPTY(&c->put_arena.blocks))
		ryc_arena_free(&c->put_arena, TAILQ_FIRST(&c->put_arena.blocks));
	/* The arenas go before the socket: when the daemon hears of the end, nothing here can touch them any more. */
	unmap(&c->read_map);
	unmap(&c->put_map);
	unmap(&c->ring_map);
	close(c->epoll_fd);
	close(c->sq_event_fd);
	close(c->cq_wake_fd);
	close(c->socket_fd);
	if (c->fork_guard)
		munmap(c->fork_guard, sizeof(*c->fork_guard));
	ryc_hash_free(c->hash);
	free(c->late);
	free(c->ops);
	free(c);
}

void ry_client_get_info(const struct ry_client *c, struct ry_client_info *info)
{
	if (c && info)
		*info = c->info;
}

const char *ry_last_cause(const struct ry_client *c)
{
	return c ? c->cause : "";
}

const char *ry_version(void)
{
	return RY_VERSION;
}

enum ry_status ryc_enter(struct ry_client *c)
{
	if (!c)
		return RY_ERR_INVALID;
	if (*c->fork_guard != 1)
		return ryc_fail(
			c, RY_ERR_DETACHED, "this client belongs to the parent process: attach anew after fork");
	return RY_OK;
}

enum ry_status ryc_enter_with(struct ry_client *c, const void *pointer, const char *what)
{
	enum ry_status status = ryc_enter(c);

	if (!status && !pointer)
		status = ryc_fail(c, RY_ERR_INVALID, "%s must not be NULL", what);
	return status;
}

enum ry_status ryc_fail(struct ry_client *c, enum ry_status status, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(c->cause, sizeof(c->cause), format, args);
	va_end(args);
	return status;
}

uint64_t ryc_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t ryc_deadline(uint64_t relative_ns)
{
	uint64_t now = ryc_now_ns();

	if (relative_ns == 0)
		return 0;
	return relative_ns > UINT64_MAX - now ? UINT64_MAX : now + relative_ns;
}

static enum ry_status check_opts(const struct ry_attach_opts *opts, struct ryc_handshake *h)
{
	if (opts->read_arena_bytes > INT64_MAX || opts->put_arena_bytes > INT64_MAX ||
		opts->ring_entries > RY_RING_ENTRIES_MAX) {
		snprintf(h->cause, sizeof(h->cause),
			"attach: ring_entries may be 0 to %u, an arena up to 2^63 - 1 bytes", RY_RING_ENTRIES_MAX);
		return RY_ERR_INVALID;
	}
	h->read_arena_bytes = opts->read_arena_bytes;
	h->put_arena_bytes = opts->put_arena_bytes;
	h->ring_entries = opts->ring_entries;
	h->deadline_ns = ryc_deadline(opts->timeout_ns ? opts->timeout_ns : HELLO_TIMEOUT_NS);
	h->memory_timeout_ns = opts->timeout_ns ? 0 : memory_timeout(opts);
	return RY_OK;
}

/* The daemon prefaults and registers the arenas before it answers. */
static uint64_t memory_timeout(const struct ry_attach_opts *opts)
{
	uint64_t gib = (opts->read_arena_bytes >> 30) + (opts->put_arena_bytes >> 30) + 2;

	if (opts->read_arena_bytes == 0 || opts->put_arena_bytes == 0)
		return MEMORY_TIMEOUT_NS;
	return (gib < MEMORY_GIB_MAX ? gib : MEMORY_GIB_MAX) * MEMORY_TIMEOUT_GIB_NS;
}

/* Takes over the handshake's descriptors, also on failure. */
static enum ry_status build(struct ry_client *c, struct ryc_handshake *h)
{
	enum ry_status status;

	TAILQ_INIT(&c->put_arena.blocks);
	STAILQ_INIT(&c->free_ops);
	STAILQ_INIT(&c->done_ops);
	c->epoll_fd = -1;
	c->info = h->info;
	c->socket_fd = h->socket_fd;
	c->sq_event_fd = h->fds[3];
	c->cq_wake_fd = h->fds[4];
	status = map_all(c, h);
	for (unsigned i = 0; i < 3; i++)
		close(h->fds[i]); /* a mapping needs its descriptor no more */
	if (!status)
		status = check_ring(c, h);
	if (status)
		return status;
	adopt_ring(c);
	status = make_private(c);
	return status ? status : make_epoll(c);
}

static enum ry_status map_all(struct ry_client *c, struct ryc_handshake *h)
{
	enum ry_status status;

	if (h->ring_bytes < sizeof(struct ry_ring_header))
		return ryc_fail(c, RY_ERR_PROTOCOL, "attach: a ring of %llu bytes", (unsigned long long)h->ring_bytes);
	status = map_one(c, h->fds[0], h->ring_bytes, PROT_READ | PROT_WRITE, "ring", &c->ring_map);
	if (!status)
		status = map_one(c, h->fds[1], h->read_arena_bytes, PROT_READ, "read arena", &c->read_map);
	if (!status)
		status = map_one(c, h->fds[2], h->put_arena_bytes, PROT_READ | PROT_WRITE, "put arena", &c->put_map);
	return status;
}

static enum ry_status map_one(
	struct ry_client *c, int fd, uint64_t bytes, int protection, const char *what, struct ryc_map *out)
{
	struct statfs fs;
	struct stat st;
	void *base;

	if (bytes == 0)
		return RY_OK; /* a daemon without the reader role may have no arenas */
	if (fstat(fd, &st) || fstatfs(fd, &fs) || (uint64_t)st.st_size < bytes)
		return ryc_fail(c, RY_ERR_PROTOCOL, "attach: %s: smaller than the %llu bytes announced", what,
			(unsigned long long)bytes);
	base = mmap(NULL, bytes, protection, MAP_SHARED, fd, 0);
	if (base == MAP_FAILED)
		return ryc_fail(c, RY_ERR_LIMIT, "attach: %s: cannot map %llu bytes: %s", what,
			(unsigned long long)bytes, strerror(errno));
	out->base = base;
	out->bytes = bytes;
	out->page_bytes = fs.f_type == HUGETLBFS_MAGIC ? (uint64_t)fs.f_bsize : (uint64_t)sysconf(_SC_PAGESIZE);
	return RY_OK;
}

static enum ry_status check_ring(struct ry_client *c, const struct ryc_handshake *h)
{
	const struct ry_ring_header *r = (const void *)c->ring_map.base;

	if (r->magic != RY_RING_MAGIC)
		return ryc_fail(c, RY_ERR_PROTOCOL, "attach: ring: wrong magic");
	if (r->abi_major != RY_RING_ABI_MAJOR || r->abi_minor > RY_RING_ABI_MINOR)
		return ryc_fail(c, RY_ERR_VERSION, "attach: ring: ABI %u.%u, this library speaks %u.%u", r->abi_major,
			r->abi_minor, RY_RING_ABI_MAJOR, RY_RING_ABI_MINOR);
	if (r->total_bytes > h->ring_bytes || r->n_entries < 2 || r->n_entries > RY_RING_ENTRIES_MAX ||
		(r->n_entries & (r->n_entries - 1)) || r->slot_bytes < sizeof(struct ry_slot) || r->slot_bytes % 64)
		return ryc_fail(c, RY_ERR_PROTOCOL, "attach: ring: impossible sizes");
	if (!is_inside(r, r->sq_index_offset, sizeof(struct ry_ring_index)) ||
		!is_inside(r, r->cq_index_offset, sizeof(struct ry_ring_index)) ||
		!is_inside(r, r->sq_offset, r->n_entries * sizeof(struct ry_sqe)) ||
		!is_inside(r, r->cq_offset, r->n_entries * sizeof(struct ry_cqe)) ||
		!is_inside(r, r->slot_offset, (uint64_t)r->n_entries * r->slot_bytes))
		return ryc_fail(c, RY_ERR_PROTOCOL, "attach: ring: a part lies outside");
	if (r->read_arena_bytes != h->read_arena_bytes || r->put_arena_bytes != h->put_arena_bytes)
		return ryc_fail(c, RY_ERR_PROTOCOL, "attach: ring: arena sizes differ from the reply's");
	return RY_OK;
}

static bool is_inside(const struct ry_ring_header *r, uint32_t offset, uint64_t bytes)
{
	return offset % 64 == 0 && offset >= sizeof(*r) && offset <= r->total_bytes && r->total_bytes - offset >= bytes;
}

static void adopt_ring(struct ry_client *c)
{
	uint8_t *base = c->ring_map.base;

	c->header = (const void *)base;
	c->n_entries = c->header->n_entries;
	c->slot_bytes = c->header->slot_bytes;
	c->sq_index = (void *)(base + c->header->sq_index_offset);
	c->cq_index = (void *)(base + c->header->cq_index_offset);
	c->sq = (void *)(base + c->header->sq_offset);
	c->cq = (const void *)(base + c->header->cq_offset);
	c->slots = base + c->header->slot_offset;
	/* Indices run free over 32 bits and may start anywhere. */
	c->sq_tail = c->sq_index->tail;
	c->cq_head = c->cq_index->head;
	c->read_base = c->read_map.base;
	c->put_arena.base = c->put_map.base;
	c->put_arena.bytes = c->put_map.bytes;
	/* The other half of the submit ring is for CANCEL and RELEASE. */
	c->max_ops = c->n_entries / 2;
	c->info.abi_major = c->header->abi_major;
	c->info.abi_minor = c->header->abi_minor;
	c->info.read_arena_bytes = c->read_map.bytes;
	c->info.put_arena_bytes = c->put_map.bytes;
	c->info.max_in_flight = c->max_ops;
}

static enum ry_status make_private(struct ry_client *c)
{
	void *guard = mmap(NULL, sizeof(*c->fork_guard), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (guard != MAP_FAILED)
		c->fork_guard = guard;
	c->hash = ryc_hash_new();
	c->ops = calloc(c->max_ops, sizeof(*c->ops));
	if (!c->fork_guard || !c->hash || !c->ops)
		return ryc_fail(c, RY_ERR_LIMIT, "attach: no memory");
	/* fork() gives the child a zeroed page: one load tells parent from child, where getpid() would be a system
	 * call. */
	if (madvise(guard, sizeof(*c->fork_guard), MADV_WIPEONFORK))
		return ryc_fail(c, RY_ERR_INTERNAL, "attach: MADV_WIPEONFORK: %s: Linux 4.14 or later is needed",
			strerror(errno));
	*c->fork_guard = 1;
	for (uint32_t i = 0; i < c->max_ops; i++)
		STAILQ_INSERT_TAIL(&c->free_ops, &c->ops[i], link);
	return RY_OK;
}

static enum ry_status make_epoll(struct ry_client *c)
{
	struct epoll_event event = {.events = EPOLLIN};

	c->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	/* Drained without looking first, see read_event(). */
	if (c->epoll_fd < 0 || fcntl(c->cq_wake_fd, F_SETFL, O_NONBLOCK) ||
		epoll_ctl(c->epoll_fd, EPOLL_CTL_ADD, c->cq_wake_fd, &event) ||
		epoll_ctl(c->epoll_fd, EPOLL_CTL_ADD, c->socket_fd, &event))
		return ryc_fail(c, RY_ERR_LIMIT, "attach: epoll: %s", strerror(errno));
	return RY_OK;
}

static void unmap(struct ryc_map *m)
{
	if (m->base)
		munmap(m->base, (m->bytes + m->page_bytes - 1) / m->page_bytes * m->page_bytes);
	m->base = NULL;
}
