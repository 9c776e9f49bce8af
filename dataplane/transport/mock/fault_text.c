/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/mock/fault_text.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "transport/mock/fault.h"

struct unit {
	const char *name;
	uint64_t value;
};

static const char *digits(const char *text, uint64_t *out);
static bool amount(const char *text, const struct unit *units, uint64_t *out);
static void put_amount(struct fault_text *t, const struct unit *units, uint64_t value);

/* The largest first; the last has the value 1. */
static const struct unit sizes[] = {{"GiB", 1u << 30}, {"MiB", 1u << 20}, {"KiB", 1u << 10}, {"B", 1}};
static const struct unit times[] = {{"s", 1000000000}, {"ms", 1000000}, {"us", 1000}, {"ns", 1}};

char *fault_trim(char *text)
{
	size_t len;

	text += strspn(text, " \t\n");
	len = strlen(text);
	while (len && strchr(" \t\n", text[len - 1]))
		text[--len] = 0;
	return text;
}

int fault_word(const char *const *words, const char *word)
{
	for (int i = 0; words[i]; i++) {
		if (!strcmp(words[i], word))
			return i;
	}
	return -1;
}

/* Where the digits end; NULL when there is none, or too many. */
static const char *digits(const char *text, uint64_t *out)
{
	const char *p = text;

	*out = 0;
	for (; *p >= '0' && *p <= '9'; p++) {
		if (__builtin_mul_overflow(*out, 10u, out) || __builtin_add_overflow(*out, (unsigned)(*p - '0'), out))
			return NULL;
	}
	return p == text ? NULL : p;
}

bool fault_number(const char *text, uint64_t *out)
{
	const char *end = digits(text, out);

	return end && !*end;
}

bool fault_size(const char *text, uint64_t *out)
{
	return fault_number(text, out) || amount(text, sizes, out);
}

bool fault_time(const char *text, uint64_t *out)
{
	return (fault_number(text, out) && !*out) || amount(text, times, out);
}

static bool amount(const char *text, const struct unit *units, uint64_t *out)
{
	const char *unit = digits(text, out);

	for (int i = 0; unit && i < 4; i++) {
		if (!strcmp(unit, units[i].name))
			return !__builtin_mul_overflow(*out, units[i].value, out);
	}
	return false;
}

bool fault_ppm(const char *text, uint32_t *out)
{
	uint64_t whole, part = 0;
	const char *p = digits(text, &whole);
	uint64_t scale = FAULT_ALWAYS_PPM;

	if (!p || whole > 1)
		return false;
	if (*p == '.') {
		const char *end = digits(p + 1, &part);

		if (!end || end - p > 7)
			return false;
		for (p++; p < end; p++)
			scale /= 10;
	}
	*out = (uint32_t)(whole * FAULT_ALWAYS_PPM + part * scale);
	return !*p && *out <= FAULT_ALWAYS_PPM;
}

void fault_put(struct fault_text *t, const char *format, ...)
{
	uint32_t room = t->len < t->bytes ? t->bytes - t->len : 0;
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(room ? t->at + t->len : NULL, room, format, args);
	va_end(args);
	t->len += n > 0 ? (uint32_t)n : 0;
}

void fault_put_size(struct fault_text *t, uint64_t bytes)
{
	put_amount(t, sizes, bytes);
}

void fault_put_time(struct fault_text *t, uint64_t ns)
{
	put_amount(t, times, ns);
}

static void put_amount(struct fault_text *t, const struct unit *units, uint64_t value)
{
	int i = 0;

	while (units[i].value > 1 && (!value || value % units[i].value))
		i++;
	fault_put(t, "%" PRIu64 "%s", value / units[i].value, units[i].name);
}
