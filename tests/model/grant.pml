/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * PULL over windows of a device: GRANT, RDMA READ, PULLED (dataplane/hot/grant_hot.c, dataplane/store/serve_grant_hot.c).
 *
 * One QP, in order both ways. The writer has two places for windows, so that a place is used again; each bind has a key
 * of its own. The store READs in two pieces that the writer's device lets in, or not, one by one. The store may cancel,
 * be silent, and say PULLED or CANCEL again of any request it ever had (rogue). Timers fire and the QP is lost at any moment;
 * giving a QP up and its fence are two steps, and READs go on between them. See docs/model.md.
 */
#ifndef PULLS
#define PULLS 3
#endif
#ifndef ROGUES
#define ROGUES 1
#endif
#ifndef CANCELS
#define CANCELS 1
#endif
#ifndef LOSSES
#define LOSSES 1
#endif

mtype = { PULL, GRANT, PULLED, CANCEL, DONE };
mtype = { NONE, GIVEN, CLOSING, CLOSED };

typedef window {
	mtype grant = NONE;
	byte id; /* of the PULL it is for */
	byte key;
	bool is_bound;     /* at the device */
	bool is_answered;  /* PULLED or CANCEL of `id` came */
	bool is_posted;    /* LOCAL_INV */
	bool is_cancelled;
};

chan to_writer = [12] of { mtype, byte, byte }; /* what, request, cookie */
chan to_store = [12] of { mtype, byte, byte, byte }; /* what, request, cookie, key */
window w[2];
byte next_key, n_losses = LOSSES, n_rogues = ROGUES, n_cancels = CANCELS;
bool is_freed[PULLS + 1];  /* the source of this PULL is the client's again */
bool is_reused[PULLS + 1]; /* the store's memory of this PULL is another's */
bool writer_gave_up, writer_fenced, store_gave_up, store_fenced, store_done, is_rogue;

#define IS_LOST (writer_gave_up || store_gave_up)

/* One piece of a READ, at the writer's device and into the store's memory. */
inline read_piece(id, cookie, key, is_refused)
{
	d_step {
		is_refused = writer_fenced || store_fenced || !w[cookie].is_bound || w[cookie].key != key;
		if
		:: is_refused ->
			/* Honest peers never meet a closed window. */
			assert(IS_LOST || is_rogue);
		:: else ->
			assert(!is_freed[id]);
			assert(!is_reused[id]);
		fi
	}
}

active proctype store()
{
	byte id, i, c, cookie, key, pieces;
	bool is_waiting, is_reading, is_cancelling, is_refused;

next:
	if
	:: IS_LOST -> goto lost
	:: !IS_LOST && id == PULLS -> goto ended
	:: else -> id++; is_waiting = true; is_reading = false; is_cancelling = false; pieces = 0
	fi;
	to_writer!PULL, id, 0;
	do
	:: to_store?GRANT, i, c, key ->
		if
		:: i == id && is_waiting && !is_cancelling -> cookie = c; is_waiting = false; is_reading = true
		:: i == id && is_cancelling -> skip /* witness: GRANT passed CANCEL on the way */
		:: else -> skip
		fi
	:: to_store?DONE, i, c, key ->
		if
		:: i == id && is_cancelling -> is_reused[id] = true; goto next
		:: else -> skip
		fi
	:: is_reading && pieces < 2 ->
		read_piece(id, cookie, key, is_refused);
		if
		:: is_refused -> store_gave_up = true; is_reading = false /* witness: a READ was refused */
		:: else -> pieces++
		fi
	:: is_reading && pieces == 2 && !IS_LOST ->
		to_writer!PULLED, id, cookie;
		is_reused[id] = true; /* hashed, committed */
		goto next
	:: is_waiting && !is_cancelling && n_cancels > 0 && !IS_LOST ->
		n_cancels--;
		is_cancelling = true;
		to_writer!CANCEL, id, 0
	:: n_rogues > 0 && !IS_LOST ->
		n_rogues--;
		is_rogue = true;
		select(i : 1 .. id);
		if
		:: to_writer!PULLED, i, i & 1
		:: to_writer!CANCEL, i, 0
		fi
#ifdef SILENCE
	:: is_reading -> goto silent /* PULLED never comes */
#endif
	:: n_losses > 0 && !IS_LOST -> n_losses--; store_gave_up = true
	:: IS_LOST || is_waiting || is_cancelling -> break /* lost, or its patience is over */
	od;
	goto lost;
#ifdef SILENCE
silent:
	IS_LOST; /* witness: a silent store */
#endif
lost:
	store_gave_up = true;
#ifdef BROKEN_STORE_FREES_EARLY
	is_reused[id] = true;
#endif
	do /* what it posted goes on until its fence */
	:: is_reading && pieces < 2 -> read_piece(id, cookie, key, is_refused); pieces++
	:: break
	od;
	skip;
	d_step { store_fenced = true; is_reused[id] = true };
ended:
	store_done = true;
end:
	do
	:: to_store?_, i, c, key
	od
}

inline open(c, i)
{
	d_step {
		assert(!w[c].is_bound);
		next_key++;
		w[c].id = i;
		w[c].key = next_key;
		w[c].is_bound = true;
		w[c].is_answered = false;
		w[c].is_posted = false;
		w[c].is_cancelled = false;
		w[c].grant = GIVEN;
	}
	to_store!GRANT, i, c, next_key
}

inline post_inv(c)
{
	d_step {
		assert(!w[c].is_posted);
		assert(w[c].is_answered);
		w[c].is_posted = true;
		w[c].grant = CLOSED;
	}
}

inline closed(c)
{
	d_step {
		assert(w[c].is_bound);
		w[c].is_bound = false;
		w[c].grant = NONE;
		is_freed[w[c].id] = true;
	}
	if
	:: w[c].is_cancelled -> to_store!DONE, w[c].id, c, 0
	:: else -> skip
	fi
}

#ifdef BROKEN_ID_IGNORED
#define IS_OF(c, i) true
#else
#define IS_OF(c, i) (w[c].id == i)
#endif
#ifdef BROKEN_STATE_IGNORED
#define IS_OPEN(c) (w[c].grant != NONE)
#else
#define IS_OPEN(c) (w[c].grant == GIVEN)
#endif

active proctype writer()
{
	byte i, c, held; /* a PULL that waits for its place */

	do
	:: !writer_gave_up && !held && to_writer?[PULL, _, _] -> to_writer?PULL, held, _
	:: !writer_gave_up && held && w[held & 1].grant == NONE -> open(held & 1, held); held = 0
	:: !writer_gave_up && to_writer?[PULLED, _, _] ->
		to_writer?PULLED, i, c;
		if
		:: IS_OPEN(c) && IS_OF(c, i) ->
			w[c].is_answered = w[c].is_answered || w[c].id == i;
			w[c].grant = CLOSING
		:: else -> skip /* witness: a PULLED that nobody waits for */
		fi
	:: !writer_gave_up && to_writer?[CANCEL, _, _] ->
		to_writer?CANCEL, i, _;
		c = i & 1;
		if
		:: held == i -> held = 0; to_store!DONE, i, c, 0
		:: held != i && IS_OPEN(c) && w[c].id == i ->
			d_step { w[c].is_answered = true; w[c].is_cancelled = true; w[c].grant = CLOSING }
		:: else -> skip
		fi
	:: w[0].grant == CLOSING && !writer_gave_up -> post_inv(0)
	:: w[1].grant == CLOSING && !writer_gave_up -> post_inv(1)
	:: w[0].grant == CLOSED && !writer_gave_up -> closed(0)
	:: w[1].grant == CLOSED && !writer_gave_up -> closed(1)
#ifdef BROKEN_CLOSES_UNASKED
	:: w[0].grant == GIVEN -> d_step { w[0].is_bound = false; w[0].grant = NONE; is_freed[w[0].id] = true }
	:: w[1].grant == GIVEN -> d_step { w[1].is_bound = false; w[1].grant = NONE; is_freed[w[1].id] = true }
#endif
#ifndef BROKEN_NO_EXPIRY
	:: (w[0].grant == GIVEN || w[1].grant == GIVEN) && !writer_gave_up ->
		writer_gave_up = true /* witness: a window is kept past its time */
#endif
	:: store_fenced && !writer_gave_up -> writer_gave_up = true
	:: n_losses > 0 && !IS_LOST -> n_losses--; writer_gave_up = true
	:: writer_gave_up -> break
	:: store_done && !IS_LOST && !held && w[0].grant == NONE && w[1].grant == NONE && empty(to_writer) -> goto ended
	od;
	skip; /* a jump must not lead into a d_step */
#ifdef BROKEN_SOURCE_GOES_AT_LOSS
	d_step { is_freed[w[0].id] = true; is_freed[w[1].id] = true };
#endif
	d_step {
		writer_fenced = true; /* witness: a fence at the writer */
		w[0].is_bound = false;
		w[1].is_bound = false;
		w[0].grant = NONE;
		w[1].grant = NONE;
		is_freed[w[0].id] = true;
		is_freed[w[1].id] = true
	};
ended:
	skip
}
