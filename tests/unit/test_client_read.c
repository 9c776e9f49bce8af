/* SPDX-License-Identifier: BSD-3-Clause */
/* Synchronous reads, streams, lists and deletes against the fake daemon's server. */
#include "fake_daemon.h"

#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STRIPE 65536u

static struct fake *f;
static struct ry_client *c;
static char cause[RY_CAUSE_MAX_BYTES];

static void start(void)
{
	cr_assert_eq(fake_attach(f, NULL, cause, &c), RY_OK, "%s", cause);
	fake_serve(f);
}

/* The server takes what was sent before it answers; the second time, this includes the releases that the first brought
 * about. */
static void settle(void)
{
	struct ry_object object;

	(void)ry_lookup(c, "k", 1, 0, &object);
	(void)ry_lookup(c, "k", 1, 0, &object);
}

static void stop(void)
{
	settle();
	if (ry_wait(c, 0) != RY_ERR_DETACHED)
		cr_assert_eq(__atomic_load_n(&f->n_leases, __ATOMIC_RELAXED), 0, "a lease was not given back");
	ry_detach(c);
	fake_stop(f);
}

/* What a stream handed out so far. */
struct sink {
	uint64_t next;
	uint64_t n_calls;
	uint64_t stop_at; /* 0 = never */
	bool is_wrong;
};

static bool swallow(void *arg, const void *data, uint64_t bytes, uint64_t offset)
{
	struct sink *s = arg;

	s->is_wrong |= offset != s->next;
	for (uint64_t i = 0; i < bytes; i++)
		s->is_wrong |= ((const uint8_t *)data)[i] != fake_byte(offset + i);
	s->next += bytes;
	s->n_calls++;
	return s->stop_at == 0 || s->next < s->stop_at;
}

static void check_untouched(const uint8_t *buffer, uint64_t bytes)
{
	for (uint64_t i = 0; i < bytes; i++)
		cr_assert_eq(buffer[i], 0xee, "byte %llu was written", (unsigned long long)i);
}

TestSuite(client_read, .timeout = 20);

Test(client_read, a_range_comes_as_a_lease)
{
	struct ry_read_opts opts = {.offset = 70001, .length = 1000, .deadline_ns = 1000000000};
	struct ry_read_result result;
	struct ry_lease lease;
	uint8_t copy[1000];

	f = fake_start(NULL);
	fake_add(f, "k", 200000, STRIPE);
	start();
	cr_assert_eq(ry_read(c, "k", 1, &opts, &lease, &result), RY_OK, "%s", ry_last_cause(c));
	cr_assert_eq(lease.bytes, 1000);
	cr_assert_eq(lease.n_spans, 2);
	ry_lease_copy(&lease, copy);
	for (unsigned i = 0; i < 1000; i++)
		cr_assert_eq(copy[i], fake_byte(70001 + i));
	cr_assert_eq(result.bytes, 1000);
	cr_assert_eq(result.generation, 1);
	cr_assert(result.is_verified);
	cr_assert_eq(result.stats.n_rails, 2);
	cr_assert_str_eq(result.stats.rails[1].name, "rail1");
	cr_assert_neq(fake_nth(f, RY_OP_READ, 0)->e.deadline_ns, 0);
	ry_lease_release(c, &lease);
	stop();
}

Test(client_read, a_missing_object_leaves_the_lease_alone)
{
	struct ry_lease lease = {.bytes = 99};

	f = fake_start(NULL);
	start();
	cr_assert_eq(ry_read(c, "nothing", 7, NULL, &lease, NULL), RY_ERR_NOT_FOUND);
	cr_assert_eq(lease.bytes, 99);
	cr_assert_str_eq(ry_last_cause(c), "fake: status 9");
	stop();
}

Test(client_read, an_empty_object_is_an_ordinary_case)
{
	struct sink sink = {0};
	struct ry_lease lease;
	uint64_t bytes = 99;

	f = fake_start(NULL);
	fake_add(f, "k", 0, STRIPE);
	start();
	cr_assert_eq(ry_read(c, "k", 1, NULL, &lease, NULL), RY_OK);
	cr_assert_eq(lease.bytes, 0);
	ry_lease_release(c, &lease);
	cr_assert_eq(ry_read_copy(c, "k", 1, NULL, NULL, 0, &bytes, NULL), RY_OK);
	cr_assert_eq(bytes, 0);
	cr_assert_eq(ry_stream_read(c, "k", 1, NULL, 0, swallow, &sink, NULL), RY_OK);
	cr_assert_eq(sink.n_calls, 0);
	stop();
}

Test(client_read, a_copy_fills_the_buffer)
{
	uint8_t buffer[3000];
	uint64_t bytes;

	f = fake_start(NULL);
	fake_add(f, "k", 2999, STRIPE);
	start();
	memset(buffer, 0xee, sizeof(buffer));
	cr_assert_eq(ry_read_copy(c, "k", 1, NULL, buffer, sizeof(buffer), &bytes, NULL), RY_OK);
	cr_assert_eq(bytes, 2999);
	for (unsigned i = 0; i < 2999; i++)
		cr_assert_eq(buffer[i], fake_byte(i));
	cr_assert_eq(buffer[2999], 0xee);
	stop();
}

Test(client_read, a_small_buffer_is_told_how_large_and_not_touched)
{
	struct ry_read_opts opts = {.offset = 100, .length = 2000};
	uint8_t buffer[1000];
	uint64_t bytes = 0;

	f = fake_start(NULL);
	fake_add(f, "k", 3000, STRIPE);
	start();
	memset(buffer, 0xee, sizeof(buffer));
	cr_assert_eq(ry_read_copy(c, "k", 1, NULL, buffer, sizeof(buffer), &bytes, NULL), RY_ERR_BUFFER_TOO_SMALL);
	cr_assert_eq(bytes, 3000);
	cr_assert_eq(ry_read_copy(c, "k", 1, &opts, buffer, sizeof(buffer), &bytes, NULL), RY_ERR_BUFFER_TOO_SMALL);
	cr_assert_eq(bytes, 2000);
	check_untouched(buffer, sizeof(buffer));
	cr_assert_eq(fake_count(f, RY_OP_READ), 0, "bytes were moved that nobody can take");
	opts.offset = 2500;
	opts.length = RY_TO_END;
	cr_assert_eq(ry_read_copy(c, "k", 1, &opts, buffer, sizeof(buffer), &bytes, NULL), RY_OK);
	cr_assert_eq(bytes, 500);
	stop();
}

Test(client_read, an_object_that_grew_since_the_look_up_is_not_copied)
{
	uint8_t buffer[3000];
	uint64_t bytes = 0;

	f = fake_start(NULL);
	fake_add(f, "k", 3000, STRIPE);
	f->grow_bytes = 4000;
	start();
	memset(buffer, 0xee, sizeof(buffer));
	cr_assert_eq(ry_read_copy(c, "k", 1, NULL, buffer, sizeof(buffer), &bytes, NULL), RY_ERR_BUFFER_TOO_SMALL);
	cr_assert_eq(bytes, 4000);
	check_untouched(buffer, sizeof(buffer));
	stop();
}

Test(client_read, a_failed_copy_touches_nothing_and_the_next_is_good)
{
	uint8_t buffer[3000];
	uint64_t bytes = 7;

	f = fake_start(NULL);
	fake_add(f, "k", 3000, STRIPE);
	f->fail_at = 1;
	f->fail_status = RY_ERR_CHECKSUM;
	start();
	memset(buffer, 0xee, sizeof(buffer));
	cr_assert_eq(ry_read_copy(c, "k", 1, NULL, buffer, sizeof(buffer), &bytes, NULL), RY_ERR_CHECKSUM);
	check_untouched(buffer, sizeof(buffer));
	cr_assert_eq(bytes, 7);
	cr_assert_eq(ry_read_copy(c, "k", 1, NULL, buffer, sizeof(buffer), &bytes, NULL), RY_OK);
	cr_assert_eq(buffer[2999], fake_byte(2999));
	stop();
}

Test(client_read, an_object_beyond_the_arena_needs_a_stream)
{
	uint8_t *buffer = malloc(3u << 20);
	struct sink sink = {0};
	uint64_t bytes = 7;

	f = fake_start(NULL);
	fake_add(f, "k", (2u << 20) + 1, STRIPE);
	start();
	cr_assert_eq(ry_read_copy(c, "k", 1, NULL, buffer, 3u << 20, &bytes, NULL), RY_ERR_BUFFER_TOO_SMALL);
	cr_assert_eq(bytes, 0);
	cr_assert_eq(ry_stream_read(c, "k", 1, NULL, 0, swallow, &sink, NULL), RY_OK, "%s", ry_last_cause(c));
	cr_assert_eq(sink.next, (2u << 20) + 1);
	cr_assert_not(sink.is_wrong);
	free(buffer);
	stop();
}

Test(client_read, synchronous_calls_keep_submitted_ones_for_reap)
{
	struct ry_request r = {.op = RY_OP_LOOKUP, .key = "k", .key_bytes = 1};
	struct ry_completion done;
	struct ry_object object;

	f = fake_start(NULL);
	fake_add(f, "k", 3000, STRIPE);
	start();
	cr_assert_eq(ry_submit(c, &r, 1), 1);
	cr_assert_eq(ry_lookup(c, "k", 1, 0, &object), RY_OK);
	cr_assert_eq(object.size_bytes, 3000);
	cr_assert_eq(ry_reap(c, &done, 1), 1);
	cr_assert_eq(done.ticket, r.ticket);
	cr_assert_eq(done.object.size_bytes, 3000);
	stop();
}

Test(client_read, a_stream_keeps_two_batches_of_whole_stripes_in_flight)
{
	struct ry_read_opts opts = {
		.offset = 1000, .length = RY_TO_END, .flags = RY_F_ONE_RAIL, .deadline_ns = 9000000000u};
	struct ry_read_result result;
	struct sink sink = {.next = 1000};
	uint64_t at = 1000;

	f = fake_start(NULL);
	fake_add(f, "k", 600000, STRIPE);
	f->n_hold = 2; /* with one in flight this would never end */
	start();
	cr_assert_eq(ry_stream_read(c, "k", 1, &opts, 2 * STRIPE + 17, swallow, &sink, &result), RY_OK);
	cr_assert_eq(sink.next, 600000);
	cr_assert_not(sink.is_wrong);
	cr_assert_eq(f->n_held_max, 2);
	cr_assert_eq(fake_count(f, RY_OP_READ), 5);
	for (uint32_t i = 0; i < 5; i++) {
		const struct ry_sqe *e = &fake_nth(f, RY_OP_READ, i)->e;

		cr_assert_eq(e->offset, at);
		at += e->length;
		cr_assert(at % (2 * STRIPE) == 0 || at == 600000, "batch %u ends inside a stripe", i);
		cr_assert_eq(e->flags, RY_F_ONE_RAIL);
		cr_assert_neq(e->deadline_ns, 0);
	}
	cr_assert_eq(result.bytes, 599000);
	cr_assert(result.is_verified);
	cr_assert_eq(result.stats.n_rails, 2);
	cr_assert_eq(result.stats.wire_bytes, 599000);
	cr_assert_eq(result.stats.rails[0].bytes + result.stats.rails[1].bytes, 599000);
	cr_assert_eq(result.stats.rails[0].segments, 5);
	stop();
}

Test(client_read, a_stream_ends_where_the_range_ends)
{
	struct ry_read_opts opts = {.offset = STRIPE - 1, .length = STRIPE + 2};
	struct sink sink = {.next = STRIPE - 1};

	f = fake_start(NULL);
	fake_add(f, "k", 600000, STRIPE);
	start();
	cr_assert_eq(ry_stream_read(c, "k", 1, &opts, STRIPE, swallow, &sink, NULL), RY_OK);
	cr_assert_eq(sink.next, 2 * STRIPE + 1);
	cr_assert_eq(fake_count(f, RY_OP_READ), 3);
	opts = (struct ry_read_opts){.offset = 1, .length = 600000};
	cr_assert_eq(ry_stream_read(c, "k", 1, &opts, STRIPE, swallow, &sink, NULL), RY_ERR_INVALID);
	opts = (struct ry_read_opts){.offset = 600001, .length = RY_TO_END};
	cr_assert_eq(ry_stream_read(c, "k", 1, &opts, STRIPE, swallow, &sink, NULL), RY_ERR_INVALID);
	opts = (struct ry_read_opts){.offset = UINT64_MAX - 1, .length = 3};
	cr_assert_eq(ry_stream_read(c, "k", 1, &opts, STRIPE, swallow, &sink, NULL), RY_ERR_INVALID);
	stop();
}

Test(client_read, a_stream_notices_that_the_object_was_replaced)
{
	struct sink sink = {0};

	f = fake_start(NULL);
	fake_add(f, "k", 600000, STRIPE);
	f->replace_after = 3;
	start();
	cr_assert_eq(ry_stream_read(c, "k", 1, NULL, STRIPE, swallow, &sink, NULL), RY_ERR_STALE_GENERATION);
	cr_assert_eq(sink.next, 3 * STRIPE, "the prefix before it was handed out");
	cr_assert_not(sink.is_wrong);
	stop();
}

Test(client_read, a_stream_of_another_generation_moves_nothing)
{
	struct ry_read_opts opts = {.length = RY_TO_END, .generation = 4};
	struct sink sink = {0};

	f = fake_start(NULL);
	fake_add(f, "k", 600000, STRIPE);
	start();
	cr_assert_eq(ry_stream_read(c, "k", 1, &opts, STRIPE, swallow, &sink, NULL), RY_ERR_STALE_GENERATION);
	cr_assert_eq(fake_count(f, RY_OP_READ), 0);
	stop();
}

Test(client_read, a_stream_is_stopped_by_its_reader)
{
	struct sink sink = {.stop_at = 2 * STRIPE};

	f = fake_start(NULL);
	fake_add(f, "k", 600000, STRIPE);
	f->n_hold = 2; /* the third batch is still in flight when the second is handed out */
	start();
	cr_assert_eq(ry_stream_read(c, "k", 1, NULL, STRIPE, swallow, &sink, NULL), RY_ERR_CANCELLED);
	cr_assert_eq(sink.next, 2 * STRIPE);
	settle();
	cr_assert_eq(fake_count(f, RY_OP_CANCEL), 1, "the batch in flight was left running");
	stop();
}

Test(client_read, a_stream_goes_on_alone_where_the_budget_admits_one_batch)
{
	struct sink sink = {0};

	f = fake_start(NULL);
	fake_add(f, "k", 600000, STRIPE);
	f->fail_at = 2;
	f->fail_status = RY_ERR_BUDGET;
	start();
	cr_assert_eq(ry_stream_read(c, "k", 1, NULL, STRIPE, swallow, &sink, NULL), RY_OK, "%s", ry_last_cause(c));
	cr_assert_eq(sink.next, 600000);
	cr_assert_not(sink.is_wrong);
	stop();
}

Test(client_read, a_stream_takes_smaller_batches_where_the_budget_admits_no_whole_one)
{
	struct sink sink = {0};

	f = fake_start(NULL);
	fake_add(f, "k", 600000, STRIPE);
	f->budget_bytes = STRIPE;
	start();
	cr_assert_eq(ry_stream_read(c, "k", 1, NULL, 4 * STRIPE, swallow, &sink, NULL), RY_OK, "%s", ry_last_cause(c));
	cr_assert_eq(sink.next, 600000);
	cr_assert_not(sink.is_wrong);
	f->budget_bytes = STRIPE - 1;
	sink.next = 0;
	cr_assert_eq(ry_stream_read(c, "k", 1, NULL, 4 * STRIPE, swallow, &sink, NULL), RY_ERR_BUDGET);
	cr_assert_eq(sink.next, 0);
	stop();
}

Test(client_read, a_stream_whose_stripe_fills_half_the_arena_reads_one_batch_at_a_time)
{
	struct sink sink = {0};

	f = fake_start(&(struct fake_opts){.read_arena_bytes = 3 * STRIPE});
	fake_add(f, "k", 600000, 2 * STRIPE);
	start();
	cr_assert_eq(ry_stream_read(c, "k", 1, NULL, 0, swallow, &sink, NULL), RY_OK, "%s", ry_last_cause(c));
	cr_assert_eq(sink.next, 600000);
	cr_assert_eq(fake_count(f, RY_OP_READ), 5, "a second batch was tried and refused");
	stop();
}

Test(client_read, death_in_a_stream_is_one_typed_error)
{
	struct sink sink = {0};

	f = fake_start(NULL);
	fake_add(f, "k", 600000, STRIPE);
	f->die_at = 4;
	start();
	cr_assert_eq(ry_stream_read(c, "k", 1, NULL, STRIPE, swallow, &sink, NULL), RY_ERR_DETACHED);
	cr_assert_not(sink.is_wrong);
	cr_assert_leq(sink.next, 3 * STRIPE);
	stop();
}

struct listing {
	uint32_t n;
	uint32_t stop_at;
	bool is_wrong;
};

static bool note(void *arg, const void *key, uint16_t key_bytes, uint64_t size_bytes, uint64_t generation)
{
	struct listing *l = arg;
	char want[32];

	snprintf(want, sizeof(want), "key%05uxxxxxxxx", l->n);
	l->is_wrong |=
		size_bytes != l->n || generation != 1 || key_bytes != 9 + l->n % 8 || memcmp(key, want, key_bytes) != 0;
	return ++l->n != l->stop_at;
}

Test(client_read, a_list_goes_through_all_pages)
{
	struct listing l = {0};

	f = fake_start(NULL);
	f->n_listed = 2500;
	start();
	cr_assert_eq(ry_list(c, "ke", 2, 0, note, &l), RY_OK, "%s", ry_last_cause(c));
	cr_assert_eq(l.n, 2500);
	cr_assert_not(l.is_wrong);
	cr_assert_eq(fake_count(f, RY_OP_LIST), 3);
	cr_assert_eq(fake_nth(f, RY_OP_LIST, 1)->e.offset, 1024, "the cursor was not passed on");
	cr_assert_eq(fake_nth(f, RY_OP_LIST, 0)->e.key_bytes, 2);
	cr_assert_arr_eq(fake_nth(f, RY_OP_LIST, 2)->slot.key, "ke", 2);
	stop();
}

Test(client_read, a_list_may_be_empty_or_stopped)
{
	struct listing l = {0};

	f = fake_start(NULL);
	start();
	cr_assert_eq(ry_list(c, NULL, 0, 0, note, &l), RY_OK);
	cr_assert_eq(l.n, 0);
	stop();
	f = fake_start(NULL);
	f->n_listed = 2500;
	start();
	l.stop_at = 1030;
	cr_assert_eq(ry_list(c, NULL, 0, 0, note, &l), RY_ERR_CANCELLED);
	cr_assert_eq(l.n, 1030);
	stop();
}

Test(client_read, delete_compares_the_generation)
{
	uint64_t deleted = 0;

	f = fake_start(NULL);
	fake_add(f, "k", 10, STRIPE)->generation = 5;
	start();
	cr_assert_eq(ry_delete(c, "k", 1, 4, 0, &deleted), RY_ERR_STALE_GENERATION);
	cr_assert_eq(deleted, 0);
	cr_assert_eq(ry_delete(c, "k", 1, 5, 0, &deleted), RY_OK);
	cr_assert_eq(deleted, 5);
	cr_assert_eq(ry_delete(c, "k", 1, 0, 0, NULL), RY_ERR_NOT_FOUND);
	stop();
}

Test(client_read, a_daemon_that_oversleeps_its_deadline_is_not_waited_for)
{
	struct ry_object object;
	struct ry_sqe e;

	f = fake_start(NULL);
	cr_assert_eq(fake_attach(f, NULL, cause, &c), RY_OK);
	cr_assert_eq(ry_lookup(c, "k", 1, 1, &object), RY_ERR_TIMEOUT);
	cr_assert(fake_take(f, &e));
	fake_answer(f, &e, RY_OK, 0);
	cr_assert(fake_take(f, &e) && e.op == RY_OP_CANCEL);
	fake_serve(f);
	cr_assert_eq(
		ry_lookup(c, "k", 1, 0, &object), RY_ERR_NOT_FOUND, "the late answer is dropped, the client goes on");
	stop();
}
