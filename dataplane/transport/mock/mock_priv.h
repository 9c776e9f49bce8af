/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * State of a mock rail, shared by mock.c (set-up, close, sleep) and mock_hot.c (post, poll).
 *
 * Each QP end has a FIFO of what it sent; delivering its head is the only way anything moves. Everything belongs to the
 * rail lcore, except what conn writes when it closes an end. An end's memory lives until both ends are closed, so that
 * the lcore can look at a peer that conn has closed.
 */
#ifndef RY_MOCK_PRIV_H
#define RY_MOCK_PRIV_H

#include <stdalign.h>

#include "hot/rail.h"
#include "transport/mock/fault_priv.h"

#ifdef __cplusplus
extern "C" {
#endif

#define MOCK_SQ_DEPTH 256u /* SENDs and WRITEs of one end under way */
#define MOCK_MSGS 128u     /* of them SENDs: 24 READs, their CANCELs, 24 answers, and 32 that were just handed over */
#define MOCK_WRITE_MAX_BYTES (1u << 20)
#define MOCK_SLICE_BYTES (256u << 10) /* moved at once: stays in L2 for the hash that follows */
#define MOCK_TURN_BYTES (1u << 20)    /* most bytes of one poll under a bandwidth model */
#define MOCK_INVS RAIL_ACTIVE_MAX     /* one per window of the rail */

/* A SEND or WRITE under way. */
struct mock_wr {
	uint64_t due_ns;     /* all of it has arrived */
	uint64_t start_ns;   /* WRITE: its first byte enters the wire at start_ns + start_frac / bandwidth, and */
	uint64_t start_frac; /* [1 / bandwidth ns] */
	uint8_t *src;        /* WRITE: the sender's memory. SEND: its message slot */
	void *ctx;
	uint64_t offset;
	uint32_t key;
	uint32_t len_bytes;
	uint32_t pos_bytes;  /* delivered */
	uint8_t op;          /* WR_SEND or WR_WRITE; over device windows any */
	uint8_t fault_state; /* enum mock_fault_state bits, while a plan is in force */
	uint16_t faults;     /* WRITE: bit i = entry i of the plan spoils it. BIND: enum window_access */
};
static_assert(sizeof(struct mock_wr) == 64, "one line");

enum mock_fault_state {
	MOCK_BEGUN = 1u << 0, /* WRITE: counted, and entries have chosen it */
	MOCK_LATE = 1u << 1,  /* WRITE: waits until its window is closed */
	MOCK_AGAIN = 1u << 2, /* SEND: was handed over once already */
};
static_assert(FAULT_ENTRIES_MAX <= 16, "bits of mock_wr.faults");

/* What a delivery comes to, as bits. */
enum mock_delivered {
	MOCK_FILLED = 1u << 0,   /* *wc was filled */
	MOCK_FINISHED = 1u << 1, /* nothing of it is left: the queue moves on */
};

/* One direction of the rail. Exact over any run: what a division leaves is carried in frac. */
struct mock_wire {
	uint64_t busy_ns; /* the last byte that was posted leaves at busy_ns + frac / bandwidth */
	uint64_t frac;
};

struct mock_qp {
	struct qp base;
	/* written by conn before adoption */
	struct mock_qp *peer; /* the other end; its `base` is valid when has_request */
	struct mock_link *link;
	bool has_request; /* pair_connect was called for this end */
	bool has_device;  /* over device windows */
	/* written by the lcore */
	alignas(64) uint32_t sq_head;
	uint32_t sq_tail;
	uint32_t msg_head; /* delivered */
	uint32_t msg_tail;
	uint32_t msg_released; /* delivered before the last poll: slots that may be written again */
	uint32_t inv_head;
	uint32_t inv_tail;
	uint32_t scan; /* equals mock.scan when the rail has adopted this end */
	bool is_down;
	bool is_listed;       /* in mock.active */
	bool is_fenced;       /* device windows: conn's fence is done */
	uint8_t break_status; /* device windows: enum wc_status, to be reported */
	uint32_t fence_want;  /* device windows: the rail gave this end up; read by conn */
	uint64_t stuck_ns;    /* device windows: the peer takes nothing since then, 0 = it does */
	struct mock_wr sq[MOCK_SQ_DEPTH];
	void *invs[MOCK_INVS];
	alignas(64) uint8_t msgs[MOCK_MSGS][WIRE_MSG_BYTES];
	/* written by conn (release) when it closes this end, read by the lcore (acquire) */
	alignas(64) uint32_t is_closed;
	uint32_t fence_asked; /* the same: the fence that fence_want asked for */
};

struct mock_link {
	struct mock_qp ends[2];
};

struct mock_device; /* device.h */

struct mock {
	uint64_t bandwidth; /* bytes per second; 0 = not modelled */
	uint64_t latency_ns;
	bool want_copy;
	uint32_t turn_bytes;
	struct mock_device *device; /* NULL = windows of software */
	/* written by the lcore */
	alignas(64) uint32_t n_active;
	uint32_t turn;
	uint32_t scan;
	uint32_t epoch_seen;                  /* rail.qp_epoch */
	uint32_t close_seen;                  /* close_epoch */
	struct mock_wire wires[2];            /* by is_dialler of the sender */
	struct mock_qp *active[RAIL_QPS_MAX]; /* adopted ends with something to deliver */
	int timer_fd;
	struct mock_fault fault;
	/* written by conn (release) after it set is_closed of an end, read by the lcore (acquire) */
	alignas(64) uint32_t close_epoch;
};

static inline bool mock_is_live(const struct mock *m, const struct mock_qp *q)
{
	return q->scan == m->scan;
}

/* Also while message slots wait for the poll that releases them. */
static inline bool mock_has_work(const struct mock_qp *q)
{
	return q->sq_head != q->sq_tail || q->inv_head != q->inv_tail || q->msg_released != q->msg_head;
}

/* ---- mock_hot.c ---- */
uint16_t mock_post(struct rail *rail, const struct wr *wr, uint16_t n);
uint16_t mock_poll(struct rail *rail, struct wc *wc, uint16_t max);
/* A SEND reaches the other end; result as mock_deliver. */
unsigned mock_message(struct rail *rail, struct mock_qp *q, struct mock_wr *e, struct wc *wc);

/* ---- mock.c, out of line for mock_hot.c ---- */
/* QPs came, went, or lost their peer: rebuilds the active list without touching one that left. Returns completions
 * (QP_DOWN). */
uint16_t mock_rescan(struct rail *rail, struct wc *wc, uint16_t max);
/* The end is unusable: drops all it has under way and fills its one WC_QP_DOWN; over device windows a fence follows. */
void mock_down(struct mock_qp *q, uint8_t status, struct wc *wc);

#ifdef __cplusplus
}
#endif
#endif
