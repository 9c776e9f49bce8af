/* SPDX-License-Identifier: BSD-3-Clause */
#include "api/devices.h"

#include "api/api_priv.h"
#include "rail/rail_ctl.h"

#include <stdio.h>
#include <string.h>

static void describe(json_t *row, const struct rail_device_info *d);
static void set_text(json_t *row, const char *name, const char *text);
static void set_number(json_t *row, const char *name, bool is_known, int64_t value);
static const char *windows_of(const struct rail *rail);
static json_t *sharers(const struct api *api, const struct rail_device_info *devices, uint16_t i);

void devices_describe(const struct api *api, json_t *rows)
{
	struct rail_device_info devices[RY_RAILS_MAX];
	uint16_t n = api->deps.config->n_rails;

	for (uint16_t i = 0; i < n; i++) {
		devices[i] = (struct rail_device_info){.numa_node = -1, .gid_index = -1};
		if (api->deps.rails[i].rail)
			rail_describe(api->deps.rails[i].rail, &devices[i]);
	}
	for (uint16_t i = 0; i < n; i++) {
		json_t *row = json_array_get(rows, i);

		describe(row, &devices[i]);
		set_text(row, "windows", windows_of(api->deps.rails[i].rail));
		json_object_set_new(row, "shares_device_with", sharers(api, devices, i));
	}
}

static void describe(json_t *row, const struct rail_device_info *d)
{
	char pcie[64] = "";

	if (d->pcie_speed[0])
		snprintf(pcie, sizeof(pcie), "%s x%u", d->pcie_speed, d->pcie_width);
	set_text(row, "device", d->device);
	set_number(row, "device_port", d->port != 0, d->port);
	set_text(row, "netdev", d->netdev);
	set_text(row, "gid", d->gid);
	set_number(row, "gid_index", d->gid_index >= 0, d->gid_index);
	set_number(row, "mtu_bytes", d->mtu_bytes != 0, d->mtu_bytes);
	set_number(row, "rd_atomic", d->rd_atomic != 0, d->rd_atomic);
	set_number(row, "qps_per_pair", d->qps_per_pair != 0, d->qps_per_pair);
	set_text(row, "link_speed", d->link_text);
	set_number(row, "link_bytes_per_s", d->link_bytes_per_s != 0, (int64_t)d->link_bytes_per_s);
	set_text(row, "pcie", pcie);
	set_text(row, "pci_address", d->pci_address);
	set_number(row, "numa", d->numa_node >= 0, d->numa_node);
	set_text(row, "driver", d->driver);
	set_text(row, "firmware", d->firmware);
}

static void set_text(json_t *row, const char *name, const char *text)
{
	json_object_set_new(row, name, text[0] ? json_string(text) : json_null());
}

static void set_number(json_t *row, const char *name, bool is_known, int64_t value)
{
	json_object_set_new(row, name, is_known ? json_integer(value) : json_null());
}

/* Who checks that a write is still wanted: the device, we (on our own CPU), or nobody. */
static const char *windows_of(const struct rail *rail)
{
	if (!rail)
		return "";
	if (!rail_attr(rail)->has_windows)
		return "none (quarantine)";
	return rail_attr(rail)->has_device_windows ? "device" : "software";
}

/* Other rails on the same card. */
static json_t *sharers(const struct api *api, const struct rail_device_info *devices, uint16_t i)
{
	json_t *names = json_array();

	for (uint16_t j = 0; j < api->deps.config->n_rails; j++)
		if (j != i && devices[i].card[0] && !strcmp(devices[i].card, devices[j].card))
			json_array_append_new(names, json_string(api->deps.config->rails[j].name));
	return names;
}
