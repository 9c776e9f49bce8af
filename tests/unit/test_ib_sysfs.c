/* SPDX-License-Identifier: BSD-3-Clause */
/* What is read of a device from sysfs, on trees made for it: NICs of several kinds, software devices, and nothing. */
#include <criterion/criterion.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "transport/ib/ib_sysfs.h"

static char root[64];

static void run(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void run(const char *format, ...)
{
	char command[1024], text[900];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	snprintf(command, sizeof(command), "cd %s && %s", root, text);
	cr_assert_eq(system(command), 0, "%s", command);
}

/* One function of a NIC; `extra` makes more of it. */
static void add_pci(const char *bridge, const char *address)
{
	run("mkdir -p devices/%s/%s bus/pci/drivers/mlx5_core && ln -s ../../../bus/pci/drivers/mlx5_core "
	    "devices/%s/%s/driver && cd devices/%s/%s && echo '16.0 GT/s PCIe' >current_link_speed && echo 16 "
	    ">current_link_width && echo 1 >numa_node",
		bridge, address, bridge, address, bridge, address);
}

static void add_device(const char *device, const char *bridge, const char *address, const char *netdev)
{
	run("mkdir -p class/infiniband/%s/ports/1/gid_attrs/ndevs class/net/%s && cd class/infiniband/%s && ln -s "
	    "../../../devices/%s/%s device && echo '100 Gb/sec (4X EDR)' >ports/1/rate && echo 22.36.1010 >fw_ver && "
	    "echo %s >ports/1/gid_attrs/ndevs/3 && ln -s ../../../devices/%s/%s ../../net/%s/device && echo 100000 "
	    ">../../net/%s/speed",
		device, netdev, device, bridge, address, netdev, bridge, address, netdev, netdev);
}

static void setup(void)
{
	strcpy(root, "/tmp/railyard-sysfs-XXXXXX");
	cr_assert_not_null(mkdtemp(root));
}

static void teardown(void)
{
	run("rm -rf %s", root);
}

static struct rail_device_info of_device(const char *device, uint32_t port, uint32_t gid_index)
{
	struct rail_device_info d = {.numa_node = -1, .gid_index = -1};

	ib_sysfs_device(root, device, port, gid_index, &d);
	return d;
}

static struct rail_device_info of_netdev(const char *netdev)
{
	struct rail_device_info d = {.numa_node = -1, .gid_index = -1};

	ib_sysfs_netdev(root, netdev, &d);
	return d;
}

TestSuite(ib_sysfs, .init = setup, .fini = teardown);

Test(ib_sysfs, a_nic_shows_everything)
{
	struct rail_device_info d;

	add_pci("pci0000:16", "0000:17:00.1");
	add_device("mlx5_1", "pci0000:16", "0000:17:00.1", "ens1f1");
	d = of_device("mlx5_1", 1, 3);
	cr_assert_str_eq(d.device, "mlx5_1");
	cr_assert_eq(d.port, 1);
	cr_assert_str_eq(d.netdev, "ens1f1");
	cr_assert_str_eq(d.pci_address, "0000:17:00.1");
	cr_assert_str_eq(d.card, "0000:17:00");
	cr_assert_str_eq(d.driver, "mlx5_core");
	cr_assert_str_eq(d.firmware, "22.36.1010");
	cr_assert_str_eq(d.pcie_speed, "16.0 GT/s PCIe");
	cr_assert_eq(d.pcie_width, 16);
	cr_assert_eq(d.numa_node, 1);
	cr_assert_str_eq(d.link_text, "100 Gb/sec (4X EDR)");
	cr_assert_eq(d.link_bytes_per_s, 12500000000ull);
}

Test(ib_sysfs, ports_of_one_card_share_it_and_other_cards_do_not)
{
	add_pci("pci0000:16", "0000:17:00.0");
	add_pci("pci0000:16", "0000:17:00.1");
	add_pci("pci0000:97", "0000:98:00.0");
	add_device("mlx5_0", "pci0000:16", "0000:17:00.0", "ens1f0");
	add_device("mlx5_1", "pci0000:16", "0000:17:00.1", "ens1f1");
	add_device("mlx5_2", "pci0000:97", "0000:98:00.0", "ens2f0");
	cr_assert_str_eq(of_device("mlx5_0", 1, 3).card, of_device("mlx5_1", 1, 3).card);
	cr_assert_str_neq(of_device("mlx5_0", 1, 3).card, of_device("mlx5_2", 1, 3).card);
	cr_assert_str_eq(of_netdev("ens1f0").card, of_device("mlx5_1", 1, 3).card, "tcp beside verbs");
}

Test(ib_sysfs, a_virtual_function_shares_its_card)
{
	add_pci("pci0000:16", "0000:17:00.0");
	add_pci("pci0000:16", "0000:17:01.2");
	run("ln -s ../0000:17:00.0 devices/pci0000:16/0000:17:01.2/physfn");
	add_device("mlx5_9", "pci0000:16", "0000:17:01.2", "ens1v2");
	cr_assert_str_eq(of_device("mlx5_9", 1, 3).pci_address, "0000:17:01.2");
	cr_assert_str_eq(of_device("mlx5_9", 1, 3).card, "0000:17:00");
}

/* Soft-RoCE has no device of its own: it is where its network device is. */
Test(ib_sysfs, a_software_device_is_where_its_netdev_is)
{
	struct rail_device_info d;

	add_pci("pci0000:16", "0000:17:00.0");
	add_device("mlx5_0", "pci0000:16", "0000:17:00.0", "ens1f0");
	run("mkdir -p class/infiniband/rxe0/ports/1/gid_attrs/ndevs && echo ens1f0 "
	    ">class/infiniband/rxe0/ports/1/gid_attrs/ndevs/1 && echo '10 Gb/sec (4X SDR)' "
	    ">class/infiniband/rxe0/ports/1/rate");
	d = of_device("rxe0", 1, 1);
	cr_assert_str_eq(d.card, "0000:17:00");
	cr_assert_eq(d.numa_node, 1);
	cr_assert_eq(d.link_bytes_per_s, 1250000000ull, "its own, not the netdev's");
	cr_assert_str_empty(d.firmware);
}

Test(ib_sysfs, a_vlan_on_a_bond_member_is_its_card_and_a_bond_of_two_is_itself)
{
	add_pci("pci0000:16", "0000:17:00.0");
	add_device("mlx5_0", "pci0000:16", "0000:17:00.0", "ens1f0");
	run("mkdir -p class/net/v100 class/net/v7 class/net/bond0 && ln -s ../ens1f0 class/net/v100/lower_ens1f0 && ln "
	    "-s "
	    "../v100 class/net/v7/lower_v100 && ln -s ../ens1f0 class/net/bond0/lower_ens1f0 && ln -s ../v7 "
	    "class/net/bond0/lower_v7 && echo 25000 >class/net/v7/speed");
	cr_assert_str_eq(of_netdev("v7").card, "0000:17:00");
	cr_assert_str_eq(of_netdev("v7").netdev, "v7");
	cr_assert_eq(of_netdev("v7").link_bytes_per_s, 3125000000ull);
	cr_assert_str_eq(of_netdev("v7").link_text, "25 Gb/sec");
	cr_assert_str_eq(of_netdev("bond0").card, "bond0");
	run("mkdir -p class/net/a class/net/b && ln -s ../b class/net/a/lower_b && ln -s ../a class/net/b/lower_a");
	cr_assert(of_netdev("a").card[0], "a ring of devices ends");
}

Test(ib_sysfs, two_rails_on_one_virtual_device_share_it)
{
	run("mkdir -p class/net/veth0 class/net/veth1");
	cr_assert_str_eq(of_netdev("veth0").card, "veth0");
	cr_assert_str_neq(of_netdev("veth0").card, of_netdev("veth1").card);
	cr_assert_eq(of_netdev("veth0").numa_node, -1);
	run("mkdir -p class/net/lo");
	cr_assert_str_empty(of_netdev("lo").card, "nothing that could break");
}

Test(ib_sysfs, what_is_not_there_stays_empty)
{
	struct rail_device_info d = of_device("mlx5_7", 1, 0);

	cr_assert(d.numa_node == -1 && !d.card[0] && !d.link_bytes_per_s && !d.link_text[0] && !d.netdev[0]);
	d = of_netdev("");
	cr_assert(d.numa_node == -1 && !d.card[0] && !d.netdev[0]);
	run("mkdir -p class/net/eth0 class/infiniband/x/ports/1 && echo -1 >class/net/eth0/speed && : "
	    ">class/infiniband/x/ports/1/rate && : >class/infiniband/x/fw_ver");
	cr_assert_eq(of_netdev("eth0").link_bytes_per_s, 0, "a device that is down says -1");
	cr_assert_eq(of_device("x", 1, 0).link_bytes_per_s, 0);
	cr_assert_str_empty(of_device("x", 1, 0).firmware);
	run("echo garbage >class/net/eth0/speed && echo garbage >class/infiniband/x/ports/1/rate");
	cr_assert_eq(of_netdev("eth0").link_bytes_per_s, 0);
	cr_assert_eq(of_device("x", 1, 0).link_bytes_per_s, 0);
}

Test(ib_sysfs, the_netdev_of_an_address)
{
	char name[16] = "before";

	ib_sysfs_find_netdev("127.0.0.1", name);
	cr_assert_str_eq(name, "lo");
	ib_sysfs_find_netdev("192.0.2.1", name);
	cr_assert_str_empty(name);
	ib_sysfs_find_netdev("", name);
	cr_assert_str_empty(name);
	ib_sysfs_find_netdev("no address", name);
	cr_assert_str_empty(name);
}
