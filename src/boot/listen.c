/* SPDX-License-Identifier: BSD-3-Clause */
/* listen.c - the listening side until the hello. Anybody may connect: a peer without a valid hello
 * is a stranger, of whom a listener bears BOOT_STRANGERS_MAX for BOOT_HELLO_TIMEOUT_MS each. It
 * never judges what a stranger says. It takes no lock: a struct boot belongs to one thread at a
 * time.
 */
#include "boot/boot_priv.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/error.h"
#include "ropeway.h"

enum { BACKLOG = 4096, LOOKUP_MS = 5000, PORT_TRIES = 8 };

/* ---- sockets ---- */

/* A bound and listening socket, or -errno. */
static int open_socket(const struct boot_addr *a, bool both_families)
{
	int one = 1, zero = 0, rc;
	int fd = socket(a->ss.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (both_families)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof(zero));
	if (!bind(fd, (const struct sockaddr *)&a->ss, a->len) && !listen(fd, BACKLOG))
		return fd;
	rc = -errno;
	close(fd);
	return rc;
}

static int port_of(int fd)
{
	struct boot_addr a = {.len = sizeof(a.ss)};
	return getsockname(fd, (struct sockaddr *)&a.ss, &a.len) ? -errno : boot_addr_port(&a);
}

static int add_socket(struct boot_listener *l, const struct boot_addr *a, bool both_families)
{
	struct boot_listener_socket *s = &l->socket[l->nsockets];
	int rc = open_socket(a, both_families);
	if (rc < 0)
		return rc;
	*s = (struct boot_listener_socket){
		.source.kind = SOURCE_LISTENER, .fd = rc, .all = boot_addr_is_any(a), .l = l};
	l->nsockets++;
	rc = boot_watch(l->b, s->fd, &s->source, EPOLLIN);
	if (!rc && !l->port) {
		rc = port_of(s->fd);
		l->port = RPWI_MAX(rc, 0);
	}
	return RPWI_MIN(rc, 0);
}

static void close_sockets(struct boot_listener *l)
{
	for (; l->nsockets; l->nsockets--) {
		int fd = l->socket[l->nsockets - 1].fd;
		if (boot_is_ours(l->b))
			epoll_ctl(l->b->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
		close(fd);
	}
}

static bool not_here(int rc) { return rc == -EADDRNOTAVAIL || rc == -EAFNOSUPPORT; }

/* All addresses of a name with one port. Of "" the first that works: IPv6's takes IPv4, too. */
static int add_sockets(struct boot_listener *l, struct boot_addrs *addrs, bool all)
{
	int rc = -EADDRNOTAVAIL;
	for (int family = AF_INET6; family; family = family == AF_INET6 ? AF_INET : 0)
		for (unsigned i = 0;
			i < addrs->n && l->nsockets < LISTENER_SOCKETS_MAX && !(all && l->nsockets);
			i++) {
			struct boot_addr *a = &addrs->at[i];
			if (a->ss.ss_family != family)
				continue;
			if (l->port)
				boot_addr_set_port(a, (uint16_t)l->port);
			rc = add_socket(l, a, all && family == AF_INET6);
			if (rc && !not_here(rc))
				return rc;
		}
	return l->nsockets ? 0 : rc;
}

static int listen_failed(const char *address, int err, uint16_t port)
{
	switch (err) {
	case EADDRINUSE:
		return rpwi_fail(RPW_ERR_SYSTEM,
			"cannot listen at %.200s: port %u is in use there by another program (ss "
			"-ltnp 'sport = :%u' names it)",
			address, port, port);
	case EADDRNOTAVAIL:
		return rpwi_fail(RPW_ERR_SYSTEM,
			"cannot listen at %.200s: no interface of this host has this address (ip "
			"address shows them)",
			address);
	case EACCES:
		return rpwi_fail(RPW_ERR_SYSTEM,
			"cannot listen at %.200s: port %u is for privileged programs; take one "
			"above 1023",
			address, port);
	default:
		return rpwi_fail(
			RPW_ERR_SYSTEM, "cannot listen at %.200s: %s", address, strerror(err));
	}
}

static int addresses(struct boot *b, const char *address, const char *host, uint16_t port,
	struct boot_addrs *out)
{
	if (boot_addr_numeric(host, port, true, out))
		return 0;
	int rc = boot_names_wait(b->names, host, port, LOOKUP_MS, out);
	return rc ? rpwi_fail(RPW_ERR_INVALID,
			    "cannot listen at %.200s: looking its name up: %s: is it spelled "
			    "right, and a name of this host?",
			    address, gai_strerror(rc))
		  : 0;
}

int boot_listen(
	struct boot *b, const char *address, void *listener_user, struct boot_listener **out)
{
	char host[BOOT_HOST_MAX];
	uint16_t port;
	struct boot_addrs addrs;
	int rc = boot_addr_split(address, host, &port);
	rc = rc ? rc : addresses(b, address, host, port, &addrs);
	if (rc)
		return rc;
	struct boot_listener *l = calloc(1, sizeof(*l));
	if (!l)
		return rpwi_fail(RPW_ERR_NO_MEMORY, "no memory for a listener at %.200s", address);
	l->b = b;
	l->user = listener_user;
	l->paused_until_ns = RPWI_NEVER;
	rpwi_list_init(&l->strangers);
	/* The port that the first address got may be taken at the second. */
	for (int i = 0; i < PORT_TRIES; i++) {
		l->port = port;
		rc = add_sockets(l, &addrs, !*host);
		if (rc != -EADDRINUSE || port || !rc)
			break;
		close_sockets(l);
	}
	if (rc) {
		close_sockets(l);
		free(l);
		return listen_failed(address, -rc, port);
	}
	rpwi_list_init(&l->link);
	rpwi_list_add_tail(&b->listeners, &l->link);
	*out = l;
	return 0;
}

int boot_listener_port(const struct boot_listener *l) { return l->port; }

void boot_listener_bury(struct boot_listener *l)
{
	struct boot *b = l->b;
	close_sockets(l);
	while (!rpwi_list_empty(&l->strangers))
		boot_conn_bury(RPWI_CONTAINER_OF(l->strangers.next, struct boot_conn, stranger));
	l->dead = true;
	rpwi_list_del(&l->link);
	if (b->busy)
		rpwi_list_add_tail(&b->dead_listeners, &l->link);
	else
		free(l);
}

void boot_listener_free(struct boot_listener *l)
{
	if (l)
		boot_listener_bury(l);
}

/* ---- strangers ---- */

/* The address of ours that it came to. */
static void note_local(struct boot_conn *c)
{
	struct boot_addr own = {.len = sizeof(own.ss)};
	if (!getsockname(c->fd, (struct sockaddr *)&own.ss, &own.len))
		boot_addr_text(&own, c->local, sizeof(c->local), NULL, 0);
}

static void stranger_comes(
	const struct boot_listener_socket *s, int fd, const struct boot_addr *from)
{
	struct boot_listener *l = s->l;
	struct boot *b = l->b;
	if (l->nstrangers >= BOOT_STRANGERS_MAX) {
		struct boot_conn *oldest =
			RPWI_CONTAINER_OF(l->strangers.next, struct boot_conn, stranger);
		boot_stranger_count(
			oldest, false, "too many other connections came before its hello");
		boot_conn_bury(oldest);
	}
	struct boot_conn *c = boot_conn_new(b, NULL);
	if (!c) {
		close(fd);
		return;
	}
	c->state = CONN_CONNECTING;
	boot_conn_where(c, from);
	if (boot_conn_attach(c, fd, EPOLLIN)) {
		boot_conn_bury(c);
		return;
	}
	if (!s->all)
		note_local(c);
	c->listener = l;
	l->nstrangers++;
	rpwi_list_add_tail(&l->strangers, &c->stranger);
	boot_conn_timer(c, rpwi_now_ns() + BOOT_HELLO_TIMEOUT_MS * RPWI_NS_PER_MS);
	boot_conn_begin(c);
	boot_conn_read(c); /* a good peer's hello is often there already */
}

static void look_away(struct boot_listener *l, uint64_t until_ns)
{
	for (unsigned i = 0; i < l->nsockets; i++) {
		struct epoll_event ev = {.events = 0, .data.ptr = &l->socket[i].source};
		epoll_ctl(l->b->epoll_fd, EPOLL_CTL_MOD, l->socket[i].fd, &ev);
	}
	l->paused_until_ns = until_ns;
	boot_deadline_lower(l->b, until_ns);
}

/* A thousand good peers may come at once: while all places are taken, the next wait in the kernel's
 * backlog until one is free, or the oldest had the time that a good peer needs. So they do while
 * the callee has no room for another. */
static bool waits_for_a_place(struct boot_listener *l)
{
	const struct boot *b = l->b;
	if (b->up->is_full && b->up->is_full(b->user, l->nstrangers)) {
		look_away(l, rpwi_now_ns() + FULL_MS * RPWI_NS_PER_MS);
		return true;
	}
	if (l->nstrangers < BOOT_STRANGERS_MAX)
		return false;
	const struct boot_conn *oldest =
		RPWI_CONTAINER_OF(l->strangers.next, struct boot_conn, stranger);
	uint64_t until_ns =
		oldest->deadline_ns - (BOOT_HELLO_TIMEOUT_MS - GRACE_MS) * RPWI_NS_PER_MS;
	if (oldest->state == CONN_LINGER || until_ns <= rpwi_now_ns())
		return false;
	look_away(l, until_ns);
	return true;
}

/* No descriptor or memory is left: level-triggered, the listener would be reported again and again.
 * It looks away for a moment, and the oldest stranger goes. */
static void pause_listener(struct boot_listener *l, int err)
{
	unsigned left_out;
	if (boot_may_log(l->b, &left_out))
		rpwi_warn("port %d takes no connection for now: %s (ulimit -n says how many "
			  "descriptors a process may have)",
			l->port, strerror(err));
	look_away(l, rpwi_now_ns() + PAUSE_MS * RPWI_NS_PER_MS);
	if (rpwi_list_empty(&l->strangers))
		return;
	struct boot_conn *oldest = RPWI_CONTAINER_OF(l->strangers.next, struct boot_conn, stranger);
	boot_stranger_count(oldest, false, "no descriptor is left, and it has not said its hello");
	boot_conn_bury(oldest);
}

void boot_listener_timers(struct boot *b, uint64_t now_ns)
{
	RPWI_LIST_EACH (struct boot_listener, l, &b->listeners, link) {
		if (l->paused_until_ns > now_ns) {
			boot_deadline_lower(b, l->paused_until_ns);
			continue;
		}
		l->paused_until_ns = RPWI_NEVER;
		for (unsigned k = 0; k < l->nsockets; k++) {
			struct epoll_event ev = {
				.events = EPOLLIN, .data.ptr = &l->socket[k].source};
			epoll_ctl(b->epoll_fd, EPOLL_CTL_MOD, l->socket[k].fd, &ev);
		}
	}
}

static bool nothing_left(int err)
{
	return err == EMFILE || err == ENFILE || err == ENOBUFS || err == ENOMEM;
}

unsigned boot_listener_accept(struct boot_listener_socket *s)
{
	unsigned did = 0;
	while (did < ACCEPTS_MAX && !s->l->dead && !waits_for_a_place(s->l)) {
		struct boot_addr from = {.len = sizeof(from.ss)};
		int fd = accept4(s->fd, (struct sockaddr *)&from.ss, &from.len,
			SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (fd >= 0) {
			did++;
			stranger_comes(s, fd, &from);
			continue;
		}
		int err = errno;
		if (nothing_left(err))
			pause_listener(s->l, err);
		if (err != ECONNABORTED && err != EINTR)
			break;
		did++;
	}
	return did;
}
