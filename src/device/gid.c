/* SPDX-License-Identifier: BSD-3-Clause */
/* gid.c - between GIDs and addresses. Pure. */
#include <arpa/inet.h>

#include "device/hca.h"
#include "device/ports.h"

static const uint8_t v4_mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

void gid_text(const uint8_t *raw, char *out) { inet_ntop(AF_INET6, raw, out, INET6_ADDRSTRLEN); }

/* An IPv4 group is IPv4-mapped, as an IPv4 host is; an IPv6 one is the GID (A17.4.5). */
void gid_to_addr(const union ibv_gid *gid, int ifindex, struct rpwi_addr *a)
{
	memset(a, 0, sizeof(*a));
	if (!memcmp(gid->raw, v4_mapped, 12)) {
		a->family = 4;
		memcpy(a->bytes, gid->raw + 12, 4);
		return;
	}
	a->family = 6;
	memcpy(a->bytes, gid->raw, 16);
	if (rpwi_addr_is_link_local6(a) || rpwi_addr_is_mcast(a))
		a->scope = (uint32_t)ifindex;
}
