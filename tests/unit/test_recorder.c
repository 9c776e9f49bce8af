/* SPDX-License-Identifier: BSD-3-Clause */
/* The ring of finished reads: what is there, what was overwritten, and that no reader ever gets a mixture. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <railyard/status.h>

#include "read/recorder.h"

/* Every word of the record says which one it is. */
static void fill(struct record *rec, uint64_t n)
{
	uint64_t *words = (uint64_t *)(void *)rec;

	for (size_t i = 0; i < sizeof(*rec) / 8; i++)
		words[i] = n;
	rec->rail_mask = n % 2 ? 0x5 : 0xf0000001;
	rec->status = n % 3 ? RY_OK : RY_ERR_RAIL;
}

static bool is_whole(const struct record *rec, uint64_t n)
{
	struct record want;
	uint32_t rails = n % 2 ? 2 : 5;

	fill(&want, n);
	if (memcmp(rec, &want, offsetof(struct record, rail_bytes)) ||
		memcmp(rec->rail_bytes, want.rail_bytes, rails * 8))
		return false;
	return want.status == RY_OK || !memcmp(rec->cause, want.cause, sizeof(want.cause));
}

Test(recorder, nothing_is_there_at_first)
{
	struct recorder *r = calloc(1, sizeof(*r));
	struct record rec;

	cr_assert_eq(recorder_written(r), 0u);
	cr_assert_eq(recorder_oldest(r), 0u);
	cr_assert_not(recorder_read(r, 0, &rec));
	cr_assert_not(recorder_read(r, RECORDER_READS, &rec));
	free(r);
}

Test(recorder, the_newest_thousand_are_kept)
{
	struct recorder *r = calloc(1, sizeof(*r));
	const uint64_t n = 3 * RECORDER_READS + 7;
	struct record rec;

	for (uint64_t i = 0; i < n; i++) {
		fill(&rec, i);
		recorder_write(r, &rec);
		cr_assert_eq(recorder_written(r), i + 1);
		cr_assert(recorder_read(r, i, &rec) && is_whole(&rec, i));
	}
	cr_assert_eq(recorder_oldest(r), n - RECORDER_READS);
	cr_assert_not(recorder_read(r, n - RECORDER_READS - 1, &rec), "overwritten");
	cr_assert_not(recorder_read(r, n, &rec), "not written yet");
	for (uint64_t i = recorder_oldest(r); i < n; i++)
		cr_assert(recorder_read(r, i, &rec) && is_whole(&rec, i), "record %lu", (unsigned long)i);
	free(r);
}

Test(recorder, copies_only_what_is_defined)
{
	struct recorder *r = calloc(1, sizeof(*r));
	struct record rec, out;

	fill(&rec, 1);
	recorder_write(r, &rec);
	memset(&out, 0xaa, sizeof(out));
	cr_assert(recorder_read(r, 0, &out));
	cr_assert_eq(out.rail_bytes[1], 1u);
	cr_assert_eq(out.rail_bytes[2], 0xaaaaaaaaaaaaaaaau, "two rails, two numbers");
	cr_assert_eq((uint8_t)out.cause[0], 0xaa, "no cause on success");
	free(r);
}

/* A record that is half written is seen by nobody. */
Test(recorder, a_record_being_written_is_not_read)
{
	struct recorder *r = calloc(1, sizeof(*r));
	struct record rec;

	fill(&rec, 0);
	recorder_write(r, &rec);
	r->slots[0].seq = 2 * RECORDER_READS + 1;
	cr_assert_not(recorder_read(r, 0, &rec));
	cr_assert_not(recorder_read(r, RECORDER_READS, &rec));
	free(r);
}

struct race {
	struct recorder *r;
	uint64_t n_read, n_bad;
	int is_over;
};

static void *chase(void *arg)
{
	struct race *race = arg;
	struct record rec;

	while (!__atomic_load_n(&race->is_over, __ATOMIC_ACQUIRE)) {
		/* The one that is about to be overwritten, where the writer is. */
		uint64_t n = recorder_oldest(race->r);

		if (!recorder_read(race->r, n, &rec))
			continue;
		__atomic_store_n(&race->n_read, race->n_read + 1, __ATOMIC_RELAXED);
		race->n_bad += !is_whole(&rec, n);
	}
	return NULL;
}

Test(recorder, a_reader_never_gets_a_mixture)
{
	struct race race = {.r = calloc(1, sizeof(*race.r))};
	struct record rec;
	pthread_t reader;

	cr_assert_eq(pthread_create(&reader, NULL, chase, &race), 0);
	for (uint64_t i = 0; i < 300000 || !__atomic_load_n(&race.n_read, __ATOMIC_RELAXED); i++) {
		fill(&rec, i);
		recorder_write(race.r, &rec);
	}
	__atomic_store_n(&race.is_over, 1, __ATOMIC_RELEASE);
	pthread_join(reader, NULL);
	cr_assert_eq(race.n_bad, 0u, "%lu of %lu", (unsigned long)race.n_bad, (unsigned long)race.n_read);
	free(race.r);
}
