/* SPDX-License-Identifier: BSD-3-Clause */
#include "daemon/config.h"
#include "daemon/config_rows.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>

struct unit {
	const char *name;
	uint64_t factor;
	bool is_printed;
};

static int parse_number(const char **text, uint64_t *whole, uint64_t *frac, uint64_t *frac_scale);
static int parse_scaled(const char *text, const struct unit *units, uint64_t *out);
static void format_scaled(uint64_t v, const struct unit *units, char *buf, uint32_t buf_bytes);

/* From the largest unit that is printed to the smallest; each list ends with a NULL name. */
static const struct unit byte_units[] = {
	{"TiB", 1ull << 40, true},
	{"GiB", 1ull << 30, true},
	{"MiB", 1ull << 20, true},
	{"KiB", 1ull << 10, true},
	{"TB", 1000000000000ull, false},
	{"GB", 1000000000ull, false},
	{"MB", 1000000ull, false},
	{"kB", 1000ull, false},
	{"B", 1, true},
	{NULL, 0, false},
};

static const struct unit rate_units[] = {
	{"TB/s", 1000000000000ull, true},
	{"GB/s", 1000000000ull, true},
	{"MB/s", 1000000ull, true},
	{"kB/s", 1000ull, true},
	{"GiB/s", 1ull << 30, false},
	{"MiB/s", 1ull << 20, false},
	{"KiB/s", 1ull << 10, false},
	{"Gbit/s", 125000000ull, false},
	{"Mbit/s", 125000ull, false},
	{"B/s", 1, true},
	{NULL, 0, false},
};

static const struct unit duration_units[] = {
	{"h", 3600000000000ull, true},
	{"min", 60000000000ull, true},
	{"s", 1000000000ull, true},
	{"ms", 1000000ull, true},
	{"us", 1000ull, true},
	{"ns", 1, true},
	{NULL, 0, false},
};

int parse_bytes(const char *text, uint64_t *out)
{
	return parse_scaled(text, byte_units, out);
}

int parse_rate(const char *text, uint64_t *out)
{
	return parse_scaled(text, rate_units, out);
}

int parse_duration(const char *text, uint64_t *out)
{
	return parse_scaled(text, duration_units, out);
}

void format_bytes(uint64_t v, char *buf, uint32_t buf_bytes)
{
	format_scaled(v, byte_units, buf, buf_bytes);
}

void format_rate(uint64_t v, char *buf, uint32_t buf_bytes)
{
	format_scaled(v, rate_units, buf, buf_bytes);
}

void format_duration(uint64_t v, char *buf, uint32_t buf_bytes)
{
	format_scaled(v, duration_units, buf, buf_bytes);
}

/* "12" or "1.25": the fraction is kept as an integer over a power of ten, so that no rounding ever happens. */
static int parse_number(const char **text, uint64_t *whole, uint64_t *frac, uint64_t *frac_scale)
{
	const char *p = *text;

	*whole = 0;
	*frac = 0;
	*frac_scale = 1;
	if (!isdigit((unsigned char)*p))
		return -EINVAL;
	for (; isdigit((unsigned char)*p); p++) {
		if (__builtin_mul_overflow(*whole, 10u, whole) ||
			__builtin_add_overflow(*whole, (uint64_t)(*p - '0'), whole))
			return -EINVAL;
	}
	if (*p == '.') {
		p++;
		if (!isdigit((unsigned char)*p))
			return -EINVAL;
		for (; isdigit((unsigned char)*p); p++) {
			if (*frac_scale > 100000000ull)
				return -EINVAL;
			*frac = *frac * 10 + (uint64_t)(*p - '0');
			*frac_scale *= 10;
		}
	}
	*text = p;
	return 0;
}

static int parse_scaled(const char *text, const struct unit *units, uint64_t *out)
{
	uint64_t whole, frac, frac_scale, v, part;

	if (parse_number(&text, &whole, &frac, &frac_scale) < 0)
		return -EINVAL;
	if (!*text && !whole && !frac) {
		*out = 0;
		return 0;
	}
	for (; units->name; units++) {
		if (strcmp(text, units->name))
			continue;
		if (__builtin_mul_overflow(whole, units->factor, &v) ||
			__builtin_mul_overflow(frac, units->factor, &part))
			return -EINVAL;
		if (part % frac_scale || __builtin_add_overflow(v, part / frac_scale, &v))
			return -EINVAL;
		*out = v;
		return 0;
	}
	return -EINVAL;
}

static void format_scaled(uint64_t v, const struct unit *units, char *buf, uint32_t buf_bytes)
{
	if (!v) {
		snprintf(buf, buf_bytes, "0");
		return;
	}
	while (!units->is_printed || v % units->factor)
		units++;
	snprintf(buf, buf_bytes, "%" PRIu64 "%s", v / units->factor, units->name);
}
