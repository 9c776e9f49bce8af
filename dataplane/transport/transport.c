/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/transport.h"

#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "transport/mock/mock.h"
#include "transport/tcp/tcp.h"

/* One row per transport of this build. A list and no constructors: the order is known and grep finds it. */
static const struct transport_ops *const transports[] = {
	&tcp_ops,
	&mock_ops,
};

/* The same rows by name. */
static const char *const names[] = {
	"tcp",
	"mock",
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

int transport_no_reg(struct rail *rail, void *base, uint64_t bytes, uint32_t *lkey)
{
	*lkey = 0;
	return 0;
}

void transport_no_dereg(struct rail *rail, uint32_t lkey)
{
}
