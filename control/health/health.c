/* SPDX-License-Identifier: BSD-3-Clause */
/* Connected or not: the whole health of this version. */
#include "health/health.h"

#include <string.h>

void health_init(struct health *h)
{
	memset(h, 0, sizeof(*h));
}

void health_connected(struct health *h, uint16_t pair_idx, uint32_t epoch)
{
	h->connected_epoch[pair_idx] = epoch;
}

void health_disconnected(struct health *h, uint16_t pair_idx, enum health_evidence why, uint64_t now_ns)
{
	h->connected_epoch[pair_idx] = 0;
}

bool health_is_available(const struct health *h, uint16_t pair_idx, uint64_t now_ns)
{
	return h->connected_epoch[pair_idx] != 0;
}

struct health_token health_admit(struct health *h, uint16_t pair_idx, uint64_t now_ns)
{
	struct health_token t = {
		.kind = health_is_available(h, pair_idx, now_ns) ? HEALTH_NORMAL : HEALTH_REFUSED,
		.pair_idx = pair_idx,
		.epoch = h->connected_epoch[pair_idx],
	};

	return t;
}

void health_cancel_probe(struct health *h, struct health_token token, uint64_t now_ns)
{
}

void health_success(struct health *h, struct health_token token, uint64_t now_ns)
{
}

/* Path evidence of the connection that is up takes the pair out of plans until conn connects it again. */
void health_failure(struct health *h, struct health_token token, enum health_evidence why, uint64_t now_ns)
{
	if (why == HEALTH_EV_PATH && token.epoch && h->connected_epoch[token.pair_idx] == token.epoch)
		health_disconnected(h, token.pair_idx, why, now_ns);
}
