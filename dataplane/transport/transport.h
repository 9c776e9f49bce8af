/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a transport is: ten calls.
 *
 * open, close, mem_reg, mem_dereg, pair_connect, pair_close run at set-up or on the conn and work threads; post, poll
 * and arm run on the rail lcore only; fence runs on the rail lcore where it is immediate, on conn where it is not. post
 * and poll are copied into the rail's first line at open. Each table is complete: a transport that
 * has nothing to register names transport_no_reg, so nobody tests for NULL.
 */
#ifndef RY_TRANSPORT_H
#define RY_TRANSPORT_H

#include <stdbool.h>
#include <stdint.h>

#include <railyard/types.h>

#ifdef __cplusplus
extern "C" {
#endif

struct rail;       /* dataplane/hot/rail.h */
struct qp;         /* dataplane/hot/rail.h */
struct window;     /* dataplane/hot/rail.h */
struct fault_plan; /* dataplane/transport/mock/fault.h */

#define RY_BURST_MAX 32u

/* ---- Work requests ---- */
enum wr_op {
	WR_SEND = 1,  /* one data message of `len_bytes` at `addr`; copied by post, no completion */
	WR_WRITE = 2, /* `len_bytes` at `addr` into the peer's window `key` at `offset`; WC_WRITE when `addr` may be
			 reused */
	WR_READ = 3,  /* verbs only: the reverse; WC_READ */
	WR_BIND = 4,  /* open `window` for the peer on this QP; no completion; ordered before later WRs of the QP */
	WR_INV = 5,   /* close `window`; WC_INV when no byte can land through it any more */
};

struct wr {
	uint8_t op; /* enum wr_op */
	uint8_t reserved[3];
	uint32_t len_bytes;
	struct qp *qp;
	void *addr;
	void *ctx; /* comes back in the completion */
	struct window *window;
	uint64_t offset;
	uint32_t key;
	uint32_t lkey;
};

/* ---- Completions ---- */
enum wc_op {
	WC_RECV = 1, /* a data message; `msg` is valid until the next poll of this rail */
	WC_WRITE = 2,
	WC_READ = 3,
	WC_INV = 4,
	WC_QP_DOWN = 5, /* the QP is unusable; all its outstanding WRs are dropped without further completions, and
			 * nothing can land through its windows any more where `is_fenced`; reported once */
};

enum wc_status {
	WC_OK = 0,
	WC_ERR_PEER_CLOSED = 1, /* orderly or not, the peer went away */
	WC_ERR_RETRY = 2,       /* retries exceeded: path evidence */
	WC_ERR_RNR = 3,         /* receiver not ready: path evidence */
	WC_ERR_ACCESS = 4,      /* remote access error: not the rail's fault */
	WC_ERR_LOCAL = 5,       /* local fault: QP, device, port */
	WC_ERR_FLUSH = 6,       /* consequence of an earlier error */
	WC_ERR_PROTOCOL = 7,    /* bytes that are not our protocol */
};

struct wc {
	uint8_t op;     /* enum wc_op */
	uint8_t status; /* enum wc_status */
	uint8_t is_fenced;
	uint8_t reserved;
	uint32_t len_bytes;
	struct qp *qp;
	void *ctx;
	void *msg;
};

/* ---- Configuration of one rail; immutable while the rail lives ---- */
struct mock_conf {
	uint64_t bandwidth_bytes_per_s;  /* 0 = not modelled */
	uint64_t latency_ns;             /* one way */
	bool want_copy;                  /* false: bytes are counted, not moved (instruction counts) */
	const struct fault_plan *faults; /* copied at open; NULL = none */
};

struct rail_conf {
	char name[RY_NAME_MAX_BYTES];
	char transport[16];
	char address[64]; /* to bind to */
	char netdev[16];  /* empty = by address */
	uint16_t port;    /* bootstrap listener, 0 = none */
	uint16_t sockets_per_pair;
	uint32_t lcore;
	uint64_t rate_bytes_per_s;   /* sender's cap, 0 = none */
	uint64_t inflight_max_bytes; /* rail budget */
	int numa_node;               /* -1 = unknown */
	struct mock_conf mock;
};

/* How conn asks for one QP of a pair. */
struct qp_request {
	uint16_t pair_idx;
	uint16_t peer_idx;
	uint16_t qp_idx;
	bool is_dialler;
	uint16_t peer_credits; /* READs the peer accepts on this QP */
	int fd;                /* tcp: connected socket after HELLO, taken over on success */
	struct qp *loop_peer;  /* mock: the other end, NULL for the first of the two */
};

/* Attributes a transport reports at open. */
struct transport_attr {
	uint32_t write_max_bytes; /* of one WR_WRITE */
	uint32_t sq_depth;        /* WRs a QP can hold */
	bool has_windows;         /* false: `quarantine` until DONE or close */
	bool reaches_device;      /* the NIC can read and write memory of other devices (peer-to-peer) */
	bool is_loopback;         /* the rail talks to its own node only (mock) */
	uint32_t peer_restarts;   /* loopback: how often a fault made the peer another incarnation; written by the lcore
				     before the QPs fail */
};

typedef uint16_t (*transport_post_fn)(struct rail *rail, const struct wr *wr, uint16_t n);
typedef uint16_t (*transport_poll_fn)(struct rail *rail, struct wc *wc, uint16_t max);

struct transport_ops {
	const char *name;
	/* Creates the rail's private state in rail->tr and fills rail->attr. 0 or -errno. */
	int (*open)(struct rail *rail, const struct rail_conf *conf);
	void (*close)(struct rail *rail);
	int (*mem_reg)(struct rail *rail, void *base, uint64_t bytes, uint32_t *lkey);
	void (*mem_dereg)(struct rail *rail, uint32_t lkey);
	/* conn: makes one QP that no lcore knows yet. */
	int (*pair_connect)(struct rail *rail, const struct qp_request *req, struct qp **out);
	/* conn: frees a QP that no lcore knows any more (never adopted, or RELEASED). */
	void (*pair_close)(struct rail *rail, struct qp *qp);
	/* Takes WRs in order; short = that QP's send queue is full. A WR for a QP that is down is taken and dropped. */
	transport_post_fn post;
	/* Completions and messages, at most `max`; moves at most a bounded number of bytes. Reads rail->now_ns.
	 * Messages it hands over passed wire_msg_check. With max = 0 it only forgets QPs that left rail->qps (qp_epoch
	 * tells); it must not touch such a QP again. */
	transport_poll_fn poll;
	/* Prepares to sleep: returns an fd that becomes readable when poll would find something, -1 for none; -EAGAIN
	 * when there is something already. */
	int (*arm)(struct rail *rail);
	/* Closes a window without the peer's help. 0: nothing can land any more and the QP is unharmed; 1: nothing can
	 * land any more, the QP must be rebuilt. */
	int (*fence)(struct rail *rail, struct window *window);
};

/* Finds a transport by name; NULL when it is not built or not known. */
const struct transport_ops *transport_find(const char *name);
/* Names of the transports in this build, NULL-terminated. */
const char *const *transport_names(void);

/* ---- Stubs for tables (transport.c) ---- */
int transport_no_reg(struct rail *rail, void *base, uint64_t bytes, uint32_t *lkey); /* always 0: nothing to register */
void transport_no_dereg(struct rail *rail, uint32_t lkey);

#ifdef __cplusplus
}
#endif
#endif
