/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The Half-Open circuit breaker of every pair (local rail, peer rail) of the node, and which pair is best.
 *
 * Owned by the control lcore. Pure: no thread, no clock, no I/O, no allocation; time is an argument in monotonic
 * nanoseconds. Closed pairs carry data. Failures inside the error window open a pair; while Open it is only probed,
 * once per interval; when its cooldown has passed, one trial decides. A pair that is not in the layout is never
 * available, never admitted, and ignores every other call.
 *
 * Two forms of the same machine: the plain calls, whose verdicts are taken at their word, and the tokened ones that the
 * daemon uses, where only the operation that was admitted as probe or trial can settle it and where silence past a
 * lease is a failure. Whether a pair is connected, suspect or draining is not known here.
 */
#ifndef RY_RAIL_HEALTH_H
#define RY_RAIL_HEALTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/config.h" /* struct rail_health_params */
#include "health/mapping.h"

#ifdef __cplusplus
extern "C" {
#endif

#define RAIL_COOLDOWN_MAX_SECS 300u
#define RAIL_TRANSITIONS_KEPT 64u

enum rail_state {
	RAIL_CLOSED = 0,
	RAIL_OPEN = 1,      /* paused, the cooldown is running */
	RAIL_EXPIRED = 2,   /* paused, the cooldown has passed, no trial out yet */
	RAIL_HALF_OPEN = 3, /* the trial is out */
	RAIL_STATES = 4,
};

enum rail_grant {
	RAIL_REFUSED = 0,
	RAIL_NORMAL = 1,
	RAIL_PROBE = 2,
	RAIL_TRIAL = 3,
};

/* What a failure is evidence of. */
enum rail_evidence {
	RAIL_EV_NONE = 0, /* the request's own fault: access error, stale generation */
	RAIL_EV_PATH =
		1, /* retry or RNR exceeded, connect failure, segment deadline: the only one that feeds the breaker */
	RAIL_EV_LOCAL = 2, /* port down, device gone, local QP error */
	RAIL_EV_PEER = 3,  /* the peer restarted or left */
	RAIL_EV_FLUSH = 4, /* a consequence of an error that was already told */
	RAIL_EV_RATE = 5,  /* it answers, and carries far less than it should: no failure, see rail_health_trip */
};

/* What admit hands out, and what every verdict gives back. */
struct rail_token {
	uint8_t kind; /* enum rail_grant */
	uint16_t pair_idx;
	uint32_t epoch;
};

struct rail_fault {
	uint8_t evidence;    /* enum rail_evidence */
	uint32_t status;     /* enum ry_status */
	uint32_t connection; /* incarnation it happened on; path evidence counts once for each. 0 = no connection came
				about: counts always */
};

/* One change of state, for a log line. Open -> expired is the clock's doing and not recorded. */
struct rail_transition {
	uint64_t at_ns;
	uint64_t cooldown_ns; /* of the pause that begins or goes on; 0 when closed */
	uint32_t status;      /* last error */
	uint32_t n_trips;
	uint16_t pair_idx;
	uint8_t from, to; /* enum rail_state */
	uint8_t evidence; /* of the last error */
	bool is_damped;
	bool is_slow; /* of the pause that begins, goes on or ends */
};

/* One pair. Written only by the functions below. */
struct rail_breaker {
	/* the machine */
	uint64_t last_error_ns;
	uint64_t cooldown_ns; /* 0 = no backoff memory */
	uint64_t resume_ns;   /* 0 = Closed; stays set through Half-Open */
	uint64_t last_probe_ns;
	uint32_t error_count;
	bool is_half_open;
	bool is_probe_out;
	/* tokens, lease, flap damping */
	bool is_damped;  /* no probes in this pause */
	bool is_slow;    /* rail_health_trip began it: none in those that follow a failed trial either */
	bool has_closed; /* closed_ns and kept_cooldown_ns are valid */
	uint64_t closed_ns;
	uint64_t kept_cooldown_ns;
	uint64_t lease_ns;     /* length; 0 = the default */
	uint64_t lease_end_ns; /* 0 = what is out has no lease */
	uint32_t epoch;        /* moves at every trip, probe, trial and close; survives the pair */
	uint32_t born_epoch;   /* tokens older than this are another pair's */
	uint32_t connection;   /* the last one that gave path evidence */
	/* for operators */
	uint32_t n_trips;
	uint32_t n_sent, n_ok, n_failed, n_expired, n_cancelled; /* probes and trials */
	uint32_t last_status;
	uint8_t last_evidence;
	uint64_t last_fault_ns;
	uint64_t since_ns;                 /* last transition, or when the pair appeared */
	uint64_t in_state_ns[RAIL_STATES]; /* before since_ns */
};

struct rail_health {
	struct rail_health_params params;
	uint16_t current; /* index in maps; the other one is where the next layout is built */
	uint16_t n_leased;
	uint32_t transitions_head, transitions_tail; /* run free */
	struct rail_transition transitions[RAIL_TRANSITIONS_KEPT];
	struct rail_breaker pairs[PAIRS_MAX];
	struct rail_map maps[2];
};

/* What an operator sees of a pair. */
struct rail_health_report {
	enum rail_state state;
	bool is_probe_out;
	bool is_damped;
	uint32_t error_count;
	uint32_t n_trips;
	uint32_t n_sent, n_ok, n_failed, n_expired, n_cancelled;
	uint64_t in_state_ns[RAIL_STATES]; /* the present state included */
	uint64_t present_ns;               /* in the present state, without a break */
	uint64_t cooldown_ns;
	uint64_t cooldown_left_ns;
	uint32_t last_status; /* valid when last_fault_ns is not 0 */
	uint8_t last_evidence;
	uint64_t last_fault_ns;
	uint64_t last_transition_ns;
};

/* Defaults, and ranges. -EINVAL with err naming key, value and range. */
void rail_health_default_params(struct rail_health_params *p);
int rail_health_check_params(const struct rail_health_params *p, struct rail_map_error *err);

/* No pairs. -EINVAL as above. */
int rail_health_init(struct rail_health *h, const struct rail_health_params *p, struct rail_map_error *err);
/* New parameters; pauses that have begun keep their end. */
int rail_health_set_params(struct rail_health *h, const struct rail_health_params *p, struct rail_map_error *err);

/*
 * Takes a layout. load keeps all state when layout and table equal the present ones, else every pair starts clean;
 * relayout keeps the state of every pair that still exists and voids the tokens of the others. On failure (as
 * rail_map_build) nothing changes. Transitions that were not taken yet name pairs of the old layout: take them first.
 */
int rail_health_load(
	struct rail_health *h, const struct rail_map_layout *layout, uint64_t now_ns, struct rail_map_error *err);
int rail_health_relayout(
	struct rail_health *h, const struct rail_map_layout *layout, uint64_t now_ns, struct rail_map_error *err);

static inline const struct rail_map *rail_health_map(const struct rail_health *h)
{
	return &h->maps[h->current];
}

/* Pure and constant: for planners. */
static inline bool rail_health_is_available(const struct rail_health *h, uint16_t pair_idx)
{
	return rail_map_has_pair(rail_health_map(h), pair_idx) && !h->pairs[pair_idx].resume_ns;
}

/* The plain form. admit may arm a probe or the trial, which then waits for a verdict or a cancel for ever. */
bool rail_health_admit(struct rail_health *h, uint16_t pair_idx, uint64_t now_ns);
void rail_health_cancel_probe(struct rail_health *h, uint16_t pair_idx, uint64_t now_ns);
void rail_health_mark_failed(struct rail_health *h, uint16_t pair_idx, uint64_t now_ns);
void rail_health_mark_recovered(struct rail_health *h, uint16_t pair_idx, uint64_t now_ns);

/*
 * The tokened form. A REFUSED token may be given to every call and does nothing. A PROBE or TRIAL must be given back
 * exactly once, to release if it never reached the wire; a fault that is not path evidence releases it as well. A
 * NORMAL token counts only as what it is: after a trip it neither settles a probe nor closes a pair nor opens it anew;
 * its path evidence adds one to the error count.
 */
struct rail_token rail_health_ask(struct rail_health *h, uint16_t pair_idx, uint64_t now_ns);
void rail_health_release(struct rail_health *h, struct rail_token token, uint64_t now_ns);
void rail_health_succeeded(struct rail_health *h, struct rail_token token, uint64_t now_ns);
void rail_health_failed(
	struct rail_health *h, struct rail_token token, const struct rail_fault *fault, uint64_t now_ns);
/* Opens a closed pair because its rail is slow, which no probe can see: none is sent until a trial has closed it, be it
 * the first or a later one. No failure is counted. false: it was not closed. */
bool rail_health_trip(struct rail_health *h, uint16_t pair_idx, uint64_t now_ns);
/* Closes a pair that rail_health_trip opened and on which nothing failed since, without a trial of its own: its rail
 * has passed one over another pair. */
void rail_health_untrip(struct rail_health *h, uint16_t pair_idx, uint64_t now_ns);

/* When ask would next hand out a probe or a trial, or a lease ends; UINT64_MAX = nothing to wait for. */
uint64_t rail_health_due_ns(const struct rail_health *h, uint16_t pair_idx);
/* Whether ask would hand out a probe or a trial: test what else it needs (connection, reachability) before asking. */
bool rail_health_wants_probe(const struct rail_health *h, uint16_t pair_idx, uint64_t now_ns);
/* Fails what is silent past its lease. Returns how many. */
uint32_t rail_health_expire(struct rail_health *h, uint64_t now_ns);
/* The lease of later probes follows the pair's round trip: 1 s, or 10 x rtt where that is above 100 ms. */
void rail_health_set_rtt(struct rail_health *h, uint16_t pair_idx, uint64_t rtt_ns);
/* How long the pair's next PING may stay silent, whatever it is sent for. The pair exists. */
uint64_t rail_health_lease_ns(const struct rail_health *h, uint16_t pair_idx);

/* RAIL_STATES for an unknown pair. */
enum rail_state rail_health_state(const struct rail_health *h, uint16_t pair_idx, uint64_t now_ns);
/* false and nothing written when the pair is unknown. */
bool rail_health_get_report(
	const struct rail_health *h, uint16_t pair_idx, uint64_t now_ns, struct rail_health_report *out);
/* Oldest transition not taken yet; *n_lost were overwritten before it. false = none. */
bool rail_health_next_transition(struct rail_health *h, struct rail_transition *out, uint32_t *n_lost);
const char *rail_state_name(enum rail_state state);
/* "path", "local", "peer", ...: what an error was evidence of. */
const char *rail_evidence_name(enum rail_evidence evidence);
/* The name of a last error: "SLOW" for RAIL_EV_RATE, else its status. */
const char *rail_error_name(enum rail_evidence evidence, uint32_t status);

#ifdef __cplusplus
}
#endif
#endif
