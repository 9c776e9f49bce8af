/* SPDX-License-Identifier: BSD-3-Clause */
/* What is checked, and told, of a node's rails once all of them are open. */
#include "daemon/node.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "daemon/log.h"
#include "eal/eal.h"
#include "read/plan.h"

static int check_segments(const struct node *n, char *message, uint32_t message_bytes);
static bool pins(const struct rail_conf *conf);
static uint64_t memory_to_come(const struct node *n);
static void tell_quarantine(const struct node *n);
static void tell_shared(const struct node *n);

int node_check_rails(const struct node *n, char *message, uint32_t message_bytes)
{
	int rc = check_segments(n, message, message_bytes);

	if (!rc)
		rc = node_check_memlock(n, message, message_bytes);
	if (rc)
		return rc;
	tell_quarantine(n);
	tell_shared(n);
	return 0;
}

/* Rails that register memory pin it: told before the kernel refuses. */
int node_check_memlock(const struct node *n, char *message, uint32_t message_bytes)
{
	uint64_t bytes = 0;

	for (uint16_t i = 0; i < n->config->n_rails; i++)
		bytes += pins(&n->config->rails[i]) ? memory_to_come(n) : 0;
	return eal_check_memlock(bytes, message, message_bytes);
}

static bool pins(const struct rail_conf *conf)
{
	const struct transport_ops *ops = transport_find(conf->transport);

	return ops && ops->mem_reg != transport_no_reg;
}

/* A PULL may be read in one RDMA READ. */
static int check_segments(const struct node *n, char *message, uint32_t message_bytes)
{
	uint64_t most = n->config->segment_bytes + PLAN_PIECE_SLACK;

	for (uint16_t i = 0; i < n->n_rails; i++) {
		uint64_t can = rail_attr(n->rails[i])->read_max_bytes;

		if (!can || most <= can)
			continue;
		snprintf(message, message_bytes,
			"rail %s: its device moves at most %" PRIu64
			" bytes at once (max_msg_sz), and segments have up to "
			"%" PRIu64 "; make segment smaller",
			n->config->rails[i].name, can, most);
		return -EINVAL;
	}
	return 0;
}

/* The store's slab, the probes, and a reader's arenas of one client: that many must fit, or it is of no use. */
static uint64_t memory_to_come(const struct node *n)
{
	const struct config *c = n->config;
	uint64_t bytes = (uint64_t)PROBES_MAX * PROBE_BYTES;

	if (c->is_store)
		bytes += c->store_bytes;
	if (c->is_reader)
		bytes += c->read_arena_bytes + c->put_arena_bytes;
	return bytes;
}

static void tell_quarantine(const struct node *n)
{
	for (uint16_t i = 0; i < n->n_rails; i++) {
		if (rail_attr(n->rails[i])->has_windows)
			continue;
		log_warn("rail %s: quarantine: %s: peers may write all registered memory, and memory of a failed read "
			 "is "
			 "out of use until its store has answered or the connection is gone; see docs/verbs.md",
			n->config->rails[i].name, rail_why(n->rails[i]));
	}
}

/* Rails that share a card share its PCIe lanes and its fate. */
static void tell_shared(const struct node *n)
{
	struct rail_device_info info[RY_RAILS_MAX];

	for (uint16_t i = 0; i < n->n_rails; i++) {
		rail_describe(n->rails[i], &info[i]);
		for (uint16_t j = 0; j < i; j++) {
			if (!info[i].card[0] || strcmp(info[i].card, info[j].card) != 0)
				continue;
			log_warn("rail %s: shares device %s with rail %s: both fail together, and have one PCIe link "
				 "between them",
				n->config->rails[i].name, info[i].card, n->config->rails[j].name);
			break;
		}
	}
}
