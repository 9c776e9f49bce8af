/* SPDX-License-Identifier: BSD-3-Clause */
#include "daemon/client.h"
#include "daemon/work.h"

#include <criterion/criterion.h>

#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define READ_BYTES (1u << 20)
#define PUT_BYTES (512u << 10)

/* A rail that counts registrations and refuses when told. */
struct fake_rail {
	int n_registered;
	int n_until_refusal;
	int refuse_with;
};

static struct fake_rail fakes[2];
static struct region_set regions;
static char message[256];
static int sleep_set = -1;

static int fake_reg(void *rail, void *base, uint64_t bytes, enum mem_kind kind, uint16_t idx)
{
	struct fake_rail *f = rail;

	if (f->n_until_refusal-- == 0)
		return f->refuse_with ? f->refuse_with : -ENOMEM;
	f->n_registered++;
	return 0;
}

static void fake_dereg(void *rail, uint16_t idx)
{
	((struct fake_rail *)rail)->n_registered--;
}

static void setup(void)
{
	regions.n_rails = 2;
	for (int i = 0; i < 2; i++) {
		fakes[i] = (struct fake_rail){.n_until_refusal = 1000};
		regions.rails[i] = (struct region_rail){&fakes[i], fake_reg, fake_dereg, false};
	}
	memset(message, 0, sizeof(message));
	if (sleep_set < 0)
		sleep_set = epoll_create1(EPOLL_CLOEXEC);
}

static struct client_conf conf_of(uint32_t n_entries)
{
	return (struct client_conf){
		.id = 7,
		.pid = 42,
		.uid = 1000,
		.n_entries = n_entries,
		.read_arena_bytes = READ_BYTES,
		.put_arena_bytes = PUT_BYTES,
		.regions = &regions,
		.sleep_set_fd = sleep_set,
	};
}

static struct client *create(void)
{
	struct client_conf conf = conf_of(64);
	struct client *c = NULL;

	cr_assert_eq(client_create(&conf, message, sizeof(message), &c), 0, "%s", message);
	return c;
}

static int n_open_files(void)
{
	int n = 0;

	for (int fd = 0; fd < 256; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

/* How many that control would be woken by. */
static int n_woken(void)
{
	struct epoll_event e[8];

	return epoll_wait(sleep_set, e, 8, 0);
}

static void fill(int event_fd)
{
	uint64_t most = UINT64_MAX - 1;

	cr_assert_eq(write(event_fd, &most, sizeof(most)), 8);
}

TestSuite(client_create, .init = setup);

Test(client_create, header_says_what_is_there)
{
	struct client *c = create();
	const struct ry_ring_header *h = c->header;
	const uint8_t *base = c->ring.base;

	cr_expect_eq(h->magic, RY_RING_MAGIC);
	cr_expect_eq(h->abi_major, RY_RING_ABI_MAJOR);
	cr_expect_eq(h->abi_minor, RY_RING_ABI_MINOR);
	cr_expect_eq(h->total_bytes, c->ring.bytes);
	cr_expect_eq(h->n_entries, 64);
	cr_expect_eq(h->slot_bytes, sizeof(struct ry_slot));
	cr_expect_eq(h->read_arena_bytes, READ_BYTES);
	cr_expect_eq(h->put_arena_bytes, PUT_BYTES);
	cr_expect_eq(h->client_id, 7);
	cr_expect_eq((const uint8_t *)c->sq_index, base + h->sq_index_offset);
	cr_expect_eq((const uint8_t *)c->cq_index, base + h->cq_index_offset);
	cr_expect_eq((const uint8_t *)c->sq, base + h->sq_offset);
	cr_expect_eq((const uint8_t *)c->cq, base + h->cq_offset);
	cr_expect_eq((const uint8_t *)c->slots, base + h->slot_offset);
	for (size_t i = 0; i < sizeof(h->reserved); i++)
		cr_expect_eq(h->reserved[i], 0);
	client_destroy(c);
}

Test(client_create, parts_are_aligned_and_do_not_overlap)
{
	struct client *c = create();
	const struct ry_ring_header *h = c->header;

	cr_expect_geq(h->sq_index_offset, sizeof(*h));
	cr_expect_geq(h->cq_index_offset, h->sq_index_offset + sizeof(struct ry_ring_index));
	cr_expect_geq(h->sq_offset, h->cq_index_offset + sizeof(struct ry_ring_index));
	cr_expect_geq(h->cq_offset, h->sq_offset + 64 * sizeof(struct ry_sqe));
	cr_expect_geq(h->slot_offset, h->cq_offset + 64 * sizeof(struct ry_cqe));
	cr_expect_leq(h->slot_offset + 64 * sizeof(struct ry_slot), h->total_bytes);
	cr_expect_eq((h->sq_index_offset | h->cq_index_offset | h->sq_offset | h->cq_offset | h->slot_offset) % 64, 0);
	cr_expect_eq(h->total_bytes % 4096, 0);
	client_destroy(c);
}

Test(client_create, memfds_are_sealed_and_sized)
{
	struct client *c = create();
	const int shared = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
	const struct mapping *m[] = {&c->ring, &c->read_arena, &c->put_arena};
	struct stat st;

	for (int i = 0; i < 3; i++) {
		cr_assert_eq(fstat(m[i]->fd, &st), 0);
		cr_expect_eq((uint64_t)st.st_size, m[i]->bytes);
		cr_expect_eq(fcntl(m[i]->fd, F_GET_SEALS) & shared, shared);
		cr_expect_neq(ftruncate(m[i]->fd, 0), 0);
	}
	cr_expect_eq(mmap(NULL, READ_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, c->read_arena.fd, 0), MAP_FAILED,
		"a client must not map the read arena writable");
	cr_expect_neq(mmap(NULL, READ_BYTES, PROT_READ, MAP_SHARED, c->read_arena.fd, 0), MAP_FAILED);
	cr_expect_neq(fallocate(c->read_arena.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 65536), 0,
		"nor punch holes into it");
	cr_expect_neq(mmap(NULL, PUT_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, c->put_arena.fd, 0), MAP_FAILED);
	client_destroy(c);
}

Test(client_create, registered_on_every_rail_until_destroyed)
{
	struct client *c = create();

	cr_expect_eq(fakes[0].n_registered, 2);
	cr_expect_eq(fakes[1].n_registered, 2);
	cr_expect(region_covers(c->read_region, c->read_arena.base, READ_BYTES));
	cr_expect(region_covers(c->put_region, c->put_arena.base, PUT_BYTES));
	cr_expect_eq(extent_total_bytes(c->read_map), READ_BYTES);
	client_destroy(c);
	cr_expect_eq(fakes[0].n_registered, 0);
	cr_expect_eq(fakes[1].n_registered, 0);
}

Test(client_create, refusal_of_one_rail_undoes_everything)
{
	int n_files = n_open_files();
	struct client_conf conf = conf_of(64);
	struct client *c = NULL;

	/* The put arena, on the second rail. */
	fakes[1].n_until_refusal = 1;
	cr_expect_eq(client_create(&conf, message, sizeof(message), &c), -ENOMEM);
	cr_expect_null(c);
	cr_expect_not_null(strstr(message, "registered"), "%s", message);
	cr_expect_eq(fakes[0].n_registered, 0);
	cr_expect_eq(fakes[1].n_registered, 0);
	cr_expect_eq(n_open_files(), n_files);
}

Test(client_create, who_left_meanwhile_is_not_finished)
{
	int n_files = n_open_files();
	struct client_conf conf = conf_of(64);
	uint32_t want_stop = 1;
	struct client *c = NULL;

	conf.want_stop = &want_stop;
	cr_expect_eq(client_create(&conf, message, sizeof(message), &c), -ECANCELED);
	cr_expect_null(c);
	cr_expect(fakes[0].n_registered == 0 && n_open_files() == n_files);
}

Test(client_create, entries_outside_their_range)
{
	static const uint32_t wrong[] = {0, 1, 3, 100, 2048};

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		struct client_conf conf = conf_of(wrong[i]);
		struct client *c = NULL;

		cr_expect_eq(client_create(&conf, message, sizeof(message), &c), -EINVAL, "%u", wrong[i]);
		cr_expect_not_null(strstr(message, "power of two"));
	}
}

Test(client_create, too_much_memory_is_told)
{
	struct client_conf conf = conf_of(64);
	struct client *c = NULL;

	conf.put_arena_bytes = 1ull << 60;
	cr_expect_lt(client_create(&conf, message, sizeof(message), &c), 0);
	cr_expect_not_null(strstr(message, "put arena"), "%s", message);
}

/* The memory of clients is files to the kernel; a limit that they meet is told, and is no signal. */
Test(client_create, files_that_may_not_be_so_large_are_told_with_the_limit)
{
	struct rlimit limit = {READ_BYTES - 4096, RLIM_INFINITY};
	struct client_conf conf = conf_of(64);
	struct client *c = NULL;

	signal(SIGXFSZ, SIG_IGN);
	cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
	cr_expect_eq(client_create(&conf, message, sizeof(message), &c), -EFBIG);
	cr_expect(strstr(message, "read arena of 1048576 bytes") && strstr(message, "ulimit -f"), "%s", message);
	conf.read_arena_bytes = READ_BYTES / 4;
	cr_expect_eq(client_create(&conf, message, sizeof(message), &c), 0, "%s", message);
	client_destroy(c);
}

static void *run_work(void *arg)
{
	work_run(((void **)arg)[0], ((void **)arg)[1]);
	return NULL;
}

Test(client_create, work_thread_creates_and_destroys)
{
	struct waker work_waker, api_waker;
	struct work w = {spsc_create("a", 4), spsc_create("b", 4), &work_waker, &api_waker};
	struct work_job job = {.op = WORK_CREATE_CLIENT, .conf = conf_of(16)}, *back = NULL;
	uint32_t stop = 0;
	void *arg[] = {&w, &stop};
	pthread_t thread;

	cr_assert(w.from_api && w.to_api && !waker_init(&work_waker) && !waker_init(&api_waker));
	cr_assert_eq(pthread_create(&thread, NULL, run_work, arg), 0);
	cr_assert(spsc_push(w.from_api, &job));
	waker_kick(&work_waker);
	while (!(back = spsc_pop(w.to_api)))
		sched_yield();
	cr_assert_eq(back, &job);
	cr_assert_eq(job.status, 0, "%s", job.message);
	cr_expect_eq(job.client->n_entries, 16);
	/* What is queued when the thread is told to stop is still done. */
	job.op = WORK_DESTROY_CLIENT;
	cr_assert(spsc_push(w.from_api, &job));
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	waker_kick(&work_waker);
	cr_assert_eq(pthread_join(thread, NULL), 0);
	cr_expect_eq(spsc_pop(w.to_api), &job);
	cr_expect_null(job.client);
	cr_expect_eq(fakes[0].n_registered, 0);
	spsc_free(w.from_api);
	spsc_free(w.to_api);
}

Test(client_create, without_any_device_it_says_so)
{
	struct client_conf conf = conf_of(64);
	struct client *c = NULL;

	fakes[0].refuse_with = fakes[1].refuse_with = -ENODEV;
	fakes[0].n_until_refusal = fakes[1].n_until_refusal = 0;
	cr_assert_eq(client_create(&conf, message, sizeof(message), &c), -ENODEV);
	cr_assert_not_null(strstr(message, "no rail is left"), "%s", message);
}

/* Told before anything is registered, with what all rails together need. */
Test(client_create, more_than_may_be_locked_is_refused_at_attach)
{
	struct client_conf conf = conf_of(64);
	struct rlimit limit = {2 * (READ_BYTES + PUT_BYTES) - 4096, 2 * (READ_BYTES + PUT_BYTES) - 4096};
	struct client *c = NULL;
	char need[32];

	cr_assert_eq(setrlimit(RLIMIT_MEMLOCK, &limit), 0);
	if (geteuid() == 0)
		cr_assert(setgid(65534) == 0 && setuid(65534) == 0, "whoever has CAP_IPC_LOCK passes");
	regions.rails[0].pins = true;
	cr_assert_eq(client_create(&conf, message, sizeof(message), &c), 0, "%s", message);
	client_destroy(c);
	regions.rails[1].pins = true;
	cr_assert_eq(client_create(&conf, message, sizeof(message), &c), -ENOMEM);
	snprintf(need, sizeof(need), "needs %u KiB", (unsigned)(2 * (READ_BYTES + PUT_BYTES) / 1024));
	cr_assert(strstr(message, need), "'%s' is not in '%s'", need, message);
	cr_assert(fakes[0].n_registered == 0 && fakes[1].n_registered == 0);
}

/* Whatever it does to its descriptor, nobody waits for it: an alarm ends us if we do. */
Test(client_create, waking_a_client_never_waits)
{
	struct client *c = create();
	uint8_t taken[64];
	int theirs = dup(c->cq_wake_fd[1]);

	alarm(10);
	cr_assert_eq(fcntl(theirs, F_SETFL, 0), 0, "blocking from now on");
	cr_expect_lt(send(theirs, "", 1, MSG_NOSIGNAL), 0, "it cannot send us anything");
	for (int i = 0; i < 10000; i++)
		client_wake(c);
	cr_expect_gt(recv(theirs, taken, sizeof(taken), MSG_DONTWAIT), 0, "and it is woken");
	while (recv(theirs, taken, sizeof(taken), MSG_DONTWAIT) > 0)
		;
	client_wake(c);
	cr_expect_eq(recv(theirs, taken, sizeof(taken), MSG_DONTWAIT), 1, "again once it has taken them");
	close(theirs);
	client_wake(c);
	client_destroy(c);
	alarm(0);
}

/* Each write is an edge, whatever is in the counter; nothing of a client's is ever read. */
Test(client_create, waking_control_works_for_each_client_alone)
{
	struct client *hostile = create(), *other = create();
	uint64_t one = 1, count;

	cr_expect_eq(n_woken(), 0);
	for (int i = 0; i < 3; i++) {
		cr_assert_eq(write(other->sq_event_fd, &one, sizeof(one)), 8);
		cr_expect_eq(n_woken(), 1, "every time");
		cr_expect_eq(n_woken(), 0, "once");
	}
	cr_assert_eq(fcntl(hostile->sq_event_fd, F_SETFL, 0), 0);
	fill(hostile->sq_event_fd);
	cr_expect_eq(n_woken(), 1);
	cr_assert_eq(write(other->sq_event_fd, &one, sizeof(one)), 8);
	cr_assert_eq(read(hostile->sq_event_fd, &count, sizeof(count)), 8);
	cr_expect_eq(n_woken(), 1, "what the other took was its own");
	client_destroy(hostile);
	client_destroy(other);
}

/* It may keep its copies for as long as it likes. */
Test(client_create, who_left_wakes_nobody)
{
	struct client *c = create();
	int theirs = dup(c->sq_event_fd), wake = dup(c->cq_wake_fd[1]), n_files;
	uint64_t one = 1;
	uint8_t taken;

	client_destroy(c);
	cr_assert_eq(write(theirs, &one, sizeof(one)), 8);
	cr_expect_eq(n_woken(), 0);
	cr_expect_eq(recv(wake, &taken, 1, MSG_DONTWAIT), 0, "the end");
	close(theirs);
	close(wake);
	n_files = n_open_files();
	client_destroy(create());
	cr_expect_eq(n_open_files(), n_files);
}
