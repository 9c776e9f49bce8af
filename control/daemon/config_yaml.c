/* SPDX-License-Identifier: BSD-3-Clause */
#include "daemon/config_raw.h"
#include "daemon/config_rows.h"
#include "daemon/config_tree.h"

#include <cyaml/cyaml.h>

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
static void explain(const struct complaint *c, cyaml_err_t rc, struct problems *p);
static bool is_section(const char *name);

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

int config_raw_load(const char *path, struct raw_config **out, struct problems *p)
{
	struct complaint c = {.line = 1};
	/* Unknown keys are config_tree.c's: libcyaml would end at the first. */
	cyaml_config_t cfg = {
		.log_fn = gather,
		.log_ctx = &c,
		.mem_fn = cyaml_mem,
		.log_level = CYAML_LOG_NOTICE,
		.flags = CYAML_CFG_NO_ALIAS | CYAML_CFG_IGNORE_UNKNOWN_KEYS,
	};
	struct raw_config *raw = NULL;
	cyaml_err_t rc;
	FILE *f = fopen(path, "re");

	if (!f) {
		int err = errno;

		problem_on(p, 0, "", "cannot be opened: %s", strerror(err));
		return -err;
	}
	if (getc(f) == EOF && ferror(f)) {
		int err = errno;

		fclose(f);
		problem_on(p, 0, "", "cannot be read: %s", strerror(err));
		return -err;
	}
	fclose(f);
	rc = cyaml_load_file(path, &cfg, &config_schema, (cyaml_data_t **)&raw, NULL);
	/* A complaint without an error is a second document, which would be ignored. */
	if (rc == CYAML_OK && raw && !c.text[0]) {
		*out = raw;
		return 0;
	}
	if (rc == CYAML_OK && !raw)
		problem_on(p, 1, "", "the file is empty; at least node, roles and rails are needed");
	else
		explain(&c, rc, p);
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
	if (c->text[0] || strstr(buf, "Backtrace") || strstr(buf, "(line: ") || strstr(buf, "Ignoring key: "))
		return;
	p = strncmp(buf, "Load: ", 6) ? buf : buf + 6;
	p[strcspn(p, "\n")] = '\0';
	snprintf(c->text, sizeof(c->text), "%.*s", (int)sizeof(c->text) - 1, p);
}

/* At the top level libcyaml's position is that of the value before, so the key is looked up again. */
static void explain(const struct complaint *c, cyaml_err_t rc, struct problems *p)
{
	static const char twice[] = "Mapping field already seen: ";
	const char *what = c->text[0] ? c->text : cyaml_strerror(rc);
	uint32_t line = c->line;

	if (!strncmp(what, twice, sizeof(twice) - 1) && !is_section(c->section) && p->tree)
		line = config_tree_line(p->tree, what + sizeof(twice) - 1);
	problem_on(p, line, c->section, "%s", what);
}

static bool is_section(const char *name)
{
	int s;

	for (s = SECTION_NODE + 1; s < SECTION_COUNT; s++)
		if (!strcmp(config_section_name((enum config_section)s), name))
			return true;
	return false;
}
