/* SPDX-License-Identifier: BSD-3-Clause */
/* All memory of the control lcore, made once. */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <rte_errno.h>

#include "read/control_priv.h"

#define EVICTIONS_MAX 64u /* for one piece of memory: bounds a turn, and the next that asks goes on */

static int make_clients(struct control *c);
static int make_ops(struct control *c);
static int make_xfers(struct control *c);
static int make_descs(struct control *c);
static int make_pools(struct control *c);
static int make_meta(struct control *c);

int tables_create(struct control *c)
{
	int rc;

	TAILQ_INIT(&c->free_ops);
	TAILQ_INIT(&c->send_queue);
	TAILQ_INIT(&c->quiet_ops);
	TAILQ_INIT(&c->free_xfers);
	TAILQ_INIT(&c->used_xfers);
	TAILQ_INIT(&c->active);
	TAILQ_INIT(&c->active_peers);
	TAILQ_INIT(&c->free_descs);
	TAILQ_INIT(&c->lru_descs);
	rc = make_clients(c);
	rc = rc ? rc : make_ops(c);
	rc = rc ? rc : make_xfers(c);
	rc = rc ? rc : make_descs(c);
	rc = rc ? rc : make_pools(c);
	rc = rc ? rc : make_meta(c);
	return rc;
}

static int make_clients(struct control *c)
{
	c->clients = calloc(c->config->max_clients, sizeof(*c->clients));
	c->live = calloc(c->config->max_clients, sizeof(*c->live));
	if (!c->clients || !c->live)
		return -ENOMEM;
	for (uint32_t i = 0; i < c->config->max_clients; i++) {
		struct client_state *cs = &c->clients[i];

		TAILQ_INIT(&cs->ops);
		TAILQ_INIT(&cs->admit_queue);
		cs->leases = calloc(LEASES_PER_CLIENT, sizeof(*cs->leases));
		cs->slot_busy = calloc(RY_RING_ENTRIES_MAX, 1);
		if (!cs->leases || !cs->slot_busy)
			return -ENOMEM;
	}
	return 0;
}

static int make_ops(struct control *c)
{
	c->n_ops = c->config->max_reads + OPS_EXTRA;
	c->ops = calloc(c->n_ops, sizeof(*c->ops));
	if (!c->ops)
		return -ENOMEM;
	for (uint32_t i = 0; i < c->n_ops; i++)
		TAILQ_INSERT_TAIL(&c->free_ops, &c->ops[i], link);
	return 0;
}

static int make_xfers(struct control *c)
{
	c->n_xfers = c->config->max_reads + XFERS_EXTRA;
	c->xfers = calloc(c->n_xfers, sizeof(*c->xfers));
	c->putins = calloc(PUTINS_MAX, sizeof(*c->putins));
	c->peers = calloc(c->config->n_stores + ACCEPTED_PEERS_MAX, sizeof(*c->peers));
	if (!c->xfers || !c->putins || !c->peers)
		return -ENOMEM;
	for (uint32_t i = 0; i < c->n_xfers; i++)
		TAILQ_INSERT_TAIL(&c->free_xfers, &c->xfers[i], link);
	return 0;
}

static int make_descs(struct control *c)
{
	char name[RTE_HASH_NAMESIZE];
	struct rte_hash_parameters p = {
		.name = name,
		.entries = c->config->descriptor_cache_entries * 2,
		.key_len = 16,
		.socket_id = c->d.socket_id,
	};

	snprintf(name, sizeof(name), "desc%" PRIx64, c->d.incarnation & 0xffffffff);
	c->n_descs = c->config->descriptor_cache_entries;
	c->descs = calloc(c->n_descs, sizeof(*c->descs));
	c->desc_hash = rte_hash_create(&p);
	if (!c->descs || !c->desc_hash)
		return -ENOMEM;
	for (uint32_t i = 0; i < c->n_descs; i++) {
		TAILQ_INIT(&c->descs[i].waiters);
		TAILQ_INSERT_TAIL(&c->free_descs, &c->descs[i], link);
	}
	return 0;
}

static int make_pools(struct control *c)
{
	char name[RTE_MEMPOOL_NAMESIZE];

	snprintf(name, sizeof(name), "seg%" PRIx64, c->d.incarnation & 0xffffffff);
	c->seg_pool = pool_create(name, SEGMENTS_MAX, sizeof(struct segment), c->d.socket_id);
	if (!c->seg_pool)
		return -rte_errno;
	snprintf(name, sizeof(name), "job%" PRIx64, c->d.incarnation & 0xffffffff);
	c->job_pool = pool_create(name, JOBS_MAX, sizeof(struct stripe_job), c->d.socket_id);
	if (!c->job_pool)
		return -rte_errno;
	/* Only control takes and gives: a list in plain memory costs a tenth of a pool's calls. */
	for (; c->n_segs_free < SEGMENTS_MAX; c->n_segs_free++) {
		struct segment *s = pool_get(c->seg_pool);

		s->owner_next = c->free_segs;
		c->free_segs = s;
	}
	for (; c->n_jobs_free < JOBS_MAX; c->n_jobs_free++) {
		struct stripe_job *j = pool_get(c->job_pool);

		j->next = c->free_jobs;
		c->free_jobs = j;
	}
	return 0;
}

static int make_meta(struct control *c)
{
	void *slab = mmap(NULL, META_SLAB_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (slab == MAP_FAILED)
		return -errno;
	c->meta_slab = slab;
	c->probes = calloc(PROBES_MAX, sizeof(*c->probes));
	c->meta_bufs = calloc(META_TX_MAX, sizeof(*c->meta_bufs));
	if (!c->meta_bufs || !c->probes)
		return -ENOMEM;
	for (uint32_t i = 0; i < META_TX_MAX; i++)
		c->meta_free[c->n_meta_free++] = &c->meta_bufs[i];
	return extent_map_create(META_SLAB_BYTES, META_GRANULE, &c->meta_map);
}

void tables_destroy(struct control *c)
{
	for (uint32_t i = 0; c->clients && i < c->config->max_clients; i++) {
		free(c->clients[i].leases);
		free(c->clients[i].slot_busy);
	}
	free(c->clients);
	free(c->live);
	free(c->ops);
	free(c->xfers);
	free(c->putins);
	free(c->peers);
	free(c->descs);
	free(c->meta_bufs);
	free(c->probes);
	rte_hash_free(c->desc_hash);
	rte_mempool_free(c->seg_pool);
	rte_mempool_free(c->job_pool);
	if (c->meta_map)
		extent_map_destroy(c->meta_map);
	if (c->meta_slab)
		munmap(c->meta_slab, META_SLAB_BYTES);
}

void *meta_alloc(struct control *c, uint64_t bytes, uint64_t *off)
{
	*off = extent_alloc(c->meta_map, bytes);
	for (unsigned i = 0; *off == EXTENT_NONE && i < EVICTIONS_MAX && lookup_evict(c); i++)
		*off = extent_alloc(c->meta_map, bytes);
	return *off == EXTENT_NONE ? NULL : c->meta_slab + *off;
}

void meta_free(struct control *c, uint64_t off, uint64_t bytes)
{
	extent_free(c->meta_map, off, bytes);
}
