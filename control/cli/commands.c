/* SPDX-License-Identifier: BSD-3-Clause */
#include "cli/commands.h"

#include <string.h>

static const struct command *find(const char *name);
static bool wants_json(int argc, char *const *argv);
static int check_options(struct cli *c);

#define FIELD(f) offsetof(struct cli, f)

const struct option_row cli_options[] = {
	{"json", OPTION_FLAG, OPT_COMMON, FIELD(want_json), "", "print one JSON value with the same field names"},
	{"help", OPTION_FLAG, OPT_COMMON, FIELD(want_help), "", "print this"},
	{"socket", OPTION_TEXT, OPT_SOCKET, FIELD(socket_path), "PATH", "control socket of the daemon"},
	{"deadline", OPTION_DURATION, OPT_DEADLINE, FIELD(deadline_ns), "TIME", "give up after this long, e.g. 5s"},
	{"offset", OPTION_BYTES, OPT_RANGE, FIELD(offset), "SIZE", "first byte of the range"},
	{"length", OPTION_BYTES, OPT_RANGE, FIELD(length), "SIZE", "bytes of the range (default: to the end)"},
	{"one-rail", OPTION_FLAG, OPT_READ, FIELD(want_one_rail), "", "use one rail only"},
	{"failover", OPTION_FLAG, OPT_READ, FIELD(want_failover), "",
		"when a rail fails, read what is missing over the others"},
	{"no-failover", OPTION_FLAG, OPT_READ, FIELD(want_fail), "",
		"when a rail fails, fail, whatever the daemon's default is"},
	{"quiet", OPTION_FLAG, OPT_QUIET, FIELD(is_quiet), "", "no progress bar"},
	{"if-absent", OPTION_FLAG, OPT_PUT, FIELD(want_if_absent), "", "fail where the key exists"},
	{"ttl", OPTION_DURATION, OPT_PUT, FIELD(ttl_ns), "TIME", "the object expires after this long"},
	{"stripe", OPTION_BYTES, OPT_STRIPE, FIELD(stripe_bytes), "SIZE",
		"stripe size, a multiple of 4KiB (default 4MiB)"},
	{"generation", OPTION_COUNT, OPT_GENERATION, FIELD(generation), "N", "only this generation of the object"},
	{"size", OPTION_BYTES, OPT_PLAN, FIELD(size_bytes), "SIZE",
		"plan for an object of this size instead of a stored one"},
	{"store", OPTION_TEXT, OPT_PLAN, FIELD(store), "NAME", "the store that holds it (default: the first one)"},
	{"max-reads", OPTION_COUNT, OPT_LIMITS, FIELD(max_reads), "N",
		"reads in flight, all clients (at most as configured)"},
	{"client-max-reads", OPTION_COUNT, OPT_LIMITS, FIELD(client_max_reads), "N", "reads in flight, one client"},
	{"inflight", OPTION_BYTES, OPT_LIMITS, FIELD(inflight_bytes), "SIZE", "bytes in flight, all clients"},
	{"client-inflight", OPTION_BYTES, OPT_LIMITS, FIELD(client_inflight_bytes), "SIZE",
		"bytes in flight, one client"},
	{"admission-wait", OPTION_DURATION, OPT_LIMITS, FIELD(admission_wait_ns), "TIME",
		"longest wait of a queued read"},
	{"registered", OPTION_BYTES, OPT_LIMITS, FIELD(registered_bytes), "SIZE", "arena bytes, all clients"},
	{"rail", OPTION_TEXT, OPT_LIMITS, FIELD(rail), "NAME", "the rail that --rail-inflight is for"},
	{"rail-inflight", OPTION_BYTES, OPT_LIMITS, FIELD(rail_inflight_bytes), "SIZE",
		"bytes asked for and not yet arrived on --rail"},
	{"last", OPTION_COUNT, OPT_RECORDS, FIELD(n_last), "N", "how many reads (default 20, at most 1024)"},
	{"failed", OPTION_FLAG, OPT_RECORDS, FIELD(want_failed), "", "only what failed"},
	{"rails", OPTION_COUNT, OPT_DEMO, FIELD(n_rails), "N", "how many rails (default 2)"},
	{"file", OPTION_TEXT, OPT_DEMO, FIELD(file), "PATH", "the object (default: 64 MiB of pseudo-random bytes)"},
	{"rail-rate", OPTION_RATE, OPT_DEMO, FIELD(rail_rate_bytes_per_s), "RATE",
		"cap each rail, e.g. 125MB/s (default: no cap)"},
	{"transport", OPTION_TEXT, OPT_DEMO, FIELD(transport), "NAME",
		"tcp, or verbs over the RDMA ports of this host"},
	{"repeat", OPTION_COUNT, OPT_DEMO, FIELD(repeat), "N",
		"reads of each kind; the median counts (default 5, above 256 MiB 1)"},
};
const uint32_t n_cli_options = sizeof(cli_options) / sizeof(cli_options[0]);

#define REMOTE (OPT_SOCKET | OPT_DEADLINE)

const struct command commands[] = {
	{"demo", "", 0, 0, OPT_DEMO | OPT_STRIPE | OPT_DEADLINE, cmd_demo,
		"start a store and a reader here, and read one object over one rail and over several"},
	{"status", "", 0, 0, REMOTE, cmd_status, "what the daemon is, and how much it does"},
	{"rails", "[drain|resume NAME]", 0, 2, REMOTE, cmd_rails,
		"the daemon's rails and their connections; or take a rail out of use, or back"},
	{"health", "", 0, 0, REMOTE, cmd_health, "which pairs of rails carry data, and why others do not"},
	{"limits", "", 0, 0, REMOTE | OPT_LIMITS, cmd_limits, "the budgets, or new ones until the daemon ends"},
	{"reads", "", 0, 0, REMOTE | OPT_RECORDS, cmd_reads,
		"the reads that ended last, look-ups that failed, and where their time went"},
	{"faults", "[inject NAME PLAN|clear [NAME]]", 0, 3, REMOTE, cmd_faults,
		"rehearse failures on mock rails of a daemon that allows it"},
	{"put", "KEY FILE|-", 2, 2, REMOTE | OPT_PUT | OPT_STRIPE | OPT_QUIET, cmd_put,
		"store a file, or standard input (-), under a key"},
	{"get", "KEY FILE|-", 2, 2, REMOTE | OPT_READ | OPT_RANGE | OPT_QUIET, cmd_get,
		"read an object, or a range of it, into a file or to standard output (-)"},
	{"ls", "[PREFIX]", 0, 1, REMOTE, cmd_ls, "list the objects whose keys start with PREFIX"},
	{"stat", "KEY", 1, 1, REMOTE, cmd_stat, "size, generation and stripes of an object"},
	{"rm", "KEY", 1, 1, REMOTE | OPT_GENERATION, cmd_rm, "delete an object"},
	{"plan", "[KEY]", 0, 1, REMOTE | OPT_RANGE | OPT_STRIPE | OPT_PLAN, cmd_plan,
		"explain how a read would be spread over the rails"},
	{"config", "", 0, 0, REMOTE, cmd_config,
		"the configuration in effect, and the line or command that gave each value"},
	{"config-check", "FILE", 1, 1, 0, cmd_config_check,
		"say whether a daemon would accept this configuration, and all that is wrong with it"},
	{"version", "", 0, 0, OPT_SOCKET, cmd_version, "versions of this program, the library and the daemon"},
	{0},
};

int commands_parse(int argc, char *const *argv, struct cli *c, const struct command **row)
{
	char error[OPTIONS_ERROR_BYTES];
	uint64_t given;

	*c = (struct cli){.length = RY_TO_END,
		.size_bytes = RY_SIZE_UNKNOWN,
		.n_rails = 2,
		.transport = "tcp",
		.max_reads = CLI_NOT_GIVEN,
		.client_max_reads = CLI_NOT_GIVEN,
		.inflight_bytes = CLI_NOT_GIVEN,
		.client_inflight_bytes = CLI_NOT_GIVEN,
		.admission_wait_ns = CLI_NOT_GIVEN,
		.registered_bytes = CLI_NOT_GIVEN,
		.rail_inflight_bytes = CLI_NOT_GIVEN,
		.n_last = CLI_NOT_GIVEN};
	*row = NULL;
	if (options_parse(cli_options, n_cli_options, argc, argv, c, &c->args, &given, error) < 0) {
		c->want_json = wants_json(argc, argv); /* it may stand behind the mistake */
		*row = c->args.n != 0 ? find(c->args.values[0]) : NULL;
		c->command = *row != NULL ? (*row)->name : NULL;
		*row = NULL;
		return cli_usage(c, "%s", error);
	}
	if (c->args.n == 0)
		return c->want_help ? CLI_OK : cli_usage(c, "which command?");
	if (strcmp(c->args.values[0], "help") == 0 && c->args.n <= 2) { /* help, help COMMAND */
		c->want_help = true;
		*row = c->args.n == 2 ? find(c->args.values[1]) : NULL;
		return c->args.n == 2 && *row == NULL ? cli_usage(c, "no command \"%s\"", c->args.values[1]) : CLI_OK;
	}
	*row = find(c->args.values[0]);
	if (*row == NULL)
		return cli_usage(c, "no command \"%s\"", c->args.values[0]);
	c->command = (*row)->name;
	memmove(c->args.values, c->args.values + 1, --c->args.n * sizeof(c->args.values[0]));
	if (options_check(cli_options, n_cli_options, given, (*row)->options | OPT_COMMON, error) < 0)
		return cli_usage(c, "%s", error);
	return c->want_help ? CLI_OK : check_options(c);
}

static const struct command *find(const char *name)
{
	const struct command *row;

	for (row = commands; row->name != NULL; row++) {
		if (strcmp(row->name, name) == 0)
			return row;
	}
	return NULL;
}

static bool wants_json(int argc, char *const *argv)
{
	for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++) {
		if (strcmp(argv[i], "--json") == 0)
			return true;
	}
	return false;
}

static int check_options(struct cli *c)
{
	if (c->stripe_bytes != 0 && (c->stripe_bytes < RY_STRIPE_MIN_BYTES || c->stripe_bytes > RY_STRIPE_MAX_BYTES ||
					    c->stripe_bytes % RY_STRIPE_ALIGN_BYTES != 0))
		return cli_usage(c, "--stripe is a multiple of 4KiB from 64KiB to 1GiB");
	if ((c->rail != NULL) != (c->rail_inflight_bytes != CLI_NOT_GIVEN))
		return cli_usage(c, "--rail and --rail-inflight belong together");
	if (c->length == 0)
		return cli_usage(c, "--length is at least 1");
	return CLI_OK;
}
