/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Who a peer is: nodes by their id, and the present incarnation of each.
 *
 * A node that says hello with a new incarnation was restarted: its former pairs have ended, even if their sockets look
 * alive from here. One that said hello before, and comes back while a later one is connected, was not restarted: two
 * nodes have one name. The later one keeps it and the other is refused, or they would end each other's pairs for ever.
 */
#include "daemon/conn_priv.h"

#include <string.h>

static struct node_slot *find_node(struct conn *c, uint64_t node_id);
static uint16_t join_node(struct conn *c, const struct wire_hello *h);
static void end_former_incarnation(struct conn *c, const struct link *of, const struct wire_hello *h);

void link_identify(struct conn *c, struct link *l, const struct wire_hello *h)
{
	uint16_t ours = conn_rail_n_qps(c, l->pair.rail_idx);

	l->pair.n_qps = h->n_qps < ours ? h->n_qps : ours;
	l->pair.features = h->features;
	l->pair.peer_rail_idx = h->rail_idx % RY_RAILS_MAX;
	l->pair.node_id = h->node_id;
	l->pair.incarnation = h->incarnation;
	memcpy(l->pair.node_name, h->node_name, sizeof(l->pair.node_name));
	memcpy(l->pair.rail_name, h->rail_name, sizeof(l->pair.rail_name));
	/* No more than there is room for in our queues. */
	l->peer_credits = h->read_credits < RAIL_CREDITS ? h->read_credits : RAIL_CREDITS;
	l->peer_idx = join_node(c, h);
	end_former_incarnation(c, l, h);
}

bool node_is_superseded(struct conn *c, const struct wire_hello *h)
{
	const struct node_slot *n = find_node(c, h->node_id);

	if (!n || n->incarnation == h->incarnation)
		return false;
	for (uint32_t i = 0; i < n->n_former && i < FORMER_MAX; i++) {
		if (n->former[i] == h->incarnation)
			return true;
	}
	return false;
}

const char *refusal_text(uint32_t status)
{
	if (status == RY_ERR_DENIED)
		return "another node of the same name is connected; every node needs a name of its own";
	return ry_status_text((enum ry_status)status);
}

static struct node_slot *find_node(struct conn *c, uint64_t node_id)
{
	for (uint16_t i = 0; i < PAIRS_MAX; i++) {
		if (c->nodes[i].n_links && c->nodes[i].node_id == node_id)
			return &c->nodes[i];
	}
	return NULL;
}

/* There are as many slots as links, so there always is one. */
static uint16_t join_node(struct conn *c, const struct wire_hello *h)
{
	struct node_slot *n = find_node(c, h->node_id);

	if (!n) {
		for (n = c->nodes; n->n_links; n++)
			;
		*n = (struct node_slot){.node_id = h->node_id, .incarnation = h->incarnation};
	}
	if (n->incarnation != h->incarnation) {
		n->former[n->n_former++ % FORMER_MAX] = n->incarnation;
		n->incarnation = h->incarnation;
	}
	n->n_links++;
	return (uint16_t)(n - c->nodes);
}

static void end_former_incarnation(struct conn *c, const struct link *of, const struct wire_hello *h)
{
	for (uint32_t i = 0; i < c->n_live; i++) {
		struct link *l = &c->links[c->live[i]];

		if (l->pair.is_self != of->pair.is_self || l->peer_idx == PAIRS_MAX || l->pair.node_id != h->node_id ||
			l->pair.incarnation == h->incarnation)
			continue;
		l->evidence = RAIL_EV_PEER;
		link_down(c, l, RY_ERR_PEER_RESTARTED, 0, "node %s restarted", l->pair.node_name);
	}
}
