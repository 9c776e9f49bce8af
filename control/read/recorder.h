/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The flight recorder: the last RECORDER_READS reads that ended, well or not, and where their time went; look-ups that
 * failed among them, except those whose key was not there.
 *
 * One writer, the control lcore, which never waits and never allocates; any number of readers (the api thread), each of
 * which may find that a record was overwritten while it looked, and goes on to the next. Records are numbered from 0
 * and run free; number n lies in slot n % RECORDER_READS until n + RECORDER_READS takes its place.
 */
#ifndef RY_READ_RECORDER_H
#define RY_READ_RECORDER_H

#include <stdalign.h>
#include <stdbool.h>
#include <stdint.h>

#include <railyard/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define RECORDER_READS 1024u
#define RECORDER_KEY_BYTES 48u
#define RECORD_STORE_NONE 0xffffu

/* One read, or one look-up that failed. Times are CLOCK_MONOTONIC; the spans have the meaning of struct ry_read_stats.
 * A whole number of 8-byte words. */
struct record {
	uint64_t started_ns;  /* its submit was seen */
	uint64_t finished_ns; /* its completion was published */
	uint64_t offset;
	uint64_t bytes;        /* asked for; UINT64_MAX = to the end, and the end was never learnt */
	uint64_t object_bytes; /* size of the object, 0 = not learnt */
	uint64_t wire_bytes;   /* landed, whole edge stripes included */
	uint64_t queue_ns;     /* waiting for a budget: submit -> admitted, lookup_ns included */
	uint64_t lookup_ns;
	uint64_t plan_ns;
	uint64_t transfer_ns;
	uint64_t verify_ns;
	uint64_t commit_ns;
	uint64_t storage_ns;     /* sums over all segments */
	uint64_t store_queue_ns; /* sums over all segments */
	uint32_t status;         /* enum ry_status */
	uint32_t n_segments;
	uint32_t rail_mask; /* rails that carried bytes, by index in the configuration */
	uint32_t client_id;
	uint16_t store_idx; /* the key's home, in the configuration; RECORD_STORE_NONE = there are no stores */
	uint16_t bad_rail;  /* rail to blame, RY_RAIL_NONE = none */
	uint16_t key_bytes; /* of the whole key; key holds at most RECORDER_KEY_BYTES of them */
	uint8_t class_ref;  /* enum ry_class by the reference rule */
	uint8_t class_own;  /* enum ry_class by the largest share */
	uint8_t is_verified;
	uint8_t is_failover;
	uint8_t is_one_rail;
	uint8_t is_lookup;             /* a look-up that failed; nothing was to be read */
	uint16_t class_share_permille; /* of the read's span that class_own stands for */
	uint8_t reserved[2];
	uint8_t key[RECORDER_KEY_BYTES];
	uint64_t rail_bytes[RY_RAILS_MAX]; /* one for each bit of rail_mask, lowest first; the rest is undefined */
	char cause[RY_CAUSE_MAX_BYTES];    /* undefined when status is RY_OK */
};

struct recorder_slot {
	uint64_t seq; /* 2n + 2: holds number n; odd: being written; 0: never used */
	struct record record;
};

struct recorder {
	alignas(64) uint64_t n_written; /* written by control, read by anyone */
	alignas(64) struct recorder_slot slots[RECORDER_READS];
};

/* Control. Copies what is defined of the record. */
void recorder_write(struct recorder *r, const struct record *record);

/* ---- Any thread ---- */
/* Records written so far: the newest has this number less one. */
uint64_t recorder_written(const struct recorder *r);
/* The oldest number that may still be there. */
uint64_t recorder_oldest(const struct recorder *r);
/* Copies record `number`. false, and *out undefined: not written yet, or overwritten. */
bool recorder_read(const struct recorder *r, uint64_t number, struct record *out);

#ifdef __cplusplus
}
#endif
#endif
