/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What libraries share that make a store misbehave: loaded into a daemon by LD_PRELOAD, they stand between it and its
 * device, and files in the directory SHIM_DIR steer them and tell how far they are.
 */
#ifndef RY_STORE_SHIM_H
#define RY_STORE_SHIM_H

#include <infiniband/verbs.h>
#include <stdbool.h>

/* The device's own. */
extern int (*shim_post)(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
extern int (*shim_poll)(struct ibv_cq *cq, int n, struct ibv_wc *wc);

/* What the daemon calls in their place: the library's. */
int shim_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int shim_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc);

bool shim_has_file(const char *name);
void shim_make_file(const char *name);
void shim_await_file(const char *name);
/* First line of the file as a number of any base; 0 where there is none. */
unsigned long long shim_number_in(const char *name);

bool shim_has_write(const struct ibv_send_wr *wr);

#endif
