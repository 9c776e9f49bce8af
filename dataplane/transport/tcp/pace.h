/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The sender's rate cap: a token bucket in bytes, exact over time.
 *
 * Used by the TCP transport on the rail lcore; the time is an argument. While something waits to be sent the bucket may
 * fill up to `burst` (a late wake-up is made good); while nothing waits it keeps only `idle`, so that a pause earns no
 * burst. The division's remainder is carried, so no byte is lost or won however often it is refilled. It never sleeps
 * and never sends.
 */
#ifndef RY_TCP_PACE_H
#define RY_TCP_PACE_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PACE_NS_PER_S 1000000000ull
#define PACE_QUANTUM_BYTES                                                                                             \
	(64ull << 10)            /* smallest send while more waits: one system call each, 1,900 a second at 125 MB/s */
#define PACE_BURST_NS 5000000ull /* how late a wake-up may be without loss of rate */
#define PACE_RATE_MAX 1000000000000ull /* keeps tokens times 1e9 within 64 bits */

struct pace {
	uint64_t rate; /* bytes a second, 0 = no cap */
	uint64_t burst_bytes;
	uint64_t idle_bytes;
	uint64_t fill_ns; /* from empty to burst_bytes */
	uint64_t tokens;
	uint64_t remainder; /* of tokens, in bytes / 1e9 */
	uint64_t last_ns;
};

static inline void pace_init(struct pace *p, uint64_t rate_bytes_per_s)
{
	uint64_t rate = rate_bytes_per_s < PACE_RATE_MAX ? rate_bytes_per_s : PACE_RATE_MAX;
	uint64_t burst = rate * PACE_BURST_NS / PACE_NS_PER_S;

	p->rate = rate;
	p->idle_bytes = PACE_QUANTUM_BYTES;
	/* Above the quantum that a send waits for, or what is earned while that fills up would spill. */
	p->burst_bytes = PACE_QUANTUM_BYTES + (burst > PACE_QUANTUM_BYTES ? burst : PACE_QUANTUM_BYTES);
	p->fill_ns = rate ? (p->burst_bytes * PACE_NS_PER_S + rate - 1) / rate : 0;
	p->tokens = p->idle_bytes;
	p->remainder = 0;
	p->last_ns = 0;
}

/* Earns tokens for the time since the last call. `is_waiting`: something has waited to be sent during that time. */
static inline void pace_refill(struct pace *p, uint64_t now_ns, bool is_waiting)
{
	uint64_t cap = is_waiting ? p->burst_bytes : p->idle_bytes;
	uint64_t elapsed = now_ns > p->last_ns ? now_ns - p->last_ns : 0;

	if (!p->rate)
		return;
	p->last_ns += elapsed;
	if (elapsed > p->fill_ns)
		elapsed = p->fill_ns;
	p->remainder += elapsed * p->rate;
	p->tokens += p->remainder / PACE_NS_PER_S;
	p->remainder %= PACE_NS_PER_S;
	if (p->tokens >= cap) {
		p->tokens = cap;
		p->remainder = 0;
	}
}

/* Tokens a send of `pending` bytes waits for. */
static inline uint64_t pace_want(uint64_t pending)
{
	return pending < PACE_QUANTUM_BYTES ? pending : PACE_QUANTUM_BYTES;
}

/* How many of `pending` bytes may be sent now; 0 = wait. */
static inline uint64_t pace_allow(const struct pace *p, uint64_t pending)
{
	if (!p->rate)
		return pending;
	if (p->tokens < pace_want(pending))
		return 0;
	return p->tokens < pending ? p->tokens : pending;
}

static inline void pace_spend(struct pace *p, uint64_t bytes)
{
	if (p->rate)
		p->tokens -= bytes;
}

/* From the last refill until pace_allow(pending) is not 0; 0 = it is already. */
static inline uint64_t pace_wait_ns(const struct pace *p, uint64_t pending)
{
	uint64_t want = pace_want(pending);

	if (!p->rate || p->tokens >= want)
		return 0;
	return ((want - p->tokens) * PACE_NS_PER_S - p->remainder + p->rate - 1) / p->rate;
}

#ifdef __cplusplus
}
#endif
#endif
