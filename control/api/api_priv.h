/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Inside control/api: connections, requests, sessions. Everything belongs to the api thread, except an api_call or a
 * work_job while it is on its way.
 */
#ifndef RY_API_PRIV_H
#define RY_API_PRIV_H

#include <sys/queue.h>
#include <sys/types.h>

#include <jansson.h>

#include "api/api.h"
#include "daemon/control.h"
#include "daemon/log.h"
#include "daemon/work.h"
#include "health/journal.h"

#include <railyard/status.h>

#ifdef __cplusplus
extern "C" {
#endif

#define API_FDS_MAX 5u

/* JSON-RPC's own codes; a status of ours is API_CODE_STATUS - status. */
enum {
	API_CODE_PARSE = -32700,
	API_CODE_REQUEST = -32600,
	API_CODE_METHOD = -32601,
	API_CODE_PARAMS = -32602,
	API_CODE_STATUS = -32000,
};

struct request;
struct session;

struct api_conn {
	TAILQ_ENTRY(api_conn) link;
	struct api *api;
	int fd;          /* -1: closed, freed at the end of the turn */
	uint32_t events; /* in epoll */
	pid_t pid;
	uid_t uid;
	bool is_greeted;         /* said hello */
	bool is_ended;           /* the peer sends no more */
	bool want_close;         /* once `out` is written */
	bool is_busy;            /* in api_conn_work */
	bool is_notified;        /* the line at hand is a notification: it gets no answer */
	struct request *request; /* unanswered, NULL = none */
	struct session *session;
	char *in;
	uint32_t in_bytes;
	uint32_t in_scanned; /* of it, known to hold no newline */
	uint64_t turn;       /* in which n_lines were taken */
	uint32_t n_lines;
	bool has_lines; /* there may be more, for the next turn */
	char *out;
	size_t out_bytes;
	size_t out_pos;
	uint64_t out_since_ns; /* last time anything of `out` was taken */
	uint64_t heard_ns;     /* last time that it came, sent a whole line, or had an answer */
	int fds[API_FDS_MAX];  /* to go with the first byte of `out`; not owned */
	uint32_t n_fds;
};

TAILQ_HEAD(api_conn_list, api_conn);
STAILQ_HEAD(session_list, session);

/* From its line until its reply. It outlives its connection when control or work still has it. */
struct request {
	struct api *api;
	struct api_conn *conn; /* NULL: it left */
	const struct method *method;
	json_t *id;                          /* NULL: a notification, which gets no answer */
	json_t *params;                      /* checked against the table; NULL = none */
	void (*answered)(struct request *r); /* control's answer is in `call` */
	void *room;                          /* for it, from malloc; freed with the request */
	struct api_call call;
};

enum session_state {
	SESSION_FREE = 0,
	SESSION_CREATING = 1,  /* work has the job */
	SESSION_ATTACHING = 2, /* control has the call */
	SESSION_ATTACHED = 3,
	SESSION_DETACHING = 4,  /* control has the call */
	SESSION_DESTROYING = 5, /* work has the job */
	SESSION_QUEUED = 6,     /* work makes another client; nothing of this one has begun */
};

struct session {
	STAILQ_ENTRY(session) link; /* while QUEUED */
	struct api *api;
	enum session_state state;
	struct api_conn *conn;   /* NULL: it left */
	struct request *request; /* the attach that is not answered yet */
	struct client *client;
	uint64_t charged_bytes;
	enum ry_status fail_status; /* what the attach is answered with after the destruction */
	char fail_text[256];
	struct api_call call;
	struct api_call broken; /* control's from attach to detach */
	struct work_job job;
};

#define LOGS_MAX (PAIRS_MAX + RY_RAILS_MAX) /* breakers, then rails that are slow */

/* What the log says of one breaker, or of one slow rail. */
struct pair_log {
	uint64_t budget_ns;        /* its lines are paid up to here, see transitions.c */
	uint32_t n_held;           /* transitions that were not shown */
	struct journal_entry held; /* the last of them */
};

struct fault_plan;

struct api {
	struct api_deps deps;
	int epoll_fd;
	int listen_fd;
	int signal_fd;
	int spare_fd;               /* given up for a moment to turn connections away when descriptors run out */
	struct api_conn_list conns; /* those of one process in a row */
	uint32_t n_conns;
	uint32_t n_conns_max;
	uint32_t n_waiting; /* connections whose `out` is not empty */
	bool has_dead;
	bool has_lines; /* of a connection: another turn follows, whatever comes in */
	uint64_t turn;
	bool is_draining;
	uint32_t n_stop_signals;
	uint64_t start_ns;
	uint64_t now_ns;
	struct session *sessions;   /* config->max_clients of them */
	struct session_list queued; /* attaches that wait for the one that work is making, in their order */
	struct session *creating;   /* that one; NULL = none */
	uint32_t next_client_id;
	uint64_t registered_bytes;
	uint64_t registered_max_bytes; /* the budget in force; checked at attach */
	struct api_call shutdown_call;
	struct limits limits;       /* what control was told last */
	struct pair_log *pair_logs; /* LOGS_MAX */
	uint32_t n_held_pairs;      /* of them, those that hold something back */
	uint32_t n_dropped_told;    /* of the journal */
	uint64_t breach_paid_ns;    /* lines on breaches of peers are paid up to here */
	struct fault_plan *faults;  /* of each rail: the plan it was given last */
};

/* ---- dispatch.c: the method table ---- */
struct param {
	const char *method;
	const char *name;
	const char *kind;
	bool is_required;
	int64_t least;
	int64_t most;
	const char *help;
};

struct method {
	uint32_t id;
	const char *name;
	bool is_admin;
	const char *help;
	void (*handler)(struct request *r);
};

extern const struct method api_methods[];
extern const uint32_t api_n_methods;
extern const struct param api_params[];
extern const uint32_t api_n_params;

/* One line -> one request -> its handler. Everything that is wrong with it is answered here. */
void api_dispatch(struct api_conn *c, const char *line, size_t bytes);

/* ---- reply.c: each ends the request and frees it ---- */
/* Takes over `result`. */
void request_reply(struct request *r, json_t *result);
void request_fail(struct request *r, enum ry_status status, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* An error that belongs to no handler: `id` may be NULL; `code` is JSON-RPC's. */
void api_refuse(struct api_conn *c, json_t *id, int code, enum ry_status status, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));
void request_free(struct request *r);
/* Sends r->call to control; `answered` runs when it is back. */
void request_ask_control(struct request *r, enum api_op op, void (*answered)(struct request *r));
/* The rail that the parameter names; -1 after the request was answered with an error that names the nearest one. */
int request_rail(struct request *r, const char *name);
/* A parameter's value; the default where it is absent. */
uint64_t request_uint(const struct request *r, const char *name, uint64_t def);
const char *request_text(const struct request *r, const char *name);

/* ---- on_metrics.c: name -> value of a table's counters ---- */
json_t *counters_describe(const struct stats_row *rows, uint32_t n, const void *counters);

/* ---- api_conn.c ---- */
void api_accept(struct api *api);
void api_conn_event(struct api_conn *c, uint32_t events);
/* Queues one line for the connection (takes over `text`, from malloc) and writes what fits. */
void api_conn_send(struct api_conn *c, char *text);
/* Takes complete lines while nothing is under way, as many as one turn is for. */
void api_conn_work(struct api_conn *c);
/* Closes now; the struct lives until the end of the turn. */
void api_conn_close(struct api_conn *c);
/* The same with a last line that says why, where nothing else is being written. */
void api_conn_end(struct api_conn *c, enum ry_status status, const char *why);

/* ---- server.c ---- */
void api_begin_shutdown(struct api *api);
void api_to_control(struct api *api, struct api_call *call);
void api_to_work(struct api *api, struct work_job *job);

/* ---- transitions.c ---- */
/* Prints what the journal says. Returns whether anything was there. */
bool transitions_print(struct api *api);
/* When something that was held back may be printed; UINT64_MAX = there is nothing. */
uint64_t transitions_due_ns(const struct api *api);

/* ---- on_limits.c ---- */
/* Puts budgets in force into a configuration. */
void limits_into(const struct limits *l, uint64_t registered_max_bytes, struct config *c);

/* ---- listen.c ---- */
int api_listen(const char *path, char *message, uint32_t message_bytes);

/* ---- session.c ---- */
/* A free session takes the request's connection from creation to destruction; fails the request where none is free. */
void session_attach(struct request *r, const struct client_conf *conf);
/* The connection of an attached or attaching client is gone. */
void session_leave(struct session *s);
void session_work_done(struct session *s);
void session_control_done(struct session *s);
/* The client broke its ring: it is told why, and its connection ends. */
void session_broken(struct session *s);
/* Clients that are being made, or wait for it, are made no more. */
void sessions_begin_shutdown(struct api *api);
/* At the end: no lcore and no work thread runs any more. */
void sessions_destroy(struct api *api);
/* Whether `p`, the context of an answer, is one of the sessions. */
bool session_owns(const struct api *api, const void *p);

#ifdef __cplusplus
}
#endif
#endif
