/* SPDX-License-Identifier: BSD-3-Clause */
/* tcp_bulk.c - messages of bulk data, for remote memory as tran/emulate.c has it: asked for,
 * expected, come, gone, told, and forgotten with their endpoint. It never reads nor writes a
 * socket. It takes no lock: a transport is used by one thread at a time.
 *
 * Those of LARGE_MIN bytes and more go by the streams for bulk data, where there are, so that
 * frames need not queue behind megabytes; whichever of them is free takes the next. Where several
 * endpoints of a bundle have some to send, each sends one in its turn. A message may overtake the
 * frame that announces it, which goes by stream 0: then its stream is not read until it is
 * expected. On stream 0 that cannot be. One that has gone is told in progress: what sends may be
 * inside a call of the program's.
 */
#include "tran/tcp/tcp_tx.h"

#include <stdlib.h>

#include "tran/emulate.h"
#include "tran/place.h"

enum { LARGE_MIN = 128 * 1024 };

static bool is_large(const struct tran_bulk *b) { return b->len >= LARGE_MIN; }

static void bulk_free(struct tran_bulk *b)
{
	rpwi_list_del(&b->link);
	rpwi_list_del(&b->of_ep);
	tcp_bulk_spare(tcp_of(b->ep->base.tran), b);
}

/* Its end is the emulation's business. */
static void ended(struct tran_bulk *b)
{
	struct tran_ep *ep = &b->ep->base;
	void *cookie = b->cookie;
	int status = b->status;
	bulk_free(b);
	emulate_moved(ep, cookie, status);
}

void tcp_bulk_tell(struct tcp *t)
{
	while (!rpwi_list_empty(&t->moved))
		ended(RPWI_CONTAINER_OF(rpwi_list_pop(&t->moved), struct tran_bulk, link));
}

/* ---- what the emulation asks for ---- */

static int bulk_make(struct tran_ep *tran_ep, bool sends, void *buf, size_t len,
	struct tran_home *home, void *cookie, struct tran_bulk **out)
{
	struct tcp_ep *ep = (struct tcp_ep *)tran_ep;
	if (ep->state != TCP_EP_UP || ep->bundle->state != TCP_BUNDLE_UP)
		return tran_path_over(&ep->base);
	struct tcp *t = tcp_of(tran_ep->tran);
	struct tran_bulk *b = NULL;
	if (t->spare_count) {
		b = RPWI_CONTAINER_OF(rpwi_list_pop(&t->spare), struct tran_bulk, link);
		t->spare_count--;
	} else if (!(b = malloc(sizeof(*b))))
		return tran_no_memory(tran_ep->tran, "bulk data");
	*b = (struct tran_bulk){.ep = ep,
		.sends = sends,
		.checked = home,
		.buf = buf,
		.len = len,
		.cookie = cookie};
	rpwi_list_init(&b->link);
	rpwi_list_init(&b->of_ep);
	rpwi_list_add_tail(&ep->bulks, &b->of_ep);
	if (sends) /* the frame that announces it goes with it */
		ep->bundle->stream[0]->corked = true;
	if (is_large(b))
		tcp_bundle_more_streams(ep->bundle);
	*out = b;
	return 0;
}

static void head_put(struct tran_bulk *b)
{
	struct tcp_header h = {.kind = TCP_BULK,
		.answer = TCP_OK,
		.id = b->ep->peer.number,
		.len = (uint32_t)b->len};
	if (b->refused) {
		h.answer = TCP_NO_ACCESS;
		h.len = 0;
	}
	tcp_put_header(b->head, &h);
	rpwi_put_be32(b->head + TCP_HEADER_LEN, b->id);
}

void tcp_bulk_kick(struct tcp_bundle *b)
{
	for (unsigned i = 0; i < TCP_STREAMS_MAX; i++) {
		struct tcp_stream *s = b->stream[i];
		if (s && s->state == TCP_UP && tcp_has_to_send(s))
			tcp_stream_kick(s);
	}
}

static void uncork(struct tcp_bundle *b)
{
	b->stream[0]->corked = false;
	tcp_bulk_kick(b);
}

/* Streams that stopped before bulk data that nobody expected look again. */
static void resume(struct tcp_bundle *b)
{
	for (unsigned i = 1; i < TCP_STREAMS_MAX; i++) {
		struct tcp_stream *s = b->stream[i];
		if (s && s->stalled && rpwi_list_empty(&s->unread))
			rpwi_list_add_tail(&s->t->unread, &s->unread);
	}
}

static void bulk_go(struct tran_bulk *b, uint32_t id)
{
	struct tcp_ep *ep = b->ep;
	struct tcp_bundle *all = ep->bundle;
	b->id = id;
	if (!b->sends) {
		b->state = TCP_BULK_EXPECTED;
		rpwi_list_add_tail(&ep->expected, &b->link);
		all->expecting[is_large(b)]++;
		resume(all);
		return;
	}
	head_put(b);
	b->state = TCP_BULK_WAITS;
	rpwi_list_add_tail(&ep->waiting[is_large(b)], &b->link);
	if (rpwi_list_empty(&ep->turn[is_large(b)])) {
		rpwi_list_add_tail(&all->turns[is_large(b)], &ep->turn[is_large(b)]);
		all->in_turn++;
	}
	uncork(all);
}

static void come_to_nothing(struct tran_bulk *b)
{
	if (b->stream && b->stream->in == b)
		b->stream->body = NULL;
}

static void bulk_cut(struct tran_bulk *b)
{
	b->status = RPW_ERR_ACCESS;
	b->buf = NULL;
	b->refused = b->sends && !b->sent;
	if (!b->sends)
		come_to_nothing(b);
	else if (b->refused)
		head_put(b);
}

/* It is in one place only, and leaves that. */
static void unlink_bulk(struct tran_bulk *b)
{
	if (b->state == TCP_BULK_EXPECTED && b->ep->bundle)
		b->ep->bundle->expecting[is_large(b)]--;
	if (b->state == TCP_BULK_COMES) {
		come_to_nothing(b);
		b->stream->in = NULL;
	}
	if (b->state == TCP_BULK_GOES)
		b->stream->out_count--;
	bulk_free(b);
}

static void bulk_drop(struct tran_bulk *b)
{
	struct tcp_bundle *all = b->ep->bundle;
	bool uncorks = b->sends && b->state == TCP_BULK_MADE;
	unlink_bulk(b);
	if (uncorks)
		uncork(all);
}

const struct tran_bulk_ops tcp_bulk_ops = {
	.make = bulk_make, .go = bulk_go, .cut = bulk_cut, .drop = bulk_drop};

/* ---- with its endpoint ---- */

/* Its memory is the program's again, and bytes behind it in the stream can only follow when it is
 * complete. */
static void go_on_alone(const struct tcp *t, struct tran_bulk *b)
{
	size_t sent = b->sent > sizeof(b->head) ? b->sent - sizeof(b->head) : 0;
	if (sent < b->len && b->buf) {
		b->copy = malloc(b->len);
		if (!b->copy || tran_fetch(t->pid, b->copy + sent, b->buf + sent, b->len - sent))
			b->status = RPW_ERR_ACCESS;
	}
	b->buf = b->status ? NULL : b->copy;
	b->ep = NULL;
}

void tcp_bulk_leave(struct tcp_ep *ep)
{
	struct tcp_bundle *all = ep->bundle;
	while (!rpwi_list_empty(&ep->bulks)) {
		struct tran_bulk *b =
			RPWI_CONTAINER_OF(rpwi_list_pop(&ep->bulks), struct tran_bulk, of_ep);
		if (b->state == TCP_BULK_GOES && b->sent)
			go_on_alone(tcp_of(ep->base.tran), b);
		else
			unlink_bulk(b);
	}
	for (unsigned i = 0; i < 2; i++) {
		if (all)
			all->in_turn -= !rpwi_list_empty(&ep->turn[i]);
		rpwi_list_del(&ep->turn[i]);
	}
	emulate_ep_close(&ep->base);
	if (all && all->stream[0])
		tcp_long_leave(all->stream[0], ep->number);
	if (all) /* what comes for it is for nobody now */
		resume(all);
}

/* ---- what comes ---- */

static struct tran_bulk *expected(const struct tcp_ep *ep, uint32_t id)
{
	RPWI_LIST_EACH (struct tran_bulk, b, &ep->expected, link)
		if (b->id == id)
			return b;
	return NULL;
}

int tcp_bulk_begins(
	struct tcp_stream *s, const struct tcp_header *h, const uint8_t *more, const char **why)
{
	struct tcp_ep *ep = tcp_ep_find(s->t, h->id);
	bool refused = h->answer != TCP_OK;
	struct tran_bulk *b = NULL;
	if (ep && ep->bundle == s->bundle && ep->state <= TCP_EP_UP) {
		/* else it was closed meanwhile, and nobody wants them */
		b = expected(ep, rpwi_get_be32(more));
		if (!b && s->index)
			return 1;
		if (!b) {
			*why = "bulk data that was not requested";
			return -1;
		}
		if (h->len != (refused ? 0 : b->len)) {
			*why = "bulk data of a length that was not requested";
			return -1;
		}
		s->bundle->expecting[is_large(b)]--;
		rpwi_list_del(&b->link);
		b->state = TCP_BULK_COMES;
		b->stream = s;
		if (refused) {
			b->status = RPW_ERR_ACCESS;
			ended(b);
			return 0;
		}
	}
	s->in = b;
	s->body = b ? b->buf : NULL;
	s->body_left = h->len;
	s->in_body = !refused;
	return 0;
}

int tcp_bulk_ends(struct tcp_stream *s, const struct tcp_header *h, const char **why)
{
	struct tran_bulk *b = s->in;
	if (!s->in_body) {
		*why = "the end of bulk data that did not begin";
		return -1;
	}
	s->in_body = false;
	s->in = NULL;
	s->body = NULL;
	if (!b)
		return 0;
	if (h->answer != TCP_OK && !b->status)
		b->status = RPW_ERR_ACCESS;
	ended(b);
	return 0;
}

void tcp_bulk_fault(struct tcp_stream *s)
{
	s->body = NULL;
	if (s->frame)
		s->frame->at = NULL;
	/* our own operation's buffer is not mapped */
	if (s->in && !s->in->status)
		s->in->status = s->in->checked ? RPW_ERR_ACCESS : RPW_ERR_INVALID;
}
