/* SPDX-License-Identifier: BSD-3-Clause */
/* tcp_tx.h - small questions about what a stream has to send, asked for each frame: inline. It takes no lock: a transport is used by one thread at a time. */
#ifndef ROPEWAY_TRAN_TCP_TX_H
#define ROPEWAY_TRAN_TCP_TX_H

#include "tran/tcp/tcp_priv.h"

enum {
	TCP_COALESCE_NS = 5000,
	TCP_COALESCE_LEN = 16 * 1024, /* enough for one write: waiting longer saves nothing */
};

static inline void tcp_item_release_mem(struct tcp_item *i)
{
	if (i->mem)
		i->mem->users--;
	i->mem = NULL;
}

static inline struct tcp_item *tcp_item_at(struct tcp_stream *s, unsigned n)
{
	return &s->item[(s->item_first + n) % RPWI_ARRAY_LEN(s->item)];
}

static inline size_t tcp_tx_used(const struct tcp_stream *s) { return s->tx_end - s->tx_start; }
static inline bool tcp_has_to_send(const struct tcp_stream *s)
{
	return tcp_tx_used(s) || s->item_count || tcp_io_waits(s);
}

/* One write for what waits now? */
static inline bool tcp_due(const struct tcp_stream *s, size_t more)
{
	if (s->heard || s->item_count || tcp_tx_used(s) + more >= TCP_COALESCE_LEN)
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
