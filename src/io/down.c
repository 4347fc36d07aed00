/* SPDX-License-Identifier: BSD-3-Clause */
/* down.c - why an interface is not up, for a person. */
#include "io/io.h"

#include <stdio.h>

void rpwi_netdev_why_down(const struct rpwi_netdev *d, char *why, size_t why_len)
{
	if (d->no_carrier)
		snprintf(why, why_len,
			"interface %s is up, but has no carrier (`ip link` shows NO-CARRIER): "
			"connect its cable, or bring up what is at its other end: a switch's port, "
			"a veth's peer, a bridge's or bond's member",
			d->ifname);
	else
		snprintf(why, why_len, "interface %s is down: ip link set %s up", d->ifname,
			d->ifname);
}
