/* SPDX-License-Identifier: BSD-3-Clause */
#include "mem/mem.h"

#include <criterion/criterion.h>
#include <rte_eal.h>
#include <rte_errno.h>

#include <errno.h>

static void start_eal(void)
{
	char *argv[] = {"t", "--no-huge", "--no-pci", "--no-shconf", "--no-telemetry", "--log-level=lib.eal:4", "-m",
		"64", "-l", "0"};

	cr_assert_geq(rte_eal_init(10, argv), 0);
}

TestSuite(pool, .init = start_eal);

Test(pool, hands_out_every_element_once)
{
	struct rte_mempool *p = pool_create("seg", 100, 200, 0);
	void *e[100];

	cr_assert(p, "%s", rte_strerror(rte_errno));
	for (int i = 0; i < 100; i++) {
		e[i] = pool_get(p);
		cr_assert(e[i]);
		cr_assert_eq((uintptr_t)e[i] % 64, 0);
		for (int k = 0; k < i; k++)
			cr_assert_neq(e[k], e[i]);
	}
	cr_assert_null(pool_get(p), "empty is NULL, not an abort");
	pool_put(p, e[42]);
	cr_assert_eq(pool_get(p), e[42]);
	rte_mempool_free(p);
}

Test(pool, failure_says_why)
{
	cr_assert_null(pool_create("far too long a name for a mempool", 10, 64, 0));
	cr_assert_eq(rte_errno, ENAMETOOLONG);
	cr_assert_null(pool_create("big", 1000000, 65536, 0));
	cr_assert_eq(rte_errno, ENOMEM);
}
