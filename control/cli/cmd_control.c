/* SPDX-License-Identifier: BSD-3-Clause */
/* Commands that look at a daemon through one call on the control socket: status, plan, version. */
#include <string.h>

#include "cli/cli.h"

static int size_of(struct cli *c, uint64_t *size_bytes, uint32_t *stripe_bytes);

int cli_show(struct cli *c, const char *method, json_t *params)
{
	json_t *result;
	int rc = cli_call(c, method, params, &result);

	return rc == CLI_OK ? output_print(c, result) : rc;
}

int cmd_status(struct cli *c)
{
	return cli_show(c, "status", NULL);
}

int cmd_plan(struct cli *c)
{
	uint32_t stripe_bytes = c->stripe_bytes != 0 ? (uint32_t)c->stripe_bytes : RY_STRIPE_DEFAULT_BYTES;
	uint64_t size_bytes = c->size_bytes;
	json_t *params;
	int rc;

	if ((c->args.n == 1) == (size_bytes != RY_SIZE_UNKNOWN))
		return cli_usage(c, "name an object, or say --size");
	if (c->args.n == 1) {
		rc = size_of(c, &size_bytes, &stripe_bytes);
		if (rc != CLI_OK)
			return rc;
	}
	params = json_pack("{s:I, s:I, s:I}", "size_bytes", (json_int_t)size_bytes, "stripe_bytes",
		(json_int_t)stripe_bytes, "offset", (json_int_t)c->offset);
	if (c->length != RY_TO_END)
		json_object_set_new(params, "length", json_integer((json_int_t)c->length));
	if (c->store != NULL)
		json_object_set_new(params, "store", json_string(c->store));
	return cli_show(c, "plan", params);
}

static int size_of(struct cli *c, uint64_t *size_bytes, uint32_t *stripe_bytes)
{
	struct ry_object object;
	int rc = cli_lookup(c, &object);

	if (rc != CLI_OK)
		return rc;
	*size_bytes = object.size_bytes;
	*stripe_bytes = object.stripe_bytes;
	return CLI_OK;
}

/* Ours always; the daemon's where one answers. */
int cmd_version(struct cli *c)
{
	json_t *result = json_pack("{s:s, s:s}", "railyard", RY_VERSION, "librailyard", ry_version());
	struct rpc_error err;
	struct rpc *rpc;
	json_t *daemon;

	if (rpc_open(cli_socket(c), 1000000000u, &rpc, &err) == 0) {
		if (rpc_call(rpc, "version", NULL, &daemon, &err) == 0)
			json_object_set_new(result, "daemon", daemon);
		rpc_close(rpc);
	}
	return output_print(c, result);
}
