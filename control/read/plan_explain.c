/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * `railyard plan`: runs the planner itself over a simulated clock, each rail taking its next piece when the one before
 * is through at the rail's measured goodput (at a guess by its link where nothing was measured yet).
 */
#include "read/control_priv.h"

static void simulate(struct control *c, struct api_call *call, struct plan *plan, uint32_t mask);
static uint32_t usable_rails(const struct control *c, const struct api_call *call);
static int soonest(const uint64_t *free_at_ns, uint32_t mask);

void plan_explain(struct control *c, struct api_call *call)
{
	uint64_t n_stripes = call->stripe_bytes ? (call->size_bytes + call->stripe_bytes - 1) / call->stripe_bytes : 0;
	uint32_t mask = usable_rails(c, call), first, n;
	struct plan plan;
	uint8_t *deal;
	uint64_t off;

	if (n_stripes > RY_STRIPES_MAX ||
		!plan_geometry_ok(call->size_bytes, call->stripe_bytes, (uint32_t)n_stripes) ||
		call->offset > call->size_bytes) {
		call->status = RY_ERR_INVALID;
		snprintf(call->cause, sizeof(call->cause), "no object has this size, stripe size and range");
		return;
	}
	call->length = RTE_MIN(call->length, call->size_bytes - call->offset);
	call->n_rails = c->n_rails;
	memset(call->plan, 0, sizeof(call->plan));
	if (!call->length)
		return;
	if (!mask) {
		call->status = RY_ERR_NO_RAIL;
		if (call->store_idx < c->config->n_stores)
			path_explain(c, call->store_idx, UINT32_MAX, call->cause, sizeof(call->cause));
		else
			snprintf(call->cause, sizeof(call->cause),
				"this node knows no store: see `stores` in its configuration");
		return;
	}
	first = (uint32_t)(call->offset / call->stripe_bytes);
	n = (uint32_t)((call->offset + call->length - 1) / call->stripe_bytes) - first + 1;
	plan_init(&plan, call->size_bytes, call->stripe_bytes, first, n, c->config->segment_bytes, mask);
	if (plan.unissued_bytes <= c->config->one_rail_max_bytes)
		plan.rail_mask = mask & -mask; /* all are free: the first */
	if (c->config->policy != POLICY_ROUND_ROBIN) {
		simulate(c, call, &plan, mask);
		return;
	}
	deal = meta_alloc(c, n, &off);
	if (!deal) {
		call->status = RY_ERR_LIMIT;
		snprintf(call->cause, sizeof(call->cause), "no memory for a deal of %u stripes now; try again", n);
		return;
	}
	plan_deal_round_robin(&plan, NULL, deal);
	simulate(c, call, &plan, mask);
	meta_free(c, off, n);
}

static void simulate(struct control *c, struct api_call *call, struct plan *plan, uint32_t mask)
{
	uint64_t free_at_ns[RY_RAILS_MAX] = {0};
	uint32_t live = plan->rail_mask;
	struct plan_piece piece;
	int r;

	while (live && (r = soonest(free_at_ns, live)) >= 0) {
		uint64_t rate = c->rails[r].rate;

		if (!plan_next(plan, (uint16_t)r, mask, &piece)) {
			live &= ~(1u << r);
			continue;
		}
		free_at_ns[r] += piece.len_bytes * 1000000000ull / rate;
		call->plan[r].bytes += piece.len_bytes;
		call->plan[r].segments++;
		call->plan[r].stripes += piece.is_split || piece.off ? 0 : piece.n_stripes;
	}
}

static uint32_t usable_rails(const struct control *c, const struct api_call *call)
{
	return call->store_idx < c->config->n_stores ? eligible_rails(c, call->store_idx) : 0;
}

static int soonest(const uint64_t *free_at_ns, uint32_t mask)
{
	int best = -1;

	for (int r = 0; r < (int)RY_RAILS_MAX; r++) {
		if ((mask >> r & 1) && (best < 0 || free_at_ns[r] < free_at_ns[best]))
			best = r;
	}
	return best;
}
