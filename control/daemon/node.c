/* SPDX-License-Identifier: BSD-3-Clause */
#include "daemon/node.h"

#include "daemon/log.h"

#include <rte_lcore.h>

#include <sys/epoll.h>
#include <sys/random.h>

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Control and conn pass metadata, pair events and dials; both bound how many they have under way, far below this. */
#define CONN_RING_ENTRIES 8192u
/* Put parts of local clients that rails may serve, beside the store's own objects. */
#define PUT_SOURCES (2u * RY_RING_ENTRIES_MAX)
/* One turn hashes, and posts to peers, no more than this, so that completions are looked at every 20 us or so. */
#define VERIFY_TURN_BYTES (256u << 10)
#define SERVE_TURN_BYTES (1u << 20)
#define DEDICATED_SPIN_NS 50000u

struct text {
	char *at;
	uint32_t bytes;
};

static void identify(struct node *n);
static void choose_spin(struct node *n, const struct node_conf *conf);
static int make_rings(struct node *n, struct text *t);
static int make_sources(struct node *n, struct text *t);
static int make_rails(struct node *n, struct text *t);
static int make_store(struct node *n, const struct node_conf *conf_node, struct text *t);
static uint64_t first_generation(void);
static int make_control(struct node *n, struct text *t);
static int make_probe_slab(struct node *n);
static int make_conn(struct node *n, const struct node_conf *conf, struct text *t);
static int reg(void *rail, void *base, uint64_t bytes, enum mem_kind kind, uint16_t idx);
static void dereg(void *rail, uint16_t idx);
static const char *why_refused(const void *rail);
static int explain(struct text *t, int rc, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

int node_create(const struct node_conf *conf, char *message, uint32_t message_bytes, struct node **out)
{
	struct text t = {message, message_bytes};
	struct node *n;
	int rc;

	if (posix_memalign((void **)&n, 64, sizeof(*n)))
		return explain(&t, -ENOMEM, "node: out of memory");
	memset(n, 0, sizeof(*n));
	n->config = conf->config;
	n->has_hugepages = conf->want_hugepages;
	n->control_set_fd = -1;
	n->control_waker.event_fd = n->conn_waker.event_fd = n->api_waker.event_fd = n->work_waker.event_fd = -1;
	identify(n);
	choose_spin(n, conf);
	rc = make_rings(n, &t);
	if (rc == 0)
		rc = make_sources(n, &t);
	if (rc == 0)
		rc = make_rails(n, &t);
	if (rc == 0 && n->config->is_store)
		rc = make_store(n, conf, &t);
	if (rc == 0)
		rc = make_control(n, &t);
	if (rc == 0)
		rc = make_conn(n, conf, &t);
	if (rc < 0) {
		node_destroy(n);
		return rc;
	}
	*out = n;
	return 0;
}

void node_destroy(struct node *n)
{
	if (!n)
		return;
	if (n->conn)
		conn_destroy(n->conn);
	if (n->control)
		control_destroy(n->control);
	if (n->store)
		store_destroy(n->store);
	region_unregister(n->slab_region);
	mapping_unmap(&n->slab);
	region_unregister(n->probe_region);
	mapping_unmap(&n->probe_slab);
	for (uint16_t i = 0; i < n->n_rails; i++)
		rail_destroy(n->rails[i]);
	if (n->sources)
		source_table_destroy(n->sources);
	spsc_free(n->control_to_conn);
	spsc_free(n->conn_to_control);
	spsc_free(n->api_to_control);
	spsc_free(n->control_to_api);
	spsc_free(n->api_to_work);
	spsc_free(n->work_to_api);
	spsc_free(n->conn_to_work);
	spsc_free(n->work_to_conn);
	if (n->control_set_fd >= 0)
		close(n->control_set_fd);
	waker_fini(&n->control_waker);
	waker_fini(&n->conn_waker);
	waker_fini(&n->api_waker);
	waker_fini(&n->work_waker);
	free(n);
}

void node_api_deps(struct node *n, struct api_deps *deps)
{
	*deps = (struct api_deps){
		.config = n->config,
		.node_id = n->node_id,
		.incarnation = n->incarnation,
		.has_hugepages = n->has_hugepages,
		.rails = n->api_rails,
		.regions = &n->regions,
		.counters = &n->counters,
		.conn_counters = &n->conn_counters,
		.journal = &n->journal,
		.recorder = &n->recorder,
		.conn = n->conn,
		.pair_info = conn_info,
		.to_control = n->api_to_control,
		.from_control = n->control_to_api,
		.to_work = n->api_to_work,
		.from_work = n->work_to_api,
		.waker = &n->api_waker,
		.control_waker = &n->control_waker,
		.control_set_fd = n->control_set_fd,
		.work_waker = &n->work_waker,
	};
}

/* Segments and stripe jobs are some 10 MiB; the store's index and the descriptor cache cost about 160 bytes an entry.
 */
uint32_t node_pool_mib(const struct config *c)
{
	uint64_t n_entries = 2ull * c->descriptor_cache_entries;

	if (c->is_store)
		n_entries += store_sources_needed(c->max_objects);
	return 32u + (uint32_t)(n_entries * 160u >> 20);
}

static void identify(struct node *n)
{
	n->node_id = XXH3_64bits(n->config->node_name, strlen(n->config->node_name));
	/* The kernel's generator answers 8 bytes at once after boot; without it the clock and our address tell two
	 * starts apart. */
	if (getrandom(&n->incarnation, sizeof(n->incarnation), 0) != sizeof(n->incarnation))
		n->incarnation = clock_ns() ^ (uint64_t)(uintptr_t)n;
}

static void choose_spin(struct node *n, const struct node_conf *conf)
{
	const struct config *c = n->config;

	n->spin_ns = c->idle_spin_ns;
	if (c->idle == IDLE_SPIN)
		n->spin_ns = UINT64_MAX;
	else if (c->idle_spin_ns == UINT64_MAX)
		n->spin_ns = conf->is_shared_cpu ? 0 : DEDICATED_SPIN_NS;
}

static int make_rings(struct node *n, struct text *t)
{
	struct epoll_event e = {.events = EPOLLIN};

	n->control_to_conn = spsc_create("control-conn", CONN_RING_ENTRIES);
	n->conn_to_control = spsc_create("conn-control", CONN_RING_ENTRIES);
	n->api_to_control = spsc_create("api-control", API_RING_ENTRIES);
	n->control_to_api = spsc_create("control-api", API_RING_ENTRIES);
	n->api_to_work = spsc_create("api-work", API_RING_ENTRIES);
	n->work_to_api = spsc_create("work-api", API_RING_ENTRIES);
	n->conn_to_work = spsc_create("conn-work", DEVICE_JOBS);
	n->work_to_conn = spsc_create("work-conn", DEVICE_JOBS);
	if (!n->control_to_conn || !n->conn_to_control || !n->api_to_control || !n->control_to_api || !n->api_to_work ||
		!n->work_to_api || !n->conn_to_work || !n->work_to_conn)
		return explain(t, -ENOMEM, "node: no memory for rings");
	if (waker_init(&n->control_waker) < 0 || waker_init(&n->conn_waker) < 0 || waker_init(&n->api_waker) < 0 ||
		waker_init(&n->work_waker) < 0)
		return explain(t, -EMFILE, "node: no eventfd; raise the limit of open files");
	n->control_set_fd = epoll_create1(EPOLL_CLOEXEC);
	if (n->control_set_fd < 0 || epoll_ctl(n->control_set_fd, EPOLL_CTL_ADD, n->control_waker.event_fd, &e) < 0)
		return explain(t, -EMFILE, "node: no epoll set; raise the limit of open files");
	n->work = (struct work){
		.from_api = n->api_to_work,
		.to_api = n->work_to_api,
		.waker = &n->work_waker,
		.api_waker = &n->api_waker,
		.from_conn = n->conn_to_work,
		.to_conn = n->work_to_conn,
		.conn_waker = &n->conn_waker,
		.regions = &n->regions,
	};
	return 0;
}

static int make_sources(struct node *n, struct text *t)
{
	const struct config *c = n->config;
	uint32_t n_sources = PUT_SOURCES + c->max_reads;
	int rc;

	if (c->is_store)
		n_sources += store_sources_needed(c->max_objects);
	rc = source_table_create(n_sources, c->n_rails, &n->sources);
	return rc < 0 ? explain(t, rc, "node: no memory for a table of %u sources", n_sources) : 0;
}

static int make_rails(struct node *n, struct text *t)
{
	const struct config *c = n->config;
	char why[512];
	struct rail_deps deps = {
		.control_waker = &n->control_waker,
		.conn_waker = &n->conn_waker,
		.sources = n->sources,
		.snapshot = &n->snapshot,
		.socket_id = (int)rte_socket_id(),
		.why = why,
		.why_bytes = sizeof(why),
	};
	int rc;

	n->snapshot = (struct rail_snapshot){
		.generation = 1,
		.serve_max_requests = c->store_max_requests_per_qp,
		.serve_max_bytes = c->store_max_inflight_bytes / c->n_rails,
		.fence_timeout_ns = c->fence_timeout_ns,
		.spin_ns = n->spin_ns,
		.verify_turn_bytes = VERIFY_TURN_BYTES,
		.serve_turn_bytes = SERVE_TURN_BYTES,
	};
	for (uint16_t i = 0; i < c->n_rails; i++) {
		why[0] = '\0';
		rc = rail_create(&c->rails[i], i, &deps, &n->rails[i]);
		/* A device's own queues are locked, too: too small a limit may show here already. */
		if (rc == -ENOMEM && node_check_memlock(n, t->at, t->bytes) < 0)
			return rc;
		if (rc < 0)
			return explain(t, rc, "rail %s: transport %s cannot be opened on '%s': %s; check %s",
				c->rails[i].name, c->rails[i].transport, c->rails[i].address,
				why[0] ? why : strerror(-rc),
				rc == -EMFILE || rc == -ENFILE ? "the limit of open files (ulimit -n)"
				: why[0]                       ? "its keys"
							       : "address and netdev");
		n->n_rails++;
		n->regions.rails[i] = (struct region_rail){
			.rail = n->rails[i],
			.reg = reg,
			.dereg = dereg,
			.why = why_refused,
			.reaches_device = rail_attr(n->rails[i])->reaches_device,
			.pins = rail_ops(n->rails[i])->mem_reg != transport_no_reg,
		};
		n->regions.n_rails++;
		n->api_rails[i] = (struct api_rail){
			rail_counters(n->rails[i]), !rail_attr(n->rails[i])->has_windows, n->rails[i]};
	}
	return node_check_rails(n, t->at, t->bytes);
}

/* The slab is registered on every rail before anything can name it. */
static int make_store(struct node *n, const struct node_conf *conf_node, struct text *t)
{
	const struct config *c = n->config;
	struct store_conf conf = {
		.data_bytes = c->store_bytes,
		.max_objects = c->max_objects,
		.first_generation = conf_node->want_virtual_time ? 1 : first_generation(),
		.linger_ns = c->store_linger_ns,
		.is_pinned = c->tier == TIER_PINNED,
		.sources = n->sources,
		.counters = &n->counters,
	};
	int rc;

	log_info("store: preparing %" PRIu64 " MiB of memory", c->store_bytes >> 20);
	rc = slab_map(c->store_bytes, n->has_hugepages, &n->slab);
	if (rc < 0)
		return explain(t, rc, "store: no memory for store.memory of %" PRIu64 " bytes: %s; make it smaller",
			c->store_bytes, strerror(-rc));
	rc = region_register(&n->regions, n->slab.base, n->slab.bytes, MEM_HOST, &n->slab_region);
	if (rc < 0)
		return explain(
			t, rc, "store: its memory cannot be registered on every rail: %s", region_why(&n->regions, rc));
	conf.slab = n->slab;
	conf.region = region_idx(n->slab_region);
	rc = store_create(&conf, &n->store);
	return rc < 0 ? explain(t, rc, "store: no memory for an index of %u objects: %s; lower store.max_objects",
				c->max_objects, strerror(-rc))
		      : 0;
}

/*
 * A restarted store is empty, but readers remember generations of the one before, streams in the middle among them: the
 * new ones start above by the wall clock, which leaves a million puts of one key a second.
 */
static uint64_t first_generation(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return ((uint64_t)now.tv_sec << 20) + 1;
}

static int make_control(struct node *n, struct text *t)
{
	struct control_deps deps = {
		.config = n->config,
		.node_id = n->node_id,
		.incarnation = n->incarnation,
		.rails = n->rails,
		.sources = n->sources,
		.store = n->store,
		.to_conn = n->control_to_conn,
		.from_conn = n->conn_to_control,
		.to_api = n->control_to_api,
		.from_api = n->api_to_control,
		.waker = &n->control_waker,
		.set_fd = n->control_set_fd,
		.conn_waker = &n->conn_waker,
		.api_waker = &n->api_waker,
		.counters = &n->counters,
		.journal = &n->journal,
		.recorder = &n->recorder,
		.spin_ns = n->spin_ns,
		.socket_id = (int)rte_socket_id(),
	};
	int rc = make_probe_slab(n);

	if (rc < 0)
		return explain(t, rc, "probes: their memory cannot be registered on every rail: %s",
			region_why(&n->regions, rc));
	deps.probe_slab = n->probe_slab.base;
	deps.probe_region = region_idx(n->probe_region);
	rc = control_create(&deps, &n->control);

	return rc < 0 ? explain(t, rc, "control: no memory for its tables: %s; %s", strerror(-rc),
				n->config->is_reader
					? "lower reader.max_reads or reader.descriptor_cache, or give EAL more (-m)"
					: "raise the limits of memory (ulimit -v, a cgroup), or give EAL more (-m)")
		      : 0;
}

static int make_probe_slab(struct node *n)
{
	int rc = slab_map((uint64_t)PROBES_MAX * PROBE_BYTES, false, &n->probe_slab);

	return rc < 0 ? rc
		      : region_register(
				&n->regions, n->probe_slab.base, n->probe_slab.bytes, MEM_HOST, &n->probe_region);
}

static int make_conn(struct node *n, const struct node_conf *conf, struct text *t)
{
	struct conn_deps deps = {
		.config = n->config,
		.node_id = n->node_id,
		.incarnation = n->incarnation,
		.rails = n->rails,
		.to_control = n->conn_to_control,
		.from_control = n->control_to_conn,
		.wants = control_dial_wants(n->control),
		.to_work = n->conn_to_work,
		.from_work = n->work_to_conn,
		.work_waker = &n->work_waker,
		.control_waker = &n->control_waker,
		.counters = &n->conn_counters,
		.waker = &n->conn_waker,
		.want_virtual_time = conf->want_virtual_time,
	};
	int rc;

	snprintf(t->at, t->bytes, "conn: cannot be set up");
	rc = conn_create(&deps, t->at, t->bytes, &n->conn);
	return rc;
}

static int reg(void *rail, void *base, uint64_t bytes, enum mem_kind kind, uint16_t idx)
{
	(void)kind; /* region_register asks only rails that reach it */
	return rail_ops(rail)->mem_reg(rail, base, bytes, idx);
}

static void dereg(void *rail, uint16_t idx)
{
	rail_ops(rail)->mem_dereg(rail, idx);
}

static const char *why_refused(const void *rail)
{
	return rail_why(rail);
}

static int explain(struct text *t, int rc, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(t->at, t->bytes, fmt, args);
	va_end(args);
	return rc;
}
