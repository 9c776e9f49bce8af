/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Budgets of node and client: counts of reads at submit, bytes as soon as they are known (before any moves). The rail's
 * budget is charged at hand-out, in hand_out.c. Each charge has one release.
 */
#include "read/control_priv.h"

uint32_t admit_op(struct control *c, struct client_state *cs)
{
	if (c->inflight_reads >= c->config->max_reads || cs->n_reads >= c->config->client_max_reads)
		return RY_ERR_BUDGET;
	c->inflight_reads++;
	cs->n_reads++;
	return RY_OK;
}

void admit_op_release(struct control *c, struct client_state *cs)
{
	c->inflight_reads--;
	cs->n_reads--;
}

uint32_t admit_read(struct control *c, struct op *op, uint64_t bytes)
{
	uint64_t node_max = c->config->inflight_max_bytes, client_max = c->config->client_inflight_max_bytes;

	if (bytes > RTE_MIN(node_max, client_max)) {
		op_cause(op,
			"%" PRIu64 " bytes in one read, the in-flight budget is %" PRIu64
			": read by range, or raise reader.inflight",
			bytes, RTE_MIN(node_max, client_max));
		return RY_ERR_BUDGET;
	}
	if (c->inflight_bytes + bytes > node_max || op->cs->inflight_bytes + bytes > client_max) {
		op_cause(op,
			"%" PRIu64 " bytes do not fit the in-flight budget now (node %" PRIu64 " of %" PRIu64
			", client %" PRIu64 " of %" PRIu64 "): retry",
			bytes, c->inflight_bytes, node_max, op->cs->inflight_bytes, client_max);
		return RY_ERR_BUDGET;
	}
	c->inflight_bytes += bytes;
	op->cs->inflight_bytes += bytes;
	return RY_OK;
}

void admit_release(struct control *c, struct xfer *x)
{
	if (!x->is_charged)
		return;
	c->inflight_bytes -= x->total_bytes;
	x->cs->inflight_bytes -= x->total_bytes;
	x->is_charged = false;
}
