/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A node of several mock rails, two objects in its store, and a fault plan on any rail: what the tests of this folder
 * share.
 *
 * The one rule of all outcomes is in fault_read: the exact bytes, or one typed error that shows nothing, by the
 * deadline. What a certain fault must come to is each test's own.
 */
#ifndef RY_TEST_FAULT_RIG_H
#define RY_TEST_FAULT_RIG_H

#include "rig.h"
#include "transport/mock/fault.h"

#ifdef __cplusplus
extern "C" {
#endif

#define MIB (1u << 20)
#define KIB (1u << 10)
#define MS 1000000ull
#define ANY_BYTE 0xa5 /* what free arena memory holds, so that bytes that never came are seen */

struct fault_rig {
	struct rig r;
	uint8_t *small; /* "small": 4 MiB in stripes of 256 KiB */
	uint8_t *large; /* "large": 6 MiB + 77 in stripes of 2 MiB */
	struct ry_cqe last;
};

/* 1 GB/s rails, short time-outs; r.config may be changed before fault_start. */
void fault_init(struct fault_rig *f, uint16_t n_rails);
void fault_start(struct fault_rig *f);
void fault_stop(struct fault_rig *f);

/* Puts this plan on a rail; returns when the rail has it. */
void fault_plan(struct fault_rig *f, uint16_t rail, const char *text);
uint64_t fault_count(const struct fault_rig *f, uint16_t rail, enum fault_kind kind);

/* Reads a whole object, with so many ms until its deadline; checks the rule, and returns the status. The completion is
 * in f->last. */
uint32_t fault_read(struct fault_rig *f, const char *key, uint32_t flags, uint64_t deadline_ms);
/* The rest of the rule: everything is given back, and with the plan gone every object reads well and every rail comes
 * to carry bytes again. */
void fault_over(struct fault_rig *f);
/* The last completion's cause. */
const char *fault_cause(const struct fault_rig *f);

#ifdef __cplusplus
}
#endif
#endif
