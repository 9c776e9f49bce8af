/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What travels on the rings between control, conn and api. Every element starts with its kind.
 *
 * Buffers have one owner pool: a META buffer of conn's pool goes to control with a received message and comes back
 * exactly once (as REPLY or DROP); one of control's pool goes to conn to be sent and comes back exactly once (SENT or
 * UNSENT). Nobody allocates on a lcore and nobody frees another thread's memory.
 */
#ifndef RY_MSG_H
#define RY_MSG_H

#include <stdalign.h>
#include <stdbool.h>
#include <stdint.h>

#include <railyard/status.h>
#include <railyard/types.h>

#include "daemon/config.h"
#include "wire/wire.h"

#ifdef __cplusplus
extern "C" {
#endif

struct qp;

enum msg_kind {
	/* conn -> control */
	MSG_META_RX = 1,     /* struct meta_buf of conn's pool: a checked metadata message of a peer */
	MSG_META_SENT = 2,   /* struct meta_buf of control's pool comes back: handed to the kernel */
	MSG_META_UNSENT = 3, /* the same, but the pair was gone: nothing was sent */
	MSG_PAIR_UP = 4,     /* struct pair_event */
	MSG_PAIR_DOWN = 5,   /* struct pair_event; control must answer MSG_PAIR_QUIESCED */
	MSG_DIAL_FAILED = 6, /* struct dial_event: an attempt ended without a pair */
	MSG_DIAL_FAULT =
		7, /* struct dial_fault of one dialler: an attempt of its own failed; control must give it back */
	/* control -> conn */
	MSG_META_TX = 16,       /* struct meta_buf of control's pool: send it on pair_idx */
	MSG_META_REPLY = 17,    /* struct meta_buf of conn's pool: send it on pair_idx, then it is conn's again */
	MSG_META_DROP = 18,     /* struct meta_buf of conn's pool: nothing to send */
	MSG_PAIR_QUIESCED = 19, /* the pair_event of the PAIR_DOWN: no more segments will name this pair's QPs */
	MSG_PAIR_KILL = 20,     /* struct pair_kill, inside control's pair record: BYE(reason), close, rebuild */
	MSG_DIAL = 21, /* struct dial_event, inside control's peer record: dial this store now if it is not connected or
			* being dialled; returned as MSG_DIAL_FAILED, or as MSG_DIAL_DONE when a pair came up */
	MSG_DIAL_DONE = 22,
	MSG_DIAL_FAULT_SEEN = 23, /* the dial_fault: the next failed attempt may be told */
	/* api <-> control: struct api_call (daemon/control.h) */
	MSG_API = 32,
};

struct msg {
	uint16_t kind; /* enum msg_kind */
};

/* One metadata message, prefix included, in wire form. */
struct meta_buf {
	struct msg m;
	uint16_t pair_idx;
	uint32_t len_bytes;
	uint32_t pair_epoch; /* RX: of the connection it came from. TX, REPLY: sent only on that connection */
	void *op;            /* control's record (TX) */
	alignas(8) uint8_t data[WIRE_META_MAX_BYTES];
};

static inline const struct wire_meta *meta_head(const struct meta_buf *b)
{
	return (const struct wire_meta *)(const void *)b->data;
}

/*
 * One connection incarnation of one pair (local rail, peer rail). Made by conn; immutable from MSG_PAIR_UP until conn
 * has received MSG_PAIR_QUIESCED for it.
 */
#define PAIR_QPS_MAX 8u
#define PAIRS_MAX 1024u

struct pair {
	uint16_t idx; /* of the pair table; reused only after QUIESCED */
	uint16_t rail_idx;
	uint16_t n_qps;
	uint16_t store_idx;    /* dialled: index in config.stores; 0xffff: accepted */
	uint16_t endpoint_idx; /* dialled: of the store; when the store is this node, the rail */
	bool is_dialler;
	bool is_self;           /* both ends in this process (mock) */
	uint16_t peer_rail_idx; /* what the peer calls its end, below RY_RAILS_MAX */
	uint32_t features;      /* of the peer: WIRE_FEATURE_* */
	uint32_t epoch;         /* connection incarnation, unique in this process */
	uint64_t node_id;       /* of the peer */
	uint64_t incarnation;
	char node_name[RY_NAME_MAX_BYTES];
	char rail_name[RY_NAME_MAX_BYTES]; /* peer's */
	struct qp *qps[PAIR_QPS_MAX];
};

struct pair_event {
	struct msg m;
	uint8_t reason;   /* DOWN: enum wire_bye_reason when announced, 0 = lost */
	uint8_t evidence; /* DOWN: enum rail_evidence, what the loss says about the path */
	uint32_t status;  /* DOWN: enum ry_status for what was in flight */
	const struct pair *pair;
	char cause[RY_CAUSE_MAX_BYTES];
};

struct dial_event {
	struct msg m;
	uint16_t store_idx;
	uint16_t rail_idx; /* answer: the rail that connected, or the last one that failed; all rails of the store are
			      tried */
	uint32_t status;
	uint64_t asked_at; /* conn's own: how many attempts had begun; those are no answer */
	char cause[RY_CAUSE_MAX_BYTES];
};

/* One failed attempt of a configured pair. Each dialler has one: while control has it, further failures are not told.
 */
struct dial_fault {
	struct msg m;
	uint16_t store_idx;
	uint16_t endpoint_idx;
	uint16_t rail_idx;
	uint8_t evidence; /* enum rail_evidence */
	uint32_t status;
};

/* Which endpoints of a store each local rail should be connected to, as masks of rails. Written by control, read by
 * conn, each word for itself; control kicks conn after a change. */
struct dial_wants {
	uint32_t rails[CONFIG_STORES_MAX][RY_RAILS_MAX];
};

struct pair_kill {
	struct msg m;
	uint16_t pair_idx;
	uint32_t pair_epoch;
	uint8_t reason; /* enum wire_bye_reason */
};

#ifdef __cplusplus
}
#endif
#endif
