/* SPDX-License-Identifier: BSD-3-Clause */
/* conn.c - a connection: its states, its socket, bytes that wait to be sent, and how it ends. It
 * never receives, and knows nothing of what the two sides say to each other. An idle connection has
 * no buffers. It takes no lock: a struct boot belongs to one thread at a time.
 */
#include "boot/tls.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/discard.h"
#include "base/error.h"
#include "ropeway.h"

enum { DRAIN_MAX = 64, DRAIN_BYTES = 32 * 1024 };

static const char *const state_names[] = {
	"look-up", "waiting", "connecting", "TLS", "hello", "open", "ended", "linger", "dead"};
_Static_assert(RPWI_ARRAY_LEN(state_names) == CONN_STATES, "a name for each state");

/* Where each state may lead. */
#define TO(state) (1u << (state))
static const unsigned may_follow[CONN_STATES] = {
	[CONN_LOOKUP] = TO(CONN_WAITING) | TO(CONN_ENDED) | TO(CONN_DEAD),
	[CONN_WAITING] = TO(CONN_LOOKUP) | TO(CONN_CONNECTING) | TO(CONN_ENDED) | TO(CONN_DEAD),
	[CONN_CONNECTING] =
		TO(CONN_WAITING) | TO(CONN_TLS) | TO(CONN_HELLO) | TO(CONN_ENDED) | TO(CONN_DEAD),
	[CONN_TLS] = TO(CONN_WAITING) | TO(CONN_HELLO) | TO(CONN_ENDED) | TO(CONN_LINGER) |
		     TO(CONN_DEAD),
	[CONN_HELLO] =
		TO(CONN_WAITING) | TO(CONN_OPEN) | TO(CONN_ENDED) | TO(CONN_LINGER) | TO(CONN_DEAD),
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

static void set(int fd, int level, int name, int value)
{
	setsockopt(fd, level, name, &value, sizeof(value));
}

/* A host that is silent for 10 s is dead: idle connections are probed after 4 s and each 2 s
 * (keep-alive), sent bytes must be taken within 10 s. A process that is only stopped is not dead,
 * its kernel answers. */
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

/* Shut down first: a forked child may have the socket too, and the peer is still to see the end. */
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

void boot_conn_dial_done(struct boot_conn *c)
{
	struct boot_dial *d = c->dial;
	if (!d)
		return;
	boot_turn_end(d);
	if (d->lookup && boot_is_ours(c->b)) /* else its lock is the parent's */
		boot_names_forget(d->lookup);
	free(d);
	c->dial = NULL;
}

/* Whatever its state: no up-calls any more, the socket closed, the memory gone as soon as nobody
 * looks at it. */
void boot_conn_bury(struct boot_conn *c)
{
	struct boot *b = c->b;
	/* In order that the kernel does not throw away what it has yet to send: it does when there
	 * is something unread. */
	if (c->fd >= 0 && boot_is_ours(b) && (c->state == CONN_OPEN || c->state == CONN_LINGER)) {
		boot_conn_flush(c);
		shutdown(c->fd, SHUT_WR);
		for (int i = 0; i < DRAIN_MAX && rpwi_tcp_discard(c->fd, DRAIN_BYTES) > 0; i++)
			;
	}
	boot_conn_detach(c);
	boot_conn_timer(c, RPWI_NEVER);
	boot_stranger_leaves(c);
	boot_conn_dial_done(c);
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

int boot_conn_put(struct boot_conn *c, const void *p, size_t len)
{
	return boot_bytes_add(&c->out, p, len);
}

void boot_conn_flush(struct boot_conn *c)
{
	size_t sent = 0;
	if (c->fd < 0 || c->send_errno)
		return;
	while (sent < c->out.len) {
		ssize_t n = send(
			c->fd, c->out.p + sent, c->out.len - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
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

int boot_conn_say(struct boot_conn *c, const void *p, size_t len)
{
	return c->tls ? boot_tls_send(c, p, len) : boot_conn_put(c, p, len);
}

int boot_send(struct boot_conn *c, unsigned type, const void *data, size_t len)
{
	uint8_t message[BOOT_FRAME_HEAD + BOOT_MESSAGE_MAX];
	if (c->state == CONN_ENDED || c->send_errno || !boot_is_ours(c->b))
		return rpwi_fail(
			RPW_ERR_PEER_GONE, "%s: the control connection has ended", c->text);
	if (c->state != CONN_OPEN)
		return rpwi_fail(RPW_ERR_INVALID,
			"%s: a control message before the connection stands", c->text);
	if (len > BOOT_MESSAGE_MAX)
		return rpwi_fail(RPW_ERR_INVALID,
			"%s: a control message of %zu bytes; %d are the most", c->text, len,
			BOOT_MESSAGE_MAX);
	if (c->out.len + BOOT_FRAME_HEAD + len + (c->tls ? TLS_OVERHEAD : 0) > BOOT_QUEUE_MAX)
		return rpwi_fail(RPW_ERR_LIMIT,
			"%s: %zu bytes of control messages wait, the peer takes none: is its "
			"process stopped?",
			c->text, c->out.len);
	rpwi_put_be32(message, (uint32_t)len);
	rpwi_put_be32(message + 4, type);
	memcpy(message + BOOT_FRAME_HEAD, data, len);
	size_t before = c->out.len;
	if (boot_conn_say(c, message, BOOT_FRAME_HEAD + len)) {
		c->out.len = before;
		if (c->tls) {
			/* its records are numbered: with one missing the connection is of no more
			 * use */
			c->send_errno = ENOMEM;
			boot_conn_timer(c, rpwi_now_ns());
		}
		return rpwi_fail(RPW_ERR_NO_MEMORY, "%s: no memory for a control message", c->text);
	}
	if (!before)
		boot_conn_flush(c);
	return 0;
}

/* ---- the end ---- */

/* Ours is sent, and then the peer's end awaited: closing while something is unread would be a
 * reset, which may overtake what we sent. */
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

int boot_export(const struct boot_conn *c, const char *label, const void *context,
	size_t context_len, uint8_t *out, size_t len)
{
	if (c->tls && !boot_tls_export(c->tls, label, context, context_len, out, len))
		return 0;
	return rpwi_fail(RPW_ERR_INVALID,
		"%s: no bytes can be made of a key: there is none, or no "
		"TLS session yet",
		c->text);
}
