/* SPDX-License-Identifier: BSD-3-Clause */
/* Connections to the control socket and sessions of clients: how they come, go, stall and crowd. */
#include "api_fixture.h"

TestSuite(api_clients, .init = start, .fini = stop);

Test(api_clients, attach_passes_five_descriptors)
{
	int fd = dial(), fds[16], n_fds = 0;
	const struct ry_ring_header *h;
	struct epoll_event woken;
	uint64_t one = 1;
	struct stat st;
	json_t *r;

	say(fd, ATTACH);
	r = json_object_get(hear_fds(fd, fds, &n_fds), "result");
	cr_assert_not_null(r);
	cr_assert_eq(n_fds, 5);
	cr_expect_eq(int_at(r, "abi_minor"), RY_RING_ABI_MINOR, "the smaller of both");
	cr_expect_eq(int_at(r, "read_arena_bytes"), 262144, "rounded up to a granule");
	cr_expect_eq(int_at(r, "put_arena_bytes"), 1 << 20, "0 = default");
	h = mmap(NULL, (size_t)int_at(r, "ring_bytes"), PROT_READ | PROT_WRITE, MAP_SHARED, fds[0], 0);
	cr_assert_neq((const void *)h, MAP_FAILED);
	cr_expect_eq(h->magic, RY_RING_MAGIC);
	cr_expect_eq(h->n_entries, 8, "rounded up to a power of two");
	cr_expect_eq((json_int_t)h->client_id, int_at(r, "client_id"));
	cr_expect(!fstat(fds[1], &st) && st.st_size == 262144);
	cr_expect(!fstat(fds[2], &st) && st.st_size == 1 << 20);
	cr_expect_eq(write(fds[3], &one, sizeof(one)), 8);
	cr_expect_eq(epoll_wait(deps.control_set_fd, &woken, 1, 0), 1, "the fourth wakes control");
	cr_expect_neq(read(control_waker.event_fd, &one, sizeof(one)), 8, "which has another of its own");
	cr_expect(recv(fds[4], &one, sizeof(one), 0) < 0 && errno == EAGAIN, "the fifth is for sleeping");
	cr_expect_eq(control.n_calls[API_ATTACH], 1);
	n_fds = 0;
	say(fd, "{\"id\":3,\"method\":\"version\"}\n");
	cr_expect_not_null(hear_fds(fd, fds, &n_fds));
	cr_expect_eq(n_fds, 0, "they come once");
}

Test(api_clients, more_than_configured_is_capped)
{
	int fd = dial();
	json_t *r = result_of(fd, "{\"id\":2,\"method\":\"attach\",\"params\":{\"abi_major\":1,\"abi_minor\":0,"
				  "\"read_arena_bytes\":99999999999,\"ring_entries\":65536}}\n");

	cr_expect_eq(int_at(r, "read_arena_bytes"), 1 << 20);
	cr_expect_eq(int_at(r, "ring_entries"), config.ring_entries);
}

Test(api_clients, attach_refusals)
{
	int fd = attach();

	expect_error(ask(fd, ATTACH), -32023, "INVALID", "attached already");
	fd = dial();
	expect_error(ask(fd, "{\"id\":2,\"method\":\"attach\",\"params\":{\"abi_major\":2,\"abi_minor\":0}}\n"), -32018,
		"VERSION", "major");
	config.is_reader = false;
	expect_error(ask(fd, ATTACH), -32023, "INVALID", "role reader");
	config.is_reader = true;
	control.status = RY_ERR_LIMIT;
	expect_error(ask(fd, ATTACH), -32015, "LIMIT", "as the test wants");
	settle();
	cr_expect_eq(api_n_sessions(api), 1);
	cr_expect_eq(n_registered, 2 * 2, "the refused client's memory is released");
	control.status = 0;
	cr_expect_geq(int_at(result_of(fd, ATTACH), "client_id"), 2, "the same connection may try again");
}

/* The budget of arenas, changed as an operator does; the rest of the configuration has to be a good one for that. */
static void allow_bytes(int fd, unsigned bytes)
{
	char text[120];

	for (uint16_t i = 0; i < config.n_rails; i++)
		strcpy(config.rails[i].transport, "mock");
	config.stores[0].is_self = true;
	snprintf(text, sizeof(text), "{\"id\":3,\"method\":\"limits_set\",\"params\":{\"registered_max_bytes\":%u}}\n",
		bytes);
	cr_assert_eq(int_at(result_of(fd, text), "registered_max_bytes"), bytes);
}

Test(api_clients, clients_and_registered_bytes_are_bounded)
{
	int fds[4], fd = dial();

	for (int i = 0; i < 4; i++)
		fds[i] = attach();
	expect_error(ask(fd, ATTACH), -32015, "LIMIT", "4 clients are attached");
	close(fds[0]);
	settle();
	allow_bytes(fd, 3 * ((1 << 20) + 262144) + 4096);
	expect_error(ask(fd, ATTACH), -32002, "BUDGET", "ask for smaller arenas");
	close(fds[1]);
	settle();
	cr_expect_not_null(result_of(fd, ATTACH));
}

/* Those that are attached stay so; nobody comes in until enough of them have left. */
Test(api_clients, the_budget_of_arenas_is_lowered_below_what_is_registered)
{
	int fds[3], fd = dial();

	for (int i = 0; i < 3; i++)
		fds[i] = attach();
	allow_bytes(fd, 2u << 20);
	expect_error(ask(fd, ATTACH), -32002, "BUDGET", "3932160 of 2097152 (reader.registered) are in use");
	cr_expect_eq(api_n_sessions(api), 3);
	close(fds[0]);
	close(fds[1]);
	settle();
	expect_error(ask(fd, ATTACH), -32002, "BUDGET", "1310720 of 2097152");
	close(fds[2]);
	settle();
	cr_expect_not_null(result_of(fd, ATTACH));
}

static json_int_t registered(int fd)
{
	json_t *status = result_of(fd, "{\"id\":9,\"method\":\"status\"}\n");

	return int_at(json_object_get(status, "clients"), "registered_bytes");
}

enum end { ATTACHED, NO_BUDGET, NO_SESSION, REFUSED, LEFT_EARLY, LEFT, ENDS_ };

/* Clients that are attached, and what was registered for them. */
struct crowd {
	unsigned seed;
	unsigned n_in;
	int fds[4];
	json_int_t bytes[4];
	json_int_t sum;
	unsigned n[ENDS_];
};

static void leaves(struct crowd *w)
{
	unsigned i = (unsigned)rand_r(&w->seed) % w->n_in;

	close(w->fds[i]);
	w->sum -= w->bytes[i];
	w->fds[i] = w->fds[--w->n_in];
	w->bytes[i] = w->bytes[w->n_in];
	w->n[LEFT]++;
}

/* Waits for the answer, or not; control takes it in, or not. */
static void comes(struct crowd *w, bool is_hasty, bool is_refused)
{
	int fd = dial();
	char text[200];
	json_t *got, *error;

	snprintf(text, sizeof(text),
		"{\"id\":2,\"method\":\"attach\",\"params\":{\"abi_major\":1,\"abi_minor\":0,"
		"\"read_arena_bytes\":%u,\"ring_entries\":8}}\n",
		1 + (unsigned)rand_r(&w->seed) % (1u << 20));
	say(fd, text);
	if (is_hasty) {
		close(fd);
		w->n[LEFT_EARLY]++;
		return;
	}
	control.status = is_refused ? RY_ERR_LIMIT : 0;
	got = hear(fd);
	control.status = 0;
	error = json_object_get(got, "error");
	got = json_object_get(got, "result");
	if (got) {
		w->fds[w->n_in] = fd;
		w->bytes[w->n_in] = int_at(got, "read_arena_bytes") + int_at(got, "put_arena_bytes");
		w->sum += w->bytes[w->n_in++];
		w->n[ATTACHED]++;
		return;
	}
	close(fd);
	if (strstr(text_at(error, "message"), "as the test wants"))
		w->n[REFUSED]++;
	else
		w->n[strstr(text_at(error, "message"), "reader.registered") ? NO_BUDGET : NO_SESSION]++;
}

/* However an attach ends: answered, refused by api or by control, its client gone before or after the answer. */
Test(api_clients, registered_bytes_are_given_back_once)
{
	struct crowd w = {.seed = 17};
	int fd = dial();

	allow_bytes(fd, 6u << 20);
	for (int i = 0; i < 300; i++) {
		unsigned what = (unsigned)rand_r(&w.seed) % 6;

		if (what >= 4 && w.n_in)
			leaves(&w);
		else
			comes(&w, what == 2, what == 1);
		settle();
		cr_assert_eq(registered(fd), w.sum, "round %d: %lld registered, the clients have %lld", i,
			(long long)registered(fd), (long long)w.sum);
	}
	while (w.n_in)
		leaves(&w);
	settle();
	cr_expect_eq(registered(fd), 0);
	cr_expect_eq(n_registered, 0);
	for (int i = 0; i < ENDS_; i++)
		cr_expect_gt(w.n[i], 0u, "end %d was never reached", i);
}

Test(api_clients, one_request_at_a_time_in_order)
{
	int fd = dial();

	control.is_silent = true;
	say(fd, "{\"id\":10,\"method\":\"rails\"}\n{\"id\":11,\"method\":\"version\"}\n{\"id\":12,\"method\":\"pairs\"}"
		"\n");
	cr_expect_null(hear(fd), "nothing overtakes");
	cr_assert_eq(control.n_kept, 1);
	answer(control.kept[0]);
	for (int id = 10; id <= 12; id++)
		cr_expect_eq(int_at(hear(fd), "id"), id);
}

Test(api_clients, half_a_line_waits_for_its_rest)
{
	int fd = dial_only();
	const char *hello = HELLO;

	for (size_t i = 0; i + 1 < strlen(hello); i++) {
		cr_assert_eq(send(fd, hello + i, 1, 0), 1);
		api_poll(api, now_ns);
	}
	cr_expect_null(hear(fd));
	cr_expect_eq(int_at(json_object_get(ask(fd, "\n"), "result"), "version"), 1);
	/* Half a request, then the end: nothing to answer. */
	say(fd, "{\"id\":1,\"meth");
	shutdown(fd, SHUT_WR);
	cr_expect_null(hear(fd));
	cr_expect_eq(api_n_conns(api), 0);
}

Test(api_clients, answers_still_reach_who_closed_its_half)
{
	int fd = dial_only();

	say(fd, HELLO "{\"id\":2,\"method\":\"rails\"}\n");
	shutdown(fd, SHUT_WR);
	cr_expect_eq(int_at(hear(fd), "id"), 1);
	cr_expect_eq(int_at(hear(fd), "id"), 2);
	cr_expect_null(hear(fd));
	cr_expect_eq(api_n_conns(api), 0);
}

Test(api_clients, oversized_line_ends_the_connection)
{
	static char big[API_LINE_MAX_BYTES + 1];
	int fd = dial();

	memset(big, 'x', sizeof(big) - 1);
	for (size_t sent = 0; sent < API_LINE_MAX_BYTES;) {
		ssize_t n = send(fd, big + sent, API_LINE_MAX_BYTES - sent, MSG_NOSIGNAL);

		cr_assert_gt(n, 0);
		sent += (size_t)n;
		settle();
	}
	expect_error(hear(fd), -32600, "LIMIT", "longer than 65536");
	cr_expect_null(hear(fd));
	cr_expect_eq(api_n_conns(api), 0);
}

Test(api_clients, client_that_takes_nothing_is_dropped)
{
	static char many[60000];
	int fd = dial(), other = dial();
	size_t n = 0;

	while (n + 64 < sizeof(many))
		n += (size_t)sprintf(many + n, "{\"id\":1,\"method\":\"help\"}\n");
	for (int i = 0; i < 8; i++) {
		send(fd, many, n, MSG_NOSIGNAL);
		settle();
	}
	cr_expect_eq(api_n_conns(api), 2, "slow is not yet stalled");
	now_ns += 4999000000;
	settle();
	cr_expect_eq(api_n_conns(api), 2);
	now_ns += 2000000;
	settle();
	cr_expect_eq(api_n_conns(api), 1);
	cr_expect_not_null(result_of(other, "{\"id\":1,\"method\":\"version\"}\n"), "others are not disturbed");
}

Test(api_clients, a_hundred_clients_at_once)
{
	enum { N = 100 };
	int fds[N];

	for (int i = 0; i < 60; i++) {
		fds[i] = dial_only();
		say(fds[i], HELLO "{\"id\":5,\"method\":\"rails\"}\n");
	}
	for (int i = 0; i < 60; i++) {
		cr_expect_eq(int_at(hear(fds[i]), "id"), 1);
		cr_expect_eq(int_at(hear(fds[i]), "id"), 5);
	}
	cr_expect_eq(api_n_conns(api), 60);
	now_ns++;
	for (int i = 60; i < N; i++)
		fds[i] = dial_only();
	settle();
	cr_expect_eq(api_n_conns(api), 4 + API_EXTRA_CONNS);
	/* Who was silent longest made room. */
	expect_error(hear(fds[0]), -32015, "LIMIT", "make room");
	cr_expect_null(hear(fds[0]));
	cr_expect_eq(int_at(result_of(fds[99], HELLO), "version"), 1);
	cr_expect_eq(int_at(ask(fds[59], "{\"id\":5,\"method\":\"rails\"}\n"), "id"), 5);
	for (int i = 0; i < N; i++)
		close(fds[i]);
	settle();
	cr_expect_eq(api_n_conns(api), 0);
	close(dial());
}

/* Who comes in a crowd is taken in some at a time: what else there is has its turn in between. */
Test(api_clients, a_crowd_is_let_in_over_several_turns)
{
	enum { N = 40 };
	int fds[N];

	for (int i = 0; i < N; i++)
		fds[i] = dial_only();
	for (uint32_t n = 0, before = 0; n < N; before = n) {
		api_poll(api, now_ns);
		n = api_n_conns(api);
		cr_assert_gt(n, before);
		cr_assert_leq(n - before, 16);
	}
	for (int i = 0; i < N; i++)
		close(fds[i]);
}

/* The places are for those that use them: who only holds some goes first, and of several the one that holds most. */
Test(api_clients, who_holds_connections_makes_room_for_others)
{
	enum { N = 4 + API_EXTRA_CONNS };
	int attached = attach(), held[N];
	int ends[2];
	pid_t child;
	char byte = 0;

	cr_assert_eq(pipe(ends), 0);
	child = fork();
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dial_only();
		cr_assert_eq(write(ends[1], &byte, 1), 1);
		pause();
	}
	cr_assert_eq(read(ends[0], &byte, 1), 1);
	settle();
	cr_assert_eq(api_n_conns(api), 2, "the child's is the oldest that says nothing");
	for (int i = 0; i < N; i++, now_ns++) {
		held[i] = dial_only();
		say(held[i], "{\"id\":1,");
		settle();
	}
	cr_expect_eq(api_n_conns(api), N);
	expect_error(hear(held[0]), -32015, "LIMIT", "make room");
	expect_error(hear(held[1]), -32015, "LIMIT", "make room");
	cr_expect_null(hear(held[2]), "it is not answered yet");
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	settle();
	cr_expect_eq(api_n_conns(api), N - 1, "the child's was still there");
	cr_expect_eq(api_n_sessions(api), 1, "and the client");
	cr_expect_not_null(result_of(attached, "{\"id\":1,\"method\":\"version\"}\n"));
}

/* All of them wait for control. */
Test(api_clients, connections_in_use_turn_others_away)
{
	enum { N = 4 + API_EXTRA_CONNS };
	int fds[N], late;

	control.is_silent = true;
	for (int i = 0; i < N; i++) {
		fds[i] = dial();
		say(fds[i], "{\"id\":5,\"method\":\"rails\"}\n");
		settle();
	}
	late = dial_only();
	expect_error(hear(late), -32015, "LIMIT", "too many connections");
	cr_expect_null(hear(late));
	cr_expect_eq(api_n_conns(api), N);
	while (control.n_kept)
		answer(control.kept[--control.n_kept]);
	control.is_silent = false;
	for (int i = 0; i < N; i++)
		cr_expect_eq(int_at(hear(fds[i]), "id"), 5);
}

Test(api_clients, out_of_descriptors_turns_away_without_spinning)
{
	struct rlimit few = {64, 64};
	int fd = dial_only(), full[64], n = 0;

	/* The connection waits in the backlog while this process, which is also the daemon, uses every descriptor up.
	 */
	cr_assert_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
	while (n < 64 && (full[n] = open("/dev/null", O_RDONLY)) >= 0)
		n++;
	cr_assert_lt(n, 64);
	expect_error(hear(fd), -32015, "LIMIT", "descriptor");
	while (n)
		close(full[--n]);
	close(dial());
}

Test(api_clients, shutdown_drains_once)
{
	int fd = dial();

	cr_expect_str_eq(text_at(result_of(fd, "{\"id\":1,\"method\":\"shutdown\"}\n"), "drain"), "10s");
	cr_expect_not_null(result_of(fd, "{\"id\":1,\"method\":\"shutdown\"}\n"));
	cr_expect_eq(control.n_calls[API_SHUTDOWN], 1);
	cr_expect(json_is_true(json_object_get(result_of(fd, "{\"id\":1,\"method\":\"status\"}\n"), "is_draining")));
	expect_error(ask(fd, ATTACH), -32021, "DETACHED", "stopping");
}

Test(api_clients, signals_drain_then_force)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGHUP);
	cr_assert_eq(sigprocmask(SIG_BLOCK, &set, NULL), 0);
	api_destroy(api);
	deps.want_signals = true;
	cr_assert_eq(api_create(&deps, message, sizeof(message), &api), 0, "%s", message);
	raise(SIGHUP);
	settle();
	cr_expect_eq(control.n_calls[API_SHUTDOWN], 0);
	raise(SIGTERM);
	settle();
	cr_expect_eq(control.n_calls[API_SHUTDOWN], 1);
	cr_expect_eq(n_forced, 0);
	raise(SIGTERM);
	settle();
	cr_expect_eq(n_forced, 1);
	cr_expect_eq(control.n_calls[API_SHUTDOWN], 1);
}

Test(api_clients, socket_file_is_replaced_only_when_nobody_answers)
{
	struct api *second = NULL;
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	struct stat st;
	int fd;

	cr_assert_eq(stat(config.socket_path, &st), 0);
	cr_expect_eq(st.st_mode & 0777, 0660);
	cr_expect_eq(api_create(&deps, message, sizeof(message), &second), -EADDRINUSE);
	cr_expect_not_null(strstr(message, "another daemon"), "%s", message);
	cr_expect_eq(access(config.socket_path, F_OK), 0, "the first one's socket is still there");
	close(dial());
	api_destroy(api);
	/* A daemon that was killed leaves its file behind. */
	strcpy(a.sun_path, config.socket_path);
	fd = socket(AF_UNIX, SOCK_STREAM, 0);
	cr_assert_eq(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	close(fd);
	cr_assert_eq(api_create(&deps, message, sizeof(message), &api), 0, "%s", message);
	close(dial());
	api_destroy(api);
	fd = open(config.socket_path, O_CREAT | O_WRONLY, 0600);
	close(fd);
	cr_expect_eq(api_create(&deps, message, sizeof(message), &second), -EEXIST);
	cr_expect_eq(access(config.socket_path, F_OK), 0, "a file that is not ours stays");
	unlink(config.socket_path);
	cr_assert_eq(api_create(&deps, message, sizeof(message), &api), 0, "%s", message);
}

Test(api_clients, destroyed_with_clients_and_calls_under_way)
{
	int fd = attach(), other = dial();

	control.is_silent = true;
	say(other, "{\"id\":1,\"method\":\"rails\"}\n");
	api_poll(api, now_ns);
	api_destroy(api);
	cr_expect_eq(n_registered, 0);
	cr_expect_eq(recv(fd, message, 1, 0), 0, "the connection is closed");
	cr_assert_eq(api_create(&deps, message, sizeof(message), &api), 0, "%s", message);
}
