/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#include "launch/launch_priv.h"

struct line {
	char *text;
	uint32_t size_bytes;
	uint32_t used_bytes;
	bool is_full;
};

static void append(struct line *l, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void append(struct line *l, const char *format, ...)
{
	uint32_t room = l->size_bytes - l->used_bytes;
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(l->text + l->used_bytes, room, format, args);
	va_end(args);
	if (n < 0 || (uint32_t)n >= room)
		l->is_full = true;
	else
		l->used_bytes += (uint32_t)n;
}

int launch_lcores(uint32_t n_rails, uint32_t first, uint32_t total, const int *cpus, uint32_t n_cpus, char *text,
	uint32_t text_bytes)
{
	struct line l = {.text = text, .size_bytes = text_bytes};
	uint32_t i;

	if (n_cpus < total) {
		append(&l, "(0-%u)@(", n_rails);
		for (i = 0; i < n_cpus; i++)
			append(&l, "%s%d", i == 0 ? "" : ",", cpus[i]);
		append(&l, ")");
		return l.is_full ? -ENOSPC : 0;
	}
	for (i = 0; i <= n_rails; i++)
		append(&l, "%s%u@%d", i == 0 ? "" : ",", i, cpus[first + i]);
	return l.is_full ? -ENOSPC : 0;
}
