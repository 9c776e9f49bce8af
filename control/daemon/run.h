/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The daemon from a running EAL to its end: makes the node and its api, launches lcores and threads, runs control on
 * this lcore, takes all of it down in the reverse order. Main thread, once.
 */
#ifndef RY_RUN_H
#define RY_RUN_H

#include <sched.h>

#include "daemon/config.h"
#include "daemon/options.h"
#include "eal/eal.h"

#ifdef __cplusplus
extern "C" {
#endif

/* `cpus` = the CPUs this process had before EAL pinned its lcores; the api, conn and work threads float over them. Logs
 * what fails. */
enum daemon_exit daemon_run(const struct config *config, const struct eal_info *eal, const cpu_set_t *cpus);

#ifdef __cplusplus
}
#endif
#endif
