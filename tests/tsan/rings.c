/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two threads and what lies between them: an SPSC ring each way whose consumers sleep, the journal of breakers, and
 * the flight recorder. What travels is written and read without atomics, so that only the ring orders it.
 */
#include <poll.h>
#include <string.h>

#include "health/journal.h"
#include "read/recorder.h"
#include "tap.h"

#define N_MESSAGES 40000u
#define N_RECORDS 20000u

struct message {
	uint64_t seq;
	uint64_t words[6];
};

struct side {
	struct rte_ring *ring; /* to this side */
	struct waker waker;
};

static struct side there, back;
static struct message messages[48]; /* more than the ring holds, so that it is full now and then */
static struct journal journal;
static struct recorder recorder;
static uint64_t n_slept;

static void *take(struct side *s)
{
	struct pollfd fd = {.fd = s->waker.event_fd, .events = POLLIN};
	void *p;

	while (!(p = spsc_pop(s->ring))) {
		waker_prepare(&s->waker);
		if (spsc_is_empty(s->ring)) {
			__atomic_fetch_add(&n_slept, 1, __ATOMIC_RELAXED);
			tap_need(poll(&fd, 1, WAIT_NS / 1000000) == 1, "no wake-up is lost");
		}
		waker_cancel(&s->waker);
	}
	return p;
}

static void give(struct side *s, void *p)
{
	while (!spsc_push(s->ring, p))
		sched_yield();
	waker_kick(&s->waker);
}

static void *echo(void *arg)
{
	(void)arg;
	for (uint32_t i = 0; i < N_MESSAGES; i++) {
		struct message *m = take(&there);

		for (int k = 0; k < 6; k++)
			m->words[k] += m->seq;
		give(&back, m);
	}
	return NULL;
}

static void rings(void)
{
	uint64_t sent = 0, n_wrong = 0;
	pthread_t t;

	there.ring = spsc_create("there", 15);
	back.ring = spsc_create("back", 63);
	tap_need(there.ring && back.ring && !waker_init(&there.waker) && !waker_init(&back.waker), "rings are made");
	tap_start(&t, echo, NULL);
	for (uint64_t got = 0; got < N_MESSAGES; got++) {
		struct message *m;

		/* In waves: both sides run into an empty ring and sleep, and into a full one. */
		while (sent < N_MESSAGES && sent < got + 1 + got / 64 % 48) {
			m = &messages[sent % 48];
			m->seq = sent;
			memset(m->words, (int)(sent % 7), sizeof(m->words));
			give(&there, m);
			sent++;
		}
		m = take(&back);
		n_wrong += m->seq != got || m->words[5] != 0x0101010101010101ull * (got % 7) + got;
	}
	pthread_join(t, NULL);
	tap_ok(!n_wrong, "every message comes back once, in order, whole");
	tap_ok(n_slept > 10, "both sides slept and were woken");
	spsc_free(there.ring);
	spsc_free(back.ring);
	waker_fini(&there.waker);
	waker_fini(&back.waker);
}

static void *write_down(void *arg)
{
	(void)arg;
	for (uint32_t i = 0; i < N_RECORDS; i++) {
		struct journal_entry e = {
			.kind = JOURNAL_SLOW, .name = {.rail_idx = (uint16_t)i}, .slow = {.usual = i}};
		struct record r = {.started_ns = i, .finished_ns = i, .n_segments = i, .rail_mask = 5};

		r.rail_bytes[0] = r.rail_bytes[1] = i;
		journal_push(&journal, &e);
		recorder_write(&recorder, &r);
		if (i % 64 == 0)
			sched_yield();
	}
	return NULL;
}

static void records(void)
{
	uint64_t n_entries = 0, n_read = 0, n_wrong = 0, last = 0, next = 0;
	struct journal_entry e;
	struct record r;
	pthread_t t;

	tap_start(&t, write_down, NULL);
	while (next < N_RECORDS) {
		while (journal_pop(&journal, &e)) {
			n_wrong += e.slow.usual < last || (uint16_t)e.slow.usual != e.name.rail_idx;
			last = e.slow.usual;
			n_entries++;
		}
		if (next < recorder_oldest(&recorder))
			next = recorder_oldest(&recorder);
		for (; next < recorder_written(&recorder); next++) {
			if (!recorder_read(&recorder, next, &r))
				continue;
			n_wrong += r.started_ns != next || r.finished_ns != next || r.rail_bytes[1] != next;
			n_read++;
		}
		sched_yield();
	}
	pthread_join(t, NULL);
	while (journal_pop(&journal, &e))
		n_entries++;
	tap_ok(!n_wrong, "no entry and no record is a mixture");
	tap_ok(n_entries + journal.n_dropped == N_RECORDS && n_entries > 100,
		"entries were read or counted as dropped");
	tap_ok(n_read > 100, "records were read while others were written");
}

int main(void)
{
	rings();
	records();
	return tap_end();
}
