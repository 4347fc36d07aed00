/* SPDX-License-Identifier: BSD-3-Clause */
/* dial.c - the connecting side until TCP stands, and again when what follows fails. A round tries
 * each address in turn; after a round it waits, 10 ms at first, twice as long each time, a second
 * at most, a quarter more or less by chance so that a thousand who start together do not come
 * together. Rounds go on until the deadline, for what may yet come right: nobody listens yet, the
 * host is not up yet, a listener that is just ending. What another try cannot change (another
 * version, another key, no ropeway at all) ends it at once. It never reads what the peer says. It
 * takes no lock: a struct boot belongs to one thread at a time.
 */
#include "boot/boot_priv.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/error.h"
#include "ropeway.h"

enum {
	BACKOFF_MIN_MS = 10,
	BACKOFF_MAX_MS = 1000,
	ASK_AGAIN_MS = 320,
	FIRST_CONNECT_MS = 1000,
	CONNECT_MS = 3000
};

static void end(struct boot_conn *c, int status, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
static void end(struct boot_conn *c, int status, const char *fmt, ...)
{
	char why[512];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(why, sizeof(why), fmt, ap);
	va_end(ap);
	boot_conn_detach(c);
	boot_conn_timer(c, RPWI_NEVER);
	boot_conn_dial_done(c);
	boot_conn_move(c, CONN_ENDED);
	rpwi_debug("boot: %s", why);
	c->b->up->connected(c->user, &(struct rpwi_error){status, 0, why});
}

void boot_dial_refused(struct boot_conn *c, int status, const char *why)
{
	struct boot_dial *d = c->dial;
	if (strcmp(d->text, c->where))
		end(c, status, "connecting to %s (%s): %s", d->text, c->where, why);
	else
		end(c, status, "connecting to %s: %s", d->text, why);
}

void boot_trouble(const struct boot_conn *c, char *out, size_t room)
{
	const struct boot_dial *d = c->dial;
	*out = 0;
	if (d && d->status)
		snprintf(out, room, "connecting to %s: %s, %u %s", d->text, d->why, d->tries,
			d->tries == 1 ? "try" : "tries");
}

static const char *colon_before(const char *hint) { return *hint ? ": " : ""; }

static void give_up(struct boot_conn *c)
{
	struct boot_dial *d = c->dial;
	const char *hint = d->hint ? d->hint : "";
	if (d->tries)
		end(c, d->status, "connecting to %s: no connection within %u ms, %u %s: %s%s%s",
			d->text, d->timeout_ms, d->tries, d->tries == 1 ? "try" : "tries; the last",
			d->why, colon_before(hint), hint);
	else
		end(c, d->status, "connecting to %s: its address is not known after %u ms: %s%s%s",
			d->text, d->timeout_ms, d->why, colon_before(hint), hint);
}

static const struct {
	int error;
	const char *hint;
} hints[] = {
	{ECONNREFUSED, "is the program there started, and does it listen on this port?"},
	{ECONNRESET, "is it ropeway that listens there?"},
	{ENETUNREACH, "has this host a route to it (ip route get ADDRESS)?"},
	{EHOSTUNREACH, "is that host up, and has this one a route to it (ip route get ADDRESS)?"},
	{ETIMEDOUT, "is that host up, and does a firewall let the port pass?"},
	{EACCES, "a firewall of this host forbids it"},
	{EPERM, "a firewall of this host forbids it"},
	{EMFILE, "ulimit -n says how many descriptors this process may have"},
	{EADDRNOTAVAIL, "this host has no address, or no free port, to connect from"},
};
static const char *hint_of(int err)
{
	for (size_t i = 0; i < RPWI_ARRAY_LEN(hints); i++)
		if (hints[i].error == err)
			return hints[i].hint;
	return NULL;
}

static void note(struct boot_conn *c, int status, const char *why, const char *hint)
{
	struct boot_dial *d = c->dial;
	d->status = status;
	d->hint = hint;
	snprintf(d->why, sizeof(d->why), "%s%s%s", c->where, c->where[0] ? ": " : "", why);
	rpwi_trace("boot: %s: %s", d->text, d->why);
}

/* Why a try of an address failed, errno or 0: is it one more refusal? */
static void note_refusal(struct boot_dial *d, int err)
{
	if (err != ECONNREFUSED)
		d->refused_ns = 0;
	else if (!d->refused_ns)
		d->refused_ns = rpwi_now_ns();
}

static int status_of(int err)
{
	switch (err) {
	case EMFILE:
	case ENFILE:
	case ENOBUFS:
	case ENOMEM:
	case EACCES:
	case EPERM:
		return RPW_ERR_SYSTEM;
	default:
		return RPW_ERR_UNREACHABLE;
	}
}

static void timer(struct boot_conn *c, uint64_t deadline_ns)
{
	boot_conn_timer(c, RPWI_MIN(deadline_ns, c->dial->give_up_ns));
}

/* TCP that is not answered is asked anew, sooner where there is another address to ask. */
static void connect_timer(struct boot_conn *c)
{
	const struct boot_dial *d = c->dial;
	unsigned ms =
		d->addrs.n > 1 && d->backoff_ms == BACKOFF_MIN_MS ? FIRST_CONNECT_MS : CONNECT_MS;
	timer(c, rpwi_now_ns() + ms * RPWI_NS_PER_MS);
}

/* Once somebody has answered and there is one address only, nothing is gained by hanging up and
 * calling again; with several, the next one may be the right one. */
static void hello_timer(struct boot_conn *c)
{
	timer(c, c->dial->addrs.n > 1 ? rpwi_now_ns() + BOOT_HELLO_TIMEOUT_MS * RPWI_NS_PER_MS
				      : RPWI_NEVER);
}

/* 0: under way. */
static int try_address(struct boot_conn *c, const struct boot_addr *a)
{
	boot_conn_where(c, a);
	c->dial->tries++;
	int fd = socket(a->ss.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (connect(fd, (const struct sockaddr *)&a->ss, a->len) && errno != EINPROGRESS) {
		int err = errno;
		close(fd);
		return -err;
	}
	int rc = boot_conn_attach(c, fd, EPOLLOUT);
	if (rc)
		return rc;
	boot_conn_move(c, CONN_CONNECTING);
	connect_timer(c);
	return 0;
}

void boot_connect_once(struct boot_conn *c)
{
	if (c->dial)
		c->dial->once = true;
}

void boot_connect_refused(struct boot_conn *c, unsigned ms)
{
	if (c->dial)
		c->dial->refused_ms = ms;
}

/* When it has been refused for long enough. */
static uint64_t refused_until(const struct boot_dial *d)
{
	return d->refused_ms && d->refused_ns ? d->refused_ns + d->refused_ms * RPWI_NS_PER_MS
					      : RPWI_NEVER;
}

static void wait_for_next_round(struct boot_conn *c)
{
	struct boot_dial *d = c->dial;
	uint64_t now_ns = rpwi_now_ns();
	if (d->once || now_ns >= refused_until(d)) {
		const char *hint = d->hint ? d->hint : "";
		end(c, d->status, "connecting to %s: %s%s%s", d->text, d->why, colon_before(hint),
			hint);
		return;
	}
	c->b->random = c->b->random * 1664525 + 1013904223;
	uint64_t ns = d->backoff_ms * RPWI_NS_PER_MS;
	ns = RPWI_MIN(ns - ns / 4 + ns / 2 * (c->b->random >> 16) / 65536,
		BACKOFF_MAX_MS * RPWI_NS_PER_MS);
	d->backoff_ms = RPWI_MIN(2 * d->backoff_ms, (unsigned)BACKOFF_MAX_MS);
	d->next = 0;
	boot_turn_end(d);
	timer(c, RPWI_MIN(now_ns + ns, refused_until(d)));
}

static void try_from_here(struct boot_conn *c)
{
	struct boot_dial *d = c->dial;
	for (; d->next < d->addrs.n; d->next++) {
		int rc = try_address(c, &d->addrs.at[d->next]);
		if (!rc)
			return;
		note_refusal(d, -rc);
		note(c, status_of(-rc), strerror(-rc), hint_of(-rc));
	}
	wait_for_next_round(c);
}

static void resolved(struct boot_conn *c, const struct boot_addrs *addrs, int gai_error)
{
	struct boot_dial *d = c->dial;
	d->lookup = NULL;
	boot_conn_move(c, CONN_WAITING);
	if (gai_error == EAI_NONAME || gai_error == EAI_FAIL) {
		end(c, RPW_ERR_UNREACHABLE,
			"connecting to %s: there is no host of this name (%s): is it spelled "
			"right, and known to this host's name service?",
			d->text, gai_strerror(gai_error));
		return;
	}
	if (gai_error) {
		note(c, RPW_ERR_UNREACHABLE, gai_strerror(gai_error),
			"does this host reach its name service (/etc/resolv.conf)?");
		wait_for_next_round(c);
		return;
	}
	d->addrs = *addrs;
	d->next = 0;
	try_from_here(c);
}

static void look_up(struct boot_conn *c)
{
	struct boot_dial *d = c->dial;
	d->lookup = boot_names_ask(c->b->names, d->host, d->port, c, resolved);
	if (!d->lookup) {
		note(c, RPW_ERR_NO_MEMORY, "no memory or no thread to look its name up", NULL);
		wait_for_next_round(c);
		return;
	}
	boot_conn_move(c, CONN_LOOKUP);
	timer(c, RPWI_NEVER);
}

static void start_round(struct boot_conn *c)
{
	struct boot_dial *d = c->dial;
	if (!boot_turn_take(d)) {
		timer(c, RPWI_NEVER);
		return;
	}
	if (d->contact.known || boot_addr_numeric(d->host, d->port, false, &d->addrs) ||
		(d->addrs.n && d->backoff_ms < ASK_AGAIN_MS))
		try_from_here(c);
	else
		look_up(c);
}

void boot_dial_turns(struct boot *b)
{
	uint64_t now_ns = rpwi_now_ns();
	while (!rpwi_list_empty(&b->turn_queue) && boot_turn_is_free(b, now_ns))
		start_round(RPWI_CONTAINER_OF(b->turn_queue.next, struct boot_dial, turn_link)->c);
	if (!rpwi_list_empty(&b->turn_queue))
		boot_deadline_lower(b, RPWI_CONTAINER_OF(b->turns.next, struct boot_dial, turn_link)
					       ->turn_until_ns);
}

/* err: errno, or 0 */
static void failed(struct boot_conn *c, int err, int status, const char *why, const char *hint)
{
	note_refusal(c->dial, err);
	note(c, status, why, hint);
	boot_conn_detach(c);
	boot_conn_move(c, CONN_WAITING);
	c->dial->next++;
	try_from_here(c);
}

void boot_dial_failed(struct boot_conn *c, int status, const char *why)
{
	failed(c, 0, status, why,
		status == RPW_ERR_UNREACHABLE ? "is it ropeway that listens there?" : NULL);
}

/* Both ends of a socket can be the same: TCP lets a socket that connects to a port of its own range
 * meet itself when nobody listens there. */
static bool is_itself(int fd)
{
	struct boot_addr own = {.len = sizeof(own.ss)}, peer = {.len = sizeof(peer.ss)};
	if (getsockname(fd, (struct sockaddr *)&own.ss, &own.len) ||
		getpeername(fd, (struct sockaddr *)&peer.ss, &peer.len))
		return false;
	char a[BOOT_WHERE_MAX], b[BOOT_WHERE_MAX], host[BOOT_WHERE_MAX];
	boot_addr_text(&own, host, sizeof(host), a, sizeof(a));
	boot_addr_text(&peer, host, sizeof(host), b, sizeof(b));
	return !strcmp(a, b);
}

bool boot_dial_established(struct boot_conn *c)
{
	int err = 0;
	socklen_t len = sizeof(err);
	if (getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &err, &len))
		err = errno;
	if (!err && is_itself(c->fd))
		err = ECONNREFUSED;
	if (err) {
		failed(c, err, status_of(err), strerror(err), hint_of(err));
		return false;
	}
	hello_timer(c);
	return true;
}

static const char *const silent[CONN_STATES] = {
	[CONN_LOOKUP] = "its name service does not answer",
	[CONN_CONNECTING] =
		"no answer: no such host, or a firewall that drops what it does not like",
	[CONN_TLS] = "it took the connection and is silent: is that ropeway, and does it have a "
		     "key? Is its process stopped, or not calling rpw_context_progress?",
	[CONN_HELLO] = "it took the connection and says no hello: is that ropeway? Is its process "
		       "stopped, or not calling rpw_context_progress?",
};

/* TCP itself was not answered: nobody is there. Behind TCP somebody is, who says nothing. */
static int silent_status(enum boot_conn_state state)
{
	return state == CONN_TLS || state == CONN_HELLO ? RPW_ERR_TIMEOUT : RPW_ERR_UNREACHABLE;
}

unsigned boot_dial_timeout(struct boot_conn *c, uint64_t now_ns)
{
	struct boot_dial *d = c->dial;
	if (c->send_errno && now_ns < d->give_up_ns) {
		failed(c, 0, RPW_ERR_UNREACHABLE, strerror(c->send_errno), hint_of(c->send_errno));
		return 1;
	}
	if (c->state != CONN_WAITING)
		note(c, silent_status(c->state), silent[c->state], NULL);
	if (now_ns >= d->give_up_ns)
		give_up(c);
	else if (c->state == CONN_WAITING)
		start_round(c);
	else
		boot_dial_failed(c, silent_status(c->state), silent[c->state]);
	return 1;
}

/* For people, of an address with several in it. */
static void contact_text(struct boot_dial *d)
{
	char host[BOOT_WHERE_MAX], where[BOOT_WHERE_MAX];
	boot_addr_text(&d->addrs.at[0], host, sizeof(host), where, sizeof(where));
	size_t n = (size_t)snprintf(d->text, sizeof(d->text), "%s", where);
	if (d->addrs.n > 1)
		snprintf(d->text + n, sizeof(d->text) - n, " or %u more", d->addrs.n - 1);
}

bool boot_dial_meant(struct boot_conn *c, const struct tran_facts *peer)
{
	char why[160];
	if (boot_contact_is(&c->dial->contact, peer))
		return true;
	snprintf(why, sizeof(why),
		"another process answers there (%.60s:%u), not the one that gave this address (PID "
		"%u)",
		peer->hostname, peer->pid, c->dial->contact.pid);
	failed(c, 0, RPW_ERR_UNREACHABLE, why, "has that process ended?");
	return false;
}

int boot_connect(struct boot *b, const char *address, unsigned timeout_ms, void *conn_user,
	struct boot_conn **out)
{
	struct boot_dial *d = calloc(1, sizeof(*d));
	if (!d)
		return rpwi_fail(RPW_ERR_NO_MEMORY, "%.200s: no memory for a connection", address);
	rpwi_list_init(&d->turn_link);
	int rc = boot_is_contact(address) ? boot_contact_parse(b, address, &d->contact, &d->addrs)
					  : boot_addr_split(address, d->host, &d->port);
	if (!rc && !d->contact.known && !d->port)
		rc = rpwi_fail(RPW_ERR_INVALID,
			"\"%.300s\": port 0 is for listeners, which then get a free one; connect "
			"to the one that it got",
			address);
	struct boot_conn *c = rc ? NULL : boot_conn_new(b, conn_user);
	if (!c) {
		free(d);
		return rc ? rc
			  : rpwi_fail(RPW_ERR_NO_MEMORY, "%.200s: no memory for a connection",
				    address);
	}
	if (d->contact.known)
		contact_text(d);
	else
		snprintf(d->text, sizeof(d->text), "%s", address);
	snprintf(c->text, sizeof(c->text), "%.180s", d->text);
	snprintf(d->why, sizeof(d->why), "not tried yet");
	d->status = RPW_ERR_TIMEOUT;
	d->backoff_ms = BACKOFF_MIN_MS;
	d->timeout_ms = timeout_ms;
	d->give_up_ns = rpwi_now_ns() + timeout_ms * RPWI_NS_PER_MS;
	d->c = c;
	c->dial = d;
	c->state = CONN_WAITING;
	/* from progress: an up-call could not name it before this returns */
	boot_conn_timer(c, rpwi_now_ns());
	*out = c;
	return 0;
}
