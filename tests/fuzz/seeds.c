/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Writes the first inputs of the fuzz targets, made by the daemon's own encoders: `fuzz_seeds FOLDER` fills
 * FOLDER/<target>/ with seed-* files. Run again when the wire, the methods or the keys change.
 */
#include <stdalign.h>
#include <stdarg.h>
#include <sys/stat.h>

#include <railyard/methods.def>
#include <railyard/status.h>

#include "../support/hello.h"
#include "fuzz.h"
#include "wire/wire.h"

static void keep(const char *target, const char *name, const void *bytes, size_t n);
static void keep_meta(const char *name, uint32_t len);
static void keep_bootstrap(const char *name, uint8_t begin, unsigned n_steps, ...);
static void wire_messages(void);
static void wire_metadata(void);
static void bootstraps(void);
static void methods(void);
static void faults(void);
static void configs(void);
static void programs(void);

static const char *folder;
static alignas(8) uint8_t buf[WIRE_META_MAX_BYTES + 8];

int main(int argc, char **argv)
{
	if (argc != 2) {
		fprintf(stderr, "fuzz_seeds FOLDER\n");
		return 2;
	}
	folder = argv[1];
	wire_messages();
	wire_metadata();
	bootstraps();
	methods();
	faults();
	configs();
	programs();
	return 0;
}

static void keep(const char *target, const char *name, const void *bytes, size_t n)
{
	char path[512];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", folder, target);
	mkdir(path, 0755);
	snprintf(path, sizeof(path), "%s/%s/seed-%s", folder, target, name);
	f = fopen(path, "wb");
	if (!f || fwrite(bytes, 1, n, f) != n || fclose(f) != 0) {
		perror(path);
		exit(1);
	}
}

/* ---- wire: a byte that says what it is, then the bytes themselves ---- */

static void keep_message(const char *name, uint8_t what, const void *m, size_t n)
{
	uint8_t out[1 + WIRE_MSG_BYTES];

	out[0] = what;
	memcpy(out + 1, m, n);
	keep("wire", name, out, n + 1);
}

static void wire_messages(void)
{
	struct {
		struct wire_read m;
		struct wire_part parts[2];
	} read = {{{WIRE_READ, WIRE_F_START, sizeof(read), 0, 7}, 3, 2, 30000000, 0x101, 2, {0}},
		{{0, 65536, 0, 0}, {1, 100, 0, 65536}}};
	struct wire_done done = {{WIRE_DONE, 0, sizeof(done), 0, 7}, RY_OK, 1, 2, 65636, 0, 9};
	struct wire_busy busy = {{WIRE_BUSY, 0, sizeof(busy), 0, 7}, 200, 1};
	struct wire_msg cancel = {WIRE_CANCEL, 0, sizeof(cancel), 0, 7};
	struct wire_ping ping = {{WIRE_PING, 0, sizeof(ping), 0, 9}, 0x102, 65536, 0, 0, 0, 0};
	struct wire_msg pong = {WIRE_PONG, 0, sizeof(pong), 0, 9};
	struct wire_grant grant = {{WIRE_GRANT, 0, sizeof(grant), 0, 7}, 0x103, 5, 2, 65636};
	struct wire_pulled pulled = {{WIRE_PULLED, 0, sizeof(pulled), 0, 7}, 5, 0};
	struct wire_frame frame = {.len_bytes = 65536, .type = WIRE_FRAME_DATA, .key = 0x101, .offset = 4096};
	struct wire_frame head = {.len_bytes = sizeof(done), .type = WIRE_FRAME_MSG};

	keep_message("read", 0, &read, sizeof(read));
	read.m.h.type = WIRE_PULL;
	read.m.h.flags = 0;
	keep_message("pull", 0, &read, sizeof(read));
	keep_message("done", 0, &done, sizeof(done));
	keep_message("busy", 0, &busy, sizeof(busy));
	keep_message("cancel", 0, &cancel, sizeof(cancel));
	keep_message("ping", 0, &ping, sizeof(ping));
	keep_message("pong", 0, &pong, sizeof(pong));
	keep_message("grant", 0, &grant, sizeof(grant));
	keep_message("pulled", 0, &pulled, sizeof(pulled));
	keep_message("frame-data", 1, &frame, sizeof(frame));
	keep_message("frame-msg", 1, &head, sizeof(head));
	/* At a bound, and one behind it. */
	for (uint32_t i = 0; i < 2; i++) {
		frame.offset = RY_STRIPE_MAX_BYTES - frame.len_bytes + i;
		keep_message(i ? "frame-behind" : "frame-edge", 1, &frame, sizeof(frame));
		read.m.h.type = WIRE_READ;
		read.parts[1] = (struct wire_part){RY_STRIPES_MAX - 1, 100, RY_STRIPE_MAX_BYTES - 100 + i, 65536};
		keep_message(i ? "part-behind-its-stripe" : "part-edge", 0, &read, sizeof(read));
		read.parts[1] = (struct wire_part){1, 100, 0, RY_STRIPE_MAX_BYTES - 100 + i};
		keep_message(i ? "part-behind-the-window" : "window-edge", 0, &read, sizeof(read));
		read.parts[1] = (struct wire_part){1, 100, 0, 65536 - i};
		keep_message(i ? "parts-overlap" : "parts-touch", 0, &read, sizeof(read));
		read.parts[1] = (struct wire_part){RY_STRIPES_MAX - 1 + i, 100, 0, 65536};
		keep_message(i ? "no-such-stripe" : "last-stripe", 0, &read, sizeof(read));
		read.parts[1] = (struct wire_part){1, 1 - i, 0, 65536};
		keep_message(i ? "empty-part" : "part-of-a-byte", 0, &read, sizeof(read));
	}
}

static struct wire_hello greeting(uint16_t kind, uint64_t token)
{
	struct wire_hello h = hello_of(kind, "fuzz");

	h.token = token;
	return h;
}

static void keep_meta(const char *name, uint32_t len)
{
	memmove(buf + 1, buf, len);
	buf[0] = 3;
	keep("wire", name, buf, len + 1);
}

static void wire_metadata(void)
{
	static const uint64_t sums[4] = {1, 2, 3, 4};
	struct wire_lookup_reply reply = {.handle = 3,
		.generation = 2,
		.layout_version = 1,
		.size_bytes = 4 * 65536 - 9,
		.stripe_bytes = 65536,
		.stripe_count = 4,
		.n_checksums = 4,
		.has_checksums = 1};
	struct wire_put put = {.put_id = {1, 2},
		.size_bytes = 4 * 65536 - 9,
		.source_handle = 5,
		.source_generation = 1,
		.part_bytes = 4 * 65536 - 9,
		.stripe_bytes = 65536,
		.n_checksums = 4,
		.key_bytes = 3};
	struct wire_hello hello = greeting(WIRE_CONN_BOOTSTRAP, 0);
	struct wire_put_done *done = (void *)buf;
	struct wire_qps *qps = (void *)buf;
	struct wire_bye *bye = (void *)buf;
	uint8_t order[32] = {4, 0, 1, 9};

	keep_message("hello", 2, &hello, sizeof(hello));
	keep_meta("lookup", wire_enc_lookup(buf, 1, "key", 3, 0));
	keep_meta("lookup-reply", wire_enc_lookup_reply(buf, &reply, sums));
	keep_meta("put", wire_enc_put(buf, &put, "key", sums));
	keep_meta("delete", wire_enc_delete(buf, 1, 0, "key", 3));
	keep_meta("list", wire_enc_list(buf, 1, 0, 100, "k", 1));
	keep_meta("list-reply", wire_enc_fixed(buf, WIRE_META_LIST_REPLY, sizeof(struct wire_list_reply), 1, RY_OK));
	keep_meta("put-query", wire_enc_put_query(buf, 1, (const uint64_t[2]){1, 2}, "key", 3));
	keep_meta("error", wire_enc_fixed(buf, WIRE_META_ERROR, sizeof(struct wire_meta), 1, RY_ERR_NOT_FOUND));
	wire_enc_fixed(buf, WIRE_META_PUT_DONE, sizeof(*done), 1, RY_ERR_CHECKSUM);
	snprintf(done->cause, sizeof(done->cause), "stripe 3");
	keep_meta("put-done", sizeof(*done));
	wire_enc_fixed(buf, WIRE_META_BYE, sizeof(*bye), 0, RY_OK);
	bye->reason = WIRE_BYE_DRAIN;
	keep_meta("bye", sizeof(*bye));
	wire_enc_fixed(buf, WIRE_META_QPS, sizeof(*qps), 0, RY_OK);
	qps->mtu_bytes = 1024;
	qps->rd_atomic = qps->n_qps = 1;
	qps->qps[0].qp_num = 17;
	keep_meta("qps", sizeof(*qps));
	for (uint8_t i = 0; i < 9; i++) {
		char name[32];

		order[1] = i / 3;
		order[2] = i % 3;
		snprintf(name, sizeof(name), "encode-%u", i);
		keep("wire", name, order, sizeof(order));
	}
}

/* ---- bootstrap: the state to begin in, then steps {what, u16 bytes, bytes} ---- */

/* Each step: int what, int bytes, const void *. */
static void keep_bootstrap(const char *name, uint8_t begin, unsigned n_steps, ...)
{
	uint8_t out[4096];
	size_t at = 0;
	va_list args;

	out[at++] = begin;
	va_start(args, n_steps);
	while (n_steps--) {
		int what = va_arg(args, int);
		uint16_t n = (uint16_t)va_arg(args, int);
		const void *bytes = va_arg(args, const void *);

		out[at++] = (uint8_t)what;
		memcpy(out + at, &n, sizeof(n));
		at += sizeof(n);
		if (bytes) {
			memcpy(out + at, bytes, n);
			at += n;
		}
	}
	va_end(args);
	keep("bootstrap", name, out, at);
}

static void bootstraps(void)
{
	struct wire_hello hello = greeting(WIRE_CONN_BOOTSTRAP, 0), answer = greeting(WIRE_CONN_BOOTSTRAP, 99);
	struct wire_hello data = greeting(WIRE_CONN_DATA, 99), other = hello;
	alignas(8) uint8_t lookup[64], reply[sizeof(struct wire_lookup_reply)];
	struct wire_meta ready, alive;
	struct wire_bye bye;
	int n_lookup = (int)wire_enc_lookup(lookup, 1, "key", 3, 0);
	int half = n_lookup / 2, size = sizeof(hello);

	wire_enc_fixed(reply, WIRE_META_LOOKUP_REPLY, sizeof(reply), 1, RY_ERR_NOT_FOUND);
	wire_enc_fixed(&ready, WIRE_META_READY, sizeof(ready), 0, RY_OK);
	wire_enc_fixed(&alive, WIRE_META_KEEPALIVE, sizeof(alive), 8, RY_OK);
	wire_enc_fixed(&bye, WIRE_META_BYE, sizeof(bye), 0, RY_OK);
	bye.reason = WIRE_BYE_REBUILD;
	other.incarnation++;
	keep_bootstrap("hello", 0, 2, 0, size, &hello, 2, 3000, NULL);
	keep_bootstrap("hello-slow", 0, 3, 0, 100, &hello, 2, 1500, NULL, 0, 92, (const uint8_t *)&hello + 100);
	keep_bootstrap("http", 0, 1, 0, 16, "GET / HTTP/1.1\r\n");
	keep_bootstrap("join", 1, 4, 3, 0, NULL, 0x80 | 1 | 6, size, &data, 0, (int)sizeof(ready), &ready, 0,
		(int)sizeof(alive), &alive);
	keep_bootstrap("lookup", 2, 3, 0, half, lookup, 2, 100, NULL, 0, n_lookup - half, lookup + half);
	keep_bootstrap("answers", 2, 2, 0, (int)sizeof(reply), reply, 0, n_lookup, lookup);
	keep_bootstrap("alive-bye", 2, 3, 0, (int)sizeof(alive), &alive, 2, 6000, NULL, 0, (int)sizeof(bye), &bye);
	keep_bootstrap("deaf", 2, 3, 4, 0, NULL, 0, n_lookup, lookup, 2, 11000, NULL);
	keep_bootstrap("twice", 2, 3, 3, 0, NULL, 1, size, &other, 2, 5000, NULL);
	keep_bootstrap("dial", 3, 2, 0, size, &answer, 1 | 6, size, &data);
	keep_bootstrap("dialled", 4, 3, 7, size, &data, 0, (int)sizeof(ready), &ready, 0, n_lookup, lookup);
	answer.status = RY_ERR_VERSION;
	keep_bootstrap("refused", 3, 2, 0, size, &answer, 2, 3000, NULL);
}

/* ---- the others ---- */

#define METHOD_NAME(id, name, permission, help) #name,
#define PARAM_NAME(method, name, kind, need, least, most, help) {#method, #name, #kind},

static void methods(void)
{
	static const char *const names[] = {RY_METHODS(METHOD_NAME)};
	static const struct {
		const char *method, *name, *kind;
	} params[] = {RY_METHOD_PARAMS(PARAM_NAME)};
	char line[2048];

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		int n = snprintf(line, sizeof(line), "\x01{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"%s\",\"params\":{",
			names[i]);

		for (size_t k = 0; k < sizeof(params) / sizeof(params[0]); k++) {
			if (strcmp(params[k].method, names[i]))
				continue;
			n += snprintf(line + n, sizeof(line) - (size_t)n, "%s\"%s\":%s", line[n - 1] == '{' ? "" : ",",
				params[k].name,
				!strcmp(params[k].kind, "text")   ? "\"rail0\""
				: !strcmp(params[k].kind, "uint") ? "1"
								  : "true");
		}
		n += snprintf(line + n, sizeof(line) - (size_t)n, "}}\n");
		keep("rpc", names[i], line, (size_t)n);
	}
	keep("rpc", "no-hello", "\x00{\"id\":1,\"method\":\"help\"}\n", 27);
	keep("rpc", "wrong", "\x01[]\n{\n\n{\"id\":{},\"method\":1}\n{\"method\":\"reads\",\"params\":[]}\n", 60);
}

static void faults(void)
{
	static const char *const texts[] = {
		"stall:at=1MiB,for=2s; lose:n=3,repeat=2,of=cancels; seed=7",
		"corrupt:stripe=4,byte=17;slow:after=10ms,every=1s,factor=0.25,repeat=forever",
		"late:for=5ms,guard=off; error:class=retry,p=0.125",
		"disconnect; lose; corrupt; reorder:behind=3; short:by=100; duplicate; restart:after=1s",
	};
	char name[32];

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		snprintf(name, sizeof(name), "%zu", i);
		keep("faults", name, texts[i], strlen(texts[i]));
	}
	memset(buf, 1, 64);
	buf[0] = 0;
	keep("faults", "struct", buf, 64);
}

static void configs(void)
{
	static const char store[] = "node: store-1\nroles: [store]\nrails:\n"
				    "  - {name: rail0, transport: tcp, address: 10.0.0.1, port: 7471}\n"
				    "store:\n  memory: 8GiB\n  tier: cache\n";
	static const char reader[] = "node: r\nroles: [reader]\nrails:\n"
				     "  - name: rail0\n    transport: tcp\n    address: 10.0.0.2\n    rate: 20MB/s\n"
				     "stores:\n  - name: store-1\n    endpoints:\n"
				     "      - {address: 10.0.0.1, port: 7471, rail: rail0}\n"
				     "reader:\n  segment: 1MiB\ntimeouts:\n  fence: 100ms\nhealth:\n  cooldown: 30s\n";
	static const char mock[] = "node: m\nroles: [reader, store]\nfault_injection: true\nrails:\n"
				   "  - {name: a, transport: mock}\nstores:\n  - {name: m, self: true}\n";

	keep("config", "store", store, strlen(store));
	keep("config", "reader", reader, strlen(reader));
	keep("config", "mock", mock, strlen(mock));
	keep("config", "misspelt", "node: x\nrials: []\n", 18);
	keep("config", "not-yaml", "{[: \t\xff", 7);
}

/* ring: actions; peer: what becomes of each message; tcp: actions of the sending end. */
static void programs(void)
{
	static const uint8_t put[] = {7, 0, 0, 200, 'd', 'a', 't', 'a', 5, 0, 9, 0x70, 0x11, 1, 16, 0, 2, 0, 0, 0x20, 0,
		1, 3, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 'a', 2, 31};
	static const uint8_t reads[] = {1, 2, 0, 0, 1, 0, 0, 0, 255, 255, 255, 0, 0, 0, 0, 1, 1, 1, 0, 2, 0, 0, 0, 9, 9,
		0, 0, 0, 0, 1, 2, 9, 6, 1, 6, 2, 0, 3, 0, 0, 0, 0, 0, 0, 1, 0, 0, 2, 3};
	static const uint8_t wild[] = {3, 255, 255, 255, 255, 4, 0, 0, 0, 128, 0, 64, 0, 4, 1, 2, 3, 4, 2, 9};
	static const uint8_t mixed[] = {2, 0, 5, 6, 3, 17, 4, 0, 0, 7, 40, 3, 0, 56, 0, 0, 0, 0, 0, 9, 9, 9, 9, 5, 5, 0,
		0, 6, 24, 255, 4, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};

	/* Whole frames in pieces, one up to the window's end, one a byte further, a closed window, another QP's. */
	static const uint8_t frames[] = {1, 0, 0, 0, 200, 0, 50, 0, 2, 7, 20, 1, 0x41, 9, 0, 0, 0, 100, 1, 1, 0x60, 9,
		0, 0, 0, 100, 1, 4, 2, 6, 2, 0, 0, 50, 0, 9, 0, 1, 1, 0, 0, 50, 0, 9, 0, 2, 9, 0};
	static const uint8_t rebinds[] = {3, 0, 100, 0, 1, 0x10, 0, 0, 99, 0, 60, 0, 0, 3, 1, 0, 4, 6, 1, 1, 0, 255, 3,
		0, 2, 0, 24, 0, 1, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};

	keep("tcp", "frames", frames, sizeof(frames));
	keep("tcp", "rebinds", rebinds, sizeof(rebinds));
	keep("ring", "put", put, sizeof(put));
	keep("ring", "reads", reads, sizeof(reads));
	keep("ring", "wild", wild, sizeof(wild));
	keep("peer", "mixed", mixed, sizeof(mixed));
	memset(buf, 0, 64);
	keep("peer", "calm", buf, 64);
	memset(buf, 4, 64);
	keep("peer", "silent", buf, 64);
	memset(buf, 5, 64);
	keep("peer", "twice", buf, 64);
}
