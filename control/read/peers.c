/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Peers and their pairs: configured stores (dialled), and nodes that dialled us (accepted). A pair belongs to the side
 * that dialled it: READs go out on dialled pairs, PULLs on accepted ones.
 */
#include "read/control_priv.h"

static void end_at_clause(char cause[RY_CAUSE_MAX_BYTES]);
static struct peer *peer_for(struct control *c, const struct pair *pair);
static struct peer *accepted_peer(struct control *c, uint64_t node_id);
static void restarted(struct control *c, struct peer *p, const struct pair *pair);
static void fail_transfers(struct control *c, uint16_t peer_idx, uint32_t status, const char *cause);
static void ack_down(struct control *c, struct pair_event *ev);

void peers_init(struct control *c)
{
	c->n_peers = (uint16_t)(c->config->n_stores + ACCEPTED_PEERS_MAX);
	for (uint16_t i = 0; i < c->config->n_stores; i++) {
		const char *name = c->config->stores[i].name;
		struct peer *p = &c->peers[i];

		p->is_used = p->is_dialled = true;
		p->store_idx = i;
		p->name_hash = XXH3_64bits(name, strlen(name));
		p->dial.m.kind = MSG_DIAL;
		p->dial.store_idx = i;
		snprintf(p->cause, sizeof(p->cause), "store %s was never connected", name);
	}
	endpoints_init(c);
}

void peer_pair_up(struct control *c, struct pair_event *ev)
{
	const struct pair *pair = ev->pair;
	struct peer *p = peer_for(c, pair);

	if (!p || p->n_pairs == PEER_PAIRS_MAX)
		return; /* more peers or pairs than this node serves: it stays unused */
	if (p->incarnation && p->incarnation != pair->incarnation)
		restarted(c, p, pair);
	p->node_id = pair->node_id;
	p->incarnation = pair->incarnation;
	p->pairs[p->n_pairs++] = (struct peer_pair){.pair = pair, .epoch = pair->epoch};
	p->cause[0] = 0;
	path_up(c, pair, (uint16_t)(p - c->peers));
	estimate_link(c, &c->rails[pair->rail_idx]);
	health_connected(&c->health, pair);
	endpoints_choose(c, p);
}

static struct peer *peer_for(struct control *c, const struct pair *pair)
{
	return pair->is_dialler ? &c->peers[pair->store_idx] : accepted_peer(c, pair->node_id);
}

static struct peer *accepted_peer(struct control *c, uint64_t node_id)
{
	struct peer *free_peer = NULL;

	for (uint16_t i = c->config->n_stores; i < c->n_peers; i++) {
		struct peer *p = &c->peers[i];

		if (p->is_used && p->node_id == node_id)
			return p;
		/* Rather the place that it had before, which knows what of it was told. */
		if (!p->is_used && (!free_peer || (p->node_id == node_id && free_peer->node_id != node_id)))
			free_peer = p;
	}
	if (free_peer) {
		struct peer former = *free_peer;

		memset(free_peer, 0, sizeof(*free_peer));
		/* Who comes back is not told of anew. */
		if (former.node_id == node_id)
			memcpy(free_peer->breaches, former.breaches, sizeof(former.breaches));
		free_peer->is_used = true;
		free_peer->node_id = node_id;
	}
	return free_peer;
}

/* Handles and generations of the old incarnation mean nothing to the new one. */
static void restarted(struct control *c, struct peer *p, const struct pair *pair)
{
	uint16_t idx = (uint16_t)(p - c->peers);
	char cause[RY_CAUSE_MAX_BYTES];

	snprintf(cause, sizeof(cause), "node %s was restarted", pair->node_name);
	fail_transfers(c, idx, RY_ERR_PEER_RESTARTED, cause);
	if (p->is_dialled)
		lookup_drop_peer(c, idx);
}

static void fail_transfers(struct control *c, uint16_t peer_idx, uint32_t status, const char *cause)
{
	struct xfer *x, *next;

	for (x = TAILQ_FIRST(&c->used_xfers); x; x = next) {
		next = TAILQ_NEXT(x, link);
		if (x->peer_idx == peer_idx && !x->is_failed) {
			xfer_fail(c, x, status, RY_RAIL_NONE, cause);
			next = TAILQ_FIRST(&c->used_xfers);
		}
	}
}

void peer_pair_down(struct control *c, struct pair_event *ev)
{
	const struct pair *pair = ev->pair;
	uint16_t idx = peer_of_pair(c, pair->idx, pair->epoch);
	struct rail_fault fault = {.evidence = ev->evidence, .status = ev->status, .connection = pair->epoch};
	struct peer *p;

	/* A deliberate end says nothing, whoever decided it: what led to it was told before. But a peer that rebuilds
	 * had its own reason, which may be the path to us: the next connection carries nothing before its PING is back.
	 */
	health_lost(&c->health, pair->idx, ev->reason != 0 && ev->reason != WIRE_BYE_REBUILD,
		ev->reason ? NULL : &fault, c->now_ns);
	if (idx != UINT16_MAX) {
		p = &c->peers[idx];
		for (uint32_t i = 0; i < p->n_pairs; i++) {
			if (p->pairs[i].epoch == pair->epoch && p->pairs[i].pair == pair) {
				p->pairs[i] = p->pairs[--p->n_pairs];
				break;
			}
		}
		endpoints_choose(c, p);
		memcpy(p->cause, ev->cause, sizeof(p->cause));
		end_at_clause(p->cause);
		meta_pair_lost(c, pair->idx, pair->epoch);
		if (!p->n_pairs && !p->is_dialled) {
			fail_transfers(c, idx, RY_ERR_RAIL, ev->cause);
			p->is_used = false;
		}
	}
	path_down(c, pair);
	ack_down(c, ev);
}

static void ack_down(struct control *c, struct pair_event *ev)
{
	ev->m.kind = MSG_PAIR_QUIESCED;
	spsc_push(c->d.to_conn, ev);
	c->want_conn_kick = true;
}

uint16_t peer_of_pair(const struct control *c, uint16_t pair_idx, uint32_t epoch)
{
	for (uint16_t i = 0; i < c->n_peers; i++) {
		const struct peer *p = &c->peers[i];

		for (uint32_t k = 0; p->is_used && k < p->n_pairs; k++) {
			if (p->pairs[k].epoch == epoch && p->pairs[k].pair->idx == pair_idx)
				return i;
		}
	}
	return UINT16_MAX;
}

const struct peer_pair *peer_meta_pair(const struct control *c, uint16_t peer_idx)
{
	const struct peer *p = &c->peers[peer_idx];

	/* Always the same one while it lives: the parts of a put must arrive in order. */
	return p->n_pairs ? &p->pairs[0] : NULL;
}

void peer_want_dial(struct control *c, uint16_t peer_idx)
{
	struct peer *p = &c->peers[peer_idx];

	if (p->is_dialling || !p->is_dialled)
		return;
	p->is_dialling = true;
	p->dial.m.kind = MSG_DIAL;
	p->dial.store_idx = p->store_idx;
	spsc_push(c->d.to_conn, &p->dial);
	c->want_conn_kick = true;
}

void peer_dialled(struct control *c, struct dial_event *ev)
{
	struct peer *p = &c->peers[ev->store_idx];

	p->is_dialling = false;
	if (ev->m.kind == MSG_DIAL_DONE || p->n_pairs)
		return;
	memcpy(p->cause, ev->cause, sizeof(p->cause));
	/* Whatever kept the attempts from a connection, no rail reaches the store; only a refusal for its version is
	 * more. */
	meta_dial_failed(c, ev->store_idx, ev->status == RY_ERR_VERSION ? RY_ERR_VERSION : RY_ERR_NO_RAIL);
}

/* Of the reasons of many rails, the one that was cut in a word is none. */
static void end_at_clause(char cause[RY_CAUSE_MAX_BYTES])
{
	char *last;

	if (strlen(cause) < RY_CAUSE_MAX_BYTES - 1)
		return;
	cause[RY_CAUSE_MAX_BYTES - sizeof("; ...")] = 0;
	last = strrchr(cause, ';');
	strcpy(last ? last : cause + strlen(cause), "; ...");
}

void peer_dial_fault(struct control *c, struct dial_fault *f)
{
	struct rail_fault fault = {.evidence = f->evidence, .status = f->status};

	health_dial_failed(
		&c->health, health_breaker(&c->health, f->store_idx, f->endpoint_idx, f->rail_idx), &fault, c->now_ns);
	f->m.kind = MSG_DIAL_FAULT_SEEN;
	spsc_push(c->d.to_conn, f);
	c->want_conn_kick = true;
}
