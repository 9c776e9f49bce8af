/* SPDX-License-Identifier: BSD-3-Clause */
#include "mem/mem.h"

#include <criterion/criterion.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

static long resident_pages(const struct mapping *m)
{
	static unsigned char vec[4096];
	long n = 0;

	cr_assert_leq(m->bytes / 4096, sizeof(vec));
	cr_assert_eq(mincore(m->base, m->bytes, vec), 0);
	for (size_t i = 0; i < m->bytes / 4096; i++)
		n += vec[i] & 1;
	return n;
}

/* Whether the kernel still holds free pages for this test; it is the machine's setting, not ours. */
static bool has_hugepages(uint64_t need)
{
	uint64_t n, size;

	mem_hugepages(&n, &size);
	return n && n * size >= need;
}

Test(mapping, slab_is_writable_zero_and_present)
{
	struct mapping m;

	cr_assert_eq(slab_map((1 << 20) + 1, false, &m), 0);
	cr_assert_eq(m.bytes, (1 << 20) + 4096);
	cr_assert_eq((uintptr_t)m.base % 4096, 0);
	cr_assert_eq(m.fd, -1);
	cr_assert_not(m.is_hugepage);
	cr_assert_eq(resident_pages(&m), (long)(m.bytes / 4096));
	for (uint64_t i = 0; i < m.bytes; i += 4096)
		cr_assert_eq(m.base[i], 0);
	memset(m.base, 0xa5, m.bytes);
	mapping_unmap(&m);
	cr_assert_null(m.base);
}

Test(mapping, slab_without_room_is_an_error_not_a_signal)
{
	struct mapping m = {0};

	cr_assert_eq(slab_map(0, false, &m), -EINVAL);
	cr_assert_eq(slab_map(UINT64_MAX - 5, false, &m), -ENOMEM);
	cr_assert_eq(slab_map(1ull << 46, true, &m), -ENOMEM);
	cr_assert_null(m.base);
}

Test(mapping, hugepages_are_used_when_enough_are_free)
{
	struct mapping m;
	bool expect = has_hugepages(4 << 20);

	cr_assert_eq(slab_map((4 << 20) - 100, true, &m), 0);
	cr_assert_eq(m.is_hugepage, expect);
	cr_assert_eq(m.bytes % m.page_bytes, 0);
	cr_assert_eq(m.page_bytes == 4096, !expect);
	memset(m.base, 1, m.bytes);
	mapping_unmap(&m);
}

Test(mapping, too_few_hugepages_fall_back)
{
	uint64_t n, size;
	struct mapping m;

	mem_hugepages(&n, &size);
	if (n > 64)
		cr_skip_test("too many free hugepages to exceed them here");
	cr_assert_eq(slab_map((n + 1) * (2u << 20), true, &m), 0);
	cr_assert_not(m.is_hugepage);
	mapping_unmap(&m);
}

Test(mapping, unmap_accepts_a_zeroed_struct)
{
	struct mapping m = {0};

	mapping_unmap(&m);
	cr_assert_neq(fcntl(0, F_GETFD), -1, "standard input is still open");
}

static void check_read_arena(bool want_huge)
{
	const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL;
	struct mapping m;
	uint8_t *client;

	cr_assert_eq(arena_map_read("read", 4 << 20, want_huge, NULL, &m), 0);
	cr_assert_eq(fcntl(m.fd, F_GET_SEALS), seals);
	m.base[0] = 7;
	m.base[m.bytes - 1] = 9;

	cr_assert_eq(mmap(NULL, m.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, m.fd, 0), MAP_FAILED);
	cr_assert_eq(errno, EPERM);
	client = mmap(NULL, m.bytes, PROT_READ, MAP_SHARED, m.fd, 0);
	cr_assert_neq(client, MAP_FAILED);
	cr_assert_eq(client[0], 7);
	cr_assert_eq(client[m.bytes - 1], 9);
	m.base[1] = 8;
	cr_assert_eq(client[1], 8, "the daemon's mapping stays writable");
	cr_assert_eq(mprotect(client, 4096, PROT_READ | PROT_WRITE), -1);
	cr_assert_eq(errno, EACCES);

	cr_assert_eq(ftruncate(m.fd, 0), -1);
	cr_assert_eq(errno, EPERM);
	cr_assert_eq(ftruncate(m.fd, (off_t)m.bytes * 2), -1);
	cr_assert_eq(fallocate(m.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, m.page_bytes), -1);
	cr_assert_eq(errno, EPERM);
	cr_assert_eq(pwrite(m.fd, "x", 1, 0), -1);
	cr_assert_eq(fcntl(m.fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
	cr_assert_eq(errno, EPERM);
	cr_assert_eq(madvise(client, m.page_bytes, MADV_REMOVE), -1, "no hole by way of the mapping");
	cr_assert_eq(m.base[0], 7);
	munmap(client, m.bytes);
	mapping_unmap(&m);
}

Test(mapping, read_arena_refuses_everything_but_reading)
{
	check_read_arena(false);
}

Test(mapping, read_arena_on_hugepages_refuses_the_same)
{
	if (!has_hugepages(4 << 20))
		cr_skip_test("no free hugepages");
	check_read_arena(true);
}

Test(mapping, read_arena_does_not_open_through_proc)
{
	struct mapping m;
	char path[64];
	int fd;

	cr_assert_eq(arena_map_read("read", 1 << 20, false, NULL, &m), 0);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", m.fd);
	fd = open(path, O_RDWR);
	cr_assert_geq(fd, 0);
	cr_assert_eq(mmap(NULL, m.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
	close(fd);
	mapping_unmap(&m);
}

Test(mapping, shared_arena_is_writable_but_keeps_its_size)
{
	struct mapping m;
	uint8_t *client;

	cr_assert_eq(arena_map_shared("put", 10000, NULL, &m), 0);
	cr_assert_eq(m.bytes, 12288);
	cr_assert_eq(m.page_bytes, 4096);
	cr_assert_eq(fcntl(m.fd, F_GET_SEALS), F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
	client = mmap(NULL, m.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, m.fd, 0);
	cr_assert_neq(client, MAP_FAILED);
	client[5000] = 3;
	cr_assert_eq(m.base[5000], 3);
	cr_assert_eq(ftruncate(m.fd, 4096), -1);
	cr_assert_eq(errno, EPERM);
	cr_assert_eq(ftruncate(m.fd, 1 << 20), -1);
	munmap(client, m.bytes);
	mapping_unmap(&m);
}

Test(mapping, arenas_do_not_leak_into_children)
{
	struct mapping m;

	cr_assert_eq(arena_map_shared("put", 4096, NULL, &m), 0);
	cr_assert(fcntl(m.fd, F_GETFD) & FD_CLOEXEC);
	mapping_unmap(&m);
}

Test(mapping, failure_leaves_no_descriptor_behind)
{
	struct rlimit as = {256 << 20, RLIM_INFINITY}, no_limit = {RLIM_INFINITY, RLIM_INFINITY};
	struct mapping m = {0};
	int before = dup(0), after;

	close(before);
	cr_assert_eq(setrlimit(RLIMIT_AS, &as), 0);
	cr_assert_eq(arena_map_read("read", 1ull << 30, true, NULL, &m), -ENOMEM);
	cr_assert_eq(arena_map_shared("put", 1ull << 30, NULL, &m), -ENOMEM);
	cr_assert_eq(arena_map_shared("put", 0, NULL, &m), -EINVAL);
	cr_assert_null(m.base);
	after = dup(0);
	cr_assert_eq(after, before);
	/* A sanitizer needs room to end the process. */
	cr_assert_eq(setrlimit(RLIMIT_AS, &no_limit), 0);
}

/* It looks before each piece. */
Test(mapping, nobody_wants_it_any_more)
{
	uint32_t want_stop = 1;
	struct mapping m = {0};

	cr_assert_eq(arena_map_read("read", 1 << 20, false, &want_stop, &m), -ECANCELED);
	cr_assert_eq(arena_map_shared("put", 1 << 20, &want_stop, &m), -ECANCELED);
	cr_assert_null(m.base);
	want_stop = 0;
	cr_assert_eq(arena_map_shared("put", (65 << 20) + 4096, &want_stop, &m), 0);
	cr_assert_eq(m.base[m.bytes - 1], 0);
	mapping_unmap(&m);
}
