/* SPDX-License-Identifier: BSD-3-Clause */
#include "daemon/conn_priv.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static bool step_join(struct conn *c, struct link *l);
static bool adopt_qps(struct conn *c, struct link *l, bool *did);
static void say_ready(struct conn *c, struct link *l);
static void come_up(struct conn *c, struct link *l);
static bool step_up(struct conn *c, struct link *l);
static bool keepalive(struct conn *c, struct link *l);
static uint64_t ping_wait_ns(const struct conn *c);
static int failed_qp(const struct link *l);
static void qp_lost(struct conn *c, struct link *l, int qp_idx);
static uint8_t fail_status(const struct link *l, int qp_idx);
static const char *wc_text(uint8_t wc_status);
static bool expired(struct conn *c, struct link *l);
static void vdown(
	struct conn *c, struct link *l, enum ry_status status, uint8_t reason, const char *format, va_list args);
static void tell_down(struct conn *c, struct link *l, enum ry_status status, uint8_t reason);
static void report_down(struct conn *c, struct link *l, bool was_up, uint8_t reason);
static bool step_release(struct conn *c, struct link *l);

/* ---- slots ---- */

struct link *link_alloc(struct conn *c, uint16_t rail_idx)
{
	/* From where the last search ended: an index that was just freed rests for as long as possible. */
	for (uint32_t i = 0; i < PAIRS_MAX; i++) {
		uint32_t idx = (c->next_link + i) % PAIRS_MAX;
		struct link *l = &c->links[idx];

		if (l->state != LINK_FREE)
			continue;
		c->next_link = idx + 1;
		memset(l, 0, sizeof(*l));
		l->io = (struct io){.kind = IO_LINK, .fd = -1};
		l->data.io = (struct io){.kind = IO_DATA, .fd = -1};
		l->idx = (uint16_t)idx;
		l->peer_idx = PAIRS_MAX;
		l->deadline_ns = UINT64_MAX;
		l->rx_ns = c->now_ns;
		l->pair.idx = (uint16_t)idx;
		l->pair.rail_idx = rail_idx;
		l->pair.epoch = ++c->next_epoch;
		l->live_pos = (uint16_t)c->n_live;
		c->live[c->n_live++] = (uint16_t)idx;
		return l;
	}
	return NULL;
}

void link_free(struct conn *c, struct link *l)
{
	struct rail *rail = c->deps.rails[l->pair.rail_idx];
	uint16_t last = c->live[c->n_live - 1];

	if (l->io.fd >= 0) {
		link_write(c, l); /* the BYE's last chance */
		io_close(c, &l->io);
	}
	io_close(c, &l->data.io);
	link_drop_output(c, l, false);
	if (l->rx)
		buf_put(c, l->rx);
	l->rx = NULL;
	for (int i = 0; i < (int)PAIR_QPS_MAX; i++) {
		if (l->qp_step[i] != QP_STEP_NONE)
			rail_ops(rail)->pair_close(rail, l->pair.qps[i]);
		l->qp_step[i] = QP_STEP_NONE;
	}
	if (l->peer_idx < PAIRS_MAX)
		c->nodes[l->peer_idx].n_links--;
	if (l->twin)
		l->twin->twin = NULL;
	l->state = LINK_FREE;
	c->live[l->live_pos] = last;
	c->links[last].live_pos = l->live_pos;
	c->n_live--;
	if (l->dialler)
		dialler_ended(c, l->dialler, l);
	else
		info_clear(c, c->n_diallers + l->idx);
}

/* ---- bring-up ---- */

void link_add_qp(struct conn *c, struct link *l, uint16_t qp_idx, int fd)
{
	struct rail *rail = c->deps.rails[l->pair.rail_idx];
	struct qp_request req = {
		.pair_idx = l->idx,
		.peer_idx = l->peer_idx,
		.qp_idx = qp_idx,
		.is_dialler = l->pair.is_dialler,
		.peer_credits = l->peer_credits,
		.fd = fd,
		.loop_peer = l->twin ? l->twin->pair.qps[qp_idx] : NULL,
	};
	int rc = rail_ops(rail)->pair_connect(rail, &req, &l->pair.qps[qp_idx]);

	if (rc < 0) {
		if (fd >= 0)
			close(fd);
		l->pair.qps[qp_idx] = NULL;
		link_condemn(c, l, RAIL_EV_LOCAL, RY_ERR_RAIL, "rail %s: QP %u: %s",
			conn_rail_conf(c, l->pair.rail_idx)->name, qp_idx,
			rail_why_no_qp(rail)[0] ? rail_why_no_qp(rail) : error_text(rc));
		return;
	}
	l->qp_step[qp_idx] = QP_STEP_MADE;
	if (!l->pair.is_self)
		l->deadline_ns = c->now_ns + c->deps.config->connect_timeout_ns + c->deps.config->hello_timeout_ns;
	link_step(c, l);
}

bool link_step(struct conn *c, struct link *l)
{
	if (link_fence(c, l))
		return true;
	if (l->tx_error && l->state <= LINK_UP) {
		link_read(c, l);
		l->evidence = error_evidence(l->tx_error);
		link_down(c, l, RY_ERR_RAIL, 0, "%s: %s", l->peer_text, error_text(l->tx_error));
		return true;
	}
	switch (l->state) {
	case LINK_CONNECTING:
	case LINK_HELLO:
		return expired(c, l);
	case LINK_JOINING:
		return step_join(c, l) || expired(c, l);
	case LINK_UP:
		return step_up(c, l);
	case LINK_RELEASING:
		return step_release(c, l);
	default:
		return false;
	}
}

static bool step_join(struct conn *c, struct link *l)
{
	bool did = false;
	int qp_idx = failed_qp(l);

	if (qp_idx >= 0) {
		qp_lost(c, l, qp_idx);
		return true;
	}
	if (!adopt_qps(c, l, &did))
		return did;
	if (!l->is_ready_sent) {
		say_ready(c, l);
		did = true;
	}
	if (l->state == LINK_JOINING && l->is_ready_seen) {
		come_up(c, l);
		did = true;
	}
	return did;
}

/* Whether every QP of the pair is adopted. */
static bool adopt_qps(struct conn *c, struct link *l, bool *did)
{
	struct rail *rail = c->deps.rails[l->pair.rail_idx];
	bool is_all = true;

	if (rail_attr(rail)->has_addresses && !l->is_addressed) {
		*did = link_join_qps(c, l);
		return false;
	}
	for (uint16_t i = 0; i < l->pair.n_qps; i++) {
		if (l->qp_step[i] == QP_STEP_MADE && rail_adopt(rail, l->pair.qps[i]) == 0) {
			l->qp_step[i] = QP_STEP_ADOPTING;
			*did = true;
		}
		c->want_retry |= l->qp_step[i] == QP_STEP_MADE;
		is_all &= l->qp_step[i] == QP_STEP_ADOPTING && qp_state(l->pair.qps[i]) == QP_ADOPTED;
	}
	return is_all;
}

static void say_ready(struct conn *c, struct link *l)
{
	l->is_ready_sent = true;
	if (l->pair.is_self) {
		l->twin->is_ready_seen = true;
		return;
	}
	l->deadline_ns = c->now_ns + c->deps.config->connect_timeout_ns + c->deps.config->hello_timeout_ns;
	link_put_small(c, l, WIRE_META_READY, 0, RY_OK);
	link_write(c, l);
}

static void come_up(struct conn *c, struct link *l)
{
	struct conn_pair_info *info = l->dialler ? &l->dialler->info : &l->info;

	l->state = LINK_UP;
	l->was_up = true;
	if (!l->dialler && !l->pair.is_self)
		c->n_joining--;
	info->n_connects++;
	info->last_error[0] = 0;
	info_link(c, l);
	news_up(c, l);
	l->up.pair = &l->pair;
	l->up.status = RY_OK;
	queue_emit(c, &l->up.m, MSG_PAIR_UP);
}

static bool expired(struct conn *c, struct link *l)
{
	static const char *const what[] = {
		[LINK_CONNECTING] = "connect",
		[LINK_HELLO] = "hello",
		[LINK_JOINING] = "data sockets and READY",
	};

	if (l->state > LINK_JOINING || c->now_ns < l->deadline_ns)
		return false;
	link_condemn(c, l, RAIL_EV_PATH, RY_ERR_TIMEOUT, "%s %s: no answer within the time-out", what[l->state],
		l->peer_text);
	return true;
}

/* ---- up ---- */

static bool step_up(struct conn *c, struct link *l)
{
	uint64_t dead_ns = c->deps.config->keepalive_dead_ns;
	int qp_idx = failed_qp(l);

	news_odd(c, l);
	if (qp_idx >= 0) {
		/* A peer that closes on purpose said so on this socket before it closed the others. */
		link_read(c, l);
		if (l->state == LINK_UP)
			qp_lost(c, l, qp_idx);
		return true;
	}
	if (l->pair.is_self)
		return self_write(c, l);
	if (l->is_paused && link_read(c, l))
		return true;
	if (link_has_output(l) && dead_ns && c->now_ns - l->tx_ns >= dead_ns) {
		link_condemn(c, l, RAIL_EV_PATH, RY_ERR_RAIL, "%s: takes no bytes any more", l->peer_text);
		return true;
	}
	return keepalive(c, l);
}

/*
 * Death is counted from our own KEEPALIVE, not from the last byte: a host that was suspended, or a thread that got no
 * CPU, wakes up with a late clock and must ask before it judges.
 */
static bool keepalive(struct conn *c, struct link *l)
{
	uint64_t idle_ns = c->deps.config->keepalive_ns;

	/* We do not listen: that is no silence of the peer. */
	if (l->is_paused)
		l->rx_ns = c->now_ns;
	if (!idle_ns || c->now_ns - l->rx_ns < idle_ns)
		return false;
	if (l->ping_ns) {
		if (c->now_ns - l->ping_ns < ping_wait_ns(c))
			return false;
		link_condemn(c, l, RAIL_EV_PATH, RY_ERR_RAIL, "%s: silent for %llu ms", l->peer_text,
			(unsigned long long)((c->now_ns - l->rx_ns) / 1000000));
		return true;
	}
	if (!link_put_small(c, l, WIRE_META_KEEPALIVE, 0, RY_OK))
		return false;
	l->ping_ns = c->now_ns;
	link_write(c, l);
	return true;
}

static uint64_t ping_wait_ns(const struct conn *c)
{
	const struct config *conf = c->deps.config;

	return conf->keepalive_dead_ns > conf->keepalive_ns ? conf->keepalive_dead_ns - conf->keepalive_ns
							    : conf->keepalive_ns;
}

static int failed_qp(const struct link *l)
{
	for (int i = 0; i < (int)l->pair.n_qps; i++) {
		if (l->qp_step[i] == QP_STEP_ADOPTING && qp_state(l->pair.qps[i]) == QP_FAILED)
			return i;
	}
	return -1;
}

/*
 * A QP that did not go with its peer dies by our decision. A local fault under a pair that worked is one of the rail.
 * One of a QP that never worked is not: the rail could not take it, for lack of room say, and goes on with those it
 * has.
 */
static void qp_lost(struct conn *c, struct link *l, int qp_idx)
{
	uint8_t wc_status = fail_status(l, qp_idx);
	const char *rail = conn_rail_conf(c, l->pair.rail_idx)->name;
	enum rail_evidence evidence = health_wc_evidence(wc_status);
	char cause[RY_CAUSE_MAX_BYTES];

	snprintf(cause, sizeof(cause), "rail %s: QP %d to node %s failed: %s", rail, qp_idx, l->pair.node_name,
		wc_text(wc_status));
	if (wc_status == WC_ERR_PEER_CLOSED) {
		l->evidence = (uint8_t)evidence;
		link_down(c, l, RY_ERR_RAIL, 0, "%s", cause);
		return;
	}
	link_condemn(c, l, evidence, RY_ERR_RAIL, "%s", cause);
	if (evidence == RAIL_EV_LOCAL && l->was_up)
		links_drop(c, l->pair.rail_idx, cause);
}

/* Where both ends are here, the one that broke knows more than the one that it left. */
static uint8_t fail_status(const struct link *l, int qp_idx)
{
	uint8_t wc_status = qp_fail_status(l->pair.qps[qp_idx]);
	int at = wc_status == WC_ERR_PEER_CLOSED && l->twin ? failed_qp(l->twin) : -1;

	return at < 0 ? wc_status : qp_fail_status(l->twin->pair.qps[at]);
}

static const char *wc_text(uint8_t wc_status)
{
	static const char *const texts[] = {
		[WC_ERR_PEER_CLOSED] = "closed by the peer",
		[WC_ERR_RETRY] = "retries exceeded",
		[WC_ERR_RNR] = "peer not ready to receive",
		[WC_ERR_ACCESS] = "remote access refused",
		[WC_ERR_LOCAL] = "local fault",
		[WC_ERR_FLUSH] = "flushed after an earlier error",
		[WC_ERR_PROTOCOL] = "protocol broken",
	};
	const char *text = wc_status < sizeof(texts) / sizeof(texts[0]) ? texts[wc_status] : NULL;

	return text ? text : "unknown cause";
}

uint64_t link_next_timer(const struct conn *c, const struct link *l)
{
	const struct config *conf = c->deps.config;
	uint64_t next = UINT64_MAX;

	if (l->state == LINK_UP && !l->pair.is_self) {
		if (conf->keepalive_ns)
			next = l->ping_ns ? l->ping_ns + ping_wait_ns(c) : l->rx_ns + conf->keepalive_ns;
		if (link_has_output(l) && conf->keepalive_dead_ns && l->tx_ns + conf->keepalive_dead_ns < next)
			next = l->tx_ns + conf->keepalive_dead_ns;
	} else if (l->state != LINK_FREE && l->state < LINK_UP) {
		next = l->deadline_ns;
	}
	return next;
}

/* ---- down ---- */

void link_down(struct conn *c, struct link *l, enum ry_status status, uint8_t reason, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vdown(c, l, status, reason, format, args);
	va_end(args);
}

void link_bye(struct conn *c, struct link *l, uint8_t reason, enum ry_status status, const char *format, ...)
{
	va_list args;

	if (l->state < LINK_DRAINING)
		l->is_bye_sent = link_put_bye(c, l, (enum wire_bye_reason)reason);
	va_start(args, format);
	vdown(c, l, status, reason, format, args);
	va_end(args);
}

void link_condemn(
	struct conn *c, struct link *l, enum rail_evidence evidence, enum ry_status status, const char *format, ...)
{
	va_list args;

	if (l->state == LINK_FREE || l->state >= LINK_DRAINING)
		return;
	l->evidence = (uint8_t)evidence;
	/* Before it sees the rest. Before JOINING nobody is there to be told. */
	if ((l->state == LINK_JOINING || l->state == LINK_UP) && !l->pair.is_self)
		l->is_bye_sent = link_put_bye(c, l, WIRE_BYE_REBUILD);
	va_start(args, format);
	vdown(c, l, status, 0, format, args);
	va_end(args);
}

void links_drop(struct conn *c, uint16_t rail_idx, const char *cause)
{
	for (uint32_t i = 0; i < c->n_live; i++) {
		struct link *l = &c->links[c->live[i]];

		if (l->pair.rail_idx == rail_idx)
			link_condemn(c, l, RAIL_EV_LOCAL, RY_ERR_RAIL, "%s", cause);
	}
}

static void vdown(
	struct conn *c, struct link *l, enum ry_status status, uint8_t reason, const char *format, va_list args)
{
	bool was_up = l->state == LINK_UP;

	if (l->state == LINK_FREE || l->state >= LINK_DRAINING)
		return;
	vsnprintf(l->down.cause, sizeof(l->down.cause), format, args);
	if (l->state == LINK_JOINING && !l->dialler && !l->pair.is_self)
		c->n_joining--;
	l->state = was_up ? LINK_DRAINING : LINK_RELEASING;
	report_down(c, l, was_up, reason);
	if (l->dialler)
		l->dialler->status = status;
	/* DOWN before what comes back UNSENT: control must not choose this pair again. */
	if (was_up)
		tell_down(c, l, status, reason);
	io_close(c, &l->data.io);
	if (l->rx)
		buf_put(c, l->rx);
	l->rx = NULL;
	l->is_paused = false;
	link_drop_output(c, l, l->is_bye_sent);
	if (l->is_bye_sent)
		link_write(c, l);
	else
		io_close(c, &l->io);
	if (!l->twin)
		return;
	l->twin->want_redial = l->want_redial;
	l->twin->evidence = l->evidence;
	link_down(c, l->twin, status, reason, "%s", l->down.cause);
}

static void tell_down(struct conn *c, struct link *l, enum ry_status status, uint8_t reason)
{
	l->down.pair = &l->pair;
	l->down.status = status;
	l->down.reason = reason;
	l->down.evidence = l->evidence;
	queue_emit(c, &l->down.m, MSG_PAIR_DOWN);
}

static void report_down(struct conn *c, struct link *l, bool was_up, uint8_t reason)
{
	struct conn_pair_info *info = l->dialler ? &l->dialler->info : &l->info;

	if (was_up)
		news_odd(c, l);
	news_down(c, l, was_up);
	/* The announced end of a pair is no failure, that of an attempt is. */
	info->n_failures += !reason || reason == WIRE_BYE_PROTOCOL || !was_up;
	stat_add(&c->deps.counters->pairs_broken, reason == WIRE_BYE_PROTOCOL);
	memcpy(info->last_error, l->down.cause, sizeof(info->last_error));
	info_link(c, l);
}

void link_quiesced(struct conn *c, struct link *l)
{
	if (l->state != LINK_DRAINING)
		return;
	l->state = LINK_RELEASING;
	link_step(c, l);
}

static bool step_release(struct conn *c, struct link *l)
{
	struct rail *rail = c->deps.rails[l->pair.rail_idx];
	bool is_all = true, did = false;

	for (int i = 0; i < (int)PAIR_QPS_MAX; i++) {
		if (l->qp_step[i] == QP_STEP_ADOPTING) {
			is_all = false;
			if (rail_release(rail, l->pair.qps[i]) == 0) {
				l->qp_step[i] = QP_STEP_RELEASING;
				did = true;
			} else {
				c->want_retry = true;
			}
		} else if (l->qp_step[i] == QP_STEP_RELEASING) {
			is_all &= qp_state(l->pair.qps[i]) == QP_RELEASED;
		}
	}
	if (!is_all)
		return did;
	l->is_released = true;
	/* An end whose other end a rail still looks at stays. */
	if (l->twin && !l->twin->is_released)
		return did;
	link_free(c, l);
	return true;
}

const char *bye_text(uint8_t reason)
{
	static const char *const texts[] = {
		[WIRE_BYE_SHUTDOWN] = "shutdown",
		[WIRE_BYE_REBUILD] = "rebuild",
		[WIRE_BYE_PROTOCOL] = "protocol error",
		[WIRE_BYE_IDLE] = "idle",
		[WIRE_BYE_DRAIN] = "drain",
	};
	const char *text = reason < sizeof(texts) / sizeof(texts[0]) ? texts[reason] : NULL;

	return text ? text : "no reason";
}
