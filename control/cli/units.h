/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sizes, rates and times as people write and read them: "4MiB", "125MB/s", "1.5s".
 *
 * Used by the command line's options and tables. Pure functions; any thread.
 */
#ifndef RY_CLI_UNITS_H
#define RY_CLI_UNITS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define UNITS_TEXT_BYTES 32u

/* Text to a number of bytes, bytes per second, nanoseconds. A bare number is bytes; rates and times need their unit (0
 * does not). 0 or -EINVAL. */
int units_parse_bytes(const char *text, uint64_t *out);
int units_parse_rate(const char *text, uint64_t *out);
int units_parse_duration(const char *text, uint64_t *out);
/* A decimal number without unit. 0 or -EINVAL. */
int units_parse_count(const char *text, uint64_t *out);

/* Three or four digits and the unit that fits: "64 MiB", "247.1 MB/s", "1.32 ms". `text` has UNITS_TEXT_BYTES. Returns
 * text. */
char *units_print_bytes(uint64_t bytes, char *text);
char *units_print_rate(uint64_t bytes_per_s, char *text);
char *units_print_duration(uint64_t ns, char *text);

#ifdef __cplusplus
}
#endif
#endif
