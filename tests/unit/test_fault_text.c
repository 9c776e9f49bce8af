/* SPDX-License-Identifier: BSD-3-Clause */
/* Fault plans as text. */
#include <errno.h>
#include <string.h>

#include <criterion/criterion.h>
#include <rte_common.h>

#include "transport/mock/fault.h"
#include "transport/transport.h"

#define MIB (1u << 20)
#define MS 1000000ull

static struct fault_plan plan_of(const char *text)
{
	struct fault_plan plan = {0};
	char message[256] = "";

	cr_assert_eq(fault_parse(text, &plan, message, sizeof(message)), 0, "%s: %s", text, message);
	return plan;
}

static void refused(const char *text, const char *word)
{
	struct fault_plan plan, before;
	char message[256] = "";

	memset(&plan, 0x5a, sizeof(plan));
	before = plan;
	cr_assert_eq(fault_parse(text, &plan, message, sizeof(message)), -EINVAL, "%s is taken", text);
	cr_assert(strstr(message, word), "%s: '%s' does not say '%s'", text, message, word);
	cr_assert(memcmp(&plan, &before, sizeof(plan)) == 0, "%s: written although refused", text);
}

Test(fault_text, text_says_what_the_struct_says)
{
	struct fault_plan p = plan_of("stall:at=1MiB,for=2s; lose:n=3,repeat=2,of=cancels; seed=7;"
				      "corrupt:stripe=4,byte=17;slow:after=10ms,every=1s,factor=0.25,repeat=forever;"
				      "late:for=5ms,guard=off; error:class=retry,p=0.125");

	cr_assert_eq(p.seed, 7);
	cr_assert_eq(p.n_entries, 6);
	cr_assert(p.entries[0].kind == FAULT_STALL && p.entries[0].trigger == FAULT_AT_BYTES &&
		  p.entries[0].at == MIB && p.entries[0].for_ns == 2000 * MS && p.entries[0].repeat == 1);
	cr_assert(p.entries[1].kind == FAULT_LOSE && p.entries[1].trigger == FAULT_AT_COUNT && p.entries[1].at == 3 &&
		  p.entries[1].repeat == 2 && p.entries[1].of == FAULT_OF_CANCELS);
	cr_assert(p.entries[2].kind == FAULT_CORRUPT && p.entries[2].trigger == FAULT_AT_STRIPE &&
		  p.entries[2].at == 4 && p.entries[2].arg == 17);
	cr_assert(p.entries[3].kind == FAULT_SLOW && p.entries[3].trigger == FAULT_AT_TIME &&
		  p.entries[3].at == 10 * MS && p.entries[3].every == 1000 * MS && p.entries[3].arg == 250000 &&
		  p.entries[3].repeat == FAULT_FOREVER);
	cr_assert(p.entries[4].kind == FAULT_LATE && p.entries[4].is_unguarded && p.entries[4].for_ns == 5 * MS);
	cr_assert(p.entries[5].kind == FAULT_ERROR && p.entries[5].arg == WC_ERR_RETRY &&
		  p.entries[5].chance_ppm == 125000);
}

Test(fault_text, defaults)
{
	struct fault_plan p = plan_of("disconnect; lose; corrupt; reorder; short");

	cr_assert(p.entries[0].trigger == FAULT_AT_TIME && p.entries[0].at == 0, "at once");
	cr_assert(p.entries[1].trigger == FAULT_AT_COUNT && p.entries[1].at == 1, "the first");
	cr_assert_eq(p.entries[2].arg, FAULT_BYTE_ANY);
	cr_assert(p.entries[3].arg == 1 && p.entries[3].for_ns == MS);
	for (uint32_t i = 0; i < p.n_entries; i++)
		cr_assert(p.entries[i].repeat == 1 && p.entries[i].chance_ppm == FAULT_ALWAYS_PPM);
	cr_assert_eq(plan_of("").n_entries, 0);
	cr_assert_eq(plan_of(" ; ; ").n_entries, 0);
}

Test(fault_text, bad_text_is_refused_with_the_reason)
{
	static const char *const bad[][2] = {{"stal:for=1s", "stal"}, {"stall", "for"}, {"stall:for=2", "time"},
		{"stall:for=0s", "how long"}, {"stall:for=2s,for=", "for"}, {"stall:for=1h", "time"},
		{"stall:at=1MB,for=1s", "bytes"}, {"stall:at=1,n=2,for=1s", "n"}, {"lose:n=0", "n"}, {"lose:n=-1", "n"},
		{"lose:for=1s", "for"}, {"lose:of=done", "answers"}, {"lose:p=0", "chance"}, {"lose:p=1.5", "chance"},
		{"lose:p=0.1234567", "chance"}, {"lose:repeat=0", "repeat"}, {"lose:every=2,n=1", "behind"},
		{"slow", "factor"}, {"slow:factor=0", "factor"}, {"slow:factor=2", "factor"}, {"error", "class"},
		{"error:class=ok", "class"}, {"error:class=", "class"}, {"corrupt:byte=x", "byte"},
		{"lose:stripe=1", "stripe"}, {"corrupt:stripe=1,every=2", "every"}, {"corrupt:byte=1073741824", "byte"},
		{"late:guard=no", "on"}, {"reorder:behind=0", "behind"}, {"disconnect:p=0.5", "every"},
		{"seed=x", "seed"}, {"seed=7:n=1", "seed"}, {"lose:n=99999999999999999999", "n"}, {"lose:n", "n"},
		{"lose:=3", "key"}, {":", "called"}, {"stall:for=99999999s", "24 hours"}, {"short:by=2GiB", "by"},
		{"lose,n=1", "called"}};
	char many[FAULT_TEXT_BYTES + 1];

	for (size_t i = 0; i < RTE_DIM(bad); i++)
		refused(bad[i][0], bad[i][1]);
	many[0] = 0;
	for (int i = 0; i < 17; i++)
		strcat(many, "lose;");
	refused(many, "more than 16");
	memset(many, ' ', sizeof(many) - 1);
	many[sizeof(many) - 1] = 0;
	refused(many, "longer");
}

static uint64_t pick(uint64_t *x, uint64_t n)
{
	*x = *x * 6364136223846793005ull + 1442695040888963407ull;
	return (*x >> 33) % n;
}

static uint64_t wide(uint64_t *x, uint64_t limit)
{
	return pick(x, 2) ? pick(x, 10) : (pick(x, 1u << 31) << 31 | pick(x, 1u << 31)) % limit;
}

/* Any struct; most of them are not valid. */
static void any_entry(uint64_t *x, struct fault_entry *e)
{
	e->kind = (uint8_t)pick(x, FAULT_KINDS_ + 1);
	e->trigger = (uint8_t)pick(x, 6);
	e->of = (uint8_t)(pick(x, 2) ? pick(x, 5) : 0);
	e->is_unguarded = pick(x, 8) == 0;
	e->chance_ppm = (uint32_t)(pick(x, 2) ? FAULT_ALWAYS_PPM : pick(x, FAULT_ALWAYS_PPM + 5));
	e->repeat = (uint32_t)wide(x, UINT32_MAX);
	e->at = wide(x, 86400000000001ull);
	e->every = pick(x, 2) ? wide(x, 86400000000001ull) : 0;
	e->arg = pick(x, 4) ? pick(x, 20) : pick(x, 2) ? FAULT_BYTE_ANY : wide(x, 1u << 31);
	e->for_ns = pick(x, 2) ? wide(x, 86400000000001ull) : 0;
}

/* Text is made of a valid plan only; then reading it gives the very same plan, and the longest fits. */
Test(fault_text, reading_undoes_printing)
{
	uint64_t x = 42, n_valid = 0;
	uint32_t longest = 0;

	for (int round = 0; round < 400000; round++) {
		struct fault_plan p = {.seed = wide(&x, UINT64_MAX), .n_entries = 1}, back;
		char text[FAULT_TEXT_BYTES], message[256] = "";
		uint32_t len;

		any_entry(&x, &p.entries[0]);
		if (fault_check(&p, message, sizeof(message))) {
			cr_assert_neq(message[0], 0);
			continue;
		}
		n_valid++;
		len = fault_format(&p, text, sizeof(text));
		cr_assert_eq(len, strlen(text));
		cr_assert_eq(fault_parse(text, &back, message, sizeof(message)), 0, "%s: %s", text, message);
		cr_assert(memcmp(&back, &p, sizeof(p)) == 0, "%s", text);
		longest = RTE_MAX(longest, len);
	}
	cr_assert_gt(n_valid, 1000);
	cr_assert_lt(FAULT_ENTRIES_MAX * (longest + 2), FAULT_TEXT_BYTES);
}

Test(fault_text, printing_into_too_little_room_says_how_much)
{
	struct fault_plan p = plan_of("stall:at=1MiB,for=2s");
	char text[8];

	cr_assert_eq(fault_format(&p, text, sizeof(text)), 20);
	cr_assert_str_eq(text, "stall:a");
	cr_assert_eq(fault_format(&p, NULL, 0), 20);
}
