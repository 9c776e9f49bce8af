/* SPDX-License-Identifier: BSD-3-Clause */
#include "mem.h"

#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

struct guard_range {
	uintptr_t base; /* 0 = unused; written last by guard_add, first by guard_remove (release), read by the handler
			   (acquire) */
	uintptr_t end;
};

/* A signal handler takes no argument of ours: this is the one context of the process. Ranges are written by the work
 * thread only. */
static struct guard {
	struct guard_range ranges[GUARD_RANGES_MAX];
	uint32_t n_ranges; /* highest used index + 1; never shrinks */
	uint64_t hits; /* written by whichever thread faults: the one counter here with several writers, hence fetch_add
			*/
	uintptr_t page_bytes;
	struct sigaction previous;
	bool is_installed;
} guard;

static void on_sigbus(int sig, siginfo_t *info, void *context);
static bool is_guarded(uintptr_t addr);
static bool put_zero_page(uintptr_t addr);

int guard_install(void)
{
	struct sigaction sa = {.sa_sigaction = on_sigbus, .sa_flags = SA_SIGINFO};

	if (guard.is_installed)
		return 0;
	guard.page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE);
	sigemptyset(&sa.sa_mask);
	if (sigaction(SIGBUS, &sa, &guard.previous))
		return -errno;
	guard.is_installed = true;
	return 0;
}

int guard_add(const void *base, uint64_t bytes)
{
	uint32_t i;

	if (!base || bytes == 0)
		return -EINVAL;
	for (i = 0; i < GUARD_RANGES_MAX; i++)
		if (guard.ranges[i].base == 0)
			break;
	if (i == GUARD_RANGES_MAX)
		return -ENOSPC;
	__atomic_store_n(&guard.ranges[i].end, (uintptr_t)base + bytes, __ATOMIC_RELAXED);
	/* Release: partner of the acquire of `base` in is_guarded; the end is there before the range counts. */
	__atomic_store_n(&guard.ranges[i].base, (uintptr_t)base, __ATOMIC_RELEASE);
	if (i >= guard.n_ranges)
		/* Release: partner of the acquire of n_ranges in is_guarded. */
		__atomic_store_n(&guard.n_ranges, i + 1, __ATOMIC_RELEASE);
	return 0;
}

void guard_remove(const void *base)
{
	for (uint32_t i = 0; i < guard.n_ranges; i++)
		if (guard.ranges[i].base == (uintptr_t)base) {
			/* Release: partner of the acquire in is_guarded. */
			__atomic_store_n(&guard.ranges[i].base, 0, __ATOMIC_RELEASE);
			return;
		}
}

uint64_t guard_hits(void)
{
	return __atomic_load_n(&guard.hits, __ATOMIC_RELAXED);
}

/* Runs on the faulting thread, an lcore possibly: system calls and lock-free loads only. */
static void on_sigbus(int sig, siginfo_t *info, void *context)
{
	uintptr_t addr = (uintptr_t)info->si_addr;
	int saved = errno;

	/* si_code <= 0: sent by a process, its si_addr means nothing. */
	if (info->si_code > 0 && is_guarded(addr) && put_zero_page(addr)) {
		__atomic_fetch_add(&guard.hits, 1, __ATOMIC_RELAXED);
		errno = saved;
		return;
	}
	/* Not ours: put the former action back. A fault happens again at return and meets it; a sent signal has to be
	 * sent again. */
	sigaction(SIGBUS, &guard.previous, NULL);
	if (info->si_code <= 0)
		raise(sig);
	errno = saved;
}

static bool is_guarded(uintptr_t addr)
{
	/* Acquire: partner of the release in guard_add. */
	uint32_t n = __atomic_load_n(&guard.n_ranges, __ATOMIC_ACQUIRE);

	for (uint32_t i = 0; i < n; i++) {
		/* Acquire: partner of the releases in guard_add and guard_remove. */
		uintptr_t base = __atomic_load_n(&guard.ranges[i].base, __ATOMIC_ACQUIRE);

		if (base && addr >= base && addr < __atomic_load_n(&guard.ranges[i].end, __ATOMIC_RELAXED))
			return true;
	}
	return false;
}

static bool put_zero_page(uintptr_t addr)
{
	void *page = (void *)(addr & ~(guard.page_bytes - 1));

	return mmap(page, guard.page_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
	       page;
}
