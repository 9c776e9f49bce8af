/* SPDX-License-Identifier: BSD-3-Clause */
/* Arguments that librailyard refuses before anything is asked of the daemon. */
#include "fake_daemon.h"

#include <criterion/criterion.h>

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

static void stop(void)
{
	ry_detach(c);
	fake_stop(f);
}

static bool swallow(void *arg, const void *data, uint64_t bytes, uint64_t offset)
{
	return true;
}

static bool unlisted(void *arg, const void *key, uint16_t key_bytes, uint64_t size_bytes, uint64_t generation)
{
	return true;
}

TestSuite(client_args, .timeout = 20);

/* A caller's slip is a status, not a crash. */
Test(client_args, a_null_pointer_is_refused)
{
	struct ry_put_opts opts = {.stripe_bytes = 65536, .size_bytes = RY_SIZE_UNKNOWN};
	uint64_t n, id[2] = {1, 1};
	struct ry_put *put;
	char byte;
	void *space;

	f = fake_start(NULL);
	start();
	cr_assert_eq(ry_attach(NULL, NULL), RY_ERR_INVALID);
	cr_assert_eq(ry_lookup(c, "k", 1, 0, NULL), RY_ERR_INVALID);
	cr_assert_eq(ry_read(c, "k", 1, NULL, NULL, NULL), RY_ERR_INVALID);
	cr_assert(strstr(ry_last_cause(c), "lease"), "%s", ry_last_cause(c));
	cr_assert_eq(ry_read_copy(c, "k", 1, NULL, &byte, 1, NULL, NULL), RY_ERR_INVALID);
	cr_assert_eq(ry_read_copy(c, "k", 1, NULL, NULL, 1, &n, NULL), RY_ERR_INVALID);
	cr_assert_eq(ry_stream_read(c, "k", 1, NULL, 0, NULL, NULL, NULL), RY_ERR_INVALID);
	cr_assert_eq(ry_list(c, NULL, 0, 0, NULL, NULL), RY_ERR_INVALID);
	cr_assert_eq(ry_list(c, NULL, 1, 0, NULL, NULL), RY_ERR_INVALID);
	cr_assert_eq(ry_put(c, "k", 1, NULL, 1, NULL, NULL), RY_ERR_INVALID);
	cr_assert_eq(ry_put_open(c, "k", 1, NULL, NULL), RY_ERR_INVALID);
	cr_assert_eq(ry_put_query(c, "k", 1, NULL, 0, NULL), RY_ERR_INVALID);
	cr_assert_eq(ry_put_query(c, NULL, 1, id, 0, NULL), RY_ERR_INVALID);
	cr_assert_eq(ry_put_id_make(NULL), RY_ERR_INVALID);
	cr_assert_eq(ry_put_write(NULL, &byte, 1), RY_ERR_INVALID);
	cr_assert_eq(ry_put_space(NULL, &space, &n), RY_ERR_INVALID);
	cr_assert_eq(ry_put_wrote(NULL, 1), RY_ERR_INVALID);
	cr_assert_eq(ry_put_close(NULL, true, NULL), RY_ERR_INVALID);
	cr_assert_eq(ry_submit(c, NULL, 1), 0);
	cr_assert_eq(ry_reap(c, NULL, 1), 0);
	cr_assert_eq(ry_event_fd(NULL), -1);
	ry_lease_release(c, NULL);
	ry_client_get_info(c, NULL);
	cr_assert_eq(ry_lease_copy(NULL, &byte), RY_ERR_INVALID);
	cr_assert_eq(ry_lease_copy(&(struct ry_lease){.bytes = 1, .n_spans = 1}, NULL), RY_ERR_INVALID);
	cr_assert_eq(ry_lease_copy(&(struct ry_lease){0}, NULL), RY_OK, "nothing to copy");
	cr_assert_eq(ry_put_open(c, "k", 1, &opts, &put), RY_OK);
	cr_assert_eq(ry_put_write(put, NULL, 1), RY_ERR_INVALID);
	cr_assert_eq(ry_put_close(put, true, NULL), RY_ERR_INVALID);
	cr_assert_eq(ry_put_open(c, "k", 1, &opts, &put), RY_OK);
	cr_assert_eq(ry_put_space(put, NULL, &n), RY_ERR_INVALID);
	cr_assert_eq(ry_put_close(put, false, NULL), RY_ERR_INVALID);
	cr_assert_eq(fake_count(f, RY_OP_READ) + fake_count(f, RY_OP_PUT), 0);
	stop();
}

Test(client_args, no_client_is_refused)
{
	struct ry_request request = {.op = RY_OP_LOOKUP, .key = "k", .key_bytes = 1};
	struct ry_completion completion;
	uint64_t n, id[2] = {1, 1};
	struct ry_client_info info;
	struct ry_object object;
	struct ry_lease lease = {.id = 1};
	struct ry_put *put;
	char byte = 0;

	cr_assert_eq(ry_lookup(NULL, "k", 1, 0, &object), RY_ERR_INVALID);
	cr_assert_eq(ry_read(NULL, "k", 1, NULL, &lease, NULL), RY_ERR_INVALID);
	cr_assert_eq(ry_read_copy(NULL, "k", 1, NULL, &byte, 1, &n, NULL), RY_ERR_INVALID);
	cr_assert_eq(ry_stream_read(NULL, "k", 1, NULL, 0, swallow, NULL, NULL), RY_ERR_INVALID);
	cr_assert_eq(ry_put(NULL, "k", 1, &byte, 1, NULL, NULL), RY_ERR_INVALID);
	cr_assert_eq(ry_put_open(NULL, "k", 1, NULL, &put), RY_ERR_INVALID);
	cr_assert_eq(ry_put_query(NULL, "k", 1, id, 0, NULL), RY_ERR_INVALID);
	cr_assert_eq(ry_delete(NULL, "k", 1, 0, 0, NULL), RY_ERR_INVALID);
	cr_assert_eq(ry_list(NULL, NULL, 0, 0, unlisted, NULL), RY_ERR_INVALID);
	cr_assert_eq(ry_wait(NULL, 0), RY_ERR_INVALID);
	cr_assert_eq(ry_cancel(NULL, 1), RY_ERR_INVALID);
	cr_assert_eq(ry_submit(NULL, &request, 1), 0);
	cr_assert_eq(request.status, RY_ERR_INVALID);
	cr_assert_eq(ry_reap(NULL, &completion, 1), 0);
	cr_assert(!ry_event_arm(NULL));
	cr_assert_str_eq(ry_last_cause(NULL), "");
	ry_client_get_info(NULL, &info);
	ry_lease_release(NULL, &lease);
	ry_detach(NULL);
}

Test(client_args, failover_and_fail_contradict_each_other)
{
	struct ry_read_opts opts = {.length = RY_TO_END, .flags = RY_F_FAILOVER | RY_F_FAIL};
	struct ry_request request = {
		.op = RY_OP_READ, .key = "k", .key_bytes = 1, .length = 1, .flags = RY_F_FAILOVER | RY_F_FAIL};
	struct ry_lease lease;
	uint64_t bytes;
	char buffer[10];

	f = fake_start(NULL);
	fake_add(f, "k", 10, STRIPE);
	start();
	cr_assert_eq(ry_read(c, "k", 1, &opts, &lease, NULL), RY_ERR_INVALID);
	cr_assert(strstr(ry_last_cause(c), "RY_F_FAILOVER and RY_F_FAIL"), "%s", ry_last_cause(c));
	cr_assert_eq(ry_read_copy(c, "k", 1, &opts, buffer, 10, &bytes, NULL), RY_ERR_INVALID);
	cr_assert_eq(ry_stream_read(c, "k", 1, &opts, 0, swallow, NULL, NULL), RY_ERR_INVALID);
	cr_assert_eq(ry_submit(c, &request, 1), 0);
	cr_assert_eq(request.status, RY_ERR_INVALID);
	cr_assert_eq(f->n_log, 0, "nothing was asked for");
	opts.flags = RY_F_FAIL;
	cr_assert_eq(ry_read(c, "k", 1, &opts, &lease, NULL), RY_OK);
	ry_lease_release(c, &lease);
	stop();
}

Test(client_args, flags_of_something_else_are_refused)
{
	struct ry_read_opts opts = {.length = RY_TO_END, .flags = RY_F_ONE_RAIL | RY_F_IF_ABSENT};
	struct ry_lease lease;
	uint64_t bytes;
	char buffer[4];

	f = fake_start(NULL);
	fake_add(f, "empty", 0, STRIPE);
	start();
	cr_assert_eq(ry_read(c, "empty", 5, &opts, &lease, NULL), RY_ERR_INVALID);
	cr_assert(strstr(ry_last_cause(c), "flags"), "%s", ry_last_cause(c));
	cr_assert_eq(ry_read_copy(c, "empty", 5, &opts, buffer, 4, &bytes, NULL), RY_ERR_INVALID);
	cr_assert_eq(ry_stream_read(c, "empty", 5, &opts, 0, swallow, NULL, NULL), RY_ERR_INVALID);
	opts.flags = RY_F_ONE_RAIL | RY_F_FAIL | RY_F_ALLOW_UNVERIFIED;
	cr_assert_eq(ry_stream_read(c, "empty", 5, &opts, 0, swallow, NULL, NULL), RY_OK);
	stop();
}
