/* SPDX-License-Identifier: BSD-3-Clause */
#include "api/pairs.h"

#include "api/api_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* conn may add pairs between the two calls; those come with the next request. */
int pair_list_get(const struct api *api, struct pair_list *out)
{
	uint32_t n = api->deps.pair_info(api->deps.conn, NULL, 0);
	uint32_t got;

	out->rows = calloc(n ? n : 1, sizeof(*out->rows));
	if (!out->rows)
		return -ENOMEM;
	got = api->deps.pair_info(api->deps.conn, out->rows, n);
	out->n = got < n ? got : n;
	return 0;
}

void pair_list_free(struct pair_list *list)
{
	free(list->rows);
}

json_t *pair_describe(const struct config *c, const struct conn_pair_info *p)
{
	static const char *const states[] = {
		[CONN_DOWN] = "DOWN",
		[CONN_DIALLING] = "DIALLING",
		[CONN_UP] = "UP",
		[CONN_CLOSING] = "CLOSING",
		[CONN_STANDBY] = "STANDBY",
	};
	char endpoint[ENDPOINT_TEXT_BYTES];

	return json_pack("{s:s, s:s, s:s*, s:s, s:b, s:s, s:I, s:I, s:s}", "rail",
		p->rail_idx < c->n_rails ? c->rails[p->rail_idx].name : "", "peer", p->peer, "store",
		p->is_dialler && p->store_idx < c->n_stores ? c->stores[p->store_idx].name : NULL, "endpoint",
		endpoint_text(c, p->store_idx, p->endpoint_idx, endpoint), "is_dialler", (int)p->is_dialler, "state",
		p->state <= CONN_STANDBY ? states[p->state] : "UNKNOWN", "connects", (json_int_t)p->n_connects,
		"failures", (json_int_t)p->n_failures, "last_error", p->last_error);
}

const char *endpoint_text(
	const struct config *c, uint16_t store_idx, uint16_t endpoint_idx, char text[ENDPOINT_TEXT_BYTES])
{
	const struct config_endpoint *e;

	text[0] = 0;
	if (store_idx >= c->n_stores || endpoint_idx >= c->stores[store_idx].n_endpoints)
		return text;
	e = &c->stores[store_idx].endpoints[endpoint_idx];
	snprintf(text, ENDPOINT_TEXT_BYTES, strchr(e->address, ':') ? "[%s]:%u" : "%s:%u", e->address, e->port);
	return text;
}
