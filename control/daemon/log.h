/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The daemon's log: one line per event on stderr, with time and level, limited per call site.
 *
 * Called by the api, conn and work threads and by main; never on an lcore, because every line is a system call. The
 * function that decides what an error is logs it, once. A line reads `subject: what: cause`. A site that says more than
 * LOG_BURST lines within LOG_WINDOW_NS is silent for the rest of that time; its next line tells how many were left out.
 */
#ifndef RY_LOG_H
#define RY_LOG_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum log_level {
	LOG_LEVEL_ERROR = 0, /* cannot go on */
	LOG_LEVEL_WARN = 1,  /* odd, went on */
	LOG_LEVEL_INFO = 2,  /* something a person would want to know happened */
	LOG_LEVEL_DEBUG = 3, /* per object */
};

#define LOG_BURST 10u
#define LOG_WINDOW_NS 5000000000ull

/* One call site's limit; zero-initialised. Several threads may share a site: all fields are relaxed atomics. */
struct log_site {
	uint64_t window_ns; /* start of the current window */
	uint32_t n_lines;   /* written in it */
	uint32_t n_dropped; /* since the last line that was written */
};

/* Lines above `level` are not written; the default is LOG_LEVEL_INFO. */
void log_set_level(enum log_level level);

/* Whether a line may be written at now_ns; then *n_dropped is how many were left out before it. */
bool log_admit(struct log_site *site, uint64_t now_ns, uint32_t *n_dropped);

/* Writes one line; used through the macros below, which give every call its own site. No site: whoever calls has a
 * limit of its own. */
void log_write(enum log_level level, struct log_site *site, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* Macros, because only they can own a static per call. */
#define log_at_(level, ...)                                                                                            \
	do {                                                                                                           \
		static struct log_site log_site_;                                                                      \
		log_write(level, &log_site_, __VA_ARGS__);                                                             \
	} while (0)
#define log_error(...) log_at_(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warn(...) log_at_(LOG_LEVEL_WARN, __VA_ARGS__)
#define log_info(...) log_at_(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...) log_at_(LOG_LEVEL_DEBUG, __VA_ARGS__)

#ifdef __cplusplus
}
#endif
#endif
