/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which rail of a peer each local rail should use: explicit table, automatic rules, NUMA tiers.
 *
 * A map copies a layout (local rails, peers, their rails) and gives every pair (local rail, remote rail) a small number
 * that the pair keeps for as long as it is part of the layout, over any number of changes. Per local rail, peer and
 * NUMA node of the remote memory it keeps the best pair, recomputed when a pair is paused or resumed and when a layout
 * is built; asking is a look-up. Owned by one thread, the control lcore; no allocation, no clock, no I/O.
 */
#ifndef RY_HEALTH_MAPPING_H
#define RY_HEALTH_MAPPING_H

#include <stdbool.h>
#include <stdint.h>

#include <railyard/types.h>

#include "daemon/msg.h"

#ifdef __cplusplus
extern "C" {
#endif

#define RAIL_MAP_PEERS_MAX 320u /* configured stores and accepted peers */
#define RAIL_MAP_NUMA_MAX 16u   /* NUMA ids below 0, or this and above, count as 0 */
#define RAIL_MAP_NONE 0xffffu   /* "no pair" */

/* One rail, of this node or of a peer. */
struct rail_map_end {
	const char *name; /* device name; unique on its node */
	int numa;
	uint8_t prefix_bits; /* of address; 0 = no address known. A peer's: anything but 0 */
	uint8_t address[16]; /* IPv6, or IPv4 mapped into it (96 is added to the prefix) */
};

struct rail_map_peer {
	const char *name; /* unique */
	uint32_t n_rails;
	const struct rail_map_end *rails;
};

/* One row of the explicit table. */
struct rail_map_row {
	const char *local;
	const char *peer; /* NULL = every peer that has such a rail */
	const char *remote;
};

struct rail_map_table {
	uint32_t n_all; /* which pairs exist; 0 = all */
	const struct rail_map_row *all;
	uint32_t n_direct; /* preferred ones; a local rail without a row here is mapped by the automatic rules */
	const struct rail_map_row *direct;
};

/* What to map. Everything is copied: the caller may drop it after the call. */
struct rail_map_layout {
	uint32_t n_locals;
	const struct rail_map_end *locals;
	uint32_t n_peers;
	const struct rail_map_peer *peers;
	const struct rail_map_table *table; /* NULL = all pairs, automatic rules */
};

struct rail_map_error {
	char text[256]; /* what, where, why, what to do */
};

/* The map's own copy of a rail. */
struct rail_map_rail {
	char name[RY_NAME_MAX_BYTES];
	uint8_t address[16];
	uint8_t prefix_bits;
	uint8_t numa;      /* folded */
	uint16_t peer_idx; /* remote rails */
};

/* What a layout says; two equal layouts give equal bytes. */
struct rail_map_plan {
	uint16_t n_locals, n_peers, n_remotes, n_pairs, n_groups;
	struct rail_map_rail locals[RY_RAILS_MAX];
	struct {
		char name[RY_NAME_MAX_BYTES];
		uint16_t first_remote, n_rails;
	} peers[RAIL_MAP_PEERS_MAX];
	struct rail_map_rail remotes[PAIRS_MAX];   /* peer by peer */
	uint16_t pair_of[RY_RAILS_MAX][PAIRS_MAX]; /* by local and remote index */
	struct {
		bool exists;
		uint16_t local_idx, remote_idx;
	} pairs[PAIRS_MAX];
	/* A group is all pairs of one local rail with one peer. */
	uint16_t group_of[RY_RAILS_MAX][RAIL_MAP_PEERS_MAX];
	struct {
		uint16_t local_idx, peer_idx;
		uint16_t preferred; /* pair */
		bool is_explicit;
	} groups[PAIRS_MAX];
};

struct rail_map {
	struct rail_map_plan plan;
	bool is_paused[PAIRS_MAX];
	uint16_t best[PAIRS_MAX][RAIL_MAP_NUMA_MAX]; /* by group */
};

/*
 * Fills map from a layout. Pairs that were also in old (may be NULL) keep their numbers and whether they are paused. 0,
 * or -EINVAL (unknown, repeated or overlong name, contradicting rows) or -ENOSPC with err filled; map is then
 * undefined.
 */
int rail_map_build(struct rail_map *map, const struct rail_map_layout *layout, const struct rail_map *old,
	struct rail_map_error *err);

/* Whether both come from the same layout and table. */
bool rail_map_is_equal(const struct rail_map *a, const struct rail_map *b);

/* Whether pair_idx stands for the same local rail, peer and remote rail in both. */
bool rail_map_is_same_pair(const struct rail_map *a, const struct rail_map *b, uint16_t pair_idx);

/* Pair by index in the layout, or RAIL_MAP_NONE. */
uint16_t rail_map_pair(const struct rail_map *map, uint16_t local_idx, uint16_t peer_idx, uint16_t remote_idx);

/* Pair by names, or RAIL_MAP_NONE. */
uint16_t rail_map_find(const struct rail_map *map, const char *local, const char *peer, const char *remote);

/* Recomputes the best pairs of every local rail that pair_idx touches. */
void rail_map_set_paused(struct rail_map *map, uint16_t pair_idx, bool is_paused);

/* The pair to use towards memory on this NUMA node of the peer; it may be a paused one when all are. RAIL_MAP_NONE when
 * they share no pair. */
uint16_t rail_map_best(const struct rail_map *map, uint16_t local_idx, uint16_t peer_idx, int remote_numa);

/* The same while nothing is paused. */
uint16_t rail_map_preferred(const struct rail_map *map, uint16_t local_idx, uint16_t peer_idx, int remote_numa);

static inline bool rail_map_has_pair(const struct rail_map *map, uint16_t pair_idx)
{
	return pair_idx < PAIRS_MAX && map->plan.pairs[pair_idx].exists;
}

#ifdef __cplusplus
}
#endif
#endif
