/* SPDX-License-Identifier: BSD-3-Clause */
#include "mem.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct region {
	uint8_t *base;
	uint64_t bytes;
	uint16_t n_rails; /* looked at so far: what region_unregister undoes */
	uint32_t reach;   /* those it is registered on */
	struct region_rail rails[RY_RAILS_MAX];
	uint32_t lkeys[RY_RAILS_MAX];
};

int region_register(const struct region_rail *rails, uint16_t n_rails, void *base, uint64_t bytes, enum mem_kind kind,
	struct region **out)
{
	struct region *r;

	if (!base || bytes == 0 || n_rails > RY_RAILS_MAX || bytes > UINTPTR_MAX - (uintptr_t)base)
		return -EINVAL;
	r = calloc(1, sizeof(*r));
	if (!r)
		return -ENOMEM;
	r->base = base;
	r->bytes = bytes;
	memcpy(r->rails, rails, n_rails * sizeof(*rails));
	while (r->n_rails < n_rails) {
		const struct region_rail *rail = &r->rails[r->n_rails];
		bool is_reached = kind == MEM_HOST || rail->reaches_device;
		int rc = is_reached ? rail->reg(rail->rail, base, bytes, kind, &r->lkeys[r->n_rails]) : 0;

		if (rc) {
			region_unregister(r);
			return rc;
		}
		r->reach |= is_reached ? 1u << r->n_rails : 0;
		r->n_rails++;
	}
	if (n_rails && !r->reach) {
		region_unregister(r);
		return -ENOTSUP;
	}
	*out = r;
	return 0;
}

void region_unregister(struct region *r)
{
	if (!r)
		return;
	while (r->n_rails) {
		const struct region_rail *rail = &r->rails[--r->n_rails];

		if (r->reach >> r->n_rails & 1)
			rail->dereg(rail->rail, r->lkeys[r->n_rails]);
	}
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
	return r ? r->reach : UINT32_MAX;
}

uint32_t region_lkey(const struct region *r, uint16_t rail_idx)
{
	return rail_idx < r->n_rails ? r->lkeys[rail_idx] : 0;
}
