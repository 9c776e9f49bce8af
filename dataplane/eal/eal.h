/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Starting DPDK's EAL with plain messages: checks come before EAL, so that a wrong lcore or too few hugepages is told
 * in our words with the remedy, and never as a panic. Main thread, once per process.
 */
#ifndef RY_EAL_H
#define RY_EAL_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct eal_want {
	uint16_t n_rails;    /* lcores needed = 1 + n_rails */
	uint32_t pool_mib;   /* memory for rings and pools */
	bool want_hugepages; /* try hugepages first */
	bool want_quiet;     /* EAL's own log at warning level only */
};

struct eal_info {
	bool has_hugepages; /* EAL memory is on hugepages */
	bool is_shared_cpu; /* more lcores than CPUs, or lcores that float: spinning would starve others */
	/* on failure: what, where, why, what to do; on success: empty, or why hugepages were wanted but not used, and
	 * the fix */
	char message[512];
};

/*
 * Runs the checks, adds the options that the user did not give (--in-memory --no-pci --no-telemetry --iova-mode=va on
 * hugepages;
 * --no-huge --no-shconf --no-pci --no-telemetry -m N without; a --lcores map that fits this machine when neither -l, -c
 * nor --lcores is given), and calls rte_eal_init. argv is argv[0] and the EAL arguments only (what stood before "--").
 * 0, or -errno with info->message filled.
 */
int eal_start(int argc, char **argv, const struct eal_want *want, struct eal_info *info);

/* The map used when none is given, lcore ids 0 to n - 1: "0@2,1@3" with a CPU for each where there are enough of those
 * this process may use, else "(0-N)@(cpus)". Returns its length as snprintf does, or -EINVAL where DPDK knows fewer
 * lcores. Needs no EAL. */
int eal_lcore_map(uint16_t n_lcores, char *buf, uint32_t buf_bytes);

/* Whether RLIMIT_MEMLOCK lets this process lock `need_bytes` more than it has locked: 0, or -ENOMEM with `message`
 * naming need, limit and fix. Whoever has CAP_IPC_LOCK passes. */
int eal_check_memlock(uint64_t need_bytes, char *message, uint32_t message_bytes);

#ifdef __cplusplus
}
#endif
#endif
