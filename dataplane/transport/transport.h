/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a transport is: a table of calls.
 *
 * open, close, mem_reg, mem_dereg run at set-up and on the work thread; pair_*, qp_*, event_* on conn; post, poll, arm,
 * fence and stop on the rail lcore only. post and poll are copied into the rail's first line at open. Each table is
 * complete: a transport that has nothing to register names transport_no_reg, so nobody tests for NULL.
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

/* ---- Registered memory: a number per region, the same on every rail ---- */
#define REGIONS_MAX 2048u
#define REGION_NONE 0xffffu
#define REGION_PROBE 0xfffeu /* the rail's own probe_bytes */
#define REGION_SINK 0xfffdu  /* PROBE_BYTES of the rail's own that nobody looks at */

/* ---- Work requests ---- */
enum wr_op {
	WR_SEND = 1,  /* one data message of `len_bytes` at `addr`; copied by post, no completion */
	WR_WRITE = 2, /* `len_bytes` at `addr` into the peer's window `key` at `offset`; WC_WRITE when `addr` may be
			 reused */
	WR_READ = 3,  /* device windows only: the reverse; WC_READ when the bytes are there */
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
	uint16_t region; /* that `addr`, or the window, lies in; REGION_NONE where it needs none (SEND, INV) */
	uint16_t reserved2;
};

/* ---- Completions ---- */
enum wc_op {
	WC_RECV = 1, /* a data message; `msg` is valid until the next poll of this rail */
	WC_WRITE = 2,
	WC_READ = 3,
	WC_INV = 4,
	WC_QP_DOWN = 5, /* the QP is unusable; all its outstanding WRs are dropped without further completions, and
			 * nothing can land through its windows any more where `is_fenced`; reported once, and once more
			 * when the fence that `stop` asked for is done */
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
	bool want_device_windows;        /* the rail itself checks nothing, as over verbs; for tests */
	uint64_t link_bytes_per_s;       /* what its link says it could; 0 = unknown */
};

/* rails[] keys of the same names; docs/verbs.md. */
struct verbs_conf {
	char device[64];    /* empty = by address */
	uint32_t port;      /* of the device */
	uint32_t gid_index; /* all ones = by address */
	uint32_t mtu;       /* bytes, 0 = the port's active one */
	uint32_t qps_per_pair;
	uint32_t traffic_class;
	uint32_t sl;
	uint32_t hop_limit;
	uint32_t retry_count;
	uint32_t rnr_retry_count;
	uint32_t timeout;       /* 4.096 us x 2^timeout */
	uint32_t min_rnr_timer; /* code of IBTA table 45 */
	uint32_t rd_atomic;     /* 0 = as many as the device does */
	bool want_windows;      /* false: quarantine, even where the device has windows */
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
	struct verbs_conf verbs;
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

/* What the two ends of a QP tell each other before they can talk; carried by the bootstrap socket. */
struct qp_address {
	uint32_t qp_num;
	uint32_t psn;
	uint32_t mtu_bytes;
	uint32_t rd_atomic; /* READs of the peer that this end can answer at a time */
	bool has_grants;    /* this end answers PULL with GRANT */
	uint8_t gid[16];
};

/* What a device has to say, in conn's words. */
enum rail_event_kind {
	RAIL_EVENT_NONE = 0,
	RAIL_EVENT_PORT_DOWN = 1,
	RAIL_EVENT_PORT_UP = 2,      /* connect anew */
	RAIL_EVENT_GID_CHANGE = 3,   /* the rail's address may have moved: connect anew */
	RAIL_EVENT_QP_FATAL = 4,     /* `qp` is of no use */
	RAIL_EVENT_CQ_ERROR = 5,     /* all QPs of the rail are of no use, for good */
	RAIL_EVENT_DEVICE_FATAL = 6, /* the same */
	RAIL_EVENT_REMOVED = 7,      /* the device leaves: let go of it */
};

struct rail_event {
	uint8_t kind; /* enum rail_event_kind */
	struct qp *qp;
	char text[96];
};

/* What operators see of a rail's device; empty, 0 or -1 = unknown, or of no such thing. */
struct rail_device_info {
	char device[64]; /* RDMA device */
	char netdev[16];
	char gid[64];
	int gid_index; /* -1 = none */
	uint32_t port;
	uint32_t mtu_bytes;
	uint32_t rd_atomic;
	uint32_t qps_per_pair;
	char pci_address[32];
	char card[32]; /* rails with the same one share its PCIe slot */
	char driver[32];
	char firmware[32];
	char pcie_speed[32]; /* "16.0 GT/s PCIe" */
	uint32_t pcie_width; /* lanes */
	int numa_node;
	char link_text[32]; /* "100 Gb/sec (4X EDR)" */
	uint64_t link_bytes_per_s;
};

/* Attributes a transport reports at open. */
struct transport_attr {
	uint32_t write_max_bytes; /* of one WR_WRITE */
	uint32_t read_max_bytes;  /* of one WR_READ; 0 = no limit */
	uint32_t sq_depth;        /* WRs a QP can hold */
	bool has_windows;         /* false: `quarantine` until DONE or close */
	bool has_device_windows;  /* the NIC checks them: keys are rail->next_keys, lost QPs are fenced by conn */
	bool has_addresses;       /* qp_local and qp_remote join two QPs; no data sockets */
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
	/* `region` is a number below REGIONS_MAX that no registered memory of this rail has. */
	int (*mem_reg)(struct rail *rail, void *base, uint64_t bytes, uint16_t region);
	void (*mem_dereg)(struct rail *rail, uint16_t region);
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
	/* Closes a window without the peer's help. 0: nothing can land any more and the QP is unharmed; 1: that cannot
	 * be told yet, and the QP must be stopped. */
	int (*fence)(struct rail *rail, struct window *window);
	/* The QP is given up. true: nothing can land through any window of it any more, and its sources are not read
	 * any more. false: conn is asked to see to it (qp_fence); WC_QP_DOWN with is_fenced follows. */
	bool (*stop)(struct rail *rail, struct qp *qp);
	/* conn: whether stop asked for this QP's fence, and the fence itself: closes its windows, then ends the QP. 0,
	 * or -errno: the device did neither, so there is no proof. It is not asked for again, no WC_QP_DOWN follows,
	 * and what was open on the QP is never given back. */
	bool (*qp_wants_fence)(const struct rail *rail, const struct qp *qp);
	int (*qp_fence)(struct rail *rail, struct qp *qp);
	/* conn: what this end of a new QP says of itself, and what the other end said: makes the QP able to receive and
	 * to send. 0 or -errno. */
	void (*qp_local)(const struct rail *rail, const struct qp *qp, struct qp_address *out);
	int (*qp_remote)(struct rail *rail, struct qp *qp, const struct qp_address *peer);
	/* conn: descriptors (at most 2) that become readable when the device has something to say, and the next thing;
	 * false when there is nothing. */
	int (*event_fds)(const struct rail *rail, int fds[2]);
	bool (*event_next)(struct rail *rail, struct rail_event *out);
	/* Any thread but an lcore's: reads files. `out` is cleared by the caller (rail_describe). */
	void (*describe)(const struct rail *rail, struct rail_device_info *out);
	/* conn (the work thread, where attach was in vain): the device leaves. Its QPs are closed and the lcore has let
	 * go of it (rail_detach): closes all that the rail has of it, or the removal would wait for us. mem_reg and
	 * pair_connect answer -ENODEV from here on. */
	void (*detach)(struct rail *rail);
	/* The work thread, after detach and while the lcore has let go: looks for the device as open does and makes
	 * everything anew, but for regions, which the caller registers; mem_reg works from here on. 0 with rail->why
	 * naming it; -ENODEV: it is not there; another -errno: it is of no use, rail->why says why, and it is closed
	 * again. What rail->attr said at open stays true, except for read_max_bytes. */
	int (*attach)(struct rail *rail);
};

/* Finds a transport by name; NULL when it is not built or not known. */
const struct transport_ops *transport_find(const char *name);
/* Names of the transports in this build, NULL-terminated. */
const char *const *transport_names(void);

/* ---- Stubs for tables (transport.c) ---- */
int transport_no_reg(
	struct rail *rail, void *base, uint64_t bytes, uint16_t region); /* always 0: nothing to register */
void transport_no_dereg(struct rail *rail, uint16_t region);
bool transport_stop_at_once(struct rail *rail, struct qp *qp); /* true: the lcore itself places all bytes */
bool transport_wants_no_fence(const struct rail *rail, const struct qp *qp);
int transport_no_fence(struct rail *rail, struct qp *qp);
void transport_no_address(const struct rail *rail, const struct qp *qp, struct qp_address *out);
int transport_no_remote(struct rail *rail, struct qp *qp, const struct qp_address *peer);
int transport_no_event_fds(const struct rail *rail, int fds[2]); /* 0 of them */
bool transport_no_events(struct rail *rail, struct rail_event *out);
void transport_no_detach(struct rail *rail);
int transport_no_attach(struct rail *rail); /* -ENODEV */
/* For the lcore of a rail that has let go of its device. */
uint16_t transport_post_nothing(struct rail *rail, const struct wr *wr, uint16_t n); /* takes and drops them */
uint16_t transport_poll_nothing(struct rail *rail, struct wc *wc, uint16_t max);
int transport_arm_nothing(struct rail *rail);

#ifdef __cplusplus
}
#endif
#endif
