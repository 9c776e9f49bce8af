/* SPDX-License-Identifier: BSD-3-Clause */
#include "sync/sync.h"

#include <criterion/criterion.h>
#include <rte_errno.h>

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sys/resource.h>

static bool is_readable(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return poll(&p, 1, 0) == 1;
}

Test(sync, ring_holds_at_least_what_was_asked)
{
	unsigned sizes[] = {1, 2, 3, 4, 7, 8, 1000, 1024};

	for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		struct rte_ring *r = spsc_create("r", sizes[i]);

		cr_assert(r);
		for (uintptr_t k = 1; k <= sizes[i]; k++)
			cr_assert(spsc_push(r, (void *)k), "entry %zu of %u", (size_t)k, sizes[i]);
		for (uintptr_t k = 1; k <= sizes[i]; k++)
			cr_assert_eq((uintptr_t)spsc_pop(r), k);
		cr_assert_null(spsc_pop(r));
		spsc_free(r);
	}
}

Test(sync, ring_full_refuses_and_recovers)
{
	struct rte_ring *r = spsc_create("r", 3);
	int x[5];

	for (int i = 0; i < 3; i++)
		cr_assert(spsc_push(r, &x[i]));
	cr_assert_not(spsc_push(r, &x[3]));
	cr_assert_eq(spsc_pop(r), &x[0]);
	cr_assert(spsc_push(r, &x[4]));
	cr_assert_eq(spsc_pop(r), &x[1]);
	spsc_free(r);
}

Test(sync, ring_burst_keeps_order)
{
	struct rte_ring *r = spsc_create("r", 8);
	void *got[8];
	int x[5];

	for (int i = 0; i < 5; i++)
		spsc_push(r, &x[i]);
	cr_assert_eq(spsc_pop_burst(r, got, 3), 3);
	cr_assert_eq(got[0], &x[0]);
	cr_assert_eq(got[2], &x[2]);
	cr_assert_eq(spsc_pop_burst(r, got, 8), 2);
	cr_assert_eq(got[1], &x[4]);
	cr_assert_eq(spsc_pop_burst(r, got, 8), 0);
	spsc_free(r);
}

Test(sync, ring_names_need_not_differ)
{
	struct rte_ring *a = spsc_create("same", 4);
	struct rte_ring *b = spsc_create("same", 4);

	cr_assert(a && b && a != b);
	spsc_free(a);
	spsc_free(b);
	spsc_free(NULL);
}

Test(sync, ring_refuses_senseless_sizes)
{
	cr_assert_null(spsc_create("r", 0));
	cr_assert_eq(rte_errno, EINVAL);
	cr_assert_null(spsc_create("r", UINT32_MAX));
	cr_assert_eq(rte_errno, EINVAL);
}

Test(sync, kick_of_an_awake_consumer_signals_nothing)
{
	struct waker w;

	cr_assert_eq(waker_init(&w), 0);
	waker_kick(&w);
	cr_assert_not(is_readable(w.event_fd));
	waker_fini(&w);
}

Test(sync, kick_of_a_sleeper_wakes_it_and_cancel_drains)
{
	struct waker w;

	cr_assert_eq(waker_init(&w), 0);
	waker_prepare(&w);
	waker_kick(&w);
	waker_kick(&w);
	cr_assert(is_readable(w.event_fd));
	waker_cancel(&w);
	cr_assert_not(is_readable(w.event_fd));
	waker_kick(&w);
	cr_assert_not(is_readable(w.event_fd), "awake again");
	waker_cancel(&w); /* without a signal: must not block */
	waker_fini(&w);
	cr_assert_eq(w.event_fd, -1);
	waker_fini(&w);
}

Test(sync, no_descriptor_left_is_an_error)
{
	struct waker w = {.event_fd = -1};
	struct rlimit usual, none;
	int rc;

	getrlimit(RLIMIT_NOFILE, &usual);
	none = (struct rlimit){0, usual.rlim_max};
	setrlimit(RLIMIT_NOFILE, &none);
	rc = waker_init(&w);
	setrlimit(RLIMIT_NOFILE, &usual);
	cr_assert_eq(rc, -EMFILE);
	cr_assert_eq(w.event_fd, -1);
	waker_signal(&w); /* nobody is there to be woken */
	waker_cancel(&w);
}

struct pingpong {
	struct waker w;
	struct rte_ring *ring;
	uintptr_t n;
};

static void *produce(void *arg)
{
	struct pingpong *p = arg;

	for (uintptr_t i = 1; i <= p->n; i++) {
		while (!spsc_push(p->ring, (void *)i))
			waker_kick(&p->w);
		waker_kick(&p->w);
	}
	return NULL;
}

/* A lost wake-up would hang here: the sleep has no time-out of its own, only the test's. */
Test(sync, no_wakeup_is_lost, .timeout = 20)
{
	struct pingpong p = {.ring = spsc_create("r", 4), .n = 20000};
	uintptr_t want = 1;
	pthread_t t;

	cr_assert_eq(waker_init(&p.w), 0);
	cr_assert_eq(pthread_create(&t, NULL, produce, &p), 0);
	while (want <= p.n) {
		void *e = spsc_pop(p.ring);

		if (e) {
			cr_assert_eq((uintptr_t)e, want);
			want++;
			continue;
		}
		waker_prepare(&p.w);
		if (spsc_is_empty(p.ring)) {
			struct pollfd fd = {.fd = p.w.event_fd, .events = POLLIN};

			poll(&fd, 1, -1);
		}
		waker_cancel(&p.w);
	}
	pthread_join(t, NULL);
	spsc_free(p.ring);
	waker_fini(&p.w);
}

Test(sync, clock_never_goes_back)
{
	uint64_t last = clock_ns();

	cr_assert_gt(last, 0);
	for (int i = 0; i < 1000; i++) {
		uint64_t now = clock_ns();

		cr_assert_geq(now, last);
		last = now;
	}
}
