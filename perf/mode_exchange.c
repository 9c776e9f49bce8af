/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * exchange: what a read costs at least on this device. One end sends a request, the other writes --size bytes into the
 * first one's memory and sends an answer behind them: SEND, WRITE, SEND, over one RC QP, both ends asleep on their CQ
 * channel while they wait. No window, no checksum, no daemon: plain remote access by the MR's key.
 *
 * Both ends are processes here, over the same device. Prints p50 and p99 of the round trips.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <infiniband/verbs.h>

#include "cli/units.h"
#include "perf.h"

#define DEFAULT_ROUNDS 1000u
#define WARM_UPS 20u
#define REQUEST_BYTES 64u
#define N_RECVS 4u

/* One end. */
struct end {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	uint8_t *bytes; /* the data, then N_RECVS + 1 messages */
	uint64_t n_data;
	union ibv_gid gid;
	int gid_index;
	uint8_t port;
	enum ibv_mtu mtu;
};

struct address {
	uint32_t qp_num;
	uint32_t rkey;
	uint64_t addr;
	union ibv_gid gid;
};

static int open_end(const struct perf *p, struct end *e, struct perf_error *err);
static bool choose(const struct perf *p, struct end *e);
static int make(struct end *e, uint64_t n_data);
static int join(struct end *e, int fd, struct address *peer);
static int post_recv(struct end *e, uint32_t i);
static int await(struct end *e, uint32_t *n_recvs, uint32_t n_wanted);
static int send_message(struct end *e, unsigned flags);
static int ask(struct end *e, uint32_t n, uint64_t *ns);
static int answer(struct end *e, const struct address *peer, uint32_t n);
static int report(const struct perf *p, uint64_t *ns, uint32_t n);

static int fail(struct perf_error *err, const char *what)
{
	snprintf(err->text, sizeof(err->text), "%s: %s", what, strerror(errno));
	return -1;
}

int mode_exchange(const struct perf *p)
{
	uint32_t n = p->count != 0 ? (uint32_t)p->count : DEFAULT_ROUNDS;
	uint64_t *ns = calloc(n + WARM_UPS, sizeof(*ns));
	struct perf_error err = {0};
	struct address peer;
	struct end e = {0};
	int fds[2], status = 0, rc;
	pid_t child;

	child = -1;
	if (ns != NULL && socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0)
		child = fork(); /* before any verbs call: each end has a context of its own */
	if (child < 0) {
		fail(&err, "exchange: no second process");
		free(ns);
		return perf_fail(p, &err);
	}
	close(fds[child == 0]);
	rc = open_end(p, &e, &err);
	rc = rc == 0 ? make(&e, p->size_bytes) : rc;
	rc = rc == 0 ? join(&e, fds[child != 0], &peer) : rc;
	if (child == 0)
		_exit(rc == 0 && answer(&e, &peer, n + WARM_UPS) == 0 ? 0 : 1);
	rc = rc == 0 ? ask(&e, n + WARM_UPS, ns) : rc;
	close(fds[1]);
	if (rc < 0)
		kill(child, SIGKILL);
	waitpid(child, &status, 0);
	if (rc < 0 || status != 0) {
		snprintf(err.text + strlen(err.text), sizeof(err.text) - strlen(err.text),
			"%sthe exchange over %s %s failed", err.text[0] ? "; " : "",
			p->device ? p->device : "the first device", p->address ? p->address : "");
		free(ns);
		return perf_fail(p, &err);
	}
	rc = report(p, ns + WARM_UPS, n);
	free(ns);
	return rc;
}

static int open_end(const struct perf *p, struct end *e, struct perf_error *err)
{
	int n = 0;
	struct ibv_device **list = ibv_get_device_list(&n);
	bool is_found = false;

	for (int i = 0; list != NULL && i < n && !is_found; i++) {
		if (p->device != NULL && strcmp(p->device, ibv_get_device_name(list[i])) != 0)
			continue;
		e->ctx = ibv_open_device(list[i]);
		is_found = e->ctx != NULL && choose(p, e);
		if (!is_found && e->ctx != NULL)
			ibv_close_device(e->ctx);
	}
	if (list != NULL)
		ibv_free_device_list(list);
	if (is_found)
		return 0;
	errno = ENODEV;
	return fail(err, "no RDMA device with that name and RoCEv2 GID");
}

static bool choose(const struct perf *p, struct end *e)
{
	struct ibv_gid_entry table[64];
	ssize_t n = ibv_query_gid_table(e->ctx, table, 64, 0);
	struct ibv_port_attr port;
	uint8_t want[16] = {[10] = 0xff, [11] = 0xff};

	if (p->address != NULL && inet_pton(AF_INET6, p->address, want) != 1 &&
		inet_pton(AF_INET, p->address, want + 12) != 1)
		return false;
	for (ssize_t i = 0; i < n; i++) {
		bool is_local = table[i].gid.raw[0] == 0xfe && (table[i].gid.raw[1] & 0xc0) == 0x80;

		if (table[i].gid_type != IBV_GID_TYPE_ROCE_V2 || is_local ||
			(p->address != NULL && memcmp(table[i].gid.raw, want, 16) != 0))
			continue;
		e->gid = table[i].gid;
		e->gid_index = (int)table[i].gid_index;
		e->port = (uint8_t)table[i].port_num;
		if (ibv_query_port(e->ctx, e->port, &port) != 0)
			return false;
		e->mtu = port.active_mtu;
		return true;
	}
	return false;
}

static int make(struct end *e, uint64_t n_data)
{
	struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 16, .max_recv_wr = N_RECVS, .max_send_sge = 1, .max_recv_sge = 1}};
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT, .port_num = e->port, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
	uint64_t bytes = n_data + (N_RECVS + 1) * REQUEST_BYTES;

	e->n_data = n_data;
	e->pd = ibv_alloc_pd(e->ctx);
	e->channel = ibv_create_comp_channel(e->ctx);
	e->cq = e->channel != NULL ? ibv_create_cq(e->ctx, 64, NULL, e->channel, 0) : NULL;
	if (e->pd == NULL || e->cq == NULL || posix_memalign((void **)&e->bytes, 4096, bytes) != 0)
		return -1;
	memset(e->bytes, 0x5a, bytes);
	e->mr = ibv_reg_mr(e->pd, e->bytes, bytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	init.send_cq = init.recv_cq = e->cq;
	e->qp = e->mr != NULL ? ibv_create_qp(e->pd, &init) : NULL;
	if (e->qp == NULL ||
		ibv_modify_qp(e->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) != 0)
		return -1;
	for (uint32_t i = 0; i < N_RECVS; i++) {
		if (post_recv(e, i) < 0)
			return -1;
	}
	return 0;
}

static uint8_t *message(struct end *e, uint32_t i)
{
	return e->bytes + e->n_data + (uint64_t)i * REQUEST_BYTES;
}

static int post_recv(struct end *e, uint32_t i)
{
	struct ibv_sge sge = {(uintptr_t)message(e, i), REQUEST_BYTES, e->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = i, .sg_list = &sge, .num_sge = 1}, *bad;

	return ibv_post_recv(e->qp, &wr, &bad) == 0 ? 0 : -1;
}

static int join(struct end *e, int fd, struct address *peer)
{
	struct address own = {e->qp->qp_num, e->mr->rkey, (uintptr_t)e->bytes, e->gid};
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR,
		.path_mtu = e->mtu,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.ah_attr = {.is_global = 1,
			.port_num = e->port,
			.grh = {.sgid_index = (uint8_t)e->gid_index, .hop_limit = 64}}};
	char go = 1;

	if (write(fd, &own, sizeof(own)) != sizeof(own) || read(fd, peer, sizeof(*peer)) != sizeof(*peer))
		return -1;
	attr.dest_qp_num = peer->qp_num;
	attr.ah_attr.grh.dgid = peer->gid;
	if (ibv_modify_qp(e->qp, &attr,
		    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) != 0)
		return -1;
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 6, .rnr_retry = 6, .max_rd_atomic = 1};
	if (ibv_modify_qp(e->qp, &attr,
		    IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
			    IBV_QP_MAX_QP_RD_ATOMIC) != 0)
		return -1;
	return write(fd, &go, 1) == 1 && read(fd, &go, 1) == 1 ? 0 : -1;
}

/* Sleeps on the channel until *n_recvs messages have come in all. Sends complete without a word. */
static int await(struct end *e, uint32_t *n_recvs, uint32_t n_wanted)
{
	struct ibv_wc wc[8];

	for (;;) {
		struct ibv_cq *cq;
		void *ctx;
		int n;

		if (ibv_req_notify_cq(e->cq, 0) != 0)
			return -1;
		while ((n = ibv_poll_cq(e->cq, 8, wc)) > 0) {
			for (int i = 0; i < n; i++) {
				if (wc[i].status != IBV_WC_SUCCESS)
					return -1;
				if (wc[i].opcode != IBV_WC_RECV)
					continue;
				++*n_recvs;
				if (post_recv(e, (uint32_t)wc[i].wr_id) < 0)
					return -1;
			}
		}
		if (n < 0 || *n_recvs >= n_wanted)
			return n;
		if (ibv_get_cq_event(e->channel, &cq, &ctx) != 0)
			return -1;
		ibv_ack_cq_events(cq, 1);
	}
}

static int send_message(struct end *e, unsigned flags)
{
	struct ibv_sge sge = {(uintptr_t)message(e, N_RECVS), REQUEST_BYTES, e->mr->lkey};
	struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = flags}, *bad;

	return ibv_post_send(e->qp, &wr, &bad) == 0 ? 0 : -1;
}

static uint64_t now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static int ask(struct end *e, uint32_t n, uint64_t *ns)
{
	uint32_t n_recvs = 0;

	for (uint32_t i = 0; i < n; i++) {
		uint64_t from = now();

		if (send_message(e, i % 8 == 0 ? IBV_SEND_SIGNALED : 0) < 0 || await(e, &n_recvs, i + 1) < 0)
			return -1;
		ns[i] = now() - from;
	}
	return 0;
}

static int answer(struct end *e, const struct address *peer, uint32_t n)
{
	uint32_t n_recvs = 0;

	for (uint32_t i = 0; i < n; i++) {
		struct ibv_sge sge = {(uintptr_t)e->bytes, (uint32_t)e->n_data, e->mr->lkey};
		struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE}, *bad;

		wr.wr.rdma.remote_addr = peer->addr;
		wr.wr.rdma.rkey = peer->rkey;
		if (await(e, &n_recvs, i + 1) < 0 || ibv_post_send(e->qp, &wr, &bad) != 0 ||
			send_message(e, i % 4 == 0 ? IBV_SEND_SIGNALED : 0) < 0)
			return -1;
	}
	sleep(1); /* the last answer is acknowledged before this QP goes */
	return 0;
}

static int by_time(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

static int report(const struct perf *p, uint64_t *ns, uint32_t n)
{
	double p50_us, p99_us;
	char text[UNITS_TEXT_BYTES];

	qsort(ns, n, sizeof(*ns), by_time);
	p50_us = (double)ns[(n - 1) / 2] / 1e3;
	p99_us = (double)ns[(uint64_t)(n - 1) * 99 / 100] / 1e3;
	if (p->want_json)
		return perf_print(p, json_pack("{s:I, s:I, s:f, s:f}", "bytes", (json_int_t)p->size_bytes, "count",
					     (json_int_t)n, "p50_us", p50_us, "p99_us", p99_us));
	printf("%u exchanges of SEND, WRITE of %s, SEND: p50 %.0f us, p99 %.0f us\n", n,
		units_print_bytes(p->size_bytes, text), p50_us, p99_us);
	return PERF_OK;
}
