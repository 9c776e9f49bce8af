/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/ib/ib_sysfs.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <dirent.h>
#include <ifaddrs.h>
#include <limits.h>
#include <net/if.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void read_pci(const char *root, const char *where, struct rail_device_info *out);
static void read_netdev_speed(const char *root, const char *netdev, struct rail_device_info *out);
static bool step_down(const char *root, char *netdev);
static bool only_lower(const char *root, const char *netdev, char *lower);
static void card_of(const char *pci_dir, struct rail_device_info *out);
static bool read_line(char *text, uint32_t bytes, const char *format, ...) __attribute__((format(printf, 3, 4)));

void ib_sysfs_device(
	const char *root, const char *device, uint32_t port, uint32_t gid_index, struct rail_device_info *out)
{
	char where[128];
	double gbit = 0;

	snprintf(out->device, sizeof(out->device), "%s", device);
	out->port = port;
	if (read_line(out->link_text, sizeof(out->link_text), "%s/class/infiniband/%s/ports/%u/rate", root, device,
		    port) &&
		sscanf(out->link_text, "%lf", &gbit) == 1 && gbit > 0)
		out->link_bytes_per_s = (uint64_t)(gbit * 1e9 / 8);
	read_line(out->firmware, sizeof(out->firmware), "%s/class/infiniband/%s/fw_ver", root, device);
	read_line(out->netdev, sizeof(out->netdev), "%s/class/infiniband/%s/ports/%u/gid_attrs/ndevs/%u", root, device,
		port, gid_index);
	snprintf(where, sizeof(where), "class/infiniband/%s", device);
	read_pci(root, where, out);
	if (!out->card[0] && out->netdev[0]) /* a software device is where its network device is */
		ib_sysfs_netdev(root, out->netdev, out);
}

void ib_sysfs_netdev(const char *root, const char *netdev, struct rail_device_info *out)
{
	char name[IF_NAMESIZE], where[64];

	if (!netdev[0])
		return;
	snprintf(name, sizeof(name), "%s", netdev);
	snprintf(out->netdev, sizeof(out->netdev), "%s", name);
	if (!out->link_bytes_per_s)
		read_netdev_speed(root, name, out);
	/* A VLAN on a bridge on a bond is the most that anybody stacks; a ring of them would never end. */
	for (int i = 0; i < 4 && step_down(root, name); i++)
		;
	snprintf(where, sizeof(where), "class/net/%s", name);
	read_pci(root, where, out);
	if (!out->card[0] && strcmp(name, "lo") != 0) /* all rails of a trial on one host are on lo */
		snprintf(out->card, sizeof(out->card), "%s", name);
}

/* Mbit/s; -1, or an error of read(2), where the device knows none or is down. */
static void read_netdev_speed(const char *root, const char *netdev, struct rail_device_info *out)
{
	char text[32];
	long mbit;

	if (!read_line(text, sizeof(text), "%s/class/net/%s/speed", root, netdev))
		return;
	mbit = strtol(text, NULL, 10);
	if (mbit <= 0 || mbit >= INT_MAX)
		return;
	out->link_bytes_per_s = (uint64_t)mbit * 125000;
	snprintf(out->link_text, sizeof(out->link_text), "%g Gb/sec", (double)mbit / 1e3);
}

/* One step down from a device without hardware of its own to the only one below it. */
static bool step_down(const char *root, char *netdev)
{
	char path[PATH_MAX], resolved[PATH_MAX], lower[IF_NAMESIZE];

	snprintf(path, sizeof(path), "%s/class/net/%s/device", root, netdev);
	if (realpath(path, resolved) || !only_lower(root, netdev, lower) || !strcmp(lower, netdev))
		return false;
	memcpy(netdev, lower, sizeof(lower));
	return true;
}

static bool only_lower(const char *root, const char *netdev, char *lower)
{
	char path[PATH_MAX];
	struct dirent *e;
	int n = 0;
	DIR *d;

	snprintf(path, sizeof(path), "%s/class/net/%s", root, netdev);
	d = opendir(path);
	while (d && (e = readdir(d)) != NULL) {
		if (strncmp(e->d_name, "lower_", 6) || strlen(e->d_name + 6) >= IF_NAMESIZE)
			continue;
		snprintf(lower, IF_NAMESIZE, "%.15s", e->d_name + 6);
		n++;
	}
	if (d)
		closedir(d);
	return n == 1;
}

static void read_pci(const char *root, const char *where, struct rail_device_info *out)
{
	char path[PATH_MAX], dir[PATH_MAX], text[PATH_MAX];

	snprintf(path, sizeof(path), "%s/%s/device", root, where);
	if (!realpath(path, dir))
		return;
	card_of(dir, out);
	read_line(out->pcie_speed, sizeof(out->pcie_speed), "%s/current_link_speed", dir);
	if (read_line(text, sizeof(text), "%s/current_link_width", dir))
		out->pcie_width = (uint32_t)strtoul(text, NULL, 10);
	if (read_line(text, sizeof(text), "%s/numa_node", dir))
		out->numa_node = (int)strtol(text, NULL, 10);
	snprintf(path, sizeof(path), "%.*s/driver", PATH_MAX - 8, dir);
	if (realpath(path, text))
		snprintf(out->driver, sizeof(out->driver), "%.31s", strrchr(text, '/') + 1);
}

/*
 * Ports of one card share its PCIe slot: the functions of a device, and the virtual functions of a physical one. A card
 * is named by its PCI address without the function.
 */
static void card_of(const char *pci_dir, struct rail_device_info *out)
{
	char path[PATH_MAX], real[PATH_MAX];
	const char *name;
	unsigned a[4];
	int n = 0;

	snprintf(path, sizeof(path), "%.*s/physfn", PATH_MAX - 8, pci_dir);
	name = strrchr(realpath(path, real) ? real : pci_dir, '/') + 1;
	snprintf(out->pci_address, sizeof(out->pci_address), "%.31s", strrchr(pci_dir, '/') + 1);
	snprintf(out->card, sizeof(out->card), "%.31s", name);
	if (sscanf(out->card, "%x:%x:%x.%u%n", &a[0], &a[1], &a[2], &a[3], &n) == 4 && !out->card[n])
		*strrchr(out->card, '.') = '\0';
}

/* The first line, without what ends it. Nothing is changed where it cannot be read. */
static bool read_line(char *text, uint32_t bytes, const char *format, ...)
{
	char path[PATH_MAX], line[256];
	va_list args;
	size_t n;
	FILE *f;

	va_start(args, format);
	vsnprintf(path, sizeof(path), format, args);
	va_end(args);
	f = fopen(path, "re");
	if (!f)
		return false;
	if (!fgets(line, sizeof(line), f))
		line[0] = '\0';
	fclose(f);
	for (n = strlen(line); n && isspace((unsigned char)line[n - 1]); n--)
		line[n - 1] = '\0';
	if (!n)
		return false;
	snprintf(text, bytes, "%s", line);
	return true;
}

void ib_sysfs_find_netdev(const char *address, char *name)
{
	struct in6_addr want, has;
	struct ifaddrs *all, *a;
	int family = strchr(address, ':') ? AF_INET6 : AF_INET;

	name[0] = '\0';
	if (inet_pton(family, address, &want) != 1 || getifaddrs(&all))
		return;
	for (a = all; a && !name[0]; a = a->ifa_next) {
		size_t bytes = family == AF_INET ? sizeof(struct in_addr) : sizeof(struct in6_addr);

		if (!a->ifa_addr || a->ifa_addr->sa_family != family)
			continue;
		if (family == AF_INET)
			memcpy(&has, &((const struct sockaddr_in *)(const void *)a->ifa_addr)->sin_addr, bytes);
		else
			memcpy(&has, &((const struct sockaddr_in6 *)(const void *)a->ifa_addr)->sin6_addr, bytes);
		if (!memcmp(&has, &want, bytes))
			snprintf(name, IF_NAMESIZE, "%s", a->ifa_name);
	}
	freeifaddrs(all);
}
