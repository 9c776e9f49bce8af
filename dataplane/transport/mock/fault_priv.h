/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A rail's running fault plan: part of struct mock. fault_hot.c asks it at every delivery, fault_inject.c changes it.
 *
 * Everything belongs to the rail lcore, except the pointers by which plans come and go. Nothing here outlives the
 * QPs: fault_forget drops what names one that left.
 */
#ifndef RY_FAULT_PRIV_H
#define RY_FAULT_PRIV_H

#include <stdalign.h>

#include "transport/mock/fault.h"
#include "transport/transport.h"
#include "wire/wire.h"

#ifdef __cplusplus
extern "C" {
#endif

#define FAULT_KEPT_MAX 8u /* messages that wait to be overtaken */
#define FAULT_LATES_MAX 8u
#define FAULT_SLICE_BYTES (64u << 10) /* of a slow rail */
#define FAULT_LOOK_NS 100000u         /* sleep at most so long while something is under way */

struct mock;
struct mock_qp;
struct mock_wr;

/* A copy of a plan, the injector's until the rail has let go of it. */
struct fault_set {
	struct fault_plan plan;
	struct fault_set *next;
};

struct fault_run {
	uint64_t at;         /* moves on by entry.every */
	uint32_t n_done;     /* times */
	uint32_t key;        /* AT_STRIPE: the window that a READ of that stripe named, and where in it the byte lies */
	uint64_t key_offset; /* UINT64_MAX = no READ seen */
};

/* A message that was taken out of its order. */
struct fault_kept {
	struct mock_qp *q; /* the sender's end; NULL = free */
	uint64_t until_ns;
	uint32_t n_left; /* messages of its kind that go first */
	uint32_t len_bytes;
	uint8_t of;     /* enum fault_message */
	bool is_handed; /* the rail reads it until the next turn */
	alignas(8) uint8_t msg[WIRE_MSG_BYTES];
};

enum fault_late_state {
	LATE_FREE = 0,
	LATE_WAITS = 1, /* the window is open; the sender's queue stands */
	LATE_FLIES = 2, /* the window is closed; lands at at_ns */
};

struct fault_late {
	uint8_t state;
	bool is_unguarded;
	uint32_t key;
	uint32_t len_bytes;
	uint64_t offset;
	uint64_t delay_ns;
	uint64_t at_ns;
	uint8_t *addr;     /* where it would have landed */
	const void *to_qp; /* only compared, never looked into: it may be gone */
};

/* The wire of a slow rail, one per direction. */
struct fault_gate {
	uint64_t free_ns; /* the last byte that passed left at free_ns + frac / rate */
	uint64_t frac;
};

struct mock_fault {
	const struct fault_plan *plan; /* in force; NULL = none, and nothing else here matters */
	uint64_t rng;
	uint64_t start_ns;
	uint64_t n_bytes;   /* of writes, arrived */
	uint64_t n_writes;  /* begun */
	uint64_t n_msgs[4]; /* by enum fault_message, arrived or lost */
	uint64_t stall_until_ns;
	uint64_t rate; /* bytes per second, 0 = not slowed */
	uint64_t slow_until_ns;
	struct mock_qp *down_qp; /* this end alone goes down; NULL = all of the rail */
	uint8_t down_status;     /* enum wc_status, 0 = nothing goes down */
	uint32_t n_kept;
	uint32_t n_lates;
	struct fault_gate gates[2]; /* by is_dialler of the sender */
	struct fault_run run[FAULT_ENTRIES_MAX];
	struct fault_late lates[FAULT_LATES_MAX];
	struct fault_kept kept[FAULT_KEPT_MAX];
	/* written by the lcore, read by anyone */
	alignas(64) uint64_t n_injected[FAULT_KINDS_];
	const struct fault_plan *taken; /* release; the injector's acquire: older plans are no longer looked at */
	/* written by the injector (release), read by the lcore (acquire); NULL = there is and was no plan. The lcore
	 * itself puts NULL in place of the empty plan when it is done with the last one. */
	alignas(64) const struct fault_plan *want;
	/* the injector's own */
	const struct fault_plan *last;
	struct fault_set *current;
	struct fault_set *retired;
};

/* Deterministic: splitmix64. */
static inline uint64_t fault_random(uint64_t *state)
{
	uint64_t x = *state += 0x9e3779b97f4a7c15ull;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ x >> 27) * 0x94d049bb133111ebull;
	return x ^ x >> 31;
}

static inline bool fault_is_over(const struct mock_fault *f, unsigned i)
{
	return f->plan->entries[i].repeat && f->run[i].n_done >= f->plan->entries[i].repeat;
}

/* Here is an opportunity for entry i whose trigger was reached: whether it is used. */
static inline bool fault_draw(struct mock_fault *f, unsigned i)
{
	const struct fault_entry *e = &f->plan->entries[i];

	f->run[i].at += e->every;
	if (e->chance_ppm < FAULT_ALWAYS_PPM && fault_random(&f->rng) % FAULT_ALWAYS_PPM >= e->chance_ppm)
		return false;
	f->run[i].n_done++;
	return true;
}

/* The same, with a look at the trigger first; count is what AT_COUNT is compared with. */
static inline bool fault_strikes(struct mock_fault *f, unsigned i, uint64_t now_ns, uint64_t count)
{
	uint64_t at = f->run[i].at;
	uint8_t trigger = f->plan->entries[i].trigger;

	if (fault_is_over(f, i) || (trigger == FAULT_AT_COUNT && count < at) ||
		(trigger == FAULT_AT_BYTES && f->n_bytes < at) ||
		(trigger == FAULT_AT_TIME && now_ns - f->start_ns < at) || trigger == FAULT_AT_STRIPE)
		return false;
	return fault_draw(f, i);
}

static inline void fault_done(struct mock_fault *f, uint8_t kind)
{
	/* Relaxed: one writer, and readers want only the value. */
	__atomic_store_n(&f->n_injected[kind], f->n_injected[kind] + 1, __ATOMIC_RELAXED);
}

/* ---- fault_hot.c, for mock_hot.c ---- */
/* Once a poll, before anything is delivered: what happens by itself. Returns completions. */
uint16_t fault_turn(struct rail *rail, struct wc *wc, uint16_t max);
/* mock_deliver while a plan is in force; the same result. */
unsigned fault_deliver(struct rail *rail, struct mock_qp *q, struct mock_wr *e, uint32_t n_bytes, struct wc *wc);

/* ---- fault_message_hot.c ---- */
/* A SEND; result as mock_deliver. */
unsigned fault_message(struct rail *rail, struct mock_qp *q, struct mock_wr *e, struct wc *wc);
/* Messages that were kept back and have been overtaken. Returns completions. */
uint16_t fault_hand_over(struct rail *rail, struct mock *m, struct wc *wc, uint16_t max);

/* ---- fault_write_hot.c ---- */
/* A slice of a WRITE; result as mock_deliver. */
unsigned fault_write(struct rail *rail, struct mock_qp *q, struct mock_wr *e, uint32_t n_bytes, struct wc *wc);
/* Late writes whose time has come. */
void fault_land(struct rail *rail, struct mock *m);

/* ---- fault_inject.c, out of line for the lcore ---- */
/* Takes in the plan that the injector wants. */
void fault_take(struct rail *rail, struct mock *m);
/* QPs left the rail: forgets what names them. */
void fault_forget(struct mock *m);
/* When poll has something to do because of the plan, 0 = now; UINT64_MAX = never by itself. */
uint64_t fault_next_ns(const struct mock *m, uint64_t now_ns);
/* Set-up and end, from mock.c. */
int fault_open(struct rail *rail, struct mock *m, const struct fault_plan *plan);
void fault_close(struct mock *m);

#ifdef __cplusplus
}
#endif
#endif
