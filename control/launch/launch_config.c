/* SPDX-License-Identifier: BSD-3-Clause */
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "launch/launch_priv.h"

/* Of one client, in the daemon's configuration. */
#define INFLIGHT_DEFAULT_BYTES (256ull << 20)

static bool has_address(const struct launch_rail *r);
static const char *address_of(const struct launch_rail *r);
static int reserve_port(const char *address, uint16_t *port);
static void write_rail(FILE *f, const struct daemon_process *d, uint16_t rail_idx);
static void write_stores(FILE *f, const struct launch *l, uint16_t idx);
static void write_roles(FILE *f, const struct launch_node *node);

static bool has_address(const struct launch_rail *r)
{
	return strcmp(r->transport, "mock") != 0;
}

static const char *address_of(const struct launch_rail *r)
{
	return r->address[0] != '\0' ? r->address : "127.0.0.1";
}

/* A socket that is bound with SO_REUSEADDR and does not listen lets a second one with SO_REUSEADDR bind and listen. */
static int reserve_port(const char *address, uint16_t *port)
{
	struct sockaddr_in6 sa = {.sin6_family = AF_INET6};
	struct sockaddr_in *v4 = (struct sockaddr_in *)&sa;
	socklen_t len = sizeof(sa);
	int fd, err = 0;

	if (inet_pton(AF_INET6, address, &sa.sin6_addr) != 1) {
		v4->sin_family = AF_INET;
		len = sizeof(*v4);
		if (inet_pton(AF_INET, address, &v4->sin_addr) != 1)
			return -EINVAL;
	}
	fd = socket(sa.sin6_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int)) < 0 || bind(fd, (void *)&sa, len) < 0 ||
		getsockname(fd, (void *)&sa, &len) < 0) {
		err = -errno;
		close(fd);
		return err;
	}
	*port = ntohs(sa.sin6_port); /* where sin_port is, too */
	return fd;
}

int launch_reserve_ports(struct daemon_process *d)
{
	uint16_t i;

	for (i = 0; i < d->node.n_rails; i++) {
		if (!d->node.is_store || !has_address(&d->node.rails[i]))
			continue;
		d->port_fds[i] = reserve_port(address_of(&d->node.rails[i]), &d->ports[i]);
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
	if (r->device[0] != '\0')
		fprintf(f, "    device: %s\n", r->device);
	if (r->device_port != 0)
		fprintf(f, "    device_port: %u\n", r->device_port);
	if (has_address(r)) {
		fprintf(f, "    address: '%s'\n", address_of(r));
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
		fprintf(f, "      - {address: '%s', port: %u, rail: rail%u}\n", address_of(&s->node.rails[i]),
			s->ports[i], i);
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
