/* SPDX-License-Identifier: BSD-3-Clause */
/* addr.c - see addr.h. */
#include "boot/addr.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "ropeway.h"

static int port_parse(const char *text, uint16_t *port)
{
	size_t digits = strspn(text, "0123456789");
	unsigned long v = digits && digits <= 5 && !text[digits] ? strtoul(text, NULL, 10) : 65536;
	if (v > 65535)
		return -1;
	*port = (uint16_t)v;
	return 0;
}

int boot_addr_split(const char *text, char host[BOOT_HOST_MAX], uint16_t *port)
{
	const char *colon = strrchr(text, ':'), *from = text, *to = colon;
	if (!colon)
		return rpwi_fail(RPW_ERR_INVALID,
			"\"%.300s\" has no port: an address is host:port, [v6]:port or :port",
			text);
	if (*text == '[') {
		from = text + 1;
		to = colon - 1;
		if (to < from || *to != ']')
			return rpwi_fail(RPW_ERR_INVALID,
				"\"%.300s\" opens a bracket that does not close before its port: "
				"an IPv6 address is written [v6]:port",
				text);
	} else if (memchr(text, ':', (size_t)(colon - text))) {
		return rpwi_fail(RPW_ERR_INVALID,
			"\"%.300s\" could be read in two ways: an IPv6 address with a port is "
			"written [v6]:port",
			text);
	}
	if (to - from >= BOOT_HOST_MAX)
		return rpwi_fail(RPW_ERR_INVALID,
			"the host of an address may have %d characters, not %zd", BOOT_HOST_MAX - 1,
			to - from);
	if (port_parse(colon + 1, port))
		return rpwi_fail(RPW_ERR_INVALID,
			"\"%.100s\" is not a port: a port is a number from 0 to 65535 (in "
			"\"%.300s\")",
			colon + 1, text);
	memcpy(host, from, (size_t)(to - from));
	host[to - from] = 0;
	return 0;
}

void boot_addr_take(const struct addrinfo *ai, struct boot_addrs *out)
{
	out->n = 0;
	for (; ai && out->n < BOOT_ADDRS_MAX; ai = ai->ai_next) {
		if ((ai->ai_family != AF_INET && ai->ai_family != AF_INET6) ||
			ai->ai_addrlen > sizeof(out->at[0].ss))
			continue;
		struct boot_addr *a = &out->at[out->n++];
		memset(a, 0, sizeof(*a));
		a->len = ai->ai_addrlen;
		memcpy(&a->ss, ai->ai_addr, ai->ai_addrlen);
	}
}

unsigned boot_addr_numeric(const char *host, uint16_t port, bool passive, struct boot_addrs *out)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
				.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV |
					    (passive ? AI_PASSIVE : 0)},
			*ai;
	char service[8];
	snprintf(service, sizeof(service), "%u", port);
	out->n = 0;
	if (getaddrinfo(*host ? host : NULL, service, &hints, &ai))
		return 0;
	boot_addr_take(ai, out);
	freeaddrinfo(ai);
	return out->n;
}

bool boot_addr_is_any(const struct boot_addr *a)
{
	if (a->ss.ss_family == AF_INET6)
		return IN6_IS_ADDR_UNSPECIFIED(&((const struct sockaddr_in6 *)&a->ss)->sin6_addr);
	return ((const struct sockaddr_in *)&a->ss)->sin_addr.s_addr == INADDR_ANY;
}

uint16_t boot_addr_port(const struct boot_addr *a)
{
	return ntohs(a->ss.ss_family == AF_INET6 ? ((const struct sockaddr_in6 *)&a->ss)->sin6_port
						 : ((const struct sockaddr_in *)&a->ss)->sin_port);
}

void boot_addr_set_port(struct boot_addr *a, uint16_t port)
{
	if (a->ss.ss_family == AF_INET6)
		((struct sockaddr_in6 *)&a->ss)->sin6_port = htons(port);
	else
		((struct sockaddr_in *)&a->ss)->sin_port = htons(port);
}

void boot_addr_text(
	const struct boot_addr *a, char *host, size_t host_len, char *where, size_t where_len)
{
	const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)&a->ss;
	bool mapped = a->ss.ss_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&six->sin6_addr);
	if (mapped)
		inet_ntop(AF_INET, &six->sin6_addr.s6_addr[12], host, (socklen_t)host_len);
	else if (getnameinfo((const struct sockaddr *)&a->ss, a->len, host, (socklen_t)host_len,
			 NULL, 0, NI_NUMERICHOST))
		snprintf(host, host_len, "?");
	if (where)
		snprintf(where, where_len,
			a->ss.ss_family == AF_INET6 && !mapped ? "[%s]:%u" : "%s:%u", host,
			boot_addr_port(a));
}
