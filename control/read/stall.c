/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Time in which a rail could not have heard an answer, because the host gave its lcore or control no CPU: it is no
 * fault of the path and does not count towards segment deadlines. Kept as a running sum with its history of the last
 * seconds, so that a host which is short of CPU all the time makes the judgement later, and not impossible.
 */
#include "read/control_priv.h"

static void lose(struct stall *s, uint64_t now_ns, uint64_t ns);
static void roll(struct stall *s, uint64_t now_ns);

void stall_scan(struct control *c)
{
	uint64_t gap_ns = c->scanned_ns ? c->now_ns - c->scanned_ns : 0;
	bool is_late = gap_ns > DEADLINE_STALL_NS;

	c->scanned_ns = c->now_ns;
	for (uint16_t r = 0; r < c->n_rails; r++) {
		struct stall *s = &c->rails[r].stall;
		bool had_turn = rail_had_turn(c->rails[r].rail, &c->rails[r].turns_seen);

		/* Where nothing was out there was nothing to scan for, and control slept. */
		if (s->was_busy && (is_late || (!had_turn && c->now_ns - s->turn_at_ns > DEADLINE_STALL_NS)))
			lose(s, c->now_ns, gap_ns);
		else
			roll(s, c->now_ns);
		if (had_turn || is_late || !gap_ns)
			s->turn_at_ns = c->now_ns;
		s->was_busy = c->rails[r].inflight_bytes != 0;
	}
}

/* A gap that began before this slot was over when anything in it began. */
static void lose(struct stall *s, uint64_t now_ns, uint64_t ns)
{
	roll(s, now_ns);
	s->lost_ns += ns;
	if ((now_ns - ns) / STALL_SLOT_NS < s->slot)
		s->lost_before[s->slot % STALL_SLOTS] = s->lost_ns;
}

/* A slot says what was lost before it began. */
static void roll(struct stall *s, uint64_t now_ns)
{
	uint64_t slot = now_ns / STALL_SLOT_NS;

	if (slot - s->slot > STALL_SLOTS)
		s->slot = slot - STALL_SLOTS;
	while (s->slot < slot)
		s->lost_before[++s->slot % STALL_SLOTS] = s->lost_ns;
}

uint64_t stall_since_ns(const struct stall *s, uint64_t now_ns, uint64_t from_ns)
{
	uint64_t slot = from_ns / STALL_SLOT_NS, oldest = s->slot < STALL_SLOTS ? 0 : s->slot - STALL_SLOTS + 1;

	if (from_ns >= now_ns || slot > s->slot)
		return 0;
	return s->lost_ns - s->lost_before[RTE_MAX(slot, oldest) % STALL_SLOTS];
}
