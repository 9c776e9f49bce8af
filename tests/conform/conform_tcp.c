/* SPDX-License-Identifier: BSD-3-Clause */
#include "conform.h"

#include <criterion/criterion.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

static void connect_loopback(int fds[2]);
static struct qp *make_qp(struct conform *c, struct rail *rail, uint16_t qp_idx, bool is_dialler, int fd);

/* Two rails joined by loopback sockets, as conn joins them after HELLO. */
void conform_setup(struct conform *c, uint16_t n_qps)
{
	struct rail_conf conf = {.name = "tcp0", .transport = "tcp", .address = "127.0.0.1"};

	c->ops = transport_find("tcp");
	cr_assert(c->ops);
	c->a = conform_rail_new(c->ops, &conf, 0);
	c->b = conform_rail_new(c->ops, &conf, 1);
	for (uint16_t i = 0; i < n_qps; i++) {
		int fds[2];

		connect_loopback(fds);
		c->qa[i] = make_qp(c, c->a, i, true, fds[0]);
		c->qb[i] = make_qp(c, c->b, i, false, fds[1]);
	}
}

static void connect_loopback(int fds[2])
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(at);
	int listener = socket(AF_INET, SOCK_STREAM, 0);

	cr_assert(listener >= 0);
	cr_assert_eq(bind(listener, (struct sockaddr *)&at, len), 0);
	cr_assert_eq(getsockname(listener, (struct sockaddr *)&at, &len), 0);
	cr_assert_eq(listen(listener, 1), 0);
	fds[0] = socket(AF_INET, SOCK_STREAM, 0);
	cr_assert_eq(connect(fds[0], (struct sockaddr *)&at, len), 0);
	fds[1] = accept(listener, NULL, NULL);
	cr_assert(fds[1] >= 0);
	close(listener);
}

static struct qp *make_qp(struct conform *c, struct rail *rail, uint16_t qp_idx, bool is_dialler, int fd)
{
	struct qp_request req = {
		.pair_idx = 1, .qp_idx = qp_idx, .is_dialler = is_dialler, .peer_credits = 24, .fd = fd};
	struct qp *qp = NULL;

	cr_assert_eq(c->ops->pair_connect(rail, &req, &qp), 0);
	conform_adopt(rail, qp);
	return qp;
}
