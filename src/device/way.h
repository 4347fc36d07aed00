/* SPDX-License-Identifier: BSD-3-Clause */
/* way.h - the way to a host as the kernel has it, kept for as long as it holds. Programs make
 * address handles by the thousand, and to ask takes a socket. Private to device/. */
#ifndef ROPEWAY_DEVICE_WAY_H
#define ROPEWAY_DEVICE_WAY_H

#include "io/io.h"

struct way {
	struct rpwi_addr to;
	struct rpwi_route route;
	uint8_t hops;  /* the hop limit of packets without one */
	bool found;    /* nobody has to wait for the host */
	uint32_t turn; /* 0: nothing is known */
	uint64_t until_ns;
};

/* The lock of the HCA is held, and the answer is good for as long. */
const struct way *way_to(const struct rpwi_addr *to);
/* The host answers, by the way that had that turn. */
void way_found(const struct rpwi_addr *to, uint32_t turn);
/* After a fork the kernel tells the parent of changes; and at the end. */
void way_forget_all(void);

#endif
