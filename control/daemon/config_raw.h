/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The configuration as text: what libcyaml fills before any value is looked at. Inside the loader only.
 *
 * Every value is kept as the text that stands in the file, because a number alone cannot tell whether its unit was
 * given.
 */
#ifndef RY_CONFIG_RAW_H
#define RY_CONFIG_RAW_H

#include "config_keys.def"
#include "daemon/config_problem.h"

#ifdef __cplusplus
extern "C" {
#endif

#define RAW_FIELD(key, field, kind, def, least, most, change, help) char *key;

struct raw_endpoint {
	CONFIG_ENDPOINT_KEYS(RAW_FIELD)
};

struct raw_store {
	CONFIG_STORES_KEYS(RAW_FIELD)
	struct raw_endpoint *endpoints;
	uint32_t n_endpoints;
};

struct raw_rail {
	CONFIG_RAIL_KEYS(RAW_FIELD)
};

struct raw_reader {
	CONFIG_READER_KEYS(RAW_FIELD)
};

struct raw_store_role {
	CONFIG_STORE_KEYS(RAW_FIELD)
};

struct raw_timeouts {
	CONFIG_TIMEOUT_KEYS(RAW_FIELD)
};

struct raw_health {
	CONFIG_HEALTH_KEYS(RAW_FIELD)
};

struct raw_config {
	CONFIG_NODE_KEYS(RAW_FIELD)
	char **roles;
	uint32_t n_roles;
	struct raw_rail *rails;
	uint32_t n_rails;
	struct raw_store *stores;
	uint32_t n_stores;
	struct raw_reader reader;
	struct raw_store_role store;
	struct raw_health health;
	struct raw_timeouts timeouts;
};

#undef RAW_FIELD

/* Parses by schema, unknown keys ignored. 0, or -errno with a problem added. *out is released with config_raw_free. */
int config_raw_load(const char *path, struct raw_config **out, struct problems *p);
void config_raw_free(struct raw_config *raw);

#ifdef __cplusplus
}
#endif
#endif
