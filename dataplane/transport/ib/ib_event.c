/* SPDX-License-Identifier: BSD-3-Clause */
/* What a device has to say, in conn's words. Each event is acknowledged as soon as it is read: ibv_destroy_qp waits for
 * that (ibv_get_async_event(3)). */
#include "transport/ib/ib.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static bool translate(struct rail *r, const struct ibv_async_event *ev, struct rail_event *out);
static bool has_died(struct ib_rail *ib, struct rail_event *out);
static bool next_removal(struct ib_rail *ib, struct rail_event *out);

int ib_event_fds(const struct rail *r, int fds[2])
{
	const struct ib_rail *ib = ib_of(r);
	int n = 0;

	fds[n++] = ib->ctx->async_fd;
	if (ib->removal_fd >= 0)
		fds[n++] = ib->removal_fd;
	return n;
}

bool ib_event_next(struct rail *r, struct rail_event *out)
{
	struct ib_rail *ib = ib_of(r);
	struct ibv_async_event ev;

	if (ib->has_left)
		return false;
	errno = 0;
	while (ibv_get_async_event(ib->ctx, &ev) == 0) {
		bool is_ours = translate(r, &ev, out);

		ibv_ack_async_event(&ev);
		if (is_ours)
			return true;
	}
	if (errno != EAGAIN && errno != EINTR && has_died(ib, out))
		return true;
	return next_removal(ib, out);
}

/* Its events end with an error that comes back for ever: told once, and conn looks no more. */
static bool has_died(struct ib_rail *ib, struct rail_event *out)
{
	int rc = errno;

	if (ib->is_mute)
		return false;
	ib->is_mute = true;
	*out = (struct rail_event){.kind = RAIL_EVENT_DEVICE_FATAL};
	snprintf(
		out->text, sizeof(out->text), "%s: its events cannot be read: %s", ib->ctx->device->name, strerror(rc));
	return true;
}

/* A context's events are of all its ports: only ours count. */
static bool translate(struct rail *r, const struct ibv_async_event *ev, struct rail_event *out)
{
	struct ib_rail *ib = ib_of(r);

	*out = (struct rail_event){0};
	snprintf(out->text, sizeof(out->text), "%s: %s", ib->ctx->device->name, ibv_event_type_str(ev->event_type));
	switch (ev->event_type) {
	case IBV_EVENT_PORT_ERR:
		out->kind = RAIL_EVENT_PORT_DOWN;
		return ev->element.port_num == ib->port;
	case IBV_EVENT_PORT_ACTIVE:
		out->kind = RAIL_EVENT_PORT_UP;
		return ev->element.port_num == ib->port;
	case IBV_EVENT_GID_CHANGE:
		/* Any entry of the table: addresses that are not ours come and go. */
		out->kind = RAIL_EVENT_GID_CHANGE;
		return ev->element.port_num == ib->port && ib_gid_refresh(ib, &r->conf) != 0;
	case IBV_EVENT_CQ_ERR:
		out->kind = RAIL_EVENT_CQ_ERROR;
		return true;
	case IBV_EVENT_DEVICE_FATAL:
		out->kind = RAIL_EVENT_DEVICE_FATAL;
		return true;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
		out->kind = RAIL_EVENT_QP_FATAL;
		out->qp = ev->element.qp->qp_context;
		return out->qp != NULL;
	default:
		return false;
	}
}

static bool next_removal(struct ib_rail *ib, struct rail_event *out)
{
	if (ib->removal_fd < 0 || !ib_removal_seen(ib->removal_fd))
		return false;
	*out = (struct rail_event){.kind = RAIL_EVENT_REMOVED};
	snprintf(out->text, sizeof(out->text), "%s: the device is being removed", ib->ctx->device->name);
	return true;
}
