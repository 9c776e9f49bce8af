/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory regions and windows. */
#include "transport/ib/ib.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static int register_region(struct rail *r, void *base, uint64_t bytes, uint16_t region);

int ib_mem_reg(struct rail *r, void *base, uint64_t bytes, uint16_t region)
{
	struct ib_rail *ib = ib_of(r);
	int rc = -ENODEV;

	pthread_rwlock_rdlock(&ib->lock);
	if (ib->has_left)
		snprintf(r->why, sizeof(r->why), "rail %s: its RDMA device was removed", r->conf.name);
	else
		rc = register_region(r, base, bytes, region);
	pthread_rwlock_unlock(&ib->lock);
	return rc;
}

static int register_region(struct rail *r, void *base, uint64_t bytes, uint16_t region)
{
	struct ib_rail *ib = ib_of(r);
	const char *name = ibv_get_device_name(ib->ctx->device);
	int rc;

	if (bytes > ib->attr.max_mr_size) {
		snprintf(r->why, sizeof(r->why),
			"rail %s: device %s registers regions of at most %" PRIu64 " bytes (max_mr_size), this one has "
			"%" PRIu64 "; make store.memory or the arenas smaller",
			r->conf.name, name, ib->attr.max_mr_size, bytes);
		return -E2BIG;
	}
	rc = ib_mr_open(ib, base, bytes, ib->has_windows ? 0 : IBV_ACCESS_REMOTE_WRITE, &ib->mrs[region]);
	if (!rc && !ib->has_windows)
		ib->region_keys[region] = ib->mrs[region].mr->rkey;
	if (rc)
		snprintf(r->why, sizeof(r->why), "rail %s: device %s cannot register %" PRIu64 " bytes: %s%s",
			r->conf.name, name, bytes, strerror(-rc), rc == -ENOMEM ? "; raise RLIMIT_MEMLOCK" : "");
	return rc;
}

void ib_mem_dereg(struct rail *r, uint16_t region)
{
	struct ib_rail *ib = ib_of(r);

	pthread_rwlock_rdlock(&ib->lock);
	ib->region_keys[region] = 0;
	ib_mr_close(&ib->mrs[region]);
	pthread_rwlock_unlock(&ib->lock);
}

/* With windows, no remote access of its own (see ib.h). */
int ib_mr_open(struct ib_rail *ib, void *base, uint64_t bytes, int remote, struct ib_mr *out)
{
	int access = IBV_ACCESS_LOCAL_WRITE | (ib->has_windows ? IBV_ACCESS_MW_BIND : remote);

	out->mr = ibv_reg_mr(ib->pd, base, bytes, access);
	if (!out->mr)
		return -(errno ? errno : EIO);
	out->base = base;
	out->bytes = bytes;
	return 0;
}

void ib_mr_close(struct ib_mr *mr)
{
	if (mr->mr)
		ibv_dereg_mr(mr->mr);
	memset(mr, 0, sizeof(*mr));
}

static int make_window(struct ib_rail *ib, uint16_t idx)
{
	ib->mws[idx] = ibv_alloc_mw(ib->pd, IBV_MW_TYPE_2);
	if (!ib->mws[idx])
		return -(errno ? errno : ENOMEM);
	ib->next_keys[idx] = ibv_inc_rkey(ib->mws[idx]->rkey);
	return 0;
}

int ib_windows_create(struct ib_rail *ib)
{
	int rc = 0;

	for (uint16_t i = 0; i < WINDOWS_MAX && !rc; i++)
		rc = make_window(ib, i);
	return rc;
}

void ib_windows_destroy(struct ib_rail *ib)
{
	for (uint16_t i = 0; i < WINDOWS_MAX; i++) {
		if (ib->mws[i])
			ibv_dealloc_mw(ib->mws[i]);
		ib->mws[i] = NULL;
	}
}

/* The key never returns: a window that had an unclean end is not rotated on, its rotating part has 8 bits only. Where
 * there is no fresh one, the next bind finds none and ends its QP as a local fault. */
bool ib_window_fence(struct ib_rail *ib, uint16_t idx)
{
	if (ib->mws[idx] && ibv_dealloc_mw(ib->mws[idx]))
		return false;
	ib->mws[idx] = NULL;
	make_window(ib, idx);
	return true;
}

void ib_window_renew(struct ib_rail *ib, uint16_t idx)
{
	if (ib_window_fence(ib, idx))
		return;
	ib->mws[idx] = NULL;
	make_window(ib, idx);
}
