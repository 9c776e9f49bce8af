/* SPDX-License-Identifier: BSD-3-Clause */
#include "daemon/run.h"

#include "api/api.h"
#include "daemon/conn.h"
#include "daemon/instance.h"
#include "daemon/log.h"
#include "daemon/node.h"
#include "daemon/notify.h"
#include "hash/hash.h"

#include <rte_lcore.h>

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* What the threads beside the lcores share. */
struct daemon {
	const struct config *config;
	const cpu_set_t *cpus;
	struct node *node;
	struct api *api;
	uint32_t want_stop; /* written by main (release), read by api, conn and work */
	pthread_t threads[3];
	uint32_t n_threads;
	struct instance instance;
};

static int check_lcores(const struct config *c);
static int claim_host(struct daemon *d);
static int build(struct daemon *d, const struct eal_info *eal);
static int launch(struct daemon *d);
static int start_thread(struct daemon *d, void *(*body)(void *), const char *name);
static void stop(struct daemon *d);
static void *conn_body(void *arg);
static void *api_body(void *arg);
static void *work_body(void *arg);
static void leave_now(void *arg);

enum daemon_exit daemon_run(const struct config *config, const struct eal_info *eal, const cpu_set_t *cpus)
{
	struct daemon d = {.config = config, .cpus = cpus, .instance = {.fd = -1}};
	enum daemon_exit rc = EXIT_ENVIRONMENT;

	if (check_lcores(config) < 0 || claim_host(&d) < 0) {
		instance_release(&d.instance);
		return EXIT_ENVIRONMENT;
	}
	if (build(&d, eal) == 0) {
		rc = EXIT_FAILED;
		if (launch(&d) == 0) {
			printf("railyardd %s ready: %u rails of %u, socket %s\n", config->node_name, d.node->n_rails,
				config->n_rails, config->socket_path);
			fflush(stdout);
			notify_manager("READY=1");
			control_run(d.node->control);
			notify_manager("STOPPING=1");
			rc = EXIT_OK;
		}
	}
	stop(&d);
	instance_release(&d.instance);
	if (rc == EXIT_OK)
		log_info("node %s: railyardd ended", config->node_name);
	return rc;
}

/* EAL's own message would only say "invalid lcore". */
static int check_lcores(const struct config *c)
{
	for (uint16_t i = 0; i < c->n_rails; i++) {
		unsigned lcore = c->rails[i].lcore;

		if (lcore == rte_get_main_lcore()) {
			log_error("rails[%u].lcore: %u is the main lcore, which runs control; give the rail another", i,
				lcore);
			return -EINVAL;
		}
		if (!rte_lcore_is_enabled(lcore)) {
			log_error(
				"rails[%u].lcore: EAL has no lcore %u; add it to --lcores, or change the rail's lcore",
				i, lcore);
			return -EINVAL;
		}
	}
	return 0;
}

/* What this host must give, before memory is touched, which takes seconds for large stores. */
static int claim_host(struct daemon *d)
{
	char message[512] = "";
	int rc = instance_claim(d->config, &d->instance, message, sizeof(message));

	if (rc == 0)
		rc = api_check_socket(d->config, message, sizeof(message));
	if (rc == 0)
		rc = conn_check_addresses(d->config, message, sizeof(message));
	if (rc < 0)
		log_error("%s", message);
	return rc;
}

static int build(struct daemon *d, const struct eal_info *eal)
{
	struct node_conf conf = {
		.config = d->config,
		.is_shared_cpu = eal->is_shared_cpu,
		.want_hugepages = d->config->want_hugepages && eal->has_hugepages,
	};
	struct api_deps deps;
	char message[512] = "";
	int rc;

	rc = node_create(&conf, message, sizeof(message), &d->node);
	if (rc == 0) {
		node_api_deps(d->node, &deps);
		deps.want_signals = true;
		deps.force = leave_now;
		deps.force_arg = d;
		rc = api_create(&deps, message, sizeof(message), &d->api);
	}
	if (rc < 0)
		log_error("%s", message);
	return rc;
}

static int launch(struct daemon *d)
{
	const struct hash_choice *hash = hash_choose();
	int rc = 0;

	log_info("rails hash with XXH3 as %s code: the faster here (SIMD %.0f MB/s, scalar %.0f MB/s)",
		hash->code->name, hash->simd_bytes_per_s / 1e6, hash->scalar_bytes_per_s / 1e6);
	for (uint16_t i = 0; i < d->node->n_rails && rc == 0; i++) {
		rc = rail_launch(d->node->rails[i]);
		if (rc < 0)
			log_error("rail %s: lcore %u cannot be started: %s", d->config->rails[i].name,
				d->config->rails[i].lcore, strerror(-rc));
	}
	if (rc == 0)
		rc = start_thread(d, work_body, "ry-work");
	if (rc == 0)
		rc = start_thread(d, conn_body, "ry-conn");
	if (rc == 0)
		rc = start_thread(d, api_body, "ry-api");
	return rc;
}

/* A thread made after EAL inherits the main lcore's single CPU, which control may never leave to it. */
static int start_thread(struct daemon *d, void *(*body)(void *), const char *name)
{
	pthread_attr_t attr;
	int rc;

	pthread_attr_init(&attr);
	pthread_attr_setaffinity_np(&attr, sizeof(*d->cpus), d->cpus);
	rc = pthread_create(&d->threads[d->n_threads], &attr, body, d);
	pthread_attr_destroy(&attr);
	if (rc) {
		log_error("thread %s cannot be started: %s", name, strerror(rc));
		return -rc;
	}
	pthread_setname_np(d->threads[d->n_threads++], name);
	return 0;
}

/* conn says BYE and the threads end while the rails still run; then the rails; then nothing can touch what is freed. */
static void stop(struct daemon *d)
{
	struct node *n = d->node;

	if (!n)
		return;
	/* Release: partner of the loads of want_stop in conn_run, api_run and work_run. */
	__atomic_store_n(&d->want_stop, 1, __ATOMIC_RELEASE);
	waker_signal(&n->conn_waker);
	waker_signal(&n->api_waker);
	waker_signal(&n->work_waker);
	while (d->n_threads)
		pthread_join(d->threads[--d->n_threads], NULL);
	for (uint16_t i = 0; i < n->n_rails; i++)
		rail_stop(n->rails[i]);
	api_destroy(d->api);
	node_destroy(n);
}

static void *conn_body(void *arg)
{
	struct daemon *d = arg;

	conn_run(d->node->conn, &d->want_stop);
	return NULL;
}

static void *api_body(void *arg)
{
	struct daemon *d = arg;

	api_run(d->api, &d->want_stop);
	return NULL;
}

static void *work_body(void *arg)
{
	struct daemon *d = arg;

	work_run(&d->node->work, &d->want_stop);
	return NULL;
}

/* The second signal. The kernel closes the rest; peers see it as a loss. */
static void leave_now(void *arg)
{
	struct daemon *d = arg;

	unlink(d->config->socket_path);
	unlink(d->instance.path);
	_exit(EXIT_FAILED);
}
