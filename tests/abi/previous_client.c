/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A program of the time when the ABI was recorded: its own copies of the declarations, none of today's headers. It is
 * linked with today's library and run against today's daemon (smoke case abi); while the major versions stay, it must
 * go on working unchanged. So nothing in here is ever brought up to date.
 *
 *   previous_client SOCKET
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BYTES (9u * 1024 * 1024 + 7)

struct client;
struct put;

struct attach_opts {
	const char *socket_path;
	uint64_t read_arena_bytes;
	uint64_t put_arena_bytes;
	uint32_t ring_entries;
	uint32_t reserved;
	uint64_t timeout_ns;
	uint64_t spin_ns;
	char *cause;
	uint32_t cause_bytes;
	uint32_t reserved2;
};

struct client_info {
	uint64_t client_id;
	uint64_t read_arena_bytes;
	uint64_t put_arena_bytes;
	uint32_t max_in_flight;
	uint16_t abi_major;
	uint16_t abi_minor;
	char node[32];
	char daemon_version[32];
};

struct span {
	const uint8_t *data;
	uint64_t bytes;
};

struct lease {
	uint64_t bytes;
	uint32_t id;
	uint32_t n_spans;
	struct span spans[8];
};

struct object {
	uint64_t size_bytes;
	uint64_t generation;
	uint64_t etag;
	uint64_t ttl_ns;
	uint32_t stripe_bytes;
	uint32_t stripe_count;
	uint8_t has_checksums;
	uint8_t reserved[23];
};

struct rail_stats {
	char name[32];
	uint64_t bytes;
	uint64_t busy_ns;
	uint32_t segments;
	uint32_t reserved;
};

struct read_stats {
	uint64_t ns[9];
	uint64_t wire_bytes;
	uint64_t hashed_bytes;
	uint32_t n_segments;
	uint8_t class_ref;
	uint8_t class_own;
	uint8_t n_rails;
	uint8_t reserved0;
	uint16_t class_share_permille;
	uint8_t reserved[6];
	struct rail_stats rails[32];
};

struct request {
	uint64_t ticket;
	int status;
	uint32_t flags;
	uint8_t op;
	uint8_t reserved;
	uint16_t key_bytes;
	uint32_t stripe_bytes;
	const void *key;
	void *user;
	uint64_t deadline_ns;
	uint64_t offset;
	uint64_t length;
	uint64_t generation;
	const void *data;
	uint64_t put_id[2];
	uint64_t size_bytes;
	uint64_t ttl_ns;
};

struct completion {
	uint64_t ticket;
	void *user;
	int status;
	uint8_t op;
	bool is_verified;
	uint16_t rail_idx;
	uint64_t bytes;
	uint64_t generation;
	uint64_t cursor;
	uint64_t done_ns;
	struct object object;
	struct lease lease;
	struct read_stats stats;
	char cause[160];
};

struct read_opts {
	uint64_t offset;
	uint64_t length;
	uint64_t generation;
	uint64_t deadline_ns;
	uint32_t flags;
	uint32_t reserved;
};

struct read_result {
	uint64_t bytes;
	uint64_t generation;
	bool is_verified;
	uint8_t reserved[7];
	struct read_stats stats;
};

struct put_opts {
	uint64_t put_id[2];
	uint64_t ttl_ns;
	uint64_t deadline_ns;
	uint64_t size_bytes;
	uint32_t stripe_bytes;
	uint32_t flags;
};

struct put_result {
	uint64_t put_id[2];
	uint64_t generation;
	uint64_t bytes;
};

int ry_attach(const struct attach_opts *opts, struct client **client);
void ry_detach(struct client *client);
void ry_client_get_info(const struct client *client, struct client_info *info);
const char *ry_last_cause(const struct client *client);
void ry_lease_release(struct client *client, struct lease *lease);
void ry_lease_copy(const struct lease *lease, void *buffer);
uint32_t ry_submit(struct client *client, struct request *requests, uint32_t n);
uint32_t ry_reap(struct client *client, struct completion *completions, uint32_t n);
int ry_wait(struct client *client, uint64_t timeout_ns);
int ry_lookup(struct client *client, const void *key, uint16_t key_bytes, uint64_t deadline_ns, struct object *object);
int ry_read(struct client *client, const void *key, uint16_t key_bytes, const struct read_opts *opts,
	struct lease *lease, struct read_result *result);
int ry_read_copy(struct client *client, const void *key, uint16_t key_bytes, const struct read_opts *opts, void *buffer,
	uint64_t buffer_bytes, uint64_t *bytes, struct read_result *result);
int ry_stream_read(struct client *client, const void *key, uint16_t key_bytes, const struct read_opts *opts,
	uint64_t batch_bytes, bool (*fn)(void *arg, const void *data, uint64_t bytes, uint64_t offset), void *arg,
	struct read_result *result);
int ry_put(struct client *client, const void *key, uint16_t key_bytes, const void *data, uint64_t bytes,
	const struct put_opts *opts, struct put_result *result);
int ry_put_query(struct client *client, const void *key, uint16_t key_bytes, const uint64_t put_id[2],
	uint64_t deadline_ns, struct put_result *result);
int ry_put_id_make(uint64_t put_id[2]);
int ry_put_open(
	struct client *client, const void *key, uint16_t key_bytes, const struct put_opts *opts, struct put **put);
int ry_put_write(struct put *put, const void *data, uint64_t bytes);
int ry_put_close(struct put *put, bool want_commit, struct put_result *result);
int ry_delete(struct client *client, const void *key, uint16_t key_bytes, uint64_t generation, uint64_t deadline_ns,
	uint64_t *deleted);
int ry_list(struct client *client, const void *prefix, uint16_t prefix_bytes, uint64_t deadline_ns,
	bool (*fn)(void *arg, const void *key, uint16_t key_bytes, uint64_t size_bytes, uint64_t generation),
	void *arg);
const char *ry_status_name(int status);

static struct client *client;
static uint8_t *content, *back;
static int n_checks, n_failed;

static void check(const char *what, bool is_good)
{
	n_checks++;
	n_failed += !is_good;
	printf("%s %d - %s\n", is_good ? "ok" : "not ok", n_checks, what);
	if (!is_good && client)
		printf("# %s\n", ry_last_cause(client));
}

static bool hand_over(void *arg, const void *data, uint64_t bytes, uint64_t offset)
{
	uint64_t *seen = arg;

	memcpy(back + offset, data, bytes);
	*seen += bytes;
	return true;
}

static bool count_key(void *arg, const void *key, uint16_t key_bytes, uint64_t size_bytes, uint64_t generation)
{
	*(uint32_t *)arg += key_bytes == 3 && !memcmp(key, "old", 3) && size_bytes == BYTES && generation != 0;
	return true;
}

static void puts_and_looks_up(void)
{
	struct put_opts opts = {.ttl_ns = 600000000000ull};
	struct put_result result = {.bytes = 0}, asked = {.bytes = 0};
	struct object object;

	check("a put id", ry_put_id_make(opts.put_id) == 0);
	check("a put", ry_put(client, "old", 3, content, BYTES, &opts, &result) == 0 && result.bytes == BYTES);
	check("its outcome by put id",
		ry_put_query(client, "old", 3, opts.put_id, 0, &asked) == 0 && asked.generation == result.generation);
	check("a look-up", ry_lookup(client, "old", 3, 0, &object) == 0 && object.size_bytes == BYTES &&
				   object.has_checksums && object.generation == result.generation && object.ttl_ns > 0);
	check("NOT_FOUND keeps its number", ry_lookup(client, "none", 4, 0, &object) == 9);
}

static void reads(void)
{
	struct read_opts range = {.offset = 5, .length = BYTES - 9};
	struct read_result result;
	struct lease lease;
	uint64_t bytes = 0, seen = 0;
	uint32_t n_listed = 0;

	check("a read into a lease",
		ry_read(client, "old", 3, NULL, &lease, &result) == 0 && lease.bytes == BYTES && result.is_verified);
	ry_lease_copy(&lease, back);
	check("byte for byte", !memcmp(back, content, BYTES));
	check("its statistics", result.bytes == BYTES && result.stats.wire_bytes >= BYTES &&
					result.stats.n_rails >= 1 && result.stats.n_rails <= 2 &&
					!strncmp(result.stats.rails[0].name, "rail", 4));
	ry_lease_release(client, &lease);
	check("a range with one copy", ry_read_copy(client, "old", 3, &range, back, BYTES, &bytes, NULL) == 0 &&
					       bytes == BYTES - 9 && !memcmp(back, content + 5, BYTES - 9));
	memset(back, 0, BYTES);
	check("a stream", ry_stream_read(client, "old", 3, NULL, 0, hand_over, &seen, &result) == 0 && seen == BYTES &&
				  !memcmp(back, content, BYTES));
	check("a list", ry_list(client, "ol", 2, 0, count_key, &n_listed) == 0 && n_listed == 1);
}

static void submits(void)
{
	struct request r[4] = {{0}};
	struct completion done;
	uint32_t n_done = 0, n_good = 0;

	for (int i = 0; i < 4; i++) {
		r[i].op = 2;
		r[i].key = "old";
		r[i].key_bytes = 3;
		r[i].offset = (uint64_t)i * 65536 + 1;
		r[i].length = 65536;
		r[i].user = &r[i];
	}
	check("four reads are submitted", ry_submit(client, r, 4) == 4 && r[3].ticket != 0);
	while (n_done < 4 && ry_wait(client, 20000000000ull) == 0) {
		while (ry_reap(client, &done, 1) == 1) {
			const struct request *of = done.user;

			n_done++;
			n_good += done.status == 0 && done.op == 2 && done.is_verified && done.ticket == of->ticket &&
				  done.lease.bytes == 65536 && done.lease.n_spans == 1 &&
				  !memcmp(done.lease.spans[0].data, content + of->offset, 65536);
			ry_lease_release(client, &done.lease);
		}
	}
	check("and all of them complete", n_good == 4);
}

static void streams_in_and_deletes(void)
{
	struct put_opts opts = {.size_bytes = BYTES};
	struct put_result result;
	struct put *put;
	uint64_t deleted = 0;

	check("a put in pieces", ry_put_open(client, "new", 3, &opts, &put) == 0 &&
					 ry_put_write(put, content, 100) == 0 &&
					 ry_put_write(put, content + 100, BYTES - 100) == 0 &&
					 ry_put_close(put, true, &result) == 0 && result.generation != 0);
	check("a delete",
		ry_delete(client, "new", 3, result.generation, 0, &deleted) == 0 && deleted == result.generation);
}

int main(int argc, char **argv)
{
	char cause[160] = "";
	struct attach_opts opts = {.socket_path = argc > 1 ? argv[1] : NULL,
		.read_arena_bytes = 32u << 20,
		.put_arena_bytes = 16u << 20,
		.cause = cause,
		.cause_bytes = sizeof(cause)};
	struct client_info info;
	uint32_t x = 1;

	content = malloc(BYTES);
	back = malloc(BYTES);
	if (!content || !back)
		return 2;
	for (uint32_t i = 0; i < BYTES; i++)
		content[i] = (uint8_t)((x = x * 1664525u + 1013904223u) >> 24);
	check("it attaches", ry_attach(&opts, &client) == 0);
	if (!client) {
		printf("# %s\n1..%d\n", cause, n_checks);
		return 1;
	}
	ry_client_get_info(client, &info);
	check("what was agreed", info.abi_major == 1 && info.read_arena_bytes == 32u << 20 && !strcmp(info.node, "rd"));
	check("statuses keep their names", !strcmp(ry_status_name(8), "STALE_GENERATION"));
	puts_and_looks_up();
	reads();
	submits();
	streams_in_and_deletes();
	ry_detach(client);
	printf("1..%d\n", n_checks);
	return n_failed != 0;
}
