/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The TCP transport's receiving half: a peer that sends any bytes, in any pieces, while windows open and close. Memory
 * is, byte for byte, what a plain model of docs/wire.md makes of the same stream: of a frame that leaves its window, or
 * whose window is closed or another QP's, nothing lands, and the bytes are counted; the first breach ends the QP.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdalign.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fuzz.h"
#include "hot/rail.h"

#define QPS 2u
#define WINDOWS 4u
#define ROOM_BYTES 8192u /* each window lies in the middle third of its room */
#define FRAME_MAX 4096u
#define POLLS_MAX 1000000u

enum action {
	ACT_RAW = 0,  /* bytes of the input */
	ACT_DATA = 1, /* a frame for a window, or almost */
	ACT_SAY = 2,  /* a message */
	ACT_BIND = 3,
	ACT_CLOSE = 4,
	ACTIONS = 5,
};

/* What the model knows of a stream. */
struct stream {
	uint8_t head[sizeof(struct wire_frame) + WIRE_MSG_BYTES];
	uint32_t n_head;
	struct wire_frame f;
	uint32_t left; /* of a DATA frame */
	bool is_over;
	uint64_t n_messages;
	uint64_t n_sent; /* bytes up to the breach, and some behind it */
};

static void set_up(void);
static void begin(void);
static void connect_qp(unsigned i);
static void act(struct fuzz_in *in);
static void data_frame(struct fuzz_in *in, unsigned q);
static void bind_window(unsigned i, uint32_t bytes);
static void feed(unsigned q, const uint8_t *bytes, size_t n);
static void model(unsigned q, const uint8_t *bytes, size_t n);
static size_t model_payload(struct stream *s, unsigned q, const uint8_t *bytes, size_t n);
static void model_header(struct stream *s);
static void drain(unsigned q);
static void take(const struct wc *wc);
static void compare(void);
static void end(void);

static struct rail *rail;
static int listener;
static struct sockaddr_in at = {.sin_family = AF_INET};
static struct qp *qps[QPS];
static int peers[QPS];
static struct stream streams[QPS];
static bool is_down[QPS];
static uint64_t n_messages[QPS];
static uint64_t rx_before, dropped_before, dropped;
static uint8_t rooms[WINDOWS][ROOM_BYTES], want[WINDOWS][ROOM_BYTES];

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct fuzz_in in = {data, bytes};

	if (!rail)
		set_up();
	begin();
	for (unsigned i = 0; in.left && i < 100; i++)
		act(&in);
	end();
	return 0;
}

static void set_up(void)
{
	socklen_t len = sizeof(at);

	FUZZ_CHECK(posix_memalign((void **)&rail, alignof(struct rail), sizeof(*rail)) == 0, "memory");
	memset(rail, 0, sizeof(*rail));
	rail->conf = (struct rail_conf){.name = "r0", .transport = "tcp"};
	rail->ops = *transport_find("tcp");
	rail->now_ns = 1000000000;
	FUZZ_CHECK(rail->ops.open(rail, &rail->conf) == 0, "open");
	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	listener = socket(AF_INET, SOCK_STREAM, 0);
	FUZZ_CHECK(bind(listener, (struct sockaddr *)&at, len) == 0 && listen(listener, 8) == 0 &&
			   getsockname(listener, (struct sockaddr *)&at, &len) == 0,
		"listen");
}

static void begin(void)
{
	memset(rooms, 0, sizeof(rooms));
	memset(want, 0, sizeof(want));
	memset(streams, 0, sizeof(streams));
	memset(is_down, 0, sizeof(is_down));
	memset(n_messages, 0, sizeof(n_messages));
	for (unsigned i = 0; i < QPS; i++)
		connect_qp(i);
	rail->ops.poll(rail, NULL, 0);
	for (unsigned i = 0; i < WINDOWS; i++)
		bind_window(i, ROOM_BYTES / 3);
	rx_before = stat_get(&rail->counters.wire_rx_bytes);
	dropped_before = stat_get(&rail->counters.late_dropped_bytes);
	dropped = 0;
}

static void connect_qp(unsigned i)
{
	struct qp_request req = {.pair_idx = 1, .qp_idx = (uint16_t)i, .peer_credits = 24};
	struct linger hard = {.l_onoff = 1};

	peers[i] = socket(AF_INET, SOCK_STREAM, 0);
	/* No TIME_WAIT: ports would run out. */
	setsockopt(peers[i], SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
	FUZZ_CHECK(connect(peers[i], (struct sockaddr *)&at, sizeof(at)) == 0, "connect");
	req.fd = accept(listener, NULL, NULL);
	FUZZ_CHECK(req.fd >= 0 && rail->ops.pair_connect(rail, &req, &qps[i]) == 0, "pair_connect");
	qps[i]->slot = rail->n_qps;
	rail->qps[rail->n_qps++] = qps[i];
	rail->qp_epoch++;
}

/* ---- the peer ---- */

static void act(struct fuzz_in *in)
{
	unsigned what = (unsigned)fuzz_number(in, 1), q = what / ACTIONS % QPS;
	struct wire_frame f = {.type = WIRE_FRAME_MSG, .len_bytes = sizeof(struct wire_cancel)};
	struct wire_cancel m = {.h = {.type = WIRE_CANCEL, .len_bytes = sizeof(m)}};
	uint8_t bytes[512];
	size_t n;

	switch (what % ACTIONS) {
	case ACT_RAW:
		n = fuzz_bytes(in, bytes, fuzz_number(in, 2) % sizeof(bytes));
		feed(q, bytes, n);
		break;
	case ACT_DATA:
		data_frame(in, q);
		break;
	case ACT_SAY:
		m.h.request_id = fuzz_number(in, 1);
		memcpy(bytes, &f, sizeof(f));
		memcpy(bytes + sizeof(f), &m, sizeof(m));
		n = fuzz_number(in, 1) % (sizeof(f) + sizeof(m));
		feed(q, bytes, n);
		feed(q, bytes + n, sizeof(f) + sizeof(m) - n);
		break;
	case ACT_BIND:
		n = fuzz_number(in, 1);
		bind_window(n % WINDOWS, (uint32_t)fuzz_number(in, 2) % (ROOM_BYTES / 3 + 1));
		break;
	default:
		rail->windows[1 + fuzz_number(in, 1) % WINDOWS].state = WINDOW_INVALIDATING;
	}
}

/* Key, offset and length are mostly those of a window; the first piece ends anywhere, and a window may close behind it.
 */
static void data_frame(struct fuzz_in *in, unsigned q)
{
	static uint8_t bytes[sizeof(struct wire_frame) + FRAME_MAX];
	unsigned which = (unsigned)fuzz_number(in, 1);
	struct window *w = &rail->windows[1 + which % WINDOWS];
	struct wire_frame f = {.type = WIRE_FRAME_DATA, .key = w->key ^ (which & 0x80 ? 0x100u : 0)};
	size_t n, cut;

	f.offset = fuzz_number(in, 2) % (w->len_bytes + 2);
	f.len_bytes = 1 + (uint32_t)fuzz_number(in, 2) % FRAME_MAX;
	if (which & 0x40 && w->len_bytes > f.offset) /* up to its end, or a byte further */
		f.len_bytes = (uint32_t)(w->len_bytes - f.offset) + (which >> 5 & 1);
	n = sizeof(f) + f.len_bytes;
	memcpy(bytes, &f, sizeof(f));
	memset(bytes + sizeof(f), 1 + which % 255, f.len_bytes);
	cut = fuzz_number(in, 2) % (n + 1);
	feed(q, bytes, cut);
	if (which & 0x10)
		rail->windows[1 + fuzz_number(in, 1) % WINDOWS].state = WINDOW_DEAD;
	feed(q, bytes + cut, n - cut);
}

/* Windows take turns with the QPs, as slots 1 and on. */
static void bind_window(unsigned i, uint32_t bytes)
{
	rail->windows[1 + i] = (struct window){.addr = rooms[i] + ROOM_BYTES / 3,
		.len_bytes = bytes,
		.qp = qps[i % QPS],
		.key = (1 + i) | ++rail->window_salt << WINDOW_SLOT_BITS,
		.state = WINDOW_BOUND};
}

static void feed(unsigned q, const uint8_t *bytes, size_t n)
{
	if (!n || is_down[q])
		return;
	model(q, bytes, n);
	streams[q].n_sent += n;
	FUZZ_CHECK(send(peers[q], bytes, n, MSG_NOSIGNAL) == (ssize_t)n, "send");
	drain(q);
	compare();
}

/* ---- the model ---- */

static void model(unsigned q, const uint8_t *bytes, size_t n)
{
	struct stream *s = &streams[q];

	while (n && !s->is_over) {
		size_t took = 1;

		if (s->left) {
			took = model_payload(s, q, bytes, n);
		} else {
			s->head[s->n_head++] = *bytes;
			if (s->n_head >= sizeof(s->f))
				model_header(s);
		}
		bytes += took;
		n -= took;
	}
}

static size_t model_payload(struct stream *s, unsigned q, const uint8_t *bytes, size_t n)
{
	uint32_t slot = s->f.key & (RAIL_ACTIVE_MAX - 1);
	const struct window *w = &rail->windows[slot];
	uint32_t took = (uint32_t)(n < s->left ? n : s->left);

	if (slot >= 1 && slot <= WINDOWS && w->key == s->f.key && w->state == WINDOW_BOUND && w->qp == qps[q] &&
		s->f.offset + s->f.len_bytes <= w->len_bytes)
		memcpy(want[slot - 1] + ROOM_BYTES / 3 + s->f.offset + (s->f.len_bytes - s->left), bytes, took);
	else if (s->f.key != WIRE_PROBE_KEY)
		dropped += took;
	s->left -= took;
	return took;
}

/* A header is here, and perhaps its message. */
static void model_header(struct stream *s)
{
	memcpy(&s->f, s->head, sizeof(s->f));
	if (wire_frame_check(&s->f) != RY_OK) {
		s->is_over = true;
	} else if (s->f.type == WIRE_FRAME_DATA) {
		s->left = s->f.len_bytes;
		s->n_head = 0;
	} else if (s->n_head == sizeof(s->f) + s->f.len_bytes) {
		alignas(8) uint8_t msg[WIRE_MSG_BYTES];

		memcpy(msg, s->head + sizeof(s->f), s->f.len_bytes);
		s->is_over = wire_msg_check(msg, s->f.len_bytes) != RY_OK;
		s->n_messages += !s->is_over;
		s->n_head = 0;
	}
}

/* ---- the rail ---- */

/* Until it has taken all that was sent, or given the QP up. */
static void drain(unsigned q)
{
	uint64_t sent = 0;

	for (unsigned i = 0; i < QPS; i++)
		sent += streams[i].n_sent;
	for (unsigned i = 0;
		streams[q].is_over ? !is_down[q] : stat_get(&rail->counters.wire_rx_bytes) - rx_before < sent; i++) {
		struct wc wc[RY_BURST_MAX];
		uint16_t n = rail->ops.poll(rail, wc, RY_BURST_MAX);

		for (uint16_t k = 0; k < n; k++)
			take(&wc[k]);
		FUZZ_CHECK(i < POLLS_MAX, "QP %u takes nothing", q);
	}
	/* What the breach left unread is of no interest. */
	if (is_down[q])
		rx_before = stat_get(&rail->counters.wire_rx_bytes) - (sent - streams[q].n_sent);
	if (is_down[q])
		streams[q].n_sent = 0;
}

static void take(const struct wc *wc)
{
	unsigned q = wc->qp->qp_idx;

	FUZZ_CHECK(q < QPS && !is_down[q], "QP %u again", q);
	if (wc->op == WC_RECV) {
		FUZZ_CHECK(wire_msg_check(wc->msg, wc->len_bytes) == RY_OK, "a message that is none");
		n_messages[q]++;
		return;
	}
	FUZZ_CHECK(wc->op == WC_QP_DOWN && wc->status == WC_ERR_PROTOCOL && streams[q].is_over,
		"QP %u: op %u status %u", q, wc->op, wc->status);
	is_down[q] = true;
}

static void compare(void)
{
	for (unsigned q = 0; q < QPS; q++)
		FUZZ_CHECK(n_messages[q] == streams[q].n_messages, "%lu messages, not %lu",
			(unsigned long)n_messages[q], (unsigned long)streams[q].n_messages);
	FUZZ_CHECK(!memcmp(rooms, want, sizeof(rooms)), "memory is not what the stream says");
	FUZZ_CHECK(stat_get(&rail->counters.late_dropped_bytes) - dropped_before == dropped,
		"%lu bytes dropped, not %lu",
		(unsigned long)(stat_get(&rail->counters.late_dropped_bytes) - dropped_before), (unsigned long)dropped);
}

static void end(void)
{
	rail->n_qps = 0;
	rail->qp_epoch++;
	rail->ops.poll(rail, NULL, 0);
	for (unsigned i = 0; i < QPS; i++) {
		rail->ops.pair_close(rail, qps[i]);
		close(peers[i]);
	}
	memset(rail->windows, 0, sizeof(rail->windows));
}
