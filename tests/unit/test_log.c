/* SPDX-License-Identifier: BSD-3-Clause */
#include <criterion/criterion.h>
#include <string.h>
#include <unistd.h>

#include "daemon/log.h"

Test(log, a_site_is_silent_after_its_burst_and_tells_how_much_it_left_out)
{
	struct log_site site = {0};
	uint64_t now_ns = 7;
	uint32_t n_dropped = 99;

	for (unsigned i = 0; i < LOG_BURST; i++) {
		cr_assert(log_admit(&site, now_ns, &n_dropped));
		cr_assert(n_dropped == 0);
	}
	for (unsigned i = 0; i < 3; i++)
		cr_assert(!log_admit(&site, now_ns + LOG_WINDOW_NS - 1, &n_dropped));
	cr_assert(log_admit(&site, now_ns + LOG_WINDOW_NS, &n_dropped));
	cr_assert(n_dropped == 3);
	cr_assert(log_admit(&site, now_ns + LOG_WINDOW_NS, &n_dropped));
	cr_assert(n_dropped == 0);
}

static void say(int i)
{
	log_warn("conn: line %d", i);
}

/* What is written to stderr by f, at most n - 1 bytes. */
static void capture(void (*f)(void), char *text, size_t n)
{
	int saved = dup(STDERR_FILENO), ends[2];
	ssize_t got;

	cr_assert(pipe(ends) == 0);
	dup2(ends[1], STDERR_FILENO);
	f();
	dup2(saved, STDERR_FILENO);
	close(ends[1]);
	got = read(ends[0], text, n - 1);
	text[got > 0 ? got : 0] = 0;
	close(ends[0]);
}

static void say_levels(void)
{
	log_info("conn: told: %s", "yes");
	log_debug("conn: told: %s", "no");
}

static void say_many(void)
{
	for (int i = 0; i < 100; i++)
		say(i);
}

static void say_long(void)
{
	char text[5000];

	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = 0;
	log_error("%s", text);
	log_error("next");
}

Test(log, writes_time_level_and_text_of_what_the_level_lets_through)
{
	char text[4096];

	capture(say_levels, text, sizeof(text));
	cr_assert(text[4] == '-' && text[10] == 'T' && text[23] == 'Z', "%s", text);
	cr_assert(strstr(text, "Z info conn: told: yes\n") && !strstr(text, "no\n"), "%s", text);
	log_set_level(LOG_LEVEL_ERROR);
	capture(say_levels, text, sizeof(text));
	cr_assert_str_empty(text);
}

Test(log, limits_each_call_site_apart)
{
	char text[4096];

	capture(say_many, text, sizeof(text));
	cr_assert(strstr(text, "line 9\n") && !strstr(text, "line 10\n"), "%s", text);
	capture(say_levels, text, sizeof(text));
	cr_assert(strstr(text, "yes"));
}

Test(log, a_line_that_is_too_long_is_cut_and_ended)
{
	char text[8192];

	capture(say_long, text, sizeof(text));
	cr_assert(strlen(strchr(text, '\n')) > 1 && strstr(text, "error next\n"));
	cr_assert(strchr(text, '\n') - text < 1024);
}
