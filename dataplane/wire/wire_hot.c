/* SPDX-License-Identifier: BSD-3-Clause */
#include "wire/wire.h"

#include <string.h>

#include <railyard/status.h>

static int check_read(const void *msg, uint32_t len);
static bool part_is_sane(const struct wire_part *p, uint64_t *window_start, uint64_t *window_end);
static int check_done(const void *msg);
static int check_ping(const void *msg);
static int check_pulled(const void *msg);

/* Exact length of the fixed part of each type; 0 = not a message of this version. */
static const uint16_t fixed_bytes[] = {
	[WIRE_READ] = sizeof(struct wire_read),
	[WIRE_PULL] = sizeof(struct wire_read),
	[WIRE_DONE] = sizeof(struct wire_done),
	[WIRE_CANCEL] = sizeof(struct wire_cancel),
	[WIRE_BUSY] = sizeof(struct wire_busy),
	[WIRE_PING] = sizeof(struct wire_ping),
	[WIRE_PONG] = sizeof(struct wire_msg),
	[WIRE_GRANT] = sizeof(struct wire_grant),
	[WIRE_PULLED] = sizeof(struct wire_pulled),
};

int wire_msg_check(const void *msg, uint32_t len)
{
	struct wire_msg h;

	if (len < sizeof(h) || len > WIRE_MSG_BYTES)
		return RY_ERR_PROTOCOL;
	memcpy(&h, msg, sizeof(h));
	if (h.len_bytes != len || h.flags & ~(h.type == WIRE_READ ? WIRE_F_START : 0) || h.reserved)
		return RY_ERR_PROTOCOL;
	if (h.type >= sizeof(fixed_bytes) / sizeof(fixed_bytes[0]) || !fixed_bytes[h.type])
		return RY_ERR_PROTOCOL;
	if (h.type == WIRE_READ || h.type == WIRE_PULL)
		return check_read(msg, len);
	if (len != fixed_bytes[h.type])
		return RY_ERR_PROTOCOL;
	if (h.type == WIRE_DONE)
		return check_done(msg);
	if (h.type == WIRE_PULLED)
		return check_pulled(msg);
	return h.type == WIRE_PING ? check_ping(msg) : RY_OK;
}

static int check_read(const void *msg, uint32_t len)
{
	struct wire_read m;
	struct wire_part p;
	uint64_t window_start = UINT64_MAX, window_end = 0;

	if (len < sizeof(m))
		return RY_ERR_PROTOCOL;
	memcpy(&m, msg, sizeof(m));
	if (m.n_parts == 0 || m.n_parts > WIRE_PARTS_MAX || m.reserved[0] || m.reserved[1] || m.reserved[2])
		return RY_ERR_PROTOCOL;
	if (len != sizeof(m) + m.n_parts * sizeof(p))
		return RY_ERR_PROTOCOL;
	for (uint32_t i = 0; i < m.n_parts; i++) {
		memcpy(&p, (const uint8_t *)msg + sizeof(m) + i * sizeof(p), sizeof(p));
		if (!part_is_sane(&p, &window_start, &window_end))
			return RY_ERR_PROTOCOL;
	}
	return RY_OK;
}

/*
 * Parts ascend in the window without overlap, so that no byte is written twice, and the sum fits the largest window. It
 * starts where the first part does: an address where the requester has no windows.
 */
static bool part_is_sane(const struct wire_part *p, uint64_t *window_start, uint64_t *window_end)
{
	if (p->len_bytes == 0 || p->len_bytes > RY_STRIPE_MAX_BYTES || p->stripe_idx >= RY_STRIPES_MAX)
		return false;
	if (p->offset > RY_STRIPE_MAX_BYTES - p->len_bytes)
		return false;
	if (p->window_offset < *window_end || p->window_offset > (uint64_t)INT64_MAX - p->len_bytes)
		return false;
	if (*window_start == UINT64_MAX)
		*window_start = p->window_offset;
	if (p->window_offset - *window_start > RY_STRIPE_MAX_BYTES - p->len_bytes)
		return false;
	*window_end = p->window_offset + p->len_bytes;
	return true;
}

static int check_done(const void *msg)
{
	struct wire_done m;

	memcpy(&m, msg, sizeof(m));
	return m.status < RY_STATUS_MAX_ ? RY_OK : RY_ERR_PROTOCOL;
}

static int check_ping(const void *msg)
{
	struct wire_ping m;

	memcpy(&m, msg, sizeof(m));
	return m.len_bytes > 0 && m.len_bytes <= WIRE_DATA_MAX_BYTES && !m.reserved ? RY_OK : RY_ERR_PROTOCOL;
}

static int check_pulled(const void *msg)
{
	struct wire_pulled m;

	memcpy(&m, msg, sizeof(m));
	return m.reserved ? RY_ERR_PROTOCOL : RY_OK;
}

int wire_frame_check(const struct wire_frame *frame)
{
	if (frame->reserved[0] || frame->reserved[1] || frame->reserved[2] || frame->reserved2 || !frame->len_bytes)
		return RY_ERR_PROTOCOL;
	switch (frame->type) {
	case WIRE_FRAME_MSG:
		return frame->len_bytes <= WIRE_MSG_BYTES && !frame->key && !frame->offset ? RY_OK : RY_ERR_PROTOCOL;
	case WIRE_FRAME_DATA:
		if (frame->len_bytes > WIRE_DATA_MAX_BYTES || frame->offset > RY_STRIPE_MAX_BYTES - frame->len_bytes)
			return RY_ERR_PROTOCOL;
		return RY_OK;
	default:
		return RY_ERR_PROTOCOL;
	}
}
