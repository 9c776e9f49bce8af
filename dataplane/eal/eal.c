/* SPDX-License-Identifier: BSD-3-Clause */
#include "eal_priv.h"

#include "mem/mem.h"

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_lcore.h>

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MIB (1024u * 1024u)
#define OWN_ARGS_MAX 16

/* The argument vector under construction: ours first, so that the user's come later and win where EAL lets the last one
 * count. */
struct args {
	int argc;
	char **argv;
	char map[2048]; /* of --lcores */
	char mib[16];   /* of -m */
	char text[256]; /* all of them, for people */
};

static int check_lcores(int argc, char **argv, const struct eal_want *want, struct eal_info *info);
static int parse_lcores(const char *option, const char *value, struct lcore_request *r);
static int check_request(
	const char *option, const char *value, const struct lcore_request *r, uint16_t n_lcores, struct eal_info *info);
static int choose_memory(int argc, char **argv, const struct eal_want *want, struct eal_info *info);
static bool can_use_hugepages(uint64_t need_bytes);
static uint64_t memory_wanted(int argc, char **argv, const struct eal_want *want);
static void build_args(int argc, char **argv, const struct eal_want *want, const struct eal_info *info, struct args *a);
static void add_memory_args(
	int argc, char **argv, const struct eal_want *want, const struct eal_info *info, struct args *a);
static void add(struct args *a, const char *arg);
static int run(struct args *a, struct eal_info *info);
static int mute(void);
static void unmute(int kept);
static const char *told(struct args *a);
static const char *value_of(int argc, char **argv, const char *option);
static bool is_given(int argc, char **argv, const char *option);
static int fail(struct eal_info *info, int rc, const char *format, ...) __attribute__((format(printf, 3, 4)));

int eal_start(int argc, char **argv, const struct eal_want *want, struct eal_info *info)
{
	struct args a = {0};
	int rc;

	memset(info, 0, sizeof(*info));
	rc = check_lcores(argc, argv, want, info);
	if (!rc)
		rc = choose_memory(argc, argv, want, info);
	if (rc)
		return rc;
	a.argv = calloc((size_t)argc + OWN_ARGS_MAX + 1, sizeof(*a.argv));
	if (!a.argv)
		return fail(info, -ENOMEM, "eal: out of memory for its arguments");
	build_args(argc, argv, want, info, &a);
	rc = run(&a, info);
	free(a.argv);
	return rc;
}

static int check_lcores(int argc, char **argv, const struct eal_want *want, struct eal_info *info)
{
	static const char *const forms[] = {"-l", "-c", "--lcores"};
	const char *option = NULL, *value = NULL;
	struct lcore_request r;

	for (unsigned i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
		if (!is_given(argc, argv, forms[i]))
			continue;
		if (option)
			return fail(
				info, -EINVAL, "%s and %s both choose lcores: give one of them only", option, forms[i]);
		option = forms[i];
		value = value_of(argc, argv, option);
	}
	if (!option && want->n_rails >= RTE_MAX_LCORE)
		return fail(info, -EINVAL,
			"%u rails need more lcores than this build of DPDK knows (%u): configure fewer rails",
			want->n_rails, RTE_MAX_LCORE);
	if (!option)
		return 0;
	if (!value || parse_lcores(option, value, &r))
		return fail(info, -EINVAL,
			"%s %s: not understood. Examples: -l 0-2, --lcores 0,1,2, --lcores '(0-2)@(0-1)'", option,
			value ? value : "");
	return check_request(option, value, &r, (uint16_t)(want->n_rails + 1), info);
}

static int parse_lcores(const char *option, const char *value, struct lcore_request *r)
{
	if (!strcmp(option, "-l"))
		return lcores_parse_list(value, r);
	if (!strcmp(option, "-c"))
		return lcores_parse_mask(value, r);
	return lcores_parse_map(value, r);
}

static int check_request(
	const char *option, const char *value, const struct lcore_request *r, uint16_t n_lcores, struct eal_info *info)
{
	char fitting[256] = "", cpus[128] = "";
	int n_cpus = lcores_cpu_list(cpus, sizeof(cpus));
	int n_given = CPU_COUNT(&r->lcores);

	eal_lcore_map(n_lcores, fitting, sizeof(fitting));
	for (int i = 0; i < CPU_SETSIZE; i++) {
		if (CPU_ISSET(i, &r->cpus) && !lcores_can_run_on(i))
			return fail(info, -EINVAL,
				"%s %s: CPU %d does not exist here or is not ours to use; this process has %d (%s). "
				"Leave the option "
				"out, or try --lcores '%s'",
				option, value, i, n_cpus, cpus, fitting);
		if (CPU_ISSET(i, &r->lcores) && i >= RTE_MAX_LCORE)
			return fail(info, -EINVAL,
				"%s %s: lcore %d is above %d, the highest that this build of DPDK knows", option, value,
				i, RTE_MAX_LCORE - 1);
	}
	if (n_given < n_lcores)
		return fail(info, -EINVAL,
			"%s %s: names %d lcores, but one for control and one for each of %d rails makes %d. Leave the "
			"option out, or "
			"try --lcores '%s'",
			option, value, n_given, n_lcores - 1, n_lcores, fitting);
	return 0;
}

/* Ordinary pages serve when hugepages are short, unless the user's own options insist on them. Fills has_hugepages. */
static int choose_memory(int argc, char **argv, const struct eal_want *want, struct eal_info *info)
{
	uint64_t need = memory_wanted(argc, argv, want), n_free, page_bytes, n_pages;
	bool is_insisted = is_given(argc, argv, "--socket-mem") || is_given(argc, argv, "--in-memory") ||
			   is_given(argc, argv, "--huge-dir");

	if (need < (uint64_t)want->pool_mib * MIB)
		return fail(info, -EINVAL,
			"eal: the memory arguments give it %llu MiB, but this configuration needs %u MiB for rings and "
			"tables: ask for that much, or leave -m and --socket-mem out",
			(unsigned long long)(need / MIB), want->pool_mib);
	if (is_given(argc, argv, "--no-huge") || (!is_insisted && !want->want_hugepages))
		return 0;
	if (can_use_hugepages(need)) {
		info->has_hugepages = true;
		return 0;
	}
	mem_hugepages(&n_free, &page_bytes);
	n_pages = page_bytes ? (need + page_bytes - 1) / page_bytes : 0;
	fail(info, 0,
		"hugepages: %llu MiB wanted, %llu MiB free for us%s. To have them: echo %llu > "
		"/proc/sys/vm/nr_hugepages (as root; more "
		"when slabs and arenas shall use them too)",
		(unsigned long long)(need / MIB), (unsigned long long)(n_free * page_bytes / MIB),
		is_insisted ? ", and the options given insist on hugepages"
			    : "; running on ordinary pages, which costs speed",
		(unsigned long long)n_pages);
	return is_insisted ? -ENOMEM : 0;
}

/* Counted as free is not yet usable: a cgroup may forbid it. One page tells. */
static bool can_use_hugepages(uint64_t need_bytes)
{
	struct mapping probe = {0};
	uint64_t n_free, page_bytes;
	bool can;

	mem_hugepages(&n_free, &page_bytes);
	if (page_bytes == 0 || n_free * page_bytes < need_bytes || slab_map(page_bytes, true, &probe))
		return false;
	can = probe.is_hugepage;
	mapping_unmap(&probe);
	return can;
}

/* Bytes of EAL memory: -m, else the sum of --socket-mem, else what the program says. */
static uint64_t memory_wanted(int argc, char **argv, const struct eal_want *want)
{
	const char *value = value_of(argc, argv, "-m");
	uint64_t mib = 0;

	if (value)
		return strtoull(value, NULL, 10) * MIB;
	value = value_of(argc, argv, "--socket-mem");
	if (!value)
		return (uint64_t)want->pool_mib * MIB;
	for (; value; value = strchr(value, ',') ? strchr(value, ',') + 1 : NULL)
		mib += strtoull(value, NULL, 10);
	return mib * MIB;
}

static void build_args(int argc, char **argv, const struct eal_want *want, const struct eal_info *info, struct args *a)
{
	add(a, argv[0]);
	if (want->want_quiet)
		add(a, "--log-level=lib.eal:warning");
	if (!is_given(argc, argv, "-l") && !is_given(argc, argv, "-c") && !is_given(argc, argv, "--lcores")) {
		eal_lcore_map((uint16_t)(want->n_rails + 1), a->map, sizeof(a->map));
		add(a, "--lcores");
		add(a, a->map);
	}
	add_memory_args(argc, argv, want, info, a);
	if (!is_given(argc, argv, "--no-pci") && !is_given(argc, argv, "-a") && !is_given(argc, argv, "--allow"))
		add(a, "--no-pci");
	if (!is_given(argc, argv, "--no-telemetry") && !is_given(argc, argv, "--telemetry"))
		add(a, "--no-telemetry");
	for (int i = 1; i < argc; i++)
		add(a, argv[i]);
}

static void add_memory_args(
	int argc, char **argv, const struct eal_want *want, const struct eal_info *info, struct args *a)
{
	if (info->has_hugepages) {
		/* --in-memory contradicts a directory for files, and needs no second mention. */
		if (!is_given(argc, argv, "--in-memory") && !is_given(argc, argv, "--huge-dir"))
			add(a, "--in-memory");
		if (!is_given(argc, argv, "--iova-mode"))
			add(a, "--iova-mode=va");
		return;
	}
	if (!is_given(argc, argv, "--no-huge"))
		add(a, "--no-huge");
	if (!is_given(argc, argv, "--no-shconf"))
		add(a, "--no-shconf");
	if (!is_given(argc, argv, "-m") && want->pool_mib) {
		snprintf(a->mib, sizeof(a->mib), "%u", want->pool_mib);
		add(a, "-m");
		add(a, a->mib);
	}
}

static void add(struct args *a, const char *arg)
{
	a->argv[a->argc++] = (char *)arg; /* getopt's prototype wants it so; EAL changes no argument */
}

static int run(struct args *a, struct eal_info *info)
{
	bool want_usage = is_given(a->argc, a->argv, "-h") || is_given(a->argc, a->argv, "--help");
	int kept = want_usage ? -1 : mute(), rc;

	rte_errno = 0;
	rc = rte_eal_init(a->argc, a->argv);
	unmute(kept);
	if (rc < 0)
		return fail(info, rte_errno ? -rte_errno : -EINVAL,
			"eal: would not start with%s: %s. railyardd -h -- lists the arguments that there are; its own "
			"messages say more: add --log-level=lib.eal:debug before --",
			told(a), rte_strerror(rte_errno ? rte_errno : EINVAL));
	info->has_hugepages = rte_eal_has_hugepages();
	info->is_shared_cpu = lcores_are_shared();
	return 0;
}

/* On an argument that it does not know EAL prints a hundred lines of usage on standard output, and not which one it
 * was.
 */
static int mute(void)
{
	int kept, null = open("/dev/null", O_WRONLY | O_CLOEXEC);

	fflush(stdout);
	kept = null < 0 ? -1 : fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
	if (kept >= 0)
		dup2(null, STDOUT_FILENO);
	if (null >= 0)
		close(null);
	return kept;
}

static void unmute(int kept)
{
	if (kept < 0)
		return;
	fflush(stdout);
	dup2(kept, STDOUT_FILENO);
	close(kept);
}

/* All arguments, the user's last, each with a space before it. */
static const char *told(struct args *a)
{
	uint32_t used = 0;

	a->text[0] = '\0';
	for (int i = 1; i < a->argc && used < sizeof(a->text); i++)
		used += (uint32_t)snprintf(a->text + used, sizeof(a->text) - used, " %s", a->argv[i]);
	return a->text;
}

/* The value of "-x V", "-xV", "--long V" or "--long=V"; NULL when it is missing. The last one counts. */
static const char *value_of(int argc, char **argv, const char *option)
{
	size_t n = strlen(option);
	bool is_long = option[1] == '-';
	const char *value = NULL;

	for (int i = 1; i < argc; i++) {
		if (strncmp(argv[i], option, n))
			continue;
		if (argv[i][n] == '\0')
			value = i + 1 < argc ? argv[i + 1] : NULL;
		else if (is_long && argv[i][n] == '=')
			value = argv[i] + n + 1;
		else if (!is_long && argv[i][1] != '-')
			value = argv[i] + n;
	}
	return value;
}

static bool is_given(int argc, char **argv, const char *option)
{
	size_t n = strlen(option);
	bool is_long = option[1] == '-';

	for (int i = 1; i < argc; i++) {
		if (strncmp(argv[i], option, n))
			continue;
		if (argv[i][n] == '\0' || !is_long || argv[i][n] == '=')
			return true;
	}
	return false;
}

static int fail(struct eal_info *info, int rc, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(info->message, sizeof(info->message), format, args);
	va_end(args);
	return rc;
}
