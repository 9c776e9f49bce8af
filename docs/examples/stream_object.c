/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reads one object into a file: stream_object KEY FILE.
 *
 * The socket is $RAILYARD_SOCKET or the default. Objects larger than the read arena arrive in verified batches, in
 * order; what FILE gets is a correct prefix even where the read fails later. Build: cc -std=c11 stream_object.c
 * $(pkg-config --cflags --libs railyard)
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <railyard/railyard.h>

static bool write_batch(void *arg, const void *data, uint64_t bytes, uint64_t offset)
{
	(void)offset; /* batches come in order */
	return fwrite(data, 1, bytes, arg) == bytes;
}

static enum ry_status read_to_file(struct ry_client *client, const char *key, FILE *f)
{
	struct ry_read_opts opts = {.length = RY_TO_END, .deadline_ns = 10000000000u};
	struct ry_read_result result;
	enum ry_status status;

	status = ry_stream_read(client, key, (uint16_t)strlen(key), &opts, 0, write_batch, f, &result);
	if (status != RY_OK) {
		fprintf(stderr, "%s: %s: %s\n", key, ry_status_name(status), ry_last_cause(client));
		return status;
	}
	printf("%" PRIu64 " bytes, generation %" PRIu64 ", %s\n", result.bytes, result.generation,
		result.is_verified ? "verified" : "not verified");
	for (unsigned i = 0; i < result.stats.n_rails; i++)
		printf("  %-10s %" PRIu64 " bytes\n", result.stats.rails[i].name, result.stats.rails[i].bytes);
	return RY_OK;
}

int main(int argc, char **argv)
{
	char cause[RY_CAUSE_MAX_BYTES] = "";
	struct ry_attach_opts opts = {.cause = cause, .cause_bytes = sizeof(cause)};
	struct ry_client *client;
	enum ry_status status;
	FILE *f;

	if (argc != 3) {
		fprintf(stderr, "usage: %s KEY FILE\n", argv[0]);
		return 2;
	}
	status = ry_attach(&opts, &client);
	if (status != RY_OK) {
		fprintf(stderr, "attach: %s: %s\n", ry_status_name(status), cause);
		return 1;
	}
	f = fopen(argv[2], "wb");
	status = f ? read_to_file(client, argv[1], f) : RY_ERR_INVALID;
	if (!f || fclose(f) != 0)
		perror(argv[2]);
	ry_detach(client);
	return status == RY_OK ? 0 : 1;
}
