/* SPDX-License-Identifier: BSD-3-Clause */
#include "mem.h"

struct rte_mempool *pool_create(const char *name, unsigned n, unsigned elt_bytes, int socket_id)
{
	/* One thread gets and puts, so the backing ring is single-producer and single-consumer and a per-lcore cache
	 * would buy nothing. Elements begin on cache lines unless told otherwise. */
	unsigned flags = RTE_MEMPOOL_F_SP_PUT | RTE_MEMPOOL_F_SC_GET | RTE_MEMPOOL_F_NO_IOVA_CONTIG;

	return rte_mempool_create(name, n, elt_bytes, 0, 0, NULL, NULL, NULL, NULL, socket_id, flags);
}
