/* SPDX-License-Identifier: BSD-3-Clause */
/* A verbs rail of a whole node whose device goes and comes back: what is made anew on it, by whom, and what is used
 * then. Beside it a mock rail, over which the node's clients go on reading. */
#include "ib_fixture.h"

#include "capture.h"
#include "daemon/conn_priv.h"
#include "daemon/log.h"
#include "rig.h"

#define RAIL 1
#define SEC 1000000000ull
#define MIB (1u << 20)
#define OWN_MRS 2 /* probe and sink of the rail */

static struct rig r;
static struct rail *lost;

static void start_with(int max_mw)
{
	fixture_init();
	attr.max_mw = max_mw;
	add_gid(add_device("rxe1"), 1, IBV_GID_TYPE_ROCE_V2, "10.0.0.1", 11);
	removals = 0;
	rig_init(&r, 2, 0);
	r.step_ns = 1000000;
	snprintf(r.config.rails[RAIL].transport, sizeof(r.config.rails[RAIL].transport), "verbs");
	snprintf(r.config.rails[RAIL].address, sizeof(r.config.rails[RAIL].address), "10.0.0.1");
	rig_start(&r);
	lost = r.node->rails[RAIL];
}

static void start(void)
{
	start_with(100000);
}

static void start_quarantine(void)
{
	start_with(0);
}

static void stop(void)
{
	rig_stop(&r);
	fixture_end();
}

TestSuite(ib_return, .init = start, .fini = stop);
TestSuite(ib_return_quarantine, .init = start_quarantine, .fini = stop);

/* Every loop of the node, the work thread's too. */
static void run(uint64_t ns)
{
	for (uint64_t end = r.now_ns + ns; r.now_ns < end;) {
		work_poll(&r.node->work);
		rig_step(&r);
	}
}

static void say_removed(void)
{
	const struct device_io d = {.rail_idx = RAIL};

	remove_soon();
	device_ready(r.node->conn, &d);
	cr_assert_eq(removals, 0, "nobody listens");
}

static void expect_closed(void)
{
	cr_assert(rail_is_detached(lost) && !seen.n_open && !seen.n_mrs && !seen.n_mws, "%d, %d, %d", seen.n_open,
		seen.n_mrs, seen.n_mws);
}

static void remove_device(void)
{
	say_removed();
	run(SEC / 10);
	expect_closed();
}

/* The store's slab, the probes, and two arenas of each client. */
static void expect_there(int n_clients)
{
	cr_assert_eq(seen.n_open, 1);
	cr_assert_eq(seen.n_mrs, OWN_MRS + 2 + 2 * n_clients, "%d", seen.n_mrs);
	cr_assert_eq(seen.n_mws, (int)WINDOWS_MAX);
}

static void expect_reached(const struct region *g, const void *base)
{
	const struct ibv_mr *mr = ib_of(lost)->mrs[region_idx(g)].mr;

	cr_assert_eq(region_reach(g), 3u);
	cr_assert(mr && mr->addr == base, "it is not registered on the device that came back");
}

static void expect_client(const struct client *c)
{
	expect_reached(c->read_region, c->read_arena.base);
	expect_reached(c->put_region, c->put_arena.base);
}

static void expect_read(struct client *c)
{
	struct ry_cqe cqe = rig_read(&r, c, "k", 0, UINT64_MAX, 0);

	cr_assert_eq(cqe.status, RY_OK, "%u", cqe.status);
	rig_release(&r, c, cqe.lease_id);
}

/* A QP of the rail as conn makes it, in its lcore's hands. */
static struct qp *adopt(void)
{
	struct qp_request req = {.peer_credits = 24};
	struct qp *qp = NULL;

	cr_assert_eq(verbs_ops.pair_connect(lost, &req, &qp), 0, "%s", rail_why_no_qp(lost));
	cr_assert_eq(rail_adopt(lost, qp), 0);
	run(SEC / 100);
	cr_assert_eq(qp_state(qp), QP_ADOPTED);
	return qp;
}

static void give_back(struct qp *qp)
{
	cr_assert_eq(rail_release(lost, qp), 0);
	run(SEC / 100);
	cr_assert(verbs_ops.qp_wants_fence(lost, qp));
	cr_assert_eq(verbs_ops.qp_fence(lost, qp), 0);
	run(SEC / 100);
	cr_assert_eq(qp_state(qp), QP_RELEASED);
	verbs_ops.pair_close(lost, qp);
}

Test(ib_return, comes_back_and_is_used)
{
	struct client *c = r.client;
	uint8_t *bytes = rig_object(&r, "k", MIB, 7);
	struct wr wr = {.op = WR_BIND, .window = &lost->windows[3]};

	expect_there(1);
	remove_device();
	cr_assert_eq(verbs_ops.mem_reg(lost, bytes, MIB, 9), -ENODEV);
	expect_read(c);
	n_devices = 0;
	seen.n_looks = 0;
	n_cqes = 1;
	run(16 * SEC);
	cr_assert(seen.n_looks >= 3 && seen.n_looks <= 5, "%d looks", seen.n_looks);
	expect_closed();
	cr_assert_eq(n_cqes, 1);
	n_devices = 1;
	run(9 * SEC);
	cr_assert_not(rail_is_detached(lost));
	expect_there(1);
	cr_assert_eq(n_cqes, 0, "its lcore does not poll the new queue");
	expect_reached(r.node->slab_region, r.node->slab.base);
	expect_reached(r.node->probe_region, r.node->probe_slab.base);
	expect_client(c);
	wr.qp = adopt();
	lost->windows[3] = (struct window){.region = region_idx(c->read_region),
		.addr = c->read_arena.base,
		.len_bytes = 4096,
		.key = lost->next_keys[3]};
	cr_assert_eq(lost->post(lost, &wr, 1), 1);
	cr_assert(seen.wr.opcode == IBV_WR_BIND_MW && seen.wr.bind_mw.bind_info.mr->addr == c->read_arena.base);
	cr_assert_eq(seen.wr.bind_mw.mw, ib_of(lost)->mws[3]);
	give_back(wr.qp);
	expect_read(c);
	remove_device();
	run(2 * SEC);
	expect_there(1);
	free(bytes);
}

Test(ib_return, comes_back_with_regions_of_clients_that_attached_meanwhile)
{
	struct client *gone, *meanwhile, *later;
	uint8_t *bytes = rig_object(&r, "k", MIB, 7);

	gone = rig_attach(&r, MIB);
	remove_device();
	n_devices = 0;
	meanwhile = rig_attach(&r, MIB);
	cr_assert_eq(region_reach(meanwhile->read_region), 1u);
	cr_assert(rig_detach(&r, gone));
	cr_assert(rig_detach(&r, rig_attach(&r, MIB)));
	run(3 * SEC);
	n_devices = 1;
	run(9 * SEC);
	expect_there(2);
	expect_client(r.client);
	expect_client(meanwhile);
	expect_read(meanwhile);
	later = rig_attach(&r, MIB);
	expect_there(3);
	expect_client(later);
	cr_assert(rig_detach(&r, meanwhile) && rig_detach(&r, later));
	expect_there(1);
	free(bytes);
}

/* The work thread's part of an attach: no other loop has a turn. */
static struct client *create(void)
{
	struct client_conf conf = {.id = 9,
		.n_entries = 16,
		.read_arena_bytes = MIB,
		.put_arena_bytes = MIB,
		.regions = &r.node->regions,
		.sleep_set_fd = r.node->control_set_fd};
	struct client *c = NULL;
	char message[256];

	cr_assert_eq(client_create(&conf, message, sizeof(message), &c), 0, "%s", message);
	return c;
}

/* At each step of its way back: the work thread has opened it; conn knows, and its lcore is told; its lcore has it. */
Test(ib_return, leaves_again_while_it_is_taken_up)
{
	uint8_t *bytes = rig_object(&r, "k", MIB, 7);
	struct client *c;

	for (int n_steps = 0; n_steps < 4; n_steps++) {
		remove_device();
		r.now_ns += 2 * SEC;
		conn_poll(r.node->conn, r.now_ns);
		cr_assert(work_poll(&r.node->work), "nobody looks for it");
		expect_there(1);
		if (n_steps > 0)
			conn_poll(r.node->conn, r.now_ns);
		if (n_steps > 1)
			rail_poll(lost, r.now_ns);
		if (n_steps > 2)
			conn_poll(r.node->conn, r.now_ns);
		cr_assert_eq(rail_is_detached(lost), n_steps < 2);
		c = create();
		expect_there(2);
		if (n_steps == 0) /* as epoll says it */
			conn_poll(r.node->conn, r.now_ns);
		say_removed();
		n_devices = 0;
		run(SEC / 2);
		expect_closed();
		expect_read(r.client);
		n_devices = 1;
		run(9 * SEC);
		cr_assert_not(rail_is_detached(lost));
		expect_there(2);
		expect_client(r.client);
		expect_client(c);
		client_destroy(c);
	}
	free(bytes);
}

Test(ib_return, without_room_for_all_regions_it_stays_closed)
{
	struct client *c;

	remove_device();
	c = rig_attach(&r, MIB);
	for (regs_left = OWN_MRS; regs_left < OWN_MRS + 2 + 2 * 2; regs_left++) {
		int n = regs_left;

		seen.n_looks = 0;
		for (int i = 0; i < 20 && !seen.n_looks; i++)
			run(SEC);
		cr_assert_eq(regs_left, 0, "it was not tried");
		expect_closed();
		cr_assert_eq(region_reach(c->read_region), 1u, "told to control too early");
		regs_left = n;
	}
	regs_left = -1;
	run(9 * SEC);
	expect_there(2);
	expect_client(c);
	cr_assert(rig_detach(&r, c));
}

static void come_back_too_small(void)
{
	struct ibv_device_attr good = attr;

	log_set_level(LOG_LEVEL_INFO);
	remove_device();
	attr.max_qp_wr = 255;
	run(20 * SEC);
	attr = good, attr.max_mw = 5;
	run(20 * SEC);
	attr = good, port_attr.max_msg_sz = MIB;
	run(20 * SEC);
	port_attr.max_msg_sz = 1u << 30, removals = -1;
	run(20 * SEC);
	removals = 0, devices[0].n_gids = 0;
	run(20 * SEC);
	expect_closed();
	devices[0].n_gids = 1;
	run(20 * SEC);
	log_set_level(LOG_LEVEL_ERROR);
}

static void expect_once(const char *text, const char *what)
{
	const char *at = strstr(text, what);

	cr_assert(at && !strstr(at + 1, what), "'%s' is not once in '%s'", what, text);
}

Test(ib_return, comes_back_with_too_small_limits_is_refused_once)
{
	static char text[16384];

	capture(come_back_too_small, text, sizeof(text));
	expect_once(text, "max_qp_wr is 255 and max_sge 4, needed are 256 and 1");
	expect_once(text, "rxe1 has 5 memory windows, a rail needs 768; it had them when the daemon started");
	expect_once(text, "moves at most 1048576 bytes at once (max_msg_sz), and segments have up to 1052671");
	expect_once(text, "the kernel's connection manager does not know it");
	expect_once(text, "no RDMA device has a RoCEv2 GID of 10.0.0.1");
	expect_once(text, "rail rail1: its RDMA device is back: rxe1, GID index 0");
	expect_there(1);
	expect_client(r.client);
}

/* In quarantine peers are told the keys of regions: those of the new device. */
Test(ib_return_quarantine, names_the_new_keys)
{
	uint16_t idx = region_idx(r.client->read_region);

	cr_assert(!rail_attr(lost)->has_windows && lost->region_keys[idx] == 99 && lost->probe_key == 99);
	remove_device();
	cr_assert_eq(lost->region_keys[idx], 0);
	rkey = 123;
	attr.max_mw = 100000; /* and it stays in quarantine, which its node has told */
	run(2 * SEC);
	cr_assert_not(rail_is_detached(lost));
	cr_assert(seen.n_mws == 0 && !lost->next_keys);
	cr_assert(lost->region_keys[idx] == 123 && lost->probe_key == 123, "%u", lost->region_keys[idx]);
}

/* As rail_sleep does: what was armed went with its device. */
Test(ib_return, its_lcore_sleeps_on_the_new_queue)
{
	cr_assert_eq(lost->arm(lost), ib_of(lost)->channel->fd);
	cr_assert_eq(seen.n_armed, 1);
	remove_device();
	cr_assert_eq(lost->arm(lost), -1);
	run(2 * SEC);
	cr_assert_eq(lost->arm(lost), ib_of(lost)->channel->fd);
	cr_assert_eq(seen.n_armed, 2, "nothing would wake it");
}

/* As some drivers end a device: it dies before its removal is told. */
Test(ib_return, an_error_before_the_removal_is_forgotten)
{
	const struct device_io d = {.rail_idx = RAIL};

	event_errno = EIO;
	device_ready(r.node->conn, &d);
	cr_assert(r.node->conn->netdevs[RAIL].is_gone && seen.n_open == 1);
	remove_device();
	event_errno = EAGAIN;
	run(2 * SEC);
	expect_there(1);
	cr_assert_not(r.node->conn->netdevs[RAIL].is_gone);
	event_errno = EIO;
	device_ready(r.node->conn, &d);
	cr_assert(r.node->conn->netdevs[RAIL].is_gone, "the new one's is not told");
}

/* ---- the daemon ends on the way: the fixture counts what is left ---- */

static void look(void)
{
	cr_assert(rig_detach(&r, r.client));
	remove_device();
	r.now_ns += 2 * SEC;
	conn_poll(r.node->conn, r.now_ns);
}

Test(ib_return, the_daemon_ends_while_it_is_looked_for)
{
	look();
}

Test(ib_return, the_daemon_ends_before_conn_hears_of_it)
{
	look();
	cr_assert(work_poll(&r.node->work));
	expect_there(0);
}

Test(ib_return, the_daemon_ends_before_its_lcore_takes_it_up)
{
	look();
	cr_assert(work_poll(&r.node->work));
	conn_poll(r.node->conn, r.now_ns);
	cr_assert(rail_is_detached(lost));
	expect_there(0);
}
