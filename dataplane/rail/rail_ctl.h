/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A rail as control, conn and the daemon's main see it: open, start, hand work, drain, stop.
 *
 * Control reaches a rail in three ways only: the SPSC work ring, the want words (cancel scan, stop), and a pointer to
 * an immutable snapshot. A rail reaches control in two: the SPSC event ring and its counters. Conn reaches a rail by
 * the SPSC adopt ring, and reads each QP's state word. Nothing else is shared.
 */
#ifndef RY_RAIL_CTL_H
#define RY_RAIL_CTL_H

#include <stdbool.h>
#include <stdint.h>

#include "rail/segment.h"
#include "stats/stats.h"
#include "store/source.h"
#include "sync/sync.h"
#include "transport/transport.h"

#ifdef __cplusplus
extern "C" {
#endif

#define RAIL_ACTIVE_MAX 256u      /* segments and windows a rail has at a time */
#define RAIL_WORK_ENTRIES 16384u  /* of the work ring; control checks that all its segments fit, */
#define RAIL_EVENT_ENTRIES 16384u /* and of the event ring */
#define RAIL_QPS_MAX 256u
#define RAIL_SERVE_MAX 512u /* requests of peers a rail holds at a time */
#define RAIL_CREDITS 24u    /* READs a peer may have outstanding on one QP; a credit includes its CANCEL */

/* Immutable while published; built by control, freed after every rail has acknowledged a later generation. */
struct rail_snapshot {
	uint32_t generation;
	uint32_t serve_max_requests; /* per QP */
	uint64_t serve_max_bytes;    /* accepted and unfinished, per rail */
	uint64_t fence_timeout_ns;
	uint64_t spin_ns;           /* before sleeping; UINT64_MAX = never sleep */
	uint64_t verify_turn_bytes; /* hashed per turn */
	uint64_t serve_turn_bytes;  /* posted per turn */
};

struct rail_deps {
	struct waker *control_waker;
	struct waker *conn_waker;
	struct source_table *sources;
	const struct rail_snapshot *snapshot;
	int socket_id;
	char *why; /* why a rail cannot be opened, where its transport can tell more than an errno */
	uint32_t why_bytes;
};

/* State word of a QP: written by its rail lcore only, read by conn. */
enum qp_state {
	QP_NEW = 0,
	QP_ADOPTED = 1,
	QP_FAILED = 2,   /* the rail saw it die; all its segments were handed back */
	QP_RELEASED = 3, /* the rail knows it no longer; conn may destroy it */
};

/* ---- set-up, main thread ---- */
int rail_create(const struct rail_conf *conf, uint16_t idx, const struct rail_deps *deps, struct rail **out);
/* After the lcore has stopped. NULL is allowed. */
void rail_destroy(struct rail *rail);
/* rte_eal_remote_launch of the loop on conf.lcore. */
int rail_launch(struct rail *rail);
/* Asks the loop to end and waits for it. */
void rail_stop(struct rail *rail);

/* ---- any thread but an lcore's: reads files ---- */
void rail_describe(const struct rail *rail, struct rail_device_info *out);
/* main at start, conn on port events: the link's speed is read anew. */
void rail_read_link(struct rail *rail);
/* Why mem_reg was refused last, or why the rail has no windows; empty when its transport does not say. Main and the
 * work thread. */
const char *rail_why(const struct rail *rail);
/* Why pair_connect was refused last; the same, conn. */
const char *rail_why_no_qp(const struct rail *rail);

/* ---- control lcore ---- */
/* Bytes per second; 0 = unknown. */
uint64_t rail_link(const struct rail *rail);
/* false = the work ring is full: keep the segment. Kick once after a burst. */
bool rail_hand_out(struct rail *rail, struct segment *seg);
void rail_kick(struct rail *rail);
unsigned rail_take_events(struct rail *rail, struct segment **segs, unsigned n);
bool rail_has_events(const struct rail *rail);
/* Whether the lcore had a turn since *seen (then moved on), or sleeps because there is nothing to do. false: it waits
 * for a CPU. */
bool rail_had_turn(const struct rail *rail, uint64_t *seen);
/* Makes the rail look at cancel_want of all its segments, and kicks it. */
void rail_cancel_scan(struct rail *rail);
void rail_publish(struct rail *rail, const struct rail_snapshot *snapshot);
/* Last snapshot generation the rail has seen. */
uint32_t rail_seen_generation(const struct rail *rail);

/* ---- conn thread ---- */
const struct transport_ops *rail_ops(const struct rail *rail);
const struct transport_attr *rail_attr(const struct rail *rail);
/* Hands a QP to the lcore; -EAGAIN when the ring is full. QP_ADOPTED or QP_FAILED follows, and conn's waker is kicked.
 */
int rail_adopt(struct rail *rail, struct qp *qp);
/* Takes it back: the lcore fails what it still has on it, then sets QP_RELEASED and kicks conn. Control must have
 * promised first that it hands out no more segments for this QP. */
int rail_release(struct rail *rail, struct qp *qp);
enum qp_state qp_state(const struct qp *qp);
/* The rail's device leaves, and no QP is left: asks the lcore to let go of it, and never to poll it again. -EAGAIN: the
 * ring is full. Once rail_is_detached, conn may close the device; conn's waker is kicked. */
int rail_detach(struct rail *rail);
/* It is detached and has a device again, in full: asks the lcore to poll it. -EAGAIN: the ring is full. Until
 * rail_is_detached is false, conn asks for nothing else; conn's waker is kicked. */
int rail_attach(struct rail *rail);
/* Why a FAILED QP failed: enum wc_status. */
uint8_t qp_fail_status(const struct qp *qp);
/* Messages of the peer that nothing waited for or that are not allowed; of a QP that is not released yet. Relaxed. */
uint32_t qp_n_odd(const struct qp *qp);

/* ---- any thread ---- */
bool rail_is_detached(const struct rail *rail);
/* Relaxed reads. */
const struct rail_counters *rail_counters(const struct rail *rail);
const struct rail_conf *rail_conf(const struct rail *rail);
/* What landed for segments of a QP that is not released yet; relaxed. */
uint64_t qp_rx_bytes(const struct qp *qp);
uint16_t rail_idx(const struct rail *rail);

/* ---- the loop body; one thread (the lcore, or a test that runs everything in turn) ---- */
/* Returns whether anything was done. */
bool rail_poll(struct rail *rail, uint64_t now_ns);
/* The earliest time at which rail_poll has something to do by itself (fence time-outs); UINT64_MAX = none. */
uint64_t rail_next_timer(const struct rail *rail);

#ifdef __cplusplus
}
#endif
#endif
