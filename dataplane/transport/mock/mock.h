/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The mock transport's row for transport.c: an in-process loopback rail with modelled bandwidth and latency.
 *
 * A QP pair has both ends on the same rail, so store and reader of one process talk through it. All time comes from
 * rail->now_ns: real or virtual. It replaces the transport ops and nothing else.
 */
#ifndef RY_MOCK_H
#define RY_MOCK_H

#include "transport/transport.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const struct transport_ops mock_ops;

#ifdef __cplusplus
}
#endif
#endif
