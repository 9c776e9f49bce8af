/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Limits, flags and units that clients, daemon and tools share.
 *
 * All sizes are bytes and all times are nanoseconds unless a name says otherwise. Nothing here allocates or has state.
 */
#ifndef RAILYARD_TYPES_H
#define RAILYARD_TYPES_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define RY_KEY_MAX_BYTES 4096u             /* a key is 1 to this many bytes; any byte value is allowed */
#define RY_RAILS_MAX 32u                   /* rails of one node */
#define RY_STRIPES_MAX 65536u              /* stripes of one object */
#define RY_STRIPE_MIN_BYTES (64u << 10)    /* smallest stripe */
#define RY_STRIPE_MAX_BYTES (1u << 30)     /* largest stripe: the largest memory window of common HCAs */
#define RY_STRIPE_ALIGN_BYTES 4096u        /* a stripe size is a multiple of this */
#define RY_STRIPE_DEFAULT_BYTES (4u << 20) /* when a put names none */
#define RY_SEGMENT_MIN_BYTES (64u << 10)   /* smallest unit of transfer, except a stripe's last */
#define RY_EXTENTS_MAX 8u                  /* pieces of one lease */
#define RY_NAME_MAX_BYTES 32u              /* rail, node and peer names, with their NUL */
#define RY_CAUSE_MAX_BYTES 160u            /* cause text of a failed operation, with its NUL */
#define RY_SIZE_UNKNOWN UINT64_MAX         /* an object whose size is not known yet (streamed put) */
#define RY_RAIL_NONE 0xffffu               /* "no rail" in a rail index */

/* Flags of one operation. */
enum ry_op_flags {
	RY_F_ALLOW_UNVERIFIED = 1u << 0, /* read: accept an object whose descriptor has no checksums */
	RY_F_IF_ABSENT = 1u << 1,        /* put: fail with RY_ERR_EXISTS where the key exists */
	RY_F_PUT_BEGIN = 1u << 2,        /* put: first part of a streamed put */
	RY_F_PUT_COMMIT = 1u << 3,       /* put: last part; publish when every part is verified */
	RY_F_ONE_RAIL = 1u << 4,         /* read: use one rail only (the baseline of a comparison) */
	RY_F_FAILOVER = 1u << 5,         /* read: what a failed rail leaves undone goes out again over other rails */
	RY_F_FAIL = 1u << 6,             /* read: fail as a whole when a rail fails, whatever the node's default is; not
					    together with RY_F_FAILOVER */
};

/* Who is to blame for most of a read's time. Numbers are fixed. */
enum ry_class {
	RY_CLASS_UNKNOWN = 0,
	RY_CLASS_NETWORK = 1,
	RY_CLASS_STORAGE = 2,
	RY_CLASS_SOFTWARE = 3,
};

#ifdef __cplusplus
}
#endif
#endif
