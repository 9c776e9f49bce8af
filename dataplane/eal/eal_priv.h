/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What eal.c asks of lcores.c. Start-up only, main thread; nothing here needs EAL to run.
 */
#ifndef RY_EAL_PRIV_H
#define RY_EAL_PRIV_H

#include "eal.h"

#include <sched.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What an lcore option asks for. */
struct lcore_request {
	cpu_set_t lcores; /* their ids */
	cpu_set_t cpus;   /* all CPUs that any of them may run on */
};

/* The three forms of the option. 0 or -EINVAL. */
int lcores_parse_list(const char *text, struct lcore_request *out); /* -l: 0-2,5 */
int lcores_parse_mask(const char *text, struct lcore_request *out); /* -c: 0x27 */
int lcores_parse_map(const char *text, struct lcore_request *out);  /* --lcores: (0-2)@(0-1),5 */

/* Whether this process may run on `cpu`: it is online and in our cpuset. Tried out, since no file tells both. */
bool lcores_can_run_on(int cpu);

/* CPUs that the process runs on now, as "0-3,8". Returns how many. */
int lcores_cpu_list(char *buf, uint32_t buf_bytes);

/* Whether lcores outnumber their CPUs, float over several or share one; after EAL has started. */
bool lcores_are_shared(void);

#ifdef __cplusplus
}
#endif
#endif
