/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Keeps a book of every window of a rig's rails, from what the rails post and what their transport answers; it reads
 * the wire, not the rails' minds. The process is stopped, with a line on stderr, by what no rail may ever do: BIND of a
 * window that is open, LOCAL_INV of one that is not open, not answered (DONE, BUSY, PONG; PULLED or CANCEL of a granted
 * one), or already being invalidated. One book per process.
 */
#ifndef RY_TEST_RIG_WINDOWS_H
#define RY_TEST_RIG_WINDOWS_H

#include "rig.h"

#ifdef __cplusplus
extern "C" {
#endif

struct rig_windows {
	unsigned n_binds;
	unsigned n_invs;
	unsigned n_reads; /* WR_READ of segments, and */
	uint64_t read_bytes;
	unsigned n_probe_reads;
	unsigned n_writes;
	unsigned n_grants;
	unsigned n_pulled;
	unsigned n_cancels;
	unsigned n_losses;      /* WC_QP_DOWN without is_fenced */
	unsigned n_access;      /* of them: access errors */
	unsigned n_fences;      /* WC_QP_DOWN with it */
	unsigned n_fenced_open; /* windows that were open then */
};

/* From now on; no window may be open. Before the first rig_tap, which then sits on top of it. */
void rig_windows_watch(struct rig *r);
const struct rig_windows *rig_windows(void);
/* NULL, or what is not at rest: a window, slot, credit, request, pin's request, or byte of a budget. Static text. */
const char *rig_windows_unrest(struct rig *r);

#ifdef __cplusplus
}
#endif
#endif
