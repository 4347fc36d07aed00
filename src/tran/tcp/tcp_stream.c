/* SPDX-License-Identifier: BSD-3-Clause */
/* tcp_stream.c - one socket: made, its options, whether epoll watches it, whether progress reads it
 * straight away, closed. It never reads nor writes it. It takes no lock: a transport is used by one
 * thread at a time.
 */
#include "tran/tcp/tcp_tx.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/born.h"

enum { SILENCE_MS = 25000 }; /* unacknowledged for so long: the path is gone */

void tcp_stream_set_options(int fd, bool same_host)
{
	/* within one host nothing is congested; BBR, a system's default here and there, would still
	 * pace every write by a timer */
	if (same_host)
		setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4);
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &(int){1}, sizeof(int));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &(int){10}, sizeof(int));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &(int){5}, sizeof(int));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &(int){3}, sizeof(int));
	setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &(int){SILENCE_MS}, sizeof(int));
}

int tcp_watch(const struct tcp *t, int op, int fd, uint32_t events, const void *whose)
{
	struct epoll_event e = {.events = events, .data.u64 = (uintptr_t)whose | TRAN_MARK};
	return epoll_ctl(t->epoll, op, fd, &e);
}

struct tcp_stream *tcp_stream_new(
	struct tcp *t, int fd, enum tcp_stream_state state, uint32_t events)
{
	struct tcp_stream *s = calloc(1, sizeof *s);
	if (!s)
		return NULL;
	s->t = t;
	s->fd = fd;
	s->state = state;
	rpwi_list_init(&s->link);
	rpwi_list_init(&s->sending);
	rpwi_list_init(&s->unread);
	rpwi_list_init(&s->out);
	if (tcp_watch(t, EPOLL_CTL_ADD, fd, events, s)) {
		free(s);
		return NULL;
	}
	s->wants_out = events & EPOLLOUT;
	return s;
}

void tcp_stream_watch_out(struct tcp_stream *s, bool on)
{
	if (s->fd < 0 || s->wants_out == on)
		return;
	s->wants_out = on;
	if (s->unwatched)
		return;
	tcp_watch(s->t, EPOLL_CTL_MOD, s->fd, on ? EPOLLIN | EPOLLOUT : EPOLLIN, s);
}

void tcp_stream_watch(struct tcp_stream *s, bool on)
{
	/* a forked child shares the set with its parent */
	if (s->fd < 0 || s->unwatched != on || !rpwi_is_ours(s->t->born))
		return;
	uint32_t events = s->wants_out ? EPOLLIN | EPOLLOUT : EPOLLIN;
	if (tcp_watch(s->t, on ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, s->fd, events, s) == 0)
		s->unwatched = !on;
}

void tcp_hot_add(struct tcp_stream *s)
{
	struct tcp *t = s->t;
	s->idle_polls = 0;
	s->hot_reads = 0;
	if (s->hot || t->hot_count == TCP_HOT_MAX)
		return;
	s->hot = true;
	t->hot[t->hot_count++] = s;
}

void tcp_hot_del(struct tcp_stream *s)
{
	struct tcp *t = s->t;
	if (!s->hot)
		return;
	s->hot = false;
	tcp_stream_watch(s, true);
	for (unsigned i = 0; i < t->hot_count; i++)
		if (t->hot[i] == s)
			t->hot[i--] = t->hot[--t->hot_count];
}

void tcp_bulk_spare(struct tcp *t, struct tran_bulk *b)
{
	free(b->copy);
	if (t->spare_count >= TCP_SPARE_MAX) {
		free(b);
		return;
	}
	rpwi_list_add_tail(&t->spare, &b->link);
	t->spare_count++;
}

/* All that was to be sent is forgotten; of bulk data the end will never be told. */
static void drop_unsent(struct tcp_stream *s)
{
	while (s->out_count) {
		struct tran_bulk *b =
			RPWI_CONTAINER_OF(rpwi_list_pop(&s->out), struct tran_bulk, link);
		s->out_count--;
		b->state = TCP_BULK_MADE;
		b->stream = NULL;
		if (b->ep)
			continue;
		tcp_bulk_spare(s->t, b);
	}
	tcp_buffer_put(s->t, s->tx);
	s->tx = NULL;
}

static void long_drop(struct tcp_stream *s)
{
	if (s->frame)
		free(s->frame->own);
	free(s->frame);
	s->frame = NULL;
}

void tcp_long_leave(struct tcp_stream *s, uint32_t number)
{
	if (!s->frame || s->frame->id != number)
		return;
	s->frame->at = NULL;
	s->body = NULL;
}

void tcp_stream_close(struct tcp_stream *s)
{
	if (s->state == TCP_DEAD)
		return;
	struct tcp *t = s->t;
	tcp_hot_del(s);
	if (t->gather.of == s)
		t->gather.of = NULL;
	rpwi_list_del(&s->sending);
	rpwi_list_del(&s->unread);
	rpwi_list_del(&s->link);
	if (s->in) {
		s->in->state = TCP_BULK_MADE;
		s->in->stream = NULL;
	}
	s->in = NULL;
	long_drop(s);
	tcp_buffer_put(t, s->rx);
	s->rx = NULL;
	drop_unsent(s);
	tcp_tls_free(s);
	/* A forked child (or whoever else has been given it) may have the socket, too: closed here
	 * it would stay in the epoll set, whose events would lead to freed memory, and the peer
	 * would see no end. */
	if (rpwi_is_ours(t->born)) {
		epoll_ctl(t->epoll, EPOLL_CTL_DEL, s->fd, NULL);
		shutdown(s->fd, SHUT_RDWR);
	}
	close(s->fd);
	s->fd = -1;
	if (s->bundle && s->bundle->stream[s->index] == s)
		s->bundle->stream[s->index] = NULL;
	s->bundle = NULL;
	s->state = TCP_DEAD;
	if (t->in_progress)
		rpwi_list_add_tail(&t->dead_streams, &s->link);
	else
		free(s);
}
