/* SPDX-License-Identifier: BSD-3-Clause */
/* Data messages and TCP frames: golden bytes and bounds. */
#include "wire/wire.h"

#include <stdalign.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include <railyard/status.h>

struct buf {
	alignas(8) uint8_t b[WIRE_MSG_BYTES + 8];
};

/* "01 00 ..." -> bytes; returns how many. */
static uint32_t from_hex(const char *hex, uint8_t *out)
{
	uint32_t n = 0;
	unsigned v;
	int used;

	while (sscanf(hex, " %2x%n", &v, &used) == 1) {
		out[n++] = (uint8_t)v;
		hex += used;
	}
	return n;
}

static void expect_golden(const void *got, uint32_t len, const char *hex)
{
	uint8_t want[WIRE_MSG_BYTES];

	cr_assert_eq(from_hex(hex, want), len);
	for (uint32_t i = 0; i < len; i++)
		cr_assert_eq(((const uint8_t *)got)[i], want[i], "byte %u: %02x instead of %02x", i,
			((const uint8_t *)got)[i], want[i]);
	cr_assert_eq(wire_msg_check(got, len), RY_OK);
}

static struct wire_msg head(uint8_t type, uint16_t len)
{
	return (struct wire_msg){.type = type, .len_bytes = len, .request_id = 0x1122334455667788};
}

/* A valid READ of n parts that follow each other. */
static uint32_t make_read(struct buf *b, uint16_t n)
{
	struct wire_read *m = (void *)b->b;

	memset(b, 0, sizeof(*b));
	m->h = head(WIRE_READ, (uint16_t)(sizeof(*m) + n * sizeof(struct wire_part)));
	m->handle = 0xa1a2a3a4a5a6a7a8;
	m->generation = 3;
	m->ttl_us = 2000000;
	m->key = 0x0102ff05;
	m->n_parts = n;
	for (uint16_t i = 0; i < n; i++)
		wire_read_parts(m)[i] = (struct wire_part){.stripe_idx = 7u + i,
			.len_bytes = 0x100000,
			.offset = 0x200000,
			.window_offset = i * 0x100000u};
	return m->h.len_bytes;
}

Test(wire_msg, golden_read)
{
	struct buf b;
	uint32_t len = make_read(&b, 2);

	expect_golden(b.b, len,
		"01 00 60 00 00 00 00 00  88 77 66 55 44 33 22 11"
		"a8 a7 a6 a5 a4 a3 a2 a1  03 00 00 00 00 00 00 00"
		"80 84 1e 00 05 ff 02 01  02 00 00 00 00 00 00 00"
		"07 00 00 00 00 00 10 00  00 00 20 00 00 00 00 00  00 00 00 00 00 00 00 00"
		"08 00 00 00 00 00 10 00  00 00 20 00 00 00 00 00  00 00 10 00 00 00 00 00");
}

Test(wire_msg, golden_pull)
{
	struct buf b;
	uint32_t len = make_read(&b, 1);

	((struct wire_msg *)b.b)->type = WIRE_PULL;
	expect_golden(b.b, len,
		"02 00 48 00 00 00 00 00  88 77 66 55 44 33 22 11"
		"a8 a7 a6 a5 a4 a3 a2 a1  03 00 00 00 00 00 00 00"
		"80 84 1e 00 05 ff 02 01  01 00 00 00 00 00 00 00"
		"07 00 00 00 00 00 10 00  00 00 20 00 00 00 00 00  00 00 00 00 00 00 00 00");
}

Test(wire_msg, golden_done)
{
	struct wire_done m = {
		.h = head(WIRE_DONE, sizeof(m)),
		.status = RY_ERR_STALE_GENERATION,
		.credits = 1,
		.generation = 9,
		.bytes = 0x123456789a,
		.storage_ns = 0x10,
		.queue_ns = 0x20,
	};

	expect_golden(&m, sizeof(m),
		"03 00 38 00 00 00 00 00  88 77 66 55 44 33 22 11"
		"08 00 00 00 01 00 00 00  09 00 00 00 00 00 00 00"
		"9a 78 56 34 12 00 00 00  10 00 00 00 00 00 00 00  20 00 00 00 00 00 00 00");
}

Test(wire_msg, golden_cancel)
{
	struct wire_cancel m = {head(WIRE_CANCEL, sizeof(m))};

	expect_golden(&m, sizeof(m), "04 00 10 00 00 00 00 00  88 77 66 55 44 33 22 11");
}

Test(wire_msg, golden_busy)
{
	struct wire_busy m = {head(WIRE_BUSY, sizeof(m)), 200, 1};

	expect_golden(&m, sizeof(m), "05 00 18 00 00 00 00 00  88 77 66 55 44 33 22 11  c8 00 00 00 01 00 00 00");
}

Test(wire_msg, golden_ping_and_pong)
{
	struct wire_ping ping = {head(WIRE_PING, sizeof(ping)), 0x01020304, 65536, 0x1112131415161718,
		0x2122232425262728, 0x31323334, 0};
	struct wire_msg pong = head(WIRE_PONG, sizeof(pong));

	expect_golden(&ping, sizeof(ping),
		"06 00 30 00 00 00 00 00  88 77 66 55 44 33 22 11  04 03 02 01 00 00 01 00"
		"18 17 16 15 14 13 12 11  28 27 26 25 24 23 22 21  34 33 32 31 00 00 00 00");
	expect_golden(&pong, sizeof(pong), "07 00 10 00 00 00 00 00  88 77 66 55 44 33 22 11");
}

Test(wire_msg, golden_grant_and_pulled)
{
	struct wire_grant grant = {
		head(WIRE_GRANT, sizeof(grant)), 0x01020304, 0x05060708, 0x1112131415161718, 0x2122232425262728};
	struct wire_pulled pulled = {head(WIRE_PULLED, sizeof(pulled)), 0x05060708, 0};

	expect_golden(&grant, sizeof(grant),
		"08 00 28 00 00 00 00 00  88 77 66 55 44 33 22 11  04 03 02 01 08 07 06 05"
		"18 17 16 15 14 13 12 11  28 27 26 25 24 23 22 21");
	expect_golden(
		&pulled, sizeof(pulled), "09 00 18 00 00 00 00 00  88 77 66 55 44 33 22 11  08 07 06 05 00 00 00 00");
}

/* Key and bytes of a GRANT are the rail's to judge: it knows what it asked for. */
Test(wire_msg, grant_and_pulled_have_reserved_bits)
{
	struct wire_grant grant = {.h = head(WIRE_GRANT, sizeof(grant))};
	struct wire_pulled pulled = {head(WIRE_PULLED, sizeof(pulled)), UINT32_MAX, 0};

	cr_assert_eq(wire_msg_check(&grant, sizeof(grant)), RY_OK);
	cr_assert_eq(wire_msg_check(&pulled, sizeof(pulled)), RY_OK);
	for (unsigned bit = 0; bit < 32; bit++) {
		pulled.reserved = 1u << bit;
		cr_assert_eq(wire_msg_check(&pulled, sizeof(pulled)), RY_ERR_PROTOCOL, "bit %u", bit);
		pulled.reserved = 0;
		grant.h.reserved = pulled.h.reserved = 1u << bit;
		cr_assert_eq(wire_msg_check(&grant, sizeof(grant)), RY_ERR_PROTOCOL, "bit %u", bit);
		cr_assert_eq(wire_msg_check(&pulled, sizeof(pulled)), RY_ERR_PROTOCOL, "bit %u", bit);
		grant.h.reserved = pulled.h.reserved = 0;
	}
	grant.h.flags = pulled.h.flags = WIRE_F_START;
	cr_assert_eq(wire_msg_check(&grant, sizeof(grant)), RY_ERR_PROTOCOL);
	cr_assert_eq(wire_msg_check(&pulled, sizeof(pulled)), RY_ERR_PROTOCOL);
}

Test(wire_msg, golden_frames)
{
	struct wire_frame msg = {.len_bytes = 16, .type = WIRE_FRAME_MSG};
	struct wire_frame data = {.len_bytes = 0x40000, .type = WIRE_FRAME_DATA, .key = 0x01020304, .offset = 0x100};
	uint8_t want[24];

	cr_assert_eq(from_hex("10 00 00 00 01 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00", want), 24);
	cr_assert(memcmp(&msg, want, 24) == 0);
	cr_assert_eq(from_hex("00 00 04 00 02 00 00 00 04 03 02 01 00 00 00 00 00 01 00 00 00 00 00 00", want), 24);
	cr_assert(memcmp(&data, want, 24) == 0);
	cr_assert_eq(wire_frame_check(&msg), RY_OK);
	cr_assert_eq(wire_frame_check(&data), RY_OK);
}

Test(wire_msg, every_number_of_parts)
{
	struct buf b;

	for (uint16_t n = 1; n <= WIRE_PARTS_MAX; n++)
		cr_assert_eq(wire_msg_check(b.b, make_read(&b, n)), RY_OK, "%u parts", n);
	cr_assert_eq(wire_msg_check(b.b, make_read(&b, 0)), RY_ERR_PROTOCOL);
	cr_assert_eq(wire_msg_check(b.b, make_read(&b, WIRE_PARTS_MAX + 1)), RY_ERR_PROTOCOL);
}

Test(wire_msg, count_must_match_the_length)
{
	struct buf b;
	uint32_t len = make_read(&b, 3);
	struct wire_read *m = (struct wire_read *)b.b;
	uint16_t bad[] = {0, 2, 4, 8, 9, 255, 65535};

	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		m->n_parts = bad[i];
		cr_assert_eq(wire_msg_check(b.b, len), RY_ERR_PROTOCOL, "%u", bad[i]);
	}
}

Test(wire_msg, header_bounds)
{
	struct buf b;
	uint32_t len = make_read(&b, 1);
	struct wire_msg *h = (struct wire_msg *)b.b;

	h->flags = WIRE_F_START;
	cr_assert_eq(wire_msg_check(b.b, len), RY_OK);
	h->type = WIRE_PULL;
	cr_assert_eq(wire_msg_check(b.b, len), RY_ERR_PROTOCOL, "only a READ starts");
	h->type = WIRE_READ;
	h->flags = 2;
	cr_assert_eq(wire_msg_check(b.b, len), RY_ERR_PROTOCOL);
	h->flags = 0;
	h->reserved = 1;
	cr_assert_eq(wire_msg_check(b.b, len), RY_ERR_PROTOCOL);
	h->reserved = 0;
	h->len_bytes++;
	cr_assert_eq(wire_msg_check(b.b, len), RY_ERR_PROTOCOL);
	cr_assert_eq(wire_msg_check(b.b, len + 1), RY_ERR_PROTOCOL);
	h->len_bytes--;
	cr_assert_eq(wire_msg_check(b.b, len), RY_OK);
}

Test(wire_msg, unknown_types_are_refused)
{
	uint8_t known[] = {WIRE_CANCEL, WIRE_PONG}; /* the two that are a header alone */

	for (unsigned t = 0; t < 256; t++) {
		struct wire_msg m = head((uint8_t)t, sizeof(m));
		int want = t == known[0] || t == known[1] ? RY_OK : RY_ERR_PROTOCOL;

		cr_assert_eq(wire_msg_check(&m, sizeof(m)), want, "type %u", t);
	}
}

Test(wire_msg, parts_have_bounds)
{
	struct buf b;
	uint32_t len = make_read(&b, 2);
	struct wire_part *p = wire_read_parts((struct wire_read *)b.b);
	struct wire_part good = p[1];
	struct wire_part bad[] = {
		{good.stripe_idx, 0, good.offset, good.window_offset},                      /* empty */
		{good.stripe_idx, RY_STRIPE_MAX_BYTES + 1, 0, good.window_offset},          /* too long */
		{RY_STRIPES_MAX, good.len_bytes, good.offset, good.window_offset},          /* no such stripe */
		{0, good.len_bytes, RY_STRIPE_MAX_BYTES - 0xfffff, good.window_offset},     /* past any stripe */
		{0, good.len_bytes, UINT64_MAX, good.window_offset},                        /* overflow */
		{0, good.len_bytes, good.offset, good.window_offset - 1},                   /* overlaps the first */
		{0, good.len_bytes, good.offset, 0},                                        /* the same place */
		{0, good.len_bytes, good.offset, RY_STRIPE_MAX_BYTES - good.len_bytes + 1}, /* past any window */
		{0, good.len_bytes, good.offset, INT64_MAX - 1},                            /* the same, an address */
		{0, good.len_bytes, good.offset, UINT64_MAX - 1},                           /* overflow */
	};

	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		p[1] = bad[i];
		cr_assert_eq(wire_msg_check(b.b, len), RY_ERR_PROTOCOL, "case %u", i);
	}
	p[1] = (struct wire_part){RY_STRIPES_MAX - 1, 1, RY_STRIPE_MAX_BYTES - 1,
		RY_STRIPE_MAX_BYTES - 1}; /* the last byte of everything */
	cr_assert_eq(wire_msg_check(b.b, len), RY_OK);
	/* Without windows a window starts at an address, and is no longer for that. */
	p[0].window_offset = 0x7f0123456000;
	p[1].window_offset = 0x7f0123456000 + RY_STRIPE_MAX_BYTES - 1;
	cr_assert_eq(wire_msg_check(b.b, len), RY_OK);
	p[1].window_offset++;
	cr_assert_eq(wire_msg_check(b.b, len), RY_ERR_PROTOCOL);
	p[1] = good;
	len = make_read(&b, 1);
	p[0].window_offset = INT64_MAX - p[0].len_bytes;
	cr_assert_eq(wire_msg_check(b.b, len), RY_OK);
	p[0].window_offset++;
	cr_assert_eq(wire_msg_check(b.b, len), RY_ERR_PROTOCOL);
}

Test(wire_msg, reserved_words_of_a_read)
{
	struct buf b;
	uint32_t len = make_read(&b, 1);

	for (int i = 0; i < 3; i++) {
		((struct wire_read *)b.b)->reserved[i] = 1;
		cr_assert_eq(wire_msg_check(b.b, len), RY_ERR_PROTOCOL);
		((struct wire_read *)b.b)->reserved[i] = 0;
	}
	cr_assert_eq(wire_msg_check(b.b, len), RY_OK);
}

Test(wire_msg, done_status_and_ping_length_have_bounds)
{
	struct wire_done d = {.h = head(WIRE_DONE, sizeof(d)), .status = RY_STATUS_MAX_ - 1};
	struct wire_ping p = {.h = head(WIRE_PING, sizeof(p)), .len_bytes = WIRE_DATA_MAX_BYTES};

	cr_assert_eq(wire_msg_check(&d, sizeof(d)), RY_OK);
	d.status = RY_STATUS_MAX_;
	cr_assert_eq(wire_msg_check(&d, sizeof(d)), RY_ERR_PROTOCOL);
	cr_assert_eq(wire_msg_check(&p, sizeof(p)), RY_OK);
	p.len_bytes++;
	cr_assert_eq(wire_msg_check(&p, sizeof(p)), RY_ERR_PROTOCOL);
	p.len_bytes = 0;
	cr_assert_eq(wire_msg_check(&p, sizeof(p)), RY_ERR_PROTOCOL);
	p.len_bytes = 1;
	p.reserved = 1;
	cr_assert_eq(wire_msg_check(&p, sizeof(p)), RY_ERR_PROTOCOL);
}

Test(wire_msg, frames_have_bounds)
{
	struct wire_frame bad[] = {
		{.len_bytes = 0, .type = WIRE_FRAME_MSG},
		{.len_bytes = WIRE_MSG_BYTES + 1, .type = WIRE_FRAME_MSG},
		{.len_bytes = 16, .type = WIRE_FRAME_MSG, .key = 1},
		{.len_bytes = 16, .type = WIRE_FRAME_MSG, .offset = 1},
		{.len_bytes = 0, .type = WIRE_FRAME_DATA},
		{.len_bytes = WIRE_DATA_MAX_BYTES + 1, .type = WIRE_FRAME_DATA},
		{.len_bytes = 1, .type = WIRE_FRAME_DATA, .offset = RY_STRIPE_MAX_BYTES},
		{.len_bytes = 1, .type = WIRE_FRAME_DATA, .offset = UINT64_MAX},
		{.len_bytes = 1, .type = WIRE_FRAME_DATA, .reserved = {1}},
		{.len_bytes = 1, .type = WIRE_FRAME_DATA, .reserved = {0, 1}},
		{.len_bytes = 1, .type = WIRE_FRAME_DATA, .reserved = {0, 0, 1}},
		{.len_bytes = 1, .type = WIRE_FRAME_DATA, .reserved2 = 1},
		{.len_bytes = 1, .type = 0},
		{.len_bytes = 1, .type = 3},
		{.len_bytes = 1, .type = 255},
	};
	struct wire_frame good[] = {
		{.len_bytes = WIRE_MSG_BYTES, .type = WIRE_FRAME_MSG},
		{.len_bytes = WIRE_DATA_MAX_BYTES, .type = WIRE_FRAME_DATA},
		{.len_bytes = 1, .type = WIRE_FRAME_DATA, .offset = RY_STRIPE_MAX_BYTES - 1, .key = UINT32_MAX},
	};

	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		cr_assert_eq(wire_frame_check(&bad[i]), RY_ERR_PROTOCOL, "case %u", i);
	for (unsigned i = 0; i < sizeof(good) / sizeof(good[0]); i++)
		cr_assert_eq(wire_frame_check(&good[i]), RY_OK, "case %u", i);
}

/* The message in a buffer of exactly its length, so that a sanitizer sees a read past its end. */
static int check_tight(const uint8_t *msg, uint32_t len)
{
	uint8_t *copy = malloc(len ? len : 1);
	int rc;

	memcpy(copy, msg, len);
	rc = wire_msg_check(copy, len);
	free(copy);
	return rc;
}

/* With the header's length as it is, and as it would be. */
Test(wire_msg, a_read_has_one_length)
{
	struct buf b;

	for (uint16_t n = 1; n <= WIRE_PARTS_MAX; n++) {
		uint32_t len = make_read(&b, n);
		struct wire_msg *h = (struct wire_msg *)b.b;

		for (uint32_t l = 0; l <= sizeof(b.b); l++) {
			if (l == len)
				continue;
			cr_assert_eq(check_tight(b.b, l), RY_ERR_PROTOCOL, "length %u of %u", l, len);
			h->len_bytes = (uint16_t)l;
			cr_assert_eq(check_tight(b.b, l), RY_ERR_PROTOCOL, "header's length %u of %u", l, len);
			h->len_bytes = (uint16_t)len;
		}
	}
}

Test(wire_msg, every_other_type_has_one_length)
{
	const uint32_t lengths[] = {[WIRE_DONE] = 56,
		[WIRE_CANCEL] = 16,
		[WIRE_BUSY] = 24,
		[WIRE_PING] = 48,
		[WIRE_PONG] = 16,
		[WIRE_GRANT] = 40,
		[WIRE_PULLED] = 24,
		[WIRE_PULLED + 1] = 0};
	struct buf b = {0};

	for (uint8_t type = WIRE_DONE; type <= WIRE_PULLED + 1; type++) {
		((struct wire_ping *)b.b)->len_bytes = type == WIRE_PING;
		for (uint32_t l = 0; l <= WIRE_MSG_BYTES + 8; l++) {
			struct wire_msg h = head(type, (uint16_t)l);

			memcpy(b.b, &h, sizeof(h));
			cr_assert_eq(check_tight(b.b, l), l && l == lengths[type] ? RY_OK : RY_ERR_PROTOCOL,
				"type %u length %u", type, l);
		}
	}
}

/* Any one byte of a valid message at any value: no crash, and never a length other than the real one. */
Test(wire_msg, flipped_bytes_never_change_the_length)
{
	struct buf b;
	uint32_t len = make_read(&b, WIRE_PARTS_MAX);

	for (uint32_t i = 0; i < len; i++) {
		uint8_t was = b.b[i];

		for (unsigned v = 0; v < 256; v++) {
			struct wire_read *m = (struct wire_read *)b.b;

			b.b[i] = (uint8_t)v;
			if (wire_msg_check(b.b, len) == RY_OK) {
				cr_assert_eq(m->h.len_bytes, len);
				cr_assert(m->h.type == WIRE_READ || m->h.type == WIRE_PULL);
				cr_assert_eq(m->n_parts, WIRE_PARTS_MAX);
			}
			cr_assert_eq(wire_msg_check(b.b, len - 1), RY_ERR_PROTOCOL);
		}
		b.b[i] = was;
	}
}
