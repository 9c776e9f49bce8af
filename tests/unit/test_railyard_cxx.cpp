/* SPDX-License-Identifier: BSD-3-Clause */
/* <railyard/railyard.h> as C++17, against the shared library: what is not exported does not link. */
#include <railyard/railyard.h>

#include <cstdio>
#include <cstring>

static bool ignore_bytes(void *, const void *, uint64_t, uint64_t)
{
	return true;
}

static bool ignore_key(void *, const void *, uint16_t, uint64_t, uint64_t)
{
	return true;
}

/* Never called with a client; names every function once. */
static enum ry_status use_all(struct ry_client *c)
{
	ry_request request{};
	ry_completion completion{};
	ry_object object{};
	ry_lease lease{};
	struct ry_put *put = nullptr;
	uint64_t id[2] = {1, 1}, n = 0;
	void *space = nullptr;
	ry_client_info info{};

	ry_client_get_info(c, &info);
	ry_lease_copy(&lease, &n);
	ry_lease_release(c, &lease);
	(void)(ry_submit(c, &request, 1) + ry_reap(c, &completion, 1) + ry_event_fd(c) + ry_event_arm(c));
	(void)(ry_wait(c, 0) | ry_cancel(c, 1) | ry_lookup(c, "k", 1, 0, &object) |
		ry_read(c, "k", 1, nullptr, &lease, nullptr));
	(void)(ry_read_copy(c, "k", 1, nullptr, &n, 8, &n, nullptr) | ry_put(c, "k", 1, "", 0, nullptr, nullptr));
	(void)(ry_stream_read(c, "k", 1, nullptr, 0, ignore_bytes, nullptr, nullptr) |
		ry_put_query(c, "k", 1, id, 0, nullptr));
	(void)(ry_delete(c, "k", 1, 0, 0, nullptr) | ry_list(c, "", 0, 0, ignore_key, nullptr) | ry_put_id_make(id));
	(void)(ry_put_open(c, "k", 1, nullptr, &put) | ry_put_write(put, "", 0) | ry_put_space(put, &space, &n));
	(void)ry_put_wrote(put, 0);
	return ry_put_close(put, true, nullptr);
}

int main(int argc, char **)
{
	ry_attach_opts opts{};
	ry_client *c = nullptr;
	enum ry_status status;

	opts.socket_path = "/nonexistent";
	status = ry_attach(&opts, &c);
	if (argc > 100)
		status = use_all(c);
	ry_detach(c);
	std::printf("1..2\n%s 1 - attach from C++ fails as it should\n", status == RY_ERR_DETACHED ? "ok" : "not ok");
	std::printf("%s 2 - status names\n", std::strcmp(ry_status_name(status), "DETACHED") == 0 &&
							     *ry_last_cause(c) == 0 && std::strlen(ry_version()) > 0 &&
							     std::strlen(ry_status_text(status)) > 0
						     ? "ok"
						     : "not ok");
	return 0;
}
