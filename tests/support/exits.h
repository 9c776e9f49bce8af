/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The ways in which a read, a put or a segment can end, counted as they happen in control: a property over all of them
 * says nothing about one that never occurred.
 */
#ifndef RY_TEST_EXITS_H
#define RY_TEST_EXITS_H

#include <stdint.h>

#include "read/control_priv.h"

#ifdef __cplusplus
extern "C" {
#endif

enum exit_kind {
	/* reads that never had a transfer */
	EXIT_EMPTY,
	EXIT_RANGE,
	EXIT_NOT_FOUND,
	EXIT_NO_PLACE, /* reject: of the reads, */
	EXIT_NO_ROOM,  /* of the bytes */
	EXIT_NEVER_FITS,
	EXIT_ARENA_FULL,
	EXIT_LOOKUP_CANCELLED,
	EXIT_LOOKUP_TIMEOUT,
	EXIT_LOOKUP_DETACHED,
	/* queue: while they waited for a place among the reads, or for bytes */
	EXIT_QUEUE_FULL,
	EXIT_PLACE_WAIT_OVER,
	EXIT_PLACE_TIMEOUT,
	EXIT_PLACE_CANCELLED,
	EXIT_PLACE_DETACHED,
	EXIT_BYTES_WAIT_OVER,
	EXIT_BYTES_TIMEOUT,
	EXIT_BYTES_CANCELLED,
	EXIT_BYTES_DETACHED,
	EXIT_BYTES_LIMITED, /* lowered below what it needs */
	/* by their transfer */
	EXIT_OK,
	EXIT_OK_AFTER_PLACE,
	EXIT_OK_AFTER_BYTES,
	EXIT_CANCELLED,
	EXIT_DEADLINE,
	EXIT_SILENCE, /* a segment deadline, policy `fail` */
	EXIT_CHECKSUM,
	EXIT_STALE,
	EXIT_RAIL,
	EXIT_NO_RAIL,
	EXIT_DETACHED,
	/* what a transfer that was given up had out: by the state of its segments */
	CUT_QUEUED,
	CUT_HELD,
	CUT_POSTED,
	CUT_CANCELLING,
	CUT_CLOSING,
	CUT_LANDED,
	CUT_DONE,
	CUT_ORPHAN, /* back, and waiting to go out again */
	/* segments that came back otherwise than landed */
	BACK_CANCELLED,
	BACK_FENCED,
	BACK_BUSY,
	BACK_LOST_FAIL,
	BACK_LOST_FAILOVER,
	BACK_WRONG_FAILOVER,
	BACK_AFTER_PAIR, /* its connection was gone before */
	/* turns on the way */
	WAY_REFRESH,
	WAY_BROKE_LIMIT, /* limits lowered below what is charged */
	/* puts */
	PUT_OK,
	PUT_EXISTS,
	PUT_CHECKSUM,
	PUT_CANCELLED,
	PUT_TIMEOUT,
	PUT_DETACHED,
	PUT_FAILED,  /* rail, store full, outcome unknown */
	PUT_ABORTED, /* the store's side: an object that was never published */
	EXIT_KINDS_,
};

const char *exit_name(enum exit_kind kind);
/* Since the start of the process. */
extern uint64_t exit_counts[EXIT_KINDS_];

#define WAITED_PLACE 1u
#define WAITED_BYTES 2u

/* An op completes; `waited` = for what it was in OP_ADMIT before. */
void exits_of_op(const struct control *c, const struct op *op, const struct xfer *x, unsigned waited);
/* A transfer is given up; called before its segments are told. */
void exits_of_xfer(const struct xfer *x);
/* A segment is back. */
void exits_of_segment(const struct control *c, const struct segment *s);

#ifdef __cplusplus
}
#endif
#endif
