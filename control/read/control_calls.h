/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the files of control/read call of each other, file by file. The records are in control_priv.h.
 *
 * Control lcore only, like the records; nothing here blocks, allocates or logs. Seen by control/read alone.
 */
#ifndef RY_CONTROL_CALLS_H
#define RY_CONTROL_CALLS_H

#include "read/control_priv.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- metadata slab (control_tables.c) ---- */
int tables_create(struct control *c);
void tables_destroy(struct control *c);
/* Descriptors that nobody uses give way. NULL: there is no room all the same. */
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
/* Its ring makes no sense: nothing is taken from it any more. */
void rings_break(struct control *c, struct client_state *cs);
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
/* A waiting read leaves its queue, for whatever reason. */
void admit_unlink(struct control *c, struct op *op);
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
/* Forgets the descriptor that was used least recently; false: those in use are all that there are. */
bool lookup_evict(struct control *c);
void lookup_drop_peer(struct control *c, uint16_t peer_idx);
/* The op that carried a fetch ended early. */
void lookup_carrier_gone(struct control *c, struct desc *d);
void desc_hold(struct desc *d);
void desc_put(struct control *c, struct desc *d);
void key_hash(const void *key, uint16_t key_bytes, uint8_t out[16]);

/* ---- read.c: from descriptor to transfer ---- */
void read_described(struct control *c, struct op *op);

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
/* When what this rail has in flight will have arrived, by its rate. */
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
/* Connected rails in reach whose breaker is closed, whether they may carry data now or are suspected or unproven: one
 * that is not eligible is so or out of plans within a few fence time-outs. */
uint32_t failover_in_doubt(const struct control *c, uint16_t peer_idx, uint32_t reach_mask);
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

/* ---- room.c: who may put one more segment on a rail ---- */
/* The rail's depth changed. */
void room_update(const struct control *c, struct rail_ctx *rs);
/* The rail is full: whether a peer that has something to hand out holds less than its share. */
bool room_anyone(const struct control *c, uint16_t r);
/* Whether this peer does, which this rail reaches. */
bool room_by_share(const struct control *c, const struct peer *p, uint16_t r);

static inline bool room_is_free(const struct rail_ctx *rs)
{
	return rs->inflight_bytes < rs->room_bytes;
}

static inline void room_take(struct rail_ctx *rs, struct path *path, uint32_t bytes)
{
	rs->n_busy_paths += !path->inflight_bytes;
	path->inflight_bytes += bytes;
}

/* bytes is not 0. */
static inline void room_give_back(struct rail_ctx *rs, struct path *path, uint64_t bytes)
{
	path->inflight_bytes -= bytes;
	rs->n_busy_paths -= !path->inflight_bytes;
}

/* ---- estimate.c ---- */
void estimate_init(struct control *c);
/* The rail's budget from now on; what is out stays out. */
void estimate_budget(struct control *c, struct rail_ctx *rs, uint64_t bytes);
void estimate_link(struct control *c, struct rail_ctx *rs);
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
/* A pair that it opened has passed its trial. */
void slow_passed(struct control *c, uint16_t breaker);
/* When slow_run has something to do; UINT64_MAX = nothing. */
uint64_t slow_due_ns(const struct control *c);

/* ---- path.c: segment deadlines, suspicion, evidence ---- */
void path_up(struct control *c, const struct pair *pair, uint16_t peer_idx);
void path_down(struct control *c, const struct pair *pair);
/* A segment came back from its pair. */
void path_done(struct control *c, const struct segment *s);
/* Looks for segments over their deadline, every DEADLINE_SCAN_NS; returns how many segments it took in on the way. */
unsigned path_scan(struct control *c);
/* The time a segment of this size may stay unanswered. */
uint64_t path_limit_ns(const struct control *c, const struct path *p, uint32_t len_bytes);
/* connected && !suspect && !draining && available */
bool path_is_eligible(const struct control *c, const struct peer_pair *pp);

/* Why none of these rails reaches this peer now, rail by rail. */
void path_explain(const struct control *c, uint16_t peer_idx, uint32_t reach_mask, char *cause, uint32_t cause_bytes);

/* The pair's QP died under a segment: out of plans until conn's PAIR_DOWN. */
void path_broken(struct control *c, const struct segment *s);

/* ---- breach.c ---- */
/* A peer did what no honest one does; rail_idx may be RY_RAIL_NONE. */
void breach_note(struct control *c, uint16_t peer_idx, uint16_t rail_idx, enum breach what);

/* ---- stall.c ---- */
/* With every path_scan. */
void stall_scan(struct control *c);
/* How much of the time since then the host took, to within a STALL_SLOT_NS, of the last STALL_SLOTS of them. */
uint64_t stall_since_ns(const struct stall *s, uint64_t now_ns, uint64_t from_ns);

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
/* *share_permille: how much of the span (object or busiest rail, the longer) the class stands for, at most 1000; 0 for
 * RY_CLASS_UNKNOWN. */
enum ry_class classify_own(const struct classify_in *in, uint16_t *share_permille);

/* ---- peers.c ---- */
void peers_init(struct control *c);
void peer_pair_up(struct control *c, struct pair_event *ev);
void peer_pair_down(struct control *c, struct pair_event *ev);
void peer_dialled(struct control *c, struct dial_event *ev);
/* An attempt of a configured pair failed. */
void peer_dial_fault(struct control *c, struct dial_fault *f);
/* A pair for metadata to this peer; NULL: there is none, see peer_want_dial. */
const struct peer_pair *peer_meta_pair(const struct control *c, uint16_t peer_idx);
void peer_want_dial(struct control *c, uint16_t peer_idx);
uint16_t peer_of_pair(const struct control *c, uint16_t pair_idx, uint32_t epoch);

/* ---- endpoints.c ---- */
void endpoints_init(struct control *c);
/* A pair of this peer came or went. */
void endpoints_choose(struct control *c, struct peer *p);
/* A breaker or a proof of this store changed. */
void endpoints_map(struct control *c, uint16_t store_idx);
/* With every housekeeping. */
void endpoints_run(struct control *c);
uint64_t endpoints_due_ns(const struct control *c);

/* ---- meta.c: requests to stores and their answers ---- */
/* Sends the op's request, or queues it. */
void meta_send(struct control *c, struct op *op);
/* The op, in OP_WAIT, ends without its answer, which may still come. */
void meta_forgo(struct control *c, const struct op *op);
/* Tries the send queue again. */
unsigned meta_pump(struct control *c);
/* One message from conn. */
unsigned meta_take(struct control *c);
/* What a store did that the protocol forbids, as a cause that names it, in `text`; returns that. */
const char *meta_blame(const struct control *c, uint16_t store, const char *what, char text[RY_CAUSE_MAX_BYTES]);
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
