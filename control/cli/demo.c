/* SPDX-License-Identifier: BSD-3-Clause */
#include "cli/demo.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define START_TIMEOUT_NS 20000000000ull
#define VERBS_START_TIMEOUT_NS 60000000000ull /* registration takes a slow CPU long */
#define DEFAULT_BYTES (64ull << 20)
#define ARENA_MAX_BYTES (256ull << 20)
#define STORE_SPARE_BYTES (64ull << 20)
#define LARGE_BYTES (256ull << 20)

static int check_options(struct cli *c);
static void choose(struct demo *d);
static bool run(struct demo *d);
static bool find_rails(struct demo *d, struct launch_rail *rails);
static bool start(struct demo *d);
static bool attach(struct demo *d);
static void explain(struct demo *d);

int cmd_demo(struct cli *c)
{
	struct demo d = {.c = c, .fd = -1, .n_rails = (uint16_t)c->n_rails};
	bool good;
	int rc = check_options(c);

	if (rc != CLI_OK)
		return rc;
	good = run(&d);
	if (!good)
		explain(&d);
	ry_detach(d.client);
	if (d.fd >= 0)
		close(d.fd);
	/* Before anything is said: where a signal is ending us, this call does not return. */
	launch_stop(d.launch);
	return good ? demo_report(&d) : cli_fail(c, d.status, "%s", d.cause);
}

static int check_options(struct cli *c)
{
	if (strcmp(c->transport, "mlx5") == 0)
		return cli_usage(c, "transport mlx5 is not in this version; tcp and verbs are");
	if (strcmp(c->transport, "tcp") != 0 && strcmp(c->transport, "verbs") != 0)
		return cli_usage(c, "no transport \"%s\"; tcp and verbs are there", c->transport);
	if (c->rail_rate_bytes_per_s != 0 && strcmp(c->transport, "tcp") != 0)
		return cli_usage(c, "--rail-rate is for tcp: what an RDMA device sends is not ours to slow down");
	if (c->n_rails < 1 || c->n_rails > RY_RAILS_MAX)
		return cli_usage(c, "--rails is 1 to %u", RY_RAILS_MAX);
	if (c->rail_rate_bytes_per_s != 0 && c->rail_rate_bytes_per_s < 1000000)
		return cli_usage(c, "--rail-rate is at least 1MB/s");
	if (c->repeat > DEMO_REPEAT_MAX)
		return cli_usage(c, "--repeat is at most %u", DEMO_REPEAT_MAX);
	return CLI_OK;
}

bool demo_fail(struct demo *d, enum ry_status status, const char *format, ...)
{
	va_list args;

	d->status = status;
	va_start(args, format);
	vsnprintf(d->cause, sizeof(d->cause), format, args);
	va_end(args);
	return false;
}

static bool run(struct demo *d)
{
	d->size_bytes = DEFAULT_BYTES;
	if (d->c->file != NULL && !demo_open_file(d))
		return false;
	choose(d);
	return start(d) && (d->c->file != NULL || demo_make_file(d)) && attach(d) && demo_put(d) && demo_read_all(d);
}

/* Stripes that give every rail several, reads that fit the arena, and a deadline that a capped rail can meet. */
static void choose(struct demo *d)
{
	uint64_t stripe_bytes = d->size_bytes / (4u * d->n_rails) / RY_STRIPE_MIN_BYTES * RY_STRIPE_MIN_BYTES;

	if (stripe_bytes > RY_STRIPE_DEFAULT_BYTES)
		stripe_bytes = RY_STRIPE_DEFAULT_BYTES;
	if (stripe_bytes < RY_STRIPE_MIN_BYTES)
		stripe_bytes = RY_STRIPE_MIN_BYTES;
	d->stripe_bytes = d->c->stripe_bytes != 0 ? (uint32_t)d->c->stripe_bytes : (uint32_t)stripe_bytes;
	d->arena_bytes = (d->size_bytes + d->stripe_bytes - 1) / d->stripe_bytes * d->stripe_bytes;
	if (d->arena_bytes > ARENA_MAX_BYTES)
		d->arena_bytes = ARENA_MAX_BYTES / d->stripe_bytes * d->stripe_bytes;
	if (d->arena_bytes == 0)
		d->arena_bytes = d->stripe_bytes;
	d->repeat = d->c->repeat != 0 ? (uint32_t)d->c->repeat : d->size_bytes > LARGE_BYTES ? 1 : 5;
	d->deadline_ns = 30000000000ull;
	if (d->c->rail_rate_bytes_per_s != 0)
		d->deadline_ns += (uint64_t)(4e9 * (double)d->arena_bytes / (double)d->c->rail_rate_bytes_per_s);
	if (d->c->deadline_ns != 0)
		d->deadline_ns = d->c->deadline_ns;
}

/* Both daemons use the same ports of this host: the devices carry what one of them says to the other. */
static bool find_rails(struct demo *d, struct launch_rail *rails)
{
	char seen[512];
	int n;

	if (strcmp(d->c->transport, "verbs") != 0) {
		for (uint16_t k = 0; k < d->n_rails; k++) {
			strcpy(rails[k].transport, "tcp");
			rails[k].rate_bytes_per_s = d->c->rail_rate_bytes_per_s;
		}
		return true;
	}
	n = launch_find_rdma("/sys", rails, d->n_rails, seen, sizeof(seen));
	if (n == d->n_rails)
		return true;
	return demo_fail(d, RY_ERR_NO_RAIL,
		"%u rails need as many RDMA ports that are active and have a RoCEv2 GID of an IP address; this host "
		"has %d of them (%s); give one more an address, or --rails %d; without RDMA NICs: "
		"deploy/softroce/softroce.sh up",
		d->n_rails, n, seen, n > 0 ? n : 1);
}

static bool start(struct demo *d)
{
	struct launch_node nodes[2] = {
		{.name = "store", .is_store = true, .store_idx = LAUNCH_NO_STORE, .n_rails = d->n_rails},
		{.name = "reader", .is_reader = true, .store_idx = 0, .n_rails = d->n_rails},
	};
	struct launch_error err = {0};
	bool is_tcp = strcmp(d->c->transport, "tcp") == 0;

	/* Extents are 64 KiB granules, and a stripe at an object's end may leave a hole. */
	nodes[0].store_bytes = (d->size_bytes + STORE_SPARE_BYTES + 2 * (uint64_t)d->stripe_bytes) >> 20 << 20;
	nodes[1].read_arena_bytes = d->arena_bytes + (1u << 20);
	nodes[1].put_arena_bytes = 4 * (uint64_t)d->stripe_bytes + (8u << 20);
	if (!find_rails(d, nodes[0].rails))
		return false;
	memcpy(nodes[1].rails, nodes[0].rails, sizeof(nodes[1].rails));
	if (launch_start(nodes, 2, is_tcp ? START_TIMEOUT_NS : VERBS_START_TIMEOUT_NS, &d->launch, &err) == 0)
		return true;
	return demo_fail(d, RY_ERR_INTERNAL, "%s", err.text);
}

static bool attach(struct demo *d)
{
	char cause[RY_CAUSE_MAX_BYTES] = "";
	struct ry_attach_opts opts = {
		.socket_path = launch_socket(d->launch, 1), .cause = cause, .cause_bytes = sizeof(cause)};
	enum ry_status status = ry_attach(&opts, &d->client);

	if (status == RY_OK)
		return true;
	return demo_fail(d, status, "cannot attach to the reader: %s", cli_attach_cause(cause, opts.socket_path));
}

/* A daemon that died explains more than the call that noticed. */
static void explain(struct demo *d)
{
	struct launch_error err;

	if (d->launch != NULL && launch_check(d->launch, &err) < 0)
		demo_fail(d, d->status, "%s", err.text);
}
