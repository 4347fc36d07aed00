/* tcp_ep.c - endpoints: handles, connecting, greeting, failing, closing.
 *
 * The passive side listens and never connects; the active side never listens. Each stream begins with a greeting in both directions: the active side shows the nonce of the passive
 * side's handle, the passive side answers with the nonce of the active side's. So neither talks to anybody but the one that boot's handles went to.
 * The address that boot reached the peer by is tried first, then those of the handle, each once.
 */
#include "tran/tcp/tcp_priv.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { ATTEMPT_MS_MIN = 1000, END_MS = 500, EAGER_MAX = 64 * 1024, ENDPOINTS_MAX = 1 << 20 };

static struct tcp_ep *ep_of(struct tran_ep *ep) { return (struct tcp_ep *)ep; }

static int take_slot(struct tcp *t, struct tcp_ep *ep)
{
	unsigned slot = t->ep_count < t->ep_room ? t->ep_hint : t->ep_room;
	while (slot < t->ep_room && t->ep[slot])
		slot = slot + 1 == t->ep_room ? 0 : slot + 1; /* one is free: ep_count says so */
	if (slot == t->ep_room) {
		unsigned room = t->ep_room ? 2 * t->ep_room : 16;
		struct tcp_ep **more = room > ENDPOINTS_MAX ? NULL : realloc(t->ep, room * sizeof(struct tcp_ep *));
		if (!more)
			return -ENOMEM;
		memset(more + t->ep_room, 0, (room - t->ep_room) * sizeof(struct tcp_ep *));
		t->ep = more;
		t->ep_room = room;
	}
	t->ep[slot] = ep;
	t->ep_count++;
	t->ep_hint = slot + 1 < t->ep_room ? slot + 1 : 0;
	ep->slot = slot;
	return 0;
}

int tcp_ep_make(struct tran *tran, const struct tran_facts *peer, bool active, void *user, struct tran_ep **out, uint8_t *handle, size_t *handle_len)
{
	struct tcp *t = tcp_of(tran);
	int err = active ? 0 : tcp_listen_start(t);
	if (err)
		return err;
	struct tcp_ep *ep = calloc(1, sizeof *ep);
	if (!ep)
		return -ENOMEM;
	err = take_slot(t, ep);
	if (err) {
		free(ep);
		return err;
	}
	ep->base = (struct tran_ep){.tran = tran, .user = user, .limits = {.frame_max = TCP_FRAME_MAX, .eager_max = EAGER_MAX}};
	ep->active = active;
	struct rpwi_list *lists[] = {&ep->link, &ep->failing, &ep->waiting[0], &ep->waiting[1], &ep->gets, &ep->ordered};
	for (unsigned i = 0; i < RPWI_ARRAY_LEN(lists); i++)
		rpwi_list_init(lists[i]);
	for (unsigned i = 0; i < TCP_NONCE_LEN; i += 8) {
		uint64_t r = tcp_random(t);
		memcpy(ep->nonce + i, &r, 8);
	}
	ep->same_host = !memcmp(peer->host_id, t->own.host_id, sizeof peer->host_id);
	snprintf(ep->peer_address, sizeof ep->peer_address, "%.63s", peer->address);
	snprintf(ep->base.path, sizeof ep->base.path, "tcp to %.63s", peer->address);
	struct tcp_handle h = {.port = active ? 0 : t->port, .slot = ep->slot};
	memcpy(h.nonce, ep->nonce, TCP_NONCE_LEN);
	if (!active)
		h.count = tcp_listen_addresses(h.address, TCP_ADDRESSES_MAX);
	*handle_len = tcp_put_handle(handle, &h);
	*out = &ep->base;
	return 0;
}

/* ---- greeting ---- */

static bool greet(struct tcp_stream *s)
{
	struct tcp_greeting g = {.stream = s->index, .slot = s->ep->peer.slot};
	uint8_t bytes[TCP_GREETING_LEN];
	memcpy(g.nonce, s->ep->peer.nonce, TCP_NONCE_LEN);
	tcp_put_greeting(bytes, &g);
	return send(s->fd, bytes, sizeof bytes, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)sizeof bytes; /* into an empty socket: whole, or never */
}

static void describe(struct tcp_ep *ep)
{
	struct sockaddr_storage a;
	socklen_t len = sizeof a;
	char host[64] = "";
	unsigned n = 0;
	for (unsigned i = 0; i < TCP_STREAMS_MAX; i++)
		n += ep->stream[i] && ep->stream[i]->state == TCP_UP;
	if (getpeername(ep->stream[0]->fd, (struct sockaddr *)&a, &len) || getnameinfo((struct sockaddr *)&a, len, host, sizeof host, NULL, 0, NI_NUMERICHOST))
		snprintf(host, sizeof host, "%.63s", ep->peer_address);
	snprintf(ep->base.path, sizeof ep->base.path, "%u stream%s to %s", n, n == 1 ? "" : "s", strncmp(host, "::ffff:", 7) ? host : host + 7);
}

static void stream_is_up(struct tcp_stream *s)
{
	struct tcp_ep *ep = s->ep;
	s->state = TCP_UP;
	tcp_stream_watch_out(s, false);
	if (s->index == 0) {
		rpwi_list_del(&ep->link);
		ep->state = TCP_EP_UP;
		ep->was_up = true;
	}
	describe(ep);
	rpwi_debug("tcp: endpoint %u: %s", ep->slot, ep->base.path);
	if (s->index == 0)
		ep->base.tran->up->ready(ep->base.user, RPW_OK, "");
	else
		tcp_rma_pump(ep);
}

int tcp_ep_attach(struct tcp_ep *ep, struct tcp_stream *s, unsigned index, const char **why)
{
	bool early = ep->state == TCP_EP_MADE || ep->state == TCP_EP_STARTED;
	*why = "its endpoint has this stream already, or does not want it";
	if (ep->stream[index] || (index ? ep->state != TCP_EP_UP || index >= tcp_of(ep->base.tran)->streams_max : !early))
		return -1;
	s->ep = ep;
	s->index = (uint16_t)index;
	ep->stream[index] = s;
	if (ep->state == TCP_EP_MADE) {
		s->state = TCP_HELD;
		return 0;
	}
	if (!greet(s)) {
		*why = "it went away while it was greeted";
		ep->stream[index] = NULL;
		s->ep = NULL;
		return -1;
	}
	stream_is_up(s);
	return 0;
}

void tcp_ep_greeted(struct tcp_stream *s)
{
	struct tcp_ep *ep = s->ep;
	if (s->state == TCP_HELD) { /* it may only wait: it has ended, or does what it must not */
		tcp_stream_close(s);
		return;
	}
	ssize_t r = recv(s->fd, s->greeting + s->greeting_len, TCP_GREETING_LEN - s->greeting_len, MSG_DONTWAIT);
	if (r < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (r <= 0) {
		tcp_ep_stream_lost(s, RPW_ERR_REFUSED, "the peer's tcp port answered, but closed the connection before its greeting");
		return;
	}
	s->greeting_len += (size_t)r;
	if (s->greeting_len < TCP_GREETING_LEN)
		return;
	struct tcp_greeting g;
	if (tcp_get_greeting(s->greeting, &g) || g.stream != s->index || g.slot != ep->slot || memcmp(g.nonce, ep->nonce, TCP_NONCE_LEN)) {
		tcp_ep_stream_lost(s, RPW_ERR_PROTOCOL, "what answers at the peer's tcp port is not the peer: its greeting does not have our nonce");
		return;
	}
	stream_is_up(s);
}

/* ---- connecting ---- */

static socklen_t address_of(const struct tcp_ep *ep, unsigned n, struct sockaddr_storage *out)
{
	memset(out, 0, sizeof *out);
	struct sockaddr_in *four = (struct sockaddr_in *)out;
	struct sockaddr_in6 *six = (struct sockaddr_in6 *)out;
	if (n == 0) { /* as boot sees it, maybe with a scope */
		struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM}, *found;
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

static struct tcp_stream *connect_to(struct tcp_ep *ep, unsigned index, const struct sockaddr_storage *a, socklen_t len)
{
	int fd = socket(a->ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return NULL;
	tcp_stream_set_options(fd, ep->same_host);
	struct tcp_stream *s = NULL;
	if (connect(fd, (const struct sockaddr *)a, len) == 0 || errno == EINPROGRESS)
		s = tcp_stream_new(tcp_of(ep->base.tran), fd, TCP_CONNECTING, EPOLLIN | EPOLLOUT);
	if (!s) {
		close(fd);
		return NULL;
	}
	s->ep = ep;
	s->index = (uint16_t)index;
	ep->stream[index] = s;
	return s;
}

/* The next address that can be tried at all; false: none is left. */
static bool connect_next(struct tcp_ep *ep)
{
	uint64_t now = rpwi_now_ns();
	while (ep->next_address <= ep->peer.count) {
		struct sockaddr_storage a;
		unsigned left = ep->peer.count - ep->next_address + 1;
		socklen_t len = address_of(ep, ep->next_address++, &a);
		if (!len || !connect_to(ep, 0, &a, len))
			continue;
		uint64_t share = ep->deadline_ns > now ? (ep->deadline_ns - now) / RPWI_MAX(left, 1u) : 0;
		ep->attempt_ns = now + RPWI_MAX(share, ATTEMPT_MS_MIN * RPWI_NS_PER_MS);
		tcp_deadline_lower(tcp_of(ep->base.tran), RPWI_MIN(ep->attempt_ns, ep->deadline_ns));
		return true;
	}
	return false;
}

void tcp_ep_connected(struct tcp_stream *s)
{
	int err = 0;
	socklen_t len = sizeof err;
	getsockopt(s->fd, SOL_SOCKET, SO_ERROR, &err, &len);
	if (err) {
		tcp_ep_stream_lost(
			s, RPW_ERR_UNREACHABLE, "tcp port %u of the peer (%s) cannot be reached: %s", s->ep->peer.port, s->ep->peer_address, strerror(err));
		return;
	}
	tcp_stream_watch_out(s, false);
	s->state = TCP_GREETED;
	if (!greet(s))
		tcp_ep_stream_lost(s, RPW_ERR_UNREACHABLE, "tcp port %u of the peer (%s) closed the connection at once", s->ep->peer.port, s->ep->peer_address);
}

int tcp_ep_start(struct tran_ep *tran_ep, const uint8_t *handle, size_t len, unsigned timeout_ms)
{
	struct tcp_ep *ep = ep_of(tran_ep);
	struct tcp *t = tcp_of(ep->base.tran);
	char why[160] = "";
	if (ep->state != TCP_EP_MADE)
		return -EINVAL;
	ep->state = TCP_EP_STARTED;
	ep->deadline_ns = rpwi_now_ns() + timeout_ms * RPWI_NS_PER_MS;
	ep->attempt_ns = RPWI_NEVER;
	rpwi_list_add_tail(&t->starting, &ep->link);
	tcp_deadline_lower(t, ep->deadline_ns);
	if (tcp_get_handle(handle, len, &ep->peer, why, sizeof why)) {
		tcp_ep_fail(ep, RPW_ERR_PROTOCOL, why);
	} else if (ep->active == !ep->peer.port) {
		tcp_ep_fail(ep, RPW_ERR_PROTOCOL,
			ep->active ? "the peer's tcp handle has no port to connect to" : "the peer's tcp handle has a port, but that side is to connect");
	} else if (ep->active) {
		if (!connect_next(ep))
			tcp_ep_fail(ep, RPW_ERR_UNREACHABLE, "none of the peer's addresses can be connected to by tcp");
	} else if (ep->stream[0]) {
		if (greet(ep->stream[0]))
			stream_is_up(ep->stream[0]);
		else
			tcp_stream_close(ep->stream[0]);
	}
	return 0;
}

void tcp_ep_more_streams(struct tcp_ep *ep)
{
	struct tcp *t = tcp_of(ep->base.tran);
	if (ep->more_failed || ep->state != TCP_EP_UP)
		return;
	for (unsigned i = 1; i < t->streams_max; i++) {
		struct sockaddr_storage a = {0};
		socklen_t len = sizeof a;
		if (ep->stream[i])
			continue;
		if (!ep->active) {
			uint8_t *p = ep->open_asked ? NULL : tcp_stream_reserve(ep->stream[0], TCP_HEADER_LEN);
			if (!p)
				return;
			ep->open_asked = true;
			tcp_put_header(p, &(struct tcp_header){.kind = TCP_OPEN});
			tcp_stream_kick(ep->stream[0]);
			return;
		}
		if (getpeername(ep->stream[0]->fd, (struct sockaddr *)&a, &len) || !connect_to(ep, i, &a, len))
			ep->more_failed = true;
	}
}

void tcp_ep_open(struct tcp_ep *ep)
{
	if (ep->active)
		tcp_ep_more_streams(ep);
}

/* ---- ending ---- */

void tcp_ep_fail(struct tcp_ep *ep, int status, const char *why)
{
	if (ep->state == TCP_EP_FAILED || ep->state == TCP_EP_CLOSED)
		return;
	ep->state = TCP_EP_FAILED;
	ep->fail_status = status;
	snprintf(ep->fail_why, sizeof ep->fail_why, "%s", why);
	rpwi_list_del(&ep->link);
	rpwi_list_add_tail(&tcp_of(ep->base.tran)->failing, &ep->failing);
}

/* A stream for bulk data has ended. Mostly the peer has closed all of them: the frames that it sent before are taken from stream 0 first. */
static void end_soon(struct tcp_ep *ep, int status, const char *why)
{
	struct tcp *t = tcp_of(ep->base.tran);
	if (ep->fail_status)
		return;
	ep->fail_status = status;
	snprintf(ep->fail_why, sizeof ep->fail_why, "%s", why);
	ep->deadline_ns = rpwi_now_ns() + END_MS * RPWI_NS_PER_MS;
	ep->attempt_ns = RPWI_NEVER;
	rpwi_list_del(&ep->link);
	rpwi_list_add_tail(&t->starting, &ep->link);
	tcp_deadline_lower(t, ep->deadline_ns);
}

void tcp_ep_stream_lost(struct tcp_stream *s, int status, const char *fmt, ...)
{
	struct tcp_ep *ep = s->ep;
	char why[256];
	va_list args;
	va_start(args, fmt);
	vsnprintf(why, sizeof why, fmt, args);
	va_end(args);
	rpwi_debug("tcp: endpoint %u, stream %u: %s", ep->slot, s->index, why);
	bool was_up = s->state == TCP_UP;
	unsigned index = s->index;
	if (was_up && (index == 0 || status == RPW_ERR_PROTOCOL)) {
		tcp_ep_fail(ep, status, why);
		return; /* its streams are closed when that is reported: somebody up the stack reads this one */
	}
	tcp_stream_close(s);
	if (index)
		ep->more_failed = true; /* one stream does it, too */
	if (was_up)
		end_soon(ep, status, why);
	else if (index)
		return;
	else if (!connect_next(ep))
		tcp_ep_fail(ep, status, why);
}

static void close_streams(struct tcp_ep *ep)
{
	for (unsigned i = 0; i < TCP_STREAMS_MAX; i++)
		if (ep->stream[i])
			tcp_stream_close(ep->stream[i]);
}

void tcp_ep_report(struct tcp *t)
{
	while (!rpwi_list_empty(&t->failing)) {
		struct tcp_ep *ep = RPWI_CONTAINER_OF(t->failing.next, struct tcp_ep, failing);
		rpwi_list_del(&ep->failing);
		close_streams(ep);
		tcp_rma_drop(ep);
		if (ep->was_up)
			t->base.up->failed(ep->base.user, ep->fail_status, ep->fail_why);
		else
			t->base.up->ready(ep->base.user, ep->fail_status, ep->fail_why);
	}
}

void tcp_ep_time(struct tcp *t, uint64_t now_ns)
{
	struct rpwi_list *next;
	for (struct rpwi_list *l = t->starting.next; l != &t->starting; l = next) {
		struct tcp_ep *ep = RPWI_CONTAINER_OF(l, struct tcp_ep, link);
		next = l->next;
		if (now_ns >= ep->deadline_ns && ep->state == TCP_EP_UP) {
			char bulk[sizeof ep->fail_why];
			memcpy(bulk, ep->fail_why, sizeof bulk);
			tcp_ep_fail(ep, ep->fail_status, bulk);
			continue;
		}
		if (now_ns >= ep->deadline_ns) {
			char why[160];
			snprintf(why, sizeof why,
				ep->active ? "the peer (%s, tcp port %u) did not answer in time: is the port open in its firewall?"
					   : "the peer (%s) did not connect to our tcp port %u in time: is the port open in our firewall?",
				ep->peer_address, ep->active ? ep->peer.port : t->port);
			tcp_ep_fail(ep, RPW_ERR_TIMEOUT, why);
			continue;
		}
		if (now_ns >= ep->attempt_ns && ep->stream[0])
			tcp_ep_stream_lost(ep->stream[0], RPW_ERR_TIMEOUT, "the peer's last address did not answer by tcp");
		if (ep->state == TCP_EP_STARTED || ep->state == TCP_EP_UP)
			tcp_deadline_lower(t, RPWI_MIN(ep->deadline_ns, ep->attempt_ns));
	}
}

void tcp_ep_close(struct tran_ep *tran_ep)
{
	struct tcp_ep *ep = ep_of(tran_ep);
	struct tcp *t = tcp_of(ep->base.tran);
	if (ep->state == TCP_EP_UP && ep->stream[0] && !ep->stream[0]->send_errno)
		tcp_stream_linger(ep->stream[0]);
	ep->state = TCP_EP_CLOSED;
	close_streams(ep);
	tcp_rma_drop(ep);
	rpwi_list_del(&ep->link);
	rpwi_list_del(&ep->failing);
	t->ep[ep->slot] = NULL;
	t->ep_count--;
	t->ep_hint = ep->slot;
	if (t->in_progress)
		rpwi_list_add_tail(&t->dead_eps, &ep->link);
	else
		free(ep);
}
