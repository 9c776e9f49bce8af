/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The conformance suite of the verbs transport: what transport_ops promise, and what only a device can show: that a
 * closed window refuses, that a fence fences. Two rails over one RDMA device, joined as conn joins them; conn's half of
 * a fence is done by hand, between two turns of the lcores.
 *
 * Needs an RDMA device: RY_VERBS_ADDRESS is an address of it. Run in the guests (tests/vm).
 */
#include "conform_verbs.h"

#include <criterion/criterion.h>

#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "sync/sync.h"

#define MIB (1u << 20)
#define MEMORY_BYTES (2 * MIB)
#define RXE_VENDOR 0xffffffu
#define REGION_A 3u
#define REGION_B 7u

struct conform *c;
static uint8_t *mem_a, *mem_b; /* MEMORY_BYTES each, registered */

static struct qp *make_qp(struct rail *rail, uint16_t qp_idx, bool is_dialler)
{
	struct qp_request req = {
		.pair_idx = 1, .qp_idx = qp_idx, .is_dialler = is_dialler, .peer_credits = 24, .fd = -1};
	struct qp *qp = NULL;

	cr_assert_eq(rail->ops.pair_connect(rail, &req, &qp), 0);
	return qp;
}

static void join(struct rail *rail, struct qp *qp, const struct rail *peer_rail, const struct qp *peer)
{
	struct qp_address at;

	rail->ops.qp_local(peer_rail, peer, &at);
	cr_assert_eq(rail->ops.qp_remote(rail, qp, &at), 0);
}

void conform_setup(struct conform *to, uint16_t n_qps)
{
	struct rail_conf conf = {.name = "verbs0",
		.transport = "verbs",
		.verbs = {.port = 1,
			.gid_index = UINT32_MAX,
			.qps_per_pair = 1,
			.hop_limit = 64,
			.retry_count = 6,
			.rnr_retry_count = 6,
			.timeout = 14,
			.min_rnr_timer = 12,
			.want_windows = true}};
	const char *address = getenv("RY_VERBS_ADDRESS");

	cr_assert(address, "RY_VERBS_ADDRESS names no device");
	snprintf(conf.address, sizeof(conf.address), "%s", address);
	to->ops = transport_find("verbs");
	to->a = conform_rail_new(to->ops, &conf, 0);
	to->b = conform_rail_new(to->ops, &conf, 1);
	cr_assert(to->a->attr.has_device_windows && to->a->next_keys);
	for (uint16_t i = 0; i < n_qps; i++)
		verbs_pair_up(to, i);
}

void verbs_pair_up(struct conform *to, uint16_t i)
{
	to->qa[i] = make_qp(to->a, i, true);
	to->qb[i] = make_qp(to->b, i, false);
	join(to->a, to->qa[i], to->b, to->qb[i]);
	join(to->b, to->qb[i], to->a, to->qa[i]);
	conform_adopt(to->a, to->qa[i]);
	conform_adopt(to->b, to->qb[i]);
}

void verbs_begin(uint16_t n_qps)
{
	c = calloc(1, sizeof(*c));
	conform_setup(c, n_qps);
	cr_assert(!posix_memalign((void **)&mem_a, 4096, MEMORY_BYTES) &&
		  !posix_memalign((void **)&mem_b, 4096, MEMORY_BYTES));
	memset(mem_a, 0, MEMORY_BYTES);
	conform_fill(mem_b, MEMORY_BYTES, 5);
	cr_assert_eq(c->ops->mem_reg(c->a, mem_a, MEMORY_BYTES, REGION_A), 0);
	cr_assert_eq(c->ops->mem_reg(c->b, mem_b, MEMORY_BYTES, REGION_B), 0);
}

/* As conn: closes the windows of a QP that its lcore has given up. */
static bool fence(struct rail *rail, struct qp *qp)
{
	if (!c->ops->qp_wants_fence(rail, qp))
		return false;
	c->ops->qp_fence(rail, qp);
	return true;
}

/* As the rail loop: gives the QP up and has conn end it. */
static void end_qp(struct rail *rail, struct qp *qp)
{
	uint32_t n = conform_count(c, WC_QP_DOWN, qp);

	if (!c->ops->stop(rail, qp)) {
		cr_assert(fence(rail, qp) && !c->ops->qp_wants_fence(rail, qp));
		conform_wait_for(c, WC_QP_DOWN, qp, n + 1);
		cr_assert(conform_event(c, WC_QP_DOWN, qp, n)->wc.is_fenced);
	}
	cr_assert(c->ops->stop(rail, qp), "ended for good");
}

void verbs_pair_down(uint16_t i)
{
	end_qp(c->a, c->qa[i]);
	end_qp(c->b, c->qb[i]);
	conform_close_a(c, i);
	conform_close_b(c, i);
}

void verbs_over(void)
{
	for (uint16_t i = 0; i < CONFORM_QPS_MAX && c->qa[i]; i++)
		verbs_pair_down(i);
	c->ops->mem_dereg(c->a, REGION_A);
	c->ops->mem_dereg(c->b, REGION_B);
	c->ops->close(c->a);
	c->ops->close(c->b);
}

/* Window `slot` of side a over mem_a, for the peer of qa[q]. BIND goes only with a message that names its key. */
static struct window *bind(uint16_t q, uint32_t slot, uint64_t offset, uint64_t len, uint8_t access, uint64_t seed)
{
	struct window *w = &c->a->windows[slot];
	alignas(8) uint8_t msg[WIRE_MSG_BYTES];
	struct wr wr[2] = {{.op = WR_BIND, .qp = c->qa[q], .window = w, .region = REGION_A},
		{.op = WR_SEND,
			.qp = c->qa[q],
			.addr = msg,
			.len_bytes = conform_message(msg, 1, seed),
			.region = REGION_NONE}};

	*w = (struct window){.addr = mem_a + offset,
		.len_bytes = len,
		.qp = c->qa[q],
		.key = c->a->next_keys[slot],
		.region = REGION_A,
		.access = access,
		.state = WINDOW_BOUND};
	cr_assert_eq(c->a->post(c->a, wr, 2), 2);
	return w;
}

static struct window *open_window(uint16_t q, uint32_t slot, uint64_t offset, uint64_t len)
{
	uint32_t n = conform_count(c, WC_RECV, c->qb[q]);
	struct window *w = bind(q, slot, offset, len, WINDOW_WRITES, slot + 1);

	conform_wait_for(c, WC_RECV, c->qb[q], n + 1);
	return w;
}

static void post_b(uint8_t op, uint16_t q, uint32_t key, uint64_t offset, uint64_t from, uint32_t len)
{
	struct wr wr = {.op = op,
		.qp = c->qb[q],
		.addr = mem_b + from,
		.len_bytes = len,
		.ctx = mem_b + from,
		.key = key,
		.offset = offset,
		.region = REGION_B};

	conform_post(c, c->b, &wr);
}

static void close_window(struct window *w)
{
	struct wr wr = {.op = WR_INV, .qp = w->qp, .window = w, .ctx = w};
	uint32_t n = conform_count(c, WC_INV, w->qp);

	w->state = WINDOW_INVALIDATING;
	conform_post(c, c->a, &wr);
	conform_wait_for(c, WC_INV, w->qp, n + 1);
	cr_assert_eq(conform_event(c, WC_INV, w->qp, n)->wc.ctx, w);
	w->state = WINDOW_FREE;
}

static bool is_untouched(void)
{
	for (uint32_t i = 0; i < MEMORY_BYTES; i++) {
		if (mem_a[i])
			return false;
	}
	return true;
}

/* ---- messages ---- */

Test(conform_verbs, messages_go_both_ways_whole_and_in_order)
{
	alignas(8) uint8_t want[WIRE_MSG_BYTES];

	verbs_begin(2);
	for (uint64_t i = 0; i < 2000; i++) {
		/* As credits see to it: never more than the receives there are. */
		conform_wait_for(c, WC_RECV, c->qa[i & 1], (uint32_t)(i / 2 > 40 ? i / 2 - 40 : 0));
		conform_send(c, c->b, c->qb[i & 1], 1 + i % WIRE_PARTS_MAX, i);
		if (i % 10 == 0)
			conform_send(c, c->a, c->qa[i & 1], 1, i);
	}
	conform_wait_for(c, WC_RECV, c->qa[0], 1000);
	conform_wait_for(c, WC_RECV, c->qa[1], 1000);
	conform_wait_for(c, WC_RECV, c->qb[0], 200);
	for (uint64_t i = 0; i < 2000; i++) {
		const struct conform_event *e = conform_event(c, WC_RECV, c->qa[i & 1], (uint32_t)(i / 2));

		cr_assert_eq(e->wc.len_bytes, conform_message(want, 1 + i % WIRE_PARTS_MAX, i));
		cr_assert(!memcmp(e->msg, want, e->wc.len_bytes), "message %lu differs", i);
	}
	cr_assert_eq(conform_count(c, WC_QP_DOWN, c->qa[0]) + conform_count(c, WC_QP_DOWN, c->qb[0]), 0);
	verbs_over();
}

Test(conform_verbs, a_message_that_is_not_ours_ends_the_qp)
{
	struct wire_msg bad = {.type = WIRE_CANCEL, .len_bytes = sizeof(bad), .reserved = 1};
	struct wr wr = {.op = WR_SEND, .addr = &bad, .len_bytes = sizeof(bad), .region = REGION_NONE};

	verbs_begin(2);
	wr.qp = c->qb[0];
	conform_post(c, c->b, &wr);
	conform_wait_for(c, WC_QP_DOWN, c->qa[0], 1);
	cr_assert_eq(conform_event(c, WC_QP_DOWN, c->qa[0], 0)->wc.status, WC_ERR_PROTOCOL);
	cr_assert_not(conform_event(c, WC_QP_DOWN, c->qa[0], 0)->wc.is_fenced);
	conform_send(c, c->b, c->qb[1], 1, 8);
	conform_wait_for(c, WC_RECV, c->qa[1], 1);
	verbs_over();
}

/* ---- windows ---- */

Test(conform_verbs, writes_land_at_their_offsets)
{
	struct window *w;

	verbs_begin(1);
	w = open_window(0, 5, 1000, MIB);
	post_b(WR_WRITE, 0, w->key, 0, 0, 1);
	post_b(WR_WRITE, 0, w->key, 17, 100, 300);
	post_b(WR_WRITE, 0, w->key, MIB - 1, 7, 1);
	conform_wait_for(c, WC_WRITE, c->qb[0], 3);
	conform_send(c, c->b, c->qb[0], 1, 1);
	conform_wait_for(c, WC_RECV, c->qa[0], 1);
	cr_assert(mem_a[1000] == mem_b[0] && !memcmp(mem_a + 1017, mem_b + 100, 300) && mem_a[999 + MIB] == mem_b[7]);
	cr_assert(!mem_a[999] && !mem_a[1001] && !mem_a[1000 + MIB]);
	close_window(w);
	verbs_over();
}

/* The order that the whole design stands on: bytes, then the message behind them, then the closed window. */
Test(conform_verbs, bytes_are_there_when_the_message_is)
{
	verbs_begin(1);
	for (uint32_t i = 0; i < 60; i++) {
		struct window *w = open_window(0, i % 4, (i % 4) * 300000, 300000);

		post_b(WR_WRITE, 0, w->key, 0, i * 1000, 300000);
		conform_send(c, c->b, c->qb[0], 1, i);
		conform_wait_for(c, WC_RECV, c->qa[0], i + 1);
		cr_assert(!memcmp(w->addr, mem_b + i * 1000, 300000), "message %u overtook its bytes", i);
		close_window(w);
	}
	verbs_over();
}

Test(conform_verbs, a_key_changes_with_every_bind)
{
	uint32_t last = 0;

	verbs_begin(1);
	for (uint32_t i = 0; i < 300; i++) { /* the rotating part has 8 bits */
		struct window *w = open_window(0, 9, 0, 4096);

		cr_assert_neq(w->key, last);
		last = w->key;
		close_window(w);
	}
	verbs_over();
}

/* A WRITE that the device refuses: an access error at the writer, no byte, and the other QP lives on. */
static void refused(uint16_t q, uint32_t key, uint64_t offset, uint32_t len)
{
	post_b(WR_WRITE, q, key, offset, 0, len);
	conform_wait_for(c, WC_QP_DOWN, c->qb[q], 1);
	cr_assert_eq(conform_event(c, WC_QP_DOWN, c->qb[q], 0)->wc.status, WC_ERR_ACCESS);
	conform_settle(c);
	cr_assert(is_untouched());
	verbs_over();
}

Test(conform_verbs, write_outside_its_region_is_refused)
{
	verbs_begin(1);
	refused(0, open_window(0, 1, MEMORY_BYTES - 8192, 8192)->key, 1, 8192);
}

/* Linux 6.1's rxe compares with the region, not with the window (docs/verbs.md): only a NIC can show this. */
Test(conform_verbs, write_outside_its_window_is_refused)
{
	verbs_begin(1);
	if (ib_of(c->a)->attr.vendor_id == RXE_VENDOR) {
		verbs_over();
		cr_skip_test("Soft-RoCE does not check a window's bounds: needs an RDMA NIC");
	}
	refused(0, open_window(0, 1, 4096, 8192)->key, 1, 8192);
}

Test(conform_verbs, write_through_a_closed_window_is_refused)
{
	struct window *w;

	verbs_begin(1);
	w = open_window(0, 1, 0, 8192);
	close_window(w);
	refused(0, w->key, 0, 100);
}

Test(conform_verbs, write_with_the_key_before_is_refused)
{
	struct window *w;
	uint32_t old;

	verbs_begin(1);
	w = open_window(0, 1, 0, 8192);
	old = w->key;
	close_window(w);
	cr_assert_neq(open_window(0, 1, 0, 8192)->key, old);
	refused(0, old, 0, 100);
}

Test(conform_verbs, write_over_another_qp_is_refused)
{
	verbs_begin(2);
	refused(1, open_window(0, 1, 0, 8192)->key, 0, 100);
}

Test(conform_verbs, a_window_for_reading_is_not_written)
{
	struct window *w;

	verbs_begin(1);
	w = bind(0, 1, 0, 8192, WINDOW_READS, 3);
	conform_wait_for(c, WC_RECV, c->qb[0], 1);
	refused(0, w->key, 0, 100);
}

/* A region's own key opens nothing: it is registered without remote access. */
Test(conform_verbs, write_by_the_region_s_own_key_is_refused)
{
	const struct ibv_mr *mr;

	verbs_begin(1);
	open_window(0, 1, 0, 8192);
	mr = ib_of(c->a)->mrs[REGION_A].mr;
	refused(0, mr->lkey, (uintptr_t)mem_a, 100);
}

/* ---- reading ---- */

Test(conform_verbs, a_window_for_reading_is_read)
{
	struct window *w;

	verbs_begin(1);
	conform_fill(mem_a, MEMORY_BYTES, 77);
	w = bind(0, 2, 4096, MIB, WINDOW_READS, 3);
	conform_wait_for(c, WC_RECV, c->qb[0], 1);
	post_b(WR_READ, 0, w->key, 10, 0, 900000);
	conform_wait_for(c, WC_READ, c->qb[0], 1);
	cr_assert_eq(conform_event(c, WC_READ, c->qb[0], 0)->wc.ctx, mem_b);
	cr_assert(!memcmp(mem_b, mem_a + 4106, 900000));
	close_window(w);
	verbs_over();
}

Test(conform_verbs, a_window_for_writing_is_not_read)
{
	struct window *w;

	verbs_begin(1);
	w = open_window(0, 2, 0, 8192);
	memset(mem_b, 0xee, 100);
	post_b(WR_READ, 0, w->key, 0, 0, 100);
	conform_wait_for(c, WC_QP_DOWN, c->qb[0], 1);
	cr_assert_eq(conform_event(c, WC_QP_DOWN, c->qb[0], 0)->wc.status, WC_ERR_ACCESS);
	cr_assert(mem_b[0] == 0xee && mem_b[99] == 0xee);
	verbs_over();
}

/* ---- the fence ---- */

/* Late writes: the writer goes on and on, the reader's QP is given up in the middle; no byte changes afterwards. */
/* Soft-RoCE with both ends on one host lets every write land as it is posted, so no round may be cut there; writes that
 * are under way between two hosts are those of tests/vm/vm_late.py. */
Test(conform_verbs, nothing_lands_after_the_fence)
{
	uint8_t *then = malloc(MEMORY_BYTES);
	unsigned n_cut = 0;

	for (unsigned round = 0; round < 8; round++) {
		struct window *w;

		verbs_begin(1);
		w = open_window(0, 1, 0, MEMORY_BYTES);
		for (uint32_t i = 0; i < 60; i++)
			post_b(WR_WRITE, 0, w->key, i * 32768, i * 32768, 32768);
		for (unsigned i = 0; i < round * 4; i++)
			conform_turn(c);
		end_qp(c->a, c->qa[0]);
		memcpy(then, mem_a, MEMORY_BYTES);
		n_cut += memcmp(then, mem_b, 60 * 32768) != 0;
		for (int i = 0; i < 300; i++)
			conform_turn(c); /* the writer's side goes on */
		cr_assert(!memcmp(then, mem_a, MEMORY_BYTES), "round %u: bytes landed after the fence", round);
		verbs_over();
	}
	cr_log_warn("%u of 8 rounds were fenced while writes were under way", n_cut);
	free(then);
}

Test(conform_verbs, a_fenced_slot_has_a_fresh_key_and_works)
{
	struct window *w;
	uint32_t old;

	verbs_begin(2);
	w = open_window(0, 1, 0, 8192);
	old = w->key;
	end_qp(c->a, c->qa[0]);
	w->state = WINDOW_DEAD;
	w = open_window(1, 1, 0, 8192);
	cr_assert_neq(w->key >> 8, old >> 8, "never rotated on after an unclean end");
	post_b(WR_WRITE, 1, w->key, 0, 0, 8192);
	conform_send(c, c->b, c->qb[1], 1, 1);
	conform_wait_for(c, WC_RECV, c->qa[1], 1);
	cr_assert(!memcmp(mem_a, mem_b, 8192));
	close_window(w);
	verbs_over();
}

Test(conform_verbs, a_peer_that_left_is_noticed_when_it_is_asked)
{
	verbs_begin(1);
	end_qp(c->b, c->qb[0]);
	conform_send(c, c->a, c->qa[0], 1, 1);
	conform_wait_for(c, WC_QP_DOWN, c->qa[0], 1);
	cr_assert_eq(conform_event(c, WC_QP_DOWN, c->qa[0], 0)->wc.status, WC_ERR_RETRY);
	/* Posting on it is taken and dropped. */
	for (int i = 0; i < 1000; i++)
		conform_send(c, c->a, c->qa[0], 1, 1);
	conform_settle(c);
	cr_assert_eq(conform_count(c, WC_QP_DOWN, c->qa[0]), 1);
	verbs_over();
}

/* ---- queues and sleep ---- */

Test(conform_verbs, a_full_send_queue_is_short_and_recovers)
{
	struct wr wr = {.op = WR_WRITE, .len_bytes = 64, .region = REGION_B};
	struct window *w;
	uint32_t n = 0;

	verbs_begin(1);
	w = open_window(0, 0, 0, 4096);
	wr.qp = c->qb[0];
	wr.addr = mem_b;
	wr.key = w->key;
	while (c->b->post(c->b, &wr, 1))
		cr_assert(++n < 10000, "no back-pressure");
	conform_wait_for(c, WC_WRITE, c->qb[0], n);
	conform_settle(c);
	cr_assert_eq(conform_count(c, WC_WRITE, c->qb[0]), n);
	post_b(WR_WRITE, 0, w->key, 0, 0, 64);
	conform_wait_for(c, WC_WRITE, c->qb[0], n + 1);
	close_window(w);
	verbs_over();
}

Test(conform_verbs, a_bind_is_never_taken_without_its_message)
{
	struct wr write = {.op = WR_WRITE, .len_bytes = 64, .region = REGION_A};
	struct window *w, *mine;
	struct wr wr[2];
	alignas(8) uint8_t msg[WIRE_MSG_BYTES];

	verbs_begin(1);
	w = open_window(0, 0, 0, 4096);
	mine = &c->a->windows[8];
	*mine = (struct window){
		.addr = mem_a, .len_bytes = 64, .qp = c->qa[0], .region = REGION_A, .access = WINDOW_WRITES};
	mine->key = c->a->next_keys[8];
	wr[0] = (struct wr){.op = WR_BIND, .qp = c->qa[0], .window = mine, .region = REGION_A};
	wr[1] = (struct wr){.op = WR_SEND,
		.qp = c->qa[0],
		.addr = msg,
		.len_bytes = conform_message(msg, 1, 1),
		.region = REGION_NONE};
	write.qp = c->qa[0];
	write.addr = mem_a;
	write.key = 1; /* nobody's: the queue is to be full, not right */
	while (ib_qp_of(c->qa[0])->sq_tail - ib_qp_of(c->qa[0])->sq_reaped < IB_SQ_DEPTH - 1)
		cr_assert_eq(c->a->post(c->a, &write, 1), 1);
	cr_assert_eq(c->a->post(c->a, wr, 2), 0);
	cr_assert_eq(c->a->next_keys[8], mine->key);
	(void)w;
	verbs_over();
}

Test(conform_verbs, arm_sees_a_message_come)
{
	verbs_begin(1);
	for (uint32_t i = 0; i < 20; i++) {
		struct pollfd p = {.events = POLLIN};

		conform_settle(c);
		c->a->now_ns = clock_ns();
		cr_assert_geq(p.fd = c->ops->arm(c->a), 0, "idle, and yet something to do");
		cr_assert_eq(poll(&p, 1, 0), 0, "idle, and yet readable");
		conform_send(c, c->b, c->qb[0], 1, i);
		cr_assert_eq(poll(&p, 1, 5000), 1, "the message came and woke nobody");
		conform_wait_for(c, WC_RECV, c->qa[0], i + 1);
	}
	verbs_over();
}

Test(conform_verbs, arm_does_not_sleep_over_a_completion)
{
	struct window *w;
	struct wr wr;
	int fd;

	verbs_begin(1);
	w = open_window(0, 0, 0, 4096);
	conform_settle(c);
	wr = (struct wr){.op = WR_INV, .qp = c->qa[0], .window = w, .ctx = w};
	w->state = WINDOW_INVALIDATING;
	conform_post(c, c->a, &wr);
	fd = c->ops->arm(c->a);
	if (fd >= 0) {
		struct pollfd p = {.fd = fd, .events = POLLIN};

		cr_assert_eq(poll(&p, 1, 5000), 1);
	}
	conform_wait_for(c, WC_INV, c->qa[0], 1);
	w->state = WINDOW_FREE;
	verbs_over();
}

Test(conform_verbs, many_mib_arrive_byte_exact)
{
	verbs_begin(2);
	for (uint32_t round = 0; round < 16; round++) {
		struct window *w[2] = {open_window(0, 0, 0, MIB), open_window(1, 1, MIB, MIB)};

		memset(mem_a, 0, MEMORY_BYTES);
		for (uint32_t off = 0; off < MIB; off += 65536) {
			post_b(WR_WRITE, 0, w[0]->key, off, off, 65536);
			post_b(WR_WRITE, 1, w[1]->key, off, MIB + off, 65536);
		}
		for (uint16_t q = 0; q < 2; q++) {
			conform_send(c, c->b, c->qb[q], 1, round);
			conform_wait_for(c, WC_RECV, c->qa[q], round + 1);
		}
		cr_assert(!memcmp(mem_a, mem_b, MEMORY_BYTES), "round %u", round);
		close_window(w[0]);
		close_window(w[1]);
	}
	verbs_over();
}
