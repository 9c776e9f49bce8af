/* SPDX-License-Identifier: BSD-3-Clause */
#include "mem/mem.h"

#include <criterion/criterion.h>

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE 4096u
#define PAGES 4u

/* A memfd of one page behind a mapping of PAGES pages: touching the others is a SIGBUS. */
static uint8_t *short_mapping(void)
{
	int fd = memfd_create("short", MFD_CLOEXEC);
	uint8_t *p;

	cr_assert_geq(fd, 0);
	cr_assert_eq(ftruncate(fd, PAGE), 0);
	p = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	cr_assert_neq(p, MAP_FAILED);
	close(fd);
	p[0] = 42;
	return p;
}

/* Sanitizers bring a SIGBUS handler of their own, which would be the former action here. */
static void setup(void)
{
	signal(SIGBUS, SIG_DFL);
}

TestSuite(guard, .init = setup);

Test(guard, fault_inside_a_range_reads_zeroes)
{
	volatile uint8_t *p = short_mapping();

	cr_assert_eq(guard_install(), 0);
	cr_assert_eq(guard_install(), 0, "twice is allowed");
	cr_assert_eq(guard_add((const void *)p, PAGES * PAGE), 0);
	cr_assert_eq(p[0], 42);
	cr_assert_eq(guard_hits(), 0);
	cr_assert_eq(p[PAGE + 17], 0);
	cr_assert_eq(guard_hits(), 1);
	cr_assert_eq(p[PAGE + 18], 0, "the page is there now");
	cr_assert_eq(guard_hits(), 1);
	cr_assert_eq(p[PAGES * PAGE - 1], 0);
	cr_assert_eq(guard_hits(), 2);
	cr_assert_eq(p[0], 42, "neighbours are untouched");
}

Test(guard, write_faults_are_answered_too)
{
	volatile uint8_t *p = short_mapping();

	guard_install();
	guard_add((const void *)p, PAGES * PAGE);
	p[2 * PAGE] = 9;
	cr_assert_eq(p[2 * PAGE], 9);
	cr_assert_eq(guard_hits(), 1);
}

static void *touch(void *arg)
{
	return (void *)(uintptr_t)(1u + *(volatile uint8_t *)arg);
}

Test(guard, works_on_any_thread)
{
	uint8_t *p = short_mapping();
	pthread_t t;
	void *rc;

	guard_install();
	guard_add(p, PAGES * PAGE);
	cr_assert_eq(pthread_create(&t, NULL, touch, p + PAGE), 0);
	pthread_join(t, &rc);
	cr_assert_eq((uintptr_t)rc, 1);
	cr_assert_eq(guard_hits(), 1);
}

Test(guard, fault_outside_keeps_its_default, .signal = SIGBUS)
{
	volatile uint8_t *p = short_mapping();

	guard_install();
	guard_add((const void *)p, 2 * PAGE);
	(void)p[2 * PAGE];
}

Test(guard, removed_range_keeps_its_default, .signal = SIGBUS)
{
	volatile uint8_t *p = short_mapping();

	guard_install();
	guard_add((const void *)p, PAGES * PAGE);
	guard_remove((const void *)p);
	(void)p[PAGE];
}

Test(guard, sent_signal_keeps_its_default, .signal = SIGBUS)
{
	guard_install();
	raise(SIGBUS);
}

static void on_former(int sig)
{
	_exit(sig == SIGBUS ? 33 : 1);
}

Test(guard, former_handler_gets_what_is_not_ours, .exit_code = 33)
{
	volatile uint8_t *p = short_mapping();

	signal(SIGBUS, on_former);
	guard_install();
	(void)p[PAGE];
}

Test(guard, ranges_are_limited_and_reused)
{
	static uint8_t space[GUARD_RANGES_MAX + 1];

	cr_assert_eq(guard_add(NULL, 1), -EINVAL);
	cr_assert_eq(guard_add(space, 0), -EINVAL);
	for (unsigned i = 0; i < GUARD_RANGES_MAX; i++)
		cr_assert_eq(guard_add(space + i, 1), 0);
	cr_assert_eq(guard_add(space + GUARD_RANGES_MAX, 1), -ENOSPC);
	guard_remove(space + 500);
	cr_assert_eq(guard_add(space + GUARD_RANGES_MAX, 1), 0);
}
