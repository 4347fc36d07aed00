/* SPDX-License-Identifier: BSD-3-Clause */
/* tcp_greet.c - streams from connect() or accept() until frames and bulk data may come: connecting,
 * TLS, the greetings.
 *
 * The side that connects looks for a bundle to the address that it would connect to, and joins
 * that; so what tells bundles apart is where they were connected to, which nobody can lie about.
 * (Two contexts that connect to each other both ways have two bundles.) Stream 0 carries greeting,
 * words and frames; others carry bulk data, and greet with the nonces of the endpoint that was
 * attached first, the founder. It takes no greeting for proof of more than one endpoint: each shows
 * its own nonce in tcp_member.c. It takes no lock: a transport is used by one thread at a time.
 */
#include "tran/tcp/tcp_priv.h"

#include <errno.h>
#include <sys/socket.h>

bool tcp_bundle_connect(
	struct tcp_ep *ep, const struct sockaddr_storage *to, socklen_t len, uint64_t attempt_ns)
{
	struct tcp *t = tcp_of(ep->base.tran);
	RPWI_LIST_EACH (struct tcp_bundle, b, &t->bundles, link) {
		bool open = b->connector && b->state <= TCP_BUNDLE_UP && !b->error.status &&
			    b->keyed == ep->keyed;
		if (open && b->to_len == len && !memcmp(&b->to, to, len)) {
			tcp_bundle_join(b, ep);
			return true;
		}
	}
	struct tcp_bundle *b = tcp_bundle_new(t);
	if (!b)
		return false;
	b->connector = true;
	b->keyed = ep->keyed;
	b->to = *to;
	b->to_len = len;
	b->same_host = ep->same_host;
	if (!tcp_bundle_connect_stream(b, 0)) {
		tcp_bundle_free(b);
		return false;
	}
	tcp_bundle_deadline(b, attempt_ns);
	tcp_bundle_join(b, ep);
	return true;
}

static bool greet(struct tcp_stream *s, uint32_t number, const uint8_t *nonce)
{
	struct tcp_greeting g = {.stream = s->index, .number = number};
	uint8_t bytes[TCP_GREETING_LEN];
	memcpy(g.nonce, nonce, TCP_NONCE_LEN);
	tcp_put_greeting(bytes, &g);
	struct iovec iov = {bytes, sizeof bytes};
	/* into an empty socket: whole, or never */
	return tcp_io_send(s, &iov, 1, 0) == (ssize_t)sizeof bytes && !tcp_io_waits(s);
}

/* Stream 0 is there: by the nonce of one member the peer lets us in, then each shows its own. */
static bool greet_first(struct tcp_stream *s)
{
	struct tcp_bundle *b = s->bundle;
	struct tcp_ep *first = RPWI_CONTAINER_OF(b->members.next, struct tcp_ep, member);
	if (s->tls && b->greeter != first->number)
		return false; /* the one whose secret it was has left: the others try anew */
	b->greeter = first->number;
	if (!greet(s, first->peer.number, first->peer.nonce))
		return false;
	s->state = TCP_UP;
	b->state = TCP_BUNDLE_UP;
	tcp_bundle_deadline(b, RPWI_NEVER);
	RPWI_LIST_EACH (struct tcp_ep, ep, &b->members, member)
		tcp_bundle_say_attach(b, ep);
	return true;
}

static void stands(struct tcp_stream *s)
{
	struct tcp_bundle *b = s->bundle;
	if (s->index)
		s->state = TCP_GREETED;
	if (!(s->index ? greet(s, b->founder[1].number, b->founder[1].nonce) : greet_first(s)))
		tcp_bundle_lost(s, RPW_ERR_UNREACHABLE,
			"the peer's tcp port closed the connection at once");
}

void tcp_bundle_shaken(struct tcp_stream *s)
{
	int rc = tcp_tls_shake(s);
	if (rc == -EAGAIN)
		return;
	if (!rc) {
		stands(s);
	} else if (rc == -EBADMSG) {
		tcp_bundle_lost(s, s->index ? RPW_ERR_PROTOCOL : RPW_ERR_REFUSED,
			"the TLS handshake with the peer's tcp port failed: %s: something between "
			"the two changes what is sent, or it is not the peer",
			tcp_tls_why(s));
	} else {
		tcp_bundle_lost(s, RPW_ERR_UNREACHABLE,
			"the TLS handshake with the peer's tcp port broke off: %s",
			rc == -EPIPE ? "it closed the connection" : strerror(-rc));
	}
}

static void shake(struct tcp_stream *s)
{
	struct tcp_bundle *b = s->bundle;
	const struct tcp_ep *first = RPWI_CONTAINER_OF(b->members.next, struct tcp_ep, member);
	const uint8_t *secret = s->index ? b->secret : first->secret;
	if (!s->index)
		b->greeter = first->number;
	s->state = TCP_SHAKING;
	if (tcp_tls_begin(s, secret, s->index ? b->founder[1].number : first->peer.number))
		tcp_bundle_shaken(s);
	else
		tcp_bundle_lost(s, RPW_ERR_NO_MEMORY, "no memory for TLS");
}

void tcp_bundle_connected(struct tcp_stream *s)
{
	struct tcp_bundle *b = s->bundle;
	int err = 0;
	socklen_t len = sizeof err;
	getsockopt(s->fd, SOL_SOCKET, SO_ERROR, &err, &len);
	if (err) {
		tcp_bundle_lost(s, RPW_ERR_UNREACHABLE, "the peer's tcp port cannot be reached: %s",
			strerror(err));
		return;
	}
	tcp_stream_watch_out(s, false);
	if (b->keyed)
		shake(s);
	else
		stands(s);
}

static void bulk_is_up(struct tcp_stream *s)
{
	s->state = TCP_UP;
	tcp_bundle_describe(s->bundle);
	tcp_bulk_kick(s->bundle);
}

void tcp_bundle_greeted(struct tcp_stream *s)
{
	const struct tcp_founder *f = &s->bundle->founder[0];
	struct iovec iov = {s->greeting + s->greeting_len, TCP_GREETING_LEN - s->greeting_len};
	ssize_t r = tcp_io_recv(s, &iov, 1);
	if (r < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (r <= 0) {
		tcp_bundle_lost(s, RPW_ERR_REFUSED,
			"the peer's tcp port answered, but closed the connection before its "
			"greeting");
		return;
	}
	s->greeting_len += (size_t)r;
	if (s->greeting_len < TCP_GREETING_LEN)
		return;
	struct tcp_greeting g;
	if (tcp_get_greeting(s->greeting, &g) || g.stream != s->index || g.number != f->number ||
		tcp_nonce_differs(g.nonce, f->nonce)) {
		tcp_bundle_lost(s, RPW_ERR_PROTOCOL,
			"the process that answers at the peer's tcp port is not the peer: its "
			"greeting does "
			"not have our nonce");
		return;
	}
	bulk_is_up(s);
}

/* With a secret, only in TLS with that secret; without one, only in the clear. */
static bool sealed_as_due(const struct tcp_stream *s, bool keyed, const struct tcp_greeting *g)
{
	return keyed ? tcp_tls_is_for(s, g->number, g->stream) : !s->tls;
}

static int accept_bulk(
	struct tcp *t, struct tcp_stream *s, const struct tcp_greeting *g, const char **why)
{
	*why = "it names no endpoint that has streams for bulk data";
	RPWI_LIST_EACH (struct tcp_bundle, b, &t->bundles, link) {
		if (b->connector || b->state != TCP_BUNDLE_UP ||
			b->founder[1].number != g->number ||
			tcp_nonce_differs(b->founder[1].nonce, g->nonce))
			continue;
		*why = "it is not sealed by the key of that endpoint";
		if (!sealed_as_due(s, b->keyed, g))
			return -1;
		*why = "that stream already exists, or is not wanted";
		if (b->stream[g->stream] || g->stream >= t->streams_max)
			return -1;
		s->index = g->stream;
		*why = "it went away while it was greeted";
		if (!greet(s, b->founder[0].number, b->founder[0].nonce))
			return -1;
		s->bundle = b;
		b->stream[g->stream] = s;
		bulk_is_up(s);
		return 0;
	}
	return -1;
}

int tcp_bundle_accept(
	struct tcp *t, struct tcp_stream *s, const struct tcp_greeting *g, const char **why)
{
	if (!g->number || g->stream)
		return g->number ? accept_bulk(t, s, g, why) : -1;
	*why = "it names no endpoint that waits for it";
	const struct tcp_ep *ep = tcp_ep_find(t, g->number);
	if (!tcp_ep_waits(ep, g->nonce))
		return -1;
	*why = "it is not sealed by the key of that endpoint";
	if (!sealed_as_due(s, ep->keyed, g))
		return -1;
	struct tcp_bundle *b = tcp_bundle_new(t);
	*why = "there is no memory";
	if (!b)
		return -1;
	s->bundle = b;
	s->state = TCP_UP;
	b->keyed = ep->keyed;
	b->stream[0] = s;
	b->state = TCP_BUNDLE_UP;
	/* to attach somebody */
	tcp_bundle_deadline(b, rpwi_now_ns() + TCP_STRANGER_MS * RPWI_NS_PER_MS);
	return 0;
}
