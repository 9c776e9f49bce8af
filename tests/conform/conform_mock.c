/* SPDX-License-Identifier: BSD-3-Clause */
#include "conform.h"

#include <criterion/criterion.h>

/* One rail with both ends of every pair. Some latency, so that things are under way when a test looks. */
void conform_setup(struct conform *c, uint16_t n_qps)
{
	struct rail_conf conf = {
		.name = "mock0", .transport = "mock", .mock = {.latency_ns = 20000, .want_copy = true}};

	c->ops = transport_find("mock");
	cr_assert(c->ops);
	c->a = c->b = conform_rail_new(c->ops, &conf, 0);
	for (uint16_t i = 0; i < n_qps; i++) {
		struct qp_request req = {.pair_idx = 1, .qp_idx = i, .is_dialler = true, .peer_credits = 24, .fd = -1};

		cr_assert_eq(c->ops->pair_connect(c->a, &req, &c->qa[i]), 0);
		req.is_dialler = false;
		req.pair_idx = 2;
		req.loop_peer = c->qa[i];
		cr_assert_eq(c->ops->pair_connect(c->b, &req, &c->qb[i]), 0);
		conform_adopt(c->a, c->qa[i]);
		conform_adopt(c->b, c->qb[i]);
	}
}
