/* SPDX-License-Identifier: BSD-3-Clause */
/* The end of a verbs QP where the device does not do as it is told, and what is heard of the QP after it. */
#include "ib_fixture.h"

#define BOUND 3 /* a window that is open on the QP */

static struct waker conn_waker;
static struct qp *qp;

/* One QP that the rail loop has, with a window. */
static void setup(void)
{
	struct qp_request req = {.peer_credits = 24};

	fixture_init();
	add_gid(add_device("mlx5_0"), 1, IBV_GID_TYPE_ROCE_V2, "10.0.0.1", 11);
	cr_assert_eq(open_at("10.0.0.1"), 0);
	cr_assert_eq(verbs_ops.pair_connect(&rail, &req, &qp), 0);
	rail.conn_waker = &conn_waker;
	rail.windows[BOUND] = (struct window){.qp = qp, .state = WINDOW_BOUND};
	rail.qps[rail.n_qps++] = qp;
	qp->state = QP_ADOPTED;
	rail.qp_epoch++;
	cr_assert_eq(verbs_ops.poll(&rail, NULL, 0), 0);
}

/* The rail loop lets go of it, then conn closes it. */
static void stop(void)
{
	is_mw_stuck = is_qp_stuck = false;
	rail.n_qps = 0;
	rail.qp_epoch++;
	verbs_ops.poll(&rail, NULL, 0);
	if (qp)
		verbs_ops.pair_close(&rail, qp);
	fixture_end();
}

TestSuite(ib_fence, .init = setup, .fini = stop);

static int fence(void)
{
	cr_assert_not(verbs_ops.stop(&rail, qp));
	cr_assert(verbs_ops.qp_wants_fence(&rail, qp));
	return verbs_ops.qp_fence(&rail, qp);
}

static uint16_t poll_once(struct wc wc[RY_BURST_MAX])
{
	return verbs_ops.poll(&rail, wc, RY_BURST_MAX);
}

/* The completion of a LOCAL_INV, the idx-th entry of the send queue. */
static void inv_completes(uint32_t idx)
{
	struct ib_qp *q = ib_qp_of(qp);

	q->sq[idx] = (struct ib_sqe){.op = WR_INV, .ctx = &rail.windows[BOUND]};
	q->sq_tail = idx + 1;
	cqes[n_cqes++] = (struct ibv_wc){.status = IBV_WC_SUCCESS, .wr_id = ib_wr_id(q, idx)};
}

Test(ib_fence, a_qp_that_the_device_does_not_end_is_never_proven)
{
	struct ib_qp left = *ib_qp_of(qp);
	struct wc wc[RY_BURST_MAX];

	memcpy(left.msgs, "kept", 4);
	is_qp_stuck = true;
	cr_assert_eq(fence(), -EIO);
	cr_assert_not(verbs_ops.qp_wants_fence(&rail, qp), "asked for once");
	cr_assert_eq(poll_once(wc), 0);
	cr_assert_not(verbs_ops.stop(&rail, qp));
	/* At the end of the process its messages stay where it may still write. */
	rail.n_qps = 0;
	rail.qp_epoch++;
	verbs_ops.poll(&rail, NULL, 0);
	verbs_ops.pair_close(&rail, qp);
	qp = NULL;
	cr_assert_eq(seen.n_mrs, 3, "%d: probe, sink, messages", seen.n_mrs);
	cr_assert_eq(memcmp(left.msgs, "kept", 4), 0);
	/* What the device keeps. */
	__wrap_ibv_dereg_mr(left.mr);
	free(left.msgs);
	free(left.ibqp);
	seen.n_qps--;
}

Test(ib_fence, a_window_that_the_device_does_not_close_goes_with_its_qp)
{
	struct ibv_mw *old = ib_of(&rail)->mws[BOUND];
	struct wc wc[RY_BURST_MAX];

	is_mw_stuck = true;
	cr_assert_eq(fence(), 0);
	cr_assert(ib_of(&rail)->mws[BOUND] && ib_of(&rail)->mws[BOUND] != old, "the next bind takes a fresh one");
	cr_assert_eq(poll_once(wc), 1);
	cr_assert(wc[0].op == WC_QP_DOWN && wc[0].is_fenced);
	seen.n_mws--; /* the old one is the device's */
	free(old);
}

/* conn may free it as soon as that is told. */
Test(ib_fence, nothing_is_told_of_a_qp_after_its_end)
{
	struct wc wc[RY_BURST_MAX];

	inv_completes(0);
	cr_assert_eq(poll_once(wc), 1);
	cr_assert(wc[0].op == WC_INV && wc[0].ctx == &rail.windows[BOUND], "it is heard while it lives");
	cr_assert_eq(fence(), 0);
	inv_completes(1);
	cr_assert_eq(poll_once(wc), 1);
	cr_assert(wc[0].op == WC_QP_DOWN && wc[0].is_fenced);
	inv_completes(2);
	cr_assert_eq(poll_once(wc), 0);
}
