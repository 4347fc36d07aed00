/* SPDX-License-Identifier: BSD-3-Clause */
/* tcp_tx.h - small questions about what a stream has to send, asked for each frame: inline. It
 * takes no lock: a transport is used by one thread at a time. */
#ifndef ROPEWAY_TRAN_TCP_TX_H
#define ROPEWAY_TRAN_TCP_TX_H

#include "tran/tcp/tcp_priv.h"

enum {
	TCP_COALESCE_NS = 5000,
	TCP_COALESCE_LEN = 16 * 1024, /* enough for one write: waiting longer saves nothing */
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

/* One write for what waits now? */
static inline bool tcp_due(const struct tcp_stream *s, size_t more)
{
	if (s->heard || tcp_has_bulk(s) || tcp_tx_used(s) + more >= TCP_COALESCE_LEN)
		return true;
	return rpwi_now_ns() - s->sent_ns >= TCP_COALESCE_NS;
}

/* Somebody waits for room on it. */
static inline bool tcp_stream_owes_room(const struct tcp_stream *s)
{
	return !s->index && s->bundle &&
	       (!rpwi_list_empty(&s->bundle->rooming) || s->bundle->word_count);
}

#endif
