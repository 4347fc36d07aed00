/* SPDX-License-Identifier: BSD-3-Clause */
/* addr.c - addresses of programs, and the routing table's word on which of ours is used towards a
 * peer. */
#include "ucma/ucma_priv.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <unistd.h>

int endpoint_read(const void *sockaddr, size_t room, struct endpoint *e)
{
	struct sockaddr_in in;
	struct sockaddr_in6 in6;
	sa_family_t family;
	memset(e, 0, sizeof(*e));
	if (room < sizeof(family))
		return -EINVAL;
	memcpy(&family, sockaddr, sizeof(family));
	if (family == AF_INET && room >= sizeof(in)) {
		memcpy(&in, sockaddr, sizeof(in));
		e->addr.family = 4;
		memcpy(e->addr.bytes, &in.sin_addr, 4);
		e->port = ntohs(in.sin_port);
		return 0;
	}
	if (family == AF_INET6 && room >= sizeof(in6)) {
		memcpy(&in6, sockaddr, sizeof(in6));
		e->port = ntohs(in6.sin6_port);
		if (IN6_IS_ADDR_V4MAPPED(&in6.sin6_addr)) {
			e->addr.family = 4;
			memcpy(e->addr.bytes, in6.sin6_addr.s6_addr + 12, 4);
			return 0;
		}
		e->addr.family = 6;
		memcpy(e->addr.bytes, &in6.sin6_addr, 16);
		if (IN6_IS_ADDR_LINKLOCAL(&in6.sin6_addr) ||
			IN6_IS_ADDR_MC_LINKLOCAL(&in6.sin6_addr))
			e->addr.scope = in6.sin6_scope_id;
		return 0;
	}
	return family == AF_INET || family == AF_INET6 ? -EINVAL : -EAFNOSUPPORT;
}

void endpoint_write(const struct endpoint *e, struct sockaddr_in6 *out)
{
	memset(out, 0, sizeof(*out));
	if (e->addr.family == 4) {
		struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(e->port)};
		memcpy(&in.sin_addr, e->addr.bytes, 4);
		memcpy(out, &in, sizeof(in));
	} else if (e->addr.family == 6) {
		out->sin6_family = AF_INET6;
		out->sin6_port = htons(e->port);
		memcpy(&out->sin6_addr, e->addr.bytes, 16);
		out->sin6_scope_id = e->addr.scope;
	}
}

bool addr_is_any(const struct rpwi_addr *a)
{
	static const uint8_t zero[16];
	return !memcmp(a->bytes, zero, sizeof(zero));
}

bool addr_is_loopback(const struct rpwi_addr *a)
{
	static const uint8_t loopback6[16] = {[15] = 1};
	return a->family == 4 ? a->bytes[0] == 127
			      : !memcmp(a->bytes, loopback6, sizeof(loopback6));
}

const char *endpoint_text(const struct endpoint *e, char text[64])
{
	char ip[INET6_ADDRSTRLEN] = "none";
	if (e->addr.family)
		inet_ntop(e->addr.family == 4 ? AF_INET : AF_INET6, e->addr.bytes, ip, sizeof(ip));
	snprintf(text, 64, e->addr.family == 6 ? "[%s]:%u" : "%s:%u", ip, e->port);
	return text;
}

int addr_route(const struct rpwi_addr *src, const struct rpwi_addr *dst, struct rpwi_addr *local)
{
	struct endpoint e = {.addr = *dst, .port = RPWI_UDP_PORT}, from = {.addr = *src};
	struct sockaddr_in6 sa;
	socklen_t len = dst->family == 4 ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
	/* A datagram socket's connect looks up the route and chooses the source address; nothing is
	 * sent. */
	int fd = socket(dst->family == 4 ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0),
	    rc = 0;
	if (fd < 0)
		return -errno;
	if (src->family && !addr_is_any(src)) {
		endpoint_write(&from, &sa);
		if (src->family != dst->family || bind(fd, (struct sockaddr *)&sa, len))
			rc = src->family != dst->family ? -EINVAL : -errno;
	}
	endpoint_write(&e, &sa);
	if (!rc && connect(fd, (struct sockaddr *)&sa, len))
		rc = -errno;
	socklen_t room = sizeof(sa);
	if (!rc && getsockname(fd, (struct sockaddr *)&sa, &room))
		rc = -errno;
	close(fd);
	if (!rc)
		rc = endpoint_read(&sa, room, &e);
	*local = e.addr;
	return rc;
}
