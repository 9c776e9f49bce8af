/* SPDX-License-Identifier: BSD-3-Clause */
#include "mem.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct region {
	uint8_t *base;
	uint64_t bytes;
	uint16_t n_rails; /* looked at so far: what region_unregister undoes */
	uint16_t idx;
	uint8_t kind;   /* enum mem_kind */
	uint32_t reach; /* those it is registered on; written by the work thread, read by control */
	struct region_set *set;
	struct region *next, *prev; /* in set */
};

static int take_number(struct region_set *set);
static void link_in(struct region *r);
static void link_out(struct region *r);
static bool is_in_reach(const struct region_rail *rail, enum mem_kind kind);

int region_register(struct region_set *set, void *base, uint64_t bytes, enum mem_kind kind, struct region **out)
{
	struct region *r;
	uint16_t n_left = set->n_rails; /* whose device is there */
	int idx;

	set->refused_by = RY_RAILS_MAX;
	if (!base || bytes == 0 || bytes > UINTPTR_MAX - (uintptr_t)base)
		return -EINVAL;
	idx = take_number(set);
	if (idx < 0)
		return idx;
	r = calloc(1, sizeof(*r));
	if (!r) {
		set->used[idx / 64] &= ~(1ull << (idx % 64));
		return -ENOMEM;
	}
	*r = (struct region){.base = base, .bytes = bytes, .idx = (uint16_t)idx, .kind = (uint8_t)kind, .set = set};
	link_in(r);
	while (r->n_rails < set->n_rails) {
		const struct region_rail *rail = &set->rails[r->n_rails];
		bool is_reached = is_in_reach(rail, kind);
		int rc = is_reached ? rail->reg(rail->rail, base, bytes, kind, r->idx) : 0;

		/* Its device has left: the other rails go on. */
		if (rc == -ENODEV) {
			rc = is_reached = false;
			n_left--;
		}
		if (rc) {
			set->refused_by = r->n_rails;
			region_unregister(r);
			return rc;
		}
		r->reach |= is_reached ? 1u << r->n_rails : 0;
		r->n_rails++;
	}
	if (set->n_rails && !r->reach) {
		region_unregister(r);
		return n_left ? -ENOTSUP : -ENODEV;
	}
	*out = r;
	return 0;
}

int region_register_on(struct region_set *set, uint16_t rail_idx)
{
	const struct region_rail *rail = &set->rails[rail_idx];

	set->refused_by = RY_RAILS_MAX;
	for (const struct region *r = set->first; r; r = r->next) {
		int rc = is_in_reach(rail, r->kind) ? rail->reg(rail->rail, r->base, r->bytes, r->kind, r->idx) : 0;

		if (rc) {
			set->refused_by = rail_idx;
			return rc;
		}
	}
	/* Relaxed: control hands nothing to the rail before a pair of it is up, and word of that comes by rings, from
	 * us to conn and from conn to control. */
	for (struct region *r = set->first; r; r = r->next) {
		if (is_in_reach(rail, r->kind))
			__atomic_store_n(&r->reach, r->reach | 1u << rail_idx, __ATOMIC_RELAXED);
	}
	return 0;
}

const char *region_why(const struct region_set *set, int rc)
{
	const struct region_rail *rail = set->refused_by < set->n_rails ? &set->rails[set->refused_by] : NULL;
	const char *why = rail && rail->why ? rail->why(rail->rail) : "";

	return why[0] ? why : strerror(-rc);
}

uint64_t region_pinned_bytes(const struct region_set *set, uint64_t bytes)
{
	uint64_t sum = 0;

	for (uint16_t i = 0; i < set->n_rails; i++)
		sum += set->rails[i].pins ? bytes : 0;
	return sum;
}

static int take_number(struct region_set *set)
{
	for (uint32_t w = 0; w < REGIONS_MAX / 64; w++) {
		if (~set->used[w]) {
			int bit = __builtin_ctzll(~set->used[w]);

			set->used[w] |= 1ull << bit;
			return (int)(w * 64) + bit;
		}
	}
	return -ENOSPC;
}

static void link_in(struct region *r)
{
	r->next = r->set->first;
	if (r->next)
		r->next->prev = r;
	r->set->first = r;
}

static void link_out(struct region *r)
{
	if (r->next)
		r->next->prev = r->prev;
	if (r->prev)
		r->prev->next = r->next;
	else
		r->set->first = r->next;
}

static bool is_in_reach(const struct region_rail *rail, enum mem_kind kind)
{
	return kind == MEM_HOST || rail->reaches_device;
}

void region_unregister(struct region *r)
{
	if (!r)
		return;
	link_out(r);
	while (r->n_rails) {
		const struct region_rail *rail = &r->set->rails[--r->n_rails];

		if (r->reach >> r->n_rails & 1)
			rail->dereg(rail->rail, r->idx);
	}
	r->set->used[r->idx / 64] &= ~(1ull << (r->idx % 64));
	free(r);
}

bool region_covers(const struct region *r, const void *addr, uint64_t bytes)
{
	uintptr_t a = (uintptr_t)addr, base;

	if (!r)
		return false;
	base = (uintptr_t)r->base;
	return a >= base && bytes <= r->bytes && a - base <= r->bytes - bytes;
}

uint32_t region_reach(const struct region *r)
{
	return r ? __atomic_load_n(&r->reach, __ATOMIC_RELAXED) : UINT32_MAX; /* see region_register_on */
}

uint16_t region_idx(const struct region *r)
{
	return r ? r->idx : REGION_NONE;
}
