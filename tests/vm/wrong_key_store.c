/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A store that WRITEs by the key of a memory region in place of the window that it was given.
 *
 * While the file "aim" is there, the next chain with an RDMA WRITE is changed: its WRITEs carry the key in the file
 * "key" and the address in the file "address". "aimed" says that it was posted, "refused" that the device then reported
 * a remote access error for that QP, "written" that it took the WRITE.
 */
#include "store_shim.h"

#include <stdint.h>

static uint32_t aimed_qp; /* 0 until a chain was changed; any lcore's (release), read by lcores (acquire) */

static void aim(struct ibv_send_wr *wr)
{
	uint32_t key = (uint32_t)shim_number_in("key");
	uint64_t address = shim_number_in("address");

	for (; wr; wr = wr->next) {
		if (wr->opcode != IBV_WR_RDMA_WRITE)
			continue;
		wr->wr.rdma.rkey = key;
		wr->wr.rdma.remote_addr = address;
		wr->send_flags |= IBV_SEND_SIGNALED;
	}
}

int shim_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	uint32_t none = 0;

	/* Partner: the load in shim_poll_cq. */
	if (shim_has_write(wr) && shim_has_file("aim") &&
		__atomic_compare_exchange_n(&aimed_qp, &none, qp->qp_num, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
		aim(wr);
		shim_make_file("aimed");
	}
	return shim_post(qp, wr, bad);
}

int shim_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	int got = shim_poll(cq, n, wc);
	/* Partner: the exchange in shim_post_send. */
	uint32_t qp_num = __atomic_load_n(&aimed_qp, __ATOMIC_ACQUIRE);

	for (int i = 0; qp_num && i < got; i++) {
		if (wc[i].qp_num != qp_num)
			continue;
		if (wc[i].status == IBV_WC_REM_ACCESS_ERR)
			shim_make_file("refused");
		if (wc[i].status == IBV_WC_SUCCESS && wc[i].opcode == IBV_WC_RDMA_WRITE)
			shim_make_file("written");
	}
	return got;
}
