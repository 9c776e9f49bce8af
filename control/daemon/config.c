/* SPDX-License-Identifier: BSD-3-Clause */
#include "daemon/config.h"

#include "daemon/config_problem.h"
#include "daemon/config_raw.h"
#include "daemon/config_rows.h"
#include "daemon/config_tree.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static void convert(const struct raw_config *raw, struct config *c, struct problems *p);
static void convert_roles(const struct raw_config *raw, struct config *c, struct problems *p);
static void convert_rails(const struct raw_config *raw, struct config *c, struct problems *p);
static void convert_stores(const struct raw_config *raw, struct config *c, struct problems *p);
static void convert_section(enum config_section section, const void *raw, void *base, uint32_t *lines,
	const char *prefix, struct problems *p);
static void complete(struct config *c);
static uint32_t line_of(const struct problems *p, const char *place);
static void add(struct problems *p, uint32_t line, const char *place, const char *fmt, va_list args);
static int by_line(const void *a, const void *b);

void config_defaults(struct config *c)
{
	memset(c, 0, sizeof(*c));
	config_section_defaults(SECTION_NODE, c);
	config_section_defaults(SECTION_READER, c);
	config_section_defaults(SECTION_STORE, c);
	config_section_defaults(SECTION_HEALTH, c);
	config_section_defaults(SECTION_TIMEOUTS, c);
}

void config_rail_defaults(struct rail_conf *rail, uint16_t idx)
{
	memset(rail, 0, sizeof(*rail));
	config_section_defaults(SECTION_RAILS, rail);
	rail->lcore = 1u + idx;
	rail->numa_node = -1;
}

int config_load(const char *path, struct config *out, struct config_error *err)
{
	struct problems *p = calloc(1, sizeof(*p));
	struct config *c = malloc(sizeof(*c));
	struct config_tree *tree = config_tree_load(path);
	struct raw_config *raw = NULL;
	int rc = -ENOMEM;

	snprintf(err->text, sizeof(err->text), "%s: out of memory", path);
	if (!p || !c)
		goto out;
	p->tree = tree;
	if (tree)
		config_tree_unknown(tree, p);
	rc = config_raw_load(path, &raw, p);
	if (rc == 0) {
		convert(raw, c, p);
		complete(c);
		config_find_problems(c, p);
		snprintf(c->file, sizeof(c->file), "%s", path);
		config_raw_free(raw);
		rc = p->n ? -EINVAL : 0;
	}
	if (rc == 0)
		*out = *c;
	else
		problems_print(p, path, err->text, sizeof(err->text));
out:
	config_tree_free(tree);
	free(c);
	free(p);
	return rc;
}

int config_check(const struct config *c, struct config_error *err)
{
	struct problems p = {.n = 0};

	config_find_problems(c, &p);
	if (!p.n)
		return 0;
	snprintf(err->text, sizeof(err->text), "%s: %s", p.list[0].place, p.list[0].text);
	return -EINVAL;
}

void problem_at(struct problems *p, const char *place, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	add(p, line_of(p, place), place, fmt, args);
	va_end(args);
}

void problem_on(struct problems *p, uint32_t line, const char *place, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	add(p, line, place, fmt, args);
	va_end(args);
}

static uint32_t line_of(const struct problems *p, const char *place)
{
	return p->tree ? config_tree_line(p->tree, place) : 0;
}

static void add(struct problems *p, uint32_t line, const char *place, const char *fmt, va_list args)
{
	struct problem *one;

	if (problem_is_at(p, place) || p->n++ >= PROBLEMS_MAX)
		return;
	one = &p->list[p->n - 1];
	one->line = line;
	snprintf(one->place, sizeof(one->place), "%s", place);
	vsnprintf(one->text, sizeof(one->text), fmt, args);
}

bool problem_is_at(const struct problems *p, const char *place)
{
	size_t len = strlen(place);

	for (uint32_t i = 0; len && i < p->n && i < PROBLEMS_MAX; i++) {
		const char *at = p->list[i].place;

		if (!strncmp(at, place, len) && (!at[len] || at[len] == '.' || at[len] == '['))
			return true;
	}
	return false;
}

void problems_print(struct problems *p, const char *path, char *text, uint32_t text_bytes)
{
	uint32_t n = p->n < PROBLEMS_MAX ? p->n : PROBLEMS_MAX;
	FILE *out = fmemopen(text, text_bytes, "w");

	if (!out)
		return;
	qsort(p->list, n, sizeof(p->list[0]), by_line);
	for (uint32_t i = 0; i < n; i++) {
		const struct problem *one = &p->list[i];

		fprintf(out, "%s%s:", i ? "\n" : "", path);
		if (one->line)
			fprintf(out, "%u:", one->line);
		fprintf(out, " %s%s%s", one->place, one->place[0] ? ": " : "", one->text);
	}
	if (p->n > n)
		fprintf(out, "\n%s: and %u more", path, p->n - n);
	fclose(out);
	text[text_bytes - 1] = '\0';
}

/* Of one line: by place. */
static int by_line(const void *a, const void *b)
{
	const struct problem *x = a, *y = b;

	if (x->line != y->line)
		return x->line < y->line ? -1 : 1;
	return strcmp(x->place, y->place);
}

static void convert(const struct raw_config *raw, struct config *c, struct problems *p)
{
	config_defaults(c);
	convert_section(SECTION_NODE, raw, c, config_lines(c, SECTION_NODE, 0, 0), "", p);
	convert_roles(raw, c, p);
	convert_rails(raw, c, p);
	convert_stores(raw, c, p);
	convert_section(SECTION_READER, &raw->reader, c, config_lines(c, SECTION_READER, 0, 0), "reader.", p);
	convert_section(SECTION_STORE, &raw->store, c, config_lines(c, SECTION_STORE, 0, 0), "store.", p);
	convert_section(SECTION_HEALTH, &raw->health, c, config_lines(c, SECTION_HEALTH, 0, 0), "health.", p);
	convert_section(SECTION_TIMEOUTS, &raw->timeouts, c, config_lines(c, SECTION_TIMEOUTS, 0, 0), "timeouts.", p);
}

static void convert_roles(const struct raw_config *raw, struct config *c, struct problems *p)
{
	char place[32];

	c->roles_line = raw->n_roles ? line_of(p, "roles") : 0;
	for (uint32_t i = 0; i < raw->n_roles; i++) {
		bool *role = NULL;

		if (raw->roles[i] && !strcmp(raw->roles[i], "reader"))
			role = &c->is_reader;
		else if (raw->roles[i] && !strcmp(raw->roles[i], "store"))
			role = &c->is_store;
		snprintf(place, sizeof(place), "roles[%u]", i);
		if (!role)
			problem_at(p, place, "'%s' is no role; reader and store are", raw->roles[i]);
		else if (*role)
			problem_at(p, place, "%s stands in the list twice", raw->roles[i]);
		else
			*role = true;
	}
}

static void convert_rails(const struct raw_config *raw, struct config *c, struct problems *p)
{
	char prefix[32];

	for (uint32_t i = 0; i < raw->n_rails; i++) {
		struct rail_conf *rail = &c->rails[i];

		config_section_defaults(SECTION_RAILS, rail);
		rail->numa_node = -1;
		snprintf(prefix, sizeof(prefix), "rails[%u].", i);
		convert_section(
			SECTION_RAILS, &raw->rails[i], rail, config_lines(c, SECTION_RAILS, (uint16_t)i, 0), prefix, p);
	}
	c->n_rails = (uint16_t)raw->n_rails;
}

static void convert_stores(const struct raw_config *raw, struct config *c, struct problems *p)
{
	char prefix[48];

	for (uint16_t i = 0; i < raw->n_stores; i++) {
		const struct raw_store *from = &raw->stores[i];
		struct config_store *to = &c->stores[i];

		config_section_defaults(SECTION_STORES, to);
		snprintf(prefix, sizeof(prefix), "stores[%u].", i);
		convert_section(SECTION_STORES, from, to, config_lines(c, SECTION_STORES, i, 0), prefix, p);
		for (uint16_t j = 0; j < from->n_endpoints; j++) {
			config_section_defaults(SECTION_ENDPOINTS, &to->endpoints[j]);
			snprintf(prefix, sizeof(prefix), "stores[%u].endpoints[%u].", i, j);
			convert_section(SECTION_ENDPOINTS, &from->endpoints[j], &to->endpoints[j],
				config_lines(c, SECTION_ENDPOINTS, i, j), prefix, p);
		}
		to->n_endpoints = (uint16_t)from->n_endpoints;
	}
	c->n_stores = (uint16_t)raw->n_stores;
}

/* What cannot be read keeps its default, so that the rules between values still make sense. */
static void convert_section(enum config_section section, const void *raw, void *base, uint32_t *lines,
	const char *prefix, struct problems *p)
{
	const struct config_row *row = config_first_row(section);
	char place[96], why[256];

	for (; row < config_rows + config_n_rows && row->section == section; row++, lines++) {
		const char *text = *(char *const *)(const void *)((const char *)raw + row->raw_offset);

		snprintf(place, sizeof(place), "%s%s", prefix, row->key);
		if (text)
			*lines = line_of(p, place);
		if (!text && !strcmp(row->def, "required"))
			problem_at(p, place, "is missing: %s", row->help);
		else if (text && !*text)
			problem_at(p, place, "has no value; give one or leave the key out");
		else if (text && config_row_parse(row, base, text, why, sizeof(why)) < 0)
			problem_at(p, place, "%s", why);
	}
}

/* What depends on other keys or on the position in a list. */
static void complete(struct config *c)
{
	for (uint16_t i = 0; i < c->n_rails; i++)
		if (c->rails[i].lcore == UINT32_MAX)
			c->rails[i].lcore = 1u + i;
}
