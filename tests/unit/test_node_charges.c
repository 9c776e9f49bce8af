/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The property: every charge is given back exactly once, by whom it was taken for and as much as was taken, however a
 * request ends. A whole node in virtual time, with random requests, faults and operators; support/ledger.h keeps the
 * books. RY_SEED=N runs another seed; the one of a failure is in its message.
 */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "daemon/log.h"
#include "exits.h"
#include "hot/rail.h"
#include "ledger.h"
#include "rig.h"
#include "transport/mock/fault.h"

#define MIB (1u << 20)
#define KIB (1u << 10)
#define MS 1000000ull
#define N_RAILS 3
#define N_CLIENTS 3
#define N_KEYS 7
#define N_MISSING N_KEYS /* the key of no object */
#define AT_ONCE 12       /* slots of a client for reads; the next one is for its put */
#define CALLS 16
#define EPISODES 120
#define EPISODE_STEPS 220

/* What a client asked for, by slot. */
struct asked {
	uint64_t ticket; /* 0 = nothing */
	uint64_t cancel_ns;
};

struct world {
	struct rig r;
	uint64_t seed, random;
	unsigned episode;
	bool is_calm;    /* no new requests, no operators */
	bool is_silent;  /* a rail falls silent for longer than a segment deadline */
	bool is_hoarder; /* clients keep their leases */
	uint64_t conn_pause_ns;
	struct client *clients[N_CLIENTS]; /* NULL: detached, or not attached yet */
	struct client *coming[N_CLIENTS];
	struct asked asked[N_CLIENTS][AT_ONCE + 1];
	uint32_t leases[N_CLIENTS][64];
	unsigned n_leases[N_CLIENTS];
	struct api_call calls[CALLS];
	bool is_calling[CALLS];
	uint64_t next_put;
	uint32_t next_client;
};

static const uint64_t sizes[N_KEYS] = {0, 1, 100 * KIB, 256 * KIB + 1, MIB, 2 * MIB + 77, 5 * MIB};

/* xorshift: the seed alone decides. */
static uint64_t below(struct world *w, uint64_t n)
{
	w->random ^= w->random << 13;
	w->random ^= w->random >> 7;
	w->random ^= w->random << 17;
	return w->random % n;
}

static bool one_in(struct world *w, uint64_t n)
{
	return below(w, n) == 0;
}

static void check(const struct world *w)
{
	cr_assert_str_empty(ledger_wrong(), "RY_SEED=%" PRIu64 ", episode %u: %s", w->seed, w->episode, ledger_wrong());
}

/* ---- The api thread's part ---- */

static struct api_call *call(struct world *w, enum api_op op)
{
	for (unsigned i = 0; i < CALLS; i++) {
		if (w->is_calling[i])
			continue;
		w->is_calling[i] = true;
		w->calls[i] = (struct api_call){.m.kind = MSG_API, .op = (uint8_t)op};
		return &w->calls[i];
	}
	cr_assert_fail("RY_SEED=%" PRIu64 ": control does not answer", w->seed);
	return NULL;
}

static void send(struct world *w, struct api_call *c)
{
	cr_assert(spsc_push(w->r.node->api_to_control, c));
}

static void attach(struct world *w, unsigned i)
{
	struct client_conf conf = {
		.id = ++w->next_client,
		.n_entries = w->r.config.ring_entries,
		.read_arena_bytes = w->r.config.read_arena_bytes,
		.put_arena_bytes = w->r.config.put_arena_bytes,
		.regions = &w->r.node->regions,
		.sleep_set_fd = w->r.node->control_set_fd,
	};
	struct api_call *c = call(w, API_ATTACH);
	char message[256];

	cr_assert_eq(client_create(&conf, message, sizeof(message), &w->coming[i]), 0, "%s", message);
	c->client = w->coming[i];
	c->api_ctx = &w->coming[i];
	send(w, c);
}

/* In the middle of whatever it does. */
static void detach(struct world *w, unsigned i)
{
	struct api_call *c;

	if (!w->clients[i])
		return;
	c = call(w, API_DETACH);
	c->client = w->clients[i];
	send(w, c);
	w->clients[i] = NULL;
	memset(w->asked[i], 0, sizeof(w->asked[i]));
	w->n_leases[i] = 0;
}

static void answered(struct world *w, struct api_call *c)
{
	struct client **coming = c->api_ctx;

	w->is_calling[c - w->calls] = false;
	if (c->op == API_DETACH)
		client_destroy(c->client);
	if (c->op == API_LIMITS)
		exit_counts[WAY_BROKE_LIMIT] += c->usage.inflight_bytes > c->limits.inflight_max_bytes;
	if (c->op != API_ATTACH)
		return;
	cr_assert_eq(c->status, RY_OK);
	w->clients[coming - w->coming] = c->client;
	*coming = NULL;
}

static void set_limits(struct world *w, bool is_generous)
{
	struct api_call *c = call(w, API_LIMITS);

	c->limits = (struct limits){
		.max_reads = is_generous ? 16 : 2 + (uint32_t)below(w, 14),
		.client_max_reads = is_generous ? 16 : 1 + (uint32_t)below(w, 8),
		.inflight_max_bytes = is_generous ? 12 * MIB : MIB + below(w, 10 * MIB),
		.client_inflight_max_bytes = is_generous ? 12 * MIB : MIB / 2 + below(w, 6 * MIB),
		.admission_wait_ns = one_in(w, 2) ? 2 * MS : 50 * MS,
	};
	for (uint16_t i = 0; i < N_RAILS; i++)
		c->limits.rail_inflight_max_bytes[i] = is_generous ? 12 * MIB : MIB + below(w, 4 * MIB);
	send(w, c);
}

static void drain_rails(struct world *w, uint64_t mask)
{
	static struct api_pair_health pairs[API_PAIRS_MAX];

	for (uint16_t i = 0; i < N_RAILS; i++) {
		struct api_call *c = call(w, API_DRAIN);

		c->rail_idx = i;
		c->want_drain = mask >> i & 1;
		c->pairs = pairs;
		send(w, c);
	}
}

/* ---- One turn ---- */

/* Every loop has its own pace: rails miss turns, conn pauses. */
static void step(struct world *w)
{
	struct node *n = w->r.node;
	struct api_call *c;

	if (w->r.now_ns >= w->conn_pause_ns)
		conn_poll(n->conn, w->r.now_ns);
	control_poll(n->control, w->r.now_ns);
	for (uint16_t i = 0; i < n->n_rails; i++) {
		if (w->is_calm || !one_in(w, 6))
			rail_poll(n->rails[i], w->r.now_ns);
	}
	w->r.now_ns += w->r.step_ns;
	while ((c = spsc_pop(n->control_to_api)) != NULL)
		answered(w, c);
	ledger_audit();
	check(w);
}

/* ---- The clients' part ---- */

static void key_of(char *key, uint64_t i)
{
	snprintf(key, 8, "k%u", (unsigned)i);
}

static void submit_read(struct world *w, unsigned client)
{
	static const uint32_t policies[] = {RY_F_FAIL, RY_F_FAIL, RY_F_FAILOVER, RY_F_FAILOVER | RY_F_ONE_RAIL};
	uint64_t object = one_in(w, 12) ? below(w, N_KEYS + 1) : 2 + below(w, N_KEYS - 2);
	uint64_t size = object == N_MISSING ? 1 : sizes[object];
	uint64_t offset = one_in(w, 3) && size ? below(w, size) : 0, length = UINT64_MAX, deadline_ns;
	char key[8];

	for (unsigned i = 0; i < AT_ONCE; i++) {
		struct asked *a = &w->asked[client][i];

		if (a->ticket)
			continue;
		if (one_in(w, 20))
			offset = size + 1;
		else if (one_in(w, 40))
			length = 0;
		if (w->is_silent)
			deadline_ns = w->r.now_ns + 3000 * MS;
		else
			deadline_ns = w->r.now_ns + (one_in(w, 3) ? 1 + below(w, 8 * MS) : 300 * MS);
		key_of(key, object);
		w->r.next_slot = (uint16_t)i;
		a->ticket = rig_submit_read(
			&w->r, w->clients[client], key, offset, length, policies[below(w, 4)], deadline_ns);
		a->cancel_ns = one_in(w, 3) && !w->is_silent ? w->r.now_ns + below(w, 6 * MS) : UINT64_MAX;
		return;
	}
}

/* In one part; or only the first of several, whose writer then says nothing more. */
static void submit_put(struct world *w, unsigned client)
{
	struct client *c = w->clients[client];
	struct asked *a = &w->asked[client][AT_ONCE];
	struct ry_slot *slot = &c->slots[AT_ONCE];
	uint64_t object = 2 + below(w, N_KEYS - 2), bytes = sizes[object], seed = below(w, 1000);
	bool is_whole = !one_in(w, 3);
	uint32_t stripe = one_in(w, 2) ? 256 * KIB : MIB;
	uint64_t sums_off = (bytes + 63) / 64 * 64;
	uint64_t *sums = (uint64_t *)(void *)(c->put_arena.base + sums_off);
	struct ry_sqe sqe = {.op = RY_OP_PUT,
		.flags = RY_F_PUT_BEGIN | (is_whole ? RY_F_PUT_COMMIT : 0) | (one_in(w, 4) ? RY_F_IF_ABSENT : 0),
		.length = bytes,
		.deadline_ns = w->r.now_ns + (one_in(w, 2) ? below(w, 4 * MS) : 300 * MS)};
	char key[8];

	if (a->ticket)
		return;
	key_of(key, object);
	memset(c->put_arena.base, (int)seed, bytes);
	slot->put_id[0] = ++w->next_put;
	slot->put_id[1] = w->seed;
	slot->size_bytes = is_whole ? bytes : RY_SIZE_UNKNOWN;
	slot->ttl_ns = 0;
	slot->stripe_bytes = stripe;
	slot->n_checksums = (uint32_t)((bytes + stripe - 1) / stripe);
	slot->checksum_offset = sums_off;
	for (uint64_t off = 0; off < bytes; off += stripe)
		sums[off / stripe] = XXH3_64bits(c->put_arena.base + off, RTE_MIN(bytes - off, stripe));
	sums[0] ^= one_in(w, 8);
	w->r.next_slot = AT_ONCE;
	a->ticket = rig_submit(&w->r, c, sqe, key, (uint16_t)strlen(key));
	a->cancel_ns = one_in(w, 4) ? w->r.now_ns + below(w, 4 * MS) : UINT64_MAX;
}

static void release_lease(struct world *w, unsigned client)
{
	unsigned *n = &w->n_leases[client], i;
	struct ry_sqe sqe = {.op = RY_OP_RELEASE};

	if (!*n)
		return;
	i = (unsigned)below(w, *n);
	sqe.arg = w->leases[client][i];
	w->leases[client][i] = w->leases[client][--*n];
	rig_submit(&w->r, w->clients[client], sqe, NULL, 0);
}

static void serve(struct world *w, unsigned client)
{
	struct client *c = w->clients[client];
	struct ry_cqe cqe;

	while (c && rig_reap(&w->r, c, &cqe)) {
		w->asked[client][cqe.slot].ticket = 0;
		if (cqe.lease_id)
			w->leases[client][w->n_leases[client]++] = cqe.lease_id;
		if (w->n_leases[client] == RTE_DIM(w->leases[client]))
			release_lease(w, client);
	}
	for (unsigned i = 0; c && i <= AT_ONCE; i++) {
		struct asked *a = &w->asked[client][i];

		if (!a->ticket || w->r.now_ns < a->cancel_ns)
			continue;
		rig_cancel(&w->r, c, a->ticket);
		a->cancel_ns = UINT64_MAX;
	}
	if (c && (w->is_calm || one_in(w, w->is_hoarder ? 300 : 10)))
		release_lease(w, client);
}

/* A read that waits for a silent rail, just when its segment is being taken from there. */
static void cancel_the_silent(struct world *w)
{
	const struct xfer *x;

	TAILQ_FOREACH (x, &w->r.node->control->used_xfers, link) {
		const struct op *op = x->owner;

		for (const struct segment *s = x->segs; s && x->kind == XFER_READ && op && !x->is_failed;
			s = s->owner_next) {
			if (s->state != SEG_CANCELLING || !one_in(w, 10))
				continue;
			for (unsigned i = 0; i < N_CLIENTS; i++) {
				if (w->clients[i] && w->clients[i]->state == op->cs)
					rig_cancel(&w->r, w->clients[i], op->ticket);
			}
			break;
		}
	}
}

/* ---- What else happens ---- */

static void inject(struct world *w)
{
	struct rail *rail = w->r.node->rails[below(w, N_RAILS)];
	unsigned n = 1 + (unsigned)below(w, 20), kb = (unsigned)below(w, 1500);
	struct fault_plan plan;
	char text[256], message[256];

	switch (below(w, 10)) {
	case 0:
		snprintf(text, sizeof(text), "disconnect:at=%uKiB", kb);
		break;
	case 1:
		snprintf(text, sizeof(text), "stall:at=%uKiB,for=%ums", kb, 1 + n);
		break;
	case 2:
	case 3:
		snprintf(text, sizeof(text), "corrupt:n=%u,repeat=%u", n, 1 + n % 3);
		break;
	case 4:
		snprintf(text, sizeof(text), "lose:n=%u,repeat=%u", n, 1 + n % 3);
		break;
	case 5:
		snprintf(text, sizeof(text), "lose:n=1,repeat=%u,of=cancels; stall:at=%uKiB,for=8ms", n, kb);
		break;
	case 6:
		snprintf(text, sizeof(text), "duplicate:n=%u; reorder:n=%u,for=3ms", n, n + 1);
		break;
	case 7:
		snprintf(text, sizeof(text), "error:at=%uKiB,class=%s", kb, n % 2 ? "retry" : "peer_closed");
		break;
	case 8:
		snprintf(text, sizeof(text), "late:n=%u", n);
		break;
	default:
		snprintf(text, sizeof(text), "slow:factor=0.%02u,for=%ums", n, 1 + n);
		break;
	}
	cr_assert_eq(fault_parse(text, &plan, message, sizeof(message)), 0, "%s: %s", text, message);
	plan.seed = 1 + below(w, 1000);
	cr_assert_eq(mock_fault_inject(rail, &plan), 0);
}

static void fall_silent(struct world *w)
{
	struct fault_plan plan;
	char message[256];

	cr_assert_eq(fault_parse("stall:at=4MiB,for=700ms", &plan, message, sizeof(message)), 0, "%s", message);
	cr_assert_eq(mock_fault_inject(w->r.node->rails[below(w, N_RAILS)], &plan), 0);
}

static void make_stale(struct world *w)
{
	struct desc *d = TAILQ_LAST(&w->r.node->control->lru_descs, desc_list);

	if (d)
		d->generation += 77;
}

static void something(struct world *w)
{
	switch (below(w, 12)) {
	case 0:
	case 1:
	case 2:
		inject(w);
		break;
	case 3:
	case 4:
		set_limits(w, one_in(w, 3));
		break;
	case 5:
		w->r.config.admission = one_in(w, 3) ? ADMISSION_REJECT : ADMISSION_QUEUE;
		break;
	case 6:
		drain_rails(w, below(w, 1u << N_RAILS));
		break;
	case 7:
		drain_rails(w, 0);
		break;
	case 8:
		w->conn_pause_ns = w->r.now_ns + below(w, 12 * MS);
		break;
	case 9:
		make_stale(w);
		break;
	case 10:
		/* A store that accepts little, or much. */
		w->r.node->snapshot.serve_max_requests = one_in(w, 2) ? 2 : 64;
		break;
	default:
		detach(w, (unsigned)below(w, N_CLIENTS));
		break;
	}
}

static void episode(struct world *w)
{
	w->is_calm = false;
	w->is_silent = w->episode % 15 == 14;
	w->is_hoarder = w->episode % 5 == 0;
	w->r.step_ns = w->is_silent ? 400000 : 20000u << below(w, 3);
	set_limits(w, w->is_silent);
	if (w->is_silent)
		fall_silent(w);
	for (unsigned n = 0; n < EPISODE_STEPS * (w->is_silent ? 7u : 1u); n++) {
		for (unsigned i = 0; i < N_CLIENTS; i++) {
			if (!w->clients[i] && !w->coming[i] && one_in(w, 20))
				attach(w, i);
			if (w->clients[i] && one_in(w, w->is_silent ? 30 : 4))
				submit_read(w, i);
			if (w->clients[i] && one_in(w, 40))
				submit_put(w, i);
			serve(w, i);
		}
		if (w->is_silent)
			cancel_the_silent(w);
		else if (one_in(w, 30))
			something(w);
		step(w);
	}
}

static bool is_at_rest(struct world *w)
{
	const struct control *c = w->r.node->control;
	bool is_over = rig_is_idle(&w->r) && !c->n_putins && !store_n_retired(w->r.node->store);

	for (unsigned i = 0; i < N_CLIENTS; i++) {
		is_over &= !w->n_leases[i] && !w->coming[i];
		for (unsigned k = 0; k <= AT_ONCE; k++)
			is_over &= !w->asked[i][k].ticket;
	}
	for (unsigned i = 0; i < CALLS; i++)
		is_over &= !w->is_calling[i];
	for (unsigned i = 0; i < PROBES_MAX; i++)
		is_over &= !c->probes[i].is_used;
	return is_over;
}

/* Faults end, all requests come to theirs, and the books must close. */
static void calm(struct world *w)
{
	uint64_t end_ns = w->r.now_ns + 3000 * MS;

	w->is_calm = true;
	w->conn_pause_ns = 0;
	w->r.step_ns = 200000;
	w->r.node->snapshot.serve_max_requests = 64;
	for (uint16_t i = 0; i < N_RAILS; i++)
		mock_fault_inject(w->r.node->rails[i], NULL);
	drain_rails(w, 0);
	set_limits(w, true);
	/* Gauges are written by housekeeping, which may send a probe. */
	for (unsigned n = 0; n < 2 * HOUSEKEEPING_NS / w->r.step_ns + 2 || !is_at_rest(w); n++) {
		for (unsigned i = 0; i < N_CLIENTS; i++)
			serve(w, i);
		n = is_at_rest(w) ? n : 0;
		step(w);
		cr_assert_lt(w->r.now_ns, end_ns, "RY_SEED=%" PRIu64 ", episode %u: not at rest after 3 s", w->seed,
			w->episode);
	}
	ledger_expect_empty(store_n_objects(w->r.node->store));
	check(w);
}

static void begin(struct world *w, uint64_t seed)
{
	struct config *c = &w->r.config;

	w->seed = seed;
	w->random = seed * 0x9e3779b97f4a7c15ull | 1;
	log_set_level(LOG_LEVEL_ERROR);
	rig_init(&w->r, N_RAILS, 200000000);
	c->read_arena_bytes = 8 * MIB;
	c->put_arena_bytes = 6 * MIB;
	c->store_bytes = 24 * MIB;
	c->max_reads = c->client_max_reads = 16;
	c->inflight_max_bytes = c->client_inflight_max_bytes = 12 * MIB;
	c->admission = ADMISSION_QUEUE;
	c->admission_queue_max = 10;
	c->segment_bytes = 64 * KIB;
	c->read_deadline_ns = 100 * MS; /* of a put whose writer says nothing more, too */
	c->fence_timeout_ns = 3 * MS;
	c->reconnect_ns = 2 * MS;
	c->health.error_threshold = 1000; /* breakers have their own tests */
	rig_start(&w->r);
	w->clients[0] = w->r.client;
	w->r.client = NULL;
	w->r.node->snapshot.verify_turn_bytes = 128 * KIB;
	ledger_begin(&w->r);
	for (unsigned i = 0; i < N_KEYS; i++) {
		uint8_t *data = calloc(1, sizes[i] + 1);
		char key[8];

		key_of(key, i);
		cr_assert_eq(
			rig_put(&w->r, w->clients[0], key, data, sizes[i], i % 2 ? MIB : 256 * KIB, 0).status, RY_OK);
		free(data);
	}
}

/* The node's own end, with everything under way. */
static void end(struct world *w)
{
	w->is_silent = false;
	w->is_calm = false;
	w->r.config.drain_ns = 2 * MS;
	for (unsigned n = 0; n < 100; n++) {
		for (unsigned i = 0; i < N_CLIENTS; i++) {
			if (w->clients[i])
				submit_read(w, i);
			serve(w, i);
		}
		if (n == 90)
			send(w, call(w, API_SHUTDOWN));
		step(w);
	}
	calm(w);
	for (unsigned i = 0; i < N_CLIENTS; i++)
		detach(w, i);
	for (unsigned i = 0; i < 100; i++)
		step(w);
	node_destroy(w->r.node);
}

static bool has_all_exits(void)
{
	for (unsigned i = 0; i < EXIT_KINDS_; i++) {
		if (!exit_counts[i])
			return false;
	}
	return true;
}

/* What is rare, such as a wrong checksum that is found before anything else ends its read, may want more episodes: the
 * incarnation of the node is not the seed's. */
Test(node_charges, every_charge_is_given_back_once)
{
	static struct world w;
	const char *seed = getenv("RY_SEED");

	begin(&w, seed ? strtoull(seed, NULL, 10) : 1);
	for (w.episode = 0; w.episode < EPISODES || (w.episode < 4 * EPISODES && !has_all_exits()); w.episode++) {
		episode(&w);
		calm(&w);
	}
	cr_expect_gt(stat_get(&w.r.node->counters.stripes_split), 0u, "no stripe was split");
	end(&w);
	for (unsigned i = 0; i < EXIT_KINDS_; i++)
		cr_expect_gt(exit_counts[i], 0u, "RY_SEED=%" PRIu64 ": %s was never reached", w.seed,
			exit_name((enum exit_kind)i));
}
