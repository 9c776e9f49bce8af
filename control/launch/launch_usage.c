/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "launch/launch_priv.h"

/* proc(5), /proc/PID/stat: the name in parentheses may hold anything, so fields are counted from its last ')'; utime,
 * stime and rss are 14, 15, 24. */
int launch_usage(const struct launch *l, uint16_t node_idx, struct launch_usage *out)
{
	uint64_t utime, stime, tick_ns = 1000000000u / (uint64_t)sysconf(_SC_CLK_TCK);
	char path[64], text[1024];
	int64_t rss_pages;
	char *fields;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)launch_pid(l, node_idx));
	f = fopen(path, "re");
	if (f == NULL)
		return -errno;
	fields = fgets(text, sizeof(text), f) == NULL ? NULL : strrchr(text, ')');
	fclose(f);
	if (fields == NULL || sscanf(fields + 1,
				      " %*c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %" SCNu64 " %" SCNu64
				      " %*s %*s %*s %*s %*s %*s %*s %*s %" SCNd64,
				      &utime, &stime, &rss_pages) != 3)
		return -ESRCH;
	out->cpu_ns = (utime + stime) * tick_ns;
	out->rss_bytes = (uint64_t)rss_pages * (uint64_t)sysconf(_SC_PAGESIZE);
	return 0;
}
