/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The shared-memory rings: a client that writes anything into whatever it can write, while a whole node serves it. When
 * it has left, no byte, lease or operation of it is accounted for, and another client's read is exact.
 */
#include "fuzz.h"
#include "read/control_priv.h"
#include "rig.h"

#define ENTRIES 8u
#define OBJECT_BYTES 70000u
#define ACTIONS_MAX 200u
#define MS 1000000ull

enum action {
	ACT_RAW = 0, /* bytes anywhere in the rings, slots and indices */
	ACT_SUBMIT = 1,
	ACT_RUN = 2,
	ACT_TAIL = 3,
	ACT_HEAD = 4,
	ACT_SLOT = 5, /* what a put says about itself */
	ACT_REAP = 6,
	ACT_ARENA = 7,
	ACTIONS = 8,
};

static void set_up(void);
static void act(struct fuzz_in *in, struct client *cl);
static void submit(struct fuzz_in *in, struct client *cl);
static void describe_put(struct fuzz_in *in, struct client *cl);
static void others_are_well(void);

static struct rig r;
static bool is_set_up;
static uint8_t object[OBJECT_BYTES];

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct fuzz_in in = {data, bytes};
	struct client *cl;

	if (!is_set_up)
		set_up();
	cl = rig_attach(&r, 1u << 20);
	for (unsigned i = 0; in.left && i < ACTIONS_MAX; i++)
		act(&in, cl);
	rig_run(&r, 20 * RIG_STEP_NS);
	FUZZ_CHECK(rig_detach(&r, cl), "the client cannot be let go");
	FUZZ_CHECK(rig_settle(&r), "something of it is still accounted for");
	others_are_well();
	return 0;
}

static void set_up(void)
{
	rig_init(&r, 2, 0);
	r.config.ring_entries = ENTRIES;
	r.config.read_arena_bytes = r.config.put_arena_bytes = 1u << 20;
	r.config.store_bytes = 16u << 20;
	r.config.client_max_reads = 4;
	/* As an endless one would be, without the wait. */
	r.config.read_deadline_ns = 50 * MS;
	rig_start(&r);
	rig_fill(object, sizeof(object), 1);
	is_set_up = true;
}

static void act(struct fuzz_in *in, struct client *cl)
{
	uint8_t bytes[256];
	uint64_t at;
	size_t n;

	switch (fuzz_number(in, 1) % ACTIONS) {
	case ACT_RAW:
		at = fuzz_number(in, 2) % cl->ring.bytes;
		n = fuzz_bytes(in, bytes, fuzz_number(in, 1));
		memcpy(cl->ring.base + at, bytes, n < cl->ring.bytes - at ? n : cl->ring.bytes - at);
		break;
	case ACT_SUBMIT:
		submit(in, cl);
		break;
	case ACT_RUN:
		rig_run(&r, (fuzz_number(in, 1) % 32) * RIG_STEP_NS);
		break;
	case ACT_TAIL:
		cl->sq_index->tail = (uint32_t)fuzz_number(in, 4);
		break;
	case ACT_HEAD:
		cl->cq_index->head = (uint32_t)fuzz_number(in, 4);
		break;
	case ACT_SLOT:
		describe_put(in, cl);
		break;
	case ACT_REAP:
		cl->cq_index->head = cl->cq_index->tail;
		break;
	default:
		at = fuzz_number(in, 2) * 16 % cl->put_arena.bytes;
		n = fuzz_bytes(in, bytes, fuzz_number(in, 1));
		memcpy(cl->put_arena.base + at, bytes, n < cl->put_arena.bytes - at ? n : cl->put_arena.bytes - at);
	}
	rig_step(&r);
}

/* An entry in its place, with anything in it; short keys, so that they meet each other. */
static void submit(struct fuzz_in *in, struct client *cl)
{
	uint32_t tail = cl->sq_index->tail;
	struct ry_sqe *e = &cl->sq[tail & (ENTRIES - 1)];

	memset(e, 0, sizeof(*e));
	e->op = (uint8_t)fuzz_number(in, 1);
	e->slot = (uint8_t)fuzz_number(in, 1) % (ENTRIES + 1);
	e->flags = (uint32_t)fuzz_number(in, 1);
	e->ticket = fuzz_number(in, 1);
	e->key_bytes = (uint16_t)(e->op >= 0x80 ? fuzz_number(in, 2) : 1);
	e->op &= 0x0f;
	e->offset = fuzz_number(in, 3);
	e->length = fuzz_number(in, 3);
	e->arg = fuzz_number(in, 3);
	if (e->slot < ENTRIES)
		cl->slots[e->slot].key[0] = (uint8_t)('a' + fuzz_number(in, 1) % 4);
	__atomic_store_n(&cl->sq_index->tail, tail + 1, __ATOMIC_RELEASE);
}

static void describe_put(struct fuzz_in *in, struct client *cl)
{
	struct ry_slot *s = &cl->slots[fuzz_number(in, 1) % ENTRIES];

	s->put_id[0] = fuzz_number(in, 1);
	s->size_bytes = fuzz_number(in, 3);
	s->stripe_bytes = (uint32_t)fuzz_number(in, 2) << 12;
	s->n_checksums = (uint32_t)fuzz_number(in, 2);
	s->checksum_offset = fuzz_number(in, 3);
}

static void others_are_well(void)
{
	struct ry_cqe put = rig_put(&r, r.client, "good", object, sizeof(object), RY_STRIPE_MIN_BYTES, 0), read;

	FUZZ_CHECK(put.status == RY_OK, "put: %u: %s", put.status, rig_slot(r.client, &put)->cause);
	read = rig_read(&r, r.client, "good", 0, UINT64_MAX, 0);
	FUZZ_CHECK(read.status == RY_OK, "read: %u: %s", read.status, rig_slot(r.client, &read)->cause);
	FUZZ_CHECK(rig_same(r.client, &read, object, sizeof(object)), "other bytes");
	rig_release(&r, r.client, read.lease_id);
	FUZZ_CHECK(rig_settle(&r), "not idle");
}
