/* SPDX-License-Identifier: BSD-3-Clause */
/* railyard: the command table, help, and dispatch. */
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/commands.h"

static void print_help(void);
static void print_command_help(const struct command *row);
static int check_arguments(struct cli *c, const struct command *row);

int main(int argc, char **argv)
{
	struct cli c = {0};
	const struct command *row;
	int rc;

	/* A reader that goes away is a write error, which is cleaned up after. */
	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN); /* the write says EFBIG */
	rc = commands_parse(argc - 1, argv + 1, &c, &row);
	if (rc != CLI_OK)
		return rc;
	if (row == NULL || c.want_help) {
		if (row == NULL)
			print_help();
		else
			print_command_help(row);
		return CLI_OK;
	}
	rc = check_arguments(&c, row);
	return rc == CLI_OK ? row->run(&c) : rc;
}

static int check_arguments(struct cli *c, const struct command *row)
{
	if (c->args.n < row->n_args_min)
		return cli_usage(c, "an argument is missing: railyard %s %s", row->name, row->args);
	if (c->args.n > row->n_args_max)
		return cli_usage(c, "too many arguments: railyard %s %s", row->name, row->args);
	return CLI_OK;
}

static void print_help(void)
{
	const struct command *row;

	printf("usage: railyard COMMAND [OPTION...] [ARGUMENT...]\n\ncommands:\n");
	for (row = commands; row->name != NULL; row++)
		printf("  %-13s %-20s %s\n", row->name, row->args, row->help);
	printf("\nrailyard COMMAND --help lists the options of a command.\n\n"
	       "exit codes:\n"
	       "  0  done\n"
	       "  1  the operation failed\n"
	       "  2  the command line is wrong, or names what this version does not have\n"
	       "  3  the daemon cannot be reached\n"
	       "  4  no such object\n\n"
	       "environment:\n"
	       "  RAILYARD_SOCKET   control socket of the daemon, unless --socket says otherwise (default %s)\n"
	       "  RAILYARD_DAEMON   program that demo and config-check run (default: railyardd beside this one, or in "
	       "PATH)\n",
		RY_SOCKET_DEFAULT);
}

static void print_command_help(const struct command *row)
{
	printf("usage: railyard %s [OPTION...]%s%s\n\n%s\n\noptions:\n", row->name, row->args[0] != '\0' ? " " : "",
		row->args, row->help);
	options_help(cli_options, n_cli_options, row->options | OPT_COMMON, stdout);
}
