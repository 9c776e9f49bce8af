/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The control lcore's records; seen by control/read only.
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
#define DEADLINE_DRAINS 64u           /* bursts of segments taken in before any is judged */
#define DEADLINE_STALL_NS 20000000ull /* a scan this late, or a rail without a turn for so long, had no CPU */
#define STALL_SLOT_NS 64000000ull
#define STALL_SLOTS 256u /* 16 s of history; what was lost before is forgotten */
#define STALL_MOST 3u    /* a deadline is put off by at most so many times itself */
#define HOUSEKEEPING_NS 1000000ull

struct op;
struct xfer;
struct desc;
struct client_state;

/* ---- stall.c ---- */
struct stall {
	uint64_t turn_at_ns; /* the lcore was seen to have had one */
	bool was_busy;       /* something was out at the last scan */
	uint64_t lost_ns;    /* in all */
	uint64_t slot;       /* the one that now is in, counted from 0 */
	uint64_t lost_before[STALL_SLOTS];
};

/* ---- Rails as control sees them ---- */
struct rail_ctx {
	struct rail *rail;
	int numa_node;               /* -1 = unknown */
	uint64_t inflight_bytes;     /* handed out and not back */
	uint64_t inflight_max_bytes; /* rail budget */
	uint64_t depth_bytes;        /* current limit, see estimate.c */
	uint64_t room_bytes;         /* a segment more while less is in flight, see room.c */
	uint64_t goodput;            /* bytes per second, EWMA; 0 = no sample */
	uint64_t link;               /* bytes per second of its link, 0 = unknown */
	uint64_t rate;               /* what it is expected to carry: goodput, or a guess by the link */
	uint64_t min_latency_ns;     /* of DONE, windowed minimum */
	struct histogram latency;    /* DONE latency of all segments, for operators */
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
	uint32_t n_busy_paths;   /* connections with something in flight */
	uint64_t landed_ns;      /* of the last segment, or when the rail was given work again */
	uint64_t corrupt_at_ns;  /* when it last brought a stripe wrong that another rail brought right */
	uint64_t corrupt_blamed; /* stripes, see failover.c */
	bool is_draining;        /* by an operator: no new segments */
	uint64_t turns_seen;     /* stall_scan: of the lcore */
	struct stall stall;
	bool want_kick;
	bool want_cancel_scan;
};

static_assert(SEGMENTS_MAX + 32 < RAIL_WORK_ENTRIES && SEGMENTS_MAX + 32 < RAIL_EVENT_ENTRIES,
	"rings hold every segment and probe");

/* ---- Probes under way ---- */
#define PROBE_PAUSE_NS 100000000ull /* before a PING that found no room is tried again */

struct probe {
	bool is_used;
	struct rail_token token;
	uint64_t post_by_ns; /* cancelled then when it is not on the wire, and */
	uint64_t until_ns;   /* at the end of its lease */
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
	uint64_t ping_after_ns;
	uint32_t n_samples;
	uint32_t hist[PATH_HIST]; /* DONE latency */
	uint64_t last_done_ns;
	uint64_t silent_since_ns; /* post of the first unanswered CANCEL's segment since then; 0 = none */
	uint64_t p99_ns;          /* of hist, every 32 samples */
	uint64_t inflight_bytes;  /* of this connection */
	struct pair_kill kill;
};

/* ---- Peers: a configured store, or a node that dialled us ---- */
struct peer_pair {
	const struct pair *pair;
	uint32_t epoch;
	uint32_t n_owed; /* answers that are still to come of requests that ended before; of `pairs` only */
};

/* Of one kind of breach; see breach.c. */
struct breach_told {
	uint64_t again_ns; /* no line before this */
	uint32_t n;        /* since the last line */
};

struct peer {
	TAILQ_ENTRY(peer) active; /* n_active is not 0 */
	uint32_t n_active;        /* transfers in the active list */
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
	struct dial_event dial;
	struct breach_told breaches[BREACHES];
	char cause[RY_CAUSE_MAX_BYTES]; /* why it is not connected */
};

/* ---- endpoints.c ---- */
struct endpoints {
	struct dial_wants wants; /* read by conn */
	bool has_choice[CONFIG_STORES_MAX];
	uint64_t at_ns;                                              /* of the next look */
	uint64_t unserved_since_ns[CONFIG_STORES_MAX][RY_RAILS_MAX]; /* the rail has no eligible pair; 0 = it has */
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
	uint32_t n_fetched;  /* checksums */
	uint32_t n_restarts; /* FETCHING: times the pages began anew */
	uint8_t hash[16];
	uint64_t handle;
	uint64_t generation;
	uint64_t etag;
	uint64_t size_bytes;
	uint64_t expires_ns;
	uint64_t key_off; /* in the metadata slab */
	uint64_t sums_off;
	uint8_t *key;
	uint64_t *checksums;
};

/* ---- Transfers ---- */
struct stripe_state {
	uint32_t landed_bytes;
	uint16_t reserved0;
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
	uint32_t n_planned;      /* rails when it was planned */
	uint32_t n_out;          /* segments out, SEG_VERIFY included */
	struct segment *segs;    /* those out */
	struct segment *orphans; /* to be handed out again (BUSY, failover) */
	uint64_t orphans_at_ns;  /* not before */
	uint64_t doubt_since_ns; /* failover.c: has no eligible rail and nothing out; 0 = not so */
	struct stripe_state *stripes;
	uint32_t reach_mask;    /* rails whose NIC reaches the memory: no other one ever carries a byte of it */
	uint16_t region;        /* that its memory lies in */
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
	uint64_t admit_until_ns; /* end of all its waits for budgets; 0 = it has not waited */
	uint64_t need_bytes;     /* OP_ADMIT: for these; 0 = for a place among the reads */
	bool is_let_in;          /* its turn for bytes has come: it stands behind nobody */
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

/* What a read in OP_ADMIT waits for. */
enum admit_line {
	ADMIT_PLACE = 0,
	ADMIT_BYTES = 1,
};

struct lease {
	uint32_t n_extents; /* 0 = free */
	uint32_t salt;
	struct ry_extent extents[RY_EXTENTS_MAX];
};

struct client_state {
	bool is_used;
	bool is_broken;          /* its rings make no sense: nothing is taken any more */
	struct api_call *broken; /* api's, to say so with */
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
	TAILQ_HEAD(, op) admit_queue; /* reads that wait for a budget, in order: those for bytes, then */
	struct op *first_place;       /* those for a place; NULL = none */
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
	uint16_t key_bytes;
	uint8_t key[RY_KEY_MAX_BYTES]; /* last: the rest is zeroed for a new put */
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
	uint16_t ping_store;  /* prober.c: where the last turn found no probe, and */
	uint32_t ping_pair;   /* the next begins */
	uint64_t deadline_scan_ns;
	uint64_t scanned_ns; /* stall.c: last scan */
	struct rail_ctx rails[RY_RAILS_MAX];
	uint64_t best_goodput; /* of all rails */
	uint32_t weak_mask;    /* see estimate.c */
	uint32_t turn;         /* of the hand-out */
	uint16_t first_rail;   /* round robin of the hand-out */
	uint16_t last_small;   /* and of reads that use one rail */
	uint16_t n_peers;
	TAILQ_HEAD(, peer) active_peers; /* have something to hand out */
	struct peer *peers;              /* config->n_stores, then ACCEPTED_PEERS_MAX */
	struct client_state *clients;    /* config->max_clients */
	struct client_state **live;      /* those in use */
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
	uint32_t next_admit[2];     /* of each admit_line: whose turn it is, in live */
	struct op *admit_stop[2];   /* the read whose turn it is and that only the node has no room for */
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
	struct endpoints endpoints;
	bool want_api_kick;
};

#ifdef __cplusplus
}
#endif

#include "read/control_calls.h" /* one header for the files of this folder */

#endif
