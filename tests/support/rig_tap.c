/* SPDX-License-Identifier: BSD-3-Clause */
#include "rig_tap.h"

#include <string.h>

/* Rails have no place for a test's pointer: one context per process. */
static struct {
	rig_tap_fn fn;
	void *ctx;
	transport_post_fn post; /* the transport's own; all rails of a rig have the same */
} tap;

static uint16_t tap_post(struct rail *rail, const struct wr *wr, uint16_t n)
{
	for (uint16_t i = 0; i < n; i++) {
		alignas(8) uint8_t msg[WIRE_MSG_BYTES];
		struct wr w = wr[i];

		if (w.op == WR_SEND) {
			memcpy(msg, w.addr, w.len_bytes);
			w.addr = msg;
		}
		if (!tap.fn(tap.ctx, rail, &w))
			continue;
		if (!tap.post(rail, &w, 1))
			return i;
	}
	return n;
}

void rig_tap(struct rig *r, rig_tap_fn fn, void *ctx)
{
	if (!tap.post)
		tap.post = r->node->rails[0]->post;
	tap.fn = fn;
	tap.ctx = ctx;
	for (uint16_t i = 0; i < r->node->n_rails; i++)
		r->node->rails[i]->post = fn ? tap_post : tap.post;
}

void rig_keep(struct rig_kept *k, struct rail *rail, const struct wr *wr)
{
	k->rail = rail;
	k->wr = *wr;
	memcpy(k->msg, wr->addr, wr->len_bytes);
}

void rig_post_kept(struct rig_kept *k)
{
	k->wr.addr = k->msg;
	tap.post(k->rail, &k->wr, 1);
}
