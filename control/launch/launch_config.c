/* SPDX-License-Identifier: BSD-3-Clause */
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "launch/launch_priv.h"

/* Of one client, in the daemon's configuration. */
#define INFLIGHT_DEFAULT_BYTES (256ull << 20)

static int reserve_port(uint16_t *port);
static void write_rail(FILE *f, const struct daemon_process *d, uint16_t rail_idx);
static void write_stores(FILE *f, const struct launch *l, uint16_t idx);
static void write_roles(FILE *f, const struct launch_node *node);

/* A socket that is bound with SO_REUSEADDR and does not listen lets a second one with SO_REUSEADDR bind and listen. */
static int reserve_port(uint16_t *port)
{
	struct sockaddr_in sa = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(sa);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int err = 0;

	if (fd < 0)
		return -errno;
	if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int)) < 0 ||
		bind(fd, (void *)&sa, sizeof(sa)) < 0 || getsockname(fd, (void *)&sa, &len) < 0) {
		err = -errno;
		close(fd);
		return err;
	}
	*port = ntohs(sa.sin_port);
	return fd;
}

int launch_reserve_ports(struct daemon_process *d)
{
	uint16_t i;

	for (i = 0; i < d->node.n_rails; i++) {
		if (!d->node.is_store || d->node.rails[i].transport[0] != 't')
			continue;
		d->port_fds[i] = reserve_port(&d->ports[i]);
		if (d->port_fds[i] < 0)
			return d->port_fds[i];
	}
	return 0;
}

void launch_free_ports(struct daemon_process *d)
{
	uint16_t i;

	for (i = 0; i < RY_RAILS_MAX; i++) {
		if (d->port_fds[i] >= 0)
			close(d->port_fds[i]);
		d->port_fds[i] = -1;
	}
}

static void write_rail(FILE *f, const struct daemon_process *d, uint16_t rail_idx)
{
	const struct launch_rail *r = &d->node.rails[rail_idx];

	fprintf(f, "  - name: rail%u\n    transport: %s\n    lcore: %u\n", rail_idx, r->transport, rail_idx + 1u);
	if (r->transport[0] == 't') {
		fprintf(f, "    address: 127.0.0.1\n");
		if (d->ports[rail_idx] != 0)
			fprintf(f, "    port: %u\n", d->ports[rail_idx]);
	}
	if (r->rate_bytes_per_s != 0)
		fprintf(f, "    rate: %" PRIu64 "B/s\n", r->rate_bytes_per_s);
	if (r->bandwidth_bytes_per_s != 0)
		fprintf(f, "    bandwidth: %" PRIu64 "B/s\n", r->bandwidth_bytes_per_s);
	if (r->latency_ns != 0)
		fprintf(f, "    latency: %" PRIu64 "ns\n", r->latency_ns);
}

static void write_stores(FILE *f, const struct launch *l, uint16_t idx)
{
	uint16_t store_idx = l->daemons[idx].node.store_idx, i;
	const struct daemon_process *s;

	if (store_idx == LAUNCH_NO_STORE)
		return;
	s = &l->daemons[store_idx];
	fprintf(f, "stores:\n  - name: %s\n", s->node.name);
	if (store_idx == idx) {
		fprintf(f, "    self: true\n");
		return;
	}
	fprintf(f, "    endpoints:\n");
	for (i = 0; i < s->node.n_rails; i++)
		fprintf(f, "      - {address: 127.0.0.1, port: %u, rail: rail%u}\n", s->ports[i], i);
}

static void write_roles(FILE *f, const struct launch_node *node)
{
	if (node->is_reader) {
		fprintf(f, "reader:\n  policy: adaptive\n");
		if (node->segment_bytes != 0)
			fprintf(f, "  segment: %" PRIu64 "B\n", node->segment_bytes);
		if (node->read_arena_bytes != 0)
			fprintf(f, "  read_arena: %" PRIu64 "B\n", node->read_arena_bytes);
		/* Whoever has the memory may have it in flight. */
		if (node->read_arena_bytes > INFLIGHT_DEFAULT_BYTES)
			fprintf(f, "  inflight: %" PRIu64 "B\n  client_inflight: %" PRIu64 "B\n",
				node->read_arena_bytes, node->read_arena_bytes);
		if (node->put_arena_bytes != 0)
			fprintf(f, "  put_arena: %" PRIu64 "B\n", node->put_arena_bytes);
	}
	if (node->is_store) {
		fprintf(f, "store:\n  tier: pinned\n");
		if (node->store_bytes != 0)
			fprintf(f, "  memory: %" PRIu64 "B\n", node->store_bytes);
	}
}

int launch_write_config(const struct launch *l, uint16_t idx)
{
	const struct daemon_process *d = &l->daemons[idx];
	FILE *f = fopen(d->config_path, "we");
	uint16_t i;

	if (f == NULL)
		return -errno;
	fprintf(f, "node: %s\nsocket: %s\nroles: [%s%s%s]\nrails:\n", d->node.name, d->socket_path,
		d->node.is_reader ? "reader" : "", d->node.is_reader && d->node.is_store ? ", " : "",
		d->node.is_store ? "store" : "");
	for (i = 0; i < d->node.n_rails; i++)
		write_rail(f, d, i);
	write_stores(f, l, idx);
	write_roles(f, &d->node);
	i = ferror(f) != 0;
	if (fclose(f) != 0 || i)
		return -EIO;
	return 0;
}
