/* SPDX-License-Identifier: BSD-3-Clause */
/* What a loaded configuration tells: all problems at once, what would be ignored, and where every value is from. */
#include "daemon/config.h"
#include "daemon/config_rows.h"

#include <criterion/criterion.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct config c;
static struct config_error err;
static char path[32];

static int load(const char *text)
{
	int fd;

	strcpy(path, "/tmp/ry-report-XXXXXX");
	fd = mkstemp(path);
	cr_assert_geq(fd, 0);
	cr_assert_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
	memset(&err, 0, sizeof(err));
	fd = config_load(path, &c, &err);
	unlink(path);
	return fd;
}

static void says(const char *what)
{
	cr_expect_not_null(strstr(err.text, what), "no '%s' in:\n%s", what, err.text);
}

static void says_not(const char *what)
{
	cr_expect_null(strstr(err.text, what), "'%s' in:\n%s", what, err.text);
}

static uint32_t n_lines(void)
{
	uint32_t n = err.text[0] != '\0';

	for (const char *p = err.text; *p; p++)
		n += *p == '\n';
	return n;
}

#define HEAD "node: n\nroles: [store]\nrails:\n"
#define RAIL0 "  - {name: a, transport: tcp, address: 127.0.0.1, port: 7001}\n"

Test(config_report, one_run_tells_every_problem)
{
	const char *at, *before = err.text;

	cr_assert_eq(load("node: n\n"                                                                /* 1 */
			  "rols: [store]\n"                                                          /* 2 */
			  "rails:\n"                                                                 /* 3 */
			  "  - {name: a, transport: tcp, address: 127.0.0.1, prot: 7001, rate: 5}\n" /* 4 */
			  "  - {name: a, transport: mock, lcore: 0, latency: 11s}\n"                 /* 5 */
			  "timeouts: {read: 2h, raed: 1s, drain: -1s}\n"                             /* 6 */
			  "store: {memory: 1, tier: cash}\n"),                                       /* 7 */
		-EINVAL);
	says(":2: rols: unknown key 'rols'; did you mean 'roles'?");
	says(":1: roles: is missing or empty");
	says(":4: rails[0].prot: unknown key 'prot' in rails; did you mean 'port'?");
	says(":4: rails[0].rate: '5' is not a rate with its unit");
	says(":5: rails[1].name: 'a' is also the name of rails[0]");
	says(":5: rails[1].lcore: 0 is outside its range, 1 to 127: lcore that runs the rail; 0 runs control");
	says(":5: rails[1].latency: 11s is outside its range");
	says(":6: timeouts.read: 2h is outside its range, 1ms to 1h");
	says(":6: timeouts.raed: unknown key 'raed' in timeouts; did you mean 'read'?");
	says(":6: timeouts.drain: '-1s' is not a time with its unit");
	says(":7: store.memory: '1' is not a size with its unit");
	says(":7: store.tier: 'cash' is none of cache|pinned");
	cr_expect_eq(n_lines(), 12, "%u:\n%s", n_lines(), err.text);
	for (int line = 1; line <= 7; line++, before = at) {
		char number[64];

		snprintf(number, sizeof(number), "%s:%d:", path, line);
		at = line == 3 ? before : strstr(err.text, number);
		cr_expect(at >= before, "line %d is told before line %d", line, line - 1);
	}
}

Test(config_report, one_mistake_is_told_once)
{
	cr_assert_eq(load("node: n\nroles: [stoer]\nrails:\n" RAIL0), -EINVAL);
	cr_expect_eq(n_lines(), 1, "%s", err.text);
	cr_assert_eq(load("node: n\nroles: [reader]\nrails:\n" RAIL0
			  "stores: [{name: s, endpoints: [{address: host.example, port: 7}]}]\n"),
		-EINVAL);
	says("host names are not resolved");
	cr_expect_eq(n_lines(), 1, "%s", err.text);
	cr_assert_eq(load(HEAD "  - {name: a, transport: tpc, address: 127.0.0.1}\n"), -EINVAL);
	cr_expect_eq(n_lines(), 1, "%s", err.text);
}

Test(config_report, more_than_a_screen_is_counted)
{
	char text[4096] = HEAD RAIL0;

	for (int i = 0; i < 40; i++)
		sprintf(text + strlen(text), "zzz%d: 1\n", i);
	cr_assert_eq(load(text), -EINVAL);
	cr_expect_eq(n_lines(), 25, "%u", n_lines());
	says("and 16 more");
}

Test(config_report, a_wrong_key_is_printable)
{
	cr_assert_eq(load(HEAD RAIL0 "\"a\\e[31m\": 1\n"), -EINVAL);
	says("unknown key 'a?[31m'");
}

Test(config_report, what_would_be_ignored_is_refused)
{
	cr_assert_eq(load(HEAD "  - {name: a, transport: tcp, address: 127.0.0.1, port: 7001, mtu: 1KiB, copy: true}\n"
			       "  - {name: b, transport: mock, rate: 1MB/s, sockets_per_pair: 2}\n"
			       "  - {name: c, transport: verbs, address: 127.0.0.2, port: 7001, rate: 1MB/s}\n"
			       "reader: {policy: adaptive}\n"
			       "stores: [{name: s, endpoints: [{address: 127.0.0.1, port: 7}]}]\n"),
		-EINVAL);
	says(":4: rails[0].mtu: is for transport verbs only, and this rail is tcp: take it out");
	says(":4: rails[0].copy: is for transport mock only");
	says(":5: rails[1].rate: is for transport tcp only, and this rail is mock");
	says(":5: rails[1].sockets_per_pair: is for transport tcp only");
	says(":6: rails[2].rate: is for transport tcp only, and this rail is verbs");
	says(":7: reader: is for the role reader, which this node does not have");
	says(":8: stores: is for the role reader");
	cr_expect_eq(n_lines(), 7, "%s", err.text);
	cr_assert_eq(load("node: n\nroles: [reader]\nrails:\n" RAIL0
			  "stores: [{name: s, endpoints: [{address: 127.0.0.1, port: 7}]}]\n"
			  "store: {memory: 1MiB}\n"),
		-EINVAL);
	says(":6: store: is for the role store");
	/* Given with its default it is still a mistake; an empty section is none. */
	cr_assert_eq(load(HEAD "  - {name: a, transport: mock, hop_limit: 64}\n"), -EINVAL);
	says("rails[0].hop_limit");
}

Test(config_report, an_endpoint_stands_once)
{
	cr_assert_eq(load("node: n\nroles: [reader]\nrails:\n" RAIL0 "stores:\n"
			  "  - {name: s, endpoints: [{address: \"::1\", port: 7}, {address: \"::1\", port: 8}]}\n"
			  "  - name: t\n"
			  "    endpoints:\n"
			  "      - {address: 127.0.0.1, port: 7}\n"
			  "      - {address: 127.0.0.1, port: 7}\n"
			  "      - {address: \"0:0::1\", port: 8}\n"),
		-EINVAL);
	says(":10: stores[1].endpoints[1].port: 127.0.0.1 port 7 is also that of stores[1].endpoints[0]");
	says(":11: stores[1].endpoints[2].port: 0:0::1 port 8 is also that of stores[0].endpoints[1]");
	says_not("stores[0].endpoints[1].port:");
	cr_assert_eq(load(HEAD "  - {name: a, transport: tcp, address: \"::1\", port: 7001}\n"
			       "  - {name: b, transport: tcp, address: \"0::0:1\", port: 7001}\n"),
		-EINVAL);
	says("rails[1].port: 0::0:1 port 7001 is also that of rails[0]");
}

#define FULL                                                                                                           \
	"node: both\n"                                                                                                 \
	"roles: [reader, store]\n"                                                                                     \
	"rails:\n"                                                                                                     \
	"  - name: a\n"                                                                                                \
	"    transport: tcp\n"                                                                                         \
	"    address: \"::1\"\n"                                                                                       \
	"    port: 7001\n"                                                                                             \
	"    rate: 125MB/s\n"                                                                                          \
	"  - {name: b, transport: mock, latency: 5us}\n"                                                               \
	"stores:\n"                                                                                                    \
	"  - {name: me, self: true}\n"                                                                                 \
	"  - name: other\n"                                                                                            \
	"    endpoints:\n"                                                                                             \
	"      - {address: \"fe80::1\", port: 7, rails: \"a,b\"}\n"                                                    \
	"      - {address: \"::2\", port: 8, rail: a}\n"                                                               \
	"reader: {segment: 2MiB}\n"                                                                                    \
	"timeouts:\n"                                                                                                  \
	"  drain: 3s\n"

static char *print(void)
{
	char *text = NULL;
	size_t bytes = 0;
	FILE *f = open_memstream(&text, &bytes);

	config_print(&c, f);
	fclose(f);
	return text;
}

static void has_line(const char *text, const char *value, int line)
{
	char want[160];

	if (line)
		snprintf(want, sizeof(want), "%-47s # %s:%d\n", value, path, line);
	else
		snprintf(want, sizeof(want), "%-47s # default\n", value);
	cr_expect_not_null(strstr(text, want), "no '%s' in:\n%s", want, text);
}

Test(config_report, every_value_has_its_source)
{
	char *text;

	cr_assert_eq(load(FULL), 0, "%s", err.text);
	text = print();
	has_line(text, "node: both", 1);
	has_line(text, "roles: [reader, store]", 2);
	has_line(text, "  - name: a", 4);
	has_line(text, "    address: \"::1\"", 6);
	has_line(text, "    rate: 125MB/s", 8);
	has_line(text, "    lcore: 1", 0);
	has_line(text, "    lcore: 2", 0);
	has_line(text, "    latency: 5us", 9);
	has_line(text, "    self: true", 11);
	has_line(text, "      - address: \"fe80::1\"", 14);
	has_line(text, "        rails: \"a,b\"", 14);
	has_line(text, "        port: 8", 15);
	has_line(text, "  segment: 2MiB", 16);
	has_line(text, "  drain: 3s", 18);
	has_line(text, "  fence: 100ms", 0);
	cr_expect_null(strstr(text, "hop_limit"), "keys of a transport that is not here");
	free(text);
}

/* Without the sources, which name another file. */
static void cut_sources(char *text)
{
	char *to = text, *end;

	for (char *line = strtok_r(text, "\n", &end); line; line = strtok_r(NULL, "\n", &end)) {
		char *mark = strstr(line, " # ");

		if (line[0] == '#' && !mark)
			continue;
		if (mark)
			*mark = '\0';
		to += sprintf(to, "%s\n", line);
	}
}

Test(config_report, what_is_printed_is_read_again)
{
	char *first, *again;

	cr_assert_eq(load(FULL), 0, "%s", err.text);
	first = print();
	cr_assert_eq(load(first), 0, "%s\n%s", err.text, first);
	again = print();
	cut_sources(first);
	cut_sources(again);
	cr_expect_str_eq(again, first);
	free(first);
	free(again);
}
