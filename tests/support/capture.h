/* SPDX-License-Identifier: BSD-3-Clause */
/* What a function writes to the log, for tests that read it. */
#ifndef RY_TEST_CAPTURE_H
#define RY_TEST_CAPTURE_H

#include <criterion/criterion.h>

#include <unistd.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What f writes to stderr, at most n - 1 bytes. */
static inline void capture(void (*f)(void), char *text, size_t n)
{
	int saved = dup(STDERR_FILENO), ends[2];
	ssize_t got;

	cr_assert(pipe(ends) == 0);
	dup2(ends[1], STDERR_FILENO);
	f();
	dup2(saved, STDERR_FILENO);
	close(ends[1]);
	got = read(ends[0], text, n - 1);
	text[got > 0 ? got : 0] = 0;
	close(ends[0]);
	close(saved);
}

#ifdef __cplusplus
}
#endif
#endif
