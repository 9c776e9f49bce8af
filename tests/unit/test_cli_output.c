/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <criterion/criterion.h>
#include <criterion/redirect.h>

#include "cli/cli.h"
#include "cli/demo.h"

static struct cli c = {.command = "test"};

Test(cli_output, a_table_has_names_units_and_right_aligned_numbers, .init = cr_redirect_stdout)
{
	json_t *rows = json_pack("[{s:s, s:I, s:b}, {s:s, s:I, s:b}]", "name", "rail0", "size_bytes",
		(json_int_t)1048576, "up", 1, "name", "r1", "size_bytes", (json_int_t)5, "up", 0);

	cr_assert_eq(output_print(&c, rows), CLI_OK);
	cr_assert_stdout_eq_str("name   size_bytes  up\n"
				"rail0       1 MiB  yes\n"
				"r1            5 B  no\n");
}

Test(cli_output, an_object_shows_scalars_then_what_is_nested, .init = cr_redirect_stdout)
{
	json_t *o = json_pack("{s:[{s:i}], s:s, s:[s,s], s:{s:I}, s:[]}", "rows", "n", 1, "node", "a", "roles",
		"reader", "store", "inner", "busy_ns", (json_int_t)1500, "empty");

	cr_assert_eq(output_print(&c, o), CLI_OK);
	cr_assert_stdout_eq_str("node   a\n"
				"roles  reader, store\n"
				"rows:\n"
				"  n\n"
				"  1\n"
				"inner:\n"
				"  busy_ns  1.50 us\n"
				"empty: none\n");
}

Test(cli_output, json_has_the_same_names, .init = cr_redirect_stdout)
{
	c.want_json = true;
	cr_assert_eq(output_print(&c, json_pack("{s:I}", "size_bytes", (json_int_t)5)), CLI_OK);
	cr_assert_stdout_eq_str("{\n  \"size_bytes\": 5\n}\n");
}

Test(cli_output, an_error_is_typed_in_json, .init = cr_redirect_stdout)
{
	c.want_json = true;
	cr_assert_eq(cli_fail(&c, RY_ERR_NOT_FOUND, "no object %s", "k"), CLI_NOT_FOUND);
	fflush(stdout);
	cr_assert_stdout_eq_str(
		"{\n  \"error\": {\n    \"status\": \"NOT_FOUND\",\n    \"cause\": \"no object k\"\n  }\n}\n");
}

Test(cli_output, exit_codes, .init = cr_redirect_stderr)
{
	cr_expect_eq(cli_fail(&c, RY_ERR_DETACHED, "gone"), CLI_NO_DAEMON);
	cr_expect_eq(cli_fail(&c, RY_ERR_CHECKSUM, "bad"), CLI_FAILED);
	cr_expect_eq(cli_usage(&c, "what"), CLI_USAGE);
}

static void expect_key(const char *key, uint16_t key_bytes, const char *text)
{
	json_t *o = output_key(key, key_bytes);

	cr_expect_str_eq(json_string_value(o), text);
	json_decref(o);
}

Test(cli_output, keys_of_any_bytes_can_be_shown)
{
	expect_key("plain/key", 9, "plain/key");
	expect_key("gr\xc3\xbc\xc3\x9f", 6, "gr\xc3\xbc\xc3\x9f");
	expect_key("a\nb", 3, "a\\x0ab");
	expect_key("\xff\x00z", 3, "\\xff\\x00z");
	expect_key("\x01\\", 2, "\\x01\\x5c");
	expect_key("\\x01", 4, "\\x5cx01"); /* not what the byte 1 looks like */
}

Test(cli_output, reads_of_one_pass_add_up)
{
	struct ry_read_stats one = {.n_rails = 2, .class_ref = RY_CLASS_NETWORK, .class_share_permille = 830},
			     two = {.n_rails = 1, .class_ref = RY_CLASS_STORAGE, .class_share_permille = 510};
	struct demo_pass pass = {0};

	one.rails[0] = (struct ry_rail_stats){.name = "rail0", .bytes = 10, .segments = 1, .busy_ns = 5};
	one.rails[1] = (struct ry_rail_stats){.name = "rail1", .bytes = 20, .segments = 2, .busy_ns = 6};
	two.rails[0] = (struct ry_rail_stats){.name = "rail1", .bytes = 100, .segments = 3, .busy_ns = 7};
	demo_add_stats(&pass, &one, 50);
	demo_add_stats(&pass, &two, 40);
	cr_expect_eq(pass.ns, 90);
	cr_expect_eq(pass.stats.n_rails, 2);
	cr_expect_eq(pass.stats.rails[0].bytes, 10);
	cr_expect_eq(pass.stats.rails[1].bytes, 120);
	cr_expect_eq(pass.stats.rails[1].segments, 5);
	cr_expect_eq(pass.stats.rails[1].busy_ns, 13);
	cr_expect_eq(pass.stats.class_ref, RY_CLASS_NETWORK, "the slower read decides");
	cr_expect_eq(pass.stats.class_share_permille, 830);
}

/* Connections wait in its backlog for ever. */
static int listen_silently(char path[108])
{
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	snprintf(sa.sun_path, sizeof(sa.sun_path), "/tmp/ry-cli-test-%d.sock", (int)getpid());
	unlink(sa.sun_path);
	cr_assert_eq(bind(fd, (void *)&sa, sizeof(sa)), 0);
	cr_assert_eq(listen(fd, 4), 0);
	strcpy(path, sa.sun_path);
	return fd;
}

/* It is there, so it is neither gone nor denied; and --deadline bounds the attachment, too. */
Test(cli_output, a_silent_daemon_is_a_time_out, .init = cr_redirect_stdout, .timeout = 10)
{
	char path[108], text[1024] = "", *second;
	FILE *out = cr_get_redirected_stdout();
	struct ry_client *client;
	struct rpc *rpc;
	int fd = listen_silently(path);

	c.want_json = true;
	c.socket_path = path;
	c.deadline_ns = 20000000;
	cr_expect_eq(cli_open_rpc(&c, &rpc), CLI_NO_DAEMON);
	cr_expect_eq(cli_attach(&c, CLI_ARENA_SMALL_BYTES, &client), CLI_NO_DAEMON);
	fflush(stdout);
	close(fd);
	unlink(path);
	fclose(stdout);
	cr_assert(fread(text, 1, sizeof(text) - 1, out) > 0);
	second = strstr(text, "\"TIMEOUT\"");
	cr_assert(second, "%s", text);
	cr_assert(strstr(second + 1, "\"TIMEOUT\""), "%s", text);
}
