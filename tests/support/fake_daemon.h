/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A daemon for tests of librailyard: speaks the attach handshake on a socket in a temporary directory and plays the
 * daemon's side of the rings.
 *
 * A test either takes entries and publishes completions itself (fake_take, fake_complete), from its own thread and in
 * any order it likes, or starts a server thread (fake_serve) that keeps objects in memory, sleeps by the NEED_WAKEUP
 * handshake, and logs what it was asked.
 */
#ifndef RY_FAKE_DAEMON_H
#define RY_FAKE_DAEMON_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include <railyard/railyard.h>

#define FAKE_OBJECTS_MAX 8u
#define FAKE_LOG_MAX 256u
#define FAKE_HELD_MAX 8u

struct fake_opts {
	uint32_t n_entries;        /* 0 = 16 */
	uint64_t read_arena_bytes; /* 0 = 1 MiB */
	uint64_t put_arena_bytes;  /* 0 = 1 MiB */
	uint32_t first_index;      /* of both rings */
	int version;               /* in the answer to hello; 0 = 1 */
	uint16_t abi_major;        /* in the ring's header; 0 = the right one */
	uint16_t abi_minor;
	unsigned n_fds;          /* 0 = 5 */
	const char *refusal;     /* attach is answered with an error of this status */
	const char *why;         /* its message; NULL = "no room" */
	bool is_silent;          /* accepts, never answers */
	unsigned attach_delay_s; /* how long the arenas take */
	bool want_pieces;        /* replies come in single bytes */
	bool want_garbage;       /* the reply to hello is no JSON */
	bool want_bad_slots;     /* the header places the slots outside */
};

struct fake_object {
	char key[64]; /* empty = free */
	uint8_t *data;
	uint64_t bytes;
	uint64_t generation;
	uint32_t stripe_bytes;
	uint64_t put_id[2]; /* that made it */
	bool is_committed;
	bool is_bad; /* a checksum did not match */
};

/* One entry that the server took, with what its slot said. */
struct fake_log {
	struct ry_sqe e;
	struct ry_slot slot;
};

struct fake {
	struct fake_opts opts;
	char dir[64];
	char path[96];
	int listen_fd;
	int socket_fd; /* to the client */
	int fds[5];
	pthread_t handshake_thread;
	/* as asked for */
	uint64_t asked_read_bytes;
	uint64_t asked_entries;
	int asked_version;
	/* the rings */
	struct ry_ring_header *header;
	struct ry_ring_index *sq_index;
	struct ry_ring_index *cq_index;
	struct ry_sqe *sq;
	struct ry_cqe *cq;
	struct ry_slot *slots;
	uint8_t *read_arena;
	uint8_t *put_arena;
	uint32_t sq_head;
	uint32_t cq_tail;
	uint32_t n_kicks; /* cq eventfd writes */
	/* the server */
	pthread_t server_thread;
	bool is_serving;
	uint32_t stop;
	uint32_t n_wakeups; /* times that the server was woken by the client's eventfd write */
	struct fake_object objects[FAKE_OBJECTS_MAX];
	struct fake_log log[FAKE_LOG_MAX];
	uint32_t n_log;
	uint32_t n_leases; /* handed out and not released */
	uint32_t next_lease;
	struct ry_extent leases[16]; /* by id % 16; bytes 0 = free */
	uint64_t read_next;          /* where the next lease is tried */
	/* knobs, set before fake_serve */
	uint32_t n_listed;   /* LIST invents so many keys */
	uint32_t n_hold;     /* READ and PUT complete, oldest first, only when so many are held, or the object's end was
				asked for */
	uint32_t n_held_max; /* out: the most that were held */
	uint32_t replace_after; /* after so many READs the object gets another generation; 0 = never */
	uint64_t grow_bytes;    /* the object is so large when a READ is served; 0 = it stays as it is */
	uint32_t fail_at;       /* the READ or PUT of this number (from 1) ends with fail_status */
	uint32_t fail_status;
	uint64_t budget_bytes; /* a READ of more ends with RY_ERR_BUDGET; 0 = no such budget */
	uint32_t die_at;       /* hangs up when it takes the READ or PUT of this number */
	bool want_lost_answer; /* the next COMMIT is done, but answered with UNKNOWN_OUTCOME */
	struct ry_sqe held[FAKE_HELD_MAX];
	uint32_t n_held;
	uint32_t n_moves; /* READs and PUTs taken */
};

/* Listens, and answers one handshake on a thread. */
struct fake *fake_start(const struct fake_opts *opts);
/* Attaches a client to it, with a time-out of 10 s, and waits for the handshake's thread. `cause` may be NULL, else
 * RY_CAUSE_MAX_BYTES. */
enum ry_status fake_attach(struct fake *f, const struct ry_attach_opts *more, char *cause, struct ry_client **client);
void fake_stop(struct fake *f);
/* What the client sees when the daemon dies. */
void fake_hang_up(struct fake *f);

/* Takes the next submit entry; false: there is none. */
bool fake_take(struct fake *f, struct ry_sqe *e);
/* Publishes a completion and kicks the client as the ABI says. */
void fake_complete(struct fake *f, const struct ry_cqe *c);
/* Completes `e` with a status and bytes, nothing else. */
void fake_answer(struct fake *f, const struct ry_sqe *e, uint32_t status, uint64_t bytes);

void fake_serve(struct fake *f);
/* Puts an object where the server finds it: byte i is fake_byte(i). */
struct fake_object *fake_add(struct fake *f, const char *key, uint64_t bytes, uint32_t stripe_bytes);
struct fake_object *fake_find(struct fake *f, const void *key, uint16_t key_bytes);
uint8_t fake_byte(uint64_t i);
/* Logged entries of one kind. */
uint32_t fake_count(const struct fake *f, enum ry_op op);
const struct fake_log *fake_nth(const struct fake *f, enum ry_op op, uint32_t n);

#endif
