/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The verbs transport: libibverbs RC on any RoCE device (docs/verbs.md). Its cold half is transport/ib.
 */
#ifndef RY_VERBS_H
#define RY_VERBS_H

#include "transport/transport.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const struct transport_ops verbs_ops;

#ifdef __cplusplus
}
#endif
#endif
