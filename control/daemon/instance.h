/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One daemon of a name in one run directory: a lock beside the control socket, "<directory>/<node>.lock".
 *
 * Peers know a node by its name, so two daemons of one name would end each other's connections for ever. The kernel
 * drops the lock with the process, however it ends; a file that is left over hinders nobody. Main thread.
 */
#ifndef RY_INSTANCE_H
#define RY_INSTANCE_H

#include "daemon/config.h"

#ifdef __cplusplus
extern "C" {
#endif

struct instance {
	int fd; /* -1 = not claimed */
	char path[CONFIG_PATH_MAX + RY_NAME_MAX_BYTES + 8];
};

/* Makes the directory where only its last part is missing. 0, or -errno with `message` filled: -EEXIST where another
 * daemon of this name runs. */
int instance_claim(const struct config *c, struct instance *out, char *message, uint32_t message_bytes);
/* Accepts one that was not claimed. */
void instance_release(struct instance *i);

#ifdef __cplusplus
}
#endif
#endif
