/* SPDX-License-Identifier: BSD-3-Clause */
#include "eal/eal.h"
#include "mem/mem.h"

#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <rte_eal.h>
#include <rte_lcore.h>
#include <rte_malloc.h>

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static struct eal_want want = {.n_rails = 2, .pool_mib = 32, .want_quiet = true};
static struct eal_info info;

#define START(...)                                                                                                     \
	({                                                                                                             \
		char *argv_[] = {(char *)"test", ##__VA_ARGS__};                                                       \
		eal_start((int)(sizeof(argv_) / sizeof(argv_[0])), argv_, &want, &info);                               \
	})

static int n_cpus(void)
{
	cpu_set_t set;

	sched_getaffinity(0, sizeof(set), &set);
	return CPU_COUNT(&set);
}

/* Leaves this process one CPU, or two where there are two. */
static void keep_cpus(int n)
{
	cpu_set_t set, kept;

	sched_getaffinity(0, sizeof(set), &set);
	CPU_ZERO(&kept);
	for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&kept) < n; i++)
		if (CPU_ISSET(i, &set))
			CPU_SET((size_t)i, &kept);
	cr_assert_eq(sched_setaffinity(0, sizeof(kept), &kept), 0);
}

static int nop(void *arg)
{
	__atomic_fetch_add((int *)arg, 1, __ATOMIC_RELAXED);
	return 0;
}

static void check_running(unsigned n_lcores)
{
	int n = 0;
	void *p;

	cr_assert_eq(rte_lcore_count(), n_lcores);
	cr_assert_eq(rte_get_main_lcore(), 0);
	cr_assert_eq(rte_eal_mp_remote_launch(nop, &n, CALL_MAIN), 0);
	rte_eal_mp_wait_lcore();
	cr_assert_eq(n, (int)n_lcores, "every lcore runs");
	p = rte_malloc("t", 4 << 20, 64);
	cr_assert(p, "memory for rings and pools");
	rte_free(p);
}

Test(eal, starts_without_any_option)
{
	cr_assert_eq(START(), 0, "%s", info.message);
	cr_assert_not(info.has_hugepages);
	cr_assert_str_empty(info.message);
	cr_assert_eq(info.is_shared_cpu, n_cpus() < 3);
	check_running(3);
}

Test(eal, five_lcores_on_two_cpus)
{
	keep_cpus(2);
	want.n_rails = 4;
	cr_assert_eq(START(), 0, "%s", info.message);
	cr_assert(info.is_shared_cpu);
	check_running(5);
}

Test(eal, ten_lcores_on_one_cpu)
{
	keep_cpus(1);
	want.n_rails = 9;
	cr_assert_eq(START(), 0, "%s", info.message);
	cr_assert(info.is_shared_cpu);
	check_running(10);
}

Test(eal, a_cpu_for_each_lcore_is_not_shared)
{
	if (n_cpus() < 2)
		cr_skip_test("one CPU");
	want.n_rails = 1;
	cr_assert_eq(START(), 0, "%s", info.message);
	cr_assert_not(info.is_shared_cpu);
	check_running(2);
}

Test(eal, the_users_map_is_kept)
{
	want.n_rails = 1;
	cr_assert_eq(START((char *)"--lcores", (char *)"(0-3)@0"), 0, "%s", info.message);
	cr_assert(info.is_shared_cpu, "four on one CPU");
	check_running(4);
}

Test(eal, two_lcores_pinned_to_one_cpu_are_shared)
{
	want.n_rails = 1;
	cr_assert_eq(START((char *)"--lcores=0@0,1@0"), 0, "%s", info.message);
	cr_assert(info.is_shared_cpu);
}

Test(eal, a_list_is_kept)
{
	want.n_rails = 0;
	cr_assert_eq(START((char *)"-l0"), 0, "%s", info.message);
	cr_assert_not(info.is_shared_cpu);
	check_running(1);
}

Test(eal, memory_options_of_the_user_are_kept)
{
	want.pool_mib = 1; /* too little for the check */
	cr_assert_eq(START((char *)"--no-huge", (char *)"-m", (char *)"48", (char *)"--no-pci"), 0, "%s", info.message);
	check_running(3);
}

Test(eal, an_ordinary_user_starts_too)
{
	if (geteuid() == 0)
		cr_assert(setgid(65534) == 0 && setuid(65534) == 0);
	cr_assert_eq(START(), 0, "%s", info.message);
	check_running(3);
}

static bool has_hugepages(void)
{
	uint64_t n, size;

	mem_hugepages(&n, &size);
	return n * size >= 32u << 20;
}

Test(eal, hugepages_are_used_when_wanted)
{
	if (!has_hugepages())
		cr_skip_test("too few free hugepages");
	want.want_hugepages = true;
	cr_assert_eq(START(), 0, "%s", info.message);
	cr_assert(info.has_hugepages);
	check_running(3);
}

Test(eal, an_ordinary_user_gets_hugepages)
{
	if (!has_hugepages())
		cr_skip_test("too few free hugepages");
	if (geteuid() == 0)
		cr_assert(setgid(65534) == 0 && setuid(65534) == 0);
	want.want_hugepages = true;
	cr_assert_eq(START(), 0, "%s", info.message);
	cr_assert(info.has_hugepages);
	check_running(3);
}

Test(eal, too_few_hugepages_run_on_ordinary_pages_and_say_so)
{
	uint64_t n, size;

	mem_hugepages(&n, &size);
	if (n * size > 512u << 20)
		cr_skip_test("too many free hugepages to exceed them here");
	want.want_hugepages = true;
	want.pool_mib = 520;
	cr_assert_eq(START(), 0, "%s", info.message);
	cr_assert_not(info.has_hugepages);
	cr_assert(strstr(info.message, "520 MiB wanted"), "%s", info.message);
	cr_assert(strstr(info.message, "echo 260 > /proc/sys/vm/nr_hugepages") || size != 2u << 20, "%s", info.message);
	check_running(3);
}

Test(eal, options_that_insist_on_hugepages_are_refused_before_eal)
{
	uint64_t n, size;

	mem_hugepages(&n, &size);
	if (n * size > 1ull << 40)
		cr_skip_test("more than a TiB of hugepages");
	cr_assert_eq(START((char *)"--socket-mem", (char *)"1048576,1024"), -ENOMEM);
	cr_assert(strstr(info.message, "1049600 MiB wanted"), "%s", info.message);
	cr_assert(strstr(info.message, "nr_hugepages"), "%s", info.message);
}

Test(eal, a_cpu_that_does_not_exist_is_named)
{
	cr_assert_eq(START((char *)"-l", (char *)"0,1,999"), -EINVAL);
	cr_assert(strstr(info.message, "CPU 999"), "%s", info.message);
	cr_assert(strstr(info.message, "--lcores '"), "the remedy: %s", info.message);
	cr_assert_eq(START((char *)"--lcores", (char *)"(0-2)@(0,1000)"), -EINVAL);
	cr_assert(strstr(info.message, "CPU 1000"), "%s", info.message);
	cr_assert_eq(START((char *)"-c", (char *)"0x8000000000000000000000001"), -EINVAL);
	cr_assert(strstr(info.message, "CPU 99"), "%s", info.message);
}

Test(eal, too_few_lcores_are_counted)
{
	want.n_rails = 3;
	cr_assert_eq(START((char *)"--lcores", (char *)"(0,1)@0"), -EINVAL);
	cr_assert(strstr(info.message, "2 lcores"), "%s", info.message);
	cr_assert(strstr(info.message, "3 rails makes 4"), "%s", info.message);
}

Test(eal, contradicting_options_are_named)
{
	want.n_rails = 0;
	cr_assert_eq(START((char *)"-l", (char *)"0", (char *)"--lcores=0"), -EINVAL);
	cr_assert(strstr(info.message, "-l and --lcores"), "%s", info.message);
}

Test(eal, what_cannot_be_parsed_is_shown)
{
	const char *bad[] = {"", "x", "0-", "2-1", "0,", "(0", "0-2@0", "0@", "0@0-1", "0@(0", "0)", "1@0@0", "99999"};

	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		cr_assert_eq(START((char *)"--lcores", (char *)bad[i]), -EINVAL, "'%s'", bad[i]);
		cr_assert(strstr(info.message, "not understood"), "'%s': %s", bad[i], info.message);
	}
	cr_assert_eq(START((char *)"-c", (char *)"0xg"), -EINVAL);
	cr_assert_eq(START((char *)"-c", (char *)"0"), -EINVAL);
	cr_assert_eq(START((char *)"-l"), -EINVAL, "no value");
}

Test(eal, an_option_that_eal_refuses_is_an_error_not_an_exit)
{
	cr_redirect_stdout(); /* EAL prints its usage */
	cr_assert_lt(START((char *)"--no-such-option"), 0);
	cr_assert(strstr(info.message, "eal: would not start"), "%s", info.message);
}

Test(eal, the_map_names_cpus_or_floats)
{
	char buf[64], one[64];

	keep_cpus(1);
	cr_assert_eq(eal_lcore_map(1, one, sizeof(one)), (int)strlen(one));
	cr_assert_eq(strncmp(one, "0@", 2), 0);
	cr_assert_eq(eal_lcore_map(3, buf, sizeof(buf)), (int)strlen(buf));
	cr_assert_eq(strncmp(buf, "(0-2)@(", 7), 0);
	cr_assert_eq(atoi(buf + 7), atoi(one + 2), "on the CPU that is ours");
	cr_assert_eq(eal_lcore_map(0, buf, sizeof(buf)), -EINVAL);
	cr_assert_eq(eal_lcore_map(RTE_MAX_LCORE + 1, buf, sizeof(buf)), -EINVAL);
}

Test(eal, a_short_buffer_is_never_overrun)
{
	char buf[8];
	int n;

	memset(buf, '#', sizeof(buf));
	n = eal_lcore_map((uint16_t)n_cpus(), buf, 3);
	cr_assert_geq(n, 3);
	cr_assert_eq(buf[2], 0);
	cr_assert_eq(buf[3], '#');
}

Test(eal, memlock_names_need_and_limit)
{
	struct rlimit limit = {1 << 20, 1 << 20};
	char message[512] = "";

	if (geteuid() == 0) {
		cr_assert_eq(setrlimit(RLIMIT_MEMLOCK, &limit), 0);
		cr_assert_eq(eal_check_memlock(1ull << 40, message, sizeof(message)), 0, "root passes");
		cr_assert(setgid(65534) == 0 && setuid(65534) == 0);
	} else {
		cr_assert_eq(setrlimit(RLIMIT_MEMLOCK, &limit), 0);
	}
	cr_assert_eq(eal_check_memlock(1 << 20, message, sizeof(message)), 0, "exactly the limit");
	cr_assert_str_empty(message);
	cr_assert_eq(eal_check_memlock((1 << 20) + 1, message, sizeof(message)), -ENOMEM);
	cr_assert(strstr(message, "1025 KiB"), "%s", message);
	cr_assert(strstr(message, "1024 KiB"), "%s", message);
	cr_assert(strstr(message, "LimitMEMLOCK"), "%s", message);
}
