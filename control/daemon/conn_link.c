/* SPDX-License-Identifier: BSD-3-Clause */
#include "daemon/conn_priv.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>

#include "daemon/log.h"

static void discard(struct conn *c, struct link *l);
static bool is_reading(const struct link *l);
static bool rx_prepare(struct conn *c, struct link *l, uint8_t **at);
static bool rx_some(struct conn *c, struct link *l);
static void rx_done(struct conn *c, struct link *l);
static void rx_restart(struct link *l);
static void head_done(struct conn *c, struct link *l);
static void small_done(struct conn *c, struct link *l);
static void body_done(struct conn *c, struct link *l);
static void refused(struct conn *c, struct link *l);
static void skip_done(struct conn *c, struct link *l);
static bool is_small(uint16_t type);
static bool tx_ctl(struct conn *c, struct link *l);
static bool tx_message(struct conn *c, struct link *l);
static bool tx_failed(struct conn *c, struct link *l);

#define READ_TURN_PARTS 128 /* parts of messages that one link reads in a turn */
#define SCRATCH_BYTES 16384u
#define CTL_ROOM_MIN (2 * LINK_HEAD_BYTES) /* an answer to the next message, and a BYE */

void link_ready(struct conn *c, struct link *l, uint32_t events)
{
	if (l->state == LINK_CONNECTING) {
		dial_connected(c, l);
		return;
	}
	if (events & EPOLLOUT)
		link_write(c, l);
	if (l->io.fd >= 0 && (events & ~(uint32_t)EPOLLOUT))
		link_read(c, l);
}

/* ---- in ---- */

static bool is_reading(const struct link *l)
{
	return l->io.fd >= 0 && l->state >= LINK_HELLO && l->state <= LINK_UP;
}

bool link_read(struct conn *c, struct link *l)
{
	bool did = false;

	if (l->io.fd >= 0 && l->state >= LINK_DRAINING) {
		discard(c, l);
		return true;
	}
	for (int i = 0; i < READ_TURN_PARTS && is_reading(l) && !l->is_fencing; i++) {
		if (!rx_some(c, l))
			break;
		did = true;
	}
	link_watch(c, l);
	return did;
}

/* Our BYE is on its way: unread bytes would turn the close into a reset, which might overtake it. */
static void discard(struct conn *c, struct link *l)
{
	uint8_t scratch[SCRATCH_BYTES];
	ssize_t n = recv(l->io.fd, scratch, sizeof(scratch), 0);

	if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
		io_close(c, &l->io);
}

/* One step: reads once, and handles a part that is complete. false = nothing more for now. */
static bool rx_some(struct conn *c, struct link *l)
{
	uint8_t scratch[SCRATCH_BYTES];
	uint8_t *at = scratch;
	uint32_t room = l->rx_need - l->rx_bytes;
	ssize_t n;

	if (!rx_prepare(c, l, &at))
		return false;
	if (at == scratch && room > sizeof(scratch))
		room = sizeof(scratch);
	n = room ? recv(l->io.fd, at, room, 0) : 0;
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return false;
	if (n < 0 || (n == 0 && room)) {
		l->evidence = error_evidence(n < 0 ? errno : EPIPE);
		link_down(c, l, RY_ERR_RAIL, 0, "%s: %s", l->peer_text, error_text(n < 0 ? errno : EPIPE));
		return true;
	}
	l->rx_bytes += (uint32_t)n;
	l->rx_ns = c->now_ns;
	l->ping_ns = 0;
	if (l->rx_phase == RX_HELLO && l->rx_bytes >= 4 && l->hello.magic != WIRE_MAGIC) {
		l->is_refused = true;
		link_down(c, l, RY_ERR_PROTOCOL, 0, "%s: %s", l->peer_text, error_text(EPROTO));
	} else if (l->rx_bytes == l->rx_need) {
		rx_done(c, l);
	}
	return true;
}

/* Where the next bytes go. false = paused: no buffer for them, or no room for the answer they may need. */
static bool rx_prepare(struct conn *c, struct link *l, uint8_t **at)
{
	l->is_paused = l->rx_phase == RX_HEAD && LINK_CTL_BYTES - l->ctl_bytes < CTL_ROOM_MIN;
	if (l->is_paused)
		return false;
	if (l->rx_phase == RX_HELLO)
		*at = (uint8_t *)&l->hello + l->rx_bytes;
	if (l->rx_phase == RX_HEAD || l->rx_phase == RX_SMALL)
		*at = l->head + l->rx_bytes;
	if (l->rx_phase != RX_BODY)
		return true;
	if (!l->rx) {
		l->rx = buf_take(c, l);
		l->is_paused = !l->rx;
		if (!l->rx)
			return false;
		memcpy(l->rx->data, l->head, sizeof(struct wire_meta));
	}
	*at = l->rx->data + l->rx_bytes;
	return true;
}

static void rx_done(struct conn *c, struct link *l)
{
	switch (l->rx_phase) {
	case RX_HELLO:
		rx_restart(l);
		dial_greeted(c, l);
		break;
	case RX_HEAD:
		head_done(c, l);
		break;
	case RX_SMALL:
		small_done(c, l);
		break;
	case RX_BODY:
		body_done(c, l);
		break;
	default:
		skip_done(c, l);
		break;
	}
}

static void rx_restart(struct link *l)
{
	l->rx_phase = RX_HEAD;
	l->rx_bytes = 0;
	l->rx_need = sizeof(struct wire_meta);
}

static bool is_small(uint16_t type)
{
	return type == WIRE_META_READY || type == WIRE_META_BYE || type == WIRE_META_KEEPALIVE ||
	       type == WIRE_META_KEEPALIVE_REPLY || type == WIRE_META_QPS;
}

/* The fixed header is here: decide where the rest goes. */
static void head_done(struct conn *c, struct link *l)
{
	const struct wire_meta *h = &l->meta;
	uint64_t total = (uint64_t)h->len_bytes + sizeof(h->len_bytes);

	if (total < sizeof(*h) || total > WIRE_META_LIMIT_BYTES || (is_small(h->type) && total > LINK_HEAD_BYTES)) {
		link_bye(c, l, WIRE_BYE_PROTOCOL, RY_ERR_PROTOCOL, "%s sent a message of type %u with length %u",
			l->peer_text, h->type, h->len_bytes);
		return;
	}
	l->rx_need = (uint32_t)total;
	if (is_small(h->type))
		l->rx_phase = RX_SMALL;
	else
		l->rx_phase = total <= WIRE_META_MAX_BYTES ? RX_BODY : RX_SKIP;
	if (l->rx_phase == RX_SMALL && l->rx_bytes == l->rx_need)
		small_done(c, l);
}

static void small_done(struct conn *c, struct link *l)
{
	const struct wire_meta *h = &l->meta;
	uint64_t request_id = h->request_id;
	uint16_t type = h->type;
	uint32_t reason;

	if (wire_meta_check(l->head, l->rx_need) || (type == WIRE_META_READY && l->is_ready_seen) ||
		(type == WIRE_META_QPS && link_qps_told(c, l, &l->qps))) {
		link_bye(c, l, WIRE_BYE_PROTOCOL, RY_ERR_PROTOCOL, "%s sent a bad message of type %u", l->peer_text,
			type);
		return;
	}
	rx_restart(l);
	switch (type) {
	case WIRE_META_READY:
		l->is_ready_seen = true;
		link_step(c, l);
		break;
	case WIRE_META_QPS:
		link_step(c, l);
		break;
	case WIRE_META_BYE:
		reason = l->bye.reason;
		l->want_redial = reason == WIRE_BYE_REBUILD;
		link_down(c, l, RY_ERR_RAIL, (uint8_t)reason, "%s said goodbye: %s", l->peer_text,
			bye_text((uint8_t)reason));
		break;
	case WIRE_META_KEEPALIVE:
		link_put_small(c, l, WIRE_META_KEEPALIVE_REPLY, request_id, RY_OK);
		link_write(c, l);
		break;
	default:
		break;
	}
}

/* A whole message for control. What fails its check is answered with ERROR; a bad answer becomes an ERROR for our own
 * request. */
static void body_done(struct conn *c, struct link *l)
{
	struct meta_buf *b = l->rx;
	const struct wire_meta *h = (const void *)b->data;
	bool is_bad = wire_meta_check(b->data, l->rx_need) != RY_OK;

	if (l->state != LINK_UP) {
		link_bye(c, l, WIRE_BYE_PROTOCOL, RY_ERR_PROTOCOL, "%s sent metadata before READY", l->peer_text);
		return;
	}
	b->len_bytes = l->rx_need;
	l->rx = NULL;
	rx_restart(l);
	if (is_bad)
		refused(c, l);
	if (is_bad && !meta_is_reply(h->type)) {
		log_debug("conn: %s: message of type %u is not understood", l->peer_text, h->type);
		link_put_small(c, l, WIRE_META_ERROR, h->request_id, RY_ERR_PROTOCOL);
		buf_put(c, b);
		link_write(c, l);
		return;
	}
	if (is_bad)
		b->len_bytes = wire_enc_fixed(
			b->data, WIRE_META_ERROR, sizeof(struct wire_meta), h->request_id, RY_ERR_PROTOCOL);
	b->pair_idx = l->idx;
	b->pair_epoch = l->pair.epoch;
	b->op = NULL;
	queue_emit(c, &b->m, MSG_META_RX);
}

/* Counted here, and told to the log with the data messages that are not allowed: news_odd. */
static void refused(struct conn *c, struct link *l)
{
	l->n_refused++;
	stat_add(&c->deps.counters->messages_refused, 1);
}

bool meta_is_reply(uint16_t type)
{
	return type == WIRE_META_LOOKUP_REPLY || type == WIRE_META_PUT_DONE || type == WIRE_META_DELETE_REPLY ||
	       type == WIRE_META_LIST_REPLY || type == WIRE_META_ERROR;
}

static void skip_done(struct conn *c, struct link *l)
{
	const struct wire_meta *h = &l->meta;

	refused(c, l);
	log_debug("conn: %s: message of %u bytes is larger than this version accepts", l->peer_text, l->rx_need);
	if (!meta_is_reply(h->type))
		link_put_small(c, l, WIRE_META_ERROR, h->request_id, RY_ERR_LIMIT);
	rx_restart(l);
	link_write(c, l);
}

/* ---- out ---- */

bool link_put_bytes(struct conn *c, struct link *l, const void *bytes, uint32_t len_bytes)
{
	if (LINK_CTL_BYTES - l->ctl_bytes < len_bytes || l->io.fd < 0)
		return false;
	if (!link_has_output(l))
		l->tx_ns = c->now_ns;
	for (uint32_t i = 0; i < len_bytes; i++)
		l->ctl[(l->ctl_head + l->ctl_bytes++) % LINK_CTL_BYTES] = ((const uint8_t *)bytes)[i];
	return true;
}

bool link_put_small(struct conn *c, struct link *l, enum wire_meta_type type, uint64_t request_id, uint32_t status)
{
	alignas(8) uint8_t m[LINK_HEAD_BYTES];
	uint32_t len = wire_enc_fixed(m, (uint16_t)type, sizeof(struct wire_meta), request_id, status);

	return link_put_bytes(c, l, m, len);
}

bool link_put_bye(struct conn *c, struct link *l, enum wire_bye_reason reason)
{
	struct wire_bye m;

	wire_enc_fixed(&m, WIRE_META_BYE, sizeof(m), 0, RY_OK);
	m.reason = reason;
	return link_put_bytes(c, l, &m, sizeof(m));
}

void link_submit(struct conn *c, struct meta_buf *b)
{
	struct link *l = &c->links[b->pair_idx % PAIRS_MAX];
	bool is_own = buf_is_own(c, b);

	assert(b->pair_idx < PAIRS_MAX && b->len_bytes >= sizeof(struct wire_meta) &&
		b->len_bytes <= WIRE_META_MAX_BYTES);
	if (!is_own)
		c->n_tx_held++;
	if (l->state != LINK_UP || l->pair.epoch != b->pair_epoch || (!is_own && l->n_tx == LINK_TX_MAX)) {
		buf_return(c, b, false);
		return;
	}
	if (!link_has_output(l))
		l->tx_ns = c->now_ns;
	l->out[(l->out_head + l->n_out++) % LINK_OUT_MAX] = b;
	l->n_tx += !is_own;
	if (l->twin)
		self_write(c, l);
	else if (!(l->io.events & EPOLLOUT))
		link_write(c, l);
}

bool link_write(struct conn *c, struct link *l)
{
	bool did = false;

	while (l->io.fd >= 0 && l->state != LINK_CONNECTING && !l->tx_error && link_has_output(l)) {
		/* A message that was begun is finished first; our own small ones go before the next. */
		bool more = l->tx_bytes || !l->ctl_bytes ? tx_message(c, l) : tx_ctl(c, l);

		if (!more)
			break;
		l->tx_ns = c->now_ns;
		did = true;
	}
	link_watch(c, l);
	return did;
}

static bool tx_ctl(struct conn *c, struct link *l)
{
	uint32_t run = LINK_CTL_BYTES - l->ctl_head;
	ssize_t n;

	if (run > l->ctl_bytes)
		run = l->ctl_bytes;
	n = send(l->io.fd, l->ctl + l->ctl_head, run, MSG_NOSIGNAL);
	if (n < 0)
		return tx_failed(c, l);
	l->ctl_head = (l->ctl_head + (uint32_t)n) % LINK_CTL_BYTES;
	l->ctl_bytes -= (uint32_t)n;
	return true;
}

static bool tx_message(struct conn *c, struct link *l)
{
	struct meta_buf *b = l->out[l->out_head];
	ssize_t n = send(l->io.fd, b->data + l->tx_bytes, b->len_bytes - l->tx_bytes, MSG_NOSIGNAL);

	if (n < 0)
		return tx_failed(c, l);
	l->tx_bytes += (uint32_t)n;
	if (l->tx_bytes < b->len_bytes)
		return true;
	l->tx_bytes = 0;
	l->out_head = (l->out_head + 1) % LINK_OUT_MAX;
	l->n_out--;
	l->n_tx -= !buf_is_own(c, b);
	buf_return(c, b, true);
	return true;
}

/*
 * Always false, for its callers' convenience. The link ends in link_step and not here: what the peer said before it
 * closed, a BYE above all, tells more than our error does, and reading from here would nest as deep as there are
 * messages.
 */
static bool tx_failed(struct conn *c, struct link *l)
{
	if (errno == EAGAIN || errno == EINTR)
		return false;
	if (l->state >= LINK_DRAINING)
		io_close(c, &l->io);
	else
		l->tx_error = errno;
	return false;
}

void link_drop_output(struct conn *c, struct link *l, bool want_partial)
{
	uint32_t n_keep = want_partial && l->tx_bytes ? 1 : 0;

	while (l->n_out > n_keep) {
		struct meta_buf *b = l->out[(l->out_head + l->n_out - 1) % LINK_OUT_MAX];

		l->n_out--;
		l->n_tx -= !buf_is_own(c, b);
		buf_return(c, b, false);
	}
	if (!n_keep)
		l->tx_bytes = 0;
}

void link_watch(struct conn *c, struct link *l)
{
	uint32_t events = 0;

	if (l->io.fd < 0)
		return;
	if (l->state == LINK_CONNECTING)
		events = EPOLLOUT;
	else if (l->state > LINK_UP || !l->is_paused)
		events = EPOLLIN;
	if (l->state != LINK_CONNECTING && !l->tx_error && link_has_output(l))
		events |= EPOLLOUT;
	io_watch(c, &l->io, events);
}
