/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A store that heeds neither CANCEL nor ttl: loaded into a daemon by LD_PRELOAD, it holds back one answer and writes it
 * when the reader has been told that nothing will be written.
 *
 * While the file "hold" is there, the first chain with an RDMA WRITE is kept: the daemon believes that it was posted.
 * When "cancelled" appears the chain's DONE goes out alone, saying CANCELLED; when "write" appears, the WRITEs. "held",
 * "told" and "written" say how far it is; "refused" that the device then reported a remote access error for that QP.
 */
#include "store_shim.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#include <railyard/status.h>

#include "wire/wire.h"

#define WRS_MAX 32
#define MSG_MAX_BYTES 256

/* The chain that was kept; filled by the lcore that posted it, then the thread's. */
static struct {
	struct ibv_qp *qp;
	uint32_t qp_num; /* 0 until the WRITEs are posted; the thread's (release), read by lcores (acquire) */
	int n;
	struct ibv_send_wr wr[WRS_MAX];
	struct ibv_sge sge[WRS_MAX];
	char msg[WRS_MAX][MSG_MAX_BYTES];
	pthread_mutex_t lock;
	bool is_held;
} kept = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void post_all(bool want_writes)
{
	struct ibv_send_wr *bad;

	for (int i = 0; i < kept.n; i++) {
		if ((kept.wr[i].opcode == IBV_WR_RDMA_WRITE) == want_writes)
			shim_post(kept.qp, &kept.wr[i], &bad);
	}
}

static void *go_on(void *arg)
{
	shim_await_file("cancelled");
	for (int i = 0; i < kept.n; i++) {
		struct wire_done *m = (struct wire_done *)kept.msg[i];

		if (kept.wr[i].opcode == IBV_WR_SEND && m->h.type == WIRE_DONE) {
			m->status = RY_ERR_CANCELLED;
			m->bytes = 0;
		}
	}
	post_all(false);
	shim_make_file("told");
	shim_await_file("write");
	/* Partner: the load in shim_poll_cq. */
	__atomic_store_n(&kept.qp_num, kept.qp->qp_num, __ATOMIC_RELEASE);
	post_all(true);
	shim_make_file("written");
	return arg;
}

static bool keep(struct ibv_qp *qp, const struct ibv_send_wr *wr)
{
	pthread_t thread;

	kept.qp = qp;
	for (; wr && kept.n < WRS_MAX; wr = wr->next, kept.n++) {
		struct ibv_sge *sge = &kept.sge[kept.n];

		kept.wr[kept.n] = *wr;
		kept.wr[kept.n].next = NULL;
		/* Out of order, a completion would confuse the daemon; an error is reported all the same. */
		kept.wr[kept.n].send_flags &= ~(unsigned)IBV_SEND_SIGNALED;
		*sge = wr->sg_list[0];
		if (wr->send_flags & IBV_SEND_INLINE) {
			memcpy(kept.msg[kept.n], (const void *)wr->sg_list[0].addr, wr->sg_list[0].length);
			sge->addr = (uintptr_t)kept.msg[kept.n];
		}
		kept.wr[kept.n].sg_list = sge;
	}
	return pthread_create(&thread, NULL, go_on, NULL) == 0;
}

int shim_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	bool is_kept = false;

	pthread_mutex_lock(&kept.lock);
	if (!kept.is_held && shim_has_write(wr) && shim_has_file("hold"))
		is_kept = kept.is_held = keep(qp, wr);
	pthread_mutex_unlock(&kept.lock);
	if (!is_kept)
		return shim_post(qp, wr, bad);
	shim_make_file("held");
	return 0;
}

int shim_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	int got = shim_poll(cq, n, wc);

	for (int i = 0; i < got; i++) {
		/* Partner: the store in go_on. */
		if (wc[i].status == IBV_WC_REM_ACCESS_ERR &&
			wc[i].qp_num == __atomic_load_n(&kept.qp_num, __ATOMIC_ACQUIRE))
			shim_make_file("refused");
	}
	return got;
}
