/* SPDX-License-Identifier: BSD-3-Clause */
/* The handshake and the rings of the fake daemon; its server is in fake_server.c. */
#include "fake_daemon.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <jansson.h>

static void make_memory(struct fake *f);
static void *make_memfd(const char *name, uint64_t bytes, int *fd);
static void *handshake(void *arg);
static json_t *read_request(int fd);
static void reply(struct fake *f, const char *text, unsigned n_fds);
static void send_with_fds(int fd, const char *text, size_t bytes, const int *fds, unsigned n_fds);

struct fake *fake_start(const struct fake_opts *opts)
{
	struct fake *f = calloc(1, sizeof(*f));
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	assert(f);
	f->opts = opts ? *opts : (struct fake_opts){0};
	f->opts.n_entries = f->opts.n_entries ? f->opts.n_entries : 16;
	f->opts.read_arena_bytes = f->opts.read_arena_bytes ? f->opts.read_arena_bytes : 1u << 20;
	f->opts.put_arena_bytes = f->opts.put_arena_bytes ? f->opts.put_arena_bytes : 1u << 20;
	f->socket_fd = -1;
	snprintf(f->dir, sizeof(f->dir), "/tmp/ryfake.XXXXXX");
	if (!mkdtemp(f->dir))
		abort();
	snprintf(f->path, sizeof(f->path), "%s/s", f->dir);
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", f->path);
	f->listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (bind(f->listen_fd, (struct sockaddr *)&address, sizeof(address)) || listen(f->listen_fd, 4))
		abort();
	make_memory(f);
	if (pthread_create(&f->handshake_thread, NULL, handshake, f))
		abort();
	return f;
}

static void make_memory(struct fake *f)
{
	uint32_t n = f->opts.n_entries;
	uint32_t sq_at = 128 + 2 * sizeof(struct ry_ring_index), cq_at = sq_at + n * sizeof(struct ry_sqe);
	uint32_t slot_at = cq_at + n * sizeof(struct ry_cqe), total = slot_at + n * (uint32_t)sizeof(struct ry_slot);
	uint8_t *base = make_memfd("ring", total, &f->fds[0]);

	f->read_arena = make_memfd("read", f->opts.read_arena_bytes, &f->fds[1]);
	/* As the daemon does: from here on a writable mapping by the client fails. */
	if (fcntl(f->fds[1], F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL))
		abort();
	f->put_arena = make_memfd("put", f->opts.put_arena_bytes, &f->fds[2]);
	f->fds[3] = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	f->fds[4] = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	f->header = (void *)base;
	*f->header = (struct ry_ring_header){.magic = RY_RING_MAGIC,
		.abi_major = f->opts.abi_major ? f->opts.abi_major : RY_RING_ABI_MAJOR,
		.abi_minor = f->opts.abi_minor,
		.total_bytes = total,
		.n_entries = n,
		.sq_index_offset = 128,
		.cq_index_offset = 128 + sizeof(struct ry_ring_index),
		.sq_offset = sq_at,
		.cq_offset = cq_at,
		.slot_offset = slot_at + (f->opts.want_bad_slots ? 64 : 0),
		.slot_bytes = sizeof(struct ry_slot),
		.read_arena_bytes = f->opts.read_arena_bytes,
		.put_arena_bytes = f->opts.put_arena_bytes,
		.client_id = 7};
	f->sq_index = (void *)(base + 128);
	f->cq_index = f->sq_index + 1;
	f->sq = (void *)(base + sq_at);
	f->cq = (void *)(base + cq_at);
	f->slots = (void *)(base + slot_at);
	f->sq_head = f->cq_tail = f->opts.first_index;
	f->sq_index->head = f->sq_index->tail = f->cq_index->head = f->cq_index->tail = f->opts.first_index;
}

static void *make_memfd(const char *name, uint64_t bytes, int *fd)
{
	void *base;

	*fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (*fd < 0 || ftruncate(*fd, (off_t)bytes))
		abort();
	base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
	if (base == MAP_FAILED)
		abort();
	return base;
}

static void *handshake(void *arg)
{
	struct fake *f = arg;
	char text[512];
	json_t *r;

	f->socket_fd = accept4(f->listen_fd, NULL, NULL, SOCK_CLOEXEC);
	r = f->opts.is_silent ? NULL : read_request(f->socket_fd);
	if (!r)
		return NULL;
	f->asked_version = (int)json_integer_value(json_object_get(json_object_get(r, "params"), "version"));
	json_decref(r);
	snprintf(text, sizeof(text),
		"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"version\":%d,\"node\":\"n1\",\"daemon_version\":\"9.8.7\"}"
		"}\n",
		f->opts.version ? f->opts.version : 1);
	reply(f, f->opts.want_garbage ? "what?\n" : text, 0);
	r = read_request(f->socket_fd);
	if (!r)
		return NULL;
	f->asked_read_bytes =
		(uint64_t)json_integer_value(json_object_get(json_object_get(r, "params"), "read_arena_bytes"));
	f->asked_entries = (uint64_t)json_integer_value(json_object_get(json_object_get(r, "params"), "ring_entries"));
	json_decref(r);
	snprintf(text, sizeof(text),
		"{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{\"client_id\":7,\"abi_minor\":%u,\"ring_bytes\":%u,"
		"\"read_arena_bytes\":%llu,\"put_arena_bytes\":%llu}}\n",
		f->opts.abi_minor, f->header->total_bytes, (unsigned long long)f->opts.read_arena_bytes,
		(unsigned long long)f->opts.put_arena_bytes);
	if (f->opts.refusal)
		snprintf(text, sizeof(text),
			"{\"jsonrpc\":\"2.0\",\"id\":2,\"error\":{\"code\":-32000,\"message\":\"%s\","
			"\"data\":{\"status\":\"%s\"}}}\n",
			f->opts.why ?: "no room", f->opts.refusal);
	sleep(f->opts.attach_delay_s);
	reply(f, text, f->opts.refusal ? 0 : f->opts.n_fds ? f->opts.n_fds : 5);
	return NULL;
}

static json_t *read_request(int fd)
{
	char line[1024];
	size_t n = 0;

	while (n < sizeof(line) && read(fd, line + n, 1) == 1) {
		if (line[n++] == '\n')
			return json_loadb(line, n, 0, NULL);
	}
	return NULL;
}

static void reply(struct fake *f, const char *text, unsigned n_fds)
{
	size_t len = strlen(text);
	size_t first = f->opts.want_pieces ? 1 : len;

	send_with_fds(f->socket_fd, text, first, f->fds, n_fds);
	for (size_t i = first; i < len; i++) {
		if (send(f->socket_fd, text + i, 1, MSG_NOSIGNAL) != 1)
			return;
	}
}

static void send_with_fds(int fd, const char *text, size_t bytes, const int *fds, unsigned n_fds)
{
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(8 * sizeof(int))];
	} control = {0};
	struct iovec piece = {(void *)text, bytes};
	struct msghdr msg = {.msg_iov = &piece, .msg_iovlen = 1};
	struct cmsghdr *m;
	int eight[8];

	for (unsigned i = 0; i < 8; i++)
		eight[i] = fds[i % 5];
	if (n_fds > 0) {
		msg.msg_control = &control;
		msg.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
		m = CMSG_FIRSTHDR(&msg);
		m->cmsg_level = SOL_SOCKET;
		m->cmsg_type = SCM_RIGHTS;
		m->cmsg_len = CMSG_LEN(n_fds * sizeof(int));
		memcpy(CMSG_DATA(m), eight, n_fds * sizeof(int));
	}
	/* EPIPE: the client gave up. */
	if (sendmsg(fd, &msg, MSG_NOSIGNAL) != (ssize_t)bytes && errno != EPIPE)
		abort();
}

enum ry_status fake_attach(struct fake *f, const struct ry_attach_opts *more, char *cause, struct ry_client **client)
{
	struct ry_attach_opts opts = more ? *more : (struct ry_attach_opts){0};
	enum ry_status status;

	opts.socket_path = f->path;
	opts.timeout_ns = opts.timeout_ns ? opts.timeout_ns : 10000000000u;
	opts.cause = cause;
	opts.cause_bytes = RY_CAUSE_MAX_BYTES;
	status = ry_attach(&opts, client);
	pthread_join(f->handshake_thread, NULL);
	return status;
}

void fake_hang_up(struct fake *f)
{
	shutdown(f->socket_fd, SHUT_RDWR);
}

void fake_stop(struct fake *f)
{
	uint64_t one = 1;

	if (f->is_serving) {
		__atomic_store_n(&f->stop, 1, __ATOMIC_RELAXED);
		if (write(f->fds[3], &one, sizeof(one)) != sizeof(one))
			abort();
		pthread_join(f->server_thread, NULL);
	}
	for (unsigned i = 0; i < FAKE_OBJECTS_MAX; i++)
		free(f->objects[i].data);
	munmap(f->header, f->header->total_bytes);
	munmap(f->read_arena, f->opts.read_arena_bytes);
	munmap(f->put_arena, f->opts.put_arena_bytes);
	for (unsigned i = 0; i < 5; i++)
		close(f->fds[i]);
	if (f->socket_fd >= 0)
		close(f->socket_fd);
	close(f->listen_fd);
	unlink(f->path);
	rmdir(f->dir);
	free(f);
}

bool fake_take(struct fake *f, struct ry_sqe *e)
{
	/* Partner: the client's release of tail. */
	if (__atomic_load_n(&f->sq_index->tail, __ATOMIC_ACQUIRE) == f->sq_head)
		return false;
	*e = f->sq[f->sq_head++ & (f->opts.n_entries - 1)];
	/* Partner: the client's acquire of head. */
	__atomic_store_n(&f->sq_index->head, f->sq_head, __ATOMIC_RELEASE);
	return true;
}

void fake_complete(struct fake *f, const struct ry_cqe *c)
{
	uint64_t one = 1;

	f->cq[f->cq_tail++ & (f->opts.n_entries - 1)] = *c;
	/* Partner: the client's acquire of tail. */
	__atomic_store_n(&f->cq_index->tail, f->cq_tail, __ATOMIC_RELEASE);
	/* Partner: the client's fence between need_wakeup and its last look at tail. */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (!__atomic_load_n(&f->cq_index->need_wakeup, __ATOMIC_RELAXED))
		return;
	f->n_kicks++;
	if (write(f->fds[4], &one, sizeof(one)) != sizeof(one))
		abort();
}

void fake_answer(struct fake *f, const struct ry_sqe *e, uint32_t status, uint64_t bytes)
{
	if (status)
		snprintf(f->slots[e->slot].cause, RY_CAUSE_MAX_BYTES, "fake: status %u", status);
	fake_complete(f, &(struct ry_cqe){.ticket = e->ticket,
				 .status = status,
				 .op = e->op,
				 .slot = e->slot,
				 .bytes = bytes,
				 .rail_idx = RY_RAIL_NONE});
}
