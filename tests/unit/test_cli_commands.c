/* SPDX-License-Identifier: BSD-3-Clause */
#include <string.h>

#include <criterion/criterion.h>
#include <criterion/redirect.h>

#include "cli/commands.h"

#define PARSE(...) parse((char *const[]){__VA_ARGS__, NULL})

static struct cli c;
static const struct command *row;

static int parse(char *const *argv)
{
	int argc = 0;

	while (argv[argc] != NULL)
		argc++;
	return commands_parse(argc, argv, &c, &row);
}

Test(cli_commands, defaults)
{
	cr_assert_eq(PARSE("status"), CLI_OK);
	cr_expect_str_eq(row->name, "status");
	cr_expect_eq(c.args.n, 0);
	cr_expect_eq(c.length, RY_TO_END);
	cr_expect_eq(c.n_rails, 2);
	cr_expect_str_eq(c.transport, "tcp");
	cr_expect(!c.want_json);
}

Test(cli_commands, options_stand_anywhere)
{
	cr_assert_eq(PARSE("--socket", "/s", "get", "--offset=4KiB", "key", "--json", "file", "--length", "1MiB",
			     "--one-rail"),
		CLI_OK);
	cr_expect_str_eq(row->name, "get");
	cr_expect_str_eq(c.socket_path, "/s");
	cr_expect_eq(c.offset, 4096);
	cr_expect_eq(c.length, 1048576);
	cr_expect(c.want_json && c.want_one_rail);
	cr_assert_eq(c.args.n, 2);
	cr_expect_str_eq(c.args.values[0], "key");
	cr_expect_str_eq(c.args.values[1], "file");
}

/* A program that asked for JSON gets JSON, wherever --json stands. */
static void is_json_usage(char *const *argv, const char *text)
{
	char line[2048] = "";
	json_t *o;
	FILE *out;

	cr_redirect_stdout();
	cr_assert_eq(parse(argv), CLI_USAGE);
	fflush(stdout);
	out = cr_get_redirected_stdout();
	(void)!fread(line, 1, sizeof(line) - 1, out);
	o = json_loads(line, 0, NULL);
	cr_assert_not_null(o, "not JSON: '%s'", line);
	o = json_object_get(o, "error");
	cr_expect_str_eq(json_string_value(json_object_get(o, "status")), "INVALID");
	cr_expect_not_null(strstr(json_string_value(json_object_get(o, "cause")), text), "%s", line);
}

#define IS_JSON_USAGE(text, ...) is_json_usage((char *const[]){__VA_ARGS__, NULL}, text)

Test(cli_commands, usage_error_is_json_behind_the_mistake)
{
	IS_JSON_USAGE("unknown option", "get", "--lenght", "1MiB", "key", "file", "--json");
}

Test(cli_commands, usage_error_is_json_before_the_mistake)
{
	IS_JSON_USAGE("no command", "--json", "gte", "key", "file");
}

Test(cli_commands, usage_error_of_a_value_is_json)
{
	IS_JSON_USAGE("--stripe is", "put", "key", "file", "--stripe=5", "--json");
}

Test(cli_commands, a_lone_dash_is_an_argument)
{
	cr_assert_eq(PARSE("put", "key", "-"), CLI_OK);
	cr_assert_eq(c.args.n, 2);
	cr_expect_str_eq(c.args.values[1], "-");
}

Test(cli_commands, two_dashes_end_the_options)
{
	cr_assert_eq(PARSE("stat", "--", "--json"), CLI_OK);
	cr_assert_eq(c.args.n, 1);
	cr_expect_str_eq(c.args.values[0], "--json");
	cr_expect(!c.want_json);
}

Test(cli_commands, put_options)
{
	cr_assert_eq(PARSE("put", "k", "f", "--ttl", "1s", "--if-absent", "--stripe", "1MiB", "--deadline", "200ms"),
		CLI_OK);
	cr_expect_eq(c.ttl_ns, 1000000000);
	cr_expect(c.want_if_absent);
	cr_expect_eq(c.stripe_bytes, 1048576);
	cr_expect_eq(c.deadline_ns, 200000000);
}

Test(cli_commands, demo_options)
{
	cr_assert_eq(PARSE("demo", "--rails", "3", "--rail-rate", "125MB/s", "--file", "/f", "--repeat", "7",
			     "--transport=verbs"),
		CLI_OK);
	cr_expect_eq(c.n_rails, 3);
	cr_expect_eq(c.rail_rate_bytes_per_s, 125000000);
	cr_expect_str_eq(c.file, "/f");
	cr_expect_eq(c.repeat, 7);
	cr_expect_str_eq(c.transport, "verbs");
}

Test(cli_commands, usage_errors, .init = cr_redirect_stderr)
{
	cr_expect_eq(PARSE("nonsense"), CLI_USAGE);
	cr_expect_eq(PARSE("--json"), CLI_USAGE);
	cr_expect_eq(PARSE("status", "--nonsense"), CLI_USAGE);
	cr_expect_eq(PARSE("status", "-j"), CLI_USAGE);
	cr_expect_eq(PARSE("status", "--"), CLI_OK);
	cr_expect_eq(PARSE("status", "--="), CLI_USAGE);
	cr_expect_eq(PARSE("status", "--json=yes"), CLI_USAGE);
	cr_expect_eq(PARSE("status", "--deadline"), CLI_USAGE);
	cr_expect_eq(PARSE("status", "--deadline", "5"), CLI_USAGE);
	cr_expect_eq(PARSE("put", "k", "f", "--stripe", "5000"), CLI_USAGE);
	cr_expect_eq(PARSE("put", "k", "f", "--stripe", "2GiB"), CLI_USAGE);
	cr_expect_eq(PARSE("get", "k", "f", "--length", "0"), CLI_USAGE);
	cr_expect_eq(PARSE("ls", "1", "2", "3", "4", "5", "6", "7", "8", "9"), CLI_USAGE);
}

Test(cli_commands, an_option_of_another_command_is_refused, .init = cr_redirect_stderr)
{
	cr_expect_eq(PARSE("ls", "--rails", "2"), CLI_USAGE);
	cr_expect_eq(PARSE("--ttl", "1s", "get", "k"), CLI_USAGE);
	cr_expect_eq(PARSE("config-check", "f", "--socket", "/s"), CLI_USAGE);
}

Test(cli_commands, help_is_a_command_too)
{
	cr_assert_eq(PARSE("help"), CLI_OK);
	cr_expect(c.want_help && row == NULL);
	cr_assert_eq(PARSE("help", "put"), CLI_OK);
	cr_assert_not_null(row);
	cr_expect(c.want_help);
	cr_expect_str_eq(row->name, "put");
}

Test(cli_commands, help_needs_no_arguments)
{
	cr_expect_eq(PARSE("--help"), CLI_OK);
	cr_expect_null(row);
	cr_expect_eq(PARSE("put", "--help"), CLI_OK);
	cr_expect_str_eq(row->name, "put");
	cr_expect(c.want_help);
}

Test(cli_commands, every_command_has_its_row)
{
	static const char *const names[] = {"status", "rails", "health", "limits", "reads", "faults", "put", "get",
		"ls", "stat", "rm", "demo", "plan", "config-check", "version"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		cr_expect_eq(PARSE((char *)names[i]), CLI_OK, "%s", names[i]);
		cr_expect_not_null(row->run, "%s", names[i]);
	}
}

Test(cli_commands, a_key_is_checked, .init = cr_redirect_stderr)
{
	char longest[RY_KEY_MAX_BYTES + 2];
	uint16_t key_bytes = 0;
	const char *key;

	memset(longest, 'k', sizeof(longest));
	longest[sizeof(longest) - 1] = '\0';
	cr_assert_eq(PARSE("stat", longest), CLI_OK);
	cr_expect(!cli_key(&c, &key, &key_bytes));
	longest[sizeof(longest) - 2] = '\0';
	cr_expect(cli_key(&c, &key, &key_bytes));
	cr_expect_eq(key_bytes, RY_KEY_MAX_BYTES);
	cr_assert_eq(PARSE("stat", ""), CLI_OK);
	cr_expect(!cli_key(&c, &key, &key_bytes));
}

Test(cli_commands, the_socket_has_an_order)
{
	unsetenv("RAILYARD_SOCKET");
	cr_assert_eq(PARSE("status"), CLI_OK);
	cr_expect_str_eq(cli_socket(&c), RY_SOCKET_DEFAULT);
	setenv("RAILYARD_SOCKET", "/env", 1);
	cr_expect_str_eq(cli_socket(&c), "/env");
	cr_assert_eq(PARSE("status", "--socket", "/option"), CLI_OK);
	cr_expect_str_eq(cli_socket(&c), "/option");
}

Test(cli_commands, limits_take_what_is_given_and_leave_the_rest)
{
	cr_assert_eq(PARSE("limits", "--inflight", "64MiB", "--admission-wait=2s"), CLI_OK);
	cr_expect_eq(c.inflight_bytes, 64u << 20);
	cr_expect_eq(c.admission_wait_ns, 2000000000u);
	cr_expect_eq(c.max_reads, CLI_NOT_GIVEN);
	cr_expect_eq(c.client_max_reads, CLI_NOT_GIVEN);
	cr_expect_eq(c.client_inflight_bytes, CLI_NOT_GIVEN);
	cr_expect_eq(c.registered_bytes, CLI_NOT_GIVEN);
	cr_expect_null(c.rail);
	cr_assert_eq(PARSE("limits", "--rail", "rail1", "--rail-inflight", "2MiB", "--registered", "1GiB"), CLI_OK);
	cr_expect_str_eq(c.rail, "rail1");
	cr_expect_eq(c.rail_inflight_bytes, 2u << 20);
	cr_expect_eq(c.registered_bytes, 1u << 30);
	cr_assert_eq(PARSE("limits", "--max-reads", "0"), CLI_OK, "0 is a value; the daemon refuses it");
	cr_expect_eq(c.max_reads, 0);
}

Test(cli_commands, limits_belong_to_limits, .init = cr_redirect_stderr)
{
	cr_expect_eq(PARSE("status", "--max-reads", "3"), CLI_USAGE);
	cr_expect_eq(PARSE("limits", "--max-reads", "many"), CLI_USAGE);
	cr_expect_eq(PARSE("limits", "--rail", "rail1"), CLI_USAGE, "which budget?");
	cr_expect_eq(PARSE("limits", "--rail-inflight", "2MiB"), CLI_USAGE, "of which rail?");
}

Test(cli_commands, verbs_are_arguments)
{
	cr_assert_eq(PARSE("rails", "drain", "rail0", "--json"), CLI_OK);
	cr_assert_eq(c.args.n, 2);
	cr_expect_str_eq(c.args.values[1], "rail0");
	cr_assert_eq(PARSE("faults", "inject", "rail0", "stall:for=2s"), CLI_OK);
	cr_assert_eq(c.args.n, 3);
	cr_assert_eq(PARSE("reads", "--last", "5", "--failed"), CLI_OK);
	cr_expect_eq(c.n_last, 5);
	cr_expect(c.want_failed);
}
