/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every error that Railyard reports, once.
 *
 * The numbers are part of the ABI, the wire format and the CLI's JSON: they are assigned by hand, append only, and
 * never reused. A status is data about one operation; the cause text beside it says what, where, why and what to do.
 */
#ifndef RAILYARD_STATUS_H
#define RAILYARD_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

enum ry_status {
	RY_OK = 0,
	RY_ERR_NO_RAIL = 1,    /* no eligible rail reaches the object's store */
	RY_ERR_BUDGET = 2,     /* an in-flight or registered-bytes budget is spent, or too small for this request */
	RY_ERR_TIMEOUT = 3,    /* the deadline passed */
	RY_ERR_CANCELLED = 4,  /* cancelled by its client, or by shutdown */
	RY_ERR_RAIL = 5,       /* a rail's transport failed while it carried part of the request */
	RY_ERR_INCOMPLETE = 6, /* fewer bytes arrived than were promised */
	RY_ERR_CHECKSUM = 7,   /* a stripe does not match its checksum */
	RY_ERR_STALE_GENERATION = 8,    /* the object was replaced since its descriptor was read */
	RY_ERR_NOT_FOUND = 9,           /* no such object */
	RY_ERR_BUFFER_TOO_SMALL = 10,   /* caller's memory, or the client's arena, cannot hold the result */
	RY_ERR_INVALID_DESCRIPTOR = 11, /* a descriptor's geometry contradicts itself, or it carries no checksums */
	RY_ERR_PEER_RESTARTED = 12,     /* the store is a new incarnation; its handles are void */
	RY_ERR_EXISTS = 13,             /* put-if-absent found an object */
	RY_ERR_NO_SPACE = 14,           /* the store's memory is full */
	RY_ERR_LIMIT = 15,              /* a configured count limit is reached */
	RY_ERR_UNKNOWN_OUTCOME = 16,    /* the answer to a PUT was lost; ask again with its put id */
	RY_ERR_PROTOCOL = 17,           /* the peer sent something that the protocol forbids */
	RY_ERR_VERSION = 18,            /* no common protocol or ABI version */
	RY_ERR_DENIED = 19,             /* not permitted */
	RY_ERR_BUSY = 20,               /* wire only: the store asks to come back later */
	RY_ERR_DETACHED = 21,           /* the client, arena or region is no longer attached */
	RY_ERR_INTERNAL = 22,           /* Railyard's own mistake */
	RY_ERR_INVALID = 23,            /* an argument is outside its documented range */
	RY_STATUS_MAX_ = 24,            /* one past the last status; never returned */
};

/* The upper-case word after RY_ERR_ ("OK" for RY_OK, "UNKNOWN" for a number this build does not know). Static text. */
const char *ry_status_name(enum ry_status status);

/* One sentence that says what happened and what to do. Static text. */
const char *ry_status_text(enum ry_status status);

#ifdef __cplusplus
}
#endif
#endif
