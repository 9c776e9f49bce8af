/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/demo.h"

#define COMPARE_BYTES (1u << 18)

static bool pump(struct demo *d, struct ry_put *put);
static bool measure(struct demo *d, uint32_t flags, struct demo_pass *median);
static bool read_pass(struct demo *d, uint32_t flags, struct demo_pass *pass);
static bool read_range(struct demo *d, uint32_t flags, uint64_t offset, struct demo_pass *pass);
static bool compare(struct demo *d, const struct ry_lease *lease, uint64_t offset);
static bool compare_span(struct demo *d, const struct ry_span *span, uint64_t offset, uint8_t *scratch);
static bool check_rails(struct demo *d, uint32_t n_wanted, const struct demo_pass *pass);
static int by_time(const void *a, const void *b);

bool demo_put(struct demo *d)
{
	struct ry_put_opts opts = {
		.size_bytes = d->size_bytes, .stripe_bytes = d->stripe_bytes, .deadline_ns = d->deadline_ns};
	uint64_t started_ns = progress_now();
	struct ry_put_result result;
	enum ry_status status;
	struct ry_put *put;
	bool good;

	status = ry_put_open(d->client, DEMO_KEY, sizeof(DEMO_KEY) - 1, &opts, &put);
	if (status != RY_OK)
		return demo_fail(d, status, "put: %s", ry_last_cause(d->client));
	good = pump(d, put);
	status = ry_put_close(put, good, &result);
	if (!good)
		return false;
	if (status != RY_OK)
		return demo_fail(d, status, "put: %s", ry_last_cause(d->client));
	d->put_ns = progress_now() - started_ns;
	d->generation = result.generation;
	return true;
}

static bool pump(struct demo *d, struct ry_put *put)
{
	uint64_t offset = 0;

	while (offset < d->size_bytes) {
		uint64_t room_bytes, left = d->size_bytes - offset;
		enum ry_status status;
		void *space;
		ssize_t n;

		status = ry_put_space(put, &space, &room_bytes);
		if (status != RY_OK)
			return demo_fail(d, status, "put: %s", ry_last_cause(d->client));
		n = pread(d->fd, space, room_bytes < left ? room_bytes : left, (off_t)offset);
		if (n <= 0)
			return demo_fail(d, RY_ERR_INVALID, "cannot read %s: %s", d->path,
				n < 0 ? strerror(errno) : "it became shorter");
		status = ry_put_wrote(put, (uint64_t)n);
		if (status != RY_OK)
			return demo_fail(d, status, "put: %s", ry_last_cause(d->client));
		offset += (uint64_t)n;
	}
	return true;
}

bool demo_read_all(struct demo *d)
{
	struct demo_pass warm_up = {0};

	return read_pass(d, 0, &warm_up) && measure(d, RY_F_ONE_RAIL, &d->single) && check_rails(d, 1, &d->single) &&
	       measure(d, 0, &d->multi);
}

static bool measure(struct demo *d, uint32_t flags, struct demo_pass *median)
{
	struct demo_pass *passes = calloc(d->repeat, sizeof(*passes));
	bool good = passes != NULL;
	uint32_t i;

	for (i = 0; good && i < d->repeat; i++) {
		good = read_pass(d, flags, &passes[i]);
		/* Every one of them, not only the one that is shown. */
		good = good && ((flags & RY_F_ONE_RAIL) != 0 || check_rails(d, d->n_rails, &passes[i]));
	}
	if (good) {
		qsort(passes, d->repeat, sizeof(*passes), by_time);
		*median = passes[d->repeat / 2];
	}
	free(passes);
	return good;
}

static int by_time(const void *a, const void *b)
{
	const struct demo_pass *x = a, *y = b;

	return x->ns < y->ns ? -1 : x->ns > y->ns;
}

static bool read_pass(struct demo *d, uint32_t flags, struct demo_pass *pass)
{
	uint64_t offset;

	for (offset = 0; offset < d->size_bytes; offset += d->arena_bytes) {
		if (!read_range(d, flags, offset, pass))
			return false;
	}
	return true;
}

static bool read_range(struct demo *d, uint32_t flags, uint64_t offset, struct demo_pass *pass)
{
	uint64_t left = d->size_bytes - offset, started_ns = progress_now(), ns;
	struct ry_read_opts opts = {.offset = offset,
		.length = left < d->arena_bytes ? left : d->arena_bytes,
		.generation = d->generation,
		.deadline_ns = d->deadline_ns,
		.flags = flags};
	struct ry_read_result result;
	struct ry_lease lease;
	enum ry_status status;
	bool good = true;

	status = ry_read(d->client, DEMO_KEY, sizeof(DEMO_KEY) - 1, &opts, &lease, &result);
	ns = progress_now() - started_ns;
	if (status != RY_OK)
		return demo_fail(d, status, "read: %s", ry_last_cause(d->client));
	if (!result.is_verified || lease.bytes != opts.length)
		good = demo_fail(d, RY_ERR_INTERNAL, "a read at %llu came back %s", (unsigned long long)offset,
			result.is_verified ? "short" : "unverified");
	good = good && compare(d, &lease, offset);
	ry_lease_release(d->client, &lease);
	demo_add_stats(pass, &result.stats, ns);
	return good;
}

static bool compare(struct demo *d, const struct ry_lease *lease, uint64_t offset)
{
	uint8_t *scratch = malloc(COMPARE_BYTES);
	bool good = scratch != NULL;
	uint32_t i;

	for (i = 0; good && i < lease->n_spans; i++) {
		good = compare_span(d, &lease->spans[i], offset, scratch);
		offset += lease->spans[i].bytes;
	}
	free(scratch);
	return good;
}

static bool compare_span(struct demo *d, const struct ry_span *span, uint64_t offset, uint8_t *scratch)
{
	uint64_t done = 0;

	while (done < span->bytes) {
		uint64_t left = span->bytes - done;
		ssize_t n = pread(d->fd, scratch, left < COMPARE_BYTES ? left : COMPARE_BYTES, (off_t)(offset + done));

		if (n <= 0)
			return demo_fail(d, RY_ERR_INVALID, "cannot read %s again: %s", d->path,
				n < 0 ? strerror(errno) : "it became shorter");
		if (memcmp(scratch, span->data + done, (size_t)n) != 0)
			return demo_fail(d, RY_ERR_CHECKSUM,
				"what was read differs from %s within %zd bytes after byte %llu", d->path, n,
				(unsigned long long)(offset + done));
		done += (uint64_t)n;
	}
	return true;
}

/* A read that quietly used fewer rails would make the comparison a lie. */
static bool check_rails(struct demo *d, uint32_t n_wanted, const struct demo_pass *pass)
{
	uint32_t n_used = 0;
	uint8_t i;

	for (i = 0; i < pass->stats.n_rails; i++)
		n_used += pass->stats.rails[i].bytes != 0;
	if (n_used == n_wanted)
		return true;
	return demo_fail(d, RY_ERR_INTERNAL,
		"%u of %u rails carried bytes of an object of %llu bytes in stripes of %u (objects up to 256 KiB use "
		"one rail)",
		n_used, n_wanted, (unsigned long long)d->size_bytes, d->stripe_bytes);
}

void demo_add_stats(struct demo_pass *pass, const struct ry_read_stats *one, uint64_t ns)
{
	struct ry_read_stats *sum = &pass->stats;
	uint8_t i, k;

	pass->ns += ns;
	if (ns >= pass->slowest_ns) {
		pass->slowest_ns = ns;
		sum->class_ref = one->class_ref;
		sum->class_own = one->class_own;
		sum->class_share_permille = one->class_share_permille;
	}
	for (i = 0; i < one->n_rails; i++) {
		for (k = 0; k < sum->n_rails && strcmp(sum->rails[k].name, one->rails[i].name) != 0; k++)
			;
		if (k == sum->n_rails && sum->n_rails < RY_RAILS_MAX)
			memcpy(sum->rails[sum->n_rails++].name, one->rails[i].name, RY_NAME_MAX_BYTES);
		sum->rails[k].bytes += one->rails[i].bytes;
		sum->rails[k].busy_ns += one->rails[i].busy_ns;
		sum->rails[k].segments += one->rails[i].segments;
	}
}
