/* SPDX-License-Identifier: BSD-3-Clause */
/* tcp_ep.c - endpoints: handles, which address to try, failing, closing. What carries them is in
 * tcp_bundle.c and tcp_member.c. It never reads or writes a stream. It takes no lock: a transport
 * is used by one thread at a time.
 *
 * The passive side listens and never connects; the active side never listens. The active side shows
 * the nonce of the passive side's handle, the passive side answers with the nonce of the active
 * side's. So neither talks to anybody but the one that boot's handles went to. The address that
 * boot reached the peer by is tried first, then those of the handle, each once.
 */
#include "tran/tcp/tcp_priv.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

enum { ATTEMPT_MS_MIN = 1000, EAGER_MAX = 64 * 1024, BULK_MIN = 16 * 1024, PLACED_UNDER_WAY = 2 };

static struct tcp_ep *ep_of(struct tran_ep *ep) { return (struct tcp_ep *)ep; }

int tcp_ep_make(struct tran *tran, const struct tran_control *control, void *user,
	struct tran_ep **out, uint8_t *handle, size_t *handle_len)
{
	struct tcp *t = tcp_of(tran);
	const struct tran_facts *peer = control->peer;
	const struct tcp_listener *listener = NULL;
	bool active = control->active;
	int err = active ? 0 : tcp_listen_start(t, control->local, &listener);
	if (err)
		return err;
	struct tcp_ep *ep = rpwi_alloc_lines(sizeof *ep);
	if (!ep)
		return tran_no_memory(tran, "an endpoint");
	err = tcp_ep_number(t, ep);
	if (err) {
		free(ep);
		return err;
	}
	ep->base = (struct tran_ep){.tran = tran,
		.user = user,
		.limits = {.frame_max = TCP_FRAME_MAX,
			.eager_max = EAGER_MAX,
			.placed_max = TCP_LONG_MAX / 2,
			.placed_under_way = PLACED_UNDER_WAY,
			.bulk_min = BULK_MIN,
			.bulk_max = TCP_BULK_MAX}};
	if (tran->polled) {
		ep->base.limits.frame_max = TCP_POLLED_FRAME_MAX;
		ep->base.limits.placed_max = TCP_LONG_MAX;
	}
	ep->active = active;
	ep->listener = listener;
	ep->keyed = control->secret;
	if (ep->keyed) {
		memcpy(ep->secret, control->secret, TRAN_SECRET_LEN);
		t->keyed = true;
	}
	ep->same_host = !memcmp(peer->host_id, t->own.host_id, sizeof peer->host_id);
	struct rpwi_list *lists[] = {&ep->link, &ep->failing, &ep->member, &ep->rooming,
		&ep->turn[0], &ep->turn[1], &ep->waiting[0], &ep->waiting[1], &ep->bulks,
		&ep->expected};
	for (unsigned i = 0; i < RPWI_ARRAY_LEN(lists); i++)
		rpwi_list_init(lists[i]);
	for (unsigned i = 0; i < TCP_NONCE_LEN; i += 8) {
		uint64_t r = tcp_random(t);
		memcpy(ep->nonce + i, &r, 8);
	}
	snprintf(ep->peer_address, sizeof ep->peer_address, "%.63s", peer->address);
	const char *name = peer->hostname[0] ? peer->hostname : "of unknown address";
	snprintf(ep->peer_name, sizeof ep->peer_name, "%.63s",
		peer->address[0] ? peer->address : name);
	snprintf(ep->base.path, sizeof ep->base.path, "tcp to %.63s", ep->peer_name);
	struct tcp_handle h = {.port = active ? 0 : listener->port, .number = ep->number};
	memcpy(h.nonce, ep->nonce, TCP_NONCE_LEN);
	if (!active)
		h.count = tcp_listen_addresses(listener, h.address, TCP_ADDRESSES_MAX);
	*handle_len = tcp_put_handle(handle, &h);
	*out = &ep->base;
	return 0;
}

void tcp_ep_breach(struct tran_ep *tran_ep, const struct rpwi_error *e)
{
	struct tcp_ep *ep = ep_of(tran_ep);
	char sentence[200];
	snprintf(sentence, sizeof sentence, "the peer violated the tcp transport's protocol: %s",
		e->text);
	if (ep->bundle)
		tcp_bundle_fail(
			ep->bundle, e->status, e->status == RPW_ERR_PROTOCOL ? sentence : e->text);
}

static void fail_by(struct tcp_ep *ep, const struct rpwi_error *e)
{
	if (ep->state == TCP_EP_FAILED || ep->state == TCP_EP_CLOSED)
		return;
	struct tcp *t = tcp_of(ep->base.tran);
	ep->state = TCP_EP_FAILED;
	rpwi_error_keep(&ep->error, e);
	rpwi_list_del(&ep->link);
	rpwi_list_add_tail(&t->failing, &ep->failing);
}

static void fail(struct tcp_ep *ep, int status, const char *why)
{
	fail_by(ep, &(struct rpwi_error){status, 0, why});
}

/* ---- connecting ---- */

static socklen_t address_of(const struct tcp_ep *ep, unsigned n, struct sockaddr_storage *out)
{
	memset(out, 0, sizeof *out);
	struct sockaddr_in *four = (struct sockaddr_in *)out;
	struct sockaddr_in6 *six = (struct sockaddr_in6 *)out;
	if (n == 0) { /* as boot sees it, maybe with a scope */
		struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV,
					.ai_socktype = SOCK_STREAM},
				*found;
		char port[8];
		snprintf(port, sizeof port, "%u", ep->peer.port);
		if (!ep->peer_address[0] || getaddrinfo(ep->peer_address, port, &hints, &found))
			return 0;
		socklen_t len = found->ai_addrlen;
		memcpy(out, found->ai_addr, len);
		freeaddrinfo(found);
		return len;
	}
	const struct tcp_address *a = &ep->peer.address[n - 1];
	if (a->family == 4) {
		four->sin_family = AF_INET;
		four->sin_port = htons(ep->peer.port);
		memcpy(&four->sin_addr, a->bytes, 4);
		return sizeof *four;
	}
	six->sin6_family = AF_INET6;
	six->sin6_port = htons(ep->peer.port);
	memcpy(&six->sin6_addr, a->bytes, 16);
	return sizeof *six;
}

/* The next address that can be tried at all; false: none is left. */
static bool connect_next(struct tcp_ep *ep)
{
	uint64_t now = rpwi_now_ns();
	while (ep->next_address <= ep->peer.count) {
		struct sockaddr_storage a;
		unsigned left = ep->peer.count - ep->next_address + 1;
		uint64_t share = RPWI_MAX(
			(ep->deadline_ns > now ? ep->deadline_ns - now : 0) / RPWI_MAX(left, 1u),
			ATTEMPT_MS_MIN * RPWI_NS_PER_MS);
		socklen_t len = address_of(ep, ep->next_address++, &a);
		if (len && tcp_bundle_connect(ep, &a, len, RPWI_MIN(now + share, ep->deadline_ns)))
			return true;
	}
	return false;
}

int tcp_ep_start(struct tran_ep *tran_ep, const uint8_t *handle, size_t len, unsigned timeout_ms)
{
	struct tcp_ep *ep = ep_of(tran_ep);
	struct tcp *t = tcp_of(ep->base.tran);
	char why[160] = "";
	if (ep->state != TCP_EP_MADE)
		return rpwi_fail(RPW_ERR_INVALID, "tcp: the endpoint was started before");
	ep->state = TCP_EP_STARTED;
	ep->deadline_ns = rpwi_now_ns() + timeout_ms * RPWI_NS_PER_MS;
	rpwi_list_add_tail(&t->starting, &ep->link);
	tcp_deadline_lower(t, ep->deadline_ns);
	bool bad = tcp_get_handle(handle, len, &ep->peer, why, sizeof why);
	ep->to = ep->peer.number;
	if (bad)
		fail(ep, RPW_ERR_PROTOCOL, why);
	else if (ep->active == !ep->peer.port)
		fail(ep, RPW_ERR_PROTOCOL,
			ep->active
				? "the peer's tcp handle has no port to connect to"
				: "the peer's tcp handle has a port, but that side is to connect");
	else if (ep->active && !connect_next(ep))
		fail(ep, RPW_ERR_UNREACHABLE,
			"none of the peer's addresses can be connected to by tcp");
	else if (!ep->active && ep->bundle)
		tcp_bundle_answer(ep);
	return 0;
}

/* ---- ending ---- */

/* Its bundle has failed, and it is no member any more: the next address, or the end. */
static void bundle_lost(struct tcp_ep *ep, bool try_again, const struct rpwi_error *e)
{
	if (ep->state == TCP_EP_STARTED && ep->active) {
		if (try_again && ep->next_address && rpwi_now_ns() < ep->deadline_ns)
			ep->next_address--;
		if (connect_next(ep))
			return;
	}
	if (ep->state == TCP_EP_UP || (ep->state == TCP_EP_STARTED && ep->active))
		fail_by(ep, e);
}

static void closed_by_peer(struct tcp_ep *ep)
{
	ep->peer_left = true;
	if (ep->state == TCP_EP_UP) {
		fail(ep, RPW_ERR_UNREACHABLE, "the peer closed its side of the tcp endpoint");
		return;
	}
	bool was_active = ep->active && ep->state == TCP_EP_STARTED;
	tcp_bundle_leave(ep);
	if (was_active && !connect_next(ep))
		fail(ep, RPW_ERR_REFUSED,
			"the peer's tcp port answered, but the peer does not have this endpoint "
			"(any more)");
}

int tcp_ep_on_close(struct tcp_stream *s, const struct tcp_header *h, const char **why)
{
	struct tcp_bundle *b = s->bundle;
	struct tcp_ep *ep = tcp_ep_find(b->t, h->id);
	if (s->index) {
		*why = "a control message about an endpoint on a stream for bulk data";
		return -1;
	}
	if (ep && ep->bundle == b)
		closed_by_peer(ep);
	return 0;
}

void tcp_ep_report_bundles(struct tcp *t)
{
	while (!rpwi_list_empty(&t->failing_bundles)) {
		struct tcp_bundle *b = RPWI_CONTAINER_OF(
			rpwi_list_pop(&t->failing_bundles), struct tcp_bundle, failing);
		tcp_bundle_close_streams(b);
		while (!rpwi_list_empty(&b->members)) {
			struct tcp_ep *ep =
				RPWI_CONTAINER_OF(b->members.next, struct tcp_ep, member);
			tcp_bundle_leave(ep);
			/* Refused for the sake of the one that greeted, or closed by its last
			 * member while others came: those try anew. */
			bundle_lost(ep,
				b->founder[0].number || (b->greeter && b->greeter != ep->number),
				&b->error);
		}
		tcp_bundle_free(b);
	}
}

void tcp_ep_report(struct tcp *t)
{
	while (!rpwi_list_empty(&t->failing)) {
		struct tcp_ep *ep =
			RPWI_CONTAINER_OF(rpwi_list_pop(&t->failing), struct tcp_ep, failing);
		tcp_bundle_leave(ep);
		(ep->was_up ? t->base.up->failed : t->base.up->ready)(ep->base.user, &ep->error);
	}
}

void tcp_ep_time(struct tcp *t, uint64_t now_ns)
{
	RPWI_LIST_EACH_SAFE (struct tcp_ep, ep, next, &t->starting, link) {
		if (now_ns < ep->deadline_ns) {
			tcp_deadline_lower(t, ep->deadline_ns);
			continue;
		}
		char why[200];
		if (ep->active)
			snprintf(why, sizeof why,
				"the peer (%s, tcp port %u) did not answer in time: is the port "
				"open in its firewall?",
				ep->peer_name, ep->peer.port);
		else
			snprintf(why, sizeof why,
				"the peer (%s) did not connect to our tcp port %u in time: is the "
				"port open in our firewall?",
				ep->peer_name, ep->listener->port);
		fail(ep, RPW_ERR_TIMEOUT, why);
	}
}

void tcp_ep_free_all(struct tcp *t)
{
	for (unsigned i = 0; i < t->eps.room; i++) {
		struct tcp_ep *ep = rpwi_slots_find(&t->eps, i);
		if (!ep)
			continue;
		ep->bundle = NULL; /* gone, with its streams */
		tcp_bulk_leave(ep);
		rpwi_error_drop(&ep->error);
		free(ep);
	}
}

void tcp_ep_close(struct tran_ep *tran_ep)
{
	struct tcp_ep *ep = ep_of(tran_ep);
	struct tcp *t = tcp_of(ep->base.tran);
	ep->state = TCP_EP_CLOSED;
	tcp_bundle_leave(ep);
	emulate_ep_close(tran_ep); /* of one that never had a bundle */
	rpwi_list_del(&ep->link);
	rpwi_list_del(&ep->failing);
	tcp_ep_unnumber(t, ep);
	rpwi_error_drop(&ep->error);
	explicit_bzero(ep->secret, sizeof ep->secret);
	free(ep);
}
