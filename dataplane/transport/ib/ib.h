/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What every transport over libibverbs has in common: device, memory, windows, QPs and their end. Cold: conn, the work
 * thread and main; what runs per burst is in transport/verbs.
 *
 * Memory regions are registered for local access and for the binding of windows, never for remote access: an MR's own
 * rkey would bypass every window. A peer reaches memory through type-2B windows only, one for each request, bound on
 * the QP that carries it (IBTA 10.6.7.2.2). The fence is ibv_dealloc_mw: when it returns no access through the window
 * can begin any more, and those that had begun have ended (IBTA 10.6.7.2.6); LOCAL_INV is none, because it is flushed
 * on a QP in error and waits behind an unacknowledged SEND.
 *
 * Quarantine: where the device has no such windows, or the configuration does without, regions are registered for
 * remote writes and peers are told their rkeys. Then nothing but the protocol, and at last ibv_destroy_qp, keeps a late
 * write out: memory of a failed read stays out of use until DONE or until that QP is gone.
 */
#ifndef RY_IB_H
#define RY_IB_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include <infiniband/verbs.h>

#include "hot/rail.h"
#include "transport/transport.h"

#ifdef __cplusplus
extern "C" {
#endif

#define IB_RECVS 80u     /* receives of a QP: the peer's requests, an end (CANCEL, PULLED) of each, answers, PINGs */
#define IB_OWN_MAX 12u   /* requests of our own on a QP; a PULL whose CANCEL crosses GRANT has two answers */
#define IB_SQ_DEPTH 256u /* a power of two */
#define IB_INLINE_BYTES 256u /* every message fits */
#define IB_MSG_MAX_BYTES 256u
#define IB_QP_CQES (IB_SQ_DEPTH + IB_RECVS) /* completions of a QP that nobody has taken yet */
#define IB_WRITE_MAX_BYTES (1u << 20)
#define IB_MESSAGE_LEAST IB_WRITE_MAX_BYTES

static_assert(2 * RAIL_CREDITS + 2 * IB_OWN_MAX + 4 <= IB_RECVS, "every message that credits allow has a receive");
static_assert(sizeof(struct wire_read) + WIRE_PARTS_MAX * sizeof(struct wire_part) <= IB_MSG_MAX_BYTES, "a READ fits");

/* A WR in the send queue, until its completion or a later one's is reaped. */
struct ib_sqe {
	void *ctx;
	uint8_t op; /* enum wr_op */
};

struct ib_qp {
	struct qp qp; /* first */
	/* ---- written by conn before adoption, read-only afterwards ---- */
	alignas(64) struct ibv_qp *ibqp;
	struct ibv_mr *mr; /* of msgs */
	uint8_t *msgs;     /* IB_RECVS receives of WIRE_MSG_BYTES, then IB_SQ_DEPTH sends of IB_MSG_MAX_BYTES where
			      inline is too small */
	uint32_t psn;
	uint32_t mtu_bytes; /* what it told its peer */
	uint32_t max_inline_bytes;
	uint16_t place; /* in ib_rail.qps */
	uint16_t epoch; /* in every wr_id: completions of an earlier QP in this place are not taken for ours */
	/* ---- written by the rail lcore ---- */
	alignas(64) uint32_t sq_tail;
	uint32_t sq_done;   /* completed up to here, and */
	uint32_t sq_reaped; /* reported up to here; reaped <= done <= tail run freely */
	uint32_t n_unsignalled;
	uint32_t n_sends;    /* out of msgs */
	bool is_broken;      /* an error completion came */
	uint8_t down_status; /* enum wc_status */
	uint8_t n_recvd;     /* receives used since they were last posted */
	uint8_t recvd[IB_RECVS];
	struct ib_sqe sq[IB_SQ_DEPTH];
	/* ---- the fence: lcore fills it and sets want (release); conn closes them and sets done (release) ---- */
	uint16_t n_bound;
	uint16_t bound[WINDOWS_MAX]; /* windows that were open on this QP */
	uint32_t fence_want;
	uint32_t fence_done;
	bool has_no_proof; /* conn's own: the device refused to end it, and may still write */
};

/* One registered region. Written by the work thread before anything can name it, and after nothing can. */
struct ib_mr {
	struct ibv_mr *mr;
	void *base;
	uint64_t bytes;
};

/* What follows names the writers while the device is there. While it is not (has_left), and the lcore has let go, the
 * work thread alone writes all of it (verbs_attach), and nobody reads. */
struct ib_rail {
	/* ---- written at open, and by the work thread when the device is back; read-only while it is there ---- */
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_device_attr attr;
	struct ib_mr probe, sink;
	uint8_t port;
	bool sees_removal; /* at open; then it must whenever the device is back */
	int removal_fd;    /* -1 = removal of the device is not seen */
	uint32_t rd_atomic;
	uint32_t max_msg_bytes;
	uint32_t max_qps;   /* that the CQ has room for */
	bool has_windows;   /* false: quarantine */
	bool retries_binds; /* Soft-RoCE: a SEND that it sends again takes the BINDs behind it with it; they fail, and
			     * the QP stands still without a word */
	/* ---- written by the lcore; by conn while a QP that had the window is being fenced ---- */
	alignas(64) uint32_t next_keys[WINDOWS_MAX];
	struct ibv_mw *mws[WINDOWS_MAX];
	/* ---- written by the work thread (see ib_mr); by conn when the device leaves ---- */
	struct ib_mr mrs[REGIONS_MAX];
	pthread_rwlock_t lock; /* read by whoever uses what verbs_detach, which writes, closes: regions (the work thread
				* alone makes and ends them, which takes seconds) and descriptions; no lcore takes it */
	bool has_left;         /* the device is closed: ctx is NULL. Set by conn (detach), cleared by the work thread
				* (attach), one after the other; each holds the lock */
	uint32_t region_keys[REGIONS_MAX]; /* quarantine: their rkeys */
	/* ---- written by conn (main at open) ---- */
	pthread_mutex_t address_lock; /* conn writes the four below under it, others read them under it */
	int gid_index;
	union ibv_gid gid;
	char gid_text[64];
	uint32_t mtu_bytes; /* of the port when a QP was made last: a netdev's may change, and rxe makes no event of it
			     */
	bool is_mute;       /* no more events can be read */
	struct ib_qp *qps[RAIL_QPS_MAX];
	uint16_t next_epoch;
	uint16_t n_qps;
	/* ---- written by the lcore ---- */
	alignas(64) struct ib_qp *adopted[RAIL_QPS_MAX];
	uint32_t seen_epoch;                 /* rail->qp_epoch that `adopted` reflects */
	uint64_t pending[RAIL_QPS_MAX / 64]; /* places with completions to report */
	uint64_t fencing[RAIL_QPS_MAX / 64]; /* places whose fence is awaited */
	uint64_t broken[RAIL_QPS_MAX / 64];  /* places to be reported as down */
	uint64_t drained[RAIL_QPS_MAX / 64]; /* places with receives to be posted again */
	bool is_armed;                       /* the CQ makes an event of its next completion */
	bool want_look;                      /* it may have made it: one look, after sleep */
	uint16_t n_stash;
	struct ibv_wc stash[RY_BURST_MAX]; /* found while going to sleep */
};

/* ib_qp.epoch, place, index of the send queue's entry, or IB_RECV_BIT and that of the receive. */
#define IB_RECV_BIT (1u << 31)
static inline uint64_t ib_wr_id(const struct ib_qp *q, uint32_t idx)
{
	return (uint64_t)q->epoch << 48 | (uint64_t)q->place << 32 | idx;
}

static inline struct ib_rail *ib_of(const struct rail *r)
{
	return (struct ib_rail *)r->tr;
}

static inline struct ib_qp *ib_qp_of(const struct qp *qp)
{
	return (struct ib_qp *)(uintptr_t)qp;
}

/* ---- ib_device.c: from a rail's configuration to an open port ---- */
/* Opens the device and chooses port, GID and MTU; -errno with `why` filled. */
int ib_device_open(struct ib_rail *ib, const struct rail_conf *conf, char *why, uint32_t why_bytes);
void ib_device_close(struct ib_rail *ib);
void ib_describe(const struct rail *r, struct rail_device_info *out);
/* After a change of the GID table (conn): 0 = ours is where it was, 1 = it moved, -ENOENT = it is gone; QPs cannot be
 * made until it is back. */
int ib_gid_refresh(struct ib_rail *ib, const struct rail_conf *conf);

/* ---- ib_limits.c: attr, port -> mtu, rd_atomic, max_qps, has_windows ---- */
/* What QPs may use of the port: its own MTU or the configured one, the smaller. */
uint32_t ib_mtu(const struct ibv_port_attr *port, const struct verbs_conf *v);
/* 0, with `why` saying why there are no windows where there are none; or -ENOTSUP, with `why` saying what is missing.
 */
int ib_limits_check(struct ib_rail *ib, const struct ibv_port_attr *port, const struct verbs_conf *v, char *why,
	uint32_t why_bytes);

/* ---- ib_mem.c ---- */
int ib_mem_reg(struct rail *r, void *base, uint64_t bytes, uint16_t region);
void ib_mem_dereg(struct rail *r, uint16_t region);
/* `remote`: IBV_ACCESS_REMOTE_*, in quarantine only; else 0. */
int ib_mr_open(struct ib_rail *ib, void *base, uint64_t bytes, int remote, struct ib_mr *out);
void ib_mr_close(struct ib_mr *mr);
/* All windows of a rail. */
int ib_windows_create(struct ib_rail *ib);
void ib_windows_destroy(struct ib_rail *ib);
/* Closes one for good and puts a fresh one in its place: the fence. false: the device did not close it; it stays where
 * it is. */
bool ib_window_fence(struct ib_rail *ib, uint16_t idx);
/* A fresh one in the place of one whose QP is gone, whatever the device says of the old one. */
void ib_window_renew(struct ib_rail *ib, uint16_t idx);

/* ---- ib_qp.c ---- */
int ib_pair_connect(struct rail *r, const struct qp_request *req, struct qp **out);
void ib_pair_close(struct rail *r, struct qp *qp);
void ib_qp_local(const struct rail *r, const struct qp *qp, struct qp_address *out);
int ib_qp_remote(struct rail *r, struct qp *qp, const struct qp_address *peer);
bool ib_qp_wants_fence(const struct rail *r, const struct qp *qp);
int ib_qp_fence(struct rail *r, struct qp *qp);

/* ---- ib_removal.c ---- */
/* A descriptor that becomes readable when the kernel wants to remove the device of this address; -1 = none. */
int ib_removal_watch(const char *address);
/* Whether it does. */
bool ib_removal_seen(int fd);

/* ---- ib_event.c ---- */
int ib_event_fds(const struct rail *r, int fds[2]);
bool ib_event_next(struct rail *r, struct rail_event *out);

#ifdef __cplusplus
}
#endif
#endif
