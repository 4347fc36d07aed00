/* SPDX-License-Identifier: BSD-3-Clause */
/* tcp_bundle.c - the streams that all endpoints between two contexts share: a bundle made, one more
 * stream for it, failing, freed. Who is a member is in tcp_member.c, who may join in tcp_greet.c.
 *
 * A bundle ends with its last member: frames that were taken are still sent. It fails as a whole; a
 * failure is only noted here, its members are told by tcp_ep.c. It takes no lock: a transport is
 * used by one thread at a time.
 */
#include "tran/tcp/tcp_priv.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { END_MS = 500 };

struct tcp_bundle *tcp_bundle_new(struct tcp *t)
{
	struct tcp_bundle *b = calloc(1, sizeof *b);
	if (!b)
		return NULL;
	b->t = t;
	b->deadline_ns = RPWI_NEVER;
	struct rpwi_list *lists[] = {&b->opening, &b->failing, &b->members, &b->words, &b->rooming,
		&b->turns[0], &b->turns[1]};
	for (unsigned i = 0; i < RPWI_ARRAY_LEN(lists); i++)
		rpwi_list_init(lists[i]);
	rpwi_list_add_tail(&t->bundles, &b->link);
	return b;
}

void tcp_bundle_deadline(struct tcp_bundle *b, uint64_t ns)
{
	b->deadline_ns = ns;
	rpwi_list_del(&b->opening);
	if (ns == RPWI_NEVER)
		return;
	rpwi_list_add_tail(&b->t->opening, &b->opening);
	tcp_deadline_lower(b->t, ns);
}

void tcp_bundle_free(struct tcp_bundle *b)
{
	struct tcp *t = b->t;
	while (!rpwi_list_empty(&b->words)) {
		struct tcp_word *w =
			RPWI_CONTAINER_OF(rpwi_list_pop(&b->words), struct tcp_word, link);
		free(w);
	}
	rpwi_list_del(&b->opening);
	rpwi_error_drop(&b->error);
	rpwi_list_del(&b->failing);
	rpwi_list_del(&b->link);
	explicit_bzero(b->secret, sizeof b->secret);
	b->state = TCP_BUNDLE_CLOSED;
	if (t->in_progress)
		rpwi_list_add_tail(&t->dead_bundles, &b->link);
	else
		free(b);
}

void tcp_bundle_close_streams(struct tcp_bundle *b)
{
	for (unsigned i = 0; i < TCP_STREAMS_MAX; i++)
		if (b->stream[i])
			tcp_stream_close(b->stream[i]);
}

/* ---- further streams ---- */

bool tcp_bundle_connect_stream(struct tcp_bundle *b, unsigned index)
{
	const struct sockaddr *to = (const struct sockaddr *)&b->to;
	int fd = socket(to->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return false;
	tcp_stream_set_options(fd, b->same_host);
	struct tcp_stream *s = NULL;
	if (connect(fd, to, b->to_len) == 0 || errno == EINPROGRESS)
		s = tcp_stream_new(b->t, fd, TCP_CONNECTING, EPOLLIN | EPOLLOUT);
	if (!s) {
		close(fd);
		return false;
	}
	s->bundle = b;
	s->index = (uint16_t)index;
	b->stream[index] = s;
	return true;
}

void tcp_bundle_more_streams(struct tcp_bundle *b)
{
	if (b->more_failed || b->state != TCP_BUNDLE_UP || !b->founder[0].number)
		return;
	for (unsigned i = 1; i < b->t->streams_max; i++) {
		if (b->stream[i])
			continue;
		if (!b->connector) {
			uint8_t *p = b->open_asked
					     ? NULL
					     : tcp_stream_reserve(b->stream[0], TCP_HEADER_LEN);
			if (!p)
				return;
			b->open_asked = true;
			tcp_put_header(p, &(struct tcp_header){.kind = TCP_OPEN});
			tcp_stream_kick(b->stream[0]);
			return;
		}
		if (!tcp_bundle_connect_stream(b, i))
			b->more_failed = true;
	}
}

/* ---- ending ---- */

void tcp_bundle_fail(struct tcp_bundle *b, int status, const char *why)
{
	if (b->state >= TCP_BUNDLE_FAILED)
		return;
	b->state = TCP_BUNDLE_FAILED;
	rpwi_error_keep(&b->error, &(struct rpwi_error){status, 0, why});
	tcp_bundle_deadline(b, RPWI_NEVER);
	rpwi_list_add_tail(&b->t->failing_bundles, &b->failing);
}

/* A stream for bulk data has ended. Mostly the peer has closed all of them: the frames that it sent
 * before are taken from stream 0 first. */
static void end_soon(struct tcp_bundle *b, int status, const char *why)
{
	if (b->error.status)
		return;
	rpwi_error_keep(&b->error, &(struct rpwi_error){status, 0, why});
	tcp_bundle_deadline(b, rpwi_now_ns() + END_MS * RPWI_NS_PER_MS);
}

void tcp_bundle_lost(struct tcp_stream *s, int status, const char *fmt, ...)
{
	struct tcp_bundle *b = s->bundle;
	char why[256];
	va_list args;
	va_start(args, fmt);
	vsnprintf(why, sizeof why, fmt, args);
	va_end(args);
	rpwi_debug("tcp: stream %u: %s", s->index, why);
	bool was_up = s->state == TCP_UP;
	if (!s->index || (status == RPW_ERR_PROTOCOL && (was_up || s->tls))) {
		/* its streams are closed when that is reported: somebody up the stack reads this
		 * one */
		tcp_bundle_fail(b, status, why);
		return;
	}
	tcp_stream_close(s);
	b->more_failed = true; /* one stream does it, too */
	if (was_up)
		end_soon(b, status, why);
}

void tcp_bundle_time(struct tcp *t, uint64_t now_ns)
{
	RPWI_LIST_EACH_SAFE (struct tcp_bundle, b, next, &t->opening, opening) {
		if (now_ns < b->deadline_ns) {
			tcp_deadline_lower(t, b->deadline_ns);
			continue;
		}
		if (!b->error.status)
			rpwi_error_say(&b->error, RPW_ERR_TIMEOUT,
				"the peer's address did not answer by tcp");
		tcp_bundle_fail(b, b->error.status, b->error.text);
	}
}

void tcp_bundle_close_all(struct tcp *t)
{
	while (!rpwi_list_empty(&t->bundles)) {
		struct tcp_bundle *b =
			RPWI_CONTAINER_OF(rpwi_list_pop(&t->bundles), struct tcp_bundle, link);
		tcp_bundle_close_streams(b);
		tcp_bundle_free(b);
	}
}
