/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which NUMA node memory and network devices are on; -1 wherever that is not known, or makes no difference.
 *
 * Called while a node or a client is set up, by main and the work thread; never by an lcore. Asks the kernel and sysfs
 * each time, keeps nothing, never fails.
 */
#ifndef RY_NUMA_H
#define RY_NUMA_H

#ifdef __cplusplus
extern "C" {
#endif

/* Of the page at this address, which is touched if it was not there. */
int numa_of_memory(const void *addr);
/* Of a network device, or of the one that has this address where the name is empty. */
int numa_of_netdev(const char *netdev, const char *address);

#ifdef __cplusplus
}
#endif
#endif
