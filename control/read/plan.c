/* SPDX-License-Identifier: BSD-3-Clause */
#include "read/plan.h"

#include <stddef.h>
#include <string.h>

#define SPLIT_ALIGN 4096u
#define PIECE_STRIPES_MAX 8u /* = SEG_PARTS_MAX */

static uint32_t piece_bytes(const struct plan *p, uint32_t eligible);
static bool from_span(struct plan *p, uint16_t rail, uint32_t eligible, struct plan_piece *out);
static bool start_stripes(struct plan *p, uint16_t rail, uint32_t eligible, struct plan_piece *out);
static uint32_t unstarted(struct plan *p, uint16_t rail);
static bool steal(struct plan *p, uint16_t rail, uint32_t eligible, struct plan_piece *out);
static int victim_of(const struct plan *p, uint16_t rail, uint32_t eligible);

bool plan_geometry_ok(uint64_t size_bytes, uint32_t stripe_bytes, uint32_t stripe_count)
{
	if (stripe_bytes < RY_STRIPE_MIN_BYTES || stripe_bytes > RY_STRIPE_MAX_BYTES ||
		stripe_bytes % RY_STRIPE_ALIGN_BYTES)
		return false;
	if (stripe_count > RY_STRIPES_MAX || size_bytes > (uint64_t)RY_STRIPES_MAX * stripe_bytes)
		return false;
	return stripe_count == (size_bytes + stripe_bytes - 1) / stripe_bytes;
}

uint64_t plan_stripe_len(uint64_t size_bytes, uint32_t stripe_bytes, uint32_t stripe)
{
	uint64_t start = (uint64_t)stripe * stripe_bytes;

	return size_bytes - start < stripe_bytes ? size_bytes - start : stripe_bytes;
}

void plan_init(struct plan *p, uint64_t size_bytes, uint32_t stripe_bytes, uint32_t first_stripe, uint32_t n_stripes,
	uint32_t segment_bytes, uint32_t rail_mask)
{
	uint64_t start = (uint64_t)first_stripe * stripe_bytes;
	uint64_t end = (uint64_t)(first_stripe + n_stripes) * stripe_bytes;

	memset(p, 0, sizeof(*p));
	p->size_bytes = size_bytes;
	p->unissued_bytes = (end < size_bytes ? end : size_bytes) - start;
	p->stripe_bytes = stripe_bytes;
	p->first_stripe = p->next_stripe = first_stripe;
	p->end_stripe = first_stripe + n_stripes;
	p->segment_bytes = segment_bytes;
	p->rail_mask = rail_mask;
}

void plan_deal_round_robin(struct plan *p, const uint8_t *hints, uint8_t *rr_rail)
{
	uint16_t cursor = 0;

	for (uint32_t i = 0; i < p->end_stripe - p->first_stripe; i++) {
		uint8_t hint = hints ? hints[i] : PLAN_HINT_NONE;

		if (hint < RY_RAILS_MAX && (p->rail_mask >> hint & 1)) {
			rr_rail[i] = hint;
			continue;
		}
		while (!(p->rail_mask >> cursor & 1))
			cursor = (uint16_t)((cursor + 1) % RY_RAILS_MAX);
		rr_rail[i] = (uint8_t)cursor;
		cursor = (uint16_t)((cursor + 1) % RY_RAILS_MAX);
	}
	p->rr_rail = rr_rail;
	for (uint32_t r = 0; r < RY_RAILS_MAX; r++)
		p->rr_next[r] = p->first_stripe;
}

void plan_redeal(struct plan *p, uint32_t rail_mask)
{
	uint16_t cursor = 0;

	p->rail_mask = rail_mask;
	for (uint32_t i = 0; i < p->end_stripe - p->first_stripe; i++) {
		if (p->rr_rail[i] == PLAN_STARTED || (rail_mask >> p->rr_rail[i] & 1))
			continue;
		while (!(rail_mask >> cursor & 1))
			cursor = (uint16_t)((cursor + 1) % RY_RAILS_MAX);
		p->rr_rail[i] = (uint8_t)cursor;
		if (p->first_stripe + i < p->rr_next[cursor])
			p->rr_next[cursor] = p->first_stripe + i;
		cursor = (uint16_t)((cursor + 1) % RY_RAILS_MAX);
	}
}

bool plan_next(struct plan *p, uint16_t rail, uint32_t eligible, struct plan_piece *out)
{
	eligible &= p->rail_mask;
	if (!p->unissued_bytes || !(eligible >> rail & 1))
		return false;
	if (from_span(p, rail, eligible, out) || start_stripes(p, rail, eligible, out) ||
		steal(p, rail, eligible, out)) {
		p->unissued_bytes -= out->len_bytes;
		return true;
	}
	return false;
}

bool plan_next_small(struct plan *p, uint16_t rail, uint32_t eligible, uint32_t max_bytes, struct plan_piece *out)
{
	uint32_t segment_bytes = p->segment_bytes;
	bool has_one;

	p->segment_bytes = max_bytes < segment_bytes ? max_bytes : segment_bytes;
	has_one = plan_next(p, rail, eligible, out);
	p->segment_bytes = segment_bytes;
	return has_one;
}

void plan_cut(struct plan *p, struct plan_piece *piece, uint32_t n_stripes)
{
	for (uint32_t i = n_stripes; i < piece->n_stripes; i++) {
		uint32_t len = (uint32_t)plan_stripe_len(p->size_bytes, p->stripe_bytes, piece->stripe + i);

		piece->len_bytes -= len;
		p->unissued_bytes += len;
	}
	piece->n_stripes = n_stripes;
	p->next_stripe = piece->stripe + n_stripes;
}

/* Full segments while there is plenty, here or in the transfers behind; towards the end of all smaller ones, so that
 * all rails finish within a small one of each other. */
static uint32_t piece_bytes(const struct plan *p, uint32_t eligible)
{
	uint32_t n = (uint32_t)__builtin_popcount(eligible);
	uint64_t share;

	if (n < 2 || p->rr_rail)
		return p->segment_bytes;
	share = (p->unissued_bytes + p->queued_bytes) / (2 * n) / SPLIT_ALIGN * SPLIT_ALIGN;
	if (share > p->segment_bytes)
		return p->segment_bytes;
	return share > RY_SEGMENT_MIN_BYTES ? (uint32_t)share : RY_SEGMENT_MIN_BYTES;
}

static bool from_span(struct plan *p, uint16_t rail, uint32_t eligible, struct plan_piece *out)
{
	struct plan_span *s = &p->span[rail];
	uint32_t left = s->end - s->off;
	uint32_t len = piece_bytes(p, eligible);

	if (!left)
		return false;
	if (left < len || left - len < SPLIT_ALIGN)
		len = left;
	*out = (struct plan_piece){.stripe = s->stripe, .off = s->off, .len_bytes = len, .n_stripes = 1};
	s->off += len;
	return true;
}

static bool start_stripes(struct plan *p, uint16_t rail, uint32_t eligible, struct plan_piece *out)
{
	uint32_t stripe = unstarted(p, rail);
	uint32_t n = 1;
	uint64_t len;

	if (stripe == PLAN_STRIPE_NONE)
		return false;
	len = plan_stripe_len(p->size_bytes, p->stripe_bytes, stripe);
	if (len > p->segment_bytes || p->stripe_bytes > p->segment_bytes / 2) {
		p->span[rail] = (struct plan_span){stripe, 0, (uint32_t)len};
		return from_span(p, rail, eligible, out);
	}
	/* Small stripes: several whole ones in one message, if they follow each other. */
	while (n < PIECE_STRIPES_MAX && !p->rr_rail && p->next_stripe < p->end_stripe &&
		len + p->stripe_bytes <= piece_bytes(p, eligible)) {
		len += plan_stripe_len(p->size_bytes, p->stripe_bytes, p->next_stripe++);
		n++;
	}
	*out = (struct plan_piece){.stripe = stripe, .len_bytes = (uint32_t)len, .n_stripes = n};
	return true;
}

/* Takes the next unstarted stripe that this rail may start. */
static uint32_t unstarted(struct plan *p, uint16_t rail)
{
	if (!p->rr_rail)
		return p->next_stripe < p->end_stripe ? p->next_stripe++ : PLAN_STRIPE_NONE;
	while (p->rr_next[rail] < p->end_stripe) {
		uint32_t stripe = p->rr_next[rail]++;

		if (p->rr_rail[stripe - p->first_stripe] != rail)
			continue;
		p->rr_rail[stripe - p->first_stripe] = PLAN_STARTED;
		return stripe;
	}
	return PLAN_STRIPE_NONE;
}

static bool steal(struct plan *p, uint16_t rail, uint32_t eligible, struct plan_piece *out)
{
	int v = victim_of(p, rail, eligible);
	struct plan_span *s, *mine = &p->span[rail];
	uint32_t left, take;

	/* Round robin splits nothing but what a rail had begun that plan_redeal took out. */
	if (v < 0 || (p->rr_rail && (p->rail_mask >> v & 1)))
		return false;
	s = &p->span[v];
	left = s->end - s->off;
	take = left;
	if (eligible >> v & 1) {
		take = left / 2 / SPLIT_ALIGN * SPLIT_ALIGN;
		if (take < RY_SEGMENT_MIN_BYTES)
			return false; /* the owner finishes it sooner */
	}
	*mine = (struct plan_span){s->stripe, s->end - take, s->end};
	s->end -= take;
	if (!from_span(p, rail, eligible, out))
		return false;
	out->is_split = true;
	return true;
}

/* The rail with most unissued bytes; one that is not usable any more comes first, or its bytes would wait for ever. */
static int victim_of(const struct plan *p, uint16_t rail, uint32_t eligible)
{
	uint32_t most = 0;
	int victim = -1;

	for (int r = 0; r < (int)RY_RAILS_MAX; r++) {
		uint32_t left = p->span[r].end - p->span[r].off;

		if (r == rail || !left)
			continue;
		if (!(eligible >> r & 1))
			return r;
		if (left > most) {
			most = left;
			victim = r;
		}
	}
	return victim;
}
