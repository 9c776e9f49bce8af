/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Queue pairs, windows and requests as the rail lcore and its transport see them.
 *
 * Seen by dataplane/hot, dataplane/store/serve_hot.c and the transports; never by control. A QP belongs to conn before
 * adoption and after release, to the rail lcore in between; only its state word is read across threads.
 */
#ifndef RY_HOT_QP_H
#define RY_HOT_QP_H

#include <assert.h>
#include <stdalign.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rail/rail_ctl.h"
#include "rail/segment.h"
#include "store/source.h"
#include "wire/wire.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Windows: one per active segment, then one per request that is served by a grant. A window's index is its
 * segment's slot, or SERVE_SLOT + the request's place. ---- */
#define SERVE_SLOT RAIL_ACTIVE_MAX
#define WINDOWS_MAX (RAIL_ACTIVE_MAX + RAIL_SERVE_MAX)

enum window_access {
	WINDOW_WRITES = 1, /* the peer may write */
	WINDOW_READS = 2,  /* the peer may read */
};

enum window_state {
	WINDOW_FREE = 0,
	WINDOW_BOUND = 1,        /* the peer has its access */
	WINDOW_INVALIDATING = 2, /* WR_INV posted */
	WINDOW_DEAD = 3,         /* closed by a fence or a lost QP; nothing may land */
};

struct window {
	uint8_t *addr;
	uint64_t len_bytes;
	struct qp *qp;
	uint32_t key;    /* slot | salt << WINDOW_SLOT_BITS with a fresh salt at every bind; of a device window the
			    device's */
	uint16_t region; /* that it lies in */
	uint8_t access;  /* enum window_access, or-ed */
	uint8_t state;   /* enum window_state; in quarantine FREE, and key and offset are the region's */
	uint64_t offset; /* how the peer names its first byte: 0, in quarantine the address */
};

#define WINDOW_SLOT_BITS 8
static_assert((1u << WINDOW_SLOT_BITS) == RAIL_ACTIVE_MAX, "a window per slot");

/* ---- A peer's request while this rail serves it ---- */
enum grant_state {
	GRANT_NONE = 0,
	GRANT_GIVEN = 1,   /* GRANT is out: the peer reads */
	GRANT_CLOSING = 2, /* PULLED or CANCEL came: the window is to be invalidated */
	GRANT_CLOSED = 3,  /* WR_INV is out */
};

struct serve_req {
	struct serve_req *next; /* QP's queue, or the free list */
	struct qp *qp;
	struct source *source;
	uint64_t request_id;
	uint64_t recv_ns;
	uint64_t start_ns;  /* first write posted */
	uint64_t expire_ns; /* no write is posted at or after this */
	uint64_t bytes;     /* asked for */
	uint64_t bytes_posted;
	uint32_t key;
	uint32_t status;
	uint16_t n_parts;
	uint16_t part;     /* next to post, and */
	uint32_t part_off; /* bytes of it posted */
	uint16_t n_writes; /* posted and not completed */
	bool is_cancelled;
	bool is_answered; /* DONE was posted */
	bool is_pull;     /* PULL: by writes where windows are software, by a grant where they are the device's */
	uint8_t grant;    /* enum grant_state */
	struct wire_part parts[WIRE_PARTS_MAX];
};

/* A FIFO of segments linked by segment.next. */
struct seg_fifo {
	struct segment *head;
	struct segment *tail;
	uint32_t n;
};

/* ---- One queue pair. A transport embeds it as the first member of its own struct. ---- */
struct qp {
	/* written by the transport in pair_connect, read-only afterwards */
	uint16_t rail_idx;
	uint16_t pair_idx;
	uint16_t peer_idx;
	uint16_t qp_idx;
	bool is_dialler;
	uint16_t peer_credits; /* granted by the peer */
	bool peer_grants; /* answers PULL with GRANT; where ends have addresses conn writes it in qp_remote, before any
				segment names the QP */
	/* written by the rail lcore */
	alignas(64) uint32_t credits; /* READs we may still post */
	uint32_t n_posted;            /* segments POSTED .. CLOSING on it */
	struct seg_fifo held;         /* waiting for a credit */
	uint64_t starved_ns;          /* since when, with no answer to come that could bring one; 0 = not */
	struct serve_req *serve_head; /* requests of the peer, in order */
	struct serve_req *serve_tail;
	uint64_t rx_bytes; /* that landed for segments of it; read by control, too, relaxed */
	uint32_t n_odd; /* messages of the peer that nothing waits for or that are not allowed; read by conn, relaxed */
	uint32_t n_owed; /* answers that are still to come of requests that a fence has ended */
	uint32_t n_serve;
	uint32_t n_writes;      /* posted and not completed */
	uint32_t deficit_bytes; /* deficit round robin */
	uint16_t slot;          /* in rail->qps */
	bool is_down;           /* reported by the transport, or given up: nothing more is posted */
	bool is_ended;          /* and nothing of it is left: segments and requests are gone */
	bool want_release;      /* conn waits for it */
	uint8_t fail_status;    /* enum wc_status */
	/* written by the rail lcore (release), read by conn (acquire) */
	alignas(64) uint32_t state; /* enum qp_state */
};

/* Entries of the adopt ring are QP pointers; this bit set = release. The release of no QP is rail_detach. */
#define RAIL_RELEASE_BIT 1ul
#define RAIL_TAKE_UP 2ul /* no QP either: rail_attach */

/* The log is told of it, by conn. Not for what honest peers may do: a CANCEL crosses its DONE. */
static inline void qp_odd(struct qp *qp)
{
	__atomic_store_n(&qp->n_odd, qp->n_odd + 1, __ATOMIC_RELAXED);
}

/* An answer to nothing. Those of fenced requests come late from an honest peer, too: each once. */
static inline void qp_late(struct qp *qp)
{
	if (qp->n_owed)
		qp->n_owed--;
	else
		qp_odd(qp);
}

static inline void seg_push(struct seg_fifo *f, struct segment *s)
{
	s->next = NULL;
	if (f->tail)
		f->tail->next = s;
	else
		f->head = s;
	f->tail = s;
	f->n++;
}

static inline struct segment *seg_pop(struct seg_fifo *f)
{
	struct segment *s = f->head;

	if (!s)
		return NULL;
	f->head = s->next;
	if (!f->head)
		f->tail = NULL;
	f->n--;
	return s;
}

#ifdef __cplusplus
}
#endif
#endif
