/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The unit of transfer and what it carries between the control lcore and one rail lcore.
 *
 * Control takes a segment from its pool, fills it, and pushes it on the rail's work ring; from then until it comes back
 * on the rail's event ring it belongs to the rail lcore, except cancel_want. A segment is one READ (or PULL) message
 * with one window and one completion, or one order to hash a stripe. States on the rail: QUEUED -> HELD -> POSTED ->
 * LANDED -> DONE, plus CANCELLING and FENCING; an error ends in DONE with a status. VERIFIED is a state of the stripe,
 * not of the segment.
 */
#ifndef RY_SEGMENT_H
#define RY_SEGMENT_H

#include <stdalign.h>
#include <stdint.h>

#define XXH_STATIC_LINKING_ONLY /* for the body of XXH3_state_t, which lives inside struct stripe_job */
#include <xxhash.h>

#include <railyard/status.h>
#include <railyard/types.h>

#ifdef __cplusplus
extern "C" {
#endif

struct qp;
struct window;
struct segment;

#define PROBE_BYTES (64u << 10) /* a small probe passes where data fails: MTU, one bad lane */
#define SEG_PARTS_MAX 8u        /* = WIRE_PARTS_MAX */

enum seg_kind {
	SEG_READ = 1,   /* reader side: READ at the peer */
	SEG_PULL = 2,   /* store side: PULL from the writer */
	SEG_VERIFY = 3, /* hash what is left of `job`; nothing moves */
	SEG_PROBE = 4,  /* PING: PROBE_BYTES each way over the data path, outside credits and budgets; lands at dst */
};

enum seg_state {
	SEG_QUEUED = 0,
	SEG_HELD = 1,   /* taken from the ring, waits for a credit, a slot or send-queue room */
	SEG_POSTED = 2, /* READ sent; its window is BOUND */
	SEG_CANCELLING =
		3, /* to be cancelled: CANCEL is sent as soon as there is room, DONE awaited until fence_timeout */
	SEG_FENCING = 4, /* window being closed without the peer's help */
	SEG_CLOSING = 5, /* DONE received, window INVALIDATING */
	SEG_LANDED = 6,  /* no byte of it can change any more; waits to be hashed */
	SEG_DONE = 7,
};

/* A PULL over device windows: the writer grants a window, and this rail reads it. */
enum seg_grant {
	SEG_GRANT_NONE = 0,
	SEG_GRANT_GIVEN = 1, /* the READ waits for room in the send queue */
	SEG_GRANT_READING = 2,
	SEG_GRANT_READ = 3, /* the bytes are here; PULLED is to be sent */
};

/*
 * The hash of one stripe that several segments carry. XXH3-64 streaming wants bytes in order, so a stripe has one hash
 * owner at a time: the owner rail hashes its segments as they land in offset order. Whatever came out of order, or by
 * another rail after a split, is left; when all segments are back control hands the rest to the rail that finished last
 * as a SEG_VERIFY (the rings order the hand-over), so that no byte is hashed twice.
 */
struct stripe_job {
	/* written by control at creation, read by rails */
	uint8_t *base;      /* where the stripe starts in memory */
	uint64_t len_bytes; /* of the whole stripe */
	uint64_t checksum;  /* expected */
	uint16_t owner_rail;
	struct stripe_job *next; /* control's free list */
	/* written by the hash owner; control reads after the last segment came back */
	uint64_t hashed_bytes; /* prefix that is in `state` */
	XXH3_state_t state;
};

/* Adjacent in memory and in the object: a part is a slice of one stripe, or one of several whole small stripes. */
struct seg_part {
	uint32_t stripe_idx;
	uint32_t len_bytes;
	uint32_t offset;   /* in the stripe */
	uint32_t is_whole; /* the part is the whole stripe: hashed on its own against `checksum` */
	uint64_t checksum;
};

struct segment {
	/* ---- written by control before hand-out; read by the rail ---- */
	uint8_t kind; /* enum seg_kind */
	uint8_t n_parts;
	uint8_t is_start;  /* READ: the first of its read (WIRE_F_START) */
	uint8_t want_hash; /* 0: the descriptor has no checksums */
	uint8_t reserved0;
	uint16_t rail_idx;
	uint16_t pair_idx;
	uint16_t region;    /* that dst lies in */
	uint32_t len_bytes; /* of all parts */
	struct qp *qp;
	uint8_t *dst; /* where the first part lands; parts follow each other */
	uint64_t handle;
	uint64_t generation;
	uint64_t deadline_ns;     /* of the request; the READ's ttl follows from it */
	struct stripe_job *job;   /* NULL when every part is whole, or want_hash is 0 */
	void *owner;              /* control's record; the rail never looks inside */
	uint32_t owner_aux;       /* control's note */
	uint32_t owner_ahead_kib; /* control's note: in flight on the rail at hand-out, this one included */
	struct seg_part parts[SEG_PARTS_MAX];
	struct segment *owner_next; /* control's list of a request's segments */
	struct segment *owner_prev;

	/* ---- written by control while the rail owns the rest; read by the rail when rail_cancel_scan was called ----
	 */
	alignas(64) uint32_t cancel_want;
	uint8_t is_expired; /* control's own note: its segment deadline passed */

	/* ---- written by the rail until it hands the segment back; read by control afterwards ---- */
	alignas(64) uint8_t state; /* enum seg_state */
	uint8_t is_cancel_sent;
	uint8_t is_silent;  /* CANCEL was not answered within fence_timeout: path evidence */
	uint8_t is_busy;    /* the peer answered BUSY: hand out again, nothing failed */
	uint8_t bad_part;   /* CHECKSUM: which part */
	uint8_t grant;      /* PULL over device windows: enum seg_grant */
	uint32_t status;    /* enum ry_status */
	uint32_t slot;      /* in the rail's active table */
	uint32_t hash_part; /* verify: next part, and */
	uint32_t hash_off;  /* bytes of it done */
	uint32_t retry_us;  /* BUSY */
	uint32_t grant_key; /* of the writer's window, and */
	uint32_t grant_cookie;
	uint64_t request_id;
	struct segment *next;  /* rail's queues */
	uint64_t posted_ns;    /* 0 = never posted */
	uint64_t cancelled_ns; /* when the cancel was seen; the fence's clock */
	uint64_t landed_ns;    /* DONE received */
	uint64_t done_ns;      /* handed back */
	uint64_t bytes;        /* as DONE says */
	uint64_t got_generation;
	uint64_t storage_ns;
	uint64_t queue_ns;
	uint64_t hashed_bytes; /* hashed for this segment */
};

#ifdef __cplusplus
}
#endif
#endif
