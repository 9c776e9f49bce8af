/* SPDX-License-Identifier: BSD-3-Clause */
/* Metadata messages: golden bytes, bounds, roundtrips. */
#include "wire/wire.h"

#include <stdalign.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include <railyard/ring.h>
#include <railyard/status.h>

static alignas(8) uint8_t buf[WIRE_META_MAX_BYTES + 64];
static uint64_t sums[WIRE_CHECKSUMS_PER_PAGE + 1];
static uint8_t key[RY_KEY_MAX_BYTES + 1];

#define ID 0x1122334455667788ull
#define ID_HEX "88 77 66 55 44 33 22 11 "

static void expect_golden(uint32_t len, const char *hex)
{
	unsigned v;
	int used;
	uint32_t n = 0;

	for (; sscanf(hex, " %2x%n", &v, &used) == 1; hex += used, n++)
		cr_assert_eq(buf[n], v, "byte %u: %02x instead of %02x", n, buf[n], v);
	cr_assert_eq(n, len);
	cr_assert_eq(wire_meta_check(buf, len), RY_OK);
}

static void expect_refused(uint32_t len, const char *what)
{
	cr_assert_eq(wire_meta_check(buf, len), RY_ERR_PROTOCOL, "%s", what);
}

/* One byte of a valid message in buf set to a value that must be refused. */
static void refuse_byte(uint32_t len, size_t at, uint8_t value)
{
	uint8_t was = buf[at];

	buf[at] = value;
	cr_assert_eq(wire_meta_check(buf, len), RY_ERR_PROTOCOL, "byte %zu = %u", at, value);
	buf[at] = was;
	cr_assert_eq(wire_meta_check(buf, len), RY_OK);
}

static uint32_t make_put(uint16_t key_bytes, uint32_t n_checksums)
{
	struct wire_put p = {
		.h = {.flags = RY_F_PUT_BEGIN | RY_F_IF_ABSENT, .request_id = ID},
		.put_id = {0x0102, 0x0304},
		.size_bytes = 0x10001,
		.ttl_ns = 5,
		.source_handle = n_checksums ? 0x77 : 0,
		.source_generation = 2,
		.part_bytes = n_checksums ? (n_checksums - 1) * 0x10000ull + 1 : 0,
		.stripe_bytes = 0x10000,
		.n_checksums = n_checksums,
		.key_bytes = key_bytes,
	};

	return wire_enc_put(buf, &p, key, sums);
}

static uint32_t make_lookup_reply(uint32_t first, uint32_t n, uint32_t count)
{
	struct wire_lookup_reply r = {
		.h = {.request_id = ID},
		.handle = 0x11,
		.generation = 0x22,
		.etag = 0x33,
		.layout_version = 1,
		.size_bytes = count * 0x10000ull,
		.stripe_bytes = 0x10000,
		.stripe_count = count,
		.first_stripe = first,
		.n_checksums = n,
		.has_checksums = 1,
	};

	return wire_enc_lookup_reply(buf, &r, sums);
}

/* LIST_REPLY with entries of these key lengths. */
static uint32_t make_list_reply(const uint16_t *key_bytes, uint32_t n)
{
	struct wire_list_reply *m = (struct wire_list_reply *)buf;
	uint32_t bytes = 0;

	memset(buf, 0, sizeof(buf));
	for (uint32_t i = 0; i < n; i++) {
		struct ry_list_entry e = {.size_bytes = i, .generation = 1, .key_bytes = key_bytes[i]};

		memcpy(buf + sizeof(*m) + bytes, &e, sizeof(e));
		memset(buf + sizeof(*m) + bytes + sizeof(e), 'k', key_bytes[i]);
		bytes += (uint32_t)sizeof(e) + (key_bytes[i] + 7u) / 8 * 8;
	}
	wire_enc_fixed(buf, WIRE_META_LIST_REPLY, sizeof(*m), ID, RY_OK);
	m->h.len_bytes += bytes;
	m->n_entries = n;
	m->entries_bytes = bytes;
	return sizeof(*m) + bytes;
}

Test(wire_meta, golden_lookup)
{
	expect_golden(wire_enc_lookup(buf, ID, "abc", 3, 7),
		"1f 00 00 00 01 00 00 00 00 00 00 00 00 00 00 00" ID_HEX "07 00 00 00 03 00 00 00 61 62 63");
}

Test(wire_meta, golden_lookup_reply)
{
	sums[0] = 0x0807060504030201;
	expect_golden(make_lookup_reply(2, 1, 3),
		"64 00 00 00 02 00 00 00 00 00 00 00 00 00 00 00" ID_HEX
		"11 00 00 00 00 00 00 00 22 00 00 00 00 00 00 00 33 00 00 00 00 00 00 00 01 00 00 00 00 00 00 00"
		"00 00 03 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 01 00 03 00 00 00 02 00 00 00 01 00 00 00"
		"01 00 00 00 00 00 00 00 01 02 03 04 05 06 07 08");
}

Test(wire_meta, golden_put)
{
	memcpy(key, "abc", 3);
	sums[0] = 0x0807060504030201;
	sums[1] = 0xff;
	expect_golden(make_put(3, 2),
		"74 00 00 00 03 00 00 00 00 00 00 00 06 00 00 00" ID_HEX
		"02 01 00 00 00 00 00 00 04 03 00 00 00 00 00 00 01 00 01 00 00 00 00 00 05 00 00 00 00 00 00 00"
		"77 00 00 00 00 00 00 00 02 00 00 00 00 00 00 00 01 00 01 00 00 00 00 00"
		"00 00 01 00 00 00 00 00 02 00 00 00 03 00 00 00"
		"61 62 63 00 00 00 00 00 01 02 03 04 05 06 07 08 ff 00 00 00 00 00 00 00");
}

Test(wire_meta, golden_put_done)
{
	uint32_t len = wire_enc_fixed(buf, WIRE_META_PUT_DONE, sizeof(struct wire_put_done), ID, RY_ERR_CHECKSUM);
	struct wire_put_done *m = (struct wire_put_done *)buf;
	char hex[1024] =
		"dc 00 00 00 04 00 00 00 07 00 00 00 00 00 00 00" ID_HEX
		"01 00 00 00 00 00 00 00 02 00 00 00 00 00 00 00 03 00 00 00 00 00 00 00 04 00 00 00 00 00 00 00"
		"01 00 00 00 00 00 00 00 61 62";

	m->put_id[0] = 1;
	m->put_id[1] = 2;
	m->generation = 3;
	m->bytes_so_far = 4;
	m->is_committed = 1;
	strcpy(m->cause, "ab");
	for (uint32_t i = 0; i < RY_CAUSE_MAX_BYTES - 2; i++)
		strcat(hex, " 00");
	expect_golden(len, hex);
}

Test(wire_meta, golden_delete_and_reply)
{
	expect_golden(wire_enc_delete(buf, ID, 5, "k", 1), "25 00 00 00 05 00 00 00 00 00 00 00 00 00 00 00" ID_HEX
							   "05 00 00 00 00 00 00 00 01 00 00 00 00 00 00 00 6b");
	wire_enc_fixed(buf, WIRE_META_DELETE_REPLY, sizeof(struct wire_delete_reply), ID, RY_OK);
	((struct wire_delete_reply *)buf)->generation = 5;
	expect_golden(32, "1c 00 00 00 06 00 00 00 00 00 00 00 00 00 00 00" ID_HEX "05 00 00 00 00 00 00 00");
}

Test(wire_meta, golden_list_and_reply)
{
	uint16_t keys[] = {3};

	expect_golden(wire_enc_list(buf, ID, 9, 100, "p/", 2), "26 00 00 00 07 00 00 00 00 00 00 00 00 00 00 00" ID_HEX
							       "09 00 00 00 00 00 00 00 64 00 00 00 02 00 00 00 70 2f");
	expect_golden(make_list_reply(keys, 1),
		"44 00 00 00 08 00 00 00 00 00 00 00 00 00 00 00" ID_HEX
		"00 00 00 00 00 00 00 00 01 00 00 00 20 00 00 00"
		"00 00 00 00 00 00 00 00 01 00 00 00 00 00 00 00 03 00 00 00 00 00 00 00 6b 6b 6b 00 00 00 00 00");
}

Test(wire_meta, golden_put_query_and_bye)
{
	const uint64_t put_id[2] = {1, 2};

	expect_golden(wire_enc_put_query(buf, ID, put_id, NULL, 0),
		"24 00 00 00 09 00 00 00 00 00 00 00 00 00 00 00" ID_HEX
		"01 00 00 00 00 00 00 00 02 00 00 00 00 00 00 00");
	expect_golden(wire_enc_put_query(buf, ID, put_id, "key", 3),
		"27 00 00 00 09 00 00 00 00 00 00 00 00 00 00 00" ID_HEX
		"01 00 00 00 00 00 00 00 02 00 00 00 00 00 00 00 6b 65 79");
	wire_enc_fixed(buf, WIRE_META_BYE, sizeof(struct wire_bye), 0, RY_OK);
	((struct wire_bye *)buf)->reason = WIRE_BYE_REBUILD;
	expect_golden(
		32, "1c 00 00 00 0c 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 02 00 00 00 00 00 00 00");
}

Test(wire_meta, the_key_of_a_put_query_has_a_limit)
{
	const uint64_t put_id[2] = {1, 2};
	uint32_t len = wire_enc_put_query(buf, ID, put_id, key, RY_KEY_MAX_BYTES);

	cr_assert_eq(len, sizeof(struct wire_put_query) + RY_KEY_MAX_BYTES);
	cr_assert_eq(wire_meta_check(buf, len), RY_OK);
	((struct wire_meta *)(void *)buf)->len_bytes++;
	cr_assert_eq(wire_meta_check(buf, len + 1), RY_ERR_PROTOCOL);
	cr_assert_eq(wire_enc_put_query(buf, ID, put_id, key, RY_KEY_MAX_BYTES + 1), 0);
}

static uint32_t make_qps(uint32_t n)
{
	struct wire_qps *m = (void *)buf;
	uint32_t len = wire_enc_fixed(buf, WIRE_META_QPS, sizeof(*m), 0, RY_OK);

	for (unsigned i = 0; i < sizeof(m->gid); i++)
		m->gid[i] = (uint8_t)(0xf0 + i);
	m->mtu_bytes = 1024;
	m->rd_atomic = 16;
	m->n_qps = n;
	m->flags = WIRE_QPS_GRANTS;
	for (unsigned i = 0; i < n && i < WIRE_QPS_MAX; i++) {
		m->qps[i].qp_num = 0x010203 + i;
		m->qps[i].psn = 0xffffff - i;
	}
	return len;
}

Test(wire_meta, golden_qps)
{
	expect_golden(make_qps(2), "74 00 00 00 0f 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00"
				   "f0 f1 f2 f3 f4 f5 f6 f7 f8 f9 fa fb fc fd fe ff"
				   "00 04 00 00 10 00 00 00 02 00 00 00 01 00 00 00"
				   "03 02 01 00 ff ff ff 00 04 02 01 00 fe ff ff 00"
				   "00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00"
				   "00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00"
				   "00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00");
}

Test(wire_meta, qps_bounds)
{
	uint32_t len = make_qps(2);
	struct wire_qps *m = (void *)buf;

	refuse_byte(len, offsetof(struct wire_qps, n_qps), 0);
	refuse_byte(len, offsetof(struct wire_qps, n_qps), 1); /* the second one is said and not counted */
	refuse_byte(len, offsetof(struct wire_qps, n_qps), WIRE_QPS_MAX + 1);
	refuse_byte(len, offsetof(struct wire_qps, n_qps) + 3, 1);
	refuse_byte(len, offsetof(struct wire_qps, flags), 3);
	refuse_byte(len, offsetof(struct wire_qps, flags) + 3, 0x80);
	refuse_byte(len, offsetof(struct wire_qps, rd_atomic), 0);
	refuse_byte(len, offsetof(struct wire_qps, mtu_bytes) + 1, 0);
	refuse_byte(len, offsetof(struct wire_qps, qps) + 3, 1); /* more than 24 bits, of the number */
	refuse_byte(len, offsetof(struct wire_qps, qps) + 7, 1); /* and of the PSN */
	refuse_byte(len, offsetof(struct wire_qps, qps) + 2 * sizeof(m->qps[0]), 1);
	refuse_byte(len, offsetof(struct wire_qps, qps) + sizeof(m->qps) - 2, 1);
	m->mtu_bytes = 256;
	m->flags = 0;
	cr_assert_eq(wire_meta_check(buf, len), RY_OK);
	for (uint32_t n = 1; n <= WIRE_QPS_MAX; n++)
		cr_assert_eq(wire_meta_check(buf, make_qps(n)), RY_OK, "%u QPs", n);
	for (uint32_t l = 0; l < sizeof(*m) + 64; l++) {
		len = make_qps(3);
		m->h.len_bytes = l - (uint32_t)sizeof(m->h.len_bytes);
		if (l != sizeof(*m))
			expect_refused(l, "another length");
	}
}

Test(wire_meta, golden_headers_alone)
{
	wire_enc_fixed(buf, WIRE_META_ERROR, sizeof(struct wire_meta), ID, RY_ERR_PROTOCOL);
	expect_golden(24, "14 00 00 00 0a 00 00 00 11 00 00 00 00 00 00 00" ID_HEX);
	wire_enc_fixed(buf, WIRE_META_READY, sizeof(struct wire_meta), ID, RY_OK);
	expect_golden(24, "14 00 00 00 0b 00 00 00 00 00 00 00 00 00 00 00" ID_HEX);
	wire_enc_fixed(buf, WIRE_META_KEEPALIVE, sizeof(struct wire_meta), ID, RY_OK);
	expect_golden(24, "14 00 00 00 0d 00 00 00 00 00 00 00 00 00 00 00" ID_HEX);
	wire_enc_fixed(buf, WIRE_META_KEEPALIVE_REPLY, sizeof(struct wire_meta), ID, RY_OK);
	expect_golden(24, "14 00 00 00 0e 00 00 00 00 00 00 00 00 00 00 00" ID_HEX);
}

Test(wire_meta, unknown_types_are_refused)
{
	for (unsigned t = 0; t < 65536; t++) {
		wire_enc_fixed(buf, (uint16_t)t, sizeof(struct wire_meta), ID, RY_OK);
		cr_assert_eq(wire_meta_check(buf, sizeof(struct wire_meta)),
			t == WIRE_META_READY || t == WIRE_META_KEEPALIVE || t == WIRE_META_KEEPALIVE_REPLY
				? RY_OK
				: RY_ERR_PROTOCOL,
			"type %u", t);
	}
}

Test(wire_meta, header_bounds)
{
	uint32_t len = wire_enc_lookup(buf, ID, "abc", 3, 0);

	refuse_byte(len, 0, (uint8_t)(len - 3)); /* len_bytes */
	refuse_byte(len, 3, 1);                  /* a length near 2^24 */
	refuse_byte(len, 6, 1);                  /* reserved */
	refuse_byte(len, 8, RY_ERR_INTERNAL);    /* a request has no status */
	refuse_byte(len, 12, RY_F_PUT_BEGIN);    /* no flags but on PUT */
	refuse_byte(len, 30, 1);                 /* reserved */
	refuse_byte(len, 26, 1);                 /* stripe 65536 */
	len = make_put(3, 1);
	refuse_byte(len, 12, RY_F_ONE_RAIL); /* not a PUT flag */
	((struct wire_meta *)buf)->avoid = 0x80000001u;
	cr_assert_eq(wire_meta_check(buf, len), RY_OK, "where other requests have a status of 0");
	cr_assert_eq(buf[8], 1);
	cr_assert_eq(buf[11], 0x80);
	len = wire_enc_fixed(buf, WIRE_META_ERROR, sizeof(struct wire_meta), ID, RY_ERR_BUSY);
	refuse_byte(len, 8, RY_OK); /* an ERROR that is none */
	refuse_byte(len, 8, RY_STATUS_MAX_);
	len = wire_enc_fixed(buf, WIRE_META_BYE, sizeof(struct wire_bye), ID, RY_OK);
	buf[24] = WIRE_BYE_SHUTDOWN;
	refuse_byte(len, 24, 0);
	refuse_byte(len, 24, WIRE_BYE_DRAIN + 1);
	refuse_byte(len, 28, 1);
}

Test(wire_meta, key_lengths)
{
	memset(key, 'k', sizeof(key));
	cr_assert_eq(wire_enc_lookup(buf, ID, key, 0, 0), 0);
	cr_assert_eq(wire_enc_lookup(buf, ID, key, RY_KEY_MAX_BYTES + 1, 0), 0);
	cr_assert_eq(wire_meta_check(buf, wire_enc_lookup(buf, ID, key, RY_KEY_MAX_BYTES, 0)), RY_OK);
	cr_assert_eq(wire_enc_delete(buf, ID, 0, key, 0), 0);
	cr_assert_eq(wire_enc_delete(buf, ID, 0, key, RY_KEY_MAX_BYTES + 1), 0);
	cr_assert_eq(wire_meta_check(buf, wire_enc_delete(buf, ID, 0, key, RY_KEY_MAX_BYTES)), RY_OK);
	cr_assert_eq(make_put(0, 1), 0);
	cr_assert_eq(make_put(RY_KEY_MAX_BYTES + 1, 1), 0);
	cr_assert_eq(wire_meta_check(buf, make_put(RY_KEY_MAX_BYTES, 1)), RY_OK);
	cr_assert_eq(wire_meta_check(buf, wire_enc_list(buf, ID, 0, 1, NULL, 0)), RY_OK);
	cr_assert_eq(wire_enc_list(buf, ID, 0, 1, key, RY_KEY_MAX_BYTES + 1), 0);
	cr_assert_eq(wire_meta_check(buf, wire_enc_list(buf, ID, 0, 1, key, RY_KEY_MAX_BYTES)), RY_OK);
}

/* What the encoders will not make, a peer may still send. */
Test(wire_meta, key_lengths_of_others)
{
	struct wire_lookup *l = (struct wire_lookup *)buf;
	struct wire_delete *d = (struct wire_delete *)buf;
	uint32_t len = wire_enc_lookup(buf, ID, key, RY_KEY_MAX_BYTES, 0);

	l->key_bytes++;
	l->h.len_bytes++;
	expect_refused(len + 1, "lookup key of 4097");
	wire_enc_lookup(buf, ID, key, 1, 0);
	l->key_bytes--;
	l->h.len_bytes--;
	expect_refused(sizeof(*l), "lookup key of 0");
	wire_enc_delete(buf, ID, 0, key, 1);
	d->key_bytes--;
	d->h.len_bytes--;
	expect_refused(sizeof(*d), "delete key of 0");
	len = wire_enc_delete(buf, ID, 0, key, 9);
	refuse_byte(len, offsetof(struct wire_delete, reserved), 1);
	refuse_byte(len, offsetof(struct wire_delete, reserved) + 5, 1);
	refuse_byte(len, offsetof(struct wire_delete, key_bytes), 8);
	len = wire_enc_list(buf, ID, 0, 1, key, 9);
	refuse_byte(len, offsetof(struct wire_list, prefix_bytes), 8);
	refuse_byte(len, offsetof(struct wire_list, reserved), 1);
}

Test(wire_meta, lookup_reply_bounds)
{
	struct wire_lookup_reply *m = (struct wire_lookup_reply *)buf;
	uint32_t len;

	len = make_lookup_reply(0, WIRE_CHECKSUMS_PER_PAGE, 65536);
	cr_assert_eq(wire_meta_check(buf, len), RY_OK);
	cr_assert(len <= WIRE_META_MAX_BYTES);
	cr_assert_eq(make_lookup_reply(0, WIRE_CHECKSUMS_PER_PAGE + 1, 65536), 0);
	expect_refused(make_lookup_reply(0, 3, 2), "more checksums than stripes");
	expect_refused(make_lookup_reply(2, 1, 2), "a page past the end");
	expect_refused(make_lookup_reply(UINT32_MAX, 1, 2), "overflow");
	expect_refused(make_lookup_reply(0, 0, 2), "an empty page before the end");
	cr_assert_eq(wire_meta_check(buf, make_lookup_reply(2, 0, 2)), RY_OK);
	cr_assert_eq(wire_meta_check(buf, make_lookup_reply(0, 0, 0)), RY_OK);
	len = make_lookup_reply(0, 2, 2);
	refuse_byte(len, offsetof(struct wire_lookup_reply, has_checksums), 0);
	refuse_byte(len, offsetof(struct wire_lookup_reply, has_checksums), 2);
	refuse_byte(len, offsetof(struct wire_lookup_reply, reserved), 1);
	refuse_byte(len, offsetof(struct wire_lookup_reply, n_checksums), 1);
	refuse_byte(len, offsetof(struct wire_meta, status), RY_ERR_NOT_FOUND);
	refuse_byte(len, offsetof(struct wire_meta, flags), 1);
	len = make_lookup_reply(0, 0, 2);
	m->has_checksums = 0;
	cr_assert_eq(wire_meta_check(buf, len), RY_OK);
	len = wire_enc_fixed(buf, WIRE_META_LOOKUP_REPLY, sizeof(*m), ID, RY_ERR_NOT_FOUND);
	cr_assert_eq(wire_meta_check(buf, len), RY_OK);
}

Test(wire_meta, put_bounds)
{
	struct wire_put *m = (struct wire_put *)buf;
	uint32_t len = make_put(3, 2);

	refuse_byte(len, offsetof(struct wire_put, reserved), 1);
	refuse_byte(len, sizeof(*m) + 3, 1); /* padding of the key */
	refuse_byte(len, sizeof(*m) + 7, 1);
	m->part_bytes = 0x20000;
	cr_assert_eq(wire_meta_check(buf, len), RY_OK);
	m->part_bytes = 0x20001;
	expect_refused(len, "more bytes than stripes");
	m->part_bytes = 0x10000;
	expect_refused(len, "more stripes than bytes");
	m->part_bytes = UINT64_MAX;
	expect_refused(len, "overflow");
	m->part_bytes = 0;
	expect_refused(len, "stripes of nothing");
	len = make_put(3, 0);
	cr_assert_eq(wire_meta_check(buf, len), RY_OK);
	m->source_handle = 1;
	expect_refused(len, "an empty part has no source");
	len = make_put(3, 1);
	m->stripe_bytes = 0;
	expect_refused(len, "stripes of no size");
	len = make_put(RY_KEY_MAX_BYTES, WIRE_CHECKSUMS_PER_PAGE);
	cr_assert_eq(wire_meta_check(buf, len), RY_OK);
	cr_assert(len <= WIRE_META_MAX_BYTES);
	cr_assert_eq(make_put(3, WIRE_CHECKSUMS_PER_PAGE + 1), 0);
}

Test(wire_meta, put_done_bounds)
{
	struct wire_put_done *m = (struct wire_put_done *)buf;
	uint32_t len = wire_enc_fixed(buf, WIRE_META_PUT_DONE, sizeof(*m), ID, RY_OK);

	refuse_byte(len, offsetof(struct wire_put_done, is_committed), 2);
	refuse_byte(len, offsetof(struct wire_put_done, reserved), 1);
	refuse_byte(len, offsetof(struct wire_put_done, reserved) + 6, 1);
	memset(m->cause, 'c', sizeof(m->cause));
	expect_refused(len, "a cause without end");
	m->cause[sizeof(m->cause) - 1] = 0;
	cr_assert_eq(wire_meta_check(buf, len), RY_OK);
}

Test(wire_meta, list_reply_bounds)
{
	uint16_t keys[] = {1, 8, 9, 4096, 3};
	uint16_t zero[] = {4, 0}, large[] = {4097};
	struct wire_list_reply *m = (struct wire_list_reply *)buf;
	uint32_t len = make_list_reply(keys, 5);

	cr_assert_eq(wire_meta_check(buf, len), RY_OK);
	refuse_byte(len, offsetof(struct wire_list_reply, n_entries), 4);
	refuse_byte(len, offsetof(struct wire_list_reply, n_entries), 6);
	refuse_byte(len, offsetof(struct wire_list_reply, entries_bytes), buf[36] ^ 8);
	refuse_byte(len, sizeof(*m) + offsetof(struct ry_list_entry, key_bytes), 0);
	refuse_byte(len, sizeof(*m) + offsetof(struct ry_list_entry, key_bytes), 9);
	refuse_byte(len, sizeof(*m) + offsetof(struct ry_list_entry, reserved), 1);
	refuse_byte(len, sizeof(*m) + sizeof(struct ry_list_entry) + 1, 1); /* padding */
	expect_refused(make_list_reply(zero, 2), "an empty key");
	expect_refused(make_list_reply(large, 1), "a key of 4097");
	cr_assert_eq(wire_meta_check(buf, make_list_reply(keys, 0)), RY_OK);
	len = make_list_reply(keys, 1); /* a last entry that is cut */
	m->h.len_bytes -= 8;
	m->entries_bytes -= 8;
	expect_refused(len - 8, "cut entry");
}

Test(wire_meta, larger_than_a_buffer_is_refused)
{
	struct wire_meta *h = (struct wire_meta *)buf;

	cr_assert_eq(wire_enc_fixed(buf, WIRE_META_READY, WIRE_META_MAX_BYTES + 1, ID, RY_OK), 0);
	cr_assert_eq(wire_enc_fixed(buf, WIRE_META_READY, sizeof(*h) - 1, ID, RY_OK), 0);
	wire_enc_fixed(buf, WIRE_META_LIST_REPLY, sizeof(struct wire_list_reply), ID, RY_OK);
	h->len_bytes = WIRE_META_MAX_BYTES + 8 - 4;
	expect_refused(WIRE_META_MAX_BYTES + 8, "64 KiB + 8");
}

Test(wire_meta, roundtrips)
{
	for (size_t i = 0; i < sizeof(key); i++)
		key[i] = (uint8_t)(i * 31);
	for (size_t i = 0; i < WIRE_CHECKSUMS_PER_PAGE; i++)
		sums[i] = i * 0x9e3779b97f4a7c15;
	for (uint16_t n = 1; n < 40; n++) {
		cr_assert_eq(wire_meta_check(buf, wire_enc_lookup(buf, ID, key, n, n)), RY_OK);
		cr_assert(memcmp(wire_lookup_key((void *)buf), key, n) == 0);
		cr_assert_eq(wire_meta_check(buf, wire_enc_delete(buf, ID, n, key, n)), RY_OK);
		cr_assert(memcmp(wire_delete_key((void *)buf), key, n) == 0);
		cr_assert_eq(wire_meta_check(buf, wire_enc_list(buf, ID, n, n, key, n)), RY_OK);
		cr_assert(memcmp(wire_list_prefix((void *)buf), key, n) == 0);
		cr_assert_eq(wire_meta_check(buf, make_put(n, n)), RY_OK);
		cr_assert(memcmp(wire_put_key((void *)buf), key, n) == 0);
		cr_assert(memcmp(wire_put_checksums((void *)buf), sums, n * sizeof(sums[0])) == 0);
		cr_assert_eq(wire_meta_check(buf, make_lookup_reply(n, n, 2u * n)), RY_OK);
		cr_assert(memcmp(wire_lookup_checksums((void *)buf), sums, n * sizeof(sums[0])) == 0);
	}
}

/* In a buffer of exactly its length, so that a sanitizer sees a read past its end. */
static int check_tight(uint32_t len)
{
	uint8_t *copy = aligned_alloc(8, (len + 15u) & ~7u);
	uint8_t *at = copy;
	int rc;

	memcpy(at, buf, len);
	memset(at + len, 0xff, ((len + 15u) & ~7u) - len);
	rc = wire_meta_check(at, len);
	free(copy);
	return rc;
}

/* The message in buf at every length but its own is refused, with its length prefix as it is and as it would be. */
static void mangle(uint32_t len)
{
	struct wire_meta *h = (struct wire_meta *)buf;

	cr_assert_eq(check_tight(len), RY_OK);
	for (uint32_t l = 0; l < len + 20; l++) {
		if (l == len)
			continue;
		cr_assert_eq(check_tight(l), RY_ERR_PROTOCOL, "type %u: length %u of %u", h->type, l, len);
		h->len_bytes = l - 4;
		cr_assert_eq(check_tight(l), RY_ERR_PROTOCOL, "type %u: prefix %u of %u", h->type, l, len);
		h->len_bytes = len - 4;
	}
	for (uint32_t i = 0; i < len; i++) {
		uint8_t was = buf[i];

		for (unsigned v = 0; v < 256; v++) {
			buf[i] = (uint8_t)v;
			if (wire_meta_check(buf, len) == RY_OK)
				cr_assert_eq(h->len_bytes, len - 4);
			cr_assert_eq(wire_meta_check(buf, len - 1), RY_ERR_PROTOCOL);
		}
		buf[i] = was;
	}
}

Test(wire_meta, every_length_and_every_byte)
{
	uint16_t keys[] = {5, 9, 16};
	const struct {
		uint16_t type;
		uint32_t bytes;
	} fixed[] = {
		{WIRE_META_PUT_DONE, sizeof(struct wire_put_done)},
		{WIRE_META_DELETE_REPLY, sizeof(struct wire_delete_reply)},
		{WIRE_META_READY, sizeof(struct wire_meta)},
		{WIRE_META_KEEPALIVE, sizeof(struct wire_meta)},
		{WIRE_META_KEEPALIVE_REPLY, sizeof(struct wire_meta)},
	};

	mangle(wire_enc_lookup(buf, ID, "some key", 8, 0));
	mangle(make_lookup_reply(0, 5, 9));
	memset(key, 'k', 11);
	mangle(make_put(11, 5));
	mangle(wire_enc_delete(buf, ID, 1, "some key", 8));
	mangle(wire_enc_list(buf, ID, 1, 10, "prefix", 6));
	mangle(make_list_reply(keys, 3));
	for (unsigned i = 0; i < sizeof(fixed) / sizeof(fixed[0]); i++)
		mangle(wire_enc_fixed(buf, fixed[i].type, fixed[i].bytes, ID, RY_OK));
	mangle(wire_enc_fixed(buf, WIRE_META_ERROR, sizeof(struct wire_meta), ID, RY_ERR_VERSION));
	wire_enc_fixed(buf, WIRE_META_BYE, sizeof(struct wire_bye), ID, RY_OK);
	((struct wire_bye *)buf)->reason = WIRE_BYE_IDLE;
	mangle(sizeof(struct wire_bye));
	mangle(make_qps(5));
}
