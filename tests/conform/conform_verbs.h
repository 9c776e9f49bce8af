/* SPDX-License-Identifier: BSD-3-Clause */
/* What the two files of the verbs suite share: two rails over one RDMA device, and pairs between them. One test is one
 * process. */
#ifndef RY_CONFORM_VERBS_H
#define RY_CONFORM_VERBS_H

#include "conform.h"
#include "transport/ib/ib.h"

#ifdef __cplusplus
extern "C" {
#endif

extern struct conform *c; /* of this test, from verbs_begin to verbs_over */

/* Opens the rails, n_qps pairs, and registered memory of both. */
void verbs_begin(uint16_t n_qps);
void verbs_over(void);
/* QPs qa[i] and qb[i], joined as conn joins them and adopted. */
void verbs_pair_up(struct conform *to, uint16_t i);
/* Ends both, with their fences, and closes them. */
void verbs_pair_down(uint16_t i);

#ifdef __cplusplus
}
#endif
#endif
