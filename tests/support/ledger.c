/* SPDX-License-Identifier: BSD-3-Clause */
#include "ledger.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exits.h"
#include "read/control_priv.h"

#define OPS_MOST 4096u
#define XFERS_MOST 2048u
#define CLIENTS_MOST 64u
#define ROWS_MOST 4096u

/* A read's place among the reads. */
struct op_row {
	const struct client_state *payer; /* NULL = not charged */
	unsigned waited;
};

/* A transfer's bytes in the budgets of node and client. */
struct xfer_row {
	const struct client_state *payer;
	uint64_t bytes;
};

/* A segment's bytes on its rail and, while that lives, its connection. */
struct seg_row {
	const struct segment *seg;
	const struct xfer *xfer;
	uint32_t bytes;
	uint32_t epoch;
	uint16_t rail;
	uint16_t pair;
	bool is_on_path;
};

struct extent_row {
	const struct extent_map *map;
	uint64_t offset, bytes;
};

/* Wrapped functions have no place for a test's pointer: one context per process. */
static struct {
	struct control *c;
	char wrong[512];
	struct op_row ops[OPS_MOST];
	struct xfer_row xfers[XFERS_MOST];
	uint32_t n_segs;
	struct seg_row segs[ROWS_MOST];
	uint32_t n_extents;
	struct extent_row extents[ROWS_MOST];
	uint32_t n_sources;
	const void *sources[ROWS_MOST];
	uint32_t n_writing;
	const void *writing[ROWS_MOST];
	/* sums of the rows */
	uint64_t reads, bytes;
	uint64_t client_reads[CLIENTS_MOST], client_bytes[CLIENTS_MOST];
	uint64_t rail_bytes[RY_RAILS_MAX];
	uint64_t path_bytes[PAIRS_MAX];
} books;

static void wrong(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void compare(const char *where);
static void compare_rails(const char *where);
static void charge_op(const struct op *op, const char *where);
static void free_op_row(const struct op *op);
static struct seg_row *find_seg(const struct segment *s);
static bool drop(const void **list, uint32_t *n, const void *what);
static void audit_clients(void);
static void audit_xfers(void);

#define WRAP(result, name, ...)                                                                                        \
	result __real_##name(__VA_ARGS__);                                                                             \
	result __wrap_##name(__VA_ARGS__)
WRAP(bool, admit_enter, struct control *c, struct op *op);
WRAP(void, lookup_start, struct control *c, struct op *op);
WRAP(bool, admit_bytes, struct control *c, struct op *op, uint64_t bytes);
WRAP(void, admit_leave, struct control *c, struct op *op);
WRAP(void, admit_release, struct control *c, struct xfer *x);
WRAP(void, rings_complete, struct control *c, struct op *op, const struct xfer *x, const struct ry_cqe *fill);
WRAP(void, xfer_fail, struct control *c, struct xfer *x, uint32_t status, uint16_t rail, const char *cause);
WRAP(bool, rail_hand_out, struct rail *rail, struct segment *s);
WRAP(void, path_done, struct control *c, const struct segment *s);
WRAP(void, path_up, struct control *c, const struct pair *pair, uint16_t peer_idx);
WRAP(void, path_down, struct control *c, const struct pair *pair);
WRAP(void, seg_free, struct control *c, struct segment *s);
WRAP(uint64_t, extent_alloc, struct extent_map *m, uint64_t bytes);
WRAP(void, extent_free, struct extent_map *m, uint64_t offset, uint64_t bytes);
WRAP(struct source *, source_alloc, struct source_table *t);
WRAP(void, source_release, struct source_table *t, struct source *s);
WRAP(enum ry_status, store_put_begin, struct store *s, const void *key, uint16_t key_bytes, uint32_t stripe_bytes,
	bool is_if_absent, uint64_t ttl_ns, uint64_t now_ns, struct object **out);
WRAP(enum ry_status, store_put_commit, struct store *s, struct object *o, uint64_t size_bytes, uint64_t now_ns);
WRAP(void, store_put_abort, struct store *s, struct object *o);

/* Memory that was taken before is in the books already. */
void ledger_begin(struct rig *r)
{
	books.c = r->node->control;
	if (books.c->n_ops > OPS_MOST || books.c->n_xfers > XFERS_MOST || books.c->config->max_clients > CLIENTS_MOST)
		wrong("the books are too small for this configuration");
}

const char *ledger_wrong(void)
{
	return books.wrong;
}

/* The first finding is the one that counts. */
static void wrong(const char *format, ...)
{
	va_list args;

	if (books.wrong[0])
		return;
	va_start(args, format);
	vsnprintf(books.wrong, sizeof(books.wrong), format, args);
	va_end(args);
}

static uint32_t number(const struct client_state *cs)
{
	return (uint32_t)(cs - books.c->clients);
}

static void compare(const char *where)
{
	const struct control *c = books.c;

	if (!c)
		return;
	if (c->inflight_reads != books.reads || c->inflight_bytes != books.bytes)
		wrong("%s: the node's budgets say %u reads and %" PRIu64 " bytes, their charges sum up to %" PRIu64
		      " and %" PRIu64,
			where, c->inflight_reads, c->inflight_bytes, books.reads, books.bytes);
	for (uint32_t i = 0; i < c->config->max_clients; i++) {
		const struct client_state *cs = &c->clients[i];

		if (cs->n_reads != books.client_reads[i] || cs->inflight_bytes != books.client_bytes[i])
			wrong("%s: the budgets of client %u say %u reads and %" PRIu64
			      " bytes, its charges sum up to %" PRIu64 " and %" PRIu64,
				where, i, cs->n_reads, cs->inflight_bytes, books.client_reads[i],
				books.client_bytes[i]);
	}
}

static void compare_rails(const char *where)
{
	const struct control *c = books.c;
	uint32_t n_busy[RY_RAILS_MAX] = {0};

	if (!c)
		return;
	for (uint32_t i = 0; i < PAIRS_MAX; i++) {
		const struct path *p = &c->paths[i];

		if (p->inflight_bytes != books.path_bytes[i])
			wrong("%s: connection %u has %" PRIu64 " bytes, its charges sum up to %" PRIu64, where, i,
				p->inflight_bytes, books.path_bytes[i]);
		n_busy[p->rail_idx] += books.path_bytes[i] != 0;
	}
	for (uint16_t r = 0; r < c->n_rails; r++) {
		const struct rail_ctx *rs = &c->rails[r];

		if (rs->inflight_bytes != books.rail_bytes[r] || rs->n_busy_paths != n_busy[r])
			wrong("%s: rail %u has %" PRIu64
			      " bytes and %u busy connections, its charges sum up to %" PRIu64 " and %u",
				where, r, rs->inflight_bytes, rs->n_busy_paths, books.rail_bytes[r], n_busy[r]);
	}
}

/* ---- Reads ---- */

static struct op_row *row_of(const struct op *op)
{
	return &books.ops[op - books.c->ops];
}

static void charge_op(const struct op *op, const char *where)
{
	struct op_row *row = row_of(op);

	if (row->payer)
		wrong("%s: read %" PRIu64 " is charged twice", where, op->ticket);
	row->payer = op->cs;
	books.reads++;
	books.client_reads[number(op->cs)]++;
	if (books.reads > books.c->limits.max_reads ||
		books.client_reads[number(op->cs)] > books.c->limits.client_max_reads)
		wrong("%s: read %" PRIu64 " was let in above the limit", where, op->ticket);
	compare(where);
}

static void free_op_row(const struct op *op)
{
	struct op_row *row = row_of(op);

	if (!row->payer)
		return;
	books.reads--;
	books.client_reads[number(row->payer)]--;
	row->payer = NULL;
}

bool __wrap_admit_enter(struct control *c, struct op *op)
{
	bool is_in = __real_admit_enter(c, op);

	if (is_in)
		charge_op(op, "admit_enter");
	else if (op->state == OP_ADMIT)
		row_of(op)->waited |= WAITED_PLACE;
	compare("admit_enter");
	return is_in;
}

/* A read comes here charged; the first time after it waited, it was charged on the way. */
void __wrap_lookup_start(struct control *c, struct op *op)
{
	if (op->kind == RY_OP_READ && !row_of(op)->payer)
		charge_op(op, "admit_pump");
	__real_lookup_start(c, op);
	compare("lookup_start");
}

void __wrap_admit_leave(struct control *c, struct op *op)
{
	free_op_row(op);
	__real_admit_leave(c, op);
	compare("admit_leave");
}

void __wrap_rings_complete(struct control *c, struct op *op, const struct xfer *x, const struct ry_cqe *fill)
{
	struct op_row *row = row_of(op);

	if (row->payer)
		wrong("read %" PRIu64 " ends (%u) and is still counted", op->ticket, op->status);
	exits_of_op(c, op, x, row->waited);
	row->waited = 0;
	compare("rings_complete");
	__real_rings_complete(c, op, x, fill);
}

/* ---- Bytes ---- */

bool __wrap_admit_bytes(struct control *c, struct op *op, uint64_t bytes)
{
	const struct xfer *x = TAILQ_LAST(&c->used_xfers, xfer_list); /* made for this read a moment ago */
	struct xfer_row *row = &books.xfers[x - c->xfers];

	if (!__real_admit_bytes(c, op, bytes)) {
		if (op->state == OP_ADMIT)
			row_of(op)->waited |= WAITED_BYTES;
		compare("admit_bytes");
		return false;
	}
	if (row->payer || x->cs != op->cs || x->total_bytes != bytes)
		wrong("admit_bytes: read %" PRIu64 " and its transfer do not belong together", op->ticket);
	*row = (struct xfer_row){op->cs, bytes};
	books.bytes += bytes;
	books.client_bytes[number(op->cs)] += bytes;
	if (books.bytes > c->limits.inflight_max_bytes ||
		books.client_bytes[number(op->cs)] > c->limits.client_inflight_max_bytes)
		wrong("admit_bytes: read %" PRIu64 " was let in above the limit", op->ticket);
	compare("admit_bytes");
	return true;
}

void __wrap_admit_release(struct control *c, struct xfer *x)
{
	struct xfer_row *row = &books.xfers[x - c->xfers];

	if (row->payer) {
		books.bytes -= row->bytes;
		books.client_bytes[number(row->payer)] -= row->bytes;
		row->payer = NULL;
	}
	__real_admit_release(c, x);
	compare("admit_release");
}

void __wrap_xfer_fail(struct control *c, struct xfer *x, uint32_t status, uint16_t rail, const char *cause)
{
	if (!x->is_failed) {
		exits_of_xfer(x);
		exit_counts[WAY_REFRESH] += x->kind == XFER_READ && !x->owner;
	}
	__real_xfer_fail(c, x, status, rail, cause);
	compare("xfer_fail");
}

/* ---- Rails ---- */

static struct seg_row *find_seg(const struct segment *s)
{
	for (uint32_t i = 0; i < books.n_segs; i++) {
		if (books.segs[i].seg == s)
			return &books.segs[i];
	}
	return NULL;
}

bool __wrap_rail_hand_out(struct rail *rail, struct segment *s)
{
	bool is_charged = s->kind == SEG_READ || s->kind == SEG_PULL;

	if (find_seg(s) || (is_charged && books.n_segs == ROWS_MOST))
		wrong("rail_hand_out: a segment that is out goes out again");
	else if (is_charged) {
		books.segs[books.n_segs++] = (struct seg_row){.seg = s,
			.xfer = s->owner,
			.bytes = s->len_bytes,
			.epoch = s->owner_aux,
			.rail = s->rail_idx,
			.pair = s->pair_idx,
			.is_on_path = true};
		books.rail_bytes[s->rail_idx] += s->len_bytes;
		books.path_bytes[s->pair_idx] += s->len_bytes;
		if (books.rail_bytes[s->rail_idx] > books.c->rails[s->rail_idx].inflight_max_bytes)
			wrong("rail_hand_out: rail %u holds more than its budget", s->rail_idx);
		if (books.c->paths[s->pair_idx].epoch != s->owner_aux)
			wrong("rail_hand_out: to a connection that is gone");
	}
	compare_rails("rail_hand_out");
	return __real_rail_hand_out(rail, s);
}

/* Every segment that comes back passes here, with its charge just released. */
void __wrap_path_done(struct control *c, const struct segment *s)
{
	struct seg_row *row = find_seg(s);

	if (s->kind == SEG_READ || s->kind == SEG_PULL) {
		if (!row || row->rail != s->rail_idx || row->pair != s->pair_idx || row->xfer != s->owner) {
			wrong("a segment came back that was not out, or on another rail");
		} else {
			books.rail_bytes[row->rail] -= row->bytes;
			books.path_bytes[row->pair] -= row->is_on_path ? row->bytes : 0;
			*row = books.segs[--books.n_segs];
		}
		compare_rails("release_rail");
		exits_of_segment(c, s);
	}
	__real_path_done(c, s);
}

void __wrap_path_up(struct control *c, const struct pair *pair, uint16_t peer_idx)
{
	if (books.path_bytes[pair->idx])
		wrong("path_up: connection %u begins with the charges of its predecessor", pair->idx);
	__real_path_up(c, pair, peer_idx);
}

void __wrap_path_down(struct control *c, const struct pair *pair)
{
	for (uint32_t i = 0; i < books.n_segs; i++) {
		struct seg_row *row = &books.segs[i];

		if (row->pair != pair->idx || row->epoch != pair->epoch || !row->is_on_path)
			continue;
		row->is_on_path = false;
		books.path_bytes[row->pair] -= row->bytes;
	}
	__real_path_down(c, pair);
	compare_rails("path_down");
}

void __wrap_seg_free(struct control *c, struct segment *s)
{
	if (find_seg(s))
		wrong("seg_free: a segment is freed that is still charged to rail %u", s->rail_idx);
	__real_seg_free(c, s);
}

/* ---- Memory: arenas, metadata, the store's slab ---- */

uint64_t __wrap_extent_alloc(struct extent_map *m, uint64_t bytes)
{
	uint64_t offset = __real_extent_alloc(m, bytes);

	if (offset == EXTENT_NONE)
		return offset;
	if (books.n_extents == ROWS_MOST)
		wrong("extent_alloc: the books are full");
	else
		books.extents[books.n_extents++] = (struct extent_row){m, offset, bytes};
	return offset;
}

void __wrap_extent_free(struct extent_map *m, uint64_t offset, uint64_t bytes)
{
	for (uint32_t i = 0; i < books.n_extents; i++) {
		struct extent_row *row = &books.extents[i];

		if (row->map != m || row->offset != offset)
			continue;
		if (row->bytes != bytes)
			wrong("extent_free: %" PRIu64 " bytes of %" PRIu64, bytes, row->bytes);
		*row = books.extents[--books.n_extents];
		__real_extent_free(m, offset, bytes);
		return;
	}
	wrong("extent_free: %" PRIu64 " bytes at %" PRIu64 " are freed twice", bytes, offset);
}

/* ---- Puts: sources of writers, objects of the store that are not published ---- */

static bool drop(const void **list, uint32_t *n, const void *what)
{
	for (uint32_t i = 0; i < *n; i++) {
		if (list[i] != what)
			continue;
		list[i] = list[--*n];
		return true;
	}
	return false;
}

struct source *__wrap_source_alloc(struct source_table *t)
{
	struct source *s = __real_source_alloc(t);

	if (s && books.n_sources < ROWS_MOST)
		books.sources[books.n_sources++] = s;
	return s;
}

void __wrap_source_release(struct source_table *t, struct source *s)
{
	if (!drop(books.sources, &books.n_sources, s))
		wrong("source_release: a source is released twice");
	__real_source_release(t, s);
}

enum ry_status __wrap_store_put_begin(struct store *s, const void *key, uint16_t key_bytes, uint32_t stripe_bytes,
	bool is_if_absent, uint64_t ttl_ns, uint64_t now_ns, struct object **out)
{
	enum ry_status status =
		__real_store_put_begin(s, key, key_bytes, stripe_bytes, is_if_absent, ttl_ns, now_ns, out);

	if (status == RY_OK && books.n_writing < ROWS_MOST)
		books.writing[books.n_writing++] = *out;
	return status;
}

/* Whatever it answers, the object is not the put's any more. */
enum ry_status __wrap_store_put_commit(struct store *s, struct object *o, uint64_t size_bytes, uint64_t now_ns)
{
	if (!drop(books.writing, &books.n_writing, o))
		wrong("store_put_commit: an object that no put has begun");
	return __real_store_put_commit(s, o, size_bytes, now_ns);
}

void __wrap_store_put_abort(struct store *s, struct object *o)
{
	if (!drop(books.writing, &books.n_writing, o))
		wrong("store_put_abort: an object that no put has begun");
	exit_counts[PUT_ABORTED]++;
	__real_store_put_abort(s, o);
}

/* ---- Between two turns ---- */

void ledger_audit(void)
{
	compare("between two turns");
	compare_rails("between two turns");
	audit_clients();
	audit_xfers();
}

static void audit_clients(void)
{
	const struct control *c = books.c;
	uint32_t n_waiting = 0, n_leases = 0, n_charged = 0;

	for (uint32_t i = 0; i < c->config->max_clients; i++) {
		const struct client_state *cs = &c->clients[i];
		const struct op *op;

		TAILQ_FOREACH (op, &cs->admit_queue, wait)
			n_waiting++;
		TAILQ_FOREACH (op, &cs->ops, link) {
			if (op->is_charged != (row_of(op)->payer != NULL))
				wrong("read %" PRIu64 " has the wrong note of its charge", op->ticket);
			n_charged += op->is_charged;
		}
		n_leases += cs->n_leases;
	}
	if (n_charged != books.reads)
		wrong("%u reads are charged, %" PRIu64 " are in the books", n_charged, books.reads);
	if (n_waiting != c->n_admit_waiting)
		wrong("%u reads wait, the node counts %u", n_waiting, c->n_admit_waiting);
	if (n_leases != stat_get(&c->counters->leases))
		wrong("%u leases, the gauge says %" PRIu64, n_leases, stat_get(&c->counters->leases));
}

static void audit_xfers(void)
{
	const struct control *c = books.c;
	uint64_t charged = 0, quarantined = 0;
	uint32_t n_segs = c->n_segs_free, n_jobs = c->n_jobs_free;
	const struct xfer *x;

	TAILQ_FOREACH (x, &c->used_xfers, link) {
		const struct xfer_row *row = &books.xfers[x - c->xfers];

		if (x->is_charged != (row->payer != NULL) || (x->is_charged && row->bytes != x->total_bytes))
			wrong("a transfer of %" PRIu64 " bytes has the wrong note of its charge", x->total_bytes);
		charged += row->payer ? row->bytes : 0;
		quarantined += x->is_failed && x->kind == XFER_READ ? x->total_bytes : 0;
		n_segs += x->n_out;
		for (const struct segment *s = x->orphans; s; s = s->owner_next)
			n_segs++;
		for (uint32_t i = 0; i < x->n_stripes; i++)
			n_jobs += x->stripes && x->stripes[i].job;
	}
	if (charged != books.bytes)
		wrong("%" PRIu64 " bytes are charged, %" PRIu64 " are in the books", charged, books.bytes);
	if (quarantined != stat_get(&c->counters->quarantined_bytes))
		wrong("%" PRIu64 " bytes are in quarantine, the gauge says %" PRIu64, quarantined,
			stat_get(&c->counters->quarantined_bytes));
	if (n_segs != SEGMENTS_MAX || n_jobs != JOBS_MAX)
		wrong("%u of %u segments and %u of %u stripe jobs are accounted for", n_segs, SEGMENTS_MAX, n_jobs,
			JOBS_MAX);
}

/* ---- At rest ---- */

void ledger_expect_empty(unsigned n_sources)
{
	const struct control *c = books.c;

	ledger_audit();
	if (books.reads || books.bytes || books.n_segs)
		wrong("at rest: %" PRIu64 " reads, %" PRIu64 " bytes and %u segments are charged", books.reads,
			books.bytes, books.n_segs);
	if (stat_get(&c->counters->inflight_bytes) || stat_get(&c->counters->inflight_reads) ||
		stat_get(&c->counters->quarantined_bytes) || stat_get(&c->counters->leases))
		wrong("at rest: a gauge is not zero");
	if (books.n_sources != n_sources || books.n_writing || c->n_putins || c->n_put_waits || c->n_quieting)
		wrong("at rest: %u sources of %u objects, %u objects and %u puts unfinished, %u waiting, %u not quiet",
			books.n_sources, n_sources, books.n_writing, c->n_putins, c->n_put_waits, c->n_quieting);
	for (uint32_t i = 0; i < c->n_live; i++) {
		for (uint32_t k = 0; k < books.n_extents; k++) {
			if (books.extents[k].map == c->live[i]->client->read_map)
				wrong("at rest: %" PRIu64 " bytes of a read arena are taken", books.extents[k].bytes);
		}
	}
	for (uint16_t r = 0; r < c->n_rails; r++) {
		const struct rail_counters *k = rail_counters(c->rails[r].rail);

		if (stat_get(&k->inflight_bytes))
			wrong("at rest: rail %u says that %" PRIu64 " bytes are in flight", r,
				stat_get(&k->inflight_bytes));
	}
}
