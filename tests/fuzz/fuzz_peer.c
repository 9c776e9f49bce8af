/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Data messages: whatever two rails say to each other is swallowed, doubled, changed or replaced while objects are read
 * and put. A read that is told to be good is exact; when the noise has ended nothing is accounted for any more, and the
 * next read is good.
 */
#include "fuzz.h"
#include "rig_tap.h"

#include "read/control_priv.h"

#define OBJECT_BYTES 300000u
#define MS 1000000ull
#define NOISE_MAX 400u

static void set_up(void);
static bool noise(void *ctx, struct rail *rail, struct wr *wr);
static void post_other(struct rail *rail, const struct wr *wr, const void *msg, uint32_t n);
static void check_reads(void);
static void calm_down(void);

static struct rig r;
static bool is_set_up;
static uint8_t object[OBJECT_BYTES];
static unsigned n_noise;
static unsigned n_out; /* reads without a completion */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct fuzz_in in = {data, bytes};
	unsigned which = (unsigned)fuzz_number(&in, 1);

	if (!is_set_up)
		set_up();
	n_noise = 0;
	rig_tap(&r, noise, &in);
	for (n_out = 0; n_out < 1 + which % 3; n_out++)
		rig_submit_read(&r, r.client, "k", (which >> 2 & 3) * 30000, UINT64_MAX, 0, r.now_ns + 20 * MS);
	while (in.left && n_out) {
		rig_step(&r);
		check_reads();
	}
	rig_tap(&r, NULL, NULL);
	calm_down();
	return 0;
}

static void set_up(void)
{
	rig_init(&r, 1, 0);
	r.config.fence_timeout_ns = 2 * MS;
	r.config.read_arena_bytes = r.config.put_arena_bytes = 2u << 20;
	r.config.store_bytes = 16u << 20;
	r.config.segment_bytes = 128u << 10;
	/* One pair, whose breaker would keep the next input from being tried. */
	r.config.health.error_threshold = UINT32_MAX;
	rig_start(&r);
	rig_fill(object, sizeof(object), 1);
	FUZZ_CHECK(rig_put(&r, r.client, "k", object, sizeof(object), RY_STRIPE_MIN_BYTES, 0).status == RY_OK, "put");
	is_set_up = true;
}

static bool noise(void *ctx, struct rail *rail, struct wr *wr)
{
	struct fuzz_in *in = ctx;
	alignas(8) uint8_t msg[WIRE_MSG_BYTES];
	struct wire_msg *h = (void *)msg;
	uint32_t n = wr->len_bytes;
	size_t at;

	if (wr->op != WR_SEND || !in->left || n_noise++ > NOISE_MAX)
		return true;
	memcpy(msg, wr->addr, n);
	switch (fuzz_number(in, 1) % 8) {
	case 4: /* swallowed */
		return false;
	case 5: /* twice */
		post_other(rail, wr, msg, n);
		return true;
	case 6: /* one byte is another; what then fails its check never gets this far */
		at = fuzz_number(in, 1) % n;
		msg[at] ^= (uint8_t)fuzz_number(in, 1);
		post_other(rail, wr, msg, n);
		return false;
	case 7: /* one more, of any kind */
		n = (uint32_t)fuzz_bytes(in, msg, 16 + fuzz_number(in, 1) % 128);
		h->len_bytes = (uint16_t)n;
		h->reserved = 0;
		if (!(h->type & 0x80))
			h->request_id = ((const struct wire_msg *)wr->addr)->request_id;
		h->type &= 0x0f;
		post_other(rail, wr, msg, n);
		return true;
	default:
		return true;
	}
}

/* Past the tap, where the check of its transport lets it through. */
static void post_other(struct rail *rail, const struct wr *wr, const void *msg, uint32_t n)
{
	struct rig_kept k;
	struct wr w = *wr;

	if (n < sizeof(struct wire_msg) || wire_msg_check(msg, n) != RY_OK)
		return;
	w.len_bytes = n;
	w.addr = (void *)(uintptr_t)msg;
	rig_keep(&k, rail, &w);
	rig_post_kept(&k);
}

static void check_reads(void)
{
	struct ry_cqe cqe;

	while (rig_reap(&r, r.client, &cqe)) {
		n_out--;
		if (cqe.status != RY_OK)
			continue;
		FUZZ_CHECK(cqe.bytes <= sizeof(object), "%lu bytes", (unsigned long)cqe.bytes);
		FUZZ_CHECK(rig_same(r.client, &cqe, object + sizeof(object) - cqe.bytes, cqe.bytes), "other bytes");
		rig_release(&r, r.client, cqe.lease_id);
	}
}

/* Whatever was lost, a pair that is no good any more is noticed and built anew within seconds. */
static void calm_down(void)
{
	struct ry_cqe cqe;

	r.step_ns = MS / 2;
	for (unsigned i = 0; i < 3; i++) {
		for (uint64_t end_ns = r.now_ns + 5000 * MS; r.now_ns < end_ns;) {
			rig_step(&r);
			check_reads();
			if (!n_out && rig_is_idle(&r) && r.node->rails[0]->n_qps && !r.node->rails[0]->n_active)
				break;
		}
		FUZZ_CHECK(!n_out && rig_is_idle(&r), "something is still accounted for");
		cqe = rig_wait(
			&r, r.client, rig_submit_read(&r, r.client, "k", 0, UINT64_MAX, 0, r.now_ns + 5000 * MS));
		if (cqe.status == RY_OK)
			break;
	}
	FUZZ_CHECK(cqe.status == RY_OK, "%u: %s", cqe.status, rig_slot(r.client, &cqe)->cause);
	FUZZ_CHECK(rig_same(r.client, &cqe, object, sizeof(object)), "other bytes");
	rig_release(&r, r.client, cqe.lease_id);
	FUZZ_CHECK(rig_settle(&r), "not idle");
	r.step_ns = RIG_STEP_NS;
}
