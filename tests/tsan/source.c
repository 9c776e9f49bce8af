/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The table of sources: two rails pin what control publishes, by handles that are new, old and wrong, and read the
 * memory behind it without atomics; control retires it and writes that memory as soon as it is quiet. Only pins and
 * grace periods order the two.
 */
#include <string.h>

#include "store/source.h"
#include "tap.h"

#define N_ROUNDS 10000u
#define N_SLOTS 4u
#define HOLD_TURNS 20u

static struct source_table *table;
static uint64_t memory[N_SLOTS][16]; /* all words = generation of the source that owns it */
static uint64_t want;                /* handle to pin */
static uint64_t generation;
static uint32_t stop;
static uint32_t n_retired; /* control's; tells rails when a pin is waited for, and orders nothing */
static uint64_t n_pins[2], n_refused[2], n_torn[2]; /* each its rail's */

static void look(uint16_t rail, uint64_t handle, uint64_t gen, bool is_start)
{
	uint32_t status = 0, seen = __atomic_load_n(&n_retired, __ATOMIC_RELAXED);
	struct source *s = source_pin(table, handle, gen, rail, 0, &status, is_start);
	const uint64_t *words;

	if (!s) {
		n_refused[rail]++;
		return;
	}
	/* Control retires it now; the reports end the grace period, and only the pin holds control off. */
	for (unsigned i = 0; i < HOLD_TURNS && __atomic_load_n(&n_retired, __ATOMIC_RELAXED) == seen; i++) {
		rte_rcu_qsbr_quiescent(table->qsbr, rail);
		sched_yield();
	}
	rte_rcu_qsbr_quiescent(table->qsbr, rail);
	sched_yield();
	words = (const uint64_t *)(const void *)s->base;
	for (int i = 0; i < 16; i++)
		n_torn[rail] += words[i] != gen;
	n_pins[rail]++;
	source_unpin(s, rail);
}

static void *rail_body(void *arg)
{
	uint16_t rail = (uint16_t)(uintptr_t)arg;

	rte_rcu_qsbr_thread_online(table->qsbr, rail);
	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		uint64_t handle = __atomic_load_n(&want, __ATOMIC_RELAXED);
		uint64_t gen = __atomic_load_n(&generation, __ATOMIC_RELAXED);

		look(rail, handle, gen, false);
		look(rail, handle, gen, true);
		look(rail, handle ^ 1, gen, true); /* another slot, in whatever state it is */
		rte_rcu_qsbr_quiescent(table->qsbr, rail);
		sched_yield();
	}
	rte_rcu_qsbr_thread_offline(table->qsbr, rail);
	return NULL;
}

static struct source *publish(uint32_t round)
{
	struct source *s = source_alloc(table);

	tap_need(s != NULL, "there is a free source");
	for (int i = 0; i < 16; i++)
		memory[round % N_SLOTS][i] = round;
	s->base = (uint8_t *)memory[round % N_SLOTS];
	s->generation = round;
	s->size_bytes = sizeof(memory[0]);
	source_publish(s);
	/* Relaxed: that the fields are seen with the handle is what source_publish and source_pin are for. */
	__atomic_store_n(&generation, round, __ATOMIC_RELAXED);
	__atomic_store_n(&want, s->handle, __ATOMIC_RELAXED);
	return s;
}

static void retire(struct source *s)
{
	uint64_t token, until_ns = clock_ns() + WAIT_NS;

	source_linger(s);
	sched_yield();
	token = source_retire(table, s);
	__atomic_fetch_add(&n_retired, 1, __ATOMIC_RELAXED);
	while (!source_is_quiet(table, s, token)) {
		tap_need(clock_ns() < until_ns, "a source becomes quiet");
		sched_yield();
	}
	memset(s->base, 0xff, sizeof(memory[0]));
	source_release(table, s);
}

int main(void)
{
	struct source *s[2] = {NULL, NULL};
	pthread_t threads[2];

	tap_need(source_table_create(N_SLOTS, 2, &table) == 0, "the table is made");
	for (uintptr_t i = 0; i < 2; i++)
		tap_start(&threads[i], rail_body, (void *)i);
	for (uint32_t round = 1; round <= N_ROUNDS; round++) {
		if (s[round % 2])
			retire(s[round % 2]);
		s[round % 2] = publish(round);
		sched_yield();
	}
	for (int i = 0; i < 2; i++)
		retire(s[i]);
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	tap_ok(!n_torn[0] && !n_torn[1], "no memory changed under a pin");
	tap_ok(n_pins[0] > 50 && n_pins[1] > 50, "both rails pinned");
	tap_ok(n_refused[0] > 50 && n_refused[1] > 50, "and were refused");
	source_table_destroy(table);
	return tap_end();
}
