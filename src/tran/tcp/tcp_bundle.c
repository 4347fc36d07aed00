/* tcp_bundle.c - the streams that all endpoints between two contexts share: connecting, greeting, who is a member, words about endpoints, failing, closing.
 *
 * The side that connects looks for a bundle to the address that it would connect to, and joins that; so what tells bundles apart is where they were connected to, which nobody can lie
 * about. (Two contexts that connect to each other both ways have two bundles.) Each endpoint still shows its own nonce over the bundle, and is shown its peer's: sharing a stream
 * lets nobody in. Stream 0 carries greeting, words and frames; others carry bulk data, and greet with the nonces of the endpoint that was attached first, the founder.
 *
 * A bundle ends with its last member: what was taken is still sent. It fails as a whole.
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

enum { END_MS = 500, WORDS_MAX = 65536 };

/* A word about an endpoint that found no room. */
struct word {
	struct rpwi_list link;
	uint8_t kind, answer;
	uint32_t to, from;
	uint8_t nonce[TCP_NONCE_LEN];
};

struct tcp_bundle *tcp_bundle_new(struct tcp *t)
{
	struct tcp_bundle *b = calloc(1, sizeof *b);
	if (!b)
		return NULL;
	b->t = t;
	b->deadline_ns = RPWI_NEVER;
	struct rpwi_list *lists[] = {&b->opening, &b->failing, &b->members, &b->words, &b->rooming, &b->pumping[0], &b->pumping[1]};
	for (unsigned i = 0; i < RPWI_ARRAY_LEN(lists); i++)
		rpwi_list_init(lists[i]);
	rpwi_list_add_tail(&t->bundles, &b->link);
	return b;
}

static void set_deadline(struct tcp_bundle *b, uint64_t ns)
{
	b->deadline_ns = ns;
	rpwi_list_del(&b->opening);
	if (ns == RPWI_NEVER)
		return;
	rpwi_list_add_tail(&b->t->opening, &b->opening);
	tcp_deadline_lower(b->t, ns);
}

static void bundle_free(struct tcp_bundle *b)
{
	struct tcp *t = b->t;
	while (!rpwi_list_empty(&b->words)) {
		struct word *w = RPWI_CONTAINER_OF(rpwi_list_pop(&b->words), struct word, link);
		free(w);
	}
	rpwi_list_del(&b->opening);
	rpwi_list_del(&b->failing);
	rpwi_list_del(&b->link);
	explicit_bzero(b->secret, sizeof b->secret);
	b->state = TCP_BUNDLE_CLOSED;
	if (t->in_progress)
		rpwi_list_add_tail(&t->dead_bundles, &b->link);
	else
		free(b);
}

static void close_streams(struct tcp_bundle *b)
{
	for (unsigned i = 0; i < TCP_STREAMS_MAX; i++)
		if (b->stream[i])
			tcp_stream_close(b->stream[i]);
}

/* ---- words ---- */

static bool word_put(struct tcp_bundle *b, const struct word *w)
{
	struct tcp_header h = {.kind = w->kind, .answer = w->answer, .id = w->to};
	uint8_t *p = tcp_stream_reserve_word(b->stream[0], TCP_HEADER_LEN + tcp_more_len(&h));
	if (!p)
		return false;
	tcp_put_header(p, &h);
	p += TCP_HEADER_LEN;
	if (w->kind == TCP_ATTACH) {
		rpwi_put_be32(p, w->from);
		p += 4;
	}
	if (w->kind != TCP_LEAVE)
		memcpy(p, w->nonce, TCP_NONCE_LEN);
	tcp_stream_kick(b->stream[0]);
	return true;
}

static void say(struct tcp_bundle *b, const struct word *word)
{
	if (b->state != TCP_BUNDLE_UP || (rpwi_list_empty(&b->words) && word_put(b, word)))
		return;
	struct word *w = b->word_count < WORDS_MAX ? malloc(sizeof *w) : NULL;
	if (!w) {
		tcp_bundle_fail(b, RPW_ERR_PROTOCOL, "the peer asks for endpoints, and does not read the answers");
		return;
	}
	*w = *word;
	rpwi_list_add_tail(&b->words, &w->link);
	b->word_count++;
}

void tcp_bundle_words(struct tcp_bundle *b)
{
	while (!rpwi_list_empty(&b->words)) {
		if (!word_put(b, RPWI_CONTAINER_OF(b->words.next, struct word, link)))
			return;
		free(RPWI_CONTAINER_OF(rpwi_list_pop(&b->words), struct word, link));
		b->word_count--;
	}
}

/* ---- members ---- */

static void say_attach(struct tcp_bundle *b, const struct tcp_ep *ep)
{
	struct word w = {.kind = TCP_ATTACH, .to = ep->peer.number, .from = ep->number};
	memcpy(w.nonce, ep->peer.nonce, TCP_NONCE_LEN);
	say(b, &w);
}

static void say_close(struct tcp_bundle *b, uint32_t to, enum tcp_answer answer)
{
	say(b, &(struct word){.kind = TCP_LEAVE, .answer = (uint8_t)answer, .to = to});
}

static void join(struct tcp_bundle *b, struct tcp_ep *ep)
{
	ep->bundle = b;
	ep->peer_left = false;
	rpwi_list_add_tail(&b->members, &ep->member);
	if (!b->connector && !b->fail_status)
		set_deadline(b, RPWI_NEVER); /* else it is about to end: end_soon */
	else if (b->state == TCP_BUNDLE_UP)
		say_attach(b, ep);
}

static void bundle_close(struct tcp_bundle *b)
{
	if (b->state == TCP_BUNDLE_UP && b->stream[0] && !b->stream[0]->send_errno)
		tcp_stream_linger(b->stream[0]);
	close_streams(b);
	bundle_free(b);
}

void tcp_bundle_leave(struct tcp_ep *ep)
{
	struct tcp_bundle *b = ep->bundle;
	if (!b)
		return;
	tcp_rma_drop(ep);
	ep->bundle = NULL;
	struct rpwi_list *links[] = {&ep->member, &ep->rooming, &ep->pumping[0], &ep->pumping[1]};
	for (unsigned i = 0; i < RPWI_ARRAY_LEN(links); i++)
		rpwi_list_del(links[i]);
	if (b->state == TCP_BUNDLE_FAILED)
		return; /* it is on its way out */
	if (!ep->peer_left)
		say_close(b, ep->was_up || ep->active ? ep->peer.number : ep->claim, ep->was_up || ep->active ? TCP_OK : TCP_NO_ACCESS);
	if (rpwi_list_empty(&b->members) && b->state != TCP_BUNDLE_FAILED)
		bundle_close(b);
}

static void describe(struct tcp_bundle *b)
{
	struct sockaddr_storage a = {0};
	socklen_t len = sizeof a;
	char host[64] = "a peer that is gone";
	unsigned n = 0;
	for (unsigned i = 0; i < TCP_STREAMS_MAX; i++)
		n += b->stream[i] && b->stream[i]->state == TCP_UP;
	if (!getpeername(b->stream[0]->fd, (struct sockaddr *)&a, &len))
		getnameinfo((struct sockaddr *)&a, len, host, sizeof host, NULL, 0, NI_NUMERICHOST);
	snprintf(b->path, sizeof b->path, "%u stream%s to %s%s", n, n == 1 ? "" : "s", strncmp(host, "::ffff:", 7) ? host : host + 7,
		b->keyed ? ", TLS 1.3" : "");
	for (struct rpwi_list *l = b->members.next; l != &b->members; l = l->next) {
		struct tcp_ep *ep = RPWI_CONTAINER_OF(l, struct tcp_ep, member);
		if (ep->state == TCP_EP_UP)
			memcpy(ep->base.path, b->path, sizeof b->path);
	}
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

/* Both sides know each other: frames may come and go. */
static void attached(struct tcp_ep *ep)
{
	struct tcp_bundle *b = ep->bundle;
	founded(b, ep);
	if (!b->path[0])
		describe(b);
	memcpy(ep->base.path, b->path, sizeof b->path);
	tcp_ep_up(ep);
}

void tcp_bundle_answer(struct tcp_ep *ep)
{
	struct tcp_bundle *b = ep->bundle;
	if (ep->claim != ep->peer.number) {
		tcp_bundle_leave(ep);
		return;
	}
	struct word w = {.kind = TCP_ATTACHED, .to = ep->peer.number};
	memcpy(w.nonce, ep->peer.nonce, TCP_NONCE_LEN);
	say(b, &w);
	if (b->state == TCP_BUNDLE_UP)
		attached(ep);
}

int tcp_bundle_on_attach(struct tcp_stream *s, const struct tcp_header *h, const uint8_t *more, const char **why)
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
	join(b, ep);
	if (ep->state == TCP_EP_STARTED)
		tcp_bundle_answer(ep);
	return 0;
}

int tcp_bundle_on_attached(struct tcp_stream *s, const struct tcp_header *h, const uint8_t *more, const char **why)
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
		*why = "what answers at the peer's tcp port is not the peer: it does not have our nonce";
		return -1;
	}
	attached(ep);
	return 0;
}

int tcp_bundle_on_close(struct tcp_stream *s, const struct tcp_header *h, const char **why)
{
	struct tcp_bundle *b = s->bundle;
	struct tcp_ep *ep = tcp_ep_find(b->t, h->id);
	if (s->index) {
		*why = "a word about an endpoint on a stream for bulk data";
		return -1;
	}
	if (ep && ep->bundle == b)
		tcp_ep_closed_by_peer(ep);
	return 0;
}

/* ---- connecting ---- */

static bool connect_to(struct tcp_bundle *b, unsigned index)
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

bool tcp_bundle_connect(struct tcp_ep *ep, const struct sockaddr_storage *to, socklen_t len, uint64_t attempt_ns)
{
	struct tcp *t = tcp_of(ep->base.tran);
	for (struct rpwi_list *l = t->bundles.next; l != &t->bundles; l = l->next) {
		struct tcp_bundle *b = RPWI_CONTAINER_OF(l, struct tcp_bundle, link);
		bool open = b->connector && b->state <= TCP_BUNDLE_UP && !b->fail_status && b->keyed == ep->keyed;
		if (open && b->to_len == len && !memcmp(&b->to, to, len)) {
			join(b, ep);
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
	if (!connect_to(b, 0)) {
		bundle_free(b);
		return false;
	}
	set_deadline(b, attempt_ns);
	join(b, ep);
	return true;
}

static bool greet(struct tcp_stream *s, uint32_t number, const uint8_t *nonce)
{
	struct tcp_greeting g = {.stream = s->index, .number = number};
	uint8_t bytes[TCP_GREETING_LEN];
	memcpy(g.nonce, nonce, TCP_NONCE_LEN);
	tcp_put_greeting(bytes, &g);
	struct iovec iov = {bytes, sizeof bytes};
	return tcp_io_send(s, &iov, 1, 0) == (ssize_t)sizeof bytes && !tcp_io_waits(s); /* into an empty socket: whole, or never */
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
	set_deadline(b, RPWI_NEVER);
	for (struct rpwi_list *l = b->members.next; l != &b->members; l = l->next)
		say_attach(b, RPWI_CONTAINER_OF(l, struct tcp_ep, member));
	return true;
}

static void stands(struct tcp_stream *s)
{
	struct tcp_bundle *b = s->bundle;
	if (s->index)
		s->state = TCP_GREETED;
	if (!(s->index ? greet(s, b->founder[1].number, b->founder[1].nonce) : greet_first(s)))
		tcp_bundle_lost(s, RPW_ERR_UNREACHABLE, "the peer's tcp port closed the connection at once");
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
			"the TLS handshake with the peer's tcp port failed: %s: something between the two changes what is sent, or it is not the peer",
			tcp_tls_why(s));
	} else {
		tcp_bundle_lost(s, RPW_ERR_UNREACHABLE, "the TLS handshake with the peer's tcp port broke off: %s",
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
		tcp_bundle_lost(s, RPW_ERR_UNREACHABLE, "the peer's tcp port cannot be reached: %s", strerror(err));
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
	describe(s->bundle);
	tcp_rma_pump(s->bundle);
}

void tcp_bundle_greeted(struct tcp_stream *s)
{
	const struct tcp_founder *f = &s->bundle->founder[0];
	struct iovec iov = {s->greeting + s->greeting_len, TCP_GREETING_LEN - s->greeting_len};
	ssize_t r = tcp_io_recv(s, &iov, 1);
	if (r < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (r <= 0) {
		tcp_bundle_lost(s, RPW_ERR_REFUSED, "the peer's tcp port answered, but closed the connection before its greeting");
		return;
	}
	s->greeting_len += (size_t)r;
	if (s->greeting_len < TCP_GREETING_LEN)
		return;
	struct tcp_greeting g;
	if (tcp_get_greeting(s->greeting, &g) || g.stream != s->index || g.number != f->number || tcp_nonce_differs(g.nonce, f->nonce)) {
		tcp_bundle_lost(s, RPW_ERR_PROTOCOL, "what answers at the peer's tcp port is not the peer: its greeting does not have our nonce");
		return;
	}
	bulk_is_up(s);
}

const uint8_t *tcp_bundle_secret(struct tcp *t, uint32_t number, unsigned index)
{
	if (!index) {
		const struct tcp_ep *ep = number ? tcp_ep_find(t, number) : NULL;
		return ep && ep->keyed && !ep->active && ep->state <= TCP_EP_STARTED ? ep->secret : NULL;
	}
	for (struct rpwi_list *l = t->bundles.next; l != &t->bundles; l = l->next) {
		const struct tcp_bundle *b = RPWI_CONTAINER_OF(l, struct tcp_bundle, link);
		if (!b->connector && b->keyed && b->state == TCP_BUNDLE_UP && b->founder[1].number && b->founder[1].number == number)
			return b->secret;
	}
	return NULL;
}

/* With a secret, only in TLS with that secret; without one, only in the clear. */
static bool sealed_as_due(const struct tcp_stream *s, bool keyed, const struct tcp_greeting *g)
{
	return keyed ? tcp_tls_is_for(s, g->number, g->stream) : !s->tls;
}

static int accept_bulk(struct tcp *t, struct tcp_stream *s, const struct tcp_greeting *g, const char **why)
{
	*why = "it names no endpoint that has streams for bulk data";
	for (struct rpwi_list *l = t->bundles.next; l != &t->bundles; l = l->next) {
		struct tcp_bundle *b = RPWI_CONTAINER_OF(l, struct tcp_bundle, link);
		if (b->connector || b->state != TCP_BUNDLE_UP || b->founder[1].number != g->number || tcp_nonce_differs(b->founder[1].nonce, g->nonce))
			continue;
		*why = "it is not sealed by the key of that endpoint";
		if (!sealed_as_due(s, b->keyed, g))
			return -1;
		*why = "that stream is there already, or not wanted";
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

int tcp_bundle_accept(struct tcp *t, struct tcp_stream *s, const struct tcp_greeting *g, const char **why)
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
	set_deadline(b, rpwi_now_ns() + TCP_STRANGER_MS * RPWI_NS_PER_MS); /* to attach somebody */
	return 0;
}

void tcp_bundle_more_streams(struct tcp_bundle *b)
{
	if (b->more_failed || b->state != TCP_BUNDLE_UP || !b->founder[0].number)
		return;
	for (unsigned i = 1; i < b->t->streams_max; i++) {
		if (b->stream[i])
			continue;
		if (!b->connector) {
			uint8_t *p = b->open_asked ? NULL : tcp_stream_reserve(b->stream[0], TCP_HEADER_LEN);
			if (!p)
				return;
			b->open_asked = true;
			tcp_put_header(p, &(struct tcp_header){.kind = TCP_OPEN});
			tcp_stream_kick(b->stream[0]);
			return;
		}
		if (!connect_to(b, i))
			b->more_failed = true;
	}
}

/* ---- ending ---- */

void tcp_bundle_fail(struct tcp_bundle *b, int status, const char *why)
{
	if (b->state >= TCP_BUNDLE_FAILED)
		return;
	b->state = TCP_BUNDLE_FAILED;
	b->fail_status = status;
	snprintf(b->fail_why, sizeof b->fail_why, "%s", why);
	set_deadline(b, RPWI_NEVER);
	rpwi_list_add_tail(&b->t->failing_bundles, &b->failing);
}

/* A stream for bulk data has ended. Mostly the peer has closed all of them: the frames that it sent before are taken from stream 0 first. */
static void end_soon(struct tcp_bundle *b, int status, const char *why)
{
	if (b->fail_status)
		return;
	b->fail_status = status;
	snprintf(b->fail_why, sizeof b->fail_why, "%s", why);
	set_deadline(b, rpwi_now_ns() + END_MS * RPWI_NS_PER_MS);
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
		tcp_bundle_fail(b, status, why); /* its streams are closed when that is reported: somebody up the stack reads this one */
		return;
	}
	tcp_stream_close(s);
	b->more_failed = true; /* one stream does it, too */
	if (was_up)
		end_soon(b, status, why);
}

void tcp_bundle_report(struct tcp *t)
{
	while (!rpwi_list_empty(&t->failing_bundles)) {
		struct tcp_bundle *b = RPWI_CONTAINER_OF(rpwi_list_pop(&t->failing_bundles), struct tcp_bundle, failing);
		close_streams(b);
		while (!rpwi_list_empty(&b->members)) {
			struct tcp_ep *ep = RPWI_CONTAINER_OF(b->members.next, struct tcp_ep, member);
			tcp_bundle_leave(ep);
			/* Refused for the sake of the one that greeted, or closed by its last member while others came: those try anew. */
			tcp_ep_bundle_lost(ep, b->founder[0].number || (b->greeter && b->greeter != ep->number), b->fail_status, b->fail_why);
		}
		bundle_free(b);
	}
}

void tcp_bundle_time(struct tcp *t, uint64_t now_ns)
{
	struct rpwi_list *next;
	for (struct rpwi_list *l = t->opening.next; l != &t->opening; l = next) {
		struct tcp_bundle *b = RPWI_CONTAINER_OF(l, struct tcp_bundle, opening);
		next = l->next;
		if (now_ns < b->deadline_ns) {
			tcp_deadline_lower(t, b->deadline_ns);
			continue;
		}
		char why[sizeof b->fail_why] = "the peer's address did not answer by tcp";
		if (b->fail_status)
			memcpy(why, b->fail_why, sizeof why);
		tcp_bundle_fail(b, b->fail_status ? b->fail_status : RPW_ERR_TIMEOUT, why);
	}
}

void tcp_bundle_close_all(struct tcp *t)
{
	while (!rpwi_list_empty(&t->bundles)) {
		struct tcp_bundle *b = RPWI_CONTAINER_OF(rpwi_list_pop(&t->bundles), struct tcp_bundle, link);
		close_streams(b);
		bundle_free(b);
	}
}
