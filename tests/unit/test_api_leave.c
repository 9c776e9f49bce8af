/* SPDX-License-Identifier: BSD-3-Clause */
/* Clients that leave, or are made to: before, while and after their memory is made. */
#include "api_fixture.h"

TestSuite(api_leave, .init = start, .fini = stop);

Test(api_leave, end_of_connection_detaches)
{
	int fd = attach();

	cr_expect_eq(n_registered, 4);
	close(fd);
	control.is_silent = true;
	settle();
	cr_expect_eq(control.n_calls[API_DETACH], 1);
	cr_expect_eq(api_n_conns(api), 0);
	cr_expect_eq(api_n_sessions(api), 1, "its memory is control's until it answers");
	cr_expect_eq(n_registered, 4);
	answer(control.kept[0]);
	settle();
	cr_expect_eq(api_n_sessions(api), 0);
	cr_expect_eq(n_registered, 0);
}

Test(api_leave, half_closed_client_is_detached)
{
	int fd = attach();

	shutdown(fd, SHUT_WR);
	settle();
	cr_expect_eq(control.n_calls[API_DETACH], 1);
	cr_expect_eq(api_n_sessions(api), 0);
}

Test(api_leave, leaving_during_attach)
{
	int fd = dial();

	/* While work creates the client: control never hears of it. */
	say(fd, ATTACH);
	api_poll(api, now_ns);
	close(fd);
	api_poll(api, now_ns);
	settle();
	cr_expect_eq(control.n_calls[API_ATTACH], 0);
	cr_expect_eq(api_n_sessions(api), 0);
	cr_expect_eq(n_ever_registered, 0, "work was told, and did not finish it");
	/* While control adopts it: it is detached again. */
	fd = dial();
	control.is_silent = true;
	say(fd, ATTACH);
	settle();
	cr_assert_eq(control.n_kept, 1);
	close(fd);
	settle();
	control.is_silent = false;
	answer(control.kept[0]);
	settle();
	cr_expect_eq(control.n_calls[API_DETACH], 1);
	cr_expect_eq(api_n_sessions(api), 0);
	cr_expect_eq(n_registered, 0);
}

/* Large arenas take seconds. Who hangs up while others' are made is never begun, and its place is free at once. */
Test(api_leave, leaving_while_others_attach)
{
	int fds[4], late;

	for (int i = 0; i < 4; i++)
		fds[i] = dial();
	for (int i = 0; i < 4; i++)
		say(fds[i], ATTACH);
	while (api_poll(api, now_ns))
		;
	cr_assert_eq(api_n_sessions(api), 4);
	close(fds[1]);
	close(fds[2]);
	while (api_poll(api, now_ns))
		;
	cr_expect_eq(api_n_sessions(api), 2, "work has begun only one");
	late = dial_only();
	say(late, HELLO ATTACH);
	while (api_poll(api, now_ns))
		;
	cr_expect_eq(api_n_sessions(api), 3, "there is a place again");
	settle();
	cr_expect_eq(control.n_calls[API_ATTACH], 3);
	cr_expect_eq(control.n_calls[API_DETACH], 0);
	cr_expect_eq(n_registered, 3 * 2 * 2);
	cr_expect_not_null(json_object_get(hear(fds[0]), "result"));
	cr_expect_not_null(json_object_get(hear(fds[3]), "result"));
	cr_expect_not_null(json_object_get(hear(late), "result"));
	cr_expect_not_null(json_object_get(hear(late), "result"), "hello and attach");
	/* The end of the daemon finds some that were not begun. */
	for (int i = 0; i < 2; i++)
		close(i ? fds[3] : late);
	settle();
	for (int i = 1; i < 3; i++)
		fds[i] = dial();
	for (int i = 1; i < 3; i++)
		say(fds[i], ATTACH);
	api_poll(api, now_ns);
	cr_assert_eq(api_n_sessions(api), 3);
}

/* Nor does the end of the daemon wait for what is being made, or begin what waits for it. */
Test(api_leave, shutdown_during_attach)
{
	int fds[2], admin = dial();

	for (int i = 0; i < 2; i++)
		fds[i] = dial();
	for (int i = 0; i < 2; i++)
		say(fds[i], ATTACH);
	while (api_poll(api, now_ns))
		;
	cr_assert_eq(api_n_sessions(api), 2);
	cr_expect_not_null(result_of(admin, "{\"id\":3,\"method\":\"shutdown\"}\n"));
	for (int i = 0; i < 2; i++)
		expect_error(hear(fds[i]), -32000 - RY_ERR_DETACHED, "DETACHED", "the daemon is stopping");
	cr_expect_eq(control.n_calls[API_ATTACH], 0);
	cr_expect_eq(api_n_sessions(api), 0);
	cr_expect_eq(n_ever_registered, 0, "work was told, and did not finish it");
}

/* What is left to do at the end: clients are destroyed, devices are not looked for. */
Test(api_leave, the_end_of_work_opens_no_device)
{
	struct device_job device = {.rail = NULL};
	const uint32_t is_over = 1;
	int fd = attach();

	work.from_conn = spsc_create("e", DEVICE_JOBS);
	spsc_push(work.from_conn, &device);
	close(fd);
	while (api_poll(api, now_ns))
		poll_control();
	cr_assert(!spsc_is_empty(deps.to_work));
	work_run(&work, &is_over);
	cr_expect_eq(n_registered, 0, "the client is destroyed");
	cr_expect_eq(spsc_pop(work.from_conn), &device, "the device is not touched");
	spsc_free(work.from_conn);
	work.from_conn = NULL;
}

static void break_ring(void)
{
	spsc_push(deps.from_control, control.broken);
	settle();
}

/* Its last line says why; then it is detached as if it had left. */
Test(api_leave, a_client_that_broke_its_ring_is_told_and_detached)
{
	int fd = attach();

	break_ring();
	expect_error(hear(fd), -32017, "PROTOCOL", "the ring makes no sense");
	cr_expect_null(hear(fd), "and the end");
	cr_expect_eq(control.n_calls[API_DETACH], 1);
	cr_expect_eq(api_n_sessions(api), 0);
	cr_expect_eq(n_registered, 0);
	/* It left before: nobody is told, and the next one in its place is not meant. */
	fd = attach();
	control.is_silent = true;
	close(fd);
	break_ring();
	cr_assert_eq(control.n_kept, 1);
	control.is_silent = false;
	answer(control.kept[0]);
	settle();
	cr_expect_eq(api_n_sessions(api), 0);
	fd = attach();
	cr_expect_not_null(result_of(fd, "{\"id\":3,\"method\":\"version\"}\n"));
}

Test(api_leave, leaving_before_control_answers)
{
	int fd = dial();

	control.is_silent = true;
	say(fd, "{\"id\":1,\"method\":\"rails\"}\n");
	settle();
	cr_assert_eq(control.n_kept, 1);
	close(fd);
	settle();
	answer(control.kept[0]);
	settle();
	cr_expect_eq(api_n_conns(api), 0);
}
