/* SPDX-License-Identifier: BSD-3-Clause */
/* Commands on objects that move no data: ls, stat, rm. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"

static bool add_entry(void *arg, const void *key, uint16_t key_bytes, uint64_t size_bytes, uint64_t generation);
static json_t *describe(const struct cli *c, const struct ry_object *o);

static bool add_entry(void *arg, const void *key, uint16_t key_bytes, uint64_t size_bytes, uint64_t generation)
{
	return json_array_append_new(arg, json_pack("{s:o, s:I, s:I}", "key", output_key(key, key_bytes), "size_bytes",
						  (json_int_t)size_bytes, "generation", (json_int_t)generation)) == 0;
}

int cmd_ls(struct cli *c)
{
	const char *prefix = c->args.n == 1 ? c->args.values[0] : "";
	struct ry_client *client;
	enum ry_status status;
	json_t *entries;
	int rc;

	if (strlen(prefix) > RY_KEY_MAX_BYTES)
		return cli_usage(c, "a prefix has at most %u bytes", RY_KEY_MAX_BYTES);
	rc = cli_attach(c, CLI_ARENA_SMALL_BYTES, &client);
	if (rc != CLI_OK)
		return rc;
	entries = json_array();
	status = ry_list(client, prefix, (uint16_t)strlen(prefix), c->deadline_ns, add_entry, entries);
	if (status == RY_OK) {
		rc = output_print(c, entries);
	} else {
		json_decref(entries);
		rc = cli_fail(c, status, "%s", ry_last_cause(client));
	}
	ry_detach(client);
	return rc;
}

int cmd_stat(struct cli *c)
{
	struct ry_object object;
	int rc = cli_lookup(c, &object);

	return rc == CLI_OK ? output_print(c, describe(c, &object)) : rc;
}

int cli_lookup(struct cli *c, struct ry_object *object)
{
	struct ry_client *client;
	enum ry_status status;
	uint16_t key_bytes;
	const char *key;
	int rc;

	if (!cli_key(c, &key, &key_bytes))
		return CLI_USAGE;
	rc = cli_attach(c, CLI_ARENA_SMALL_BYTES, &client);
	if (rc != CLI_OK)
		return rc;
	status = ry_lookup(client, key, key_bytes, c->deadline_ns, object);
	if (status != RY_OK)
		rc = cli_fail(c, status, "%s", ry_last_cause(client));
	ry_detach(client);
	return rc;
}

static json_t *describe(const struct cli *c, const struct ry_object *o)
{
	char etag[17];

	/* 64 bits do not fit a JSON number of every reader. */
	snprintf(etag, sizeof(etag), "%016" PRIx64, o->etag);
	return json_pack("{s:o, s:I, s:I, s:s, s:I, s:I, s:b, s:I}", "key",
		output_key(c->args.values[0], (uint16_t)strlen(c->args.values[0])), "size_bytes",
		(json_int_t)o->size_bytes, "generation", (json_int_t)o->generation, "etag", etag, "stripe_bytes",
		(json_int_t)o->stripe_bytes, "stripe_count", (json_int_t)o->stripe_count, "has_checksums",
		o->has_checksums != 0, "ttl_ns", (json_int_t)o->ttl_ns);
}

int cmd_rm(struct cli *c)
{
	struct ry_client *client;
	uint64_t deleted = 0;
	enum ry_status status;
	uint16_t key_bytes;
	const char *key;
	int rc;

	if (!cli_key(c, &key, &key_bytes))
		return CLI_USAGE;
	rc = cli_attach(c, CLI_ARENA_SMALL_BYTES, &client);
	if (rc != CLI_OK)
		return rc;
	status = ry_delete(client, key, key_bytes, c->generation, c->deadline_ns, &deleted);
	if (status != RY_OK)
		rc = cli_fail(c, status, "%s", ry_last_cause(client));
	else
		rc = output_print(c,
			json_pack("{s:o, s:I}", "key", output_key(key, key_bytes), "generation", (json_int_t)deleted));
	ry_detach(client);
	return rc;
}
