/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The TCP transport's own structs, seen by this folder only.
 *
 * A QP is one connected socket. The sender puts messages and writes into frames (wire.h) in posting order; the
 * receiver, the rail's lcore, places each write's bytes by itself through window_resolve(), so a closed window is
 * closed at once and for good. Post and poll call the socket's system calls by design; everything else that may wait,
 * allocate or fail at length is in tcp.c.
 *
 * Sockets are watched edge-triggered: one registration for life, no further epoll_ctl. A QP is in `rx_ready` until a
 * read found the socket empty, and in `tx_ready` while it has frames and the kernel last took all it was given; the
 * next edge brings it back.
 */
#ifndef RY_TCP_PRIV_H
#define RY_TCP_PRIV_H

#include <stdalign.h>
#include <stdbool.h>
#include <stdint.h>

#include "hot/rail.h"
#include "transport/tcp/pace.h"
#include "transport/transport.h"

#include <sys/socket.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TCP_SQ_DEPTH 128u                  /* frames a QP can hold, a power of two */
#define TCP_IOV_MAX 64u                    /* of one sendmsg */
#define TCP_STAGE_BYTES 2048u              /* headers, messages and the first bytes of a write */
#define TCP_SINK_BYTES (64u << 10)         /* where bytes for closed windows go */
#define TCP_RX_QP_BYTES (1u << 20)         /* received per QP and poll, and */
#define TCP_RX_TURN_BYTES (4u << 20)       /* over all QPs */
#define TCP_TX_QP_BYTES (1u << 20)         /* sent per QP and turn */
#define TCP_INV_MAX (2u * RAIL_ACTIVE_MAX) /* WR_INVs between two polls, a power of two */
#define TCP_LOOK_TURNS 8u                  /* epoll is asked at least every so many polls */
#define TCP_SOCKET_BYTES (1u << 20)        /* SO_SNDBUF and SO_RCVBUF */
#define TCP_DEAD_MS 10000u                 /* unacknowledged for this long: the peer is dead (TCP_USER_TIMEOUT) */
#define TCP_PAGE_BYTES 4096u               /* smallest page */
#define TCP_TIMER_TAG UINT64_MAX           /* epoll data of the bucket's timer */
#define TCP_NONE RAIL_QPS_MAX              /* "no member" of a set */

static_assert(TCP_STAGE_BYTES >= sizeof(struct wire_frame) + WIRE_MSG_BYTES, "a message fits the stage");

/* ---- Sets of QPs by their place in the table ---- */
struct tcp_set {
	uint64_t word[RAIL_QPS_MAX / 64];
};

static inline void set_add(struct tcp_set *s, unsigned i)
{
	s->word[i / 64] |= 1ull << (i % 64);
}

static inline void set_del(struct tcp_set *s, unsigned i)
{
	s->word[i / 64] &= ~(1ull << (i % 64));
}

static inline bool set_has(const struct tcp_set *s, unsigned i)
{
	return s->word[i / 64] >> (i % 64) & 1;
}

static inline unsigned set_count(const struct tcp_set *s)
{
	unsigned n = 0;

	for (unsigned i = 0; i < RAIL_QPS_MAX / 64; i++)
		n += (unsigned)__builtin_popcountll(s->word[i]);
	return n;
}

/* The first member at or after `from`, cyclically; TCP_NONE when the set is empty. */
static inline unsigned set_next(const struct tcp_set *s, unsigned from)
{
	unsigned w = from / 64 % (RAIL_QPS_MAX / 64);
	uint64_t bits = s->word[w] & ~0ull << (from % 64);

	for (unsigned i = 0; i <= RAIL_QPS_MAX / 64; i++) {
		if (bits)
			return w * 64 + (unsigned)__builtin_ctzll(bits);
		w = (w + 1) % (RAIL_QPS_MAX / 64);
		bits = s->word[w];
	}
	return TCP_NONE;
}

/* ---- One frame to send: header and message lie together, a write's payload stays where it is ---- */
struct tcp_tx {
	const uint8_t *addr; /* body */
	void *ctx;
	uint32_t head_bytes; /* frame, and message */
	uint32_t body_bytes;
	bool want_wc; /* last frame of a write */
	alignas(8) struct wire_frame frame;
	uint8_t msg[WIRE_MSG_BYTES];
};
static_assert(offsetof(struct tcp_tx, msg) == offsetof(struct tcp_tx, frame) + sizeof(struct wire_frame), "one iovec");

struct tcp_qp {
	struct qp qp; /* first */
	/* ---- written by pair_connect, read-only afterwards ---- */
	alignas(64) int fd;
	/* ---- written by the rail lcore ---- */
	uint16_t place;      /* in tcp.table, TCP_NONE = not adopted yet */
	bool is_dead;        /* not adopted yet, or down was decided: nothing is sent or received */
	bool has_hangup;     /* the peer closed: read on until it shows */
	uint8_t down_status; /* enum wc_status */
	/* receive: bytes of `stage` from head to tail are not looked at yet */
	uint32_t stage_head;
	uint32_t stage_tail;
	uint32_t rx_left;   /* payload of the current DATA frame that is still to come */
	uint64_t rx_offset; /* where it goes in the window */
	uint32_t rx_key;
	/* send: reaped <= sent <= tail run freely; the frame at `sent` is in the kernel up to sent_bytes */
	uint32_t tx_reaped;
	uint32_t tx_sent;
	uint32_t tx_tail;
	uint32_t tx_sent_bytes;
	uint64_t tx_pending_bytes;
	alignas(64) uint8_t stage[TCP_STAGE_BYTES];
	struct tcp_tx tx[TCP_SQ_DEPTH];
};

struct tcp_inv {
	struct tcp_qp *q;
	void *ctx;
};

struct tcp {
	int epoll_fd;
	int timer_fd;        /* -1 without a rate cap */
	uint32_t seen_epoch; /* rail->qp_epoch that `table` reflects */
	uint32_t turn;
	uint16_t n_msgs;  /* in `msgs`, of this poll */
	uint16_t rx_next; /* round robin */
	uint16_t tx_next;
	struct tcp_set rx_ready;
	struct tcp_set tx_ready;
	struct tcp_set tx_done; /* may have completions to report */
	struct tcp_set down;    /* WC_QP_DOWN to report */
	struct pace pace;
	uint64_t tx_pending_bytes; /* of all QPs */
	uint32_t inv_head;
	uint32_t inv_tail;
	struct tcp_inv inv[TCP_INV_MAX];
	struct tcp_qp *table[RAIL_QPS_MAX]; /* a QP keeps its place while it is adopted */
	alignas(64) uint8_t msgs[RY_BURST_MAX][WIRE_MSG_BYTES];
	uint8_t sink[TCP_SINK_BYTES];
};

static inline bool tcp_is_stale(const struct rail *r, const struct tcp *t)
{
	return t->seen_epoch != r->qp_epoch;
}

/* ---- tcp.c, cold, on the rail lcore ---- */
/* Follows rail->qps: watches new QPs, forgets those that left. */
void tcp_sync(struct rail *r);
/* Decides that a QP is down: closes it both ways, drops what is queued, and lets poll report it. */
void tcp_qp_down(struct rail *r, struct tcp_qp *q, uint8_t status);
/* Reads a byte of every page that a send is made of. The kernel answers EFAULT where a client took pages away from
 * under us; our own read runs into the SIGBUS guard (mem.h), which puts zeroes there, and the send is tried again at
 * the next turn. */
void tcp_touch(const struct msghdr *mh);
/* enum wc_status of a socket's errno. */
uint8_t tcp_status(int err);

/* ---- tcp_post_hot.c ---- */
uint16_t tcp_post(struct rail *r, const struct wr *wr, uint16_t n);

/* ---- tcp_tx_hot.c ---- */
/* Sends what may be sent now, round robin over QPs. */
void tcp_tx_turn(struct rail *r);
/* Reports completed writes and closed windows. */
uint16_t tcp_tx_reap(struct rail *r, struct wc *wc, uint16_t max);

/* ---- tcp_rx_hot.c ---- */
uint16_t tcp_poll(struct rail *r, struct wc *wc, uint16_t max);

#ifdef __cplusplus
}
#endif
#endif
