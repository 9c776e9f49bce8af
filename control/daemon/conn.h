/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The conn thread: bootstrap sockets, HELLO, QP creation and hand-over, BYE, keepalive, reconnect, tear-down.
 *
 * Owns every socket that is not a QP's, every pair record, and every QP before adoption and after release. Never
 * touches a data byte. All sockets are non-blocking; conn_poll never waits, conn_run sleeps in epoll. Diallers connect
 * the configured stores at start and again after a loss, with a jittered delay of at most config.reconnect_ns; who
 * refuses them, or speaks another protocol, is asked less and less often, each 30 s in the end. For mock
 * rails a store with is_self is connected in memory: its metadata is turned round inside conn, through the same
 * buffers.
 *
 * Order of bring-up: dial -> HELLO both ways (bootstrap) -> data sockets, each with HELLO(DATA, token) -> QPs made and
 * adopted -> READY both ways -> MSG_PAIR_UP on each side. Order of tear-down: MSG_PAIR_DOWN -> MSG_PAIR_QUIESCED ->
 * rail_release -> QP_RELEASED -> pair_close.
 */
#ifndef RY_CONN_H
#define RY_CONN_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/config.h"
#include "daemon/msg.h"
#include "rail/rail_ctl.h"
#include "sync/sync.h"

#ifdef __cplusplus
extern "C" {
#endif

struct conn; /* opaque */

struct conn_deps {
	const struct config *config;
	uint64_t node_id;
	uint64_t incarnation;
	struct rail **rails;         /* config->n_rails of them */
	struct rte_ring *to_control; /* conn produces */
	struct rte_ring *from_control;
	struct rte_ring *to_work; /* and work consumes: struct device_job (work.h) */
	struct rte_ring *from_work;
	struct waker *work_waker;
	struct waker *control_waker;
	const struct dial_wants *wants; /* control's; NULL = dial everything */
	struct conn_counters *counters; /* conn writes */
	struct waker *waker;            /* conn's own: rings and QP state words kick it */
	bool want_virtual_time;         /* tests: no sockets, no clock of its own */
};

/* Whether this host has the rails' network devices and gives them their addresses and ports, before anything is made: 0
 * or -errno with `message` filled. Main thread. */
int conn_check_addresses(const struct config *config, char *message, uint32_t message_bytes);
/* Opens the listeners (one per rail with a port; port 0 in tests means "none"). 0 or -errno with `message` filled. */
int conn_create(const struct conn_deps *deps, char *message, uint32_t message_bytes, struct conn **out);
/* Closes everything; all lcores have stopped. */
void conn_destroy(struct conn *c);
/* One turn; returns whether anything was done. Threads: conn's, or a test's. */
bool conn_poll(struct conn *c, uint64_t now_ns);
/* Thread body: polls, sleeps in epoll, until *stop is set (and the waker kicked). On stop sends BYE(SHUTDOWN) on every
 * pair. */
void conn_run(struct conn *c, const uint32_t *stop);
/* Earliest timer; UINT64_MAX = none. */
uint64_t conn_next_timer(const struct conn *c);

/* Relaxed reads for `railyard rails` and status; any thread. state is enum conn_pair_state. */
enum conn_pair_state {
	CONN_DOWN = 0,
	CONN_DIALLING = 1,
	CONN_UP = 2,
	CONN_CLOSING = 3,
	CONN_STANDBY = 4, /* not dialled: its rail uses another endpoint of the store */
};
struct conn_pair_info {
	uint16_t store_idx;
	uint16_t endpoint_idx;
	uint16_t rail_idx;
	bool is_dialler;
	uint8_t state;
	uint32_t n_connects; /* times it came up */
	uint32_t n_failures;
	char peer[RY_NAME_MAX_BYTES];
	char last_error[RY_CAUSE_MAX_BYTES];
};
/* Fills at most n rows, returns how many exist. */
uint32_t conn_info(const struct conn *c, struct conn_pair_info *rows, uint32_t n);

#ifdef __cplusplus
}
#endif
#endif
