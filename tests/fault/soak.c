/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A randomized soak: several clients read and cancel over mock rails while fault plans come and go.
 *
 *   soak [SECONDS [SEED]]     real seconds; TAP output, the seeds are printed
 *
 * Each seed draws a node of its own (soak_draw.h) and is run in a process of its own; without SEED there is a new one
 * every SLICE_SECONDS.
 *
 * The rule: a read shows the exact bytes, or one typed error with a cause and nothing else, by its deadline. After each
 * episode the plans end, and then everything must be as it was: budgets, segments, leases, memory, and every rail
 * carries again.
 */
#include <inttypes.h>
#include <malloc.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "read/control_priv.h"
#include "rig.h"
#include "soak_draw.h"
#include "transport/mock/fault.h"

#define MIB (1u << 20)
#define KIB (1u << 10)
#define MS 1000000ull
#define SLICE_SECONDS 15u
#define N_CLIENTS 3
#define N_OBJECTS 6
#define AT_ONCE 5
#define META_MOST_BYTES (64u << 10)
#define HEAP_MOST_BYTES (256u << 10)
#define EPISODE_NS (400 * MS)
#define LONG_EPISODE_NS (4000 * MS) /* long enough for probes to be sent and believed */
#define BACK_NS (5000 * MS)         /* a rail whose faults are over carries again */
#define TRIPS_MOST 2                /* by what was still under way, or by a slowness that is remembered */
#define NONE UINT64_MAX
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
	struct dice dice;
	uint64_t silent; /* rail that has a plan which no probe notices; NONE = none */
	struct object_known objects[N_OBJECTS];
	struct client *clients[N_CLIENTS];
	struct read_under_way reads[N_CLIENTS][AT_ONCE];
	uint64_t rest_until_ns[N_CLIENTS]; /* who was refused waits a little */
	uint64_t n_reads, n_ok, n_failover, n_failover_ok, n_faults, n_episodes;
	uint64_t n_by_status[RY_STATUS_MAX_];
	uint64_t n_sat_out;
	uint64_t heap_bytes; /* after some episodes */
	uint64_t heap_last;
	char wrong[512]; /* empty: all is well */
};

static int slice(uint64_t seconds, uint64_t seed);
static void summary(struct soak *s);
static void start(struct soak *s, uint64_t seed);
static void episode(struct soak *s);
static void inject(struct soak *s);
static void put_plan(struct soak *s, uint64_t rail, const char *text);
static void submit(struct soak *s, unsigned client);
static void reap(struct soak *s, unsigned client);
static void judge(struct soak *s, struct client *c, const struct read_under_way *rd, const struct ry_cqe *cqe);
static bool shows(const struct client *c, const struct ry_cqe *cqe, const uint8_t *want, uint64_t bytes);
static void calm(struct soak *s);
static bool is_quiet(struct soak *s);
static void check_leaks(struct soak *s);
static uint64_t allocated_bytes(void);
static void revive(struct soak *s, uint16_t rail);
static bool sit_out(struct soak *s, uint16_t rail);
static struct rail_health_report report_of(struct soak *s, uint16_t rail);
static void wrong(struct soak *s, const char *format, ...) __attribute__((format(printf, 2, 3)));

int main(int argc, char **argv)
{
	uint64_t seconds = argc > 1 ? strtoull(argv[1], NULL, 10) : 60;
	uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : (uint64_t)time(NULL);
	uint64_t n_slices = argc > 2 || seconds < SLICE_SECONDS ? 1 : seconds / SLICE_SECONDS;
	int n_failed = 0;

	for (uint64_t i = 0; i < n_slices; i++) {
		int status = 1;
		pid_t child;

		fflush(stdout);
		child = fork();
		if (child == 0)
			return slice(seconds / n_slices, seed + i);
		if (child > 0)
			waitpid(child, &status, 0);
		n_failed += status != 0;
		printf("%sok %" PRIu64 " - soak with seed %" PRIu64 "\n", status ? "not " : "", i + 1, seed + i);
	}
	printf("1..%" PRIu64 "\n", n_slices);
	return n_failed != 0;
}

static int slice(uint64_t seconds, uint64_t seed)
{
	struct soak *s = calloc(1, sizeof(*s));
	uint64_t end_ns;

	if (!s)
		return 2;
	start(s, seed);
	end_ns = clock_ns() + seconds * 1000000000ull;
	while (!s->wrong[0] && clock_ns() < end_ns)
		episode(s);
	summary(s);
	return s->wrong[0] != 0;
}

static void summary(struct soak *s)
{
	uint64_t n_trips = 0;

	for (uint16_t i = 0; i < s->r.config.n_rails; i++)
		n_trips += report_of(s, i).n_trips;
	printf("# %" PRIu64 " episodes, %" PRIu64 " faults, %" PRIu64 " reads: %" PRIu64 " ok; under failover %" PRIu64
	       " of %" PRIu64 " ok\n",
		s->n_episodes, s->n_faults, s->n_reads, s->n_ok, s->n_failover_ok, s->n_failover);
	printf("# %" PRIu64 " trips, %" PRIu64 " pauses sat out\n", n_trips, s->n_sat_out);
	printf("# heap: %" PRIu64 " bytes after 10 episodes, %" PRIu64 " at the end\n", s->heap_bytes, s->heap_last);
	for (unsigned i = 1; i < RY_STATUS_MAX_; i++) {
		if (s->n_by_status[i])
			printf("# %s %" PRIu64 "\n", ry_status_name((enum ry_status)i), s->n_by_status[i]);
	}
	if (s->wrong[0])
		printf("# %s\n", s->wrong);
	fflush(stdout);
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
	static const uint64_t sizes[N_OBJECTS] = {
		1, 100 * KIB, 256 * KIB + 1, 1 * MIB, 3 * MIB + 77, SOAK_LARGEST_BYTES};
	char text[SOAK_TEXT_BYTES];

	s->dice = dice_of(seed);
	s->silent = NONE;
	rig_init(&s->r, draw_rails(&s->dice), 1000000000);
	s->r.config.fence_timeout_ns = 5 * MS;
	s->r.config.reconnect_ns = 2 * MS;
	draw_config(&s->dice, &s->r.config, text);
	printf("# seed %" PRIu64 ": %s\n", seed, text);
	fflush(stdout);
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
	bool is_long = !dice_below(&s->dice, 5);
	uint64_t end_ns = s->r.now_ns + (is_long ? LONG_EPISODE_NS : EPISODE_NS);
	char text[SOAK_TEXT_BYTES];

	s->n_episodes++;
	if (is_long || !dice_below(&s->dice, 4)) {
		s->silent = dice_below(&s->dice, s->r.config.n_rails);
		draw_silence(&s->dice, text);
		put_plan(s, s->silent, text);
	}
	while (s->r.now_ns < end_ns && !s->wrong[0]) {
		if (!dice_below(&s->dice, 1000))
			inject(s);
		for (unsigned i = 0; i < N_CLIENTS; i++) {
			if (s->r.now_ns >= s->rest_until_ns[i] && !dice_below(&s->dice, 20))
				submit(s, i);
			reap(s, i);
		}
		rig_step(&s->r);
	}
	s->silent = NONE;
	calm(s);
}

static void inject(struct soak *s)
{
	uint64_t rail = dice_below(&s->dice, s->r.config.n_rails);
	char text[SOAK_TEXT_BYTES];

	draw_plan(&s->dice, text);
	if (rail != s->silent)
		put_plan(s, rail, text);
}

static void put_plan(struct soak *s, uint64_t rail, const char *text)
{
	struct fault_plan plan;
	char message[256] = "";

	if (fault_parse(text, &plan, message, sizeof(message)) || mock_fault_inject(s->r.node->rails[rail], &plan))
		wrong(s, "plan '%s': %s", text, message);
	s->n_faults++;
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
	rd->object = (unsigned)dice_below(&s->dice, N_OBJECTS);
	o = &s->objects[rd->object];
	rd->offset = dice_below(&s->dice, 3) ? 0 : dice_below(&s->dice, o->bytes);
	rd->length = dice_below(&s->dice, 2) ? o->bytes - rd->offset : 1 + dice_below(&s->dice, o->bytes - rd->offset);
	rd->flags = policies[dice_below(&s->dice, RTE_DIM(policies))];
	rd->deadline_ns = s->r.now_ns + (dice_below(&s->dice, 4) ? 3000 : 1 + dice_below(&s->dice, 30)) * MS;
	rd->cancel_ns = dice_below(&s->dice, 4) ? 0 : s->r.now_ns + dice_below(&s->dice, 10 * MS);
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
			if (cqe.status == RY_ERR_BUDGET || cqe.status == RY_ERR_NO_RAIL)
				s->rest_until_ns[client] = s->r.now_ns + 4 * MS;
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

	bool is_failover = rd->flags & RY_F_FAILOVER ||
			   (!(rd->flags & RY_F_FAIL) && s->r.config.on_rail_failure == ON_RAIL_FAILURE_FAILOVER);

	s->n_failover += is_failover;
	if (cqe->status == RY_OK) {
		s->n_ok++;
		s->n_failover_ok += is_failover;
		if (cqe->bytes != rd->length || !shows(c, cqe, o->data + rd->offset, rd->length))
			wrong(s, "read of %s %" PRIu64 "+%" PRIu64 ": wrong bytes", o->key, rd->offset, rd->length);
		return;
	}
	s->n_by_status[cqe->status]++;
	if (is_failover && cqe->status == RY_ERR_RAIL)
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

	for (uint16_t i = 0; i < s->r.config.n_rails; i++)
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
	for (uint16_t i = 0; i < s->r.config.n_rails && !s->wrong[0]; i++)
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
	if (c->n_admit_waiting)
		wrong(s, "%u reads wait for a budget", c->n_admit_waiting);
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
	uint64_t before = stat_get(carried), end_ns = s->r.now_ns + BACK_NS;
	uint32_t n_trips = report_of(s, rail).n_trips, n_news = 0;

	while (stat_get(carried) == before && !s->wrong[0]) {
		struct ry_cqe cqe = rig_read(&s->r, s->r.client, o->key, 0, UINT64_MAX, RY_F_FAILOVER);

		/* All of them may still be on their way back, and one may bring the news that the peer was restarted.
		 */
		if (cqe.status == RY_ERR_PEER_RESTARTED && n_news++ < s->r.config.n_rails)
			continue;
		if (cqe.status != RY_ERR_NO_RAIL && !rig_same(s->r.client, &cqe, o->data, o->bytes))
			wrong(s, "without faults: status %u: %s", cqe.status, rig_slot(s->r.client, &cqe)->cause);
		rig_release(&s->r, s->r.client, cqe.lease_id);
		rig_run(&s->r, 5 * MS);
		if (sit_out(s, rail))
			end_ns = s->r.now_ns + BACK_NS;
		if (s->r.now_ns > end_ns || report_of(s, rail).n_trips > n_trips + TRIPS_MOST)
			wrong(s, "without faults rail%u carries nothing, and was tripped %u times", rail,
				report_of(s, rail).n_trips - n_trips);
	}
}

/* The rest of a pause that no probe ends, in longer steps. false: there is none. */
static bool sit_out(struct soak *s, uint16_t rail)
{
	struct rail_health_report report = report_of(s, rail);

	if (!report.cooldown_left_ns || (!report.is_damped && s->r.config.health.probe_interval_secs))
		return false;
	s->n_sat_out++;
	s->r.step_ns = MS;
	rig_run(&s->r, report.cooldown_left_ns);
	s->r.step_ns = RIG_STEP_NS;
	return true;
}

static struct rail_health_report report_of(struct soak *s, uint16_t rail)
{
	const struct health *h = &s->r.node->control->health;
	struct rail_health_report report = {0};

	if (!rail_health_get_report(&h->breakers, health_preferred(h, 0, rail), s->r.now_ns, &report))
		wrong(s, "rail%u has no breaker", rail);
	return report;
}
