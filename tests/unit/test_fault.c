/* SPDX-License-Identifier: BSD-3-Clause */
/* Each kind of fault and each trigger on one mock rail in virtual time. What a node makes of them is in tests/fault. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include "hot/rail.h"
#include "transport/mock/fault.h"

#define MIB (1u << 20)
#define KIB (1u << 10)
#define T0 1000000000ull
#define MS 1000000ull

/* One rail with n pairs; `a` ends dial and read, `b` ends serve. */
static struct {
	struct rail *rail;
	struct qp *a[4];
	struct qp *b[4];
	struct wc wc[64];
} f;
static uint8_t src[4 * MIB], dst[4 * MIB];

static struct fault_plan plan_of(const char *text)
{
	struct fault_plan plan = {0};
	char message[256] = "";

	cr_assert_eq(fault_parse(text, &plan, message, sizeof(message)), 0, "%s: %s", text, message);
	return plan;
}

static void adopt(struct qp *qp)
{
	qp->slot = f.rail->n_qps;
	f.rail->qps[f.rail->n_qps++] = qp;
	f.rail->qp_epoch++;
}

static void begin_with(uint64_t bandwidth, int n_pairs, const struct fault_plan *plan)
{
	struct rail_conf conf = {.mock = {bandwidth, 0, true, plan}};
	const struct transport_ops *ops = transport_find("mock");

	cr_assert_eq(posix_memalign((void **)&f.rail, alignof(struct rail), sizeof(struct rail)), 0);
	memset(f.rail, 0, sizeof(*f.rail));
	f.rail->ops = *ops;
	f.rail->post = ops->post;
	f.rail->poll = ops->poll;
	f.rail->now_ns = T0;
	f.rail->waker.event_fd = -1;
	cr_assert_eq(ops->open(f.rail, &conf), 0);
	for (int i = 0; i < n_pairs; i++) {
		struct qp_request req = {.pair_idx = 1, .is_dialler = true, .peer_credits = 24, .fd = -1};

		cr_assert_eq(ops->pair_connect(f.rail, &req, &f.a[i]), 0);
		req.is_dialler = false;
		req.loop_peer = f.a[i];
		cr_assert_eq(ops->pair_connect(f.rail, &req, &f.b[i]), 0);
		adopt(f.a[i]);
		adopt(f.b[i]);
	}
	for (size_t i = 0; i < sizeof(src); i++)
		src[i] = (uint8_t)(i * 7 + i / 4093);
}

static void begin(uint64_t bandwidth, int n_pairs, const char *text)
{
	struct fault_plan plan = plan_of(text);

	begin_with(bandwidth, n_pairs, &plan);
}

static uint64_t count(enum fault_kind kind)
{
	return mock_fault_count(f.rail, kind);
}

static uint16_t poll_at(uint64_t now_ns)
{
	f.rail->now_ns = now_ns;
	return f.rail->poll(f.rail, f.wc, 64);
}

static struct window *bind(int i, uint32_t slot)
{
	struct window *w = &f.rail->windows[slot];

	*w = (struct window){
		.addr = dst, .len_bytes = sizeof(dst), .qp = f.a[i], .key = slot | 256, .state = WINDOW_BOUND};
	return w;
}

static void put_write(int i, uint32_t slot, uint64_t offset, uint32_t len)
{
	struct wr wr = {.op = WR_WRITE,
		.qp = f.b[i],
		.addr = src + offset,
		.len_bytes = len,
		.key = slot | 256,
		.offset = offset};

	cr_assert_eq(f.rail->post(f.rail, &wr, 1), 1);
}

static void answer(int i, uint64_t id)
{
	struct wire_done m = {.h = {.type = WIRE_DONE, .len_bytes = sizeof(m), .request_id = id}, .credits = 1};
	struct wr wr = {.op = WR_SEND, .qp = f.b[i], .addr = &m, .len_bytes = sizeof(m)};

	cr_assert_eq(f.rail->post(f.rail, &wr, 1), 1);
}

static void ask(int i, uint64_t id, uint32_t stripe, uint32_t offset, uint32_t len, uint32_t slot)
{
	struct {
		struct wire_read read;
		struct wire_part part;
	} m = {.read = {.h = {.type = WIRE_READ, .len_bytes = sizeof(m), .request_id = id},
		       .generation = 1,
		       .ttl_us = 1000,
		       .key = slot | 256,
		       .n_parts = 1},
		.part = {.stripe_idx = stripe, .len_bytes = len, .offset = offset}};
	struct wr wr = {.op = WR_SEND, .qp = f.a[i], .addr = &m, .len_bytes = sizeof(m)};

	cr_assert_eq(f.rail->post(f.rail, &wr, 1), 1);
}

/* Polls until nothing comes; returns request ids of messages in order of arrival, as digits. */
static uint64_t ids_at(uint64_t now_ns)
{
	uint64_t ids = 0;
	uint16_t n;

	while ((n = poll_at(now_ns)) != 0) {
		for (uint16_t i = 0; i < n; i++) {
			if (f.wc[i].op == WC_RECV)
				ids = ids * 10 + ((const struct wire_msg *)f.wc[i].msg)->request_id;
		}
	}
	return ids;
}

/* A turn may move bytes and complete nothing. */
static void drain(void)
{
	for (int i = 0; i < 100; i++)
		poll_at(f.rail->now_ns);
}

static bool is_intact(uint64_t from, uint64_t len)
{
	return memcmp(dst + from, src + from, len) == 0;
}

Test(fault, lose_nth_answer)
{
	begin(0, 1, "lose:n=2");
	for (int i = 1; i <= 4; i++)
		answer(0, (uint64_t)i);
	cr_assert_eq(ids_at(T0), 134);
	cr_assert_eq(count(FAULT_LOSE), 1);
	cr_assert_eq(count(FAULT_DUPLICATE), 0);
}

Test(fault, lose_every_third_twice)
{
	begin(0, 1, "lose:n=3,every=3,repeat=2");
	for (int i = 1; i <= 9; i++)
		answer(0, (uint64_t)i);
	cr_assert_eq(ids_at(T0), 1245789);
	cr_assert_eq(count(FAULT_LOSE), 2);
}

Test(fault, lose_requests_only)
{
	begin(0, 1, "lose:of=requests,repeat=forever");
	bind(0, 0);
	answer(0, 1);
	ask(0, 2, 0, 0, 10, 0);
	answer(0, 3);
	ask(0, 4, 0, 0, 10, 0);
	cr_assert_eq(ids_at(T0), 13);
	cr_assert_eq(count(FAULT_LOSE), 2);
}

Test(fault, duplicate_arrives_twice_even_without_room)
{
	static const uint64_t want[] = {1, 2, 2, 3};

	begin(0, 1, "duplicate:n=2");
	for (int i = 1; i <= 3; i++)
		answer(0, (uint64_t)i);
	f.rail->now_ns = T0;
	for (unsigned i = 0; i < RTE_DIM(want); i++) {
		cr_assert_eq(f.rail->poll(f.rail, f.wc, 1), 1);
		cr_assert_eq(((const struct wire_msg *)f.wc[0].msg)->request_id, want[i]);
	}
	cr_assert_eq(poll_at(T0), 0);
	cr_assert_eq(count(FAULT_DUPLICATE), 1);
}

Test(fault, reorder_behind_two)
{
	begin(0, 1, "reorder:n=2,behind=2,for=1s");
	for (int i = 1; i <= 5; i++)
		answer(0, (uint64_t)i);
	cr_assert_eq(poll_at(T0), 4);
	cr_assert_eq(((const struct wire_msg *)f.wc[1].msg)->request_id, 3);
	cr_assert_eq(ids_at(T0), 2);
	cr_assert_eq(count(FAULT_REORDER), 1);
}

Test(fault, reorder_waits_no_longer_than_it_says)
{
	begin(0, 1, "reorder:for=3ms");
	answer(0, 1);
	cr_assert_eq(ids_at(T0 + 2 * MS), 0);
	cr_assert_eq(ids_at(T0 + 5 * MS), 1, "its time counts from when it came up");
}

Test(fault, kept_messages_go_with_their_qp)
{
	begin(0, 1, "reorder:for=3ms");
	answer(0, 1);
	cr_assert_eq(ids_at(T0), 0);
	f.rail->n_qps = 0;
	f.rail->qp_epoch++;
	cr_assert_eq(f.rail->poll(f.rail, NULL, 0), 0);
	f.rail->ops.pair_close(f.rail, f.a[0]);
	f.rail->ops.pair_close(f.rail, f.b[0]);
	cr_assert_eq(ids_at(T0 + 100 * MS), 0);
}

Test(fault, disconnect_to_the_byte)
{
	begin(0, 2, "disconnect:at=300001");
	bind(0, 0);
	put_write(0, 0, 0, MIB);
	for (int i = 0; i < 4; i++)
		cr_assert_eq(poll_at(T0), i == 2 ? 4 : 0, "turn %d", i);
	cr_assert(is_intact(0, 300001));
	for (uint32_t i = 300001; i < MIB; i++)
		cr_assert_eq(dst[i], 0);
	cr_assert_eq(count(FAULT_DISCONNECT), 1);
}

Test(fault, disconnect_takes_every_end_of_the_rail)
{
	unsigned n = 0;

	begin(0, 3, "disconnect:after=5ms");
	cr_assert_eq(poll_at(T0), 0);
	cr_assert_eq(poll_at(T0 + 5 * MS - 1), 0);
	for (f.rail->now_ns = T0 + 5 * MS; f.rail->poll(f.rail, f.wc, 1); n++) {
		cr_assert(f.wc[0].op == WC_QP_DOWN && f.wc[0].status == WC_ERR_PEER_CLOSED && f.wc[0].is_fenced);
		cr_assert_lt(n, 6u);
	}
	cr_assert_eq(n, 6);
	cr_assert_eq(f.rail->attr.peer_restarts, 0);
}

Test(fault, restart_is_told)
{
	begin(0, 1, "restart:n=1");
	answer(0, 1);
	answer(0, 2);
	cr_assert_eq(ids_at(T0), 1, "the second is lost with its QP");
	cr_assert_eq(f.rail->attr.peer_restarts, 1);
	cr_assert_eq(count(FAULT_RESTART), 1);
}

Test(fault, error_of_each_class_at_the_sending_end)
{
	static const char *const text[] = {"", "peer_closed", "retry", "rnr", "access", "local", "flush", "protocol"};

	for (uint8_t class = WC_ERR_PEER_CLOSED; class <= WC_ERR_PROTOCOL; class ++) {
		char plan[64];

		snprintf(plan, sizeof(plan), "error:class=%s", text[class]);
		begin(0, 2, plan);
		answer(1, 1);
		cr_assert_eq(poll_at(T0), 0);
		cr_assert_eq(poll_at(T0), 1);
		cr_assert(f.wc[0].op == WC_QP_DOWN && f.wc[0].status == class && f.wc[0].qp == f.b[1]);
		answer(0, 2);
		cr_assert_eq(ids_at(T0), 2, "the others do not care");
	}
}

Test(fault, stall_delays_everything_once)
{
	begin(0, 1, "stall:n=1,for=10ms");
	answer(0, 1);
	answer(0, 2);
	cr_assert_eq(ids_at(T0), 1);
	cr_assert_eq(ids_at(T0 + 10 * MS - 1), 0);
	cr_assert_eq(ids_at(T0 + 10 * MS), 2);
	answer(0, 3);
	cr_assert_eq(ids_at(T0 + 11 * MS), 3);
	cr_assert_eq(count(FAULT_STALL), 1);
}

Test(fault, short_write_claims_success)
{
	begin(0, 1, "short:n=2,by=100");
	bind(0, 0);
	for (uint64_t i = 0; i < 3; i++)
		put_write(0, 0, i * 300 * KIB, 300 * KIB);
	drain();
	cr_assert(is_intact(0, 300 * KIB));
	cr_assert(is_intact(300 * KIB, 300 * KIB - 100));
	for (uint32_t i = 600 * KIB - 100; i < 600 * KIB; i++)
		cr_assert_eq(dst[i], 0);
	cr_assert(is_intact(600 * KIB, 300 * KIB));
	cr_assert_eq(count(FAULT_SHORT), 1);
}

static uint32_t n_changed(uint64_t from, uint64_t len, uint64_t *at)
{
	uint32_t n = 0;

	for (uint64_t i = from; i < from + len; i++) {
		if (dst[i] == src[i])
			continue;
		n++;
		*at = i;
		cr_assert_eq(__builtin_popcount(dst[i] ^ src[i]), 1);
	}
	return n;
}

Test(fault, corrupt_byte_of_nth_write)
{
	uint64_t at = 0;

	begin(0, 1, "corrupt:n=2,byte=270000");
	bind(0, 0);
	for (uint64_t i = 0; i < 3; i++)
		put_write(0, 0, i * 300 * KIB, 300 * KIB);
	drain();
	cr_assert_eq(n_changed(0, 900 * KIB, &at), 1);
	cr_assert_eq(at, 300 * KIB + 270000);
	cr_assert_eq(count(FAULT_CORRUPT), 1);
}

Test(fault, corrupt_byte_of_a_stripe)
{
	uint64_t at = 0;

	begin(0, 1, "corrupt:stripe=5,byte=1000");
	bind(0, 0);
	ask(0, 1, 4, 0, 4096, 0);
	ask(0, 2, 5, 4096, 4096, 0); /* of the right stripe, another part of it */
	cr_assert_eq(ids_at(T0), 12);
	put_write(0, 0, 0, 4096);
	drain();
	cr_assert_eq(n_changed(0, 4096, &at), 0);
	ask(0, 3, 5, 512, 4096, 0);
	cr_assert_eq(ids_at(T0), 3);
	put_write(0, 0, 0, 400);
	put_write(0, 0, 400, 3696);
	put_write(0, 0, 0, 100);
	drain();
	cr_assert_eq(n_changed(0, 4096, &at), 1);
	cr_assert_eq(at, 488);
}

Test(fault, same_seed_same_faults)
{
	static const char *const seeds[] = {"seed=1", "seed=1", "seed=2"};
	uint64_t ids[3], at[3];

	for (int k = 0; k < 3; k++) {
		char text[128];

		snprintf(text, sizeof(text), "lose:p=0.5,repeat=forever; corrupt; %s", seeds[k]);
		begin(0, 1, text);
		bind(0, 0);
		put_write(0, 0, 0, MIB);
		for (int i = 0; i < 18; i++)
			answer(0, (uint64_t)(i % 9 + 1));
		ids[k] = 0;
		for (int i = 0; i < 10; i++)
			ids[k] = ids[k] * 7919 + ids_at(T0);
		cr_assert_eq(n_changed(0, MIB, &at[k]), 1);
		cr_assert(count(FAULT_LOSE) > 3 && count(FAULT_LOSE) < 15);
	}
	cr_assert(ids[0] == ids[1] && at[0] == at[1]);
	cr_assert(ids[0] != ids[2] && at[0] != at[2]);
}

/* At a tenth of 100 MB/s a MiB takes 104.8576 ms; then the full rate again. */
Test(fault, slow_rail_takes_as_long_as_it_should)
{
	uint64_t from = T0 + 104857600;

	begin(100000000, 1, "slow:factor=0.1,for=104857600ns");
	bind(0, 0);
	cr_assert_eq(poll_at(T0), 0);
	put_write(0, 0, 0, MIB);
	put_write(0, 0, MIB, MIB);
	for (uint64_t t = T0; t < from; t += 50000)
		cr_assert_eq(poll_at(t), 0, "%lu", (unsigned long)(t - T0));
	cr_assert(is_intact(0, MIB - 64 * KIB), "it comes in slices");
	cr_assert_eq(poll_at(from - 1), 0);
	cr_assert_geq(poll_at(from), 1);
	drain();
	cr_assert(is_intact(0, 2 * MIB));
	cr_assert_eq(count(FAULT_SLOW), 1);
}

Test(fault, slow_needs_a_bandwidth)
{
	struct fault_plan plan = plan_of("slow:factor=0.5");
	struct rail_conf conf = {.mock = {0, 0, true, &plan}};

	begin(0, 0, "");
	cr_assert_eq(mock_fault_inject(f.rail, &plan), -EINVAL);
	f.rail->ops.close(f.rail);
	cr_assert_eq(f.rail->ops.open(f.rail, &conf), -EINVAL);
	cr_assert_null(f.rail->tr);
}

/* ---- Late writes ---- */

static void late(const char *text)
{
	struct window *w;

	begin(0, 1, text);
	w = bind(0, 0);
	put_write(0, 0, 0, 1000);
	put_write(0, 0, 1000, 1000);
	answer(0, 1);
	cr_assert_eq(ids_at(T0), 0, "all behind it waits");
	cr_assert_eq(dst[0], 0);
	w->state = WINDOW_DEAD;
	cr_assert_eq(ids_at(T0 + MS), 1);
	memset(dst, 0x11, sizeof(dst)); /* the memory's next owner */
	cr_assert_eq(count(FAULT_LATE), 0);
	cr_assert_eq(ids_at(T0 + 3 * MS), 0);
	cr_assert_eq(ids_at(T0 + 4 * MS), 0);
	cr_assert_eq(count(FAULT_LATE), 1);
}

Test(fault, late_write_is_stopped_by_the_guard)
{
	late("late:for=3ms");
	for (uint32_t i = 0; i < 4096; i++)
		cr_assert_eq(dst[i], 0x11);
	cr_assert_eq(stat_get(&f.rail->counters.late_dropped_bytes), 2000);
}

Test(fault, late_write_lands_without_the_guard)
{
	late("late:for=3ms,guard=off");
	for (uint32_t i = 0; i < 4096; i++)
		cr_assert_eq(dst[i], i < 1000 ? FAULT_LATE_BYTE : 0x11);
}

/* ---- Plans come and go ---- */

Test(fault, injected_plan_starts_anew_and_ends)
{
	struct fault_plan lose = plan_of("lose:repeat=forever"), twice = plan_of("duplicate:n=1");

	begin(0, 1, "");
	answer(0, 1);
	cr_assert_eq(ids_at(T0), 1);
	cr_assert_eq(mock_fault_inject(f.rail, &lose), 0);
	cr_assert_not(mock_fault_is_taken(f.rail));
	answer(0, 2);
	cr_assert_eq(ids_at(T0), 0);
	cr_assert(mock_fault_is_taken(f.rail));
	cr_assert_eq(mock_fault_inject(f.rail, &twice), 0);
	memset(&twice, 0xff, sizeof(twice)); /* the rail has a copy */
	answer(0, 3);
	answer(0, 4);
	cr_assert_eq(ids_at(T0), 334);
	cr_assert_eq(mock_fault_inject(f.rail, NULL), 0);
	answer(0, 5);
	cr_assert_eq(ids_at(T0), 5);
	cr_assert(mock_fault_is_taken(f.rail));
	for (int i = 0; i < 20; i++) /* more than the rail ever looks at */
		cr_assert_eq(mock_fault_inject(f.rail, &lose), 0);
	answer(0, 6);
	cr_assert_eq(ids_at(T0), 0);
	cr_assert_eq(mock_fault_inject(f.rail, NULL), 0);
	answer(0, 7);
	cr_assert_eq(ids_at(T0), 7);
	cr_assert_eq(count(FAULT_LOSE), 2);
	f.rail->ops.close(f.rail);
}

/* What was under way under the old plan comes to its end under the new one. */
Test(fault, ending_a_plan_frees_what_it_held)
{
	begin(0, 1, "stall:n=2,for=1s; reorder:n=1,for=1s; late");
	bind(0, 0);
	answer(0, 1);
	cr_assert_eq(ids_at(T0), 0, "kept");
	put_write(0, 0, 0, 1000);
	answer(0, 2);
	cr_assert_eq(ids_at(T0), 0, "behind the late write");
	cr_assert_eq(mock_fault_inject(f.rail, NULL), 0);
	cr_assert_eq(ids_at(T0), 12);
	cr_assert(is_intact(0, 1000), "an ordinary write after all");
	cr_assert_eq(f.rail->ops.arm(f.rail), -1, "and nothing keeps the rail awake");
}

Test(fault, sleeping_rail_wakes_for_the_plan)
{
	struct fault_plan plan = plan_of("disconnect:after=5ms");

	begin(0, 1, "");
	cr_assert_eq(poll_at(T0), 0);
	cr_assert_eq(f.rail->ops.arm(f.rail), -1);
	cr_assert_eq(mock_fault_inject(f.rail, &plan), 0);
	cr_assert_eq(f.rail->ops.arm(f.rail), -EAGAIN, "a plan to take in");
	cr_assert_eq(poll_at(T0), 0);
	cr_assert_geq(f.rail->ops.arm(f.rail), 0, "a timer for its disconnect");
	cr_assert_eq(poll_at(T0 + 5 * MS), 2);
}

static uint32_t want_end;

static void *poller(void *arg)
{
	for (uint64_t t = T0; !__atomic_load_n(&want_end, __ATOMIC_RELAXED); t += 1000)
		poll_at(t);
	return NULL;
}

/* The rail looks while another thread replaces what it looks at. */
Test(fault, plans_change_under_a_running_rail)
{
	struct fault_plan plans[2] = {plan_of("stall:after=1us,every=1us,for=1us,repeat=forever; lose"),
		plan_of("slow:after=1ns,every=3ns,factor=0.5,repeat=forever")};
	pthread_t thread;

	begin(1000000000, 1, "");
	cr_assert_eq(pthread_create(&thread, NULL, poller, NULL), 0);
	for (int i = 0; i < 20000 || (!count(FAULT_SLOW) && i < 10000000); i++)
		cr_assert_eq(mock_fault_inject(f.rail, i % 3 ? &plans[i & 1] : NULL), 0);
	while (!mock_fault_is_taken(f.rail))
		sched_yield();
	__atomic_store_n(&want_end, 1, __ATOMIC_RELAXED);
	cr_assert_eq(pthread_join(thread, NULL), 0);
	cr_assert_gt(count(FAULT_SLOW), 0);
	f.rail->ops.close(f.rail);
}

Test(fault, only_valid_plans_and_only_for_mock_rails)
{
	struct fault_plan bad = {.n_entries = 1}, many = {.n_entries = FAULT_ENTRIES_MAX + 1};
	transport_poll_fn poll;

	begin(0, 1, "");
	cr_assert_eq(mock_fault_inject(f.rail, &bad), -EINVAL);
	cr_assert_eq(mock_fault_inject(f.rail, &many), -EINVAL);
	poll = f.rail->poll;
	f.rail->poll = NULL;
	cr_assert_eq(mock_fault_inject(f.rail, NULL), -ENOTSUP);
	cr_assert_eq(mock_fault_count(f.rail, FAULT_LOSE), 0);
	cr_assert_not(mock_fault_is_taken(f.rail));
	f.rail->poll = poll;
	cr_assert_eq(mock_fault_count(f.rail, FAULT_KINDS_), 0);
	cr_assert_null(fault_kind_name(FAULT_NONE));
	cr_assert_null(fault_kind_name(FAULT_KINDS_));
	cr_assert_str_eq(fault_kind_name(FAULT_RESTART), "restart");
}
