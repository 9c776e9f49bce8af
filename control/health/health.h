/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Whether a pair may carry user data. Control lcore only; time is an argument.
 *
 * This version knows connected and disconnected. The interface is that of the Half-Open breaker, which replaces the
 * body: planners ask health_is_available (pure, never mutates), whoever sends a probe asks health_admit, and every
 * outcome is told once per connection.
 */
#ifndef RY_HEALTH_H
#define RY_HEALTH_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/msg.h"

#ifdef __cplusplus
extern "C" {
#endif

enum health_evidence {
	HEALTH_EV_PATH = 1,  /* retry or RNR exceeded, connect failure, segment deadline: feeds the pair */
	HEALTH_EV_LOCAL = 2, /* port or device: the rail is disconnected, the breaker untouched */
	HEALTH_EV_PEER = 3,  /* the peer restarted or said BYE: peer health, not rail health */
	HEALTH_EV_FLUSH = 4, /* consequence of another error: no evidence */
};

enum health_grant_kind {
	HEALTH_REFUSED = 0,
	HEALTH_NORMAL = 1,
	HEALTH_PROBE = 2,
	HEALTH_TRIAL = 3,
};

/* What admit returns; only the same token can settle the probe it armed. */
struct health_token {
	uint8_t kind; /* enum health_grant_kind */
	uint16_t pair_idx;
	uint32_t epoch;
};

struct health {
	uint32_t connected_epoch[PAIRS_MAX]; /* 0 = disconnected */
};

void health_init(struct health *h);
void health_connected(struct health *h, uint16_t pair_idx, uint32_t epoch);
void health_disconnected(struct health *h, uint16_t pair_idx, enum health_evidence why, uint64_t now_ns);
bool health_is_available(const struct health *h, uint16_t pair_idx, uint64_t now_ns);
struct health_token health_admit(struct health *h, uint16_t pair_idx, uint64_t now_ns);
void health_cancel_probe(struct health *h, struct health_token token, uint64_t now_ns);
void health_success(struct health *h, struct health_token token, uint64_t now_ns);
void health_failure(struct health *h, struct health_token token, enum health_evidence why, uint64_t now_ns);

#ifdef __cplusplus
}
#endif
#endif
