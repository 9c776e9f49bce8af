/* SPDX-License-Identifier: BSD-3-Clause */
/* The journal of breakers: in order, and when its reader is late the newest are dropped and counted. */
#include <criterion/criterion.h>

#include "health/journal.h"

static struct journal j;

static void push(uint64_t n)
{
	struct journal_entry e = {.kind = JOURNAL_SLOW, .slow = {.usual = n}};

	journal_push(&j, &e);
}

/* The next one is number n. */
static void expect(uint64_t n)
{
	struct journal_entry e;

	cr_assert(journal_pop(&j, &e), "number %lu is not there", (unsigned long)n);
	cr_assert_eq(e.kind, JOURNAL_SLOW);
	cr_assert_eq(e.slow.usual, n);
}

Test(journal, a_late_reader_loses_the_newest)
{
	struct journal_entry e;

	cr_assert(journal_is_empty(&j));
	for (uint64_t n = 0; n < JOURNAL_ENTRIES + 3; n++)
		push(n);
	cr_assert_eq(j.n_dropped, 3u);
	for (uint64_t n = 0; n < JOURNAL_ENTRIES; n++)
		expect(n);
	cr_assert_not(journal_pop(&j, &e));
	push(7);
	expect(7);
	cr_assert_eq(j.n_dropped, 3u);
	journal_lost(&j, 2);
	cr_assert_eq(j.n_dropped, 5u);
}

Test(journal, indices_run_past_two_to_the_thirty_second)
{
	j.head = j.tail = UINT32_MAX - 1;
	for (uint64_t n = 0; n < 5; n++)
		push(n);
	for (uint64_t n = 0; n < 5; n++)
		expect(n);
	cr_assert(journal_is_empty(&j));
	cr_assert_eq(j.head, 3u);
}
