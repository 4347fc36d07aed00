/* SPDX-License-Identifier: BSD-3-Clause */
/* contact.c - a listener's address as text, for those who carry it themselves: where it may be
 * reached, and whose process it is. It looks like
 *
 *   rpw1;0f3c6f1ea41f2d3c5b1c9b0a7d8e6f54;4711;10.0.0.2:7471,[2001:db8::2]:7471;9ad2b1c3
 *
 * version; host ID (tran_facts); PID; addresses, the likeliest first; CRC-32 of all before it. An
 * address of another host may exist on this one too (a bridge of containers, a private network): so
 * the hello is compared with host ID and PID, and loopback is tried on the same host only, and
 * there first. Nothing here is secret, and nothing of it is trusted. */
#include "boot/boot_priv.h"

#include <errno.h>
#include <ifaddrs.h>
#include <inttypes.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <zlib.h>

#include "base/error.h"
#include "ropeway.h"

static const char mark[] = "rpw1;";
enum { ADDRESSES_MAX = 8 };

static bool is_loopback(const struct boot_addr *a)
{
	if (a->ss.ss_family == AF_INET)
		return ntohl(((const struct sockaddr_in *)&a->ss)->sin_addr.s_addr) >> 24 == 127;
	const struct in6_addr *six = &((const struct sockaddr_in6 *)&a->ss)->sin6_addr;
	return IN6_IS_ADDR_LOOPBACK(six) || (IN6_IS_ADDR_V4MAPPED(six) && six->s6_addr[12] == 127);
}

/* One that means the same host wherever it is used. */
static bool is_link_local(const struct sockaddr *a)
{
	return a->sa_family == AF_INET6
		       ? IN6_IS_ADDR_LINKLOCAL(&((const struct sockaddr_in6 *)a)->sin6_addr)
		       : ntohl(((const struct sockaddr_in *)a)->sin_addr.s_addr) >> 16 == 0xa9fe;
}

/* ---- where a listener is ---- */

static void add(struct boot_addrs *out, const struct sockaddr *sa, uint16_t port)
{
	if (out->n == ADDRESSES_MAX)
		return;
	struct boot_addr *a = &out->at[out->n++];
	memset(a, 0, sizeof(*a));
	a->len = sa->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6)
					   : sizeof(struct sockaddr_in);
	memcpy(&a->ss, sa, a->len);
	boot_addr_set_port(a, port);
}

/* Of an IPv6 socket that takes IPv4 as well, and of an IPv4 one. */
static bool takes(int fd, int socket_family, int family)
{
	int only = 0;
	socklen_t len = sizeof(only);
	if (socket_family == family)
		return true;
	return socket_family == AF_INET6 &&
	       !getsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &only, &len) && !only;
}

/* All addresses of this host that a socket listens at: those that others can reach, IPv4's first,
 * or loopback's. */
static void add_interfaces(struct boot_addrs *out, const struct ifaddrs *all, int fd,
	int socket_family, uint16_t port, bool loopback)
{
	for (int family = AF_INET; family; family = family == AF_INET ? AF_INET6 : 0)
		for (const struct ifaddrs *i = all; i; i = i->ifa_next)
			if (i->ifa_addr && i->ifa_addr->sa_family == family &&
				i->ifa_flags & IFF_UP &&
				!(i->ifa_flags & IFF_LOOPBACK) == !loopback &&
				!is_link_local(i->ifa_addr) && takes(fd, socket_family, family))
				add(out, i->ifa_addr, port);
}

static void where(const struct boot_listener *l, struct boot_addrs *out, bool loopback,
	const struct ifaddrs *all)
{
	for (unsigned i = 0; i < l->nsockets; i++) {
		struct boot_addr a = {.len = sizeof(a.ss)};
		const struct boot_listener_socket *s = &l->socket[i];
		if (getsockname(s->fd, (struct sockaddr *)&a.ss, &a.len))
			continue;
		if (s->all)
			add_interfaces(
				out, all, s->fd, a.ss.ss_family, (uint16_t)l->port, loopback);
		else if (is_loopback(&a) == loopback)
			add(out, (const struct sockaddr *)&a.ss, (uint16_t)l->port);
	}
}

static void say(char *out, size_t room, size_t *n, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
static void say(char *out, size_t room, size_t *n, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	size_t left = *n < room ? room - *n : 0;
	int k = vsnprintf(left ? out + *n : NULL, left, fmt, ap);
	va_end(ap);
	*n += (size_t)RPWI_MAX(k, 0);
}

int boot_listener_contact(const struct boot_listener *l, char *out, size_t room)
{
	struct boot_addrs addrs = {0};
	struct ifaddrs *all = NULL;
	char text[RPW_ADDRESS_MAX], host[BOOT_WHERE_MAX], at[BOOT_WHERE_MAX];
	size_t n = 0;
	if (getifaddrs(&all))
		return rpwi_fail(RPW_ERR_SYSTEM, "the addresses of this host cannot be listed: %s",
			strerror(errno));
	where(l, &addrs, false, all);
	/* so that one of loopback has its place */
	addrs.n = RPWI_MIN(addrs.n, (unsigned)ADDRESSES_MAX - 1);
	where(l, &addrs, true, all);
	freeifaddrs(all);
	if (!addrs.n)
		return rpwi_fail(RPW_ERR_SYSTEM,
			"no interface of this host is up: no peer can reach the listener");
	say(text, sizeof(text), &n, "%s", mark);
	for (size_t i = 0; i < sizeof(l->b->own.host_id); i++)
		say(text, sizeof(text), &n, "%02x", l->b->own.host_id[i]);
	say(text, sizeof(text), &n, ";%" PRIu32 ";", l->b->own.pid);
	for (unsigned i = 0; i < addrs.n; i++) {
		boot_addr_text(&addrs.at[i], host, sizeof(host), at, sizeof(at));
		say(text, sizeof(text), &n, "%s%s", i ? "," : "", at);
	}
	say(text, sizeof(text), &n, ";");
	say(text, sizeof(text), &n, "%08lx",
		crc32(0, (const uint8_t *)text, (uInt)RPWI_MIN(n, sizeof(text) - 1)));
	if (n >= sizeof(text) || n >= room)
		return rpwi_fail(RPW_ERR_LIMIT,
			"the address takes %zu bytes, but there is room for %zu; RPW_ADDRESS_MAX "
			"bytes "
			"always do",
			n + 1, room);
	memcpy(out, text, n + 1);
	return (int)n;
}

/* ---- where to dial ---- */

bool boot_is_contact(const char *address) { return !strncmp(address, mark, sizeof(mark) - 1); }

static int garbled(const char *what, const char *address)
{
	return rpwi_fail(RPW_ERR_INVALID,
		"the address of a listener is garbled: %s; carry all that rpw_listener_address "
		"gave (\"%.60s...\")",
		what, address);
}

/* The next field, up to the separator, which is gone then. */
static char *field(char **rest, char separator)
{
	char *begin = *rest, *end = begin ? strchr(begin, separator) : NULL;
	*rest = end ? end + 1 : NULL;
	if (end)
		*end = 0;
	return begin;
}

static bool host_id_parse(const char *hex, uint8_t id[16])
{
	if (!hex || strlen(hex) != 32 || strspn(hex, "0123456789abcdef") != 32)
		return false;
	for (int i = 0; i < 16; i++) {
		unsigned byte = 0;
		sscanf(hex + 2 * i, "%2x", &byte);
		id[i] = (uint8_t)byte;
	}
	return true;
}

static bool number_parse(const char *text, int base, uint32_t *out)
{
	char *end;
	errno = 0;
	unsigned long long v = text && *text ? strtoull(text, &end, base) : 0;
	*out = (uint32_t)v;
	return text && *text && !*end && !errno && v <= UINT32_MAX && *text != '-' &&
	       *text != '+' && *text != ' ';
}

static bool addrs_parse(char *list, struct boot_addrs *out)
{
	for (char *one; (one = field(&list, ','));) {
		char host[BOOT_HOST_MAX];
		uint16_t port;
		struct boot_addrs numeric;
		if (out->n == ADDRESSES_MAX || boot_addr_split(one, host, &port) || !port ||
			!*host || !boot_addr_numeric(host, port, false, &numeric))
			return false;
		out->at[out->n++] = numeric.at[0];
	}
	return out->n;
}

/* Loopback is this host's: first where that is meant, else not at all. */
static void order(struct boot_addrs *a, bool here)
{
	struct boot_addrs in = *a;
	a->n = 0;
	for (int loopback = here; loopback >= 0; loopback--)
		for (unsigned i = 0; i < in.n; i++)
			if (is_loopback(&in.at[i]) == loopback)
				a->at[a->n++] = in.at[i];
}

int boot_contact_parse(const struct boot *b, const char *address, struct boot_contact *out,
	struct boot_addrs *addrs)
{
	char text[RPW_ADDRESS_MAX];
	uint32_t crc;
	size_t n = strlen(address);
	memset(out, 0, sizeof(*out));
	addrs->n = 0;
	if (n >= sizeof(text))
		return garbled("it is too long", address);
	memcpy(text, address, n + 1);
	char *last = strrchr(text, ';');
	if (strlen(last + 1) != 8 || !number_parse(last + 1, 16, &crc))
		return garbled("its end is missing", address);
	if (crc != (uint32_t)crc32(0, (const uint8_t *)text, (uInt)(last + 1 - text)))
		return garbled("its checksum does not fit", address);
	*last = 0;
	char *rest = text + sizeof(mark) - 1;
	if (!host_id_parse(field(&rest, ';'), out->host_id) ||
		!number_parse(field(&rest, ';'), 10, &out->pid) ||
		!addrs_parse(field(&rest, ';'), addrs) || rest)
		return garbled("it is not \"rpw1;host;pid;addresses;checksum\"", address);
	order(addrs, !memcmp(out->host_id, b->own.host_id, sizeof(out->host_id)));
	if (!addrs->n)
		return rpwi_fail(RPW_ERR_UNREACHABLE,
			"that listener has loopback's addresses only, and is on another host (or "
			"in another network namespace): let it listen at "
			":port, or at an address that others can reach");
	out->known = true;
	return RPW_OK;
}

bool boot_contact_is(const struct boot_contact *k, const struct tran_facts *peer)
{
	return !k->known ||
	       (k->pid == peer->pid && !memcmp(k->host_id, peer->host_id, sizeof(k->host_id)));
}
