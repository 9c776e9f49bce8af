/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Device windows on a mock rail (mock_conf.want_device_windows): behaves as a NIC with type 2B memory windows does.
 *
 * A window of the device opens and closes when BIND and INV reach the head of the send queue, not when the rail says
 * so. Access through a window that is closed ends both QPs. A QP that is lost or given up goes on placing bytes until
 * conn fences it. What a rail must never do stops the process: a bind of a bound window, a second invalidation, a key
 * that was not the next one, memory taken back while the device could still touch it. Tests are what it is for.
 */
#ifndef RY_MOCK_DEVICE_H
#define RY_MOCK_DEVICE_H

#include "transport/mock/mock_priv.h"

#ifdef __cplusplus
extern "C" {
#endif

#define MOCK_RETRY_NS 20000000u /* a peer that is gone answers nothing: then WC_ERR_RETRY */
#define MOCK_KEY_TAG_BITS 8     /* of a key; grows at each bind. The rest names the window, and changes at a fence */

struct mock_window {
	struct qp *qp;
	uint8_t *addr;
	uint64_t len_bytes;
	uint32_t key;
	uint8_t access; /* enum window_access */
	bool is_bound;
};

/* Written by the lcore. */
struct mock_device {
	uint32_t next_keys[WINDOWS_MAX];
	uint32_t next_base;
	struct mock_window windows[WINDOWS_MAX];
};

/* ---- device_hot.c ---- */
/* WR_BIND, WR_INV, WR_READ; result as in mock_post. */
bool device_take(struct rail *rail, struct mock *m, struct mock_qp *q, const struct wr *wr);
/* Whether the head of q's send queue can move. */
bool device_moves(const struct rail *rail, struct mock_qp *q, const struct mock_wr *e);
/* BIND and INV: result as mock_deliver. */
unsigned device_local(struct rail *rail, struct mock_qp *q, struct mock_wr *e, struct wc *wc);
/* A slice of a READ; the same. */
unsigned device_read(struct rail *rail, struct mock_qp *q, struct mock_wr *e, uint32_t n_bytes, struct wc *wc);
/* Whether the peer's window takes this slice of a WRITE; if not, both QPs are broken. */
bool device_admits(struct rail *rail, struct mock_qp *q, const struct mock_wr *e, uint32_t n_bytes);
/* Where bytes at the window's end `qp` lie, NULL where the device lets nobody in. */
uint8_t *device_place(
	struct rail *rail, const struct qp *qp, uint32_t key, uint64_t offset, uint64_t len_bytes, uint8_t access);

/* ---- device.c, set-up and ends ---- */
int device_open(struct rail *rail, struct mock *m);
/* Once a poll: QPs that broke, and those that conn has fenced. Returns completions. */
uint16_t device_turn(struct rail *rail, struct wc *wc, uint16_t max);
/* When poll has something to do, 0 = now. */
uint64_t device_next_ns(const struct rail *rail, const struct mock *m);
bool device_stop(struct rail *rail, struct mock_qp *q);
bool device_qp_wants_fence(const struct rail *rail, const struct qp *qp);
int device_qp_fence(struct rail *rail, struct qp *qp);

static inline unsigned device_index(uint32_t key)
{
	return (key >> MOCK_KEY_TAG_BITS) % WINDOWS_MAX;
}

/* window_resolve, whoever checks the windows. */
static inline uint8_t *mock_resolve(
	struct rail *rail, const struct qp *qp, uint32_t key, uint64_t offset, uint64_t len_bytes)
{
	if (unlikely(((struct mock *)rail->tr)->device))
		return device_place(rail, qp, key, offset, len_bytes, WINDOW_WRITES);
	return window_resolve(rail, qp, key, offset, len_bytes);
}

#ifdef __cplusplus
}
#endif
#endif
