/* SPDX-License-Identifier: BSD-3-Clause */
#include "daemon/client.h"

#include "daemon/numa.h"
#include "eal/eal.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Where the parts of the ring memfd start; every part starts on a cache line. */
struct layout {
	uint32_t sq_index;
	uint32_t cq_index;
	uint32_t sq;
	uint32_t cq;
	uint32_t slots;
	uint32_t total;
};

static int make_wakers(struct client *c, const struct client_conf *conf, char *message, uint32_t message_bytes);
static int plan_layout(uint32_t n_entries, struct layout *l);
static int map_all(struct client *c, const struct client_conf *conf, const struct layout *l, char *message,
	uint32_t message_bytes);
static const char *remedy(int rc, const char *usual);
static int register_all(struct client *c, const struct client_conf *conf, char *message, uint32_t message_bytes);
static void write_header(struct client *c, const struct client_conf *conf, const struct layout *l);
static int explain(int rc, char *message, uint32_t message_bytes, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

int client_create(const struct client_conf *conf, char *message, uint32_t message_bytes, struct client **out)
{
	struct layout l;
	struct client *c;
	int rc;

	rc = plan_layout(conf->n_entries, &l);
	if (rc < 0)
		return explain(rc, message, message_bytes, "%u ring entries: a power of two up to %u is possible",
			conf->n_entries, RY_RING_ENTRIES_MAX);
	if (posix_memalign((void **)&c, 64, sizeof(*c)))
		return explain(-ENOMEM, message, message_bytes, "no memory for a client");
	memset(c, 0, sizeof(*c));
	c->id = conf->id;
	c->pid = conf->pid;
	c->uid = conf->uid;
	c->n_entries = conf->n_entries;
	c->ring.fd = c->read_arena.fd = c->put_arena.fd = -1;
	c->sq_event_fd = c->cq_wake_fd[0] = c->cq_wake_fd[1] = -1;
	rc = make_wakers(c, conf, message, message_bytes);
	if (rc == 0)
		rc = map_all(c, conf, &l, message, message_bytes);
	if (rc == 0)
		rc = register_all(c, conf, message, message_bytes);
	if (rc < 0)
		goto err_client;
	c->numa_node = numa_of_memory(c->read_arena.base);
	write_header(c, conf, &l);
	*out = c;
	return 0;

err_client:
	client_destroy(c);
	return rc;
}

/* Accepts what client_create could not finish. */
void client_destroy(struct client *c)
{
	if (!c)
		return;
	extent_map_destroy(c->read_map);
	region_unregister(c->put_region);
	region_unregister(c->read_region);
	if (c->put_arena.base)
		guard_remove(c->put_arena.base);
	if (c->ring.base)
		guard_remove(c->ring.base);
	mapping_unmap(&c->put_arena);
	mapping_unmap(&c->read_arena);
	mapping_unmap(&c->ring);
	/* The client may keep its copy: closing ours would leave it in the set for as long. */
	if (c->sq_event_fd >= 0) {
		epoll_ctl(c->sleep_set_fd, EPOLL_CTL_DEL, c->sq_event_fd, NULL);
		close(c->sq_event_fd);
	}
	for (int i = 0; i < 2; i++) {
		if (c->cq_wake_fd[i] >= 0)
			close(c->cq_wake_fd[i]);
	}
	free(c);
}

/* The flag of the call, not the flags of a descriptor, keeps it from waiting: those of [1] are the client's to change.
 * EAGAIN means that it has not taken earlier ones, and its end is readable already. A socket, not a pipe: a reader that
 * faults in the middle of a pipe's read holds up its writer. */
void client_wake(const struct client *c)
{
	if (send(c->cq_wake_fd[0], "", 1, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		return;
}

/*
 * Each direction has a descriptor of this client's own. Control learns of the eventfd by edges and never reads it, so a
 * client that reads it, fills it or changes its flags makes its own wake-ups late and nobody else's.
 */
static int make_wakers(struct client *c, const struct client_conf *conf, char *message, uint32_t message_bytes)
{
	struct epoll_event e = {.events = EPOLLIN | EPOLLET};
	int room = 1; /* the kernel takes its least: a handful of unread wake-ups */

	c->sleep_set_fd = conf->sleep_set_fd;
	c->sq_event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (c->sq_event_fd >= 0 && epoll_ctl(c->sleep_set_fd, EPOLL_CTL_ADD, c->sq_event_fd, &e) == 0 &&
		socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, c->cq_wake_fd) == 0 &&
		setsockopt(c->cq_wake_fd[0], SOL_SOCKET, SO_SNDBUF, &room, sizeof(room)) == 0 &&
		shutdown(c->cq_wake_fd[0], SHUT_RD) == 0)
		return 0;
	return explain(-errno, message, message_bytes,
		"no descriptors to wake each other with: %s; raise the limit of open files", strerror(errno));
}

static int plan_layout(uint32_t n, struct layout *l)
{
	if (n < 2 || n > RY_RING_ENTRIES_MAX || (n & (n - 1)))
		return -EINVAL;
	l->sq_index = sizeof(struct ry_ring_header);
	l->cq_index = l->sq_index + sizeof(struct ry_ring_index);
	l->sq = l->cq_index + sizeof(struct ry_ring_index);
	l->cq = l->sq + n * (uint32_t)sizeof(struct ry_sqe);
	l->slots = l->cq + n * (uint32_t)sizeof(struct ry_cqe);
	l->total = (l->slots + n * (uint32_t)sizeof(struct ry_slot) + 4095u) & ~4095u;
	return 0;
}

static int map_all(
	struct client *c, const struct client_conf *conf, const struct layout *l, char *message, uint32_t message_bytes)
{
	char name[48];
	int rc;

	snprintf(name, sizeof(name), "railyard-ring-%u", conf->id);
	rc = arena_map_shared(name, l->total, NULL, &c->ring);
	if (rc < 0)
		return explain(rc, message, message_bytes, "no memory for rings of %u bytes: %s; %s", l->total,
			strerror(-rc), remedy(rc, "detach other clients"));
	snprintf(name, sizeof(name), "railyard-read-%u", conf->id);
	rc = arena_map_read(name, conf->read_arena_bytes, conf->want_hugepages, conf->want_stop, &c->read_arena);
	if (rc < 0)
		return explain(rc, message, message_bytes, "no memory for a read arena of %" PRIu64 " bytes: %s; %s",
			conf->read_arena_bytes, strerror(-rc), remedy(rc, "ask for a smaller one"));
	snprintf(name, sizeof(name), "railyard-put-%u", conf->id);
	rc = arena_map_shared(name, conf->put_arena_bytes, conf->want_stop, &c->put_arena);
	if (rc < 0)
		return explain(rc, message, message_bytes, "no memory for a put arena of %" PRIu64 " bytes: %s; %s",
			conf->put_arena_bytes, strerror(-rc), remedy(rc, "ask for a smaller one"));
	return 0;
}

/* They are files to the kernel, whose limits are those of the daemon. */
static const char *remedy(int rc, const char *usual)
{
	if (rc == -EFBIG)
		return "raise the daemon's limit of file sizes (ulimit -f)";
	return rc == -EMFILE || rc == -ENFILE ? "raise the daemon's limit of open files (ulimit -n)" : usual;
}

/* A client can make pages of what it may write unreadable, so both are guarded; the read arena is sealed against that.
 */
static int register_all(struct client *c, const struct client_conf *conf, char *message, uint32_t message_bytes)
{
	int rc;

	rc = eal_check_memlock(
		region_pinned_bytes(conf->regions, c->read_arena.bytes + c->put_arena.bytes), message, message_bytes);
	if (rc < 0)
		return rc;
	rc = guard_add(c->ring.base, c->ring.bytes);
	if (rc == 0)
		rc = guard_add(c->put_arena.base, c->put_arena.bytes);
	if (rc < 0)
		return explain(rc, message, message_bytes, "no guard for client memory: %s; detach other clients",
			strerror(-rc));
	rc = region_register(conf->regions, c->read_arena.base, c->read_arena.bytes, MEM_HOST, &c->read_region);
	if (rc == 0)
		rc = region_register(conf->regions, c->put_arena.base, c->put_arena.bytes, MEM_HOST, &c->put_region);
	if (rc == -ENODEV)
		return explain(rc, message, message_bytes,
			"no rail is left: the devices of all were removed; attach again when one is back");
	if (rc < 0)
		return explain(rc, message, message_bytes, "arenas cannot be registered on every rail: %s",
			region_why(conf->regions, rc));
	rc = extent_map_create(c->read_arena.bytes, EXTENT_GRANULE_BYTES, &c->read_map);
	if (rc < 0)
		return explain(rc, message, message_bytes, "no extent map for a read arena of %" PRIu64 " bytes: %s",
			conf->read_arena_bytes, strerror(-rc));
	return 0;
}

static void write_header(struct client *c, const struct client_conf *conf, const struct layout *l)
{
	struct ry_ring_header *h = (struct ry_ring_header *)(void *)c->ring.base;

	*h = (struct ry_ring_header){
		.magic = RY_RING_MAGIC,
		.abi_major = RY_RING_ABI_MAJOR,
		.abi_minor = RY_RING_ABI_MINOR,
		.total_bytes = (uint32_t)c->ring.bytes,
		.n_entries = conf->n_entries,
		.sq_index_offset = l->sq_index,
		.cq_index_offset = l->cq_index,
		.sq_offset = l->sq,
		.cq_offset = l->cq,
		.slot_offset = l->slots,
		.slot_bytes = sizeof(struct ry_slot),
		.read_arena_bytes = c->read_arena.bytes,
		.put_arena_bytes = c->put_arena.bytes,
		.client_id = conf->id,
	};
	c->header = h;
	c->sq_index = (struct ry_ring_index *)(void *)(c->ring.base + l->sq_index);
	c->cq_index = (struct ry_ring_index *)(void *)(c->ring.base + l->cq_index);
	c->sq = (struct ry_sqe *)(void *)(c->ring.base + l->sq);
	c->cq = (struct ry_cqe *)(void *)(c->ring.base + l->cq);
	c->slots = (struct ry_slot *)(void *)(c->ring.base + l->slots);
}

static int explain(int rc, char *message, uint32_t message_bytes, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(message, message_bytes, fmt, args);
	va_end(args);
	return rc;
}
