/* SPDX-License-Identifier: BSD-3-Clause */
/* tcp_tx.h - small questions about what a stream has to send, asked for each frame: inline. It
 * takes no lock: a transport is used by one thread at a time. */
#ifndef ROPEWAY_TRAN_TCP_TX_H
#define ROPEWAY_TRAN_TCP_TX_H

#include "tran/tcp/tcp_priv.h"

enum {
	TCP_COALESCE_NS = 5000,
	TCP_COALESCE_LEN = 32 * 1024, /* enough for one write: waiting longer saves nothing */
	TCP_GATHER_NS = 10000,        /* the same, of large frames */
	TCP_TALK_FRAMES = 2, /* more of them under way, or one right behind the other: a stream */
};

static inline size_t tcp_tx_used(const struct tcp_stream *s) { return s->tx_end - s->tx_start; }

/* Does a stream for bulk data take what is large? */
static inline bool tcp_has_bulk_stream(const struct tcp_bundle *b)
{
	for (unsigned i = 1; i < TCP_STREAMS_MAX; i++)
		if (b->stream[i] && b->stream[i]->state == TCP_UP)
			return true;
	return false;
}

/* Those whose bulk data this stream sends next; NULL: nobody. */
static inline struct rpwi_list *tcp_turns(const struct tcp_stream *s)
{
	struct tcp_bundle *b = s->bundle;
	if (!b || RPWI_LIKELY(!b->in_turn))
		return NULL;
	if (!s->index && !rpwi_list_empty(&b->turns[0]))
		return &b->turns[0];
	return !rpwi_list_empty(&b->turns[1]) && (s->index || !tcp_has_bulk_stream(b))
		       ? &b->turns[1]
		       : NULL;
}

static inline bool tcp_has_bulk(const struct tcp_stream *s) { return s->out_count || tcp_turns(s); }
static inline bool tcp_has_to_send(const struct tcp_stream *s)
{
	return tcp_tx_used(s) || tcp_has_bulk(s) || tcp_io_waits(s);
}

/* One write for what waits now? Who streams hears of what came before, which is no answer that the
 * peer waits behind. */
static inline bool tcp_due(const struct tcp_stream *s, size_t more)
{
	bool answers = s->heard && s->under_way <= TCP_TALK_FRAMES;
	if (answers || tcp_has_bulk(s) || tcp_tx_used(s) + more >= TCP_COALESCE_LEN)
		return true;
	return rpwi_now_ns() - s->sent_ns >= TCP_COALESCE_NS;
}

/* A large frame waits for others to go with it. */
static inline bool tcp_gathers(const struct tcp_stream *s)
{
	return s->deferred_ns && !s->blocked && !s->bundle->word_count &&
	       rpwi_now_ns() < s->deferred_ns;
}

/* Somebody waits for room on it. */
static inline bool tcp_stream_owes_room(const struct tcp_stream *s)
{
	return !s->index && s->bundle &&
	       (!rpwi_list_empty(&s->bundle->rooming) || s->bundle->word_count);
}

#endif
