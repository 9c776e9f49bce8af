/* SPDX-License-Identifier: BSD-3-Clause */
/* The client's side of the rings: operations and slots, publishing, draining, the sleep handshake, and the daemon's
 * death. */
#include "client_priv.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define LATE_POLL_NS 1000000u /* how long to sleep at most while a CANCEL or RELEASE waits for room in the ring */

static enum ry_status reserve_late(struct ry_client *c);
static bool has_room(struct ry_client *c);
static void flush_late(struct ry_client *c);
static struct ry_sqe *next_sqe(struct ry_client *c);
static void kick(struct ry_client *c);
static void take(struct ry_client *c, const struct ry_cqe *e);
static void finish_abandoned(struct ry_client *c, struct ryc_op *op);
static void set_done(struct ry_client *c, struct ryc_op *op);
static bool spin(struct ry_client *c, uint64_t until_ns, uint32_t n_before);
static int poll_fds(struct ry_client *c, uint64_t until_ns, struct pollfd fds[2]);
static void read_event(struct ry_client *c);

struct ryc_op *ryc_op_new(struct ry_client *c, enum ry_op kind)
{
	struct ryc_op *op = STAILQ_FIRST(&c->free_ops);
	bool is_full;

	flush_late(c);
	is_full = !op || c->n_late > 0 || !has_room(c);
	if (c->dead) {
		ryc_fail(c, c->dead, "%s", c->dead_text);
		return NULL;
	}
	if (is_full) {
		ryc_fail(c, RY_ERR_LIMIT, "%u operations are in flight, the most for this client: reap some first",
			c->n_ops);
		return NULL;
	}
	if (reserve_late(c))
		return NULL;
	STAILQ_REMOVE_HEAD(&c->free_ops, link);
	*op = (struct ryc_op){.ticket = ++c->next_seq << 16 | (uint64_t)(op - c->ops), .op = (uint8_t)kind};
	c->n_ops++;
	return op;
}

/* Room for the one CANCEL and one RELEASE that every operation may need, so that neither can fail later. */
static enum ry_status reserve_late(struct ry_client *c)
{
	uint32_t need = c->n_leases + 2 * (c->n_ops + 1) + c->n_late;
	struct ryc_late *more;

	if (c->late_head + need <= c->cap_late)
		return RY_OK;
	if (c->n_late > 0)
		memmove(c->late, c->late + c->late_head, c->n_late * sizeof(*c->late));
	c->late_head = 0;
	if (need <= c->cap_late)
		return RY_OK;
	more = realloc(c->late, 2 * need * sizeof(*more));
	if (!more)
		return ryc_fail(c, RY_ERR_LIMIT, "no memory");
	c->late = more;
	c->cap_late = 2 * need;
	return RY_OK;
}

void ryc_op_free(struct ry_client *c, struct ryc_op *op)
{
	ryc_arena_free(&c->put_arena, op->block);
	op->block = NULL;
	op->ticket = 0;
	op->state = RYC_FREE;
	c->n_ops--;
	/* At the end: a slot rests as long as possible, which makes a late write by a faulty daemon visible. */
	STAILQ_INSERT_TAIL(&c->free_ops, op, link);
}

struct ry_sqe *ryc_push(struct ry_client *c, struct ryc_op *op)
{
	struct ry_sqe *e = next_sqe(c);

	e->ticket = op->ticket;
	e->op = op->op;
	e->slot = (uint16_t)(op - c->ops);
	e->deadline_ns = op->deadline_ns;
	op->state = RYC_SUBMITTED;
	c->n_flight++;
	return e;
}

static struct ry_sqe *next_sqe(struct ry_client *c)
{
	struct ry_sqe *e = &c->sq[c->sq_tail++ & (c->n_entries - 1)];

	memset(e, 0, sizeof(*e));
	return e;
}

static bool has_room(struct ry_client *c)
{
	/* Partner: the daemon's release of head after it copied an entry; we may overwrite what lies before it. */
	uint32_t n = c->sq_tail - __atomic_load_n(&c->sq_index->head, __ATOMIC_ACQUIRE);

	if (n > c->n_entries)
		ryc_die(c, RY_ERR_PROTOCOL, "the daemon moved the submit ring's head past its tail: attach again");
	return n < c->n_entries;
}

void ryc_publish(struct ry_client *c)
{
	if (c->sq_tail == c->sq_index->tail)
		return;
	/* Partner: the daemon's acquire of tail; entries and slots are written before it. */
	__atomic_store_n(&c->sq_index->tail, c->sq_tail, __ATOMIC_RELEASE);
	kick(c);
}

static void kick(struct ry_client *c)
{
	uint64_t one = 1;

	/* Partner: the daemon's fence between setting need_wakeup and its last look at tail: one of us sees the other.
	 */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (!__atomic_load_n(&c->sq_index->need_wakeup, __ATOMIC_RELAXED))
		return;
	while (write(c->sq_event_fd, &one, sizeof(one)) < 0 && errno == EINTR)
		;
}

void ryc_push_late(struct ry_client *c, enum ry_op kind, uint64_t arg)
{
	if (c->dead)
		return;
	flush_late(c);
	c->late[c->late_head + c->n_late++] = (struct ryc_late){.arg = arg, .op = (uint8_t)kind};
	flush_late(c);
}

static void flush_late(struct ry_client *c)
{
	if (c->n_late == 0)
		return;
	while (c->n_late > 0 && !c->dead && has_room(c)) {
		struct ryc_late *l = &c->late[c->late_head++];
		struct ry_sqe *e = next_sqe(c);

		e->op = l->op;
		e->arg = l->arg;
		c->n_late--;
	}
	if (c->n_late == 0)
		c->late_head = 0;
	ryc_publish(c);
}

void ryc_drain(struct ry_client *c)
{
	uint32_t tail;

	if (c->dead)
		return;
	flush_late(c);
	/* Partner: the daemon's release of tail; completions and slots are written before it. */
	tail = __atomic_load_n(&c->cq_index->tail, __ATOMIC_ACQUIRE);
	if (tail == c->cq_head)
		return;
	if (tail - c->cq_head > c->n_entries) {
		ryc_die(c, RY_ERR_PROTOCOL, "the daemon overran the complete ring: attach again");
		return;
	}
	while (c->cq_head != tail)
		take(c, &c->cq[c->cq_head++ & (c->n_entries - 1)]);
	/* Partner: the daemon's acquire of head before it writes new completions over these. */
	__atomic_store_n(&c->cq_index->head, c->cq_head, __ATOMIC_RELEASE);
}

/* A ticket that names nothing in flight is dropped: a second answer must not end a later operation in the same slot. */
static void take(struct ry_client *c, const struct ry_cqe *e)
{
	uint32_t idx = (uint32_t)(e->ticket & 0xffff);
	struct ryc_op *op = idx < c->max_ops ? &c->ops[idx] : NULL;

	if (!op || op->state != RYC_SUBMITTED || op->ticket != e->ticket)
		return;
	op->cqe = *e;
	set_done(c, op);
}

static void set_done(struct ry_client *c, struct ryc_op *op)
{
	op->state = RYC_DONE;
	c->n_flight--;
	if (op->is_abandoned)
		finish_abandoned(c, op);
	else if (!op->is_internal)
		STAILQ_INSERT_TAIL(&c->done_ops, op, link);
}

static void finish_abandoned(struct ry_client *c, struct ryc_op *op)
{
	struct ry_completion unwanted;

	ryc_op_finish(c, op, &unwanted);
	ry_lease_release(c, &unwanted.lease);
}

void ryc_die(struct ry_client *c, enum ry_status status, const char *text)
{
	if (c->dead)
		return;
	c->dead = status;
	c->dead_text = text;
	c->n_late = 0;
	for (uint32_t i = 0; i < c->max_ops; i++) {
		struct ryc_op *op = &c->ops[i];

		if (op->state != RYC_SUBMITTED)
			continue;
		op->is_lost = true;
		op->cqe = (struct ry_cqe){.ticket = op->ticket,
			.status = status,
			.op = op->op,
			.rail_idx = RY_RAIL_NONE,
			.done_ns = ryc_now_ns()};
		set_done(c, op);
	}
}

void ryc_check_socket(struct ry_client *c)
{
	enum ry_status why = RY_OK;
	char unasked[512];
	ssize_t n;

	while (!c->dead) {
		n = recv(c->socket_fd, unasked, sizeof(unasked), MSG_DONTWAIT);
		/* It sends its last word as one piece. */
		if (n > 0)
			why = ryc_last_word(unasked, (size_t)n, c->last_word);
		if ((n > 0 && !why) || (n < 0 && errno == EINTR))
			continue;
		if (n < 0 && errno == EAGAIN)
			return;
		/* What it published before it died still counts. */
		ryc_drain(c);
		if (why)
			ryc_die(c, why, c->last_word);
		else
			ryc_die(c, RY_ERR_DETACHED, "the daemon closed the attachment: see its log, then attach again");
	}
}

bool ryc_arm(struct ry_client *c)
{
	__atomic_store_n(&c->cq_index->need_wakeup, 1, __ATOMIC_RELAXED);
	/* Partner: the daemon's fence between its store of tail and its look at need_wakeup: one of us sees the other.
	 */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (__atomic_load_n(&c->cq_index->tail, __ATOMIC_RELAXED) == c->cq_head && !c->dead)
		return true;
	ryc_disarm(c);
	return false;
}

void ryc_disarm(struct ry_client *c)
{
	__atomic_store_n(&c->cq_index->need_wakeup, 0, __ATOMIC_RELAXED);
	if (c->is_armed)
		read_event(c);
	c->is_armed = false;
}

enum ry_status ryc_sleep(struct ry_client *c, uint64_t until_ns)
{
	struct pollfd fds[2] = {{.fd = c->cq_wake_fd, .events = POLLIN}, {.fd = c->socket_fd, .events = POLLIN}};
	uint32_t n_before = c->n_flight;
	int n;

	ryc_drain(c);
	if (c->dead || c->n_flight != n_before || spin(c, until_ns, n_before) || !ryc_arm(c))
		return RY_OK;
	n = poll_fds(c, until_ns, fds);
	ryc_disarm(c);
	if (n > 0 && fds[0].revents)
		read_event(c);
	if (n > 0 && fds[1].revents)
		ryc_check_socket(c);
	ryc_drain(c);
	if (c->n_flight == n_before && !c->dead && ryc_now_ns() >= until_ns)
		return RY_ERR_TIMEOUT;
	return RY_OK;
}

static bool spin(struct ry_client *c, uint64_t until_ns, uint32_t n_before)
{
	uint64_t end;

	if (c->spin_ns == 0)
		return false;
	end = ryc_deadline(c->spin_ns);
	end = end < until_ns ? end : until_ns;
	while (c->n_flight == n_before && !c->dead && ryc_now_ns() < end)
		ryc_drain(c);
	return c->n_flight != n_before || c->dead;
}

static int poll_fds(struct ry_client *c, uint64_t until_ns, struct pollfd fds[2])
{
	uint64_t now = ryc_now_ns();
	uint64_t left_ns = until_ns > now ? until_ns - now : 0;
	struct timespec left;

	if (c->n_late > 0 && left_ns > LATE_POLL_NS)
		left_ns = LATE_POLL_NS;
	left.tv_sec = (time_t)(left_ns / 1000000000u);
	left.tv_nsec = (long)(left_ns % 1000000000u);
	return ppoll(fds, 2, until_ns == UINT64_MAX && c->n_late == 0 ? NULL : &left, NULL);
}

static void read_event(struct ry_client *c)
{
	uint8_t wakes[64]; /* what is left behind costs an empty wake-up */

	/* Non-blocking (set at attach): EAGAIN says that nobody signalled. */
	while (read(c->cq_wake_fd, wakes, sizeof(wakes)) < 0 && errno == EINTR)
		;
}
