/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The Half-Open breaker of one (rail, endpoint) pair, in discrete time, with an adversary for user traffic, peer and clock.
 *
 * Time is counted in ticks. Moments are kept as ages and countdowns that stop at the value from which on nothing changes, so that the
 * state space is finite. Control polls once in every tick (with LATE_POLL whenever it likes), everything else happens in any order in
 * between. UNTIMED leaves the bounds to the formulas at the end. A token's epoch is unbounded in the machine; here it is the smallest number that no token still out there has, which is the
 * same up to renaming. docs/model.md says how to run this and what the BROKEN_ variants show.
 */
#ifndef THRESHOLD
#define THRESHOLD 2 /* failures that open */
#endif
#ifndef WINDOW
#define WINDOW 1 /* gap rule: an older last error starts the count anew */
#endif
#ifndef COOLDOWN
#define COOLDOWN 3
#endif
#ifndef COOLDOWN_MAX
#define COOLDOWN_MAX 8
#endif
#ifndef INTERVAL
#define INTERVAL 2 /* between probes while Open; 0 = none */
#endif
#ifndef LEASE
#define LEASE 2 /* of a probe or trial */
#endif
#ifndef RTT
#define RTT 1 /* a rail that answers does so within this; below LEASE */
#endif
#ifndef FLAP
#define FLAP 1 /* a trip at most this long after a close is damped */
#endif
#ifndef EVENTS
#define EVENTS 2 /* of the adversary in one tick */
#endif
#define LATE 2 /* tokens of operations that control no longer waits for, or user operations */

#if INTERVAL == 0
#define CLOSES_IN (COOLDOWN_MAX + LEASE + RTT)
#define FREE_CLOSES_IN (COOLDOWN_MAX + RTT)
#else
#define CLOSES_IN (INTERVAL + LEASE + RTT)
#define FREE_CLOSES_IN (INTERVAL + RTT)
#endif

mtype = { NONE, NORMAL, PROBE, TRIAL };           /* what a token grants */
mtype = { QUIET, TRIPPED, TRIAL_FAILED, ANSWERED }; /* what the adversary did, as nobody but it knows */

typedef token {
	mtype kind;
	byte epoch
};

/* ---- The machine ---- */
byte error_count;
byte error_age = WINDOW + 1;
byte cooldown;      /* 0 = no backoff memory */
byte last_cooldown; /* for damping */
bool paused;        /* resume_time is set: not Closed */
byte resume_left;   /* paused: until the clock passes resume_time */
byte probe_age;     /* since last_probe_time */
bool half_open;
bool in_flight; /* an armed probe or trial has no verdict yet */
byte lease_left;
byte close_age = FLAP + 1;
bool damped; /* no probes before expiry */
byte epoch;

/* ---- The prober, its attempt, and everybody else's operations ---- */
token attempt;
bool is_on_wire; /* the attempt's PING was sent */
bool is_lost;    /* the peer was dead at some moment since: any verdict, or none, may come */
byte attempt_age;
token late[LATE];

/* ---- The world ---- */
bool alive = true; /* the rail answers probes */
bool polled;       /* control had its turn in this tick */
byte events;       /* of the adversary in this tick */

/* ---- What the checks remember ---- */
byte was_cooldown, was_resume_left;
bool was_paused;
mtype cause = QUIET;
byte half_open_age;
byte healed_age; /* ticks since the rail answers and is not Closed */
byte free_age;   /* the same, not counting while an attempt from before is out */
byte scratch;
mtype scratch_kind = NONE;
bool is_match;

inline new_epoch()
{
	scratch = 0;
	do
	:: scratch == epoch || (attempt.kind != NONE && scratch == attempt.epoch) ||
		(late[0].kind != NONE && scratch == late[0].epoch) || (late[1].kind != NONE && scratch == late[1].epoch) -> scratch++
	:: else -> break
	od;
	epoch = scratch;
	scratch = 0
}

/* ---- The machine's calls ---- */
inline arm_pause()
{
	last_cooldown = cooldown;
	paused = true;
	resume_left = cooldown;
	probe_age = 0;
	half_open = false;
	in_flight = false;
	new_epoch()
}

inline arm_probe()
{
	in_flight = true;
	lease_left = LEASE;
	probe_age = 0;
	new_epoch()
}

inline admit(out)
{
	if
	:: !paused -> out = NORMAL
#ifdef BROKEN_TRIAL_BESIDE_PROBE
	:: paused && in_flight && (half_open || resume_left > 0) -> out = NONE
	:: paused && resume_left == 0 && !half_open ->
#else
	:: paused && in_flight -> out = NONE
	:: paused && !in_flight && resume_left == 0 ->
#endif
		half_open = true;
		damped = false;
		arm_probe();
		out = TRIAL
	:: paused && !in_flight && resume_left > 0 ->
		if
		:: INTERVAL > 0 && !damped && probe_age >= INTERVAL -> arm_probe(); out = PROBE
		:: else -> out = NONE
		fi
	fi
}

inline match(t)
{
#ifdef BROKEN_NO_TOKEN
	is_match = t.kind != NORMAL || paused || t.epoch == epoch
#elif defined(BROKEN_KIND_ONLY)
	is_match = (t.kind == NORMAL -> t.epoch == epoch : in_flight)
#else
	is_match = t.epoch == epoch && (t.kind == NORMAL || in_flight)
#endif
}

inline cancel_probe(t)
{
	match(t);
	if
	:: is_match -> in_flight = false; half_open = false
	:: else
	fi
}

inline close_pair()
{
	paused = false;
	half_open = false;
	in_flight = false;
	damped = false;
	cooldown = 0;
	resume_left = 0;
	error_count = 0;
	close_age = 0
}

inline success(t)
{
	match(t);
	if
	:: is_match && paused -> close_pair()
	:: is_match && !paused -> error_count = 0
	:: else
	fi
}

inline count_error()
{
	error_count = (error_age > WINDOW -> 1 : (error_count < THRESHOLD -> error_count + 1 : THRESHOLD));
	error_age = 0
}

inline escalate()
{
	error_count = 0;
	cooldown = (2 * cooldown < COOLDOWN_MAX -> 2 * cooldown : COOLDOWN_MAX);
	arm_pause()
}

inline failure(t)
{
	match(t);
	if
	:: !is_match -> count_error()
	:: is_match && half_open -> escalate()
	:: is_match && paused && !half_open ->
		in_flight = false;
#ifdef BROKEN_FAILURE_EXTENDS
		resume_left = cooldown;
#endif
	:: is_match && !paused ->
		count_error();
		if
		:: error_count >= THRESHOLD ->
			damped = close_age <= FLAP;
			cooldown = (damped && last_cooldown > COOLDOWN -> last_cooldown : COOLDOWN);
			arm_pause();
			cause = TRIPPED
		:: else
		fi
	fi
}

inline age(a, limit)
{
	a = (a < limit -> a + 1 : limit)
}

inline machine_tick()
{
	if
	:: paused && resume_left == 1 ->
		resume_left = 0;
#ifdef BROKEN_EXPIRY_ESCALATES
		if
		:: !in_flight -> escalate()
		:: else
		fi
#endif
	:: paused && resume_left > 1 -> resume_left--
	:: else
	fi;
	age(error_age, WINDOW + 1);
	age(probe_age, INTERVAL);
	age(close_age, FLAP + 1);
	lease_left = (lease_left > 0 -> lease_left - 1 : 0)
}

/* ---- The prober ---- */
inline forget_attempt()
{
	attempt.kind = NONE;
	attempt.epoch = 0;
	is_on_wire = false;
	is_lost = false;
	attempt_age = 0
}

/* A message still out there keeps its token: its verdict may come at any later time, or never. */
inline keep_late()
{
	if
	:: is_on_wire && late[0].kind == NONE -> late[0].kind = attempt.kind; late[0].epoch = attempt.epoch
	:: is_on_wire && late[0].kind != NONE && late[1].kind == NONE -> late[1].kind = attempt.kind; late[1].epoch = attempt.epoch
	:: else
	fi
}

inline expire_lease()
{
	if
#ifndef BROKEN_NO_LEASE
	:: in_flight && lease_left == 0 ->
		cause = (attempt.kind == TRIAL -> TRIAL_FAILED : QUIET);
		keep_late();
		failure(attempt);
		forget_attempt()
#endif
	:: else
	fi
}

inline ask_for_probe()
{
	if
	:: !paused
	:: paused ->
		admit(scratch_kind);
		if
		:: scratch_kind == NONE
		:: else ->
			assert(attempt.kind == NONE); /* never two probes out */
			attempt.kind = scratch_kind;
			attempt.epoch = epoch;
			is_lost = !alive
		fi;
		scratch_kind = NONE
	fi
}

inline attempt_tick()
{
	if
	:: attempt.kind != NONE -> age(attempt_age, RTT)
	:: else
	fi
}

/* ---- Checks ---- */
inline remember()
{
	cause = QUIET;
	was_cooldown = cooldown;
	was_resume_left = resume_left;
	was_paused = paused
}

/* Situations that an exhaustive search has to meet, or it proves nothing; run.sh looks whether it did. */
inline witness()
{
	if
	:: half_open && cooldown == COOLDOWN_MAX -> skip                        /* witness: escalated to the cap */
	:: half_open && late[0].kind == NORMAL -> skip                          /* witness: an old operation is out during the trial */
	:: half_open && late[0].kind == TRIAL -> skip                           /* witness: an expired trial is out during the next */
	:: attempt.kind == PROBE && resume_left == 0 -> skip                    /* witness: a probe spans the expiry */
	:: cause == ANSWERED && was_resume_left > 0 -> skip                     /* witness: a probe closes the rail */
	:: cause == ANSWERED && was_resume_left == 0 && was_cooldown == COOLDOWN_MAX -> skip /* witness: a trial closes the rail after the longest pause */
	:: cause == TRIAL_FAILED && is_match -> skip                            /* witness: a trial fails */
	:: half_open_age == LEASE -> skip                                       /* witness: a lease runs out in Half-Open */
	:: damped && cooldown == COOLDOWN_MAX -> skip                           /* witness: a flapping rail keeps the longest pause */
	:: error_count == THRESHOLD && !paused -> skip                          /* witness: late failures alone reach the threshold */
	:: healed_age == CLOSES_IN -> skip                                      /* witness: the bound of healing is reached */
	:: free_age == FREE_CLOSES_IN -> skip                                   /* witness: the same without a lost attempt */
	:: else
	fi
}

inline check_step()
{
	assert(cooldown <= was_cooldown || cause == TRIAL_FAILED || cause == TRIPPED);      /* escalation only from a failed trial */
	assert(resume_left <= was_resume_left || cause == TRIAL_FAILED || cause == TRIPPED); /* nothing else extends a pause */
	assert(cause != TRIPPED || !was_paused);
	assert(cause != TRIPPED || cooldown == COOLDOWN || damped);
	assert(!was_paused || paused || cause == ANSWERED); /* only the attempt's own answer closes */
	assert(was_paused || !paused || cause == TRIPPED);
	assert(!half_open || (paused && in_flight && resume_left == 0));
	assert(in_flight == (attempt.kind != NONE)); /* no probe is armed that nobody waits for */
	assert(!half_open || attempt.kind == TRIAL);
#ifdef WITNESSES
	witness();
#endif
	half_open_age = (half_open -> half_open_age : 0);
	was_cooldown = 0;
	was_resume_left = 0;
	was_paused = false;
	cause = QUIET
}

inline check_tick()
{
	half_open_age = (half_open -> half_open_age + 1 : 0);
	healed_age = (alive && paused && !(damped && resume_left > 0) -> healed_age + 1 : 0);
	free_age = (healed_age > 0 && !(is_lost && attempt.kind != NONE) -> free_age + 1 : 0);
#if !defined(LATE_POLL) && !defined(UNTIMED)
	assert(half_open_age <= LEASE);  /* never stranded */
	assert(healed_age <= CLOSES_IN); /* a rail that answers closes in time */
	assert(free_age <= FREE_CLOSES_IN);
#else
	half_open_age = 0;
	healed_age = 0;
	free_age = 0
#endif
}

#ifdef LATE_POLL
#define may_tick true
#else
#define may_tick (polled && !(attempt.kind != NONE && !is_on_wire) && !(is_on_wire && !is_lost && attempt_age >= RTT))
#endif

#ifdef BROKEN_NO_LEASE
#define has_lease true
#else
#define has_lease (lease_left > 0)
#endif

/* One step of control or of the adversary; blocks only when none is possible, which never happens. */
inline step()
{
	if
	/* control's turn: leases first, then the probe timer */
	:: !polled -> d_step { expire_lease(); ask_for_probe(); polled = true }

	/* the attempt reaches the wire, or does not */
	:: attempt.kind != NONE && !is_on_wire -> is_on_wire = true
	:: attempt.kind != NONE && !is_on_wire && !alive && has_lease ->
		d_step {
#ifndef BROKEN_ORPHAN
			cancel_probe(attempt);
#endif
			forget_attempt()
		}
	/* it is given up after it was sent: teardown */
	:: is_on_wire && is_lost && has_lease && events < EVENTS -> d_step { events++; keep_late(); cancel_probe(attempt); forget_attempt() }

	/* its verdict; after the lease every call fails it first, which is the same as control's turn */
	:: is_on_wire && has_lease -> d_step { cause = ANSWERED; success(attempt); forget_attempt() }
	:: is_on_wire && is_lost && has_lease ->
		d_step {
			cause = (attempt.kind == TRIAL -> TRIAL_FAILED : QUIET);
			failure(attempt);
			forget_attempt()
		}

	/* user operations: posted while Closed, their verdicts at any later time */
	:: !paused && events < EVENTS && (late[0].kind == NONE || late[1].kind == NONE) ->
		d_step {
			events++;
			i = (late[0].kind == NONE -> 0 : 1);
			late[i].kind = NORMAL;
			late[i].epoch = epoch
		}
	:: events < EVENTS && (late[0].kind != NONE || late[1].kind != NONE) ->
		events++;
		if
		:: late[0].kind != NONE -> i = 0
		:: late[1].kind != NONE -> i = 1
		fi;
		if
		:: success(late[i])
		:: failure(late[i])
		fi;
		d_step { late[i].kind = NONE; late[i].epoch = 0 }

	/* the peer dies, the peer heals */
	:: events < EVENTS -> d_step { events++; alive = !alive; is_lost = is_lost || (attempt.kind != NONE && !alive); healed_age = 0; free_age = 0 }

	/* time */
	:: may_tick -> d_step { attempt_tick(); machine_tick(); check_tick(); polled = false; events = 0 }
	fi
}

active proctype node()
{
	byte i;

	forget_attempt();
	late[0].kind = NONE;
	late[1].kind = NONE;
	do
	:: atomic { remember(); step(); i = 0; check_step() }
	od
}

#ifdef LTL
/* No rail stays Half-Open for ever; one whose peer stays alive carries data again and again. */
ltl never_stranded { [] (half_open -> <> !half_open) }
ltl comes_back { (<> [] alive) -> ([] <> !paused) }
#endif
