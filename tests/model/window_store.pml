/* SPDX-License-Identifier: BSD-3-Clause */
/* The store's side of window.pml, and everything it may do wrong: late, twice, unasked, or not at all. */
byte left[READS]; /* 0 = not served; 1 = only DONE is left */
bool known[READS];
byte rogues = ROGUES;
byte byes = BYES;
byte losses = LOSSES;
#ifdef SOFT
byte pieces[QPS]; /* of the frame being sent */
byte piece_key[QPS];
#define may_start(q) (pieces[q] == 0 && nfull(to_reader[q]) && qp_state[q] == RTS)
#else
#define may_start(q) (nfull(to_reader[q]) && qp_state[q] == RTS)
#endif

inline start_write(q, r)
{
	to_reader[q]!WRITE(r);
#ifdef SOFT
	pieces[q] = PIECES;
	piece_key[q] = r
#endif
}

inline rogue()
{
	rogues--;
	if
	:: rogues == 0 ->
		known[0] = false;
		known[READS - 1] = false;
		known[READS / 2] = false
	:: else
	fi
}

#define SERVE(r) \
	:: atomic { left[r] > 1 && may_start(rd[r].on) -> left[r]--; start_write(rd[r].on, r) } \
	:: atomic { left[r] == 1 && may_start(rd[r].on) -> left[r] = 0; to_reader[rd[r].on]!DONE(r) } \
	:: atomic { rogues > 0 && known[r] && may_start(rd[r].on) -> rogue(); start_write(rd[r].on, r) } \
	:: atomic { rogues > 0 && known[r] && may_start(rd[r].on) -> rogue(); to_reader[rd[r].on]!DONE(r) }

#define SERVE_QP(q) \
	:: atomic { nempty(to_store[q]) && nfull(to_reader[q]) -> listen(q) } \
	:: atomic { byes > 0 && qp_state[q] == RTS -> byes--; bye!q } \
	:: atomic { losses > 0 && qp_state[q] == RTS -> losses--; kill(q) }

inline listen(q)
{
	if
	:: to_store[q]?READ(r) -> left[r] = WRITES + 1; known[r] = rogues > 0
	:: to_store[q]?CANCEL(r) ->
		if
		:: left[r] > 0 -> left[r] = 1 /* posts nothing more; DONE says CANCELLED */
		:: else -> skip /* witness: CANCEL crosses DONE */
		fi
	fi;
	r = 0
}

active proctype store()
{
	byte r;

end:
	do
	SERVE(0)
#if READS > 1
	SERVE(1)
#endif
#if READS > 2
	SERVE(2)
#endif
	SERVE_QP(0)
	SERVE_QP(1)
#ifdef SOFT
	:: atomic { pieces[0] > 0 && nfull(to_reader[0]) -> pieces[0]--; to_reader[0]!PIECE(piece_key[0]) }
	:: atomic { pieces[1] > 0 && nfull(to_reader[1]) -> pieces[1]--; to_reader[1]!PIECE(piece_key[1]) }
#endif
#ifdef SILENCE
	:: break /* for ever */
#endif
	od
}
