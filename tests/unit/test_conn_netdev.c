/* SPDX-License-Identifier: BSD-3-Clause */
/* Link state: what netlink says of a rail's device, and what becomes of its pairs. */
#include "conn_fixture.h"

#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <sched.h>
#include <stdlib.h>

#include "daemon/conn_priv.h"

static struct node a, b;

struct message {
	struct nlmsghdr h;
	struct ifinfomsg m;
	struct rtattr name;
	char text[16];
};

static void tell(const char *device, uint16_t type, uint8_t family, unsigned flags)
{
	struct message m = {.h = {.nlmsg_len = sizeof(m), .nlmsg_type = type},
		.m = {.ifi_family = family, .ifi_flags = flags},
		.name = {.rta_len = RTA_LENGTH(sizeof(m.text)), .rta_type = IFLA_IFNAME}};

	snprintf(m.text, sizeof(m.text), "%s", device);
	netdev_take(a.conn, &m, sizeof(m));
}

Test(conn_netdev, device_down_takes_the_pairs_out_at_once)
{
	bring_up(&a, &b);
	tell("lo", RTM_NEWLINK, AF_UNSPEC, IFF_UP);
	until(&a, &b, a.n_down == 1 && b.n_down == 1);
	cr_assert(a.down_evidence == RAIL_EV_LOCAL && a.down_reason == 0, "says nothing about the peer");
	cr_assert_str_eq(a.down_cause, "network device lo is down");
	for (int i = 0; i < 20; i++) {
		now_ns += SEC;
		turns(&a, &b, 20);
	}
	cr_assert_eq(a.n_up, 1u, "not dialled while it is down");
	cr_assert_str_eq(info_of(&a, 0).last_error, "network device lo is down");
	tell("lo", RTM_NEWLINK, AF_UNSPEC, IFF_UP | IFF_RUNNING);
	until(&a, &b, a.n_up == 2 && b.n_up == 2);
	node_stop(&a);
	node_stop(&b);
}

Test(conn_netdev, device_down_takes_out_every_pair_of_its_rail_and_no_other)
{
	bring_up_three(&a, &b);
	snprintf(a.conn->netdevs[1].name, sizeof(a.conn->netdevs[1].name), "ry7");
	tell("lo", RTM_NEWLINK, AF_UNSPEC, IFF_UP);
	until(&a, &b, a.n_down >= 2 && b.n_down >= 2);
	turns(&a, &b, 50);
	cr_assert(a.n_down == 2 && b.n_down == 2, "%d, %d", a.n_down, b.n_down);
	cr_assert(!a.by_store[0] && !a.by_store[1] && a.by_store[2], "which of them are up");
	cr_assert_eq(a.down_evidence, RAIL_EV_LOCAL);
	cr_assert(
		b.down_reason == WIRE_BYE_REBUILD && b.down_evidence == RAIL_EV_NONE, "told, as far as it gets there");
	tell("ry7", RTM_NEWLINK, AF_UNSPEC, IFF_UP);
	until(&a, &b, a.n_down == 3 && b.n_down == 3);
	tell("lo", RTM_NEWLINK, AF_UNSPEC, IFF_UP | IFF_RUNNING);
	until(&a, &b, a.n_up == 5 && b.n_up == 5);
	cr_assert(a.rails[0].n_link_reads == 1 && a.rails[1].n_link_reads == 0, "its speed may be another now");
	cr_assert(a.by_store[0] && a.by_store[1] && !a.by_store[2], "which of them are up");
	node_stop(&a);
	node_stop(&b);
}

Test(conn_netdev, device_that_is_removed_is_down)
{
	bring_up(&a, &b);
	tell("lo", RTM_DELLINK, AF_UNSPEC, IFF_UP | IFF_RUNNING);
	until(&a, &b, a.n_down == 1);
	tell("lo", RTM_NEWLINK, AF_UNSPEC, IFF_UP | IFF_RUNNING);
	until(&a, &b, a.n_up == 2);
	node_stop(&a);
	node_stop(&b);
}

Test(conn_netdev, other_news_are_ignored)
{
	struct message cut = {.h = {.nlmsg_len = sizeof(struct nlmsghdr), .nlmsg_type = RTM_NEWLINK}};

	bring_up(&a, &b);
	tell("eth7", RTM_NEWLINK, AF_UNSPEC, 0);
	tell("lo", RTM_NEWLINK, AF_BRIDGE, 0);
	tell("lo", RTM_NEWADDR, AF_UNSPEC, 0);
	tell("lo", RTM_NEWLINK, AF_UNSPEC, IFF_UP | IFF_RUNNING);
	netdev_take(a.conn, &cut, sizeof(cut.h));
	netdev_take(a.conn, &cut, 3);
	turns(&a, &b, 50);
	cr_assert(a.n_down == 0 && b.n_down == 0);
	node_stop(&a);
	node_stop(&b);
}

/* A request to dial is answered, and does not wait for the device. */
Test(conn_netdev, dial_fails_while_the_device_is_down)
{
	struct dial_event dial = {.store_idx = 0};

	bring_up(&a, &b);
	tell("lo", RTM_NEWLINK, AF_UNSPEC, 0);
	until(&a, &b, a.n_down == 1);
	turns(&a, &b, 50);
	control_send(&a, &dial.m, MSG_DIAL);
	until(&a, &b, a.n_dial_failed == 1);
	cr_assert_str_eq(dial.cause, "network device lo is down");
	node_stop(&a);
	node_stop(&b);
}

/* The kernel's own word, in a network namespace of ours. */
Test(conn_netdev, loopback_down_and_up_in_a_namespace)
{
	if (unshare(CLONE_NEWNET) < 0 || system("ip link set lo up 2>/dev/null"))
		cr_skip_test("no permission to make a network namespace");
	bring_up(&a, &b);
	cr_assert_eq(system("ip link set lo down"), 0);
	until(&a, &b, a.n_down == 1 && b.n_down == 1);
	cr_assert_eq(a.down_evidence, RAIL_EV_LOCAL);
	cr_assert_eq(system("ip link set lo up"), 0);
	until(&a, &b, a.n_up == 2 && b.n_up == 2);
	node_stop(&a);
	node_stop(&b);
}
