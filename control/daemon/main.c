/* SPDX-License-Identifier: BSD-3-Clause */
/* railyardd: arguments, configuration, EAL, then daemon_run. */
#include "daemon/config.h"
#include "daemon/config_rows.h"
#include "daemon/log.h"
#include "daemon/node.h"
#include "daemon/options.h"
#include "daemon/run.h"
#include "eal/eal.h"
#include "mem/mem.h"

#include <rte_eal.h>

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

/* Some 21 and 8 are open before anybody connects; the rest is for connections. */
#define FILES_OF_NODE 40u
#define FILES_OF_RAIL 12u
#define FILE_OF_NODE_BYTES (1u << 20) /* of a log, of a lock */

static enum daemon_exit show(const struct options *o);
static enum daemon_exit load(const char *path, struct config *config);
static void keep_eal_args(const struct options *o, char **argv, struct config *config);
static enum daemon_exit print_config(const struct config *config);
static enum daemon_exit start(const struct options *o, char **argv, const struct config *config);
static void block_signals(void);
static int check_open_files(const struct config *config);
static int check_file_sizes(const struct config *config);

int main(int argc, char **argv)
{
	enum daemon_exit rc;
	struct config *config;
	struct options o;

	if (options_parse(argc, argv, &o) < 0)
		return EXIT_USAGE;
	if (o.want_help || o.want_version || o.want_config_doc)
		return show(&o);
	config = calloc(1, sizeof(*config));
	if (!config)
		return EXIT_FAILED;
	rc = load(o.config_path, config);
	if (rc == EXIT_OK)
		keep_eal_args(&o, argv, config);
	if (rc == EXIT_OK && o.want_print)
		rc = print_config(config);
	else if (rc == EXIT_OK && o.want_check)
		printf("%s: good: node %s, %u rails, %u stores\n", o.config_path, config->node_name, config->n_rails,
			config->n_stores);
	else if (rc == EXIT_OK)
		rc = start(&o, argv, config);
	free(config);
	return rc;
}

static enum daemon_exit show(const struct options *o)
{
	if (o->want_help) {
		options_help(stdout);
	} else if (o->want_version) {
		printf("railyardd %s\ntransports:", RY_VERSION);
		for (const char *const *name = transport_names(); *name; name++)
			printf(" %s", *name);
		printf("\n");
	} else {
		config_print_doc(stdout);
	}
	return fflush(stdout) == 0 && !ferror(stdout) ? EXIT_OK : EXIT_FAILED;
}

static enum daemon_exit load(const char *path, struct config *config)
{
	struct config_error err;

	if (config_load(path, config, &err) == 0)
		return EXIT_OK;
	for (char *rest = err.text, *line = strsep(&rest, "\n"); line; line = strsep(&rest, "\n"))
		fprintf(stderr, "railyardd: %s\n", line);
	return EXIT_CONFIG;
}

/* For whoever asks later what this daemon was started with. */
static void keep_eal_args(const struct options *o, char **argv, struct config *config)
{
	size_t used = 0;

	for (int i = 1; i < o->eal_argc && used < sizeof(config->eal_args); i++)
		used += (size_t)snprintf(
			config->eal_args + used, sizeof(config->eal_args) - used, "%s%s", i > 1 ? " " : "", argv[i]);
}

static enum daemon_exit print_config(const struct config *config)
{
	config_print(config, stdout);
	return fflush(stdout) == 0 && !ferror(stdout) ? EXIT_OK : EXIT_FAILED;
}

static enum daemon_exit start(const struct options *o, char **argv, const struct config *config)
{
	struct eal_want want = {
		.n_rails = config->n_rails,
		.pool_mib = node_pool_mib(config),
		.want_hugepages = config->want_hugepages,
		.want_quiet = true,
	};
	struct eal_info info = {.message = ""};
	enum daemon_exit rc;
	cpu_set_t cpus;

	/* Before EAL: its threads inherit the mask, and it narrows the affinity of this one. */
	block_signals();
	if (check_open_files(config) < 0 || check_file_sizes(config) < 0)
		return EXIT_ENVIRONMENT;
	if (sched_getaffinity(0, sizeof(cpus), &cpus) < 0 || guard_install() < 0) {
		log_error("start: CPU affinity or the SIGBUS guard is not to be had");
		return EXIT_ENVIRONMENT;
	}
	/* EAL's argv ends where "--" stood. */
	argv[o->eal_argc] = NULL;
	if (eal_start(o->eal_argc, argv, &want, &info) < 0) {
		log_error("%s", info.message);
		return EXIT_ENVIRONMENT;
	}
	/* Why hugepages were wanted and not used, and the fix. */
	if (info.message[0])
		log_warn("%s", info.message);
	rc = daemon_run(config, &info, &cpus);
	rte_eal_cleanup();
	return rc;
}

/* The api thread takes these from a signalfd; a peer that closes its end must not end us, nor a file that may not grow
 * (ulimit -f): the call that meets it says EFBIG. */
static void block_signals(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN);
}

/* Seven descriptors for each attached client: the usual soft limit of 1024, kept for programs that select(), is met
 * before reader.max_clients. And EAL ends in a panic without those that it needs. */
static int check_open_files(const struct config *config)
{
	unsigned long need = FILES_OF_NODE + FILES_OF_RAIL * (unsigned long)config->n_rails;
	struct rlimit files;

	if (getrlimit(RLIMIT_NOFILE, &files) < 0)
		return 0;
	if (files.rlim_cur < files.rlim_max) {
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	if (files.rlim_cur >= need)
		return 0;
	log_error("open files: %lu are needed for %u rails and a client, the limit is %lu; raise it: ulimit -n, or "
		  "LimitNOFILE= of the unit",
		need, config->n_rails, (unsigned long)files.rlim_cur);
	return -EMFILE;
}

/* The memory of clients is files to the kernel, and EAL's is, too: without this the node is ready, and nobody can
 * attach. */
static int check_file_sizes(const struct config *config)
{
	uint64_t need = FILE_OF_NODE_BYTES;
	struct rlimit sizes;

	if (config->is_reader)
		need = config->read_arena_bytes > config->put_arena_bytes ? config->read_arena_bytes
									  : config->put_arena_bytes;
	if (getrlimit(RLIMIT_FSIZE, &sizes) < 0)
		return 0;
	if (sizes.rlim_cur < sizes.rlim_max) {
		sizes.rlim_cur = sizes.rlim_max;
		setrlimit(RLIMIT_FSIZE, &sizes);
	}
	if (sizes.rlim_cur >= need)
		return 0;
	log_error("file sizes: %" PRIu64 " bytes are needed%s, the limit is %" PRIu64
		  "; raise it: ulimit -f, or LimitFSIZE= of the unit",
		need, config->is_reader ? " for the arenas of a client (reader.read_arena, reader.put_arena)" : "",
		(uint64_t)sizes.rlim_cur);
	return -EFBIG;
}
