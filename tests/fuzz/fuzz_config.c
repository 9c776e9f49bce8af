/* SPDX-License-Identifier: BSD-3-Clause */
/* Configurations: any file is taken or refused with a message that begins with its place; what is taken passes the
 * checks, and reads the same again. */
#include <arpa/inet.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/config.h"
#include "fuzz.h"

static void addresses_are_apart(const struct config *c);
static int load(struct config *c, struct config_error *err);

static char path[32];
static int fd = -1;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	static struct config c, again;
	struct config_error err = {""};

	if (fd < 0) {
		fd = memfd_create("config", MFD_CLOEXEC);
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	}
	if (ftruncate(fd, 0) < 0 || pwrite(fd, data, bytes, 0) != (ssize_t)bytes)
		return 0;
	memset(&c, 0x5a, sizeof(c));
	memset(&again, 0x5a, sizeof(again));
	if (load(&c, &err) < 0) {
		FUZZ_CHECK(!memcmp(&c, &again, sizeof(c)), "written although refused");
		return 0;
	}
	FUZZ_CHECK(config_check(&c, &err) == 0, "taken, and not valid: %s", err.text);
	FUZZ_CHECK(
		c.n_rails >= 1 && c.n_rails <= RY_RAILS_MAX && c.n_stores <= CONFIG_STORES_MAX, "%u rails", c.n_rails);
	FUZZ_CHECK(c.node_name[0] && memchr(c.node_name, 0, sizeof(c.node_name)), "no name");
	addresses_are_apart(&c);
	FUZZ_CHECK(load(&again, &err) == 0, "refused the second time: %s", err.text);
	FUZZ_CHECK(!strcmp(c.node_name, again.node_name) && c.n_rails == again.n_rails &&
			   c.read_arena_bytes == again.read_arena_bytes && c.fence_timeout_ns == again.fence_timeout_ns,
		"another configuration the second time");
	return 0;
}

/* No rail is on every address of the host, and no two on one address of the network. */
static void addresses_are_apart(const struct config *c)
{
	for (unsigned i = 0; i < c->n_rails; i++) {
		const char *a = c->rails[i].address;
		struct in6_addr six;
		bool is_loopback =
			!strncmp(a, "127.", 4) || (inet_pton(AF_INET6, a, &six) == 1 && IN6_IS_ADDR_LOOPBACK(&six));

		FUZZ_CHECK(strcmp(a, "0.0.0.0") && strcmp(a, "::"), "rail %u is on every address", i);
		for (unsigned j = 0; j < i && *a && !is_loopback; j++)
			FUZZ_CHECK(strcmp(a, c->rails[j].address), "rails %u and %u are both on %s", i, j, a);
	}
}

static int load(struct config *c, struct config_error *err)
{
	int rc = config_load(path, c, err);

	if (rc == 0)
		return 0;
	FUZZ_CHECK(memchr(err->text, 0, sizeof(err->text)), "a message without end");
	FUZZ_CHECK(!strncmp(err->text, path, strlen(path)) && strlen(err->text) > strlen(path) + 3,
		"a message without its place: '%s'", err->text);
	return rc;
}
