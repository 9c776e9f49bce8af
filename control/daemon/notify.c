/* SPDX-License-Identifier: BSD-3-Clause */
#include "daemon/notify.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int notify_manager(const char *state)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	const char *path = getenv("NOTIFY_SOCKET");
	size_t n = path ? strlen(path) : 0;
	int fd, rc = 0;

	if (!n)
		return 0;
	if (n >= sizeof(address.sun_path) || (path[0] != '/' && path[0] != '@'))
		return -EINVAL;
	memcpy(address.sun_path, path, n);
	/* '@' stands for the NUL that an abstract name starts with. */
	if (path[0] == '@')
		address.sun_path[0] = '\0';
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (sendto(fd, state, strlen(state), MSG_NOSIGNAL, (const struct sockaddr *)&address,
		    (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n)) < 0)
		rc = -errno;
	close(fd);
	return rc;
}
