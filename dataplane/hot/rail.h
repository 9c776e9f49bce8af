/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The rail as its own lcore and its transport see it: what runs per burst.
 *
 * Seen by dataplane/hot, dataplane/store/serve_hot.c and the transports; never by control. Everything here belongs to
 * the rail lcore unless a group says otherwise. Fields are grouped by writer, a cache line or more each.
 */
#ifndef RY_HOT_RAIL_H
#define RY_HOT_RAIL_H

#include <stdalign.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hash/hash.h"
#include "hot/qp.h"
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

struct rail {
	/* ---- line 0: written at open, read-only while running ---- */
	transport_post_fn post;
	transport_poll_fn poll;
	void *tr;                /* the transport's own state */
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
	uint32_t qp_epoch; /* grows when qps changes, so that a transport notices */
	uint16_t n_qps;
	uint16_t serve_next; /* round robin position in qps */
	uint32_t n_active;
	uint32_t n_cancelling;
	uint32_t n_granted;       /* segments whose READ waits for send-queue room */
	uint32_t n_grants;        /* requests of peers that hold a granted window */
	uint32_t n_serve;         /* requests accepted and unfinished, and */
	uint64_t serve_bytes;     /* their bytes */
	struct seg_fifo closing;  /* DONE received, WR_INV to be posted */
	struct seg_fifo probes;   /* to be posted */
	struct seg_fifo landed;   /* to be hashed */
	struct seg_fifo finished; /* to be handed back */
	uint32_t free_top;
	uint32_t n_held;
	uint16_t free_slots[RAIL_ACTIVE_MAX];
	struct segment *active[RAIL_ACTIVE_MAX];
	const uint32_t
		*next_keys; /* device windows: the key that the next bind of each has; the transport's. NULL = salt */
	const uint32_t *region_keys; /* no windows (quarantine): the key of each region, and bytes are named by address;
					the transport's. NULL otherwise */
	uint32_t probe_key;          /* the same: of probe_bytes */
	uint32_t window_salt;
	struct window windows[WINDOWS_MAX];
	uint64_t next_request;
	struct qp *qps[RAIL_QPS_MAX];
	struct serve_req *serve_free;
	struct serve_req *serve_closing; /* granted windows that came back */
	struct serve_req serve_reqs[RAIL_SERVE_MAX];

	const struct hash_code *hash; /* written at open */
	uint8_t *probe_bytes;         /* PROBE_BYTES of pattern, read only */
	uint8_t *probe_sink;          /* PROBE_BYTES that PINGs of peers are read into; nobody looks at them */

	/* ---- statistics: written by the lcore, read by anyone ---- */
	alignas(64) struct rail_counters counters;

	/* ---- written by control, read by the lcore ---- */
	alignas(64) uint32_t cancel_epoch; /* grows with every rail_cancel_scan */
	uint32_t want_stop;
	const struct rail_snapshot *want_snap; /* release/acquire */

	/* ---- written by the lcore, read by control ---- */
	alignas(64) uint32_t seen_generation;
	bool is_detached; /* by conn, too: the device is not touched; not any more, or not yet again */

	/* ---- written by conn (main before it starts), read by control ---- */
	alignas(64) uint64_t link_bytes_per_s; /* 0 = unknown */

	/* ---- set-up and wake-up ---- */
	alignas(64) struct waker waker;
	struct waker *control_waker;
	struct waker *conn_waker;
	int epoll_fd;
	int armed_fd;                  /* the transport's fd that is in epoll_fd, -1 = none */
	int (*arm)(struct rail *rail); /* as post and poll: ops.arm, while there is a device */
	bool is_launched;
	char why[512];       /* why open or mem_reg failed, or why there are no windows; main and work thread */
	char why_no_qp[192]; /* why pair_connect failed; conn */
	struct transport_attr attr;
	struct transport_ops ops;
	struct rail_conf conf;
};

/* ---- rail_loop.c ---- */
/* The QP is unusable: ends what is on it, sets QP_FAILED, kicks conn. Once per QP. */
void rail_qp_down(struct rail *r, struct qp *qp, uint8_t wc_status, bool is_fenced);
/* Adopts a new snapshot if there is one; the heartbeat. Every 256 turns and after every sleep. */
void rail_housekeeping(struct rail *r);
/* rail_lcore.c: rail_detach was asked for. Its poll and post do nothing from here on. */
void rail_let_go(struct rail *r);
/* The same: rail_attach was. They are the transport's again. */
void rail_take_up(struct rail *r);
/* The segment of a request id, or NULL when it is gone (a late message). */
static inline struct segment *rail_segment(struct rail *r, uint64_t request_id)
{
	struct segment *s = r->active[request_id & (RAIL_ACTIVE_MAX - 1)];

	return s && s->request_id == request_id ? s : NULL;
}

/*
 * For transports that place bytes by CPU (tcp, mock): where [offset, offset + len) of window `key` lies, NULL when the
 * window is closed or the range is outside it. `qp` must be the one the window is bound to.
 */
static inline uint8_t *window_resolve(
	struct rail *r, const struct qp *qp, uint32_t key, uint64_t offset, uint64_t len_bytes)
{
	struct window *w = &r->windows[key & (RAIL_ACTIVE_MAX - 1)]; /* a software window's key has its slot */

	if (w->key != key || w->state != WINDOW_BOUND || w->qp != qp)
		return NULL;
	if (len_bytes > w->len_bytes || offset > w->len_bytes - len_bytes)
		return NULL;
	return w->addr + offset;
}

/* Bytes for a window that does not take them: sunk, and counted unless they were the request's half of a PING. */
static inline void window_sunk(struct rail *r, uint32_t key, uint64_t bytes)
{
	if (key != WIRE_PROBE_KEY)
		stat_add(&r->counters.late_dropped_bytes, bytes);
}

/* ---- probe_hot.c: PING and PONG, the proof that a pair's data path works ---- */
unsigned probe_post(struct rail *r);
void probe_serve(struct rail *r, struct qp *qp, const struct wire_ping *ping);
void probe_pong(struct rail *r, struct qp *qp, const struct wire_msg *msg);
/* The window is closed: whether the right bytes came back. */
bool probe_is_good(const struct rail *r, const struct segment *s);

/* ---- verify_hot.c ---- */
/* Hashes landed segments, at most snap->verify_turn_bytes; moves them to rail->finished. Returns how many finished. */
unsigned verify_burst(struct rail *r);

/* ---- store/serve_accept_hot.c, store/serve_hot.c ---- */
/* A READ, PULL or CANCEL of a peer arrived on qp; the message passed wire_msg_check. */
void serve_recv(struct rail *r, struct qp *qp, const struct wire_msg *msg);
/* Posts writes and answers, deficit round robin over QPs, at most snap->serve_turn_bytes. Returns whether anything was
 * posted. */
bool serve_post(struct rail *r);
/* A write of this request completed. */
void serve_written(struct rail *r, struct serve_req *req);
/* The QP is down: forget its requests and unpin their sources. */
void serve_drop_qp(struct rail *r, struct qp *qp);
/* Unpins and frees an answered request without outstanding writes. */
void serve_release(struct rail *r, struct serve_req *req);
/* Initial free list. */
void serve_init(struct rail *r);
/* Whether serve_post has work. */
static inline bool serve_pending(const struct rail *r)
{
	return r->n_serve != 0;
}

/* ---- The requester's half: rail_request_hot.c (take, post), rail_answer_hot.c (DONE to hand-back), rail_abort_hot.c
 * (cancel, fence, lost QPs) ---- */
/* Takes segments from the work ring into their QP's held queue. */
unsigned request_take(struct rail *r);
/* Opens the window of the segment's slot under a fresh key. */
void request_bind_window(struct rail *r, struct segment *s, uint8_t access);
/* Posts WR_INV for segments whose DONE came. */
unsigned request_post_closing(struct rail *r);
/* The segment is at its end: to be handed back with this status. */
static inline void request_finish(struct rail *r, struct segment *s, uint32_t status)
{
	s->status = status;
	seg_push(&r->finished, s);
}
/* Posts held segments while credits, slots and send-queue room last. */
unsigned request_post(struct rail *r);
/* DONE or BUSY arrived. */
void request_answer(struct rail *r, struct qp *qp, const struct wire_msg *msg);
/* The answer is here: closes the window, if there is one. */
void request_close(struct rail *r, struct segment *s);
/* WC_INV: the window is closed, the segment has landed. */
void request_closed(struct rail *r, struct segment *s);
/* ---- grant_hot.c: PULL over device windows ---- */
/* GRANT arrived. */
void request_granted(struct rail *r, struct qp *qp, const struct wire_grant *m);
/* Posts READs, and PULLEDs behind them, that found no room before. */
unsigned grant_post(struct rail *r);
/* WC_READ: the bytes are here. */
void request_read(struct rail *r, struct segment *s);
/* Opens a window over all parts of a PULL and says so. Fills two WRs; false: a part is outside the source. */
bool grant_build(struct rail *r, struct serve_req *req, struct wire_grant *m, struct wr *wr);
/* Undoes it: the send queue had no room. */
void grant_unbuild(struct rail *r, struct serve_req *req);
/* They were posted. */
void granted(struct rail *r, struct serve_req *req);
/* PULLED or CANCEL arrived for a granted request. */
void serve_pulled(struct rail *r, struct qp *qp, const struct wire_pulled *m);
bool grant_cancel(struct rail *r, struct qp *qp, uint64_t request_id);
/* Posts WR_INV for windows that were given back. */
unsigned serve_post_closing(struct rail *r);
/* WC_INV. */
void serve_closed(struct rail *r, struct serve_req *req);
/* Stops QPs whose peer keeps a granted window past its time. */
void grant_expire(struct rail *r);
uint64_t grant_next_timer(const struct rail *r);

/* The QP is down: every segment on it ends with `status`. */
void request_drop_qp(struct rail *r, struct qp *qp, uint32_t status);
/* Looks at cancel_want of every segment here. false: a CANCEL found no room, scan again. */
bool request_cancel_scan(struct rail *r);
/* Ends CANCELLING segments whose fence_timeout is over, by ops.fence. */
void request_fence_expired(struct rail *r);
/* Gives up QPs whose windows do not close. */
void request_closing_expired(struct rail *r);
/* A QP has segments that wait, no credit, and no answer to come: gives it up after a while. */
void request_starve(struct rail *r, struct qp *qp);
/* Gives finished segments back to control. */
unsigned request_hand_back(struct rail *r);

#ifdef __cplusplus
}
#endif
#endif
