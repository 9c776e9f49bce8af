/* SPDX-License-Identifier: BSD-3-Clause */
/* The verbs transport's cold half on the lcore, and its open and close. */
#include "transport/verbs/verbs.h"

#include "transport/verbs/verbs_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int verbs_open(struct rail *r, const struct rail_conf *conf);
static int make_queues(struct rail *r, struct ib_rail *ib);
static void verbs_close(struct rail *r);
static void close_device(struct ib_rail *ib);
static void verbs_detach(struct rail *r);
static int verbs_attach(struct rail *r);
static int keeps_its_word(struct rail *r, struct ib_rail *ib);
static int verbs_arm(struct rail *r);
static bool has_any(const uint64_t *set);
static int verbs_fence(struct rail *r, struct window *window);
static bool verbs_stop(struct rail *r, struct qp *qp);

const struct transport_ops verbs_ops = {
	.name = "verbs",
	.open = verbs_open,
	.close = verbs_close,
	.mem_reg = ib_mem_reg,
	.mem_dereg = ib_mem_dereg,
	.pair_connect = ib_pair_connect,
	.pair_close = ib_pair_close,
	.post = verbs_post,
	.poll = verbs_poll,
	.arm = verbs_arm,
	.fence = verbs_fence,
	.stop = verbs_stop,
	.qp_wants_fence = ib_qp_wants_fence,
	.qp_fence = ib_qp_fence,
	.qp_local = ib_qp_local,
	.qp_remote = ib_qp_remote,
	.event_fds = ib_event_fds,
	.event_next = ib_event_next,
	.describe = ib_describe,
	.detach = verbs_detach,
	.attach = verbs_attach,
};

static int verbs_open(struct rail *r, const struct rail_conf *conf)
{
	struct ib_rail *ib;
	int rc;

	if (posix_memalign((void **)&ib, 64, sizeof(*ib)))
		return -ENOMEM;
	memset(ib, 0, sizeof(*ib));
	ib->removal_fd = -1;
	pthread_rwlock_init(&ib->lock, NULL);
	pthread_mutex_init(&ib->address_lock, NULL);
	r->tr = ib;
	rc = ib_device_open(ib, conf, r->why, sizeof(r->why));
	rc = rc ? rc : make_queues(r, ib);
	if (rc) {
		verbs_close(r);
		return rc;
	}
	r->attr = (struct transport_attr){
		.write_max_bytes = IB_WRITE_MAX_BYTES,
		.read_max_bytes = ib->max_msg_bytes,
		.sq_depth = IB_SQ_DEPTH,
		.has_windows = ib->has_windows,
		.has_device_windows = ib->has_windows,
		.has_addresses = true,
	};
	ib->sees_removal = ib->removal_fd >= 0;
	r->next_keys = ib->has_windows ? ib->next_keys : NULL;
	r->region_keys = ib->has_windows ? NULL : ib->region_keys;
	r->probe_key = ib->has_windows ? 0 : ib->probe.mr->rkey;
	return 0;
}

static int make_queues(struct rail *r, struct ib_rail *ib)
{
	int rc;

	ib->pd = ibv_alloc_pd(ib->ctx);
	ib->channel = ib->pd ? ibv_create_comp_channel(ib->ctx) : NULL;
	ib->cq = ib->channel ? ibv_create_cq(ib->ctx, (int)(ib->max_qps * IB_QP_CQES), NULL, ib->channel, 0) : NULL;
	if (!ib->cq) {
		rc = errno ? errno : ENOMEM;
		snprintf(r->why, sizeof(r->why), "device %s: no completion queue of %u entries, for %u QPs: %s",
			ib->ctx->device->name, ib->max_qps * IB_QP_CQES, ib->max_qps, strerror(rc));
		return -rc;
	}
	if (fcntl(ib->channel->fd, F_SETFL, fcntl(ib->channel->fd, F_GETFL) | O_NONBLOCK) < 0)
		return -errno;
	rc = ib_mr_open(ib, r->probe_bytes, PROBE_BYTES, IBV_ACCESS_REMOTE_READ, &ib->probe);
	rc = rc ? rc : ib_mr_open(ib, r->probe_sink, PROBE_BYTES, 0, &ib->sink);
	if (rc) {
		snprintf(r->why, sizeof(r->why), "device %s cannot register %u bytes: %s%s", ib->ctx->device->name,
			PROBE_BYTES, strerror(-rc), rc == -ENOMEM ? "; raise RLIMIT_MEMLOCK" : "");
		return rc;
	}
	rc = ib->has_windows ? ib_windows_create(ib) : 0;
	if (rc)
		snprintf(r->why, sizeof(r->why),
			"device %s: no %u memory windows (max_mw %d, of which others have some): %s; set windows: off "
			"for "
			"this rail",
			ib->ctx->device->name, (unsigned)WINDOWS_MAX, ib->attr.max_mw, strerror(-rc));
	return rc;
}

static void verbs_close(struct rail *r)
{
	struct ib_rail *ib = r->tr;

	if (!ib)
		return;
	close_device(ib);
	pthread_rwlock_destroy(&ib->lock);
	pthread_mutex_destroy(&ib->address_lock);
	free(ib);
	r->tr = NULL;
}

/* Regions are gone already, or verbs_detach took them. */
static void close_device(struct ib_rail *ib)
{
	ib_windows_destroy(ib);
	ib_mr_close(&ib->probe);
	ib_mr_close(&ib->sink);
	if (ib->cq)
		ibv_destroy_cq(ib->cq);
	if (ib->channel)
		ibv_destroy_comp_channel(ib->channel);
	if (ib->pd)
		ibv_dealloc_pd(ib->pd);
	ib->cq = NULL;
	ib->channel = NULL;
	ib->pd = NULL;
	ib_device_close(ib);
}

/* Others keep their regions: they are told -ENODEV for new ones, and the old ones' end finds nothing to do. */
static void verbs_detach(struct rail *r)
{
	struct ib_rail *ib = ib_of(r);

	pthread_rwlock_wrlock(&ib->lock);
	ib->has_left = true;
	for (unsigned i = 0; i < REGIONS_MAX; i++)
		ib_mr_close(&ib->mrs[i]);
	memset(ib->region_keys, 0, sizeof(ib->region_keys));
	close_device(ib);
	pthread_rwlock_unlock(&ib->lock);
}

/* While has_left says that it is closed, nobody else touches any of it: the lcore was told to let go, and conn waits
 * for us. */
static int verbs_attach(struct rail *r)
{
	struct ib_rail *ib = ib_of(r);
	int rc = ib_device_open(ib, &r->conf, r->why, sizeof(r->why));

	rc = rc ? rc : keeps_its_word(r, ib);
	rc = rc ? rc : make_queues(r, ib);
	if (rc) {
		close_device(ib);
		return rc;
	}
	r->attr.read_max_bytes = ib->max_msg_bytes;
	r->probe_key = ib->has_windows ? 0 : ib->probe.mr->rkey;
	/* Of the CQ that went. */
	ib->is_armed = ib->want_look = ib->is_mute = false;
	ib->n_stash = 0;
	snprintf(r->why, sizeof(r->why), "%s, GID index %d", ib->ctx->device->name, ib->gid_index);
	pthread_rwlock_wrlock(&ib->lock);
	ib->has_left = false;
	pthread_rwlock_unlock(&ib->lock);
	return 0;
}

/* Others have copied what open said of the rail: it has windows for good, or goes without them for good. */
static int keeps_its_word(struct rail *r, struct ib_rail *ib)
{
	size_t n = strlen(r->why);

	if (r->attr.has_windows && !ib->has_windows) {
		snprintf(r->why + n, sizeof(r->why) - n,
			"; it had them when the daemon started, and works without "
			"from a restart on");
		return -ENOTSUP;
	}
	ib->has_windows = r->attr.has_windows;
	/* It has been told to leave already, or is not there in full yet: without word of its removal, we would hold it
	 * up for good. */
	if (ib->sees_removal && ib->removal_fd < 0) {
		snprintf(r->why, sizeof(r->why), "device %s: the kernel's connection manager does not know it",
			ib->ctx->device->name);
		return -EAGAIN;
	}
	return 0;
}

/* Follows rail->qps. A QP that left is not touched again. */
void verbs_sync(struct rail *r)
{
	struct ib_rail *ib = ib_of(r);

	memset(ib->adopted, 0, sizeof(ib->adopted));
	for (unsigned i = 0; i < r->n_qps; i++)
		ib->adopted[ib_qp_of(r->qps[i])->place] = ib_qp_of(r->qps[i]);
	for (unsigned i = 0; i < RAIL_QPS_MAX; i++) {
		if (ib->adopted[i])
			continue;
		place_del(ib->pending, i);
		place_del(ib->fencing, i);
		place_del(ib->broken, i);
		place_del(ib->drained, i);
	}
	ib->seen_epoch = r->qp_epoch;
}

uint8_t verbs_status(enum ibv_wc_status status)
{
	switch (status) {
	case IBV_WC_RETRY_EXC_ERR:
	case IBV_WC_RESP_TIMEOUT_ERR:
		return WC_ERR_RETRY;
	case IBV_WC_RNR_RETRY_EXC_ERR:
		return WC_ERR_RNR;
	case IBV_WC_REM_ACCESS_ERR:
	case IBV_WC_REM_INV_REQ_ERR:
	case IBV_WC_REM_OP_ERR:
	case IBV_WC_REM_ABORT_ERR:
		return WC_ERR_ACCESS;
	case IBV_WC_WR_FLUSH_ERR:
		return WC_ERR_FLUSH;
	default:
		return WC_ERR_LOCAL;
	}
}

/* ---- sleep ---- */

static int verbs_arm(struct rail *r)
{
	struct ib_rail *ib = ib_of(r);
	int got;

	if (ib->seen_epoch != r->qp_epoch || ib->n_stash || has_any(ib->pending) || has_any(ib->broken) ||
		has_any(ib->drained))
		return -EAGAIN;
	for (unsigned i = 0; (i = place_next(ib->fencing, i)) < RAIL_QPS_MAX; i++) {
		if (__atomic_load_n(&ib->adopted[i]->fence_done, __ATOMIC_RELAXED)) /* poll acquires it */
			return -EAGAIN;
	}
	if (!ib->is_armed && ibv_req_notify_cq(ib->cq, 0))
		return -EAGAIN;
	ib->is_armed = ib->want_look = true;
	/* What came before the CQ was armed makes no event. */
	got = ibv_poll_cq(ib->cq, RY_BURST_MAX, ib->stash);
	ib->n_stash = got > 0 ? (uint16_t)got : 0;
	return got ? -EAGAIN : ib->channel->fd;
}

static bool has_any(const uint64_t *set)
{
	return place_next(set, 0) < RAIL_QPS_MAX;
}

/* Whether the CQ's event woke us or something else did: an armed CQ stays armed until it makes one. */
void verbs_woken(struct ib_rail *ib)
{
	struct ibv_cq *cq;
	void *ctx;

	ib->want_look = false;
	if (ibv_get_cq_event(ib->channel, &cq, &ctx) == 0) {
		ibv_ack_cq_events(cq, 1);
		ib->is_armed = false;
	}
}

/* ---- the end of a QP ---- */

/* Only conn may call into the kernel for so long: the whole QP is given up, and conn closes its windows. */
static int verbs_fence(struct rail *r, struct window *window)
{
	(void)r;
	(void)window;
	return 1;
}

static bool verbs_stop(struct rail *r, struct qp *qp)
{
	struct ib_rail *ib = ib_of(r);
	struct ib_qp *q = ib_qp_of(qp);

	if (q->fence_want)
		return __atomic_load_n(&q->fence_done, __ATOMIC_ACQUIRE); /* partner: ib_qp_fence */
	for (unsigned i = 0; ib->has_windows && i < WINDOWS_MAX; i++) {
		const struct window *w = &r->windows[i];

		if (w->qp == qp && (w->state == WINDOW_BOUND || w->state == WINDOW_INVALIDATING))
			q->bound[q->n_bound++] = (uint16_t)i;
	}
	q->is_broken = true;
	place_del(ib->broken, q->place);
	place_add(ib->fencing, q->place);
	/* Release: partner of the acquire in ib_qp_wants_fence. */
	__atomic_store_n(&q->fence_want, 1, __ATOMIC_RELEASE);
	waker_kick(r->conn_waker);
	return false;
}
