/* SPDX-License-Identifier: BSD-3-Clause */
#include "api/api_priv.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define BACKLOG 128

static int bind_to(int fd, const struct sockaddr_un *address);
static int make_directory(const char *path);
static int remove_stale(const struct sockaddr_un *address);

int api_listen(const char *path, char *message, uint32_t message_bytes)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd, rc;

	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0) {
		rc = -errno;
		snprintf(message, message_bytes, "control socket: %s; raise the limit of open files", strerror(-rc));
		return rc;
	}
	rc = bind_to(fd, &address);
	if (rc == -ENOENT && make_directory(path) == 0)
		rc = bind_to(fd, &address);
	if (rc == -EADDRINUSE) {
		rc = remove_stale(&address);
		if (rc == 0)
			rc = bind_to(fd, &address);
	}
	if (rc == 0 && listen(fd, BACKLOG) < 0)
		rc = -errno;
	if (rc == 0)
		return fd;
	close(fd);
	if (rc == -EADDRINUSE)
		snprintf(message, message_bytes,
			"control socket %s: another daemon answers there; stop it or give this one another path", path);
	else if (rc == -EEXIST)
		snprintf(message, message_bytes, "control socket %s: a file that is no socket is in the way; remove it",
			path);
	else
		snprintf(message, message_bytes,
			"control socket %s: %s; does the directory exist and may we write to it?", path, strerror(-rc));
	return rc;
}

int api_check_socket(const struct config *config, char *message, uint32_t message_bytes)
{
	int fd = api_listen(config->socket_path, message, message_bytes);

	if (fd < 0)
		return fd;
	unlink(config->socket_path);
	close(fd);
	return 0;
}

/* The mode is set before anyone can connect: bind creates the file with it. Owner and group may connect. */
static int bind_to(int fd, const struct sockaddr_un *address)
{
	mode_t old = umask(0117);
	int rc = bind(fd, (const struct sockaddr *)address, sizeof(*address)) < 0 ? -errno : 0;

	umask(old);
	return rc;
}

/* /run is empty after boot: the last directory of the path, where we may make it. */
static int make_directory(const char *path)
{
	char directory[sizeof(((struct sockaddr_un *)0)->sun_path)];
	char *slash;

	snprintf(directory, sizeof(directory), "%s", path);
	slash = strrchr(directory, '/');
	if (!slash || slash == directory)
		return -ENOENT;
	*slash = 0;
	return mkdir(directory, 0755) < 0 ? -errno : 0;
}

/* Removes a socket file whose daemon is gone: nobody accepts on it. */
static int remove_stale(const struct sockaddr_un *address)
{
	struct stat st;
	int fd, rc;

	if (stat(address->sun_path, &st) < 0)
		return -errno;
	if (!S_ISSOCK(st.st_mode))
		return -EEXIST;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	rc = connect(fd, (const struct sockaddr *)address, sizeof(*address)) < 0 ? -errno : 0;
	close(fd);
	/* Only a refusal proves that nobody is there; a full backlog (EAGAIN) is somebody. */
	if (rc != -ECONNREFUSED)
		return -EADDRINUSE;
	return unlink(address->sun_path) < 0 ? -errno : 0;
}
