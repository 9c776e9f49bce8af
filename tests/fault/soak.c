/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A randomized soak: several clients read, cancel, put and delete over mock rails while fault plans come and go.
 *
 *   soak [SECONDS [SEED]]     real seconds; TAP output, the seed is printed
 *
 * The rule: a read shows the exact bytes, or one typed error with a cause and nothing else, by its deadline. After each
 * episode the plans end, and then everything must be as it was: budgets, segments, leases, memory, and every rail
 * carries again.
 */
#include <inttypes.h>
#include <malloc.h>
#include <stdarg.h>
#include <stdlib.h>
#include <time.h>

#include "read/control_priv.h"
#include "rig.h"
#include "transport/mock/fault.h"

#define MIB (1u << 20)
#define KIB (1u << 10)
#define MS 1000000ull
#define N_RAILS 4
#define N_CLIENTS 3
#define N_OBJECTS 6
#define AT_ONCE 5
#define META_MOST_BYTES (64u << 10)
#define HEAP_MOST_BYTES (256u << 10)
#define EPISODE_NS (400 * MS)
#define SLACK_NS (2 * MS) /* control looks at deadlines once a millisecond */

struct read_under_way {
	uint64_t ticket; /* 0 = none */
	uint64_t deadline_ns;
	uint64_t cancel_ns; /* 0 = never */
	uint64_t offset, length;
	uint32_t flags;
	unsigned object;
};

struct object_known {
	char key[8];
	uint8_t *data;
	uint64_t bytes;
};

struct soak {
	struct rig r;
	uint64_t random;
	struct object_known objects[N_OBJECTS];
	struct client *clients[N_CLIENTS];
	struct read_under_way reads[N_CLIENTS][AT_ONCE];
	uint64_t n_reads, n_ok, n_failover, n_failover_ok, n_faults, n_episodes;
	uint64_t n_by_status[RY_STATUS_MAX_];
	uint64_t heap_bytes; /* after some episodes */
	uint64_t heap_last;
	char wrong[512]; /* empty: all is well */
};

static void start(struct soak *s, uint64_t seed);
static void episode(struct soak *s);
static void inject(struct soak *s);
static void plan_text(struct soak *s, char *text, uint32_t text_bytes);
static void submit(struct soak *s, unsigned client);
static void reap(struct soak *s, unsigned client);
static void judge(struct soak *s, struct client *c, const struct read_under_way *rd, const struct ry_cqe *cqe);
static bool shows(const struct client *c, const struct ry_cqe *cqe, const uint8_t *want, uint64_t bytes);
static void calm(struct soak *s);
static bool is_quiet(struct soak *s);
static void check_leaks(struct soak *s);
static uint64_t allocated_bytes(void);
static void revive(struct soak *s, uint16_t rail);
static void wrong(struct soak *s, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* xorshift: the seed alone decides. */
static uint64_t below(struct soak *s, uint64_t n)
{
	s->random ^= s->random << 13;
	s->random ^= s->random >> 7;
	s->random ^= s->random << 17;
	return s->random % n;
}

int main(int argc, char **argv)
{
	uint64_t seconds = argc > 1 ? strtoull(argv[1], NULL, 10) : 60;
	uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : (uint64_t)time(NULL);
	struct soak *s = calloc(1, sizeof(*s));
	uint64_t end_ns;

	if (!s)
		return 2;
	printf("# seed %" PRIu64 "\n", seed);
	fflush(stdout);
	start(s, seed);
	end_ns = clock_ns() + seconds * 1000000000ull;
	while (!s->wrong[0] && clock_ns() < end_ns)
		episode(s);
	printf("# %" PRIu64 " episodes, %" PRIu64 " faults, %" PRIu64 " reads: %" PRIu64 " ok; under failover %" PRIu64
	       " of %" PRIu64 " ok\n",
		s->n_episodes, s->n_faults, s->n_reads, s->n_ok, s->n_failover_ok, s->n_failover);
	printf("# heap: %" PRIu64 " bytes after 10 episodes, %" PRIu64 " at the end\n", s->heap_bytes, s->heap_last);
	for (unsigned i = 1; i < RY_STATUS_MAX_; i++) {
		if (s->n_by_status[i])
			printf("# %s %" PRIu64 "\n", ry_status_name((enum ry_status)i), s->n_by_status[i]);
	}
	printf("%sok 1 - soak%s%s\n1..1\n", s->wrong[0] ? "not " : "", s->wrong[0] ? ": " : "", s->wrong);
	return s->wrong[0] != 0;
}

static void wrong(struct soak *s, const char *format, ...)
{
	va_list args;

	if (s->wrong[0])
		return;
	va_start(args, format);
	vsnprintf(s->wrong, sizeof(s->wrong), format, args);
	va_end(args);
}

static void start(struct soak *s, uint64_t seed)
{
	static const uint64_t sizes[N_OBJECTS] = {1, 100 * KIB, 256 * KIB + 1, 1 * MIB, 3 * MIB + 77, 6 * MIB};

	s->random = seed * 0x9e3779b97f4a7c15ull | 1;
	rig_init(&s->r, N_RAILS, 1000000000);
	s->r.config.fence_timeout_ns = 5 * MS;
	s->r.config.reconnect_ns = 2 * MS;
	s->r.config.health.cooldown_secs = 1;
	s->r.config.health.flap_secs = 0;
	rig_start(&s->r);
	s->clients[0] = s->r.client;
	for (unsigned i = 1; i < N_CLIENTS; i++)
		s->clients[i] = rig_attach(&s->r, s->r.config.read_arena_bytes);
	for (unsigned i = 0; i < N_OBJECTS; i++) {
		snprintf(s->objects[i].key, sizeof(s->objects[i].key), "k%u", i);
		s->objects[i].bytes = sizes[i];
		s->objects[i].data = rig_object(&s->r, s->objects[i].key, sizes[i], seed + i);
	}
}

static void episode(struct soak *s)
{
	uint64_t end_ns = s->r.now_ns + EPISODE_NS;

	s->n_episodes++;
	while (s->r.now_ns < end_ns && !s->wrong[0]) {
		if (!below(s, 1000))
			inject(s);
		for (unsigned i = 0; i < N_CLIENTS; i++) {
			if (!below(s, 20))
				submit(s, i);
			reap(s, i);
		}
		rig_step(&s->r);
	}
	calm(s);
}

static void inject(struct soak *s)
{
	struct rail *rail = s->r.node->rails[below(s, N_RAILS)];
	struct fault_plan plan;
	char text[512], message[256];

	plan_text(s, text, sizeof(text));
	if (fault_parse(text, &plan, message, sizeof(message)) || mock_fault_inject(rail, &plan))
		wrong(s, "plan '%s': %s", text, message);
	s->n_faults++;
}

/* One to three faults. */
static void plan_text(struct soak *s, char *text, uint32_t text_bytes)
{
	static const char *const classes[] = {"peer_closed", "retry", "rnr", "access", "local", "flush", "protocol"};
	uint32_t at = 0;

	text[0] = 0;
	for (uint64_t n = 1 + below(s, 3); n; n--) {
		char one[128];
		unsigned kb = (unsigned)below(s, 3000), times = 1 + (unsigned)below(s, 3);

		switch (below(s, 10)) {
		case 0:
			snprintf(one, sizeof(one), "disconnect:at=%uKiB", kb);
			break;
		case 1:
			snprintf(one, sizeof(one), "stall:at=%uKiB,for=%ums", kb, 1 + (unsigned)below(s, 300));
			break;
		case 2:
			snprintf(one, sizeof(one), "short:n=%u,repeat=%u", 1 + kb / 100, times);
			break;
		case 3:
			snprintf(one, sizeof(one), "corrupt:n=%u,repeat=%u", 1 + kb / 100, times);
			break;
		case 4:
			snprintf(one, sizeof(one), "slow:factor=0.%02u,for=%ums", 1 + (unsigned)below(s, 99),
				1 + (unsigned)below(s, 200));
			break;
		case 5:
			snprintf(one, sizeof(one), "lose:n=%u,repeat=%u,of=%s", 1 + kb / 300, times,
				below(s, 2) ? "answers" : "all");
			break;
		case 6:
			snprintf(one, sizeof(one), "duplicate:n=%u,repeat=%u", 1 + kb / 300, times);
			break;
		case 7:
			snprintf(one, sizeof(one), "reorder:n=%u,for=%ums", 1 + kb / 300, 1 + (unsigned)below(s, 20));
			break;
		case 8:
			snprintf(one, sizeof(one), "error:at=%uKiB,class=%s", kb, classes[below(s, 7)]);
			break;
		default:
			snprintf(one, sizeof(one), below(s, 4) ? "late:n=%u" : "restart:n=%u", 1 + kb / 100);
			break;
		}
		at += (uint32_t)snprintf(text + at, text_bytes - at, "%s; ", one);
	}
	snprintf(text + at, text_bytes - at, "seed=%" PRIu64, 1 + below(s, 1000000));
}

static void submit(struct soak *s, unsigned client)
{
	static const uint32_t policies[] = {RY_F_FAILOVER, RY_F_FAILOVER, RY_F_FAIL, 0, RY_F_FAILOVER | RY_F_ONE_RAIL};
	struct client *c = s->clients[client];
	struct read_under_way *rd = s->reads[client];
	const struct object_known *o;

	while (rd->ticket) {
		if (++rd == s->reads[client] + AT_ONCE)
			return;
	}
	rd->object = (unsigned)below(s, N_OBJECTS);
	o = &s->objects[rd->object];
	rd->offset = below(s, 3) ? 0 : below(s, o->bytes);
	rd->length = below(s, 2) ? o->bytes - rd->offset : 1 + below(s, o->bytes - rd->offset);
	rd->flags = policies[below(s, RTE_DIM(policies))];
	rd->deadline_ns = s->r.now_ns + (below(s, 4) ? 3000 : 1 + below(s, 30)) * MS;
	rd->cancel_ns = below(s, 4) ? 0 : s->r.now_ns + below(s, 10 * MS);
	s->r.next_slot = (uint16_t)(rd - s->reads[client]); /* free: its last read was judged */
	rd->ticket = rig_submit_read(&s->r, c, o->key, rd->offset, rd->length, rd->flags, rd->deadline_ns);
	s->n_reads++;
}

static void reap(struct soak *s, unsigned client)
{
	struct client *c = s->clients[client];
	struct ry_cqe cqe;

	while (rig_reap(&s->r, c, &cqe)) {
		for (unsigned i = 0; i < AT_ONCE; i++) {
			if (s->reads[client][i].ticket != cqe.ticket)
				continue;
			judge(s, c, &s->reads[client][i], &cqe);
			s->reads[client][i].ticket = 0;
		}
		if (cqe.lease_id) {
			struct ry_sqe sqe = {.op = RY_OP_RELEASE, .arg = cqe.lease_id};

			rig_submit(&s->r, c, sqe, NULL, 0);
		}
	}
	for (unsigned i = 0; i < AT_ONCE; i++) {
		struct read_under_way *rd = &s->reads[client][i];

		if (rd->ticket && rd->cancel_ns && s->r.now_ns >= rd->cancel_ns) {
			rig_cancel(&s->r, c, rd->ticket);
			rd->cancel_ns = 0;
		} else if (rd->ticket && s->r.now_ns > rd->deadline_ns + SLACK_NS) {
			wrong(s, "read of %s: no answer %" PRIu64 " us after its deadline", s->objects[rd->object].key,
				(s->r.now_ns - rd->deadline_ns) / 1000);
		}
	}
}

static void judge(struct soak *s, struct client *c, const struct read_under_way *rd, const struct ry_cqe *cqe)
{
	const struct object_known *o = &s->objects[rd->object];
	const struct ry_slot *slot = rig_slot(c, cqe);

	s->n_failover += (rd->flags & RY_F_FAILOVER) != 0;
	if (cqe->status == RY_OK) {
		s->n_ok++;
		s->n_failover_ok += (rd->flags & RY_F_FAILOVER) != 0;
		if (cqe->bytes != rd->length || !shows(c, cqe, o->data + rd->offset, rd->length))
			wrong(s, "read of %s %" PRIu64 "+%" PRIu64 ": wrong bytes", o->key, rd->offset, rd->length);
		return;
	}
	s->n_by_status[cqe->status]++;
	if ((rd->flags & RY_F_FAILOVER) && cqe->status == RY_ERR_RAIL)
		wrong(s, "read of %s: under failover the loss of a rail is no failure: %s", o->key, slot->cause);
	if (cqe->status == RY_ERR_INTERNAL || cqe->status >= RY_STATUS_MAX_ || !slot->cause[0] || cqe->lease_id ||
		cqe->bytes || slot->n_extents)
		wrong(s, "read of %s: status %u, cause '%s', lease %u, %" PRIu64 " bytes", o->key, cqe->status,
			slot->cause, cqe->lease_id, cqe->bytes);
}

/* Then poisons it, so that bytes which never come are seen. */
static bool shows(const struct client *c, const struct ry_cqe *cqe, const uint8_t *want, uint64_t bytes)
{
	const struct ry_slot *slot = rig_slot(c, cqe);
	bool is_same = rig_same(c, cqe, want, bytes);

	for (uint32_t i = 0; i < slot->n_extents; i++)
		memset(c->read_arena.base + slot->extents[i].offset, 0xa5, slot->extents[i].bytes);
	return is_same;
}

/* The plans end; all reads come to their end; nothing is left behind; every rail carries. */
static void calm(struct soak *s)
{
	uint64_t end_ns = s->r.now_ns + 5000 * MS;

	for (uint16_t i = 0; i < N_RAILS; i++)
		mock_fault_inject(s->r.node->rails[i], NULL);
	while (!s->wrong[0] && !is_quiet(s)) {
		for (unsigned i = 0; i < N_CLIENTS; i++)
			reap(s, i);
		rig_step(&s->r);
		if (s->r.now_ns > end_ns)
			wrong(s,
				"5 s after the faults: %" PRIu64
				" bytes and %u reads in flight, %u of %u segments and %u "
				"of %u jobs free, %" PRIu64 " leases, %" PRIu64 " bytes in quarantine",
				s->r.node->control->inflight_bytes, s->r.node->control->inflight_reads,
				s->r.node->control->n_segs_free, SEGMENTS_MAX, s->r.node->control->n_jobs_free,
				JOBS_MAX, stat_get(&s->r.node->counters.leases),
				stat_get(&s->r.node->counters.quarantined_bytes));
	}
	for (uint16_t i = 0; i < N_RAILS && !s->wrong[0]; i++)
		revive(s, i);
	if (!s->wrong[0])
		check_leaks(s);
}

static bool is_quiet(struct soak *s)
{
	bool is_idle = rig_is_idle(&s->r);

	for (unsigned i = 0; i < N_CLIENTS && is_idle; i++) {
		for (unsigned k = 0; k < AT_ONCE; k++)
			is_idle &= !s->reads[i][k].ticket;
		is_idle &= !extent_used_bytes(s->clients[i]->read_map);
	}
	return is_idle;
}

/* What no budget shows: records, the metadata slab (a few descriptors stay in the cache), the heap. */
static void check_leaks(struct soak *s)
{
	const struct control *c = s->r.node->control;
	uint64_t heap_bytes = allocated_bytes();
	unsigned n_free = 0;
	struct op *op;

	TAILQ_FOREACH (op, &c->free_ops, link)
		n_free++;
	if (n_free != c->n_ops)
		wrong(s, "%u of %u operations are free", n_free, c->n_ops);
	if (extent_used_bytes(c->meta_map) > META_MOST_BYTES)
		wrong(s, "%" PRIu64 " bytes of metadata are in use", extent_used_bytes(c->meta_map));
	for (unsigned i = 0; i < PROBES_MAX; i++) {
		if (c->probes[i].is_used && s->r.now_ns > c->probes[i].until_ns + 1000 * MS)
			wrong(s, "a probe is out a second after its lease");
	}
	if (s->n_episodes == 10)
		s->heap_bytes = heap_bytes;
	if (s->n_episodes > 10 && heap_bytes > s->heap_bytes + HEAP_MOST_BYTES)
		wrong(s, "%" PRIu64 " bytes of heap, %" PRIu64 " at first", heap_bytes, s->heap_bytes);
	s->heap_last = heap_bytes;
}

/* Not what is resident: tables that are used in turn are touched bit by bit. */
static uint64_t allocated_bytes(void)
{
	struct mallinfo2 m = mallinfo2();

	return m.uordblks + m.hblkhd;
}

/* Reads until this rail has carried something: dialled, probed, given its share again. */
static void revive(struct soak *s, uint16_t rail)
{
	const struct object_known *o = &s->objects[N_OBJECTS - 1];
	const uint64_t *carried = &rail_counters(s->r.node->rails[rail])->rx_bytes;
	uint64_t before = stat_get(carried), end_ns = s->r.now_ns + 5000 * MS;

	while (stat_get(carried) == before && !s->wrong[0]) {
		struct ry_cqe cqe = rig_read(&s->r, s->r.client, o->key, 0, UINT64_MAX, RY_F_FAILOVER);

		/* All of them may still be on their way back. */
		if (cqe.status != RY_ERR_NO_RAIL && !rig_same(s->r.client, &cqe, o->data, o->bytes))
			wrong(s, "without faults: status %u: %s", cqe.status, rig_slot(s->r.client, &cqe)->cause);
		rig_release(&s->r, s->r.client, cqe.lease_id);
		rig_run(&s->r, 5 * MS);
		if (s->r.now_ns > end_ns)
			wrong(s, "rail%u carries nothing 5 s after its faults", rail);
	}
}
