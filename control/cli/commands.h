/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The tables of `railyard`: one row per command, one per option; and how a command line is turned into a struct cli.
 *
 * Apart from main, so that tests parse command lines without running them.
 */
#ifndef RY_CLI_COMMANDS_H
#define RY_CLI_COMMANDS_H

#include <stdint.h>

#include "cli/cli.h"

#ifdef __cplusplus
extern "C" {
#endif

struct command {
	const char *name;
	const char *args; /* for help */
	uint8_t n_args_min;
	uint8_t n_args_max;
	uint32_t options; /* enum cli_option */
	int (*run)(struct cli *c);
	const char *help;
};

extern const struct command commands[]; /* ends with a NULL name */
extern const struct option_row cli_options[];
extern const uint32_t n_cli_options;

/*
 * The first argument is the command; options may stand before and after it. CLI_OK with *row NULL where help is asked
 * without a command; CLI_USAGE after the error was shown. `c` is set to defaults first.
 */
int commands_parse(int argc, char *const *argv, struct cli *c, const struct command **row);

#ifdef __cplusplus
}
#endif
#endif
