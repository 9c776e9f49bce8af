/* SPDX-License-Identifier: BSD-3-Clause */
#include "daemon/conn_priv.h"

#include <string.h>

#include "daemon/log.h"

static uint64_t self_incarnation(const struct conn *c);
static void introduce(struct conn *c, struct link *l, const struct wire_hello *h);
static struct meta_buf *carry(struct conn *c, struct meta_buf *b, struct link *to);
static void deliver(struct conn *c, struct link *from, struct meta_buf *b);

void self_dial(struct conn *c, struct dialler *d)
{
	struct link *a = d->link;
	struct link *b = link_alloc(c, d->rail_idx);
	struct wire_hello h;

	a->pair.is_self = true;
	if (!b) {
		link_down(c, a, RY_ERR_LIMIT, 0, "the pair table is full");
		return;
	}
	b->pair.store_idx = 0xffff;
	a->twin = b;
	b->twin = a;
	hello_fill(c, d->rail_idx, WIRE_CONN_BOOTSTRAP, &h);
	h.incarnation = self_incarnation(c);
	introduce(c, a, &h);
	introduce(c, b, &h);
	for (uint16_t i = 0; i < a->pair.n_qps && a->state == LINK_JOINING; i++) {
		link_add_qp(c, a, i, -1);
		if (a->state == LINK_JOINING)
			link_add_qp(c, b, i, -1);
	}
}

/* This node, as often as a fault plan of any of its rails restarted it. */
static uint64_t self_incarnation(const struct conn *c)
{
	uint64_t incarnation = c->deps.incarnation;

	for (uint16_t r = 0; r < c->deps.config->n_rails; r++) {
		/* Relaxed: the rail wrote it before it released QP_FAILED, which is why we are here. */
		incarnation += __atomic_load_n(&rail_attr(c->deps.rails[r])->peer_restarts, __ATOMIC_RELAXED);
	}
	return incarnation;
}

static void introduce(struct conn *c, struct link *l, const struct wire_hello *h)
{
	l->pair.is_self = true;
	l->state = LINK_JOINING;
	memcpy(l->peer_text, "this node", sizeof("this node"));
	link_identify(c, l, h);
	info_link(c, l);
}

bool self_write(struct conn *c, struct link *l)
{
	bool did = false;

	while (l->state == LINK_UP && l->twin->state == LINK_UP && l->n_out) {
		struct meta_buf *b = l->out[l->out_head];
		struct meta_buf *copy = carry(c, b, l->twin);

		/* No buffer: link_step asks again, at the latest in the turn that takes one back. */
		if (!copy)
			break;
		l->out_head = (l->out_head + 1) % LINK_OUT_MAX;
		l->n_out--;
		if (copy != b) {
			l->n_tx--;
			buf_return(c, b, true);
		}
		deliver(c, l, copy);
		did = true;
	}
	return did;
}

/* A reply is in a buffer of ours already and goes on in it, on the account of its request: replies never wait for a
 * buffer. */
static struct meta_buf *carry(struct conn *c, struct meta_buf *b, struct link *to)
{
	struct meta_buf *copy;

	if (buf_is_own(c, b))
		return b;
	copy = buf_take(c, to);
	if (!copy)
		return NULL;
	memcpy(copy->data, b->data, b->len_bytes);
	copy->len_bytes = b->len_bytes;
	return copy;
}

/* As conn_link.c's body_done: a request that fails its check is answered with ERROR, a bad answer becomes one. */
static void deliver(struct conn *c, struct link *from, struct meta_buf *b)
{
	const struct wire_meta *h = (const void *)b->data;
	struct link *to = from->twin;

	if (wire_meta_check(b->data, b->len_bytes) != RY_OK) {
		log_error("conn: a message of type %u to this node is malformed", h->type);
		if (!meta_is_reply(h->type))
			to = from;
		b->len_bytes = wire_enc_fixed(
			b->data, WIRE_META_ERROR, sizeof(struct wire_meta), h->request_id, RY_ERR_PROTOCOL);
	}
	b->pair_idx = to->idx;
	b->pair_epoch = to->pair.epoch;
	b->op = NULL;
	queue_emit(c, &b->m, MSG_META_RX);
}
