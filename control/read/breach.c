/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What peers do that no honest one does: each kind is told to the log at once, then once a minute with a count, however
 * often it happens. The operation that it ends, if any, has its status; counters have the rest.
 */
#include "read/control_priv.h"

#define AGAIN_NS 60000000000ull

static const char *node_name(const struct control *c, const struct peer *p);

void breach_note(struct control *c, uint16_t peer_idx, uint16_t rail_idx, enum breach what)
{
	struct peer *p = &c->peers[peer_idx];
	struct breach_told *told = &p->breaches[what];
	struct journal_entry e;

	told->n++;
	if (c->now_ns < told->again_ns)
		return;
	e = (struct journal_entry){
		.kind = JOURNAL_BREACH, .breach = {.what = (uint8_t)what, .rail_idx = rail_idx, .n = told->n}};
	told->again_ns = c->now_ns + AGAIN_NS;
	told->n = 0;
	snprintf(e.breach.node_name, sizeof(e.breach.node_name), "%s", node_name(c, p));
	journal_push(c->d.journal, &e);
	c->want_api_kick = true;
}

static const char *node_name(const struct control *c, const struct peer *p)
{
	if (p->is_dialled)
		return c->config->stores[p->store_idx].name;
	return p->n_pairs ? p->pairs[0].pair->node_name : "?";
}
