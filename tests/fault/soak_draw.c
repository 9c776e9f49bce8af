/* SPDX-License-Identifier: BSD-3-Clause */
#include "soak_draw.h"

#include <inttypes.h>
#include <stdio.h>

#define MS 1000000ull
#define KIB (1u << 10)

static void draw_health(struct dice *d, struct config *c);
static void draw_admission(struct dice *d, struct config *c);
static void draw_fault(struct dice *d, char *one, uint32_t bytes);

/* One of the arguments. */
#define PICK(d, ...)                                                                                                   \
	((const uint64_t[]){__VA_ARGS__}[dice_below(d, sizeof((const uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t))])

struct dice dice_of(uint64_t seed)
{
	struct dice d = {.state = seed * 0x9e3779b97f4a7c15ull | 1};

	for (int i = 0; i < 16; i++) /* seeds that are near each other part */
		dice_below(&d, 2);
	return d;
}

/* xorshift. */
uint64_t dice_below(struct dice *d, uint64_t n)
{
	d->state ^= d->state << 13;
	d->state ^= d->state >> 7;
	d->state ^= d->state << 17;
	return d->state % n;
}

uint16_t draw_rails(struct dice *d)
{
	return (uint16_t)(2 + dice_below(d, SOAK_RAILS_MAX - 1));
}

void draw_config(struct dice *d, struct config *c, char *text)
{
	draw_health(d, c);
	draw_admission(d, c);
	c->policy = (enum config_policy)dice_below(d, 2);
	c->on_rail_failure = (enum config_rail_failure)dice_below(d, 2);
	snprintf(text, SOAK_TEXT_BYTES,
		"%u rails, %s, %s; threshold %u, cooldown %us, probes every %us, flap %us, slow trip %us; %s, wait "
		"%llums, %u waiting; reads %u of %u, MiB %" PRIu64 " of %" PRIu64,
		c->n_rails, c->policy == POLICY_ADAPTIVE ? "adaptive" : "round_robin",
		c->on_rail_failure == ON_RAIL_FAILURE_FAILOVER ? "failover" : "fail", c->health.error_threshold,
		c->health.cooldown_secs, c->health.probe_interval_secs, c->health.flap_secs, c->slow_trip_secs,
		c->admission == ADMISSION_QUEUE ? "queue" : "reject", c->admission_wait_ns / MS, c->admission_queue_max,
		c->client_max_reads, c->max_reads, c->client_inflight_max_bytes >> 20, c->inflight_max_bytes >> 20);
}

static void draw_health(struct dice *d, struct config *c)
{
	c->health.error_threshold = (uint32_t)PICK(d, 1, 2, 3, 3);
	c->health.cooldown_secs = (uint32_t)PICK(d, 1, 1, 2, 5, 30);
	c->health.probe_interval_secs = (uint32_t)PICK(d, 1, 1, 1, 2, 0);
	c->health.flap_secs = (uint32_t)PICK(d, 0, 1, 10, 10);
	c->slow_trip_secs = (uint32_t)PICK(d, 0, 0, 1, 2);
}

static void draw_admission(struct dice *d, struct config *c)
{
	uint64_t own = PICK(d, SOAK_LARGEST_BYTES, 2 * SOAK_LARGEST_BYTES, c->client_inflight_max_bytes);

	c->admission = (enum config_admission)dice_below(d, 2);
	c->admission_wait_ns = PICK(d, 2, 20, 500) * MS;
	c->admission_queue_max = (uint32_t)PICK(d, 3, 10, 1024);
	c->client_max_reads = (uint32_t)PICK(d, 1, 3, 256);
	c->max_reads = c->client_max_reads + (uint32_t)PICK(d, 0, 2, 64);
	c->client_inflight_max_bytes = own;
	c->inflight_max_bytes = own + PICK(d, 0, 4 * 1024 * KIB, own);
}

void draw_plan(struct dice *d, char *text)
{
	uint32_t at = 0;

	text[0] = 0;
	for (uint64_t n = 1 + dice_below(d, 3); n; n--) {
		char one[128];

		draw_fault(d, one, sizeof(one));
		at += (uint32_t)snprintf(text + at, SOAK_TEXT_BYTES - at, "%s; ", one);
	}
	snprintf(text + at, SOAK_TEXT_BYTES - at, "seed=%" PRIu64, 1 + dice_below(d, 1000000));
}

static void draw_fault(struct dice *d, char *one, uint32_t bytes)
{
	static const char *const classes[] = {"peer_closed", "retry", "rnr", "access", "local", "flush", "protocol"};
	static const char *const of[] = {"answers", "requests", "cancels", "all"};
	unsigned kb = (unsigned)dice_below(d, 3000), times = 1 + (unsigned)dice_below(d, 3);
	const char *what = of[dice_below(d, 4)];

	switch (dice_below(d, 10)) {
	case 0:
		snprintf(one, bytes, "disconnect:at=%uKiB", kb);
		break;
	case 1:
		snprintf(one, bytes, "stall:at=%uKiB,for=%ums", kb, 1 + (unsigned)dice_below(d, 300));
		break;
	case 2:
		snprintf(one, bytes, "short:n=%u,repeat=%u", 1 + kb / 100, times);
		break;
	case 3:
		snprintf(one, bytes, "corrupt:n=%u,repeat=%u", 1 + kb / 100, times);
		break;
	case 4:
		snprintf(one, bytes, "slow:factor=0.%02u,for=%ums", 1 + (unsigned)dice_below(d, 99),
			1 + (unsigned)dice_below(d, 200));
		break;
	case 5:
		snprintf(one, bytes, "lose:n=%u,repeat=%u,of=%s", 1 + kb / 300, times, what);
		break;
	case 6:
		snprintf(one, bytes, "duplicate:n=%u,repeat=%u,of=%s", 1 + kb / 300, times, what);
		break;
	case 7:
		snprintf(
			one, bytes, "reorder:n=%u,for=%ums,of=%s", 1 + kb / 300, 1 + (unsigned)dice_below(d, 20), what);
		break;
	case 8:
		snprintf(one, bytes, "error:at=%uKiB,class=%s", kb, classes[dice_below(d, 7)]);
		break;
	default:
		snprintf(one, bytes, dice_below(d, 4) ? "late:n=%u" : "restart:n=%u", 1 + kb / 100);
		break;
	}
}

void draw_silence(struct dice *d, char *text)
{
	const char *of = dice_below(d, 2) ? "requests" : "answers";
	unsigned n = 1 + (unsigned)dice_below(d, 20), percent = 30 + 10 * (unsigned)dice_below(d, 8);

	if (percent < 100)
		snprintf(text, SOAK_TEXT_BYTES, "lose:of=%s,n=%u,p=0.%u,repeat=forever; seed=%" PRIu64, of, n, percent,
			1 + dice_below(d, 1000000));
	else
		snprintf(text, SOAK_TEXT_BYTES, "lose:of=%s,n=%u,repeat=forever", of, n);
}
