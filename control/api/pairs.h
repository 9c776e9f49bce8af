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
#define ENDPOINT_TEXT_BYTES 80u
/* "address:port", "[address]:port"; empty where there is none: an accepted pair, or this node's own store. */
const char *endpoint_text(
	const struct config *c, uint16_t store_idx, uint16_t endpoint_idx, char text[ENDPOINT_TEXT_BYTES]);

#ifdef __cplusplus
}
#endif
#endif
