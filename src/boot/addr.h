/* SPDX-License-Identifier: BSD-3-Clause */
/* addr.h - addresses as people write them, and as the kernel does. Never blocks: names are
 * names.c's. */
#ifndef ROPEWAY_BOOT_ADDR_H
#define ROPEWAY_BOOT_ADDR_H

#include <netdb.h>
#include <sys/socket.h>

#include "base/base.h"

enum { BOOT_HOST_MAX = 256, BOOT_ADDRS_MAX = 16, BOOT_WHERE_MAX = 96 };

struct boot_addr {
	socklen_t len;
	struct sockaddr_storage ss;
};
struct boot_addrs {
	unsigned n;
	struct boot_addr at[BOOT_ADDRS_MAX];
};

/* "host:port", "[v6]:port", ":port" (host is ""). 0 or RPW_ERR_INVALID, reason by rpwi_fail. */
int boot_addr_split(const char *text, char host[BOOT_HOST_MAX], uint16_t *port);
/* The addresses of a numeric host; of "" with `passive` the ones to listen at on all, else this
 * host's own. 0 for a name. */
unsigned boot_addr_numeric(const char *host, uint16_t port, bool passive, struct boot_addrs *out);
/* What getaddrinfo gave, as far as there is room. */
void boot_addr_take(const struct addrinfo *ai, struct boot_addrs *out);

bool boot_addr_is_any(const struct boot_addr *a); /* 0.0.0.0, [::] */
uint16_t boot_addr_port(const struct boot_addr *a);
void boot_addr_set_port(struct boot_addr *a, uint16_t port);
/* "10.0.0.2" and "10.0.0.2:4711", "[fe80::1%eth0]:4711"; an IPv4 address mapped into IPv6 as the
 * IPv4 address that it is. `where` may be NULL. */
void boot_addr_text(
	const struct boot_addr *a, char *host, size_t host_len, char *where, size_t where_len);

#endif
