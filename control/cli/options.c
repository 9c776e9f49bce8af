/* SPDX-License-Identifier: BSD-3-Clause */
#include "cli/options.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "cli/units.h"

static const struct option_row *find(
	const struct option_row *rows, uint32_t n_rows, const char *name, size_t name_bytes);
static int take_option(const struct option_row *row, const char *value, void *fields, char *error);
static int parse_value(const struct option_row *row, const char *value, uint64_t *out);

static const struct option_row *find(
	const struct option_row *rows, uint32_t n_rows, const char *name, size_t name_bytes)
{
	uint32_t i;

	for (i = 0; i < n_rows; i++) {
		if (strlen(rows[i].name) == name_bytes && memcmp(rows[i].name, name, name_bytes) == 0)
			return &rows[i];
	}
	return NULL;
}

int options_parse(const struct option_row *rows, uint32_t n_rows, uint32_t mask, int argc, char *const *argv,
	void *fields, struct arguments *args, char *error)
{
	bool has_ended = false;
	int i;

	for (i = 0; i < argc; i++) {
		const char *name = argv[i] + 2, *value = strchrnul(argv[i], '=');
		const struct option_row *row;

		if (!has_ended && strcmp(argv[i], "--") == 0) {
			has_ended = true;
			continue;
		}
		if (has_ended || argv[i][0] != '-' || argv[i][1] == '\0') {
			if (args->n == OPTIONS_ARGUMENTS_MAX)
				return snprintf(error, OPTIONS_ERROR_BYTES, "too many arguments at \"%s\"", argv[i]),
				       -EINVAL;
			args->values[args->n++] = argv[i];
			continue;
		}
		row = argv[i][1] == '-' && value > name ? find(rows, n_rows, name, (size_t)(value - name)) : NULL;
		if (row == NULL)
			return snprintf(error, OPTIONS_ERROR_BYTES, "unknown option \"%s\"", argv[i]), -EINVAL;
		if ((mask & row->bit) == 0)
			return snprintf(error, OPTIONS_ERROR_BYTES, "--%s does not apply here", row->name), -EINVAL;
		value = *value == '=' ? value + 1 : row->kind == OPTION_FLAG ? NULL : i + 1 < argc ? argv[++i] : NULL;
		if (take_option(row, value, fields, error) < 0)
			return -EINVAL;
	}
	return 0;
}

static int take_option(const struct option_row *row, const char *value, void *fields, char *error)
{
	char *field = (char *)fields + row->offset;
	uint64_t number = 0;

	if ((row->kind == OPTION_FLAG) != (value == NULL)) {
		snprintf(error, OPTIONS_ERROR_BYTES, value == NULL ? "--%s needs a value" : "--%s takes no value",
			row->name);
		return -EINVAL;
	}
	if (row->kind == OPTION_FLAG) {
		memcpy(field, &(bool){true}, sizeof(bool));
		return 0;
	}
	if (row->kind == OPTION_TEXT) {
		memcpy(field, &value, sizeof(value));
		return 0;
	}
	if (parse_value(row, value, &number) < 0) {
		snprintf(error, OPTIONS_ERROR_BYTES, "--%s: \"%s\" is not %s", row->name, value,
			row->kind == OPTION_BYTES      ? "a size like 4MiB"
			: row->kind == OPTION_RATE     ? "a rate like 125MB/s"
			: row->kind == OPTION_DURATION ? "a time like 5s or 200ms"
						       : "a whole number");
		return -EINVAL;
	}
	memcpy(field, &number, sizeof(number));
	return 0;
}

static int parse_value(const struct option_row *row, const char *value, uint64_t *out)
{
	switch (row->kind) {
	case OPTION_BYTES:
		return units_parse_bytes(value, out);
	case OPTION_RATE:
		return units_parse_rate(value, out);
	case OPTION_DURATION:
		return units_parse_duration(value, out);
	default:
		return units_parse_count(value, out);
	}
}

void options_help(const struct option_row *rows, uint32_t n_rows, uint32_t mask, FILE *out)
{
	char left[64];
	uint32_t i;

	for (i = 0; i < n_rows; i++) {
		if ((rows[i].bit & mask) == 0)
			continue;
		snprintf(left, sizeof(left), "--%s%s%s", rows[i].name, rows[i].value[0] != '\0' ? " " : "",
			rows[i].value);
		fprintf(out, "  %-24s %s\n", left, rows[i].help);
	}
}
