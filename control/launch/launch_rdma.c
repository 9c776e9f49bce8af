/* SPDX-License-Identifier: BSD-3-Clause */
/* Which RDMA ports this host has, from sysfs: what starts daemons needs no RDMA library of its own. */
#include <arpa/inet.h>
#include <dirent.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "launch/launch.h"

#define PORTS_MAX 8u
#define GIDS_MAX 256u

struct text {
	char *at;
	uint32_t bytes;
};

static bool use_device(const char *root, const char *device, struct launch_rail *rail, struct text *seen);
static bool is_active(const char *root, const char *device, unsigned port, bool *is_there);
static bool find_address(const char *root, const char *device, unsigned port, char *address, uint32_t address_bytes);
static bool to_address(const char *gid, char *address, uint32_t address_bytes, bool *is_v4);
static bool read_line(char *line, int line_bytes, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void say(struct text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));

int launch_find_rdma(const char *root, struct launch_rail *rails, int max, char *seen, uint32_t seen_bytes)
{
	struct text t = {seen, seen_bytes};
	struct dirent **names = NULL;
	char path[PATH_MAX];
	int n, found = 0;

	seen[0] = '\0';
	snprintf(path, sizeof(path), "%s/class/infiniband", root);
	n = scandir(path, &names, NULL, versionsort);
	for (int i = 0; i < n; i++) {
		if (names[i]->d_name[0] != '.' && found < max && use_device(root, names[i]->d_name, &rails[found], &t))
			found++;
		free(names[i]);
	}
	free(names);
	if (seen[0] == '\0')
		say(&t, "no RDMA device at all");
	return found;
}

static bool use_device(const char *root, const char *device, struct launch_rail *rail, struct text *seen)
{
	bool is_there = true;

	if (strlen(device) >= sizeof(rail->device))
		return false;
	for (unsigned port = 1; port <= PORTS_MAX && is_there; port++) {
		bool is_up = is_active(root, device, port, &is_there);

		if (!is_there)
			break;
		if (!is_up) {
			say(seen, "%s port %u is not active", device, port);
			continue;
		}
		if (!find_address(root, device, port, rail->address, sizeof(rail->address))) {
			say(seen, "%s port %u has no RoCEv2 GID of an IP address", device, port);
			continue;
		}
		strcpy(rail->transport, "verbs");
		strcpy(rail->device, device);
		rail->device_port = port;
		say(seen, "%s %s", device, rail->address);
		return true;
	}
	return false;
}

static bool is_active(const char *root, const char *device, unsigned port, bool *is_there)
{
	char line[64];

	*is_there = read_line(line, sizeof(line), "%s/class/infiniband/%s/ports/%u/state", root, device, port);
	return *is_there && strstr(line, "ACTIVE") != NULL;
}

static bool find_address(const char *root, const char *device, unsigned port, char *address, uint32_t address_bytes)
{
	char line[64], one[INET6_ADDRSTRLEN];
	bool is_found = false, is_v4 = false;

	for (unsigned i = 0; i < GIDS_MAX && !is_v4; i++) {
		if (!read_line(line, sizeof(line), "%s/class/infiniband/%s/ports/%u/gids/%u", root, device, port, i))
			break;
		if (!to_address(line, one, sizeof(one), &is_v4))
			continue;
		/* Empty entries have no type; RoCE v1 ones go nowhere through a router. */
		if (!read_line(line, sizeof(line), "%s/class/infiniband/%s/ports/%u/gid_attrs/types/%u", root, device,
			    port, i) ||
			strcmp(line, "RoCE v2") != 0) {
			is_v4 = false;
			continue;
		}
		if (is_found && !is_v4)
			continue;
		snprintf(address, address_bytes, "%s", one);
		is_found = true;
	}
	return is_found;
}

/* A GID of a RoCE port is the IPv6 address, or the IPv4 one in its mapped form. */
static bool to_address(const char *gid, char *address, uint32_t address_bytes, bool *is_v4)
{
	struct in6_addr a;

	*is_v4 = false;
	if (inet_pton(AF_INET6, gid, &a) != 1 || IN6_IS_ADDR_UNSPECIFIED(&a) || IN6_IS_ADDR_LINKLOCAL(&a))
		return false;
	*is_v4 = IN6_IS_ADDR_V4MAPPED(&a);
	if (*is_v4)
		return inet_ntop(AF_INET, &a.s6_addr[12], address, address_bytes) != NULL;
	return inet_ntop(AF_INET6, &a, address, address_bytes) != NULL;
}

static bool read_line(char *line, int line_bytes, const char *format, ...)
{
	char path[PATH_MAX];
	va_list args;
	bool good;
	FILE *f;

	va_start(args, format);
	vsnprintf(path, sizeof(path), format, args);
	va_end(args);
	f = fopen(path, "re");
	if (f == NULL)
		return false;
	good = fgets(line, line_bytes, f) != NULL;
	fclose(f);
	if (good)
		line[strcspn(line, "\n")] = '\0';
	return good;
}

/* After a comma, as far as there is room. */
static void say(struct text *t, const char *format, ...)
{
	size_t used = strlen(t->at);
	va_list args;

	if (used + 3 > t->bytes)
		return;
	used += (size_t)snprintf(t->at + used, t->bytes - used, "%s", used > 0 ? ", " : "");
	va_start(args, format);
	vsnprintf(t->at + used, t->bytes - used, format, args);
	va_end(args);
}
