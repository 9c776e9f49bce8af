/* SPDX-License-Identifier: BSD-3-Clause */
#include "cli/cli.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/units.h"

#define CELL_BYTES 256u
#define COLUMNS_MAX 24u

static void print_object(json_t *object, int indent);
static void print_lines(json_t *object, int indent);
static void print_member(const char *name, json_t *value, int indent);
static void print_table(json_t *rows, int indent);
static void print_row(json_t *row, const char *const *names, const int *widths, uint32_t n, int indent);
static bool is_scalar(const json_t *value);
static bool ends_with(const char *name, const char *suffix);
static char *cell(const char *name, const json_t *value, char *text);
static void join(const json_t *strings, char *text);
static void print_number(const char *name, const json_t *value, char *text);

int output_print(const struct cli *c, json_t *result)
{
	if (c->want_json) {
		json_dumpf(result, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(12));
		putchar('\n');
	} else if (json_is_array(result)) {
		print_table(result, 0);
	} else {
		print_object(result, 0);
	}
	json_decref(result);
	return output_end(c);
}

int output_end(const struct cli *c)
{
	if (fflush(stdout) == 0 && !ferror(stdout))
		return CLI_OK;
	fprintf(stderr, "railyard: %s: cannot write to standard output\n", c->command);
	return CLI_FAILED;
}

/* First what fits on a line each, then tables and nested objects. */
static void print_object(json_t *object, int indent)
{
	const char *name;
	json_t *value;

	print_lines(object, indent);
	json_object_foreach (object, name, value) {
		if (!is_scalar(value))
			print_member(name, value, indent);
	}
}

static void print_lines(json_t *object, int indent)
{
	char text[CELL_BYTES];
	const char *name;
	json_t *value;
	int width = 0;

	json_object_foreach (object, name, value) {
		if (is_scalar(value) && (int)strlen(name) > width)
			width = (int)strlen(name);
	}
	json_object_foreach (object, name, value) {
		if (is_scalar(value))
			printf("%*s%-*s  %s\n", indent, "", width, name, cell(name, value, text));
	}
}

static void print_member(const char *name, json_t *value, int indent)
{
	if (json_is_array(value) && json_array_size(value) == 0) {
		printf("%*s%s: none\n", indent, "", name);
		return;
	}
	printf("%*s%s:\n", indent, "", name);
	if (json_is_array(value))
		print_table(value, indent + 2);
	else
		print_object(value, indent + 2);
}

/* Columns are the scalar members of the first row; numbers are flush right. */
static void print_table(json_t *rows, int indent)
{
	const char *names[COLUMNS_MAX], *name;
	int widths[COLUMNS_MAX];
	char text[CELL_BYTES];
	json_t *row, *value;
	uint32_t n = 0, i;
	size_t k;

	json_object_foreach (json_array_get(rows, 0), name, value) {
		if (n == COLUMNS_MAX || !is_scalar(value))
			continue;
		names[n] = name;
		widths[n++] = (int)strlen(name);
	}
	json_array_foreach (rows, k, row) {
		for (i = 0; i < n; i++) {
			int w = (int)strlen(cell(names[i], json_object_get(row, names[i]), text));

			widths[i] = w > widths[i] ? w : widths[i];
		}
	}
	if (n > 0)
		print_row(NULL, names, widths, n, indent);
	json_array_foreach (rows, k, row)
		print_row(row, names, widths, n, indent);
}

static void print_row(json_t *row, const char *const *names, const int *widths, uint32_t n, int indent)
{
	char text[CELL_BYTES], line[COLUMNS_MAX * (CELL_BYTES + 2) + 1];
	uint32_t i, used = 0;

	line[0] = '\0';
	for (i = 0; i < n; i++) {
		const json_t *value = row == NULL ? NULL : json_object_get(row, names[i]);
		int width = json_is_number(value) ? widths[i] : -widths[i];

		used += (uint32_t)snprintf(line + used, sizeof(line) - used, "%s%*s", i == 0 ? "" : "  ", width,
			row == NULL ? names[i] : cell(names[i], value, text));
	}
	while (used > 0 && line[used - 1] == ' ')
		line[--used] = '\0';
	printf("%*s%s\n", indent, "", line);
}

static bool is_scalar(const json_t *value)
{
	return !json_is_object(value) && (!json_is_array(value) || json_is_string(json_array_get(value, 0)));
}

static bool ends_with(const char *name, const char *suffix)
{
	size_t n = strlen(name), k = strlen(suffix);

	return n >= k && strcmp(name + n - k, suffix) == 0;
}

static char *cell(const char *name, const json_t *value, char *text)
{
	if (json_is_string(value))
		snprintf(text, CELL_BYTES, "%s", json_string_value(value));
	else if (json_is_array(value))
		join(value, text);
	else if (json_is_boolean(value))
		snprintf(text, CELL_BYTES, "%s", json_is_true(value) ? "yes" : "no");
	else if (json_is_number(value))
		print_number(name, value, text);
	else
		snprintf(text, CELL_BYTES, "-");
	return text;
}

static void join(const json_t *strings, char *text)
{
	size_t i, used = 0;
	json_t *s;

	text[0] = '\0';
	json_array_foreach (strings, i, s) {
		int n = snprintf(
			text + used, CELL_BYTES - used, "%s%s", i == 0 ? "" : ", ", json_string_value(s) ?: "");

		used += n > 0 && (size_t)n < CELL_BYTES - used ? (size_t)n : 0;
	}
}

/* The unit is in the name. */
static void print_number(const char *name, const json_t *value, char *text)
{
	uint64_t number = (uint64_t)json_integer_value(value);

	if (json_is_real(value) && ends_with(name, "bytes_per_s"))
		units_print_rate((uint64_t)json_real_value(value), text);
	else if (json_is_real(value))
		snprintf(text, CELL_BYTES, "%.3f", json_real_value(value));
	else if (ends_with(name, "bytes_per_s"))
		units_print_rate(number, text);
	else if (ends_with(name, "bytes"))
		units_print_bytes(number, text);
	else if (ends_with(name, "_ns"))
		units_print_duration(number, text);
	else
		snprintf(text, CELL_BYTES, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
}

json_t *output_key(const void *key, uint16_t key_bytes)
{
	const uint8_t *bytes = key;
	char *text = malloc(4u * key_bytes + 1u);
	json_t *valid = json_stringn(key, key_bytes), *out;
	bool is_plain = valid != NULL;
	uint32_t i, used = 0;

	for (i = 0; i < key_bytes; i++)
		is_plain = is_plain && bytes[i] >= 0x20 && bytes[i] != 0x7f && bytes[i] != '\\';
	if (is_plain || text == NULL) {
		free(text);
		return valid;
	}
	json_decref(valid);
	for (i = 0; i < key_bytes; i++) {
		bool is_print = bytes[i] >= 0x20 && bytes[i] < 0x7f && bytes[i] != '\\';

		used += (uint32_t)sprintf(text + used, is_print ? "%c" : "\\x%02x", bytes[i]);
	}
	out = json_string(text);
	free(text);
	return out;
}

json_t *output_rails(const struct ry_read_stats *stats)
{
	json_t *rails = json_array();
	uint8_t i;

	for (i = 0; i < stats->n_rails && i < RY_RAILS_MAX; i++)
		json_array_append_new(rails,
			json_pack("{s:s, s:I, s:I, s:f}", "name", stats->rails[i].name, "bytes",
				(json_int_t)stats->rails[i].bytes, "segments", (json_int_t)stats->rails[i].segments,
				"busy_s", (double)stats->rails[i].busy_ns / 1e9));
	return rails;
}

const char *output_class(uint8_t read_class)
{
	static const char *const names[] = {"unknown", "network", "storage", "software"};

	return read_class < sizeof(names) / sizeof(names[0]) ? names[read_class] : names[0];
}
