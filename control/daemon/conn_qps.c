/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rails whose QPs are joined by addresses, not by sockets of their own (verbs): what the two ends tell each other over
 * the bootstrap socket; and fences, which call into the kernel for longer than an lcore may.
 */
#include "daemon/conn_priv.h"

#include <stdio.h>
#include <string.h>

#include "daemon/log.h"

static bool fence_one(struct conn *c, struct link *l, struct qp *qp);
static void no_proof(struct conn *c, const struct link *l, int rc);

/* ---- bring-up ---- */

void link_open_qps(struct conn *c, struct link *l)
{
	struct rail *rail = c->deps.rails[l->pair.rail_idx];
	struct qp_address own;
	struct wire_qps m;

	if (!rail_attr(rail)->has_addresses)
		return;
	if (!rail_has_device(c, l->pair.rail_idx)) {
		link_condemn(c, l, RAIL_EV_LOCAL, RY_ERR_RAIL, "rail %s: its RDMA device is of no use",
			conn_rail_conf(c, l->pair.rail_idx)->name);
		return;
	}
	wire_enc_fixed(&m, WIRE_META_QPS, sizeof(m), 0, RY_OK);
	m.n_qps = l->pair.n_qps;
	for (uint16_t i = 0; i < l->pair.n_qps && l->state == LINK_JOINING; i++) {
		link_add_qp(c, l, i, -1);
		if (l->state != LINK_JOINING)
			return;
		rail_ops(rail)->qp_local(rail, l->pair.qps[i], &own);
		m.qps[i].qp_num = own.qp_num;
		m.qps[i].psn = own.psn;
		m.mtu_bytes = own.mtu_bytes;
		m.rd_atomic = own.rd_atomic;
		m.flags = own.has_grants ? WIRE_QPS_GRANTS : 0;
		memcpy(m.gid, own.gid, sizeof(m.gid));
	}
	/* Receives are posted (pair_connect does it): from here on the peer may send. */
	link_put_bytes(c, l, &m, sizeof(m));
	link_write(c, l);
}

const char *link_qps_told(struct conn *c, struct link *l, const struct wire_qps *m)
{
	if (!rail_attr(c->deps.rails[l->pair.rail_idx])->has_addresses || l->is_told || l->state != LINK_JOINING)
		return "addresses of QPs that were not asked for";
	if (m->n_qps != l->pair.n_qps)
		return "addresses of another number of QPs";
	l->peer_qps = *m;
	l->is_told = true;
	return NULL;
}

/* One link a turn: the kernel takes a second to find that nobody has an address, and keepalives come first then. */
bool link_join_qps(struct conn *c, struct link *l)
{
	struct rail *rail = c->deps.rails[l->pair.rail_idx];
	const struct wire_qps *m = &l->peer_qps;
	struct qp_address peer = {
		.mtu_bytes = m->mtu_bytes,
		.rd_atomic = m->rd_atomic,
		.has_grants = m->flags & WIRE_QPS_GRANTS,
	};

	c->want_retry |= l->is_told && c->has_joined;
	if (!l->is_told || c->has_joined)
		return false;
	c->has_joined = true;
	memcpy(peer.gid, m->gid, sizeof(peer.gid));
	for (uint16_t i = 0; i < l->pair.n_qps; i++) {
		int rc;

		peer.qp_num = m->qps[i].qp_num;
		peer.psn = m->qps[i].psn;
		rc = l->pair.qps[i] ? rail_ops(rail)->qp_remote(rail, l->pair.qps[i], &peer) : -1;
		if (rc < 0) {
			link_condemn(c, l, RAIL_EV_LOCAL, RY_ERR_RAIL, "rail %s: QP %u cannot be joined to %s: %s",
				conn_rail_conf(c, l->pair.rail_idx)->name, i, l->peer_text, error_text(rc));
			return true;
		}
	}
	l->is_addressed = true;
	return true;
}

/* ---- fences ---- */

bool link_fence(struct conn *c, struct link *l)
{
	bool did = false;

	for (uint16_t i = 0; i < l->pair.n_qps; i++) {
		if (l->qp_step[i] == QP_STEP_ADOPTING || l->qp_step[i] == QP_STEP_RELEASING)
			did |= fence_one(c, l, l->pair.qps[i]);
	}
	return did;
}

/* BYE first: the other end counts nothing for a QP that we end. Its close must not be taken for the reason. */
static bool fence_one(struct conn *c, struct link *l, struct qp *qp)
{
	struct rail *rail = c->deps.rails[l->pair.rail_idx];
	int rc;

	if (!rail_ops(rail)->qp_wants_fence(rail, qp))
		return false;
	if (l->state == LINK_UP && !l->is_bye_sent) {
		l->is_bye_sent = link_put_bye(c, l, WIRE_BYE_REBUILD);
		l->is_fencing = true;
		link_write(c, l);
	}
	rc = rail_ops(rail)->qp_fence(rail, qp);
	if (rc < 0)
		no_proof(c, l, rc);
	return true;
}

/* The pair is never quiesced: what its device may still write is not given to anybody else. */
static void no_proof(struct conn *c, const struct link *l, int rc)
{
	uint16_t rail_idx = l->pair.rail_idx;
	char cause[RY_CAUSE_MAX_BYTES];

	snprintf(cause, sizeof(cause), "its device did not end a QP to node %s: %s", l->pair.node_name, error_text(rc));
	log_error("rail %s: %s: memory that it may still write stays withheld, and the rail is out of use until the "
		  "daemon "
		  "is restarted",
		conn_rail_conf(c, rail_idx)->name, cause);
	c->netdevs[rail_idx].is_gone = true;
	links_drop(c, rail_idx, cause);
}
