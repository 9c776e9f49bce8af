/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the fuzz targets share: checks that end the run, and the input taken piece by piece.
 *
 * A target is a file with LLVMFuzzerTestOneInput and nothing that depends on the input before. libFuzzer calls it
 * (build option `fuzz`), and replay.c calls it for the inputs that are kept in corpus/, with any compiler. Called from
 * one thread.
 */
#ifndef RY_FUZZ_H
#define RY_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Always returns 0. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* Ends the process, so that libFuzzer keeps the input. */
#define FUZZ_CHECK(condition, ...)                                                                                     \
	do {                                                                                                           \
		if (!(condition)) {                                                                                    \
			fprintf(stderr, "%s:%d: not true: %s: ", __FILE__, __LINE__, #condition);                      \
			fprintf(stderr, __VA_ARGS__);                                                                  \
			fputc('\n', stderr);                                                                           \
			abort();                                                                                       \
		}                                                                                                      \
	} while (0)

struct fuzz_in {
	const uint8_t *at;
	size_t left;
};

/* Takes at most `want` bytes; what the input does not have is 0. Returns how many it had. */
static inline size_t fuzz_bytes(struct fuzz_in *in, void *to, size_t want)
{
	size_t n = want < in->left ? want : in->left;

	memset(to, 0, want);
	if (n)
		memcpy(to, in->at, n);
	in->at += n;
	in->left -= n;
	return n;
}

/* A number of up to 8 bytes, little-endian. */
static inline uint64_t fuzz_number(struct fuzz_in *in, unsigned bytes)
{
	uint64_t n = 0;

	fuzz_bytes(in, &n, bytes);
	return n;
}

/* The rest as a block of its own, so that a read beyond it is seen; to be freed. */
static inline uint8_t *fuzz_rest(struct fuzz_in *in, size_t *bytes)
{
	size_t n = in->left;
	uint8_t *p = malloc(n ? n : 1);

	fuzz_bytes(in, p, n);
	*bytes = n;
	return p;
}

#ifdef __cplusplus
}
#endif
#endif
