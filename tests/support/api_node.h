/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the api thread is given by a node, for tests of it without one: a configuration, counters, rails that count
 * registrations, rings, wakers, and the work thread's body. One such node in a program; who includes this plays control
 * and creates the api.
 */
#ifndef RY_TEST_API_NODE_H
#define RY_TEST_API_NODE_H

#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "api/api.h"
#include "daemon/control.h"
#include "daemon/work.h"
#include "health/journal.h"
#include "read/recorder.h"

#ifdef __cplusplus
extern "C" {
#endif

static char dir[32];
static struct config config;
static struct rail_counters rail_counters_of[2];
static struct control_counters control_counters_all;
static struct conn_counters conn_counters_all;
static struct api_rail api_rails[2];
static struct region_set regions;
static struct waker api_waker, control_waker, work_waker;
static struct journal journal;
static struct recorder recorder;
static struct api_deps deps;
static struct work work;
static struct api *api;
static uint64_t now_ns;
static int n_registered;
static int n_ever_registered;

static void (*control_turn)(void); /* takes what api asked of control; the includer's */

static inline int fake_reg(void *rail, void *base, uint64_t bytes, enum mem_kind kind, uint16_t idx)
{
	n_registered++;
	n_ever_registered++;
	return 0;
}

static inline void fake_dereg(void *rail, uint16_t idx)
{
	n_registered--;
}

static inline uint32_t fake_pairs(const struct conn *conn, struct conn_pair_info *rows, uint32_t n)
{
	for (uint16_t i = 0; i < n && i < 2; i++) {
		rows[i] = (struct conn_pair_info){
			.rail_idx = i, .is_dialler = true, .state = i ? CONN_DIALLING : CONN_UP};
		snprintf(rows[i].peer, sizeof(rows[i].peer), "store0");
		if (i)
			snprintf(rows[i].last_error, sizeof(rows[i].last_error), "connection refused");
	}
	return 2;
}

/* Everyone in turn until nobody has anything to do. */
static inline void settle(void)
{
	bool did = true;

	while (did) {
		did = api_poll(api, now_ns);
		did |= work_poll(&work);
		control_turn();
		did |= !spsc_is_empty(deps.from_control);
	}
}

/* A reader and store with two TCP rails, four clients, and its socket in a directory of its own. */
static inline void api_node_init(uint64_t arena_bytes)
{
	now_ns = 1000000000;
	strcpy(dir, "/tmp/ry-api-XXXXXX");
	config_defaults(&config);
	strcpy(config.node_name, "node0");
	if (!mkdtemp(dir) || waker_init(&api_waker) || waker_init(&control_waker) || waker_init(&work_waker))
		abort();
	snprintf(config.socket_path, sizeof(config.socket_path), "%s/ctl.sock", dir);
	config.is_reader = config.is_store = true;
	config.read_arena_bytes = config.put_arena_bytes = arena_bytes;
	config.max_clients = 4;
	config.n_rails = 2;
	config.n_stores = 1;
	strcpy(config.stores[0].name, "store0");
	for (uint16_t i = 0; i < 2; i++) {
		config_rail_defaults(&config.rails[i], i);
		snprintf(config.rails[i].name, sizeof(config.rails[i].name), "rail%u", i);
		strcpy(config.rails[i].transport, "tcp");
		api_rails[i] = (struct api_rail){&rail_counters_of[i], true};
		regions.rails[i] = (struct region_rail){NULL, fake_reg, fake_dereg, false};
	}
	regions.n_rails = 2;
	deps = (struct api_deps){
		.config = &config,
		.rails = api_rails,
		.regions = &regions,
		.counters = &control_counters_all,
		.conn_counters = &conn_counters_all,
		.journal = &journal,
		.recorder = &recorder,
		.pair_info = fake_pairs,
		.to_control = spsc_create("a", API_RING_ENTRIES),
		.from_control = spsc_create("b", API_RING_ENTRIES),
		.to_work = spsc_create("c", API_RING_ENTRIES),
		.from_work = spsc_create("d", API_RING_ENTRIES),
		.waker = &api_waker,
		.control_waker = &control_waker,
		.control_set_fd = epoll_create1(EPOLL_CLOEXEC),
		.work_waker = &work_waker,
	};
	work = (struct work){deps.to_work, deps.from_work, &work_waker, &api_waker};
}

#ifdef __cplusplus
}
#endif
#endif
