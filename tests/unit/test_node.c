/* SPDX-License-Identifier: BSD-3-Clause */
/* A whole node without threads: what node_create makes, what it undoes, and an attach that walks through api, work and
 * control in turn. */
#include "daemon/node.h"

#include <criterion/criterion.h>
#include <rte_eal.h>

#include <sys/socket.h>

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct config config;
static char message[512];
static struct node *node;

static void start(void)
{
	char *argv[] = {"test", "--no-huge", "--no-pci", "--no-shconf", "--no-telemetry", "-m", "128", "-l", "0",
		"--log-level=error", NULL};

	cr_assert_geq(rte_eal_init(10, argv), 0);
	config_defaults(&config);
	strcpy(config.node_name, "node0");
	snprintf(config.socket_path, sizeof(config.socket_path), "/tmp/ry-node-%d.sock", (int)getpid());
	config.is_reader = config.is_store = true;
	config.store_bytes = 4u << 20;
	config.max_objects = 64;
	config.read_arena_bytes = config.put_arena_bytes = 1u << 20;
	config.n_rails = 2;
	for (uint16_t i = 0; i < 2; i++) {
		config_rail_defaults(&config.rails[i], i);
		snprintf(config.rails[i].name, sizeof(config.rails[i].name), "rail%u", i);
		strcpy(config.rails[i].transport, "mock");
	}
	config.n_stores = 1;
	strcpy(config.stores[0].name, "me");
	config.stores[0].is_self = true;
}

TestSuite(node, .init = start);

static int create(bool want_virtual_time)
{
	struct node_conf conf = {.config = &config, .want_virtual_time = want_virtual_time, .is_shared_cpu = true};

	node = NULL;
	return node_create(&conf, message, sizeof(message), &node);
}

static int n_open_files(void)
{
	int n = 0;

	for (int fd = 0; fd < 256; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

/* Every loop of the node once. */
static bool turn(uint64_t now_ns)
{
	bool did = control_poll(node->control, now_ns);

	did |= conn_poll(node->conn, now_ns);
	for (uint16_t i = 0; i < node->n_rails; i++)
		did |= rail_poll(node->rails[i], now_ns);
	did |= work_poll(&node->work);
	return did;
}

Test(node, is_complete)
{
	cr_assert_eq(create(true), 0, "%s", message);
	cr_expect_eq(node->n_rails, 2);
	cr_expect_not_null(node->store);
	cr_expect_not_null(node->control);
	cr_expect_not_null(node->conn);
	cr_expect_neq(node->node_id, 0);
	cr_expect_neq(node->incarnation, 0);
	cr_expect_eq(node->spin_ns, 0, "shared CPUs do not spin");
	cr_expect_eq(node->snapshot.serve_max_bytes, config.store_max_inflight_bytes / 2);
	cr_expect_geq(node->slab.bytes, config.store_bytes);
	cr_expect(region_covers(node->slab_region, node->slab.base, config.store_bytes));
	cr_expect_eq(node->api_rails[1].counters, rail_counters(node->rails[1]));
	node_destroy(node);
}

Test(node, incarnations_differ_and_ids_do_not)
{
	uint64_t incarnation, id;

	cr_assert_eq(create(true), 0, "%s", message);
	incarnation = node->incarnation;
	id = node->node_id;
	node_destroy(node);
	cr_assert_eq(create(true), 0, "%s", message);
	cr_expect_neq(node->incarnation, incarnation);
	cr_expect_eq(node->node_id, id);
	node_destroy(node);
}

Test(node, two_in_one_process)
{
	struct config other = config;
	struct node_conf conf = {.config = &other, .want_virtual_time = true};
	struct node *second = NULL;

	strcpy(other.node_name, "node1");
	other.is_store = false;
	cr_assert_eq(create(true), 0, "%s", message);
	cr_assert_eq(node_create(&conf, message, sizeof(message), &second), 0, "%s", message);
	cr_expect_null(second->store);
	cr_expect_neq(second->node_id, node->node_id);
	node_destroy(second);
	node_destroy(node);
}

Test(node, idle_settings)
{
	config.idle = IDLE_SPIN;
	cr_assert_eq(create(true), 0, "%s", message);
	cr_expect_eq(node->spin_ns, UINT64_MAX);
	cr_expect_eq(node->snapshot.spin_ns, UINT64_MAX);
	node_destroy(node);
	config.idle = IDLE_ADAPTIVE;
	config.idle_spin_ns = 7000;
	cr_assert_eq(create(true), 0, "%s", message);
	cr_expect_eq(node->spin_ns, 7000);
	node_destroy(node);
}

Test(node, failure_names_the_rail_and_undoes_the_rest)
{
	int n_files = n_open_files();

	strcpy(config.rails[1].transport, "pigeon");
	cr_expect_lt(create(true), 0);
	cr_expect_not_null(strstr(message, "rail1"), "%s", message);
	cr_expect_not_null(strstr(message, "pigeon"), "%s", message);
	cr_expect_null(node);
	cr_expect_eq(n_open_files(), n_files);
}

Test(node, store_that_does_not_fit)
{
	config.store_bytes = 1ull << 60;
	cr_expect_lt(create(true), 0);
	cr_expect_not_null(strstr(message, "store.memory"), "%s", message);
}

Test(node, port_in_use_is_told)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t n = sizeof(a);
	int fd = socket(AF_INET, SOCK_STREAM, 0), n_files;

	cr_assert(!bind(fd, (struct sockaddr *)&a, n) && !listen(fd, 1) && !getsockname(fd, (struct sockaddr *)&a, &n));
	strcpy(config.rails[0].transport, "tcp");
	strcpy(config.rails[0].address, "127.0.0.1");
	config.rails[0].port = ntohs(a.sin_port);
	n_files = n_open_files();
	cr_expect_lt(create(false), 0);
	cr_expect_not_null(strstr(message, "127.0.0.1"), "%s", message);
	cr_expect_eq(n_open_files(), n_files);
	close(fd);
}

Test(node, client_attaches_and_leaves)
{
	struct client_conf client = {
		.id = 1, .n_entries = 8, .read_arena_bytes = 1u << 20, .put_arena_bytes = 1u << 20};
	struct work_job job = {.op = WORK_CREATE_CLIENT};
	struct api_call call = {.m.kind = MSG_API, .op = API_ATTACH};
	uint64_t now_ns = 1000000000;

	cr_assert_eq(create(true), 0, "%s", message);
	client.regions = &node->regions;
	client.sleep_set_fd = node->control_set_fd;
	job.conf = client;
	cr_assert(spsc_push(node->api_to_work, &job));
	turn(now_ns);
	cr_assert_eq(spsc_pop(node->work_to_api), &job);
	cr_assert_eq(job.status, 0, "%s", job.message);
	call.client = job.client;
	for (int op = API_ATTACH; op <= API_DETACH; op++) {
		struct api_call *back = NULL;

		call.op = (uint8_t)op;
		cr_assert(spsc_push(node->api_to_control, &call));
		for (int i = 0; i < 100000 && !back; i++, now_ns += 1000000) {
			turn(now_ns);
			back = spsc_pop(node->control_to_api);
		}
		cr_assert_eq(back, &call, "op %d was not answered within 100 s of virtual time", op);
		cr_expect_eq(call.status, RY_OK);
	}
	client_destroy(job.client);
	node_destroy(node);
}

Test(node, mock_rails_reach_their_own_store)
{
	struct conn_pair_info rows[8];
	uint64_t now_ns = 1000000000;
	uint32_t n = 0, n_up = 0;

	cr_assert_eq(create(true), 0, "%s", message);
	for (int i = 0; i < 10000 && n_up < 2; i++, now_ns += 100000) {
		turn(now_ns);
		n = conn_info(node->conn, rows, 8);
		n_up = 0;
		for (uint32_t j = 0; j < n && j < 8; j++)
			n_up += rows[j].state == CONN_UP;
	}
	cr_expect_geq(n_up, 2, "%u of %u pairs are up after a second of virtual time", n_up, n);
	node_destroy(node);
}
