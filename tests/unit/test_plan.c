/* SPDX-License-Identifier: BSD-3-Clause */
/* The planner alone: who gets which bytes, each of them once. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "read/plan.h"

#define KIB 1024u
#define MIB (1024u * KIB)
#define SEG MIB

struct issued {
	uint32_t stripe, off, len, n_stripes;
	uint16_t rail;
	bool is_split;
};

struct run {
	struct plan p;
	uint16_t n_rails;
	uint32_t eligible;
	struct issued *list;
	uint32_t n, cap;
};

static void run_init(struct run *r, uint64_t size, uint32_t stripe, uint16_t n_rails);
static void run_free(struct run *r);
static bool step(struct run *r, uint16_t rail);
static bool any(struct run *r, uint16_t first);
static void check_cover(struct run *r, const char *what);
static int by_place(const void *a, const void *b);

static uint32_t all_rails(uint16_t n)
{
	return n == 32 ? UINT32_MAX : (1u << n) - 1;
}

static uint32_t random_below(uint32_t n)
{
	return (uint32_t)random() % n;
}

static void run_init(struct run *r, uint64_t size, uint32_t stripe, uint16_t n_rails)
{
	uint32_t n = (uint32_t)((size + stripe - 1) / stripe);

	memset(r, 0, sizeof(*r));
	r->n_rails = n_rails;
	r->eligible = all_rails(n_rails);
	r->cap = 1024;
	r->list = malloc(r->cap * sizeof(*r->list));
	plan_init(&r->p, size, stripe, 0, n, SEG, r->eligible);
}

static void run_free(struct run *r)
{
	free(r->list);
}

/* Lets one rail take a piece, and notes it. */
static bool step(struct run *r, uint16_t rail)
{
	uint64_t before = r->p.unissued_bytes;
	struct plan_piece o;

	if (!plan_next(&r->p, rail, r->eligible, &o)) {
		cr_assert_eq(r->p.unissued_bytes, before);
		return false;
	}
	cr_assert(r->eligible >> rail & 1);
	cr_assert_gt(o.len_bytes, 0u);
	cr_assert_lt(o.len_bytes, SEG + 4096u);
	cr_assert(o.n_stripes >= 1 && o.n_stripes <= 8);
	cr_assert_eq(r->p.unissued_bytes, before - o.len_bytes);
	if (r->n == r->cap) {
		r->cap *= 2;
		r->list = realloc(r->list, r->cap * sizeof(*r->list));
	}
	r->list[r->n++] = (struct issued){o.stripe, o.off, o.len_bytes, o.n_stripes, rail, o.is_split};
	return true;
}

/* One piece for any eligible rail, looking from `first` on. */
static bool any(struct run *r, uint16_t first)
{
	for (uint16_t i = 0; i < r->n_rails; i++) {
		if (step(r, (uint16_t)((first + i) % r->n_rails)))
			return true;
	}
	return false;
}

static int by_place(const void *a, const void *b)
{
	const struct issued *x = a, *y = b;

	if (x->stripe != y->stripe)
		return x->stripe < y->stripe ? -1 : 1;
	return x->off < y->off ? -1 : x->off > y->off;
}

/* Sorted by place, the pieces must follow each other without gap or overlap. */
static void check_cover(struct run *r, const char *what)
{
	uint64_t at = (uint64_t)r->p.first_stripe * r->p.stripe_bytes;
	uint64_t end = (uint64_t)r->p.end_stripe * r->p.stripe_bytes;

	if (end > r->p.size_bytes)
		end = r->p.size_bytes;
	cr_assert_eq(r->p.unissued_bytes, 0u, "%s: bytes are left", what);
	qsort(r->list, r->n, sizeof(*r->list), by_place);
	for (uint32_t i = 0; i < r->n; i++) {
		const struct issued *o = &r->list[i];
		uint64_t start = (uint64_t)o->stripe * r->p.stripe_bytes + o->off;

		cr_assert_eq(start, at, "%s: piece %u starts at %lu, not %lu", what, i, (unsigned long)start,
			(unsigned long)at);
		if (o->n_stripes == 1)
			cr_assert_leq(
				o->off + (uint64_t)o->len, r->p.stripe_bytes, "%s: a piece leaves its stripe", what);
		else
			cr_assert(o->off == 0 && (o->len > (o->n_stripes - 1) * r->p.stripe_bytes), "%s", what);
		at += o->len;
	}
	cr_assert_eq(at, end, "%s: ends at %lu", what, (unsigned long)at);
}

/* ---- Geometry ---- */

Test(plan, geometry)
{
	const uint32_t s = 64 * KIB;

	cr_assert(plan_geometry_ok(0, s, 0));
	cr_assert(plan_geometry_ok(1, s, 1));
	cr_assert(plan_geometry_ok(s, s, 1));
	cr_assert(plan_geometry_ok(s + 1u, s, 2));
	cr_assert(plan_geometry_ok((uint64_t)RY_STRIPES_MAX * s, s, RY_STRIPES_MAX));
	cr_assert(plan_geometry_ok((uint64_t)RY_STRIPES_MAX << 30, 1u << 30, RY_STRIPES_MAX));
}

Test(plan, geometry_refused)
{
	const uint32_t s = 64 * KIB;

	cr_assert_not(plan_geometry_ok(0, s, 1), "a stripe of nothing");
	cr_assert_not(plan_geometry_ok(1, s, 0), "a stripe too few");
	cr_assert_not(plan_geometry_ok(s, s, 2), "a stripe too many");
	cr_assert_not(plan_geometry_ok(s, s - 4096, 2), "stripe too small");
	cr_assert_not(plan_geometry_ok(1, 0, 0), "no stripe size");
	cr_assert_not(plan_geometry_ok(1, (1u << 30) + 4096, 1), "stripe too large");
	cr_assert_not(plan_geometry_ok(1, s + 512, 1), "stripe not aligned");
	cr_assert_not(plan_geometry_ok((uint64_t)RY_STRIPES_MAX * s + 1, s, RY_STRIPES_MAX + 1), "too many stripes");
	cr_assert_not(plan_geometry_ok(UINT64_MAX, s, 0), "the round-up overflows");
	cr_assert_not(plan_geometry_ok(UINT64_MAX - s + 2, s, 0));
	cr_assert_not(plan_geometry_ok((1ull << 48) + s, s, 1), "the count is cut to 32 bits");
}

Test(plan, stripe_lengths)
{
	cr_assert_eq(plan_stripe_len(10, 64 * KIB, 0), 10u);
	cr_assert_eq(plan_stripe_len(64 * KIB, 64 * KIB, 0), 64 * KIB);
	cr_assert_eq(plan_stripe_len(64 * KIB + 1, 64 * KIB, 0), 64 * KIB);
	cr_assert_eq(plan_stripe_len(64 * KIB + 1, 64 * KIB, 1), 1u);
	cr_assert_eq(plan_stripe_len(5ull << 30, 1u << 30, 4), 1u << 30);
}

/* ---- Round robin ---- */

static void deal(struct run *r, const uint8_t *hints, uint8_t *rails)
{
	plan_deal_round_robin(&r->p, hints, rails);
}

Test(plan, round_robin_deals_in_turn)
{
	uint8_t rails[4];
	struct run r;

	run_init(&r, 4 * MIB, MIB, 2);
	deal(&r, NULL, rails);
	cr_assert_arr_eq(rails, ((uint8_t[]){0, 1, 0, 1}), 4);
	while (any(&r, 0))
		;
	for (uint32_t i = 0; i < r.n; i++)
		cr_assert_eq(r.list[i].rail, r.list[i].stripe % 2);
	check_cover(&r, "rr");
	run_free(&r);
}

Test(plan, round_robin_pins)
{
	const uint8_t hints[] = {PLAN_HINT_NONE, 0, 0, PLAN_HINT_NONE, 1, PLAN_HINT_NONE};
	uint8_t rails[6];
	struct run r;

	/* The cursor moves for the stripes that are not pinned alone: 0, 3 and 5 get 0, 1, 0. */
	run_init(&r, 6 * MIB, MIB, 2);
	deal(&r, hints, rails);
	cr_assert_arr_eq(rails, ((uint8_t[]){0, 0, 0, 1, 1, 0}), 6);
	run_free(&r);
}

Test(plan, round_robin_ignores_hints_outside_the_mask)
{
	const uint8_t hints[] = {3, 31, 32, 254};
	uint8_t rails[4];
	struct run r;

	run_init(&r, 4 * MIB, MIB, 3);
	r.p.rail_mask = 5; /* rails 0 and 2 */
	deal(&r, hints, rails);
	cr_assert_arr_eq(rails, ((uint8_t[]){0, 2, 0, 2}), 4);
	run_free(&r);
}

Test(plan, round_robin_over_any_mask)
{
	uint8_t rails[5];
	struct run r;

	run_init(&r, 5 * MIB, MIB, 32);
	r.p.rail_mask = 1u << 31 | 1u << 7 | 1u << 3;
	deal(&r, NULL, rails);
	cr_assert_arr_eq(rails, ((uint8_t[]){3, 7, 31, 3, 7}), 5);
	run_free(&r);
}

Test(plan, round_robin_never_splits)
{
	uint8_t rails[3];
	struct run r;

	/* Rail 0 stops after its first piece; rail 1 must not take over, however long it asks. */
	run_init(&r, 12 * MIB, 4 * MIB, 2);
	deal(&r, NULL, rails);
	cr_assert(step(&r, 0));
	while (step(&r, 1))
		;
	for (uint32_t i = 1; i < r.n; i++) {
		cr_assert_eq(r.list[i].stripe, 1u);
		cr_assert_not(r.list[i].is_split);
	}
	cr_assert_eq(r.p.unissued_bytes, 7 * MIB);
	r.eligible = 2;
	cr_assert_not(step(&r, 1), "not even when the other rail is gone");
	r.eligible = 3;
	while (step(&r, 0))
		;
	check_cover(&r, "rr");
	run_free(&r);
}

Test(plan, round_robin_of_a_range)
{
	uint8_t rails[3];
	struct run r;

	run_init(&r, 10 * MIB, MIB, 2);
	plan_init(&r.p, 10 * MIB, MIB, 4, 3, SEG, 3);
	deal(&r, NULL, rails);
	cr_assert_arr_eq(rails, ((uint8_t[]){0, 1, 0}), 3);
	while (any(&r, 1))
		;
	cr_assert_eq(r.n, 3u);
	check_cover(&r, "rr range");
	run_free(&r);
}

/* ---- Every byte once ---- */

static const uint64_t sizes[] = {0, 1, 2, 3, 4, 5, 7, 4095, 4096, 4097, MIB - 1, MIB, MIB + 1, 9 * MIB + 12345};
static const uint32_t stripes[] = {64 * KIB, 256 * KIB, 4 * MIB};

Test(plan, every_byte_once_at_every_size)
{
	for (unsigned k = 0; k < sizeof(stripes) / sizeof(stripes[0]); k++) {
		for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
			for (uint16_t n = 1; n <= 8; n++) {
				char what[64];
				struct run r;

				snprintf(what, sizeof(what), "%lu by %u over %u", (unsigned long)sizes[i], stripes[k],
					n);
				run_init(&r, sizes[i], stripes[k], n);
				for (uint16_t f = 0; any(&r, f); f++)
					;
				check_cover(&r, what);
				run_free(&r);
			}
		}
	}
}

/* Rails come and go, ask in any order; at the end everything was issued once. */
static void random_run(unsigned seed)
{
	char what[96];
	uint32_t stripe = stripes[random_below(3)], idle = 0;
	uint64_t size = random_below(3) ? random_below(40 * MIB) : sizes[random_below(14)];
	uint16_t n_rails = (uint16_t)(1 + random_below(8));
	struct run r;

	snprintf(what, sizeof(what), "seed %u: %lu by %u over %u", seed, (unsigned long)size, stripe, n_rails);
	run_init(&r, size, stripe, n_rails);
	while (r.p.unissued_bytes) {
		if (!random_below(8))
			r.eligible = random_below(1u << n_rails);
		if (!r.eligible || idle > 100)
			r.eligible = all_rails(n_rails);
		idle = step(&r, (uint16_t)random_below(n_rails)) ? 0 : idle + 1;
		cr_assert_lt(idle, 10000u, "%s: stuck", what);
	}
	check_cover(&r, what);
	run_free(&r);
}

Test(plan, every_byte_once_at_random)
{
	for (unsigned seed = 1; seed <= 300; seed++) {
		srandom(seed);
		random_run(seed);
	}
}

Test(plan, five_gib)
{
	struct run r;

	run_init(&r, (5ull << 30) + 1, 4 * MIB, 4);
	for (uint16_t f = 0; any(&r, f); f = (uint16_t)((f + 1) % 4))
		;
	check_cover(&r, "5 GiB");
	run_free(&r);
}

Test(plan, most_stripes)
{
	struct run r;

	run_init(&r, (uint64_t)RY_STRIPES_MAX * 64 * KIB, 64 * KIB, 3);
	for (uint16_t f = 0; any(&r, f); f = (uint16_t)((f + 1) % 3))
		;
	cr_assert_lt(r.n, RY_STRIPES_MAX / 7, "several small stripes in a message, but %u messages", r.n);
	check_cover(&r, "65,536 stripes");
	run_free(&r);
}

Test(plan, largest_stripes)
{
	struct run r;

	run_init(&r, (3ull << 30) - 1, 1u << 30, 2);
	for (uint16_t f = 0; any(&r, f); f ^= 1)
		;
	check_cover(&r, "1 GiB stripes");
	run_free(&r);
}

/* ---- Shape of what is issued ---- */

Test(plan, splits_only_when_nothing_is_unstarted)
{
	struct run r;

	run_init(&r, 16 * MIB, 4 * MIB, 3);
	for (uint16_t f = 0; any(&r, f); f = (uint16_t)((f + 1) % 3)) {
		if (r.list[r.n - 1].is_split)
			cr_assert_eq(r.p.next_stripe, r.p.end_stripe);
	}
	check_cover(&r, "split");
	run_free(&r);
}

Test(plan, a_split_leaves_the_front_to_the_starter)
{
	struct run r;

	run_init(&r, 4 * MIB, 4 * MIB, 2);
	cr_assert(step(&r, 0));
	cr_assert(step(&r, 1));
	cr_assert(r.list[1].is_split);
	cr_assert_eq(r.list[1].stripe, 0u);
	cr_assert_geq(r.list[1].off, 2 * MIB, "the thief takes the tail");
	cr_assert(step(&r, 0));
	cr_assert_eq(r.list[2].off, r.list[0].len, "the starter goes on where it was");
	cr_assert_not(r.list[2].is_split);
	run_free(&r);
}

Test(plan, a_stripe_is_in_order_at_its_starter)
{
	uint32_t last_off[8], n_seen[8] = {0};
	uint16_t starter[8];
	struct run r;

	run_init(&r, 32 * MIB, 4 * MIB, 3);
	for (uint16_t f = 0; any(&r, f); f = (uint16_t)((f + 1) % 3)) {
		const struct issued *o = &r.list[r.n - 1];

		if (!n_seen[o->stripe]++) {
			cr_assert_eq(o->off, 0u, "a stripe starts at its front");
			starter[o->stripe] = o->rail;
		} else if (o->rail == starter[o->stripe]) {
			cr_assert_gt(o->off, last_off[o->stripe]);
		} else {
			continue;
		}
		last_off[o->stripe] = o->off;
	}
	run_free(&r);
}

Test(plan, one_rail_in_order_and_whole_segments)
{
	struct run r;

	run_init(&r, 8 * MIB + 5, 4 * MIB, 1);
	while (step(&r, 0))
		;
	cr_assert_eq(r.n, 9u);
	for (uint32_t i = 0; i < 8; i++)
		cr_assert(r.list[i].stripe == i / 4 && r.list[i].off == i % 4 * MIB && r.list[i].len == MIB);
	cr_assert(r.list[8].stripe == 2 && r.list[8].len == 5);
	run_free(&r);
}

/* What ends the work of these rails is the end of the last transfer, not of each. */
Test(plan, the_end_is_not_cut_small_before_others)
{
	struct run alone, followed;

	run_init(&alone, 16 * MIB, 4 * MIB, 2);
	run_init(&followed, 16 * MIB, 4 * MIB, 2);
	followed.p.queued_bytes = 4 * SEG;
	for (uint16_t f = 0; any(&alone, f); f ^= 1)
		;
	for (uint16_t f = 0; any(&followed, f); f ^= 1)
		;
	cr_assert_eq(followed.n, 16u, "%u pieces", followed.n);
	cr_assert_gt(alone.n, 20u, "%u pieces", alone.n);
	check_cover(&alone, "alone");
	check_cover(&followed, "followed");
	run_free(&alone);
	run_free(&followed);
}

Test(plan, small_stripes_travel_together)
{
	struct run r;

	run_init(&r, 32 * MIB, 64 * KIB, 1);
	while (step(&r, 0))
		cr_assert(r.list[r.n - 1].n_stripes > 1 && r.list[r.n - 1].len <= SEG);
	cr_assert_eq(r.n, 32u * 16 / 8);
	check_cover(&r, "small stripes");
	run_free(&r);
}

Test(plan, a_tail_of_nearly_nothing_goes_with_its_segment)
{
	struct run r;

	run_init(&r, MIB + 4095, 4 * MIB, 1);
	cr_assert(step(&r, 0));
	cr_assert_eq(r.list[0].len, MIB + 4095);
	cr_assert_not(step(&r, 0));
	run_free(&r);
}

Test(plan, a_lost_rail_is_taken_over)
{
	struct run r;

	/* Rail 1 has started a stripe and goes: rail 0 finishes its own, then all of the rest, without splitting off.
	 */
	run_init(&r, 8 * MIB, 4 * MIB, 2);
	cr_assert(step(&r, 0));
	cr_assert(step(&r, 1));
	r.eligible = 1;
	while (step(&r, 0))
		;
	check_cover(&r, "taken over");
	run_free(&r);
}

Test(plan, a_rail_that_is_not_eligible_gets_nothing)
{
	struct run r;

	run_init(&r, 8 * MIB, 4 * MIB, 2);
	r.eligible = 1;
	cr_assert_not(step(&r, 1));
	r.eligible = 0xff;
	cr_assert_not(step(&r, 5), "outside the plan's mask");
	run_free(&r);
}

/* Every rail takes a piece as soon as its last one is through; time = bytes / speed. Returns when each finished. */
static void race(struct run *r, const double *speed, double *free_at)
{
	for (;;) {
		uint16_t next = 0;
		uint32_t tries = 0;

		for (uint16_t i = 1; i < r->n_rails; i++) {
			if (free_at[i] < free_at[next])
				next = i;
		}
		if (step(r, next)) {
			free_at[next] += r->list[r->n - 1].len / speed[next];
			continue;
		}
		if (!r->p.unissued_bytes)
			return;
		/* Nothing for it now: it looks again when the next one is free. */
		for (uint16_t i = 0; i < r->n_rails; i++)
			tries += i != next && step(r, i) && (free_at[i] += r->list[r->n - 1].len / speed[i], true);
		cr_assert_gt(tries, 0u);
	}
}

Test(plan, equal_rails_finish_together)
{
	for (uint16_t n = 2; n <= 8; n++) {
		const double speed[8] = {1, 1, 1, 1, 1, 1, 1, 1};
		double at[8] = {0}, low = 1e18, high = 0;
		struct run r;

		run_init(&r, 64 * MIB + 777, 4 * MIB, n);
		race(&r, speed, at);
		for (uint16_t i = 0; i < n; i++) {
			low = at[i] < low ? at[i] : low;
			high = at[i] > high ? at[i] : high;
		}
		/* The last owner has a small segment under way, and less than two of them left, or it would be split.
		 */
		cr_assert_lt(high - low, 3 * 64 * KIB, "%u rails: skew %.0f bytes", n, high - low);
		check_cover(&r, "race");
		run_free(&r);
	}
}

Test(plan, shares_follow_speed)
{
	const double speed[3] = {1, 2, 4};
	double at[3] = {0}, ideal = 64.0 * MIB / 7, high = 0;
	struct run r;

	run_init(&r, 64 * MIB, 4 * MIB, 3);
	race(&r, speed, at);
	for (uint16_t i = 0; i < 3; i++)
		high = at[i] > high ? at[i] : high;
	cr_assert_leq(high, ideal * 1.03, "%.3f of the ideal time", high / ideal);
	check_cover(&r, "race");
	run_free(&r);
}

Test(plan, more_rails_than_stripes_share_the_last)
{
	uint32_t seen = 0;
	struct run r;

	run_init(&r, 8 * MIB, 4 * MIB, 8);
	for (uint16_t f = 0; any(&r, f); f = (uint16_t)((f + 1) % 8))
		seen |= 1u << r.list[r.n - 1].rail;
	cr_assert_eq(seen, 0xffu, "rails %x had work", seen);
	check_cover(&r, "2 stripes on 8 rails");
	run_free(&r);
}
