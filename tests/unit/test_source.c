/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/source.h"

#include <criterion/criterion.h>

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>

static struct source_table *t;

static void setup(void)
{
	cr_assert_eq(source_table_create(8, 2, &t), 0);
}

TestSuite(source, .init = setup);

static struct source *live(uint64_t generation)
{
	struct source *s = source_alloc(t);

	cr_assert(s);
	s->generation = generation;
	s->size_bytes = 100;
	s->stripe_bytes = 65536;
	s->stripe_count = 1;
	source_publish(s);
	return s;
}

static struct source *pin(uint64_t handle, uint64_t generation, uint16_t rail, uint32_t *status)
{
	*status = RY_OK;
	return source_pin(t, handle, generation, rail, 1000, status, false);
}

static void online(uint16_t rail)
{
	rte_rcu_qsbr_thread_online(t->qsbr, rail);
}

static void report(uint16_t rail)
{
	rte_rcu_qsbr_quiescent(t->qsbr, rail);
}

Test(source, handles_are_slot_and_salt_and_never_zero)
{
	for (uint32_t i = 0; i < 8; i++) {
		struct source *s = source_alloc(t);

		cr_assert_eq((uint32_t)s->handle, s - t->slots);
		cr_assert_neq(s->handle >> 32, 0);
	}
	cr_assert_null(source_alloc(t), "the table is bounded");
}

Test(source, create_refuses_senseless_sizes)
{
	struct source_table *x = NULL;

	cr_assert_eq(source_table_create(0, 1, &x), -EINVAL);
	cr_assert_eq(source_table_create(1, RY_RAILS_MAX + 1, &x), -EINVAL);
	cr_assert_eq(source_table_create(UINT32_MAX, 1, &x), -EINVAL);
	cr_assert_null(x);
	source_table_destroy(NULL);
	cr_assert_eq(source_table_create(5, 0, &x), 0, "no rails yet: everything is quiet");
	cr_assert_eq(x->mask, 7);
	source_table_destroy(x);
}

Test(source, slots_start_on_lines_and_pins_have_their_own)
{
	cr_assert_eq((uintptr_t)t->slots % 64, 0);
	cr_assert_eq(sizeof(struct source) % 64, 0);
	cr_assert_eq(offsetof(struct source, pins) % 64, 0);
}

Test(source, pin_finds_the_live_source_of_its_generation)
{
	struct source *s = live(7);
	uint32_t status;

	cr_assert_eq(pin(s->handle, 7, 1, &status), s);
	cr_assert_eq(s->pins[1], 1);
	cr_assert_eq(s->pins[0], 0);
	cr_assert_eq(status, RY_OK);
	source_unpin(s, 1);
	cr_assert_eq(s->pins[1], 0);
}

Test(source, pin_refuses_what_is_not_live_or_not_that_generation)
{
	struct source *s = source_alloc(t);
	uint64_t handle = s->handle;
	uint32_t status;

	cr_assert_null(pin(handle, 0, 0, &status), "allocated, not published");
	cr_assert_eq(status, RY_ERR_STALE_GENERATION);
	source_publish(s);
	cr_assert_null(pin(handle, 1, 0, &status));
	cr_assert_eq(status, RY_ERR_STALE_GENERATION);
	cr_assert_null(pin(handle + (1ull << 32), 0, 0, &status), "another salt");
	cr_assert_null(pin(0, 0, 0, &status));
	source_retire(t, s);
	cr_assert_null(pin(handle, 0, 0, &status));
	cr_assert_eq(status, RY_ERR_STALE_GENERATION);
	cr_assert_eq(s->pins[0], 0, "a refusal pins nothing");
}

Test(source, pin_refuses_after_expiry)
{
	struct source *s = live(1);
	uint32_t status = RY_OK;

	s->expires_ns = 2000;
	cr_assert_eq(source_pin(t, s->handle, 1, 0, 1999, &status, false), s);
	cr_assert_null(source_pin(t, s->handle, 1, 0, 2000, &status, false));
	cr_assert_eq(status, RY_ERR_NOT_FOUND);
}

Test(source, a_released_slot_comes_back_under_another_handle)
{
	struct source *s = live(1);
	uint64_t old = s->handle;
	uint64_t token = source_retire(t, s);
	uint32_t status;
	struct source *again;

	cr_assert(source_is_quiet(t, s, token), "all rails are offline");
	source_release(t, s);
	again = source_alloc(t);
	cr_assert_eq(again, s);
	cr_assert_neq(again->handle, old);
	cr_assert_eq((uint32_t)again->handle, (uint32_t)old);
	again->generation = 1;
	source_publish(again);
	cr_assert_null(pin(old, 1, 0, &status), "the stale handle stays dead, same generation or not");
	cr_assert_eq(status, RY_ERR_STALE_GENERATION);
	cr_assert_eq(pin(again->handle, 1, 0, &status), again);
}

Test(source, salt_skips_zero_when_it_wraps)
{
	struct source *s = source_alloc(t);

	s->handle |= 0xffffffffull << 32;
	source_release(t, s);
	cr_assert_eq(source_alloc(t)->handle >> 32, 1);
}

Test(source, a_release_clears_what_was_there)
{
	struct source *s = live(9);

	s->stripe_addr = (uint8_t *const *)&t;
	source_retire(t, s);
	source_release(t, s);
	s = source_alloc(t);
	cr_assert_null(s->stripe_addr);
	cr_assert_eq(s->size_bytes + s->generation + s->state, 0);
}

Test(source, not_quiet_before_every_online_rail_has_reported)
{
	struct source *s = live(1);
	uint64_t token;

	online(0);
	online(1);
	token = source_retire(t, s);
	cr_assert_not(source_is_quiet(t, s, token));
	report(0);
	cr_assert_not(source_is_quiet(t, s, token));
	report(1);
	cr_assert(source_is_quiet(t, s, token));
}

Test(source, a_report_before_the_retirement_does_not_count)
{
	struct source *s = live(1);
	uint64_t token;

	online(0);
	report(0);
	token = source_retire(t, s);
	cr_assert_not(source_is_quiet(t, s, token));
}

Test(source, a_rail_that_goes_to_sleep_is_quiet)
{
	struct source *s = live(1);
	uint64_t token;

	online(0);
	token = source_retire(t, s);
	cr_assert_not(source_is_quiet(t, s, token));
	rte_rcu_qsbr_thread_offline(t->qsbr, 0);
	cr_assert(source_is_quiet(t, s, token));
}

Test(source, a_pin_outlives_the_grace_period)
{
	struct source *s = live(1);
	uint32_t status;
	uint64_t token;

	online(0);
	cr_assert_eq(pin(s->handle, 1, 0, &status), s);
	cr_assert_eq(pin(s->handle, 1, 1, &status), s);
	token = source_retire(t, s);
	report(0);
	cr_assert_not(source_is_quiet(t, s, token));
	source_unpin(s, 0);
	cr_assert_not(source_is_quiet(t, s, token), "rail 1 still holds it");
	source_unpin(s, 1);
	cr_assert(source_is_quiet(t, s, token));
}

Test(source, tokens_of_several_retirements_are_told_apart)
{
	struct source *a = live(1), *b = live(2);
	uint64_t ta, tb;

	online(0);
	ta = source_retire(t, a);
	report(0);
	tb = source_retire(t, b);
	cr_assert(source_is_quiet(t, a, ta));
	cr_assert_not(source_is_quiet(t, b, tb));
	report(0);
	cr_assert(source_is_quiet(t, b, tb));
}

Test(source, retiring_twice_aborts, .signal = SIGABRT)
{
	struct source *s = live(1);

	source_retire(t, s);
	source_retire(t, s);
}

Test(source, releasing_a_live_one_aborts, .signal = SIGABRT)
{
	source_release(t, live(1));
}

Test(source, addresses_are_bounded_by_stripe_and_size)
{
	uint8_t a[16], b[16];
	uint8_t *table[] = {a, b};
	struct source s = {.size_bytes = 65536 + 10, .stripe_bytes = 65536, .stripe_count = 2, .stripe_addr = table};

	cr_assert_eq(source_addr(&s, 0, 3, 65533), a + 3);
	cr_assert_null(source_addr(&s, 0, 4, 65533));
	cr_assert_eq(source_addr(&s, 1, 0, 10), b);
	cr_assert_eq(source_addr(&s, 1, 10, 0), b + 10);
	cr_assert_null(source_addr(&s, 1, 0, 11), "the last stripe is short");
	cr_assert_null(source_addr(&s, 1, UINT64_MAX, 2));
	cr_assert_null(source_addr(&s, 2, 0, 1));
}

Test(source, put_parts_begin_at_their_first_stripe)
{
	static uint8_t part[2 * 65536];
	struct source s = {
		.size_bytes = 4 * 65536, .stripe_bytes = 65536, .stripe_count = 4, .first_stripe = 2, .base = part};

	cr_assert_null(source_addr(&s, 1, 0, 1));
	cr_assert_eq(source_addr(&s, 2, 5, 1), part + 5);
	cr_assert_eq(source_addr(&s, 3, 0, 1), part + 65536);
}

/* A rail that pins whatever is published, checks the memory behind it, and unpins; control reuses that memory as soon
 * as it is quiet. */
struct race {
	uint64_t memory[4]; /* value = generation of the source that owns it */
	uint64_t want;      /* handle to pin, 0 = none; written by control, read by rails */
	uint64_t generation;
	uint32_t stop;
	uint32_t n_torn;
	uint64_t n_pins[2];
};

struct racer {
	struct race *race;
	uint16_t rail;
};

static void *rail_body(void *arg)
{
	struct racer *me = arg;
	struct race *r = me->race;
	uint32_t status;

	online(me->rail);
	while (!__atomic_load_n(&r->stop, __ATOMIC_RELAXED)) {
		uint64_t handle = __atomic_load_n(&r->want, __ATOMIC_ACQUIRE);
		uint64_t generation = __atomic_load_n(&r->generation, __ATOMIC_RELAXED);
		struct source *s = handle ? source_pin(t, handle, generation, me->rail, 0, &status, false) : NULL;

		if (s) {
			volatile uint64_t *p = (volatile uint64_t *)(void *)s->base;

			report(me->rail);
			sched_yield(); /* the grace period is over: only the pin holds control off */
			for (int i = 0; i < 50; i++)
				if (*p != generation)
					__atomic_fetch_add(&r->n_torn, 1, __ATOMIC_RELAXED);
			__atomic_store_n(&r->n_pins[me->rail], r->n_pins[me->rail] + 1, __ATOMIC_RELAXED);
			source_unpin(s, me->rail);
		}
		report(me->rail);
		sched_yield(); /* three threads on two CPUs: let control see the report now */
	}
	rte_rcu_qsbr_thread_offline(t->qsbr, me->rail);
	return NULL;
}

static uint64_t race_pins(const struct race *r)
{
	return __atomic_load_n(&r->n_pins[0], __ATOMIC_RELAXED) + __atomic_load_n(&r->n_pins[1], __ATOMIC_RELAXED);
}

Test(source, memory_never_changes_under_a_pin, .timeout = 20)
{
	static struct race r;
	struct racer racers[2] = {{&r, 0}, {&r, 1}};
	pthread_t threads[2];

	for (int i = 0; i < 2; i++)
		cr_assert_eq(pthread_create(&threads[i], NULL, rail_body, &racers[i]), 0);
	/* At least 300 rounds, and as many more as it takes to meet 50 pins; the time-out bounds them. */
	for (uint64_t g = 1; g <= 300 || race_pins(&r) < 50; g++) {
		struct source *s = source_alloc(t);
		uint64_t token;

		cr_assert(s);
		r.memory[0] = g;
		s->base = (uint8_t *)&r.memory[0];
		s->generation = g;
		source_publish(s);
		__atomic_store_n(&r.generation, g, __ATOMIC_RELAXED);
		__atomic_store_n(&r.want, s->handle, __ATOMIC_RELEASE);
		sched_yield();
		token = source_retire(t, s);
		while (!source_is_quiet(t, s, token))
			sched_yield();
		r.memory[0] = UINT64_MAX;
		source_release(t, s);
	}
	__atomic_store_n(&r.stop, 1, __ATOMIC_RELAXED);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	cr_assert_eq(r.n_torn, 0);
	cr_assert_geq(race_pins(&r), 50);
}
