/* SPDX-License-Identifier: BSD-3-Clause */
/* tcp_linger.c - streams that linger: they have left their bundle, whose last endpoint has gone,
 * and frames that were taken are still sent. It never begins anything new. It takes no lock: a
 * transport is used by one thread at a time.
 */
#include "tran/tcp/tcp_tx.h"

#include <errno.h>
#include <sys/socket.h>

#include "base/discard.h"

enum { LINGER_MS = 1000 };

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
