/* SPDX-License-Identifier: BSD-3-Clause */
/* exchange.c - the control path over TCP. Every message is read and written whole or not at all,
 * each wait has a deadline, and nothing that arrives is believed before it was checked: anyone can
 * connect to a TCP port.
 *
 * TCP 控制通道。每条消息要么完整读写、要么失败；每次等待都有期限；收到的内容在检查之前一概不信：
 * 任何人都能连接 TCP 端口。
 *
 * On the wire, all numbers in network byte order (big-endian) / 线上格式，全部为网络字节序（大端）:
 *
 *      0        4         6       8        12
 *      | magic  | version | kind  | length | body of `length` bytes ...
 *
 *   body of HELLO / HELLO 的正文:
 *      0     4     8        12        16           17    18    20      36
 *      | mtu | QPs | buffer | message | link layer | 0   | LID | GID   | QPN, PSN | QPN, PSN | ...
 *                                                                      one pair for each QP
 *   READY, DONE and SORRY have no body. / READY、DONE 和 SORRY 没有正文。
 */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "exchange.h"

#define MAGIC 0x52505752u /* "RPWR" */
#define VERSION 1

enum {
	HEADER_BYTES = 12,
	HELLO_BYTES_MIN = 36,
	HELLO_BYTES_MAX = HELLO_BYTES_MIN + 8 * QPS_MAX,
};

/* ---- network byte order / 网络字节序 ----
 * Byte by byte it does not matter how this machine orders them, nor how a struct is padded. /
 * 逐字节读写，与本机字节序和结构体填充无关。 */

static void put16(uint8_t *p, uint16_t v)
{
	p[0] = (uint8_t)(v >> 8);
	p[1] = (uint8_t)v;
}

static void put32(uint8_t *p, uint32_t v)
{
	put16(p, (uint16_t)(v >> 16));
	put16(p + 2, (uint16_t)v);
}

static uint16_t get16(const uint8_t *p) { return (uint16_t)(p[0] << 8 | p[1]); }

static uint32_t get32(const uint8_t *p) { return (uint32_t)get16(p) << 16 | get16(p + 2); }

/* ---- whole reads and writes with a deadline / 带期限的完整读写 ---- */

static bool wait_for(int fd, short events, uint64_t deadline_ms)
{
	for (;;) {
		struct pollfd p = {.fd = fd, .events = events};
		uint64_t now = now_ms();
		int left = deadline_ms > now ? (int)(deadline_ms - now) : 0;
		int n = poll(&p, 1, left);

		if (n > 0)
			return true;
		if (n == 0 || errno != EINTR)
			return false;
	}
}

static int peer_gone(const struct exchange *x)
{
	return fail(_("%s at %s left before the work was done: look at what it printed, then start "
		      "both again, the server first"),
		x->peer_program, x->peer);
}

static int peer_silent(const struct exchange *x)
{
	return fail(_("%s said nothing for %d s: check that it is %s and neither stopped nor cut "
		      "off, then start both again"),
		x->peer, WAIT_MS / 1000, x->peer_program);
}

static int read_whole(struct exchange *x, uint8_t *to, size_t bytes)
{
	uint64_t deadline = now_ms() + WAIT_MS;

	/* TCP is a stream: one recv() may bring half a message. / TCP 是字节流：一次 recv()
	 * 可能只带来半条消息。 */
	for (size_t have = 0; have < bytes;) {
		ssize_t n;

		if (!wait_for(x->fd, POLLIN, deadline))
			return peer_silent(x);
		n = recv(x->fd, to + have, bytes - have, MSG_DONTWAIT);
		if (n > 0)
			have += (size_t)n;
		else if (n == 0 || (errno != EAGAIN && errno != EINTR))
			return peer_gone(x);
	}
	return 0;
}

static int write_whole(struct exchange *x, const uint8_t *from, size_t bytes)
{
	uint64_t deadline = now_ms() + WAIT_MS;

	for (size_t done = 0; done < bytes;) {
		ssize_t n;

		if (!wait_for(x->fd, POLLOUT, deadline))
			return peer_silent(x);
		/* MSG_NOSIGNAL: a peer that left is an error here, not the end of this process. /
		 * 对端离开只算错误，而不应杀死本进程。 */
		n = send(x->fd, from + done, bytes - done, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n > 0)
			done += (size_t)n;
		else if (errno != EAGAIN && errno != EINTR)
			return peer_gone(x);
	}
	return 0;
}

/* ---- messages / 消息 ---- */

static void put_header(uint8_t *p, enum kind kind, uint32_t body_bytes)
{
	put32(p, MAGIC);
	put16(p + 4, VERSION);
	put16(p + 6, (uint16_t)kind);
	put32(p + 8, body_bytes);
}

static int stranger(const struct exchange *x, const uint8_t *header)
{
	char shown[9];

	for (unsigned i = 0; i < 8; i++)
		shown[i] = isascii(header[i]) && isprint(header[i]) ? (char)header[i] : '.';
	shown[8] = '\0';
	return fail(_("%s is not %s (it began with \"%s\"): check the address and the port on both "
		      "sides, then start both again"),
		x->peer, x->peer_program, shown);
}

static int broken(const struct exchange *x)
{
	return fail(_("%s sent a message that makes no sense: check that it is %s of this version, "
		      "then start both again"),
		x->peer, x->peer_program);
}

/* Read a header of the wanted kind. / 读取一个指定种类的消息头。 */
static int read_header(struct exchange *x, enum kind wanted, uint32_t *body_bytes)
{
	uint8_t h[HEADER_BYTES] = {0};
	uint16_t kind;

	/* The magic comes first and is judged first: a stranger may never send a whole header. /
	 * 先读并先判断魔数：陌生者未必会发来完整的消息头。 */
	if (read_whole(x, h, 8))
		return -1;
	if (get32(h) != MAGIC)
		return stranger(x, h);
	if (get16(h + 4) != VERSION)
		return fail(_("%s speaks version %u of the exchange, this program version %d: use "
			      "rdma_server and rdma_client of the same release"),
			x->peer, get16(h + 4), VERSION);
	if (read_whole(x, h + 8, 4))
		return -1;
	kind = get16(h + 6);
	if (kind == KIND_SORRY)
		return fail(_("%s at %s gave up: look at what it printed, then start both again"),
			x->peer_program, x->peer);
	if (kind != wanted)
		return broken(x);
	*body_bytes = get32(h + 8);
	return 0;
}

int exchange_tell(struct exchange *x, enum kind kind)
{
	uint8_t h[HEADER_BYTES] = {0};

	put_header(h, kind, 0);
	return write_whole(x, h, sizeof(h));
}

int exchange_await(struct exchange *x, enum kind kind)
{
	uint32_t body_bytes = 0;

	if (read_header(x, kind, &body_bytes))
		return -1;
	return body_bytes ? broken(x) : 0;
}

static size_t hello_pack(uint8_t *p, const struct cm_con_data_t *s)
{
	put32(p, s->mtu_bytes);
	put32(p + 4, s->qps);
	put32(p + 8, s->buffer_bytes);
	put32(p + 12, s->message_bytes);
	p[16] = s->link_layer;
	p[17] = 0;
	put16(p + 18, s->lid);
	/* a GID is a string of bytes: it has no byte order / GID 是字节串，没有字节序问题 */
	memcpy(p + 20, s->gid.raw, 16);
	for (unsigned i = 0; i < s->qps; i++) {
		put32(p + HELLO_BYTES_MIN + 8 * i, s->qp[i].qpn);
		put32(p + HELLO_BYTES_MIN + 8 * i + 4, s->qp[i].psn);
	}
	return HELLO_BYTES_MIN + 8 * (size_t)s->qps;
}

bool gid_empty(const union ibv_gid *gid)
{
	static const union ibv_gid zero;

	return !memcmp(gid, &zero, sizeof(zero));
}

static bool mtu_exists(uint32_t bytes)
{
	return bytes >= 256 && bytes <= 4096 && !(bytes & (bytes - 1));
}

/* False if any field is out of its range. / 只要有字段超出范围就返回 false。 */
static bool hello_unpack(const uint8_t *p, size_t bytes, enum role from, struct cm_con_data_t *s)
{
	*s = (struct cm_con_data_t){
		.mtu_bytes = get32(p),
		.qps = get32(p + 4),
		.buffer_bytes = get32(p + 8),
		.message_bytes = get32(p + 12),
		.link_layer = p[16],
		.lid = get16(p + 18),
	};
	memcpy(s->gid.raw, p + 20, 16);
	if (!mtu_exists(s->mtu_bytes) || s->qps < 1 || s->qps > QPS_MAX ||
		bytes != HELLO_BYTES_MIN + 8 * (size_t)s->qps)
		return false;
	if (s->buffer_bytes < 1 || s->buffer_bytes > BUFFER_BYTES_MAX ||
		s->message_bytes > s->buffer_bytes)
		return false;
	if ((from == ROLE_CLIENT) != (s->message_bytes > 0))
		return false;
	/* RoCE has no other address / RoCE 没有别的地址 */
	if (s->link_layer == IBV_LINK_LAYER_ETHERNET && gid_empty(&s->gid))
		return false;
	for (unsigned i = 0; i < s->qps; i++) {
		s->qp[i].qpn = get32(p + HELLO_BYTES_MIN + 8 * i);
		s->qp[i].psn = get32(p + HELLO_BYTES_MIN + 8 * i + 4);
		/* QPN and PSN are numbers of 24 bits; QP 0 and 1 belong to management. / QPN 和 PSN
		 * 是 24 位数；QP 0 和 1 用于管理。 */
		if (s->qp[i].qpn < 2 || s->qp[i].qpn > 0xffffff || s->qp[i].psn > 0xffffff)
			return false;
	}
	return true;
}

static int hello_send(struct exchange *x, const struct cm_con_data_t *local)
{
	uint8_t m[HEADER_BYTES + HELLO_BYTES_MAX];
	size_t body_bytes = hello_pack(m + HEADER_BYTES, local);

	put_header(m, KIND_HELLO, (uint32_t)body_bytes);
	return write_whole(x, m, HEADER_BYTES + body_bytes);
}

static int hello_receive(struct exchange *x, enum role from, struct cm_con_data_t *remote)
{
	uint8_t body[HELLO_BYTES_MAX] = {0};
	uint32_t body_bytes = 0;

	if (read_header(x, KIND_HELLO, &body_bytes))
		return -1;
	if (body_bytes < HELLO_BYTES_MIN || body_bytes > sizeof(body))
		return broken(x);
	if (read_whole(x, body, body_bytes))
		return -1;
	return hello_unpack(body, body_bytes, from, remote) ? 0 : broken(x);
}

/* An IPv4 address in a GID: ::ffff:a.b.c.d (RFC 4291, 2.5.5.2). / GID 中的 IPv4 地址。 */
static bool is_ipv4(const struct cm_con_data_t *s)
{
	static const uint8_t prefix[12] = {[10] = 0xff, [11] = 0xff};

	return !memcmp(s->gid.raw, prefix, sizeof(prefix));
}

/* Both sides make the same comparison and come to the same end. / 双方做同样的比较，
 * 得出同样的结论。 */
static int agree(const struct cm_con_data_t *local, const struct cm_con_data_t *remote)
{
	uint32_t message_bytes =
		local->message_bytes ? local->message_bytes : remote->message_bytes;
	uint32_t server_bytes = local->message_bytes ? remote->buffer_bytes : local->buffer_bytes;

	if (local->link_layer != remote->link_layer)
		return fail(_("one side is on InfiniBand and the other on Ethernet, they cannot "
			      "reach each other: choose devices of one kind"));
	if (local->link_layer == IBV_LINK_LAYER_ETHERNET && is_ipv4(local) != is_ipv4(remote))
		return fail(_("this side's GID is an %s address, the other's an %s address: choose "
			      "GID indexes of one kind on both sides (usually 1)"),
			is_ipv4(local) ? "IPv4" : "IPv6", is_ipv4(remote) ? "IPv4" : "IPv6");
	if (local->qps != remote->qps)
		return fail(_("this side has %u queue pairs, the other %u: start both with the "
			      "same -n"),
			local->qps, remote->qps);
	if (message_bytes > server_bytes)
		return fail(_("the client's messages are %u bytes, but the server's buffers hold "
			      "%u: start the server with -s %u"),
			message_bytes, server_bytes, message_bytes);
	return 0;
}

int sock_sync_data(struct exchange *x, const struct options *opt, const struct cm_con_data_t *local,
	struct cm_con_data_t *remote)
{
	int rc;

	if (opt->role == ROLE_CLIENT) {
		rc = hello_send(x, local);
		if (!rc)
			rc = hello_receive(x, ROLE_SERVER, remote);
	} else {
		rc = hello_receive(x, ROLE_CLIENT, remote);
		if (!rc)
			rc = hello_send(x, local);
	}
	return rc ? rc : agree(local, remote);
}

int exchange_watch(struct exchange *x)
{
	uint8_t h[HEADER_BYTES] = {0};
	ssize_t n = recv(x->fd, h, sizeof(h), MSG_PEEK | MSG_DONTWAIT);
	uint32_t body_bytes = 0;

	if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
		return peer_gone(x);
	if (n == HEADER_BYTES && get32(h) == MAGIC && get16(h + 6) == KIND_SORRY)
		return read_header(x, KIND_DONE, &body_bytes);
	/* a DONE that came early stays there for exchange_await / 提前到达的 DONE 留给
	 * exchange_await */
	return 0;
}

void exchange_close(struct exchange *x, bool failed)
{
	uint8_t h[HEADER_BYTES] = {0};
	uint8_t rest[256];
	uint64_t deadline = now_ms() + 300;

	if (x->fd < 0)
		return;
	if (failed) {
		/* Its header says our version too: so a peer of another version can tell why. /
		 * 消息头带有我们的版本号，不同版本的对端由此得知原因。 */
		put_header(h, KIND_SORRY, 0);
		if (send(x->fd, h, sizeof(h), MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
			errno = 0; /* it has left already / 对端已经离开 */
		/* Closing with unread data makes TCP throw away what the peer has not read yet, so
		 * take a little of it. 若留有未读数据就关闭，TCP 会丢弃对端尚未读到的内容，
		 * 所以先读掉一些。 */
		shutdown(x->fd, SHUT_WR);
		for (unsigned i = 0; i < 64 && wait_for(x->fd, POLLIN, deadline); i++)
			if (recv(x->fd, rest, sizeof(rest), MSG_DONTWAIT) <= 0)
				break;
	}
	close(x->fd);
	x->fd = -1;
}

/* ---- connecting / 建立连接 ---- */

static void name_peer(struct exchange *x, const struct sockaddr *sa, socklen_t len)
{
	char host[64] = "?", port[8] = "?";
	const char *shown = host;

	getnameinfo(
		sa, len, host, sizeof(host), port, sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV);
	/* IPv4 on a socket for both families / 双栈套接字上的 IPv4 */
	if (!strncmp(shown, "::ffff:", 7))
		shown += 7;
	snprintf(x->peer, sizeof(x->peer), _("%s port %s"), shown, port);
}

static int resolve(const char *host, unsigned tcp_port, int flags, struct addrinfo **out)
{
	struct addrinfo hints = {.ai_family = AF_UNSPEC,
		.ai_socktype = SOCK_STREAM,
		.ai_flags = AI_NUMERICSERV | flags};
	char port[8];
	int rc;

	snprintf(port, sizeof(port), "%u", tcp_port);
	rc = getaddrinfo(host, port, &hints, out);
	if (rc)
		return fail(_("\"%s\" is not an address that can be used (%s): give an IP address "
			      "or a host name"),
			host ? host : "*", gai_strerror(rc));
	return 0;
}

static int listen_one(const struct addrinfo *ai)
{
	int on = 1, off = 0, saved;
	int fd = socket(ai->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -1;
	/* Connections of an earlier run that are still dying down must not hold the port. /
	 * 上次运行残留的连接不应占住端口。 */
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (ai->ai_family == AF_INET6) /* :: takes IPv4 too / 让 :: 也接受 IPv4 */
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
	if (!bind(fd, ai->ai_addr, ai->ai_addrlen) && !listen(fd, 1))
		return fd;
	saved = errno;
	close(fd);
	errno = saved;
	return -1;
}

static int listen_failed(const struct options *opt, int error)
{
	const char *where = opt->bind_address ? opt->bind_address : "*";

	if (error == EADDRINUSE)
		return fail(_("TCP port %u is in use by another program: end it (ss -ltnp shows "
			      "it) or choose another port on both sides, "
			      "for example: rdma_server %s %u"),
			opt->tcp_port, opt->device ? opt->device : "-",
			opt->tcp_port < 65535 ? opt->tcp_port + 1 : 18515);
	if (error == EACCES)
		return fail(_("TCP port %u is reserved for the administrator: choose one above "
			      "1023 on both sides"),
			opt->tcp_port);
	if (error == EADDRNOTAVAIL)
		return fail(_("this machine does not have the address %s: choose one that \"ip "
			      "address\" shows (-b)"),
			where);
	return fail(_("cannot listen on %s port %u (%s): choose another address (-b) or port"),
		where, opt->tcp_port, strerror(error));
}

/* The listening socket, or -1. / 返回监听套接字，或 -1。 */
static int open_listener(const struct options *opt)
{
	static const int families[] = {AF_INET6, AF_INET};
	struct addrinfo *list, *ai;
	int fd = -1, error = EADDRNOTAVAIL;

	if (resolve(opt->bind_address, opt->tcp_port, AI_PASSIVE, &list))
		return -1;
	/* IPv6 first, since one such socket serves both; IPv4 where the kernel has no IPv6, but not
	 * when the port is taken. 先试 IPv6，因为一个这样的套接字同时服务两者；内核没有 IPv6 时再用
	 * IPv4；端口已被占用时则不再尝试。 */
	for (unsigned f = 0; f < 2; f++)
		for (ai = list; ai && fd < 0 && error != EADDRINUSE; ai = ai->ai_next) {
			if (ai->ai_family != families[f])
				continue;
			fd = listen_one(ai);
			error = fd < 0 ? errno : 0;
		}
	freeaddrinfo(list);
	return fd < 0 ? listen_failed(opt, error) : fd;
}

int exchange_accept(struct exchange *x, const struct options *opt)
{
	struct sockaddr_storage sa;
	socklen_t len = sizeof(sa);
	int listener = open_listener(opt);

	if (listener < 0)
		return -1;
	say(_("waiting for rdma_client on TCP port %u (Ctrl-C ends the wait)"), opt->tcp_port);
	do {
		x->fd = accept4(listener, (struct sockaddr *)&sa, &len, SOCK_CLOEXEC);
	} while (x->fd < 0 && (errno == EINTR || errno == ECONNABORTED));
	/* One client is all that this program serves: a second one is refused at once, not left
	 * waiting. / 只服务一个客户端；第二个会立即被拒绝。 */
	close(listener);
	if (x->fd < 0)
		return fail(_("cannot take the client's connection (%s): start both again"),
			strerror(errno));
	name_peer(x, (struct sockaddr *)&sa, len);
	x->peer_program = "rdma_client";
	say(_("connection from %s"), x->peer);
	return 0;
}

/* 0, or an errno. / 返回 0 或 errno。 */
static int connect_one(int fd, const struct addrinfo *ai)
{
	int error = 0;
	socklen_t len = sizeof(error);

	if (!connect(fd, ai->ai_addr, ai->ai_addrlen))
		return 0;
	if (errno != EINPROGRESS)
		return errno;
	if (!wait_for(fd, POLLOUT, now_ms() + WAIT_MS))
		return ETIMEDOUT;
	return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) ? errno : error;
}

static int connect_failed(const struct exchange *x, const struct options *opt, int error)
{
	if (error == ECONNREFUSED)
		return fail(_("no rdma_server is running at %s: start it there first (rdma_server "
			      "%s %u), then this program"),
			x->peer, opt->device ? opt->device : "-", opt->tcp_port);
	if (error == ECONNRESET)
		return peer_gone(x);
	return fail(_("cannot reach %s (%s): check the address, and that no firewall blocks TCP "
		      "port %u"),
		x->peer, strerror(error), opt->tcp_port);
}

int exchange_connect(struct exchange *x, const struct options *opt)
{
	struct addrinfo *list, *ai;
	int error = EADDRNOTAVAIL;

	x->peer_program = "rdma_server";
	if (resolve(opt->server, opt->tcp_port, 0, &list))
		return -1;
	for (ai = list; ai; ai = ai->ai_next) {
		name_peer(x, ai->ai_addr, ai->ai_addrlen);
		x->fd = socket(ai->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		error = x->fd < 0 ? errno : connect_one(x->fd, ai);
		if (!error)
			break;
		if (x->fd >= 0)
			close(x->fd);
		x->fd = -1;
	}
	freeaddrinfo(list);
	if (error)
		return connect_failed(x, opt, error);
	say(_("connected to %s"), x->peer);
	return 0;
}
