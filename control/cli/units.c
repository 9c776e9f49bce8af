/* SPDX-License-Identifier: BSD-3-Clause */
#include "cli/units.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

struct unit {
	const char *name;
	uint64_t factor;
};

static int parse_number(const char **text, uint64_t *whole, uint64_t *millionths);
static int parse_scaled(const char *text, const struct unit *units, bool is_unit_needed, uint64_t *out);
static char *print_scaled(uint64_t value, const struct unit *units, char *text);

/* From small to large. Printing takes the largest that fits, so decimal and binary ones are apart. */
static const struct unit binary_units[] = {
	{"B", 1}, {"KiB", 1ull << 10}, {"MiB", 1ull << 20}, {"GiB", 1ull << 30}, {"TiB", 1ull << 40}, {NULL, 0}};
static const struct unit decimal_units[] = {
	{"B", 1}, {"kB", 1000}, {"KB", 1000}, {"MB", 1000000}, {"GB", 1000000000}, {"TB", 1000000000000}, {NULL, 0}};
static const struct unit rate_units[] = {
	{"B/s", 1}, {"kB/s", 1000}, {"MB/s", 1000000}, {"GB/s", 1000000000}, {"TB/s", 1000000000000}, {NULL, 0}};
static const struct unit other_rate_units[] = {{"KiB/s", 1ull << 10}, {"MiB/s", 1ull << 20}, {"GiB/s", 1ull << 30},
	{"Mbit/s", 125000}, {"Gbit/s", 125000000}, {NULL, 0}};
static const struct unit duration_units[] = {{"ns", 1}, {"us", 1000}, {"ms", 1000000}, {"s", 1000000000},
	{"min", 60000000000}, {"h", 3600000000000}, {NULL, 0}};

int units_parse_bytes(const char *text, uint64_t *out)
{
	if (parse_scaled(text, binary_units, false, out) == 0)
		return 0;
	return parse_scaled(text, decimal_units, false, out);
}

int units_parse_rate(const char *text, uint64_t *out)
{
	if (parse_scaled(text, rate_units, true, out) == 0)
		return 0;
	return parse_scaled(text, other_rate_units, true, out);
}

int units_parse_duration(const char *text, uint64_t *out)
{
	return parse_scaled(text, duration_units, true, out);
}

int units_parse_count(const char *text, uint64_t *out)
{
	uint64_t whole, millionths;

	if (strchr(text, '.') != NULL || parse_number(&text, &whole, &millionths) < 0 || *text != '\0')
		return -EINVAL;
	*out = whole;
	return 0;
}

/* "12" or "1.25"; more than six decimals are refused rather than rounded. */
static int parse_number(const char **text, uint64_t *whole, uint64_t *millionths)
{
	uint64_t place = 100000;
	const char *p = *text;

	*whole = 0;
	*millionths = 0;
	if (!isdigit((unsigned char)*p))
		return -EINVAL;
	for (; isdigit((unsigned char)*p); p++) {
		if (__builtin_mul_overflow(*whole, 10u, whole) ||
			__builtin_add_overflow(*whole, (uint64_t)(*p - '0'), whole))
			return -EINVAL;
	}
	if (*p == '.' && !isdigit((unsigned char)*++p))
		return -EINVAL;
	for (; p > *text && isdigit((unsigned char)*p); p++, place /= 10) {
		if (place == 0)
			return -EINVAL;
		*millionths += (uint64_t)(*p - '0') * place;
	}
	*text = p;
	return 0;
}

static int parse_scaled(const char *text, const struct unit *units, bool is_unit_needed, uint64_t *out)
{
	uint64_t whole, millionths, value, part;

	if (parse_number(&text, &whole, &millionths) < 0)
		return -EINVAL;
	if (*text == '\0') {
		if (millionths != 0 || (is_unit_needed && whole != 0))
			return -EINVAL;
		*out = whole;
		return 0;
	}
	while (*text == ' ')
		text++;
	for (; units->name != NULL; units++) {
		if (strcmp(text, units->name) != 0)
			continue;
		if (__builtin_mul_overflow(whole, units->factor, &value) ||
			__builtin_mul_overflow(millionths, units->factor, &part) ||
			__builtin_add_overflow(value, part / 1000000, &value))
			return -EINVAL;
		*out = value;
		return 0;
	}
	return -EINVAL;
}

char *units_print_bytes(uint64_t bytes, char *text)
{
	return print_scaled(bytes, binary_units, text);
}

char *units_print_rate(uint64_t bytes_per_s, char *text)
{
	return print_scaled(bytes_per_s, rate_units, text);
}

char *units_print_duration(uint64_t ns, char *text)
{
	return print_scaled(ns, duration_units, text);
}

static char *print_scaled(uint64_t value, const struct unit *units, char *text)
{
	double scaled;

	while (units[1].name != NULL && value >= units[1].factor)
		units++;
	scaled = (double)value / (double)units->factor;
	if (value % units->factor == 0)
		snprintf(text, UNITS_TEXT_BYTES, "%" PRIu64 " %s", value / units->factor, units->name);
	else
		snprintf(text, UNITS_TEXT_BYTES, "%.*f %s", scaled < 10 ? 2 : 1, scaled, units->name);
	return text;
}
