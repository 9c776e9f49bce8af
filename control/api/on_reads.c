/* SPDX-License-Identifier: BSD-3-Clause */
/* reads: pages of the flight recorder, newest first. */
#include "api/api_priv.h"
#include "api/on.h"
#include "read/recorder.h"

#include <stdio.h>
#include <string.h>

#define DEFAULT_ROWS 20u

static json_t *describe(const struct api *api, uint64_t number, const struct record *rec);
static json_t *key_text(const struct record *rec);
static json_t *rails_of(const struct config *c, const struct record *rec);
static const char *class_name(uint8_t read_class);

void on_reads(struct request *r)
{
	const struct recorder *recorder = r->api->deps.recorder;
	uint64_t written = recorder_written(recorder), oldest = recorder_oldest(recorder);
	uint64_t n = RTE_MIN(request_uint(r, "before", written), written);
	size_t most = (size_t)request_uint(r, "max", DEFAULT_ROWS);
	bool want_failed = json_is_true(json_object_get(r->params, "is_failed"));
	json_t *rows = json_array();
	struct record rec;

	while (n > oldest && json_array_size(rows) < most) {
		n--;
		if (recorder_read(recorder, n, &rec) && (rec.status || !want_failed))
			json_array_append_new(rows, describe(r->api, n, &rec));
	}
	request_reply(r, json_pack("{s:I, s:I, s:o}", "recorded", (json_int_t)written, "next_before",
				 (json_int_t)(n > oldest ? n : 0), "reads", rows));
}

static json_t *describe(const struct api *api, uint64_t number, const struct record *rec)
{
	const struct config *c = api->deps.config;
	uint64_t took_ns = rec->finished_ns - rec->started_ns;
	json_t *o = json_pack("{s:I, s:I, s:o, s:s, s:I, s:I, s:s, s:s}", "number", (json_int_t)number, "age_ns",
		(json_int_t)(api->now_ns > rec->finished_ns ? api->now_ns - rec->finished_ns : 0), "key", key_text(rec),
		"store", rec->store_idx < c->n_stores ? c->stores[rec->store_idx].name : "", "bytes",
		(json_int_t)(rec->bytes == UINT64_MAX ? 0 : rec->bytes), "took_ns", (json_int_t)took_ns, "status",
		ry_status_name((enum ry_status)rec->status), "class", class_name(rec->class_own));

	json_object_update_new(
		o, json_pack("{s:I, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "class_share_permille",
			   (json_int_t)rec->class_share_permille, "class_ref", class_name(rec->class_ref), "client_id",
			   (json_int_t)rec->client_id, "offset", (json_int_t)rec->offset, "object_bytes",
			   (json_int_t)rec->object_bytes, "wire_bytes", (json_int_t)rec->wire_bytes, "segments",
			   (json_int_t)rec->n_segments, "queue_ns", (json_int_t)rec->queue_ns, "lookup_ns",
			   (json_int_t)rec->lookup_ns, "plan_ns", (json_int_t)rec->plan_ns));
	json_object_update_new(
		o, json_pack("{s:I, s:I, s:I, s:I, s:I, s:b, s:b, s:b, s:o}", "transfer_ns",
			   (json_int_t)rec->transfer_ns, "verify_ns", (json_int_t)rec->verify_ns, "commit_ns",
			   (json_int_t)rec->commit_ns, "storage_ns", (json_int_t)rec->storage_ns, "store_queue_ns",
			   (json_int_t)rec->store_queue_ns, "verified", (int)rec->is_verified, "failover",
			   (int)rec->is_failover, "one_rail", (int)rec->is_one_rail, "rails", rails_of(c, rec)));
	json_object_set_new(o, "lookup", json_boolean(rec->is_lookup));
	json_object_set_new(o, "bad_rail", json_string(rec->bad_rail < c->n_rails ? c->rails[rec->bad_rail].name : ""));
	json_object_set_new(o, "cause", json_string(rec->status ? rec->cause : "") ?: json_string(""));
	return o;
}

/* Its first bytes, as text; other bytes as \xNN, because a record cuts where it likes. */
static json_t *key_text(const struct record *rec)
{
	uint32_t n = RTE_MIN(rec->key_bytes, RECORDER_KEY_BYTES), used = 0;
	char text[4 * RECORDER_KEY_BYTES + 4];

	for (uint32_t i = 0; i < n; i++) {
		bool is_plain = rec->key[i] >= 0x20 && rec->key[i] < 0x7f && rec->key[i] != '\\';

		used += (uint32_t)snprintf(text + used, sizeof(text) - used, is_plain ? "%c" : "\\x%02x", rec->key[i]);
	}
	snprintf(text + used, sizeof(text) - used, "%s", rec->key_bytes > n ? "..." : "");
	return json_string(text);
}

static json_t *rails_of(const struct config *c, const struct record *rec)
{
	json_t *rows = json_array();
	uint32_t mask = rec->rail_mask;

	for (uint32_t i = 0; mask && i < RY_RAILS_MAX; i++, mask &= mask - 1) {
		int r = __builtin_ctz(mask);

		if (r < c->n_rails)
			json_array_append_new(rows, json_pack("{s:s, s:I}", "name", c->rails[r].name, "bytes",
							    (json_int_t)rec->rail_bytes[i]));
	}
	return rows;
}

static const char *class_name(uint8_t read_class)
{
	static const char *const names[] = {"unknown", "network", "storage", "software"};

	return read_class < sizeof(names) / sizeof(names[0]) ? names[read_class] : names[0];
}
