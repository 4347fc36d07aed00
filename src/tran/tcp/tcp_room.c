/* SPDX-License-Identifier: BSD-3-Clause */
/* tcp_room.c - what waits for room on a stream: words about endpoints, and endpoints whose frames
 * found none. When there is room words go first, and then the endpoints are told. It never reads a
 * stream, nor closes one. It takes no lock: a transport is used by one thread at a time.
 */
#include "tran/tcp/tcp_tx.h"

#include <stdlib.h>

enum { WORDS_MAX = 65536 };

static bool word_put(struct tcp_bundle *b, const struct tcp_word *w)
{
	struct tcp_header h = {.kind = w->kind, .answer = w->answer, .id = w->to};
	uint8_t *p = tcp_stream_reserve_word(b->stream[0], TCP_HEADER_LEN + tcp_more_len(&h));
	if (!p)
		return false;
	tcp_put_header(p, &h);
	p += TCP_HEADER_LEN;
	if (w->kind == TCP_ATTACH) {
		rpwi_put_be32(p, w->from);
		p += 4;
	}
	if (w->kind != TCP_LEAVE)
		memcpy(p, w->nonce, TCP_NONCE_LEN);
	tcp_stream_kick(b->stream[0]);
	return true;
}

void tcp_bundle_say(struct tcp_bundle *b, const struct tcp_word *word)
{
	if (b->state != TCP_BUNDLE_UP || (rpwi_list_empty(&b->words) && word_put(b, word)))
		return;
	struct tcp_word *w = b->word_count < WORDS_MAX ? malloc(sizeof *w) : NULL;
	if (!w) {
		tcp_bundle_fail(b, RPW_ERR_PROTOCOL,
			"the peer asks for endpoints, and does not read the answers");
		return;
	}
	*w = *word;
	rpwi_list_add_tail(&b->words, &w->link);
	b->word_count++;
}

static void send_words(struct tcp_bundle *b)
{
	while (!rpwi_list_empty(&b->words)) {
		if (!word_put(b, RPWI_CONTAINER_OF(b->words.next, struct tcp_word, link)))
			return;
		free(RPWI_CONTAINER_OF(rpwi_list_pop(&b->words), struct tcp_word, link));
		b->word_count--;
	}
}

/* To those that wait, the longest first; one that takes all of it leaves nothing to the others, and
 * waits behind them the next time. */
static void tell_room(struct tcp_stream *s)
{
	struct tcp_bundle *b = s->bundle;
	send_words(b);
	while (s->state == TCP_UP && tcp_tx_used(s) <= TCP_BUFFER_LEN / 2 &&
		!rpwi_list_empty(&b->rooming)) {
		struct tcp_ep *ep = RPWI_CONTAINER_OF(b->rooming.next, struct tcp_ep, rooming);
		rpwi_list_del(&ep->rooming);
		ep->waited = true;
		emulate_room(&ep->base);
		s->t->base.up->room(ep->base.user);
	}
}

bool tcp_stream_flush(struct tcp_stream *s, bool now)
{
	if (s->state == TCP_LINGERING)
		return tcp_stream_linger_send(s);
	if (s->state != TCP_UP || s->send_errno)
		return false;
	if (tcp_has_to_send(s) && (now || s->blocked || tcp_due(s, 0)))
		tcp_stream_send(s);
	if (!now && tcp_gathers(s))
		return true;
	s->deferred_ns = 0;
	if (tcp_stream_owes_room(s))
		tell_room(s);
	return s->state == TCP_UP && !s->send_errno && tcp_has_to_send(s);
}
