/* SPDX-License-Identifier: BSD-3-Clause */
#include "rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_eal.h>

#include "read/control_priv.h"

static void start_eal(void);
static void call(struct rig *r, struct api_call *c);

void rig_init(struct rig *r, uint16_t n_rails, uint64_t bandwidth)
{
	struct config *c = &r->config;

	memset(r, 0, sizeof(*r));
	config_defaults(c);
	snprintf(c->node_name, sizeof(c->node_name), "rig");
	c->is_reader = c->is_store = true;
	c->want_hugepages = false;
	c->n_rails = n_rails;
	for (uint16_t i = 0; i < n_rails; i++) {
		struct rail_conf *rc = &c->rails[i];

		config_rail_defaults(rc, i);
		snprintf(rc->name, sizeof(rc->name), "rail%u", i);
		snprintf(rc->transport, sizeof(rc->transport), "mock");
		rc->lcore = i + 1u;
		rc->sockets_per_pair = 1;
		rc->inflight_max_bytes = 64u << 20;
		rc->numa_node = -1;
		rc->mock =
			(struct mock_conf){.bandwidth_bytes_per_s = bandwidth, .latency_ns = 5000, .want_copy = true};
	}
	c->n_stores = 1;
	snprintf(c->stores[0].name, sizeof(c->stores[0].name), "self");
	c->stores[0].is_self = true;
	c->read_arena_bytes = 32u << 20;
	c->put_arena_bytes = 16u << 20;
	c->ring_entries = 64;
	c->max_clients = 8;
	c->store_bytes = 64u << 20;
	c->max_objects = 256;
	c->store_linger_ns = 0; /* tests count the store's memory; those of lingering set it */
	c->descriptor_cache_entries = 64;
	r->now_ns = 1000000000;
	r->step_ns = RIG_STEP_NS;
	r->next_ticket = 1;
}

void rig_start(struct rig *r)
{
	struct node_conf conf = {.config = &r->config, .want_virtual_time = true};
	char message[512] = "";

	start_eal();
	if (node_create(&conf, message, sizeof(message), &r->node)) {
		fprintf(stderr, "rig: %s\n", message);
		abort();
	}
	for (int i = 0; i < 100; i++)
		rig_step(r);
	r->client = rig_attach(r, r->config.read_arena_bytes);
}

static void start_eal(void)
{
	char *argv[] = {"rig", "--no-huge", "--no-pci", "--no-shconf", "--no-telemetry", "-m", "128", "-l", "0",
		"--log-level=4"};

	if (rte_eal_init(sizeof(argv) / sizeof(argv[0]), argv) < 0)
		abort();
}

void rig_stop(struct rig *r)
{
	rig_detach(r, r->client);
	node_destroy(r->node);
}

void rig_step(struct rig *r)
{
	struct node *n = r->node;

	conn_poll(n->conn, r->now_ns);
	control_poll(n->control, r->now_ns);
	for (uint16_t i = 0; i < n->n_rails; i++)
		rail_poll(n->rails[i], r->now_ns);
	r->now_ns += r->step_ns;
}

void rig_run(struct rig *r, uint64_t ns)
{
	for (uint64_t end = r->now_ns + ns; r->now_ns < end;)
		rig_step(r);
}

static void call(struct rig *r, struct api_call *c)
{
	c->m.kind = MSG_API;
	spsc_push(r->node->api_to_control, c);
	for (int i = 0; i < 1000000; i++) {
		rig_step(r);
		if (spsc_pop(r->node->control_to_api) == c)
			return;
	}
	c->status = RY_STATUS_MAX_;
}

struct client *rig_attach(struct rig *r, uint64_t arena_bytes)
{
	struct client_conf conf = {
		.id = 1,
		.n_entries = r->config.ring_entries,
		.read_arena_bytes = arena_bytes,
		.put_arena_bytes = r->config.put_arena_bytes,
		.regions = &r->node->regions,
		.sleep_set_fd = r->node->control_set_fd,
	};
	struct api_call *c = calloc(1, sizeof(*c));
	struct client *cl = NULL;
	char message[256];

	if (client_create(&conf, message, sizeof(message), &cl))
		abort();
	c->op = API_ATTACH;
	c->client = cl;
	call(r, c);
	if (c->status != RY_OK)
		abort();
	free(c);
	return cl;
}

bool rig_detach(struct rig *r, struct client *cl)
{
	struct api_call *c = calloc(1, sizeof(*c));
	bool is_done;

	if (!cl)
		return true;
	c->op = API_DETACH;
	c->client = cl;
	call(r, c);
	is_done = c->status != RY_STATUS_MAX_;
	free(c);
	client_destroy(cl);
	if (cl == r->client)
		r->client = NULL;
	return is_done;
}

uint64_t rig_submit(struct rig *r, struct client *c, struct ry_sqe sqe, const void *key, uint16_t key_bytes)
{
	uint32_t tail = c->sq_index->tail;

	sqe.ticket = r->next_ticket++;
	if (sqe.op != RY_OP_CANCEL && sqe.op != RY_OP_RELEASE)
		sqe.slot = (uint16_t)(r->next_slot++ % c->n_entries);
	sqe.key_bytes = key_bytes;
	if (key)
		memcpy(c->slots[sqe.slot].key, key, key_bytes);
	c->sq[tail & (c->n_entries - 1)] = sqe;
	__atomic_store_n(&c->sq_index->tail, tail + 1, __ATOMIC_RELEASE);
	return sqe.ticket;
}

bool rig_reap(struct rig *r, struct client *c, struct ry_cqe *out)
{
	uint32_t head = c->cq_index->head;

	if (head == __atomic_load_n(&c->cq_index->tail, __ATOMIC_ACQUIRE))
		return false;
	*out = c->cq[head & (c->n_entries - 1)];
	__atomic_store_n(&c->cq_index->head, head + 1, __ATOMIC_RELEASE);
	return true;
}

struct ry_cqe rig_wait(struct rig *r, struct client *c, uint64_t ticket)
{
	struct ry_cqe cqe = {.status = RY_STATUS_MAX_};

	for (uint64_t end = r->now_ns + 60000000000ull; r->now_ns < end;) {
		while (rig_reap(r, c, &cqe)) {
			if (cqe.ticket == ticket)
				return cqe;
		}
		rig_step(r);
	}
	cqe.status = RY_STATUS_MAX_;
	return cqe;
}

const struct ry_slot *rig_slot(const struct client *c, const struct ry_cqe *cqe)
{
	return &c->slots[cqe->slot];
}

void rig_fill(uint8_t *p, uint64_t bytes, uint64_t seed)
{
	uint64_t x = seed * 0x9e3779b97f4a7c15ull + 1;

	for (uint64_t i = 0; i < bytes; i++) {
		x = x * 6364136223846793005ull + 1442695040888963407ull;
		p[i] = (uint8_t)(x >> 56);
	}
}

struct ry_cqe rig_put(struct rig *r, struct client *c, const char *key, const uint8_t *data, uint64_t bytes,
	uint32_t stripe_bytes, uint32_t flags)
{
	uint32_t n = (uint32_t)((bytes + stripe_bytes - 1) / stripe_bytes);
	uint64_t sums_off = (bytes + 63) / 64 * 64;
	uint64_t *sums = (uint64_t *)(void *)(c->put_arena.base + sums_off);
	struct ry_slot *slot = &c->slots[r->next_slot % c->n_entries];
	struct ry_sqe sqe = {
		.op = RY_OP_PUT, .flags = flags | RY_F_PUT_BEGIN | RY_F_PUT_COMMIT, .length = bytes, .arg = 0};

	if (bytes)
		memcpy(c->put_arena.base, data, bytes);
	for (uint32_t i = 0; i < n; i++) {
		uint64_t off = (uint64_t)i * stripe_bytes;

		sums[i] = XXH3_64bits(data + off, bytes - off < stripe_bytes ? bytes - off : stripe_bytes);
	}
	slot->put_id[0] = r->next_ticket;
	slot->put_id[1] = 42;
	slot->size_bytes = bytes;
	slot->ttl_ns = 0;
	slot->stripe_bytes = stripe_bytes;
	slot->n_checksums = n;
	slot->checksum_offset = sums_off;
	return rig_wait(r, c, rig_submit(r, c, sqe, key, (uint16_t)strlen(key)));
}

struct ry_cqe rig_read(
	struct rig *r, struct client *c, const char *key, uint64_t offset, uint64_t length, uint32_t flags)
{
	struct ry_sqe sqe = {.op = RY_OP_READ, .flags = flags, .offset = offset, .length = length};

	return rig_wait(r, c, rig_submit(r, c, sqe, key, (uint16_t)strlen(key)));
}

uint64_t rig_submit_read(struct rig *r, struct client *c, const char *key, uint64_t offset, uint64_t length,
	uint32_t flags, uint64_t deadline_ns)
{
	struct ry_sqe sqe = {
		.op = RY_OP_READ, .flags = flags, .offset = offset, .length = length, .deadline_ns = deadline_ns};

	return rig_submit(r, c, sqe, key, (uint16_t)strlen(key));
}

void rig_cancel(struct rig *r, struct client *c, uint64_t ticket)
{
	struct ry_sqe sqe = {.op = RY_OP_CANCEL, .arg = ticket};

	rig_submit(r, c, sqe, NULL, 0);
}

uint8_t *rig_object(struct rig *r, const char *key, uint64_t bytes, uint64_t seed)
{
	uint8_t *data = malloc(bytes + 1);
	struct ry_cqe put;

	rig_fill(data, bytes, seed);
	put = rig_put(r, r->client, key, data, bytes, RIG_STRIPE_BYTES, 0);
	if (put.status != RY_OK) {
		fprintf(stderr, "rig: put %s: %s\n", key, rig_slot(r->client, &put)->cause);
		abort();
	}
	return data;
}

bool rig_same(const struct client *c, const struct ry_cqe *cqe, const uint8_t *want, uint64_t bytes)
{
	const struct ry_slot *slot = rig_slot(c, cqe);

	if (cqe->status != RY_OK || cqe->bytes != bytes)
		return false;
	for (uint32_t i = 0; i < slot->n_extents; i++) {
		const struct ry_extent *e = &slot->extents[i];

		if (e->bytes > bytes || memcmp(c->read_arena.base + e->offset, want, e->bytes))
			return false;
		want += e->bytes;
		bytes -= e->bytes;
	}
	return bytes == 0;
}

void rig_release(struct rig *r, struct client *c, uint32_t lease_id)
{
	struct ry_sqe sqe = {.op = RY_OP_RELEASE, .arg = lease_id};

	rig_submit(r, c, sqe, NULL, 0);
	rig_step(r);
}

bool rig_is_idle(struct rig *r)
{
	const struct control *c = r->node->control;
	bool is_idle = !c->inflight_bytes && !c->inflight_reads && TAILQ_EMPTY(&c->used_xfers) &&
		       TAILQ_EMPTY(&c->active) && !c->n_quieting && c->n_segs_free == SEGMENTS_MAX &&
		       c->n_jobs_free == JOBS_MAX;

	for (uint16_t i = 0; i < c->n_rails; i++)
		is_idle &= !c->rails[i].inflight_bytes;
	return is_idle && !stat_get(&c->counters->leases) && !stat_get(&c->counters->quarantined_bytes);
}

bool rig_settle(struct rig *r)
{
	for (uint64_t end = r->now_ns + 2000000000ull; r->now_ns < end && !rig_is_idle(r);)
		rig_step(r);
	return rig_is_idle(r);
}
