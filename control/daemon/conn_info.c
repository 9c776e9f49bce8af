/* SPDX-License-Identifier: BSD-3-Clause */
#include "daemon/conn_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static bool read_row(const struct info_row *r, struct conn_pair_info *out);
static uint8_t state_of(const struct link *l);

int info_create(struct conn *c)
{
	c->rows = calloc(c->n_diallers + PAIRS_MAX, sizeof(*c->rows));
	return c->rows ? 0 : -ENOMEM;
}

void info_publish(struct conn *c, uint32_t row, const struct conn_pair_info *info)
{
	struct info_row *r = &c->rows[row];
	uint32_t words[INFO_WORDS] = {0};
	uint32_t seq = r->seq;

	memcpy(words, info, sizeof(*info));
	__atomic_store_n(&r->seq, seq + 1, __ATOMIC_RELAXED);
	/* Partner: the acquire fence in read_row. Whoever sees a new word sees the odd number too. */
	__atomic_thread_fence(__ATOMIC_RELEASE);
	for (size_t i = 0; i < INFO_WORDS; i++)
		__atomic_store_n(&r->words[i], words[i], __ATOMIC_RELAXED);
	__atomic_store_n(&r->is_used, 1, __ATOMIC_RELAXED);
	/* Partner: the acquire load in read_row. */
	__atomic_store_n(&r->seq, seq + 2, __ATOMIC_RELEASE);
}

void info_clear(struct conn *c, uint32_t row)
{
	__atomic_store_n(&c->rows[row].is_used, 0, __ATOMIC_RELAXED);
}

void info_link(struct conn *c, struct link *l)
{
	struct conn_pair_info *info = l->dialler ? &l->dialler->info : &l->info;

	info->state = state_of(l);
	if (l->pair.node_name[0])
		memcpy(info->peer, l->pair.node_name, sizeof(info->peer));
	if (l->dialler) {
		info_publish(c, l->dialler->row, info);
		return;
	}
	info->store_idx = 0xffff;
	info->rail_idx = l->pair.rail_idx;
	info_publish(c, c->n_diallers + l->idx, info);
}

uint32_t conn_info(const struct conn *c, struct conn_pair_info *rows, uint32_t n)
{
	uint32_t n_found = 0;

	for (uint32_t i = 0; i < c->n_diallers + PAIRS_MAX; i++) {
		struct conn_pair_info row;

		if (!read_row(&c->rows[i], &row))
			continue;
		if (n_found < n)
			rows[n_found] = row;
		n_found++;
	}
	return n_found;
}

static bool read_row(const struct info_row *r, struct conn_pair_info *out)
{
	uint32_t words[INFO_WORDS];
	uint32_t seq;

	do {
		if (!__atomic_load_n(&r->is_used, __ATOMIC_RELAXED))
			return false;
		/* Partner: the release store at the end of info_publish. */
		seq = __atomic_load_n(&r->seq, __ATOMIC_ACQUIRE);
		for (size_t i = 0; i < INFO_WORDS; i++)
			words[i] = __atomic_load_n(&r->words[i], __ATOMIC_RELAXED);
		/* Partner: the release fence in info_publish. */
		__atomic_thread_fence(__ATOMIC_ACQUIRE);
	} while (seq & 1 || __atomic_load_n(&r->seq, __ATOMIC_RELAXED) != seq);
	memcpy(out, words, sizeof(*out));
	return true;
}

static uint8_t state_of(const struct link *l)
{
	switch (l->state) {
	case LINK_FREE:
		return CONN_DOWN;
	case LINK_UP:
		return CONN_UP;
	case LINK_DRAINING:
	case LINK_RELEASING:
		return CONN_CLOSING;
	default:
		return CONN_DIALLING;
	}
}
