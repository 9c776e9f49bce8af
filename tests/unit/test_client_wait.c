/* SPDX-License-Identifier: BSD-3-Clause */
/* Waiting for completions: spinning first, then sleeping; the test plays the daemon on a second thread. */
#include "fake_daemon.h"

#include <criterion/criterion.h>

#include <sched.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#define MS 1000000ull
#define FOR_EVER (3600ull * 1000 * MS)

static struct fake *f;
static struct ry_client *c;
static struct ry_sqe asked;
static struct ry_completion done[4];

TestSuite(client_wait, .timeout = 20);

static void start(uint64_t spin_ns)
{
	struct ry_attach_opts opts = {.spin_ns = spin_ns};
	struct ry_request r = {.op = RY_OP_LOOKUP, .key = "k", .key_bytes = 1};
	char cause[RY_CAUSE_MAX_BYTES];

	f = fake_start(NULL);
	cr_assert_eq(fake_attach(f, &opts, cause, &c), RY_OK, "%s", cause);
	cr_assert_eq(ry_submit(c, &r, 1), 1u, "%s", ry_last_cause(c));
	cr_assert(fake_take(f, &asked));
}

static void stop(void)
{
	ry_detach(c);
	fake_stop(f);
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void run_beside(void *(*body)(void *), pthread_t *t)
{
	cr_assert_eq(pthread_create(t, NULL, body, NULL), 0);
}

static void *answer(void *arg)
{
	sched_yield();
	fake_answer(f, &asked, RY_OK, 0);
	return arg;
}

static void *answer_a_sleeper(void *arg)
{
	while (!__atomic_load_n(&f->cq_index->need_wakeup, __ATOMIC_RELAXED))
		sched_yield();
	fake_answer(f, &asked, RY_OK, 0);
	return arg;
}

/* More completions than the ring holds. */
static void *overrun(void *arg)
{
	sched_yield();
	__atomic_store_n(&f->cq_index->tail, f->cq_tail + 1000, __ATOMIC_RELEASE);
	return arg;
}

Test(client_wait, a_spinning_client_need_not_be_woken)
{
	pthread_t t;

	start(FOR_EVER);
	run_beside(answer, &t);
	cr_assert_eq(ry_wait(c, RY_FOREVER), RY_OK);
	pthread_join(t, NULL);
	cr_assert_eq(f->n_kicks, 0u);
	cr_assert_eq(ry_reap(c, done, 4), 1u);
	cr_assert_eq(done[0].status, RY_OK);
	stop();
}

Test(client_wait, after_its_time_it_sleeps)
{
	pthread_t t;

	start(MS);
	run_beside(answer_a_sleeper, &t);
	cr_assert_eq(ry_wait(c, RY_FOREVER), RY_OK);
	pthread_join(t, NULL);
	cr_assert_eq(f->n_kicks, 1u);
	cr_assert_eq(ry_reap(c, done, 4), 1u);
	stop();
}

Test(client_wait, spinning_ends_with_the_time_out)
{
	uint64_t start_ns, took_ns;

	start(FOR_EVER);
	start_ns = now_ns();
	cr_assert_eq(ry_wait(c, 5 * MS), RY_ERR_TIMEOUT);
	took_ns = now_ns() - start_ns;
	cr_assert_geq(took_ns, 5 * MS);
	fake_answer(f, &asked, RY_OK, 0);
	cr_assert_eq(ry_wait(c, 5 * MS), RY_OK);
	stop();
}

Test(client_wait, spinning_ends_with_the_daemon)
{
	pthread_t t;

	start(FOR_EVER);
	run_beside(overrun, &t);
	ry_wait(c, RY_FOREVER);
	pthread_join(t, NULL);
	cr_assert_eq(ry_reap(c, done, 4), 1u);
	cr_assert_eq(done[0].status, RY_ERR_PROTOCOL, "%s", done[0].cause);
	stop();
}

/* A time-out that passes while it sleeps is told, and it is no longer announced as asleep. */
Test(client_wait, sleeping_ends_with_the_time_out)
{
	start(0);
	cr_assert_eq(ry_wait(c, 20 * MS), RY_ERR_TIMEOUT);
	cr_assert_eq(f->cq_index->need_wakeup, 0u);
	fake_answer(f, &asked, RY_OK, 0);
	cr_assert_eq(f->n_kicks, 0u);
	cr_assert_eq(ry_wait(c, RY_FOREVER), RY_OK);
	stop();
}

Test(client_wait, a_sleeper_learns_of_death)
{
	start(0);
	fake_hang_up(f);
	cr_assert_eq(ry_wait(c, RY_FOREVER), RY_OK, "there is something to reap");
	cr_assert_eq(ry_reap(c, done, 4), 1u);
	cr_assert_eq(done[0].status, RY_ERR_DETACHED);
	stop();
}

/* What is written before the end says why; lines of another kind do not. */
Test(client_wait, the_daemon_s_last_word_is_passed_on)
{
	static const char other[] = "{\"jsonrpc\":\"2.0\",\"id\":9,\"result\":{}}\n";
	static const char word[] = "{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32017,\"message\":"
				   "\"the ring makes no sense\",\"data\":{\"status\":\"PROTOCOL\"}}}\n";
	struct ry_object object;

	start(0);
	cr_assert_eq(send(f->socket_fd, other, strlen(other), MSG_NOSIGNAL), (ssize_t)strlen(other));
	cr_assert_eq(ry_wait(c, MS), RY_ERR_TIMEOUT);
	cr_assert_eq(send(f->socket_fd, word, strlen(word), MSG_NOSIGNAL), (ssize_t)strlen(word));
	fake_hang_up(f);
	cr_assert_eq(ry_wait(c, RY_FOREVER), RY_OK);
	cr_assert_eq(ry_reap(c, done, 4), 1u);
	cr_assert_eq(done[0].status, RY_ERR_PROTOCOL);
	cr_assert_str_eq(done[0].cause, "detached: the ring makes no sense");
	cr_assert_eq(ry_lookup(c, "k", 1, 0, &object), RY_ERR_PROTOCOL);
	cr_assert_str_eq(ry_last_cause(c), "detached: the ring makes no sense");
	stop();
}
