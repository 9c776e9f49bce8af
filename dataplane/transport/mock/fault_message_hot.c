/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The running fault plan: what happens to messages. Entered only while a plan is in force.
 */
#include <string.h>

#include "transport/mock/mock_priv.h"

static uint8_t message_of(const struct wire_msg *msg);
static void watch_stripes(struct mock_fault *f, const struct wire_read *msg);
static uint8_t choose(struct mock_fault *f, uint8_t of, uint64_t now_ns, const struct fault_entry **entry);
static bool keep(struct rail *rail, struct mock_qp *q, const struct mock_wr *e, const struct fault_entry *entry);
static void overtake(struct mock_fault *f, const struct mock_qp *q, uint8_t of);

unsigned fault_message(struct rail *rail, struct mock_qp *q, struct mock_wr *e, struct wc *wc)
{
	struct mock_fault *f = &((struct mock *)rail->tr)->fault;
	bool is_first = !(e->fault_state & MOCK_AGAIN), is_ours = wire_msg_check(e->src, e->len_bytes) == RY_OK;
	uint8_t of = message_of((const void *)e->src), kind = FAULT_NONE;
	const struct fault_entry *entry = NULL;
	unsigned what;

	e->fault_state = 0;
	if (is_first && is_ours) {
		kind = choose(f, of, rail->now_ns, &entry);
		watch_stripes(f, (const void *)e->src);
	}
	if (kind == FAULT_LOSE || (kind == FAULT_REORDER && keep(rail, q, e, entry))) {
		fault_done(f, kind);
		return MOCK_FINISHED;
	}
	stat_add(&rail->counters.wire_tx_bytes, e->len_bytes);
	stat_add(&rail->counters.wire_rx_bytes, e->len_bytes);
	overtake(f, q, of);
	what = mock_message(rail, q, e, wc);
	if (kind != FAULT_DUPLICATE || !(what & MOCK_FILLED))
		return what;
	fault_done(f, kind);
	e->fault_state = MOCK_AGAIN; /* stays at the head; the next poll has it once more */
	return MOCK_FILLED;
}

static uint8_t message_of(const struct wire_msg *msg)
{
	if (msg->type == WIRE_DONE || msg->type == WIRE_BUSY)
		return FAULT_OF_ANSWERS;
	if (msg->type == WIRE_READ || msg->type == WIRE_PULL)
		return FAULT_OF_REQUESTS;
	return msg->type == WIRE_CANCEL ? FAULT_OF_CANCELS : FAULT_OF_ALL;
}

/* A READ or PULL says which stripes its window is for. */
static void watch_stripes(struct mock_fault *f, const struct wire_read *msg)
{
	const struct wire_part *part = (const struct wire_part *)(msg + 1);

	if (message_of(&msg->h) != FAULT_OF_REQUESTS)
		return;
	for (unsigned i = 0; i < f->plan->n_entries; i++) {
		const struct fault_entry *e = &f->plan->entries[i];
		uint64_t byte = e->arg == FAULT_BYTE_ANY ? 0 : e->arg;

		if (e->trigger != FAULT_AT_STRIPE || fault_is_over(f, i))
			continue;
		for (uint16_t p = 0; p < msg->n_parts; p++) {
			uint64_t in_part = e->arg == FAULT_BYTE_ANY ? 0 : byte - part[p].offset;

			if (part[p].stripe_idx != e->at || (byte < part[p].offset && byte) ||
				in_part >= part[p].len_bytes)
				continue;
			f->run[i].key = msg->key;
			f->run[i].key_offset = part[p].window_offset + in_part;
		}
	}
}

/* Counts the message, and finds the first entry that has something to do with it. */
static uint8_t choose(struct mock_fault *f, uint8_t of, uint64_t now_ns, const struct fault_entry **entry)
{
	f->n_msgs[of]++;
	f->n_msgs[FAULT_OF_ALL] += of != FAULT_OF_ALL;
	for (unsigned i = 0; i < f->plan->n_entries; i++) {
		const struct fault_entry *e = &f->plan->entries[i];

		if (e->kind < FAULT_LOSE || e->kind > FAULT_REORDER || (e->of != of && e->of != FAULT_OF_ALL) ||
			!fault_strikes(f, i, now_ns, f->n_msgs[e->of]))
			continue;
		*entry = e;
		return e->kind;
	}
	return FAULT_NONE;
}

static bool keep(struct rail *rail, struct mock_qp *q, const struct mock_wr *e, const struct fault_entry *entry)
{
	struct mock_fault *f = &((struct mock *)rail->tr)->fault;

	for (unsigned i = 0; i < FAULT_KEPT_MAX; i++) {
		struct fault_kept *k = &f->kept[i];

		if (k->q)
			continue;
		k->q = q;
		k->until_ns = rail->now_ns + entry->for_ns;
		k->n_left = (uint32_t)entry->arg;
		k->len_bytes = e->len_bytes;
		k->of = message_of((const void *)e->src);
		k->is_handed = false;
		memcpy(k->msg, e->src, e->len_bytes);
		f->n_kept++;
		return true;
	}
	return false;
}

static void overtake(struct mock_fault *f, const struct mock_qp *q, uint8_t of)
{
	for (uint32_t i = 0; f->n_kept && i < FAULT_KEPT_MAX; i++) {
		struct fault_kept *k = &f->kept[i];

		if (k->q == q && k->of == of && k->n_left)
			k->n_left--;
	}
}

/* A slot that was handed over rests for a turn: the rail reads the message until then. */
uint16_t fault_hand_over(struct rail *rail, struct mock *m, struct wc *wc, uint16_t max)
{
	struct mock_fault *f = &m->fault;
	uint16_t n = 0;

	for (uint32_t i = 0; f->n_kept && i < FAULT_KEPT_MAX; i++) {
		struct fault_kept *k = &f->kept[i];

		if (!k->q)
			continue;
		if (k->is_handed || k->q->peer->is_down || !mock_is_live(m, k->q->peer)) {
			k->q = NULL;
			f->n_kept--;
		} else if (n < max && rail->now_ns >= f->stall_until_ns &&
			   (!k->n_left || rail->now_ns >= k->until_ns)) {
			k->is_handed = true;
			wc[n++] = (struct wc){
				.op = WC_RECV, .qp = &k->q->peer->base, .msg = k->msg, .len_bytes = k->len_bytes};
		}
	}
	return n;
}
