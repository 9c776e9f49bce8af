/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/mock/device.h"

#include <errno.h>
#include <stdlib.h>

#include <rte_debug.h>

#include "transport/mock/mock_model.h"

static uint32_t fresh_key(struct mock_device *d, unsigned i);
static void fence(struct rail *rail, struct mock_device *d, struct mock_qp *q);

int device_open(struct rail *rail, struct mock *m)
{
	m->device = calloc(1, sizeof(*m->device));
	if (!m->device)
		return -ENOMEM;
	for (unsigned i = 0; i < WINDOWS_MAX; i++)
		m->device->next_keys[i] = fresh_key(m->device, i);
	rail->next_keys = m->device->next_keys;
	return 0;
}

/* No window had it, not even this one; key 0 is nobody's. */
static uint32_t fresh_key(struct mock_device *d, unsigned i)
{
	return (++d->next_base % (UINT32_MAX / WINDOWS_MAX >> MOCK_KEY_TAG_BITS) * WINDOWS_MAX + i)
	       << MOCK_KEY_TAG_BITS;
}

uint16_t device_turn(struct rail *rail, struct wc *wc, uint16_t max)
{
	struct mock *m = rail->tr;
	uint16_t n = 0;

	for (uint16_t i = 0; i < rail->n_qps && n < max; i++) {
		struct mock_qp *q = (struct mock_qp *)rail->qps[i];

		/* Acquire: partner of the release in device_qp_fence. */
		if (!q->is_fenced && __atomic_load_n(&q->fence_asked, __ATOMIC_ACQUIRE)) {
			fence(rail, m->device, q);
			mock_down(q, q->break_status ? q->break_status : WC_ERR_FLUSH, &wc[n]);
			wc[n++].is_fenced = true;
		} else if (q->break_status && !q->is_down) {
			mock_down(q, q->break_status, &wc[n++]);
		}
	}
	return n;
}

/* Fresh windows in the place of those that were open. A BIND that still waits in the send queue is never executed. */
static void fence(struct rail *rail, struct mock_device *d, struct mock_qp *q)
{
	for (unsigned i = 0; i < WINDOWS_MAX; i++) {
		const struct window *w = &rail->windows[i];

		if (w->qp != &q->base || (w->state != WINDOW_BOUND && w->state != WINDOW_INVALIDATING)) {
			/* A rail that forgot an open window cannot name it to its transport. */
			RTE_VERIFY(!d->windows[i].is_bound || d->windows[i].qp != &q->base);
			continue;
		}
		d->windows[i].is_bound = false;
		d->next_keys[i] = fresh_key(d, i);
	}
	q->is_fenced = true;
}

uint64_t device_next_ns(const struct rail *rail, const struct mock *m)
{
	uint64_t next = UINT64_MAX;

	for (uint16_t i = 0; i < rail->n_qps; i++) {
		const struct mock_qp *q = (const struct mock_qp *)rail->qps[i];

		/* Relaxed: device_turn looks again. */
		if ((q->break_status && !q->is_down) ||
			(!q->is_fenced && __atomic_load_n(&q->fence_asked, __ATOMIC_RELAXED)))
			return 0;
		if (q->stuck_ns && !q->is_down)
			next = RTE_MIN(next, q->stuck_ns + MOCK_RETRY_NS);
	}
	return next;
}

/* What was posted goes on, into windows and out of sources, until conn's fence. */
bool device_stop(struct rail *rail, struct mock_qp *q)
{
	if (q->fence_want)
		return q->is_fenced;
	/* Release: partner of the acquire in device_qp_wants_fence. */
	__atomic_store_n(&q->fence_want, 1, __ATOMIC_RELEASE);
	waker_kick(rail->conn_waker);
	return false;
}

bool device_qp_wants_fence(const struct rail *rail, const struct qp *qp)
{
	const struct mock_qp *q = (const struct mock_qp *)qp;

	(void)rail;
	/* Acquire: partner of the release in device_stop. */
	return __atomic_load_n(&q->fence_want, __ATOMIC_ACQUIRE) && !q->fence_asked;
}

/* The lcore is the one that copies, so it is the lcore that closes. */
int device_qp_fence(struct rail *rail, struct qp *qp)
{
	/* Release: partner of the acquire in device_turn. */
	__atomic_store_n(&((struct mock_qp *)qp)->fence_asked, 1, __ATOMIC_RELEASE);
	waker_kick(&rail->waker);
	return 0;
}
