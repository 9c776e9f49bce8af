/* SPDX-License-Identifier: BSD-3-Clause */
/* The asking side of the control socket, against a thread that answers each line with the next of some texts. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "rpc/rpc.h"

#define HELLO "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"version\":1,\"node\":\"n\"}}\n"

struct server {
	char directory[64];
	char path[96];
	int fd;
	const char *answers[4]; /* NULL: closes instead */
	bool is_silent;         /* after the last answer: keeps the connection, says nothing */
	char asked[4][256];
	pthread_t thread;
};

static struct server s;
static struct rpc *r;
static struct rpc_error err;
static json_t *result;

static void *serve(void *arg)
{
	FILE *f = fdopen(accept(s.fd, NULL, NULL), "r+");
	char rest[8];
	int i;

	setvbuf(f, NULL, _IONBF, 0);
	for (i = 0; s.answers[i] != NULL && fgets(s.asked[i], sizeof(s.asked[i]), f) != NULL; i++)
		fputs(s.answers[i], f);
	while (s.is_silent && fgets(rest, sizeof(rest), f) != NULL)
		;
	fclose(f);
	return NULL;
}

static void start(const char *first, const char *second)
{
	struct sockaddr_un sa = {.sun_family = AF_UNIX};

	strcpy(s.directory, "/tmp/ry-test-rpc-XXXXXX");
	cr_assert_not_null(mkdtemp(s.directory));
	snprintf(s.path, sizeof(s.path), "%s/s", s.directory);
	strcpy(sa.sun_path, s.path);
	s.fd = socket(AF_UNIX, SOCK_STREAM, 0);
	cr_assert_eq(bind(s.fd, (void *)&sa, sizeof(sa)), 0);
	cr_assert_eq(listen(s.fd, 1), 0);
	s.answers[0] = first;
	s.answers[1] = second;
	cr_assert_eq(pthread_create(&s.thread, NULL, serve, NULL), 0);
}

static void stop(void)
{
	rpc_close(r);
	pthread_join(s.thread, NULL);
	close(s.fd);
	unlink(s.path);
	rmdir(s.directory);
}

Test(rpc, a_call_has_its_result)
{
	start(HELLO, "{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":[7]}\n");
	cr_assert_eq(rpc_open(s.path, 1000000000, &r, &err), 0, "%s", err.text);
	cr_expect_str_eq(json_string_value(json_object_get(rpc_hello(r), "node")), "n");
	cr_assert_eq(rpc_call(r, "what", json_pack("{s:i}", "x", 3), &result, &err), 0, "%s", err.text);
	cr_expect_eq(json_integer_value(json_array_get(result, 0)), 7);
	json_decref(result);
	stop();
	cr_expect_str_eq(
		s.asked[0], "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"hello\",\"params\":{\"version\":1}}\n");
	cr_expect_str_eq(s.asked[1], "{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"what\",\"params\":{\"x\":3}}\n");
}

Test(rpc, a_refusal_carries_code_status_and_text)
{
	start(HELLO, "{\"jsonrpc\":\"2.0\",\"id\":2,\"error\":{\"code\":-31985,\"message\":\"too "
		     "many\",\"data\":{\"status\":\"LIMIT\"}}}\n");
	cr_assert_eq(rpc_open(s.path, 1000000000, &r, &err), 0);
	cr_expect_eq(rpc_call(r, "what", NULL, &result, &err), -EREMOTEIO);
	cr_expect_eq(err.code, -31985);
	cr_expect_str_eq(err.status, "LIMIT");
	cr_expect_str_eq(err.text, "too many");
	stop();
}

Test(rpc, a_refusal_does_not_begin_with_the_method)
{
	start(HELLO, "{\"jsonrpc\":\"2.0\",\"id\":2,\"error\":{\"code\":-31985,\"message\":\"what: too "
		     "many\",\"data\":{\"status\":\"LIMIT\"}}}\n");
	cr_assert_eq(rpc_open(s.path, 1000000000, &r, &err), 0);
	cr_expect_eq(rpc_call(r, "what", NULL, &result, &err), -EREMOTEIO);
	cr_expect_str_eq(err.text, "too many");
	stop();
}

Test(rpc, another_version_is_refused_at_open)
{
	start("{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-1,\"message\":\"I speak 9\"}}\n", NULL);
	cr_expect_eq(rpc_open(s.path, 1000000000, &r, &err), -EPROTONOSUPPORT);
	cr_expect_null(r);
	stop();
}

Test(rpc, a_long_answer_arrives_whole)
{
	static char answer[100100];
	int n = snprintf(answer, sizeof(answer), "{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":\"");

	memset(answer + n, 'x', 100000);
	strcpy(answer + n + 100000, "\"}\n");
	start(HELLO, answer);
	cr_assert_eq(rpc_open(s.path, 1000000000, &r, &err), 0);
	cr_assert_eq(rpc_call(r, "what", NULL, &result, &err), 0, "%s", err.text);
	cr_expect_eq(json_string_length(result), 100000);
	json_decref(result);
	stop();
}

Test(rpc, what_is_no_answer_is_an_error)
{
	static const char *const rows[] = {
		"{}\n", "nonsense\n", "[1]\n", "{\"jsonrpc\":\"2.0\",\"id\":9,\"result\":1}\n", "\n"};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		start(HELLO, rows[i]);
		cr_assert_eq(rpc_open(s.path, 1000000000, &r, &err), 0);
		cr_expect_eq(rpc_call(r, "what", NULL, &result, &err), -EPROTO, "%s", rows[i]);
		cr_expect_str_empty(err.status);
		stop();
	}
}

Test(rpc, a_closed_connection_is_an_error)
{
	start(HELLO, NULL);
	cr_assert_eq(rpc_open(s.path, 1000000000, &r, &err), 0);
	cr_expect_lt(rpc_call(r, "what", NULL, &result, &err), 0);
	stop();
}

Test(rpc, silence_is_a_time_out)
{
	s.is_silent = true;
	start(HELLO, NULL);
	cr_assert_eq(rpc_open(s.path, 50000000, &r, &err), 0);
	cr_expect_eq(rpc_call(r, "what", NULL, &result, &err), -ETIMEDOUT);
	stop();
}

Test(rpc, no_socket_no_connection)
{
	char path[200];

	cr_expect_eq(rpc_open("/tmp/ry-test-rpc-none", 1000000000, &r, &err), -ENOENT);
	cr_expect(strstr(err.text, "/tmp/ry-test-rpc-none") != NULL);
	memset(path, 'p', sizeof(path) - 1);
	path[sizeof(path) - 1] = '\0';
	cr_expect_eq(rpc_open(path, 1000000000, &r, &err), -ENAMETOOLONG);
}

Test(rpc, a_text_that_is_not_utf8_is_not_sent)
{
	start(HELLO, NULL);
	cr_assert_eq(rpc_open(s.path, 1000000000, &r, &err), 0);
	cr_expect_eq(rpc_call(r, "\xff", NULL, &result, &err), -EINVAL);
	stop();
}
