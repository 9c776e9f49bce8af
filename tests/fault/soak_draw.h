/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the seed of a soak decides: the node that it runs on, and the fault plans that come and go.
 *
 * The same seed draws the same, so a failure is repeated with the number that was printed.
 */
#ifndef RY_TEST_SOAK_DRAW_H
#define RY_TEST_SOAK_DRAW_H

#include <stdint.h>

#include "daemon/config.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SOAK_RAILS_MAX 6u
#define SOAK_LARGEST_BYTES (6u << 20) /* of the objects: what every budget has room for */
#define SOAK_TEXT_BYTES 512u

struct dice {
	uint64_t state;
};

struct dice dice_of(uint64_t seed);
/* 0 to n - 1. */
uint64_t dice_below(struct dice *d, uint64_t n);

/* How many rails, each an endpoint of the store. */
uint16_t draw_rails(struct dice *d);
/* Breaker, admission, budgets, policies; `text` says in SOAK_TEXT_BYTES what came of it. */
void draw_config(struct dice *d, struct config *c, char *text);
/* One to three faults. */
void draw_plan(struct dice *d, char *text);
/* What no probe notices: requests or answers get lost for as long as the plan is there. */
void draw_silence(struct dice *d, char *text);

#ifdef __cplusplus
}
#endif
#endif
