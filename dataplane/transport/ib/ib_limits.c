/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a device can do against what a rail needs. What is impossible is refused here, with both numbers, rather than
 * found out by a QP that fails in the middle of a read.
 */
#include "transport/ib/ib.h"

#include <rte_common.h>

#include <errno.h>
#include <stdio.h>

static int check_queues(struct ib_rail *ib, char *why, uint32_t why_bytes);
static int choose_rd_atomic(struct ib_rail *ib, const struct verbs_conf *v, char *why, uint32_t why_bytes);
static void choose_windows(struct ib_rail *ib, const struct verbs_conf *v, char *why, uint32_t why_bytes);

int ib_limits_check(
	struct ib_rail *ib, const struct ibv_port_attr *port, const struct verbs_conf *v, char *why, uint32_t why_bytes)
{
	int rc;

	ib->mtu_bytes = ib_mtu(port, v);
	ib->max_msg_bytes = port->max_msg_sz;
	if (port->max_msg_sz < IB_MESSAGE_LEAST) {
		snprintf(why, why_bytes,
			"device %s: max_msg_sz is %u bytes, and a probe or a message of data has up to %u: the device "
			"cannot be used",
			ib->ctx->device->name, port->max_msg_sz, IB_MESSAGE_LEAST);
		return -ENOTSUP;
	}
	rc = check_queues(ib, why, why_bytes);
	rc = rc ? rc : choose_rd_atomic(ib, v, why, why_bytes);
	if (!rc)
		choose_windows(ib, v, why, why_bytes);
	return rc;
}

uint32_t ib_mtu(const struct ibv_port_attr *port, const struct verbs_conf *v)
{
	uint32_t active = 128u << port->active_mtu;

	return v->mtu && v->mtu < active ? v->mtu : active;
}

/* A QP in error completes everything that was posted to it: the CQ has room for all of every QP, or it overflows, which
 * ends all of them. */
static int check_queues(struct ib_rail *ib, char *why, uint32_t why_bytes)
{
	const struct ibv_device_attr *a = &ib->attr;
	uint32_t fit;

	if (a->max_qp_wr < (int)IB_SQ_DEPTH || a->max_sge < 1) {
		snprintf(why, why_bytes,
			"device %s: max_qp_wr is %d and max_sge %d, needed are %u and 1: the device cannot be used",
			ib->ctx->device->name, a->max_qp_wr, a->max_sge, IB_SQ_DEPTH);
		return -ENOTSUP;
	}
	fit = a->max_cqe > 0 ? (uint32_t)a->max_cqe / IB_QP_CQES : 0;
	fit = RTE_MIN(fit, a->max_qp > 0 ? (uint32_t)a->max_qp : 0);
	if (!fit) {
		snprintf(why, why_bytes,
			"device %s: max_cqe is %d and max_qp %d, needed are %u completions for each of 1 QP: the "
			"device cannot be used",
			ib->ctx->device->name, a->max_cqe, a->max_qp, IB_QP_CQES);
		return -ENOTSUP;
	}
	ib->max_qps = RTE_MIN(fit, RAIL_QPS_MAX);
	return 0;
}

/* 0 in either direction would make every READ wait for ever. */
static int choose_rd_atomic(struct ib_rail *ib, const struct verbs_conf *v, char *why, uint32_t why_bytes)
{
	int most = RTE_MIN(ib->attr.max_qp_rd_atom, ib->attr.max_qp_init_rd_atom);

	most = RTE_MIN(most, 255);
	if (most < 1) {
		snprintf(why, why_bytes,
			"device %s: max_qp_rd_atom is %d and max_qp_init_rd_atom %d: it can do no RDMA READ, which "
			"puts and probes need",
			ib->ctx->device->name, ib->attr.max_qp_rd_atom, ib->attr.max_qp_init_rd_atom);
		return -ENOTSUP;
	}
	if (v->rd_atomic > (uint32_t)most) {
		snprintf(why, why_bytes,
			"device %s does %d RDMA READs of a QP at a time, rd_atomic asks for %u: lower it, or 0 for "
			"what the device does",
			ib->ctx->device->name, most, v->rd_atomic);
		return -ENOTSUP;
	}
	ib->rd_atomic = v->rd_atomic ? v->rd_atomic : (uint32_t)most;
	return 0;
}

/* Without them the rail works all the same; `why` then says why. */
static void choose_windows(struct ib_rail *ib, const struct verbs_conf *v, char *why, uint32_t why_bytes)
{
	const char *name = ib->ctx->device->name;

	why[0] = '\0';
	if (!v->want_windows)
		snprintf(why, why_bytes, "windows are off in the configuration");
	else if (!(ib->attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2B))
		snprintf(why, why_bytes, "device %s has no memory windows of type 2B", name);
	else if (ib->attr.max_mw < (int)WINDOWS_MAX)
		snprintf(why, why_bytes, "device %s has %d memory windows, a rail needs %u", name, ib->attr.max_mw,
			WINDOWS_MAX);
	ib->has_windows = !why[0];
}
