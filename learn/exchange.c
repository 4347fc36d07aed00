/* SPDX-License-Identifier: BSD-3-Clause */
/* exchange.c - the control path over TCP. Every message is read and written whole or not at all,
 * each wait has a deadline, and nothing that arrives is believed before it was checked: anyone can
 * connect to a TCP port. */
#include <ctype.h>
#include <netinet/in.h>
#include <poll.h>
#include <unistd.h>

#include "exchange.h"

#define MAGIC 0x52505752u /* "RPWR" */
#define VERSION 1

enum {
	GID_AT = 20, /* in a hello */
	HELLO_BYTES_MIN = 36,
	HELLO_BYTES_MAX = HELLO_BYTES_MIN + 8 * QPS_MAX,
};

/* ---- opening the connection ---- */

static void name_peer(struct exchange *x, const struct sockaddr *sa, socklen_t len)
{
	char host[64] = "?", port[8] = "?";
	int mapped;

	getnameinfo(
		sa, len, host, sizeof(host), port, sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV);
	mapped = strncmp(host, "::ffff:", 7) ? 0 : 7; /* IPv4 on a socket for both families */
	snprintf(x->peer, sizeof(x->peer), _("%s port %s"), host + mapped, port);
}

/* The listening socket, or -1 with errno. */
static int listen_at(const char *host, unsigned port)
{
	struct addrinfo *found = addresses_of(host, port);
	int on = 1, off = 0, error = 0, fd = -1;

	for (struct addrinfo *ai = found; ai; ai = ai->ai_next) {
		fd = socket(ai->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
		/* Dying connections of an earlier run must not hold the port. */
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
		/* :: takes IPv4 too */
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
		if (!bind(fd, ai->ai_addr, ai->ai_addrlen) && !listen(fd, 1))
			break;
		error = errno;
		close(fd);
		fd = -1;
	}
	freeaddrinfo(found);
	errno = error;
	return fd;
}

static _Noreturn void cannot_listen(const struct options *opt)
{
	const char *where = opt->address ? opt->address : "*";

	if (errno == EADDRINUSE)
		die("TCP port %u is in use by another program: end it (ss -ltnp shows it) or "
		    "choose another port on both sides, for example: rdma_server %s %u",
			opt->tcp_port, opt->device ? opt->device : "-",
			opt->tcp_port < 65535 ? opt->tcp_port + 1 : 18515);
	if (errno == EADDRNOTAVAIL)
		die("this machine does not have the address %s: choose one that \"ip address\" "
		    "shows (-b)",
			where);
	die("cannot listen on %s port %u (%s): choose another address (-b), or a port "
	    "above 1023",
		where, opt->tcp_port, strerror(errno));
}

void exchange_accept(struct exchange *x, const struct options *opt)
{
	struct sockaddr_storage sa;
	socklen_t len = sizeof(sa);
	int listener = listen_at(opt->address ? opt->address : "::", opt->tcp_port);

	x->peer_program = "rdma_client";
	/* A kernel without IPv6 */
	if (listener < 0 && !opt->address && errno != EADDRINUSE)
		listener = listen_at("0.0.0.0", opt->tcp_port);
	if (listener < 0)
		cannot_listen(opt);
	say("waiting for rdma_client on TCP port %u (Ctrl-C ends the wait)", opt->tcp_port);
	do
		x->fd = accept4(listener, (struct sockaddr *)&sa, &len, SOCK_CLOEXEC);
	while (x->fd < 0 && errno == ECONNABORTED);
	/* One client is all that this program serves: a second one is refused at once, not left
	 * waiting. */
	close(listener);
	if (x->fd < 0)
		die("cannot take the client's connection (%s): start both again", strerror(errno));
	name_peer(x, (struct sockaddr *)&sa, len);
	say("connection from %s", x->peer);
}

static _Noreturn void peer_gone(const struct exchange *x)
{
	die("%s at %s left before the work was done: look at what it printed, then start both "
	    "again, the server first",
		x->peer_program, x->peer);
}

static _Noreturn void cannot_connect(const struct exchange *x, const struct options *opt, int error)
{
	if (error == ECONNREFUSED)
		die("no rdma_server is running at %s: start it there first (rdma_server %s %u), "
		    "then this program",
			x->peer, opt->device ? opt->device : "-", opt->tcp_port);
	if (error == ECONNRESET)
		peer_gone(x);
	die("cannot reach %s (%s): check the address, and that no firewall blocks TCP port %u",
		x->peer, strerror(error == EINPROGRESS ? ETIMEDOUT : error), opt->tcp_port);
}

void exchange_connect(struct exchange *x, const struct options *opt)
{
	const struct timeval limit = {.tv_sec = WAIT_MS / 1000}; /* of connect(), too: socket(7) */
	struct addrinfo *found = addresses_of(opt->address, opt->tcp_port);
	int error = 0;

	x->peer_program = "rdma_server";
	for (struct addrinfo *ai = found; ai && x->fd < 0; ai = ai->ai_next) {
		name_peer(x, ai->ai_addr, ai->ai_addrlen);
		x->fd = socket(ai->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
		setsockopt(x->fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
		if (!connect(x->fd, ai->ai_addr, ai->ai_addrlen))
			break;
		error = errno;
		close(x->fd);
		x->fd = -1;
	}
	freeaddrinfo(found);
	if (x->fd < 0)
		cannot_connect(x, opt, error);
	say("connected to %s", x->peer);
}

/* ---- messages, whole and with a deadline ---- */

static bool wait_for(int fd, short events, uint64_t deadline_ms)
{
	struct pollfd p = {.fd = fd, .events = events};
	uint64_t now = now_ms();

	return poll(&p, 1, deadline_ms > now ? (int)(deadline_ms - now) : 0) > 0;
}

/* TCP is a stream: one recv() may bring half a message. */
static void transfer(struct exchange *x, short direction, uint8_t *data, size_t bytes)
{
	uint64_t deadline = now_ms() + WAIT_MS;
	ssize_t n;

	for (; bytes; data += n, bytes -= (size_t)n) {
		if (!wait_for(x->fd, direction, deadline))
			die("%s said nothing for %d s: check that it is %s and neither stopped nor "
			    "cut off, then start both again",
				x->peer, WAIT_MS / 1000, x->peer_program);
		/* MSG_NOSIGNAL: a peer that left is an error here, not the end of this process. */
		n = direction == POLLIN ? recv(x->fd, data, bytes, MSG_DONTWAIT)
					: send(x->fd, data, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n == 0 || (n < 0 && errno != EAGAIN))
			peer_gone(x);
		if (n < 0)
			n = 0;
	}
}

static void send_message(struct exchange *x, enum kind kind, uint8_t *message, size_t body_bytes)
{
	transfer(x, POLLOUT, message, put_header(message, MAGIC, VERSION, kind, body_bytes));
}

static _Noreturn void stranger(const struct exchange *x, const uint8_t *header)
{
	char shown[9] = "";

	for (unsigned i = 0; i < 8; i++)
		shown[i] = isascii(header[i]) && isprint(header[i]) ? (char)header[i] : '.';
	die("%s is not %s (it began with \"%s\"): check the address and the port on both sides, "
	    "then start both again",
		x->peer, x->peer_program, shown);
}

static _Noreturn void broken(const struct exchange *x)
{
	die("%s sent a message that makes no sense: check that it is %s of this version, then "
	    "start both again",
		x->peer, x->peer_program);
}

/* Read a header of the wanted kind: the length of its body. */
static uint32_t read_header(struct exchange *x, enum kind wanted)
{
	uint8_t h[HEADER_BYTES];

	/* The magic comes first and is judged first: a stranger may never send a whole header. */
	transfer(x, POLLIN, h, 8);
	if (get(h, 4) != MAGIC)
		stranger(x, h);
	if (get(h + 4, 2) != VERSION)
		die("%s speaks version %u of the exchange, this program version %d: use "
		    "rdma_server and rdma_client of the same release",
			x->peer, (unsigned)get(h + 4, 2), VERSION);
	transfer(x, POLLIN, h + 8, 4);
	if (get(h + 6, 2) == KIND_SORRY)
		die("%s at %s gave up: look at what it printed, then start both again",
			x->peer_program, x->peer);
	if (get(h + 6, 2) != wanted)
		broken(x);
	return (uint32_t)get(h + 8, 4);
}

void exchange_tell(struct exchange *x, enum kind kind)
{
	uint8_t h[HEADER_BYTES];

	send_message(x, kind, h, 0);
}

void exchange_await(struct exchange *x, enum kind kind)
{
	if (read_header(x, kind))
		broken(x);
}

/* ---- hello ---- */

static void put_field(uint8_t *at, unsigned bytes, uint32_t *field) { put(at, bytes, *field); }

static void get_field(uint8_t *at, unsigned bytes, uint32_t *field)
{
	*field = (uint32_t)get(at, bytes);
}

/* Where each field is, for both directions. */
static void each_field(uint8_t *p, struct cm_con_data_t *s,
	void (*act)(uint8_t *at, unsigned bytes, uint32_t *field))
{
	act(p, 4, &s->mtu_bytes);
	act(p + 4, 4, &s->qps);
	act(p + 8, 4, &s->buffer_bytes);
	act(p + 12, 4, &s->message_bytes);
	act(p + 16, 1, &s->link_layer);
	act(p + 18, 2, &s->lid);
	for (unsigned i = 0; i < s->qps && i < QPS_MAX; i++) {
		act(p + HELLO_BYTES_MIN + 8 * i, 4, &s->qp[i].qpn);
		act(p + HELLO_BYTES_MIN + 8 * i + 4, 4, &s->qp[i].psn);
	}
}

static void hello_send(struct exchange *x, struct cm_con_data_t s)
{
	uint8_t m[HEADER_BYTES + HELLO_BYTES_MAX] = {0};

	each_field(m + HEADER_BYTES, &s, put_field);
	/* a GID is a string of bytes: it has no byte order */
	memcpy(m + HEADER_BYTES + GID_AT, s.gid.raw, 16);
	send_message(x, KIND_HELLO, m, HELLO_BYTES_MIN + 8 * s.qps);
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

static void hello_receive(struct exchange *x, bool from_client, struct cm_con_data_t *s)
{
	uint8_t p[HELLO_BYTES_MAX] = {0};
	uint32_t bytes = read_header(x, KIND_HELLO);

	if (bytes < HELLO_BYTES_MIN || bytes > sizeof(p))
		broken(x);
	transfer(x, POLLIN, p, bytes);
	each_field(p, s, get_field);
	memcpy(s->gid.raw, p + GID_AT, 16);
	if (s->qps < 1 || s->qps > QPS_MAX || bytes != HELLO_BYTES_MIN + 8 * s->qps)
		broken(x);
	if (!hello_fits(s, from_client))
		broken(x);
}

/* An IPv4 address in a GID: ::ffff:a.b.c.d (RFC 4291, 2.5.5.2). */
static bool is_ipv4(const struct cm_con_data_t *s)
{
	static const uint8_t prefix[12] = {[10] = 0xff, [11] = 0xff};

	return !memcmp(s->gid.raw, prefix, sizeof(prefix));
}

/* Both sides make the same comparison and come to the same end. */
static void agree(const struct cm_con_data_t *local, const struct cm_con_data_t *remote)
{
	const struct cm_con_data_t *client = local->message_bytes ? local : remote;
	const struct cm_con_data_t *server = local->message_bytes ? remote : local;

	if (local->link_layer != remote->link_layer)
		die("one side is on InfiniBand and the other on Ethernet, they cannot reach each "
		    "other: choose devices of one kind");
	if (local->link_layer == IBV_LINK_LAYER_ETHERNET && is_ipv4(local) != is_ipv4(remote))
		die("this side's GID is an %s address, the other's an %s address: choose GID "
		    "indexes of one kind on both sides (usually 1)",
			is_ipv4(local) ? "IPv4" : "IPv6", is_ipv4(remote) ? "IPv4" : "IPv6");
	if (local->qps != remote->qps)
		die("this side has %u queue pairs, the other %u: start both with the same -n",
			local->qps, remote->qps);
	if (client->message_bytes > server->buffer_bytes)
		die("the client's messages are %u bytes, but the server's buffers hold %u: start "
		    "the server with -s %u",
			client->message_bytes, server->buffer_bytes, client->message_bytes);
}

void sock_sync_data(struct exchange *x, const struct options *opt,
	const struct cm_con_data_t *local, struct cm_con_data_t *remote)
{
	if (opt->role == ROLE_CLIENT)
		hello_send(x, *local);
	hello_receive(x, opt->role == ROLE_SERVER, remote);
	if (opt->role == ROLE_SERVER)
		hello_send(x, *local);
	agree(local, remote);
}

/* ---- the end ---- */

void exchange_watch(struct exchange *x)
{
	uint8_t h[HEADER_BYTES];
	ssize_t n = recv(x->fd, h, sizeof(h), MSG_PEEK | MSG_DONTWAIT);

	if (n == 0 || (n < 0 && errno != EAGAIN))
		peer_gone(x);
	/* A DONE that came early stays there for exchange_await. */
	if (n == HEADER_BYTES && get(h, 4) == MAGIC && get(h + 6, 2) == KIND_SORRY)
		read_header(x, KIND_DONE);
}

void exchange_close(int status, void *exchange)
{
	struct exchange *x = exchange;
	uint64_t deadline = now_ms() + 300;
	uint8_t h[HEADER_BYTES], rest[256];

	if (status && x->fd >= 0) {
		/* Its header says our version too: so a peer of another version can tell why. */
		put_header(h, MAGIC, VERSION, KIND_SORRY, 0);
		send(x->fd, h, sizeof(h), MSG_DONTWAIT | MSG_NOSIGNAL);
		/* Closing with unread data makes TCP throw away what the peer has not read yet, so
		 * take a little of it. */
		shutdown(x->fd, SHUT_WR);
		for (unsigned i = 0; i < 64 && wait_for(x->fd, POLLIN, deadline); i++)
			if (recv(x->fd, rest, sizeof(rest), MSG_DONTWAIT) <= 0)
				break;
	}
	close(x->fd);
	x->fd = -1;
}
