/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A second set of books for the budgets of a rig's control, kept by nobody but the test.
 *
 * Every function that takes or gives back a charge is wrapped at link time (--wrap, see meson.build): the ledger writes
 * down who was charged, how much and for whom, lets the real function run, and compares every budget with its own sum
 * at once. A charge given back twice, by another owner, by another amount or not at all is thus found in the call that
 * did it, whatever other charges hide it in the total. Memory of arenas, sources and objects that are being put are
 * kept in the same books. One ledger per process.
 */
#ifndef RY_TEST_LEDGER_H
#define RY_TEST_LEDGER_H

#include <stdbool.h>

#include "rig.h"

#ifdef __cplusplus
extern "C" {
#endif

/* After rig_start, before the first request. */
void ledger_begin(struct rig *r);
/* What was found first; "" = all is well. */
const char *ledger_wrong(void);
/* Between two turns of control: what its records say that is charged, against the books. */
void ledger_audit(void);
/* At rest: no row is left, and every budget and gauge is zero. `n_sources` = objects that the store holds. */
void ledger_expect_empty(unsigned n_sources);

#ifdef __cplusplus
}
#endif
#endif
