/* SPDX-License-Identifier: BSD-3-Clause */
/* railyardd's command line and its word to the service manager. */
#include "daemon/notify.h"
#include "daemon/options.h"

#include <criterion/criterion.h>
#include <criterion/redirect.h>

#include <sys/socket.h>
#include <sys/un.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PARSE(o, ...) parse((const char *[]){"railyardd", __VA_ARGS__, NULL}, o)

static int parse(const char **argv, struct options *o)
{
	char *copy[16];
	int argc = 0;

	for (; argv[argc]; argc++)
		copy[argc] = strdup(argv[argc]);
	copy[argc] = NULL;
	return options_parse(argc, copy, o);
}

Test(options, ours_stand_after_the_dashes)
{
	struct options o;

	cr_assert_eq(PARSE(&o, "--lcores", "0,1", "-m", "64", "--", "--config", "a.yaml"), 0);
	cr_expect_eq(o.eal_argc, 5);
	cr_expect_str_eq(o.config_path, "a.yaml");
	cr_expect_not(o.want_check);
}

Test(options, without_dashes_all_are_ours)
{
	struct options o;

	cr_assert_eq(PARSE(&o, "-c", "b.yaml", "--check"), 0);
	cr_expect_eq(o.eal_argc, 1);
	cr_expect_str_eq(o.config_path, "b.yaml");
	cr_expect(o.want_check);
	cr_assert_eq(PARSE(&o, "--version"), 0);
	cr_expect(o.want_version && !o.config_path);
	cr_assert_eq(PARSE(&o, "--", "--print-config-doc"), 0);
	cr_expect(o.want_config_doc);
}

Test(options, refused, .init = cr_redirect_stderr)
{
	struct options o = {.eal_argc = 77};

	cr_expect_eq(PARSE(&o, "--lcores", "0", "--config", "a"), -EINVAL, "EAL's without dashes");
	cr_expect_eq(PARSE(&o, "--", "--config"), -EINVAL);
	cr_expect_eq(PARSE(&o, "--", "a.yaml"), -EINVAL);
	cr_expect_eq(PARSE(&o, "--"), -EINVAL, "no configuration");
	cr_expect_eq(o.eal_argc, 77, "nothing is written on failure");
}

Test(options, help_lists_every_exit_code)
{
	char *text = NULL, code[8];
	size_t bytes = 0;
	FILE *f = open_memstream(&text, &bytes);

	options_help(f);
	fclose(f);
	for (int i = EXIT_OK; i <= EXIT_ENVIRONMENT; i++) {
		snprintf(code, sizeof(code), "\n  %d  ", i);
		cr_expect_not_null(strstr(text, code), "exit code %d", i);
	}
	free(text);
}

Test(notify, nothing_without_a_manager)
{
	unsetenv("NOTIFY_SOCKET");
	cr_expect_eq(notify_manager("READY=1"), 0);
	setenv("NOTIFY_SOCKET", "relative", 1);
	cr_expect_eq(notify_manager("READY=1"), -EINVAL);
	setenv("NOTIFY_SOCKET", "/nonexistent/notify", 1);
	cr_expect_eq(notify_manager("READY=1"), -ENOENT);
}

static void hears(const char *name)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
	char got[32] = "";

	strcpy(a.sun_path, name);
	if (name[0] == '@')
		a.sun_path[0] = '\0';
	cr_assert_eq(bind(fd, (struct sockaddr *)&a, (socklen_t)(sizeof(a.sun_family) + strlen(name))), 0);
	setenv("NOTIFY_SOCKET", name, 1);
	cr_expect_eq(notify_manager("READY=1"), 0);
	cr_expect_eq(recv(fd, got, sizeof(got) - 1, MSG_DONTWAIT), 7);
	cr_expect_str_eq(got, "READY=1");
	close(fd);
}

Test(notify, manager_hears_it)
{
	char name[64];

	snprintf(name, sizeof(name), "/tmp/ry-notify-%d", (int)getpid());
	hears(name);
	unlink(name);
	snprintf(name, sizeof(name), "@ry-notify-%d", (int)getpid());
	hears(name);
}
