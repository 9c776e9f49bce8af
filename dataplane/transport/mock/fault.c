/* SPDX-License-Identifier: BSD-3-Clause */
/* Fault plans as text, and what makes a plan valid. */
#include "transport/mock/fault.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "transport/mock/fault_text.h"
#include "transport/transport.h"

#define TIME_MAX_NS 86400000000000ull
#define ALL_KINDS (~(1u << FAULT_NONE))
#define RAIL_KINDS (1u << FAULT_DISCONNECT | 1u << FAULT_STALL | 1u << FAULT_SLOW | 1u << FAULT_RESTART)
#define MESSAGE_KINDS (1u << FAULT_LOSE | 1u << FAULT_DUPLICATE | 1u << FAULT_REORDER)
#define WAIT_KINDS (1u << FAULT_STALL | 1u << FAULT_LATE | 1u << FAULT_SLOW | 1u << FAULT_REORDER)
#define REORDER_WAIT_NS 1000000u

/* One row per key; a kind that a row does not name has no such key. */
struct key {
	const char *name;
	uint32_t kinds; /* bits */
	bool (*read)(struct fault_entry *e, const char *value);
	const char *hint;
};

struct problem {
	char *text;
	uint32_t bytes;
};

static const char *check_entry(const struct fault_entry *e);
static const char *check_trigger(const struct fault_entry *e);
static const char *check_argument(const struct fault_entry *e);
static int say(const struct problem *p, const char *format, ...) __attribute__((format(printf, 2, 3)));
static int read_item(char *item, struct fault_plan *plan, const struct problem *p);
static int read_keys(char *keys, struct fault_entry *e, const struct problem *p);
static void set_defaults(struct fault_entry *e);
static bool read_trigger(struct fault_entry *e, uint8_t trigger, uint64_t at);
static bool read_at(struct fault_entry *e, const char *value);
static bool read_n(struct fault_entry *e, const char *value);
static bool read_after(struct fault_entry *e, const char *value);
static bool read_stripe(struct fault_entry *e, const char *value);
static bool read_every(struct fault_entry *e, const char *value);
static bool read_repeat(struct fault_entry *e, const char *value);
static bool read_chance(struct fault_entry *e, const char *value);
static bool read_for(struct fault_entry *e, const char *value);
static bool read_bytes_arg(struct fault_entry *e, const char *value);
static bool read_count_arg(struct fault_entry *e, const char *value);
static bool read_factor(struct fault_entry *e, const char *value);
static bool read_class(struct fault_entry *e, const char *value);
static bool read_of(struct fault_entry *e, const char *value);
static bool read_guard(struct fault_entry *e, const char *value);
static void print_entry(struct fault_text *t, const struct fault_entry *e);
static void print_trigger(struct fault_text *t, const struct fault_entry *e);
static void print_amount(struct fault_text *t, const char *key, uint8_t trigger, uint64_t value);
static void print_argument(struct fault_text *t, const struct fault_entry *e);

static const char *const kinds[] = {"", "disconnect", "stall", "short", "corrupt", "late", "slow", "lose", "duplicate",
	"reorder", "error", "restart", NULL};
static const char *const messages[] = {"answers", "requests", "cancels", "all", NULL};
static const char *const classes[] = {"", "peer_closed", "retry", "rnr", "access", "local", "flush", "protocol", NULL};
static const char *const guards[] = {"on", "off", NULL};
static_assert(sizeof(kinds) / sizeof(kinds[0]) == FAULT_KINDS_ + 1, "a name for each kind");
static_assert(sizeof(classes) / sizeof(classes[0]) == WC_ERR_PROTOCOL + 2, "a name for each class");

/* `every` means what the trigger counts, so it must come behind it. */
static const struct key keys[] = {
	{"at", ALL_KINDS, read_at, "bytes, like at=1MiB"},
	{"n", ALL_KINDS, read_n, "a count from 1, like n=3"},
	{"after", ALL_KINDS, read_after, "a time, like after=10ms"},
	{"stripe", 1u << FAULT_CORRUPT, read_stripe, "a stripe's number, like stripe=0"},
	{"every", ALL_KINDS, read_every, "in the unit of at, n or after, and behind it"},
	{"repeat", ALL_KINDS, read_repeat, "a count from 1, or forever"},
	{"p", ALL_KINDS, read_chance, "a chance from 0.000001 to 1, like p=0.1"},
	{"for", WAIT_KINDS, read_for, "a time, like for=2s"},
	{"by", 1u << FAULT_SHORT, read_bytes_arg, "bytes, like by=4KiB"},
	{"byte", 1u << FAULT_CORRUPT, read_count_arg, "which byte, like byte=17"},
	{"behind", 1u << FAULT_REORDER, read_count_arg, "a count from 1, like behind=2"},
	{"factor", 1u << FAULT_SLOW, read_factor, "from 0.000001 to 1, like factor=0.1"},
	{"class", 1u << FAULT_ERROR, read_class, "peer_closed, retry, rnr, access, local, flush or protocol"},
	{"of", MESSAGE_KINDS, read_of, "answers, requests, cancels or all"},
	{"guard", 1u << FAULT_LATE, read_guard, "on or off"},
};

const char *fault_kind_name(enum fault_kind kind)
{
	return kind > FAULT_NONE && kind < FAULT_KINDS_ ? kinds[kind] : NULL;
}

/* ---- valid or not ---- */

int fault_check(const struct fault_plan *plan, char *message, uint32_t message_bytes)
{
	struct problem p = {message, message_bytes};

	if (plan->n_entries > FAULT_ENTRIES_MAX)
		return say(&p, "faults: %u are more than the %u of a plan", plan->n_entries, FAULT_ENTRIES_MAX);
	for (uint32_t i = 0; i < plan->n_entries; i++) {
		const char *name = fault_kind_name(plan->entries[i].kind), *what = check_entry(&plan->entries[i]);

		if (what)
			return say(&p, "fault %u (%s): %s", i + 1, name ? name : "unknown", what);
	}
	return 0;
}

static const char *check_entry(const struct fault_entry *e)
{
	const char *what;

	if (!fault_kind_name(e->kind))
		return "no such kind of fault";
	what = check_trigger(e);
	if (what)
		return what;
	if (e->of > FAULT_OF_ALL || (e->of && !(MESSAGE_KINDS >> e->kind & 1)))
		return "of: only for messages: answers, requests, cancels or all";
	if (e->is_unguarded > 1 || (e->is_unguarded && e->kind != FAULT_LATE))
		return "guard: only for late";
	if (e->for_ns && !(WAIT_KINDS >> e->kind & 1))
		return "for: this fault takes no time";
	if (e->for_ns > TIME_MAX_NS)
		return "for: at most 24 hours";
	return check_argument(e);
}

static const char *check_trigger(const struct fault_entry *e)
{
	if (e->trigger < FAULT_AT_COUNT || e->trigger > FAULT_AT_STRIPE)
		return "no trigger: give one of at, n, after";
	if (e->trigger == FAULT_AT_COUNT && !e->at)
		return "n: counts from 1";
	if (e->trigger == FAULT_AT_TIME && (e->at > TIME_MAX_NS || e->every > TIME_MAX_NS))
		return "after, every: at most 24 hours";
	if (e->trigger == FAULT_AT_BYTES && (e->at > INT64_MAX || e->every > INT64_MAX))
		return "at, every: too many bytes";
	if (e->trigger == FAULT_AT_STRIPE && (e->kind != FAULT_CORRUPT || e->every || e->at > UINT32_MAX))
		return "stripe: only for corrupt, and without every";
	if (!e->chance_ppm || e->chance_ppm > FAULT_ALWAYS_PPM)
		return "p: from 0.000001 to 1";
	/* Else the chance would depend on how often the rail is polled. */
	if (e->chance_ppm < FAULT_ALWAYS_PPM && !e->every && RAIL_KINDS >> e->kind & 1)
		return "p: needs every, which says when to draw";
	return NULL;
}

static const char *check_argument(const struct fault_entry *e)
{
	switch (e->kind) {
	case FAULT_STALL:
		return e->for_ns && !e->arg ? NULL : "for: must say how long, like for=2s";
	case FAULT_SHORT:
		return e->arg <= RY_STRIPE_MAX_BYTES ? NULL : "by: larger than any write";
	case FAULT_CORRUPT:
		return e->arg == FAULT_BYTE_ANY || e->arg < RY_STRIPE_MAX_BYTES ? NULL : "byte: beyond any stripe";
	case FAULT_SLOW:
		return e->arg && e->arg <= FAULT_ALWAYS_PPM ? NULL : "factor: from 0.000001 to 1";
	case FAULT_REORDER:
		return e->arg && e->arg <= 1024 && e->for_ns ? NULL
							     : "behind: from 1 to 1024; for: must say how long to wait";
	case FAULT_ERROR:
		return e->arg > WC_OK && e->arg <= WC_ERR_PROTOCOL ? NULL : "class: must name an error";
	default:
		return e->arg ? "takes no argument" : NULL;
	}
}

static int say(const struct problem *p, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	if (p->bytes)
		vsnprintf(p->text, p->bytes, format, args);
	va_end(args);
	return -EINVAL;
}

/* ---- reading ---- */

int fault_parse(const char *text, struct fault_plan *out, char *message, uint32_t message_bytes)
{
	struct problem p = {message, message_bytes};
	char copy[FAULT_TEXT_BYTES], *rest = copy, *item;
	struct fault_plan plan = {0};
	int rc = 0;

	if (strlen(text) >= sizeof(copy))
		return say(&p, "faults: longer than %u bytes", FAULT_TEXT_BYTES - 1);
	memcpy(copy, text, strlen(text) + 1);
	while (!rc && (item = strsep(&rest, ";")) != NULL)
		rc = read_item(fault_trim(item), &plan, &p);
	if (!rc)
		rc = fault_check(&plan, message, message_bytes);
	if (!rc)
		*out = plan;
	return rc;
}

static int read_item(char *item, struct fault_plan *plan, const struct problem *p)
{
	char *name = strsep(&item, ":");
	struct fault_entry e = {0};
	int kind, rc;

	if (!*name && !item)
		return 0; /* nothing between two semicolons */
	if (!strncmp(name, "seed=", 5))
		return fault_number(name + 5, &plan->seed) && !item ? 0 : say(p, "seed: must be a number, like seed=7");
	kind = fault_word(kinds, fault_trim(name));
	if (kind <= FAULT_NONE)
		return say(p,
			"faults: no fault is called '%s': disconnect, stall, short, corrupt, late, slow, lose, "
			"duplicate, "
			"reorder, error, restart",
			name);
	if (plan->n_entries == FAULT_ENTRIES_MAX)
		return say(p, "faults: more than %u", FAULT_ENTRIES_MAX);
	e.kind = (uint8_t)kind;
	set_defaults(&e);
	rc = read_keys(item, &e, p);
	if (rc)
		return rc;
	if (!e.trigger) {
		e.trigger = RAIL_KINDS >> kind & 1 || kind == FAULT_ERROR ? FAULT_AT_TIME : FAULT_AT_COUNT;
		e.at = e.trigger == FAULT_AT_COUNT;
	}
	plan->entries[plan->n_entries++] = e;
	return 0;
}

static void set_defaults(struct fault_entry *e)
{
	e->chance_ppm = FAULT_ALWAYS_PPM;
	e->repeat = 1;
	if (e->kind == FAULT_CORRUPT)
		e->arg = FAULT_BYTE_ANY;
	if (e->kind == FAULT_REORDER) {
		e->arg = 1;
		e->for_ns = REORDER_WAIT_NS;
	}
}

static int read_keys(char *text, struct fault_entry *e, const struct problem *p)
{
	const char *kind = kinds[e->kind];
	char *pair;

	while ((pair = strsep(&text, ",")) != NULL) {
		char *name = fault_trim(strsep(&pair, "="));
		const struct key *k = keys, *end = keys + sizeof(keys) / sizeof(keys[0]);

		while (k < end && (strcmp(k->name, name) || !(k->kinds >> e->kind & 1)))
			k++;
		if (k == end)
			return say(p, "%s: has no key '%s'", kind, name);
		if (!pair || !k->read(e, fault_trim(pair)))
			return say(p, "%s: %s: must be %s", kind, name, k->hint);
	}
	return 0;
}

static bool read_trigger(struct fault_entry *e, uint8_t trigger, uint64_t at)
{
	if (e->trigger)
		return false; /* one is enough */
	e->trigger = trigger;
	e->at = at;
	return true;
}

static bool read_at(struct fault_entry *e, const char *value)
{
	uint64_t at;

	return fault_size(value, &at) && read_trigger(e, FAULT_AT_BYTES, at);
}

static bool read_n(struct fault_entry *e, const char *value)
{
	uint64_t at;

	return fault_number(value, &at) && at && read_trigger(e, FAULT_AT_COUNT, at);
}

static bool read_after(struct fault_entry *e, const char *value)
{
	uint64_t at;

	return fault_time(value, &at) && read_trigger(e, FAULT_AT_TIME, at);
}

static bool read_stripe(struct fault_entry *e, const char *value)
{
	uint64_t at;

	return fault_number(value, &at) && read_trigger(e, FAULT_AT_STRIPE, at);
}

static bool read_every(struct fault_entry *e, const char *value)
{
	uint64_t every;
	bool is_good = e->trigger == FAULT_AT_BYTES  ? fault_size(value, &every)
		       : e->trigger == FAULT_AT_TIME ? fault_time(value, &every)
						     : e->trigger == FAULT_AT_COUNT && fault_number(value, &every);

	if (!is_good || !every)
		return false;
	e->every = every;
	return true;
}

static bool read_repeat(struct fault_entry *e, const char *value)
{
	uint64_t n;

	if (!strcmp(value, "forever"))
		n = FAULT_FOREVER;
	else if (!fault_number(value, &n) || !n || n > UINT32_MAX)
		return false;
	e->repeat = (uint32_t)n;
	return true;
}

static bool read_chance(struct fault_entry *e, const char *value)
{
	return fault_ppm(value, &e->chance_ppm) && e->chance_ppm;
}

static bool read_for(struct fault_entry *e, const char *value)
{
	return fault_time(value, &e->for_ns);
}

static bool read_bytes_arg(struct fault_entry *e, const char *value)
{
	return fault_size(value, &e->arg);
}

static bool read_count_arg(struct fault_entry *e, const char *value)
{
	return fault_number(value, &e->arg);
}

static bool read_factor(struct fault_entry *e, const char *value)
{
	uint32_t ppm;

	if (!fault_ppm(value, &ppm) || !ppm)
		return false;
	e->arg = ppm;
	return true;
}

static bool read_class(struct fault_entry *e, const char *value)
{
	int class = fault_word(classes, value);

	e->arg = (uint64_t) class;
	return class > WC_OK;
}

static bool read_of(struct fault_entry *e, const char *value)
{
	int of = fault_word(messages, value);

	e->of = (uint8_t)of;
	return of >= 0;
}

static bool read_guard(struct fault_entry *e, const char *value)
{
	int guard = fault_word(guards, value);

	e->is_unguarded = guard == 1;
	return guard >= 0;
}

/* ---- printing ---- */

uint32_t fault_format(const struct fault_plan *plan, char *text, uint32_t text_bytes)
{
	struct fault_text t = {text, text_bytes, 0};

	fault_put(&t, "%s", "");
	for (uint32_t i = 0; i < plan->n_entries; i++) {
		fault_put(&t, "%s", i ? "; " : "");
		print_entry(&t, &plan->entries[i]);
	}
	if (plan->seed)
		fault_put(&t, "%sseed=%" PRIu64, plan->n_entries ? "; " : "", plan->seed);
	return t.len;
}

static void print_entry(struct fault_text *t, const struct fault_entry *e)
{
	fault_put(t, "%s:", kinds[e->kind]);
	print_trigger(t, e);
	print_argument(t, e);
	if (e->repeat == FAULT_FOREVER)
		fault_put(t, ",repeat=forever");
	else if (e->repeat > 1)
		fault_put(t, ",repeat=%u", e->repeat);
	if (e->chance_ppm < FAULT_ALWAYS_PPM)
		fault_put(t, ",p=0.%06u", e->chance_ppm);
	if (e->of)
		fault_put(t, ",of=%s", messages[e->of]);
	if (e->is_unguarded)
		fault_put(t, ",guard=off");
	if (e->for_ns)
		print_amount(t, ",for", FAULT_AT_TIME, e->for_ns);
}

static void print_trigger(struct fault_text *t, const struct fault_entry *e)
{
	static const char *const names[] = {"", "n", "at", "after", "stripe"};

	print_amount(t, names[e->trigger], e->trigger, e->at);
	if (e->every)
		print_amount(t, ",every", e->trigger, e->every);
}

static void print_amount(struct fault_text *t, const char *key, uint8_t trigger, uint64_t value)
{
	fault_put(t, "%s=", key);
	if (trigger == FAULT_AT_BYTES)
		fault_put_size(t, value);
	else if (trigger == FAULT_AT_TIME)
		fault_put_time(t, value);
	else
		fault_put(t, "%" PRIu64, value);
}

static void print_argument(struct fault_text *t, const struct fault_entry *e)
{
	if (e->kind == FAULT_SHORT && e->arg)
		print_amount(t, ",by", FAULT_AT_BYTES, e->arg);
	else if (e->kind == FAULT_CORRUPT && e->arg != FAULT_BYTE_ANY)
		fault_put(t, ",byte=%" PRIu64, e->arg);
	else if (e->kind == FAULT_SLOW)
		fault_put(t, ",factor=%u.%06u", (unsigned)(e->arg / FAULT_ALWAYS_PPM),
			(unsigned)(e->arg % FAULT_ALWAYS_PPM));
	else if (e->kind == FAULT_REORDER)
		fault_put(t, ",behind=%" PRIu64, e->arg);
	else if (e->kind == FAULT_ERROR)
		fault_put(t, ",class=%s", classes[e->arg]);
}
