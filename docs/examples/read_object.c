/* SPDX-License-Identifier: BSD-3-Clause */
/* Puts an object, reads it back over all rails, compares, and prints who brought it. cc read_object.c $(pkg-config
 * --cflags --libs railyard) */
#include <railyard/railyard.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static uint8_t data[8u << 20];

static int complain(const char *what, enum ry_status status, const char *cause)
{
	fprintf(stderr, "%s: %s: %s\n", what, ry_status_name(status), cause);
	return 1;
}

static int round_trip(struct ry_client *client, const char *key)
{
	uint16_t key_bytes = (uint16_t)strlen(key);
	struct ry_read_result result;
	struct ry_lease lease;
	uint64_t n_same = 0;
	enum ry_status status = ry_put(client, key, key_bytes, data, sizeof(data), NULL, NULL);

	if (status)
		return complain("put", status, ry_last_cause(client));
	status = ry_read(client, key, key_bytes, NULL, &lease, &result);
	if (status)
		return complain("read", status, ry_last_cause(client));
	for (uint32_t i = 0; i < lease.n_spans && n_same + lease.spans[i].bytes <= sizeof(data); i++) {
		if (memcmp(lease.spans[i].data, data + n_same, lease.spans[i].bytes) != 0)
			break;
		n_same += lease.spans[i].bytes;
	}
	ry_lease_release(client, &lease);
	printf("%s: %" PRIu64 " of %zu bytes are the same, generation %" PRIu64 ", %s\n", key, n_same, sizeof(data),
		result.generation, result.is_verified ? "verified" : "not verified");
	for (unsigned i = 0; i < result.stats.n_rails; i++)
		printf("  %s: %" PRIu64 " bytes\n", result.stats.rails[i].name, result.stats.rails[i].bytes);
	return n_same != sizeof(data);
}

int main(int argc, char **argv)
{
	char cause[RY_CAUSE_MAX_BYTES] = "";
	struct ry_attach_opts opts = {
		.socket_path = argc > 1 ? argv[1] : NULL, .cause = cause, .cause_bytes = sizeof(cause)};
	struct ry_client *client;
	enum ry_status status = ry_attach(&opts, &client);
	int rc;

	if (status)
		return complain("attach", status, cause);
	for (uint32_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)(i * 2654435761u >> 24);
	rc = round_trip(client, argc > 2 ? argv[2] : "example");
	ry_detach(client);
	return rc;
}
