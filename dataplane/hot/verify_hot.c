/* SPDX-License-Identifier: BSD-3-Clause */
/* XXH3-64 of what landed, in slices between polls, so that the device is never left waiting for the hash. */
#include "rail.h"

static uint64_t hash_whole(struct rail *r, struct segment *s, uint64_t budget, bool *is_done);
static uint64_t hash_stream(
	struct rail *r, struct segment *s, uint64_t from, uint64_t len, uint64_t budget, bool *is_done);
static uint64_t hash_segment(struct rail *r, struct segment *s, uint64_t budget, bool *is_done);

unsigned verify_burst(struct rail *r)
{
	uint64_t budget = r->snap->verify_turn_bytes;
	unsigned n = 0;
	struct segment *s;

	while (budget && (s = r->landed.head) != NULL) {
		bool is_done = true;
		uint64_t hashed = s->want_hash && s->status == RY_OK ? hash_segment(r, s, budget, &is_done) : 0;

		s->hashed_bytes += hashed;
		stat_add(&r->counters.hashed_bytes, hashed);
		budget -= RTE_MIN(budget, hashed);
		n++;
		if (!is_done)
			break;
		if (s->status == RY_ERR_CHECKSUM)
			stat_add(&r->counters.checksum_errors, 1);
		seg_push(&r->finished, seg_pop(&r->landed));
	}
	return n;
}

static uint64_t hash_segment(struct rail *r, struct segment *s, uint64_t budget, bool *is_done)
{
	struct stripe_job *j = s->job;

	if (!j)
		return hash_whole(r, s, budget, is_done);
	if (s->kind == SEG_VERIFY)
		return hash_stream(r, s, j->hashed_bytes, j->len_bytes - j->hashed_bytes, budget, is_done);
	/* Not ours to hash, or its turn has not come: control orders a SEG_VERIFY for the rest when all segments are
	 * back. */
	if (j->owner_rail != r->idx || j->hashed_bytes != (uint64_t)s->parts[0].offset + s->hash_off)
		return 0;
	return hash_stream(r, s, j->hashed_bytes, s->parts[0].len_bytes - s->hash_off, budget, is_done);
}

/* Several whole small stripes, or one stripe that fits a segment. */
static uint64_t hash_whole(struct rail *r, struct segment *s, uint64_t budget, bool *is_done)
{
	uint64_t hashed = 0;
	uint8_t *p = s->dst + s->hash_off; /* hash_off: where part hash_part starts */

	while (s->hash_part < s->n_parts && hashed < budget) {
		const struct seg_part *part = &s->parts[s->hash_part];

		if (r->hash->whole(p, part->len_bytes) != part->checksum) {
			s->status = RY_ERR_CHECKSUM;
			s->bad_part = (uint8_t)s->hash_part;
			return hashed + part->len_bytes;
		}
		p += part->len_bytes;
		hashed += part->len_bytes;
		s->hash_off += part->len_bytes;
		s->hash_part++;
	}
	*is_done = s->hash_part == s->n_parts;
	return hashed;
}

static uint64_t hash_stream(
	struct rail *r, struct segment *s, uint64_t from, uint64_t len, uint64_t budget, bool *is_done)
{
	struct stripe_job *j = s->job;
	uint64_t n = RTE_MIN(len, budget);

	if (!from)
		XXH3_64bits_reset(&j->state);
	r->hash->update(&j->state, j->base + from, n);
	j->hashed_bytes += n;
	s->hash_off += (uint32_t)n;
	*is_done = n == len;
	if (j->hashed_bytes == j->len_bytes && XXH3_64bits_digest(&j->state) != j->checksum)
		s->status = RY_ERR_CHECKSUM;
	return n;
}
