/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What is wrong with a configuration, and where: shared by config.c (values) and config_check.c (rules between values).
 */
#ifndef RY_CONFIG_PROBLEM_H
#define RY_CONFIG_PROBLEM_H

#include "daemon/config.h"

#ifdef __cplusplus
extern "C" {
#endif

struct problem {
	char place[96]; /* "rails[1].rate" */
	char text[380];
};

/* Fills it; always -EINVAL. */
int problem_at(struct problem *p, const char *place, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* The first problem of a complete configuration. 0 or -EINVAL. */
int config_find_problem(const struct config *c, struct problem *p);

#ifdef __cplusplus
}
#endif
#endif
