/* SPDX-License-Identifier: BSD-3-Clause */
#include "wire/wire.h"

#include <string.h>

#include <railyard/ring.h>
#include <railyard/status.h>

static bool is_zero(const void *p, size_t n);
static bool is_terminated(const char *text, size_t n);
static bool is_name(const char *text, size_t n);
static uint32_t pad8(uint32_t n);
static bool hello_limits_ok(const struct wire_hello *h);
static bool header_ok(const struct wire_meta *h, uint32_t len);
static bool key_ok(const void *msg, uint32_t len, uint32_t fixed, uint32_t key_bytes);
static bool lookup_ok(const void *msg, uint32_t len);
static bool lookup_reply_ok(const void *msg, uint32_t len);
static bool put_ok(const void *msg, uint32_t len);
static bool put_part_ok(const struct wire_put *m);
static bool put_done_ok(const void *msg, uint32_t len);
static bool put_query_ok(const void *msg, uint32_t len);
static bool delete_ok(const void *msg, uint32_t len);
static bool list_ok(const void *msg, uint32_t len);
static bool list_reply_ok(const void *msg, uint32_t len);
static bool bye_ok(const void *msg, uint32_t len);
static bool qps_ok(const void *msg, uint32_t len);
static bool error_ok(const void *msg, uint32_t len);
static void fill_header(void *buf, uint16_t type, uint32_t bytes, uint64_t request_id);
static void copy_key(void *buf, uint32_t fixed, const void *key, uint16_t key_bytes);

#define PUT_FLAGS ((uint32_t)(RY_F_PUT_BEGIN | RY_F_PUT_COMMIT | RY_F_IF_ABSENT))
/* ERROR answers a request and PUT_DONE may answer one with an error: these carry a status. Requests carry 0. */
#define CARRIES_STATUS true
#define IS_REQUEST false

/* One row per type: size of the fixed part, whether `status` may be set, and what else must hold (NULL: the length is
 * exact, no more). */
struct meta_row {
	uint32_t fixed_bytes;
	bool has_status;
	uint32_t flags;
	bool (*is_ok)(const void *msg, uint32_t len);
};

static const struct meta_row meta_rows[] = {
	[WIRE_META_LOOKUP] = {sizeof(struct wire_lookup), IS_REQUEST, 0, lookup_ok},
	[WIRE_META_LOOKUP_REPLY] = {sizeof(struct wire_lookup_reply), CARRIES_STATUS, 0, lookup_reply_ok},
	[WIRE_META_PUT] = {sizeof(struct wire_put), IS_REQUEST, PUT_FLAGS, put_ok},
	[WIRE_META_PUT_DONE] = {sizeof(struct wire_put_done), CARRIES_STATUS, 0, put_done_ok},
	[WIRE_META_DELETE] = {sizeof(struct wire_delete), IS_REQUEST, 0, delete_ok},
	[WIRE_META_DELETE_REPLY] = {sizeof(struct wire_delete_reply), CARRIES_STATUS, 0, NULL},
	[WIRE_META_LIST] = {sizeof(struct wire_list), IS_REQUEST, 0, list_ok},
	[WIRE_META_LIST_REPLY] = {sizeof(struct wire_list_reply), CARRIES_STATUS, 0, list_reply_ok},
	[WIRE_META_PUT_QUERY] = {sizeof(struct wire_put_query), IS_REQUEST, 0, put_query_ok},
	[WIRE_META_ERROR] = {sizeof(struct wire_meta), CARRIES_STATUS, 0, error_ok},
	[WIRE_META_READY] = {sizeof(struct wire_meta), IS_REQUEST, 0, NULL},
	[WIRE_META_BYE] = {sizeof(struct wire_bye), IS_REQUEST, 0, bye_ok},
	[WIRE_META_KEEPALIVE] = {sizeof(struct wire_meta), IS_REQUEST, 0, NULL},
	[WIRE_META_KEEPALIVE_REPLY] = {sizeof(struct wire_meta), IS_REQUEST, 0, NULL},
	[WIRE_META_QPS] = {sizeof(struct wire_qps), IS_REQUEST, 0, qps_ok},
};

static bool is_zero(const void *p, size_t n)
{
	const uint8_t *b = p;

	for (size_t i = 0; i < n; i++)
		if (b[i])
			return false;
	return true;
}

static bool is_terminated(const char *text, size_t n)
{
	return memchr(text, 0, n) != NULL;
}

/* What a configuration can hold, and what logs and JSON can show: printable ASCII without blanks, ended by a NUL. */
static bool is_name(const char *text, size_t n)
{
	if (!is_terminated(text, n))
		return false;
	while (*text > ' ' && *text < 0x7f)
		text++;
	return !*text;
}

static uint32_t pad8(uint32_t n)
{
	return (n + 7u) & ~7u;
}

/* Magic and version come first: behind another major nothing else has a known place. */
int wire_hello_check(const struct wire_hello *hello)
{
	if (hello->magic != WIRE_MAGIC)
		return RY_ERR_PROTOCOL;
	if (hello->major != WIRE_MAJOR)
		return RY_ERR_VERSION;
	if (hello->kind != WIRE_CONN_BOOTSTRAP && hello->kind != WIRE_CONN_DATA)
		return RY_ERR_PROTOCOL;
	if (hello->transport < WIRE_TRANSPORT_TCP || hello->transport > WIRE_TRANSPORT_MOCK)
		return RY_ERR_PROTOCOL;
	if (hello->rail_idx >= RY_RAILS_MAX || hello->status >= RY_STATUS_MAX_)
		return RY_ERR_PROTOCOL;
	if (hello->reserved0 || !is_zero(hello->reserved, sizeof(hello->reserved)))
		return RY_ERR_PROTOCOL;
	if (!is_name(hello->node_name, sizeof(hello->node_name)) ||
		!is_name(hello->rail_name, sizeof(hello->rail_name)))
		return RY_ERR_PROTOCOL;
	return hello_limits_ok(hello) ? RY_OK : RY_ERR_PROTOCOL;
}

/* A refusal (status set) tells why and need not offer anything. What this version sends must fit. */
static bool hello_limits_ok(const struct wire_hello *h)
{
	if (h->status != RY_OK)
		return true;
	if (!h->n_qps || !h->read_credits || h->max_parts < WIRE_PARTS_MAX || h->max_data_bytes < WIRE_DATA_MAX_BYTES ||
		h->max_msg_bytes < WIRE_MSG_BYTES)
		return false;
	return h->kind != WIRE_CONN_DATA || h->qp_idx < h->n_qps;
}

int wire_meta_check(const void *msg, uint32_t len)
{
	const struct meta_row *row;
	struct wire_meta h;

	if (len < sizeof(h) || len > WIRE_META_MAX_BYTES)
		return RY_ERR_PROTOCOL;
	memcpy(&h, msg, sizeof(h));
	if (!header_ok(&h, len))
		return RY_ERR_PROTOCOL;
	row = &meta_rows[h.type];
	if (row->is_ok)
		return row->is_ok(msg, len) ? RY_OK : RY_ERR_PROTOCOL;
	return len == row->fixed_bytes ? RY_OK : RY_ERR_PROTOCOL;
}

static bool header_ok(const struct wire_meta *h, uint32_t len)
{
	const struct meta_row *row;

	if (h->len_bytes != len - sizeof(h->len_bytes) || h->reserved)
		return false;
	if (h->type >= sizeof(meta_rows) / sizeof(meta_rows[0]))
		return false;
	row = &meta_rows[h->type];
	if (!row->fixed_bytes || len < row->fixed_bytes || (h->flags & ~row->flags))
		return false;
	if (h->type == WIRE_META_PUT)
		return true; /* any rails may be avoided */
	return row->has_status ? h->status < RY_STATUS_MAX_ : h->status == RY_OK;
}

/* The key (1 to RY_KEY_MAX_BYTES bytes) is all that follows the fixed part. */
static bool key_ok(const void *msg, uint32_t len, uint32_t fixed, uint32_t key_bytes)
{
	return key_bytes > 0 && key_bytes <= RY_KEY_MAX_BYTES && len == fixed + key_bytes;
}

static bool lookup_ok(const void *msg, uint32_t len)
{
	const struct wire_lookup *m = msg;

	return !m->reserved && m->first_stripe < RY_STRIPES_MAX && key_ok(msg, len, sizeof(*m), m->key_bytes);
}

/* Only the page's own arithmetic; whether the geometry makes sense is the descriptor's check
 * (RY_ERR_INVALID_DESCRIPTOR). */
static bool lookup_reply_ok(const void *msg, uint32_t len)
{
	const struct wire_lookup_reply *m = msg;
	uint64_t end = (uint64_t)m->first_stripe + m->n_checksums;

	if (m->has_checksums > 1 || !is_zero(m->reserved, sizeof(m->reserved)))
		return false;
	if (m->n_checksums > WIRE_CHECKSUMS_PER_PAGE || end > m->stripe_count)
		return false;
	if (m->n_checksums && (!m->has_checksums || m->h.status != RY_OK))
		return false;
	/* An empty page before the end would make its reader ask for ever. */
	if (!m->n_checksums && m->has_checksums && end < m->stripe_count)
		return false;
	return len == sizeof(*m) + m->n_checksums * sizeof(uint64_t);
}

static bool put_ok(const void *msg, uint32_t len)
{
	const struct wire_put *m = msg;
	uint32_t padded = pad8(m->key_bytes);

	if (m->reserved || m->key_bytes == 0 || m->key_bytes > RY_KEY_MAX_BYTES || !put_part_ok(m))
		return false;
	if (len != sizeof(*m) + padded + m->n_checksums * sizeof(uint64_t))
		return false;
	return is_zero((const uint8_t *)(m + 1) + m->key_bytes, padded - m->key_bytes);
}

/* As many checksums as the part has stripes. */
static bool put_part_ok(const struct wire_put *m)
{
	uint64_t room = (uint64_t)m->n_checksums * m->stripe_bytes;

	if (m->n_checksums > WIRE_CHECKSUMS_PER_PAGE)
		return false;
	if (m->part_bytes == 0)
		return m->n_checksums == 0 && m->source_handle == 0;
	return m->n_checksums > 0 && m->part_bytes <= room && m->part_bytes > room - m->stripe_bytes;
}

static bool put_done_ok(const void *msg, uint32_t len)
{
	const struct wire_put_done *m = msg;

	return len == sizeof(*m) && m->is_committed <= 1 && is_zero(m->reserved, sizeof(m->reserved)) &&
	       is_terminated(m->cause, sizeof(m->cause));
}

/* A key, or none from who knows of no key here. */
static bool put_query_ok(const void *msg, uint32_t len)
{
	(void)msg;
	return len <= sizeof(struct wire_put_query) + RY_KEY_MAX_BYTES;
}

static bool delete_ok(const void *msg, uint32_t len)
{
	const struct wire_delete *m = msg;

	return is_zero(m->reserved, sizeof(m->reserved)) && key_ok(msg, len, sizeof(*m), m->key_bytes);
}

/* A prefix may be empty. */
static bool list_ok(const void *msg, uint32_t len)
{
	const struct wire_list *m = msg;

	return !m->reserved && m->prefix_bytes <= RY_KEY_MAX_BYTES && len == sizeof(*m) + m->prefix_bytes;
}

/* Walks the entries: n_entries of them fill entries_bytes exactly. */
static bool list_reply_ok(const void *msg, uint32_t len)
{
	const struct wire_list_reply *m = msg;
	const uint8_t *p = (const uint8_t *)(m + 1);
	uint32_t left = len - sizeof(*m);
	uint32_t n = 0;

	if (m->entries_bytes != left)
		return false;
	while (left) {
		struct ry_list_entry e;
		uint32_t bytes;

		if (left < sizeof(e))
			return false;
		memcpy(&e, p, sizeof(e));
		bytes = sizeof(e) + pad8(e.key_bytes);
		if (!e.key_bytes || e.key_bytes > RY_KEY_MAX_BYTES || !is_zero(e.reserved, sizeof(e.reserved)) ||
			left < bytes)
			return false;
		if (!is_zero(p + sizeof(e) + e.key_bytes, bytes - sizeof(e) - e.key_bytes))
			return false;
		p += bytes;
		left -= bytes;
		n++;
	}
	return n == m->n_entries;
}

static bool bye_ok(const void *msg, uint32_t len)
{
	const struct wire_bye *m = msg;

	return len == sizeof(*m) && !m->reserved && m->reason >= WIRE_BYE_SHUTDOWN && m->reason <= WIRE_BYE_DRAIN;
}

static bool qps_ok(const void *msg, uint32_t len)
{
	const struct wire_qps *m = msg;

	if (len != sizeof(*m) || m->flags & ~WIRE_QPS_GRANTS || !m->n_qps || m->n_qps > WIRE_QPS_MAX || !m->rd_atomic ||
		m->mtu_bytes < 256)
		return false;
	for (uint32_t i = 0; i < WIRE_QPS_MAX; i++) {
		if ((m->qps[i].qp_num | m->qps[i].psn) > (i < m->n_qps ? 0xffffffu : 0u))
			return false;
	}
	return true;
}

static bool error_ok(const void *msg, uint32_t len)
{
	const struct wire_meta *m = msg;

	return len == sizeof(*m) && m->status != RY_OK;
}

const uint8_t *wire_lookup_key(const struct wire_lookup *m)
{
	return (const uint8_t *)(m + 1);
}

const uint64_t *wire_lookup_checksums(const struct wire_lookup_reply *m)
{
	return (const uint64_t *)(m + 1);
}

const uint8_t *wire_put_key(const struct wire_put *m)
{
	return (const uint8_t *)(m + 1);
}

const uint64_t *wire_put_checksums(const struct wire_put *m)
{
	return (const uint64_t *)(m + 1) + pad8(m->key_bytes) / sizeof(uint64_t);
}

const uint8_t *wire_put_query_key(const struct wire_put_query *m)
{
	return (const uint8_t *)(m + 1);
}

const uint8_t *wire_delete_key(const struct wire_delete *m)
{
	return (const uint8_t *)(m + 1);
}

const uint8_t *wire_list_prefix(const struct wire_list *m)
{
	return (const uint8_t *)(m + 1);
}

static void fill_header(void *buf, uint16_t type, uint32_t bytes, uint64_t request_id)
{
	struct wire_meta *h = buf;

	h->len_bytes = bytes - (uint32_t)sizeof(h->len_bytes);
	h->type = type;
	h->request_id = request_id;
}

static void copy_key(void *buf, uint32_t fixed, const void *key, uint16_t key_bytes)
{
	if (key_bytes)
		memcpy((uint8_t *)buf + fixed, key, key_bytes);
}

uint32_t wire_enc_lookup(void *buf, uint64_t request_id, const void *key, uint16_t key_bytes, uint32_t first_stripe)
{
	struct wire_lookup *m = buf;
	uint32_t bytes = sizeof(*m) + key_bytes;

	if (key_bytes == 0 || key_bytes > RY_KEY_MAX_BYTES)
		return 0;
	memset(m, 0, sizeof(*m));
	fill_header(m, WIRE_META_LOOKUP, bytes, request_id);
	m->first_stripe = first_stripe;
	m->key_bytes = key_bytes;
	copy_key(m, sizeof(*m), key, key_bytes);
	return bytes;
}

uint32_t wire_enc_lookup_reply(void *buf, const struct wire_lookup_reply *fixed, const uint64_t *checksums)
{
	struct wire_lookup_reply *m = buf;
	uint32_t bytes = sizeof(*m) + fixed->n_checksums * sizeof(uint64_t);

	if (fixed->n_checksums > WIRE_CHECKSUMS_PER_PAGE)
		return 0;
	*m = *fixed;
	fill_header(m, WIRE_META_LOOKUP_REPLY, bytes, fixed->h.request_id);
	if (fixed->n_checksums)
		memcpy(m + 1, checksums, fixed->n_checksums * sizeof(uint64_t));
	return bytes;
}

uint32_t wire_enc_put(void *buf, const struct wire_put *fixed, const void *key, const uint64_t *checksums)
{
	struct wire_put *m = buf;
	uint32_t padded = pad8(fixed->key_bytes);
	uint32_t bytes = sizeof(*m) + padded + fixed->n_checksums * sizeof(uint64_t);

	if (fixed->key_bytes == 0 || fixed->key_bytes > RY_KEY_MAX_BYTES ||
		fixed->n_checksums > WIRE_CHECKSUMS_PER_PAGE)
		return 0;
	*m = *fixed;
	fill_header(m, WIRE_META_PUT, bytes, fixed->h.request_id);
	memset(m + 1, 0, padded);
	copy_key(m, sizeof(*m), key, fixed->key_bytes);
	if (fixed->n_checksums)
		memcpy((uint8_t *)(m + 1) + padded, checksums, fixed->n_checksums * sizeof(uint64_t));
	return bytes;
}

uint32_t wire_enc_put_query(
	void *buf, uint64_t request_id, const uint64_t put_id[2], const void *key, uint16_t key_bytes)
{
	struct wire_put_query *m = buf;
	uint32_t bytes = sizeof(*m) + key_bytes;

	if (key_bytes > RY_KEY_MAX_BYTES)
		return 0;
	memset(m, 0, sizeof(*m));
	fill_header(m, WIRE_META_PUT_QUERY, bytes, request_id);
	memcpy(m->put_id, put_id, sizeof(m->put_id));
	copy_key(m, sizeof(*m), key, key_bytes);
	return bytes;
}

uint32_t wire_enc_delete(void *buf, uint64_t request_id, uint64_t generation, const void *key, uint16_t key_bytes)
{
	struct wire_delete *m = buf;
	uint32_t bytes = sizeof(*m) + key_bytes;

	if (key_bytes == 0 || key_bytes > RY_KEY_MAX_BYTES)
		return 0;
	memset(m, 0, sizeof(*m));
	fill_header(m, WIRE_META_DELETE, bytes, request_id);
	m->generation = generation;
	m->key_bytes = key_bytes;
	copy_key(m, sizeof(*m), key, key_bytes);
	return bytes;
}

uint32_t wire_enc_list(void *buf, uint64_t request_id, uint64_t cursor, uint32_t max_entries, const void *prefix,
	uint16_t prefix_bytes)
{
	struct wire_list *m = buf;
	uint32_t bytes = sizeof(*m) + prefix_bytes;

	if (prefix_bytes > RY_KEY_MAX_BYTES)
		return 0;
	memset(m, 0, sizeof(*m));
	fill_header(m, WIRE_META_LIST, bytes, request_id);
	m->cursor = cursor;
	m->max_entries = max_entries;
	m->prefix_bytes = prefix_bytes;
	copy_key(m, sizeof(*m), prefix, prefix_bytes);
	return bytes;
}

uint32_t wire_enc_fixed(void *buf, uint16_t type, uint32_t bytes, uint64_t request_id, uint32_t status)
{
	struct wire_meta *h = buf;

	if (bytes < sizeof(*h) || bytes > WIRE_META_MAX_BYTES)
		return 0;
	memset(buf, 0, bytes);
	fill_header(buf, type, bytes, request_id);
	h->status = status;
	return bytes;
}
