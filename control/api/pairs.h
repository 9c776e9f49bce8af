/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A copy of conn's pair records, for the handlers that show them. Inside control/api; api thread.
 */
#ifndef RY_API_PAIRS_H
#define RY_API_PAIRS_H

#include <jansson.h>

#include "daemon/conn.h"

#ifdef __cplusplus
extern "C" {
#endif

struct api;

struct pair_list {
	struct conn_pair_info *rows;
	uint32_t n;
};

/* 0 or -ENOMEM. */
int pair_list_get(const struct api *api, struct pair_list *out);
void pair_list_free(struct pair_list *list);
/* One pair as `pairs` and `rails` show it. */
json_t *pair_describe(const struct config *c, const struct conn_pair_info *p);

#ifdef __cplusplus
}
#endif
#endif
