/* SPDX-License-Identifier: BSD-3-Clause */
#include "daemon/config_raw.h"
#include "daemon/config_rows.h"

#include <cyaml/cyaml.h>
#include <yaml.h>

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What libcyaml said, gathered from its log: the first message, and the position that its backtrace starts with. */
struct complaint {
	char text[160];
	uint32_t line;
	char section[24]; /* innermost mapping field of the backtrace */
};

static void gather(cyaml_log_t level, void *ctx, const char *fmt, va_list args);
static void explain(const char *path, const struct complaint *c, cyaml_err_t rc, struct config_error *err);
static enum config_section section_of(const char *name);
static yaml_node_t *step(yaml_document_t *doc, yaml_node_t *node, const char *part, size_t part_len, uint32_t *line);

#define TEXT_MAX 256u
#define TEXT(raw_type, key)                                                                                            \
	CYAML_FIELD_STRING_PTR(#key, CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL, raw_type, key, 0, TEXT_MAX),
#define NODE_TEXT(key, ...) TEXT(struct raw_config, key)
#define RAIL_TEXT(key, ...) TEXT(struct raw_rail, key)
#define STORES_TEXT(key, ...) TEXT(struct raw_store, key)
#define ENDPOINT_TEXT(key, ...) TEXT(struct raw_endpoint, key)
#define READER_TEXT(key, ...) TEXT(struct raw_reader, key)
#define STORE_TEXT(key, ...) TEXT(struct raw_store_role, key)
#define HEALTH_TEXT(key, ...) TEXT(struct raw_health, key)
#define TIMEOUT_TEXT(key, ...) TEXT(struct raw_timeouts, key)

/* A list of `entry`, at most `most` long, with its length in n_<list>. */
#define LIST(raw_type, list, entry_schema, elt_bytes, most)                                                            \
	{                                                                                                              \
		.key = #list, .data_offset = offsetof(raw_type, list), .count_offset = offsetof(raw_type, n_##list),   \
		.count_size = sizeof(((raw_type *)0)->n_##list),                                                       \
		.value = {                                                                                             \
			.type = CYAML_SEQUENCE,                                                                        \
			.flags = CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL,                                             \
			.data_size = (elt_bytes),                                                                      \
			.sequence = {.entry = &(entry_schema), .min = 0, .max = (most)},                               \
		},                                                                                                     \
	}

static const cyaml_schema_field_t endpoint_fields[] = {CONFIG_ENDPOINT_KEYS(ENDPOINT_TEXT) CYAML_FIELD_END};
static const cyaml_schema_value_t endpoint_schema = {
	CYAML_VALUE_MAPPING(CYAML_FLAG_DEFAULT, struct raw_endpoint, endpoint_fields)};
static const cyaml_schema_field_t store_fields[] = {
	CONFIG_STORES_KEYS(STORES_TEXT)
		LIST(struct raw_store, endpoints, endpoint_schema, sizeof(struct raw_endpoint), RY_RAILS_MAX),
	CYAML_FIELD_END,
};
static const cyaml_schema_value_t store_schema = {
	CYAML_VALUE_MAPPING(CYAML_FLAG_DEFAULT, struct raw_store, store_fields)};
static const cyaml_schema_field_t rail_fields[] = {CONFIG_RAIL_KEYS(RAIL_TEXT) CYAML_FIELD_END};
static const cyaml_schema_value_t rail_schema = {CYAML_VALUE_MAPPING(CYAML_FLAG_DEFAULT, struct raw_rail, rail_fields)};
static const cyaml_schema_field_t reader_fields[] = {CONFIG_READER_KEYS(READER_TEXT) CYAML_FIELD_END};
static const cyaml_schema_field_t store_role_fields[] = {CONFIG_STORE_KEYS(STORE_TEXT) CYAML_FIELD_END};
static const cyaml_schema_field_t health_fields[] = {CONFIG_HEALTH_KEYS(HEALTH_TEXT) CYAML_FIELD_END};
static const cyaml_schema_field_t timeout_fields[] = {CONFIG_TIMEOUT_KEYS(TIMEOUT_TEXT) CYAML_FIELD_END};
static const cyaml_schema_value_t role_schema = {CYAML_VALUE_STRING(CYAML_FLAG_POINTER, char, 0, TEXT_MAX)};

static const cyaml_schema_field_t config_fields[] = {
	CONFIG_NODE_KEYS(NODE_TEXT) LIST(struct raw_config, roles, role_schema, sizeof(char *), 8),
	LIST(struct raw_config, rails, rail_schema, sizeof(struct raw_rail), RY_RAILS_MAX),
	LIST(struct raw_config, stores, store_schema, sizeof(struct raw_store), CONFIG_STORES_MAX),
	CYAML_FIELD_MAPPING("reader", CYAML_FLAG_OPTIONAL, struct raw_config, reader, reader_fields),
	CYAML_FIELD_MAPPING("store", CYAML_FLAG_OPTIONAL, struct raw_config, store, store_role_fields),
	CYAML_FIELD_MAPPING("health", CYAML_FLAG_OPTIONAL, struct raw_config, health, health_fields),
	CYAML_FIELD_MAPPING("timeouts", CYAML_FLAG_OPTIONAL, struct raw_config, timeouts, timeout_fields),
	CYAML_FIELD_END,
};
static const cyaml_schema_value_t config_schema = {
	CYAML_VALUE_MAPPING(CYAML_FLAG_POINTER, struct raw_config, config_fields)};

static const cyaml_config_t quiet = {.mem_fn = cyaml_mem};

int config_raw_load(const char *path, struct raw_config **out, struct config_error *err)
{
	struct complaint c = {.line = 1};
	cyaml_config_t cfg = {
		.log_fn = gather,
		.log_ctx = &c,
		.mem_fn = cyaml_mem,
		.log_level = CYAML_LOG_NOTICE,
		.flags = CYAML_CFG_NO_ALIAS,
	};
	struct raw_config *raw = NULL;
	cyaml_err_t rc;
	FILE *f = fopen(path, "r");

	if (!f) {
		rc = errno;
		snprintf(err->text, sizeof(err->text), "%s: cannot be opened: %s", path, strerror((int)rc));
		return -(int)rc;
	}
	fclose(f);
	rc = cyaml_load_file(path, &cfg, &config_schema, (cyaml_data_t **)&raw, NULL);
	/* A complaint without an error is a second document, which would be ignored. */
	if (rc == CYAML_OK && raw && !c.text[0]) {
		*out = raw;
		return 0;
	}
	if (rc == CYAML_OK && !raw)
		snprintf(err->text, sizeof(err->text),
			"%s:1: the file is empty; at least node, roles and rails are needed", path);
	else
		explain(path, &c, rc, err);
	config_raw_free(raw);
	return rc == CYAML_ERR_OOM ? -ENOMEM : -EINVAL;
}

void config_raw_free(struct raw_config *raw)
{
	if (raw)
		cyaml_free(&quiet, &config_schema, raw, 0);
}

/* libcyaml logs "Load: <message>", "Load: Backtrace:", then one "in mapping field 'x' (line: n, column: n)" per level.
 */
static void gather(cyaml_log_t level, void *ctx, const char *fmt, va_list args)
{
	struct complaint *c = ctx;
	char buf[256];
	char *p;

	(void)level;
	vsnprintf(buf, sizeof(buf), fmt, args);
	p = strstr(buf, "(line: ");
	if (p && c->line == 1)
		c->line = (uint32_t)strtoul(p + strlen("(line: "), NULL, 10);
	p = strstr(buf, "mapping field '");
	if (p && !c->section[0])
		sscanf(p, "mapping field '%23[^']'", c->section);
	if (c->text[0] || strstr(buf, "Backtrace") || strstr(buf, "(line: "))
		return;
	p = strncmp(buf, "Load: ", 6) ? buf : buf + 6;
	p[strcspn(p, "\n")] = '\0';
	snprintf(c->text, sizeof(c->text), "%.*s", (int)sizeof(c->text) - 1, p);
}

/* At the top level libcyaml's position is that of the value before, so the key is looked up again. */
static void explain(const char *path, const struct complaint *c, cyaml_err_t rc, struct config_error *err)
{
	static const char unknown[] = "Unexpected key: ", twice[] = "Mapping field already seen: ";
	const char *what = c->text[0] ? c->text : cyaml_strerror(rc);
	const char *near, *word = what;
	uint32_t line = c->line;

	if (!strncmp(what, unknown, sizeof(unknown) - 1))
		word += sizeof(unknown) - 1;
	else if (!strncmp(what, twice, sizeof(twice) - 1))
		word += sizeof(twice) - 1;
	if (word != what && section_of(c->section) == SECTION_NODE)
		line = config_raw_line(path, word);
	if (strncmp(what, unknown, sizeof(unknown) - 1)) {
		snprintf(err->text, sizeof(err->text), "%s:%u: %s%s%s", path, line, c->section,
			c->section[0] ? ": " : "", what);
		return;
	}
	near = config_nearest_key(section_of(c->section), word);
	snprintf(err->text, sizeof(err->text), "%s:%u: unknown key '%s'%s%s%s%s%s", path, line, word,
		c->section[0] ? " in " : "", c->section, near ? "; did you mean '" : "", near ? near : "",
		near ? "'?" : "");
}

static enum config_section section_of(const char *name)
{
	int s;

	for (s = SECTION_NODE + 1; s < SECTION_COUNT; s++)
		if (!strcmp(config_section_name((enum config_section)s), name))
			return (enum config_section)s;
	return SECTION_NODE;
}

uint32_t config_raw_line(const char *path, const char *place)
{
	yaml_parser_t parser;
	yaml_document_t doc;
	yaml_node_t *node;
	uint32_t line = 1;
	FILE *f = fopen(path, "r");

	if (!f)
		return line;
	if (!yaml_parser_initialize(&parser))
		goto out_file;
	yaml_parser_set_input_file(&parser, f);
	if (!yaml_parser_load(&parser, &doc))
		goto out_parser;
	node = yaml_document_get_root_node(&doc);
	while (node && *place) {
		size_t len;

		place += strspn(place, ".[]");
		len = strcspn(place, ".[]");
		if (!len)
			break;
		node = step(&doc, node, place, len, &line);
		place += len;
	}
	yaml_document_delete(&doc);
out_parser:
	yaml_parser_delete(&parser);
out_file:
	fclose(f);
	return line;
}

/* One level down: a mapping's value or a sequence's entry; NULL when it is not there. */
static yaml_node_t *step(yaml_document_t *doc, yaml_node_t *node, const char *part, size_t part_len, uint32_t *line)
{
	if (node->type == YAML_SEQUENCE_NODE) {
		size_t i = strtoul(part, NULL, 10);
		yaml_node_item_t *item = node->data.sequence.items.start + i;

		if (item >= node->data.sequence.items.top)
			return NULL;
		node = yaml_document_get_node(doc, *item);
		*line = (uint32_t)node->start_mark.line + 1;
		return node;
	}
	if (node->type != YAML_MAPPING_NODE)
		return NULL;
	for (yaml_node_pair_t *p = node->data.mapping.pairs.start; p < node->data.mapping.pairs.top; p++) {
		yaml_node_t *key = yaml_document_get_node(doc, p->key);

		if (key->type != YAML_SCALAR_NODE || key->data.scalar.length != part_len ||
			memcmp(key->data.scalar.value, part, part_len))
			continue;
		*line = (uint32_t)key->start_mark.line + 1;
		return yaml_document_get_node(doc, p->value);
	}
	return NULL;
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
