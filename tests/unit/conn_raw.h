/* SPDX-License-Identifier: BSD-3-Clause */
/* A peer of the node under test, byte by byte: both sides of HELLO, metadata, and what a peer should never do. */
#ifndef RY_CONN_RAW_H
#define RY_CONN_RAW_H

#include "../support/hello.h"
#include "conn_fixture.h"

static inline int raw_connect(uint16_t port)
{
	struct sockaddr_in sa = {
		.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(port)};
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	int one = 1;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	cr_assert(connect(fd, (struct sockaddr *)&sa, sizeof(sa)) == 0);
	fcntl(fd, F_SETFL, O_NONBLOCK);
	return fd;
}

static inline int raw_listen(uint16_t port)
{
	struct sockaddr_in sa = {
		.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(port)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	int one = 1;

	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	cr_assert(bind(fd, (struct sockaddr *)&sa, sizeof(sa)) == 0 && listen(fd, 8) == 0);
	return fd;
}

static inline struct wire_hello raw_hello(uint16_t kind)
{
	return hello_of(kind, "raw");
}

static inline void raw_send(int fd, const void *bytes, size_t n)
{
	cr_assert(send(fd, bytes, n, MSG_NOSIGNAL) == (ssize_t)n);
}

/* Reads exactly n bytes while the node runs; false = the node closed first. */
static inline bool raw_read(struct node *n, int fd, void *bytes, size_t len)
{
	size_t got = 0;

	for (uint64_t end = clock_ns() + PATIENCE_NS; clock_ns() < end && got < len;) {
		ssize_t r = recv(fd, (char *)bytes + got, len - got, 0);

		if (r == 0 || (r < 0 && errno != EAGAIN))
			return false;
		got += r > 0 ? (size_t)r : 0;
		turns(n, NULL, 1);
	}
	cr_assert(got == len, "the node said %zu bytes of %zu", got, len);
	return true;
}

static inline bool raw_is_closed(struct node *n, int fd)
{
	char byte;

	for (uint64_t end = clock_ns() + PATIENCE_NS; clock_ns() < end;) {
		ssize_t r = recv(fd, &byte, 1, 0);

		if (r == 0 || (r < 0 && errno != EAGAIN))
			return true;
		if (r > 0)
			return false;
		turns(n, NULL, 1);
	}
	return false;
}

/* Sends a metadata message of its fixed part only. */
static inline void raw_meta(int fd, uint16_t type, uint32_t bytes, uint64_t request_id, uint32_t status)
{
	alignas(8) uint8_t m[512];

	cr_assert(wire_enc_fixed(m, type, bytes, request_id, status) == bytes);
	raw_send(fd, m, bytes);
}

/* Dials the node as a complete peer with one QP; both are up. Returns the bootstrap socket. */
static inline int raw_pair(struct node *n, uint64_t incarnation, int *data_fd)
{
	struct wire_hello hello = raw_hello(WIRE_CONN_BOOTSTRAP), answer, data_answer;
	struct wire_meta ready;
	int n_up = n->n_up;
	int fd = raw_connect(n->conf.rails[0].port);

	hello.incarnation = incarnation;
	raw_send(fd, &hello, sizeof(hello));
	cr_assert(raw_read(n, fd, &answer, sizeof(answer)));
	cr_assert(answer.status == RY_OK && answer.token && answer.n_qps == 1);
	cr_assert(answer.read_credits == RAIL_CREDITS);
	*data_fd = raw_connect(n->conf.rails[0].port);
	hello.kind = WIRE_CONN_DATA;
	hello.token = answer.token;
	raw_send(*data_fd, &hello, sizeof(hello));
	cr_assert(raw_read(n, *data_fd, &data_answer, sizeof(data_answer)));
	cr_assert(data_answer.status == RY_OK && data_answer.token == answer.token);
	cr_assert(raw_read(n, fd, &ready, sizeof(ready)) && ready.type == WIRE_META_READY);
	cr_assert(n->n_up == n_up, "up before our READY");
	raw_meta(fd, WIRE_META_READY, sizeof(ready), 0, RY_OK);
	until(n, NULL, n->n_up == n_up + 1);
	return fd;
}

/* The node's next connection. */
static inline int raw_accept(struct node *n, int listen_fd)
{
	for (uint64_t end = clock_ns() + PATIENCE_NS; clock_ns() < end;) {
		int fd = accept4(listen_fd, NULL, NULL, SOCK_NONBLOCK);

		if (fd >= 0)
			return fd;
		turns(n, NULL, 1);
	}
	cr_assert_fail("nobody dialled");
	return -1;
}

/* Starts a node that dials us. Its bootstrap socket, HELLO read and not answered. */
static inline int raw_dialled(struct node *n, int *listen_fd)
{
	uint16_t port = free_port();
	struct wire_hello hello;
	int fd;

	*listen_fd = raw_listen(port);
	node_init(n, "alpha", "tcp", 0);
	node_dials(n, port);
	node_start(n);
	fd = raw_accept(n, *listen_fd);
	cr_assert(raw_read(n, fd, &hello, sizeof(hello)));
	cr_assert(hello.kind == WIRE_CONN_BOOTSTRAP && hello.n_qps == 2 && hello.token == 0);
	cr_assert(wire_hello_check(&hello) == RY_OK);
	return fd;
}

#endif
