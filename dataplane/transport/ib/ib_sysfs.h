/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What sysfs says of a rail's device: link speed, PCIe, NUMA node, driver, firmware, and the card it sits on.
 *
 * For operators and for the planner's first guess; nothing depends on it, so what cannot be read stays empty. Reads
 * files: main at start, conn on port events, api on request; never an lcore. The root is a parameter for tests.
 */
#ifndef RY_IB_SYSFS_H
#define RY_IB_SYSFS_H

#include <stdint.h>

#include "transport/transport.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SYSFS_ROOT "/sys"

/* Fills what belongs to an RDMA device's port, and what belongs to the network device of that GID. */
void ib_sysfs_device(
	const char *root, const char *device, uint32_t port, uint32_t gid_index, struct rail_device_info *out);
/* The same for a network device alone. An empty or unknown one fills nothing. */
void ib_sysfs_netdev(const char *root, const char *netdev, struct rail_device_info *out);
/* The network device that has this address; empty when there is none. `name` has room for 16 characters. */
void ib_sysfs_find_netdev(const char *address, char *name);

#ifdef __cplusplus
}
#endif
#endif
