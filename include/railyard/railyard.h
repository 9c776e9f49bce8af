/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * librailyard: read and write objects through this host's railyardd.
 *
 * An application attaches to the daemon's control socket and then shares memory with it: a pair of rings for requests
 * and completions, a read arena that the daemon fills (mapped read-only here), and a put arena that the application
 * fills. The library needs neither DPDK nor RDMA libraries and starts no thread.
 *
 * Rules for every function:
 * - Threads: one struct ry_client, its puts and its leases belong to one thread at a time. Open as many clients as
 * there are threads. After fork() the child must attach anew; there every call on an inherited client fails with
 * RY_ERR_DETACHED, except ry_detach, which the child should call soon: its copy of the socket hides the parent's death
 * from the daemon.
 * - Units: sizes are bytes, times are nanoseconds. A deadline is relative to the call; 0 = the daemon's default (30 s).
 * - Keys: 1 to RY_KEY_MAX_BYTES bytes of any value, not NUL-terminated; copied before the call returns.
 * - Errors: functions that return enum ry_status also leave a sentence for people in ry_last_cause(). Output arguments
 * are written only on RY_OK, unless said otherwise. Besides the errors named at a function, each may return
 * RY_ERR_INVALID (an argument is outside its documented range, a pointer is NULL that may not be, or a flag does not
 * belong to the operation), RY_ERR_DETACHED (the daemon is gone, or this is a forked child), RY_ERR_LIMIT (too many
 * operations in flight, or no memory) and RY_ERR_PROTOCOL (the daemon broke the ring's rules, or this program did, by
 * writing where it should not; the client is of no more use).
 * - NULL: a function that returns enum ry_status answers a client, put, key or output argument that is NULL with
 * RY_ERR_INVALID, unless its text allows it; with no client there is no cause. Of the others ry_submit and ry_reap
 * return 0, ry_event_fd -1, ry_event_arm false, ry_last_cause "", and those without a result do nothing. Data may be
 * NULL where there are 0 bytes of it. Options that are zeroed are defaults, except that a read's length must be said.
 * - Death of the daemon: every operation in flight completes with RY_ERR_DETACHED; leases stay readable until
 * ry_detach.
 */
#ifndef RAILYARD_RAILYARD_H
#define RAILYARD_RAILYARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <railyard/ring.h>
#include <railyard/status.h>
#include <railyard/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define RY_SOCKET_DEFAULT "/run/railyard/railyard.sock"
#define RY_TO_END UINT64_MAX  /* as a length: up to the end of the object */
#define RY_FOREVER UINT64_MAX /* as a timeout: no limit */

struct ry_client; /* one attachment; opaque */
struct ry_put;    /* one streamed put; opaque */

/* ------------------------------------------------ attach and detach ------------------------------------------------
 */

/* Zero-initialise, then set what matters. */
struct ry_attach_opts {
	const char *socket_path;   /* NULL = the environment's RAILYARD_SOCKET, else RY_SOCKET_DEFAULT */
	uint64_t read_arena_bytes; /* 0 = the most that the daemon allows; more is cut down to that */
	uint64_t put_arena_bytes;  /* the same */
	uint32_t ring_entries;     /* the same; half of them is the most operations in flight */
	uint32_t reserved;
	uint64_t timeout_ns; /* of the attachment as a whole; 0 = 5 s until the daemon answers at all, then 10 s for
				each GiB begun of each arena that it prepares, 60 s where it chooses their size */
	uint64_t spin_ns;    /* ry_wait and the synchronous calls spin this long before they sleep; 0 = sleep at once */
	char *cause;         /* where to put the cause text of a failure; may be NULL */
	uint32_t cause_bytes; /* room there; RY_CAUSE_MAX_BYTES holds every text */
	uint32_t reserved2;
};

/*
 * Attaches to the daemon; opts may be NULL. The caller owns *client and ends it with ry_detach. RY_ERR_DETACHED: nobody
 * listens at the socket; RY_ERR_DENIED: its permissions; RY_ERR_VERSION: no common version; RY_ERR_BUDGET and
 * RY_ERR_LIMIT: the daemon has no room for such arenas or another client; RY_ERR_NO_RAIL: the devices of all its rails
 * are gone; RY_ERR_TIMEOUT.
 */
enum ry_status ry_attach(const struct ry_attach_opts *opts, struct ry_client **client);

/* Ends the attachment: leases and operations in flight are void, the daemon takes its memory back. End streamed puts
 * with ry_put_close before. NULL is allowed. */
void ry_detach(struct ry_client *client);

/* What was agreed at attach. */
struct ry_client_info {
	uint64_t client_id;
	uint64_t read_arena_bytes;
	uint64_t put_arena_bytes;
	uint32_t max_in_flight; /* operations */
	uint16_t abi_major;
	uint16_t abi_minor;
	char node[RY_NAME_MAX_BYTES]; /* the daemon's node name */
	char daemon_version[RY_NAME_MAX_BYTES];
};

/* Fills *info. Never fails on a client that ry_attach made. */
void ry_client_get_info(const struct ry_client *client, struct ry_client_info *info);

/* Why the last failed call on this client failed: what, where, what to do. Never NULL, empty before the first failure;
 * valid until the next call on this client. */
const char *ry_last_cause(const struct ry_client *client);

/* The library's version, "major.minor.patch". Static text; any thread. */
const char *ry_version(void);

/* ------------------------------------------------------ leases ------------------------------------------------------
 */

/* Consecutive bytes of an object in the read arena. */
struct ry_span {
	const uint8_t *data;
	uint64_t bytes;
};

/*
 * Memory of the read arena that holds exactly the range asked for, verified, in object order. It is read-only and stays
 * valid until ry_lease_release or ry_detach. The struct may be copied; the lease is released once.
 */
struct ry_lease {
	uint64_t bytes;
	uint32_t id;      /* 0 = nothing to release (an empty range) */
	uint32_t n_spans; /* normally 1 */
	struct ry_span spans[RY_EXTENTS_MAX];
};

/* Gives the memory back. Does not wait and cannot fail; the spans must not be read afterwards. Sets lease->id to 0, so
 * that a second release of the same struct does nothing. */
void ry_lease_release(struct ry_client *client, struct ry_lease *lease);

/* Copies the whole lease to `buffer`, which must have room for lease->bytes. RY_ERR_INVALID, without a cause: one of
 * them is NULL. */
enum ry_status ry_lease_copy(const struct ry_lease *lease, void *buffer);

/* ------------------------------------------------ submit and complete ------------------------------------------------
 */

/* One operation to submit. Zero-initialise, then set what `op` needs. */
struct ry_request {
	uint64_t ticket;       /* out: names the operation until it was reaped; never 0 */
	enum ry_status status; /* out: RY_OK when taken, else why this one was not */
	uint32_t flags; /* enum ry_op_flags. READ: those of struct ry_read_opts. PUT: RY_F_PUT_BEGIN, RY_F_PUT_COMMIT,
			   RY_F_IF_ABSENT. Others: none. Any other is refused: RY_ERR_INVALID */
	uint8_t op;     /* enum ry_op, except RY_OP_CANCEL and RY_OP_RELEASE */
	uint8_t reserved;
	uint16_t key_bytes;    /* LIST: of the prefix, may be 0 */
	uint32_t stripe_bytes; /* PUT: 0 = RY_STRIPE_DEFAULT_BYTES; else a multiple of RY_STRIPE_ALIGN_BYTES within the
				  limits of types.h */
	const void *key;
	void *user; /* comes back in the completion */
	uint64_t deadline_ns;
	uint64_t offset; /* READ: first byte. PUT: of this part in the object, a multiple of the stripe. LIST: cursor, 0
			    = from the start */
	uint64_t length; /* READ: bytes, at least 1, or RY_TO_END. PUT: bytes of this part. LIST: most entries, 0 = as
			    many as a page holds; a page may have fewer, go on at its cursor */
	uint64_t generation; /* READ: 0, or fail with RY_ERR_STALE_GENERATION when it has another. DELETE: 0 = any */
	const void *data;    /* PUT: copied to the put arena and hashed before ry_submit returns */
	uint64_t put_id[2];  /* PUT: from ry_put_id_make, never for another object; both 0 = the library chooses, for a
				put in one part. PUT_QUERY: the put's */
	uint64_t size_bytes; /* PUT: of the whole object, RY_SIZE_UNKNOWN until the part with RY_F_PUT_COMMIT */
	uint64_t ttl_ns;     /* PUT: 0 = no expiry */
};

/* How one operation ended. */
struct ry_completion {
	uint64_t ticket;
	void *user;
	enum ry_status status;
	uint8_t op;              /* enum ry_op */
	bool is_verified;        /* READ: every stripe matched its checksum */
	uint16_t rail_idx;       /* failures: the rail to blame, RY_RAIL_NONE = none */
	uint64_t bytes;          /* READ: in the lease. PUT, PUT_QUERY: of the object so far. LIST: entries */
	uint64_t generation;     /* of the object read, put, deleted or found; PUT and PUT_QUERY: 0 = not committed */
	uint64_t cursor;         /* LIST: where to go on, 0 = the end */
	uint64_t done_ns;        /* CLOCK_MONOTONIC when the daemon published this */
	struct ry_object object; /* LOOKUP */
	struct ry_lease
		lease; /* READ, and LIST (packed struct ry_list_entry): the caller's to release; empty on failure */
	struct ry_read_stats stats; /* READ; only the first stats.n_rails of stats.rails are set */
	char cause[RY_CAUSE_MAX_BYTES];
};

/*
 * Submits up to n operations in order; returns how many were taken. Does not wait. A short count leaves
 * requests[count].status: RY_ERR_LIMIT (as many in flight as allowed: reap first), RY_ERR_BUDGET (PUT: the put arena is
 * full at the moment: reap first), or an error that will not go away by itself (RY_ERR_INVALID,
 * RY_ERR_BUFFER_TOO_SMALL: the part is larger than the put arena, ...). A PUT of a whole object in one part has flags
 * RY_F_PUT_BEGIN | RY_F_PUT_COMMIT; one with neither flag and length 0 aborts the put.
 */
uint32_t ry_submit(struct ry_client *client, struct ry_request *requests, uint32_t n);

/* Takes up to n completions of ry_submit's operations, in the order in which they completed; returns how many. Does not
 * wait. Once the daemon died, those still in flight are returned with RY_ERR_DETACHED. */
uint32_t ry_reap(struct ry_client *client, struct ry_completion *completions, uint32_t n);

/* Sleeps until ry_reap would return something: RY_OK. RY_ERR_TIMEOUT after timeout_ns (0 = only look); RY_ERR_INVALID
 * at once when nothing is in flight. */
enum ry_status ry_wait(struct ry_client *client, uint64_t timeout_ns);

/* Asks the daemon to cancel an operation. Its completion still comes, soon, with RY_ERR_CANCELLED or with the result
 * that was faster. RY_ERR_NOT_FOUND: no such operation is in flight. */
enum ry_status ry_cancel(struct ry_client *client, uint64_t ticket);

/* For own event loops: a descriptor that polls readable when there may be completions or the daemon died. The
 * library's; do not read or close it. Before each sleep on it call ry_event_arm, after each wake-up ry_reap until it
 * returns 0. */
int ry_event_fd(const struct ry_client *client);

/* True: armed, the next completion makes ry_event_fd readable. False: there is something to reap now, do not sleep. */
bool ry_event_arm(struct ry_client *client);

/* ------------------------------------------------- synchronous calls -------------------------------------------------
 */
/* They may be mixed with operations of ry_submit: those stay in flight and are kept for ry_reap. */

/* Finds an object. RY_ERR_NOT_FOUND, RY_ERR_NO_RAIL, RY_ERR_TIMEOUT, ... */
enum ry_status ry_lookup(
	struct ry_client *client, const void *key, uint16_t key_bytes, uint64_t deadline_ns, struct ry_object *object);

struct ry_read_opts {
	uint64_t offset;      /* first byte */
	uint64_t length;      /* bytes, at least 1 and inside the object (else RY_ERR_INVALID), or RY_TO_END */
	uint64_t generation;  /* 0 = the current one, else fail with RY_ERR_STALE_GENERATION unless it is this one */
	uint64_t deadline_ns; /* ry_stream_read: of each batch */
	uint32_t flags;       /* RY_F_ALLOW_UNVERIFIED, RY_F_ONE_RAIL, one of RY_F_FAILOVER and RY_F_FAIL */
	uint32_t reserved;
};

struct ry_read_result {
	uint64_t bytes;
	uint64_t generation;
	bool is_verified;
	uint8_t reserved[7];
	struct ry_read_stats
		stats; /* ry_stream_read: summed over its batches; classes are those of the slowest batch */
};

/*
 * Reads a range of an object (opts NULL = all of it) into a lease; `result` may be NULL. All bytes are verified, or the
 * call fails and nothing is shown. RY_ERR_BUFFER_TOO_SMALL: the range does not fit the read arena (use ry_stream_read);
 * RY_ERR_BUDGET: too much is in flight; RY_ERR_CHECKSUM, RY_ERR_RAIL, RY_ERR_TIMEOUT, ...: see status.h.
 */
enum ry_status ry_read(struct ry_client *client, const void *key, uint16_t key_bytes, const struct ry_read_opts *opts,
	struct ry_lease *lease, struct ry_read_result *result);

/*
 * The same with one copy into the caller's memory, which is written only when everything was read and verified. *bytes
 * = copied. RY_ERR_BUFFER_TOO_SMALL: the range has more than buffer_bytes bytes; nothing was copied, *bytes says how
 * many it has (0 where the read arena, not the buffer, is too small).
 */
enum ry_status ry_read_copy(struct ry_client *client, const void *key, uint16_t key_bytes,
	const struct ry_read_opts *opts, void *buffer, uint64_t buffer_bytes, uint64_t *bytes,
	struct ry_read_result *result);

/* Called with consecutive verified bytes; `offset` is data's place in the object. `data` is valid during the call only.
 * Return false to stop. Must not detach the client. */
typedef bool (*ry_stream_fn)(void *arg, const void *data, uint64_t bytes, uint64_t offset);

/*
 * Reads a range of any size (opts NULL = the whole object) in batches of whole stripes, two in flight, all of one
 * generation, and hands the bytes to `fn` in order. batch_bytes is rounded to stripes and to what the arena holds; 0 =
 * choose. On failure `fn` has seen a correct prefix. RY_ERR_STALE_GENERATION: the object was replaced meanwhile;
 * RY_ERR_CANCELLED: `fn` returned false. `result` may be NULL.
 */
enum ry_status ry_stream_read(struct ry_client *client, const void *key, uint16_t key_bytes,
	const struct ry_read_opts *opts, uint64_t batch_bytes, ry_stream_fn fn, void *arg,
	struct ry_read_result *result);

struct ry_put_opts {
	uint64_t put_id[2]; /* both 0 = the library chooses; repeat an id to retry the same put without doing it twice.
			     With another key or size it is refused: RY_ERR_INVALID */
	uint64_t ttl_ns;    /* 0 = no expiry */
	uint64_t deadline_ns;  /* ry_put: of the whole call. ry_put_open: of each part */
	uint64_t size_bytes;   /* ry_put_open: how many bytes will be written; 0 or RY_SIZE_UNKNOWN = not known yet.
				  ry_put ignores it */
	uint32_t stripe_bytes; /* 0 = RY_STRIPE_DEFAULT_BYTES, or what size and put arena need instead */
	uint32_t flags;        /* RY_F_IF_ABSENT */
};

/* ry_put_close always writes it; ry_put does unless it refused its arguments (then nothing was sent). */
struct ry_put_result {
	uint64_t put_id[2];  /* for ry_put_query, or to retry */
	uint64_t generation; /* 0 = not committed */
	uint64_t bytes;      /* verified by the store so far */
};

/*
 * Puts a whole object from the caller's memory; opts and result may be NULL. Objects larger than the put arena go in
 * parts; readers see the object after the last part was verified, all at once. RY_ERR_EXISTS, RY_ERR_NO_SPACE,
 * RY_ERR_TIMEOUT, ... RY_ERR_UNKNOWN_OUTCOME, and RY_ERR_DETACHED in mid-call: it may have been committed or not; ask
 * ry_put_query, or put again with the same id.
 */
enum ry_status ry_put(struct ry_client *client, const void *key, uint16_t key_bytes, const void *data, uint64_t bytes,
	const struct ry_put_opts *opts, struct ry_put_result *result);

/* How the put with this id went. RY_OK with generation 0: it is under way; RY_ERR_NOT_FOUND: the store knows no such
 * put; RY_ERR_INVALID: it was of another key. */
enum ry_status ry_put_query(struct ry_client *client, const void *key, uint16_t key_bytes, const uint64_t put_id[2],
	uint64_t deadline_ns, struct ry_put_result *result);

/* A fresh put id, unique for all practical purposes. RY_ERR_INTERNAL: the system has no random numbers. Any thread. */
enum ry_status ry_put_id_make(uint64_t put_id[2]);

/* Deletes an object; generation 0 = whichever there is, else RY_ERR_STALE_GENERATION unless it is that one. `deleted`
 * (may be NULL) gets its generation. RY_ERR_NOT_FOUND. */
enum ry_status ry_delete(struct ry_client *client, const void *key, uint16_t key_bytes, uint64_t generation,
	uint64_t deadline_ns, uint64_t *deleted);

/* Called once per object; `key` is valid during the call only. Return false to stop. Must not detach the client. */
typedef bool (*ry_list_fn)(void *arg, const void *key, uint16_t key_bytes, uint64_t size_bytes, uint64_t generation);

/* Lists the objects whose keys start with `prefix` (0 bytes = all), page by page, in no particular order. An object
 * that lives throughout is listed exactly once. deadline_ns is that of each page. RY_ERR_CANCELLED: `fn` returned
 * false. */
enum ry_status ry_list(struct ry_client *client, const void *prefix, uint16_t prefix_bytes, uint64_t deadline_ns,
	ry_list_fn fn, void *arg);

/* --------------------------------------------------- streamed puts ---------------------------------------------------
 */

/*
 * Starts a put whose bytes come piece by piece; opts may be NULL (then the size is unknown). Whole stripes go out as
 * parts while the next ones are filled; two parts are in flight. The caller ends *put with ry_put_close, always.
 * RY_ERR_BUFFER_TOO_SMALL: the put arena cannot hold a stripe.
 */
enum ry_status ry_put_open(struct ry_client *client, const void *key, uint16_t key_bytes,
	const struct ry_put_opts *opts, struct ry_put **put);

/* Appends. May wait for a part in flight. After a failure only ry_put_close makes sense; it reports the same error.
 * RY_ERR_INVALID: more than the size given to ry_put_open. RY_ERR_BUDGET: other puts of this client hold the put arena.
 */
enum ry_status ry_put_write(struct ry_put *put, const void *data, uint64_t bytes);

/* The same without a copy: where the next bytes belong (at least 1 of room, RY_ERR_INVALID where the announced size is
 * reached), ... */
enum ry_status ry_put_space(struct ry_put *put, void **space, uint64_t *room_bytes);
/* ... and that the first `bytes` of it are filled. */
enum ry_status ry_put_wrote(struct ry_put *put, uint64_t bytes);

/* Commits (or aborts) and frees the put, whatever it returns; `result` may be NULL. RY_OK after want_commit: the object
 * is visible as result->generation. A commit of fewer bytes than announced aborts: RY_ERR_INVALID. Errors as for
 * ry_put. */
enum ry_status ry_put_close(struct ry_put *put, bool want_commit, struct ry_put_result *result);

#ifdef __cplusplus
}
#endif
#endif
