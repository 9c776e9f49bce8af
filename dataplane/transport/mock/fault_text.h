/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Words and amounts in the text of fault plans: read by fault.c, written by it, used by nobody else.
 *
 * Readers take the whole of a string or answer false, in which case *out may be anything. Times need a unit, so that
 * for=2 cannot mean two nanoseconds to one and two seconds to another; bytes may do without.
 */
#ifndef RY_FAULT_TEXT_H
#define RY_FAULT_TEXT_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Without blanks at both ends; in place. */
char *fault_trim(char *text);
/* Position in a list that ends with NULL, -1 = not there. */
int fault_word(const char *const *words, const char *word);
bool fault_number(const char *text, uint64_t *out);
bool fault_size(const char *text, uint64_t *out);
bool fault_time(const char *text, uint64_t *out);
/* A decimal from 0 to 1 with at most six digits behind the point, in millionths. */
bool fault_ppm(const char *text, uint32_t *out);

struct fault_text {
	char *at;
	uint32_t bytes;
	uint32_t len; /* written, or what it would have taken */
};
void fault_put(struct fault_text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* In the largest unit that leaves no remainder. */
void fault_put_size(struct fault_text *t, uint64_t bytes);
void fault_put_time(struct fault_text *t, uint64_t ns);

#ifdef __cplusplus
}
#endif
#endif
