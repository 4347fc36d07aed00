/* conn.c - a connection once it has a socket: from bytes to whole messages and back, and how it ends. What the peer sent is kept only while a message is incomplete, and never more than one of it;
 * an idle connection has no buffers.
 */
#include "boot/tls.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/discard.h"
#include "base/fail.h"
#include "ropeway.h"

enum { READS_MAX = 4, DRAIN_MAX = 64, DRAIN_BYTES = 32 * 1024 };

static const char *const state_names[] = {"look-up", "waiting", "connecting", "TLS", "hello", "open", "ended", "linger", "dead"};
_Static_assert(RPWI_ARRAY_LEN(state_names) == CONN_STATES, "a name for each state");

/* Where each state may lead. */
#define TO(state) (1u << (state))
static const unsigned may_follow[CONN_STATES] = {
	[CONN_LOOKUP] = TO(CONN_WAITING) | TO(CONN_ENDED) | TO(CONN_DEAD),
	[CONN_WAITING] = TO(CONN_LOOKUP) | TO(CONN_CONNECTING) | TO(CONN_ENDED) | TO(CONN_DEAD),
	[CONN_CONNECTING] = TO(CONN_WAITING) | TO(CONN_TLS) | TO(CONN_HELLO) | TO(CONN_ENDED) | TO(CONN_DEAD),
	[CONN_TLS] = TO(CONN_WAITING) | TO(CONN_HELLO) | TO(CONN_ENDED) | TO(CONN_LINGER) | TO(CONN_DEAD),
	[CONN_HELLO] = TO(CONN_WAITING) | TO(CONN_OPEN) | TO(CONN_ENDED) | TO(CONN_LINGER) | TO(CONN_DEAD),
	[CONN_OPEN] = TO(CONN_ENDED) | TO(CONN_LINGER) | TO(CONN_DEAD),
	[CONN_ENDED] = TO(CONN_DEAD),
	[CONN_LINGER] = TO(CONN_DEAD),
};

void boot_conn_move(struct boot_conn *c, enum boot_conn_state to)
{
	assert(may_follow[c->state] & TO(to));
	rpwi_trace("boot: %s: %s -> %s", c->where, state_names[c->state], state_names[to]);
	c->state = to;
}

/* ---- buffers ---- */

int boot_bytes_add(struct boot_bytes *b, const void *p, size_t len)
{
	if (b->room - b->len < len) {
		uint8_t *more = realloc(b->p, b->len + len);
		if (!more)
			return -ENOMEM;
		b->p = more;
		b->room = b->len + len;
	}
	memcpy(b->p + b->len, p, len);
	b->len += len;
	return 0;
}

void boot_bytes_free(struct boot_bytes *b)
{
	free(b->p);
	*b = (struct boot_bytes){0};
}

/* ---- made and freed ---- */

struct boot_conn *boot_conn_new(struct boot *b, void *user)
{
	struct boot_conn *c = calloc(1, sizeof(*c));
	if (!c)
		return NULL;
	c->source.kind = SOURCE_CONN;
	c->b = b;
	c->user = user;
	c->fd = -1;
	c->deadline_ns = RPWI_NEVER;
	rpwi_list_init(&c->timer);
	rpwi_list_init(&c->stranger);
	rpwi_list_init(&c->link);
	rpwi_list_add_tail(&b->conns, &c->link);
	return c;
}

void boot_conn_free(struct boot_conn *c)
{
	rpwi_list_del(&c->link);
	boot_bytes_free(&c->in);
	boot_bytes_free(&c->out);
	free(c);
}

static void set(int fd, int level, int name, int value) { setsockopt(fd, level, name, &value, sizeof(value)); }

/* A host that is silent for 10 s is dead: idle connections are probed after 4 s and each 2 s (keep-alive), what is sent must be taken within 10 s. A process that is only stopped is not
 * dead, its kernel answers. */
static void set_options(int fd)
{
	set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
	set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
	set(fd, IPPROTO_TCP, TCP_KEEPIDLE, 4);
	set(fd, IPPROTO_TCP, TCP_KEEPINTVL, 2);
	set(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
	set(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, 10000);
}

int boot_conn_attach(struct boot_conn *c, int fd, uint32_t events)
{
	set_options(fd);
	int rc = boot_watch(c->b, fd, &c->source, events);
	if (rc) {
		close(fd);
		return rc;
	}
	c->fd = fd;
	c->interest = events;
	return 0;
}

/* Shut down first: a forked child may have the socket too, and the peer is to see the end all the same. */
void boot_conn_detach(struct boot_conn *c)
{
	if (c->fd < 0)
		return;
	if (boot_is_ours(c->b)) {
		epoll_ctl(c->b->epoll_fd, EPOLL_CTL_DEL, c->fd, NULL);
		shutdown(c->fd, SHUT_RDWR);
	}
	close(c->fd);
	c->fd = -1;
	c->send_errno = 0;
	c->finished = false;
	c->in.len = 0;
	boot_bytes_free(&c->out);
	boot_tls_free(c->tls);
	c->tls = NULL;
}

void boot_conn_timer(struct boot_conn *c, uint64_t deadline_ns)
{
	rpwi_list_del(&c->timer);
	c->deadline_ns = deadline_ns;
	if (deadline_ns == RPWI_NEVER)
		return;
	rpwi_list_add_tail(&c->b->timed, &c->timer);
	boot_deadline_lower(c->b, deadline_ns);
}

void boot_conn_where(struct boot_conn *c, const struct boot_addr *a)
{
	boot_addr_text(a, c->peer.address, sizeof(c->peer.address), c->where, sizeof(c->where));
	snprintf(c->text, sizeof(c->text), "%s", c->where);
}

/* Whatever its state: no up-calls any more, the socket closed, the memory gone as soon as nobody looks at it. */
void boot_conn_bury(struct boot_conn *c)
{
	struct boot *b = c->b;
	/* In order that the kernel does not throw away what it has yet to send: it does when there is something unread. */
	if (c->fd >= 0 && boot_is_ours(b) && (c->state == CONN_OPEN || c->state == CONN_LINGER)) {
		boot_conn_flush(c);
		shutdown(c->fd, SHUT_WR);
		for (int i = 0; i < DRAIN_MAX && rpwi_tcp_discard(c->fd, DRAIN_BYTES) > 0; i++)
			;
	}
	boot_conn_detach(c);
	boot_conn_timer(c, RPWI_NEVER);
	boot_stranger_leaves(c);
	boot_dial_done(c);
	boot_conn_move(c, CONN_DEAD);
	rpwi_list_del(&c->link);
	rpwi_list_add_tail(&b->dead_conns, &c->link);
	if (!b->busy)
		boot_conn_free(c);
}

/* ---- sending ---- */

static void interest(struct boot_conn *c, uint32_t events)
{
	struct epoll_event ev = {.events = events, .data.ptr = &c->source};
	if (events == c->interest || c->fd < 0)
		return;
	c->interest = events;
	epoll_ctl(c->b->epoll_fd, EPOLL_CTL_MOD, c->fd, &ev);
}

int boot_conn_put(struct boot_conn *c, const void *p, size_t len) { return boot_bytes_add(&c->out, p, len); }

void boot_conn_flush(struct boot_conn *c)
{
	size_t sent = 0;
	if (c->fd < 0 || c->send_errno)
		return;
	while (sent < c->out.len) {
		ssize_t n = send(c->fd, c->out.p + sent, c->out.len - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			c->send_errno = errno == EAGAIN ? 0 : errno;
			break;
		}
		sent += (size_t)n;
	}
	if (c->send_errno) {
		/* Never told from here: the callee may be in the middle of something. */
		boot_bytes_free(&c->out);
		boot_conn_timer(c, rpwi_now_ns());
	} else if (sent == c->out.len) {
		boot_bytes_free(&c->out);
	} else {
		memmove(c->out.p, c->out.p + sent, c->out.len - sent);
		c->out.len -= sent;
	}
	interest(c, EPOLLIN | (c->out.len ? EPOLLOUT : 0));
}

/* Bytes of ours, to be encrypted where there is a key. */
static int say(struct boot_conn *c, const void *p, size_t len) { return c->tls ? boot_tls_send(c, p, len) : boot_conn_put(c, p, len); }

int boot_send(struct boot_conn *c, unsigned type, const void *data, size_t len)
{
	uint8_t message[BOOT_FRAME_HEAD + BOOT_MESSAGE_MAX];
	if (c->state == CONN_ENDED || c->send_errno || !boot_is_ours(c->b))
		return rpwi_fail(RPW_ERR_PEER_GONE, "%s: the control connection has ended", c->text);
	if (c->state != CONN_OPEN)
		return rpwi_fail(RPW_ERR_INVALID, "%s: a control message before the connection stands", c->text);
	if (len > BOOT_MESSAGE_MAX)
		return rpwi_fail(RPW_ERR_INVALID, "%s: a control message of %zu bytes; %d are the most", c->text, len, BOOT_MESSAGE_MAX);
	if (c->out.len + BOOT_FRAME_HEAD + len + (c->tls ? TLS_OVERHEAD : 0) > BOOT_QUEUE_MAX)
		return rpwi_fail(RPW_ERR_LIMIT, "%s: %zu bytes of control messages wait, the peer takes none: is its process stopped?", c->text, c->out.len);
	rpwi_put_be32(message, (uint32_t)len);
	rpwi_put_be32(message + 4, type);
	memcpy(message + BOOT_FRAME_HEAD, data, len);
	size_t before = c->out.len;
	if (say(c, message, BOOT_FRAME_HEAD + len)) {
		c->out.len = before;
		if (c->tls) { /* its records are numbered: with one missing the connection is of no more use */
			c->send_errno = ENOMEM;
			boot_conn_timer(c, rpwi_now_ns());
		}
		return rpwi_fail(RPW_ERR_NO_MEMORY, "%s: no memory for a control message", c->text);
	}
	if (!before)
		boot_conn_flush(c);
	return 0;
}

/* ---- the beginning ---- */

void boot_conn_begin(struct boot_conn *c)
{
	if (c->b->key) {
		boot_conn_move(c, CONN_TLS);
		if (boot_tls_start(c))
			boot_conn_broken(c, RPW_ERR_NO_MEMORY, "no memory for TLS");
		return;
	}
	boot_conn_move(c, CONN_HELLO);
	if (c->dial)
		boot_conn_hello(c);
}

void boot_conn_hello(struct boot_conn *c)
{
	uint8_t hello[BOOT_HELLO_MAX];
	size_t len = boot_hello_encode(c->dial ? BOOT_HELLO_CONNECTOR : BOOT_HELLO_LISTENER, &c->b->own, hello);
	if (say(c, hello, len))
		boot_conn_broken(c, RPW_ERR_NO_MEMORY, "no memory for a hello");
	else
		boot_conn_flush(c);
}

static void refuse(struct boot_conn *c, enum boot_refusal reason, const char *why)
{
	uint8_t refusal[BOOT_HELLO_MAX];
	boot_stranger_count(c, true, why);
	if (!say(c, refusal, boot_refusal_encode(reason, refusal)))
		boot_conn_flush(c);
	boot_conn_linger(c);
}

/* The peer speaks ropeway, but cannot be spoken with: each side says why, to its people and to the other. */
static void mismatch(struct boot_conn *c, enum boot_refusal reason, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static void mismatch(struct boot_conn *c, enum boot_refusal reason, const char *fmt, ...)
{
	char why[200];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(why, sizeof(why), fmt, ap);
	va_end(ap);
	if (c->dial)
		boot_dial_refused(c, RPW_ERR_REFUSED, why);
	else
		refuse(c, reason, why);
}

void boot_conn_not_ropeway(struct boot_conn *c, const uint8_t *p, size_t len)
{
	const char *what = boot_protocol_guess(p, len);
	char why[200], bytes[3 * 8 + 1] = "";
	for (size_t i = 0; i < RPWI_MIN(len, 8u); i++)
		snprintf(bytes + 3 * i, 4, "%02x ", p[i]);
	if (what)
		snprintf(why, sizeof(why), "it speaks %s, not ropeway: is the port right?", what);
	else
		snprintf(why, sizeof(why), "it does not speak ropeway (its first bytes: %s): is the port right?", bytes);
	if (c->dial) {
		boot_dial_refused(c, RPW_ERR_PROTOCOL, why);
		return;
	}
	boot_stranger_count(c, false, why);
	boot_conn_bury(c);
}

/* This side has no key. A peer with one is told so, by an alert, which it understands; it does not learn more. */
static void speaks_tls(struct boot_conn *c)
{
	static const char why[] = "it speaks TLS: is that a ropeway with a key? This side has none (ROPEWAY_KEY_FILE); both need the same, or neither has one";
	if (c->dial) {
		boot_dial_refused(c, RPW_ERR_REFUSED, why);
		return;
	}
	boot_stranger_count(c, false, why);
	if (!boot_conn_put(c, tls_no_access_alert, sizeof(tls_no_access_alert)))
		boot_conn_flush(c);
	boot_conn_linger(c);
}

/* Is the beginning of a hello acceptable? Its length so far known, or -1 when it was dealt with. */
static ssize_t hello_len(struct boot_conn *c, const uint8_t *p, size_t len)
{
	struct boot_prelude_fields f;
	switch (boot_prelude_decode(p, len, &f)) {
	case BOOT_PRELUDE_MORE:
		return BOOT_PRELUDE_LEN;
	case BOOT_PRELUDE_STRANGER:
		if (!c->tls && len >= 2 && (p[0] == 0x15 || p[0] == 0x16) && p[1] == 0x03)
			speaks_tls(c);
		else
			boot_conn_not_ropeway(c, p, len);
		return -1;
	case BOOT_PRELUDE_BAD:
		mismatch(c, BOOT_REFUSED_HELLO, "its hello begins like ropeway's and goes on otherwise");
		return -1;
	case BOOT_PRELUDE_GOOD:
		break;
	}
	if (f.kind == (c->dial ? BOOT_HELLO_CONNECTOR : BOOT_HELLO_LISTENER) || (!c->dial && f.kind == BOOT_HELLO_REFUSAL)) {
		mismatch(c, BOOT_REFUSED_HELLO, "it says the hello of this side: does it send back what it gets?");
		return -1;
	}
	if (f.kind != BOOT_HELLO_REFUSAL && f.version != BOOT_VERSION) {
		mismatch(c, BOOT_REFUSED_VERSION, "it speaks version %u of ropeway's control path, this side version %d: install the same ropeway on both",
			f.version, BOOT_VERSION);
		return -1;
	}
	if (f.kind != BOOT_HELLO_REFUSAL && f.byte_order != BOOT_LITTLE_ENDIAN) {
		mismatch(c, BOOT_REFUSED_BYTE_ORDER, "its machine is big-endian, this one little-endian: ropeway shares memory as it is, and cannot convert");
		return -1;
	}
	return BOOT_PRELUDE_LEN + (ssize_t)f.body_len;
}

static void refused_by_peer(struct boot_conn *c, const uint8_t *p, size_t len)
{
	unsigned reason = len >= BOOT_PRELUDE_LEN + 2 ? rpwi_get_be16(p + BOOT_PRELUDE_LEN) : 0;
	char why[200];
	switch (reason) {
	case BOOT_REFUSED_VERSION:
		snprintf(why, sizeof(why), "it speaks version %u of ropeway's control path, this side version %d: install the same ropeway on both",
			rpwi_get_be16(p + 10), BOOT_VERSION);
		break;
	case BOOT_REFUSED_BYTE_ORDER:
		snprintf(why, sizeof(why), "its machine has another byte order: ropeway shares memory as it is, and cannot convert");
		break;
	default:
		snprintf(why, sizeof(why), "it refused our hello (reason %u)", reason);
		break;
	}
	boot_dial_refused(c, RPW_ERR_REFUSED, why);
}

static void hello_came(struct boot_conn *c, const uint8_t *p, size_t len)
{
	struct tran_facts facts;
	const char *why;
	if (p[9] == BOOT_HELLO_REFUSAL) {
		refused_by_peer(c, p, len);
		return;
	}
	if (boot_hello_decode(p + BOOT_PRELUDE_LEN, len - BOOT_PRELUDE_LEN, &facts, &why)) {
		mismatch(c, BOOT_REFUSED_HELLO, "%s", why);
		return;
	}
	memcpy(facts.address, c->peer.address, sizeof(facts.address));
	c->peer = facts;
	snprintf(c->text, sizeof(c->text), "%s:%u %s", facts.hostname, facts.pid, c->where);
	boot_conn_timer(c, RPWI_NEVER);
	if (c->dial) {
		boot_dial_done(c);
		boot_conn_move(c, CONN_OPEN);
		c->b->up->connected(c->user, 0, "connected");
		return;
	}
	boot_conn_hello(c);
	if (c->state != CONN_HELLO)
		return;
	void *listener_user = c->listener->user;
	boot_stranger_leaves(c);
	boot_conn_move(c, CONN_OPEN);
	c->b->up->accepted(c->b->user, listener_user, c);
}

/* ---- receiving ---- */

/* How long the item that begins at p is, as far as its bytes tell; -1: it cannot be, and was dealt with. */
static ssize_t item_len(struct boot_conn *c, const uint8_t *p, size_t len)
{
	if (c->state == CONN_HELLO)
		return hello_len(c, p, len);
	if (len < BOOT_FRAME_HEAD)
		return BOOT_FRAME_HEAD;
	uint32_t body = rpwi_get_be32(p);
	if (body <= BOOT_MESSAGE_MAX)
		return BOOT_FRAME_HEAD + (ssize_t)body;
	boot_conn_broken(c, RPW_ERR_PROTOCOL, "it sent a control message of %u bytes; %d are the most", body, BOOT_MESSAGE_MAX);
	return -1;
}

static void item_came(struct boot_conn *c, const uint8_t *p, size_t len)
{
	if (c->state == CONN_HELLO)
		hello_came(c, p, len);
	else
		c->b->up->message(c->user, rpwi_get_be32(p + 4), p + BOOT_FRAME_HEAD, len - BOOT_FRAME_HEAD);
}

void boot_conn_take(struct boot_conn *c, const uint8_t *p, size_t len)
{
	while (c->state == CONN_HELLO || c->state == CONN_OPEN) {
		bool kept = c->in.len > 0;
		const uint8_t *at = kept ? c->in.p : p;
		size_t have = kept ? c->in.len : len;
		ssize_t need = item_len(c, at, have);
		if (need < 0)
			return;
		if (have >= (size_t)need) {
			item_came(c, at, (size_t)need); /* may close it: its memory stays until the end of progress */
			if (kept)
				boot_bytes_free(&c->in);
			p += kept ? 0 : need;
			len -= kept ? 0 : (size_t)need;
			continue;
		}
		size_t more = kept ? RPWI_MIN(len, (size_t)need - have) : len;
		if (!more)
			return;
		if (boot_bytes_add(&c->in, p, more)) {
			boot_conn_broken(c, RPW_ERR_NO_MEMORY, "no memory for its control message");
			return;
		}
		p += more;
		len -= more;
	}
}

void boot_conn_lost(struct boot_conn *c, int err)
{
	if (err)
		boot_conn_broken(c, RPW_ERR_PEER_GONE, "the connection broke: %s", strerror(err));
	else
		boot_conn_broken(c, RPW_ERR_PEER_GONE, "%s",
			c->state == CONN_OPEN ? "the peer closed the connection, or its process ended" : "it closed the connection before its hello");
}

static bool reads(const struct boot_conn *c) { return c->fd >= 0 && c->state >= CONN_TLS && c->state != CONN_ENDED; }

unsigned boot_conn_read(struct boot_conn *c)
{
	for (int i = 0; i < READS_MAX && reads(c); i++) {
		ssize_t n = recv(c->fd, c->b->scratch, sizeof(c->b->scratch), MSG_DONTWAIT);
		if (n > 0) {
			if (c->tls)
				boot_tls_feed(c, c->b->scratch, (size_t)n);
			else
				boot_conn_take(c, c->b->scratch, (size_t)n);
			if ((size_t)n < sizeof(c->b->scratch))
				break;
		} else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
			boot_conn_lost(c, n ? errno : 0);
			break;
		} else if (errno == EAGAIN) {
			break;
		}
	}
	return 1;
}

unsigned boot_conn_event(struct boot_conn *c, uint32_t events)
{
	if (c->state == CONN_CONNECTING) {
		boot_dial_established(c);
		return 1;
	}
	if (events & EPOLLOUT && reads(c)) {
		boot_conn_flush(c);
		if (c->state == CONN_LINGER)
			boot_conn_linger(c);
	}
	if (events & (EPOLLIN | EPOLLHUP | EPOLLERR))
		boot_conn_read(c);
	return 1;
}

/* This side may be late itself: what has come counts, before anybody is judged. */
static bool came_in_time(struct boot_conn *c)
{
	if (c->state != CONN_TLS && c->state != CONN_HELLO)
		return false;
	boot_conn_read(c);
	return c->state != CONN_TLS && c->state != CONN_HELLO;
}

unsigned boot_conn_timeout(struct boot_conn *c, uint64_t now_ns)
{
	if (came_in_time(c))
		return 1;
	if (c->dial)
		return boot_dial_timeout(c, now_ns);
	if (c->state == CONN_OPEN && c->send_errno) {
		boot_conn_read(c); /* what came before the end comes first */
		if (c->state == CONN_OPEN)
			boot_conn_lost(c, c->send_errno);
	} else if (c->state == CONN_LINGER) {
		boot_conn_bury(c);
	} else if (c->listener) {
		boot_stranger_count(c, false, c->in.len ? "its hello is not complete in time" : "it is silent");
		boot_conn_bury(c);
	}
	return 1;
}

/* ---- the end ---- */

void boot_conn_broken(struct boot_conn *c, int status, const char *fmt, ...)
{
	char why[300], all[512];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(why, sizeof(why), fmt, ap);
	va_end(ap);
	if (c->state == CONN_LINGER) {
		boot_conn_bury(c);
	} else if (c->dial) {
		boot_dial_failed(c, status == RPW_ERR_PEER_GONE ? RPW_ERR_UNREACHABLE : status, why);
	} else if (c->state != CONN_OPEN) {
		boot_stranger_count(c, c->state == CONN_HELLO && c->tls && status == RPW_ERR_PROTOCOL, why); /* it has the key: who changed that? */
		boot_conn_bury(c);
	} else {
		snprintf(all, sizeof(all), "%s: %s", c->text, why);
		boot_conn_detach(c);
		boot_conn_timer(c, RPWI_NEVER);
		boot_conn_move(c, CONN_ENDED);
		rpwi_debug("boot: %s", all);
		c->b->up->gone(c->user, status, all);
	}
}

/* Ours is sent, and then the peer's end awaited: closing while something is unread would be a reset, which may overtake what we sent. */
void boot_conn_linger(struct boot_conn *c)
{
	bool was_open = c->state == CONN_OPEN;
	if (c->state != CONN_LINGER) {
		boot_conn_move(c, CONN_LINGER);
		boot_conn_timer(c, rpwi_now_ns() + LINGER_MS * RPWI_NS_PER_MS);
	}
	if (c->tls && was_open)
		boot_tls_bye(c), boot_conn_flush(c);
	if (!c->out.len && !c->finished) {
		c->finished = true;
		shutdown(c->fd, SHUT_WR);
	}
}

void boot_close(struct boot_conn *c)
{
	if (!c)
		return;
	if (c->state == CONN_OPEN && !c->send_errno && boot_is_ours(c->b))
		boot_conn_linger(c);
	else
		boot_conn_bury(c);
}

void boot_set_user(struct boot_conn *c, void *conn_user) { c->user = conn_user; }
const struct tran_facts *boot_peer(const struct boot_conn *c) { return &c->peer; }
const char *boot_local(const struct boot_conn *c) { return c->local; }
const char *boot_peer_text(const struct boot_conn *c) { return c->text; }

int boot_export(const struct boot_conn *c, const char *label, const void *context, size_t context_len, uint8_t *out, size_t len)
{
	return c->tls ? boot_tls_export(c->tls, label, context, context_len, out, len) : -EINVAL;
}
