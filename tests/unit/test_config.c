/* SPDX-License-Identifier: BSD-3-Clause */
#include "daemon/config.h"
#include "daemon/config_rows.h"

#include <criterion/criterion.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GOOD                                                                                                           \
	"node: reader0\n"                                                                                              \
	"roles: [reader, store]\n"                                                                                     \
	"rails:\n"                                                                                                     \
	"  - {name: rail0, transport: tcp, address: 127.0.0.1, port: 7471, rate: 125MB/s}\n"                           \
	"  - {name: rail1, transport: mock, lcore: 7, bandwidth: 1Gbit/s, latency: 5us, copy: false}\n"                \
	"stores:\n"                                                                                                    \
	"  - {name: store0, endpoints: [{address: \"::1\", port: 7481, rail: rail0}]}\n"                               \
	"  - {name: me, self: true}\n"

static struct config c;
static struct config_error err;

/* Loads `text` from a file of its own. */
static int load(const char *text)
{
	char path[] = "/tmp/ry-config-XXXXXX";
	int fd = mkstemp(path);
	int rc;

	cr_assert_geq(fd, 0);
	cr_assert_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
	memset(&err, 0, sizeof(err));
	rc = config_load(path, &c, &err);
	unlink(path);
	return rc;
}

/* GOOD with one piece replaced. */
static int load_with(const char *piece, const char *by)
{
	const char *at = strstr(GOOD, piece);
	char text[2048];

	cr_assert_not_null(at, "%s", piece);
	snprintf(text, sizeof(text), "%.*s%s%s", (int)(at - GOOD), GOOD, by, at + strlen(piece));
	return load(text);
}

static void refused(int rc, uint32_t line, const char *what)
{
	char at[16];

	snprintf(at, sizeof(at), ":%u: ", line);
	cr_assert_eq(rc, -EINVAL, "accepted, but should have failed with %s", what);
	cr_expect_not_null(strstr(err.text, at), "no '%s' in: %s", at, err.text);
	cr_expect_not_null(strstr(err.text, what), "no '%s' in: %s", what, err.text);
}

Test(config, good_file)
{
	cr_assert_eq(load(GOOD), 0, "%s", err.text);
	cr_expect_str_eq(c.node_name, "reader0");
	cr_expect_str_eq(c.socket_path, "/run/railyard/railyard.sock");
	cr_expect(c.is_reader && c.is_store && c.want_hugepages);
	cr_expect_eq(c.idle_spin_ns, UINT64_MAX);
	cr_expect_eq(c.n_rails, 2);
	cr_expect_eq(c.rails[0].lcore, 1);
	cr_expect_eq(c.rails[0].rate_bytes_per_s, 125000000);
	cr_expect_eq(c.rails[0].sockets_per_pair, 1);
	cr_expect_eq(c.rails[0].inflight_max_bytes, 64u << 20);
	cr_expect_eq(c.rails[0].numa_node, -1);
	cr_expect_eq(c.rails[1].lcore, 7);
	cr_expect_eq(c.rails[1].mock.bandwidth_bytes_per_s, 125000000);
	cr_expect_eq(c.rails[1].mock.latency_ns, 5000);
	cr_expect_not(c.rails[1].mock.want_copy);
	cr_expect_eq(c.n_stores, 2);
	cr_expect_str_eq(c.stores[0].endpoints[0].address, "::1");
	cr_expect_eq(c.stores[0].endpoints[0].port, 7481);
	cr_expect(c.stores[1].is_self);
	cr_expect_eq(c.read_arena_bytes, 256u << 20);
	cr_expect_eq(c.read_deadline_ns, 30000000000ull);
}

Test(config, sections_override_defaults)
{
	cr_assert_eq(load(GOOD "hugepages: off\nidle: spin\nidle_spin: 20us\nsocket: /tmp/x.sock\n"
			       "reader: {policy: round_robin, ring_entries: 64, one_rail_max: 0}\n"
			       "store: {memory: 64MiB, tier: pinned}\ntimeouts: {read: 1.5s, drain: 0}\n"),
		0, "%s", err.text);
	cr_expect_not(c.want_hugepages);
	cr_expect_eq(c.idle, IDLE_SPIN);
	cr_expect_eq(c.idle_spin_ns, 20000);
	cr_expect_str_eq(c.socket_path, "/tmp/x.sock");
	cr_expect_eq(c.policy, POLICY_ROUND_ROBIN);
	cr_expect_eq(c.ring_entries, 64);
	cr_expect_eq(c.one_rail_max_bytes, 0);
	cr_expect_eq(c.store_bytes, 64u << 20);
	cr_expect_eq(c.tier, TIER_PINNED);
	cr_expect_eq(c.read_deadline_ns, 1500000000);
	cr_expect_eq(c.drain_ns, 0);
}

Test(config, missing_file_and_untouched_result)
{
	memset(&c, 0x5a, sizeof(c));
	cr_expect_eq(config_load("/nonexistent/railyard.yaml", &c, &err), -ENOENT);
	cr_expect_not_null(strstr(err.text, "/nonexistent/railyard.yaml"));
	cr_expect_eq(load_with("125MB/s", "fast"), -EINVAL);
	cr_expect_eq(c.n_rails, 0x5a5a, "a refused file must leave the result alone");
}

Test(config, unknown_keys_name_the_nearest)
{
	refused(load_with("port: 7471", "prot: 7471"), 4, "unknown key 'prot' in rails; did you mean 'port'?");
	refused(load(GOOD "timeout: {read: 1s}\n"), 9, "did you mean 'timeouts'?");
	refused(load(GOOD "reader:\n  read_areana: 1GiB\n"), 10, "in reader; did you mean 'read_arena'?");
	refused(load_with("rail: rail0", "riel: rail0"), 7, "in endpoints; did you mean 'rail'?");
	refused(load(GOOD "xyzzyplugh: 1\n"), 9, "unknown key 'xyzzyplugh'");
	cr_expect_null(strstr(err.text, "did you mean"));
}

Test(config, units_are_required)
{
	refused(load_with("125MB/s", "125"), 4, "rails[0].rate: '125' is not a rate with its unit");
	refused(load_with("5us", "5"), 5, "rails[1].latency");
	refused(load(GOOD "reader:\n  segment: 1048576\n"), 10, "reader.segment: '1048576' is not a size");
	refused(load(GOOD "timeouts:\n  read: 30\n"), 10, "timeouts.read");
	refused(load_with("125MB/s", "125mb/s"), 4, "rails[0].rate");
}

Test(config, ranges)
{
	refused(load(GOOD "timeouts: {read: 2h}\n"), 9, "timeouts.read: 2h is outside its range, 1ms to 1h");
	refused(load(GOOD "reader:\n  segment: 32KiB\n"), 10, "outside its range");
	refused(load_with("port: 7471", "port: 65536"), 4, "rails[0].port: 65536 is outside its range, 0 to 65535");
	refused(load_with("port: 7471", "port: -1"), 4, "rails[0].port: '-1' is not a whole number");
	refused(load_with("lcore: 7", "lcore: 128"), 5, "outside its range, 1 to 127");
	refused(load(GOOD "reader: {ring_entries: 100}\n"), 9, "no power of two");
	refused(load(GOOD "reader: {segment: 65537B}\n"), 9, "no multiple of 4KiB");
	refused(load(GOOD "reader: {policy: fastest}\n"), 9, "'fastest' is none of adaptive|round_robin");
	refused(load(GOOD "store: {memory: 99999999TiB}\n"), 9, "store.memory: '99999999TiB' is not a size");
}

Test(config, rails_must_differ)
{
	refused(load_with("lcore: 7", "lcore: 1"), 5, "1 is also the lcore of rails[0]");
	refused(load_with("name: rail1", "name: rail0"), 5, "'rail0' is also the name of rails[0]");
	refused(load_with("transport: mock, lcore: 7, bandwidth: 1Gbit/s, latency: 5us, copy: false",
			"transport: tcp, address: 127.0.0.1, port: 7471"),
		5, "127.0.0.1 port 7471 is also that of rails[0]");
	refused(load_with("transport: tcp", "transport: pigeon"), 4, "'pigeon' is not in this build");
	refused(load_with("address: 127.0.0.1", "address: localhost"), 4, "host names are not resolved");
	refused(load_with("address: 127.0.0.1, ", ""), 4, "transport tcp binds to an address");
	refused(load_with("port: 7471, ", ""), 4, "a store needs a port");
	refused(load_with("rate: 125MB/s", "latency: 1us"), 4, "is for transport mock only");
}

Test(config, stores_must_be_reachable)
{
	refused(load_with("rail: rail0", "rail: rail9"), 7, "'rail9' is no rail of this node");
	refused(load_with("rail: rail0", "rail: rail1"), 7, "rail1 is a mock rail");
	refused(load_with("rail: rail0", "rails: \"rail0,rail7\""), 7, "'rail7' is no rail of this node, and not all");
	refused(load_with("rail: rail0", "rails: rail1"), 7, "no rail of this node may use it");
	refused(load_with("rail: rail0", "numa_node: 16"), 7, "numa_node");
	refused(load_with("port: 7481, ", ""), 7, "stores[0].endpoints[0].port: is missing");
	refused(load_with("name: me", "name: store0"), 8, "also the name of stores[0]");
	refused(load_with(", endpoints: [{address: \"::1\", port: 7481, rail: rail0}]", ""), 7, "0 endpoints");
	refused(load_with("roles: [reader, store]", "roles: [reader]"), 8, "needs the role store");
}

Test(config, what_a_node_needs)
{
	refused(load_with("node: reader0", "hugepages: auto"), 1, "node: is missing");
	refused(load_with("node: reader0", "node: \"a b\""), 1, "not allowed here (0x20)");
	refused(load_with("node: reader0", "node: a2345678901234567890123456789012"), 1,
		"32 characters; the most is 31");
	refused(load_with("node: reader0", "node:"), 1, "has no value");
	refused(load_with("roles: [reader, store]", "roles: []"), 2, "missing or empty");
	refused(load_with("roles: [reader, store]", "roles: [reader, strore]"), 2, "roles[1]: 'strore' is no role");
	refused(load_with("roles: [reader, store]", "roles: [store, store]"), 2, "stands in the list twice");
	refused(load("node: a\nroles: [store]\n"), 1, "0 rails");
	refused(load_with("roles: [reader, store]", "roles: reader"), 2, "roles");
	refused(load(""), 1, "empty");
}

Test(config, yaml_is_not_guessed_at)
{
	refused(load(GOOD "node: twice\n"), 1, "already seen");
	refused(load(GOOD "---\nnode: other\n"), 1, "document");
	cr_expect_eq(load("node: [\n"), -EINVAL);
	cr_expect_eq(load("- a\n"), -EINVAL);
	cr_expect_eq(load(GOOD "hugepages: &x off\nidle: *x\n"), -EINVAL);
}

Test(config, numbers_with_units)
{
	uint64_t v = 0;

	cr_expect(parse_bytes("4MiB", &v) == 0 && v == 4u << 20);
	cr_expect(parse_bytes("1.5kB", &v) == 0 && v == 1500);
	cr_expect(parse_bytes("0", &v) == 0 && v == 0);
	cr_expect(parse_rate("2.5Gbit/s", &v) == 0 && v == 312500000);
	cr_expect(parse_duration("0.5us", &v) == 0 && v == 500);
	cr_expect(parse_duration("2min", &v) == 0 && v == 120000000000ull);
	v = 77;
	cr_expect_eq(parse_bytes("4", &v), -EINVAL);
	cr_expect_eq(parse_bytes("4 MiB", &v), -EINVAL);
	cr_expect_eq(parse_bytes("MiB", &v), -EINVAL);
	cr_expect_eq(parse_bytes("", &v), -EINVAL);
	cr_expect_eq(parse_bytes("1.KiB", &v), -EINVAL);
	cr_expect_eq(parse_bytes("0.3B", &v), -EINVAL, "no fraction of a byte");
	cr_expect_eq(parse_bytes("17179869184GiB", &v), -EINVAL, "2^64 does not fit");
	cr_expect_eq(parse_bytes("18446744073709551616B", &v), -EINVAL);
	cr_expect_eq(parse_rate("4MiB", &v), -EINVAL);
	cr_expect_eq(parse_duration("-1s", &v), -EINVAL);
	cr_expect_eq(v, 77, "nothing is written on failure");
}

Test(config, every_default_is_printed_as_it_is_read)
{
	struct config_store store = {.name = ""};
	struct rail_conf rail;
	struct config d;
	char text[128], why[128];

	config_defaults(&d);
	config_rail_defaults(&rail, 0);
	config_section_defaults(SECTION_STORES, &store);
	for (uint32_t i = 0; i < config_n_rows; i++) {
		const struct config_row *row = &config_rows[i];
		void *base = row->section == SECTION_RAILS    ? (void *)&rail
			     : row->section == SECTION_STORES ? (void *)&store
							      : (void *)&d;

		if (row->section == SECTION_ENDPOINTS || row->kind == KIND_name || row->kind == KIND_text ||
			!strcmp(row->key, "lcore"))
			continue;
		cr_expect_eq(config_row_check(row, base, why, sizeof(why)), 0, "%s: %s", row->key, why);
		config_row_format(row, base, text, sizeof(text));
		cr_expect_str_eq(text, row->def, "%s", row->key);
	}
}

/* ---- Every row of the table, through the loader ---- */

/* What a file needs in any case; the row under test takes the place of its own. */
static const struct {
	enum config_section section;
	const char *key;
	const char *value;
} given[] = {
	{SECTION_NODE, "node", "reader0"},
	{SECTION_RAILS, "name", "rail1"},
	{SECTION_RAILS, "transport", NULL}, /* whose key it is, else mock */
	{SECTION_STORES, "name", "store0"},
	{SECTION_ENDPOINTS, "address", "127.0.0.2"},
	{SECTION_ENDPOINTS, "port", "7481"},
};

/* Keys that must not contradict the one under test. */
static const struct {
	const char *key;
	const char *other;
	const char *value;
} companions[] = {
	{"inflight", "client_inflight", "1MiB"},
	{"client_inflight", "inflight", "1TiB"},
	{"max_reads", "client_max_reads", "1"},
	{"client_max_reads", "max_reads", "65536"},
	{"registered", "read_arena", "1MiB"},
	{"registered", "put_arena", "1MiB"},
	{"read_arena", "registered", "16TiB"},
	{"put_arena", "registered", "16TiB"},
	{"keepalive", "keepalive_dead", "20min"},
	{"keepalive_dead", "keepalive", "10ms"},
};

/* What stands in front of each section's first key, and of every key. */
static const char *const openings[SECTION_COUNT][2] = {
	[SECTION_NODE] = {"", ""},
	[SECTION_RAILS] = {"roles: [reader, store]\nrails:\n"
			   "  - {name: rail0, transport: tcp, address: 127.0.0.1, port: 7471, lcore: 77}\n  -\n",
		"    "},
	[SECTION_STORES] = {"stores:\n  -\n", "    "},
	[SECTION_ENDPOINTS] = {"    endpoints:\n      -\n", "        "},
	[SECTION_READER] = {"reader:\n", "  "},
	[SECTION_STORE] = {"store:\n", "  "},
	[SECTION_HEALTH] = {"health:\n", "  "},
	[SECTION_TIMEOUTS] = {"timeouts:\n", "  "},
};

struct row_file {
	char text[2048];
	uint32_t used;
	uint32_t line; /* of the row under test */
};

static void add_line(struct row_file *f, enum config_section section, const char *key, const char *value)
{
	const char *const *opening = openings[section];
	bool is_first = !strstr(f->text, opening[0]);

	f->used += (uint32_t)snprintf(f->text + f->used, sizeof(f->text) - f->used, "%s%s%s: %s\n",
		is_first ? opening[0] : "", opening[1], key, value);
	cr_assert_lt(f->used, sizeof(f->text));
}

static void add_section(
	struct row_file *f, enum config_section section, const struct config_row *row, const char *value)
{
	bool is_here = row->section == section;
	const char *transport = config_row_transport(row) ?: "mock";

	for (size_t i = 0; i < sizeof(given) / sizeof(given[0]); i++) {
		if (given[i].section == section && !(is_here && !strcmp(given[i].key, row->key)))
			add_line(f, section, given[i].key, given[i].value ?: transport);
	}
	if (is_here && section == SECTION_RAILS && strcmp(transport, "mock") != 0) {
		add_line(f, section, "address", "127.0.0.3");
		add_line(f, section, "port", "7473");
	}
	for (size_t i = 0; is_here && i < sizeof(companions) / sizeof(companions[0]); i++) {
		if (!strcmp(companions[i].key, row->key) && section >= SECTION_READER)
			add_line(f, section, companions[i].other, companions[i].value);
	}
	if (!is_here)
		return;
	add_line(f, section, row->key, value);
	f->line = 0;
	for (const char *p = f->text; *p; p++)
		f->line += *p == '\n';
}

/* Loads a file in which this row has this value, alone on its line. */
static int load_row(const struct config_row *row, const char *value, struct row_file *f)
{
	memset(f, 0, sizeof(*f));
	for (int section = 0; section < SECTION_COUNT; section++)
		add_section(f, (enum config_section)section, row, value);
	return load(f->text);
}

/* What the file gave the row's field. */
static uint64_t field_of(const struct config_row *row)
{
	const void *base = row->section == SECTION_RAILS       ? (void *)&c.rails[1]
			   : row->section == SECTION_STORES    ? (void *)&c.stores[0]
			   : row->section == SECTION_ENDPOINTS ? (void *)&c.stores[0].endpoints[0]
							       : (void *)&c;
	uint64_t v = 0;

	memcpy(&v, (const char *)base + row->offset, row->size_bytes);
	return v;
}

static void row_accepts(const struct config_row *row, const char *text, uint64_t value)
{
	struct row_file f;

	cr_expect_eq(load_row(row, text, &f), 0, "%s: %s: %s", row->key, text, err.text);
	cr_expect_eq(field_of(row), value, "%s: %s was taken for %lu", row->key, text, field_of(row));
}

/* With file, line, key and `what`. */
static void row_refuses(const struct config_row *row, const char *text, const char *what)
{
	static const char *const places[SECTION_COUNT] = {[SECTION_NODE] = "",
		[SECTION_RAILS] = "rails[1].",
		[SECTION_STORES] = "stores[0].",
		[SECTION_ENDPOINTS] = "stores[0].endpoints[0].",
		[SECTION_READER] = "reader.",
		[SECTION_STORE] = "store.",
		[SECTION_HEALTH] = "health.",
		[SECTION_TIMEOUTS] = "timeouts."};
	struct row_file f;
	char place[96];
	int rc = load_row(row, text, &f);

	cr_expect_eq(rc, -EINVAL, "%s%s: %s is accepted", places[row->section], row->key, text);
	if (rc != -EINVAL)
		return;
	snprintf(place, sizeof(place), ":%u: %s%s: ", f.line, places[row->section], row->key);
	cr_expect(!strncmp(err.text, "/tmp/ry-config-", 15) && strstr(err.text, place), "no '%s' in: %s", place,
		err.text);
	cr_expect_not_null(strstr(err.text, what), "no '%s' in: %s", what, err.text);
}

static uint64_t value_of(const struct config_row *row, const char *text)
{
	uint64_t v;
	int rc = row->kind == KIND_bytes      ? parse_bytes(text, &v)
		 : row->kind == KIND_rate     ? parse_rate(text, &v)
		 : row->kind == KIND_duration ? parse_duration(text, &v)
					      : (v = strtoull(text, NULL, 10), 0);

	cr_assert_eq(rc, 0, "%s: %s", row->key, text);
	return v;
}

/* In the smallest unit. */
static const char *exactly(const struct config_row *row, uint64_t v)
{
	static const char *const units[] = {
		[KIND_bytes] = "B", [KIND_rate] = "B/s", [KIND_duration] = "ns", [KIND_count] = ""};
	static char text[32];

	snprintf(text, sizeof(text), "%lu%s", v, units[row->kind]);
	return text;
}

static bool is_number(const struct config_row *row)
{
	return row->kind >= KIND_bytes;
}

Test(config, every_number_has_its_limits)
{
	uint32_t n = 0;

	for (const struct config_row *row = config_rows; row < config_rows + config_n_rows; row++) {
		uint64_t least, most;
		char range[80];

		if (!is_number(row))
			continue;
		least = value_of(row, row->least);
		most = value_of(row, row->most);
		snprintf(range, sizeof(range), "outside its range, %s to %s", row->least, row->most);
		row_accepts(row, row->least, least);
		row_accepts(row, row->most, most);
		row_refuses(row, exactly(row, most + 1), range);
		/* A default below the range is the word for "none". */
		if (least && strcmp(row->def, "auto") && strcmp(row->def, "required") &&
			value_of(row, row->def) == least - 1)
			row_accepts(row, exactly(row, least - 1), least - 1);
		else if (least)
			row_refuses(row, exactly(row, least - 1), range);
		n++;
	}
	cr_assert_geq(n, 40, "%u rows have numbers", n);
}

/* What would fit if only the low bits were kept, or would read as the daemon's own choice. */
Test(config, every_number_refuses_what_its_field_cannot_hold)
{
	for (const struct config_row *row = config_rows; row < config_rows + config_n_rows; row++) {
		uint64_t ones;

		if (!is_number(row))
			continue;
		ones = row->size_bytes == 8 ? UINT64_MAX : (1ull << (8 * row->size_bytes)) - 1;
		if (value_of(row, row->most) < ones)
			row_refuses(row, exactly(row, ones), "outside its range");
		if (row->size_bytes < 8)
			row_refuses(row, exactly(row, ones + 1 + value_of(row, row->least)), "outside its range");
		row_refuses(row, "18446744073709551616", "is not a");
		row_refuses(row, "99999999999999999999999TiB", "is not a");
	}
}

Test(config, every_number_needs_its_form)
{
	static const char *const bad[][8] = {
		[KIND_bytes] = {"17", "17s", "17MB/s", "17mib", "MiB", "1.0000000001MiB", "-1MiB"},
		[KIND_rate] = {"17", "17MB", "17s", "-1MB/s"},
		[KIND_duration] = {"17", "17S", "17MiB", "-1s"},
		[KIND_count] = {"-1", "1.5", "0x10", "17s", "+1", "one"},
	};

	for (const struct config_row *row = config_rows; row < config_rows + config_n_rows; row++) {
		for (size_t i = 0; is_number(row) && bad[row->kind][i]; i++)
			row_refuses(row, bad[row->kind][i], "is not a");
		if (is_number(row) && strcmp(row->def, "auto"))
			row_refuses(row, "auto", "is not a");
		row_refuses(row, "\"\"", "has no value");
	}
}

Test(config, every_choice_has_its_words)
{
	for (const struct config_row *row = config_rows; row < config_rows + config_n_rows; row++) {
		char words[64], all[80], *rest = NULL;
		uint64_t at = 0;

		if (row->kind != KIND_choice)
			continue;
		snprintf(words, sizeof(words), "%s", row->least);
		snprintf(all, sizeof(all), "is none of %s", row->least);
		for (char *word = strtok_r(words, "|", &rest); word; word = strtok_r(NULL, "|", &rest), at++) {
			/* A store that is this node has no endpoints; good_file has one. */
			if (strcmp(row->key, "self") || strcmp(word, "true"))
				row_accepts(row, word, at);
			word[0] ^= 0x20;
			row_refuses(row, word, all);
			row_refuses(row, word + 1, all);
		}
		row_refuses(row, "xyzzy", all);
		row_refuses(row, "1", all);
		row_refuses(row, row->least, all);
	}
}

/* Names that stand for something else cannot be any text. */
static bool is_reference(const struct config_row *row)
{
	static const char *const keys[] = {"transport", "address", "rail", "rails"};

	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
		if (!strcmp(row->key, keys[i]))
			return true;
	}
	return false;
}

Test(config, every_text_has_its_length)
{
	char text[256], what[64];

	memset(text, 'a', sizeof(text));
	for (const struct config_row *row = config_rows; row < config_rows + config_n_rows; row++) {
		struct row_file f;

		if (is_number(row) || row->kind == KIND_choice)
			continue;
		snprintf(what, sizeof(what), "%u characters; the most is %u", row->size_bytes, row->size_bytes - 1);
		text[row->size_bytes] = '\0';
		row_refuses(row, text, what);
		text[row->size_bytes] = 'a';
		text[row->size_bytes - 1] = '\0';
		if (!is_reference(row))
			cr_expect_eq(load_row(row, text, &f), 0, "%s: %s", row->key, err.text);
		text[row->size_bytes - 1] = 'a';
		row_refuses(row, "a b", "not allowed here (0x20)");
		row_refuses(row, "\"a\\tb\"", "not allowed here (0x09)");
		if (row->kind == KIND_name)
			row_refuses(row, "a/b", "not allowed here (0x2f)");
	}
}

Test(config, check_alone)
{
	cr_assert_eq(load(GOOD), 0, "%s", err.text);
	cr_expect_eq(config_check(&c, &err), 0, "%s", err.text);
	c.rails[1].lcore = 1;
	cr_expect_eq(config_check(&c, &err), -EINVAL);
	cr_expect_not_null(strstr(err.text, "rails[1].lcore"), "%s", err.text);
}

/* The source tree's root: this file's name as the compiler was given it, from the build directory, where this program
 * is tests/unit/test_config. */
static void source_root(char *path, size_t path_bytes)
{
	char exe[256];
	ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);

	cr_assert_gt(n, 0);
	exe[n] = '\0';
	for (int i = 0; i < 3; i++)
		*strrchr(exe, '/') = '\0';
	if (__FILE__[0] == '/')
		exe[0] = '\0';
	snprintf(path, path_bytes, "%s/%.*s", exe, (int)(strlen(__FILE__) - strlen("tests/unit/test_config.c")),
		__FILE__);
}

/* docs/config.md is what the table says. */
Test(config, doc_is_up_to_date)
{
	char path[512], *made = NULL, *kept;
	size_t made_bytes = 0;
	FILE *f;

	f = open_memstream(&made, &made_bytes);
	cr_assert_not_null(f);
	config_print_doc(f);
	fclose(f);
	source_root(path, sizeof(path) - sizeof("docs/config.md"));
	strcat(path, "docs/config.md");
	f = fopen(path, "r");
	cr_assert_not_null(f, "%s cannot be opened", path);
	kept = calloc(1, made_bytes + 2);
	cr_assert_not_null(kept);
	cr_expect_eq(
		fread(kept, 1, made_bytes + 1, f), made_bytes, "run railyardd --print-config-doc > docs/config.md");
	cr_expect_str_eq(kept, made, "run railyardd --print-config-doc > docs/config.md");
	fclose(f);
	free(kept);
	free(made);
}
