/* SPDX-License-Identifier: BSD-3-Clause */
/* What the api thread asks of control: one call a turn, most of them answered at once. */
#include "read/control_priv.h"

#include "health/layout.h"

static bool serve(struct control *c, struct api_call *call);
static void begin_shutdown(struct control *c, struct api_call *call);
static void rail_info(const struct control *c, struct api_call *call);
static void add_qps(const struct peer *p, struct api_call *call);
static void set_limits(struct control *c, struct api_call *call);
static void all_pairs(const struct control *c, struct api_call *call);
static void configured_pairs(const struct control *c, uint16_t s, struct api_call *call);
static bool configured_pair(const struct control *c, const struct health_name *name, struct api_pair_health *out);
static const struct peer_pair *connected(const struct control *c, const struct health_name *name);
static void accepted_pairs(const struct control *c, const struct peer *p, struct api_call *call);
static void connection(const struct control *c, const struct peer_pair *pp, struct api_pair_health *out);

unsigned api_take(struct control *c)
{
	struct api_call *call = spsc_pop(c->d.from_api);

	if (!call)
		return 0;
	call->status = RY_OK;
	if (serve(c, call)) {
		spsc_push(c->d.to_api, call);
		c->want_api_kick = true;
	}
	return 1;
}

/* Whether the call is answered now. */
static bool serve(struct control *c, struct api_call *call)
{
	switch (call->op) {
	case API_ATTACH:
		return rings_attach(c, call);
	case API_DETACH:
		rings_detach(c, call);
		return false;
	case API_SHUTDOWN:
		begin_shutdown(c, call);
		return false;
	case API_PLAN:
		plan_explain(c, call);
		return true;
	case API_RAIL_INFO:
		rail_info(c, call);
		return true;
	case API_DRAIN:
		c->rails[call->rail_idx].is_draining = call->want_drain;
		all_pairs(c, call);
		return true;
	case API_HEALTH:
		all_pairs(c, call);
		return true;
	case API_LIMITS:
		set_limits(c, call);
		return true;
	default:
		call->status = RY_ERR_INVALID;
		return true;
	}
}

static void begin_shutdown(struct control *c, struct api_call *call)
{
	c->shutdown = call;
	c->shutdown_deadline_ns = c->now_ns + c->config->drain_ns;
}

static void rail_info(const struct control *c, struct api_call *call)
{
	call->n_rails = c->n_rails;
	for (uint16_t i = 0; i < c->n_rails; i++) {
		const struct rail_ctx *rs = &c->rails[i];

		call->rails[i] = (struct api_rail_info){
			.is_draining = rs->is_draining,
			.is_slow = rs->is_slow,
			.depth_bytes = rs->depth_bytes,
			.inflight_bytes = rs->inflight_bytes,
			.goodput_bytes_per_s = rs->goodput,
			.latency_ns = rs->min_latency_ns,
			.latency_p50_ns = hist_quantile(&rs->latency, 0.5),
			.latency_p99_ns = hist_quantile(&rs->latency, 0.99),
			.corrupt_blamed = rs->corrupt_blamed,
		};
		for (uint16_t p = 0; p < c->n_peers; p++)
			call->rails[i].pairs_up += c->peers[p].is_used && (c->peers[p].rail_mask >> i & 1);
	}
	for (uint16_t p = 0; p < c->n_peers; p++)
		add_qps(&c->peers[p], call);
}

/* A pair's QPs are there until control has said that it is quiesced. */
static void add_qps(const struct peer *p, struct api_call *call)
{
	for (uint32_t k = 0; p->is_used && k < p->n_pairs; k++) {
		const struct pair *pair = p->pairs[k].pair;
		struct api_rail_info *info = &call->rails[pair->rail_idx];

		info->n_qps = RTE_MAX(info->n_qps, pair->n_qps);
		for (uint16_t q = 0; q < pair->n_qps; q++)
			info->qp_rx_bytes[q] += qp_rx_bytes(pair->qps[q]);
	}
}

static void set_limits(struct control *c, struct api_call *call)
{
	admit_set_limits(c, &call->limits);
	call->usage = (struct limits_usage){
		.inflight_bytes = c->inflight_bytes, .n_reads = c->inflight_reads, .n_waiting = c->n_admit_waiting};
	for (uint16_t i = 0; i < c->n_rails; i++)
		call->usage.rail_inflight_bytes[i] = c->rails[i].inflight_bytes;
}

static void all_pairs(const struct control *c, struct api_call *call)
{
	call->n_pairs = 0;
	for (uint16_t s = 0; s < c->config->n_stores; s++)
		configured_pairs(c, s, call);
	for (uint16_t p = c->config->n_stores; p < c->n_peers; p++) {
		if (c->peers[p].is_used)
			accepted_pairs(c, &c->peers[p], call);
	}
}

static void configured_pairs(const struct control *c, uint16_t s, struct api_call *call)
{
	for (uint16_t e = 0; e < layout_n_endpoints(c->config, s); e++) {
		for (uint16_t r = 0; r < c->n_rails && call->n_pairs < API_PAIRS_MAX; r++) {
			struct health_name name = {s, e, r};

			call->n_pairs += configured_pair(c, &name, &call->pairs[call->n_pairs]);
		}
	}
}

/* The preferred one is there whether a connection is or not; another of its rail when it has something to tell. */
static bool configured_pair(const struct control *c, const struct health_name *name, struct api_pair_health *out)
{
	uint16_t breaker = health_breaker(&c->health, name->store_idx, name->endpoint_idx, name->rail_idx);
	const struct rail_ctx *rs = &c->rails[name->rail_idx];
	const struct peer_pair *pp = connected(c, name);

	*out = (struct api_pair_health){
		.rail_idx = name->rail_idx,
		.store_idx = name->store_idx,
		.endpoint_idx = name->endpoint_idx,
		.is_preferred = breaker == health_preferred(&c->health, name->store_idx, name->rail_idx),
		.is_draining = rs->is_draining,
		.is_slow = rs->is_slow,
	};
	out->has_breaker = rail_health_get_report(&c->health.breakers, breaker, c->now_ns, &out->report);
	if (pp)
		connection(c, pp, out);
	return out->has_breaker && (out->is_preferred || pp || out->report.state != RAIL_CLOSED);
}

static const struct peer_pair *connected(const struct control *c, const struct health_name *name)
{
	const struct peer *p = &c->peers[name->store_idx];

	for (uint32_t i = 0; i < p->n_pairs; i++) {
		const struct pair *pair = p->pairs[i].pair;

		if (pair->rail_idx == name->rail_idx && pair->endpoint_idx == name->endpoint_idx)
			return &p->pairs[i];
	}
	return NULL;
}

static void accepted_pairs(const struct control *c, const struct peer *p, struct api_call *call)
{
	for (uint32_t i = 0; i < p->n_pairs && call->n_pairs < API_PAIRS_MAX; i++) {
		struct api_pair_health *out = &call->pairs[call->n_pairs];
		uint16_t r = p->pairs[i].pair->rail_idx;

		if (p->pairs[i].pair->is_self)
			continue; /* the other end of one that is listed */
		call->n_pairs++;
		*out = (struct api_pair_health){.rail_idx = r,
			.store_idx = UINT16_MAX,
			.is_draining = c->rails[r].is_draining,
			.is_slow = c->rails[r].is_slow};
		connection(c, &p->pairs[i], out);
	}
}

static void connection(const struct control *c, const struct peer_pair *pp, struct api_pair_health *out)
{
	const struct path *path = &c->paths[pp->pair->idx];
	const struct health_conn *hc = &c->health.conns[pp->pair->idx];
	const struct peer_pair *used = &c->peers[peer_of_pair(c, pp->pair->idx, pp->epoch)].by_rail[pp->pair->rail_idx];

	memcpy(out->node_name, pp->pair->node_name, sizeof(out->node_name));
	/* A path that was given up is not connected any more, whatever its sockets say. */
	out->is_connected = hc->epoch == pp->epoch && !path->is_killed;
	out->is_proven = out->is_connected && hc->is_proven;
	out->is_suspect = path->is_suspect;
	out->segment_deadline_ns = path_limit_ns(c, path, c->config->segment_bytes);
	out->is_eligible = path_is_eligible(c, pp);
	out->is_in_use = used->epoch == pp->epoch && used->pair == pp->pair;
}
