/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The control lcore's records; seen by control/read and control/daemon/control_loop.c only.
 *
 * Everything here has one writer and one reader: the control lcore. All records come from tables made at create;
 * nothing allocates afterwards. Life of a client operation: struct op from submit to completion. Life of moving bytes:
 * struct xfer, which may outlive its op: a failed read is answered at once, its transfer goes on as a zombie until
 * every segment came back (DONE, or a fence), and only then is memory released.
 */
#ifndef RY_CONTROL_PRIV_H
#define RY_CONTROL_PRIV_H

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/queue.h>

#include <rte_hash.h>

#include <railyard/ring.h>

#include "daemon/control.h"
#include "health/health.h"
#include "health/journal.h"
#include "mem/mem.h"
#include "read/plan.h"
#include "read/recorder.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SEGMENTS_MAX 8192u
#define JOBS_MAX 4096u
#define META_TX_MAX 64u
#define CONTROL_BURST 32u
#define XFERS_EXTRA 256u /* beyond max_reads: pulls, and zombies of failed reads */
#define OPS_EXTRA 1024u
#define PUTINS_MAX 256u
#define PUT_WAITS_MAX 1024u /* >= conn's receive buffers */
#define ACCEPTED_PEERS_MAX 256u
#define PEER_PAIRS_MAX 64u
#define LEASES_PER_CLIENT 4096u
#define META_SLAB_BYTES (32ull << 20) /* checksums of descriptors, stripe states of transfers */
#define META_GRANULE 64u
#define DEADLINE_SCAN_NS 5000000ull
#define HOUSEKEEPING_NS 1000000ull

struct op;
struct xfer;
struct desc;
struct client_state;

/* ---- Rails as control sees them ---- */
struct rail_ctx {
	struct rail *rail;
	int numa_node;               /* -1 = unknown */
	uint64_t inflight_bytes;     /* handed out and not back */
	uint64_t inflight_max_bytes; /* rail budget */
	uint64_t depth_bytes;        /* current limit, see estimate.c */
	uint64_t goodput;            /* bytes per second, EWMA */
	uint64_t min_latency_ns;     /* of DONE, windowed minimum */
	uint64_t min_latency_at_ns;
	uint64_t turnround_ns; /* of control itself, see estimate.c */
	uint64_t window_start_ns;
	uint64_t window_bytes;
	uint64_t window_wait_ns;     /* sum of DONE latencies, and */
	uint64_t window_ahead_bytes; /* of what was in flight at each hand-out */
	uint64_t window_segments;
	uint64_t usual_goodput; /* long-term, see slow.c */
	uint64_t slow_since_ns;
	uint64_t trial_at_ns; /* weak: the next segment it may have although it would be late */
	uint32_t n_usual;     /* windows in usual_goodput */
	uint32_t n_in_row;    /* windows that speak against the present verdict */
	bool is_slow;
	bool is_weak;
	uint64_t landed_ns; /* of the last segment, or when the rail was given work again */
	uint64_t corrupt_at_ns;  /* when it last brought a stripe wrong that another rail brought right */
	uint64_t corrupt_blamed; /* stripes, see failover.c */
	bool is_draining;        /* by an operator: no new segments */
	bool want_kick;
	bool want_cancel_scan;
};

/* ---- Probes under way ---- */
#define PROBES_MAX 32u
#define PROBE_LEASE_NS 1000000000ull /* then it is cancelled; the breaker's own lease is rail_health's */

struct probe {
	bool is_used;
	struct rail_token token;
	uint64_t until_ns;
	struct segment seg;
};

/* ---- What control knows of one connection; lives as long as the pair, by its index ---- */
#define PATH_HIST 48u /* buckets of a latency histogram: two per power of two from 1 us on */

struct path {
	uint32_t epoch; /* of the pair; 0 = none */
	uint16_t peer_idx;
	uint16_t rail_idx;
	bool is_suspect; /* a segment deadline passed and nothing was heard since: out of plans */
	bool is_killed;  /* MSG_PAIR_KILL is out */
	bool is_probed;  /* a PING is out */
	uint32_t n_samples;
	uint32_t hist[PATH_HIST]; /* DONE latency */
	uint64_t last_done_ns;
	uint64_t silent_since_ns; /* post of the first unanswered CANCEL's segment since then; 0 = none */
	uint64_t p99_ns;          /* of hist, every 32 samples */
	struct pair_kill kill;
};

/* ---- Peers: a configured store, or a node that dialled us ---- */
struct peer_pair {
	const struct pair *pair;
	uint32_t epoch;
};

struct peer {
	bool is_used;
	bool is_dialled;
	uint16_t store_idx;
	uint64_t node_id;
	uint64_t incarnation;
	uint64_t name_hash; /* rendezvous */
	uint32_t n_pairs;
	uint32_t eligible; /* hand_out.c: this turn's answer of eligible_rails */
	uint32_t eligible_turn;
	uint32_t rail_mask; /* local rails with at least one pair up */
	struct peer_pair pairs[PEER_PAIRS_MAX];
	struct peer_pair by_rail[RY_RAILS_MAX]; /* the pair each local rail uses */
	bool is_dialling;                       /* MSG_DIAL is out */
	uint32_t last_status;
	uint16_t dial_store;
	struct dial_event dial;
	char cause[RY_CAUSE_MAX_BYTES]; /* why it is not connected */
};

/* ---- Descriptors ---- */
enum desc_state {
	DESC_FREE = 0,
	DESC_FETCHING = 1,
	DESC_READY = 2,
};

struct desc {
	TAILQ_ENTRY(desc) link;   /* LRU, or the free list */
	TAILQ_HEAD(, op) waiters; /* FETCHING */
	uint8_t state;
	struct op *carrier; /* FETCHING: the op whose request is out */
	bool is_indexed;    /* false: dropped, lives on for its users */
	bool has_checksums;
	uint16_t peer_idx;
	uint16_t key_bytes;
	uint32_t n_users; /* ops and transfers that hold it */
	uint32_t stripe_bytes;
	uint32_t stripe_count;
	uint32_t n_fetched; /* checksums */
	uint8_t hash[16];
	uint64_t handle;
	uint64_t generation;
	uint64_t etag;
	uint64_t size_bytes;
	uint64_t expires_ns;
	uint64_t fetched_ns;
	uint64_t key_off; /* in the metadata slab */
	uint64_t sums_off;
	uint8_t *key;
	uint64_t *checksums;
};

/* ---- Transfers ---- */
struct stripe_state {
	uint32_t landed_bytes;
	uint16_t last_rail;
	uint8_t is_verified : 1;
	uint8_t want_reread : 1;
	uint8_t n_wrong;   /* times all of it was here and its hash was wrong */
	uint32_t carriers; /* rails that brought bytes of it */
	uint32_t shared;   /* those of the time before, when it was wrong */
	uint32_t refused;  /* rails that alone brought it wrong */
	struct stripe_job *job;
};

struct xfer_rail {
	uint64_t bytes;
	uint64_t busy_ns;
	uint64_t busy_since_ns;
	uint32_t n_out; /* segments out */
	uint32_t n_segments;
};

enum xfer_kind {
	XFER_READ = 1, /* into a lease of the client's read arena */
	XFER_PULL = 2, /* into a new object of our store */
};

struct xfer {
	TAILQ_ENTRY(xfer) link; /* free list, or all in use */
	TAILQ_ENTRY(xfer) work; /* active list: has something to hand out */
	uint8_t kind;
	bool is_active; /* in the active list */
	bool is_failed;
	bool is_charged;
	bool want_hash;
	bool is_failover;
	bool is_one_rail; /* RY_F_ONE_RAIL: never widened */
	uint16_t peer_idx;
	uint32_t status;
	uint16_t bad_rail;
	void *owner;             /* struct op (READ), struct put_part (PULL); NULL for a zombie */
	struct client_state *cs; /* READ */
	struct put_part *part;   /* PULL */
	uint64_t handle;
	uint64_t generation;
	struct desc *desc;     /* READ: holds it */
	struct object *object; /* PULL: its tables grow, so they are looked up each time */
	uint64_t deadline_ns;
	uint64_t total_bytes;
	uint64_t landed_bytes;
	uint32_t n_stripes;
	uint32_t n_verified;
	uint32_t n_out;          /* segments out, SEG_VERIFY included */
	struct segment *segs;    /* those out */
	struct segment *orphans; /* to be handed out again (BUSY, failover) */
	uint64_t orphans_at_ns;  /* not before */
	struct stripe_state *stripes;
	uint32_t n_rereads;     /* stripes that were wrong and wait to be asked for again, see failover.c */
	uint32_t reread_stripe; /* the one that is being asked for, PLAN_STRIPE_NONE = none */
	uint32_t reread_off;
	uint16_t reread_rail;
	uint8_t *rr_rail; /* round robin: the deal */
	uint64_t rr_off;
	uint64_t stripes_off; /* in the metadata slab */
	/* destination */
	uint32_t n_extents;
	struct ry_extent extents[RY_EXTENTS_MAX]; /* READ: whole stripes in the read arena */
	struct plan plan;
	/* statistics */
	uint64_t plan_ns;
	uint64_t first_out_ns;
	uint64_t last_landed_ns;
	uint64_t last_verified_ns;
	uint64_t storage_ns;
	uint64_t store_queue_ns;
	uint64_t hashed_bytes;
	uint32_t n_segments;
	struct xfer_rail rails[RY_RAILS_MAX];
};

/* ---- Client operations ---- */
enum op_state {
	OP_FREE = 0,
	OP_SEND = 1,  /* a metadata request waits for a buffer or a pair */
	OP_WAIT = 2,  /* for a metadata reply */
	OP_DESC = 3,  /* for a descriptor */
	OP_XFER = 4,  /* for its transfer */
	OP_ADMIT = 6, /* READ: for a budget */
	OP_QUIET = 5, /* PUT: for its source to be quiet */
};

struct op {
	TAILQ_ENTRY(op) link; /* free list, or the client's list */
	TAILQ_ENTRY(op) wait; /* descriptor's waiters, or the send queue */
	uint8_t kind;         /* enum ry_op */
	uint8_t state;
	bool is_in_wait;   /* linked by `wait` */
	bool is_sent;      /* PUT, DELETE: the request may have reached the store */
	bool was_cached;   /* READ: the descriptor came from the cache */
	bool is_charged;   /* READ: counted in the budgets of reads */
	bool is_refreshed; /* READ: one refresh was made */
	uint16_t slot;
	uint16_t key_bytes;
	uint16_t peer_idx;
	uint16_t pair_idx; /* WAIT: where the request went, and */
	uint32_t pair_epoch;
	uint32_t flags;
	uint32_t seq; /* grows at every reuse; part of the request id */
	uint32_t status;
	struct client_state *cs;
	uint64_t ticket;
	uint64_t deadline_ns;
	uint64_t submit_ns;
	uint64_t admitted_ns;
	uint64_t described_ns;
	uint64_t offset;
	uint64_t length;
	uint64_t asked_length; /* as submitted; READ: UINT64_MAX = to the end, wherever that is */
	uint64_t arg;
	struct desc *desc;
	uint64_t admit_until_ns; /* OP_ADMIT */
	uint64_t need_bytes;     /* OP_ADMIT: for these; 0 = for a place among the reads */
	bool was_queued;
	struct xfer *xfer;
	uint64_t cursor; /* LIST */
	/* PUT */
	struct source *source;
	uint64_t source_token;
	uint64_t put_id[2];
	uint64_t size_bytes;
	uint64_t ttl_ns;
	uint64_t checksum_offset;
	uint64_t result_bytes;
	uint64_t result_generation;
	uint32_t stripe_bytes;
	uint32_t n_checksums;
	uint32_t n_extents; /* of the lease in the completion */
	struct ry_extent extents[RY_EXTENTS_MAX];
	char cause[RY_CAUSE_MAX_BYTES];
	uint8_t hash[16];
	uint8_t key[RY_KEY_MAX_BYTES];
};

struct lease {
	uint32_t n_extents; /* 0 = free */
	uint32_t salt;
	struct ry_extent extents[RY_EXTENTS_MAX];
};

struct client_state {
	bool is_used;
	bool is_broken; /* its rings make no sense: nothing is taken any more */
	struct client *client;
	struct api_call *detach; /* to be answered when nothing of it is left */
	uint32_t sq_head;
	uint32_t cq_tail;
	uint32_t n_ops;
	uint32_t n_xfers;        /* zombies included */
	uint32_t n_reads;        /* charged */
	uint64_t inflight_bytes; /* charged */
	bool want_wake;
	TAILQ_HEAD(, op) ops;
	TAILQ_HEAD(, op) admit_queue; /* reads that wait for a budget, in order */
	uint32_t lease_next;
	uint32_t n_leases;
	struct lease *leases; /* LEASES_PER_CLIENT */
	uint8_t *slot_busy;   /* RY_RING_ENTRIES_MAX */
};

/* ---- Puts that peers make into our store ---- */
enum putin_state {
	PUTIN_FREE = 0,
	PUTIN_OPEN = 1, /* parts are coming */
	PUTIN_DONE = 2, /* outcome remembered for repeats and PUT_QUERY */
};

#define PUTIN_PARTS_MAX 4u

struct put_part {
	struct putin *putin;
	struct xfer *xfer;      /* NULL: free */
	struct meta_buf *reply; /* the PUT's buffer, kept for the answer */
	uint64_t bytes;
	uint32_t first_stripe;
};

struct putin {
	uint8_t state;
	bool want_commit;
	uint16_t peer_idx;
	uint32_t status;
	uint64_t put_id[2];
	uint64_t size_bytes;
	uint64_t bytes_done;
	uint64_t generation;
	uint64_t touched_ns;
	struct object *object;
	struct meta_buf *commit_reply;
	uint32_t n_parts;
	struct put_part parts[PUTIN_PARTS_MAX];
	char cause[RY_CAUSE_MAX_BYTES];
};

TAILQ_HEAD(op_list, op);
TAILQ_HEAD(xfer_list, xfer);
TAILQ_HEAD(desc_list, desc);

struct control {
	struct control_deps d;
	const struct config *config;
	struct control_counters *counters;
	uint64_t now_ns;
	uint16_t n_rails;
	bool want_stop;
	uint64_t housekeeping_at_ns;
	uint64_t next_deadline_ns; /* no deadline is earlier */
	struct api_call *shutdown;
	uint64_t shutdown_deadline_ns;
	struct health health;
	struct path paths[PAIRS_MAX];
	struct probe *probes; /* PROBES_MAX */
	uint8_t *probe_slab;  /* PROBE_BYTES each */
	uint64_t deadline_scan_ns;
	struct rail_ctx rails[RY_RAILS_MAX];
	uint64_t best_goodput; /* of all rails */
	uint32_t weak_mask;    /* see estimate.c */
	uint32_t turn;         /* of the hand-out */
	uint16_t first_rail;   /* round robin of the hand-out */
	uint16_t last_small;   /* and of reads that use one rail */
	uint16_t n_peers;
	struct peer *peers;           /* config->n_stores, then ACCEPTED_PEERS_MAX */
	struct client_state *clients; /* config->max_clients */
	struct client_state **live;   /* those in use */
	uint32_t n_live;
	struct op *ops;
	uint32_t n_ops;
	struct op_list free_ops;
	struct op_list send_queue;
	struct xfer *xfers;
	uint32_t n_xfers;
	struct xfer_list free_xfers;
	struct xfer_list used_xfers;
	struct xfer_list active;
	struct desc *descs;
	uint32_t n_descs;
	struct desc_list free_descs;
	struct desc_list lru_descs;
	struct rte_hash *desc_hash;
	struct putin *putins;
	struct meta_buf *put_waits[PUT_WAITS_MAX]; /* PUTs that wait for the store to have room */
	uint32_t n_put_waits;
	struct rte_mempool *seg_pool;
	struct rte_mempool *job_pool;
	struct segment *free_segs; /* by owner_next */
	struct stripe_job *free_jobs;
	uint32_t n_segs_free;
	uint32_t n_jobs_free;
	uint32_t n_admit_waiting;   /* OP_ADMIT, all clients */
	uint32_t next_admit;        /* whose turn it is, in live */
	bool want_admit;            /* something was released */
	struct op_list quiet_ops;   /* OP_QUIET */
	struct meta_buf *meta_bufs; /* META_TX_MAX */
	struct meta_buf *meta_free[META_TX_MAX];
	uint32_t n_meta_free;
	uint8_t *meta_slab;
	struct extent_map *meta_map;
	struct limits limits;    /* budgets in force */
	uint64_t inflight_bytes; /* charged, node */
	uint32_t inflight_reads;
	uint32_t n_quieting; /* ops in OP_QUIET */
	uint32_t n_putins;   /* PUTIN_OPEN */
	bool want_conn_kick;
	bool want_api_kick;
};

/* ---- metadata slab (control_tables.c) ---- */
int tables_create(struct control *c);
void tables_destroy(struct control *c);
void *meta_alloc(struct control *c, uint64_t bytes, uint64_t *off);
void meta_free(struct control *c, uint64_t off, uint64_t bytes);

/* ---- client_rings.c ---- */
/* Takes submit entries of all clients; returns how many. */
unsigned rings_take(struct control *c);
/* Publishes the completion of an op (op.status and so on are set) and frees the op. `xfer` = the transfer of a read,
 * or NULL. */
void rings_complete(struct control *c, struct op *op, const struct xfer *xfer, const struct ry_cqe *fill);
/* Wakes clients that got completions in this turn. */
void rings_wake(struct control *c);
/* Whether any submit ring has entries; sets or clears need_wakeup in all of them. */
bool rings_pending(struct control *c);
void rings_want_wakeup(struct control *c, bool want);
bool rings_attach(struct control *c, struct api_call *call);
void rings_detach(struct control *c, struct api_call *call);
/* Answers detaches whose client has nothing left. */
void rings_reap_detached(struct control *c);

/* ---- ops.c: one submit entry becomes an op; every op ends in op_end ---- */
void op_start(struct control *c, struct client_state *cs, const struct ry_sqe *sqe);
/* Ends an op with a status and a cause (NULL = the status's text). Its transfer, if any, must be gone or a zombie. */
void op_fail(struct control *c, struct op *op, uint32_t status, uint16_t rail, const char *cause);
/* Ends an op whose status is set; `x` = its transfer where it has one to report. */
void op_end(struct control *c, struct op *op, const struct xfer *x, const struct ry_cqe *cqe);
/* Deadline or cancel: ends whatever the op waits for. */
void op_abort(struct control *c, struct op *op, uint32_t status);
void op_unlink_wait(struct control *c, struct op *op);
uint64_t op_request_id(const struct control *c, const struct op *op);
struct op *op_by_request(struct control *c, uint64_t request_id);
/* Ops over their deadline; returns the earliest deadline left. */
uint64_t ops_expire(struct control *c);
/* Explains a failure: at most RY_CAUSE_MAX_BYTES - 1 bytes. */
void op_cause(struct op *op, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* ---- admit.c ---- */
/* A read enters: counted in the budgets of reads, or queued, or failed. true: go on now. */
bool admit_enter(struct control *c, struct op *op);
/* Charges its bytes to node and client, or queues or fails the op. true: charged. */
bool admit_bytes(struct control *c, struct op *op, uint64_t bytes);
/* The releases of the two. */
void admit_leave(struct control *c, struct op *op);
void admit_release(struct control *c, struct xfer *x);
/* Lets queued reads in while budgets have room; clients take turns. Returns how many. */
unsigned admit_pump(struct control *c);
/* Other budgets from now on. What is charged stays; what waits and can never fit any more is refused. */
void admit_set_limits(struct control *c, const struct limits *limits);

/* ---- lookup.c ---- */
uint16_t lookup_home(const struct control *c, const void *key, uint16_t key_bytes);
/* Finds or fetches the descriptor; the op goes on in read_described or fails. */
void lookup_start(struct control *c, struct op *op);
void lookup_reply(struct control *c, struct op *op, const struct wire_lookup_reply *m);
/* A fetch failed or was cut: its waiters fail (or start again when nothing was heard). */
void lookup_failed(struct control *c, struct desc *d, uint32_t status, const char *cause);
void lookup_drop(struct control *c, const uint8_t hash[16]);
void lookup_drop_peer(struct control *c, uint16_t peer_idx);
/* The op that carried a fetch ended early. */
void lookup_carrier_gone(struct control *c, struct desc *d);
void desc_hold(struct desc *d);
void desc_put(struct control *c, struct desc *d);
void key_hash(const void *key, uint16_t key_bytes, uint8_t out[16]);

/* ---- read.c: from descriptor to transfer ---- */
void read_described(struct control *c, struct op *op);
void lookup_described(struct control *c, struct op *op);

/* ---- xfer.c ---- */
struct xfer *xfer_alloc(struct control *c);
/* Stripe table, plan, checksums; false when the metadata slab is full. */
bool xfer_prepare(struct control *c, struct xfer *x, uint64_t size_bytes, uint32_t stripe_bytes, uint32_t first_stripe,
	uint32_t n_stripes, uint32_t rail_mask);
void xfer_activate(struct control *c, struct xfer *x);
void xfer_deactivate(struct control *c, struct xfer *x);
/* Ends it with an error: the owner is told at once, segments are cancelled, memory follows when the last one is back.
 */
void xfer_fail(struct control *c, struct xfer *x, uint32_t status, uint16_t rail, const char *cause);
/* Frees it and what it holds; no segment may be out. */
void xfer_free(struct control *c, struct xfer *x);
uint8_t *xfer_stripe_addr(const struct xfer *x, uint32_t stripe);
uint64_t xfer_checksum(const struct xfer *x, uint32_t stripe);
uint64_t xfer_stripe_len(const struct xfer *x, uint32_t stripe);
/* The transfer's record of a stripe. */
static inline struct stripe_state *xfer_stripe(const struct xfer *x, uint32_t stripe)
{
	return &x->stripes[stripe - x->plan.first_stripe];
}
/* After the owner is gone and the last segment came back. */
void xfer_settle(struct control *c, struct xfer *x);

/* ---- hand_out.c ---- */
/* Gives rails with room their next segments; returns how many. */
unsigned hand_out(struct control *c);
/* When what this rail has in flight will have arrived, by its goodput. */
uint64_t hand_out_drain_ns(const struct control *c, uint16_t r);
/* Sends a landed segment out again as the order to hash the rest of a stripe. */
void hand_out_verify(struct control *c, struct xfer *x, uint32_t stripe, uint16_t rail, struct segment *s);
void hand_out_kick(struct control *c);
void seg_free(struct control *c, struct segment *s);
void job_put(struct control *c, struct stripe_state *st);
/* The rails that may carry this transfer now. */
uint32_t eligible_rails(const struct control *c, uint16_t peer_idx);

/* ---- failover.c ---- */
/* Whether the transfer still has a rail to go on with; under failover its plan is adapted to those that are left. */
bool failover_can_go_on(struct control *c, struct xfer *x, uint32_t eligible);
/* All of the stripe is here, the last bytes by this rail, and its hash is wrong. false: the read must fail. */
bool failover_reread(struct control *c, struct xfer *x, uint32_t stripe, uint16_t rail);
/* Asks for the stripe again; none of its segments may be out. */
void failover_read_again(struct control *c, struct xfer *x, uint32_t stripe);
/* The next piece of what is to be read again, for a rail that is eligible; x->n_rereads is not 0. */
bool failover_next(struct xfer *x, uint16_t r, uint32_t eligible, struct plan_piece *p);
/* A stripe is right at last: who was it? */
void failover_verified(struct control *c, const struct stripe_state *st);
/* Why a stripe that two rails brought wrong ends the read. */
void failover_explain_wrong(
	const struct control *c, const struct xfer *x, uint32_t stripe, char *cause, uint32_t cause_bytes);

/* ---- estimate.c ---- */
void estimate_init(struct control *c);
/* The rail goes from idle to busy. */
void estimate_restart(struct control *c, struct rail_ctx *rs);
void estimate_done(struct control *c, struct rail_ctx *rs, const struct segment *s);
/* For a weak rail, its part of what is right for the best one; else `bytes`. */
uint64_t estimate_scale(const struct control *c, const struct rail_ctx *rs, uint64_t bytes);

/* ---- slow.c: rails that are up and carry far less than they should ---- */
/* A window of this rail ended in which it carried `goodput` and had enough to do. */
void slow_window(struct control *c, struct rail_ctx *rs, uint64_t goodput);
/* Of `eligible`, those that would keep this transfer waiting if they took one more piece of it. */
uint32_t slow_late(const struct control *c, const struct xfer *x, uint32_t eligible);
/* A weak rail was given a piece. */
void slow_given(const struct control *c, struct rail_ctx *rs);
/* The largest piece for this rail. */
uint32_t slow_piece_bytes(const struct control *c, const struct rail_ctx *rs);
/* Trips rails that have been slow for health.slow_trip_secs. */
void slow_run(struct control *c);
/* When slow_run has something to do; UINT64_MAX = nothing. */
uint64_t slow_due_ns(const struct control *c);

/* ---- path.c: segment deadlines, suspicion, evidence ---- */
void path_up(struct control *c, const struct pair *pair, uint16_t peer_idx);
void path_down(struct control *c, const struct pair *pair);
/* A segment came back from its pair. */
void path_done(struct control *c, const struct segment *s);
/* Looks for segments over their deadline, every DEADLINE_SCAN_NS. */
void path_scan(struct control *c);
/* The time a segment of this size may stay unanswered. */
uint64_t path_limit_ns(const struct control *c, const struct path *p, uint32_t len_bytes);
/* connected && !suspect && !draining && available */
bool path_is_eligible(const struct control *c, const struct peer_pair *pp);

/* Why no rail reaches this peer now, rail by rail. */
void path_explain(const struct control *c, uint16_t peer_idx, char *cause, uint32_t cause_bytes);

/* The pair's QP died under a segment: out of plans until conn's PAIR_DOWN. */
void path_broken(struct control *c, const struct segment *s);

/* ---- prober.c ---- */
void prober_run(struct control *c);
void prober_done(struct control *c, struct segment *s);
uint64_t prober_due_ns(const struct control *c);

/* ---- aggregate.c ---- */
/* Takes segments back from rails; returns how many. */
unsigned aggregate(struct control *c);

/* ---- commit.c ---- */
/* Every stripe is verified: publishes the read. */
void commit_read(struct control *c, struct xfer *x);
/* Fills the statistics of a read that ends: rows of st->rails as far as st->n_rails. */
void commit_stats(const struct control *c, const struct op *op, const struct xfer *x, struct ry_read_stats *st);
/* Writes it into the flight recorder. */
void commit_record(const struct control *c, const struct op *op, const struct ry_cqe *cqe, const struct xfer *x,
	const struct ry_read_stats *st);
void lease_release(struct control *c, struct client_state *cs, uint32_t lease_id);
uint32_t lease_create(struct client_state *cs, const struct ry_extent *extents, uint32_t n);
/* Splits bytes over extents of the client's arena in units of `unit_bytes`; false = no room now. */
bool lease_alloc(struct client_state *cs, uint64_t bytes, uint64_t unit_bytes, struct ry_extent *out, uint32_t *n);
void lease_free_extents(struct client_state *cs, const struct ry_extent *e, uint32_t n);

/* ---- classify.c ---- */
struct classify_in {
	uint64_t object_ns, max_rail_ns, verify_ns, plan_ns, queue_ns, transfer_ns, storage_ns, store_queue_ns;
	uint32_t n_segments;
};
enum ry_class classify_ref(const struct classify_in *in);
enum ry_class classify_own(const struct classify_in *in);

/* ---- peers.c ---- */
void peers_init(struct control *c);
void peer_pair_up(struct control *c, struct pair_event *ev);
void peer_pair_down(struct control *c, struct pair_event *ev);
void peer_dialled(struct control *c, struct dial_event *ev);
/* An attempt of a configured pair failed. */
void peer_dial_fault(struct control *c, struct dial_fault *f);
/* A pair for metadata to this peer, or NULL; dials when there is none. */
const struct peer_pair *peer_meta_pair(struct control *c, uint16_t peer_idx);
void peer_want_dial(struct control *c, uint16_t peer_idx);
uint16_t peer_of_pair(const struct control *c, uint16_t pair_idx, uint32_t epoch);

/* ---- meta.c: requests to stores and their answers ---- */
/* Sends the op's request, or queues it. */
void meta_send(struct control *c, struct op *op);
/* Tries the send queue again. */
unsigned meta_pump(struct control *c);
/* One message from conn. */
unsigned meta_take(struct control *c);
void meta_reply(struct control *c, struct meta_buf *b, uint32_t len_bytes);
void meta_drop(struct control *c, struct meta_buf *b);
/* LIST: one store after the other. */
void list_start(struct control *c, struct op *op);
/* Pending requests on a pair that went down. */
void meta_pair_lost(struct control *c, uint16_t pair_idx, uint32_t epoch);
/* No pair could be made: operations that wait for one fail. */
void meta_dial_failed(struct control *c, uint16_t peer_idx, uint32_t status);

/* ---- put.c: our clients' puts ---- */
void put_start(struct control *c, struct op *op, const struct ry_slot *slot);
uint32_t put_encode(struct control *c, struct op *op, void *buf);
void put_reply(struct control *c, struct op *op, const struct wire_put_done *m);
/* Ends the op when its source is quiet. */
void put_finish(struct control *c, struct op *op, uint32_t status, const char *cause);
unsigned put_poll_quiet(struct control *c);

/* ---- put_serve.c: peers' puts into our store ---- */
void put_serve(struct control *c, uint16_t peer_idx, struct meta_buf *b);
void put_serve_query(struct control *c, struct meta_buf *b);
/* A part's transfer ended; a failed one is told again when its last segment came back. */
void put_serve_settled(struct control *c, struct xfer *x);
void put_serve_landed(struct control *c, struct xfer *x);
void put_serve_failed(struct control *c, struct xfer *x, uint32_t status, const char *cause);
void put_serve_housekeep(struct control *c);

/* ---- meta_serve.c ---- */
void meta_serve(struct control *c, uint16_t peer_idx, struct meta_buf *b);

/* ---- api_ops.c: what the api thread asks ---- */
unsigned api_take(struct control *c);

/* ---- plan_explain.c ---- */
void plan_explain(struct control *c, struct api_call *call);

#ifdef __cplusplus
}
#endif
#endif
