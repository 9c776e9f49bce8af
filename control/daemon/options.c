/* SPDX-License-Identifier: BSD-3-Clause */
#include "daemon/options.h"

#include <errno.h>
#include <getopt.h>
#include <string.h>

static int find_split(int argc, char **argv);
static int take(int argc, char **argv, struct options *o);

int options_parse(int argc, char **argv, struct options *out)
{
	struct options o = {.eal_argc = 1};
	int split = find_split(argc, argv);
	int rc;

	if (split)
		o.eal_argc = split;
	/* getopt starts at the element after the first: argv[0], or the "--" in its place. */
	rc = take(argc - split, argv + split, &o);
	if (rc == 0)
		*out = o;
	return rc;
}

void options_help(FILE *out)
{
	fputs("Usage: railyardd [EAL arguments] -- --config FILE [--check | --print-config]\n"
	      "\n"
	      "The Railyard dataplane daemon: serves local readers, remote readers, or both.\n"
	      "\n"
	      "  -c, --config FILE   configuration (docs/config.md)\n"
	      "      --check         check the configuration, print all that is wrong, start nothing\n"
	      "      --print-config  print the configuration in effect, with the source of each value\n"
	      "      --version       print the version and the transports of this build\n"
	      "  -h, --help          print this\n"
	      "\n"
	      "EAL arguments stand before \"--\". Without any, one lcore for control and one for each rail are mapped "
	      "onto the\n"
	      "CPUs of this machine, and hugepages are used where there are enough.\n"
	      "\n"
	      "Signals: SIGTERM and SIGINT drain and end the daemon (timeouts.drain); a second one ends it at once.\n"
	      "\n"
	      "Exit codes:\n"
	      "  0  ended in order\n"
	      "  1  failed, or ended by a second signal\n"
	      "  2  wrong usage\n"
	      "  3  the configuration is missing or wrong\n"
	      "  4  the environment does not fit: EAL, lcores, memory, an address or port, the control socket\n",
		out);
}

/* Index of the "--", 0 without one. */
static int find_split(int argc, char **argv)
{
	for (int i = 1; i < argc; i++)
		if (!strcmp(argv[i], "--"))
			return i;
	return 0;
}

static int take(int argc, char **argv, struct options *o)
{
	static const struct option known[] = {
		{"config", required_argument, NULL, 'c'},
		{"check", no_argument, NULL, 'k'},
		{"print-config", no_argument, NULL, 'p'},
		{"version", no_argument, NULL, 'v'},
		{"help", no_argument, NULL, 'h'},
		{"print-config-doc", no_argument, NULL, 'd'},
		{NULL, 0, NULL, 0},
	};
	int c;

	opterr = 0;
	optind = 1;
	while ((c = getopt_long(argc, argv, "+:c:h", known, NULL)) != -1) {
		if (c == 'c')
			o->config_path = optarg;
		else if (c == 'k')
			o->want_check = true;
		else if (c == 'p')
			o->want_print = true;
		else if (c == 'v')
			o->want_version = true;
		else if (c == 'h')
			o->want_help = true;
		else if (c == 'd')
			o->want_config_doc = true;
		else {
			fprintf(stderr, "railyardd: %s '%s'; EAL arguments stand before \"--\"; see railyardd --help\n",
				c == ':' ? "no value for" : "unknown option", argv[optind - 1]);
			return -EINVAL;
		}
	}
	if (optind < argc) {
		fprintf(stderr, "railyardd: '%s' is no option; see railyardd --help\n", argv[optind]);
		return -EINVAL;
	}
	if (!o->config_path && !o->want_help && !o->want_version && !o->want_config_doc) {
		fprintf(stderr, "railyardd: --config FILE is missing; see railyardd --help\n");
		return -EINVAL;
	}
	return 0;
}
