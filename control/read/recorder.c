/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A sequence lock in each slot. Records are copied word by word with relaxed atomics, so that a reader that meets the
 * writer reads a mixture, which its second look at seq rejects, and not something undefined.
 */
#include "read/recorder.h"

#include <assert.h>
#include <stddef.h>

#define WORDS(bytes) (((bytes) + 7u) / 8u)

static_assert(sizeof(struct record) % 8 == 0, "copied in words");
static_assert(offsetof(struct record, rail_bytes) % 8 == 0, "copied in words");
static_assert(offsetof(struct record, cause) % 8 == 0, "copied in words");

static void copy_words(uint64_t *to, const uint64_t *from, uint32_t n);
static void copy_record(struct record *to, const struct record *from);

void recorder_write(struct recorder *r, const struct record *record)
{
	uint64_t n = r->n_written;
	struct recorder_slot *slot = &r->slots[n % RECORDER_READS];

	__atomic_store_n(&slot->seq, 2 * n + 1, __ATOMIC_RELAXED);
	/* Partner: the acquire fence in recorder_read. Who saw a word of this record sees that seq is odd. */
	__atomic_thread_fence(__ATOMIC_RELEASE);
	copy_record(&slot->record, record);
	/* Release: partner of the acquire of seq in recorder_read; the record is complete. */
	__atomic_store_n(&slot->seq, 2 * n + 2, __ATOMIC_RELEASE);
	/* Release: partner of the acquire in recorder_written; who learns of a number finds it written. */
	__atomic_store_n(&r->n_written, n + 1, __ATOMIC_RELEASE);
}

/* The lengths are the source's, which a reader has copied before it uses them: a mixture is bounded by the mask's bits.
 */
static void copy_record(struct record *to, const struct record *from)
{
	copy_words((uint64_t *)to, (const uint64_t *)from, WORDS(offsetof(struct record, rail_bytes)));
	copy_words(to->rail_bytes, from->rail_bytes, (uint32_t)__builtin_popcount(to->rail_mask));
	if (to->status)
		copy_words((uint64_t *)(void *)to->cause, (const uint64_t *)(const void *)from->cause,
			WORDS(sizeof(to->cause)));
}

static void copy_words(uint64_t *to, const uint64_t *from, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		__atomic_store_n(&to[i], __atomic_load_n(&from[i], __ATOMIC_RELAXED), __ATOMIC_RELAXED);
}

uint64_t recorder_written(const struct recorder *r)
{
	return __atomic_load_n(&r->n_written, __ATOMIC_ACQUIRE); /* partner: recorder_write */
}

uint64_t recorder_oldest(const struct recorder *r)
{
	uint64_t n = recorder_written(r);

	return n > RECORDER_READS ? n - RECORDER_READS : 0;
}

bool recorder_read(const struct recorder *r, uint64_t number, struct record *out)
{
	const struct recorder_slot *slot = &r->slots[number % RECORDER_READS];

	/* Acquire: partner of the release in recorder_write. */
	if (__atomic_load_n(&slot->seq, __ATOMIC_ACQUIRE) != 2 * number + 2)
		return false;
	copy_record(out, &slot->record);
	/* Partner: the release fence in recorder_write; nothing above was read after the seq below. */
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	return __atomic_load_n(&slot->seq, __ATOMIC_RELAXED) == 2 * number + 2;
}
