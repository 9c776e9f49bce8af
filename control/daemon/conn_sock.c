/* SPDX-License-Identifier: BSD-3-Clause */
#include "daemon/conn_priv.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

static void name_address(const struct sockaddr_storage *sa, char *text, uint32_t text_bytes);
static int open_bound(const struct rail_conf *rail, int family, uint16_t port);
static void bind_netdev(int fd, const char *netdev);
static void set_int(int fd, int level, int name, int value);

#define LISTEN_BACKLOG 128

int address_parse(const char *literal, uint16_t port, struct address *out)
{
	struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM};
	struct address a = {.len = 0};
	struct addrinfo *found;
	char service[8];

	snprintf(service, sizeof(service), "%u", port);
	if (!literal[0] || getaddrinfo(literal, service, &hints, &found))
		return -EINVAL;
	memcpy(&a.sa, found->ai_addr, found->ai_addrlen);
	a.len = found->ai_addrlen;
	freeaddrinfo(found);
	name_address(&a.sa, a.text, sizeof(a.text));
	*out = a;
	return 0;
}

static void name_address(const struct sockaddr_storage *sa, char *text, uint32_t text_bytes)
{
	char host[INET6_ADDRSTRLEN] = "?";

	if (sa->ss_family == AF_INET6) {
		const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)sa;

		inet_ntop(AF_INET6, &in6->sin6_addr, host, sizeof(host));
		snprintf(text, text_bytes, "[%s]:%u", host, ntohs(in6->sin6_port));
	} else {
		const struct sockaddr_in *in4 = (const struct sockaddr_in *)sa;

		inet_ntop(AF_INET, &in4->sin_addr, host, sizeof(host));
		snprintf(text, text_bytes, "%s:%u", host, ntohs(in4->sin_port));
	}
}

int sock_dial(const struct rail_conf *rail, const struct address *to)
{
	int fd = open_bound(rail, to->sa.ss_family, 0);

	if (fd < 0)
		return fd;
	if (connect(fd, (const struct sockaddr *)&to->sa, to->len) < 0 && errno != EINPROGRESS) {
		int err = errno;

		close(fd);
		return -err;
	}
	return fd;
}

int sock_listen(const struct rail_conf *rail, const struct address *at)
{
	int fd = open_bound(rail, at->sa.ss_family, rail->port);

	if (fd < 0)
		return fd;
	if (listen(fd, LISTEN_BACKLOG) < 0) {
		int err = errno;

		close(fd);
		return -err;
	}
	return fd;
}

int sock_check(const struct rail_conf *rail)
{
	struct address at;
	int fd;

	if (address_parse(rail->address, rail->port, &at) < 0)
		return -EADDRNOTAVAIL;
	fd = open_bound(rail, at.sa.ss_family, rail->port);
	if (fd < 0)
		return fd;
	close(fd);
	return 0;
}

/* A socket of this rail: its address, its device. */
static int open_bound(const struct rail_conf *rail, int family, uint16_t port)
{
	struct address at;
	int fd, err;

	if (address_parse(rail->address, port, &at) < 0)
		return -EADDRNOTAVAIL;
	if (at.sa.ss_family != family)
		return -EAFNOSUPPORT;
	fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	bind_netdev(fd, rail->netdev);
	set_int(fd, IPPROTO_TCP, TCP_NODELAY, 1);
	/* A dialler's port is chosen at connect, when the peer is known: the whole range serves every peer. */
	set_int(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, port == 0);
	if (port)
		set_int(fd, SOL_SOCKET, SO_REUSEADDR, 1);
	if (bind(fd, (const struct sockaddr *)&at.sa, at.len) < 0) {
		err = errno;
		close(fd);
		return -err;
	}
	return fd;
}

/* Without the permission the address alone has to choose the device, which it does on hosts with one subnet per rail.
 */
static void bind_netdev(int fd, const char *netdev)
{
	if (netdev[0])
		(void)setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, netdev, (socklen_t)strlen(netdev) + 1);
}

/* For options that only tune: a kernel without one is no reason to fail. */
static void set_int(int fd, int level, int name, int value)
{
	(void)setsockopt(fd, level, name, &value, sizeof(value));
}

int sock_connected(int fd)
{
	struct sockaddr_storage peer;
	socklen_t len = sizeof(peer);
	socklen_t err_len = sizeof(int);
	int err = 0;

	if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &err_len) < 0)
		return -errno;
	if (err)
		return -err;
	if (getpeername(fd, (struct sockaddr *)&peer, &len) < 0)
		return errno == ENOTCONN ? -EINPROGRESS : -errno;
	return 0;
}

void sock_tune(int fd, uint64_t dead_ns)
{
	set_int(fd, IPPROTO_TCP, TCP_NODELAY, 1);
	set_int(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, (int)(dead_ns / 1000000));
}

void sock_peer_text(int fd, char *text, uint32_t text_bytes)
{
	struct sockaddr_storage peer = {0};
	socklen_t len = sizeof(peer);

	if (getpeername(fd, (struct sockaddr *)&peer, &len) < 0)
		snprintf(text, text_bytes, "unknown address");
	else
		name_address(&peer, text, text_bytes);
}

/* Who refuses or resets is there, and so is the path to it. */
enum rail_evidence error_evidence(int err)
{
	switch (err < 0 ? -err : err) {
	case ETIMEDOUT:
	case EHOSTUNREACH:
	case EHOSTDOWN:
		return RAIL_EV_PATH;
	case ECONNREFUSED:
	case ECONNRESET:
	case EPIPE:
		return RAIL_EV_PEER;
	case EPROTO:
		return RAIL_EV_NONE;
	default:
		return RAIL_EV_LOCAL; /* no route, no address, no device, no descriptors: nothing was sent */
	}
}

const char *error_text(int err)
{
	switch (err < 0 ? -err : err) {
	case ECONNREFUSED:
		return "connection refused";
	case ECONNRESET:
		return "connection reset";
	case EPIPE:
		return "connection closed by the peer";
	case ETIMEDOUT:
		return "no answer";
	case EHOSTUNREACH:
		return "no route to host";
	case ENETUNREACH:
		return "network unreachable";
	case EADDRINUSE:
		return "address in use by another program";
	case EADDRNOTAVAIL:
		return "this host does not have the rail's address";
	case EAFNOSUPPORT:
		return "the rail's address is of another family (IPv4, IPv6)";
	case EACCES:
	case EPERM:
		return "not permitted";
	case EMFILE:
	case ENFILE:
		return "out of file descriptors";
	case ENOMEM:
	case ENOBUFS:
		return "out of memory";
	case EPROTO:
		return "its bytes are not this protocol";
	default:
		return strerrordesc_np(err < 0 ? -err : err);
	}
}

void io_watch(struct conn *c, struct io *io, uint32_t events)
{
	struct epoll_event ev = {.events = events, .data.ptr = io};

	if (io->fd < 0 || events == io->events)
		return;
	/* With no interest at all epoll would still report an error, for ever: such a socket leaves the set. */
	if (!events)
		epoll_ctl(c->epoll_fd, EPOLL_CTL_DEL, io->fd, NULL);
	else
		epoll_ctl(c->epoll_fd, io->events ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, io->fd, &ev);
	io->events = events;
}

void io_close(struct conn *c, struct io *io)
{
	int fd = io->fd;

	if (fd >= 0)
		close(io_take(c, io));
}

int io_take(struct conn *c, struct io *io)
{
	int fd = io->fd;

	io_watch(c, io, 0);
	io->fd = -1;
	return fd;
}
