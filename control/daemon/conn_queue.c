/* SPDX-License-Identifier: BSD-3-Clause */
#include "daemon/conn_priv.h"

#include <assert.h>

/*
 * The queue cannot overflow: two events per pair, one failure per dialler (there are no more of them than pairs), every
 * receive buffer, every waiting dial, and at most TX_HELD_MAX of control's buffers, because conn stops taking messages
 * while it holds that many.
 */
static_assert(3 * PAIRS_MAX + RX_BUFS + DIALS_WAITING_MAX + TX_HELD_MAX <= QUEUE_ENTRIES, "queue");

void queue_emit(struct conn *c, struct msg *m, enum msg_kind kind)
{
	m->kind = (uint16_t)kind;
	assert(c->n_queue < QUEUE_ENTRIES);
	c->queue[(c->queue_head + c->n_queue++) % QUEUE_ENTRIES] = m;
	queue_flush(c);
}

bool queue_flush(struct conn *c)
{
	bool did = false;

	while (c->n_queue && spsc_push(c->deps.to_control, c->queue[c->queue_head])) {
		c->queue_head = (c->queue_head + 1) % QUEUE_ENTRIES;
		c->n_queue--;
		c->want_kick = true;
		did = true;
	}
	return did;
}

struct meta_buf *buf_take(struct conn *c, struct link *l)
{
	struct meta_buf *b;

	if (!c->n_free_bufs || l->n_bufs >= LINK_BUFS_MAX)
		return NULL;
	b = c->free_bufs[--c->n_free_bufs];
	c->owners[b - c->bufs] = (struct buf_owner){.link = l, .epoch = l->pair.epoch};
	l->n_bufs++;
	return b;
}

void buf_put(struct conn *c, struct meta_buf *b)
{
	struct buf_owner *o = &c->owners[b - c->bufs];

	/* A pair that is gone has taken its account with it. */
	if (o->link && o->link->pair.epoch == o->epoch)
		o->link->n_bufs--;
	o->link = NULL;
	c->free_bufs[c->n_free_bufs++] = b;
}

bool buf_is_own(const struct conn *c, const struct meta_buf *b)
{
	return b >= c->bufs && b < c->bufs + RX_BUFS;
}

void buf_return(struct conn *c, struct meta_buf *b, bool is_sent)
{
	if (buf_is_own(c, b)) {
		buf_put(c, b);
		return;
	}
	c->n_tx_held--;
	queue_emit(c, &b->m, is_sent ? MSG_META_SENT : MSG_META_UNSENT);
}
