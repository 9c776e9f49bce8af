/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * railyardd's command line: EAL's arguments, "--", then ours. Parsed before EAL starts, so that --help, --version and
 * --check need nothing.
 */
#ifndef RY_OPTIONS_H
#define RY_OPTIONS_H

#include <stdbool.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Exit codes; --help lists them. */
enum daemon_exit {
	EXIT_OK = 0,
	EXIT_FAILED = 1,
	EXIT_USAGE = 2,
	EXIT_CONFIG = 3,
	EXIT_ENVIRONMENT = 4,
};

struct options {
	const char *config_path; /* NULL = not given */
	bool want_help;
	bool want_version;
	bool want_check;
	bool want_print;      /* --print-config */
	bool want_config_doc; /* --print-config-doc, for docs/config.md */
	int eal_argc;         /* argv[0] and what stood before "--" */
};

/* 0, or -EINVAL after a line on stderr. Without a "--" every argument is ours. */
int options_parse(int argc, char **argv, struct options *out);
void options_help(FILE *out);

#ifdef __cplusplus
}
#endif
#endif
