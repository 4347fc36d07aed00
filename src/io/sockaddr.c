/* SPDX-License-Identifier: BSD-3-Clause */
/* sockaddr.c - between the kernel's socket addresses and ours. Pure. */
#include "io/io_priv.h"

#include <arpa/inet.h>
#include <stdio.h>

socklen_t rpwi_sockaddr_make(union io_sockaddr *sa, const struct rpwi_addr *a, uint16_t port)
{
	memset(sa, 0, sizeof(*sa));
	if (a->family == 4) {
		sa->in.sin_family = AF_INET;
		sa->in.sin_port = htons(port);
		memcpy(&sa->in.sin_addr, a->bytes, 4);
		return sizeof(sa->in);
	}
	sa->in6.sin6_family = AF_INET6;
	sa->in6.sin6_port = htons(port);
	sa->in6.sin6_scope_id = a->scope;
	memcpy(&sa->in6.sin6_addr, a->bytes, 16);
	return sizeof(sa->in6);
}

bool rpwi_sockaddr_read(
	const union io_sockaddr *sa, socklen_t len, struct rpwi_addr *a, uint16_t *port)
{
	memset(a, 0, sizeof(*a));
	if (len >= sizeof(sa->in) && sa->sa.sa_family == AF_INET) {
		a->family = 4;
		memcpy(a->bytes, &sa->in.sin_addr, 4);
		*port = ntohs(sa->in.sin_port);
		return true;
	}
	if (len >= sizeof(sa->in6) && sa->sa.sa_family == AF_INET6) {
		a->family = 6;
		memcpy(a->bytes, &sa->in6.sin6_addr, 16);
		a->scope = sa->in6.sin6_scope_id;
		*port = ntohs(sa->in6.sin6_port);
		return true;
	}
	return false;
}

const char *rpwi_addr_text(const struct rpwi_addr *a, char text[IO_ADDR_TEXT])
{
	if (!inet_ntop(a->family == 4 ? AF_INET : AF_INET6, a->bytes, text, IO_ADDR_TEXT))
		snprintf(text, IO_ADDR_TEXT, "?");
	return text;
}
