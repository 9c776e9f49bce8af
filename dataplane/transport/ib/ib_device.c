/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * From a rail's configuration to an open device: which device, which port, which GID. A RoCE rail is the RoCEv2 entry
 * of a GID table whose address is the rail's: the index of an entry means nothing across machines, and a link-local one
 * goes nowhere.
 */
#include "transport/ib/ib.h"
#include "transport/ib/ib_sysfs.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GIDS_MAX 256
#define SOFT_ROCE_VENDOR 0xffffffu

/* What is looked for, and what was seen on the way, for the message when it is not found. */
struct search {
	const struct rail_conf *conf;
	union ibv_gid want; /* the rail's address; all zero = none */
	unsigned ifindex;   /* of conf->netdev, 0 = any */
	char seen[512];
	int error; /* of a device that could not be opened */
};

static bool try_device(struct ib_rail *ib, struct search *s, struct ibv_device *dev);
static int why_not_opened(const struct ibv_device *dev, int error);
static bool choose_gid(struct ib_rail *ib, struct search *s, const char *device);
static bool fits(const struct search *s, const struct ibv_gid_entry *e);
static void saw(struct search *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
static int query(struct ib_rail *ib, const struct rail_conf *conf, char *why, uint32_t why_bytes);
static void describe(const struct rail *r, struct ib_rail *ib, struct rail_device_info *out);

static bool to_gid(const char *address, union ibv_gid *gid)
{
	memset(gid, 0, sizeof(*gid));
	if (inet_pton(AF_INET6, address, gid->raw) == 1)
		return true;
	if (inet_pton(AF_INET, address, gid->raw + 12) != 1)
		return false;
	gid->raw[10] = gid->raw[11] = 0xff;
	return true;
}

int ib_device_open(struct ib_rail *ib, const struct rail_conf *conf, char *why, uint32_t why_bytes)
{
	struct search s = {.conf = conf, .ifindex = conf->netdev[0] ? if_nametoindex(conf->netdev) : 0};
	struct ibv_device **list;
	bool is_found = false;
	char at[32] = "";
	int n = 0;

	if (conf->netdev[0] && !s.ifindex) {
		snprintf(why, why_bytes, "there is no network device %s", conf->netdev);
		return -ENODEV;
	}
	to_gid(conf->address, &s.want);
	list = ibv_get_device_list(&n);
	for (int i = 0; list && i < n && !is_found; i++) {
		if (!conf->verbs.device[0] || !strcmp(conf->verbs.device, ibv_get_device_name(list[i])))
			is_found = try_device(ib, &s, list[i]);
	}
	if (list)
		ibv_free_device_list(list);
	if (!is_found) {
		if (conf->verbs.gid_index != UINT32_MAX)
			snprintf(at, sizeof(at), " at gid_index %u", conf->verbs.gid_index);
		snprintf(why, why_bytes, "no RDMA device%s%s has a RoCEv2 GID of %s%s; %s%s",
			conf->verbs.device[0] ? " " : "", conf->verbs.device, conf->address, at,
			s.seen[0] ? "there are:"
			: n       ? "no device of that name; see rdma link"
				  : "there is no RDMA device at all; see rdma link",
			s.seen);
		return s.error ? -s.error : -ENODEV;
	}
	return query(ib, conf, why, why_bytes);
}

static bool try_device(struct ib_rail *ib, struct search *s, struct ibv_device *dev)
{
	const char *name = ibv_get_device_name(dev);

	ib->ctx = ibv_open_device(dev);
	if (!ib->ctx) {
		s->error = why_not_opened(dev, errno);
		saw(s, " %s cannot be opened: %s (may this user read and write /dev/infiniband/%s?);", name,
			strerror(s->error), dev->dev_name);
		return false;
	}
	ib->port = (uint8_t)s->conf->verbs.port;
	if (choose_gid(ib, s, name))
		return true;
	ibv_close_device(ib->ctx);
	ib->ctx = NULL;
	return false;
}

/* libibverbs looks for another file where it may not open this one, and reports that there is none. */
static int why_not_opened(const struct ibv_device *dev, int error)
{
	char path[sizeof("/dev/infiniband/") + sizeof(dev->dev_name)];

	snprintf(path, sizeof(path), "/dev/infiniband/%s", dev->dev_name);
	return access(path, R_OK | W_OK) < 0 && errno == EACCES ? EACCES : error;
}

static bool choose_gid(struct ib_rail *ib, struct search *s, const char *device)
{
	struct ibv_gid_entry *table = calloc(GIDS_MAX, sizeof(*table));
	ssize_t n = table ? ibv_query_gid_table(ib->ctx, table, GIDS_MAX, 0) : 0;
	bool is_found = false;
	char text[INET6_ADDRSTRLEN];

	saw(s, " %s", device);
	for (ssize_t i = 0; i < n && !is_found; i++) {
		inet_ntop(AF_INET6, table[i].gid.raw, text, sizeof(text));
		if (table[i].port_num == ib->port && table[i].gid_type == IBV_GID_TYPE_ROCE_V2)
			saw(s, " [%u] %s", table[i].gid_index, text);
		if (table[i].port_num != ib->port || !fits(s, &table[i]))
			continue;
		ib->gid = table[i].gid;
		ib->gid_index = (int)table[i].gid_index;
		snprintf(ib->gid_text, sizeof(ib->gid_text), "%s", text);
		is_found = true;
	}
	saw(s, ";");
	free(table);
	return is_found;
}

int ib_gid_refresh(struct ib_rail *ib, const struct rail_conf *conf)
{
	struct search s = {.conf = conf, .ifindex = conf->netdev[0] ? if_nametoindex(conf->netdev) : 0};
	union ibv_gid gid = ib->gid;
	int before = ib->gid_index, rc;

	to_gid(conf->address, &s.want);
	pthread_mutex_lock(&ib->address_lock);
	ib->gid_index = -1;
	if (!choose_gid(ib, &s, ibv_get_device_name(ib->ctx->device)))
		rc = -ENOENT;
	else /* where the index is configured, it is the address that changes */
		rc = ib->gid_index != before || memcmp(&ib->gid, &gid, sizeof(gid));
	pthread_mutex_unlock(&ib->address_lock);
	return rc;
}

static bool is_link_local(const union ibv_gid *gid)
{
	return gid->raw[0] == 0xfe && (gid->raw[1] & 0xc0) == 0x80;
}

static bool fits(const struct search *s, const struct ibv_gid_entry *e)
{
	if (e->gid_type != IBV_GID_TYPE_ROCE_V2 || is_link_local(&e->gid))
		return false;
	if (s->conf->verbs.gid_index != UINT32_MAX)
		return e->gid_index == s->conf->verbs.gid_index;
	if (s->ifindex && e->ndev_ifindex != s->ifindex)
		return false;
	return memcmp(&e->gid, &s->want, sizeof(s->want)) == 0;
}

static void saw(struct search *s, const char *format, ...)
{
	size_t n = strlen(s->seen);
	va_list args;

	va_start(args, format);
	vsnprintf(s->seen + n, sizeof(s->seen) - n, format, args);
	va_end(args);
}

static int query(struct ib_rail *ib, const struct rail_conf *conf, char *why, uint32_t why_bytes)
{
	struct ibv_port_attr port;
	int rc;

	if (ibv_query_device(ib->ctx, &ib->attr) || ibv_query_port(ib->ctx, ib->port, &port)) {
		snprintf(why, why_bytes, "device %s port %u cannot be queried: %s", ib->ctx->device->name, ib->port,
			strerror(errno));
		return -EIO;
	}
	rc = ib_limits_check(ib, &port, &conf->verbs, why, why_bytes);
	if (rc)
		return rc;
	ib->retries_binds = ib->attr.vendor_id == SOFT_ROCE_VENDOR;
	if (fcntl(ib->ctx->async_fd, F_SETFL, fcntl(ib->ctx->async_fd, F_GETFL) | O_NONBLOCK) < 0)
		return -errno;
	ib->removal_fd = ib_removal_watch(conf->address);
	return 0;
}

void ib_describe(const struct rail *r, struct rail_device_info *out)
{
	struct ib_rail *ib = ib_of(r);

	pthread_rwlock_rdlock(&ib->lock);
	if (!ib->has_left)
		describe(r, ib, out);
	pthread_rwlock_unlock(&ib->lock);
}

static void describe(const struct rail *r, struct ib_rail *ib, struct rail_device_info *out)
{
	pthread_mutex_lock(&ib->address_lock);
	snprintf(out->gid, sizeof(out->gid), "%s", ib->gid_text);
	out->gid_index = ib->gid_index;
	out->mtu_bytes = ib->mtu_bytes;
	pthread_mutex_unlock(&ib->address_lock);
	ib_sysfs_device(SYSFS_ROOT, ibv_get_device_name(ib->ctx->device), ib->port, (uint32_t)out->gid_index, out);
	out->rd_atomic = ib->rd_atomic;
	out->qps_per_pair = r->conf.verbs.qps_per_pair;
}

void ib_device_close(struct ib_rail *ib)
{
	if (ib->removal_fd >= 0)
		close(ib->removal_fd);
	if (ib->ctx)
		ibv_close_device(ib->ctx);
	ib->removal_fd = -1;
	ib->ctx = NULL;
}
