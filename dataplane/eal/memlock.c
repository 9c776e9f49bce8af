/* SPDX-License-Identifier: BSD-3-Clause */
#include "eal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define CAP_IPC_LOCK_BIT 14

static bool has_ipc_lock(void);
static unsigned long long read_status(const char *key, int base);

int eal_check_memlock(uint64_t need_bytes, char *message, uint32_t message_bytes)
{
	unsigned long long pinned_kib, need_kib;
	struct rlimit limit;

	if (!need_bytes || getrlimit(RLIMIT_MEMLOCK, &limit) || limit.rlim_cur == RLIM_INFINITY || has_ipc_lock())
		return 0;
	pinned_kib = read_status("VmPin:", 10);
	need_kib = (need_bytes + 1023) / 1024 + pinned_kib;
	if (limit.rlim_cur / 1024 >= need_kib)
		return 0;
	snprintf(message, message_bytes,
		"memory registration needs %llu KiB locked (rails x (slabs + arenas), of which %llu KiB are locked "
		"already), "
		"but RLIMIT_MEMLOCK allows %llu KiB: raise it "
		"with LimitMEMLOCK=infinity in the systemd unit or 'memlock unlimited' in /etc/security/limits.conf, "
		"or configure "
		"smaller arenas and slabs",
		need_kib, pinned_kib, (unsigned long long)limit.rlim_cur / 1024);
	return -ENOMEM;
}

/* The capability, not the user id: root without it is bound by the limit, as in many containers. */
static bool has_ipc_lock(void)
{
	return read_status("CapEff:", 16) >> CAP_IPC_LOCK_BIT & 1;
}

/* A number of our own from /proc; 0 where it is not there. */
static unsigned long long read_status(const char *key, int base)
{
	unsigned long long value = 0;
	char line[256];
	FILE *f = fopen("/proc/self/status", "re");

	while (f && fgets(line, sizeof(line), f)) {
		if (strncmp(line, key, strlen(key)) != 0)
			continue;
		value = strtoull(line + strlen(key), NULL, base);
		break;
	}
	if (f)
		fclose(f);
	return value;
}
