/* SPDX-License-Identifier: BSD-3-Clause */
/* exchange.c - the control path: a TCP connection on which rdma_server and rdma_client tell each
 * other where their queue pairs are.
 *
 * RDMA cannot begin by itself: to send to a queue pair one must know its number (QPN), the address
 * of its port (LID on InfiniBand, GID on RoCE) and the number of the first packet (PSN). So they
 * travel over something that already works.
 *
 * On the wire, all numbers in network byte order (big-endian):
 *
 *      0        4         6       8        12
 *      | magic  | version | kind  | length | body of `length` bytes ...
 *
 *   body of HELLO:
 *      0     4     8        12        16           17    18    20      36
 *      | mtu | QPs | buffer | message | link layer | 0   | LID | GID   | QPN, PSN | QPN, PSN | ...
 *                                                                      one pair for each QP
 *   READY, DONE and SORRY have no body.
 *
 * Every message is read and written whole or not at all, each wait has a deadline, and nothing that
 * arrives is believed before it was checked: anyone can connect to a TCP port. */
#include <ctype.h>
#include <netinet/in.h>
#include <poll.h>
#include <unistd.h>

#include "hand.h"

#define MAGIC 0x52505752u /* "RPWR" */
#define VERSION 1

enum {
	GID_AT = 20, /* in a hello */
	QPS_AT = 36,
	HELLO_BYTES_MAX = QPS_AT + 8 * QPS_MAX,
};

/* ---- opening the connection ---- */

static void name_peer(struct rdma *r, const struct sockaddr *sa, socklen_t len)
{
	char host[64] = "?", port[8] = "?";
	int mapped;

	getnameinfo(
		sa, len, host, sizeof(host), port, sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV);
	mapped = strncmp(host, "::ffff:", 7) ? 0 : 7; /* IPv4 on a socket for both families */
	snprintf(r->peer, sizeof(r->peer), "%s port %s", host + mapped, port);
}

/* The listening socket, or -1 with errno. */
static int listen_at(const char *host, unsigned port)
{
	struct addrinfo *found = addresses_of(host, port);
	int on = 1, off = 0, fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	bool done;

	/* Dying connections of an earlier run must not hold the port; and :: takes IPv4 too. */
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
	done = !bind(fd, found->ai_addr, found->ai_addrlen) && !listen(fd, 1);
	freeaddrinfo(found);
	return done ? fd : -1;
}

void exchange_accept(struct rdma *r)
{
	const char *where = r->opt.address ? r->opt.address : "::";
	unsigned port = r->opt.tcp_port;
	struct sockaddr_storage sa;
	socklen_t len = sizeof(sa);
	int listener = listen_at(where, port);

	/* A kernel without IPv6 */
	if (listener < 0 && !r->opt.address && errno != EADDRINUSE)
		listener = listen_at("0.0.0.0", port);
	if (listener < 0 && errno == EADDRINUSE)
		die("TCP port %u is in use by another program: end it (ss -ltnp shows it) or "
		    "choose another port on both sides, for example %u",
			port, port % 65535 + 1);
	if (listener < 0)
		die("cannot listen on %s port %u (%s): choose an address that \"ip address\" shows "
		    "(-b), and a port above 1023",
			where, port, strerror(errno));
	printf("    waiting for rdma_client on TCP port %u (Ctrl-C ends the wait)\n", port);
	do
		r->tcp = accept4(listener, (struct sockaddr *)&sa, &len, SOCK_CLOEXEC);
	while (r->tcp < 0 && errno == ECONNABORTED);
	/* One client is all that this program serves: a second one is refused at once, not left
	 * waiting. */
	close(listener);
	if (r->tcp < 0)
		err(1, "cannot take the client's connection");
	r->peer_program = "rdma_client";
	name_peer(r, (struct sockaddr *)&sa, len);
	printf("    connection from %s\n", r->peer);
}

void exchange_connect(struct rdma *r)
{
	const struct timeval limit = {.tv_sec = WAIT_MS / 1000}; /* of connect(), too: socket(7) */
	struct addrinfo *found = addresses_of(r->opt.address, r->opt.tcp_port);
	int error = 0;

	for (struct addrinfo *ai = found; ai && r->tcp < 0; ai = ai->ai_next) {
		name_peer(r, ai->ai_addr, ai->ai_addrlen);
		r->tcp = socket(ai->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
		setsockopt(r->tcp, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
		if (!connect(r->tcp, ai->ai_addr, ai->ai_addrlen))
			break;
		error = errno;
		close(r->tcp);
		r->tcp = -1;
	}
	freeaddrinfo(found);
	if (r->tcp < 0 && error == ECONNREFUSED)
		die("no rdma_server is running at %s: start it there first (rdma_server - %u), "
		    "then this program",
			r->peer, r->opt.tcp_port);
	if (r->tcp < 0)
		die("cannot reach %s (%s): check the address, and that no firewall blocks it",
			r->peer, strerror(error == EINPROGRESS ? ETIMEDOUT : error));
	r->peer_program = "rdma_server";
	printf("    connected to %s\n", r->peer);
}

/* ---- messages, whole and with a deadline ---- */

static bool wait_for(int fd, short events, uint64_t deadline_ms)
{
	struct pollfd p = {.fd = fd, .events = events};
	uint64_t now = now_ms();

	return poll(&p, 1, deadline_ms > now ? (int)(deadline_ms - now) : 0) > 0;
}

static _Noreturn void peer_gone(const struct rdma *r)
{
	die("%s at %s left before the work was done: look at what it printed, then start both "
	    "again, the server first",
		r->peer_program, r->peer);
}

/* TCP is a stream: one recv() may bring half a message. */
static void transfer(struct rdma *r, short direction, uint8_t *data, size_t bytes)
{
	uint64_t deadline = now_ms() + WAIT_MS;
	ssize_t n;

	for (; bytes; data += n, bytes -= (size_t)n) {
		if (!wait_for(r->tcp, direction, deadline))
			die("%s said nothing for %d s: check that it is %s and neither stopped nor "
			    "cut off, then start both again",
				r->peer, WAIT_MS / 1000, r->peer_program);
		/* MSG_NOSIGNAL: a peer that left is an error here, not the end of this process. */
		n = direction == POLLIN ? recv(r->tcp, data, bytes, MSG_DONTWAIT)
					: send(r->tcp, data, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n == 0 || (n < 0 && errno != EAGAIN))
			peer_gone(r);
		if (n < 0)
			n = 0;
	}
}

static void send_message(struct rdma *r, enum kind kind, uint8_t *message, size_t body_bytes)
{
	transfer(r, POLLOUT, message, put_header(message, MAGIC, VERSION, kind, body_bytes));
}

static _Noreturn void stranger(const struct rdma *r, const uint8_t *header)
{
	char shown[9] = "";

	for (unsigned i = 0; i < 8; i++)
		shown[i] = isascii(header[i]) && isprint(header[i]) ? (char)header[i] : '.';
	die("%s is not %s (it began with \"%s\"): check the address and the port on both sides",
		r->peer, r->peer_program, shown);
}

static void must_fit(const struct rdma *r, bool fits)
{
	if (!fits)
		die("%s sent a message that makes no sense: check that it is %s", r->peer,
			r->peer_program);
}

/* Read a header of the wanted kind: the length of its body. */
static uint32_t read_header(struct rdma *r, enum kind wanted)
{
	uint8_t h[HEADER_BYTES];

	/* The magic comes first and is judged first: a stranger may never send a whole header. */
	transfer(r, POLLIN, h, 8);
	if (get(h, 4) != MAGIC)
		stranger(r, h);
	if (get(h + 4, 2) != VERSION)
		die("%s speaks version %u of the exchange, this program version %d: use both of "
		    "the same release",
			r->peer, (unsigned)get(h + 4, 2), VERSION);
	transfer(r, POLLIN, h + 8, 4);
	if (get(h + 6, 2) == KIND_SORRY)
		die("%s at %s gave up: look at what it printed, then start both again",
			r->peer_program, r->peer);
	must_fit(r, get(h + 6, 2) == wanted);
	return (uint32_t)get(h + 8, 4);
}

void exchange_tell(struct rdma *r, enum kind kind)
{
	uint8_t h[HEADER_BYTES];

	send_message(r, kind, h, 0);
}

void exchange_await(struct rdma *r, enum kind kind) { must_fit(r, !read_header(r, kind)); }

/* ---- hello ---- */

static void hello_send(struct rdma *r)
{
	uint8_t m[HEADER_BYTES + HELLO_BYTES_MAX] = {0}, *p = m + HEADER_BYTES;
	const struct cm_con_data_t *s = &r->local;

	put(p, 4, s->mtu_bytes);
	put(p + 4, 4, s->qps);
	put(p + 8, 4, s->buffer_bytes);
	put(p + 12, 4, s->message_bytes);
	put(p + 16, 1, s->link_layer);
	put(p + 18, 2, s->lid);
	/* a GID is a string of bytes: it has no byte order */
	memcpy(p + GID_AT, s->gid.raw, 16);
	for (unsigned i = 0; i < s->qps; i++) {
		put(p + QPS_AT + 8 * i, 4, s->qp[i].qpn);
		put(p + QPS_AT + 8 * i + 4, 4, s->qp[i].psn);
	}
	send_message(r, KIND_HELLO, m, QPS_AT + 8 * s->qps);
}

bool gid_empty(const union ibv_gid *gid)
{
	return !gid->global.subnet_prefix && !gid->global.interface_id;
}

/* False if any field is out of its range. */
static bool hello_fits(const struct cm_con_data_t *s, bool from_client)
{
	bool mtu_exists =
		s->mtu_bytes >= 256 && s->mtu_bytes <= 4096 && !(s->mtu_bytes & (s->mtu_bytes - 1));
	bool sizes_fit = s->buffer_bytes >= 1 && s->buffer_bytes <= BUFFER_BYTES_MAX &&
			 s->message_bytes <= s->buffer_bytes;
	/* RoCE has no other address. */
	bool has_address = s->link_layer != IBV_LINK_LAYER_ETHERNET || !gid_empty(&s->gid);

	/* QPN and PSN are numbers of 24 bits; QP 0 and 1 belong to management. */
	for (unsigned i = 0; i < s->qps; i++)
		if (s->qp[i].qpn < 2 || s->qp[i].qpn > 0xffffff || s->qp[i].psn > 0xffffff)
			return false;
	return mtu_exists && sizes_fit && has_address && from_client == (s->message_bytes > 0);
}

static void hello_receive(struct rdma *r)
{
	uint8_t p[HELLO_BYTES_MAX] = {0};
	struct cm_con_data_t *s = &r->remote;
	uint32_t bytes = read_header(r, KIND_HELLO);

	must_fit(r, bytes >= QPS_AT && bytes <= sizeof(p));
	transfer(r, POLLIN, p, bytes);
	s->mtu_bytes = (uint32_t)get(p, 4);
	s->qps = (uint32_t)get(p + 4, 4);
	s->buffer_bytes = (uint32_t)get(p + 8, 4);
	s->message_bytes = (uint32_t)get(p + 12, 4);
	s->link_layer = p[16];
	s->lid = (uint32_t)get(p + 18, 2);
	memcpy(s->gid.raw, p + GID_AT, 16);
	must_fit(r, s->qps >= 1 && s->qps <= QPS_MAX && bytes == QPS_AT + 8 * s->qps);
	for (unsigned i = 0; i < s->qps; i++) {
		s->qp[i].qpn = (uint32_t)get(p + QPS_AT + 8 * i, 4);
		s->qp[i].psn = (uint32_t)get(p + QPS_AT + 8 * i + 4, 4);
	}
	must_fit(r, hello_fits(s, r->opt.role == ROLE_SERVER));
}

/* An IPv4 address in a GID: ::ffff:a.b.c.d (RFC 4291, 2.5.5.2). */
static const char *gid_kind(const struct cm_con_data_t *s)
{
	static const uint8_t prefix[12] = {[10] = 0xff, [11] = 0xff};

	return memcmp(s->gid.raw, prefix, sizeof(prefix)) ? "IPv6" : "IPv4";
}

/* Both sides make the same comparison and come to the same end. */
static void agree(struct rdma *r)
{
	const struct cm_con_data_t *local = &r->local, *remote = &r->remote;
	const struct cm_con_data_t *server = r->opt.role == ROLE_SERVER ? local : remote;

	if (local->link_layer != remote->link_layer)
		die("one side is on InfiniBand, the other on Ethernet: choose devices of one kind");
	if (local->link_layer == IBV_LINK_LAYER_ETHERNET && gid_kind(local) != gid_kind(remote))
		die("this side's GID is an %s address, the other's an %s address: choose GID "
		    "indexes of one kind on both sides (usually 1)",
			gid_kind(local), gid_kind(remote));
	if (local->qps != remote->qps)
		die("this side has %u queue pairs, the other %u: start both with the same -n",
			local->qps, remote->qps);
	/* One of the two is 0: the client says how long the messages are. */
	r->opt.message_bytes = local->message_bytes + remote->message_bytes;
	if (r->opt.message_bytes > server->buffer_bytes)
		die("the client's messages are %u bytes, but the server's buffers hold %u: start "
		    "the server with -s %u",
			r->opt.message_bytes, server->buffer_bytes, r->opt.message_bytes);
}

void sock_sync_data(struct rdma *r)
{
	if (r->opt.role == ROLE_CLIENT)
		hello_send(r);
	hello_receive(r);
	if (r->opt.role == ROLE_SERVER)
		hello_send(r);
	agree(r);
}

/* ---- the end ---- */

void exchange_watch(struct rdma *r)
{
	uint8_t h[HEADER_BYTES];
	ssize_t n = recv(r->tcp, h, sizeof(h), MSG_PEEK | MSG_DONTWAIT);

	if (n == 0 || (n < 0 && errno != EAGAIN))
		peer_gone(r);
	/* A DONE that came early stays there for exchange_await. */
	if (n == HEADER_BYTES && get(h + 6, 2) != KIND_DONE)
		read_header(r, KIND_DONE);
}

void exchange_close(int status, void *rdma)
{
	int fd = ((struct rdma *)rdma)->tcp;
	uint64_t deadline = now_ms() + 300;
	uint8_t h[HEADER_BYTES], rest[256];

	if (status && fd >= 0) {
		/* Its header says our version too: so a peer of another version can tell why. */
		put_header(h, MAGIC, VERSION, KIND_SORRY, 0);
		send(fd, h, sizeof(h), MSG_DONTWAIT | MSG_NOSIGNAL);
		/* Closing with unread data makes TCP throw away what the peer has not read yet, so
		 * take a little of it. */
		shutdown(fd, SHUT_WR);
		for (unsigned i = 0; i < 64 && wait_for(fd, POLLIN, deadline); i++)
			if (recv(fd, rest, sizeof(rest), MSG_DONTWAIT) <= 0)
				break;
	}
	close(fd);
}
