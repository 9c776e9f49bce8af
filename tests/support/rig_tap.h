/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Looks at, changes or swallows what a node's rails post, between the rail and its transport; and posts again later
 * what was swallowed. One tap per process.
 */
#ifndef RY_TEST_RIG_TAP_H
#define RY_TEST_RIG_TAP_H

#include "hot/rail.h"
#include "rig.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A SEND's message is a copy that may be changed, like *wr. false: swallowed, as if it had been taken. */
typedef bool (*rig_tap_fn)(void *ctx, struct rail *rail, struct wr *wr);

/* On all rails; fn = NULL takes it off again. */
void rig_tap(struct rig *r, rig_tap_fn fn, void *ctx);

/* A message that a tap kept. */
struct rig_kept {
	struct rail *rail;
	struct wr wr;
	alignas(8) uint8_t msg[WIRE_MSG_BYTES];
};
void rig_keep(struct rig_kept *k, struct rail *rail, const struct wr *wr);
/* Posts it past the tap; the test may have changed k->msg. */
void rig_post_kept(struct rig_kept *k);

/* The message of a SEND, NULL for any other work request or type. */
static inline void *rig_message(const struct wr *wr, uint8_t type)
{
	const struct wire_msg *m = wr->addr;

	return wr->op == WR_SEND && m->type == type ? wr->addr : NULL;
}

#ifdef __cplusplus
}
#endif
#endif
