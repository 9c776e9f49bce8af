/* SPDX-License-Identifier: BSD-3-Clause */
/* Where memory and devices are, as far as a machine with one node can tell. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

#include "daemon/numa.h"

Test(numa, memory_is_on_a_node_that_exists)
{
	char path[64];
	void *p = calloc(1, 1u << 20);
	int node = numa_of_memory(p);
	DIR *all = opendir("/sys/devices/system/node"), *one;

	if (!all)
		cr_skip_test("no NUMA in this kernel");
	closedir(all);
	if (node < 0)
		cr_skip_test("get_mempolicy is not allowed here");
	snprintf(path, sizeof(path), "/sys/devices/system/node/node%d", node);
	one = opendir(path);
	cr_assert_not_null(one, "%s", path);
	closedir(one);
	free(p);
}

Test(numa, no_memory_is_nowhere)
{
	cr_assert_eq(numa_of_memory(NULL), -1);
}

Test(numa, virtual_and_unknown_devices_are_nowhere)
{
	cr_assert_eq(numa_of_netdev("lo", ""), -1);
	cr_assert_eq(numa_of_netdev("", "127.0.0.1"), -1);
	cr_assert_eq(numa_of_netdev("no such device", ""), -1);
	cr_assert_eq(numa_of_netdev("", "192.0.2.1"), -1);
	cr_assert_eq(numa_of_netdev("", ""), -1);
}
