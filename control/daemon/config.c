/* SPDX-License-Identifier: BSD-3-Clause */
#include "daemon/config.h"

#include "daemon/config_raw.h"
#include "daemon/config_rows.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* config_check.c: the first thing that is wrong with a complete configuration. */
#include "daemon/config_problem.h"

static int convert(const struct raw_config *raw, struct config *c, struct problem *p);
static int convert_roles(const struct raw_config *raw, struct config *c, struct problem *p);
static int convert_rails(const struct raw_config *raw, struct config *c, struct problem *p);
static int convert_stores(const struct raw_config *raw, struct config *c, struct problem *p);
static int convert_section(
	enum config_section section, const void *raw, void *base, const char *prefix, struct problem *p);
static void complete(struct config *c);

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
	struct raw_config *raw;
	struct problem p = {.place = ""};
	struct config *c;
	int rc;

	rc = config_raw_load(path, &raw, err);
	if (rc < 0)
		return rc;
	c = malloc(sizeof(*c));
	if (!c) {
		config_raw_free(raw);
		snprintf(err->text, sizeof(err->text), "%s: out of memory", path);
		return -ENOMEM;
	}
	rc = convert(raw, c, &p);
	config_raw_free(raw);
	if (rc == 0) {
		complete(c);
		rc = config_find_problem(c, &p);
	}
	if (rc == 0)
		*out = *c;
	else
		snprintf(err->text, sizeof(err->text), "%s:%u: %s: %s", path, config_raw_line(path, p.place), p.place,
			p.text);
	free(c);
	return rc;
}

int config_check(const struct config *c, struct config_error *err)
{
	struct problem p = {.place = ""};
	int rc = config_find_problem(c, &p);

	if (rc < 0)
		snprintf(err->text, sizeof(err->text), "%s: %s", p.place, p.text);
	return rc;
}

int problem_at(struct problem *p, const char *place, const char *fmt, ...)
{
	va_list args;

	snprintf(p->place, sizeof(p->place), "%s", place);
	va_start(args, fmt);
	vsnprintf(p->text, sizeof(p->text), fmt, args);
	va_end(args);
	return -EINVAL;
}

static int convert(const struct raw_config *raw, struct config *c, struct problem *p)
{
	int rc;

	config_defaults(c);
	rc = convert_section(SECTION_NODE, raw, c, "", p);
	if (rc == 0)
		rc = convert_roles(raw, c, p);
	if (rc == 0)
		rc = convert_rails(raw, c, p);
	if (rc == 0)
		rc = convert_stores(raw, c, p);
	if (rc == 0)
		rc = convert_section(SECTION_READER, &raw->reader, c, "reader.", p);
	if (rc == 0)
		rc = convert_section(SECTION_STORE, &raw->store, c, "store.", p);
	if (rc == 0)
		rc = convert_section(SECTION_HEALTH, &raw->health, c, "health.", p);
	if (rc == 0)
		rc = convert_section(SECTION_TIMEOUTS, &raw->timeouts, c, "timeouts.", p);
	return rc;
}

static int convert_roles(const struct raw_config *raw, struct config *c, struct problem *p)
{
	char place[32];

	for (uint32_t i = 0; i < raw->n_roles; i++) {
		bool *role = NULL;

		if (raw->roles[i] && !strcmp(raw->roles[i], "reader"))
			role = &c->is_reader;
		else if (raw->roles[i] && !strcmp(raw->roles[i], "store"))
			role = &c->is_store;
		snprintf(place, sizeof(place), "roles[%u]", i);
		if (!role)
			return problem_at(p, place, "'%s' is no role; reader and store are", raw->roles[i]);
		if (*role)
			return problem_at(p, place, "%s stands in the list twice", raw->roles[i]);
		*role = true;
	}
	return 0;
}

static int convert_rails(const struct raw_config *raw, struct config *c, struct problem *p)
{
	char prefix[32];
	int rc = 0;

	for (uint32_t i = 0; i < raw->n_rails && rc == 0; i++) {
		struct rail_conf *rail = &c->rails[i];

		config_section_defaults(SECTION_RAILS, rail);
		rail->numa_node = -1;
		snprintf(prefix, sizeof(prefix), "rails[%u].", i);
		rc = convert_section(SECTION_RAILS, &raw->rails[i], rail, prefix, p);
	}
	c->n_rails = (uint16_t)raw->n_rails;
	return rc;
}

static int convert_stores(const struct raw_config *raw, struct config *c, struct problem *p)
{
	char prefix[48];
	int rc = 0;

	for (uint32_t i = 0; i < raw->n_stores && rc == 0; i++) {
		const struct raw_store *from = &raw->stores[i];
		struct config_store *to = &c->stores[i];

		config_section_defaults(SECTION_STORES, to);
		snprintf(prefix, sizeof(prefix), "stores[%u].", i);
		rc = convert_section(SECTION_STORES, from, to, prefix, p);
		for (uint32_t j = 0; j < from->n_endpoints && rc == 0; j++) {
			config_section_defaults(SECTION_ENDPOINTS, &to->endpoints[j]);
			snprintf(prefix, sizeof(prefix), "stores[%u].endpoints[%u].", i, j);
			rc = convert_section(SECTION_ENDPOINTS, &from->endpoints[j], &to->endpoints[j], prefix, p);
		}
		to->n_endpoints = (uint16_t)from->n_endpoints;
	}
	c->n_stores = (uint16_t)raw->n_stores;
	return rc;
}

static int convert_section(
	enum config_section section, const void *raw, void *base, const char *prefix, struct problem *p)
{
	const struct config_row *row;
	char place[96], why[256];

	for (row = config_rows; row < config_rows + config_n_rows; row++) {
		const char *text;

		if (row->section != section)
			continue;
		text = *(char *const *)(const void *)((const char *)raw + row->raw_offset);
		snprintf(place, sizeof(place), "%s%s", prefix, row->key);
		if (!text && !strcmp(row->def, "required"))
			return problem_at(p, place, "is missing: %s", row->help);
		if (!text)
			continue;
		if (!*text)
			return problem_at(p, place, "has no value; give one or leave the key out");
		if (config_row_parse(row, base, text, why, sizeof(why)) < 0)
			return problem_at(p, place, "%s", why);
	}
	return 0;
}

/* What depends on other keys or on the position in a list. */
static void complete(struct config *c)
{
	for (uint16_t i = 0; i < c->n_rails; i++)
		if (c->rails[i].lcore == UINT32_MAX)
			c->rails[i].lcore = 1u + i;
}
