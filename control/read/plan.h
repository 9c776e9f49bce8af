/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The planner: which bytes a rail takes next.
 *
 * Plain single-threaded C without clock, memory or transport; control asks it whenever a rail has room, `railyard plan`
 * asks it to explain. A plan covers the whole stripes of one transfer. A stripe is started by one rail, which takes its
 * bytes in order from the front; only when no unstarted stripe is left may another rail take unissued bytes from a
 * started one's tail (it is then split), so that rails finish together. Round robin never splits: a rail keeps exactly
 * the stripes it was dealt.
 */
#ifndef RY_PLAN_H
#define RY_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include <railyard/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PLAN_STRIPE_NONE UINT32_MAX
#define PLAN_HINT_NONE 0xffu
#define PLAN_STARTED 0xfeu     /* in rr_rail: some rail has begun it */
#define PLAN_PIECE_SLACK 4095u /* by which a piece may pass segment_bytes, rather than leave a scrap */

/* Unissued bytes [off, end) of a started stripe; off == end: none. */
struct plan_span {
	uint32_t stripe;
	uint32_t off;
	uint32_t end;
};

struct plan {
	uint64_t size_bytes; /* of the object */
	uint64_t unissued_bytes;
	uint64_t queued_bytes; /* of other transfers that keep these rails busy when this one ends; the caller's, before
				  plan_next */
	uint32_t stripe_bytes;
	uint32_t first_stripe;
	uint32_t end_stripe;    /* one past the last */
	uint32_t next_stripe;   /* next unstarted one (adaptive) */
	uint32_t segment_bytes; /* largest piece */
	uint32_t rail_mask;     /* rails this plan may use */
	uint8_t *rr_rail;       /* round robin: rail of each stripe from first_stripe on; NULL = adaptive */
	uint32_t rr_next[RY_RAILS_MAX];
	struct plan_span span[RY_RAILS_MAX];
};

/* What to send in one READ: a slice of one stripe, or n_stripes > 1 whole adjacent ones from the start of `stripe`. */
struct plan_piece {
	uint32_t stripe;
	uint32_t off;
	uint32_t len_bytes;
	uint32_t n_stripes;
	bool is_split; /* taken from the tail of a stripe that another rail started */
};

/* Checks a descriptor's geometry: stripe_count == ceil(size / stripe), limits, no overflow; 0 stripes for an empty
 * object. */
bool plan_geometry_ok(uint64_t size_bytes, uint32_t stripe_bytes, uint32_t stripe_count);

/* Bytes of one stripe of an object. */
uint64_t plan_stripe_len(uint64_t size_bytes, uint32_t stripe_bytes, uint32_t stripe);

void plan_init(struct plan *p, uint64_t size_bytes, uint32_t stripe_bytes, uint32_t first_stripe, uint32_t n_stripes,
	uint32_t segment_bytes, uint32_t rail_mask);

/*
 * Deals stripes for round robin into rr_rail (n_stripes entries, kept by the caller). A hint (hints[i], PLAN_HINT_NONE
 * = none; hints may be NULL) that names a rail of the mask pins its stripe; the cursor moves only for unpinned stripes.
 */
void plan_deal_round_robin(struct plan *p, const uint8_t *hints, uint8_t *rr_rail);

/* Round robin without the rails that are not in the mask any more: deals what those had not started to the rest. */
void plan_redeal(struct plan *p, uint32_t rail_mask);

/* The next piece for a rail of `eligible` (a subset of rail_mask that is usable now); false = nothing for it now. */
bool plan_next(struct plan *p, uint16_t rail, uint32_t eligible, struct plan_piece *out);

/* Whether the next piece of this rail continues a stripe that is started. */
static inline bool plan_has_started(const struct plan *p, uint16_t rail)
{
	return p->span[rail].off != p->span[rail].end;
}

/* The same, of at most max_bytes (at least RY_SEGMENT_MIN_BYTES): for a rail that carries less than the others. */
bool plan_next_small(struct plan *p, uint16_t rail, uint32_t eligible, uint32_t max_bytes, struct plan_piece *out);

/* Cuts a piece of several stripes, the last that plan_next returned, down to its first n_stripes: the memory of those
 * behind does not follow. */
void plan_cut(struct plan *p, struct plan_piece *piece, uint32_t n_stripes);

#ifdef __cplusplus
}
#endif
#endif
