/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/transport.h"

#include <errno.h>
#include <string.h>

#include <criterion/criterion.h>

Test(transport, every_name_is_found_and_its_table_is_full)
{
	const char *const *name = transport_names();
	bool has_mock = false;

	cr_assert(*name);
	for (; *name; name++) {
		const struct transport_ops *ops = transport_find(*name);

		cr_assert(ops, "%s", *name);
		cr_assert_str_eq(ops->name, *name);
		cr_assert(ops->open && ops->close && ops->mem_reg && ops->mem_dereg && ops->pair_connect);
		cr_assert(ops->pair_close && ops->post && ops->poll && ops->arm && ops->fence);
		has_mock |= strcmp(*name, "mock") == 0;
	}
	cr_assert(has_mock);
}

Test(transport, unknown_names_are_not_found)
{
	cr_assert_null(transport_find("carrier-pigeon"));
	cr_assert_null(transport_find(""));
	cr_assert_null(transport_find("mock "));
}

Test(transport, stubs_answer)
{
	struct qp_address at = {.qp_num = 7};
	struct rail_event ev;
	int fds[2];

	cr_assert_eq(transport_no_reg(NULL, &at, 4, 3), 0);
	transport_no_dereg(NULL, 3);
	cr_assert(transport_stop_at_once(NULL, NULL) && !transport_wants_no_fence(NULL, NULL));
	transport_no_fence(NULL, NULL);
	transport_no_address(NULL, NULL, &at);
	cr_assert(at.qp_num == 0 && transport_no_remote(NULL, NULL, &at) == -ENOTSUP);
	cr_assert(transport_no_event_fds(NULL, fds) == 0 && !transport_no_events(NULL, &ev));
}
