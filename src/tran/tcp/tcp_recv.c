/* SPDX-License-Identifier: BSD-3-Clause */
/* tcp_recv.c - what a stream received, taken apart and handed to whom it is for. It never sends by itself. It takes no lock: a transport is used by one thread at a time.
 *
 * Frames are read by the buffer, many at a time, and handed up where they lie. Bulk bodies are read straight into their place; so that little of them passes the buffer, at most
 * BOUNCE_MAX bytes are asked for where a bulk body may begin. Where the program may look at the place meanwhile (tran_facts.polled) all of it passes the buffer: the kernel copies in no
 * order, and ends within a word.
 */
#include "tran/tcp/tcp_priv.h"

#include <errno.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/copy.h"

enum {
	BOUNCE_MAX = 4096,
	POLLED_READ_MAX = 128 * 1024, /* so much fits the L2 cache until it is copied */
	READS_MAX = 8,                /* in one progress */
};

static int on_frame(
	struct tcp_stream *s, const struct tcp_header *h, const uint8_t *more, const char **why)
{
	if (s->index) {
		*why = "a frame on a stream for bulk data";
		return -1;
	}
	struct tcp_ep *ep = tcp_ep_find(s->t, h->id);
	if (!ep || ep->bundle != s->bundle || ep->state != TCP_EP_UP)
		return 0;                    /* closed meanwhile */
	uint64_t aligned[TRAN_HEAD_MAX / 8]; /* who reads the head may do so by structs */
	const void *head = more;
	if ((uintptr_t)more % 8)
		head = memcpy(aligned, more, h->head_len);
	s->t->base.up->frame(ep->base.user, head, h->head_len, more + h->head_len, h->len);
	return 0;
}

/* Nobody has shown our nonce on this stream yet: only who does may say more. */
static bool is_unknown(const struct tcp_bundle *b) { return b->connector && !b->founder[0].number; }

static int on_header(
	struct tcp_stream *s, const struct tcp_header *h, const uint8_t *more, const char **why)
{
	if (RPWI_UNLIKELY(is_unknown(s->bundle)) && h->kind != TCP_ATTACHED &&
		h->kind != TCP_LEAVE) {
		*why = "it does not begin with an answer";
		return -1;
	}
	switch (h->kind) {
	case TCP_FRAME:
		return on_frame(s, h, more, why);
	case TCP_GET:
		return tcp_rma_on_get(s, h, more, why);
	case TCP_PUT:
		return tcp_rma_on_put(s, h, more, why);
	case TCP_ADD:
	case TCP_SWAP:
		return tcp_rma_on_atomic(s, h, more, why);
	case TCP_DATA:
		return tcp_rma_on_data(s, h, why);
	case TCP_DONE:
		return tcp_rma_on_done(s, h, why);
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

static bool place_up(struct tcp_stream *s, size_t n)
{
	size_t into_page = (uintptr_t)s->body % (size_t)sysconf(_SC_PAGESIZE);
	if (s->body_kind == TCP_PUT &&
		madvise(s->body - into_page, n + into_page, MADV_POPULATE_WRITE) &&
		(errno == ENOMEM || errno == EFAULT))
		return false;
	rpwi_copy_up(s->body, s->rx + s->rx_start, n);
	return true;
}

/* Into registered memory that the program may have unmapped: the kernel copies, and says so; memcpy would crash. Our own operations' buffers are the program's word. */
static bool place(struct tcp_stream *s, size_t n)
{
	if (s->t->base.polled)
		return place_up(s, n);
	struct iovec from = {s->rx + s->rx_start, n}, to = {s->body, n};
	if (s->body_kind == TCP_PUT) {
		ssize_t r = process_vm_writev(s->t->pid, &from, 1, &to, 1, 0);
		if (r == (ssize_t)n)
			return true;
		if (r >= 0 || errno == EFAULT)
			return false;
	}
	memcpy(s->body, from.iov_base, n); /* also where a sandbox forbids that call */
	return true;
}

/* Bytes that it still needs, or 0. */
static size_t body_from_rx(struct tcp_stream *s, const char **why)
{
	size_t have = s->rx_end - s->rx_start, n = RPWI_MIN(s->body_left, have);
	if (s->body && s->t->base.polled && n < s->body_left) { /* no part of a word */
		size_t past = (uintptr_t)(s->body + n) % 8;
		if (n <= past)
			return RPWI_MIN(s->body_left, have + 8);
		n -= past;
	}
	if (s->body && n && !place(s, n))
		tcp_rma_body_fault(s);
	if (s->body)
		s->body += n;
	s->rx_start += n;
	s->body_left -= n;
	if (!s->body_left)
		tcp_rma_body_end(s, why);
	return 0;
}

/* Bytes from rx_start on that the next step needs; 0: rx is empty, or the step could be made. */
static size_t parse_step(struct tcp_stream *s, unsigned *things, const char **why)
{
	size_t have = s->rx_end - s->rx_start;
	if (s->body_left)
		return body_from_rx(s, why);
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
	if (on_header(s, &h, p + TCP_HEADER_LEN, why) == 0 &&
		(h.kind == TCP_DATA || h.kind == TCP_PUT) && !s->body_left)
		tcp_rma_body_end(s, why);
	return 0;
}

static void against_the_rules(struct tcp_stream *s, const char *why)
{
	tcp_bundle_lost(s, RPW_ERR_PROTOCOL,
		is_unknown(s->bundle) ? "what answers at the peer's tcp port is not the peer, it "
					"has not shown our nonce: %s"
				      : "the peer sent what the tcp transport does not allow: %s",
		why);
}

unsigned tcp_stream_parse(struct tcp_stream *s)
{
	unsigned things = 0;
	size_t need = 0;
	const char *why = NULL;
	while (s->rx_start < s->rx_end && !need && s->state == TCP_UP &&
		s->bundle->state == TCP_BUNDLE_UP) {
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

/* Does what comes next pass rx by: to its place, or nowhere? What TLS opens is written by this process: into memory that may not be mapped it goes through rx, and place(). */
static bool past_rx(const struct tcp_stream *s)
{
	bool by_rx = s->t->base.polled || (s->tls && s->body_kind == TCP_PUT);
	return s->body_left && (s->body ? !by_rx : s->rx_start == s->rx_end);
}

/* One read. What was asked for in *asked. */
static ssize_t read_some(struct tcp_stream *s, size_t *asked)
{
	bool past = past_rx(s);
	if (past && !s->body) {
		*asked = s->body_left;
		return tcp_io_skip(s, s->body_left);
	}
	size_t have = s->rx_end - s->rx_start, room = TCP_BUFFER_LEN - s->rx_end;
	if (s->t->base.polled)
		room = RPWI_MIN(room, RPWI_MAX((size_t)POLLED_READ_MAX, s->rx_need));
	else if (past || (!s->body_left && (s->index || s->chunk_count)))
		room = RPWI_MIN(
			room, RPWI_MAX(BOUNCE_MAX, s->rx_need > have ? s->rx_need - have : 0));
	struct iovec iov[2] = {{s->body, s->body_left}, {s->rx + s->rx_end, room}};
	*asked = room + (past ? s->body_left : 0);
	return tcp_io_recv(s, past ? iov : iov + 1, past ? 2 : 1);
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
	const char *why = NULL;
	if (of_body && !s->body_left && tcp_rma_body_end(s, &why))
		against_the_rules(s, why);
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

unsigned tcp_stream_read(struct tcp_stream *s)
{
	unsigned things = 0;
	for (int i = 0; i < READS_MAX && s->state == TCP_UP && s->bundle->state == TCP_BUNDLE_UP;
		i++) {
		if (!s->rx && !(s->rx = tcp_buffer_get(s->t)))
			break; /* no memory now: the bytes stay in the socket */
		size_t asked;
		ssize_t r = read_some(s, &asked);
		if (r < 0 && errno == EINTR)
			continue;
		if (r < 0 && errno == EFAULT && s->body_left) {
			tcp_rma_body_fault(s);
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
		things += tcp_stream_parse(s);
		if ((size_t)r < asked)
			break;
	}
	if (!things)
		s->idle_polls++;
	if (s->rx && s->rx_start == s->rx_end) {
		tcp_buffer_put(s->t, s->rx);
		s->rx = NULL;
	}
	return things;
}
