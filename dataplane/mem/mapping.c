/* SPDX-License-Identifier: BSD-3-Clause */
#include "mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Linux 5.14; Debian 12's headers may be older than the kernel that runs. */
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#define PREFAULT_BYTES (64u << 20) /* some 20 ms */

static bool has_free_hugepages(uint64_t bytes, uint32_t *page_bytes);
static int map_anon(uint64_t bytes, uint32_t page_bytes, bool is_huge, struct mapping *out);
static int map_memfd(const char *name, uint64_t bytes, uint32_t page_bytes, bool is_huge, const uint32_t *want_stop,
	struct mapping *out);
static int map_fd(int fd, uint64_t bytes, const uint32_t *want_stop, struct mapping *out);
static int prefault(uint8_t *base, uint64_t bytes, uint32_t page_bytes, const uint32_t *want_stop);
static int take_pages(uint8_t *base, uint64_t bytes, uint32_t page_bytes);
static int add_seals(struct mapping *m, int seals);
static uint64_t round_up(uint64_t bytes, uint32_t page_bytes);
static uint32_t base_page_bytes(void);

int slab_map(uint64_t bytes, bool want_huge, struct mapping *out)
{
	uint32_t page_bytes;

	if (bytes == 0)
		return -EINVAL;
	/* Enough free pages now may be gone a moment later: a failure falls through to ordinary pages. */
	if (want_huge && has_free_hugepages(bytes, &page_bytes) && map_anon(bytes, page_bytes, true, out) == 0)
		return 0;
	return map_anon(bytes, base_page_bytes(), false, out);
}

int arena_map_read(const char *name, uint64_t bytes, bool want_huge, const uint32_t *want_stop, struct mapping *out)
{
	uint32_t page_bytes;
	int rc = -ENOMEM;

	if (bytes == 0)
		return -EINVAL;
	if (want_huge && has_free_hugepages(bytes, &page_bytes))
		rc = map_memfd(name, bytes, page_bytes, true, want_stop, out);
	if (rc)
		rc = map_memfd(name, bytes, base_page_bytes(), false, want_stop, out);
	if (rc)
		return rc;
	/* After our own writable mapping: FUTURE_WRITE leaves that one alone and refuses every later one. */
	return add_seals(out, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL);
}

int arena_map_shared(const char *name, uint64_t bytes, const uint32_t *want_stop, struct mapping *out)
{
	int rc;

	if (bytes == 0)
		return -EINVAL;
	rc = map_memfd(name, bytes, base_page_bytes(), false, want_stop, out);
	if (rc)
		return rc;
	return add_seals(out, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
}

void mapping_unmap(struct mapping *m)
{
	if (!m->base)
		return;
	munmap(m->base, m->bytes);
	if (m->fd >= 0)
		close(m->fd);
	*m = (struct mapping){.fd = -1};
}

void mem_hugepages(uint64_t *free_pages, uint64_t *page_bytes)
{
	unsigned long long n_free = 0, n_reserved = 0, kib = 0;
	char line[128];
	FILE *f = fopen("/proc/meminfo", "re");

	while (f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "HugePages_Free: %llu", &n_free) == 1 ||
			sscanf(line, "HugePages_Rsvd: %llu", &n_reserved) == 1)
			continue;
		sscanf(line, "Hugepagesize: %llu kB", &kib);
	}
	if (f)
		fclose(f);
	/* Reserved pages count as free but belong to a mapping that has not touched them yet. */
	*free_pages = n_free > n_reserved ? n_free - n_reserved : 0;
	*page_bytes = kib << 10;
}

static bool has_free_hugepages(uint64_t bytes, uint32_t *page_bytes)
{
	uint64_t n_free, size;

	mem_hugepages(&n_free, &size);
	if (n_free == 0 || size == 0 || size > UINT32_MAX)
		return false;
	*page_bytes = (uint32_t)size;
	return (bytes - 1) / size + 1 <= n_free;
}

static int map_anon(uint64_t bytes, uint32_t page_bytes, bool is_huge, struct mapping *out)
{
	uint64_t rounded = round_up(bytes, page_bytes);
	int flags = MAP_PRIVATE | MAP_ANONYMOUS | (is_huge ? MAP_HUGETLB : 0);
	uint8_t *base;
	int rc;

	if (rounded < bytes)
		return -ENOMEM;
	base = mmap(NULL, rounded, PROT_READ | PROT_WRITE, flags, -1, 0);
	if (base == MAP_FAILED)
		return -errno;
	if (!is_huge)
		madvise(base, rounded, MADV_HUGEPAGE); /* a wish: kernels without THP refuse it and nothing is lost */
	rc = prefault(base, rounded, page_bytes, NULL);
	if (rc) {
		munmap(base, rounded);
		return rc;
	}
	*out = (struct mapping){base, rounded, page_bytes, -1, is_huge};
	return 0;
}

static int map_memfd(const char *name, uint64_t bytes, uint32_t page_bytes, bool is_huge, const uint32_t *want_stop,
	struct mapping *out)
{
	struct mapping m = {.bytes = round_up(bytes, page_bytes), .page_bytes = page_bytes, .is_hugepage = is_huge};
	int rc;

	if (m.bytes < bytes)
		return -ENOMEM;
	m.fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | (is_huge ? MFD_HUGETLB : 0));
	if (m.fd < 0)
		return -errno;
	rc = map_fd(m.fd, m.bytes, want_stop, &m);
	if (rc) {
		close(m.fd);
		return rc;
	}
	*out = m;
	return 0;
}

static int map_fd(int fd, uint64_t bytes, const uint32_t *want_stop, struct mapping *out)
{
	uint8_t *base;
	int rc;

	if (ftruncate(fd, (off_t)bytes))
		return -errno;
	base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (base == MAP_FAILED)
		return -errno;
	rc = prefault(base, bytes, out->page_bytes, want_stop);
	if (rc) {
		munmap(base, bytes);
		return rc;
	}
	out->base = base;
	return 0;
}

/* Takes every page now, in pieces, between which it may be told that nobody wants them any more. */
static int prefault(uint8_t *base, uint64_t bytes, uint32_t page_bytes, const uint32_t *want_stop)
{
	uint64_t piece = page_bytes > PREFAULT_BYTES ? page_bytes : PREFAULT_BYTES;
	int rc = 0;

	for (uint64_t at = 0; at < bytes && !rc; at += piece) {
		if (want_stop && __atomic_load_n(want_stop, __ATOMIC_RELAXED))
			return -ECANCELED;
		rc = take_pages(base + at, bytes - at < piece ? bytes - at : piece, page_bytes);
	}
	return rc;
}

/* MADV_POPULATE_WRITE reports a shortage as an error, where touching would end in SIGBUS or the OOM killer. */
static int take_pages(uint8_t *base, uint64_t bytes, uint32_t page_bytes)
{
	if (madvise(base, bytes, MADV_POPULATE_WRITE) == 0)
		return 0;
	if (errno != EINVAL)
		return errno == EFAULT ? -ENOMEM : -errno;
	/* Kernels before 5.14. Fresh pages are zero, so writing zero changes nothing but their presence. */
	for (uint64_t i = 0; i < bytes; i += page_bytes)
		__atomic_store_n(&base[i], 0, __ATOMIC_RELAXED);
	return 0;
}

static int add_seals(struct mapping *m, int seals)
{
	int rc;

	if (fcntl(m->fd, F_ADD_SEALS, seals) == 0)
		return 0;
	rc = -errno;
	mapping_unmap(m);
	return rc;
}

static uint64_t round_up(uint64_t bytes, uint32_t page_bytes)
{
	return (bytes + page_bytes - 1) & ~((uint64_t)page_bytes - 1);
}

static uint32_t base_page_bytes(void)
{
	return (uint32_t)sysconf(_SC_PAGESIZE);
}
