/* SPDX-License-Identifier: BSD-3-Clause */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "perf.h"

static bool find_script(char *path, size_t path_bytes);

/* Beside this program in a build tree, in libexec when installed. */
static bool find_script(char *path, size_t path_bytes)
{
	static const char *const places[] = {"peers.sh", "../libexec/railyard/peers.sh"};
	char self[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	size_t i;

	if (n <= 0)
		return false;
	self[n] = '\0';
	*(strrchr(self, '/') + 1) = '\0';
	for (i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		int len = snprintf(path, path_bytes, "%s%s", self, places[i]);

		if (len > 0 && (size_t)len < path_bytes && access(path, X_OK) == 0)
			return true;
	}
	return false;
}

double peer_rate(const char *name)
{
	char path[PATH_MAX], command[PATH_MAX + 32], line[64] = "";
	FILE *f;

	if (!find_script(path, sizeof(path)))
		return 0;
	snprintf(command, sizeof(command), "'%s' %s", path, name);
	f = popen(command, "re");
	if (f == NULL)
		return 0;
	if (fgets(line, sizeof(line), f) == NULL)
		line[0] = '\0';
	return pclose(f) == 0 ? strtod(line, NULL) : 0;
}
