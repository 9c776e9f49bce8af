/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The fault plan of a mock rail, as data: what goes wrong, when, how often.
 *
 * A plan is set before the start (struct mock_conf) or put into a running rail (mock_fault_inject). Entries are
 * independent of each other and combine. All chance comes from the seed, so the same plan over the same traffic does
 * the same. As text, `stall:at=1MiB,for=2s; lose:n=3,repeat=2; seed=7`: fault_parse and fault_format are exact
 * inverses.
 */
#ifndef RY_FAULT_H
#define RY_FAULT_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct rail;

#define FAULT_ENTRIES_MAX 16u
#define FAULT_ALWAYS_PPM 1000000u
#define FAULT_FOREVER 0u
#define FAULT_BYTE_ANY UINT64_MAX
#define FAULT_TEXT_BYTES 4096u /* room for any plan as text */

enum fault_kind {
	FAULT_NONE = 0,
	FAULT_DISCONNECT = 1, /* every QP of the rail loses its peer, at both ends */
	FAULT_STALL = 2,      /* nothing arrives for `for_ns`; what piled up then arrives together */
	FAULT_SHORT = 3,      /* a write claims success and leaves its last `arg` bytes as they were (0 = all) */
	FAULT_CORRUPT = 4,    /* one bit of a write is flipped, in byte `arg` (FAULT_BYTE_ANY: by the seed) */
	FAULT_LATE = 5, /* a write, and all behind it, waits until its window is closed; then it claims success, and
			 * lands for_ns later as bytes FAULT_LATE_BYTE: by key, or by address when unguarded */
	FAULT_SLOW = 6, /* bandwidth times arg / FAULT_ALWAYS_PPM, for `for_ns` (0 = until another says otherwise) */
	FAULT_LOSE = 7, /* a message never arrives */
	FAULT_DUPLICATE = 8, /* a message arrives twice */
	FAULT_REORDER = 9,   /* a message arrives after the `arg` next of its kind, or after for_ns */
	FAULT_ERROR = 10,   /* the end that sends has an error completion of class `arg` (enum wc_status) and is down */
	FAULT_RESTART = 11, /* FAULT_DISCONNECT, and the peer that comes back is another incarnation */
	FAULT_KINDS_ = 12,
};

#define FAULT_LATE_BYTE 0xeeu

/* What `at` counts, from the moment the rail takes the plan in. */
enum fault_trigger {
	FAULT_AT_COUNT = 1,  /* short, corrupt, late: the at-th write; lose, duplicate, reorder: the at-th message of
			      * `of`;  others: when that many answers (DONE or BUSY) have arrived */
	FAULT_AT_BYTES = 2,  /* when that many bytes of writes have arrived, to the byte */
	FAULT_AT_TIME = 3,   /* [ns] */
	FAULT_AT_STRIPE = 4, /* corrupt only: a write that carries byte `arg` of stripe `at` */
};

/* Which messages lose, duplicate and reorder mean. */
enum fault_message {
	FAULT_OF_ANSWERS = 0,  /* DONE and BUSY: a read's completions */
	FAULT_OF_REQUESTS = 1, /* READ and PULL */
	FAULT_OF_CANCELS = 2,
	FAULT_OF_ALL = 3,
};

struct fault_entry {
	uint8_t kind;         /* enum fault_kind */
	uint8_t trigger;      /* enum fault_trigger */
	uint8_t of;           /* enum fault_message */
	uint8_t is_unguarded; /* late: by address. Writes into memory that may have a new owner: for tests alone */
	uint32_t chance_ppm;  /* of each opportunity once `at` is reached; FAULT_ALWAYS_PPM = every one */
	uint32_t repeat;      /* times in all, FAULT_FOREVER = no limit */
	uint64_t at;
	uint64_t every; /* after each opportunity `at` moves on by this; 0 = it stays: the next opportunity is one, too
			 */
	uint64_t arg;
	uint64_t for_ns;
};

struct fault_plan {
	uint64_t seed;
	uint32_t n_entries;
	struct fault_entry entries[FAULT_ENTRIES_MAX];
};

/* ---- fault.c: cold, any thread ---- */
/* 0, or -EINVAL with what, where and what to do in message. */
int fault_check(const struct fault_plan *plan, char *message, uint32_t message_bytes);
/* Text to a checked plan; out is written only on success. An empty text is the empty plan. 0 or -EINVAL with a message.
 */
int fault_parse(const char *text, struct fault_plan *out, char *message, uint32_t message_bytes);
/* A checked plan to text. Returns its length; room for FAULT_TEXT_BYTES suffices always. */
uint32_t fault_format(const struct fault_plan *plan, char *text, uint32_t text_bytes);
/* "stall"; NULL for what is none. */
const char *fault_kind_name(enum fault_kind kind);

/* ---- fault_inject.c: one thread at a time, while the rail lives ---- */
/* Replaces the rail's plan by a copy of this one (NULL or no entries: no faults) and starts its counts and clock anew;
 * the rail sees it at its next turn. 0, -EINVAL (not valid, or slow without a modelled bandwidth), -ENOTSUP (not a mock
 * rail), -ENOMEM. */
int mock_fault_inject(struct rail *rail, const struct fault_plan *plan);
/* Whether the rail has taken in the plan of the last mock_fault_inject. */
bool mock_fault_is_taken(const struct rail *rail);
/* How often faults of this kind were done on this rail, under all of its plans. Any thread. 0 where it is not a mock
 * rail. */
uint64_t mock_fault_count(const struct rail *rail, enum fault_kind kind);

#ifdef __cplusplus
}
#endif
#endif
