/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the plain programs under ThreadSanitizer share: TAP lines, waits with an end, threads that must start. Criterion
 * does not run there. Whoever finds a race is the sanitizer, which ends the program with a status of its own; the lines
 * here say that the threads really met. Each program's main thread only.
 */
#ifndef RY_TEST_TSAN_TAP_H
#define RY_TEST_TSAN_TAP_H

#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "sync/sync.h"

#ifdef __cplusplus
extern "C" {
#endif

#define WAIT_NS 30000000000ull /* the longest that anything may take, tens of times what it does */

static int tap_n, tap_n_failed;

static inline void tap_ok(bool is_ok, const char *what)
{
	tap_n++;
	tap_n_failed += !is_ok;
	printf("%sok %d - %s\n", is_ok ? "" : "not ", tap_n, what);
	fflush(stdout);
}

static inline int tap_end(void)
{
	printf("1..%d\n", tap_n);
	fflush(stdout);
	return tap_n_failed != 0;
}

/* What cannot go on ends at once, without a plan: a failure. */
static inline void tap_need(bool is_ok, const char *what)
{
	if (is_ok)
		return;
	tap_ok(false, what);
	_Exit(1);
}

static inline void tap_start(pthread_t *t, void *(*body)(void *), void *arg)
{
	tap_need(pthread_create(t, NULL, body, arg) == 0, "a thread starts");
}

#ifdef __cplusplus
}
#endif
#endif
