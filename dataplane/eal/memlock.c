/* SPDX-License-Identifier: BSD-3-Clause */
#include "eal.h"

#include <errno.h>
#include <stdio.h>
#include <sys/resource.h>

#define CAP_IPC_LOCK_BIT 14

static bool has_ipc_lock(void);

int eal_check_memlock(uint64_t need_bytes, char *message, uint32_t message_bytes)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_MEMLOCK, &limit) || limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= need_bytes ||
		has_ipc_lock())
		return 0;
	snprintf(message, message_bytes,
		"memory registration needs %llu KiB locked (rails x (slabs + arenas)), but RLIMIT_MEMLOCK allows %llu "
		"KiB: raise it "
		"with LimitMEMLOCK=infinity in the systemd unit or 'memlock unlimited' in /etc/security/limits.conf, "
		"or configure "
		"smaller arenas and slabs",
		(unsigned long long)(need_bytes + 1023) / 1024, (unsigned long long)limit.rlim_cur / 1024);
	return -ENOMEM;
}

/* The capability, not the user id: root without it is bound by the limit, as in many containers. */
static bool has_ipc_lock(void)
{
	unsigned long long caps = 0;
	char line[256];
	FILE *f = fopen("/proc/self/status", "re");

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "CapEff: %llx", &caps) == 1)
			break;
	if (f)
		fclose(f);
	return caps >> CAP_IPC_LOCK_BIT & 1;
}
