/* SPDX-License-Identifier: BSD-3-Clause */
/* MSG_DIAL: reads that need a store which is not connected ask for it and are told when a pair is up, or that none will
 * be and why. */
#include "daemon/conn_priv.h"

#include <stdio.h>

static bool settle_one(struct conn *c, struct dial_event *e);
static void explain(const struct conn *c, struct dial_event *e, const struct dialler *last);
static void hasten(const struct conn *c, struct dialler *d);
static bool is_store_up(const struct conn *c, uint16_t store_idx);

void dial_request(struct conn *c, struct dial_event *e)
{
	if (c->n_waiting == DIALS_WAITING_MAX) {
		e->status = RY_ERR_LIMIT;
		snprintf(e->cause, sizeof(e->cause), "too many dials wait");
		queue_emit(c, &e->m, MSG_DIAL_FAILED);
		return;
	}
	c->waiting[c->n_waiting++] = e;
	e->asked_at = c->n_started;
	if (is_store_up(c, e->store_idx))
		return;
	for (uint32_t i = 0; i < c->n_diallers; i++) {
		if (c->diallers[i].store_idx == e->store_idx)
			hasten(c, &c->diallers[i]);
	}
}

/* There is a request for each read that fails. Who refused us is asked for them too, but once a pause and no more; and
 * when they end, as rarely as before. */
static void hasten(const struct conn *c, struct dialler *d)
{
	uint64_t least_ns = d->n_refused ? d->started_ns + dial_pause_ns(c) : 0;

	if (!d->link)
		d->next_ns = d->next_ns < least_ns ? d->next_ns : least_ns;
	else if (d->link->state >= LINK_DRAINING && !d->link->is_refused)
		d->want_now = true;
}

static bool is_store_up(const struct conn *c, uint16_t store_idx)
{
	for (uint32_t i = 0; i < c->n_diallers; i++) {
		const struct dialler *d = &c->diallers[i];

		if (d->store_idx == store_idx && d->link && d->link->state == LINK_UP)
			return true;
	}
	return false;
}

void dials_settle(struct conn *c)
{
	uint32_t n_kept = 0;

	for (uint32_t i = 0; i < c->n_waiting; i++) {
		if (!settle_one(c, c->waiting[i]))
			c->waiting[n_kept++] = c->waiting[i];
	}
	c->n_waiting = n_kept;
}

/* Done with the first pair that is up, failed when every rail was tried in vain. Returns whether it was answered. */
static bool settle_one(struct conn *c, struct dial_event *e)
{
	const struct dialler *failed = NULL;
	bool is_busy = false;

	for (uint32_t i = 0; i < c->n_diallers; i++) {
		const struct dialler *d = &c->diallers[i];

		if (d->store_idx != e->store_idx)
			continue;
		e->rail_idx = d->rail_idx;
		if (d->link && d->link->state == LINK_UP) {
			e->status = RY_OK;
			e->cause[0] = 0;
			queue_emit(c, &e->m, MSG_DIAL_DONE);
			return true;
		}
		if (!d->link && !dialler_is_wanted(c, d))
			continue;
		/* One that waited in vain is followed by the next at once: what was tried since the question and
		 * failed is an answer. */
		is_busy |= (d->link != NULL || d->next_ns <= c->now_ns) && d->failed_at <= e->asked_at;
		failed = d;
	}
	if (is_busy)
		return false;
	e->status = failed ? failed->status : RY_ERR_INVALID;
	explain(c, e, failed);
	queue_emit(c, &e->m, MSG_DIAL_FAILED);
	return true;
}

/* Each attempt with its rail, where there were several: one rail's reason is seldom the other's. */
static void explain(const struct conn *c, struct dial_event *e, const struct dialler *last)
{
	uint32_t used = 0, n = 0;

	for (uint32_t i = 0; i < c->n_diallers && used < sizeof(e->cause); i++) {
		const struct dialler *d = &c->diallers[i];

		if (d->store_idx != e->store_idx || (!d->link && !dialler_is_wanted(c, d)))
			continue;
		used += (uint32_t)snprintf(e->cause + used, sizeof(e->cause) - used, "%srail %s: %s", n++ ? "; " : "",
			conn_rail_conf(c, d->rail_idx)->name, d->info.last_error);
	}
	if (n < 2)
		snprintf(e->cause, sizeof(e->cause), "%s", last ? last->info.last_error : "no such endpoint");
}
