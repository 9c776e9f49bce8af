/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/mock/mock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "transport/mock/device.h"
#include "transport/mock/mock_model.h"

static int mock_open(struct rail *rail, const struct rail_conf *conf);
static void mock_close(struct rail *rail);
static int mock_pair_connect(struct rail *rail, const struct qp_request *req, struct qp **out);
static struct mock_link *make_link(void);
static void mock_describe(const struct rail *rail, struct rail_device_info *out);
static void mock_pair_close(struct rail *rail, struct qp *qp);
static int mock_arm(struct rail *rail);
static uint64_t next_due_ns(const struct mock *m, const struct mock_qp *q);
static int mock_fence(struct rail *rail, struct window *window);
static bool mock_stop(struct rail *rail, struct qp *qp);

const struct transport_ops mock_ops = {
	.name = "mock",
	.open = mock_open,
	.close = mock_close,
	.mem_reg = transport_no_reg,
	.mem_dereg = transport_no_dereg,
	.pair_connect = mock_pair_connect,
	.pair_close = mock_pair_close,
	.post = mock_post,
	.poll = mock_poll,
	.arm = mock_arm,
	.fence = mock_fence,
	.stop = mock_stop,
	.qp_wants_fence = device_qp_wants_fence,
	.qp_fence = device_qp_fence,
	.qp_local = transport_no_address,
	.qp_remote = transport_no_remote,
	.event_fds = transport_no_event_fds,
	.event_next = transport_no_events,
	.describe = mock_describe,
	.detach = transport_no_detach,
	.attach = transport_no_attach,
};

static int mock_open(struct rail *rail, const struct rail_conf *conf)
{
	struct mock *m;
	int rc;

	if (conf->mock.bandwidth_bytes_per_s > 1ull << 50)
		return -EINVAL; /* beyond what the wire's arithmetic holds, and any wire */
	if (posix_memalign((void **)&m, alignof(struct mock), sizeof(*m)))
		return -ENOMEM;
	memset(m, 0, sizeof(*m));
	m->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	if (m->timer_fd < 0) {
		int err = errno;

		free(m);
		return -err;
	}
	m->bandwidth = conf->mock.bandwidth_bytes_per_s;
	m->latency_ns = conf->mock.latency_ns;
	m->want_copy = conf->mock.want_copy;
	m->turn_bytes = m->bandwidth ? MOCK_TURN_BYTES : MOCK_SLICE_BYTES;
	if (!m->want_copy)
		m->turn_bytes = UINT32_MAX; /* nothing is moved, so nothing is to be cut in cache-sized turns */
	m->scan = 1;                        /* an end that no scan has seen has 0 */
	m->epoch_seen = rail->qp_epoch;
	rail->tr = m;
	rc = fault_open(rail, m, conf->mock.faults);
	rc = rc || !conf->mock.want_device_windows ? rc : device_open(rail, m);
	if (rc) {
		mock_close(rail);
		return rc;
	}
	rail->attr = (struct transport_attr){
		.write_max_bytes = MOCK_WRITE_MAX_BYTES,
		.sq_depth = MOCK_SQ_DEPTH,
		.has_windows = true,
		.has_device_windows = m->device != NULL,
		.is_loopback = true,
	};
	return 0;
}

static void mock_close(struct rail *rail)
{
	struct mock *m = rail->tr;

	if (!m)
		return;
	close(m->timer_fd);
	fault_close(m);
	free(m->device);
	free(m);
	rail->tr = NULL;
}

static int mock_pair_connect(struct rail *rail, const struct qp_request *req, struct qp **out)
{
	struct mock_qp *q;

	if (req->loop_peer) {
		q = ((struct mock_qp *)req->loop_peer)->peer;
		if (q->has_request)
			return -EISCONN;
	} else {
		struct mock_link *link = make_link();

		if (!link)
			return -ENOMEM;
		q = &link->ends[0];
	}
	q->base = (struct qp){
		.rail_idx = rail->idx,
		.pair_idx = req->pair_idx,
		.peer_idx = req->peer_idx,
		.qp_idx = req->qp_idx,
		.is_dialler = req->is_dialler,
		.peer_credits = req->peer_credits,
	};
	q->has_request = true;
	q->has_device = ((struct mock *)rail->tr)->device != NULL;
	*out = &q->base;
	return 0;
}

static struct mock_link *make_link(void)
{
	struct mock_link *link;

	if (posix_memalign((void **)&link, alignof(struct mock_link), sizeof(*link)))
		return NULL;
	memset(link, 0, sizeof(*link));
	for (int i = 0; i < 2; i++) {
		link->ends[i].link = link;
		link->ends[i].peer = &link->ends[1 - i];
	}
	return link;
}

/* The lcore may be looking at this end as the peer of the other one, so memory goes when both are closed (both by this
 * thread). */
static void mock_pair_close(struct rail *rail, struct qp *qp)
{
	struct mock_qp *q = (struct mock_qp *)qp;
	struct mock *m = rail->tr;

	/* Release: partner of the acquire in mock_rescan. */
	__atomic_store_n(&q->is_closed, 1, __ATOMIC_RELEASE);
	if (q->peer->has_request && !q->peer->is_closed) {
		/* Release: partner of the acquire in mock_poll; is_closed is seen with it. */
		__atomic_store_n(&m->close_epoch, m->close_epoch + 1, __ATOMIC_RELEASE);
		waker_kick(&rail->waker);
		return;
	}
	free(q->link);
}

static int mock_arm(struct rail *rail)
{
	struct mock *m = rail->tr;
	struct itimerspec at = {0};
	uint64_t due_ns = UINT64_MAX;

	/* Acquire: as in mock_poll. A close after this look finds need_wakeup set (waker_prepare came before us). */
	if (m->epoch_seen != rail->qp_epoch || __atomic_load_n(&m->close_epoch, __ATOMIC_ACQUIRE) != m->close_seen)
		return -EAGAIN;
	if (__atomic_load_n(&m->fault.want, __ATOMIC_RELAXED)) {
		due_ns = fault_next_ns(m, rail->now_ns);
	} else {
		for (uint32_t i = 0; i < m->n_active; i++)
			due_ns = RTE_MIN(due_ns, next_due_ns(m, m->active[i]));
	}
	if (m->device)
		due_ns = RTE_MIN(due_ns, device_next_ns(rail, m));
	if (due_ns == UINT64_MAX)
		return -1;
	if (due_ns <= rail->now_ns)
		return -EAGAIN;
	at.it_value.tv_sec = (time_t)(due_ns / MOCK_NS_PER_S);
	at.it_value.tv_nsec = (long)(due_ns % MOCK_NS_PER_S);
	return timerfd_settime(m->timer_fd, TFD_TIMER_ABSTIME, &at, NULL) ? -EAGAIN : m->timer_fd;
}

/* When poll would find something on this end; UINT64_MAX = not before something else happens. */
static uint64_t next_due_ns(const struct mock *m, const struct mock_qp *q)
{
	if (q->inv_head != q->inv_tail)
		return 0;
	if (q->sq_head == q->sq_tail || !mock_is_live(m, q->peer))
		return UINT64_MAX;
	return mock_next_ns(m, &q->sq[q->sq_head & (MOCK_SQ_DEPTH - 1)]);
}

/* The caller set the window's state, and this lcore is the one that copies; a device's window is conn's to close. */
static int mock_fence(struct rail *rail, struct window *window)
{
	return ((struct mock *)rail->tr)->device != NULL;
}

static bool mock_stop(struct rail *rail, struct qp *qp)
{
	return !((struct mock *)rail->tr)->device || device_stop(rail, (struct mock_qp *)qp);
}

uint16_t mock_rescan(struct rail *rail, struct wc *wc, uint16_t max)
{
	struct mock *m = rail->tr;
	uint32_t closes = __atomic_load_n(&m->close_epoch, __ATOMIC_ACQUIRE); /* partner: mock_pair_close */
	bool is_complete = true;
	uint16_t n = 0;

	m->scan++;
	m->n_active = 0;
	m->epoch_seen = rail->qp_epoch;
	for (uint16_t i = 0; i < rail->n_qps; i++) {
		struct mock_qp *q = (struct mock_qp *)rail->qps[i];

		q->scan = m->scan;
		/* Acquire: partner of the release in mock_pair_close. */
		if (!q->is_down && __atomic_load_n(&q->peer->is_closed, __ATOMIC_ACQUIRE)) {
			if (n < max)
				mock_down(q, WC_ERR_PEER_CLOSED, &wc[n++]);
			else
				is_complete = false; /* next poll looks again */
		}
		q->is_listed = mock_has_work(q);
		if (q->is_listed)
			m->active[m->n_active++] = q;
	}
	if (is_complete)
		m->close_seen = closes;
	fault_forget(m);
	return n;
}

void mock_down(struct mock_qp *q, uint8_t status, struct wc *wc)
{
	q->is_down = true;
	q->sq_head = q->sq_tail;
	q->msg_head = q->msg_tail;
	q->inv_head = q->inv_tail;
	*wc = (struct wc){.op = WC_QP_DOWN, .status = status, .is_fenced = !q->has_device, .qp = &q->base};
}

static void mock_describe(const struct rail *rail, struct rail_device_info *out)
{
	out->link_bytes_per_s = rail->conf.mock.link_bytes_per_s;
}
