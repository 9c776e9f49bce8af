/* SPDX-License-Identifier: BSD-3-Clause */
#include "exits.h"

static enum exit_kind of_wait(const struct op *op);
static enum exit_kind of_start(const struct control *c, const struct op *op);
static enum exit_kind of_transfer(const struct op *op, const struct xfer *x);
static enum exit_kind of_put(const struct op *op);

uint64_t exit_counts[EXIT_KINDS_];

const char *exit_name(enum exit_kind kind)
{
#define NAME(k) [k] = #k
	static const char *const names[EXIT_KINDS_] = {
		NAME(EXIT_EMPTY),
		NAME(EXIT_RANGE),
		NAME(EXIT_NOT_FOUND),
		NAME(EXIT_NO_PLACE),
		NAME(EXIT_NO_ROOM),
		NAME(EXIT_NEVER_FITS),
		NAME(EXIT_ARENA_FULL),
		NAME(EXIT_LOOKUP_CANCELLED),
		NAME(EXIT_LOOKUP_TIMEOUT),
		NAME(EXIT_LOOKUP_DETACHED),
		NAME(EXIT_QUEUE_FULL),
		NAME(EXIT_PLACE_WAIT_OVER),
		NAME(EXIT_PLACE_TIMEOUT),
		NAME(EXIT_PLACE_CANCELLED),
		NAME(EXIT_PLACE_DETACHED),
		NAME(EXIT_BYTES_WAIT_OVER),
		NAME(EXIT_BYTES_TIMEOUT),
		NAME(EXIT_BYTES_CANCELLED),
		NAME(EXIT_BYTES_DETACHED),
		NAME(EXIT_BYTES_LIMITED),
		NAME(EXIT_OK),
		NAME(EXIT_OK_AFTER_PLACE),
		NAME(EXIT_OK_AFTER_BYTES),
		NAME(EXIT_CANCELLED),
		NAME(EXIT_DEADLINE),
		NAME(EXIT_SILENCE),
		NAME(EXIT_CHECKSUM),
		NAME(EXIT_STALE),
		NAME(EXIT_RAIL),
		NAME(EXIT_NO_RAIL),
		NAME(EXIT_DETACHED),
		NAME(CUT_QUEUED),
		NAME(CUT_HELD),
		NAME(CUT_POSTED),
		NAME(CUT_CANCELLING),
		NAME(CUT_CLOSING),
		NAME(CUT_LANDED),
		NAME(CUT_DONE),
		NAME(CUT_ORPHAN),
		NAME(BACK_CANCELLED),
		NAME(BACK_FENCED),
		NAME(BACK_BUSY),
		NAME(BACK_LOST_FAIL),
		NAME(BACK_LOST_FAILOVER),
		NAME(BACK_WRONG_FAILOVER),
		NAME(BACK_AFTER_PAIR),
		NAME(WAY_REFRESH),
		NAME(WAY_BROKE_LIMIT),
		NAME(PUT_OK),
		NAME(PUT_EXISTS),
		NAME(PUT_CHECKSUM),
		NAME(PUT_CANCELLED),
		NAME(PUT_TIMEOUT),
		NAME(PUT_DETACHED),
		NAME(PUT_FAILED),
		NAME(PUT_ABORTED),
	};
#undef NAME

	return names[kind];
}

void exits_of_op(const struct control *c, const struct op *op, const struct xfer *x, unsigned waited)
{
	enum exit_kind kind = EXIT_KINDS_;

	if (op->kind == RY_OP_PUT)
		kind = of_put(op);
	else if (op->kind == RY_OP_READ && op->state == OP_ADMIT)
		kind = of_wait(op);
	else if (op->kind == RY_OP_READ)
		kind = x ? of_transfer(op, x) : of_start(c, op);
	if (kind != EXIT_KINDS_)
		exit_counts[kind]++;
	if (kind == EXIT_OK && (waited & WAITED_PLACE))
		exit_counts[EXIT_OK_AFTER_PLACE]++;
	if (kind == EXIT_OK && (waited & WAITED_BYTES))
		exit_counts[EXIT_OK_AFTER_BYTES]++;
}

static enum exit_kind of_wait(const struct op *op)
{
	bool is_bytes = op->need_bytes != 0;

	switch (op->status) {
	case RY_ERR_TIMEOUT:
		return is_bytes ? EXIT_BYTES_TIMEOUT : EXIT_PLACE_TIMEOUT;
	case RY_ERR_CANCELLED:
		return is_bytes ? EXIT_BYTES_CANCELLED : EXIT_PLACE_CANCELLED;
	case RY_ERR_DETACHED:
		return is_bytes ? EXIT_BYTES_DETACHED : EXIT_PLACE_DETACHED;
	case RY_ERR_BUDGET:
		if (strstr(op->cause, "read by range"))
			return EXIT_BYTES_LIMITED;
		return is_bytes ? EXIT_BYTES_WAIT_OVER : EXIT_PLACE_WAIT_OVER;
	default:
		return EXIT_KINDS_;
	}
}

static enum exit_kind of_start(const struct control *c, const struct op *op)
{
	switch (op->status) {
	case RY_OK:
		return EXIT_EMPTY;
	case RY_ERR_INVALID:
		return EXIT_RANGE;
	case RY_ERR_NOT_FOUND:
		return EXIT_NOT_FOUND;
	case RY_ERR_CANCELLED:
		return EXIT_LOOKUP_CANCELLED;
	case RY_ERR_TIMEOUT:
		return EXIT_LOOKUP_TIMEOUT;
	case RY_ERR_DETACHED:
		return EXIT_LOOKUP_DETACHED;
	case RY_ERR_NO_RAIL:
		return EXIT_NO_RAIL;
	case RY_ERR_BUDGET:
		if (strstr(op->cause, "read by range"))
			return EXIT_NEVER_FITS;
		if (strstr(op->cause, "read arena"))
			return EXIT_ARENA_FULL;
		if (c->config->admission == ADMISSION_QUEUE)
			return EXIT_QUEUE_FULL;
		if (strstr(op->cause, "reads in flight"))
			return EXIT_NO_PLACE;
		return EXIT_NO_ROOM;
	default:
		return EXIT_KINDS_;
	}
}

static enum exit_kind of_transfer(const struct op *op, const struct xfer *x)
{
	switch (op->status) {
	case RY_OK:
		return EXIT_OK;
	case RY_ERR_CANCELLED:
		return EXIT_CANCELLED;
	case RY_ERR_TIMEOUT:
		return x->bad_rail == RY_RAIL_NONE ? EXIT_DEADLINE : EXIT_SILENCE;
	case RY_ERR_CHECKSUM:
		return EXIT_CHECKSUM;
	case RY_ERR_STALE_GENERATION:
		return EXIT_STALE;
	case RY_ERR_RAIL:
		return EXIT_RAIL;
	case RY_ERR_NO_RAIL:
		return EXIT_NO_RAIL;
	case RY_ERR_DETACHED:
		return EXIT_DETACHED;
	default:
		return EXIT_KINDS_;
	}
}

static enum exit_kind of_put(const struct op *op)
{
	switch (op->status) {
	case RY_OK:
		return PUT_OK;
	case RY_ERR_EXISTS:
		return PUT_EXISTS;
	case RY_ERR_CHECKSUM:
		return PUT_CHECKSUM;
	case RY_ERR_CANCELLED:
		return PUT_CANCELLED;
	case RY_ERR_TIMEOUT:
		return PUT_TIMEOUT;
	case RY_ERR_DETACHED:
		return PUT_DETACHED;
	default:
		return PUT_FAILED;
	}
}

void exits_of_xfer(const struct xfer *x)
{
	static const enum exit_kind of_state[] = {
		[SEG_QUEUED] = CUT_QUEUED,
		[SEG_HELD] = CUT_HELD,
		[SEG_POSTED] = CUT_POSTED,
		[SEG_CANCELLING] = CUT_CANCELLING,
		[SEG_FENCING] = CUT_CANCELLING, /* never between two turns of a rail */
		[SEG_CLOSING] = CUT_CLOSING,
		[SEG_LANDED] = CUT_LANDED,
		[SEG_DONE] = CUT_DONE,
	};

	for (const struct segment *s = x->segs; s; s = s->owner_next)
		exit_counts[of_state[s->state]]++;
	for (const struct segment *s = x->orphans; s; s = s->owner_next)
		exit_counts[CUT_ORPHAN]++;
}

void exits_of_segment(const struct control *c, const struct segment *s)
{
	const struct xfer *x = s->owner;

	if (c->paths[s->pair_idx].epoch != s->owner_aux)
		exit_counts[BACK_AFTER_PAIR]++;
	if (s->is_silent)
		exit_counts[BACK_FENCED]++;
	else if (s->status == RY_ERR_CANCELLED)
		exit_counts[BACK_CANCELLED]++;
	else if (s->is_busy)
		exit_counts[BACK_BUSY]++;
	else if (s->status == RY_ERR_RAIL)
		exit_counts[x->is_failover ? BACK_LOST_FAILOVER : BACK_LOST_FAIL]++;
	else if (s->status == RY_ERR_CHECKSUM && x->is_failover)
		exit_counts[BACK_WRONG_FAILOVER]++;
}
