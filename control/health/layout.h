/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The configuration's rails, stores and endpoints as a layout for mapping.h: which pairs of a local rail and an
 * endpoint may exist, and which of them the operator prefers.
 *
 * Computed from the configuration and the addresses of this node; main calls it before there are other threads.
 */
#ifndef RY_HEALTH_LAYOUT_H
#define RY_HEALTH_LAYOUT_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/config.h"
#include "health/mapping.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Peers are the stores, their rails the endpoints; all in the configuration's order. */
struct layout {
	struct rail_map_layout layout; /* points into what follows */
	struct rail_map_table table;
	struct rail_map_end locals[RY_RAILS_MAX];
	struct rail_map_peer peers[CONFIG_STORES_MAX];
	struct rail_map_end remotes[CONFIG_STORES_MAX][RY_RAILS_MAX];
	char names[CONFIG_STORES_MAX][RY_RAILS_MAX][RY_NAME_MAX_BYTES];
	struct rail_map_row direct[CONFIG_STORES_MAX * RY_RAILS_MAX];
	struct rail_map_row all[PAIRS_MAX];
};

/* To be freed by the caller; n_all is 0 when the configuration has no pairs. NULL: err says why. */
struct layout *layout_create(const struct config *c, struct rail_map_error *err);

/* Whether this local rail may connect to this endpoint. */
bool layout_may_reach(const struct config *c, uint16_t store_idx, uint16_t endpoint_idx, uint16_t rail_idx);
/* Endpoints of a store; a store that is this node has one for each of its rails. */
uint16_t layout_n_endpoints(const struct config *c, uint16_t store_idx);

#ifdef __cplusplus
}
#endif
#endif
