/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The TCP transport's row for transport.c: a QP is one connected socket, on any Linux host and without privileges.
 *
 * pair_connect takes over a connected socket after HELLO. Windows are software: the receiving rail lcore places each
 * byte itself, so closing one is immediate and total. All time comes from rail->now_ns. It never waits and starts no
 * thread.
 */
#ifndef RY_TCP_H
#define RY_TCP_H

#include "transport/transport.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const struct transport_ops tcp_ops;

#ifdef __cplusplus
}
#endif
#endif
