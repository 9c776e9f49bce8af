/* SPDX-License-Identifier: BSD-3-Clause */
/* What a fault says about its path: what counts for the breaker, how often; and which rails are never asked. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "fault_rig.h"
#include "read/control_priv.h"

#define BAD 1

static const struct rail_breaker *breaker(struct fault_rig *f, uint16_t rail)
{
	const struct health *h = &f->r.node->control->health;

	return &h->breakers.pairs[health_breaker(h, 0, rail, rail)];
}

/* Several QPs a pair: all of them go, one verdict. */
static void begin(struct fault_rig *f)
{
	fault_init(f, 3);
	for (uint16_t i = 0; i < 3; i++)
		f->r.config.rails[i].sockets_per_pair = 4;
	fault_start(f);
}

/* With a threshold of 1 every verdict is a trip. */
static void ends_with(const char *plan, uint32_t n_trips, enum rail_evidence evidence)
{
	const struct rail_breaker *b;
	struct fault_rig f;

	fault_init(&f, 3);
	for (uint16_t i = 0; i < 3; i++)
		f.r.config.rails[i].sockets_per_pair = 4;
	f.r.config.health.error_threshold = 1;
	fault_start(&f);
	b = breaker(&f, BAD);
	for (uint32_t i = 1; i <= 2; i++) {
		fault_plan(&f, BAD, plan);
		cr_assert_eq(fault_read(&f, "large", RY_F_FAILOVER, 3000), RY_OK, "%s", fault_cause(&f));
		rig_run(&f.r, 1200 * MS);
		cr_assert(b->n_trips == n_trips * i && !b->resume_ns, "%s: %u trips", plan, b->n_trips);
		cr_assert_eq(b->last_evidence, evidence, "%s: %u", plan, b->last_evidence);
		/* The loss was not announced: proven by a PING, then in use again. */
		cr_assert_geq(stat_get(&rail_counters(f.r.node->rails[BAD])->probes_sent), i);
	}
	cr_assert(!breaker(&f, 0)->last_fault_ns && !breaker(&f, 2)->last_fault_ns);
	fault_over(&f);
	fault_stop(&f);
}

Test(fault_evidence, retries_exceeded)
{
	ends_with("error:at=100KiB,class=retry", 1, RAIL_EV_PATH);
}

Test(fault_evidence, peer_not_ready)
{
	ends_with("error:at=100KiB,class=rnr", 1, RAIL_EV_PATH);
}

Test(fault_evidence, peer_closed)
{
	ends_with("error:at=100KiB,class=peer_closed", 0, RAIL_EV_PEER);
}

Test(fault_evidence, connection_lost)
{
	ends_with("disconnect:at=100KiB", 0, RAIL_EV_PEER);
}

Test(fault_evidence, access_error)
{
	ends_with("error:at=100KiB,class=access", 0, RAIL_EV_NONE);
}

Test(fault_evidence, local_fault)
{
	ends_with("error:at=100KiB,class=local", 0, RAIL_EV_LOCAL);
}

Test(fault_evidence, flush)
{
	ends_with("error:at=100KiB,class=flush", 0, RAIL_EV_NONE);
}

/* Many segments of several reads are silent together: one connection, one verdict. */
Test(fault_evidence, silence_counts_once)
{
	unsigned n_done = 0, n_connections = 0;
	uint32_t epoch = 0;
	struct fault_rig f;
	struct ry_cqe cqe;

	begin(&f);
	fault_plan(&f, BAD, "lose:repeat=forever,of=all");
	for (int i = 0; i < 4; i++)
		rig_submit_read(&f.r, f.r.client, "small", 0, UINT64_MAX, RY_F_FAILOVER, 0);
	while (n_done < 4 && f.r.now_ns < 60000 * MS) {
		rig_step(&f.r);
		if (breaker(&f, BAD)->connection != epoch) {
			epoch = breaker(&f, BAD)->connection;
			n_connections++;
		}
		cr_assert_leq(breaker(&f, BAD)->error_count, n_connections);
		while (rig_reap(&f.r, f.r.client, &cqe)) {
			cr_assert(rig_same(f.r.client, &cqe, f.small, 4 * MIB));
			rig_release(&f.r, f.r.client, cqe.lease_id);
			n_done++;
		}
	}
	cr_assert_eq(n_done, 4u);
	cr_assert_geq(n_connections, 1u);
	fault_over(&f);
	fault_stop(&f);
}

/* A configured pair that cannot be connected: three attempts open it, and once the cooldown is over each attempt is the
 * trial. One that fails while it is open takes no probe away. */
Test(fault_evidence, failed_attempts_feed_the_breaker)
{
	struct rail_fault fault = {.evidence = RAIL_EV_PEER, .status = RY_ERR_RAIL};
	const struct rail_breaker *b;
	struct fault_rig f;
	struct health *h;
	uint64_t now;

	fault_init(&f, 3);
	f.r.config.health.cooldown_secs = 5;
	fault_start(&f);
	h = &f.r.node->control->health;
	b = breaker(&f, BAD);
	now = f.r.now_ns;
	for (int i = 0; i < 5; i++)
		health_dial_failed(h, health_breaker(h, 0, BAD, BAD), &fault, now += 10 * MS);
	cr_assert(!b->error_count && !b->resume_ns, "who refuses is there");
	fault.evidence = RAIL_EV_PATH;
	for (int i = 0; i < 3; i++) {
		cr_assert(!b->resume_ns);
		health_dial_failed(h, health_breaker(h, 0, BAD, BAD), &fault, now += 10 * MS);
	}
	cr_assert(b->resume_ns && b->cooldown_ns == 5000 * MS && !b->n_sent);
	health_dial_failed(h, health_breaker(h, 0, BAD, BAD), &fault, now + 2000 * MS);
	cr_assert(b->cooldown_ns == 5000 * MS && !b->n_sent);
	for (uint64_t cooldown_s = 10; cooldown_s < 1000; cooldown_s *= 2) {
		health_dial_failed(h, health_breaker(h, 0, BAD, BAD), &fault, b->resume_ns);
		cr_assert_eq(b->cooldown_ns, (cooldown_s < 300 ? cooldown_s : 300) * 1000 * MS);
		cr_assert_not(b->is_probe_out);
	}
	fault.evidence = RAIL_EV_LOCAL;
	health_dial_failed(h, health_breaker(h, 0, BAD, BAD), &fault, b->resume_ns);
	cr_assert(!b->is_probe_out && b->cooldown_ns == 300000 * MS, "a local fault is no trial");
	fault_stop(&f);
}

/* As conn tells it; this one fault is the test's own and must come back. */
Test(fault_evidence, failed_attempts_are_taken_and_given_back)
{
	struct dial_fault told = {
		.endpoint_idx = BAD, .rail_idx = BAD, .evidence = RAIL_EV_PATH, .status = RY_ERR_TIMEOUT};
	struct fault_rig f;
	void *p;

	fault_init(&f, 3);
	fault_start(&f);
	for (uint32_t i = 1; i <= 3; i++) {
		bool is_back = false;

		told.m.kind = MSG_DIAL_FAULT;
		spsc_push(f.r.node->conn_to_control, &told);
		control_poll(f.r.node->control, f.r.now_ns);
		while ((p = spsc_pop(f.r.node->control_to_conn)) != NULL)
			is_back |= p == &told;
		cr_assert(is_back && told.m.kind == MSG_DIAL_FAULT_SEEN);
		cr_assert_eq(breaker(&f, BAD)->error_count, i);
	}
	cr_assert(breaker(&f, BAD)->resume_ns && breaker(&f, BAD)->n_trips == 1);
	cr_assert(!breaker(&f, 0)->last_fault_ns && !breaker(&f, 2)->last_fault_ns);
	fault_stop(&f);
}

/* ---- Ends that say nothing about the path ---- */

/* Three new incarnations of the peer: its health, not the rail's. */
Test(fault_evidence, peer_restarts)
{
	struct fault_rig f;

	fault_init(&f, 3);
	f.r.config.health.error_threshold = 1;
	fault_start(&f);
	for (uint32_t i = 1; i <= 3; i++) {
		fault_plan(&f, BAD, "restart:at=100KiB");
		fault_read(&f, "large", RY_F_FAILOVER, 3000);
		cr_assert_eq(fault_count(&f, BAD, FAULT_RESTART), i);
		rig_run(&f.r, 500 * MS);
		for (uint16_t r = 0; r < 3; r++) {
			const struct rail_breaker *b = breaker(&f, r);

			cr_assert(!b->n_trips && !b->error_count, "restart %u, rail%u", i, r);
			cr_assert_eq(b->last_evidence, RAIL_EV_PEER);
		}
	}
	fault_over(&f);
	fault_stop(&f);
}

/* Closes the pair for this reason, 0 as if it were lost; what conn tells of its end is path evidence. */
static void ends_for(uint8_t reason, uint32_t n_trips, uint32_t n_pings)
{
	struct control *c;
	struct fault_rig f;
	uint64_t n_probes;
	struct path *p;
	uint16_t idx;
	void *msgs[16];

	fault_init(&f, 3);
	f.r.config.health.error_threshold = 1;
	fault_start(&f);
	c = f.r.node->control;
	n_probes = stat_get(&rail_counters(f.r.node->rails[BAD])->probes_sent);
	idx = c->peers[0].by_rail[BAD].pair->idx;
	p = &c->paths[idx];
	p->kill = (struct pair_kill){
		.m = {MSG_PAIR_KILL}, .pair_idx = idx, .pair_epoch = p->epoch, .reason = WIRE_BYE_REBUILD};
	spsc_push(f.r.node->control_to_conn, &p->kill);
	conn_poll(f.r.node->conn, f.r.now_ns);
	for (unsigned i = 0, n = spsc_pop_burst(f.r.node->conn_to_control, msgs, 16); i < n; i++) {
		struct pair_event *ev = msgs[i];

		if (ev->m.kind == MSG_PAIR_DOWN) {
			cr_assert_eq(ev->reason, WIRE_BYE_REBUILD);
			ev->reason = reason;
			ev->evidence = RAIL_EV_PATH;
		}
		spsc_push(f.r.node->conn_to_control, ev);
	}
	rig_run(&f.r, 1200 * MS);
	cr_assert_eq(breaker(&f, BAD)->n_trips, n_trips);
	cr_assert_eq(breaker(&f, BAD)->last_fault_ns != 0, n_trips != 0);
	cr_assert_eq(stat_get(&rail_counters(f.r.node->rails[BAD])->probes_sent) - n_probes, n_pings);
	fault_over(&f);
	fault_stop(&f);
}

Test(fault_evidence, announced_end_counts_nothing)
{
	ends_for(WIRE_BYE_DRAIN, 0, 0);
}

/* The peer had its reason, which may be the path: counted nowhere, but to be proven. */
Test(fault_evidence, announced_rebuild_is_proven)
{
	ends_for(WIRE_BYE_REBUILD, 0, 1);
}

Test(fault_evidence, end_without_a_word_counts)
{
	ends_for(0, 1, 1);
}

/* ---- Memory that a NIC cannot reach ---- */

static int device_reg(void *rail, void *base, uint64_t bytes, enum mem_kind kind, uint16_t idx)
{
	(void)rail, (void)base, (void)bytes, (void)idx;
	cr_assert_eq(kind, MEM_DEVICE);
	return 0;
}

static void device_dereg(void *rail, uint16_t idx)
{
	(void)rail, (void)idx;
}

Test(fault_evidence, rails_that_cannot_reach_the_memory_are_never_asked)
{
	struct region_set set = {.n_rails = 3,
		.rails = {{NULL, device_reg, device_dereg, false}, {NULL, device_reg, device_dereg, true},
			{NULL, device_reg, device_dereg, true}}};
	const struct rail_counters *far;
	uint64_t before, n_probes;
	struct fault_rig f;
	struct client *c;

	begin(&f);
	f.r.config.reconnect_ns = 500 * MS;
	c = f.r.client;
	far = rail_counters(f.r.node->rails[0]);
	region_unregister(c->read_region);
	cr_assert_eq(region_register(&set, c->read_arena.base, c->read_arena.bytes, MEM_DEVICE, &c->read_region), 0);
	before = stat_get(&far->rx_bytes);
	n_probes = stat_get(&far->probes_sent);
	cr_assert_eq(fault_read(&f, "large", 0, 1000), RY_OK);
	cr_assert_eq(fault_read(&f, "small", RY_F_ONE_RAIL, 1000), RY_OK);
	fault_plan(&f, 1, "corrupt:n=1");
	fault_plan(&f, 2, "corrupt:n=1,repeat=forever");
	cr_assert_eq(fault_read(&f, "large", RY_F_FAILOVER, 1000), RY_ERR_CHECKSUM, "%s", fault_cause(&f));
	/* The only ones that reach it are gone: the third is no way out, and no probe is spent on it. */
	fault_plan(&f, 1, "disconnect:at=300KiB");
	fault_plan(&f, 2, "disconnect:at=300KiB");
	cr_assert_eq(fault_read(&f, "large", RY_F_FAILOVER, 1000), RY_ERR_NO_RAIL, "%s", fault_cause(&f));
	cr_assert(strstr(fault_cause(&f), "rail0 cannot reach this memory"), "%s", fault_cause(&f));
	cr_assert_eq(stat_get(&far->rx_bytes), before);
	cr_assert_eq(stat_get(&far->probes_sent), n_probes);
	cr_assert(!breaker(&f, 0)->n_sent && !breaker(&f, 0)->is_probe_out);
	fault_stop(&f);
}

/* A wrong stripe is not read again over a rail that cannot reach the memory: there is no other rail. */
Test(fault_evidence, wrong_stripe_and_no_other_rail_that_reaches)
{
	struct region_set set = {.n_rails = 3,
		.rails = {{NULL, device_reg, device_dereg, false}, {NULL, device_reg, device_dereg, false},
			{NULL, device_reg, device_dereg, true}}};
	struct fault_rig f;
	struct client *c;

	begin(&f);
	c = f.r.client;
	region_unregister(c->read_region);
	cr_assert_eq(region_register(&set, c->read_arena.base, c->read_arena.bytes, MEM_DEVICE, &c->read_region), 0);
	fault_plan(&f, 2, "corrupt:n=1");
	cr_assert_eq(fault_read(&f, "large", RY_F_FAILOVER, 1000), RY_ERR_CHECKSUM, "%s", fault_cause(&f));
	cr_assert_eq(f.last.rail_idx, 2);
	cr_assert_eq(fault_read(&f, "large", RY_F_FAILOVER, 1000), RY_OK, "%s", fault_cause(&f));
	fault_stop(&f);
}
