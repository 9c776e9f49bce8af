/* SPDX-License-Identifier: BSD-3-Clause */
#include "../support/hello.h"
#include "wire/wire.h"

#include <string.h>

#include <criterion/criterion.h>

#include <railyard/status.h>

static struct wire_hello make_hello(void)
{
	struct wire_hello h = hello_of(WIRE_CONN_BOOTSTRAP, "n0");

	h.minor = WIRE_MINOR;
	h.rail_idx = 1;
	h.node_id = 0xa0a1a2a3a4a5a6a7;
	h.incarnation = 0xb0b1b2b3b4b5b6b7;
	h.n_qps = 2;
	h.read_credits = 24;
	memcpy(h.rail_name, "r1", 2);
	return h;
}

Test(wire_hello, golden)
{
	struct wire_hello h = make_hello();
	const uint8_t want[] = {0x79, 0x61, 0x72, 0x64, 1, 0, 0, 0, 1, 0, 1, 0, 1, 0, 0, 0, /* fixed */
		0xa7, 0xa6, 0xa5, 0xa4, 0xa3, 0xa2, 0xa1, 0xa0, 0xb7, 0xb6, 0xb5, 0xb4, 0xb3, 0xb2, 0xb1,
		0xb0,                                            /* ids */
		0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 24, 0, /* token */
		0, 4, 0, 0, 8, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 'n', '0'};

	cr_assert_eq(wire_hello_check(&h), RY_OK);
	cr_assert(memcmp(&h, want, sizeof(want)) == 0);
	cr_assert(memcmp((uint8_t *)&h + 96, "r1", 3) == 0);
	for (size_t i = 99; i < sizeof(h); i++)
		cr_assert_eq(((uint8_t *)&h)[i], 0);
}

Test(wire_hello, another_major_is_a_version_error_whatever_follows)
{
	struct wire_hello h = make_hello();

	for (uint32_t v = 0; v < 65536; v++) {
		h.major = (uint16_t)v;
		cr_assert_eq(wire_hello_check(&h), v == WIRE_MAJOR ? RY_OK : RY_ERR_VERSION);
	}
	memset((uint8_t *)&h + 8, 0xff, sizeof(h) - 8);
	h.major = 2;
	cr_assert_eq(wire_hello_check(&h), RY_ERR_VERSION);
	h.magic++;
	cr_assert_eq(wire_hello_check(&h), RY_ERR_PROTOCOL);
}

Test(wire_hello, another_minor_is_fine)
{
	struct wire_hello h = make_hello();

	h.minor = 65535;
	cr_assert_eq(wire_hello_check(&h), RY_OK);
}

#define REFUSES(field, value)                                                                                          \
	do {                                                                                                           \
		struct wire_hello h = make_hello();                                                                    \
		h.field = value;                                                                                       \
		cr_assert_eq(wire_hello_check(&h), RY_ERR_PROTOCOL, #field " = " #value);                              \
	} while (0)

Test(wire_hello, every_field_has_bounds)
{
	REFUSES(magic, 0);
	REFUSES(kind, 0);
	REFUSES(kind, 3);
	REFUSES(transport, 0);
	REFUSES(transport, 4);
	REFUSES(rail_idx, RY_RAILS_MAX);
	REFUSES(n_qps, 0);
	REFUSES(read_credits, 0);
	REFUSES(max_msg_bytes, 0);
	REFUSES(max_msg_bytes, WIRE_MSG_BYTES - 1);
	REFUSES(max_parts, WIRE_PARTS_MAX - 1);
	REFUSES(max_data_bytes, WIRE_DATA_MAX_BYTES - 1);
	REFUSES(reserved0, 1);
	REFUSES(status, RY_STATUS_MAX_);
	REFUSES(reserved[0], 1);
	REFUSES(reserved[27], 1);
}

Test(wire_hello, names_end)
{
	struct wire_hello h = make_hello();

	memset(h.node_name, 'n', sizeof(h.node_name));
	cr_assert_eq(wire_hello_check(&h), RY_ERR_PROTOCOL);
	h.node_name[sizeof(h.node_name) - 1] = 0;
	cr_assert_eq(wire_hello_check(&h), RY_OK);
	memset(h.rail_name, 'r', sizeof(h.rail_name));
	cr_assert_eq(wire_hello_check(&h), RY_ERR_PROTOCOL);
}

Test(wire_hello, data_socket_index_is_below_the_count)
{
	struct wire_hello h = make_hello();

	h.qp_idx = 2; /* means nothing on a bootstrap socket */
	cr_assert_eq(wire_hello_check(&h), RY_OK);
	h.kind = WIRE_CONN_DATA;
	cr_assert_eq(wire_hello_check(&h), RY_ERR_PROTOCOL);
	h.qp_idx = 1;
	cr_assert_eq(wire_hello_check(&h), RY_OK);
}

Test(wire_hello, a_refusal_offers_nothing)
{
	struct wire_hello h = make_hello();

	h.n_qps = h.read_credits = 0;
	h.status = RY_ERR_DENIED;
	cr_assert_eq(wire_hello_check(&h), RY_OK);
}
