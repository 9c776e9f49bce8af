/* SPDX-License-Identifier: BSD-3-Clause */
/* The store's answers to metadata requests of peers. A request's buffer becomes its answer. */
#include "read/control_priv.h"

static void serve_lookup(struct control *c, struct meta_buf *b);
static void serve_delete(struct control *c, struct meta_buf *b);
static void serve_list(struct control *c, struct meta_buf *b);
static void reply_fixed(struct control *c, struct meta_buf *b, uint16_t type, uint32_t bytes, uint32_t status);

void meta_serve(struct control *c, uint16_t peer_idx, struct meta_buf *b)
{
	const struct wire_meta *h = (const void *)b->data;

	if (!c->d.store) {
		reply_fixed(c, b, WIRE_META_ERROR, sizeof(struct wire_meta), RY_ERR_DENIED);
		return;
	}
	switch (h->type) {
	case WIRE_META_LOOKUP:
		serve_lookup(c, b);
		break;
	case WIRE_META_DELETE:
		serve_delete(c, b);
		break;
	case WIRE_META_LIST:
		serve_list(c, b);
		break;
	case WIRE_META_PUT:
		put_serve(c, peer_idx, b);
		break;
	case WIRE_META_PUT_QUERY:
		put_serve_query(c, b);
		break;
	default:
		reply_fixed(c, b, WIRE_META_ERROR, sizeof(struct wire_meta), RY_ERR_PROTOCOL);
	}
}

static void reply_fixed(struct control *c, struct meta_buf *b, uint16_t type, uint32_t bytes, uint32_t status)
{
	uint64_t id = meta_head(b)->request_id;

	meta_reply(c, b, wire_enc_fixed(b->data, type, bytes, id, status));
}

static void serve_lookup(struct control *c, struct meta_buf *b)
{
	const struct wire_lookup *m = (const void *)b->data;
	struct object *o = store_lookup(c->d.store, wire_lookup_key(m), m->key_bytes, c->now_ns);
	struct wire_lookup_reply r = {.h = {.request_id = m->h.request_id}, .first_stripe = m->first_stripe};

	if (!o || m->first_stripe > o->n_stripes) {
		reply_fixed(c, b, WIRE_META_LOOKUP_REPLY, sizeof(r), RY_ERR_NOT_FOUND);
		return;
	}
	r.handle = o->source->handle;
	r.generation = o->generation;
	r.etag = o->etag;
	r.layout_version = 1;
	r.size_bytes = o->size_bytes;
	r.ttl_ns = o->expires_ns ? o->expires_ns - c->now_ns : 0;
	r.stripe_bytes = o->stripe_bytes;
	r.stripe_count = o->n_stripes;
	r.has_checksums = 1;
	r.n_checksums = RTE_MIN(o->n_stripes - m->first_stripe, WIRE_CHECKSUMS_PER_PAGE);
	meta_reply(c, b, wire_enc_lookup_reply(b->data, &r, o->checksums + m->first_stripe));
}

static void serve_delete(struct control *c, struct meta_buf *b)
{
	const struct wire_delete *m = (const void *)b->data;
	uint64_t deleted = 0;
	uint32_t status =
		store_delete(c->d.store, wire_delete_key(m), m->key_bytes, m->generation, c->now_ns, &deleted);

	uint64_t id = m->h.request_id;
	uint32_t len = wire_enc_fixed(b->data, WIRE_META_DELETE_REPLY, sizeof(struct wire_delete_reply), id, status);

	((struct wire_delete_reply *)(void *)b->data)->generation = deleted;
	meta_reply(c, b, len);
}

static void serve_list(struct control *c, struct meta_buf *b)
{
	const struct wire_list *m = (const void *)b->data;
	struct wire_list_reply *r = (void *)b->data;
	uint32_t max = m->max_entries ? m->max_entries : UINT32_MAX, n = 0, bytes, len;
	uint64_t cursor = m->cursor, id = m->h.request_id;
	uint16_t prefix_bytes = m->prefix_bytes;
	uint8_t prefix[RY_KEY_MAX_BYTES];

	memcpy(prefix, wire_list_prefix(m), prefix_bytes);
	len = wire_enc_fixed(b->data, WIRE_META_LIST_REPLY, sizeof(*r), id, RY_OK);
	bytes = store_list(c->d.store, prefix, prefix_bytes, &cursor, max, b->data + sizeof(*r),
		WIRE_META_MAX_BYTES - sizeof(*r), c->now_ns, &n);
	r->cursor = cursor;
	r->n_entries = n;
	r->entries_bytes = bytes;
	r->h.len_bytes += bytes;
	meta_reply(c, b, len + bytes);
}
