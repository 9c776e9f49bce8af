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
	uint32_t lkey = 7;

	cr_assert_eq(transport_no_reg(NULL, &lkey, 4, &lkey), 0);
	cr_assert_eq(lkey, 0);
	transport_no_dereg(NULL, 0);
}
