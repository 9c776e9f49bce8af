/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Transitions of breakers, verdicts on slow rails, and what peers did wrong, on their way to the log: control writes
 * them down, the api thread prints one line each.
 *
 * One producer (control lcore), one consumer (api). When the consumer is too late the newest ones are dropped and
 * counted; the breaker's own counters stay right.
 */
#ifndef RY_HEALTH_JOURNAL_H
#define RY_HEALTH_JOURNAL_H

#include <assert.h>
#include <stdalign.h>
#include <stdbool.h>
#include <stdint.h>

#include "health/health.h"

#ifdef __cplusplus
extern "C" {
#endif

#define JOURNAL_ENTRIES 256u

enum journal_kind {
	JOURNAL_BREAKER = 0,
	JOURNAL_SLOW = 1, /* this and the following are of a rail: name.rail_idx alone counts */
	JOURNAL_NOT_SLOW = 2,
	JOURNAL_SLOW_TRIP = 3,
	JOURNAL_BREACH = 4, /* of a peer: name is not used */
};

/* What a peer may not do and what control notices; see control/read/breach.c. */
enum breach {
	BREACH_BYTES = 0,
	BREACH_GENERATION = 1,
	BREACH_CHECKSUM = 2,
	BREACH_ANSWER = 3,
	BREACH_LATE = 4,
	BREACHES = 5,
};

struct breach_change {
	uint8_t what;      /* enum breach */
	uint16_t rail_idx; /* RY_RAIL_NONE: on the bootstrap connection */
	uint32_t n;        /* since the last line */
	char node_name[RY_NAME_MAX_BYTES];
};

/* Why a rail is slow, or is not any more; bytes per second, 0 = not known. */
struct slow_change {
	uint64_t goodput;
	uint64_t usual;
	uint64_t siblings; /* their median */
	uint64_t stores;   /* a bit by index: those it reaches; SLOW_TRIP: those it was tripped for */
};

static_assert(CONFIG_STORES_MAX <= 64, "slow_change.stores has a bit for each");

struct journal_entry {
	uint8_t kind; /* enum journal_kind */
	struct health_name name;
	union {
		struct rail_transition what;
		struct slow_change slow;
		struct breach_change breach;
	};
};

struct journal {
	alignas(64) uint32_t head; /* written by control, read by api */
	uint32_t n_dropped;        /* written by control, read by api */
	alignas(64) uint32_t tail; /* written by api, read by control */
	alignas(64) struct journal_entry entries[JOURNAL_ENTRIES];
};

/* Control: transitions that were overwritten before they could be pushed. */
static inline void journal_lost(struct journal *j, uint32_t n)
{
	__atomic_store_n(&j->n_dropped, j->n_dropped + n, __ATOMIC_RELAXED);
}

/* Control. */
static inline void journal_push(struct journal *j, const struct journal_entry *e)
{
	/* Acquire: partner of the release in journal_pop; the slot was read before we write it. */
	if (j->head - __atomic_load_n(&j->tail, __ATOMIC_ACQUIRE) == JOURNAL_ENTRIES) {
		__atomic_store_n(&j->n_dropped, j->n_dropped + 1, __ATOMIC_RELAXED);
		return;
	}
	j->entries[j->head % JOURNAL_ENTRIES] = *e;
	/* Release: partner of the acquire in journal_pop; the entry is complete. */
	__atomic_store_n(&j->head, j->head + 1, __ATOMIC_RELEASE);
}

/* Api. */
static inline bool journal_is_empty(const struct journal *j)
{
	/* Acquire: partner of the release in journal_push. */
	return __atomic_load_n(&j->head, __ATOMIC_ACQUIRE) == j->tail;
}

/* Api. false: nothing there. */
static inline bool journal_pop(struct journal *j, struct journal_entry *out)
{
	if (journal_is_empty(j))
		return false;
	*out = j->entries[j->tail % JOURNAL_ENTRIES];
	/* Release: partner of the acquire in journal_push; the slot may be written again. */
	__atomic_store_n(&j->tail, j->tail + 1, __ATOMIC_RELEASE);
	return true;
}

#ifdef __cplusplus
}
#endif
#endif
