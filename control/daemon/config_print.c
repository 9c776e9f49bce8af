/* SPDX-License-Identifier: BSD-3-Clause */
/* The configuration in effect, each value with where it is from. */
#include "daemon/config_rows.h"

#include <string.h>

/* What config_each passes down. */
struct walk {
	const struct config *c;
	config_value_fn fn;
	void *arg;
};

struct printer {
	FILE *out;
	enum config_section section; /* of the line before */
	uint16_t i, j;
};

static void each_of_section(
	const struct walk *w, enum config_section section, const void *base, uint16_t i, uint16_t j);
static void each_role(const struct walk *w);
static void each_store(const struct walk *w, uint16_t i);
static bool has_meaning(const struct config *c, const struct config_row *row, uint16_t i);
static void place_of(const struct config_row *row, uint16_t i, uint16_t j, char *buf, uint32_t buf_bytes);
static void print_value(void *arg, const struct config_value *v);
static void open_section(struct printer *p, const struct config_value *v);
static const char *indent_of(const struct config_value *v);
static void quote(const struct config_value *v, char *buf, uint32_t buf_bytes);

void config_each(const struct config *c, config_value_fn fn, void *arg)
{
	struct walk w = {c, fn, arg};

	each_of_section(&w, SECTION_NODE, c, 0, 0);
	each_role(&w);
	for (uint16_t i = 0; i < c->n_rails; i++)
		each_of_section(&w, SECTION_RAILS, &c->rails[i], i, 0);
	for (uint16_t i = 0; i < c->n_stores && c->is_reader; i++)
		each_store(&w, i);
	if (c->is_reader)
		each_of_section(&w, SECTION_READER, c, 0, 0);
	if (c->is_store)
		each_of_section(&w, SECTION_STORE, c, 0, 0);
	each_of_section(&w, SECTION_HEALTH, c, 0, 0);
	each_of_section(&w, SECTION_TIMEOUTS, c, 0, 0);
}

static void each_of_section(const struct walk *w, enum config_section section, const void *base, uint16_t i, uint16_t j)
{
	struct config_value v = {.i = i, .j = j};

	for (v.row = config_first_row(section); v.row < config_rows + config_n_rows && v.row->section == section;
		v.row++) {
		if (!has_meaning(w->c, v.row, i))
			continue;
		place_of(v.row, i, j, v.place, sizeof(v.place));
		config_row_format(v.row, base, v.text, sizeof(v.text));
		config_source(w->c, v.row, i, j, v.source, sizeof(v.source));
		w->fn(w->arg, &v);
	}
}

static void each_role(const struct walk *w)
{
	const struct config *c = w->c;
	struct config_value v = {.place = "roles"};

	snprintf(v.text, sizeof(v.text), "[%s%s%s]", c->is_reader ? "reader" : "",
		c->is_reader && c->is_store ? ", " : "", c->is_store ? "store" : "");
	snprintf(v.source, sizeof(v.source), "%s:%u", c->file, c->roles_line);
	w->fn(w->arg, &v);
}

static void each_store(const struct walk *w, uint16_t i)
{
	const struct config_store *s = &w->c->stores[i];

	each_of_section(w, SECTION_STORES, s, i, 0);
	for (uint16_t j = 0; j < s->n_endpoints; j++)
		each_of_section(w, SECTION_ENDPOINTS, &s->endpoints[j], i, j);
}

static bool has_meaning(const struct config *c, const struct config_row *row, uint16_t i)
{
	const char *only = config_row_transport(row);

	return !only || !strcmp(only, c->rails[i].transport);
}

static void place_of(const struct config_row *row, uint16_t i, uint16_t j, char *buf, uint32_t buf_bytes)
{
	const char *name = config_section_name(row->section);

	if (row->section == SECTION_ENDPOINTS)
		snprintf(buf, buf_bytes, "stores[%u].%s[%u].%s", i, name, j, row->key);
	else if (row->section == SECTION_RAILS || row->section == SECTION_STORES)
		snprintf(buf, buf_bytes, "%s[%u].%s", name, i, row->key);
	else
		snprintf(buf, buf_bytes, "%s%s%s", name, name[0] ? "." : "", row->key);
}

void config_print(const struct config *c, FILE *out)
{
	struct printer p = {.out = out};

	fprintf(out, "# What railyardd runs with. Behind each value: the line that gave it, or default.\n");
	fprintf(out, "# Command line: EAL arguments %s, --config %s\n", c->eal_args[0] ? c->eal_args : "none", c->file);
	config_each(c, print_value, &p);
}

static void print_value(void *arg, const struct config_value *v)
{
	struct printer *p = arg;
	char line[256], text[2 * CONFIG_PATH_MAX + 3];
	const char *indent;

	quote(v, text, sizeof(text));
	indent = indent_of(v);
	open_section(p, v);
	/* Nothing given and nothing by default: a key without a value is refused, so it is a comment. */
	snprintf(line, sizeof(line), "%s%s%s: %s", text[0] ? "" : "# ", indent, v->row ? v->row->key : "roles", text);
	fprintf(p->out, "%-47s # %s\n", line, v->source);
}

/* The line above a section's first value. */
static void open_section(struct printer *p, const struct config_value *v)
{
	enum config_section section = v->row ? v->row->section : SECTION_NODE;
	bool is_new = section != p->section || v->i != p->i || v->j != p->j;

	if (section == SECTION_ENDPOINTS && is_new && p->section != SECTION_ENDPOINTS)
		fprintf(p->out, "    endpoints:\n");
	else if (section != SECTION_NODE && section != p->section &&
		 !(section == SECTION_STORES && p->section == SECTION_ENDPOINTS))
		fprintf(p->out, "%s:\n", config_section_name(section));
	p->section = section;
	p->i = v->i;
	p->j = v->j;
}

/* A list entry's first key carries its dash; name and address come first in their tables and are never empty. */
static const char *indent_of(const struct config_value *v)
{
	bool is_first = v->row && v->row == config_first_row(v->row->section);

	if (!v->row || v->row->section == SECTION_NODE)
		return "";
	if (v->row->section == SECTION_RAILS || v->row->section == SECTION_STORES)
		return is_first ? "  - " : "    ";
	if (v->row->section == SECTION_ENDPOINTS)
		return is_first ? "      - " : "        ";
	return "  ";
}

/* Text may hold what YAML takes for its own signs. */
static void quote(const struct config_value *v, char *buf, uint32_t buf_bytes)
{
	uint32_t n = 0;

	if (!v->row || v->row->kind != KIND_text || !v->text[0]) {
		snprintf(buf, buf_bytes, "%s", v->text);
		return;
	}
	buf[n++] = '"';
	for (const char *c = v->text; *c && n + 4 < buf_bytes; c++) {
		if (*c == '"' || *c == '\\')
			buf[n++] = '\\';
		buf[n++] = *c;
	}
	buf[n++] = '"';
	buf[n] = '\0';
}
