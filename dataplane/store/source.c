/* SPDX-License-Identifier: BSD-3-Clause */
#include "source.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* What only control sees; `pub` comes first, so a struct source_table * is one of these. */
struct table {
	struct source_table pub;
	uint32_t n_slots;
	uint32_t n_fresh; /* slots below this have been used before, those from here on never */
	uint32_t n_free;
	uint16_t n_rails;
	uint32_t *free_slots; /* used before and free again: a stack */
};

static int create_qsbr(struct table *t);
static uint64_t next_handle(uint64_t handle, uint32_t slot);
static struct table *to_table(struct source_table *pub);

int source_table_create(uint32_t n, uint16_t n_rails, struct source_table **out)
{
	uint32_t n_slots = 1;
	struct table *t;
	void *slots;
	int rc = -ENOMEM;

	if (n == 0 || n > 1u << 30 || n_rails > RY_RAILS_MAX)
		return -EINVAL;
	while (n_slots < n)
		n_slots *= 2;
	t = calloc(1, sizeof(*t));
	if (!t)
		return -ENOMEM;
	t->n_slots = n_slots;
	t->n_rails = n_rails;
	t->pub.mask = n_slots - 1;
	t->free_slots = malloc(n_slots * sizeof(*t->free_slots));
	if (!t->free_slots)
		goto err;
	/* A mapping, not the heap: aligned, zero, and no page of it is touched before its first slot is used. */
	slots = mmap(NULL, n_slots * sizeof(struct source), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (slots == MAP_FAILED)
		goto err;
	t->pub.slots = slots;
	rc = create_qsbr(t);
	if (rc)
		goto err;
	*out = &t->pub;
	return 0;
err:
	source_table_destroy(&t->pub);
	return rc;
}

void source_table_destroy(struct source_table *pub)
{
	struct table *t = to_table(pub);

	if (!t)
		return;
	if (pub->slots)
		munmap(pub->slots, t->n_slots * sizeof(struct source));
	free(pub->qsbr);
	free(t->free_slots);
	free(t);
}

struct source *source_alloc(struct source_table *pub)
{
	struct table *t = to_table(pub);
	struct source *s;
	uint32_t slot;

	if (t->n_free) {
		slot = t->free_slots[--t->n_free];
		return &pub->slots[slot];
	}
	if (t->n_fresh == t->n_slots)
		return NULL;
	slot = t->n_fresh++;
	s = &pub->slots[slot];
	s->handle = next_handle(0, slot);
	return s;
}

void source_publish(struct source *s)
{
	/* Release: partner of the acquire in source_pin; a rail that sees LIVE sees the fields. */
	__atomic_store_n(&s->state, SOURCE_LIVE, __ATOMIC_RELEASE);
}

void source_linger(struct source *s)
{
	/* Relaxed: only the state changes, and a rail that still sees LIVE accepted the read before. */
	__atomic_store_n(&s->state, SOURCE_LINGERING, __ATOMIC_RELAXED);
}

uint64_t source_retire(struct source_table *pub, struct source *s)
{
	assert(s->state == SOURCE_LIVE || s->state == SOURCE_LINGERING);
	/* Release: partner of the acquire in source_pin. The token below comes after it: a rail that reports quiescence
	 * for the token cannot have a source_pin under way that saw LIVE. */
	__atomic_store_n(&s->state, SOURCE_DEAD, __ATOMIC_RELEASE);
	return rte_rcu_qsbr_start(pub->qsbr);
}

bool source_is_quiet(struct source_table *pub, const struct source *s, uint64_t token)
{
	const struct table *t = to_table(pub);

	/* Its acquire load of each rail's report makes the pins that came before the report visible. */
	if (rte_rcu_qsbr_check(pub->qsbr, token, false) != 1)
		return false;
	for (uint16_t i = 0; i < t->n_rails; i++)
		/* Acquire: partner of the release in source_unpin; the rail's last access comes before our reuse. */
		if (__atomic_load_n(&s->pins[i], __ATOMIC_ACQUIRE))
			return false;
	return true;
}

void source_release(struct source_table *pub, struct source *s)
{
	struct table *t = to_table(pub);
	uint32_t slot = (uint32_t)(s - pub->slots);
	uint64_t handle = next_handle(s->handle, slot);

	assert(s->state != SOURCE_LIVE && t->n_free < t->n_slots);
	/* Not all of it: a peer's old handle may make a rail look at the state at any time, and the pins are zero, and
	 * the rails' own. */
	memset(s, 0, offsetof(struct source, state));
	__atomic_store_n(&s->state, SOURCE_FREE, __ATOMIC_RELAXED);
	s->handle = handle;
	t->free_slots[t->n_free++] = slot;
}

/* Thread id = rail index. A registered thread counts as quiet until its rail puts it online. */
static int create_qsbr(struct table *t)
{
	uint32_t n = t->n_rails ? t->n_rails : 1;
	size_t bytes = rte_rcu_qsbr_get_memsize(n);

	t->pub.qsbr = aligned_alloc(RTE_CACHE_LINE_SIZE, RTE_ALIGN_CEIL(bytes, (size_t)RTE_CACHE_LINE_SIZE));
	if (!t->pub.qsbr)
		return -ENOMEM;
	if (rte_rcu_qsbr_init(t->pub.qsbr, n))
		return -EINVAL;
	for (uint16_t i = 0; i < t->n_rails; i++)
		if (rte_rcu_qsbr_thread_register(t->pub.qsbr, i))
			return -EINVAL;
	return 0;
}

/* slot | salt << 32 with the next salt, which is never 0: handle 0 names nothing. */
static uint64_t next_handle(uint64_t handle, uint32_t slot)
{
	uint32_t salt = (uint32_t)(handle >> 32) + 1;

	if (salt == 0)
		salt = 1;
	return slot | (uint64_t)salt << 32;
}

static struct table *to_table(struct source_table *pub)
{
	return (struct table *)pub;
}
