/* SPDX-License-Identifier: BSD-3-Clause */
#include "sync.h"

#include <rte_common.h>
#include <rte_errno.h>

#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

int waker_init(struct waker *w)
{
	int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);

	if (fd < 0)
		return -errno;
	w->need_wakeup = 0;
	w->event_fd = fd;
	return 0;
}

void waker_fini(struct waker *w)
{
	if (w->event_fd >= 0)
		close(w->event_fd);
	w->event_fd = -1;
}

void waker_signal(struct waker *w)
{
	uint64_t one = 1;

	/* EAGAIN means a counter near 2^64, hence already readable; there is nothing to do about any other failure. */
	if (write(w->event_fd, &one, sizeof(one)) < 0)
		return;
}

void waker_cancel(struct waker *w)
{
	uint64_t count;

	/* Relaxed: a producer that still sees 1 writes the eventfd once too often, which costs one empty wake-up. */
	__atomic_store_n(&w->need_wakeup, 0, __ATOMIC_RELAXED);
	/* EAGAIN = nobody signalled. */
	if (read(w->event_fd, &count, sizeof(count)) < 0)
		return;
}

struct rte_ring *spsc_create(const char *name, unsigned n)
{
	struct rte_ring *r;
	ssize_t bytes;
	unsigned count;
	int rc;

	if (n == 0 || n >= RTE_RING_SZ_MASK) {
		rte_errno = EINVAL;
		return NULL;
	}
	/* A ring of 2^k slots holds one entry less. */
	count = rte_align32pow2(n + 1);
	bytes = rte_ring_get_memsize(count);
	if (bytes < 0) {
		rte_errno = (int)-bytes;
		return NULL;
	}
	/* Not rte_ring_create: that needs EAL memory and process-wide unique names. */
	r = aligned_alloc(RTE_CACHE_LINE_SIZE, RTE_ALIGN_CEIL((size_t)bytes, (size_t)RTE_CACHE_LINE_SIZE));
	if (!r) {
		rte_errno = ENOMEM;
		return NULL;
	}
	rc = rte_ring_init(r, name, count, RING_F_SP_ENQ | RING_F_SC_DEQ);
	if (rc) {
		free(r);
		rte_errno = -rc;
		return NULL;
	}
	return r;
}

void spsc_free(struct rte_ring *r)
{
	free(r);
}

uint64_t clock_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}
