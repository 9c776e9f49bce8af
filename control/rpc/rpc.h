/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The asking side of the control socket: newline-delimited JSON-RPC 2.0 over a Unix stream.
 *
 * Used by the CLI, by railyard-perf and by the launcher, each from one thread; every call blocks until the answer or
 * the time-out given at open. Opening says "hello" and so agrees on a version. It passes no descriptors and reads no
 * data: attaching to the rings is librailyard's business.
 */
#ifndef RY_RPC_H
#define RY_RPC_H

#include <stdint.h>

#include <jansson.h>

#ifdef __cplusplus
extern "C" {
#endif

struct rpc; /* opaque */

struct rpc_error {
	int code;        /* JSON-RPC's, 0 where no answer came */
	char status[32]; /* name of the status that the daemon gave, empty where no answer came */
	char text[512];
};

/* Connects and says hello. 0, or -errno with err filled: the daemon does not run there, or speaks another version
 * (-EPROTONOSUPPORT). */
int rpc_open(const char *socket_path, uint64_t timeout_ns, struct rpc **out, struct rpc_error *err);
/* NULL is allowed. */
void rpc_close(struct rpc *r);
/*
 * One request, one answer. `params` is taken over and may be NULL. 0 with *result the caller's; -EREMOTEIO where the
 * daemon refused (its code and message in err); other -errno where no answer came, after which only rpc_close is
 * allowed.
 */
int rpc_call(struct rpc *r, const char *method, json_t *params, json_t **result, struct rpc_error *err);
/* What the daemon answered to hello; valid until rpc_close. */
const json_t *rpc_hello(const struct rpc *r);

#ifdef __cplusplus
}
#endif
#endif
