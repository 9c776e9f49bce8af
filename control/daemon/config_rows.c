/* SPDX-License-Identifier: BSD-3-Clause */
#include "daemon/config_rows.h"

#include "daemon/config_raw.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static int parse_text(const struct config_row *row, char *field, const char *text, char *why, uint32_t why_bytes);
static int parse_value(const struct config_row *row, const char *text, uint64_t *v, char *why, uint32_t why_bytes);
static int parse_choice(const char *words, const char *text, uint64_t *v, char *why, uint32_t why_bytes);
static int parse_count(const char *text, uint64_t *v);
static int parse_limit(const struct config_row *row, const char *text, uint64_t *v);
static int outside(const struct config_row *row, const char *text, char *why, uint32_t why_bytes);
static void format_value(const struct config_row *row, uint64_t v, char *buf, uint32_t buf_bytes);
static uint64_t all_ones(const struct config_row *row);
static uint64_t load_field(const struct config_row *row, const void *base);
static void store_field(const struct config_row *row, void *base, uint64_t v);
static bool is_auto(const struct config_row *row, const char *text);

#define ROW(section, raw_type, type, key, field, kind, def, least, most, change, help)                                 \
	{#key, def, least, most, #change, help, section, KIND_##kind, offsetof(type, field),                           \
		sizeof(((type *)0)->field), offsetof(raw_type, key)},
#define NODE_ROW(...) ROW(SECTION_NODE, struct raw_config, struct config, __VA_ARGS__)
#define RAIL_ROW(...) ROW(SECTION_RAILS, struct raw_rail, struct rail_conf, __VA_ARGS__)
#define STORES_ROW(...) ROW(SECTION_STORES, struct raw_store, struct config_store, __VA_ARGS__)
#define ENDPOINT_ROW(...) ROW(SECTION_ENDPOINTS, struct raw_endpoint, struct config_endpoint, __VA_ARGS__)
#define READER_ROW(...) ROW(SECTION_READER, struct raw_reader, struct config, __VA_ARGS__)
#define STORE_ROW(...) ROW(SECTION_STORE, struct raw_store_role, struct config, __VA_ARGS__)
#define HEALTH_ROW(...) ROW(SECTION_HEALTH, struct raw_health, struct config, __VA_ARGS__)
#define TIMEOUT_ROW(...) ROW(SECTION_TIMEOUTS, struct raw_timeouts, struct config, __VA_ARGS__)

const struct config_row config_rows[] = {CONFIG_NODE_KEYS(NODE_ROW) CONFIG_RAIL_KEYS(RAIL_ROW)
		CONFIG_STORES_KEYS(STORES_ROW) CONFIG_ENDPOINT_KEYS(ENDPOINT_ROW) CONFIG_READER_KEYS(READER_ROW)
			CONFIG_STORE_KEYS(STORE_ROW) CONFIG_HEALTH_KEYS(HEALTH_ROW) CONFIG_TIMEOUT_KEYS(TIMEOUT_ROW)};
const uint32_t config_n_rows = sizeof(config_rows) / sizeof(config_rows[0]);

#define COUNT_KEY(...) +1
static_assert((CONFIG_RAIL_KEYS(COUNT_KEY)) <= CONFIG_RAIL_KEYS_MAX, "rail_lines");
static_assert((CONFIG_STORES_KEYS(COUNT_KEY)) <= CONFIG_STORE_KEYS_MAX, "lines of a store");
static_assert((CONFIG_ENDPOINT_KEYS(COUNT_KEY)) <= CONFIG_ENDPOINT_KEYS_MAX, "lines of an endpoint");
static_assert(sizeof(config_rows) / sizeof(config_rows[0]) <= CONFIG_KEYS_MAX, "lines");

const struct config_row *config_first_row(enum config_section section)
{
	const struct config_row *row = config_rows;

	while (row->section != section)
		row++;
	return row;
}

const char *config_row_transport(const struct config_row *row)
{
	static const char *const transports[] = {"tcp", "verbs", "mock"};
	size_t len = strcspn(row->help, ":");

	for (size_t i = 0; row->section == SECTION_RAILS && i < sizeof(transports) / sizeof(transports[0]); i++) {
		if (strlen(transports[i]) == len && !strncmp(row->help, transports[i], len))
			return transports[i];
	}
	return NULL;
}

uint32_t *config_lines(struct config *c, enum config_section section, uint16_t i, uint16_t j)
{
	switch (section) {
	case SECTION_RAILS:
		return c->rail_lines[i];
	case SECTION_STORES:
		return c->stores[i].lines;
	case SECTION_ENDPOINTS:
		return c->stores[i].endpoints[j].lines;
	default:
		return c->lines + (config_first_row(section) - config_rows);
	}
}

void config_source(
	const struct config *c, const struct config_row *row, uint16_t i, uint16_t j, char *buf, uint32_t buf_bytes)
{
	/* It only finds the place; nothing is written there. */
	const uint32_t *lines = config_lines((struct config *)c, row->section, i, j);
	uint32_t line = lines[row - config_first_row(row->section)];

	if (line)
		snprintf(buf, buf_bytes, "%s:%u", c->file, line);
	else
		snprintf(buf, buf_bytes, "default");
}

const char *config_section_name(enum config_section section)
{
	static const char *const names[SECTION_COUNT] = {
		[SECTION_NODE] = "",
		[SECTION_RAILS] = "rails",
		[SECTION_STORES] = "stores",
		[SECTION_ENDPOINTS] = "endpoints",
		[SECTION_READER] = "reader",
		[SECTION_STORE] = "store",
		[SECTION_HEALTH] = "health",
		[SECTION_TIMEOUTS] = "timeouts",
	};

	return names[section];
}

int config_row_parse(const struct config_row *row, void *base, const char *text, char *why, uint32_t why_bytes)
{
	uint64_t v;
	int rc;

	if (row->kind == KIND_name || row->kind == KIND_text)
		return parse_text(row, (char *)base + row->offset, text, why, why_bytes);
	if (is_auto(row, text)) {
		store_field(row, base, all_ones(row));
		return 0;
	}
	rc = parse_value(row, text, &v, why, why_bytes);
	if (rc < 0)
		return rc;
	/* All ones would be read as auto. */
	if (v > all_ones(row) || (v == all_ones(row) && !strcmp(row->def, "auto")))
		return outside(row, text, why, why_bytes);
	store_field(row, base, v);
	return 0;
}

int config_row_check(const struct config_row *row, const void *base, char *why, uint32_t why_bytes)
{
	uint64_t v, least = 0, most = UINT64_MAX, def;
	char text[32];

	if (row->kind == KIND_name || row->kind == KIND_text || row->kind == KIND_choice)
		return 0;
	v = load_field(row, base);
	if (!strcmp(row->def, "auto") && v == all_ones(row))
		return 0;
	if (parse_limit(row, row->def, &def) == 0 && v == def)
		return 0;
	if (parse_limit(row, row->least, &least) < 0 || parse_limit(row, row->most, &most) < 0 || v < least ||
		v > most) {
		format_value(row, v, text, sizeof(text));
		return outside(row, text, why, why_bytes);
	}
	return 0;
}

void config_row_format(const struct config_row *row, const void *base, char *buf, uint32_t buf_bytes)
{
	if (row->kind == KIND_name || row->kind == KIND_text) {
		snprintf(buf, buf_bytes, "%s", (const char *)base + row->offset);
		return;
	}
	format_value(row, load_field(row, base), buf, buf_bytes);
}

void config_section_defaults(enum config_section section, void *base)
{
	const struct config_row *row;
	char why[128];

	for (row = config_rows; row < config_rows + config_n_rows; row++) {
		if (row->section != section || !strcmp(row->def, "required"))
			continue;
		/* A default that does not parse is a mistake in the table: test_config parses every one. */
		if (config_row_parse(row, base, row->def, why, sizeof(why)) < 0)
			abort();
	}
}

/* Names go into ring, file and thread names, so their alphabet is narrow; text is anything printable. */
static int parse_text(const struct config_row *row, char *field, const char *text, char *why, uint32_t why_bytes)
{
	size_t n = strlen(text);
	const char *p;

	if (is_auto(row, text))
		text = "", n = 0;
	if (n >= row->size_bytes) {
		snprintf(why, why_bytes, "'%.40s...' has %zu characters; the most is %u", text, n, row->size_bytes - 1);
		return -EINVAL;
	}
	for (p = text; *p; p++) {
		bool is_ok = row->kind == KIND_text ? isprint((unsigned char)*p) && *p != ' '
						    : isalnum((unsigned char)*p) || strchr("-_.", *p);
		if (is_ok)
			continue;
		snprintf(why, why_bytes, "'%s' has a character that is not allowed here (0x%02x)%s", text,
			(unsigned char)*p, row->kind == KIND_name ? "; letters, digits, '-', '_' and '.' are" : "");
		return -EINVAL;
	}
	memset(field, 0, row->size_bytes);
	memcpy(field, text, n);
	return 0;
}

static int parse_value(const struct config_row *row, const char *text, uint64_t *v, char *why, uint32_t why_bytes)
{
	static const char *const hints[] = {
		[KIND_bytes] = "a size with its unit, such as 4096B, 64KiB, 4MiB or 1GiB",
		[KIND_rate] = "a rate with its unit, such as 125MB/s or 1Gbit/s",
		[KIND_duration] = "a time with its unit, such as 50us, 100ms or 30s",
		[KIND_count] = "a whole number",
	};

	if (row->kind == KIND_choice)
		return parse_choice(row->least, text, v, why, why_bytes);
	if (parse_limit(row, text, v) < 0) {
		snprintf(why, why_bytes, "'%s' is not %s%s", text, hints[row->kind],
			strcmp(row->def, "auto") ? "" : ", nor auto");
		return -EINVAL;
	}
	return 0;
}

/* `words` = "off|auto": the value is the word's position. */
static int parse_choice(const char *words, const char *text, uint64_t *v, char *why, uint32_t why_bytes)
{
	size_t n = strlen(text);
	uint64_t i = 0;
	const char *p = words;

	for (;; i++) {
		size_t len = strcspn(p, "|");

		if (len == n && !memcmp(p, text, n)) {
			*v = i;
			return 0;
		}
		if (!p[len])
			break;
		p += len + 1;
	}
	snprintf(why, why_bytes, "'%s' is none of %s", text, words);
	return -EINVAL;
}

static int parse_count(const char *text, uint64_t *v)
{
	uint64_t n = 0;

	if (!*text)
		return -EINVAL;
	for (; *text; text++) {
		if (!isdigit((unsigned char)*text) || __builtin_mul_overflow(n, 10u, &n) ||
			__builtin_add_overflow(n, (uint64_t)(*text - '0'), &n))
			return -EINVAL;
	}
	*v = n;
	return 0;
}

static int parse_limit(const struct config_row *row, const char *text, uint64_t *v)
{
	switch (row->kind) {
	case KIND_bytes:
		return parse_bytes(text, v);
	case KIND_rate:
		return parse_rate(text, v);
	case KIND_duration:
		return parse_duration(text, v);
	default:
		return parse_count(text, v);
	}
}

static int outside(const struct config_row *row, const char *text, char *why, uint32_t why_bytes)
{
	snprintf(why, why_bytes, "%s is outside its range, %s to %s: %s", text, row->least, row->most, row->help);
	return -EINVAL;
}

static void format_value(const struct config_row *row, uint64_t v, char *buf, uint32_t buf_bytes)
{
	const char *p = row->least;

	if (!strcmp(row->def, "auto") && row->kind != KIND_choice && v == all_ones(row)) {
		snprintf(buf, buf_bytes, "auto");
		return;
	}
	switch (row->kind) {
	case KIND_bytes:
		format_bytes(v, buf, buf_bytes);
		break;
	case KIND_rate:
		format_rate(v, buf, buf_bytes);
		break;
	case KIND_duration:
		format_duration(v, buf, buf_bytes);
		break;
	case KIND_choice:
		for (; v && strchr(p, '|'); v--)
			p = strchr(p, '|') + 1;
		snprintf(buf, buf_bytes, "%.*s", (int)strcspn(p, "|"), p);
		break;
	default:
		snprintf(buf, buf_bytes, "%" PRIu64, v);
	}
}

static uint64_t all_ones(const struct config_row *row)
{
	return row->size_bytes == 8 ? UINT64_MAX : (1ull << (8 * row->size_bytes)) - 1;
}

static uint64_t load_field(const struct config_row *row, const void *base)
{
	uint64_t v = 0;

	/* Little-endian hosts only (wire.h): the low bytes of v are the field. */
	memcpy(&v, (const char *)base + row->offset, row->size_bytes);
	return v;
}

static void store_field(const struct config_row *row, void *base, uint64_t v)
{
	memcpy((char *)base + row->offset, &v, row->size_bytes);
}

static bool is_auto(const struct config_row *row, const char *text)
{
	return row->kind != KIND_choice && !strcmp(row->def, "auto") && !strcmp(text, "auto");
}
