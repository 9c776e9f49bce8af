/* SPDX-License-Identifier: BSD-3-Clause */
/* Submitting, reaping and sleeping; the test plays the daemon's side of the rings itself. */
#include "fake_daemon.h"

#include <criterion/criterion.h>

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static struct fake *f;
static struct ry_client *c;
static char cause[RY_CAUSE_MAX_BYTES];
static struct ry_completion done[16];

static void start(const struct fake_opts *opts)
{
	f = fake_start(opts);
	cr_assert_eq(fake_attach(f, NULL, cause, &c), RY_OK, "%s", cause);
}

static void stop(void)
{
	ry_detach(c);
	fake_stop(f);
}

static struct ry_request lookup_of(const char *key)
{
	return (struct ry_request){.op = RY_OP_LOOKUP, .key = key, .key_bytes = (uint16_t)strlen(key)};
}

static struct ry_request read_of(const char *key)
{
	return (struct ry_request){
		.op = RY_OP_READ, .key = key, .key_bytes = (uint16_t)strlen(key), .length = RY_TO_END};
}

static uint64_t submit(struct ry_request r)
{
	cr_assert_eq(ry_submit(c, &r, 1), 1, "%s", ry_last_cause(c));
	return r.ticket;
}

static struct ry_sqe take(void)
{
	struct ry_sqe e;

	cr_assert(fake_take(f, &e), "nothing was submitted");
	return e;
}

static void complete_read(const struct ry_sqe *e, uint64_t offset, uint64_t bytes, uint32_t lease_id)
{
	f->slots[e->slot].n_extents = 1;
	f->slots[e->slot].extents[0] = (struct ry_extent){offset, bytes};
	fake_complete(f, &(struct ry_cqe){.ticket = e->ticket,
				 .op = e->op,
				 .slot = e->slot,
				 .bytes = bytes,
				 .lease_id = lease_id,
				 .is_verified = 1,
				 .generation = 3,
				 .rail_idx = RY_RAIL_NONE});
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

TestSuite(client_ring, .timeout = 20);

Test(client_ring, a_request_arrives_as_it_was_made)
{
	struct ry_request r = read_of("some/key");
	struct ry_sqe e;
	int mine;

	start(NULL);
	r.offset = 4096;
	r.length = 77;
	r.flags = RY_F_ONE_RAIL | RY_F_FAILOVER;
	r.user = &mine;
	cr_assert_eq(ry_submit(c, &r, 1), 1);
	cr_assert_eq(r.status, RY_OK);
	e = take();
	cr_assert_eq(e.ticket, r.ticket);
	cr_assert_eq(e.op, RY_OP_READ);
	cr_assert_eq(e.offset, 4096);
	cr_assert_eq(e.length, 77);
	cr_assert_eq(e.flags, RY_F_ONE_RAIL | RY_F_FAILOVER);
	cr_assert_eq(e.deadline_ns, 0);
	cr_assert_eq(e.key_bytes, 8);
	cr_assert_arr_eq(f->slots[e.slot].key, "some/key", 8);
	memset(&f->slots[e.slot].stats, 0, sizeof(struct ry_read_stats));
	f->slots[e.slot].stats.n_rails = 1;
	f->slots[e.slot].stats.rails[0].bytes = 77;
	memcpy(f->read_arena + 65536, "payload", 7);
	complete_read(&e, 65536, 77, 9);
	cr_assert_eq(ry_reap(c, done, 16), 1);
	cr_assert_eq(done[0].ticket, r.ticket);
	cr_assert_eq(done[0].user, &mine);
	cr_assert_eq(done[0].status, RY_OK);
	cr_assert(done[0].is_verified);
	cr_assert_eq(done[0].generation, 3);
	cr_assert_eq(done[0].lease.bytes, 77);
	cr_assert_arr_eq(done[0].lease.spans[0].data, "payload", 7);
	cr_assert_eq(done[0].stats.rails[0].bytes, 77);
	ry_lease_release(c, &done[0].lease);
	e = take();
	cr_assert_eq(e.op, RY_OP_RELEASE);
	cr_assert_eq(e.arg, 9);
	ry_lease_release(c, &done[0].lease);
	cr_assert_not(fake_take(f, &e), "a second release reached the daemon");
	stop();
}

Test(client_ring, a_relative_deadline_becomes_absolute)
{
	struct ry_request r = lookup_of("k");
	uint64_t before = now_ns();
	struct ry_sqe e;

	start(NULL);
	r.deadline_ns = 5000000000u;
	submit(r);
	e = take();
	cr_assert(e.deadline_ns >= before + 5000000000u && e.deadline_ns <= now_ns() + 5000000000u);
	r.deadline_ns = UINT64_MAX;
	submit(r);
	e = take();
	cr_assert_eq(e.deadline_ns, UINT64_MAX, "saturates instead of wrapping round");
	stop();
}

Test(client_ring, indices_run_past_two_to_the_thirty_second)
{
	start(&(struct fake_opts){.n_entries = 4, .first_index = UINT32_MAX - 5});
	for (uint32_t i = 0; i < 40; i++) {
		struct ry_request r[2] = {lookup_of("a"), lookup_of("b")};
		struct ry_sqe e;

		cr_assert_eq(ry_submit(c, r, 2), 2, "round %u: %s", i, ry_last_cause(c));
		for (unsigned k = 0; k < 2; k++) {
			e = take();
			cr_assert_eq(f->slots[e.slot].key[0], k ? 'b' : 'a');
			fake_answer(f, &e, RY_OK, i);
		}
		cr_assert_eq(ry_reap(c, done, 16), 2);
		cr_assert_eq(done[0].ticket, r[0].ticket);
		cr_assert_eq(done[1].ticket, r[1].ticket);
		cr_assert_eq(done[1].bytes, i);
	}
	cr_assert_eq(f->sq_index->tail, (uint32_t)(UINT32_MAX - 5 + 80));
	stop();
}

Test(client_ring, half_of_the_entries_may_be_in_flight)
{
	struct ry_request r[12];
	struct ry_sqe e;

	start(NULL);
	for (unsigned i = 0; i < 12; i++)
		r[i] = lookup_of("k");
	cr_assert_eq(ry_submit(c, r, 12), 8);
	cr_assert_eq(r[8].status, RY_ERR_LIMIT);
	cr_assert_eq(ry_submit(c, r, 1), 0);
	e = take();
	fake_answer(f, &e, RY_OK, 0);
	cr_assert_eq(ry_submit(c, r, 1), 0, "completed but not reaped: the slot still holds the result");
	cr_assert_eq(ry_reap(c, done, 16), 1);
	cr_assert_eq(ry_submit(c, r, 1), 1);
	stop();
}

Test(client_ring, a_slot_is_not_used_again_before_its_completion)
{
	bool is_taken[16] = {false};
	struct ry_sqe held[16];
	unsigned n = 0;
	uint32_t seed = 1;

	start(NULL);
	for (unsigned i = 0; i < 500; i++) {
		struct ry_request r = lookup_of("k");
		unsigned pick;

		if (ry_submit(c, &r, 1) == 1) {
			held[n] = take();
			cr_assert_not(is_taken[held[n].slot], "slot %u was given out twice", held[n].slot);
			is_taken[held[n++].slot] = true;
		}
		seed = seed * 1103515245 + 12345;
		if (n == 0 || (n < 8 && seed >> 31))
			continue;
		pick = (seed >> 16) % n;
		fake_answer(f, &held[pick], RY_OK, 0);
		is_taken[held[pick].slot] = false;
		held[pick] = held[--n];
		cr_assert_eq(ry_reap(c, done, 16), 1);
	}
	stop();
}

Test(client_ring, completions_are_reaped_in_their_order)
{
	struct ry_sqe e[4];

	start(NULL);
	for (unsigned i = 0; i < 4; i++) {
		submit(lookup_of("k"));
		e[i] = take();
	}
	fake_answer(f, &e[2], RY_OK, 0);
	fake_answer(f, &e[0], RY_ERR_NOT_FOUND, 0);
	fake_answer(f, &e[3], RY_OK, 0);
	cr_assert_eq(ry_reap(c, done, 2), 2);
	cr_assert_eq(ry_reap(c, done + 2, 2), 1);
	cr_assert_eq(done[0].ticket, e[2].ticket);
	cr_assert_eq(done[1].ticket, e[0].ticket);
	cr_assert_eq(done[1].status, RY_ERR_NOT_FOUND);
	cr_assert_str_eq(done[1].cause, "fake: status 9");
	cr_assert_eq(done[2].ticket, e[3].ticket);
	stop();
}

Test(client_ring, an_answer_to_nothing_is_dropped)
{
	struct ry_sqe first, second;

	start(&(struct fake_opts){.n_entries = 2});
	submit(lookup_of("k"));
	first = take();
	fake_answer(f, &first, RY_OK, 0);
	cr_assert_eq(ry_reap(c, done, 16), 1);
	submit(lookup_of("k"));
	second = take();
	cr_assert_eq(second.slot, first.slot);
	cr_assert_neq(second.ticket, first.ticket);
	fake_answer(f, &first, RY_OK, 0);
	cr_assert_eq(ry_reap(c, done, 16), 0, "a repeated answer ended a later operation");
	first.ticket = UINT64_MAX;
	fake_answer(f, &first, RY_OK, 0);
	cr_assert_eq(ry_reap(c, done, 16), 0);
	fake_answer(f, &second, RY_OK, 0);
	cr_assert_eq(ry_reap(c, done, 16), 1);
	stop();
}

Test(client_ring, bad_requests_say_why)
{
	struct ry_request bad[] = {
		{.op = RY_OP_LOOKUP, .key = "k", .key_bytes = 0},
		{.op = RY_OP_LOOKUP, .key = NULL, .key_bytes = 1},
		{.op = RY_OP_LOOKUP, .key = "k", .key_bytes = RY_KEY_MAX_BYTES + 1},
		{.op = RY_OP_READ, .key = "k", .key_bytes = 1, .length = 0},
		{.op = RY_OP_CANCEL, .key = "k", .key_bytes = 1},
		{.op = RY_OP_READ, .key = "k", .key_bytes = 1, .length = 1, .flags = 1u << 31},
		{.op = RY_OP_READ, .key = "k", .key_bytes = 1, .length = 1, .flags = RY_F_IF_ABSENT},
		{.op = RY_OP_LOOKUP, .key = "k", .key_bytes = 1, .flags = RY_F_ONE_RAIL},
		{.op = RY_OP_DELETE, .key = "k", .key_bytes = 1, .flags = RY_F_IF_ABSENT},
		{.op = RY_OP_LIST, .flags = 1},
		{.op = RY_OP_PUT, .key = "k", .key_bytes = 1, .flags = RY_F_PUT_BEGIN | RY_F_PUT_COMMIT | RY_F_FAIL},
		{.op = 0, .key = "k", .key_bytes = 1},
		{.op = RY_OP_PUT, .put_id = {1, 1}, .key = "k", .key_bytes = 1, .length = 1},
		{.op = RY_OP_PUT, .put_id = {1, 1}, .key = "k", .key_bytes = 1, .stripe_bytes = 65537},
		{.op = RY_OP_PUT,
			.put_id = {1, 1},
			.key = "k",
			.key_bytes = 1,
			.length = 1,
			.data = "x",
			.size_bytes = 2,
			.flags = RY_F_PUT_COMMIT},
		{.op = RY_OP_PUT,
			.put_id = {1, 1},
			.key = "k",
			.key_bytes = 1,
			.length = 1,
			.data = "x",
			.size_bytes = 1},
	};
	struct ry_request big = {.op = RY_OP_PUT,
		.put_id = {1, 1},
		.key = "k",
		.key_bytes = 1,
		.length = 1u << 20,
		.size_bytes = 1u << 20,
		.data = "x",
		.flags = RY_F_PUT_COMMIT};
	struct ry_sqe e;

	start(NULL);
	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		cr_assert_eq(ry_submit(c, &bad[i], 1), 0, "case %u", i);
		cr_assert_eq(bad[i].status, RY_ERR_INVALID, "case %u", i);
		cr_assert_neq(ry_last_cause(c)[0], '\0');
	}
	cr_assert_eq(ry_submit(c, &big, 1), 0);
	cr_assert_eq(big.status, RY_ERR_BUFFER_TOO_SMALL);
	cr_assert_not(fake_take(f, &e));
	stop();
}

Test(client_ring, cancel_reaches_the_daemon_once)
{
	uint64_t ticket;
	struct ry_sqe e, cancel;

	start(NULL);
	ticket = submit(read_of("k"));
	e = take();
	cr_assert_eq(ry_cancel(c, ticket), RY_OK);
	cr_assert_eq(ry_cancel(c, ticket), RY_OK);
	cancel = take();
	cr_assert_eq(cancel.op, RY_OP_CANCEL);
	cr_assert_eq(cancel.arg, ticket);
	cr_assert_not(fake_take(f, &cancel));
	fake_answer(f, &e, RY_ERR_CANCELLED, 0);
	cr_assert_eq(ry_reap(c, done, 16), 1);
	cr_assert_eq(done[0].status, RY_ERR_CANCELLED);
	cr_assert_eq(ry_cancel(c, ticket), RY_ERR_NOT_FOUND);
	cr_assert_eq(ry_cancel(c, 0), RY_ERR_NOT_FOUND);
	stop();
}

Test(client_ring, releases_that_find_the_ring_full_are_sent_later)
{
	struct ry_lease leases[40];
	struct ry_sqe e;
	bool is_seen[41] = {false};

	start(&(struct fake_opts){.n_entries = 4});
	for (uint32_t i = 0; i < 40; i++) {
		submit(read_of("k"));
		e = take();
		complete_read(&e, 0, 1, i + 1);
		cr_assert_eq(ry_reap(c, done, 1), 1);
		leases[i] = done[0].lease;
	}
	for (uint32_t i = 0; i < 40; i++)
		ry_lease_release(c, &leases[i]);
	for (uint32_t i = 0; i < 40;) {
		if (!fake_take(f, &e)) {
			cr_assert_eq(ry_reap(c, done, 1), 0);
			e = take();
		}
		cr_assert_eq(e.op, RY_OP_RELEASE);
		cr_assert(e.arg >= 1 && e.arg <= 40 && !is_seen[e.arg]);
		is_seen[e.arg] = true;
		i++;
	}
	submit(read_of("k"));
	stop();
}

Test(client_ring, leases_that_contradict_themselves_are_refused)
{
	struct ry_sqe e;

	start(NULL);
	submit(read_of("k"));
	e = take();
	complete_read(&e, (1u << 20) - 10, 11, 5);
	cr_assert_eq(ry_reap(c, done, 1), 1);
	cr_assert_eq(done[0].status, RY_ERR_PROTOCOL);
	cr_assert_eq(done[0].lease.n_spans, 0);
	e = take();
	cr_assert_eq(e.op, RY_OP_RELEASE);
	cr_assert_eq(e.arg, 5);
	submit(read_of("k"));
	e = take();
	complete_read(&e, UINT64_MAX - 4, 8, 6);
	cr_assert_eq(ry_reap(c, done, 1), 1);
	cr_assert_eq(done[0].status, RY_ERR_PROTOCOL);
	stop();
}

Test(client_ring, another_generation_than_asked_for_is_stale)
{
	struct ry_request r = read_of("k");
	struct ry_sqe e;

	start(NULL);
	r.generation = 2;
	submit(r);
	e = take();
	complete_read(&e, 0, 10, 5);
	cr_assert_eq(ry_reap(c, done, 1), 1);
	cr_assert_eq(done[0].status, RY_ERR_STALE_GENERATION);
	cr_assert_eq(done[0].lease.id, 0);
	e = take();
	cr_assert_eq(e.op, RY_OP_RELEASE);
	stop();
}

Test(client_ring, an_index_out_of_range_ends_the_client)
{
	start(NULL);
	submit(lookup_of("k"));
	__atomic_store_n(&f->cq_index->tail, f->cq_tail + 17, __ATOMIC_RELEASE);
	cr_assert_eq(ry_reap(c, done, 16), 1);
	cr_assert_eq(done[0].status, RY_ERR_PROTOCOL);
	cr_assert_eq(ry_wait(c, 0), RY_ERR_PROTOCOL);
	stop();
}

Test(client_ring, the_daemon_is_kicked_only_when_it_sleeps)
{
	struct pollfd p;
	uint64_t count;

	start(NULL);
	p = (struct pollfd){.fd = f->fds[3], .events = POLLIN};
	submit(lookup_of("k"));
	cr_assert_eq(poll(&p, 1, 0), 0, "an eventfd write for a daemon that is awake");
	__atomic_store_n(&f->sq_index->need_wakeup, 1, __ATOMIC_RELAXED);
	submit(lookup_of("k"));
	cr_assert_eq(poll(&p, 1, 0), 1, "a sleeping daemon was not woken");
	cr_assert_eq(read(p.fd, &count, sizeof(count)), sizeof(count));
	stop();
}

Test(client_ring, wait_says_what_there_is_to_wait_for)
{
	struct ry_sqe e;

	start(NULL);
	cr_assert_eq(ry_wait(c, RY_FOREVER), RY_ERR_INVALID);
	submit(lookup_of("k"));
	cr_assert_eq(ry_wait(c, 0), RY_ERR_TIMEOUT);
	cr_assert_eq(ry_wait(c, 1000), RY_ERR_TIMEOUT);
	cr_assert_eq(f->cq_index->need_wakeup, 0, "awake again, but still announced as asleep");
	e = take();
	fake_answer(f, &e, RY_OK, 0);
	cr_assert_eq(f->n_kicks, 0, "the client was awake");
	cr_assert_eq(ry_wait(c, 0), RY_OK);
	cr_assert_eq(ry_wait(c, RY_FOREVER), RY_OK, "waiting does not take the completion");
	cr_assert_eq(ry_reap(c, done, 16), 1);
	stop();
}

static void *client_page;
static struct ry_sqe late;

/* The client's mapping of the ring, not the fake daemon's. */
static void *find_client_ring(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	void *start, *found = NULL;
	char line[512];

	while (fgets(line, sizeof(line), maps)) {
		if (strstr(line, "memfd:ring") && sscanf(line, "%p", &start) == 1 && start != (void *)f->header)
			found = start;
	}
	fclose(maps);
	return found;
}

/* The client is about to set need_wakeup: the daemon still sees 0, publishes, and kicks nobody. */
static void complete_unseen(int signal)
{
	fake_answer(f, &late, RY_OK, 0);
	mprotect(client_page, 4096, PROT_READ | PROT_WRITE);
}

Test(client_ring, a_completion_between_the_last_look_and_the_announcement_is_seen)
{
	start(NULL);
	submit(lookup_of("k"));
	late = take();
	client_page = find_client_ring();
	cr_assert(client_page);
	signal(SIGSEGV, complete_unseen);
	cr_assert_eq(mprotect(client_page, 4096, PROT_READ), 0);
	cr_assert_eq(ry_wait(c, RY_FOREVER), RY_OK);
	cr_assert_eq(f->n_kicks, 0);
	cr_assert_eq(ry_reap(c, done, 1), 1);
	cr_assert_eq(done[0].ticket, late.ticket);
	stop();
}

Test(client_ring, no_wakeup_is_lost_either_way)
{
	struct ry_object object;

	/* Both sides sleep without a time-out whenever they can: one lost wake-up and the suite's time-out ends this.
	 */
	start(NULL);
	fake_add(f, "k", 10, 65536);
	fake_serve(f);
	for (unsigned i = 0; i < 3000; i++)
		cr_assert_eq(ry_lookup(c, "k", 1, 0, &object), RY_OK);
	cr_assert_gt(f->n_kicks, 0);
	cr_assert_gt(f->n_wakeups, 0);
	stop();
}

Test(client_ring, an_event_loop_is_woken)
{
	struct pollfd p;
	struct ry_sqe e;

	start(NULL);
	p = (struct pollfd){.fd = ry_event_fd(c), .events = POLLIN};
	submit(lookup_of("k"));
	submit(lookup_of("k"));
	cr_assert(ry_event_arm(c));
	cr_assert_eq(poll(&p, 1, 0), 0);
	e = take();
	fake_answer(f, &e, RY_OK, 0);
	cr_assert_eq(f->n_kicks, 1);
	cr_assert_eq(poll(&p, 1, 0), 1);
	cr_assert_eq(ry_reap(c, done, 1), 1);
	cr_assert_eq(poll(&p, 1, 0), 0, "readable for ever");
	e = take();
	fake_answer(f, &e, RY_OK, 0);
	cr_assert_eq(f->n_kicks, 1, "awake since it reaped");
	cr_assert_not(ry_event_arm(c), "there is something to reap");
	cr_assert_eq(ry_reap(c, done, 1), 1);
	submit(lookup_of("k"));
	cr_assert(ry_event_arm(c));
	fake_hang_up(f);
	cr_assert_eq(poll(&p, 1, 0), 1, "death of the daemon wakes, too");
	cr_assert_eq(ry_reap(c, done, 1), 1);
	cr_assert_eq(done[0].status, RY_ERR_DETACHED);
	stop();
}

Test(client_ring, death_ends_what_is_in_flight_but_not_what_was_done)
{
	struct ry_request r = lookup_of("k");
	struct ry_sqe e;

	start(NULL);
	submit(lookup_of("k"));
	submit(lookup_of("k"));
	e = take();
	fake_answer(f, &e, RY_OK, 42);
	fake_hang_up(f);
	cr_assert_eq(ry_wait(c, RY_FOREVER), RY_OK);
	cr_assert_eq(ry_reap(c, done, 1), 1);
	cr_assert_eq(done[0].status, RY_OK);
	cr_assert_eq(done[0].bytes, 42);
	cr_assert_eq(ry_wait(c, RY_FOREVER), RY_OK);
	cr_assert_eq(ry_reap(c, done, 16), 1);
	cr_assert_eq(done[0].status, RY_ERR_DETACHED);
	cr_assert_neq(done[0].cause[0], '\0');
	cr_assert_eq(ry_wait(c, RY_FOREVER), RY_ERR_DETACHED);
	cr_assert_eq(ry_submit(c, &r, 1), 0);
	cr_assert_eq(r.status, RY_ERR_DETACHED);
	stop();
}

Test(client_ring, a_caller_that_only_polls_learns_of_death)
{
	unsigned n = 0;

	start(NULL);
	submit(lookup_of("k"));
	fake_hang_up(f);
	while (ry_reap(c, done, 1) == 0 && n < 1000)
		n++;
	cr_assert_lt(n, 1000);
	cr_assert_eq(done[0].status, RY_ERR_DETACHED);
	stop();
}

Test(client_ring, a_lease_outlives_the_daemon)
{
	struct ry_sqe e;

	start(NULL);
	submit(read_of("k"));
	e = take();
	memcpy(f->read_arena, "still here", 10);
	complete_read(&e, 0, 10, 1);
	cr_assert_eq(ry_reap(c, done, 1), 1);
	fake_hang_up(f);
	submit(lookup_of("k"));
	cr_assert_eq(ry_wait(c, RY_FOREVER), RY_OK);
	cr_assert_arr_eq(done[0].lease.spans[0].data, "still here", 10);
	ry_lease_release(c, &done[0].lease);
	stop();
}
