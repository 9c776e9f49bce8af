/* SPDX-License-Identifier: BSD-3-Clause */
/* attach: what a client asks for, within what the configuration allows. */
#include "api/api_priv.h"
#include "api/on.h"

static const char *refusal(const struct request *r, enum ry_status *status);
static uint64_t arena_bytes(const struct request *r, const char *name, uint64_t configured);
static uint32_t n_entries(const struct request *r, uint32_t configured);

void on_attach(struct request *r)
{
	const struct api_deps *d = &r->api->deps;
	enum ry_status status;
	const char *why = refusal(r, &status);
	struct client_conf conf = {
		.pid = r->conn->pid,
		.uid = r->conn->uid,
		.n_entries = n_entries(r, d->config->ring_entries),
		.read_arena_bytes = arena_bytes(r, "read_arena_bytes", d->config->read_arena_bytes),
		.put_arena_bytes = arena_bytes(r, "put_arena_bytes", d->config->put_arena_bytes),
		.want_hugepages = d->has_hugepages,
		.regions = d->regions,
		.sleep_set_fd = d->control_set_fd,
	};

	if (why)
		request_fail(r, status, "attach: %s", why);
	else
		session_attach(r, &conf);
}

static const char *refusal(const struct request *r, enum ry_status *status)
{
	*status = RY_ERR_VERSION;
	if (request_uint(r, "abi_major", 0) != RY_RING_ABI_MAJOR)
		return "the ring's ABI has another major version here; upgrade the older side";
	*status = RY_ERR_INVALID;
	if (r->conn->session)
		return "this connection is attached already; open another for another client";
	if (!r->api->deps.config->is_reader)
		return "this node has not the role reader and serves no local clients; attach to a reader";
	if (!r->id)
		return "its descriptors come with the answer: give the request an id";
	*status = RY_ERR_DETACHED;
	if (r->api->is_draining)
		return "the daemon is stopping; attach again when it is back";
	return NULL;
}

static uint64_t arena_bytes(const struct request *r, const char *name, uint64_t configured)
{
	uint64_t bytes = request_uint(r, name, 0);

	if (!bytes || bytes > configured)
		return configured;
	return (bytes + EXTENT_GRANULE_BYTES - 1) & ~(uint64_t)(EXTENT_GRANULE_BYTES - 1);
}

static uint32_t n_entries(const struct request *r, uint32_t configured)
{
	uint64_t want = request_uint(r, "ring_entries", 0);
	uint32_t n = 2;

	if (!want || want > configured)
		return configured;
	while (n < want)
		n *= 2;
	return n;
}
