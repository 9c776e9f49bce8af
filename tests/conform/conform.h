/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The conformance suite of transports, at the level of transport_ops.
 *
 * test_conform.c holds the tests, conform.c what they share, and one conform_<transport>.c the fixture: it makes the
 * rails and connects the QPs. One program per transport, one thread per program: each turn polls the rails with the
 * real clock. Side `a` opens windows and receives, side `b` writes; on a loopback transport both are one rail.
 */
#ifndef RY_CONFORM_H
#define RY_CONFORM_H

#include <stdbool.h>
#include <stdint.h>

#include "hot/rail.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CONFORM_QPS_MAX 4u
#define CONFORM_EVENTS_MAX 65536u

/* A completion as poll gave it; messages are copied. */
struct conform_event {
	struct wc wc;
	uint8_t msg[256]; /* the largest valid message is a READ of 8 parts: 240 bytes */
};

struct conform {
	const struct transport_ops *ops;
	struct rail *a;
	struct rail *b; /* may be the same as a */
	struct qp *qa[CONFORM_QPS_MAX];
	struct qp *qb[CONFORM_QPS_MAX]; /* qb[i] is the other end of qa[i] */
	uint32_t n_events;
	struct conform_event events[CONFORM_EVENTS_MAX];
};

/* ---- the fixture, one per transport ---- */
/* Opens the rails (conform_rail_new) and connects and adopts n_qps QP pairs (conform_adopt). Fails the test on error.
 */
void conform_setup(struct conform *c, uint16_t n_qps);

/* ---- conform.c ---- */
/* setup with a fresh struct, which conform_close frees. */
struct conform *conform_open(uint16_t n_qps);
/* Closes what is still open, rails last. */
void conform_close(struct conform *c);

/* A zeroed rail with its transport opened, by hand: no lcore, no rings. */
struct rail *conform_rail_new(const struct transport_ops *ops, const struct rail_conf *conf, uint16_t idx);
/* What a rail lcore does when it adopts a QP, and when it forgets one (the transport lets go of it before it returns).
 */
void conform_adopt(struct rail *rail, struct qp *qp);
void conform_forget(struct rail *rail, struct qp *qp);
/* Forgets and closes qa[i] or qb[i]. */
void conform_close_a(struct conform *c, uint16_t i);
void conform_close_b(struct conform *c, uint16_t i);

/* One turn of all rails; what comes out is appended to events. */
void conform_turn(struct conform *c);
/* Turns until there are n events in all; fails the test when 10 s pass. */
void conform_wait(struct conform *c, uint32_t n);
/* Turns until n events of this kind on this QP; fails the test when 10 s pass. */
void conform_wait_for(struct conform *c, enum wc_op op, const struct qp *qp, uint32_t n);
/* A few hundred turns more, for what must not come. */
void conform_settle(struct conform *c);
uint32_t conform_count(const struct conform *c, enum wc_op op, const struct qp *qp);
/* The k-th event of this kind on this QP; fails the test when there is none. */
const struct conform_event *conform_event(const struct conform *c, enum wc_op op, const struct qp *qp, uint32_t k);

/* Posts one WR on the QP's rail, with turns while the send queue is full. */
void conform_post(struct conform *c, struct rail *rail, const struct wr *wr);
/* A valid message whose content follows from seed: READ of n_parts. Returns its length. */
uint32_t conform_message(void *buf, uint16_t n_parts, uint64_t seed);
/* SEND of conform_message(n_parts, seed). */
void conform_send(struct conform *c, struct rail *rail, struct qp *qp, uint16_t n_parts, uint64_t seed);
/* WRITE over qb[i] into a window of side a. */
void conform_write(
	struct conform *c, uint16_t i, const struct window *w, uint64_t offset, const void *addr, uint32_t len);
/* Sends over qb[i] and waits until side a has it: all that was written before on this QP has been dealt with. */
void conform_barrier(struct conform *c, uint16_t i);

/* Window `slot` of side a over [addr, addr + len) for the peer of qa[i]: bound as the rail does it. */
struct window *conform_bind(struct conform *c, uint16_t i, uint32_t slot, void *addr, uint64_t len);
/* Bytes that follow from seed. */
void conform_fill(void *buf, uint64_t len, uint64_t seed);
bool conform_is_filled(const void *buf, uint64_t len, uint64_t seed);

#ifdef __cplusplus
}
#endif
#endif
