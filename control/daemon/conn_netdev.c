/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Link state of the network devices that rails use, from netlink: a device that goes down takes all pairs of its rail
 * out at once, as a local fault that says nothing about any peer; when it is up again they are dialled at once.
 *
 * Without a netlink socket (a sandbox may refuse it) losses are noticed the slow way, as those of any other hop.
 */
#include "daemon/conn_priv.h"

#include <errno.h>
#include <ifaddrs.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "daemon/log.h"

static void find_device(struct conn *c, uint16_t rail_idx);
static bool is_same_host(const struct sockaddr *a, const struct sockaddr_storage *b);
static void ask_all(struct conn *c);
static void take(struct conn *c, const struct nlmsghdr *h);
static const char *name_of(const struct nlmsghdr *h);
static const void *after(const void *p, size_t bytes);
static void went(struct conn *c, uint16_t rail_idx, bool is_up);

#define MESSAGE_BYTES 32768u
#define READ_TURN_MAX 64

void netdev_open(struct conn *c)
{
	struct sockaddr_nl at = {.nl_family = AF_NETLINK, .nl_groups = RTMGRP_LINK};
	int fd;

	for (uint16_t i = 0; i < c->deps.config->n_rails; i++)
		find_device(c, i);
	fd = socket(AF_NETLINK, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, NETLINK_ROUTE);
	if (fd < 0 || bind(fd, (const struct sockaddr *)&at, sizeof(at)) < 0) {
		log_warn("conn: link state of network devices is not watched: %s", error_text(errno));
		if (fd >= 0)
			close(fd);
		return;
	}
	c->netlink = (struct io){.kind = IO_NETLINK, .fd = fd};
	io_watch(c, &c->netlink, EPOLLIN);
	ask_all(c);
}

/* The one that the configuration names, or the one that has the rail's address. */
static void find_device(struct conn *c, uint16_t rail_idx)
{
	const struct rail_conf *rail = conn_rail_conf(c, rail_idx);
	char *name = c->netdevs[rail_idx].name;
	struct ifaddrs *all, *a;
	struct address at;

	if (rail_attr(c->deps.rails[rail_idx])->is_loopback)
		return;
	if (rail->netdev[0]) {
		memcpy(name, rail->netdev, sizeof(c->netdevs[rail_idx].name));
		return;
	}
	if (address_parse(rail->address, 0, &at) < 0 || getifaddrs(&all) < 0)
		return;
	for (a = all; a && !name[0]; a = a->ifa_next) {
		if (a->ifa_addr && is_same_host(a->ifa_addr, &at.sa) && strlen(a->ifa_name) < IFNAMSIZ)
			memcpy(name, a->ifa_name, strlen(a->ifa_name) + 1);
	}
	freeifaddrs(all);
}

static bool is_same_host(const struct sockaddr *a, const struct sockaddr_storage *b)
{
	const struct sockaddr_in *a4 = (const void *)a, *b4 = (const void *)b;
	const struct sockaddr_in6 *a6 = (const void *)a, *b6 = (const void *)b;

	if (a->sa_family != b->ss_family)
		return false;
	if (a->sa_family == AF_INET)
		return a4->sin_addr.s_addr == b4->sin_addr.s_addr;
	return a->sa_family == AF_INET6 && !memcmp(&a6->sin6_addr, &b6->sin6_addr, sizeof(a6->sin6_addr));
}

/* The state of every device: at the start, and when the kernel had to drop messages for us. */
static void ask_all(struct conn *c)
{
	struct {
		struct nlmsghdr h;
		struct ifinfomsg m;
	} ask = {.h = {.nlmsg_len = sizeof(ask), .nlmsg_type = RTM_GETLINK, .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP}};

	if (send(c->netlink.fd, &ask, sizeof(ask), 0) < 0)
		log_warn("conn: link states cannot be asked for: %s", error_text(errno));
}

void netdev_ready(struct conn *c)
{
	alignas(NLMSG_ALIGNTO) char buf[MESSAGE_BYTES];

	for (int i = 0; i < READ_TURN_MAX; i++) {
		ssize_t n = recv(c->netlink.fd, buf, sizeof(buf), 0);

		if (n < 0 && errno == ENOBUFS)
			ask_all(c);
		if (n <= 0)
			return;
		netdev_take(c, buf, (uint32_t)n);
	}
}

/* rtnetlink aligns all that it sends by 4; the macros of its header lose that on the way through char. */
static const void *after(const void *p, size_t bytes)
{
	return (const char *)p + bytes;
}

void netdev_take(struct conn *c, const void *buf, uint32_t bytes)
{
	const struct nlmsghdr *h = buf;

	while (NLMSG_OK(h, bytes)) {
		uint32_t step = NLMSG_ALIGN(h->nlmsg_len);

		if (h->nlmsg_type == RTM_NEWLINK || h->nlmsg_type == RTM_DELLINK)
			take(c, h);
		if (step >= bytes)
			break;
		bytes -= step;
		h = after(h, step);
	}
}

static void take(struct conn *c, const struct nlmsghdr *h)
{
	const struct ifinfomsg *m = NLMSG_DATA(h);
	const char *name = name_of(h);
	bool is_up = h->nlmsg_type == RTM_NEWLINK && (m->ifi_flags & IFF_UP) && (m->ifi_flags & IFF_RUNNING);

	/* Messages of bridge ports and the like name the device, too, but mean another state. */
	if (!name || m->ifi_family != AF_UNSPEC)
		return;
	for (uint16_t i = 0; i < c->deps.config->n_rails; i++) {
		if (!strcmp(c->netdevs[i].name, name) && c->netdevs[i].is_down == is_up)
			went(c, i, is_up);
	}
}

static const char *name_of(const struct nlmsghdr *h)
{
	const struct ifinfomsg *m = NLMSG_DATA(h);
	const struct rtattr *a = after(m, NLMSG_ALIGN(sizeof(*m)));
	int left = (int)IFLA_PAYLOAD(h);

	while (h->nlmsg_len >= NLMSG_LENGTH(sizeof(*m)) && RTA_OK(a, left)) {
		if (a->rta_type == IFLA_IFNAME && memchr(RTA_DATA(a), 0, RTA_PAYLOAD(a)))
			return RTA_DATA(a);
		left -= (int)RTA_ALIGN(a->rta_len);
		a = after(a, RTA_ALIGN(a->rta_len));
	}
	return NULL;
}

static void went(struct conn *c, uint16_t rail_idx, bool is_up)
{
	char cause[RY_CAUSE_MAX_BYTES];

	c->netdevs[rail_idx].is_down = !is_up;
	news_rail(c, rail_idx, "network device %s is %s", c->netdevs[rail_idx].name, is_up ? "up again" : "down");
	snprintf(cause, sizeof(cause), "network device %s is down", c->netdevs[rail_idx].name);
	if (is_up)
		rail_read_link(c->deps.rails[rail_idx]);
	if (is_up)
		device_look(c, rail_idx);
	if (is_up)
		diallers_wake(c, rail_idx);
	else
		links_drop(c, rail_idx, cause);
}

void diallers_wake(struct conn *c, uint16_t rail_idx)
{
	for (uint32_t i = 0; i < c->n_diallers; i++) {
		struct dialler *d = &c->diallers[i];

		if (d->rail_idx != rail_idx)
			continue;
		d->next_ns = c->now_ns;
		d->n_refused = 0;
		d->want_now = d->link && d->link->state >= LINK_DRAINING;
	}
}
