/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What is wrong with a configuration, and where: gathered by the loader (config_yaml.c: form, config_tree.c: unknown
 * keys, config.c: values) and by config_check.c (rules between values), so that one run tells all of it.
 *
 * Inside the loader only. Problems of the same place, or of a place around one, are told once: a value that cannot be
 * read is not also missing.
 */
#ifndef RY_CONFIG_PROBLEM_H
#define RY_CONFIG_PROBLEM_H

#include "daemon/config.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PROBLEMS_MAX 24u

struct config_tree;

struct problem {
	uint32_t line;  /* 0 = of no line */
	char place[96]; /* "rails[1].rate", or empty */
	char text[380];
};

struct problems {
	const struct config_tree *tree; /* finds lines; NULL = there is no file */
	uint32_t n;                     /* all that were found; the list keeps the first PROBLEMS_MAX */
	struct problem list[PROBLEMS_MAX];
};

/* Adds one. */
void problem_at(struct problems *p, const char *place, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* The same on a line that is known. */
void problem_on(struct problems *p, uint32_t line, const char *place, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
/* Whether something at this place, or inside it, is wrong already. */
bool problem_is_at(const struct problems *p, const char *place);
/* One line for each, by line of the file: "PATH:LINE: PLACE: TEXT". */
void problems_print(struct problems *p, const char *path, char *text, uint32_t text_bytes);

/* All problems of a complete configuration. */
void config_find_problems(const struct config *c, struct problems *p);

#ifdef __cplusplus
}
#endif
#endif
