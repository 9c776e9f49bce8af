/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory that NICs and clients touch: slabs, arenas, extents, pools, regions, and the SIGBUS guard.
 *
 * Set-up runs on the work thread (or in main before threads exist); the extent allocator runs on the control lcore and
 * neither allocates nor makes a system call. Allocator metadata lives in daemon-private memory, never in memory a
 * client maps.
 */
#ifndef RY_MEM_H
#define RY_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <rte_mempool.h>

#include <railyard/types.h>

#include "transport/transport.h" /* REGIONS_MAX */

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Extent allocator: next-fit over a bitmap of granules. One thread. ---- */
struct extent_map; /* opaque */

#define EXTENT_GRANULE_BYTES (64u << 10) /* data slabs and arenas */
#define EXTENT_NONE UINT64_MAX

/* Covers [0, bytes) in granules of `granule_bytes` (a power of two); a remainder below one granule is not used. Set-up
 * only. 0, -EINVAL, -ENOMEM. */
int extent_map_create(uint64_t bytes, uint32_t granule_bytes, struct extent_map **out);
void extent_map_destroy(struct extent_map *m);
/* Contiguous bytes (rounded up to granules); offset, or EXTENT_NONE where no gap is long enough. */
uint64_t extent_alloc(struct extent_map *m, uint64_t bytes);
/* Releases exactly what extent_alloc(bytes) returned. A double or foreign free is caught by an assert. */
void extent_free(struct extent_map *m, uint64_t offset, uint64_t bytes);
uint64_t extent_used_bytes(const struct extent_map *m);
uint64_t extent_total_bytes(const struct extent_map *m);
/* Longest contiguous free run. Walks the bitmap: not for the hot path. */
uint64_t extent_largest_free(const struct extent_map *m);
/* What `bytes` costs after rounding; what budgets charge. */
uint64_t extent_round(const struct extent_map *m, uint64_t bytes);

/* ---- Mappings ---- */
struct mapping {
	uint8_t *base;
	uint64_t bytes; /* mapped, rounded up to page_bytes */
	uint32_t page_bytes;
	int fd; /* memfd, or -1 for an anonymous slab */
	bool is_hugepage;
};

/* Private slab of at least `bytes`, hugepages where there are enough free ones and `want_huge`, else ordinary pages
 * (with MADV_HUGEPAGE). Prefaulted. 0 or -errno. */
int slab_map(uint64_t bytes, bool want_huge, struct mapping *out);

/* Read arena: memfd, mapped read-write here, sealed SHRINK|GROW|FUTURE_WRITE|SEAL afterwards, so that a client can map
 * it read-only and can neither write, truncate nor punch holes. *want_stop is looked at between pieces of a long
 * prefault: -ECANCELED once it is not 0; NULL = nobody will ask for that. */
int arena_map_read(const char *name, uint64_t bytes, bool want_huge, const uint32_t *want_stop, struct mapping *out);

/* Put arena and rings: memfd of 4 KiB pages, writable by the client, sealed SHRINK|GROW|SEAL. */
int arena_map_shared(const char *name, uint64_t bytes, const uint32_t *want_stop, struct mapping *out);

/* Unmaps and closes; accepts a zeroed struct. */
void mapping_unmap(struct mapping *m);

/* Free hugepages of the default size, and that size; for checks and messages. */
void mem_hugepages(uint64_t *free_pages, uint64_t *page_bytes);

/* ---- SIGBUS guard for memory that a client can make unreadable. ---- */
/* Installs the handler (once, in main): a fault inside a guarded range is answered with a page of zeroes in its place,
 * so the reader goes on and the checksum catches it; a fault elsewhere keeps its default action. */
int guard_install(void);
/* Guards [base, base + bytes). At most GUARD_RANGES_MAX at a time; -ENOSPC. Work thread only. */
#define GUARD_RANGES_MAX 1024u
int guard_add(const void *base, uint64_t bytes);
void guard_remove(const void *base);
/* Faults answered so far. Any thread. */
uint64_t guard_hits(void);

/* ---- Pools: one thread gets and puts (elements come back by ring), so no multi-producer ring is involved. ---- */
/* `n` elements of `elt_bytes`, cache-line aligned, in EAL memory of `socket_id`. NULL with rte_errno set. */
struct rte_mempool *pool_create(const char *name, unsigned n, unsigned elt_bytes, int socket_id);

static inline void *pool_get(struct rte_mempool *p)
{
	void *e;

	return rte_mempool_get(p, &e) == 0 ? e : NULL;
}

static inline void pool_put(struct rte_mempool *p, void *e)
{
	rte_mempool_put(p, e);
}

/* ---- Regions: memory registered on every rail, all or nothing. Work thread. ---- */
struct region; /* opaque */

/* Which kind of memory a region is; rails say which kinds they reach. */
enum mem_kind {
	MEM_HOST = 0,
	MEM_DEVICE = 1,
};

typedef int (*region_reg_fn)(void *rail, void *base, uint64_t bytes, enum mem_kind kind, uint16_t idx);
typedef void (*region_dereg_fn)(void *rail, uint16_t idx);

/* One rail as regions see it. */
struct region_rail {
	void *rail;
	region_reg_fn reg;
	region_dereg_fn dereg;
	bool reaches_device;                  /* its NIC can read and write MEM_DEVICE */
	bool pins;                            /* what it registers is locked in memory, and charged to RLIMIT_MEMLOCK */
	const char *(*why)(const void *rail); /* why reg was refused last; may be NULL, or answer an empty text */
};

/* Rails, which numbers are taken, and what is registered now. Written by the work thread (by main before it starts). */
struct region_set {
	uint16_t n_rails;
	struct region *first; /* of all that there are */
	struct region_rail rails[RY_RAILS_MAX];
	uint64_t used[REGIONS_MAX / 64];
	uint16_t refused_by; /* the rail that region_register failed on last */
};

/* Registers on all rails that reach this kind of memory (-ENOTSUP: none does; -ENODEV: none is left); when one refuses,
 * those before it are undone and its -errno is returned; one that says -ENODEV, because its device has left, is passed
 * over. -ENOSPC: there are REGIONS_MAX already. The set outlives the region. */
int region_register(struct region_set *set, void *base, uint64_t bytes, enum mem_kind kind, struct region **out);
/* The device of this rail is there again: registers on it whatever is registered now, of the kinds that it reaches;
 * then the rail is in the reach of all of it. 0, or -errno: some of it is registered, the rail is in no further reach,
 * and the caller closes the device. */
int region_register_on(struct region_set *set, uint16_t rail_idx);
/* After either failed with rc on the same thread: why, for a message. */
const char *region_why(const struct region_set *set, int rc);
/* What `bytes` more of host memory take of RLIMIT_MEMLOCK: every rail that pins is charged for itself. */
uint64_t region_pinned_bytes(const struct region_set *set, uint64_t bytes);
/* Undone on all rails; the pointer is void afterwards. NULL is allowed. */
void region_unregister(struct region *r);
/* Whether [addr, addr + bytes) lies inside a region that is still registered. */
bool region_covers(const struct region *r, const void *addr, uint64_t bytes);
/* The rails that reach it, by index: no transfer to or from it may use another. NULL: every rail. Any thread. */
uint32_t region_reach(const struct region *r);
/* Its number on every rail; REGION_NONE for NULL. */
uint16_t region_idx(const struct region *r);

#ifdef __cplusplus
}
#endif
#endif
