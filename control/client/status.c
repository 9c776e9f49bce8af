/* SPDX-License-Identifier: BSD-3-Clause */
/* Names and texts of every status; linked into the client library, the daemon and the tools. */
#include <railyard/status.h>

struct status_row {
	const char *name;
	const char *text;
};

static const struct status_row rows[RY_STATUS_MAX_] = {
	[RY_OK] = {"OK", "success"},
	[RY_ERR_NO_RAIL] = {"NO_RAIL",
		"no eligible rail reaches the object's store: see `railyard rails` for the reason of each"},
	[RY_ERR_BUDGET] = {"BUDGET",
		"a budget is spent or too small for this request: retry, read a smaller range, or raise the limit"},
	[RY_ERR_TIMEOUT] = {"TIMEOUT", "the deadline passed before every byte was verified"},
	[RY_ERR_CANCELLED] = {"CANCELLED", "the request was cancelled"},
	[RY_ERR_RAIL] = {"RAIL", "a rail failed while it carried part of the request: retry, other rails carry on"},
	[RY_ERR_INCOMPLETE] = {"INCOMPLETE", "fewer bytes arrived than the store promised"},
	[RY_ERR_CHECKSUM] = {"CHECKSUM", "a stripe does not match its checksum; nothing was delivered"},
	[RY_ERR_STALE_GENERATION] = {"STALE_GENERATION",
		"the object was replaced, deleted or has expired meanwhile: retry to read what is there now"},
	[RY_ERR_NOT_FOUND] = {"NOT_FOUND", "no such object"},
	[RY_ERR_BUFFER_TOO_SMALL] = {"BUFFER_TOO_SMALL",
		"the buffer or the client's arena cannot hold the result: read by range"},
	[RY_ERR_INVALID_DESCRIPTOR] = {"INVALID_DESCRIPTOR",
		"the object's descriptor contradicts itself or has no checksums"},
	[RY_ERR_PEER_RESTARTED] = {"PEER_RESTARTED", "the store was restarted: retry, the object may be gone"},
	[RY_ERR_EXISTS] = {"EXISTS", "the key exists already"},
	[RY_ERR_NO_SPACE] = {"NO_SPACE", "the store is full: delete objects or raise store.memory"},
	[RY_ERR_LIMIT] = {"LIMIT", "a configured count limit is reached"},
	[RY_ERR_UNKNOWN_OUTCOME] = {"UNKNOWN_OUTCOME", "the answer to the put was lost: ask again with its put id"},
	[RY_ERR_PROTOCOL] = {"PROTOCOL",
		"the other side sent what the protocol forbids: compare the versions of both sides"},
	[RY_ERR_VERSION] = {"VERSION", "no common protocol version: upgrade the older side"},
	[RY_ERR_DENIED] = {"DENIED", "not permitted"},
	[RY_ERR_BUSY] = {"BUSY", "the store is over its limits; the request is tried again"},
	[RY_ERR_DETACHED] = {"DETACHED", "the client, arena or region is not attached any more: attach again"},
	[RY_ERR_INTERNAL] = {"INTERNAL", "a mistake inside Railyard: please report it with the daemon's log"},
	[RY_ERR_INVALID] = {"INVALID", "an argument is outside its documented range"},
};

const char *ry_status_name(enum ry_status status)
{
	return (unsigned)status < RY_STATUS_MAX_ ? rows[status].name : "UNKNOWN";
}

const char *ry_status_text(enum ry_status status)
{
	return (unsigned)status < RY_STATUS_MAX_ ? rows[status].text : "a status that this version does not know";
}
