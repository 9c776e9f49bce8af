/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A client that means harm, and one that does not, for the cases of hostile.sh.
 *
 * Each mode is one function: it gets the control socket and its arguments, does what it can to the daemon, and prints
 * one line of JSON that says how often it got to do it, so that a case can tell that the attack bit. What a mode finds
 * allowed and must not be is its failure. One process, one thread each; modes that need more fork.
 */
#ifndef RY_TEST_HOSTILE_H
#define RY_TEST_HOSTILE_H

#include <stdbool.h>
#include <stdint.h>

#include <railyard/railyard.h>

#include "client/client_priv.h"

#ifdef __cplusplus
extern "C" {
#endif

#define BAIT_KEY "bait"          /* an object that every mode may read; made by mode_honest */
#define BAIT_BYTES (6u << 20)    /* of it */
#define SMALL_ARENA (256u << 10) /* what modes that attach often ask for */

/* An attachment without the library's bookkeeping: descriptors, and all that can be mapped. */
struct raw {
	struct ryc_handshake h; /* the socket and the five descriptors */
	uint8_t *ring;
	const uint8_t *read;
	uint8_t *put;
	struct ry_ring_index *sq_index;
	struct ry_ring_index *cq_index;
	struct ry_sqe *sq;
	struct ry_slot *slots;
	uint32_t n_entries;
};

/* RY_OK, or why not; r->h.cause has the text. Zeros for the daemon's defaults. */
enum ry_status raw_attach(struct raw *r, const char *socket, uint64_t read_bytes, uint64_t put_bytes, uint32_t entries);
/* Leaves as a process that dies would: without a word. */
void raw_close(struct raw *r);
/* Submits one entry where the ring has room. */
bool raw_submit(struct raw *r, const struct ry_sqe *e, const void *key, uint16_t key_bytes);
/* How many entries the daemon took since the attachment. */
uint32_t raw_taken(const struct raw *r);

/* xorshift64*: the same seed, the same attack. */
uint64_t draw(void);
void draw_seed(uint64_t seed);
uint64_t now_ns(void);
void pause_us(unsigned us);
/* Bytes of an object that can be checked at any place of it. */
void pattern_fill(uint8_t *to, uint64_t bytes, uint64_t offset, uint64_t seed);
bool pattern_is(const uint8_t *p, uint64_t bytes, uint64_t offset, uint64_t seed);

struct attack {
	const char *socket;
	char **args; /* what follows the mode, NULL at the end */
	int n_args;
};

/* Each returns the program's exit code. */
int mode_honest(const struct attack *a);  /* DIR: reads, puts and compares until DIR/stop is there */
int mode_noise(const struct attack *a);   /* SECONDS: random bytes over all that can be written */
int mode_entries(const struct attack *a); /* SECONDS: well-formed rings, senseless entries, holes in the memory */
int mode_idle(const struct attack *a);    /* SECONDS: submits for ever, reaps nothing */
int mode_wakes(const struct attack *a);   /* SECONDS: misuses the two descriptors for waking up */
int mode_self(const struct attack *a);    /* the library's client, whose program writes over its ring */
int mode_fds(const struct attack *a);     /* tries what seals have to refuse */
int mode_vanish(const struct attack *a);  /* N: clients that are killed at random points */
int mode_crowd(const struct attack *a);   /* N: attached all at once, gone all at once */

#ifdef __cplusplus
}
#endif
#endif
