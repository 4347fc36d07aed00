/* SPDX-License-Identifier: BSD-3-Clause */
/* tcp_tls.c - what lies between a stream and its socket: nothing, or TLS 1.3. An endpoint that was
 * given a secret (struct tran_control: both ends have it from their control connection, and nobody
 * else) takes no stream without. The side that connects names the endpoint, by its number, as the
 * identity of the pre-shared key; greeting, words, frames and bulk data are inside. It never judges
 * what it carries. It takes no lock: a transport is used by one thread at a time.
 *
 * Sealed bytes are read by the buffer, since GnuTLS would make two system calls of each record;
 * epoll does not know the contents of that buffer, so a stream that stopped reading with something
 * left is put on t->unread, which progress looks at and arm counts. A record that the socket did
 * not take whole waits in the session; the stream has something to send as long as it does. Bodies
 * are copied to where they are sealed by the kernel where the program may have unmapped them:
 * GnuTLS would crash.
 */
#include "tran/tcp/tcp_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "base/discard.h"
#include "tls/tls.h"
#include "tran/place.h"

enum { READ_MAX = 256 * 1024 };
_Static_assert((int)READ_MAX <= (int)TCP_BUFFER_LEN, "it goes into a buffer");

struct tcp_tls {
	struct tls *session;
	struct tcp_stream *s;
	uint8_t *in; /* sealed */
	size_t in_start, in_end;
	bool up, dry; /* dry: the socket had no more */
	ssize_t end;  /* what ended it: 0 or -errno; > 0: nothing yet */
	bool named;   /* the side that was called: by these */
	uint32_t number;
	unsigned index;
};

/* ---- identities: "ropeway-tcp NUMBER STREAM" ---- */

static void identity_put(char *out, size_t room, uint32_t number, unsigned index)
{
	snprintf(out, room, "ropeway-tcp %08x %u", number, index);
}

static bool identity_get(struct tcp_tls *x, const char *identity)
{
	char again[40];
	if (sscanf(identity, "ropeway-tcp %8x %1u", &x->number, &x->index) != 2)
		return false;
	identity_put(again, sizeof again, x->number, x->index);
	return !strcmp(again, identity);
}

static size_t key_of(void *user, const char *identity, uint8_t key[TLS_KEY_MAX])
{
	struct tcp_tls *x = user;
	const uint8_t *secret =
		identity_get(x, identity) ? tcp_bundle_secret(x->s->t, x->number, x->index) : NULL;
	if (!secret)
		return 0;
	x->named = true;
	memcpy(key, secret, TRAN_SECRET_LEN);
	return TRAN_SECRET_LEN;
}

bool tcp_tls_is_for(const struct tcp_stream *s, uint32_t number, unsigned index)
{
	const struct tcp_tls *x = s->tls;
	return x && x->up && x->named && x->number == number && x->index == index;
}

/* ---- the socket ---- */

/* As recv(). */
static ssize_t fill(struct tcp_tls *x)
{
	if (x->dry) {
		errno = EAGAIN;
		return -1;
	}
	if (!x->in && !(x->in = tcp_buffer_get(x->s->t))) {
		x->dry = true; /* no memory now: the bytes stay in the socket */
		errno = EAGAIN;
		return -1;
	}
	ssize_t n = recv(x->s->fd, x->in, READ_MAX, MSG_DONTWAIT);
	x->in_start = 0;
	x->in_end = n > 0 ? (size_t)n : 0;
	x->dry = n < READ_MAX;
	return n;
}

static void in_release(struct tcp_tls *x)
{
	if (x->in_start < x->in_end)
		return;
	tcp_buffer_put(x->s->t, x->in);
	x->in = NULL;
}

static ssize_t pull(void *user, void *to, size_t room)
{
	struct tcp_tls *x = user;
	if (x->in_start == x->in_end) {
		ssize_t n = fill(x);
		if (n <= 0)
			return n;
	}
	size_t n = RPWI_MIN(room, x->in_end - x->in_start);
	memcpy(to, x->in + x->in_start, n);
	x->in_start += n;
	return (ssize_t)n;
}

static ssize_t push(void *user, const void *p, size_t len)
{
	const struct tcp_tls *x = user;
	return send(x->s->fd, p, len, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static const struct tls_io io = {.push = push, .pull = pull, .key_of = key_of};

/* ---- made and freed ---- */

bool tcp_tls_begin(struct tcp_stream *s, const uint8_t *secret, uint32_t number)
{
	struct tcp *t = s->t;
	struct tcp_tls *x = calloc(1, sizeof *x);
	char identity[40];
	if (!x)
		return false;
	*x = (struct tcp_tls){.s = s, .end = 1};
	identity_put(identity, sizeof identity, number, s->index);
	if ((!t->tls && tls_domain_new(&t->tls)) ||
		(!t->record && !(t->record = malloc(TLS_RECORD_MAX))) ||
		(secret ? tls_client(t->tls, &io, x, identity, secret, TRAN_SECRET_LEN, &x->session)
			: tls_server(t->tls, &io, x, &x->session))) {
		free(x);
		return false;
	}
	s->tls = x;
	return true;
}

void tcp_tls_free(struct tcp_stream *s)
{
	struct tcp_tls *x = s->tls;
	if (!x)
		return;
	tls_free(x->session);
	tcp_buffer_put(s->t, x->in);
	free(x);
	s->tls = NULL;
}

void tcp_tls_bye(struct tcp_stream *s)
{
	if (s->tls)
		tls_bye(s->tls->session);
}

void tcp_tls_alert(struct tcp_stream *s) { tls_alert(s->tls->session); }

int tcp_tls_shake(struct tcp_stream *s)
{
	struct tcp_tls *x = s->tls;
	if (x->up)
		return 0;
	x->dry = false;
	int rc = tls_handshake(x->session);
	x->up = !rc;
	in_release(x);
	if (rc && rc != -EAGAIN && !s->bundle) /* a stranger: it is told that the key is wrong */
		tls_alert(x->session);
	return rc;
}

const char *tcp_tls_why(const struct tcp_stream *s) { return tls_why(s->tls->session); }

/* ---- receiving ---- */

/* One record, or the rest of one. > 0; 0: the end; -1 with errno. */
static ssize_t take(struct tcp_tls *x, void *to, size_t room)
{
	while (x->end > 0) {
		if (x->in_start == x->in_end && !tls_pending(x->session)) {
			/* mostly nothing has come: GnuTLS need not be asked */
			ssize_t n = fill(x);
			if (n < 0 && errno != EAGAIN && errno != EINTR)
				x->end = -errno;
			if (n < 0)
				return -1;
			if (n == 0)
				return x->end = 0;
		}
		size_t before = x->in_end - x->in_start;
		ssize_t n = tls_recv(x->session, to, room);
		if (n > 0)
			return n;
		if (n == -EAGAIN && x->in_end - x->in_start < before)
			continue; /* a part of a record, or one that is TLS's own */
		if (n == -EAGAIN) {
			errno = EAGAIN;
			return -1;
		}
		x->end = n == -EPIPE ? 0 : n;
	}
	errno = (int)-x->end;
	return x->end ? -1 : 0;
}

static ssize_t opened(struct tcp_stream *s, const struct iovec *iov, int n)
{
	struct tcp_tls *x = s->tls;
	size_t done = 0;
	ssize_t r = 1;
	x->dry = false;
	for (int i = 0; i < n && r > 0; i++)
		for (size_t at = 0; at < iov[i].iov_len && r > 0;) {
			r = take(x, (char *)iov[i].iov_base + at, iov[i].iov_len - at);
			if (r > 0) {
				at += (size_t)r;
				done += (size_t)r;
			}
		}
	int err = errno;
	in_release(x);
	rpwi_list_del(&s->unread);
	if (r > 0 || x->in || (done && x->end <= 0)) /* more of it, or its end, is told next */
		rpwi_list_add_tail(&s->t->unread, &s->unread);
	errno = err;
	return done ? (ssize_t)done : r;
}

ssize_t tcp_io_recv(struct tcp_stream *s, struct iovec *iov, int n)
{
	if (s->tls)
		return opened(s, iov, n);
	if (n == 1)
		return recv(s->fd, iov[0].iov_base, iov[0].iov_len, MSG_DONTWAIT);
	struct msghdr m = {.msg_iov = iov, .msg_iovlen = (size_t)n};
	return recvmsg(s->fd, &m, MSG_DONTWAIT);
}

ssize_t tcp_io_skip(struct tcp_stream *s, size_t len)
{
	if (s->tls) {
		struct iovec iov = {s->t->record, RPWI_MIN(len, (size_t)TLS_RECORD_MAX)};
		return opened(s, &iov, 1);
	}
	return rpwi_tcp_discard(s->fd, len);
}

/* ---- sending ---- */

bool tcp_io_waits(const struct tcp_stream *s) { return s->tls && tls_waits(s->tls->session); }

/* Where the program may have unmapped it, the kernel copies and says so. */
static bool copied(const struct tcp_stream *s, void *to, const void *from, size_t n, bool careful)
{
	if (careful)
		return !tran_fetch(s->t->pid, to, from, n);
	memcpy(to, from, n);
	return true;
}

static ssize_t sealed(struct tcp_stream *s, const struct iovec *iov, int n, uint64_t careful)
{
	struct tls *session = s->tls->session;
	size_t done = 0, at = 0;
	int rc = tls_flush(session);
	if (rc) {
		errno = -rc;
		return -1;
	}
	for (int i = 0;;) {
		size_t len = 0;
		bool fault = false;
		while (i < n && len < TLS_RECORD_MAX && !fault) {
			size_t part = RPWI_MIN(iov[i].iov_len - at, TLS_RECORD_MAX - len);
			fault = part &&
				!copied(s, s->t->record + len, (const char *)iov[i].iov_base + at,
					part, careful >> i & 1);
			if (fault)
				break;
			len += part;
			at += part;
			if (at == iov[i].iov_len)
				at = 0, i++;
		}
		ssize_t r = len ? tls_send(session, s->t->record, len) : 0;
		if (r < 0 || (!len && fault)) {
			errno = r < 0 ? (int)-r : EFAULT;
			return done ? (ssize_t)done : -1;
		}
		done += len;
		if (!len || fault || tls_waits(session))
			return (ssize_t)done;
	}
}

ssize_t tcp_io_send(struct tcp_stream *s, struct iovec *iov, int n, uint64_t careful)
{
	if (s->tls)
		return sealed(s, iov, n, careful);
	if (n == 1)
		return send(s->fd, iov[0].iov_base, iov[0].iov_len, MSG_DONTWAIT | MSG_NOSIGNAL);
	struct msghdr m = {.msg_iov = iov, .msg_iovlen = (size_t)n};
	return sendmsg(s->fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
}
