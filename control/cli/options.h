/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Command-line options by table: one row per option, parsed into a struct by offset.
 *
 * railyard and railyard-perf each bring a table and a struct. Options may stand anywhere, as "--name value" or
 * "--name=value"; "--" ends them and a lone "-" is an argument. Nothing is printed here: a refusal comes back as text.
 */
#ifndef RY_CLI_OPTIONS_H
#define RY_CLI_OPTIONS_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

#define OPTIONS_ARGUMENTS_MAX 8u
#define OPTIONS_ERROR_BYTES 256u

enum option_kind {
	OPTION_FLAG = 1,  /* bool; takes no value */
	OPTION_TEXT = 2,  /* const char * */
	OPTION_BYTES = 3, /* uint64_t, as the following */
	OPTION_RATE = 4,
	OPTION_DURATION = 5, /* ns */
	OPTION_COUNT = 6,
};

struct option_row {
	const char *name;  /* without the dashes */
	uint8_t kind;      /* enum option_kind */
	uint32_t bit;      /* of the masks that say who takes it */
	size_t offset;     /* of its field */
	const char *value; /* how help calls its value */
	const char *help;
};

struct arguments {
	uint32_t n;
	const char *values[OPTIONS_ARGUMENTS_MAX];
};

/*
 * Parses argv[0..argc-1] (no program name) into *fields and *args; of a repeated option the last counts. *given gets
 * bit i for row i. 0, or -EINVAL with `error` filled.
 */
int options_parse(const struct option_row *rows, uint32_t n_rows, int argc, char *const *argv, void *fields,
	struct arguments *args, uint64_t *given, char *error);
/* Whether all options that were given belong to `mask`. 0, or -EINVAL with `error` filled. */
int options_check(const struct option_row *rows, uint32_t n_rows, uint64_t given, uint32_t mask, char *error);

/* One line per option of the mask, for --help. */
void options_help(const struct option_row *rows, uint32_t n_rows, uint32_t mask, FILE *out);

#ifdef __cplusplus
}
#endif
#endif
