/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One whole node in one thread: the daemon's own rails, control and conn run in turn over mock rails, in virtual time,
 * and the test plays api and clients. Nothing is replaced but the transport; the clock stands still unless rig_step
 * moves it.
 */
#ifndef RY_TEST_RIG_H
#define RY_TEST_RIG_H

#include <stdbool.h>
#include <stdint.h>

#include <railyard/ring.h>
#include <railyard/status.h>

#include "daemon/client.h"
#include "daemon/config.h"
#include "daemon/node.h"

#ifdef __cplusplus
extern "C" {
#endif

#define RIG_STEP_NS 20000ull
#define RIG_STRIPE_BYTES (256u << 10)

struct rig {
	struct config config;
	struct node *node;
	uint64_t now_ns;
	uint64_t step_ns;
	struct client *client; /* the first one */
	uint64_t next_ticket;
	uint16_t next_slot;
};

/* n mock rails with this bandwidth (0 = not modelled) and small arenas; change r->config between rig_init and
 * rig_start. */
void rig_init(struct rig *r, uint16_t n_rails, uint64_t bandwidth);
/* EAL, node, pairs up, one client attached. */
void rig_start(struct rig *r);
void rig_stop(struct rig *r);
/* One turn of every loop, then time goes on by step_ns. */
void rig_step(struct rig *r);
void rig_run(struct rig *r, uint64_t ns);
struct client *rig_attach(struct rig *r, uint64_t arena_bytes);
/* Closes a client as api does; steps until control let go of it. false: not within 10 virtual seconds. */
bool rig_detach(struct rig *r, struct client *c);

/* Submits on a fresh slot; returns the ticket. key may be NULL. */
uint64_t rig_submit(struct rig *r, struct client *c, struct ry_sqe sqe, const void *key, uint16_t key_bytes);
/* Takes the next completion; false: none there. */
bool rig_reap(struct rig *r, struct client *c, struct ry_cqe *out);
/* Steps until that ticket completes (others are lost); status RY_STATUS_MAX_ when 60 virtual seconds are not enough. */
struct ry_cqe rig_wait(struct rig *r, struct client *c, uint64_t ticket);
const struct ry_slot *rig_slot(const struct client *c, const struct ry_cqe *cqe);

/* Deterministic bytes of an object. */
void rig_fill(uint8_t *p, uint64_t bytes, uint64_t seed);
/* One put in one part; returns the completion. */
struct ry_cqe rig_put(struct rig *r, struct client *c, const char *key, const uint8_t *data, uint64_t bytes,
	uint32_t stripe_bytes, uint32_t flags);
struct ry_cqe rig_read(
	struct rig *r, struct client *c, const char *key, uint64_t offset, uint64_t length, uint32_t flags);
/* The same without waiting: submits with an absolute deadline (0 = the default); returns the ticket. */
uint64_t rig_submit_read(struct rig *r, struct client *c, const char *key, uint64_t offset, uint64_t length,
	uint32_t flags, uint64_t deadline_ns);
void rig_cancel(struct rig *r, struct client *c, uint64_t ticket);
/* Puts an object of rig_fill(seed) through r->client, in stripes of RIG_STRIPE_BYTES; returns its bytes, to be freed.
 */
uint8_t *rig_object(struct rig *r, const char *key, uint64_t bytes, uint64_t seed);
/* Whether the lease of a good completion shows exactly these bytes. */
bool rig_same(const struct client *c, const struct ry_cqe *cqe, const uint8_t *want, uint64_t bytes);
void rig_release(struct rig *r, struct client *c, uint32_t lease_id);
/* No segment, byte, read, lease or put is accounted for any more. */
bool rig_is_idle(struct rig *r);
/* Steps until it is, for at most two virtual seconds. */
bool rig_settle(struct rig *r);

#ifdef __cplusplus
}
#endif
#endif
