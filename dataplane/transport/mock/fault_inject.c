/* SPDX-License-Identifier: BSD-3-Clause */
/* How fault plans come to a running rail and go again. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "transport/mock/mock.h"
#include "transport/mock/mock_priv.h"

static int copy_plan(const struct mock *m, const struct fault_plan *plan, struct fault_set **out);
static void free_retired(struct mock_fault *f);
static void forget_choices(struct rail *rail);
static struct mock *mock_of(const struct rail *rail);

int mock_fault_inject(struct rail *rail, const struct fault_plan *plan)
{
	struct mock *m = mock_of(rail);
	struct fault_set *set = NULL;
	int rc;

	if (!m)
		return -ENOTSUP;
	rc = copy_plan(m, plan, &set);
	if (rc)
		return rc;
	free_retired(&m->fault);
	if (m->fault.current) {
		m->fault.current->next = m->fault.retired;
		m->fault.retired = m->fault.current;
	}
	m->fault.current = set;
	m->fault.last = &set->plan;
	/* Release: partner of the acquire in fault_turn and fault_take. */
	__atomic_store_n(&m->fault.want, m->fault.last, __ATOMIC_RELEASE);
	waker_kick(&rail->waker);
	return 0;
}

static int copy_plan(const struct mock *m, const struct fault_plan *plan, struct fault_set **out)
{
	if (plan && fault_check(plan, NULL, 0))
		return -EINVAL;
	for (uint32_t i = 0; plan && i < plan->n_entries; i++) {
		if (plan->entries[i].kind == FAULT_SLOW && !m->bandwidth)
			return -EINVAL;
	}
	*out = calloc(1, sizeof(**out));
	if (!*out)
		return -ENOMEM;
	if (plan)
		(*out)->plan = *plan;
	return 0;
}

/* The rail took the last plan in, so it looks at no former one any more. */
static void free_retired(struct mock_fault *f)
{
	struct fault_set *set;

	/* Acquire: partner of the release in fault_take. */
	if (__atomic_load_n(&f->taken, __ATOMIC_ACQUIRE) != f->last)
		return;
	while ((set = f->retired) != NULL) {
		f->retired = set->next;
		free(set);
	}
}

bool mock_fault_is_taken(const struct rail *rail)
{
	const struct mock *m = mock_of(rail);

	/* Acquire: partner of the release in fault_take. */
	return m && __atomic_load_n(&m->fault.taken, __ATOMIC_ACQUIRE) == m->fault.last;
}

uint64_t mock_fault_count(const struct rail *rail, enum fault_kind kind)
{
	const struct mock *m = mock_of(rail);

	return m && kind < FAULT_KINDS_ ? __atomic_load_n(&m->fault.n_injected[kind], __ATOMIC_RELAXED) : 0;
}

static struct mock *mock_of(const struct rail *rail)
{
	return rail->poll == mock_ops.poll ? rail->tr : NULL;
}

/* ---- the lcore ---- */

void fault_take(struct rail *rail, struct mock *m)
{
	struct mock_fault *f = &m->fault;
	/* Acquire: partner of the release in mock_fault_inject. */
	const struct fault_plan *want = __atomic_load_n(&f->want, __ATOMIC_ACQUIRE);
	const struct fault_plan *expected = want;

	if (want != f->plan) {
		f->plan = want;
		f->rng = want->seed + rail->idx * 0x9e3779b97f4a7c15ull;
		f->start_ns = rail->now_ns;
		f->n_bytes = f->n_writes = f->stall_until_ns = f->rate = 0;
		memset(f->n_msgs, 0, sizeof(f->n_msgs));
		for (uint32_t i = 0; i < want->n_entries; i++)
			f->run[i] = (struct fault_run){.at = want->entries[i].at, .key_offset = UINT64_MAX};
		for (uint32_t i = 0; i < FAULT_KEPT_MAX; i++)
			f->kept[i].until_ns = 0;
		forget_choices(rail);
		/* Release: partner of the acquires above; a former plan is looked at no more. */
		__atomic_store_n(&f->taken, want, __ATOMIC_RELEASE);
	}
	if (want->n_entries || f->n_kept || f->n_lates || f->down_status)
		return;
	/* The empty plan was in force for as long as something of a former one was under way; now there is none. */
	f->plan = NULL;
	/* Relaxed: nothing is handed over. Fails when a plan came meanwhile, which the next poll then finds. */
	__atomic_compare_exchange_n(&f->want, &expected, NULL, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

/* Numbers of entries in work requests mean the former plan's. A late write that still waits becomes an ordinary one. */
static void forget_choices(struct rail *rail)
{
	struct mock_fault *f = &((struct mock *)rail->tr)->fault;

	for (uint16_t i = 0; i < rail->n_qps; i++) {
		struct mock_qp *q = (struct mock_qp *)rail->qps[i];

		for (uint32_t k = q->sq_head; k != q->sq_tail; k++) {
			q->sq[k & (MOCK_SQ_DEPTH - 1)].faults = 0;
			q->sq[k & (MOCK_SQ_DEPTH - 1)].fault_state &= ~MOCK_LATE;
		}
	}
	for (uint32_t i = 0; i < FAULT_LATES_MAX; i++) {
		if (f->lates[i].state != LATE_WAITS)
			continue;
		f->lates[i].state = LATE_FREE;
		f->n_lates--;
	}
}

void fault_forget(struct mock *m)
{
	struct mock_fault *f = &m->fault;

	for (uint32_t i = 0; f->n_kept && i < FAULT_KEPT_MAX; i++) {
		if (!f->kept[i].q || mock_is_live(m, f->kept[i].q))
			continue;
		f->kept[i].q = NULL;
		f->n_kept--;
	}
	if (f->down_qp && !mock_is_live(m, f->down_qp)) {
		f->down_qp = NULL;
		f->down_status = 0;
	}
}

/* While anything moves, a look every FAULT_LOOK_NS is near enough: faults are for rehearsals. */
uint64_t fault_next_ns(const struct mock *m, uint64_t now_ns)
{
	const struct mock_fault *f = &m->fault;
	uint64_t next = m->n_active || f->n_kept || f->n_lates ? now_ns + FAULT_LOOK_NS : UINT64_MAX;

	/* Relaxed: the look that follows the waker's announcement; an inject after it kicks. */
	if (__atomic_load_n(&f->want, __ATOMIC_RELAXED) != f->plan || f->down_status)
		return 0;
	for (uint32_t i = 0; i < f->plan->n_entries; i++) {
		uint64_t at_ns = f->start_ns + f->run[i].at;

		if (f->plan->entries[i].trigger != FAULT_AT_TIME || fault_is_over(f, i))
			continue;
		/* What is due and cannot strike, as no QP is up, must not keep the rail awake. */
		at_ns = RTE_MAX(at_ns, now_ns + FAULT_LOOK_NS);
		next = RTE_MIN(next, at_ns);
	}
	for (uint32_t i = 0; i < m->n_active; i++) {
		if (m->active[i]->inv_head != m->active[i]->inv_tail)
			return 0;
	}
	return next;
}

int fault_open(struct rail *rail, struct mock *m, const struct fault_plan *plan)
{
	struct mock_fault *f = &m->fault;
	int rc = plan ? copy_plan(m, plan, &f->current) : 0;

	if (rc || !plan)
		return rc;
	f->last = f->want = &f->current->plan;
	return 0;
}

void fault_close(struct mock *m)
{
	struct fault_set *set;

	free(m->fault.current);
	while ((set = m->fault.retired) != NULL) {
		m->fault.retired = set->next;
		free(set);
	}
}
