/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The life of a window: who may write to memory, and when the memory may be shown or reused.
 *
 * Reader (control, rail lcore, conn, and for verbs the device), store, and a network that keeps order within one QP and promises nothing
 * else. Two forms. Verbs: the device places bytes by itself, as long as the window's key is valid; the fence is ibv_dealloc_mw on conn.
 * SOFT (tcp, mock): the rail lcore places bytes, piece by piece, asking for the window's state each time; the fence is that state.
 * Timers (deadline, fence_timeout, retries) may fire at any moment and are the only thing that can happen when all else is silent. A read's
 * number is its request id and the salt of its key. Every run ends; docs/model.md says how to run this and what the BROKEN_ variants show.
 */
#ifndef READS
#define READS 2 /* at most 3 */
#endif
#ifndef EXTENTS
#define EXTENTS 2 /* pieces of memory, and slots: so many reads at a time; at most 2 */
#endif
#ifndef WRITES
#define WRITES 1 /* of the store for one read */
#endif
#ifndef ROGUES
#define ROGUES 1 /* messages that a wrong or late store sends at any time, to keys it knows */
#endif
#ifndef BYES
#define BYES 0 /* of the peer, on the bootstrap socket, overtaking what is under way */
#endif
#ifndef LOSSES
#define LOSSES 1 /* of a QP, out of the blue */
#endif
#define QPS 2     /* the QP and, after a loss, the one that replaces it */
#define PIECES 1  /* of a frame (SOFT) */
#define SQ_ROOM 4 /* of the device's send queue: a BIND and a READ for each slot */

mtype = { BIND, READ, CANCEL, INV, WRITE, PIECE, DONE };                                /* messages and work requests */
mtype = { IDLE, HELD, POSTED, CANCELLING, FENCING, CLOSING, LANDED, ENDED };            /* a read's one segment */
mtype = { FREE, BOUND, INVALIDATING, DEAD };                                            /* a window */
mtype = { UNUSED, CHARGED, SHOWN };                                                     /* memory */
mtype = { RTS, ERR, GONE };                                                             /* a QP */

typedef read {
	mtype state = IDLE;
	byte extent;
	byte slot;
	byte on; /* QP */
	bool cancel_due;  /* CANCEL waits for room in the send queue */
	bool is_answered; /* DONE was taken */
	bool done_came;   /* and it named this very read */
	bool inv_posted;
	bool is_fenced;
	bool is_ok
};

typedef window {
	mtype state = FREE;
	byte key;
	byte on /* QP */
};

typedef memory {
	mtype state = UNUSED;
	byte owner
};

read rd[READS];
window win[EXTENTS];
bool slot_used[EXTENTS];
memory mem[EXTENTS];
mtype qp_state[QPS] = RTS;
bool is_down[QPS]; /* the rail knows it */
byte qp_now;       /* the one that control hands out reads for */
byte n_active[QPS];

chan events = [READS] of { byte };
chan to_store[QPS] = [2] of { mtype, byte };
chan to_reader[QPS] = [2] of { mtype, byte };
chan bye = [1] of { byte };
#ifndef SOFT
chan sq[QPS] = [SQ_ROOM] of { mtype, byte };
chan cq = [2] of { mtype, byte };
chan to_conn = [READS] of { byte };
bool is_stuck[QPS]; /* nothing leaves any more */
#else
byte rx_key[QPS];
byte rx_left[QPS];
bool rx_open[QPS];
#endif

/* ---- What must hold ---- */
#ifdef UNTIDY
#define TIDY(x) true /* to see what a broken variant does to memory, not what else it does on the way */
#else
#define TIDY(x) (x)
#endif

inline land(r)
{
	/* nothing that was hashed, shown, freed or reused is written */
	assert(rd[r].state != LANDED && rd[r].state != ENDED && mem[rd[r].extent].state == CHARGED && mem[rd[r].extent].owner == r)
}

inline before_inv(r)
{
	assert(rd[r].done_came);   /* only after DONE */
	assert(!rd[r].inv_posted); /* at most once */
	rd[r].inv_posted = true
}

/* ---- A QP is lost: what is queued is flushed, what arrives is dropped ---- */
inline flush(c)
{
	do
	:: nempty(c) -> c?_(_)
	:: empty(c) -> break
	od
}

inline kill(q)
{
	if
	:: qp_state[q] == RTS ->
		qp_state[q] = ERR;
#ifndef SOFT
		is_stuck[q] = false;
		flush(sq[q]);
		flush(to_reader[q]);
#endif
		flush(to_store[q])
	:: else
	fi
}

/* ---- The rail lcore: one process for each segment, every step one turn of the same loop ---- */
inline finish(r, ok)
{
	rd[r].state = ENDED;
	rd[r].is_ok = ok;
	rd[r].cancel_due = false;
	rd[r].is_answered = false;
	rd[r].done_came = false;
	rd[r].inv_posted = false;
	n_active[rd[r].on]--;
	events!r
}

/* The window is closed for good: the slot is free again. */
inline leave_slot(r)
{
	slot_used[rd[r].slot] = false
}

inline closed(r)
{
	leave_slot(r);
	rd[r].state = LANDED
}

inline settle(r)
{
	if
	:: rd[r].state == POSTED || rd[r].state == CANCELLING ->
		if
		:: rd[r].state == CANCELLING -> skip /* witness: DONE after cancel */
		:: else
		fi;
		rd[r].is_answered = true;
		rd[r].cancel_due = false;
#ifdef BROKEN_SHOWN_BEFORE_INV
		rd[r].state = LANDED
#else
		rd[r].state = CLOSING;
		soft_invalidating(r)
#endif
	:: else -> skip /* witness: a late or second DONE is ignored */
	fi
}

/* The request id must be the one that is in the slot. */
inline answer(r)
{
	rd[r].done_came = rd[r].state != ENDED;
#ifdef BROKEN_ID_IGNORED
	if
	:: rd[r].state == ENDED && rd[1 - r].slot == rd[r].slot && rd[1 - r].state != IDLE -> r = 1 - r
	:: else
	fi;
#endif
	settle(r)
}

#ifdef SOFT
#define room(q) nfull(to_store[q])
#define room_to_post(q) nfull(to_store[q])
#define no_room_to_post(q) full(to_store[q])
#define room_to_close(q) true

inline post_read(r)
{
	win[rd[r].slot].state = BOUND;
	win[rd[r].slot].key = r;
	win[rd[r].slot].on = rd[r].on;
	to_store[rd[r].on]!READ(r)
}

inline post(op, r)
{
	to_store[rd[r].on]!op(r)
}

inline soft_invalidating(r)
{
	win[rd[r].slot].state = INVALIDATING
}

/* WR_INV and its completion. */
inline invalidate(r)
{
	before_inv(r);
	win[rd[r].slot].state = FREE;
	closed(r)
}

/* Closing is a matter of state; the socket may live on, what still comes is sunk. */
inline fence(r)
{
#ifndef BROKEN_FENCE_ONLY_WAITS
	win[rd[r].slot].state = DEAD;
#endif
	leave_slot(r);
	finish(r, false);
	if
	:: true
	:: true -> kill(rd[r].on)
	fi
}

inline lost(r)
{
	if
	:: rd[r].is_answered -> win[rd[r].slot].state = DEAD; closed(r) /* witness: DONE came, then the socket was lost */
	:: else -> win[rd[r].slot].state = DEAD; leave_slot(r); finish(r, false)
	fi
}
#else
#define room(q) nfull(sq[q])
#define room_to_post(q) (len(sq[q]) <= SQ_ROOM - 2)
#define no_room_to_post(q) (len(sq[q]) > SQ_ROOM - 2)
#define room_to_close(q) nfull(sq[q])

inline post_read(r)
{
	sq[rd[r].on]!BIND(r);
	sq[rd[r].on]!READ(r)
}

inline post(op, r)
{
	sq[rd[r].on]!op(r)
}

inline soft_invalidating(r)
{
	skip
}

inline invalidate(r)
{
	before_inv(r);
	sq[rd[r].on]!INV(r)
}

inline fence(r)
{
	rd[r].state = FENCING;
	rd[r].cancel_due = false;
	to_conn!r
}

/* A lost QP says nothing about its windows: each is fenced. */
inline lost(r)
{
#ifdef BROKEN_BYE_IS_FENCE
	leave_slot(r);
	finish(r, false)
#else
	fence(r)
#endif
}
#endif

inline take_slot(r)
{
	if
	:: !slot_used[0] -> rd[r].slot = 0
#if EXTENTS > 1
	:: !slot_used[1] -> rd[r].slot = 1
#endif
	fi;
	slot_used[rd[r].slot] = true
}

#define my rd[r]
#define is_posted (my.state == POSTED || my.state == CANCELLING || my.state == CLOSING)

proctype segment(byte r)
{
	do
	:: atomic { my.state == HELD && (is_down[my.on] || no_room_to_post(my.on)) -> finish(r, false) } /* lost, or cancelled */
	:: atomic { my.state == HELD && !is_down[my.on] && room_to_post(my.on) ->
		take_slot(r);
		post_read(r);
		my.state = POSTED }

	/* deadline or cancel; the fence's clock runs from here, whether there is room for CANCEL or not */
#ifdef BROKEN_CANCEL_FREES
	:: atomic { my.state == POSTED -> leave_slot(r); finish(r, false) }
#elif defined(BROKEN_CLOCK_NEEDS_ROOM)
	:: atomic { my.state == POSTED && room(my.on) -> post(CANCEL, r); my.state = CANCELLING }
#else
	:: atomic { my.state == POSTED -> my.cancel_due = true; my.state = CANCELLING }
#endif
	:: atomic { my.cancel_due && room(my.on) ->
		my.cancel_due = false;
		post(CANCEL, r);
#ifdef BROKEN_INV_AT_CANCEL
		invalidate(r)
#endif
	}
#ifndef BROKEN_NO_FENCE
	:: atomic { my.state == CANCELLING -> fence(r) }
#endif
	:: atomic { is_posted && is_down[my.on] -> lost(r) }

	:: atomic { my.state == CLOSING && !my.inv_posted && !is_down[my.on] && room_to_close(my.on) -> invalidate(r) }
#ifndef SOFT
	:: atomic { my.state == FENCING && my.is_fenced ->
		if
		:: my.is_answered -> closed(r) /* witness: DONE came, then the QP was lost */
		:: else -> leave_slot(r); finish(r, false)
		fi }
#endif
	:: atomic { my.state == LANDED -> finish(r, true) }
	:: my.state == ENDED -> break
	od
}

#ifdef SOFT
/* ---- The rail lcore reads its sockets ---- */
#ifdef BROKEN_NO_SALT
#define resolves(q, r) (win[rd[r].slot].state == BOUND && win[rd[r].slot].on == q)
#else
#define resolves(q, r) (win[rd[r].slot].state == BOUND && win[rd[r].slot].on == q && win[rd[r].slot].key == r)
#endif

inline place(q, r)
{
	if
#ifdef BROKEN_POINTER_KEPT
	:: rx_open[q] -> land(r)
#else
	:: resolves(q, r) -> land(r)
#endif
	:: else -> skip /* witness: a piece is sunk */
	fi
}

proctype receiver(byte q)
{
	mtype what;
	byte r;

end:
	do
	:: atomic { !is_down[q] && nempty(to_reader[q]) ->
		to_reader[q]?what(r);
		if
		:: what == WRITE -> rx_open[q] = resolves(q, r)
		:: what == PIECE -> place(q, r)
		:: what == DONE -> answer(r)
		fi;
		what = 0;
		r = 0 }
	:: atomic { !is_down[q] && qp_state[q] != RTS -> is_down[q] = true; flush(to_reader[q]) }
	od
}
#else
/* ---- The rail lcore reaps its completions ---- */
active proctype reaper()
{
	byte r;

end:
	do
	:: atomic { cq?INV(r) ->
		if
		:: my.state == CLOSING -> closed(r)
		:: else -> skip
		fi;
		r = 0 }
	:: atomic { cq?DONE(r) ->
		if
		:: is_down[my.on] -> skip /* witness: DONE of a lost QP */
		:: else -> answer(r)
		fi;
		r = 0 }
	:: atomic { qp_state[0] != RTS && !is_down[0] -> is_down[0] = true }
	:: atomic { qp_state[1] != RTS && !is_down[1] -> is_down[1] = true }
	od
}

/* ---- The reader's device ---- */
inline execute(q, op, r)
{
	if
	:: op == BIND && !my.is_fenced ->
		assert(TIDY(win[my.slot].state == FREE));
		win[my.slot].state = BOUND;
		win[my.slot].key = r;
		win[my.slot].on = q
	:: op == BIND && my.is_fenced -> kill(q) /* the window is gone */
	:: op == READ || op == CANCEL -> to_store[q]!op(r)
	:: op == INV ->
		assert(win[my.slot].state == BOUND && win[my.slot].key == r); /* a second one panics or kills the QP */
		win[my.slot].state = FREE;
		cq!INV(r)
	fi
}

inline receive(q, what, r)
{
	if
	:: what == DONE -> cq!DONE(r)
	:: what == WRITE && win[my.slot].state == BOUND && win[my.slot].key == r && win[my.slot].on == q -> land(r)
	:: else -> kill(q) /* witness: a write is refused, and kills the QP */
	fi
}

proctype device(byte q)
{
	mtype what;
	byte r;

end:
	do
	:: atomic { qp_state[q] == RTS && !is_stuck[q] && nempty(sq[q]) && nfull(to_store[q]) && nfull(cq) ->
		sq[q]?what(r);
		execute(q, what, r);
		what = 0;
		r = 0 }
	:: atomic { qp_state[q] == RTS && nempty(to_reader[q]) && nfull(cq) ->
		to_reader[q]?what(r);
		receive(q, what, r);
		what = 0;
		r = 0 }
#ifdef SILENCE
	:: atomic { qp_state[q] == RTS && !is_stuck[q] && nempty(sq[q]) -> is_stuck[q] = true }
#ifndef BROKEN_RETRY_FOR_EVER
	:: atomic { qp_state[q] == RTS && is_stuck[q] -> kill(q) } /* retries exceeded */
#endif
#endif
	od
}
#endif

/* ---- conn: fences, BYE, and a new QP for a lost one ---- */
inline no_window_on(q)
{
	assert(TIDY(win[0].state != BOUND || win[0].on != q)); /* destroying it would hang */
#if EXTENTS > 1
	assert(TIDY(win[1].state != BOUND || win[1].on != q));
#endif
}

#define replaceable(q) (qp_now == q && q + 1 < QPS && is_down[q] && n_active[q] == 0)

active proctype conn()
{
	byte r;

end:
	do
#ifndef SOFT
	:: to_conn?r ->
		atomic {
#ifndef BROKEN_FENCE_ONLY_WAITS
			if
			:: win[my.slot].state == BOUND && win[my.slot].key == r -> win[my.slot].state = FREE /* dealloc_mw; a fresh one */
			:: else -> skip /* witness: fenced before its BIND was executed */
			fi;
#endif
			my.is_fenced = true
		};
		atomic { kill(my.on); r = 0 } /* announced by BYE; a late write would kill it anyway */
#endif
	:: atomic { bye?r ->
#ifdef BROKEN_BYE_IS_FENCE
		is_down[r] = true;
#else
		kill(r);
#endif
		r = 0 }
	:: atomic { replaceable(0) -> no_window_on(0); qp_state[0] = GONE; qp_now = 1 }
	od
}

#include "window_store.pml"

/* ---- Control ---- */
inline take_memory(r)
{
	if
	:: mem[0].state == UNUSED -> rd[r].extent = 0
#if EXTENTS > 1
	:: mem[1].state == UNUSED -> rd[r].extent = 1
#endif
	fi;
	mem[rd[r].extent].state = CHARGED;
	mem[rd[r].extent].owner = r
}

#if EXTENTS > 1
#define has_memory (mem[0].state == UNUSED || mem[1].state == UNUSED)
#else
#define has_memory (mem[0].state == UNUSED)
#endif

init
{
	byte next, n_ended, r;

	atomic {
#ifdef SOFT
		run receiver(0);
		run receiver(1)
#else
		run device(0);
		run device(1)
#endif
	};
	do
	:: atomic { next < READS && has_memory ->
		take_memory(next);
		rd[next].on = qp_now;
		n_active[qp_now]++;
		rd[next].state = HELD;
		run segment(next);
		next++ }
	:: atomic { events?r ->
		n_ended++;
		mem[rd[r].extent].state = (rd[r].is_ok -> SHOWN : UNUSED);
		r = 0 }
	:: atomic { next < READS && mem[0].state == SHOWN -> mem[0].state = UNUSED } /* the client gives it back */
#if EXTENTS > 1
	:: atomic { next < READS && mem[1].state == SHOWN -> mem[1].state = UNUSED }
#endif
	:: n_ended == READS -> break
	od
}
