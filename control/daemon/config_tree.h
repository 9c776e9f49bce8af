/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The configuration file as a tree: on which line a place stands, and which keys nobody knows. libcyaml tells neither
 * of them for more than the first.
 *
 * Inside the loader only; read-only once loaded. It never looks at values.
 */
#ifndef RY_CONFIG_TREE_H
#define RY_CONFIG_TREE_H

#include <stdint.h>

#include "daemon/config_problem.h"

#ifdef __cplusplus
extern "C" {
#endif

/* NULL where the file cannot be read or is no YAML. Ended with config_tree_free. */
struct config_tree *config_tree_load(const char *path);
/* NULL is allowed. */
void config_tree_free(struct config_tree *t);
/* The line of `place` ("rails[1].rate", "reader.segment"), of the innermost part of it that exists; 1 when nothing of
 * it does. */
uint32_t config_tree_line(const struct config_tree *t, const char *place);
/* Adds a problem for every unknown key, with the nearest one that there is. */
void config_tree_unknown(const struct config_tree *t, struct problems *p);

#ifdef __cplusplus
}
#endif
#endif
