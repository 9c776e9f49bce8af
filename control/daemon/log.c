/* SPDX-License-Identifier: BSD-3-Clause */
#include "daemon/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "sync/sync.h"

#define LINE_MAX_BYTES 1024

static size_t stamp(char *line, size_t room, enum log_level level);
static size_t end_line(char *line, size_t len_bytes, uint32_t n_dropped);

/* The process's one log: set at start and by the operator, read by every thread. */
static uint32_t log_level_now = LOG_LEVEL_INFO;

void log_set_level(enum log_level level)
{
	__atomic_store_n(&log_level_now, level, __ATOMIC_RELAXED);
}

/* Relaxed throughout: two threads that race at a window's edge may write a line too many, nothing worse. */
bool log_admit(struct log_site *site, uint64_t now_ns, uint32_t *n_dropped)
{
	uint64_t start_ns = __atomic_load_n(&site->window_ns, __ATOMIC_RELAXED);

	if (!start_ns || now_ns - start_ns >= LOG_WINDOW_NS) {
		__atomic_store_n(&site->window_ns, now_ns ? now_ns : 1, __ATOMIC_RELAXED);
		__atomic_store_n(&site->n_lines, 0, __ATOMIC_RELAXED);
	}
	if (__atomic_fetch_add(&site->n_lines, 1, __ATOMIC_RELAXED) >= LOG_BURST) {
		__atomic_fetch_add(&site->n_dropped, 1, __ATOMIC_RELAXED);
		return false;
	}
	*n_dropped = __atomic_exchange_n(&site->n_dropped, 0, __ATOMIC_RELAXED);
	return true;
}

void log_write(enum log_level level, struct log_site *site, const char *format, ...)
{
	char line[LINE_MAX_BYTES];
	uint32_t n_dropped = 0;
	va_list args;
	size_t len;
	int n;

	if ((uint32_t)level > __atomic_load_n(&log_level_now, __ATOMIC_RELAXED))
		return;
	if (site && !log_admit(site, clock_ns(), &n_dropped))
		return;
	len = stamp(line, sizeof(line), level);
	va_start(args, format);
	n = vsnprintf(line + len, sizeof(line) - len, format, args);
	va_end(args);
	if (n > 0)
		len += (size_t)n < sizeof(line) - len ? (size_t)n : sizeof(line) - len - 1;
	len = end_line(line, len, n_dropped);
	/* One write per line keeps lines of different threads apart. There is nobody to tell when it fails. */
	if (write(STDERR_FILENO, line, len) < 0)
		return;
}

/* "2026-01-31T12:00:00.123Z warn " */
static size_t stamp(char *line, size_t room, enum log_level level)
{
	static const char *const names[] = {"error", "warn", "info", "debug"};
	struct timespec ts;
	struct tm tm;
	size_t len;
	int n;

	clock_gettime(CLOCK_REALTIME, &ts);
	gmtime_r(&ts.tv_sec, &tm);
	len = strftime(line, room, "%Y-%m-%dT%H:%M:%S", &tm);
	n = snprintf(line + len, room - len, ".%03ldZ %s ", ts.tv_nsec / 1000000, names[level]);
	return len + (n > 0 ? (size_t)n : 0);
}

static size_t end_line(char *line, size_t len_bytes, uint32_t n_dropped)
{
	int n = 0;

	if (n_dropped && len_bytes + 48 < LINE_MAX_BYTES)
		n = snprintf(line + len_bytes, 48, " (%u like this left out)", n_dropped);
	len_bytes += n > 0 ? (size_t)n : 0;
	line[len_bytes++] = '\n';
	return len_bytes;
}
