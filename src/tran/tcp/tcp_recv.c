/* SPDX-License-Identifier: BSD-3-Clause */
/* tcp_recv.c - what a stream received, taken apart and handed to whom it is for. It never sends by
 * itself. It takes no lock: a transport is used by one thread at a time.
 *
 * Frames are read by the buffer, many at a time, and handed up where they lie. Bulk bodies, and
 * those of long frames, are read straight into their place; so that little of bulk bodies passes
 * the buffer, at most BOUNCE_MAX bytes are asked for where one may begin. Where the program may
 * look at the place meanwhile (tran_facts.polled) all of it passes the buffer: the kernel copies in
 * no order, and ends within a word.
 */
#include "tran/tcp/tcp_tx.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/copy.h"
#include "tran/place.h"

enum {
	BOUNCE_MAX = 4096,
	/* of the L2 cache, so that what was read is there until it is copied */
	POLLED_READ_SHARE = 8,
	POLLED_READ_LEAST = 64 * 1024,
	POLLED_READ_MOST = 256 * 1024,
	READS_MAX = 8, /* in one progress */
	WAIT_NS = 300 * 1000,
	WAIT_MOST_NS = 20 * 1000 * 1000,
	WAIT_LOOKS = 64,
	IN_VAIN_MAX = 63,
};

size_t tcp_polled_read_max(void)
{
	long l2 = sysconf(_SC_LEVEL2_CACHE_SIZE);
	size_t share = l2 > 0 ? (size_t)l2 / POLLED_READ_SHARE : 0; /* 0: it is not told */
	return RPWI_MAX(RPWI_MIN(share, (size_t)POLLED_READ_MOST), (size_t)POLLED_READ_LEAST);
}

/* Whom a frame is for; NULL: it was closed meanwhile. */
static struct tcp_ep *frame_ep(const struct tcp_stream *s, uint32_t id)
{
	struct tcp_ep *ep = tcp_ep_find(s->t, id);
	return ep && ep->bundle == s->bundle && ep->state == TCP_EP_UP ? ep : NULL;
}

/* ---- long frames ---- */

/* May bulk data come by stream 0? */
static bool expects(const struct tcp_bundle *b)
{
	return b->expecting[0] || (b->expecting[1] && !tcp_has_bulk_stream(b));
}

/* A receive for it is mostly posted in a moment where memory is polled, by NCCL, which posts ahead:
 * between two of its operations, or while it fetches what came before; a frame kept for it instead
 * is copied once more. So who polls leaves it, for WAIT_NS and WAIT_LOOKS; after a time in vain
 * some do not wait. */
static bool long_waits(struct tcp_stream *s)
{
	const struct tcp_bundle *b = s->bundle;
	uint64_t now_ns = rpwi_now_ns();
	/* nothing else is behind it that anybody waits for */
	bool alone = b->members.next == b->members.prev && !expects(b);
	if (!s->t->base.polled || !s->hot || !alone)
		return false;
	if (!s->wait_until_ns) {
		if (s->not_again) {
			s->not_again--;
			return false;
		}
		s->wait_since_ns = now_ns;
		s->wait_until_ns = now_ns + WAIT_NS;
		s->looks = 0;
		return true;
	}
	if (s->wait_until_ns > s->wait_since_ns && now_ns - s->wait_since_ns < WAIT_MOST_NS) {
		if (b->expecting[1]) { /* it fetches */
			s->wait_until_ns = now_ns + WAIT_NS;
			s->looks = 0;
		}
		if (now_ns < s->wait_until_ns || ++s->looks < WAIT_LOOKS)
			return true;
	}
	s->in_vain = RPWI_MIN(2 * s->in_vain + 1, (unsigned)IN_VAIN_MAX);
	s->not_again = s->in_vain;
	return false;
}

/* Its body goes where the receive wants it; or, where there is none yet, into memory of its own.
 * 1: it has to wait. */
static int long_begins(
	struct tcp_stream *s, struct tcp_ep *ep, const struct tcp_header *h, const uint8_t *more)
{
	uint64_t aligned[TRAN_HEAD_MAX / 8];
	memcpy(aligned, more, h->head_len);
	void *at = ep ? emulate_place_up(&ep->base, aligned, h->head_len, h->len) : NULL;
	bool later = at == TRAN_PLACE_LATER;
	if (later && long_waits(s))
		return 1;
	if (s->wait_until_ns && !later)
		s->in_vain = 0;
	s->wait_until_ns = 0;
	struct tcp_long *f = calloc(1, sizeof *f);
	if (f && ep) {
		f->id = h->id;
		f->len = h->len;
		f->head_len = h->head_len;
		memcpy(f->head, more, h->head_len);
		f->at = later || !at ? f->own = malloc(f->len) : at;
	}
	if (!f || (ep && !f->at)) {
		free(f);
		tcp_bundle_lost(s, RPW_ERR_NO_MEMORY, "no memory for a frame of %u bytes", h->len);
		return 0;
	}
	s->frame = f;
	s->body = (char *)f->at;
	s->body_left = h->len;
	return 0;
}

static void long_ends(struct tcp_stream *s)
{
	struct tcp_long *f = s->frame;
	struct tcp_ep *ep = f->id ? frame_ep(s, f->id) : NULL;
	s->frame = NULL; /* it is handed up, and the up-call may close the stream */
	s->body = NULL;
	if (ep)
		s->enough = !emulate_frame_up(&ep->base, f->head, f->head_len, f->at, f->len);
	free(f->own);
	free(f);
}

static int on_frame(
	struct tcp_stream *s, const struct tcp_header *h, const uint8_t *more, const char **why)
{
	if (s->index) {
		*why = "a frame on a stream for bulk data";
		return -1;
	}
	struct tcp_ep *ep = frame_ep(s, h->id);
	if (h->kind == TCP_LONG)
		return long_begins(s, ep, h, more);
	if (!ep)
		return 0;
	uint64_t aligned[TRAN_HEAD_MAX / 8]; /* who reads the head may do so by structs */
	const void *head = more;
	if ((uintptr_t)more % 8)
		head = memcpy(aligned, more, h->head_len);
	s->enough = !emulate_frame_up(&ep->base, head, h->head_len, more + h->head_len, h->len);
	return 0;
}

/* Nobody has shown our nonce on this stream yet: only who does may say more. */
static bool is_unknown(const struct tcp_bundle *b) { return b->connector && !b->founder[0].number; }

/* 0; -1: against the rules; 1: it has to wait. */
static int on_header(
	struct tcp_stream *s, const struct tcp_header *h, const uint8_t *more, const char **why)
{
	if (RPWI_UNLIKELY(is_unknown(s->bundle)) && h->kind != TCP_ATTACHED &&
		h->kind != TCP_LEAVE) {
		*why = "it does not begin with an answer";
		return -1;
	}
	if (RPWI_UNLIKELY(s->in_body) && h->kind != TCP_END) {
		*why = "bulk data without an end";
		return -1;
	}
	switch (h->kind) {
	case TCP_FRAME:
	case TCP_LONG:
		return on_frame(s, h, more, why);
	case TCP_BULK:
		return tcp_bulk_begins(s, h, more, why);
	case TCP_END:
		return tcp_bulk_ends(s, h, why);
	case TCP_ATTACH:
		return tcp_bundle_on_attach(s, h, more, why);
	case TCP_ATTACHED:
		return tcp_bundle_on_attached(s, h, more, why);
	case TCP_LEAVE:
		return tcp_ep_on_close(s, h, why);
	default: /* TCP_OPEN: tcp_get_header lets nothing else through */
		if (s->bundle->connector)
			tcp_bundle_more_streams(s->bundle);
		return 0;
	}
}

/* Into registered memory that the program may have unmapped, or into a buffer of our own operation,
 * which is the program's word. */
static bool place(struct tcp_stream *s, size_t n)
{
	const uint8_t *from = s->rx + s->rx_start;
	bool up = s->t->base.polled;
	if (s->in && s->in->checked)
		return !tran_place(s->t->pid, s->body, from, n, up);
	if (up)
		rpwi_copy_up(s->body, from, n);
	else
		memcpy(s->body, from, n);
	return true;
}

/* Bytes that it still needs, or 0. */
static size_t body_from_rx(struct tcp_stream *s)
{
	size_t have = s->rx_end - s->rx_start, n = RPWI_MIN(s->body_left, have);
	if (s->body && s->t->base.polled && n < s->body_left) { /* no part of a word */
		size_t past = (uintptr_t)(s->body + n) % 8;
		if (n <= past)
			return RPWI_MIN(s->body_left, have + 8);
		n -= past;
	}
	if (s->body && n && !place(s, n))
		tcp_bulk_fault(s);
	if (s->body)
		s->body += n;
	s->rx_start += n;
	s->body_left -= n;
	return 0;
}

/* Bytes from rx_start on that the next step needs; 0: rx is empty, or the step could be made. */
static size_t parse_step(struct tcp_stream *s, unsigned *things, const char **why)
{
	size_t have = s->rx_end - s->rx_start;
	if (s->body_left)
		return body_from_rx(s);
	if (s->frame) {
		++*things;
		long_ends(s);
		return 0;
	}
	if (have < TCP_HEADER_LEN)
		return TCP_HEADER_LEN;
	struct tcp_header h;
	const uint8_t *p = s->rx + s->rx_start;
	if (tcp_get_header(p, &h, why))
		return 0;
	size_t need = TCP_HEADER_LEN + tcp_more_len(&h);
	if (have < need)
		return need;
	s->rx_start += need;
	++*things;
	s->stalled = on_header(s, &h, p + TCP_HEADER_LEN, why) > 0;
	if (s->stalled) {
		s->rx_start -= need;
		--*things;
	}
	return 0;
}

static void against_the_rules(struct tcp_stream *s, const char *why)
{
	tcp_bundle_lost(s, RPW_ERR_PROTOCOL,
		is_unknown(s->bundle)
			? "the process that answers at the peer's tcp port is not the peer, it "
			  "has not shown our nonce: %s"
			: "the peer violated the tcp transport's protocol: %s",
		why);
}

/* Takes apart what is in rx. How many things happened. */
static unsigned parse(struct tcp_stream *s)
{
	unsigned things = 0;
	size_t need = 0;
	const char *why = NULL;
	while ((s->rx_start < s->rx_end || (s->frame && !s->body_left)) && !need && !s->stalled &&
		!s->enough && s->state == TCP_UP && s->bundle->state == TCP_BUNDLE_UP) {
		need = parse_step(s, &things, &why);
		if (why) {
			against_the_rules(s, why);
			return things;
		}
	}
	if (s->state != TCP_UP)
		return things;
	s->rx_need = need;
	if (s->rx_start == s->rx_end) {
		s->rx_start = s->rx_end = 0;
	} else if (s->rx_start + RPWI_MAX(need, BOUNCE_MAX) > TCP_BUFFER_LEN) {
		memmove(s->rx, s->rx + s->rx_start, s->rx_end - s->rx_start);
		s->rx_end -= s->rx_start;
		s->rx_start = 0;
	}
	return things;
}

/* Does what comes next pass rx by: to its place, or nowhere? What TLS opens is written by this
 * process: into memory that may not be mapped it goes through rx, and place(). */
static bool past_rx(const struct tcp_stream *s)
{
	bool by_rx = s->t->base.polled || (s->tls && s->in && s->in->checked);
	return s->body_left && (s->body ? !by_rx : s->rx_start == s->rx_end);
}

/* One read. The requested number in *asked. */
static ssize_t read_some(struct tcp_stream *s, size_t *asked)
{
	bool past = past_rx(s);
	if (past && !s->body) {
		*asked = s->body_left;
		return tcp_io_skip(s, s->body_left);
	}
	size_t have = s->rx_end - s->rx_start, room = TCP_BUFFER_LEN - s->rx_end;
	if (s->t->base.polled)
		room = RPWI_MIN(room, RPWI_MAX(s->t->polled_read_max, s->rx_need));
	else if (past || (!s->body_left && (s->index || s->in_body || expects(s->bundle))))
		room = RPWI_MIN(
			room, RPWI_MAX(BOUNCE_MAX, s->rx_need > have ? s->rx_need - have : 0));
	struct iovec iov[2] = {{s->body, s->body_left}, {s->rx + s->rx_end, room}};
	*asked = room + (past ? s->body_left : 0);
	int first = past ? 0 : 1;
	return tcp_io_recv(s, iov + first, 2 - first);
}

static void took(struct tcp_stream *s, size_t n)
{
	s->heard = true;
	s->idle_polls = 0;
	size_t of_body = past_rx(s) ? RPWI_MIN(n, s->body_left) : 0;
	if (s->body)
		s->body += of_body;
	s->body_left -= of_body;
	s->rx_end += n - of_body;
}

static void read_ended(struct tcp_stream *s, ssize_t r)
{
	if (r < 0 && s->tls && errno == EBADMSG)
		tcp_bundle_lost(s, RPW_ERR_PROTOCOL, "TLS: %s", tcp_tls_why(s));
	else if (is_unknown(s->bundle))
		tcp_bundle_lost(s, RPW_ERR_REFUSED,
			"the peer's tcp port answered, but closed the connection before it showed "
			"our nonce");
	else if (r == 0)
		tcp_bundle_lost(s, RPW_ERR_UNREACHABLE, "the peer's side closed the tcp stream");
	else
		tcp_bundle_lost(
			s, RPW_ERR_UNREACHABLE, "the tcp stream broke: %s", strerror(errno));
}

/* It stopped before bulk data that nobody expected, or a long frame: is it expected now? */
static unsigned resumed(struct tcp_stream *s)
{
	s->stalled = false;
	unsigned things = parse(s);
	if (s->state == TCP_UP && !s->stalled && !s->hot) {
		tcp_stream_watch(s, true);
		tcp_hot_add(s);
	}
	return things;
}

/* What the round before has left in rx. */
static unsigned went_on(struct tcp_stream *s)
{
	s->enough = false;
	return parse(s);
}

unsigned tcp_stream_read(struct tcp_stream *s)
{
	unsigned things = 0;
	if (s->stalled)
		things += resumed(s);
	else if (s->enough)
		things += went_on(s);
	for (int i = 0; i < READS_MAX && !s->stalled && !s->enough && s->state == TCP_UP &&
			s->bundle->state == TCP_BUNDLE_UP;
		i++) {
		if (!s->rx && !(s->rx = tcp_buffer_get(s->t)))
			break; /* no memory now: the bytes stay in the socket */
		if (!rpwi_list_empty(&s->t->moved)) /* before what the peer sent for it */
			tcp_bulk_tell(s->t);
		size_t asked;
		ssize_t r = read_some(s, &asked);
		if (r < 0 && errno == EINTR)
			continue;
		if (r < 0 && errno == EFAULT && s->body_left) {
			tcp_bulk_fault(s);
			continue;
		}
		if (r < 0 && errno == EAGAIN && s->send_errno)
			errno = s->send_errno;
		if (r <= 0 && !(r < 0 && errno == EAGAIN)) {
			read_ended(s, r);
			break;
		}
		if (r < 0)
			break;
		things++;
		took(s, (size_t)r);
		things += parse(s);
		if ((size_t)r < asked)
			break;
	}
	if (s->enough && s->state == TCP_UP && rpwi_list_empty(&s->unread))
		rpwi_list_add_tail(&s->t->unread, &s->unread);
	if (!things)
		s->idle_polls++;
	if (s->stalled && s->state == TCP_UP && !s->wait_until_ns) {
		tcp_hot_del(s);
		tcp_stream_watch(s, false);
	}
	if (s->rx && s->rx_start == s->rx_end) {
		tcp_buffer_put(s->t, s->rx);
		s->rx = NULL;
	}
	return things;
}
