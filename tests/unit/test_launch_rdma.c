/* SPDX-License-Identifier: BSD-3-Clause */
/* Which RDMA ports the demonstration uses, from trees like sysfs. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "launch/launch.h"

static char root[64];
static struct launch_rail rails[4];
static char seen[512];

static void setup(void)
{
	strcpy(root, "/tmp/ry-launch-rdma-XXXXXX");
	cr_assert(mkdtemp(root) != NULL);
	memset(rails, 0, sizeof(rails));
}

static void teardown(void)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -rf %s", root);
	cr_assert_eq(system(command), 0);
}

static void file(const char *device, unsigned port, const char *name, const char *line)
{
	char path[256], command[300];
	FILE *f;

	snprintf(path, sizeof(path), "%s/class/infiniband/%s/ports/%u/%s", root, device, port, name);
	snprintf(command, sizeof(command), "mkdir -p $(dirname %s)", path);
	cr_assert_eq(system(command), 0);
	f = fopen(path, "we");
	cr_assert(f != NULL);
	fprintf(f, "%s\n", line);
	fclose(f);
}

static void gid(const char *device, unsigned i, const char *value, const char *type)
{
	char name[32];

	snprintf(name, sizeof(name), "gids/%u", i);
	file(device, 1, name, value);
	snprintf(name, sizeof(name), "gid_attrs/types/%u", i);
	if (type)
		file(device, 1, name, type);
}

static int find(int max)
{
	return launch_find_rdma(root, rails, max, seen, sizeof(seen));
}

TestSuite(launch_rdma, .init = setup, .fini = teardown);

Test(launch_rdma, ipv4_before_ipv6_and_never_link_local)
{
	file("rxe0", 1, "state", "4: ACTIVE");
	gid("rxe0", 0, "fe80:0000:0000:0000:5054:00ff:fe12:3456", "RoCE v2");
	gid("rxe0", 1, "fd77:0000:0000:0000:0000:0000:0000:0001", "RoCE v2");
	gid("rxe0", 2, "0000:0000:0000:0000:0000:ffff:0a4d:0001", "IB/RoCE v1");
	gid("rxe0", 3, "0000:0000:0000:0000:0000:ffff:0a4d:0002", "RoCE v2");
	gid("rxe0", 4, "0000:0000:0000:0000:0000:0000:0000:0000", NULL);
	cr_assert_eq(find(4), 1);
	cr_assert_str_eq(rails[0].address, "10.77.0.2");
	cr_assert_str_eq(rails[0].device, "rxe0");
	cr_assert_str_eq(rails[0].transport, "verbs");
	cr_assert_eq(rails[0].device_port, 1);
}

Test(launch_rdma, ipv6_where_there_is_nothing_else)
{
	file("rxe0", 1, "state", "4: ACTIVE");
	gid("rxe0", 0, "fe80:0000:0000:0000:5054:00ff:fe12:3456", "RoCE v2");
	gid("rxe0", 1, "fd77:0000:0000:0000:0000:0000:0000:0001", "RoCE v2");
	cr_assert_eq(find(4), 1);
	cr_assert_str_eq(rails[0].address, "fd77::1");
}

Test(launch_rdma, says_why_ports_were_passed_over)
{
	file("mlx5_0", 1, "state", "1: DOWN");
	file("mlx5_0", 2, "state", "4: ACTIVE");
	file("mlx5_1", 1, "state", "4: ACTIVE");
	gid("mlx5_1", 0, "0000:0000:0000:0000:0000:ffff:0a00:0005", "RoCE v2");
	cr_assert_eq(find(2), 1);
	cr_assert_str_eq(rails[0].device, "mlx5_1");
	cr_assert_str_eq(
		seen, "mlx5_0 port 1 is not active, mlx5_0 port 2 has no RoCEv2 GID of an IP address, mlx5_1 10.0.0.5");
}

Test(launch_rdma, no_more_than_wanted_in_the_order_of_numbers)
{
	const char *const names[] = {"rxe10", "rxe2", "rxe0"};

	for (unsigned i = 0; i < 3; i++) {
		file(names[i], 1, "state", "4: ACTIVE");
		gid(names[i], 0, "0000:0000:0000:0000:0000:ffff:0a00:0005", "RoCE v2");
	}
	cr_assert_eq(find(2), 2);
	cr_assert(!strcmp(rails[0].device, "rxe0") && !strcmp(rails[1].device, "rxe2"));
	cr_assert_eq(rails[2].device[0], 0);
}

Test(launch_rdma, none_at_all)
{
	cr_assert_eq(find(2), 0);
	cr_assert_str_eq(seen, "no RDMA device at all");
}
