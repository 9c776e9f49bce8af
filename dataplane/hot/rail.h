/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The rail as its own lcore and its transport see it: what runs per burst.
 *
 * Seen by dataplane/hot, dataplane/store/serve_hot.c and the transports; never by control. Everything here belongs to the rail lcore
 * unless a group says otherwise. Fields are grouped by writer, a cache line or more each.
 */
#ifndef RY_HOT_RAIL_H
#define RY_HOT_RAIL_H

#include <stdalign.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rail/rail_ctl.h"
#include "rail/segment.h"
#include "stats/stats.h"
#include "store/source.h"
#include "sync/sync.h"
#include "transport/transport.h"
#include "wire/wire.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Windows: one per active segment, so a window's index is its segment's slot. ---- */
enum window_state {
	WINDOW_FREE = 0,
	WINDOW_BOUND = 1,        /* the peer may write */
	WINDOW_INVALIDATING = 2, /* WR_INV posted */
	WINDOW_DEAD = 3,         /* closed by a fence or a lost QP; nothing may land */
};

struct window {
	uint8_t *addr;
	uint64_t len_bytes;
	struct qp *qp;
	uint32_t key; /* slot | salt << WINDOW_SLOT_BITS; a fresh salt at every bind */
	uint8_t state; /* enum window_state */
	void *hw;     /* transports with windows of their own */
};

#define WINDOW_SLOT_BITS 8
static_assert((1u << WINDOW_SLOT_BITS) == RAIL_ACTIVE_MAX, "a window per slot");

/* ---- A peer's request while this rail serves it ---- */
struct serve_req {
	struct serve_req *next; /* QP's queue, or the free list */
	struct qp *qp;
	struct source *source;
	uint64_t request_id;
	uint64_t recv_ns;
	uint64_t start_ns;  /* first write posted */
	uint64_t expire_ns; /* no write is posted at or after this */
	uint64_t bytes_posted;
	uint32_t key;
	uint32_t status;
	uint16_t n_parts;
	uint16_t part;       /* next to post, and */
	uint32_t part_off;   /* bytes of it posted */
	uint16_t n_writes;   /* posted and not completed */
	bool is_cancelled;
	bool is_answered;    /* DONE was posted */
	struct wire_part parts[WIRE_PARTS_MAX];
};

/* A FIFO of segments linked by segment.next. */
struct seg_fifo {
	struct segment *head;
	struct segment *tail;
	uint32_t n;
};

/* ---- One queue pair. A transport embeds it as the first member of its own struct. ---- */
struct qp {
	/* written by the transport in pair_connect, read-only afterwards */
	uint16_t rail_idx;
	uint16_t pair_idx;
	uint16_t peer_idx;
	uint16_t qp_idx;
	bool is_dialler;
	uint16_t peer_credits; /* granted by the peer */
	/* written by the rail lcore */
	alignas(64) uint32_t credits; /* READs we may still post */
	uint32_t n_posted;     /* segments POSTED .. CLOSING on it */
	struct seg_fifo held;  /* waiting for a credit */
	struct serve_req *serve_head; /* requests of the peer, in order */
	struct serve_req *serve_tail;
	uint32_t n_serve;
	uint32_t deficit_bytes; /* deficit round robin */
	uint16_t slot;          /* in rail->qps */
	bool is_down;           /* reported by the transport */
	bool is_releasing;      /* conn wants it back */
	uint8_t fail_status;    /* enum wc_status */
	/* written by the rail lcore (release), read by conn (acquire) */
	alignas(64) uint32_t state; /* enum qp_state */
};

struct rail_cmd {
	uint8_t op; /* enum rail_cmd_op */
	struct qp *qp;
};

enum rail_cmd_op {
	RAIL_CMD_ADOPT = 1,
	RAIL_CMD_RELEASE = 2,
};

struct rail {
	/* ---- line 0: written at open, read-only while running ---- */
	transport_post_fn post;
	transport_poll_fn poll;
	void *tr; /* the transport's own state */
	struct rte_ring *work;   /* control -> rail: struct segment */
	struct rte_ring *events; /* rail -> control: struct segment */
	struct rte_ring *adopt;  /* conn -> rail: struct qp, low bit set = release */
	struct source_table *sources;
	uint16_t idx;
	uint16_t reserved0;
	uint32_t write_max_bytes;

	/* ---- written by the lcore ---- */
	alignas(64) uint64_t now_ns; /* this turn's clock */
	const struct rail_snapshot *snap;
	uint32_t turn;
	uint32_t cancel_seen;
	uint32_t qp_epoch;   /* grows when qps changes, so that a transport notices */
	uint16_t n_qps;
	uint16_t serve_next; /* round robin position in qps */
	uint32_t n_active;
	uint32_t n_cancelling;
	uint32_t n_serve;     /* requests accepted and unfinished, and */
	uint64_t serve_bytes; /* their bytes */
	struct seg_fifo landed;   /* to be hashed */
	struct seg_fifo finished; /* to be handed back */
	uint32_t free_top;
	uint32_t n_held;
	uint16_t free_slots[RAIL_ACTIVE_MAX];
	struct segment *active[RAIL_ACTIVE_MAX];
	struct window windows[RAIL_ACTIVE_MAX];
	uint32_t window_salt;
	uint64_t next_request;
	struct qp *qps[RAIL_QPS_MAX];
	struct serve_req *serve_free;
	struct serve_req serve_reqs[RAIL_SERVE_MAX];

	/* ---- statistics: written by the lcore, read by anyone ---- */
	alignas(64) struct rail_counters counters;

	/* ---- written by control, read by the lcore ---- */
	alignas(64) uint32_t cancel_epoch; /* grows with every rail_cancel_scan */
	uint32_t want_stop;
	const struct rail_snapshot *want_snap; /* release/acquire */

	/* ---- written by the lcore, read by control ---- */
	alignas(64) uint32_t seen_generation;

	/* ---- set-up and wake-up ---- */
	alignas(64) struct waker waker;
	struct waker *control_waker;
	struct waker *conn_waker;
	int epoll_fd;
	int armed_fd; /* the transport's fd that is in epoll_fd, -1 = none */
	bool is_launched;
	struct transport_attr attr;
	struct transport_ops ops;
	struct rail_conf conf;
};

/* ---- rail_loop.c ---- */
/* The segment of a request id, or NULL when it is gone (a late message). */
static inline struct segment *rail_segment(struct rail *r, uint64_t request_id)
{
	struct segment *s = r->active[request_id & (RAIL_ACTIVE_MAX - 1)];

	return s && s->request_id == request_id ? s : NULL;
}

/*
 * For transports that place bytes by CPU (tcp, mock): where [offset, offset + len) of window `key` lies, NULL when the window is closed or the
 * range is outside it. `qp` must be the one the window is bound to.
 */
static inline uint8_t *window_resolve(struct rail *r, const struct qp *qp, uint32_t key, uint64_t offset, uint64_t len_bytes)
{
	struct window *w = &r->windows[key & (RAIL_ACTIVE_MAX - 1)];

	if (w->key != key || w->state != WINDOW_BOUND || w->qp != qp)
		return NULL;
	if (len_bytes > w->len_bytes || offset > w->len_bytes - len_bytes)
		return NULL;
	return w->addr + offset;
}

static inline void seg_push(struct seg_fifo *f, struct segment *s)
{
	s->next = NULL;
	if (f->tail)
		f->tail->next = s;
	else
		f->head = s;
	f->tail = s;
	f->n++;
}

static inline struct segment *seg_pop(struct seg_fifo *f)
{
	struct segment *s = f->head;

	if (!s)
		return NULL;
	f->head = s->next;
	if (!f->head)
		f->tail = NULL;
	f->n--;
	return s;
}

/* ---- verify_hot.c ---- */
/* Hashes landed segments, at most snap->verify_turn_bytes; moves them to rail->finished. Returns how many finished. */
unsigned verify_burst(struct rail *r);

/* ---- store/serve_hot.c ---- */
/* A READ, PULL or CANCEL of a peer arrived on qp; the message passed wire_msg_check. */
void serve_recv(struct rail *r, struct qp *qp, const struct wire_msg *msg);
/* Posts writes and answers, deficit round robin over QPs, at most snap->serve_turn_bytes. Returns whether anything was posted. */
bool serve_post(struct rail *r);
/* A write of this request completed. */
void serve_written(struct rail *r, struct serve_req *req);
/* The QP is down: forget its requests and unpin their sources. */
void serve_drop_qp(struct rail *r, struct qp *qp);
/* Initial free list. */
void serve_init(struct rail *r);
/* Whether serve_post has work. */
static inline bool serve_pending(const struct rail *r)
{
	return r->n_serve != 0;
}

/* ---- rail_request_hot.c: the requester's half (READ, DONE, CANCEL, windows) ---- */
/* Takes segments from the work ring into their QP's held queue. */
unsigned request_take(struct rail *r);
/* Posts held segments while credits, slots and send-queue room last. */
unsigned request_post(struct rail *r);
/* DONE or BUSY arrived. */
void request_answer(struct rail *r, struct qp *qp, const struct wire_msg *msg);
/* WC_INV: the window is closed, the segment has landed. */
void request_closed(struct rail *r, struct segment *s);
/* The QP is down: every segment on it ends with `status`. */
void request_drop_qp(struct rail *r, struct qp *qp, uint32_t status);
/* Looks at cancel_want of every segment here. */
void request_cancel_scan(struct rail *r);
/* Ends CANCELLING segments whose fence_timeout is over, by ops.fence. */
void request_fence_expired(struct rail *r);
/* Gives finished segments back to control. */
unsigned request_hand_back(struct rail *r);

#ifdef __cplusplus
}
#endif
#endif
