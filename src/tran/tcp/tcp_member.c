/* SPDX-License-Identifier: BSD-3-Clause */
/* tcp_member.c - who is a member of a bundle, and what the two sides say about it: joining,
 * attached, leaving. Each endpoint shows its own nonce over the bundle, and is shown its peer's:
 * sharing a stream lets nobody in. The first that is attached is the founder. It never connects. It
 * takes no lock: a transport is used by one thread at a time.
 */
#include "tran/tcp/tcp_priv.h"

#include <netdb.h>
#include <stdio.h>
#include <sys/socket.h>

void tcp_bundle_say_attach(struct tcp_bundle *b, const struct tcp_ep *ep)
{
	struct tcp_word w = {.kind = TCP_ATTACH, .to = ep->peer.number, .from = ep->number};
	memcpy(w.nonce, ep->peer.nonce, TCP_NONCE_LEN);
	tcp_bundle_say(b, &w);
}

static void say_close(struct tcp_bundle *b, uint32_t to, enum tcp_answer answer)
{
	tcp_bundle_say(
		b, &(struct tcp_word){.kind = TCP_LEAVE, .answer = (uint8_t)answer, .to = to});
}

void tcp_bundle_join(struct tcp_bundle *b, struct tcp_ep *ep)
{
	ep->bundle = b;
	ep->peer_left = false;
	rpwi_list_add_tail(&b->members, &ep->member);
	if (!b->connector && !b->error.status)
		tcp_bundle_deadline(b, RPWI_NEVER); /* else it is about to end: end_soon */
	else if (b->state == TCP_BUNDLE_UP)
		tcp_bundle_say_attach(b, ep);
}

static void bundle_close(struct tcp_bundle *b)
{
	if (b->state == TCP_BUNDLE_UP && b->stream[0] && !b->stream[0]->send_errno)
		tcp_stream_linger(b->stream[0]);
	tcp_bundle_close_streams(b);
	tcp_bundle_free(b);
}

void tcp_bundle_leave(struct tcp_ep *ep)
{
	struct tcp_bundle *b = ep->bundle;
	if (!b)
		return;
	tcp_bulk_leave(ep);
	ep->bundle = NULL;
	struct rpwi_list *links[] = {&ep->member, &ep->rooming};
	for (unsigned i = 0; i < RPWI_ARRAY_LEN(links); i++)
		rpwi_list_del(links[i]);
	if (b->state == TCP_BUNDLE_FAILED)
		return; /* it is on its way out */
	if (!ep->peer_left && (ep->was_up || ep->active))
		say_close(b, ep->peer.number, TCP_OK);
	else if (!ep->peer_left)
		say_close(b, ep->claim, TCP_NO_ACCESS);
	if (rpwi_list_empty(&b->members) && b->state != TCP_BUNDLE_FAILED)
		bundle_close(b);
}

void tcp_bundle_describe(struct tcp_bundle *b)
{
	struct sockaddr_storage a = {0};
	socklen_t len = sizeof a;
	char host[64] = "a peer that is gone";
	unsigned n = 0;
	for (unsigned i = 0; i < TCP_STREAMS_MAX; i++)
		n += b->stream[i] && b->stream[i]->state == TCP_UP;
	if (!getpeername(b->stream[0]->fd, (struct sockaddr *)&a, &len))
		getnameinfo((struct sockaddr *)&a, len, host, sizeof host, NULL, 0, NI_NUMERICHOST);
	const char *streams = n == 1 ? "stream" : "streams";
	const char *shown = strncmp(host, "::ffff:", 7) ? host : host + 7;
	snprintf(b->path, sizeof b->path, "%u %s to %s%s", n, streams, shown,
		b->keyed ? ", TLS 1.3" : "");
	RPWI_LIST_EACH (struct tcp_ep, ep, &b->members, member)
		if (ep->state == TCP_EP_UP)
			memcpy(ep->base.path, b->path, sizeof b->path);
	rpwi_debug("tcp: %s", b->path);
}

static void founded(struct tcp_bundle *b, const struct tcp_ep *ep)
{
	if (b->founder[0].number)
		return;
	const struct tcp_founder own = {ep->number, {0}}, peer = {ep->peer.number, {0}};
	b->founder[!ep->active] = own; /* 0: of the side that connected */
	b->founder[ep->active] = peer;
	memcpy(b->founder[!ep->active].nonce, ep->nonce, TCP_NONCE_LEN);
	memcpy(b->founder[ep->active].nonce, ep->peer.nonce, TCP_NONCE_LEN);
	memcpy(b->secret, ep->secret, TRAN_SECRET_LEN);
}

static void up(struct tcp_ep *ep)
{
	rpwi_list_del(&ep->link);
	ep->state = TCP_EP_UP;
	ep->was_up = true;
	rpwi_debug("tcp: endpoint %u: %s", ep->number, ep->base.path);
	ep->base.tran->up->ready(ep->base.user, NULL);
}

/* Both sides know each other: frames may come and go. */
static void attached(struct tcp_ep *ep)
{
	struct tcp_bundle *b = ep->bundle;
	founded(b, ep);
	if (!b->path[0])
		tcp_bundle_describe(b);
	memcpy(ep->base.path, b->path, sizeof b->path);
	up(ep);
}

void tcp_bundle_answer(struct tcp_ep *ep)
{
	struct tcp_bundle *b = ep->bundle;
	if (ep->claim != ep->peer.number) {
		tcp_bundle_leave(ep);
		return;
	}
	struct tcp_word w = {.kind = TCP_ATTACHED, .to = ep->peer.number};
	memcpy(w.nonce, ep->peer.nonce, TCP_NONCE_LEN);
	tcp_bundle_say(b, &w);
	if (b->state == TCP_BUNDLE_UP)
		attached(ep);
}

int tcp_bundle_on_attach(
	struct tcp_stream *s, const struct tcp_header *h, const uint8_t *more, const char **why)
{
	struct tcp_bundle *b = s->bundle;
	uint32_t claim = rpwi_get_be32(more);
	if (s->index || b->connector) {
		*why = "an endpoint is to be attached where only this side does that";
		return -1;
	}
	struct tcp_ep *ep = tcp_ep_find(b->t, h->id);
	if (!tcp_ep_waits(ep, more + 4) || ep->keyed != b->keyed) {
		say_close(b, claim, TCP_NO_ACCESS);
		return 0;
	}
	if (ep->bundle)
		tcp_bundle_leave(ep); /* its peer has found another way */
	if (b->state != TCP_BUNDLE_UP)
		return 0;
	ep->claim = claim;
	tcp_bundle_join(b, ep);
	if (ep->state == TCP_EP_STARTED)
		tcp_bundle_answer(ep);
	return 0;
}

int tcp_bundle_on_attached(
	struct tcp_stream *s, const struct tcp_header *h, const uint8_t *more, const char **why)
{
	struct tcp_bundle *b = s->bundle;
	struct tcp_ep *ep = tcp_ep_find(b->t, h->id);
	if (s->index || !b->connector) {
		*why = "an answer to what this side does not ask";
		return -1;
	}
	if (!ep || ep->bundle != b || ep->state != TCP_EP_STARTED)
		return 0; /* closed meanwhile */
	if (tcp_nonce_differs(ep->nonce, more)) {
		*why = "the process that answers at the peer's tcp port is not the peer: it does "
		       "not have our "
		       "nonce";
		return -1;
	}
	attached(ep);
	return 0;
}
