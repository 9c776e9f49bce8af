/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The api thread: the control socket, its connections and clients' sessions, and signals.
 *
 * Serves newline-delimited JSON-RPC 2.0 to the CLI, to client libraries and to whoever opens the socket. Never touches
 * a data byte and never waits for anyone: reading a gauge is a relaxed load, everything else goes to control or work by
 * ring and the answer comes back by ring. A connection has one request at a time; what follows it waits in the socket.
 */
#ifndef RY_API_H
#define RY_API_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/client.h"
#include "daemon/config.h"
#include "daemon/conn.h"
#include "stats/stats.h"
#include "sync/sync.h"

#ifdef __cplusplus
extern "C" {
#endif

struct api; /* opaque */
struct journal;
struct rail;
struct recorder;

#define API_PROTOCOL 1u
#define API_LINE_MAX_BYTES (64u << 10) /* of one request */
#define API_EXTRA_CONNS 64u            /* connections beyond one for each client that may attach */
/* Room that the rings api <-> control and api <-> work need: a call of every session and every connection. */
#define API_RING_ENTRIES 2048u

/* What is shown of one rail; the counters are read relaxed. */
struct api_rail {
	const struct rail_counters *counters;
	bool is_quarantine; /* no windows: memory of a failed read is kept until DONE or close */
	struct rail *rail;  /* takes fault plans; used for mock rails only */
};

struct api_deps {
	const struct config *config;
	uint64_t node_id;
	uint64_t incarnation;
	bool has_hugepages;
	bool want_signals;            /* SIGTERM, SIGINT and SIGHUP, which every thread must have blocked */
	uint64_t stall_ns;            /* a client that takes nothing for so long is dropped; 0 = 5 s */
	const struct api_rail *rails; /* config->n_rails of them */
	struct region_set *regions;   /* the work thread's */
	const struct control_counters *counters;
	const struct conn_counters *conn_counters;
	struct journal *journal; /* control writes, api reads */
	const struct recorder *recorder;
	const struct conn *conn;
	uint32_t (*pair_info)(const struct conn *conn, struct conn_pair_info *rows, uint32_t n); /* conn_info */
	struct rte_ring *to_control;                                                             /* api produces */
	struct rte_ring *from_control;
	struct rte_ring *to_work;
	struct rte_ring *from_work;
	struct waker *waker; /* api's own */
	struct waker *control_waker;
	int control_set_fd; /* the epoll set that control sleeps on: wake-ups of clients go there */
	struct waker *work_waker;
	void (*force)(void *arg); /* a second SIGTERM or SIGINT; NULL = ignored */
	void *force_arg;
};

/* Whether config->socket_path can be had, before anything costly is made for it: 0, or as api_create. Main thread. */
int api_check_socket(const struct config *config, char *message, uint32_t message_bytes);
/* Listens on config->socket_path; a socket file that nobody answers on is replaced. 0, or -errno with `message` filled
 * (-EADDRINUSE: another daemon lives there). */
int api_create(const struct api_deps *deps, char *message, uint32_t message_bytes, struct api **out);
/* Closes everything, removes the socket file, destroys the clients that are left. All lcores and the work thread have
 * stopped. NULL is allowed. */
void api_destroy(struct api *api);
/* One turn; waits for nothing. Returns whether anything was done. Threads: api's, or a test's. */
bool api_poll(struct api *api, uint64_t now_ns);
/* Thread body: until *stop is set and the waker kicked. */
void api_run(struct api *api, const uint32_t *stop);
/* Clients that are attached or on their way in or out. */
uint32_t api_n_sessions(const struct api *api);
/* Connections that are open. */
uint32_t api_n_conns(const struct api *api);

#ifdef __cplusplus
}
#endif
#endif
