/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Shared-memory ABI between a client (librailyard) and the daemon (its control lcore).
 *
 * One memfd of 4 KiB pages, mapped read-write by both, holds in this order: struct ry_ring_header, the submit ring's
 * indices, the complete ring's indices, the submit entries, the complete entries, the slots. Nothing in it is trusted
 * by the daemon: it validates every index and length on every access and copies a request before it looks at it. Each
 * index has one writer. Both sides may sleep: the sleeper sets need_wakeup, issues a full fence, looks at the ring once
 * more, then sleeps; the producer publishes its index, issues a full fence, and wakes the other side when need_wakeup
 * is set (pattern of io_uring's SQPOLL). The client wakes the daemon by writing a uint64_t 1 to the fourth descriptor
 * of the attach reply, an eventfd that it must not read; it sleeps until the fifth polls readable, and then reads that
 * until it is not: up to 64 bytes at a time, whose values and number mean nothing.
 */
#ifndef RAILYARD_RING_H
#define RAILYARD_RING_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#include <railyard/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define RY_RING_MAGIC 0x31676e6972797972ull /* "ryyring1" in memory */
#define RY_RING_ABI_MAJOR 1u
#define RY_RING_ABI_MINOR 0u
#define RY_RING_ENTRIES_MAX 1024u

/* Written once by the daemon before the client maps it; all offsets are from the start of the memfd. 128 bytes. */
struct ry_ring_header {
	uint64_t magic;
	uint16_t abi_major; /* equal on both sides */
	uint16_t abi_minor; /* the smaller of both sides is spoken */
	uint32_t total_bytes;
	uint32_t n_entries; /* of each ring, and of the slots; a power of two */
	uint32_t sq_index_offset;
	uint32_t cq_index_offset;
	uint32_t sq_offset;
	uint32_t cq_offset;
	uint32_t slot_offset;
	uint32_t slot_bytes; /* sizeof(struct ry_slot) of the daemon, a multiple of 64 */
	uint32_t reserved0;
	uint64_t read_arena_bytes;
	uint64_t put_arena_bytes;
	uint64_t client_id;
	uint8_t reserved[56];
};
static_assert(sizeof(struct ry_ring_header) == 128, "ABI");

/* Indices run free over 32 bits and are masked on use. One line each, so that the two sides never share one. 192 bytes.
 */
struct ry_ring_index {
	uint32_t head; /* next entry to consume; written by the consumer, read by the producer */
	uint8_t pad0[60];
	uint32_t tail; /* next entry to produce; written by the producer, read by the consumer */
	uint8_t pad1[60];
	uint32_t need_wakeup; /* written by the consumer around its sleep, read by the producer */
	uint8_t pad2[60];
};
static_assert(sizeof(struct ry_ring_index) == 192, "ABI");

enum ry_op {
	RY_OP_LOOKUP = 1,   /* key -> descriptor in the slot */
	RY_OP_READ = 2,     /* key, offset, length -> lease */
	RY_OP_PUT = 3,      /* key, put id, one part in the put arena */
	RY_OP_DELETE = 4,   /* key, generation (0 = any) */
	RY_OP_LIST = 5,     /* prefix in the slot's key, cursor in `offset` -> lease of packed struct ry_list_entry;
			       `length` 0 = as many as a page holds */
	RY_OP_CANCEL = 6,   /* arg = ticket of the operation to cancel; has no completion of its own */
	RY_OP_RELEASE = 7,  /* arg = lease id; has no completion */
	RY_OP_PUT_QUERY = 8 /* key, put id -> outcome of that put */
};

/* Submit entry, written by the client. 64 bytes. */
struct ry_sqe {
	uint64_t ticket; /* chosen by the client, returned in the completion; unique among its unfinished operations */
	uint8_t op;      /* enum ry_op */
	uint8_t reserved0;
	uint16_t slot;        /* slot that holds the key and takes the result; free until this operation completes */
	uint32_t flags;       /* enum ry_op_flags */
	uint64_t deadline_ns; /* absolute, CLOCK_MONOTONIC; 0 = the daemon's default */
	uint64_t offset;      /* READ: first byte. PUT: this part's offset in the object. LIST: cursor */
	uint64_t length;      /* READ: bytes, UINT64_MAX = to the end. PUT: this part's bytes. LIST: most entries */
	uint64_t arg; /* PUT: offset of the part in the put arena. DELETE: generation. CANCEL, RELEASE: see above */
	uint16_t key_bytes;
	uint8_t reserved1[6];
	uint64_t reserved2;
};
static_assert(sizeof(struct ry_sqe) == 64, "ABI");

/* Completion entry, written by the daemon. 64 bytes. */
struct ry_cqe {
	uint64_t ticket;
	uint32_t status; /* enum ry_status */
	uint8_t op;
	uint8_t is_verified; /* READ: every stripe matched its checksum */
	uint16_t slot;
	uint64_t bytes;      /* READ: bytes in the lease. PUT: bytes of the object so far. LIST: entries */
	uint64_t generation; /* of the object read, put or found */
	uint64_t cursor;     /* LIST: where to go on, 0 = the end */
	uint32_t lease_id;   /* 0 = none */
	uint16_t rail_idx;   /* rail to blame, RY_RAIL_NONE = none */
	uint16_t reserved0;
	uint64_t done_ns; /* CLOCK_MONOTONIC when the daemon published this */
	uint64_t reserved1;
};
static_assert(sizeof(struct ry_cqe) == 64, "ABI");

/* What a lookup finds. 64 bytes. */
struct ry_object {
	uint64_t size_bytes;
	uint64_t generation;
	uint64_t etag;   /* identity of this generation's content: XXH3-64 over its stripe checksums and size */
	uint64_t ttl_ns; /* time left, 0 = no expiry */
	uint32_t stripe_bytes;
	uint32_t stripe_count;
	uint8_t has_checksums;
	uint8_t reserved[23];
};
static_assert(sizeof(struct ry_object) == 64, "ABI");

/* One piece of the read arena, in object order. */
struct ry_extent {
	uint64_t offset; /* in the read arena */
	uint64_t bytes;
};

/* What one rail did for one read. 56 bytes. */
struct ry_rail_stats {
	char name[RY_NAME_MAX_BYTES];
	uint64_t bytes;
	uint64_t busy_ns; /* time with at least one segment of this read on the rail */
	uint32_t segments;
	uint32_t reserved;
};

/* Where one read's time went; all figures are measured by the daemon for this read alone. */
struct ry_read_stats {
	uint64_t object_ns;      /* submit seen -> completion published */
	uint64_t queue_ns;       /* submit seen -> admitted */
	uint64_t lookup_ns;      /* waiting for the descriptor */
	uint64_t plan_ns;        /* CPU time of planning and hand-out */
	uint64_t transfer_ns;    /* first post -> last segment landed */
	uint64_t verify_ns;      /* hashing after the last segment landed (not overlapped with transfer) */
	uint64_t commit_ns;      /* last verification -> published */
	uint64_t storage_ns;     /* sum of the store's own service time over all segments */
	uint64_t store_queue_ns; /* sum of waiting time in the store's queues */
	uint64_t wire_bytes;     /* bytes that moved, whole edge stripes included */
	uint64_t hashed_bytes;
	uint32_t n_segments;
	uint8_t class_ref; /* enum ry_class by the reference rule */
	uint8_t class_own; /* enum ry_class by the largest share */
	uint8_t n_rails;
	uint8_t reserved0;
	uint16_t class_share_permille; /* of the read's span that class_own stands for; 0 = class unknown */
	uint8_t reserved[6];
	struct ry_rail_stats rails[RY_RAILS_MAX];
};
static_assert(offsetof(struct ry_read_stats, rails) == 104, "ABI");

/*
 * One slot: the request's variable part, written by the client before it submits, and the result's, written by the
 * daemon before it completes. A slot belongs to the daemon from submit to completion.
 */
struct ry_slot {
	/* written by the client */
	uint64_t put_id[2];       /* PUT, PUT_QUERY: chosen at random by the client */
	uint64_t size_bytes;      /* PUT: whole object, RY_SIZE_UNKNOWN until the commit part */
	uint64_t ttl_ns;          /* PUT: 0 = no expiry */
	uint32_t stripe_bytes;    /* PUT */
	uint32_t n_checksums;     /* PUT: stripes of this part */
	uint64_t checksum_offset; /* PUT: offset in the put arena of n_checksums XXH3-64 values, 8-byte aligned */
	uint8_t key[RY_KEY_MAX_BYTES];
	/* written by the daemon */
	struct ry_object object;
	uint32_t n_extents;
	uint32_t reserved0;
	struct ry_extent extents[RY_EXTENTS_MAX];
	char cause[RY_CAUSE_MAX_BYTES]; /* NUL-terminated; empty on success */
	struct ry_read_stats stats;
	uint8_t reserved[64];
};
static_assert(sizeof(struct ry_slot) == 6464, "ABI; a multiple of 64, so that slots start on cache lines");

/* One entry of a LIST lease; entries are packed one after the other, each padded to 8 bytes. */
struct ry_list_entry {
	uint64_t size_bytes;
	uint64_t generation;
	uint16_t key_bytes;
	uint8_t reserved[6];
	/* key_bytes bytes of key follow, then padding to 8 */
};
static_assert(sizeof(struct ry_list_entry) == 24, "ABI");

#ifdef __cplusplus
}
#endif
#endif
