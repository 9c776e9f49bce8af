/* SPDX-License-Identifier: BSD-3-Clause */
#include "daemon/config_tree.h"

#include "daemon/config_rows.h"

#include <yaml.h>

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct config_tree {
	yaml_parser_t parser;
	yaml_document_t doc;
};

static yaml_node_t *node_at(const struct config_tree *t, int index);
static yaml_node_t *step(
	const struct config_tree *t, yaml_node_t *node, const char *part, size_t part_len, uint32_t *line);
static void look_through(const struct config_tree *t, yaml_node_t *map, enum config_section section, const char *prefix,
	struct problems *p);
static void look_into(const struct config_tree *t, yaml_node_t *value, enum config_section section, const char *place,
	struct problems *p);
static bool is_known(enum config_section section, const char *word);
static int inner_section(enum config_section section, const char *word);
static void tell_unknown(enum config_section section, const yaml_node_t *key, const char *prefix, struct problems *p);

struct config_tree *config_tree_load(const char *path)
{
	struct config_tree *t = calloc(1, sizeof(*t));
	FILE *f = fopen(path, "re");
	bool is_loaded = false;

	if (t && f && yaml_parser_initialize(&t->parser)) {
		yaml_parser_set_input_file(&t->parser, f);
		is_loaded = yaml_parser_load(&t->parser, &t->doc);
		if (!is_loaded)
			yaml_parser_delete(&t->parser);
	}
	if (f)
		fclose(f);
	if (is_loaded)
		return t;
	free(t);
	return NULL;
}

void config_tree_free(struct config_tree *t)
{
	if (!t)
		return;
	yaml_document_delete(&t->doc);
	yaml_parser_delete(&t->parser);
	free(t);
}

uint32_t config_tree_line(const struct config_tree *t, const char *place)
{
	yaml_node_t *node = node_at(t, 1);
	uint32_t line = 1;

	while (node && *place) {
		size_t len;

		place += strspn(place, ".[]");
		len = strcspn(place, ".[]");
		if (!len)
			break;
		node = step(t, node, place, len, &line);
		place += len;
	}
	return line;
}

/* libyaml's own look-up wants a document that it may change. */
static yaml_node_t *node_at(const struct config_tree *t, int index)
{
	return yaml_document_get_node((yaml_document_t *)&t->doc, index);
}

/* One level down: a mapping's value or a sequence's entry; NULL when it is not there. */
static yaml_node_t *step(
	const struct config_tree *t, yaml_node_t *node, const char *part, size_t part_len, uint32_t *line)
{
	if (node->type == YAML_SEQUENCE_NODE) {
		size_t i = strtoul(part, NULL, 10);
		yaml_node_item_t *start = node->data.sequence.items.start;

		if (i >= (size_t)(node->data.sequence.items.top - start))
			return NULL;
		node = node_at(t, start[i]);
		*line = (uint32_t)node->start_mark.line + 1;
		return node;
	}
	if (node->type != YAML_MAPPING_NODE)
		return NULL;
	for (yaml_node_pair_t *p = node->data.mapping.pairs.start; p < node->data.mapping.pairs.top; p++) {
		yaml_node_t *key = node_at(t, p->key);

		if (key->type != YAML_SCALAR_NODE || key->data.scalar.length != part_len ||
			memcmp(key->data.scalar.value, part, part_len))
			continue;
		*line = (uint32_t)key->start_mark.line + 1;
		return node_at(t, p->value);
	}
	return NULL;
}

void config_tree_unknown(const struct config_tree *t, struct problems *p)
{
	look_through(t, node_at(t, 1), SECTION_NODE, "", p);
}

static void look_through(const struct config_tree *t, yaml_node_t *map, enum config_section section, const char *prefix,
	struct problems *p)
{
	char place[96];

	if (!map || map->type != YAML_MAPPING_NODE)
		return;
	for (yaml_node_pair_t *pair = map->data.mapping.pairs.start; pair < map->data.mapping.pairs.top; pair++) {
		const yaml_node_t *key = node_at(t, pair->key);
		const char *word = (const char *)key->data.scalar.value;
		int inner;

		if (key->type != YAML_SCALAR_NODE)
			continue; /* libcyaml refuses it */
		inner = inner_section(section, word);
		if (inner >= 0) {
			snprintf(place, sizeof(place), "%s%s", prefix, word);
			look_into(t, node_at(t, pair->value), (enum config_section)inner, place, p);
		} else if (!is_known(section, word)) {
			tell_unknown(section, key, prefix, p);
		}
	}
}

/* A section is one mapping, or a list of them; never deeper than a store's endpoints. */
static void look_into(const struct config_tree *t, yaml_node_t *value, enum config_section section, const char *place,
	struct problems *p)
{
	char prefix[112];

	if (value && value->type == YAML_SEQUENCE_NODE) {
		const yaml_node_item_t *start = value->data.sequence.items.start;

		for (const yaml_node_item_t *item = start; item < value->data.sequence.items.top; item++) {
			snprintf(prefix, sizeof(prefix), "%s[%d].", place, (int)(item - start));
			look_through(t, node_at(t, *item), section, prefix, p);
		}
		return;
	}
	snprintf(prefix, sizeof(prefix), "%s.", place);
	look_through(t, value, section, prefix, p);
}

static bool is_known(enum config_section section, const char *word)
{
	for (uint32_t i = 0; i < config_n_rows; i++) {
		if (config_rows[i].section == section && !strcmp(config_rows[i].key, word))
			return true;
	}
	return section == SECTION_NODE && !strcmp(word, "roles");
}

/* The section whose keys stand under this key; -1 = it has a value of its own, or is none. */
static int inner_section(enum config_section section, const char *word)
{
	if (section == SECTION_STORES)
		return strcmp(word, config_section_name(SECTION_ENDPOINTS)) ? -1 : SECTION_ENDPOINTS;
	for (int s = SECTION_NODE + 1; s < SECTION_COUNT && section == SECTION_NODE; s++) {
		if (s != SECTION_ENDPOINTS && !strcmp(word, config_section_name((enum config_section)s)))
			return s;
	}
	return -1;
}

static void tell_unknown(enum config_section section, const yaml_node_t *key, const char *prefix, struct problems *p)
{
	const char *near = config_nearest_key(section, (const char *)key->data.scalar.value);
	const char *name = config_section_name(section);
	char word[64], place[96];

	/* It goes to a terminal: no control characters of somebody else's. */
	snprintf(word, sizeof(word), "%s", (const char *)key->data.scalar.value);
	for (char *c = word; *c; c++)
		*c = isprint((unsigned char)*c) ? *c : '?';
	snprintf(place, sizeof(place), "%s%s", prefix, word);
	problem_on(p, (uint32_t)key->start_mark.line + 1, place, "unknown key '%s'%s%s%s%s%s", word,
		name[0] ? " in " : "", name, near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

const char *config_nearest_key(enum config_section section, const char *word)
{
	static const char *const lists[] = {"roles", "rails", "stores", "reader", "store", "health", "timeouts"};
	const char *best = NULL;
	unsigned best_distance = (unsigned)strlen(word) / 2 + 1;
	unsigned d;

	for (uint32_t i = 0; i < config_n_rows; i++) {
		if (config_rows[i].section != section)
			continue;
		d = config_distance(word, config_rows[i].key);
		if (d < best_distance)
			best = config_rows[i].key, best_distance = d;
	}
	for (uint32_t i = 0; section == SECTION_NODE && i < sizeof(lists) / sizeof(lists[0]); i++) {
		d = config_distance(word, lists[i]);
		if (d < best_distance)
			best = lists[i], best_distance = d;
	}
	if (section == SECTION_STORES && config_distance(word, "endpoints") < best_distance)
		best = "endpoints";
	return best;
}

/* Levenshtein's distance over the first 31 characters: enough to tell a slip of the finger from another word. */
unsigned config_distance(const char *a, const char *b)
{
	enum { MOST = 31 };
	unsigned row[MOST + 1];
	unsigned n_b = (unsigned)strnlen(b, MOST);

	for (unsigned j = 0; j <= n_b; j++)
		row[j] = j;
	for (unsigned i = 1; a[i - 1] && i <= MOST; i++) {
		unsigned diagonal = row[0];

		row[0] = i;
		for (unsigned j = 1; j <= n_b; j++) {
			unsigned change = diagonal + (a[i - 1] != b[j - 1]);

			diagonal = row[j];
			if (row[j] + 1 < change)
				change = row[j] + 1;
			if (row[j - 1] + 1 < change)
				change = row[j - 1] + 1;
			row[j] = change;
		}
	}
	return row[n_b];
}
