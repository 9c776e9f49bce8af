/* SPDX-License-Identifier: BSD-3-Clause */
/* Devices of verbs rails, over a libibverbs that is not there: the choice, the limits, memory, and asynchronous events,
 * also those that Soft-RoCE never sends. */
#include "ib_fixture.h"

#define V1 IBV_GID_TYPE_ROCE_V1
#define V2 IBV_GID_TYPE_ROCE_V2
#define expect_why(text) cr_assert(strstr(rail.why, text), "'%s' is not in '%s'", text, rail.why)

static void setup(void)
{
	fixture_init();
}

/* Two NICs as they come: RoCEv1 and v2 of each address, link-local ones first; b has two ports. */
static void two_devices(void)
{
	struct fake_device *a = add_device("mlx5_0"), *b = add_device("mlx5_1");

	add_gid(a, 1, V1, "fe80::1", 11);
	add_gid(a, 1, V2, "fe80::1", 11);
	add_gid(a, 1, V1, "10.0.0.1", 11);
	add_gid(a, 1, V2, "10.0.0.1", 11);
	add_gid(b, 1, V1, "10.0.0.2", 12);
	add_gid(b, 1, V2, "10.0.0.2", 12);
	add_gid(b, 1, V2, "fd00::2", 12);
	add_gid(b, 2, V2, "10.0.0.3", 12);
}

static void expect_choice(const char *device, int gid_index)
{
	cr_assert_str_eq(ib_of(&rail)->ctx->device->name, device);
	cr_assert_eq(ib_of(&rail)->gid_index, gid_index);
}

TestSuite(ib_device, .init = setup, .fini = fixture_end);

/* ---- which device, port and GID ---- */

Test(ib_device, by_ipv4_address_the_rocev2_entry)
{
	two_devices();
	cr_assert_eq(open_at("10.0.0.2"), 0, "%s", rail.why);
	expect_choice("mlx5_1", 1);
	cr_assert(rail.attr.has_windows && rail.attr.has_addresses && rail.next_keys && !rail.region_keys);
}

Test(ib_device, by_ipv6_address)
{
	two_devices();
	cr_assert_eq(open_at("fd00::2"), 0, "%s", rail.why);
	expect_choice("mlx5_1", 2);
}

Test(ib_device, on_the_port_that_was_asked_for)
{
	two_devices();
	cr_assert_eq(open_at("10.0.0.3"), -ENODEV);
	rail.conf.verbs.port = 2;
	cr_assert_eq(open_at("10.0.0.3"), 0, "%s", rail.why);
	expect_choice("mlx5_1", 3);
}

Test(ib_device, by_netdev_where_two_have_the_address)
{
	add_gid(add_device("rxe0"), 1, V2, "10.0.0.1", 11);
	add_gid(add_device("rxe1"), 1, V2, "10.0.0.1", 12);
	snprintf(rail.conf.netdev, sizeof(rail.conf.netdev), "eth2");
	cr_assert_eq(open_at("10.0.0.1"), 0, "%s", rail.why);
	expect_choice("rxe1", 0);
}

Test(ib_device, a_netdev_that_is_not_there_is_named)
{
	two_devices();
	snprintf(rail.conf.netdev, sizeof(rail.conf.netdev), "eth9");
	cr_assert_eq(open_at("10.0.0.1"), -ENODEV);
	expect_why("there is no network device eth9");
}

Test(ib_device, by_name_and_index)
{
	two_devices();
	snprintf(rail.conf.verbs.device, sizeof(rail.conf.verbs.device), "mlx5_1");
	rail.conf.verbs.gid_index = 2;
	cr_assert_eq(open_at("10.9.9.9"), 0, "%s", rail.why);
	expect_choice("mlx5_1", 2);
}

Test(ib_device, an_index_of_rocev1_is_never_chosen)
{
	two_devices();
	snprintf(rail.conf.verbs.device, sizeof(rail.conf.verbs.device), "mlx5_1");
	rail.conf.verbs.gid_index = 0;
	cr_assert_eq(open_at("10.0.0.2"), -ENODEV);
}

Test(ib_device, a_link_local_one_is_never_chosen)
{
	two_devices();
	cr_assert_eq(open_at("fe80::1"), -ENODEV, "by address");
	snprintf(rail.conf.verbs.device, sizeof(rail.conf.verbs.device), "mlx5_0");
	rail.conf.verbs.gid_index = 1;
	cr_assert_eq(open_at("10.0.0.1"), -ENODEV, "by index");
}

Test(ib_device, the_message_lists_what_there_is)
{
	two_devices();
	cr_assert_eq(open_at("10.0.0.7"), -ENODEV);
	expect_why("no RDMA device has a RoCEv2 GID of 10.0.0.7");
	expect_why("mlx5_0 [1] fe80::1 [3] ::ffff:10.0.0.1;");
	expect_why("mlx5_1 [1] ::ffff:10.0.0.2 [2] fd00::2;");
}

Test(ib_device, no_device_and_no_such_device_are_told_apart)
{
	cr_assert_eq(open_at("10.0.0.1"), -ENODEV);
	expect_why("there is no RDMA device at all");
	two_devices();
	snprintf(rail.conf.verbs.device, sizeof(rail.conf.verbs.device), "mlx4_0");
	cr_assert_eq(open_at("10.0.0.1"), -ENODEV);
	expect_why("no device of that name");
}

Test(ib_device, a_device_that_may_not_be_opened)
{
	two_devices();
	devices[0].open_errno = devices[1].open_errno = EACCES;
	cr_assert_eq(open_at("10.0.0.1"), -EACCES);
	expect_why("mlx5_0 cannot be opened: Permission denied");
}

/* ---- limits ---- */

static void expect_refused(const char *a, const char *b)
{
	cr_assert_eq(open_at("10.0.0.1"), -ENOTSUP);
	expect_why("device mlx5_0");
	expect_why(a);
	expect_why(b);
	cr_assert_eq(seen.n_open, 0);
}

Test(ib_device, limits_that_are_too_small_are_refused_with_both_numbers)
{
	struct ibv_device_attr good = attr;

	two_devices();
	attr.max_qp_wr = 255;
	expect_refused("max_qp_wr is 255", "needed are 256");
	attr = good, attr.max_sge = 0;
	expect_refused("max_sge 0", "and 1");
	attr = good, attr.max_cqe = 319;
	expect_refused("max_cqe is 319", "needed are 336");
	attr = good, attr.max_qp = 0;
	expect_refused("max_qp 0", "1 QP");
	attr = good, attr.max_qp_rd_atom = 0;
	expect_refused("max_qp_rd_atom is 0", "no RDMA READ");
	attr = good, attr.max_qp_init_rd_atom = 0;
	expect_refused("max_qp_init_rd_atom 0", "no RDMA READ");
	attr = good, rail.conf.verbs.rd_atomic = 17;
	expect_refused("16 RDMA READs", "asks for 17");
	rail.conf.verbs.rd_atomic = 0, port_attr.max_msg_sz = (1u << 20) - 1;
	expect_refused("max_msg_sz is 1048575", "1048576");
}

Test(ib_device, rd_atomic_and_mtu_as_asked_or_what_there_is)
{
	two_devices();
	attr.max_qp_rd_atom = 300, attr.max_qp_init_rd_atom = 290;
	port_attr.active_mtu = IBV_MTU_1024;
	rail.conf.verbs.mtu = 4096;
	cr_assert_eq(open_at("10.0.0.1"), 0);
	cr_assert(ib_of(&rail)->rd_atomic == 255 && ib_of(&rail)->mtu_bytes == 1024);
	verbs_ops.close(&rail);
	rail.conf.verbs.mtu = 512, rail.conf.verbs.rd_atomic = 3;
	cr_assert_eq(open_at("10.0.0.1"), 0);
	cr_assert(ib_of(&rail)->rd_atomic == 3 && ib_of(&rail)->mtu_bytes == 512);
}

Test(ib_device, more_qps_than_the_cq_holds_are_refused)
{
	struct qp_request req = {.peer_credits = 24};
	struct qp *qp[4] = {NULL};

	two_devices();
	attr.max_cqe = 3 * IB_QP_CQES + IB_QP_CQES - 1;
	cr_assert_eq(open_at("10.0.0.1"), 0);
	cr_assert_eq(seen.cqes, (int)(3 * IB_QP_CQES), "%d", seen.cqes);
	for (int i = 0; i < 3; i++)
		cr_assert_eq(verbs_ops.pair_connect(&rail, &req, &qp[i]), 0);
	cr_assert_eq(verbs_ops.pair_connect(&rail, &req, &qp[3]), -ENOSPC);
	cr_assert(strstr(rail.why_no_qp, "3 QPs are open") && strstr(rail.why_no_qp, "room for 3 (max_cqe 1343"), "%s",
		rail.why_no_qp);
	verbs_ops.pair_close(&rail, qp[1]);
	cr_assert_eq(verbs_ops.pair_connect(&rail, &req, &qp[1]), 0, "its room is there again");
	cr_assert_str_empty(rail.why_no_qp);
	for (int i = 0; i < 3; i++)
		verbs_ops.pair_close(&rail, qp[i]);
}

Test(ib_device, a_region_above_max_mr_size_is_refused_with_both_numbers)
{
	static char memory[8192];

	two_devices();
	attr.max_mr_size = 131072;
	cr_assert_eq(open_at("10.0.0.1"), 0);
	cr_assert_eq(verbs_ops.mem_reg(&rail, memory, 131073, 5), -E2BIG);
	expect_why("at most 131072 bytes");
	expect_why("has 131073");
	cr_assert_eq(verbs_ops.mem_reg(&rail, memory, sizeof(memory), 5), 0);
	cr_assert_eq(seen.mr_access, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND, "its own rkey opens nothing");
	cr_assert_eq(ib_of(&rail)->region_keys[5], 0);
	verbs_ops.mem_dereg(&rail, 5);
}

/* ---- quarantine ---- */

static void expect_quarantine(const char *why)
{
	static char memory[8192];

	cr_assert_eq(open_at("10.0.0.1"), 0);
	expect_why(why);
	cr_assert(!rail.attr.has_windows && !rail.next_keys && seen.n_mws == 0);
	cr_assert_eq(rail.probe_key, 99);
	cr_assert_eq(verbs_ops.mem_reg(&rail, memory, sizeof(memory), 5), 0);
	cr_assert_eq(seen.mr_access, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, "written, not read");
	cr_assert_eq(rail.region_keys[5], 99);
	verbs_ops.mem_dereg(&rail, 5);
	cr_assert_eq(rail.region_keys[5], 0);
	verbs_ops.close(&rail);
}

Test(ib_device, quarantine_where_windows_are_missing_too_few_or_off)
{
	two_devices();
	attr.max_mw = 767;
	expect_quarantine("has 767 memory windows, a rail needs 768");
	attr.device_cap_flags = IBV_DEVICE_MEM_WINDOW_TYPE_2A;
	expect_quarantine("mlx5_0 has no memory windows of type 2B");
	rail.conf.verbs.want_windows = false;
	expect_quarantine("off in the configuration");
}

/* ---- messages ---- */

static void send_message(void)
{
	struct qp_request req = {.peer_credits = 24};
	char message[48] = "a message";
	struct wr wr = {.op = WR_SEND, .addr = message, .len_bytes = sizeof(message), .region = REGION_NONE};

	two_devices();
	cr_assert_eq(open_at("10.0.0.1"), 0);
	cr_assert_eq(verbs_ops.pair_connect(&rail, &req, &wr.qp), 0);
	cr_assert_eq(verbs_ops.post(&rail, &wr, 1), 1);
	cr_assert(seen.wr.opcode == IBV_WR_SEND && seen.sge.length == sizeof(message));
	if (!(seen.wr.send_flags & IBV_SEND_INLINE))
		cr_assert_str_eq((char *)(uintptr_t)seen.sge.addr, "a message");
	verbs_ops.pair_close(&rail, wr.qp);
}

Test(ib_device, messages_go_inline)
{
	send_message();
	cr_assert(seen.wr.send_flags & IBV_SEND_INLINE);
}

Test(ib_device, without_inline_messages_go_out_of_registered_memory)
{
	const uint8_t *from;

	devices[0].is_inline_bad = true;
	send_message();
	from = (const uint8_t *)(uintptr_t)seen.sge.addr;
	cr_assert_not(seen.wr.send_flags & IBV_SEND_INLINE);
	cr_assert_eq(seen.sge.lkey, LKEY);
	cr_assert(from >= (uint8_t *)seen.mr.addr && from + 48 <= (uint8_t *)seen.mr.addr + seen.mr.length);
}

/* ---- events ---- */

static void say(enum ibv_event_type type, int port, struct ib_qp *q)
{
	struct ibv_async_event e = {.event_type = type};

	if (q)
		e.element.qp = q->ibqp;
	else
		e.element.port_num = port;
	events[n_events++] = e;
}

static uint8_t next_kind(void)
{
	struct rail_event e = {0};

	return verbs_ops.event_next(&rail, &e) ? e.kind : RAIL_EVENT_NONE;
}

Test(ib_device, events_of_our_port_count_and_all_are_acknowledged)
{
	two_devices();
	cr_assert_eq(open_at("10.0.0.1"), 0);
	say(IBV_EVENT_PORT_ERR, 2, NULL);
	say(IBV_EVENT_PORT_ERR, 1, NULL);
	say(IBV_EVENT_CLIENT_REREGISTER, 1, NULL);
	say(IBV_EVENT_PORT_ACTIVE, 2, NULL);
	say(IBV_EVENT_PORT_ACTIVE, 1, NULL);
	cr_assert_eq(next_kind(), RAIL_EVENT_PORT_DOWN);
	cr_assert_eq(next_kind(), RAIL_EVENT_PORT_UP);
	cr_assert_eq(next_kind(), RAIL_EVENT_NONE, "drained until empty");
	cr_assert_eq(seen.n_acked, 5, "%d", seen.n_acked);
}

Test(ib_device, errors_of_cq_device_and_qp)
{
	struct qp_request req = {.peer_credits = 24};
	struct rail_event e = {0};
	struct qp *qp;

	two_devices();
	cr_assert_eq(open_at("10.0.0.1"), 0);
	cr_assert_eq(verbs_ops.pair_connect(&rail, &req, &qp), 0);
	say(IBV_EVENT_CQ_ERR, 0, NULL);
	say(IBV_EVENT_DEVICE_FATAL, 0, NULL);
	say(IBV_EVENT_QP_FATAL, 0, ib_qp_of(qp));
	say(IBV_EVENT_QP_ACCESS_ERR, 0, ib_qp_of(qp));
	cr_assert_eq(next_kind(), RAIL_EVENT_CQ_ERROR);
	cr_assert_eq(next_kind(), RAIL_EVENT_DEVICE_FATAL);
	for (int i = 0; i < 2; i++) {
		cr_assert(verbs_ops.event_next(&rail, &e));
		cr_assert(e.kind == RAIL_EVENT_QP_FATAL && e.qp == qp);
		cr_assert(strstr(e.text, "mlx5_0: "), "%s", e.text);
	}
	cr_assert_eq(next_kind(), RAIL_EVENT_NONE);
	cr_assert_eq(seen.n_acked, 4);
	verbs_ops.pair_close(&rail, qp);
}

/* As after DEVICE_FATAL: the descriptor is readable for ever, and an error is all that comes from it. */
Test(ib_device, events_that_cannot_be_read_are_told_once)
{
	struct rail_event e = {0};

	two_devices();
	cr_assert_eq(open_at("10.0.0.1"), 0);
	event_errno = EIO;
	cr_assert(verbs_ops.event_next(&rail, &e));
	cr_assert(e.kind == RAIL_EVENT_DEVICE_FATAL && strstr(e.text, "Input/output error"), "%s", e.text);
	cr_assert_eq(next_kind(), RAIL_EVENT_NONE);
}

Test(ib_device, a_gid_change_counts_when_ours_moved_or_went)
{
	struct qp_request req = {.peer_credits = 24};
	struct qp *qp;

	two_devices();
	cr_assert_eq(open_at("10.0.0.1"), 0);
	say(IBV_EVENT_GID_CHANGE, 1, NULL);
	cr_assert_eq(next_kind(), RAIL_EVENT_NONE, "another entry");
	devices[0].gids[2] = devices[0].gids[3];
	devices[0].gids[2].gid_index = 2;
	say(IBV_EVENT_GID_CHANGE, 2, NULL);
	cr_assert_eq(next_kind(), RAIL_EVENT_NONE, "another port");
	say(IBV_EVENT_GID_CHANGE, 1, NULL);
	cr_assert_eq(next_kind(), RAIL_EVENT_GID_CHANGE);
	cr_assert_eq(ib_of(&rail)->gid_index, 2);
	devices[0].n_gids = 2;
	say(IBV_EVENT_GID_CHANGE, 1, NULL);
	cr_assert_eq(next_kind(), RAIL_EVENT_GID_CHANGE);
	cr_assert_eq(verbs_ops.pair_connect(&rail, &req, &qp), -EADDRNOTAVAIL);
	cr_assert(strstr(rail.why_no_qp, "no GID of 10.0.0.1"), "%s", rail.why_no_qp);
	cr_assert_eq(seen.n_acked, 4);
}
