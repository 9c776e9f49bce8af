/* SPDX-License-Identifier: BSD-3-Clause */
/* Puts against the fake daemon's server, which checks every checksum. */
#include "fake_daemon.h"

#include <criterion/criterion.h>

#include <stdlib.h>
#include <string.h>

#define STRIPE 65536u

static struct fake *f;
static struct ry_client *c;
static char cause[RY_CAUSE_MAX_BYTES];
static uint8_t *data;

static void start(uint64_t bytes)
{
	cr_assert_eq(fake_attach(f, NULL, cause, &c), RY_OK, "%s", cause);
	fake_serve(f);
	data = malloc(bytes + 1);
	for (uint64_t i = 0; i < bytes; i++)
		data[i] = fake_byte(i);
}

static void stop(void)
{
	free(data);
	ry_detach(c);
	fake_stop(f);
}

static void check_object(const char *key, uint64_t bytes)
{
	const struct fake_object *o = fake_find(f, key, (uint16_t)strlen(key));

	cr_assert(o && o->is_committed);
	cr_assert_eq(o->bytes, bytes);
	cr_assert_eq(memcmp(o->data, data, bytes), 0);
}

/* Every part but the last is whole stripes, they follow each other, begin and commit are where they belong. */
static void check_parts(uint64_t bytes, uint64_t size_before_commit)
{
	uint32_t n = fake_count(f, RY_OP_PUT);
	uint64_t at = 0;

	for (uint32_t i = 0; i < n; i++) {
		const struct fake_log *l = fake_nth(f, RY_OP_PUT, i);
		bool is_last = i == n - 1;

		cr_assert_eq(l->e.offset, at);
		cr_assert_eq(!!(l->e.flags & RY_F_PUT_BEGIN), i == 0);
		cr_assert_eq(!!(l->e.flags & RY_F_PUT_COMMIT), is_last);
		cr_assert(is_last || l->e.length % l->slot.stripe_bytes == 0);
		cr_assert_eq(l->slot.size_bytes, is_last ? bytes : size_before_commit);
		cr_assert_eq(l->slot.n_checksums, (l->e.length + l->slot.stripe_bytes - 1) / l->slot.stripe_bytes);
		cr_assert_eq(l->e.arg % 64, 0);
		cr_assert_eq(l->slot.checksum_offset % 8, 0);
		cr_assert_eq(l->slot.put_id[0], fake_nth(f, RY_OP_PUT, 0)->slot.put_id[0]);
		at += l->e.length;
	}
	cr_assert_eq(at, bytes);
}

TestSuite(client_put, .timeout = 20);

Test(client_put, sizes_around_a_stripe_go_in_one_part)
{
	static const uint64_t sizes[] = {0, 1, STRIPE - 1, STRIPE, STRIPE + 1, 3 * STRIPE};
	struct ry_put_opts opts = {.stripe_bytes = STRIPE, .ttl_ns = 77};
	struct ry_put_result result;

	f = fake_start(NULL);
	start(3 * STRIPE);
	for (unsigned i = 0; i < 6; i++) {
		cr_assert_eq(
			ry_put(c, "k", 1, data, sizes[i], &opts, &result), RY_OK, "size %u: %s", i, ry_last_cause(c));
		check_object("k", sizes[i]);
		cr_assert_eq(result.generation, i + 1);
		cr_assert_eq(result.bytes, sizes[i]);
		cr_assert_neq(result.put_id[0], 0);
	}
	cr_assert_eq(fake_count(f, RY_OP_PUT), 6);
	cr_assert_eq(fake_nth(f, RY_OP_PUT, 0)->slot.ttl_ns, 77);
	stop();
}

Test(client_put, more_than_the_arena_goes_in_parts)
{
	struct ry_put_opts opts = {.stripe_bytes = STRIPE, .deadline_ns = 10000000000u};
	uint64_t bytes = (3u << 20) + 12345;

	f = fake_start(NULL);
	f->n_hold = 2; /* with one part in flight this would never end */
	start(bytes);
	cr_assert_eq(ry_put(c, "k", 1, data, bytes, &opts, NULL), RY_OK, "%s", ry_last_cause(c));
	check_object("k", bytes);
	check_parts(bytes, bytes);
	cr_assert_geq(fake_count(f, RY_OP_PUT), 3);
	cr_assert_eq(fake_nth(f, RY_OP_PUT, 0)->e.deadline_ns, fake_nth(f, RY_OP_PUT, 2)->e.deadline_ns,
		"the deadline bounds the call, not each part");
	stop();
}

Test(client_put, the_default_stripe_adapts_to_a_small_arena)
{
	f = fake_start(&(struct fake_opts){.put_arena_bytes = 300000});
	start(400000);
	cr_assert_eq(ry_put(c, "k", 1, data, 400000, NULL, NULL), RY_OK, "%s", ry_last_cause(c));
	check_object("k", 400000);
	cr_assert_eq(fake_nth(f, RY_OP_PUT, 0)->slot.stripe_bytes, 131072);
	stop();
}

Test(client_put, stripes_that_do_not_fit_or_are_not_aligned_are_refused)
{
	struct ry_put_opts opts = {.stripe_bytes = 1u << 20};

	f = fake_start(NULL);
	start(10);
	cr_assert_eq(ry_put(c, "k", 1, data, 10, &opts, NULL), RY_ERR_BUFFER_TOO_SMALL);
	opts.stripe_bytes = STRIPE + 1;
	cr_assert_eq(ry_put(c, "k", 1, data, 10, &opts, NULL), RY_ERR_INVALID);
	opts.stripe_bytes = STRIPE / 2;
	cr_assert_eq(ry_put(c, "k", 1, data, 10, &opts, NULL), RY_ERR_INVALID);
	cr_assert_eq(ry_put(c, "", 0, data, 10, NULL, NULL), RY_ERR_INVALID);
	cr_assert_eq(fake_count(f, RY_OP_PUT), 0);
	stop();
}

Test(client_put, repeating_an_id_does_not_put_twice)
{
	struct ry_put_opts opts = {.stripe_bytes = STRIPE};
	struct ry_put_result first, again;

	f = fake_start(NULL);
	f->want_lost_answer = true;
	start(100000);
	cr_assert_eq(ry_put(c, "k", 1, data, 100000, &opts, &first), RY_ERR_UNKNOWN_OUTCOME);
	cr_assert(first.put_id[0] | first.put_id[1], "the id is what resolves it");
	cr_assert_eq(ry_put_query(c, "k", 1, first.put_id, 0, &again), RY_OK);
	cr_assert_eq(again.generation, 1);
	cr_assert_eq(again.bytes, 100000);
	memcpy(opts.put_id, first.put_id, sizeof(opts.put_id));
	cr_assert_eq(ry_put(c, "k", 1, data, 100000, &opts, &again), RY_OK);
	cr_assert_eq(again.generation, 1, "it was put a second time");
	cr_assert_eq(again.put_id[0], first.put_id[0]);
	cr_assert_eq(again.put_id[1], first.put_id[1]);
	first.put_id[0]++;
	cr_assert_eq(ry_put_query(c, "k", 1, first.put_id, 0, &again), RY_ERR_NOT_FOUND);
	stop();
}

Test(client_put, ids_differ)
{
	uint64_t a[2], b[2];

	cr_assert_eq(ry_put_id_make(a), RY_OK);
	cr_assert_eq(ry_put_id_make(b), RY_OK);
	cr_assert(a[0] != b[0] || a[1] != b[1]);
}

Test(client_put, if_absent_is_passed_on)
{
	struct ry_put_opts opts = {.stripe_bytes = STRIPE, .flags = RY_F_IF_ABSENT};

	f = fake_start(NULL);
	start(10);
	cr_assert_eq(ry_put(c, "k", 1, data, 10, &opts, NULL), RY_OK);
	cr_assert_eq(ry_put(c, "k", 1, data, 10, &opts, NULL), RY_ERR_EXISTS);
	stop();
}

/* An option that is not understood must not look as if it were kept. */
Test(client_put, flags_of_something_else_are_refused)
{
	static const uint32_t bad[] = {RY_F_PUT_BEGIN, RY_F_PUT_COMMIT, RY_F_FAILOVER, 1u << 20};
	struct ry_put_opts opts = {.stripe_bytes = STRIPE};
	struct ry_put *put;

	f = fake_start(NULL);
	start(10);
	for (unsigned i = 0; i < 4; i++) {
		opts.flags = RY_F_IF_ABSENT | bad[i];
		cr_assert_eq(ry_put(c, "k", 1, data, 10, &opts, NULL), RY_ERR_INVALID, "flags 0x%x", opts.flags);
		cr_assert(strstr(ry_last_cause(c), "flags"), "%s", ry_last_cause(c));
		cr_assert_eq(ry_put_open(c, "k", 1, &opts, &put), RY_ERR_INVALID);
	}
	cr_assert_eq(fake_count(f, RY_OP_PUT), 0);
	stop();
}

Test(client_put, a_stream_of_odd_pieces_arrives_whole)
{
	struct ry_put_opts opts = {.stripe_bytes = STRIPE, .size_bytes = RY_SIZE_UNKNOWN};
	uint64_t bytes = 1700003, n;
	struct ry_put_result result;
	struct ry_put *put;

	f = fake_start(NULL);
	start(bytes);
	cr_assert_eq(ry_put_open(c, "k", 1, &opts, &put), RY_OK);
	for (uint64_t at = 0; at < bytes; at += n) {
		n = at % 7919 + 1 < bytes - at ? at % 7919 + 1 : bytes - at;
		cr_assert_eq(ry_put_write(put, data + at, n), RY_OK);
	}
	cr_assert_eq(ry_put_close(put, true, &result), RY_OK, "%s", ry_last_cause(c));
	cr_assert_eq(result.generation, 1);
	check_object("k", bytes);
	check_parts(bytes, RY_SIZE_UNKNOWN);
	stop();
}

Test(client_put, a_stream_that_ends_with_a_part_commits_with_an_empty_one)
{
	struct ry_put_opts opts = {.stripe_bytes = STRIPE, .size_bytes = RY_SIZE_UNKNOWN};
	uint64_t bytes = 14 * STRIPE; /* two parts of seven stripes */
	struct ry_put *put;

	f = fake_start(NULL);
	start(bytes);
	cr_assert_eq(ry_put_open(c, "k", 1, &opts, &put), RY_OK);
	cr_assert_eq(ry_put_write(put, data, bytes), RY_OK);
	cr_assert_eq(ry_put_close(put, true, NULL), RY_OK, "%s", ry_last_cause(c));
	check_object("k", bytes);
	check_parts(bytes, RY_SIZE_UNKNOWN);
	cr_assert_eq(fake_count(f, RY_OP_PUT), 3);
	cr_assert_eq(fake_nth(f, RY_OP_PUT, 2)->e.length, 0);
	stop();
}

Test(client_put, a_stream_can_be_filled_without_a_copy)
{
	struct ry_put_opts opts = {.stripe_bytes = STRIPE, .size_bytes = 1000000};
	uint64_t at = 0, room;
	struct ry_put *put;
	void *space;

	f = fake_start(NULL);
	start(1000000);
	cr_assert_eq(ry_put_open(c, "k", 1, &opts, &put), RY_OK);
	while (at < 1000000) {
		cr_assert_eq(ry_put_space(put, &space, &room), RY_OK, "%s", ry_last_cause(c));
		cr_assert(room > 0 && room <= 1000000 - at);
		room = room > 100001 ? 100001 : room;
		memcpy(space, data + at, room);
		cr_assert_eq(ry_put_wrote(put, room), RY_OK);
		at += room;
	}
	cr_assert_eq(ry_put_close(put, true, NULL), RY_OK, "%s", ry_last_cause(c));
	check_object("k", 1000000);
	check_parts(1000000, 1000000);
	stop();
}

Test(client_put, an_aborted_stream_tells_the_store)
{
	struct ry_put_opts opts = {.stripe_bytes = STRIPE, .size_bytes = RY_SIZE_UNKNOWN};
	const struct fake_log *last;
	struct ry_put *put;

	f = fake_start(NULL);
	start(800000);
	cr_assert_eq(ry_put_open(c, "k", 1, &opts, &put), RY_OK);
	cr_assert_eq(ry_put_close(put, false, NULL), RY_OK);
	cr_assert_eq(fake_count(f, RY_OP_PUT), 0, "nothing was sent, so there is nothing to abort");
	cr_assert_eq(ry_put_open(c, "k", 1, &opts, &put), RY_OK);
	cr_assert_eq(ry_put_write(put, data, 800000), RY_OK);
	cr_assert_eq(ry_put_close(put, false, NULL), RY_OK);
	last = fake_nth(f, RY_OP_PUT, fake_count(f, RY_OP_PUT) - 1);
	cr_assert_eq(last->e.length, 0);
	cr_assert_eq(last->e.flags, 0);
	cr_assert_eq(last->slot.put_id[0], fake_nth(f, RY_OP_PUT, 0)->slot.put_id[0]);
	cr_assert_null(fake_find(f, "k", 1));
	stop();
}

Test(client_put, the_announced_size_is_kept)
{
	struct ry_put_opts opts = {.stripe_bytes = STRIPE, .size_bytes = 100};
	struct ry_put_result result;
	struct ry_put *put;

	f = fake_start(NULL);
	start(200);
	cr_assert_eq(ry_put_open(c, "k", 1, &opts, &put), RY_OK);
	cr_assert_eq(ry_put_write(put, data, 101), RY_ERR_INVALID);
	cr_assert_eq(ry_put_close(put, true, NULL), RY_ERR_INVALID);
	cr_assert_eq(ry_put_open(c, "k", 1, &opts, &put), RY_OK);
	cr_assert_eq(ry_put_write(put, data, 99), RY_OK);
	cr_assert_eq(ry_put_close(put, true, &result), RY_ERR_INVALID);
	cr_assert_eq(result.generation, 0);
	cr_assert_null(fake_find(f, "k", 1));
	stop();
}

/* Options are zero-initialised, then what matters is set; a size need not. */
Test(client_put, a_size_of_0_announces_nothing)
{
	struct ry_put_opts opts = {.ttl_ns = 1};
	struct ry_put_result result;
	struct ry_put *put;

	f = fake_start(NULL);
	start(100);
	cr_assert_eq(ry_put_open(c, "k", 1, &opts, &put), RY_OK);
	cr_assert_eq(ry_put_write(put, data, 100), RY_OK, "%s", ry_last_cause(c));
	cr_assert_eq(ry_put_close(put, true, &result), RY_OK, "%s", ry_last_cause(c));
	cr_assert_eq(fake_find(f, "k", 1)->bytes, 100);
	cr_assert_eq(ry_put_open(c, "empty", 5, &opts, &put), RY_OK);
	cr_assert_eq(ry_put_close(put, true, &result), RY_OK, "%s", ry_last_cause(c));
	cr_assert_eq(fake_find(f, "empty", 5)->bytes, 0);
	stop();
}

Test(client_put, a_failed_part_fails_the_put_and_frees_its_memory)
{
	struct ry_put_opts opts = {.stripe_bytes = STRIPE};
	uint64_t bytes = 2u << 20;

	f = fake_start(NULL);
	f->fail_at = 2;
	f->fail_status = RY_ERR_NO_SPACE;
	start(bytes);
	cr_assert_eq(ry_put(c, "k", 1, data, bytes, &opts, NULL), RY_ERR_NO_SPACE);
	cr_assert_str_eq(ry_last_cause(c), "fake: status 14");
	cr_assert_eq(ry_put(c, "k", 1, data, bytes, &opts, NULL), RY_OK, "%s", ry_last_cause(c));
	check_object("k", bytes);
	stop();
}

Test(client_put, death_in_a_put_is_one_typed_error)
{
	struct ry_put_opts opts = {.stripe_bytes = STRIPE};
	uint64_t bytes = 2u << 20;

	f = fake_start(NULL);
	f->die_at = 3;
	start(bytes);
	cr_assert_eq(ry_put(c, "k", 1, data, bytes, &opts, NULL), RY_ERR_DETACHED);
	cr_assert_eq(ry_put(c, "k", 1, data, bytes, &opts, NULL), RY_ERR_DETACHED);
	stop();
}

Test(client_put, submitted_puts_share_the_arena_until_it_is_full)
{
	struct ry_request r[4];
	struct ry_completion done[4];
	uint32_t n = 0;

	f = fake_start(NULL);
	cr_assert_eq(fake_attach(f, NULL, cause, &c), RY_OK);
	data = calloc(1, 300000);
	for (unsigned i = 0; i < 4; i++)
		r[i] = (struct ry_request){.op = RY_OP_PUT,
			.key = &"abcd"[i],
			.key_bytes = 1,
			.flags = RY_F_PUT_BEGIN | RY_F_PUT_COMMIT,
			.length = 300000,
			.size_bytes = 300000,
			.data = data,
			.put_id = {i + 1, 1},
			.stripe_bytes = STRIPE};
	cr_assert_eq(ry_submit(c, r, 4), 3);
	cr_assert_eq(r[3].status, RY_ERR_BUDGET);
	fake_serve(f);
	while (n < 3) {
		cr_assert_eq(ry_wait(c, RY_FOREVER), RY_OK);
		n += ry_reap(c, done + n, 4 - n);
	}
	cr_assert_eq(ry_submit(c, r + 3, 1), 1, "the arena was not given back: %s", ry_last_cause(c));
	cr_assert_eq(ry_wait(c, RY_FOREVER), RY_OK);
	cr_assert_eq(ry_reap(c, done + 3, 1), 1);
	for (unsigned i = 0; i < 4; i++) {
		cr_assert_eq(done[i].status, RY_OK, "%s", done[i].cause);
		check_object((char[]){"abcd"[i], 0}, 300000);
	}
	stop();
}

/* Two puts with one id would be one put. */
Test(client_put, a_submitted_put_without_an_id_gets_one_of_its_own)
{
	struct ry_request r = {.op = RY_OP_PUT,
		.key_bytes = 1,
		.flags = RY_F_PUT_BEGIN | RY_F_PUT_COMMIT,
		.length = 10,
		.size_bytes = 10,
		.stripe_bytes = STRIPE};
	const struct fake_log *first, *second;
	struct ry_completion done;

	f = fake_start(NULL);
	start(10);
	r.data = data;
	for (unsigned i = 0; i < 2; i++) {
		r.key = &"ab"[i];
		cr_assert_eq(ry_submit(c, &r, 1), 1, "%s", ry_last_cause(c));
		cr_assert_eq(ry_wait(c, RY_FOREVER), RY_OK);
		cr_assert_eq(ry_reap(c, &done, 1), 1);
		cr_assert_eq(done.status, RY_OK, "%s", done.cause);
	}
	check_object("a", 10);
	check_object("b", 10);
	first = fake_nth(f, RY_OP_PUT, 0);
	second = fake_nth(f, RY_OP_PUT, 1);
	cr_assert(first->slot.put_id[0] | first->slot.put_id[1]);
	cr_assert_neq(memcmp(first->slot.put_id, second->slot.put_id, sizeof(first->slot.put_id)), 0);
	cr_assert_eq(r.put_id[0] | r.put_id[1], 0, "a request that is used again must not repeat the id");
	r.flags = RY_F_PUT_BEGIN;
	cr_assert_eq(ry_submit(c, &r, 1), 0, "the next part could not name it");
	cr_assert_eq(r.status, RY_ERR_INVALID);
	r.op = RY_OP_PUT_QUERY;
	r.flags = 0;
	cr_assert_eq(ry_submit(c, &r, 1), 0);
	cr_assert_eq(r.status, RY_ERR_INVALID);
	stop();
}

static struct ry_sqe put_part(uint64_t bytes)
{
	struct ry_request r = {.op = RY_OP_PUT,
		.key = "k",
		.key_bytes = 1,
		.flags = RY_F_PUT_BEGIN | RY_F_PUT_COMMIT,
		.length = bytes,
		.size_bytes = bytes,
		.data = data};
	struct ry_sqe e;

	cr_assert_eq(ry_submit(c, &r, 1), 1, "%s", ry_last_cause(c));
	cr_assert(fake_take(f, &e));
	return e;
}

Test(client_put, parts_in_flight_do_not_overlap_and_gaps_are_used_again)
{
	struct ry_completion done;
	struct ry_sqe b, after, large, small;

	f = fake_start(NULL);
	cr_assert_eq(fake_attach(f, NULL, cause, &c), RY_OK);
	data = calloc(1, 200000);
	cr_assert_eq(put_part(200000).arg, 0);
	b = put_part(100000);
	after = put_part(200000);
	cr_assert_geq(b.arg, 200000);
	cr_assert_geq(after.arg, b.arg + 100000);
	fake_answer(f, &b, RY_OK, 0);
	cr_assert_eq(ry_reap(c, &done, 1), 1);
	large = put_part(150000);
	cr_assert_geq(large.arg, after.arg + 200000, "it does not fit the gap");
	small = put_part(100000);
	cr_assert_eq(small.arg, b.arg, "the gap fits exactly");
	stop();
}
