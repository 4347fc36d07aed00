/* SPDX-License-Identifier: BSD-3-Clause */
/* where.c - who listens where, for people: the plugin's device, and the addresses of the network
 * interface that has its name. Which of them the plugin listens on, and at which port, only the
 * handle says, which is never parsed here. */
#include "cli/connection/connection.h"

#include <ifaddrs.h>
#include <netdb.h>
#include <stdio.h>
#include <sys/socket.h>

static socklen_t address_len(const struct sockaddr *a)
{
	switch (a->sa_family) {
	case AF_INET:
		return sizeof(struct sockaddr_in);
	case AF_INET6:
		return sizeof(struct sockaddr_in6);
	}
	return 0;
}

/* "ADDRESS, ADDRESS" of the interface; the rest, if it does not fit, is "...". How many there are;
 * 0 also where no interface has that name. */
static unsigned addresses(const char *interface, char *out, size_t len)
{
	enum { SHOWN_MAX = 4 };
	struct ifaddrs *all = NULL;
	char text[NI_MAXHOST];
	unsigned found = 0;
	size_t n = 0;
	*out = 0;
	if (getifaddrs(&all))
		return 0;
	for (struct ifaddrs *i = all; i; i = i->ifa_next) {
		socklen_t size = i->ifa_addr ? address_len(i->ifa_addr) : 0;
		if (!size || strcmp(i->ifa_name, interface) != 0 ||
			getnameinfo(i->ifa_addr, size, text, sizeof(text), NULL, 0, NI_NUMERICHOST))
			continue;
		if (++found <= SHOWN_MAX && n < len)
			n += (size_t)snprintf(out + n, len - n, "%s%s", n ? ", " : "", text);
		else if (found == SHOWN_MAX + 1 && n < len)
			snprintf(out + n, len - n, ", ...");
	}
	freeifaddrs(all);
	return found;
}

void where_listens(const struct ncclnet_properties *p, int device, char *out, size_t len)
{
	char list[4 * 64], port[32] = "";
	const char *name = p->name ? p->name : "none";
	unsigned found = addresses(name, list, sizeof(list));
	/* the device's own, counted from 1; plugins of network interfaces leave it 0 */
	if (p->port > 0)
		snprintf(port, sizeof(port), ", its port %d", p->port);
	if (found)
		snprintf(out, len, "device %d, %.63s%s, %s %s", device, name, port,
			found > 1 ? "addresses" : "address", list);
	else
		snprintf(out, len,
			"device %d, %.63s%s, which is not the name of a network interface with an "
			"address",
			device, name, port);
}
