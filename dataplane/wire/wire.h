/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The native wire format: layouts, limits, and the only code that encodes or decodes them (docs/wire.md is the
 * reference).
 *
 * Data messages travel on QPs (or TCP data sockets) and fit RY_MSG_BYTES; metadata travels on the bootstrap socket
 * behind a u32 length. Everything is little-endian, fixed layout, reserved = 0. Structs are laid out so that no padding
 * exists; this code base runs on little-endian hosts only (checked below), so a struct is its own encoding once it is
 * validated. Decoders look at bounds before use, never allocate, never log, and run on any thread.
 */
#ifndef RY_WIRE_H
#define RY_WIRE_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <railyard/types.h>

#ifdef __cplusplus
extern "C" {
#endif

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the wire is little-endian and so must the host be");

#define WIRE_MAGIC 0x64726179u /* "yard" */
#define WIRE_MAJOR 1u
#define WIRE_MINOR 0u
#define WIRE_MSG_BYTES 1024u              /* every data message fits; the size of a posted receive */
#define WIRE_META_MAX_BYTES (64u << 10)   /* one metadata message with its header; longer lists are paged */
#define WIRE_META_LIMIT_BYTES (16u << 20) /* protocol limit of a length prefix; ours accepts WIRE_META_MAX_BYTES */
#define WIRE_DATA_MAX_BYTES (256u << 10)  /* payload of one TCP data frame */
#define WIRE_PROBE_KEY 0u /* no window has it: bytes written to it are the request's half of a PING, and go nowhere */
#define WIRE_PARTS_MAX 8u /* parts of one READ or PULL that this version sends and accepts */

/* ---- TCP framing: every byte on a TCP data socket belongs to a frame. ---- */
enum wire_frame_type {
	WIRE_FRAME_MSG = 1,  /* payload = one data message */
	WIRE_FRAME_DATA = 2, /* payload = bytes for window `key` at `offset` (the TCP form of an RDMA WRITE) */
};

struct wire_frame {
	uint32_t len_bytes; /* payload that follows: <= WIRE_MSG_BYTES (MSG), 1..WIRE_DATA_MAX_BYTES (DATA) */
	uint8_t type;
	uint8_t reserved[3];
	uint32_t key;
	uint32_t reserved2;
	uint64_t offset; /* relative to the window's start */
};
static_assert(sizeof(struct wire_frame) == 24, "wire");

/* ---- Data messages ---- */
enum wire_msg_type {
	WIRE_READ = 1,   /* reader -> store: write these parts of an object into my window */
	WIRE_PULL = 2,   /* store -> writer: the same for a put source; over device windows without a key, answered by
			    GRANT */
	WIRE_DONE = 3,   /* answer to READ and PULL, after the last byte, on the same QP */
	WIRE_CANCEL = 4, /* requester: post nothing more for this request, then answer DONE(CANCELLED) */
	WIRE_BUSY = 5,   /* server: over its limits; ask again after `retry_us` */
	WIRE_PING = 6,
	WIRE_PONG = 7,
	WIRE_GRANT = 8,  /* writer -> store: a window over what PULL asked for, to be read */
	WIRE_PULLED = 9, /* store -> writer: the window was read and may be closed */
};

enum wire_msg_flags {
	WIRE_F_START =
		1, /* READ: the first of its read; refused where the generation was replaced, the others are not */
};

struct wire_msg {
	uint8_t type;
	uint8_t flags;      /* enum wire_msg_flags */
	uint16_t len_bytes; /* of the whole message, this header included */
	uint32_t reserved;
	uint64_t request_id; /* chosen by the requester, unique per QP among its unfinished requests */
};
static_assert(sizeof(struct wire_msg) == 16, "wire");

struct wire_part {
	uint32_t stripe_idx;
	uint32_t len_bytes;
	uint64_t offset;        /* in the stripe */
	uint64_t window_offset; /* in the requester's window; without windows (verbs, quarantine) an address */
};
static_assert(sizeof(struct wire_part) == 24, "wire");

/* READ and PULL. */
struct wire_read {
	struct wire_msg h;
	uint64_t handle;     /* names the object (READ) or the put source (PULL) at the server */
	uint64_t generation; /* must equal the source's */
	uint32_t ttl_us;  /* counted at the server from receipt; afterwards it never posts a write for this request */
	uint32_t key;     /* of the one window that covers all parts */
	uint16_t n_parts; /* 1..WIRE_PARTS_MAX */
	uint16_t reserved[3];
	/* struct wire_part parts[n_parts] follow */
};
static_assert(sizeof(struct wire_read) == 48, "wire");

struct wire_done {
	struct wire_msg h;
	uint32_t status;  /* enum ry_status */
	uint32_t credits; /* READ credits given back, normally 1 */
	uint64_t generation;
	uint64_t bytes;      /* written into the window */
	uint64_t storage_ns; /* time the server spent on the request's data */
	uint64_t queue_ns;   /* time the request waited at the server */
};
static_assert(sizeof(struct wire_done) == 56, "wire");

struct wire_busy {
	struct wire_msg h;
	uint32_t retry_us;
	uint32_t credits;
};
static_assert(sizeof(struct wire_busy) == 24, "wire");

struct wire_cancel {
	struct wire_msg h; /* request_id of the READ or PULL */
};

/* PING names a probe window; PONG is a header alone with its request_id. */
struct wire_ping {
	struct wire_msg h;
	uint32_t key;
	uint32_t len_bytes; /* of the probe payload */
	uint64_t offset;    /* in the window; without windows an address */
	uint64_t read_offset;
	uint32_t read_key; /* verbs: what the peer reads first; 0 = it was sent */
	uint32_t reserved;
};
static_assert(sizeof(struct wire_ping) == 48, "wire");

/* Answer to PULL over device windows: all its parts, adjacent, from the window's start. */
struct wire_grant {
	struct wire_msg h;
	uint32_t key;
	uint32_t cookie; /* the writer's, comes back in PULLED */
	uint64_t generation;
	uint64_t bytes;
};
static_assert(sizeof(struct wire_grant) == 40, "wire");

/* The requester has its credit again when it has sent this: whatever it sends next on the QP comes behind it. */
struct wire_pulled {
	struct wire_msg h; /* request_id of the PULL */
	uint32_t cookie;
	uint32_t reserved;
};
static_assert(sizeof(struct wire_pulled) == 24, "wire");

/* ---- Bootstrap socket ---- */
enum wire_conn_kind {
	WIRE_CONN_BOOTSTRAP = 1,
	WIRE_CONN_DATA = 2, /* a TCP data socket of an existing pair, named by `token` */
};

#define WIRE_FEATURE_AVOID 1u     /* reads `avoid` of PUT, which was 0 before */
#define WIRE_FEATURE_QUERY_KEY 2u /* takes a key behind PUT_QUERY, where nothing was before */

/* First message each way on every socket; the dialler speaks first. 192 bytes. */
struct wire_hello {
	uint32_t magic;
	uint16_t major;
	uint16_t minor;
	uint16_t kind;      /* enum wire_conn_kind */
	uint16_t transport; /* enum wire_transport */
	uint16_t rail_idx;  /* of the sender */
	uint16_t qp_idx;    /* DATA: which of the pair's sockets this is */
	uint64_t node_id;
	uint64_t incarnation;   /* new at every start of a node */
	uint64_t token;         /* BOOTSTRAP answer: names the pair in DATA hellos. DATA: that token */
	uint32_t features;      /* WIRE_FEATURE_*; unknown bits are ignored */
	uint16_t n_qps;         /* of the pair: minimum of both sides is used */
	uint16_t read_credits;  /* READs the sender of this HELLO accepts per QP */
	uint32_t max_msg_bytes; /* WIRE_MSG_BYTES */
	uint16_t max_parts;     /* per READ */
	uint16_t reserved0;
	uint32_t max_data_bytes; /* of one DATA frame */
	uint32_t status;         /* answer: enum ry_status, why the dialler is refused */
	char node_name[RY_NAME_MAX_BYTES];
	char rail_name[RY_NAME_MAX_BYTES];
	uint8_t challenge[32]; /* reserved for the keyed challenge; 0 without a secret */
	uint8_t reserved[32];
};
static_assert(sizeof(struct wire_hello) == 192, "wire");

enum wire_transport {
	WIRE_TRANSPORT_TCP = 1,
	WIRE_TRANSPORT_VERBS = 2,
	WIRE_TRANSPORT_MOCK = 3,
};

enum wire_meta_type {
	WIRE_META_LOOKUP = 1,
	WIRE_META_LOOKUP_REPLY = 2,
	WIRE_META_PUT = 3,
	WIRE_META_PUT_DONE = 4,
	WIRE_META_DELETE = 5,
	WIRE_META_DELETE_REPLY = 6,
	WIRE_META_LIST = 7,
	WIRE_META_LIST_REPLY = 8,
	WIRE_META_PUT_QUERY = 9, /* answered with PUT_DONE */
	WIRE_META_ERROR = 10,    /* answer to a message that could not be understood; the connection stays */
	WIRE_META_READY = 11,    /* both ways, after every QP of the pair is adopted */
	WIRE_META_BYE = 12,
	WIRE_META_KEEPALIVE = 13,
	WIRE_META_KEEPALIVE_REPLY = 14,
	WIRE_META_QPS = 15, /* verbs, both ways, after the HELLOs: how to reach the pair's QPs */
};

enum wire_bye_reason {
	WIRE_BYE_SHUTDOWN = 1,
	WIRE_BYE_REBUILD = 2, /* the QP dies on purpose (fence); reconnect at once, count nothing */
	WIRE_BYE_PROTOCOL = 3,
	WIRE_BYE_IDLE = 4,
	WIRE_BYE_DRAIN = 5,
};

/* Every metadata message starts with this; len_bytes is the length prefix and counts what follows it. */
struct wire_meta {
	uint32_t len_bytes;
	uint16_t type;
	uint16_t reserved;
	union {
		uint32_t status; /* replies: enum ry_status */
		uint32_t avoid;  /* PUT, to who has WIRE_FEATURE_AVOID: the writer's rails (bit = rail_idx of its
				    HELLO) that are not to be used for it */
	};
	uint32_t flags; /* enum ry_op_flags where the type uses them */
	uint64_t request_id;
};
static_assert(sizeof(struct wire_meta) == 24, "wire");

struct wire_lookup {
	struct wire_meta h;
	uint32_t first_stripe; /* page of checksums to return */
	uint16_t key_bytes;
	uint16_t reserved;
	/* key_bytes bytes follow */
};
static_assert(sizeof(struct wire_lookup) == 32, "wire");

struct wire_lookup_reply {
	struct wire_meta h;
	uint64_t handle;
	uint64_t generation;
	uint64_t etag;
	uint64_t layout_version; /* 1 */
	uint64_t size_bytes;
	uint64_t ttl_ns; /* time left, 0 = no expiry */
	uint32_t stripe_bytes;
	uint32_t stripe_count;
	uint32_t first_stripe; /* of this page */
	uint32_t n_checksums;  /* in this page; 0 with has_checksums = 0 */
	uint8_t has_checksums;
	uint8_t reserved[7];
	/* uint64_t checksums[n_checksums] follow */
};
static_assert(sizeof(struct wire_lookup_reply) == 96, "wire");

struct wire_put {
	struct wire_meta h; /* flags: RY_F_PUT_BEGIN, RY_F_PUT_COMMIT, RY_F_IF_ABSENT */
	uint64_t put_id[2];
	uint64_t size_bytes; /* whole object; RY_SIZE_UNKNOWN allowed until COMMIT */
	uint64_t ttl_ns;
	uint64_t source_handle; /* of this part at the writer, for PULL; 0 when the part is empty */
	uint64_t source_generation;
	uint64_t part_bytes;
	uint32_t stripe_bytes;
	uint32_t first_stripe; /* of this part; the part starts at first_stripe * stripe_bytes */
	uint32_t n_checksums;  /* stripes of this part */
	uint16_t key_bytes;
	uint16_t reserved;
	/* key_bytes bytes, zero padding to 8, then uint64_t checksums[n_checksums] follow */
};
static_assert(sizeof(struct wire_put) == 96, "wire");

/* Answer to PUT (one per part) and to PUT_QUERY. */
struct wire_put_done {
	struct wire_meta h;
	uint64_t put_id[2];
	uint64_t generation;   /* of the committed object, 0 before */
	uint64_t bytes_so_far; /* verified parts */
	uint8_t is_committed;
	uint8_t reserved[7];
	char cause[RY_CAUSE_MAX_BYTES];
};
static_assert(sizeof(struct wire_put_done) == 224, "wire");

struct wire_put_query {
	struct wire_meta h;
	uint64_t put_id[2];
	/* the rest of the message: the key of the put, or nothing to who lacks WIRE_FEATURE_QUERY_KEY */
};
static_assert(sizeof(struct wire_put_query) == 40, "wire");

struct wire_delete {
	struct wire_meta h;
	uint64_t generation; /* 0 = any */
	uint16_t key_bytes;
	uint8_t reserved[6];
	/* key_bytes bytes follow */
};
static_assert(sizeof(struct wire_delete) == 40, "wire");

struct wire_delete_reply {
	struct wire_meta h;
	uint64_t generation; /* that was deleted */
};
static_assert(sizeof(struct wire_delete_reply) == 32, "wire");

struct wire_list {
	struct wire_meta h;
	uint64_t cursor; /* 0 = start */
	uint32_t max_entries;
	uint16_t prefix_bytes;
	uint16_t reserved;
	/* prefix_bytes bytes follow */
};
static_assert(sizeof(struct wire_list) == 40, "wire");

struct wire_list_reply {
	struct wire_meta h;
	uint64_t cursor; /* to go on with, 0 = the end */
	uint32_t n_entries;
	uint32_t entries_bytes;
	/* packed struct ry_list_entry of <railyard/ring.h> follow */
};
static_assert(sizeof(struct wire_list_reply) == 40, "wire");

struct wire_bye {
	struct wire_meta h;
	uint32_t reason; /* enum wire_bye_reason */
	uint32_t reserved;
};
static_assert(sizeof(struct wire_bye) == 32, "wire");

#define WIRE_QPS_MAX 8u

/* The sender's QPs have their receives posted; the receiver may make its own able to send. */
#define WIRE_QPS_GRANTS 1u /* the sender answers PULL with GRANT: it has windows that a device checks */

struct wire_qps {
	struct wire_meta h;
	uint8_t gid[16];
	uint32_t mtu_bytes; /* the smaller of both sides is used */
	uint32_t rd_atomic; /* READs that the sender can answer at a time, per QP */
	uint32_t n_qps;     /* as HELLO agreed */
	uint32_t flags;     /* WIRE_QPS_*; others are 0 */
	struct {
		uint32_t qp_num; /* 24 bits */
		uint32_t psn;    /* 24 bits */
	} qps[WIRE_QPS_MAX];     /* those beyond n_qps are 0 */
};
static_assert(sizeof(struct wire_qps) == 120, "wire");

#define WIRE_CHECKSUMS_PER_PAGE 4096u /* of one LOOKUP_REPLY or PUT; keeps both under WIRE_META_MAX_BYTES */

/* ---- Validation: each returns RY_OK or RY_ERR_PROTOCOL (RY_ERR_VERSION for a HELLO's version), never reads past
 * `len`. */

/* A received data message of `len` bytes: type known, length exact, reserved zero, parts in bounds, not empty,
 * ascending in the window. */
int wire_msg_check(const void *msg, uint32_t len);

/* A TCP frame header. */
int wire_frame_check(const struct wire_frame *frame);

/* A complete metadata message of `len` bytes, prefix included, at an 8-byte aligned address: type known, variable parts
 * exactly fill it. */
int wire_meta_check(const void *msg, uint32_t len);

/* A HELLO; major must equal ours, names are NUL-terminated, limits are not zero (except in a refusal). */
int wire_hello_check(const struct wire_hello *hello);

/* ---- Access to the variable parts of a message that passed its check. ---- */
static inline struct wire_part *wire_read_parts(struct wire_read *m)
{
	return (struct wire_part *)(m + 1);
}
const uint8_t *wire_lookup_key(const struct wire_lookup *m);
const uint64_t *wire_lookup_checksums(const struct wire_lookup_reply *m);
const uint8_t *wire_put_key(const struct wire_put *m);
const uint64_t *wire_put_checksums(const struct wire_put *m);
const uint8_t *wire_put_query_key(const struct wire_put_query *m);
const uint8_t *wire_delete_key(const struct wire_delete *m);
const uint8_t *wire_list_prefix(const struct wire_list *m);

/* ---- Encoders: fill the fixed part (header lengths included) and copy the variable part into `buf` of
 * WIRE_META_MAX_BYTES; return the length of the whole message, 0 where it would not fit. The caller fills what the
 * arguments do not name afterwards. `buf` must be 8-byte aligned. ---- */
uint32_t wire_enc_lookup(void *buf, uint64_t request_id, const void *key, uint16_t key_bytes, uint32_t first_stripe);
uint32_t wire_enc_lookup_reply(void *buf, const struct wire_lookup_reply *fixed, const uint64_t *checksums);
uint32_t wire_enc_put(void *buf, const struct wire_put *fixed, const void *key, const uint64_t *checksums);
/* key_bytes 0: to who lacks WIRE_FEATURE_QUERY_KEY. */
uint32_t wire_enc_put_query(
	void *buf, uint64_t request_id, const uint64_t put_id[2], const void *key, uint16_t key_bytes);
uint32_t wire_enc_delete(void *buf, uint64_t request_id, uint64_t generation, const void *key, uint16_t key_bytes);
uint32_t wire_enc_list(void *buf, uint64_t request_id, uint64_t cursor, uint32_t max_entries, const void *prefix,
	uint16_t prefix_bytes);
/* Fixed-size metadata message: zeroes `buf`, fills the header for `type` with the struct's size `bytes`. */
uint32_t wire_enc_fixed(void *buf, uint16_t type, uint32_t bytes, uint64_t request_id, uint32_t status);

#ifdef __cplusplus
}
#endif
#endif
