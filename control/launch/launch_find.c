/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "launch/launch_priv.h"

#define DAEMON_NAME "railyardd"

static bool is_program(const char *path);
static bool find_beside(char *path, uint32_t path_bytes);
static bool find_in_path(char *path, uint32_t path_bytes);

/* A build tree first (control/cli and perf beside control/daemon), then an installed one. */
static const char *const beside[] = {
	"",
	"../daemon/",
	"../control/daemon/",
	"../sbin/",
	"../libexec/",
	"../libexec/railyard/",
	"../lib/railyard/",
};

static bool is_program(const char *path)
{
	return access(path, X_OK) == 0;
}

static bool find_beside(char *path, uint32_t path_bytes)
{
	char self[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	char *slash;
	size_t i;

	if (n <= 0)
		return false;
	self[n] = '\0';
	slash = strrchr(self, '/');
	if (slash == NULL)
		return false;
	slash[1] = '\0';
	for (i = 0; i < sizeof(beside) / sizeof(beside[0]); i++) {
		int len = snprintf(path, path_bytes, "%s%s" DAEMON_NAME, self, beside[i]);

		if (len > 0 && (uint32_t)len < path_bytes && is_program(path))
			return true;
	}
	return false;
}

static bool find_in_path(char *path, uint32_t path_bytes)
{
	const char *dirs = getenv("PATH"), *end;

	for (; dirs != NULL && *dirs != '\0'; dirs = *end == ':' ? end + 1 : end) {
		int len;

		end = strchrnul(dirs, ':');
		len = snprintf(path, path_bytes, "%.*s/" DAEMON_NAME, (int)(end - dirs), dirs);
		if (len > 0 && (uint32_t)len < path_bytes && is_program(path))
			return true;
	}
	return false;
}

int launch_find_daemon(char *path, uint32_t path_bytes, struct launch_error *err)
{
	const char *named = getenv("RAILYARD_DAEMON");

	if (named != NULL && named[0] != '\0') {
		if (strlen(named) < path_bytes && is_program(named)) {
			strcpy(path, named);
			return 0;
		}
		snprintf(err->text, sizeof(err->text), "RAILYARD_DAEMON names %s, which is not an executable file: %s",
			named, strerror(errno));
		return -ENOENT;
	}
	if (find_beside(path, path_bytes) || find_in_path(path, path_bytes))
		return 0;
	snprintf(err->text, sizeof(err->text),
		"no " DAEMON_NAME
		" beside this program nor in PATH: build or install it, or name it with RAILYARD_DAEMON");
	return -ENOENT;
}
