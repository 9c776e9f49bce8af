/* SPDX-License-Identifier: BSD-3-Clause */
#include "daemon/numa.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

/* linux/mempolicy.h, which not every libc's headers bring along. */
#define GET_NODE 1u /* MPOL_F_NODE */
#define BY_ADDR 2u  /* MPOL_F_ADDR */

static bool netdev_of(const char *address, char *netdev);

int numa_of_memory(const void *addr)
{
	int node = -1;

	if (syscall(SYS_get_mempolicy, &node, NULL, 0ul, addr, GET_NODE | BY_ADDR))
		return -1;
	return node;
}

int numa_of_netdev(const char *netdev, const char *address)
{
	char name[IF_NAMESIZE], path[128];
	int node = -1;
	FILE *f;

	if (!netdev[0]) {
		if (!netdev_of(address, name))
			return -1;
		netdev = name;
	}
	snprintf(path, sizeof(path), "/sys/class/net/%s/device/numa_node", netdev);
	f = fopen(path, "re");
	if (!f)
		return -1; /* a virtual device is nowhere */
	if (fscanf(f, "%d", &node) != 1)
		node = -1;
	fclose(f);
	return node;
}

static bool netdev_of(const char *address, char *netdev)
{
	struct ifaddrs *all, *a;
	bool is_found = false;
	char text[NI_MAXHOST];

	if (!address[0] || getifaddrs(&all))
		return false;
	for (a = all; a && !is_found; a = a->ifa_next) {
		socklen_t len = sizeof(struct sockaddr_in);

		if (!a->ifa_addr || (a->ifa_addr->sa_family != AF_INET && a->ifa_addr->sa_family != AF_INET6))
			continue;
		if (a->ifa_addr->sa_family == AF_INET6)
			len = sizeof(struct sockaddr_in6);
		if (getnameinfo(a->ifa_addr, len, text, sizeof(text), NULL, 0, NI_NUMERICHOST) ||
			strcmp(text, address) != 0)
			continue;
		snprintf(netdev, IF_NAMESIZE, "%s", a->ifa_name);
		is_found = true;
	}
	freeifaddrs(all);
	return is_found;
}
