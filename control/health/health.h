/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Whether a pair may carry user data: the breaker of its two rails, and what is known of the connection it runs on.
 *
 * Control lcore only; time is an argument. A breaker (rail_health.h) belongs to a configured pair (local rail, endpoint
 * of a store) and outlives its connections; pairs that peers dialled have none and are available while connected. A
 * connection that follows a loss which nobody announced, or that belongs to a paused breaker, is connected only after a
 * full-size PING came back (proven).
 */
#ifndef RY_HEALTH_H
#define RY_HEALTH_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/config.h"
#include "daemon/msg.h"
#include "health/rail_health.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What is known of one connection, by the index of its pair. */
struct health_conn {
	uint32_t epoch;   /* 0 = not connected */
	uint16_t breaker; /* RAIL_MAP_NONE = none */
	bool is_proven;
};

/* What a breaker belongs to, by index in the configuration. */
struct health_name {
	uint16_t store_idx;
	uint16_t endpoint_idx;
	uint16_t rail_idx;
};

struct health {
	struct health_conn conns[PAIRS_MAX];
	bool wants_proof[PAIRS_MAX];             /* by breaker: its last connection was lost without a BYE */
	uint32_t memory_numa[CONFIG_STORES_MAX]; /* all ones = of no matter */
	struct rail_health breakers;
};

/* What the end of a QP (enum wc_status) says about its path. */
enum rail_evidence health_wc_evidence(uint8_t wc_status);

/* Lays out the breakers of all configured pairs. 0, or -errno with err filled. */
int health_init(struct health *h, const struct config *config, struct rail_map_error *err);

/* The clock starts: until now nothing happened, and times in a state count from here. */
void health_begin(struct health *h, uint64_t now_ns);

/* A connection is up; false: it is not proven, send a PING before any data. */
bool health_connected(struct health *h, const struct pair *pair);
/* It is gone, or known to be useless. `fault` may be NULL (announced, or its own doing). Path evidence counts once per
 * connection. */
void health_lost(
	struct health *h, uint16_t pair_idx, bool is_announced, const struct rail_fault *fault, uint64_t now_ns);

/* Pure: connected and its breaker closed, proven or not. */
static inline bool health_is_closed(const struct health *h, uint16_t pair_idx)
{
	const struct health_conn *c = &h->conns[pair_idx];

	return c->epoch && (c->breaker == RAIL_MAP_NONE || rail_health_is_available(&h->breakers, c->breaker));
}

/* Pure: connected, proven, and its breaker closed. */
static inline bool health_is_available(const struct health *h, uint16_t pair_idx)
{
	return h->conns[pair_idx].is_proven && health_is_closed(h, pair_idx);
}

/* An attempt to connect a configured pair failed. When the cooldown is over, the attempt was the trial. */
void health_dial_failed(struct health *h, uint16_t breaker, const struct rail_fault *fault, uint64_t now_ns);

/* Whether a PING should go out on this connection now: it waits for its proof, or its breaker is due. */
bool health_wants_ping(const struct health *h, uint16_t pair_idx, uint64_t now_ns);
/* The token of a PING that is about to go out; REFUSED: do not send. */
struct rail_token health_ask(struct health *h, uint16_t pair_idx, uint64_t now_ns);
/* It came back whole, or did not (path evidence), or never reached the wire (fault NULL). */
void health_pinged(struct health *h, uint16_t pair_idx, struct rail_token token, bool is_good,
	const struct rail_fault *fault, uint64_t now_ns);
/* Whether health_carried changes anything, but for a long rtt_ns. */
static inline bool health_remembers(const struct health *h, uint16_t pair_idx)
{
	uint16_t breaker = h->conns[pair_idx].breaker;

	return breaker != RAIL_MAP_NONE &&
	       (h->breakers.pairs[breaker].error_count || h->breakers.pairs[breaker].lease_ns);
}
/* Data came over this connection often enough to be a success: what had failed before it is forgotten. rtt_ns is the
 * shortest answer. */
void health_carried(struct health *h, uint16_t pair_idx, uint64_t rtt_ns, uint64_t now_ns);

/* RAIL_MAP_NONE = no such pair. */
static inline uint16_t health_breaker(
	const struct health *h, uint16_t store_idx, uint16_t endpoint_idx, uint16_t rail_idx)
{
	return rail_map_pair(rail_health_map(&h->breakers), rail_idx, store_idx, endpoint_idx);
}
/* The other way round; the breaker exists. */
void health_names(const struct health *h, uint16_t breaker, struct health_name *out);

/* The pair that a local rail uses towards a store while all is well, and the one that it should use now; RAIL_MAP_NONE
 * when they share none. */
uint16_t health_preferred(const struct health *h, uint16_t store_idx, uint16_t rail_idx);
uint16_t health_best(const struct health *h, uint16_t store_idx, uint16_t rail_idx);
/* When health_wants_ping of this connection may become true by itself; UINT64_MAX = never. */
uint64_t health_due_ns(const struct health *h, uint16_t pair_idx, uint64_t now_ns);

#ifdef __cplusplus
}
#endif
#endif
