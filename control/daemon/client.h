/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An attached client as the daemon sees it.
 *
 * Created by the work thread (memfds, mappings, registration), driven by the control lcore from attach to detach,
 * destroyed by the work thread after control has let go of it. The api thread holds its control connection: when that
 * closes, the client is detached.
 */
#ifndef RY_CLIENT_H
#define RY_CLIENT_H

#include <stdalign.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <railyard/ring.h>

#include "mem/mem.h"
#include "sync/sync.h"

#ifdef __cplusplus
extern "C" {
#endif

struct client {
	/* written by work before control sees it, read-only afterwards */
	uint32_t id;
	pid_t pid;
	uid_t uid;
	uint32_t n_entries;
	struct mapping ring;
	struct mapping read_arena;
	struct mapping put_arena;
	struct region *read_region;
	struct region *put_region;
	struct extent_map *read_map; /* control's from attach on */
	struct ry_ring_header *header;
	struct ry_ring_index *sq_index;
	struct ry_ring_index *cq_index;
	struct ry_sqe *sq;
	struct ry_cqe *cq;
	struct ry_slot *slots;
	int numa_node; /* of its read arena, -1 = unknown */
	/* Waking up. The client gets the eventfd and [1], with all rights over what it gets: nobody here reads, writes
	 * or relies on the flags of either. */
	int sq_event_fd; /* the client writes it; in the set that control sleeps on */
	int sleep_set_fd;
	int cq_wake_fd[2]; /* a socket pair: client_wake sends on [0], the client sleeps on [1] */
	/* control's */
	alignas(64) void *state; /* control's record of this client */
};

/* Work thread: makes memfds, maps, seals, registers on all rails. 0 or -errno with `message`. */
struct client_conf {
	uint32_t id;
	pid_t pid;
	uid_t uid;
	uint32_t n_entries;
	uint64_t read_arena_bytes;
	uint64_t put_arena_bytes;
	bool want_hugepages;
	struct region_set *regions; /* the node's */
	int sleep_set_fd;           /* the epoll set that control sleeps on */
	const uint32_t *want_stop;  /* not 0: nobody wants the client any more, -ECANCELED; may be NULL */
};
int client_create(const struct client_conf *conf, char *message, uint32_t message_bytes, struct client **out);
/* Work thread, after control gave it back (or it never saw it). */
void client_destroy(struct client *c);
/* Makes the client's descriptor readable. Never waits, whatever the client did to it. Control lcore. */
void client_wake(const struct client *c);

#ifdef __cplusplus
}
#endif
#endif
