/* SPDX-License-Identifier: BSD-3-Clause */
#include "store_shim.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

int (*shim_post)(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int (*shim_poll)(struct ibv_cq *cq, int n, struct ibv_wc *wc);

static void path_of(char *path, size_t bytes, const char *name)
{
	snprintf(path, bytes, "%s/%s", getenv("SHIM_DIR"), name);
}

bool shim_has_file(const char *name)
{
	char path[256];

	path_of(path, sizeof(path), name);
	return access(path, F_OK) == 0;
}

void shim_make_file(const char *name)
{
	char path[256];
	FILE *f;

	path_of(path, sizeof(path), name);
	f = fopen(path, "w");
	if (f)
		fclose(f);
}

void shim_await_file(const char *name)
{
	struct timespec t = {.tv_nsec = 2000000};

	while (!shim_has_file(name))
		nanosleep(&t, NULL);
}

unsigned long long shim_number_in(const char *name)
{
	char path[256], line[64] = "";
	FILE *f;

	path_of(path, sizeof(path), name);
	f = fopen(path, "r");
	if (f) {
		if (!fgets(line, sizeof(line), f))
			line[0] = '\0';
		fclose(f);
	}
	return strtoull(line, NULL, 0);
}

bool shim_has_write(const struct ibv_send_wr *wr)
{
	for (; wr; wr = wr->next) {
		if (wr->opcode == IBV_WR_RDMA_WRITE)
			return true;
	}
	return false;
}

/* Called by the daemon in place of libibverbs' own. */
struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *init)
{
	typedef struct ibv_qp *(*create_fn)(struct ibv_pd *, struct ibv_qp_init_attr *);
	create_fn create = (create_fn)dlsym(RTLD_NEXT, "ibv_create_qp");
	struct ibv_qp *qp = create(pd, init);

	if (qp && qp->context->ops.post_send != shim_post_send) {
		shim_post = qp->context->ops.post_send;
		shim_poll = qp->context->ops.poll_cq;
		qp->context->ops.post_send = shim_post_send;
		qp->context->ops.poll_cq = shim_poll_cq;
	}
	return qp;
}
