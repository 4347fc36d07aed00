/* SPDX-License-Identifier: BSD-3-Clause */
/* udp.c - what all sockets that receive on UDP port 4791 have in common: a port's (port.c), and
 * those of multicast groups (mcast.c). */
#include "io/io_priv.h"

#include <netinet/udp.h>

#ifndef UDP_NO_CHECK6_RX
#define UDP_NO_CHECK6_RX 102
#endif

int rpwi_udp_set(int fd, int level, int name, int value)
{
	return setsockopt(fd, level, name, &value, sizeof(value)) ? -errno : 0;
}

int rpwi_udp_rx_socket(bool v6)
{
	int fd = socket(v6 ? AF_INET6 : AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (rpwi_udp_set(fd, SOL_SOCKET, SO_RCVBUFFORCE, IO_RCVBUF_BYTES))
		rpwi_udp_set(fd, SOL_SOCKET, SO_RCVBUF, IO_RCVBUF_BYTES);
	/* before Linux 5.0 there is none: then packets come one by one */
	rpwi_udp_set(fd, IPPROTO_UDP, UDP_GRO, 1);
	if (v6) {
		rpwi_udp_set(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1);
		/* kernel rxe and NICs send UDP checksum 0 on IPv6 too */
		rpwi_udp_set(fd, IPPROTO_UDP, UDP_NO_CHECK6_RX, 1);
	}
	return fd;
}

void rpwi_udp_want_ttl(int fd, bool v6, bool want)
{
	int level = v6 ? IPPROTO_IPV6 : IPPROTO_IP;
	rpwi_udp_set(fd, level, v6 ? IPV6_RECVHOPLIMIT : IP_RECVTTL, want);
	rpwi_udp_set(fd, level, v6 ? IPV6_RECVTCLASS : IP_RECVTOS, want);
}

static int cmsg_int(const struct cmsghdr *c)
{
	int v = 0;
	size_t n = c->cmsg_len - CMSG_LEN(0);
	if (n >= sizeof(int))
		memcpy(&v, CMSG_DATA(c), sizeof(int));
	else if (n >= 1)
		v = *(const uint8_t *)CMSG_DATA(c); /* IP_TOS comes as a byte */
	return v;
}

static void read_cmsgs(struct msghdr *m, struct rpwi_rx *rx)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
		if (c->cmsg_level == SOL_UDP && c->cmsg_type == UDP_GRO)
			rx->seg_len = (size_t)cmsg_int(c);
		else if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_TTL)
			rx->ttl = (uint8_t)cmsg_int(c);
		else if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_TOS)
			rx->tos = (uint8_t)cmsg_int(c);
		else if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_HOPLIMIT)
			rx->ttl = (uint8_t)cmsg_int(c);
		else if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_TCLASS)
			rx->tos = (uint8_t)cmsg_int(c);
	}
}

int rpwi_udp_recv(int fd, uint8_t *buf, const struct rpwi_addr *dst, struct rpwi_rx *rx)
{
	union io_sockaddr from;
	union {
		char room[CMSG_SPACE(sizeof(int)) * 3];
		struct cmsghdr align;
	} control;
	struct iovec iov = {buf, IO_GRO_BYTES_MAX};
	struct msghdr m = {.msg_name = &from,
		.msg_namelen = sizeof(from),
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control)};
	ssize_t n = recvmsg(fd, &m, MSG_DONTWAIT);
	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	rx->data = buf;
	rx->len = (size_t)n;
	rx->seg_len = 0;
	rx->ttl = IO_TTL_UNKNOWN;
	rx->tos = 0;
	rx->ip_id = -1;
	rx->flow.dst = *dst;
	rx->flow.dport = RPWI_UDP_PORT;
	read_cmsgs(&m, rx);
	if (!rx->seg_len || rx->seg_len > rx->len)
		rx->seg_len = rx->len;
	return rpwi_sockaddr_read(&from, m.msg_namelen, &rx->flow.src, &rx->flow.sport) ? 1
											: -EPROTO;
}
