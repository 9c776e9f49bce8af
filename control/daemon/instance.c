/* SPDX-License-Identifier: BSD-3-Clause */
#include "daemon/instance.h"

#include <sys/file.h>
#include <sys/stat.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void directory_of(const char *path, char *directory, uint32_t bytes);
static int open_lock(const char *directory, const char *path);
static int lock(int fd, const char *path);
static int explain(const struct config *c, const char *directory, const struct instance *i, int rc, char *message,
	uint32_t message_bytes);
static int read_pid(const char *path);

int instance_claim(const struct config *c, struct instance *out, char *message, uint32_t message_bytes)
{
	struct instance i = {.fd = -1};
	char directory[CONFIG_PATH_MAX];
	int rc;

	directory_of(c->socket_path, directory, sizeof(directory));
	snprintf(i.path, sizeof(i.path), "%s/%s.lock", directory, c->node_name);
	do {
		i.fd = open_lock(directory, i.path);
		rc = i.fd < 0 ? i.fd : lock(i.fd, i.path);
		if (rc < 0 && i.fd >= 0)
			close(i.fd);
	} while (rc == -EAGAIN);
	if (rc < 0)
		return explain(c, directory, &i, rc, message, message_bytes);
	/* Only for whoever finds the lock taken. A process that may not even write this can make no memory for clients
	 * either. */
	(void)!ftruncate(i.fd, 0);
	if (dprintf(i.fd, "%d\n", (int)getpid()) < 0 && errno == EFBIG) {
		instance_release(&i);
		return explain(c, directory, &i, -EFBIG, message, message_bytes);
	}
	*out = i;
	return 0;
}

void instance_release(struct instance *i)
{
	if (i->fd < 0)
		return;
	unlink(i->path);
	close(i->fd);
	i->fd = -1;
}

static void directory_of(const char *path, char *directory, uint32_t bytes)
{
	const char *slash = strrchr(path, '/');

	if (!slash)
		snprintf(directory, bytes, ".");
	else
		snprintf(directory, bytes, "%.*s", slash == path ? 1 : (int)(slash - path), path);
}

/* /run is empty after boot. */
static int open_lock(const char *directory, const char *path)
{
	const int flags = O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
	int fd = open(path, flags, 0644);

	if (fd >= 0)
		return fd;
	if (errno != ENOENT || mkdir(directory, 0755) < 0)
		return errno == EEXIST ? -ENOENT : -errno; /* a link that leads nowhere */
	fd = open(path, flags, 0644);
	return fd < 0 ? -errno : fd;
}

/* -EEXIST: somebody has it. -EAGAIN: the file that was locked is no longer the one of this name. */
static int lock(int fd, const char *path)
{
	struct stat ours, now;

	if (fstat(fd, &ours) < 0)
		return -errno;
	/* What stands there is written to: never somebody else's file, nor one with a second name. */
	if (!S_ISREG(ours.st_mode) || ours.st_nlink > 1)
		return -EMLINK;
	if (flock(fd, LOCK_EX | LOCK_NB) < 0)
		return errno == EWOULDBLOCK ? -EEXIST : -errno;
	if (stat(path, &now) < 0 || now.st_ino != ours.st_ino || now.st_dev != ours.st_dev)
		return -EAGAIN;
	return 0;
}

static int explain(const struct config *c, const char *directory, const struct instance *i, int rc, char *message,
	uint32_t message_bytes)
{
	if (rc == -EEXIST)
		snprintf(message, message_bytes,
			"node %s: another daemon of this name runs here (pid %d, lock %s): stop it, or give this one "
			"another node name",
			c->node_name, read_pid(i->path), i->path);
	else if (rc == -EMLINK || rc == -ELOOP)
		snprintf(message, message_bytes, "node %s: %s is no lock file of a daemon: remove it", c->node_name,
			i->path);
	else if (rc == -EFBIG)
		snprintf(message, message_bytes,
			"run directory %s: %s cannot be written: %s; raise the limit of file sizes: ulimit -f, or "
			"LimitFSIZE= of the unit",
			directory, i->path, strerror(-rc));
	else
		snprintf(message, message_bytes,
			"run directory %s: %s cannot be made: %s; %s for this user, or set socket to a path in one "
			"that is",
			directory, i->path, strerror(-rc),
			rc == -ENOENT ? "create it writable" : "make the directory writable");
	return rc;
}

static int read_pid(const char *path)
{
	FILE *f = fopen(path, "re");
	int pid = 0;

	if (f && fscanf(f, "%d", &pid) != 1)
		pid = 0;
	if (f)
		fclose(f);
	return pid;
}
