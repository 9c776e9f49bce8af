/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One handler per row of <railyard/methods.def>. Each ends its request, at once or when control has answered, with
 * request_reply or request_fail.
 */
#ifndef RY_API_ON_H
#define RY_API_ON_H

#include <railyard/methods.def>

#ifdef __cplusplus
extern "C" {
#endif

struct request;

#define HANDLER(id, name, permission, help) void on_##name(struct request *r);
RY_METHODS(HANDLER)
#undef HANDLER

#ifdef __cplusplus
}
#endif
#endif
