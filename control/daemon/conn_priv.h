/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the files of the conn thread share.
 *
 * conn.c       create, destroy, one turn, the thread, timers
 * conn_queue.c the queue to control and the pool of receive buffers
 * conn_sock.c  addresses, socket options, epoll interest
 * conn_accept.c listeners and accepted sockets until their HELLO is there
 * conn_dial.c  diallers: when to dial, the bootstrap HELLO, data sockets
 * conn_link.c  one bootstrap socket: framing, metadata in and out
 * conn_pair.c  the life of a pair: slot, QPs, READY, up, down, release
 * conn_self.c  pairs whose two ends are in this process (mock)
 * conn_info.c  rows for operators
 * conn_netdev.c link state of network devices
 * conn_device.c RDMA devices: what they say, their removal and return
 * conn_news.c  lines of the log
 * conn_node.c  who a peer is
 *
 * Everything belongs to the conn thread, except struct pair and struct pair_event while control holds them (msg.h), and
 * info rows, which any thread may read.
 */
#ifndef RY_CONN_PRIV_H
#define RY_CONN_PRIV_H

#include <netinet/in.h>
#include <stdalign.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "daemon/conn.h"
#include "daemon/work.h"
#include "health/health.h"
#include "wire/wire.h"

#ifdef __cplusplus
extern "C" {
#endif

#define GREETS_MAX 64u       /* accepted sockets whose HELLO is not there yet */
#define JOINING_MAX 128u     /* accepted pairs that are not up yet */
#define RX_BUFS 64u          /* receive buffers of all links */
#define LINK_BUFS_MAX 16u    /* of them one link may hold, so that one peer cannot starve the others */
#define LINK_TX_MAX 192u     /* control's messages that wait on one link */
#define LINK_OUT_MAX 256u    /* those and replies: a reply always finds room */
#define LINK_CTL_BYTES 1024u /* our own small messages, and HELLO */
#define QUEUE_ENTRIES 8192u  /* to control */
#define TX_HELD_MAX 4096u    /* control's buffers that conn holds; the rest of the queue is for everything else */
#define DIALS_WAITING_MAX 256u
#define RETRY_NS 1000000ull /* when a ring was full: nobody kicks us when there is room again */
#define SOCK_TEXT_BYTES 80u

enum io_kind {
	IO_WAKER = 1,
	IO_LISTENER = 2,
	IO_GREET = 3, /* struct greet of the accepted */
	IO_LINK = 4,
	IO_DATA = 5, /* struct link.data */
	IO_NETLINK = 6,
	IO_DEVICE = 7, /* struct device_io */
};

/* What epoll points to; the first member of whatever has a socket. */
struct io {
	uint8_t kind;    /* enum io_kind */
	int fd;          /* -1 = none */
	uint32_t events; /* in epoll, 0 = not there */
};

/* A descriptor by which a rail's device has its say. */
struct device_io {
	struct io io;
	uint16_t rail_idx;
};

/* Where the RDMA device of a rail is between its removal and its return. */
enum device_step {
	DEVICE_OPEN = 0,    /* nowhere: it is there, or the rail has none */
	DEVICE_LEAVING = 1, /* once none of its QPs is left, its lcore is told */
	DEVICE_LET_GO = 2,  /* it was told */
	DEVICE_CLOSED = 3,  /* looked for from look_ns on */
	DEVICE_SOUGHT = 4,  /* by the work thread, which has the job */
	DEVICE_MADE = 5,    /* open, with all regions; its lcore is to be told */
	DEVICE_GIVEN = 6,   /* it was told */
};

struct rdma_device {
	struct device_io io[2];
	uint8_t step;      /* enum device_step */
	bool is_leaving;   /* GIVEN: it is being removed again */
	uint64_t look_ns;  /* CLOSED: when, and */
	uint64_t pause_ns; /* how long after the last time */
	uint64_t told;     /* hash of why it is not used, as the log was told last */
	struct device_job job;
};

struct listener {
	struct io io;
	uint16_t rail_idx;
	uint64_t retry_ns; /* accept ran out of descriptors: ask again then, 0 = it did not */
};

/* A socket whose HELLO is being read. */
struct greet {
	struct io io;
	uint16_t rail_idx;
	bool is_connecting; /* dialled data socket */
	uint32_t got_bytes;
	uint64_t deadline_ns;
	struct wire_hello hello;
};

struct address {
	struct sockaddr_storage sa;
	socklen_t len;
	char text[SOCK_TEXT_BYTES];
};

struct link;

#define NEWS_GUESTS 257u /* prime: node ids are hashes times PAIRS_MAX */
#define NEWS_MORE_BYTES 64u

enum news_told {
	NEWS_NOTHING = 0,
	NEWS_UP = 1,
	NEWS_DOWN = 2,
};

/* Of the lines of trouble: nobody uses up the share of others. */
enum news_share {
	NEWS_STRANGERS = 0, /* whoever connects to us */
	NEWS_STORES = 1,    /* that are configured */
	NEWS_RAILS = 2,     /* our own */
	NEWS_SHARES = 3,
};

/* What the log was told of one peer's rail, over all connections to it; see conn_news.c. */
struct news {
	uint64_t key;      /* guests: who */
	uint64_t again_ns; /* DOWN: no further line before this */
	uint64_t paid_ns;  /* first lines are paid up to here */
	uint32_t n_untold; /* failures since the last line */
	uint8_t told;      /* enum news_told: the last line */
};

/* The network device of a rail. */
struct netdev {
	char name[16]; /* empty: none, or not known */
	bool is_down;  /* the rail's pairs are not dialled */
	bool is_gone;  /* the same: its RDMA device is of no use */
	struct news news;
	char held[RY_CAUSE_MAX_BYTES]; /* a line that waits for its turn, empty = none */
};

/* One pair of a local rail and an endpoint, or one mock rail of a store that is this node. Lives as long as conn. */
struct dialler {
	uint16_t store_idx;
	uint16_t endpoint_idx; /* self: the rail */
	uint16_t rail_idx;
	uint16_t row; /* of the info table */
	bool is_self;
	bool want_now;       /* dial as soon as the old pair is gone */
	uint32_t n_refused;  /* attempts in a row that the peer refused */
	uint32_t status;     /* of the last failure */
	uint64_t next_ns;    /* when to dial; only while link is NULL */
	uint64_t started_ns; /* the last attempt, and */
	uint64_t started_at; /* which of all it is, see conn.n_started */
	uint64_t failed_at;  /* the same, of the last that ended without a pair */
	struct link *link;
	struct dial_fault fault; /* of the last failed attempt; control's while is_fault_out */
	bool is_fault_out;
	struct address to;
	struct news news;
	struct conn_pair_info info;
};

enum link_state {
	LINK_FREE = 0,
	LINK_CONNECTING = 1,
	LINK_HELLO = 2,   /* dialler: waits for the answer */
	LINK_JOINING = 3, /* data sockets, adoption, READY */
	LINK_UP = 4,
	LINK_DRAINING = 5,  /* MSG_PAIR_DOWN is out, MSG_PAIR_QUIESCED not back */
	LINK_RELEASING = 6, /* the rail is asked to let go of the QPs */
};

enum qp_step {
	QP_STEP_NONE = 0,
	QP_STEP_MADE = 1,      /* no lcore knows it */
	QP_STEP_ADOPTING = 2,  /* handed to the rail */
	QP_STEP_RELEASING = 3, /* asked back */
};

enum rx_phase {
	RX_HELLO = 0,
	RX_HEAD = 1,
	RX_SMALL = 2, /* conn's own types, in `head` */
	RX_BODY = 3,  /* for control, in `rx` */
	RX_SKIP = 4,  /* larger than we accept */
};

#define LINK_HEAD_BYTES 128u /* the largest message that conn handles itself */
static_assert(sizeof(struct wire_bye) <= LINK_HEAD_BYTES, "BYE is read in place");
static_assert(sizeof(struct wire_qps) <= LINK_HEAD_BYTES, "QPS is read in place");

/* One pair in all its states, with its bootstrap socket. */
struct link {
	struct io io;
	uint8_t state; /* enum link_state */
	bool was_up;
	bool is_ready_sent;
	bool is_ready_seen;
	bool is_told;      /* how to reach the peer's QPs: in peer_qps */
	bool is_addressed; /* and ours are able to send */
	bool is_fencing;   /* a QP is being ended by us: what the socket says now is not why */
	bool is_bye_sent;
	bool is_paused;   /* not reading: no buffer, or our answers are not being read */
	bool is_released; /* no lcore knows any of its QPs */
	bool want_redial; /* at once, not after a delay */
	bool is_refused;  /* dialler: the answer to HELLO is no, or from none of ours */
	uint8_t evidence; /* enum rail_evidence: what its end says about the path */
	uint16_t idx;
	uint16_t peer_idx;
	uint16_t peer_credits;
	uint16_t live_pos;
	struct dialler *dialler; /* NULL: accepted */
	struct link *twin;       /* self: the other end */
	uint64_t token;
	uint64_t deadline_ns; /* of the current step of bring-up */
	uint64_t rx_ns;       /* last byte from the peer */
	uint64_t tx_ns;       /* last byte the socket took, or when output started to wait */
	uint64_t ping_ns;     /* KEEPALIVE sent and nothing heard since, 0 = none */
	char peer_text[SOCK_TEXT_BYTES];
	uint8_t qp_step[PAIR_QPS_MAX];
	struct wire_qps peer_qps;
	struct greet data; /* dialler: the data socket being opened */
	uint16_t data_idx; /* which QP it is for */

	uint8_t rx_phase;  /* enum rx_phase */
	uint32_t rx_bytes; /* of the current part that are here */
	uint32_t rx_need;
	struct meta_buf *rx;
	struct wire_hello hello;
	union {
		uint8_t head[LINK_HEAD_BYTES];
		struct wire_meta meta; /* its fixed part */
		struct wire_bye bye;
		struct wire_qps qps;
	};

	int tx_error;       /* sending failed with this; link_step ends the link */
	uint32_t n_bufs;    /* receive buffers on its account */
	uint32_t n_tx;      /* control's buffers in `out` */
	uint32_t n_refused; /* messages that were malformed or too large */
	uint32_t n_odd;     /* of these, and of odd messages on its QPs, those that the log was told of */
	uint32_t out_head;
	uint32_t n_out;
	uint32_t tx_bytes; /* of out[out_head] that are sent */
	struct meta_buf *out[LINK_OUT_MAX];
	uint32_t ctl_head;
	uint32_t ctl_bytes;
	uint8_t ctl[LINK_CTL_BYTES];

	struct conn_pair_info info; /* accepted */
	struct pair pair;
	struct pair_event up;
	struct pair_event down;
};

#define FORMER_MAX 4u

/* Which peer_idx a node has; one per node with a pair. */
struct node_slot {
	uint64_t node_id;
	uint32_t n_links;
	uint32_t n_former; /* incarnations that a later one ended; the last of them are in */
	uint64_t former[FORMER_MAX];
	uint64_t incarnation; /* the present one */
};

/* Who a receive buffer is on account of. */
struct buf_owner {
	struct link *link;
	uint32_t epoch;
};

#define INFO_WORDS ((sizeof(struct conn_pair_info) + 3) / 4)

/* A sequence lock: written by conn, read by anyone. */
struct info_row {
	uint32_t seq; /* odd while it is being written */
	uint32_t is_used;
	uint32_t words[INFO_WORDS];
};

struct conn {
	struct conn_deps deps;
	uint64_t now_ns;
	uint64_t jitter; /* state of the generator */
	uint32_t next_epoch;
	bool want_retry; /* a ring was full, or a link waits for its turn to be joined */
	bool has_joined; /* a link's QPs, in this turn */

	struct io waker_io;
	int epoll_fd;      /* -1 in virtual time */
	struct io netlink; /* fd -1: not watched */
	struct rdma_device devices[RY_RAILS_MAX];
	struct netdev netdevs[RY_RAILS_MAX];
	uint32_t away; /* rails whose device is not DEVICE_OPEN */
	struct listener listeners[RY_RAILS_MAX];
	struct greet greets[GREETS_MAX];
	uint32_t n_greets;
	uint32_t n_joining; /* accepted */

	struct dialler *diallers;
	uint32_t n_diallers;
	struct dial_event *waiting[DIALS_WAITING_MAX];
	uint64_t n_started; /* attempts of all diallers */
	uint32_t n_waiting;

	struct link *links; /* PAIRS_MAX */
	uint16_t live[PAIRS_MAX];
	uint32_t n_live;
	uint32_t next_link;
	struct node_slot nodes[PAIRS_MAX];

	struct meta_buf *bufs; /* RX_BUFS */
	struct meta_buf *free_bufs[RX_BUFS];
	uint32_t n_free_bufs;
	struct buf_owner owners[RX_BUFS];

	struct msg *queue[QUEUE_ENTRIES];
	uint32_t queue_head;
	uint32_t n_queue;
	uint32_t n_tx_held;
	bool want_kick;

	struct news guests[NEWS_GUESTS];    /* accepted, and strangers */
	uint64_t unused_since_ns;           /* connections that ended without a HELLO, and */
	uint32_t n_unused;                  /* how many in this minute */
	uint64_t news_paid_ns[NEWS_SHARES]; /* lines of trouble are paid up to here, by enum news_share */
	struct info_row *rows;              /* n_diallers, then one per link */
};

/* ---- conn_queue.c ---- */
/* Hands an element to control; kept here while the ring is full. */
void queue_emit(struct conn *c, struct msg *m, enum msg_kind kind);
/* Moves what waits into the ring and wakes control. Returns whether anything moved. */
bool queue_flush(struct conn *c);
/* A receive buffer on account of l; NULL when l has its share or there is none. */
struct meta_buf *buf_take(struct conn *c, struct link *l);
/* Takes one of conn's own buffers back. */
void buf_put(struct conn *c, struct meta_buf *b);
bool buf_is_own(const struct conn *c, const struct meta_buf *b);
/* Back to where it came from: SENT or UNSENT for control's, the pool for ours. */
void buf_return(struct conn *c, struct meta_buf *b, bool is_sent);

/* ---- conn_sock.c ---- */
/* A literal IPv4 or IPv6 address; 0 or -EINVAL. */
int address_parse(const char *literal, uint16_t port, struct address *out);
/* Starts to connect from a rail to an address. A descriptor or -errno. */
int sock_dial(const struct rail_conf *rail, const struct address *to);
int sock_listen(const struct rail_conf *rail, const struct address *at);
/* Whether sock_listen could: 0 or -errno. Nobody can connect meanwhile. */
int sock_check(const struct rail_conf *rail);
/* 0 = connected, -EINPROGRESS, or why it failed. */
int sock_connected(int fd);
/* Time-outs of a bootstrap socket. */
void sock_tune(int fd, uint64_t dead_ns);
void sock_peer_text(int fd, char *text, uint32_t text_bytes);
/* What an errno of a socket says about the path. */
enum rail_evidence error_evidence(int err);
/* Lower-case words for an errno. Static text. */
const char *error_text(int err);
/* Sets what epoll reports for a socket; 0 = nothing. */
void io_watch(struct conn *c, struct io *io, uint32_t events);
void io_close(struct conn *c, struct io *io);
/* Takes the descriptor out of epoll; it is the caller's now. */
int io_take(struct conn *c, struct io *io);

/* ---- conn_accept.c ---- */
int listeners_open(struct conn *c, char *message, uint32_t message_bytes);
void listener_ready(struct conn *c, struct listener *ln);
void greet_ready(struct conn *c, struct greet *g);
/* Closes sockets that were too slow and opens listeners again. */
bool accept_timers(struct conn *c);
uint64_t accept_next_timer(const struct conn *c);
void hello_fill(const struct conn *c, uint16_t rail_idx, enum wire_conn_kind kind, struct wire_hello *h);
uint16_t conn_rail_transport(const struct conn *c, uint16_t rail_idx); /* enum wire_transport, 0 = has no wire form */
uint16_t conn_rail_n_qps(const struct conn *c, uint16_t rail_idx);

/* ---- conn_qps.c ---- */
/* HELLO is over: where QPs are joined by addresses, makes them and tells theirs. */
void link_open_qps(struct conn *c, struct link *l);
/* The peer told its own. NULL, or what is wrong with the message. */
const char *link_qps_told(struct conn *c, struct link *l, const struct wire_qps *m);
/* Makes ours able to reach them, once that was told. Whether it was tried: at most for one link a turn. */
bool link_join_qps(struct conn *c, struct link *l);
/* Ends QPs that their lcore gave up. Whether there were any. */
bool link_fence(struct conn *c, struct link *l);
/* Reads towards a whole HELLO. 1 = complete, 0 = more to come, -errno (-EPROTO: not our protocol, -EPIPE: closed). */
int hello_read(int fd, struct wire_hello *h, uint32_t *got_bytes);

/* ---- conn_dial.c ---- */
int diallers_create(struct conn *c, char *message, uint32_t message_bytes);
/* Starts dials that are due, answers MSG_DIALs. */
bool diallers_poll(struct conn *c);
uint64_t diallers_next_timer(const struct conn *c);
/* Whether control wants the endpoint of this dialler now. */
bool dialler_is_wanted(const struct conn *c, const struct dialler *d);
/* Between two attempts at a pair. */
uint64_t dial_pause_ns(const struct conn *c);

/* MSG_DIAL_FAULT_SEEN. */
void dial_fault_seen(struct conn *c, struct dial_fault *f);
/* The attempt's, or the pair's, link is free again. */
void dialler_ended(struct conn *c, struct dialler *d, const struct link *l);
/* The bootstrap socket of a CONNECTING link has news. */
void dial_connected(struct conn *c, struct link *l);
/* The HELLO answer is complete. */
void dial_greeted(struct conn *c, struct link *l);
void data_ready(struct conn *c, struct link *l);

/* ---- conn_ask.c ---- */
/* MSG_DIAL. */
void dial_request(struct conn *c, struct dial_event *e);
/* Answers those that wait and can be answered. */
void dials_settle(struct conn *c);

/* ---- conn_netdev.c ---- */
void netdev_open(struct conn *c);
/* The netlink socket has news. */
void netdev_ready(struct conn *c);
/* Netlink messages; what is none of a rail's devices is ignored. */
void netdev_take(struct conn *c, const void *buf, uint32_t bytes);
/* Dials a rail's pairs now. */
void diallers_wake(struct conn *c, uint16_t rail_idx);

/* ---- conn_device.c ---- */
void devices_watch(struct conn *c);
void device_ready(struct conn *c, const struct device_io *d);
/* Lets go of devices that leave, once none of their QPs is left, and has them looked for. Whether anything was done. */
bool devices_step(struct conn *c);
uint64_t devices_next_timer(const struct conn *c);
/* The rail's network device is up: its RDMA device is looked for now, if it is away. */
void device_look(struct conn *c, uint16_t rail_idx);
/* Whether the rail can have QPs. */
static inline bool rail_has_device(const struct conn *c, uint16_t rail_idx)
{
	return !c->netdevs[rail_idx].is_gone && c->devices[rail_idx].step == DEVICE_OPEN;
}

/* ---- conn_link.c ---- */
/* Both return whether anything was done; reading may bring the link down. */
bool link_read(struct conn *c, struct link *l);
bool link_write(struct conn *c, struct link *l);
void link_ready(struct conn *c, struct link *l, uint32_t events);
/* Puts bytes of our own in front of the next queued message; false = no room. */
bool link_put_bytes(struct conn *c, struct link *l, const void *bytes, uint32_t len_bytes);
bool link_put_small(struct conn *c, struct link *l, enum wire_meta_type type, uint64_t request_id, uint32_t status);
bool link_put_bye(struct conn *c, struct link *l, enum wire_bye_reason reason);
/* MSG_META_TX and MSG_META_REPLY. */
void link_submit(struct conn *c, struct meta_buf *b);
/* Hands everything queued back; keeps a message that is partly sent when asked to, so that a BYE can follow it. */
void link_drop_output(struct conn *c, struct link *l, bool want_partial);
/* The peer's answer to something of ours: must not be answered with an ERROR. */
bool meta_is_reply(uint16_t type);
/* Interest of the socket, from what there is to read and write. */
void link_watch(struct conn *c, struct link *l);
static inline bool link_has_output(const struct link *l)
{
	return l->ctl_bytes || l->n_out;
}

/* ---- conn_node.c ---- */
/* The peer said who it is: fills the pair and ends pairs of its former incarnation. */
void link_identify(struct conn *c, struct link *l, const struct wire_hello *h);
/* Whether this one was connected before another that is now, of the same name. */
bool node_is_superseded(struct conn *c, const struct wire_hello *h);
/* What a HELLO that is refused with this status means. Static text. */
const char *refusal_text(uint32_t status);

/* ---- conn_pair.c ---- */
/* A fresh slot with its epoch, state still to be set; NULL = the table is full. */
struct link *link_alloc(struct conn *c, uint16_t rail_idx);
/* Makes QP qp_idx of a socket that both ends have greeted on; takes fd over in any case. */
void link_add_qp(struct conn *c, struct link *l, uint16_t qp_idx, int fd);
/* Adoption, READY, keepalive, release: whatever is due. Returns whether anything was done. */
bool link_step(struct conn *c, struct link *l);
uint64_t link_next_timer(const struct conn *c, const struct link *l);
/* The end of a link in any state; the socket is closed unless a BYE is on its way. Later calls are ignored. */
void link_down(struct conn *c, struct link *l, enum ry_status status, uint8_t reason, const char *format, ...)
	__attribute__((format(printf, 5, 6)));
/* The same, with a BYE to the peer first. */
void link_bye(struct conn *c, struct link *l, uint8_t reason, enum ry_status status, const char *format, ...)
	__attribute__((format(printf, 5, 6)));
/* The same as a verdict of ours: a loss with this evidence here; the peer is told BYE(REBUILD) and counts nothing. */
void link_condemn(struct conn *c, struct link *l, enum rail_evidence evidence, enum ry_status status,
	const char *format, ...) __attribute__((format(printf, 5, 6)));
/* A fault of the rail itself: all its pairs and attempts end, and nothing is said about any peer. */
void links_drop(struct conn *c, uint16_t rail_idx, const char *cause);
void link_quiesced(struct conn *c, struct link *l);
/* Closes QPs and socket and frees the slot, whatever state it is in. No lcore may know the QPs. */
void link_free(struct conn *c, struct link *l);
const char *bye_text(uint8_t reason);

/* ---- conn_self.c ---- */
void self_dial(struct conn *c, struct dialler *d);
/* Delivers what is queued on l to its twin. */
bool self_write(struct conn *c, struct link *l);

/* ---- conn_info.c ---- */
int info_create(struct conn *c);
void info_publish(struct conn *c, uint32_t row, const struct conn_pair_info *info);
void info_clear(struct conn *c, uint32_t row);
/* Publishes what there is to say about a link under its dialler's or its own row. */
void info_link(struct conn *c, struct link *l);

/* ---- conn_news.c ---- */
/* A link came up, or ended: a line of the log where it is news. */
void news_up(struct conn *c, const struct link *l);
void news_down(struct conn *c, const struct link *l, bool was_up);
/* Whether something odd of this kind (enum ry_status) from this address is worth a line; then `more` = how often it was
 * not told. */
bool news_stranger(struct conn *c, const char *peer, uint32_t kind, char more[NEWS_MORE_BYTES]);
/* This peer knows another node of our name, or is one of two itself: what to do about it, at once. */
void news_twin(struct conn *c, const char *peer);
/* A link that is or was up: what its peer sent that nothing waited for or that is not allowed, if there is more of it.
 */
void news_odd(struct conn *c, struct link *l);
/* The link of a rail has news; a line at once or later. */
void news_rail(struct conn *c, uint16_t rail_idx, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Writes lines that waited. Returns whether there were any. */
bool news_rails(struct conn *c);
uint64_t news_next_timer(const struct conn *c);

static inline const struct rail_conf *conn_rail_conf(const struct conn *c, uint16_t rail_idx)
{
	return &c->deps.config->rails[rail_idx];
}

#ifdef __cplusplus
}
#endif
#endif
