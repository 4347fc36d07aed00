/* SPDX-License-Identifier: BSD-3-Clause */
/* tcp_linger.c - what is taken back of what a stream has to send or to receive, since its memory or its operation is gone; and streams that linger: they have left their bundle, and what
 * was taken is still sent. It never begins anything new. It takes no lock: a transport is used by one thread at a time.
 */
#include "tran/tcp/tcp_tx.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "base/discard.h"
#include "base/guard.h"

enum { LINGER_MS = 1000 };

void tcp_stream_forget_mem(struct tcp_stream *s, struct tcp_mem *m)
{
	for (unsigned i = 0; i < s->item_count; i++) {
		struct tcp_item *item = tcp_item_at(s, i);
		if (item->mem != m)
			continue;
		tcp_item_release_mem(item);
		item->body = NULL;
		item->answer = TCP_NO_ACCESS;
	}
	if (s->body_mem == m) {
		m->users--;
		s->body_mem = NULL;
		s->body = NULL;
		s->body_answer = TCP_NO_ACCESS;
	}
}

/* The rest of a half sent body: its memory is the program's again. What is behind it can only follow when it is complete. */
static void copy_half_sent(struct tcp_stream *s)
{
	struct tcp_item *i = tcp_item_at(s, 0);
	size_t sent = s->item_sent > i->head_len ? s->item_sent - i->head_len : 0;
	tcp_item_release_mem(i);
	if (sent >= i->len || (s->item_copy && i->body == s->item_copy))
		return;
	if (i->is_data) { /* zeros, and never a word that they are good */
		i->body = NULL;
		i->is_data = false;
		return;
	}
	s->item_copy = i->body ? malloc(i->len) : NULL;
	if (!s->item_copy || rpwi_guard_copy(s->item_copy + sent, i->body + sent, i->len - sent))
		s->send_errno = ENOMEM; /* nothing more goes out */
	i->body = s->item_copy;
}

bool tcp_stream_forget_chunk(struct tcp_stream *s, struct tcp_chunk *c)
{
	c->local = NULL;
	if (s->body_left && s->body_kind == TCP_DATA && s->body_id == c->id)
		s->body = NULL;
	if (c->kind != TCP_PUT || c->have_all)
		return false;
	if (s->item_sent && !tcp_item_at(s, 0)->is_data && tcp_item_at(s, 0)->id == c->id) {
		copy_half_sent(s);
		return false;
	}
	for (unsigned n = 0, found = 0; n < s->item_count; n++) {
		if (!found && !tcp_item_at(s, n)->is_data && tcp_item_at(s, n)->id == c->id)
			found = 1;
		else if (found)
			*tcp_item_at(s, n - 1) = *tcp_item_at(s, n);
	}
	s->item_count--;
	return true;
}

bool tcp_stream_linger_send(struct tcp_stream *s)
{
	tcp_stream_send(s);
	if (!tcp_has_to_send(s)) {
		tcp_tls_bye(s);
		shutdown(s->fd, SHUT_WR);
	}
	return tcp_has_to_send(s) && !s->send_errno;
}

void tcp_stream_linger(struct tcp_stream *s)
{
	struct tcp *t = s->t;
	for (unsigned i = s->item_sent ? 1 : 0; i < s->item_count; i++)
		tcp_item_release_mem(tcp_item_at(s, i));
	s->item_count = s->item_sent ? 1 : 0;
	if (s->item_count)
		copy_half_sent(s);
	if (s->body_mem)
		s->body_mem->users--;
	s->body_mem = NULL;
	s->body = NULL;
	tcp_hot_del(s);
	s->bundle->stream[s->index] = NULL;
	s->bundle = NULL;
	s->state = TCP_LINGERING;
	s->deadline_ns = rpwi_now_ns() + LINGER_MS * RPWI_NS_PER_MS;
	rpwi_list_add_tail(&t->lingering, &s->link);
	tcp_deadline_lower(t, s->deadline_ns);
	if (tcp_stream_linger_send(s) && rpwi_list_empty(&s->sending))
		rpwi_list_add_tail(&t->sending, &s->sending);
	if (s->unwatched)
		tcp_stream_close(s); /* nobody would hear its end */
}

void tcp_stream_linger_read(struct tcp_stream *s)
{
	ssize_t r = rpwi_tcp_discard(s->fd, TCP_BUFFER_LEN);
	if (r == 0 || (r < 0 && errno != EAGAIN && errno != EINTR))
		tcp_stream_close(s);
}

void tcp_stream_time(struct tcp *t, uint64_t now_ns)
{
	while (!rpwi_list_empty(&t->lingering)) {
		const struct tcp_stream *s =
			RPWI_CONTAINER_OF(t->lingering.next, struct tcp_stream, link);
		if (s->deadline_ns > now_ns) {
			tcp_deadline_lower(t, s->deadline_ns);
			return;
		}
		tcp_stream_close(
			RPWI_CONTAINER_OF(rpwi_list_pop(&t->lingering), struct tcp_stream, link));
	}
}
