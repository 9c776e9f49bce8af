/* SPDX-License-Identifier: BSD-3-Clause */
/* Synchronous look-ups, reads, deletes and lists: each is one or a few operations that the call waits for. */
#include "client_priv.h"

#include <string.h>

#define LIST_PAGE_ENTRIES 1024u

static const struct ry_read_opts whole_object = {.length = RY_TO_END};

static enum ry_status read_lease(struct ry_client *c, const void *key, uint16_t key_bytes,
	const struct ry_read_opts *opts, struct ry_completion *done);
static enum ry_status check_room(struct ry_client *c, const void *key, uint16_t key_bytes,
	const struct ry_read_opts *opts, uint64_t buffer_bytes, uint64_t *bytes);
static enum ry_status too_small(struct ry_client *c, uint64_t need, uint64_t have, uint64_t *bytes);
static void give_result(const struct ry_completion *done, struct ry_read_result *result);
static enum ry_status list_page(struct ry_client *c, const struct ry_completion *page, ry_list_fn fn, void *arg);

enum ry_status ry_lookup(
	struct ry_client *c, const void *key, uint16_t key_bytes, uint64_t deadline_ns, struct ry_object *object)
{
	struct ry_request r = ryc_request(RY_OP_LOOKUP, key, key_bytes, deadline_ns);
	enum ry_status status = ryc_enter_with(c, object, "lookup: object");
	struct ry_completion done;

	if (!status)
		status = ryc_call(c, &r, &done);
	if (!status)
		*object = done.object;
	return status;
}

enum ry_status ry_read(struct ry_client *c, const void *key, uint16_t key_bytes, const struct ry_read_opts *opts,
	struct ry_lease *lease, struct ry_read_result *result)
{
	enum ry_status status = ryc_enter_with(c, lease, "read: lease");
	struct ry_completion done;

	if (!status)
		status = read_lease(c, key, key_bytes, opts ? opts : &whole_object, &done);
	if (status)
		return status;
	*lease = done.lease;
	give_result(&done, result);
	return RY_OK;
}

static enum ry_status read_lease(struct ry_client *c, const void *key, uint16_t key_bytes,
	const struct ry_read_opts *opts, struct ry_completion *done)
{
	struct ry_request r = ryc_request(RY_OP_READ, key, key_bytes, opts->deadline_ns);

	r.flags = opts->flags;
	r.offset = opts->offset;
	r.length = opts->length;
	r.generation = opts->generation;
	return ryc_call(c, &r, done);
}

enum ry_status ry_read_copy(struct ry_client *c, const void *key, uint16_t key_bytes, const struct ry_read_opts *opts,
	void *buffer, uint64_t buffer_bytes, uint64_t *bytes, struct ry_read_result *result)
{
	enum ry_status status = ryc_enter_with(c, bytes, "read: bytes");
	struct ry_completion done;

	opts = opts ? opts : &whole_object;
	if (!status && buffer_bytes > 0)
		status = ryc_enter_with(c, buffer, "read: buffer");
	if (!status)
		status = ryc_flags_check(c, opts->flags, RYC_READ_FLAGS);
	if (!status)
		status = check_room(c, key, key_bytes, opts, buffer_bytes, bytes);
	if (status)
		return status;
	status = read_lease(c, key, key_bytes, opts, &done);
	if (status) {
		if (status == RY_ERR_BUFFER_TOO_SMALL)
			*bytes = 0;
		return status;
	}
	if (done.lease.bytes > buffer_bytes) {
		/* It was replaced by a larger one since check_room. */
		ry_lease_release(c, &done.lease);
		return too_small(c, done.lease.bytes, buffer_bytes, bytes);
	}
	(void)ry_lease_copy(&done.lease, buffer);
	ry_lease_release(c, &done.lease);
	*bytes = done.lease.bytes;
	give_result(&done, result);
	return RY_OK;
}

/* Bytes that the buffer cannot take are not moved. Only a range up to an unknown end needs a look-up. */
static enum ry_status check_room(struct ry_client *c, const void *key, uint16_t key_bytes,
	const struct ry_read_opts *opts, uint64_t buffer_bytes, uint64_t *bytes)
{
	struct ry_object object;
	enum ry_status status;

	if (opts->length <= buffer_bytes)
		return RY_OK;
	if (opts->length != RY_TO_END)
		return too_small(c, opts->length, buffer_bytes, bytes);
	status = ry_lookup(c, key, key_bytes, opts->deadline_ns, &object);
	if (status || opts->offset > object.size_bytes)
		return status; /* the read says what is wrong with the offset */
	if (object.size_bytes - opts->offset > buffer_bytes)
		return too_small(c, object.size_bytes - opts->offset, buffer_bytes, bytes);
	return RY_OK;
}

static enum ry_status too_small(struct ry_client *c, uint64_t need, uint64_t have, uint64_t *bytes)
{
	*bytes = need;
	return ryc_fail(c, RY_ERR_BUFFER_TOO_SMALL,
		"read: the range has %llu bytes, the buffer %llu: nothing was copied", (unsigned long long)need,
		(unsigned long long)have);
}

static void give_result(const struct ry_completion *done, struct ry_read_result *result)
{
	if (!result)
		return;
	*result = (struct ry_read_result){
		.bytes = done->lease.bytes, .generation = done->generation, .is_verified = done->is_verified};
	memcpy(&result->stats, &done->stats,
		offsetof(struct ry_read_stats, rails) + done->stats.n_rails * sizeof(struct ry_rail_stats));
}

enum ry_status ry_delete(struct ry_client *c, const void *key, uint16_t key_bytes, uint64_t generation,
	uint64_t deadline_ns, uint64_t *deleted)
{
	struct ry_request r = ryc_request(RY_OP_DELETE, key, key_bytes, deadline_ns);
	enum ry_status status = ryc_enter(c);
	struct ry_completion done;

	r.generation = generation;
	if (!status)
		status = ryc_call(c, &r, &done);
	if (!status && deleted)
		*deleted = done.generation;
	return status;
}

enum ry_status ry_list(
	struct ry_client *c, const void *prefix, uint16_t prefix_bytes, uint64_t deadline_ns, ry_list_fn fn, void *arg)
{
	struct ry_request r = ryc_request(RY_OP_LIST, prefix, prefix_bytes, deadline_ns);
	enum ry_status status = ryc_enter(c);
	struct ry_completion page;

	if (!status && !fn)
		status = ryc_fail(c, RY_ERR_INVALID, "list: no function to call");
	r.length = LIST_PAGE_ENTRIES;
	while (!status) {
		status = ryc_call(c, &r, &page);
		if (status)
			break;
		status = list_page(c, &page, fn, arg);
		ry_lease_release(c, &page.lease);
		if (!status && page.cursor == r.offset)
			/* 0 here is the end of a list of one page; anything else would go round for ever. */
			return page.cursor == 0
				       ? RY_OK
				       : ryc_fail(c, RY_ERR_PROTOCOL, "list: the daemon's cursor stands still");
		r.offset = page.cursor;
		if (r.offset == 0)
			break;
	}
	return status;
}

static enum ry_status list_page(struct ry_client *c, const struct ry_completion *page, ry_list_fn fn, void *arg)
{
	const uint8_t *at = page->lease.spans[0].data;
	uint64_t left = page->lease.bytes;

	if (page->lease.n_spans > 1)
		return ryc_fail(c, RY_ERR_PROTOCOL, "list: a page in pieces");
	for (uint64_t i = 0; i < page->bytes; i++) {
		struct ry_list_entry e;
		uint64_t bytes;

		if (left < sizeof(e))
			return ryc_fail(c, RY_ERR_PROTOCOL, "list: entry %llu is cut off", (unsigned long long)i);
		memcpy(&e, at, sizeof(e));
		bytes = (sizeof(e) + e.key_bytes + 7u) / 8u * 8u;
		if (left < bytes)
			return ryc_fail(c, RY_ERR_PROTOCOL, "list: entry %llu is cut off", (unsigned long long)i);
		if (!fn(arg, at + sizeof(e), e.key_bytes, e.size_bytes, e.generation))
			return ryc_fail(c, RY_ERR_CANCELLED, "list: stopped by the caller");
		at += bytes;
		left -= bytes;
	}
	return RY_OK;
}
