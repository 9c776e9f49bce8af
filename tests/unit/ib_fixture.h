/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * RDMA devices that are not there: libibverbs as the linker wraps it, over a table that the test fills. What a test may
 * look at afterwards is in `seen`.
 */
#ifndef RY_TEST_IB_FIXTURE_H
#define RY_TEST_IB_FIXTURE_H

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#ifndef cr_assert /* a program without Criterion has its own */
#include <criterion/criterion.h>
#endif

#include "transport/ib/ib.h"
#include "transport/verbs/verbs.h"

#define DEVICES_MAX 4
#define GIDS_OF_A_DEVICE 8
#define LKEY 77u

struct fake_device {
	struct ibv_device dev;
	struct ibv_context ctx;
	struct ibv_gid_entry gids[GIDS_OF_A_DEVICE];
	int n_gids;
	int open_errno;
	bool is_inline_bad; /* create_qp with inline data fails */
};

static struct fake_device devices[DEVICES_MAX];
static int n_devices;
static struct ibv_device_attr attr;
static struct ibv_port_attr port_attr;
static struct rail rail; /* as rail_create would leave it */
static struct ibv_async_event events[8];
static int n_events;
static int event_errno = EAGAIN; /* where there is none */
static struct ibv_wc cqes[8];
static int n_cqes;
static bool is_mw_stuck, is_qp_stuck; /* the device does not end them */
static int removals = -1;             /* the kernel has as many to tell; -1: it tells nobody */
static uint32_t rkey = 99;            /* of regions */
static int removal_fd;                /* whom the kernel tells next */
static int regs_left = -1;            /* after as many, no more memory can be registered; -1: it can */

static struct {
	int n_open, n_qps, n_mrs, n_mws;
	int n_looks;           /* for devices */
	int n_armed;           /* CQs were asked for an event */
	int cqes;              /* the CQ was asked for */
	int mr_access;         /* of the last region */
	int n_acked;           /* events */
	struct ibv_send_wr wr; /* the last one */
	struct ibv_sge sge;
	struct ibv_mr mr; /* of messages: the last one made */
} seen;

/* ---- the table ---- */
static inline struct fake_device *add_device(const char *name)
{
	struct fake_device *d = &devices[n_devices++];

	snprintf(d->dev.name, sizeof(d->dev.name), "%s", name);
	return d;
}

static inline void add_gid(struct fake_device *d, uint32_t port, uint32_t type, const char *address, uint32_t ifindex)
{
	struct ibv_gid_entry *e = &d->gids[d->n_gids];

	*e = (struct ibv_gid_entry){
		.gid_index = (uint32_t)d->n_gids++, .port_num = port, .gid_type = type, .ndev_ifindex = ifindex};
	if (inet_pton(AF_INET6, address, e->gid.raw) == 1)
		return;
	cr_assert_eq(inet_pton(AF_INET, address, e->gid.raw + 12), 1);
	e->gid.raw[10] = e->gid.raw[11] = 0xff;
}

/* The kernel asks us to close the device. */
static inline void remove_soon(void)
{
	removals++;
	cr_assert(eventfd_write(__atomic_load_n(&removal_fd, __ATOMIC_RELAXED), 1) == 0);
}

/* A device that can do everything, and a rail without an address. */
static inline void fixture_init(void)
{
	attr = (struct ibv_device_attr){
		.max_mr_size = UINT64_MAX,
		.max_qp = 1000,
		.max_qp_wr = 1000,
		.device_cap_flags = IBV_DEVICE_MEM_WINDOW_TYPE_2B,
		.max_sge = 4,
		.max_cqe = 1 << 20,
		.max_qp_rd_atom = 16,
		.max_qp_init_rd_atom = 16,
		.max_mw = 100000,
	};
	port_attr = (struct ibv_port_attr){.active_mtu = IBV_MTU_4096, .max_msg_sz = 1u << 30};
	snprintf(rail.conf.name, sizeof(rail.conf.name), "rail0");
	rail.conf.verbs =
		(struct verbs_conf){.port = 1, .gid_index = UINT32_MAX, .qps_per_pair = 1, .want_windows = true};
	rail.probe_bytes = calloc(2, 65536);
	rail.probe_sink = rail.probe_bytes + 65536;
}

static inline int open_at(const char *address)
{
	snprintf(rail.conf.address, sizeof(rail.conf.address), "%s", address);
	return verbs_ops.open(&rail, &rail.conf);
}

static inline void fixture_end(void)
{
	if (rail.tr)
		verbs_ops.close(&rail);
	free(rail.probe_bytes);
	cr_assert(!seen.n_open && !seen.n_qps && !seen.n_mrs && !seen.n_mws,
		"left open: %d devices, %d QPs, %d MRs, %d MWs", seen.n_open, seen.n_qps, seen.n_mrs, seen.n_mws);
}

/* ---- what libibverbs has as inline functions ---- */
static int fake_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	(void)qp;
	(void)wr;
	(void)bad;
	return 0;
}

static int fake_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	(void)qp;
	(void)bad;
	seen.wr = *wr;
	if (wr->num_sge)
		seen.sge = wr->sg_list[0];
	return 0;
}

static struct ibv_mw *fake_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
	struct ibv_mw *mw = calloc(1, sizeof(*mw));

	*mw = (struct ibv_mw){.context = pd->context, .pd = pd, .rkey = 0x100, .type = type};
	seen.n_mws++;
	return mw;
}

static int fake_dealloc_mw(struct ibv_mw *mw)
{
	if (is_mw_stuck)
		return EBUSY;
	seen.n_mws--;
	free(mw);
	return 0;
}

static int fake_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	int got = n < n_cqes ? n : n_cqes;

	cr_assert(cq->context, "it is closed");
	memcpy(wc, cqes, (size_t)got * sizeof(*wc));
	memmove(cqes, cqes + got, (size_t)(n_cqes -= got) * sizeof(*wc));
	return got;
}

static int fake_req_notify_cq(struct ibv_cq *cq, int is_solicited)
{
	(void)is_solicited;
	cr_assert(cq->context, "it is closed");
	seen.n_armed++;
	return 0;
}

/* ---- and what it has as symbols ---- */
#define WRAP(type, name, ...)                                                                                          \
	type __wrap_##name(__VA_ARGS__);                                                                               \
	type __wrap_##name(__VA_ARGS__)

WRAP(struct ibv_device **, ibv_get_device_list, int *n)
{
	struct ibv_device **list = calloc(DEVICES_MAX + 1, sizeof(*list));

	seen.n_looks++;
	for (int i = 0; i < n_devices; i++)
		list[i] = &devices[i].dev;
	*n = n_devices;
	return list;
}

WRAP(void, ibv_free_device_list, struct ibv_device **list)
{
	free(list);
}

WRAP(struct ibv_context *, ibv_open_device, struct ibv_device *dev)
{
	struct fake_device *d = (struct fake_device *)dev;

	if (d->open_errno) {
		errno = d->open_errno;
		return NULL;
	}
	d->ctx.device = dev;
	d->ctx.async_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	d->ctx.ops.post_recv = fake_post_recv;
	d->ctx.ops.post_send = fake_post_send;
	d->ctx.ops.alloc_mw = fake_alloc_mw;
	d->ctx.ops.dealloc_mw = fake_dealloc_mw;
	d->ctx.ops.poll_cq = fake_poll_cq;
	d->ctx.ops.req_notify_cq = fake_req_notify_cq;
	seen.n_open++;
	return &d->ctx;
}

WRAP(int, ibv_close_device, struct ibv_context *ctx)
{
	close(ctx->async_fd);
	seen.n_open--;
	return 0;
}

WRAP(ssize_t, _ibv_query_gid_table, struct ibv_context *ctx, struct ibv_gid_entry *out, size_t max, uint32_t flags,
	size_t bytes)
{
	struct fake_device *d = (struct fake_device *)ctx->device;

	cr_assert(bytes == sizeof(*out) && !flags && max >= GIDS_OF_A_DEVICE);
	memcpy(out, d->gids, sizeof(d->gids));
	return d->n_gids;
}

WRAP(int, ibv_query_device, struct ibv_context *ctx, struct ibv_device_attr *out)
{
	(void)ctx;
	*out = attr;
	return 0;
}

WRAP(int, ibv_query_port, struct ibv_context *ctx, uint8_t port, struct _compat_ibv_port_attr *out)
{
	(void)ctx;
	(void)port;
	memcpy(out, &port_attr, offsetof(struct ibv_port_attr, port_cap_flags2));
	return 0;
}

WRAP(struct ibv_pd *, ibv_alloc_pd, struct ibv_context *ctx)
{
	struct ibv_pd *pd = calloc(1, sizeof(*pd));

	pd->context = ctx;
	return pd;
}

WRAP(int, ibv_dealloc_pd, struct ibv_pd *pd)
{
	free(pd);
	return 0;
}

WRAP(struct ibv_comp_channel *, ibv_create_comp_channel, struct ibv_context *ctx)
{
	struct ibv_comp_channel *c = calloc(1, sizeof(*c));

	c->context = ctx;
	c->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	return c;
}

WRAP(int, ibv_destroy_comp_channel, struct ibv_comp_channel *c)
{
	close(c->fd);
	free(c);
	return 0;
}

WRAP(struct ibv_cq *, ibv_create_cq, struct ibv_context *ctx, int cqe, void *arg, struct ibv_comp_channel *channel,
	int v)
{
	struct ibv_cq *cq = calloc(1, sizeof(*cq));

	(void)arg;
	(void)channel;
	(void)v;
	cq->context = ctx;
	seen.cqes = cqe;
	return cq;
}

WRAP(int, ibv_destroy_cq, struct ibv_cq *cq)
{
	cq->context = NULL;
	free(cq);
	return 0;
}

WRAP(struct ibv_mr *, ibv_reg_mr_iova2, struct ibv_pd *pd, void *addr, size_t bytes, uint64_t iova, unsigned access)
{
	struct ibv_mr *mr;

	if (regs_left == 0) {
		errno = ENOMEM;
		return NULL;
	}
	regs_left -= regs_left > 0;
	mr = calloc(1, sizeof(*mr));
	cr_assert_eq(iova, (uintptr_t)addr);
	*mr = (struct ibv_mr){
		.context = pd->context, .pd = pd, .addr = addr, .length = bytes, .lkey = LKEY, .rkey = rkey};
	seen.mr_access = (int)access;
	seen.mr = *mr;
	seen.n_mrs++;
	return mr;
}

#undef ibv_reg_mr
WRAP(struct ibv_mr *, ibv_reg_mr, struct ibv_pd *pd, void *addr, size_t bytes, int access)
{
	return __wrap_ibv_reg_mr_iova2(pd, addr, bytes, (uintptr_t)addr, (unsigned)access);
}

WRAP(int, ibv_dereg_mr, struct ibv_mr *mr)
{
	free(mr);
	seen.n_mrs--;
	return 0;
}

WRAP(struct ibv_qp *, ibv_create_qp, struct ibv_pd *pd, struct ibv_qp_init_attr *init)
{
	const struct fake_device *d = (const struct fake_device *)pd->context->device;
	struct ibv_qp *qp;

	if (d->is_inline_bad && init->cap.max_inline_data) {
		errno = EINVAL;
		return NULL;
	}
	qp = calloc(1, sizeof(*qp));
	qp->context = pd->context;
	seen.n_qps++;
	return qp;
}

WRAP(int, ibv_modify_qp, struct ibv_qp *qp, struct ibv_qp_attr *a, int mask)
{
	(void)qp;
	(void)a;
	(void)mask;
	return 0;
}

WRAP(int, ibv_destroy_qp, struct ibv_qp *qp)
{
	if (is_qp_stuck)
		return EIO;
	free(qp);
	seen.n_qps--;
	return 0;
}

WRAP(int, ibv_get_async_event, struct ibv_context *ctx, struct ibv_async_event *out)
{
	(void)ctx;
	if (!n_events) {
		errno = event_errno;
		return -1;
	}
	*out = events[0];
	memmove(events, events + 1, (size_t)--n_events * sizeof(events[0]));
	return 0;
}

WRAP(void, ibv_ack_async_event, struct ibv_async_event *e)
{
	(void)e;
	seen.n_acked++;
}

/* Ours, but they ask the kernel of this host. */
WRAP(int, ib_removal_watch, const char *address)
{
	int fd = removals < 0 ? -1 : eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);

	(void)address;
	__atomic_store_n(&removal_fd, fd, __ATOMIC_RELAXED);
	return fd;
}

WRAP(bool, ib_removal_seen, int fd)
{
	eventfd_t n;

	if (eventfd_read(fd, &n) < 0)
		return false;
	removals--;
	return true;
}

WRAP(unsigned, if_nametoindex, const char *name)
{
	return !strcmp(name, "eth1") ? 11 : !strcmp(name, "eth2") ? 12 : 0;
}

#endif
