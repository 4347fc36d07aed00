/* SPDX-License-Identifier: BSD-3-Clause */
/* icmp.c - what routers and hosts say of packets that did not arrive: ICMP, from the error queue of
 * a port's sending socket (ip(7) and ipv6(7), IP_RECVERR; RFC 792, 1191, 4443, 8201).
 *
 * The kernel has found the socket by the addresses and ports that the message quotes; of the rest
 * anybody may have made it. A message makes one later send fail in its place, which tx.c then makes
 * again. Nothing is read before a send fails or poll says POLLERR, and no more than QUEUE_MAX
 * messages at a time.
 */
#include "io/port_priv.h"
#include "base/lock.h"

#include <linux/errqueue.h>
#include <netinet/icmp6.h>
#include <netinet/ip_icmp.h>
#include <unistd.h>

enum { QUEUE_MAX = 64 };

static bool kind_of_v4(uint8_t type, uint8_t code, enum rpwi_icmp_kind *out)
{
	if (type == ICMP_TIME_EXCEEDED && code == ICMP_EXC_TTL)
		*out = RPWI_ICMP_HOPS;
	else if (type != ICMP_DEST_UNREACH)
		return false;
	else if (code == ICMP_FRAG_NEEDED)
		*out = RPWI_ICMP_TOO_BIG;
	else if (code == ICMP_PORT_UNREACH)
		*out = RPWI_ICMP_NO_PORT;
	else if (code == ICMP_NET_ANO || code == ICMP_HOST_ANO || code == ICMP_PKT_FILTERED)
		*out = RPWI_ICMP_FORBIDDEN;
	else
		*out = RPWI_ICMP_NO_HOST;
	return true;
}

static bool kind_of_v6(uint8_t type, uint8_t code, enum rpwi_icmp_kind *out)
{
	enum { POLICY = 5, REJECT_ROUTE = 6 }; /* RFC 4443, 3.1 */
	if (type == ICMP6_TIME_EXCEEDED && code == ICMP6_TIME_EXCEED_TRANSIT)
		*out = RPWI_ICMP_HOPS;
	else if (type == ICMP6_PACKET_TOO_BIG)
		*out = RPWI_ICMP_TOO_BIG;
	else if (type != ICMP6_DST_UNREACH)
		return false;
	else if (code == ICMP6_DST_UNREACH_NOPORT)
		*out = RPWI_ICMP_NO_PORT;
	else if (code == ICMP6_DST_UNREACH_ADMIN || code == POLICY || code == REJECT_ROUTE)
		*out = RPWI_ICMP_FORBIDDEN;
	else
		*out = RPWI_ICMP_NO_HOST;
	return true;
}

/* False: nothing to report. */
static bool read_error(const struct cmsghdr *c, struct rpwi_icmp *out)
{
	struct sock_extended_err e;
	union io_sockaddr from;
	uint16_t port;
	if (c->cmsg_len < CMSG_LEN(sizeof(e)))
		return false;
	memcpy(&e, CMSG_DATA(c), sizeof(e));
	out->mtu = e.ee_info;
	if (e.ee_origin == SO_EE_ORIGIN_LOCAL) {
		out->local = true;
		out->kind = RPWI_ICMP_TOO_BIG;
		return e.ee_errno == EMSGSIZE;
	}
	bool known = e.ee_origin == SO_EE_ORIGIN_ICMP
			     ? kind_of_v4(e.ee_type, e.ee_code, &out->kind)
			     : e.ee_origin == SO_EE_ORIGIN_ICMP6 &&
				       kind_of_v6(e.ee_type, e.ee_code, &out->kind);
	size_t have = c->cmsg_len - CMSG_LEN(sizeof(e));
	memset(&from, 0, sizeof(from));
	memcpy(&from, CMSG_DATA(c) + sizeof(e), RPWI_MIN(have, sizeof(from)));
	return known && rpwi_sockaddr_read(&from, (socklen_t)have, &out->from, &port);
}

/* One message off the queue. 1: *out is one; 0: one that says nothing to us; -1: there is none. */
static int take_one(struct rpwi_port *p, struct rpwi_icmp *out, bool *cost_a_send)
{
	union io_sockaddr to;
	union {
		char room[CMSG_SPACE(sizeof(struct sock_extended_err) + sizeof(to)) + 64];
		struct cmsghdr align;
	} control;
	struct iovec iov = {out->quote, sizeof(out->quote)};
	struct msghdr m = {.msg_name = &to,
		.msg_namelen = sizeof(to),
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control)};
	uint16_t port;
	ssize_t n = recvmsg(p->tx_fd, &m, MSG_ERRQUEUE | MSG_DONTWAIT);
	if (n < 0)
		return -1;
	out->quoted = (size_t)n;
	bool said = false;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c && !said; c = CMSG_NXTHDR(&m, c))
		said = ((c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_RECVERR) ||
			       (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_RECVERR)) &&
		       read_error(c, out);
	*cost_a_send |= !out->local;
	return said && rpwi_sockaddr_read(&to, m.msg_namelen, &out->dst, &port);
}

bool rpwi_icmp_take(struct rpwi_port *p)
{
	rpwi_shield();
	bool cost_a_send = false;
	int err;
	socklen_t len = sizeof(err);
	for (int i = 0; i < QUEUE_MAX; i++) {
		struct rpwi_icmp m = {.kind = RPWI_ICMP_NO_HOST};
		int rc = take_one(p, &m, &cost_a_send);
		if (rc < 0)
			break;
		if (!rc)
			continue;
		if (p->icmp_tail - p->icmp_head == IO_ICMP_KEPT)
			p->n.icmp_lost++;
		else
			p->icmp[p->icmp_tail++ % IO_ICMP_KEPT] = m;
	}
	/* of one for which the queue had no room */
	if (!getsockopt(p->tx_fd, SOL_SOCKET, SO_ERROR, &err, &len) && err)
		cost_a_send = true;
	return cost_a_send;
}

bool rpwi_port_icmp(struct rpwi_port *p, struct rpwi_icmp *out)
{
	if (p->icmp_head == p->icmp_tail)
		return false;
	*out = p->icmp[p->icmp_head++ % IO_ICMP_KEPT];
	return true;
}

int rpwi_port_tx_fd(const struct rpwi_port *p) { return p->tx_fd; }

void rpwi_port_hear_icmp(struct rpwi_port *p)
{
	rpwi_shield();
	if (p->tx_fd >= 0)
		rpwi_icmp_take(p);
}

uint32_t rpwi_path_mtu(const struct rpwi_addr *local, const struct rpwi_addr *dst)
{
	rpwi_shield();
	bool v6 = dst->family == 6;
	union io_sockaddr sa;
	int level = v6 ? IPPROTO_IPV6 : IPPROTO_IP, mtu = 0;
	int fd = socket(v6 ? AF_INET6 : AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	socklen_t len = sizeof(mtu);
	if (fd < 0)
		return 0;
	socklen_t sa_len = rpwi_sockaddr_make(&sa, local, 0);
	bool there = !bind(fd, &sa.sa, sa_len);
	sa_len = rpwi_sockaddr_make(&sa, dst, RPWI_UDP_PORT);
	there = there && !connect(fd, &sa.sa, sa_len);
	if (!there || getsockopt(fd, level, v6 ? IPV6_MTU : IP_MTU, &mtu, &len))
		mtu = 0;
	close(fd);
	return mtu > 0 ? (uint32_t)mtu : 0;
}
