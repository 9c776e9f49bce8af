/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The table of configuration keys, for whoever walks over all of them: loader, checks, the `config` method,
 * docs/config.md.
 *
 * Rows come from config_keys.def. A row knows how to read a value from text, whether a value lies in its range, and how
 * to print it with its unit. Nothing here has state; any thread.
 */
#ifndef RY_CONFIG_ROWS_H
#define RY_CONFIG_ROWS_H

#include <stdint.h>
#include <stdio.h>

#include "daemon/config.h"

#ifdef __cplusplus
extern "C" {
#endif

enum config_section {
	SECTION_NODE = 0,      /* in struct config */
	SECTION_RAILS = 1,     /* in struct rail_conf */
	SECTION_STORES = 2,    /* in struct config_store */
	SECTION_ENDPOINTS = 3, /* in struct config_endpoint */
	SECTION_READER = 4,    /* in struct config, like those that follow */
	SECTION_STORE = 5,
	SECTION_HEALTH = 6,
	SECTION_TIMEOUTS = 7,
	SECTION_COUNT = 8,
};

enum config_kind {
	KIND_name = 0,
	KIND_text = 1,
	KIND_choice = 2,
	KIND_bytes = 3,
	KIND_rate = 4,
	KIND_duration = 5,
	KIND_count = 6,
};

struct config_row {
	const char *key;
	const char *def;
	const char *least;
	const char *most;
	const char *change;
	const char *help;
	enum config_section section;
	enum config_kind kind;
	uint32_t offset; /* of the field in its section's struct */
	uint32_t size_bytes;
	uint32_t raw_offset; /* of the text in the section's raw struct (config_yaml.c) */
};

extern const struct config_row config_rows[];
extern const uint32_t config_n_rows;

/* "reader", "rails", ...; "" for SECTION_NODE. */
const char *config_section_name(enum config_section section);

/* Where the rows of a section begin; they stand together. */
const struct config_row *config_first_row(enum config_section section);
/* The transport whose rails alone have this key ("verbs"), NULL = all. */
const char *config_row_transport(const struct config_row *row);
/* The lines at which the keys of a section were given, one for each row in order, 0 = not given. i: which rail or store
 * of the list, j: which endpoint. */
uint32_t *config_lines(struct config *c, enum config_section section, uint16_t i, uint16_t j);
/* "FILE:LINE", or "default". */
void config_source(
	const struct config *c, const struct config_row *row, uint16_t i, uint16_t j, char *buf, uint32_t buf_bytes);

/* Text -> field in `base`. 0, or -EINVAL with `why` filled; nothing is written then. */
int config_row_parse(const struct config_row *row, void *base, const char *text, char *why, uint32_t why_bytes);
/* Whether the field's value lies in the row's range. 0, or -EINVAL with `why` filled. */
int config_row_check(const struct config_row *row, const void *base, char *why, uint32_t why_bytes);
/* Field -> text that config_row_parse reads back. */
void config_row_format(const struct config_row *row, const void *base, char *buf, uint32_t buf_bytes);
/* Defaults of one section's rows; required ones are left alone. */
void config_section_defaults(enum config_section section, void *base);

/* The largest unit that gives a whole number. */
void format_bytes(uint64_t v, char *buf, uint32_t buf_bytes);
void format_rate(uint64_t v, char *buf, uint32_t buf_bytes);
void format_duration(uint64_t v, char *buf, uint32_t buf_bytes);

/* The key of `section` that is nearest to `word`, NULL when none is near. Lists and sections count as keys of
 * SECTION_NODE. */
const char *config_nearest_key(enum config_section section, const char *word);

/* How many letters two words differ by (Levenshtein's distance). */
unsigned config_distance(const char *a, const char *b);

/* docs/config.md. */
void config_print_doc(FILE *out);

/* One value in effect. */
struct config_value {
	const struct config_row *row; /* NULL for roles */
	uint16_t i, j;                /* which of the list, which endpoint */
	char place[96];               /* "rails[1].rate" */
	char text[CONFIG_PATH_MAX];   /* with its unit; may be empty */
	char source[CONFIG_FILE_MAX + 16];
};

typedef void (*config_value_fn)(void *arg, const struct config_value *v);

/* Calls fn for every value that means something to this node: keys of other transports, and sections of roles that it
 * does not have, are left out. */
void config_each(const struct config *c, config_value_fn fn, void *arg);
/* All of them as a file that config_load reads back, with the source of each behind it. */
void config_print(const struct config *c, FILE *out);

#ifdef __cplusplus
}
#endif
#endif
