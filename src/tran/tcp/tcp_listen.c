/* SPDX-License-Identifier: BSD-3-Clause */
/* tcp_listen.c - the listening sockets of a transport, and connections to them. A peer that
 * connects is a stranger until a good greeting came: one with the number and the nonce of an
 * endpoint of ours, which only boot's peer was told. Strangers cost a slot of a bounded table for
 * TCP_STRANGER_MS, and a count. It never decides whose stream one is: tcp_greet.c does. It takes no
 * lock: a transport is used by one thread at a time.
 */
#include "tran/tcp/tcp_priv.h"

#include <errno.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/born.h"

enum { ACCEPTS_MAX = 64, ACCEPT_PAUSE_MS = 100 };

union address {
	struct sockaddr any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
};

/* A listening socket, or -errno. */
static int bound_socket(union address *a, socklen_t len, uint16_t *port)
{
	int fd = socket(a->any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (a->any.sa_family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &(int){0}, sizeof(int));
	if (bind(fd, &a->any, len) || listen(fd, SOMAXCONN) || getsockname(fd, &a->any, &len)) {
		int err = -errno;
		close(fd);
		return err;
	}
	*port = ntohs(a->any.sa_family == AF_INET ? a->v4.sin_port : a->v6.sin6_port);
	return fd;
}

/* All addresses, any port: IPv6's socket takes IPv4, too, where the kernel has IPv6. */
static int bound_to_all(uint16_t *port)
{
	union address six = {.v6 = {.sin6_family = AF_INET6}},
		      four = {.v4 = {.sin_family = AF_INET}};
	int fd = bound_socket(&six, sizeof six.v6, port);
	return fd >= 0 ? fd : bound_socket(&four, sizeof four.v4, port);
}

static int bound_to(const char *address, uint16_t *port)
{
	struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV,
				.ai_socktype = SOCK_STREAM},
			*found;
	union address a = {0};
	if (getaddrinfo(address, "0", &hints, &found))
		return -EADDRNOTAVAIL;
	socklen_t len = RPWI_MIN(found->ai_addrlen, (socklen_t)sizeof a);
	memcpy(&a, found->ai_addr, len);
	freeaddrinfo(found);
	return bound_socket(&a, len, port);
}

/* Each address that a peer's control connection came to has a listener of its own, so that no other
 * address of this host answers for it. */
int tcp_listen_start(struct tcp *t, const char *address, const struct tcp_listener **out)
{
	address = address ? address : "";
	for (unsigned i = 0; i < t->listener_count; i++)
		if (!strcmp(t->listener[i].address, address)) {
			*out = &t->listener[i];
			return 0;
		}
	if (t->listener_count == TCP_LISTENERS_MAX ||
		strlen(address) >= sizeof t->listener[0].address)
		return rpwi_fail(RPW_ERR_LIMIT,
			"tcp: no listener at %s: there are %d, as many as there can be, or this is "
			"no address",
			address, TCP_LISTENERS_MAX);
	struct tcp_listener *l = &t->listener[t->listener_count];
	int fd = *address ? bound_to(address, &l->port) : bound_to_all(&l->port);
	if (fd < 0)
		return rpwi_fail_errno(
			-fd, "tcp: cannot listen at %s", *address ? address : "any address");
	snprintf(l->address, sizeof l->address, "%s", address);
	/* Of the same host, until an address says otherwise: BBR, once begun, paces a socket for
	 * good. */
	socklen_t len = sizeof t->congestion;
	if (getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, t->congestion, &len))
		t->congestion[0] = '\0';
	tcp_stream_set_options(fd, true);
	if (tcp_watch(t, EPOLL_CTL_ADD, fd, t->accept_paused ? 0 : EPOLLIN, l)) {
		int err = errno;
		close(fd);
		return rpwi_fail_errno(err, "tcp: cannot wait for a listener");
	}
	l->fd = fd;
	t->listener_count++;
	*out = l;
	return 0;
}

void tcp_listen_end(struct tcp *t)
{
	while (t->listener_count) {
		int fd = t->listener[--t->listener_count].fd;
		/* a forked child may have it, too, and would go on taking connections that nobody
		 * answers */
		if (rpwi_is_ours(t->born))
			shutdown(fd, SHUT_RDWR);
		close(fd);
	}
}

unsigned tcp_listen_addresses(const struct tcp_listener *l, struct tcp_address *out, unsigned max)
{
	if (*l->address)
		return 0; /* the address that the peer knows is the only one */
	struct ifaddrs *all;
	unsigned n = 0;
	if (getifaddrs(&all))
		return 0;
	for (struct ifaddrs *a = all; a && n < max; a = a->ifa_next) {
		if (!a->ifa_addr || !(a->ifa_flags & IFF_UP) || (a->ifa_flags & IFF_LOOPBACK))
			continue;
		if (a->ifa_addr->sa_family == AF_INET) {
			out[n] = (struct tcp_address){.family = 4};
			memcpy(out[n++].bytes,
				&((struct sockaddr_in *)(void *)a->ifa_addr)->sin_addr, 4);
		} else if (a->ifa_addr->sa_family == AF_INET6) {
			const struct in6_addr *six =
				&((struct sockaddr_in6 *)(void *)a->ifa_addr)->sin6_addr;
			if (IN6_IS_ADDR_LINKLOCAL(six))
				continue; /* of no meaning without the peer's interface */
			out[n] = (struct tcp_address){.family = 6};
			memcpy(out[n++].bytes, six, 16);
		}
	}
	freeifaddrs(all);
	return n;
}

/* Dropped and counted. */
static void refuse(struct tcp_stream *s, const char *why)
{
	struct tcp *t = s->t;
	t->strangers_refused++;
	t->stranger_count--;
	rpwi_debug("tcp: an unknown connection was dropped: %s (%llu so far)", why,
		(unsigned long long)t->strangers_refused);
	tcp_stream_close(s);
}

static void pause_accepting(struct tcp *t, bool on)
{
	t->accept_paused = on;
	for (unsigned i = 0; i < t->listener_count; i++)
		tcp_watch(t, EPOLL_CTL_MOD, t->listener[i].fd, on ? 0 : EPOLLIN, &t->listener[i]);
	t->accept_again_ns = on ? rpwi_now_ns() + ACCEPT_PAUSE_MS * RPWI_NS_PER_MS : RPWI_NEVER;
	tcp_deadline_lower(t, t->accept_again_ns);
}

/* The kernel gives a connection within one host the same address at both ends, unless the program
 * asks otherwise. */
static bool both_ends_here(int fd)
{
	struct sockaddr_in6 own = {0}, peer = {0};
	socklen_t own_len = sizeof own, peer_len = sizeof peer;
	if (getsockname(fd, (struct sockaddr *)&own, &own_len) ||
		getpeername(fd, (struct sockaddr *)&peer, &peer_len) ||
		own.sin6_family != peer.sin6_family)
		return false;
	if (own.sin6_family == AF_INET6)
		return !memcmp(&own.sin6_addr, &peer.sin6_addr, sizeof own.sin6_addr);
	return ((struct sockaddr_in *)(void *)&own)->sin_addr.s_addr ==
	       ((struct sockaddr_in *)(void *)&peer)->sin_addr.s_addr;
}

void tcp_listen_accept(struct tcp *t, const struct tcp_listener *l)
{
	for (int i = 0; i < ACCEPTS_MAX; i++) {
		int fd = accept4(l->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (fd < 0) {
			if (errno == EMFILE || errno == ENFILE || errno == ENOMEM ||
				errno == ENOBUFS) {
				rpwi_warn(
					"tcp: cannot accept connections now: %s", strerror(errno));
				pause_accepting(t, true);
			}
			return;
		}
		/* all other options are the listener's */
		if (t->congestion[0] && !both_ends_here(fd))
			setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, t->congestion,
				(socklen_t)strnlen(t->congestion, sizeof t->congestion));
		if (t->stranger_count == TCP_STRANGERS_MAX)
			refuse(RPWI_CONTAINER_OF(t->strangers.next, struct tcp_stream, link),
				"too many others came");
		struct tcp_stream *s = tcp_stream_new(t, fd, TCP_STRANGER, EPOLLIN);
		if (!s) {
			close(fd);
			continue;
		}
		s->deadline_ns = rpwi_now_ns() + TCP_STRANGER_MS * RPWI_NS_PER_MS;
		rpwi_list_add_tail(&t->strangers, &s->link);
		t->stranger_count++;
		tcp_deadline_lower(t, s->deadline_ns);
		tcp_listen_heard(s); /* the greeting is mostly there already */
	}
}

/* TLS, or in the clear? False: nothing has come, or there is no memory, and it is gone. */
static bool first_bytes(struct tcp_stream *s)
{
	enum { TLS_HANDSHAKE = 0x16 };
	uint8_t first;
	ssize_t r = recv(s->fd, &first, 1, MSG_DONTWAIT | MSG_PEEK);
	if (r < 0 && (errno == EAGAIN || errno == EINTR))
		return false;
	if (r != 1 || first != TLS_HANDSHAKE || tcp_tls_begin(s, NULL, 0))
		return true;
	refuse(s, "there is no memory for TLS");
	return false;
}

void tcp_listen_heard(struct tcp_stream *s)
{
	struct tcp *t = s->t;
	if (t->keyed && !s->tls && !s->greeting_len && !first_bytes(s))
		return;
	int rc = s->tls ? tcp_tls_shake(s) : 0;
	if (rc) {
		if (rc != -EAGAIN)
			refuse(s, rc == -EBADMSG ? tcp_tls_why(s)
						 : "it went away in the TLS handshake");
		return;
	}
	struct iovec iov = {s->greeting + s->greeting_len, TCP_GREETING_LEN - s->greeting_len};
	ssize_t r = tcp_io_recv(s, &iov, 1);
	if (r < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (r <= 0) {
		bool changed = r < 0 && s->tls && errno == EBADMSG;
		if (changed)
			tcp_tls_alert(s);
		refuse(s, changed ? tcp_tls_why(s) : "it went away without a greeting");
		return;
	}
	s->greeting_len += (size_t)r;
	if (memcmp(s->greeting, "RPTG", RPWI_MIN(s->greeting_len, (size_t)4))) {
		refuse(s, "it speaks something else");
		return;
	}
	if (s->greeting_len < TCP_GREETING_LEN)
		return;
	struct tcp_greeting g;
	const char *why = "its greeting is of another version";
	if (tcp_get_greeting(s->greeting, &g) == 0 && tcp_bundle_accept(t, s, &g, &why) == 0) {
		rpwi_list_del(&s->link);
		t->stranger_count--;
		return;
	}
	refuse(s, why);
}

void tcp_listen_time(struct tcp *t, uint64_t now_ns)
{
	while (!rpwi_list_empty(&t->strangers)) {
		struct tcp_stream *s =
			RPWI_CONTAINER_OF(t->strangers.next, struct tcp_stream, link);
		if (s->deadline_ns > now_ns) {
			tcp_deadline_lower(t, s->deadline_ns);
			break;
		}
		refuse(s, "it did not greet in time");
	}
	if (t->accept_paused && now_ns >= t->accept_again_ns)
		pause_accepting(t, false);
	else if (t->accept_paused)
		tcp_deadline_lower(t, t->accept_again_ns);
}
