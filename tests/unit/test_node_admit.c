/* SPDX-License-Identifier: BSD-3-Clause */
/* Admission under load, `admission: queue`: order, turns, waits and how they end. A node in virtual time. */
#include <criterion/criterion.h>

#include <stdlib.h>

#include "read/control_priv.h"
#include "rig.h"

#define MIB (1u << 20)
#define MS 1000000ull
#define READS_MAX 512
#define LARGEST 4u /* MiB; objects "1" to "4" have as many MiB */
/* 100 MB/s: a MiB takes 10.5 ms. */
#define BANDWIDTH 50000000u
#define MIB_NS (MIB * 1000000000ull / (2 * BANDWIDTH))

struct read {
	struct client *client;
	unsigned mib;
	uint64_t ticket;
	uint64_t asked_ns;
	uint64_t done_ns; /* 0 = not yet */
	uint32_t status;
	unsigned place; /* among those that are done, from 0 */
	char cause[RY_CAUSE_MAX_BYTES];
};

static struct rig rig;
static struct client *clients[3];
static struct read reads[READS_MAX];
static unsigned n_reads, n_done;
static uint8_t *data[LARGEST + 1];

static void open_node(void (*configure)(struct config *c))
{
	static const char *const keys[] = {"", "1", "2", "3", "4"};

	rig_init(&rig, 2, BANDWIDTH);
	rig.config.admission = ADMISSION_QUEUE;
	rig.config.inflight_max_bytes = rig.config.client_inflight_max_bytes = 4 * MIB;
	if (configure)
		configure(&rig.config);
	rig_start(&rig);
	for (unsigned i = 1; i <= LARGEST; i++)
		data[i] = rig_object(&rig, keys[i], (uint64_t)i * MIB, i);
	clients[0] = rig.client;
	for (unsigned i = 1; i < 3; i++)
		clients[i] = rig_attach(&rig, rig.config.read_arena_bytes);
	for (unsigned i = 1; i <= LARGEST; i++) { /* into the cache */
		struct ry_sqe lookup = {.op = RY_OP_LOOKUP};

		cr_assert_eq(
			rig_wait(&rig, rig.client, rig_submit(&rig, rig.client, lookup, keys[i], 1)).status, RY_OK);
	}
}

/* At the end of every test: nothing is charged or waits any more. */
static void close_node(void)
{
	cr_expect(rig_settle(&rig));
	cr_expect_eq(rig.node->control->n_admit_waiting, 0);
	cr_expect_null(rig.node->control->admit_stop[ADMIT_PLACE]);
	cr_expect_null(rig.node->control->admit_stop[ADMIT_BYTES]);
	for (unsigned i = 1; i < 3; i++)
		rig_detach(&rig, clients[i]);
	rig_stop(&rig);
	for (unsigned i = 1; i <= LARGEST; i++)
		free(data[i]);
}

static struct read *ask_until(unsigned client, unsigned mib, uint64_t deadline_ns)
{
	struct read *r = &reads[n_reads++];
	char key[2] = {(char)('0' + mib), 0};

	cr_assert_leq(n_reads, READS_MAX);
	*r = (struct read){.client = clients[client], .mib = mib, .asked_ns = rig.now_ns};
	r->ticket = rig_submit_read(&rig, r->client, key, 0, UINT64_MAX, 0, deadline_ns);
	return r;
}

static struct read *ask(unsigned client, unsigned mib)
{
	return ask_until(client, mib, 0);
}

static void done(struct client *cl, const struct ry_cqe *cqe)
{
	struct read *r = reads;

	while (r < reads + n_reads && r->ticket != cqe->ticket)
		r++;
	cr_assert_lt(r, reads + n_reads);
	r->done_ns = rig.now_ns;
	r->status = cqe->status;
	r->place = n_done++;
	memcpy(r->cause, rig_slot(cl, cqe)->cause, sizeof(r->cause));
	if (cqe->status != RY_OK)
		return;
	cr_expect(rig_same(cl, cqe, data[r->mib], (uint64_t)r->mib * MIB));
	rig_release(&rig, cl, cqe->lease_id);
}

static void step(void)
{
	struct ry_cqe cqe;

	rig_step(&rig);
	for (unsigned i = 0; i < 3; i++) {
		while (clients[i] && rig_reap(&rig, clients[i], &cqe))
			done(clients[i], &cqe);
	}
}

static void run(uint64_t ns)
{
	for (uint64_t end = rig.now_ns + ns; rig.now_ns < end;)
		step();
}

static void run_until_done(unsigned n)
{
	for (uint64_t end = rig.now_ns + 30000 * MS; n_done < n;) {
		cr_assert_lt(rig.now_ns, end, "a read waits for ever");
		step();
	}
}

static void wait_for(const struct read *r)
{
	for (uint64_t end = rig.now_ns + 30000 * MS; !r->done_ns;) {
		cr_assert_lt(rig.now_ns, end, "a read waits for ever");
		step();
	}
}

static unsigned n_ok_of(unsigned client)
{
	unsigned n = 0;

	for (unsigned i = 0; i < n_reads; i++)
		n += reads[i].client == clients[client] && reads[i].done_ns && reads[i].status == RY_OK;
	return n;
}

/* It ended with this status so long after it was asked for; housekeeping sees to waits every so often. */
static void expect_end(const struct read *r, uint32_t status, uint64_t after_ns)
{
	cr_expect_eq(r->status, status, "%u: %s", r->status, r->cause);
	cr_expect_geq(r->done_ns - r->asked_ns, after_ns);
	cr_expect_leq(r->done_ns - r->asked_ns, after_ns + HOUSEKEEPING_NS + 4 * RIG_STEP_NS, "%lu ns late",
		(unsigned long)(r->done_ns - r->asked_ns - after_ns));
}

static void one_mib(struct config *c)
{
	c->inflight_max_bytes = c->client_inflight_max_bytes = MIB;
}

Test(node_admit, reads_of_a_client_keep_their_order)
{
	open_node(one_mib);
	for (unsigned i = 0; i < 6; i++)
		ask(0, 1);
	run_until_done(6);
	for (unsigned i = 0; i < 6; i++) {
		cr_expect_eq(reads[i].status, RY_OK, "%s", reads[i].cause);
		cr_expect_eq(reads[i].place, i);
	}
	close_node();
}

static void one_read(struct config *c)
{
	c->client_max_reads = 1;
}

Test(node_admit, those_that_wait_for_a_place_keep_their_order_too)
{
	open_node(one_read);
	for (unsigned i = 0; i < 6; i++)
		ask(0, i % 3 + 1);
	run_until_done(6);
	for (unsigned i = 0; i < 6; i++) {
		cr_expect_eq(reads[i].status, RY_OK, "%s", reads[i].cause);
		cr_expect_eq(reads[i].place, i);
	}
	close_node();
}

static void one_read_of_all(struct config *c)
{
	c->max_reads = 1;
}

/* It never had bytes, and so gives none back. */
Test(node_admit, who_ends_before_it_has_bytes_lets_the_next_one_in)
{
	open_node(one_read_of_all);
	ask(0, LARGEST + 1); /* there is no such object */
	ask(1, 1);
	run_until_done(2);
	cr_expect_eq(reads[0].status, RY_ERR_NOT_FOUND, "%s", reads[0].cause);
	cr_expect_eq(reads[1].status, RY_OK, "%s", reads[1].cause);
	cr_expect_lt(reads[1].done_ns - reads[0].done_ns, 100 * MS);
	close_node();
}

/* The cached descriptors are out of date: the next read asks the store again. */
static void forget_descriptors(void)
{
	for (unsigned i = 0; i < rig.node->control->n_descs; i++)
		rig.node->control->descs[i].expires_ns = rig.now_ns;
}

/* All of them have their place already, and wait for bytes together. */
Test(node_admit, those_that_were_looked_up_together_keep_their_order)
{
	open_node(one_mib);
	forget_descriptors();
	for (unsigned i = 0; i < 6; i++)
		ask(0, 1);
	run(MS);
	cr_expect_eq(rig.node->control->inflight_reads, 6);
	cr_expect_eq(rig.node->control->n_admit_waiting, 5);
	run_until_done(6);
	for (unsigned i = 0; i < 6; i++) {
		cr_expect_eq(reads[i].status, RY_OK, "%s", reads[i].cause);
		cr_expect_eq(reads[i].place, i);
	}
	close_node();
}

/* The first of two is looked up while the second waits for its place: it must not stand behind the second. */
Test(node_admit, a_read_does_not_wait_for_one_that_waits_for_it)
{
	struct read *first, *second;

	open_node(one_read);
	forget_descriptors();
	first = ask(0, 1);
	second = ask(0, 1);
	wait_for(second);
	cr_expect_eq(first->status, RY_OK, "%s", first->cause);
	cr_expect_eq(second->status, RY_OK, "%s", second->cause);
	cr_expect_lt(first->place, second->place);
	cr_expect_lt(second->done_ns - second->asked_ns, 100 * MS);
	close_node();
}

/* The budget is taken while client c asks for eight reads of sizes[c] MiB each: from then on shares are equal. */
static void expect_turns(const unsigned sizes[3])
{
	ask(0, (unsigned)(rig.config.inflight_max_bytes / MIB));
	run(MS);
	for (unsigned client = 0; client < 3; client++) {
		for (unsigned i = 0; i < 8; i++)
			ask(client, sizes[client]);
	}
	for (unsigned n_each = 2; n_each <= 5; n_each += 3) {
		run_until_done(1 + 3 * n_each);
		for (unsigned i = 0; i < 3; i++) {
			unsigned n = n_ok_of(i) - (i == 0);

			cr_expect_geq(n, n_each - 1, "client %u: %u of %u", i, n, 3 * n_each);
			cr_expect_leq(n, n_each + 1, "client %u: %u of %u", i, n, 3 * n_each);
		}
	}
	run_until_done(25);
	for (unsigned i = 0; i < n_reads; i++)
		cr_expect_eq(reads[i].status, RY_OK, "%s", reads[i].cause);
}

static void two_mib(struct config *c)
{
	c->inflight_max_bytes = c->client_inflight_max_bytes = 2 * MIB;
}

Test(node_admit, clients_take_turns)
{
	open_node(two_mib);
	expect_turns((const unsigned[]){1, 1, 1});
	close_node();
}

Test(node_admit, clients_take_turns_for_places)
{
	open_node(NULL);
	rig.node->control->limits.max_reads = 1;
	expect_turns((const unsigned[]){1, 1, 1});
	close_node();
}

/* Turns are reads, whatever their size. */
Test(node_admit, clients_take_turns_when_their_reads_are_unequal)
{
	open_node(NULL);
	expect_turns((const unsigned[]){1, 2, 3});
	close_node();
}

/* As many small reads as fit, always, by two clients; and one that needs the whole budget. */
Test(node_admit, small_reads_do_not_starve_a_large_one)
{
	struct read *large = NULL, *small[4];
	unsigned before = 0;

	open_node(NULL);
	for (unsigned i = 0; i < 4; i++)
		small[i] = ask(1 + i % 2, 1);
	for (unsigned turns = 0; !large || !large->done_ns; turns++) {
		if (turns == 4000) {
			before = n_done;
			large = ask(0, 4);
		}
		cr_assert_lt(n_reads, READS_MAX - 8, "it starves");
		step();
		for (unsigned i = 0; i < 4; i++) {
			if (small[i]->done_ns)
				small[i] = ask(1 + i % 2, 1);
		}
	}
	cr_expect_gt(before, 0);
	cr_expect_eq(large->status, RY_OK, "%s", large->cause);
	cr_expect_leq(large->place - before, 4, "no more than were under way: %u", large->place - before);
	run_until_done(n_reads);
	for (unsigned i = 0; i < n_reads; i++)
		cr_expect_eq(reads[i].status, RY_OK, "%s", reads[i].cause);
	close_node();
}

static void small_share(struct config *c)
{
	c->client_inflight_max_bytes = 2 * MIB;
}

/* Who only its own budget holds back holds nobody else back. */
Test(node_admit, a_full_client_does_not_stop_the_line)
{
	struct read *other;

	open_node(small_share);
	for (unsigned i = 0; i < 4; i++)
		ask(0, 2);
	wait_for(&reads[0]);
	other = ask(1, 2);
	run(MS);
	cr_expect_eq(rig.node->control->inflight_bytes, 4 * MIB);
	wait_for(other);
	cr_expect_eq(other->status, RY_OK);
	cr_expect_leq(other->place, 2, "beside the second of the full client");
	run_until_done(5);
	close_node();
}

/* A place is free, and before anybody was let in one more read comes. */
Test(node_admit, who_comes_later_stands_behind)
{
	struct limits l;
	struct read *waits, *later;

	open_node(NULL);
	rig.node->control->limits.max_reads = 1;
	ask(0, 2);
	waits = ask(1, 1);
	run(MS);
	l = rig.node->control->limits;
	l.max_reads = 2;
	admit_set_limits(rig.node->control, &l);
	later = ask(2, 1);
	run(MS);
	cr_expect_eq(rig.node->control->n_admit_waiting, 1);
	run_until_done(3);
	cr_expect_lt(waits->place, later->place);
	close_node();
}

static void short_wait(struct config *c)
{
	c->admission_wait_ns = 10 * MS;
}

Test(node_admit, a_wait_ends_with_budget)
{
	struct read *held, *waits;

	open_node(short_wait);
	held = ask(0, 4);
	waits = ask(1, 4);
	wait_for(waits);
	expect_end(waits, RY_ERR_BUDGET, 10 * MS);
	cr_expect_not_null(strstr(waits->cause, "4194304 bytes do not fit"), "%s", waits->cause);
	cr_expect_eq(held->done_ns, 0);
	wait_for(held);
	cr_expect_eq(held->status, RY_OK);
	close_node();
}

/* Behind a read that stops the line, with room for itself: until that one gives up, no longer. */
Test(node_admit, a_line_goes_on_when_its_first_gives_up)
{
	struct read *held, *stops, *behind;

	open_node(short_wait);
	held = ask(0, 3);
	stops = ask(1, 4);
	run(5 * MS);
	behind = ask(2, 1);
	run(4 * MS);
	cr_expect_eq(rig.node->control->n_admit_waiting, 2, "it would fit, but it came later");
	wait_for(stops);
	expect_end(stops, RY_ERR_BUDGET, 10 * MS);
	run(MS);
	cr_expect_eq(rig.node->control->n_admit_waiting, 0);
	wait_for(behind);
	cr_expect_eq(behind->status, RY_OK, "%s", behind->cause);
	wait_for(held);
	cr_expect_eq(held->status, RY_OK);
	close_node();
}

static void two_waits(struct config *c)
{
	c->admission_wait_ns = 30 * MS;
}

/* First for its place, for two thirds of the time, then for its bytes. */
Test(node_admit, two_waits_have_one_end)
{
	struct read *large, *small, *waits;

	open_node(two_waits);
	rig.node->control->limits.max_reads = 2;
	large = ask(0, 4);
	run(MS);
	small = ask_until(1, 1, rig.now_ns + 20 * MS); /* has a place, gets no bytes */
	run(MS);
	waits = ask(2, 4);
	run(15 * MS);
	cr_expect_eq(rig.node->control->inflight_reads, 2);
	wait_for(small);
	cr_expect_eq(small->status, RY_ERR_TIMEOUT);
	run(MS);
	cr_expect_eq(rig.node->control->inflight_reads, 2, "it has its place now");
	wait_for(waits);
	expect_end(waits, RY_ERR_BUDGET, 30 * MS);
	cr_expect_not_null(strstr(waits->cause, "bytes do not fit"), "%s", waits->cause);
	wait_for(large);
	cr_expect_eq(large->status, RY_OK);
	close_node();
}

Test(node_admit, a_deadline_before_the_end_of_the_wait_is_a_timeout)
{
	struct read *held, *early, *second, *late;

	open_node(short_wait);
	held = ask(0, 4);
	early = ask_until(1, 1, rig.now_ns + 5 * MS);
	second = ask_until(1, 1, rig.now_ns + 7 * MS);
	late = ask_until(2, 1, rig.now_ns + 15 * MS);
	wait_for(late);
	expect_end(early, RY_ERR_TIMEOUT, 5 * MS);
	expect_end(second, RY_ERR_TIMEOUT, 7 * MS);
	expect_end(late, RY_ERR_BUDGET, 10 * MS);
	wait_for(held);
	close_node();
}

static void short_queue(struct config *c)
{
	c->admission_queue_max = 2;
}

Test(node_admit, a_full_queue_refuses_at_once)
{
	struct read *refused;

	open_node(short_queue);
	ask(0, 4);
	ask(1, 4);
	ask(1, 4);
	refused = ask(2, 4);
	wait_for(refused);
	expect_end(refused, RY_ERR_BUDGET, 0);
	cr_expect_not_null(strstr(refused->cause, "reader.admission_queue"), "%s", refused->cause);
	run_until_done(4);
	for (unsigned i = 0; i < 3; i++)
		cr_expect_eq(reads[i].status, RY_OK, "%s", reads[i].cause);
	close_node();
}

Test(node_admit, cancel_takes_a_read_out_of_the_queue)
{
	struct read *cancelled, *behind, *other;

	open_node(NULL);
	ask(0, 3);
	cancelled = ask(1, 4);
	behind = ask(1, 1);
	other = ask(2, 1);
	run(MS);
	cr_expect_eq(rig.node->control->n_admit_waiting, 3);
	rig_cancel(&rig, clients[1], cancelled->ticket);
	run(MS);
	cr_expect_eq(cancelled->status, RY_ERR_CANCELLED);
	cr_expect_eq(rig.node->control->n_admit_waiting, 1, "one of those behind it fits");
	run_until_done(4);
	cr_expect_eq(behind->status, RY_OK);
	cr_expect_eq(other->status, RY_OK);
	close_node();
}

Test(node_admit, a_client_that_leaves_takes_its_reads_along)
{
	struct read *other;

	open_node(NULL);
	ask(0, 3);
	ask(1, 4);
	ask(1, 4);
	other = ask(2, 1);
	run(MS);
	cr_expect_eq(rig.node->control->n_admit_waiting, 3);
	cr_expect(rig_detach(&rig, clients[1]));
	clients[1] = NULL;
	run(MS);
	cr_expect_eq(rig.node->control->n_admit_waiting, 0);
	wait_for(other);
	cr_expect_eq(other->status, RY_OK, "%s", other->cause);
	run_until_done(2);
	close_node();
}

/* Below what is out: what is out ends well, what waits and may fit one day waits on, what never fits is told so. */
Test(node_admit, limits_are_lowered_while_reads_wait)
{
	struct limits l;
	struct read *out, *small, *large, *later;

	open_node(NULL);
	out = ask(0, 4);
	small = ask(1, 1);
	large = ask(2, 2);
	run(MS);
	cr_expect_eq(rig.node->control->n_admit_waiting, 2);
	l = rig.node->control->limits;
	l.inflight_max_bytes = l.client_inflight_max_bytes = MIB;
	admit_set_limits(rig.node->control, &l);
	later = ask(2, 1);
	run(MS);
	cr_expect_eq(large->status, RY_ERR_BUDGET);
	cr_expect_not_null(strstr(large->cause, "read by range"), "%s", large->cause);
	cr_expect_eq(rig.node->control->n_admit_waiting, 2);
	run_until_done(4);
	cr_expect_eq(out->status, RY_OK, "%s", out->cause);
	cr_expect_eq(small->status, RY_OK, "%s", small->cause);
	cr_expect_eq(later->status, RY_OK, "%s", later->cause);
	cr_expect_lt(out->place, small->place);
	cr_expect_lt(small->place, later->place, "one at a time");
	cr_expect_geq(later->done_ns - small->done_ns, MIB_NS / 2);
	close_node();
}
