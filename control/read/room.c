/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Who may put one more segment on a full rail. Depth belongs to the rail, whoever fills it; but a peer that answers no
 * more keeps what it holds until its segment deadline, so every peer has an equal share all the same: one that holds
 * less may go on. In flight are then at most two depths instead of one, and only while peers compete; a dead peer costs
 * the others the difference between depth and share, not the rail.
 */
#include "read/control_priv.h"

static bool is_within_budget(const struct control *c, const struct rail_ctx *rs);

/* One compare tells the hot path both: below the depth, and one more segment is within the rail's budget. */
void room_update(const struct control *c, struct rail_ctx *rs)
{
	uint64_t most = c->config->segment_bytes + PLAN_PIECE_SLACK;
	uint64_t stop = rs->inflight_max_bytes > most ? rs->inflight_max_bytes - most + 1 : 1;

	rs->room_bytes = RTE_MIN(rs->depth_bytes, stop);
}

bool room_anyone(const struct control *c, uint16_t r)
{
	const struct peer *p;

	TAILQ_FOREACH (p, &c->active_peers, active) {
		if ((p->rail_mask >> r & 1) && room_by_share(c, p, r))
			return true;
	}
	return false;
}

bool room_by_share(const struct control *c, const struct peer *p, uint16_t r)
{
	const struct rail_ctx *rs = &c->rails[r];
	const struct path *path = &c->paths[p->by_rail[r].pair->idx];
	uint32_t n_sharers = rs->n_busy_paths + !path->inflight_bytes;

	return n_sharers > 1 && path->inflight_bytes < rs->depth_bytes / n_sharers && is_within_budget(c, rs);
}

/* Depth may be passed by a segment; the rail's budget may not. */
static bool is_within_budget(const struct control *c, const struct rail_ctx *rs)
{
	return rs->inflight_bytes + c->config->segment_bytes + PLAN_PIECE_SLACK <= rs->inflight_max_bytes;
}
