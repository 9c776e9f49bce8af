/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/transport.h"

#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "transport/mock/mock.h"
#include "transport/tcp/tcp.h"
#include "transport/verbs/verbs.h"

/* One row per transport of this build. A list and no constructors: the order is known and grep finds it. */
static const struct transport_ops *const transports[] = {
	&tcp_ops,
	&mock_ops,
	&verbs_ops,
};

/* The same rows by name. */
static const char *const names[] = {
	"tcp",
	"mock",
	"verbs",
	NULL,
};

static_assert(sizeof(names) / sizeof(names[0]) == sizeof(transports) / sizeof(transports[0]) + 1, "a name per row");

const struct transport_ops *transport_find(const char *name)
{
	for (size_t i = 0; i < sizeof(transports) / sizeof(transports[0]); i++)
		if (strcmp(transports[i]->name, name) == 0)
			return transports[i];
	return NULL;
}

const char *const *transport_names(void)
{
	return names;
}

int transport_no_reg(struct rail *rail, void *base, uint64_t bytes, uint16_t region)
{
	return 0;
}

void transport_no_dereg(struct rail *rail, uint16_t region)
{
}

bool transport_stop_at_once(struct rail *rail, struct qp *qp)
{
	return true;
}

bool transport_wants_no_fence(const struct rail *rail, const struct qp *qp)
{
	return false;
}

int transport_no_fence(struct rail *rail, struct qp *qp)
{
	return 0;
}

void transport_no_address(const struct rail *rail, const struct qp *qp, struct qp_address *out)
{
	memset(out, 0, sizeof(*out));
}

int transport_no_remote(struct rail *rail, struct qp *qp, const struct qp_address *peer)
{
	return -ENOTSUP;
}

int transport_no_event_fds(const struct rail *rail, int fds[2])
{
	return 0;
}

bool transport_no_events(struct rail *rail, struct rail_event *out)
{
	return false;
}

void transport_no_detach(struct rail *rail)
{
}

int transport_no_attach(struct rail *rail)
{
	return -ENODEV;
}

uint16_t transport_post_nothing(struct rail *rail, const struct wr *wr, uint16_t n)
{
	return n;
}

uint16_t transport_poll_nothing(struct rail *rail, struct wc *wc, uint16_t max)
{
	return 0;
}

int transport_arm_nothing(struct rail *rail)
{
	return -1;
}
