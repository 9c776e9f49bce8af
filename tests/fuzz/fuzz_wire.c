/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The wire codec. Its checks read nothing beyond the length that they are given; what they accept is exactly what an
 * encoder would have written, byte for byte; what the encoders write is accepted and means the same.
 */
#include <stdalign.h>

#include <railyard/status.h>

#include "fuzz.h"
#include "wire/wire.h"

static void data_message(struct fuzz_in *in);
static uint32_t rebuild(const void *msg, void *out);
static uint32_t rebuild_read(const struct wire_read *m, void *out);
static void parts_are_apart(const struct wire_read *m);
static void frame(struct fuzz_in *in);
static void hello(struct fuzz_in *in);
static void metadata(struct fuzz_in *in);
static uint32_t rebuild_meta(const void *msg, uint32_t len, void *out);
static void encoded(struct fuzz_in *in);
static void encoded_key(struct fuzz_in *in);
static void encoded_checksums(struct fuzz_in *in);
static void encoded_put(struct fuzz_in *in);

static alignas(8) uint8_t built[WIRE_META_MAX_BYTES];

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct fuzz_in in = {data, bytes};

	switch (fuzz_number(&in, 1) % 5) {
	case 0:
		data_message(&in);
		break;
	case 1:
		frame(&in);
		break;
	case 2:
		hello(&in);
		break;
	case 3:
		metadata(&in);
		break;
	default:
		encoded(&in);
	}
	return 0;
}

/* ---- data messages ---- */

static void data_message(struct fuzz_in *in)
{
	size_t n;
	uint8_t *m = fuzz_rest(in, &n);

	if (wire_msg_check(m, (uint32_t)n) == RY_OK) {
		FUZZ_CHECK(n <= WIRE_MSG_BYTES, "%zu bytes", n);
		FUZZ_CHECK(rebuild(m, built) == n, "type %u", m[0]);
		FUZZ_CHECK(!memcmp(m, built, n), "type %u has bytes that mean nothing", m[0]);
		FUZZ_CHECK(wire_msg_check(m, (uint32_t)n - 1) != RY_OK, "type %u without its last byte", m[0]);
	}
	free(m);
}

/* Field by field, so that whatever is no field is zero. */
static uint32_t rebuild(const void *msg, void *out)
{
	struct wire_msg h;

	memcpy(&h, msg, sizeof(h));
	h = (struct wire_msg){.type = h.type, .request_id = h.request_id, .flags = h.flags, .len_bytes = sizeof(h)};
#define REBUILD(type_, ...)                                                                                            \
	{                                                                                                              \
		struct type_ m, o;                                                                                     \
		memcpy(&m, msg, sizeof(m));                                                                            \
		h.len_bytes = sizeof(m);                                                                               \
		o = (struct type_){.h = h, __VA_ARGS__};                                                               \
		memcpy(out, &o, sizeof(o));                                                                            \
		return sizeof(o);                                                                                      \
	}
	switch (h.type) {
	case WIRE_READ:
	case WIRE_PULL:
		return rebuild_read(msg, out);
	case WIRE_DONE:
		REBUILD(wire_done, .status = m.status, .credits = m.credits, .generation = m.generation,
			.bytes = m.bytes, .storage_ns = m.storage_ns, .queue_ns = m.queue_ns)
	case WIRE_BUSY:
		REBUILD(wire_busy, .retry_us = m.retry_us, .credits = m.credits)
	case WIRE_PING:
		REBUILD(wire_ping, .key = m.key, .len_bytes = m.len_bytes, .offset = m.offset,
			.read_offset = m.read_offset, .read_key = m.read_key)
	case WIRE_GRANT:
		REBUILD(wire_grant, .key = m.key, .cookie = m.cookie, .generation = m.generation, .bytes = m.bytes)
	case WIRE_PULLED:
		REBUILD(wire_pulled, .cookie = m.cookie)
	default: /* CANCEL, PONG */
		memcpy(out, &h, sizeof(h));
		return sizeof(h);
	}
}

static uint32_t rebuild_read(const struct wire_read *at, void *out)
{
	struct wire_read m, o;
	struct wire_part p, q;
	uint8_t *to = out;

	memcpy(&m, at, sizeof(m));
	parts_are_apart(at);
	o = (struct wire_read){
		.h = {.type = m.h.type,
			.flags = m.h.flags,
			.len_bytes = (uint16_t)(sizeof(m) + m.n_parts * sizeof(p)),
			.request_id = m.h.request_id},
		.handle = m.handle,
		.generation = m.generation,
		.ttl_us = m.ttl_us,
		.key = m.key,
		.n_parts = m.n_parts,
	};
	memcpy(to, &o, sizeof(o));
	for (uint16_t i = 0; i < m.n_parts; i++) {
		memcpy(&p, (const uint8_t *)at + sizeof(m) + i * sizeof(p), sizeof(p));
		q = (struct wire_part){p.stripe_idx, p.len_bytes, p.offset, p.window_offset};
		memcpy(to + sizeof(m) + i * sizeof(q), &q, sizeof(q));
	}
	return o.h.len_bytes;
}

/* No byte of the window is named twice, and all parts lie within the largest one. */
static void parts_are_apart(const struct wire_read *at)
{
	struct wire_read m;
	struct wire_part p;
	uint64_t end = 0, start = 0, sum = 0;

	memcpy(&m, at, sizeof(m));
	FUZZ_CHECK(m.n_parts >= 1 && m.n_parts <= WIRE_PARTS_MAX, "%u parts", m.n_parts);
	for (uint16_t i = 0; i < m.n_parts; i++) {
		memcpy(&p, (const uint8_t *)at + sizeof(m) + i * sizeof(p), sizeof(p));
		start = i ? start : p.window_offset;
		FUZZ_CHECK(p.len_bytes && p.window_offset >= end, "part %u", i);
		FUZZ_CHECK(p.offset + p.len_bytes <= RY_STRIPE_MAX_BYTES, "part %u", i);
		FUZZ_CHECK(p.stripe_idx < RY_STRIPES_MAX, "part %u", i);
		end = p.window_offset + p.len_bytes;
		sum += p.len_bytes;
	}
	FUZZ_CHECK(end - start <= RY_STRIPE_MAX_BYTES && sum <= end - start, "%lu bytes", (unsigned long)sum);
}

/* ---- frames, HELLO ---- */

static void frame(struct fuzz_in *in)
{
	struct wire_frame f, o;

	fuzz_bytes(in, &f, sizeof(f));
	if (wire_frame_check(&f) != RY_OK)
		return;
	o = (struct wire_frame){.len_bytes = f.len_bytes, .type = f.type, .key = f.key, .offset = f.offset};
	FUZZ_CHECK(!memcmp(&f, &o, sizeof(f)), "a frame has bytes that mean nothing");
	FUZZ_CHECK(f.len_bytes >= 1 && f.len_bytes <= WIRE_DATA_MAX_BYTES, "%u bytes", f.len_bytes);
	FUZZ_CHECK(f.offset + f.len_bytes <= RY_STRIPE_MAX_BYTES, "offset %lu", (unsigned long)f.offset);
	FUZZ_CHECK(f.type == WIRE_FRAME_DATA || (f.len_bytes <= WIRE_MSG_BYTES && !f.key), "type %u", f.type);
}

static void hello(struct fuzz_in *in)
{
	struct wire_hello h, zero = {0};

	fuzz_bytes(in, &h, sizeof(h));
	if (wire_hello_check(&h) != RY_OK)
		return;
	FUZZ_CHECK(h.magic == WIRE_MAGIC && h.major == WIRE_MAJOR, "version %u", h.major);
	FUZZ_CHECK(!h.reserved0 && !memcmp(h.reserved, zero.reserved, sizeof(h.reserved)), "reserved");
	FUZZ_CHECK(strnlen(h.node_name, sizeof(h.node_name)) < sizeof(h.node_name), "a name without end");
	FUZZ_CHECK(strnlen(h.rail_name, sizeof(h.rail_name)) < sizeof(h.rail_name), "a name without end");
	for (const char *p = h.node_name; *p; p++)
		FUZZ_CHECK(*p > ' ' && *p < 0x7f, "byte %d in a name that logs and JSON show", *p);
	for (const char *p = h.rail_name; *p; p++)
		FUZZ_CHECK(*p > ' ' && *p < 0x7f, "byte %d in a name that logs and JSON show", *p);
	FUZZ_CHECK(
		h.status || (h.n_qps && h.read_credits && h.max_parts >= 8 && h.max_data_bytes >= WIRE_DATA_MAX_BYTES),
		"no limits");
	FUZZ_CHECK(h.status || h.kind == WIRE_CONN_BOOTSTRAP || h.qp_idx < h.n_qps, "QP %u of %u", h.qp_idx, h.n_qps);
}

/* ---- metadata ---- */

static void metadata(struct fuzz_in *in)
{
	size_t n;
	uint8_t *m = fuzz_rest(in, &n);
	uint32_t got;

	if (wire_meta_check(m, (uint32_t)n) == RY_OK) {
		got = rebuild_meta(m, (uint32_t)n, built);
		FUZZ_CHECK(got == n, "type %u: %u bytes instead of %zu", m[4], got, n);
		FUZZ_CHECK(!memcmp(m, built, n), "type %u is written otherwise", m[4]);
		FUZZ_CHECK(wire_meta_check(m, (uint32_t)n - 1) != RY_OK, "type %u without its last byte", m[4]);
	}
	free(m);
}

static uint32_t rebuild_meta(const void *msg, uint32_t len, void *out)
{
	const struct wire_meta *h = msg;
	const struct wire_lookup *lookup = msg;
	const struct wire_put *put = msg;
	const struct wire_delete *del = msg;
	const struct wire_list *list = msg;

	switch (h->type) {
	case WIRE_META_LOOKUP:
		return wire_enc_lookup(
			out, h->request_id, wire_lookup_key(lookup), lookup->key_bytes, lookup->first_stripe);
	case WIRE_META_LOOKUP_REPLY:
		return wire_enc_lookup_reply(out, msg, wire_lookup_checksums(msg));
	case WIRE_META_PUT:
		return wire_enc_put(out, put, wire_put_key(put), wire_put_checksums(put));
	case WIRE_META_DELETE:
		return wire_enc_delete(out, h->request_id, del->generation, wire_delete_key(del), del->key_bytes);
	case WIRE_META_LIST:
		return wire_enc_list(out, h->request_id, list->cursor, list->max_entries, wire_list_prefix(list),
			list->prefix_bytes);
	default:
		wire_enc_fixed(out, h->type, len, h->request_id, h->status);
		memcpy((uint8_t *)out + sizeof(*h), h + 1, len - sizeof(*h));
		return len;
	}
}

/* ---- what encoders write ---- */

static void encoded(struct fuzz_in *in)
{
	switch (fuzz_number(in, 1) % 3) {
	case 0:
		encoded_key(in);
		break;
	case 1:
		encoded_checksums(in);
		break;
	default:
		encoded_put(in);
	}
}

static uint8_t key[RY_KEY_MAX_BYTES + 64];

/* LOOKUP, DELETE, LIST. */
static void encoded_key(struct fuzz_in *in)
{
	unsigned which = (unsigned)fuzz_number(in, 1) % 3;
	uint16_t n = (uint16_t)(fuzz_number(in, 2) % sizeof(key));
	uint32_t number = (uint32_t)fuzz_number(in, 4);
	uint64_t id = fuzz_number(in, 8), wide = fuzz_number(in, 8);
	bool is_possible = n <= RY_KEY_MAX_BYTES && (n || which == 2);
	const struct wire_lookup *lookup = (const void *)built;
	const struct wire_delete *del = (const void *)built;
	const struct wire_list *list = (const void *)built;
	uint32_t len;

	fuzz_bytes(in, key, sizeof(key));
	if (which == 0)
		len = wire_enc_lookup(built, id, key, n, number % RY_STRIPES_MAX);
	else if (which == 1)
		len = wire_enc_delete(built, id, wide, key, n);
	else
		len = wire_enc_list(built, id, wide, number, key, n);
	FUZZ_CHECK(!len == !is_possible, "a key of %u bytes: %u", n, len);
	if (!len)
		return;
	FUZZ_CHECK(wire_meta_check(built, len) == RY_OK, "encoder %u", which);
	FUZZ_CHECK(lookup->h.request_id == id, "request id");
	if (which == 0)
		FUZZ_CHECK(lookup->key_bytes == n && !memcmp(wire_lookup_key(lookup), key, n) &&
				   lookup->first_stripe == number % RY_STRIPES_MAX,
			"LOOKUP");
	else if (which == 1)
		FUZZ_CHECK(del->key_bytes == n && !memcmp(wire_delete_key(del), key, n) && del->generation == wide,
			"DELETE");
	else
		FUZZ_CHECK(list->prefix_bytes == n && !memcmp(wire_list_prefix(list), key, n) && list->cursor == wide &&
				   list->max_entries == number,
			"LIST");
}

static uint64_t sums[WIRE_CHECKSUMS_PER_PAGE + 1];

static void encoded_checksums(struct fuzz_in *in)
{
	uint32_t n = (uint32_t)fuzz_number(in, 2) % (WIRE_CHECKSUMS_PER_PAGE + 2);
	const struct wire_lookup_reply *back = (const void *)built;
	struct wire_lookup_reply r = {.layout_version = 1, .n_checksums = n, .has_checksums = n != 0};
	uint32_t len;

	r.h.request_id = fuzz_number(in, 8);
	r.handle = fuzz_number(in, 8);
	r.generation = fuzz_number(in, 8);
	r.size_bytes = fuzz_number(in, 8);
	r.first_stripe = (uint32_t)fuzz_number(in, 2);
	r.stripe_count = r.first_stripe + n;
	fuzz_bytes(in, sums, sizeof(sums));
	len = wire_enc_lookup_reply(built, &r, sums);
	FUZZ_CHECK(!len == (n > WIRE_CHECKSUMS_PER_PAGE), "%u checksums: %u", n, len);
	if (!len)
		return;
	FUZZ_CHECK(wire_meta_check(built, len) == RY_OK, "%u checksums", n);
	FUZZ_CHECK(!memcmp(&back->handle, &r.handle, sizeof(r) - sizeof(r.h)) && back->h.request_id == r.h.request_id,
		"fixed part");
	FUZZ_CHECK(!memcmp(wire_lookup_checksums(back), sums, n * sizeof(*sums)), "checksums");
}

static void encoded_put(struct fuzz_in *in)
{
	uint32_t n = (uint32_t)fuzz_number(in, 2) % (WIRE_CHECKSUMS_PER_PAGE + 2);
	uint16_t n_key = (uint16_t)(fuzz_number(in, 2) % sizeof(key));
	const struct wire_put *back = (const void *)built;
	struct wire_put p = {.stripe_bytes = RY_STRIPE_MIN_BYTES, .n_checksums = n, .key_bytes = n_key};
	bool is_possible = n <= WIRE_CHECKSUMS_PER_PAGE && n_key && n_key <= RY_KEY_MAX_BYTES;
	uint32_t len;

	p.h.request_id = fuzz_number(in, 8);
	p.put_id[0] = fuzz_number(in, 8);
	p.size_bytes = fuzz_number(in, 8);
	p.source_handle = n ? fuzz_number(in, 8) : 0;
	p.part_bytes = n ? (uint64_t)n * p.stripe_bytes - fuzz_number(in, 8) % p.stripe_bytes : 0;
	fuzz_bytes(in, key, sizeof(key));
	fuzz_bytes(in, sums, sizeof(sums));
	len = wire_enc_put(built, &p, key, sums);
	FUZZ_CHECK(!len == !is_possible, "%u checksums, key of %u: %u", n, n_key, len);
	if (!len)
		return;
	FUZZ_CHECK(wire_meta_check(built, len) == RY_OK, "%u checksums, key of %u", n, n_key);
	FUZZ_CHECK(!memcmp(back->put_id, p.put_id, sizeof(p) - sizeof(p.h)), "fixed part");
	FUZZ_CHECK(!memcmp(wire_put_key(back), key, n_key), "key");
	FUZZ_CHECK(!memcmp(wire_put_checksums(back), sums, n * sizeof(*sums)), "checksums");
}
