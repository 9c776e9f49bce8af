/* SPDX-License-Identifier: BSD-3-Clause */
/* HELLO of a peer with one QP over TCP, as every test of the bootstrap socket begins with. */
#ifndef RY_TEST_HELLO_H
#define RY_TEST_HELLO_H

#include <stdio.h>

#include "wire/wire.h"

#ifdef __cplusplus
extern "C" {
#endif

static inline struct wire_hello hello_of(uint16_t kind, const char *node_name)
{
	struct wire_hello h = {
		.magic = WIRE_MAGIC,
		.major = WIRE_MAJOR,
		.kind = kind,
		.transport = WIRE_TRANSPORT_TCP,
		.node_id = 77,
		.incarnation = 1,
		.n_qps = 1,
		.read_credits = 4,
		.max_msg_bytes = WIRE_MSG_BYTES,
		.max_parts = WIRE_PARTS_MAX,
		.max_data_bytes = WIRE_DATA_MAX_BYTES,
		.rail_name = "x0",
	};

	snprintf(h.node_name, sizeof(h.node_name), "%s", node_name);
	return h;
}

#ifdef __cplusplus
}
#endif
#endif
