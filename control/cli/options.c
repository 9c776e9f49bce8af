/* SPDX-License-Identifier: BSD-3-Clause */
#include "cli/options.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>

#include "cli/units.h"

static const struct option_row *find(const struct option_row *rows, uint32_t n_rows, const char *word);
static int take_option(const struct option_row *row, char *const *argv, int *at, int argc, void *fields, char *error);
static int parse_value(const struct option_row *row, const char *value, uint64_t *out);
static const char *kind_name(uint8_t kind);
static int refuse(char *error, const char *format, ...) __attribute__((format(printf, 2, 3)));

static const struct option_row *find(const struct option_row *rows, uint32_t n_rows, const char *word)
{
	size_t bytes = (size_t)(strchrnul(word, '=') - word);
	uint32_t i;

	if (bytes < 3 || word[1] != '-')
		return NULL;
	for (i = 0; i < n_rows; i++) {
		if (strlen(rows[i].name) == bytes - 2 && memcmp(rows[i].name, word + 2, bytes - 2) == 0)
			return &rows[i];
	}
	return NULL;
}

int options_parse(const struct option_row *rows, uint32_t n_rows, int argc, char *const *argv, void *fields,
	struct arguments *args, uint64_t *given, char *error)
{
	bool has_ended = false;
	int i;

	*given = 0;
	for (i = 0; i < argc; i++) {
		const struct option_row *row;

		if (!has_ended && strcmp(argv[i], "--") == 0) {
			has_ended = true;
		} else if (has_ended || argv[i][0] != '-' || argv[i][1] == '\0') {
			if (args->n == OPTIONS_ARGUMENTS_MAX)
				return refuse(error, "too many arguments at \"%s\"", argv[i]);
			args->values[args->n++] = argv[i];
		} else {
			row = find(rows, n_rows, argv[i]);
			if (row == NULL)
				return refuse(error, "unknown option \"%s\"", argv[i]);
			if (take_option(row, argv, &i, argc, fields, error) < 0)
				return -EINVAL;
			*given |= 1ull << (row - rows);
		}
	}
	return 0;
}

int options_check(const struct option_row *rows, uint32_t n_rows, uint64_t given, uint32_t mask, char *error)
{
	uint32_t i;

	for (i = 0; i < n_rows; i++) {
		if ((given >> i & 1) != 0 && (rows[i].bit & mask) == 0)
			return refuse(error, "--%s does not apply here", rows[i].name);
	}
	return 0;
}

static int refuse(char *error, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(error, OPTIONS_ERROR_BYTES, format, args);
	va_end(args);
	return -EINVAL;
}

/* The value stands behind '=', or is the next word. */
static int take_option(const struct option_row *row, char *const *argv, int *at, int argc, void *fields, char *error)
{
	const char *equals = strchr(argv[*at], '='), *value = NULL;
	char *field = (char *)fields + row->offset;
	uint64_t number = 0;

	if (equals != NULL)
		value = equals + 1;
	else if (row->kind != OPTION_FLAG && *at + 1 < argc)
		value = argv[++*at];
	if (row->kind == OPTION_FLAG && value != NULL)
		return refuse(error, "--%s takes no value", row->name);
	if (row->kind != OPTION_FLAG && value == NULL)
		return refuse(error, "--%s needs a value", row->name);
	if (row->kind == OPTION_FLAG) {
		memcpy(field, &(bool){true}, sizeof(bool));
	} else if (row->kind == OPTION_TEXT) {
		memcpy(field, &value, sizeof(value));
	} else {
		if (parse_value(row, value, &number) < 0)
			return refuse(error, "--%s: \"%s\" is not %s", row->name, value, kind_name(row->kind));
		memcpy(field, &number, sizeof(number));
	}
	return 0;
}

static const char *kind_name(uint8_t kind)
{
	switch (kind) {
	case OPTION_BYTES:
		return "a size like 4MiB";
	case OPTION_RATE:
		return "a rate like 125MB/s";
	case OPTION_DURATION:
		return "a time like 5s or 200ms";
	default:
		return "a whole number";
	}
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
