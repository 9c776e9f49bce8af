/* SPDX-License-Identifier: BSD-3-Clause */
#include "cli/cli.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ATTACH_NS 60000000000ull /* a large arena is prefaulted and registered meanwhile */

#define RPC_TIMEOUT_NS 10000000000ull

static int exit_code(enum ry_status status);
static bool is_unreachable(enum ry_status status);
static void show(const struct cli *c, const char *status, const char *cause);
static int fail_rpc(struct cli *c, int rc, const struct rpc_error *err);
static const char *rpc_status(int rc);

const char *cli_socket(const struct cli *c)
{
	const char *named = c->socket_path != NULL ? c->socket_path : getenv("RAILYARD_SOCKET");

	return named != NULL && named[0] != '\0' ? named : RY_SOCKET_DEFAULT;
}

int cli_open_rpc(struct cli *c, struct rpc **out)
{
	struct rpc_error err;
	int rc = rpc_open(cli_socket(c), c->deadline_ns != 0 ? c->deadline_ns : RPC_TIMEOUT_NS, out, &err);

	if (rc == 0)
		return CLI_OK;
	show(c, rpc_status(rc), err.text);
	return CLI_NO_DAEMON;
}

int cli_call(struct cli *c, const char *method, json_t *params, json_t **result)
{
	struct rpc_error err;
	struct rpc *rpc;
	int rc = cli_open_rpc(c, &rpc);

	if (rc != CLI_OK) {
		json_decref(params);
		return rc;
	}
	rc = rpc_call(rpc, method, params, result, &err);
	rpc_close(rpc);
	return rc == 0 ? CLI_OK : fail_rpc(c, rc, &err);
}

static int fail_rpc(struct cli *c, int rc, const struct rpc_error *err)
{
	if (rc == -EREMOTEIO) {
		show(c, err->status, err->text);
		return CLI_FAILED;
	}
	show(c, rpc_status(rc), err->text);
	return CLI_NO_DAEMON;
}

/* Of a daemon that could not be asked. A socket that is full for the whole time-out says EAGAIN. */
static const char *rpc_status(int rc)
{
	switch (rc) {
	case -EPROTONOSUPPORT:
		return "VERSION";
	case -EACCES:
		return "DENIED";
	case -ETIMEDOUT:
	case -EAGAIN:
		return "TIMEOUT";
	default:
		return "DETACHED";
	}
}

int cli_attach(struct cli *c, uint64_t arena_bytes, struct ry_client **out)
{
	char cause[RY_CAUSE_MAX_BYTES] = "";
	struct ry_attach_opts opts = {.socket_path = cli_socket(c),
		.read_arena_bytes = arena_bytes,
		.put_arena_bytes = arena_bytes,
		.timeout_ns = ATTACH_NS,
		.cause = cause,
		.cause_bytes = sizeof(cause)};
	enum ry_status status;

	if (c->deadline_ns != 0 && c->deadline_ns < ATTACH_NS)
		opts.timeout_ns = c->deadline_ns;
	status = ry_attach(&opts, out);
	if (status == RY_OK)
		return CLI_OK;
	cli_fail(c, status, "cannot attach to %s: %s", opts.socket_path,
		cause[0] != '\0' ? cli_attach_cause(cause, opts.socket_path) : ry_status_text(status));
	return is_unreachable(status) ? CLI_NO_DAEMON : CLI_FAILED;
}

const char *cli_attach_cause(const char *cause, const char *socket_path)
{
	static const char call[] = "attach: ";
	size_t n = strlen(socket_path);

	if (strncmp(cause, call, sizeof(call) - 1) != 0)
		return cause;
	cause += sizeof(call) - 1;
	return strncmp(cause, socket_path, n) == 0 && strncmp(cause + n, ": ", 2) == 0 ? cause + n + 2 : cause;
}

static bool is_unreachable(enum ry_status status)
{
	return status == RY_ERR_DETACHED || status == RY_ERR_DENIED || status == RY_ERR_TIMEOUT ||
	       status == RY_ERR_VERSION;
}

static int exit_code(enum ry_status status)
{
	switch (status) {
	case RY_OK:
		return CLI_OK;
	case RY_ERR_NOT_FOUND:
		return CLI_NOT_FOUND;
	case RY_ERR_DETACHED:
		return CLI_NO_DAEMON;
	default:
		return CLI_FAILED;
	}
}

static void show(const struct cli *c, const char *status, const char *cause)
{
	json_t *o;

	if (!c->want_json) {
		fprintf(stderr, "railyard: %s: %s: %s\n", c->command, status, cause);
		return;
	}
	o = json_pack("{s:{s:s, s:s+}}", "error", "status", status, "cause", cause, "");
	json_dumpf(o, stdout, JSON_INDENT(2));
	putchar('\n');
	json_decref(o);
}

int cli_fail(const struct cli *c, enum ry_status status, const char *format, ...)
{
	char cause[12288]; /* all problems of a configuration */
	va_list args;

	va_start(args, format);
	vsnprintf(cause, sizeof(cause), format, args);
	va_end(args);
	show(c, ry_status_name(status), cause);
	return exit_code(status);
}

int cli_usage(const struct cli *c, const char *format, ...)
{
	char cause[512];
	va_list args;

	va_start(args, format);
	vsnprintf(cause, sizeof(cause), format, args);
	va_end(args);
	if (c->want_json)
		show(c, "INVALID", cause);
	else if (c->command == NULL)
		fprintf(stderr, "railyard: %s; see railyard --help\n", cause);
	else
		fprintf(stderr, "railyard: %s: %s; see railyard %s --help\n", c->command, cause, c->command);
	return CLI_USAGE;
}

bool cli_key(const struct cli *c, const char **key, uint16_t *key_bytes)
{
	size_t bytes = strlen(c->args.values[0]);

	if (bytes == 0 || bytes > RY_KEY_MAX_BYTES) {
		cli_usage(c, "a key has 1 to %u bytes, this one has %zu", RY_KEY_MAX_BYTES, bytes);
		return false;
	}
	*key = c->args.values[0];
	*key_bytes = (uint16_t)bytes;
	return true;
}
