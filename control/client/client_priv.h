/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The inside of librailyard, seen by its own sources only; names start with ryc_.
 *
 * One thread uses a client, so nothing here locks. What the daemon shares are the rings, their slots and the arenas;
 * all bookkeeping (free slots, operations, put arena blocks) is in private memory. An operation record and its slot
 * have the same index: the slot is the daemon's from submit to completion, and stays taken until the completion was
 * reaped, so results are read from it in place.
 */
#ifndef RY_CLIENT_PRIV_H
#define RY_CLIENT_PRIV_H

#include <stdarg.h>
#include <stdlib.h>
#include <sys/queue.h>

#include <railyard/railyard.h>

#define RYC_FDS 5u
#define RYC_PUT_PART_CHECKSUMS 4096u /* stripes of one part: what the wire carries in one message */
#define RYC_GRACE_NS 250000000ull    /* a daemon that is this late with a deadline is not waited for */
#define RYC_ALIGN_BYTES 64u          /* of blocks of the put arena */

enum ryc_op_state {
	RYC_FREE = 0,
	RYC_SUBMITTED = 1, /* the slot is the daemon's */
	RYC_DONE = 2,      /* `cqe` is set, the slot holds the result */
};

/* ---- put arena ---- */
struct ryc_block {
	uint64_t offset;
	uint64_t bytes;
	TAILQ_ENTRY(ryc_block) link; /* by offset */
};
TAILQ_HEAD(ryc_block_list, ryc_block);

struct ryc_arena {
	uint8_t *base;
	uint64_t bytes;
	struct ryc_block_list blocks;
};

/* First fit of `bytes`, rounded up to RYC_ALIGN_BYTES. NULL: no gap (or no memory for the record). */
struct ryc_block *ryc_arena_alloc(struct ryc_arena *a, uint64_t bytes);
/* NULL is allowed. */
void ryc_arena_free(struct ryc_arena *a, struct ryc_block *b);

/* ---- hashing: streaming XXH3-64 with the fastest code for this CPU ---- */
struct ryc_hash;                     /* opaque */
struct ryc_hash *ryc_hash_new(void); /* started; NULL without memory */
void ryc_hash_free(struct ryc_hash *h);
void ryc_hash_update(struct ryc_hash *h, const void *data, uint64_t bytes);
/* Copies and hashes in cache-sized slices. */
void ryc_hash_copy(struct ryc_hash *h, void *to, const void *from, uint64_t bytes);
/* The value so far; starts anew. */
uint64_t ryc_hash_take(struct ryc_hash *h);

/* ---- operations ---- */
struct ryc_op {
	uint64_t ticket; /* sequence << 16 | index; 0 = free */
	void *user;
	struct ryc_block *block; /* put arena memory that is freed with the operation */
	uint64_t generation;     /* READ: the only one that will do, 0 = any */
	uint64_t deadline_ns;    /* absolute, 0 = the daemon's default */
	struct ry_cqe cqe;
	STAILQ_ENTRY(ryc_op) link; /* free list or done list */
	uint8_t state;             /* enum ryc_op_state */
	uint8_t op;                /* enum ry_op */
	bool is_internal;          /* waited for by a synchronous call; never on the done list */
	bool is_abandoned;         /* nobody waits any more: cleaned up when it completes */
	bool is_lost;              /* ended here, not by the daemon: the slot holds no result */
	bool has_cancel;
};
STAILQ_HEAD(ryc_op_list, ryc_op);

/* CANCEL or RELEASE that found the submit ring full. */
struct ryc_late {
	uint64_t arg;
	uint8_t op;
};

/* Shared memory, mapped. */
struct ryc_map {
	uint8_t *base;
	uint64_t bytes;
	uint64_t page_bytes; /* of the file behind it: munmap wants whole ones */
};

struct ry_client {
	const struct ry_ring_header *header;
	struct ry_ring_index *sq_index;
	struct ry_ring_index *cq_index;
	struct ry_sqe *sq;
	const struct ry_cqe *cq;
	uint8_t *slots;
	uint32_t slot_bytes;
	uint32_t n_entries;
	uint32_t sq_tail; /* next entry to fill; published up to sq_index->tail */
	uint32_t cq_head;
	uint32_t max_ops;
	uint32_t n_ops;    /* not free */
	uint32_t n_flight; /* SUBMITTED */
	uint32_t n_leases; /* handed out and not given back */
	uint32_t n_idle_reaps;
	bool is_armed;                      /* need_wakeup was set by ry_event_arm */
	enum ry_status dead;                /* RY_OK = attached; else what everything fails with */
	const char *dead_text;              /* static, or last_word */
	char last_word[RY_CAUSE_MAX_BYTES]; /* why the daemon closed the attachment */
	uint64_t next_seq;
	uint64_t spin_ns;
	struct ryc_op *ops;
	struct ryc_op_list free_ops;
	struct ryc_op_list done_ops;
	struct ryc_late *late; /* FIFO: n_late entries from late_head on */
	uint32_t late_head;
	uint32_t n_late;
	uint32_t cap_late;
	struct ryc_arena put_arena;
	struct ryc_hash *hash;
	const uint8_t *read_base;
	uint32_t *fork_guard; /* 1 here; a page that fork() hands to the child zeroed */
	struct ryc_map ring_map;
	struct ryc_map read_map;
	struct ryc_map put_map;
	int socket_fd;
	int sq_event_fd;
	int cq_wake_fd;
	int epoll_fd; /* socket and cq_wake_fd, for ry_event_fd */
	struct ry_client_info info;
	char cause[RY_CAUSE_MAX_BYTES];
};

/* ---- handshake.c ---- */
struct ryc_handshake {
	uint64_t deadline_ns;       /* absolute; of hello, and of attach where memory_timeout_ns is 0 */
	uint64_t memory_timeout_ns; /* of attach, from the answer to hello on */
	uint64_t read_arena_bytes;  /* in: wanted, 0 = default. out: what the daemon gave */
	uint64_t put_arena_bytes;
	uint64_t ring_bytes; /* out */
	uint32_t ring_entries;
	int socket_fd;
	int fds[RYC_FDS]; /* ring, read arena, put arena, the daemon's waker, ours; -1 = none */
	struct ry_client_info info;
	char cause[RY_CAUSE_MAX_BYTES];
};

/* Connects and speaks hello and attach. On failure every descriptor is closed and `cause` is set. */
enum ry_status ryc_handshake(struct ryc_handshake *h, const char *path);
void ryc_handshake_close(struct ryc_handshake *h);
/* What the daemon says unasked before it closes an attachment: its status and sentence. RY_OK: it is no such line. */
enum ry_status ryc_last_word(const char *line, size_t bytes, char cause[RY_CAUSE_MAX_BYTES]);

/* ---- attach.c ---- */
/* Whether a call on this client may go on; sets the cause where it may not. */
enum ry_status ryc_enter(struct ry_client *c);
/* The same, and RY_ERR_INVALID where `pointer`, which the call cannot do without, is NULL. */
enum ry_status ryc_enter_with(struct ry_client *c, const void *pointer, const char *what);
/* Sets the cause text; returns `status`. */
enum ry_status ryc_fail(struct ry_client *c, enum ry_status status, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
uint64_t ryc_now_ns(void);
/* Relative to absolute; 0 stays 0, saturates. */
uint64_t ryc_deadline(uint64_t relative_ns);

/* ---- ring.c ---- */
static inline struct ry_slot *ryc_slot(const struct ry_client *c, const struct ryc_op *op)
{
	return (struct ry_slot *)(void *)(c->slots + (uint64_t)(op - c->ops) * c->slot_bytes);
}

/* A free operation with its slot, or NULL with the cause set (LIMIT). Not submitted yet. */
struct ryc_op *ryc_op_new(struct ry_client *c, enum ry_op kind);
/* Frees an operation that is not SUBMITTED, and its put arena block. */
void ryc_op_free(struct ry_client *c, struct ryc_op *op);
/* Fills the next submit entry. ryc_op_new has checked that there is room. The daemon sees it after ryc_publish. */
struct ry_sqe *ryc_push(struct ry_client *c, struct ryc_op *op);
void ryc_publish(struct ry_client *c);
/* CANCEL or RELEASE: now, or as soon as there is room. */
void ryc_push_late(struct ry_client *c, enum ry_op kind, uint64_t arg);
/* Moves completions from the ring into their operations. */
void ryc_drain(struct ry_client *c);
/* Looks whether the daemon is still there; a system call. */
void ryc_check_socket(struct ry_client *c);
/* Ends everything in flight with `status`; `text` is static, or the client's last_word. */
void ryc_die(struct ry_client *c, enum ry_status status, const char *text);
/* Announces sleep; false: something is done already. */
bool ryc_arm(struct ry_client *c);
void ryc_disarm(struct ry_client *c);
/* Sleeps until something completes, the daemon dies, or now >= until_ns (RY_ERR_TIMEOUT). */
enum ry_status ryc_sleep(struct ry_client *c, uint64_t until_ns);

/* ---- complete.c ---- */
/* Reads the result of a DONE operation and frees it. Leases are checked, counted and then the caller's. */
void ryc_op_finish(struct ry_client *c, struct ryc_op *op, struct ry_completion *out);
/* Waits for an internal operation. RY_OK: it is DONE. RY_ERR_TIMEOUT: abandoned, the daemon overslept its deadline. */
enum ry_status ryc_op_wait(struct ry_client *c, struct ryc_op *op);
/* Cancels an operation that nobody will wait for and leaves it to ryc_drain. */
void ryc_op_abandon(struct ry_client *c, struct ryc_op *op);
/* wait + finish; returns the operation's status with the client's cause set. */
enum ry_status ryc_op_result(struct ry_client *c, struct ryc_op *op, struct ry_completion *out);

/* ---- submit.c ---- */
/* One part of a put whose bytes and checksums are in the put arena already. */
struct ryc_part {
	const uint64_t *put_id;
	const void *key;
	uint16_t key_bytes;
	uint32_t flags;
	uint32_t stripe_bytes;
	uint32_t n_checksums;
	uint64_t size_bytes; /* of the object */
	uint64_t ttl_ns;
	uint64_t offset; /* in the object */
	uint64_t bytes;
	uint64_t arena_offset;
	uint64_t table_offset; /* of the checksums, in the put arena */
};

/* Checks and submits one request; the daemon sees it after ryc_publish. NULL: r->status and the cause say why. */
struct ryc_op *ryc_submit_one(struct ry_client *c, struct ry_request *r);
/* Submits a part; likewise. Reads nothing but *p. */
void ryc_submit_part(struct ry_client *c, struct ryc_op *op, const struct ryc_part *p);
#define RYC_READ_FLAGS ((uint32_t)(RY_F_ALLOW_UNVERIFIED | RY_F_ONE_RAIL | RY_F_FAILOVER | RY_F_FAIL))
enum ry_status ryc_flags_check(struct ry_client *c, uint32_t flags, uint32_t allowed);
enum ry_status ryc_key_check(struct ry_client *c, const void *key, uint16_t key_bytes);
enum ry_status ryc_stripe_check(struct ry_client *c, uint32_t stripe_bytes);
/* A request of a synchronous call. */
struct ry_request ryc_request(enum ry_op op, const void *key, uint16_t key_bytes, uint64_t deadline_ns);
/* Submits one internal operation, waits, returns its status with the cause set; `out` is filled whenever it was
 * submitted. */
enum ry_status ryc_call(struct ry_client *c, struct ry_request *r, struct ry_completion *out);

#endif
