/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How threads meet: SPSC rings, the wake-up handshake, and one clock.
 *
 * Every pair of threads has its own rte_ring with exactly one producer and one consumer. Each consuming thread owns one
 * waker; every producer into any of its rings kicks that waker after enqueueing. A kick costs one fence and one load
 * while the consumer is awake, and one eventfd write (the named wake-up path) when it sleeps.
 */
#ifndef RY_SYNC_H
#define RY_SYNC_H

#include <stdbool.h>
#include <stdint.h>

#include <rte_ring.h>

#ifdef __cplusplus
extern "C" {
#endif

struct waker {
	uint32_t need_wakeup; /* written by the consumer (waker_prepare, waker_cancel), read by producers */
	int event_fd;         /* set at init, read by all */
};

/* Creates the eventfd. 0 or -errno. */
int waker_init(struct waker *w);
void waker_fini(struct waker *w);

/* Writes the eventfd; the cold half of waker_kick. Any thread. */
void waker_signal(struct waker *w);

/* Consumer: announce sleep. The caller must look at all of its rings again afterwards and cancel if one is not empty.
 */
static inline void waker_prepare(struct waker *w)
{
	__atomic_store_n(&w->need_wakeup, 1, __ATOMIC_RELAXED);
	/* Partner: the fence in waker_kick. Either the producer sees need_wakeup, or we see its entry. */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
}

/* Consumer: awake again; drains the eventfd. */
void waker_cancel(struct waker *w);

/* Producer, after its entry is in the ring. */
static inline void waker_kick(struct waker *w)
{
	/* Partner: the fence in waker_prepare. */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (__atomic_load_n(&w->need_wakeup, __ATOMIC_RELAXED))
		waker_signal(w);
}

/* An SPSC ring of pointers that holds at least n entries (rounded up to a power of two), in ordinary memory. NULL with
 * rte_errno set on failure. Set-up only. */
struct rte_ring *spsc_create(const char *name, unsigned n);
void spsc_free(struct rte_ring *r);

static inline bool spsc_push(struct rte_ring *r, void *p)
{
	return rte_ring_sp_enqueue(r, p) == 0;
}

static inline void *spsc_pop(struct rte_ring *r)
{
	void *p;

	return rte_ring_sc_dequeue(r, &p) == 0 ? p : 0;
}

static inline unsigned spsc_pop_burst(struct rte_ring *r, void **p, unsigned n)
{
	return rte_ring_sc_dequeue_burst(r, p, n, 0);
}

static inline bool spsc_is_empty(const struct rte_ring *r)
{
	/* Relaxed: a look, not a hand-over; whoever then pops acquires. Before a sleep waker_prepare's fence stands in
	 * front of it. */
	return __atomic_load_n(&r->prod.tail, __ATOMIC_RELAXED) == __atomic_load_n(&r->cons.tail, __ATOMIC_RELAXED);
}

/* CLOCK_MONOTONIC in nanoseconds. Called once per turn by a loop, never by the code inside it. */
uint64_t clock_ns(void);

#ifdef __cplusplus
}
#endif
#endif
