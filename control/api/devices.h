/* SPDX-License-Identifier: BSD-3-Clause */
/* What the devices of rails are, for operators; this folder only. Api thread: reads sysfs. */
#ifndef RY_API_DEVICES_H
#define RY_API_DEVICES_H

#include <jansson.h>

#ifdef __cplusplus
extern "C" {
#endif

struct api;

/* Adds what is known of each rail's device to its row; null where it is not known, or where there is no such thing. */
void devices_describe(const struct api *api, json_t *rows);

#ifdef __cplusplus
}
#endif
#endif
