/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Segment deadlines: how a path that swallows everything is noticed while its sockets and QPs look well.
 *
 * A segment may stay unanswered for clamp(8 x p99 of the pair, 100 ms, 2 s) + 8 x its bytes / goodput, counted from the
 * later of its post and the pair's last DONE (2 s until 32 samples exist). Expiry takes the pair out of plans at once
 * (suspect) and cancels. An answer clears the suspicion: the store was slow. Silence for fence_timeout is path
 * evidence: the window is fenced, the pair killed and rebuilt.
 */
#include "read/control_priv.h"

#define LIMIT_LEAST_NS 100000000ull
#define LIMIT_MOST_NS 2000000000ull
#define SAMPLES_LEAST 32u
#define EXPLAIN_MAX_BYTES (64u + RY_RAILS_MAX * 64u + RY_CAUSE_MAX_BYTES)

static unsigned bucket_of(uint64_t latency_ns);
static uint64_t bucket_top_ns(unsigned i);
static void add_sample(struct control *c, struct path *p, const struct segment *s);
static void learn(struct control *c, struct path *p, uint16_t pair_idx);
static void carried(struct control *c, const struct path *p, uint16_t pair_idx);
static void was_silent(struct control *c, struct path *p, const struct segment *s);
static bool is_overdue(const struct control *c, const struct segment *s, const struct path *p, uint64_t from_ns);
static void expire(struct control *c, struct xfer *x, struct segment *s, struct path *p);
static void clip(const char *text, char *cause, uint32_t cause_bytes);
static const char *state_text(const struct control *c, const struct peer *p, uint16_t r);
static void died(struct control *c, struct path *p, uint16_t pair_idx);

void path_up(struct control *c, const struct pair *pair, uint16_t peer_idx)
{
	struct path *p = &c->paths[pair->idx];

	memset(p, 0, sizeof(*p));
	p->epoch = pair->epoch;
	p->peer_idx = peer_idx;
	p->rail_idx = pair->rail_idx;
}

void path_down(struct control *c, const struct pair *pair)
{
	struct path *p = &c->paths[pair->idx];

	if (p->epoch != pair->epoch)
		return;
	p->epoch = 0;
	if (p->inflight_bytes) /* what is still out was its own */
		room_give_back(&c->rails[p->rail_idx], p, p->inflight_bytes);
}

/* Two buckets per power of two of 1,024 ns. */
static unsigned bucket_of(uint64_t latency_ns)
{
	uint64_t units = latency_ns >> 10 | 1;
	unsigned log2 = 63u - (unsigned)__builtin_clzll(units);

	return RTE_MIN(2 * log2 + (unsigned)(2 * units >> log2 & 1), PATH_HIST - 1);
}

static uint64_t bucket_top_ns(unsigned i)
{
	uint64_t base = 1024ull << (i / 2);

	return i % 2 ? 2 * base : base + base / 2;
}

static void add_sample(struct control *c, struct path *p, const struct segment *s)
{
	p->hist[bucket_of(s->landed_ns - s->posted_ns)]++;
	if (unlikely(++p->n_samples % SAMPLES_LEAST == 0))
		learn(c, p, s->pair_idx);
}

static __rte_noinline void learn(struct control *c, struct path *p, uint16_t pair_idx)
{
	uint64_t below = 0;

	for (unsigned i = 0; i < PATH_HIST; i++) {
		below += p->hist[i];
		if (below * 100 >= (uint64_t)p->n_samples * 99) {
			p->p99_ns = bucket_top_ns(i);
			break;
		}
	}
	if (unlikely(p->p99_ns > LIMIT_LEAST_NS || health_remembers(&c->health, pair_idx)))
		carried(c, p, pair_idx);
	if (p->n_samples < 64 * SAMPLES_LEAST)
		return;
	/* Half of the past is forgotten, so that a path that changed is seen as it is. */
	p->n_samples = 0;
	for (unsigned i = 0; i < PATH_HIST; i++) {
		p->hist[i] /= 2;
		p->n_samples += p->hist[i];
	}
	p->n_samples = RTE_MAX(p->n_samples / SAMPLES_LEAST, 1u) * SAMPLES_LEAST;
}

/* So many answers make a success, one does not: a rail that brings a few on every connection and then breaks must open.
 */
static __rte_noinline __rte_cold void carried(struct control *c, const struct path *p, uint16_t pair_idx)
{
	unsigned least = 0;

	while (!p->hist[least])
		least++;
	health_carried(&c->health, pair_idx, bucket_top_ns(least), c->now_ns);
}

uint64_t path_limit_ns(const struct control *c, const struct path *p, uint32_t len_bytes)
{
	uint64_t goodput = c->rails[p->rail_idx].goodput;
	uint64_t wait_ns = p->n_samples < SAMPLES_LEAST ? LIMIT_MOST_NS : RTE_MIN(8 * p->p99_ns, LIMIT_MOST_NS);

	return RTE_MAX(wait_ns, LIMIT_LEAST_NS) + (goodput ? 8ull * len_bytes * 1000000000ull / goodput : 0);
}

void path_done(struct control *c, const struct segment *s)
{
	struct path *p = &c->paths[s->pair_idx];

	if (p->epoch != s->owner_aux)
		return; /* of a connection that is gone */
	if (unlikely(s->is_silent || (!s->posted_ns && p->silent_since_ns))) {
		was_silent(c, p, s);
		return;
	}
	if (!s->landed_ns)
		return; /* not answered, or never posted */
	p->last_done_ns = s->landed_ns;
	p->silent_since_ns = 0;
	if (unlikely(p->is_suspect && !p->is_killed)) {
		p->is_suspect = false;
		stat_add(&c->counters->slow_stores, 1);
	}
	add_sample(c, p, s); /* last, like was_silent: then nothing need be saved for a call */
}

/*
 * Cancelled early by its client, it proves nothing yet; a silence as long as a segment deadline does. Nor does one that
 * was never posted: but where answers are missing, so are the credits they carry.
 */
static __rte_noinline __rte_cold void was_silent(struct control *c, struct path *p, const struct segment *s)
{
	if (!p->silent_since_ns)
		p->silent_since_ns = s->posted_ns;
	if (s->is_expired || c->now_ns - p->silent_since_ns > path_limit_ns(c, p, s->len_bytes))
		died(c, p, s->pair_idx);
}

unsigned path_scan(struct control *c)
{
	unsigned n_taken = 0, n;
	struct xfer *x, *next;

	if (c->now_ns < c->deadline_scan_ns)
		return 0;
	c->deadline_scan_ns = c->now_ns + DEADLINE_SCAN_NS;
	stall_scan(c);
	/* A host that gave us no CPU for a while is not the path's fault: what came meanwhile is taken in first. */
	for (unsigned i = 0; i < DEADLINE_DRAINS && (n = aggregate(c)) > 0; i++)
		n_taken += n;
	for (x = TAILQ_FIRST(&c->used_xfers); x; x = next) {
		next = TAILQ_NEXT(x, link);
		for (struct segment *s = x->segs; s && !x->is_failed; s = s->owner_next) {
			struct path *p = &c->paths[s->pair_idx];
			uint64_t from_ns = __atomic_load_n(&s->posted_ns, __ATOMIC_RELAXED);

			if (s->kind == SEG_VERIFY || s->is_expired || !from_ns || p->epoch != s->owner_aux)
				continue;
			if (is_overdue(c, s, p, RTE_MAX(from_ns, p->last_done_ns)))
				expire(c, x, s, p);
		}
	}
	return n_taken;
}

static bool is_overdue(const struct control *c, const struct segment *s, const struct path *p, uint64_t from_ns)
{
	uint64_t limit_ns = path_limit_ns(c, p, s->len_bytes);
	uint64_t lost_ns;

	if (likely(c->now_ns <= from_ns || c->now_ns - from_ns <= limit_ns))
		return false;
	lost_ns = stall_since_ns(&c->rails[s->rail_idx].stall, c->now_ns, from_ns);
	return c->now_ns - from_ns > limit_ns + RTE_MIN(lost_ns, STALL_MOST * limit_ns);
}

static void expire(struct control *c, struct xfer *x, struct segment *s, struct path *p)
{
	char cause[RY_CAUSE_MAX_BYTES];

	p->is_suspect = true;
	s->is_expired = 1;
	stat_add(&c->counters->segments_expired, 1);
	if (!x->is_failover) {
		snprintf(cause, sizeof(cause), "rail %s: stripe %u got no answer within %" PRIu64 " ms",
			c->config->rails[s->rail_idx].name, s->parts[0].stripe_idx,
			path_limit_ns(c, p, s->len_bytes) / 1000000);
		xfer_fail(c, x, RY_ERR_TIMEOUT, s->rail_idx, cause); /* cancels all of its segments, this one too */
		return;
	}
	__atomic_store_n(&s->cancel_want, 1, __ATOMIC_RELAXED); /* ordered by rail_cancel_scan */
	c->rails[s->rail_idx].want_cancel_scan = true;
}

/* Silence: out of plans, closed, built anew. Once per connection. */
static void died(struct control *c, struct path *p, uint16_t pair_idx)
{
	if (p->is_killed)
		return;
	p->is_suspect = p->is_killed = true;
	health_lost(&c->health, pair_idx, false,
		&(struct rail_fault){.evidence = RAIL_EV_PATH, .status = RY_ERR_TIMEOUT, .connection = p->epoch},
		c->now_ns);
	stat_add(&c->counters->paths_silent, 1);
	p->kill = (struct pair_kill){
		.m = {MSG_PAIR_KILL}, .pair_idx = pair_idx, .pair_epoch = p->epoch, .reason = WIRE_BYE_REBUILD};
	spsc_push(c->d.to_conn, &p->kill);
	c->want_conn_kick = true;
}

bool path_is_eligible(const struct control *c, const struct peer_pair *pp)
{
	const struct path *p = &c->paths[pp->pair->idx];

	return !p->is_suspect && !c->rails[p->rail_idx].is_draining && health_is_available(&c->health, pp->pair->idx);
}

void path_explain(const struct control *c, uint16_t peer_idx, uint32_t reach_mask, char *cause, uint32_t cause_bytes)
{
	const struct peer *p = &c->peers[peer_idx];
	char text[EXPLAIN_MAX_BYTES];
	int n = snprintf(text, sizeof(text),
		"no rail to %s:", p->is_dialled ? c->config->stores[p->store_idx].name : "the writer");

	for (uint16_t r = 0; r < c->n_rails; r++)
		n += snprintf(text + n, sizeof(text) - (uint32_t)n, " %s %s,", c->config->rails[r].name,
			reach_mask >> r & 1 ? state_text(c, p, r) : "cannot reach this memory");
	snprintf(text + n - 1, sizeof(text) - (uint32_t)n + 1, "%s%s", p->cause[0] ? "; " : "", p->cause);
	clip(text, cause, cause_bytes);
}

/* Whole clauses: what there is no room for becomes "...". */
static void clip(const char *text, char *cause, uint32_t cause_bytes)
{
	uint32_t n = cause_bytes - sizeof("...");

	if (strlen(text) < cause_bytes) {
		strcpy(cause, text);
		return;
	}
	while (n && !(strchr(",;", text[n - 1]) && text[n] == ' '))
		n--;
	if (!n)
		n = cause_bytes - sizeof("...");
	snprintf(cause, cause_bytes, "%.*s...", (int)n, text);
}

static const char *state_text(const struct control *c, const struct peer *p, uint16_t r)
{
	uint16_t pair_idx;

	if (!(p->rail_mask >> r & 1))
		return "is not connected";
	pair_idx = p->by_rail[r].pair->idx;
	if (c->rails[r].is_draining)
		return "is drained";
	if (c->paths[pair_idx].is_suspect)
		return "does not answer";
	return health_is_available(&c->health, pair_idx) ? "is up" : "waits for its probe";
}

void path_broken(struct control *c, const struct segment *s)
{
	struct path *p = &c->paths[s->pair_idx];

	if (p->epoch == s->owner_aux)
		p->is_suspect = true;
}
