/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tells that the kernel wants to remove a device. Soft-RoCE makes no async event of it, and the removal waits until
 * everybody has closed the device; whoever has a bound id of the kernel's connection manager is told
 * (RDMA_CM_EVENT_DEVICE_REMOVAL).
 *
 * It talks to the kernel itself (linux/rdma/rdma_user_cm.h), because librdmacm opens devices of its own, and keeps them
 * open until the process ends: the removal would wait for that. Without it the rail works all the same.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <string.h>
#include <unistd.h>

#include <rdma/rdma_user_cm.h>

#include "transport/ib/ib.h"

#define CM_DEVICE "/dev/infiniband/rdma_cm"
#define EVENT_DEVICE_REMOVAL 11 /* RDMA_CM_EVENT_DEVICE_REMOVAL */

static bool to_sockaddr(const char *address, struct rdma_ucm_bind *bind);
static bool command(int fd, uint32_t cmd, const void *in, uint16_t in_bytes, uint16_t out_bytes);

int ib_removal_watch(const char *address)
{
	struct rdma_ucm_create_id_resp id = {0};
	struct rdma_ucm_create_id create = {
		.uid = 1, /* events of an id without one are dropped */
		.response = (uintptr_t)&id,
		.ps = RDMA_PS_TCP,
		.qp_type = IBV_QPT_RC,
	};
	struct rdma_ucm_bind bind = {0};
	int fd = open(CM_DEVICE, O_RDWR | O_CLOEXEC | O_NONBLOCK);

	if (fd < 0)
		return -1;
	if (to_sockaddr(address, &bind) &&
		command(fd, RDMA_USER_CM_CMD_CREATE_ID, &create, sizeof(create), sizeof(id))) {
		bind.id = id.id;
		if (command(fd, RDMA_USER_CM_CMD_BIND, &bind, sizeof(bind), 0))
			return fd;
	}
	close(fd);
	return -1;
}

bool ib_removal_seen(int fd)
{
	struct rdma_ucm_event_resp event = {0};
	struct rdma_ucm_get_event get = {.response = (uintptr_t)&event};

	while (command(fd, RDMA_USER_CM_CMD_GET_EVENT, &get, sizeof(get), sizeof(event))) {
		if (event.event == EVENT_DEVICE_REMOVAL)
			return true;
	}
	return false;
}

/* Port 0: it takes any. */
static bool to_sockaddr(const char *address, struct rdma_ucm_bind *bind)
{
	struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
	struct sockaddr_in v4 = {.sin_family = AF_INET};

	if (inet_pton(AF_INET, address, &v4.sin_addr) == 1) {
		memcpy(&bind->addr, &v4, sizeof(v4));
		bind->addr_size = sizeof(v4);
		return true;
	}
	if (inet_pton(AF_INET6, address, &v6.sin6_addr) != 1)
		return false;
	memcpy(&bind->addr, &v6, sizeof(v6));
	bind->addr_size = sizeof(v6);
	return true;
}

static bool command(int fd, uint32_t cmd, const void *in, uint16_t in_bytes, uint16_t out_bytes)
{
	uint8_t message[sizeof(struct rdma_ucm_cmd_hdr) + sizeof(struct rdma_ucm_bind)];
	struct rdma_ucm_cmd_hdr h = {.cmd = cmd, .in = in_bytes, .out = out_bytes};

	memcpy(message, &h, sizeof(h));
	memcpy(message + sizeof(h), in, in_bytes);
	return write(fd, message, sizeof(h) + in_bytes) == (ssize_t)(sizeof(h) + in_bytes);
}
